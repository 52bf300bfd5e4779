//! Why a holder was not asked to release its lock.

use thiserror::Error;

use super::build::InvalidPath;
use super::cause::Cause;
use crate::shown::{Quoted, debug_as_text};

/// Why a holder could not be asked to give its lock back.
#[derive(Clone, Error)]
#[non_exhaustive]
pub enum RevokeError {
    /// The path is none.
    #[error(transparent)]
    InvalidPath(#[from] InvalidPath),
    /// No server answered, for as long as the retry policy allows; the request may have been written.
    #[error("no ZooKeeper server to ask for the node {node} back", node = Quoted(node))]
    Connection {
        /// The lock node.
        node: String,
        /// What the connection said last.
        #[source]
        source: Cause,
    },
    /// The server refuses to write to the node: its ACL lacks WRITE for this client.
    #[error("ZooKeeper refuses a request to the holder of the node {node}", node = Quoted(node))]
    Refused {
        /// The lock node.
        node: String,
        /// What the server said.
        #[source]
        source: Cause,
    },
    /// The client is closed.
    #[error("no request to the holder of {node}: the client is closed", node = Quoted(node))]
    Closed {
        /// The lock node.
        node: String,
    },
}

impl RevokeError {
    /// Whether the same call may succeed later without anything else being changed.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Connection { .. })
    }
}

debug_as_text!(RevokeError);
