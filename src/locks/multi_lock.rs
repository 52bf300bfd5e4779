//! The multi-lock: several locks that are acquired in the order of their paths, and held as one
//! (docs/protocol.md#multi-lock).
//!
//! The members are sorted when the lock is built, and `engine::multi_attempt` acquires them one by
//! one. The positions in which the caller gave them are kept for what the caller gets back: paths,
//! nodes and tokens.

use std::fmt::{self, Display};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::blocking::block_on;
use crate::client::Client;
use crate::engine::acquisition::{Hold, ObservedCall};
use crate::engine::lock::path_lock::{Ask, Member};
use crate::engine::multi_attempt::{self, Acquired, MultiMembers};
use crate::error::{AcquireError, BuildError, Lost, ReleaseError, TransactionError, TryLockError};
use crate::locks::guard_set::{self, GuardSet, Shares};
use crate::locks::guards::Guard;
use crate::locks::guards::sealed::{Inside, IsGuard};
use crate::locks::lock::{self, InterProcessLock};
use crate::locks::mutex::InterProcessMutex;
use crate::locks::transaction::Transaction;
use crate::protocol::hold::LockState;
use crate::protocol::node_name::Kind;
use crate::session::core::Core;
use crate::session::threads::BoxFuture;
use crate::values::path::{LockPath, NodePath};
use crate::values::shown::Quoted;
use crate::values::token::{FencingToken, ReadToken, Token};

/// The largest number of members: a transaction under the guard checks each member's node, and has
/// to fit into one request.
const MAX_MEMBERS: usize = 1_000;

/// Several locks that are acquired as one: all of them, or none.
///
/// Combines any mutexes, fair locks, read locks and write locks of one client. A semaphore cannot
/// be a member. The multi-lock works like Curator's class of this name, but all members have one
/// deadline, and no member stays locked after an error.
///
/// Members are acquired one by one, each as a separate lock. A release takes a request for each
/// member; they are sent together.
///
/// # No deadlock
/// The members are acquired in the order of their paths, not in the order of the argument.
/// Therefore multi-locks do not deadlock with each other, and not with code that nests single locks
/// in the order of their paths (compared byte by byte, `/a/10` before `/a/9`). Code that nests
/// locks in another order can deadlock with a multi-lock, as with any other code: give it a
/// timeout.
///
/// # One loss is the loss of all
/// Each member remains an ordinary lock to other processes, with a node of this client in its
/// queue. The [guard](MultiLockGuard) is lost with the first member that is lost. The other members
/// are released too: at once if a lease is over, and after any other loss when the guard is
/// dropped, at the latest a session timeout after the last renewal. If a member is lost while the
/// call still waits for others, all members are released and acquired anew within the deadline.
///
/// An error names the member that failed. The members that had been acquired are released before
/// the error is returned; their nodes are deleted in the background.
/// [`AcquireError::NodeDeleted`] says that, while the call waited for other members, another
/// process deleted the nodes of held members more often than the retry policy allows.
///
/// # Not an `InterProcessLock`
/// A multi-lock does not implement [`InterProcessLock`], whose guard has one node, one token and
/// one path.
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
/// With different kinds:
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
    members: MultiMembers,
    /// The index of each member, in the given order, among `members`.
    as_given: Arc<[usize]>,
}

