//! The server's main task and its handle.

use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::{Arc, Mutex, mpsc as std_mpsc};
use std::task::Poll;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::runtime::{self, Handle};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::{Interval, MissedTickBehavior};

use crate::connection::{self, Conn, End};
use crate::counters::{Counters, LogEntry};
use crate::error::ServerError;
use crate::fault::{Action, Fault, Gate, Loss, Match};
use crate::history::HistoryEntry;
use crate::listener::{Listener, Tcp};
use crate::members::Member;
use crate::signal::{Signal, lock};
use crate::state::{Config, Isolation, State, Version};
use crate::txn::{Effect, Who};
use crate::view::{NodeInfo, SessionInfo, View};
use crate::wire::request::{Create, Write};
use crate::wire::{AskedAcl, opcode};

/// A direction in which bytes flow, for [`Server::stall`].
///
/// ```
/// use zookeeper_client::Client;
/// use zookeeper_test_server::{Direction, Server};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let server = Server::start()?;
/// let client = Client::connect(&server.connect_string()).await?;
/// let session = client.session_id().0;
///
/// // Nothing that the client sends reaches the server: the session expires, unless it is resumed
/// // in time.
/// server.stall(session, Direction::ToServer);
/// server.resume(session);
/// client.sync("/").await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// The direction from the client to the server.
    ToServer,
    /// The direction from the server to the client.
    ToClient,
    /// Both directions.
    Both,
}

/// The way in which [`Server::cut`] closes a connection.
///
/// ```
/// use zookeeper_client::Client;
/// use zookeeper_test_server::{Cut, Server};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let server = Server::start()?;
/// let client = Client::connect(&server.connect_string()).await?;
///
/// // The session outlives its connection: the client reconnects.
/// assert!(server.cut(client.session_id().0, Cut::Reset));
/// while client.sync("/").await.is_err() {}
/// assert_eq!(server.sessions().len(), 1);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cut {
    /// An orderly close.
    Fin,
    /// A reset.
    Reset,
}

/// The kind of node that [`Server::create_as`] creates.
///
/// ```
/// use zookeeper_test_server::{CreateMode, Server};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let server = Server::start()?;
/// // To the client under test this is another client's contender. Only ephemeral nodes have an
/// // owner.
/// let path = server.create_as("/locks/a/x-lock-", "", CreateMode::PersistentSequential, 0)?;
/// assert_eq!(path, "/locks/a/x-lock-0000000000");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CreateMode {
    /// A node that stays until it is deleted.
    Persistent,
    /// A persistent node whose name ends in a sequence number.
    PersistentSequential,
    /// A node that is deleted with its session.
    Ephemeral,
    /// An ephemeral node whose name ends in a sequence number.
    EphemeralSequential,
    /// A node that is deleted some time after its last child.
    Container,
}

#[derive(Clone, Copy, Debug, Default)]
struct Stalls {
    to_server: bool,
    to_client: bool,
}

/// The state that the handle, the thread and the connections share.
#[derive(Debug)]
pub(crate) struct Shared {
    state: Mutex<State>,
    changed: Signal,
    stalls: Mutex<HashMap<i64, Stalls>>,
    stalls_changed: Signal,
    any_stall: AtomicBool,
    max_frame: usize,
    /// Whether the server behaves like ZooKeeper 3.9.
    pub(crate) since_3_9: bool,
    /// The bytes that may wait to be processed on all connections.
    pub(crate) inbound: Arc<Semaphore>,
    /// See [`Builder::races`].
    pub(crate) races: bool,
    pub(crate) port: AtomicU16,
}

impl Shared {
    /// Waits until a condition on the state holds.
    pub(crate) async fn until_changed(&self, is: impl Fn(&State) -> bool + Send + Sync) {
        self.changed.until(|| self.with(|state| is(state))).await;
    }

    /// Runs a closure on the state.
    pub(crate) fn with<T>(&self, look: impl FnOnce(&mut State) -> T) -> T {
        look(&mut lock(&self.state))
    }

    /// Runs a closure that may change the state, and makes all waiters check the state again.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let result = change(&mut lock(&self.state));
        self.changed.raise();
        result
    }

    pub(crate) fn max_frame(&self) -> usize {
        self.max_frame
    }

    fn flows(&self, conn: &Conn, direction: Direction) -> bool {
        if !self.any_stall.load(Ordering::Acquire) {
            return true;
        }
        let stalls = lock(&self.stalls)
            .get(&conn.session())
            .copied()
            .unwrap_or_default();
        match direction {
            Direction::ToServer => !stalls.to_server,
            Direction::ToClient => !stalls.to_client,
            Direction::Both => !stalls.to_server && !stalls.to_client,
        }
    }

    /// Waits until bytes of this connection may flow in a direction.
    pub(crate) async fn until_flows(&self, conn: &Conn, direction: Direction) {
        self.stalls_changed
            .until(|| self.flows(conn, direction))
            .await;
    }
}

/// A command from the handle to the server, with the callback for its completion.
enum Control {
    Stop(Box<dyn FnOnce(()) + Send>),
    Listen(Box<dyn FnOnce(io::Result<()>) + Send>),
    Quit,
}

/// Returns a channel on which a thread can wait without a runtime.
fn blocking<T: Send + 'static>() -> (Box<dyn FnOnce(T) + Send>, std_mpsc::Receiver<T>) {
    let (done, waits) = std_mpsc::channel();
    // A dropped receiver is not an error, because its owner has stopped waiting.
    (Box::new(move |outcome| drop(done.send(outcome))), waits)
}

/// Returns a channel that tasks wait for.
fn waking<T: Send + 'static>() -> (Box<dyn FnOnce(T) + Send>, oneshot::Receiver<T>) {
    let (done, waits) = oneshot::channel();
    (Box::new(move |outcome| drop(done.send(outcome))), waits)
}

