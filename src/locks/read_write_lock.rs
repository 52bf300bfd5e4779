//! The read-write lock (docs/protocol.md#read-write).
//!
//! Its two sides are `Lock`s that share one path lock, so that readers and writers of a client have
//! one queue. A writer's guard can become a reader's, by a downgrade. The reverse is not offered,
//! because two readers that both want to write would wait for each other.

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use crate::builder::RecipeBuilder;
use crate::builder::sealed::{Buildable, HasData, HasDialect};
use crate::client::Client;
use crate::engine::lock::lock_options::Recipe;
use crate::engine::lock::path_lock::PathLock;
use crate::engine::while_held::convert;
use crate::engine::who;
use crate::error::{BuildError, ConversionError, Error, Lost};
use crate::locks::guard::{LockGuard, ReadGuard};
use crate::locks::lock::{Lock, break_lock, look, participants};
use crate::locks::mode::{Read, Write};
use crate::protocol::path_state::HandOff;
use crate::values::contender::Contender;
use crate::values::path::{LockPath, NodePath};

/// A lock across processes that many readers share or one writer has alone.
///
/// Contenders are granted the lock in the order of their nodes, so neither side starves.
///
/// The lock works like Curator's class of this name, with the same node names, and Java (Curator)
/// processes can contend on the same path. A reader waits for the last writer before it, and
/// watches only that node; a writer waits for all contenders before it. A reader with only readers
/// before it watches nothing. Acquiring a free lock of either side takes 2 requests, or 1 once
/// three grants in a row have found the lock free. The writers of one client share a node; its
/// readers share one if they wait together, or arrive shortly after the grant
/// ([`hand_off`](RecipeBuilder::hand_off)). So a task may be granted the lock before an earlier
/// task of another process or of the other side.
///
/// Both sides are locks like any other: [`read_lock`](Self::read_lock) and
/// [`write_lock`](Self::write_lock), each an [`InterProcessLock`](crate::InterProcessLock). A
/// writer can [become a reader](crate::WriteGuard::downgrade) with no other writer in between. A
/// reader that wants to write releases the lock and acquires it to write; the
/// [cookbook](crate::cookbook#read-then-write) shows how.
///
/// A read-write lock needs its own path: if a mutex uses the same path, both fail with
/// [`ErrorKind::MixedRecipes`](crate::ErrorKind::MixedRecipes). (Curator would grant both.)
///
/// # Not re-entrant
/// A task that holds the read lock and acquires the write lock of the same path waits for itself
/// until the timeout of the call; without a timeout, the call never returns. The timeout's error
/// names the line that acquired the lock. The methods of a guard do not wait for other holders:
/// [`reenter_as_reader`](crate::WriteGuard::reenter_as_reader) shares the hold, and a downgrade
/// that would have to wait for another guard of the same hold returns
/// [`ConversionError::WouldDeadlock`].
///
/// # Curator before 5.5
/// Old versions downgrade in two steps, between which a queued writer may be granted the lock
/// (CURATOR-621). This writer may also be one of this crate, because a reader that was downgraded
/// in this way looks like a waiting reader. This crate's
/// [`downgrade`](crate::WriteGuard::downgrade) is safe with all versions.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zookeeper_test_server::Server::start()?;
/// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
/// use std::time::Duration;
/// use zookeeper_recipes::InterProcessReadWriteLock;
///
/// let lock = InterProcessReadWriteLock::new(&client, "/cache/prices")?;
///
/// let writer = lock.write_lock().acquire(Duration::from_secs(1)).await?;
/// // Write the row and drop the cached value: no process reads between the two.
/// let reader = writer.downgrade().await?;
/// // Fill the cache with the written row: other readers may hold the lock, no writer can.
/// reader.release().await?;
/// # Ok(())
/// # }
/// ```
#[doc(alias = "RwLock")]
#[derive(Clone)]
pub struct InterProcessReadWriteLock {
    path_lock: Arc<PathLock>,
}

impl Buildable for InterProcessReadWriteLock {
    fn built(builder: RecipeBuilder<Self>) -> Result<Self, BuildError> {
        Ok(Self {
            path_lock: builder.path_lock(Recipe::ReadWriteLock)?,
        })
    }
}

impl HasData for InterProcessReadWriteLock {}

impl HasDialect for InterProcessReadWriteLock {}

