//! Regressions: each test shows a behaviour that an earlier version did not have.
//!
//! The tests run against the server in memory and its faults, in virtual time. The regressions that
//! need threads, runtimes or sockets are in the file of this name among the tests in real time. A
//! task that panics fails its test.

use ::simulation::scenario::tokio;
use test_support::prelude::*;

use crate::until_ended;

/// The session timeout in tests in which time passes.
const T: Duration = Duration::from_secs(6);
const LONG: Duration = Duration::from_secs(20);
const OTHER: &str = "/locks/b";

// ZooKeeper's error codes.
const RUNTIME_INCONSISTENCY: i32 = -2;
const AUTH_FAILED: i32 = -115;
const THROTTLED: i32 = -127;

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn server() -> Server {
    let tick = ms(50);
    Server::builder()
        .tick(tick)
        .min_session_timeout(tick)
        .max_session_timeout(LONG)
        .start()
        .unwrap()
}

async fn client(server: &Server) -> Client {
    client_with(server, patient()).await
}

/// Returns the options of a client that waits for a server for as long as necessary.
fn patient() -> ClientBuilder {
    Client::builder().connect_timeout(LONG)
}

/// Connects a client whose session does not expire during a test, with the other options of
/// `builder`.
async fn client_with(server: &Server, builder: ClientBuilder) -> Client {
    builder
        .session_timeout(LONG)
        .connect(&server.connect_string())
        .await
        .unwrap()
}

/// Connects a client whose heartbeats, and whose expiry, fall within the time of a test.
async fn brief_client(server: &Server, builder: ClientBuilder) -> Client {
    connect_as(builder.session_timeout(T), server).await
}

fn mutex_at(client: &Client, path: &str) -> InterProcessMutex {
    InterProcessMutex::new(client, path).unwrap()
}

async fn until_state(client: &Client, wanted: ConnectionState) {
    within(
        "the state",
        client.watch_state().wait_for(|state| *state == wanted),
    )
    .await
    .unwrap();
}

/// A create whose caller has left is under way when its session expires. The attempt ends with the
/// session.
#[tokio::test]
async fn abandoned_attempt_ends_with_session() {
    for cancelled in [false, true] {
        let (server, [client]) = with_clients(server(), client).await;
        hold(&client).await.release().await.unwrap();
        let gate = server.hold_request(Match::op(Op::Create).path_prefix(DIRECTORY));
        if cancelled {
            let mut attempt = task::spawn(mutex(&client).lock());
            assert_pending!(attempt.poll());
            within("the request", gate.wait_hit()).await;
        } else {
            let error = mutex(&client).acquire(ms(2_000)).await.unwrap_err();
            assert_eq!(error.kind(), Some(ErrorKind::Connection), "{error}");
            within("the request", gate.wait_hit()).await;
        }
        let old = session(&client);
        server.expire_session(old);
        until(&server, "another session", move |view| {
            view.sessions().iter().any(|session| session.id != old)
        })
        .await;
        until_state(&client, ConnectionState::Connected).await;
        // All further steps of the attempt would come before the flush ends.
        client.flush(LONG).await.unwrap();
        mutex_at(&client, OTHER)
            .lock()
            .await
            .unwrap()
            .release()
            .await
            .unwrap();
        let new = session(&client);
        let created = |entry: &&LogEntry| {
            entry.op == Op::Create && entry.session == new && entry.path.starts_with(DIRECTORY)
        };
        assert_eq!(
            server.log().iter().filter(created).count(),
            0,
            "expected the attempt to end with its caller"
        );
    }
}

/// The create waits for a connection, which does not come before the client gives up the session.
#[tokio::test]
async fn abandoned_unsent_attempt_ends_with_session() {
    let server = server();
    let client = brief_client(&server, patient()).await;
    hold(&client).await.release().await.unwrap();
    server.stop_async().await;
    until_state(&client, ConnectionState::Suspended).await;
    let mut cancelled = task::spawn(mutex(&client).lock());
    assert_pending!(cancelled.poll());
    let late = mutex(&client).acquire(ms(50)).await.unwrap_err();
    assert_eq!(late.kind(), Some(ErrorKind::Connection), "{late}");
    drop(cancelled);
    until_state(&client, ConnectionState::Lost).await;
    server.reset_counters();
    server.restart_async().await.unwrap();
    let guard = hold(&client).await;
    client.flush(LONG).await.unwrap();
    assert_eq!(server.children(DIRECTORY).len(), 1);
    assert_eq!(
        server.counters().requests(Op::Create),
        1,
        "only the one that was asked for"
    );
    guard.release().await.unwrap();
}

