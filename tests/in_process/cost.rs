//! The cost of a lock for its servers, by their counts of requests, transactions, notifications and
//! watches.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod multi_lock;
mod permits;
mod queues;
mod succession;

use test_support::prelude::*;

/// The requests of a session since the last reset, by kind, in a fixed order.
fn requests(server: &Server, id: i64) -> Vec<(Op, u64)> {
    let counters = server.counters();
    let kinds = [
        Op::Create,
        Op::GetChildren,
        Op::GetData,
        Op::Exists,
        Op::Sync,
        Op::Delete,
        Op::Multi,
        Op::MultiRead,
        Op::RemoveWatches,
    ];
    let made: Vec<(Op, u64)> = kinds
        .into_iter()
        .map(|op| (op, counters.requests_of(id, op)))
        .filter(|(_, count)| *count > 0)
        .collect();
    let counted: u64 = made.iter().map(|(_, count)| count).sum();
    assert_eq!(
        counted,
        counters.total_requests_of(id),
        "some other request was made"
    );
    made
}

// Shows: cleanup
#[tokio::test]
async fn dropped_guard_costs_one_request() {
    let (server, [client]) = with_clients(start(), calm).await;
    let guard = hold(&client).await;
    server.reset_counters();
    drop(guard);
    client.flush(SOON).await.unwrap();
    assert_eq!(requests(&server, session(&client)), [(Op::Delete, 1)]);
}

#[tokio::test]
async fn unused_handles_and_clients_cost_nothing() {
    let (server, [client]) = with_clients(start(), calm).await;
    server.reset_counters();
    let handles: Vec<_> = (0..10).map(|_| mutex(&client)).collect();
    assert!(!handles[0].is_acquired_in_this_process());
    drop(handles[0].lock());
    assert_eq!(server.counters().total_requests(), 0);
}

// Shows: directories
#[tokio::test]
async fn only_first_acquire_makes_directory() {
    let (server, [client]) = with_clients(start_empty(), calm).await;
    let id = session(&client);
    let mutex = InterProcessMutex::new(&client, "/shop/eu/stock/sku-42").unwrap();
    server.reset_counters();
    let guard = within("the grant", mutex.lock()).await.unwrap();
    // The create fails. Then the client tries to create the four directories, from the lock's own
    // up to the root's child, creates the other three on the way back, and repeats the create.
    assert_eq!(
        requests(&server, id),
        [(Op::Create, 1 + 4 + 3 + 1), (Op::GetChildren, 2)]
    );
    guard.release().await.unwrap();
    server.reset_counters();
    let guard = within("the grant", mutex.lock()).await.unwrap();
    assert_eq!(
        requests(&server, id),
        [(Op::Create, 1), (Op::GetChildren, 1)]
    );
    guard.release().await.unwrap();
}

/// The waiter looks once more before it takes the lock, because another process may have deleted
/// its node.
// Shows: watch-one-node
#[tokio::test]
async fn next_waiter_costs_four_requests() {
    let (server, [holder, next]) = with_clients(start(), calm).await;
    let guard = hold(&holder).await;
    server.reset_counters();
    let waiter = enqueue(&server, &next).await;
    let id = session(&next);
    assert_eq!(
        requests(&server, id),
        [(Op::Create, 1), (Op::GetChildren, 1), (Op::GetData, 1)]
    );
    assert_eq!(server.watches(), 1);
    guard.release().await.unwrap();
    let guard = granted(waiter.attempt).await;
    assert_eq!(
        requests(&server, id),
        [(Op::Create, 1), (Op::GetChildren, 2), (Op::GetData, 1)]
    );
    assert_eq!(
        (server.counters().notifications(), server.watches()),
        (1, 0)
    );
    guard.release().await.unwrap();
    assert_eq!(requests(&server, id).last(), Some(&(Op::Delete, 1)));
}