impl InterProcessReadWriteLock {
    /// Creates a handle of the read-write lock at `path`, without any I/O.
    ///
    /// The handle has the options of this client's existing handles for the path, or the defaults.
    ///
    /// # Errors
    /// - [`BuildError::InvalidPath`] if ZooKeeper would refuse the path, or it is `/`, below
    ///   `/zookeeper`, or longer than 16 KiB with the namespace.
    /// - [`BuildError::MixedRecipes`] if this client uses the path for a recipe with another kind
    ///   of queue, such as a mutex. It does so while there is a live handle or guard, or a call
    ///   whose nodes are still being deleted.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// use zookeeper_recipes::InterProcessReadWriteLock;
    ///
    /// let lock = InterProcessReadWriteLock::new(&client, "/cache/prices")?;
    /// assert_eq!(lock.path(), "/cache/prices");
    /// assert!(InterProcessReadWriteLock::new(&client, "no/slash").is_err());
    /// # Ok(())
    /// # }
    /// ```
    pub fn new(client: &Client, path: impl AsRef<str>) -> Result<Self, BuildError> {
        Self::builder(client, path).build()
    }

    /// Creates a handle of the read-write lock of `key` below `prefix`, without any I/O.
    ///
    /// The path is the prefix, a slash, and the key as [`LockPath::segment`] escapes it: keys with
    /// a slash, or with characters that ZooKeeper refuses, are possible, and different keys have
    /// different locks.
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
    /// use zookeeper_recipes::InterProcessReadWriteLock;
    ///
    /// let lock = InterProcessReadWriteLock::keyed(&client, "/stock", "shoes/42")?;
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

    /// Returns a builder of the read-write lock at `path`, for options other than the defaults.
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
    /// use zookeeper_recipes::{Acl, Dialect, InterProcessReadWriteLock, ParentNodes};
    ///
    /// let lock = InterProcessReadWriteLock::builder(&client, "/cache/prices")
    ///     .hand_off(100, Duration::from_millis(10)) // among the tasks of this process
    ///     .data("worker-7") // for people who look at the nodes
    ///     .acl([Acl::creator_all()]) // the client has credentials
    ///     .parents(ParentNodes::Persistent) // the directory stays when the queue is empty
    ///     .dialect(Dialect::Curator)
    ///     .build()?;
    /// # lock.read_lock().lock().await?.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn builder(client: &Client, path: impl AsRef<str>) -> RecipeBuilder<Self> {
        RecipeBuilder::new(client, path.as_ref())
    }
}

impl InterProcessReadWriteLock {
    /// Returns the lock that readers share.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// # let lock = zookeeper_recipes::InterProcessReadWriteLock::new(&client, "/cache/prices")?;
    /// let (one, two) = (lock.read_lock().lock().await?, lock.read_lock().lock().await?);
    /// assert!(lock.write_lock().try_lock().await.is_err());
    /// # drop((one, two));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    #[doc(alias = "readLock")]
    #[doc(alias = "read")]
    pub fn read_lock(&self) -> InterProcessReadLock {
        Lock::of(Arc::clone(&self.path_lock))
    }

    /// Returns the lock that one writer has alone.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// # let lock = zookeeper_recipes::InterProcessReadWriteLock::new(&client, "/cache/prices")?;
    /// let writer = lock.write_lock().lock().await?;
    /// assert!(lock.read_lock().try_lock().await.is_err());
    /// # drop(writer);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    #[doc(alias = "writeLock")]
    #[doc(alias = "write")]
    pub fn write_lock(&self) -> InterProcessWriteLock {
        Lock::of(Arc::clone(&self.path_lock))
    }

