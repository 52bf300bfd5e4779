//! An ephemeral node that is created again in each session (docs/protocol.md#persistent-node).
//!
//! A `PersistentNode` is the handle of a task (`kept_node`), which creates the node, watches it,
//! and deletes it at the end. The handle sends the wanted data to the task by a channel, whose drop
//! asks the task to delete the node. The task publishes the state of the node, and the generation
//! of the data that the node has, for the calls that wait.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{oneshot, watch};
use uuid::Uuid;

use crate::builder::{RecipeBuilder, sealed};
use crate::client::Client;
use crate::engine::data::kept_node::{self, ManagedNode, PathTurn, WantedNode};
use crate::engine::lock::lock_options::check_acl;
use crate::error::{BuildError, Cause, PersistentNodeError};
pub use crate::protocol::persistent_node::PersistentNodeState;
use crate::session::core::Core;
use crate::session::threads::waker;
use crate::state_watch::StateWatch;
use crate::values::options::MAX_DATA_BYTES;
use crate::values::path::LockPath;
use crate::values::shown::Quoted;

/// An ephemeral node that is re-created after the end of its session, or a deletion by hand. A
/// service registers itself with it.
///
/// The node works like Curator's class of this name, with ephemeral nodes. The node is created in
/// the background as soon as there is a session, and again in each later session, with the data
/// that was [set](Self::set_data) last. The client watches the node in the background.
///
/// # Whose node it is
/// A node at the path counts as this client's only if its current session owns the node. If an
/// earlier session of this client owns the node, for this handle or another, the handle waits until
/// the servers expire that session. Any other node at the path is not changed: the state is
/// [`Conflict`](PersistentNodeState::Conflict), and when that node is deleted, this client creates
/// its own. A second `PersistentNode` of this client at one path is in `Conflict`, too, until the
/// first is closed or dropped.
///
/// A process that was killed and started again is in `Conflict` with its former session until the
/// servers expire that session, for up to the session timeout (30 s by default). With
/// [`protected`](RecipeBuilder::protected) it is registered at once, while the former node still
/// exists.
///
/// Unlike a guard, a persistent node does not exclude other processes: another process may use the
/// name shortly after the node's end, before this process notices. Use an
/// [`InterProcessMutex`](crate::InterProcessMutex) for exclusion.
///
/// # Its end
/// [`close`](Self::close) deletes the node and waits for the deletion; dropping the value deletes
/// the node in the background. Neither deletes a node of another session.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zookeeper_test_server::Server::start()?;
/// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
/// use std::time::Duration;
/// use zookeeper_recipes::PersistentNode;
///
/// let node = PersistentNode::new(&client, "/services/web/web-1", "10.0.0.7:80")?;
/// node.wait_for_initial_create(Duration::from_secs(5)).await?;
/// # assert_eq!(server.node("/services/web/web-1").unwrap().data, b"10.0.0.7:80");
/// node.set_data("10.0.0.7:8080").await?;
/// # assert_eq!(server.node("/services/web/web-1").unwrap().data, b"10.0.0.7:8080");
/// node.close().await?;
/// # assert!(!server.exists("/services/web/web-1"));
/// # Ok(())
/// # }
/// ```
#[doc(alias = "PersistentEphemeralNode")]
#[doc(alias = "service discovery")]
#[must_use = "dropping it deletes the node: bind it to `_node`, not to `_`"]
pub struct PersistentNode {
    node: Arc<ManagedNode>,
    client: Arc<Core>,
    /// The node is deleted when this sender is dropped.
    wanted: watch::Sender<WantedNode>,
    closed: oneshot::Receiver<Result<(), PersistentNodeError>>,
}

impl PersistentNode {
    /// Creates the node at `path` in the background, with this data.
    ///
    /// # Errors
    /// [`BuildError::InvalidPath`] if ZooKeeper would refuse the path, and
    /// [`BuildError::InvalidOption`] if the data is longer than 1,000,000 bytes.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// use zookeeper_recipes::PersistentNode;
    ///
    /// let node = PersistentNode::new(&client, "/services/web/web-1", "10.0.0.7:80")?;
    /// assert_eq!(node.path(), "/services/web/web-1");
    /// # Ok(())
    /// # }
    /// ```
    pub fn new(
        client: &Client,
        path: impl AsRef<str>,
        data: impl Into<Vec<u8>>,
    ) -> Result<Self, BuildError> {
        Self::builder(client, path, data).build()
    }

