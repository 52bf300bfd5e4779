//! The client, and how it is set up.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use zookeeper_client as zk;

use crate::engine::lock_options::{Asked, Recipe};
use crate::engine::path_lock::{Key, PathLock};
use crate::engine::registry::Registry;
use crate::engine::revoke;
use crate::error::{BuildError, ConnectError, ReleaseError, RevokeError};
use crate::options::Acl;
use crate::path::NodePath;
use crate::protocol::lease::Margin;
use crate::session::core::Core;
use crate::session::heartbeat::Heartbeat;
use crate::session::retry::RetryPolicy;
use crate::session::setup::{self, Setup};
use crate::session::supervisor::ConnectionState;
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
    pub fn from_session(session: zk::Client) -> Result<Self, ConnectError> {
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

    /// Asks the contender that has the lock node `node` to release its lock, or to leave the queue.
    ///
    /// Writes Curator's marker into the node. A holder is told by [`LockGuard::revoked`](crate::LockGuard::revoked), or
    /// by the listener of a Curator lock that was made revocable; whether it releases the lock is its own decision.
    /// Returns `Ok` if the node no longer exists. [`participants`](crate::InterProcessMutex::participants) of a lock
    /// returns the nodes of its queue.
    ///
    /// # Errors
    /// See [`RevokeError`].
    ///
    /// # Cancel safety
    /// If the future is dropped, the marker may or may not have been written.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let servers = server.connect_string();
    /// use zookeeper_recipes::{Client, InterProcessMutex};
    ///
    /// let client = Client::connect(&servers).await?;
    /// let mutex = InterProcessMutex::new(&client, "/jobs/reindex")?;
    /// let guard = mutex.lock().await?;
    ///
    /// // Elsewhere: ask the holder, which is first in the queue.
    /// if let Some(holder) = mutex.participants().await?.first() {
    ///     client.attempt_revoke(holder).await?;
    /// }
    ///
    /// // The holder stops at the next good moment.
    /// guard.revoked().await;
    /// guard.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "Revoker")]
    #[doc(alias = "attemptRevoke")]
    pub async fn attempt_revoke(&self, node: &NodePath) -> Result<(), RevokeError> {
        let (core, asked) = (Arc::clone(&self.core), node.clone());
        let asked = self.core.run(async move { revoke::request_revocation(&core, &asked).await });
        asked.await.unwrap_or_else(|| Err(RevokeError::Closed { node: node.clone() }))
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

/// Options of a [`Client`].
#[must_use = "it does nothing until `connect` is called"]
#[derive(Clone, Default)]
pub struct ClientBuilder {
    setup: Setup,
}

impl ClientBuilder {
    /// For how long the servers keep the session, and its locks, without hearing from this process. By default 30 s;
    /// Curator's default is 60 s. The servers move it into their limits, by default 2 to 20 of their ticks
    /// (4 to 40 s at ZooKeeper's default tick of 2 s); [`Client::session_timeout`] is what they granted.
    ///
    /// It is a choice between two things. Let T be the granted timeout:
    ///
    /// - **A holder that crashes keeps the others waiting** until its session expires: up to T and a tick. (One that is
    ///   closed, or whose guard is dropped, does not.)
    /// - **An outage costs no lock** if a server commits a write again within T/2 of its beginning, reconnecting
    ///   included: a lock is believed for 2T/3 after the last proof (with the [default margin](Margin::Standard)), and that may
    ///   be T/6 old when the outage begins.
    ///
    /// | T | a crashed holder blocks others for up to | no lock is lost by an outage of up to | leader killed | leader hangs |
    /// |---|---|---|---|---|
    /// | 6 s | 8 s | 3 s | may be lost | lost |
    /// | 15 s | 17 s | 7.5 s | kept | lost |
    /// | 30 s | 32 s | 15 s | kept | kept |
    /// | 40 s | 42 s | 20 s | kept | kept |
    ///
    /// The last two columns are for servers with the default `tickTime` (2 s) and `syncLimit` (5): a killed leader is
    /// replaced within a few seconds, but that a leader hangs is noticed only after `syncLimit` ticks, 10 s, to which
    /// the election and a reconnect come. With a smaller `syncLimit` a smaller T does.
    pub fn session_timeout(mut self, timeout: Duration) -> Self {
        self.setup.session_timeout = timeout;
        self
    }

    /// For how long one try to get a session may take; by default 5 s, as in the articles' Curator set-up
    /// (Curator's own default is 15 s). It is also how long [`try_lock`](crate::InterProcessMutex::try_lock) waits for an
    /// answer.
    ///
    /// One server may be silent for a third of it, or for an eighth of the granted session timeout if that is less, but for half
    /// a second at least, before another is tried, now and later. Where the servers grant another session timeout than was
    /// asked for, and that makes a difference, connecting establishes a second session and closes the first. If
    /// commits take longer than that for a whole session timeout, so that no write is answered before the connection
    /// is given up, the session is replaced by one with twice the time, up to 2/5 of the session timeout; after a session that
    /// lasted for ten session timeouts it begins anew.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.setup.connect_timeout = timeout;
        self
    }

    /// How often to try again to replace a lost session, or to repeat a request that failed. By default
    /// [`RetryPolicy::exponential(1 s, 3, 5 s)`](RetryPolicy::exponential).
    pub fn retry_policy(mut self, policy: RetryPolicy) -> Self {
        self.setup.retry = policy;
        self
    }

    /// A prefix of all paths, created when it is missing: with `shop`, the lock `/sku-42` is the node
    /// `/shop/sku-42` at the servers. By default none. It comes after a path in the connect string.
    #[doc(alias = "usingNamespace")]
    pub fn namespace(mut self, namespace: &str) -> Self {
        namespace.clone_into(&mut self.setup.namespace);
        self
    }

    /// The ACL of everything that is created, unless a recipe has its own. By default [open](Acl::open).
    #[doc(alias = "aclProvider")]
    pub fn acl(mut self, acl: impl Into<Vec<Acl>>) -> Self {
        self.setup.acl = acl.into();
        self
    }

    /// Credentials, for example `auth("digest", "user:password")`. Several are possible.
    #[doc(alias = "authorization")]
    pub fn auth(mut self, scheme: &str, credentials: impl Into<Vec<u8>>) -> Self {
        self.setup.auth.push((scheme.to_owned(), credentials.into()));
        self
    }

    /// How the client proves that the servers still keep its session while something is held or waited for. By
    /// default [`Heartbeat::Commit`], the only one that proves it.
    pub fn heartbeat(mut self, heartbeat: Heartbeat) -> Self {
        self.setup.lease.heartbeat = heartbeat;
        self
    }

    /// How much earlier than the servers may give a lock away it is given up here. By default [`Margin::Standard`],
    /// a third of the session timeout.
    pub fn margin(mut self, margin: Margin) -> Self {
        self.setup.lease.margin = margin;
        self
    }

    /// A connector of the client library, for what it can do and this builder has no name for: TLS (feature
    /// `tls`), SASL (features `sasl-digest-md5`, `sasl-gssapi`). The session timeout and the credentials of this builder
    /// are put on top. Servers are spoken to by TLS where the connect string says `tcp+tls://host:port`.
    ///
    /// It must make sessions that this client may own: not one with `with_session` (a session that has expired would
    /// be asked for again and again), `with_detached` (closing would not delete the nodes) or `with_readonly`.
    pub fn connector(mut self, connector: zk::Connector) -> Self {
        self.setup.connector = Some(connector);
        self
    }

    /// Connects to `host:port[,host:port…][/namespace]`.
    ///
    /// # Errors
    /// As [`Client::connect`].
    ///
    /// # Cancel safety
    /// As [`Client::connect`].
    pub async fn connect(self, servers: &str) -> Result<Client, ConnectError> {
        setup::connect(self.setup, servers).await.map(Client::new)
    }
}

impl fmt::Debug for ClientBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Credentials stay out of logs.
        f.debug_struct("ClientBuilder")
            .field("session_timeout", &self.setup.session_timeout)
            .field("connect_timeout", &self.setup.connect_timeout)
            .field("retry", &self.setup.retry)
            .field("namespace", &self.setup.namespace)
            .field("acl", &self.setup.acl)
            .field("lease", &self.setup.lease)
            .finish_non_exhaustive()
    }
}
