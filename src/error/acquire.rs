//! Why a lock was not acquired.

use std::fmt;
use std::panic::Location;
use std::time::Duration;

use thiserror::Error;

use super::cause::{Cause, credentials};
use crate::contender::{About, Contender};
use crate::path::NodePath;
use crate::shown::{Quoted, debug_as_text};

/// The hold of this client that is in the way: where it was acquired, and how long ago.
///
/// Part of [`AcquireError::TimedOut`] and [`TryLockError::WouldBlock`], because the commonest cause of a
/// timeout is a guard kept further up in the same program.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zookeeper_test_server::Server::start()?;
/// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
/// use std::time::Duration;
/// use zookeeper_recipes::{AcquireError, InterProcessMutex};
///
/// let mutex = InterProcessMutex::new(&client, "/inventory/sku-42")?;
/// let guard = mutex.lock().await?;
/// let error = mutex.acquire(Duration::from_millis(20)).await.unwrap_err();
/// let AcquireError::TimedOut { holder: Some(holder), .. } = &error else { panic!("{error}") };
/// assert!(holder.held_for() >= Duration::from_millis(20));
/// println!("held since {}", holder.location()); // the line of `mutex.lock()`
/// # guard.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct LocalHolder {
    pub(crate) held_for: Duration,
    pub(crate) location: &'static Location<'static>,
}

impl LocalHolder {
    /// Returns how long the lock had been held when the error was made.
    #[must_use]
    pub fn held_for(&self) -> Duration {
        self.held_for
    }

    /// Returns the source location of the call that acquired it.
    #[must_use]
    pub fn location(&self) -> &'static Location<'static> {
        self.location
    }
}

impl fmt::Display for LocalHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "this process itself has held it for {:?}, acquired at {}", self.held_for, self.location)
    }
}

impl fmt::Debug for LocalHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LocalHolder({:?}, {})", self.held_for, self.location)
    }
}

/// The end of a message about a lock that is not free.
fn in_the_way(
    ahead: usize,
    first: Option<&str>,
    held_by: Option<&Contender>,
    holder: Option<&LocalHolder>,
) -> String {
    let mut text = String::new();
    // Of a hold of this client its line says more.
    let other = held_by.filter(|held_by| holder.is_none() || !held_by.is_mine());
    if let Some(other) = other {
        text.push_str(&format!(": held by {}, queued {} ago", other.who(), About(other.age())));
    }
    if ahead > 1 {
        text.push_str(&format!(", {ahead} contenders are ahead"));
    }
    if let Some(first) = first.filter(|_| other.is_none()) {
        text.push_str(&format!(", the first is {}", Quoted(first)));
    }
    if let Some(holder) = holder {
        text.push_str(&format!("{} {holder}", if other.is_some() { ";" } else { ":" }));
    }
    text
}

/// What the ACL of `node` has to grant a client for the lock `path`.
fn needed(path: &str, node: &str, has_credentials: Option<bool>) -> String {
    let shown = Quoted(node);
    let mut text = if node == path {
        "the ACL of its directory needs CREATE, DELETE and READ for this client".to_owned()
    } else if matches!(node.strip_prefix(path), Some("/locks" | "/leases")) {
        // Of a semaphore. Contenders' nodes end with a number.
        format!("the ACL of its directory {shown} needs CREATE, DELETE and READ for this client")
    } else if node.strip_prefix(path) == Some("/permits")
        || !path.starts_with(node) && !node.starts_with(path)
    {
        // Of a semaphore: the node with the limit, which may have a path of its own.
        format!("the ACL of {shown} needs READ for this client")
    } else if node.starts_with(path) {
        format!("the ACL of the node before this client's, {shown}, needs READ for this client")
    } else {
        format!(
            "the ACL of {shown}, or of the nearest directory above it that exists, needs CREATE for this client"
        )
    };
    text.push_str(credentials(has_credentials));
    text
}

/// Whose doing it was that a contender's node is gone, and how often.
fn deleted(times: u32) -> String {
    match times {
        0 | 1 => "by another process".to_owned(),
        _ => format!("by another process {times} times"),
    }
}

