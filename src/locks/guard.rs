//! The guard of a held lock.
//!
//! A guard is a share of a `Hold`, which has one node. The last guard of a hold releases the lock
//! when it is dropped or released. A guard decides nothing by itself: its methods are those of
//! `Shares`, and the state of the hold is in `engine::held`.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::blocking::block_on;
use crate::engine::acquisition::Hold;
use crate::error::{Lost, ReleaseError, TransactionError};
use crate::locks::guard_set::{self, Shares};
use crate::locks::guards::Guard;
use crate::locks::guards::sealed::{Inside, IsGuard};
use crate::locks::mode::{Any, Exclusive, Mode, Read, Write, sealed};
use crate::locks::transaction::Transaction;
pub use crate::protocol::hold::LockState;
use crate::session::threads::BoxFuture;
use crate::values::path::NodePath;
use crate::values::shown::Quoted;

/// A guard that holds a lock until it is dropped or released.
///
/// An ephemeral node on the servers holds the lock ([`node`](Self::node)). **Dropping the guard
/// releases the lock** in the background: the client repeats the deletion of the node until a
/// server has confirmed it or the session has ended. The drop neither blocks nor panics, and needs
/// no runtime. [`release`](Self::release) does the same and returns the outcome. A guard can be
/// sent to other threads and tasks, and released there. It cannot be cloned, but
/// [`reenter`](Self::reenter) returns another guard of the same *hold*, which is one grant of the
/// lock. [`OrBusy`](crate::OrBusy#wrong-forms) lists expressions that drop the guard at once.
///
/// # The mode
/// `M` is the [`Mode`] in which the lock is held: [`Exclusive`] for a mutex or a fair lock,
/// [`Read`] ([`ReadGuard`]) or [`Write`] ([`WriteGuard`]) for a read-write lock, and [`Any`]
/// ([`AnyGuard`]) if the mode is known only at run time. The mode decides the type of the
/// [token](Self::fencing_token) and the possible conversions; [`mode`](crate::mode) shows code for
/// guards of every mode.
///
/// # What it proves, and what it does not
/// While a lock is held, the client renews the *session lease* by a transaction that a quorum of
/// the servers must commit, at intervals of a sixth of the session timeout (by default). After two
/// thirds of the session timeout (less with [`LeaseMargin::Strict`](crate::LeaseMargin::Strict))
/// without a renewal, the lock is [lost](Self::lost). The
/// servers grant the lock to no other process before the session expires, so if the network or the
/// servers fail, the holder is notified first, and has the remaining third to stop: the lock node
/// stays until the last guard is dropped or released, or that time has passed. In three cases the
/// holder may be notified after the next grant, up to a sixth of the session timeout later (by
/// default): another process deletes the lock node, an administrator ends the session, or a server
/// (ClickHouse Keeper) replaces the session without reporting it.
///
/// A lock that was acquired with a [lease](crate::InterProcessMutex::acquire_with_lease) can be
/// lost sooner: when the lease ends, the lock is lost, and is released at once.
///
/// A process that is paused, and resumes after its session has expired, may write before it can
/// notice the loss. For that case, pass the [`fencing_token`](Self::fencing_token) to the resource,
/// which refuses smaller tokens ([`FenceGate`](crate::FenceGate)), or write to ZooKeeper in a
/// [`transaction`](Self::transaction).
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zookeeper_test_server::Server::start()?;
/// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
/// # let mutex = zookeeper_recipes::InterProcessMutex::new(&client, "/jobs/nightly")?;
/// use std::time::Duration;
///
/// let guard = mutex.acquire(Duration::from_secs(10)).await?;
/// let rows = guard.while_held(async { 42 /* the nightly job */ }).await?;
/// guard.release().await?; // or drop it
/// # assert_eq!(rows, 42);
/// # Ok(())
/// # }
/// ```
///
/// A test of a loss, with the server of `zookeeper-test-server`:
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use zookeeper_recipes::{Client, InterProcessMutex, LostReason};
///
/// let server = zookeeper_test_server::Server::start()?;
/// let client = Client::connect(&server.connect_string()).await?;
/// let guard = InterProcessMutex::new(&client, "/jobs/nightly")?.lock().await?;
///
/// server.expire_session(client.session_id().unwrap());
/// assert_eq!(guard.lost().await.reason(), LostReason::SessionExpired);
/// # Ok(())
/// # }
/// ```
#[must_use = "dropping the guard releases the lock at once: bind it to `_guard`, not to `_`"]
#[clippy::has_significant_drop]
#[doc(alias = "MutexGuard")]
#[doc(alias = "OwnedMutexGuard")]
pub struct LockGuard<M: Mode = Exclusive> {
    hold: Arc<Hold>,
    mode: M,
}

