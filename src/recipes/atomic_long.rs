//! The counter, and a source of ids that reserves blocks of its numbers.
//!
//! A method of `DistributedAtomicLong` that writes is one `Change` of the counter's node, whose
//! requests are in `counter_requests`. A `CachedAtomicLong` adds the size of a block to the counter
//! and returns the numbers of the block one by one, without further requests. Its callers reserve
//! one at a time: the others wait, and then share the block, or the error
//! (docs/protocol.md#counter-ids).

use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;

use tokio::sync::Semaphore;

use crate::builder::{RecipeBuilder, sealed};
use crate::client::Client;
use crate::engine::data::counter_requests::Counter;
use crate::engine::lock::lock_options::check_acl;
use crate::error::{AtomicLongError, BuildError};
use crate::protocol::counter::{Change, Changed};
use crate::session::threads::mutex::Mutex;
use crate::values::path::LockPath;
use crate::values::shown::Quoted;

/// A counter that all processes share: ids, order numbers, totals.
///
/// The counter works like Curator's class of this name, with the same layout, so Java processes
/// can use the same counter: one persistent node at the path, with eight bytes of data. A counter
/// that does not exist is 0, and is created by the first change.
///
/// A change reads the value and writes the new one on the condition that the node has not been
/// written in between (by the version of its data). Without a concurrent change, this costs 2
/// requests. If another change was first, the call tries again after a random pause. So the counter
/// makes progress under any contention, but a single call may need many tries. Under steady
/// contention, take ids from a [`cached`](Self::cached) source, or change the counter while you
/// hold an [`InterProcessMutex`](crate::InterProcessMutex), which corresponds to Curator's
/// `PromotedToLock`.
///
/// # Ids
/// [`next_id`](Self::next_id) returns an id: each number once, to one caller across all processes,
/// despite lost connections, expired sessions and crashes. [`cached`](Self::cached) takes ids from
/// a range reserved earlier, without a request for each. Both leave gaps when an answer is lost or
/// a process ends. [`add`](Self::add) and the other methods change a total instead. If it is
/// unknown whether the change was made, these methods return [`AtomicLongError::Unknown`], and the
/// call must not be repeated.
///
/// The numbers repeat if the node is deleted, or set to a smaller value, by hand or by
/// [`set`](Self::set). Delete a counter only when no process uses it. Otherwise a write that is
/// still on its way to the servers may be applied to the next node at the path, once that node has
/// the same version.
///
/// For numbers without gaps, which invoices may need, count in the transaction of a lock
/// ([`LockGuard::transaction`](crate::LockGuard::transaction)) or in the database that stores them.
///
/// # Bounds
/// Every call ends: requests are repeated as the client's [`RetryPolicy`](crate::RetryPolicy) says,
/// and a change ends with [`AtomicLongError::Contended`] after 30 tries (about ten seconds) in
/// which others were first.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zookeeper_test_server::Server::start()?;
/// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
/// use zookeeper_recipes::DistributedAtomicLong;
///
/// let orders = DistributedAtomicLong::new(&client, "/shop/order-number")?;
/// assert_eq!(orders.next_id().await?, 1);
/// assert_eq!(orders.next_id().await?, 2); // in this process or any other
///
/// let visitors = DistributedAtomicLong::new(&client, "/shop/visitors")?;
/// assert_eq!(visitors.add(3).await?, 3);
/// assert_eq!(visitors.decrement().await?, 2);
/// assert_eq!(visitors.get().await?, 2);
/// # Ok(())
/// # }
/// ```
///
/// The node has the eight bytes of Curator's `DistributedAtomicLong`. Curator's
/// `DistributedAtomicInteger` and `SharedCount` have four bytes. Such a node is refused and not
/// changed, so copy its value to another path.
#[derive(Clone)]
#[doc(alias = "DistributedAtomicInteger")]
#[doc(alias = "DistributedAtomicValue")]
#[doc(alias = "AtomicI64")]
#[doc(alias = "RAtomicLong")]
#[doc(alias = "SharedCount")]
#[doc(alias = "PromotedToLock")]
pub struct DistributedAtomicLong {
    counter: Arc<Counter>,
}

