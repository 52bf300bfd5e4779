//! The holds of a guard: one lock, or several that count as one. The loss of any hold is the loss
//! of all (docs/protocol.md#one-value).
//!
//! `Shares` has what all guards have in common: the state, the loss, the lease, transactions, reads
//! and requests for revocation. A guard of one lock passes a slice of one hold. A multi-lock and
//! several permits have a `GuardSet`, which binds its holds to each other.

use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::sync::oneshot;

use crate::engine::acquisition::{Hold, LockRef, first};
use crate::engine::held::Held;
use crate::engine::while_held::revoke;
use crate::error::{Lost, ReleaseError, TransactionError};
use crate::locks::transaction::{Transaction, get_data};
use crate::protocol::hold::LockState;
use crate::session::threads::waker;

/// A guard's holds, which other guards may share: all of one client, and at least one.
#[derive(Clone, Copy)]
#[expect(
    unnameable_types,
    missing_debug_implementations,
    reason = "the guards, which hand it over, are the public names"
)]
pub struct Shares<'a>(pub(crate) &'a [Arc<Hold>]);

impl<'a> Shares<'a> {
    /// Returns the worst state.
    pub(crate) fn state(self) -> LockState {
        let mut worst = LockState::Held;
        for hold in self.0 {
            match hold.state() {
                LockState::Held => {}
                LockState::Suspended => worst = LockState::Suspended,
                lost @ LockState::Lost(_) => return lost,
            }
        }
        worst
    }

    /// Waits until the state differs from `known`. Returns the new one.
    pub(crate) async fn state_changed(self, known: LockState) -> LockState {
        let Some(first) = self.0.first() else {
            return self.state();
        };
        // Each hold may be lost separately, so all losses are waited for. An interruption concerns
        // the session, which all holds share while none is lost, so the lease of the first is
        // sufficient.
        let (mut told, mut lost) = (first.session.lease.watch(), pin!(self.lost()));
        loop {
            // The check publishes a change that only the passing of time has made. A later change
            // then wakes `told`.
            first.session.lease.check_valid();
            let state = self.state();
            if state != known || matches!(state, LockState::Lost(_)) {
                return state;
            }
            tokio::select! {
                lost = &mut lost => return LockState::Lost(lost.reason()),
                // The session has the sender, so this is never an error.
                _ = waker::contain(told.changed()) => {}
            }
        }
    }

    /// Reads the clock, and returns the loss, if any hold is lost.
    pub(crate) fn lost_now(self) -> Option<Lost> {
        self.0.iter().find_map(|hold| hold.loss())
    }

    /// Waits until the first hold is lost. Borrows nothing.
    pub(crate) fn lost(self) -> impl Future<Output = Lost> + Send + 'static + use<> {
        let losses = self.0.iter().map(|hold| {
            let (lost, path) = (hold.when_lost(), hold.directory().user().into());
            // The reference is weak, because a hold has a handle of cleanup, and this future must
            // keep nothing of the client alive (docs/protocol.md#session-lifetime).
            let held = Arc::downgrade(&hold.held);
            Box::pin(async move {
                let reason = lost.await;
                Lost {
                    // Of several holds with one value, the error names the one that was lost first.
                    path: held.upgrade().map_or(path, |held| held.lost_path()),
                    reason,
                }
            })
        });
        let mut losses: Vec<_> = losses.collect();
        async move { first(&mut losses).await }
    }

    /// Runs `work` while all holds last.
    pub(crate) fn while_held<T, F: Future<Output = T>>(
        self,
        work: F,
    ) -> impl Future<Output = Result<T, Lost>> + use<'a, T, F> {
        while_held(self.lost(), move || self.lost_now(), work)
    }

    /// Sets the end of the lease of all holds to `lease` from now.
    pub(crate) fn set_lease(self, lease: Duration) -> Result<(), Lost> {
        match self.lost_now() {
            Some(lost) => Err(lost),
            None => self
                .0
                .iter()
                .try_for_each(|hold| hold.held.set_lease(lease).map_err(|why| hold.lost_by(why))),
        }
    }

    /// Returns how much is left of the lease that ends first; `None` if there is no lease.
    pub(crate) fn lease_remaining(self) -> Option<Duration> {
        self.0
            .iter()
            .filter_map(|hold| hold.held.lease_remaining())
            .min()
    }

    /// Returns an empty transaction, which commits only while all holds last.
    pub(crate) fn transaction(self) -> Transaction<'a> {
        Transaction::new(self.0.iter().map(|hold| &**hold))
    }

    /// Reads a node while all holds last.
    pub(crate) async fn get_data(
        self,
        path: &str,
    ) -> Result<Option<(Vec<u8>, i32)>, TransactionError> {
        let locks: Vec<_> = self.0.iter().map(|hold| hold.lock_ref()).collect();
        get_data(&locks.iter().collect::<Vec<_>>(), path).await
    }

    /// Waits until revocation of any lock is requested. Borrows nothing.
    pub(crate) fn revoked(self) -> impl Future<Output = ()> + Send + 'static + use<> {
        let mut requests: Vec<_> = self
            .0
            .iter()
            .map(|hold| Box::pin(revoked(&hold.lock_ref())))
            .collect();
        async move { first(&mut requests).await }
    }
}

