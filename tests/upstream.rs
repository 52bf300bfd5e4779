//! The statements of `docs/upstream` about `zookeeper-client` 0.11.2, on a server in the process.
//! If a test fails after an update of that library, its page can be deleted, and so can the
//! workaround.
//!
//! With a patched build (`docs/upstream/patched.sh`), `UPSTREAM_PATCHES` names the patches, and the
//! tests expect the repair.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(
    clippy::disallowed_methods,
    reason = "what is wrong with `Client::lock` is what this shows"
)]

use std::net::{Ipv4Addr, SocketAddr};

use test_support::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, mpsc};
use zookeeper_client as zk;

/// How long a test waits to show that an event does not occur.
const A_WHILE: Duration = Duration::from_millis(500);

/// How long the relay holds the server's answers.
const DELAY: Duration = Duration::from_millis(20);

/// Returns whether this build lacks all of these patches, so that the tests see the library as it
/// was published.
fn without(patches: &[&str]) -> bool {
    let applied = std::env::var("UPSTREAM_PATCHES").unwrap_or_default();
    !applied
        .split([',', ' '])
        .any(|applied| patches.contains(&applied))
}

async fn connect(servers: &str) -> zk::Client {
    within("a session", zk::Client::connect(servers))
        .await
        .unwrap()
}

/// Returns a server, and a client whose session ends exactly this long after its last message.
async fn impatient(session_timeout: Duration) -> (Server, zk::Client) {
    let server = Server::builder()
        .tick(session_timeout / 20)
        .start()
        .unwrap();
    let connector = zk::Client::connector().with_session_timeout(session_timeout);
    let client = within("a session", connector.connect(&server.connect_string()))
        .await
        .unwrap();
    assert_eq!(client.session_timeout(), session_timeout);
    (server, client)
}

/// Waits for the loss of a connection. A state watcher keeps only the latest state: after a quick
/// reconnect it reports a change, but no `Disconnected`.
async fn lost_connection(states: &mut zk::StateWatcher) -> zk::SessionState {
    let state = within("the cut", states.changed()).await;
    assert!(!state.is_terminated(), "{state}");
    state
}

fn open() -> zk::Acls<'static> {
    zk::Acls::anyone_all()
}

/// When each message of a client arrived at a relay.
type Arrivals = Arc<Mutex<Vec<Instant>>>;

/// A relay that holds each answer of the server for [`DELAY`], as a network would, for one
/// connection.
async fn relay(server: SocketAddr) -> (String, Arrivals) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let arrivals = Arrivals::default();
    let noted = Arc::clone(&arrivals);
    tokio::spawn(async move {
        let (client, _) = listener.accept().await.unwrap();
        let upstream = TcpStream::connect(server).await.unwrap();
        client.set_nodelay(true).unwrap();
        upstream.set_nodelay(true).unwrap();
        let (mut from_client, mut to_client) = client.into_split();
        let (mut from_server, mut to_server) = upstream.into_split();
        let (answers, mut held) = mpsc::unbounded_channel::<(tokio::time::Instant, Vec<u8>)>();
        tokio::spawn(async move {
            let mut buffer = [0; 4096];
            while let Ok(n @ 1..) = from_server.read(&mut buffer).await {
                drop(answers.send((tokio::time::Instant::now() + DELAY, buffer[..n].to_vec())));
            }
        });
        tokio::spawn(async move {
            while let Some((due, answer)) = held.recv().await {
                // The network's delay is under test.
                tokio::time::sleep_until(due).await;
                drop(to_client.write_all(&answer).await);
            }
        });
        let mut buffer = [0; 4096];
        while let Ok(n @ 1..) = from_client.read(&mut buffer).await {
            noted.lock().unwrap().push(Instant::now());
            to_server.write_all(&buffer[..n]).await.unwrap();
        }
    });
    (address, arrivals)
}

/// Sends two requests at once, five times, and returns how often the second arrived late: only when
/// the first was answered.
async fn flights_held(server: SocketAddr) -> usize {
    let (address, arrivals) = relay(server).await;
    let client = connect(&address).await;
    // TCP acknowledges the first segments of a connection at once, and later ones with the answer.
    for _ in 0..20 {
        client.check_stat("/").await.unwrap();
    }
    let mut held = 0;
    for _ in 0..5 {
        arrivals.lock().unwrap().clear();
        let (first, second) = (client.check_stat("/"), client.check_stat("/"));
        first.await.unwrap();
        second.await.unwrap();
        let arrivals = arrivals.lock().unwrap();
        let apart = arrivals[arrivals.len() - 1].duration_since(arrivals[0]);
        held += usize::from(apart > DELAY / 2);
    }
    held
}

