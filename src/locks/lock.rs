//! The type `Lock`, which has four public names; the trait of all locks; and the steps of every
//! call that acquires a lock:
//!
//! 1. The method that is called turns the timeout into a `Budget`, part of an `Ask`. The time
//!    before the first poll of the future counts, too.
//! 2. `acquire` begins the report of the call, and waits for the grant of an attempt.
//! 3. `until_received` reads the clock when the grant arrives. A grant that was lost on its way is
//!    dropped, and another attempt follows, within the deadline.
//! 4. `ObservedCall::ended` gives the grant back if the client was drained in the meantime, and
//!    otherwise the hold becomes a guard.
//!
//! Semaphores and multi-locks take the same steps with attempts of their own. A try makes one
//! attempt, and reports a grant that was lost.

use std::fmt;
use std::panic::Location;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;

use crate::blocking::block_on;
use crate::engine::acquisition::{Hold, ObservedCall, first_lost, watch_self_wait};
use crate::engine::attempts::shared_attempt;
use crate::engine::lock::path_lock::{Ask, Budget, PathLock};
use crate::engine::request::look;
use crate::engine::who;
use crate::error::{AcquireError, Error, LostReason, Purpose, ReleaseError, TryLockError};
use crate::locks::guard::{AnyGuard, LockGuard};
use crate::locks::guards::sealed::Inside;
use crate::locks::mode::{Any, LockKind};
use crate::protocol::moment::LONGEST;
use crate::protocol::node_name::Kind;
use crate::session::core::Core;
use crate::values::contender::Contender;
use crate::values::path::NodePath;
use crate::values::shown::Quoted;

/// A lock of any kind, for code that does not depend on the kind. Curator has an interface of this
/// name.
///
/// Each lock has its own methods of the same names. Prefer those methods if the type is known:
/// their futures need no `Box`, and their errors name the caller's line. Errors returned by the
/// trait's methods name a line of this library.
///
/// References to locks, and locks in a `Box` or an `Arc`, implement the trait too. With the trait
/// in scope, `lock()` on an `Arc<InterProcessMutex>` is the trait's method, which returns an
/// [`AnyGuard`]. No lock needs an `Arc`, because the clones of a lock are handles of the same lock.
///
/// The trait is sealed: only the locks of this crate, and pointers to them, implement it. Other
/// implementations could not make a guard, and a sealed trait can gain methods in a minor version.
/// To add something to a lock (metrics, logging), wrap the lock or the call.
///
/// # Examples
/// A lock that is chosen at run time, as `dyn`:
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zookeeper_test_server::Server::start()?;
/// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
/// use std::time::Duration;
/// use zookeeper_recipes::{InterProcessFairLock, InterProcessLock, InterProcessMutex};
///
/// async fn nightly(lock: &dyn InterProcessLock) -> Result<(), Box<dyn std::error::Error>> {
///     let guard = lock.acquire(Duration::from_secs(10)).await?;
///     // Only one process runs the job.
///     guard.release().await?;
///     Ok(())
/// }
///
/// let fair = std::env::var_os("FAIR").is_some();
/// let lock: Box<dyn InterProcessLock> = if fair {
///     Box::new(InterProcessFairLock::new(&client, "/jobs/nightly")?)
/// } else {
///     Box::new(InterProcessMutex::new(&client, "/jobs/nightly")?)
/// };
/// nightly(&*lock).await
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
/// use zookeeper_recipes::{AcquireError, InterProcessLock, InterProcessReadWriteLock};
///
/// /// Returns how many contenders hold the lock or wait for it.
/// async fn crowd<L: InterProcessLock + ?Sized>(lock: &L) -> Result<usize, AcquireError> {
///     Ok(lock.participants().await?.len())
/// }
///
/// let lock = InterProcessReadWriteLock::new(&client, "/cache/prices")?;
/// assert_eq!(crowd(&lock.read_lock()).await?, 0);
/// # Ok(())
/// # }
/// ```
///
/// A lock in an `Arc`, in a type that works with any lock:
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zookeeper_test_server::Server::start()?;
/// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
/// use std::sync::Arc;
/// use zookeeper_recipes::{InterProcessLock, InterProcessMutex};
///
/// struct Nightly<L> {
///     lock: L,
/// }
///
/// impl<L: InterProcessLock> Nightly<L> {
///     async fn is_running(&self) -> bool {
///         self.lock.is_locked().await.unwrap_or(true)
///     }
/// }
///
/// let lock: Arc<dyn InterProcessLock> = Arc::new(InterProcessMutex::new(&client, "/jobs/nightly")?);
/// let nightly = Nightly { lock: Arc::clone(&lock) };
/// assert!(!nightly.is_running().await);
/// let guard = lock.lock().await?;
/// assert!(nightly.is_running().await);
/// # guard.release().await?;
/// # Ok(())
/// # }
/// ```
#[async_trait]
pub trait InterProcessLock: sealed::IsLock + fmt::Debug + Send + Sync {
    /// Acquires the lock, waiting for at most `timeout`.
    ///
    /// # Errors
    /// [`AcquireError::TimedOut`] if live contenders were in the way for all that time. See
    /// [`AcquireError`] for the other variants.
    ///
    /// # Cancel safety
    /// If the future is dropped, the place in the queue is lost, and a node that was created is
    /// deleted in the background.
    async fn acquire(&self, timeout: Duration) -> Result<AnyGuard, AcquireError> {
        any(self).acquire(timeout).await
    }

