//! What all locks have in common: the trait, and the methods of each.

use std::fmt;
use std::panic::Location;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;

use crate::engine::attempts::room;
use crate::engine::grant::hold::{Hold, first_lost};
use crate::engine::grant::observe::Call;
use crate::engine::lock::path_lock::{Ask, Budget, PathLock};
use crate::engine::request::look;
use crate::engine::who::{contenders, self_wait};
use crate::error::{AcquireError, Error, LostReason, Purpose, TryLockError};
use crate::locks::guard::{AnyGuard, after};
use crate::locks::guards::sealed::Inside;
use crate::protocol::node_name::Kind;
use crate::session::core::Core;
use crate::values::contender::Contender;
use crate::values::path::NodePath;

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
pub trait InterProcessLock: sealed::IsLock + fmt::Debug + Send + Sync {
    /// Acquires the lock, waiting at most for `timeout`.
    ///
    /// # Errors
    /// [`AcquireError::TimedOut`] if the lock was not free in time: live contenders were in the way. See
    /// [`AcquireError`] for the other variants.
    ///
    /// # Cancel safety
    /// If the future is dropped, the place in the queue is lost, and a node that was created is deleted in
    /// the background.
    async fn acquire(&self, timeout: Duration) -> Result<AnyGuard, AcquireError> {
        let lock = self.member(Inside(()));
        lock.acquire(within(lock.path_lock.client(), timeout), None, Location::caller()).await
    }

    /// Acquires the lock, waiting at most until `deadline`.
    ///
    /// # Errors
    /// See [`acquire`](Self::acquire).
    ///
    /// # Cancel safety
    /// See [`acquire`](Self::acquire).
    async fn acquire_until(&self, deadline: Instant) -> Result<AnyGuard, AcquireError> {
        let lock = self.member(Inside(()));
        lock.acquire(until(lock.path_lock.client(), deadline), None, Location::caller()).await
    }

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
    async fn acquire_with_lease(&self, wait: Duration, lease: Duration) -> Result<AnyGuard, AcquireError> {
        let lock = self.member(Inside(()));
        lock.acquire(within(lock.path_lock.client(), wait), Some(lease), Location::caller()).await
    }

    /// Acquires the lock, waiting for as long as other contenders are in the way.
    ///
    /// # Errors
    /// See [`AcquireError`]; never [`AcquireError::TimedOut`].
    ///
    /// # Cancel safety
    /// See [`acquire`](Self::acquire).
    async fn lock(&self) -> Result<AnyGuard, AcquireError> {
        self.member(Inside(())).acquire(Budget::Forever, None, Location::caller()).await
    }

    /// Acquires the lock if it is free.
    ///
    /// # Errors
    /// [`TryLockError::WouldBlock`] if a live contender is in the way. See [`AcquireError`] for what
    /// [`TryLockError::Acquire`] contains.
    ///
    /// # Cancel safety
    /// See [`acquire`](Self::acquire).
    async fn try_lock(&self) -> Result<AnyGuard, TryLockError> {
        let lock = self.member(Inside(()));
        let ask = Ask::new(lock.kind, at_once(lock.path_lock.client()), Location::caller());
        try_lock(Arc::clone(lock.path_lock), ask).await.map(AnyGuard::of)
    }

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
    async fn participants(&self) -> Result<Vec<NodePath>, Error> {
        let lock = self.member(Inside(()));
        participants(Arc::clone(lock.path_lock), Some(lock.kind)).await
    }

    /// Returns all contenders, of all processes and in order: who holds the lock, and who waits for it.
    ///
    /// Unlike [`participants`](Self::participants) it returns readers and writers of a read-write lock
    /// together. See [`InterProcessMutex::queue`](crate::InterProcessMutex::queue).
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// # Cancel safety
    /// It only reads.
    async fn queue(&self) -> Result<Vec<Contender>, Error> {
        queue(Arc::clone(self.member(Inside(())).path_lock)).await
    }