/// A guard of a read lock, which other readers may hold at the same time.
///
/// Returned by [`InterProcessReadLock`](crate::InterProcessReadLock).
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zookeeper_test_server::Server::start()?;
/// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
/// # let lock = zookeeper_recipes::InterProcessReadWriteLock::new(&client, "/cache/prices")?;
/// use zookeeper_recipes::ReadGuard;
///
/// let one: ReadGuard = lock.read_lock().lock().await?;
/// let two: ReadGuard = lock.read_lock().lock().await?;
/// assert!(one.is_held() && two.is_held());
/// # Ok(())
/// # }
/// ```
pub type ReadGuard = LockGuard<Read>;

/// A guard of a write lock, which excludes all other readers and writers.
///
/// Returned by [`InterProcessWriteLock`](crate::InterProcessWriteLock).
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zookeeper_test_server::Server::start()?;
/// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
/// # let lock = zookeeper_recipes::InterProcessReadWriteLock::new(&client, "/cache/prices")?;
/// use zookeeper_recipes::{ReadGuard, WriteGuard};
///
/// let writer: WriteGuard = lock.write_lock().lock().await?;
/// let reader: ReadGuard = writer.downgrade().await?;
/// reader.release().await?;
/// # Ok(())
/// # }
/// ```
pub type WriteGuard = LockGuard<Write>;

/// A guard of a lock of any kind, for code that does not depend on the kind.
///
/// A [`LockGuard`] of any mode converts into this type, and
/// [`InterProcessLock`](crate::InterProcessLock) returns it.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zookeeper_test_server::Server::start()?;
/// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
/// # let mutex = zookeeper_recipes::InterProcessMutex::new(&client, "/jobs/nightly")?;
/// # let lock = zookeeper_recipes::InterProcessReadWriteLock::new(&client, "/cache/prices")?;
/// use zookeeper_recipes::AnyGuard;
///
/// let guards: Vec<AnyGuard> = vec![mutex.lock().await?.into(), lock.read_lock().lock().await?.into()];
/// assert!(guards.iter().all(AnyGuard::is_held));
/// # Ok(())
/// # }
/// ```
pub type AnyGuard = LockGuard<Any>;

impl<M: Mode> fmt::Debug for LockGuard<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The output omits the state, because reading the state reads the clock, and may find the
        // lock lost.
        write!(f, "LockGuard<{:?}>({})", self.mode, Quoted(&self.node()))
    }
}

impl From<LockGuard> for AnyGuard {
    fn from(guard: LockGuard) -> Self {
        guard.into_any()
    }
}

impl From<ReadGuard> for AnyGuard {
    fn from(guard: ReadGuard) -> Self {
        guard.into_any()
    }
}

impl From<WriteGuard> for AnyGuard {
    fn from(guard: WriteGuard) -> Self {
        guard.into_any()
    }
}

