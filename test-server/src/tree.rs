//! The nodes and their numbers, without clock, network or permissions. Each change returns how to
//! undo it.

use std::sync::Arc;

use crate::shared_map::SharedMap;
use crate::wire::jute::length;
use crate::wire::{Acl, AuthId, Stat};

/// The time of a change: its transaction, the wall clock for the times in a Stat, a monotonic clock
/// for TTLs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stamp {
    pub(crate) zxid: i64,
    pub(crate) wall_ms: i64,
    pub(crate) mono_ms: u64,
}

/// The kind of a node.
///
/// ```
/// use zookeeper_client::{Acls, Client, CreateMode};
/// use zookeeper_test_server::{NodeKind, Server};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let server = Server::start()?;
/// let client = Client::connect(&server.connect_string()).await?;
/// client.create("/here", b"", &CreateMode::Ephemeral.with_acls(Acls::anyone_all())).await?;
/// let owner = client.session_id().0;
/// assert_eq!(server.node("/here").map(|node| node.kind), Some(NodeKind::Ephemeral { owner }));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum NodeKind {
    /// A node that stays until it is deleted.
    Persistent,
    /// A node that is deleted with its session.
    Ephemeral {
        /// The session.
        owner: i64,
    },
    /// A node that is deleted some time after its last child.
    Container,
    /// A node that is deleted once it has had no child and no change for a time.
    Ttl {
        /// The time to live in milliseconds.
        ms: i64,
    },
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Node {
    pub(crate) data: Option<Arc<[u8]>>,
    pub(crate) acl: Arc<[Acl]>,
    pub(crate) kind: NodeKind,
    pub(crate) children: Names,
    pub(crate) czxid: i64,
    pub(crate) mzxid: i64,
    pub(crate) pzxid: i64,
    pub(crate) ctime: i64,
    pub(crate) mtime: i64,
    pub(crate) version: i32,
    pub(crate) aversion: i32,
    /// The number of children that were created so far, which is the next sequence number.
    /// `cversion` is derived from it.
    pub(crate) creates: i32,
    touched_ms: u64,
}

impl Node {
    fn new(data: Option<Arc<[u8]>>, acl: Arc<[Acl]>, kind: NodeKind, at: Stamp) -> Self {
        Self {
            data,
            acl,
            kind,
            children: Names::default(),
            czxid: at.zxid,
            mzxid: at.zxid,
            pzxid: at.zxid,
            ctime: at.wall_ms,
            mtime: at.wall_ms,
            version: 0,
            aversion: 0,
            creates: 0,
            touched_ms: at.mono_ms,
        }
    }

    pub(crate) fn stat(&self) -> Stat {
        let num_children = length(self.children.len());
        Stat {
            czxid: self.czxid,
            mzxid: self.mzxid,
            ctime: self.ctime,
            mtime: self.mtime,
            version: self.version,
            // `cversion` counts creates and deletes; the server counts creates only.
            cversion: self.creates.wrapping_mul(2).wrapping_sub(num_children),
            aversion: self.aversion,
            ephemeral_owner: self.owner(),
            data_length: length(self.data.as_ref().map_or(0, |data| data.len())),
            num_children,
            pzxid: self.pzxid,
        }
    }

    /// Returns the session of an ephemeral node; 0 for other nodes.
    pub(crate) fn owner(&self) -> i64 {
        match self.kind {
            NodeKind::Ephemeral { owner } => owner,
            NodeKind::Persistent | NodeKind::Container | NodeKind::Ttl { .. } => 0,
        }
    }
}

/// How to undo a change. Changes are undone in reverse order.
#[derive(Debug)]
pub(crate) enum Undo {
    Created {
        path: String,
        parent_pzxid: i64,
    },
    Deleted {
        path: String,
        node: Arc<Node>,
        parent_pzxid: i64,
    },
    Data {
        path: String,
        data: Option<Arc<[u8]>>,
        version: i32,
        mzxid: i64,
        mtime: i64,
        touched_ms: u64,
    },
    Acl {
        path: String,
        acl: Arc<[Acl]>,
    },
}

/// Names or paths.
pub(crate) type Names = SharedMap<Arc<str>, ()>;

/// A clone is cheap, since it shares its nodes with the original: a member that lags keeps one.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Tree {
    nodes: SharedMap<Arc<str>, Arc<Node>>,
    /// The paths of each session that has some.
    ephemerals: SharedMap<i64, Names>,
    /// Containers and TTL nodes.
    perishable: Names,
}

/// Returns names or paths in order.
fn sorted(names: &Names) -> Vec<&str> {
    let mut sorted: Vec<&str> = names.keys().map(|name| &**name).collect();
    sorted.sort_unstable();
    sorted
}

