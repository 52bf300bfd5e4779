//! Lifetimes: attempts outlive their callers (docs/protocol.md#attempt-outlives-caller), clients
//! outlive sessions (docs/protocol.md#session-end), sessions outlive a blocked executor
//! (docs/protocol.md#session-thread).

use ::simulation::scenario::tokio;
use test_support::prelude::*;

/// A timeout for a call that has to join the queue, and whose deadline has to pass.
const A_WHILE: Duration = Duration::from_secs(4);

/// Waits until a client has a session other than `old`.
async fn next_session(client: &Client, old: i64) -> i64 {
    let mut states = client.watch_state();
    let next = async {
        loop {
            match client.session_id() {
                Some(id) if id != old => return id,
                _ => assert!(states.changed().await.is_some()),
            }
        }
    };
    within("the next session", next).await
}

// Shows: flush
#[tokio::test]
async fn flush_waits_for_background_work() {
    let (server, [client]) = with_clients(start(), connect).await;
    let other = InterProcessMutex::new(&client, "/locks/other").unwrap();
    let guards = [
        hold(&client).await,
        within("the grant", other.lock()).await.unwrap(),
    ];
    // A held node is not left behind, so the flush does not wait for it.
    client.flush(Duration::ZERO).await.unwrap();
    let gate = server.hold_request(Match::op(Op::Delete));
    drop(guards);
    let error = client.flush(Duration::from_millis(20)).await.unwrap_err();
    let ReleaseError::TimedOut {
        nodes: 2, waited, ..
    } = error
    else {
        panic!("{error}")
    };
    assert_eq!(waited, Duration::from_millis(20));
    gate.release();
    client.flush(SOON).await.unwrap();
    assert_eq!(server.children(DIRECTORY), [""; 0]);
}

/// A call keeps its deadline in the next session.
// Shows: session-end, deadline
#[tokio::test]
async fn deadline_continues_in_next_session() {
    let (server, [holder, client]) = with_clients(start(), connect).await;
    let held = hold(&holder).await;
    let started = Instant::now();
    let attempt = tokio::spawn(mutex(&client).acquire(A_WHILE));
    let (node, old) = (held.node(), session(&client));
    until(&server, "the wait", move |view| {
        view.watches_on(&node) == [old]
    })
    .await;
    server.refuse_connections(true);
    assert!(server.expire_session(old));
    let error = within("the end", attempt).await.unwrap().unwrap_err();
    assert!(matches!(error, AcquireError::TimedOut { .. }), "{error}");
    assert!(started.elapsed() >= A_WHILE);
    server.refuse_connections(false);
    next_session(&client, old).await;
    client.flush(SOON).await.unwrap();
    assert_eq!(queue(&server), [held.node()]);
    held.release().await.unwrap();
}

/// A holder whose session ends is notified, and nothing of the hold is used afterwards: its late
/// release deletes nothing.
// Shows: one-session
#[tokio::test]
async fn session_end_loses_the_lock() {
    let (server, [client]) = with_clients(start(), calm).await;
    let (old, handle) = (session(&client), mutex(&client));
    let mut guards = Vec::new();
    for _ in 0..2 {
        // The second time, the first guard is still kept.
        let guard = within("the grant", handle.lock()).await.unwrap();
        let id = session(&client);
        let lost = guard.lost();
        assert!(server.expire_session(id));
        let lost = within("the loss", lost).await;
        assert_eq!(
            (lost.reason(), lost.path()),
            (LostReason::SessionExpired, DIRECTORY)
        );
        assert!(!guard.is_held());
        assert!(!handle.is_acquired_in_this_process());
        assert_eq!(within("the loss, again", guard.lost()).await, lost);
        next_session(&client, id).await;
        guards.push(guard);
    }
    // The sequence numbers start again, so without their unique parts an old name would equal the
    // new one.
    server.delete(DIRECTORY).unwrap();
    let current = within("the grant in the third session", handle.lock())
        .await
        .unwrap();
    let id = session(&client);
    assert_ne!(id, old);
    assert!(
        current.node().ends_with("-0000000000"),
        "{}",
        current.node()
    );
    server.reset_counters();
    let dropped = guards.pop().unwrap();
    assert_ne!(dropped.node(), current.node());
    drop(dropped);
    let error = within("the late release", guards.pop().unwrap().release())
        .await
        .unwrap_err();
    let ReleaseError::Lost(lost) = error else {
        panic!("{error}")
    };
    assert_eq!(lost.reason(), LostReason::SessionExpired);
    client.flush(SOON).await.unwrap();
    assert_eq!(
        server.counters().total_requests(),
        0,
        "expected no request for a session that is over"
    );
    assert!(current.is_held() && handle.is_acquired_in_this_process());
    assert_eq!(queue(&server), [current.node()]);
    current.release().await.unwrap();
}

