//! The log lines and their levels.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::{MutexGuard, PoisonError};

use std::future::pending;

use test_support::listen_to_log;
use test_support::prelude::*;
use tokio::sync::Notify;
use tracing::{Level, Metadata};

const AUTH_FAILED: i32 = -115;
/// No wait of these tests takes this long.
const LONG: Duration = Duration::from_secs(60);

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

/// A single test, because a process has one subscriber.
#[tokio::test]
async fn lock_events_are_logged() {
    listen_to_log(collect).unwrap();
    refused_credentials_log_the_loss().await;
    entries().clear();
    locks_released_by_close_never_warn().await;
    entries().clear();
    self_wait_is_logged_with_both_lines().await;
    entries().clear();
    multi_lock_self_wait_is_logged().await;
    for how in [Stop::Close, Stop::Drain, Stop::Drop] {
        entries().clear();
        orderly_stop_is_no_warning(how).await;
    }
    entries().clear();
    lines_of_elections_and_nodes_say_why().await;
    entries().clear();
    lines_of_connecting_say_why().await;
}

#[derive(Clone, Copy, Debug)]
enum Stop {
    Close,
    Drain,
    Drop,
}

/// Asserts that the stop of a client with every kind of open call and hold logs no warning.
async fn orderly_stop_is_no_warning(how: Stop) {
    let (_server, [client, other]) = with_clients(start(), connect).await;
    let led = LeaderLatch::new(&client, "/leads").unwrap();
    within("the leadership", led.leadership()).await.unwrap();
    let theirs = LeaderLatch::new(&other, "/follows").unwrap();
    within("the leadership", theirs.leadership()).await.unwrap();
    let follows = LeaderLatch::new(&client, "/follows").unwrap();
    let node = PersistentNode::new(&client, "/services/web-1", "").unwrap();
    within("the node", node.wait_for_initial_create(LONG))
        .await
        .unwrap();
    let member = GroupMember::new(&client, "/group", "web-1", "").unwrap();
    let guard = within("the lock", mutex(&client).lock()).await.unwrap();
    let revoked = tokio::spawn(guard.revoked());
    let mut waiting = JoinSet::new();
    let selector = LeaderSelector::new(&client, "/selected").unwrap();
    let second = LeaderSelector::new(&client, "/selected").unwrap();
    let begun = Arc::new(Notify::new());
    let begins = Arc::clone(&begun);
    let leading = waiting.spawn(async move {
        let work = |_| {
            begins.notify_one();
            pending::<()>()
        };
        drop(selector.lead(work).await);
    });
    within("the term", begun.notified()).await;
    waiting.spawn(async move { drop(second.lead(|_| pending::<()>()).await) });
    let mut leaders = LeaderLatch::builder(&client, "/follows")
        .watch_leader()
        .unwrap();
    waiting.spawn(async move { while leaders.changed().await.is_ok() {} });
    let mut members = member.watch();
    waiting.spawn(async move { while members.changed().await.is_ok() {} });
    let held = InterProcessFairLock::new(&client, "/fair").unwrap();
    let fair = within("the fair lock", held.lock()).await.unwrap();
    let again = within("the place", held.enqueue()).await.unwrap();
    let permits = InterProcessSemaphore::new(&client, "/permits", 1).unwrap();
    let permit = within("the permit", permits.acquire(LONG)).await.unwrap();
    let next = permits.clone();
    waiting.spawn(async move { drop(next.acquire(LONG).await) });
    match how {
        Stop::Close => within("the end", client.close()).await.unwrap(),
        // A drain waits for the end of all work under locks.
        Stop::Drain => {
            leading.abort();
            drop((guard, fair, permit, again));
            within("the end", client.drain(LONG)).await.unwrap();
        }
        Stop::Drop => {
            within("the end of the latch", led.close()).await.unwrap();
            drop((guard, fair, permit, again, follows, node, member));
            waiting.abort_all();
            within("the end", client.close()).await.unwrap();
        }
    }
    // Some tasks were aborted.
    let ended = async { while waiting.join_next().await.is_some() {} };
    within("the end of all calls", ended).await;
    drop(revoked);
    // This line is reported after all lines of the stop.
    let id = format!("{:#x}", other.session_id().unwrap());
    other.close().await.unwrap();
    logged_with(&["session over", &id]).await;
    let grave: Vec<_> = entries()
        .iter()
        .filter(|(level, _)| *level <= Level::WARN)
        .cloned()
        .collect();
    assert!(grave.is_empty(), "{how:?}: {grave:?}");
}

/// The servers refuse nodes below an ephemeral node.
async fn lines_of_elections_and_nodes_say_why() {
    let (_server, [client]) = with_clients(start(), connect).await;
    let node = PersistentNode::new(&client, "/services/web-1", "").unwrap();
    within("the node", node.wait_for_initial_create(LONG))
        .await
        .unwrap();
    let _latch = LeaderLatch::new(&client, "/services/web-1/leader").unwrap();
    let _below = PersistentNode::new(&client, "/services/web-1/port", "").unwrap();
    for line in ["a participant has left its election", "a node is not there"] {
        logged_with(&[line, "ephemeral node can not have children"]).await;
    }
    client.close().await.unwrap();
}

/// No process listens at port 1.
async fn lines_of_connecting_say_why() {
    let client = Client::builder()
        .connect_timeout(Duration::from_millis(200))
        .retry_policy(RetryPolicy::n_times(1, Duration::from_millis(10)))
        .connect_lazy("127.0.0.1:1")
        .unwrap();
    for line in ["no session yet; the client tries again", "no session yet"] {
        // A busy machine may not have probed in time.
        logged_with(&[line, "127.0.0.1:1: it refuses connections"]).await;
    }
    client.close().await.unwrap();
}

async fn refused_credentials_log_the_loss() {
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

async fn locks_released_by_close_never_warn() {
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

async fn self_wait_is_logged_with_both_lines() {
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

async fn multi_lock_self_wait_is_logged() {
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

/// Waits for an entry: a thread that does nothing else logs all entries in the order in which they
/// were noted.
async fn logged(text: &str) -> (Level, String) {
    logged_with(&[text]).await
}

/// Waits for an entry with all of these texts.
async fn logged_with(texts: &[&str]) -> (Level, String) {
    loop {
        let entry = entries()
            .iter()
            .find(|(_, entry)| texts.iter().all(|text| entry.contains(text)))
            .cloned();
        match entry {
            Some(entry) => return entry,
            None => within(&texts.join(", "), NEWS.notified()).await,
        }
    }
}