impl InterProcessMultiLock {
    /// Creates a multi-lock of these locks, without any I/O.
    ///
    /// The order of the arguments is that of [`MultiLockGuard::fencing_tokens`],
    /// [`nodes`](MultiLockGuard::nodes) and [`paths`](MultiLockGuard::paths), and does not matter
    /// otherwise.
    ///
    /// # Errors
    /// - [`BuildError::NoMembers`] for no members, and [`BuildError::TooManyMembers`] for more than
    ///   1,000.
    /// - [`BuildError::DuplicateMember`] if two members share a path, namespace included.
    /// - [`BuildError::OtherClient`] if the members belong to different clients. Clones of a client
    ///   count as one.
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
    /// The items are locks of one type, or references to them, or `Arc<dyn InterProcessLock>`, of
    /// several types.
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
        Self::of_members(locks.into_iter().map(|lock| member(&lock)).collect())
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
        let mutex = |path: P| Ok(member(&InterProcessMutex::new(client, path.as_ref())?));
        Self::of_members(
            paths
                .into_iter()
                .map(mutex)
                .collect::<Result<_, BuildError>>()?,
        )
    }

    /// Creates a multi-lock of the mutexes of these keys below `prefix`, without any I/O.
    ///
    /// The paths are formed as by [`InterProcessMutex::keyed`].
    ///
    /// # Errors
    /// See [`from_paths`](Self::from_paths).
    pub fn keyed<K: Display>(
        client: &Client,
        prefix: impl AsRef<str>,
        keys: impl IntoIterator<Item = K>,
    ) -> Result<Self, BuildError> {
        Self::from_paths(
            client,
            keys.into_iter()
                .map(|key| LockPath::keyed(prefix.as_ref(), &key)),
        )
    }

    fn of_members(given: Vec<Member>) -> Result<Self, BuildError> {
        if given.len() > MAX_MEMBERS {
            return Err(BuildError::TooManyMembers {
                members: given.len(),
                max: MAX_MEMBERS,
            });
        }
        let path = |member: &Member| member.path_lock.path.user().to_owned();
        let first = given
            .first()
            .map(|first| Arc::clone(&first.path_lock.client));
        let of_other = |other: &&Member| {
            first
                .as_ref()
                .is_some_and(|client| !Arc::ptr_eq(&other.path_lock.client, client))
        };
        // The members share one session, so that they are lost together and one transaction can
        // check all.
        if let Some(other) = given.iter().find(of_other) {
            return Err(BuildError::OtherClient { path: path(other) });
        }
        let mut in_order: Vec<(usize, Member)> = given.into_iter().enumerate().collect();
        let server = |member: &Member| member.path_lock.path.server().to_owned();
        // The order is that of the paths on the servers, namespace included, because all processes
        // have it in common. So no two multi-locks wait for each other
        // (docs/protocol.md#multi-lock).
        in_order.sort_by_key(|(_, member)| server(member));
        // The second of two members with one path would wait for the first without end.
        let twice = in_order.windows(2).find_map(|pair| match pair {
            [(_, one), (_, other)] if server(one) == server(other) => Some(path(other)),
            _ => None,
        });
        if let Some(path) = twice {
            return Err(BuildError::DuplicateMember { path });
        }
        // The position of each member in the order of the paths, by the position in which it was
        // given.
        let mut as_given: Vec<(usize, usize)> = in_order
            .iter()
            .enumerate()
            .map(|(index, (given, _))| (*given, index))
            .collect();
        as_given.sort_unstable();
        let members = MultiMembers::new(in_order.into_iter().map(|(_, member)| member).collect());
        let as_given = as_given.into_iter().map(|(_, index)| index).collect();
        Ok(Self {
            members: members.ok_or(BuildError::NoMembers)?,
            as_given,
        })
    }
}

