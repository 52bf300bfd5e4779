//! A call, and the task that works for it and outlives it: the result, the progress, the end. The
//! task is an attempt to get a lock or permits, or the acquisition of several locks as one. The
//! tasks of waiting callers, attempts and multi-locks use it. It starts no task, and never sends a
//! request.
//!
//! The two sides share two things. The *result* goes one way, once: a channel has it until the call
//! takes it, so that a grant that no call takes is dropped with the channel, which releases the
//! lock. A call that goes away sends a ticket the other way. The task keeps the ticket until
//! all that it has left is deleted or with cleanup, and [`Client::flush`](crate::Client::flush)
//! waits for that.
//!
//! The *progress* says what the task waits for, which the error of a call says that ends without a
//! grant. The task writes it, and several may read it at any time: the call, the task of the
//! callers that wait together, and the holder of a place in the queue of a fair lock. Reading
//! changes nothing. What changes without the task, the attempts that have the slots of which it
//! waits for one, is read at the moment of the question.

use std::pin::pin;
use std::sync::Arc;

use tokio::sync::oneshot::error::TryRecvError;
use tokio::sync::{Notify, oneshot};

use crate::engine::shared_queue::Slots;
use crate::error::{AcquireError, Purpose, RequestFailure, TryLockError};
use crate::protocol::late::{Ahead, Waiting, WaitsFor};
use crate::protocol::node_name::Kind;
use crate::protocol::numbers::AttemptNumber;
use crate::session::core::Core;
use crate::session::leftovers::cleanup::Ticket;
use crate::session::threads::mutex::Mutex;
use crate::session::threads::waker;
use crate::values::path::LockPath;

/// A task under way, and its result. Dropping it cancels the task, which then cleans up.
pub(crate) struct Pending<T> {
    client: Arc<Core>,
    path: LockPath,
    /// A grant that is not taken is dropped with this channel, which releases it. `None` once the
    /// result has been taken.
    result: Option<oneshot::Receiver<Result<T, TryLockError>>>,
    /// Tells the task that its caller has left. `None` once the caller cannot leave it any more.
    cancel: Option<oneshot::Sender<Ticket>>,
    number: AttemptNumber,
}

/// The task's side.
pub(crate) struct Caller<T> {
    pub(crate) reply: oneshot::Sender<Result<T, TryLockError>>,
    /// Receives a ticket when the caller leaves.
    pub(crate) cancelled: oneshot::Receiver<Ticket>,
}

impl<T> Pending<T> {
    /// Returns the two sides of a task with this number, for a lock at `path`.
    pub(crate) fn new(
        client: &Arc<Core>,
        path: &LockPath,
        number: AttemptNumber,
    ) -> (Self, Caller<T>) {
        let (reply, result) = oneshot::channel();
        let (cancel, cancelled) = oneshot::channel();
        let (client, path) = (Arc::clone(client), path.clone());
        let pending = Self {
            client,
            path,
            result: Some(result),
            cancel: Some(cancel),
            number,
        };
        (pending, Caller { reply, cancelled })
    }

    /// Returns the result if it is ready, once.
    pub(crate) fn result_now(&mut self) -> Option<Result<T, TryLockError>> {
        let result = match self.result.as_mut()?.try_recv() {
            Ok(result) => result,
            Err(TryRecvError::Empty) => return None,
            // The task has ended: with its runtime, or by a panic.
            Err(TryRecvError::Closed) => Err(self.client.ended(&self.path).into()),
        };
        self.mark_taken();
        Some(result)
    }

    /// Returns whether the result has been taken.
    pub(crate) fn result_taken(&self) -> bool {
        self.result.is_none()
    }

    /// Waits for the result, once. Dropping this future does not cancel the task.
    pub(crate) async fn result(&mut self) -> Result<T, TryLockError> {
        let Some(result) = &mut self.result else {
            return Err(self.used_up().into());
        };
        let answer = waker::contain(self.client.unless_drained(result)).await;
        if answer.is_none() {
            self.cancel_task();
        }
        self.mark_taken();
        // Without an answer the task has ended, with its runtime or by a panic, or the client is
        // drained.
        answer
            .and_then(Result::ok)
            .unwrap_or_else(|| Err(self.client.ended(&self.path).into()))
    }

    /// Returns the error of a call after the result was taken.
    pub(crate) fn used_up(&self) -> AcquireError {
        self.client
            .error(Purpose::Lock, self.path.user(), RequestFailure::PlaceUsed)
            .into()
    }

    fn mark_taken(&mut self) {
        self.result = None;
        self.cancel = None;
    }

    /// Tells the task that its caller has left.
    fn cancel_task(&mut self) {
        // A grant that came in the meantime is released before the ticket is given up, so that a
        // flush counts it all the time.
        self.result = None;
        if let Some(cancel) = self.cancel.take() {
            // A flush that is called right after this waits for the ticket. If the task has ended
            // already, the ticket comes back and is dropped.
            drop(cancel.send(self.client.cleanup.ticket(self.number)));
        }
    }
}

impl<T> Drop for Pending<T> {
    fn drop(&mut self) {
        self.cancel_task();
    }
}

