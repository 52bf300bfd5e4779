//! Several guards that are one to their holder: the loss of one is the loss of all.

use std::time::Duration;

use crate::engine::held::Held;
use crate::engine::multi::{BoxedFuture, first};
use crate::error::{Lost, ReleaseError, TransactionError};
use crate::guard::{AnyGuard, LockState, while_held};
use crate::transaction::{NodeData, Transaction, get_data};

/// The guards of a multi-lock's members, or of a semaphore's permits: of one client, and at least one.
/// Released in reverse: a contender that wants several of them, and waits for the first, finds the others
/// free.
#[derive(Debug)]
pub(crate) struct GuardSet {
    guards: Vec<AnyGuard>,
}

impl GuardSet {
    /// Makes these guards one.
    pub(crate) fn new(guards: Vec<AnyGuard>) -> Self {
        let holds: Vec<_> = guards.iter().map(|guard| guard.hold().held()).collect();
        Held::bind(&holds);
        Self { guards }
    }

    pub(crate) fn guards(&self) -> &[AnyGuard] {
        &self.guards
    }

    /// Returns the guards, for a set that is divided or joined with another.
    pub(crate) fn into_guards(mut self) -> Vec<AnyGuard> {
        std::mem::take(&mut self.guards)
    }

    /// Returns the worst state of them all.
    pub(crate) fn state(&self) -> LockState {
        let mut worst = LockState::Held;
        for guard in &self.guards {
            match guard.state() {
                LockState::Held => {}
                LockState::Suspended => worst = LockState::Suspended,
                lost @ LockState::Lost(_) => return lost,
            }
        }
        worst
    }

    /// Waits until the state differs from `known`. Returns the new one.
    pub(crate) async fn state_changed(&self, known: LockState) -> LockState {
        loop {
            let state = self.state();
            let Some(first) = self.guards.first() else { return state };
            if state != known || matches!(state, LockState::Lost(_)) {
                return state;
            }
            // Each may be lost by itself. An interruption is one of the session, which all have in common
            // while none is lost.
            tokio::select! {
                lost = self.lost() => return LockState::Lost(lost.reason()),
                _ = first.state_changed(state) => {}
            }
        }
    }

    /// Returns the loss, if any is lost by the clock.
    pub(crate) fn lost_now(&self) -> Option<Lost> {
        self.guards.iter().find_map(AnyGuard::lost_now)
    }

    /// Waits until the first is lost. Borrows nothing.
    pub(crate) fn lost(&self) -> impl Future<Output = Lost> + Send + 'static + use<> {
        let losses = self.guards.iter().map(|guard| -> BoxedFuture<Lost> { Box::pin(guard.lost()) });
        let mut losses: Vec<_> = losses.collect();
        async move { first(losses.iter_mut()).await }
    }

    /// Runs `work` while all are held.
    pub(crate) async fn while_held<T>(&self, work: impl Future<Output = T>) -> Result<T, Lost> {
        while_held(self.lost(), || self.lost_now(), work).await
    }

    /// Returns an empty transaction, which commits only while all are held.
    pub(crate) fn transaction(&self) -> Transaction<'_> {
        Transaction::new(self.guards.iter().map(AnyGuard::hold))
    }

    /// Reads a node while all are held.
    pub(crate) async fn get_data(&self, path: &str) -> Result<Option<NodeData>, TransactionError> {
        let holds: Vec<_> = self.guards.iter().map(AnyGuard::hold).collect();
        get_data(&holds, path).await
    }

    /// Sets the end of the lease of all to `lease` from now.
    pub(crate) fn set_lease(&self, lease: Duration) -> Result<(), Lost> {
        match self.lost_now() {
            Some(lost) => Err(lost),
            None => self.guards.iter().try_for_each(|guard| guard.set_lease(lease)),
        }
    }

    /// Returns the remaining time of the lease that ends first; `None` if there is none.
    pub(crate) fn lease_remaining(&self) -> Option<Duration> {
        self.guards.iter().filter_map(AnyGuard::lease_remaining).min()
    }

    /// Waits until revocation of one is requested. Borrows nothing.
    pub(crate) fn revoked(&self) -> impl Future<Output = ()> + Send + 'static + use<> {
        let requests = self.guards.iter().map(|guard| -> BoxedFuture<()> { Box::pin(guard.revoked()) });
        let mut requests: Vec<_> = requests.collect();
        async move { first(requests.iter_mut()).await }
    }

    /// Returns further guards of the same holds.
    pub(crate) fn reenter(&self) -> Result<Self, Lost> {
        match self.lost_now() {
            Some(lost) => Err(lost),
            None => Ok(Self { guards: self.guards.iter().map(AnyGuard::reenter).collect::<Result<_, _>>()? }),
        }
    }

    /// Releases all, the last first, and waits for the outcome of each. Returns the first error. The requests
    /// are on their way when this returns.
    pub(crate) fn release(self) -> impl Future<Output = Result<(), ReleaseError>> + Send + 'static + use<> {
        let lost = self.lost_now();
        let releases: Vec<_> = self.into_guards().into_iter().rev().map(AnyGuard::release).collect();
        async move {
            let mut result = Ok(());
            for release in releases {
                result = result.and(release.await);
            }
            // The holder relied on all of them, so the loss of one counts.
            lost.map_or(result, |lost| Err(lost.into()))
        }
    }
}

impl Drop for GuardSet {
    fn drop(&mut self) {
        while let Some(guard) = self.guards.pop() {
            drop(guard);
        }
    }
}
