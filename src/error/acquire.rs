//! Why a lock was not acquired.

use std::fmt;
use std::panic::Location;
use std::time::Duration;

use thiserror::Error;

use super::cause::Cause;
use crate::shown::{Quoted, debug_as_text};

/// Where and since when this process itself holds a lock; part of [`AcquireError::TimedOut`], because the
/// commonest cause of a timeout is a guard kept further up in the same program.
#[derive(Clone)]
pub struct LocalHolder {
    pub(crate) held_for: Duration,
    pub(crate) location: &'static Location<'static>,
}

impl LocalHolder {
    /// For how long it had been held when the error was made.
    #[must_use]
    pub fn held_for(&self) -> Duration {
        self.held_for
    }

    /// The line of the call that acquired it.
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
fn in_the_way(ahead: usize, first: Option<&str>, holder: Option<&LocalHolder>) -> String {
    let mut text = String::new();
    if ahead > 1 {
        text.push_str(&format!(", {ahead} contenders are ahead"));
    }
    if let Some(first) = first {
        text.push_str(&format!(", the first is {}", Quoted(first)));
    }
    if let Some(holder) = holder {
        text.push_str(&format!(": {holder}"));
    }
    text
}

/// What a client needs of the ACL of `node`, to have the lock `path`.
fn needed(path: &str, node: &str, has_credentials: Option<bool>) -> String {
    let shown = Quoted(node);
    let mut text = if node == path {
        "its directory needs CREATE, DELETE and READ for this client".to_owned()
    } else if node.starts_with(path) {
        format!("the node before ours, {shown}, needs READ for this client")
    } else {
        format!("the directory {shown}, or the nearest above it that exists, needs CREATE for this client")
    };
    text.push_str(match has_credentials {
        Some(true) => ", which has credentials, but not the right ones",
        Some(false) => ", which has no credentials (`ClientBuilder::auth`)",
        None => "",
    });
    text
}

/// Why a lock was not acquired. Whatever the answer, nothing of the attempt keeps its place in the queue: a node
/// that could not be deleted yet is deleted in the background ([`Client::flush`](crate::Client::flush) waits
/// for it).
#[derive(Clone, Error)]
#[non_exhaustive]
pub enum AcquireError {
    /// The lock was not free in time: other live contenders were seen to hold it, or to be ahead in its queue. Time that
    /// passed without any seen is [`Connection`](Self::Connection).
    #[error("the lock {path} was not free within {timeout:?}{}", in_the_way(*ahead, first.as_deref(), holder.as_ref()), path = Quoted(path))]
    TimedOut {
        /// The lock's path.
        path: String,
        /// The time that was asked for; zero for a call that only asks.
        timeout: Duration,
        /// The time that passed.
        waited: Duration,
        /// How many contenders were known to be ahead: by the last list of the queue that this call got, or at least 1 where
        /// it needed none.
        ahead: usize,
        /// The path of the first of their nodes, without the client's namespace; `None` if the call needed no list, because
        /// it waited for another contender of this client.
        first: Option<String>,
        /// This client's own hold, if it is the one in the way.
        holder: Option<LocalHolder>,
    },
    /// No server answered, for as long as the retry policy allows or for the time given, whichever was shorter. The
    /// source says what there was no answer to.
    #[error("no ZooKeeper server to ask for the lock {path}", path = Quoted(path))]
    Connection {
        /// The lock's path.
        path: String,
        /// What the connection said last.
        #[source]
        source: Cause,
    },
    /// An ACL does not let this client in: that of the lock's directory, of one above it where the directory is missing, or of
    /// the predecessor's node, which has to be readable.
    #[error("no permission for the lock {path}: {}", needed(path, node, *has_credentials), path = Quoted(path))]
    NoAuth {
        /// The lock's path.
        path: String,
        /// The node whose ACL is in the way; where the lock's directory is missing, the one in which it, or a directory above
        /// it, would have to be created.
        node: String,
        /// Whether this client has credentials ([`ClientBuilder::auth`](crate::ClientBuilder::auth)); `None` if its session or
        /// connector was handed in, which may have credentials of its own.
        has_credentials: Option<bool>,
    },
    /// A node of this client is left in the lock's directory, which the servers refuse to delete, so that it keeps the
    /// lock from all contenders: the ACL of the directory lacks DELETE for this client. Grant it, or close the client. The
    /// deletion was asked for once more by this call.
    #[error(
        "the lock {path} is blocked by a node that this client left, {node}, and may not delete: grant it DELETE on the lock's directory, or close the client", path = Quoted(path), node = Quoted(node))]
    Orphaned {
        /// The lock's path.
        path: String,
        /// The node that is left.
        node: String,
        /// What the server said to its deletion.
        #[source]
        source: Cause,
    },
    /// The directory holds contenders of another recipe, which order themselves by other rules: both sides
    /// would be let in. Use a path of its own for each recipe.
    #[error(
        "the lock {path} is in use by another recipe: its node {node} does not queue with ours; use a path of its own", path = Quoted(path), node = Quoted(node))]
    MixedRecipes {
        /// The lock's path.
        path: String,
        /// One of the other recipe's nodes.
        node: String,
    },
    /// More than 2^31 nodes were created under the directory; from here on Java and Go clients sort new
    /// contenders before old ones. Stop all contenders and delete the directory, which starts the numbers again.
    #[error(
        "the sequence numbers of the lock {path} are used up: stop its contenders and delete the directory", path = Quoted(path))]
    SequenceExhausted {
        /// The lock's path.
        path: String,
    },
    /// A fair lock has as many waiters in this client as it may have: every one of them has a node, and a directory
    /// that is too large cannot be listed any more
    /// ([`max_waiters`](crate::InterProcessFairLockBuilder::max_waiters)).
    #[error("the fair lock {path} has {max} nodes of this client already, its limit: contenders, or nodes still being deleted", path = Quoted(path))]
    TooManyWaiters {
        /// The lock's path.
        path: String,
        /// The limit.
        max: usize,
    },
    /// The session watches as many nodes as it can (about 120 KiB of paths; one that watches more cannot reconnect).
    /// Wait for fewer locks at once, use shorter paths, or several clients.
    #[error("no wait for the lock {path}: this client's session watches as many nodes as it can", path = Quoted(path))]
    TooManyWatches {
        /// The lock's path.
        path: String,
    },
    /// Somebody deleted this contender's own node, again and again.
    #[error("the node of this contender for the lock {path} was deleted by somebody else {times} times", path = Quoted(path))]
    NodeDeleted {
        /// The lock's path.
        path: String,
        /// How often.
        times: u32,
    },
    /// The server refuses to create the node, for a reason that a retry will not change.
    #[error("ZooKeeper refuses a node for the lock {path}", path = Quoted(path))]
    Rejected {
        /// The lock's path.
        path: String,
        /// What the server said.
        #[source]
        source: Cause,
    },
    /// The servers refused the client's credentials: it is closed.
    #[error("no lock {path}: ZooKeeper refused the client's authentication", path = Quoted(path))]
    AuthFailed {
        /// The lock's path.
        path: String,
    },
    /// The client was closed, or the session that it borrowed has ended.
    #[error("no lock {path}: its client is closed", path = Quoted(path))]
    Closed {
        /// The lock's path.
        path: String,
    },
}

