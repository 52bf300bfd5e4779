//! The trait that all guards implement.

use std::fmt;
use std::pin::Pin;
use std::time::Duration;

use crate::error::{Lost, ReleaseError, TransactionError};
use crate::guard::{LockGuard, LockState, while_held};
use crate::lock::sealed::Inside;
use crate::mode::Mode;
use crate::multi_lock::MultiLockGuard;
use crate::semaphore::SemaphorePermit;
use crate::transaction::{NodeData, Transaction};

/// A guard of any kind, for code that does not depend on the kind: of a lock ([`LockGuard`]), of several
/// ([`MultiLockGuard`]), or of permits ([`SemaphorePermit`]).
///
/// The guards have methods of the same names, which are the better choice where the type is known: their
/// futures need no `Box`. Guards of locks of several kinds are also one type, [`AnyGuard`](crate::AnyGuard).
///
/// It is implemented for `Box<dyn Guard>`, too. The trait is sealed: only the guards of this crate implement
/// it.
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
pub trait Guard: sealed::Sealed + fmt::Debug + Send + Sync + 'static {
    /// Returns the state: of several locks or permits, the worst one.
    fn state(&self) -> LockState;

    /// Waits until the state differs from `known`, and returns the new one.
    ///
    /// Returns at once if the state differs already, or after a loss. See [`LockGuard::state_changed`].
    ///
    /// # Cancel safety
    /// If the future is dropped, nothing is lost.
    fn state_changed(&self, known: LockState) -> Pin<Box<dyn Future<Output = LockState> + Send + '_>>;

    /// Returns `true` unless a lock or a permit is lost, by the clock. See [`LockGuard::is_held`].
    fn is_held(&self) -> bool;

    /// Returns a future that resolves when a lock or a permit is lost. It does not borrow the guard. See
    /// [`LockGuard::lost`].
    ///
    /// # Cancel safety
    /// If the future is dropped, nothing is lost: the next one resolves at once if a lock or a permit was
    /// lost in between.
    fn lost(&self) -> Pin<Box<dyn Future<Output = Lost> + Send>>;

    /// Runs `work` until it is done or a lock or a permit is lost. See [`LockGuard::while_held`].
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
        while_held(self.lost(), || self.lost_now(Inside(())), work)
    }

    /// Returns a future that resolves when another process requests revocation. It does not borrow the guard.
    /// See [`LockGuard::revoked`].
    ///
    /// # Cancel safety
    /// If the future is dropped, the watch ends. The next one resolves for the same request.
    fn revoked(&self) -> Pin<Box<dyn Future<Output = ()> + Send>>;

    /// Sets the end of the lease to `lease` from now, sooner or later than it was. See
    /// [`LockGuard::set_lease`].
    ///
    /// # Errors
    /// [`Lost`] if a lock or a permit is lost, by the clock.
    fn set_lease(&self, lease: Duration) -> Result<(), Lost>;

    /// Returns how much of the lease is left; `None` if there is no lease. See
    /// [`LockGuard::lease_remaining`].
    fn lease_remaining(&self) -> Option<Duration>;

    /// Returns an empty transaction, which is committed only while all locks or permits are held.
    fn transaction(&self) -> Transaction<'_>;

    /// Reads a node, and the version of its data. `None` if there is no such node. See
    /// [`LockGuard::get_data`].
    ///
    /// # Errors
    /// See [`LockGuard::get_data`].
    ///
    /// # Cancel safety
    /// It only reads.
    fn get_data<'a>(
        &'a self,
        path: &'a str,
    ) -> Pin<Box<dyn Future<Output = Result<Option<NodeData>, TransactionError>> + Send + 'a>>;

    /// Releases the locks or permits, and waits until a server has confirmed it.
    ///
    /// # Errors
    /// See [`LockGuard::release`].
    ///
    /// # Cancel safety
    /// They are released in any case, from the moment of the call. If the future is dropped, the outcome is
    /// not known.
    fn release(self) -> Pin<Box<dyn Future<Output = Result<(), ReleaseError>> + Send>>
    where
        Self: Sized,
    {
        Box::new(self).release_boxed(Inside(()))
    }
}

mod sealed {
    use std::pin::Pin;

