//! The fair lock against an in-process server: order, places in the queue, and thousands of waiters
//! in one process.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use test_support::prelude::*;

fn lock(client: &Client) -> InterProcessFairLock {
    fair(client)
}

/// Starts an attempt, and waits until it has a node and knows its predecessor.
async fn waits(server: &Server, client: &Client) -> (JoinHandle<Acquired>, String) {
    let before = queue(server);
    let attempt = tokio::spawn(lock(client).lock());
    let count = before.len();
    until(server, "a node", move |view| {
        view.children(DIRECTORY).len() > count
    })
    .await;
    let node = queue(server)
        .into_iter()
        .find(|node| !before.contains(node))
        .unwrap();
    // A session's answers come in order: after this answer the attempt has that of its create, and
    // after the next that of its list, if it needs one.
    lock(client).participants().await.unwrap();
    lock(client).participants().await.unwrap();
    (attempt, node)
}

/// The fair lock shares one queue with the mutexes of all clients; the waiters of one session do
/// not watch each other's nodes.
// Shows: waiting-in-memory
#[tokio::test]
async fn own_waiters_are_not_watched() {
    let (server, [a, b]) = with_clients(start(), calm).await;
    let holder = hold(&a).await;
    let (first, _) = waits(&server, &a).await;
    let (second, node) = waits(&server, &a).await;
    assert_eq!(server.watches(), 0, "all of one session");
    let (third, _) = waits(&server, &b).await;
    let id = session(&b);
    until(&server, "a watch on another's node", move |view| {
        view.watches_on(&node) == [id]
    })
    .await;
    let (fourth, _) = waits(&server, &b).await;
    assert_eq!(server.watches(), 1);
    assert_eq!(lock(&a).participants().await.unwrap(), queue(&server));
    let mut token = holder.fencing_token();
    holder.release().await.unwrap();
    let mut waiting = vec![first, second, third, fourth].into_iter();
    while let Some(attempt) = waiting.next() {
        let guard = granted(attempt).await;
        assert!(guard.fencing_token() > token);
        token = guard.fencing_token();
        assert!(
            waiting
                .as_slice()
                .iter()
                .all(|attempt| !attempt.is_finished())
        );
        guard.release().await.unwrap();
    }
    clean(&server, &[&a, &b]).await;
}

/// The next waiter of the same session has the lock when the one request that deletes the holder's
/// node is answered.
// Shows: hand-over
#[tokio::test]
async fn release_hands_over_by_its_deletion() {
    let (server, [a, b]) = with_clients(start(), calm).await;
    let holder = within("the grant", lock(&a).lock()).await.unwrap();
    let (next, node) = waits(&server, &a).await;
    let (other, _) = waits(&server, &b).await;
    let gate = server.hold_reply(Match::op(Op::Multi).path(holder.node()));
    server.reset_counters();
    drop(holder);
    within("the deletion", gate.wait_hit()).await;
    assert_eq!(queue(&server).len(), 2, "the holder's node is gone");
    assert!(!next.is_finished() && !other.is_finished());
    gate.release();
    let guard = granted(next).await;
    assert_eq!(guard.node(), node);
    let counters = server.counters();
    assert_eq!(
        (counters.total_requests(), counters.notifications()),
        (1, 0),
        "no waiter is woken by it"
    );
    guard.release().await.unwrap();
    granted(other).await.release().await.unwrap();
    clean(&server, &[&a, &b]).await;
}

/// If the outcome of the hand-over is unknown, the next waiter looks.
// Shows: hand-over
#[tokio::test]
async fn unanswered_hand_over_needs_a_look() {
    for carried_out in [true, false] {
        let (server, [client]) = with_clients(start(), calm).await;
        let id = session(&client);
        let holder = within("the grant", lock(&client).lock()).await.unwrap();
        let (next, node) = waits(&server, &client).await;
        let (last, _) = waits(&server, &client).await;
        let hand_over = Match::op(Op::Multi).path(holder.node());
        let lost = lose(&server, hand_over, carried_out, Loss::Reset);
        server.reset_counters();
        within("the release", holder.release()).await.unwrap();
        within("the loss", lost.wait_hit()).await;
        let guard = granted(next).await;
        assert_eq!(guard.node(), node);
        assert!(!last.is_finished());
        let counters = server.counters();
        // On a busy machine the lease is in doubt before the next connection exists; then the
        // waiter looks twice.
        let looks = counters.requests_of(id, Op::GetChildren);
        assert!((1..=2).contains(&looks), "{carried_out}: {looks}");
        assert_eq!(counters.requests_of(id, Op::Delete), 1, "{carried_out}");
        guard.release().await.unwrap();
        granted(last).await.release().await.unwrap();
        clean(&server, &[&client]).await;
    }
}

