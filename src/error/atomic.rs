//! Why a counter was not changed, or not read.

use std::time::Duration;

use super::request::{Cause, Error, ErrorKind};
use crate::values::shown::{Quoted, debug_as_text, why};

/// Error of a [`DistributedAtomicLong`](crate::DistributedAtomicLong).
///
/// After [`Unknown`](Self::Unknown) the change may or may not have been made; after any other error
/// it was not made, and will not be. (After any error of
/// [`next_id`](crate::DistributedAtomicLong::next_id), numbers that were not returned may be
/// missing from the sequence.)
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zookeeper_test_server::Server::start()?;
/// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
/// use zookeeper_recipes::{AtomicLongError, DistributedAtomicLong};
///
/// let seats = DistributedAtomicLong::new(&client, "/concert/seats")?;
/// seats.set(i64::MAX).await?;
/// match seats.increment().await {
///     Ok(value) => panic!("{value} is no number of 64 bits"),
///     Err(AtomicLongError::Overflow { value, delta, .. }) => assert_eq!((value, delta), (i64::MAX, 1)),
///     // It may have been added. Do not add it again, and do not use a number.
///     Err(AtomicLongError::Unknown { path, .. }) => eprintln!("{path}: read it again before going on"),
///     // No server answered, or too many others changed it: try again later.
///     Err(error) if error.is_retryable() => eprintln!("{}: {error}", error.path()),
///     Err(error) => return Err(error.into()),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum AtomicLongError {
    /// A request failed, or was not sent. The change was not made, and will not be.
    ///
    /// Of the kind [`NoAuth`](ErrorKind::NoAuth) if this client lacks READ and WRITE on the node,
    /// or, if it is missing, CREATE on the nearest directory above it that exists.
    #[error(transparent)]
    Request(#[from] Error),
    /// The answer to the write was lost, and it can no longer be found out whether the write was
    /// committed, because the counter has changed since, or no server has answered. The change was
    /// made, was not made, or, if no server has answered, may still be made. Do not use the number
    /// that the change would have returned.
    #[error(
        "it is unknown whether the counter {path} was changed, so read it again before you go on: {}",
        why(source),
        path = Quoted(path)
    )]
    #[non_exhaustive]
    Unknown {
        /// The path, without the client's namespace.
        path: String,
        /// The error of the connection.
        source: Cause,
    },
    /// Others changed the counter before each of 30 tries, or kept deleting it.
    #[error("others kept changing the counter {path} for {waited:?}", path = Quoted(path))]
    #[non_exhaustive]
    Contended {
        /// The path, without the client's namespace.
        path: String,
        /// The time that the call took.
        waited: Duration,
    },
    /// The new value would not fit into 64 bits.
    #[error("the counter {path} is {value}: adding {delta} overflows", path = Quoted(path))]
    #[non_exhaustive]
    Overflow {
        /// The path, without the client's namespace.
        path: String,
        /// The counter's value.
        value: i64,
        /// The number to be added.
        delta: i128,
    },
    /// The node's data is not that of a counter, which has eight bytes (or no data, which means 0).
    /// Curator's `SharedCount` and `DistributedAtomicInteger` have four bytes, and a Java process
    /// may use such a node. Delete the node only if no process uses it.
    #[error(
        "the node {path} is no counter: its data has {bytes} bytes, not 8{owner}; use another path",
        path = Quoted(path),
        owner = likely_owner(*bytes)
    )]
    #[non_exhaustive]
    NotACounter {
        /// The path, without the client's namespace.
        path: String,
        /// The length of the data, in bytes.
        bytes: usize,
    },
    /// The servers may delete the node by themselves: an ephemeral node, or a directory (without
    /// data, with children now or before), which for a lock or another counter is a container. The
    /// counter would then start again, and return the same numbers.
    #[error(
        "the node {path} cannot be a counter: it is a directory or an ephemeral node, which the servers \
         may delete; use another path",
        path = Quoted(path)
    )]
    #[non_exhaustive]
    NotPersistent {
        /// The path, without the client's namespace.
        path: String,
    },
    /// The node was changed 2^32 - 1 times, and its version is -1, which in a request means any
    /// version, so no write could detect whether another came first. Stop all processes that use
    /// the counter, and set its node to the same data by hand, which makes the version 0.
    #[error(
        "the versions of the counter {path} are used up: stop its users, and set its node to the same \
         data by hand",
        path = Quoted(path)
    )]
    #[non_exhaustive]
    VersionsUsedUp {
        /// The path, without the client's namespace.
        path: String,
    },
}

/// Returns who is likely to have written data of this length, for the message.
fn likely_owner(bytes: usize) -> &'static str {
    if bytes == 4 {
        ", like a SharedCount or DistributedAtomicInteger of Curator"
    } else {
        ""
    }
}

impl AtomicLongError {
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
            Self::Contended { .. } => true,
            Self::Unknown { .. }
            | Self::Overflow { .. }
            | Self::NotACounter { .. }
            | Self::NotPersistent { .. }
            | Self::VersionsUsedUp { .. } => false,
        }
    }

    /// Returns the path that the error is about, without the client's namespace.
    #[must_use]
    pub fn path(&self) -> &str {
        match self {
            Self::Request(error) => error.path(),
            Self::Unknown { path, .. }
            | Self::Contended { path, .. }
            | Self::Overflow { path, .. }
            | Self::NotACounter { path, .. }
            | Self::NotPersistent { path, .. }
            | Self::VersionsUsedUp { path, .. } => path,
        }
    }
}

debug_as_text!(AtomicLongError(Request) {
    Unknown,
    Contended,
    Overflow,
    NotACounter,
    NotPersistent,
    VersionsUsedUp
});
