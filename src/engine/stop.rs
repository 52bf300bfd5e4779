//! The events that stop an attempt from outside: its deadline, its caller, or that it asks for too much.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::oneshot;
use tokio::time::Sleep;

use crate::engine::first::ask_at;
use crate::engine::look::ask_first;
use crate::engine::path_lock::{Budget, PathLock};
use crate::error::AcquireError;
use crate::session::tickets::Ticket;

/// How an attempt was stopped.
pub(super) enum Stopped {
    /// The caller has left. [`Client::flush`](crate::Client::flush) waits until the ticket is dropped.
    CallerGone(Option<Ticket>),
    OutOfTime,
    /// It asks for what it cannot have.
    Refused(AcquireError),
}

/// Shortly before its deadline an attempt asks who is in its way (docs/protocol.md#held-by).
struct Before {
    deadline: Instant,
    path_lock: Arc<PathLock>,
}

/// What can stop an attempt: its deadline, its caller, or that it asks for too much.
pub(super) struct Stop {
    deadline: Option<Pin<Box<Sleep>>>,
    /// A step before the deadline: the sleep ends for it, and then continues until the deadline.
    before: Option<Box<Before>>,
    /// Receives a ticket when the caller leaves. It is kept until everything is left to cleanup.
    cancelled: oneshot::Receiver<Ticket>,
    /// Finds out whether it asks for what it cannot have.
    refusal: Option<Refusal>,
}

type Refusal = Pin<Box<dyn Future<Output = AcquireError> + Send>>;

impl Stop {
    pub(super) fn new(budget: Budget, cancelled: oneshot::Receiver<Ticket>) -> Self {
        let deadline = match budget {
            Budget::Until { deadline, .. } => Some(tokio::time::sleep_until(deadline.into())),
            // A try has no deadline, but does not wait for a server without end either.
            Budget::Try { timeout } => Some(tokio::time::sleep(timeout)),
            Budget::Forever => None,
        };
        Self { deadline: deadline.map(Box::pin), before: None, cancelled, refusal: None }
    }

    /// Stops the attempt with the error of this future; with `None` not any more.
    pub(super) fn refuse_by(&mut self, refusal: Option<Refusal>) {
        self.refusal = refusal;
    }

    /// Looks up the contenders ahead shortly before the deadline.
    pub(super) fn ask_before(&mut self, budget: Budget, path_lock: &Arc<PathLock>) {
        let (Budget::Until { deadline, asked }, Some(sleep)) = (budget, &mut self.deadline) else { return };
        let Some(at) = ask_at(deadline, asked) else { return };
        sleep.as_mut().reset(at.into());
        self.before = Some(Box::new(Before { deadline, path_lock: Arc::clone(path_lock) }));
    }

    /// Waits until the caller leaves. Must not be called again after that.
    pub(super) async fn caller_gone(&mut self) -> Option<Ticket> {
        (&mut self.cancelled).await.ok()
    }

    /// Waits until the attempt must stop. Must not be called again after that.
    pub(super) async fn wait(&mut self) -> Stopped {
        let deadline = async {
            match &mut self.deadline {
                Some(deadline) => {
                    deadline.as_mut().await;
                    if let Some(before) = self.before.take() {
                        ask_first(&before.path_lock);
                        deadline.as_mut().reset(before.deadline.into());
                        deadline.as_mut().await;
                    }
                }
                None => std::future::pending().await,
            }
        };
        let refusal = async {
            match &mut self.refusal {
                Some(refusal) => refusal.await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            ticket = &mut self.cancelled => Stopped::CallerGone(ticket.ok()),
            () = deadline => Stopped::OutOfTime,
            error = refusal => Stopped::Refused(error),
        }
    }
}
