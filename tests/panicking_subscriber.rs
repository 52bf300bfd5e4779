//! A tracing subscriber that panics once, at a line that the client logs, costs that line and
//! nothing else.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::convert::Infallible;
use std::sync::{Once, PoisonError};

use test_support::listen_to_log;
use test_support::prelude::*;
use tracing::Metadata;

const THROTTLED: i32 = -127;
const NO_AUTH: i32 = -102;

/// The event at which the subscriber panics, once.
static TRIGGER: Mutex<Option<Trigger>> = Mutex::new(None);

enum Trigger {
    /// The next event whose message, or one of whose fields, contains this text.
    About(String),
    /// The line after this number of others.
    Line(usize),
}

/// The log lines of lost locks.
static LOGGED: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// The log lines of ended sessions, even those at which the subscriber panicked.
static ENDED: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Panics at the event that a test has chosen; remembers the logged losses.
fn panic_if_asked(line: &Metadata<'_>, text: &str) {
    let mut trigger = TRIGGER.lock().unwrap_or_else(PoisonError::into_inner);
    // The reports of calls are in `tests/watching_blocked.rs`.
    let counts = line.target().starts_with("zookeeper_recipes")
        && line.target() != "zookeeper_recipes::lock";
    if text.contains("session over") {
        ENDED
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(text.to_owned());
    }
    let strikes = match &mut *trigger {
        None => false,
        Some(Trigger::About(what)) => text.contains(&*what),
        Some(Trigger::Line(0)) => counts,
        Some(Trigger::Line(before)) => {
            *before -= usize::from(counts);
            false
        }
    };
    if strikes {
        *trigger = None;
        drop(trigger);
        panic!("as the test asked for");
    }
    if text.contains("lock lost") {
        LOGGED
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(text.to_owned());
    }
}

fn trigger(trigger: Trigger) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| listen_to_log(panic_if_asked).unwrap());
    *TRIGGER.lock().unwrap_or_else(PoisonError::into_inner) = Some(trigger);
}

fn panic_at(what: &str) {
    trigger(Trigger::About(what.to_owned()));
}

fn has_panicked() -> bool {
    TRIGGER
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .is_none()
}

/// Waits until one of the texts contains `what` and one of `of`.
async fn until_among(texts: &'static Mutex<Vec<String>>, what: &'static str, of: Vec<String>) {
    let found = move || {
        let texts = texts.lock().unwrap_or_else(PoisonError::into_inner);
        let about = |text: &String| text.contains(what) && of.iter().any(|of| text.contains(of));
        texts.iter().any(about).then_some(())
    };
    let waiting = move || poll_until(what, SOON, found);
    tokio::task::spawn_blocking(waiting).await.unwrap().unwrap();
}

/// Waits until the end of a session is logged, and with it all lines before, because one thread
/// logs them in order.
async fn until_told(session: i64) {
    until_among(&ENDED, "session over", vec![format!("{session:#x}")]).await;
}

/// A single test, because a process has one subscriber.
// Shows: telling-a-loss, no-lock-across-await, permits-unknown-outcome, contained-lines
#[tokio::test]
async fn panic_costs_a_line() {
    panic_at_any_line_costs_nothing().await;
    for line in [
        "no session yet",
        "the client tries again",
        "fails in connecting to",
    ] {
        panic_without_server_costs_no_client(line).await;
    }
    panic_while_listing_stops_no_lists().await;
    panic_during_conversion_leaves_no_node().await;
    panic_while_acquiring_leaves_no_permits().await;
    panic_logging_loss_costs_no_lock().await;
}

/// Panics at the first line of a scenario with a fault for each kind of call, then at the second,
/// until the scenario has no more.
async fn panic_at_any_line_costs_nothing() {
    let mut line = 0;
    loop {
        trigger(Trigger::Line(line));
        faults_everywhere(&format!("a panic at line {line}")).await;
        if !has_panicked() {
            break;
        }
        line += 1;
    }
    assert!(line > 15, "{line} lines");
}

