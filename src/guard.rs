//! The guard of a held lock.

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use crate::blocking::block_on;
use crate::engine::hold::Hold;
use crate::engine::revoke;
use crate::error::{Lost, LostReason, ReleaseError, TransactionError};
use crate::mode::{Any, Exclusive, Mode, Read, Write, sealed};
use crate::path::NodePath;
pub use crate::protocol::hold::LockState;
use crate::protocol::moment::LONGEST;
use crate::session::core::AbortOnDrop;
use crate::shown::Quoted;
use crate::transaction::{NodeData, Transaction, get_data};

/// A guard that holds a lock until it is dropped or released.
///
/// The lock is held by an ephemeral node at the servers ([`node`](Self::node)). **Dropping the guard releases
/// the lock** in the background: the deletion of the node is handed to a task that repeats it until the node
/// is gone or the session has ended. The drop neither blocks nor panics, and needs no runtime.
/// [`release`](Self::release) does the same and returns the outcome. The guard can be sent to other threads
/// and tasks and be released there; it cannot be cloned ([`reenter`](Self::reenter) shares it).
/// [`OrBusy`](crate::OrBusy#wrong-forms) lists forms of a call that drop the guard at once.
///
/// # The mode
/// `M` is the [`Mode`] in which the lock is held: [`Exclusive`] for a mutex or a fair lock, [`Read`]
/// ([`ReadGuard`]) or [`Write`] ([`WriteGuard`]) for a read-write lock, and [`Any`] ([`AnyGuard`]) if it is
/// known only at run time. It decides the type of the [token](Self::fencing_token) and which conversions
/// there are; [`mode`](crate::mode) shows code for guards of every mode.
///
/// # What it proves, and what it does not
/// While a lock is held, the client renews its lease every sixth of the session timeout (by default): by a
/// transaction that a quorum of the servers has to commit. Once the last renewal is two thirds of the session timeout old
/// (less with [`LeaseMargin::Strict`](crate::LeaseMargin::Strict)), the guard is [lost](Self::lost). The
/// servers give the lock to no other process before the session expires, so when the network or the servers
/// fail, the holder is told first. The remaining third is the holder's, to stop in: the lock node stays until
/// the last guard is dropped or released, or that time is over. The exceptions are a lock node that another
/// process deletes, a session that an administrator ends, and a server that replaces a session without a word
/// (ClickHouse Keeper): the holder is told within a sixth of the session timeout (by default).
///
/// A [lease](crate::InterProcessMutex::acquire_with_lease) of its own ends the lock sooner: the guard is lost
/// when it is over, and the lock is released at once.
///
/// No clock in this process helps if the process itself is paused, and goes on writing when it continues. For
/// that case pass the [`fencing_token`](Self::fencing_token) to the resource, which refuses smaller ones
/// ([`FenceGate`](crate::FenceGate)), or write to ZooKeeper in a [`transaction`](Self::transaction).
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
/// Every other guard converts into it, and [`InterProcessLock`](crate::InterProcessLock) returns it.
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
        // Without the state: asking for it reads the clock, and may find the lock lost.
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

impl<M: Mode + Default> LockGuard<M> {
    pub(crate) fn new(hold: Hold) -> Self {
        hold.is_had();
        Self { hold: Arc::new(hold), mode: M::default() }
    }
}

impl<M: Mode> LockGuard<M> {
    fn into_any(self) -> AnyGuard {
        LockGuard { hold: self.hold, mode: self.mode.into() }
    }

    /// The hold, if no other guard shares it.
    pub(crate) fn into_hold(self) -> Result<Hold, Self> {
        let mode = self.mode;
        Arc::try_unwrap(self.hold).map_err(|hold| Self { hold, mode })
    }

    /// A guard of the same hold in another mode.
    pub(crate) fn share<N: Mode>(&self, mode: N) -> Result<LockGuard<N>, Lost> {
        match self.hold.lost() {
            Some(reason) => Err(self.as_lost(reason)),
            None => Ok(LockGuard { hold: Arc::clone(&self.hold), mode }),
        }
    }