    /// Acquires the lock, waiting at most until `deadline`.
    ///
    /// # Errors
    /// See [`acquire`](Self::acquire).
    ///
    /// # Cancel safety
    /// See [`acquire`](Self::acquire).
    async fn acquire_until(&self, deadline: Instant) -> Result<AnyGuard, AcquireError> {
        any(self).acquire_until(deadline).await
    }

    /// Acquires the lock for no longer than `lease`, waiting for at most `wait`.
    ///
    /// When the lease ends, the guard is lost, and the lock is released. See
    /// [`InterProcessMutex::acquire_with_lease`](crate::InterProcessMutex::acquire_with_lease).
    ///
    /// # Errors
    /// - [`AcquireError::InvalidLease`] if `lease` is zero.
    /// - See [`acquire`](Self::acquire).
    ///
    /// # Cancel safety
    /// See [`acquire`](Self::acquire).
    async fn acquire_with_lease(
        &self,
        wait: Duration,
        lease: Duration,
    ) -> Result<AnyGuard, AcquireError> {
        any(self).acquire_with_lease(wait, lease).await
    }

    /// Acquires the lock, waiting for as long as other contenders are in the way.
    ///
    /// # Errors
    /// See [`AcquireError`]; never [`AcquireError::TimedOut`].
    ///
    /// # Cancel safety
    /// See [`acquire`](Self::acquire).
    async fn lock(&self) -> Result<AnyGuard, AcquireError> {
        any(self).lock().await
    }

    /// Acquires the lock if it is free.
    ///
    /// # Errors
    /// [`TryLockError::WouldBlock`] if a live contender is in the way. See [`AcquireError`] for the
    /// errors in [`TryLockError::Acquire`].
    ///
    /// # Cancel safety
    /// See [`acquire`](Self::acquire).
    async fn try_lock(&self) -> Result<AnyGuard, TryLockError> {
        any(self).try_lock().await
    }

    /// Returns the paths of the nodes in the lock's queue, in order.
    ///
    /// The first node of a mutex or a fair lock holds the lock, or is about to. A read lock returns
    /// only the readers, and a write lock only the writers.
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// # Cancel safety
    /// Cancel safe: this only reads.
    async fn participants(&self) -> Result<Vec<NodePath>, Error> {
        any(self).participants().await
    }

    /// Returns all contenders, of all processes and in order: the holders and the waiters.
    ///
    /// Unlike [`participants`](Self::participants), this returns the readers and the writers of a
    /// read-write lock together. See [`InterProcessMutex::queue`](crate::InterProcessMutex::queue).
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// # Cancel safety
    /// Cancel safe: this only reads.
    async fn queue(&self) -> Result<Vec<Contender>, Error> {
        any(self).queue().await
    }

    /// Returns the contenders that hold the lock: none, one, or all readers before the first writer
    /// of a read-write lock.
    ///
    /// See [`InterProcessMutex::holders`](crate::InterProcessMutex::holders).
    ///
    /// # Errors
    /// See [`queue`](Self::queue).
    ///
    /// # Cancel safety
    /// Cancel safe: this only reads.
    async fn holders(&self) -> Result<Vec<Contender>, Error> {
        any(self).holders().await
    }

    /// Returns `true` if the lock has a contender of any process: a holder or a waiter.
    ///
    /// # Errors
    /// See [`queue`](Self::queue).
    ///
    /// # Cancel safety
    /// Cancel safe: this only reads.
    async fn is_locked(&self) -> Result<bool, Error> {
        any(self).is_locked().await
    }

    /// Returns how many contenders of all processes hold the lock or wait for it.
    ///
    /// # Errors
    /// See [`queue`](Self::queue).
    ///
    /// # Cancel safety
    /// Cancel safe: this only reads.
    async fn queue_len(&self) -> Result<usize, Error> {
        any(self).queue_len().await
    }

    /// Deletes the node of a contender, which then no longer holds the lock, or its place in the
    /// queue. Returns `false` if the node no longer existed.
    ///
    /// The holder may still be at work: see
    /// [`InterProcessMutex::break_lock`](crate::InterProcessMutex::break_lock).
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// # Cancel safety
    /// If the future is dropped, the node may or may not be deleted.
    async fn break_lock(&self, contender: &Contender) -> Result<bool, Error> {
        any(self).break_lock(contender).await
    }

    /// Returns `true` if a guard that this client acquired with this type of lock holds the lock.
    fn is_acquired_in_this_process(&self) -> bool {
        any(self).is_acquired_in_this_process()
    }

    /// Returns the path of the lock, as given.
    fn path(&self) -> &str {
        self.any(Inside(())).path_lock.path.user()
    }
}

impl<K: LockKind> InterProcessLock for Lock<K> {}

impl<L: InterProcessLock + ?Sized> InterProcessLock for &L {}

impl<L: InterProcessLock + ?Sized> InterProcessLock for Box<L> {}

impl<L: InterProcessLock + ?Sized> InterProcessLock for Arc<L> {}

/// Returns a handle of the same lock, whose kind is known at run time only.
fn any(lock: &(impl sealed::IsLock + ?Sized)) -> Lock<Any> {
    let sealed::AnyLock { path_lock, mode } = lock.any(Inside(()));
    Lock {
        path_lock: Arc::clone(path_lock),
        mode,
    }
}

pub(crate) mod sealed {
    use std::sync::Arc;

