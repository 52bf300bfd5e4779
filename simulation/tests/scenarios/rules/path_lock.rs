//! The handles of one client for one path share one queue:
//! docs/protocol.md#one-path-lock and docs/protocol.md#bounded-nodes.

use ::simulation::scenario::tokio;
use test_support::prelude::*;

/// Runs a thousand tasks of one client, and one of another client that comes when all of them wait.
async fn thousand_tasks(in_a_row: u32) -> Server {
    const TASKS: usize = 1000;
    let (server, [client, other]) = with_clients(start(), calm).await;
    let mutex = InterProcessMutex::builder(&client, DIRECTORY);
    let mutex = mutex
        .hand_off(in_a_row, Duration::from_secs(3600))
        .build()
        .unwrap();
    let order = Arc::new(Mutex::new(Vec::new()));
    let served = |who: usize, order: &Arc<Mutex<Vec<usize>>>| order.lock().unwrap().push(who);
    let first = within("the first grant", mutex.lock()).await.unwrap();
    let mut tasks = JoinSet::new();
    for task in 1..TASKS {
        // Each call is polled once, in order, before anything else happens.
        let mut acquire = task::spawn(mutex.lock());
        assert_pending!(acquire.poll());
        let order = Arc::clone(&order);
        tasks.spawn(async move {
            let guard = acquire.await.unwrap();
            served(task, &order);
            guard.release().await.unwrap();
        });
    }
    assert_eq!(queue(&server).len(), 1);
    let outsider = enqueue(&server, &other).await;
    tasks.spawn({
        let order = Arc::clone(&order);
        async move {
            let guard = outsider.attempt.await.unwrap().unwrap();
            served(TASKS, &order);
            guard.release().await.unwrap();
        }
    });
    served(0, &order);
    first.release().await.unwrap();
    while let Some(done) = within("every task", tasks.join_next()).await {
        done.unwrap();
    }
    let mut order = std::mem::take(&mut *order.lock().unwrap());
    let turn = order.iter().position(|who| *who == TASKS).unwrap();
    assert_eq!(
        turn, in_a_row as usize,
        "a thousand tasks delay another process by no more than one row"
    );
    order.remove(turn);
    assert!(
        order.iter().copied().eq(0..TASKS),
        "in the order in which they came: {order:?}"
    );
    assert!(
        most_nodes(&server) <= 3,
        "ours, the one before it that is being deleted, and the other client's"
    );
    server
}

/// The tasks hand the lock on in memory, or each has a node of its own.
// Shows: arrival-order
#[tokio::test]
async fn serves_thousand_tasks_in_order() {
    for in_a_row in [64, 1] {
        let server = thousand_tasks(in_a_row).await;
        assert_clean(&server, "a thousand tasks").await;
    }
}

/// A node that is being deleted blocks no caller of its client, and no try fails because the lock
/// seems to be held.
// Shows: bounded-nodes, live-contender
#[tokio::test]
async fn waits_for_own_node_being_deleted() {
    let (server, [client]) = with_clients(start(), calm).await;
    let id = session(&client);
    let mutex = mutex(&client);
    for granted in [false, true] {
        let deletion = server.hold_request(Match::op(Op::Delete).session(id));
        let reply = server.hold_reply(Match::op(Op::Create).session(id));
        let attempt = ByHand::new(mutex.lock()).start();
        within("the create", reply.wait_hit()).await;
        if granted {
            reply.release();
            attempt.woken().await;
        }
        drop(attempt);
        reply.release();
        within("the deletion", deletion.wait_hit()).await;
        // No process has the lock, so a try waits for the deletion instead of failing as busy.
        let question = ByHand::new(mutex.try_lock()).start();
        drop(question);
        let next = ByHand::new(mutex.lock()).start();
        deletion.release();
        within("the next grant", next.finished())
            .await
            .unwrap()
            .release()
            .await
            .unwrap();
    }
    assert!(most_nodes(&server) <= 2);
}

/// By default, another process waits only some milliseconds longer for a client with many tasks
/// than for one holder.
#[tokio::test]
async fn busy_client_delays_others_by_milliseconds() {
    const ROW: Duration = Duration::from_millis(5);
    const HOLD: Duration = Duration::from_micros(200);
    let (server, [client, other]) = with_clients(start(), calm).await;
    let (ours, theirs) = (mutex(&client), mutex(&other));
    let mut free = Duration::ZERO;
    for _ in 0..3 {
        let began = Instant::now();
        within("a free lock", theirs.lock())
            .await
            .unwrap()
            .release()
            .await
            .unwrap();
        free = free.max(began.elapsed());
    }
    let tasks: Vec<_> = (0..100)
        .map(|_| {
            let ours = ours.clone();
            tokio::spawn(async move {
                loop {
                    let guard = ours.lock().await.unwrap();
                    // The lock is held for a while.
                    tokio::time::sleep(HOLD).await;
                    drop(guard);
                }
            })
        })
        .collect();
    for _ in 0..50 {
        // The pause ends at any point of a row.
        tokio::time::sleep(ROW).await;
        let began = Instant::now();
        let guard = within("the other's turn", theirs.lock()).await.unwrap();
        // A timer fires with the next millisecond.
        let most = ROW + HOLD + Duration::from_millis(2) + 3 * free;
        assert!(began.elapsed() <= most, "{:?} of {most:?}", began.elapsed());
        guard.release().await.unwrap();
    }
    let grants = server.counters().requests_of(session(&client), Op::Create);
    assert!(
        grants < 200,
        "expected rows of holders, but {grants} nodes were created"
    );
    for task in &tasks {
        task.abort();
    }
    client.flush(SOON).await.unwrap();
    assert_clean(&server, "a busy client").await;
}

/// Connects a client that pauses for an hour between repetitions.
async fn patient(server: &Server) -> Client {
    connect_with(server, RetryPolicy::n_times(3, Duration::from_secs(3600))).await
}

/// ZooKeeper's error codes.
const THROTTLED: i32 = -127;
const NO_NODE: i32 = -101;

/// A contender that the server throttles, or whose directory is missing again and again, delays no
/// other while it pauses.
// Shows: arrival-order
#[tokio::test]
async fn paused_contender_delays_no_other() {
    // Without a directory, the first repetition is sent at once.
    for (code, times) in [(THROTTLED, 1), (NO_NODE, 3)] {
        let (server, [client]) = with_clients(start(), patient).await;
        let creates = Match::op(Op::Create).path_contains("lock-");
        let put_off = server.fail(creates.times(times), code);
        let pausing = ByHand::new(fair(&client).lock()).start();
        within("the failures", put_off.wait_hits(times)).await;
        for _ in 0..2 {
            let guard = within("another's grant", fair(&client).lock())
                .await
                .unwrap();
            guard.release().await.unwrap();
            let guard = within("a try's grant", mutex(&client).try_lock())
                .await
                .unwrap();
            guard.release().await.unwrap();
        }
        drop(pausing);
        assert_clean(&server, "after a pause").await;
    }
}