/// Asserts that every call returns its result, and that nothing is left, despite the faults.
async fn faults_everywhere(what: &str) {
    let (server, [client]) = with_clients(start(), connect).await;
    let lose = |op| server.drop_reply(Match::op(op).session(session(&client)), Loss::Close);
    let mutex = InterProcessMutex::new(&client, DIRECTORY).unwrap();
    server.create(&format!("{DIRECTORY}/stray"), "").unwrap();
    let lost = [lose(Op::Create), lose(Op::Delete)];
    let guard = within("the lock", mutex.lock()).await.expect(what);
    within("the release", guard.release()).await.expect(what);
    let listed = lose(Op::GetChildren);
    assert!(
        within("the queue", mutex.participants())
            .await
            .expect(what)
            .is_empty(),
        "{what}"
    );
    let read = lose(Op::GetData);
    let job = OnceJob::new(&client, "/jobs/close", "monday").run(async |_| Ok::<_, Infallible>(()));
    assert!(
        matches!(
            within("the job", job).await.expect(what),
            OnceOutcome::Ran(())
        ),
        "{what}"
    );
    let member = PersistentNode::new(&client, "/members/a", "x").unwrap();
    within("the node", member.wait_for_initial_create(SOON))
        .await
        .expect(what);
    let written = lose(Op::SetData);
    within("the data", member.set_data("y")).await.expect(what);
    assert_eq!(member.state(), PersistentNodeState::Present, "{what}");
    let latch = LeaderLatch::new(&client, "/leaders").unwrap();
    let leader = within("the leadership", latch.leadership())
        .await
        .expect(what);
    let hits: Vec<_> = lost
        .iter()
        .chain([&listed, &read, &written])
        .map(|fault| fault.hits().len())
        .collect();
    assert_eq!(hits, [1; 5], "{what}");
    let held = within("the lock", mutex.lock()).await.expect(what);
    // The deletion is refused at first.
    server.fail(Match::op(Op::Delete).session(session(&client)), NO_AUTH);
    let refused = within("the release", held.release()).await;
    assert!(
        matches!(refused, Err(ReleaseError::Refused { .. })),
        "{what}: {refused:?}"
    );
    client.flush(SOON).await.expect(what);
    let held = within("the lock", mutex.lock()).await.expect(what);
    server.expire_session(session(&client));
    within("the loss of the lock", held.lost()).await;
    within("the loss of the leadership", leader.lost()).await;
    drop((held, leader));
    let leader = within("the leadership", latch.leadership())
        .await
        .expect(what);
    within("the lock", mutex.lock())
        .await
        .expect(what)
        .release()
        .await
        .expect(what);
    until(&server, "the node", |view| view.exists("/members/a")).await;
    within("the data", member.set_data("z")).await.expect(what);
    within("the end of the node", member.close())
        .await
        .expect(what);
    drop(leader);
    within("the end of the latch", latch.close())
        .await
        .expect(what);
    client.flush(SOON).await.expect(what);
    assert_eq!(client.state(), ConnectionState::Connected, "{what}");
    assert_eq!(server.children(DIRECTORY), ["stray"], "{what}");
    let empty = [server.children("/leaders"), server.children("/members")];
    assert_eq!(empty, [[""; 0]; 2], "{what}");
    let last = session(&client);
    within("the end of the client", client.close())
        .await
        .expect(what);
    until_told(last).await;
}

/// The last line comes from the client library.
async fn panic_without_server_costs_no_client(line: &str) {
    let server = start();
    server.stop();
    panic_at(line);
    let builder = Client::builder().connect_timeout(Duration::from_millis(100));
    let builder = builder.retry_policy(RetryPolicy::n_times(1, Duration::from_millis(1)));
    let client = builder.connect_lazy(&server.connect_string()).unwrap();
    let panicked = || has_panicked().then_some(());
    let waiting = move || poll_until("the panic", SOON, panicked);
    tokio::task::spawn_blocking(waiting).await.unwrap().unwrap();
    server.restart().unwrap();
    let mut states = client.watch_state();
    let connected = states.wait_for(|state| *state == ConnectionState::Connected);
    assert!(
        within("a session", connected).await.is_some(),
        "{line}: {:?}",
        client.state()
    );
    let mutex = InterProcessMutex::new(&client, DIRECTORY).unwrap();
    drop(within("the lock", mutex.lock()).await.expect(line));
    within("the end of the client", client.close())
        .await
        .expect(line);
}

