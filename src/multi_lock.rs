//! The multi-lock.

use std::fmt;
use std::panic::Location;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::blocking::block_on;
use crate::client::Client;
use crate::engine::multi::{self, Holds, Members};
use crate::engine::observe::Call;
use crate::engine::path_lock::{Ask, Budget, Member, PathLock};
use crate::error::{AcquireError, BuildError, Lost, ReleaseError, TransactionError, TryLockError};
use crate::guard::{AnyGuard, LockGuard, LockState};
use crate::guard_set::GuardSet;
use crate::lock::sealed::Inside;
use crate::lock::{self, InterProcessLock};
use crate::mode::{Exclusive, Read};
use crate::mutex::InterProcessMutex;
use crate::path::NodePath;
use crate::protocol::node_name::Kind;
use crate::shown::Quoted;
use crate::token::Token;
use crate::transaction::{NodeData, Transaction};

/// The largest number of members: a transaction under the guard checks the node of each, and has to fit into
/// one request.
const MAX_MEMBERS: usize = 1_000;

/// Several locks that are acquired as one: all of them, or none.
///
/// Any mix of mutexes, fair locks, read locks and write locks of one client. It is Curator's class of that
/// name, with one deadline for all members, and with nothing kept after an error.
///
/// Members are acquired one after the other, each as a lock by itself. A release takes a request for each
/// member; they are sent together.
///
/// # No deadlock
/// The members are acquired in the order of their paths, whatever order they are given in. So multi-locks do
/// not deadlock with each other, and not with code that nests single locks in the order of their paths
/// (compared byte by byte, `/a/10` before `/a/9`). Code that nests locks in another order can deadlock with
/// a multi-lock, as with any other code: give it a timeout.
///
/// # One loss is the loss of all
/// The members are locks of their own, and other processes see each as the lock that it is: a node of this
/// client in the queue of each. The [guard](MultiLockGuard) is lost with the first of them that is lost. The
/// other members are released too: at once if a lease is over, and after any other loss when the guard is
/// dropped, at the latest a session timeout after the last renewal. A member that is lost while others are still
/// waited for gives up the rest, and all are acquired anew within the deadline.
///
/// # Not an `InterProcessLock`
/// It does not implement [`InterProcessLock`], whose guard has one node, one token and one path.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zookeeper_test_server::Server::start()?;
/// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
/// use std::time::Duration;
/// use zookeeper_recipes::InterProcessMultiLock;
///
/// // A transfer between two accounts: no other process changes either of them meanwhile.
/// let both = InterProcessMultiLock::from_paths(&client, ["/accounts/17", "/accounts/4"])?;
/// let guard = both.acquire(Duration::from_secs(10)).await?;
/// let [from, to] = guard.fencing_tokens()[..] else { unreachable!() };
/// // Read both, decide, write both, each with its token.
/// guard.release().await?;
/// # assert!(from.zxid() > 0 && to.zxid() > 0);
/// # Ok(())
/// # }
/// ```
///
/// Of different kinds:
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zookeeper_test_server::Server::start()?;
/// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
/// use zookeeper_recipes::{InterProcessMultiLock, InterProcessMutex, InterProcessReadWriteLock};
///
/// let prices = InterProcessReadWriteLock::new(&client, "/cache/prices")?;
/// let order = InterProcessMutex::new(&client, "/orders/4711")?;
/// let multi = InterProcessMultiLock::new(&[&order, &prices.read_lock()])?;
/// let guard = multi.lock().await?;
/// assert_eq!(guard.paths(), ["/orders/4711", "/cache/prices"]);
/// guard.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct InterProcessMultiLock {
    members: Members,
    /// Where each member, in the order in which they were given, is among those.
    as_given: Arc<[usize]>,
}

impl InterProcessMultiLock {
    /// Creates a multi-lock of these locks, without any I/O.
    ///
    /// The order in which they are given is that of [`MultiLockGuard::fencing_tokens`],
    /// [`nodes`](MultiLockGuard::nodes) and [`paths`](MultiLockGuard::paths), and does not matter otherwise.
    ///
    /// # Errors
    /// - [`BuildError::NoMembers`] and [`BuildError::TooManyMembers`], of which there may be 1,000.
    /// - [`BuildError::DuplicateMember`] if two of them have one path, namespace included.
    /// - [`BuildError::OtherClient`] if they do not belong to one client. Clones of a client are that client.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// use zookeeper_recipes::{BuildError, InterProcessFairLock, InterProcessMultiLock, InterProcessMutex};
    ///
    /// let (a, b) = (InterProcessMutex::new(&client, "/a")?, InterProcessFairLock::new(&client, "/b")?);
    /// let multi = InterProcessMultiLock::new(&[&a, &b])?;
    /// assert_eq!(multi.paths(), ["/a", "/b"]);
    ///
    /// let twice = InterProcessMultiLock::new(&[&a, &b, &a]).unwrap_err();
    /// assert!(matches!(twice, BuildError::DuplicateMember { .. }));
    /// # Ok(())
    /// # }
    /// ```
    pub fn new(locks: &[&dyn InterProcessLock]) -> Result<Self, BuildError> {
        Self::of(locks)
    }

