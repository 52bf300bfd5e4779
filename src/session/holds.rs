//! The locks that are held in one session: their nodes are checked by heartbeats, and they are told of an
//! expired lease and of the end of the session.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::path::LockPath;
use crate::protocol::hold::{Care, HoldEvent};
use crate::protocol::moment::Moment;

/// A lock that is held, or was, as its session sees it.
pub(crate) trait HeldLock: fmt::Debug + Send + Sync {
    /// Returns the number of the attempt that was granted the lock, which is unique in the session.
    fn number(&self) -> u64;

    fn directory(&self) -> &LockPath;

    /// Returns the name of its node.
    fn node(&self) -> Arc<str>;

    /// Returns whether a heartbeat may check the node with this name.
    fn is_held_by(&self, node: &str) -> bool;

    /// Returns what the session has to do for the lock in its current state.
    fn care(&self) -> Care;

    /// Handles an event. Calls wakers of other executors, so no mutex of the session is held by the caller.
    fn on(self: Arc<Self>, event: HoldEvent);
}

/// A node by which a lock is held.
#[derive(Clone, Debug)]
pub(crate) struct HeldNode {
    pub(crate) lock: Arc<dyn HeldLock>,
    pub(crate) name: Arc<str>,
    /// Its server path.
    pub(crate) path: String,
}

impl HeldNode {
    fn new(lock: &Arc<dyn HeldLock>) -> Self {
        let name = lock.node();
        Self { path: lock.directory().child(&name), lock: Arc::clone(lock), name }
    }

    /// Returns whether the lock is still held by this node, and no conversion of it is under way.
    pub(crate) fn is_held(&self) -> bool {
        self.lock.is_held_by(&self.name)
    }
}

/// The locks of one session, by their numbers.
#[derive(Debug, Default)]
pub(super) struct Holds(Mutex<Registered>);

#[derive(Debug, Default)]
struct Registered {
    /// Locks that are held, or lost with a node that the session or a conversion has. Heartbeats and the
    /// clock go over these only, so that other lost locks do not make them slower.
    active: HashMap<u64, Arc<dyn HeldLock>>,
    /// Lost locks whose nodes are kept until this moment.
    kept: HashMap<u64, (Moment, Arc<dyn HeldLock>)>,
}

impl Holds {
    fn lock(&self) -> MutexGuard<'_, Registered> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a lock by its current state, or forgets it. Called after each change of that state. Returns
    /// whether it is the first that is held.
    pub(super) fn update(&self, lock: &Arc<dyn HeldLock>) -> bool {
        let number = lock.number();
        let mut state = self.lock();
        let none = state.active.is_empty();
        // Read under the mutex: if two threads have changed it, the later one sees both changes.
        match lock.care() {
            Care::Watch => {
                state.kept.remove(&number);
                state.active.insert(number, Arc::clone(lock));
            }
            Care::Keep { until } => {
                state.active.remove(&number);
                state.kept.insert(number, (until, Arc::clone(lock)));
            }
            Care::Nothing => {
                state.kept.remove(&number);
                state.active.remove(&number);
            }
        }
        none && !state.active.is_empty()
    }

    /// Returns whether any lock is held.
    pub(super) fn any(&self) -> bool {
        !self.lock().active.is_empty()
    }

    /// Returns the held locks.
    pub(super) fn active(&self) -> Vec<Arc<dyn HeldLock>> {
        self.lock().active.values().map(Arc::clone).collect()
    }

    /// Returns the nodes of the held locks.
    pub(super) fn nodes(&self) -> Vec<HeldNode> {
        self.lock().active.values().map(HeldNode::new).collect()
    }

    /// Returns the nodes of all locks, including those of lost locks that are kept.
    pub(super) fn all(&self) -> Vec<HeldNode> {
        let state = self.lock();
        let kept = state.kept.values().map(|(_, lock)| lock);
        state.active.values().chain(kept).map(HeldNode::new).collect()
    }

    /// Returns the lost locks whose nodes need not be kept any longer, and how long until the next one.
    pub(super) fn overdue(&self, now: Moment) -> (Vec<Arc<dyn HeldLock>>, Option<Duration>) {
        let (mut over, mut next) = (Vec::new(), None::<Duration>);
        for (until, lock) in self.lock().kept.values() {
            match until.since(now) {
                Duration::ZERO => over.push(Arc::clone(lock)),
                left => next = Some(next.map_or(left, |next| next.min(left))),
            }
        }
        (over, next)
    }
}