impl<M: Mode> LockGuard<M> {
    /// Returns the state: [`Lost`](crate::LockState::Lost) once the lock is lost.
    ///
    /// Each call reads the clock, so a loss is visible even if a task was not scheduled for a long
    /// time.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// # let guard = zookeeper_recipes::InterProcessMutex::new(&client, "/jobs/nightly")?.lock().await?;
    /// use zookeeper_recipes::LockState;
    ///
    /// assert_eq!(guard.state(), LockState::Held);
    /// client.close().await?;
    /// assert!(matches!(guard.state(), LockState::Lost(_)));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn state(&self) -> LockState {
        self.shares().state()
    }

    /// Waits until the state differs from `known`, and returns the new one.
    ///
    /// Returns at once if the state differs already, or if the guard is lost. An overdue renewal is
    /// noticed within a second. Intermediate states may be skipped.
    ///
    /// # Cancel safety
    /// Cancel safe: this only waits.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// # let guard = zookeeper_recipes::InterProcessMutex::new(&client, "/jobs/nightly")?.lock().await?;
    /// # async fn sell(_paused: std::sync::Arc<std::sync::atomic::AtomicBool>) {}
    /// use std::sync::{Arc, atomic::{AtomicBool, Ordering}};
    /// use zookeeper_recipes::LockState;
    ///
    /// let paused = Arc::new(AtomicBool::new(false));
    /// let mut work = std::pin::pin!(sell(Arc::clone(&paused)));
    /// let mut state = guard.state();
    /// while !matches!(state, LockState::Lost(_)) {
    ///     paused.store(state == LockState::Suspended, Ordering::Relaxed); // begin nothing new
    ///     tokio::select! {
    ///         changed = guard.state_changed(state) => state = changed,
    ///         () = &mut work => break,
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn state_changed(&self, known: LockState) -> LockState {
        self.shares().state_changed(known).await
    }

    /// Reads the clock, and returns `true` unless the lock is lost.
    ///
    /// A [`Suspended`](crate::LockState::Suspended) guard is still held. The answer is advisory,
    /// because the lock may be lost a moment later; then only the [token](crate::FencingToken)
    /// protects the resource.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// # let guard = zookeeper_recipes::InterProcessMutex::new(&client, "/jobs/nightly")?.lock().await?;
    /// # let mut items = vec![1, 2, 3];
    /// while guard.is_held() {
    ///     let Some(item) = items.pop() else { break };
    ///     println!("item {item}"); // short work
    /// }
    /// # assert!(items.is_empty());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.shares().lost_now().is_none()
    }

    /// Sets the end of the lease to `lease` from now, earlier or later than before.
    ///
    /// A guard without a lease gets one. When the lease ends, the guard is lost, with
    /// [`LostReason::LeaseOver`](crate::LostReason::LeaseOver), and then released; see
    /// [`acquire_with_lease`](crate::InterProcessMutex::acquire_with_lease). A lease of zero ends
    /// at once: the guard is lost, and the call returns the loss. A lease of more than a year is
    /// unlimited.
    ///
    /// The call sends no request. All guards that [share](crate::LockGuard::reenter) a hold share
    /// the lease.
    ///
    /// # Errors
    /// [`Lost`](crate::Lost) if the guard is lost: a lease that has ended cannot be extended.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// # let guard = zookeeper_recipes::InterProcessMutex::new(&client, "/jobs/nightly")?.lock().await?;
    /// use std::time::Duration;
    ///
    /// for part in 1..=3 {
    ///     guard.set_lease(Duration::from_secs(10))?; // each part has ten seconds
    ///     println!("part {part}");
    /// }
    /// guard.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "updateLeaseTime")]
    pub fn set_lease(&self, lease: Duration) -> Result<(), Lost> {
        self.shares().set_lease(lease)
    }

    /// Returns how much of the lease is left; `None` if there is no lease.
    ///
    /// The lease is set by [`acquire_with_lease`](crate::InterProcessMutex::acquire_with_lease) or
    /// [`set_lease`](Self::set_lease). Returns zero if the lease has ended, or the guard is lost
    /// for another reason.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// # let guard = zookeeper_recipes::InterProcessMutex::new(&client, "/jobs/nightly")?.lock().await?;
    /// use std::time::Duration;
    ///
    /// assert_eq!(guard.lease_remaining(), None);
    /// guard.set_lease(Duration::from_secs(10))?;
    /// assert!(guard.lease_remaining() <= Some(Duration::from_secs(10)));
    /// # assert!(guard.lease_remaining() > Some(Duration::from_secs(5)));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    #[doc(alias = "remainTimeToLive")]
    pub fn lease_remaining(&self) -> Option<Duration> {
        self.shares().lease_remaining()
    }

    /// Returns a future that resolves when the lock is lost, with the reason.
    ///
    /// The future resolves when the session lease has expired, when a lease of this guard
    /// ([`acquire_with_lease`](crate::InterProcessMutex::acquire_with_lease),
    /// [`set_lease`](Self::set_lease)) has ended, when the session has ended or the client is
    /// closed, or when another process has deleted a node of the guard, which the client notices
    /// within a sixth of the session timeout (by default). The future does not borrow the guard, so
    /// another task can wait for it.
    ///
    /// After a release the future stays pending until the session ends, and then resolves although
    /// nothing was lost. Drop the future when you release the guard.
    ///
    /// # Cancel safety
    /// Cancel safe: this only waits. If the lock is lost before the next call, the next future
    /// resolves at once.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// # let guard = zookeeper_recipes::InterProcessMutex::new(&client, "/jobs/nightly")?.lock().await?;
    /// # async fn sell() {}
    /// tokio::select! {
    ///     lost = guard.lost() => eprintln!("stop at once: {lost}"),
    ///     () = sell() => guard.release().await?,
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn lost(&self) -> impl Future<Output = Lost> + Send + 'static + use<M> {
        self.shares().lost()
    }

    /// Runs `work` while the guard holds the lock, and returns its output.
    ///
    /// When the guard is lost, `work` is dropped. If the guard is already lost when `work` is done,
    /// the output of `work` is dropped. For a separate task, use
    /// [`while_held_owned`](Self::while_held_owned), which takes the guard.
    ///
    /// # Work that it does not stop
    /// Dropping a future stops the future itself, but not a thread or a task that the future waits
    /// for. A closure of [`tokio::task::spawn_blocking`], or a task of [`tokio::spawn`], continues
    /// after `while_held` has returned [`Lost`](crate::Lost) or has been dropped, and runs without
    /// the lock once the guard is dropped. Move the guard into the closure, so that the lock is
    /// held for as long as the work lasts, and call [`is_held`](Self::is_held) between the parts of
    /// the work.
    ///
    /// A framework (hyper, axum) drops the handler of a request, at any `await`, when the caller
    /// disconnects, and the handler's guards with it. If work must be completed, run it in a task,
    /// with [`while_held_owned`](Self::while_held_owned).
    ///
    /// # Errors
    /// [`Lost`](crate::Lost) if the guard is lost. If it was lost before the call, `work` is not
    /// polled.
    ///
    /// # Cancel safety
    /// If the future is dropped, `work` is dropped with it. The guard is kept.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// # let guard = zookeeper_recipes::InterProcessMutex::new(&client, "/jobs/nightly")?.lock().await?;
    /// let rows = guard.while_held(async { 42 /* the nightly job */ }).await?;
    /// guard.release().await?;
    /// # assert_eq!(rows, 42);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Blocking work that keeps the guard until the work ends, even if the caller is gone:
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// # let guard = zookeeper_recipes::InterProcessMutex::new(&client, "/jobs/nightly")?.lock().await?;
    /// # fn compress(_part: u32) {}
    /// let work = tokio::task::spawn_blocking(move || {
    ///     for part in 0..3 {
    ///         if !guard.is_held() {
    ///             break; // what follows would be without the lock
    ///         }
    ///         compress(part);
    ///     }
    ///     guard // or drop it here, when the work ends
    /// });
    /// work.await?.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn while_held<T>(&self, work: impl Future<Output = T>) -> Result<T, Lost> {
        self.shares().while_held(work).await
    }

    /// Runs `work` while the guard holds the lock, and returns the output with the guard.
    ///
    /// This works like [`while_held`](Self::while_held), but takes the guard, so the future can be
    /// passed to [`tokio::spawn`], and the lock is held for as long as the task runs.
    ///
    /// # Errors
    /// [`Lost`](crate::Lost) if the guard is lost. The guard is then dropped, after `work`.
    ///
    /// # Cancel safety
    /// If the future is dropped, or its task aborted, `work` is dropped, and then the guard, which
    /// releases the lock in the background.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// # let guard = zookeeper_recipes::InterProcessMutex::new(&client, "/jobs/nightly")?.lock().await?;
    /// let job = tokio::spawn(guard.while_held_owned(async { 42 /* the nightly job */ }));
    /// // Other work.
    /// let (rows, guard) = job.await??;
    /// guard.release().await?;
    /// # assert_eq!(rows, 42);
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "spawn")]
    pub fn while_held_owned<T>(
        self,
        work: impl Future<Output = T>,
    ) -> impl Future<Output = Result<(T, Self), Lost>> {
        // The tuple is dropped in this order, whether the future was polled or not. The work relies
        // on the guard, so the work ends first.
        let owned = (work, self);
        async move {
            let (work, guard) = owned;
            let output = guard.while_held(work).await?;
            Ok((output, guard))
        }
    }

    /// Returns an empty transaction, which is committed only while the guard holds the lock.
    ///
    /// See [`Transaction`](crate::Transaction).
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// # let guard = zookeeper_recipes::InterProcessMutex::new(&client, "/jobs/nightly")?.lock().await?;
    /// # server.create("/orders", b"")?;
    /// guard.transaction().create("/orders/4711", b"new").commit().await?;
    /// # assert_eq!(server.children("/orders"), ["4711"]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn transaction(&self) -> Transaction<'_> {
        self.shares().transaction()
    }

    /// Reads a node, and the version of its data, for a [transaction](Self::transaction) that
    /// depends on them; returns `None` if there is no such node.
    ///
    /// The path is below the client's [namespace](crate::ClientBuilder::namespace), and the node's
    /// ACL must allow READ. The answer is not older than the grant: it includes every write,
    /// through any server, that was committed before the previous holder's release. While you use
    /// the answer, a process that does not hold the lock may change the node, or the next holder
    /// may do so after a loss, so pass the version to the write.
    ///
    /// The read costs two requests, a `sync` and the read, sent together and repeated under the
    /// client's [`RetryPolicy`](crate::RetryPolicy), until a loss.
    ///
    /// # Errors
    /// - [`TransactionError::Lost`](crate::TransactionError::Lost) after a loss, even during the
    ///   read.
    /// - [`ErrorKind::NoAuth`](crate::ErrorKind::NoAuth) if the ACL of the node denies this client
    ///   READ.
    /// - [`ErrorKind::Connection`](crate::ErrorKind::Connection) if no server answered.
    /// - See [`TransactionError`](crate::TransactionError) for the other variants.
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
    /// # let guard = zookeeper_recipes::InterProcessMutex::new(&client, "/jobs/nightly")?.lock().await?;
    /// # server.create("/config/rates", b"old")?;
    /// let (rates, version) = guard.get_data("/config/rates").await?.ok_or("there are no rates")?;
    /// if rates == b"old" {
    ///     guard.transaction().set_data("/config/rates", b"new", version).commit().await?;
    /// }
    /// assert!(guard.get_data("/config/none").await?.is_none());
    /// # assert_eq!(server.node("/config/rates").unwrap().data, b"new");
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "getData")]
    pub async fn get_data(
        &self,
        path: impl AsRef<str>,
    ) -> Result<Option<(Vec<u8>, i32)>, TransactionError> {
        self.shares().get_data(path.as_ref()).await
    }

    /// Returns a future that resolves when revocation of the lock is requested.
    ///
    /// Requests come from [`Client::attempt_revoke`](crate::Client::attempt_revoke), and, except
    /// for permits, from Curator's `Revoker`. Requests before this call, or before the grant, are
    /// not missed. The holder decides whether to release. Neither a release nor a loss resolves the
    /// future, which does not borrow the guard.
    ///
    /// Once polled, the future watches the guard's node, which costs one request.
    ///
    /// # Cancel safety
    /// If the future is dropped, the watch ends. The next future resolves for the same request.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// # let guard = zookeeper_recipes::InterProcessMutex::new(&client, "/jobs/nightly")?.lock().await?;
    /// # async fn reindex() {}
    /// tokio::select! {
    ///     () = guard.revoked() => guard.release().await?, // another process needs it
    ///     () = reindex() => {}
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "makeRevocable")]
    pub fn revoked(&self) -> impl Future<Output = ()> + Send + 'static + use<M> {
        self.shares().revoked()
    }

    /// Releases the lock, and waits until a server has confirmed the deletion of its node.
    ///
    /// While other guards [share](crate::LockGuard::reenter) the hold, the call only gives up this
    /// guard's share, without a request.
    ///
    /// If no server can be reached, the call waits until the session has ended, about 1.4 times the
    /// session timeout, and returns [`ReleaseError::Lost`](crate::ReleaseError::Lost). To wait
    /// less, wrap the call in [`tokio::time::timeout`]; the release continues in the background.
    /// After a loss the call returns at once, and nodes are deleted in the background.
    ///
    /// # Errors
    /// - [`ReleaseError::Lost`](crate::ReleaseError::Lost) if the guard was lost before the call,
    ///   or if the session ended before a server confirmed the release. In the first case, work
    ///   since the loss may have overlapped with another holder's; in the second case, the lock was
    ///   held until the call. To distinguish the two cases, call [`is_held`](Self::is_held) right
    ///   before the release.
    /// - [`ReleaseError::Refused`](crate::ReleaseError::Refused) if the ACL does not allow this
    ///   client to delete its own node.
    ///
    /// Do not repeat the release after an error. Once the ACL allows DELETE,
    /// [`Client::flush`](crate::Client::flush) tries a refused deletion again.
    ///
    /// # Cancel safety
    /// The call itself releases the lock. If the future is dropped, only the outcome is lost.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// # let guard = zookeeper_recipes::InterProcessMutex::new(&client, "/jobs/nightly")?.lock().await?;
    /// use zookeeper_recipes::ReleaseError;
    ///
    /// // The work.
    /// let held = guard.is_held();
    /// match guard.release().await {
    ///     Ok(()) => println!("released"),
    ///     Err(ReleaseError::Lost(lost)) if held => println!("held until the release: {lost}"),
    ///     Err(ReleaseError::Lost(lost)) => println!("the work may have to be undone: {lost}"),
    ///     Err(error) => return Err(error.into()),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "unlock")]
    pub fn release(
        self,
    ) -> impl Future<Output = Result<(), ReleaseError>> + Send + 'static + use<M> {
        guard_set::release(vec![self.hold])
    }

    /// Releases like [`release`](Self::release), and blocks the thread until a server has confirmed
    /// it.
    ///
    /// # Errors
    /// See [`release`](Self::release).
    pub fn blocking_release(self) -> Result<(), ReleaseError> {
        block_on(self.release())
    }
}

