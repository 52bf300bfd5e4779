//! The behaviour of a multi-lock, against the in-process server: docs/protocol.md#multi-lock.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use test_support::prelude::*;

const A: &str = "/multi/a";
const B: &str = "/multi/b";
const C: &str = "/multi/c";

fn multi(client: &Client, paths: &[&str]) -> InterProcessMultiLock {
    InterProcessMultiLock::from_paths(client, paths).unwrap()
}

async fn hold(client: &Client, paths: &[&str]) -> MultiLockGuard {
    within("all members", multi(client, paths).lock())
        .await
        .unwrap()
}

async fn hold_one(client: &Client, path: &str) -> LockGuard {
    within(
        "the lock",
        InterProcessMutex::new(client, path).unwrap().lock(),
    )
    .await
    .unwrap()
}

fn assert_empty(server: &Server) {
    for path in [A, B, C] {
        assert_eq!(queue_at(server, path), [""; 0], "{path}");
    }
}

// Shows: multi-lock
#[tokio::test]
async fn incompatible_members_are_refused() {
    let server = start_empty();
    let builder = Client::builder().namespace("shop");
    let (client, other) = (
        builder
            .clone()
            .connect(&server.connect_string())
            .await
            .unwrap(),
        builder.connect(&server.connect_string()).await.unwrap(),
    );
    server.reset_counters();
    assert_eq!(
        InterProcessMultiLock::new(&[]).unwrap_err(),
        BuildError::NoMembers
    );
    let (a, b) = (
        InterProcessMutex::new(&client, A).unwrap(),
        InterProcessMutex::new(&client, B).unwrap(),
    );
    let duplicate = |locks: &[&dyn InterProcessLock]| {
        let error = InterProcessMultiLock::new(locks).unwrap_err();
        assert!(
            matches!(error, BuildError::DuplicateMember { .. }),
            "{error}"
        );
        error.path().to_owned()
    };
    assert_eq!(
        duplicate(&[&b, &a, &InterProcessMutex::new(&client, A).unwrap()]),
        A
    );
    assert_eq!(
        duplicate(&[&a, &b, &InterProcessFairLock::new(&client, A).unwrap()]),
        A
    );
    let lock = InterProcessReadWriteLock::new(&client, C).unwrap();
    assert_eq!(duplicate(&[&lock.read_lock(), &lock.write_lock()]), C);
    assert_eq!(duplicate(&[&lock.read_lock(), &lock.read_lock()]), C);
    let elsewhere = InterProcessMutex::new(&other, B).unwrap();
    let error = InterProcessMultiLock::new(&[&a, &elsewhere]).unwrap_err();
    assert!(
        matches!(&error, BuildError::OtherClient { path, .. } if path == B),
        "{error}"
    );
    let same = InterProcessMutex::new(&client.clone(), B).unwrap();
    assert!(InterProcessMultiLock::new(&[&a, &same]).is_ok());
    let paths = |n: usize| (0..n).map(|i| format!("/many/{i}"));
    let error = InterProcessMultiLock::from_paths(&client, paths(1_001)).unwrap_err();
    assert!(
        matches!(
            error,
            BuildError::TooManyMembers {
                members: 1_001,
                max: 1_000,
                ..
            }
        ),
        "{error}"
    );
    assert!(InterProcessMultiLock::from_paths(&client, paths(1_000)).is_ok());
    let error = InterProcessMultiLock::from_paths(&client, ["/a", "b"]).unwrap_err();
    assert!(matches!(error, BuildError::InvalidPath(_)), "{error}");
    assert_eq!(server.counters().total_requests(), 0, "it is decided here");
}

