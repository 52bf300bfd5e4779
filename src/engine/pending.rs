//! What a call and its task send to each other: the result, the departure of the caller, and the
//! progress of the task. The task is an attempt to acquire a lock or permits, or the acquisition of
//! several locks as one. Attempts, multi-locks and the shared state of waiting callers use this
//! file. This file starts no task and sends no request.
//!
//! ```text
//!   call: `Pending`  <-- result, once: a grant or an error ---  task: `ReplySide`
//!                    --- a ticket, when the caller leaves --->
//!         `ProgressReceiver`  <-- what the task waits for ----  `ProgressSender`
//! ```
//!
//! The channel has the *result* until the call takes it. A grant that no call takes is dropped with
//! the channel, which releases the lock. The task keeps the *ticket* of a caller that has left
//! until everything that the task leaves is deleted or with cleanup, and
//! [`Client::flush`](crate::Client::flush) waits for that.
//!
//! The *progress* is for the error of a call that ends without a grant. The task writes it, and
//! several readers may read it at any time: the call, the task of the callers that wait together,
//! and the holder of a place in the queue of a fair lock. The attempts that have slots change
//! without the task, so their number is read at the moment of the question.

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
    /// Notifies the task that its caller has left. `None` once the result has been taken, or the
    /// task has been notified.
    cancel: Option<oneshot::Sender<Ticket>>,
    number: AttemptNumber,
}

/// The task's side of a call.
pub(crate) struct ReplySide<T> {
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
    ) -> (Self, ReplySide<T>) {
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
        (pending, ReplySide { reply, cancelled })
    }

    /// Returns the result if it is ready, once.
    pub(crate) fn result_now(&mut self) -> Option<Result<T, TryLockError>> {
        let result = match self.result.as_mut()?.try_recv() {
            Ok(result) => result,
            Err(TryRecvError::Empty) => return None,
            // The task has ended: with its runtime, or by a panic.
            Err(TryRecvError::Closed) => Err(self.client.ended_error(&self.path).into()),
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
        // The executor of the caller polls this future, and a panic of its waker must not end the
        // task that sends the result.
        let answer = waker::contain(self.client.unless_drained(result)).await;
        if answer.is_none() {
            // The client is drained. The attempt leaves the queue as for a dropped caller
            // (docs/protocol.md#drain).
            self.cancel_task();
        }
        self.mark_taken();
        // Without an answer the task has ended, with its runtime or by a panic, or the client is
        // drained.
        answer
            .and_then(Result::ok)
            .unwrap_or_else(|| Err(self.client.ended_error(&self.path).into()))
    }

    /// Returns the error of a call after the result was taken.
    pub(crate) fn used_up(&self) -> AcquireError {
        self.client
            .error(Purpose::Lock, self.path.user(), RequestFailure::PlaceUsed)
            .into()
    }

    fn mark_taken(&mut self) {
        // The task has sent its result, or was cancelled, so the drop of this value cancels
        // nothing.
        self.result = None;
        self.cancel = None;
    }

    /// Notifies the task that its caller has left.
    fn cancel_task(&mut self) {
        // A grant that is already in the channel is released here, before the ticket is dropped, so
        // that a flush counts the node all the time.
        self.result = None;
        if let Some(cancel) = self.cancel.take() {
            // The ticket is made before the caller is gone, so a flush that is called next waits
            // for it. If the task has ended already, the ticket comes back and is dropped.
            drop(cancel.send(self.client.cleanup.ticket(self.number)));
        }
    }
}

impl<T> Drop for Pending<T> {
    fn drop(&mut self) {
        self.cancel_task();
    }
}

/// The state that an attempt and its caller share. A watch channel would be three times as large,
/// and thousands of attempts may be waiting.
#[derive(Default)]
struct ProgressShared {
    known: Mutex<ProgressState>,
    /// Wakes the readers when the node changes, and at the end.
    changed: Notify,
}

#[derive(Default)]
struct ProgressState {
    /// The name of the attempt's node in the queue; `None` while there is none.
    node: Option<Arc<str>>,
    /// The event that the attempt waits for, and the live contenders ahead, by the last list in
    /// this session.
    waiting: Waiting,
    /// Whether live contenders were ahead at any time.
    has_waited: bool,
    /// The slots of the path and the kind of the attempt, while the attempt waits for a slot.
    slots: Option<(Arc<Slots>, Kind)>,
    /// Whether the attempt has ended.
    ended: bool,
}

impl ProgressState {
    /// Returns what the attempt waits for now. While it waits for a slot, the contenders ahead are
    /// the attempts that have one.
    fn waiting(&self) -> Waiting {
        // The copy is changed, and not the state: the attempts that have slots change without this
        // attempt.
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

    /// Sets the slots while the attempt waits for one of them; `None` once the attempt has a slot.
    pub(crate) fn waits_for_slot(&self, slots: Option<(Arc<Slots>, Kind)>) {
        // The contenders are counted now, because they may be gone when the caller asks.
        let has_waited = slots
            .as_ref()
            .is_some_and(|(slots, kind)| slots.ahead(*kind).is_some());
        let mut known = self.0.known.lock();
        known.has_waited |= has_waited;
        known.slots = slots;
    }

    /// Sets the node in the queue. No other change wakes the caller.
    pub(crate) fn set_node(&self, node: Option<&str>) {
        {
            // The mutex is unlocked before the readers are woken, because a waker may read the
            // progress.
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
        // The drop comes with every end of the task, by a panic too, so no reader waits in vain.
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

    /// Waits until this is no longer the node of the attempt. `None` if the attempt ends before.
    pub(crate) async fn left(&self, node: &str) -> Option<()> {
        self.until(|known| (known.node.as_deref() != Some(node)).then_some(()))
            .await
    }

    async fn until<T>(&self, find: impl Fn(&ProgressState) -> Option<T>) -> Option<T> {
        loop {
            let mut changed = pin!(self.0.changed.notified());
            // The wait begins before the look, so that a change after the look is not missed.
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
    fn slot_wait_counts_as_wait() {
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
