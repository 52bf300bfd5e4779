//! The progress of an attempt, as its caller sees it.

use std::pin::pin;
use std::sync::Arc;

use tokio::sync::Notify;

use crate::engine::queue::slots::Slots;
use crate::protocol::late::{Ahead, Waiting, WaitsFor};
use crate::protocol::node_name::Kind;
use crate::session::threads::mutex::Mutex;

/// The state that an attempt and its caller share. Not a watch channel, which is three times as large:
/// thousands of attempts may be waiting.
#[derive(Debug, Default)]
struct ProgressShared {
    known: Mutex<ProgressState>,
    /// Told when the node changes, and at the end.
    changed: Notify,
}

#[derive(Debug, Default)]
struct ProgressState {
    /// The name of its node in the queue; `None` while it has none.
    node: Option<Arc<str>>,
    /// The event that it waits for. Has the live contenders ahead, by the last list in this session.
    waiting: Waiting,
    /// Whether there ever were any.
    has_waited: bool,
    /// The slots of which it waits for one, if it does, and for which kind of contender.
    slots: Option<(Arc<Slots>, Kind)>,
    /// Whether the attempt has ended.
    ended: bool,
}

impl ProgressState {
    fn saw(&mut self, ahead: Option<Ahead>) {
        self.has_waited |= ahead.is_some();
        self.waiting.saw(ahead);
    }

    /// Brings it up to date: while it waits for a slot, the attempts that have one now are ahead.
    fn now(&mut self) -> &mut Self {
        if let Some((slots, kind)) = &self.slots {
            let ahead = slots.ahead(*kind);
            self.saw(ahead);
            self.waiting.waits_for(WaitsFor::Slot);
        }
        self
    }
}

/// The attempt's side of its progress.
#[derive(Debug)]
pub(crate) struct ProgressSender(Arc<ProgressShared>);

impl ProgressSender {
    pub(crate) fn new() -> (Self, ProgressReceiver) {
        let shared = Arc::<ProgressShared>::default();
        (Self(Arc::clone(&shared)), ProgressReceiver(shared))
    }

    pub(crate) fn waiting(&self) -> Waiting {
        self.0.known.lock().now().waiting.clone()
    }

    /// Returns the live contenders ahead, if they are known.
    pub(crate) fn ahead(&self) -> Option<Ahead> {
        self.0.known.lock().now().waiting.ahead().cloned()
    }

    /// Sets the slots of which it waits for one; `None` once it has it.
    pub(crate) fn waits_for_slot(&self, slots: Option<(Arc<Slots>, Kind)>) {
        self.0.known.lock().slots = slots;
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
        self.0.known.lock().saw(ahead);
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
#[derive(Clone, Debug)]
pub(crate) struct ProgressReceiver(Arc<ProgressShared>);

impl ProgressReceiver {
    pub(crate) fn waiting(&self) -> Waiting {
        self.0.known.lock().now().waiting.clone()
    }

    /// Returns whether contenders were ahead at any time.
    pub(crate) fn has_waited(&self) -> bool {
        self.0.known.lock().now().has_waited
    }

    /// Waits until the attempt has a node. `None` if it ends, or has ended, without one.
    pub(crate) async fn node(&self) -> Option<Arc<str>> {
        self.until(|known| known.node.clone()).await
    }

    /// Waits until the attempt has this node no longer. `None` if it ends with it.
    pub(crate) async fn left(&self, node: &str) -> Option<()> {
        self.until(|known| (known.node.as_deref() != Some(node)).then_some(())).await
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