    /// Returns the contenders that hold the lock: none, one, or of a read-write lock all readers before the
    /// first writer.
    ///
    /// See [`InterProcessMutex::holders`](crate::InterProcessMutex::holders).
    ///
    /// # Errors
    /// See [`queue`](Self::queue).
    ///
    /// # Cancel safety
    /// It only reads.
    async fn holders(&self) -> Result<Vec<Contender>, Error> {
        holders(Arc::clone(self.member(Inside(())).path_lock)).await
    }

    /// Returns `true` if any contender of any process holds the lock, or is about to.
    ///
    /// # Errors
    /// See [`queue`](Self::queue).
    ///
    /// # Cancel safety
    /// It only reads.
    async fn is_locked(&self) -> Result<bool, Error> {
        Ok(self.queue_len().await? > 0)
    }

    /// Returns how many contenders of all processes hold the lock or wait for it.
    ///
    /// # Errors
    /// See [`queue`](Self::queue).
    ///
    /// # Cancel safety
    /// It only reads.
    async fn queue_len(&self) -> Result<usize, Error> {
        count(Arc::clone(self.member(Inside(())).path_lock)).await
    }

    /// Deletes the node of a contender, so that it does not hold the lock, or its place in the queue, any
    /// more. Returns `false` if the node did not exist any more.
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
        break_lock(Arc::clone(self.member(Inside(())).path_lock), contender).await
    }

    /// Returns `true` if the lock is held by a guard that a lock of this type and this client acquired.
    fn is_acquired_in_this_process(&self) -> bool {
        let lock = self.member(Inside(()));
        lock.path_lock.is_held(lock.kind)
    }

    /// Returns the path of the lock, as it was given.
    fn path(&self) -> &str {
        self.member(Inside(())).path_lock.path().user()
    }
}

/// Implements the trait for a pointer to a lock, by the lock that it points to.
macro_rules! pointers {
    ($($pointer:ty),+) => {
        $(
            impl<T: InterProcessLock + ?Sized> sealed::IsLock for $pointer {
                fn member(&self, inside: Inside) -> sealed::OneLock<'_> {
                    (**self).member(inside)
                }
            }

            impl<T: InterProcessLock + ?Sized> InterProcessLock for $pointer {}
        )+
    };
}

pointers!(&T, Box<T>, Arc<T>);

pub(crate) mod sealed {
    use std::sync::Arc;

    use crate::engine::lock::path_lock::PathLock;
    use crate::locks::guards::sealed::Inside;
    use crate::protocol::node_name::Kind;

    /// Implemented by the locks of this crate.
    #[expect(unnameable_types, reason = "sealing is the point")]
    pub trait IsLock {
        #[doc(hidden)]
        fn member(&self, inside: Inside) -> OneLock<'_>;
    }

    /// A lock, of whatever type.
    #[expect(unnameable_types, reason = "only this crate needs a name for it")]
    #[derive(Clone, Copy, Debug)]
    pub struct OneLock<'a> {
        pub(crate) path_lock: &'a Arc<PathLock>,
        pub(crate) kind: Kind,
    }
}

impl sealed::OneLock<'_> {
    async fn acquire(
        self,
        budget: Budget,
        lease: Option<Duration>,
        location: &'static Location<'static>,
    ) -> Result<AnyGuard, AcquireError> {
        let ask = Ask { lease, ..Ask::new(self.kind, budget, location) };
        acquire(Arc::clone(self.path_lock), ask).await.map(AnyGuard::of)
    }
}

/// Returns the budget of a call that does not wait for other contenders, only for the servers.
pub(crate) fn at_once(client: &Core) -> Budget {
    Budget::Try { timeout: client.connect_timeout() }
}

/// Returns the budget of a call with a timeout.
pub(crate) fn within(client: &Core, timeout: Duration) -> Budget {
    if timeout.is_zero() {
        return at_once(client);
    }
    after(timeout).map_or(Budget::Forever, |deadline| Budget::Until { deadline, asked: timeout })
}

