//! Limits how many requests of a session are unanswered (docs/protocol.md#request-window).
//!
//! A session's requests are answered in order, so a heartbeat waits for every request that was sent before
//! it: three thousand waiters of one lock that asked at once cost their process a lock elsewhere.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A limit on unanswered requests of one sort. A request that finds no slot waits for one, in order of
/// arrival.
#[derive(Debug)]
pub(crate) struct Window(Arc<Semaphore>);

/// The right to have one request unanswered: until its answer, or the end of the session.
#[derive(Debug)]
#[must_use]
pub(crate) struct WindowSlot {
    _permit: Option<OwnedSemaphorePermit>,
}

impl Window {
    /// Enough that a full window costs little more than one round trip, and so few that a heartbeat behind it
    /// is on time.
    const SIZE: usize = 64;

    /// Waits for a slot.
    pub(crate) async fn slot(&self) -> WindowSlot {
        // An error is impossible: the semaphore is never closed.
        WindowSlot { _permit: Arc::clone(&self.0).acquire_owned().await.ok() }
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
    /// Creates of attempts' nodes.
    pub(crate) creates: Window,
    /// Deletions of nodes that hold a lock, or held one: other contenders wait for them.
    pub(crate) releases: Window,
    /// All other deletions.
    pub(crate) removals: Window,
}
