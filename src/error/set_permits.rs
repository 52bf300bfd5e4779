//! Why the limit of a semaphore was not set.

use std::sync::Arc;

use thiserror::Error;

use super::cause::{Cause, credentials};
use super::inspect::InspectError;
use crate::shown::{Quoted, debug_as_text};

/// Error of [`InterProcessSemaphore::set_limit`](crate::InterProcessSemaphore::set_limit).
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zookeeper_test_server::Server::start()?;
/// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
/// use zookeeper_recipes::{InterProcessSemaphore, SetPermitsError};
///
/// let semaphore = InterProcessSemaphore::new(&client, "/partner/calls", 10)?;
/// match semaphore.set_limit(20_000).await {
///     Ok(()) => println!("the limit is set for all processes"),
///     Err(SetPermitsError::TooManyPermits { asked, limit, .. }) => assert!(asked > limit),
///     // No server answered: the limit may be set or not; set it again.
///     Err(error) if error.is_retryable() => eprintln!("{}: {error}", error.path()),
///     // A missing permission, a closed client ..: a bug, or work for an administrator.
///     Err(error) => return Err(error.into()),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Error)]
#[non_exhaustive]
pub enum SetPermitsError {
    /// The limit was to be zero. Nothing was sent.
    #[error("the limit of the semaphore {path} cannot be zero: set one of at least 1", path = Quoted(path))]
    #[non_exhaustive]
    ZeroPermits {
        /// The semaphore's path.
        path: String,
    },
    /// The limit was to be larger than the largest one. Nothing was sent.
    #[error("the limit of the semaphore {path} cannot be {asked}: the largest is {limit}", path = Quoted(path))]
    #[non_exhaustive]
    TooManyPermits {
        /// The semaphore's path.
        path: String,
        /// The limit that was asked for.
        asked: u32,
        /// The largest limit.
        limit: u32,
    },
    /// No server answered for as long as the retry policy allows: the limit may be set or not, and can be set
    /// again. The source is what failed last.
    #[error(
        "no ZooKeeper server confirmed the limit of the semaphore {path}: set it again",
        path = Quoted(path)
    )]
    #[non_exhaustive]
    Connection {
        /// The semaphore's path.
        path: String,
        /// What failed last.
        #[source]
        source: Cause,
    },
    /// An ACL denies this client WRITE on the node that stores the limit, or, if there is no such node, CREATE
    /// on the directory above it.
    #[error(
        "no permission to set the limit of the semaphore {path}: the ACL of {node} needs WRITE for this client, \
         or CREATE if the node with the limit does not exist{}",
        credentials(*has_credentials), path = Quoted(path), node = Quoted(node)
    )]
    #[non_exhaustive]
    NoAuth {
        /// The semaphore's path.
        path: String,
        /// The path of the node whose ACL denies it, without the client's namespace.
        node: String,
        /// Whether this client has credentials ([`ClientBuilder::auth`](crate::ClientBuilder::auth)). `None`
        /// for a borrowed session and for a connector, which may have credentials of their own.
        has_credentials: Option<bool>,
    },
    /// The server refused a request, for a reason that a retry does not change.
    #[error("ZooKeeper refused to set the limit of the semaphore {path}", path = Quoted(path))]
    #[non_exhaustive]
    Rejected {
        /// The semaphore's path.
        path: String,
        /// What the server said.
        #[source]
        source: Cause,
    },
    /// The servers refused the client's credentials; the client is closed.
    #[error(
        "cannot set the limit of the semaphore {path}: ZooKeeper refused the client's credentials; connect \
         another client",
        path = Quoted(path)
    )]
    #[non_exhaustive]
    AuthFailed {
        /// The semaphore's path.
        path: String,
    },
    /// The client was closed, or the session that it borrowed has ended. If that was during the call, the limit
    /// may be set or not.
    #[error(
        "cannot set the limit of the semaphore {path}: its client is closed; connect another",
        path = Quoted(path)
    )]
    #[non_exhaustive]
    Closed {
        /// The semaphore's path.
        path: String,
    },
}

impl SetPermitsError {
    /// Returns the error of a write that failed: the engine tells failures of all requests in one way.
    pub(crate) fn not_set(error: InspectError) -> Self {
        match error {
            InspectError::Connection { path, source } => Self::Connection { path, source },
            InspectError::NoAuth { path, node, has_credentials } => {
                Self::NoAuth { path, node, has_credentials }
            }
            InspectError::Rejected { path, source } => Self::Rejected { path, source },
            InspectError::AuthFailed { path } => Self::AuthFailed { path },
            InspectError::Closed { path } => Self::Closed { path },
            // Not expected: the write looks at no contenders, and at no limit.
            InspectError::MixedRecipes { .. }
            | InspectError::SequenceExhausted { .. }
            | InspectError::LimitMismatch { .. }
            | InspectError::InvalidLimit { .. } => {
                Self::Rejected { path: error.path().to_owned(), source: Arc::new(error) }
            }
        }
    }

    /// Returns `true` if the same call may succeed later with nothing else changed: after
    /// [`Connection`](Self::Connection).
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Connection { .. })
    }

    /// Returns the semaphore's path, without the client's namespace.
    #[must_use]
    pub fn path(&self) -> &str {
        match self {
            Self::ZeroPermits { path }
            | Self::TooManyPermits { path, .. }
            | Self::Connection { path, .. }
            | Self::NoAuth { path, .. }
            | Self::Rejected { path, .. }
            | Self::AuthFailed { path }
            | Self::Closed { path } => path,
        }
    }
}

debug_as_text!(SetPermitsError {
    ZeroPermits,
    TooManyPermits,
    Connection,
    NoAuth,
    Rejected,
    AuthFailed,
    Closed
});
