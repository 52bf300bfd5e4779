//! The fair lock. Each task that waits has a node of its own, so that the order of arrival counts
//! across all processes (docs/protocol.md#fair-waiters).
//!
//! A `QueuedLock` is a place in the queue: an attempt whose result is kept until its caller asks
//! for the lock. A lock that is granted and lost before that is replaced by another place.

use std::fmt::Display;
use std::panic::Location;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::builder::RecipeBuilder;
use crate::builder::sealed::{Buildable, HasData, HasDialect};
use crate::client::Client;
use crate::engine::acquisition::{Hold, ObservedCall};
use crate::engine::attempts::queued::Queued;
use crate::engine::granted::Grant;
use crate::engine::lock::lock_options::Recipe;
use crate::engine::lock::path_lock::{Ask, Budget, PathLock};
use crate::error::{AcquireError, BuildError, TryLockError};
use crate::locks::guard::LockGuard;
use crate::locks::lock::{Lock, after};
use crate::locks::mode::Fair;
use crate::protocol::node_name::Kind;
use crate::values::path::LockPath;

/// A mutual exclusion lock in the order of arrival across processes, for many waiters.
///
/// Every contender has a separate node from the beginning, and the lock is granted in the order of
/// the nodes. On the same path, it shares its queue with
/// [`InterProcessMutex`](crate::InterProcessMutex) and the mutexes of Curator and go-zookeeper.
/// Three things differ from these:
///
/// - **Every waiter is in the queue on the servers**, where the waiters of a mutex share one node
///   of their client. So the order is that of arrival across processes, and
///   [`participants`](Self::participants) returns all waiters. A client's waiters beyond
///   [`max_waiters`](RecipeBuilder::max_waiters) are refused.
/// - **A place in the queue is a value**: [`enqueue`](Self::enqueue) returns a [`QueuedLock`],
///   which has a [`position`](QueuedLock::position) and can be awaited later.
/// - **Thousands of waiters in one process** set one watch: a waiter behind a waiter of the same
///   session is woken in memory, and only the first one watches the server. The transaction that
///   deletes the holder's node hands the lock over if the next node exists and is of the same
///   session. A waiter that arrives directly behind a waiter of the same session does not list the
///   directory, and waiters that need a list share it.
///
/// A fair lock is a [`Lock`](crate::Lock), whose page has the other methods.
///
/// A place is kept for as long as its session lives. If the session expires, its waiters queue
/// again at the back, in the same order.
///
/// # Memory
/// A waiter costs less than 6 KiB in this process (a test measures this), and a node on the
/// servers.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zookeeper_test_server::Server::start()?;
/// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
/// use std::time::Duration;
/// use zookeeper_recipes::InterProcessFairLock;
///
/// let lock = InterProcessFairLock::new(&client, "/tickets/hall-1")?;
///
/// let mut place = lock.enqueue().await?; // in the queue from now on
/// println!("{} before you", place.position().await?);
/// let guard = place.acquire(Duration::from_secs(30)).await?;
/// guard.release().await?;
/// # Ok(())
/// # }
/// ```
pub type InterProcessFairLock = Lock<Fair>;

impl Buildable for InterProcessFairLock {
    fn built(builder: RecipeBuilder<Self>) -> Result<Self, BuildError> {
        Ok(Self::of(builder.path_lock(Recipe::FairLock)?))
    }
}

impl HasData for InterProcessFairLock {}

impl HasDialect for InterProcessFairLock {}

impl InterProcessFairLock {
    /// Creates a handle of the fair lock at `path`, without any I/O.
    ///
    /// The handle has the options of this client's existing handles for the path, or the defaults.
    ///
    /// # Errors
    /// - [`BuildError::InvalidPath`] if ZooKeeper would refuse the path, or it is `/`, below
    ///   `/zookeeper`, or longer than 16 KiB with the namespace.
    /// - [`BuildError::MixedRecipes`] if this client uses the path for a recipe with another kind
    ///   of queue, such as a read-write lock. It does so while there is a live handle or guard, or
    ///   a call whose nodes are still being deleted.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// use zookeeper_recipes::InterProcessFairLock;
    ///
    /// let lock = InterProcessFairLock::new(&client, "/tickets/hall-1")?;
    /// assert_eq!(lock.path(), "/tickets/hall-1");
    /// assert!(InterProcessFairLock::new(&client, "no/slash").is_err());
    /// # Ok(())
    /// # }
    /// ```
    pub fn new(client: &Client, path: impl AsRef<str>) -> Result<Self, BuildError> {
        Self::builder(client, path).build()
    }