/// Error of acquiring a lock.
///
/// After any of these the attempt keeps no place in the queue: a node that could not be deleted yet is
/// deleted in the background, which [`Client::flush`](crate::Client::flush) waits for. The exception is
/// [`QueuedLock::acquire`](crate::QueuedLock::acquire), which keeps its place after `TimedOut`, and in some
/// cases after `Connection`.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zookeeper_test_server::Server::start()?;
/// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
/// # let elsewhere = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
/// # let held = zookeeper_recipes::InterProcessMutex::new(&elsewhere, "/inventory/sku-42")?.lock().await?;
/// use std::time::Duration;
/// use zookeeper_recipes::{AcquireError, InterProcessMutex};
///
/// let mutex = InterProcessMutex::new(&client, "/inventory/sku-42")?;
/// match mutex.acquire(Duration::from_millis(20)).await {
///     Ok(guard) => guard.release().await?,
///     // Another process holds the lock: its node is the first in the queue.
///     Err(AcquireError::TimedOut { ahead, held_by: Some(holder), .. }) => {
///         println!("{} holds it, {ahead} are ahead", holder.identity());
///         assert_eq!(holder.node(), &held.node());
///     }
///     // No server answered, or there are too many waiters: try again later.
///     Err(error) if error.is_retryable() => eprintln!("{}: {error}", error.path()),
///     // A missing permission, a closed client ..: a bug, or work for an administrator.
///     Err(error) => return Err(error.into()),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Error)]
#[non_exhaustive]
pub enum AcquireError {
    /// The lock was not free in time: live contenders were seen to hold it, or to be ahead in its queue. Time
    /// that passed without any seen is [`Connection`](Self::Connection).
    #[error(
        "the lock {path} was not free within {timeout:?}{}",
        in_the_way(*ahead, first.as_deref(), held_by.as_deref(), holder.as_ref()), path = Quoted(path)
    )]
    #[non_exhaustive]
    TimedOut {
        /// The lock's path.
        path: String,
        /// The time that was given.
        timeout: Duration,
        /// The time that passed.
        waited: Duration,
        /// The number of contenders known to be ahead: from the last list of the queue, or at least 1 if the
        /// call needed no list.
        ahead: usize,
        /// The path of the first of their nodes, without the client's namespace. `None` if the call needed no
        /// list because it waited for another contender of this client.
        first: Option<NodePath>,
        /// Who holds the lock: the first in its queue. `None` if that is not known, because no read of its node was
        /// answered in time or the ACL does not allow it, and of a semaphore, which has several holders.
        held_by: Option<Box<Contender>>,
        /// The hold that is in the way, if a lock of this type and this client acquired it.
        holder: Option<LocalHolder>,
    },
    /// No server answered for as long as the retry policy allows, or for the time given if that is shorter.
    /// The source is what failed last.
    #[error("no ZooKeeper server answered a request for the lock {path}", path = Quoted(path))]
    #[non_exhaustive]
    Connection {
        /// The lock's path.
        path: String,
        /// What failed last.
        #[source]
        source: Cause,
    },
    /// An ACL denies this client what it needs: that of the lock's directory, of the directory above if that
    /// one is missing, or of the predecessor's node, which has to be readable.
    #[error(
        "no permission for the lock {path}: {}",
        needed(path, node, *has_credentials), path = Quoted(path)
    )]
    #[non_exhaustive]
    NoAuth {
        /// The lock's path.
        path: String,
        /// The node whose ACL denies it. If the lock's directory is missing, the one in which that directory,
        /// or one above it, would be created.
        node: String,
        /// Whether this client has credentials ([`ClientBuilder::auth`](crate::ClientBuilder::auth)). `None`
        /// for a borrowed session and for a connector, which may have credentials of their own.
        has_credentials: Option<bool>,
    },
    /// A node that this client left in the lock's directory blocks all contenders, and the servers refuse to
    /// delete it: the ACL of the directory denies this client DELETE. Grant it, or close the client. This
    /// call has asked for the deletion once more.
    #[error(
        "the lock {path} is blocked by this client's own node {node}, which it may not delete: grant it \
         DELETE on the lock's directory, or close the client",
        path = Quoted(path), node = Quoted(node)
    )]
    #[non_exhaustive]
    Orphaned {
        /// The lock's path.
        path: String,
        /// The node that is left.
        node: NodePath,
        /// What the server said to its deletion.
        #[source]
        source: Cause,
    },
    /// The directory holds contenders of another recipe, which queue by other rules: both would be let in.
    /// Use a path of its own for each recipe.
    #[error(
        "the lock {path} is in use by another recipe: its node {node} queues by other rules; use a path of \
         its own for each recipe",
        path = Quoted(path), node = Quoted(node)
    )]
    #[non_exhaustive]
    MixedRecipes {
        /// The lock's path.
        path: String,
        /// One of the other recipe's nodes.
        node: NodePath,
    },
    /// More than 2^31 nodes were created in the directory: from here on Java and Go clients sort new
    /// contenders before old ones. Stop all contenders and delete the directory, which starts the numbers
    /// again.
    #[error(
        "the sequence numbers of the lock {path} are used up: stop its contenders and delete the directory",
        path = Quoted(path)
    )]
    #[non_exhaustive]
    SequenceExhausted {
        /// The lock's path.
        path: String,
    },
    /// This client has as many waiters for a fair lock as it may have
    /// ([`max_waiters`](crate::InterProcessFairLockBuilder::max_waiters)): each has a node, and a directory
    /// that is too large cannot be listed.
    #[error(
        "the fair lock {path} has {max} nodes of this client already, the limit (`max_waiters`): waiters, or \
         nodes still being deleted",
        path = Quoted(path)
    )]
    #[non_exhaustive]
    TooManyWaiters {
        /// The lock's path.
        path: String,
        /// The limit.
        max: usize,
    },
    /// The session watches as many nodes as it can: about 120 KiB of paths, because one that watches more
    /// than 128 KiB cannot reconnect. Wait for fewer locks at once, use shorter paths, or several clients.
    #[error(
        "no wait for the lock {path}: this client watches as many nodes as a session can; wait for fewer \
         locks at once, or use another client",
        path = Quoted(path)
    )]
    #[non_exhaustive]
    TooManyWatches {
        /// The lock's path.
        path: String,
    },
    /// Another process deleted this contender's own node: more often than the retry policy allows, or at
    /// least once if the deadline passed before the node was replaced. From
    /// [`QueuedLock::position`](crate::QueuedLock::position): the node has not been replaced yet.
    #[error("this client's node for the lock {path} was deleted {}", deleted(*times), path = Quoted(path))]
    #[non_exhaustive]
    NodeDeleted {
        /// The lock's path.
        path: String,
        /// How often.
        times: u32,
    },
    /// The lock was granted, and its lease was over before the caller had the guard: the future was not
    /// polled for that long, or the lease is shorter than the way from the grant to the caller.
    ///
    /// The lock is released. Within its time a call asks for the lock again, three times at most.
    #[error(
        "the lock {path} was granted, and its lease was over before the caller had it: poll the future, or \
         ask for a longer lease",
        path = Quoted(path)
    )]
    #[non_exhaustive]
    LeaseOver {
        /// The lock's path.
        path: String,
    },
    /// The lease is zero. Nothing was sent.
    #[error(
        "no lease for the lock {path}: a lease of zero would be over at once; for a lock without a lease \
         call `acquire`",
        path = Quoted(path)
    )]
    #[non_exhaustive]
    InvalidLease {
        /// The lock's path.
        path: String,
    },
    /// The servers refused a request, for a reason that a retry does not change: to create the node, or to read that
    /// with the limit of a semaphore. The source says which.
    #[error("ZooKeeper refused a request for the lock {path}", path = Quoted(path))]
    #[non_exhaustive]
    Rejected {
        /// The lock's path.
        path: String,
        /// What was refused, and what the server said.
        #[source]
        source: Cause,
    },
    /// The semaphore will not give as many permits to one call: they are more than its limit. A call that waits
    /// ends with this too if the limit has become smaller than what it asks for when it is the first in the
    /// queue.
    #[error(
        "{asked} permits were asked for at the semaphore {path}, whose limit is {limit}",
        path = Quoted(path)
    )]
    #[non_exhaustive]
    TooManyPermits {
        /// The semaphore's path.
        path: String,
        /// The number of permits that were asked for.
        asked: u32,
        /// The limit.
        limit: u32,
    },
    /// The permits are too many for one call, although the limit of the semaphore allows them: one transaction takes
    /// all of them, and ZooKeeper refuses requests over 1 MiB. Acquire fewer at once and
    /// [merge](crate::SemaphorePermit::merge) them, or use less
    /// [data](crate::InterProcessSemaphoreBuilder::data).
    #[error(
        "{asked} permits were asked for at once at the semaphore {path}, and one request to ZooKeeper has room for \
         {most}: acquire fewer at once, or with less data",
        path = Quoted(path)
    )]
    #[non_exhaustive]
    TooManyAtOnce {
        /// The semaphore's path.
        path: String,
        /// The number of permits that were asked for.
        asked: u32,
        /// The number of permits that one call can acquire, with this path, ACL and data.
        most: u32,
    },
    /// A semaphore was asked for no permits.
    #[error("no permits were asked for at the semaphore {path}: ask for one at least", path = Quoted(path))]
    #[non_exhaustive]
    ZeroPermits {
        /// The semaphore's path.
        path: String,
    },
    /// Another process has acquired permits under another limit: one of the two is wrong. Give all handles
    /// the same limit, or store the limit for all with
    /// [`set_limit`](crate::InterProcessSemaphore::set_limit): then what handles state does not count.
    #[error(
        "the limit of the semaphore {path} is {ours} here, but the node {node} was created under a limit of \
         {theirs}: give all handles the same limit, or store one for all with `set_limit`",
        path = Quoted(path), node = Quoted(node)
    )]
    #[non_exhaustive]
    LimitMismatch {
        /// The semaphore's path.
        path: String,
        /// The limit that this handle states.
        ours: u32,
        /// The limit under which the node was created.
        theirs: u32,
        /// The node of a permit that says so.
        node: NodePath,
    },
    /// The node that stores the semaphore's limit contains something else than a limit: four bytes, big-endian
    /// and at least 1, as Curator's `SharedCount` writes them.
    #[error(
        "the node {node} stores no limit for the semaphore {path}: {found}, instead of four bytes with a \
         number of at least 1; store one with `set_limit`, or delete the node",
        path = Quoted(path), node = Quoted(node)
    )]
    #[non_exhaustive]
    InvalidLimit {
        /// The semaphore's path.
        path: String,
        /// The path of the node, without the client's namespace.
        node: String,
        /// What it contains instead.
        found: String,
    },
    /// The servers refused the client's credentials; the client is closed.
    #[error(
        "cannot acquire the lock {path}: ZooKeeper refused the client's credentials",
        path = Quoted(path)
    )]
    #[non_exhaustive]
    AuthFailed {
        /// The lock's path.
        path: String,
    },
    /// The client was closed, or is [drained](crate::Client::drain), the session that it borrowed has ended, or a
    /// [`QueuedLock`](crate::QueuedLock) had already returned its guard or its error.
    #[error(
        "cannot acquire the lock {path}: its client is closed, or the place in its queue has been used",
        path = Quoted(path)
    )]
    #[non_exhaustive]
    Closed {
        /// The lock's path.
        path: String,
    },
}

