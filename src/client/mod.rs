//! The client: outlives sessions, owns the rooms, and runs the sessions on a thread of its own.

mod belief;
mod builder;
pub(crate) mod clock;
mod dialer;
pub(crate) mod epoch;
mod heartbeat;
pub(crate) mod held;
mod lease;
mod patience;
mod probe;
pub(crate) mod reaper;
mod retry;
mod servers;
mod supervisor;
pub(crate) mod waker;
pub(crate) mod watches;
pub(crate) mod window;

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::watch;

pub use self::belief::Margin;
pub use self::builder::ClientBuilder;
use self::epoch::Epoch;
pub use self::heartbeat::Heartbeat;
use self::reaper::{Reaper, delete_orphans};
pub use self::retry::RetryPolicy;
pub use self::supervisor::ConnectionState;
use self::supervisor::{Closing, Phase, Shared};
use crate::engine::driver;
use crate::engine::room::Room;
use crate::error::{AcquireError, BuildError, ConnectError, ReleaseError, RevokeError};
use crate::options::{Acl, Asked, Recipe};
use crate::path::LockPath;
use crate::shown::Quoted;

/// A connection to ZooKeeper that outlives sessions, and where all recipes begin.
///
/// Cheap to clone; clones share everything. It keeps one session, on a thread of its own, so that a task that
/// blocks your runtime does not cost you your locks. When the session ends, everything held in it is lost, and
/// the client gets a new one by its [`RetryPolicy`]; waiters start again in it.
///
/// The session lives as long as any client, recipe or guard that came from it. When the last is dropped it is
/// closed in the background; a process that exits right then may not get that far, and its locks stay until the
/// session expires: call [`close`](Self::close) at the end of `main`.
///
/// Forked children must not use it: they have the memory, but neither the thread nor the connection.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zookeeper_test_server::Server::start()?;
/// # tokio::runtime::Runtime::new()?.block_on(async {
/// # let servers = server.connect_string();
/// use std::time::Duration;
/// use zookeeper_recipes::{Client, ConnectionState};
///
/// let client = Client::builder()
///     .session_timeout(Duration::from_secs(10))
///     .namespace("shop")
///     .connect(&servers)
///     .await?;
/// assert_eq!(client.state(), ConnectionState::Connected);
/// client.close().await?;
/// # Ok(())
/// # })
/// # }
/// ```
#[derive(Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Client({:?}", self.state())?;
        if let Some(session) = self.session_id() {
            write!(f, ", session {session:#x}")?;
        }
        if !self.inner.namespace.is_empty() {
            write!(f, ", namespace {}", Quoted(&self.inner.namespace))?;
        }
        f.write_str(")")
    }
}

/// What clients, rooms and guards share. Its drop ends the session.
#[derive(Debug)]
pub(crate) struct Inner {
    shared: Arc<Shared>,
    runtime: Handle,
    reaper: Reaper,
    retry: RetryPolicy,
    connect_timeout: Duration,
    namespace: String,
    acl: Arc<[Acl]>,
    /// Whether it was given credentials; nothing if its session or connector may have some of its own.
    has_credentials: Option<bool>,
    /// The servers have shown that they do not know containers.
    no_containers: AtomicBool,
    /// A room is found here by its server path and recipe as long as a handle, an attempt or a guard keeps it.
    rooms: Mutex<HashMap<(LockPath, Recipe), Weak<Room>>>,
}

/// There is no session to be had.
#[derive(Debug)]
pub(crate) enum NoEpoch {
    Unreachable(ConnectError),
    AuthFailed,
    Closed,
}

impl NoEpoch {
    pub(crate) fn into_error(self, path: &LockPath) -> AcquireError {
        let path = path.user().to_owned();
        match self {
            Self::Unreachable(error) => AcquireError::Connection { path, source: Arc::new(error) },
            Self::AuthFailed => AcquireError::AuthFailed { path },
            Self::Closed => AcquireError::Closed { path },
        }
    }
}

impl Client {
    /// Connects with the defaults: `host:port[,host:port…][/namespace]`.
    ///
    /// # Errors
    /// [`ConnectError::TimedOut`] when no server gives a session within the connect timeout (5 s by default), and the
    /// others as they say.
    ///
    /// # Cancel safety
    /// Dropping the future leaves at most a session without nodes, which expires.
    pub async fn connect(servers: &str) -> Result<Self, ConnectError> {
        Self::builder().connect(servers).await
    }

