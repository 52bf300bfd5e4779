//! A mutex that keeps its node while no other client wants it: acquired again without a request,
//! given up to everybody who comes.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use test_support::prelude::*;

const LONG: Duration = Duration::from_secs(3600);

fn keeping(client: &Client, idle: Duration) -> InterProcessMutex {
    InterProcessMutex::builder(client, DIRECTORY)
        .sticky(idle)
        .build()
        .unwrap()
}

fn sticky(client: &Client) -> InterProcessMutex {
    keeping(client, LONG)
}

/// The lock, kept and watched. Returns its node.
async fn kept(server: &Server, lock: &InterProcessMutex) -> String {
    let guard = within("the grant", lock.lock()).await.unwrap();
    let node = guard.node().to_string();
    guard.release().await.unwrap();
    until(server, "the watch", |view| {
        view.watches_on(DIRECTORY).len() == 1
    })
    .await;
    assert_eq!(queue(server), [node.as_str()]);
    node
}

/// A server, a client that keeps the lock by this node, and another.
async fn scene() -> (Server, Client, InterProcessMutex, String, Client) {
    let (server, [client, other]) = with_clients(start(), calm).await;
    let lock = sticky(&client);
    let node = kept(&server, &lock).await;
    (server, client, lock, node, other)
}

/// With the last handle everything goes.
async fn end(server: &Server, clients: &[&Client], lock: InterProcessMutex, what: &str) {
    drop(lock);
    for client in clients {
        client.flush(SOON).await.unwrap();
    }
    assert_clean(server, what).await;
}

/// Acquired at the first poll.
#[track_caller]
fn at_once(lock: &InterProcessMutex) -> LockGuard {
    assert_ready!(task::spawn(lock.lock()).poll()).unwrap()
}

async fn gone(server: &Server, node: &str) {
    let node = node.to_owned();
    until(server, "the end of the kept node", move |view| {
        !view.exists(&node)
    })
    .await;
}

// Shows: kept-node
#[tokio::test]
async fn a_kept_lock_is_acquired_again_without_a_request() {
    let (server, [client]) = with_clients(start(), calm).await;
    let lock = sticky(&client);
    let first = within("the grant", lock.lock()).await.unwrap();
    let (node, token) = (first.node(), numbers(first.fencing_token()));
    assert!(node.contains("-sticky-lock-"), "{node}");
    server.reset_counters();
    first.release().await.unwrap();
    until(&server, "the watch", |view| {
        view.watches_on(DIRECTORY).len() == 1
    })
    .await;
    assert_eq!(
        server.counters().total_requests(),
        1,
        "one list, which watches"
    );
    assert!(!lock.is_acquired_in_this_process());
    client.flush(SOON).await.unwrap();
    server.reset_counters();
    let mut last = token;
    for round in 0..1_000 {
        let guard = if round % 2 == 0 {
            at_once(&lock)
        } else {
            assert_ready!(task::spawn(lock.try_lock()).poll()).unwrap()
        };
        assert!(guard.is_held() && lock.is_acquired_in_this_process());
        assert_eq!(guard.node(), node);
        let token = numbers(guard.fencing_token());
        assert!(token > last && token.0 == last.0);
        last = token;
        if round % 3 == 0 {
            within("the release", guard.release()).await.unwrap();
        }
    }
    assert_eq!(server.counters().total_requests(), 0);
    assert_eq!(lock.participants().await.unwrap(), [node]);
    // With the last handle the node goes.
    drop(lock);
    until(&server, "an empty directory", |view| {
        view.children(DIRECTORY).is_empty()
    })
    .await;
    clean(&server, &[&client]).await;
}

/// While no other client wants the lock, its tasks hand it over in memory.
// Shows: kept-node
#[tokio::test]
async fn tasks_of_the_client_share_the_kept_node() {
    let (server, client, lock, _node, _other) = scene().await;
    server.reset_counters();
    let mut guard = at_once(&lock);
    for _ in 0..50 {
        let mut next = pending(lock.lock());
        drop(guard);
        guard = assert_ready!(next.poll()).unwrap();
        tokio::task::yield_now().await;
    }
    assert_eq!(server.counters().total_requests(), 0);
    drop(guard);
    end(&server, &[&client], lock, "shared").await;
}

