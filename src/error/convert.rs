//! Why a write lock was not converted into a read lock.

use std::fmt;

use thiserror::Error;

use super::lost::Lost;
use super::request::{Error, ErrorKind};
use crate::values::shown::{Quoted, why};

/// Error of converting a write guard into a read guard
/// ([`downgrade`](crate::WriteGuard::downgrade)). The error contains the guard.
///
/// The guard still holds the lock, unless the lock is [lost](Self::Lost).
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
/// let writer = lock.write_lock().lock().await?;
/// let other = writer.reenter()?;
///
/// // A downgrade needs every other guard of the hold to be gone.
/// let writer = match writer.downgrade().await {
///     Err(ConversionError::WouldDeadlock { guard, .. }) => guard, // still holds the write lock
///     Err(error) => return Err(error.into()),
///     Ok(_) => panic!("another guard shares the hold"),
/// };
///
/// drop(other);
/// let reader = writer.downgrade().await?;
/// reader.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Error)]
#[non_exhaustive]
pub enum ConversionError<G> {
    /// Other guards share the hold ([`reenter`](crate::LockGuard::reenter),
    /// [`reenter_as_reader`](crate::WriteGuard::reenter_as_reader)). The conversion does not wait
    /// for them, because the caller itself may hold them. Release them first.
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
    /// Converts the guard in the error to another type.
    pub(crate) fn map<H>(self, into: impl FnOnce(G) -> H) -> ConversionError<H> {
        match self {
            Self::WouldDeadlock { guard, path } => ConversionError::WouldDeadlock {
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
            | Self::Lost { guard, .. }
            | Self::Request { guard, .. } => guard,
        }
    }

    /// Returns the kind of the request that failed; `None` for the other variants.
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
            Self::WouldDeadlock { path, .. } => path,
            Self::Lost { source, .. } => source.path(),
            Self::Request { source, .. } => source.path(),
        }
    }

    /// Returns `true` if the same conversion may succeed later with nothing else changed.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Request { source, .. } => source.is_retryable(),
            Self::WouldDeadlock { .. } | Self::Lost { .. } => false,
        }
    }
}

impl<G: fmt::Debug> fmt::Debug for ConversionError<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Request { guard, source } => {
                write!(f, "ConversionError::Request({source:?}, {guard:?})")
            }
            Self::Lost { guard, source } => {
                write!(f, "ConversionError::Lost({source:?}, {guard:?})")
            }
            Self::WouldDeadlock { guard, .. } => {
                write!(f, "ConversionError::WouldDeadlock({self}, {guard:?})")
            }
        }
    }
}