/// Returns an access control list that permits everything to everyone.
pub(crate) fn open_acl() -> Arc<[Acl]> {
    Arc::from([Acl {
        perms: 31,
        id: AuthId::new("world", "anyone"),
    }])
}

/// Splits a path into the parent's path and the name in it; returns `None` if there is no slash.
/// The parent of a top-level node is the empty string.
pub(crate) fn split(path: &str) -> Option<(&str, &str)> {
    path.rsplit_once('/')
}

impl Tree {
    /// Creates the tree of a new server.
    pub(crate) fn new() -> Self {
        let fresh = |acl| Node::new(Some([].into()), acl, NodeKind::Persistent, Stamp::default());
        let read_only: Arc<[Acl]> = Arc::from([Acl {
            perms: 1,
            id: AuthId::new("world", "anyone"),
        }]);
        let mut root = fresh(open_acl());
        root.children.insert("zookeeper".into(), ());
        let mut system = fresh(open_acl());
        system.children.insert("config".into(), ());
        system.children.insert("quota".into(), ());
        // The servers set the ACL of this node once, without counting the change.
        let config = Node {
            aversion: -1,
            ..fresh(read_only)
        };
        let mut nodes = SharedMap::default();
        for (path, node) in [
            ("/", root),
            ("/zookeeper", system),
            ("/zookeeper/config", config),
            ("/zookeeper/quota", fresh(open_acl())),
        ] {
            nodes.insert(path.into(), Arc::new(node));
        }
        Self {
            nodes,
            ephemerals: SharedMap::default(),
            perishable: Names::default(),
        }
    }

    /// Returns the node at a path. As in ZooKeeper, the empty path is the root.
    pub(crate) fn get(&self, path: &str) -> Option<&Node> {
        self.nodes.get(root_if_empty(path)).map(|node| &**node)
    }

    fn get_mut(&mut self, path: &str) -> Option<&mut Node> {
        self.nodes.get_mut(root_if_empty(path)).map(Arc::make_mut)
    }

    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Returns the approximate size in bytes, of paths and data.
    pub(crate) fn size(&self) -> usize {
        self.nodes
            .iter()
            .map(|(path, node)| path.len() + node.data.as_ref().map_or(0, |data| data.len()))
            .sum()
    }

    pub(crate) fn paths(&self) -> impl Iterator<Item = &str> {
        self.nodes.keys().map(|path| &**path)
    }

    /// Returns the ephemeral nodes of a session, in order.
    pub(crate) fn ephemerals(&self, session: i64) -> impl Iterator<Item = &str> {
        let paths = self.ephemerals.get(&session).map(sorted);
        paths.into_iter().flatten()
    }

    /// Returns the sessions that own ephemeral nodes, in order.
    pub(crate) fn owners(&self) -> Vec<i64> {
        let mut owners: Vec<i64> = self.ephemerals.keys().copied().collect();
        owners.sort_unstable();
        owners
    }

    /// Returns the number of ephemeral nodes.
    pub(crate) fn ephemeral_count(&self) -> usize {
        self.ephemerals.iter().map(|(_, paths)| paths.len()).sum()
    }

    /// Adds a node that does not exist, as the caller has checked; returns `None` if there is no
    /// parent.
    pub(crate) fn create(
        &mut self,
        path: &str,
        data: Option<Arc<[u8]>>,
        acl: Arc<[Acl]>,
        kind: NodeKind,
        at: Stamp,
    ) -> Option<Undo> {
        let (parent, name) = split(path)?;
        let parent = self.get_mut(parent)?;
        let parent_pzxid = parent.pzxid;
        parent.children.insert(name.into(), ());
        parent.creates = parent.creates.wrapping_add(1);
        parent.pzxid = at.zxid;
        self.insert(path.into(), Arc::new(Node::new(data, acl, kind, at)));
        Some(Undo::Created {
            path: path.to_owned(),
            parent_pzxid,
        })
    }

    /// Removes a node that has no children, as the caller has checked; returns `None` if it does
    /// not exist.
    pub(crate) fn delete(&mut self, path: &str, zxid: i64) -> Option<Undo> {
        let (parent, name) = split(path)?;
        let node = self.remove(path)?;
        let parent = self.get_mut(parent)?;
        let parent_pzxid = parent.pzxid;
        parent.children.remove(name);
        parent.pzxid = parent.pzxid.max(zxid);
        Some(Undo::Deleted {
            path: path.to_owned(),
            node,
            parent_pzxid,
        })
    }

