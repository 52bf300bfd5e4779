//! Conversions of a held read-write lock in a session with a short timeout.

use ::simulation::scenario::tokio;
use test_support::in_process::read_write::lock;
use test_support::prelude::*;

use crate::until_ended;

/// The session timeout.
const BRIEF: Duration = Duration::from_millis(1500);

/// A lock that is lost during a downgrade gives up its place in the queue, however long the caller
/// keeps the error.
#[tokio::test]
async fn lost_downgrade_gives_up_its_place() {
    let server = start_impatient();
    let client = connect_for(&server, BRIEF).await;
    let id = session(&client);
    let lock = lock(&client);
    let guard = within("the write lock", lock.write_lock().lock())
        .await
        .unwrap();
    server.freeze_expiry(true);
    server.stall(id, Direction::Both);
    let downgrade = tokio::spawn(guard.downgrade());
    until_lost(&lock.write_lock()).await;
    server.resume(id);
    server.freeze_expiry(false);
    let failed = within("an answer", downgrade).await.unwrap().unwrap_err();
    assert!(
        matches!(&failed, ConversionError::Lost { source: lost, .. } if lost.reason() == LostReason::LeaseExpired),
        "{failed}"
    );
    until(&server, "an empty directory", |view| {
        view.children(DIRECTORY).is_empty()
    })
    .await;
    assert_eq!(client.session_id(), Some(id), "expected the same session");
    let next = lock.write_lock().acquire(SOON).await;
    assert!(
        next.is_ok(),
        "the lock is free, and was not granted: {}",
        next.unwrap_err()
    );
    drop(failed);
}

/// Asserts that a session is not renewed for six times the heartbeat interval. No event shows that
/// no heartbeat will come.
async fn no_beats(server: &Server, client: &Client, id: i64) {
    // The list is answered after any heartbeat that was sent while the node existed.
    within("a list", lock(client).participants()).await.unwrap();
    let before = server.counters().requests_of(id, Op::Multi);
    let beaten = move |view: View<'_>| view.counters().requests_of(id, Op::Multi) > before;
    never_for(BRIEF, server, "a heartbeat without a node", beaten).await;
}

/// A client without a node sends no heartbeats, whether its last lock was released or lost in a
/// downgrade.
#[tokio::test]
async fn downgrade_without_directory_leaves_no_heartbeats() {
    let server = start_impatient();
    let client = connect_for(&server, BRIEF).await;
    let id = session(&client);

    // Without a hold no heartbeat is sent.
    let writer = read_write::write(&client).await;
    writer.release().await.unwrap();
    no_beats(&server, &client, id).await;

    let writer = read_write::write(&client).await;
    let gate = server.hold_request(Match::op(Op::Multi).session(id).path_contains("__READ__"));
    let downgrade = tokio::spawn(writer.downgrade());
    within("the transaction", gate.wait_hit()).await;
    for node in server.children(DIRECTORY) {
        server.delete(&format!("{DIRECTORY}/{node}")).unwrap();
    }
    server.delete(DIRECTORY).unwrap();
    gate.release();
    let failed = within("an answer", downgrade).await.unwrap().unwrap_err();
    let ConversionError::Lost { source: lost, .. } = &failed else {
        panic!("{failed}")
    };
    assert_eq!(lost.reason(), LostReason::NodeDeleted);
    drop(failed);
    client.flush(SOON).await.unwrap();
    no_beats(&server, &client, id).await;
}

/// The future of `lost` resolves before the servers can grant the lock to another client, even
/// during a conversion.
// Shows: telling-a-loss
#[tokio::test]
async fn conversion_does_not_delay_loss_notification() {
    for converting in [false, true] {
        let server = start_impatient();
        let client = connect_for(&server, BRIEF).await;
        let (id, guard) = (session(&client), read_write::write(&client).await);
        let lost = tokio::spawn(guard.lost());
        server.stall(id, Direction::Both);
        let kept = if converting {
            Err(ByHand::new(guard.downgrade()).start())
        } else {
            Ok(guard)
        };
        until_ended(&server, id).await;
        assert!(lost.is_finished(), "converting: {converting}");
        drop(kept);
    }
}
