//! Whether the machine is to blame.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;

/// Watches whether this machine lets us run: what comes late while it does not is no fault of the
/// library's.
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
                // How much later than that it is.
                tokio::time::sleep_until(due.into()).await;
                let mut longest = seen.lock().unwrap_or_else(PoisonError::into_inner);
                *longest = longest.max(due.elapsed());
            }
        });
        Self { longest, task }
    }

    /// Returns for how long it did not, at the longest.
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