impl<M: Mode> IsGuard for LockGuard<M> {
    fn shares(&self, _: Inside) -> Shares<'_> {
        Self::shares(self)
    }

    // The release begins in this call, and not with the first poll of the box.
    fn release_boxed(self: Box<Self>, _: Inside) -> BoxFuture<'static, Result<(), ReleaseError>> {
        Box::pin(Self::release(*self))
    }
}

impl<M: Mode> Guard for LockGuard<M> {}

impl<M: Mode + Default> LockGuard<M> {
    pub(crate) fn new(hold: Hold) -> Self {
        Self::in_mode(hold, M::default())
    }

    /// Returns the guard of a hold that another guard had before.
    pub(crate) fn of(hold: Arc<Hold>) -> Self {
        Self {
            hold,
            mode: M::default(),
        }
    }
}

impl<M: Mode> LockGuard<M> {
    pub(crate) fn in_mode(hold: Hold, mode: M) -> Self {
        // From here on the caller has the guard: a loss is reported by the guard, and the call does
        // not acquire again.
        hold.note_received();
        Self {
            hold: Arc::new(hold),
            mode,
        }
    }

    /// Returns the hold if no other guard shares it, otherwise the guard.
    pub(crate) fn into_sole(mut self) -> Result<Arc<Hold>, Self> {
        // Unlike `strong_count`, `get_mut` synchronizes with the drops of the other guards, so
        // everything that their holders did before those drops has happened.
        if Arc::get_mut(&mut self.hold).is_some() {
            Ok(self.hold)
        } else {
            Err(self)
        }
    }

