//! A granted lock, from the attempt or the room that grants it to the guard of its caller; and the
//! table of the local holders that no room knows. Attempts, rooms, path locks and holds use it. It
//! never sends a request.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::panic::Location;
use std::sync::Arc;

use crate::engine::held::{Held, LocalOwner};
use crate::error::{Lost, LostReason};
use crate::protocol::hold::LockState;
use crate::protocol::node_name::Kind;
use crate::session::contents::holds::SessionLock;
use crate::session::core::GuardChanges;
use crate::session::leftovers::cleanup::{Done, Ticket};
use crate::session::live::zk_session::Session;
use crate::session::reports::observer::How;
use crate::session::threads::mutex::Mutex;
use crate::session::threads::waker;
use crate::values::path::{LockPath, NodePath};

/// A granted lock, or a permit of a semaphore: its node and session, and its token. A clone has no
/// part in the release.
#[derive(Clone)]
pub(crate) struct GrantedLock {
    pub(crate) held: Arc<Held>,
    session: Arc<Session>,
    /// The two numbers of the fencing token, which the guard interprets.
    token: (i64, u64),
}

/// The only owner of a granted lock: the attempt or the room that grants it has this value, then the
/// channel to the caller, and then the caller's [`Hold`]. Dropping it releases the lock, wherever it
/// is by then, so a grant that its caller never takes is released too.
///
/// [`Hold`]: crate::engine::grant::hold::Hold
pub(crate) struct Grant {
    lock: GrantedLock,
    /// By what the lock was granted.
    pub(crate) how: How,
    /// The table in which the lock has a local holder; `None` if a room knows that.
    outside: Option<Arc<LocalOwners>>,
    /// Receives the result of the release, if the caller waits for that.
    done: Option<Done>,
}

impl Deref for Grant {
    type Target = GrantedLock;

    fn deref(&self) -> &GrantedLock {
        &self.lock
    }
}

impl GrantedLock {
    /// Returns a lock that is granted in this session.
    pub(crate) fn new(held: Arc<Held>, session: Arc<Session>, token: (i64, u64)) -> Self {
        Self {
            held,
            session,
            token,
        }
    }

    /// Returns the directory of its node.
    pub(crate) fn directory(&self) -> &LockPath {
        self.held.directory()
    }

    pub(crate) fn session(&self) -> &Arc<Session> {
        &self.session
    }

    /// Returns how the lock was lost; `None` if it is not. Reads the clock, so that a starved task
    /// cannot hide a loss.
    pub(crate) fn check_lost(&self) -> Option<LostReason> {
        self.held.check_lost()
    }

    /// Returns the error of work under the lock that found it lost; `None` if it is not.
    pub(crate) fn loss(&self) -> Option<Lost> {
        self.check_lost().map(|reason| self.lost_by(reason))
    }

    /// Returns the same for this reason.
    pub(crate) fn lost_by(&self, reason: LostReason) -> Lost {
        Lost {
            path: self.held.lost_path(),
            reason,
        }
    }

    /// Returns the state of the lock.
    pub(crate) fn state(&self) -> LockState {
        self.held.state(self.session.lease().is_valid())
    }

    /// Waits until the lock is lost. Keeps neither the session nor the client.
    pub(crate) fn when_lost(&self) -> impl Future<Output = LostReason> + Send + 'static + use<> {
        waker::contain(self.held.when_lost())
    }

    pub(crate) fn token(&self) -> (i64, u64) {
        self.token
    }

    /// Returns the name of its node.
    pub(crate) fn node(&self) -> Arc<str> {
        self.held.name()
    }

    /// Returns the path of its node, without the client's namespace.
    pub(crate) fn node_path(&self) -> NodePath {
        self.directory().user_child(&self.node())
    }

    /// Returns the kind as which it is held.
    pub(crate) fn kind(&self) -> Kind {
        self.held.kind()
    }
}

impl Grant {
    /// Returns the grant of a lock that a room knows, or is about to know.
    pub(crate) fn new(lock: GrantedLock, how: How) -> Self {
        Self {
            lock,
            how,
            outside: None,
            done: None,
        }
    }

    /// Has the grant be a local holder from here on, also before the caller polls its future.
    pub(crate) fn known_in(
        mut self,
        outside: &Arc<LocalOwners>,
        location: &'static Location<'static>,
    ) -> Self {
        self.enter(outside, LocalOwner::new(&self.held, location));
        self
    }

    /// Has this table know the grant, which is this local holder.
    pub(crate) fn enter(&mut self, outside: &Arc<LocalOwners>, holder: LocalOwner) {
        outside.enter(self.held.number(), holder);
        self.outside = Some(Arc::clone(outside));
    }

    /// Leaves the table of the holders outside the rooms: a room knows the grant by now.
    pub(crate) fn entered_room(&mut self) {
        if let Some(outside) = self.outside.take() {
            outside.leave(self.held.number());
        }
    }

    /// Returns a ticket of the attempt that was granted the lock.
    pub(crate) fn ticket(&self) -> Ticket {
        self.held.ticket()
    }

    /// Releases the lock. `done` receives the result.
    pub(crate) fn release(mut self, done: Done) {
        self.done = Some(done);
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        let outside = self.outside.take();
        // The local holder ends before the next has the lock, and a room does the same.
        if let Some(outside) = &outside {
            outside.leave(self.held.number());
        }
        let done = self.done.take();
        self.held.release(done);
        // A task that waits for the end of this holder finds the deletion under way.
        if let Some(outside) = outside {
            outside.guard_changes.notify();
        }
    }
}

/// The local holders of a path lock that no room knows, by the numbers of their attempts, so that
/// the oldest is the first.
pub(crate) struct LocalOwners {
    all: Mutex<BTreeMap<u64, LocalOwner>>,
    guard_changes: GuardChanges,
}

impl LocalOwners {
    pub(crate) fn new(guard_changes: GuardChanges) -> Arc<Self> {
        Arc::new(Self {
            all: Mutex::default(),
            guard_changes,
        })
    }

    fn enter(&self, number: u64, holder: LocalOwner) {
        self.all.lock().insert(number, holder);
    }

    fn leave(&self, number: u64) {
        let holder = self.all.lock().remove(&number);
        // Outside of the mutex.
        drop(holder);
    }

    /// Returns copies of the holders for which `counts` is true.
    pub(crate) fn holders_with(&self, counts: impl Fn(&LocalOwner) -> bool) -> Vec<LocalOwner> {
        let all = self.all.lock();
        all.values()
            .filter(|holder| counts(holder))
            .cloned()
            .collect()
    }
}
