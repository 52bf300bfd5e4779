//! What all locks have in common: the trait, and the methods of each.

use std::fmt;
use std::panic::Location;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;

use crate::contender::Contender;
use crate::engine::hold::Hold;
use crate::engine::observe::Call;
use crate::engine::path_lock::{Ask, Budget, PathLock};
use crate::engine::{contenders, look, room, self_wait};
use crate::error::{AcquireError, Error, LostReason, Purpose, TryLockError};
use crate::guard::{AnyGuard, after};
use crate::path::NodePath;
use crate::protocol::node_name::Kind;

/// A lock of any kind, for code that does not depend on the kind; Curator's interface of this name.
///
/// The locks have methods of the same names, which are the better choice where the type is known: their
/// futures need no `Box`, and errors name the caller's line, which through this trait is a line of this
/// library.
///
/// References to locks, and locks in a `Box` or an `Arc`, are locks, too. With the trait in scope, `lock()`
/// of an `Arc<InterProcessMutex>` is the trait's, and returns an [`AnyGuard`]; no lock needs an `Arc`, since
/// its clones are handles of the same lock.
///
/// The trait is sealed: only the locks of this crate, and pointers to them, implement it. An implementation
/// elsewhere could not make
/// a guard, and a sealed trait can gain methods in a minor version. To add something to a lock (metrics,
/// logging), wrap the lock or the call.
///
/// # Examples
/// Chosen at run time, as `dyn`:
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
///     // one process of all runs the job
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
/// Shared, as a value of a type that is not named:
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
pub trait InterProcessLock: sealed::Sealed + fmt::Debug + Send + Sync {
    /// Acquires the lock, waiting at most for `timeout`.
    ///
    /// # Errors
    /// [`AcquireError::TimedOut`] if the lock was not free in time: live contenders were in the way. See
    /// [`AcquireError`] for the other variants.
    ///
    /// # Cancel safety
    /// If the future is dropped, the place in the queue is lost, and a node that was created is deleted in
    /// the background.
    async fn acquire(&self, timeout: Duration) -> Result<AnyGuard, AcquireError>;

    /// Acquires the lock, waiting at most until `deadline`.
    ///
    /// # Errors
    /// See [`acquire`](Self::acquire).
    ///
    /// # Cancel safety
    /// See [`acquire`](Self::acquire).
    async fn acquire_until(&self, deadline: Instant) -> Result<AnyGuard, AcquireError>;

    /// Acquires the lock for no longer than `lease`, waiting at most for `wait`.
    ///
    /// When the lease is over, the guard is lost, and the lock is released. See
    /// [`InterProcessMutex::acquire_with_lease`](crate::InterProcessMutex::acquire_with_lease).
    ///
    /// # Errors
    /// - [`AcquireError::InvalidLease`] if `lease` is zero.
    /// - See [`acquire`](Self::acquire).
    ///
    /// # Cancel safety
    /// See [`acquire`](Self::acquire).
    async fn acquire_with_lease(&self, wait: Duration, lease: Duration) -> Result<AnyGuard, AcquireError>;

    /// Acquires the lock, waiting for as long as other contenders are in the way.
    ///
    /// # Errors
    /// See [`AcquireError`]; never [`AcquireError::TimedOut`].
    ///
    /// # Cancel safety
    /// See [`acquire`](Self::acquire).
    async fn lock(&self) -> Result<AnyGuard, AcquireError>;

    /// Acquires the lock if it is free.
    ///
    /// # Errors
    /// [`TryLockError::WouldBlock`] if a live contender is in the way. See [`AcquireError`] for what
    /// [`TryLockError::Acquire`] contains.
    ///
    /// # Cancel safety
    /// See [`acquire`](Self::acquire).
    async fn try_lock(&self) -> Result<AnyGuard, TryLockError>;

    /// Returns the paths of the nodes in the lock's queue, in order.
    ///
    /// Of a mutex or a fair lock the first one holds the lock, or is about to. For a read lock these are only
    /// the readers, for a write lock only the writers.
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// # Cancel safety
    /// It only reads.
    async fn participants(&self) -> Result<Vec<NodePath>, Error>;

    /// Returns all contenders, of all processes and in order: who holds the lock, and who waits for it.
    ///
    /// Unlike [`participants`](Self::participants) it returns readers and writers of a read-write lock together.
    /// See [`InterProcessMutex::queue`](crate::InterProcessMutex::queue).
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// # Cancel safety
    /// It only reads.
    async fn queue(&self) -> Result<Vec<Contender>, Error>;

    /// Returns the contenders that hold the lock: none, one, or of a read-write lock all readers before the first
    /// writer.
    ///
    /// See [`InterProcessMutex::holders`](crate::InterProcessMutex::holders).
    ///
    /// # Errors
    /// See [`queue`](Self::queue).
    ///
    /// # Cancel safety
    /// It only reads.
    async fn holders(&self) -> Result<Vec<Contender>, Error>;

    /// Returns `true` if any contender of any process holds the lock, or is about to.
    ///
    /// # Errors
    /// See [`queue`](Self::queue).
    ///
    /// # Cancel safety
    /// It only reads.
    async fn is_locked(&self) -> Result<bool, Error>;

