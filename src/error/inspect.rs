//! Why a lock, a semaphore or an election could not be looked at.

use thiserror::Error;

use super::acquire::{AcquireError, TryLockError};
use super::cause::{Cause, credentials};
use crate::path::NodePath;
use crate::shown::{Quoted, debug_as_text};

/// Error of looking at a lock, a semaphore or an election without acquiring anything: of `participants`,
/// `queue`, `holders`, `queue_len`, `is_locked`, `limit`, `available_permits` and `leader`.
///
/// It converts into [`AcquireError`] and [`TryLockError`], for a function that looks and then acquires.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zookeeper_test_server::Server::start()?;
/// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
/// use zookeeper_recipes::{InspectError, InterProcessMutex};
///
/// let mutex = InterProcessMutex::new(&client, "/inventory/sku-42")?;
/// # client.close().await?;
/// match mutex.queue().await {
///     Ok(queue) => println!("{} contenders", queue.len()),
///     Err(InspectError::Closed { path, .. }) => assert_eq!(path, "/inventory/sku-42"),
///     // No server answered: try again later.
///     Err(error) if error.is_retryable() => eprintln!("{}: {error}", error.path()),
///     // A missing permission ..: work for an administrator.
///     Err(error) => return Err(error.into()),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Error)]
#[non_exhaustive]
pub enum InspectError {
    /// No server answered for as long as the retry policy allows. The source is what failed last.
    #[error("no ZooKeeper server answered a request about {path}", path = Quoted(path))]
    #[non_exhaustive]
    Connection {
        /// The path of the lock, the semaphore or the election.
        path: String,
        /// What failed last.
        #[source]
        source: Cause,
    },
    /// An ACL denies this client READ: that of the directory, of a contender's node, or of the node that
    /// stores a semaphore's limit.
    #[error(
        "no permission to look at {path}: the ACL of {node} needs READ for this client{}",
        credentials(*has_credentials), path = Quoted(path), node = Quoted(node)
    )]
    #[non_exhaustive]
    NoAuth {
        /// The path of the lock, the semaphore or the election.
        path: String,
        /// The path of the node whose ACL denies it, without the client's namespace.
        node: String,
        /// Whether this client has credentials ([`ClientBuilder::auth`](crate::ClientBuilder::auth)). `None`
        /// for a borrowed session and for a connector, which may have credentials of their own.
        has_credentials: Option<bool>,
    },
    /// The directory holds contenders of another recipe, which queue by other rules: there is no one queue to
    /// return, and none of them has left within 1 s. Use a path of its own for each recipe.
    #[error(
        "{path} is in use by another recipe: its node {node} queues by other rules; use a path of its own \
         for each recipe",
        path = Quoted(path), node = Quoted(node)
    )]
    #[non_exhaustive]
    MixedRecipes {
        /// The path of the lock, the semaphore or the election.
        path: String,
        /// One of the other recipe's nodes.
        node: NodePath,
    },
    /// More than 2^31 nodes were created in the directory, whose order is not certain any more. Stop all
    /// contenders and delete the directory, which starts the numbers again.
    #[error(
        "the sequence numbers of {path} are used up: stop its contenders and delete the directory",
        path = Quoted(path)
    )]
    #[non_exhaustive]
    SequenceExhausted {
        /// The path of the lock, the semaphore or the election.
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
    /// The server refused a request, for a reason that a retry does not change.
    #[error("ZooKeeper refused a request about {path}", path = Quoted(path))]
    #[non_exhaustive]
    Rejected {
        /// The path of the lock, the semaphore or the election.
        path: String,
        /// What the server said.
        #[source]
        source: Cause,
    },
    /// The servers refused the client's credentials; the client is closed.
    #[error(
        "cannot look at {path}: ZooKeeper refused the client's credentials; connect another client",
        path = Quoted(path)
    )]
    #[non_exhaustive]
    AuthFailed {
        /// The path of the lock, the semaphore or the election.
        path: String,
    },
    /// The client was closed, or the session that it borrowed has ended.
    #[error("cannot look at {path}: its client is closed; connect another", path = Quoted(path))]
    #[non_exhaustive]
    Closed {
        /// The path of the lock, the semaphore or the election.
        path: String,
    },
}

impl InspectError {
    /// Returns `true` if the same call may succeed later with nothing else changed: after
    /// [`Connection`](Self::Connection).
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Connection { .. })
    }

    /// Returns the path of the lock, the semaphore or the election, without the client's namespace.
    #[must_use]
    pub fn path(&self) -> &str {
        match self {
            Self::Connection { path, .. }
            | Self::NoAuth { path, .. }
            | Self::MixedRecipes { path, .. }
            | Self::SequenceExhausted { path }
            | Self::LimitMismatch { path, .. }
            | Self::InvalidLimit { path, .. }
            | Self::Rejected { path, .. }
            | Self::AuthFailed { path }
            | Self::Closed { path } => path,
        }
    }
}

/// An attempt to acquire looks too: what it cannot see ends it.
impl From<InspectError> for AcquireError {
    fn from(error: InspectError) -> Self {
        match error {
            InspectError::Connection { path, source } => Self::Connection { path, source },
            InspectError::NoAuth { path, node, has_credentials } => {
                Self::NoAuth { path, node, has_credentials }
            }
            InspectError::MixedRecipes { path, node } => Self::MixedRecipes { path, node },
            InspectError::SequenceExhausted { path } => Self::SequenceExhausted { path },
            InspectError::LimitMismatch { path, ours, theirs, node } => {
                Self::LimitMismatch { path, ours, theirs, node }
            }
            InspectError::InvalidLimit { path, node, found } => Self::InvalidLimit { path, node, found },
            InspectError::Rejected { path, source } => Self::Rejected { path, source },
            InspectError::AuthFailed { path } => Self::AuthFailed { path },
            InspectError::Closed { path } => Self::Closed { path },
        }
    }
}

impl From<InspectError> for TryLockError {
    fn from(error: InspectError) -> Self {
        Self::Acquire(error.into())
    }
}

debug_as_text!(InspectError {
    Connection,
    NoAuth,
    MixedRecipes,
    SequenceExhausted,
    LimitMismatch,
    InvalidLimit,
    Rejected,
    AuthFailed,
    Closed
});
