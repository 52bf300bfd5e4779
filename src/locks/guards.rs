//! The trait of all guards, for code that does not depend on the kind.

use std::fmt;
use std::pin::Pin;
use std::time::Duration;

use async_trait::async_trait;

use self::sealed::Inside;
use crate::error::{Lost, ReleaseError, TransactionError};
use crate::locks::guard_set::Shares;
use crate::locks::transaction::Transaction;
use crate::protocol::hold::LockState;
use crate::session::threads::BoxFuture;

/// A guard of any kind, for code that does not depend on the kind: the guard of a lock
/// ([`LockGuard`](crate::LockGuard)), of several locks ([`MultiLockGuard`](crate::MultiLockGuard)),
/// or of permits ([`SemaphorePermit`](crate::SemaphorePermit)).
///
/// Each guard has methods of the same names. Prefer them if the type is known, because their
/// futures need no `Box`. [`AnyGuard`](crate::AnyGuard) is one type for guards of all kinds of
/// locks.
///
/// `Box<dyn Guard>` implements the trait too. The trait is sealed: only the guards of this crate
/// implement it.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zookeeper_test_server::Server::start()?;
/// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
/// use zookeeper_recipes::{Guard, InterProcessMutex, InterProcessSemaphore};
///
/// /// The locks that a worker must hold while it works.
/// async fn work(needed: Vec<Box<dyn Guard>>) -> Result<(), Box<dyn std::error::Error>> {
///     assert!(needed.iter().all(|guard| guard.is_held()));
///     for guard in needed {
///         guard.release().await?;
///     }
///     Ok(())
/// }
///
/// let gpu = InterProcessSemaphore::new(&client, "/cluster/gpus", 8)?.try_acquire().await?;
/// let model = InterProcessMutex::new(&client, "/models/prices")?.lock().await?;
/// work(vec![Box::new(gpu), Box::new(model)]).await
/// # }
/// ```
///
/// As a bound of generic code:
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zookeeper_test_server::Server::start()?;
/// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
/// use zookeeper_recipes::{Guard, InterProcessMultiLock, Lost};
///
/// /// Waits for the loss in a task, which does not keep the lock.
/// fn alarm(guard: &impl Guard) -> tokio::task::JoinHandle<Lost> {
///     tokio::spawn(guard.lost())
/// }
///
/// let both = InterProcessMultiLock::from_paths(&client, ["/accounts/4", "/accounts/17"])?;
/// let guard = both.lock().await?;
/// let alarm = alarm(&guard);
/// client.close().await?;
/// println!("{}", alarm.await?);
/// # Ok(())
/// # }
/// ```
#[must_use = "dropping the guard releases the lock at once: bind it to `_guard`, not to `_`"]
#[async_trait]
pub trait Guard: sealed::IsGuard + fmt::Debug + Send + Sync + 'static {
    /// Returns the state; for several locks or permits, the worst state.
    fn state(&self) -> LockState {
        self.shares(Inside(())).state()
    }

    /// Waits until the state differs from `known`, and returns the new one.
    ///
    /// Returns at once if the state differs already, or after a loss. See
    /// [`LockGuard::state_changed`](crate::LockGuard::state_changed).
    ///
    /// # Cancel safety
    /// Cancel safe: this only waits.
    async fn state_changed(&self, known: LockState) -> LockState {
        self.shares(Inside(())).state_changed(known).await
    }

    /// Reads the clock, and returns `true` unless a lock or a permit is lost. See
    /// [`LockGuard::is_held`](crate::LockGuard::is_held).
    fn is_held(&self) -> bool {
        self.shares(Inside(())).lost_now().is_none()
    }

    // As in the guards, `lost`, `revoked` and `release` are not `async fn`s: the futures of the
    // first two borrow nothing, and `release` releases when it is called, polled or not.

    /// Returns a future that resolves when a lock or a permit is lost, and does not borrow the
    /// guard. See [`LockGuard::lost`](crate::LockGuard::lost).
    ///
    /// # Cancel safety
    /// Cancel safe: this only waits. If a lock or a permit is lost in between, the next future
    /// resolves at once.
    fn lost(&self) -> Pin<Box<dyn Future<Output = Lost> + Send>> {
        Box::pin(self.shares(Inside(())).lost())
    }

    /// Runs `work` until it is done or a lock or a permit is lost. See
    /// [`LockGuard::while_held`](crate::LockGuard::while_held).
    ///
    /// # Errors
    /// [`Lost`] if a lock or a permit was lost first; `work` is dropped.
    ///
    /// # Cancel safety
    /// If the future is dropped, so is `work`.
    fn while_held<T: Send>(
        &self,
        work: impl Future<Output = T> + Send,
    ) -> impl Future<Output = Result<T, Lost>> + Send
    where
        Self: Sized,
    {
        self.shares(Inside(())).while_held(work)
    }

    /// Returns a future that resolves when another process requests revocation, and does not borrow
    /// the guard. See [`LockGuard::revoked`](crate::LockGuard::revoked).
    ///
    /// # Cancel safety
    /// If the future is dropped, the watch ends. The next one resolves for the same request.
    fn revoked(&self) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(self.shares(Inside(())).revoked())
    }

    /// Sets the end of the lease to `lease` from now, sooner or later than before. See
    /// [`LockGuard::set_lease`](crate::LockGuard::set_lease).
    ///
    /// # Errors
    /// [`Lost`] if a lock or a permit is lost.
    fn set_lease(&self, lease: Duration) -> Result<(), Lost> {
        self.shares(Inside(())).set_lease(lease)
    }

    /// Returns how much of the lease is left; `None` if there is no lease. See
    /// [`LockGuard::lease_remaining`](crate::LockGuard::lease_remaining).
    fn lease_remaining(&self) -> Option<Duration> {
        self.shares(Inside(())).lease_remaining()
    }

    /// Returns an empty transaction, which is committed only while all locks or permits are held.
    fn transaction(&self) -> Transaction<'_> {
        self.shares(Inside(())).transaction()
    }

    /// Reads a node, and the version of its data; returns `None` if there is no such node. See
    /// [`LockGuard::get_data`](crate::LockGuard::get_data).
    ///
    /// # Errors
    /// See [`LockGuard::get_data`](crate::LockGuard::get_data).
    ///
    /// # Cancel safety
    /// Cancel safe: this only reads.
    async fn get_data(&self, path: &str) -> Result<Option<(Vec<u8>, i32)>, TransactionError> {
        self.shares(Inside(())).get_data(path).await
    }

    /// Releases the locks or permits, and waits until a server has confirmed the deletion of their
    /// nodes.
    ///
    /// # Errors
    /// See [`LockGuard::release`](crate::LockGuard::release).
    ///
    /// # Cancel safety
    /// The call itself releases the locks or permits. If the future is dropped, only the outcome is
    /// lost.
    fn release(self) -> Pin<Box<dyn Future<Output = Result<(), ReleaseError>> + Send>>
    where
        Self: Sized,
    {
        Box::new(self).release_boxed(Inside(()))
    }
}

