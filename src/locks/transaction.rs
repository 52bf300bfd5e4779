//! Writes to ZooKeeper that happen only while the lock is held (docs/protocol.md#transaction).
//!
//! A `Transaction` collects operations and checks their paths and their size. `engine` sends them
//! as one request, behind a check of the lock's node.

use std::fmt;
use std::marker::PhantomData;

use crate::engine::acquisition::{Hold, LockRef};
use crate::engine::while_held::read;
use crate::engine::while_held::transact::{self, Operation};
use crate::error::{Lost, TransactionError};
use crate::values::path::LockPath;
use crate::values::shown::Quoted;

/// Writes to ZooKeeper that are committed together, and only while the lock is held.
///
/// The transaction contains a check of the guard's lock node, so the servers themselves refuse it
/// once the lock may belong to another holder. Not even a process that was paused can write too
/// late. A transaction needs no fencing token, but works only for data in the same ensemble.
///
/// [`LockGuard::transaction`](crate::LockGuard::transaction) returns an empty transaction. All
/// writes are applied, in the order in which they were added, or none. Paths are below the client's
/// [namespace](crate::ClientBuilder::namespace); [`commit`](Self::commit) reports an invalid path.
/// At most about 1,000,000 bytes are accepted, because ZooKeeper closes the connection on a request
/// over 1 MiB.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zookeeper_test_server::Server::start()?;
/// # server.create("/config/rates", b"old")?;
/// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
/// use zookeeper_recipes::InterProcessMutex;
///
/// let mutex = InterProcessMutex::new(&client, "/locks/rates")?;
/// let guard = mutex.lock().await?;
/// guard
///     .transaction()
///     .set_data("/config/rates", b"new", None)
///     .create("/config/rates/changed", b"")
///     .commit()
///     .await?;
/// # assert_eq!(server.children("/config/rates"), ["changed"]);
/// # Ok(())
/// # }
/// ```
///
/// To read, check and write, pass the version from the guard's
/// [`get_data`](crate::LockGuard::get_data) to the write. The write is refused if a process without
/// the lock has changed the data in between.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zookeeper_test_server::Server::start()?;
/// # server.create("/stock/sku-42", b"3")?;
/// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
/// use zookeeper_recipes::{InterProcessMutex, TransactionError};
///
/// let guard = InterProcessMutex::new(&client, "/inventory/sku-42")?.lock().await?;
/// let (stock, version) = guard.get_data("/stock/sku-42").await?.ok_or("there is no such item")?;
/// let count: u32 = String::from_utf8(stock)?.parse()?;
/// if count > 0 {
///     let left = (count - 1).to_string();
///     match guard.transaction().set_data("/stock/sku-42", left, version).commit().await {
///         Ok(()) => println!("sold"),
///         Err(TransactionError::Lost(lost)) => println!("not sold: {lost}"),
///         Err(TransactionError::Rejected { path, .. }) => println!("not sold: {path} is not as it was read"),
///         Err(error) => return Err(error.into()), // `Unknown`: sold, or not
///     }
/// }
/// # assert_eq!(server.node("/stock/sku-42").unwrap().data, b"2");
/// guard.release().await?;
/// # Ok(())
/// # }
/// ```
#[must_use = "it does nothing until `commit` is called"]
pub struct Transaction<'a> {
    /// All holds must last. There is at least one, unless the transaction is refused.
    holds: Vec<LockRef>,
    operations: Vec<Operation>,
    refused: Option<TransactionError>,
    /// Prevents the release of the guard while the transaction exists.
    under: PhantomData<&'a Hold>,
}

/// ZooKeeper's limit for a whole request is 1 MiB, and a larger one looks like a lost connection.
const MAX_BYTES: usize = 1_000_000;

impl<'a> Transaction<'a> {
    /// Creates a transaction under these holds of one client.
    pub(crate) fn new(holds: impl IntoIterator<Item = &'a Hold>) -> Self {
        let holds = holds.into_iter().map(Hold::lock_ref).collect();
        Self {
            holds,
            operations: Vec::new(),
            refused: None,
            under: PhantomData,
        }
    }

