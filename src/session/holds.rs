//! The locks that are held in one session: what the beats ask for, and what is told of the lease and of the end.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::path::LockPath;
use crate::protocol::hold::{Care, HoldEvent};
use crate::protocol::moment::Moment;

/// A lock that is held, or was, as far as its session is concerned.
pub(crate) trait HeldLock: fmt::Debug + Send + Sync {
    /// The number of the attempt that got it, which no other lock of the session has.
    fn number(&self) -> u64;

    fn directory(&self) -> &LockPath;

    /// The name of its node.
    fn node(&self) -> Arc<str>;

    /// Returns whether a beat may ask for the node of this name.
    fn is_held_by(&self, node: &str) -> bool;

    /// What the session has to do for it now.
    fn care(&self) -> Care;

    /// Something has happened to it. Runs foreign wakers; called without any lock of the session.
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

    /// Returns whether the lock is held by this node still, and no conversion is about to change that.
    pub(crate) fn is_held(&self) -> bool {
        self.lock.is_held_by(&self.name)
    }
}

/// The locks of one session, by their numbers.
#[derive(Debug, Default)]
pub(super) struct Holds(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// The beats and the clock are about these alone, and must not cost more for those that are kept.
    watched: HashMap<u64, Arc<dyn HeldLock>>,
    /// Lost, and their nodes kept until this moment.
    kept: HashMap<u64, (Moment, Arc<dyn HeldLock>)>,
}

impl Holds {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a lock as its state is now, or forgets it; called after each change of that state. Returns whether it is
    /// the first to be watched.
    pub(super) fn update(&self, lock: &Arc<dyn HeldLock>) -> bool {
        let number = lock.number();
        let mut state = self.lock();
        let none = state.watched.is_empty();
        // Looked at in here: where two threads have changed it, the one that comes last finds both changes.
        match lock.care() {
            Care::Watch => {
                state.kept.remove(&number);
                state.watched.insert(number, Arc::clone(lock));
            }
            Care::Keep { until } => {
                state.watched.remove(&number);
                state.kept.insert(number, (until, Arc::clone(lock)));
            }
            Care::Nothing => {
                state.kept.remove(&number);
                state.watched.remove(&number);
            }
        }
        none && !state.watched.is_empty()
    }

    /// Returns whether there is anything to be watched.
    pub(super) fn any(&self) -> bool {
        !self.lock().watched.is_empty()
    }

    /// The locks to be watched.
    pub(super) fn watched(&self) -> Vec<Arc<dyn HeldLock>> {
        self.lock().watched.values().map(Arc::clone).collect()
    }

    /// The nodes of the locks to be watched.
    pub(super) fn nodes(&self) -> Vec<HeldNode> {
        self.lock().watched.values().map(HeldNode::new).collect()
    }

    /// All locks, those included that are lost and whose nodes are kept.
    pub(super) fn all(&self) -> Vec<HeldNode> {
        let state = self.lock();
        let kept = state.kept.values().map(|(_, lock)| lock);
        state.watched.values().chain(kept).map(HeldNode::new).collect()
    }

    /// The locks whose nodes are not to be kept any longer, and how long the next one is.
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
