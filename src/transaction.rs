//! Writes to ZooKeeper that happen only while the lock is held.

use std::fmt;

use thiserror::Error;

use crate::engine::driver;
use crate::engine::room::Hold;
use crate::error::{Cause, InvalidPath, Lost};
use crate::path::LockPath;
use crate::shown::{Quoted, debug_as_text};

/// Writes to ZooKeeper that are committed together, and only if the lock is still held by this guard's node at that
/// moment: the servers themselves check it, so not even a process that was paused can write too late.
///
/// This is the one lock-guarded write that needs no token; it works for data in the same ensemble only. Paths
/// are below the client's namespace. Built by [`LockGuard::transaction`](crate::LockGuard::transaction):
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zookeeper_test_server::Server::start()?;
/// # server.create("/config/rates", b"old")?;
/// # tokio::runtime::Runtime::new()?.block_on(async {
/// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
/// # let mutex = zookeeper_recipes::InterProcessMutex::new(&client, "/locks/rates")?;
/// let guard = mutex.lock().await?;
/// guard
///     .transaction()
///     .set_data("/config/rates", b"new", None)
///     .create("/config/rates/changed", b"")
///     .commit()
///     .await?;
/// # assert_eq!(server.children("/config/rates"), ["changed"]);
/// # Ok(())
/// # })
/// # }
/// ```
#[must_use = "it does nothing until `commit` is called"]
pub struct Transaction<'a> {
    hold: &'a Hold,
    operations: Vec<Operation>,
    refused: Option<TransactionError>,
}

/// One write, with the path as the server knows it.
pub(crate) enum Operation {
    Create { path: LockPath, data: Vec<u8> },
    SetData { path: LockPath, data: Vec<u8>, version: Option<i32> },
    Delete { path: LockPath, version: Option<i32> },
    Check { path: LockPath, version: Option<i32> },
}

/// ZooKeeper's limit for a whole request is 1 MiB, and a larger one looks like a lost connection.
const MAX_BYTES: usize = 1_000_000;

impl<'a> Transaction<'a> {
    pub(crate) fn new(hold: &'a Hold) -> Self {
        Self { hold, operations: Vec::new(), refused: None }
    }

    /// Creates an ordinary, persistent node, with the ACL of the lock.
    pub fn create(self, path: &str, data: impl Into<Vec<u8>>) -> Self {
        let data = data.into();
        self.with(path, |path| Operation::Create { path, data })
    }

    /// Sets a node's data, if it has `version`; any version if none is given.
    pub fn set_data(self, path: &str, data: impl Into<Vec<u8>>, version: Option<i32>) -> Self {
        let data = data.into();
        self.with(path, |path| Operation::SetData { path, data, version })
    }

    /// Deletes a node, if it has `version`; any version if none is given.
    pub fn delete(self, path: &str, version: Option<i32>) -> Self {
        self.with(path, |path| Operation::Delete { path, version })
    }

    /// Demands that a node exists and has `version`; any version if none is given.
    pub fn check(self, path: &str, version: Option<i32>) -> Self {
        self.with(path, |path| Operation::Check { path, version })
    }

    fn with(mut self, path: &str, operation: impl FnOnce(LockPath) -> Operation) -> Self {
        match LockPath::parse(self.hold.room().client().namespace(), path) {
            Ok(path) => self.operations.push(operation(path)),
            Err(error) => self.refused = self.refused.or(Some(error.into())),
        }
        self
    }

    /// Commits all of it, or nothing.
    ///
    /// # Errors
    /// [`TransactionError::Lost`]: the lock is not held any more, and nothing was written.
    /// [`TransactionError::Rejected`]: the lock is held, one of the writes is not possible, and nothing was
    /// written. [`TransactionError::Unknown`]: the connection was lost in between; everything was written, or nothing.
    ///
    /// # Cancel safety
    /// The request is sent with the first poll, and needs no other. Dropping the future after that loses the answer, and
    /// with it whether it was written.
    pub async fn commit(self) -> Result<(), TransactionError> {
        if let Some(refused) = self.refused {
            return Err(refused);
        }
        let acl = self.hold.room().options().acl.iter().map(|acl| acl.scheme.len() + acl.id.len() + 12).sum();
        let bytes: usize = self.operations.iter().map(|operation| operation.bytes(acl)).sum();
        if bytes > MAX_BYTES {
            return Err(TransactionError::TooLarge { bytes });
        }
        driver::transact(self.hold, self.operations).await
    }
}

impl fmt::Debug for Transaction<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The data may be large, and no business of a log's.
        let bytes: usize = self.operations.iter().map(|operation| operation.data().len()).sum();
        let path = Quoted(self.hold.room().path().user());
        write!(
            f,
            "Transaction {{ lock: {path}, operations: {}, data: {bytes} bytes }}",
            self.operations.len()
        )
    }
}

impl fmt::Debug for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Self::Create { .. } => "Create",
            Self::SetData { .. } => "SetData",
            Self::Delete { .. } => "Delete",
            Self::Check { .. } => "Check",
        };
        write!(f, "{name}({}, {} bytes)", Quoted(self.path().user()), self.data().len())
    }
}

impl Operation {
    pub(crate) fn path(&self) -> &LockPath {
        match self {
            Self::Create { path, .. }
            | Self::SetData { path, .. }
            | Self::Delete { path, .. }
            | Self::Check { path, .. } => path,
        }
    }

    fn data(&self) -> &[u8] {
        match self {
            Self::Create { data, .. } | Self::SetData { data, .. } => data,
            Self::Delete { .. } | Self::Check { .. } => &[],
        }
    }

    fn bytes(&self, acl: usize) -> usize {
        let acl = if matches!(self, Self::Create { .. }) { acl } else { 0 };
        // The headers of an operation have less than fifty bytes.
        self.path().server().len() + self.data().len() + acl + 50
    }
}

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

debug_as_text!(TransactionError);

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