    /// Returns a builder of the node at `path`, for options other than the defaults.
    ///
    /// The ACLs must grant the client READ and WRITE on the node, and DELETE on its directory.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// use std::time::Duration;
    /// use zookeeper_recipes::{Acl, ParentNodes, PersistentNode};
    ///
    /// let builder = PersistentNode::builder(&client, "/services/web/web-1", "10.0.0.7:80");
    /// let node = builder.protected().acl([Acl::open()]).parents(ParentNodes::Persistent).build()?;
    /// node.wait_for_initial_create(Duration::from_secs(5)).await?;
    /// assert!(node.path().starts_with("/services/web/_c_") && node.path().ends_with("-web-1"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn builder(
        client: &Client,
        path: impl AsRef<str>,
        data: impl Into<Vec<u8>>,
    ) -> RecipeBuilder<Self> {
        let mut builder = RecipeBuilder::new(client, path.as_ref());
        builder.asked.data = Some(data.into().into());
        builder
    }

    /// Waits until the node was created for the first time.
    ///
    /// # Errors
    /// - [`PersistentNodeError::TimedOut`] if `timeout` has passed. The error says whether another
    ///   node is at the path. The client continues to create the node.
    /// - [`ErrorKind::NoAuth`](crate::ErrorKind::NoAuth) or
    ///   [`ErrorKind::Rejected`](crate::ErrorKind::Rejected) at once, if the servers refuse the
    ///   node.
    /// - [`ErrorKind::Closed`](crate::ErrorKind::Closed) or
    ///   [`ErrorKind::AuthFailed`](crate::ErrorKind::AuthFailed) if the client is closed.
    ///
    /// # Cancel safety
    /// Cancel safe: this only waits.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// use std::time::Duration;
    /// use zookeeper_recipes::PersistentNode;
    ///
    /// let node = PersistentNode::new(&client, "/services/web/web-1", "10.0.0.7:80")?;
    /// node.wait_for_initial_create(Duration::from_secs(5)).await?;
    /// # assert!(server.exists(node.path()));
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "waitForInitialCreate")]
    pub async fn wait_for_initial_create(
        &self,
        timeout: Duration,
    ) -> Result<(), PersistentNodeError> {
        let (node, started) = (Arc::clone(&self.node), Instant::now());
        // The future runs on the session's thread, which has the timers.
        let waited = self.client.tasks.start(async move {
            // The data of the builder have the generation 1. Later data count, too, because the
            // node exists then.
            tokio::time::timeout(timeout, kept_node::until_written(&node, 1)).await
        });
        match waited.await {
            Ok(Ok(written)) => written,
            Ok(Err(_)) => Err(self.timed_out(started.elapsed())),
            Err(_) => Err(self.node.ended()),
        }
    }

    fn timed_out(&self, waited: Duration) -> PersistentNodeError {
        let source = self
            .node
            .trouble()
            .map(|trouble| Arc::new(trouble) as Cause);
        let conflict = self.state() == PersistentNodeState::Conflict;
        PersistentNodeError::TimedOut {
            path: self.path().to_owned(),
            waited,
            conflict,
            source,
        }
    }

    /// Sets the data, and waits until the node has the data.
    ///
    /// If the node does not exist at the moment, it is created with the new data. If two calls run
    /// at once, the later data is written, for both calls. The call overwrites data that another
    /// process has written to the node; data that another process writes later stays until the next
    /// call.
    ///
    /// # Errors
    /// - [`PersistentNodeError::DataTooLarge`] if the data is longer than 1,000,000 bytes. Nothing
    ///   is changed.
    /// - [`ErrorKind::NoAuth`](crate::ErrorKind::NoAuth) or
    ///   [`ErrorKind::Rejected`](crate::ErrorKind::Rejected) if the servers refuse the node. The
    ///   client tries again from time to time, with the new data.
    /// - [`ErrorKind::Closed`](crate::ErrorKind::Closed) or
    ///   [`ErrorKind::AuthFailed`](crate::ErrorKind::AuthFailed) if the client is closed.
    ///
    /// # Cancel safety
    /// The data is set at the first poll, even if the future is dropped later. To wait less, wrap
    /// the call in [`tokio::time::timeout`].
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// use zookeeper_recipes::PersistentNode;
    ///
    /// let node = PersistentNode::new(&client, "/services/web/web-1", "starting")?;
    /// node.set_data("ready").await?;
    /// # assert_eq!(server.node(node.path()).unwrap().data, b"ready");
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "setData")]
    pub async fn set_data(&self, data: impl Into<Vec<u8>>) -> Result<(), PersistentNodeError> {
        let data: Vec<u8> = data.into();
        if data.len() > MAX_DATA_BYTES {
            let (path, bytes) = (self.path().to_owned(), data.len());
            return Err(PersistentNodeError::DataTooLarge { path, bytes });
        }
        // Concurrent calls get different generations, each of which is answered by its own data or
        // later ones.
        let mut generation = 0;
        self.wanted.send_modify(|wanted| {
            generation = wanted.generation + 1;
            *wanted = WantedNode {
                data: data.into(),
                generation,
            };
        });
        waker::contain(kept_node::until_written(&self.node, generation)).await
    }

    /// Returns the state of the node.
    #[must_use]
    pub fn state(&self) -> PersistentNodeState {
        *self.node.state.borrow()
    }

    /// Returns a watch of the [`state`](Self::state), to wait for changes.
    ///
    /// The watch does not keep the node alive.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// use zookeeper_recipes::{PersistentNode, PersistentNodeState};
    ///
    /// let node = PersistentNode::new(&client, "/services/web/web-1", "10.0.0.7:80")?;
    /// let mut states = node.watch_state();
    /// states.wait_for(|state| *state == PersistentNodeState::Present).await.ok_or("closed")?;
    /// # assert!(server.exists(node.path()));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    #[doc(alias = "getListenable")]
    pub fn watch_state(&self) -> StateWatch<PersistentNodeState> {
        StateWatch::new(self.node.state.subscribe(), |state| {
            *state == PersistentNodeState::Closed
        })
    }

    /// Returns the path of the node, without the client's namespace. The path of a
    /// [protected](RecipeBuilder::protected) node includes its id.
    #[must_use]
    #[doc(alias = "getActualPath")]
    pub fn path(&self) -> &str {
        self.node.path.user()
    }

    /// Deletes the node, and waits until a server has confirmed that it is gone.
    ///
    /// If no server can be reached, the call waits until the client gives up the session.
    ///
    /// # Errors
    /// - [`PersistentNodeError::NotConfirmed`] if no server has confirmed the deletion: the session
    ///   ended before the answer, or the node belongs to an earlier session of this client. The
    ///   servers delete the node when they expire that session.
    /// - [`ErrorKind::NoAuth`](crate::ErrorKind::NoAuth) or
    ///   [`ErrorKind::Rejected`](crate::ErrorKind::Rejected) if the servers refuse to delete the
    ///   node, which then stays until the session ends.
    ///
    /// # Cancel safety
    /// The node is deleted in any case, from the moment of the call.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// use zookeeper_recipes::PersistentNode;
    ///
    /// let node = PersistentNode::new(&client, "/services/web/web-1", "10.0.0.7:80")?;
    /// node.close().await?;
    /// # assert!(!server.exists("/services/web/web-1"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn close(
        self,
    ) -> impl Future<Output = Result<(), PersistentNodeError>> + Send + 'static + use<> {
        let Self {
            node,
            client,
            wanted,
            closed,
        } = self;
        // The task deletes the node when this sender is dropped, whether the future below is polled
        // or not.
        drop(wanted);
        async move {
            // An error means that the client has ended, and the task with it.
            let mut result = waker::contain(closed)
                .await
                .unwrap_or_else(|_| Err(node.not_confirmed()));
            if matches!(result, Err(PersistentNodeError::NotConfirmed { .. }))
                && client.is_closed()
                && client.end_is_confirmed().await
            {
                // The node was deleted with the session.
                result = Ok(());
            }
            // The client is kept until here: the drop of its last handle would close the session
            // before the answer.
            drop(client);
            result
        }
    }
}

