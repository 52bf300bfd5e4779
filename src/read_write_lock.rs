//! The read-write lock.

use std::sync::Arc;

use crate::client::Client;
use crate::engine::convert;
use crate::engine::hold::Hold;
use crate::engine::lock_options::{Asked, Recipe};
use crate::engine::path_lock::PathLock;
use crate::error::{AcquireError, BuildError, ConversionError, ConversionFailure, Lost, LostReason};
use crate::guard::{LockGuard, ReadGuard, WriteGuard};
use crate::lock::{lock_builder, lock_methods, participants};
use crate::mode::{Mode, Read, Write};
use crate::path::NodePath;
use crate::protocol::node_name::Kind;

/// Readers together, writers alone, over all processes that use the same path, in order of arrival: neither side starves.
///
/// It is Curator's class of that name, in Curator's znode dialect, and Java (Curator) processes contend on the same path.
/// A reader waits for the last writer before it, and watches that node alone; a writer waits for whoever is before it. A
/// reader with only readers before it watches nothing. A free lock of either kind costs 2 requests.
///
/// The two sides are locks like any other: [`read_lock`](Self::read_lock) and [`write_lock`](Self::write_lock), each an
/// [`InterProcessLock`](crate::InterProcessLock). A writer can [become a reader](WriteGuard::downgrade) without letting
/// anybody in between, and a reader that is alone [the writer](ReadGuard::try_upgrade).
///
/// A read-write lock needs a path of its own: where its nodes and a mutex's meet, both refuse with
/// [`AcquireError::MixedRecipes`] (Curator lets both in).
///
/// # Not re-entrant
/// A task that holds the read lock and waits for the write lock of the same path waits for itself, until its timeout; the
/// error says where this process holds it. What a guard can do by itself never waits for others:
/// [`try_upgrade`](ReadGuard::try_upgrade) answers at once, [`WriteGuard::read`] shares the hold, and where a conversion
/// would have to wait for another share of the same hold it is [`ConversionFailure::WouldDeadlock`].
///
/// # Curator before 5.5
/// Older Curators downgrade in two steps, and let a queued writer in between (CURATOR-621): ours too, because nobody
/// can tell their downgraded reader from one that waits. Our own [`downgrade`](WriteGuard::downgrade) is safe with all of
/// them.
///
/// # Examples
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zookeeper_test_server::Server::start()?;
/// # tokio::runtime::Runtime::new()?.block_on(async {
/// # let servers = server.connect_string();
/// use std::time::Duration;
/// use zookeeper_recipes::{Client, InterProcessReadWriteLock};
///
/// let client = Client::connect(&servers).await?;
/// let lock = InterProcessReadWriteLock::new(&client, "/cache/prices")?;
///
/// let writer = lock.write_lock().acquire(Duration::from_secs(1)).await?;
/// // Write the row and drop the cached value: nobody reads between the two.
/// let reader = writer.downgrade().await?;
/// // Fill the cache with what was written: other readers come in, no writer does.
/// reader.release().await?;
/// # client.close().await?;
/// # Ok(())
/// # })
/// # }
/// ```
#[derive(Clone)]
pub struct InterProcessReadWriteLock {
    path_lock: Arc<PathLock>,
}

impl InterProcessReadWriteLock {
    /// The read-write lock at `path`, with the options of the handles that this client has for it already, or the
    /// defaults.
    ///
    /// # Errors
    /// [`BuildError::InvalidPath`], [`BuildError::MixedRecipes`]. No I/O is done.
    pub fn new(client: &Client, path: &str) -> Result<Self, BuildError> {
        Self::builder(client, path).build()
    }

    /// The same with options.
    pub fn builder(client: &Client, path: &str) -> InterProcessReadWriteLockBuilder {
        InterProcessReadWriteLockBuilder {
            client: client.clone(),
            path: path.to_owned(),
            asked: Asked::default(),
        }
    }

    /// The lock that readers share.
    #[must_use]
    #[doc(alias = "readLock")]
    pub fn read_lock(&self) -> InterProcessReadLock {
        InterProcessReadLock { path_lock: Arc::clone(&self.path_lock) }
    }

    /// The lock that one writer has alone.
    #[must_use]
    #[doc(alias = "writeLock")]
    pub fn write_lock(&self) -> InterProcessWriteLock {
        InterProcessWriteLock { path_lock: Arc::clone(&self.path_lock) }
    }

    /// The paths of the nodes of all readers and writers, of all processes, in order.
    ///
    /// # Errors
    /// Those of [`InterProcessReadLock::participants`].
    ///
    /// # Cancel safety
    /// It only reads.
    pub async fn participants(&self) -> Result<Vec<NodePath>, AcquireError> {
        participants(Arc::clone(&self.path_lock), None).await
    }

    /// The lock's path, as it was given.
    #[must_use]
    pub fn path(&self) -> &str {
        self.path_lock.path().user()
    }
}

lock_builder! {
    /// Options of an [`InterProcessReadWriteLock`].
    InterProcessReadWriteLockBuilder, InterProcessReadWriteLock, Recipe::ReadWriteLock
}

impl InterProcessReadWriteLockBuilder {
    /// How many contenders of this client have a node below the path at most; further ones wait in memory, in order,
    /// readers and writers alike. A reader gives its place up when it is let in, so this does not bound how many readers
    /// are inside. From 1 to 10,000, by default 64.
    pub fn max_znodes(mut self, nodes: usize) -> Self {
        self.asked.max_nodes = Some(nodes);
        self
    }
}

