//! The fair lock.

use crate::engine::attempt;
use std::panic::Location;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::client::Client;
use crate::engine::hold::Hold;
use crate::engine::lock_options::{Asked, Recipe};
use crate::engine::path_lock::{Admission, Budget, PathLock};
use crate::engine::pending::Pending;
use crate::error::{AcquireError, BuildError, TryLockError};
use crate::guard::{LockGuard, after};
use crate::lock::{lock_builder, lock_methods};
use crate::protocol::node_name::Kind;

/// A mutual exclusion lock whose order cannot be weakened: every contender has a node of its own from the beginning, and
/// they are served in the order of the nodes, over all processes.
///
/// It queues in the same line as [`InterProcessMutex`](crate::InterProcessMutex), Curator's mutex and go-zookeeper's.
/// Three things are different:
///
/// * **Every waiter is in the servers' queue**, where the mutex lets those beyond its `max_znodes` wait in memory. So
///   the order is that of arrival whichever process somebody arrived in, and [`participants`](Self::participants) are
///   all of them. Beyond [`max_waiters`](InterProcessFairLockBuilder::max_waiters) in one client it refuses.
/// * **A place in the queue is a thing**: [`enqueue`](Self::enqueue) answers with a [`QueuedLock`], which tells its
///   [`position`](QueuedLock::position) and can be waited for later.
/// * **Thousands of waiters in one process** set one watch at most: a waiter behind another of the same session waits for
///   that one in memory, and the transaction that deletes a holder's node hands the lock over to the next in line if its
///   node exists. Neither arriving behind a waiter of the same session nor giving up lists the directory.
///
/// # Memory
/// A waiter costs less than 6 KiB in this process (which a test measures), and a node at the servers.
///
/// # Examples
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zookeeper_test_server::Server::start()?;
/// # tokio::runtime::Runtime::new()?.block_on(async {
/// # let servers = server.connect_string();
/// use std::time::Duration;
/// use zookeeper_recipes::{Client, InterProcessFairLock};
///
/// let client = Client::connect(&servers).await?;
/// let lock = InterProcessFairLock::new(&client, "/tickets/hall-1")?;
///
/// let mut place = lock.enqueue().await?; // in the queue from now on
/// println!("{} before you", place.position().await?);
/// let guard = place.acquire(Duration::from_secs(30)).await?;
/// guard.release().await?;
/// # client.close().await?;
/// # Ok(())
/// # })
/// # }
/// ```
#[derive(Clone)]
pub struct InterProcessFairLock {
    path_lock: Arc<PathLock>,
}

impl InterProcessFairLock {
    /// The fair lock at `path`, with the options of the handles that this client has for it already, or the defaults.
    ///
    /// # Errors
    /// [`BuildError::InvalidPath`], [`BuildError::MixedRecipes`]. No I/O is done.
    pub fn new(client: &Client, path: &str) -> Result<Self, BuildError> {
        Self::builder(client, path).build()
    }

    /// The same with options.
    pub fn builder(client: &Client, path: &str) -> InterProcessFairLockBuilder {
        InterProcessFairLockBuilder { client: client.clone(), path: path.to_owned(), asked: Asked::default() }
    }

    /// Takes a place in the queue, to be waited for later. Answers when the node is in the queue.
    ///
    /// # Errors
    /// Those of [`lock`](Self::lock).
    ///
    /// # Cancel safety
    /// Dropping the future leaves nothing behind, as with [`acquire`](Self::acquire).
    #[track_caller]
    pub fn enqueue(&self) -> impl Future<Output = Result<QueuedLock, AcquireError>> + Send + 'static {
        let location = Location::caller();
        let path_lock = Arc::clone(&self.path_lock);
        async move {
            let pending =
                attempt::start(&path_lock, Kind::Exclusive, Budget::Forever, Admission::First, location);
            let mut place = QueuedLock { path_lock, pending, came: None, location };
            match place.pending.queued().await {
                Some(Err(error)) => Err(error.timed_out(Duration::ZERO, Duration::ZERO)),
                // It is ours already, and kept for who asks for it.
                Some(Ok(hold)) => {
                    place.came = Some(Ok(LockGuard::new(hold)));
                    Ok(place)
                }
                None => Ok(place),
            }
        }
    }
}

lock_methods!(InterProcessFairLock, LockGuard, Kind::Exclusive, None);

