//! The state of the server as a test sees it.

use std::time::Duration;

use crate::counters::{Counters, LogEntry};
use crate::history::HistoryEntry;
use crate::state::State;
use crate::tree::NodeKind;

/// The state of a session, which [`Server::sessions`](crate::Server::sessions) returns.
///
/// ```
/// use zookeeper_client::{Acls, Client, CreateMode};
/// use zookeeper_test_server::Server;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let server = Server::start()?;
/// let client = Client::connect(&server.connect_string()).await?;
/// client.create("/here", b"", &CreateMode::Ephemeral.with_acls(Acls::anyone_all())).await?;
/// let session = &server.sessions()[0];
/// assert_eq!(session.timeout, client.session_timeout());
/// assert_eq!(session.ephemerals, ["/here"]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SessionInfo {
    /// The id of the session.
    pub id: i64,
    /// The timeout that was granted.
    pub timeout: Duration,
    /// Whether the connection on which the session began, or was last resumed, is open.
    pub connected: bool,
    /// The ephemeral nodes of the session, sorted.
    pub ephemerals: Vec<String>,
    /// The age of the session.
    pub age: Duration,
}

/// The state of a node, which [`Server::node`](crate::Server::node) returns.
///
/// ```
/// use zookeeper_test_server::{NodeKind, Server};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let server = Server::start()?;
/// server.create("/a/b", "data")?;
/// let node = server.node("/a").ok_or("no node")?;
/// assert_eq!((node.kind, node.num_children, node.next_sequence), (NodeKind::Persistent, 1, 1));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeInfo {
    /// The data of the node; empty if it is null.
    pub data: Vec<u8>,
    /// The kind of the node.
    pub kind: NodeKind,
    /// The id of the transaction that created it.
    pub czxid: i64,
    /// The id of the last transaction that changed its data.
    pub mzxid: i64,
    /// The id of the last transaction that created or deleted a child.
    pub pzxid: i64,
    /// The number of changes of its data.
    pub version: i32,
    /// The number of creates and deletes of children.
    pub cversion: i32,
    /// The number of changes of its access control list.
    pub aversion: i32,
    /// The session of an ephemeral node; 0 for other nodes.
    pub ephemeral_owner: i64,
    /// The number of its children.
    pub num_children: usize,
    /// The sequence number of the next sequential child.
    pub next_sequence: i32,
}

/// The state of the server at one moment, which is passed to the conditions of
/// [`Server::wait_until`](crate::Server::wait_until).
///
/// The server does nothing else while a condition runs. The condition must not call methods of
/// [`Server`](crate::Server), because such a call would deadlock.
///
/// ```
/// use std::time::Duration;
/// use zookeeper_client::Client;
/// use zookeeper_test_server::{LogKind, Op, Server};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let server = Server::start()?;
/// server.create("/a", "")?;
/// let client = Client::connect(&server.connect_string()).await?;
/// let (_data, _stat, _watcher) = client.get_and_watch_data("/a").await?;
/// let settled = server.wait_until(
///     |view| {
///         let mut newest_first = view.log().rev();
///         let replied = newest_first.any(|e| (e.op, e.kind) == (Op::GetData, LogKind::Replied));
///         replied && view.watches_on("/a").len() == 1
///     },
///     Duration::from_secs(5),
/// );
/// assert!(settled.await);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    pub(crate) state: &'a State,
}

impl View<'_> {
    /// Returns whether a node exists.
    #[must_use]
    pub fn exists(&self, path: &str) -> bool {
        self.state.tree.get(path).is_some()
    }

    /// Returns the names of a node's children, sorted; none if there is no such node.
    #[must_use]
    pub fn children(&self, path: &str) -> Vec<String> {
        let mut names: Vec<String> = self
            .state
            .tree
            .get(path)
            .map(|node| node.children.keys().map(|name| name.to_string()).collect())
            .unwrap_or_default();
        names.sort();
        names
    }

    /// Returns a node; `None` if it does not exist.
    #[must_use]
    pub fn node(&self, path: &str) -> Option<NodeInfo> {
        let node = self.state.tree.get(path)?;
        let stat = node.stat();
        Some(NodeInfo {
            data: node.data.as_deref().map(<[u8]>::to_vec).unwrap_or_default(),
            kind: node.kind,
            czxid: stat.czxid,
            mzxid: stat.mzxid,
            pzxid: stat.pzxid,
            version: stat.version,
            cversion: stat.cversion,
            aversion: stat.aversion,
            ephemeral_owner: stat.ephemeral_owner,
            num_children: node.children.len(),
            next_sequence: node.creates,
        })
    }

    /// Returns the sessions, in the order of their ids.
    #[must_use]
    pub fn sessions(&self) -> Vec<SessionInfo> {
        let now = self.state.now();
        let info = |(id, session): (i64, &crate::sessions::Session)| SessionInfo {
            id,
            timeout: Duration::from_millis(session.timeout_ms),
            connected: self.state.connection_of(id).is_some(),
            ephemerals: self.state.tree.ephemerals(id).map(str::to_owned).collect(),
            age: Duration::from_millis(now.saturating_sub(session.created_at)),
        };
        self.state.sessions.iter().map(info).collect()
    }

    /// Returns the counters.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.state.counters.with_watches(self.state.watches.len())
    }

    /// Returns the number of watches that are set: one for each path, kind (data or child) and
    /// connection.
    #[must_use]
    pub fn watches(&self) -> usize {
        self.state.watches.len()
    }

    /// Returns the sessions that watch a path: its data or its children. Recursive watches above it
    /// do not count.
    #[must_use]
    pub fn watches_on(&self, path: &str) -> Vec<i64> {
        let connections = self.state.watches.on(path);
        let mut sessions: Vec<i64> = connections
            .iter()
            .filter_map(|id| self.state.connections.get(id).map(|conn| conn.session()))
            .collect();
        sessions.sort_unstable();
        sessions.dedup();
        sessions
    }

    /// Returns the entries of the log, oldest first. To look for a recent one, use
    /// [`Iterator::rev`].
    pub fn log(&self) -> impl DoubleEndedIterator<Item = &LogEntry> {
        self.state.log.iter()
    }

    /// Returns the entries of the history, oldest first. To look for a recent one, use
    /// [`Iterator::rev`].
    pub fn history(&self) -> impl DoubleEndedIterator<Item = &HistoryEntry> {
        self.state.history.iter()
    }

    /// Returns the id of the last transaction.
    #[must_use]
    pub fn last_zxid(&self) -> i64 {
        self.state.zxid
    }
}
