//! Tells an attempt that its caller has left.

use tokio::sync::oneshot;

use crate::session::cleanup::Cleanup;
use crate::session::tickets::Ticket;

/// Tells the attempt that its caller has left.
#[derive(Debug)]
pub(super) struct CancelOnDrop {
    cancel: Option<oneshot::Sender<Ticket>>,
    cleanup: Cleanup,
    number: u64,
}

impl CancelOnDrop {
    pub(super) fn new(cancel: oneshot::Sender<Ticket>, cleanup: &Cleanup, number: u64) -> Self {
        Self { cancel: Some(cancel), cleanup: cleanup.clone(), number }
    }

    /// Returns a ticket of the attempt.
    pub(super) fn ticket(&self) -> Ticket {
        self.cleanup.ticket(self.number)
    }

    /// Tells the attempt now.
    pub(super) fn now(&mut self) {
        if let Some(cancel) = self.cancel.take() {
            // A flush that is called right after this waits for the ticket. If the attempt has ended already,
            // the ticket comes back and is dropped.
            drop(cancel.send(self.cleanup.ticket(self.number)));
        }
    }

    /// To be called when the attempt has ended: its caller cannot leave it any more.
    pub(super) fn disarm(&mut self) {
        self.cancel = None;
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.now();
    }
}
