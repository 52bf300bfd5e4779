//! The reason why a transaction is not known to be committed, or why data that it depends on could
//! not be read.

use super::lost::Lost;
use super::request::{Cause, Error, ErrorKind};
use crate::values::path::InvalidPath;
use crate::values::shown::{Quoted, debug_as_text, why};

/// Error of [`Transaction::commit`](crate::Transaction::commit), and of a read for a transaction
/// ([`LockGuard::get_data`](crate::LockGuard::get_data)).
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zookeeper_test_server::Server::start()?;
/// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
/// use zookeeper_recipes::{InterProcessMutex, TransactionError};
///
/// let guard = InterProcessMutex::new(&client, "/inventory/sku-42")?.lock().await?;
/// let transaction = guard.transaction().create("/stock", "7").set_data("/sales", "1", None);
/// match transaction.commit().await {
///     Ok(()) => panic!("there is no node /sales"),
///     // Nothing was written, not even by the first operation.
///     Err(TransactionError::Rejected { index, path, .. }) => {
///         assert_eq!((index, path.as_str()), (1, "/sales"));
///     }
///     Err(TransactionError::Unknown { path, .. }) => eprintln!("{path}: read it again before going on"),
///     Err(error) => return Err(error.into()),
/// }
/// # guard.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum TransactionError {
    /// The lock is no longer held. Nothing was written, and data that was read must not be used.
    #[error(transparent)]
    Lost(#[from] Lost),
    /// The read failed. `commit` never returns this variant.
    #[error(transparent)]
    Request(#[from] Error),
    /// The path of an operation, or of the read, is invalid. Nothing was sent.
    #[error(transparent)]
    InvalidPath(#[from] InvalidPath),
    /// The lock is held, but one operation is not possible: its node exists or is missing, has
    /// another version or children, or an ACL forbids it. Nothing was written.
    #[error(
        "ZooKeeper rejected operation {index} of the transaction, on {path}, and nothing was written: {}",
        why(source),
        path = Quoted(path)
    )]
    #[non_exhaustive]
    Rejected {
        /// The path, without the client's namespace.
        path: String,
        /// The index of the operation, from 0. If the ACL of the lock node denies its own client
        /// access, the index is 0 and `path` is that of the lock node.
        index: usize,
        /// The server's answer.
        source: Cause,
    },
    /// The connection was lost before the answer came: everything was written, or nothing. Read the
    /// data again before you continue.
    #[error(
        "it is unknown whether the transaction under the lock {path} was committed, so read the data again: {}",
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
    /// The transaction is larger than ZooKeeper's limit for one request (1 MiB). Nothing was sent.
    #[error(
        "the transaction under the lock {path} has {bytes} bytes; ZooKeeper accepts at most 1 MiB in one \
         request",
        path = Quoted(path)
    )]
    #[non_exhaustive]
    TooLarge {
        /// The path, without the client's namespace.
        path: String,
        /// The size of the request in bytes.
        bytes: usize,
    },
}

impl TransactionError {
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
            Self::Lost(error) => error.is_retryable(),
            Self::Request(error) => error.is_retryable(),
            Self::InvalidPath(error) => error.is_retryable(),
            Self::Rejected { .. } | Self::Unknown { .. } | Self::TooLarge { .. } => false,
        }
    }

    /// Returns the path that the error is about, without the client's namespace.
    #[must_use]
    pub fn path(&self) -> &str {
        match self {
            Self::Lost(error) => error.path(),
            Self::Request(error) => error.path(),
            Self::InvalidPath(error) => error.path(),
            Self::Rejected { path, .. }
            | Self::Unknown { path, .. }
            | Self::TooLarge { path, .. } => path,
        }
    }
}

debug_as_text!(TransactionError(Lost, Request, InvalidPath) { Rejected, Unknown, TooLarge });