    /// Creates a handle of the fair lock of `key` below `prefix`, without any I/O.
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
    /// use zookeeper_recipes::InterProcessFairLock;
    ///
    /// let lock = InterProcessFairLock::keyed(&client, "/stock", "shoes/42")?;
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

    /// Returns a builder of the fair lock at `path`, for options other than the defaults.
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
    /// use zookeeper_recipes::{Acl, Dialect, InterProcessFairLock, ParentNodes};
    ///
    /// let lock = InterProcessFairLock::builder(&client, "/tickets/hall-1")
    ///     .max_waiters(100) // in this process
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

impl InterProcessFairLock {
    /// Takes a place in the queue, to be awaited later. The call returns when the node is in the
    /// queue.
    ///
    /// # Errors
    /// See [`lock`](Self::lock).
    ///
    /// # Cancel safety
    /// If the future is dropped, the place is lost, as with [`acquire`](Self::acquire).
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// use zookeeper_recipes::InterProcessFairLock;
    ///
    /// let lock = InterProcessFairLock::new(&client, "/tickets/hall-1")?;
    /// let (mut first, mut second) = (lock.enqueue().await?, lock.enqueue().await?);
    /// assert_eq!((first.position().await?, second.position().await?), (0, 1));
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn enqueue(
        &self,
    ) -> impl Future<Output = Result<QueuedLock, AcquireError>> + Send + 'static + use<> {
        let location = Location::caller();
        let path_lock = Arc::clone(&self.path_lock);
        async move {
            let mut ask = Ask::new(Kind::Exclusive, Budget::Forever, location);
            let call = ObservedCall::begin(&path_lock, &mut ask);
            let queued = Queued::start(&path_lock, ask);
            let mut place = QueuedLock {
                path_lock,
                queued,
                outcome: None,
                location,
                call,
            };
            if let Some(result) = place.queued.queued().await {
                // A lock that is granted already is kept here as a guard until the caller asks for
                // it.
                place.keep(result);
            }
            // An error ends the place before the caller has it. A guard stays in the place.
            match place.outcome.take_if(|outcome| outcome.is_err()) {
                Some(Err(error)) => Err(error),
                Some(Ok(_)) | None => Ok(place),
            }
        }
    }
}

impl RecipeBuilder<InterProcessFairLock> {
    /// Sets the maximum number of waiters of this client; further ones are refused with
    /// [`AcquireError::TooManyWaiters`]. The holder does not count; a waiter that has left counts
    /// until its node is deleted.
    ///
    /// The number must be from 1 to 15,000, and is 5,000 by default. Other clients cannot list a
    /// directory of more than 17,000 nodes in one reply (the limit in Java is 1 MiB). Because the
    /// waiters of all processes count, n processes need a `max_waiters` below 17,000 / n (the
    /// default suits three). With long paths a session reaches
    /// [`AcquireError::TooManyNodes`] first.
    pub fn max_waiters(mut self, waiters: usize) -> Self {
        self.asked.node_limit = Some(waiters);
        self
    }
}

/// A place in the queue of an [`InterProcessFairLock`]. Dropping it leaves the queue.
///
/// At the front of the queue, a place is granted the lock even if it is not polled, and then blocks
/// all other contenders, so drop places that are not used. A place is queued again at the back if
/// its session ends, if its node is deleted, or if the lock was granted and lost before the place
/// was polled.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zookeeper_test_server::Server::start()?;
/// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
/// use std::time::Duration;
/// use zookeeper_recipes::{InterProcessFairLock, QueuedLock};
///
/// let lock = InterProcessFairLock::new(&client, "/tickets/hall-1")?;
/// let mut place: QueuedLock = lock.enqueue().await?;
/// while place.position().await? > 0 {
///     // Show the position to the customer. Each question is a request.
///     tokio::time::sleep(Duration::from_secs(1)).await;
/// #   unreachable!("the lock is free");
/// }
/// let guard = place.lock().await?;
/// guard.release().await?;
/// # Ok(())
/// # }
/// ```
#[must_use = "dropping the place leaves the queue: bind it to `_place`, not to `_`"]
pub struct QueuedLock {
    path_lock: Arc<PathLock>,
    queued: Queued,
    /// The outcome, until the caller asks for it.
    outcome: Option<Result<LockGuard, AcquireError>>,
    location: &'static Location<'static>,
    call: ObservedCall,
}