// Shows: try-lock, held-by
#[tokio::test]
async fn busy_try_costs_two_lists_sync() {
    let (server, [holder, other]) = with_clients(start(), calm).await;
    let guard = hold(&holder).await;
    let id = session(&other);
    let zxid = || {
        server
            .node(DIRECTORY)
            .map(|node| (node.pzxid, node.next_sequence))
    };
    let (before, last) = (zxid(), last_zxid(&server));
    let lock = mutex(&other);
    for tries in 1..4 {
        server.reset_counters();
        let error = within("the answer", lock.try_lock()).await.unwrap_err();
        assert!(matches!(error, TryLockError::WouldBlock { .. }), "{error}");
        let read: &[_] = if tries == 1 { &[(Op::GetData, 1)] } else { &[] };
        let expected = [&[(Op::GetChildren, 2)], read, &[(Op::Sync, 1)]].concat();
        assert_eq!(
            requests(&server, id),
            expected,
            "try {tries}: the holder is read once"
        );
    }
    server.reset_counters();
    let error = within("the answer", mutex(&other).acquire(Duration::ZERO))
        .await
        .unwrap_err();
    assert!(
        matches!(error, AcquireError::TimedOut { .. }),
        "a timeout of zero is a try: {error}"
    );
    assert_eq!(requests(&server, id), [(Op::GetChildren, 2), (Op::Sync, 1)]);
    assert_eq!(
        (zxid(), last_zxid(&server)),
        (before, last),
        "a try on a busy lock is no transaction"
    );
    guard.release().await.unwrap();

    server.reset_counters();
    let guard = within("the answer", mutex(&other).try_lock())
        .await
        .unwrap();
    assert_eq!(
        requests(&server, id),
        [(Op::Create, 1), (Op::GetChildren, 2)],
        "a try on a free lock looks first"
    );
    guard.release().await.unwrap();
}

fn last_zxid(server: &Server) -> i64 {
    let mut last = 0;
    let seen = server.wait_until_blocking(
        |view| {
            last = view.last_zxid();
            true
        },
        SOON,
    );
    assert!(seen);
    last
}

/// A departing waiter removes its watch, however it leaves.
// Shows: watch-one-node
#[tokio::test]
async fn no_watch_outlives_its_waiter() {
    let (server, [holder, waiter]) = with_clients(start(), calm).await;
    let guard = hold(&holder).await;
    let held = guard.node();
    let id = session(&waiter);

    // Timed out.
    server.reset_counters();
    let asking = mutex(&waiter);
    let error = timed_out(|timeout| asking.acquire(timeout)).await;
    assert!(matches!(error, AcquireError::TimedOut { .. }), "{error}");
    waiter.flush(SOON).await.unwrap();
    until(&server, "no watch after a timeout", |view| {
        view.watches() == 0
    })
    .await;
    assert_eq!(server.children(DIRECTORY).len(), 1);

    // Cancelled.
    server.reset_counters();
    let waiting = ByHand::new(mutex(&waiter).lock()).start();
    let node = held.clone();
    until(&server, "the watch", move |view| {
        view.watches_on(&node) == [id]
    })
    .await;
    drop(waiting);
    waiter.flush(SOON).await.unwrap();
    until(&server, "no watch after a cancellation", |view| {
        view.watches() == 0
    })
    .await;
    let once = [
        Op::Create,
        Op::GetChildren,
        Op::GetData,
        Op::Delete,
        Op::RemoveWatches,
    ]
    .map(|op| (op, 1));
    until(&server, "the watch's removal", move |view| {
        view.counters().requests_of(id, Op::RemoveWatches) == 1
    })
    .await;
    assert_eq!(
        requests(&server, id),
        once,
        "leaving costs the node's deletion and the watch's removal"
    );

    // Cancelled while the watch is being set.
    let gate = server.hold_reply(Match::op(Op::GetData).session(id));
    let waiting = ByHand::new(mutex(&waiter).lock()).start();
    within("the watch", gate.wait_hit()).await;
    drop(waiting);
    gate.release();
    waiter.flush(SOON).await.unwrap();
    until(&server, "no watch without a waiter", |view| {
        view.watches() == 0
    })
    .await;

    // Granted.
    let next = enqueue(&server, &waiter).await;
    guard.release().await.unwrap();
    granted(next.attempt).await.release().await.unwrap();
    assert_clean(&server, "after the grant").await;
}

/// Between acquire and release, a holder sends the servers only pings.
#[tokio::test]
async fn thousand_cycles_cost_two_thousand_requests() {
    let (server, [client]) = with_clients(start(), calm).await;
    let mutex = mutex(&client);
    server.reset_counters();
    for _ in 0..1000 {
        within("the grant", mutex.lock())
            .await
            .unwrap()
            .release()
            .await
            .unwrap();
    }
    let counters = server.counters();
    // The extra requests are a list in each of the first three cycles, and the watch of the
    // directory.
    assert_eq!(counters.total_requests(), 2004);
    assert_eq!((counters.notifications(), counters.watches()), (0, 1));
}
