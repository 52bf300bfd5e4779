//! Regressions: each test shows a behaviour that an earlier version did not have.
//!
//! The tests run against the server in memory and its faults, in virtual time. The regressions that
//! need threads, runtimes or sockets are in the file of this name among the tests in real time. A
//! task that panics fails its test.

use ::simulation::scenario::tokio;
use test_support::prelude::*;

use crate::until_ended;

mod closing;
mod sessions;

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

/// Connects a client that sends heartbeats, and whose session may expire, during a test.
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
            "expected the attempt to end with its session"
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
        "expected only the create of this lock"
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
    // The predecessor's data changes, the call lists again, and the reply to the list is lost.
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

/// Creates of unknown outcome are remembered by directory, however many there are in other
/// directories.
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
    // The lease is not renewed without a held lock, so a guard that still counted would be lost
    // within this time.
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
    assert_eq!(
        server.children(OTHER).len(),
        1,
        "expected the node to be left"
    );
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
    // No deletion is carried out until its fault is removed.
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

/// Returns the ids of all sessions that were established, in order.
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