/// Configures and starts a [`Server`].
///
/// The defaults are ZooKeeper's. Durations below a millisecond count as one millisecond, and
/// durations above a year as one year.
///
/// ```
/// use std::time::Duration;
/// use zookeeper_client::Client;
/// use zookeeper_test_server::{Server, Version};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// // Sessions expire on multiples of the tick, so a test that waits for an expiry needs a short
/// // tick.
/// let server = Server::builder()
///     .tick(Duration::from_millis(50))
///     .min_session_timeout(Duration::from_millis(100))
///     .max_session_timeout(Duration::from_secs(1))
///     .container_check_interval(Duration::from_secs(1))
///     .zookeeper_version(Version::V3_9)
///     .max_frame(64 * 1024)
///     .clock_rate(1.1)
///     .touch_interval(Duration::from_millis(25))
///     .port(0)
///     .start()?;
///
/// let client = Client::connector()
///     .with_session_timeout(Duration::from_secs(60))
///     .connect(&server.connect_string())
///     .await?;
/// assert_eq!(client.session_timeout(), Duration::from_secs(1));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct Builder {
    tick: Duration,
    min_session_timeout: Option<Duration>,
    max_session_timeout: Option<Duration>,
    container_check_interval: Duration,
    version: Version,
    max_frame: usize,
    port: u16,
    bind: IpAddr,
    clock_rate: f64,
    touch_interval: Duration,
    members: usize,
    super_digest: Option<String>,
    max_queued: usize,
    races: bool,
    local_sessions: bool,
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            tick: Duration::from_secs(2),
            min_session_timeout: None,
            max_session_timeout: None,
            container_check_interval: Duration::from_secs(60),
            version: Version::default(),
            max_frame: 0xf_ffff,
            port: 0,
            bind: IpAddr::V4(Ipv4Addr::LOCALHOST),
            clock_rate: 1.0,
            touch_interval: Duration::ZERO,
            members: 1,
            super_digest: None,
            max_queued: 128 << 20,
            races: false,
            local_sessions: false,
        }
    }
}

impl Builder {
    /// Sets ZooKeeper's `tickTime`, 2 s by default. Sessions expire on multiples of it.
    pub fn tick(mut self, tick: Duration) -> Self {
        self.tick = tick.max(Duration::from_millis(1));
        self
    }

    /// Sets the shortest session timeout that a client is granted; two ticks by default.
    pub fn min_session_timeout(mut self, timeout: Duration) -> Self {
        self.min_session_timeout = Some(timeout);
        self
    }

    /// Sets the longest session timeout that a client is granted; twenty ticks by default.
    pub fn max_session_timeout(mut self, timeout: Duration) -> Self {
        self.max_session_timeout = Some(timeout);
        self
    }

    /// Sets how often the server looks for empty containers; 60 s by default. See
    /// [`Server::sweep_containers`].
    pub fn container_check_interval(mut self, interval: Duration) -> Self {
        self.container_check_interval = interval.max(Duration::from_millis(1));
        self
    }

    /// Sets the version of ZooKeeper to behave like; 3.8 by default.
    pub fn zookeeper_version(mut self, version: Version) -> Self {
        self.version = version;
        self
    }

    /// Sets ZooKeeper's `jute.maxbuffer`, the maximum length of a request in bytes; 1 MiB - 1 by
    /// default. The server closes the connection of a longer request.
    pub fn max_frame(mut self, bytes: usize) -> Self {
        self.max_frame = bytes;
        self
    }

    /// Sets how many bytes may be queued for all clients together; 128 MiB by default.
    ///
    /// If more bytes than that are queued to be sent, the connection with the most queued bytes is
    /// reset, and the log [says so](crate::Reason::Slow). Data that is still in the tree does not
    /// count. If that many bytes are queued to be processed, each connection may have only one
    /// further request waiting. The size of the nodes is not limited.
    pub fn max_queued(mut self, bytes: usize) -> Self {
        self.max_queued = bytes;
        self
    }

    /// Sets the port; 0, the default, is a free one.
    pub fn port(mut self, port: u16) -> Self {
        self.port = port;
        self
    }

    /// Sets the address to listen on; 127.0.0.1 by default, which only this machine reaches.
    pub fn bind(mut self, addr: IpAddr) -> Self {
        self.bind = addr;
        self
    }

    /// Makes the server's clock, by which sessions and TTLs expire, run faster (above 1) or slower
    /// than the clients'; 1 by default, and from 0.01 to 100.
    pub fn clock_rate(mut self, rate: f64) -> Self {
        self.clock_rate = if rate.is_finite() {
            rate.clamp(0.01, 100.0)
        } else {
            1.0
        };
        self
    }

    /// Sets how often the members report live sessions to the leader; at once by default.
    /// ZooKeeper's members report every half tick. If such a report fails after a write, the
    /// session expires earlier than one session timeout after the write.
    pub fn touch_interval(mut self, interval: Duration) -> Self {
        self.touch_interval = interval;
        self
    }

    /// Sets the number of members of the ensemble that [`start`](Self::start) starts; 1 by default.
    /// The members are servers over one tree, on separate ports, behind one [`Server`].
    /// [`Server::set_member`] makes them lag, or cuts them off.
    pub fn members(mut self, members: usize) -> Self {
        self.members = members.max(1);
        self
    }

