//! The mutex: `Lock` with the mode `Exclusive`, and the options of its builder. `lock` has the
//! methods.

use std::fmt::Display;
use std::time::Duration;

use crate::builder::RecipeBuilder;
use crate::builder::sealed::{Buildable, HasData, HasDialect};
use crate::client::Client;
use crate::engine::lock::lock_options::Recipe;
use crate::error::BuildError;
use crate::locks::lock::Lock;
use crate::locks::mode::Exclusive;
use crate::protocol::path_state::HandOff;
use crate::values::path::LockPath;

/// A mutual exclusion lock across processes.
///
/// All contenders for the same path in the same ensemble exclude one another. The mutex works like
/// Curator's class of this name, with the same node names: each client that wants the lock creates
/// one ephemeral sequential node below the path, the node with the lowest number holds the lock,
/// and a waiting client watches only the node before its own. Acquiring a free lock takes two
/// requests, a create and a list; once three grants in a row have found the lock free, the list is
/// left out. Releasing it takes one request, and wakes one waiter. Java processes (Curator) can
/// contend on the same path, and so can Python processes (kazoo) if this lock is built with their
/// [dialect](RecipeBuilder::dialect). Go processes (go-zookeeper) use the same node names, but no
/// test runs them.
///
/// An `InterProcessMutex` is a handle: it is cheap to clone, and does no I/O until it is used. All
/// handles of one client for one path share one node on the servers: the tasks wait in memory, are
/// served in order, and hand the lock over to each other, within the bounds of
/// [`hand_off`](RecipeBuilder::hand_off). An [`InterProcessFairLock`](crate::InterProcessFairLock)
/// has a node for each waiter, and keeps the order of arrival across processes.
///
/// The methods of a mutex are those of [`Lock`](crate::Lock).
///
/// Leader election works in the same way: a [`LeaderSelector`](crate::LeaderSelector) is a
/// participant that works while it holds such a lock.
///
/// # Not re-entrant
/// A task that holds the lock and acquires it again waits for itself. Without a timeout, that call
/// never returns; with one, its error says which line acquired the lock, and for how long the lock
/// has been held. A lock belongs to its guard, not to a thread or a task, and any task can release
/// it. [`LockGuard::reenter`](crate::LockGuard::reenter) returns another guard of the same hold.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zookeeper_test_server::Server::start()?;
/// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
/// use std::time::Duration;
/// use zookeeper_recipes::Acquisition::Acquired;
/// use zookeeper_recipes::{InterProcessMutex, OrBusy};
///
/// let mutex = InterProcessMutex::new(&client, "/inventory/sku-42")?;
///
/// if let Acquired(guard) = mutex.acquire(Duration::from_secs(2)).await.or_busy()? {
///     // Read the stock, decide, write: no other process does so now.
///     let token = guard.fencing_token(); // for the database to compare
///     guard.release().await?;
/// #   assert!(token.zxid() > 0);
/// }
/// # Ok(())
/// # }
/// ```
///
/// If each key has a lock, you can create a handle for each call, because handles are cheap. But a
/// client caches state for each path (its options, whether the next grant needs a list), and drops
/// this state with the last handle or guard of the path. So for a path that you use repeatedly,
/// keep a handle instead.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zookeeper_test_server::Server::start()?;
/// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
/// use zookeeper_recipes::{Client, InterProcessMutex};
///
/// async fn sell(client: &Client, sku: u64) -> Result<(), Box<dyn std::error::Error>> {
///     let guard = InterProcessMutex::new(client, &format!("/inventory/{sku}"))?.lock().await?;
///     // Read the stock, decide, write.
///     Ok(guard.release().await?)
/// }
/// sell(&client, 42).await?;
/// # Ok(())
/// # }
/// ```
#[doc(alias = "Mutex")]
pub type InterProcessMutex = Lock<Exclusive>;

impl Buildable for InterProcessMutex {
    fn built(builder: RecipeBuilder<Self>) -> Result<Self, BuildError> {
        Ok(Self::of(builder.path_lock(Recipe::Mutex)?))
    }
}

impl HasData for InterProcessMutex {}

impl HasDialect for InterProcessMutex {}

