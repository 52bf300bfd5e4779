//! The server's thread and its handle.

use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener as StdListener};
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::{Arc, Mutex, mpsc as std_mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{self, Handle};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Interval, MissedTickBehavior};

use crate::connection::{self, Conn, End};
use crate::counters::{Counters, LogEntry};
use crate::error::ServerError;
use crate::fault::{Action, Fault, Gate, Loss, Match};
use crate::signal::{Signal, lock};
use crate::state::{Config, Isolation, State, Version};
use crate::txn::{Effect, Who};
use crate::view::{NodeInfo, SessionInfo, View};
use crate::wire::request::{Create, Write};
use crate::wire::{Acl, AuthId, opcode};

/// Which way bytes flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From the client to the server.
    ToServer,
    /// From the server to the client.
    ToClient,
    /// Both ways.
    Both,
}

/// How [`Server::cut`] closes a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cut {
    /// In order.
    Fin,
    /// By a reset.
    Reset,
}

/// How [`Server::create_as`] makes a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CreateMode {
    /// Stays until it is deleted.
    Persistent,
    /// Persistent, with a number.
    PersistentSequential,
    /// Goes with its session.
    Ephemeral,
    /// Ephemeral, with a number.
    EphemeralSequential,
    /// Goes some time after its last child.
    Container,
}

#[derive(Clone, Copy, Debug, Default)]
struct Stalls {
    to_server: bool,
    to_client: bool,
}

/// What the handle, the thread and the connections share.
#[derive(Debug)]
pub(crate) struct Shared {
    state: Mutex<State>,
    changed: Signal,
    stalls: Mutex<HashMap<i64, Stalls>>,
    stalls_changed: Signal,
    any_stall: AtomicBool,
    max_frame: usize,
    pub(crate) port: AtomicU16,
}

impl Shared {
    /// Waits until the state is as asked for.
    pub(crate) async fn until_changed(&self, is: impl Fn(&State) -> bool + Send + Sync) {
        self.changed.until(|| self.with(|state| is(state))).await;
    }

    /// Looks at the state.
    pub(crate) fn with<T>(&self, look: impl FnOnce(&mut State) -> T) -> T {
        look(&mut lock(&self.state))
    }

    /// Changes the state, and has whoever waits look again.
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
        let stalls = lock(&self.stalls).get(&conn.session()).copied().unwrap_or_default();
        match direction {
            Direction::ToServer => !stalls.to_server,
            Direction::ToClient => !stalls.to_client,
            Direction::Both => !stalls.to_server && !stalls.to_client,
        }
    }

    /// Resolves when bytes of this connection may flow that way.
    pub(crate) async fn until_flows(&self, conn: &Conn, direction: Direction) {
        self.stalls_changed.until(|| self.flows(conn, direction)).await;
    }
}

/// What the handle tells the thread.
#[derive(Debug)]
enum Control {
    Stop(std_mpsc::Sender<()>),
    Listen(StdListener, std_mpsc::Sender<io::Result<()>>),
    Quit,
}

/// How a [`Server`] is to be.
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
        }
    }
}

impl Builder {
    /// ZooKeeper's `tickTime`, 2 s by default: sessions expire on multiples of it.
    pub fn tick(mut self, tick: Duration) -> Self {
        self.tick = tick.max(Duration::from_millis(1));
        self
    }

    /// The least session timeout that a client gets; two ticks by default.
    pub fn min_session_timeout(mut self, timeout: Duration) -> Self {
        self.min_session_timeout = Some(timeout);
        self
    }

    /// The greatest session timeout that a client gets; twenty ticks by default.
    pub fn max_session_timeout(mut self, timeout: Duration) -> Self {
        self.max_session_timeout = Some(timeout);
        self
    }

    /// How often empty containers are looked for; 60 s by default. See [`Server::sweep_containers`].
    pub fn container_check_interval(mut self, interval: Duration) -> Self {
        self.container_check_interval = interval.max(Duration::from_millis(1));
        self
    }

    /// Which ZooKeeper to behave like; 3.8 by default.
    pub fn zookeeper_version(mut self, version: Version) -> Self {
        self.version = version;
        self
    }