/// The watch is refused, or closes the connection, each time.
// Shows: bounded-retries
#[tokio::test]
async fn failing_watch_ends_by_retry_policy() {
    for refused in [true, false] {
        let (server, [holder]) = with_clients(server(), client).await;
        let guard = hold(&holder).await;
        let policy = RetryPolicy::n_times(3, ms(1));
        let waiter = client_with(&server, patient().retry_policy(policy)).await;
        let watch = Match::op(Op::GetData).always();
        let _failing = match refused {
            true => server.fail(watch, RUNTIME_INCONSISTENCY),
            false => server.drop_reply(watch, Loss::Close),
        };
        let error = within("the grant", mutex(&waiter).lock())
            .await
            .unwrap_err();
        assert_eq!(error.kind(), Some(ErrorKind::Connection), "{error}");
        let (asked, id) = (server.counters().requests(Op::GetData), session(&waiter));
        assert!(
            if refused { asked == 4 } else { asked <= 4 },
            "{asked}: the first and three repetitions"
        );
        let connects = server.counters().requests_of(id, Op::Connect);
        assert!(connects <= 8, "{connects} reconnects");
        waiter.flush(LONG).await.unwrap();
        assert_eq!(server.children(DIRECTORY).len(), 1);
        guard.release().await.unwrap();
    }
}

// Shows: bounded-retries
#[tokio::test]
async fn until_elapsed_excludes_queue_time() {
    let (server, [holder]) = with_clients(server(), client).await;
    let guard = hold(&holder).await;
    let most = ms(100);
    let policy = RetryPolicy::until_elapsed(most, ms(1));
    let waiter = client_with(&server, patient().retry_policy(policy)).await;
    let id = session(&waiter);
    let mut waiting = tokio::spawn(mutex(&waiter).lock());
    until(&server, "the watch", |view| view.watches() == 1).await;
    // The time in the queue must pass.
    assert!(tokio::time::timeout(2 * most, &mut waiting).await.is_err());
    // The predecessor changes, the call lists again, and the reply to that is lost.
    let lost = server.drop_reply(Match::op(Op::GetChildren).session(id), Loss::Close);
    server.set_data(&guard.node(), "changed").unwrap();
    within("the request", lost.wait_hit()).await;
    guard.release().await.unwrap();
    within("the grant", waiting)
        .await
        .unwrap()
        .unwrap()
        .release()
        .await
        .unwrap();
}

/// Unknown creates are remembered by directory, for any number of others elsewhere.
// Shows: write-barrier
#[tokio::test]
async fn next_list_deletes_late_create() {
    let server = server();
    let policy = RetryPolicy::n_times(0, ms(1));
    let client = client_with(&server, patient().retry_policy(policy)).await;
    let mut asked = Vec::new();
    for path in [OTHER, DIRECTORY] {
        mutex_at(&client, path)
            .lock()
            .await
            .unwrap()
            .release()
            .await
            .unwrap();
        for _ in 0..10 {
            let lost = server.drop_request(Match::op(Op::Create).path_prefix(path), Loss::Close);
            let error = within("the grant", mutex_at(&client, path).lock())
                .await
                .unwrap_err();
            assert_eq!(error.kind(), Some(ErrorKind::Connection), "{error}");
            asked.extend(lost.hits().into_iter().map(|hit| hit.path));
        }
    }
    client.flush(LONG).await.unwrap();
    assert_eq!(asked.len(), 20);
    // Two of the creates are committed after all, before any create that is sent from now on.
    let mode = CreateMode::EphemeralSequential;
    for path in asked
        .iter()
        .filter(|path| path.starts_with(DIRECTORY))
        .take(2)
    {
        server.create_as(path, "", mode, session(&client)).unwrap();
    }
    assert_eq!(server.children(DIRECTORY).len(), 2);
    let guard = hold(&client).await;
    client.flush(LONG).await.unwrap();
    let left = server.children(DIRECTORY);
    assert_eq!(left.len(), 1, "{left:?}");
    assert!(guard.node().ends_with(&left[0]));
    guard.release().await.unwrap();
}

#[tokio::test]
async fn clock_does_not_lose_released_guard() {
    let server = server();
    let client = brief_client(&server, patient()).await;
    let guard = hold(&client).await;
    let (mut watched, later) = (Box::pin(guard.lost()), guard.lost());
    guard.release().await.unwrap();
    // Without a lock, the lease is not renewed, so a lock that is held would be lost when that time
    // has passed.
    assert!(tokio::time::timeout(T * 3 / 4, &mut watched).await.is_err());
    assert_pending!(task::spawn(later).poll());
    until_state(&client, ConnectionState::Connected).await;
    client.close().await.unwrap();
    assert_eq!(
        within("the loss", watched).await.reason(),
        LostReason::Closed
    );
}

// Shows: session-lifetime
#[tokio::test]
async fn lost_keeps_neither_session_nor_client() {
    let (server, [client]) = with_clients(server(), client).await;
    let guard = hold(&client).await;
    let mut lost = task::spawn(guard.lost());
    assert_pending!(lost.poll());
    guard.release().await.unwrap();
    drop(client);
    let closed = |view: View<'_>| view.counters().requests(Op::CloseSession) == 1;
    until(&server, "the end of the sessions", closed).await;
    within("the loss", lost).await;
}

