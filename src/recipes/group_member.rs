//! The members of a group, as Curator's `GroupMember` creates them.
//!
//! A group is a directory, and each member is a persistent node in it, named by its id
//! (`PersistentNode`). A `GroupWatch` lists the directory, and lists it again after each change
//! (`Group`).

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::client::Client;
use crate::engine::data::group::{Group, KnownMembers};
use crate::error::{BuildError, PersistentNodeError};
use crate::recipes::persistent_node::{PersistentNode, PersistentNodeState};
use crate::state_watch::StateWatch;
use crate::values::path::{InvalidPath, LockPath};
use crate::values::shown::Quoted;

/// A member of a group of processes, which can list and watch the other members.
///
/// The member works like Curator's class of this name, with the same layout, so Java processes can
/// be members of the same group. Each member has a [`PersistentNode`] below the group's path. The
/// name of that node is the member's id, and its data is the member's data. An id belongs to one
/// member: if two processes use the same id, the second waits in
/// [`Conflict`](PersistentNodeState::Conflict).
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zookeeper_test_server::Server::start()?;
/// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
/// use std::time::Duration;
/// use zookeeper_recipes::GroupMember;
///
/// let member = GroupMember::new(&client, "/services/web", "web-1", "10.0.0.7:80")?;
/// member.wait_for_initial_create(Duration::from_secs(5)).await?;
/// for (id, address) in member.members().await? {
///     println!("{id} at {}", String::from_utf8_lossy(&address));
/// }
/// # assert_eq!(member.members().await?.keys().collect::<Vec<_>>(), ["web-1"]);
/// member.close().await?;
/// # Ok(())
/// # }
/// ```
#[doc(alias = "membership")]
#[must_use = "dropping it leaves the group: bind it to `_member`, not to `_`"]
pub struct GroupMember {
    node: PersistentNode,
    group: Group,
    id: String,
}

impl GroupMember {
    /// Joins the group at `path` in the background, with this id and this data.
    ///
    /// The id is the name of the node. [`LockPath::segment`](crate::LockPath::segment) makes an id
    /// from any text, and [`LockPath::key`](crate::LockPath::key) returns the text.
    ///
    /// # Errors
    /// - [`BuildError::InvalidPath`] if ZooKeeper would refuse the path, or the id as the name of a
    ///   node.
    /// - [`BuildError::InvalidOption`] if the data is longer than 1,000,000 bytes.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// use zookeeper_recipes::GroupMember;
    ///
    /// let member = GroupMember::new(&client, "/services/web", "web-1", "10.0.0.7:80")?;
    /// assert_eq!((member.path(), member.id()), ("/services/web", "web-1"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn new(
        client: &Client,
        path: impl AsRef<str>,
        id: impl AsRef<str>,
        data: impl Into<Vec<u8>>,
    ) -> Result<Self, BuildError> {
        let (path, id) = (path.as_ref(), id.as_ref());
        // The path of the group is checked first, so that an error about it does not name the
        // member.
        let directory = LockPath::parse(&client.core.namespace, path)?;
        let member = format!("{path}/{id}");
        if id.is_empty() || id.contains('/') {
            let reason = "the id of a member is one name, without `/`; `LockPath::segment` makes one of any text";
            return Err(InvalidPath::new(&member, reason).into());
        }
        let node = PersistentNode::new(client, &member, data)?;
        let group = Group {
            client: Arc::clone(&client.core),
            directory,
        };
        Ok(Self {
            node,
            group,
            id: id.to_owned(),
        })
    }

    /// Waits until this member has joined for the first time.
    ///
    /// # Errors
    /// See [`PersistentNode::wait_for_initial_create`].
    ///
    /// # Cancel safety
    /// Cancel safe: this only waits.
    pub async fn wait_for_initial_create(
        &self,
        timeout: Duration,
    ) -> Result<(), PersistentNodeError> {
        self.node.wait_for_initial_create(timeout).await
    }

    /// Sets the data of this member, and waits until its node has the data.
    ///
    /// # Errors
    /// See [`PersistentNode::set_data`].
    ///
    /// # Cancel safety
    /// The data is set at the first poll, even if the future is dropped later.
    #[doc(alias = "setThisData")]
    pub async fn set_data(&self, data: impl Into<Vec<u8>>) -> Result<(), PersistentNodeError> {
        self.node.set_data(data).await
    }

    /// Returns the members that the connected server knows, as a map from ids to data.
    ///
    /// The map includes this member once it has joined. A member whose ACL denies this client READ
    /// is left out, with a warning in the log. The call costs a list, and a read for each member.
    ///
    /// # Errors
    /// [`ErrorKind::Connection`](crate::ErrorKind::Connection) if no server answered; see
    /// [`PersistentNodeError`] for the other variants.
    ///
    /// # Cancel safety
    /// Cancel safe: this only reads.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// use std::time::Duration;
    /// use zookeeper_recipes::GroupMember;
    ///
    /// let member = GroupMember::new(&client, "/services/web", "web-1", "10.0.0.7:80")?;
    /// member.wait_for_initial_create(Duration::from_secs(5)).await?;
    /// assert_eq!(member.members().await?["web-1"], b"10.0.0.7:80");
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "getCurrentMembers")]
    pub async fn members(&self) -> Result<BTreeMap<String, Vec<u8>>, PersistentNodeError> {
        Ok(self.group.changed(None).await?.by_name)
    }

    /// Returns a watch of the members, to wait for changes.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// use std::time::Duration;
    /// use zookeeper_recipes::GroupMember;
    ///
    /// let first = GroupMember::new(&client, "/services/web", "web-1", "10.0.0.7:80")?;
    /// first.wait_for_initial_create(Duration::from_secs(5)).await?;
    /// let mut watch = first.watch();
    /// assert_eq!(watch.changed().await?.len(), 1); // at once
    ///
    /// let second = GroupMember::new(&client, "/services/web", "web-2", "10.0.0.8:80")?;
    /// assert_eq!(watch.changed().await?.len(), 2);
    /// second.close().await?;
    /// assert_eq!(watch.changed().await?.len(), 1);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn watch(&self) -> GroupWatch {
        GroupWatch {
            group: self.group.clone(),
            known: None,
        }
    }

    /// Returns the state of this member's node.
    #[must_use]
    pub fn state(&self) -> PersistentNodeState {
        self.node.state()
    }

    /// Returns a watch of the [`state`](Self::state), to wait for changes. The watch does not keep
    /// the node alive.
    #[must_use]
    pub fn watch_state(&self) -> StateWatch<PersistentNodeState> {
        self.node.watch_state()
    }

    /// Returns the path of the group, as it was given.
    #[must_use]
    pub fn path(&self) -> &str {
        self.group.directory.user()
    }

    /// Returns the id of this member, as it was given.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Leaves the group, and waits until a server has confirmed the deletion of the node.
    ///
    /// Dropping the value does the same in the background.
    ///
    /// # Errors
    /// See [`PersistentNode::close`].
    ///
    /// # Cancel safety
    /// The member leaves in any case, from the moment of the call.
    pub fn close(
        self,
    ) -> impl Future<Output = Result<(), PersistentNodeError>> + Send + 'static + use<> {
        self.node.close()
    }
}