    /// Options, then [`connect`](ClientBuilder::connect).
    pub fn builder() -> ClientBuilder {
        ClientBuilder::default()
    }

    /// Uses a session that belongs to other code of this process, and does not close it.
    ///
    /// It has the defaults of [`ClientBuilder`], without a namespace. A client with a session of its own
    /// ([`connect`](Self::connect)) is the safer choice where there is one; this is what a borrowed session lacks:
    ///
    /// - **No thread of its own.** The session runs in the tokio runtime in which it was connected, and what looks after
    ///   the locks in the one in which this is called. While a task blocks either, no heartbeat is sent, and after two
    ///   thirds of the session timeout the locks are lost. The guards are told in time all the same:
    ///   [`is_held`](crate::LockGuard::is_held) reads the clock, and [`lost`](crate::LockGuard::lost) needs no runtime but
    ///   the one that polls it.
    /// - **No replacement.** When the session ends, this client is closed; make a new one from the next session.
    /// - **Its owner's timeouts.** The session timeout, how long a server may be silent before another is tried, the
    ///   servers and the credentials are those that it was connected with. `zookeeper-client` waits for a silent server for
    ///   2/5 of the session timeout by default, so one hung server can cost the locks: connect it
    ///   with `with_connection_timeout` of an eighth of the session timeout.
    /// - **Its owner's watches and requests.** After a reconnect a session that watches more than 128 KiB of paths cannot
    ///   be used any more. This client stays below that, but does not know of the owner's watches. A reply
    ///   of many megabytes to a request of the owner delays the heartbeats behind it.
    /// - **`close` deletes the nodes one by one** and leaves the session open. What the servers do not let it delete
    ///   within the session timeout is deleted later, or when the session ends.
    ///
    /// # Errors
    /// [`ConnectError::NoRuntime`] outside a tokio runtime or in one without timers (tokio reports those by a panic,
    /// which is caught; the panic hook sees it), [`ConnectError::SessionEnded`] if the session has ended,
    /// [`ConnectError::Setup`] if the thread that tells losses cannot be started.
    pub fn from_session(session: zookeeper_client::Client) -> Result<Self, ConnectError> {
        builder::borrow(session)
    }

    /// How it is connected now.
    #[must_use]
    pub fn state(&self) -> ConnectionState {
        *self.inner.shared.state.borrow()
    }

    /// The same, to wait for changes.
    #[must_use]
    #[doc(alias = "ConnectionStateListener")]
    pub fn watch_state(&self) -> watch::Receiver<ConnectionState> {
        self.inner.shared.state.subscribe()
    }

    /// The id of the present session, if there is one.
    #[must_use]
    pub fn session_id(&self) -> Option<i64> {
        self.inner.live().map(|epoch| epoch.session_id())
    }

    /// The session timeout that the servers granted, if there is a session: they may have moved the one that was
    /// asked for into their own limits (by default 2 to 20 of their ticks).
    #[must_use]
    pub fn session_timeout(&self) -> Option<Duration> {
        self.inner.live().map(|epoch| epoch.timeout())
    }

    /// Waits until everything that was dropped, cancelled or timed out before this call has been cleaned up at the
    /// servers. Deletions that the servers have refused are asked for once more.
    ///
    /// # Errors
    /// [`ReleaseError::TimedOut`] when that takes longer than `timeout`; it goes on in the background.
    /// [`ReleaseError::Refused`] when the servers refuse to delete nodes of this client: each keeps its lock from all
    /// others.
    ///
    /// # Cancel safety
    /// It only waits.
    pub async fn flush(&self, timeout: Duration) -> Result<(), ReleaseError> {
        let mut pending = self.inner.reaper.pending();
        // What comes after this call is not waited for.
        let limit = pending.borrow().next();
        let epoch = self.inner.live();
        let live = epoch.clone();
        let flushed = self.inner.run(async move {
            let clean = async {
                // An error cannot come: the reaper lives as long as its thread.
                let _ = pending.wait_for(|pending| pending.none_before(limit)).await;
                match live {
                    Some(epoch) => delete_orphans(&epoch).await,
                    None => Ok(()),
                }
            };
            tokio::time::timeout(timeout, clean).await
        });
        match flushed.await {
            // A client that has ended has no nodes.
            None => Ok(()),
            Some(Ok(flushed)) => flushed,
            Some(Err(_)) => {
                let pending = self.inner.reaper.pending().borrow().count_before(limit);
                let refused = epoch.map_or(0, |epoch| epoch.orphans(None).len());
                match pending + refused {
                    // The answers have come meanwhile.
                    0 => Ok(()),
                    nodes => Err(ReleaseError::TimedOut { nodes, waited: timeout }),
                }
            }
        }
    }