    /// Sets ZooKeeper's `DigestAuthenticationProvider.superDigest`, `super:` and the hash of
    /// `super:` and the password: a client with this password may do everything. There is none by
    /// default.
    ///
    /// ```
    /// use zookeeper_client::Client;
    /// use zookeeper_test_server::Server;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let server = Server::builder().super_digest("super:xQJmxLMiHGwaqBvst5y6rkB6HQs=").start()?;
    /// let auth = Client::connector().with_auth("digest", b"super:admin");
    /// let client = auth.connect(&server.connect_string()).await?;
    /// assert!(client.list_auth_users().await?.iter().any(|user| user.scheme() == "super"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn super_digest(mut self, digest: impl Into<String>) -> Self {
        self.super_digest = Some(digest.into());
        self
    }

    /// Makes a client that does not wait for replies lose every race in ZooKeeper's pipeline; off
    /// by default, which means that the client wins all races. A correct client waits for replies,
    /// or handles both outcomes:
    ///
    /// - The reply to an `auth` comes before those to earlier requests, and the identity counts for
    ///   requests that were sent before it.
    /// - A write that follows a `setACL` is checked against the old ACL.
    /// - Requests that follow a `closeSession` are answered with the error `SessionExpired`.
    pub fn races(mut self, lost: bool) -> Self {
        self.races = lost;
        self
    }

    /// Sets ZooKeeper's `localSessionsEnabled`, off by default: with it, a member that is
    /// [read-only](Member::ReadOnly) opens new sessions that only this member knows.
    ///
    /// The setting's other effect is not implemented: sessions that no other member knows until
    /// they have an ephemeral node.
    ///
    /// ```
    /// use zookeeper_client::Client;
    /// use zookeeper_test_server::{Member, Server};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let server = Server::builder().local_sessions(true).start()?;
    /// server.set_member(0, Member::ReadOnly);
    /// let servers = server.connect_string();
    /// let client = Client::connector().with_readonly(true).connect(&servers).await?;
    /// assert!(client.check_stat("/").await?.is_some());
    /// # Ok(())
    /// # }
    /// ```
    pub fn local_sessions(mut self, enabled: bool) -> Self {
        self.local_sessions = enabled;
        self
    }

    /// Starts the server on a separate thread. The server accepts connections when the call
    /// returns.
    ///
    /// # Errors
    /// Returns an error if the port cannot be bound, or the thread cannot be started.
    pub fn start(self) -> io::Result<Server> {
        #[cfg(simulation)]
        if let Some(server) = crate::simulated::start(&self) {
            return server;
        }
        let runtime = runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let (mut server, main) = {
            let _entered = runtime.enter();
            let mut listeners = vec![Tcp::bind((self.bind, self.port).into())?];
            for _ in 1..self.members {
                listeners.push(Tcp::bind((self.bind, 0).into())?);
            }
            self.parts(listeners, runtime.handle().clone())?
        };
        let thread = std::thread::Builder::new()
            .name(NAME.to_owned())
            .spawn(move || runtime.block_on(main.run()))?;
        server.thread = Some(thread);
        Ok(server)
    }

    /// Starts the server on the current runtime, with connections of any kind. [`port`](Self::port)
    /// has no effect.
    ///
    /// The server makes progress only while the runtime does: a task that blocks the runtime's
    /// thread stops the server too. Use [`Server::stop_async`] and [`Server::restart_async`],
    /// because the blocking methods would wait for themselves. After the drop of the [`Server`],
    /// the server ends as soon as the runtime runs its tasks.
    ///
    /// # Errors
    /// Returns an error if the listener has no address, or there is no runtime. See [`Listener`]
    /// for an example.
    pub fn serve(self, listener: impl Listener) -> io::Result<Server> {
        self.serve_members(vec![listener])
    }

    /// Starts an ensemble, with a member for each listener, in the way in which
    /// [`serve`](Self::serve) starts a server. [`members`](Self::members) has no effect.
    ///
    /// # Errors
    /// Returns an error if there is no listener, one of them has no address, or there is no
    /// runtime.
    pub fn serve_members<L: Listener>(self, listeners: Vec<L>) -> io::Result<Server> {
        let runtime = Handle::try_current().map_err(io::Error::other)?;
        let (server, main) = self.parts(listeners, runtime.clone())?;
        runtime.spawn(main.run());
        Ok(server)
    }

    fn parts<L: Listener>(
        mut self,
        listeners: Vec<L>,
        handle: Handle,
    ) -> io::Result<(Server, Main<L>)> {
        // The limit is long enough for any test, and no arithmetic on it overflows.
        const LONG: Duration = Duration::from_secs(60 * 60 * 24 * 365);
        self.tick = self.tick.min(LONG);
        self.container_check_interval = self.container_check_interval.min(LONG);
        self.min_session_timeout = self.min_session_timeout.map(|timeout| timeout.min(LONG));
        self.max_session_timeout = self.max_session_timeout.map(|timeout| timeout.min(LONG));
        let min_timeout = self.min_session_timeout.unwrap_or(self.tick * 2);
        let max_timeout = self
            .max_session_timeout
            .unwrap_or(self.tick * 20)
            .max(min_timeout);
        let config = Config {
            tick: self.tick,
            min_timeout,
            max_timeout,
            version: self.version,
            max_frame: self.max_frame,
            clock_rate: self.clock_rate,
            touch_interval: self.touch_interval,
            members: listeners.len(),
            super_digest: self.super_digest,
            max_queued: self.max_queued,
            races: self.races,
            local_sessions: self.local_sessions,
        };
        let addrs = listeners
            .iter()
            .map(Listener::addr)
            .collect::<io::Result<Vec<SocketAddr>>>()?;
        let addr = *addrs.first().ok_or(io::ErrorKind::InvalidInput)?;
        let shared = Arc::new(Shared {
            max_frame: config.max_frame,
            races: config.races,
            since_3_9: config.version == Version::V3_9,
            inbound: Arc::new(Semaphore::new(
                config.max_queued.min(Semaphore::MAX_PERMITS),
            )),
            state: Mutex::new(State::new(config)),
            changed: Signal::new(),
            stalls: Mutex::default(),
            stalls_changed: Signal::new(),
            any_stall: AtomicBool::new(false),
            port: AtomicU16::new(addr.port()),
        });
        let (control, commands) = mpsc::unbounded_channel();
        let main = Main {
            shared: Arc::clone(&shared),
            commands,
            listeners,
            listens: true,
            connections: JoinSet::new(),
            tick: self.tick,
            sweep: self.container_check_interval,
        };
        Ok((
            Server {
                shared,
                addrs,
                control,
                handle,
                thread: None,
            },
            main,
        ))
    }
}

/// The thread's name. Linux shows at most fifteen characters.
const NAME: &str = "zk-test-server";

