//! The [`LocalQueue`] of one client and path, as its attempts share it: behind a lock that is held for one decision, whose
//! wakers are woken after it.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::oneshot;
use zookeeper_client as zk;

use crate::protocol::local_queue::{Gone, LocalQueue, Notice, Told};
use crate::protocol::queue::Listing;
use crate::session::nodes::NodeOwner;

/// A list of the directory, as those that share it are told it.
pub(super) type ListResult = Result<Listing, zk::Error>;

type Queue = LocalQueue<oneshot::Sender<Notice>, oneshot::Sender<ListResult>>;

/// The local queue of the path locks of one client at one path: a mutex's and a fair lock's are one.
#[derive(Default)]
pub(super) struct SharedQueue(Mutex<Queue>);

impl SharedQueue {
    /// Asks the queue, or tells it something, and then wakes those whom that concerns.
    pub(super) fn with<T>(&self, decide: impl FnOnce(&mut Queue) -> T) -> T {
        let (result, Told { notices, no_list }) = {
            let mut queue = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            (decide(&mut queue), queue.take_told())
        };
        for (wake, notice) in notices {
            // An error: it has gone, of which the queue is told as well.
            let _ = wake.send(notice);
        }
        // Told by the drop.
        drop(no_list);
        result
    }
}

impl fmt::Debug for SharedQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Its attempts may be thousands.
        f.debug_struct("SharedQueue").finish_non_exhaustive()
    }
}

impl NodeOwner for SharedQueue {
    fn gone(&self, session: u64, name: &str, how: Gone<'_>) {
        self.with(|queue| queue.gone(session, name, how));
    }

    fn heir(&self, session: u64, name: &str) -> Option<Arc<str>> {
        self.with(|queue| queue.heir(session, name))
    }
}

/// An attempt's place in the queue, or its wait for one. It is free when all that need it have dropped it: the attempt, the
/// hold that came of it, and clean-up for each node that is left.
#[derive(Debug)]
pub(crate) struct Place {
    queue: Arc<SharedQueue>,
    number: u64,
}

impl Place {
    /// For the attempt with this number, which is about to arrive.
    pub(super) fn new(queue: &Arc<SharedQueue>, number: u64) -> Arc<Self> {
        Arc::new(Self { queue: Arc::clone(queue), number })
    }

    /// Says whether an attempt or a hold has it, or what is left of one.
    pub(crate) fn set_live(&self, live: bool) {
        self.queue.with(|queue| queue.set_live(self.number, live));
    }

    /// Says whether its attempt has seen a live contender before it.
    pub(crate) fn set_waits(&self, waits: bool) {
        self.queue.with(|queue| queue.set_waits(self.number, waits));
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.queue.with(|queue| queue.free(self.number));
    }
}
