//! The guard of a held lock.

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use crate::engine::hold::Hold;
use crate::engine::revoke;
use crate::error::{Lost, LostReason, ReleaseError};
use crate::mode::{Any, Exclusive, Mode, Read, Write, sealed};
use crate::path::NodePath;
pub use crate::protocol::hold::LockState;
use crate::session::core::AbortOnDrop;
use crate::shown::Quoted;
use crate::transaction::Transaction;

/// A lock that this process holds.
///
/// **Dropping it gives the lock back**, in the background: the node's deletion is handed to a task that repeats it
/// until the node is gone or the session over. The drop itself never blocks and never panics, and works outside of a
/// runtime. [`release`](Self::release) does the same and reports. The guard can be sent to other threads and
/// tasks and be released there. It cannot be cloned. [`OptionalExt`](crate::OptionalExt#wrong-forms) lists forms of a call
/// that drop it at once.
///
/// # What it proves, and what it does not
/// While something is held, the client proves to itself every sixth of the session timeout that a quorum of the
/// servers keeps its session, by a committed transaction. When the last proof is two thirds of the timeout old
/// (less with [`Margin::Strict`](crate::Margin::Strict)), the guard turns [lost](Self::lost): that is before the servers can give the lock
/// away, whatever has failed between here and there. The rest of the session timeout is the holder's, to stop in: the
/// lock node is deleted only when the last guard is dropped or released, or that time is over. What no clock on this
/// side can cover is a process that is paused, and goes on writing the moment it wakes: for that one give the
/// [`fencing_token`](Self::fencing_token) to the resource, and let it refuse older ones
/// ([`FenceGate`](crate::FenceGate)), or write to ZooKeeper in a [`transaction`](Self::transaction).
#[must_use = "dropping the guard gives the lock back at once"]
#[clippy::has_significant_drop]
pub struct LockGuard<M: Mode = Exclusive> {
    hold: Arc<Hold>,
    mode: M,
}

/// A read lock that this process holds.
pub type ReadGuard = LockGuard<Read>;

/// A write lock that this process holds.
pub type WriteGuard = LockGuard<Write>;

/// A lock of any kind that this process holds, for code that does not care which.
pub type AnyGuard = LockGuard<Any>;

