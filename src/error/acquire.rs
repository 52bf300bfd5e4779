//! Why a lock was not acquired.

use std::fmt;
use std::time::Duration;

use super::holding::Holding;
use super::request::{Cause, Error, ErrorKind};
use crate::values::contender::{About, Contender, ContenderKind};
use crate::values::path::NodePath;
use crate::values::shown::{Quoted, debug_as_text, why};

/// The contenders that held a lock that was not free, or were ahead of the call.
///
/// Part of [`AcquireError::TimedOut`] and [`TryLockError::WouldBlock`].
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zookeeper_test_server::Server::start()?;
/// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
/// # let elsewhere = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
/// # let held = zookeeper_recipes::InterProcessMutex::new(&elsewhere, "/jobs/nightly")?.lock().await?;
/// use zookeeper_recipes::{InterProcessMutex, TryLockError};
///
/// let mutex = InterProcessMutex::new(&client, "/jobs/nightly")?;
/// match mutex.try_lock().await {
///     // Another process holds the lock: its node is the first in the queue.
///     Err(TryLockError::WouldBlock { contention, .. }) => {
///         assert_eq!((contention.ahead, contention.first.as_ref()), (1, Some(&held.node())));
///         println!("{contention}"); // held by web-3/4711/stock for 12s at most
///     }
///     other => panic!("{other:?}"),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Contention {
    /// The number of contenders known to be ahead: from the last list of the queue, or at least 1
    /// if the call needed no list.
    pub ahead: usize,
    /// The path of the first of their nodes, without the client's namespace. `None` if the call
    /// needed no list because it waited for another contender of this client, or this client
    /// already has as many nodes as it may have.
    pub first: Option<NodePath>,
    /// The holder of the lock: the first in its queue, or, for a semaphore, the holder of the
    /// oldest permit. `None` if the holder is not known, because no read of its node was answered
    /// in time or the ACL does not allow it.
    pub held_by: Option<Box<Contender>>,
    /// The hold that blocks the call, if this client acquired it with a lock of this type. The
    /// commonest cause of a timeout is a guard kept further up in the same program.
    pub holder: Option<Box<Holding>>,
}

impl Contention {
    /// Returns the holder of the oldest permit, if the lock is a semaphore.
    fn permit(&self) -> Option<&Contender> {
        let held_by = self.held_by.as_deref();
        held_by.filter(|held_by| held_by.kind() == ContenderKind::Permit)
    }

    /// Returns whether the contenders ahead are those that hold the permits of a semaphore.
    fn are_permits(&self) -> bool {
        let paths = self.first.as_ref().zip(self.permit());
        paths.is_some_and(|(first, permit)| first.lock_path() == permit.node().lock_path())
    }
}

impl fmt::Display for Contention {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // For a hold of this client, the line that acquired it is more useful than the node's data.
        let other = self
            .held_by
            .as_deref()
            .filter(|held_by| self.holder.is_none() || !held_by.is_mine());
        let mut text = Vec::new();
        if self.are_permits() {
            text.push(match self.ahead {
                1 => "1 permit is held".to_owned(),
                ahead => format!("{ahead} permits are held"),
            });
        }
        if let Some(other) = other {
            let what = match (self.permit(), self.are_permits()) {
                (None, _) => "held",
                (Some(_), false) => "the oldest permit is held",
                (Some(_), true) => "the oldest",
            };
            let (who, age) = (other.who(), About(other.age()));
            text.push(format!("{what} by {who} for {age} at most"));
        }
        if self.ahead > 1 && !self.are_permits() {
            text.push(format!("{} contenders are ahead", self.ahead));
        }
        if let Some(first) = self.first.as_ref().filter(|_| other.is_none()) {
            text.push(format!("the first is {}", Quoted(first)));
        }
        if text.is_empty() && self.holder.is_none() {
            text.push("another contender is ahead".to_owned());
        }
        f.write_str(&text.join(", "))?;
        match &self.holder {
            Some(holder) => {
                let (separator, time) =
                    (if text.is_empty() { "" } else { "; " }, holder.held_for());
                let location = holder.location();
                write!(
                    f,
                    "{separator}this process itself has held it for {time:?}, acquired at {location}"
                )
            }
            None => Ok(()),
        }
    }
}