/// Waits until revocation of this lock is requested. Borrows nothing.
pub(crate) fn revoked(hold: &LockRef) -> impl Future<Output = ()> + Send + 'static + use<> {
    let (session, held) = (Arc::downgrade(&hold.session), Arc::downgrade(&hold.held));
    let directory = hold.directory().clone();
    let tasks = hold.path_lock.client.tasks.clone();
    async move {
        let (reply, requested) = oneshot::channel();
        // The watch runs on the session's thread, because this future may be polled without a
        // runtime. The drop of this future aborts the watch.
        let watch = tasks.start(revoke::watch_node(session, directory, held, reply));
        match waker::contain(requested).await {
            // The watch continues without this future, to notice the deletion of the node.
            Ok(()) => drop(watch.detach()),
            // The lock is lost or released, or the session has ended, so no request can come any
            // more. A loss is no request, and is reported elsewhere.
            Err(_) => std::future::pending().await,
        }
    }
}

/// Releases all holds, the last first, and waits for the outcome of each. Returns the first error.
/// The nodes are with cleanup when this function returns, before the future is polled.
pub(crate) fn release(
    holds: Vec<Arc<Hold>>,
) -> impl Future<Output = Result<(), ReleaseError>> + Send + 'static + use<> {
    // The loss is read first, because a released hold reports none.
    let lost = Shares(&holds).lost_now();
    // The releases begin here, all together, even if the future is never polled. Of several guards
    // that are released at the same time, exactly one gets each hold from `into_inner`.
    let releases = holds
        .into_iter()
        .rev()
        .filter_map(Arc::into_inner)
        .map(Hold::release)
        .collect::<Vec<_>>();
    async move {
        let mut result = Ok(());
        for release in releases {
            result = result.and(release.await);
        }
        // The holder relied on all holds, so the loss of one counts.
        lost.map_or(result, |lost| Err(lost.into()))
    }
}

/// Runs `work` until it is done or the lock is lost. `lost` resolves at the loss, and `lost_now`
/// reads the clock.
pub(crate) async fn while_held<T>(
    lost: impl Future<Output = Lost>,
    lost_now: impl Fn() -> Option<Lost> + Sync,
    work: impl Future<Output = T>,
) -> Result<T, Lost> {
    let (mut lost, mut work) = (pin!(lost), pin!(work));
    let outcome = std::future::poll_fn(|context| {
        // The loss is polled before the work, so that the work makes no step after a loss that is
        // known.
        if let Poll::Ready(lost) = lost.as_mut().poll(context) {
            return Poll::Ready(Err(lost));
        }
        // The clock is read too, because the thread that wakes `lost` may not have run yet.
        if let Some(lost) = lost_now() {
            return Poll::Ready(Err(lost));
        }
        work.as_mut().poll(context).map(Ok)
    })
    .await?;
    // The last step of the work may have taken so long that the lock was lost during it.
    match lost_now() {
        Some(lost) => Err(lost),
        None => Ok(outcome),
    }
}

/// The holds of a multi-lock's members, or of a semaphore's permits. They are released in reverse,
/// so that a contender that wants several of them and waits for the first finds the others free.
pub(crate) struct GuardSet {
    holds: Vec<Arc<Hold>>,
}

impl GuardSet {
    /// Combines the holds of a grant.
    pub(crate) fn new(granted: Vec<Hold>) -> Self {
        granted.iter().for_each(Hold::note_received);
        Self::of(granted.into_iter().map(Arc::new).collect())
    }

    /// Combines these holds.
    pub(crate) fn of(holds: Vec<Arc<Hold>>) -> Self {
        // From here on the loss of one hold is the loss of all (docs/protocol.md#one-value).
        Held::bind(&holds.iter().map(|hold| &hold.held).collect::<Vec<_>>());
        Self { holds }
    }

    /// Returns further shares of the same holds.
    pub(crate) fn reenter(&self) -> Result<Self, Lost> {
        match self.shares().lost_now() {
            Some(lost) => Err(lost),
            None => Ok(Self {
                holds: self.holds.clone(),
            }),
        }
    }

    pub(crate) fn shares(&self) -> Shares<'_> {
        Shares(&self.holds)
    }

    /// Returns the holds, for a set that is divided, joined with another, or released.
    pub(crate) fn into_vec(mut self) -> Vec<Arc<Hold>> {
        std::mem::take(&mut self.holds)
    }
}

impl Drop for GuardSet {
    fn drop(&mut self) {
        // A `Vec` would drop its elements from the first to the last.
        while let Some(hold) = self.holds.pop() {
            drop(hold);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::error::LostReason;

    /// Only the clock shows that work has blocked its thread beyond the lease.
    // Shows: lease-over
    #[tokio::test]
    async fn work_beyond_the_lease_fails() {
        let is_over = AtomicBool::new(false);
        let lost_now = || {
            is_over.load(Ordering::Relaxed).then(|| Lost {
                path: "/lock".into(),
                reason: LostReason::LeaseOver,
            })
        };
        let work = async { is_over.store(true, Ordering::Relaxed) };
        let result = while_held(std::future::pending(), lost_now, work).await;
        assert_eq!(
            result.map_err(|lost| lost.reason()),
            Err(LostReason::LeaseOver)
        );
    }
}
