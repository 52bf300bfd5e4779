//! The client, from which all recipes are created. Its handles share a [`Core`] (which has the
//! session) and two registries: one of the path locks, and one of the turns at the paths of
//! persistent nodes. This file is the public API; `session/core.rs` says how long each part lives.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use zookeeper_client as zk;

use crate::blocking::block_on;
use crate::engine::data::kept_node::PathTurns;
use crate::engine::holdings;
use crate::engine::lock::lock_options::{Recipe, RequestedOptions};
use crate::engine::lock::path_lock::{Key, PathLock, Registry};
use crate::engine::while_held::revoke;
use crate::error::{
    BuildError, ConnectError, Error, Holding, Purpose, ReleaseError, RequestFailure,
};
use crate::protocol::failure::FailureKind;
use crate::protocol::lease::LeaseMargin;
use crate::session::core::Core;
use crate::session::live::zk_session::SessionGone;
use crate::session::request::retry::RetryPolicy;
use crate::session::setup::{self, Setup};
use crate::session::supervisor::ConnectionState;
use crate::session::threads::waker;
use crate::state_watch::StateWatch;
use crate::values::options::Acl;
use crate::values::path::NodePath;
use crate::values::shown::Quoted;
#[cfg(feature = "tls")]
use crate::values::tls::TlsOptions;

/// A connection to ZooKeeper that outlives its sessions, and with which all recipes are created.
///
/// A client is cheap to clone, and clones share everything. The session runs on a separate thread,
/// so a blocked runtime does not make the client lose a lock. When a session ends, all locks held
/// in it are lost. The client establishes a new session, under its [`RetryPolicy`], and waiters
/// queue again in the new session, in the same order.
///
/// The session lives as long as any clone, recipe or guard of the client. When the last of them is
/// dropped, the session is closed in the background. If the process exits before that, its locks
/// stay held until the session expires, so call [`close`](Self::close) at the end of `main`.
///
/// A forked child process must not use the client, because the child has no thread that serves the
/// connection.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zookeeper_test_server::Server::start()?;
/// # let servers = server.connect_string();
/// use std::time::Duration;
/// use zookeeper_recipes::{Client, InterProcessMutex};
///
/// let client = Client::builder()
///     .session_timeout(Duration::from_secs(10))
///     .namespace("shop")
///     .connect(&servers)
///     .await?;
///
/// let mutex = InterProcessMutex::new(&client, "/inventory/sku-42")?;
/// let guard = mutex.lock().await?;
/// guard.release().await?;
///
/// client.close().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[doc(alias = "CuratorFramework")]
#[doc(alias = "ZooKeeper")]
#[doc(alias = "KazooClient")]
pub struct Client {
    pub(crate) core: Arc<Core>,
    path_locks: Arc<Registry<Key, PathLock>>,
    pub(crate) nodes: Arc<PathTurns>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Client({:?}", self.state())?;
        if let Some(session) = self.session_id() {
            write!(f, ", session {session:#x}")?;
        }
        if !self.core.namespace.is_empty() {
            write!(f, ", namespace {}", Quoted(&self.core.namespace))?;
        }
        f.write_str(")")
    }
}

