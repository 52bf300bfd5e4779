//! Faults of the fair lock: hand-overs in memory, places that are kept, and waiters of several
//! clients. The in-process server waits at a gate where a test needs an exact moment.

use ::simulation::scenario::tokio;
use test_support::prelude::*;

fn server() -> Server {
    let tick = Duration::from_millis(50);
    let server = Server::builder()
        .tick(tick)
        .min_session_timeout(tick)
        .max_session_timeout(HOUR)
        .start()
        .unwrap();
    server.create(DIRECTORY, "").unwrap();
    server
}

async fn client(server: &Server) -> Client {
    calm(server).await
}

/// Starts a write under the lock, and drops its future once the request has arrived. The request
/// waits at the gate.
async fn give_up_a_write(server: &Server, guard: &LockGuard) -> Gate {
    let gate = server.hold_request(Match::op(Op::Multi).path("/stock"));
    let commit = ByHand::new(guard.transaction().set_data("/stock", "0", None).commit()).start();
    within("the request", gate.wait_hit()).await;
    drop(commit);
    gate
}

/// Ends the session, and waits until the client has the next.
async fn next_session(server: &Server, client: &Client) {
    let id = session(client);
    assert!(server.expire_session(id));
    let mut state = client.watch_state();
    let next = state.wait_for(|_| client.session_id().is_some_and(|now| now != id));
    within("the next session", next).await.unwrap();
}

/// Callers that wait for a session keep their order, although the session wakes them in no
/// particular order.
// Shows: arrival-order
#[tokio::test]
async fn callers_before_session_keep_order() {
    let server = server();
    for _ in 0..10 {
        let client = Client::connect_lazy(&server.connect_string()).unwrap();
        let lock = fair(&client);
        let line: Vec<_> = (0..20).map(|_| ByHand::new(lock.lock()).start()).collect();
        for waits in line {
            within("the grant", waits.finished())
                .await
                .unwrap()
                .release()
                .await
                .unwrap();
        }
    }
}

/// A write under the lock is decided before the next holder is granted the lock
/// (docs/protocol.md#transaction), also if its caller no longer waits for the answer.
// Shows: hand-over, transaction
#[tokio::test]
async fn abandoned_transaction_never_commits_after_release() {
    let server = server();
    server.create("/stock", "1").unwrap();
    let client = client(&server).await;
    let barrier = Barrier::new(&client).await;
    let first = within("the grant", fair(&client).lock()).await.unwrap();
    let mut second = place(&fair(&client)).await;
    let gate = give_up_a_write(&server, &first).await;
    drop(first);
    let mut granted = task::spawn(second.lock());
    assert_pending!(granted.poll());
    barrier.pass().await;
    assert_pending!(
        granted.poll(),
        "granted while the first holder's transaction may still be committed"
    );
    assert_eq!(server.node("/stock").unwrap().data, b"1");
    gate.release();
    let second = within("the grant", granted).await.unwrap();
    assert_eq!(server.node("/stock").unwrap().data, b"0");
    second.release().await.unwrap();
}

/// A waiter whose own node was deleted is not granted the lock by its predecessor in memory: it
/// queues again, at the end.
// Shows: waiter-without-node
#[tokio::test]
async fn waiter_without_node_is_not_granted() {
    let (server, [client, other]) = with_clients(server(), client).await;
    let held = within("the grant", fair(&client).lock()).await.unwrap();
    let mut robbed = place(&fair(&client)).await;
    let mut next = place(&fair(&other)).await;
    let node = queue(&server).remove(1);
    server.delete(&node).unwrap();
    held.release().await.unwrap();
    let next = within("the grant of the first waiter", next.lock())
        .await
        .unwrap();
    assert_eq!(queue(&server)[0], next.node());
    until(&server, "another node", |view| {
        view.children(DIRECTORY).len() == 2
    })
    .await;
    let mut waits = task::spawn(robbed.lock());
    assert_pending!(waits.poll());
    assert!(next.is_held());
    next.release().await.unwrap();
    let guard = within("the grant of the other", waits).await.unwrap();
    assert_ne!(guard.node(), node);
}