async fn panic_while_listing_stops_no_lists() {
    let server = start();
    server.create(&format!("{DIRECTORY}/stray"), "").unwrap();
    let client = connect(&server).await;
    let lock = InterProcessReadWriteLock::new(&client, DIRECTORY).unwrap();
    panic_at("are not contenders");
    drop(within("the lock", lock.read_lock().lock()).await.unwrap());
    let second = lock.read_lock().acquire(Duration::from_secs(2)).await;
    assert!(
        second.is_ok(),
        "the lock is free, and was not granted: {}",
        second.unwrap_err()
    );
}

async fn panic_during_conversion_leaves_no_node() {
    let (server, [client]) = with_clients(start(), connect).await;
    let lock = InterProcessReadWriteLock::new(&client, DIRECTORY).unwrap();
    let writer = within("the lock", lock.write_lock().lock()).await.unwrap();
    server.fail(
        Match::op(Op::Multi)
            .session(session(&client))
            .path_contains("__READ__"),
        THROTTLED,
    );
    panic_at("NotNow");
    drop(
        within("the conversion, which is repeated", writer.downgrade())
            .await
            .unwrap(),
    );
    until(&server, "an empty directory", |view| {
        view.children(DIRECTORY).is_empty()
    })
    .await;
}

/// The transaction is committed, its reply is lost, and the panic comes before the next request.
async fn panic_while_acquiring_leaves_no_permits() {
    let (server, [client]) = with_clients(start(), connect).await;
    let semaphore = InterProcessSemaphore::new(&client, DIRECTORY, 2).unwrap();
    drop(
        within("the permits", semaphore.acquire_many(2, SOON))
            .await
            .unwrap(),
    );
    client.flush(SOON).await.unwrap();
    let leases = format!("{DIRECTORY}/leases");
    let takes = Match::op(Op::Multi)
        .session(session(&client))
        .path_prefix(format!("{leases}/"));
    let lost = server.drop_reply(takes, Loss::Close);
    panic_at("request failed");
    drop(
        within(
            "the permits, by the next transaction",
            semaphore.acquire_many(2, SOON),
        )
        .await
        .unwrap(),
    );
    assert!(!lost.hits().is_empty());
    let empty = format!("{DIRECTORY}/locks");
    let left =
        move |view: View<'_>| view.children(&leases).is_empty() && view.children(&empty).is_empty();
    until(&server, "empty directories", left).await;
    drop(
        within("the permits", semaphore.acquire_many(2, SOON))
            .await
            .unwrap(),
    );
}

async fn panic_logging_loss_costs_no_lock() {
    let server = start_impatient();
    let timeout = Duration::from_secs(3);
    let client = connect_as(Client::builder().session_timeout(timeout), &server).await;
    let mut guards = Vec::new();
    for path in ["/locks/first", "/locks/second", "/locks/third"] {
        let mutex = InterProcessMutex::new(&client, path).unwrap();
        guards.push(within("the lock", mutex.lock()).await.unwrap());
    }
    panic_at("lock lost");
    // One heartbeat reveals both losses.
    let beat = server.hold_request(Match::op(Op::Multi).session(session(&client)));
    within("a beat", beat.wait_hit()).await;
    let kept = guards.pop().unwrap();
    for guard in &guards {
        server.delete(&guard.node()).unwrap();
    }
    beat.release();
    for guard in &guards {
        within("the loss", guard.lost()).await;
    }
    // Only the loss without a panic is in the log.
    let name = |guard: &LockGuard| guard.node().rsplit_once('/').unwrap().1.to_owned();
    until_among(&LOGGED, "lock lost", guards.iter().map(name).collect()).await;
    // Heartbeats continue.
    let sent = server.counters().requests_of(session(&client), Op::Multi);
    let id = session(&client);
    until(&server, "two more beats", move |view| {
        view.counters().requests_of(id, Op::Multi) >= sent + 2
    })
    .await;
    assert!(kept.is_held(), "{:?}", kept.state());
}
