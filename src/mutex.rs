//! The mutex.

use std::sync::Arc;

use crate::client::Client;
use crate::engine::lock_options::{Asked, Recipe};
use crate::engine::path_lock::PathLock;
use crate::error::BuildError;
use crate::guard::LockGuard;
use crate::lock::{lock_builder, lock_methods};
use crate::protocol::node_name::Kind;

/// A mutual exclusion lock over all processes that use the same path, first come, first served.
///
/// It is Curator's class of that name, in Curator's znode dialect: each contender creates an ephemeral sequential
/// node below the path, the lowest number holds the lock, and each waiter watches the one node before its own. A
/// free lock costs 2 requests, which are sent together, and the release wakes exactly one waiter. Java (Curator) and Go
/// (go-zookeeper) processes contend on the same path, and Python (kazoo) processes where that
/// [dialect](InterProcessMutexBuilder::dialect) is asked for.
///
/// The value is a handle: cheap to clone, no I/O until it is used. All handles of one client for one path share
/// one queue, of which at most [`max_znodes`](InterProcessMutexBuilder::max_znodes) contenders have a node at the
/// servers.
///
/// # Not re-entrant
/// A task that holds the lock and asks for it again waits for itself; with a timeout the error says since when and
/// where this process holds it. There is no thread or task identity: the guard is the hold, and it can be
/// released anywhere.
///
/// # Examples
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zookeeper_test_server::Server::start()?;
/// # tokio::runtime::Runtime::new()?.block_on(async {
/// # let servers = server.connect_string();
/// use std::time::Duration;
/// use zookeeper_recipes::{Acquired, Client, InterProcessMutex, OptionalExt};
///
/// let client = Client::connect(&servers).await?;
/// let mutex = InterProcessMutex::new(&client, "/inventory/sku-42")?;
///
/// if let Acquired(guard) = mutex.acquire(Duration::from_millis(200)).await.optional()? {
///     // Look at the stock, decide, write: nobody else does so now.
///     let token = guard.fencing_token(); // for the database to compare
///     guard.release().await?;
/// #   assert!(token.zxid() > 0);
/// }
/// # client.close().await?;
/// # Ok(())
/// # })
/// # }
/// ```
#[derive(Clone)]
pub struct InterProcessMutex {
    path_lock: Arc<PathLock>,
}

impl InterProcessMutex {
    /// The mutex at `path`, with the options of the handles that this client has for it already, or the defaults.
    ///
    /// # Errors
    /// [`BuildError::InvalidPath`]. No I/O is done.
    pub fn new(client: &Client, path: &str) -> Result<Self, BuildError> {
        Self::builder(client, path).build()
    }

    /// The same with options.
    pub fn builder(client: &Client, path: &str) -> InterProcessMutexBuilder {
        InterProcessMutexBuilder { client: client.clone(), path: path.to_owned(), asked: Asked::default() }
    }
}

lock_methods!(InterProcessMutex, LockGuard, Kind::Exclusive, None);

lock_builder! {
    /// Options of an [`InterProcessMutex`].
    InterProcessMutexBuilder, InterProcessMutex, Recipe::Mutex
}

impl InterProcessMutexBuilder {
    /// How many nodes this client keeps below the path at most; further contenders wait in memory, in order, and
    /// are counted by nobody outside. From 1 to 10,000, by default 64: enough that the queue seen from outside
    /// is the real one for all but the most crowded locks, and few enough that listing it stays cheap.
    ///
    /// With 1 the tasks of this process queue as one contender, in memory.
    pub fn max_znodes(mut self, nodes: usize) -> Self {
        self.asked.max_nodes = Some(nodes);
        self
    }
}

crate::shown::debug_as_path!(InterProcessMutex);