// Shows: session-end
#[tokio::test]
async fn refused_credentials_reach_every_caller() {
    let (server, [client]) = with_clients(server(), client).await;
    let (busy, released) = (
        hold(&client).await,
        mutex_at(&client, OTHER).lock().await.unwrap(),
    );
    let waiting = tokio::spawn(ByHand::new(mutex(&client).lock()).start().finished());
    // The deletion is not completed before the credentials are refused.
    let deletion = server.fail(Match::op(Op::Delete).path_prefix(OTHER).always(), THROTTLED);
    let release = tokio::spawn(released.release());
    within("the request", deletion.wait_hit()).await;
    server.fail(Match::op(Op::GetChildren).path("/locks/c"), AUTH_FAILED);

    let asked = within("the grant", mutex_at(&client, "/locks/c").lock()).await;
    assert!(
        matches!(&asked, Err(error) if error.kind() == Some(ErrorKind::AuthFailed)),
        "{asked:?}"
    );
    let waited = within("the grant", waiting).await.unwrap();
    assert!(
        matches!(&waited, Err(error) if error.kind() == Some(ErrorKind::AuthFailed)),
        "{waited:?}"
    );
    let release = within("the release", release).await.unwrap();
    assert!(matches!(release, Err(ReleaseError::Lost(_))), "{release:?}");
    assert_eq!(server.children(OTHER).len(), 1, "it was not deleted");
    assert!(!busy.is_held());
    let closed = within("the close", client.close()).await;
    assert!(
        matches!(closed, Err(ReleaseError::SessionNotClosed { .. })),
        "{closed:?}"
    );
    assert_eq!(client.state(), ConnectionState::Closed);
    let later = within("the grant", mutex(&client).acquire(LONG)).await;
    assert!(
        matches!(&later, Err(error) if error.kind() == Some(ErrorKind::AuthFailed)),
        "{later:?}"
    );
    let participants = within("the list", mutex(&client).participants()).await;
    assert!(
        matches!(&participants, Err(error) if error.kind() == ErrorKind::AuthFailed),
        "{participants:?}"
    );
}

#[tokio::test]
async fn later_refused_credentials_reach_waiters() {
    let server = server();
    let builder = Client::builder().auth("digest", "shop:secret");
    let client = client_with(&server, builder).await;
    let _guard = hold(&client).await;
    let waiting = tokio::spawn(ByHand::new(mutex(&client).lock()).start().finished());
    server.fail(Match::op(Op::Auth).always(), AUTH_FAILED);
    server.expire_session(session(&client));
    let waited = within("the grant", waiting).await.unwrap();
    assert!(
        matches!(&waited, Err(error) if error.kind() == Some(ErrorKind::AuthFailed)),
        "{waited:?}"
    );
    until_state(&client, ConnectionState::Closed).await;
    let later = within("the list", mutex(&client).participants()).await;
    assert!(
        matches!(&later, Err(error) if error.kind() == ErrorKind::AuthFailed),
        "{later:?}"
    );
}

#[tokio::test]
async fn deadline_without_server_is_not_busy() {
    let server = server();
    let builder = Client::builder()
        .connect_timeout(ms(1_500))
        .retry_policy(RetryPolicy::one_time(ms(1)));
    let client = brief_client(&server, builder).await;
    hold(&client).await.release().await.unwrap();
    server.stop_async().await;
    // First while there is a session, then without one.
    for state in [ConnectionState::Suspended, ConnectionState::Lost] {
        until_state(&client, state).await;
        let (mutex, other) = (mutex(&client), mutex_at(&client, OTHER));
        let (short, none, tried) = within("the grant", async {
            tokio::join!(
                mutex.acquire(ms(50)),
                other.acquire(Duration::ZERO),
                mutex.try_lock()
            )
        })
        .await;
        for error in [short.unwrap_err(), none.unwrap_err()] {
            assert_eq!(
                error.kind(),
                Some(ErrorKind::Connection),
                "{state:?}: {error}"
            );
        }
        let tried = tried.unwrap_err();
        assert!(
            tried.kind() == Some(ErrorKind::Connection),
            "{state:?}: {tried}"
        );
    }
}

#[tokio::test]
async fn untaken_grant_counts_as_acquired() {
    let (_server, [client]) = with_clients(server(), client).await;
    hold(&client).await.release().await.unwrap();
    let mutex = mutex(&client);
    let mut granted = task::spawn(mutex.acquire(LONG));
    assert_pending!(granted.poll());
    within("the grant", async {
        while !mutex.is_acquired_in_this_process() {
            mutex.participants().await.unwrap();
        }
    })
    .await;
    match mutex.acquire(ms(500)).await.unwrap_err() {
        AcquireError::TimedOut {
            contention:
                Contention {
                    holder: Some(holder),
                    ..
                },
            ..
        } => {
            assert_eq!(holder.location().file(), file!());
        }
        other => panic!("{other}"),
    }
    granted.await.unwrap().release().await.unwrap();
    assert!(!mutex.is_acquired_in_this_process());
}