struct Main<L> {
    shared: Arc<Shared>,
    commands: mpsc::UnboundedReceiver<Control>,
    listeners: Vec<L>,
    /// Whether the server listens, that is, is not stopped.
    listens: bool,
    connections: JoinSet<()>,
    tick: Duration,
    sweep: Duration,
}

impl<L: Listener> Main<L> {
    async fn run(mut self) {
        let (mut tick, mut sweep) = (every(self.tick), every(self.sweep));
        loop {
            tokio::select! {
                command = self.commands.recv() => match command {
                    None | Some(Control::Quit) => return,
                    Some(Control::Stop(done)) => {
                        self.listeners.iter_mut().for_each(Listener::stop);
                        self.listens = false;
                        self.connections.shutdown().await;
                        self.shared.change(State::disconnect_all);
                        done(());
                    }
                    Some(Control::Listen(done)) => {
                        // After the restart by another call, the server already listens.
                        let mut stopped = self.listeners.iter_mut().filter(|_| !self.listens);
                        let outcome = stopped.try_for_each(Listener::restart);
                        self.listens = outcome.is_ok();
                        self.shared.change(|state| {
                            let now = state.now();
                            state.sessions.renew_all(now);
                        });
                        done(outcome);
                    }
                },
                (member, accepted) = accept(&mut self.listeners), if self.listens => {
                    self.accepted(member, accepted).await;
                }
                _ = tick.tick(), if self.listens => {
                    if self.shared.with(State::tick) {
                        self.shared.changed.raise();
                    }
                }
                _ = sweep.tick(), if self.listens => {
                    self.shared.change(State::sweep);
                }
                Some(_) = self.connections.join_next() => {}
            }
        }
    }

    async fn accepted(&mut self, member: usize, accepted: io::Result<(L::Stream, SocketAddr)>) {
        match accepted {
            Ok((stream, peer)) => {
                let conn = self.shared.change(|state| {
                    let refuses = state.refusing || state.member(member) == Member::Down;
                    (!refuses).then(|| state.register(peer, member))
                });
                if let Some(conn) = conn {
                    let shared = Arc::clone(&self.shared);
                    self.connections
                        .spawn(connection::serve::<L>(stream, conn, shared));
                }
            }
            // The process has no free file descriptor, or the client has already gone, so the
            // server tries again a little later.
            Err(error) => {
                tracing::warn!(%error, "accept failed");
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
    }
}

/// Waits for the next connection to any member.
async fn accept<L: Listener>(listeners: &mut [L]) -> (usize, io::Result<(L::Stream, SocketAddr)>) {
    let mut accepts: Vec<_> = listeners
        .iter_mut()
        .map(|listener| Box::pin(listener.accept()))
        .collect();
    std::future::poll_fn(|context| {
        for (member, accept) in accepts.iter_mut().enumerate() {
            if let Poll::Ready(accepted) = accept.as_mut().poll(context) {
                return Poll::Ready((member, accepted));
            }
        }
        Poll::Pending
    })
    .await
}

fn every(period: Duration) -> Interval {
    let mut interval = tokio::time::interval_at(tokio::time::Instant::now() + period, period);
    interval.set_missed_tick_behavior(MissedTickBehavior::Skip);
    interval
}

/// A ZooKeeper server in this process, on a separate thread. Dropping the value shuts the server
/// down.
///
/// The methods inspect the server ([`exists`](Self::exists), [`sessions`](Self::sessions),
/// [`counters`](Self::counters)), change it as another client would ([`create`](Self::create),
/// [`delete`](Self::delete)), inject faults ([`hold_reply`](Self::hold_reply),
/// [`drop_reply`](Self::drop_reply), [`expire_session`](Self::expire_session)), and wait for
/// conditions ([`wait_until`](Self::wait_until)). They work on any runtime, and without a runtime.
///
/// ```
/// use std::time::Duration;
/// use zookeeper_client::{Acls, Client, CreateMode};
/// use zookeeper_test_server::{Op, Server};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let server = Server::start()?;
/// let client = Client::connect(&server.connect_string()).await?;
/// let ephemeral = CreateMode::Ephemeral.with_acls(Acls::anyone_all());
/// client.create("/here", b"data", &ephemeral).await?;
/// assert_eq!(server.counters().requests(Op::Create), 1);
///
/// server.expire_session(client.session_id().0);
/// assert!(server.wait_until(|view| !view.exists("/here"), Duration::from_secs(5)).await);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Server {
    shared: Arc<Shared>,
    /// The addresses, one for each member.
    addrs: Vec<SocketAddr>,
    control: mpsc::UnboundedSender<Control>,
    handle: Handle,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.control.send(Control::Quit);
        if let Some(thread) = self.thread.take() {
            // The thread only has to drop its sockets.
            let _ = thread.join();
        }
    }
}

impl Server {
    /// Starts a server with the defaults of [`Builder`] on a free port of 127.0.0.1.
    ///
    /// # Errors
    /// See [`Builder::start`].
    ///
    /// # Examples
    /// ```
    /// # fn main() -> std::io::Result<()> {
    /// let server = zookeeper_test_server::Server::start()?;
    /// assert_eq!(server.connect_string(), format!("127.0.0.1:{}", server.port()));
    /// # Ok(())
    /// # }
    /// ```
    pub fn start() -> io::Result<Self> {
        Builder::default().start()
    }

    /// Returns a builder, for a server with other settings.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Returns the connect string for clients: `127.0.0.1:port`, or the address to which the server
    /// is [bound](Builder::bind). For an ensemble, the connect string has the address of each
    /// member, separated by commas.
    #[must_use]
    pub fn connect_string(&self) -> String {
        self.addrs
            .iter()
            .map(SocketAddr::to_string)
            .collect::<Vec<_>>()
            .join(",")
    }

