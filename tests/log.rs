//! What is logged, and as how grave.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::{MutexGuard, PoisonError};

use test_support::listen_to_log;
use test_support::prelude::*;
use tokio::sync::Notify;
use tracing::{Level, Metadata};

const AUTH_FAILED: i32 = -115;

static ENTRIES: Mutex<Vec<(Level, String)>> = Mutex::new(Vec::new());
static NEWS: Notify = Notify::const_new();

fn entries() -> MutexGuard<'static, Vec<(Level, String)>> {
    ENTRIES.lock().unwrap_or_else(PoisonError::into_inner)
}

fn collect(metadata: &Metadata<'_>, text: &str) {
    if metadata.target().starts_with("zookeeper_recipes") {
        entries().push((*metadata.level(), text.to_owned()));
        NEWS.notify_one();
    }
}

/// One test: there is one subscriber for the process.
#[tokio::test]
async fn what_becomes_of_locks_is_logged() {
    listen_to_log(collect).unwrap();
    a_loss_by_refused_credentials_is_logged_with_the_end_of_the_session().await;
    entries().clear();
    locks_that_are_given_back_by_close_are_no_warnings().await;
    entries().clear();
    a_call_that_waits_for_its_own_client_is_logged_with_both_lines().await;
    entries().clear();
    a_call_for_several_locks_that_waits_for_its_own_client_is_logged_too().await;
}

async fn a_loss_by_refused_credentials_is_logged_with_the_end_of_the_session() {
    let server = start();
    let client = connect_as(Client::builder().auth("digest", "a:b"), &server).await;
    let guard = within("the lock", mutex(&client).lock()).await.unwrap();
    let _refused = server.fail(Match::op(Op::Auth).always(), AUTH_FAILED);
    server.cut(session(&client), Cut::Fin);
    within("the loss", guard.lost()).await;
    let mut states = client.watch_state();
    within(
        "the end",
        states.wait_for(|state| *state == ConnectionState::Closed),
    )
    .await
    .unwrap();
    logged("session over").await;
    let entries = entries();
    let logged = |level, text: &str| {
        entries
            .iter()
            .filter(|(of, entry)| *of == level && entry.contains(text))
            .count()
    };
    assert_eq!(logged(Level::WARN, "lock lost"), 1, "{entries:?}");
    assert_eq!(logged(Level::INFO, "session over"), 1, "{entries:?}");
}

async fn locks_that_are_given_back_by_close_are_no_warnings() {
    let (_server, [client]) = with_clients(start(), connect).await;
    let mut guards = Vec::new();
    for path in ["/locks/first", "/locks/second"] {
        let mutex = InterProcessMutex::new(&client, path).unwrap();
        guards.push(within("the lock", mutex.lock()).await.unwrap());
    }
    within("the end", client.close()).await.unwrap();
    logged("session over").await;
    let entries = entries();
    let grave = entries
        .iter()
        .filter(|(level, _)| *level <= Level::WARN)
        .count();
    let lost = entries
        .iter()
        .filter(|(level, entry)| *level == Level::DEBUG && entry.contains("lock lost"))
        .count();
    assert_eq!((grave, lost), (0, 2), "{entries:?}");
}

async fn a_call_that_waits_for_its_own_client_is_logged_with_both_lines() {
    let (_server, [client]) = with_clients(start(), connect).await;
    let mutex = mutex(&client);
    let held_at = line!() + 1;
    let guard = within("the lock", mutex.lock()).await.unwrap();
    let asked_at = line!() + 1;
    let again = tokio::spawn(mutex.lock());
    is_logged(held_at, asked_at).await;
    guard.release().await.unwrap();
    within("the second lock", again)
        .await
        .unwrap()
        .unwrap()
        .release()
        .await
        .unwrap();
    client.close().await.unwrap();
}

async fn a_call_for_several_locks_that_waits_for_its_own_client_is_logged_too() {
    let (_server, [client]) = with_clients(start(), connect).await;
    let both =
        InterProcessMultiLock::from_paths(&client, ["/locks/first", "/locks/second"]).unwrap();
    let held_at = line!() + 1;
    let guard = within("the locks", both.lock()).await.unwrap();
    let asked_at = line!() + 1;
    let again = tokio::spawn(both.lock());
    is_logged(held_at, asked_at).await;
    guard.release().await.unwrap();
    within("the second time", again)
        .await
        .unwrap()
        .unwrap()
        .release()
        .await
        .unwrap();
    client.close().await.unwrap();
}

async fn is_logged(held_at: u32, asked_at: u32) {
    let (level, text) = logged("this client itself holds").await;
    assert_eq!(level, Level::WARN, "{text}");
    for line in [held_at, asked_at] {
        assert!(
            text.contains(&format!("{}:{line}:", file!())),
            "{line}: {text}"
        );
    }
}

/// Waits for an entry: all are logged by a thread that does nothing else, in the order in which
/// they were noted.
async fn logged(text: &str) -> (Level, String) {
    loop {
        let entry = entries()
            .iter()
            .find(|(_, entry)| entry.contains(text))
            .cloned();
        match entry {
            Some(entry) => return entry,
            None => within(text, NEWS.notified()).await,
        }
    }
}
