//! Why a read-write lock was not converted.

use std::fmt;

use thiserror::Error;

use super::cause::Cause;
use super::lost::Lost;
use crate::shown::{Quoted, debug_as_text};

/// A read-write lock that could not be converted, and its guard: as good as it was before, unless the
/// [reason](Self::reason) is that the lock is [lost](ConversionFailure::Lost).
#[derive(Error)]
#[error("the lock {path} was not converted", path = Quoted(.path))]
pub struct ConversionError<G: fmt::Debug> {
    guard: G,
    path: String,
    #[source]
    reason: ConversionFailure,
}

impl<G: fmt::Debug> ConversionError<G> {
    pub(crate) fn new(guard: G, path: &str, reason: ConversionFailure) -> Self {
        Self { guard, path: path.to_owned(), reason }
    }

    /// The guard of the lock as it was.
    #[must_use]
    pub fn into_guard(self) -> G {
        self.guard
    }

    /// Why it was not converted.
    #[must_use]
    pub fn reason(&self) -> &ConversionFailure {
        &self.reason
    }

    /// Whether the same call may succeed later without anything else being changed.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(self.reason, ConversionFailure::Contended)
    }
}

/// Why a read-write lock could not be converted.
#[derive(Clone, Error)]
#[non_exhaustive]
pub enum ConversionFailure {
    /// Other guards share the hold ([`reenter`](crate::LockGuard::reenter), [`read`](crate::WriteGuard::read)):
    /// whoever waited for them here would wait for itself.
    #[error("other guards share this hold, and waiting for them would be waiting for oneself")]
    WouldDeadlock,
    /// Another reader may be inside, or another conversion is under way, or has left a node behind that could not be
    /// deleted and stays until its session ends.
    #[error("another reader may be inside")]
    Contended,
    /// The lock is lost.
    #[error(transparent)]
    Lost(#[from] Lost),
    /// The directory holds contenders of another recipe.
    #[error("the lock's directory is in use by another recipe: {node} does not queue with ours", node = Quoted(node))]
    MixedRecipes {
        /// One of the other recipe's nodes.
        node: String,
    },
    /// The server refuses, for a reason that a retry will not change.
    #[error("ZooKeeper refuses")]
    Rejected {
        /// What the server said.
        #[source]
        source: Cause,
    },
}

impl<G: fmt::Debug> fmt::Debug for ConversionError<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ConversionError({self}: {}, {:?})", self.reason, self.guard)
    }
}

debug_as_text!(ConversionFailure);
