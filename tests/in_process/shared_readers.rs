//! Readers of one client that share a read node while one of them holds the lock, within the bounds
//! of the hand-over.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use test_support::prelude::*;

const LONG: Duration = Duration::from_secs(3600);

fn bounded(client: &Client, max: u32, time: Duration) -> InterProcessReadWriteLock {
    InterProcessReadWriteLock::builder(client, DIRECTORY)
        .hand_off(max, time)
        .build()
        .unwrap()
}

/// Returns a lock that readers may share without any bound that a test could reach.
fn sharing(client: &Client) -> InterProcessReadWriteLock {
    bounded(client, u32::MAX, LONG)
}

/// Returns the first reader of a node.
async fn first(lock: &InterProcessReadWriteLock) -> ReadGuard {
    within("the grant", lock.read_lock().lock()).await.unwrap()
}

/// Returns a reader that is granted at the first poll.
#[track_caller]
fn at_once(lock: &InterProcessReadWriteLock) -> ReadGuard {
    assert_ready!(task::spawn(lock.read_lock().lock()).poll()).unwrap()
}

// Shows: shared-read-node
#[tokio::test]
async fn readers_share_node_without_request() {
    let (server, [client]) = with_clients(start(), calm).await;
    let lock = sharing(&client);
    let one = first(&lock).await;
    let node = one.node();
    server.reset_counters();
    let mut inside = Vec::new();
    for round in 0..60 {
        let guard = if round % 2 == 0 {
            at_once(&lock)
        } else {
            assert_ready!(task::spawn(lock.read_lock().try_lock()).poll()).unwrap()
        };
        assert_eq!(guard.node(), node);
        assert!(guard.is_held() && lock.read_lock().is_acquired_in_this_process());
        inside.push(guard);
    }
    within("the release", one.release()).await.unwrap();
    for guard in inside {
        assert_eq!(server.counters().total_requests(), 0);
        assert_eq!(queue(&server), [node.as_str()]);
        within("the release", guard.release()).await.unwrap();
    }
    assert!(!lock.read_lock().is_acquired_in_this_process());
    assert_eq!(server.counters().requests(Op::Delete), 1);
    assert_eq!(queue(&server), [""; 0]);
    drop(lock);
    clean(&server, &[&client]).await;
}

/// A writer of another process waits for readers within the bounds, but not for later readers,
/// which wait for the writer.
// Shows: shared-read-node
#[tokio::test]
async fn later_readers_wait_behind_the_writer() {
    let (server, [client, other]) = with_clients(start(), calm).await;
    let lock = bounded(&client, 2, LONG);
    let one = first(&lock).await;
    let writer = tokio::spawn(read_write::lock(&other).write_lock().lock());
    until(&server, "the writer", |view| {
        view.children(DIRECTORY).len() == 2
    })
    .await;
    let two = at_once(&lock);
    let node = one.node();
    assert_eq!(two.node(), node);
    let mut late = pending(lock.read_lock().lock());
    until(&server, "a node of its own", |view| {
        view.children(DIRECTORY).len() == 3
    })
    .await;
    one.release().await.unwrap();
    client.flush(SOON).await.unwrap();
    assert!(
        server.exists(&node) && !writer.is_finished(),
        "another reader is inside"
    );
    assert_pending!(late.poll());
    drop(two);
    let writer = granted(writer).await;
    assert!(!server.exists(&node));
    assert_pending!(late.poll());
    writer.release().await.unwrap();
    let late = within("the grant", late).await.unwrap();
    assert_ne!(late.node(), node);
    // Later readers share the new node.
    assert_eq!(at_once(&lock).node(), late.node());
    drop((late, lock));
    clean(&server, &[&client, &other]).await;
}

/// The time bound counts from the grant of the node. After it, no reader joins, whatever other
/// readers do.
// Shows: shared-read-node
#[tokio::test]
async fn no_reader_joins_after_the_time() {
    const TIME: Duration = Duration::from_millis(50);
    let (server, [client]) = with_clients(start(), calm).await;
    let lock = bounded(&client, u32::MAX, TIME);
    let one = first(&lock).await;
    // Time is under test: the bound counts from the grant.
    tokio::time::sleep(TIME).await;
    let next = first(&lock).await;
    assert_ne!(next.node(), one.node());
    assert!(one.is_held() && next.is_held());
    drop((one, next, lock));
    clean(&server, &[&client]).await;
}

/// A writer of the same client closes the node at once, regardless of the bounds.
// Shows: shared-read-node
#[tokio::test]
async fn own_writer_closes_the_node() {
    let (server, [client]) = with_clients(start(), calm).await;
    let lock = sharing(&client);
    let one = first(&lock).await;
    let mut writer = pending(lock.write_lock().lock());
    until(&server, "the writer", |view| {
        view.children(DIRECTORY).len() == 2
    })
    .await;
    let mut late = pending(lock.read_lock().lock());
    until(&server, "a node of its own", |view| {
        view.children(DIRECTORY).len() == 3
    })
    .await;
    assert_pending!(writer.poll());
    assert_pending!(late.poll());
    drop(one);
    let writer = within("the grant", writer).await.unwrap();
    assert_pending!(late.poll());
    drop(writer);
    drop(within("the grant", late).await.unwrap());
    drop(lock);
    clean(&server, &[&client]).await;
}