impl AcquireError {
    /// Whether the same call may succeed later without anything else being changed.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(
            self,
            Self::TimedOut { .. }
                | Self::Connection { .. }
                | Self::NodeDeleted { .. }
                | Self::TooManyWaiters { .. }
                | Self::TooManyWatches { .. }
        )
    }

    /// The lock's path.
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
            | Self::Rejected { path, .. }
            | Self::AuthFailed { path }
            | Self::Closed { path } => path,
        }
    }
}

/// Why `try_lock` did not answer with a guard.
#[derive(Clone, Error)]
#[non_exhaustive]
pub enum TryLockError {
    /// The lock is held, or another contender is ahead in its queue.
    #[error("the lock {path} is not free{}", in_the_way(1, first.as_deref(), holder.as_ref()), path = Quoted(path))]
    WouldBlock {
        /// The lock's path.
        path: String,
        /// The path of the first node in the queue, without the client's namespace; `None` if this client's own
        /// contenders have all its places and no server was asked.
        first: Option<String>,
        /// This client's own hold, if it is the one in the way.
        holder: Option<LocalHolder>,
    },
    /// The lock could not be asked for.
    #[error(transparent)]
    Acquire(#[from] AcquireError),
}

impl TryLockError {
    /// Whether the same call may succeed later without anything else being changed.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::WouldBlock { .. } => true,
            Self::Acquire(error) => error.is_retryable(),
        }
    }
}

debug_as_text!(AcquireError, TryLockError);