    fn into_any(self) -> AnyGuard {
        LockGuard {
            hold: self.hold,
            mode: self.mode.into(),
        }
    }

    fn shares(&self) -> Shares<'_> {
        Shares(std::slice::from_ref(&self.hold))
    }

    /// Returns a guard of the same hold in another mode.
    pub(crate) fn share<N: Mode>(&self, mode: N) -> Result<LockGuard<N>, Lost> {
        // A share of a lost hold would look like a lock that is held. The check reads the clock.
        match self.shares().lost_now() {
            Some(lost) => Err(lost),
            None => Ok(LockGuard {
                hold: Arc::clone(&self.hold),
                mode,
            }),
        }
    }

    /// Returns another guard of the same hold; the lock is released with the last of these guards.
    ///
    /// The call sends no request. Use it to pass a guard to a function that takes one. Locks are
    /// not re-entrant by thread or task, because the branches of a `select!` share both.
    ///
    /// # Errors
    /// [`Lost`] if the lock is lost.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// # let guard = zookeeper_recipes::InterProcessMutex::new(&client, "/jobs/nightly")?.lock().await?;
    /// use zookeeper_recipes::LockGuard;
    ///
    /// async fn audit(guard: LockGuard) {
    ///     println!("under {}", guard.path());
    /// } // drops its share
    ///
    /// audit(guard.reenter()?).await;
    /// assert!(guard.is_held());
    /// # Ok(())
    /// # }
    /// ```
    pub fn reenter(&self) -> Result<Self, Lost> {
        self.share(self.mode)
    }

    /// Returns the number of guards that share the hold.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// # let guard = zookeeper_recipes::InterProcessMutex::new(&client, "/jobs/nightly")?.lock().await?;
    /// let again = guard.reenter()?;
    /// assert_eq!(guard.hold_count(), 2);
    /// again.release().await?; // only this share
    /// assert_eq!(guard.hold_count(), 1);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    #[doc(alias = "getHoldCount")]
    pub fn hold_count(&self) -> usize {
        Arc::strong_count(&self.hold)
    }

    pub(crate) fn hold(&self) -> &Hold {
        &self.hold
    }

    /// Returns the fencing token of this grant, with which a resource can refuse former holders.
    ///
    /// Its type is [`FencingToken`](crate::FencingToken) for a mutex, a fair lock or a write lock,
    /// [`ReadToken`](crate::ReadToken) for a read lock, and [`Token`](crate::Token), which is
    /// either, for an [`AnyGuard`]. [`FenceGate::admit`](crate::FenceGate::admit) takes all three.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// # let mutex = zookeeper_recipes::InterProcessMutex::new(&client, "/jobs/nightly")?;
    /// let guard = mutex.lock().await?;
    /// let token = guard.fencing_token();
    /// guard.release().await?;
    /// assert!(mutex.lock().await?.fencing_token() > token);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn fencing_token(&self) -> M::Token {
        let (zxid, counter) = self.hold.token;
        <M::Token as sealed::IsToken>::new(zxid, counter, self.mode.into())
    }

    /// Returns the path of the lock node, without the client's namespace.
    ///
    /// A [conversion](crate::WriteGuard::downgrade) changes this path.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// # let guard = zookeeper_recipes::InterProcessMutex::new(&client, "/jobs/nightly")?.lock().await?;
    /// let node = guard.node();
    /// assert_eq!(node.lock_path(), "/jobs/nightly");
    /// assert!(node.name().contains("-lock-"));
    /// # assert!(server.exists(&node));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn node(&self) -> NodePath {
        self.hold.node_path()
    }

    /// Returns the path of the lock, as given.
    #[must_use]
    pub fn path(&self) -> &str {
        self.hold.directory().user()
    }
}
