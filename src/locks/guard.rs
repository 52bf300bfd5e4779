//! The guard of a held lock.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::engine::grant::hold::Hold;
use crate::error::Lost;
use crate::locks::guard_set::Shares;
use crate::locks::guards::guard_methods;
use crate::locks::mode::{Any, Exclusive, Mode, Read, Write, sealed};
pub use crate::protocol::hold::LockState;
use crate::protocol::moment::LONGEST;
use crate::values::path::NodePath;
use crate::values::shown::Quoted;

/// A guard that holds a lock until it is dropped or released.
///
/// The lock is held by an ephemeral node on the servers ([`node`](Self::node)). **Dropping the
/// guard releases the lock** in the background: the client repeats the deletion of the node until
/// the node is gone or the session has ended. The drop neither blocks nor panics, and needs no
/// runtime. [`release`](Self::release) does the same and returns the outcome. The guard can be sent
/// to other threads and tasks, and released there. It cannot be cloned, but
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
/// the servers must commit, at intervals of a sixth of the session timeout (by default). Once the
/// last renewal is two thirds of the session timeout old (less with
/// [`LeaseMargin::Strict`](crate::LeaseMargin::Strict)), the lock is [lost](Self::lost). The
/// servers grant the lock to no other process before the session expires, so when the network or
/// the servers fail, the holder is notified first. The holder has the remaining third to stop: the
/// lock node stays until the last guard is dropped or released, or that time has passed. In three
/// cases the holder may be notified after the next grant, up to a sixth of the session timeout
/// later (by default): another process deletes the lock node, an administrator ends the session, or
/// a server (ClickHouse Keeper) replaces the session without reporting it.
///
/// A lock that was acquired with a [lease](crate::InterProcessMutex::acquire_with_lease) can be
/// lost sooner: when the lease ends, the lock is lost, and is released at once.
///
/// No clock in this process helps if the process itself is paused and writes when it resumes. For
/// that case, pass the [`fencing_token`](Self::fencing_token) to the resource, which refuses
/// smaller tokens ([`FenceGate`](crate::FenceGate)), or write to ZooKeeper in a
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
/// A [`LockGuard`] of any mode converts into it, and [`InterProcessLock`](crate::InterProcessLock)
/// returns it.
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
        // The state is left out, because asking for it reads the clock, and may find the lock lost.
        write!(f, "LockGuard<{:?}>({})", self.mode, Quoted(&self.node()))
    }
}

/// Implements the conversions into a guard whose mode is known only at run time.
macro_rules! into_any {
    ($($guard:ty),+) => {
        $(impl From<$guard> for AnyGuard {
            fn from(guard: $guard) -> Self {
                Self { hold: guard.hold, mode: guard.mode.into() }
            }
        })+
    };
}

into_any!(LockGuard, ReadGuard, WriteGuard);

guard_methods!(
    LockGuard<M: Mode>,
    "the lock",
    "the lock",
    r#"InterProcessMutex::new(&client, "/jobs/nightly")?.lock().await?"#
);

impl<M: Mode + Default> LockGuard<M> {
    pub(crate) fn new(hold: Hold) -> Self {
        Self::in_mode(hold, M::default())
    }
}

impl<M: Mode> LockGuard<M> {
    pub(crate) fn in_mode(hold: Hold, mode: M) -> Self {
        hold.note_had();
        Self {
            hold: Arc::new(hold),
            mode,
        }
    }

    /// Returns the hold if no other guard shares it, otherwise the guard.
    pub(crate) fn into_hold(self) -> Result<Hold, Self> {
        let mode = self.mode;
        Arc::try_unwrap(self.hold).map_err(|hold| Self { hold, mode })
    }

    fn shares(&self) -> Shares<'_> {
        Shares(std::slice::from_ref(&self.hold))
    }

    fn into_holds(self) -> Vec<Arc<Hold>> {
        vec![self.hold]
    }

    /// Returns a guard of the same hold in another mode.
    pub(crate) fn share<N: Mode>(&self, mode: N) -> Result<LockGuard<N>, Lost> {
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
    /// This sends no request. Use it to call a function that takes a guard. Locks are not
    /// re-entrant by thread or task, because the branches of a `select!` share both.
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
        let (zxid, counter) = self.hold.token();
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

    /// Returns the path of the lock, as it was given.
    #[must_use]
    pub fn path(&self) -> &str {
        self.hold.directory().user()
    }
}

/// Returns the deadline of a call with this timeout; `None` if it is so far away that the call
/// needs none.
pub(crate) fn after(timeout: Duration) -> Option<std::time::Instant> {
    // tokio silently replaces a distant instant with a nearer one.
    if timeout > LONGEST {
        None
    } else {
        std::time::Instant::now().checked_add(timeout)
    }
}