impl InterProcessMultiLock {
    /// Acquires all members, waiting for at most `timeout`.
    ///
    /// The timeout covers everything, like that of [`InterProcessMutex::acquire`]: creating missing
    /// directories, retries, reconnects, and waiting for the contenders of all members. With
    /// [`Duration::ZERO`] this works like a try: it waits only for the servers, up to the connect
    /// timeout. More than a year means no deadline.
    ///
    /// # Errors
    /// - [`AcquireError::TimedOut`] if live contenders of a member were in the way for all that
    ///   time. The call is not granted the lock later; nodes that could not be deleted yet are
    ///   deleted in the background.
    /// - [`ErrorKind::Connection`](crate::ErrorKind::Connection) if the time passed without an
    ///   answer from a server.
    /// - See [`AcquireError`] for the other variants.
    ///
    /// # Cancel safety
    /// If the future is dropped (in `select!` or [`tokio::time::timeout`]), the call loses its
    /// place in the queue, and the members that it has acquired, but nothing else. Nodes that it
    /// created, or may have created, are deleted in the background;
    /// [`Client::flush`](crate::Client::flush) waits for this. Do not keep the future without
    /// polling it: members that it is granted are withheld from other contenders until the future
    /// is polled or dropped.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// # let accounts = ["/accounts/4", "/accounts/17"];
    /// # let lock = zookeeper_recipes::InterProcessMultiLock::from_paths(&client, accounts)?;
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
    ) -> impl Future<Output = Result<MultiLockGuard, AcquireError>> + Send + 'static + use<> {
        let ask = lock::within(self.client(), Kind::Exclusive, timeout);
        self.clone().granted(ask)
    }

    /// Acquires all members, waiting for at most `wait`, runs `work` and releases the members.
    ///
    /// Returns the output of `work` with the result of the release, which is [`ReleaseError::Lost`]
    /// if a member was lost before the release: check both. A loss does not stop `work`, which has
    /// the guard: see [`InterProcessMutex::with`].
    ///
    /// # Errors
    /// See [`acquire`](Self::acquire). `work` was not called then.
    ///
    /// # Cancel safety
    /// If the future is dropped while it waits for a member, see [`acquire`](Self::acquire). Later,
    /// `work` is dropped, and then all members are released in the background.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// # let accounts = ["/accounts/4", "/accounts/17"];
    /// # let lock = zookeeper_recipes::InterProcessMultiLock::from_paths(&client, accounts)?;
    /// # async fn transfer() -> u32 { 3 }
    /// use std::time::Duration;
    ///
    /// let wait = Duration::from_secs(10);
    /// let work = lock.with(wait, async |guard| guard.while_held(transfer()).await);
    /// let (transfers, released) = work.await?;
    /// println!("{} transfers", transfers?); // an error if a member was lost first
    /// released?;
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn with<T, F: AsyncFnOnce(&MultiLockGuard) -> T>(
        &self,
        wait: Duration,
        work: F,
    ) -> impl Future<Output = Result<(T, Result<(), ReleaseError>), AcquireError>> + use<T, F> {
        let acquired = self.acquire(wait);
        async move {
            let guard = acquired.await?;
            let output = work(&guard).await;
            Ok((output, guard.release().await))
        }
    }

    /// Acquires all members, waiting at most until `deadline`.
    ///
    /// If `deadline` has passed, this works like a try: it waits only for the servers, up to the
    /// connect timeout.
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
    /// # let accounts = ["/accounts/4", "/accounts/17"];
    /// # let lock = zookeeper_recipes::InterProcessMultiLock::from_paths(&client, accounts)?;
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
    ) -> impl Future<Output = Result<MultiLockGuard, AcquireError>> + Send + 'static + use<> {
        let ask = lock::until(self.client(), Kind::Exclusive, deadline);
        self.clone().granted(ask)
    }

    /// Acquires all members for no longer than `lease`, waiting for at most `wait`.
    ///
    /// The lease begins with the grant of the last member. When it ends, the guard is lost, with
    /// [`LostReason::LeaseOver`](crate::LostReason::LeaseOver), and all members are released, even
    /// if the holder is not done. [`MultiLockGuard::set_lease`] moves the end. More than a year
    /// means no limit. See [`InterProcessMutex::acquire_with_lease`] for the clock of a lease and
    /// for the use of a lease.
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
    /// # let accounts = ["/accounts/4", "/accounts/17"];
    /// # let lock = zookeeper_recipes::InterProcessMultiLock::from_paths(&client, accounts)?;
    /// use std::time::Duration;
    /// use zookeeper_recipes::LostReason;
    ///
    /// let (wait, lease) = (Duration::from_secs(10), Duration::from_millis(200));
    /// let guard = lock.acquire_with_lease(wait, lease).await?;
    /// // Work that takes longer than the lease.
    /// assert_eq!(guard.lost().await.reason(), LostReason::LeaseOver);
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    #[doc(alias = "lease")]
    pub fn acquire_with_lease(
        &self,
        wait: Duration,
        lease: Duration,
    ) -> impl Future<Output = Result<MultiLockGuard, AcquireError>> + Send + 'static + use<> {
        let ask = lock::within(self.client(), Kind::Exclusive, wait);
        self.clone().granted(Ask {
            lease: Some(lease),
            ..ask
        })
    }

    /// Acquires all members, waiting for as long as other contenders are in the way.
    ///
    /// A call that has to wait for a guard of the same task never returns. When the call has waited
    /// a second for a lock that this client itself holds, a `WARN` in the log names the lines of
    /// both calls, once for each lock of a client.
    ///
    /// # Errors
    /// - [`ErrorKind::Connection`](crate::ErrorKind::Connection) if no server answers for as long
    ///   as the client's retry policy allows.
    /// - See [`AcquireError`] for the other variants; never [`AcquireError::TimedOut`].
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
    /// # let accounts = ["/accounts/4", "/accounts/17"];
    /// # let lock = zookeeper_recipes::InterProcessMultiLock::from_paths(&client, accounts)?;
    /// let guard = lock.lock().await?;
    /// assert!(guard.is_held());
    /// guard.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn lock(
        &self,
    ) -> impl Future<Output = Result<MultiLockGuard, AcquireError>> + Send + 'static + use<> {
        self.clone().granted(lock::forever(Kind::Exclusive))
    }

    /// Acquires all members without waiting for other contenders.
    ///
    /// If a member is contended, this creates no node: it reads the queues of all members in one
    /// request, and reads again after a `sync`, because a member of the ensemble may lag behind. It
    /// waits for nodes of this client that are still being deleted, unless other callers of this
    /// client wait for the member. The error names the member that is held.
    ///
    /// A multi-lock of one member works as that member's `try_lock` does. A fair lock with
    /// `max_waiters` nodes of this client returns [`TooManyWaiters`](AcquireError::TooManyWaiters),
    /// even if the fair lock is free.
    ///
    /// # Errors
    /// - [`TryLockError::WouldBlock`] if a live contender is in the way.
    /// - [`ErrorKind::Connection`](crate::ErrorKind::Connection) if no server replies within the
    ///   connect timeout.
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
    /// # let accounts = ["/accounts/4", "/accounts/17"];
    /// # let lock = zookeeper_recipes::InterProcessMultiLock::from_paths(&client, accounts)?;
    /// use zookeeper_recipes::TryLockError;
    ///
    /// match lock.try_lock().await {
    ///     Ok(guard) => guard.release().await?, // after the work
    ///     Err(TryLockError::WouldBlock { path, contention, .. }) => println!("{path}: {contention}"),
    ///     Err(error) => return Err(error.into()),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    #[doc(alias = "tryAcquire")]
    pub fn try_lock(
        &self,
    ) -> impl Future<Output = Result<MultiLockGuard, TryLockError>> + Send + 'static + use<> {
        let ask = lock::at_once(self.client(), Kind::Exclusive);
        self.clone().granted_at_once(ask)
    }

    /// Acquires like [`acquire`](Self::acquire), and blocks the thread until it returns. See
    /// [`InterProcessMutex::blocking_acquire`] for where to use it.
    ///
    /// # Errors
    /// See [`acquire`](Self::acquire).
    ///
    /// # Examples
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::blocking_connect(&server.connect_string())?;
    /// # let accounts = ["/accounts/4", "/accounts/17"];
    /// # let lock = zookeeper_recipes::InterProcessMultiLock::from_paths(&client, accounts)?;
    /// use std::time::Duration;
    ///
    /// let guard = lock.blocking_acquire(Duration::from_secs(10))?;
    /// guard.blocking_release()?; // after the work
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn blocking_acquire(&self, timeout: Duration) -> Result<MultiLockGuard, AcquireError> {
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
    ) -> Result<MultiLockGuard, AcquireError> {
        block_on(self.acquire_with_lease(wait, lease))
    }

    /// Acquires like [`lock`](Self::lock), and blocks the thread until it returns.
    ///
    /// A call that has to wait for a guard of the same thread never returns.
    ///
    /// # Errors
    /// See [`lock`](Self::lock).
    #[track_caller]
    pub fn blocking_lock(&self) -> Result<MultiLockGuard, AcquireError> {
        block_on(self.lock())
    }

    /// Acquires like [`try_lock`](Self::try_lock), and blocks the thread until the servers have
    /// answered.
    ///
    /// # Errors
    /// See [`try_lock`](Self::try_lock).
    #[track_caller]
    pub fn blocking_try_lock(&self) -> Result<MultiLockGuard, TryLockError> {
        block_on(self.try_lock())
    }

    fn client(&self) -> &Core {
        self.members.client()
    }

    // Each member is requested as its own kind.
    async fn granted(self, mut ask: Ask) -> Result<MultiLockGuard, AcquireError> {
        let first = self.members.first();
        lock::check_lease(&ask, first.path.user())?;
        let _waiting = multi_attempt::watch_self_wait(&self.members, &ask);
        let call = ObservedCall::begin_multi(first, &mut ask);
        let attempt = |ask| multi_attempt::acquire(self.members.clone(), ask);
        let result = lock::until_received(ask, attempt, Acquired::as_slice).await;
        Ok(MultiLockGuard::new(
            call.ended(first, result, Acquired::as_slice)?,
            self.as_given,
        ))
    }

    async fn granted_at_once(self, mut ask: Ask) -> Result<MultiLockGuard, TryLockError> {
        let first = self.members.first();
        let call = ObservedCall::begin_multi(first, &mut ask);
        let granted = lock::check_held(
            multi_attempt::acquire(self.members.clone(), ask).await,
            Acquired::as_slice,
        );
        Ok(MultiLockGuard::new(
            call.ended(first, granted, Acquired::as_slice)?,
            self.as_given,
        ))
    }

    fn given(&self) -> impl Iterator<Item = &Member> {
        self.as_given
            .iter()
            .filter_map(|index| self.members.in_order().get(*index))
    }

    /// Reads the clock, and returns `true` if a guard of this client, from this multi-lock or from
    /// a lock of the member's type, holds each member.
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
        self.given()
            .all(|member| member.path_lock.is_held(member.kind))
    }

    /// Returns the paths of the members, as given and in that order.
    #[must_use]
    pub fn paths(&self) -> Vec<&str> {
        self.given()
            .map(|member| member.path_lock.path.user())
            .collect()
    }
}

