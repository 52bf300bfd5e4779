//! A held lock, as the guards share it.
//!
//! A [`Hold`] owns the lock, by its [`Grant`]; the guards of one hold share it, and the last of them
//! releases the lock. Work under the lock, such as a transaction, must not keep the lock beyond the
//! guards: such work has a [`LockRef`], which knows the lock and owns nothing.

use std::future::poll_fn;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use tokio::sync::oneshot;

use crate::engine::granted::{Grant, GrantedLock};
use crate::engine::lock::path_lock::PathLock;
use crate::error::{Lost, LostReason, ReleaseError};
use crate::session::reports::observer::How;

/// A granted lock that its caller has, as the guards share it. Dropping it releases the lock, and
/// leaves the node to cleanup.
pub(crate) struct Hold {
    /// The first field, and so the first to be dropped: the last handle of a client closes it, which
    /// must come after the release.
    grant: Grant,
    pub(crate) path_lock: Arc<PathLock>,
}

/// A lock that is held, for work under it. Its release is left to the [`Hold`].
#[derive(Clone)]
pub(crate) struct LockRef {
    pub(crate) path_lock: Arc<PathLock>,
    lock: GrantedLock,
}

impl Deref for Hold {
    type Target = GrantedLock;

    fn deref(&self) -> &GrantedLock {
        &self.grant
    }
}

impl Deref for LockRef {
    type Target = GrantedLock;

    fn deref(&self) -> &GrantedLock {
        &self.lock
    }
}

impl Hold {
    /// Returns the hold of a caller that has received this grant.
    pub(crate) fn new(path_lock: Arc<PathLock>, grant: Grant) -> Self {
        Self { grant, path_lock }
    }

    /// Returns the lock for work under it, which may outlive the borrow of the hold.
    pub(crate) fn lock_ref(&self) -> LockRef {
        LockRef {
            path_lock: Arc::clone(&self.path_lock),
            lock: GrantedLock::clone(self),
        }
    }

    /// Returns by what it was granted.
    pub(crate) fn how(&self) -> How {
        self.grant.how
    }

    /// Has its node be shared or handed over, unless others of this client have an open node, or are
    /// about to.
    pub(crate) fn open(&self) {
        self.path_lock.shared.open(&self.grant);
    }

    /// Records that the caller has the lock: from here on a guard reports a loss, and no call ends
    /// by it.
    pub(crate) fn note_had(&self) {
        self.held.set_had();
        self.path_lock.client.guard_changes.notify();
    }

    /// Releases the lock, and waits until the node is deleted. Cleanup does the work, so dropping
    /// the future does not stop it.
    pub(crate) fn release(
        self,
    ) -> impl Future<Output = Result<(), ReleaseError>> + Send + 'static + use<> {
        let Self { grant, path_lock } = self;
        let (done, result) = oneshot::channel();
        grant.release(done);
        // The handle is kept until the result: if it is the last one, its drop closes the client
        // before the deletion.
        async move {
            result.await.unwrap_or_else(|_| {
                // Cleanup sends a result for every item, unless the client has ended.
                Err(Lost {
                    path: path_lock.path.user().into(),
                    reason: LostReason::Closed,
                }
                .into())
            })
        }
    }
}

impl LockRef {
    /// Returns a lock whose hold is kept elsewhere.
    pub(crate) fn new(path_lock: Arc<PathLock>, lock: GrantedLock) -> Self {
        Self { path_lock, lock }
    }
}

/// Returns the first of these that is lost, and how, by the clock.
pub(crate) fn first_lost(holds: &[Hold]) -> Option<(&Arc<PathLock>, LostReason)> {
    holds
        .iter()
        .find_map(|hold| Some((&hold.path_lock, hold.held.check_lost()?)))
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
