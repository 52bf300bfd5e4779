//! Why a release, a flush or a close did not report success.

use std::time::Duration;

use thiserror::Error;

use super::cause::Cause;
use super::lost::Lost;
use crate::shown::{Quoted, debug_as_text};

fn and_others(others: usize) -> String {
    match others {
        0 => String::new(),
        1 => " and another one".to_owned(),
        _ => format!(" and {others} others"),
    }
}

/// Why a release, a [`flush`](crate::Client::flush) or a [`close`](crate::Client::close) could not report success.
/// The lock is not kept by any of these: what is left is deleted in the background or ends with the session.
#[derive(Clone, Error)]
#[non_exhaustive]
pub enum ReleaseError {
    /// The lock had been lost before the release: what was done under it since may have overlapped with another
    /// holder.
    #[error("the lock {} was released too late: {}", Quoted(_0.path()), _0.reason())]
    Lost(#[from] Lost),
    /// The servers refuse the deletion: the ACL of the lock's directory lacks DELETE for this client. The node stays until
    /// the session ends, and keeps the lock from all others.
    #[error("ZooKeeper refuses to delete the node {node}{}; it stays until the session ends", and_others(*others), node = Quoted(node))]
    Refused {
        /// The lock node.
        node: String,
        /// How many other nodes it refuses to delete; of a release always 0.
        others: usize,
        /// What the server said.
        #[source]
        source: Cause,
    },
    /// Not everything could be confirmed in time; it goes on in the background.
    #[error("{nodes} lock nodes are not confirmed to be gone after {waited:?}")]
    TimedOut {
        /// How many: one for each lock, or attempt to get it, that has left something, and those whose deletion was
        /// refused before and has been asked for again.
        nodes: usize,
        /// The time that was given.
        waited: Duration,
    },
    /// The session could not be closed in time; the servers end it, and its nodes, when it expires.
    #[error(
        "no server confirmed the end of the session within {waited:?}; it ends, with its nodes, when it expires"
    )]
    SessionNotClosed {
        /// How long was waited.
        waited: Duration,
    },
}

impl ReleaseError {
    /// Whether the same call may succeed later without anything else being changed: a [`flush`](crate::Client::flush)
    /// that ran out of time may. A release has happened by its call, and a [`close`](crate::Client::close) answers the
    /// same again, so there is nothing to repeat in the other cases.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::TimedOut { .. })
    }
}

debug_as_text!(ReleaseError);