    use crate::error::{Lost, ReleaseError};
    use crate::lock::sealed::Inside;

    /// Implemented by the guards of this crate.
    #[expect(unnameable_types, reason = "sealing is the point")]
    pub trait Sealed {
        /// Returns the loss, if there is one by the clock.
        #[doc(hidden)]
        fn lost_now(&self, inside: Inside) -> Option<Lost>;

        /// Releases a guard whose type may not be known.
        #[doc(hidden)]
        fn release_boxed(
            self: Box<Self>,
            inside: Inside,
        ) -> Pin<Box<dyn Future<Output = Result<(), ReleaseError>> + Send>>;
    }
}

/// Implements the trait by the methods of a guard.
macro_rules! guards {
    ($([$($generics:tt)*] $guard:ty),+ $(,)?) => {
        $(
            impl<$($generics)*> sealed::Sealed for $guard {
                fn lost_now(&self, _: Inside) -> Option<Lost> {
                    Self::lost_now(self)
                }

                fn release_boxed(
                    self: Box<Self>,
                    _: Inside,
                ) -> Pin<Box<dyn Future<Output = Result<(), ReleaseError>> + Send>> {
                    Box::pin(Self::release(*self))
                }
            }

            impl<$($generics)*> Guard for $guard {
                fn state(&self) -> LockState {
                    Self::state(self)
                }

                fn state_changed(
                    &self,
                    known: LockState,
                ) -> Pin<Box<dyn Future<Output = LockState> + Send + '_>> {
                    Box::pin(Self::state_changed(self, known))
                }

                fn is_held(&self) -> bool {
                    Self::is_held(self)
                }

                fn lost(&self) -> Pin<Box<dyn Future<Output = Lost> + Send>> {
                    Box::pin(Self::lost(self))
                }

                fn revoked(&self) -> Pin<Box<dyn Future<Output = ()> + Send>> {
                    Box::pin(Self::revoked(self))
                }

                fn set_lease(&self, lease: Duration) -> Result<(), Lost> {
                    Self::set_lease(self, lease)
                }

                fn lease_remaining(&self) -> Option<Duration> {
                    Self::lease_remaining(self)
                }

                fn transaction(&self) -> Transaction<'_> {
                    Self::transaction(self)
                }

                fn get_data<'a>(
                    &'a self,
                    path: &'a str,
                ) -> Pin<Box<dyn Future<Output = Result<Option<NodeData>, TransactionError>> + Send + 'a>> {
                    Box::pin(Self::get_data(self, path))
                }
            }
        )+
    };
}

guards!([M: Mode] LockGuard<M>, [] MultiLockGuard, [] SemaphorePermit);

impl<G: Guard + ?Sized> sealed::Sealed for Box<G> {
    fn lost_now(&self, inside: Inside) -> Option<Lost> {
        (**self).lost_now(inside)
    }

    fn release_boxed(
        self: Box<Self>,
        inside: Inside,
    ) -> Pin<Box<dyn Future<Output = Result<(), ReleaseError>> + Send>> {
        (*self).release_boxed(inside)
    }
}

impl<G: Guard + ?Sized> Guard for Box<G> {
    fn state(&self) -> LockState {
        (**self).state()
    }

    fn state_changed(&self, known: LockState) -> Pin<Box<dyn Future<Output = LockState> + Send + '_>> {
        (**self).state_changed(known)
    }

    fn is_held(&self) -> bool {
        (**self).is_held()
    }

    fn lost(&self) -> Pin<Box<dyn Future<Output = Lost> + Send>> {
        (**self).lost()
    }

    fn revoked(&self) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        (**self).revoked()
    }

    fn set_lease(&self, lease: Duration) -> Result<(), Lost> {
        (**self).set_lease(lease)
    }

    fn lease_remaining(&self) -> Option<Duration> {
        (**self).lease_remaining()
    }

    fn transaction(&self) -> Transaction<'_> {
        (**self).transaction()
    }

    fn get_data<'a>(
        &'a self,
        path: &'a str,
    ) -> Pin<Box<dyn Future<Output = Result<Option<NodeData>, TransactionError>> + Send + 'a>> {
        (**self).get_data(path)
    }
}
