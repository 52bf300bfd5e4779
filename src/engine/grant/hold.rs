//! A held lock, as the guards share it.

use std::future::poll_fn;
use std::panic::Location;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use tokio::sync::oneshot;

use crate::engine::held::{Held, LocalOwner};
use crate::engine::lock::path_lock::PathLock;
use crate::engine::room::Granted;
use crate::error::{Lost, LostReason, ReleaseError};
use crate::protocol::hold::LockState;
use crate::protocol::node_name::Kind;
use crate::session::contents::holds::SessionLock;
use crate::session::leftovers::cleanup::Ticket;
use crate::session::live::zk_session::Session;
use crate::session::reports::observer::How;
use crate::session::threads::waker;
use crate::values::path::{LockPath, NodePath};

/// The lock, held by one node of one session. Dropping it leaves the node to cleanup.
pub(crate) struct Hold {
    pub(crate) path_lock: Arc<PathLock>,
    session: Arc<Session>,
    pub(crate) held: Arc<Held>,
    /// The two numbers of its fencing token, which the guard interprets.
    token: (i64, u64),
    /// By what it was granted.
    pub(crate) how: How,
    released: bool,
}

impl Hold {
    pub(crate) fn new(
        path_lock: Arc<PathLock>,
        session: Arc<Session>,
        held: Arc<Held>,
        token: (i64, u64),
        location: &'static Location<'static>,
    ) -> Self {
        // A local holder from here on, also before the caller polls its future.
        path_lock
            .lock_holders()
            .insert(held.number(), LocalOwner::new(&held, location));
        Self {
            path_lock,
            session,
            held,
            token,
            how: How::default(),
            released: false,
        }
    }

    /// Notes by what it was granted.
    pub(crate) fn by(mut self, how: How) -> Self {
        self.how = how;
        self
    }

    /// Returns the hold that a room has granted; `None` if it is taken already.
    pub(crate) fn of_room(path_lock: Arc<PathLock>, mut granted: Granted) -> Option<Self> {
        let held = granted.take()?;
        let (session, token, how) = (Arc::clone(&granted.session), granted.token, granted.how);
        Some(Self {
            path_lock,
            session,
            held,
            token,
            how,
            released: false,
        })
    }

    /// Returns the grant of a room; the drop of this does not release the lock.
    pub(crate) fn into_granted(mut self) -> Granted {
        self.released = true;
        let holder = self.path_lock.lock_holders().remove(&self.held.number());
        // Outside of the mutex.
        drop(holder);
        Granted::new(
            Arc::clone(&self.held),
            Arc::clone(&self.session),
            self.token,
            self.how,
        )
    }

    /// Keeps its node for itself, for a conversion.
    pub(crate) fn take_out(&self) {
        let in_room = self
            .path_lock
            .room(self.kind())
            .map(|room| room.holders())
            .unwrap_or_default();
        let is_this = |holder: &LocalOwner| Arc::ptr_eq(&holder.held, &self.held);
        // A local holder all the time.
        if let Some(holder) = in_room.into_iter().find(is_this) {
            let number = self.held.number();
            self.path_lock.lock_holders().insert(number, holder);
        }
        self.held.take_out();
    }

    /// Returns a ticket of the attempt that was granted it.
    pub(crate) fn ticket(&self) -> Ticket {
        self.path_lock.client().cleanup.ticket(self.held.number())
    }

    /// Records that the caller has the lock: from here on a guard reports a loss, and no call ends
    /// by it.
    pub(crate) fn note_had(&self) {
        self.held.set_had();
        self.path_lock.client().guard_changes.tell();
    }

    /// Returns the same hold; its drop does not release the lock.
    pub(crate) fn without_release(&self) -> Self {
        let (path_lock, session) = (Arc::clone(&self.path_lock), Arc::clone(&self.session));
        Self::for_use(path_lock, session, Arc::clone(&self.held), self.token)
    }

    /// Returns a hold for work under the lock; its drop does not release it.
    pub(crate) fn for_use(
        path_lock: Arc<PathLock>,
        session: Arc<Session>,
        held: Arc<Held>,
        token: (i64, u64),
    ) -> Self {
        Self {
            path_lock,
            session,
            held,
            token,
            how: How::default(),
            released: true,
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

    /// Releases the lock, and waits until the node is deleted. Cleanup does the work, so dropping
    /// the future does not stop it.
    pub(crate) fn release(
        mut self,
    ) -> impl Future<Output = Result<(), ReleaseError>> + Send + 'static + use<> {
        let (done, result) = oneshot::channel();
        self.release_once(Some(done));
        // The handle is kept until the result: if it is the last one, its drop closes the client
        // before the deletion.
        let path_lock = Arc::clone(&self.path_lock);
        async move {
            result.await.unwrap_or_else(|_| {
                // Cleanup sends a result for every item, unless the client has ended.
                Err(Lost {
                    path: path_lock.path().user().into(),
                    reason: LostReason::Closed,
                }
                .into())
            })
        }
    }

    fn release_once(&mut self, done: Option<oneshot::Sender<Result<(), ReleaseError>>>) {
        if std::mem::replace(&mut self.released, true) {
            return;
        }
        let holder = self.path_lock.lock_holders().remove(&self.held.number());
        // Outside of the mutex.
        drop(holder);
        self.held.release(done);
        self.path_lock.client().guard_changes.tell();
    }
}

/// Returns the first of these that is lost, and how, by the clock.
pub(crate) fn first_lost(holds: &[Hold]) -> Option<(&Arc<PathLock>, LostReason)> {
    holds
        .iter()
        .find_map(|hold| Some((&hold.path_lock, hold.check_lost()?)))
}

/// Waits for the first of these futures.
pub(crate) async fn first<F: Future + Unpin>(futures: &mut [F]) -> F::Output {
    poll_fn(|context| {
        let ready = futures
            .iter_mut()
            .find_map(|future| match Pin::new(future).poll(context) {
                Poll::Ready(result) => Some(result),
                Poll::Pending => None,
            });
        ready.map_or(Poll::Pending, Poll::Ready)
    })
    .await
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.release_once(None);
    }
}
