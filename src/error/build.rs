//! Why a lock could not be built.

use thiserror::Error;

use crate::values::path::InvalidPath;
use crate::values::shown::{Quoted, debug_as_text};

/// Error of a constructor or of `build`: why a lock could not be built.
///
/// Constructors send no request, so none of these is worth a retry.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zookeeper_test_server::Server::start()?;
/// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
/// use zookeeper_recipes::{BuildError, InterProcessMutex};
///
/// let first = InterProcessMutex::new(&client, "/inventory/sku-42")?;
/// let error = InterProcessMutex::builder(&client, "/inventory/sku-42").data("host-1").build().unwrap_err();
/// match &error {
///     // All handles of one path share their options: clone `first` instead.
///     BuildError::ConflictingOptions { path, option, .. } => {
///         assert_eq!((path.as_str(), *option), ("/inventory/sku-42", "data"));
///     }
///     _ => panic!("{error}"),
/// }
/// assert_eq!(error.path(), first.path());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BuildError {
    /// ZooKeeper would refuse the path, or it is `/`, below `/zookeeper`, or longer than 16 KiB
    /// with the namespace.
    #[error(transparent)]
    InvalidPath(#[from] InvalidPath),
    /// An option has an invalid value.
    #[error("option `{option}` of the lock {path}: {reason}", path = Quoted(path))]
    #[non_exhaustive]
    InvalidOption {
        /// The lock's path.
        path: String,
        /// The setter's name.
        option: &'static str,
        /// The problem with the value.
        reason: &'static str,
    },
    /// Another handle of the same client for the same path was made with other options. All handles
    /// of one path share one queue and its options: set the option where the first handle is made,
    /// or clone that handle.
    #[error(
        "option `{option}` of the lock {path} differs from that of another handle of this client: clone that \
         handle, or give both the same options",
        path = Quoted(path)
    )]
    #[non_exhaustive]
    ConflictingOptions {
        /// The lock's path.
        path: String,
        /// The setter's name.
        option: &'static str,
    },
    /// The same client uses the path for a recipe with another kind of queue: there is a live
    /// handle or guard, or a call whose nodes are still being deleted. Use a separate path for each
    /// recipe.
    #[error(
        "the path {path} is in use by another recipe of this client: use a path of its own for each recipe",
        path = Quoted(path)
    )]
    #[non_exhaustive]
    MixedRecipes {
        /// The lock's path.
        path: String,
    },
    /// A multi-lock has no members.
    #[error("a multi-lock needs at least one member")]
    NoMembers,
    /// A multi-lock has too many members.
    #[error(
        "a multi-lock has at most {max} members, not {members}; one lock above them all may do instead"
    )]
    #[non_exhaustive]
    TooManyMembers {
        /// The number of members.
        members: usize,
        /// The largest number of members.
        max: usize,
    },
    /// Two members of a multi-lock are one lock: they have one path, namespace included, and would
    /// wait for each other. This also applies to a mutex and a fair lock, or to a read lock and a
    /// write lock, although their types differ.
    #[error(
        "two members of the multi-lock are the lock {path}, which would wait for itself: name each path once",
        path = Quoted(path)
    )]
    #[non_exhaustive]
    DuplicateMember {
        /// The path of both.
        path: String,
    },
    /// A member of a multi-lock belongs to another client than the first. Each client has a
    /// separate session, and locks of different sessions are not lost together.
    #[error(
        "the member {path} of the multi-lock belongs to another client than the first member: make all of \
         them with one client",
        path = Quoted(path)
    )]
    #[non_exhaustive]
    OtherClient {
        /// The member's path.
        path: String,
    },
    /// The client has a handle of this semaphore that states another limit: one of the two is
    /// wrong. To change the limit of a semaphore in use, call
    /// [`set_limit`](crate::InterProcessSemaphore::set_limit).
    #[error(
        "the semaphore {path} was given a limit of {ours} here and of {theirs} by another handle of this \
         client: give both the same, or change the limit in force with `set_limit`",
        path = Quoted(path)
    )]
    #[non_exhaustive]
    LimitMismatch {
        /// The semaphore's path.
        path: String,
        /// The limit that was given for this handle.
        ours: u32,
        /// The limit that the other handle states.
        theirs: u32,
    },
}

impl BuildError {
    /// Returns the lock's path as it was given. The path is empty if the error is not about one
    /// path ([`NoMembers`](Self::NoMembers), [`TooManyMembers`](Self::TooManyMembers)).
    #[must_use]
    pub fn path(&self) -> &str {
        match self {
            Self::InvalidPath(invalid) => invalid.path(),
            Self::InvalidOption { path, .. }
            | Self::ConflictingOptions { path, .. }
            | Self::MixedRecipes { path }
            | Self::DuplicateMember { path }
            | Self::LimitMismatch { path, .. }
            | Self::OtherClient { path } => path,
            Self::NoMembers | Self::TooManyMembers { .. } => "",
        }
    }

    /// Returns `false`: the path or an option must be changed, or another handle of this client
    /// dropped.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        false
    }
}

debug_as_text!(BuildError {
    InvalidPath,
    InvalidOption,
    ConflictingOptions,
    MixedRecipes,
    NoMembers,
    TooManyMembers,
    DuplicateMember,
    OtherClient,
    LimitMismatch
});