/// A lock is not handed over to a waiter that has given up. The waiter behind it looks, or has
/// taken its place.
// Shows: hand-over
#[tokio::test]
async fn abandoned_hand_over_reaches_next_waiter() {
    for deleted_first in [true, false] {
        let (server, [client]) = with_clients(start(), calm).await;
        let holder = within("the grant", lock(&client).lock()).await.unwrap();
        let (leaves, node) = waits(&server, &client).await;
        let (stays, _) = waits(&server, &client).await;
        // The deletion is under way, before or after the hand-over.
        let deletion = Match::op(Op::Delete).path(&node);
        let hand_over = Match::op(Op::Multi).path(holder.node());
        let gate = server.hold_request(if deleted_first { deletion } else { hand_over });
        let release = if deleted_first {
            leaves.abort();
            within("the deletion", gate.wait_hit()).await;
            tokio::spawn(holder.release())
        } else {
            let release = tokio::spawn(holder.release());
            within("the hand-over", gate.wait_hit()).await;
            leaves.abort();
            release
        };
        gate.release();
        within("the release", release).await.unwrap().unwrap();
        granted(stays).await.release().await.unwrap();
        clean(&server, &[&client]).await;
    }
}

/// A waiter that waits in memory for a node of its own session is not the next if another session's
/// node is in between.
// Shows: hand-over
#[tokio::test]
async fn release_passes_no_other_client() {
    let (server, [a, b]) = with_clients(start(), calm).await;
    let holder = within("the grant", lock(&a).lock()).await.unwrap();
    let (between, node) = waits(&server, &b).await;
    let (behind, _) = waits(&server, &a).await;
    assert_eq!(server.watches(), 1, "of the other client");
    let gate = server.hold_request(Match::op(Op::GetChildren).session(session(&b)));
    server.reset_counters();
    drop(holder);
    // The waiter is notified of the release, and watches the node in between.
    let id = session(&a);
    until(&server, "the watch on the one between", move |view| {
        view.watches_on(&node) == [id]
    })
    .await;
    assert_eq!(server.counters().requests_of(id, Op::Multi), 0);
    assert!(!behind.is_finished() && !between.is_finished());
    gate.release();
    let guard = granted(between).await;
    assert!(!behind.is_finished());
    guard.release().await.unwrap();
    granted(behind).await.release().await.unwrap();
    clean(&server, &[&a, &b]).await;
}

/// Only a held lock is handed over. After a loss the next in line looks at the queue.
// Shows: hand-over
#[tokio::test]
async fn lost_lock_is_not_handed_over() {
    let server = start();
    server.freeze_expiry(true);
    let client = connect_for(&server, Duration::from_secs(4)).await;
    let holder = within("the grant", lock(&client).lock()).await.unwrap();
    let (next, node) = waits(&server, &client).await;
    let gate = server.hold_request(Match::op(Op::Delete).path(holder.node()));
    let beats = server.hold_reply(Match::op(Op::Multi).session(session(&client)).always());
    assert_eq!(
        within("the loss", holder.lost()).await.reason(),
        LostReason::LeaseExpired
    );
    // Only the loss itself prevents a grant, because the servers answer again.
    server.freeze_expiry(false);
    beats.release();
    let other = InterProcessFairLock::new(&client, "/locks/other").unwrap();
    within("another lock", other.lock())
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    drop(holder);
    within("the deletion", gate.wait_hit()).await;
    assert!(
        !next.is_finished(),
        "the lock was granted before the servers confirmed the deletion of the node"
    );
    gate.release();
    let guard = granted(next).await;
    assert_eq!(guard.node(), node);
    guard.release().await.unwrap();
    clean(&server, &[&client]).await;
}

/// Two thousand callers arrive together: they cost a handful of lists and no watch, and each is
/// served, in order, for one deletion.
// Shows: shared-lists, fair-waiters
#[tokio::test]
async fn thousands_of_waiters_cost_few_lists() {
    const WAITERS: usize = 2_000;
    let (server, [client, other]) = with_clients(start(), calm).await;
    let (lock, id) = (lock(&client), session(&client));
    // Another client holds the lock, so that the counters of the first session cover only its
    // waiters.
    let holder = hold(&other).await;
    server.reset_counters();
    let waiting = start_together(&lock, WAITERS).await;
    until(
        &server,
        "all nodes, and a watch on the holder's",
        move |view| view.children(DIRECTORY).len() == WAITERS + 1 && view.watches() == 1,
    )
    .await;
    let counters = server.counters();
    assert_eq!(counters.requests_of(id, Op::Create), WAITERS as u64);
    let lists = counters.requests_of(id, Op::GetChildren);
    assert!(lists <= 20, "{lists} lists");
    server.reset_counters();
    holder.release().await.unwrap();
    let mut token = None;
    for attempt in waiting {
        let guard = within("the grant", attempt).await.unwrap();
        assert!(token < Some(guard.fencing_token()), "served out of order");
        token = Some(guard.fencing_token());
        drop(guard);
    }
    client.flush(SOON).await.unwrap();
    let counters = server.counters();
    assert_eq!(
        counters.requests_of(id, Op::GetChildren),
        1,
        "the first waiter looks when the other client's holder has left"
    );
    assert_eq!(counters.requests_of(id, Op::Multi), WAITERS as u64 - 1);
    assert_eq!(
        counters.total_requests_of(id),
        WAITERS as u64 + 1,
        "a hand-over is one request"
    );
    assert_eq!(counters.notifications_of(id), 1);
    clean(&server, &[&client, &other]).await;
}