    /// Creates a multi-lock of all locks of an iterator, without any I/O.
    ///
    /// The items are locks of one type, or references to them, or `Arc<dyn InterProcessLock>`, of several
    /// types.
    ///
    /// # Errors
    /// See [`new`](Self::new).
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// use std::sync::Arc;
    /// use zookeeper_recipes::{
    ///     InterProcessFairLock, InterProcessLock, InterProcessMultiLock, InterProcessReadWriteLock,
    /// };
    ///
    /// let prices = InterProcessReadWriteLock::new(&client, "/cache/prices")?;
    /// let stock = InterProcessReadWriteLock::new(&client, "/cache/stock")?;
    /// let both = InterProcessMultiLock::of([&prices, &stock].map(|lock| lock.read_lock()))?;
    /// both.lock().await?.release().await?;
    ///
    /// let locks: Vec<Arc<dyn InterProcessLock>> = vec![
    ///     Arc::new(prices.write_lock()),
    ///     Arc::new(InterProcessFairLock::new(&client, "/tickets/hall-1")?),
    /// ];
    /// let mixed = InterProcessMultiLock::of(&locks)?; // or of(locks)
    /// assert_eq!(mixed.paths(), ["/cache/prices", "/tickets/hall-1"]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn of(locks: impl IntoIterator<Item = impl InterProcessLock>) -> Result<Self, BuildError> {
        Self::of_members(locks.into_iter().map(|lock| lock.member(Inside(())).0).collect())
    }

    /// Creates a multi-lock of the mutexes at these paths, without any I/O.
    ///
    /// # Errors
    /// - See [`new`](Self::new).
    /// - See [`InterProcessMutex::new`] for the paths.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// use zookeeper_recipes::InterProcessMultiLock;
    ///
    /// let items = ["sku-42", "sku-7"]; // of one order
    /// let paths = items.map(|item| format!("/inventory/{item}"));
    /// let multi = InterProcessMultiLock::from_paths(&client, paths)?;
    /// assert_eq!(multi.paths(), ["/inventory/sku-42", "/inventory/sku-7"]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn from_paths<P: AsRef<str>>(
        client: &Client,
        paths: impl IntoIterator<Item = P>,
    ) -> Result<Self, BuildError> {
        use crate::lock::sealed::Sealed;

        let mutex = |path: P| Ok(InterProcessMutex::new(client, path.as_ref())?.member(Inside(())).0);
        Self::of_members(paths.into_iter().map(mutex).collect::<Result<_, BuildError>>()?)
    }

    fn of_members(given: Vec<Member>) -> Result<Self, BuildError> {
        let Some(first) = given.first() else { return Err(BuildError::NoMembers) };
        if given.len() > MAX_MEMBERS {
            return Err(BuildError::TooManyMembers { members: given.len(), max: MAX_MEMBERS });
        }
        let path = |member: &Member| member.path_lock.path().user().to_owned();
        let client = Arc::clone(first.path_lock.client());
        if let Some(other) = given.iter().find(|other| !Arc::ptr_eq(other.path_lock.client(), &client)) {
            return Err(BuildError::OtherClient { path: path(other) });
        }
        let mut in_order: Vec<(usize, Member)> = given.into_iter().enumerate().collect();
        let server = |member: &Member| member.path_lock.path().server().to_owned();
        in_order.sort_by_key(|(_, member)| server(member));
        let twice = in_order.windows(2).find_map(|pair| match pair {
            [(_, one), (_, other)] if server(one) == server(other) => Some(path(other)),
            _ => None,
        });
        if let Some(path) = twice {
            return Err(BuildError::DuplicateMember { path });
        }
        let mut as_given: Vec<(usize, usize)> =
            in_order.iter().enumerate().map(|(index, (given, _))| (*given, index)).collect();
        as_given.sort_unstable();
        let in_order = in_order.into_iter().map(|(_, member)| member).collect();
        let as_given = as_given.into_iter().map(|(_, index)| index).collect();
        Ok(Self { members: Members::new(client, in_order), as_given })
    }

    /// Acquires all members, waiting at most for `timeout`.
    ///
    /// The timeout covers everything: all members, missing directories, retries, reconnects, and waiting for
    /// other contenders. [`Duration::ZERO`] does not wait for other contenders, as
    /// [`try_lock`](Self::try_lock), but it does wait for the servers, up to the connect timeout. A duration
    /// over a year is no deadline.
    ///
    /// # Errors
    /// Each names the member that it is of. The members that had been acquired are released before it is
    /// returned: their deletions have been handed to the background.
    /// - [`AcquireError::TimedOut`] if a member was not free in time.
    /// - [`ErrorKind::Connection`](crate::ErrorKind::Connection) if the time passed without an answer of a
    ///   server.
    /// - [`AcquireError::NodeDeleted`] if another process deleted the nodes of members that were held while
    ///   others were waited for, more often than the retry policy allows.
    /// - See [`AcquireError`] for the other variants.
    ///
    /// # Cancel safety
    /// If the future is dropped, all members are released, and nodes that were created, or may have been, are
    /// deleted in the background, which [`Client::flush`] waits for. Do not keep the future without polling
    /// it: once the locks are granted to it, all other contenders wait until the future is polled or dropped.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// use std::time::Duration;
    /// use zookeeper_recipes::{Acquired, InterProcessMultiLock, OrBusy};
    ///
    /// let both = InterProcessMultiLock::from_paths(&client, ["/accounts/4", "/accounts/17"])?;
    /// if let Acquired(guard) = both.acquire(Duration::from_millis(200)).await.or_busy()? {
    ///     guard.release().await?; // after the work
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn acquire(
        &self,
        timeout: Duration,
    ) -> impl Future<Output = Result<MultiLockGuard, AcquireError>> + Send + 'static + use<> {
        self.ask(self.budget(|path_lock| lock::within(path_lock, timeout)), None, Location::caller())
    }

    /// Acquires all members, waiting at most until `deadline`.
    ///
    /// One that has passed does not wait for other contenders, as [`try_lock`](Self::try_lock), but it does
    /// wait for the servers, up to the connect timeout.
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
    /// use zookeeper_recipes::InterProcessMultiLock;
    ///
    /// let deadline = Instant::now() + Duration::from_secs(10); // of the whole request
    /// let both = InterProcessMultiLock::from_paths(&client, ["/accounts/4", "/accounts/17"])?;
    /// let guard = both.acquire_until(deadline).await?;
    /// guard.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn acquire_until(
        &self,
        deadline: Instant,
    ) -> impl Future<Output = Result<MultiLockGuard, AcquireError>> + Send + 'static + use<> {
        self.ask(self.budget(|path_lock| lock::until(path_lock, deadline)), None, Location::caller())
    }

    /// Acquires all members for no longer than `lease`, waiting at most for `wait`.
    ///
    /// The lease begins when all are acquired. When it is over, the guard is lost, with
    /// [`LostReason::LeaseOver`](crate::LostReason::LeaseOver), and then all members are released. See
    /// [`InterProcessMutex::acquire_with_lease`], [`MultiLockGuard::set_lease`] and
    /// [`MultiLockGuard::lease_remaining`].
    ///
    /// # Errors
    /// - [`AcquireError::InvalidLease`] if `lease` is zero.
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
    /// use zookeeper_recipes::InterProcessMultiLock;
    ///
    /// let both = InterProcessMultiLock::from_paths(&client, ["/accounts/4", "/accounts/17"])?;
    /// let guard = both.acquire_with_lease(Duration::from_secs(10), Duration::from_secs(10)).await?;
    /// assert!(guard.lease_remaining() <= Some(Duration::from_secs(10)));
    /// guard.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn acquire_with_lease(
        &self,
        wait: Duration,
        lease: Duration,
    ) -> impl Future<Output = Result<MultiLockGuard, AcquireError>> + Send + 'static + use<> {
        let budget = self.budget(|path_lock| lock::within(path_lock, wait));
        self.ask(budget, Some(lease), Location::caller())
    }

    /// Acquires all members, waiting for as long as other contenders are in the way.
    ///
    /// If a guard of the same task holds one of them, this waits forever.
    ///
    /// # Errors
    /// See [`acquire`](Self::acquire); never [`AcquireError::TimedOut`].
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
    /// use zookeeper_recipes::InterProcessMultiLock;
    ///
    /// let both = InterProcessMultiLock::from_paths(&client, ["/accounts/4", "/accounts/17"])?;
    /// let guard = both.lock().await?;
    /// assert!(guard.is_held());
    /// guard.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn lock(
        &self,
    ) -> impl Future<Output = Result<MultiLockGuard, AcquireError>> + Send + 'static + use<> {
        self.ask(Budget::Forever, None, Location::caller())
    }

    /// Acquires all members if they are all free.
    ///
    /// If one is contended, creates no node: reads all queues by one request, and confirms what it has seen
    /// after a `sync`, because a member of the ensemble may lag behind.
    ///
    /// # Errors
    /// Each names the member that it is of.
    /// - [`TryLockError::WouldBlock`] if a live contender is in the way of a member.
    /// - [`ErrorKind::Connection`](crate::ErrorKind::Connection) if no server replies within the connect
    ///   timeout.
    /// - See [`AcquireError`] for the other errors in [`TryLockError::Acquire`].
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
    /// use zookeeper_recipes::{InterProcessMultiLock, InterProcessMutex, TryLockError};
    ///
    /// let both = InterProcessMultiLock::from_paths(&client, ["/accounts/4", "/accounts/17"])?;
    /// let busy = InterProcessMutex::new(&client, "/accounts/4")?.lock().await?;
    /// match both.try_lock().await {
    ///     Ok(guard) => guard.release().await?, // after the work
    ///     Err(TryLockError::WouldBlock { path, .. }) => assert_eq!(path, "/accounts/4"),
    ///     Err(error) => return Err(error.into()),
    /// }
    /// # busy.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    #[doc(alias = "tryAcquire")]
    pub fn try_lock(
        &self,
    ) -> impl Future<Output = Result<MultiLockGuard, TryLockError>> + Send + 'static + use<> {
        let mut ask = Ask::new(Kind::Exclusive, self.budget(lock::at_once), Location::caller());
        let (members, as_given) = (self.members.clone(), Arc::clone(&self.as_given));
        async move {
            let call = Call::begin_multi(members.in_order(), &mut ask);
            let result = match multi::acquire(members.clone(), ask).await {
                Ok(holds) => match holds.lost() {
                    None => Ok(holds),
                    // Lost between the grant and here.
                    Some((path_lock, reason)) => Err(path_lock.lost_at_once(reason).into()),
                },
                Err(error) => Err(error),
            };
            let holds = call.ended_multi(members.in_order(), result, Holds::as_slice)?;
            Ok(MultiLockGuard::new(holds, as_given))
        }
    }

    /// Acquires all members like [`acquire`](Self::acquire), and blocks the thread meanwhile.
    ///
    /// For threads and scripts, not for asynchronous code: see
    /// [`InterProcessMutex::blocking_acquire`](crate::InterProcessMutex::blocking_acquire).
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
    /// use zookeeper_recipes::InterProcessMultiLock;
    ///
    /// let both = InterProcessMultiLock::from_paths(&client, ["/accounts/4", "/accounts/17"])?;
    /// let guard = both.blocking_acquire(Duration::from_secs(10))?;
    /// guard.blocking_release()?;
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn blocking_acquire(&self, timeout: Duration) -> Result<MultiLockGuard, AcquireError> {
        block_on(self.acquire(timeout))
    }

    /// Acquires all members like [`acquire_with_lease`](Self::acquire_with_lease), and blocks the thread
    /// meanwhile.
    ///
    /// # Errors
    /// See [`acquire_with_lease`](Self::acquire_with_lease).
    #[track_caller]
    pub fn blocking_acquire_with_lease(
        &self,
        wait: Duration,
        lease: Duration,
    ) -> Result<MultiLockGuard, AcquireError> {
        block_on(self.acquire_with_lease(wait, lease))
    }

    /// Acquires all members like [`lock`](Self::lock), and blocks the thread meanwhile.
    ///
    /// # Errors
    /// See [`lock`](Self::lock).
    #[track_caller]
    pub fn blocking_lock(&self) -> Result<MultiLockGuard, AcquireError> {
        block_on(self.lock())
    }

    /// Acquires all members if they are free, like [`try_lock`](Self::try_lock), and blocks the thread until the
    /// servers have answered.
    ///
    /// # Errors
    /// See [`try_lock`](Self::try_lock).
    #[track_caller]
    pub fn blocking_try_lock(&self) -> Result<MultiLockGuard, TryLockError> {
        block_on(self.try_lock())
    }

    fn ask(
        &self,
        budget: Budget,
        lease: Option<Duration>,
        location: &'static Location<'static>,
    ) -> impl Future<Output = Result<MultiLockGuard, AcquireError>> + Send + 'static + use<> {
        // Each member is asked for as its own kind.
        let mut ask = Ask { lease, ..Ask::new(Kind::Exclusive, budget, location) };
        let (members, as_given) = (self.members.clone(), Arc::clone(&self.as_given));
        async move {
            if lease.is_some_and(|lease| lease.is_zero()) {
                let path = members.in_order().first().map_or("", |member| member.path_lock.path().user());
                return Err(AcquireError::InvalidLease { path: path.to_owned() });
            }
            let _waiting = multi::watch_self_wait(&members, &ask);
            let call = Call::begin_multi(members.in_order(), &mut ask);
            let attempt = |ask| multi::acquire(members.clone(), ask);
            let result = lock::until_had(ask, attempt, Holds::lost).await;
            let holds = call.ended_multi(members.in_order(), result, Holds::as_slice)?;
            Ok(MultiLockGuard::new(holds, as_given))
        }
    }

    /// Returns the budget of all members: that of one, since the client decides it.
    fn budget(&self, of: impl Fn(&PathLock) -> Budget) -> Budget {
        // There is at least one member.
        self.members.in_order().first().map_or(Budget::Forever, |member| of(&member.path_lock))
    }

    fn given(&self) -> impl Iterator<Item = &Member> {
        self.as_given.iter().filter_map(|index| self.members.in_order().get(*index))
    }

    /// Returns `true` if each member is held, by the clock, by a guard of this client: one of this
    /// multi-lock, or of a lock of the member's type.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// use zookeeper_recipes::InterProcessMultiLock;
    ///
    /// let both = InterProcessMultiLock::from_paths(&client, ["/accounts/4", "/accounts/17"])?;
    /// let guard = both.lock().await?;
    /// assert!(both.is_acquired_in_this_process());
    /// drop(guard);
    /// assert!(!both.is_acquired_in_this_process());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    #[doc(alias = "isAcquiredInThisProcess")]
    pub fn is_acquired_in_this_process(&self) -> bool {
        self.given().all(|member| member.path_lock.is_held(member.kind))
    }

    /// Returns the paths of the members, as they were given and in that order.
    #[must_use]
    pub fn paths(&self) -> Vec<&str> {
        self.given().map(|member| member.path_lock.path().user()).collect()
    }
}