impl fmt::Debug for GroupMember {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (path, id) = (Quoted(self.path()), Quoted(&self.id));
        write!(f, "GroupMember({path}, {id}, {:?})", self.state())
    }
}

/// A watch of a group's members; [`GroupMember::watch`] returns it.
///
/// The watch has no task, and sends no request while [`changed`](Self::changed) is not awaited. The
/// watch keeps the client open, and continues after the member has left.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zookeeper_test_server::Server::start()?;
/// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
/// # let member = zookeeper_recipes::GroupMember::new(&client, "/services/web", "web-1", "")?;
/// # member.wait_for_initial_create(std::time::Duration::from_secs(5)).await?;
/// let mut watch = member.watch();
/// let log = tokio::spawn(async move {
///     while let Ok(members) = watch.changed().await {
///         println!("{:?}", members.keys());
///     }
/// });
/// client.close().await?; // ends the loop
/// log.await?;
/// # Ok(())
/// # }
/// ```
pub struct GroupWatch {
    group: Group,
    /// The state that the last call returned; `None` before the first call.
    known: Option<KnownMembers>,
}

impl GroupWatch {
    /// Waits until a member has come or gone since the last call, and returns the members; the
    /// first call returns them at once.
    ///
    /// No change between two calls is missed: after one, the next call returns at once. If a member
    /// has left and rejoined, for example after the end of its session, that is a change too. New
    /// data of a member is not a change, but is returned with the next change. The watch continues
    /// across the sessions of the client.
    ///
    /// A call costs two lists, a read for each member, and, if the members were last returned in an
    /// earlier session, a `sync`.
    ///
    /// # Errors
    /// [`ErrorKind::Connection`](crate::ErrorKind::Connection) if no server answered for as long as
    /// the retry policy allows: call it again. See [`PersistentNodeError`] for the other variants.
    ///
    /// # Cancel safety
    /// If the future is dropped, the next call returns the result that this one would have
    /// returned.
    pub async fn changed(&mut self) -> Result<BTreeMap<String, Vec<u8>>, PersistentNodeError> {
        let members = self.group.changed(self.known).await?;
        self.known = Some(members.known);
        Ok(members.by_name)
    }
}

impl fmt::Debug for GroupWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GroupWatch({})", Quoted(self.group.directory.user()))
    }
}