fn member(lock: &impl InterProcessLock) -> Member {
    let lock = lock.any(Inside(()));
    Member {
        path_lock: Arc::clone(lock.path_lock),
        kind: lock.mode.kind(),
    }
}

impl fmt::Debug for InterProcessMultiLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "InterProcessMultiLock({})",
            Quoted(&self.paths().join(", "))
        )
    }
}

/// A guard that holds all members of a multi-lock until it is dropped or released.
///
/// Returned by [`InterProcessMultiLock`]. The guard combines a [`LockGuard`](crate::LockGuard) for
/// each member: it is lost as soon as one member is, and a [transaction](Self::transaction) commits
/// only while all members are held. The transaction checks the node of each member, and nodes that
/// it creates have the ACL of the member with the first path in order. Dropping the guard releases
/// all members in the background, the last first; [`release`](Self::release) sends the requests
/// together, and returns the first error.
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
/// use std::time::Duration;
///
/// let guard = both.acquire(Duration::from_secs(10)).await?;
/// let transfer = guard.transaction();
/// transfer.set_data("/balances/4", "70", 0).set_data("/balances/17", "130", 0).commit().await?;
/// guard.release().await?; // or drop it
/// # assert_eq!(server.node("/balances/17").unwrap().data, b"130");
/// # Ok(())
/// # }
/// ```
#[must_use = "dropping the guard releases the locks at once: bind it to `_guard`, not to `_`"]
#[clippy::has_significant_drop]
pub struct MultiLockGuard {
    /// The guards in the order in which they were acquired.
    guard_set: GuardSet,
    /// The index of each member, in the given order, among `guard_set`.
    as_given: Arc<[usize]>,
}