    /// Returns the address on which the server listens; for an ensemble, the address of the first
    /// member.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        // `parts` refuses an empty list of addresses.
        self.addrs
            .first()
            .copied()
            .unwrap_or_else(|| SocketAddr::from(([127, 0, 0, 1], 0)))
    }

    /// Returns the port on which the server listens.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.addr().port()
    }

    /// Stops listening, and closes every connection.
    ///
    /// The tree and the sessions stay, and no session expires until [`restart`](Self::restart).
    /// Requests that a gate holds are lost.
    ///
    /// # Examples
    /// ```
    /// use zookeeper_client::Client;
    /// use zookeeper_test_server::Server;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let server = Server::start()?;
    /// let client = Client::connect(&server.connect_string()).await?;
    /// server.stop();
    /// assert!(std::net::TcpStream::connect(server.addr()).is_err());
    ///
    /// server.restart()?;
    /// while client.sync("/").await.is_err() {}
    /// assert_eq!(server.sessions().len(), 1, "the client's session, on a new connection");
    /// # Ok(())
    /// # }
    /// ```
    pub fn stop(&self) {
        let (done, stopped) = blocking();
        if self.control.send(Control::Stop(done)).is_ok() {
            let _ = stopped.recv();
        }
    }

    /// Stops as [`stop`](Self::stop) does, without blocking the thread: for a server that
    /// [serves](Builder::serve) on the current runtime.
    ///
    /// # Cancel safety
    /// If the future was polled, the server stops even if the future is dropped.
    pub async fn stop_async(&self) {
        let (done, stopped) = waking();
        if self.control.send(Control::Stop(done)).is_ok() {
            let _ = stopped.await;
        }
    }

    /// Listens on the same port again; stops the server first if it is running. Every session gets
    /// a fresh timeout.
    ///
    /// # Errors
    /// Returns an error if the server cannot listen on the port. A stopped server keeps its port
    /// reserved.
    pub fn restart(&self) -> io::Result<()> {
        self.stop();
        let (done, listening) = blocking();
        self.control
            .send(Control::Listen(done))
            .map_err(|_| ended())?;
        listening.recv().unwrap_or_else(|_| Err(ended()))
    }

    /// Listens again as [`restart`](Self::restart) does, without blocking the thread: for a server
    /// that [serves](Builder::serve) on the current runtime.
    ///
    /// # Errors
    /// Returns an error if the listener cannot be restarted.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the server stopped, or listening.
    pub async fn restart_async(&self) -> io::Result<()> {
        self.stop_async().await;
        let (done, listening) = waking();
        self.control
            .send(Control::Listen(done))
            .map_err(|_| ended())?;
        listening.await.unwrap_or_else(|_| Err(ended()))
    }

    /// Returns the sessions, in the order of their ids.
    ///
    /// # Examples
    /// ```
    /// use zookeeper_client::Client;
    /// use zookeeper_test_server::Server;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let server = Server::start()?;
    /// let client = Client::connect(&server.connect_string()).await?;
    /// let sessions = server.sessions();
    /// assert_eq!(sessions[0].id, client.session_id().0);
    /// assert!(sessions[0].connected && sessions[0].ephemerals.is_empty());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn sessions(&self) -> Vec<SessionInfo> {
        self.look(|view| view.sessions())
    }

    /// Expires a session now; returns `false` if there is no such session.
    ///
    /// Its ephemeral nodes are deleted, watches fire, and its connection is closed. The client
    /// learns of the expiry when it reconnects. A connection that is [stalled](Self::stall) towards
    /// the client is closed only when it is resumed.
    ///
    /// # Examples
    /// ```
    /// use zookeeper_client::{Client, SessionState};
    /// use zookeeper_test_server::Server;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let server = Server::start()?;
    /// let client = Client::connect(&server.connect_string()).await?;
    /// let mut states = client.state_watcher();
    /// assert!(server.expire_session(client.session_id().0));
    /// while states.changed().await != SessionState::Expired {}
    /// # Ok(())
    /// # }
    /// ```
    pub fn expire_session(&self, id: i64) -> bool {
        self.shared.change(|state| state.expire(id))
    }

    /// Closes a session's connection; returns `false` if it has none. The session stays, and the
    /// client may reconnect.
    pub fn cut(&self, id: i64, how: Cut) -> bool {
        let end = match how {
            Cut::Fin => End::Fin,
            Cut::Reset => End::Reset,
        };
        self.shared.change(|state| {
            let Some(conn) = state.connection_of(id).cloned() else {
                return false;
            };
            state.disconnect(&conn);
            conn.kill(end);
            true
        })
    }

    /// Stops the flow of a session's bytes until [`resume`](Self::resume), on its present
    /// connection and on later ones; returns `false` if there is no such session.
    ///
    /// Bytes to the server wait unread: the session expires in time, but still receives events.
    /// Bytes to the client wait to be sent, and so does the end of the connection: if the session
    /// expires, the client does not notice before [`resume`](Self::resume). Waiting bytes are
    /// dropped if the client closes the connection.
    pub fn stall(&self, id: i64, direction: Direction) -> bool {
        if self.shared.with(|state| state.sessions.get(id).is_none()) {
            return false;
        }
        let mut stalls = lock(&self.shared.stalls);
        let stall = stalls.entry(id).or_default();
        stall.to_server |= direction != Direction::ToClient;
        stall.to_client |= direction != Direction::ToServer;
        self.shared.any_stall.store(true, Ordering::Release);
        drop(stalls);
        self.shared.stalls_changed.raise();
        true
    }

    /// Lets a session's bytes flow again in both directions.
    pub fn resume(&self, id: i64) {
        let mut stalls = lock(&self.shared.stalls);
        stalls.remove(&id);
        self.shared
            .any_stall
            .store(!stalls.is_empty(), Ordering::Release);
        drop(stalls);
        self.shared.stalls_changed.raise();
    }

    /// Cuts the member that serves a session off from the rest of the ensemble, as far as that
    /// session can tell; returns `false` if there is no such session. See [`Isolation`] for an
    /// example.
    ///
    /// A client that reconnects reaches a member that is not cut off, and its session moves to that
    /// member unless the session has expired. [`refuse_connections`](Self::refuse_connections)
    /// prevents this.
    pub fn isolate(&self, id: i64, isolation: Isolation) -> bool {
        self.shared.change(|state| state.isolate(id, isolation))
    }

    /// Ends the isolation of the member that serves a session. This closes the session's
    /// connection, as ZooKeeper's members do when they rejoin.
    pub fn heal(&self, id: i64) {
        self.shared.change(|state| state.heal(id));
    }

    /// Changes the condition of a member of an ensemble, counted from 0; returns `false` if there
    /// is no such member. See [`Member`] for an example.
    pub fn set_member(&self, index: usize, member: Member) -> bool {
        self.shared.change(|state| state.set_member(index, member))
    }

    /// Sets whether new connections are refused: accepted, and closed at once.
    ///
    /// # Examples
    /// ```
    /// use std::io::Read;
    /// use std::net::TcpStream;
    /// use zookeeper_test_server::Server;
    ///
    /// # fn main() -> std::io::Result<()> {
    /// let server = Server::start()?;
    /// server.refuse_connections(true);
    /// let mut connection = TcpStream::connect(server.addr())?;
    /// assert_eq!(connection.read(&mut [0])?, 0, "closed");
    /// # Ok(())
    /// # }
    /// ```
    pub fn refuse_connections(&self, refuse: bool) {
        self.shared.change(|state| state.refusing = refuse);
    }

    /// Sets whether the expiry of sessions is suspended. When it no longer is, overdue sessions
    /// expire at the next tick.
    pub fn freeze_expiry(&self, freeze: bool) {
        self.shared.change(|state| state.sessions.frozen = freeze);
    }

    /// Starts a new epoch, as an election does: transaction ids continue at `(epoch + 1) << 32`,
    /// and every session gets a fresh timeout.
    ///
    /// # Examples
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let server = zookeeper_test_server::Server::start()?;
    /// server.advance_epoch();
    /// server.create("/a", "")?;
    /// assert_eq!(server.node("/a").map(|node| node.czxid >> 32), Some(2));
    /// # Ok(())
    /// # }
    /// ```
    pub fn advance_epoch(&self) {
        self.shared.change(|state| {
            state.zxid = ((state.zxid >> 32) + 1) << 32;
            let now = state.now();
            state.sessions.renew_all(now);
        });
    }

    fn look<T>(&self, look: impl FnOnce(View<'_>) -> T) -> T {
        self.shared.with(|state| look(View { state }))
    }

    fn write(&self, session: i64, write: Write) -> Result<Option<String>, ServerError> {
        let who = Who {
            session,
            ids: &[],
            trusted: true,
            ipv6: false,
            old: &[],
        };
        let effects = self
            .shared
            .change(|state| state.commit(who, &[write]))
            .map_err(|(_, error)| error)?;
        Ok(effects.into_iter().find_map(|effect| match effect {
            Effect::Created(path, _) => Some(path),
            _ => None,
        }))
    }

    /// Creates a persistent node, and its missing parents, without regard to permissions.
    ///
    /// # Errors
    /// Those of ZooKeeper's `create`, such as [`ServerError::NodeExists`].
    ///
    /// # Examples
    /// ```
    /// use zookeeper_test_server::{Server, ServerError};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let server = Server::start()?;
    /// server.create("/a/b", "data")?;
    /// assert_eq!(server.create("/a/b", ""), Err(ServerError::NodeExists));
    /// server.set_data("/a/b", "more")?;
    /// assert_eq!(server.node("/a/b").map(|node| node.data), Some(b"more".to_vec()));
    /// server.delete("/a/b")?;
    /// assert!(server.exists("/a") && server.children("/a").is_empty());
    /// # Ok(())
    /// # }
    /// ```
    pub fn create(&self, path: &str, data: impl AsRef<[u8]>) -> Result<(), ServerError> {
        self.create_as(path, data, CreateMode::Persistent, 0)
            .map(drop)
    }

    /// Creates a node of any kind, and its missing parents, without regard to permissions; returns
    /// its path. `owner` is the session of an ephemeral node. See [`CreateMode`] for an example.
    ///
    /// # Errors
    /// Those of ZooKeeper's `create`; [`ServerError::SessionExpired`] if an ephemeral node's owner
    /// does not exist, or is known to a member in [read-only mode](crate::Member::ReadOnly) alone.
    pub fn create_as(
        &self,
        path: &str,
        data: impl AsRef<[u8]>,
        mode: CreateMode,
        owner: i64,
    ) -> Result<String, ServerError> {
        let (opcode, flags) = match mode {
            CreateMode::Persistent => (opcode::CREATE, 0),
            CreateMode::Ephemeral => (opcode::CREATE, 1),
            CreateMode::PersistentSequential => (opcode::CREATE, 2),
            CreateMode::EphemeralSequential => (opcode::CREATE, 3),
            CreateMode::Container => (opcode::CREATE_CONTAINER, 4),
        };
        let is_known = |state: &mut State| {
            state
                .sessions
                .get(owner)
                .is_some_and(|it| it.local.is_none())
        };
        if flags & 1 == 1 && !self.shared.with(is_known) {
            return Err(ServerError::SessionExpired);
        }
        for (end, _) in path.match_indices('/').filter(|(end, _)| *end > 0) {
            match self.write(owner, create(&path[..end], &[], opcode::CREATE, 0)) {
                Ok(_) | Err(ServerError::NodeExists) => {}
                Err(error) => return Err(error),
            }
        }
        self.write(owner, create(path, data.as_ref(), opcode, flags))?
            .ok_or(ServerError::Marshalling)
    }

    /// Deletes a node, without regard to permissions.
    ///
    /// # Errors
    /// Those of ZooKeeper's `delete`, such as [`ServerError::NoNode`] and
    /// [`ServerError::NotEmpty`].
    pub fn delete(&self, path: &str) -> Result<(), ServerError> {
        self.write(
            0,
            Write::Delete {
                path: path.to_owned(),
                version: -1,
            },
        )
        .map(drop)
    }

    /// Sets a node's data, without regard to permissions.
    ///
    /// # Errors
    /// Those of ZooKeeper's `setData`, such as [`ServerError::NoNode`].
    pub fn set_data(&self, path: &str, data: impl AsRef<[u8]>) -> Result<(), ServerError> {
        let data = Some(data.as_ref().into());
        self.write(
            0,
            Write::SetData {
                path: path.to_owned(),
                data,
                version: -1,
            },
        )
        .map(drop)
    }

    /// Returns whether a node exists.
    #[must_use]
    pub fn exists(&self, path: &str) -> bool {
        self.look(|view| view.exists(path))
    }

    /// Returns the names of a node's children, sorted; none if there is no such node.
    #[must_use]
    pub fn children(&self, path: &str) -> Vec<String> {
        self.look(|view| view.children(path))
    }

    /// Returns a node; `None` if it does not exist.
    #[must_use]
    pub fn node(&self, path: &str) -> Option<NodeInfo> {
        self.look(|view| view.node(path))
    }

    /// Sets the sequence number of a node's next sequential child, for instance to [`i32::MAX`] to
    /// test the wrap. The node's `cversion` changes with it.
    ///
    /// After [`i32::MAX`] this server continues with `-2147483648`, as ZooKeeper's documentation
    /// says. **A real ZooKeeper does not**, at least 3.8.0: once the node numbered 2147483647
    /// exists, every sequential create that is sent after the previous reply is refused with
    /// `NodeExists`, permanently. Only creates that were sent without waiting for replies get
    /// numbers that have wrapped. So use this method to test how a client handles wrapped numbers,
    /// not how it handles a parent whose numbers are used up.
    ///
    /// # Errors
    /// [`ServerError::NoNode`] if the node does not exist.
    ///
    /// # Examples
    /// ```
    /// use zookeeper_test_server::{CreateMode, Server};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let server = Server::start()?;
    /// server.create("/queue", "")?;
    /// server.set_next_sequence("/queue", i32::MAX)?;
    /// let last = server.create_as("/queue/n-", "", CreateMode::PersistentSequential, 0)?;
    /// let next = server.create_as("/queue/n-", "", CreateMode::PersistentSequential, 0)?;
    /// assert_eq!((&*last, &*next), ("/queue/n-2147483647", "/queue/n--2147483648"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn set_next_sequence(&self, path: &str, next: i32) -> Result<(), ServerError> {
        let found = self
            .shared
            .change(|state| state.tree.set_next_sequence(path, next));
        if found {
            Ok(())
        } else {
            Err(ServerError::NoNode)
        }
    }

    /// Deletes the containers that have lost their last child, and the TTL nodes whose time has
    /// passed, as the periodic check does. Returns the number of deleted nodes.
    ///
    /// # Examples
    /// ```
    /// use zookeeper_test_server::{CreateMode, Server};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let server = Server::start()?;
    /// server.create_as("/locks", "", CreateMode::Container, 0)?;
    /// assert_eq!(server.sweep_containers(), 0, "it has had no child yet");
    /// server.create("/locks/a", "")?;
    /// server.delete("/locks/a")?;
    /// assert_eq!(server.sweep_containers(), 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn sweep_containers(&self) -> usize {
        self.shared.change(State::sweep)
    }

    /// Returns the counts of requests since the start or the last
    /// [`reset_counters`](Self::reset_counters). See [`Counters`] for an example.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.look(|view| view.counters())
    }

    /// Sets the counters to zero.
    pub fn reset_counters(&self) {
        self.shared
            .change(|state| state.counters = Counters::default());
    }

    /// Returns the number of watches that are set: one for each path, kind (data or child) and
    /// connection.
    #[must_use]
    pub fn watches(&self) -> usize {
        self.look(|view| view.watches())
    }

    /// Returns the sessions that watch a path: its data or its children.
    ///
    /// # Examples
    /// ```
    /// use zookeeper_client::Client;
    /// use zookeeper_test_server::Server;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let server = Server::start()?;
    /// server.create("/a", "")?;
    /// let client = Client::connect(&server.connect_string()).await?;
    /// let (_data, _stat, watcher) = client.get_and_watch_data("/a").await?;
    /// assert_eq!(server.watches_on("/a"), [client.session_id().0]);
    /// server.delete("/a")?;
    /// watcher.changed().await;
    /// assert_eq!(server.watches(), 0);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn watches_on(&self, path: &str) -> Vec<i64> {
        self.look(|view| view.watches_on(path))
    }

    /// Returns the last 100,000 entries of the server's log, oldest first, or fewer if their paths
    /// are long. See [`LogEntry`] for an example.
    #[must_use]
    pub fn log(&self) -> Vec<LogEntry> {
        self.shared
            .with(|state| state.log.iter().cloned().collect())
    }

    /// Returns the history of the server, in order, from the entry with the number `since` on:
    /// every change of a node, every watch that was set, removed or fired, and the beginnings and
    /// ends of sessions. See [`HistoryEntry`] for an example.
    ///
    /// The last 100,000 entries are kept, or fewer if their paths and data have more than 16 MiB.
    /// In a longer run, call this repeatedly, each time with the number after the last entry that
    /// you have. If the first returned entry has a greater number, entries were missed.
    #[must_use]
    pub fn history(&self, since: u64) -> Vec<HistoryEntry> {
        self.shared
            .with(|state| state.history.since(since).cloned().collect())
    }

    /// Advances the clock by which sessions and TTLs expire, and carries out what is then due.
    /// Sessions whose timeout has passed expire, even those of connected clients, which had no time
    /// to send a heartbeat. Containers without children, and TTL nodes whose time has passed, are
    /// deleted. All calls together advance the clock by at most 2^62 ms; any excess is ignored.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// use zookeeper_client::Client;
    /// use zookeeper_test_server::Server;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let server = Server::start()?;
    /// let connector = Client::connector().with_session_timeout(Duration::from_secs(10));
    /// let _client = connector.connect(&server.connect_string()).await?;
    /// server.advance_clock(Duration::from_secs(9));
    /// assert_eq!(server.sessions().len(), 1);
    /// // ZooKeeper's sessions expire at the next tick, and a tick lasts 2 s.
    /// server.advance_clock(Duration::from_secs(3));
    /// assert!(server.sessions().is_empty());
    /// # Ok(())
    /// # }
    /// ```
    pub fn advance_clock(&self, by: Duration) {
        self.shared.change(|state| state.advance_clock(by));
    }

    /// Holds the reply to a request **after** it was applied, and everything behind it on that
    /// connection, until the gate is released. See [`Gate`] for an example.
    pub fn hold_reply(&self, matcher: Match) -> Gate {
        self.shared
            .change(|state| state.plan.gate(matcher, Action::HoldReply))
    }

    /// Delays the reply to a request, and everything behind it on that connection, so that the
    /// server seems to commit slowly. Requests that are sent together are delayed together, not one
    /// after another.
    ///
    /// # Examples
    /// ```
    /// use std::time::{Duration, Instant};
    /// use zookeeper_client::Client;
    /// use zookeeper_test_server::{Match, Op, Server};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let server = Server::start()?;
    /// let client = Client::connect(&server.connect_string()).await?;
    /// let delay = Duration::from_millis(20);
    /// server.delay_reply(Match::op(Op::Sync).always(), delay);
    /// let sent = Instant::now();
    /// client.sync("/").await?;
    /// assert!(sent.elapsed() >= delay);
    /// # Ok(())
    /// # }
    /// ```
    pub fn delay_reply(&self, matcher: Match, delay: Duration) -> Fault {
        self.shared
            .change(|state| state.plan.fault(matcher, Action::DelayReply(delay)))
    }

    /// Holds a request **before** it is applied, and the later requests of its connection behind
    /// it, until the gate is released.
    ///
    /// The request is then applied even if its connection is closed, unless its session has ended
    /// or has reconnected.
    ///
    /// # Examples
    /// ```
    /// use zookeeper_client::Client;
    /// use zookeeper_test_server::{Match, Op, Server};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let server = Server::start()?;
    /// server.create("/a", "")?;
    /// let client = Client::connect(&server.connect_string()).await?;
    /// let gate = server.hold_request(Match::op(Op::Delete));
    /// let delete = client.delete("/a", None);
    /// gate.wait_hit().await;
    /// assert!(server.exists("/a"));
    /// gate.release();
    /// delete.await?;
    /// assert!(!server.exists("/a"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn hold_request(&self, matcher: Match) -> Gate {
        self.shared
            .change(|state| state.plan.gate(matcher, Action::HoldRequest))
    }

    /// Loses the reply to a request that was applied, and the connection with it. See [`Loss`] for
    /// an example.
    pub fn drop_reply(&self, matcher: Match, loss: Loss) -> Fault {
        self.shared
            .change(|state| state.plan.fault(matcher, Action::DropReply(loss)))
    }

    /// Loses a request before it is applied, and the connection with it.
    pub fn drop_request(&self, matcher: Match, loss: Loss) -> Fault {
        self.shared
            .change(|state| state.plan.fault(matcher, Action::DropRequest(loss)))
    }

    /// Answers a request with an error code instead of applying it; a connect is refused. See
    /// [`Fault`] for an example.
    pub fn fail(&self, matcher: Match, error_code: i32) -> Fault {
        self.shared
            .change(|state| state.plan.fault(matcher, Action::Fail(error_code)))
    }

    /// Removes all faults and releases all gates. Stalls stay.
    pub fn clear_faults(&self) {
        self.shared.change(|state| state.plan.clear());
    }

    /// Waits until a condition holds; returns whether it did in time.
    ///
    /// The condition is evaluated now and after every change of the server, so no change is missed,
    /// without polling. The future works on any runtime, and does not borrow the server.
    ///
    /// # Cancel safety
    /// Dropping the future has no effect on the server.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// use zookeeper_client::Client;
    /// use zookeeper_test_server::Server;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let server = Server::start()?;
    /// let connected = server.wait_until(|view| !view.sessions().is_empty(), Duration::from_secs(5));
    /// let _client = Client::connect(&server.connect_string()).await?;
    /// assert!(connected.await);
    /// # Ok(())
    /// # }
    /// ```
    pub fn wait_until<F>(
        &self,
        mut condition: F,
        timeout: Duration,
    ) -> impl Future<Output = bool> + Send + 'static + use<F>
    where
        F: FnMut(View<'_>) -> bool + Send + 'static,
    {
        let shared = Arc::clone(&self.shared);
        // The timer runs on the server's own runtime, so that the caller needs none.
        let mut timer = Timer(
            self.handle
                .spawn(async move { tokio::time::sleep(timeout).await }),
        );
        async move {
            let check = shared
                .changed
                .until(|| shared.with(|state| condition(View { state })));
            tokio::select! {
                biased;
                () = check => true,
                _ = &mut timer.0 => false,
            }
        }
    }

    /// Blocks until a condition holds, and returns whether it did in time. This is
    /// [`wait_until`](Self::wait_until) for threads that may block.
    #[must_use]
    pub fn wait_until_blocking(
        &self,
        mut condition: impl FnMut(View<'_>) -> bool,
        timeout: Duration,
    ) -> bool {
        let condition = || self.shared.with(|state| condition(View { state }));
        self.shared.changed.until_blocking(condition, timeout)
    }
}

fn ended() -> io::Error {
    io::Error::other("the server has ended")
}

/// A task that is aborted with its owner.
#[derive(Debug)]
struct Timer(tokio::task::JoinHandle<()>);

impl Drop for Timer {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn create(path: &str, data: &[u8], opcode: i32, flags: i32) -> Write {
    let acl = Some(vec![AskedAcl::new(31, "world", "anyone")]);
    Write::Create(Create {
        opcode,
        path: path.to_owned(),
        data: Some(data.into()),
        acl,
        flags,
        ttl: -1,
    })
}