/// Returns the budget of a call with a deadline.
pub(crate) fn until(client: &Core, deadline: Instant) -> Budget {
    let asked = deadline.saturating_duration_since(Instant::now());
    if asked.is_zero() { at_once(client) } else { Budget::Until { deadline, asked } }
}

/// How often in a row a grant is asked for again whose lease was over before the caller had it.
const UNSEEN_LEASES: u32 = 3;

/// Acquires a lock.
pub(crate) async fn acquire(path_lock: Arc<PathLock>, mut ask: Ask) -> Result<Hold, AcquireError> {
    check_lease(&ask, path_lock.path().user())?;
    let _waiting = self_wait::watch(&path_lock, &ask);
    let call = Call::begin(&path_lock, &mut ask);
    let attempt = |ask| room::acquire(Arc::clone(&path_lock), ask);
    let result = until_had(ask, attempt, std::slice::from_ref).await;
    call.ended(&path_lock, result, std::slice::from_ref)
}

/// Repeats `attempt` until its caller has the grant: one may be lost between the grant and here, while the
/// caller was paused or not polled, and has seen no guard.
#[expect(clippy::manual_async_fn, reason = "each of many that wait would have its arguments twice")]
pub(crate) fn until_had<T, F: Future<Output = Result<T, TryLockError>>>(
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
            let Some((path_lock, reason)) = first_lost(holds(&granted)) else { return Ok(granted) };
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

/// Acquires a lock if it is free.
pub(crate) async fn try_lock(path_lock: Arc<PathLock>, mut ask: Ask) -> Result<Hold, TryLockError> {
    let call = Call::begin(&path_lock, &mut ask);
    let granted = had(room::acquire(Arc::clone(&path_lock), ask).await, std::slice::from_ref);
    call.ended(&path_lock, granted, std::slice::from_ref)
}

/// Returns the error of a call with a lease that is over at once.
pub(crate) fn check_lease(ask: &Ask, path: &str) -> Result<(), AcquireError> {
    match ask.lease {
        Some(Duration::ZERO) => Err(AcquireError::InvalidLease { path: path.to_owned() }),
        Some(_) | None => Ok(()),
    }
}

/// Returns what a try was granted, unless it was lost between the grant and here.
pub(crate) fn had<T>(
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
    path_lock: Arc<PathLock>,
    kind: Option<Kind>,
) -> Result<Vec<NodePath>, Error> {
    look(path_lock, move |path_lock| async move { look::participants(&path_lock, kind).await }).await
}

/// Runs a look at a lock where its session runs.
pub(crate) async fn look<T: Send + 'static, F: Future<Output = Result<T, Error>> + Send + 'static>(
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

/// The methods that acquire a lock with a timeout, for a type with `client` and `granted`.
///
/// The texts are for the documentation: what is acquired, and for the examples a name, and an expression that
/// makes the lock.
macro_rules! acquire_methods {
    ($lock:ident, $guard:ident, $kind:expr, $what:literal, $name:literal, $make:literal) => {
        impl $lock {
            #[doc = concat!("Acquires ", $what, ", waiting at most for `timeout`.")]
            ///
            /// The timeout covers everything: creating missing directories, retries, reconnects, and waiting
            /// for other contenders. [`Duration::ZERO`](std::time::Duration::ZERO) does not wait for other
            /// contenders, as a try, but it does wait for the servers, up to the connect timeout. A duration
            /// over a year is no deadline.
            ///
            /// # Errors
            /// - [`AcquireError::TimedOut`](crate::AcquireError::TimedOut) if live contenders were in the way
            ///   for all that time. It will not be granted to this call any more; a node that could not be
            ///   deleted yet is deleted in the background.
            /// - [`ErrorKind::Connection`](crate::ErrorKind::Connection) if the time passed without an
            ///   answer of a server.
            /// - See [`AcquireError`](crate::AcquireError) for the other variants.
            ///
            /// # Cancel safety
            /// If the future is dropped (in `select!` or [`tokio::time::timeout`]), the place in the queue is
            /// lost, with the members of a multi-lock that were acquired, and nothing else: nodes that were
            /// created, or may have been, are deleted in the background, which
            /// [`Client::flush`](crate::Client::flush) waits for. Do not keep the future without polling it:
            /// what is granted to it is kept from all other contenders until the future is polled or dropped.
            ///
            /// # Examples
            /// ```
            /// # #[tokio::main(flavor = "current_thread")]
            /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
            /// # let server = zookeeper_test_server::Server::start()?;
            /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
            #[doc = concat!("# let ", $name, " = zookeeper_recipes::", $make, ";")]
            /// use std::time::Duration;
            /// use zookeeper_recipes::Acquisition::{Acquired, Busy};
            /// use zookeeper_recipes::OrBusy;
            ///
            #[doc = concat!("match ", $name, ".acquire(Duration::from_millis(200)).await.or_busy()? {")]
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
                let budget = $crate::locks::lock::within(self.client(), timeout);
                let ask =
                    $crate::engine::lock::path_lock::Ask::new($kind, budget, std::panic::Location::caller());
                self.clone().granted(ask)
            }

            #[doc = concat!("Acquires ", $what, ", waiting at most until `deadline`.")]
            ///
            /// One that has passed does not wait for other contenders, as a try, but it does wait for the
            /// servers, up to the connect timeout.
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
            #[doc = concat!("# let ", $name, " = zookeeper_recipes::", $make, ";")]
            /// use std::time::{Duration, Instant};
            ///
            /// let deadline = Instant::now() + Duration::from_secs(10); // of the whole request
            #[doc = concat!("let guard = ", $name, ".acquire_until(deadline).await?;")]
            /// guard.release().await?;
            /// # Ok(())
            /// # }
            /// ```
            #[track_caller]
            pub fn acquire_until(
                &self,
                deadline: std::time::Instant,
            ) -> impl Future<Output = Result<$guard, crate::AcquireError>> + Send + 'static + use<> {
                let budget = $crate::locks::lock::until(self.client(), deadline);
                let ask =
                    $crate::engine::lock::path_lock::Ask::new($kind, budget, std::panic::Location::caller());
                self.clone().granted(ask)
            }

            #[doc = concat!("Acquires ", $what, " for no longer than `lease`, waiting at most for `wait`.")]
            ///
            /// The lease begins with the grant, of a multi-lock with that of its last member. When it is over,
            /// the guard is lost, with [`LostReason::LeaseOver`](crate::LostReason::LeaseOver), and then
            /// released, whether the holder is done or not. [`set_lease`](crate::LockGuard::set_lease) moves
            /// the end, and [`lease_remaining`](crate::LockGuard::lease_remaining) returns how much is left.
            /// Guards that [share](crate::LockGuard::reenter) a hold share the lease, and a conversion keeps
            /// it.
            ///
            /// The clock of this process measures the lease, and goes on while the machine sleeps. A holder
            /// that has been paused may go on with its work after the end, as with any other loss: the
            /// resource has to compare the [token](crate::LockGuard::fencing_token).
            ///
            /// No lease is needed to free a lock after a crash: it goes with the session of its process, with
            /// a lease or without. A lease bounds how long a process that lives keeps the lock. One of more
            /// than a year is none. `wait` is the timeout of [`acquire`](Self::acquire).
            ///
            /// # Errors
            /// - [`AcquireError::InvalidLease`](crate::AcquireError::InvalidLease) if `lease` is zero.
            /// - [`AcquireError::LeaseOver`](crate::AcquireError::LeaseOver) if the lease was over before
            ///   this future was polled again, and no time is left for another try.
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
            #[doc = concat!("# let ", $name, " = zookeeper_recipes::", $make, ";")]
            /// use std::time::Duration;
            /// use zookeeper_recipes::{LostReason, ReleaseError};
            ///
            /// let (wait, lease) = (Duration::from_secs(10), Duration::from_millis(200));
            #[doc = concat!("let guard = ", $name, ".acquire_with_lease(wait, lease).await?;")]
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
                let budget = $crate::locks::lock::within(self.client(), wait);
                let ask =
                    $crate::engine::lock::path_lock::Ask::new($kind, budget, std::panic::Location::caller());
                self.clone().granted($crate::engine::lock::path_lock::Ask { lease: Some(lease), ..ask })
            }

            /// Acquires like [`acquire`](Self::acquire), and blocks the thread meanwhile.
            ///
            /// For threads and scripts. Do not call it, or the others with this prefix, in asynchronous code:
            /// it blocks the executor's thread (use `spawn_blocking`). Tokio's own panic there; these do not
            /// notice it.
            ///
            /// # Errors
            /// See [`acquire`](Self::acquire).
            ///
            /// # Examples
            /// ```
            /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
            /// # let server = zookeeper_test_server::Server::start()?;
            /// # let client = zookeeper_recipes::Client::blocking_connect(&server.connect_string())?;
            #[doc = concat!("# let ", $name, " = zookeeper_recipes::", $make, ";")]
            /// use std::time::Duration;
            /// use zookeeper_recipes::Acquisition::{Acquired, Busy};
            /// use zookeeper_recipes::OrBusy;
            ///
            #[doc = concat!("match ", $name, ".blocking_acquire(Duration::from_millis(200)).or_busy()? {")]
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

            /// Acquires like [`acquire_with_lease`](Self::acquire_with_lease), and blocks the thread
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
        }
    };
}