// Shows: attempt-outlives-caller
#[tokio::test]
async fn unpolled_waiter_leaves_at_deadline() {
    let (server, [holder, client]) = with_clients(server(), client).await;
    let guard = hold(&holder).await;
    let mut forgotten = task::spawn(mutex(&client).acquire(ms(3_000)));
    assert_pending!(forgotten.poll());
    until(&server, "the create", |view| {
        view.node(DIRECTORY)
            .is_some_and(|directory| directory.next_sequence == 2)
    })
    .await;
    let gone = |view: View<'_>| {
        view.node(DIRECTORY)
            .is_some_and(|directory| directory.num_children == 1)
    };
    until(&server, "the deletion", gone).await;
    guard.release().await.unwrap();
    assert!(matches!(
        forgotten.await,
        Err(AcquireError::TimedOut { .. })
    ));
}

// Shows: bounded-retries
#[tokio::test]
async fn throttling_server_delays_first_retry() {
    let server = server();
    let pause = ms(200);
    let client = client_with(
        &server,
        patient().retry_policy(RetryPolicy::one_time(pause)),
    )
    .await;
    hold(&client).await.release().await.unwrap();
    server.fail(Match::op(Op::Create).times(1), THROTTLED);
    let started = Instant::now();
    let guard = hold(&client).await;
    assert!(started.elapsed() >= pause, "{:?}", started.elapsed());
    guard.release().await.unwrap();
    // The repetition counts against the policy, which allows only one.
    let throttled = server.fail(Match::op(Op::Create).always(), THROTTLED);
    let error = within("the grant", mutex(&client).lock())
        .await
        .unwrap_err();
    assert_eq!(error.kind(), Some(ErrorKind::Connection), "{error}");
    assert_eq!(throttled.hits().len(), 2);
}

// Shows: flush
#[tokio::test]
async fn flush_ignores_later_work() {
    let (server, [client]) = with_clients(server(), client).await;
    let before = hold(&client).await;
    // Deletions are not done until then.
    let first = server.fail(
        Match::op(Op::Delete).path_prefix(DIRECTORY).always(),
        THROTTLED,
    );
    let second = server.fail(Match::op(Op::Delete).path_prefix(OTHER).always(), THROTTLED);
    drop(before);
    within("the request", first.wait_hit()).await;
    let mut flush = task::spawn(client.flush(LONG));
    assert_pending!(flush.poll());
    drop(mutex_at(&client, OTHER).lock().await.unwrap());
    within("the request", second.wait_hit()).await;
    assert_pending!(flush.poll());
    first.remove();
    flush.await.unwrap();
    assert_eq!(
        (
            server.children(DIRECTORY).len(),
            server.children(OTHER).len()
        ),
        (0, 1)
    );
    second.remove();
    client.flush(LONG).await.unwrap();
    assert_eq!(server.children(OTHER).len(), 0);
}

// Shows: session-lifetime
#[tokio::test]
async fn unpolled_participants_keep_no_session() {
    let (server, [client]) = with_clients(server(), client).await;
    let guard = hold(&client).await;
    let mutex = mutex(&client);
    let mut participants = task::spawn(mutex.participants());
    assert_pending!(participants.poll());
    within("the close", client.close()).await.unwrap();
    assert_eq!(server.sessions().len(), 0);
    assert!(!guard.is_held());
    drop(participants);
}

/// Servers before 3.6 answer a request that they do not know by closing the connection.
// Shows: replaced-session
#[tokio::test]
async fn reconnect_works_with_old_servers() {
    let (server, [holder, client]) = with_clients(server(), client).await;
    let guard = hold(&holder).await;
    // The client holds a lock, so it sends heartbeats.
    let other = within("the grant", mutex_at(&client, OTHER).lock())
        .await
        .unwrap();
    let waiting = tokio::spawn(mutex(&client).lock());
    until(&server, "the watch", |view| view.watches() == 1).await;
    let id = session(&client);
    for how in [Cut::Fin, Cut::Reset] {
        let connects = server.counters().requests_of(id, Op::Connect);
        let beats = server.counters().requests_of(id, Op::Multi);
        server.cut(id, how);
        let again = move |view: View<'_>| view.counters().requests_of(id, Op::Connect) > connects;
        until(&server, "the reconnect", again).await;
        // The heartbeat is sent as soon as the client has a connection.
        until(&server, "a beat", move |view| {
            view.counters().requests_of(id, Op::Multi) > beats
        })
        .await;
    }
    guard.release().await.unwrap();
    within("the grant", waiting)
        .await
        .unwrap()
        .unwrap()
        .release()
        .await
        .unwrap();
    other.release().await.unwrap();
    client.close().await.unwrap();
    holder.close().await.unwrap();
    let mut asked: Vec<Op> = server
        .log()
        .iter()
        .filter(|entry| entry.kind == LogKind::Arrived)
        .map(|entry| entry.op)
        .collect();
    asked.sort_unstable();
    asked.dedup();
    let known = [
        Op::Create,
        Op::Delete,
        Op::GetData,
        Op::GetChildren,
        Op::Multi,
        Op::SetWatches,
        Op::Ping,
        Op::CloseSession,
        Op::Connect,
    ];
    assert!(asked.iter().all(|op| known.contains(op)), "{asked:?}");
}

