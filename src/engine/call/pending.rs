//! The caller's side of a task that outlives it: of an attempt to get a lock or permits, or of the acquisition
//! of several locks as one.

use std::sync::Arc;

use tokio::sync::oneshot;
use tokio::sync::oneshot::error::TryRecvError;

use crate::error::{AcquireError, Purpose, RequestFailure, TryLockError};
use crate::session::core::Core;
use crate::session::leftovers::cleanup::{Cleanup, Ticket};
use crate::values::path::LockPath;

/// Receives the result of a task.
pub(crate) type ResultReceiver<T> = oneshot::Receiver<Result<T, TryLockError>>;

/// A task under way, and its result. Dropping it cancels the task, which then cleans up.
#[derive(Debug)]
pub(crate) struct Pending<T> {
    client: Arc<Core>,
    path: LockPath,
    /// A grant that is not taken is dropped with this channel, which releases it. `None` once the result has
    /// been taken.
    result: Option<ResultReceiver<T>>,
    cancel: CancelOnDrop,
}

/// The task's side.
pub(crate) struct Caller<T> {
    pub(crate) reply: oneshot::Sender<Result<T, TryLockError>>,
    /// Receives a ticket when the caller leaves.
    pub(crate) cancelled: oneshot::Receiver<Ticket>,
}

impl<T> Pending<T> {
    /// Returns the two sides of a task with this number, for a lock at `path`.
    pub(crate) fn new(client: &Arc<Core>, path: &LockPath, number: u64) -> (Self, Caller<T>) {
        let (reply, result) = oneshot::channel();
        let (cancel, cancelled) = oneshot::channel();
        let cancel = CancelOnDrop::new(cancel, &client.cleanup, number);
        let pending = Self { client: Arc::clone(client), path: path.clone(), result: Some(result), cancel };
        (pending, Caller { reply, cancelled })
    }

    /// Separates the wait for the result from the value whose drop cancels the task.
    pub(crate) fn split(self) -> (Option<ResultReceiver<T>>, CancelOnDrop) {
        (self.result, self.cancel)
    }

    /// Returns the result if it is ready, once.
    pub(crate) fn result_now(&mut self) -> Option<Result<T, TryLockError>> {
        let result = match self.result.as_mut()?.try_recv() {
            Ok(result) => result,
            Err(TryRecvError::Empty) => return None,
            // The task has ended: with its runtime, or by a panic.
            Err(TryRecvError::Closed) => Err(self.client.ended(&self.path).into()),
        };
        self.is_taken();
        Some(result)
    }

    /// Returns whether the result has been taken.
    pub(crate) fn result_taken(&self) -> bool {
        self.result.is_none()
    }

    /// Waits for the result, once. Dropping this future does not cancel the task.
    pub(crate) async fn result(&mut self) -> Result<T, TryLockError> {
        let Some(result) = &mut self.result else { return Err(self.used_up().into()) };
        let answer = self.client.unless_drained(result).await;
        if answer.is_none() {
            self.cancel.now();
        }
        self.is_taken();
        // Without an answer the task has ended, with its runtime or by a panic, or the client is drained.
        answer.and_then(Result::ok).unwrap_or_else(|| Err(self.client.ended(&self.path).into()))
    }

    /// Returns the error of a call after the result was taken.
    pub(crate) fn used_up(&self) -> AcquireError {
        self.client.error(Purpose::Lock, self.path.user(), RequestFailure::PlaceUsed).into()
    }

    fn is_taken(&mut self) {
        self.result = None;
        self.cancel.disarm();
    }
}

/// Tells a task that its caller has left.
#[derive(Debug)]
pub(crate) struct CancelOnDrop {
    cancel: Option<oneshot::Sender<Ticket>>,
    cleanup: Cleanup,
    number: u64,
}

impl CancelOnDrop {
    pub(crate) fn new(cancel: oneshot::Sender<Ticket>, cleanup: &Cleanup, number: u64) -> Self {
        Self { cancel: Some(cancel), cleanup: cleanup.clone(), number }
    }

    /// Returns a ticket of the task.
    pub(crate) fn ticket(&self) -> Ticket {
        self.cleanup.ticket(self.number)
    }

    /// Tells the task now.
    fn now(&mut self) {
        if let Some(cancel) = self.cancel.take() {
            // A flush that is called right after this waits for the ticket. If the task has ended already, the
            // ticket comes back and is dropped.
            drop(cancel.send(self.cleanup.ticket(self.number)));
        }
    }

    /// To be called when the task has ended: its caller cannot leave it any more.
    fn disarm(&mut self) {
        self.cancel = None;
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.now();
    }
}
