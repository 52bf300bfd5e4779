//! The server as its owner sees it.

use std::time::Duration;

use crate::counters::{Counters, LogEntry};
use crate::state::State;
use crate::tree::NodeKind;

/// A session.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SessionInfo {
    /// Its id.
    pub id: i64,
    /// The timeout that was negotiated.
    pub timeout: Duration,
    /// Whether it has a connection now.
    pub connected: bool,
    /// Its ephemeral nodes, sorted.
    pub ephemerals: Vec<String>,
    /// How long it has existed.
    pub age: Duration,
}

/// A node.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeInfo {
    /// Its data; null data is empty here.
    pub data: Vec<u8>,
    /// What kind of node it is.
    pub kind: NodeKind,
    /// The transaction that created it.
    pub czxid: i64,
    /// The last transaction that changed its data.
    pub mzxid: i64,
    /// The last transaction that created or deleted a child.
    pub pzxid: i64,
    /// Changes of its data.
    pub version: i32,
    /// Creates and deletes of children, as clients see it.
    pub cversion: i32,
    /// Changes of its access control list.
    pub aversion: i32,
    /// The session of an ephemeral node, else 0.
    pub ephemeral_owner: i64,
    /// How many children it has.
    pub num_children: usize,
    /// The number that the next sequential child gets.
    pub next_sequence: i32,
}

/// The server at one moment, for the conditions of [`Server::wait_until`](crate::Server::wait_until).
///
/// A condition runs while the server stands still, so it must not call the server itself.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    pub(crate) state: &'a State,
}

impl View<'_> {
    /// Whether a node exists.
    #[must_use]
    pub fn exists(&self, path: &str) -> bool {
        self.state.tree.get(path).is_some()
    }

    /// The names of a node's children, sorted; empty when there is no such node.
    #[must_use]
    pub fn children(&self, path: &str) -> Vec<String> {
        let mut names: Vec<String> =
            self.state.tree.get(path).map(|node| node.children.iter().cloned().collect()).unwrap_or_default();
        names.sort();
        names
    }

    /// A node.
    #[must_use]
    pub fn node(&self, path: &str) -> Option<NodeInfo> {
        let node = self.state.tree.get(path)?;
        let stat = node.stat();
        Some(NodeInfo {
            data: node.data.clone().unwrap_or_default(),
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

    /// The sessions, by id.
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

    /// The counters.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.state.counters.with_watches(self.state.watches.len())
    }

    /// How many watches stand: one for each path, kind (data or child) and connection.
    #[must_use]
    pub fn watches(&self) -> usize {
        self.state.watches.len()
    }

    /// The sessions that watch a path, its data or its children; recursive watches above it do not count.
    #[must_use]
    pub fn watches_on(&self, path: &str) -> Vec<i64> {
        let connections = self.state.watches.on(path);
        let mut sessions: Vec<i64> = connections
            .iter()
            .filter_map(|id| self.state.connections.get(id).map(|conn| conn.session()))
            .collect();
        sessions.sort_unstable();
        sessions
    }

    /// The log, oldest entry first; `.rev()` looks at the newest first.
    pub fn log(&self) -> impl DoubleEndedIterator<Item = &LogEntry> {
        self.state.log.iter()
    }

    /// The last transaction.
    #[must_use]
    pub fn last_zxid(&self) -> i64 {
        self.state.zxid
    }
}