impl fmt::Debug for InterProcessMultiLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "InterProcessMultiLock({})", Quoted(&self.paths().join(", ")))
    }
}

/// A guard that holds all members of a multi-lock until it is dropped or released.
///
/// Returned by [`InterProcessMultiLock`]. It is a [`LockGuard`] for each member, as one: it is lost as soon
/// as one of them is, and a [transaction](Self::transaction) commits only while all of them are held.
/// Dropping it releases all members in the background, the last first; [`release`](Self::release) returns the
/// outcome.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zookeeper_test_server::Server::start()?;
/// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
/// # let accounts = ["/accounts/4", "/accounts/17"];
/// # let both = zookeeper_recipes::InterProcessMultiLock::from_paths(&client, accounts)?;
/// use std::time::Duration;
///
/// let guard = both.acquire(Duration::from_secs(10)).await?;
/// let moved = guard.while_held(async { 42 /* the transfer */ }).await?;
/// guard.release().await?; // or drop it
/// # assert_eq!(moved, 42);
/// # Ok(())
/// # }
/// ```
#[must_use = "dropping the guard releases the locks at once: bind it to `_guard`, not to `_`"]
#[clippy::has_significant_drop]
pub struct MultiLockGuard {
    /// In the order in which they were acquired.
    guards: GuardSet,
    /// Where each member, in the order in which they were given, is among those.
    as_given: Arc<[usize]>,
}

