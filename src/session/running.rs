//! Counts the attempts and conversions that may have requests under way in a session, so that its end can
//! wait for them.

use tokio::sync::watch;

/// How many are running.
#[derive(Debug, Default)]
pub(crate) struct RunningCount(watch::Sender<usize>);

impl RunningCount {
    /// Counts one until the result is dropped.
    pub(crate) fn begin(&self) -> Running {
        self.0.send_modify(|running| *running += 1);
        Running(self.0.clone())
    }

    /// Returns a receiver of the count.
    pub(crate) fn watch(&self) -> watch::Receiver<usize> {
        self.0.subscribe()
    }
}

/// An attempt or a conversion that may have requests under way: until it is dropped.
#[derive(Debug)]
pub(crate) struct Running(watch::Sender<usize>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.send_modify(|running| *running = running.saturating_sub(1));
    }
}
