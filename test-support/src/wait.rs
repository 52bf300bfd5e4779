//! Waiting inside one process, by events.
#![expect(clippy::panic, reason = "a test fails by panicking")]

use std::panic::Location;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio_test::task::{self, Spawn};

/// A time limit for a call that is certain to end, on a busy machine. Only a failing test waits
/// until the limit has passed.
pub const SOON: Duration = Duration::from_secs(60);

/// How long a test waits for an event that is certain to happen. The time is longer than any time
/// limit that a test passes to a call, whose error says more, and suffices on a machine that gives
/// the test a thirtieth of a processor. In virtual time no machine is busy.
pub const PATIENCE: Duration = if cfg!(simulation) {
    SOON
} else {
    Duration::from_secs(300)
};

/// Waits for an event that is certain to happen.
///
/// # Panics
/// If it does not happen within [`PATIENCE`]: the message names `what` and the caller.
#[track_caller]
pub fn within<F: Future>(what: &str, future: F) -> impl Future<Output = F::Output> + use<F> {
    let (what, caller) = (what.to_owned(), Location::caller());
    async move {
        match tokio::time::timeout(PATIENCE, future).await {
            Ok(output) => output,
            Err(_) => panic!("{caller}: expected {what} within {PATIENCE:?}"),
        }
    }
}

/// Waits for all of these tasks, for at most [`PATIENCE`] from one end to the next, and returns
/// their results, in the order in which they ended.
///
/// # Panics
/// If one has panicked, or none ends in time.
pub async fn all_done<T: Send + 'static>(what: &str, mut tasks: JoinSet<T>) -> Vec<T> {
    let mut done = Vec::with_capacity(tasks.len());
    while let Some(ended) = within(what, tasks.join_next()).await {
        match ended {
            Ok(output) => done.push(output),
            Err(ended) => std::panic::resume_unwind(ended.into_panic()),
        }
    }
    done
}

/// Returns a future that has been polled once, so that its first step is done, and is not ready.
///
/// # Panics
/// If it is ready.
#[track_caller]
pub fn pending<F: Future>(future: F) -> Spawn<F> {
    let mut future = task::spawn(future);
    assert!(future.poll().is_pending(), "ready at once");
    future
}

/// Returns the waker of a faulty executor, which panics.
#[must_use]
pub fn broken_waker() -> Waker {
    struct Broken;
    impl Wake for Broken {
        fn wake(self: Arc<Self>) {
            panic!("as the test asked for");
        }
    }
    Waker::from(Arc::new(Broken))
}

/// A future that is polled only when the test polls it, and whose wake-ups the test can wait for.
/// If a test waits for no wake-up, `tokio_test::task` is sufficient.
#[derive(Debug)]
pub struct ByHand<F> {
    future: Pin<Box<F>>,
    woken: Arc<Woken>,
}

#[derive(Debug, Default)]
struct Woken(Notify);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.notify_one();
    }
}

impl<F: Future> ByHand<F> {
    /// Returns the future, not polled yet.
    pub fn new(future: F) -> Self {
        Self {
            future: Box::pin(future),
            woken: Arc::default(),
        }
    }

    /// Polls once.
    pub fn poll(&mut self) -> Poll<F::Output> {
        let waker = Waker::from(Arc::clone(&self.woken));
        self.future.as_mut().poll(&mut Context::from_waker(&waker))
    }

    /// Polls once, so that the first step of the future is done.
    ///
    /// # Panics
    /// If the future is ready.
    #[must_use]
    #[track_caller]
    pub fn start(mut self) -> Self {
        assert!(self.poll().is_pending(), "ready at once");
        self
    }

    /// Makes futures until one is pending after its first poll, and returns that one. A lock that is
    /// free may be granted within the first poll if the thread is interrupted in that poll.
    pub fn pending(make: impl Fn() -> F) -> Self {
        loop {
            let mut future = Self::new(make());
            if future.poll().is_pending() {
                return future;
            }
        }
    }

    /// Awaits the future until it is ready, as any other future.
    pub async fn finished(self) -> F::Output {
        self.future.await
    }

    /// Waits until the future asks to be polled. The future is not polled.
    #[track_caller]
    pub fn woken(&self) -> impl Future<Output = ()> + use<F> {
        let woken = Arc::clone(&self.woken);
        within("a wake-up", async move { woken.0.notified().await })
    }
}

/// Runs a future on a minimal executor, without a reactor, timers or tokio.
///
/// # Panics
/// If the future is not ready within [`PATIENCE`].
#[track_caller]
pub fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = std::pin::pin!(future);
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        let left = deadline.saturating_duration_since(Instant::now());
        assert!(
            !left.is_zero(),
            "expected the future to be ready within {PATIENCE:?}"
        );
        thread::park_timeout(left);
    }
}