    use super::Lock;
    use crate::engine::lock::path_lock::PathLock;
    use crate::locks::guards::sealed::Inside;
    use crate::locks::mode::{Any, LockKind};

    /// Implemented by the locks of this crate, and by pointers to them.
    #[expect(unnameable_types, reason = "sealing is the point")]
    pub trait IsLock {
        #[doc(hidden)]
        fn any(&self, inside: Inside) -> AnyLock<'_>;
    }

    /// A lock whose kind is known at run time only.
    #[expect(
        unnameable_types,
        missing_debug_implementations,
        reason = "only this crate needs a name for it"
    )]
    #[derive(Clone, Copy)]
    pub struct AnyLock<'a> {
        pub(crate) path_lock: &'a Arc<PathLock>,
        pub(crate) mode: Any,
    }

    impl<K: LockKind> IsLock for Lock<K> {
        fn any(&self, _: Inside) -> AnyLock<'_> {
            AnyLock {
                path_lock: &self.path_lock,
                mode: self.mode.into(),
            }
        }
    }

    impl<L: IsLock + ?Sized> IsLock for &L {
        fn any(&self, inside: Inside) -> AnyLock<'_> {
            (**self).any(inside)
        }
    }

    impl<L: IsLock + ?Sized> IsLock for Box<L> {
        fn any(&self, inside: Inside) -> AnyLock<'_> {
            (**self).any(inside)
        }
    }

    impl<L: IsLock + ?Sized> IsLock for Arc<L> {
        fn any(&self, inside: Inside) -> AnyLock<'_> {
            (**self).any(inside)
        }
    }
}

/// A lock across processes: the type of [`InterProcessMutex`](crate::InterProcessMutex),
/// [`InterProcessFairLock`](crate::InterProcessFairLock),
/// [`InterProcessReadLock`](crate::InterProcessReadLock) and
/// [`InterProcessWriteLock`](crate::InterProcessWriteLock).
///
/// Each of these names is a `Lock` with its own [kind](LockKind): [`Exclusive`], [`Fair`], [`Read`]
/// or [`Write`]. The page of each says how that lock works. This page documents the methods that
/// they share.
///
/// A lock is a handle: it is cheap to clone, and does no I/O until it is used. All handles of one
/// client for one path share their state.
///
/// # Examples
/// A function for locks of all kinds, which returns the guard of the given lock:
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zookeeper_test_server::Server::start()?;
/// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
/// use zookeeper_recipes::mode::LockKind;
/// use zookeeper_recipes::{AcquireError, InterProcessReadWriteLock, Lock, LockGuard, ReadGuard};
///
/// async fn logged<K: LockKind>(lock: &Lock<K>) -> Result<LockGuard<K::Mode>, AcquireError> {
///     let guard = lock.lock().await?;
///     println!("{} is held by {}", lock.path(), guard.node());
///     Ok(guard)
/// }
///
/// let prices = InterProcessReadWriteLock::new(&client, "/cache/prices")?;
/// let reader: ReadGuard = logged(&prices.read_lock()).await?;
/// # reader.release().await?;
/// # Ok(())
/// # }
/// ```
///
/// [`Exclusive`]: crate::mode::Exclusive
/// [`Fair`]: crate::mode::Fair
/// [`Read`]: crate::mode::Read
/// [`Write`]: crate::mode::Write
#[derive(Clone)]
pub struct Lock<K: LockKind> {
    pub(crate) path_lock: Arc<PathLock>,
    mode: K::Mode,
}

impl<K: LockKind> fmt::Debug for Lock<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({})", K::NAME, Quoted(self.path()))
    }
}

impl<K: LockKind<Mode: Default>> Lock<K> {
    pub(crate) fn of(path_lock: Arc<PathLock>) -> Self {
        Self {
            path_lock,
            mode: K::Mode::default(),
        }
    }
}

