//! A tracing subscriber that panics, once, at a line that the client logs: it costs that line and nothing else.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::sync::{Mutex, Once, PoisonError};
use std::time::Duration;

use test_support::in_process::{DIRECTORY, connect, connect_as, session, start, start_impatient, until};
use test_support::{SOON, within};
use test_support::{listen_to_log, poll_until};
use tracing::Metadata;
use zookeeper_client as zk;
use zookeeper_recipes::{
    Client, InterProcessMutex, InterProcessReadWriteLock, InterProcessSemaphore, LockGuard,
};
use zookeeper_test_server::{Loss, Match, Op};

const THROTTLED: i32 = -127;

/// Panics at the next event whose message, or one of whose fields, contains this.
static TRIGGER: Mutex<Option<String>> = Mutex::new(None);

/// What was logged of locks that were lost, and of sessions that are over.
static LOGGED: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Panics where a test has asked for it; remembers what was logged of losses.
fn panic_if_asked(_: &Metadata<'_>, text: &str) {
    let mut trigger = TRIGGER.lock().unwrap_or_else(PoisonError::into_inner);
    if trigger.as_ref().is_some_and(|trigger| text.contains(trigger)) {
        *trigger = None;
        drop(trigger);
        panic!("as the test asked for");
    }
    if text.contains("lock lost") || text.contains("session over") {
        LOGGED.lock().unwrap_or_else(PoisonError::into_inner).push(text.to_owned());
    }
}

fn panic_at(what: &str) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| listen_to_log(panic_if_asked).unwrap());
    *TRIGGER.lock().unwrap_or_else(PoisonError::into_inner) = Some(what.to_owned());
}

/// Waits until something is logged that is about one of these.
async fn until_logged(what: &'static str, of: Vec<String>) {
    let logged = move || {
        let logged = LOGGED.lock().unwrap_or_else(PoisonError::into_inner);
        let about = |line: &String| line.contains(what) && of.iter().any(|of| line.contains(of));
        logged.iter().any(about).then_some(())
    };
    let waiting = move || poll_until("the entry in the log", SOON, logged);
    tokio::task::spawn_blocking(waiting).await.unwrap().unwrap();
}

/// One test: there is one subscriber for the process.
#[tokio::test]
async fn a_panic_costs_a_line() {
    a_panic_while_listing_does_not_stop_all_lists().await;
    a_panic_during_a_conversion_leaves_no_node().await;
    a_panic_while_permits_are_taken_leaves_none().await;
    a_panic_while_a_loss_is_logged_costs_no_other_lock(false).await;
    a_panic_while_a_loss_is_logged_costs_no_other_lock(true).await;
}

async fn a_panic_while_listing_does_not_stop_all_lists() {
    let server = start();
    server.create(&format!("{DIRECTORY}/stray"), "").unwrap();
    let client = connect(&server).await;
    let lock = InterProcessReadWriteLock::new(&client, DIRECTORY).unwrap();
    panic_at("are not contenders");
    drop(within("the lock", lock.read_lock().lock()).await.unwrap());
    let second = lock.read_lock().acquire(Duration::from_secs(2)).await;
    assert!(second.is_ok(), "the lock is free, and was not granted: {}", second.unwrap_err());
}

async fn a_panic_during_a_conversion_leaves_no_node() {
    let server = start();
    let client = connect(&server).await;
    let lock = InterProcessReadWriteLock::new(&client, DIRECTORY).unwrap();
    let writer = within("the lock", lock.write_lock().lock()).await.unwrap();
    server.fail(Match::op(Op::Multi).session(session(&client)).path_contains("__READ__"), THROTTLED);
    panic_at("NotNow");
    drop(within("the conversion, which is repeated", writer.downgrade()).await.unwrap());
    until(&server, "an empty directory", |view| view.children(DIRECTORY).is_empty()).await;
}

/// The transaction is committed, its reply is lost, and the panic comes before anything else is asked.
async fn a_panic_while_permits_are_taken_leaves_none() {
    let server = start();
    let client = connect(&server).await;
    let semaphore = InterProcessSemaphore::new(&client, DIRECTORY, 2).unwrap();
    drop(within("the permits", semaphore.acquire_many(2, SOON)).await.unwrap());
    client.flush(SOON).await.unwrap();
    let leases = format!("{DIRECTORY}/leases");
    let takes = Match::op(Op::Multi).session(session(&client)).path_prefix(format!("{leases}/"));
    let lost = server.drop_reply(takes, Loss::Close);
    panic_at("request failed");
    drop(within("the permits, by the next transaction", semaphore.acquire_many(2, SOON)).await.unwrap());
    assert!(!lost.hits().is_empty());
    let empty = format!("{DIRECTORY}/locks");
    let left = move |view: zookeeper_test_server::View<'_>| {
        view.children(&leases).is_empty() && view.children(&empty).is_empty()
    };
    until(&server, "empty directories", left).await;
    drop(within("the permits", semaphore.acquire_many(2, SOON)).await.unwrap());
}

async fn a_panic_while_a_loss_is_logged_costs_no_other_lock(borrowed: bool) {
    let server = start_impatient();
    let timeout = Duration::from_secs(3);
    let client = if borrowed {
        let connector = zk::Client::connector().with_session_timeout(timeout);
        Client::from_session(connector.connect(&server.connect_string()).await.unwrap()).unwrap()
    } else {
        connect_as(Client::builder().session_timeout(timeout), &server).await
    };
    let mut guards = Vec::new();
    for path in ["/locks/first", "/locks/second", "/locks/third"] {
        let mutex = InterProcessMutex::new(&client, path).unwrap();
        guards.push(within("the lock", mutex.lock()).await.unwrap());
    }
    panic_at("lock lost");
    // Both are found by one beat.
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
    // The one at which there was no panic is in the log.
    let name = |guard: &LockGuard| guard.node().rsplit_once('/').unwrap().1.to_owned();
    until_logged("lock lost", guards.iter().map(name).collect()).await;
    // The beats go on.
    let sent = server.counters().requests_of(session(&client), Op::Multi);
    let id = session(&client);
    until(&server, "two more beats", move |view| view.counters().requests_of(id, Op::Multi) >= sent + 2)
        .await;
    assert!(kept.is_held(), "{:?}", kept.state());
}
