//! The server without its sockets: what a request does to the tree, the sessions and the watches,
//! and its reply.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

use crate::connection::{Conn, End, HARD_OUT, Replied};
use crate::counters::{Counters, Log, LogEntry, LogKind, Op, Reason};
use crate::digest;
use crate::error::ServerError;
use crate::fault::Plan;
use crate::history::{History, HistoryEvent, WatchKind};
use crate::members::{Member, Role, Standing};
use crate::sessions::Sessions;
use crate::tree::{Node, Stamp, Tree};
use crate::txn::{self, Change, Effect, Happened, OldAcl, Who};
use crate::watch::{self, Event, Mode, Table, Watches};
use crate::wire::jute::{Frame, Malformed, Strings, java_text};
use crate::wire::reply::{self, Outcome};
use crate::wire::request::{Connect, Read, Request, SetWatches, Write};
use crate::wire::{AuthId, opcode};

/// The server that this one behaves like, where servers differ.
///
/// All have the fix of CVE-2024-23944: a watch event is sent only to clients that may read the
/// node.
///
/// What ClickHouse Keeper does otherwise has been read in its source
/// (`src/Server/KeeperTCPHandler.cpp`, `src/Common/ZooKeeper/ZooKeeperConstants.cpp`,
/// `src/Coordination/{KeeperStorage,FourLetterCommand}.cpp`) and its issues; it has not been
/// compared with a Keeper that runs.
///
/// ```
/// use zookeeper_client::{Acls, Client, CreateMode, MultiWriteResult};
/// use zookeeper_test_server::{Server, Version};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let server = Server::builder().zookeeper_version(Version::V3_8).start()?;
/// let client = Client::connect(&server.connect_string()).await?;
/// let mut multi = client.new_multi_writer();
/// multi.add_create("/a", b"", &CreateMode::Persistent.with_acls(Acls::anyone_all()))?;
/// let results = multi.commit().await?;
/// let MultiWriteResult::Create { stat, .. } = &results[0] else {
///     return Err("not a create".into());
/// };
/// assert!(stat.is_invalid(), "3.8.0 has no Stat for a create in a multi");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Version {
    /// 3.8.0: the reply to a create in a multi has no Stat (ZOOKEEPER-4026), and watch events have
    /// the zxid -1.
    #[default]
    V3_8,
    /// 3.9: the reply to a create in a multi has its Stat, and watch events have the zxid of their
    /// transaction, unless they come late, after a reconnect. `exists` takes the permission to read
    /// the node, as in 3.9.5 and in Debian's 3.9.3. A check outside a multi, and `deleteContainer`,
    /// are refused, as in 3.9.6, and events that come late are sent only to clients that may read
    /// the node. Access control lists may have addresses of IPv6.
    V3_9,
    /// ClickHouse Keeper 26.9. The differences from ZooKeeper are:
    ///
    /// - **No session is restored.** A client that reconnects with its session gets another one,
    ///   with another id, and is not notified (ClickHouse#116690); the old session lives until it
    ///   expires, with its ephemeral nodes. A session has no password.
    /// - A request that Keeper does not know (SASL, `getEphemerals`, `getAllChildrenNumber`,
    ///   `whoAmI`) closes the connection without a reply.
    /// - Session ids and transaction ids count from 1.
    /// - Credentials have the scheme `digest`; others are refused.
    /// - There is no read-only mode: [`Member::ReadOnly`] is as [`Member::Down`].
    /// - A create in a multi has its Stat, and watch events have the zxid -1.
    /// - `srvr` and `stat` begin with `ClickHouse Keeper version:`.
    ClickHouseKeeper,
    /// ClickHouse Keeper before containers (ClickHouse#108908, merged in 2026) and TTL nodes: the
    /// requests for them close the connection without a reply, too. To answer them with
    /// `Unimplemented`, add
    /// [`Server::fail`](crate::Server::fail) to [`ClickHouseKeeper`](Self::ClickHouseKeeper):
    ///
    /// ```
    /// use zookeeper_test_server::{Match, Server, Version};
    ///
    /// # fn main() -> std::io::Result<()> {
    /// let server = Server::builder().zookeeper_version(Version::ClickHouseKeeper).start()?;
    /// let _refused = server.fail(Match::any().opcode(19).always(), -6);
    /// # Ok(())
    /// # }
    /// ```
    ClickHouseKeeperWithoutContainers,
}

impl Version {
    /// Returns whether it is a ClickHouse Keeper.
    pub(crate) fn is_keeper(self) -> bool {
        matches!(
            self,
            Self::ClickHouseKeeper | Self::ClickHouseKeeperWithoutContainers
        )
    }

    /// Returns whether it replies to requests of this number; it closes the connection on others.
    pub(crate) fn knows(self, opcode: i32) -> bool {
        match opcode {
            opcode::CREATE_CONTAINER | opcode::CREATE_TTL => {
                self != Self::ClickHouseKeeperWithoutContainers
            }
            // The condition is that of 3.9.6.
            opcode::DELETE_CONTAINER => self != Self::V3_9,
            opcode::SASL
            | opcode::GET_EPHEMERALS
            | opcode::GET_ALL_CHILDREN_NUMBER
            | opcode::WHO_AM_I => !self.is_keeper(),
            _ => true,
        }
    }
}

/// How many replaced lists are remembered for requests that came before.
const OLD_ACLS: usize = 64;

/// How much of a path the log keeps, in bytes. A log of paths as long as a frame would fill the
/// memory.
const LOGGED_PATH: usize = 4096;

/// How far the clock is moved by hand at most. At the end of its numbers every session would expire
/// when it is opened.
const FARTHEST: Duration = Duration::from_millis(1 << 62);

#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) tick: Duration,
    pub(crate) min_timeout: Duration,
    pub(crate) max_timeout: Duration,
    pub(crate) version: Version,
    pub(crate) max_frame: usize,
    /// How many members there are.
    pub(crate) members: usize,
    /// How fast its clock is.
    pub(crate) clock_rate: f64,
    /// How often the members report live sessions to the leader.
    pub(crate) touch_interval: Duration,
    pub(crate) super_digest: Option<String>,
    /// How many bytes may wait to be sent on all connections.
    pub(crate) max_queued: usize,
    /// Whether the races of ZooKeeper's pipeline are always lost.
    pub(crate) races: bool,
    /// Whether a member that is read-only opens sessions.
    pub(crate) local_sessions: bool,
}

/// A request whose header has been read.
#[derive(Debug)]
pub(crate) struct Ask {
    pub(crate) number: u64,
    pub(crate) xid: i32,
    pub(crate) opcode: i32,
    pub(crate) op: Op,
    pub(crate) body: Result<Request, Malformed>,
}

