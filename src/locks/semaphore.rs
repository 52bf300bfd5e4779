//! The semaphore, whose limit bounds how many permits are held (docs/protocol.md#semaphore-queue).
//!
//! The attempts are in `engine::attempts::permits_attempt`, and the limit is read and set by
//! `engine::semaphore_limit`. A `SemaphorePermit` has one hold for each permit. The holds of one
//! value are lost together, and `split` and `merge` regroup them.

use std::fmt::{self, Display};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::blocking::block_on;
use crate::builder::{RecipeBuilder, sealed};
use crate::client::Client;
use crate::engine::acquisition::{Hold, ObservedCall};
use crate::engine::attempts::run;
use crate::engine::lock::lock_options::{MAX_PERMITS, Recipe, SemaphoreOptions};
use crate::engine::lock::path_lock::{Ask, PathLock};
use crate::engine::semaphore_limit;
use crate::engine::who;
use crate::error::{
    AcquireError, BuildError, Error, Lost, Purpose, ReleaseError, RequestFailure, TransactionError,
    TryLockError,
};
use crate::locks::guard_set::{self, GuardSet, Shares};
use crate::locks::guards::Guard;
use crate::locks::guards::sealed::{Inside, IsGuard};
use crate::locks::lock::{at_once, check_held, check_lease, look, until, until_received, within};
use crate::locks::transaction::Transaction;
use crate::protocol::hold::LockState;
use crate::protocol::node_name::Kind;
use crate::protocol::permits::slot_of;
use crate::session::core::Core;
use crate::session::threads::BoxFuture;
use crate::values::contender::Contender;
use crate::values::path::{LockPath, NodePath};
use crate::values::shown::{Quoted, debug_as_path};
use crate::values::token::FencingToken;

/// A counting semaphore across processes, which limits how many permits are held at a time.
///
/// The semaphore works like Curator's `InterProcessSemaphoreV2`, with the same layout: a contender
/// queues in `<path>/locks`, and each permit is an ephemeral node in `<path>/leases`. Java
/// processes that use Curator contend for the same permits. With a limit of 1 it works like
/// Curator's `InterProcessSemaphoreMutex`.
///
/// A semaphore needs its own path. It does not exclude holders of any other lock on the same path,
/// such as an [`InterProcessMutex`](crate::InterProcessMutex), whose nodes are in another
/// directory: both are granted, without an error, because detecting the other lock would cost a
/// request for each grant.
///
/// - **All or none.** [`acquire_many`](Self::acquire_many) acquires all of its permits at once, by
///   one transaction, so contenders that each want several permits never hold some of them while
///   waiting for each other.
/// - **Order of arrival**, as in tokio: a large request at the head of the queue is served before
///   smaller requests behind it. A returned permit wakes one waiter.
/// - **Slots.** Each permit has a [slot](SemaphorePermit::slot), a number below the limit that no
///   other permit has at the same time, for worker ids, shards or connection numbers.
/// - **One limit for all processes.** [`set_limit`](Self::set_limit) changes the limit while the
///   semaphore is in use.
///
/// A semaphore is a handle: it is cheap to clone, and does no I/O until it is used. Like every
/// lock, a permit can be [lost](SemaphorePermit::lost) while it is held. A free permit costs 5
/// requests (4 once three grants in a row did not have to wait), and its release 1.
///
/// # The limit
/// Each handle states a limit, and all must state the same limit: a contender that finds a permit
/// of another process with a different limit fails with
/// [`ErrorKind::LimitMismatch`](crate::ErrorKind::LimitMismatch), which names both limits. If the
/// node `<path>/permits` (or that of [`shared_count`](RecipeBuilder::shared_count)) exists, it
/// contains the limit for all processes, and the limits of handles are ignored. The node's four
/// bytes have the format of Curator's `SharedCount`, so a Java process uses the same limit with
/// `new InterProcessSemaphoreV2(client, path, new SharedCount(client, path + "/permits", n))`. Java
/// processes that state their limit as a number do not read this node, and the names of their
/// permits do not show the limit, so give them the right number. If the node contains a number
/// below 1, calls fail with [`ErrorKind::InvalidLimit`](crate::ErrorKind::InvalidLimit), while
/// Curator's calls wait.
///
/// # Among Java processes
/// Curator's `acquire(n)` takes its permits one by one, and holds some while it waits for more. Two
/// such calls can deadlock, and block the queue behind them. So use deadlines if Java processes
/// acquire several permits by one call.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zookeeper_test_server::Server::start()?;
/// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
/// use std::time::Duration;
/// use zookeeper_recipes::InterProcessSemaphore;
///
/// // At most ten calls of the partner's API at a time, from all processes together.
/// let semaphore = InterProcessSemaphore::new(&client, "/partner/calls", 10)?;
/// let permit = semaphore.acquire(Duration::from_secs(10)).await?;
/// // The call.
/// permit.release().await?;
/// # Ok(())
/// # }
/// ```
///
/// A worker id from 0 to 1023, unique among all processes while the permit is held:
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zookeeper_test_server::Server::start()?;
/// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
/// use zookeeper_recipes::InterProcessSemaphore;
///
/// let permit = InterProcessSemaphore::new(&client, "/ids/workers", 1024)?.try_acquire().await?;
/// let worker = permit.slot();
/// assert!(worker < 1024);
/// # permit.release().await?;
/// # Ok(())
/// # }
/// ```
#[doc(alias = "Semaphore")]
#[doc(alias = "InterProcessSemaphoreV2")]
#[doc(alias = "InterProcessSemaphoreMutex")]
#[doc(alias = "RSemaphore")]
#[doc(alias = "RPermitExpirableSemaphore")]
#[derive(Clone)]
pub struct InterProcessSemaphore {
    path_lock: Arc<PathLock>,
}