    /// Creates a transaction under a hold; a transaction of a lost hold is refused.
    pub(crate) fn under(hold: Result<LockRef, Lost>) -> Self {
        let (hold, lost) = match hold {
            Ok(hold) => (Some(hold), None),
            // A refused transaction is never sent, so it needs neither the hold nor its namespace.
            Err(lost) => (None, Some(lost.into())),
        };
        Self {
            holds: hold.into_iter().collect(),
            refused: lost,
            ..Self::new([])
        }
    }

    /// Returns the paths of the locks, for messages.
    fn paths(&self) -> String {
        let paths: Vec<&str> = self
            .holds
            .iter()
            .map(|hold| hold.directory().user())
            .collect();
        paths.join(", ")
    }

    /// Creates a persistent node with the ACL of the lock. Its parent must exist.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # server.create("/orders", b"")?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// # let guard = zookeeper_recipes::InterProcessMutex::new(&client, "/locks/orders")?.lock().await?;
    /// guard.transaction().create("/orders/4711", b"new").commit().await?;
    /// # assert_eq!(server.children("/orders"), ["4711"]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn create(self, path: impl AsRef<str>, data: impl Into<Vec<u8>>) -> Self {
        let data = data.into();
        self.with(path.as_ref(), |path| Operation::Create { path, data })
    }

    /// Sets the data of a node that has `version`; with `None`, or -1 as in ZooKeeper's protocol,
    /// whatever its version.
    ///
    /// ZooKeeper counts the changes of each node's data, and returns the number as the `version` of
    /// its stat. A version that any ZooKeeper client has returned can be passed as it is.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # server.create("/orders/4711", b"new")?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// # let guard = zookeeper_recipes::InterProcessMutex::new(&client, "/locks/orders")?.lock().await?;
    /// use zookeeper_recipes::TransactionError;
    ///
    /// // The version is an `i32`, as any ZooKeeper client returns it.
    /// let (_, version) = guard.get_data("/orders/4711").await?.ok_or("there is no such order")?;
    /// guard.transaction().set_data("/orders/4711", b"paid", version).commit().await?;
    ///
    /// // The version is another one now.
    /// let again = guard.transaction().set_data("/orders/4711", b"sent", version).commit().await;
    /// assert!(matches!(again, Err(TransactionError::Rejected { index: 0, .. })));
    /// # Ok(())
    /// # }
    /// ```
    pub fn set_data(
        self,
        path: impl AsRef<str>,
        data: impl Into<Vec<u8>>,
        version: impl Into<Option<i32>>,
    ) -> Self {
        let (data, version) = (data.into(), required(version.into()));
        self.with(path.as_ref(), |path| Operation::SetData {
            path,
            data,
            version,
        })
    }

    /// Deletes a node that has `version` (any with `None`) and no children.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # server.create("/orders/4711", b"new")?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// # let guard = zookeeper_recipes::InterProcessMutex::new(&client, "/locks/orders")?.lock().await?;
    /// guard.transaction().delete("/orders/4711", None).commit().await?;
    /// # assert!(!server.exists("/orders/4711"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn delete(self, path: impl AsRef<str>, version: impl Into<Option<i32>>) -> Self {
        let version = required(version.into());
        self.with(path.as_ref(), |path| Operation::Delete { path, version })
    }

    /// Requires that a node exists and has `version` (any with `None`), and writes nothing to it.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # server.create("/orders/4711", b"new")?;
    /// # server.create("/prices", b"1")?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// # let guard = zookeeper_recipes::InterProcessMutex::new(&client, "/locks/orders")?.lock().await?;
    /// guard
    ///     .transaction()
    ///     .check("/prices", 0) // the prices have not changed since they were read
    ///     .set_data("/orders/4711", b"priced", 0)
    ///     .commit()
    ///     .await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn check(self, path: impl AsRef<str>, version: impl Into<Option<i32>>) -> Self {
        let version = required(version.into());
        self.with(path.as_ref(), |path| Operation::Check { path, version })
    }

    fn with(mut self, path: &str, operation: impl FnOnce(LockPath) -> Operation) -> Self {
        let namespace = self
            .holds
            .first()
            .map_or("", |hold| &hold.path_lock.client.namespace);
        match LockPath::parse(namespace, path) {
            Ok(path) => self.operations.push(operation(path)),
            // `commit` returns the first error, so that the calls of these methods can be chained.
            Err(error) => self.refused = self.refused.or(Some(error.into())),
        }
        self
    }

    /// Commits all writes, or none.
    ///
    /// # Errors
    /// - [`TransactionError::Lost`] if the lock is no longer held. Nothing was written.
    /// - [`TransactionError::Rejected`] if the lock is held but one of the writes is impossible.
    ///   Nothing was written.
    /// - [`TransactionError::Unknown`] if the connection was lost before the reply: all writes were
    ///   committed, or none. Read the data before trying again.
    /// - [`TransactionError::InvalidPath`] and [`TransactionError::TooLarge`] without a request.
    ///
    /// # Cancel safety
    /// The first poll sends the request, and no further poll is needed. If the future is dropped
    /// after that, the outcome is unknown.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # server.create("/orders/4711", b"new")?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// # let guard = zookeeper_recipes::InterProcessMutex::new(&client, "/locks/orders")?.lock().await?;
    /// use zookeeper_recipes::TransactionError;
    ///
    /// match guard.transaction().set_data("/orders/4711", b"paid", 0).commit().await {
    ///     Ok(()) => println!("paid"),
    ///     Err(TransactionError::Lost(lost)) => println!("another process may have it now: {lost}"),
    ///     Err(TransactionError::Rejected { path, .. }) => println!("{path} is not as it was read"),
    ///     Err(error) => return Err(error.into()),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn commit(self) -> Result<(), TransactionError> {
        let (holds, operations) = self.checked()?;
        transact::transact(&holds.iter().collect::<Vec<_>>(), operations).await
    }

    /// Returns the holds and the operations, if they can be sent.
    pub(crate) fn checked(self) -> Result<(Vec<LockRef>, Vec<Operation>), TransactionError> {
        if let Some(refused) = self.refused {
            return Err(refused);
        }
        // All locks of a transaction belong to one client, but the nodes that it creates get the
        // ACL of the first lock.
        let acl = self
            .holds
            .iter()
            .take(1)
            .flat_map(|hold| hold.path_lock.options.acl.iter());
        let acl = acl.map(|acl| acl.scheme.len() + acl.id.len() + 12).sum();
        let checks: usize = self.holds.iter().map(transact::check_bytes).sum();
        let bytes: usize = self
            .operations
            .iter()
            .map(|operation| operation.bytes(acl))
            .sum::<usize>()
            + checks;
        // A server would close the connection without an answer, and the outcome would look
        // unknown.
        if bytes > MAX_BYTES {
            return Err(TransactionError::TooLarge {
                path: self.paths(),
                bytes,
            });
        }
        Ok((self.holds, self.operations))
    }
}

/// Returns the version that an operation requires. -1 means any version, as in ZooKeeper.
fn required(version: Option<i32>) -> Option<i32> {
    version.filter(|version| *version != -1)
}

/// Reads a node, and the version of its data, under these holds of one client; returns `None` if
/// there is no such node.
pub(crate) async fn get_data(
    holds: &[&LockRef],
    path: &str,
) -> Result<Option<(Vec<u8>, i32)>, TransactionError> {
    let namespace = holds
        .first()
        .map_or("", |hold| &hold.path_lock.client.namespace);
    let stored: Result<_, TransactionError> =
        read::get_data(holds, LockPath::parse(namespace, path)?).await;
    Ok(stored?.map(|read| (read.data, read.version)))
}

impl fmt::Debug for Transaction<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The data may be large, and does not belong in a log.
        let bytes: usize = self
            .operations
            .iter()
            .map(|operation| operation.data().len())
            .sum();
        let paths = self.paths();
        let path = Quoted(&paths);
        write!(
            f,
            "Transaction {{ lock: {path}, operations: {}, data: {bytes} bytes }}",
            self.operations.len()
        )
    }
}