/// Readers that wait behind a writer share one node, and all get the lock when that node has its
/// turn, before a writer that arrived later.
// Shows: shared-read-node
#[tokio::test]
async fn waiting_readers_share_a_node() {
    let (server, [client, other]) = with_clients(start(), calm).await;
    let lock = sharing(&client);
    let writer = read_write::write(&other).await;
    server.reset_counters();
    let waiting: Vec<_> = (0..50)
        .map(|_| tokio::spawn(lock.read_lock().lock()))
        .collect();
    until(&server, "their node", |view| {
        view.children(DIRECTORY).len() == 2
    })
    .await;
    let late = within(
        "the end of the time",
        lock.read_lock().acquire(Duration::from_secs(1)),
    )
    .await;
    match late.unwrap_err() {
        AcquireError::TimedOut {
            contention: Contention { ahead, first, .. },
            ..
        } => {
            assert_eq!((ahead, first), (1, Some(writer.node())));
        }
        error => panic!("{error}"),
    }
    let third = calm(&server).await;
    let next = tokio::spawn(read_write::lock(&third).write_lock().lock());
    until(&server, "the next writer", |view| {
        view.children(DIRECTORY).len() == 3
    })
    .await;
    // One reader leaves.
    let mut waiting = waiting.into_iter();
    waiting.next().unwrap().abort();
    writer.release().await.unwrap();
    let mut inside = Vec::new();
    for reader in waiting {
        inside.push(granted(reader).await);
    }
    let node = inside[0].node();
    assert!(
        inside
            .iter()
            .all(|guard| guard.is_held() && guard.node() == node)
    );
    assert_eq!(
        server.counters().requests_of(session(&client), Op::Create),
        1
    );
    assert!(!next.is_finished());
    drop(inside);
    granted(next).await.release().await.unwrap();
    // The node is deleted when all readers have left.
    let writer = read_write::write(&other).await;
    let waiting: Vec<_> = (0..5)
        .map(|_| tokio::spawn(lock.read_lock().lock()))
        .collect();
    until(&server, "their node", |view| {
        view.children(DIRECTORY).len() == 2
    })
    .await;
    for reader in &waiting {
        reader.abort();
    }
    until(&server, "the end of their node", |view| {
        view.children(DIRECTORY).len() == 1
    })
    .await;
    drop((writer, lock));
    clean(&server, &[&client, &other, &third]).await;
}

/// The end of one reader's lease does not affect the others.
// Shows: shared-read-node
#[tokio::test]
async fn lease_ends_one_reader() {
    let (server, [client]) = with_clients(start(), calm).await;
    let lock = sharing(&client);
    let one = first(&lock).await;
    let short = lock
        .read_lock()
        .acquire_with_lease(LONG, Duration::from_millis(50));
    let short = assert_ready!(task::spawn(short).poll()).unwrap();
    assert_eq!(short.node(), one.node());
    assert_eq!(
        within("the end", short.lost()).await.reason(),
        LostReason::LeaseOver
    );
    client.flush(SOON).await.unwrap();
    assert!(one.is_held() && server.exists(&one.node()));
    assert!(within("the release", short.release()).await.is_err());
    drop(one);
    drop(lock);
    clean(&server, &[&client]).await;
}

/// After a reader was asked to give up the lock, no reader joins its node after its release.
// Shows: shared-read-node
#[tokio::test]
async fn revocation_request_closes_the_node() {
    let (server, [client, other]) = with_clients(start(), calm).await;
    let lock = sharing(&client);
    let asked = first(&lock).await;
    let beside = at_once(&lock);
    let revoked = tokio::spawn(asked.revoked());
    other.attempt_revoke(&asked.node()).await.unwrap();
    within("the request", revoked).await.unwrap();
    drop(asked);
    let next = within("the grant", lock.read_lock().lock()).await.unwrap();
    assert_ne!(next.node(), beside.node());
    assert!(beside.is_held() && server.exists(&beside.node()));
    drop((beside, next, lock));
    clean(&server, &[&client, &other]).await;
}

/// Asserts that all of these readers have lost their node.
async fn all_lost(readers: &[&ReadGuard]) {
    for reader in readers {
        assert_eq!(
            within("the loss", reader.lost()).await.reason(),
            LostReason::NodeDeleted
        );
    }
}

