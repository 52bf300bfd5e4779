//! The history of the server, in order, with which a checker compares the observations of clients.

use std::sync::Arc;
use std::time::Instant;

use crate::bounded::Bounded;
use crate::txn::{Change, Happened};
use crate::watch::{Mode, Table};

/// An entry of the server's history, which [`Server::history`](crate::Server::history) returns.
///
/// ```
/// use zookeeper_client::{Acls, Client, CreateMode};
/// use zookeeper_test_server::{HistoryEvent, Server};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let server = Server::start()?;
/// let client = Client::connect(&server.connect_string()).await?;
/// let persistent = CreateMode::Persistent.with_acls(Acls::anyone_all());
/// let (stat, _) = client.create("/a", b"data", &persistent).await?;
///
/// let history = server.history(0);
/// assert_eq!(history[0].event, HistoryEvent::SessionOpened);
/// let created = HistoryEvent::Created { path: "/a".to_owned(), data: Some(b"data"[..].into()) };
/// assert_eq!(history[1].event, created);
/// assert_eq!((history[1].session, history[1].zxid), (client.session_id().0, stat.czxid));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HistoryEntry {
    /// The number of the entry: one more than the previous entry's.
    pub n: u64,
    /// The session that caused the event, or that the event concerns; 0 for calls of
    /// [`Server`](crate::Server) and for the check of containers and TTL nodes.
    pub session: i64,
    /// The transaction. All changes of one transaction have the same id. For an event that is not a
    /// transaction, this is the last transaction before it.
    pub zxid: i64,
    /// The time of the event.
    pub at: Instant,
    /// The event.
    pub event: HistoryEvent,
}

/// An event of the server, for [`HistoryEntry`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HistoryEvent {
    /// A session was opened.
    SessionOpened,
    /// A session has a new connection. If it had another one, that was closed before.
    SessionResumed,
    /// The connection of a session was closed, and its watches with it.
    SessionDisconnected,
    /// A client has closed its session.
    SessionClosed,
    /// A session has expired.
    SessionExpired,
    /// A node was created.
    Created {
        /// The path of the node.
        path: String,
        /// The data of the node; `None` if it is null.
        data: Option<Arc<[u8]>>,
    },
    /// A node was deleted.
    Deleted {
        /// The path of the node.
        path: String,
    },
    /// A node's data was set.
    DataSet {
        /// The path of the node.
        path: String,
        /// The data; `None` if it is null.
        data: Option<Arc<[u8]>>,
    },
    /// A node's access control list was set.
    AclSet {
        /// The path of the node.
        path: String,
    },
    /// A watch was set. If the session already had the same watch, it still has only one.
    WatchSet {
        /// The path.
        path: String,
        /// The kind of the watch.
        watch: WatchKind,
    },
    /// A client has removed its watches of a path, or some of them.
    WatchRemoved {
        /// The path.
        path: String,
    },
    /// A watch event was queued for the session's connection.
    WatchFired {
        /// The path.
        path: String,
        /// The type of the event: 1 created, 2 deleted, 3 data changed, 4 children changed.
        event: i32,
    },
}

/// The kind of a watch, for [`HistoryEvent::WatchSet`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WatchKind {
    /// A one-shot watch of the node, by `exists` or `getData`.
    Data,
    /// A one-shot watch of the children.
    Children,
    /// A persistent watch.
    Persistent,
    /// A persistent recursive watch.
    Recursive,
}

impl WatchKind {
    pub(crate) fn of(table: Table, mode: Mode) -> Self {
        match (mode, table) {
            (Mode::OneShot, Table::Data) => Self::Data,
            (Mode::OneShot, Table::Child) => Self::Children,
            (Mode::Persistent, _) => Self::Persistent,
            (Mode::Recursive, _) => Self::Recursive,
        }
    }
}

impl HistoryEvent {
    pub(crate) fn of(change: &Change) -> Self {
        let (path, data) = (change.path.clone(), change.data.clone());
        match change.what {
            Happened::Created => Self::Created { path, data },
            Happened::Deleted => Self::Deleted { path },
            Happened::Data => Self::DataSet { path, data },
            Happened::Acl => Self::AclSet { path },
        }
    }

    /// Returns the number of bytes of the entry's path and data.
    fn bytes(&self) -> usize {
        match self {
            Self::Created { path, data } | Self::DataSet { path, data } => {
                path.len() + data.as_ref().map_or(0, |data| data.len())
            }
            Self::Deleted { path }
            | Self::AclSet { path }
            | Self::WatchSet { path, .. }
            | Self::WatchRemoved { path }
            | Self::WatchFired { path, .. } => path.len(),
            _ => 0,
        }
    }
}

pub(crate) type History = Bounded<HistoryEntry>;

impl History {
    pub(crate) fn note(&mut self, session: i64, zxid: i64, at: Instant, event: HistoryEvent) {
        self.push(event.bytes(), |n| HistoryEntry {
            n,
            session,
            zxid,
            at,
            event,
        });
    }
}
