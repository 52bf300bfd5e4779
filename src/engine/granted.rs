//! The owner of a granted lock, on its way from the attempt to the guard of the caller. The shared
//! state of a path, attempts and the layers above use this file. This file sends no request.
//!
//! One value owns a lock at any time, a [`Grant`], and its drop releases the lock:
//!
//! ```text
//!   attempt, or the previous holder --> channel to the caller --> `Hold` --> shared by the guards
//! ```
//! So each of these may end at any moment: an attempt whose task is dropped, a channel whose caller
//! has left, the last guard. No other code has to remember that the lock must be released, and none
//! releases it twice (docs/protocol.md#attempt-outlives-caller). The copies of [`GrantedLock`] are
//! for work under the lock, such as a transaction. Their drop releases nothing.

use std::ops::Deref;
use std::sync::Arc;

use crate::engine::held::Held;
use crate::error::{Lost, LostReason};
use crate::protocol::hold::LockState;
use crate::protocol::node_name::Kind;
use crate::session::contents::holds::SessionLock;
use crate::session::leftovers::cleanup::ReleaseReply;
use crate::session::live::zk_session::Session;
use crate::session::reports::observer::How;
use crate::session::threads::waker;
use crate::values::path::{LockPath, NodePath};

/// A granted lock, or a permit of a semaphore: its node and session, and its token. A clone has no
/// part in the release.
#[derive(Clone)]
pub(crate) struct GrantedLock {
    pub(crate) held: Arc<Held>,
    /// The reference keeps the session, through which the release deletes the node. The hold has
    /// only a weak reference.
    pub(crate) session: Arc<Session>,
    /// The two numbers of the fencing token, which the guard interprets.
    pub(crate) token: (i64, u64),
}

/// The only owner of a granted lock. The attempt that was granted the lock has this value, or the
/// holder that hands the lock over, then the channel to the caller, and then the caller's [`Hold`].
/// Its drop releases the lock, so a grant that its caller never takes is released too.
///
/// [`Hold`]: crate::engine::acquisition::Hold
pub(crate) struct Grant {
    lock: GrantedLock,
    /// By what the lock was granted.
    pub(crate) how: How,
    /// Receives the result of the release, if the caller waits for that.
    done: Option<ReleaseReply>,
}

impl Deref for Grant {
    type Target = GrantedLock;

    fn deref(&self) -> &GrantedLock {
        &self.lock
    }
}

impl GrantedLock {
    pub(crate) fn new(held: Arc<Held>, session: Arc<Session>, token: (i64, u64)) -> Self {
        Self {
            held,
            session,
            token,
        }
    }

    pub(crate) fn directory(&self) -> &LockPath {
        self.held.directory()
    }

    /// Returns the error of work under the lock that found it lost; `None` if it is not.
    pub(crate) fn loss(&self) -> Option<Lost> {
        self.held.check_lost().map(|reason| self.lost_by(reason))
    }

    pub(crate) fn lost_by(&self, reason: LostReason) -> Lost {
        Lost {
            // If several locks are one value, the error names the lock that was lost first.
            path: self.held.lost_path(),
            reason,
        }
    }

    pub(crate) fn state(&self) -> LockState {
        self.held.state(self.session.lease.is_valid())
    }

    /// Waits until the lock is lost. The future keeps neither the session nor the client.
    pub(crate) fn when_lost(&self) -> impl Future<Output = LostReason> + Send + 'static + use<> {
        // The executor of the caller polls the future, and a panic of its waker must not keep other
        // holders from being woken.
        waker::contain(self.held.when_lost())
    }

    /// Returns the name of its node.
    pub(crate) fn node(&self) -> Arc<str> {
        self.held.name()
    }

    /// Returns the path of its node, without the client's namespace.
    pub(crate) fn node_path(&self) -> NodePath {
        self.directory().user_child(&self.node())
    }

    pub(crate) fn kind(&self) -> Kind {
        self.held.kind()
    }
}

impl Grant {
    /// Returns the grant of a lock that the callers of its path know.
    pub(crate) fn new(
        held: Arc<Held>,
        session: &Arc<Session>,
        token: (i64, u64),
        how: How,
    ) -> Self {
        Self {
            lock: GrantedLock::new(held, Arc::clone(session), token),
            how,
            done: None,
        }
    }

    /// Releases the lock. `done` receives the result.
    pub(crate) fn release(mut self, done: ReleaseReply) {
        // The drop of `self`, at the end of this method, releases the lock.
        self.done = Some(done);
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        // The state of the hold decides what the release does: a lock that was taken back has left
        // its node before, and a lost lock may have a node that was kept until now.
        let done = self.done.take();
        self.lock.held.release(done);
    }
}