/// Curator gives each member the whole timeout, and continues after an error.
// Shows: multi-lock
#[tokio::test]
async fn deadline_is_shared_until_first_error() {
    let (server, [client, other]) = with_clients(start_empty(), calm).await;
    let held = [
        hold_one(&other, A).await,
        hold_one(&other, B).await,
        hold_one(&other, C).await,
    ];
    let all = multi(&client, &[A, B, C]);
    let error = timed_out(|time| all.acquire(time)).await;
    assert!(
        matches!(&error, AcquireError::TimedOut { path, .. } if path == A),
        "{error}"
    );
    // With the whole timeout for each member, the call would then have queued for the other
    // members.
    client.flush(SOON).await.unwrap();
    let node = held[0].node();
    let asked = |op, path: &str| {
        let below = format!("{path}/");
        server.log().iter().any(|entry| {
            (entry.session, entry.op) == (session(&client), op) && entry.path.starts_with(&below)
        })
    };
    assert!(asked(Op::GetData, A), "it waited for {node}");
    assert!(
        !asked(Op::GetData, B) && !asked(Op::GetData, C),
        "it waited for another"
    );
    drop(held);
    other.flush(SOON).await.unwrap();
    client.flush(SOON).await.unwrap();
    let refused = Match::op(Op::Create).path_prefix(format!("{B}/"));
    server.fail(refused.always(), ServerError::NoAuth.code());
    let before = server.log().len();
    let error = within("the refusal", multi(&client, &[A, B, C]).lock())
        .await
        .unwrap_err();
    assert_eq!(
        (error.kind(), error.path()),
        (Some(ErrorKind::NoAuth), B),
        "{error}"
    );
    client.flush(SOON).await.unwrap();
    let below = |path: &str| format!("{path}/");
    assert!(
        server
            .log()
            .iter()
            .skip(before)
            .all(|entry| !entry.path.starts_with(&below(C))),
        "expected no request after the error"
    );
    assert_empty(&server);
}

/// The member has its own node, behind the one that the client's tasks hand over.
// Shows: multi-lock
#[tokio::test]
async fn waits_for_callers_of_own_client() {
    let (server, [client]) = with_clients(start_empty(), calm).await;
    let narrow = InterProcessMutex::builder(&client, B)
        .hand_off(9, SOON)
        .build()
        .unwrap();
    let held = within("the lock", narrow.lock()).await.unwrap();
    let waits = tokio::spawn(narrow.lock());
    let all = InterProcessMultiLock::new(&[&InterProcessMutex::new(&client, A).unwrap(), &narrow])
        .unwrap();
    let attempt = tokio::spawn(all.lock());
    until(&server, "the first member", |view| {
        view.children(A).len() == 1
    })
    .await;
    held.release().await.unwrap();
    let second = within("the one before it", waits).await.unwrap().unwrap();
    assert!(!attempt.is_finished());
    second.release().await.unwrap();
    let guard = within("all members", attempt).await.unwrap().unwrap();
    within("the release", guard.release()).await.unwrap();
}

// Shows: one-value, multi-lock-loss
#[tokio::test]
async fn loss_of_one_loses_all() {
    let (server, [client]) = with_clients(start_empty(), calm).await;
    let guard = hold(&client, &[C, A, B]).await;
    let lost = tokio::spawn(guard.lost());
    server.delete(&guard.nodes()[2]).unwrap();
    // A transaction reveals the loss at once; a heartbeat would reveal it later.
    let error = within(
        "the answer",
        guard.transaction().create("/done", "").commit(),
    )
    .await
    .unwrap_err();
    let TransactionError::Lost(error) = &error else {
        panic!("{error}")
    };
    assert_eq!((error.path(), error.reason()), (B, LostReason::NodeDeleted));
    assert!(!server.exists("/done"));
    let lost = within("the loss", lost).await.unwrap();
    assert_eq!((lost.path(), lost.reason()), (B, LostReason::NodeDeleted));
    assert_eq!(guard.state(), LockState::Lost(LostReason::NodeDeleted));
    assert!(!guard.is_held() && guard.reenter().is_err());
    assert!(guard.while_held(async {}).await.is_err());
    let error = within("the release", guard.release()).await.unwrap_err();
    assert!(
        matches!(&error, ReleaseError::Lost(lost) if lost.path() == B),
        "{error}"
    );
    client.flush(SOON).await.unwrap();
    assert_empty(&server);
}

