//! Distributed locks for tokio on Apache ZooKeeper: the recipes of Apache Curator, in Rust.
//!
//! For services that run in several instances and must not do a thing twice at once: sell the last item, hand out an
//! order number, refresh a cache while somebody writes the row behind it, run the nightly job.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let server = zookeeper_test_server::Server::start()?;
//! # tokio::runtime::Runtime::new()?.block_on(async {
//! # let servers = server.connect_string();
//! use std::time::Duration;
//! use zookeeper_recipes::{Acquired, Busy, Client, InterProcessMutex, OptionalExt};
//!
//! let client = Client::connect(&servers).await?; // "zk1:2181,zk2:2181,zk3:2181"
//! let mutex = InterProcessMutex::new(&client, "/inventory/sku-42")?;
//!
//! match mutex.acquire(Duration::from_millis(200)).await.optional()? {
//!     Acquired(guard) => {
//!         // Nobody else is here. Give `guard.fencing_token()` to what you write to.
//!         guard.release().await?;
//!     }
//!     Busy => println!("too busy, try again later"),
//! }
//! client.close().await?;
//! # Ok(())
//! # })
//! # }
//! ```
//!
//! # Which recipe
//! | you want | use |
//! |---|---|
//! | one at a time, first come first served | [`InterProcessMutex`] |
//! | the same in an order that nothing weakens, with thousands of waiters in a process, or a place in the queue to look at | [`InterProcessFairLock`] |
//! | readers together, writers alone | [`InterProcessReadWriteLock`] |
//! | any of these, without caring which type | [`InterProcessLock`] |
//!
//! The semaphore and the multi-lock are still to come.
//!
//! Mutex and fair lock on one path exclude each other, whoever's they are. A read-write lock needs a path of its own:
//! where its nodes meet a mutex's, both sides are refused ([`AcquireError::MixedRecipes`]).
//!
//! # What a lock proves
//! While the session that holds a lock lives, ZooKeeper gives the lock to nobody else. The client proves to itself every
//! sixth of the session timeout that a quorum keeps its session, by a committed transaction (reads, pings and `sync`
//! prove nothing: a member that is cut off answers them while the others give the lock away). When the last proof
//! is two thirds of the timeout old, the guard turns lost, which is before the servers may act. So in any failure of the
//! network or of servers a holder is told before anybody else is granted.
//!
//! What no lock can do is stop *your* process: one that was paused for longer than that (a garbage collector, a
//! hypervisor, `SIGSTOP`, a laptop lid) goes on where it was, and writes. Two things cover it:
//!
//! * **The fencing token.** Store the highest [`FencingToken`] seen with the data (of a read-write lock also the highest
//!   [`ReadToken`]), and refuse reads and writes with a smaller one, in the same transaction ([`FenceGate`] has the rule,
//!   its SQL, and why reads count).
//! * **A transaction** ([`LockGuard::transaction`]) for data in ZooKeeper itself: the servers check that the lock node
//!   is there when they commit. What was read before is guarded by its version, as ever.
//!
//! And for work that takes long: [`LockGuard::while_held`] drops it when the lock is lost, [`LockGuard::lost`] is a
//! future to select on, [`LockGuard::state`] shows trouble before it is a loss.
//!
//! All members of the ensemble need the same `minSessionTimeout` and `maxSessionTimeout`: a session timeout that
//! shrinks on a reconnect is not noticed.
//!
//! # How it behaves
//! * **Timeouts are real.** One budget covers everything a call does. `TimedOut` means that the lock will not be
//!   granted any more.
//! * **Cancelling is safe.** Drop any future at any time, wrap it in [`tokio::time::timeout`] or `select!`: what
//!   it had created at the servers is deleted, also when its outcome was not known yet.
//! * **Nothing binds a lock to a thread or a task.** The guard is the hold; whoever has it releases it.
//! * **Thousands of tasks may wait for one lock** in one process: they queue in memory behind at most
//!   [`max_znodes`](InterProcessMutexBuilder::max_znodes) nodes at the servers, in order.
//! * **Your executor may be blocked** without costing you the lock: the session has a thread of its own.
//! * **When a session expires**, waiters queue again in the next, in the order in which they had come; guards are lost.
//! * **Any executor may poll the futures**; timers run on the session's thread.
//!
//! # Coming from Curator
//! | Curator | here |
//! |---|---|
//! | `CuratorFrameworkFactory.builder()` | [`Client::builder`] |
//! | `ExponentialBackoffRetry(1000, 3, 5000)` and its kin | [`RetryPolicy::exponential`] and its kin |
//! | `usingNamespace` | [`ClientBuilder::namespace`] |
//! | `ConnectionState` `SUSPENDED`, `LOST` | [`ConnectionState`], [`Client::watch_state`] |
//! | `InterProcessMutex.acquire(t, unit)`, `boolean` | [`InterProcessMutex::acquire`], then [`.optional()`](OptionalExt::optional) |
//! | `acquire()` | [`InterProcessMutex::lock`] |
//! | `acquire(0, unit)` | [`InterProcessMutex::try_lock`] |
//! | `release()`, by the owning thread | [`LockGuard::release`], or dropping the guard, anywhere |
//! | re-entrant per thread | re-entrant by value: [`LockGuard::reenter`] |
//! | "treat `SUSPENDED` as lost, watch for `LOST`" | [`LockGuard::lost`], [`LockGuard::while_held`] |
//! | `isAcquiredInThisProcess()` | [`InterProcessMutex::is_acquired_in_this_process`] |
//! | `getParticipantNodes()` | [`InterProcessMutex::participants`] |
//! | `getLockNodeBytes()` | [`InterProcessMutexBuilder::data`] |
//! | `InterProcessReadWriteLock.readLock()`, `writeLock()` | [`InterProcessReadWriteLock::read_lock`], [`write_lock`](InterProcessReadWriteLock::write_lock) |
//! | downgrade: write, read, release write | [`WriteGuard::downgrade`] |
//! | upgrade: waits for itself, for ever | [`ReadGuard::try_upgrade`], which answers at once |
//! | a read while holding write | by value: [`WriteGuard::read`] |
//! | `makeRevocable(listener)` | [`LockGuard::revoked`], a future |
//! | `Revoker.attemptRevoke(client, path)` | [`Client::attempt_revoke`] |
//! | `LockInternals` and its driver | not public |
//!
//! Curator's and go-zookeeper's mutexes use the same node names; all queue in the same line. So do Curator's read-write
//! locks, of which those before 5.5 downgrade unsafely (CURATOR-621). Kazoo's locks (Python) have other names, used when
//! asked for with [`Dialect::Kazoo`].
//!
//! # Features
//! None is on by default. `tls`, `sasl-digest-md5` and `sasl-gssapi` pass the features of `zookeeper-client` of the same
//! names through, for use with [`ClientBuilder::connector`].