impl MultiLockGuard {
    /// Returns the worst state of the members: [`Lost`](crate::LockState::Lost) once a member is
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

    /// Reads the clock, and returns `true` unless a member is lost. See
    /// [`LockGuard::is_held`](crate::LockGuard::is_held).
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.shares().lost_now().is_none()
    }

    /// Sets the end of the lease of all members to `lease` from now, sooner or later than before.
    /// See [`LockGuard::set_lease`](crate::LockGuard::set_lease).
    ///
    /// # Errors
    /// [`Lost`] if a member is lost: a lease that has ended cannot be extended.
    #[doc(alias = "updateLeaseTime")]
    pub fn set_lease(&self, lease: Duration) -> Result<(), Lost> {
        self.shares().set_lease(lease)
    }

    /// Returns how much is left of the lease that ends first; `None` if there is no lease. See
    /// [`LockGuard::lease_remaining`](crate::LockGuard::lease_remaining).
    #[must_use]
    #[doc(alias = "remainTimeToLive")]
    pub fn lease_remaining(&self) -> Option<Duration> {
        self.shares().lease_remaining()
    }

    /// Returns a future that resolves when a member is lost, with the reason. See
    /// [`LockGuard::lost`](crate::LockGuard::lost).
    ///
    /// # Cancel safety
    /// Cancel safe: this only waits. If a member is lost in between, the next future resolves at
    /// once.
    pub fn lost(&self) -> impl Future<Output = Lost> + Send + 'static + use<> {
        self.shares().lost()
    }

    /// Runs `work` while the guard holds all members, and returns its output. See
    /// [`LockGuard::while_held`](crate::LockGuard#method.while_held).
    ///
    /// # Errors
    /// [`Lost`] if a member is lost; `work` is dropped.
    ///
    /// # Cancel safety
    /// If the future is dropped, `work` is dropped with it. The guard is kept.
    pub async fn while_held<T>(&self, work: impl Future<Output = T>) -> Result<T, Lost> {
        self.shares().while_held(work).await
    }

    /// Runs `work` while the guard holds all members, and returns its output with the guard. See
    /// [`LockGuard::while_held_owned`](crate::LockGuard::while_held_owned).
    ///
    /// # Errors
    /// [`Lost`] if a member is lost. The guard is then dropped, after `work`.
    ///
    /// # Cancel safety
    /// If the future is dropped, or its task aborted, `work` is dropped, and then the guard, which
    /// releases the members in the background.
    #[doc(alias = "spawn")]
    pub fn while_held_owned<T>(
        self,
        work: impl Future<Output = T>,
    ) -> impl Future<Output = Result<(T, Self), Lost>> {
        // The tuple is dropped in this order, whether the future was polled or not. The work relies
        // on the guard, so the work ends first.
        let owned = (work, self);
        async move {
            let (work, guard) = owned;
            let output = guard.while_held(work).await?;
            Ok((output, guard))
        }
    }

    /// Returns an empty transaction, which commits only while the guard holds all members. See
    /// [`Transaction`].
    pub fn transaction(&self) -> Transaction<'_> {
        self.shares().transaction()
    }

    /// Reads a node, and the version of its data, for a [transaction](Self::transaction); returns
    /// `None` if there is no such node.
    ///
    /// The answer is not older than the grant: it includes every write that was committed before
    /// the release of each member's previous holder. See
    /// [`LockGuard::get_data`](crate::LockGuard::get_data).
    ///
    /// # Errors
    /// - [`TransactionError::Lost`] after the loss of a member, even during the read.
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

    /// Returns a future that resolves when revocation of a member is requested. See
    /// [`LockGuard::revoked`](crate::LockGuard::revoked).
    ///
    /// Once polled, the future watches the node of each member, which costs one request for each.
    ///
    /// # Cancel safety
    /// If the future is dropped, the watch ends. The next one resolves for the same request.
    #[doc(alias = "makeRevocable")]
    pub fn revoked(&self) -> impl Future<Output = ()> + Send + 'static + use<> {
        self.shares().revoked()
    }

    /// Releases all members, and waits until a server has confirmed the deletion of their nodes.
    /// See [`LockGuard::release`](crate::LockGuard::release).
    ///
    /// The requests are sent together. While other guards [share](Self::reenter) the holds, this
    /// call only gives up the share of this guard, without a request.
    ///
    /// # Errors
    /// The first of the errors of [`LockGuard::release`](crate::LockGuard::release):
    /// [`ReleaseError::Lost`] if a member was lost before the call, or if the session ended before
    /// a server confirmed the release.
    ///
    /// # Cancel safety
    /// The call itself releases the members. If the future is dropped, only the outcome is lost.
    #[doc(alias = "unlock")]
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