    /// Returns the paths of the nodes of all readers and writers, of all processes and in order.
    ///
    /// # Errors
    /// See [`InterProcessReadLock::participants`].
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
    /// # let lock = zookeeper_recipes::InterProcessReadWriteLock::new(&client, "/cache/prices")?;
    /// let reader = lock.read_lock().lock().await?;
    /// assert_eq!(lock.participants().await?, [reader.node()]);
    /// assert!(lock.write_lock().participants().await?.is_empty());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn participants(&self) -> Result<Vec<NodePath>, Error> {
        participants(&self.path_lock, None).await
    }

    /// Returns the contenders of both sides, of all processes and in order: the holders and the
    /// waiters.
    ///
    /// Both sides have one queue, so the calls on [`read_lock`](Self::read_lock) and
    /// [`write_lock`](Self::write_lock) return the same. See
    /// [`InterProcessMutex::queue`](crate::InterProcessMutex::queue) for what the contenders show
    /// and what this costs.
    ///
    /// # Errors
    /// See [`InterProcessMutex::queue`](crate::InterProcessMutex::queue).
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
    /// # let lock = zookeeper_recipes::InterProcessReadWriteLock::new(&client, "/cache/prices")?;
    /// let reader = lock.read_lock().lock().await?;
    /// for contender in lock.queue().await? {
    ///     println!("{contender}"); // web-3/4711/prices (read, queued 12s ago, session ..
    /// #   assert!(contender.is_mine());
    /// }
    /// reader.release().await?;
    /// assert!(lock.queue().await?.is_empty());
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "contenders")]
    pub async fn queue(&self) -> Result<Vec<Contender>, Error> {
        look(&self.path_lock, who::queue).await
    }

    /// Returns the contenders that hold the lock: none, one writer, or all readers before the first
    /// writer.
    ///
    /// They are the first contenders in the queue. The first may only be about to hold the lock. This
    /// reads only these nodes; otherwise it works like [`queue`](Self::queue).
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
    /// # let lock = zookeeper_recipes::InterProcessReadWriteLock::new(&client, "/cache/prices")?;
    /// let writer = lock.write_lock().lock().await?;
    /// let holders = lock.holders().await?;
    /// assert_eq!(holders[0].node(), &writer.node());
    /// # writer.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn holders(&self) -> Result<Vec<Contender>, Error> {
        look(&self.path_lock, who::holders).await
    }

    /// Returns `true` if the lock has a reader or a writer of any process: a holder or a waiter.
    ///
    /// This costs one list. The answer may be out of date when it arrives: use it for display, and
    /// [`try_lock`](InterProcessReadLock::try_lock) of a side to acquire the lock if it is free.
    ///
    /// # Errors
    /// See [`queue`](Self::queue).
    ///
    /// # Cancel safety
    /// Cancel safe: this only reads.
    pub async fn is_locked(&self) -> Result<bool, Error> {
        Ok(self.queue_len().await? > 0)
    }

    /// Returns how many readers and writers of all processes hold the lock or wait for it.
    ///
    /// This costs one list. Tasks of a client that share a node
    /// ([`hand_off`](crate::RecipeBuilder::hand_off)) count as one.
    ///
    /// # Errors
    /// See [`queue`](Self::queue).
    ///
    /// # Cancel safety
    /// Cancel safe: this only reads.
    pub async fn queue_len(&self) -> Result<usize, Error> {
        look(&self.path_lock, who::count).await
    }

    /// Deletes the node of a reader or a writer of any process, which then no longer holds the
    /// lock, or its place in the queue. Returns `false` if the node no longer existed.
    ///
    /// **The holder may still be at work**: see
    /// [`InterProcessMutex::break_lock`](crate::InterProcessMutex::break_lock). The readers of one
    /// client may share a node, and lose the lock together.
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
    /// # let lock = zookeeper_recipes::InterProcessReadWriteLock::new(&client, "/cache/prices")?;
    /// let writer = lock.write_lock().lock().await?;
    /// for holder in lock.holders().await? {
    ///     println!("breaks the lock of {holder}");
    ///     assert!(lock.break_lock(&holder).await?);
    /// }
    /// assert!(!lock.is_locked().await?);
    /// # writer.lost().await;
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "forceUnlock")]
    pub async fn break_lock(&self, contender: &Contender) -> Result<bool, Error> {
        break_lock(&self.path_lock, contender).await
    }

    /// Returns the path of the lock, as given.
    #[must_use]
    pub fn path(&self) -> &str {
        self.path_lock.path.user()
    }
}

impl RecipeBuilder<InterProcessReadWriteLock> {
    /// Sets how many writers of this client may hold the lock in a row with one node, or how many
    /// readers that did not wait together may share a node, and for how long. Then it is another
    /// process's turn. The default is 1,000 tasks and 5 ms.
    ///
    /// The writers of a client wait in memory, in order, and a release passes their node to the
    /// writer that has waited longest, as in [a mutex](crate::RecipeBuilder::hand_off). Readers
    /// that wait together have one node. Readers of this client that arrive within `time` after the
    /// grant share that node, which is deleted when the last reader leaves. A waiting task costs no
    /// request. So another process waits for this client at most `time` plus the longest hold of
    /// one task. If `max` is 1, no writer hands the lock over, and no reader joins others that
    /// already hold the lock. Both bounds must be greater than zero, or building fails with
    /// [`BuildError::InvalidOption`](crate::BuildError::InvalidOption).
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// use std::time::Duration;
    /// use zookeeper_recipes::InterProcessReadWriteLock;
    ///
    /// let prices = InterProcessReadWriteLock::builder(&client, "/cache/prices");
    /// let prices = prices.hand_off(100, Duration::from_secs(1)).build()?;
    /// let (one, two) = (prices.read_lock().lock().await?, prices.read_lock().lock().await?);
    /// assert_eq!(one.node(), two.node());
    /// # drop((one, two));
    /// # Ok(())
    /// # }
    /// ```
    pub fn hand_off(mut self, max: u32, time: Duration) -> Self {
        self.asked.hand_off = Some(HandOff { max, time });
        self
    }
}