/// These, and those that acquire a lock without a timeout or without waiting, for a type that has
/// `granted_at_once` too.
macro_rules! acquire_and_try_methods {
    ($lock:ident, $guard:ident, $kind:expr, $what:literal, $make:literal) => {
        $crate::locks::lock::acquire_methods!($lock, $guard, $kind, $what, "lock", $make);

        impl $lock {
            #[doc = concat!("Acquires ", $what, ", waiting for as long as other contenders are in the way.")]
            ///
            /// If a guard of the same task holds a lock that it waits for, this waits forever. When it has
            /// waited for a hold of this client for a second, a `WARN` in the log names the lines of both
            /// calls, once for each lock of a client.
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
            #[doc = concat!("# let lock = zookeeper_recipes::", $make, ";")]
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
                let budget = $crate::engine::lock::path_lock::Budget::Forever;
                let ask =
                    $crate::engine::lock::path_lock::Ask::new($kind, budget, std::panic::Location::caller());
                self.clone().granted(ask)
            }

            #[doc = concat!("Acquires ", $what, " without waiting for other contenders.")]
            ///
            /// If contended, creates no node: reads the queue (of several locks, all queues by one request),
            /// and confirms it after a `sync`, because a member of the ensemble may lag behind. Nodes of this
            /// client that are still being deleted are waited for.
            ///
            /// While another task of this client has a mutex or the write lock, a try of that lock returns
            /// `WouldBlock` without a request; a reader that finds no node to share reads the queue, and so
            /// does a multi-lock of several members, whose error names the member that is held. A fair lock
            /// with `max_waiters` nodes of this client returns
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
            #[doc = concat!("# let lock = zookeeper_recipes::", $make, ";")]
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
            ) -> impl Future<Output = Result<$guard, crate::TryLockError>> + Send + 'static + use<> {
                let budget = $crate::locks::lock::at_once(self.client());
                let ask =
                    $crate::engine::lock::path_lock::Ask::new($kind, budget, std::panic::Location::caller());
                self.clone().granted_at_once(ask)
            }

            /// Acquires like [`lock`](Self::lock), and blocks the thread meanwhile.
            ///
            /// If a guard of the same thread holds a lock that it waits for, this waits forever.
            ///
            /// # Errors
            /// See [`lock`](Self::lock).
            #[track_caller]
            pub fn blocking_lock(&self) -> Result<$guard, crate::AcquireError> {
                $crate::blocking::block_on(self.lock())
            }

            /// Acquires like [`try_lock`](Self::try_lock), and blocks the thread until the servers have
            /// answered.
            ///
            /// # Errors
            /// See [`try_lock`](Self::try_lock).
            #[track_caller]
            pub fn blocking_try_lock(&self) -> Result<$guard, crate::TryLockError> {
                $crate::blocking::block_on(self.try_lock())
            }
        }
    };
}