impl InterProcessSemaphore {
    /// Creates a handle of the semaphore at `path` that states this `limit`, without any I/O.
    ///
    /// The limit must be from 1 to 10,000: with more permits, other clients might be unable to list
    /// the directory of the permits' nodes. Other options are those of this client's existing
    /// handles for the path, or the defaults.
    ///
    /// # Errors
    /// - [`BuildError::InvalidPath`] if ZooKeeper would refuse the path, or it is `/`, below
    ///   `/zookeeper`, or longer than 16 KiB with the namespace.
    /// - [`BuildError::InvalidOption`] if the limit is zero or larger than 10,000.
    /// - [`BuildError::LimitMismatch`] if this client has a handle or permit of this semaphore with
    ///   another limit.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// use zookeeper_recipes::InterProcessSemaphore;
    ///
    /// let semaphore = InterProcessSemaphore::new(&client, "/partner/calls", 10)?;
    /// assert!(InterProcessSemaphore::new(&client, "/partner/calls", 20).is_err());
    /// assert!(InterProcessSemaphore::new(&client, "/others/calls", 0).is_err());
    /// # drop(semaphore);
    /// # Ok(())
    /// # }
    /// ```
    pub fn new(client: &Client, path: impl AsRef<str>, limit: u32) -> Result<Self, BuildError> {
        Self::builder(client, path, limit).build()
    }

    /// Creates a handle of the semaphore of `key` below `prefix` that states this `limit`, without
    /// any I/O.
    ///
    /// The path is formed as by [`InterProcessMutex::keyed`](crate::InterProcessMutex::keyed).
    ///
    /// # Errors
    /// See [`new`](Self::new).
    pub fn keyed(
        client: &Client,
        prefix: impl AsRef<str>,
        key: impl Display,
        limit: u32,
    ) -> Result<Self, BuildError> {
        Self::new(client, LockPath::keyed(prefix.as_ref(), &key), limit)
    }

