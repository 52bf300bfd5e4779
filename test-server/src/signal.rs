//! Waiting for a condition, on any runtime or on a thread.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::watch;

/// Locks a mutex, even if it is poisoned: a panic in a caller's closure does not make the server
/// unusable.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A signal that something has changed, on which waiters evaluate their conditions again.
#[derive(Debug)]
pub(crate) struct Signal {
    version: watch::Sender<u64>,
    blocked: Mutex<()>,
    condvar: Condvar,
}

impl Signal {
    pub(crate) fn new() -> Self {
        Self {
            version: watch::Sender::new(0),
            blocked: Mutex::new(()),
            condvar: Condvar::new(),
        }
    }

    pub(crate) fn raise(&self) {
        let _blocked = lock(&self.blocked);
        self.version.send_modify(|version| *version += 1);
        self.condvar.notify_all();
    }

    /// Waits until a condition holds. The condition is evaluated now and after every change.
    pub(crate) async fn until(&self, mut condition: impl FnMut() -> bool + Send) {
        let mut version = self.version.subscribe();
        while !condition() {
            // The sender lives as long as `self`, so the wait cannot fail.
            let _ = version.changed().await;
        }
    }

    /// Blocks until a condition holds; returns whether it did in time.
    pub(crate) fn until_blocking(
        &self,
        mut condition: impl FnMut() -> bool,
        timeout: Duration,
    ) -> bool {
        let deadline = Instant::now().checked_add(timeout);
        loop {
            let seen = *self.version.borrow();
            if condition() {
                return true;
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                return false;
            }
            let blocked = lock(&self.blocked);
            if *self.version.borrow() == seen {
                // The condition is evaluated again after each wake-up.
                let left = left.unwrap_or(Duration::from_secs(3600));
                drop(
                    self.condvar
                        .wait_timeout(blocked, left)
                        .unwrap_or_else(PoisonError::into_inner),
                );
            }
        }
    }
}
