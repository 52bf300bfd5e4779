//! Options that clients and locks share: ACLs, and the kind of missing directories.

use std::fmt;

use base64ct::{Base64, Encoding};

/// The maximum size of a node's data: ZooKeeper's limit for a whole request (`jute.maxbuffer`, 1
/// MiB less one byte), minus space for the path and the ACL. Servers answer a larger request by
/// closing the connection, which looks like a network fault (docs/protocol.md#data-limit).
pub(crate) const MAX_DATA_BYTES: usize = 1_000_000;

/// An entry of an ACL: the permissions of some users for the nodes that a recipe creates.
///
/// The default is [`Acl::open`], as in Curator: anyone may do anything. All processes that share a
/// lock need CREATE, DELETE and READ on its directory, and READ on each other's nodes: a waiter
/// watches its predecessor, and ZooKeeper does not report changes of a node to a session that may
/// not read it. For [`Client::attempt_revoke`](crate::Client::attempt_revoke) they need WRITE on
/// each other's nodes, too.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zookeeper_test_server::Server::start()?;
/// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
/// use zookeeper_recipes::{Acl, InterProcessMutex, Permissions};
///
/// let readers = Permissions::READ;
/// let workers = Permissions::READ | Permissions::CREATE | Permissions::DELETE;
/// let mutex = InterProcessMutex::builder(&client, "/inventory/sku-42")
///     .acl([Acl::new("world", "anyone", readers), Acl::new("ip", "127.0.0.1", workers)])
///     .build()?;
/// mutex.lock().await?.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
#[doc(alias = "ACLProvider")]
pub struct Acl {
    pub(crate) scheme: String,
    pub(crate) id: String,
    pub(crate) permissions: Permissions,
}

impl Acl {
    /// Returns the entry that allows everyone everything: `world:anyone:cdrwa`.
    ///
    /// # Examples
    /// ```
    /// use zookeeper_recipes::{Acl, Permissions};
    ///
    /// assert_eq!(Acl::open(), Acl::new("world", "anyone", Permissions::ALL));
    /// ```
    #[doc(alias = "OPEN_ACL_UNSAFE")]
    #[must_use]
    pub fn open() -> Self {
        Self::new("world", "anyone", Permissions::ALL)
    }

    /// Returns the entry that allows users with the credentials of the creator everything:
    /// `auth::cdrwa`.
    ///
    /// The client needs credentials: from [`ClientBuilder::auth`](crate::ClientBuilder::auth) or,
    /// with the respective feature, from `ClientBuilder::sasl_digest` or a certificate in
    /// `ClientBuilder::tls`. A client without credentials refuses this entry when the client, or
    /// the lock, is built.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let servers = server.connect_string();
    /// use zookeeper_recipes::{Acl, Client, ConnectError};
    ///
    /// let builder = Client::builder().acl([Acl::creator_all()]);
    /// let error = builder.clone().connect(&servers).await.unwrap_err();
    /// assert!(matches!(error, ConnectError::NoCredentials { .. }));
    ///
    /// let client = builder.auth("digest", "shop:secret").connect(&servers).await?;
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "CREATOR_ALL_ACL")]
    #[must_use]
    pub fn creator_all() -> Self {
        Self::new("auth", "", Permissions::ALL)
    }

    /// Returns whether the servers refuse this entry from a session without credentials.
    pub(crate) fn needs_credentials(&self) -> bool {
        self.scheme == "auth"
    }

    /// Returns an entry for the users that `id` names in one of ZooKeeper's authentication schemes.
    ///
    /// # Examples
    /// ```
    /// use zookeeper_recipes::{Acl, Permissions};
    ///
    /// let office = Acl::new("ip", "10.1.0.0/16", Permissions::READ);
    /// assert_eq!(format!("{office:?}"), "ip:10.1.0.0/16:Permissions(1)");
    /// ```
    #[must_use]
    pub fn new(scheme: impl Into<String>, id: impl Into<String>, permissions: Permissions) -> Self {
        Self {
            scheme: scheme.into(),
            id: id.into(),
            permissions,
        }
    }
}