    /// Returns a builder of the semaphore at `path` with this `limit`, for options other than the
    /// defaults.
    ///
    /// # Examples
    /// With every option:
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::builder().auth("digest", "shop:secret");
    /// # let client = client.connect(&server.connect_string()).await?;
    /// use std::time::Duration;
    /// use zookeeper_recipes::{Acl, InterProcessSemaphore, ParentNodes};
    ///
    /// let semaphore = InterProcessSemaphore::builder(&client, "/partner/calls", 10)
    ///     .max_znodes(16) // of the waiters of this process
    ///     .shared_count("/partner/limit") // stores the limit for all processes
    ///     .data("worker-7") // for people who look at the nodes
    ///     .acl([Acl::creator_all()]) // the client has credentials
    ///     .parents(ParentNodes::Persistent) // the directories stay
    ///     .build()?;
    /// # semaphore.acquire(Duration::from_secs(60)).await?.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn builder(client: &Client, path: impl AsRef<str>, limit: u32) -> RecipeBuilder<Self> {
        let mut builder = RecipeBuilder::new(client, path.as_ref());
        builder.asked.permits = Some(limit);
        builder
    }

    /// Acquires one permit, waiting for at most `timeout`.
    ///
    /// The timeout covers everything: creating missing directories, retries, reconnects, and
    /// waiting for other contenders. With [`Duration::ZERO`] this works like
    /// [`try_acquire`](Self::try_acquire): it waits only for the servers, up to the connect
    /// timeout. A timeout of more than a year means no deadline.
    ///
    /// # Errors
    /// - [`AcquireError::TimedOut`] if no permit was free, or live contenders were ahead, for all
    ///   that time. The call is not granted a permit later; a node that could not be deleted yet is
    ///   deleted in the background.
    /// - [`ErrorKind::Connection`](crate::ErrorKind::Connection) if the time passed without an
    ///   answer from a server.
    /// - [`ErrorKind::LimitMismatch`](crate::ErrorKind::LimitMismatch) and
    ///   [`ErrorKind::InvalidLimit`](crate::ErrorKind::InvalidLimit) as for
    ///   [`acquire_many`](Self::acquire_many).
    /// - See [`AcquireError`] for the other variants.
    ///
    /// # Cancel safety
    /// If the future is dropped (in `select!` or [`tokio::time::timeout`]), the call loses its
    /// place in the queue, but nothing else. Nodes that it created, or may have created, are
    /// deleted in the background; [`Client::flush`](crate::Client::flush) waits for this. Do not
    /// keep the future without polling it: permits that it is granted are withheld from other
    /// contenders until the future is polled or dropped.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// # let semaphore = zookeeper_recipes::InterProcessSemaphore::new(&client, "/partner/calls", 10)?;
    /// use std::time::Duration;
    /// use zookeeper_recipes::Acquisition::{Acquired, Busy};
    /// use zookeeper_recipes::OrBusy;
    ///
    /// match semaphore.acquire(Duration::from_secs(2)).await.or_busy()? {
    ///     Acquired(permit) => permit.release().await?, // after the call
    ///     Busy => println!("too busy, try again later"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn acquire(
        &self,
        timeout: Duration,
    ) -> impl Future<Output = Result<SemaphorePermit, AcquireError>> + Send + 'static + use<> {
        let ask = within(self.client(), Kind::Exclusive, timeout);
        self.clone().granted(ask)
    }

    /// Acquires one permit, waiting for at most `wait`, runs `work` and returns the permit.
    ///
    /// Returns the output of `work` with the result of the release, which is [`ReleaseError::Lost`]
    /// if the permit was lost before the release: check both. A loss does not stop `work`, which
    /// has the permit: use [`while_held`](SemaphorePermit::while_held) for parts that a loss must
    /// stop. If `work` panics, the permit is returned in the background.
    ///
    /// # Errors
    /// See [`acquire`](Self::acquire). If this returns an error, `work` has not been called.
    ///
    /// # Cancel safety
    /// While the future waits for a permit, see [`acquire`](Self::acquire). If it is dropped later,
    /// `work` is dropped, and then the permit is returned in the background.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// # let semaphore = zookeeper_recipes::InterProcessSemaphore::new(&client, "/partner/calls", 10)?;
    /// # async fn call() -> u32 { 200 }
    /// use std::time::Duration;
    ///
    /// let wait = Duration::from_secs(10);
    /// let work = semaphore.with(wait, async |permit| permit.while_held(call()).await);
    /// let (status, released) = work.await?;
    /// println!("{}", status?); // an error if the permit was lost first
    /// released?;
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn with<T, F: AsyncFnOnce(&SemaphorePermit) -> T>(
        &self,
        wait: Duration,
        work: F,
    ) -> impl Future<Output = Result<(T, Result<(), ReleaseError>), AcquireError>> + use<T, F> {
        let acquired = self.acquire(wait);
        async move {
            let permit = acquired.await?;
            let output = work(&permit).await;
            Ok((output, permit.release().await))
        }
    }

    /// Acquires one permit, waiting at most until `deadline`.
    ///
    /// If `deadline` has passed, this works like [`try_acquire`](Self::try_acquire): it waits only
    /// for the servers, up to the connect timeout.
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
    /// # let semaphore = zookeeper_recipes::InterProcessSemaphore::new(&client, "/partner/calls", 10)?;
    /// use std::time::{Duration, Instant};
    ///
    /// let deadline = Instant::now() + Duration::from_secs(10); // of the whole request
    /// let permit = semaphore.acquire_until(deadline).await?;
    /// permit.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn acquire_until(
        &self,
        deadline: Instant,
    ) -> impl Future<Output = Result<SemaphorePermit, AcquireError>> + Send + 'static + use<> {
        let ask = until(self.client(), Kind::Exclusive, deadline);
        self.clone().granted(ask)
    }

    /// Acquires one permit for no longer than `lease`, waiting for at most `wait`.
    ///
    /// The lease begins with the grant. When it ends, the permit is [lost](SemaphorePermit::lost),
    /// with [`LostReason::LeaseOver`](crate::LostReason::LeaseOver), and then returned, even if the
    /// holder is not done. [`SemaphorePermit::set_lease`] moves the end. A lease of more than a
    /// year means no limit. See
    /// [`InterProcessMutex::acquire_with_lease`](crate::InterProcessMutex::acquire_with_lease) for
    /// how a lease is measured, and what it is for.
    ///
    /// # Errors
    /// - [`AcquireError::InvalidLease`] if `lease` is zero.
    /// - [`AcquireError::LeaseOver`] if the lease ended before this future was polled again, and no
    ///   time is left for another try.
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
    /// # let semaphore = zookeeper_recipes::InterProcessSemaphore::new(&client, "/partner/calls", 10)?;
    /// use std::time::Duration;
    /// use zookeeper_recipes::LostReason;
    ///
    /// let (wait, lease) = (Duration::from_secs(10), Duration::from_millis(200));
    /// let permit = semaphore.acquire_with_lease(wait, lease).await?;
    /// // A call that takes longer than the lease.
    /// assert_eq!(permit.lost().await.reason(), LostReason::LeaseOver);
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    #[doc(alias = "lease")]
    pub fn acquire_with_lease(
        &self,
        wait: Duration,
        lease: Duration,
    ) -> impl Future<Output = Result<SemaphorePermit, AcquireError>> + Send + 'static + use<> {
        let ask = within(self.client(), Kind::Exclusive, wait);
        self.clone().granted(Ask {
            lease: Some(lease),
            ..ask
        })
    }

    /// Acquires like [`acquire`](Self::acquire), and blocks the thread until it returns. See
    /// [`InterProcessMutex::blocking_acquire`](crate::InterProcessMutex::blocking_acquire) for when
    /// to use it.
    ///
    /// # Errors
    /// See [`acquire`](Self::acquire).
    ///
    /// # Examples
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::blocking_connect(&server.connect_string())?;
    /// # let semaphore = zookeeper_recipes::InterProcessSemaphore::new(&client, "/partner/calls", 10)?;
    /// use std::time::Duration;
    ///
    /// let permit = semaphore.blocking_acquire(Duration::from_secs(10))?;
    /// permit.blocking_release()?; // after the call
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn blocking_acquire(&self, timeout: Duration) -> Result<SemaphorePermit, AcquireError> {
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
    ) -> Result<SemaphorePermit, AcquireError> {
        block_on(self.acquire_with_lease(wait, lease))
    }

    /// Acquires `n` permits, all of them or none, waiting for at most `timeout`.
    ///
    /// The permits are granted together, when `n` are free. Until then the call holds no permit,
    /// and the contenders behind it wait. The call costs one request more than
    /// [`acquire`](Self::acquire).
    ///
    /// # Errors
    /// - [`AcquireError::TooManyPermits`] if `n` is more than the limit. The error comes at once,
    ///   or, if the limit was lowered, when the call is first in the queue.
    /// - [`AcquireError::ZeroPermits`] if `n` is zero.
    /// - [`AcquireError::TooManyAtOnce`] if the transaction for that many would be larger than
    ///   ZooKeeper accepts, which is the case from about 4,000 permits, without
    ///   [data](RecipeBuilder::data).
    /// - [`ErrorKind::LimitMismatch`](crate::ErrorKind::LimitMismatch) if another process acquired
    ///   its permit under another limit, and
    ///   [`ErrorKind::InvalidLimit`](crate::ErrorKind::InvalidLimit) if the node with the limit
    ///   contains no valid limit.
    /// - See [`acquire`](Self::acquire) for the other variants.
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
    /// use zookeeper_recipes::InterProcessSemaphore;
    ///
    /// let semaphore = InterProcessSemaphore::new(&client, "/cluster/gpus", 8)?;
    /// let permit = semaphore.acquire_many(3, Duration::from_secs(10)).await?;
    /// assert_eq!(permit.num_permits(), 3);
    /// assert_eq!(semaphore.available_permits().await?, 5);
    /// permit.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn acquire_many(
        &self,
        n: u32,
        timeout: Duration,
    ) -> impl Future<Output = Result<SemaphorePermit, AcquireError>> + Send + 'static + use<> {
        let ask = within(self.client(), Kind::Exclusive, timeout);
        self.clone().granted_many(n, ask)
    }

    /// Acquires `n` permits, all of them or none, waiting at most until `deadline`.
    ///
    /// # Errors
    /// See [`acquire_many`](Self::acquire_many).
    ///
    /// # Cancel safety
    /// See [`acquire`](Self::acquire).
    #[track_caller]
    pub fn acquire_many_until(
        &self,
        n: u32,
        deadline: Instant,
    ) -> impl Future<Output = Result<SemaphorePermit, AcquireError>> + Send + 'static + use<> {
        let ask = until(self.client(), Kind::Exclusive, deadline);
        self.clone().granted_many(n, ask)
    }

    fn client(&self) -> &Core {
        &self.path_lock.client
    }

    async fn granted(self, ask: Ask) -> Result<SemaphorePermit, AcquireError> {
        self.granted_many(1, ask).await
    }

    /// Acquires permits, and acquires them again if they were lost on their way to the caller.
    async fn granted_many(self, n: u32, mut ask: Ask) -> Result<SemaphorePermit, AcquireError> {
        check_lease(&ask, self.path())?;
        let call = ObservedCall::begin(&self.path_lock, &mut ask);
        let attempt = |ask| run::acquire_permits(Arc::clone(&self.path_lock), n, ask);
        let holds = until_received(ask, attempt, Vec::as_slice).await;
        call.ended(&self.path_lock, holds, Vec::as_slice)
            .map(SemaphorePermit::new)
    }

    async fn granted_at_once(self, n: u32, mut ask: Ask) -> Result<SemaphorePermit, TryLockError> {
        let call = ObservedCall::begin(&self.path_lock, &mut ask);
        let granted = check_held(
            run::acquire_permits(Arc::clone(&self.path_lock), n, ask).await,
            Vec::as_slice,
        );
        call.ended(&self.path_lock, granted, Vec::as_slice)
            .map(SemaphorePermit::new)
    }

    /// Acquires `n` permits for no longer than `lease`, all of them or none, waiting for at most
    /// `wait`.
    ///
    /// The lease begins with the grant. When it ends, the permits are
    /// [lost](SemaphorePermit::lost), with [`LostReason::LeaseOver`](crate::LostReason::LeaseOver),
    /// and then returned. [`SemaphorePermit::set_lease`] sets another lease, and
    /// [`SemaphorePermit::lease_remaining`] returns how much time is left.
    ///
    /// # Errors
    /// - [`AcquireError::InvalidLease`] if `lease` is zero.
    /// - See [`acquire_many`](Self::acquire_many) for the other variants.
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
    /// use zookeeper_recipes::{InterProcessSemaphore, LostReason};
    ///
    /// let semaphore = InterProcessSemaphore::new(&client, "/cluster/gpus", 8)?;
    /// let lease = Duration::from_millis(50);
    /// let permit = semaphore.acquire_many_with_lease(2, Duration::from_secs(10), lease).await?;
    /// assert_eq!(permit.lost().await.reason(), LostReason::LeaseOver);
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn acquire_many_with_lease(
        &self,
        n: u32,
        wait: Duration,
        lease: Duration,
    ) -> impl Future<Output = Result<SemaphorePermit, AcquireError>> + Send + 'static + use<> {
        let ask = within(self.client(), Kind::Exclusive, wait);
        self.clone().granted_many(
            n,
            Ask {
                lease: Some(lease),
                ..ask
            },
        )
    }

    /// Acquires one permit if one is free.
    ///
    /// The call does not wait for a permit to be returned. If one is free, the call queues behind
    /// contenders that are about to be granted permits, as long as none takes more than 200 ms, so
    /// ten simultaneous calls for ten free permits all succeed. The call waits for the servers up
    /// to the connect timeout.
    ///
    /// # Errors
    /// - [`TryLockError::WouldBlock`] if no permit is free, or other contenders stay ahead.
    /// - [`ErrorKind::Connection`](crate::ErrorKind::Connection) if no server replies within the
    ///   connect timeout.
    /// - See [`acquire`](Self::acquire) for the other errors in [`TryLockError::Acquire`].
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
    /// use zookeeper_recipes::{InterProcessSemaphore, TryLockError};
    ///
    /// let semaphore = InterProcessSemaphore::new(&client, "/partner/calls", 10)?;
    /// match semaphore.try_acquire().await {
    ///     Ok(permit) => permit.release().await?, // after the work
    ///     Err(TryLockError::WouldBlock { contention, .. }) => println!("{contention}"),
    ///     Err(error) => return Err(error.into()),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    #[doc(alias = "tryAcquire")]
    pub fn try_acquire(
        &self,
    ) -> impl Future<Output = Result<SemaphorePermit, TryLockError>> + Send + 'static + use<> {
        self.try_acquire_many(1)
    }

    /// Acquires `n` permits, all of them or none, if that many are free.
    ///
    /// # Errors
    /// - [`AcquireError::TooManyPermits`] if `n` is more than the limit.
    /// - [`AcquireError::TooManyAtOnce`] if that many permits do not fit into one request.
    /// - See [`try_acquire`](Self::try_acquire) for the other variants.
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
    /// use zookeeper_recipes::{InterProcessSemaphore, TryLockError};
    ///
    /// let semaphore = InterProcessSemaphore::new(&client, "/cluster/gpus", 8)?;
    /// let permit = semaphore.try_acquire_many(6).await?;
    /// let busy = semaphore.try_acquire_many(3).await.unwrap_err();
    /// assert!(matches!(busy, TryLockError::WouldBlock { .. }));
    /// # permit.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn try_acquire_many(
        &self,
        n: u32,
    ) -> impl Future<Output = Result<SemaphorePermit, TryLockError>> + Send + 'static + use<> {
        let ask = at_once(self.client(), Kind::Exclusive);
        self.clone().granted_at_once(n, ask)
    }

    /// Acquires `n` permits like [`acquire_many`](Self::acquire_many), and blocks the thread until
    /// it returns.
    ///
    /// # Errors
    /// See [`acquire_many`](Self::acquire_many).
    #[track_caller]
    pub fn blocking_acquire_many(
        &self,
        n: u32,
        timeout: Duration,
    ) -> Result<SemaphorePermit, AcquireError> {
        block_on(self.acquire_many(n, timeout))
    }

    /// Acquires one permit if one is free, like [`try_acquire`](Self::try_acquire), and blocks the
    /// thread until the servers have answered.
    ///
    /// # Errors
    /// See [`try_acquire`](Self::try_acquire).
    #[track_caller]
    pub fn blocking_try_acquire(&self) -> Result<SemaphorePermit, TryLockError> {
        block_on(self.try_acquire())
    }

    /// Returns how many permits are free: the limit in force minus the held permits, but at least
    /// zero.
    ///
    /// The number may change before the call returns. If contenders are in the queue, the first of
    /// them gets a free permit.
    ///
    /// # Errors
    /// - [`ErrorKind::LimitMismatch`](crate::ErrorKind::LimitMismatch) and
    ///   [`ErrorKind::InvalidLimit`](crate::ErrorKind::InvalidLimit) as for
    ///   [`acquire_many`](Self::acquire_many).
    /// - See [`Error`] for the other kinds.
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
    /// use zookeeper_recipes::InterProcessSemaphore;
    ///
    /// let semaphore = InterProcessSemaphore::new(&client, "/partner/calls", 10)?;
    /// let permit = semaphore.try_acquire().await?;
    /// assert_eq!(semaphore.available_permits().await?, 9);
    /// # permit.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "availablePermits")]
    pub async fn available_permits(&self) -> Result<u32, Error> {
        self.look(|path_lock, semaphore| async move {
            semaphore_limit::available(&path_lock, &semaphore).await
        })
        .await
    }

    /// Returns the limit in force: the stored one, or the limit that this handle states if none is
    /// stored.
    ///
    /// # Errors
    /// - [`ErrorKind::InvalidLimit`](crate::ErrorKind::InvalidLimit) if the node contains no valid
    ///   limit.
    /// - See [`Error`] for the other kinds.
    ///
    /// # Cancel safety
    /// Cancel safe: this only reads.
    pub async fn limit(&self) -> Result<u32, Error> {
        self.look(|path_lock, semaphore| async move {
            semaphore_limit::limit(&path_lock, &semaphore, false).await
        })
        .await
    }

    /// Sets the limit for all processes, from now on.
    ///
    /// The limit is stored in a persistent node, `<path>/permits` by default, after which the
    /// limits of handles are ignored. The first contender in the queue is notified at once. A limit
    /// below the number of held permits revokes none of them: no further permit is granted until
    /// enough are returned.
    ///
    /// Once the call has returned, no permit is granted beyond the new limit. If the node did not
    /// exist before, a grant under the limit that a handle states may already be under way, and
    /// take effect after the call returns.
    ///
    /// # Errors
    /// - [`ErrorKind::InvalidLimit`](crate::ErrorKind::InvalidLimit) if `n` is zero, or larger than
    ///   10,000.
    /// - [`ErrorKind::Connection`](crate::ErrorKind::Connection) if no server answered, or
    ///   [`ErrorKind::Closed`](crate::ErrorKind::Closed): the limit may or may not be set. Set it
    ///   again.
    /// - See [`Error`] for the other kinds.
    ///
    /// # Cancel safety
    /// If the future is dropped, the limit may or may not be set.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// use zookeeper_recipes::InterProcessSemaphore;
    ///
    /// let semaphore = InterProcessSemaphore::new(&client, "/partner/calls", 10)?;
    /// semaphore.set_limit(20).await?;
    /// assert_eq!(semaphore.limit().await?, 20);
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "add_permits")]
    #[doc(alias = "SharedCount")]
    #[doc(alias = "trySetPermits")]
    pub async fn set_limit(&self, n: u32) -> Result<(), Error> {
        if !(1..=MAX_PERMITS).contains(&n) {
            let why = RequestFailure::LimitOutOfRange {
                asked: n,
                largest: MAX_PERMITS,
            };
            return Err(Error::new(Purpose::Limit, self.path(), why));
        }
        let set = self.look(move |path_lock, semaphore| async move {
            semaphore_limit::set_limit(&path_lock, &semaphore, n).await
        });
        set.await
    }

    /// Returns the paths of the nodes of all held permits, of all processes, in the order of their
    /// grants.
    ///
    /// # Errors
    /// See [`Error`].
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
    /// use zookeeper_recipes::InterProcessSemaphore;
    ///
    /// let semaphore = InterProcessSemaphore::new(&client, "/partner/calls", 10)?;
    /// let permit = semaphore.try_acquire().await?;
    /// assert_eq!(semaphore.participants().await?, permit.nodes());
    /// # permit.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "getParticipantNodes")]
    pub async fn participants(&self) -> Result<Vec<NodePath>, Error> {
        self.look(|path_lock, semaphore| async move {
            semaphore_limit::participants(&path_lock, &semaphore).await
        })
        .await
    }

    /// Returns the contenders that wait for permits, of all processes and in order.
    ///
    /// Each [`Contender`] identifies its owner. The call lists the queue and reads each node, at
    /// most 32 at a time, and leaves out nodes that no longer exist. For the holders of permits,
    /// call [`holders`](Self::holders).
    ///
    /// # Errors
    /// See [`Error`].
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
    /// use zookeeper_recipes::InterProcessSemaphore;
    ///
    /// let semaphore = InterProcessSemaphore::new(&client, "/partner/calls", 10)?;
    /// let permit = semaphore.try_acquire().await?;
    /// assert!(semaphore.queue().await?.is_empty()); // no other contender waits
    /// # permit.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn queue(&self) -> Result<Vec<Contender>, Error> {
        look(&self.path_lock, who::queue).await
    }

    /// Returns how many contenders of all processes wait for permits.
    ///
    /// This costs one request, a list of the queue, which does not show waiters that have no node
    /// yet ([`max_znodes`](RecipeBuilder::max_znodes)).
    ///
    /// # Errors
    /// See [`queue`](Self::queue).
    ///
    /// # Cancel safety
    /// Cancel safe: this only reads.
    #[doc(alias = "getQueueLength")]
    pub async fn queue_len(&self) -> Result<usize, Error> {
        look(&self.path_lock, who::count).await
    }

    /// Returns the holders of permits, of all processes: a [`Contender`] for each permit, in the
    /// order of the grants.
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
    /// use zookeeper_recipes::{ContenderKind, InterProcessSemaphore};
    ///
    /// let semaphore = InterProcessSemaphore::new(&client, "/partner/calls", 10)?;
    /// let permit = semaphore.try_acquire_many(2).await?;
    /// for holder in semaphore.holders().await? {
    ///     assert_eq!((holder.kind(), holder.is_mine()), (ContenderKind::Permit, true));
    ///     println!("{holder}"); // web-3/4711/worker (permit, queued 12s ago, session ..
    /// }
    /// # permit.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn holders(&self) -> Result<Vec<Contender>, Error> {
        look(&self.path_lock, who::holders).await
    }

    /// Deletes the node of a contender: the permit of a holder, or the place of a waiter in the
    /// queue. Returns `false` if the node no longer existed.
    ///
    /// **The holder may still be at work**: the next in line may get the permit at once, but a
    /// holder that uses this crate is notified by its heartbeat, within a sixth of its session
    /// timeout, and loses all permits of the same [`SemaphorePermit`]. A waiter is granted nothing,
    /// and queues again at the end if its client's retry policy allows.
    ///
    /// # Errors
    /// See [`InterProcessMutex::break_lock`](crate::InterProcessMutex::break_lock).
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
    /// use zookeeper_recipes::InterProcessSemaphore;
    ///
    /// let semaphore = InterProcessSemaphore::new(&client, "/partner/calls", 1)?;
    /// let permit = semaphore.try_acquire().await?;
    /// for holder in semaphore.holders().await? {
    ///     assert!(semaphore.break_lock(&holder).await?);
    /// }
    /// let next = semaphore.try_acquire().await?;
    /// # permit.lost().await;
    /// # next.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn break_lock(&self, contender: &Contender) -> Result<bool, Error> {
        crate::locks::lock::break_lock(&self.path_lock, contender).await
    }

    /// Runs a query on the session's thread.
    async fn look<T, F>(
        &self,
        question: impl FnOnce(Arc<PathLock>, SemaphoreOptions) -> F + Send,
    ) -> Result<T, Error>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Error>> + Send + 'static,
    {
        let path_lock = &self.path_lock;
        // The path lock of a semaphore always has these options, so the error is not expected.
        let Some(semaphore) = path_lock.options.semaphore.clone() else {
            return Err(path_lock.error(Purpose::Look, path_lock.client.why_ended()));
        };
        look(path_lock, |path_lock| question(path_lock, semaphore)).await
    }

    /// Returns the path of the semaphore, as given.
    #[must_use]
    pub fn path(&self) -> &str {
        self.path_lock.path.user()
    }
}

