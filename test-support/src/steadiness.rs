//! Measures whether the machine stood still, which may be why an event came late.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;

/// Watches whether this machine lets this process run. If it does not, a late event is not the
/// library's fault.
#[derive(Debug)]
pub struct Steadiness {
    longest: Arc<Mutex<Duration>>,
    task: JoinHandle<()>,
}

impl Steadiness {
    /// Watches from now on, in a task of the caller's runtime.
    #[must_use]
    pub fn watch() -> Self {
        let longest = Arc::new(Mutex::new(Duration::ZERO));
        let seen = Arc::clone(&longest);
        let task = tokio::spawn(async move {
            loop {
                let due = Instant::now() + Duration::from_millis(10);
                // The task wakes late by the time for which the machine stood still.
                tokio::time::sleep_until(due.into()).await;
                let mut longest = seen.lock().unwrap_or_else(PoisonError::into_inner);
                *longest = longest.max(due.elapsed());
            }
        });
        Self { longest, task }
    }

    /// Returns the longest time for which the machine did not let this process run.
    #[must_use]
    pub fn stood_still(&self) -> Duration {
        *self.longest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Steadiness {
    fn drop(&mut self) {
        self.task.abort();
    }
}