/// A heartbeat reveals to all readers that their node is gone.
// Shows: shared-read-node
#[tokio::test]
async fn heartbeat_notifies_all_readers() {
    let (server, [client]) = with_clients(start(), connect).await;
    let lock = sharing(&client);
    let one = first(&lock).await;
    let inside: Vec<_> = (0..20).map(|_| at_once(&lock)).collect();
    server.delete(&one.node()).unwrap();
    all_lost(&inside.iter().chain([&one]).collect::<Vec<_>>()).await;
    let next = within("the grant", lock.read_lock().lock()).await.unwrap();
    assert_ne!(next.node(), one.node());
    drop((one, inside, next, lock));
    clean(&server, &[&client]).await;
}

/// A transaction of one reader that finds the node deleted notifies all readers at once, without a
/// heartbeat.
// Shows: shared-read-node
#[tokio::test]
async fn transaction_notifies_all_readers() {
    let (server, [client]) = with_clients(start(), calm).await;
    let lock = sharing(&client);
    let one = first(&lock).await;
    let (two, three) = (at_once(&lock), at_once(&lock));
    let mut lost = pending(three.lost());
    server.delete(&one.node()).unwrap();
    assert!(one.is_held() && two.is_held());
    within(
        "the answer",
        one.transaction().create("/never", "").commit(),
    )
    .await
    .unwrap_err();
    assert!(
        !two.is_held() && !three.is_held(),
        "expected all to be notified at once"
    );
    assert_eq!(assert_ready!(lost.poll()).reason(), LostReason::NodeDeleted);
    assert!(within("the release", two.release()).await.is_err());
    drop((one, three, lock));
    clean(&server, &[&client]).await;
}

/// A reader that joins between a heartbeat and its answer is notified too.
// Shows: shared-read-node
#[tokio::test]
async fn heartbeat_notifies_joining_reader() {
    let server = start();
    let client = connect_for(&server, Duration::from_secs(12)).await;
    let lock = sharing(&client);
    let one = first(&lock).await;
    let check = server.hold_request(
        Match::op(Op::Multi)
            .session(session(&client))
            .path(one.node()),
    );
    within("a heartbeat", check.wait_hit()).await;
    server.delete(&one.node()).unwrap();
    let joined = at_once(&lock);
    assert_eq!(joined.node(), one.node());
    check.release();
    all_lost(&[&one]).await;
    assert!(!joined.is_held(), "expected all to be notified at once");
    drop((one, joined, lock));
    clean(&server, &[&client]).await;
}

/// The watch for a revocation reveals that the node is gone.
// Shows: shared-read-node
#[tokio::test]
async fn watch_reports_the_end() {
    let (server, [client]) = with_clients(start(), calm).await;
    let lock = sharing(&client);
    let one = first(&lock).await;
    let two = at_once(&lock);
    let revoked = tokio::spawn(one.revoked());
    watches(&server, &client, &one.node()).await;
    server.delete(&one.node()).unwrap();
    all_lost(&[&one, &two]).await;
    revoked.abort();
    drop((one, two, lock));
    clean(&server, &[&client]).await;
}

// Shows: shared-read-node
#[tokio::test]
async fn session_trouble_closes_the_node() {
    let (server, [client]) = with_clients(start(), calm).await;
    let lock = sharing(&client);
    // The connection is interrupted.
    let one = first(&lock).await;
    let mut state = client.watch_state();
    server.refuse_connections(true);
    server.cut(session(&client), Cut::Reset);
    within(
        "the doubt",
        state.wait_for(|state| *state == ConnectionState::Suspended),
    )
    .await
    .unwrap();
    let next = pending(lock.read_lock().lock());
    server.refuse_connections(false);
    let next = within("the grant", next).await.unwrap();
    assert_ne!(next.node(), one.node());
    assert!(one.is_held());
    drop((one, next));
    // The session ends.
    let one = within("the grant", lock.read_lock().lock()).await.unwrap();
    let two = within("the grant", lock.read_lock().lock()).await.unwrap();
    server.expire_session(session(&client));
    within("the loss", async { tokio::join!(one.lost(), two.lost()) }).await;
    let next = within("the grant", lock.read_lock().lock()).await.unwrap();
    assert_ne!(next.node(), one.node());
    drop((one, two));
    assert!(next.is_held());
    drop(next);
    // Another process deletes the node, which a transaction reveals.
    let one = within("the grant", lock.read_lock().lock()).await.unwrap();
    server.delete(&one.node()).unwrap();
    within(
        "the answer",
        one.transaction().create("/never", "").commit(),
    )
    .await
    .unwrap_err();
    let next = within("the grant", lock.read_lock().lock()).await.unwrap();
    assert_ne!(next.node(), one.node());
    drop((one, next, lock));
    clean(&server, &[&client]).await;
    // The client ends.
    let lock = sharing(&client);
    let one = within("the grant", lock.read_lock().lock()).await.unwrap();
    client.close().await.unwrap();
    assert!(!one.is_held());
    drop((one, lock));
    assert_clean(&server, "closed").await;
}