impl DistributedAtomicLong {
    /// Creates a handle of the counter at `path`, without any I/O.
    ///
    /// # Errors
    /// [`BuildError::InvalidPath`] if ZooKeeper would refuse the path, or it is `/`, below
    /// `/zookeeper`, or longer than 16 KiB with the namespace.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// use zookeeper_recipes::DistributedAtomicLong;
    ///
    /// let orders = DistributedAtomicLong::new(&client, "/shop/order-number")?;
    /// assert_eq!(orders.path(), "/shop/order-number");
    /// assert!(DistributedAtomicLong::new(&client, "no/slash").is_err());
    /// # Ok(())
    /// # }
    /// ```
    pub fn new(client: &Client, path: impl AsRef<str>) -> Result<Self, BuildError> {
        Self::builder(client, path).build()
    }

    /// Returns a builder of the counter at `path`, for options other than the defaults.
    ///
    /// The counter's node is always persistent. The option for missing directories applies only to
    /// the directories above the node.
    ///
    /// # Examples
    /// With every option:
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::builder().auth("digest", "shop:secret");
    /// # let client = client.connect(&server.connect_string()).await?;
    /// use zookeeper_recipes::{Acl, DistributedAtomicLong, ParentNodes};
    ///
    /// let orders = DistributedAtomicLong::builder(&client, "/shop/order-number")
    ///     .acl([Acl::creator_all()]) // the client has credentials
    ///     .parents(ParentNodes::Persistent) // `/shop` stays when the counter is deleted
    ///     .build()?;
    /// # orders.next_id().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn builder(client: &Client, path: impl AsRef<str>) -> RecipeBuilder<Self> {
        RecipeBuilder::new(client, path.as_ref())
    }

    /// Returns the value, which is 0 if the counter does not exist.
    ///
    /// A read is answered by the server to which the client is connected, which may lag behind the
    /// others: the value is never older than the last one that this client has seen or written in
    /// its session, but another process may have changed it since.
    ///
    /// # Errors
    /// [`AtomicLongError::NotACounter`] or [`AtomicLongError::NotPersistent`] if the node at the
    /// path is not a counter. See [`AtomicLongError`] for the other variants; never
    /// [`AtomicLongError::Unknown`].
    ///
    /// # Cancel safety
    /// Cancel safe: this only reads.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// use zookeeper_recipes::DistributedAtomicLong;
    ///
    /// let hits = DistributedAtomicLong::new(&client, "/shop/hits")?;
    /// assert_eq!(hits.get().await?, 0); // it does not exist
    /// hits.add(5).await?;
    /// assert_eq!(hits.get().await?, 5);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn get(&self) -> Result<i64, AtomicLongError> {
        self.counter.get().await
    }

    /// Sets the value unconditionally; Curator's `forceSet`.
    ///
    /// A concurrent change by another process takes effect either before or after this one: unlike
    /// Curator's, this write has a condition too. If you set a value below the ids that
    /// [`next_id`](Self::next_id) has returned, `next_id` returns these ids again.
    ///
    /// # Errors
    /// [`AtomicLongError::Unknown`] if the answer was lost and the counter has changed since: the
    /// value may or may not have been set before that.
    /// See [`AtomicLongError`] for the other variants;
    /// never [`AtomicLongError::Overflow`].
    ///
    /// # Cancel safety
    /// If the future is dropped, the value may or may not be set.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// use zookeeper_recipes::DistributedAtomicLong;
    ///
    /// let orders = DistributedAtomicLong::new(&client, "/shop/order-number")?;
    /// orders.set(10_000).await?;
    /// assert_eq!(orders.next_id().await?, 10_001);
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "forceSet")]
    #[doc(alias = "trySet")]
    pub async fn set(&self, value: i64) -> Result<(), AtomicLongError> {
        self.counter.change(Change::Set(value)).await.map(drop)
    }

    /// Creates the counter with this value if it does not exist. Returns `false` if it does.
    ///
    /// # Errors
    /// [`AtomicLongError::Unknown`] if the answer was lost, and the counter exists with this value,
    /// or was changed since: this call or another process created it. See [`AtomicLongError`] for
    /// the other variants; never [`AtomicLongError::Overflow`].
    ///
    /// # Cancel safety
    /// If the future is dropped, the counter may or may not be created.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// use zookeeper_recipes::DistributedAtomicLong;
    ///
    /// let orders = DistributedAtomicLong::new(&client, "/shop/order-number")?;
    /// assert!(orders.initialize(10_000).await?);
    /// assert!(!orders.initialize(10_000).await?); // by the next process that starts
    /// assert_eq!(orders.next_id().await?, 10_001);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn initialize(&self, value: i64) -> Result<bool, AtomicLongError> {
        self.set_if(Change::Initialize(value)).await
    }

    /// Sets the value to `new` if it is `expected`. Returns `false` if it is not.
    ///
    /// A counter that does not exist counts as 0 here too. (Curator's `compareAndSet` never
    /// succeeds on a missing counter, so a loop of `get` and `compareAndSet` never ends.) Before
    /// the call returns `false`, it reads again after a `sync`, because the connected server may
    /// lag behind.
    ///
    /// # Errors
    /// [`AtomicLongError::Unknown`] if the answer was lost, and it is unknown whether the value was
    /// set by this call or by another process. See [`AtomicLongError`] for the other variants;
    /// never [`AtomicLongError::Overflow`].
    ///
    /// # Cancel safety
    /// If the future is dropped, the value may or may not be set.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// use zookeeper_recipes::DistributedAtomicLong;
    ///
    /// // Keeps the highest bid, which `add` cannot do.
    /// let highest = DistributedAtomicLong::new(&client, "/shop/highest-bid")?;
    /// let bid = 120;
    /// loop {
    ///     let value = highest.get().await?;
    ///     if value >= bid || highest.compare_and_set(value, bid).await? {
    ///         break;
    ///     }
    /// }
    /// # assert_eq!(highest.get().await?, 120);
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "compareAndSet")]
    #[doc(alias = "compare_exchange")]
    pub async fn compare_and_set(&self, expected: i64, new: i64) -> Result<bool, AtomicLongError> {
        self.set_if(Change::CompareAndSet { expected, new }).await
    }

    /// Adds to the value. Returns the new value.
    ///
    /// # Errors
    /// - [`AtomicLongError::Unknown`] if the answer was lost and the counter has changed since:
    ///   `delta` may or may not have been added. Do not add it again. For ids, use
    ///   [`next_id`](Self::next_id).
    /// - [`AtomicLongError::Overflow`] if the new value would not fit into 64 bits. Nothing was
    ///   added.
    /// - [`AtomicLongError::Contended`] if others were first in each of 30 tries. Nothing was
    ///   added.
    /// - [`AtomicLongError::NotACounter`] or [`AtomicLongError::NotPersistent`] if the node at the
    ///   path is not a counter. Nothing was written.
    /// - See [`AtomicLongError`] for the other variants.
    ///
    /// # Cancel safety
    /// If the future is dropped, `delta` may or may not be added: do not use it in a `select!`
    /// whose other branch continues with the counter.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// use zookeeper_recipes::{AtomicLongError, DistributedAtomicLong};
    ///
    /// let sold = DistributedAtomicLong::new(&client, "/shop/sold")?;
    /// match sold.add(3).await {
    ///     Ok(total) => assert_eq!(total, 3),
    ///     // They may or may not have been added. If an exact total matters, count the orders.
    ///     Err(AtomicLongError::Unknown { path, .. }) => eprintln!("{path} may lack 3"),
    ///     Err(error) => return Err(error.into()),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn add(&self, delta: i64) -> Result<i64, AtomicLongError> {
        self.number(Change::Add(delta.into())).await
    }

    /// Subtracts from the value. Returns the new value.
    ///
    /// # Errors
    /// See [`add`](Self::add).
    ///
    /// # Cancel safety
    /// See [`add`](Self::add).
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// use zookeeper_recipes::DistributedAtomicLong;
    ///
    /// let stock = DistributedAtomicLong::new(&client, "/shop/stock")?;
    /// stock.initialize(10).await?;
    /// assert_eq!(stock.subtract(3).await?, 7);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn subtract(&self, delta: i64) -> Result<i64, AtomicLongError> {
        self.number(Change::Add(-i128::from(delta))).await
    }

    /// Adds 1. Returns the new value.
    ///
    /// # Errors
    /// See [`add`](Self::add).
    ///
    /// # Cancel safety
    /// See [`add`](Self::add).
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// use zookeeper_recipes::DistributedAtomicLong;
    ///
    /// let visitors = DistributedAtomicLong::new(&client, "/shop/visitors")?;
    /// assert_eq!(visitors.increment().await?, 1);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn increment(&self) -> Result<i64, AtomicLongError> {
        self.number(Change::Add(1)).await
    }

    /// Subtracts 1. Returns the new value.
    ///
    /// # Errors
    /// See [`add`](Self::add).
    ///
    /// # Cancel safety
    /// See [`add`](Self::add).
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// use zookeeper_recipes::DistributedAtomicLong;
    ///
    /// let visitors = DistributedAtomicLong::new(&client, "/shop/visitors")?;
    /// visitors.add(7).await?;
    /// assert_eq!(visitors.decrement().await?, 6);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn decrement(&self) -> Result<i64, AtomicLongError> {
        self.number(Change::Add(-1)).await
    }

    /// Adds 1 and returns the new value as an id that no other call of `next_id`, in any process,
    /// returns.
    ///
    /// If it is unknown whether a number was taken, it is given up and another one is taken. So
    /// there may be gaps, and there is no [`AtomicLongError::Unknown`]. The numbers that one task
    /// gets are increasing.
    ///
    /// # Errors
    /// See [`add`](Self::add); never [`AtomicLongError::Unknown`]. After an error a number may be
    /// missing.
    ///
    /// # Cancel safety
    /// If the future is dropped, one number may be missing. None is returned twice.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// # let elsewhere = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// use zookeeper_recipes::DistributedAtomicLong;
    ///
    /// let here = DistributedAtomicLong::new(&client, "/shop/order-number")?;
    /// let there = DistributedAtomicLong::new(&elsewhere, "/shop/order-number")?;
    /// let (first, second) = tokio::try_join!(here.next_id(), there.next_id())?;
    /// assert_ne!(first, second);
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "id")]
    #[doc(alias = "sequence")]
    pub async fn next_id(&self) -> Result<i64, AtomicLongError> {
        self.number(Change::Reserve(1)).await
    }

    /// Returns a source of ids that reserves `block` ids at a time, and returns them without
    /// further requests, like Curator's `CachedAtomicLong`.
    ///
    /// The ids are those of [`next_id`](Self::next_id): no two callers get the same id. The ids of
    /// one source are increasing, but those of several sources are not ordered. Ids that are left
    /// in a block when the process ends are never used.
    ///
    /// # Errors
    /// [`BuildError::InvalidOption`] if `block` is 0.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// use zookeeper_recipes::DistributedAtomicLong;
    ///
    /// let orders = DistributedAtomicLong::new(&client, "/shop/order-number")?;
    /// let ids = orders.cached(100)?; // one for the whole process
    /// assert_eq!(ids.next_id().await?, 1);
    /// assert_eq!(ids.next_id().await?, 2); // without a request
    /// assert_eq!(orders.get().await?, 100);
    /// assert!(orders.cached(0).is_err());
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "CachedAtomicLong")]
    pub fn cached(&self, block: u32) -> Result<CachedAtomicLong, BuildError> {
        if block == 0 {
            return Err(BuildError::InvalidOption {
                path: self.path().to_owned(),
                option: "block",
                reason: "it is at least 1",
            });
        }
        #[expect(clippy::reversed_empty_ranges, reason = "nothing is reserved yet")]
        let reserved = Mutex::new(Reserved {
            ids: 1..=0,
            begun: 0,
            failed: None,
        });
        Ok(CachedAtomicLong {
            number: self.clone(),
            block,
            reserving: Semaphore::new(1),
            reserved,
        })
    }

    /// Returns the path of the counter, as it was given.
    #[must_use]
    pub fn path(&self) -> &str {
        self.counter.path.user()
    }

    async fn number(&self, change: Change) -> Result<i64, AtomicLongError> {
        match self.counter.change(change).await? {
            Changed::To(value) => Ok(value),
            Changed::Set(_) => Err(self.counter.unexpected_answer()),
        }
    }

    async fn set_if(&self, change: Change) -> Result<bool, AtomicLongError> {
        match self.counter.change(change).await? {
            Changed::Set(set) => Ok(set),
            Changed::To(_) => Err(self.counter.unexpected_answer()),
        }
    }
}