impl QueuedLock {
    /// Returns the number of contenders of all processes before this one. At 0, the lock is
    /// granted, or is about to be.
    ///
    /// # Errors
    /// - [`AcquireError::NodeDeleted`] while the place has no node in place of one that another
    ///   process deleted.
    /// - [`ErrorKind::Closed`](crate::ErrorKind::Closed) if the place has already returned a guard
    ///   or an error, or the client is closed.
    /// - See [`InterProcessFairLock::participants`] for the other variants.
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
    /// use zookeeper_recipes::InterProcessFairLock;
    ///
    /// let lock = InterProcessFairLock::new(&client, "/tickets/hall-1")?;
    /// let guard = lock.lock().await?;
    /// let mut place = lock.enqueue().await?;
    /// assert_eq!(place.position().await?, 1);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn position(&mut self) -> Result<usize, AcquireError> {
        loop {
            self.look();
            match &self.outcome {
                Some(Err(error)) => return Err(error.clone()),
                Some(Ok(_)) => return Ok(0),
                None if self.queued.pending.result_taken() => {
                    return Err(self.queued.pending.used_up());
                }
                None => {}
            }
            if let Some(position) = self.queued.position().await? {
                return Ok(position);
            }
            // The attempt has ended since, and the next round returns its result.
            let result = self.queued.pending.result().await;
            self.keep(result);
        }
    }

    /// Waits for the lock for at most `timeout`; a duration over a year means no deadline.
    ///
    /// With [`Duration::ZERO`], this returns the lock only if it has already been granted, and
    /// unlike [`InterProcessFairLock::acquire`] does not wait for the servers.
    ///
    /// # Errors
    /// - [`ErrorKind::Closed`](crate::ErrorKind::Closed) if the place has already returned a guard
    ///   or an error, or the client is closed.
    /// - [`AcquireError::TimedOut`] if the lock was not free in time. The place is kept, and can be
    ///   awaited again.
    /// - [`ErrorKind::Connection`](crate::ErrorKind::Connection) if the time passed without an
    ///   answer from a server, and [`AcquireError::NodeDeleted`] if it passed before the place had
    ///   a node in place of one that another process deleted. The place is kept. If the retry
    ///   policy is exhausted, the error is the same, but the place is gone.
    /// - See [`AcquireError`] for the other variants, after which the place is gone.
    ///
    /// # Cancel safety
    /// If the future is dropped, the place is kept.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// use std::time::Duration;
    /// use zookeeper_recipes::{AcquireError, InterProcessFairLock};
    ///
    /// let lock = InterProcessFairLock::new(&client, "/tickets/hall-1")?;
    /// let guard = lock.lock().await?;
    /// let mut place = lock.enqueue().await?;
    ///
    /// let error = place.acquire(Duration::from_millis(20)).await.unwrap_err();
    /// assert!(matches!(error, AcquireError::TimedOut { .. }));
    ///
    /// guard.release().await?;
    /// let guard = place.acquire(Duration::from_secs(10)).await?; // the same place
    /// # guard.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn acquire(&mut self, timeout: Duration) -> Result<LockGuard, AcquireError> {
        let Some(deadline) = after(timeout) else {
            return self.lock().await;
        };
        let started = Instant::now();
        loop {
            self.look();
            if let Some(outcome) = self.take() {
                return outcome;
            }
            let Some(result) = self.queued.result_until(deadline).await else {
                return Err(self
                    .queued
                    .late(Kind::Exclusive, timeout, started.elapsed()));
            };
            self.keep(result);
        }
    }

    /// Waits for the lock.
    ///
    /// # Errors
    /// - [`ErrorKind::Closed`](crate::ErrorKind::Closed) if the place has already returned a guard
    ///   or an error, or the client is closed.
    /// - See [`InterProcessFairLock::lock`] for the other variants, after which the place is gone.
    ///
    /// # Cancel safety
    /// If the future is dropped, the place is kept.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// use zookeeper_recipes::InterProcessFairLock;
    ///
    /// let lock = InterProcessFairLock::new(&client, "/tickets/hall-1")?;
    /// let mut place = lock.enqueue().await?;
    /// let guard = place.lock().await?;
    /// guard.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn lock(&mut self) -> Result<LockGuard, AcquireError> {
        loop {
            self.look();
            if let Some(outcome) = self.take() {
                return outcome;
            }
            // Without a deadline the result comes with the grant, or with an error that ends the
            // attempt.
            let result = self.queued.pending.result().await;
            self.keep(result);
        }
    }

    /// Returns the path of the lock, as given.
    #[must_use]
    pub fn path(&self) -> &str {
        self.path_lock.path.user()
    }

    /// Checks whether the lock was granted, and queues again if it was lost before the caller asked
    /// for it.
    fn look(&mut self) {
        if let Some(result) = self.queued.pending.result_now() {
            self.keep(result);
        }
        // The lock was granted and lost before the caller asked for it. A lost lock is not
        // returned, so the place queues again, as a new call in the reports.
        if matches!(&self.outcome, Some(Ok(guard)) if !guard.is_held()) {
            self.outcome = None;
            let mut ask = Ask::new(Kind::Exclusive, Budget::Forever, self.location);
            self.call = ObservedCall::begin(&self.path_lock, &mut ask);
            self.queued = Queued::start(&self.path_lock, ask.again());
        }
    }

    /// Takes the outcome for the caller. If the client was drained before the caller took the
    /// grant, the lock is released.
    fn take(&mut self) -> Option<Result<LockGuard, AcquireError>> {
        let drained = || self.path_lock.client.drained_error(&self.path_lock.path);
        let outcome = self.outcome.take()?;
        Some(outcome.and_then(|guard| drained().map_or(Ok(guard), Err)))
    }

    fn keep(&mut self, result: Result<Grant, TryLockError>) {
        let result = result.map(|grant| Hold::new(Arc::clone(&self.path_lock), grant));
        let result =
            // The call ends once, with the first result. What the place does later begins another
            // call.
            std::mem::take(&mut self.call).ended(&self.path_lock, result, std::slice::from_ref);
        let result = result
            .map(LockGuard::new)
            // An attempt of a place has no deadline, so the durations of a timeout are never used.
            .map_err(|error| error.timed_out(Duration::ZERO, Duration::ZERO));
        self.outcome = Some(result);
    }
}

