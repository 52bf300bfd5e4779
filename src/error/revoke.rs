//! Why a holder was not asked to release its lock.

use thiserror::Error;

use super::build::InvalidPath;
use super::cause::Cause;
use crate::path::NodePath;
use crate::shown::{Quoted, debug_as_text};

/// Error of [`Client::attempt_revoke`](crate::Client::attempt_revoke): the holder may not have got the
/// request.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zookeeper_test_server::Server::start()?;
/// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
/// use zookeeper_recipes::{NodePath, RevokeError};
///
/// let node: NodePath = "/locks/sku-42/lock-0000000007".parse()?;
/// client.close().await?;
/// let error = client.attempt_revoke(&node).await.unwrap_err();
/// assert!(matches!(error, RevokeError::Closed { .. }));
/// assert_eq!(error.path(), "/locks/sku-42/lock-0000000007");
/// assert!(!error.is_retryable());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Error)]
#[non_exhaustive]
pub enum RevokeError {
    /// The node path is invalid.
    #[error(transparent)]
    InvalidPath(#[from] InvalidPath),
    /// No server answered for as long as the retry policy allows. The request may have been written.
    #[error("no ZooKeeper server answered the request to revoke {node}", node = Quoted(node))]
    #[non_exhaustive]
    Connection {
        /// The path of the node.
        node: NodePath,
        /// What failed last.
        #[source]
        source: Cause,
    },
    /// The server refused to write the request into the node: the ACL of the node denies this client WRITE.
    #[error(
        "ZooKeeper refused to write the request to revoke {node} into that node: its ACL needs WRITE for \
         this client",
        node = Quoted(node)
    )]
    #[non_exhaustive]
    Refused {
        /// The path of the node.
        node: NodePath,
        /// What the server said.
        #[source]
        source: Cause,
    },
    /// The client is closed.
    #[error("cannot request to revoke {node}: the client is closed", node = Quoted(node))]
    #[non_exhaustive]
    Closed {
        /// The path of the node.
        node: NodePath,
    },
}

impl RevokeError {
    /// Returns `true` if the same call may succeed later with nothing else changed: after
    /// [`Connection`](Self::Connection).
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Connection { .. })
    }

    /// Returns the path of the node, as it was given.
    #[must_use]
    pub fn path(&self) -> &str {
        match self {
            Self::InvalidPath(invalid) => invalid.path(),
            Self::Connection { node, .. } | Self::Refused { node, .. } | Self::Closed { node } => node,
        }
    }
}

debug_as_text!(RevokeError { InvalidPath, Connection, Refused, Closed });
