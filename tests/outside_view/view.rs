//! An observer of the queue.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use test_support::{SOON, ZooKeeper, poll_until, unique_path};
use tokio::runtime::Handle;
use zookeeper_client as zk;

/// A node of the queue, as every client can see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Its name between the id and the number: `lock`, `__READ__`, `__WRIT__`.
    pub(crate) kind: String,
    /// The session that has made it.
    pub(crate) owner: i64,
    /// The sessions that watch it.
    pub(crate) watchers: BTreeSet<i64>,
}

/// Everything there is to see of a lock at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct View {
    /// In the order of their numbers.
    pub(crate) queue: Vec<Seen>,
    /// Watches on anything else: the directory, its parents' children, nodes that are gone or never
    /// were.
    pub(crate) elsewhere: BTreeMap<String, BTreeSet<i64>>,
}

/// A session that has nothing to do with locks, and a directory that only one scenario uses.
#[derive(Clone, Debug)]
pub(crate) struct Outside {
    pub(crate) servers: Arc<ZooKeeper>,
    session: zk::Client,
    root: String,
}

impl Outside {
    pub(crate) async fn new(servers: Arc<ZooKeeper>) -> Self {
        let connector = zk::Client::connector().with_session_timeout(Duration::from_secs(40));
        let session = connector.connect(&servers.connect_string()).await.unwrap();
        Self {
            servers,
            session,
            root: unique_path("outside"),
        }
    }

    /// The lock's path. It does not exist at first.
    pub(crate) fn directory(&self) -> String {
        format!("{}/lock", self.root)
    }

    /// The paths of the queue's nodes, in order.
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

    async fn look(&self) -> View {
        let mut queue = Vec::new();
        let mut nodes = self.nodes().await;
        let servers = Arc::clone(&self.servers);
        let watches = tokio::task::spawn_blocking(move || servers.watches(0).unwrap())
            .await
            .unwrap();
        let mut elsewhere: BTreeMap<String, BTreeSet<i64>> = watches
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
            // A node that has gone meanwhile has no owner; the next look has another list.
            let owner = self
                .session
                .check_stat(&node)
                .await
                .unwrap()
                .map_or(0, |stat| stat.ephemeral_owner);
            queue.push(Seen {
                kind: kind(&node),
                owner,
                watchers: elsewhere.remove(&node).unwrap_or_default(),
            });
        }
        View { queue, elsewhere }
    }

    /// Waits until the view is exactly as it should be, and looks again: it must stay so.
    pub(crate) async fn shows(&self, what: &str, wanted: View) {
        let (outside, handle, what) = (self.clone(), Handle::current(), what.to_owned());
        let looked = tokio::task::spawn_blocking(move || {
            let mut last = View::default();
            let became = poll_until(&what, SOON, || {
                last = handle.block_on(outside.look());
                (last == wanted).then_some(())
            });
            if became.is_ok() {
                last = handle.block_on(outside.look());
            }
            assert_eq!(
                last, wanted,
                "{what}: seen on the left, wanted on the right"
            );
        });
        if let Err(failed) = looked.await {
            std::panic::resume_unwind(failed.into_panic());
        }
    }
}

/// The number of a session, from how `wchp` writes it.
fn number(session: &str) -> i64 {
    let digits = session.strip_prefix("0x").unwrap_or(session);
    let number =
        u64::from_str_radix(digits, 16).unwrap_or_else(|error| panic!("{session}: {error}"));
    i64::from_be_bytes(number.to_be_bytes())
}

/// What kind of contender a node is, by its name.
fn kind(node: &str) -> String {
    let name = &node[..node.len() - 10];
    ["lock-", "__READ__", "__WRIT__"]
        .into_iter()
        .find(|kind| name.ends_with(kind))
        .unwrap_or_else(|| panic!("{node} is no contender"))
        .to_owned()
}