    /// The largest request in bytes, ZooKeeper's `jute.maxbuffer`, 1 MiB - 1 by default: a larger one closes the connection.
    pub fn max_frame(mut self, bytes: usize) -> Self {
        self.max_frame = bytes;
        self
    }

    /// The port on 127.0.0.1; 0, the default, takes a free one.
    pub fn port(mut self, port: u16) -> Self {
        self.port = port;
        self
    }

    /// Starts the server. It accepts connections when this returns.
    ///
    /// # Errors
    /// When the port cannot be bound or the thread cannot be started.
    pub fn start(mut self) -> io::Result<Server> {
        // Longer than this is for ever, and no arithmetic on it overflows.
        const LONG: Duration = Duration::from_secs(60 * 60 * 24 * 365);
        self.tick = self.tick.min(LONG);
        self.container_check_interval = self.container_check_interval.min(LONG);
        self.min_session_timeout = self.min_session_timeout.map(|timeout| timeout.min(LONG));
        self.max_session_timeout = self.max_session_timeout.map(|timeout| timeout.min(LONG));
        let min_timeout = self.min_session_timeout.unwrap_or(self.tick * 2);
        let max_timeout = self.max_session_timeout.unwrap_or(self.tick * 20).max(min_timeout);
        let config = Config {
            tick: self.tick,
            min_timeout,
            max_timeout,
            version: self.version,
            max_frame: self.max_frame,
        };
        let listener = bind(self.port)?;
        let addr = listener.local_addr()?;
        let shared = Arc::new(Shared {
            max_frame: config.max_frame,
            state: Mutex::new(State::new(config)),
            changed: Signal::new(),
            stalls: Mutex::default(),
            stalls_changed: Signal::new(),
            any_stall: AtomicBool::new(false),
            port: AtomicU16::new(addr.port()),
        });
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let listener = {
            let _entered = handle.enter();
            TcpListener::from_std(listener)?
        };
        let (control, commands) = mpsc::unbounded_channel();
        let main = Main {
            shared: Arc::clone(&shared),
            commands,
            listener: Some(listener),
            connections: JoinSet::new(),
            tick: self.tick,
            sweep: self.container_check_interval,
        };
        let thread = std::thread::Builder::new()
            .name("zookeeper-test-server".to_owned())
            .spawn(move || runtime.block_on(main.run()))?;
        Ok(Server { shared, addr, control, handle, thread: Some(thread) })
    }
}