impl MultiLockGuard {
    fn new(holds: Holds, as_given: Arc<[usize]>) -> Self {
        let guard = |hold: crate::engine::hold::Hold| match hold.kind() {
            Kind::Shared => LockGuard::<Read>::new(hold).into(),
            Kind::Exclusive => LockGuard::<Exclusive>::new(hold).into(),
        };
        Self { guards: GuardSet::new(holds.into_vec().into_iter().map(guard).collect()), as_given }
    }

    /// Returns the loss, if a member is lost by the clock.
    pub(crate) fn lost_now(&self) -> Option<Lost> {
        self.guards.lost_now()
    }

    fn given(&self) -> impl Iterator<Item = &AnyGuard> {
        self.as_given.iter().filter_map(|index| self.guards.guards().get(*index))
    }

    /// Returns the state of the member that is worst off.
    ///
    /// The clock is read at each call, so a task that was not scheduled for long cannot hide a loss.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// # let both = zookeeper_recipes::InterProcessMultiLock::from_paths(&client, ["/a", "/b"])?;
    /// # let guard = both.lock().await?;
    /// use zookeeper_recipes::LockState;
    ///
    /// assert_eq!(guard.state(), LockState::Held);
    /// client.close().await?;
    /// assert!(matches!(guard.state(), LockState::Lost(_)));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn state(&self) -> LockState {
        self.guards.state()
    }

    /// Waits until the state differs from `known`, and returns the new one.
    ///
    /// Returns at once if the state differs already, or if a member is lost. See
    /// [`LockGuard::state_changed`].
    ///
    /// # Cancel safety
    /// If the future is dropped, nothing is lost.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// # let both = zookeeper_recipes::InterProcessMultiLock::from_paths(&client, ["/a", "/b"])?;
    /// # let guard = both.lock().await?;
    /// # async fn transfer() {}
    /// use zookeeper_recipes::LockState;
    ///
    /// tokio::select! {
    ///     state = guard.state_changed(LockState::Held) => eprintln!("begin nothing new: {state:?}"),
    ///     () = transfer() => {}
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn state_changed(&self, known: LockState) -> LockState {
        self.guards.state_changed(known).await
    }

    /// Returns `true` unless a member is lost, by the clock.
    ///
    /// The answer is advisory: a member may be lost a moment later, and only the
    /// [tokens](Self::fencing_tokens) protect the resources then.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// # let both = zookeeper_recipes::InterProcessMultiLock::from_paths(&client, ["/a", "/b"])?;
    /// # let guard = both.lock().await?;
    /// assert!(guard.is_held());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.lost_now().is_none()
    }

    /// Returns a future that resolves when the first member is lost; the error names it.
    ///
    /// The future does not borrow the guard. After a release, drop it; see [`LockGuard::lost`].
    ///
    /// # Cancel safety
    /// If the future is dropped, nothing is lost: the next one resolves at once if a member was lost in
    /// between.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// # let both = zookeeper_recipes::InterProcessMultiLock::from_paths(&client, ["/a", "/b"])?;
    /// # let guard = both.lock().await?;
    /// # async fn transfer() {}
    /// tokio::select! {
    ///     lost = guard.lost() => eprintln!("stop at once: {lost}"),
    ///     () = transfer() => guard.release().await?,
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn lost(&self) -> impl Future<Output = Lost> + Send + 'static + use<> {
        self.guards.lost()
    }

    /// Sets the end of the lease of all members to `lease` from now, sooner or later than it was.
    ///
    /// See [`LockGuard::set_lease`].
    ///
    /// # Errors
    /// [`Lost`] if a member is lost, by the clock.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// # let both = zookeeper_recipes::InterProcessMultiLock::from_paths(&client, ["/a", "/b"])?;
    /// # let guard = both.lock().await?;
    /// use std::time::Duration;
    ///
    /// guard.set_lease(Duration::from_secs(10))?;
    /// assert!(guard.lease_remaining() <= Some(Duration::from_secs(10)));
    /// # Ok(())
    /// # }
    /// ```
    pub fn set_lease(&self, lease: Duration) -> Result<(), Lost> {
        self.guards.set_lease(lease)
    }

    /// Returns how much of the lease is left; `None` if there is no lease. Zero if a member is lost.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// # let both = zookeeper_recipes::InterProcessMultiLock::from_paths(&client, ["/a", "/b"])?;
    /// # let guard = both.lock().await?;
    /// assert_eq!(guard.lease_remaining(), None);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    #[doc(alias = "remainTimeToLive")]
    pub fn lease_remaining(&self) -> Option<Duration> {
        self.guards.lease_remaining()
    }

    /// Runs `work` while all members are held, and returns its output.
    ///
    /// As soon as a member is lost, `work` is dropped. If one is lost by the time that `work` is done, its
    /// output is dropped.
    ///
    /// # Errors
    /// [`Lost`] if a member is lost. If it was lost before the call, `work` is not polled.
    ///
    /// # Cancel safety
    /// If the future is dropped, `work` is dropped with it. The guard keeps the locks.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// # let both = zookeeper_recipes::InterProcessMultiLock::from_paths(&client, ["/a", "/b"])?;
    /// # let guard = both.lock().await?;
    /// let moved = guard.while_held(async { 42 /* the transfer */ }).await?;
    /// # assert_eq!(moved, 42);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn while_held<T>(&self, work: impl Future<Output = T>) -> Result<T, Lost> {
        self.guards.while_held(work).await
    }

    /// Runs `work` while all members are held, and returns its output with the guard.
    ///
    /// Does the same as [`while_held`](Self::while_held), but takes the guard, so the future can be given to
    /// [`tokio::spawn`].
    ///
    /// # Errors
    /// [`Lost`] if a member is lost. The guard is dropped then, after `work`.
    ///
    /// # Cancel safety
    /// If the future is dropped, or its task aborted, `work` is dropped and then all members are released in
    /// the background.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// # let both = zookeeper_recipes::InterProcessMultiLock::from_paths(&client, ["/a", "/b"])?;
    /// # let guard = both.lock().await?;
    /// let job = tokio::spawn(guard.while_held_owned(async { 42 /* the transfer */ }));
    /// let (moved, guard) = job.await??;
    /// guard.release().await?;
    /// # assert_eq!(moved, 42);
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "spawn")]
    pub fn while_held_owned<T>(
        self,
        work: impl Future<Output = T>,
    ) -> impl Future<Output = Result<(T, Self), Lost>> {
        // In the order in which they are dropped, polled or not: the work relies on the locks.
        let owned = (work, self);
        async move {
            let (work, guard) = owned;
            let output = guard.while_held(work).await?;
            Ok((output, guard))
        }
    }

    /// Returns another guard of the same holds; the members are released when the last of them is.
    ///
    /// It costs no request.
    ///
    /// # Errors
    /// [`Lost`] if a member is lost.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// # let both = zookeeper_recipes::InterProcessMultiLock::from_paths(&client, ["/a", "/b"])?;
    /// # let guard = both.lock().await?;
    /// let share = guard.reenter()?;
    /// drop(guard);
    /// assert!(share.is_held());
    /// # Ok(())
    /// # }
    /// ```
    pub fn reenter(&self) -> Result<Self, Lost> {
        Ok(Self { guards: self.guards.reenter()?, as_given: Arc::clone(&self.as_given) })
    }

    /// Returns the number of guards that share the holds.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// # let both = zookeeper_recipes::InterProcessMultiLock::from_paths(&client, ["/a", "/b"])?;
    /// # let guard = both.lock().await?;
    /// let again = guard.reenter()?;
    /// assert_eq!(guard.hold_count(), 2);
    /// again.release().await?; // only this share
    /// assert_eq!(guard.hold_count(), 1);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    #[doc(alias = "getHoldCount")]
    pub fn hold_count(&self) -> usize {
        // The same of all.
        self.guards.guards().first().map_or(0, AnyGuard::hold_count)
    }

    /// Returns an empty transaction: writes to ZooKeeper that are committed only while all members are held.
    ///
    /// See [`Transaction`]. It checks the node of each member. Nodes that it creates have the ACL of the member
    /// whose path is first in the order of the paths.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// # for path in ["/balances", "/balances/4", "/balances/17"] { server.create(path, b"100")?; }
    /// # let accounts = ["/accounts/4", "/accounts/17"];
    /// # let both = zookeeper_recipes::InterProcessMultiLock::from_paths(&client, accounts)?;
    /// let guard = both.lock().await?;
    /// let transfer = guard.transaction();
    /// transfer.set_data("/balances/4", "70", 0).set_data("/balances/17", "130", 0).commit().await?;
    /// # assert_eq!(server.node("/balances/17").unwrap().data, b"130");
    /// # Ok(())
    /// # }
    /// ```
    pub fn transaction(&self) -> Transaction<'_> {
        self.guards.transaction()
    }

    /// Reads a node, and the version of its data for a [transaction](Self::transaction) that is based on them.
    /// `None` if there is no such node.
    ///
    /// The path is below the client's [namespace](crate::ClientBuilder::namespace), and needs READ by its ACL.
    /// The answer is not older than the grant: it has every write that was committed before the
    /// last of the members was released by the previous holder, through whichever server. It may be out of date by the
    /// time that it is used, if others write without the lock or this one is lost: pass its version to the write.
    ///
    /// It costs two requests, a `sync` and the read, which are sent together, and is repeated by the client's
    /// [`RetryPolicy`](crate::RetryPolicy) while the lock is held.
    ///
    /// # Errors
    /// - [`TransactionError::Lost`] if the lock is lost, also if that happened during the read.
    /// - [`ErrorKind::NoAuth`](crate::ErrorKind::NoAuth) if the ACL of the node does not let this client read
    ///   it.
    /// - [`ErrorKind::Connection`](crate::ErrorKind::Connection) if no server answered.
    /// - See [`TransactionError`] for the other variants.
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
    /// # server.create("/config/rates", b"old")?;
    /// # let both = zookeeper_recipes::InterProcessMultiLock::from_paths(&client, ["/locks/a", "/locks/b"])?;
    /// # let guard = both.lock().await?;
    /// let rates = guard.get_data("/config/rates").await?.ok_or("there are no rates")?;
    /// if rates.data == b"old" {
    ///     guard.transaction().set_data("/config/rates", b"new", rates.version).commit().await?;
    /// }
    /// assert!(guard.get_data("/config/none").await?.is_none());
    /// # assert_eq!(server.node("/config/rates").unwrap().data, b"new");
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "getData")]
    pub async fn get_data(&self, path: impl AsRef<str>) -> Result<Option<NodeData>, TransactionError> {
        self.guards.get_data(path.as_ref()).await
    }

    /// Returns the fencing tokens of the members, in the order in which these were given.
    ///
    /// Each is for the resource that its member protects; they say nothing about each other.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// # let accounts = ["/accounts/4", "/accounts/17"];
    /// # let both = zookeeper_recipes::InterProcessMultiLock::from_paths(&client, accounts)?;
    /// let guard = both.lock().await?;
    /// for (path, token) in guard.paths().into_iter().zip(guard.fencing_tokens()) {
    ///     println!("{path}: {token}"); // of each account, for the database to compare
    /// }
    /// # guard.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn fencing_tokens(&self) -> Vec<Token> {
        self.given().map(AnyGuard::fencing_token).collect()
    }

    /// Returns a future that resolves when another contender requests revocation of a member.
    ///
    /// See [`LockGuard::revoked`]. While it is polled, the lock node of each member is watched, which costs
    /// one request for each.
    ///
    /// # Cancel safety
    /// If the future is dropped, the watches end. The next one resolves for the same request.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// # let both = zookeeper_recipes::InterProcessMultiLock::from_paths(&client, ["/a", "/b"])?;
    /// # let guard = both.lock().await?;
    /// # let other = client.clone();
    /// # async fn reindex() { std::future::pending().await }
    /// # let node = guard.nodes().pop().unwrap();
    /// # tokio::spawn(async move { other.attempt_revoke(&node).await });
    /// tokio::select! {
    ///     () = guard.revoked() => guard.release().await?, // another process needs a member more urgently
    ///     () = reindex() => {}
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "makeRevocable")]
    pub fn revoked(&self) -> impl Future<Output = ()> + Send + 'static + use<> {
        self.guards.revoked()
    }

    /// Returns the paths of the lock nodes, without the client's namespace, in the order in which the members
    /// were given.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// # let both = zookeeper_recipes::InterProcessMultiLock::from_paths(&client, ["/a", "/b"])?;
    /// # let guard = both.lock().await?;
    /// let nodes = guard.nodes();
    /// assert_eq!((nodes[0].lock_path(), nodes[1].lock_path()), ("/a", "/b"));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn nodes(&self) -> Vec<NodePath> {
        self.given().map(AnyGuard::node).collect()
    }

    /// Returns the paths of the members, as they were given and in that order.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// # let both = zookeeper_recipes::InterProcessMultiLock::from_paths(&client, ["/b", "/a"])?;
    /// # let guard = both.lock().await?;
    /// assert_eq!(guard.paths(), ["/b", "/a"]);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn paths(&self) -> Vec<&str> {
        self.given().map(AnyGuard::path).collect()
    }

    /// Releases all members, the last by path first, and waits until a server has confirmed each.
    ///
    /// The requests are sent together. While other guards [share](Self::reenter) the holds, it only gives up
    /// this share. With no server in reach it waits until the session is over; see [`LockGuard::release`].
    ///
    /// # Errors
    /// The first error; all members are released in any case.
    /// - [`ReleaseError::Lost`] if a member was lost before the call, or if the session ended before a server
    ///   confirmed the releases.
    /// - [`ReleaseError::Refused`] if the ACL does not allow this client to delete a node of its own.
    ///
    /// # Cancel safety
    /// The members are released in any case, from the moment of the call. If the future is dropped, the
    /// outcome is not known.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// # let accounts = ["/accounts/4", "/accounts/17"];
    /// # let both = zookeeper_recipes::InterProcessMultiLock::from_paths(&client, accounts)?;
    /// let guard = both.lock().await?;
    /// guard.release().await?;
    /// assert!(both.try_lock().await.is_ok());
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "unlock")]
    pub fn release(self) -> impl Future<Output = Result<(), ReleaseError>> + Send + 'static + use<> {
        self.guards.release()
    }

    /// Releases all members like [`release`](Self::release), and blocks the thread until a server has confirmed
    /// each.
    ///
    /// # Errors
    /// See [`release`](Self::release).
    pub fn blocking_release(self) -> Result<(), ReleaseError> {
        block_on(self.release())
    }
}

impl fmt::Debug for MultiLockGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MultiLockGuard({})", Quoted(&self.paths().join(", ")))
    }
}