impl AcquireError {
    /// Returns `true` if the same call may succeed later with nothing else changed.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(
            self,
            Self::TimedOut { .. }
                | Self::Connection { .. }
                | Self::NodeDeleted { .. }
                | Self::LeaseOver { .. }
                | Self::TooManyWaiters { .. }
                | Self::TooManyWatches { .. }
        )
    }

    /// Returns the lock's path, without the client's namespace.
    #[must_use]
    pub fn path(&self) -> &str {
        match self {
            Self::TimedOut { path, .. }
            | Self::Connection { path, .. }
            | Self::NoAuth { path, .. }
            | Self::Orphaned { path, .. }
            | Self::MixedRecipes { path, .. }
            | Self::SequenceExhausted { path }
            | Self::TooManyWaiters { path, .. }
            | Self::TooManyWatches { path }
            | Self::NodeDeleted { path, .. }
            | Self::LeaseOver { path }
            | Self::InvalidLease { path }
            | Self::Rejected { path, .. }
            | Self::TooManyPermits { path, .. }
            | Self::TooManyAtOnce { path, .. }
            | Self::ZeroPermits { path }
            | Self::LimitMismatch { path, .. }
            | Self::InvalidLimit { path, .. }
            | Self::AuthFailed { path }
            | Self::Closed { path } => path,
        }
    }
}