/// Further callers wait in memory, and callers that left count until their nodes are gone.
// Shows: bounded-nodes, live-contender
#[tokio::test]
async fn nodes_of_client_are_bounded() {
    const MOST: usize = 64;
    let (server, [client, other]) = with_clients(start_empty(), calm).await;
    let held = hold_one(&other, A).await;
    let (lock, mutex) = (
        multi(&client, &[A]),
        InterProcessMutex::new(&client, A).unwrap(),
    );
    let waiting: Vec<_> = (0..100).map(|_| ByHand::new(lock.lock()).start()).collect();
    until(&server, "its nodes", |view| view.children(A).len() > MOST).await;
    let error = within("the end", timed_out(|timeout| lock.acquire(timeout))).await;
    let AcquireError::TimedOut { contention, .. } = &error else {
        panic!("{error}")
    };
    assert_eq!(contention.ahead, MOST);
    let earlier = ByHand::new(mutex.acquire(Duration::from_secs(5))).start();
    let error = within("an answer", lock.try_lock()).await.unwrap_err();
    assert!(matches!(error, TryLockError::WouldBlock { .. }), "{error}");
    assert_eq!(queue_at(&server, A).len(), MOST + 1);

    // The deletions fail as if they were not answered. The nodes are then no contenders: a call
    // that waits only for them has no contender of this client ahead.
    let deletions = server.fail(Match::op(Op::Delete).session(session(&client)).always(), -4);
    drop(waiting);
    let mut next = ByHand::new(lock.lock()).start();
    let error = within("the end", lock.acquire(Duration::from_millis(100)))
        .await
        .unwrap_err();
    assert_eq!(
        error.kind(),
        Some(ErrorKind::Connection),
        "expected no contender of this client ahead: {error}"
    );
    let error = within("the end", earlier.finished()).await.unwrap_err();
    assert_eq!(
        error.kind(),
        Some(ErrorKind::Connection),
        "expected no contender of this client ahead: {error}"
    );
    let error = within("an answer", lock.try_lock()).await.unwrap_err();
    assert!(matches!(error, TryLockError::WouldBlock { .. }), "{error}");
    assert_eq!(
        queue_at(&server, A).len(),
        MOST + 1,
        "with nodes on their way out"
    );
    deletions.remove();
    until(&server, "its node", |view| view.children(A).len() == 2).await;
    assert!(next.poll().is_pending());
    drop(next);
    within("the flush", client.flush(SOON)).await.unwrap();
    held.release().await.unwrap();
}

/// All slots belong to readers whose creates are not answered, and to orphans: no reader blocks
/// another.
// Shows: bounded-nodes, live-contender
#[tokio::test]
async fn readers_with_all_slots_block_none() {
    let (server, [client]) = with_clients(start_empty(), calm).await;
    let lock = InterProcessReadWriteLock::new(&client, A).unwrap();
    let multi = InterProcessMultiLock::new(&[&lock.read_lock()]).unwrap();
    let creates = server.hold_request(Match::op(Op::Create).session(session(&client)).always());
    let waiting: Vec<_> = (0..64).map(|_| ByHand::new(multi.lock()).start()).collect();
    within("the creates", creates.wait_hit()).await;
    let error = within("the end", multi.acquire(Duration::from_millis(100)))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), Some(ErrorKind::Connection), "{error}");
    creates.release();
    drop(waiting);
    within("the flush", client.flush(SOON)).await.unwrap();
}

/// The other members are released while the caller keeps its guard.
// Shows: one-value, multi-lock-loss
#[tokio::test]
async fn end_of_one_releases_all() {
    let (server, [client]) = with_clients(start_empty(), calm).await;
    let guard = hold(&client, &[A, B, C]).await;
    assert_eq!(
        guard.set_lease(Duration::ZERO).unwrap_err().reason(),
        LostReason::LeaseOver
    );
    within("the releases", client.flush(SOON)).await.unwrap();
    assert_empty(&server);
    drop(guard);
    // After a deletion by hand the holder has time to stop, until the servers might have deleted
    // the other nodes.
    let client = connect_for(&server, Duration::from_secs(4)).await;
    let guard = hold(&client, &[A, B, C]).await;
    server.delete(&guard.nodes()[1]).unwrap();
    let lost = within("the loss", guard.lost()).await;
    assert_eq!((lost.path(), lost.reason()), (B, LostReason::NodeDeleted));
    assert_eq!(
        (queue_at(&server, A).len(), queue_at(&server, C).len()),
        (1, 1)
    );
    until(&server, "the releases", |view| {
        view.children(A).is_empty() && view.children(C).is_empty()
    })
    .await;
    let error = within("the release", guard.release()).await.unwrap_err();
    assert!(
        matches!(&error, ReleaseError::Lost(lost) if lost.path() == B),
        "{error}"
    );
}