/// One that comes has the lock: its create tells the owner, whose deletion tells it.
// Shows: kept-node
#[tokio::test]
async fn a_kept_lock_is_given_up_to_one_that_comes() {
    let (server, client, lock, node, other) = scene().await;
    server.reset_counters();
    let theirs = within("the grant", mutex(&other).lock()).await.unwrap();
    assert!(!server.exists(&node));
    assert_eq!(
        server.counters().requests_of(session(&client), Op::Delete),
        1
    );
    assert_eq!(server.counters().total_requests_of(session(&client)), 1);
    // Not kept, since the other is there.
    let ours = tokio::spawn(lock.lock());
    until(&server, "our node", |view| {
        view.children(DIRECTORY).len() == 2
    })
    .await;
    theirs.release().await.unwrap();
    let ours = granted(ours).await;
    let behind = tokio::spawn(mutex(&other).lock());
    until(&server, "their node", |view| {
        view.children(DIRECTORY).len() == 2
    })
    .await;
    let node = ours.node().to_string();
    drop(ours);
    granted(behind).await.release().await.unwrap();
    assert!(!server.exists(&node));
    end(&server, &[&client, &other], lock, "given up").await;
}

/// A held one is given up with its release, whoever of this client waits.
// Shows: kept-node
#[tokio::test]
async fn a_held_one_is_given_up_with_its_release() {
    let (server, [client, other]) = with_clients(start(), calm).await;
    // No row of holders.
    let lock = InterProcessMutex::builder(&client, DIRECTORY)
        .sticky(LONG)
        .hand_off(1, LONG)
        .build()
        .unwrap();
    let node = kept(&server, &lock).await;
    let guard = at_once(&lock);
    let theirs = tokio::spawn(mutex(&other).lock());
    until(&server, "the event", |view| {
        view.watches_on(DIRECTORY).is_empty()
    })
    .await;
    until(&server, "their watch", |view| view.watches() == 1).await;
    // Its own tasks wait as well; the event may take a moment to arrive.
    let mut ours = pending(lock.lock());
    lock.participants().await.unwrap();
    drop(guard);
    let theirs = granted(theirs).await;
    assert!(!server.exists(&node));
    assert_pending!(ours.poll());
    theirs.release().await.unwrap();
    let ours = within("the grant", ours).await.unwrap();
    drop(ours);
    end(&server, &[&client, &other], lock, "held").await;
}

/// No other caller of its client has come, for whom others would be watched for.
// Shows: kept-node
#[tokio::test]
async fn the_node_of_a_try_is_kept_and_given_up() {
    let (server, [client, other]) = with_clients(start(), calm).await;
    let lock = sticky(&client);
    let guard = within("the try", lock.try_lock()).await.unwrap();
    let node = guard.node();
    guard.release().await.unwrap();
    assert!(server.exists(&node), "it is kept");
    within("the grant", mutex(&other).lock())
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    assert!(!server.exists(&node));
    end(&server, &[&client, &other], lock, "a try's").await;
}

/// A try of another process leaves its node as a sign.
// Shows: kept-node
#[tokio::test]
async fn a_try_gets_a_kept_lock_and_waits_shortly_for_a_held_one() {
    let (server, client, lock, node, other) = scene().await;
    let lock_of_theirs = mutex(&other);
    let theirs = tried(|| lock_of_theirs.try_lock()).await;
    assert!(!server.exists(&node));
    theirs.release().await.unwrap();
    other.flush(SOON).await.unwrap();
    let node = kept(&server, &lock).await;
    let guard = at_once(&lock);
    // It waits for a tenth of a second behind a node that may only be kept; nothing but its time
    // shows that.
    let began = Instant::now();
    match within("the try", mutex(&other).try_lock())
        .await
        .unwrap_err()
    {
        TryLockError::WouldBlock {
            contention: Contention { ahead, first, .. },
            ..
        } => {
            assert_eq!((ahead, first), (1, Some(guard.node())));
        }
        error => panic!("{error}"),
    }
    assert!(
        began.elapsed() >= Duration::from_millis(100),
        "{:?}",
        began.elapsed()
    );
    other.flush(SOON).await.unwrap();
    assert_eq!(queue(&server), [node.as_str()]);
    // The sign was seen.
    guard.release().await.unwrap();
    gone(&server, &node).await;
    // So does that of a multi-lock.
    let node = kept(&server, &lock).await;
    let free = InterProcessMutex::new(&other, "/locks/free").unwrap();
    let both = InterProcessMultiLock::new(&[&mutex(&other), &free]).unwrap();
    let theirs = tried(|| both.try_lock()).await;
    assert!(!server.exists(&node));
    theirs.release().await.unwrap();
    other.flush(SOON).await.unwrap();
    let node = kept(&server, &lock).await;
    let guard = at_once(&lock);
    let refused = within("the try", both.try_lock()).await.unwrap_err();
    assert!(
        matches!(refused, TryLockError::WouldBlock { .. }),
        "{refused}"
    );
    drop(guard);
    gone(&server, &node).await;
    end(&server, &[&client, &other], lock, "tried").await;
}

