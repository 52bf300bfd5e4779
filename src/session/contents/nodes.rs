//! The nodes of one session: those that exist as far as is known, and those that may exist and are
//! to be deleted. Each node is recorded here once, by its path, usually from the answer to its
//! create until the answer that shows that it is gone.
//!
//! ```text
//!                add              mark_leaving               refused
//!   a create ----------> live -------------------> leaving -----------> leaving, refused
//!                          |                          |                        |
//!                          +--------------------------+------------------------+--> gone
//! ```
//!
//! A live node is a contender, or the lease of a permit. A node that is to be deleted counts as
//! neither, so a try does not fail because of it, but waits for its end
//! (docs/protocol.md#live-contender). The thread that releases the lock marks the node before it
//! sends the deletion. A refused orphan blocks every contender until the session ends, and the
//! contenders that wait behind it are notified of that (docs/protocol.md#refused-orphan). Usually
//! few nodes are leaving, so leaving nodes are kept separately, and a query for them reads no live
//! node.
//!
//! The owner of a node is the queue of its directory; the lease of a permit has none. The owner is
//! notified when the node ends, because fair waiters of this session wait for that in memory
//! (docs/protocol.md#waiting-in-memory). The other contents of a session have other keys: a create
//! has its id, before its node has a name ([`creates`](super::creates)), and a hold has its number,
//! because several holds may share a node, and one hold has two nodes during a downgrade
//! ([`holds`](super::holds)).
//!
//! The mutex is held for one change. Owners and waiting tasks are notified after it is unlocked.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Weak};

use tokio::sync::{oneshot, watch};

use crate::protocol::local_queue::Gone;
use crate::protocol::numbers::SessionNumber;
use crate::session::contents::creates::Creates;
use crate::session::threads::mutex::Mutex;
use crate::values::path::{LockPath, node_name};

/// The queue of a node's directory. References to it are weak, because a queue without contenders
/// need not be notified.
pub(crate) trait NodeOwner: Send + Sync {
    /// Notifies the owner that the deletion of the node `name`, in the session with this number,
    /// was sent. The deletion is answered before any request that is sent from now on.
    fn deletion_sent(&self, session: SessionNumber, name: &str);

    /// Notifies the owner that the node `name` of the session with this number is gone, or that its
    /// deletion is refused. The caller holds no mutex of the session. Nodes that end with the
    /// session are not reported.
    fn gone(&self, session: SessionNumber, name: &str, how: Gone<'_>);

    /// Returns the node of a waiter to which a lock that is held with the node `name` can be handed
    /// over (docs/protocol.md#hand-over). `None` if there is none.
    fn next_waiter(&self, session: SessionNumber, name: &str) -> Option<Arc<str>>;
}

/// A node that the servers refuse to delete: it blocks every contender until the session ends.
#[derive(Clone)]
pub(crate) struct RefusedOrphan {
    pub(crate) directory: LockPath,
    pub(crate) name: String,
}

/// The nodes of one session.
pub(crate) struct Nodes {
    session: SessionNumber,
    state: Mutex<KnownNodes>,
    /// The number of nodes. Heartbeats are sent while there are any.
    count: watch::Sender<usize>,
    /// The number of refused deletions. Contenders that wait behind a node watch this number,
    /// because the node may become a refused orphan.
    refusals: watch::Sender<u64>,
    pub(crate) creates: Arc<Creates>,
}

/// The nodes by their server paths. Each node is in one of the two maps.
#[derive(Default)]
struct KnownNodes {
    /// The live nodes, each with its owner.
    live: BTreeMap<String, Weak<dyn NodeOwner>>,
    /// The nodes that are to be deleted. The map is ordered, so that orphans are reported in the
    /// same order each time.
    leaving: BTreeMap<String, LeavingNode>,
}

/// A node that is to be deleted, if it exists.
#[derive(Default)]
struct LeavingNode {
    /// `None` for a node that no attempt knew.
    owner: Option<Weak<dyn NodeOwner>>,
    /// The node as an orphan, once the servers have refused to delete it.
    refused: Option<RefusedOrphan>,
    /// The tasks that wait for the end of the node, or a refusal; a drop of the senders wakes them.
    waiting: Vec<oneshot::Sender<()>>,
}

impl Nodes {
    pub(crate) fn new(session: SessionNumber, max_bytes: usize) -> Self {
        Self {
            session,
            state: Mutex::default(),
            count: watch::Sender::new(0),
            refusals: watch::Sender::default(),
            creates: Creates::new(max_bytes),
        }
    }

    fn change<T>(&self, change: impl FnOnce(&mut KnownNodes) -> T) -> T {
        let mut state = self.state.lock();
        let result = change(&mut state);
        let count = state.live.len() + state.leaving.len();
        // The count is set under the mutex, so that the later of two threads determines it.
        self.count
            .send_if_modified(|known| std::mem::replace(known, count) != count);
        result
    }

