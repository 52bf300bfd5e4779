//! Bounds how many attempts of a path lock have a node at a time (docs/protocol.md#bounded-nodes).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::protocol::late::Ahead;
use crate::protocol::node_name::Kind;

/// The slots of one path lock.
#[derive(Debug)]
pub(crate) struct Slots {
    max: usize,
    free: Arc<Semaphore>,
    /// How many are those of live attempts. The others are those of orphans.
    live: AtomicUsize,
    /// How many of these wait for other contenders.
    waiting: AtomicUsize,
}

/// The right of an attempt to have nodes. Its orphans keep a copy of the permit until they are deleted.
#[derive(Debug)]
pub(crate) struct NodeSlot {
    slots: Arc<Slots>,
    permit: Arc<OwnedSemaphorePermit>,
    waits: AtomicBool,
}

impl Slots {
    pub(super) fn new(max: usize) -> Arc<Self> {
        Arc::new(Self {
            max,
            free: Arc::new(Semaphore::new(max)),
            live: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
        })
    }

    pub(super) fn max(&self) -> usize {
        self.max
    }

    /// Returns the live attempts that are ahead of a contender that waits for a slot. Readers are ahead of a reader only
    /// while they wait for others themselves.
    pub(super) fn ahead(&self, kind: Kind) -> Option<Ahead> {
        let count = match kind {
            Kind::Exclusive => &self.live,
            Kind::Shared => &self.waiting,
        };
        let count = count.load(Ordering::Relaxed);
        (count > 0).then_some(Ahead { count, first: None })
    }

    /// Returns a slot, if one is free.
    pub(super) fn try_take(self: &Arc<Self>) -> Option<NodeSlot> {
        Arc::clone(&self.free).try_acquire_owned().ok().map(|permit| self.taken(permit))
    }

    /// Waits for a slot, in order of arrival. `None` is not expected: the semaphore is never closed.
    pub(super) async fn take(self: &Arc<Self>) -> Option<NodeSlot> {
        Arc::clone(&self.free).acquire_owned().await.ok().map(|permit| self.taken(permit))
    }

    fn taken(self: &Arc<Self>, permit: OwnedSemaphorePermit) -> NodeSlot {
        self.live.fetch_add(1, Ordering::Relaxed);
        NodeSlot { slots: Arc::clone(self), permit: Arc::new(permit), waits: AtomicBool::new(false) }
    }
}

impl NodeSlot {
    /// Returns what an orphan keeps until it is deleted.
    pub(super) fn permit(&self) -> Arc<OwnedSemaphorePermit> {
        Arc::clone(&self.permit)
    }

    /// Sets whether its attempt waits for other contenders.
    pub(super) fn set_waits(&self, waits: bool) {
        match (self.waits.swap(waits, Ordering::Relaxed), waits) {
            (false, true) => self.slots.waiting.fetch_add(1, Ordering::Relaxed),
            (true, false) => self.slots.waiting.fetch_sub(1, Ordering::Relaxed),
            _ => 0,
        };
    }
}

impl Drop for NodeSlot {
    fn drop(&mut self) {
        self.set_waits(false);
        self.slots.live.fetch_sub(1, Ordering::Relaxed);
    }
}