/// A caller that does not want to wait for a server drops the future. The session is still closed
/// once a server is reachable.
#[tokio::test]
async fn close_without_server_ends_guards() {
    let server = server();
    server.freeze_expiry(true);
    let client = client(&server).await;
    let (guard, id) = (hold(&client).await, session(&client));
    server.stop_async().await;
    until_state(&client, ConnectionState::Suspended).await;
    let mut closing = task::spawn(client.close());
    assert_pending!(closing.poll());
    assert_eq!(
        within("the loss", guard.lost()).await.reason(),
        LostReason::Closed
    );
    assert_pending!(closing.poll());
    drop(closing);
    server.restart_async().await.unwrap();
    until_ended(&server, id).await;
    assert_eq!(server.counters().requests(Op::CloseSession), 1);
    within("the close", client.close()).await.unwrap();
}

/// The waiters end without a server.
// Shows: close-confirmed
#[tokio::test]
async fn close_without_server_ends_waiters() {
    for lost in [false, true] {
        let server = server();
        let (client, state) = match lost {
            true => (
                brief_client(&server, patient()).await,
                ConnectionState::Lost,
            ),
            false => (client(&server).await, ConnectionState::Suspended),
        };
        server.stop_async().await;
        until_state(&client, state).await;
        let waiter = tokio::spawn(mutex(&client).lock());
        let mut closing = task::spawn(client.close());
        assert_pending!(closing.poll());
        let waited = within("the end of the wait", waiter).await.unwrap();
        assert!(
            matches!(&waited, Err(error) if error.kind() == Some(ErrorKind::Closed)),
            "{waited:?}"
        );
        // The close waits for a session timeout.
        assert_pending!(closing.poll());
    }
}

/// A look and a request to release. The policy's pause is longer than anything a caller of `close`
/// would wait for, and than the session lives.
// Shows: session-lifetime
#[tokio::test]
async fn close_interrupts_retry_pause() {
    for refused in [Op::GetChildren, Op::SetData] {
        let server = server();
        server.freeze_expiry(true);
        let policy = RetryPolicy::forever(Duration::from_secs(3_600));
        let client = client_with(&server, patient().retry_policy(policy)).await;
        let (guard, session) = (hold(&client).await, session(&client));
        let node = guard.node();
        let throttled = server.fail(
            Match::op(refused).path_prefix(DIRECTORY).always(),
            THROTTLED,
        );
        let (asked, mutex) = (client.clone(), mutex(&client));
        let call = tokio::spawn(async move {
            let answer = match refused {
                Op::SetData => asked.attempt_revoke(&guard.node()).await,
                _ => mutex.participants().await.map(drop),
            };
            drop(guard);
            answer
        });
        within("the request", throttled.wait_hit()).await;
        // Answered behind the refusal, so that has arrived.
        drop(
            within("the grant", mutex_at(&client, OTHER).lock())
                .await
                .unwrap(),
        );
        within("the close", client.close()).await.unwrap();
        assert!(!server.exists(&node), "the lock is still taken");
        assert!(
            !server.sessions().iter().any(|other| other.id == session),
            "the session is still there"
        );
        let error = within("the answer", call).await.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Closed, "{error:?}");
    }
}

/// The transaction was sent, and nothing polls it any more, as beside a `select!` that had another
/// branch. It keeps no session, and its outcome is unknown.
// Shows: transaction
#[tokio::test]
async fn transaction_during_close_is_unknown() {
    for is_answered in [false, true] {
        let (server, [client]) = with_clients(server(), client).await;
        let guard = hold(&client).await;
        let written = "/locks/written";
        let gate = server.hold_reply(Match::op(Op::Multi).path(written));
        let mut commit = task::spawn(guard.transaction().create(written, "").commit());
        assert_pending!(commit.poll());
        within("the request", gate.wait_hit()).await;
        if is_answered {
            gate.release();
            within("the close", client.close()).await.unwrap();
            // Whichever came first, the answer or the end.
            let answer = within("the commit", commit).await;
            assert!(
                matches!(answer, Ok(()) | Err(TransactionError::Unknown { .. })),
                "{answer:?}"
            );
        } else {
            let mut closing = task::spawn(client.close());
            assert_pending!(closing.poll());
            let answer = within("the commit", commit).await;
            assert!(
                matches!(answer, Err(TransactionError::Unknown { .. })),
                "{answer:?}"
            );
            gate.release();
            within("the close", closing).await.unwrap();
        }
        assert!(server.exists(written));
        assert_eq!(server.sessions().len(), 0);
    }
}

#[tokio::test]
async fn connect_outlasts_session_timeout() {
    let server = server();
    server.stop_async().await;
    let timeout = ms(200);
    let builder = Client::builder()
        .session_timeout(timeout)
        .connect_timeout(LONG);
    let servers = server.connect_string();
    let mut connecting = tokio::spawn(async move { builder.connect(&servers).await });
    // Session timeouts, which have to pass.
    assert!(
        tokio::time::timeout(3 * timeout, &mut connecting)
            .await
            .is_err(),
        "it gave up"
    );
    server.restart_async().await.unwrap();
    let client = within("the session", connecting).await.unwrap().unwrap();
    until_state(&client, ConnectionState::Connected).await;
}

