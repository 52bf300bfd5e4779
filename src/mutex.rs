//! The mutex.

use std::panic::Location;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;

use crate::client::Client;
use crate::engine::driver;
use crate::engine::name::Family;
use crate::engine::room::{Budget, Denied, Room};
use crate::error::{AcquireError, BuildError, TryLockError};
use crate::guard::{LockGuard, after};
use crate::lock::InterProcessLock;
use crate::options::{Acl, Asked, Parents};
use crate::path::LockPath;

/// A mutual exclusion lock over all processes that use the same path, first come, first served.
///
/// It is Curator's class of that name, in Curator's znode dialect: each contender creates an ephemeral sequential
/// node below the path, the lowest number holds the lock, and each waiter watches the one node before its own. A
/// free lock costs 2 requests, which are sent together, and the release wakes exactly one waiter. Java (Curator) and Go
/// (go-zookeeper) processes contend on the same path.
///
/// The value is a handle: cheap to clone, no I/O until it is used. All handles of one client for one path share
/// one queue, of which at most [`max_znodes`](InterProcessMutexBuilder::max_znodes) contenders have a node at the
/// servers.
///
/// # Not re-entrant
/// A task that holds the lock and asks for it again waits for itself; with a timeout the error says since when and
/// where this process holds it. There is no thread or task identity: the guard is the hold, and it can be
/// released anywhere.
///
/// # Examples
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zookeeper_test_server::Server::start()?;
/// # tokio::runtime::Runtime::new()?.block_on(async {
/// # let servers = server.connect_string();
/// use std::time::Duration;
/// use zookeeper_recipes::{Client, InterProcessMutex, OptionalExt};
///
/// let client = Client::connect(&servers).await?;
/// let mutex = InterProcessMutex::new(&client, "/inventory/sku-42")?;
///
/// if let Some(guard) = mutex.acquire(Duration::from_millis(200)).await.optional()? {
///     // Look at the stock, decide, write: nobody else does so now.
///     let token = guard.fencing_token(); // for the database to compare
///     guard.release().await?;
/// #   assert!(token.zxid() > 0);
/// }
/// # client.close().await?;
/// # Ok(())
/// # })
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct InterProcessMutex {
    room: Arc<Room>,
}

impl InterProcessMutex {
    /// The mutex at `path`, with the options of the handles that this client has for it already, or the defaults.
    ///
    /// # Errors
    /// [`BuildError::InvalidPath`]. No I/O is done.
    pub fn new(client: &Client, path: &str) -> Result<Self, BuildError> {
        Self::builder(client, path).build()
    }

    /// The same with options.
    pub fn builder(client: &Client, path: &str) -> InterProcessMutexBuilder {
        InterProcessMutexBuilder { client: client.clone(), path: path.to_owned(), asked: Asked::default() }
    }

    /// Gets the lock within `timeout`, which covers everything: making the directory, repetitions, reconnects, and
    /// the waiting for others. [`Duration::ZERO`] only asks, like [`try_lock`](Self::try_lock); a duration beyond a
    /// year is no deadline.
    ///
    /// # Errors
    /// [`AcquireError::TimedOut`] when the lock was not free in time: it will then not be granted, and a node that
    /// could not be deleted yet is deleted in the background. [`AcquireError::Connection`] when there was no
    /// server to ask. The others as they say.
    ///
    /// # Cancel safety
    /// Dropping the future (in `select!`, in [`tokio::time::timeout`]) loses the place in the queue and nothing
    /// else: a node that was created, or may have been, is deleted in the background;
    /// [`Client::flush`] waits for it. Do not keep the future without polling it: the lock may have been granted
    /// to it, and everybody waits until it is polled or dropped.
    #[track_caller]
    pub fn acquire(
        &self,
        timeout: Duration,
    ) -> impl Future<Output = Result<LockGuard, AcquireError>> + Send + 'static {
        let budget = if timeout.is_zero() {
            self.ask()
        } else {
            after(timeout).map_or(Budget::Forever, Budget::Until)
        };
        self.clone().acquire_in(budget, Location::caller())
    }

    /// Gets the lock before `deadline`. One that has passed only asks, like [`try_lock`](Self::try_lock).
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire).
    ///
    /// # Cancel safety
    /// As [`acquire`](Self::acquire).
    #[track_caller]
    pub fn acquire_until(
        &self,
        deadline: Instant,
    ) -> impl Future<Output = Result<LockGuard, AcquireError>> + Send + 'static {
        let budget = if deadline <= Instant::now() { self.ask() } else { Budget::Until(deadline) };
        self.clone().acquire_in(budget, Location::caller())
    }

    /// Gets the lock, however long others hold it.
    ///
    /// # Errors
    /// [`AcquireError::Connection`] when there is no server for as long as the client's retry policy allows; it
    /// never gives up because the lock is busy. The others as they say, but never [`AcquireError::TimedOut`].
    ///
    /// # Cancel safety
    /// As [`acquire`](Self::acquire).
    #[track_caller]
    pub fn lock(&self) -> impl Future<Output = Result<LockGuard, AcquireError>> + Send + 'static {
        self.clone().acquire_in(Budget::Forever, Location::caller())
    }

    /// Gets the lock if it is free. Where somebody holds it this only reads, and asks again behind a `sync` before
    /// it says so, because a member may lag behind; the one exception is a client all of whose
    /// [`max_znodes`](InterProcessMutexBuilder::max_znodes) places are taken (by contenders, or by nodes that are
    /// still being deleted), which says so at once.
    ///
    /// # Errors
    /// [`TryLockError::WouldBlock`] when somebody else holds the lock or is ahead. With no answer from a server
    /// within the connect timeout [`AcquireError::Connection`], and the others as they say.
    ///
    /// # Cancel safety
    /// Dropping the future leaves nothing behind, as with [`acquire`](Self::acquire).
    #[track_caller]
    pub fn try_lock(&self) -> impl Future<Output = Result<LockGuard, TryLockError>> + Send + 'static {
        let location = Location::caller();
        let budget = self.ask();
        let room = Arc::clone(&self.room);
        async move {
            match Arc::clone(&room).acquire(budget, location).await {
                Ok(hold) => Ok(LockGuard::new(hold)),
                Err(Denied::WouldBlock) => {
                    Err(TryLockError::WouldBlock { path: room.path().user().to_owned() })
                }
                Err(Denied::Error(error)) => Err(error.into()),
            }
        }
    }

    /// The paths of the nodes that queue for the lock, of all processes, in order; the first holds it. Empty when
    /// nobody does. It is old by the time it arrives.
    ///
    /// # Errors
    /// Those of [`acquire`](Self::acquire) but [`AcquireError::TimedOut`].
    ///
    /// # Cancel safety
    /// It only reads.
    #[doc(alias = "getParticipantNodes")]
    pub async fn participants(&self) -> Result<Vec<String>, AcquireError> {
        let room = Arc::clone(&self.room);
        let participants = self.room.client().run(async move { driver::participants(&room).await });
        participants.await.unwrap_or_else(|| Err(self.room.client().why_ended(self.room.path())))
    }

    /// Whether a guard of this client holds the lock, as far as it knows.
    #[must_use]
    pub fn is_acquired_in_this_process(&self) -> bool {
        self.room.is_held()
    }

    /// The lock's path, as it was given.
    #[must_use]
    pub fn path(&self) -> &str {
        self.room.path().user()
    }

    fn ask(&self) -> Budget {
        Budget::Try { patience: self.room.client().connect_timeout() }
    }

    async fn acquire_in(
        self,
        budget: Budget,
        location: &'static Location<'static>,
    ) -> Result<LockGuard, AcquireError> {
        let started = Instant::now();
        match Arc::clone(&self.room).acquire(budget, location).await {
            Ok(hold) => Ok(LockGuard::new(hold)),
            Err(Denied::WouldBlock) => Err(self.room.timed_out(started.elapsed())),
            Err(Denied::Error(error)) => Err(error),
        }
    }
}