pub(crate) mod sealed {
    use crate::error::ReleaseError;
    use crate::locks::guard_set::Shares;
    use crate::session::threads::BoxFuture;

    /// Implemented by the guards of this crate.
    #[expect(unnameable_types, reason = "sealing is the point")]
    pub trait IsGuard {
        #[doc(hidden)]
        fn shares(&self, inside: Inside) -> Shares<'_>;

        /// Releases a guard whose type may be unknown.
        #[doc(hidden)]
        fn release_boxed(
            self: Box<Self>,
            inside: Inside,
        ) -> BoxFuture<'static, Result<(), ReleaseError>>;
    }

    /// An argument that only this crate can make, so that no other crate can call the method.
    #[expect(unnameable_types, reason = "only this crate needs a name for it")]
    #[derive(Debug)]
    pub struct Inside(pub(crate) ());
}

impl<G: Guard + ?Sized> sealed::IsGuard for Box<G> {
    fn shares(&self, inside: Inside) -> Shares<'_> {
        (**self).shares(inside)
    }

    fn release_boxed(
        self: Box<Self>,
        inside: Inside,
    ) -> BoxFuture<'static, Result<(), ReleaseError>> {
        (*self).release_boxed(inside)
    }
}

impl<G: Guard + ?Sized> Guard for Box<G> {}