mod client;
mod engine;
mod error;
mod fair_lock;
mod fence;
mod guard;
mod lock;
pub mod mode;
mod mutex;
mod options;
mod path;
mod protocol;
mod read_write_lock;
mod session;
mod shown;
mod token;
mod transaction;

pub use client::{Client, ClientBuilder};
pub use error::Acquisition::{Acquired, Busy};
pub use error::{
    AcquireError, Acquisition, BuildError, ConnectError, ConversionError, ConversionFailure, InvalidPath,
    LocalHolder, Lost, LostReason, OptionalExt, ReleaseError, RevokeError, ServerFailure, ServerFailureKind,
    ServerFailures, TransactionError, TryLockError,
};
pub use fair_lock::{InterProcessFairLock, InterProcessFairLockBuilder, QueuedLock};
pub use fence::{FenceGate, Fenced};
pub use guard::{AnyGuard, LockGuard, LockState, ReadGuard, WriteGuard};
pub use lock::InterProcessLock;
pub use mutex::{InterProcessMutex, InterProcessMutexBuilder};
pub use options::{Acl, Parents, Permissions};
pub use path::NodePath;
pub use protocol::lease::Margin;
pub use protocol::node_name::Dialect;
pub use read_write_lock::{
    InterProcessReadLock, InterProcessReadWriteLock, InterProcessReadWriteLockBuilder, InterProcessWriteLock,
};
pub use session::heartbeat::Heartbeat;
pub use session::retry::RetryPolicy;
pub use session::supervisor::ConnectionState;
pub use token::{FencingToken, ReadToken, Token};
pub use transaction::Transaction;

/// The README's code is compiled with the documentation's.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