/// Error of `try_lock`.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zookeeper_test_server::Server::start()?;
/// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
/// use zookeeper_recipes::{InterProcessMutex, TryLockError};
///
/// let mutex = InterProcessMutex::new(&client, "/jobs/nightly")?;
/// let guard = mutex.lock().await?;
/// match mutex.try_lock().await {
///     Ok(second) => second.release().await?,
///     Err(TryLockError::WouldBlock { path, .. }) => assert_eq!(path, "/jobs/nightly"),
///     // The lock could not be asked for: the same errors as those of `acquire`.
///     Err(TryLockError::Acquire(error)) => return Err(error.into()),
///     Err(error) => return Err(error.into()),
/// }
/// # guard.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Error)]
#[non_exhaustive]
pub enum TryLockError {
    /// The lock is held, or another contender is ahead in its queue.
    #[error(
        "the lock {path} is not free{}",
        in_the_way(1, first.as_deref(), held_by.as_deref(), holder.as_ref()), path = Quoted(path)
    )]
    #[non_exhaustive]
    WouldBlock {
        /// The lock's path.
        path: String,
        /// The number of contenders known to be ahead, at least 1. The message does not print it.
        ahead: usize,
        /// The path of the first node in the queue, without the client's namespace. `None` if this client
        /// already has as many nodes as it may have, and no server was asked.
        first: Option<NodePath>,
        /// Who holds the lock: the first in its queue. `None` if that is not known, because no read of its node was
        /// answered in time or the ACL does not allow it, and of a semaphore, which has several holders.
        held_by: Option<Box<Contender>>,
        /// The hold that is in the way, if a lock of this type and this client acquired it.
        holder: Option<LocalHolder>,
    },
    /// The lock could not be asked for.
    #[error(transparent)]
    Acquire(#[from] AcquireError),
}

