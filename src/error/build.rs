//! Why a lock could not be built.

use thiserror::Error;

use crate::shown::{Quoted, debug_as_text};

/// A lock path, or a namespace, that ZooKeeper would refuse.
#[derive(Clone, PartialEq, Eq, Error)]
#[error("invalid lock path {path}: {reason}", path = Quoted(.path))]
pub struct InvalidPath {
    path: String,
    reason: &'static str,
}

impl InvalidPath {
    pub(crate) fn new(path: &str, reason: &'static str) -> Self {
        Self { path: path.to_owned(), reason }
    }

    /// The path as it was given.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }
}

/// Why a recipe could not be made. No I/O is done by constructors, so none of these is worth a retry.
#[derive(Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BuildError {
    /// ZooKeeper would refuse the path.
    #[error(transparent)]
    InvalidPath(#[from] InvalidPath),
    /// An option has a value that cannot work.
    #[error("option `{option}` of the lock {path}: {reason}", path = Quoted(path))]
    InvalidOption {
        /// The lock's path.
        path: String,
        /// The setter's name.
        option: &'static str,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// Another handle of the same client for the same path was made with other options. All handles of one path
    /// share one queue, so they cannot differ: set the option where the first handle is made, or clone that one.
    #[error(
        "option `{option}` of the lock {path} differs from the one that a live handle of this client was made with", path = Quoted(path))]
    ConflictingOptions {
        /// The lock's path.
        path: String,
        /// The setter's name.
        option: &'static str,
    },
    /// A live handle or guard of the same client, or a call that is still being cleaned up, uses the path for a recipe
    /// that queues in another order: a read-write lock needs a path of its own.
    #[error(
        "the path {path} is in use by another recipe of this client: a read-write lock needs a path of its own", path = Quoted(path))]
    MixedRecipes {
        /// The lock's path.
        path: String,
    },
}

debug_as_text!(InvalidPath, BuildError);
