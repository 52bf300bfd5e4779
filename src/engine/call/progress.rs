//! The progress of an attempt, as its caller sees it.

use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::engine::queue::slots::Slots;
use crate::protocol::late::{Ahead, Waiting, WaitsFor};
use crate::protocol::node_name::Kind;

/// The progress of an attempt.
#[derive(Clone, Debug, Default)]
pub(crate) struct Progress {
    /// The name of its node in the queue; `None` while it has none.
    pub(crate) node: Option<Arc<str>>,
    /// The event that it waits for. Has the live contenders ahead, by the last list in this session.
    pub(crate) waiting: Waiting,
    /// Whether there ever were any.
    pub(crate) has_waited: bool,
}

/// The state that an attempt and its caller share. Not a watch channel, which is three times as large:
/// thousands of attempts may be waiting.
#[derive(Debug, Default)]
struct Shared {
    known: Mutex<Known>,
    /// Told when the node changes, and at the end.
    changed: Notify,
}

#[derive(Debug, Default)]
struct Known {
    progress: Progress,
    /// The slots of which it waits for one, if it does, and for which kind of contender.
    slots: Option<(Arc<Slots>, Kind)>,
    /// Whether the attempt has ended.
    ended: bool,
}

impl Known {
    /// Returns the progress. While it waits for a slot, the attempts that have one now are ahead.
    fn now(&mut self) -> &mut Progress {
        let Self { progress, slots, .. } = self;
        if let Some((slots, kind)) = slots {
            let ahead = slots.ahead(*kind);
            progress.has_waited |= ahead.is_some();
            progress.waiting.saw(ahead);
            progress.waiting.waits_for(WaitsFor::Slot);
        }
        progress
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The attempt's side of its progress.
#[derive(Debug)]
pub(crate) struct ProgressSender(Arc<Shared>);

impl ProgressSender {
    pub(crate) fn new() -> (Self, ProgressReceiver) {
        let shared = Arc::<Shared>::default();
        (Self(Arc::clone(&shared)), ProgressReceiver(shared))
    }

    pub(crate) fn get(&self) -> Progress {
        self.0.lock().now().clone()
    }

    /// Returns the live contenders ahead, if they are known.
    pub(crate) fn ahead(&self) -> Option<Ahead> {
        self.0.lock().now().waiting.ahead().cloned()
    }

    /// Sets the slots of which it waits for one; `None` once it has it.
    pub(crate) fn waits_for_slot(&self, slots: Option<(Arc<Slots>, Kind)>) {
        self.0.lock().slots = slots;
    }

    /// Sets the node in the queue. This is the only change that wakes the caller.
    pub(crate) fn set_node(&self, node: Option<&str>) {
        {
            let progress = &mut self.0.lock().progress;
            if progress.node.as_deref() == node {
                return;
            }
            progress.node = node.map(Into::into);
        }
        self.0.changed.notify_waiters();
    }

    pub(crate) fn set_ahead(&self, ahead: Option<Ahead>) {
        let progress = &mut self.0.lock().progress;
        progress.has_waited |= ahead.is_some();
        progress.waiting.saw(ahead);
    }

    pub(crate) fn set_waits_for(&self, waits_for: WaitsFor) {
        self.0.lock().progress.waiting.waits_for(waits_for);
    }
}

impl Drop for ProgressSender {
    fn drop(&mut self) {
        self.0.lock().ended = true;
        self.0.changed.notify_waiters();
    }
}

/// The caller's side of the progress of an attempt.
#[derive(Clone, Debug)]
pub(crate) struct ProgressReceiver(Arc<Shared>);

impl ProgressReceiver {
    pub(crate) fn get(&self) -> Progress {
        self.0.lock().now().clone()
    }

    /// Waits until the attempt has a node. `None` if it ends, or has ended, without one.
    pub(crate) async fn node(&self) -> Option<Arc<str>> {
        self.until(|known| known.progress.node.clone()).await
    }

    /// Waits until the attempt has this node no longer. `None` if it ends with it.
    pub(crate) async fn left(&self, node: &str) -> Option<()> {
        self.until(|known| (known.progress.node.as_deref() != Some(node)).then_some(())).await
    }

    async fn until<T>(&self, find: impl Fn(&Known) -> Option<T>) -> Option<T> {
        loop {
            let mut changed = pin!(self.0.changed.notified());
            // This comes before the look, so that a change after it is not missed.
            changed.as_mut().enable();
            let (found, ended) = {
                let known = self.0.lock();
                (find(&known), known.ended)
            };
            if found.is_some() || ended {
                return found;
            }
            changed.await;
        }
    }
}
