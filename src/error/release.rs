//! Why a release, a flush, a close or a drain did not report success.

use std::time::Duration;

use thiserror::Error;

use super::holding::{Holding, listed};
use super::lost::Lost;
use super::request::Cause;
use crate::values::path::NodePath;
use crate::values::shown::{Quoted, debug_as_text, why};

fn and_others(others: usize) -> String {
    match others {
        0 => String::new(),
        1 => " and another one".to_owned(),
        _ => format!(" and {others} others"),
    }
}

/// Error of a release, or of a [`flush`](crate::Client::flush), [`close`](crate::Client::close) or
/// [`drain`](crate::Client::drain) of a client.
///
/// The guard does not hold the lock after any of these errors. Remaining nodes are deleted in the
/// background, or when the session ends. After the error of a close or a drain the client is
/// closed.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zookeeper_test_server::Server::start()?;
/// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
/// use zookeeper_recipes::{InterProcessMutex, LostReason, ReleaseError};
///
/// let guard = InterProcessMutex::new(&client, "/inventory/sku-42")?.lock().await?;
/// # server.expire_session(client.session_id().unwrap());
/// # guard.lost().await;
/// match guard.release().await {
///     Ok(()) => panic!("the session has expired meanwhile"),
///     // Another process may have held the lock already: check what was written under it.
///     Err(ReleaseError::Lost(lost)) => assert_eq!(lost.reason(), LostReason::SessionExpired),
///     Err(error) => return Err(error.into()),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Error)]
#[non_exhaustive]
pub enum ReleaseError {
    /// The lock was lost before the release, or its session ended before a server confirmed the
    /// release. In the first case, work since the loss may have overlapped with another holder; in
    /// the second case the lock was held until the release. To distinguish the two cases, call
    /// [`LockGuard::is_held`](crate::LockGuard::is_held) right before the release.
    #[error("the lock {} was released too late: {}", Quoted(_0.path()), _0.reason())]
    Lost(#[from] Lost),
    /// The servers refused to delete the node: the ACL of the lock's directory denies this client
    /// DELETE. The node blocks all other contenders until the session ends.
    #[error(
        "ZooKeeper refused to delete the node {node}{} ({}), which blocks the lock until the session ends: \
         grant this client DELETE on the lock's directory, or close the client",
        and_others(*others), why(source), node = Quoted(node)
    )]
    #[non_exhaustive]
    Refused {
        /// The path of the node.
        node: NodePath,
        /// The number of other nodes that the servers refused to delete; always 0 for a release.
        others: usize,
        /// The server's answer.
        source: Cause,
    },
    /// Not every deletion was confirmed in time; the rest continue in the background.
    #[error(
        "the deletion of {nodes} lock node(s) was not confirmed within {waited:?}; it goes on in the \
         background"
    )]
    #[non_exhaustive]
    TimedOut {
        /// The number of locks and attempts that have left a node, plus the number of nodes whose
        /// deletion was refused earlier and has been requested again.
        nodes: usize,
        /// The time that was given.
        waited: Duration,
    },
    /// No server confirmed in time that the sessions of this client are closed: the last one, and
    /// any that it gave up in an outage. They end, with their nodes, when they expire.
    #[non_exhaustive]
    #[error(
        "no server confirmed the end of the client's session within {waited:?}; it ends, with its nodes, when \
         it expires"
    )]
    SessionNotClosed {
        /// The time that passed.
        waited: Duration,
    },
    /// The timeout of a [`drain`](crate::Client::drain) passed before all guards were released. The
    /// client is closed nevertheless, and these locks are lost.
    #[error(
        "after {timeout:?} {} lock(s) were still held, and were lost with the client: {}; have the work under \
         them stop in time, or give it longer{}",
        held.len(), listed(held),
        source.as_ref().map(|source| format!("; {}", why(source))).unwrap_or_default()
    )]
    #[non_exhaustive]
    StillHeld {
        /// The time that was given.
        timeout: Duration,
        /// The locks, in the order of their paths; at least one.
        held: Vec<Holding>,
        /// The error of closing the client, if that failed too.
        source: Option<Cause>,
    },
}

impl ReleaseError {
    /// Returns `true` if the same call may succeed later with nothing else changed: a
    /// [`flush`](crate::Client::flush) that timed out. A release cannot be repeated, and
    /// [`close`](crate::Client::close) returns the same result again.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::TimedOut { .. })
    }

    /// Returns the path of the lock that was lost, of the first lock that is still held, or of the
    /// node that the servers refused to delete. `None` if the error is about all nodes of a client.
    #[must_use]
    pub fn path(&self) -> Option<&str> {
        match self {
            Self::Lost(lost) => Some(lost.path()),
            Self::Refused { node, .. } => Some(node),
            Self::StillHeld { held, .. } => held.first().map(Holding::path),
            Self::TimedOut { .. } | Self::SessionNotClosed { .. } => None,
        }
    }
}

debug_as_text!(ReleaseError {
    Lost,
    Refused,
    TimedOut,
    SessionNotClosed,
    StillHeld
});
