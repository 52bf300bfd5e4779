//! Options that clients and locks share: ACLs, and how missing directories are made.

use std::fmt;

/// Who may do what with the nodes that a recipe creates.
///
/// The default is [`Acl::open`], Curator's and ZooKeeper's default too: anyone may do anything. All processes that
/// share a lock need CREATE, DELETE and READ on its directory, and READ on each other's nodes: a waiter watches its
/// predecessor, and ZooKeeper tells nothing about a node to a session that may not read it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Acl {
    pub(crate) scheme: String,
    pub(crate) id: String,
    pub(crate) permissions: Permissions,
}

impl Acl {
    /// Anyone may do anything: `world:anyone:cdrwa`.
    #[must_use]
    pub fn open() -> Self {
        Self::new("world", "anyone", Permissions::ALL)
    }

    /// Whoever has the same credentials as the creator may do anything: `auth::cdrwa`. The client needs
    /// credentials for it ([`ClientBuilder::auth`](crate::ClientBuilder::auth)): without any it is refused when the client, or
    /// the lock, is built.
    #[must_use]
    pub fn creator_all() -> Self {
        Self::new("auth", "", Permissions::ALL)
    }

    /// Whether the servers refuse it from a session without credentials.
    pub(crate) fn needs_credentials(&self) -> bool {
        self.scheme == "auth"
    }

    /// An entry as ZooKeeper writes it: `scheme:id:permissions`, for example `digest`, `user:hash`.
    #[must_use]
    pub fn new(scheme: impl Into<String>, id: impl Into<String>, permissions: Permissions) -> Self {
        Self { scheme: scheme.into(), id: id.into(), permissions }
    }
}

impl fmt::Debug for Acl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The id of a digest entry ends with a hash of the password, which has no place in logs.
        let id =
            if self.scheme == "digest" { self.id.split(':').next().unwrap_or_default() } else { &self.id };
        write!(f, "{}:{id}:{:?}", self.scheme, self.permissions)
    }
}

/// A set of ZooKeeper's permissions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Permissions(pub(crate) u8);

impl Permissions {
    /// Read a node's data and list its children.
    pub const READ: Self = Self(1);
    /// Set a node's data.
    pub const WRITE: Self = Self(2);
    /// Create children.
    pub const CREATE: Self = Self(4);
    /// Delete children.
    pub const DELETE: Self = Self(8);
    /// Set a node's ACL.
    pub const ADMIN: Self = Self(16);
    /// All of them.
    pub const ALL: Self = Self(31);

    /// Whether all of `other` are in this set.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl std::ops::BitOr for Permissions {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// What kind of node a missing directory above the lock nodes is created as.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Parents {
    /// Containers, as Curator does: the server removes one some time after its last child is gone, so that
    /// locks with many different names leave nothing behind. The default. Servers that do not know containers (ZooKeeper
    /// before 3.5.1, ClickHouse Keeper) get ordinary nodes, as with [`Persistent`](Self::Persistent); the client logs
    /// that once.
    #[default]
    Container,
    /// Ordinary nodes, which stay for ever.
    Persistent,
}
