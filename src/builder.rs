//! The builder of the recipes that have options.

use std::fmt;
use std::marker::PhantomData;
use std::panic::Location;
use std::sync::Arc;

use crate::client::Client;
use crate::engine::lock::lock_options::{Recipe, RequestedOptions};
use crate::engine::lock::path_lock::PathLock;
use crate::error::BuildError;
use crate::protocol::node_name::Dialect;
use crate::values::options::{Acl, ParentNodes};
use crate::values::shown::Quoted;

/// Builder of a recipe: of a lock, a semaphore, a participant in an election, a counter or a node.
///
/// The `builder` function of each recipe returns this type, and its documentation shows all options
/// of the recipe.
///
/// All handles of one client for one path and recipe share their options: the first handle sets
/// them, and a later one inherits the options that it leaves unset. A mutex and a leader selector
/// share them too. Counters and persistent nodes share no options.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zookeeper_test_server::Server::start()?;
/// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
/// use zookeeper_recipes::{InterProcessMutex, ParentNodes, RecipeBuilder};
///
/// /// What all recipes of this program have in common.
/// fn ours<R>(builder: RecipeBuilder<R>) -> RecipeBuilder<R> {
///     builder.parents(ParentNodes::Persistent)
/// }
/// let lock = ours(InterProcessMutex::builder(&client, "/jobs/nightly")).data("worker-7").build()?;
/// # lock.lock().await?.release().await?;
/// # Ok(())
/// # }
/// ```
#[must_use = "it does nothing until `build` is called"]
pub struct RecipeBuilder<R> {
    pub(crate) client: Client,
    pub(crate) path: String,
    pub(crate) asked: RequestedOptions,
    /// Whether a persistent node is protected.
    pub(crate) protected: bool,
    /// Where `build` was called.
    pub(crate) location: &'static Location<'static>,
    recipe: PhantomData<fn() -> R>,
}

impl<R> Clone for RecipeBuilder<R> {
    fn clone(&self) -> Self {
        let (client, path, asked) = (self.client.clone(), self.path.clone(), self.asked.clone());
        Self {
            client,
            path,
            asked,
            ..*self
        }
    }
}

impl<R> fmt::Debug for RecipeBuilder<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RecipeBuilder({})", Quoted(&self.path))
    }
}

impl<R> RecipeBuilder<R> {
    pub(crate) fn new(client: &Client, path: &str) -> Self {
        let (client, path, asked) = (client.clone(), path.to_owned(), RequestedOptions::default());
        Self {
            client,
            path,
            asked,
            protected: false,
            location: Location::caller(),
            recipe: PhantomData,
        }
    }

    pub(crate) fn path_lock(&self, recipe: Recipe) -> Result<Arc<PathLock>, BuildError> {
        self.client.path_lock(&self.path, recipe, &self.asked)
    }

    /// Returns a path lock that shares neither options nor nodes with those of the client.
    pub(crate) fn unshared_path_lock(&self, recipe: Recipe) -> Result<Arc<PathLock>, BuildError> {
        PathLock::get(
            &Arc::default(),
            &self.client.core,
            &self.path,
            recipe,
            &self.asked,
        )
    }

    /// Sets the ACL of the nodes, and of missing directories.
    ///
    /// The default is the client's ACL ([`ClientBuilder::acl`](crate::ClientBuilder::acl)).
    pub fn acl(mut self, acl: impl Into<Vec<Acl>>) -> Self {
        self.asked.acl = Some(acl.into().into());
        self
    }

    /// Sets the kind of the nodes that are created for missing directories.
    ///
    /// The default is [`ParentNodes::Container`], as in Curator; with [kazoo's
    /// dialect](Dialect::Kazoo), for recipes that have it, it is [`ParentNodes::Persistent`].
    #[doc(alias = "dontUseContainerParents")]
    pub fn parents(mut self, parents: ParentNodes) -> Self {
        self.asked.parents = Some(parents);
        self
    }
}

impl<R: sealed::Buildable> RecipeBuilder<R> {
    /// Builds the recipe, without any I/O. A latch then joins its election, and a persistent node
    /// is created, in the background; their methods report later errors.
    ///
    /// # Errors
    /// - [`BuildError::InvalidPath`] if ZooKeeper would refuse the path, or it is `/`, below
    ///   `/zookeeper`, or longer than 16 KiB with the namespace.
    /// - [`BuildError::InvalidOption`] if an option has an invalid value.
    /// - [`BuildError::ConflictingOptions`] if the same client uses the path with another value of
    ///   an option. The error calls the id of a selector `data`.
    /// - [`BuildError::LimitMismatch`] if the same client uses a semaphore with another limit.
    /// - [`BuildError::MixedRecipes`] if the same client uses the path for a recipe with another
    ///   kind of queue.
    ///
    /// A client uses a path while a handle or a guard exists, or nodes of a call are still being
    /// deleted.
    #[doc(alias = "start")]
    #[doc(alias = "create")]
    #[track_caller]
    pub fn build(self) -> Result<R, BuildError> {
        R::built(Self {
            location: Location::caller(),
            ..self
        })
    }
}

impl<R: sealed::HasData> RecipeBuilder<R> {
    /// Sets the data of the nodes, which people and tools read, and recipes do not.
    ///
    /// The data may have at most 1,000,000 bytes, because ZooKeeper refuses requests over 1 MiB;
    /// acquiring several permits of a semaphore at once is one request. If the servers have a lower
    /// limit (`jute.maxbuffer`), calls with more data end with
    /// [`ErrorKind::Connection`](crate::ErrorKind::Connection). The default is one line that
    /// identifies this process, an [`Identity`](crate::Identity); Curator's default is the address
    /// of its host. Kazoo reads the data as UTF-8.
    #[doc(alias = "getLockNodeBytes")]
    #[doc(alias = "setNodeData")]
    pub fn data(mut self, data: impl Into<Vec<u8>>) -> Self {
        self.asked.data = Some(data.into().into());
        self
    }
}

impl<R: sealed::HasDialect> RecipeBuilder<R> {
    /// Sets the form of the node names: [`Dialect::Kazoo`] for contention with processes of kazoo.
    ///
    /// The default is [`Dialect::Curator`]. All contenders for one path must use the same dialect.
    pub fn dialect(mut self, dialect: Dialect) -> Self {
        self.asked.dialect = Some(dialect);
        self
    }
}

pub(crate) mod sealed {
    use super::RecipeBuilder;
    use crate::error::BuildError;

    /// The type that a builder builds.
    #[expect(unnameable_types, reason = "sealing is the point")]
    pub trait Buildable: Sized {
        #[doc(hidden)]
        fn built(builder: RecipeBuilder<Self>) -> Result<Self, BuildError>;
    }

    /// A recipe whose nodes have data for people.
    #[expect(unnameable_types, reason = "sealing is the point")]
    pub trait HasData: Buildable {}

    /// A recipe that kazoo has too.
    #[expect(unnameable_types, reason = "sealing is the point")]
    pub trait HasDialect: Buildable {}
}