/// All nodes of the directory are deleted by hand while this client holds the lock and waits for
/// it, and another client takes the lock.
// Shows: waiter-without-node
#[tokio::test]
async fn deleted_directory_grants_no_waiter() {
    let server = server();
    let timeout = Duration::from_secs(3);
    let (client, other) = (connect_for(&server, timeout).await, client(&server).await);
    let held = within("the grant", fair(&client).lock()).await.unwrap();
    let mut robbed = place(&fair(&client)).await;
    for node in queue(&server) {
        server.delete(&node).unwrap();
    }
    let foreign = within("the grant of the other", fair(&other).lock())
        .await
        .unwrap();
    // A heartbeat notices the deletion.
    within("the loss", held.lost()).await;
    // The attempt queues again.
    watches(&server, &client, &foreign.node()).await;
    let mut beside = task::spawn(robbed.lock());
    assert_pending!(beside.poll(), "two clients hold the lock");
    assert!(foreign.is_held());
    foreign.release().await.unwrap();
    within("the grant", beside)
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
}

/// No grant, remote or local, while locks are suspended (docs/protocol.md#suspended).
// Shows: suspended
#[tokio::test]
async fn nothing_is_granted_while_suspended() {
    let (server, [client]) = with_clients(server(), client).await;
    let barrier = Barrier::new(&client).await;
    let held = within("the grant", fair(&client).lock()).await.unwrap();
    let mut second = place(&fair(&client)).await;
    server.refuse_connections(true);
    assert!(server.cut(session(&client), Cut::Reset));
    let mut state = client.watch_state();
    within(
        "the suspension",
        state.wait_for(|state| *state == ConnectionState::Suspended),
    )
    .await
    .unwrap();
    assert_eq!(held.state(), LockState::Suspended);
    drop(held);
    let mut granted = task::spawn(second.lock());
    assert_pending!(granted.poll());
    barrier.pass().await;
    assert_pending!(granted.poll());
    server.refuse_connections(false);
    within("the grant", granted)
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
}

/// A place at the front of the queue grants no lock if its session ends before the caller asks for
/// the lock.
#[tokio::test]
async fn queued_lock_hands_out_no_loss() {
    let (server, [client, other]) = with_clients(server(), client).await;
    let mut place = place(&fair(&client)).await;
    next_session(&server, &client).await;
    let rival = within("the grant of the other", fair(&other).lock())
        .await
        .unwrap();
    // The place waits again, at the end of the queue, as the documentation says.
    let granted = tokio::spawn(async move { place.lock().await });
    watches(&server, &client, &rival.node()).await;
    assert!(!granted.is_finished() && rival.is_held());
    rival.release().await.unwrap();
    assert!(
        within("the grant", granted)
            .await
            .unwrap()
            .unwrap()
            .is_held()
    );
}

/// A waiter whose node another process deleted does not return "the client is closed" when it is
/// asked for its position.
#[tokio::test]
async fn lost_queued_lock_is_not_closed() {
    let server = server();
    let client = connect_for(&server, Duration::from_secs(3)).await;
    let mut place = place(&fair(&client)).await;
    let node = queue(&server).remove(0);
    server.delete(&node).unwrap();
    let position = within("the position", place.position()).await;
    assert!(
        !matches!(&position, Err(error) if error.kind() == Some(ErrorKind::Closed)),
        "{position:?}: {:?}",
        client.state()
    );
}

/// Asking for a position does not wait for others to give the lock back.
#[tokio::test]
async fn position_is_answered_after_node_deletion() {
    let (server, [client]) = with_clients(server(), client).await;
    let _held = within("the grant", fair(&client).lock()).await.unwrap();
    let mut place = place(&fair(&client)).await;
    let node = queue(&server).remove(1);
    server.delete(&node).unwrap();
    let error = within("the answer, while the lock is held", place.position())
        .await
        .unwrap_err();
    assert!(
        matches!(error, AcquireError::NodeDeleted { .. }) && error.is_retryable(),
        "{error}"
    );
}

