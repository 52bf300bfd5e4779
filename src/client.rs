//! The client.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use crate::client_builder::ClientBuilder;
use crate::engine::lock_options::{Asked, Recipe};
use crate::engine::path_lock::{Key, PathLock};
use crate::engine::registry::Registry;
use crate::engine::revoke;
use crate::error::{BuildError, ConnectError, ReleaseError, RevokeError};
use crate::path::LockPath;
use crate::session::core::Core;
use crate::session::setup;
use crate::session::supervisor::ConnectionState;
use crate::shown::Quoted;

/// A connection to ZooKeeper that outlives sessions, and where all recipes begin.
///
/// Cheap to clone; clones share everything. It keeps one session, on a thread of its own, so that a task that
/// blocks your runtime does not cost you your locks. When the session ends, everything held in it is lost, and
/// the client gets a new one by its [`RetryPolicy`](crate::RetryPolicy); waiters start again in it.
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
    pub(crate) core: Arc<Core>,
    path_locks: Arc<Registry<Key, PathLock>>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Client({:?}", self.state())?;
        if let Some(session) = self.session_id() {
            write!(f, ", session {session:#x}")?;
        }
        if !self.core.namespace().is_empty() {
            write!(f, ", namespace {}", Quoted(self.core.namespace()))?;
        }
        f.write_str(")")
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
        setup::borrow(session).map(Self::new)
    }

    pub(crate) fn new(core: Arc<Core>) -> Self {
        Self { core, path_locks: Arc::default() }
    }

    /// How it is connected now.
    #[must_use]
    pub fn state(&self) -> ConnectionState {
        *self.core.watch_state().borrow()
    }

    /// The same, to wait for changes.
    #[must_use]
    #[doc(alias = "ConnectionStateListener")]
    pub fn watch_state(&self) -> watch::Receiver<ConnectionState> {
        self.core.watch_state()
    }

    /// The id of the present session, if there is one.
    #[must_use]
    pub fn session_id(&self) -> Option<i64> {
        self.core.live().map(|session| session.session_id())
    }

    /// The session timeout that the servers granted, if there is a session: they may have moved the one that was
    /// asked for into their own limits (by default 2 to 20 of their ticks).
    #[must_use]
    pub fn session_timeout(&self) -> Option<Duration> {
        self.core.live().map(|session| session.timeout())
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
        self.core.flush(timeout).await
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
        let path = LockPath::parse(self.core.namespace(), participant)?;
        let core = Arc::clone(&self.core);
        let asked = self.core.run(async move { revoke::request_revocation(&core, &path).await });
        asked.await.unwrap_or_else(|| Err(RevokeError::Closed { node: participant.to_owned() }))
    }

    /// Closes the session, and with it deletes every node that this client has; all guards turn lost first, and
    /// waiters end with [`AcquireError::Closed`](crate::AcquireError::Closed). Whatever else still uses the client gets that error too. Waits
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
        self.core.close().await
    }

    /// What the handles of a lock of this recipe at `path` share.
    pub(crate) fn path_lock(
        &self,
        path: &str,
        recipe: Recipe,
        asked: &Asked,
    ) -> Result<Arc<PathLock>, BuildError> {
        PathLock::get(&self.path_locks, &self.core, path, recipe, asked)
    }
}
