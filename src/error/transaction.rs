//! Why a transaction is not known to be committed.

use thiserror::Error;

use super::build::InvalidPath;
use super::cause::Cause;
use super::lost::Lost;
use crate::shown::{Quoted, debug_as_text};

/// Why a transaction was not known to be committed.
#[derive(Clone, Error)]
#[non_exhaustive]
pub enum TransactionError {
    /// The lock is not held any more. Nothing was written.
    #[error(transparent)]
    Lost(#[from] Lost),
    /// The lock is held, but one of the writes is not possible: the node exists or does not, has another version, has
    /// children, or the ACL forbids it. Nothing was written.
    #[error("write number {index} of the transaction on {path} was rejected", path = Quoted(path))]
    Rejected {
        /// Which one, from 0.
        index: usize,
        /// The path of that write.
        path: String,
        /// What the server said.
        #[source]
        source: Cause,
    },
    /// No answer came: everything was written, or nothing. Read the data before you go on.
    #[error("whether the transaction under the lock {path} was committed is not known", path = Quoted(path))]
    Unknown {
        /// The lock's path.
        path: String,
        /// What the connection said.
        #[source]
        source: Cause,
    },
    /// A path cannot be used. Nothing was sent.
    #[error(transparent)]
    InvalidPath(#[from] InvalidPath),
    /// It is larger than ZooKeeper's limit for one request (1 MiB). Nothing was sent.
    #[error("the transaction has {bytes} bytes; ZooKeeper takes at most 1 MiB at a time")]
    TooLarge {
        /// Its size.
        bytes: usize,
    },
}

impl TransactionError {
    /// Whether the same transaction may succeed later, and do no harm, without anything else being changed. None may at
    /// present: after [`Unknown`](Self::Unknown) the writes may have been made already, and would be made twice, so the
    /// data have to be read first; [`Rejected`](Self::Rejected) needs the data changed, and the others another guard,
    /// path or size.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Lost(_)
            | Self::Rejected { .. }
            | Self::Unknown { .. }
            | Self::InvalidPath(_)
            | Self::TooLarge { .. } => false,
        }
    }
}

debug_as_text!(TransactionError);
