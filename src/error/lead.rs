//! Why a participant of an election does not lead.

use thiserror::Error;

use super::acquire::AcquireError;
use crate::shown::{Quoted, debug_as_text};

/// Error of waiting to be the leader: this participant has left the election.
///
/// What passes by itself is none: while no server answers, a participant goes on trying.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zookeeper_test_server::Server::start()?;
/// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
/// use zookeeper_recipes::{LeadError, LeaderLatch};
///
/// let latch = LeaderLatch::start(&client, "/scheduler/leader")?;
/// latch.close().await?;
/// match latch.leadership().await {
///     Ok(leadership) => println!("leads with the token {}", leadership.fencing_token()),
///     Err(LeadError::Left { path, .. }) => assert_eq!(path, "/scheduler/leader"),
///     // A missing permission, a closed client ..: a bug, or work for an administrator.
///     Err(error) => return Err(error.into()),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Error)]
#[non_exhaustive]
pub enum LeadError {
    /// The latch was closed, or dropped.
    #[error("the latch {path} has left its election: start another", path = Quoted(path))]
    #[non_exhaustive]
    Left {
        /// The election's path.
        path: String,
    },
    /// The servers refuse what this participant needs, or the client is closed.
    #[error(transparent)]
    Acquire(#[from] AcquireError),
}

impl LeadError {
    /// Returns `false` of every error that a participant returns: what another try may change is tried again
    /// without an error.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Left { .. } => false,
            Self::Acquire(error) => error.is_retryable(),
        }
    }

    /// Returns the election's path, without the client's namespace.
    #[must_use]
    pub fn path(&self) -> &str {
        match self {
            Self::Left { path } => path,
            Self::Acquire(error) => error.path(),
        }
    }
}

debug_as_text!(LeadError { Left, Acquire });
