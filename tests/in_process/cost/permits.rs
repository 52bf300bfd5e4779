//! The cost of a semaphore's permits.

use test_support::prelude::*;

use super::requests;
use crate::semaphore::acquired;

const LOCKS: &str = "/sem/locks";
const LEASES: &str = "/sem/leases";

fn start() -> Server {
    let server = start_empty();
    for directory in ["/sem", LOCKS, LEASES] {
        server.create(directory, "").unwrap();
    }
    server
}

fn semaphore(client: &Client, permits: u32) -> InterProcessSemaphore {
    InterProcessSemaphore::new(client, "/sem", permits).unwrap()
}

/// The requests of a free permit: a place in the queue, a look, and the transaction.
const FREE: [(Op, u64); 4] = [
    (Op::Create, 1),
    (Op::GetChildren, 2),
    (Op::GetData, 1),
    (Op::Multi, 1),
];

// Shows: permits-by-one-transaction
#[tokio::test]
async fn free_permit_costs_five_requests() {
    let (server, [client]) = with_clients(start(), calm).await;
    let (semaphore, id) = (semaphore(&client, 3), session(&client));
    for _ in 0..2 {
        server.reset_counters();
        let permit = acquired(&semaphore, 1).await;
        assert_eq!(requests(&server, id), FREE);
        server.reset_counters();
        permit.release().await.unwrap();
        assert_eq!(requests(&server, id), [(Op::Delete, 1)]);
    }
    assert_eq!(
        (server.counters().notifications(), server.watches()),
        (0, 0)
    );
}

/// The create and the list of the queue go in one flight, then the look, then the transaction, so a
/// free permit takes three round trips.
// Shows: permits-by-one-transaction
#[tokio::test]
async fn leases_and_limit_share_one_flight() {
    let (server, [client]) = with_clients(start(), calm).await;
    let id = session(&client);
    let gate = server.hold_reply(Match::op(Op::GetChildren).session(id).path(LEASES));
    let attempt = tokio::spawn(semaphore(&client, 3).acquire(SOON));
    within("the list", gate.wait_hit()).await;
    until(&server, "the limit's read", move |view| {
        view.log().any(|entry| {
            (entry.session, entry.op, entry.kind) == (id, Op::GetData, LogKind::Arrived)
        })
    })
    .await;
    gate.release();
    within("the permit", attempt)
        .await
        .unwrap()
        .unwrap()
        .release()
        .await
        .unwrap();
}

/// One transaction creates all permits; the limit is read along with the queue.
#[tokio::test]
async fn many_permits_cost_one_request_more() {
    let (server, [client]) = with_clients(start(), calm).await;
    let (semaphore, id) = (semaphore(&client, 100), session(&client));
    server.reset_counters();
    let permit = acquired(&semaphore, 100).await;
    let asked = requests(&server, id);
    assert_eq!(asked[0..2], FREE[0..2]);
    assert_eq!(asked[3], FREE[3]);
    assert!(asked[2].1 <= 2, "{asked:?}");
    server.reset_counters();
    permit.release().await.unwrap();
    assert_eq!(requests(&server, id), [(Op::Delete, 100)]);
}

/// A permit that is returned wakes only the first waiter.
// Shows: semaphore-queue
#[tokio::test]
async fn returned_permit_wakes_one_waiter() {
    let (server, [holder]) = with_clients(start(), calm).await;
    let held = acquired(&semaphore(&holder, 1), 1).await;
    let mut waiters = Vec::new();
    for queued in 1..=5 {
        let client = calm(&server).await;
        let attempt = tokio::spawn(semaphore(&client, 1).acquire(SOON));
        // The head watches the leases and the limit, the others the lock node before theirs.
        let watches = 2 + queued - 1;
        until(&server, "its wait", move |view| view.watches() == watches).await;
        waiters.push((client, attempt));
    }
    let (first, attempt) = waiters.remove(0);
    server.reset_counters();
    held.release().await.unwrap();
    let permit = within("the permit", attempt).await.unwrap().unwrap();
    let id = session(&first);
    let asked = requests(&server, id);
    assert_eq!(
        asked[0..2],
        [(Op::GetChildren, 1), (Op::GetData, 1)],
        "{asked:?}"
    );
    assert!(asked[2..].contains(&(Op::Multi, 1)), "{asked:?}");
    assert_eq!(server.counters().notifications_of(id), 1);
    // The next one is the head, and waits in turn.
    until(&server, "the next head's wait", |view| {
        view.watches_on(LEASES).len() == 1
    })
    .await;
    assert_eq!(
        server.counters().notifications_of(session(&waiters[0].0)),
        1,
        "its predecessor has gone"
    );
    for (client, _) in &waiters[1..] {
        assert_eq!(server.counters().notifications_of(session(client)), 0);
        assert_eq!(server.counters().total_requests_of(session(client)), 0);
    }
    permit.release().await.unwrap();
    for (_client, attempt) in waiters {
        within("the permit", attempt)
            .await
            .unwrap()
            .unwrap()
            .release()
            .await
            .unwrap();
    }
    until(&server, "the end of all watches", |view| {
        view.watches() == 0
    })
    .await;
}

/// The holder of the oldest permit is read once.
// Shows: try-permits, held-by
#[tokio::test]
async fn busy_try_costs_five_reads() {
    let (server, [holder, client]) = with_clients(start(), calm).await;
    let held = acquired(&semaphore(&holder, 1), 1).await;
    let waits = semaphore(&client, 1);
    for limits_and_holders in [3, 2] {
        server.reset_counters();
        let error = within("the answer", waits.try_acquire()).await.unwrap_err();
        assert!(
            matches!(
                error,
                TryLockError::WouldBlock {
                    contention: Contention { ahead: 1, .. },
                    ..
                }
            ),
            "{error}"
        );
        let reads = (Op::GetData, limits_and_holders);
        let asked = [(Op::GetChildren, 2), reads, (Op::Sync, 1)];
        assert_eq!(requests(&server, session(&client)), asked);
    }
    held.release().await.unwrap();
    server.reset_counters();
    let permit = within("the permit", semaphore(&client, 1).try_acquire())
        .await
        .unwrap();
    // The contender looks once before it queues.
    let asked = [
        (Op::Create, 1),
        (Op::GetChildren, 3),
        (Op::GetData, 2),
        (Op::Multi, 1),
    ];
    assert_eq!(requests(&server, session(&client)), asked);
    permit.release().await.unwrap();
}

// Shows: try-permits
#[tokio::test]
async fn try_behind_waiting_head_ends_soon() {
    let (server, [holder, head, client]) = with_clients(start(), calm).await;
    let held = acquired(&semaphore(&holder, 3), 2).await;
    let large = tokio::spawn(semaphore(&head, 3).acquire_many(2, SOON));
    until(&server, "the head's wait", |view| {
        view.watches_on(LEASES).len() == 1
    })
    .await;
    let started = Instant::now();
    let error = within("the answer", semaphore(&client, 3).try_acquire())
        .await
        .unwrap_err();
    assert!(
        matches!(
            error,
            TryLockError::WouldBlock {
                contention: Contention { ahead: 1, .. },
                ..
            }
        ),
        "{error}"
    );
    assert!(
        started.elapsed() >= Duration::from_millis(200),
        "the attempt queues for a moment"
    );
    until(&server, "one in the queue", |view| {
        view.children(LOCKS).len() == 1
    })
    .await;
    held.release().await.unwrap();
    within("the permits", large)
        .await
        .unwrap()
        .unwrap()
        .release()
        .await
        .unwrap();
}