/// The methods of a lock, and the trait, for a type with a `path_lock`.
///
/// `$make` is for the examples: an expression that makes the lock.
macro_rules! lock_methods {
    ($lock:ident, $guard:ident, $kind:expr, $make:literal) => {
        $crate::locks::lock::acquire_and_try_methods!($lock, $guard, $kind, "the lock", $make);

        impl $lock {
            fn client(&self) -> &$crate::session::core::Core {
                self.path_lock.client()
            }

            async fn granted(
                self,
                ask: $crate::engine::lock::path_lock::Ask,
            ) -> Result<$guard, crate::AcquireError> {
                // Called inside: a future that is awaited by another is in it twice, and many may be waiting.
                $crate::locks::lock::acquire(self.path_lock, ask).await.map($guard::new)
            }

            async fn granted_at_once(
                self,
                ask: $crate::engine::lock::path_lock::Ask,
            ) -> Result<$guard, crate::TryLockError> {
                $crate::locks::lock::try_lock(self.path_lock, ask).await.map($guard::new)
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
            #[doc = concat!("# let lock = zookeeper_recipes::", $make, ";")]
            /// let guard = lock.lock().await?;
            /// assert_eq!(lock.participants().await?, [guard.node()]);
            /// guard.release().await?;
            /// assert!(lock.participants().await?.is_empty());
            /// # Ok(())
            /// # }
            /// ```
            #[doc(alias = "getParticipantNodes")]
            pub async fn participants(&self) -> Result<Vec<crate::NodePath>, crate::Error> {
                $crate::locks::lock::participants(std::sync::Arc::clone(&self.path_lock), Some($kind)).await
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
            #[doc = concat!("# let lock = zookeeper_recipes::", $make, ";")]
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

        $crate::locks::lock::queue_methods!($lock, $make, "lock.lock().await?");

        impl $crate::locks::lock::sealed::IsLock for $lock {
            fn member(
                &self,
                _: $crate::locks::guards::sealed::Inside,
            ) -> $crate::locks::lock::sealed::OneLock<'_> {
                $crate::locks::lock::sealed::OneLock { path_lock: &self.path_lock, kind: $kind }
            }
        }

        impl $crate::locks::lock::InterProcessLock for $lock {}
    };
}

/// The methods of a lock, for a type with a `path_lock`, that show who holds it and who waits.
///
/// The texts are for the examples: expressions that make the lock and hold it.
macro_rules! queue_methods {
    ($lock:ident, $make:literal, $hold:literal) => {
        impl $lock {
            /// Returns all contenders, of all processes and in order: who holds the lock, and who waits for
            /// it.
            ///
            /// Each says who it is ([`Contender`](crate::Contender)). Of a read-write lock readers and
            /// writers are in one queue, which both of its sides return. It lists the lock's directory and
            /// reads each node, at most 32 at a time; one that is gone by then is left out. The queue may
            /// have changed by the time that this returns.
            ///
            /// It waits up to 1 s for a contender of another recipe to leave, and only then returns
            /// [`MixedRecipes`](crate::ErrorKind::MixedRecipes).
            ///
            /// A node whose ACL denies this client READ has no [`identity`](crate::Contender::identity) to
            /// show. Servers from ZooKeeper 3.9.3 refuse its Stat, too:
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
            #[doc = concat!("# let lock = zookeeper_recipes::", $make, ";")]
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
                $crate::locks::lock::queue(std::sync::Arc::clone(&self.path_lock)).await
            }

            /// Returns the contenders that hold the lock: none, one, or of a read-write lock all readers
            /// before the first writer.
            ///
            /// They are those that are first in the queue. The first may be about to be granted the lock, and
            /// a node that a client [keeps](crate::RecipeBuilder::sticky) is first while none of
            /// its tasks holds the lock. Only these nodes are read; otherwise it is [`queue`](Self::queue).
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
            #[doc = concat!("# let lock = zookeeper_recipes::", $make, ";")]
            #[doc = concat!("let guard = ", $hold, ";")]
            /// let holders = lock.holders().await?;
            /// assert_eq!(holders[0].node(), &guard.node());
            /// # guard.release().await?;
            /// # Ok(())
            /// # }
            /// ```
            pub async fn holders(&self) -> Result<Vec<crate::Contender>, crate::Error> {
                $crate::locks::lock::holders(std::sync::Arc::clone(&self.path_lock)).await
            }

            /// Returns `true` if any contender of any process holds the lock, or is about to.
            ///
            /// It is one list. The answer may be out of date when it arrives, so it is for display, not for a
            /// decision to acquire the lock:
            /// [`InterProcessMutex::try_lock`](crate::InterProcessMutex::try_lock) is.
            ///
            /// # Errors
            /// See [`queue`](Self::queue).
            ///
            /// # Cancel safety
            /// It only reads.
            pub async fn is_locked(&self) -> Result<bool, crate::Error> {
                $crate::locks::lock::count(std::sync::Arc::clone(&self.path_lock))
                    .await
                    .map(|count| count > 0)
            }

            /// Returns how many contenders of all processes hold the lock or wait for it.
            ///
            /// It is one list. The tasks of a client share one node, and count as one
            /// ([`hand_off`](crate::RecipeBuilder::hand_off)); those of a fair lock count each.
            ///
            /// # Errors
            /// See [`queue`](Self::queue).
            ///
            /// # Cancel safety
            /// It only reads.
            pub async fn queue_len(&self) -> Result<usize, crate::Error> {
                $crate::locks::lock::count(std::sync::Arc::clone(&self.path_lock)).await
            }

            /// Deletes the node of a contender of any process, so that it does not hold the lock, or its
            /// place in the queue, any more. Returns `false` if the node did not exist any more.
            ///
            /// It is for an operator who knows that the holder hangs. **The holder may still be at work**:
            /// the next in line is granted the lock at once, and a holder of this crate is told by its
            /// heartbeat, within a sixth of its session timeout (5 s by default), that its lock is lost, with
            /// [`LostReason::NodeDeleted`](crate::LostReason::NodeDeleted). Until then only the [fencing
            /// token](crate::LockGuard::fencing_token) keeps it from writing; a
            /// [transaction](crate::LockGuard::transaction) under its guard fails from now on. To ask the
            /// holder to release the lock, use [`Client::attempt_revoke`](crate::Client::attempt_revoke).
            ///
            /// A waiter that is broken is not let in. It notices when it would be its turn, or with any other
            /// look at the queue, and queues again at the end, as its client's retry policy says, or ends
            /// with [`AcquireError::NodeDeleted`](crate::AcquireError::NodeDeleted).
            ///
            /// The node is deleted only if it is the one that was returned: of the same session, created by
            /// the same transaction.
            ///
            /// # Errors
            /// - [`ErrorKind::Rejected`](crate::ErrorKind::Rejected) if the contender is in the queue of
            ///   another lock. Nothing is sent.
            /// - [`ErrorKind::NoAuth`](crate::ErrorKind::NoAuth) if the ACL of the directory in which the
            ///   node is denies this client DELETE.
            /// - [`ErrorKind::Connection`](crate::ErrorKind::Connection) if no server answered, or the node
            ///   was written to again and again: it may be deleted or not.
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
            #[doc = concat!("# let lock = zookeeper_recipes::", $make, ";")]
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
                $crate::locks::lock::break_lock(std::sync::Arc::clone(&self.path_lock), contender).await
            }
        }
    };
}

pub(crate) use {acquire_and_try_methods, acquire_methods, lock_methods, queue_methods};