impl<K: LockKind> Lock<K> {
    /// Acquires the lock, waiting for at most `timeout`.
    ///
    /// The timeout covers everything: creating missing directories, retries, reconnects, and
    /// waiting for other contenders. With [`Duration::ZERO`](std::time::Duration::ZERO), the call
    /// works like [`try_lock`](Self::try_lock): it waits only for the servers, up to the connect
    /// timeout. A timeout of more than a year means no deadline.
    ///
    /// # Errors
    /// - [`AcquireError::TimedOut`](crate::AcquireError::TimedOut) if live contenders were in the
    ///   way for all that time. The call is not granted the lock later; a node that could not be
    ///   deleted yet is deleted in the background.
    /// - [`ErrorKind::Connection`](crate::ErrorKind::Connection) if the time passed without an
    ///   answer from a server.
    /// - See [`AcquireError`](crate::AcquireError) for the other variants.
    ///
    /// # Cancel safety
    /// If the future is dropped (in `select!` or [`tokio::time::timeout`]), the call loses its
    /// place in the queue, but nothing else. Nodes that it created, or may have created, are
    /// deleted in the background; [`Client::flush`](crate::Client::flush) waits for this. Do not
    /// keep the future without polling it: if it is granted the lock, other contenders cannot have
    /// the lock until the future is polled or dropped.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// # let lock = zookeeper_recipes::InterProcessMutex::new(&client, "/inventory/sku-42")?;
    /// use std::time::Duration;
    /// use zookeeper_recipes::Acquisition::{Acquired, Busy};
    /// use zookeeper_recipes::OrBusy;
    ///
    /// match lock.acquire(Duration::from_secs(2)).await.or_busy()? {
    ///     Acquired(guard) => guard.release().await?, // after the work
    ///     Busy => println!("too busy, try again later"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn acquire(
        &self,
        timeout: Duration,
    ) -> impl Future<Output = Result<LockGuard<K::Mode>, AcquireError>> + Send + 'static + use<K>
    {
        self.clone()
            .granted(within(self.client(), self.kind(), timeout))
    }

    /// Acquires the lock, waiting for at most `wait`, runs `work` and releases the lock.
    ///
    /// Returns the output of `work` with the result of the release, which is
    /// [`ReleaseError::Lost`](crate::ReleaseError::Lost) if the lock was lost before the release:
    /// check both. A loss does not stop `work`, which has the guard: use
    /// [`while_held`](crate::LockGuard::while_held) for parts that a loss must stop, and pass the
    /// [token](crate::LockGuard::fencing_token) to the resource. If `work` panics, the lock is
    /// released in the background.
    ///
    /// # Errors
    /// See [`acquire`](Self::acquire). If this returns an error, `work` has not been called.
    ///
    /// # Cancel safety
    /// While the future waits for the lock, see [`acquire`](Self::acquire). If it is dropped later,
    /// `work` is dropped, and then the lock is released in the background.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// # let lock = zookeeper_recipes::InterProcessMutex::new(&client, "/inventory/sku-42")?;
    /// # async fn sell() -> u32 { 3 }
    /// use std::time::Duration;
    ///
    /// let wait = Duration::from_secs(10);
    /// let work = lock.with(wait, async |guard| guard.while_held(sell()).await);
    /// let (left, released) = work.await?;
    /// println!("{} left", left?); // an error if the lock was lost first
    /// released?;
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn with<T, F: AsyncFnOnce(&LockGuard<K::Mode>) -> T>(
        &self,
        wait: Duration,
        work: F,
    ) -> impl Future<Output = Result<(T, Result<(), ReleaseError>), AcquireError>> + use<T, F, K>
    {
        let acquired = self.acquire(wait);
        async move {
            let guard = acquired.await?;
            let output = work(&guard).await;
            Ok((output, guard.release().await))
        }
    }

    /// Acquires the lock, waiting at most until `deadline`.
    ///
    /// If `deadline` has passed, this works like [`try_lock`](Self::try_lock): it waits only for
    /// the servers, up to the connect timeout.
    ///
    /// # Errors
    /// See [`acquire`](Self::acquire).
    ///
    /// # Cancel safety
    /// See [`acquire`](Self::acquire).
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// # let lock = zookeeper_recipes::InterProcessMutex::new(&client, "/inventory/sku-42")?;
    /// use std::time::{Duration, Instant};
    ///
    /// let deadline = Instant::now() + Duration::from_secs(10); // of the whole request
    /// let guard = lock.acquire_until(deadline).await?;
    /// guard.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn acquire_until(
        &self,
        deadline: Instant,
    ) -> impl Future<Output = Result<LockGuard<K::Mode>, AcquireError>> + Send + 'static + use<K>
    {
        self.clone()
            .granted(until(self.client(), self.kind(), deadline))
    }

    /// Acquires the lock for no longer than `lease`, waiting for at most `wait`.
    ///
    /// The lease begins with the grant. When the lease ends, the guard is lost, with
    /// [`LostReason::LeaseOver`](crate::LostReason::LeaseOver), and then released, even if the
    /// holder is not done. [`set_lease`](crate::LockGuard::set_lease) moves the end, and
    /// [`lease_remaining`](crate::LockGuard::lease_remaining) returns how much time is left. Guards
    /// that [share](crate::LockGuard::reenter) a hold share the lease, and a conversion keeps it.
    ///
    /// The lease is measured by the clock of this process, which on Linux continues while the
    /// machine sleeps. A holder that was paused may continue its work after the end of the lease,
    /// as after any other loss, so the resource must compare the
    /// [token](crate::LockGuard::fencing_token).
    ///
    /// No lease is needed to free the lock of a crashed process, because the lock ends with the
    /// session of that process. A lease limits how long a live process keeps the lock; a lease of
    /// more than a year means no limit. `wait` is the timeout of [`acquire`](Self::acquire).
    ///
    /// # Errors
    /// - [`AcquireError::InvalidLease`](crate::AcquireError::InvalidLease) if `lease` is zero.
    /// - [`AcquireError::LeaseOver`](crate::AcquireError::LeaseOver) if the lease ended before this
    ///   future was polled again, and no time is left for another try.
    /// - See [`acquire`](Self::acquire).
    ///
    /// # Cancel safety
    /// See [`acquire`](Self::acquire).
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// # let lock = zookeeper_recipes::InterProcessMutex::new(&client, "/inventory/sku-42")?;
    /// use std::time::Duration;
    /// use zookeeper_recipes::{LostReason, ReleaseError};
    ///
    /// let (wait, lease) = (Duration::from_secs(10), Duration::from_millis(200));
    /// let guard = lock.acquire_with_lease(wait, lease).await?;
    /// // Work that takes longer than the lease.
    /// # guard.lost().await;
    /// match guard.release().await {
    ///     Ok(()) => println!("done in time"),
    ///     Err(ReleaseError::Lost(lost)) => assert_eq!(lost.reason(), LostReason::LeaseOver),
    ///     Err(error) => return Err(error.into()),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    #[doc(alias = "lease")]
    pub fn acquire_with_lease(
        &self,
        wait: Duration,
        lease: Duration,
    ) -> impl Future<Output = Result<LockGuard<K::Mode>, AcquireError>> + Send + 'static + use<K>
    {
        let ask = within(self.client(), self.kind(), wait);
        self.clone().granted(Ask {
            lease: Some(lease),
            ..ask
        })
    }

    /// Acquires like [`acquire`](Self::acquire), and blocks the thread until it returns.
    ///
    /// Use this in synchronous code, such as a script. Do not call methods with the prefix
    /// `blocking_` in asynchronous code, because they block the executor's thread; use
    /// `spawn_blocking` there. Unlike tokio's blocking methods, these do not panic in that case.
    ///
    /// # Errors
    /// See [`acquire`](Self::acquire).
    ///
    /// # Examples
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::blocking_connect(&server.connect_string())?;
    /// # let lock = zookeeper_recipes::InterProcessMutex::new(&client, "/inventory/sku-42")?;
    /// use std::time::Duration;
    /// use zookeeper_recipes::Acquisition::{Acquired, Busy};
    /// use zookeeper_recipes::OrBusy;
    ///
    /// match lock.blocking_acquire(Duration::from_secs(2)).or_busy()? {
    ///     Acquired(guard) => guard.blocking_release()?, // after the work
    ///     Busy => println!("too busy, try again later"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn blocking_acquire(&self, timeout: Duration) -> Result<LockGuard<K::Mode>, AcquireError> {
        block_on(self.acquire(timeout))
    }

    /// Acquires like [`acquire_with_lease`](Self::acquire_with_lease), and blocks the thread until
    /// it returns.
    ///
    /// # Errors
    /// See [`acquire_with_lease`](Self::acquire_with_lease).
    #[track_caller]
    pub fn blocking_acquire_with_lease(
        &self,
        wait: Duration,
        lease: Duration,
    ) -> Result<LockGuard<K::Mode>, AcquireError> {
        block_on(self.acquire_with_lease(wait, lease))
    }

    /// Acquires the lock, waiting for as long as other contenders are in the way.
    ///
    /// A call that has to wait for a guard of the same task never returns. When the call has waited
    /// a second for a lock that this client itself holds, a `WARN` in the log names the lines of
    /// both calls, once for each lock of a client.
    ///
    /// # Errors
    /// - [`ErrorKind::Connection`](crate::ErrorKind::Connection) if no server answers for as long
    ///   as the client's retry policy allows.
    /// - See [`AcquireError`](crate::AcquireError) for the other variants; never
    ///   [`AcquireError::TimedOut`](crate::AcquireError::TimedOut).
    ///
    /// # Cancel safety
    /// See [`acquire`](Self::acquire).
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// # let lock = zookeeper_recipes::InterProcessMutex::new(&client, "/inventory/sku-42")?;
    /// let guard = lock.lock().await?;
    /// assert!(guard.is_held());
    /// guard.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn lock(
        &self,
    ) -> impl Future<Output = Result<LockGuard<K::Mode>, AcquireError>> + Send + 'static + use<K>
    {
        self.clone().granted(forever(self.kind()))
    }

    /// Acquires the lock without waiting for other contenders.
    ///
    /// If the lock is contended, the call creates no node: it reads the queue, and reads it again
    /// after a `sync`, because a member of the ensemble may lag behind. The call waits for nodes of
    /// this client that are still being deleted, unless other callers of this client wait for the
    /// lock.
    ///
    /// While another task of this client holds a mutex or the write lock, trying that lock returns
    /// `WouldBlock` without a request. A reader that finds no node to share reads the queue. A fair
    /// lock with `max_waiters` nodes of this client returns
    /// [`TooManyWaiters`](crate::AcquireError::TooManyWaiters), even if the lock is free.
    ///
    /// # Errors
    /// - [`TryLockError::WouldBlock`](crate::TryLockError::WouldBlock) if a live contender is in
    ///   the way.
    /// - [`ErrorKind::Connection`](crate::ErrorKind::Connection) if no server replies within the
    ///   connect timeout.
    /// - See [`AcquireError`](crate::AcquireError) for the other errors in
    ///   [`TryLockError::Acquire`](crate::TryLockError::Acquire).
    ///
    /// # Cancel safety
    /// See [`acquire`](Self::acquire).
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// # let lock = zookeeper_recipes::InterProcessMutex::new(&client, "/inventory/sku-42")?;
    /// use zookeeper_recipes::TryLockError;
    ///
    /// match lock.try_lock().await {
    ///     Ok(guard) => guard.release().await?, // after the work
    ///     Err(TryLockError::WouldBlock { contention, .. }) => println!("{contention}"),
    ///     Err(error) => return Err(error.into()),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    #[doc(alias = "tryAcquire")]
    pub fn try_lock(
        &self,
    ) -> impl Future<Output = Result<LockGuard<K::Mode>, TryLockError>> + Send + 'static + use<K>
    {
        self.clone()
            .granted_at_once(at_once(self.client(), self.kind()))
    }

    /// Acquires like [`lock`](Self::lock), and blocks the thread until it returns.
    ///
    /// A call that has to wait for a guard of the same thread never returns.
    ///
    /// # Errors
    /// See [`lock`](Self::lock).
    #[track_caller]
    pub fn blocking_lock(&self) -> Result<LockGuard<K::Mode>, AcquireError> {
        block_on(self.lock())
    }

    /// Acquires like [`try_lock`](Self::try_lock), and blocks the thread until the servers have
    /// answered.
    ///
    /// # Errors
    /// See [`try_lock`](Self::try_lock).
    #[track_caller]
    pub fn blocking_try_lock(&self) -> Result<LockGuard<K::Mode>, TryLockError> {
        block_on(self.try_lock())
    }

    fn client(&self) -> &Core {
        &self.path_lock.client
    }

    fn kind(&self) -> Kind {
        let mode: Any = self.mode.into();
        mode.kind()
    }

    async fn granted(self, ask: Ask) -> Result<LockGuard<K::Mode>, AcquireError> {
        let mode = self.mode;
        // The call is made inside this function, because a future that is passed in and awaited
        // would be stored twice, and many calls may wait.
        acquire(self.path_lock, ask)
            .await
            .map(|hold| LockGuard::in_mode(hold, mode))
    }

    async fn granted_at_once(self, ask: Ask) -> Result<LockGuard<K::Mode>, TryLockError> {
        let mode = self.mode;
        try_lock(self.path_lock, ask)
            .await
            .map(|hold| LockGuard::in_mode(hold, mode))
    }

    /// Returns the paths of the nodes in the lock's queue, of all processes and in order.
    ///
    /// The first node of a mutex or a fair lock holds the lock, or is about to. A read lock returns
    /// only the readers, and a write lock only the writers, as in Curator;
    /// [`InterProcessReadWriteLock::participants`](crate::InterProcessReadWriteLock::participants)
    /// returns both. The queue may change before the call returns.
    ///
    /// If a contender of another recipe is in the queue, the call waits up to 1 s for it to leave
    /// before it returns [`MixedRecipes`](crate::ErrorKind::MixedRecipes).
    ///
    /// # Errors
    /// See [`Error`](crate::Error).
    ///
    /// # Cancel safety
    /// Cancel safe: this only reads.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// # let lock = zookeeper_recipes::InterProcessMutex::new(&client, "/inventory/sku-42")?;
    /// let guard = lock.lock().await?;
    /// assert_eq!(lock.participants().await?, [guard.node()]);
    /// guard.release().await?;
    /// assert!(lock.participants().await?.is_empty());
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "getParticipantNodes")]
    pub async fn participants(&self) -> Result<Vec<NodePath>, Error> {
        participants(&self.path_lock, Some(self.kind())).await
    }

    /// Reads the clock, and returns `true` if a guard that this client acquired with this type of
    /// lock holds the lock.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// # let lock = zookeeper_recipes::InterProcessMutex::new(&client, "/inventory/sku-42")?;
    /// let guard = lock.lock().await?;
    /// assert!(lock.is_acquired_in_this_process());
    /// drop(guard);
    /// assert!(!lock.is_acquired_in_this_process());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    #[doc(alias = "isAcquiredInThisProcess")]
    pub fn is_acquired_in_this_process(&self) -> bool {
        self.path_lock.is_held(self.kind())
    }

    /// Returns the path of the lock, as given.
    #[must_use]
    pub fn path(&self) -> &str {
        self.path_lock.path.user()
    }

    /// Returns all contenders, of all processes and in order: the holders and the waiters.
    ///
    /// Each [`Contender`](crate::Contender) identifies its owner. A read-write lock has one queue
    /// of readers and writers, which both sides return. The call lists the lock's directory and
    /// reads each node, at most 32 at a time, and leaves out nodes that no longer exist. The queue
    /// may change before the call returns.
    ///
    /// If a contender of another recipe is in the queue, the call waits up to 1 s for it to leave
    /// before it returns [`MixedRecipes`](crate::ErrorKind::MixedRecipes).
    ///
    /// A node whose ACL denies this client READ shows no [`identity`](crate::Contender::identity).
    /// Servers from ZooKeeper 3.9.3 on also refuse its Stat; then
    /// [`ErrorKind::NoAuth`](crate::ErrorKind::NoAuth) is returned, and names the node.
    ///
    /// # Errors
    /// See [`Error`](crate::Error).
    ///
    /// # Cancel safety
    /// Cancel safe: this only reads.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// # let lock = zookeeper_recipes::InterProcessMutex::new(&client, "/inventory/sku-42")?;
    /// let guard = lock.lock().await?;
    /// for contender in lock.queue().await? {
    ///     println!("{contender}"); // web-3/4711/stock (exclusive, queued 12s ago, session ..
    /// #   assert!(contender.is_mine());
    /// }
    /// guard.release().await?;
    /// assert!(lock.queue().await?.is_empty());
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "contenders")]
    pub async fn queue(&self) -> Result<Vec<Contender>, Error> {
        look(&self.path_lock, who::queue).await
    }

    /// Returns the contenders that hold the lock: none, one, or all readers before the first writer
    /// of a read-write lock.
    ///
    /// The holders are the first contenders in the queue. The first of them may only be about to
    /// hold the lock. The call reads only these nodes, and otherwise works like
    /// [`queue`](Self::queue).
    ///
    /// # Errors
    /// See [`queue`](Self::queue).
    ///
    /// # Cancel safety
    /// Cancel safe: this only reads.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// # let lock = zookeeper_recipes::InterProcessMutex::new(&client, "/inventory/sku-42")?;
    /// let guard = lock.lock().await?;
    /// let holders = lock.holders().await?;
    /// assert_eq!(holders[0].node(), &guard.node());
    /// # guard.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn holders(&self) -> Result<Vec<Contender>, Error> {
        look(&self.path_lock, who::holders).await
    }

    /// Returns `true` if the lock has a contender of any process: a holder or a waiter.
    ///
    /// This costs one request, a list of the lock's directory. The answer may be out of date when
    /// it arrives: use it for display, and [`try_lock`](crate::InterProcessMutex::try_lock) to
    /// acquire the lock if it is free.
    ///
    /// # Errors
    /// See [`queue`](Self::queue).
    ///
    /// # Cancel safety
    /// Cancel safe: this only reads.
    pub async fn is_locked(&self) -> Result<bool, Error> {
        Ok(self.queue_len().await? > 0)
    }

    /// Returns how many contenders of all processes hold the lock or wait for it.
    ///
    /// This costs one request, a list of the lock's directory. The tasks of a client share one
    /// node, and count as one ([`hand_off`](crate::RecipeBuilder::hand_off)); each waiter of a fair
    /// lock counts separately.
    ///
    /// # Errors
    /// See [`queue`](Self::queue).
    ///
    /// # Cancel safety
    /// Cancel safe: this only reads.
    pub async fn queue_len(&self) -> Result<usize, Error> {
        look(&self.path_lock, who::count).await
    }

    /// Deletes the node of a contender of any process, so that the contender no longer holds the
    /// lock, or its place in the queue. Returns `false` if the node no longer existed.
    ///
    /// This is for an operator who knows that the holder hangs. **The holder may still be at
    /// work**: the next in line is granted the lock at once, but a holder that uses this crate is
    /// notified by its heartbeat, within a sixth of its session timeout (5 s by default), with
    /// [`LostReason::NodeDeleted`](crate::LostReason::NodeDeleted). Until then, only the [fencing
    /// token](crate::LockGuard::fencing_token) prevents writes by the holder; a
    /// [transaction](crate::LockGuard::transaction) under its guard fails at once. To ask the
    /// holder to release the lock, use [`Client::attempt_revoke`](crate::Client::attempt_revoke).
    ///
    /// A waiter whose node is deleted is not granted the lock. At its turn, or when it next reads
    /// the queue, it joins the end of the queue again if its client's retry policy allows;
    /// otherwise it returns [`AcquireError::NodeDeleted`](crate::AcquireError::NodeDeleted).
    ///
    /// The node is deleted only if it is still the node of `contender`: if it belongs to the same
    /// session, and was created by the same transaction.
    ///
    /// # Errors
    /// - [`ErrorKind::Rejected`](crate::ErrorKind::Rejected) if the contender is in the queue of
    ///   another lock. No request is sent.
    /// - [`ErrorKind::NoAuth`](crate::ErrorKind::NoAuth) if the ACL of the node's directory denies
    ///   this client DELETE.
    /// - [`ErrorKind::Connection`](crate::ErrorKind::Connection) if no server answered, or another
    ///   client wrote to the node before each try to delete it: the node may or may not be deleted.
    /// - See [`Error`](crate::Error) for the other kinds.
    ///
    /// # Cancel safety
    /// If the future is dropped, the node may or may not be deleted.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// # let lock = zookeeper_recipes::InterProcessMutex::new(&client, "/inventory/sku-42")?;
    /// let guard = lock.lock().await?;
    /// for holder in lock.holders().await? {
    ///     println!("breaks the lock of {holder}");
    ///     assert!(lock.break_lock(&holder).await?);
    /// }
    /// assert!(!lock.is_locked().await?);
    /// # guard.lost().await;
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "forceUnlock")]
    pub async fn break_lock(&self, contender: &Contender) -> Result<bool, Error> {
        break_lock(&self.path_lock, contender).await
    }
}