/// A reply.
#[derive(Debug)]
pub(crate) struct Answer {
    /// `None` if ZooKeeper never replies.
    pub(crate) frame: Option<Frame>,
    pub(crate) error: i32,
    pub(crate) path: String,
    pub(crate) close: bool,
}

/// The reply to a connect.
#[derive(Debug)]
pub(crate) enum Greeting {
    Accepted(Frame),
    /// The session does not exist. The connection is closed.
    Refused(Frame),
    /// The create of a session failed like an ordinary request, so the reply is not that to a
    /// connect. ZooKeeper leaves the connection open, and replies to nothing.
    Failed(Frame),
}

impl Greeting {
    pub(crate) fn error(&self) -> i32 {
        match self {
            Self::Accepted(_) => 0,
            Self::Refused(_) => ServerError::SessionExpired.code(),
            Self::Failed(_) => NOT_READ_ONLY,
        }
    }
}

/// The role of a member that is cut off from the rest of the ensemble, for
/// [`Server::isolate`](crate::Server::isolate).
///
/// Such a member replies to reads with the state at the moment when it was cut off, to pings, and,
/// if it was the leader, to `sync`. It replies to no write, nor to any request behind one, and
/// sends no events. The other members do not hear of its client, so they expire the client's
/// session and give its locks away, which the client cannot see in what it reads. A real member
/// continues like this for `syncLimit` ticks, 10 s by default.
///
/// ```
/// use zookeeper_client::Client;
/// use zookeeper_test_server::{Isolation, Server};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let server = Server::start()?;
/// server.create("/a", "old")?;
/// let client = Client::connect(&server.connect_string()).await?;
/// server.isolate(client.session_id().0, Isolation::DeposedLeader);
/// server.set_data("/a", "new")?;
///
/// // Even after a sync the client reads the old data.
/// client.sync("/a").await?;
/// let (data, _stat) = client.get_data("/a").await?;
/// assert_eq!(data, b"old");
///
/// server.heal(client.session_id().0);
/// while client.sync("/a").await.is_err() {}
/// let (data, _stat) = client.get_data("/a").await?;
/// assert_eq!(data, b"new");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Isolation {
    /// A follower that cannot reach the leader.
    Follower,
    /// A leader that the others have replaced and that does not know it yet: it replies to `sync`,
    /// too.
    DeposedLeader,
}

/// The state of a member that is cut off.
#[derive(Debug)]
struct Isolated {
    tree: Tree,
    zxid: i64,
    isolation: Isolation,
}

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) config: Config,
    started: Instant,
    /// How far the clock was moved by hand.
    advanced: Duration,
    pub(crate) tree: Tree,
    pub(crate) sessions: Sessions,
    pub(crate) watches: Watches,
    pub(crate) plan: Plan,
    pub(crate) counters: Counters,
    pub(crate) log: Log,
    pub(crate) history: History,
    pub(crate) connections: HashMap<u64, Arc<Conn>>,
    pub(crate) zxid: i64,
    /// Transaction ids that were given to requests which then were no transactions. The next one
    /// shows them.
    skipped: i64,
    /// The packets of the closed connections to each member, and those of the open ones from before
    /// `crst` and `srst`.
    pub(crate) traffic: Vec<(u64, u64)>,
    /// The trace mask that `stmk` has set.
    pub(crate) trace_mask: i64,
    pub(crate) refusing: bool,
    pub(crate) members: Vec<Standing>,
    /// The access control lists that were replaced lately, with [`Config::races`].
    old_acls: Vec<OldAcl>,
    isolated: HashMap<i64, Isolated>,
    next_connection: u64,
    next_request: u64,
    /// The bytes that wait to be sent on all connections.
    waiting: Arc<AtomicUsize>,
}

