//! What was wrong once and must stay right: each test is one behaviour that an earlier version did not have.
//!
//! Against the in-process server and its faults: what has to do with threads, runtimes or sockets. The others run in
//! virtual time: `simulation/tests/scenarios/regressions.rs`. The session timeouts are as short as a busy machine allows;
//! every wait is for an event, with a bound that only a failure reaches. Where nothing may happen for a period,
//! the bound is the period.
#![expect(clippy::unwrap_used, reason = "a test")]

use std::net::TcpListener;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use test_support::in_process::{DIRECTORY, hold, mutex, until};
use test_support::{block_on, within};
use zookeeper_client as zk;
use zookeeper_recipes::{
    Acl, AcquireError, Client, ClientBuilder, ConnectError, ConnectionState, InspectError, InterProcessMutex,
    LostReason, Permissions, ReleaseError, TryLockError,
};
use zookeeper_test_server::{Match, Op, Server};

/// A lease lasts two thirds of it, and for half of it after the last beat: longer than a busy machine pauses.
const T: Duration = Duration::from_millis(4_500);
const LONG: Duration = Duration::from_secs(20);
const THROTTLED: i32 = -127;

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn server() -> Server {
    let tick = ms(50);
    Server::builder().tick(tick).min_session_timeout(tick).max_session_timeout(LONG).start().unwrap()
}

async fn client(server: &Server) -> Client {
    client_with(server, patient()).await
}

/// The options of a client that waits for the answers of a busy machine.
fn patient() -> ClientBuilder {
    Client::builder().connect_timeout(LONG)
}

/// A client whose session survives a busy machine, with whatever else is set. Needs no timers here.
async fn client_with(server: &Server, builder: ClientBuilder) -> Client {
    builder.session_timeout(LONG).connect(&server.connect_string()).await.unwrap()
}

/// A session to be borrowed.
async fn owned_session(server: &Server, timeout: Duration) -> zk::Client {
    // Several times over, so that the library does not pause before it reconnects.
    let servers = vec![server.connect_string(); 15].join(",");
    let mut tries = 0..5;
    loop {
        match zk::Client::connector().with_session_timeout(timeout).connect(&servers).await {
            // On a busy machine it may have expired before it is known here.
            Err(zk::Error::Timeout | zk::Error::SessionExpired) if tries.next().is_some() => {}
            connected => return connected.unwrap(),
        }
    }
}

fn mutex_at(client: &Client, path: &str) -> InterProcessMutex {
    InterProcessMutex::new(client, path).unwrap()
}

/// Its runtime goes while what could not be deleted in time is still asked for.
#[test]
fn a_borrowed_session_is_not_kept_by_a_guard_once_its_clients_runtime_is_gone() {
    let server = server();
    let (owners, clients) =
        (tokio::runtime::Runtime::new().unwrap(), tokio::runtime::Runtime::new().unwrap());
    let owner = owners.block_on(owned_session(&server, T));
    let guard = clients.block_on(async {
        let client = Client::from_session(owner.clone()).unwrap();
        let guard = hold(&client).await;
        server.fail(Match::op(Op::Delete).always(), THROTTLED);
        let closed = within("the close", client.close()).await;
        assert!(matches!(closed, Err(ReleaseError::SessionNotClosed { .. })), "{closed:?}");
        guard
    });
    drop((clients, owner));
    owners.block_on(until(&server, "the end of all sessions", |view| view.sessions().is_empty()));
    assert!(!guard.is_held());
}

/// The two at the same moment, on different threads.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_release_while_a_borrowed_session_is_given_back_is_no_deletion_by_another_client() {
    let server = server();
    let owner = owned_session(&server, LONG).await;
    for round in 0..100_u32 {
        let client = Client::from_session(owner.clone()).unwrap();
        let paths: Vec<String> = (0..8).map(|lock| format!("{DIRECTORY}/{lock}")).collect();
        let mut guards = Vec::new();
        for path in &paths {
            guards.push(mutex_at(&client, path).lock().await.unwrap());
        }
        let releases: Vec<_> =
            guards.into_iter().map(|guard| tokio::spawn(async move { guard.release().await })).collect();
        for _ in 0..round % 8 {
            tokio::task::yield_now().await;
        }
        within("the close", client.close()).await.unwrap();
        for release in releases {
            // In time, or after the client was closed.
            match within("the release", release).await.unwrap() {
                Ok(()) => {}
                Err(ReleaseError::Lost(lost)) if lost.reason() == LostReason::Closed => {}
                Err(error) => panic!("round {round}: {error:?}"),
            }
        }
        for path in &paths {
            assert_eq!(server.children(path), [] as [&str; 0], "round {round}");
        }
    }
}

