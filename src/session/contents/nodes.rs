//! The nodes of one session that exist as far as is known: the owner of each, and which are to be
//! deleted.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Weak};

use tokio::sync::{oneshot, watch};

use crate::protocol::local_queue::Gone;
use crate::session::contents::creates::Creates;
use crate::session::threads::mutex::Mutex;
use crate::values::path::{LockPath, node_name};

/// The owner of a node. Kept weakly: without contenders there is nothing to tell it.
pub(crate) trait NodeOwner: Send + Sync {
    /// Tells that the deletion of the node `name` of the session with this number was sent: it is
    /// answered before anything that is sent from now on.
    fn leaves(&self, session: u64, name: &str);

    /// Tells that the node `name` of the session with this number is gone, or that its deletion is
    /// refused. Called without any mutex of the session; not for nodes that go with it.
    fn gone(&self, session: u64, name: &str, how: Gone<'_>);

    /// Returns the node to which a lock held by the node `name` can be handed over. `None` if there
    /// is none.
    fn heir(&self, session: u64, name: &str) -> Option<Arc<str>>;
}

/// A node that the servers refuse to delete: it blocks every contender until the session ends.
#[derive(Clone)]
pub(crate) struct RefusedOrphan {
    pub(crate) directory: LockPath,
    pub(crate) name: String,
}

/// The nodes of one session.
pub(crate) struct Nodes {
    session: u64,
    state: Mutex<KnownNodes>,
    /// How many there are. Heartbeats are sent while there are any.
    count: watch::Sender<usize>,
    /// How often a deletion was refused, for contenders that wait behind a node that has become a
    /// refused orphan.
    refusals: watch::Sender<u64>,
    pub(crate) creates: Arc<Creates>,
}

#[derive(Default)]
struct KnownNodes {
    /// By server path.
    all: BTreeMap<String, SessionNode>,
    /// How many of them are to be deleted.
    leaving: usize,
    /// Those of them that the servers refuse to delete.
    refused: BTreeMap<String, RefusedOrphan>,
}

#[derive(Default)]
struct SessionNode {
    owner: Option<Weak<dyn NodeOwner>>,
    /// Whether it is to be deleted, and so is no live contender.
    leaving: bool,
    /// Dropped when the node is gone or its deletion is refused, which wakes the waiting tasks.
    waiting: Vec<oneshot::Sender<()>>,
}

impl Nodes {
    pub(crate) fn new(session: u64, max_bytes: usize) -> Self {
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
        let count = state.all.len();
        // This happens under the mutex, so that of two threads the later one determines the count.
        self.count
            .send_if_modified(|known| std::mem::replace(known, count) != count);
        result
    }

