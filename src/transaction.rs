//! Writes to ZooKeeper that happen only while the lock is held.

use crate::engine::transact::Operation;
use crate::error::TransactionError;
use std::fmt;

use crate::engine::hold::Hold;
use crate::engine::transact;
use crate::path::LockPath;
use crate::shown::Quoted;

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
        match LockPath::parse(self.hold.path_lock().client().namespace(), path) {
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
        let acl =
            self.hold.path_lock().options().acl.iter().map(|acl| acl.scheme.len() + acl.id.len() + 12).sum();
        let bytes: usize = self.operations.iter().map(|operation| operation.bytes(acl)).sum();
        if bytes > MAX_BYTES {
            let path = self.hold.path_lock().path().user().to_owned();
            return Err(TransactionError::TooLarge { path, bytes });
        }
        transact::transact(self.hold, self.operations).await
    }
}

impl fmt::Debug for Transaction<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The data may be large, and no business of a log's.
        let bytes: usize = self.operations.iter().map(|operation| operation.data().len()).sum();
        let path = Quoted(self.hold.path_lock().path().user());
        write!(
            f,
            "Transaction {{ lock: {path}, operations: {}, data: {bytes} bytes }}",
            self.operations.len()
        )
    }
}