/// Returns the time of the wall clock, which is visible in Stats and session ids and decides
/// nothing.
#[expect(
    clippy::disallowed_methods,
    reason = "ctime and mtime are wall-clock times by definition"
)]
pub(crate) fn wall_ms() -> i64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl State {
    pub(crate) fn new(config: Config) -> Self {
        Self {
            started: Instant::now(),
            advanced: Duration::ZERO,
            tree: Tree::new(),
            sessions: if config.version.is_keeper() {
                Sessions::counted(ms(config.tick))
            } else {
                Sessions::new(ms(config.tick))
            },
            watches: Watches::new(config.version == Version::V3_8),
            plan: Plan::default(),
            counters: Counters::default(),
            log: Log::default(),
            history: History::default(),
            connections: HashMap::new(),
            zxid: if config.version.is_keeper() {
                0
            } else {
                1 << 32
            },
            skipped: 0,
            traffic: vec![(0, 0); config.members],
            trace_mask: 0o462,
            refusing: false,
            members: (0..config.members).map(|_| Standing::current()).collect(),
            old_acls: Vec::new(),
            isolated: HashMap::new(),
            next_connection: 1,
            next_request: 1,
            waiting: Arc::default(),
            config,
        }
    }

    /// Returns the milliseconds since the server started.
    pub(crate) fn uptime_ms(&self) -> u64 {
        ms(self.started.elapsed())
    }

    /// Returns the milliseconds of the clock of sessions and TTLs.
    pub(crate) fn now(&self) -> u64 {
        ms(self
            .started
            .elapsed()
            .mul_f64(self.config.clock_rate)
            .saturating_add(self.advanced))
    }

    /// Moves the clock, and does what is due by it.
    pub(crate) fn advance_clock(&mut self, by: Duration) {
        self.advanced = self.advanced.saturating_add(by).min(FARTHEST);
        self.tick();
        self.sweep();
    }

    /// Returns the moment from which the timeout of a session counts whose request arrives now:
    /// that of the last report to the leader.
    pub(crate) fn heard_at(&self) -> u64 {
        let now = self.now();
        now - now
            .checked_rem(ms(self.config.touch_interval))
            .unwrap_or_default()
    }

    /// Returns the next transaction's stamp.
    pub(crate) fn stamp(&mut self) -> Stamp {
        self.zxid += 1 + std::mem::take(&mut self.skipped);
        Stamp {
            zxid: self.zxid,
            wall_ms: wall_ms(),
            mono_ms: self.now(),
        }
    }

    pub(crate) fn next_request(&mut self) -> u64 {
        self.next_request += 1;
        self.next_request - 1
    }

    pub(crate) fn register(&mut self, peer: std::net::SocketAddr, member: usize) -> Arc<Conn> {
        let conn = Arc::new(Conn::new(
            self.next_connection,
            peer,
            member,
            wall_ms(),
            Arc::clone(&self.waiting),
        ));
        self.next_connection += 1;
        self.connections.insert(conn.id, Arc::clone(&conn));
        conn
    }

    /// Removes a connection and its watches. Its session stays.
    pub(crate) fn disconnect(&mut self, conn: &Conn) {
        conn.close();
        self.watches.disconnect(conn.id);
        if self.forget(conn) {
            if let Some(session) = self.sessions.get_mut(conn.session()) {
                if session.connection == Some(conn.id) {
                    session.connection = None;
                    self.note(conn.session(), HistoryEvent::SessionDisconnected);
                }
            }
            self.forget_isolated(conn.session());
        }
    }

    /// Removes a connection from the table; returns whether the table had it.
    fn forget(&mut self, conn: &Conn) -> bool {
        let known = self.connections.remove(&conn.id).is_some();
        if known {
            self.take_traffic(conn);
        }
        known
    }

    /// Counts the packets of a connection with those of its member from now on.
    pub(crate) fn take_traffic(&mut self, conn: &Conn) {
        let taken = conn.take_traffic();
        if let Some((received, sent)) = self.traffic.get_mut(conn.member) {
            *received = received.wrapping_add(taken.0);
            *sent = sent.wrapping_add(taken.1);
        }
    }

    /// Drops the state of an isolated member once its session is over and no connection uses it.
    fn forget_isolated(&mut self, session: i64) {
        let asked = || {
            self.connections
                .values()
                .any(|conn| conn.session() == session)
        };
        if self.is_isolated(session) && self.sessions.get(session).is_none() && !asked() {
            self.isolated.remove(&session);
        }
    }

    pub(crate) fn disconnect_all(&mut self) {
        for conn in self.connections.values().cloned().collect::<Vec<_>>() {
            self.disconnect(&conn);
        }
    }

    /// Returns the connection on which a session began or was resumed last.
    pub(crate) fn connection_of(&self, session: i64) -> Option<&Arc<Conn>> {
        self.connections
            .get(&self.sessions.get(session)?.connection?)
    }

    /// Returns all connections of a session. Connections to other members stay when the session is
    /// resumed.
    fn connections_of(&self, session: i64) -> Vec<Arc<Conn>> {
        let connections = self.connections.values();
        connections
            .filter(|conn| conn.session() == session)
            .cloned()
            .collect()
    }

    /// Handles a connect; returns the reply, or `None` to close the connection without one.
    pub(crate) fn connect(&mut self, conn: &Conn, request: &Connect) -> Option<Greeting> {
        if request.last_zxid_seen > self.zxid_at(conn.member) {
            // The client has seen a later state than this server has. It must try another one.
            return None;
        }
        let asked = Duration::from_millis(u64::try_from(request.timeout_ms).unwrap_or(0));
        let timeout = asked
            .max(self.config.min_timeout)
            .min(self.config.max_timeout);
        let timeout_ms = ms(timeout);
        let now = self.now();
        let keeper = self.config.version.is_keeper();
        let local = self.is_read_only(conn.member);
        let read_only = request.read_only.filter(|_| !keeper).map(|_| local);
        let known = self.sessions.get(request.session);
        if local && known.is_some_and(|known| known.local.is_none()) {
            // The others may have ended the earlier session since.
            return None;
        }
        let id = if local && request.session == 0 {
            if !self.config.local_sessions {
                let zxid = self.zxid_at(conn.member);
                let header = reply::header(0, zxid, NOT_READ_ONLY);
                return Some(Greeting::Failed(header.frame()));
            }
            self.sessions.create(timeout_ms, now)
        } else if request.session == 0 || keeper {
            self.stamp();
            self.catch_up(conn.member);
            self.sessions.create(timeout_ms, now)
        } else {
            // A session that began at a read-only member is unknown to the others.
            let known = self.sessions.get(request.session);
            let known =
                known.filter(|known| known.local.is_none_or(|member| member == conn.member));
            let accepted =
                known.is_some_and(|session| session.password[..] == request.password[..]);
            // A client that reconnects reaches a member that is not cut off.
            let heals = accepted && self.isolated.remove(&request.session).is_some();
            // As in ZooKeeper, the password does not matter. Other members, and an isolated one, do
            // not learn of the new connection.
            let learns = |old: &Arc<Conn>| heals || old.member == conn.member;
            if !self.is_isolated(request.session) {
                for old in self.connections_of(request.session) {
                    if old.id != conn.id && learns(&old) {
                        self.close_moved(&old);
                    }
                }
            }
            if !accepted {
                return Some(Greeting::Refused(reply::connect(None, read_only)));
            }
            request.session
        };
        let session = self.sessions.get_mut(id)?;
        session.timeout_ms = timeout_ms;
        if local && request.session == 0 {
            session.local = Some(conn.member);
        }
        session.connection = Some(conn.id);
        session.last_connection = conn.id;
        // A member that is read-only cannot tell the others.
        if !local {
            self.sessions.touch(id, now);
        }
        conn.set_session(id);
        conn.set_timeout(timeout_ms);
        let resumes = id == request.session;
        self.note(
            id,
            if resumes {
                HistoryEvent::SessionResumed
            } else {
                HistoryEvent::SessionOpened
            },
        );
        let password = if keeper {
            [0; 16]
        } else {
            self.sessions.get(id)?.password
        };
        let timeout = i32::try_from(timeout_ms).unwrap_or(i32::MAX);
        Some(Greeting::Accepted(reply::connect(
            Some((id, timeout, &password)),
            read_only,
        )))
    }

    /// Isolates the member that serves a session; returns `false` if there is no such session.
    pub(crate) fn isolate(&mut self, session: i64, isolation: Isolation) -> bool {
        let known = self.sessions.get(session).is_some();
        if known {
            let isolated = Isolated {
                tree: self.tree.clone(),
                zxid: self.zxid,
                isolation,
            };
            self.isolated.insert(session, isolated);
        }
        known
    }

    /// Ends the isolation of the member that serves a session, and closes its connections.
    pub(crate) fn heal(&mut self, session: i64) {
        if self.isolated.remove(&session).is_none() {
            return;
        }
        let connections: Vec<Arc<Conn>> = self.connections.values().cloned().collect();
        for conn in connections.iter().filter(|conn| conn.session() == session) {
            self.disconnect(conn);
            conn.kill(End::Left);
        }
    }

    /// Returns whether the member that serves a session is isolated.
    pub(crate) fn is_isolated(&self, session: i64) -> bool {
        self.isolated.contains_key(&session)
    }

    /// Returns whether the isolated member that a connection is to can reply to a request without
    /// the others.
    pub(crate) fn answers_alone(&self, conn: &Conn, ask: &Ask) -> bool {
        match &ask.body {
            _ if self.is_read_only(conn.member) => true,
            Ok(
                Request::Ping
                | Request::Read(_)
                | Request::MultiRead(_)
                | Request::Exists { .. }
                | Request::GetAcl { .. },
            ) => true,
            Ok(Request::Sync { .. }) => {
                let of_session = self.isolated.get(&conn.session()).map(|it| it.isolation);
                let isolation = of_session.or_else(|| match self.member(conn.member) {
                    Member::Cut(isolation) => Some(isolation),
                    _ => None,
                });
                isolation == Some(Isolation::DeposedLeader)
            }
            _ => false,
        }
    }

    /// Handles a request to which an isolated member can reply.
    pub(crate) fn submit_isolated(&mut self, conn: &Conn, ask: &Ask, fail: Option<i32>) -> Answer {
        let session = conn.session();
        let read_only = self.is_read_only(conn.member);
        let local = self
            .sessions
            .get(session)
            .is_some_and(|session| session.local.is_some());
        self.swap_isolated(conn);
        let result = match (&ask.body, fail) {
            (_, Some(0)) => Ok(Outcome::Empty),
            (_, Some(code)) => Err(ServerError::Other(code)),
            (Ok(Request::CloseSession), None) if local => {
                self.sessions.remove(session);
                self.note(session, HistoryEvent::SessionClosed);
                Ok(Outcome::Empty)
            }
            (Ok(request), None) if read_only && writes(request) => {
                Err(ServerError::Other(NOT_READ_ONLY))
            }
            (Ok(request), None) => self.execute(conn, session, ask, request),
            (Err(Malformed), None) => Err(ServerError::Marshalling),
        };
        let zxid = self.zxid;
        self.swap_isolated(conn);
        let error = code(&result);
        let path = ask.body.as_ref().map_or("", Request::path).to_owned();
        let close = matches!((ask.op, error), (Op::CloseSession, 0) | (Op::Auth, -115));
        Answer {
            frame: Some(encode(ask, zxid, &result)),
            error,
            path,
            close,
        }
    }

    /// Swaps the isolated member's state with the others'.
    fn swap_isolated(&mut self, conn: &Conn) {
        let session = conn.session();
        if !self.is_isolated(session) {
            self.swap_past(conn.member);
        }
        if let Some(isolated) = self.isolated.get_mut(&session) {
            std::mem::swap(&mut self.tree, &mut isolated.tree);
            std::mem::swap(&mut self.zxid, &mut isolated.zxid);
        }
    }

    /// Returns whether the session was resumed on another connection since.
    pub(crate) fn has_moved(&self, conn: &Conn) -> bool {
        self.sessions
            .get(conn.session())
            .is_some_and(|session| session.last_connection != conn.id)
    }

    /// Closes a connection whose session was resumed on another one.
    pub(crate) fn close_moved(&mut self, old: &Conn) {
        self.record_closed(old, Reason::Moved);
        self.disconnect(old);
        old.kill(End::Fin);
    }

    /// Returns whether a request is answered although its session was resumed at another member
    /// since. The leader refuses the requests that it has to judge: all requests of its own
    /// clients, and the writes of other members' clients.
    pub(crate) fn is_served_there(&self, conn: &Conn, ask: &Ask) -> bool {
        match &ask.body {
            Ok(Request::Auth { .. } | Request::Sasl | Request::CloseSession) => true,
            Ok(Request::Multi(writes)) if writes.is_empty() => true,
            Ok(request) => request.is_read() && self.role(conn.member) == Role::Follower,
            Err(Malformed) => self.role(conn.member) == Role::Follower,
        }
    }

    /// Closes the connections of a session that has ended, at the members that learn of it now.
    fn end_connections(&mut self, session: i64, but: Option<u64>) {
        for conn in self.connections_of(session) {
            let knows = !self.is_cut(&conn) && !self.is_behind(conn.member);
            if knows && Some(conn.id) != but {
                self.end_connection(&conn);
            }
        }
    }

    /// Applies a request and returns the reply.
    pub(crate) fn submit(&mut self, conn: &Conn, ask: &Ask, fail: Option<i32>) -> Answer {
        let session = conn.session();
        // Some requests are answered with the state of the member, and for others it has to catch
        // up first.
        let (reads, waits) = (
            !Self::waits(ask),
            Self::waits(ask) && self.is_behind(conn.member),
        );
        let lags = reads && self.is_behind(conn.member);
        if waits {
            self.catch_up(conn.member);
        } else if lags {
            self.swap_past(conn.member);
        }
        let mut close = false;
        let unknown = fail.is_none() && self.is_unknown(ask);
        let result = if unknown {
            close = !self.config.version.is_keeper() || ask.opcode != opcode::RECONFIG;
            Err(ServerError::Unimplemented)
        } else if lags || self.sessions.get(session).is_some() {
            self.perform(conn, ask, fail)
        } else {
            close = true;
            Err(ServerError::SessionExpired)
        };
        let error = code(&result);
        close |=
            fail.is_none() && matches!((ask.op, error), (Op::CloseSession, 0) | (Op::Auth, -115));
        let zxid = match ask.opcode {
            _ if unknown && !self.config.version.is_keeper() => -1,
            // Requests of these kinds are answered before they reach the code that knows
            // transactions.
            opcode::AUTH | opcode::SASL => 0,
            _ => self.zxid,
        };
        if waits {
            // A write of the member's own client is answered when the member has applied it.
            self.catch_up(conn.member);
        } else if lags {
            self.swap_past(conn.member);
        }
        let frame = match (&ask.body, fail, error) {
            // ZooKeeper fails to encode its own reply.
            (Ok(Request::Write(Write::Check { .. })), None, 0)
                if !self.config.version.is_keeper() =>
            {
                None
            }
            (Ok(Request::CreateSession { .. }), None, 0) => self.greeting(conn),
            _ => Some(encode(ask, zxid, &result)),
        };
        Answer {
            frame,
            error,
            path: path_of(ask, &result),
            close,
        }
    }

    /// Carries out a request, or fails it as a fault demands.
    fn perform(
        &mut self,
        conn: &Conn,
        ask: &Ask,
        fail: Option<i32>,
    ) -> Result<Outcome, ServerError> {
        match (&ask.body, fail) {
            (_, Some(code)) => {
                self.spend_zxid(ask.op);
                if code == 0 {
                    Ok(Outcome::Empty)
                } else {
                    Err(ServerError::Other(code))
                }
            }
            (Err(Malformed), None) => {
                // Since 3.9 a request is decoded before it is given a zxid, except for a multi.
                if self.config.version != Version::V3_9 || ask.op == Op::Multi {
                    self.spend_zxid(ask.op);
                }
                Err(ServerError::Marshalling)
            }
            (Ok(request), None) => self.execute(conn, conn.session(), ask, request),
        }
    }

    /// Returns whether a request is refused as one of an unknown number.
    fn is_unknown(&self, ask: &Ask) -> bool {
        match (ask.opcode, self.config.version) {
            // Since 3.9.6 a client may not send a check.
            (opcode::CHECK, Version::V3_9) => true,
            (opcode::DELETE_CONTAINER | opcode::CREATE_SESSION | opcode::RECONFIG, version) => {
                version.is_keeper()
            }
            _ => matches!(ask.body, Ok(Request::Unimplemented)),
        }
    }

    /// Returns the reply to the connect of a session once more.
    fn greeting(&self, conn: &Conn) -> Option<Frame> {
        let known = self.sessions.get(conn.session())?;
        let timeout = i32::try_from(conn.timeout_ms()).unwrap_or(i32::MAX);
        Some(reply::connect(
            Some((conn.session(), timeout, &known.password)),
            Some(false),
        ))
    }

    /// Uses up a transaction id for a write that fails before it is applied, as ZooKeeper does.
    fn spend_zxid(&mut self, op: Op) {
        if matches!(
            op,
            Op::Create | Op::Delete | Op::SetData | Op::SetAcl | Op::Multi | Op::Check
        ) {
            self.stamp();
        }
    }

    fn execute(
        &mut self,
        conn: &Conn,
        session: i64,
        ask: &Ask,
        request: &Request,
    ) -> Result<Outcome, ServerError> {
        let ids = conn.ids();
        let old: Vec<OldAcl> = self
            .old_acls
            .iter()
            .filter(|old| ask.number < old.until)
            .cloned()
            .collect();
        let ipv6 = self.config.version == Version::V3_9;
        let who = Who {
            old: &old,
            ipv6,
            ..Who::client(session, &ids)
        };
        // A connection that is closed sets no watch.
        let watcher = self.connections.contains_key(&conn.id).then_some(conn.id);
        match request {
            Request::Write(write) => {
                let effects = self
                    .commit(who, std::slice::from_ref(write))
                    .map_err(|(_, error)| error)?;
                let effect = effects.into_iter().next().ok_or(ServerError::Marshalling)?;
                Ok(outcome(effect, ask.opcode == opcode::CREATE))
            }
            Request::Multi(writes) => self.multi(who, writes),
            Request::Read(read) => self.read(who, watcher, read),
            Request::MultiRead(reads) => {
                let mut size = 0;
                let mut results = Vec::new();
                for read in reads {
                    let op = match read {
                        Read::Data { .. } => opcode::GET_DATA,
                        Read::Children { .. } => opcode::GET_CHILDREN,
                        Read::Trips => return Ok(Outcome::Broken(results)),
                    };
                    let result = self.read(who, watcher, read);
                    size += match &result {
                        Ok(Outcome::Data(data, _)) => data.as_ref().map_or(0, |data| data.len()),
                        Ok(Outcome::Children(names, _)) => {
                            names.iter().map(|name| 4 + name.len()).sum()
                        }
                        _ => 0,
                    };
                    if size > HARD_OUT {
                        // The reply would be too large for any client.
                        self.drop_slow(conn);
                        return Err(ServerError::Marshalling);
                    }
                    results.push((op, result));
                }
                Ok(Outcome::Multi(results))
            }
            Request::Exists { path, watch } => {
                plain(path)?;
                let node = self.tree.get(path);
                if let (Some(node), Version::V3_9) = (node, self.config.version) {
                    txn::permit(who, &node.acl, txn::READ)?;
                }
                let stat = node.map(Node::stat);
                if let (true, Some(watcher)) = (*watch, watcher) {
                    self.watch(watcher, Table::Data, path, Mode::OneShot);
                }
                stat.map(Outcome::Stat).ok_or(ServerError::NoNode)
            }
            Request::GetAcl { path } => {
                let node = self.tree.get(path).ok_or(ServerError::NoNode)?;
                txn::permit(who, &node.acl, txn::READ | txn::ADMIN)?;
                let mut acl = node.acl.to_vec();
                if txn::permit(who, &node.acl, txn::ADMIN).is_err() {
                    for entry in acl.iter_mut().filter(|entry| entry.id.scheme == "digest") {
                        let name = entry.id.id.split(':').next().unwrap_or_default();
                        entry.id.id = format!("{name}:x");
                    }
                }
                Ok(Outcome::Acl(acl, node.stat()))
            }
            Request::Sync { path } => Ok(path.clone().map_or(Outcome::Null, Outcome::Path)),
            Request::Ping => Ok(Outcome::Empty),
            Request::CheckWatches { path, kind } => {
                self.watches.check(conn.id, path.as_deref(), *kind)?;
                Ok(Outcome::Empty)
            }
            Request::RemoveWatches { path, kind } => {
                self.watches.remove(conn.id, path.as_deref(), *kind)?;
                let path = path.clone().unwrap_or_default();
                self.note(session, HistoryEvent::WatchRemoved { path });
                Ok(Outcome::Empty)
            }
            Request::SetWatches(wanted) => {
                if let Some(watcher) = watcher {
                    self.set_watches(watcher, wanted)
                        .ok_or(ServerError::Marshalling)?;
                }
                Ok(Outcome::Empty)
            }
            Request::AddWatch { path, mode } => {
                let recursive = match mode {
                    0 => false,
                    1 => true,
                    _ => return Err(ServerError::Marshalling),
                };
                if let Some(watcher) = watcher {
                    self.watch_any(watcher, path.as_deref(), recursive)?;
                }
                Ok(Outcome::Number(0))
            }
            Request::Auth { scheme, data } => {
                match (scheme.as_deref(), data) {
                    (Some("digest"), Some(data)) => {
                        let id = digest::identity(&java_text(data));
                        if self.config.super_digest.as_deref() == Some(&*id) {
                            conn.add_id(AuthId::new("super", ""));
                        }
                        conn.add_id(AuthId::new("digest", id));
                    }
                    // Every connection is authenticated by its address from the start.
                    (Some("ip"), _) if !self.config.version.is_keeper() => {}
                    _ => return Err(ServerError::AuthFailed),
                }
                Ok(Outcome::Empty)
            }
            // The answer is that of a server without SASL.
            Request::Sasl => Ok(Outcome::Null),
            Request::Reconfig => {
                self.stamp();
                Err(ServerError::Other(RECONFIG_DISABLED))
            }
            Request::DeleteContainer => {
                // 3.8 takes the request's header for a part of the path, which is never valid.
                self.stamp();
                Err(ServerError::BadArguments)
            }
            Request::CreateSession { timeout_ms } => {
                self.stamp();
                let timeout_ms = timeout_ms.ok_or(ServerError::Marshalling)?;
                let now = self.now();
                if let Some(known) = self.sessions.get_mut(session) {
                    known.timeout_ms = u64::try_from(timeout_ms).unwrap_or(0);
                }
                self.sessions.touch(session, now);
                Ok(Outcome::Empty)
            }
            Request::WhoAmI => {
                let user = |id: &AuthId| {
                    let name = if id.scheme == "digest" {
                        id.id.split(':').next()
                    } else {
                        Some(&*id.id)
                    };
                    (id.scheme.clone(), name.unwrap_or_default().to_owned())
                };
                Ok(Outcome::Ids(ids.iter().map(user).collect()))
            }
            Request::GetEphemerals { prefix } => {
                // The prefix is trimmed as Java does it.
                let trimmed = prefix
                    .as_deref()
                    .unwrap_or_default()
                    .trim_matches(|c| c <= ' ');
                let prefix = prefix
                    .as_deref()
                    .filter(|_| !matches!(trimmed, "" | "/"))
                    .unwrap_or_default();
                let mine = self
                    .tree
                    .ephemerals(session)
                    .filter(|path| path.starts_with(prefix));
                Ok(Outcome::Strings(mine.map(str::to_owned).collect()))
            }
            Request::GetAllChildrenNumber { path } => {
                let node = self.tree.get(path).ok_or(ServerError::NoNode)?;
                txn::permit(who, &node.acl, txn::READ)?;
                let below = format!("{}/", path.trim_end_matches('/'));
                let number = self
                    .tree
                    .paths()
                    .filter(|path| path.len() > 1 && path.starts_with(&below))
                    .count();
                Ok(Outcome::Number(crate::wire::jute::length(number)))
            }
            Request::CloseSession => {
                self.end_session(session, HistoryEvent::SessionClosed);
                self.end_connections(session, Some(conn.id));
                Ok(Outcome::Empty)
            }
            Request::Unimplemented => Err(ServerError::Unimplemented),
        }
    }

    fn read(
        &mut self,
        who: Who<'_>,
        watcher: Option<u64>,
        read: &Read,
    ) -> Result<Outcome, ServerError> {
        let node = self.tree.get(read.path()).ok_or(ServerError::NoNode)?;
        txn::permit(who, &node.acl, txn::READ)?;
        let (outcome, watch, table) = match read {
            Read::Data { watch, .. } => (
                Outcome::Data(node.data.clone(), node.stat()),
                watch,
                Table::Data,
            ),
            Read::Children { watch, stat, .. } => {
                let names = node.children.keys().map(|name| name.to_string()).collect();
                (
                    Outcome::Children(names, stat.then(|| node.stat())),
                    watch,
                    Table::Child,
                )
            }
            Read::Trips => return Err(ServerError::Marshalling),
        };
        if let (true, Some(watcher)) = (*watch, watcher) {
            self.watch(watcher, table, read.path(), Mode::OneShot);
        }
        Ok(outcome)
    }

    fn multi(&mut self, who: Who<'_>, writes: &[Write]) -> Result<Outcome, ServerError> {
        if let Some(tripped) = self.trips(writes) {
            return tripped;
        }
        let v3_8 = self.config.version == Version::V3_8;
        let results = match self.commit(who, writes) {
            Ok(effects) => effects
                .into_iter()
                .zip(writes)
                .map(|(effect, write)| part(effect, write, v3_8))
                .collect(),
            // A create that ZooKeeper fails to decode fails the whole multi.
            Err((_, ServerError::Marshalling)) => return Err(ServerError::Marshalling),
            Err((failed, _)) if v3_8 && writes.get(failed).is_some_and(txn::lacks_ttl) => {
                return Err(ServerError::Marshalling);
            }
            Err((failed, error)) => (0..writes.len())
                .map(|index| rolled_back(index, failed, error))
                .collect(),
        };
        Ok(Outcome::Multi(results))
    }

    /// Returns the reply to a multi over which ZooKeeper trips before it does anything.
    fn trips(&mut self, writes: &[Write]) -> Option<Result<Outcome, ServerError>> {
        let v3_8 = self.config.version == Version::V3_8;
        match writes
            .iter()
            .find(|write| matches!(write, Write::NullPath(_) | Write::NullAcl))?
        {
            Write::NullPath(_) if v3_8 => {
                // The id was given, and no transaction exists for it.
                self.skipped += 1;
                return Some(Ok(Outcome::Broken(Vec::new())));
            }
            // ZooKeeper fails while it reads the request.
            _ if writes.contains(&Write::NullAcl) => {}
            // Since 3.9 there is a transaction, which fails.
            _ => drop(self.stamp()),
        }
        Some(Err(ServerError::Marshalling))
    }

    /// Applies writes as one transaction; returns their effects, or the index of the write that
    /// failed. The watchers are notified before any reply is sent.
    pub(crate) fn commit(
        &mut self,
        who: Who<'_>,
        writes: &[Write],
    ) -> Result<Vec<Effect>, (usize, ServerError)> {
        let at = self.stamp();
        let old = self.old_acls_of(writes);
        let (effects, changes) = txn::apply(&mut self.tree, who, writes, at)?;
        self.keep_old_acls(old);
        self.publish(who.session, &changes);
        Ok(effects)
    }

    /// Returns the lists that writes replace, if races are lost: earlier requests are checked
    /// against the old list.
    fn old_acls_of(&self, writes: &[Write]) -> Vec<OldAcl> {
        let old = |write: &Write| {
            let Write::SetAcl { path, .. } = write else {
                return None;
            };
            let acl = Arc::clone(&self.tree.get(path)?.acl);
            Some(OldAcl {
                path: path.clone(),
                acl,
                until: self.next_request,
            })
        };
        writes
            .iter()
            .filter(|_| self.config.races)
            .filter_map(old)
            .collect()
    }

    /// Remembers lists that were replaced.
    fn keep_old_acls(&mut self, replaced: Vec<OldAcl>) {
        for old in replaced {
            self.old_acls.retain(|older| older.path != old.path);
            self.old_acls.truncate(OLD_ACLS - 1);
            self.old_acls.insert(0, old);
        }
    }

    /// Notes the changes of a transaction by a session, and notifies their watchers.
    fn publish(&mut self, session: i64, changes: &[Change]) {
        for change in changes {
            self.note(session, HistoryEvent::of(change));
        }
        for change in changes {
            self.fire(change, |_, member| member != Member::Behind);
            self.miss(change);
        }
    }

    /// Notifies the clients of the members that learn of a change now.
    pub(crate) fn fire(&mut self, change: &Change, learns: impl Fn(usize, Member) -> bool) {
        let (connections, members) = (&self.connections, &self.members);
        let of = |id| {
            let index = connections.get(&id).map(|conn: &Arc<Conn>| conn.member);
            let standing = index.and_then(|index| Some((index, members.get(index)?.member)));
            standing.is_some_and(|(index, member)| learns(index, member))
        };
        let zxid = if self.config.version == Version::V3_9 {
            self.zxid
        } else {
            -1
        };
        // All receivers of one event share its frame.
        let mut frame = None;
        for event in self.watches.fire(change, of) {
            frame = frame.filter(|(kind, path, _): &(i32, String, Frame)| {
                (*kind, path) == (event.kind, &event.path)
            });
            let (_, _, frame) = frame.get_or_insert_with(|| {
                (
                    event.kind,
                    event.path.clone(),
                    reply::notification(event.kind, &event.path, zxid),
                )
            });
            let frame = frame.clone();
            self.notify(&event, frame);
        }
    }

    fn notify(&mut self, event: &Event, frame: Frame) {
        let Some(conn) = self.connections.get(&event.connection).cloned() else {
            return;
        };
        if self.is_cut(&conn) {
            // An isolated member does not learn of changes.
            return;
        }
        if let Some(acl) = &event.acl {
            // Since the fix of CVE-2024-23944 a watch reveals no more than a read would.
            let ids = conn.ids();
            let who = Who::client(conn.session(), &ids);
            if txn::permit(who, acl, txn::READ).is_err() {
                return;
            }
        }
        let session = conn.session();
        self.send(&conn, frame, None);
        self.counters.count_notification(session);
        self.note(
            session,
            HistoryEvent::WatchFired {
                path: event.path.clone(),
                event: event.kind,
            },
        );
        self.record(
            LogKind::Notified,
            0,
            session,
            Op::Other(event.kind),
            event.kind,
            &event.path,
            0,
        );
    }

    /// Sets watches again; returns `None` if one of the lists, or a path in one, is null. The
    /// watches before it are set.
    fn set_watches(&mut self, connection: u64, wanted: &SetWatches) -> Option<()> {
        // Events that a client has missed are sent without a transaction id, and since 3.9.6 only
        // if the client may read the node.
        let hides = self.config.version == Version::V3_9;
        let missed = |state: &mut Self, path: &str, kind| {
            let acl = state
                .tree
                .get(path)
                .filter(|_| hides)
                .map(|node| Arc::clone(&node.acl));
            let event = Event {
                connection,
                kind,
                path: path.to_owned(),
                acl,
            };
            state.notify(&event, reply::notification(kind, path, -1));
        };
        for path in paths(&wanted.data) {
            let path = path?;
            match self.tree.get(path) {
                None => missed(self, path, watch::DELETED),
                Some(node) if node.mzxid > wanted.relative_zxid => {
                    missed(self, path, watch::DATA_CHANGED);
                }
                Some(_) => self.watch(connection, Table::Data, path, Mode::OneShot),
            }
        }
        for path in paths(&wanted.exist) {
            let path = path?;
            if self.tree.get(path).is_some() {
                missed(self, path, watch::CREATED);
            } else {
                self.watch(connection, Table::Data, path, Mode::OneShot);
            }
        }
        for path in paths(&wanted.child) {
            let path = path?;
            match self.tree.get(path) {
                None => missed(self, path, watch::DELETED),
                Some(node) if node.pzxid > wanted.relative_zxid => {
                    missed(self, path, watch::CHILDREN_CHANGED);
                }
                Some(_) => self.watch(connection, Table::Child, path, Mode::OneShot),
            }
        }
        for path in wanted.persistent.as_ref()? {
            self.watch_any(connection, path.as_deref(), false).ok()?;
        }
        for path in wanted.recursive.as_ref()? {
            self.watch_any(connection, path.as_deref(), true).ok()?;
        }
        Some(())
    }

    fn watch(&mut self, connection: u64, table: Table, path: &str, mode: Mode) {
        self.watches.add(connection, table, path, mode);
        self.note_watch(connection, path, WatchKind::of(table, mode));
    }

    /// Sets a persistent watch. Nothing ever happens to the null path, so it is watched without
    /// effect, and in 3.8 once for each connection: ZooKeeper trips over the second watch.
    fn watch_any(
        &mut self,
        connection: u64,
        path: Option<&str>,
        recursive: bool,
    ) -> Result<(), ServerError> {
        match path {
            Some(path) => self.watch_persistent(connection, path, recursive),
            None => self.watches.add_null(connection)?,
        }
        Ok(())
    }

    fn watch_persistent(&mut self, connection: u64, path: &str, recursive: bool) {
        self.watches.add_persistent(connection, path, recursive);
        let kind = if recursive {
            WatchKind::Recursive
        } else {
            WatchKind::Persistent
        };
        self.note_watch(connection, path, kind);
    }

    fn note_watch(&mut self, connection: u64, path: &str, watch: WatchKind) {
        let session = self
            .connections
            .get(&connection)
            .map_or(0, |conn| conn.session());
        self.note(
            session,
            HistoryEvent::WatchSet {
                path: path.to_owned(),
                watch,
            },
        );
    }

    /// Ends a session and deletes its nodes in one transaction; returns `false` if there is no such
    /// session.
    fn end_session(&mut self, id: i64, end: HistoryEvent) -> bool {
        if self.sessions.remove(id).is_none() {
            return false;
        }
        let zxid = self.stamp().zxid;
        self.note(id, end);
        let paths: Vec<String> = self.tree.ephemerals(id).map(str::to_owned).collect();
        let mut changes = Vec::new();
        for path in paths {
            let change = Change::of(&self.tree, Happened::Deleted, &path);
            if self.tree.delete(&path, zxid).is_some() {
                changes.push(change);
            }
        }
        self.publish(id, &changes);
        true
    }

    /// Expires a session: its connection is closed without a notice. Returns `false` if there is no
    /// such session.
    pub(crate) fn expire(&mut self, id: i64) -> bool {
        // The others cannot reach a connection of an isolated member.
        self.end_connections(id, None);
        let ended = self.end_session(id, HistoryEvent::SessionExpired);
        self.forget_isolated(id);
        ended
    }

    /// Closes the connection of a session that has expired.
    pub(crate) fn end_connection(&mut self, conn: &Conn) {
        self.forget(conn);
        self.watches.disconnect(conn.id);
        conn.expire();
    }

    /// Expires the sessions that are overdue; returns whether there were any.
    pub(crate) fn tick(&mut self) -> bool {
        if !self.has_quorum() {
            return false;
        }
        let overdue = self.sessions.overdue(self.now());
        for id in &overdue {
            tracing::debug!(session = %format_args!("{id:#x}"), "session expired");
            self.expire(*id);
        }
        !overdue.is_empty()
    }

    /// Deletes the containers and TTL nodes that are due, in a transaction each; returns how many
    /// there were.
    pub(crate) fn sweep(&mut self) -> usize {
        if !self.has_quorum() {
            return 0;
        }
        let due = self.tree.perished(self.now());
        for path in &due {
            let zxid = self.stamp().zxid;
            let change = Change::of(&self.tree, Happened::Deleted, path);
            if self.tree.delete(path, zxid).is_some() {
                self.publish(0, &[change]);
            }
        }
        due.len()
    }

    /// Queues a frame for a client. A client that does not read loses its connection.
    pub(crate) fn send(&mut self, conn: &Conn, frame: Frame, replied: Option<Replied>) {
        conn.push(frame, replied);
        if conn.waiting().0 > HARD_OUT {
            self.drop_slow(conn);
        }
        while self.waiting.load(Ordering::Relaxed) > self.config.max_queued {
            let slowest = self
                .connections
                .values()
                .max_by_key(|conn| (conn.waiting().1, conn.id))
                .cloned();
            match slowest {
                Some(conn) if conn.waiting().1 > 0 => self.drop_slow(&conn),
                // The remaining cases belong to connections that are about to end.
                _ => return,
            }
        }
    }

    fn drop_slow(&mut self, conn: &Conn) {
        self.record_closed(conn, Reason::Slow);
        self.disconnect(conn);
        conn.kill(End::Reset);
    }

    /// Logs that the server closes a connection of its own accord.
    pub(crate) fn record_closed(&mut self, conn: &Conn, reason: Reason) {
        let session = conn.session();
        let id = format!("{session:#x}");
        tracing::warn!(peer = %conn.peer, session = %id, ?reason, "connection closed");
        self.record(LogKind::Closed(reason), 0, session, Op::Connect, 0, "", 0);
    }

    #[expect(clippy::too_many_arguments, reason = "the columns of a log entry")]
    pub(crate) fn record(
        &mut self,
        kind: LogKind,
        request: u64,
        session: i64,
        op: Op,
        opcode: i32,
        path: &str,
        error: i32,
    ) {
        let (zxid, at) = (self.zxid, Instant::now().into_std());
        let path = beginning(path).to_owned();
        let entry = |n| LogEntry {
            n,
            request,
            session,
            op,
            opcode,
            path: path.clone(),
            zxid,
            error,
            at,
            kind,
        };
        self.log.push(path.len(), entry);
    }

    fn note(&mut self, session: i64, event: HistoryEvent) {
        self.history
            .note(session, self.zxid, Instant::now().into_std(), event);
    }
}