impl RecipeBuilder<InterProcessSemaphore> {
    /// Sets the path of the node that stores the limit for all processes; by default
    /// `<path>/permits`.
    ///
    /// Use this for an existing `SharedCount` of Curator, or for one limit that several semaphores
    /// share. The path is below the client's [namespace](crate::ClientBuilder::namespace). It must
    /// not be the semaphore's own path, nor in its directories `locks` and `leases`.
    pub fn shared_count(mut self, path: impl Into<String>) -> Self {
        self.asked.shared_count = Some(path.into());
        self
    }

    /// Sets the maximum number of nodes that this client has in the queue; further waiters wait in
    /// memory, in order.
    ///
    /// The number must be from 1 to 10,000, and is 64 by default. Held permits do not count.
    pub fn max_znodes(mut self, nodes: usize) -> Self {
        self.asked.node_limit = Some(nodes);
        self
    }
}

impl sealed::Buildable for InterProcessSemaphore {
    fn built(builder: RecipeBuilder<Self>) -> Result<Self, BuildError> {
        Ok(Self {
            path_lock: builder.path_lock(Recipe::Semaphore)?,
        })
    }
}

impl sealed::HasData for InterProcessSemaphore {}

/// One or several permits of an [`InterProcessSemaphore`], held until the value is dropped or
/// released.
///
/// Each permit is held by an ephemeral node on the servers ([`nodes`](Self::nodes)). Dropping the
/// value returns its permits in the background; [`release`](Self::release) does the same and
/// returns the outcome. The value can be sent to other threads and tasks. **If one permit is lost,
/// all permits** of the value are lost, because the holder relied on all of them. The other permits
/// are returned too: at once if a lease ended, otherwise when the value is dropped, and no later
/// than a session timeout after the last renewal.
///
/// A value is the guard of its permits, with the guarantees and limits of a
/// [`LockGuard`](crate::LockGuard).
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zookeeper_test_server::Server::start()?;
/// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
/// use std::time::Duration;
/// use zookeeper_recipes::{InterProcessSemaphore, SemaphorePermit};
///
/// let semaphore = InterProcessSemaphore::new(&client, "/cluster/gpus", 8)?;
/// let permit: SemaphorePermit = semaphore.acquire_many(2, Duration::from_secs(10)).await?;
/// permit.while_held(async { /* train on GPUs `permit.slots()` */ }).await?;
/// permit.release().await?; // or drop it
/// # Ok(())
/// # }
/// ```
#[must_use = "dropping the permit returns it at once: bind it to `_permit`, not to `_`"]
#[clippy::has_significant_drop]
#[doc(alias = "OwnedSemaphorePermit")]
#[doc(alias = "Lease")]
pub struct SemaphorePermit {
    guard_set: GuardSet,
}