/// Waiters of one client keep the order in which they came, also in the next session.
// Shows: arrival-order
#[tokio::test]
async fn waiter_order_outlives_session() {
    const WAITERS: usize = 32;
    let (server, [client, other]) = with_clients(server(), client).await;
    let held = within("the grant", fair(&other).lock()).await.unwrap();
    let mut places = Vec::new();
    for _ in 0..WAITERS {
        places.push(place(&fair(&client)).await);
    }
    assert!(server.expire_session(session(&client)));
    until(&server, "the old nodes to go", |view| {
        view.children(DIRECTORY).len() == 1
    })
    .await;
    until(&server, "all to be back", |view| {
        view.children(DIRECTORY).len() == WAITERS + 1
    })
    .await;
    let mut positions = Vec::new();
    for place in &mut places {
        positions.push(within("a position", place.position()).await.unwrap());
    }
    held.release().await.unwrap();
    let mut sorted = positions.clone();
    sorted.sort_unstable();
    assert_eq!(positions, sorted, "the waiters came in another order");
}

/// The predecessor gave up, and the servers refused at first to delete its node: the client asks
/// them once more.
// Shows: waiting-in-memory
#[tokio::test]
async fn deletion_of_predecessor_is_repeated() {
    let (server, [client, other]) = with_clients(server(), client).await;
    let held = within("the grant", fair(&other).lock()).await.unwrap();
    let gives_up = place(&fair(&client)).await;
    let stuck = queue(&server).remove(1);
    let mut next = place(&fair(&client)).await;
    // NoAuth.
    let refused = server.fail(Match::op(Op::Delete).path(&stuck), -102);
    drop(gives_up);
    within("the refusal", refused.wait_hit()).await;
    client.flush(SOON).await.unwrap();
    assert!(!queue(&server).contains(&stuck));
    held.release().await.unwrap();
    within("the grant", next.lock())
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
}

/// Creates whose outcome is unknown are looked for together, not each with a list of its own.
// Shows: write-barrier
#[tokio::test]
async fn few_lists_resolve_many_unknown_creates() {
    const CROWD: usize = 100;
    let (server, [client, other]) = with_clients(server(), client).await;
    let barrier = Barrier::new(&client).await;
    let held = within("the grant", fair(&other).lock()).await.unwrap();
    let id = session(&client);
    // An unknown code says nothing about what was done; the repetition succeeds.
    let unknown = server.fail(Match::op(Op::Create).session(id).times(CROWD), -999);
    let waiting: Vec<_> = (0..CROWD)
        .map(|_| tokio::spawn(fair(&client).lock()))
        .collect();
    until(&server, "all in the queue", |view| {
        view.children(DIRECTORY).len() == CROWD + 1
    })
    .await;
    assert_eq!(unknown.hits().len(), CROWD);
    // Answers come in order, so the creates and their lists are answered before these lists.
    for _ in 0..2 {
        fair(&client).participants().await.unwrap();
    }
    barrier.pass().await;
    server.reset_counters();
    // All waiters leave before any request that follows is answered.
    let gate = server.hold_request(Match::any().session(id));
    waiting.iter().for_each(tokio::task::JoinHandle::abort);
    for attempt in waiting {
        drop(attempt.await);
    }
    within("a request", gate.wait_hit()).await;
    barrier.pass().await;
    gate.release();
    client.flush(SOON).await.unwrap();
    assert_eq!(queue(&server), [held.node()]);
    // One list is for the creates that came to cleanup first, one for all others, and one for
    // attempts that left after they were notified that their predecessor had left.
    let lists = server.counters().requests_of(id, Op::GetChildren);
    assert!(lists <= 3, "{lists} lists for {CROWD} creates");
}