    /// Returns how many contenders of all processes hold the lock or wait for it.
    ///
    /// # Errors
    /// See [`queue`](Self::queue).
    ///
    /// # Cancel safety
    /// It only reads.
    async fn queue_len(&self) -> Result<usize, Error>;

    /// Deletes the node of a contender, so that it does not hold the lock, or its place in the queue, any more.
    /// Returns `false` if the node did not exist any more.
    ///
    /// The holder may still be at work: see
    /// [`InterProcessMutex::break_lock`](crate::InterProcessMutex::break_lock).
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// # Cancel safety
    /// If the future is dropped, the node may or may not be deleted.
    async fn break_lock(&self, contender: &Contender) -> Result<bool, Error>;

    /// Returns `true` if the lock is held by a guard that a lock of this type and this client acquired.
    fn is_acquired_in_this_process(&self) -> bool;

    /// Returns the path of the lock, as it was given.
    fn path(&self) -> &str;
}

/// Implements the trait for a pointer to a lock, by the lock that it points to.
macro_rules! pointers {
    ($($pointer:ty),+) => {
        $(
            impl<T: InterProcessLock + ?Sized> sealed::Sealed for $pointer {
                fn member(&self, inside: sealed::Inside) -> sealed::OneLock {
                    (**self).member(inside)
                }
            }

            #[async_trait]
            impl<T: InterProcessLock + ?Sized> InterProcessLock for $pointer {
                async fn acquire(&self, timeout: Duration) -> Result<AnyGuard, AcquireError> {
                    (**self).acquire(timeout).await
                }

                async fn acquire_until(&self, deadline: Instant) -> Result<AnyGuard, AcquireError> {
                    (**self).acquire_until(deadline).await
                }

                async fn acquire_with_lease(
                    &self,
                    wait: Duration,
                    lease: Duration,
                ) -> Result<AnyGuard, AcquireError> {
                    (**self).acquire_with_lease(wait, lease).await
                }

                async fn lock(&self) -> Result<AnyGuard, AcquireError> {
                    (**self).lock().await
                }

                async fn try_lock(&self) -> Result<AnyGuard, TryLockError> {
                    (**self).try_lock().await
                }

                async fn participants(&self) -> Result<Vec<NodePath>, Error> {
                    (**self).participants().await
                }

                async fn queue(&self) -> Result<Vec<Contender>, Error> {
                    (**self).queue().await
                }

                async fn holders(&self) -> Result<Vec<Contender>, Error> {
                    (**self).holders().await
                }

                async fn is_locked(&self) -> Result<bool, Error> {
                    (**self).is_locked().await
                }

                async fn queue_len(&self) -> Result<usize, Error> {
                    (**self).queue_len().await
                }

                async fn break_lock(&self, contender: &Contender) -> Result<bool, Error> {
                    (**self).break_lock(contender).await
                }

                fn is_acquired_in_this_process(&self) -> bool {
                    (**self).is_acquired_in_this_process()
                }

                fn path(&self) -> &str {
                    (**self).path()
                }
            }
        )+
    };
}

pointers!(&T, Box<T>, Arc<T>);

pub(crate) mod sealed {
    use crate::engine::path_lock::Member;

    /// Implemented by the locks of this crate.
    #[expect(unnameable_types, reason = "sealing is the point")]
    pub trait Sealed {
        /// Returns the lock as a member of a multi-lock.
        #[doc(hidden)]
        fn member(&self, inside: Inside) -> OneLock;
    }

    /// An argument that only this crate can make, so that no other calls the method.
    #[expect(unnameable_types, reason = "only this crate needs a name for it")]
    #[derive(Debug)]
    pub struct Inside(pub(crate) ());

    /// A lock as a member of a multi-lock.
    #[expect(unnameable_types, reason = "only this crate needs a name for it")]
    #[derive(Debug)]
    pub struct OneLock(pub(crate) Member);
}

/// Returns the budget of a call that does not wait for other contenders, only for the servers.
pub(crate) fn at_once(path_lock: &PathLock) -> Budget {
    Budget::Try { timeout: path_lock.client().connect_timeout() }
}

/// Returns the budget of a call with a timeout.
pub(crate) fn within(path_lock: &PathLock, timeout: Duration) -> Budget {
    if timeout.is_zero() {
        return at_once(path_lock);
    }
    after(timeout).map_or(Budget::Forever, |deadline| Budget::Until { deadline, asked: timeout })
}

/// Returns the budget of a call with a deadline.
pub(crate) fn until(path_lock: &PathLock, deadline: Instant) -> Budget {
    let asked = deadline.saturating_duration_since(Instant::now());
    if asked.is_zero() { at_once(path_lock) } else { Budget::Until { deadline, asked } }
}

/// How often in a row a grant is asked for again whose lease was over before the caller had it.
const UNSEEN_LEASES: u32 = 3;

/// Acquires a lock.
pub(crate) async fn acquire(path_lock: Arc<PathLock>, mut ask: Ask) -> Result<Hold, AcquireError> {
    let _waiting = self_wait::watch(&path_lock, &ask);
    let call = Call::begin(&path_lock, &mut ask);
    let attempt = |ask| room::acquire(Arc::clone(&path_lock), ask);
    let result = until_had(ask, attempt, |hold| Some((hold.path_lock(), hold.lost()?))).await;
    call.ended(&path_lock, result, std::slice::from_ref)
}

