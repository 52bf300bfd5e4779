//! How many requests of one sort a session may have unanswered.
//!
//! Requests are answered in order, so a crowd that all ask at once puts the beat, by which every lock of the session lives,
//! behind itself: three thousand waiters of one lock cost their process a lock elsewhere.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A request that finds no slot waits, in order of arrival.
#[derive(Debug)]
pub(crate) struct Window(Arc<Semaphore>);

/// The right to one request, until its answer or the end of the session.
#[derive(Debug)]
#[must_use]
pub(crate) struct Slot {
    _permit: Option<OwnedSemaphorePermit>,
}

impl Window {
    /// So many that a full window costs little more than one flight, and so few that a beat behind them is not late.
    const SIZE: usize = 64;

    pub(crate) async fn slot(&self) -> Slot {
        // Never closed, so there always is one.
        Slot { _permit: Arc::clone(&self.0).acquire_owned().await.ok() }
    }
}

impl Default for Window {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(Self::SIZE)))
    }
}

/// The windows of one session.
#[derive(Debug, Default)]
pub(crate) struct Windows {
    /// Creates of contenders.
    pub(crate) creates: Window,
    /// Deletions of nodes that hold locks, or did: others wait for them.
    pub(crate) releases: Window,
    /// All other deletions.
    pub(crate) removals: Window,
}