    /// Adds a node that was created, or found, with its owner.
    pub(crate) fn add(&self, path: String, owner: Weak<dyn NodeOwner>) {
        self.change(|state| {
            // A list may show a node that cleanup has by now. The node stays one to delete, and its
            // queue is notified of its end.
            if let Some(node) = state.leaving.get_mut(&path) {
                node.owner = Some(owner);
                return;
            }
            // A node that was created may be found again, by a list, and counts once.
            if !state.live.contains_key(&path) {
                self.creates.became(&path);
            }
            state.live.insert(path, owner);
        });
    }

    /// Records that a node, if it exists, is to be deleted.
    pub(crate) fn mark_leaving(&self, path: String) {
        self.change(|state| {
            let owner = state.live.remove(&path);
            // The node is not recorded, or not any more: a list has shown the node of a create
            // without an answer, or the node is gone. Such a node counts until its deletion is
            // answered.
            if owner.is_none() && !state.leaving.contains_key(&path) {
                self.creates.became(&path);
            }
            // A node may be marked twice, first by its attempt and then by cleanup. Its owner and
            // the tasks that wait for its end stay.
            let node = state.leaving.entry(path).or_default();
            node.owner = owner.or_else(|| node.owner.take());
        });
    }

    /// Returns whether a child of a directory is to be deleted, and so is no live contender.
    pub(crate) fn is_leaving(&self, directory: &LockPath, name: &str) -> bool {
        !self.leaving_of(directory, std::iter::once(name)).is_empty()
    }

