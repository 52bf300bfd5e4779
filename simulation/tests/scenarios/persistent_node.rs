//! Writes of a persistent node that are lost or refused while newer data are set:
//! docs/protocol.md#persistent-node.

use ::simulation::scenario::tokio;
use test_support::prelude::*;
use zookeeper_client as zk;

const PATH: &str = "/services/web/web-1";

/// A write without an answer, of which the next server does not know yet, may still be carried out:
/// it does not replace newer data.
// Shows: persistent-node
#[tokio::test]
async fn late_write_overtakes_no_wanted_data() {
    let (server, [client]) = with_clients(Server::start().unwrap(), connect).await;
    let node = PersistentNode::new(&client, PATH, "a").unwrap();
    within("the creation", node.wait_for_initial_create(SOON))
        .await
        .unwrap();
    until(&server, "its watch", |view| view.watches() == 1).await;
    let write = server.drop_request(Match::op(Op::SetData).path(PATH), Loss::Close);
    let _late = pending(node.set_data("b"));
    within("the write", write.wait_hit()).await;
    // The call comes before the pause after the loss is over: otherwise "b" would be written once
    // more, and "a" after it.
    let last = pending(node.set_data("a"));
    within("the last write", last).await.unwrap();
    let raw = within("a session", zk::Client::connect(&server.connect_string()))
        .await
        .unwrap();
    let late = within("the late write", raw.set_data(PATH, b"b", Some(0))).await;
    assert_eq!(late.unwrap_err(), zk::Error::BadVersion);
    assert_eq!(server.node(PATH).unwrap().data, b"a");
}

/// Data that are set while earlier data are being refused are written at once.
// Shows: persistent-node
#[tokio::test]
async fn refused_data_delay_no_others() {
    let (server, [client]) = with_clients(Server::start().unwrap(), connect).await;
    let node = PersistentNode::new(&client, PATH, "a").unwrap();
    within("the creation", node.wait_for_initial_create(SOON))
        .await
        .unwrap();
    until(&server, "its watch", |view| view.watches() == 1).await;
    let write = Match::op(Op::SetData).path(PATH);
    server.fail(write.clone(), ServerError::NoAuth.code());
    let refusal = server.hold_reply(write);
    let refused = pending(node.set_data("b"));
    within("the refusal", refusal.wait_hit()).await;
    let next = pending(node.set_data("c"));
    let began = Instant::now();
    refusal.release();
    within("the write", next).await.unwrap();
    assert!(began.elapsed() < Duration::from_secs(1));
    within("the earlier order", refused).await.unwrap();
}