/// The side of an [`InterProcessReadWriteLock`] that readers share.
#[derive(Clone)]
pub struct InterProcessReadLock {
    path_lock: Arc<PathLock>,
}

lock_methods!(InterProcessReadLock, ReadGuard, Kind::Shared, Some(Kind::Shared));

/// The side of an [`InterProcessReadWriteLock`] that one writer has alone.
#[derive(Clone)]
pub struct InterProcessWriteLock {
    path_lock: Arc<PathLock>,
}

lock_methods!(InterProcessWriteLock, WriteGuard, Kind::Exclusive, Some(Kind::Exclusive));

impl LockGuard<Read> {
    /// Becomes the writer if no other reader can be inside, without waiting for anybody: later readers queue behind
    /// it, and so do the writers that were waiting. It is a grant of its own, with a greater [`FencingToken`](crate::FencingToken).
    ///
    /// Of two readers that try at the same time neither succeeds as long as both are inside: one has to give its lock
    /// back.
    ///
    /// It costs 3 requests, and 1 more where another contender waits.
    ///
    /// # Errors
    /// [`ConversionError`] with the guard, as it was: [`Contended`](ConversionFailure::Contended) when another reader
    /// may be inside, [`WouldDeadlock`](ConversionFailure::WouldDeadlock) when another guard shares the hold. With
    /// [`Lost`](ConversionFailure::Lost) the guard is lost too, also because a node of the conversion could not be deleted
    /// ([`LostReason::NotConverted`]). The others are those of [`ConversionFailure`].
    ///
    /// # Cancel safety
    /// Dropping the future gives the lock back. It waits for the servers' answers: with none in reach until the session
    /// is over.
    ///
    /// ```no_run
    /// # async fn example(guard: zookeeper_recipes::ReadGuard) -> Result<(), Box<dyn std::error::Error>> {
    /// use zookeeper_recipes::ConversionFailure;
    ///
    /// match guard.try_upgrade().await {
    ///     Ok(writer) => writer.release().await?, // after having written, with the writer's token
    ///     Err(error) if matches!(error.reason(), ConversionFailure::Contended) => {
    ///         // Give the read lock back, and ask for the write lock: what was read may have changed by then.
    ///         error.into_guard().release().await?;
    ///     }
    ///     Err(error) => return Err(error.into()),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn try_upgrade(self) -> Result<WriteGuard, ConversionError<Self>> {
        convert(self, Kind::Exclusive, convert::upgrade).await
    }
}

impl LockGuard<Write> {
    /// A read guard of the same hold, for code that wants one. The lock stays a write lock until the last of the guards
    /// is gone: to let other readers in, [`downgrade`](Self::downgrade).
    ///
    /// # Errors
    /// [`Lost`] if the lock is lost.
    pub fn read(&self) -> Result<ReadGuard, Lost> {
        self.share(Read)
    }

    /// Becomes a reader: other readers come in, and no writer in between. One transaction. The numbers of the token stay
    /// what they were.
    ///
    /// # Errors
    /// [`ConversionError`] with the guard, as it was: [`WouldDeadlock`](ConversionFailure::WouldDeadlock) when another
    /// guard shares the hold. With [`Lost`](ConversionFailure::Lost) the guard is lost too. The others are those of
    /// [`ConversionFailure`].
    ///
    /// # Cancel safety
    /// Dropping the future gives the lock back. It waits for the server's answer: with none in reach until the session
    /// is over.
    pub async fn downgrade(self) -> Result<ReadGuard, ConversionError<Self>> {
        convert(self, Kind::Shared, convert::downgrade).await
    }
}

/// Converts the hold of a guard that nobody shares, where the session runs.
async fn convert<M, N, W>(
    guard: LockGuard<M>,
    kind: Kind,
    work: impl FnOnce(Hold) -> W,
) -> Result<LockGuard<N>, ConversionError<LockGuard<M>>>
where
    M: Mode + Default,
    N: Mode + Default,
    W: Future<Output = Option<convert::ConversionOutcome>>,
{
    let path = guard.path().to_owned();
    let hold = match guard.into_hold() {
        Ok(hold) => hold,
        Err(guard) => return Err(ConversionError::new(guard, &path, ConversionFailure::WouldDeadlock)),
    };
    if hold.kind() == kind && hold.lost().is_none() {
        // A read guard of `WriteGuard::read`, and the last of its hold.
        return Ok(LockGuard::new(hold));
    }
    // A client that is over takes the task along, and with it the hold, which is over as well: its shadow answers for it.
    let shadow = hold.shadow();
    match work(hold).await {
        Some(Ok(hold)) => Ok(LockGuard::new(hold)),
        Some(Err((hold, reason))) => Err(ConversionError::new(LockGuard::new(hold), &path, reason)),
        None => {
            shadow.held().client_over();
            let reason = shadow.lost().unwrap_or(LostReason::Closed);
            let lost = Lost { path: path.as_str().into(), reason };
            Err(ConversionError::new(LockGuard::new(shadow), &path, lost.into()))
        }
    }
}

crate::shown::debug_as_path!(InterProcessReadWriteLock, InterProcessReadLock, InterProcessWriteLock);
