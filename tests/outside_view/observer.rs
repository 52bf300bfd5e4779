//! An observer of the queue, with a separate session.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use test_support::{SOON, ZooKeeper, poll_until, unique_path};
use tokio::runtime::Handle;
use zookeeper_client as zk;

/// A node of the queue, as every client can see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct QueueNode {
    /// The part of the node's name between the id and the number: `lock-`, `__READ__`, `__WRIT__`.
    pub(crate) kind: String,
    /// The session that has created the node.
    pub(crate) owner: i64,
    /// The sessions that watch the node.
    pub(crate) watchers: BTreeSet<i64>,
}

/// The nodes and watches of a lock at one moment, as other sessions can see them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct QueueState {
    /// The nodes in the order of their numbers.
    pub(crate) queue: Vec<QueueNode>,
    /// The watches on other paths: the directory, its parents' children, and nodes that do not
    /// exist.
    pub(crate) other_watches: BTreeMap<String, BTreeSet<i64>>,
}

/// A session that uses no locks, and a directory that only one scenario uses.
#[derive(Clone, Debug)]
pub(crate) struct Observer {
    pub(crate) servers: Arc<ZooKeeper>,
    session: zk::Client,
    root: String,
}

impl Observer {
    pub(crate) async fn new(servers: Arc<ZooKeeper>) -> Self {
        let connector = zk::Client::connector().with_session_timeout(Duration::from_secs(40));
        let session = connector.connect(&servers.connect_string()).await.unwrap();
        Self {
            servers,
            session,
            root: unique_path("observer"),
        }
    }

    /// Returns the lock's path, which does not exist at first.
    pub(crate) fn directory(&self) -> String {
        format!("{}/lock", self.root)
    }

    /// Returns the paths of the queue's nodes, in their order.
    pub(crate) async fn nodes(&self) -> Vec<String> {
        let directory = self.directory();
        let (synced, listed) = tokio::join!(
            self.session.sync(&directory),
            self.session.list_children(&directory)
        );
        let mut names = match (synced, listed) {
            (_, Ok(names)) => names,
            (_, Err(zk::Error::NoNode)) => Vec::new(),
            (_, Err(error)) => panic!("listing {directory}: {error}"),
        };
        names.sort_by_key(|name| name[name.len() - 10..].to_owned());
        names
            .into_iter()
            .map(|name| format!("{directory}/{name}"))
            .collect()
    }

    async fn read(&self) -> QueueState {
        let mut queue = Vec::new();
        let mut nodes = self.nodes().await;
        let servers = Arc::clone(&self.servers);
        let watches = tokio::task::spawn_blocking(move || servers.watches(0).unwrap())
            .await
            .unwrap();
        let mut other_watches: BTreeMap<String, BTreeSet<i64>> = watches
            .into_iter()
            .filter(|(path, _)| path.starts_with(&format!("{}/", self.root)))
            .map(|(path, sessions)| {
                (
                    path,
                    sessions.iter().map(|session| number(session)).collect(),
                )
            })
            .collect();
        for node in nodes.drain(..) {
            // A node that was deleted after the list has no owner. The state is then read again,
            // from another list.
            let owner = self
                .session
                .check_stat(&node)
                .await
                .unwrap()
                .map_or(0, |stat| stat.ephemeral_owner);
            queue.push(QueueNode {
                kind: kind(&node),
                owner,
                watchers: other_watches.remove(&node).unwrap_or_default(),
            });
        }
        QueueState {
            queue,
            other_watches,
        }
    }

    /// Waits until the state is exactly `wanted`, and reads it again to show that it stays.
    pub(crate) async fn assert_state(&self, what: &str, wanted: QueueState) {
        let (observer, handle, what) = (self.clone(), Handle::current(), what.to_owned());
        let looked = tokio::task::spawn_blocking(move || {
            let mut last = QueueState::default();
            let became = poll_until(&what, SOON, || {
                last = handle.block_on(observer.read());
                (last == wanted).then_some(())
            });
            if became.is_ok() {
                last = handle.block_on(observer.read());
            }
            assert_eq!(
                last, wanted,
                "{what}: the state is on the left, the expected one on the right"
            );
        });
        if let Err(failed) = looked.await {
            std::panic::resume_unwind(failed.into_panic());
        }
    }
}

/// Parses the number of a session as `wchp` prints it.
fn number(session: &str) -> i64 {
    let digits = session.strip_prefix("0x").unwrap_or(session);
    let number =
        u64::from_str_radix(digits, 16).unwrap_or_else(|error| panic!("{session}: {error}"));
    i64::from_be_bytes(number.to_be_bytes())
}

/// Returns the kind of contender by the name of its node.
fn kind(node: &str) -> String {
    let name = &node[..node.len() - 10];
    ["lock-", "__READ__", "__WRIT__"]
        .into_iter()
        .find(|kind| name.ends_with(kind))
        .unwrap_or_else(|| panic!("the name of {node} is not that of a contender"))
        .to_owned()
}
