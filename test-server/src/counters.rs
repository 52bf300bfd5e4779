//! The counters and the log of requests.

use std::collections::BTreeMap;
use std::time::Instant;

use crate::bounded::Bounded;
use crate::wire::opcode;

/// The operation of a request.
///
/// ```
/// use zookeeper_client::Client;
/// use zookeeper_test_server::{Op, Server};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let server = Server::start()?;
/// let client = Client::connect(&server.connect_string()).await?;
/// client.sync("/").await?;
/// client.list_children("/").await?;
/// let counters = server.counters();
/// assert_eq!((counters.requests(Op::Sync), counters.requests(Op::GetChildren)), (1, 1));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Op {
    /// Any create: `create`, `create2`, `createContainer`, `createTTL`. [`LogEntry::opcode`] tells
    /// them apart.
    Create,
    /// `delete`.
    Delete,
    /// `exists`.
    Exists,
    /// `getData`.
    GetData,
    /// `setData`.
    SetData,
    /// `getChildren` and `getChildren2`.
    GetChildren,
    /// `sync`.
    Sync,
    /// `multi`: writes and checks in one transaction.
    Multi,
    /// `multiRead`.
    MultiRead,
    /// `check` outside a multi.
    Check,
    /// `removeWatches`.
    RemoveWatches,
    /// `setWatches` and `setWatches2`, which clients send when they reconnect.
    SetWatches,
    /// `addWatch`.
    AddWatch,
    /// `auth`.
    Auth,
    /// `ping`.
    Ping,
    /// `closeSession`.
    CloseSession,
    /// The first frame of a connection.
    Connect,
    /// `getACL`.
    GetAcl,
    /// `setACL`.
    SetAcl,
    /// Any other operation, by its number on the wire.
    Other(i32),
}

impl Op {
    pub(crate) fn of(code: i32) -> Self {
        match code {
            opcode::CREATE | opcode::CREATE2 | opcode::CREATE_CONTAINER | opcode::CREATE_TTL => {
                Self::Create
            }
            opcode::DELETE => Self::Delete,
            opcode::EXISTS => Self::Exists,
            opcode::GET_DATA => Self::GetData,
            opcode::SET_DATA => Self::SetData,
            opcode::GET_CHILDREN | opcode::GET_CHILDREN2 => Self::GetChildren,
            opcode::SYNC => Self::Sync,
            opcode::MULTI => Self::Multi,
            opcode::MULTI_READ => Self::MultiRead,
            opcode::CHECK => Self::Check,
            opcode::REMOVE_WATCHES => Self::RemoveWatches,
            opcode::SET_WATCHES | opcode::SET_WATCHES2 => Self::SetWatches,
            opcode::ADD_WATCH => Self::AddWatch,
            opcode::AUTH => Self::Auth,
            opcode::PING => Self::Ping,
            opcode::CLOSE_SESSION => Self::CloseSession,
            opcode::GET_ACL => Self::GetAcl,
            opcode::SET_ACL => Self::SetAcl,
            other => Self::Other(other),
        }
    }
}

/// Counts of requests and notifications, in all and by session;
/// [`Server::counters`](crate::Server::counters) takes a snapshot.
///
/// A request counts when its frame has arrived, whether or not it is applied or answered.
///
/// ```
/// use zookeeper_client::{Acls, Client, CreateMode};
/// use zookeeper_test_server::{Op, Server};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let server = Server::start()?;
/// server.create("/a", "")?;
/// let client = Client::connect(&server.connect_string()).await?;
/// server.reset_counters();
///
/// // What a read with a watch costs, and one event.
/// let (_data, _stat, watcher) = client.get_and_watch_data("/a").await?;
/// assert_eq!(server.counters().watches(), 1);
/// server.set_data("/a", "new")?;
/// watcher.changed().await;
/// let counters = server.counters();
/// assert_eq!((counters.requests(Op::GetData), counters.total_requests()), (1, 1));
/// assert_eq!((counters.notifications(), counters.watches()), (1, 0));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    by_session: BTreeMap<i64, BTreeMap<Op, u64>>,
    notifications: BTreeMap<i64, u64>,
    watches: usize,
}

impl Counters {
    /// Returns the number of requests for an operation.
    #[must_use]
    pub fn requests(&self, op: Op) -> u64 {
        self.by_session
            .values()
            .filter_map(|ops| ops.get(&op))
            .sum()
    }

    /// Returns the number of all requests but pings and connects.
    #[must_use]
    pub fn total_requests(&self) -> u64 {
        self.by_session.values().map(total).sum()
    }

    /// Returns the number of a session's requests for an operation. A connect that asks for a new
    /// session counts for session 0.
    #[must_use]
    pub fn requests_of(&self, session: i64, op: Op) -> u64 {
        self.by_session
            .get(&session)
            .and_then(|ops| ops.get(&op))
            .copied()
            .unwrap_or(0)
    }

    /// Returns the number of all requests of a session but pings and connects.
    #[must_use]
    pub fn total_requests_of(&self, session: i64) -> u64 {
        self.by_session.get(&session).map_or(0, total)
    }

