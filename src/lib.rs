//! Distributed locks for tokio on Apache ZooKeeper: the recipes of Apache Curator, in Rust.
//!
//! Use the locks in a service whose processes must not do certain things at the same time: sell the
//! last item, hand out an order number, refresh a cache while another process writes the row behind
//! it, or run the nightly job.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let server = zookeeper_test_server::Server::start()?;
//! # let servers = server.connect_string();
//! use std::time::Duration;
//! use zookeeper_recipes::Acquisition::{Acquired, Busy};
//! use zookeeper_recipes::{Client, InterProcessMutex, OrBusy};
//!
//! let client = Client::connect(&servers).await?; // "zk1:2181,zk2:2181,zk3:2181"
//! let mutex = InterProcessMutex::new(&client, "/inventory/sku-42")?;
//!
//! match mutex.acquire(Duration::from_secs(2)).await.or_busy()? {
//!     Acquired(guard) => {
//!         // No other process holds the lock. Pass `guard.fencing_token()` to the database.
//!         guard.release().await?;
//!     }
//!     Busy => println!("too busy, try again later"),
//! }
//! client.close().await?;
//! # Ok(())
//! # }
//! ```
//!
//! # Which recipe
//! | you want | use |
//! |---|---|
//! | one holder at a time | [`InterProcessMutex`] |
//! | the same, but in order of arrival across processes, even with thousands of waiters; or a place in the queue that can be read | [`InterProcessFairLock`] |
//! | many readers or one writer | [`InterProcessReadWriteLock`] |
//! | any of these, in generic code | [`InterProcessLock`] |
//! | several of these at once, all or none, without a deadlock | [`InterProcessMultiLock`] |
//! | at most n holders at a time, each with a separate number below n | [`InterProcessSemaphore`] |
//! | one leader among many processes, and a future that runs only while its process leads | [`LeaderSelector::lead`] |
//! | the same, with a state to read and to watch | [`LeaderLatch`] |
//! | to know who leads, without taking part | [`RecipeBuilder::watch_leader`] |
//! | ids, order numbers, totals | [`DistributedAtomicLong`] |
//! | a job that runs once per day, or per any other occasion, even if many processes start it | [`OnceJob`] |
//! | a path that contains text from a user | [`LockPath::segment`] |
//! | to start before ZooKeeper does, or to stop in an orderly way | [`Client::connect_lazy`], [`Client::drain`] |
//! | an ephemeral node that is re-created whenever the session is replaced | [`PersistentNode`] |
//! | a list of the running processes, and a watch on it | [`GroupMember`] |
//! | a notification when the client, a leader or a node changes its state | [`StateWatch`] |
//!
//! Every lock can be acquired with a [lease](InterProcessMutex::acquire_with_lease), the time after
//! which the lock is released even if its holder is still running.
//!
//! A mutex and a fair lock on the same path exclude each other, within and across processes. A
//! read-write lock needs its own path: if a mutex uses the same path, calls on both fail with
//! [`ErrorKind::MixedRecipes`]. A semaphore needs its own path too, but there is no error if
//! another lock uses that path.
//!
//! # What a lock proves
//! While the session that holds a lock lives, ZooKeeper grants the lock to no other session. The
//! client's locks are valid for a *session lease*, which the client renews by a committed
//! transaction, at intervals of a sixth of the session timeout (by default). (Reads, pings and
//! `sync` do not count, because a server that is cut off from the other servers still answers them,
//! while the others grant the lock to another session.) When the last renewal is two thirds of the
//! session timeout old, the guard reports the loss, before the servers can expire the session. So
//! when the network or servers fail, the holder is notified before another process is granted the
//! lock.
//!
//! No lock can stop a paused process: after a long pause (caused by a hypervisor, `SIGSTOP` or a
//! closed laptop lid), the process resumes where it stopped, and writes. Two things protect the
//! data from such writes:
//!
//! * **The fencing token.** Store the highest [`FencingToken`] with the data, and for a read-write
//!   lock also the highest [`ReadToken`]. In the transaction that reads or writes, reject a
//!   `ReadToken` below the highest `FencingToken`, and a `FencingToken` below the highest token of
//!   either type. [`FenceGate`] has the rule and its SQL.
//! * **A transaction** ([`LockGuard::transaction`]) for data in ZooKeeper: the servers check in the
//!   same step that the lock node still exists. A value that you read earlier may be stale, so read
//!   it with [`LockGuard::get_data`], and pass its version to [`set_data`](Transaction::set_data)
//!   or [`check`](Transaction::check).
//!
//! For long work, [`LockGuard::while_held`] drops a future when the lock is lost,
//! [`LockGuard::lost`] is a future for `select!`, and [`LockGuard::state`] shows an interruption
//! before it becomes a loss. None of these stops a [`spawn_blocking`](tokio::task::spawn_blocking)
//! closure: [move the guard into the closure](LockGuard::while_held).
//!
//! All servers of the ensemble must have the same `minSessionTimeout`, `maxSessionTimeout` and
//! `tickTime`, because the client does not notice a session timeout that shrinks on a reconnect.
//!
//! # How it behaves
//! * **Timeouts cover the whole call.** A call that returns `TimedOut` is not granted the lock
//!   later.
//! * **Cancelling is safe.** You may drop a call that acquires a lock at any time, or wrap it in
//!   [`tokio::time::timeout`] or `select!`: its nodes are deleted in the background, even if the
//!   servers have not answered yet. For other calls, see *Cancel safety* in their documentation.
//! * **A lock belongs to its guard**, not to a thread or a task. Any task that has the guard can
//!   release it.
//! * **Thousands of tasks of one process may wait for one lock.** They wait in memory, in order,
//!   behind one node on the servers, and [hand the lock over](RecipeBuilder::hand_off) without a
//!   request.
//! * **A handler that is dropped drops its guards.** Web frameworks drop the future of a request
//!   when its caller disconnects, which releases the lock in the middle of the work. Move work that
//!   must be completed to a task, together with its guard ([`LockGuard::while_held_owned`]).
//! * **A blocked executor does not lose its locks**, because the session runs on a separate thread.
//! * **When a session expires**, its guards report the loss, and its waiters queue again in the
//!   next session, in the same order among themselves.
//! * **Any executor may poll the futures.** Their timers run on the session's thread.
//!
//! # Coming from tokio::sync
//! | tokio | here |
//! |---|---|
//! | `Mutex::lock` | [`InterProcessMutex::lock`], which can fail |
//! | `timeout(duration, mutex.lock())` | [`InterProcessMutex::acquire`] |
//! | `Mutex::try_lock` | [`InterProcessMutex::try_lock`], asynchronous, because it asks the servers |
//! | `MutexGuard`, `OwnedMutexGuard` | [`LockGuard`], which borrows nothing and can be sent to other tasks |
//! | dropping the guard | the same, in the background; [`LockGuard::release`] waits for the servers and reports a loss |
//! | `RwLock::read`, `RwLock::write` | [`InterProcessReadWriteLock::read_lock`] and [`write_lock`](InterProcessReadWriteLock::write_lock) return locks with the methods of the mutex |
//! | `RwLockWriteGuard::downgrade` | [`WriteGuard::downgrade`], asynchronous |
//! | (none) | [`InterProcessMultiLock`]: several locks as one |
//! | `Mutex::blocking_lock` | [`InterProcessMutex::blocking_lock`], and all other calls with this prefix, which need no runtime. In asynchronous code they do not panic, but block the executor's thread |
//! | `Semaphore::new(n)`, `acquire`, `try_acquire` | [`InterProcessSemaphore::new`], [`acquire`](InterProcessSemaphore::acquire), [`try_acquire`](InterProcessSemaphore::try_acquire) |
//! | `Semaphore::acquire_many`, `try_acquire_many` | [`InterProcessSemaphore::acquire_many`], [`try_acquire_many`](InterProcessSemaphore::try_acquire_many) |
//! | `OwnedSemaphorePermit::split`, `merge` | [`SemaphorePermit::split`], [`merge`](SemaphorePermit::merge) |
//! | `Semaphore::add_permits`, `forget_permits` | [`InterProcessSemaphore::set_limit`], for all processes |
//! | `TryLockError` | [`TryLockError::WouldBlock`] |
//! | `watch::Receiver`: `borrow`, `changed`, `wait_for` | [`StateWatch`]: [`get`](StateWatch::get), [`changed`](StateWatch::changed), [`wait_for`](StateWatch::wait_for), which return copies and block nothing |
//!
//! These points differ:
//! * **The lock does not own the data**, which is in a database or another service. So each guard
//!   has a [fencing token](LockGuard::fencing_token), which the owner of the data can compare.
//! * **A lock can be lost while its guard lives**, for example when the session ends. Check
//!   [`LockGuard::is_held`], or run the work in [`LockGuard::while_held`].
//! * **Releasing is a request.** Dropping a guard sends it in the background; `release().await`
//!   returns the outcome. Call [`Client::close`] at the end of `main`; otherwise locks whose
//!   release has not been sent stay held until the session expires.
//! * **A cancelled call** loses its place in the queue, as in tokio, and its node is deleted in the
//!   background: [`Client::flush`] waits for this deletion.
//! * **Waiters of one client are served in order**, as in tokio, except for `try_lock`; a
//!   read-write lock has a separate order for each side. Clients take turns in the order of their
//!   nodes, within the bounds of `hand_off`. [`InterProcessFairLock`] keeps the order of arrival
//!   across all clients.
//!
//! # Coming from Curator
//! [`from_curator`] has a table of names, the differences, and the steps to move a system while
//! both run. Mutexes of Curator and go-zookeeper use the same node names, so they share a queue
//! with this crate's mutexes on the same path.
//!
//! # Errors
//! A failed request is reported as an [`Error`], which has a [`kind`](Error::kind). Calls that can
//! fail only in this way return it directly: the queries of a lock, [`Client::attempt_revoke`],
//! [`InterProcessMutex::break_lock`] and [`InterProcessSemaphore::set_limit`]. Calls that can also
//! fail in other ways return an enum with a variant `Request` for the [`Error`] and a method
//! `kind()`: [`AcquireError`], [`TransactionError`], [`ConversionError`], [`OnceError`],
//! [`PersistentNodeError`], [`AtomicLongError`], and [`TryLockError`], whose variant `Acquire`
//! wraps an `AcquireError`. [`BuildError`], [`ConnectError`] and [`ReleaseError`] contain no
//! [`Error`]. Each of these errors has `is_retryable()` and `path()`, and its message says what to
//! do. A loss is a state of the guard, not a failed request: after a loss, methods that need the
//! lock return [`Lost`].
//!
//! # Logging
//! Events are emitted with `tracing`, with targets that begin with `zookeeper_recipes`. `ERROR`:
//! the client is closed or has no session, or a leftover node blocks a lock. `WARN`: a lock is
//! lost, connecting fails, or a call without a timeout waits for a lock that its own client holds
//! (the event names the line that waits and the line that acquired the lock). `INFO`: a session
//! begins or ends. `DEBUG`: a request fails (the event names the client's reaction); also, with the
//! target `zookeeper_recipes::lock`, a span for each wait and each hold. [`observability`] lists
//! all names.
//!
//! # Pages
//! [`guide`] links to all pages: [`do_i_need_this`], [`cookbook`], [`from_curator`],
//! [`from_redisson`], [`why_no_redlock`], [`in_a_web_service`], [`testing_a_service`],
//! [`observability`], [`operating`], and [`failures`], which says what each error and each warning
//! means.
//!
//! # Features
//! No feature is on by default: `metrics` (for a recorder, see [`observability`]), `serde` (for the
//! fencing tokens, in their `Display` form), `tls` (`ClientBuilder::tls` and `TlsOptions`),
//! `sasl-digest-md5` (`ClientBuilder::sasl_digest`) and `sasl-gssapi` (Kerberos, through
//! [`ClientBuilder::connector`]; links the system's libgssapi).