impl Client {
    /// Connects to `host:port[,host:port…][/namespace]` with the default options.
    ///
    /// # Errors
    /// Returns [`ConnectError::TimedOut`] if no server grants a session within 5 s, and another
    /// [`ConnectError`] if the connect string or its namespace cannot be used.
    ///
    /// # Cancel safety
    /// If the future is dropped, a session without nodes may be left on the servers until it
    /// expires.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let servers = server.connect_string();
    /// use zookeeper_recipes::{Client, ConnectionState};
    ///
    /// let client = Client::connect(&servers).await?; // "zk1:2181,zk2:2181,zk3:2181"
    /// assert_eq!(client.state(), ConnectionState::Connected);
    /// client.close().await?;
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "newClient")]
    #[doc(alias = "start")]
    pub async fn connect(servers: &str) -> Result<Self, ConnectError> {
        Self::builder().connect(servers).await
    }

    /// Returns a client with the default options, which connects to
    /// `host:port[,host:port…][/namespace]` in the background.
    ///
    /// Use this for a service that may start before ZooKeeper does; see
    /// [`ClientBuilder::connect_lazy`].
    ///
    /// # Errors
    /// Returns a [`ConnectError`] if the connect string or its namespace cannot be used; never
    /// [`ConnectError::TimedOut`].
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let servers = server.connect_string();
    /// use zookeeper_recipes::{Client, InterProcessMutex};
    ///
    /// let client = Client::connect_lazy(&servers)?; // "zk1:2181,zk2:2181,zk3:2181"
    /// let mutex = InterProcessMutex::new(&client, "/inventory/sku-42")?;
    /// let guard = mutex.lock().await?; // waits for the session
    /// # guard.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn connect_lazy(servers: &str) -> Result<Self, ConnectError> {
        Self::builder().connect_lazy(servers)
    }

    /// Returns a builder with the default options, which can be changed before
    /// [`connect`](ClientBuilder::connect).
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let servers = server.connect_string();
    /// use std::time::Duration;
    /// use zookeeper_recipes::Client;
    ///
    /// let builder = Client::builder().session_timeout(Duration::from_secs(12));
    /// let client = builder.connect(&servers).await?;
    /// assert_eq!(client.session_timeout(), Some(Duration::from_secs(12)));
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "CuratorFrameworkFactory")]
    pub fn builder() -> ClientBuilder {
        ClientBuilder::default()
    }

    pub(crate) fn new(core: Arc<Core>) -> Self {
        Self {
            core,
            // Each client has separate registries, because its locks belong to its session. So the
            // locks of two clients exclude each other on the servers, even within one process.
            path_locks: Arc::default(),
            nodes: Arc::default(),
        }
    }

    /// Returns the current state of the connection.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// use zookeeper_recipes::ConnectionState;
    ///
    /// assert_eq!(client.state(), ConnectionState::Connected);
    /// client.close().await?;
    /// assert_eq!(client.state(), ConnectionState::Closed);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn state(&self) -> ConnectionState {
        *self.core.watch_state().borrow()
    }

    /// Returns a watch of the client's [`state`](Self::state), to wait for changes.
    ///
    /// The watch keeps neither the client nor its session open.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// use zookeeper_recipes::ConnectionState;
    ///
    /// let mut states = client.watch_state();
    /// let log = tokio::spawn(async move {
    ///     // Ends after `Closed`.
    ///     while let Some(state) = states.changed().await {
    ///         println!("{state:?}");
    ///     }
    /// });
    /// client.close().await?;
    /// log.await?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    #[doc(alias = "ConnectionStateListener")]
    #[doc(alias = "getConnectionStateListenable")]
    pub fn watch_state(&self) -> StateWatch<ConnectionState> {
        StateWatch::new(self.core.watch_state(), |state| {
            *state == ConnectionState::Closed
        })
    }

    /// Returns the id of the current session; `None` if there is none.
    ///
    /// The servers log the id in hexadecimal.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// println!("session {:#x}", client.session_id().ok_or("no session")?);
    /// client.close().await?;
    /// assert_eq!(client.session_id(), None);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn session_id(&self) -> Option<i64> {
        self.core.live().map(|session| session.session_id)
    }

    /// Returns the session timeout that the servers granted; `None` if there is no session.
    ///
    /// The granted timeout may differ from the requested one, which the servers clamp to their
    /// limits, by default 2 to 20 of their ticks.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let servers = server.connect_string();
    /// use std::time::Duration;
    /// use zookeeper_recipes::Client;
    ///
    /// let client = Client::builder().session_timeout(Duration::from_secs(3600)).connect(&servers).await?;
    /// // 20 ticks of 2 s.
    /// assert_eq!(client.session_timeout(), Some(Duration::from_secs(40)));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn session_timeout(&self) -> Option<Duration> {
        self.core.live().map(|session| session.timeout())
    }

    /// Waits until the servers have deleted the nodes of all earlier calls and guards that were
    /// dropped, cancelled or timed out.
    ///
    /// The call tries once more to delete nodes whose deletion the servers have refused. It does
    /// not wait for guards that are still held, nor for a dropped
    /// [`LeaderLatch`](crate::LeaderLatch) or [`PersistentNode`](crate::PersistentNode); to wait
    /// for these, call their `close`. If the client gave up a session with nodes in an outage, the
    /// call also waits until the servers have ended this session.
    ///
    /// # Errors
    /// Returns [`ReleaseError::TimedOut`] if the deletions take longer than `timeout`; the cleanup
    /// continues in the background. Returns [`ReleaseError::Refused`] if the servers refuse to
    /// delete nodes of this client, each of which blocks its lock, and
    /// [`ReleaseError::SessionNotClosed`] if the client is closed and no server has confirmed the
    /// end of the session.
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
    /// use std::time::Duration;
    /// use zookeeper_recipes::InterProcessMutex;
    ///
    /// let mutex = InterProcessMutex::new(&client, "/inventory/sku-42")?;
    /// let guard = mutex.lock().await?;
    /// drop(guard); // deletes the node in the background
    ///
    /// client.flush(Duration::from_secs(5)).await?;
    /// assert!(mutex.participants().await?.is_empty());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn flush(&self, timeout: Duration) -> Result<(), ReleaseError> {
        self.core.flush(timeout).await
    }

    /// Asks the contender that owns `node` to release its lock, or to leave the queue.
    ///
    /// The call writes Curator's marker into the node. A holder is notified by
    /// [`LockGuard::revoked`](crate::LockGuard::revoked), or by the listener of a revocable Curator
    /// lock, and decides whether to release the lock. The call also returns `Ok` if the node no
    /// longer exists. A lock's [`participants`](crate::InterProcessMutex::participants) returns the
    /// nodes in its queue.
    ///
    /// # Errors
    /// - [`ErrorKind::NoAuth`](crate::ErrorKind::NoAuth) if the ACL of the node denies this client
    ///   WRITE.
    /// - [`ErrorKind::Rejected`](crate::ErrorKind::Rejected) if the path cannot be used with the
    ///   namespace of this client. Nothing is sent.
    /// - [`ErrorKind::Connection`](crate::ErrorKind::Connection) if no server answered: the marker
    ///   may have been written.
    /// - See [`Error`] for the other kinds.
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
    /// // The holder stops when its work allows.
    /// guard.revoked().await;
    /// guard.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "Revoker")]
    #[doc(alias = "attemptRevoke")]
    pub async fn attempt_revoke(&self, node: &NodePath) -> Result<(), Error> {
        let request = self.core.tasks.start({
            let (core, node) = (Arc::clone(&self.core), node.clone());
            async move { revoke::request_revocation(&core, &node).await }
        });
        // The task is not aborted if the caller leaves, because the outcome of a write must become
        // known.
        request
            .detach()
            .await
            .unwrap_or_else(|why| Err(revoke::not_asked(&self.core, node, why)))
    }

    /// Lends the client's session to other code, which then needs no separate session.
    ///
    /// `work` gets a handle of the session in which this client holds its locks, and runs in the
    /// caller's task. While there is no session, the call waits for one for as long as the retry
    /// policy allows. `work` runs once: its requests are not repeated, and it is dropped when the
    /// session ends. The paths of these requests are below a namespace in the connect string, but
    /// not below the builder's.
    ///
    /// Do not keep a clone of the handle: until the last clone is dropped, the session stays open,
    /// with the nodes of all locks, and [`close`](Self::close) returns
    /// [`SessionNotClosed`](ReleaseError::SessionNotClosed). Wait for watches inside `work`. A
    /// session that watches more than 128 KiB of paths cannot reconnect, and the client limits only
    /// its own watches. A reply of several megabytes delays heartbeats.
    ///
    /// # Errors
    /// Returns an error of kind [`Connection`](crate::ErrorKind::Connection) if no server granted a
    /// session, or the session ended before the work was done; the work's requests may have been
    /// carried out. The kind is [`AuthFailed`](crate::ErrorKind::AuthFailed) or
    /// [`Closed`](crate::ErrorKind::Closed) if the client establishes no further sessions. Errors
    /// of the work itself are in its output.
    ///
    /// # Cancel safety
    /// Dropping the future drops the work. Requests that it has sent may still be carried out.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// let children = client.request(|zk| async move { zk.list_children("/").await }).await??;
    /// assert_eq!(children, ["zookeeper"]);
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "getZookeeperClient")]
    pub async fn request<F: Future>(
        &self,
        work: impl FnOnce(zk::Client) -> F,
    ) -> Result<F::Output, Error> {
        let failed = |why| self.core.error(Purpose::Work, "/", why);
        let ended = || {
            failed(RequestFailure::Connection(Arc::new(
                FailureKind::SessionGone,
            )))
        };
        // The handle is lent until the work is done, or the session ends
        // (docs/protocol.md#lent-session).
        let lent = async {
            let session = self.core.session().await;
            let session = session.map_err(|no_session| failed(no_session.into()))?;
            let handle = session.handle().ok_or_else(ended)?;
            let answer = session.until_ended(work(handle)).await;
            answer.map_err(|SessionGone| ended())
        };
        // The executor of the caller polls this future, which waits for the end of the session in a
        // list with other futures, so panics of the executor's waker are contained.
        waker::contain(lent).await
    }

    /// Closes the session, which deletes all of this client's nodes, and waits until a server
    /// confirms its end.
    ///
    /// Before that, all guards report the loss of their locks. Waiting calls, and all later uses of
    /// the client, end with [`ErrorKind::Closed`](crate::ErrorKind::Closed). To let running work
    /// finish, call [`drain`](Self::drain) instead.
    ///
    /// The call waits for at most the session timeout. If a server is or becomes reachable in that
    /// time, the locks are free immediately; otherwise they are free when the session expires. To
    /// wait less, wrap the call in [`tokio::time::timeout`]; closing continues on the client's
    /// thread while the process lives. Further calls return the same result.
    ///
    /// # Errors
    /// Returns [`ReleaseError::SessionNotClosed`] if no server confirmed in time that the session,
    /// or an earlier one that the client gave up in an outage, has ended. The nodes of that session
    /// are deleted when it expires.
    ///
    /// # Cancel safety
    /// The client is closed from the first poll on. If the future is dropped, only the result is
    /// lost.
    ///
    /// # Examples
    /// Stop the workers, wait for them, then close:
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// use tokio::sync::watch;
    /// use zookeeper_recipes::InterProcessMutex;
    ///
    /// let (stop, mut stopped) = watch::channel(false);
    /// let mutex = InterProcessMutex::new(&client, "/jobs/queue")?;
    /// let worker = tokio::spawn(async move {
    ///     while !*stopped.borrow() {
    ///         let guard = tokio::select! {
    ///             guard = mutex.lock() => guard?,
    ///             _ = stopped.changed() => break, // while it waits, too
    ///         };
    ///         // One piece of work.
    ///         guard.release().await?;
    ///     }
    ///     Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// });
    ///
    /// stop.send(true)?;
    /// worker.await?.map_err(|error| error as Box<dyn std::error::Error>)?;
    /// client.close().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// On a signal:
    ///
    /// ```no_run
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// tokio::signal::ctrl_c().await?;
    /// client.close().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn close(&self) -> Result<(), ReleaseError> {
        self.core.close().await
    }

    /// Waits until the locks are released, then closes the client, for the orderly shutdown of a
    /// service.
    ///
    /// From the first poll on, all calls that acquire a lock, those that are waiting and later
    /// ones, end with [`ErrorKind::Closed`](crate::ErrorKind::Closed), which stops a worker that
    /// requests its next lock. Existing guards continue to work. Once the last guard is released,
    /// dropped or lost, and its node deleted, the client is [closed](Self::close). A latch leaves
    /// its election, as by [`LeaderLatch::close`](crate::LeaderLatch::close), and the work of a
    /// [`LeaderSelector`](crate::LeaderSelector) counts as a guard. All other nodes of this client
    /// are deleted with its session.
    ///
    /// If guards remain after `timeout`, the client is closed nevertheless: their locks are lost,
    /// and the error names the line of code that acquired each. If no server answers, closing can
    /// take another session timeout (30 s by default). Either the grace period of your process must
    /// cover both, or you must limit both together with [`tokio::time::timeout`]. A grace period of
    /// 30 s, the default of Kubernetes, has room for `timeout(Duration::from_secs(28),
    /// client.drain(Duration::from_secs(15)))`; a session that is not closed in that time expires.
    ///
    /// # Errors
    /// [`ReleaseError::StillHeld`] if guards remained, and [`ReleaseError::SessionNotClosed`] if no
    /// server confirmed the end of the session. The client is closed in any case.
    ///
    /// # Cancel safety
    /// If the future is dropped, the client acquires no more locks, but is not closed: call
    /// [`close`](Self::close) or `drain` again.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// use std::time::Duration;
    /// use zookeeper_recipes::{ErrorKind, InterProcessMutex};
    ///
    /// let mutex = InterProcessMutex::new(&client, "/jobs/queue")?;
    /// let worker = tokio::spawn(async move {
    ///     loop {
    ///         let guard = match mutex.lock().await {
    ///             Ok(guard) => guard,
    ///             Err(error) if error.kind() == Some(ErrorKind::Closed) => return Ok(()), // drained
    ///             Err(error) if error.is_retryable() => continue, // no server answered: try again
    ///             Err(error) => return Err(error),
    ///         };
    ///         // One piece of work.
    ///         drop(guard);
    ///     }
    /// });
    ///
    /// // On SIGTERM:
    /// client.drain(Duration::from_secs(20)).await?;
    /// worker.await??;
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "shutdown")]
    #[doc(alias = "graceful shutdown")]
    pub async fn drain(&self, timeout: Duration) -> Result<(), ReleaseError> {
        let started = Instant::now();
        // From here on the client grants no lock. The call waits for the guards that exist.
        let mut held = holdings::drain(&self.core, &self.path_locks, timeout).await;
        if held.is_empty() {
            // The flush waits for the answers to releases under way before the session ends. An
            // error about remaining nodes does not matter, because they are deleted with the
            // session.
            let _ = self
                .core
                .flush(timeout.saturating_sub(started.elapsed()))
                .await;
            // The drain checks again, because a hold that one caller was handing to another in
            // memory may have belonged to neither at that moment.
            let left = timeout.saturating_sub(started.elapsed());
            held = holdings::drain(&self.core, &self.path_locks, left).await;
        }
        // The client is closed even if locks are still held at the deadline. Their guards are lost,
        // and the servers delete their nodes with the session.
        match (self.core.close().await, held.is_empty()) {
            (closed, true) => closed,
            (closed, false) => {
                let source = closed.err().map(|error| Arc::new(error) as _);
                Err(ReleaseError::StillHeld {
                    timeout,
                    held,
                    source,
                })
            }
        }
    }

    /// Returns the locks that guards of this client hold now, in the order of their paths.
    ///
    /// The list has the locks of all recipes, permits included, but not those of other processes,
    /// nor locks whose lease has ended. A service can show the list on a status page.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// # let guard = zookeeper_recipes::InterProcessMutex::new(&client, "/jobs/nightly")?.lock().await?;
    /// for holding in client.holdings() {
    ///     println!("{holding}");
    /// }
    /// guard.release().await?;
    /// assert!(client.holdings().is_empty());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn holdings(&self) -> Vec<Holding> {
        holdings::holdings(&self.path_locks)
    }

    /// Waits until a guard of this client holds the lock at `path`; returns at once if one does.
    ///
    /// Use this call in a test that lets a session expire, or stops the server or the service, once
    /// the service holds the lock. The call sees the current holds and keeps no history, so it may
    /// miss a lock that is acquired and released at once.
    ///
    /// The call does not return before the caller that acquires the lock has its guard. (A session
    /// that expires before that causes no loss, because the acquiring call continues in the next
    /// session.)
    ///
    /// If there are several holds at the path, the call returns one of them; `None` if the client
    /// is closed first.
    ///
    /// # Cancel safety
    /// Cancel safe: this only waits.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use zookeeper_recipes::{Client, InterProcessMutex, LostReason};
    ///
    /// let server = zookeeper_test_server::Server::start()?;
    /// let client = Client::connect(&server.connect_string()).await?;
    ///
    /// // The service under test.
    /// let mutex = InterProcessMutex::new(&client, "/jobs/nightly")?;
    /// let service = tokio::spawn(async move {
    ///     let guard = mutex.lock().await?;
    ///     let lost = guard.while_held(std::future::pending::<()>()).await.unwrap_err();
    ///     Ok::<_, zookeeper_recipes::AcquireError>(lost.reason())
    /// });
    ///
    /// client.wait_until_held("/jobs/nightly").await.ok_or("closed")?; // now it is in the middle of its work
    /// server.expire_session(client.session_id().ok_or("no session")?);
    /// assert_eq!(service.await??, LostReason::SessionExpired);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn wait_until_held(&self, path: impl AsRef<str>) -> Option<Holding> {
        holdings::held(&self.core, &self.path_locks, path.as_ref()).await
    }

    /// Waits until no guard of this client holds the lock at `path`, because it was released,
    /// dropped or lost. Returns at once if none does.
    ///
    /// The node of a guard that was dropped may still exist: [`flush`](Self::flush) waits for its
    /// deletion.
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
    /// # let mutex = zookeeper_recipes::InterProcessMutex::new(&client, "/jobs/nightly")?;
    /// let guard = mutex.lock().await?;
    /// let work = tokio::spawn(async move {
    ///     // ..
    ///     guard.release().await
    /// });
    /// client.wait_until_released("/jobs/nightly").await;
    /// assert!(!mutex.is_acquired_in_this_process());
    /// # work.await??;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn wait_until_released(&self, path: impl AsRef<str>) {
        holdings::released(&self.core, &self.path_locks, Some(path.as_ref())).await;
    }

    /// Connects like [`connect`](Self::connect), and blocks the thread meanwhile.
    ///
    /// # Errors
    /// See [`connect`](Self::connect).
    ///
    /// # Examples
    /// This program has no executor. Calls that acquire or release a lock have variants with the
    /// prefix `blocking_`. Other calls work with any `block_on`, because no future of this crate
    /// needs a runtime.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let servers = server.connect_string();
    /// use std::time::Duration;
    /// use zookeeper_recipes::{Client, InterProcessMutex};
    ///
    /// let client = Client::blocking_connect(&servers)?;
    /// let mutex = InterProcessMutex::new(&client, "/inventory/sku-42")?;
    /// let guard = mutex.blocking_acquire(Duration::from_secs(10))?;
    /// println!("alone, with token {}", guard.fencing_token());
    /// guard.blocking_release()?;
    /// client.blocking_close()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn blocking_connect(servers: &str) -> Result<Self, ConnectError> {
        block_on(Self::connect(servers))
    }

    /// Closes the client like [`close`](Self::close), and blocks the thread meanwhile.
    ///
    /// # Errors
    /// See [`close`](Self::close).
    pub fn blocking_close(&self) -> Result<(), ReleaseError> {
        block_on(self.close())
    }

    /// Drains the client like [`drain`](Self::drain), and blocks the thread meanwhile.
    ///
    /// # Errors
    /// See [`drain`](Self::drain).
    pub fn blocking_drain(&self, timeout: Duration) -> Result<(), ReleaseError> {
        block_on(self.drain(timeout))
    }

    /// Returns the state that all handles of a lock of this recipe at `path` share.
    pub(crate) fn path_lock(
        &self,
        path: &str,
        recipe: Recipe,
        asked: &RequestedOptions,
    ) -> Result<Arc<PathLock>, BuildError> {
        PathLock::get(&self.path_locks, &self.core, path, recipe, asked)
    }
}