    /// Returns the node at a path, which is known from here on.
    fn known<'a>(&self, state: &'a mut KnownNodes, path: String) -> &'a mut SessionNode {
        match state.all.entry(path) {
            Entry::Occupied(node) => node.into_mut(),
            Entry::Vacant(node) => {
                self.creates.became(node.key());
                node.insert(SessionNode::default())
            }
        }
    }

    /// Registers a node, which belongs to `owner`.
    pub(crate) fn adopt(&self, path: String, owner: Weak<dyn NodeOwner>) {
        self.change(|state| self.known(state, path).owner = Some(owner));
    }

    /// Records that a node, if it exists, is to be deleted.
    pub(crate) fn leave(&self, path: String) {
        self.change(|state| {
            let was_leaving = std::mem::replace(&mut self.known(state, path).leaving, true);
            state.leaving += usize::from(!was_leaving);
        });
    }

    /// Returns whether a child of a directory is to be deleted, and so is no live contender.
    pub(crate) fn is_leaving(&self, directory: &LockPath, name: &str) -> bool {
        !self.leaving_of(directory, std::iter::once(name)).is_empty()
    }

    /// Returns those of the children of a directory that are to be deleted. Of thousands that are
    /// not, the mutexes are taken once, and nothing is looked up if none is.
    pub(crate) fn leaving_of<'a>(
        &self,
        directory: &LockPath,
        children: impl Iterator<Item = &'a str> + Clone,
    ) -> HashSet<&'a str> {
        // The abandoned creates are looked at first: the node of one is known as leaving before the
        // create is none of them.
        let mut leaving: HashSet<&str> = self.creates.abandoned_of(children.clone());
        let state = self.state.lock();
        if state.leaving == 0 {
            return leaving;
        }
        let mut path = directory.child("");
        let beginning = path.len();
        let is_leaving = |name: &&str| {
            path.truncate(beginning);
            path.push_str(name);
            state.all.get(&path).is_some_and(|node| node.leaving)
        };
        leaving.extend(children.filter(is_leaving));
        leaving
    }

    /// Records that the servers refuse to delete a node, if it exists.
    pub(crate) fn refused(&self, directory: &LockPath, name: &str) {
        let path = directory.child(name);
        let (owner, waiting, first) = {
            let mut state = self.state.lock();
            let Some(node) = state.all.get_mut(&path) else {
                return;
            };
            let (owner, waiting) = (node.owner.clone(), std::mem::take(&mut node.waiting));
            let orphan = RefusedOrphan {
                directory: directory.clone(),
                name: name.to_owned(),
            };
            (owner, waiting, state.refused.insert(path, orphan).is_none())
        };
        // A second refusal wakes no task.
        if first {
            self.refusals
                .send_modify(|refusals| *refusals = refusals.wrapping_add(1));
        }
        drop(waiting);
        self.tell(owner, name, Gone::Unclear);
    }

    /// Records that a node is gone; another process may have deleted it.
    pub(crate) fn disown(&self, path: &str) {
        self.gone(path, Gone::Unclear);
    }

    /// Records that a node is gone, and how.
    pub(crate) fn gone(&self, path: &str, how: Gone<'_>) {
        let node = self.change(|state| {
            state.refused.remove(path);
            let node = state.all.remove(path);
            if node.is_some() {
                self.creates.gone(path);
            }
            let was_leaving = node.as_ref().is_some_and(|node| node.leaving);
            state.leaving = state.leaving.saturating_sub(usize::from(was_leaving));
            node
        });
        // The drop of the rest of the node wakes the waiting tasks.
        let owner = node.and_then(|node| node.owner);
        self.tell(owner, node_name(path), how);
    }

    /// Returns the node to which a lock held by the node at `path` can be handed over. `None` if
    /// there is none.
    pub(crate) fn heir(&self, path: &str) -> Option<Arc<str>> {
        self.owner(path)?.heir(self.session, node_name(path))
    }

    /// Records that the deletion of a node was sent.
    pub(crate) fn deletion_sent(&self, path: &str) {
        if let Some(owner) = self.owner(path) {
            owner.leaves(self.session, node_name(path));
        }
    }

    fn owner(&self, path: &str) -> Option<Arc<dyn NodeOwner>> {
        let owner = self.state.lock().all.get(path)?.owner.clone()?;
        owner.upgrade()
    }

    fn tell(&self, owner: Option<Weak<dyn NodeOwner>>, name: &str, how: Gone<'_>) {
        if let Some(owner) = owner.and_then(|owner| owner.upgrade()) {
            owner.gone(self.session, name, how);
        }
    }

    /// Waits until a node that is to be deleted is gone, or its deletion is refused.
    pub(crate) async fn until_gone(&self, path: &str) {
        // From then on the node is known, if it exists.
        self.creates.until_known(node_name(path)).await;
        let gone = {
            let mut state = self.state.lock();
            let refused = state.refused.contains_key(path);
            state.all.get_mut(path).filter(|_| !refused).map(|node| {
                let (told, gone) = oneshot::channel();
                node.waiting.push(told);
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
        let refused = state.refused.values();
        refused
            .filter(|orphan| directory.is_none_or(|path| *path == orphan.directory))
            .cloned()
            .collect()
    }

    /// Returns a receiver of the number of nodes.
    pub(crate) fn count(&self) -> watch::Receiver<usize> {
        self.count.subscribe()
    }

    /// Returns a receiver that changes when a deletion is refused.
    pub(crate) fn refusals(&self) -> watch::Receiver<u64> {
        self.refusals.subscribe()
    }
}