/// The state that an attempt and its caller share. Not a watch channel, which is three times as
/// large: thousands of attempts may be waiting.
#[derive(Default)]
struct ProgressShared {
    known: Mutex<ProgressState>,
    /// Told when the node changes, and at the end.
    changed: Notify,
}

#[derive(Default)]
struct ProgressState {
    /// The name of its node in the queue; `None` while it has none.
    node: Option<Arc<str>>,
    /// The event that it waits for. Has the live contenders ahead, by the last list in this
    /// session.
    waiting: Waiting,
    /// Whether there ever were any.
    has_waited: bool,
    /// The slots of which it waits for one, if it does, and for which kind of contender.
    slots: Option<(Arc<Slots>, Kind)>,
    /// Whether the attempt has ended.
    ended: bool,
}

impl ProgressState {
    /// Returns what it waits for now: while it waits for a slot, for the attempts that have one.
    fn waiting(&self) -> Waiting {
        let mut waiting = self.waiting.clone();
        if let Some((slots, kind)) = &self.slots {
            waiting.saw(slots.ahead(*kind));
            waiting.waits_for(WaitsFor::Slot);
        }
        waiting
    }
}

/// The attempt's side of its progress.
pub(crate) struct ProgressSender(Arc<ProgressShared>);

impl ProgressSender {
    pub(crate) fn new() -> (Self, ProgressReceiver) {
        let shared = Arc::<ProgressShared>::default();
        (Self(Arc::clone(&shared)), ProgressReceiver(shared))
    }

    pub(crate) fn waiting(&self) -> Waiting {
        self.0.known.lock().waiting()
    }

    /// Returns the live contenders ahead, if they are known.
    pub(crate) fn ahead(&self) -> Option<Ahead> {
        self.0.known.lock().waiting().ahead().cloned()
    }

    /// Sets the slots of which it waits for one; `None` once it has it.
    pub(crate) fn waits_for_slot(&self, slots: Option<(Arc<Slots>, Kind)>) {
        let has_waited = slots
            .as_ref()
            .is_some_and(|(slots, kind)| slots.ahead(*kind).is_some());
        let mut known = self.0.known.lock();
        known.has_waited |= has_waited;
        known.slots = slots;
    }

    /// Sets the node in the queue. This is the only change that wakes the caller.
    pub(crate) fn set_node(&self, node: Option<&str>) {
        {
            let mut known = self.0.known.lock();
            if known.node.as_deref() == node {
                return;
            }
            known.node = node.map(Into::into);
        }
        self.0.changed.notify_waiters();
    }

    pub(crate) fn set_ahead(&self, ahead: Option<Ahead>) {
        let mut known = self.0.known.lock();
        known.has_waited |= ahead.is_some();
        known.waiting.saw(ahead);
    }

    pub(crate) fn set_waits_for(&self, waits_for: WaitsFor) {
        self.0.known.lock().waiting.waits_for(waits_for);
    }
}

impl Drop for ProgressSender {
    fn drop(&mut self) {
        self.0.known.lock().ended = true;
        self.0.changed.notify_waiters();
    }
}

/// The caller's side of the progress of an attempt.
#[derive(Clone)]
pub(crate) struct ProgressReceiver(Arc<ProgressShared>);

impl ProgressReceiver {
    pub(crate) fn waiting(&self) -> Waiting {
        self.0.known.lock().waiting()
    }

    /// Returns whether contenders were ahead at any time.
    pub(crate) fn has_waited(&self) -> bool {
        self.0.known.lock().has_waited
    }

    /// Waits until the attempt has a node. `None` if it ends, or has ended, without one.
    pub(crate) async fn node(&self) -> Option<Arc<str>> {
        self.until(|known| known.node.clone()).await
    }

    /// Waits until the attempt has this node no longer. `None` if it ends with it.
    pub(crate) async fn left(&self, node: &str) -> Option<()> {
        self.until(|known| (known.node.as_deref() != Some(node)).then_some(()))
            .await
    }

    async fn until<T>(&self, find: impl Fn(&ProgressState) -> Option<T>) -> Option<T> {
        loop {
            let mut changed = pin!(self.0.changed.notified());
            // This comes before the look, so that a change after it is not missed.
            changed.as_mut().enable();
            let (found, ended) = {
                let known = self.0.known.lock();
                (find(&known), known.ended)
            };
            if found.is_some() || ended {
                return found;
            }
            changed.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether the call is observed or asks meanwhile changes nothing.
    // Shows: live-contender
    #[test]
    fn wait_for_a_slot_is_a_wait() {
        let slots = Slots::new(1);
        let slot = slots.try_take().unwrap();
        let waits = || Some((Arc::clone(&slots), Kind::Exclusive));
        let ((unread, seen), (read, asked)) = (ProgressSender::new(), ProgressSender::new());
        assert!(!seen.has_waited());
        unread.waits_for_slot(waits());
        read.waits_for_slot(waits());
        let ahead = || asked.waiting().ahead().map(|ahead| ahead.count);
        assert_eq!(ahead(), Some(1));
        drop(slot);
        assert_eq!(ahead(), None, "the attempt with the slot has ended");
        for (progress, seen) in [(unread, seen), (read, asked)] {
            progress.waits_for_slot(None);
            assert!(seen.has_waited());
        }
    }
}