/// Each call of a place whose client has been closed returns an error.
#[tokio::test]
async fn queued_lock_of_closed_client_fails() {
    let (_server, [client, other]) = with_clients(server(), client).await;
    let _held = within("the grant", fair(&other).lock()).await.unwrap();
    let (mut locked, mut acquired) = (place(&fair(&client)).await, place(&fair(&client)).await);
    within("the end", client.close()).await.unwrap();
    // Most likely the thread of the session has ended too, and its tasks with it.
    for error in [
        within("the position", locked.position()).await.unwrap_err(),
        within("the answer", locked.lock()).await.unwrap_err(),
        within("the answer", acquired.acquire(SOON))
            .await
            .unwrap_err(),
    ] {
        assert_eq!(error.kind(), Some(ErrorKind::Closed), "{error}");
    }
}

/// The client has released its nearest node ahead, but the deletion has to be repeated, and another
/// client's node stands between. The waiter pauses between its lists, which would show nothing new.
// Shows: waiting-in-memory
#[tokio::test]
async fn repeated_deletion_lists_with_pauses() {
    let (server, [client, other]) = with_clients(server(), client).await;
    let held = within("the grant", fair(&client).lock()).await.unwrap();
    let first = held.node();
    let mut between = place(&fair(&other)).await;
    let mut behind = place(&fair(&client)).await;
    // The servers refuse the deletion a few times (Throttled).
    let refused = server.fail(Match::op(Op::Delete).path(&first).times(6), -127);
    server.reset_counters();
    drop(held);
    within("the first refusals", refused.wait_hits(6)).await;
    let lists = server
        .counters()
        .requests_of(session(&client), Op::GetChildren);
    within("the grant", between.lock())
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    within("the grant", behind.lock())
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    assert!(
        lists <= 12,
        "{lists} lists while the deletion was asked for six times"
    );
}

/// A place whose lock was lost is taken anew. If the servers refuse that, the call for the position
/// returns their reason, and does not say that the client is closed.
#[tokio::test]
async fn refused_requeue_names_its_cause() {
    let (server, [client]) = with_clients(server(), client).await;
    let mut place = place(&fair(&client)).await;
    next_session(&server, &client).await;
    // NoAuth.
    let _refused = server.fail(Match::op(Op::Create).path_prefix(DIRECTORY), -102);
    let error = within("the position", place.position()).await.unwrap_err();
    assert_eq!(
        error.kind(),
        Some(ErrorKind::NoAuth),
        "{error} (the client is {:?})",
        client.state()
    );
}

/// A lock that was lost without a connection is given up, and its place is taken anew as soon as
/// there is a connection. The place does not end because the old node still exists.
#[tokio::test]
async fn requeues_before_old_node_is_deleted() {
    let server = server();
    let client = connect_for(&server, Duration::from_secs(3)).await;
    let lock = InterProcessFairLock::builder(&client, DIRECTORY)
        .max_waiters(1)
        .build()
        .unwrap();
    let mut place = place(&lock).await;
    server.freeze_expiry(true);
    server.refuse_connections(true);
    assert!(server.cut(session(&client), Cut::Reset));
    until_lost(&lock).await;
    // Time passes in which the attempt could end or be granted: only its answer would show that.
    let early = tokio::time::timeout(Duration::from_millis(200), place.lock()).await;
    server.refuse_connections(false);
    server.freeze_expiry(false);
    match early {
        Ok(Ok(guard)) => panic!("granted as {:?}", guard.state()),
        Ok(Err(error)) => panic!("the place has ended: {error}"),
        Err(_) => within("the grant", place.lock())
            .await
            .unwrap()
            .release()
            .await
            .unwrap(),
    }
}