impl fmt::Debug for PersistentNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "PersistentNode({}, {:?})",
            Quoted(self.path()),
            self.state()
        )
    }
}

impl RecipeBuilder<PersistentNode> {
    /// Puts Curator's `_c_`, an id and `-` before the node's name, so that no other process has the
    /// same name. By default the name is used as given.
    ///
    /// The node keeps the id until the handle is closed or dropped. So there are no conflicts, and
    /// several processes can register under one name.
    #[doc(alias = "useProtection")]
    pub fn protected(mut self) -> Self {
        self.protected = true;
        self
    }
}

impl sealed::Buildable for PersistentNode {
    fn built(builder: RecipeBuilder<Self>) -> Result<Self, BuildError> {
        let RecipeBuilder {
            client: handle,
            path: given,
            asked,
            protected,
            ..
        } = builder;
        let client = Arc::clone(&handle.core);
        let mut path = LockPath::parse(&client.namespace, &given)?;
        let invalid = |option, reason| BuildError::InvalidOption {
            path: given.clone(),
            option,
            reason,
        };
        let data = asked.data.unwrap_or_default();
        if data.len() > MAX_DATA_BYTES {
            return Err(invalid("data", "it has at most 1,000,000 bytes"));
        }
        let acl = asked.acl.unwrap_or_else(|| Arc::clone(&client.acl));
        check_acl(&acl, &client.credentials).map_err(|reason| invalid("acl", reason))?;
        // The id is made once, so that the node has the same name in each session.
        if let Some((directory, name)) = given.rsplit_once('/').filter(|_| protected) {
            path = LockPath::parse(
                &client.namespace,
                &format!("{directory}/_c_{}-{name}", Uuid::new_v4()),
            )?;
        }
        let node = ManagedNode::new(&client, path, acl, asked.parents.unwrap_or_default());
        let (wanted, orders) = watch::channel(WantedNode {
            data,
            generation: 1,
        });
        let (told, closed) = oneshot::channel();
        if client.is_closed() {
            node.close_with(&client);
            // Nothing was created. The receiver still exists, so the send cannot fail.
            drop(told.send(Ok(())));
        } else {
            let turn = PathTurn::at(&handle.nodes, &node.path);
            let kept = kept_node::run(Arc::clone(&node), Arc::clone(&client), turn, orders, told);
            // The task ends when `wanted` is dropped, after it has deleted the node. The drop of
            // the handle must not abort the task before that.
            client.tasks.start(kept).detach();
        }
        Ok(Self {
            node,
            client,
            wanted,
            closed,
        })
    }
}