/// Returns who deleted a contender's node, and how often.
fn deleted(times: u32) -> String {
    match times {
        0 | 1 => "by another process".to_owned(),
        _ => format!("by another process {times} times"),
    }
}

/// Returns the text that a lock was not free: within `timeout`, or now if `timeout` is zero.
fn late(timeout: Duration) -> String {
    if timeout.is_zero() {
        "is not free".to_owned()
    } else {
        format!("was not free within {timeout:?}")
    }
}

/// Error of acquiring a lock.
///
/// After any of these errors, the attempt has no place in the queue. A node that could not be
/// deleted yet is deleted in the background; [`Client::flush`](crate::Client::flush) waits for
/// this. The exception is [`QueuedLock::acquire`](crate::QueuedLock::acquire), which keeps its
/// place after `TimedOut`, and in some cases after [`ErrorKind::Connection`].
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zookeeper_test_server::Server::start()?;
/// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
/// # let elsewhere = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
/// # let elsewhere = zookeeper_recipes::InterProcessMutex::new(&elsewhere, "/inventory/sku-42")?;
/// # let held = elsewhere.lock().await?;
/// use std::time::Duration;
/// use zookeeper_recipes::{AcquireError, ErrorKind, InterProcessMutex};
///
/// let mutex = InterProcessMutex::new(&client, "/inventory/sku-42")?;
/// match mutex.acquire(Duration::from_millis(100)).await {
///     Ok(guard) => guard.release().await?,
///     // Another process holds the lock: its node is the first in the queue.
///     Err(AcquireError::TimedOut { contention, .. }) => {
///         if let Some(holder) = &contention.held_by {
///             println!("{} holds it, {} are ahead", holder.identity(), contention.ahead);
///             assert_eq!(holder.node(), &held.node());
///         }
///     }
///     Err(error) if error.kind() == Some(ErrorKind::NoAuth) => eprintln!("for an operator: {error}"),
///     // No server answered, or there are too many waiters: try again later.
///     Err(error) if error.is_retryable() => eprintln!("{}: {error}", error.path()),
///     // A closed client ..: a bug.
///     Err(error) => return Err(error.into()),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum AcquireError {
    /// A request failed, or was not sent: for example, no server answered, an ACL denies the
    /// request, or the client is closed.
    #[error(transparent)]
    Request(#[from] Error),
    /// The lock was not free in time: live contenders were seen to hold it, or to be ahead in its
    /// queue. If no contender was seen, the error is a [`Request`](Self::Request) of the kind
    /// [`Connection`](ErrorKind::Connection) instead.
    #[error("the lock {path} {late}: {contention}", late = late(*timeout), path = Quoted(path))]
    #[non_exhaustive]
    TimedOut {
        /// The path, without the client's namespace.
        path: String,
        /// The time that was given.
        timeout: Duration,
        /// The time that passed.
        waited: Duration,
        /// The contenders that were ahead.
        contention: Contention,
    },
    /// A node that this client left in the lock's directory blocks all contenders, and the servers
    /// refuse to delete it: the ACL of the directory denies this client DELETE. Grant the
    /// permission, or close the client. The call has requested the deletion once more.
    #[error(
        "the lock {path} is blocked by this client's own node {node}, which it may not delete ({}): grant \
         it DELETE on the lock's directory, or close the client",
        why(source), node = Quoted(node), path = Quoted(path)
    )]
    #[non_exhaustive]
    Orphaned {
        /// The path, without the client's namespace.
        path: String,
        /// The node that is left.
        node: NodePath,
        /// The server's answer to its deletion.
        source: Cause,
    },
    /// This client has as many waiters for a fair lock as it may have
    /// ([`max_waiters`](crate::RecipeBuilder::max_waiters)): each has a node, and a directory that
    /// is too large cannot be listed.
    #[error(
        "the fair lock {path} has {max} waiters of this client already, the limit (`max_waiters`), or nodes \
         of theirs that are still being deleted",
        path = Quoted(path)
    )]
    #[non_exhaustive]
    TooManyWaiters {
        /// The path, without the client's namespace.
        path: String,
        /// The limit.
        max: usize,
    },
    /// The session watches as many nodes as it can: about 120 KiB of paths, because a session that
    /// watches more than 128 KiB cannot reconnect. Wait for fewer locks at once, use shorter paths,
    /// or use several clients.
    #[error(
        "no wait for the lock {path}: this client watches as many nodes as a session can; wait for fewer \
         locks at once, or use another client",
        path = Quoted(path)
    )]
    #[non_exhaustive]
    TooManyWatches {
        /// The path, without the client's namespace.
        path: String,
    },
    /// The paths of the session's nodes have reached the limit on their total size. When a session
    /// ends, ZooKeeper writes the paths of all its nodes to its log at once, and servers do not
    /// start if that transaction in the log is too large
    /// ([`max_ephemeral_bytes`](crate::ClientBuilder::max_ephemeral_bytes)). Locks that are held or
    /// waited for, permits, persistent nodes and members of groups count. Hold fewer locks at once,
    /// use shorter paths, or use several clients.
    #[error(
        "no node for the lock {path}: the paths of this client's nodes have as many bytes as those of one \
         session may have ({max}, `max_ephemeral_bytes`); hold fewer locks at once, use shorter paths, or \
         another client",
        path = Quoted(path)
    )]
    #[non_exhaustive]
    TooManyNodes {
        /// The path, without the client's namespace.
        path: String,
        /// The limit, in bytes.
        max: usize,
    },
    /// Another process deleted this contender's own node: more often than the retry policy allows,
    /// or at least once if the deadline passed before the node was replaced. From
    /// [`QueuedLock::position`](crate::QueuedLock::position): the node has not been replaced yet.
    #[error("this client's node for the lock {path} was deleted {}", deleted(*times), path = Quoted(path))]
    #[non_exhaustive]
    NodeDeleted {
        /// The path, without the client's namespace.
        path: String,
        /// How often.
        times: u32,
    },
    /// The lock was granted, but its lease ended before the caller had the guard: the future was
    /// not polled in that time, or the lease is shorter than the time from the grant to the caller.
    ///
    /// The lock is released. If time is left, the call acquires the lock again, at most three
    /// times, before it returns this error.
    #[error(
        "the lock {path} was granted, and its lease was over before the caller had it: poll the future, \
         or ask for a longer lease",
        path = Quoted(path)
    )]
    #[non_exhaustive]
    LeaseOver {
        /// The path, without the client's namespace.
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
        /// The path, without the client's namespace.
        path: String,
    },
    /// The call requested more permits than the limit of the semaphore. A call that waits also ends
    /// with this error if the limit is lower than the requested number when the call becomes first
    /// in the queue.
    #[error("{asked} permits were asked for at the semaphore {path}, whose limit is {limit}", path = Quoted(path))]
    #[non_exhaustive]
    TooManyPermits {
        /// The path, without the client's namespace.
        path: String,
        /// The number of permits that were asked for.
        asked: u32,
        /// The limit.
        limit: u32,
    },
    /// The permits are too many for one call, although the limit of the semaphore allows them: one
    /// transaction takes all of them, and ZooKeeper refuses requests over 1 MiB. Acquire fewer at
    /// once and [merge](crate::SemaphorePermit::merge) them, or use less
    /// [data](crate::RecipeBuilder::data).
    #[error(
        "{asked} permits were asked for at once at the semaphore {path}, and one request to ZooKeeper has room \
         for {most}: acquire fewer at once, or with less data",
        path = Quoted(path)
    )]
    #[non_exhaustive]
    TooManyAtOnce {
        /// The path, without the client's namespace.
        path: String,
        /// The number of permits that were asked for.
        asked: u32,
        /// The number of permits that one call can acquire, with this path, ACL and data.
        most: u32,
    },
    /// Zero permits were requested.
    #[error("no permits were asked for at the semaphore {path}: ask for one at least", path = Quoted(path))]
    #[non_exhaustive]
    ZeroPermits {
        /// The path, without the client's namespace.
        path: String,
    },
}