#[tokio::test]
async fn second_request_waits_for_first_answer() {
    let server = Server::start().unwrap();
    let mut held = Vec::new();
    // The delay does not affect every connection, but depends on a memory address
    // (docs/upstream/one-write.patch). On a machine that is slower than TCP's delayed
    // acknowledgement, all data is acknowledged at once, as on a new connection.
    for _ in 0..20 {
        let connections: JoinSet<_> = (0..5).map(|_| flights_held(server.addr())).collect();
        held = within("the flights", connections.join_all()).await;
        if held.iter().any(|&held| held > 0) {
            break;
        }
    }
    let some = held.iter().any(|&held| held > 0);
    assert_eq!(some, without(&["nodelay", "one-write"]), "{held:?}");
}

/// How often the thread of `async-io` has waited so far; `None` if there is no such thread.
#[cfg(target_os = "linux")]
fn waits_of_the_reactor() -> Option<u64> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let statuses =
        tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("status")).ok());
    let mut reactors = statuses.filter(|status| status.starts_with("Name:\tasync-io\n"));
    let waits = reactors
        .next()?
        .lines()
        .find_map(|l| l.strip_prefix("voluntary_ctxt_switches:"))?
        .trim()
        .parse();
    Some(waits.unwrap())
}

/// Runs the test with this name in a separate process, which runs that test alone.
#[cfg(target_os = "linux")]
fn run_alone(name: &str, test: impl Future<Output = ()>) {
    if std::env::var_os("UPSTREAM_ALONE").is_some() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        return runtime.block_on(test);
    }
    let mut alone = std::process::Command::new(std::env::current_exe().unwrap());
    let status = alone
        .args([name, "--exact"])
        .env("UPSTREAM_ALONE", "1")
        .status()
        .unwrap();
    assert!(status.success());
}

/// The reactor's thread panics like the task that starts it, and is never restarted.
#[cfg(target_os = "linux")]
#[test]
fn descriptor_shortage_ends_the_reactor() {
    use std::io::Seek;

    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    run_alone("descriptor_shortage_ends_the_reactor", async {
        let server = Server::start().unwrap();
        let servers = server.connect_string();
        let status = std::fs::File::open("/proc/self/status").unwrap();
        let threads = || {
            let mut status = &status;
            status.rewind().unwrap();
            let status = std::io::read_to_string(status).unwrap();
            let threads = status.lines().find(|line| line.starts_with("Threads:"));
            threads.unwrap().to_owned()
        };
        let all = threads();
        let before = getrlimit(Resource::Nofile);
        let none = Rlimit {
            current: Some(0),
            ..before
        };
        setrlimit(Resource::Nofile, none).unwrap();
        let short = tokio::spawn({
            let servers = servers.clone();
            async move { zk::Client::connect(&servers).await.map(drop) }
        });
        assert!(short.await.unwrap_err().is_panic());
        let ended = || (threads() == all).then_some(());
        poll_until("the end of the reactor's thread", SOON, ended).unwrap();
        setrlimit(Resource::Nofile, before).unwrap();
        // Neither timers nor sockets wake a task any more, which only time shows.
        let later = tokio::time::timeout(A_WHILE, zk::Client::connect(&servers)).await;
        assert!(later.is_err(), "the reactor works again");
        assert_eq!(waits_of_the_reactor(), None);
    });
}

#[cfg(target_os = "linux")]
#[test]
fn answers_wake_an_unconcerned_thread() {
    // In this process, no other thread wakes the reactor's thread.
    run_alone("answers_wake_an_unconcerned_thread", async {
        let server = Server::start().unwrap();
        let client = connect(&server.connect_string()).await;
        let before = waits_of_the_reactor().unwrap_or(0);
        for _ in 0..1000 {
            client.check_stat("/").await.unwrap();
        }
        let waits = waits_of_the_reactor().unwrap_or(0) - before;
        assert_eq!(
            waits > 100,
            without(&["tokio-sockets"]),
            "{waits} for 1,000 requests"
        );
    });
}

#[tokio::test]
async fn cancelled_lock_leaves_its_node() {
    let server = Server::start().unwrap();
    server.create("/lock", "").unwrap();
    let client = connect(&server.connect_string()).await;
    let gate = server.hold_reply(Match::op(Op::Create));
    let prefix = zk::LockPrefix::new_curator("/lock", "n-").unwrap();
    let cancelled = ByHand::new(client.lock(prefix, b"", open())).start();
    gate.wait_hit().await;
    drop(cancelled);
    gate.release();
    let empty = |view: View<'_>| view.children("/lock").is_empty();
    let deleted = server.wait_until(empty, A_WHILE).await;
    assert_eq!(!deleted, without(&["lock-cancel"]));
    assert_eq!(
        client.state(),
        zk::SessionState::SyncConnected,
        "the node stays as long as the session"
    );
}