impl Acl {
    /// Returns an entry for sessions that have authenticated by the scheme `digest` as `user` with
    /// `password` ([`ClientBuilder::auth`](crate::ClientBuilder::auth)).
    ///
    /// If all entries of an ACL are of this scheme and the client has none of their credentials, the
    /// ACL is refused when the client, or the lock, is built: the client would lock itself out.
    ///
    /// The servers get, and store, a hash of both: an unsalted SHA-1, as computed by ZooKeeper's
    /// `DigestAuthenticationProvider`. A process that may read the ACL of a node can guess
    /// passwords by comparing hashes. A user of `ClientBuilder::sasl_digest` is a different user,
    /// with entries of the scheme `sasl` and no hash: `Acl::new("sasl", "shop", ..)`. A colon ends
    /// the user's name, as in `auth`.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let servers = server.connect_string();
    /// use zookeeper_recipes::{Acl, Client, InterProcessMutex, Permissions};
    ///
    /// let shop = Acl::digest("shop", "secret", Permissions::ALL);
    /// assert!(format!("{shop:?}").starts_with("digest:shop:")); // without the hash
    ///
    /// let client = Client::builder().auth("digest", "shop:secret").acl([shop]).connect(&servers).await?;
    /// InterProcessMutex::new(&client, "/inventory/sku-42")?.lock().await?.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "DigestAuthenticationProvider")]
    #[doc(alias = "generateDigest")]
    #[must_use]
    pub fn digest(user: &str, password: &str, permissions: Permissions) -> Self {
        let id = digest_id(format!("{user}:{password}").as_bytes());
        Self::new("digest", id, permissions)
    }
}

impl fmt::Debug for Acl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The id of a digest entry ends with a hash of the password, which has no place in logs.
        let id = if self.scheme == "digest" {
            self.id.split(':').next().unwrap_or_default()
        } else {
            &self.id
        };
        write!(f, "{}:{id}:{:?}", self.scheme, self.permissions)
    }
}

/// The credentials of a client, as far as they are known.
#[derive(Clone)]
pub(crate) struct Credentials {
    /// Whether the client has any credentials; `None` if its connector may have its own.
    pub(crate) exist: Option<bool>,
    /// The ids of its users of the scheme `digest`. `None` if the connector may have its own.
    digests: Option<Vec<String>>,
}

impl Credentials {
    /// Returns the credentials of a client. `auth` has some of them, by scheme; `exist` is whether
    /// the client has any at all, and `connector` whether a connector may have more.
    pub(crate) fn new(exist: bool, auth: &[(String, Vec<u8>)], connector: bool) -> Self {
        let digests = auth.iter().filter(|(scheme, _)| scheme == "digest");
        let digests = digests.map(|(_, credentials)| digest_id(credentials));
        Self {
            exist: (exist || !connector).then_some(exist),
            digests: (!connector).then(|| digests.collect()),
        }
    }

    /// Returns whether an ACL is for credentials that the client does not have.
    pub(crate) fn lack(&self, acl: &[Acl]) -> bool {
        let may_meet = |entry: &Acl| match &self.digests {
            Some(own) if entry.scheme == "digest" => own.iter().any(|own| is_of(&entry.id, own)),
            _ => true,
        };
        // The servers refuse a whole ACL that has such an entry.
        let is_refused = self.exist == Some(false) && acl.iter().any(Acl::needs_credentials);
        is_refused || !acl.is_empty() && !acl.iter().any(may_meet)
    }
}

/// The user whose password the servers have (`zookeeper.DigestAuthenticationProvider.superDigest`),
/// to whom no ACL applies.
const SUPER_USER: &str = "super";
/// The length of a SHA-1 hash in Base64. Servers with another `digestAlg` use hashes of other
/// lengths.
const SHA1_LENGTH: usize = 28;

/// Returns the id that ZooKeeper's `DigestAuthenticationProvider` gives to these credentials, which
/// are a user, a colon and a password.
fn digest_id(credentials: &[u8]) -> String {
    let user = credentials.split(|byte| *byte == b':').next();
    let user = String::from_utf8_lossy(user.unwrap_or_default()).into_owned();
    let mut hash = sha1_smol::Sha1::new();
    hash.update(credentials);
    let hash = Base64::encode_string(&hash.digest().bytes());
    format!("{user}:{hash}")
}

/// Returns whether an entry of the scheme `digest` may apply to the user with the id `own`.
fn is_of(entry: &str, own: &str) -> bool {
    let (Some((user, hash)), Some((own_user, own_hash))) =
        (entry.rsplit_once(':'), own.rsplit_once(':'))
    else {
        return true;
    };
    let same_hash = hash.len() != SHA1_LENGTH || hash == own_hash;
    own_user == SUPER_USER || user == own_user && same_hash
}