impl SemaphorePermit {
    fn new(holds: Vec<Hold>) -> Self {
        Self {
            guard_set: GuardSet::new(holds),
        }
    }

    fn shares(&self) -> Shares<'_> {
        self.guard_set.shares()
    }

    fn into_holds(self) -> Vec<Arc<Hold>> {
        self.guard_set.into_vec()
    }

    /// Returns the number of permits.
    #[must_use]
    pub fn num_permits(&self) -> u32 {
        u32::try_from(self.shares().0.len()).unwrap_or(u32::MAX)
    }

    /// Returns the lowest of the [slots](Self::slots).
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// # let semaphore = zookeeper_recipes::InterProcessSemaphore::new(&client, "/ids/workers", 1024)?;
    /// let (one, two) = (semaphore.try_acquire().await?, semaphore.try_acquire().await?);
    /// assert_eq!((one.slot(), two.slot()), (0, 1));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn slot(&self) -> u32 {
        self.slots().first().copied().unwrap_or_default()
    }

    /// Returns the slots of the permits, in ascending order: one number for each permit, which no
    /// other permit of this library has at the same time.
    ///
    /// A slot is the smallest number that was free at the grant, and is below the limit at that
    /// time. A permit keeps its slot for as long as the permit is held. Permits of Java processes
    /// have no slots.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// # let semaphore = zookeeper_recipes::InterProcessSemaphore::new(&client, "/cluster/gpus", 8)?;
    /// let permit = semaphore.try_acquire_many(3).await?;
    /// assert_eq!(permit.slots(), [0, 1, 2]);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn slots(&self) -> Vec<u32> {
        let names = self.shares().0.iter().map(|hold| hold.node());
        let mut slots: Vec<u32> = names
            .filter_map(|name| slot_of(&name))
            .map(|(slot, _)| slot)
            .collect();
        slots.sort_unstable();
        slots
    }

    /// Splits off `n` permits, those with the highest slots. Returns `None`, and changes nothing,
    /// if `n` is zero or no permit would be left.
    ///
    /// From then on, the two values are independent of each other.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// # let semaphore = zookeeper_recipes::InterProcessSemaphore::new(&client, "/cluster/gpus", 8)?;
    /// let mut permit = semaphore.try_acquire_many(3).await?;
    /// let one = permit.split(1).expect("three are more than one");
    /// assert_eq!((permit.slots(), one.slots()), (vec![0, 1], vec![2]));
    /// assert!(permit.split(2).is_none());
    /// # Ok(())
    /// # }
    /// ```
    pub fn split(&mut self, n: u32) -> Option<Self> {
        let n = usize::try_from(n)
            .ok()
            .filter(|n| (1..self.shares().0.len()).contains(n))?;
        let mut holds = std::mem::replace(&mut self.guard_set, GuardSet::of(Vec::new())).into_vec();
        // The lowest slots stay, so that the result does not depend on earlier splits and merges.
        holds.sort_by_key(|hold| slot_of(&hold.node()).map(|(slot, _)| slot));
        let split = holds.split_off(holds.len() - n);
        // Each value binds its holds anew. From here on a loss in one value does not end the other.
        self.guard_set = GuardSet::of(holds);
        Some(Self {
            guard_set: GuardSet::of(split),
        })
    }

    /// Adds the permits of `other` to this value.
    ///
    /// If a permit of either value is lost, all permits are lost.
    ///
    /// # Errors
    /// `other`, unchanged, if it was acquired by another client or from another semaphore.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// # let semaphore = zookeeper_recipes::InterProcessSemaphore::new(&client, "/cluster/gpus", 8)?;
    /// let mut permit = semaphore.try_acquire().await?;
    /// let other = semaphore.try_acquire_many(2).await?;
    /// assert!(permit.merge(other).is_ok());
    /// assert_eq!(permit.num_permits(), 3);
    /// # Ok(())
    /// # }
    /// ```
    pub fn merge(&mut self, other: Self) -> Result<(), Self> {
        match (self.shares().0.first(), other.shares().0.first()) {
            // Permits of another semaphore, or of another client, stay separate, because a value
            // has one path and one client.
            (Some(ours), Some(theirs)) if Arc::ptr_eq(&ours.path_lock, &theirs.path_lock) => {}
            _ => return Err(other),
        }
        let mut holds = std::mem::replace(&mut self.guard_set, GuardSet::of(Vec::new())).into_vec();
        holds.extend(other.into_holds());
        // The loss of any permit is the loss of all from here on, an earlier one included.
        self.guard_set = GuardSet::of(holds);
        Ok(())
    }

    /// Returns the fencing token of the grant, with which a resource can refuse former holders of a
    /// slot.
    ///
    /// Tokens rise in the order of the grants. Several slots are held at the same time, so a
    /// resource must compare the tokens of each [slot](Self::slots) separately, with one
    /// [`FenceGate`](crate::FenceGate) for each worker id, shard or connection. All permits of one
    /// call have the same token. After a [`merge`](Self::merge) the method returns the lowest
    /// token, which is never above that of a later holder. But a resource may refuse this token for
    /// a slot that was acquired with a higher one, so do not merge permits whose tokens a resource
    /// compares.
    ///
    /// Compare tokens only with tokens of this library's permits. Permits of Java processes have no
    /// tokens: the `czxid` of their lease node is not a token, because tokens come from the
    /// contender's node in the queue.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// # let semaphore = zookeeper_recipes::InterProcessSemaphore::new(&client, "/ids/workers", 1024)?;
    /// let permit = semaphore.try_acquire().await?;
    /// let (worker, token) = (permit.slot(), permit.fencing_token());
    /// permit.release().await?;
    /// let permit = semaphore.try_acquire().await?;
    /// assert!(permit.slot() == worker && permit.fencing_token() > token);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn fencing_token(&self) -> FencingToken {
        // With the lowest token, a resource may refuse a valid permit, but never accepts an old
        // permit with a newer token (docs/protocol.md#permit-tokens).
        let tokens = self.shares().0.iter().map(|hold| hold.token);
        let (zxid, counter) = tokens.min().unwrap_or_default();
        FencingToken::from_parts(zxid, counter)
    }

    /// Returns the paths of the nodes of the permits, without the client's namespace.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// # let semaphore = zookeeper_recipes::InterProcessSemaphore::new(&client, "/cluster/gpus", 8)?;
    /// let permit = semaphore.try_acquire().await?;
    /// assert!(permit.nodes()[0].starts_with("/cluster/gpus/leases/"));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    #[doc(alias = "getNodeName")]
    pub fn nodes(&self) -> Vec<NodePath> {
        self.shares()
            .0
            .iter()
            .map(|hold| hold.node_path())
            .collect()
    }

    /// Returns the path of the semaphore, as given.
    #[must_use]
    pub fn path(&self) -> &str {
        self.shares()
            .0
            .first()
            .map_or("", |hold| hold.directory().user())
    }
}