#[tokio::test]
async fn dropped_clone_releases_owned_lock() {
    let server = Server::start().unwrap();
    server.create("/lock", "").unwrap();
    let client = connect(&server.connect_string()).await;
    let prefix = zk::LockPrefix::new_curator("/lock", "n-").unwrap();
    let lock = within("the lock", client.lock(prefix, b"", open()))
        .await
        .unwrap()
        .into_owned();
    drop(lock.clone());
    let gone = server.wait_until(|view| view.children("/lock").is_empty(), SOON);
    assert!(
        gone.await,
        "no process holds the lock, and `lock` still exists: {}",
        lock.lock_path()
    );
}

#[tokio::test]
async fn reconnect_loses_persistent_watch() {
    let server = Server::start().unwrap();
    server.create("/n", "").unwrap();
    let client = connect(&server.connect_string()).await;
    let mut watcher = within(
        "the watch",
        client.watch("/n", zk::AddWatchMode::Persistent),
    )
    .await
    .unwrap();
    assert!(server.cut(client.session_id().0, Cut::Fin));
    let mut next = async || loop {
        let event = watcher.changed().await;
        if event.event_type != zk::EventType::Session
            || event.session_state == zk::SessionState::SyncConnected
        {
            return event.event_type;
        }
    };
    assert_eq!(
        within("the connection", next()).await,
        zk::EventType::Session
    );
    server.set_data("/n", "new").unwrap();
    let told = tokio::time::timeout(A_WHILE, next()).await;
    assert_eq!(told.is_err(), without(&["set-watches"]), "{told:?}");
}

#[tokio::test]
async fn too_many_watches_end_the_session() {
    let (server, client) = impatient(Duration::from_secs(2)).await;
    let path = |n| format!("/{}-{n:04}", "x".repeat(100));
    let mut watchers = Vec::new();
    for n in 0..1500 {
        watchers.push(client.check_and_watch_stat(&path(n)).await.unwrap());
    }
    let mut states = client.state_watcher();
    assert!(server.cut(client.session_id().0, Cut::Fin));
    let mut seen = vec![lost_connection(&mut states).await];
    let settled = async {
        // A working watch proves that the connection lasts.
        while !client.state().is_terminated() && client.check_stat("/").await.is_err() {
            seen.push(states.changed().await);
        }
        (client.state().is_terminated(), seen)
    };
    let (ended, seen) = within("an end of the reconnects", settled).await;
    assert_eq!(ended, without(&["set-watches"]), "{seen:?}");
    drop(watchers);
}

#[tokio::test]
async fn oversized_request_looks_like_disconnect() {
    let server = Server::start().unwrap();
    let client = connect(&server.connect_string()).await;
    let options = zk::CreateMode::Persistent.with_acls(open());
    let mut states = client.state_watcher();
    let error = within(
        "the answer",
        client.create("/big", &vec![0; 2 << 20], &options),
    )
    .await
    .unwrap_err();
    assert!(
        matches!(error, zk::Error::ConnectionLoss | zk::Error::Custom(_)),
        "{error:?}"
    );
    lost_connection(&mut states).await;
}

#[test]
fn watcher_panics_when_runtime_ends() {
    let server = Server::start().unwrap();
    let runtime = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
    };
    let (of_the_session, another) = (runtime(), runtime());
    let (client, watcher) = of_the_session.block_on(async {
        let client = connect(&server.connect_string()).await;
        let (_, watcher) = client.check_and_watch_stat("/n").await.unwrap();
        (client, watcher)
    });
    drop(of_the_session);
    let ended = another.block_on(async { tokio::spawn(watcher.changed()).await });
    assert!(ended.unwrap_err().is_panic());
    assert_eq!(
        client.state(),
        zk::SessionState::SyncConnected,
        "of a session that no task serves"
    );
}

/// Answers a connect with this session, and everything else with success, until the client closes.
async fn answer_as(session: i64, mut stream: TcpStream) -> std::io::Result<()> {
    let mut connected = false;
    loop {
        let length = stream.read_u32().await?;
        let mut frame = vec![0; usize::try_from(length).unwrap()];
        stream.read_exact(&mut frame).await?;
        let answer = if std::mem::replace(&mut connected, true) {
            [&frame[..4], &[0; 12]].concat()
        } else {
            let (timeout, password) = (10_000_i32, [7; 16]);
            [
                &[0; 4][..],
                &timeout.to_be_bytes(),
                &session.to_be_bytes(),
                &[0, 0, 0, 16],
                &password,
                &[0],
            ]
            .concat()
        };
        stream
            .write_u32(u32::try_from(answer.len()).unwrap())
            .await?;
        stream.write_all(&answer).await?;
    }
}