/// A set of ZooKeeper's permissions for a node.
///
/// # Examples
/// ```
/// use zookeeper_recipes::Permissions;
///
/// let workers = Permissions::READ | Permissions::CREATE | Permissions::DELETE;
/// assert!(workers.contains(Permissions::READ));
/// assert!(!workers.contains(Permissions::READ | Permissions::ADMIN));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[doc(alias = "Perms")]
pub struct Permissions(pub(crate) u8);

impl Permissions {
    /// To read a node's data and list its children.
    pub const READ: Self = Self(1);
    /// To set a node's data.
    pub const WRITE: Self = Self(2);
    /// To create children.
    pub const CREATE: Self = Self(4);
    /// To delete children.
    pub const DELETE: Self = Self(8);
    /// To set a node's ACL.
    pub const ADMIN: Self = Self(16);
    /// All permissions.
    pub const ALL: Self = Self(31);

    /// Returns `true` if this set has all permissions of `other`.
    ///
    /// # Examples
    /// ```
    /// use zookeeper_recipes::Permissions;
    ///
    /// assert!(Permissions::ALL.contains(Permissions::WRITE));
    /// assert!(!Permissions::READ.contains(Permissions::ALL));
    /// ```
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

/// The kind of node that is created for a missing directory above the lock nodes.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zookeeper_test_server::Server::start()?;
/// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
/// use zookeeper_recipes::{InterProcessMutex, ParentNodes};
///
/// // A directory that is in constant use need not be deleted and created again.
/// let mutex = InterProcessMutex::builder(&client, "/jobs/nightly");
/// let mutex = mutex.parents(ParentNodes::Persistent).build()?;
/// mutex.lock().await?.release().await?;
/// assert!(server.exists("/jobs/nightly"));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[doc(alias = "CreateMode")]
#[doc(alias = "creatingParentContainersIfNeeded")]
pub enum ParentNodes {
    /// Containers, as in Curator. This is the default. The servers delete a container some time
    /// after its last child is deleted, so locks with many different names leave no nodes behind.
    /// If the servers do not support containers (ZooKeeper before 3.5.1, older ClickHouse Keeper),
    /// the client logs this once, and creates ordinary nodes as with
    /// [`Persistent`](Self::Persistent).
    ///
    /// The servers look for empty containers once a minute and remove at most 10,000 a minute by
    /// default (`znode.container.checkIntervalMs` and `znode.container.maxPerMinute` of ZooKeeper):
    /// with more new names per minute than that, directories accumulate until the rate falls. A
    /// container that never had a child is never removed, so one remains if a process ends between
    /// creating the directory and creating its first node. Newer servers remove it if
    /// `znode.container.maxNeverUsedIntervalMs` is set.
    #[default]
    Container,
    /// Persistent nodes, which the servers never remove.
    Persistent,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(user: &str, password: &str) -> Acl {
        Acl::digest(user, password, Permissions::ALL)
    }

    #[test]
    fn digest_acl_needs_its_own_credentials() {
        let own = |credentials: &str| {
            let auth = [("digest".to_owned(), credentials.as_bytes().to_vec())];
            Credentials::new(true, &auth, false)
        };
        let none = Credentials::new(false, &[], false);
        let unknown = Credentials::new(false, &[], true);
        let shop = own("shop:secret");
        for (credentials, acl, lack) in [
            (&none, vec![digest("shop", "secret")], true),
            (&shop, vec![digest("shop", "secret")], false),
            (&shop, vec![digest("shop", "other")], true),
            (&shop, vec![digest("office", "secret")], true),
            (
                &shop,
                vec![digest("office", "x"), digest("shop", "secret")],
                false,
            ),
            (&shop, vec![Acl::creator_all()], false),
            (&none, vec![Acl::creator_all(), Acl::open()], true),
            // Other users may have rights too, and the servers decide about the creator's.
            (&none, vec![digest("shop", "secret"), Acl::open()], false),
            (
                &none,
                vec![Acl::new("ip", "10.1.0.0/16", Permissions::ALL)],
                false,
            ),
            // A hash of another algorithm, which servers can be set to.
            (
                &shop,
                vec![Acl::new("digest", "shop:c2hhMjU2", Permissions::ALL)],
                false,
            ),
            (&own("super:user"), vec![digest("shop", "secret")], false),
            (&unknown, vec![digest("shop", "secret")], false),
            (&unknown, vec![Acl::creator_all()], false),
            (&none, vec![], false),
        ] {
            assert_eq!(credentials.lack(&acl), lack, "{acl:?}");
        }
    }
}