/// Attempts that begin at the moment when the client on a borrowed session is closed, on other threads.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn attempts_that_begin_while_a_borrowed_session_is_given_back_leave_no_node() {
    let server = server();
    let owner = owned_session(&server, LONG).await;
    server.create(DIRECTORY, "").unwrap();
    for round in 0..200_u32 {
        let client = Client::from_session(owner.clone()).unwrap();
        let mutex = mutex(&client);
        let attempts: Vec<_> = (0..4).map(|_| tokio::spawn(mutex.lock())).collect();
        for _ in 0..round % 8 {
            tokio::task::yield_now().await;
        }
        within("the close", client.close()).await.unwrap();
        for attempt in attempts {
            drop(within("the answer", attempt).await.unwrap());
        }
        // Whatever was sent in the session is decided once this is answered.
        within("the sync", owner.sync("/")).await.unwrap();
        assert_eq!(server.children(DIRECTORY), [] as [&str; 0], "round {round}");
    }
}

#[test]
fn close_answers_when_the_runtime_of_a_borrowed_session_has_gone() {
    let server = server();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (client, mutex) = runtime.block_on(async {
        let client = Client::from_session(owned_session(&server, T).await).unwrap();
        let mutex = mutex(&client);
        mutex.lock().await.unwrap().release().await.unwrap();
        (client, mutex)
    });
    runtime.shutdown_timeout(LONG);
    // There was no answer that the nodes are gone.
    let closed = block_on(client.close());
    assert!(matches!(closed, Err(ReleaseError::SessionNotClosed { .. })), "{closed:?}");
    assert_eq!(client.state(), ConnectionState::Closed);
    assert!(matches!(block_on(mutex.lock()), Err(AcquireError::Closed { .. })));
    assert!(matches!(block_on(mutex.participants()), Err(InspectError::Closed { .. })));
}

/// Everything that looks after a lock needs timers; tokio says that there are none by a panic.
#[test]
fn a_borrowed_session_on_a_runtime_without_timers_is_refused() {
    let server = server();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let owner = owned_session(&server, LONG).await;
        let error = Client::from_session(owner.clone()).unwrap_err();
        assert!(matches!(error, ConnectError::NoRuntime), "{error:?}");
        assert!(!owner.state().is_terminated());
    });
}

/// What looks after the lock runs in the runtime that stands still; what tells its loss does not.
#[test]
fn a_holder_in_a_borrowed_session_is_told_in_time_while_the_runtime_is_blocked() {
    let server = server();
    // Three seconds are left between the loss and the end of the session.
    let session_timeout = 2 * T;
    let (holder, held) = mpsc::channel();
    let (unblock, blocked) = mpsc::channel::<()>();
    let servers = server.connect_string();
    let owner = thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let connector = zk::Client::connector().with_session_timeout(session_timeout);
            let client = Client::from_session(connector.connect(&servers).await.unwrap()).unwrap();
            holder.send(hold(&client).await).unwrap();
            // An error: the test has failed.
            let _ = blocked.recv();
        });
    });
    let guard = held.recv().unwrap();
    assert_eq!(block_on(guard.lost()).reason(), LostReason::LeaseExpired);
    assert!(server.exists(&guard.node()), "it could have been granted to another before");
    unblock.send(()).unwrap();
    owner.join().unwrap();
}