/// The code of a write on a member that is read-only.
const NOT_READ_ONLY: i32 = -119;

/// Returns whether a request is refused by a member that is read-only.
fn writes(request: &Request) -> bool {
    !request.is_read() || matches!(request, Request::Sync { .. })
}

/// The code of a reconfiguration that is not enabled.
const RECONFIG_DISABLED: i32 = -123;

fn code(result: &Result<Outcome, ServerError>) -> i32 {
    result
        .as_ref()
        .map_or_else(|error| error.code(), Outcome::error)
}

/// Returns the path that a request names, or for a create that was done, the path of the node.
fn path_of(ask: &Ask, result: &Result<Outcome, ServerError>) -> String {
    let first = match (result, &ask.body) {
        (Ok(outcome), Ok(Request::Write(_))) => Some(outcome),
        (Ok(Outcome::Multi(results)), _) => {
            results.first().and_then(|(_, result)| result.as_ref().ok())
        }
        _ => None,
    };
    match first {
        Some(Outcome::Path(created) | Outcome::PathStat(created, _)) => created.clone(),
        _ => ask.body.as_ref().map_or("", Request::path).to_owned(),
    }
}

fn encode(ask: &Ask, zxid: i64, result: &Result<Outcome, ServerError>) -> Frame {
    let xid = if ask.op == Op::Ping {
        reply::PING_XID
    } else {
        ask.xid
    };
    let mut writer = reply::header(xid, zxid, code(result));
    if let Ok(outcome) = result {
        outcome.encode(&mut writer);
    }
    writer.frame()
}