/// The ids of all sessions that there were, in order.
fn sessions_established(server: &Server) -> Vec<i64> {
    let mut ids = Vec::new();
    for entry in server
        .log()
        .iter()
        .filter(|entry| (entry.op, entry.kind) == (Op::Connect, LogKind::Applied))
    {
        if entry.error == 0 && !ids.contains(&entry.session) {
            ids.push(entry.session);
        }
    }
    ids
}

/// How long a server may be silent is an eighth of the session timeout, of the one that was
/// granted; the library fixes it when it connects, by the one that was asked for.
// Shows: server-timeout
#[tokio::test]
async fn replaces_session_of_other_timeout() {
    let server = server();
    // The server timeout would be 5 s with 40 s; with the 20 s that are granted it is 2.5 s.
    let builder = Client::builder()
        .session_timeout(2 * LONG)
        .connect_timeout(3 * LONG);
    let client = builder.connect(&server.connect_string()).await.unwrap();
    assert_eq!(client.session_timeout(), Some(LONG));
    let id = session(&client);
    let established = sessions_established(&server);
    assert_eq!((established.len(), established[1]), (2, id));
    // The other is closed, not left to expire.
    until(&server, "the session", |view| view.sessions().len() == 1).await;
    assert_eq!(server.counters().requests(Op::CloseSession), 1);
    until_state(&client, ConnectionState::Connected).await;
    let silent = Instant::now();
    server.stall(id, Direction::Both);
    let cut = |view: View<'_>| view.sessions().iter().all(|session| !session.connected);
    until(&server, "the end of the connection", cut).await;
    assert!(silent.elapsed() < ms(4_500), "{:?}", silent.elapsed());
    server.resume(id);
    // The doubled timeout is used for the next session.
    server.expire_session(id);
    hold(&client).await.release().await.unwrap();
    assert_eq!(sessions_established(&server).len(), 3);
}

/// The process ends after that, and no task would close the session.
// Shows: close-confirmed
#[tokio::test]
async fn close_waits_for_replaced_session() {
    let server = server();
    let gate = server.hold_request(Match::op(Op::CloseSession));
    let builder = Client::builder()
        .session_timeout(2 * LONG)
        .connect_timeout(3 * LONG);
    let client = builder.connect(&server.connect_string()).await.unwrap();
    within("the end of the first", gate.wait_hit()).await;
    let (established, id) = (sessions_established(&server), session(&client));
    assert_eq!((established.len(), established[1]), (2, id));
    let mut closing = tokio::spawn(async move { client.close().await });
    until_ended(&server, id).await;
    assert!(
        tokio::time::timeout(ms(500), &mut closing).await.is_err(),
        "{:?}",
        server.sessions()
    );
    gate.release();
    within("the close", closing).await.unwrap().unwrap();
    assert_eq!(server.sessions().len(), 0);
}

/// The client gives its session up when no server has answered for 7/5 of its timeout; the servers,
/// which have been stopped for as long, keep it until then after they are started.
// Shows: close-confirmed
#[tokio::test]
async fn close_confirms_no_abandoned_session() {
    for before in [ConnectionState::Suspended, ConnectionState::Lost] {
        let server = server();
        server.freeze_expiry(true);
        let builder = patient().retry_policy(RetryPolicy::n_times(0, Duration::ZERO));
        let client = brief_client(&server, builder).await;
        let guard = hold(&client).await;
        server.stop_async().await;
        within("the loss", guard.lost()).await;
        if before == ConnectionState::Lost {
            until_state(&client, before).await;
        }
        let closed = within("the close", client.close()).await;
        assert!(
            matches!(closed, Err(ReleaseError::SessionNotClosed { .. })),
            "{before:?}: {closed:?}"
        );
        server.restart_async().await.unwrap();
        assert!(server.exists(&guard.node()), "it keeps others out");
    }
}

/// The node of a guard that was dropped in the meantime still exists.
// Shows: flush
#[tokio::test]
async fn flush_waits_for_abandoned_session() {
    for is_closed in [false, true] {
        let server = server();
        server.freeze_expiry(true);
        let client = brief_client(&server, patient()).await;
        let guard = hold(&client).await;
        let node = guard.node();
        server.stop_async().await;
        until_state(&client, ConnectionState::Lost).await;
        drop(guard);
        if is_closed {
            within("the close", client.close()).await.unwrap_err();
            let flushed = within("the flush", client.flush(SOON)).await;
            assert!(
                matches!(flushed, Err(ReleaseError::SessionNotClosed { .. })),
                "{flushed:?}"
            );
            continue;
        }
        let flushed = within("the flush", client.flush(ms(10))).await;
        assert!(
            matches!(flushed, Err(ReleaseError::TimedOut { nodes: 1, .. })),
            "{flushed:?}"
        );
        server.restart_async().await.unwrap();
        within("the flush", client.flush(SOON)).await.unwrap();
        assert!(!server.exists(&node));
    }
}