impl sealed::Buildable for DistributedAtomicLong {
    fn built(builder: RecipeBuilder<Self>) -> Result<Self, BuildError> {
        let client = Arc::clone(&builder.client.core);
        let path = LockPath::parse(&client.namespace, &builder.path)?;
        let acl = builder.asked.acl.unwrap_or_else(|| Arc::clone(&client.acl));
        check_acl(&acl, &client.credentials).map_err(|reason| BuildError::InvalidOption {
            path: builder.path,
            option: "acl",
            reason,
        })?;
        let parents = builder.asked.parents.unwrap_or_default();
        Ok(Self {
            counter: Arc::new(Counter {
                path,
                acl,
                parents,
                client,
            }),
        })
    }
}

/// A source of ids from reserved blocks; see [`DistributedAtomicLong::cached`].
///
/// Share one source in the whole process (its methods need no `&mut`), because each source has a
/// separate block. When the block is used up, one caller reserves the next block, and the others
/// wait for it.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zookeeper_test_server::Server::start()?;
/// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
/// use std::sync::Arc;
/// use zookeeper_recipes::DistributedAtomicLong;
///
/// let ids = Arc::new(DistributedAtomicLong::new(&client, "/shop/order-number")?.cached(1000)?);
/// let workers: Vec<_> = (0..8)
///     .map(|_| {
///         let ids = Arc::clone(&ids);
///         tokio::spawn(async move { ids.next_id().await })
///     })
///     .collect();
/// let mut taken = Vec::new();
/// for worker in workers {
///     taken.push(worker.await??);
/// }
/// taken.sort_unstable();
/// assert_eq!(taken, [1, 2, 3, 4, 5, 6, 7, 8]); // with one reservation
/// # Ok(())
/// # }
/// ```
pub struct CachedAtomicLong {
    number: DistributedAtomicLong,
    block: u32,
    /// The permit of the caller that reserves.
    reserving: Semaphore,
    /// Locked for a moment, never across an await.
    reserved: Mutex<Reserved>,
}