impl IsGuard for MultiLockGuard {
    fn shares(&self, _: Inside) -> Shares<'_> {
        Self::shares(self)
    }

    fn release_boxed(self: Box<Self>, _: Inside) -> BoxFuture<'static, Result<(), ReleaseError>> {
        Box::pin(Self::release(*self))
    }
}

impl Guard for MultiLockGuard {}

impl MultiLockGuard {
    fn new(holds: Acquired, as_given: Arc<[usize]>) -> Self {
        Self {
            guard_set: GuardSet::new(holds.into_vec()),
            as_given,
        }
    }

    fn shares(&self) -> Shares<'_> {
        self.guard_set.shares()
    }

    fn into_holds(self) -> Vec<Arc<Hold>> {
        self.guard_set.into_vec()
    }

    fn given(&self) -> impl Iterator<Item = &Arc<Hold>> {
        self.as_given
            .iter()
            .filter_map(|index| self.shares().0.get(*index))
    }

    /// Returns another guard of the same holds; the members are released with the last of these
    /// guards. See [`LockGuard::reenter`](crate::LockGuard::reenter).
    ///
    /// # Errors
    /// [`Lost`] if a member is lost.
    pub fn reenter(&self) -> Result<Self, Lost> {
        Ok(Self {
            guard_set: self.guard_set.reenter()?,
            as_given: Arc::clone(&self.as_given),
        })
    }

    /// Returns the number of guards that share the holds, which is the same for all members.
    #[must_use]
    #[doc(alias = "getHoldCount")]
    pub fn hold_count(&self) -> usize {
        self.shares().0.first().map_or(0, Arc::strong_count)
    }

    /// Returns the fencing tokens of the members, in the order in which the members were given.
    ///
    /// Each token is for the resource that its member protects; tokens of different members have no
    /// order.
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
        let token = |hold: &Arc<Hold>| -> Token {
            let (zxid, counter) = hold.token;
            match hold.kind() {
                Kind::Shared => ReadToken::from_parts(zxid, counter).into(),
                Kind::Exclusive => FencingToken::from_parts(zxid, counter).into(),
            }
        };
        self.given().map(token).collect()
    }

    /// Returns the paths of the lock nodes, without the client's namespace, in the order in which
    /// the members were given.
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
        self.given().map(|hold| hold.node_path()).collect()
    }

    /// Returns the paths of the members, as given and in that order.
    #[must_use]
    pub fn paths(&self) -> Vec<&str> {
        self.given().map(|hold| hold.directory().user()).collect()
    }
}

impl fmt::Debug for MultiLockGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MultiLockGuard({})", Quoted(&self.paths().join(", ")))
    }
}