/// Returns the request of a call that waits for as long as other contenders are in the way.
#[track_caller]
pub(crate) fn forever(kind: Kind) -> Ask {
    Ask::new(kind, Budget::Forever, Location::caller())
}

/// Returns the request of a call that does not wait for other contenders, only for the servers.
#[track_caller]
pub(crate) fn at_once(client: &Core, kind: Kind) -> Ask {
    Ask::new(
        kind,
        Budget::Try {
            timeout: client.connect_timeout,
        },
        Location::caller(),
    )
}

/// Returns the request of a call with a timeout.
#[track_caller]
pub(crate) fn within(client: &Core, kind: Kind, timeout: Duration) -> Ask {
    if timeout.is_zero() {
        return at_once(client, kind);
    }
    let budget = after(timeout).map_or(Budget::Forever, |deadline| Budget::Until {
        deadline,
        asked: timeout,
    });
    Ask::new(kind, budget, Location::caller())
}

/// Returns the deadline of a call with this timeout; `None` if it is so far away that the call
/// needs none.
pub(crate) fn after(timeout: Duration) -> Option<Instant> {
    // tokio silently replaces a distant instant with a nearer one.
    if timeout > LONGEST {
        None
    } else {
        Instant::now().checked_add(timeout)
    }
}

/// Returns the request of a call with a deadline.
#[track_caller]
pub(crate) fn until(client: &Core, kind: Kind, deadline: Instant) -> Ask {
    let asked = deadline.saturating_duration_since(Instant::now());
    if asked.is_zero() {
        return at_once(client, kind);
    }
    Ask::new(kind, Budget::Until { deadline, asked }, Location::caller())
}