impl AcquireError {
    /// Returns the kind of the request that failed; `None` for the other variants.
    #[must_use]
    pub fn kind(&self) -> Option<ErrorKind> {
        match self {
            Self::Request(error) => Some(error.kind()),
            _ => None,
        }
    }

    /// Returns `true` if the same call may succeed later with nothing else changed, and does
    /// nothing twice.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Request(error) => error.is_retryable(),
            Self::TimedOut { .. }
            | Self::TooManyWaiters { .. }
            | Self::TooManyWatches { .. }
            | Self::TooManyNodes { .. }
            | Self::NodeDeleted { .. }
            | Self::LeaseOver { .. } => true,
            Self::Orphaned { .. }
            | Self::InvalidLease { .. }
            | Self::TooManyPermits { .. }
            | Self::TooManyAtOnce { .. }
            | Self::ZeroPermits { .. } => false,
        }
    }

    /// Returns the path that the error is about, without the client's namespace.
    #[must_use]
    pub fn path(&self) -> &str {
        match self {
            Self::Request(error) => error.path(),
            Self::TimedOut { path, .. }
            | Self::Orphaned { path, .. }
            | Self::TooManyWaiters { path, .. }
            | Self::TooManyWatches { path, .. }
            | Self::TooManyNodes { path, .. }
            | Self::NodeDeleted { path, .. }
            | Self::LeaseOver { path, .. }
            | Self::InvalidLease { path, .. }
            | Self::TooManyPermits { path, .. }
            | Self::TooManyAtOnce { path, .. }
            | Self::ZeroPermits { path, .. } => path,
        }
    }
}