impl TryLockError {
    /// The error of a call with a timeout, after it has `waited`.
    pub(crate) fn timed_out(self, timeout: Duration, waited: Duration) -> AcquireError {
        match self {
            Self::WouldBlock { path, ahead, first, held_by, holder } => {
                AcquireError::TimedOut { path, timeout, waited, ahead, first, held_by, holder }
            }
            Self::Acquire(error) => error,
        }
    }

    /// Returns `true` if the same call may succeed later with nothing else changed.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::WouldBlock { .. } => true,
            Self::Acquire(error) => error.is_retryable(),
        }
    }

    /// Returns the lock's path, without the client's namespace.
    #[must_use]
    pub fn path(&self) -> &str {
        match self {
            Self::WouldBlock { path, .. } => path,
            Self::Acquire(error) => error.path(),
        }
    }
}

debug_as_text!(AcquireError {
    TimedOut,
    Connection,
    NoAuth,
    Orphaned,
    MixedRecipes,
    SequenceExhausted,
    TooManyWaiters,
    TooManyWatches,
    NodeDeleted,
    LeaseOver,
    InvalidLease,
    Rejected,
    TooManyPermits,
    TooManyAtOnce,
    ZeroPermits,
    LimitMismatch,
    InvalidLimit,
    AuthFailed,
    Closed
});
debug_as_text!(TryLockError { WouldBlock, Acquire });