/// The maximum number of repetitions of a call whose lease ended before the grant reached the
/// caller.
const UNSEEN_LEASES: u32 = 3;

/// Acquires a lock for a call, and reports the beginning and the result of the call. Logs a warning
/// if the call waits for a hold of its own client, and acquires again if the lock was lost before
/// the caller received it.
pub(crate) async fn acquire(path_lock: Arc<PathLock>, mut ask: Ask) -> Result<Hold, AcquireError> {
    check_lease(&ask, path_lock.path.user())?;
    // The value marks the call as waiting until this function ends, for the warning of a call that
    // waits for a hold of its own client.
    let _waiting = watch_self_wait(&path_lock, &ask);
    let call = ObservedCall::begin(&path_lock, &mut ask);
    let attempt = |ask| shared_attempt::acquire(Arc::clone(&path_lock), ask);
    let result = until_received(ask, attempt, std::slice::from_ref).await;
    call.ended(&path_lock, result, std::slice::from_ref)
}

/// Repeats `attempt` until its caller has received a grant that is still held: a grant may be lost
/// on its way, while the caller is paused or does not poll.
#[expect(
    clippy::manual_async_fn,
    reason = "each call that waits would store its arguments twice"
)]
pub(crate) fn until_received<T, F: Future<Output = Result<T, TryLockError>>>(
    mut ask: Ask,
    attempt: impl Fn(Ask) -> F,
    holds: impl Fn(&T) -> &[Hold],
) -> impl Future<Output = Result<T, AcquireError>> {
    async move {
        let started = Instant::now();
        let mut unseen_leases = 0;
        loop {
            let granted = match attempt(ask).await {
                Ok(granted) => granted,
                Err(error) => {
                    let asked = match ask.budget {
                        Budget::Until { asked, .. } => asked,
                        Budget::Try { .. } | Budget::Forever => Duration::ZERO,
                    };
                    return Err(error.timed_out(asked, ask.budget.waited(started)));
                }
            };
            // A grant that was lost on its way is not returned: the caller would begin its work
            // without the lock. The drop of `granted` releases it
            // (docs/protocol.md#attempt-outlives-caller).
            let Some((path_lock, reason)) = first_lost(holds(&granted)) else {
                return Ok(granted);
            };
            // A deadline alone would not end the repetitions if the lease were too short for this
            // caller.
            unseen_leases += u32::from(reason == LostReason::LeaseOver);
            let in_time = match ask.budget {
                Budget::Forever => true,
                Budget::Until { deadline, .. } => Instant::now() < deadline,
                // A try does not wait, so it reports the loss.
                Budget::Try { .. } => false,
            };
            if !in_time || unseen_leases > UNSEEN_LEASES {
                return Err(path_lock.lost_at_once(reason));
            }
            // The call has been admitted before, so it may wait where a newcomer would be refused,
            // for example by the bound on the waiters of a fair lock.
            ask = ask.again();
        }
    }
}