/// Returns attempts that have all been polled once, in order.
async fn start_together(
    lock: &InterProcessFairLock,
    count: usize,
) -> Vec<task::Spawn<impl Future<Output = Acquired>>> {
    let mut attempts: Vec<_> = (0..count).map(|_| task::spawn(lock.lock())).collect();
    for attempt in &mut attempts {
        assert_pending!(attempt.poll());
    }
    attempts
}

// Shows: fair-waiters
#[tokio::test]
async fn more_waiters_than_allowed_are_refused() {
    let (server, [client]) = with_clients(start(), calm).await;
    let lock = InterProcessFairLock::builder(&client, DIRECTORY)
        .max_waiters(2)
        .build()
        .unwrap();
    let holder = within("the grant", lock.lock()).await.unwrap();
    let (waiting, other) = (lock.enqueue().await.unwrap(), lock.enqueue().await.unwrap());
    let error = within("a refusal", lock.acquire(SOON)).await.unwrap_err();
    assert!(
        matches!(error, AcquireError::TooManyWaiters { max: 2, .. }) && error.is_retryable(),
        "{error}"
    );
    let error = within("a refusal", lock.enqueue()).await.unwrap_err();
    assert!(
        matches!(error, AcquireError::TooManyWaiters { .. }),
        "{error}"
    );
    let error = within("a refusal", lock.try_lock()).await.unwrap_err();
    assert!(
        matches!(
            error,
            TryLockError::Acquire(AcquireError::TooManyWaiters { .. })
        ),
        "{error}"
    );
    drop(waiting);
    client.flush(SOON).await.unwrap();
    let waiting = lock.enqueue().await.unwrap();
    drop((waiting, other, holder));
    clean(&server, &[&client]).await;
}

/// The guard of a lost lock does not count as a waiter, however long the caller keeps it.
// Shows: fair-waiters
#[tokio::test]
async fn lost_guard_is_no_waiter() {
    let (_server, [client]) = with_clients(start(), calm).await;
    let lock = InterProcessFairLock::builder(&client, DIRECTORY)
        .max_waiters(1)
        .build()
        .unwrap();
    for _ in 0..2 {
        let guard = within(
            "the grant",
            lock.acquire_with_lease(SOON, Duration::from_millis(20)),
        )
        .await
        .unwrap();
        within("the loss", guard.lost()).await;
        std::mem::forget(guard);
    }
    within("the grant", lock.lock())
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
}

#[tokio::test]
async fn queued_lock_keeps_position_over_timeout() {
    let (server, [a, b]) = with_clients(start(), calm).await;
    let holder = hold(&b).await;
    let mut first = within("a place", lock(&a).enqueue()).await.unwrap();
    let mut second = within("a place", lock(&a).enqueue()).await.unwrap();
    assert_eq!(
        (
            first.position().await.unwrap(),
            second.position().await.unwrap()
        ),
        (1, 2)
    );
    let nodes = queue(&server);
    let error = second.acquire(Duration::from_millis(1)).await.unwrap_err();
    assert!(matches!(error, AcquireError::TimedOut { .. }), "{error}");
    // Dropping the future loses nothing either.
    drop(ByHand::new(first.lock()).start());
    assert_eq!(queue(&server), nodes);
    holder.release().await.unwrap();
    let guard = within("the grant", first.acquire(SOON)).await.unwrap();
    assert_eq!(guard.node(), nodes[1]);
    assert_eq!(second.position().await.unwrap(), 1);
    // The place has been used.
    let error = first.position().await.unwrap_err();
    assert_eq!(error.kind(), Some(ErrorKind::Closed), "{error}");
    let error = within("an answer", first.lock()).await.unwrap_err();
    assert_eq!(error.kind(), Some(ErrorKind::Closed), "{error}");
    guard.release().await.unwrap();
    let guard = within("the grant", second.lock()).await.unwrap();
    assert_eq!(guard.node(), nodes[2]);
    drop(guard);
    // The lock is free.
    let mut place = within("a place", lock(&a).enqueue()).await.unwrap();
    assert_eq!(place.position().await.unwrap(), 0);
    within("the grant", place.acquire(Duration::ZERO))
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    clean(&server, &[&a, &b]).await;
}

#[tokio::test]
async fn dropped_queued_lock_leaves_the_queue() {
    let (server, [client]) = with_clients(start(), calm).await;
    let holder = within("the grant", lock(&client).lock()).await.unwrap();
    let waiting = within("a place", lock(&client).enqueue()).await.unwrap();
    drop(waiting);
    client.flush(SOON).await.unwrap();
    assert_eq!(queue(&server), [holder.node()]);
    let mut waiting = within("a place", lock(&client).enqueue()).await.unwrap();
    holder.release().await.unwrap();
    assert_eq!(waiting.position().await.unwrap(), 0);
    drop(waiting);
    clean(&server, &[&client]).await;
}