#[async_trait]
impl InterProcessLock for InterProcessMutex {
    async fn acquire(&self, timeout: Duration) -> Result<LockGuard, AcquireError> {
        Self::acquire(self, timeout).await
    }

    async fn acquire_until(&self, deadline: Instant) -> Result<LockGuard, AcquireError> {
        Self::acquire_until(self, deadline).await
    }

    async fn lock(&self) -> Result<LockGuard, AcquireError> {
        Self::lock(self).await
    }

    async fn try_lock(&self) -> Result<LockGuard, TryLockError> {
        Self::try_lock(self).await
    }

    async fn participants(&self) -> Result<Vec<String>, AcquireError> {
        Self::participants(self).await
    }

    fn is_acquired_in_this_process(&self) -> bool {
        Self::is_acquired_in_this_process(self)
    }

    fn path(&self) -> &str {
        Self::path(self)
    }
}

/// Options of an [`InterProcessMutex`].
///
/// All handles of one client for one path share them: the first handle decides, and what a later one leaves open
/// it takes over.
#[must_use = "it does nothing until `build` is called"]
#[derive(Clone, Debug)]
pub struct InterProcessMutexBuilder {
    client: Client,
    path: String,
    asked: Asked,
}

impl InterProcessMutexBuilder {
    /// How many nodes this client keeps below the path at most; further contenders wait in memory, in order, and
    /// are counted by nobody outside. From 1 to 10,000, by default 64: enough that the queue seen from outside
    /// is the real one for all but the most crowded locks, and few enough that listing it stays cheap.
    ///
    /// With 1 the tasks of this process queue as one contender, in memory.
    pub fn max_znodes(mut self, nodes: usize) -> Self {
        self.asked.max_znodes = Some(nodes);
        self
    }

    /// The data of the lock nodes, for people and tools that look at them; no recipe reads it. At most 1,000,000 bytes, by
    /// default `zookeeper-recipes`. (Curator writes its host's address.)
    #[doc(alias = "getLockNodeBytes")]
    pub fn data(mut self, data: impl Into<Vec<u8>>) -> Self {
        self.asked.data = Some(data.into().into());
        self
    }

    /// The ACL of the lock nodes and of directories that have to be made; by default the client's.
    pub fn acl(mut self, acl: impl Into<Vec<Acl>>) -> Self {
        self.asked.acl = Some(acl.into().into());
        self
    }

    /// How missing directories are made; by default as [containers](Parents::Container).
    #[doc(alias = "dontUseContainerParents")]
    pub fn parents(mut self, parents: Parents) -> Self {
        self.asked.parents = Some(parents);
        self
    }

    /// The mutex. No I/O is done.
    ///
    /// # Errors
    /// [`BuildError::InvalidPath`], [`BuildError::InvalidOption`], and [`BuildError::ConflictingOptions`] when a
    /// live handle of the same client was made with others.
    pub fn build(self) -> Result<InterProcessMutex, BuildError> {
        let inner = self.client.inner();
        let path = LockPath::parse(inner.namespace(), &self.path)?;
        let room = inner.room(path, Family::Exclusive, &self.asked)?;
        Ok(InterProcessMutex { room })
    }
}