/// The request includes the checks of the members' nodes. A server closes the connection on too
/// large a request.
// Shows: multi-lock-loss
#[tokio::test]
async fn transaction_size_includes_members_checks() {
    let server = start_empty();
    server.create("/balance", "").unwrap();
    let client = calm(&server).await;
    let paths: Vec<String> = (10..30)
        .map(|member| format!("/{member}{}", "x".repeat(8_000)))
        .collect();
    let multi = InterProcessMultiLock::from_paths(&client, &paths).unwrap();
    let guard = within("the grant", multi.lock()).await.unwrap();
    let write = |bytes| {
        guard
            .transaction()
            .set_data("/balance", vec![b'x'; bytes], 0)
    };
    let error = within("the refusal", write(900_000).commit())
        .await
        .unwrap_err();
    assert!(
        matches!(
            error,
            TransactionError::TooLarge {
                bytes: 1_060_000..,
                ..
            }
        ),
        "{error}"
    );
    within("the commit", write(800_000).commit()).await.unwrap();
    guard.release().await.unwrap();
}

// Shows: multi-lock-loss
#[tokio::test]
async fn revocation_of_any_member_is_reported() {
    let (_server, [client, other]) = with_clients(start_empty(), calm).await;
    for index in 0..2 {
        let guard = hold(&client, &[A, B]).await;
        let asked = tokio::spawn(guard.revoked());
        other.attempt_revoke(&guard.nodes()[index]).await.unwrap();
        within("the request", asked).await.unwrap();
        assert!(guard.is_held(), "it is the holder's decision");
        guard.release().await.unwrap();
    }
}

/// The client has the timers: its caller may have none, and no runtime at all.
// Shows: multi-lock
#[test]
fn needs_no_runtime_of_its_caller() {
    let server = start_empty();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    runtime.block_on(async {
        let client = Client::connect(&server.connect_string()).await.unwrap();
        let all = multi(&client, &[A, B, C]);
        let guard = all.acquire(SOON).await.unwrap();
        let error = all.acquire(Duration::from_millis(100)).await.unwrap_err();
        // A slow machine may have no answer by the deadline.
        let no_answer = error.kind() == Some(ErrorKind::Connection);
        let late = no_answer || matches!(error, AcquireError::TimedOut { .. });
        assert!(late, "{error}");
        let error = all.try_lock().await.unwrap_err();
        assert!(matches!(&error, TryLockError::WouldBlock { .. }), "{error}");
        guard.while_held(async {}).await.unwrap();
        guard.release().await.unwrap();
        let lost = all.lock().await.unwrap().lost();
        client.close().await.unwrap();
        assert_eq!(lost.await.reason(), LostReason::Closed);
    });
}

// Shows: multi-lock
#[tokio::test]
async fn thousand_members_act_as_one() {
    let server = start_empty();
    let paths: Vec<String> = (0..1_000).map(|index| format!("/many/{index}")).collect();
    paths
        .iter()
        .for_each(|path| server.create(path, "").unwrap());
    let client = calm(&server).await;
    let all = InterProcessMultiLock::from_paths(&client, &paths).unwrap();
    let guard = within("all members", all.lock()).await.unwrap();
    assert!(guard.is_held());
    within(
        "the commit",
        guard.transaction().create("/done", "").commit(),
    )
    .await
    .unwrap();
    server.delete(&guard.nodes()[617]).unwrap();
    let error = within(
        "the answer",
        guard.transaction().create("/again", "").commit(),
    )
    .await
    .unwrap_err();
    assert!(
        matches!(&error, TransactionError::Lost(lost) if lost.path() == paths[617]),
        "{error}"
    );
    assert!(!guard.is_held());
    drop(guard);
    within("the releases", client.flush(SOON)).await.unwrap();
    assert!(paths.iter().all(|path| server.children(path).is_empty()));
}
