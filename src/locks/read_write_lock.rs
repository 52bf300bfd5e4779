//! The read-write lock.

use std::sync::Arc;
use std::time::Duration;

use crate::builder::{RecipeBuilder, lock_constructors};
use crate::engine::lock::lock_options::Recipe;
use crate::engine::lock::path_lock::PathLock;
use crate::engine::while_held::convert;
use crate::error::{ConversionError, Error, Lost, LostReason};
use crate::locks::guard::{LockGuard, ReadGuard, WriteGuard};
use crate::locks::lock::{lock_methods, participants, queue_methods};
use crate::locks::mode::{Read, Write};
use crate::protocol::hold::HoldEvent;
use crate::protocol::node_name::Kind;
use crate::protocol::room::HandOff;
use crate::values::path::NodePath;

/// A lock across processes that many readers share or one writer has alone.
///
/// Contenders are granted the lock in the order of their nodes, so neither side starves.
///
/// The lock works like Curator's class of this name, with the same node names, and Java (Curator)
/// processes can contend on the same path. A reader waits for the last writer before it, and
/// watches only that node; a writer waits for all contenders before it. A reader with only readers
/// before it watches nothing. Acquiring a free lock of either side takes 2 requests, or 1 after
/// three free grants in a row. The writers of one client share a node; its readers share one if
/// they wait together, or arrive shortly after the grant ([`hand_off`](RecipeBuilder::hand_off)).
/// So a task may be granted the lock before an earlier task of another process or of the other
/// side.
///
/// Both sides are locks like any other: [`read_lock`](Self::read_lock) and
/// [`write_lock`](Self::write_lock), each an [`InterProcessLock`](crate::InterProcessLock). A
/// writer can [become a reader](WriteGuard::downgrade) with no other writer in between. A reader
/// that wants to write releases the lock and acquires it to write; the
/// [cookbook](crate::cookbook#read-then-write) shows how.
///
/// A read-write lock needs its own path: if a mutex uses the same path, both fail with
/// [`ErrorKind::MixedRecipes`](crate::ErrorKind::MixedRecipes). (Curator would grant both.)
///
/// # Not re-entrant
/// A task that holds the read lock and acquires the write lock of the same path waits for itself:
/// until the timeout of the call, or forever without one. The timeout's error names the line that
/// acquired the lock. The methods of a guard do not wait for other holders:
/// [`WriteGuard::reenter_as_reader`] shares the hold, and a downgrade that would have to wait for
/// another guard of the same hold returns [`ConversionError::WouldDeadlock`].
///
/// # Curator before 5.5
/// Old versions downgrade in two steps, between which a queued writer may be granted the lock
/// (CURATOR-621). This writer may also be one of this crate, because a reader that was downgraded
/// in this way looks like a waiting reader. This crate's [`downgrade`](WriteGuard::downgrade) is
/// safe with all versions.
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
/// // Fill the cache with what was written: other readers come in, no writer does.
/// reader.release().await?;
/// # Ok(())
/// # }
/// ```
#[doc(alias = "RwLock")]
#[derive(Clone)]
pub struct InterProcessReadWriteLock {
    path_lock: Arc<PathLock>,
}

lock_constructors! {
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
    InterProcessReadWriteLock, Recipe::ReadWriteLock, "read-write lock", "/cache/prices"
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
        InterProcessReadLock {
            path_lock: Arc::clone(&self.path_lock),
        }
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
        InterProcessWriteLock {
            path_lock: Arc::clone(&self.path_lock),
        }
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

    /// Returns the path of the lock, as it was given.
    #[must_use]
    pub fn path(&self) -> &str {
        self.path_lock.path().user()
    }
}

queue_methods!(
    InterProcessReadWriteLock,
    r#"InterProcessReadWriteLock::new(&client, "/cache/prices")?"#,
    "lock.write_lock().lock().await?"
);

impl RecipeBuilder<InterProcessReadWriteLock> {
    /// Sets how many writers of this client may hold the lock in a row with one node, or how many
    /// readers that did not wait together may share a node, and for how long, before it is another
    /// process's turn; by default 1,000 tasks and 5 ms.
    ///
    /// The writers of a client wait in memory, in order, and a release passes their node to the
    /// writer that has waited longest, as in [a mutex](crate::RecipeBuilder::hand_off). Readers
    /// that wait together have one node. Readers of this client that arrive within `time` after its
    /// grant join them, and the node is deleted with the last of these readers. A waiting task
    /// costs no request. So another process waits for this client at most `time` plus the longest
    /// hold of one task. If `max` is 1, no writer hands the lock over, and no reader joins others
    /// that already hold the lock. Both bounds must be greater than zero, or building fails with
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
/// Returned by [`InterProcessReadWriteLock::read_lock`].
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
#[derive(Clone)]
pub struct InterProcessReadLock {
    path_lock: Arc<PathLock>,
}

lock_methods!(
    InterProcessReadLock,
    ReadGuard,
    Kind::Shared,
    r#"InterProcessReadWriteLock::new(&client, "/cache/prices")?.read_lock()"#
);

/// The side of an [`InterProcessReadWriteLock`] that one writer has alone.
///
/// Returned by [`InterProcessReadWriteLock::write_lock`].
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
#[derive(Clone)]
pub struct InterProcessWriteLock {
    path_lock: Arc<PathLock>,
}

lock_methods!(
    InterProcessWriteLock,
    WriteGuard,
    Kind::Exclusive,
    r#"InterProcessReadWriteLock::new(&client, "/cache/prices")?.write_lock()"#
);

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
    /// - See [`ConversionError`] for the others.
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
        let hold = match self.into_hold() {
            Ok(hold) => hold,
            Err(guard) => return Err(ConversionError::WouldDeadlock { guard, path }),
        };
        // If the client is closed, the task ends with it and drops the hold, which is then lost;
        // the hold that releases nothing is returned instead.
        let without_release = hold.without_release();
        match convert::downgrade(hold).await {
            Some(Ok(hold)) => Ok(LockGuard::new(hold)),
            Some(Err(error)) => Err(error.map(Self::new)),
            None => {
                without_release.held.handle_event(HoldEvent::ClientEnded);
                let reason = without_release.check_lost().unwrap_or(LostReason::Closed);
                let source = Lost {
                    path: path.into(),
                    reason,
                };
                Err(ConversionError::Lost {
                    guard: Self::new(without_release),
                    source,
                })
            }
        }
    }
}

crate::values::shown::debug_as_path!(
    InterProcessReadWriteLock,
    InterProcessReadLock,
    InterProcessWriteLock
);