/// Repeats `attempt` until its caller has the grant: one may be lost between the grant and here, while the
/// caller was paused or not polled, and has seen no guard. `lost` returns which lock is lost, and how.
#[expect(clippy::manual_async_fn, reason = "each of many that wait would have its arguments twice")]
pub(crate) fn until_had<T, F: Future<Output = Result<T, TryLockError>>>(
    mut ask: Ask,
    attempt: impl Fn(Ask) -> F,
    lost: impl Fn(&T) -> Option<(&Arc<PathLock>, LostReason)>,
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
            let Some((path_lock, reason)) = lost(&granted) else { return Ok(granted) };
            // One that is too short for this caller would come to no end by the deadline alone.
            unseen_leases += u32::from(reason == LostReason::LeaseOver);
            let in_time = match ask.budget {
                Budget::Forever => true,
                Budget::Until { deadline, .. } => Instant::now() < deadline,
                Budget::Try { .. } => false,
            };
            if !in_time || unseen_leases > UNSEEN_LEASES {
                return Err(path_lock.lost_at_once(reason));
            }
            ask = ask.again();
        }
    }
}

/// Acquires a lock for no longer than a lease.
pub(crate) async fn acquire_with_lease(
    path_lock: Arc<PathLock>,
    ask: Ask,
    lease: Duration,
) -> Result<Hold, AcquireError> {
    if lease.is_zero() {
        return Err(AcquireError::InvalidLease { path: path_lock.path().user().to_owned() });
    }
    acquire(path_lock, Ask { lease: Some(lease), ..ask }).await
}

/// Acquires a lock if it is free.
pub(crate) async fn try_lock(
    path_lock: Arc<PathLock>,
    kind: Kind,
    location: &'static Location<'static>,
) -> Result<Hold, TryLockError> {
    let mut ask = Ask::new(kind, at_once(&path_lock), location);
    let call = Call::begin(&path_lock, &mut ask);
    let result = match room::acquire(Arc::clone(&path_lock), ask).await {
        Ok(hold) => match hold.lost() {
            None => Ok(hold),
            // Lost between the grant and here.
            Some(reason) => Err(path_lock.lost_at_once(reason).into()),
        },
        Err(error) => Err(error),
    };
    call.ended(&path_lock, result, std::slice::from_ref)
}

/// Returns the nodes in the queue.
pub(crate) async fn participants(
    path_lock: Arc<PathLock>,
    kind: Option<Kind>,
) -> Result<Vec<NodePath>, Error> {
    look(path_lock, move |path_lock| async move { look::participants(&path_lock, kind).await }).await
}

/// Runs a look at a lock where its session runs.
async fn look<T: Send + 'static, F: Future<Output = Result<T, Error>> + Send + 'static>(
    path_lock: Arc<PathLock>,
    look: impl FnOnce(Arc<PathLock>) -> F + Send,
) -> Result<T, Error> {
    let looked = path_lock.client().run_while_polled(look(Arc::clone(&path_lock)));
    looked.await.unwrap_or_else(|| Err(path_lock.error(Purpose::Look, path_lock.client().why_ended())))
}

/// Returns all contenders.
pub(crate) async fn queue(path_lock: Arc<PathLock>) -> Result<Vec<Contender>, Error> {
    look(path_lock, |path_lock| async move { contenders::queue(&path_lock).await }).await
}

/// Returns the contenders that hold the lock.
pub(crate) async fn holders(path_lock: Arc<PathLock>) -> Result<Vec<Contender>, Error> {
    look(path_lock, |path_lock| async move { contenders::holders(&path_lock).await }).await
}

/// Returns how many contenders there are.
pub(crate) async fn count(path_lock: Arc<PathLock>) -> Result<usize, Error> {
    look(path_lock, |path_lock| async move { contenders::count(&path_lock).await }).await
}

/// Deletes the node of a contender. Returns whether it existed.
pub(crate) async fn break_lock(path_lock: Arc<PathLock>, contender: &Contender) -> Result<bool, Error> {
    let (work, broken) = (Arc::clone(&path_lock), contender.clone());
    let broken = path_lock.client().run(async move { contenders::break_lock(&work, &broken).await });
    let ended = || contenders::not_broken(&path_lock, contender, path_lock.client().why_ended());
    broken.await.unwrap_or_else(|| Err(ended()))
}