/// A client gets its next session after a long outage, even if the service asks for no lock
/// meanwhile.
// Shows: next-round
#[tokio::test]
async fn session_is_replaced_without_a_call() {
    let server = start_impatient();
    let builder = Client::builder()
        .session_timeout(Duration::from_secs(1))
        .retry_policy(RetryPolicy::n_times(0, Duration::ZERO));
    let client = connect_as(builder, &server).await;
    let mutex = mutex(&client);
    let mut states = client.watch_state();
    server.refuse_connections(true);
    assert!(server.cut(session(&client), Cut::Fin));
    within(
        "the end of the session",
        states.wait_for(|state| *state == ConnectionState::Lost),
    )
    .await
    .unwrap();
    // A round of tries is over.
    let error = within("a call", mutex.lock()).await.unwrap_err();
    assert_eq!(error.kind(), Some(ErrorKind::Connection), "{error}");
    server.refuse_connections(false);
    within(
        "another session",
        states.wait_for(|state| *state == ConnectionState::Connected),
    )
    .await
    .unwrap();
}

/// A list is repeated in the next session, but not indefinitely: a server that answers lists by
/// ending the session would receive one in each session.
#[tokio::test]
async fn look_ending_each_session_is_bounded() {
    let server = start();
    let client = connect_with(&server, RetryPolicy::n_times(2, Duration::ZERO)).await;
    server.fail(Match::op(Op::GetChildren).path(DIRECTORY).always(), -112);
    let error = within("the end", mutex(&client).participants())
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Connection, "{error}");
    // The first list, one at once in the next session, and two by the policy.
    assert_eq!(server.counters().requests(Op::GetChildren), 4);
    server.clear_faults();
    assert!(
        within("the look", mutex(&client).participants())
            .await
            .unwrap()
            .is_empty()
    );
}

/// The lock does not expire during the job, however long the job takes: ShedLock#6.
// Shows: once-record
#[tokio::test]
async fn long_job_keeps_its_lock() {
    const JOB: &str = "/jobs/report";
    const TODAY: &str = "2026-11-22";
    let today = |client: &Client| OnceJob::new(client, JOB, TODAY);
    let server = start();
    let timeout = Duration::from_secs(4);
    let builder = || {
        Client::builder()
            .retry_policy(eager())
            .session_timeout(timeout)
    };
    let (client, other) = (
        connect_as(builder(), &server).await,
        connect_as(builder(), &server).await,
    );
    let running = today(&client).run(|_| async move {
        // The job takes longer than any timeout: the test shows that no time ends its lock.
        tokio::time::sleep(timeout * 5 / 4).await;
        Ok::<_, String>(())
    });
    let impatient = async {
        until(&server, "the lock", |view| {
            !view.children("/jobs/report/lock").is_empty()
        })
        .await;
        let second = today(&other)
            .wait(timeout / 2)
            .run(|_| async { Ok::<_, String>(()) });
        let error = second.await.unwrap_err();
        assert!(
            matches!(error, OnceError::Acquire(AcquireError::TimedOut { .. })),
            "{error}"
        );
        assert!(error.is_retryable());
    };
    let (ran, ()) = within("both", async { tokio::join!(running, impatient) }).await;
    assert_eq!(ran.unwrap(), OnceOutcome::Ran(()));
}