/// The side of an [`InterProcessReadWriteLock`] that readers share.
///
/// Returned by [`InterProcessReadWriteLock::read_lock`]. Its methods are those of
/// [`Lock`](crate::Lock).
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zookeeper_test_server::Server::start()?;
/// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
/// use zookeeper_recipes::{InterProcessReadLock, InterProcessReadWriteLock};
///
/// let lock: InterProcessReadLock = InterProcessReadWriteLock::new(&client, "/cache/prices")?.read_lock();
/// let (one, two) = (lock.lock().await?, lock.lock().await?);
/// # drop((one, two));
/// # Ok(())
/// # }
/// ```
pub type InterProcessReadLock = Lock<Read>;

/// The side of an [`InterProcessReadWriteLock`] that one writer has alone.
///
/// Returned by [`InterProcessReadWriteLock::write_lock`]. Its methods are those of
/// [`Lock`](crate::Lock).
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zookeeper_test_server::Server::start()?;
/// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
/// use zookeeper_recipes::{InterProcessReadWriteLock, InterProcessWriteLock};
///
/// let lock: InterProcessWriteLock = InterProcessReadWriteLock::new(&client, "/cache/prices")?.write_lock();
/// let writer = lock.lock().await?;
/// assert!(lock.try_lock().await.is_err());
/// # drop(writer);
/// # Ok(())
/// # }
/// ```
pub type InterProcessWriteLock = Lock<Write>;

impl LockGuard<Write> {
    /// Returns a read guard of the same hold, for code that takes one.
    ///
    /// The lock stays a write lock until the last of the guards is dropped; call
    /// [`downgrade`](Self::downgrade) to admit other readers.
    ///
    /// # Errors
    /// [`Lost`] if the lock is lost.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// # let lock = zookeeper_recipes::InterProcessReadWriteLock::new(&client, "/cache/prices")?;
    /// use zookeeper_recipes::ReadGuard;
    ///
    /// fn price(_under: &ReadGuard) -> i64 {
    ///     42
    /// }
    ///
    /// let writer = lock.write_lock().lock().await?;
    /// assert_eq!(price(&writer.reenter_as_reader()?), 42);
    /// # Ok(())
    /// # }
    /// ```
    pub fn reenter_as_reader(&self) -> Result<ReadGuard, Lost> {
        self.share(Read)
    }

    /// Turns the write lock into a read lock in one transaction: other readers are admitted, and no
    /// other writer is granted the lock in between.
    ///
    /// The token of the read guard has the numbers of the writer's token.
    ///
    /// # Errors
    /// [`ConversionError`] with the guard, which still holds the write lock unless it is lost:
    /// - [`WouldDeadlock`](ConversionError::WouldDeadlock) if another guard shares the hold.
    /// - [`Lost`](ConversionError::Lost) if the lock is lost.
    /// - See [`ConversionError`] for the other variants.
    ///
    /// # Cancel safety
    /// If the future is dropped, the lock is released. The future waits for the server's reply, or,
    /// if no server can be reached, for the end of the session.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// # let lock = zookeeper_recipes::InterProcessReadWriteLock::new(&client, "/cache/prices")?;
    /// let writer = lock.write_lock().lock().await?;
    /// let token = writer.fencing_token();
    /// // Write, then let the other readers in.
    /// let reader = writer.downgrade().await?;
    /// assert_eq!(reader.fencing_token().zxid(), token.zxid());
    /// let other = lock.read_lock().try_lock().await?;
    /// # drop((reader, other));
    /// # Ok(())
    /// # }
    /// ```
    pub async fn downgrade(self) -> Result<ReadGuard, ConversionError<Self>> {
        let path = self.path().to_owned();
        match self.into_sole() {
            // The guard is the only one of the hold, so no other guard is a writer's while the node
            // becomes a reader's.
            Ok(hold) => match convert::downgrade(hold).await {
                Ok(hold) => Ok(LockGuard::of(hold)),
                Err(error) => Err(error.map(Self::of)),
            },
            // A wait for the other guards of the hold may be a wait for this task itself
            // (docs/protocol.md#would-deadlock).
            Err(guard) => Err(ConversionError::WouldDeadlock { guard, path }),
        }
    }
}

crate::values::shown::debug_as_path!(InterProcessReadWriteLock);