/// The runtime is dropped between the call that spawns the client's tasks and their first poll.
#[test]
fn close_answers_when_the_runtime_of_a_borrowed_session_has_gone_at_once() {
    let server = server();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (client, mutex) = runtime.block_on(async {
        let client = Client::from_session(owned_session(&server, T).await).unwrap();
        let mutex = mutex(&client);
        (client, mutex)
    });
    drop(runtime);
    let closed = block_on(client.close());
    assert!(matches!(closed, Err(ReleaseError::SessionNotClosed { .. })), "{closed:?}");
    assert_eq!((client.state(), client.session_id()), (ConnectionState::Closed, None));
    assert!(matches!(block_on(mutex.lock()), Err(AcquireError::Closed { .. })));
}

#[tokio::test]
async fn connect_gives_up_at_its_timeout_not_at_the_sessions() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    // Connections come about, and no server ever answers.
    let builder = Client::builder().session_timeout(LONG).connect_timeout(ms(200));
    let started = Instant::now();
    let error = builder.connect(&address).await.unwrap_err();
    assert!(matches!(error, ConnectError::TimedOut { .. }), "{error}");
    assert!(started.elapsed() < LONG / 2);
}

/// The client library tries the addresses in random order, and those of a short list several times over.
#[tokio::test]
async fn a_server_that_hangs_does_not_use_up_the_time_of_the_others() {
    let server = server();
    // Connections come about, and no server ever answers.
    let hung = TcpListener::bind("127.0.0.1:0").unwrap();
    let (hung, well) = (hung.local_addr().unwrap(), server.connect_string());
    let servers = format!("{hung},{well},{well}");
    let connects: Vec<_> = (0..30)
        .map(|_| {
            let servers = servers.clone();
            // However often in a row the one that hangs comes first: 5 of 15 addresses, 1.5 s for each.
            let builder = Client::builder().session_timeout(ms(12_000)).connect_timeout(ms(10_000));
            tokio::spawn(async move { builder.connect(&servers).await })
        })
        .collect();
    for connect in connects {
        within("the session", connect).await.unwrap().unwrap();
    }
}

#[test]
fn an_acl_in_a_log_does_not_show_the_hash_of_a_password() {
    let acl = Acl::new("digest", "shop:aGFzaA==", Permissions::READ);
    let shown = format!("{acl:?} {:?}", Client::builder().acl([acl.clone()]).auth("digest", "shop:secret"));
    assert!(shown.contains("shop"), "{shown}");
    assert!(!shown.contains("aGFzaA") && !shown.contains("secret"), "{shown}");
}

/// Every call that waits, with nothing of the caller's executor but its polls.
async fn everything(server: &Server, client: &Client) {
    let mutex = mutex(client);
    let guard = mutex.lock().await.unwrap();
    assert_eq!(mutex.participants().await.unwrap().len(), 1);
    assert!(matches!(mutex.acquire(ms(500)).await, Err(AcquireError::TimedOut { .. })));
    assert!(matches!(mutex.try_lock().await, Err(TryLockError::WouldBlock { .. })));
    assert_eq!(guard.while_held(async { 7 }).await.unwrap(), 7);
    guard.release().await.unwrap();
    drop(mutex.acquire(LONG).await.unwrap());
    client.flush(LONG).await.unwrap();
    assert_eq!(server.children(DIRECTORY).len(), 0);
    let lost = mutex.try_lock().await.unwrap().lost();
    client.close().await.unwrap();
    assert_eq!(lost.await.reason(), LostReason::Closed);
}

#[test]
fn every_wait_works_without_tokio() {
    let server = server();
    block_on(async {
        let client = client(&server).await;
        everything(&server, &client).await;
    });
}

#[test]
fn every_wait_works_on_a_runtime_without_timers() {
    let server = server();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let client = client(&server).await;
        everything(&server, &client).await;
    });
}

#[tokio::test]
async fn connect_strings_that_cannot_mean_what_they_say_are_refused() {
    let server = server();
    let address = server.connect_string();
    let mut bad = vec![format!("{address}/ns,{address}"), format!("{address},,{address}"), String::new()];
    if cfg!(not(feature = "tls")) {
        bad.push(format!("tcp+tls://{address}"));
    }
    for servers in bad {
        let error = Client::connect(&servers).await.unwrap_err();
        assert!(matches!(error, ConnectError::InvalidConnectString { .. }), "{servers}: {error}");
        assert!(!error.is_retryable());
    }
    assert_eq!(server.counters().requests(Op::Connect), 0);
}