    /// Asks whoever holds, or waits for, a lock by the node `participant` to give it back: writes Curator's marker
    /// into the node, which resolves [`LockGuard::revoked`](crate::LockGuard::revoked) there, or reaches the listener of
    /// a Curator lock that was made revocable. Nothing is taken away: the other side decides. That there is no such node
    /// any more is no error.
    ///
    /// `participant` is a path as `participants()` of the locks answers it.
    ///
    /// # Errors
    /// [`RevokeError`], as its variants say.
    ///
    /// # Cancel safety
    /// Dropping the future may leave it undone, or done.
    #[doc(alias = "Revoker")]
    #[doc(alias = "attemptRevoke")]
    pub async fn attempt_revoke(&self, participant: &str) -> Result<(), RevokeError> {
        let path = LockPath::parse(self.inner.namespace(), participant)?;
        let inner = Arc::clone(&self.inner);
        let asked = self.inner.run(async move { driver::ask_back(&inner, &path).await });
        asked.await.unwrap_or_else(|| Err(RevokeError::Closed { node: participant.to_owned() }))
    }

    /// Closes the session, and with it deletes every node that this client has; all guards turn lost first, and
    /// waiters end with [`AcquireError::Closed`]. Whatever else still uses the client gets that error too. Waits
    /// until a server has confirmed it, or the session has ended by itself, at most for the session timeout. Calling it
    /// again answers the same.
    ///
    /// With no server in reach it waits as well: one that comes back in time frees the locks at once, and without that
    /// nobody else gets them before the session expires. To wait less, wrap it in [`tokio::time::timeout`]: the guards are
    /// lost at once either way, and the client goes on, on its own thread, for as long as the process lives.
    ///
    /// A borrowed session ([`from_session`](Self::from_session)) stays open; our nodes in it are deleted one by one.
    ///
    /// # Errors
    /// [`ReleaseError::SessionNotClosed`] when no server confirmed it in time: the nodes go when the session
    /// expires.
    ///
    /// # Cancel safety
    /// The client closes in any case, from the first poll on; dropping the future loses the report.
    pub async fn close(&self) -> Result<(), ReleaseError> {
        let started = std::time::Instant::now();
        self.inner.shared.stop.send_replace(true);
        let mut closed = self.inner.shared.session_closed.subscribe();
        let confirmed = waker::contain(closed.wait_for(Option::is_some)).await;
        match confirmed.as_deref() {
            Ok(Some(true)) => Ok(()),
            _ => Err(ReleaseError::SessionNotClosed { waited: started.elapsed() }),
        }
    }

    pub(crate) fn inner(&self) -> &Arc<Inner> {
        &self.inner
    }
}

impl Inner {
    pub(crate) fn reaper(&self) -> &Reaper {
        &self.reaper
    }

    pub(crate) fn retry(&self) -> &RetryPolicy {
        &self.retry
    }

    pub(crate) fn connect_timeout(&self) -> Duration {
        self.connect_timeout
    }

    pub(crate) fn has_credentials(&self) -> Option<bool> {
        self.has_credentials
    }

    pub(crate) fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Where the session runs, without keeping it.
    pub(crate) fn runtime(&self) -> Handle {
        self.runtime.clone()
    }

