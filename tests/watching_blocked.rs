//! A tracing subscriber, and with the feature `metrics` a recorder, that block and panic run on
//! their own thread and cost no lock. The test runs alone in its process, which has one such
//! thread.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::{Condvar, MutexGuard, PoisonError};

use test_support::prelude::*;
use tokio::sync::Notify;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Without heartbeats, a lock would be lost after two thirds of this timeout.
const TIMEOUT: Duration = Duration::from_secs(4);

/// More calls than the queue of notes holds.
const CALLS: usize = 70_000;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Mood {
    #[default]
    Good,
    Blocks,
    Panics,
}

#[derive(Default)]
struct State {
    mood: Mood,
    /// Whether a thread has entered the subscriber while it blocks.
    inside: bool,
    granted: u64,
    missed: u64,
}

static STATE: Mutex<State> = Mutex::new(State {
    mood: Mood::Good,
    inside: false,
    granted: 0,
    missed: 0,
});
static CHANGED: Condvar = Condvar::new();
static NEWS: Notify = Notify::const_new();

fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn be(mood: Mood) {
    state().mood = mood;
    CHANGED.notify_all();
}

/// Acts as foreign code in the current mood.
fn foreign() {
    let mut state = state();
    while state.mood == Mood::Blocks {
        state.inside = true;
        NEWS.notify_one();
        state = CHANGED.wait(state).unwrap_or_else(PoisonError::into_inner);
    }
    let panics = state.mood == Mood::Panics;
    drop(state);
    assert!(!panics, "as the test asked for");
}

async fn until(what: &str, is_it: impl Fn(&State) -> bool) {
    while !is_it(&state()) {
        within(what, NEWS.notified()).await;
    }
}

struct Foreign;

impl Subscriber for Foreign {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "zookeeper_recipes::lock"
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        foreign();
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {
        foreign();
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        foreign();
        struct Missed(u64);
        impl tracing::field::Visit for Missed {
            fn record_u64(&mut self, _: &tracing::field::Field, value: u64) {
                self.0 = value;
            }
            fn record_debug(&mut self, _: &tracing::field::Field, _: &dyn std::fmt::Debug) {}
        }
        match event.metadata().name() {
            "lock.granted" => state().granted += 1,
            "observer.missed" => {
                let mut missed = Missed(0);
                event.record(&mut missed);
                state().missed += missed.0;
            }
            _ => {}
        }
        NEWS.notify_one();
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}

    fn try_close(&self, _: Id) -> bool {
        foreign();
        true
    }
}

/// Blocks and panics as the subscriber does.
#[cfg(feature = "metrics")]
mod recorder {
    use std::sync::Arc;

    use metrics::{
        Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata,
        Recorder, SharedString, Unit,
    };

    use super::foreign;

    pub(super) struct Foreign;

    impl CounterFn for Foreign {
        fn increment(&self, _: u64) {
            foreign();
        }
        fn absolute(&self, _: u64) {}
    }

    impl GaugeFn for Foreign {
        fn increment(&self, _: f64) {}
        fn decrement(&self, _: f64) {}
        fn set(&self, _: f64) {
            foreign();
        }
    }

    impl HistogramFn for Foreign {
        fn record(&self, _: f64) {
            foreign();
        }
    }

    impl Recorder for Foreign {
        fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {
            foreign();
        }
        fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
        fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
        fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
            foreign();
            Counter::from_arc(Arc::new(Self))
        }
        fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
            Gauge::from_arc(Arc::new(Self))
        }
        fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
            Histogram::from_arc(Arc::new(Self))
        }
    }
}

/// A single test, because a process has one subscriber, one recorder, and one thread that notifies
/// them.
// Shows: told-apart
#[tokio::test]
async fn watcher_costs_no_lock() {
    tracing::subscriber::set_global_default(Foreign).unwrap();
    #[cfg(feature = "metrics")]
    metrics::set_global_recorder(recorder::Foreign)
        .map_err(|_| ())
        .unwrap();
    for mood in [Mood::Blocks, Mood::Panics] {
        locks_outlive_a_watcher_that(mood).await;
    }
    unobservable_call_is_counted().await;
}

async fn locks_outlive_a_watcher_that(mood: Mood) {
    let server = start();
    let client = connect_as(Client::builder().session_timeout(TIMEOUT), &server).await;
    be(mood);
    let guard = within("the lock", mutex(&client).lock()).await.unwrap();
    if mood == Mood::Blocks {
        until("a blocked thread", |state| state.inside).await;
    }
    // The sleep is longer than a session lives without heartbeats.
    tokio::time::sleep(TIMEOUT).await;
    assert!(guard.is_held(), "{:?}", guard.state());
    // The calls are hand-overs of both kinds, and releases by a call and by a drop; a conversion
    // would be equivalent.
    let mut waiter = task::spawn(mutex(&client).lock());
    assert_pending!(waiter.poll());
    within("the release", guard.release()).await.unwrap();
    drop(within("the lock", waiter).await.unwrap());
    let shared = InterProcessMutex::builder(&client, "/locks/shared")
        .hand_off(8, SOON)
        .build()
        .unwrap();
    let holder = within("the lock", shared.lock()).await.unwrap();
    let mut waiter = task::spawn(shared.lock());
    assert_pending!(waiter.poll());
    drop(holder);
    drop(within("the lock", waiter).await.unwrap());
    within("what was left", client.flush(SOON)).await.unwrap();
    // The caller is cancelled and must not be reported as granted.
    let mut cancelled = task::spawn(shared.lock());
    // On a busy machine the grant may come during this poll.
    let _ = cancelled.poll();
    drop(cancelled);
    within("the end", client.close()).await.unwrap();
    be(Mood::Good);
    // Later calls are reported, in both moods.
    let before = state().granted;
    let client = connect_as(Client::builder().session_timeout(TIMEOUT), &server).await;
    within("the lock", mutex(&client).lock())
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    until("a grant", |state| state.granted > before).await;
}

async fn unobservable_call_is_counted() {
    let server = start();
    let client = connect_as(Client::builder().session_timeout(TIMEOUT), &server).await;
    // Readers that join another cost no request.
    let lock = InterProcessReadWriteLock::builder(&client, "/locks/shared")
        .hand_off(u32::MAX, Duration::from_secs(3600))
        .build()
        .unwrap();
    let readers = lock.read_lock();
    let _inside = within("the lock", readers.lock()).await.unwrap();
    state().inside = false;
    be(Mood::Blocks);
    for _ in 0..CALLS {
        drop(within("the lock", readers.lock()).await.unwrap());
    }
    be(Mood::Good);
    until("what was missed", |state| state.missed > 0).await;
    // Each observed call makes three notes.
    let missed = usize::try_from(state().missed).unwrap();
    assert!((CALLS - 65_536..CALLS).contains(&missed), "{missed}");
    let before = state().granted;
    drop(within("the lock", readers.lock()).await.unwrap());
    until("a grant", |state| state.granted > before).await;
    assert!(before as usize + missed >= CALLS);
}