impl<M: Mode> fmt::Debug for LockGuard<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not how it stands: that asks the clock, and may find it lost.
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

    /// A guard of the same hold for something else.
    pub(crate) fn share<N: Mode>(&self, mode: N) -> Result<LockGuard<N>, Lost> {
        match self.hold.lost() {
            Some(reason) => Err(self.as_lost(reason)),
            None => Ok(LockGuard { hold: Arc::clone(&self.hold), mode }),
        }
    }

    /// How the lock stands. The clock is read at each call, so a task that was starved cannot hide a loss.
    #[must_use]
    pub fn state(&self) -> LockState {
        self.hold.state()
    }

    /// Waits until the lock stands otherwise than `known`, and answers how; at once if it does already, or is lost. That
    /// a proof is overdue is noticed within a second. Changes that are over before anybody has looked are not told.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    ///
    /// ```no_run
    /// # async fn example(guard: zookeeper_recipes::LockGuard) {
    /// # async fn sell(_paused: std::sync::Arc<std::sync::atomic::AtomicBool>) {}
    /// use std::sync::{Arc, atomic::{AtomicBool, Ordering}};
    /// use zookeeper_recipes::LockState;
    ///
    /// let paused = Arc::new(AtomicBool::new(false));
    /// let mut work = std::pin::pin!(sell(Arc::clone(&paused)));
    /// let mut state = guard.state();
    /// while !matches!(state, LockState::Lost(_)) {
    ///     paused.store(state == LockState::Suspended, Ordering::Relaxed); // begin nothing new while it is
    ///     tokio::select! {
    ///         changed = guard.state_changed(state) => state = changed,
    ///         () = &mut work => break,
    ///     }
    /// }
    /// # }
    /// ```
    pub async fn state_changed(&self, known: LockState) -> LockState {
        self.hold.state_changed(known).await
    }

    /// Whether the lock is not lost, by the clock. Advisory: it may be lost the moment after; only the
    /// [token](Self::fencing_token) is proof to others.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.hold.lost().is_none()
    }

    /// Resolves when the lock is lost: by the clock, by the end of its session, or because its node was deleted
    /// (which is noticed within a sixth of the session timeout). It never resolves because of a release. Does
    /// not borrow the guard, so it can be given to another task.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing; a later one resolves at once if the lock was lost in between.
    ///
    /// ```no_run
    /// # async fn example(guard: zookeeper_recipes::LockGuard) {
    /// # async fn sell() {}
    /// tokio::select! {
    ///     lost = guard.lost() => eprintln!("stop at once: {lost}"),
    ///     () = sell() => drop(guard),
    /// }
    /// # }
    /// ```
    pub fn lost(&self) -> impl Future<Output = Lost> + Send + 'static {
        let lost = self.hold.when_lost();
        let path = self.path().into();
        async move { Lost { path, reason: lost.await } }
    }

    /// Runs `work` for as long as the lock is held: drops it as soon as the lock is lost, and does not answer
    /// with its result if the lock was lost by the time that it was there.
    ///
    /// # Errors
    /// [`Lost`], also when the lock is lost already: `work` is then not polled at all.
    ///
    /// # Cancel safety
    /// That of `work`, which is dropped with this future.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # tokio::runtime::Runtime::new()?.block_on(async {
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// # let mutex = zookeeper_recipes::InterProcessMutex::new(&client, "/jobs/nightly")?;
    /// let guard = mutex.lock().await?;
    /// let rows = guard.while_held(async { 42 /* the nightly job */ }).await?;
    /// guard.release().await?;
    /// # assert_eq!(rows, 42);
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    pub async fn while_held<T>(&self, work: impl Future<Output = T>) -> Result<T, Lost> {
        let mut lost = pin!(self.lost());
        let mut work = pin!(work);
        let outcome = std::future::poll_fn(|context| {
            if let Poll::Ready(lost) = lost.as_mut().poll(context) {
                return Poll::Ready(Err(lost));
            }
            // By the clock as well: who would wake `lost` may be starved.
            if let Some(reason) = self.hold.lost() {
                return Poll::Ready(Err(self.as_lost(reason)));
            }
            work.as_mut().poll(context).map(Ok)
        })
        .await?;
        match self.hold.lost() {
            Some(reason) => Err(self.as_lost(reason)),
            None => Ok(outcome),
        }
    }

    /// Another guard of the same hold: the lock is released when the last one is. Re-entrance is by value, for
    /// functions that take a guard, not by thread or task: the branches of a `select!` share both.
    ///
    /// # Errors
    /// [`Lost`] if the lock is lost.
    pub fn reenter(&self) -> Result<Self, Lost> {
        self.share(self.mode)
    }

    /// How many guards share the hold.
    #[must_use]
    #[doc(alias = "getHoldCount")]
    pub fn hold_count(&self) -> usize {
        Arc::strong_count(&self.hold)
    }

    /// Writes to ZooKeeper that happen only if this lock is held at that moment, all or none; see [`Transaction`].
    pub fn transaction(&self) -> Transaction<'_> {
        Transaction::new(&self.hold)
    }

    fn as_lost(&self, reason: LostReason) -> Lost {
        Lost { path: self.path().into(), reason }
    }

    /// The number by which a resource can tell this grant from earlier ones: a [`FencingToken`](crate::FencingToken) of a
    /// mutex, a fair lock or a write lock, a [`ReadToken`](crate::ReadToken) of a read lock, either
    /// ([`Token`](crate::Token)) where the kind is known at run time only. [`FenceGate::check`](crate::FenceGate::check)
    /// takes each.
    #[must_use]
    pub fn fencing_token(&self) -> M::Token {
        let (zxid, counter) = self.hold.token();
        <M::Token as sealed::Token>::new(zxid, counter, self.mode.into())
    }

    /// Resolves when somebody asks for the lock back: another client's
    /// [`attempt_revoke`](crate::Client::attempt_revoke), or Curator's `Revoker`. A request that came before this
    /// call, even while we were still waiting for the lock, is not missed. Nothing happens by itself: give the lock
    /// back when you can, or do not. It never resolves because the lock was released or lost.
    ///
    /// While it is polled it watches the lock node: one request. It does not borrow the guard.
    ///
    /// # Cancel safety
    /// Dropping the future ends the watch; a later one sees the same request.
    #[doc(alias = "makeRevocable")]
    pub fn revoked(&self) -> impl Future<Output = ()> + Send + 'static {
        let (session, held) = (Arc::downgrade(self.hold.session()), Arc::clone(self.hold.held()));
        let directory = self.hold.path_lock().path().clone();
        let runtime = self.hold.path_lock().client().runtime();
        async move {
            // Where the session runs: this future may be polled without any runtime.
            let mut watch =
                AbortOnDrop(runtime.spawn(revoke::revocation_requested(session, directory, held)));
            match (&mut watch.0).await {
                Ok(true) => {}
                // Given back, or over: nobody will ask any more.
                _ => std::future::pending().await,
            }
        }
    }

    /// The path of the lock node, without the client's namespace.
    #[must_use]
    pub fn node(&self) -> NodePath {
        self.hold.path_lock().path().user_child(&self.hold.node())
    }

    /// The lock's path, as it was given.
    #[must_use]
    pub fn path(&self) -> &str {
        self.hold.path_lock().path().user()
    }

    /// Gives the lock back and waits until a server has confirmed it. While other guards [share](Self::reenter) the
    /// hold, it only gives up this share.
    ///
    /// It waits for as long as it takes to know: with no server in reach until the session is over, which is
    /// about 1.4 times the session timeout. Wrap it in [`tokio::time::timeout`] to wait less; the release goes on. If the
    /// lock is lost already, it answers at once, and the node is deleted in the background.
    ///
    /// # Errors
    /// [`ReleaseError::Lost`] if the lock had been lost before: what was done under it since may have overlapped
    /// with another holder. [`ReleaseError::Refused`] if the ACL does not let this client delete its own node. In no case is
    /// there anything to repeat.
    ///
    /// # Cancel safety
    /// The lock is given back in any case, from the moment of the call; dropping the future loses the report.
    pub fn release(self) -> impl Future<Output = Result<(), ReleaseError>> + Send + 'static {
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
}

/// The time of a call, as an instant; nothing when it is so long that the clock has no such instant.
pub(crate) fn after(timeout: Duration) -> Option<std::time::Instant> {
    // tokio's timers reach about two years; an instant beyond that would be moved up silently.
    const LONG: Duration = Duration::from_secs(60 * 60 * 24 * 365);
    if timeout > LONG { None } else { std::time::Instant::now().checked_add(timeout) }
}