/// Acquires a lock if it is free.
pub(crate) async fn try_lock(path_lock: Arc<PathLock>, mut ask: Ask) -> Result<Hold, TryLockError> {
    let call = ObservedCall::begin(&path_lock, &mut ask);
    let granted = check_held(
        shared_attempt::acquire(Arc::clone(&path_lock), ask).await,
        std::slice::from_ref,
    );
    call.ended(&path_lock, granted, std::slice::from_ref)
}

/// Returns an error if the call has a lease of zero.
pub(crate) fn check_lease(ask: &Ask, path: &str) -> Result<(), AcquireError> {
    match ask.lease {
        Some(Duration::ZERO) => Err(AcquireError::InvalidLease {
            path: path.to_owned(),
        }),
        Some(_) | None => Ok(()),
    }
}

/// Returns the grant of a try, or an error if the grant was lost before its caller received it.
pub(crate) fn check_held<T>(
    granted: Result<T, TryLockError>,
    holds: impl Fn(&T) -> &[Hold],
) -> Result<T, TryLockError> {
    let granted = granted?;
    match first_lost(holds(&granted)) {
        Some((path_lock, reason)) => Err(path_lock.lost_at_once(reason).into()),
        None => Ok(granted),
    }
}

/// Returns the nodes in the queue.
pub(crate) async fn participants(
    path_lock: &Arc<PathLock>,
    kind: Option<Kind>,
) -> Result<Vec<NodePath>, Error> {
    look(path_lock, move |path_lock| async move {
        look::participants(&path_lock, kind).await
    })
    .await
}

/// Runs a query of a lock on its session's thread.
pub(crate) async fn look<
    T: Send + 'static,
    F: Future<Output = Result<T, Error>> + Send + 'static,
>(
    path_lock: &Arc<PathLock>,
    look: impl FnOnce(Arc<PathLock>) -> F + Send,
) -> Result<T, Error> {
    // The query is not detached: if the caller leaves, no other code needs the result.
    let looked = path_lock.client.tasks.start(look(Arc::clone(path_lock)));
    looked
        .await
        .unwrap_or_else(|why| Err(path_lock.error(Purpose::Look, why)))
}

/// Deletes the node of a contender. Returns whether it existed.
pub(crate) async fn break_lock(
    path_lock: &Arc<PathLock>,
    contender: &Contender,
) -> Result<bool, Error> {
    let (work, broken) = (Arc::clone(path_lock), contender.clone());
    let broken = path_lock
        .client
        .tasks
        .start(async move { who::break_lock(&work, &broken).await });
    // The task is detached, because a deletion that was sent may be carried out, and its outcome is
    // logged then.
    broken
        .detach()
        .await
        .unwrap_or_else(|why| Err(who::not_broken(path_lock, contender, why)))
}