impl InterProcessMutex {
    /// Creates a handle of the mutex at `path`, without any I/O.
    ///
    /// The handle has the options of this client's existing handles for the path, or the defaults.
    ///
    /// # Errors
    /// - [`BuildError::InvalidPath`] if ZooKeeper would refuse the path, or it is `/`, below
    ///   `/zookeeper`, or longer than 16 KiB with the namespace.
    /// - [`BuildError::MixedRecipes`] if this client uses the path for a recipe with another kind
    ///   of queue, such as a read-write lock. The path is in use while there is a live handle or
    ///   guard, or a call whose nodes are still being deleted.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// use zookeeper_recipes::InterProcessMutex;
    ///
    /// let lock = InterProcessMutex::new(&client, "/inventory/sku-42")?;
    /// assert_eq!(lock.path(), "/inventory/sku-42");
    /// assert!(InterProcessMutex::new(&client, "no/slash").is_err());
    /// # Ok(())
    /// # }
    /// ```
    pub fn new(client: &Client, path: impl AsRef<str>) -> Result<Self, BuildError> {
        Self::builder(client, path).build()
    }

    /// Creates a handle of the mutex of `key` below `prefix`, without any I/O.
    ///
    /// The path is the prefix, a slash, and the key as [`LockPath::segment`] escapes it: keys may
    /// contain slashes, or characters that ZooKeeper refuses, and different keys have different
    /// locks.
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
    /// use zookeeper_recipes::InterProcessMutex;
    ///
    /// let lock = InterProcessMutex::keyed(&client, "/stock", "shoes/42")?;
    /// assert_eq!(lock.path(), "/stock/shoes%2F42");
    /// # Ok(())
    /// # }
    /// ```
    pub fn keyed(
        client: &Client,
        prefix: impl AsRef<str>,
        key: impl Display,
    ) -> Result<Self, BuildError> {
        Self::new(client, LockPath::keyed(prefix.as_ref(), &key))
    }

    /// Returns a builder of the mutex at `path`, for options other than the defaults.
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
    /// use zookeeper_recipes::{Acl, Dialect, InterProcessMutex, ParentNodes};
    ///
    /// let lock = InterProcessMutex::builder(&client, "/inventory/sku-42")
    ///     .hand_off(100, Duration::from_millis(10))
    ///     .data("worker-7") // for people who look at the nodes
    ///     .acl([Acl::creator_all()]) // the client has credentials
    ///     .parents(ParentNodes::Persistent) // the directory stays when the queue is empty
    ///     .dialect(Dialect::Curator)
    ///     .build()?;
    /// # lock.lock().await?.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn builder(client: &Client, path: impl AsRef<str>) -> RecipeBuilder<Self> {
        RecipeBuilder::new(client, path.as_ref())
    }
}

impl RecipeBuilder<InterProcessMutex> {
    /// Sets how many tasks of this client may hold the lock in a row, and for how long, before
    /// another process has a turn. The default is 1,000 tasks and 5 ms.
    ///
    /// The tasks of a client share one node in the queue. A waiting task costs less than 2 KiB of
    /// memory and no request. A release passes the node to the task that has waited longest,
    /// without a request; each holder has a separate [fencing
    /// token](crate::LockGuard::fencing_token). When a bound is reached, the node is deleted, and
    /// the next task queues with a new node behind all others, so another process waits for this
    /// client at most `time` plus the longest hold of one task. If `max` is 1, no task hands the
    /// lock over, and each holder has a separate node. Both bounds must be greater than zero;
    /// otherwise `build` fails with
    /// [`BuildError::InvalidOption`](crate::BuildError::InvalidOption).
    ///
    /// A release does not hand the node over, but deletes it, if the lock is lost or
    /// [`Suspended`](crate::LockState::Suspended), if the client has noticed a [request to
    /// revoke](crate::LockGuard::revoked) the lock, or if the outcome of a
    /// [transaction](crate::LockGuard::transaction) is unknown. Fair locks and multi-locks of this
    /// client at the same path have separate nodes.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// use std::time::Duration;
    /// use zookeeper_recipes::InterProcessMutex;
    ///
    /// let item = InterProcessMutex::builder(&client, "/inventory/sku-42")
    ///     .hand_off(1_000, Duration::from_millis(20)) // others can wait
    ///     .build()?;
    /// let mut sales = tokio::task::JoinSet::new();
    /// for _ in 0..100 {
    ///     let item = item.clone();
    ///     sales.spawn(async move {
    ///         let guard = item.acquire(Duration::from_secs(5)).await?;
    ///         // Read the stock, decide, write.
    ///         guard.release().await?;
    ///         Ok::<_, Box<dyn std::error::Error + Send + Sync>>(())
    ///     });
    /// }
    /// for sale in sales.join_all().await {
    ///     assert!(sale.is_ok());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "hand-over")]
    pub fn hand_off(mut self, max: u32, time: Duration) -> Self {
        self.asked.hand_off = Some(HandOff { max, time });
        self
    }
}