/// One that comes lists again before it watches: by then the owner has given the node up.
// Shows: kept-node
#[tokio::test]
async fn one_that_comes_needs_no_watch() {
    let (server, client, lock, node, other) = scene().await;
    let theirs = Match::op(Op::GetChildren).session(session(&other));
    let again = server.hold_request(theirs.nth(1));
    // The first list may arrive late.
    let given_up = server.hold_request(Match::op(Op::Delete).session(session(&client)));
    let taken = tokio::spawn(mutex(&other).lock());
    within("the second list", again.wait_hit()).await;
    given_up.release();
    gone(&server, &node).await;
    again.release();
    drop(granted(taken).await);
    assert_eq!(
        server.counters().requests_of(session(&other), Op::GetData),
        0
    );
    end(&server, &[&client, &other], lock, "listed again").await;
}

/// A try waits shortly behind a kept node, and not for less because the servers are slow.
// Shows: kept-node
#[tokio::test]
async fn a_try_gets_a_kept_lock_from_slow_servers() {
    let (server, client, lock, node, other) = scene().await;
    let gate = server.hold_reply(Match::op(Op::Create).session(session(&other)));
    let theirs = mutex(&other);
    let tried = tokio::spawn(async move { theirs.try_lock().await });
    gone(&server, &node).await;
    // Longer than it would wait behind a node.
    tokio::time::sleep(Duration::from_millis(150)).await;
    assert!(!tried.is_finished());
    gate.release();
    drop(within("the try", tried).await.unwrap().unwrap());
    end(&server, &[&client, &other], lock, "slow").await;
}

/// A contender that creates and deletes, as Curator's `acquire(0)`, is another too.
// Shows: kept-node
#[tokio::test]
async fn one_that_comes_and_goes_makes_it_give_up() {
    let (server, client, lock, node, _other) = scene().await;
    let passing = format!("{DIRECTORY}/_c_0b0b0b0b-0b0b-0b0b-0b0b-0b0b0b0b0b0b-lock-0000000099");
    server.create(&passing, "").unwrap();
    server.delete(&passing).unwrap();
    gone(&server, &node).await;
    end(&server, &[&client], lock, "passing").await;
}

/// Other locks of the same client are others.
// Shows: kept-node
#[tokio::test]
async fn other_locks_of_the_client_get_it() {
    let (server, client, lock, _node, _other) = scene().await;
    within("the grant", fair(&client).lock())
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    client.flush(SOON).await.unwrap();
    kept(&server, &lock).await;
    let free = InterProcessMutex::new(&client, "/locks/free").unwrap();
    let both = InterProcessMultiLock::new(&[&lock, &free]).unwrap();
    within("the grant", both.lock())
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    drop((lock, both));
    clean(&server, &[&client]).await;
}

/// A handle for each request, whose caller leaves at any moment: what it was granted goes with the
/// handle, before a flush that is called then returns.
// Shows: kept-node
#[tokio::test]
async fn nothing_is_kept_without_a_handle_whenever_its_caller_leaves() {
    let (server, [client]) = with_clients(start(), calm).await;
    for round in 0..400 {
        let key = format!("/keys/{round}");
        let lock = InterProcessMutex::builder(&client, &key)
            .sticky(LONG)
            .build()
            .unwrap();
        // The time until it leaves, up to that of a grant.
        let _ = tokio::time::timeout(Duration::from_micros(round * 10), lock.lock()).await;
        drop(lock);
        client.flush(SOON).await.unwrap();
        assert_eq!(server.children(&key), [""; 0], "round {round}");
    }
    assert_clean(&server, "left").await;
}