/// The servers come back: they would keep its nodes for a session timeout more.
// Shows: close-confirmed
#[tokio::test]
async fn abandoned_session_is_closed_after_outage() {
    for is_closed in [false, true] {
        let server = server();
        server.freeze_expiry(true);
        let client = brief_client(&server, patient()).await;
        let (guard, id) = (hold(&client).await, session(&client));
        server.stop_async().await;
        until_state(&client, ConnectionState::Lost).await;
        let closing = is_closed.then(|| {
            tokio::spawn({
                let client = client.clone();
                async move { client.close().await }
            })
        });
        server.restart_async().await.unwrap();
        until_ended(&server, id).await;
        assert!(!server.exists(&guard.node()));
        match closing {
            Some(closing) => within("the close", closing).await.unwrap().unwrap(),
            // The next session works.
            None => hold(&client).await.release().await.unwrap(),
        }
    }
}

/// Servers that let a client end its earlier session again are asked at once when a close waits for
/// the answer, and not at the end of the pause.
// Shows: close-confirmed
#[tokio::test]
async fn close_ends_the_retry_pause() {
    let server = server();
    server.freeze_expiry(true);
    let client = brief_client(&server, patient()).await;
    let (guard, id) = (hold(&client).await, session(&client));
    server.stop_async().await;
    until_state(&client, ConnectionState::Lost).await;
    let refused = server.fail(
        Match::op(Op::Connect).session(id).always(),
        RUNTIME_INCONSISTENCY,
    );
    server.restart_async().await.unwrap();
    within("the first try", refused.wait_hit()).await;
    // The tries last for T, and the pause for 2T after them: its middle, where no event is.
    tokio::time::sleep(2 * T).await;
    refused.remove();
    let is_there = || server.sessions().iter().any(|session| session.id == id);
    assert!(is_there(), "it has been ended already");
    let asked = Instant::now();
    within("the close", client.close()).await.unwrap();
    assert!(asked.elapsed() < T / 2, "{:?}", asked.elapsed());
    assert!(!is_there() && !server.exists(&guard.node()));
}

/// The close begins before the client gives the session up, and there is a server after that.
// Shows: close-confirmed
#[tokio::test]
async fn close_continues_when_session_is_abandoned() {
    let server = server();
    server.freeze_expiry(true);
    let client = brief_client(&server, patient()).await;
    let guard = hold(&client).await;
    server.stop_async().await;
    within("the loss", guard.lost()).await;
    // The lease ends after 2/3 of the session timeout. The client gives up after 7/5 of it.
    tokio::time::sleep(T / 2).await;
    let closing = tokio::spawn(async move { client.close().await });
    // The client has given up then.
    tokio::time::sleep(T / 2).await;
    server.restart_async().await.unwrap();
    within("the close", closing).await.unwrap().unwrap();
    assert!(!server.exists(&guard.node()));
}

/// A server that was reached again has said so, as one does after most outages that cost a session.
// Shows: close-confirmed
#[tokio::test]
async fn close_confirms_session_reported_expired() {
    let server = server();
    let client = brief_client(&server, patient()).await;
    let (guard, id) = (hold(&client).await, session(&client));
    server.stop_async().await;
    within("the loss", guard.lost()).await;
    let closing = tokio::spawn(async move { client.close().await });
    // More than a session timeout passes since the loss of the connection.
    tokio::time::sleep(T / 2).await;
    assert!(server.expire_session(id));
    server.restart_async().await.unwrap();
    within("the close", closing).await.unwrap().unwrap();
}

/// A server that was asked has said that it is gone.
// Shows: close-confirmed
#[tokio::test]
async fn close_confirms_session_found_gone() {
    let server = server();
    let builder = patient().retry_policy(RetryPolicy::n_times(0, Duration::ZERO));
    let client = client_with(&server, builder).await;
    let guard = hold(&client).await;
    let next = server.fail(
        Match::op(Op::Connect).nth(1).always(),
        RUNTIME_INCONSISTENCY,
    );
    server.expire_session(session(&client));
    within("the loss", guard.lost()).await;
    within("the next session", next.wait_hit()).await;
    within("the close", client.close()).await.unwrap();
}

#[tokio::test]
async fn keeps_session_if_timeout_fits() {
    let server = server();
    // A third of the connect timeout, whichever of the two it is.
    let builder = Client::builder()
        .session_timeout(2 * LONG)
        .connect_timeout(ms(7_000));
    let client = builder.connect(&server.connect_string()).await.unwrap();
    assert_eq!(client.session_timeout(), Some(LONG));
    assert_eq!(sessions_established(&server).len(), 1);
}

