//! Why a read-write lock was not converted.

use std::fmt;

use thiserror::Error;

use super::lost::Lost;
use super::request::{Error, ErrorKind};
use crate::shown::{Quoted, debug_as_text};

/// Error of converting a guard of a read-write lock; hands the guard back.
///
/// The guard holds the same lock as before, unless the [reason](Self::reason) is that the lock is
/// [lost](ConversionFailure::Lost).
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zookeeper_test_server::Server::start()?;
/// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
/// use zookeeper_recipes::{ConversionFailure, InterProcessReadWriteLock};
///
/// let lock = InterProcessReadWriteLock::new(&client, "/catalog")?;
/// let reader = lock.read_lock().lock().await?;
/// let other = lock.read_lock().lock().await?;
///
/// // An upgrade needs every other reader to be gone.
/// let error = reader.try_upgrade().await.unwrap_err();
/// assert!(matches!(error.reason(), ConversionFailure::Contended));
/// assert!(error.is_retryable());
/// let reader = error.into_guard(); // still holds the read lock
///
/// other.release().await?;
/// let writer = reader.try_upgrade().await?;
/// writer.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Error)]
#[error("the lock {path} was not converted", path = Quoted(.path))]
pub struct ConversionError<G> {
    guard: G,
    path: String,
    #[source]
    reason: ConversionFailure,
}

impl<G> ConversionError<G> {
    pub(crate) fn new(guard: G, path: &str, reason: ConversionFailure) -> Self {
        Self { guard, path: path.to_owned(), reason }
    }

    /// Returns the guard as it was before the call.
    #[must_use]
    pub fn into_guard(self) -> G {
        self.guard
    }

    /// Returns why the guard was not converted.
    #[must_use]
    pub fn reason(&self) -> &ConversionFailure {
        &self.reason
    }

    /// Returns the lock's path, without the client's namespace.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns `true` if the same call may succeed later with nothing else changed.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        self.reason.is_retryable()
    }
}

/// Why a guard of a read-write lock was not converted; part of [`ConversionError`].
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zookeeper_test_server::Server::start()?;
/// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
/// use zookeeper_recipes::{ConversionFailure, InterProcessReadWriteLock};
///
/// let lock = InterProcessReadWriteLock::new(&client, "/catalog")?;
/// let reader = lock.read_lock().lock().await?;
/// let again = reader.reenter()?;
/// let error = reader.try_upgrade().await.unwrap_err();
/// match error.reason() {
///     // Two guards share this hold: a function further up still reads.
///     ConversionFailure::WouldDeadlock => drop(again),
///     ConversionFailure::Contended => eprintln!("another process reads"),
///     ConversionFailure::Lost(lost) => eprintln!("{lost}"),
///     other => panic!("{other}"),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Error)]
#[non_exhaustive]
pub enum ConversionFailure {
    /// Other guards share the hold ([`reenter`](crate::LockGuard::reenter),
    /// [`reenter_as_reader`](crate::WriteGuard::reenter_as_reader)). Waiting for them could be waiting for
    /// the caller itself: release them first.
    #[error("other guards share this hold: release them first")]
    WouldDeadlock,
    /// Another reader may hold the lock, another conversion is under way, or one has left a node that could
    /// not be deleted and stays until its session ends.
    #[error("another reader may hold the lock")]
    Contended,
    /// The lock is lost.
    #[error(transparent)]
    Lost(#[from] Lost),
    /// The servers refused a request of the conversion.
    #[error(transparent)]
    Request(#[from] Error),
}

impl ConversionFailure {
    /// Returns the kind of the request that failed; `None` of the other variants.
    #[must_use]
    pub fn kind(&self) -> Option<ErrorKind> {
        match self {
            Self::Request(error) => Some(error.kind()),
            _ => None,
        }
    }

    /// Returns `true` if the same conversion may succeed later with nothing else changed: after
    /// [`Contended`](Self::Contended).
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Contended => true,
            Self::Request(error) => error.is_retryable(),
            Self::WouldDeadlock | Self::Lost(_) => false,
        }
    }

    /// Returns the path of the lock if the failure names it, otherwise `None`.
    /// [`ConversionError::path`] is always that of the lock.
    #[must_use]
    pub fn path(&self) -> Option<&str> {
        match self {
            Self::Lost(lost) => Some(lost.path()),
            Self::Request(error) => Some(error.path()),
            Self::WouldDeadlock | Self::Contended => None,
        }
    }
}

impl<G: fmt::Debug> fmt::Debug for ConversionError<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ConversionError({self}: {:?}, {:?})", self.reason, self.guard)
    }
}

debug_as_text!(ConversionFailure: Request { WouldDeadlock, Contended, Lost });