/// The lock by another node.
async fn another(lock: &InterProcessMutex, node: &str) -> LockGuard {
    let another = async {
        loop {
            let guard = lock.lock().await.unwrap();
            if guard.node().as_str() != node {
                break guard;
            }
            // Before the event had arrived.
            drop(guard);
            tokio::task::yield_now().await;
        }
    };
    within("the grant", another).await
}

/// Only from health: after an interruption, a lost session or a node deleted by hand it is acquired
/// as any other.
// Shows: kept-node
#[tokio::test]
async fn trouble_ends_the_keeping() {
    let (server, client, lock, node, _other) = scene().await;
    // An interruption.
    let mut state = client.watch_state();
    server.refuse_connections(true);
    server.cut(session(&client), Cut::Reset);
    within(
        "the doubt",
        state.wait_for(|state| *state == ConnectionState::Suspended),
    )
    .await
    .unwrap();
    let next = pending(lock.lock());
    server.refuse_connections(false);
    assert_ne!(
        within("the grant", next).await.unwrap().node().as_str(),
        node
    );
    // The end of the session.
    let node = kept(&server, &lock).await;
    server.expire_session(session(&client));
    gone(&server, &node).await;
    within(
        "the loss",
        state.wait_for(|state| *state == ConnectionState::Lost),
    )
    .await
    .unwrap();
    assert_ne!(
        within("the grant", lock.lock())
            .await
            .unwrap()
            .node()
            .as_str(),
        node
    );
    // Another hand: the watch tells of that too.
    let node = kept(&server, &lock).await;
    server.delete(&node).unwrap();
    another(&lock, &node).await.release().await.unwrap();
    // The directory, which is made again.
    let node = kept(&server, &lock).await;
    server.delete(&node).unwrap();
    server.delete(DIRECTORY).unwrap();
    drop(another(&lock, &node).await);
    end(&server, &[&client], lock, "trouble").await;
}

/// An interruption ends the keeping by itself: an event of the watch may be missing.
#[tokio::test]
async fn an_interruption_ends_the_keeping_although_none_asks() {
    let (server, client, lock, node, _other) = scene().await;
    server.cut(session(&client), Cut::Reset);
    gone(&server, &node).await;
    end(&server, &[&client], lock, "interrupted").await;
}

/// So do renewals that are late, on a connection that stays: it would be granted under a lease that
/// is not valid.
#[tokio::test]
async fn late_renewals_end_the_keeping_although_none_asks() {
    let server = start();
    let client = connect_for(&server, Duration::from_secs(12)).await;
    let lock = sticky(&client);
    let elsewhere = InterProcessMutex::new(&client, "/locks/sku-43").unwrap();
    let elsewhere = within("a lock elsewhere", elsewhere.lock()).await.unwrap();
    let node = kept(&server, &lock).await;
    // The operation has timed out, says the server.
    let beats = server.fail(Match::op(Op::Multi).session(session(&client)).always(), -7);
    assert_eq!(
        within("the doubt", elsewhere.state_changed(LockState::Held)).await,
        LockState::Suspended
    );
    beats.remove();
    gone(&server, &node).await;
    drop(elsewhere);
    end(&server, &[&client], lock, "late").await;
}

/// A heartbeat asks for a kept node as for a held one.
#[tokio::test]
async fn a_heartbeat_asks_for_a_kept_node() {
    let server = start();
    let client = connect_for(&server, Duration::from_secs(30)).await;
    let lock = sticky(&client);
    let node = kept(&server, &lock).await;
    let checks = server.hold_request(Match::op(Op::Multi).session(session(&client)).path(&node));
    within("a heartbeat", checks.wait_hit()).await;
    checks.release();
    end(&server, &[&client], lock, "heartbeat").await;
}