lock_builder! {
    /// Options of an [`InterProcessFairLock`].
    InterProcessFairLockBuilder, InterProcessFairLock, Recipe::FairLock
}

impl InterProcessFairLockBuilder {
    /// How many contenders this client may have; further ones get
    /// [`AcquireError::TooManyWaiters`]. From 1 to 15,000, by default 5,000: a directory of 17,000 nodes is more than
    /// other clients read in one answer (Java's limit is 1 MiB), and that is for all processes together.
    pub fn max_waiters(mut self, waiters: usize) -> Self {
        self.asked.max_nodes = Some(waiters);
        self
    }
}

/// A place in the queue of an [`InterProcessFairLock`]. Dropping it leaves the queue.
///
/// When it comes to the front the lock is ours, whether somebody waits here or not, and everybody else waits: do not
/// keep a place that nobody uses. If its session ends, or its node is deleted, the place is taken anew, at the back: what
/// is handed out is never a lock that was lost while it waited here.
#[must_use = "dropping the place leaves the queue"]
pub struct QueuedLock {
    path_lock: Arc<PathLock>,
    pending: Pending,
    /// What has come of it and nobody has asked for yet.
    came: Option<Result<LockGuard, AcquireError>>,
    location: &'static Location<'static>,
}

impl QueuedLock {
    /// How many contenders of all processes are before this one: with 0 the lock is ours, or will be in a moment.
    ///
    /// # Errors
    /// Those of [`InterProcessFairLock::participants`]; [`AcquireError::NodeDeleted`] while a node that somebody else
    /// deleted has not been replaced; [`AcquireError::Closed`] when the place was used up already.
    ///
    /// # Cancel safety
    /// It only reads.
    pub async fn position(&mut self) -> Result<usize, AcquireError> {
        loop {
            self.look();
            match &self.came {
                Some(Err(error)) => return Err(error.clone()),
                // It is ours.
                Some(Ok(_)) => return Ok(0),
                None if self.pending.is_over() => return Err(self.pending.closed()),
                None => {}
            }
            if let Some(position) = self.pending.position().await? {
                return Ok(position);
            }
            // The attempt has ended, and says how.
            let result = self.pending.result().await;
            self.keep(result);
        }
    }

    /// Waits for the lock at most for `timeout`; a duration beyond a year is no deadline.
    ///
    /// # Errors
    /// [`AcquireError::TimedOut`] when others were ahead for all the time, and [`AcquireError::Connection`] when the time
    /// passed without an answer of the servers: the place is kept, and can be waited for again. The others, and
    /// `Connection` when the retry policy is exhausted, end the place.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing: the place is kept.
    pub async fn acquire(&mut self, timeout: Duration) -> Result<LockGuard, AcquireError> {
        let Some(deadline) = after(timeout) else { return self.lock().await };
        let started = Instant::now();
        loop {
            self.look();
            if let Some(came) = self.came.take() {
                return came;
            }
            let Some(result) = self.pending.result_until(deadline).await else {
                return Err(self.pending.late(Kind::Exclusive, timeout, started.elapsed()));
            };
            self.keep(result);
        }
    }

    /// Waits for the lock.
    ///
    /// # Errors
    /// Those of [`InterProcessFairLock::lock`], and [`AcquireError::Closed`] when the place was used up already.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing: the place is kept.
    pub async fn lock(&mut self) -> Result<LockGuard, AcquireError> {
        loop {
            self.look();
            if let Some(came) = self.came.take() {
                return came;
            }
            let result = self.pending.result().await;
            self.keep(result);
        }
    }

    /// The lock's path, as it was given.
    #[must_use]
    pub fn path(&self) -> &str {
        self.path_lock.path().user()
    }

    /// Looks whether the lock has come, and takes the place anew if it was lost before anybody asked for it.
    fn look(&mut self) {
        if let Some(result) = self.pending.result_now() {
            self.keep(result);
        }
        if matches!(&self.came, Some(Ok(guard)) if !guard.is_held()) {
            self.came = None;
            self.pending = attempt::start(
                &self.path_lock,
                Kind::Exclusive,
                Budget::Forever,
                Admission::Again,
                self.location,
            );
        }
    }

    fn keep(&mut self, result: Result<Hold, TryLockError>) {
        let result =
            result.map(LockGuard::new).map_err(|error| error.timed_out(Duration::ZERO, Duration::ZERO));
        self.came = Some(result);
    }
}

crate::shown::debug_as_path!(InterProcessFairLock, QueuedLock);