/// The results of the reservations.
struct Reserved {
    /// The remaining ids of the last block.
    ids: RangeInclusive<i64>,
    /// The number of reservations that have begun.
    begun: u64,
    /// The number of the last reservation that failed, and its error.
    failed: Option<(u64, AtomicLongError)>,
}

impl CachedAtomicLong {
    /// Returns an id that no other caller gets, from the block that is reserved, or the first of
    /// another block.
    ///
    /// # Errors
    /// See [`DistributedAtomicLong::next_id`]. [`AtomicLongError::Overflow`] if the numbers do not
    /// suffice for a whole block. Callers that waited for a failed reservation get its error.
    ///
    /// # Cancel safety
    /// If the future is dropped, a block that the call was about to reserve may be missing from the
    /// sequence. No id is returned twice, and no remaining id of the last block is lost.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// use zookeeper_recipes::DistributedAtomicLong;
    ///
    /// let orders = DistributedAtomicLong::new(&client, "/shop/order-number")?;
    /// let (here, there) = (orders.cached(10)?, orders.cached(10)?);
    /// assert_eq!((here.next_id().await?, there.next_id().await?), (1, 11));
    /// assert_eq!((here.next_id().await?, there.next_id().await?), (2, 12));
    /// # Ok(())
    /// # }
    /// ```
    pub async fn next_id(&self) -> Result<i64, AtomicLongError> {
        // An id that is left of the last block needs no wait. `begun_before` shows later which
        // reservations began after this call.
        let begun_before = {
            let mut reserved = self.reserved.lock();
            if let Some(id) = reserved.ids.next() {
                return Ok(id);
            }
            reserved.begun
        };
        // The semaphore is never closed, so `acquire` never returns an error.
        let _reserving = self.reserving.acquire().await;
        let reservation = {
            let mut reserved = self.reserved.lock();
            // Another call has reserved a block in the meantime.
            if let Some(id) = reserved.ids.next() {
                return Ok(id);
            }
            // Another call has failed to reserve one, with all the tries that this call would have.
            // If each caller tried in turn, the last of many callers would notice an outage only
            // after hours.
            if let Some((_, error)) = reserved
                .failed
                .as_ref()
                .filter(|(failed, _)| *failed > begun_before)
            {
                return Err(error.clone());
            }
            reserved.begun += 1;
            reserved.begun
        };
        match self.number.number(Change::Reserve(self.block)).await {
            Ok(last) => {
                let first = last.saturating_sub(i64::from(self.block) - 1);
                // This caller keeps the first id, because the others may take all the rest before
                // this caller is polled again. The iterator skips the first id, because `first + 1`
                // could overflow.
                let mut ids = first..=last;
                ids.next();
                let mut reserved = self.reserved.lock();
                (reserved.ids, reserved.failed) = (ids, None);
                Ok(first)
            }
            Err(error) => {
                self.reserved.lock().failed = Some((reservation, error.clone()));
                Err(error)
            }
        }
    }

    /// Returns the path of the counter, as it was given.
    #[must_use]
    pub fn path(&self) -> &str {
        self.number.path()
    }
}

impl fmt::Debug for CachedAtomicLong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "CachedAtomicLong({}, blocks of {})",
            Quoted(self.path()),
            self.block
        )
    }
}

crate::values::shown::debug_as_path!(DistributedAtomicLong);