/// Options of a [`Client`].
///
/// # Examples
/// All options that need no feature:
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zookeeper_test_server::Server::start()?;
/// # let servers = server.connect_string();
/// use std::time::Duration;
/// use zookeeper_recipes::{Acl, Client, LeaseMargin, RetryPolicy};
///
/// let client = Client::builder()
///     .session_timeout(Duration::from_secs(30))
///     .connect_timeout(Duration::from_secs(5))
///     .retry_policy(RetryPolicy::exponential(Duration::from_secs(1), 3, Duration::from_secs(5)))
///     .namespace("shop")
///     .name("stock")
///     .auth("digest", "shop:secret")
///     .acl([Acl::creator_all()])
///     .margin(LeaseMargin::Standard)
///     .connector(zookeeper_client::Client::connector()) // for Kerberos
///     .connect(&servers)
///     .await?;
/// client.close().await?;
/// # Ok(())
/// # }
/// ```
#[must_use = "it does nothing until `connect` or `connect_lazy` is called"]
#[derive(Clone, Default)]
#[doc(alias = "CuratorFrameworkFactory")]
pub struct ClientBuilder {
    setup: Setup,
}

impl ClientBuilder {
    /// Sets the session timeout: how long the servers keep the session, and its locks, without
    /// hearing from this process.
    ///
    /// The default is 30 s (Curator's is 60 s). The servers clamp the timeout to their limits, by
    /// default 2 to 20 of their ticks, which is 4 to 40 s with ZooKeeper's default tick of 2 s.
    /// [`Client::session_timeout`] returns the granted timeout. If the granted timeout requires
    /// another [server timeout](Self::connect_timeout), the client connects a second time at once;
    /// if the servers have no connection left for this address (`maxClientCnxns`), the second
    /// attempt takes the rest of the connect timeout.
    ///
    /// With a longer timeout, other processes wait longer for the lock of a crashed holder; with a
    /// shorter one, locks are lost in shorter outages. With a granted timeout of T:
    ///
    /// - **A crashed holder blocks the others** until its session expires, for up to T plus a tick.
    ///   (A holder that closes its client or drops its guard does not.)
    /// - **No lock is lost in an outage** if a server commits a write again within T/2 of the
    ///   beginning of the outage, reconnecting included: the session lease lasts 2T/3 from its last
    ///   renewal (with the [default margin](LeaseMargin::Standard)), and this renewal may be T/6
    ///   old when the outage begins.
    ///
    /// | T | a crashed holder blocks others for up to | no lock is lost if a write commits again within | leader killed | leader hangs |
    /// |---|---|---|---|---|
    /// | 6 s | 8 s | 3 s | may be lost | lost |
    /// | 15 s | 17 s | 7.5 s | kept | lost |
    /// | 30 s | 32 s | 15 s | kept | kept |
    /// | 40 s | 42 s | 20 s | kept | kept |
    ///
    /// The last two columns are for servers with the default `tickTime` (2 s) and `syncLimit` (5).
    /// A killed leader is replaced within a few seconds. The servers notice a leader that hangs
    /// only after `syncLimit` ticks (10 s), and the election and a reconnect follow. A smaller
    /// `syncLimit` allows a smaller T.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let servers = server.connect_string();
    /// use std::time::Duration;
    /// use zookeeper_recipes::Client;
    ///
    /// let client = Client::builder().session_timeout(Duration::from_secs(15)).connect(&servers).await?;
    /// assert_eq!(client.session_timeout(), Some(Duration::from_secs(15)));
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "sessionTimeoutMs")]
    pub fn session_timeout(mut self, timeout: Duration) -> Self {
        self.setup.session_timeout = timeout;
        self
    }

    /// Sets how long one attempt to get a session may take.
    ///
    /// The default is 5 s (Curator's is 15 s). Within that time, the client tries the servers in
    /// turn, repeatedly. [`connect`](Self::connect) makes one such attempt.
    /// [`connect_lazy`](Self::connect_lazy) and the replacement of a lost session repeat the
    /// attempt under the [retry policy](Self::retry_policy). A
    /// [`try_lock`](crate::InterProcessMutex::try_lock) waits at most that long for an answer.
    ///
    /// Both while connecting and later, the client leaves a silent server for another one after the
    /// *server timeout*: a third of the connect timeout or an eighth of the granted session
    /// timeout, whichever is less, but at least half a second.
    /// [`session_timeout`](Self::session_timeout) says when connecting establishes a second
    /// session. If in a whole session timeout no write is answered within the server timeout, the
    /// next session has twice the server timeout, up to 2/5 of the session timeout. After a session
    /// that lasted ten session timeouts, the server timeout is the initial one again.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// use std::time::Duration;
    /// use zookeeper_recipes::{Client, ConnectError};
    ///
    /// // No process listens on port 1.
    /// let builder = Client::builder().connect_timeout(Duration::from_millis(100));
    /// let error = builder.connect("127.0.0.1:1").await.unwrap_err();
    /// assert!(matches!(error, ConnectError::TimedOut { .. }), "{error}");
    /// # }
    /// ```
    #[doc(alias = "connectionTimeoutMs")]
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.setup.connect_timeout = timeout;
        self
    }

    /// Sets how many times, and after which pauses, the client repeats a failed request, or a
    /// failed attempt to replace a lost session.
    ///
    /// The default is [`RetryPolicy::exponential(1 s, 3, 5 s)`](RetryPolicy::exponential).
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let servers = server.connect_string();
    /// use std::time::Duration;
    /// use zookeeper_recipes::{Client, RetryPolicy};
    ///
    /// // Waits for the servers, however long they are down.
    /// let policy = RetryPolicy::forever(Duration::from_secs(2));
    /// let client = Client::builder().retry_policy(policy).connect(&servers).await?;
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "retryPolicy")]
    pub fn retry_policy(mut self, policy: RetryPolicy) -> Self {
        self.setup.retry = policy;
        self
    }

    /// Sets a prefix for all paths, which is created if it is missing.
    ///
    /// The default is no prefix. If the connect string also ends with a path, that path comes
    /// before the namespace.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let servers = server.connect_string();
    /// use zookeeper_recipes::{Client, InterProcessMutex};
    ///
    /// let client = Client::builder().namespace("shop").connect(&servers).await?;
    /// let mutex = InterProcessMutex::new(&client, "/sku-42")?;
    /// let guard = mutex.lock().await?;
    ///
    /// assert_eq!(guard.path(), "/sku-42");
    /// assert!(server.exists("/shop/sku-42")); // on the servers
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "usingNamespace")]
    #[doc(alias = "chroot")]
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.setup.namespace = namespace.into();
        self
    }

    /// Sets the name of this client, which the nodes of its locks show to others together with the
    /// host and the process.
    ///
    /// The default is the file name of the program. [`queue`](crate::InterProcessMutex::queue),
    /// [`holders`](crate::InterProcessMutex::holders) and the message of a timeout show the name;
    /// see [`Identity`](crate::Identity). Clients may share a name. A name may have at most 100
    /// bytes, and no control characters; otherwise [`connect`](Self::connect) returns
    /// [`ConnectError::InvalidName`](crate::ConnectError::InvalidName). A lock with its own
    /// [`data`](crate::RecipeBuilder::data) does not show the name.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let servers = server.connect_string();
    /// use std::time::Duration;
    /// use zookeeper_recipes::{Client, InterProcessMutex};
    ///
    /// let stock = Client::builder().name("stock").connect(&servers).await?;
    /// let guard = InterProcessMutex::new(&stock, "/inventory/sku-42")?.lock().await?;
    ///
    /// let shop = Client::builder().name("shop").connect(&servers).await?;
    /// let mutex = InterProcessMutex::new(&shop, "/inventory/sku-42")?;
    /// assert_eq!(mutex.holders().await?[0].identity().name(), Some("stock"));
    /// # guard.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.setup.name = Some(name.into());
        self
    }

    /// Sets the ACL of every node that the client creates, unless a recipe has its own ACL.
    ///
    /// The default is [`Acl::open`].
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let servers = server.connect_string();
    /// use zookeeper_recipes::{Acl, Client, Permissions};
    ///
    /// // Clients with the same credentials may do anything, and all others may read.
    /// let acl = [Acl::creator_all(), Acl::new("world", "anyone", Permissions::READ)];
    /// let client = Client::builder().auth("digest", "shop:secret").acl(acl).connect(&servers).await?;
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "aclProvider")]
    pub fn acl(mut self, acl: impl Into<Vec<Acl>>) -> Self {
        self.setup.acl = acl.into();
        self
    }

    /// Adds credentials for one of ZooKeeper's schemes. Call this method again to add further
    /// credentials.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let servers = server.connect_string();
    /// use zookeeper_recipes::Client;
    ///
    /// let client = Client::builder().auth("digest", "shop:secret").connect(&servers).await?;
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "authorization")]
    #[doc(alias = "addauth")]
    pub fn auth(mut self, scheme: impl Into<String>, credentials: impl Into<Vec<u8>>) -> Self {
        self.setup.auth.push((scheme.into(), credentials.into()));
        self
    }

    /// Connects to the servers over TLS only (feature `tls`).
    ///
    /// The default is no TLS. All addresses in the connect string must name the `secureClientPort`
    /// of the server; the prefix `tcp+tls://` may be omitted, and `tcp://` is refused. Servers that
    /// use the client's certificate as its credentials (`X509AuthenticationProvider`) identify the
    /// client by the name in the certificate, and [`Acl::creator_all`] applies to that name.
    ///
    /// # Errors
    /// [`connect`](Self::connect) returns [`ConnectError::InvalidTls`] if the options cannot be
    /// used. If a handshake fails, [`ConnectError::TimedOut`] has the
    /// [reason](crate::ServerFailure) for each server: its certificate is from an unknown CA or for
    /// another host, or it requires a different client certificate.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// use zookeeper_recipes::{Client, ConnectError, TlsOptions};
    ///
    /// let tls = TlsOptions::new().ca_file("/no/such/ca.pem");
    /// let builder = Client::builder().tls(tls);
    /// let error = builder.clone().connect("zk1:2281,zk2:2281,zk3:2281").await.unwrap_err();
    /// assert!(matches!(error, ConnectError::InvalidTls { .. }), "{error}");
    /// assert!(error.to_string().contains("/no/such/ca.pem"));
    ///
    /// let error = builder.connect("zk1:2281,tcp://zk2:2181").await.unwrap_err();
    /// assert!(matches!(error, ConnectError::InvalidConnectString { .. }), "{error}");
    /// # }
    /// ```
    #[cfg(feature = "tls")]
    #[doc(alias = "ssl")]
    #[doc(alias = "secure")]
    pub fn tls(mut self, options: TlsOptions) -> Self {
        self.setup.tls = Some(options);
        self
    }

    /// Authenticates with SASL DIGEST-MD5 as `user`, with the password in the servers' JAAS
    /// configuration (feature `sasl-digest-md5`).
    ///
    /// The default is no SASL. DIGEST-MD5 sends no password, but it encrypts nothing, and MD5 is
    /// weak, so use it with TLS. Servers that are not configured for SASL accept the client as
    /// anonymous, and then refuse to create nodes with an ACL for that user ([`Acl::creator_all`]).
    ///
    /// # Errors
    /// [`connect`](Self::connect) returns [`ConnectError::AuthFailed`] at once if a server refuses
    /// the user or the password, and [`ConnectError::InvalidCredentials`] if these cannot be sent:
    /// the user contains a quotation mark, a backslash or a control character, or one of the two
    /// contains an accented letter of Latin-1. If a server refuses the credentials later, on
    /// another connection, the client is closed.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// use zookeeper_recipes::{Acl, Client, ConnectError};
    ///
    /// let password = std::env::var("ZOOKEEPER_PASSWORD").unwrap_or_default();
    /// let builder = Client::builder().sasl_digest("shop", password).acl([Acl::creator_all()]);
    /// println!("{builder:?}"); // without the password
    ///
    /// let builder = builder.sasl_digest("\"shop\"", "secret");
    /// let error = builder.connect("zk1:2181,zk2:2181,zk3:2181").await.unwrap_err();
    /// assert!(matches!(error, ConnectError::InvalidCredentials { .. }), "{error}");
    /// # }
    /// ```
    #[cfg(feature = "sasl-digest-md5")]
    #[doc(alias = "SASL")]
    #[doc(alias = "JAAS")]
    pub fn sasl_digest(mut self, user: impl Into<String>, password: impl Into<String>) -> Self {
        self.setup.sasl = Some((user.into(), password.into()));
        self
    }

    /// Sets how many bytes the paths of the session's ephemeral nodes may take, counting four more
    /// bytes for each path.
    ///
    /// The default is 1,500,000 bytes: 15,000 locks with paths of about 40 bytes, held or waited
    /// for. Beyond the limit an acquire ends with
    /// [`AcquireError::TooManyNodes`](crate::AcquireError::TooManyNodes).
    ///
    /// When a session ends, ZooKeeper writes the paths of all its nodes to its log as one
    /// transaction. A server refuses to start if its log has a transaction larger than twice its
    /// `jute.maxbuffer` ([ZOOKEEPER-4306](https://issues.apache.org/jira/browse/ZOOKEEPER-4306)):
    /// 2,097,150 bytes by default. Raise the limit only if all servers run with a larger
    /// `-Djute.maxbuffer`, to at most one and a half times that, which leaves room for nodes that
    /// other code creates in the session ([`Client::request`]). The limit counts only the nodes of
    /// this library.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let servers = server.connect_string();
    /// use zookeeper_recipes::Client;
    ///
    /// // The servers run with -Djute.maxbuffer=4194304.
    /// let client = Client::builder().max_ephemeral_bytes(6_000_000).connect(&servers).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn max_ephemeral_bytes(mut self, bytes: usize) -> Self {
        self.setup.session.max_node_bytes = bytes;
        self
    }

    /// Sets the safety margin: the time by which the session lease is shorter than the session
    /// timeout.
    ///
    /// The default is [`LeaseMargin::Standard`], a third of the session timeout.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let servers = server.connect_string();
    /// use zookeeper_recipes::{Client, LeaseMargin};
    ///
    /// let client = Client::builder().margin(LeaseMargin::Strict).connect(&servers).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn margin(mut self, margin: LeaseMargin) -> Self {
        self.setup.session.margin = margin;
        self
    }

    /// Sets the prefixes of paths by which metrics distinguish locks (feature `metrics`).
    ///
    /// The label `prefix` of a lock is the longest of these prefixes that is the lock's path or a
    /// directory above it; otherwise it is `other`, as for all locks by default. So the label has
    /// at most one value more than there are prefixes. A lock's path is the one passed to the
    /// recipe, without the namespace; a `/` at the beginning of a prefix may be omitted. See
    /// [`observability`](crate::observability).
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let servers = server.connect_string();
    /// use zookeeper_recipes::Client;
    ///
    /// // `/inventory/sku-42` is counted as `/inventory`, and `/jobs/nightly` as `other`.
    /// let client = Client::builder().metrics_prefixes(["/inventory", "/orders"]).connect(&servers).await?;
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(feature = "metrics")]
    pub fn metrics_prefixes(
        mut self,
        prefixes: impl IntoIterator<Item = impl Into<String>>,
    ) -> Self {
        self.setup.metrics_prefixes = prefixes.into_iter().map(Into::into).collect();
        self
    }

    /// Sets a connector of `zookeeper-client`, for options that this builder does not have:
    /// Kerberos (SASL GSSAPI, feature `sasl-gssapi`), or certificates that are replaced while the
    /// client is connected.
    ///
    /// This builder's session timeout and credentials are added to the connector, and its `tls` and
    /// `sasl_digest` replace the connector's. If the connector has TLS options, the client uses TLS
    /// for addresses of the form `tcp+tls://host:port` in the connect string, and does not explain
    /// a failed handshake.
    ///
    /// The connector must create sessions that this client may own. Do not use `with_session` (the
    /// client would request an expired session repeatedly), `with_detached` (closing would not
    /// delete the nodes) or `with_readonly`.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let servers = server.connect_string();
    /// use zookeeper_recipes::Client;
    ///
    /// let connector = zookeeper_client::Client::connector(); // .with_sasl(..)
    /// let client = Client::builder().connector(connector).connect(&servers).await?;
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "SASL")]
    #[doc(alias = "Kerberos")]
    pub fn connector(mut self, connector: zk::Connector) -> Self {
        self.setup.connector = Some(connector);
        self
    }

    /// Connects to `host:port[,host:port…][/namespace]`.
    ///
    /// The call makes one attempt, within the connect timeout. A service that may start before its
    /// servers should use [`connect_lazy`](Self::connect_lazy).
    ///
    /// # Errors
    /// See [`ConnectError`]. The call returns [`ConnectError::TimedOut`] after
    /// [`connect_timeout`](Self::connect_timeout).
    ///
    /// # Cancel safety
    /// If the future is dropped, a session without nodes may be left on the servers until it
    /// expires.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let servers = server.connect_string();
    /// use zookeeper_recipes::{Client, InterProcessMutex};
    ///
    /// // A path at the end of the connect string is a namespace.
    /// let client = Client::builder().connect(&format!("{servers}/eu/shop")).await?;
    /// let guard = InterProcessMutex::new(&client, "/sku-42")?.lock().await?;
    /// assert!(server.exists("/eu/shop/sku-42"));
    /// # Ok(())
    /// # }
    /// ```
    pub async fn connect(self, servers: &str) -> Result<Client, ConnectError> {
        setup::connect(self.setup, servers).await.map(Client::new)
    }

    /// Returns a client for `host:port[,host:port…][/namespace]`, which connects in the background.
    ///
    /// Use this for a service that may start before ZooKeeper does. The client tries to establish
    /// its first session in rounds, each under the [retry policy](Self::retry_policy), with a pause
    /// of a second between the rounds. Until it succeeds, its [state](Client::state) is
    /// [`ConnectionState::Connecting`]. Calls wait for the first session as for any later one: no
    /// longer than their timeout, and no longer than one round. After that they return
    /// [`ErrorKind::Connection`](crate::ErrorKind::Connection), whose message has the failure of
    /// each server.
    ///
    /// # Errors
    /// Returns a [`ConnectError`] if the connect string, the namespace or the ACL cannot be used,
    /// and [`ConnectError::Setup`] if the client's thread cannot be started; never
    /// [`ConnectError::TimedOut`]. If the servers refuse the credentials, now or later, the client
    /// is closed.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let servers = server.connect_string();
    /// # server.stop();
    /// use std::time::Duration;
    /// use zookeeper_recipes::{Client, ConnectionState, ErrorKind, InterProcessMutex};
    ///
    /// // The servers are not up yet.
    /// let client = Client::builder().connect_lazy(&servers)?;
    /// let mutex = InterProcessMutex::new(&client, "/inventory/sku-42")?;
    /// let error = mutex.acquire(Duration::from_millis(50)).await.unwrap_err();
    /// assert_eq!(error.kind(), Some(ErrorKind::Connection), "{error}");
    /// assert_eq!(client.state(), ConnectionState::Connecting);
    ///
    /// # server.restart()?;
    /// // Now the servers are up. To wait for the connection, for at most a minute:
    /// let mut states = client.watch_state();
    /// let connected = states.wait_for(|state| *state == ConnectionState::Connected);
    /// tokio::time::timeout(Duration::from_secs(60), connected).await?.ok_or("closed")?;
    /// mutex.lock().await?.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn connect_lazy(self, servers: &str) -> Result<Client, ConnectError> {
        setup::connect_lazy(self.setup, servers).map(Client::new)
    }

    /// Connects like [`connect`](Self::connect), and blocks the thread meanwhile.
    ///
    /// # Errors
    /// See [`connect`](Self::connect).
    pub fn blocking_connect(self, servers: &str) -> Result<Client, ConnectError> {
        block_on(self.connect(servers))
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
            .field("name", &self.setup.name)
            .field("acl", &self.setup.acl)
            .field("margin", &self.setup.session.margin)
            .field("max_ephemeral_bytes", &self.setup.session.max_node_bytes)
            .finish_non_exhaustive()
    }
}