impl SemaphorePermit {
    /// Returns the worst state of the permits: [`Lost`](crate::LockState::Lost) once a permit is
    /// lost. See [`LockGuard::state`](crate::LockGuard::state).
    #[must_use]
    pub fn state(&self) -> LockState {
        self.shares().state()
    }

    /// Waits until the [state](Self::state) differs from `known`, and returns the new one. See
    /// [`LockGuard::state_changed`](crate::LockGuard::state_changed).
    ///
    /// # Cancel safety
    /// Cancel safe: this only waits.
    pub async fn state_changed(&self, known: LockState) -> LockState {
        self.shares().state_changed(known).await
    }

    /// Reads the clock, and returns `true` unless a permit is lost. See
    /// [`LockGuard::is_held`](crate::LockGuard::is_held).
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.shares().lost_now().is_none()
    }

    /// Sets the end of the lease of all permits to `lease` from now, earlier or later than before.
    /// See [`LockGuard::set_lease`](crate::LockGuard::set_lease).
    ///
    /// # Errors
    /// [`Lost`] if a permit is lost: a lease that has ended cannot be extended.
    #[doc(alias = "updateLeaseTime")]
    pub fn set_lease(&self, lease: Duration) -> Result<(), Lost> {
        self.shares().set_lease(lease)
    }

    /// Returns how much is left of the lease that ends first; `None` if there is no lease. See
    /// [`LockGuard::lease_remaining`](crate::LockGuard::lease_remaining).
    ///
    /// Permits that were [merged](Self::merge) may have different leases.
    #[must_use]
    #[doc(alias = "remainTimeToLive")]
    pub fn lease_remaining(&self) -> Option<Duration> {
        self.shares().lease_remaining()
    }

    /// Returns a future that resolves when a permit is lost, with the reason. See
    /// [`LockGuard::lost`](crate::LockGuard::lost).
    ///
    /// # Cancel safety
    /// Cancel safe: this only waits. If a permit is lost before the next call, the next future
    /// resolves at once.
    pub fn lost(&self) -> impl Future<Output = Lost> + Send + 'static + use<> {
        self.shares().lost()
    }

    /// Runs `work` while the guard holds all permits, and returns its output. See
    /// [`LockGuard::while_held`](crate::LockGuard#method.while_held).
    ///
    /// # Errors
    /// [`Lost`] if a permit is lost; `work` is dropped.
    ///
    /// # Cancel safety
    /// If the future is dropped, `work` is dropped with it. The guard is kept.
    pub async fn while_held<T>(&self, work: impl Future<Output = T>) -> Result<T, Lost> {
        self.shares().while_held(work).await
    }

    /// Runs `work` while the guard holds all permits, and returns its output with the guard. See
    /// [`LockGuard::while_held_owned`](crate::LockGuard::while_held_owned).
    ///
    /// # Errors
    /// [`Lost`] if a permit is lost. The guard is then dropped, after `work`.
    ///
    /// # Cancel safety
    /// If the future is dropped, or its task aborted, `work` is dropped, and then the guard, which
    /// releases the permits in the background.
    #[doc(alias = "spawn")]
    pub fn while_held_owned<T>(
        self,
        work: impl Future<Output = T>,
    ) -> impl Future<Output = Result<(T, Self), Lost>> {
        // The tuple is dropped in this order, whether the future was polled or not. The work relies
        // on the permit, so the work ends first.
        let owned = (work, self);
        async move {
            let (work, permit) = owned;
            let output = permit.while_held(work).await?;
            Ok((output, permit))
        }
    }

    /// Returns an empty transaction, which commits only while the guard holds all permits. See
    /// [`Transaction`].
    pub fn transaction(&self) -> Transaction<'_> {
        self.shares().transaction()
    }

    /// Reads a node, and the version of its data, for a [transaction](Self::transaction); returns
    /// `None` if there is no such node.
    ///
    /// The answer is not older than the grant. See
    /// [`LockGuard::get_data`](crate::LockGuard::get_data).
    ///
    /// # Errors
    /// - [`TransactionError::Lost`] after the loss of a permit, even during the read.
    /// - See [`LockGuard::get_data`](crate::LockGuard::get_data) for the other variants.
    ///
    /// # Cancel safety
    /// Cancel safe: this only reads.
    #[doc(alias = "getData")]
    pub async fn get_data(
        &self,
        path: impl AsRef<str>,
    ) -> Result<Option<(Vec<u8>, i32)>, TransactionError> {
        self.shares().get_data(path.as_ref()).await
    }

    /// Returns a future that resolves when revocation of a permit is requested. See
    /// [`LockGuard::revoked`](crate::LockGuard::revoked).
    ///
    /// Requests before this call are not missed, but requests before the grant are, because the
    /// node of a permit is not the node with which its caller waited. Once polled, the future
    /// watches the node of each permit, which costs one request for each.
    ///
    /// # Cancel safety
    /// If the future is dropped, the watch ends. The next future resolves for the same request.
    #[doc(alias = "makeRevocable")]
    pub fn revoked(&self) -> impl Future<Output = ()> + Send + 'static + use<> {
        self.shares().revoked()
    }

    /// Releases all permits, and waits until a server has confirmed the deletion of their nodes.
    /// See [`LockGuard::release`](crate::LockGuard::release).
    ///
    /// The requests are sent together.
    ///
    /// # Errors
    /// The first of the errors of [`LockGuard::release`](crate::LockGuard::release):
    /// [`ReleaseError::Lost`] if a permit was lost before the call, or if the session ended before
    /// a server confirmed the release.
    ///
    /// # Cancel safety
    /// The call itself releases the permits. If the future is dropped, only the outcome is lost.
    #[doc(alias = "unlock")]
    #[doc(alias = "returnLease")]
    #[doc(alias = "returnAll")]
    pub fn release(
        self,
    ) -> impl Future<Output = Result<(), ReleaseError>> + Send + 'static + use<> {
        guard_set::release(self.into_holds())
    }

    /// Releases like [`release`](Self::release), and blocks the thread until a server has confirmed
    /// it.
    ///
    /// # Errors
    /// See [`release`](Self::release).
    pub fn blocking_release(self) -> Result<(), ReleaseError> {
        block_on(self.release())
    }
}

impl IsGuard for SemaphorePermit {
    fn shares(&self, _: Inside) -> Shares<'_> {
        Self::shares(self)
    }

    fn release_boxed(self: Box<Self>, _: Inside) -> BoxFuture<'static, Result<(), ReleaseError>> {
        Box::pin(Self::release(*self))
    }
}

impl Guard for SemaphorePermit {}

impl fmt::Debug for SemaphorePermit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The state is left out, because asking for it reads the clock, and may find a permit lost.
        write!(
            f,
            "SemaphorePermit({}, slots {:?})",
            Quoted(self.path()),
            self.slots()
        )
    }
}

debug_as_path!(InterProcessSemaphore);