debug_as_text!(AcquireError(Request) {
    TimedOut,
    Orphaned,
    TooManyWaiters,
    TooManyWatches,
    TooManyNodes,
    NodeDeleted,
    LeaseOver,
    InvalidLease,
    TooManyPermits,
    TooManyAtOnce,
    ZeroPermits
});

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
///     // The lock could not be requested: the same errors as those of `acquire`.
///     Err(TryLockError::Acquire(error)) => return Err(error.into()),
///     Err(error) => return Err(error.into()),
/// }
/// # guard.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum TryLockError {
    /// The lock could not be requested.
    #[error(transparent)]
    Acquire(#[from] AcquireError),
    /// The lock is held, or another contender is ahead in its queue.
    #[error("the lock {path} is not free: {contention}", path = Quoted(path))]
    #[non_exhaustive]
    WouldBlock {
        /// The path, without the client's namespace.
        path: String,
        /// The contenders that are ahead.
        contention: Contention,
    },
}

impl TryLockError {
    /// Returns the kind of the request that failed; `None` for the other variants.
    #[must_use]
    pub fn kind(&self) -> Option<ErrorKind> {
        match self {
            Self::Acquire(error) => error.kind(),
            Self::WouldBlock { .. } => None,
        }
    }

    /// Returns `true` if the same call may succeed later with nothing else changed, and does
    /// nothing twice.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Acquire(error) => error.is_retryable(),
            Self::WouldBlock { .. } => true,
        }
    }

    /// Returns the path that the error is about, without the client's namespace.
    #[must_use]
    pub fn path(&self) -> &str {
        match self {
            Self::Acquire(error) => error.path(),
            Self::WouldBlock { path, .. } => path,
        }
    }
}

debug_as_text!(TryLockError(Acquire) { WouldBlock });

impl TryLockError {
    /// Returns the error of a call with a timeout that has waited for `waited`.
    pub(crate) fn timed_out(self, timeout: Duration, waited: Duration) -> AcquireError {
        match self {
            Self::WouldBlock { path, contention } => AcquireError::TimedOut {
                path,
                timeout,
                waited,
                contention,
            },
            Self::Acquire(error) => error,
        }
    }
}

/// Used by functions that read the queue of a lock, and then try to acquire the lock.
impl From<Error> for TryLockError {
    fn from(error: Error) -> Self {
        Self::Acquire(error.into())
    }
}
