//! A tracing subscriber that blocks, such as one that writes to a full pipe, costs no lock. A
//! session's thread that a caller's waker blocks breaks no promise to a holder.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::pin::Pin;
use std::sync::{Condvar, MutexGuard, PoisonError};
use std::task::Wake;
use std::thread;

use test_support::listen_to_log;
use test_support::prelude::*;
use tokio::sync::Notify;
use tracing::Metadata;

/// A slow machine may take a third of the timeout between a loss and the look at the server.
const TIMEOUT: Duration = Duration::from_secs(6);

/// The name of the thread that calls subscribers.
const JOURNAL_THREAD: &str = "zk-journal";

/// Returns whether only this library's threads have logged.
fn only_ours(threads: &BTreeSet<String>) -> bool {
    threads.iter().all(|name| name == JOURNAL_THREAD)
}

#[derive(Default)]
struct State {
    /// While set, neither the logging thread nor a session's thread returns.
    closed: bool,
    /// How many sessions' threads are blocked.
    inside: usize,
    /// The threads that have logged.
    threads: BTreeSet<String>,
    losses: Vec<String>,
}

static STATE: Mutex<State> = Mutex::new(State {
    closed: false,
    inside: 0,
    threads: BTreeSet::new(),
    losses: Vec::new(),
});
static OPENED: Condvar = Condvar::new();
static ENTERED: Notify = Notify::const_new();
static LOGGED: Notify = Notify::const_new();

fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn open() {
    state().closed = false;
    OPENED.notify_all();
}

/// Opens the gate on drop, so that a failed test ends.
struct OpenOnDrop;

impl Drop for OpenOnDrop {
    fn drop(&mut self) {
        open();
    }
}

/// Blocks the logging thread while the gate is closed, and records which threads have logged and
/// what was lost.
fn block_if_closed(metadata: &Metadata<'_>, text: &str) {
    // The log of the server in this process does not count.
    if !metadata.target().starts_with("zookeeper_recipes") {
        return;
    }
    let mut state = state();
    state
        .threads
        .insert(thread::current().name().unwrap_or_default().to_owned());
    LOGGED.notify_one();
    while state.closed {
        state = OPENED.wait(state).unwrap_or_else(PoisonError::into_inner);
    }
    if text.contains("lock lost") {
        state.losses.push(text.to_owned());
        LOGGED.notify_one();
    }
}

/// A waker that blocks the session's thread while the gate is closed.
struct Blocking;

