//! Why a contender was not removed from a lock's queue.

use thiserror::Error;

use super::cause::Cause;
use crate::path::NodePath;
use crate::shown::{Quoted, debug_as_text};

/// Error of [`break_lock`](crate::InterProcessMutex::break_lock): the contender may still be in the queue.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zookeeper_test_server::Server::start()?;
/// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
/// use zookeeper_recipes::{BreakError, InterProcessMutex};
///
/// let mutex = InterProcessMutex::new(&client, "/inventory/sku-42")?;
/// let guard = mutex.lock().await?;
/// let holders = mutex.holders().await?;
///
/// let other = InterProcessMutex::new(&client, "/inventory/sku-43")?;
/// let error = other.break_lock(&holders[0]).await.unwrap_err();
/// assert!(matches!(error, BreakError::OtherLock { .. }) && !error.is_retryable());
/// assert_eq!((error.path(), error.node()), ("/inventory/sku-43", &guard.node()));
/// # guard.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Error)]
#[non_exhaustive]
pub enum BreakError {
    /// The contender is in the queue of another lock. Nothing was sent.
    #[error(
        "the node {node} is in no queue of the lock {path}: call `break_lock` of the lock that returned it",
        node = Quoted(node), path = Quoted(path)
    )]
    #[non_exhaustive]
    OtherLock {
        /// The path of the lock that was asked.
        path: String,
        /// The path of the contender's node.
        node: NodePath,
    },
    /// An ACL denies this client to delete the node: that of the directory in which the node is.
    #[error(
        "no permission to delete the node {node} of the lock {path}: the ACL of the directory in which it is \
         needs DELETE for this client",
        node = Quoted(node), path = Quoted(path)
    )]
    #[non_exhaustive]
    NoAuth {
        /// The lock's path.
        path: String,
        /// The path of the contender's node.
        node: NodePath,
    },
    /// The server refused to delete the node, for a reason that a retry does not change.
    #[error(
        "ZooKeeper refused to delete the node {node} of the lock {path}",
        node = Quoted(node), path = Quoted(path)
    )]
    #[non_exhaustive]
    Refused {
        /// The lock's path.
        path: String,
        /// The path of the contender's node.
        node: NodePath,
        /// What the server said.
        #[source]
        source: Cause,
    },
    /// No server answered for as long as the retry policy allows, or the node was written to again and again.
    /// The node may have been deleted.
    #[error(
        "it is not known whether the node {node} of the lock {path} was deleted: no ZooKeeper server answered",
        node = Quoted(node), path = Quoted(path)
    )]
    #[non_exhaustive]
    Connection {
        /// The lock's path.
        path: String,
        /// The path of the contender's node.
        node: NodePath,
        /// What failed last.
        #[source]
        source: Cause,
    },
    /// The client is closed.
    #[error(
        "cannot delete the node {node} of the lock {path}: the client is closed",
        node = Quoted(node), path = Quoted(path)
    )]
    #[non_exhaustive]
    Closed {
        /// The lock's path.
        path: String,
        /// The path of the contender's node.
        node: NodePath,
    },
}

impl BreakError {
    /// Returns `true` if the same call may succeed later with nothing else changed: after
    /// [`Connection`](Self::Connection).
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Connection { .. })
    }

    /// Returns the lock's path, without the client's namespace.
    #[must_use]
    pub fn path(&self) -> &str {
        match self {
            Self::OtherLock { path, .. }
            | Self::NoAuth { path, .. }
            | Self::Refused { path, .. }
            | Self::Connection { path, .. }
            | Self::Closed { path, .. } => path,
        }
    }

    /// Returns the path of the contender's node, without the client's namespace.
    #[must_use]
    pub fn node(&self) -> &NodePath {
        match self {
            Self::OtherLock { node, .. }
            | Self::NoAuth { node, .. }
            | Self::Refused { node, .. }
            | Self::Connection { node, .. }
            | Self::Closed { node, .. } => node,
        }
    }
}

debug_as_text!(BreakError { OtherLock, NoAuth, Refused, Connection, Closed });
