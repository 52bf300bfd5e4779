//! Why what a lock protects could not be read.

use thiserror::Error;

use super::build::InvalidPath;
use super::cause::{Cause, credentials};
use super::lost::Lost;
use crate::shown::{Quoted, debug_as_text};

/// Error of [`LockGuard::get_data`](crate::LockGuard::get_data).
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zookeeper_test_server::Server::start()?;
/// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
/// use zookeeper_recipes::{InterProcessMutex, ReadError};
///
/// let guard = InterProcessMutex::new(&client, "/locks/rates")?.lock().await?;
/// # server.delete(&guard.node())?;
/// # let _ = guard.transaction().check("/locks", None).commit().await;
/// // An administrator deletes the node of the lock.
/// match guard.get_data("/config/rates").await {
///     Ok(_) => panic!("the lock is lost"),
///     Err(ReadError::Lost(lost)) => assert_eq!(lost.path(), "/locks/rates"),
///     Err(error) if error.is_retryable() => eprintln!("no server answered: {error}"),
///     Err(error) => return Err(error.into()),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The lock is no longer held.
    #[error(transparent)]
    Lost(#[from] Lost),
    /// The path is invalid. Nothing was sent.
    #[error(transparent)]
    InvalidPath(#[from] InvalidPath),
    /// No server answered for as long as the retry policy allows.
    #[error("no ZooKeeper server answered the read of {path}", path = Quoted(path))]
    #[non_exhaustive]
    Connection {
        /// The path of the node.
        path: String,
        /// What failed last.
        #[source]
        source: Cause,
    },
    /// The ACL of the node denies this client READ.
    #[error(
        "no permission to read {path}: its ACL needs READ for this client{}",
        credentials(*has_credentials), path = Quoted(path)
    )]
    #[non_exhaustive]
    NoAuth {
        /// The path of the node.
        path: String,
        /// Whether this client has credentials ([`ClientBuilder::auth`](crate::ClientBuilder::auth)). `None`
        /// for a borrowed session and for a connector, which may have credentials of their own.
        has_credentials: Option<bool>,
    },
    /// The server refused the request, for a reason that a retry does not change.
    #[error("ZooKeeper refused the read of {path}", path = Quoted(path))]
    #[non_exhaustive]
    Rejected {
        /// The path of the node.
        path: String,
        /// What the server said.
        #[source]
        source: Cause,
    },
}

impl ReadError {
    /// Returns `true` if the same call may succeed later with nothing else changed: after
    /// [`Connection`](Self::Connection).
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Connection { .. })
    }

    /// Returns the path of the node, or, after [`Lost`](Self::Lost), that of the lock.
    #[must_use]
    pub fn path(&self) -> &str {
        match self {
            Self::Lost(lost) => lost.path(),
            Self::InvalidPath(invalid) => invalid.path(),
            Self::Connection { path, .. } | Self::NoAuth { path, .. } | Self::Rejected { path, .. } => path,
        }
    }
}

debug_as_text!(ReadError { Lost, InvalidPath, Connection, NoAuth, Rejected });