crate::values::shown::debug_as_path!(QueuedLock);

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll, Waker};

    use super::*;
    use crate::Client;

    /// Repeated short waits, as in a `select!` loop, leave nothing behind.
    #[tokio::test]
    async fn repeated_waits_leave_no_tasks() {
        const HOUR: Duration = Duration::from_secs(3_600);
        let server = zookeeper_test_server::Server::start().unwrap();
        let servers = server.connect_string();
        let client = Client::connect(&servers).await.unwrap();
        let other = Client::connect(&servers).await.unwrap();
        let _held = InterProcessFairLock::new(&other, "/lock")
            .unwrap()
            .lock()
            .await
            .unwrap();
        let lock = InterProcessFairLock::new(&client, "/lock").unwrap();
        let mut place = lock.enqueue().await.unwrap();
        let tasks = || lock.path_lock.client.tasks.count();
        let before = tasks();
        for _ in 0..1_000 {
            let mut acquire = std::pin::pin!(place.acquire(HOUR));
            let mut context = Context::from_waker(Waker::noop());
            assert!(matches!(acquire.as_mut().poll(&mut context), Poll::Pending));
        }
        let ended = async {
            while tasks() > before + 10 {
                tokio::task::yield_now().await;
            }
        };
        let ended = tokio::time::timeout(Duration::from_secs(60), ended).await;
        assert!(ended.is_ok(), "they live until their hour is over");
    }
}