/// The methods of a lock, and the trait, for a type with a `path_lock`.
///
/// `$import` and `$make` are for the examples: what to import, and an expression that makes the lock.
macro_rules! lock_methods {
    ($lock:ident, $guard:ident, $kind:expr, $listed:expr, $import:literal, $make:literal) => {
        impl $lock {
            /// Acquires the lock, waiting at most for `timeout`.
            ///
            /// The timeout covers everything: creating the lock's directory, retries, reconnects, and waiting
            /// for other contenders. [`Duration::ZERO`](std::time::Duration::ZERO) does not wait for other
            /// contenders, as [`try_lock`](Self::try_lock), but it does wait for the servers, up to the
            /// connect timeout. A duration over a year is no deadline.
            ///
            /// # Errors
            /// - [`AcquireError::TimedOut`](crate::AcquireError::TimedOut) if the lock was not free in time:
            ///   live contenders were in the way. It will not be granted to this call any more; a node that
            ///   could not be deleted yet is deleted in the background.
            /// - [`ErrorKind::Connection`](crate::ErrorKind::Connection) if the time passed without an
            ///   answer of a server.
            /// - See [`AcquireError`](crate::AcquireError) for the other variants.
            ///
            /// # Cancel safety
            /// If the future is dropped (in `select!` or [`tokio::time::timeout`]), the place in the queue is
            /// lost and nothing else: a node that was created, or may have been, is deleted in the
            /// background, which [`Client::flush`](crate::Client::flush) waits for. Do not keep the future
            /// without polling it: once the lock is granted to it, all other contenders wait until the future
            /// is polled or dropped.
            ///
            /// # Examples
            /// ```
            /// # #[tokio::main(flavor = "current_thread")]
            /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
            /// # let server = zookeeper_test_server::Server::start()?;
            /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
            /// use std::time::Duration;
            #[doc = concat!("use zookeeper_recipes::{Acquired, Busy, OrBusy, ", $import, "};")]
            ///
            #[doc = concat!("let lock = ", $make, ";")]
            /// match lock.acquire(Duration::from_millis(200)).await.or_busy()? {
            ///     Acquired(guard) => guard.release().await?, // after the work
            ///     Busy => println!("too busy, try again later"),
            /// }
            /// # Ok(())
            /// # }
            /// ```
            #[track_caller]
            pub fn acquire(
                &self,
                timeout: std::time::Duration,
            ) -> impl Future<Output = Result<$guard, crate::AcquireError>> + Send + 'static + use<> {
                let budget = $crate::lock::within(&self.path_lock, timeout);
                let location = std::panic::Location::caller();
                let ask = $crate::engine::path_lock::Ask::new($kind, budget, location);
                let path_lock = std::sync::Arc::clone(&self.path_lock);
                async move { $crate::lock::acquire(path_lock, ask).await.map($guard::new) }
            }

            /// Acquires the lock, waiting at most until `deadline`.
            ///
            /// One that has passed does not wait for other contenders, as [`try_lock`](Self::try_lock), but it
            /// does wait for the servers, up to the connect timeout.
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
            /// use std::time::{Duration, Instant};
            #[doc = concat!("use zookeeper_recipes::", $import, ";")]
            ///
            /// let deadline = Instant::now() + Duration::from_secs(10); // of the whole request
            #[doc = concat!("let lock = ", $make, ";")]
            /// let guard = lock.acquire_until(deadline).await?;
            /// guard.release().await?;
            /// # Ok(())
            /// # }
            /// ```
            #[track_caller]
            pub fn acquire_until(
                &self,
                deadline: std::time::Instant,
            ) -> impl Future<Output = Result<$guard, crate::AcquireError>> + Send + 'static + use<> {
                let budget = $crate::lock::until(&self.path_lock, deadline);
                let location = std::panic::Location::caller();
                let ask = $crate::engine::path_lock::Ask::new($kind, budget, location);
                let path_lock = std::sync::Arc::clone(&self.path_lock);
                async move { $crate::lock::acquire(path_lock, ask).await.map($guard::new) }
            }

            /// Acquires the lock for no longer than `lease`, waiting at most for `wait`.
            ///
            /// The lease begins with the grant. When it is over, the guard is lost, with
            /// [`LostReason::LeaseOver`](crate::LostReason::LeaseOver), and then the lock is released, whether
            /// the holder is done or not. [`set_lease`](crate::LockGuard::set_lease) moves the end, and
            /// [`lease_remaining`](crate::LockGuard::lease_remaining) returns how much is left. Guards that
            /// [share](crate::LockGuard::reenter) the hold share the lease, and a conversion keeps it.
            ///
            /// The clock of this process measures the lease, and goes on while the machine sleeps. A holder
            /// that has been paused may go on with its work after the end, as with any other loss: the
            /// resource has to compare the [token](crate::LockGuard::fencing_token).
            ///
            /// A lock needs no lease to be freed after a crash: it goes with the session of its process, with
            /// a lease or without. A lease bounds how long a process that lives keeps the lock. One of more
            /// than a year is none. `wait` is the timeout of [`acquire`](Self::acquire).
            ///
            /// # Errors
            /// - [`AcquireError::InvalidLease`](crate::AcquireError::InvalidLease) if `lease` is zero.
            /// - [`AcquireError::LeaseOver`](crate::AcquireError::LeaseOver) if the lease was over before this
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
            /// use std::time::Duration;
            #[doc = concat!("use zookeeper_recipes::{LostReason, ReleaseError, ", $import, "};")]
            ///
            #[doc = concat!("let lock = ", $make, ";")]
            /// let (wait, lease) = (Duration::from_secs(10), Duration::from_millis(50));
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
                wait: std::time::Duration,
                lease: std::time::Duration,
            ) -> impl Future<Output = Result<$guard, crate::AcquireError>> + Send + 'static + use<> {
                let budget = $crate::lock::within(&self.path_lock, wait);
                let location = std::panic::Location::caller();
                let ask = $crate::engine::path_lock::Ask::new($kind, budget, location);
                let path_lock = std::sync::Arc::clone(&self.path_lock);
                async move { $crate::lock::acquire_with_lease(path_lock, ask, lease).await.map($guard::new) }
            }

            /// Acquires the lock, waiting for as long as other contenders are in the way.
            ///
            /// If a guard of the same task holds the lock, this waits forever. When it has waited for a hold of
            /// this client for a second, a `WARN` in the log names the lines of both calls, once for each lock of
            /// a client.
            ///
            /// # Errors
            /// - [`ErrorKind::Connection`](crate::ErrorKind::Connection) if no server answers for as
            ///   long as the client's retry policy allows.
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
            #[doc = concat!("use zookeeper_recipes::", $import, ";")]
            ///
            #[doc = concat!("let lock = ", $make, ";")]
            /// let guard = lock.lock().await?;
            /// assert!(guard.is_held());
            /// guard.release().await?;
            /// # Ok(())
            /// # }
            /// ```
            #[track_caller]
            pub fn lock(
                &self,
            ) -> impl Future<Output = Result<$guard, crate::AcquireError>> + Send + 'static + use<> {
                let budget = $crate::engine::path_lock::Budget::Forever;
                let location = std::panic::Location::caller();
                let ask = $crate::engine::path_lock::Ask::new($kind, budget, location);
                let path_lock = std::sync::Arc::clone(&self.path_lock);
                // Called inside: a future that is awaited by another is in it twice, and many may be waiting.
                async move { $crate::lock::acquire(path_lock, ask).await.map($guard::new) }
            }

            /// Acquires the lock if it is free.
            ///
            /// If contended, creates no node: reads the queue, and confirms it after a `sync`, because a
            /// member of the ensemble may lag behind. Nodes of this client that are still being deleted are
            /// waited for.
            ///
            /// While another task of this client has a mutex or the write lock, a try returns `WouldBlock` without a
            /// request; a reader that finds no node to share reads the queue. A fair lock with
            /// `max_waiters` nodes of this client returns
            /// [`TooManyWaiters`](crate::AcquireError::TooManyWaiters), also if the lock is free.
            ///
            /// # Errors
            /// - [`TryLockError::WouldBlock`](crate::TryLockError::WouldBlock) if a live contender is in the
            ///   way.
            /// - [`ErrorKind::Connection`](crate::ErrorKind::Connection) if no server replies within
            ///   the connect timeout.
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
            #[doc = concat!("use zookeeper_recipes::{TryLockError, ", $import, "};")]
            ///
            #[doc = concat!("let lock = ", $make, ";")]
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
            ) -> impl Future<Output = Result<$guard, crate::TryLockError>> + Send + 'static + use<> {
                let location = std::panic::Location::caller();
                let hold = $crate::lock::try_lock(std::sync::Arc::clone(&self.path_lock), $kind, location);
                async move { hold.await.map($guard::new) }
            }

            /// Acquires the lock like [`acquire`](Self::acquire), and blocks the thread meanwhile.
            ///
            /// For threads and scripts. Do not call it, or the others with this prefix, in asynchronous code:
            /// it blocks the executor's thread (use `spawn_blocking`). Tokio's own panic there; these do not notice
            /// it.
            ///
            /// # Errors
            /// See [`acquire`](Self::acquire).
            ///
            /// # Examples
            /// ```
            /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
            /// # let server = zookeeper_test_server::Server::start()?;
            /// # let client = zookeeper_recipes::Client::blocking_connect(&server.connect_string())?;
            /// use std::time::Duration;
            #[doc = concat!("use zookeeper_recipes::{Acquired, Busy, OrBusy, ", $import, "};")]
            ///
            #[doc = concat!("let lock = ", $make, ";")]
            /// match lock.blocking_acquire(Duration::from_millis(200)).or_busy()? {
            ///     Acquired(guard) => guard.blocking_release()?, // after the work
            ///     Busy => println!("too busy, try again later"),
            /// }
            /// # Ok(())
            /// # }
            /// ```
            #[track_caller]
            pub fn blocking_acquire(
                &self,
                timeout: std::time::Duration,
            ) -> Result<$guard, crate::AcquireError> {
                $crate::blocking::block_on(self.acquire(timeout))
            }

            /// Acquires the lock like [`acquire_with_lease`](Self::acquire_with_lease), and blocks the thread
            /// meanwhile.
            ///
            /// # Errors
            /// See [`acquire_with_lease`](Self::acquire_with_lease).
            #[track_caller]
            pub fn blocking_acquire_with_lease(
                &self,
                wait: std::time::Duration,
                lease: std::time::Duration,
            ) -> Result<$guard, crate::AcquireError> {
                $crate::blocking::block_on(self.acquire_with_lease(wait, lease))
            }

            /// Acquires the lock like [`lock`](Self::lock), and blocks the thread meanwhile.
            ///
            /// If a guard of the same thread holds the lock, this waits forever.
            ///
            /// # Errors
            /// See [`lock`](Self::lock).
            #[track_caller]
            pub fn blocking_lock(&self) -> Result<$guard, crate::AcquireError> {
                $crate::blocking::block_on(self.lock())
            }

            /// Acquires the lock if it is free, like [`try_lock`](Self::try_lock), and blocks the thread until the
            /// servers have answered.
            ///
            /// # Errors
            /// See [`try_lock`](Self::try_lock).
            #[track_caller]
            pub fn blocking_try_lock(&self) -> Result<$guard, crate::TryLockError> {
                $crate::blocking::block_on(self.try_lock())
            }

            /// Returns the paths of the nodes in the lock's queue, of all processes and in order.
            ///
            /// Of a mutex or a fair lock the first one holds the lock, or is about to. For a read lock these
            /// are only the readers, for a write lock only the writers, as in Curator:
            /// [`InterProcessReadWriteLock::participants`](crate::InterProcessReadWriteLock::participants)
            /// returns both. The queue may have changed by the time that this returns.
            ///
            /// It waits up to 1 s for a contender of another recipe to leave, and only then returns
            /// [`MixedRecipes`](crate::ErrorKind::MixedRecipes).
            ///
            /// # Errors
            /// See [`Error`](crate::Error).
            ///
            /// # Cancel safety
            /// It only reads.
            ///
            /// # Examples
            /// ```
            /// # #[tokio::main(flavor = "current_thread")]
            /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
            /// # let server = zookeeper_test_server::Server::start()?;
            /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
            #[doc = concat!("use zookeeper_recipes::", $import, ";")]
            ///
            #[doc = concat!("let lock = ", $make, ";")]
            /// let guard = lock.lock().await?;
            /// assert_eq!(lock.participants().await?, [guard.node()]);
            /// guard.release().await?;
            /// assert!(lock.participants().await?.is_empty());
            /// # Ok(())
            /// # }
            /// ```
            #[doc(alias = "getParticipantNodes")]
            pub async fn participants(&self) -> Result<Vec<crate::NodePath>, crate::Error> {
                $crate::lock::participants(std::sync::Arc::clone(&self.path_lock), $listed).await
            }

            /// Returns `true` if the lock is held, by the clock, by a guard that a lock of this type and this
            /// client acquired.
            ///
            /// # Examples
            /// ```
            /// # #[tokio::main(flavor = "current_thread")]
            /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
            /// # let server = zookeeper_test_server::Server::start()?;
            /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
            #[doc = concat!("use zookeeper_recipes::", $import, ";")]
            ///
            #[doc = concat!("let lock = ", $make, ";")]
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
                self.path_lock.is_held($kind)
            }

            /// Returns the path of the lock, as it was given.
            #[must_use]
            pub fn path(&self) -> &str {
                self.path_lock.path().user()
            }
        }

        $crate::lock::queue_methods!($lock, $import, $make, "lock.lock().await?");

        impl $crate::lock::sealed::Sealed for $lock {
            fn member(&self, _: $crate::lock::sealed::Inside) -> $crate::lock::sealed::OneLock {
                let path_lock = std::sync::Arc::clone(&self.path_lock);
                $crate::lock::sealed::OneLock($crate::engine::path_lock::Member { path_lock, kind: $kind })
            }
        }

        #[async_trait::async_trait]
        impl $crate::lock::InterProcessLock for $lock {
            async fn acquire(
                &self,
                timeout: std::time::Duration,
            ) -> Result<crate::AnyGuard, crate::AcquireError> {
                Self::acquire(self, timeout).await.map(Into::into)
            }

            async fn acquire_until(
                &self,
                deadline: std::time::Instant,
            ) -> Result<crate::AnyGuard, crate::AcquireError> {
                Self::acquire_until(self, deadline).await.map(Into::into)
            }

            async fn acquire_with_lease(
                &self,
                wait: std::time::Duration,
                lease: std::time::Duration,
            ) -> Result<crate::AnyGuard, crate::AcquireError> {
                Self::acquire_with_lease(self, wait, lease).await.map(Into::into)
            }

            async fn lock(&self) -> Result<crate::AnyGuard, crate::AcquireError> {
                Self::lock(self).await.map(Into::into)
            }

            async fn try_lock(&self) -> Result<crate::AnyGuard, crate::TryLockError> {
                Self::try_lock(self).await.map(Into::into)
            }

            async fn participants(&self) -> Result<Vec<crate::NodePath>, crate::Error> {
                Self::participants(self).await
            }

            async fn queue(&self) -> Result<Vec<crate::Contender>, crate::Error> {
                Self::queue(self).await
            }

            async fn holders(&self) -> Result<Vec<crate::Contender>, crate::Error> {
                Self::holders(self).await
            }

            async fn is_locked(&self) -> Result<bool, crate::Error> {
                Self::is_locked(self).await
            }

            async fn queue_len(&self) -> Result<usize, crate::Error> {
                Self::queue_len(self).await
            }

            async fn break_lock(&self, contender: &crate::Contender) -> Result<bool, crate::Error> {
                Self::break_lock(self, contender).await
            }

            fn is_acquired_in_this_process(&self) -> bool {
                Self::is_acquired_in_this_process(self)
            }

            fn path(&self) -> &str {
                Self::path(self)
            }
        }
    };
}