/// The end of a session ends each call that has a request under way in it, also if the servers have
/// ended the session already, so that `close` has no answer to wait for.
// Shows: close-confirmed
#[tokio::test]
async fn calls_under_way_end_with_client() {
    const COUNTER: &str = "/shop/orders";
    for expires in [false, true] {
        let (server, [other, client]) = with_clients(start(), connect).await;
        server.create(COUNTER, 1_i64.to_be_bytes()).unwrap();
        let held = hold(&other).await;
        let at = |path| InterProcessMutex::new(&client, path).unwrap();
        let released = within("the grant", at("/locks/released").lock())
            .await
            .unwrap();
        let writes = within("the grant", at("/locks/writes").lock())
            .await
            .unwrap();
        let read_write = InterProcessReadWriteLock::new(&client, "/locks/shared").unwrap();
        let writer = within("the grant", read_write.write_lock().lock())
            .await
            .unwrap();
        let counter = DistributedAtomicLong::new(&client, COUNTER).unwrap();
        let waiting = enqueue(&server, &client).await;
        let id = session(&client);
        // Each call sends its first request, and none is carried out.
        let gate = server.hold_request(Match::any().session(id));
        let calls = async {
            tokio::join!(
                released.release(),
                writes.transaction().create("/done", "").commit(),
                writer.downgrade(),
                counter.add(1),
                waiting.attempt,
            )
        };
        let end = async {
            within("a request", gate.wait_hit()).await;
            if expires {
                assert!(server.expire_session(id));
                let mut states = client.watch_state();
                let lost = |state: &ConnectionState| *state == ConnectionState::Lost;
                within("the loss", states.wait_for(lost)).await.unwrap();
            } else {
                gate.release();
            }
            within("the end", client.close()).await
        };
        let ((released, written, downgraded, counted, waited), closed) =
            within("the answers", async { tokio::join!(calls, end) }).await;
        closed.unwrap();
        let error = waited.unwrap().unwrap_err();
        assert_eq!(error.kind(), Some(ErrorKind::Closed), "{error}");
        assert!(
            matches!(released, Err(ReleaseError::Lost(_))),
            "{released:?}"
        );
        // The outcome of requests that were sent is unknown.
        assert!(
            matches!(written, Err(TransactionError::Unknown { .. })),
            "{written:?}"
        );
        assert!(
            matches!(downgraded, Err(ConversionError::Lost { .. })),
            "{downgraded:?}"
        );
        // The counter had only been read.
        let error = counted.unwrap_err();
        assert_eq!(error.kind(), Some(ErrorKind::Closed), "{error}");
        held.release().await.unwrap();
        assert_eq!(server.sessions().len(), 1);
    }
}

/// Returns when each of the client library's first tries reached a server that gives no session,
/// counted from before the first.
async fn tries(addresses: usize, count: usize) -> Vec<Duration> {
    let server = start();
    let lost = server.drop_request(Match::op(Op::Connect).always(), Loss::Close);
    let servers = vec![server.connect_string(); addresses].join(",");
    let started = Instant::now();
    let connecting = tokio::spawn(async move {
        let connector = zookeeper_client::Client::connector();
        let connector = connector.with_session_timeout(Duration::from_secs(60));
        drop(connector.connect(&servers).await);
    });
    let mut tries = Vec::new();
    while tries.len() < count {
        let new = lost.hits().len() - tries.len();
        tries.extend(vec![started.elapsed(); new]);
        // Virtual time passes, and the clock is read every millisecond.
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    connecting.abort();
    tries
}

/// The pauses of the client library, on which `Servers::repeated_list` relies, are as long as
/// `tests/upstream.rs` says, and no longer.
// Shows: reconnect
#[tokio::test]
async fn pauses_between_tries_are_bounded() {
    let least = [0, 0, 0, 300, 350, 450, 1_050, 1_100];
    let chance = [0, 0, 0, 100, 150, 200, 300, 350];
    let late = 50;
    for _ in 0..5 {
        let found = tries(3, least.len()).await;
        for ((at, least), chance) in found.iter().zip(least).zip(chance) {
            let at = at.as_millis();
            assert!(at >= least && at <= least + chance + late, "{found:?}");
        }
        let found = tries(12, 13).await;
        // However long the list of servers is, the pause is a second, and a little longer by
        // chance.
        assert!(found[11].as_millis() < 100, "{found:?}");
        assert!((1_000..1_300).contains(&found[12].as_millis()), "{found:?}");
    }
}
