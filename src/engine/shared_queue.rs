//! The attempts of one client at one path: how many may have nodes, and their queue: who creates
//! next, who waits for whom, which lists are under way. A path lock and what is above it use it. It
//! never sends a request but the lists, which the attempts hand it.
//!
//! # Slots
//! The [`Slots`] of a path lock bound how many of its attempts have nodes at a time
//! (docs/protocol.md#bounded-nodes). An attempt takes a slot before it sends anything, in the order
//! of arrival, and frees it when it ends. The nodes that it leaves to cleanup keep the slot until
//! they are deleted: so the nodes of a client at a path are bounded also while no server answers its
//! deletions. That is why a slot has two parts: the permit of the semaphore, which orphans share,
//! and the count of live attempts, which an attempt that waits for a slot reports as contenders
//! ahead of it. Orphans are none (docs/protocol.md#live-contender). The counts are only read for
//! errors and reports, so they need no mutex and no order.
//!
//! # The queue
//! The [`LocalQueue`] is behind a mutex that is held for one decision at a time. Notices are sent
//! after it is unlocked: an attempt that is woken asks the queue again, and must not wait for the
//! mutex of its waker.
//!
//! A mutex and a fair lock at one path share the queue, since their nodes are one order. All callers
//! of the queue but the end of a hold run on the session's thread. What is known of the directory for
//! grants without a list is beside it, behind a mutex of its own ([`WithoutList`]).
//!
//! # Lists
//! The attempts share the lists of the directory. A list counts only for nodes that were created
//! before it was sent (docs/protocol.md#shared-lists). So an attempt sends its create first, and
//! gets the next list that is sent after that, never a list that is under way. One list is under
//! way at a time, so that any number of attempts cost one list per round trip.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use zookeeper_client as zk;

use crate::engine::without_list::WithoutList;
use crate::protocol::late::Ahead;
use crate::protocol::local_queue::{Gone, LocalQueue, Notice, Told};
use crate::protocol::node_name::{Kind, Naming};
use crate::protocol::numbers::SessionNumber;
use crate::protocol::queue::Listing;
use crate::session::contents::nodes::NodeOwner;
use crate::session::core::Core;
use crate::session::threads::mutex::Mutex;
use crate::values::path::LockPath;

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

/// A list of the directory, for the attempts that share it.
pub(crate) type ListResult = Result<Listing, zk::Error>;

type AttemptQueue = LocalQueue<oneshot::Sender<Notice>, oneshot::Sender<ListResult>>;

/// The local queue of one client at one path, which a mutex and a fair lock share.
pub(crate) struct SharedQueue {
    queue: Mutex<AttemptQueue>,
    /// What is known of the directory for grants without a list.
    pub(crate) without_list: WithoutList,
}

impl SharedQueue {
    /// Returns the queue of this directory, of nodes with names of this kind.
    pub(crate) fn new(directory: LockPath, naming: Naming) -> Self {
        Self {
            queue: Mutex::default(),
            without_list: WithoutList::new(directory, naming),
        }
    }

    /// Runs one decision of the queue, then sends the notices that come of it.
    pub(crate) fn with<T>(&self, decide: impl FnOnce(&mut AttemptQueue) -> T) -> T {
        let (result, Told { notices, no_list }) = {
            let mut queue = self.queue.lock();
            (decide(&mut queue), queue.take_told())
        };
        for (wake, notice) in notices {
            // An error means that the attempt has left, and the queue removes it.
            let _ = wake.send(notice);
        }
        // The drop of the senders tells these attempts that there is no list.
        drop(no_list);
        result
    }
}

impl NodeOwner for SharedQueue {
    fn deletion_sent(&self, session: SessionNumber, name: &str) {
        self.without_list.deletion_sent(session, name);
    }

    fn gone(&self, session: SessionNumber, name: &str, how: Gone<'_>) {
        // The proof by numbers comes before the notices: an attempt that is woken may create.
        self.without_list.gone(session, name, how);
        self.with(|queue| queue.gone(session, name, how));
    }

    fn next_waiter(&self, session: SessionNumber, name: &str) -> Option<Arc<str>> {
        self.with(|queue| queue.heir(session, name))
    }
}

/// Returns a list that `list` sends after this call, in the session with this number. It is sent
/// even if the future is not polled.
pub(crate) fn ask_list<L, F>(
    queue: &Arc<SharedQueue>,
    client: &Core,
    session: SessionNumber,
    list: L,
) -> impl Future<Output = ListResult> + use<L, F>
where
    L: Fn() -> F + Send + 'static,
    F: Future<Output = ListResult> + Send + 'static,
{
    let (tell, answer) = oneshot::channel();
    if queue.with(|queue| queue.ask_list(session, tell)) {
        let lists = send_lists(Arc::clone(queue), session, list);
        client.tasks.start(lists).detach();
    }
    // There is no answer if the session has ended.
    async move { answer.await.unwrap_or(Err(zk::Error::ConnectionLoss)) }
}

/// The task that lists. If it is dropped before it is done, by a panic, the waiting attempts start
/// again, and the next attempt that asks starts another task.
struct Sending {
    queue: Arc<SharedQueue>,
    session: SessionNumber,
    is_running: bool,
}

impl Drop for Sending {
    fn drop(&mut self) {
        if self.is_running {
            self.queue.with(|queue| queue.stop_lists(self.session));
        }
    }
}

/// Lists for as long as attempts ask. A task on the session's runtime, so that an attempt that
/// leaves does not drop the list of the others.
async fn send_lists<F>(queue: Arc<SharedQueue>, session: SessionNumber, list: impl Fn() -> F + Send)
where
    F: Future<Output = ListResult> + Send,
{
    let mut sending = Sending {
        queue,
        session,
        is_running: true,
    };
    while let Some(waiting) = sending.queue.with(|queue| queue.next_list(session)) {
        // The list is sent after the creates of all attempts that wait for it.
        let result = list().await;
        for tell in waiting {
            // An error means that the attempt has left.
            let _ = tell.send(result.clone());
        }
    }
    // Another task may be running already.
    sending.is_running = false;
}
