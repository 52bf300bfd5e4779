//! Reads of data that a lock protects: docs/protocol.md#read-under-lock.

use test_support::prelude::*;
use zookeeper_client as zk;

const RATES: &str = "/rates";

/// A read, a check and a write under the lock, without another client.
// Shows: read-under-lock
#[tokio::test]
async fn read_returns_version_for_the_write() {
    let (server, [client]) = with_clients(start(), connect).await;
    server.create(RATES, "1").unwrap();
    server.set_data(RATES, "2").unwrap();
    let guard = hold(&client).await;
    assert!(
        within("a read", guard.get_data("/none"))
            .await
            .unwrap()
            .is_none()
    );
    let (data, version) = within("a read", guard.get_data(RATES))
        .await
        .unwrap()
        .unwrap();
    assert_eq!((&*data, version), (&b"2"[..], 1));
    // The writer does not acquire the lock.
    server.set_data(RATES, "3").unwrap();
    let stale = guard.transaction().set_data(RATES, "4", version).commit();
    let stale = within("the refusal", stale).await.unwrap_err();
    assert!(
        matches!(stale, TransactionError::Rejected { index: 0, .. }),
        "{stale}"
    );
    let (_, version) = within("a read", guard.get_data(RATES))
        .await
        .unwrap()
        .unwrap();
    within(
        "the write",
        guard.transaction().set_data(RATES, "4", version).commit(),
    )
    .await
    .unwrap();
    assert_eq!(server.node(RATES).unwrap().data, b"4");
}

// Shows: read-under-lock
#[tokio::test]
async fn read_costs_one_flight() {
    let (server, [client]) = with_clients(start(), connect).await;
    server.create(RATES, "1").unwrap();
    let guard = hold(&client).await;
    let id = session(&client);
    // Neither request waits for the other's answer.
    let gate = server.hold_reply(Match::op(Op::Sync).session(id));
    let read = pending(guard.get_data(RATES));
    within("the sync", gate.wait_hit()).await;
    until(&server, "the read", move |view| {
        view.counters().requests_of(id, Op::GetData) == 1
    })
    .await;
    gate.release();
    assert!(within("the answer", read).await.unwrap().is_some());
    let counters = server.counters();
    assert_eq!(
        (
            counters.requests_of(id, Op::Sync),
            counters.requests_of(id, Op::GetData)
        ),
        (1, 1)
    );
}

// Shows: read-under-lock
#[tokio::test]
async fn every_guard_with_transactions_reads() {
    let server = start();
    let client = connect_as(
        Client::builder().namespace("shop").retry_policy(eager()),
        &server,
    )
    .await;
    let both = InterProcessMultiLock::from_paths(&client, ["/locks/a", "/locks/b"]).unwrap();
    let both = within("both", both.lock()).await.unwrap();
    within("a write", both.transaction().create(RATES, "1").commit())
        .await
        .unwrap();
    assert_eq!(
        server.node("/shop/rates").unwrap().data,
        b"1",
        "below the namespace"
    );
    let read = within("a read", both.get_data(RATES))
        .await
        .unwrap()
        .unwrap();
    assert_eq!((&*read.0, read.1), (&b"1"[..], 0));
    let semaphore = InterProcessSemaphore::new(&client, "/permits", 2).unwrap();
    let permits = within("the permits", semaphore.try_acquire_many(2))
        .await
        .unwrap();
    assert_eq!(
        within("a read", permits.get_data(RATES))
            .await
            .unwrap()
            .unwrap()
            .0,
        b"1"
    );
    // The node of one member is deleted, and the lock is lost.
    server.delete(&format!("/shop{}", both.nodes()[1])).unwrap();
    let check = both.transaction().check(RATES, None).commit();
    within("the loss", check).await.unwrap_err();
    let lost = within("the answer", both.get_data(RATES))
        .await
        .unwrap_err();
    assert!(
        matches!(lost, TransactionError::Lost(_)) && lost.path() == "/locks/b",
        "{lost}"
    );
}

// Shows: read-under-lock
#[tokio::test]
async fn lost_answer_is_asked_again() {
    let (server, [client]) = with_clients(start(), connect).await;
    server.create(RATES, "1").unwrap();
    let guard = hold(&client).await;
    let lost = server.drop_reply(Match::op(Op::GetData).path(RATES), Loss::Close);
    let not_done = server.drop_request(Match::op(Op::GetData).path(RATES).nth(1), Loss::Close);
    assert_eq!(
        within("a read", guard.get_data(RATES))
            .await
            .unwrap()
            .unwrap()
            .0,
        b"1"
    );
    assert_eq!((lost.hits().len(), not_done.hits().len()), (1, 1));
}

#[tokio::test]
async fn missing_answer_ends_by_policy() {
    let server = start();
    let client = connect_with(&server, RetryPolicy::n_times(2, Duration::from_millis(1))).await;
    let guard = hold(&client).await;
    let refused = server.fail(Match::op(Op::GetData).path(RATES).always(), -127);
    let error = within("the end", guard.get_data(RATES)).await.unwrap_err();
    assert!(
        error.kind() == Some(ErrorKind::Connection) && error.is_retryable(),
        "{error}"
    );
    assert_eq!((refused.hits().len(), error.path()), (3, RATES));
    assert!(guard.is_held());
}

#[tokio::test]
async fn refusal_is_reported_at_once() {
    let (server, [client]) = with_clients(start(), connect).await;
    let maker = within("a session", zk::Client::connect(&server.connect_string()))
        .await
        .unwrap();
    let acl = [zk::Acl::new(zk::Permission::WRITE, zk::AuthId::anyone())];
    let unreadable = zk::CreateMode::Persistent.with_acls(zk::Acls::new(&acl));
    within("the node", maker.create(RATES, b"1", &unreadable))
        .await
        .unwrap();
    let guard = hold(&client).await;
    let error = within("the refusal", guard.get_data(RATES))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), Some(ErrorKind::NoAuth), "{error}");
    assert!(
        error
            .to_string()
            .ends_with("which has no credentials (`ClientBuilder::auth`)"),
        "{error}"
    );
    let invalid = within("the refusal", guard.get_data("no/slash"))
        .await
        .unwrap_err();
    assert!(
        matches!(invalid, TransactionError::InvalidPath(_)) && invalid.path() == "no/slash",
        "{invalid}"
    );
}

/// A read ends at the loss of the lock, because the next holder may change the data.
// Shows: read-under-lock
#[tokio::test]
async fn loss_ends_a_running_read() {
    let (server, [client]) = with_clients(start(), connect).await;
    let guard = hold(&client).await;
    let gate = server.hold_reply(Match::op(Op::Sync).session(session(&client)));
    let read = pending(guard.get_data(RATES));
    within("the sync", gate.wait_hit()).await;
    assert!(server.expire_session(session(&client)));
    let lost = within("the answer", read).await.unwrap_err();
    assert!(
        matches!(&lost, TransactionError::Lost(lost) if lost.reason() == LostReason::SessionExpired),
        "{lost}"
    );
    server.reset_counters();
    let later = within("the answer", guard.get_data(RATES))
        .await
        .unwrap_err();
    assert!(matches!(later, TransactionError::Lost(_)), "{later}");
    assert_eq!(
        server.counters().requests(Op::GetData),
        0,
        "expected no request after the loss"
    );
}