    /// Returns the children of a directory that are to be deleted. The mutexes are locked once for
    /// thousands of children, and no child is looked up if no node is leaving.
    pub(crate) fn leaving_of<'a>(
        &self,
        directory: &LockPath,
        children: impl Iterator<Item = &'a str> + Clone,
    ) -> HashSet<&'a str> {
        // The abandoned creates are read first, because a node is marked as leaving before its
        // create is removed from them.
        let mut leaving = self.creates.abandoned_of(children.clone());
        let state = self.state.lock();
        if state.leaving.is_empty() {
            return leaving;
        }
        // One buffer serves for the paths of all children.
        let mut path = directory.child("");
        let beginning = path.len();
        let is_leaving = |name: &&str| {
            path.truncate(beginning);
            path.push_str(name);
            state.leaving.contains_key(&path)
        };
        leaving.extend(children.filter(is_leaving));
        leaving
    }

    /// Records that the servers refuse to delete a node, if it exists.
    pub(crate) fn refused(&self, directory: &LockPath, name: &str) {
        let path = directory.child(name);
        let orphan = RefusedOrphan {
            directory: directory.clone(),
            name: name.to_owned(),
        };
        let (owner, waiting, first) = {
            let mut state = self.state.lock();
            // Deletions are sent only for leaving nodes, and for a name that cannot exist, by which
            // cleanup proves an absence (docs/protocol.md#write-barrier) and which is no orphan.
            let Some(node) = state.leaving.get_mut(&path) else {
                return;
            };
            let (owner, waiting) = (node.owner.clone(), std::mem::take(&mut node.waiting));
            (owner, waiting, node.refused.replace(orphan).is_none())
        };
        // A flush, and each attempt on the path, requests the deletion once more. A second refusal
        // wakes no task, because the contenders behind the node know it as an orphan.
        if first {
            self.refusals
                .send_modify(|refusals| *refusals = refusals.wrapping_add(1));
        }
        drop(waiting);
        // The waiters behind the node would not be notified of its end in memory, because the end
        // of the session is not reported. So they list, and find the orphan.
        self.notify(owner, name, Gone::Unclear);
    }

    /// Records that a node is gone, and in which way.
    pub(crate) fn gone(&self, path: &str, how: Gone<'_>) {
        let (owner, waiting) = self.change(|state| {
            // A live node is gone if another process has deleted it. If neither map has the node,
            // no owner is notified.
            let (live, leaving) = (state.live.remove(path), state.leaving.remove(path));
            if live.is_some() || leaving.is_some() {
                self.creates.gone(path);
            }
            let LeavingNode { owner, waiting, .. } = leaving.unwrap_or_default();
            (live.or(owner), waiting)
        });
        drop(waiting);
        self.notify(owner, node_name(path), how);
    }

    /// Returns the node of the waiter to which a lock that is held with the node at `path` can be
    /// handed over. `None` if there is none.
    pub(crate) fn next_waiter(&self, path: &str) -> Option<Arc<str>> {
        self.owner(path)?.next_waiter(self.session, node_name(path))
    }

    /// Records that the deletion of a node was sent.
    pub(crate) fn deletion_sent(&self, path: &str) {
        if let Some(owner) = self.owner(path) {
            owner.deletion_sent(self.session, node_name(path));
        }
    }

    fn owner(&self, path: &str) -> Option<Arc<dyn NodeOwner>> {
        // The reference is returned, because the methods of an owner lock the mutex of its queue.
        let state = self.state.lock();
        let leaving = || state.leaving.get(path)?.owner.as_ref();
        state.live.get(path).or_else(leaving)?.upgrade()
    }

    fn notify(&self, owner: Option<Weak<dyn NodeOwner>>, name: &str, how: Gone<'_>) {
        if let Some(owner) = owner.and_then(|owner| owner.upgrade()) {
            owner.gone(self.session, name, how);
        }
    }

    /// Waits until a node that is to be deleted is gone, or its deletion is refused.
    pub(crate) async fn until_gone(&self, path: &str) {
        // After this wait the node is known if it exists, unless the servers refuse the requests by
        // which cleanup looks for it (`AbandonedCreate::keep_counted`). Then this method returns,
        // and the caller looks again. The end of the session wakes none of these tasks, so the
        // caller waits for that too.
        self.creates.until_known(node_name(path)).await;
        let gone = {
            let mut state = self.state.lock();
            let node = state.leaving.get_mut(path);
            // A refused node stays until the session ends, and is not waited for.
            node.filter(|node| node.refused.is_none()).map(|node| {
                let (wake, gone) = oneshot::channel();
                node.waiting.push(wake);
                gone
            })
        };
        if let Some(gone) = gone {
            // The drop of the sender is the signal.
            let _ = gone.await;
        }
    }

    /// Returns the nodes that the servers refused to delete: all of them, or those of one
    /// directory.
    pub(crate) fn refused_orphans(&self, directory: Option<&LockPath>) -> Vec<RefusedOrphan> {
        let state = self.state.lock();
        let refused = state
            .leaving
            .values()
            .filter_map(|node| node.refused.as_ref());
        refused
            .filter(|orphan| directory.is_none_or(|path| *path == orphan.directory))
            .cloned()
            .collect()
    }

    pub(crate) fn count(&self) -> watch::Receiver<usize> {
        self.count.subscribe()
    }

    /// Returns a receiver that changes when a deletion is refused.
    pub(crate) fn refusals(&self) -> watch::Receiver<u64> {
        self.refusals.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Queue;

    impl NodeOwner for Queue {
        fn deletion_sent(&self, _: SessionNumber, _: &str) {}
        fn gone(&self, _: SessionNumber, _: &str, _: Gone<'_>) {}
        fn next_waiter(&self, _: SessionNumber, name: &str) -> Option<Arc<str>> {
            Some(name.into())
        }
    }

    // Shows: live-contender, refused-orphan
    #[tokio::test]
    async fn node_is_live_or_leaving() {
        let directory = LockPath::parse("", "/a").unwrap();
        let (nodes, path) = (
            Nodes::new(SessionNumber::FIRST, 1_000),
            directory.child("n"),
        );
        let owner: Arc<dyn NodeOwner> = Arc::new(Queue);
        let add = || nodes.add(path.clone(), Arc::downgrade(&owner));
        let seen = || {
            (
                *nodes.count().borrow(),
                nodes.is_leaving(&directory, "n"),
                nodes.leaving_of(&directory, ["m", "n"].into_iter()).len(),
                nodes.refused_orphans(Some(&directory)).len(),
                nodes.next_waiter(&path).is_some(),
            )
        };
        add();
        nodes.refused(&directory, "n");
        assert_eq!(seen(), (1, false, 0, 0, true), "its deletion was not sent");
        for _ in 0..2 {
            nodes.mark_leaving(path.clone());
            assert_eq!(seen(), (1, true, 1, 0, true));
        }
        let gone = nodes.until_gone(&path);
        for _ in 0..2 {
            nodes.refused(&directory, "n");
            assert_eq!(seen(), (1, true, 1, 1, true));
        }
        assert_eq!(*nodes.refusals().borrow(), 1);
        gone.await;
        nodes.gone(&path, Gone::Deleted);
        assert_eq!(seen(), (0, false, 0, 0, false));
        // A node that only cleanup knows, as that of a late create, and finds again.
        nodes.mark_leaving(path.clone());
        assert_eq!(seen(), (1, true, 1, 0, false));
        add();
        assert_eq!(seen(), (1, true, 1, 0, true));
        let mut gone = tokio_test::task::spawn(nodes.until_gone(&path));
        assert!(gone.poll().is_pending());
        nodes.gone(&path, Gone::Unclear);
        assert!(gone.is_woken() && gone.poll().is_ready());
        // All that was counted for the two is given back.
        assert!(nodes.creates.room(&"/".repeat(996)).is_some());
    }
}