    /// Returns the state of the lock.
    ///
    /// The clock is read at each call, so a task that was not scheduled for long cannot hide a loss.
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
        self.hold.state()
    }

    /// Waits until the state differs from `known`, and returns the new one.
    ///
    /// Returns at once if the state differs already, or if the lock is lost. An overdue renewal is noticed
    /// within a second. Intermediate states may be skipped.
    ///
    /// # Cancel safety
    /// If the future is dropped, nothing is lost.
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
    ///     paused.store(state == LockState::Suspended, Ordering::Relaxed); // begin nothing new meanwhile
    ///     tokio::select! {
    ///         changed = guard.state_changed(state) => state = changed,
    ///         () = &mut work => break,
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn state_changed(&self, known: LockState) -> LockState {
        self.hold.state_changed(known).await
    }

    /// Returns `true` unless the lock is lost, by the clock.
    ///
    /// Also while it is [`Suspended`](LockState::Suspended). The answer is advisory: the lock may be lost a
    /// moment later, and only the [token](Self::fencing_token) protects the resource then.
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
        self.hold.lost().is_none()
    }

    /// Sets the end of the lease to `lease` from now, sooner or later than it was.
    ///
    /// A lock that was acquired without a lease has one from here on. When the lease is over, the guard is
    /// lost, with [`LostReason::LeaseOver`], and then the lock is released; see
    /// [`acquire_with_lease`](crate::InterProcessMutex::acquire_with_lease). A lease of zero is over at once:
    /// this returns that loss. One of more than a year is none.
    ///
    /// It costs no request. All guards that [share](Self::reenter) the hold share the lease.
    ///
    /// # Errors
    /// [`Lost`] if the lock is lost, by the clock: a lease that is over cannot be set again.
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
    /// let guard = mutex.acquire_with_lease(Duration::from_secs(10), Duration::from_secs(10)).await?;
    /// for part in 1..=3 {
    ///     guard.set_lease(Duration::from_secs(10))?; // each part has ten seconds
    ///     println!("part {part}");
    /// }
    /// guard.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn set_lease(&self, lease: Duration) -> Result<(), Lost> {
        self.hold.set_lease(lease).map_err(|reason| self.as_lost(reason))
    }

    /// Returns how much of the lease is left; `None` if the lock has no lease.
    ///
    /// The lease is that of [`acquire_with_lease`](crate::InterProcessMutex::acquire_with_lease) or
    /// [`set_lease`](Self::set_lease). Zero if it is over, or if the lock is lost in another way. The lock
    /// may be lost before the lease is over, since it ends with its session too.
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
        self.hold.lease_remaining()
    }

    /// Returns a future that resolves when the lock is lost.
    ///
    /// It resolves when the lease of the session has expired, when a lease that was set for this lock
    /// ([`acquire_with_lease`](crate::InterProcessMutex::acquire_with_lease), [`set_lease`](Self::set_lease))
    /// is over, when the session has ended or the client is closed, or when the lock node was deleted by
    /// another process, which is noticed within a sixth of the session timeout (by default). The future does
    /// not borrow the guard, so another task can wait for it.
    ///
    /// After a release it stays pending until the session ends, and then resolves although nothing was lost:
    /// drop it when you release the lock.
    ///
    /// # Cancel safety
    /// If the future is dropped, nothing is lost: the next one resolves at once if the lock was lost in
    /// between.
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
    ///
    /// In a test, with the server of `zookeeper-test-server`:
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
    pub fn lost(&self) -> impl Future<Output = Lost> + Send + 'static + use<M> {
        let lost = self.hold.when_lost();
        let path = self.path().into();
        // Not kept: it keeps the cleanup.
        let held = Arc::downgrade(self.hold.held());
        async move {
            let reason = lost.await;
            Lost { path: held.upgrade().map_or(path, |held| held.lost_path()), reason }
        }
    }

    /// Runs `work` while the lock is held, and returns its output.
    ///
    /// As soon as the lock is lost, `work` is dropped. If the lock is lost by the time that `work` is done,
    /// its output is dropped. [`while_held_owned`](Self::while_held_owned) takes the guard, for a task of its
    /// own.
    ///
    /// # Work that it does not stop
    /// Dropping a future stops what the future does, not what it waits for. A closure of
    /// [`tokio::task::spawn_blocking`], or a task of [`tokio::spawn`], goes on after `while_held` has
    /// returned [`Lost`], or was dropped itself, and then without the lock, once the guard is dropped. Move
    /// the guard into the closure: the lock stays for as long as the work, and the work asks
    /// [`is_held`](Self::is_held) between its parts.
    ///
    /// The same happens where a framework drops the handler of a request whose caller has disconnected, as
    /// hyper and axum do: the handler's guards are dropped with it, at whatever `await` it was. Run work that
    /// has to come to its end in a task, with [`while_held_owned`](Self::while_held_owned).
    ///
    /// # Errors
    /// [`Lost`] if the lock is lost. If it was lost before the call, `work` is not polled.
    ///
    /// # Cancel safety
    /// If the future is dropped, `work` is dropped with it. The guard keeps the lock.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// # let mutex = zookeeper_recipes::InterProcessMutex::new(&client, "/jobs/nightly")?;
    /// let guard = mutex.lock().await?;
    /// let rows = guard.while_held(async { 42 /* the nightly job */ }).await?;
    /// guard.release().await?;
    /// # assert_eq!(rows, 42);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Work that blocks, which keeps the lock until it ends although its caller may be gone:
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// # let mutex = zookeeper_recipes::InterProcessMutex::new(&client, "/jobs/nightly")?;
    /// # fn compress(_part: u32) {}
    /// let guard = mutex.lock().await?;
    /// let work = tokio::task::spawn_blocking(move || {
    ///     for part in 0..3 {
    ///         if !guard.is_held() {
    ///             break; // what follows would be without the lock
    ///         }
    ///         compress(part);
    ///     }
    ///     guard // or dropped here, with the end of the work
    /// });
    /// work.await?.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn while_held<T>(&self, work: impl Future<Output = T>) -> Result<T, Lost> {
        while_held(self.lost(), || self.lost_now(), work).await
    }

    /// Runs `work` while the lock is held, and returns its output with the guard.
    ///
    /// Does the same as [`while_held`](Self::while_held), but takes the guard, so the future can be given to
    /// [`tokio::spawn`]: the lock is held for as long as the task runs.
    ///
    /// # Errors
    /// [`Lost`] if the lock is lost. The guard is dropped then, after `work`.
    ///
    /// # Cancel safety
    /// If the future is dropped, or its task aborted, `work` is dropped and then the lock is released in the
    /// background.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// # let mutex = zookeeper_recipes::InterProcessMutex::new(&client, "/jobs/nightly")?;
    /// let guard = mutex.lock().await?;
    /// let job = tokio::spawn(guard.while_held_owned(async { 42 /* the nightly job */ }));
    /// // ..
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
        // In the order in which they are dropped, polled or not: the work relies on the lock.
        let owned = (work, self);
        async move {
            let (work, guard) = owned;
            let output = guard.while_held(work).await?;
            Ok((output, guard))
        }
    }

    /// Returns another guard of the same hold; the lock is released when the last of them is.
    ///
    /// It costs no request. Re-entrance is by value, for functions that take a guard, and not by thread or
    /// task, because the branches of a `select!` share both.
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

    /// Returns an empty transaction: writes to ZooKeeper that are committed only while this lock is held.
    ///
    /// See [`Transaction`].
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// # server.create("/orders", b"")?;
    /// # let guard = zookeeper_recipes::InterProcessMutex::new(&client, "/jobs/nightly")?.lock().await?;
    /// guard.transaction().create("/orders/4711", b"new").commit().await?;
    /// # assert_eq!(server.children("/orders"), ["4711"]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn transaction(&self) -> Transaction<'_> {
        Transaction::new([&*self.hold])
    }

    /// Reads a node, and the version of its data for a [transaction](Self::transaction) that is based on them.
    /// `None` if there is no such node.
    ///
    /// The path is below the client's [namespace](crate::ClientBuilder::namespace), and needs READ by its ACL.
    /// The answer is not older than the grant: it has every write that was committed before the
    /// lock was released by the previous holder, through whichever server. It may be out of date by the
    /// time that it is used, if others write without the lock or this one is lost: pass its version to the write.
    ///
    /// It costs two requests, a `sync` and the read, which are sent together, and is repeated by the client's
    /// [`RetryPolicy`](crate::RetryPolicy) while the lock is held.
    ///
    /// # Errors
    /// - [`TransactionError::Lost`] if the lock is lost, also if that happened during the read.
    /// - [`ErrorKind::NoAuth`](crate::ErrorKind::NoAuth) if the ACL of the node does not let this client read
    ///   it.
    /// - [`ErrorKind::Connection`](crate::ErrorKind::Connection) if no server answered.
    /// - See [`TransactionError`] for the other variants.
    ///
    /// # Cancel safety
    /// It only reads.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// # server.create("/config/rates", b"old")?;
    /// # let guard = zookeeper_recipes::InterProcessMutex::new(&client, "/locks/rates")?.lock().await?;
    /// let rates = guard.get_data("/config/rates").await?.ok_or("there are no rates")?;
    /// if rates.data == b"old" {
    ///     guard.transaction().set_data("/config/rates", b"new", rates.version).commit().await?;
    /// }
    /// assert!(guard.get_data("/config/none").await?.is_none());
    /// # assert_eq!(server.node("/config/rates").unwrap().data, b"new");
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "getData")]
    pub async fn get_data(&self, path: impl AsRef<str>) -> Result<Option<NodeData>, TransactionError> {
        get_data(&[&*self.hold], path.as_ref()).await
    }

    /// Returns the loss, if the lock is lost by the clock.
    pub(crate) fn lost_now(&self) -> Option<Lost> {
        self.hold.lost().map(|reason| self.as_lost(reason))
    }

    pub(crate) fn hold(&self) -> &Hold {
        &self.hold
    }

    fn as_lost(&self, reason: LostReason) -> Lost {
        Lost { path: self.hold.held().lost_path(), reason }
    }

    /// Returns the fencing token of this grant, by which a resource can refuse former holders.
    ///
    /// A [`FencingToken`](crate::FencingToken) of a mutex, a fair lock or a write lock, a
    /// [`ReadToken`](crate::ReadToken) of a read lock, and a [`Token`](crate::Token), which is either, of an
    /// [`AnyGuard`]. [`FenceGate::admit`](crate::FenceGate::admit) takes each.
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
        let (zxid, counter) = self.hold.token();
        <M::Token as sealed::Token>::new(zxid, counter, self.mode.into())
    }

    /// Returns a future that resolves when another contender requests revocation of the lock.
    ///
    /// Requests come from [`Client::attempt_revoke`](crate::Client::attempt_revoke) and from Curator's
    /// `Revoker`. One that came before this call, even while this client was still waiting for the lock, is
    /// not missed. The lock is not released by itself: that is the holder's decision. Neither a release nor a
    /// loss resolves the future, and it does not borrow the guard.
    ///
    /// While it is polled, the lock node is watched, which costs one request.
    ///
    /// # Cancel safety
    /// If the future is dropped, the watch ends. The next one resolves for the same request.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// # let guard = zookeeper_recipes::InterProcessMutex::new(&client, "/jobs/nightly")?.lock().await?;
    /// # let other = client.clone();
    /// # async fn reindex() { std::future::pending().await }
    /// # let holder = guard.node();
    /// # tokio::spawn(async move { other.attempt_revoke(&holder).await });
    /// tokio::select! {
    ///     () = guard.revoked() => guard.release().await?, // another process needs the lock more urgently
    ///     () = reindex() => {}
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "makeRevocable")]
    pub fn revoked(&self) -> impl Future<Output = ()> + Send + 'static + use<M> {
        let (session, held) = (Arc::downgrade(self.hold.session()), Arc::clone(self.hold.held()));
        let directory = self.hold.directory().clone();
        let runtime = self.hold.path_lock().client().runtime();
        async move {
            // Where the session runs: this future may be polled without any runtime.
            let mut watch =
                AbortOnDrop(runtime.spawn(revoke::revocation_requested(session, directory, held)));
            match (&mut watch.0).await {
                Ok(true) => {}
                // Released, or the session has ended: no request can come any more.
                _ => std::future::pending().await,
            }
        }
    }

    /// Returns the path of the lock node, without the client's namespace.
    ///
    /// A [conversion](crate::WriteGuard::downgrade) changes it.
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
        self.hold.directory().user_child(&self.hold.node())
    }

    /// Returns the path of the lock, as it was given.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// # let guard = zookeeper_recipes::InterProcessMutex::new(&client, "/jobs/nightly")?.lock().await?;
    /// assert_eq!(guard.path(), "/jobs/nightly");
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn path(&self) -> &str {
        self.hold.directory().user()
    }

    /// Releases the lock, and waits until a server has confirmed it.
    ///
    /// While other guards [share](Self::reenter) the hold, it only gives up this share, without a request.
    ///
    /// With no server in reach it waits until the session is over, which takes about 1.4 times the session
    /// timeout, and returns [`ReleaseError::Lost`]. To wait less, wrap it in [`tokio::time::timeout`]: the
    /// release goes on. If the lock is lost already, it returns at once, and the node is deleted in the
    /// background.
    ///
    /// # Errors
    /// - [`ReleaseError::Lost`] if the lock was lost before the call, or if the session ended before a server
    ///   confirmed the release. In the first case, what was done since the loss may have overlapped with
    ///   another holder; in the second case the lock was held until the call. To tell them apart, ask
    ///   [`is_held`](Self::is_held) right before the release.
    /// - [`ReleaseError::Refused`] if the ACL does not allow this client to delete its own node.
    ///
    /// There is nothing to repeat after either. Once DELETE is granted,
    /// [`Client::flush`](crate::Client::flush) tries a refused deletion again.
    ///
    /// # Cancel safety
    /// The lock is released in any case, from the moment of the call. If the future is dropped, the outcome
    /// is not known.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// # let mutex = zookeeper_recipes::InterProcessMutex::new(&client, "/jobs/nightly")?;
    /// use zookeeper_recipes::ReleaseError;
    ///
    /// let guard = mutex.lock().await?;
    /// // The work.
    /// let held = guard.is_held();
    /// match guard.release().await {
    ///     Ok(()) => println!("released"),
    ///     Err(ReleaseError::Lost(lost)) if held => println!("held until the release: {lost}"),
    ///     Err(ReleaseError::Lost(lost)) => println!("what was just done may have to be undone: {lost}"),
    ///     Err(error) => return Err(error.into()),
    /// }
    /// assert!(mutex.try_lock().await.is_ok());
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "unlock")]
    pub fn release(self) -> impl Future<Output = Result<(), ReleaseError>> + Send + 'static + use<M> {
        let lost = self.hold.lost().map(|reason| self.as_lost(reason));
        // Of several guards exactly one gets the hold here, however they race.
        let released = Arc::into_inner(self.hold).map(Hold::release);
        async move {
            let result = match released {
                Some(released) => released.await,
                None => Ok(()),
            };
            lost.map_or(result, |lost| Err(lost.into()))
        }
    }

    /// Releases the lock like [`release`](Self::release), and blocks the thread until a server has confirmed it.
    ///
    /// # Errors
    /// See [`release`](Self::release).
    ///
    /// # Examples
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::blocking_connect(&server.connect_string())?;
    /// # let mutex = zookeeper_recipes::InterProcessMutex::new(&client, "/jobs/nightly")?;
    /// let guard = mutex.blocking_lock()?;
    /// // The work.
    /// guard.blocking_release()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn blocking_release(self) -> Result<(), ReleaseError> {
        block_on(self.release())
    }
}

/// Runs `work` until it is done or the lock is lost. `lost` resolves at the loss, and `lost_now` reads the
/// clock.
pub(crate) async fn while_held<T>(
    lost: impl Future<Output = Lost>,
    lost_now: impl Fn() -> Option<Lost> + Sync,
    work: impl Future<Output = T>,
) -> Result<T, Lost> {
    let (mut lost, mut work) = (pin!(lost), pin!(work));
    let outcome = std::future::poll_fn(|context| {
        if let Poll::Ready(lost) = lost.as_mut().poll(context) {
            return Poll::Ready(Err(lost));
        }
        // By the clock as well: the task that wakes `lost` may not have been scheduled.
        if let Some(lost) = lost_now() {
            return Poll::Ready(Err(lost));
        }
        work.as_mut().poll(context).map(Ok)
    })
    .await?;
    match lost_now() {
        Some(lost) => Err(lost),
        None => Ok(outcome),
    }
}

/// Returns the deadline of a call with this timeout; `None` if it is so far away that there is no need of
/// one.
pub(crate) fn after(timeout: Duration) -> Option<std::time::Instant> {
    // tokio would move a far instant up silently.
    if timeout > LONGEST { None } else { std::time::Instant::now().checked_add(timeout) }
}
