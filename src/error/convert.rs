//! Why a read-write lock was not converted.

use std::fmt;

use thiserror::Error;

use super::lost::Lost;
use super::request::{Error, ErrorKind};
use crate::values::shown::{Quoted, why};

/// Error of converting a guard of a read-write lock; hands the guard back.
///
/// The guard holds the same lock as before, unless that is [lost](Self::Lost).
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zookeeper_test_server::Server::start()?;
/// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
/// use zookeeper_recipes::{ConversionError, InterProcessReadWriteLock};
///
/// let lock = InterProcessReadWriteLock::new(&client, "/catalog")?;
/// let reader = lock.read_lock().lock().await?;
/// let other = lock.read_lock().lock().await?;
///
/// // An upgrade needs every other reader to be gone.
/// let reader = match reader.try_upgrade().await {
///     Err(ConversionError::Contended { guard, .. }) => guard, // still holds the read lock
///     Err(error) => return Err(error.into()),
///     Ok(_) => panic!("another reader holds the lock"),
/// };
///
/// other.release().await?;
/// let writer = reader.try_upgrade().await?;
/// writer.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Error)]
#[non_exhaustive]
pub enum ConversionError<G> {
    /// Other guards share the hold ([`reenter`](crate::LockGuard::reenter),
    /// [`reenter_as_reader`](crate::WriteGuard::reenter_as_reader)). Waiting for them could be
    /// waiting for the caller itself: release them first.
    #[error(
        "the lock {path} was not converted: other guards share this hold, release them first",
        path = Quoted(path)
    )]
    #[non_exhaustive]
    WouldDeadlock {
        /// The guard as it was before the call.
        guard: G,
        /// The lock's path.
        path: String,
    },
    /// Another reader may hold the lock, another conversion is under way, or one has left a node
    /// that could not be deleted and stays until its session ends.
    #[error("the lock {path} was not converted: another reader may hold it", path = Quoted(path))]
    #[non_exhaustive]
    Contended {
        /// The guard as it was before the call.
        guard: G,
        /// The lock's path.
        path: String,
    },
    /// The lock is lost.
    #[error("the lock {} was not converted: {}", Quoted(source.path()), source.reason())]
    #[non_exhaustive]
    Lost {
        /// The guard of the lost lock.
        guard: G,
        /// How it was lost.
        source: Lost,
    },
    /// The servers refused a request of the conversion.
    #[error("the lock {} was not converted: {}", Quoted(source.path()), why(source))]
    #[non_exhaustive]
    Request {
        /// The guard as it was before the call.
        guard: G,
        /// The request that failed.
        source: Error,
    },
}

impl<G> ConversionError<G> {
    /// Hands another guard back.
    pub(crate) fn map<H>(self, into: impl FnOnce(G) -> H) -> ConversionError<H> {
        match self {
            Self::WouldDeadlock { guard, path } => ConversionError::WouldDeadlock {
                guard: into(guard),
                path,
            },
            Self::Contended { guard, path } => ConversionError::Contended {
                guard: into(guard),
                path,
            },
            Self::Lost { guard, source } => ConversionError::Lost {
                guard: into(guard),
                source,
            },
            Self::Request { guard, source } => ConversionError::Request {
                guard: into(guard),
                source,
            },
        }
    }

    /// Returns the guard as it was before the call.
    #[must_use]
    pub fn into_guard(self) -> G {
        match self {
            Self::WouldDeadlock { guard, .. }
            | Self::Contended { guard, .. }
            | Self::Lost { guard, .. }
            | Self::Request { guard, .. } => guard,
        }
    }

    /// Returns the kind of the request that failed; `None` of the other variants.
    #[must_use]
    pub fn kind(&self) -> Option<ErrorKind> {
        match self {
            Self::Request { source, .. } => Some(source.kind()),
            _ => None,
        }
    }

    /// Returns the lock's path, without the client's namespace.
    #[must_use]
    pub fn path(&self) -> &str {
        match self {
            Self::WouldDeadlock { path, .. } | Self::Contended { path, .. } => path,
            Self::Lost { source, .. } => source.path(),
            Self::Request { source, .. } => source.path(),
        }
    }

    /// Returns `true` if the same conversion may succeed later with nothing else changed: after
    /// [`Contended`](Self::Contended).
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Contended { .. } => true,
            Self::Request { source, .. } => source.is_retryable(),
            Self::WouldDeadlock { .. } | Self::Lost { .. } => false,
        }
    }
}

impl<G: fmt::Debug> fmt::Debug for ConversionError<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, guard): (_, &dyn fmt::Debug) = match self {
            Self::Request { guard, source } => {
                return write!(f, "ConversionError::Request({source:?}, {guard:?})");
            }
            Self::Lost { guard, source } => {
                return write!(f, "ConversionError::Lost({source:?}, {guard:?})");
            }
            Self::WouldDeadlock { guard, .. } => ("WouldDeadlock", guard),
            Self::Contended { guard, .. } => ("Contended", guard),
        };
        write!(f, "ConversionError::{name}({self}, {guard:?})")
    }
}