fn bind(port: u16) -> io::Result<StdListener> {
    let listener = StdListener::bind((Ipv4Addr::LOCALHOST, port))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

#[derive(Debug)]
struct Main {
    shared: Arc<Shared>,
    commands: mpsc::UnboundedReceiver<Control>,
    listener: Option<TcpListener>,
    connections: JoinSet<()>,
    tick: Duration,
    sweep: Duration,
}

impl Main {
    async fn run(mut self) {
        let (mut tick, mut sweep) = (every(self.tick), every(self.sweep));
        loop {
            tokio::select! {
                command = self.commands.recv() => match command {
                    None | Some(Control::Quit) => return,
                    Some(Control::Stop(done)) => {
                        self.listener = None;
                        self.connections.shutdown().await;
                        self.shared.change(State::disconnect_all);
                        let _ = done.send(());
                    }
                    Some(Control::Listen(listener, done)) => {
                        let listener = TcpListener::from_std(listener);
                        let outcome = listener.map(|listener| self.listener = Some(listener));
                        self.shared.change(|state| {
                            let now = state.now();
                            state.sessions.renew_all(now);
                        });
                        let _ = done.send(outcome);
                    }
                },
                accepted = accept(self.listener.as_ref()) => self.accepted(accepted).await,
                _ = tick.tick(), if self.listener.is_some() => {
                    if self.shared.with(State::tick) {
                        self.shared.changed.raise();
                    }
                }
                _ = sweep.tick(), if self.listener.is_some() => {
                    self.shared.change(State::sweep);
                }
                Some(_) = self.connections.join_next() => {}
            }
        }
    }

    async fn accepted(&mut self, accepted: io::Result<(TcpStream, SocketAddr)>) {
        match accepted {
            Ok((stream, peer)) => {
                let conn = self.shared.change(|state| (!state.refusing).then(|| state.register(peer)));
                if let Some(conn) = conn {
                    self.connections.spawn(connection::serve(stream, conn, Arc::clone(&self.shared)));
                }
            }
            // Out of file descriptors, or the client has gone already: look again a little later.
            Err(error) => {
                tracing::warn!(%error, "accept failed");
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
    }
}

fn every(period: Duration) -> Interval {
    let mut interval = tokio::time::interval_at(tokio::time::Instant::now() + period, period);
    interval.set_missed_tick_behavior(MissedTickBehavior::Skip);
    interval
}

async fn accept(listener: Option<&TcpListener>) -> io::Result<(TcpStream, SocketAddr)> {
    match listener {
        Some(listener) => listener.accept().await,
        None => std::future::pending().await,
    }
}

/// A ZooKeeper server in this process, on a thread of its own. Dropping it shuts it down.
#[derive(Debug)]
pub struct Server {
    shared: Arc<Shared>,
    addr: SocketAddr,
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
    /// As [`Builder::start`].
    pub fn start() -> io::Result<Self> {
        Builder::default().start()
    }

    /// A server with other settings.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// `127.0.0.1:port`, as clients want it.
    #[must_use]
    pub fn connect_string(&self) -> String {
        self.addr.to_string()
    }

    /// Where the server listens.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The port on 127.0.0.1.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.addr.port()
    }

    /// Stops listening and closes every connection. The tree and the sessions stay, and no session expires meanwhile.
    /// Requests that a gate holds are lost.
    pub fn stop(&self) {
        let (done, stopped) = std_mpsc::channel();
        if self.control.send(Control::Stop(done)).is_ok() {
            let _ = stopped.recv();
        }
    }

    /// Listens on the same port again, after [`stop`](Self::stop) or at once. Every session gets a fresh timeout.
    ///
    /// # Errors
    /// When the port has been taken by somebody else, or cannot be listened on.
    pub fn restart(&self) -> io::Result<()> {
        self.stop();
        let listener = bind(self.addr.port())?;
        let (done, listening) = std_mpsc::channel();
        let gone = || io::Error::other("the server's thread has ended");
        self.control.send(Control::Listen(listener, done)).map_err(|_| gone())?;
        listening.recv().unwrap_or_else(|_| Err(gone()))
    }

    /// The sessions, by id.
    #[must_use]
    pub fn sessions(&self) -> Vec<SessionInfo> {
        self.look(|view| view.sessions())
    }

    /// Expires a session now: its ephemeral nodes go, watches fire, its connection is closed, and when the client comes
    /// back it is told. A connection that is stalled to the client ends only when it is resumed. `false` when there is no such session.
    pub fn expire_session(&self, id: i64) -> bool {
        self.shared.change(|state| state.expire(id))
    }

    /// Closes a session's connection. `false` when it has none.
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

    /// Stops the flow of a session's bytes, on its present connection and on those to come, until [`resume`](Self::resume).
    ///
    /// Bytes to the server wait unread: the session is not heard of and expires in time, but is still told of events.
    /// Towards the client the end of the connection waits too: when the session expires, the client sees nothing of it before
    /// [`resume`](Self::resume). What waits is dropped when the client gives the connection up. `false` when there is no such session.
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

    /// Lets a session's bytes flow again, both ways.
    pub fn resume(&self, id: i64) {
        let mut stalls = lock(&self.shared.stalls);
        stalls.remove(&id);
        self.shared.any_stall.store(!stalls.is_empty(), Ordering::Release);
        drop(stalls);
        self.shared.stalls_changed.raise();
    }

    /// Cuts the member that serves a session off from the rest of the ensemble, as far as that session can tell; see
    /// [`Isolation`]. If the client reconnects it reaches a member that is not cut off, and its session moves
    /// there, if it is not expired by then; [`refuse_connections`](Self::refuse_connections) keeps it where it
    /// is. `false` when there is no such session.
    pub fn isolate(&self, id: i64, isolation: Isolation) -> bool {
        self.shared.change(|state| state.isolate(id, isolation))
    }

    /// The member that was cut off is back, and closes the session's connection, as ZooKeeper's members do.
    pub fn heal(&self, id: i64) {
        self.shared.change(|state| state.heal(id));
    }

    /// While set, connections are accepted and closed at once.
    pub fn refuse_connections(&self, refuse: bool) {
        self.shared.change(|state| state.refusing = refuse);
    }

    /// While set, no session expires. Those that are overdue when it ends expire at the next tick.
    pub fn freeze_expiry(&self, freeze: bool) {
        self.shared.change(|state| state.sessions.frozen = freeze);
    }

    /// Begins a new epoch, as an election does: transaction ids continue at (epoch + 1) << 32, and every session gets a
    /// fresh timeout.
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
        let who = Who { session, ids: &[], trusted: true };
        let effects = self.shared.change(|state| state.commit(who, &[write])).map_err(|(_, error)| error)?;
        Ok(effects.into_iter().find_map(|effect| match effect {
            Effect::Created(path, _) => Some(path),
            _ => None,
        }))
    }

    /// Creates a persistent node, and its parents where they are missing.
    ///
    /// # Errors
    /// As ZooKeeper's `create`; permissions are not asked for.
    pub fn create(&self, path: &str, data: impl AsRef<[u8]>) -> Result<(), ServerError> {
        self.create_as(path, data, CreateMode::Persistent, 0).map(drop)
    }

    /// Creates a node of any kind, and its parents where they are missing; answers its path. `owner` is the session of an
    /// ephemeral node.
    ///
    /// # Errors
    /// As ZooKeeper's `create`; [`ServerError::SessionExpired`] when an ephemeral node's owner does not exist.
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
        if flags & 1 == 1 && self.shared.with(|state| state.sessions.get(owner).is_none()) {
            return Err(ServerError::SessionExpired);
        }
        for (end, _) in path.match_indices('/').filter(|(end, _)| *end > 0) {
            match self.write(owner, create(&path[..end], &[], opcode::CREATE, 0)) {
                Ok(_) | Err(ServerError::NodeExists) => {}
                Err(error) => return Err(error),
            }
        }
        self.write(owner, create(path, data.as_ref(), opcode, flags))?.ok_or(ServerError::Marshalling)
    }

    /// Deletes a node.
    ///
    /// # Errors
    /// As ZooKeeper's `delete`; permissions are not asked for.
    pub fn delete(&self, path: &str) -> Result<(), ServerError> {
        self.write(0, Write::Delete { path: path.to_owned(), version: -1 }).map(drop)
    }

    /// Sets a node's data.
    ///
    /// # Errors
    /// As ZooKeeper's `setData`; permissions are not asked for.
    pub fn set_data(&self, path: &str, data: impl AsRef<[u8]>) -> Result<(), ServerError> {
        let data = Some(data.as_ref().to_vec());
        self.write(0, Write::SetData { path: path.to_owned(), data, version: -1 }).map(drop)
    }

    /// Whether a node exists.
    #[must_use]
    pub fn exists(&self, path: &str) -> bool {
        self.look(|view| view.exists(path))
    }

    /// The names of a node's children, sorted; empty when there is no such node.
    #[must_use]
    pub fn children(&self, path: &str) -> Vec<String> {
        self.look(|view| view.children(path))
    }

    /// A node.
    #[must_use]
    pub fn node(&self, path: &str) -> Option<NodeInfo> {
        self.look(|view| view.node(path))
    }

    /// Sets the number that the next sequential child of a node gets, for instance [`i32::MAX`] to see what a client makes
    /// of what comes after it. The node's `cversion` changes with it.
    ///
    /// After [`i32::MAX`] this server goes on with `-2147483648`, as ZooKeeper's documentation says. **A real ZooKeeper does
    /// not**, at least 3.8.0: once the node numbered 2147483647 is there, every further sequential create, sent after the
    /// answer to the one before, is refused with `NodeExists`, for ever. Only creates that were sent without waiting for
    /// answers get numbers that have wrapped. So this shows that a client copes with wrapped numbers, and not what a
    /// parent that has used its numbers up does.
    ///
    /// # Errors
    /// [`ServerError::NoNode`].
    pub fn set_next_sequence(&self, path: &str, next: i32) -> Result<(), ServerError> {
        let found = self.shared.change(|state| state.tree.set_next_sequence(path, next));
        if found { Ok(()) } else { Err(ServerError::NoNode) }
    }

    /// Deletes the containers that had children and have none, and the TTL nodes whose time is over, as the periodic check
    /// does; answers how many.
    pub fn sweep_containers(&self) -> usize {
        self.shared.change(State::sweep)
    }

    /// What was asked of the server since its start or the last [`reset_counters`](Self::reset_counters).
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.look(|view| view.counters())
    }

    /// Sets the counters to zero.
    pub fn reset_counters(&self) {
        self.shared.change(|state| state.counters = Counters::default());
    }

    /// How many watches stand: one for each path, kind (data or child) and connection.
    #[must_use]
    pub fn watches(&self) -> usize {
        self.look(|view| view.watches())
    }

    /// The sessions that watch a path, its data or its children.
    #[must_use]
    pub fn watches_on(&self, path: &str) -> Vec<i64> {
        self.look(|view| view.watches_on(path))
    }

    /// The last 100,000 events of the server, oldest first.
    #[must_use]
    pub fn log(&self) -> Vec<LogEntry> {
        self.shared.with(|state| state.log.snapshot())
    }

    /// Holds the reply to a request **after** it was applied, with everything behind it on that connection.
    pub fn hold_reply(&self, matcher: Match) -> Gate {
        self.shared.change(|state| state.plan.gate(matcher, Action::HoldReply))
    }

    /// Sends the reply to a request so long after it was applied, with everything behind it on that connection: what a
    /// client sees of servers whose commits take their time. Requests that are sent together wait together.
    pub fn delay_reply(&self, matcher: Match, delay: Duration) -> Fault {
        self.shared.change(|state| state.plan.fault(matcher, Action::DelayReply(delay)))
    }

    /// Holds a request **before** it is applied; the later requests of its connection queue behind it.
    ///
    /// It is applied when the gate is released, even if its connection is gone by then, unless its session has ended or
    /// come back on another connection.
    pub fn hold_request(&self, matcher: Match) -> Gate {
        self.shared.change(|state| state.plan.gate(matcher, Action::HoldRequest))
    }

    /// Applies a request and loses its reply with the connection.
    pub fn drop_reply(&self, matcher: Match, loss: Loss) -> Fault {
        self.shared.change(|state| state.plan.fault(matcher, Action::DropReply(loss)))
    }

    /// Loses a request with the connection: it is not applied.
    pub fn drop_request(&self, matcher: Match, loss: Loss) -> Fault {
        self.shared.change(|state| state.plan.fault(matcher, Action::DropRequest(loss)))
    }

    /// Answers a request with an error code instead of applying it. A connect is refused instead.
    pub fn fail(&self, matcher: Match, error_code: i32) -> Fault {
        self.shared.change(|state| state.plan.fault(matcher, Action::Fail(error_code)))
    }

    /// Removes every fault and releases every gate. Stalls stay.
    pub fn clear_faults(&self) {
        self.shared.change(|state| state.plan.clear());
    }

    /// Waits until a condition holds; answers whether it did in time. It is looked at now and after every change of the
    /// server, so nothing is missed and nothing polls. Works on any runtime; the future does not borrow the server.
    ///
    /// # Cancel safety
    /// Dropping the future only stops the waiting.
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
        let mut timer = Timer(self.handle.spawn(async move { tokio::time::sleep(timeout).await }));
        async move {
            let check = shared.changed.until(|| shared.with(|state| condition(View { state })));
            tokio::select! {
                biased;
                () = check => true,
                _ = &mut timer.0 => false,
            }
        }
    }

    /// The same for a thread that may block.
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

/// A task that ends with its owner.
#[derive(Debug)]
struct Timer(tokio::task::JoinHandle<()>);

impl Drop for Timer {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn create(path: &str, data: &[u8], opcode: i32, flags: i32) -> Write {
    let acl = vec![Acl { perms: 31, id: AuthId::new("world", "anyone") }];
    Write::Create(Create { opcode, path: path.to_owned(), data: Some(data.to_vec()), acl, flags, ttl: -1 })
}