#[tokio::test]
async fn another_session_passes_for_the_same() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let cut = Arc::new(Notify::new());
    let told = Arc::clone(&cut);
    tokio::spawn(async move {
        for session in 1.. {
            let (stream, _) = listener.accept().await.unwrap();
            tokio::select! {
                _ = answer_as(session, stream) => {}
                () = told.notified() => {}
            }
        }
    });
    let client = connect(&address).await;
    let mut states = client.state_watcher();
    cut.notify_one();
    let mut state = lost_connection(&mut states).await;
    while state == zk::SessionState::Disconnected {
        state = within("a state", states.changed()).await;
    }
    assert_eq!(
        state,
        zk::SessionState::SyncConnected,
        "no end of session 1"
    );
    assert_eq!(
        client.session_id(),
        zk::SessionId(1),
        "though the server speaks of session 2"
    );
}

#[tokio::test]
async fn events_hide_an_unanswered_ping() {
    let (server, client) = impatient(Duration::from_secs(5)).await;
    server.create("/n", "").unwrap();
    let mut watcher = within(
        "the watch",
        client.watch("/n", zk::AddWatchMode::Persistent),
    )
    .await
    .unwrap();
    let mut states = client.state_watcher();
    let id = client.session_id().0;
    let started = Instant::now();
    assert!(server.stall(id, Direction::ToServer));
    // A client should wait 2/5 of the session timeout for an answer. The events end with the
    // session.
    let events = async {
        while server.sessions().iter().any(|session| session.id == id) {
            server.set_data("/n", "").unwrap();
            watcher.changed().await;
        }
    };
    let state = tokio::select! {
        biased;
        state = states.changed() => state,
        () = events => return,
    };
    let apart = started.elapsed();
    assert!(
        apart > client.session_timeout() * 4 / 5,
        "{state} after {apart:?}"
    );
}

#[tokio::test]
async fn mkdir_goes_on_while_others_delete() {
    let server = Server::start().unwrap();
    let client = connect(&server.connect_string()).await;
    // The fault has the effect of deleting the directory above before each create.
    let _gone = server.fail(Match::op(Op::Create).path("/a/b/c").always(), -101);
    let creates = async {
        let many = |view: View<'_>| view.counters().requests(Op::Create) > 100;
        assert!(server.wait_until(many, SOON).await, "`mkdir` has ended");
    };
    let options = zk::CreateMode::Persistent.with_acls(open());
    tokio::select! {
        made = client.mkdir("/a/b/c", &options) => panic!("{made:?}"),
        () = creates => {}
    }
}

/// Returns when each of the first tries reached a server that gives no session, counted from before
/// the first.
async fn tries(addresses: usize, count: usize) -> Vec<Duration> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let servers = vec![listener.local_addr().unwrap().to_string(); addresses].join(",");
    let started = Instant::now();
    let connecting = tokio::spawn(async move {
        drop(
            zk::Client::connector()
                .with_session_timeout(Duration::from_secs(60))
                .connect(&servers)
                .await,
        );
    });
    let mut tries = Vec::new();
    while tries.len() < count {
        drop(within("a try", listener.accept()).await.unwrap());
        tries.push(started.elapsed());
    }
    connecting.abort();
    tries
}

/// `Servers::repeated_list` relies on these pauses, and so does the frequency of spare connections.
/// A test in virtual time, `pauses_between_tries_are_bounded`, shows that they are not longer.
// Shows: reconnect
#[tokio::test]
async fn retry_pauses_are_as_documented() {
    // With three addresses the pauses are 0.3 s before the second pass, 0.6 s before the third, and
    // 50 ms within a pass, each a little longer at random.
    let least = [0, 0, 0, 300, 350, 450, 1_050, 1_100].map(Duration::from_millis);
    let all: JoinSet<_> = (0..5).map(|_| tries(3, least.len())).collect();
    let all = all.join_all().await;
    for tries in &all {
        assert!(
            tries.iter().zip(&least).all(|(at, least)| at >= least),
            "{tries:?}"
        );
    }
    // The pause for a long list never exceeds a second, whatever its length.
    let least = [0; 12]
        .map(Duration::from_millis)
        .into_iter()
        .chain([Duration::from_secs(1)]);
    let all: JoinSet<_> = (0..5).map(|_| tries(12, 13)).collect();
    let all = all.join_all().await;
    for tries in &all {
        assert!(
            tries
                .iter()
                .zip(least.clone())
                .all(|(at, least)| *at >= least),
            "{tries:?}"
        );
    }
}
