//! What stops an attempt from outside: its deadline, or its caller.

use std::pin::Pin;

use tokio::sync::oneshot;
use tokio::time::Sleep;

use crate::engine::path_lock::Budget;
use crate::session::tickets::Ticket;

/// How an attempt was stopped.
pub(super) enum Stopped {
    /// The caller has left. [`Client::flush`](crate::Client::flush) waits until the ticket is dropped.
    CallerGone(Option<Ticket>),
    OutOfTime,
}

/// What stops an attempt from outside: its deadline, or its caller.
pub(super) struct Stop {
    deadline: Option<Pin<Box<Sleep>>>,
    /// Receives a ticket when the caller leaves. It is kept until everything is left to cleanup.
    cancelled: oneshot::Receiver<Ticket>,
}

impl Stop {
    pub(super) fn new(budget: Budget, cancelled: oneshot::Receiver<Ticket>) -> Self {
        let deadline = match budget {
            Budget::Until { deadline, .. } => Some(tokio::time::sleep_until(deadline.into())),
            // A try has no deadline of the caller's, but does not wait for a server for ever either.
            Budget::Try { timeout } => Some(tokio::time::sleep(timeout)),
            Budget::Forever => None,
        };
        Self { deadline: deadline.map(Box::pin), cancelled }
    }

    /// Waits until the caller leaves. Must not be called again after that.
    pub(super) async fn caller_gone(&mut self) -> Option<Ticket> {
        (&mut self.cancelled).await.ok()
    }

    /// Returns the ticket if the caller has left. Nothing else must be called after that.
    pub(super) fn caller_gone_now(&mut self) -> Option<Ticket> {
        self.cancelled.try_recv().ok()
    }

    /// Waits until the attempt has to stop. Must not be called again after that.
    pub(super) async fn wait(&mut self) -> Stopped {
        let deadline = async {
            match &mut self.deadline {
                Some(deadline) => deadline.await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            ticket = &mut self.cancelled => Stopped::CallerGone(ticket.ok()),
            () = deadline => Stopped::OutOfTime,
        }
    }
}