/// A refusal concerns one request: the nodes of the other creates that are settled with it are
/// still deleted, at the latest by the next call that lists the directory.
// Shows: write-barrier
#[tokio::test]
async fn refusal_leaves_no_other_node_behind() {
    const CROWD: usize = 5;
    let server = server();
    let policy = RetryPolicy::n_times(0, Duration::from_millis(1));
    let client = calm_with(&server, policy).await;
    let id = session(&client);
    let creates = server.hold_reply(Match::op(Op::Create).session(id).times(CROWD));
    let attempts: Vec<_> = (0..CROWD)
        .map(|_| tokio::spawn(fair(&client).lock()))
        .collect();
    until(&server, "the nodes", |view| {
        view.children(DIRECTORY).len() == CROWD
    })
    .await;
    // The attempts' own lists fail as well.
    let _unknown = server.fail(Match::op(Op::GetChildren).session(id).times(4), -999);
    // The first create is settled alone, so this deletion is the write barrier of all others.
    let refused = server.fail(Match::op(Op::Delete).session(id).nth(2), -102);
    assert!(server.cut(id, Cut::Reset));
    creates.release();
    for attempt in attempts {
        let error = within("the answer", attempt).await.unwrap().unwrap_err();
        assert_eq!(error.kind(), Some(ErrorKind::Connection), "{error}");
    }
    within("the refusal", refused.wait_hit()).await;
    client.flush(SOON).await.unwrap();
    fair(&client).participants().await.unwrap();
    client.flush(SOON).await.unwrap();
    let left = queue(&server).len();
    assert!(
        left <= 1,
        "{left} nodes of {CROWD} stay until the session ends, after one refusal"
    );
}

/// The order of a client's waiters outlives their session even if the directory is deleted with
/// their nodes, as a container is.
// Shows: arrival-order
#[tokio::test]
async fn waiter_order_outlives_directory() {
    const WAITERS: usize = 400;
    let (server, [client]) = with_clients(server(), client).await;
    let mut places = Vec::new();
    for _ in 0..=WAITERS {
        places.push(within("a place", fair(&client).enqueue()).await.unwrap());
    }
    server.refuse_connections(true);
    assert!(server.expire_session(session(&client)));
    until(&server, "the old nodes to go", |view| {
        view.children(DIRECTORY).is_empty()
    })
    .await;
    server.delete(DIRECTORY).unwrap();
    server.refuse_connections(false);
    until(&server, "all to be back", |view| {
        view.exists(DIRECTORY) && view.children(DIRECTORY).len() == WAITERS
    })
    .await;
    let mut positions = Vec::new();
    // The first place is left out, because it already had the lock.
    for place in &mut places[1..] {
        positions.push(within("a position", place.position()).await.unwrap());
    }
    let overtaken = positions.windows(2).filter(|two| two[0] > two[1]).count();
    assert_eq!(overtaken, 0, "{positions:?}");
}

/// Two clients take turns in the queue, as several instances do: a client must be able to set
/// enough watches for its waiters.
// Shows: waiting-in-memory
#[tokio::test]
async fn alternating_clients_have_enough_watches() {
    const PAIRS: usize = 2_000;
    let (server, [one, two]) = with_clients(server(), client).await;
    let held = within("the grant", fair(&one).lock()).await.unwrap();
    let (mut places, mut refused) = (Vec::new(), 0);
    // The other client's nodes, one before each of ours.
    for _ in 0..PAIRS {
        let between = format!("{DIRECTORY}/_c_5f3b2a10-8c1d-4f6e-9a7b-0123456789ab-lock-");
        server
            .create_as(&between, "", CreateMode::EphemeralSequential, session(&two))
            .unwrap();
        match within("a place", fair(&one).enqueue()).await {
            Ok(place) => places.push(place),
            Err(AcquireError::TooManyWatches { .. }) => refused += 1,
            Err(error) => panic!("{error}"),
        }
    }
    let queued = places.len();
    held.release().await.unwrap();
    assert_eq!(
        refused, 0,
        "expected 5,000 waiters to be allowed, but {refused} were refused behind {queued}"
    );
}