/// Returns the paths of a list of watches, up to the first that is null, over which ZooKeeper
/// trips.
fn paths(list: &Strings) -> impl Iterator<Item = Option<&str>> {
    let whole = list.is_some();
    let paths = list.iter().flatten().map(Option::as_deref);
    paths.chain((!whole).then_some(None))
}

/// Cuts a path to the length that the log keeps.
fn beginning(path: &str) -> &str {
    let mut end = path.len().min(LOGGED_PATH);
    while !path.is_char_boundary(end) {
        end -= 1;
    }
    &path[..end]
}

/// Checks the path of a read: it is looked up as it is, and only a NUL is refused.
fn plain(path: &str) -> Result<(), ServerError> {
    if path.contains('\0') {
        Err(ServerError::BadArguments)
    } else {
        Ok(())
    }
}

/// Returns the result of a write in a multi that was done.
fn part(effect: Effect, write: &Write, v3_8: bool) -> (i32, Result<Outcome, ServerError>) {
    let (op, bare) = match write {
        Write::Delete { .. } => (opcode::DELETE, false),
        Write::SetData { .. } | Write::SetAcl { .. } => (opcode::SET_DATA, false),
        Write::Check { .. } | Write::NullPath(_) | Write::NullAcl => (opcode::CHECK, false),
        // Until 3.8.1 a create2 in a multi was handled as a create, whose reply has no Stat.
        Write::Create(create) => match create.opcode {
            opcode::CREATE => (opcode::CREATE, true),
            opcode::CREATE2 if v3_8 => (opcode::CREATE, true),
            _ => (opcode::CREATE2, false),
        },
    };
    (op, Ok(outcome(effect, bare)))
}

/// Returns the result of a write in a multi of which one has failed.
fn rolled_back(
    index: usize,
    failed: usize,
    error: ServerError,
) -> (i32, Result<Outcome, ServerError>) {
    let error = match index.cmp(&failed) {
        std::cmp::Ordering::Less => ServerError::Ok,
        std::cmp::Ordering::Equal => error,
        std::cmp::Ordering::Greater => ServerError::RuntimeInconsistency,
    };
    (opcode::ERROR, Err(error))
}

fn outcome(effect: Effect, bare: bool) -> Outcome {
    match effect {
        Effect::Created(path, _) if bare => Outcome::Path(path),
        Effect::Created(path, stat) => Outcome::PathStat(path, stat),
        Effect::Set(stat) => Outcome::Stat(stat),
        Effect::Deleted | Effect::Checked => Outcome::Empty,
    }
}