/// Where the list fails or shows another, nothing is kept.
// Shows: kept-node
#[tokio::test]
async fn it_is_kept_only_while_a_watch_shows_that_there_is_no_other() {
    let (server, [client, other]) = with_clients(start(), calm).await;
    let lock = sticky(&client);
    let guard = within("the grant", lock.lock()).await.unwrap();
    let node = guard.node().to_string();
    let fault = server.fail(Match::op(Op::GetChildren).session(session(&client)), -102);
    guard.release().await.unwrap();
    within("the list", fault.wait_hit()).await;
    gone(&server, &node).await;
    // Kept for the moment of the look: acquired again meanwhile, it goes with the release.
    let guard = within("the grant", lock.lock()).await.unwrap();
    let theirs = tokio::spawn(mutex(&other).lock());
    until(&server, "their watch", |view| view.watches() == 1).await;
    let gate = server.hold_reply(Match::op(Op::GetChildren).session(session(&client)));
    let node = guard.node().to_string();
    drop(guard);
    within("the list", gate.wait_hit()).await;
    let guard = at_once(&lock);
    gate.release();
    assert!(server.exists(&node));
    until(&server, "the end of our watch", |view| view.watches() == 1).await;
    drop(guard);
    granted(theirs).await.release().await.unwrap();
    end(&server, &[&client, &other], lock, "looked").await;
}

/// Each holder's lease is its own.
// Shows: kept-node
#[tokio::test]
async fn a_lease_ends_the_hold_and_not_the_next() {
    let (server, client, lock, _node, _other) = scene().await;
    let guard = assert_ready!(task::spawn(lock.acquire_with_lease(LONG, LONG)).poll()).unwrap();
    assert!(guard.lease_remaining().is_some());
    drop(guard);
    let guard = at_once(&lock);
    assert!(guard.lease_remaining().is_none());
    drop(guard);
    let guard =
        assert_ready!(task::spawn(lock.acquire_with_lease(LONG, Duration::from_millis(50))).poll())
            .unwrap();
    let node = guard.node();
    assert_eq!(
        within("the end", guard.lost()).await.reason(),
        LostReason::LeaseOver
    );
    gone(&server, node.as_str()).await;
    drop(guard);
    end(&server, &[&client], lock, "lease").await;
}

/// `close` leaves nothing, and the watch of a client that has no use for it any more goes.
// Shows: kept-node
#[tokio::test]
async fn close_deletes_a_kept_node() {
    let (server, client, lock, _node, other) = scene().await;
    drop(other);
    client.close().await.unwrap();
    assert_eq!(queue(&server), [""; 0]);
    let error = within("the end", lock.lock()).await.unwrap_err();
    assert_eq!(error.kind(), Some(ErrorKind::Closed), "{error}");
    assert_clean(&server, "closed").await;
    let client = calm(&server).await;
    let lock = sticky(&client);
    kept(&server, &lock).await;
    drop((lock, client));
    until(&server, "the end of the session", |view| {
        view.sessions().is_empty()
    })
    .await;
    assert_clean(&server, "dropped").await;
}

// Shows: kept-node
#[tokio::test]
async fn a_requested_revocation_is_given_up_to() {
    let (server, client, lock, node, other) = scene().await;
    let guard = at_once(&lock);
    let revoked = tokio::spawn(guard.revoked());
    other.attempt_revoke(&guard.node()).await.unwrap();
    within("the request", revoked).await.unwrap();
    drop(guard);
    gone(&server, &node).await;
    end(&server, &[&client], lock, "revoked").await;
}

// Shows: kept-node
#[tokio::test]
async fn handles_agree_on_it() {
    let (_server, [client]) = with_clients(start(), calm).await;
    let _lock = sticky(&client);
    assert!(InterProcessMutex::new(&client, DIRECTORY).is_ok());
    let error = InterProcessMutex::builder(&client, DIRECTORY)
        .sticky(SOON)
        .build()
        .unwrap_err();
    assert!(error.to_string().contains("sticky"), "{error}");
    let error = InterProcessMutex::builder(&client, "/bad")
        .sticky(Duration::ZERO)
        .build()
        .unwrap_err();
    assert!(error.to_string().contains("sticky"), "{error}");
}
