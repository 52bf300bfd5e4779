//! The common parts of the recipes' builders.

/// Defines an option of a builder.
macro_rules! option {
    (data) => {
        /// Sets the data of the nodes, for people and tools that look at them; no recipe reads it.
        ///
        /// The data may have at most 1,000,000 bytes, because ZooKeeper refuses requests over 1 MiB;
        /// acquiring several permits of a semaphore at once is one request. The default is one line that
        /// identifies this process, an [`Identity`](crate::Identity); Curator's default is the address of its
        /// host. Kazoo reads the data as UTF-8.
        #[doc(alias = "getLockNodeBytes")]
        #[doc(alias = "setNodeData")]
        pub fn data(mut self, data: impl Into<Vec<u8>>) -> Self {
            self.asked.data = Some(data.into().into());
            self
        }
    };
    (acl) => {
        /// Sets the ACL of the nodes, and of missing directories.
        ///
        /// The default is the client's ACL ([`ClientBuilder::acl`](crate::ClientBuilder::acl)).
        pub fn acl(mut self, acl: impl Into<Vec<crate::Acl>>) -> Self {
            self.asked.acl = Some(acl.into().into());
            self
        }
    };
    (parents) => {
        /// Sets the kind of the nodes that are created for missing directories.
        ///
        /// The default is [`ParentNodes::Container`](crate::ParentNodes::Container), as in Curator; with
        /// [kazoo's dialect](crate::Dialect::Kazoo), for recipes that have it, it is
        /// [`ParentNodes::Persistent`](crate::ParentNodes::Persistent).
        #[doc(alias = "dontUseContainerParents")]
        pub fn parents(mut self, parents: crate::ParentNodes) -> Self {
            self.asked.parents = Some(parents);
            self
        }
    };
    (dialect) => {
        /// Sets the form of the node names: [`Dialect::Kazoo`](crate::Dialect::Kazoo) for contention with
        /// processes of kazoo.
        ///
        /// The default is [`Dialect::Curator`](crate::Dialect::Curator). All contenders for one path must use
        /// the same dialect.
        pub fn dialect(mut self, dialect: crate::Dialect) -> Self {
            self.asked.dialect = Some(dialect);
            self
        }
    };
}

/// Defines a builder with these options.
macro_rules! builder {
    ($(#[$docs:meta])* $builder:ident [$($option:ident),+]) => {
        $(#[$docs])*
        #[derive(Clone)]
        pub struct $builder {
            client: crate::Client,
            path: String,
            asked: crate::engine::lock_options::RequestedOptions,
        }

        impl std::fmt::Debug for $builder {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, "{}({})", stringify!($builder), $crate::shown::Quoted(&self.path))
            }
        }

        impl $builder {
            fn new(client: &crate::Client, path: &str) -> Self {
                Self { client: client.clone(), path: path.to_owned(), asked: Default::default() }
            }

            $($crate::builder::option!($option);)+
        }
    };
}

/// Defines the builder of a lock, and the functions that make the lock.
///
/// `$noun` and `$path` are for the documentation.
macro_rules! lock_builder {
    ($(#[$docs:meta])* $builder:ident, $lock:ident, $recipe:expr, $noun:literal, $path:literal) => {
        $crate::builder::builder! {
            $(#[$docs])*
            #[must_use = "it does nothing until `build` is called"]
            $builder [data, acl, parents, dialect]
        }

        impl $builder {
            /// Builds the lock, without any I/O.
            ///
            /// # Errors
            /// - [`BuildError::InvalidPath`](crate::BuildError::InvalidPath) if ZooKeeper would refuse the
            ///   path, or it is `/`, below `/zookeeper`, or longer than 16 KiB with the namespace.
            /// - [`BuildError::InvalidOption`](crate::BuildError::InvalidOption) if an option has a value
            ///   that cannot work.
            /// - [`BuildError::ConflictingOptions`](crate::BuildError::ConflictingOptions) if the same client
            ///   uses the path with another value of an option.
            /// - [`BuildError::MixedRecipes`](crate::BuildError::MixedRecipes) if the same client uses the
            ///   path for a recipe with another kind of queue.
            ///
            /// A client uses a path while there is a live handle or guard, or a call whose nodes are still
            /// being deleted.
            pub fn build(self) -> Result<$lock, crate::BuildError> {
                let path_lock = self.client.path_lock(&self.path, $recipe, &self.asked)?;
                Ok($lock { path_lock })
            }
        }

        impl $lock {
            #[doc = concat!("Creates a handle of the ", $noun, " at `path`, without any I/O.")]
            ///
            /// The handle has the options of this client's existing handles for the path, or the defaults.
            ///
            /// # Errors
            /// - [`BuildError::InvalidPath`](crate::BuildError::InvalidPath) if ZooKeeper would refuse the
            ///   path, or it is `/`, below `/zookeeper`, or longer than 16 KiB with the namespace.
            /// - [`BuildError::MixedRecipes`](crate::BuildError::MixedRecipes) if this client uses the path
            ///   for a recipe with another kind of queue (a read-write lock, where this is none, or the
            ///   reverse). It does so while there is a live handle or guard, or a call whose nodes are still
            ///   being deleted.
            ///
            /// # Examples
            /// ```
            /// # #[tokio::main(flavor = "current_thread")]
            /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
            /// # let server = zookeeper_test_server::Server::start()?;
            /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
            #[doc = concat!("use zookeeper_recipes::", stringify!($lock), ";")]
            ///
            #[doc = concat!("let lock = ", stringify!($lock), "::new(&client, \"", $path, "\")?;")]
            #[doc = concat!("assert_eq!(lock.path(), \"", $path, "\");")]
            #[doc = concat!("assert!(", stringify!($lock), "::new(&client, \"no/slash\").is_err());")]
            /// # Ok(())
            /// # }
            /// ```
            pub fn new(client: &crate::Client, path: impl AsRef<str>) -> Result<Self, crate::BuildError> {
                Self::builder(client, path).build()
            }

            #[doc = concat!("Returns a builder of the ", $noun, " at `path`, for other options than the")]
            /// defaults.
            ///
            /// # Examples
            /// ```
            /// # #[tokio::main(flavor = "current_thread")]
            /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
            /// # let server = zookeeper_test_server::Server::start()?;
            /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
            #[doc = concat!("use zookeeper_recipes::", stringify!($lock), ";")]
            ///
            #[doc = concat!("let builder = ", stringify!($lock), "::builder(&client, \"", $path, "\");")]
            /// let lock = builder.data("worker-7").build()?;
            /// # lock.participants().await?;
            /// # Ok(())
            /// # }
            /// ```
            pub fn builder(client: &crate::Client, path: impl AsRef<str>) -> $builder {
                $builder::new(client, path.as_ref())
            }
        }
    };
}

pub(crate) use {builder, lock_builder, option};