    /// Runs a task where the session runs. After the end of the client it is dropped at once.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.runtime.spawn(task);
    }

    /// Runs work where the session runs, so that its timers need nothing of the caller's runtime; nothing if the
    /// client has ended. Dropping the future does not stop the work.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Option<T> {
        self.runtime.spawn(work).await.ok()
    }

    /// The same, for work that nobody needs when the future is dropped.
    pub(crate) async fn run_while_polled<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Option<T> {
        let mut task = AbortOnDrop(self.runtime.spawn(work));
        (&mut task.0).await.ok()
    }

    /// Whether missing directories are to be containers, as far as the servers know them.
    pub(crate) fn makes_containers(&self) -> bool {
        !self.no_containers.load(Ordering::Relaxed)
    }

    /// The servers do not know containers: from here on ordinary nodes are made.
    pub(crate) fn make_no_containers(&self) {
        if !self.no_containers.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "the servers make no containers: directories of locks are made as ordinary nodes from here on, and stay"
            );
        }
    }

    /// Why nothing runs any more where the session ran.
    pub(crate) fn why_ended(&self, path: &LockPath) -> AcquireError {
        match *self.shared.phase.borrow() {
            Phase::Closed(Closing::AuthFailed) => NoEpoch::AuthFailed.into_error(path),
            _ => NoEpoch::Closed.into_error(path),
        }
    }

    fn live(&self) -> Option<Arc<Epoch>> {
        match &*self.shared.phase.borrow() {
            Phase::Live(epoch) if epoch.end_reason().is_none() => Some(Arc::clone(epoch)),
            _ => None,
        }
    }

    /// The present session, or the next, for as long as the retry policy allows.
    pub(crate) async fn epoch(&self) -> Result<Arc<Epoch>, NoEpoch> {
        let mut phases = self.shared.phase.subscribe();
        // A round of connecting that had failed before we came does not count: ask for another.
        let mut before = None;
        let mut first = true;
        loop {
            match &*phases.borrow_and_update() {
                Phase::Live(epoch) if epoch.end_reason().is_none() => return Ok(Arc::clone(epoch)),
                Phase::Live(_) | Phase::Connecting => {}
                Phase::Down { round, .. } if first => {
                    before = Some(*round);
                    self.shared.wanted.notify_one();
                }
                Phase::Down { round, .. } if before == Some(*round) => {}
                Phase::Down { error, .. } => return Err(NoEpoch::Unreachable(error.clone())),
                Phase::Closed(Closing::Asked) => return Err(NoEpoch::Closed),
                Phase::Closed(Closing::AuthFailed) => return Err(NoEpoch::AuthFailed),
            }
            first = false;
            if phases.changed().await.is_err() {
                return Err(NoEpoch::Closed);
            }
        }
    }

    /// The room of a path and recipe: the one there is, if the options agree, or a new one.
    pub(crate) fn room(
        self: &Arc<Self>,
        path: LockPath,
        recipe: Recipe,
        asked: &Asked,
    ) -> Result<Arc<Room>, BuildError> {
        let options = asked.resolve(&path, recipe, &self.acl, self.has_credentials)?;
        let mut rooms = self.rooms.lock().unwrap_or_else(PoisonError::into_inner);
        let other_family = Recipe::ALL.into_iter().filter(|other| other.family() != recipe.family());
        for other in other_family {
            if rooms.get(&(path.clone(), other)).is_some_and(|room| room.strong_count() > 0) {
                return Err(BuildError::MixedRecipes { path: path.user().to_owned() });
            }
        }
        let key = (path.clone(), recipe);
        if let Some(room) = rooms.get(&key).and_then(Weak::upgrade) {
            return match asked.agrees_with(room.options()) {
                Ok(()) => Ok(room),
                Err(option) => {
                    // Not while the rooms are locked: this may be the last handle, whose drop locks them.
                    drop(rooms);
                    Err(BuildError::ConflictingOptions { path: path.user().to_owned(), option })
                }
            };
        }
        let room = Arc::new(Room::new(Arc::clone(self), path, options));
        rooms.insert(key, Arc::downgrade(&room));
        Ok(room)
    }

    /// The last handle of a room is gone, unless a new one has taken its place already.
    pub(crate) fn forget_room(&self, path: &LockPath, recipe: Recipe) {
        let mut rooms = self.rooms.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (path.clone(), recipe);
        if rooms.get(&key).is_some_and(|room| room.strong_count() == 0) {
            rooms.remove(&key);
        }
    }
}

/// A task that nobody needs without whom it was started for.
pub(crate) struct AbortOnDrop<T>(pub(crate) tokio::task::JoinHandle<T>);

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.shared.stop.send_replace(true);
    }
}