/// The methods of a lock, for a type with a `path_lock`, that show who holds it and who waits.
///
/// The texts are for the examples: what to import, and expressions that make the lock and hold it.
macro_rules! queue_methods {
    ($lock:ident, $import:literal, $make:literal, $hold:literal) => {
        impl $lock {
            /// Returns all contenders, of all processes and in order: who holds the lock, and who waits for it.
            ///
            /// Each says who it is ([`Contender`](crate::Contender)). Of a read-write lock readers and writers are
            /// in one queue, which both of its sides return. It lists the lock's directory and reads each node, at
            /// most 32 at a time; one that is gone by then is left out. The queue may have changed by the time that
            /// this returns.
            ///
            /// It waits up to 1 s for a contender of another recipe to leave, and only then returns
            /// [`MixedRecipes`](crate::ErrorKind::MixedRecipes).
            ///
            /// A node whose ACL denies this client READ has no [`identity`](crate::Contender::identity) to show.
            /// Servers from ZooKeeper 3.9.3 refuse its Stat, too:
            /// [`ErrorKind::NoAuth`](crate::ErrorKind::NoAuth) names the node then.
            ///
            /// # Errors
            /// See [`Error`](crate::Error).
            ///
            /// # Cancel safety
            /// It only reads.
            ///
            /// # Examples
            /// ```
            /// # #[tokio::main(flavor = "current_thread")]
            /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
            /// # let server = zookeeper_test_server::Server::start()?;
            /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
            #[doc = concat!("use zookeeper_recipes::", $import, ";")]
            ///
            #[doc = concat!("let lock = ", $make, ";")]
            #[doc = concat!("let guard = ", $hold, ";")]
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
            pub async fn queue(&self) -> Result<Vec<crate::Contender>, crate::Error> {
                $crate::lock::queue(std::sync::Arc::clone(&self.path_lock)).await
            }

            /// Returns the contenders that hold the lock: none, one, or of a read-write lock all readers before the
            /// first writer.
            ///
            /// They are those that are first in the queue. The first may be about to be granted the lock, and a
            /// node that a client [keeps](crate::InterProcessMutexBuilder::sticky) is first while none of its tasks
            /// holds the lock. Only these nodes are read; otherwise it is [`queue`](Self::queue).
            ///
            /// # Errors
            /// See [`queue`](Self::queue).
            ///
            /// # Cancel safety
            /// It only reads.
            ///
            /// # Examples
            /// ```
            /// # #[tokio::main(flavor = "current_thread")]
            /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
            /// # let server = zookeeper_test_server::Server::start()?;
            /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
            #[doc = concat!("use zookeeper_recipes::", $import, ";")]
            ///
            #[doc = concat!("let lock = ", $make, ";")]
            #[doc = concat!("let guard = ", $hold, ";")]
            /// let holders = lock.holders().await?;
            /// assert_eq!(holders[0].node(), &guard.node());
            /// # guard.release().await?;
            /// # Ok(())
            /// # }
            /// ```
            pub async fn holders(&self) -> Result<Vec<crate::Contender>, crate::Error> {
                $crate::lock::holders(std::sync::Arc::clone(&self.path_lock)).await
            }

            /// Returns `true` if any contender of any process holds the lock, or is about to.
            ///
            /// It is one list. The answer may be out of date when it arrives, so it is for display, not for a
            /// decision to acquire the lock: [`InterProcessMutex::try_lock`](crate::InterProcessMutex::try_lock) is.
            ///
            /// # Errors
            /// See [`queue`](Self::queue).
            ///
            /// # Cancel safety
            /// It only reads.
            ///
            /// # Examples
            /// ```
            /// # #[tokio::main(flavor = "current_thread")]
            /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
            /// # let server = zookeeper_test_server::Server::start()?;
            /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
            #[doc = concat!("use zookeeper_recipes::", $import, ";")]
            ///
            #[doc = concat!("let lock = ", $make, ";")]
            /// assert!(!lock.is_locked().await?);
            #[doc = concat!("let guard = ", $hold, ";")]
            /// assert!(lock.is_locked().await?);
            /// # guard.release().await?;
            /// # Ok(())
            /// # }
            /// ```
            pub async fn is_locked(&self) -> Result<bool, crate::Error> {
                $crate::lock::count(std::sync::Arc::clone(&self.path_lock)).await.map(|count| count > 0)
            }

            /// Returns how many contenders of all processes hold the lock or wait for it.
            ///
            /// It is one list. The tasks of a client share one node, and count as one
            /// ([`hand_off`](crate::InterProcessMutexBuilder::hand_off)); those of a fair lock count each.
            ///
            /// # Errors
            /// See [`queue`](Self::queue).
            ///
            /// # Cancel safety
            /// It only reads.
            ///
            /// # Examples
            /// ```
            /// # #[tokio::main(flavor = "current_thread")]
            /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
            /// # let server = zookeeper_test_server::Server::start()?;
            /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
            #[doc = concat!("use zookeeper_recipes::", $import, ";")]
            ///
            #[doc = concat!("let lock = ", $make, ";")]
            #[doc = concat!("let guard = ", $hold, ";")]
            /// assert_eq!(lock.queue_len().await?, 1);
            /// # guard.release().await?;
            /// # Ok(())
            /// # }
            /// ```
            pub async fn queue_len(&self) -> Result<usize, crate::Error> {
                $crate::lock::count(std::sync::Arc::clone(&self.path_lock)).await
            }

            /// Deletes the node of a contender of any process, so that it does not hold the lock, or its place in the
            /// queue, any more. Returns `false` if the node did not exist any more.
            ///
            /// It is for an operator who knows that the holder hangs. **The holder may still be at work**: the next
            /// in line is granted the lock at once, and a holder of this crate is told by its heartbeat, within a
            /// sixth of its session timeout (5 s by default), that its lock is lost, with
            /// [`LostReason::NodeDeleted`](crate::LostReason::NodeDeleted). Until then only the
            /// [fencing token](crate::LockGuard::fencing_token) keeps it from writing; a
            /// [transaction](crate::LockGuard::transaction) under its guard fails from now on. To ask the holder to
            /// release the lock, use [`Client::attempt_revoke`](crate::Client::attempt_revoke).
            ///
            /// A waiter that is broken is not let in. It notices when it would be its turn, or with any other look at
            /// the queue, and queues again at the end, as its client's retry policy says, or ends with
            /// [`AcquireError::NodeDeleted`](crate::AcquireError::NodeDeleted).
            ///
            /// The node is deleted only if it is the one that was returned: of the same session, created by the
            /// same transaction.
            ///
            /// # Errors
            /// - [`ErrorKind::Rejected`](crate::ErrorKind::Rejected) if the contender is in the queue of another lock.
            ///   Nothing is sent.
            /// - [`ErrorKind::NoAuth`](crate::ErrorKind::NoAuth) if the ACL of the directory in which the node is denies
            ///   this client DELETE.
            /// - [`ErrorKind::Connection`](crate::ErrorKind::Connection) if no server answered, or the node was written
            ///   to again and again: it may be deleted or not.
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
            #[doc = concat!("use zookeeper_recipes::", $import, ";")]
            ///
            #[doc = concat!("let lock = ", $make, ";")]
            #[doc = concat!("let guard = ", $hold, ";")]
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
            pub async fn break_lock(&self, contender: &crate::Contender) -> Result<bool, crate::Error> {
                $crate::lock::break_lock(std::sync::Arc::clone(&self.path_lock), contender).await
            }
        }
    };
}