/// The only server gives no second session.
#[tokio::test]
async fn keeps_session_that_cannot_be_replaced() {
    let server = Server::builder()
        .tick(ms(50))
        .max_session_timeout(ms(4_000))
        .start()
        .unwrap();
    let second = server.fail(
        Match::op(Op::Connect).nth(1).always(),
        RUNTIME_INCONSISTENCY,
    );
    // The server timeout would be 1 s with 20 s; with the 4 s that are granted it is half a second.
    let builder = Client::builder()
        .session_timeout(LONG)
        .connect_timeout(ms(3_000));
    let client = within("the session", builder.connect(&server.connect_string()))
        .await
        .unwrap();
    assert!(!second.hits().is_empty());
    // Without the fault, the connection could come back after a pause.
    second.remove();
    hold(&client).await.release().await.unwrap();
    assert_eq!(sessions_established(&server), [session(&client)]);
}

/// Writes are answered, but later than after the half second that a server may be silent: each
/// connection is cut before that.
// Shows: server-timeout
#[tokio::test]
async fn client_recovers_from_slow_writes() {
    let server = server();
    let timeout = ms(3_000);
    let policy = RetryPolicy::forever(ms(50));
    let builder = Client::builder()
        .session_timeout(timeout)
        .retry_policy(policy);
    let client = connect_as(builder, &server).await;
    let guard = hold(&client).await;
    for write in [Op::Create, Op::Delete, Op::Multi] {
        server.delay_reply(Match::op(write).always(), ms(800));
    }
    assert_eq!(
        within("the loss", guard.lost()).await.reason(),
        LostReason::LeaseExpired
    );
    drop(guard);
    hold(&client).await.release().await.unwrap();
    // With twice the server timeout, a second, the write is answered.
    assert_eq!(sessions_established(&server).len(), 2);
}

/// A client that has no lock, and so no heartbeat, has writes all the same.
// Shows: server-timeout
#[tokio::test]
async fn persistent_node_recovers_from_slow_writes() {
    let server = server();
    let builder = Client::builder()
        .session_timeout(ms(3_000))
        .retry_policy(RetryPolicy::forever(ms(50)));
    let client = connect_as(builder, &server).await;
    server.create("/services", "").unwrap();
    for write in [Op::Create, Op::Delete, Op::Multi, Op::SetData] {
        server.delay_reply(Match::op(write).always(), ms(800));
    }
    let node = PersistentNode::new(&client, "/services/web", "").unwrap();
    within("the creation", node.wait_for_initial_create(SOON))
        .await
        .unwrap();
    within("the end", node.close()).await.unwrap();
    assert!(!server.exists("/services/web"));
}

/// A session is established by a write too. The sessions that are tried get twice the server
/// timeout after each failed try; a session that could not be established with the usual timeout
/// must not be given up for that.
#[tokio::test]
async fn session_starts_despite_slow_writes() {
    let server = server();
    let builder = Client::builder()
        .session_timeout(ms(3_000))
        .connect_timeout(ms(1_600))
        .retry_policy(RetryPolicy::forever(ms(50)));
    let client = connect_as(builder, &server).await;
    hold(&client).await.release().await.unwrap();
    let first = session(&client);
    for write in [Op::Connect, Op::Create, Op::Delete, Op::Multi] {
        server.delay_reply(Match::op(write).always(), ms(800));
    }
    server.expire_session(first);
    hold(&client).await.release().await.unwrap();
    assert_ne!(session(&client), first);
}

/// Each connection is cut at its second write, and lasts longer than a server may be silent. The
/// first is the beat that is sent as soon as there is a connection.
// Shows: server-timeout
#[tokio::test]
async fn answered_writes_keep_the_session() {
    let timeout = ms(6_000);
    let server = Server::builder()
        .tick(ms(100))
        .max_session_timeout(timeout)
        .start()
        .unwrap();
    let client = connect_as(Client::builder().session_timeout(timeout), &server).await;
    let guard = hold(&client).await;
    let id = session(&client);
    let began = Instant::now();
    while began.elapsed() < timeout * 3 / 2 {
        // The beat after the one that was answered.
        let cut = server.drop_reply(Match::op(Op::Multi).session(id).nth(1), Loss::Stall);
        tokio::select! {
            () = within("the request", cut.wait_hit()) => {}
            lost = guard.lost() => panic!("{lost} after {:?}", began.elapsed()),
        }
        assert_eq!(client.session_id(), Some(id));
        assert!(server.exists(&guard.node()));
    }
}

#[tokio::test]
async fn dropped_connect_leaves_no_session() {
    let server = server();
    server.freeze_expiry(true);
    let gate = server.hold_reply(Match::op(Op::Connect));
    let builder = Client::builder().session_timeout(ms(300));
    let mut connecting = task::spawn(builder.connect("127.0.0.1:1"));
    assert_pending!(connecting.poll());
    drop(connecting);
    let builder = Client::builder().session_timeout(ms(300));
    let servers = server.connect_string();
    let connecting = tokio::spawn(async move { builder.connect(&servers).await });
    within("the request", gate.wait_hit()).await;
    assert!(!server.sessions().is_empty());
    connecting.abort();
    assert!(connecting.await.unwrap_err().is_cancelled());
    gate.release();
    server.freeze_expiry(false);
    until(&server, "the end of all sessions", |view| {
        view.sessions().is_empty()
    })
    .await;
}
