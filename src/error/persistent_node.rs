//! Why a node does not exist, or why a group's members are not known.

use std::time::Duration;

use super::request::{Cause, Error, ErrorKind};
use crate::values::shown::{Quoted, debug_as_text, why};

/// Error of a [`PersistentNode`](crate::PersistentNode) and a [`GroupMember`](crate::GroupMember).
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zookeeper_test_server::Server::start()?;
/// # server.create("/services/web-1", b"by hand")?;
/// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
/// use std::time::Duration;
/// use zookeeper_recipes::{PersistentNode, PersistentNodeError};
///
/// // The name is taken.
/// let node = PersistentNode::new(&client, "/services/web-1", "10.0.0.7:80")?;
/// let error = node.wait_for_initial_create(Duration::from_millis(50)).await.unwrap_err();
/// assert!(matches!(error, PersistentNodeError::TimedOut { .. }) && error.is_retryable());
/// assert_eq!(error.path(), "/services/web-1");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum PersistentNodeError {
    /// A request failed, or was not sent.
    ///
    /// Of the kind [`NoAuth`](ErrorKind::NoAuth) if this client lacks CREATE on the directory, or
    /// the nearest one above it that exists, READ and WRITE on the node, or DELETE on the
    /// directory.
    #[error(transparent)]
    Request(#[from] Error),
    /// The node was not created in time. The client creates it once the obstacle is gone.
    #[error(
        "the node {path} was not created within {waited:?}{}{}",
        if *conflict { ": another node, or another handle of this client, has the path" } else { "" },
        source.as_ref().map(|source| format!(": {}", why(source))).unwrap_or_default(),
        path = Quoted(path)
    )]
    #[non_exhaustive]
    TimedOut {
        /// The path, without the client's namespace.
        path: String,
        /// How long the call has waited.
        waited: Duration,
        /// Whether the path has a node of another process, has a node that is not ephemeral, or is
        /// used by another handle of this client.
        conflict: bool,
        /// The last failure; `None` if there was none.
        source: Option<Cause>,
    },
    /// The paths of the session's nodes have reached the limit on their total size
    /// ([`max_ephemeral_bytes`](crate::ClientBuilder::max_ephemeral_bytes)). The client creates the
    /// node once there is room for it.
    #[error(
        "no room for the node {path}: the paths of this client's nodes have as many bytes as those of one \
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
    /// The data is too large for one request. The node keeps its old data.
    #[error("the node {path} cannot have {bytes} bytes of data: at most 1,000,000 fit", path = Quoted(path))]
    #[non_exhaustive]
    DataTooLarge {
        /// The path, without the client's namespace.
        path: String,
        /// The length of the data, in bytes.
        bytes: usize,
    },
    /// No server has confirmed that the node is deleted: the session ended before an answer came.
    /// The servers delete the node when they expire that session.
    #[error("no ZooKeeper server has confirmed the deletion of {path}; it goes when its session expires", path = Quoted(path))]
    #[non_exhaustive]
    NotConfirmed {
        /// The path, without the client's namespace.
        path: String,
    },
}

impl PersistentNodeError {
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
            Self::TimedOut { .. } | Self::TooManyNodes { .. } => true,
            Self::DataTooLarge { .. } | Self::NotConfirmed { .. } => false,
        }
    }

    /// Returns the path that the error is about, without the client's namespace.
    #[must_use]
    pub fn path(&self) -> &str {
        match self {
            Self::Request(error) => error.path(),
            Self::TimedOut { path, .. }
            | Self::TooManyNodes { path, .. }
            | Self::DataTooLarge { path, .. }
            | Self::NotConfirmed { path, .. } => path,
        }
    }
}

debug_as_text!(PersistentNodeError(Request) { TimedOut, TooManyNodes, DataTooLarge, NotConfirmed });
