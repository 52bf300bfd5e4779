//! How a lock was lost.

use std::fmt;
use std::sync::Arc;

use thiserror::Error;

use crate::shown::{Quoted, debug_as_text};

/// The lock is no longer ours, although its guard is still there.
#[derive(Clone, PartialEq, Eq, Error)]
#[error("the lock {path} is lost: {reason}", path = Quoted(.path))]
pub struct Lost {
    pub(crate) path: Arc<str>,
    pub(crate) reason: LostReason,
}

impl Lost {
    /// How it was lost.
    #[must_use]
    pub fn reason(&self) -> LostReason {
        self.reason
    }

    /// The lock's path.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }
}

/// How a lock was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LostReason {
    /// The servers, or this client on their behalf, ended the session because they had not heard of each other
    /// for the session timeout.
    SessionExpired,
    /// A server gave this client another session than the one that holds the lock.
    SessionReplaced,
    /// Somebody deleted the lock node.
    NodeDeleted,
    /// No server has proved for too long that the session lives: the lock may have been given to somebody else.
    /// The session may have survived. Then nobody else gets the lock before the last guard is dropped or released, or
    /// the session timeout has passed since the last proof, whichever comes first.
    LeaseExpired,
    /// The client was closed, or the session that it borrowed was.
    Closed,
    /// ZooKeeper refused to delete a node of a conversion ([`try_upgrade`](crate::ReadGuard::try_upgrade),
    /// [`downgrade`](crate::WriteGuard::downgrade)), or to say which of its two nodes there is: what the lock is held as
    /// cannot be told. Its nodes are deleted, or stay until the session ends where that is refused as well.
    NotConverted,
}

impl fmt::Display for LostReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SessionExpired => "its session expired",
            Self::SessionReplaced => "a server replaced its session by another",
            Self::NodeDeleted => "somebody deleted its node",
            Self::LeaseExpired => "no server has answered for too long to be sure of it",
            Self::Closed => "its client was closed",
            Self::NotConverted => "ZooKeeper refused a request of its conversion",
        })
    }
}

debug_as_text!(Lost);