/// A builder of a lock, with the options that all have.
macro_rules! lock_builder {
    ($(#[$docs:meta])* $builder:ident, $lock:ident, $recipe:expr) => {
        $(#[$docs])*
        #[must_use = "it does nothing until `build` is called"]
        #[derive(Clone)]
        pub struct $builder {
            client: crate::Client,
            path: String,
            asked: crate::engine::lock_options::RequestedOptions,
        }

        impl std::fmt::Debug for $builder {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, "{}({})", stringify!($builder), $crate::shown::Quoted(&self.path))
            }
        }

        impl $builder {
            /// Sets the data of the lock nodes, for people and tools that look at them; no recipe reads it.
            ///
            /// At most 1,000,000 bytes, because ZooKeeper refuses requests over 1 MiB. The default is one line that
            /// says who this process is, an [`Identity`](crate::Identity); Curator's is the address of its host.
            /// Kazoo reads the data as UTF-8.
            #[doc(alias = "getLockNodeBytes")]
            pub fn data(mut self, data: impl Into<Vec<u8>>) -> Self {
                self.asked.data = Some(data.into().into());
                self
            }

            /// Sets the ACL of the lock nodes, and of directories that have to be created.
            ///
            /// The default is that of the client ([`ClientBuilder::acl`](crate::ClientBuilder::acl)).
            pub fn acl(mut self, acl: impl Into<Vec<crate::Acl>>) -> Self {
                self.asked.acl = Some(acl.into().into());
                self
            }

            /// Sets the kind of node that missing directories are created as.
            ///
            /// The default is [`ParentNodes::Container`](crate::ParentNodes::Container), as in Curator; with
            /// kazoo's dialect it is [`ParentNodes::Persistent`](crate::ParentNodes::Persistent).
            #[doc(alias = "dontUseContainerParents")]
            pub fn parents(mut self, parents: crate::ParentNodes) -> Self {
                self.asked.parents = Some(parents);
                self
            }

            /// Sets whose node names to use.
            ///
            /// The default is [`Dialect::Curator`](crate::Dialect::Curator). All contenders of one path have
            /// to agree on it.
            pub fn dialect(mut self, dialect: crate::Dialect) -> Self {
                self.asked.dialect = Some(dialect);
                self
            }

            /// Builds the lock, without any I/O.
            ///
            /// # Errors
            /// - [`BuildError::InvalidPath`](crate::BuildError::InvalidPath) if ZooKeeper would refuse the
            ///   path, or it is `/`, below `/zookeeper`, or longer than 16 KiB with the namespace.
            /// - [`BuildError::InvalidOption`](crate::BuildError::InvalidOption) if an option has a value
            ///   that cannot work.
            /// - [`BuildError::ConflictingOptions`](crate::BuildError::ConflictingOptions) if the same client
            ///   uses the path with another value of an option.
            /// - [`BuildError::MixedRecipes`](crate::BuildError::MixedRecipes) if the same client uses the
            ///   path for a recipe with another kind of queue.
            ///
            /// A client uses a path while there is a live handle or guard, or a call whose nodes are still
            /// being deleted.
            pub fn build(self) -> Result<$lock, crate::BuildError> {
                let path_lock = self.client.path_lock(&self.path, $recipe, &self.asked)?;
                Ok($lock { path_lock })
            }
        }
    };
}

pub(crate) use {lock_builder, lock_methods, queue_methods};