    pub(crate) fn set_data(
        &mut self,
        path: &str,
        data: Option<Arc<[u8]>>,
        at: Stamp,
    ) -> Option<Undo> {
        let node = self.get_mut(path)?;
        let undo = Undo::Data {
            path: path.to_owned(),
            data: std::mem::replace(&mut node.data, data),
            version: node.version,
            mzxid: node.mzxid,
            mtime: node.mtime,
            touched_ms: node.touched_ms,
        };
        node.version = node.version.wrapping_add(1);
        node.mzxid = at.zxid;
        node.mtime = at.wall_ms;
        node.touched_ms = at.mono_ms;
        Some(undo)
    }

    pub(crate) fn set_acl(&mut self, path: &str, acl: Arc<[Acl]>) -> Option<Undo> {
        let node = self.get_mut(path)?;
        let old = std::mem::replace(&mut node.acl, acl);
        node.aversion = node.aversion.wrapping_add(1);
        Some(Undo::Acl {
            path: path.to_owned(),
            acl: old,
        })
    }

    pub(crate) fn set_next_sequence(&mut self, path: &str, next: i32) -> bool {
        self.get_mut(path).map(|node| node.creates = next).is_some()
    }

    pub(crate) fn undo(&mut self, undo: Undo) {
        match undo {
            Undo::Created { path, parent_pzxid } => {
                self.remove(&path);
                if let Some((parent, name)) = split(&path) {
                    if let Some(parent) = self.get_mut(parent) {
                        parent.children.remove(name);
                        parent.creates = parent.creates.wrapping_sub(1);
                        parent.pzxid = parent_pzxid;
                    }
                }
            }
            Undo::Deleted {
                path,
                node,
                parent_pzxid,
            } => {
                if let Some((parent, name)) = split(&path) {
                    if let Some(parent) = self.get_mut(parent) {
                        parent.children.insert(name.into(), ());
                        parent.pzxid = parent_pzxid;
                    }
                }
                self.insert(path.into(), node);
            }
            Undo::Data {
                path,
                data,
                version,
                mzxid,
                mtime,
                touched_ms,
            } => {
                if let Some(node) = self.get_mut(&path) {
                    (node.data, node.version, node.mzxid, node.mtime) =
                        (data, version, mzxid, mtime);
                    node.touched_ms = touched_ms;
                }
            }
            Undo::Acl { path, acl } => {
                if let Some(node) = self.get_mut(&path) {
                    node.acl = acl;
                    node.aversion = node.aversion.wrapping_sub(1);
                }
            }
        }
    }

    /// Returns the containers that have lost their last child and the TTL nodes whose time is over.
    pub(crate) fn perished(&self, mono_ms: u64) -> Vec<String> {
        let due = |path: &&str| {
            self.get(path).is_some_and(|node| {
                node.children.is_empty()
                    && match node.kind {
                        NodeKind::Container => node.creates > 0,
                        NodeKind::Ttl { ms } => {
                            mono_ms.saturating_sub(node.touched_ms) > u64::try_from(ms).unwrap_or(0)
                        }
                        NodeKind::Persistent | NodeKind::Ephemeral { .. } => false,
                    }
            })
        };
        let perishable = sorted(&self.perishable).into_iter();
        perishable.filter(due).map(str::to_owned).collect()
    }

    fn insert(&mut self, path: Arc<str>, node: Arc<Node>) {
        match node.kind {
            NodeKind::Persistent => {}
            NodeKind::Ephemeral { owner } => {
                if self.ephemerals.get(&owner).is_none() {
                    self.ephemerals.insert(owner, Names::default());
                }
                if let Some(paths) = self.ephemerals.get_mut(&owner) {
                    paths.insert(Arc::clone(&path), ());
                }
            }
            NodeKind::Container | NodeKind::Ttl { .. } => {
                self.perishable.insert(Arc::clone(&path), ());
            }
        }
        self.nodes.insert(path, node);
    }

    fn remove(&mut self, path: &str) -> Option<Arc<Node>> {
        let node = self.nodes.remove(path)?;
        match node.kind {
            NodeKind::Persistent => {}
            NodeKind::Ephemeral { owner } => {
                if let Some(paths) = self.ephemerals.get_mut(&owner) {
                    paths.remove(path);
                    if paths.is_empty() {
                        self.ephemerals.remove(&owner);
                    }
                }
            }
            NodeKind::Container | NodeKind::Ttl { .. } => {
                self.perishable.remove(path);
            }
        }
        Some(node)
    }
}

fn root_if_empty(path: &str) -> &str {
    if path.is_empty() { "/" } else { path }
}