    /// Returns the number of watch events that were sent.
    #[must_use]
    pub fn notifications(&self) -> u64 {
        self.notifications.values().sum()
    }

    /// Returns the number of watch events that were sent to a session.
    #[must_use]
    pub fn notifications_of(&self, session: i64) -> u64 {
        self.notifications.get(&session).copied().unwrap_or(0)
    }

    /// Returns the number of watches that are set at the moment of the snapshot. Resetting the
    /// counters does not change it.
    #[must_use]
    pub fn watches(&self) -> usize {
        self.watches
    }

    pub(crate) fn count(&mut self, session: i64, op: Op) {
        *self
            .by_session
            .entry(session)
            .or_default()
            .entry(op)
            .or_default() += 1;
    }

    pub(crate) fn count_notification(&mut self, session: i64) {
        *self.notifications.entry(session).or_default() += 1;
    }

    pub(crate) fn with_watches(&self, watches: usize) -> Self {
        Self {
            watches,
            ..self.clone()
        }
    }
}

fn total(ops: &BTreeMap<Op, u64>) -> u64 {
    ops.iter()
        .filter(|(op, _)| !matches!(op, Op::Ping | Op::Connect))
        .map(|(_, count)| count)
        .sum()
}

/// What happened to a request or a connection.
///
/// ```
/// use zookeeper_client::Client;
/// use zookeeper_test_server::{LogKind, Loss, Match, Op, Server};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let server = Server::start()?;
/// let client = Client::connect(&server.connect_string()).await?;
/// server.drop_request(Match::op(Op::Sync), Loss::Reset);
/// assert!(client.sync("/").await.is_err());
/// let syncs: Vec<LogKind> =
///     server.log().iter().filter(|entry| entry.op == Op::Sync).map(|entry| entry.kind).collect();
/// assert_eq!(syncs, [LogKind::Arrived, LogKind::Discarded]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LogKind {
    /// The request's frame has arrived.
    Arrived,
    /// The request was applied: a write was committed, or a read was done.
    Applied,
    /// The reply to the request is being written to the socket.
    Replied,
    /// The request was not applied and will not be: a fault lost it, its session has reconnected,
    /// or it is a read and its connection is closed.
    Discarded,
    /// A watch event was queued for the session's connection. There is no request.
    Notified,
    /// The server has closed the session's connection of its own accord. There is no request.
    Closed(Reason),
}

/// The reason for which the server has closed a connection of its own accord.
///
/// ```
/// use std::io::Write as _;
/// use std::time::Duration;
/// use zookeeper_test_server::{LogKind, Reason, Server};
///
/// # fn main() -> std::io::Result<()> {
/// let server = Server::start()?;
/// let mut connection = std::net::TcpStream::connect(server.addr())?;
/// connection.write_all(&i32::MAX.to_be_bytes())?;
/// let closed = |kind| kind == LogKind::Closed(Reason::Oversized);
/// let logged = server.wait_until_blocking(
///     |view| view.log().any(|entry| closed(entry.kind)),
///     Duration::from_secs(5),
/// );
/// assert!(logged);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// The client has sent data that does not follow the protocol, or a request that this version
    /// does not know, and over which it closes the connection.
    Malformed,
    /// The client has sent a frame that is longer than
    /// [`Builder::max_frame`](crate::Builder::max_frame).
    Oversized,
    /// The session was resumed on another connection. A connection to another member is closed only
    /// when its client sends a request that the leader has to judge: a write, or if the member is
    /// the leader, any request.
    Moved,
    /// The client does not read: more data waits for it than the server keeps for one connection,
    /// or more than for any other client when all connections have reached
    /// [`Builder::max_queued`](crate::Builder::max_queued).
    Slow,
}

/// An entry of the server's log, which [`Server::log`](crate::Server::log) returns.
///
/// ```
/// use zookeeper_client::{Acls, Client, CreateMode};
/// use zookeeper_test_server::{LogKind, Op, Server};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let server = Server::start()?;
/// let client = Client::connect(&server.connect_string()).await?;
/// let sequential = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
/// client.create("/n-", b"", &sequential).await?;
/// let log = server.log();
/// let applied = log.iter().find(|entry| (entry.op, entry.kind) == (Op::Create, LogKind::Applied));
/// assert_eq!(applied.map(|entry| (&*entry.path, entry.error)), Some(("/n-0000000000", 0)));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LogEntry {
    /// The number of the entry: one more than the previous entry's.
    pub n: u64,
    /// The number of the request, the same in all its entries; 0 if there is none.
    pub request: u64,
    /// The session.
    pub session: i64,
    /// The operation.
    pub op: Op,
    /// The operation's number on the wire; for a notification, the type of the event.
    pub opcode: i32,
    /// The path; of a multi, the first; of a create that was applied, the path of the node. At most
    /// 4096 bytes of it.
    pub path: String,
    /// The id of the server's last transaction at that moment.
    pub zxid: i64,
    /// The error code of the reply; 0 if there is no error.
    pub error: i32,
    /// The time of the event.
    pub at: Instant,
    /// The kind of event.
    pub kind: LogKind,
}

pub(crate) type Log = Bounded<LogEntry>;
