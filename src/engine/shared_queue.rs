//! The attempts of one client at one path: how many of them may have nodes, which one creates its
//! node next, which one waits for which, and which lists are under way. Path locks and the layers
//! above use this file. This file sends no request except the lists that the attempts pass to it.
//!
//! ```text
//!   an attempt --> Slots: waits for a slot
//!              --> LocalQueue: waits for its turn --> creates its node
//!              --> asks for a list  --> one list for all attempts that have asked by then
//!              --> waits in memory for a node of this client before its own (a fair lock)
//!              --> leaves: its nodes and its slot go to cleanup
//! ```
//!
//! # Slots
//! The [`Slots`] of a path lock bound how many of its attempts have nodes at a time
//! (docs/protocol.md#bounded-nodes). An attempt takes a slot before it creates a node, in the order
//! of arrival, and frees the slot when it is granted the lock or ends. The nodes that the attempt
//! leaves to cleanup keep the slot until they are deleted, so the nodes of a client at a path are
//! bounded even while no server answers its deletions. So a slot has two parts: the permit of the
//! semaphore, which orphans share, and the count of live attempts. An attempt that waits for a slot
//! reports the live attempts as contenders ahead of it. Orphans are not contenders
//! (docs/protocol.md#live-contender). No grant depends on the counts, so they need no mutex and no
//! order.
//!
//! # The queue
//! The [`LocalQueue`] is behind a mutex that is held for one decision at a time. Notices are sent
//! after the mutex is unlocked, because an attempt that is woken asks the queue again, and must not
//! wait for the thread that has woken it.
//!
//! A mutex and a fair lock at one path share the queue, because their nodes are in one order.
//! Except for the end of a hold, all events of the queue come from the session's thread. The
//! knowledge for grants without a list is beside the queue, behind another mutex ([`WithoutList`]).
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
use crate::protocol::local_queue::{Gone, LocalQueue, Notice, Outbox};
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
    /// How many slots belong to live attempts. The other slots that are taken belong to orphans.
    live: AtomicUsize,
    /// How many of the live attempts wait for other contenders.
    waiting: AtomicUsize,
}

/// The right of an attempt to have nodes. Its orphans keep a copy of the permit until they are
/// deleted.
pub(crate) struct NodeSlot {
    slots: Arc<Slots>,
    /// The permit, of which an orphan keeps a copy until it is deleted.
    pub(crate) permit: Arc<OwnedSemaphorePermit>,
    /// Whether the attempt waits for other contenders, and is counted in `waiting`.
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
        // The attempt is counted as soon as it has the permit, because another attempt that finds
        // no slot may read the count at once.
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
        // The attempt reports this after each list, so only a change is counted.
        match (self.waits.swap(waits, Ordering::Relaxed), waits) {
            (false, true) => self.slots.waiting.fetch_add(1, Ordering::Relaxed),
            (true, false) => self.slots.waiting.fetch_sub(1, Ordering::Relaxed),
            _ => 0,
        };
    }
}

impl Drop for NodeSlot {
    fn drop(&mut self) {
        // Orphans may keep the permit, but the attempt is no contender from now on.
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

    /// Runs one decision of the queue, then sends the notices of that decision.
    pub(crate) fn with<T>(&self, decide: impl FnOnce(&mut AttemptQueue) -> T) -> T {
        let (result, Outbox { notices, no_list }) = {
            let mut queue = self.queue.lock();
            (decide(&mut queue), queue.take_outbox())
        };
        for (wake, notice) in notices {
            // An error means that the attempt has left, and its end removes it from the queue.
            let _ = wake.send(notice);
        }
        // The drop of the senders notifies these attempts that there is no list.
        drop(no_list);
        result
    }
}

impl NodeOwner for SharedQueue {
    fn deletion_sent(&self, session: SessionNumber, name: &str) {
        self.without_list.deletion_sent(session, name);
    }

    fn gone(&self, session: SessionNumber, name: &str, how: Gone<'_>) {
        // The knowledge of the numbers is updated before the notices are sent, because an attempt
        // that is woken may decide by it whether to send a list.
        self.without_list.gone(session, name, how);
        self.with(|queue| queue.gone(session, name, how));
    }

    fn next_waiter(&self, session: SessionNumber, name: &str) -> Option<Arc<str>> {
        self.with(|queue| queue.heir(session, name))
    }
}

/// Returns a list that `list` sends after this call, in the session with this number. The list is
/// sent even if the future is not polled.
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
    let (reply, answer) = oneshot::channel();
    // One task at a time sends the lists. The request is recorded before the task looks for
    // requests again, so a list that is already under way does not count for it.
    if queue.with(|queue| queue.ask_list(session, reply)) {
        let lists = send_lists(Arc::clone(queue), session, list);
        client.tasks.start(lists).detach();
    }
    // There is no answer if the session has ended, or the task of the lists has panicked. The
    // attempt treats that like a lost connection, and asks again or notices the end of the session.
    async move { answer.await.unwrap_or(Err(zk::Error::ConnectionLoss)) }
}

/// The task that sends the lists. If a panic drops the task before it is done, the attempts that
/// wait get no list and ask again, and the first of them starts another task.
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

/// Sends one list after the other, for as long as attempts ask. The work is a separate task, so
/// that an attempt that leaves does not drop the list of the others.
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
        // The list is sent after the creates of all attempts that wait for it, because each has
        // sent its create before it asked (docs/protocol.md#shared-lists).
        let result = list().await;
        for reply in waiting {
            // An error means that the attempt has left.
            let _ = reply.send(result.clone());
        }
    }
    // The queue has recorded the end of this task. Another task may have begun since, and the drop
    // of `sending` must not stop it.
    sending.is_running = false;
}