#![cfg_attr(docsrs, feature(doc_cfg))]

mod blocking;
mod builder;
mod client;
mod engine;
mod error;
mod locks;
mod protocol;
mod recipes;
mod session;
mod state_watch;
mod values;

pub use builder::RecipeBuilder;
pub use client::{Client, ClientBuilder};
pub use error::{
    AcquireError, Acquisition, AtomicLongError, BuildError, ConnectError, Contention,
    ConversionError, Error, ErrorKind, Holding, Lost, LostReason, OnceError, OrBusy,
    PersistentNodeError, ReleaseError, ServerFailure, TransactionError, TryLockError,
};
pub use locks::fair_lock::{InterProcessFairLock, QueuedLock};
pub use locks::fence::{FenceGate, StaleToken};
pub use locks::guard::{AnyGuard, LockGuard, LockState, ReadGuard, WriteGuard};
pub use locks::guards::Guard;
pub use locks::lock::{InterProcessLock, Lock};
pub use locks::mode;
pub use locks::multi_lock::{InterProcessMultiLock, MultiLockGuard};
pub use locks::mutex::InterProcessMutex;
pub use locks::read_write_lock::{
    InterProcessReadLock, InterProcessReadWriteLock, InterProcessWriteLock,
};
pub use locks::semaphore::{InterProcessSemaphore, SemaphorePermit};
pub use locks::transaction::Transaction;
pub use protocol::lease::LeaseMargin;
pub use protocol::node_name::Dialect;
pub use recipes::atomic_long::{CachedAtomicLong, DistributedAtomicLong};
pub use recipes::election::{LeaderWatch, LeadershipState};
pub use recipes::group_member::{GroupMember, GroupWatch};
pub use recipes::leader_latch::{LeaderLatch, Leadership};
pub use recipes::leader_selector::LeaderSelector;
pub use recipes::once::{OnceJob, OnceOutcome, OnceRun};
pub use recipes::persistent_node::{PersistentNode, PersistentNodeState};
pub use session::request::retry::RetryPolicy;
pub use session::supervisor::ConnectionState;
pub use state_watch::StateWatch;
pub use values::contender::{Contender, ContenderKind, Identity, Participant};
pub use values::options::{Acl, ParentNodes, Permissions};
pub use values::path::{InvalidPath, LockPath, NodePath};
#[cfg(feature = "tls")]
pub use values::tls::TlsOptions;
pub use values::token::{FencingToken, ParseTokenError, ReadToken, Token};

/// The parts that a simulation replaces; see `simulation/README.md`.
#[cfg(simulation)]
#[doc(hidden)]
pub mod simulation {
    pub use crate::session::threads::background::{Answer, Host, set_current};
}

// The pages of `docs` that are modules of the documentation. A page links to the files of other
// pages; `links.md` redirects these links to modules, because it is included first.
macro_rules! pages {
    ($($name:ident: $file:literal,)+) => {$(
        #[cfg(any(doc, doctest))]
        #[doc = include_str!("../docs/links.md")]
        #[doc = include_str!($file)]
        pub mod $name {}
    )+};
}

pages! {
    guide: "../docs/README.md",
    do_i_need_this: "../docs/do-i-need-this.md",
    cookbook: "../docs/cookbook.md",
    from_curator: "../docs/migrating/curator.md",
    from_redisson: "../docs/migrating/redisson.md",
    why_no_redlock: "../docs/migrating/redlock.md",
    testing_a_service: "../docs/testing.md",
    in_a_web_service: "../docs/service.md",
    observability: "../docs/observability.md",
    operating: "../docs/operating.md",
    failures: "../docs/failures.md",
}

/// Compiles the README's code with the documentation's.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
