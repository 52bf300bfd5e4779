//! The slots of a path lock, which bound how many of its attempts have nodes at a time
//! (docs/protocol.md#bounded-nodes). Attempts use them. It never sends a request.
//!
//! An attempt takes a slot before it sends anything, in the order of arrival, and frees it when it
//! ends. The nodes that it leaves to cleanup keep the slot until they are deleted: so the nodes of a
//! client at a path are bounded also while no server answers its deletions. That is why a slot has
//! two parts: the permit of the semaphore, which orphans share, and the count of live attempts,
//! which an attempt that waits for a slot reports as contenders ahead of it. Orphans are none
//! (docs/protocol.md#live-contender).
//!
//! The counts are only read for errors and reports, so they need no mutex and no order.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::protocol::late::Ahead;
use crate::protocol::node_name::Kind;

/// The slots of one path lock.
pub(crate) struct Slots {
    max: usize,
    free: Arc<Semaphore>,
    /// How many are those of live attempts. The others are those of orphans.
    live: AtomicUsize,
    /// How many of these wait for other contenders.
    waiting: AtomicUsize,
}

/// The right of an attempt to have nodes. Its orphans keep a copy of the permit until they are
/// deleted.
pub(crate) struct NodeSlot {
    slots: Arc<Slots>,
    /// What an orphan keeps until it is deleted.
    pub(crate) permit: Arc<OwnedSemaphorePermit>,
    waits: AtomicBool,
}

impl Slots {
    pub(crate) fn new(max: usize) -> Arc<Self> {
        Arc::new(Self {
            max,
            free: Arc::new(Semaphore::new(max)),
            live: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
        })
    }

    pub(crate) fn max(&self) -> usize {
        self.max
    }

    /// Returns the live attempts that are ahead of a contender that waits for a slot. Readers are
    /// ahead of a reader only while they wait for others themselves.
    pub(crate) fn ahead(&self, kind: Kind) -> Option<Ahead> {
        let count = match kind {
            Kind::Exclusive => &self.live,
            Kind::Shared => &self.waiting,
        };
        let count = count.load(Ordering::Relaxed);
        (count > 0).then_some(Ahead { count, first: None })
    }

    /// Returns a slot, if one is free.
    pub(crate) fn try_take(self: &Arc<Self>) -> Option<NodeSlot> {
        Arc::clone(&self.free)
            .try_acquire_owned()
            .ok()
            .map(|permit| self.taken(permit))
    }

    /// Waits for a slot, in order of arrival. `None` is not expected: the semaphore is never
    /// closed.
    pub(crate) async fn take(self: &Arc<Self>) -> Option<NodeSlot> {
        Arc::clone(&self.free)
            .acquire_owned()
            .await
            .ok()
            .map(|permit| self.taken(permit))
    }

    fn taken(self: &Arc<Self>, permit: OwnedSemaphorePermit) -> NodeSlot {
        // Counted from the permit on: an attempt that waits for a slot may ask at once.
        self.live.fetch_add(1, Ordering::Relaxed);
        NodeSlot {
            slots: Arc::clone(self),
            permit: Arc::new(permit),
            waits: AtomicBool::new(false),
        }
    }
}

impl NodeSlot {
    /// Sets whether its attempt waits for other contenders.
    pub(crate) fn set_waits(&self, waits: bool) {
        // The attempt says so after each list; only a change counts.
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