impl Wake for Blocking {
    fn wake(self: Arc<Self>) {
        let mut state = state();
        state.inside += 1;
        ENTERED.notify_one();
        while state.closed {
            state = OPENED.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.inside -= 1;
    }
}

/// Blocks the thread of a client's session by waking the caller of this call.
async fn block(mutex: &InterProcessMutex) -> Pin<Box<impl Future<Output = Acquired> + use<>>> {
    let (mut call, waker) = (Box::pin(mutex.lock()), Waker::from(Arc::new(Blocking)));
    for _ in 0..100 {
        let polled = call.as_mut().poll(&mut Context::from_waker(&waker));
        // The session's thread may be done before this thread waits for it.
        let Poll::Ready(granted) = polled else { break };
        within("the end", granted.unwrap().release()).await.unwrap();
        call = Box::pin(mutex.lock());
    }
    within("a blocked thread", ENTERED.notified()).await;
    call
}

type Acquired = Result<LockGuard, AcquireError>;

/// A single test, because a process has one subscriber.
// Shows: telling-a-loss, no-lock-across-await, told-apart
#[tokio::test]
async fn blocked_log_delays_no_notification() {
    listen_to_log(block_if_closed).unwrap();
    blocking_subscriber_costs_no_lock().await;
    close_waits_for_no_subscriber().await;
    blocked_session_thread_delays_no_loss().await;
    blocked_session_thread_delays_no_lease_end().await;
    every_loss_is_logged_once().await;
}

async fn blocking_subscriber_costs_no_lock() {
    let _open = OpenOnDrop;
    let server = Server::builder().tick(TIMEOUT / 40).start().unwrap();
    server.create("/locks/strays/stray", "").unwrap();
    let client = connect_as(Client::builder().session_timeout(TIMEOUT), &server).await;
    let guard = within("the lock", mutex(&client).lock()).await.unwrap();
    {
        let mut state = state();
        state.threads.clear();
        state.closed = true;
    }
    // Produces a log line.
    let strays = InterProcessMutex::new(&client, "/locks/strays").unwrap();
    within("the lock", strays.lock())
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    while state().threads.is_empty() {
        within("a log entry", LOGGED.notified()).await;
    }
    // The sleep is longer than a session lives without heartbeats.
    tokio::time::sleep(TIMEOUT).await;
    assert!(guard.is_held(), "{:?}", guard.state());
    within("the lock", strays.lock())
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    assert!(server.expire_session(session(&client)));
    assert_eq!(
        within("the loss", guard.lost()).await.reason(),
        LostReason::SessionExpired
    );
    within("the lock, in the next session", strays.lock())
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    within("the end", client.close()).await.unwrap();
    {
        let state = state();
        assert!(only_ours(&state.threads), "{:?}", state.threads);
        assert_eq!(state.losses, [""; 0], "blocked all the time");
    }
    open();
    while state().losses.is_empty() {
        within("the loss in the log", LOGGED.notified()).await;
    }
    *state() = State::default();
}

async fn close_waits_for_no_subscriber() {
    let _open = OpenOnDrop;
    let server = Server::start().unwrap();
    let client = connect_as(Client::builder(), &server).await;
    let guard = within("the lock", mutex(&client).lock()).await.unwrap();
    state().closed = true;
    within("the end", client.close()).await.unwrap();
    assert!(!server.exists(&guard.node()) && !guard.is_held());
    open();
    while state().losses.is_empty() {
        within("the loss in the log", LOGGED.notified()).await;
    }
    *state() = State::default();
}

async fn every_loss_is_logged_once() {
    let server = Server::builder().tick(TIMEOUT / 40).start().unwrap();
    let client = connect_as(Client::builder().session_timeout(TIMEOUT), &server).await;
    let other = connect_as(Client::builder().session_timeout(TIMEOUT), &server).await;
    let mut logged = Vec::new();
    for reason in [
        LostReason::NodeDeleted,
        LostReason::SessionExpired,
        LostReason::Closed,
    ] {
        let client = if reason == LostReason::NodeDeleted {
            &other
        } else {
            &client
        };
        let guard = within("the lock", mutex(client).lock()).await.unwrap();
        let node = guard.node();
        match reason {
            LostReason::NodeDeleted => server.delete(&node).unwrap(),
            LostReason::SessionExpired => assert!(server.expire_session(session(client))),
            _ => client.close().await.unwrap(),
        }
        assert_eq!(within("the loss", guard.lost()).await.reason(), reason);
        logged.push(node);
        while state().losses.len() < logged.len() {
            within("the loss in the log", LOGGED.notified()).await;
        }
        drop(guard);
    }
    other.close().await.unwrap();
    let losses = std::mem::take(&mut state().losses);
    assert_eq!(losses.len(), logged.len(), "{losses:?}");
    for (node, loss) in logged.iter().zip(&losses) {
        assert!(
            loss.contains(node.rsplit_once('/').unwrap().1),
            "{losses:?}"
        );
    }
}

async fn blocked_session_thread_delays_no_lease_end() {
    let _open = OpenOnDrop;
    let server = Server::start().unwrap();
    let client = connect_as(Client::builder(), &server).await;
    let guard = within("the lock", mutex(&client).lock()).await.unwrap();
    {
        let mut state = state();
        state.threads.clear();
        state.closed = true;
    }
    let call = block(&InterProcessMutex::new(&client, "/locks/free").unwrap()).await;
    guard.set_lease(Duration::from_millis(100)).unwrap();
    let work = guard.while_held(std::future::pending::<()>());
    let (lost, work) = within("the loss", async { tokio::join!(guard.lost(), work) }).await;
    assert_eq!(
        state().inside,
        1,
        "expected the session's thread to be blocked by the subscriber"
    );
    assert_eq!(lost.reason(), LostReason::LeaseOver);
    assert_eq!(work.unwrap_err(), lost);
    assert_eq!(guard.state(), LockState::Lost(LostReason::LeaseOver));
    let node = guard.node();
    assert!(server.exists(&node));
    let released = within("the answer", guard.release()).await;
    assert!(matches!(released, Err(ReleaseError::Lost(again)) if again == lost));
    {
        let state = state();
        assert_eq!(state.inside, 1, "blocked all the time");
        assert!(only_ours(&state.threads), "{:?}", state.threads);
        assert_eq!(state.losses, [""; 0]);
    }

    // The node is deleted, and the loss is logged, when the thread resumes.
    open();
    let gone = node.clone();
    until(&server, "the end of the node", move |view| {
        !view.exists(&gone)
    })
    .await;
    within("the lock", call)
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    while state().losses.is_empty() {
        within("the loss in the log", LOGGED.notified()).await;
    }
    client.close().await.unwrap();
    let losses = std::mem::take(&mut *state()).losses;
    assert!(
        losses.len() == 1 && losses[0].contains("its lease is over"),
        "{losses:?}"
    );
}

async fn blocked_session_thread_delays_no_loss() {
    let _open = OpenOnDrop;
    let server = Server::builder()
        .tick(TIMEOUT / 40)
        .max_session_timeout(TIMEOUT)
        .start()
        .unwrap();
    let client = connect_as(Client::builder().session_timeout(TIMEOUT), &server).await;
    let guard = within("the lock", mutex(&client).lock()).await.unwrap();
    let other = InterProcessMutex::new(&client, "/locks/other").unwrap();
    let other = within("the other lock", other.lock()).await.unwrap();

    // The hold of another client is lost earlier, and its waiter panics.
    let earlier = connect_as(Client::builder().session_timeout(TIMEOUT / 2), &server).await;
    let broken = InterProcessMutex::new(&earlier, "/locks/broken").unwrap();
    let broken = within("the third lock", broken.lock()).await.unwrap();
    let mut broken_lost = Box::pin(broken.lost());
    let waker = broken_waker();
    assert!(
        broken_lost
            .as_mut()
            .poll(&mut Context::from_waker(&waker))
            .is_pending()
    );

    state().closed = true;
    let mut calls = Vec::new();
    for (client, path) in [(&earlier, "/locks/one"), (&client, "/locks/two")] {
        calls.push(block(&InterProcessMutex::new(client, path).unwrap()).await);
        server.stall(session(client), Direction::Both);
    }

    let doubt = within("the doubt", guard.state_changed(LockState::Held)).await;
    assert_eq!(doubt, LockState::Suspended);
    let work = guard.while_held(std::future::pending::<()>());
    let (lost, work) = within("the loss", async { tokio::join!(guard.lost(), work) }).await;
    assert_eq!(
        state().inside,
        2,
        "expected the sessions' threads to be blocked by the subscriber"
    );
    assert!(
        server.exists(&guard.node()),
        "expected the node to exist until the holder was notified"
    );
    assert!(!broken.is_held());
    assert_eq!(lost.reason(), LostReason::LeaseExpired);
    assert_eq!(work.unwrap_err().reason(), LostReason::LeaseExpired);
    assert_eq!(
        within("a change", guard.state_changed(LockState::Suspended)).await,
        guard.state()
    );

    // Neither a query nor a release logs on the caller's thread.
    assert!(!guard.is_held());
    assert_eq!(guard.state(), LockState::Lost(LostReason::LeaseExpired));
    assert!(guard.reenter().is_err());
    assert!(guard.while_held(async {}).await.is_err());
    assert!(
        guard
            .transaction()
            .check("/locks", None)
            .commit()
            .await
            .is_err()
    );
    assert!(!mutex(&client).is_acquired_in_this_process());
    let (first, second) = (guard.node(), other.node());
    let released = within("the answer", guard.release()).await;
    assert!(
        matches!(released, Err(ReleaseError::Lost(_))),
        "{released:?}"
    );
    // The holders are notified one by one. A hold that is dropped before its turn was released, not
    // lost.
    assert_eq!(
        within("the other loss", other.lost()).await.reason(),
        LostReason::LeaseExpired
    );
    drop(other);
    {
        let state = state();
        assert_eq!(state.inside, 2, "blocked all the time");
        assert!(only_ours(&state.threads), "{:?}", state.threads);
        assert_eq!(state.losses, [""; 0]);
    }

    // Each loss is logged once in the end.
    drop((broken, broken_lost));
    server.resume(session(&client));
    open();
    while state().losses.len() < 5 {
        within("the loss in the log", LOGGED.notified()).await;
    }
    drop(within("the lock", calls.pop().unwrap()).await.unwrap());
    for node in [&first, &second] {
        let gone = node.clone();
        until(&server, "the end of the node", move |view| {
            !view.exists(&gone)
        })
        .await;
    }
    client.flush(SOON).await.unwrap();
    client.close().await.unwrap();
    let losses = std::mem::take(&mut state().losses);
    // The losses of calls that were granted in the meantime are logged too.
    assert_eq!(losses.len(), 5, "{losses:?}");
    for node in [first, second] {
        let name = node.rsplit_once('/').unwrap().1;
        assert_eq!(
            losses.iter().filter(|loss| loss.contains(name)).count(),
            1,
            "{losses:?}"
        );
    }
}
