//! What all locks have in common: the trait, and the methods that every face has.

use std::fmt;
use std::panic::Location;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;

use crate::engine::hold::Hold;
use crate::engine::path_lock::{Admission, Budget, PathLock};
use crate::engine::{attempt, look};
use crate::error::{AcquireError, TryLockError};
use crate::guard::{AnyGuard, after};
use crate::path::NodePath;
use crate::protocol::node_name::Kind;

/// Any of the locks, for code that does not care which; Curator's interface of this name.
///
/// The types have methods of the same names, which need no `Box` for their futures and remember the caller's line for
/// error messages (through the trait it is a line of this library); use the trait for `dyn`.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zookeeper_test_server::Server::start()?;
/// # tokio::runtime::Runtime::new()?.block_on(async {
/// use std::time::Duration;
/// use zookeeper_recipes::{Client, InterProcessLock, InterProcessMutex};
///
/// async fn nightly(lock: &dyn InterProcessLock) -> Result<(), Box<dyn std::error::Error>> {
///     let guard = lock.acquire(Duration::from_secs(1)).await?;
///     // one node of the cluster runs the job
///     guard.release().await?;
///     Ok(())
/// }
///
/// let client = Client::connect(&server.connect_string()).await?;
/// nightly(&InterProcessMutex::new(&client, "/jobs/nightly")?).await
/// # })
/// # }
/// ```
#[async_trait]
pub trait InterProcessLock: fmt::Debug + Send + Sync {
    /// Gets the lock within `timeout`.
    ///
    /// # Errors
    /// [`AcquireError::TimedOut`] when live contenders were in the way for too long, and the other variants of
    /// [`AcquireError`].
    ///
    /// # Cancel safety
    /// Dropping the future loses the place in the queue and leaves nothing behind.
    async fn acquire(&self, timeout: Duration) -> Result<AnyGuard, AcquireError>;

    /// Gets the lock before `deadline`.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire).
    ///
    /// # Cancel safety
    /// As [`acquire`](Self::acquire).
    async fn acquire_until(&self, deadline: Instant) -> Result<AnyGuard, AcquireError>;

    /// Gets the lock, however long others hold it.
    ///
    /// # Errors
    /// Those of [`acquire`](Self::acquire) but [`AcquireError::TimedOut`].
    ///
    /// # Cancel safety
    /// As [`acquire`](Self::acquire).
    async fn lock(&self) -> Result<AnyGuard, AcquireError>;

    /// Gets the lock if it is free.
    ///
    /// # Errors
    /// [`TryLockError::WouldBlock`] if it is not, and the others as they say.
    ///
    /// # Cancel safety
    /// Dropping the future leaves nothing behind.
    async fn try_lock(&self) -> Result<AnyGuard, TryLockError>;

    /// The paths of the nodes that queue for the lock, in order; the first holds it.
    ///
    /// # Errors
    /// Those of [`acquire`](Self::acquire) but [`AcquireError::TimedOut`].
    ///
    /// # Cancel safety
    /// It only reads.
    async fn participants(&self) -> Result<Vec<NodePath>, AcquireError>;

    /// Whether a guard of this client holds the lock.
    fn is_acquired_in_this_process(&self) -> bool;

    /// The lock's path.
    fn path(&self) -> &str;
}

/// Only to ask: waits for nobody but the servers.
pub(crate) fn ask(path_lock: &PathLock) -> Budget {
    Budget::Try { patience: path_lock.client().connect_timeout() }
}

/// The budget of a call with a timeout.
pub(crate) fn within(path_lock: &PathLock, timeout: Duration) -> Budget {
    if timeout.is_zero() {
        return ask(path_lock);
    }
    after(timeout).map_or(Budget::Forever, |deadline| Budget::Until { deadline, asked: timeout })
}

/// The budget of a call with a deadline.
pub(crate) fn until(path_lock: &PathLock, deadline: Instant) -> Budget {
    let asked = deadline.saturating_duration_since(Instant::now());
    if asked.is_zero() { ask(path_lock) } else { Budget::Until { deadline, asked } }
}

/// Gets a lock, or says why not, where nobody minds which of "busy" and "not in time" it was.
pub(crate) async fn acquire(
    path_lock: Arc<PathLock>,
    kind: Kind,
    budget: Budget,
    location: &'static Location<'static>,
) -> Result<Hold, AcquireError> {
    let started = Instant::now();
    let mut admission = Admission::First;
    loop {
        match attempt::acquire(Arc::clone(&path_lock), kind, budget, admission, location).await {
            // Granted, and lost before it got here: a caller that was paused that long, or not polled, has nothing yet.
            Ok(hold) => match (hold.lost(), budget) {
                (None, _) => return Ok(hold),
                (Some(_), Budget::Forever) => {}
                (Some(_), Budget::Until { deadline, .. }) if Instant::now() < deadline => {}
                (Some(reason), _) => return Err(path_lock.lost_at_once(reason)),
            },
            Err(error) => {
                let asked = match budget {
                    Budget::Until { asked, .. } => asked,
                    Budget::Try { .. } | Budget::Forever => Duration::ZERO,
                };
                return Err(error.timed_out(asked, started.elapsed()));
            }
        }
        admission = Admission::Again;
    }
}

/// Gets a lock if it is free.
pub(crate) async fn try_lock(
    path_lock: Arc<PathLock>,
    kind: Kind,
    location: &'static Location<'static>,
) -> Result<Hold, TryLockError> {
    match attempt::acquire(Arc::clone(&path_lock), kind, ask(&path_lock), Admission::First, location).await {
        Ok(hold) => match hold.lost() {
            None => Ok(hold),
            // Lost before it got here.
            Some(reason) => Err(path_lock.lost_at_once(reason).into()),
        },
        Err(error) => Err(error),
    }
}

/// The nodes in the queue.
pub(crate) async fn participants(
    path_lock: Arc<PathLock>,
    kind: Option<Kind>,
) -> Result<Vec<NodePath>, AcquireError> {
    let work = Arc::clone(&path_lock);
    let participants =
        path_lock.client().run_while_polled(async move { look::participants(&work, kind).await });
    participants.await.unwrap_or_else(|| Err(path_lock.client().why_ended(path_lock.path())))
}

/// What every lock can do, for a type with a `path_lock`: the methods, and the trait.
macro_rules! lock_methods {
    ($lock:ident, $guard:ident, $kind:expr, $listed:expr) => {
        impl $lock {
            /// Gets the lock within `timeout`, which covers everything: making the directory, repetitions, reconnects,
            /// and the waiting for others. [`Duration::ZERO`](std::time::Duration::ZERO) only asks, like
            /// [`try_lock`](Self::try_lock); a duration beyond a year is no deadline.
            ///
            /// # Errors
            /// [`AcquireError::TimedOut`](crate::AcquireError::TimedOut) when live contenders were in the way for too long:
            /// the lock will then not be granted, and a node that could not be deleted yet is deleted in the background.
            /// [`AcquireError::Connection`](crate::AcquireError::Connection) when the time passed without an answer of the
            /// servers. The others are those of [`AcquireError`](crate::AcquireError).
            ///
            /// # Cancel safety
            /// Dropping the future (in `select!`, in [`tokio::time::timeout`]) loses the place in the queue and nothing
            /// else: a node that was created, or may have been, is deleted in the background;
            /// [`Client::flush`](crate::Client::flush) waits for it. Do not keep the future without polling it: the lock
            /// may have been granted to it, and everybody waits until it is polled or dropped.
            #[track_caller]
            pub fn acquire(
                &self,
                timeout: std::time::Duration,
            ) -> impl Future<Output = Result<$guard, crate::AcquireError>> + Send + 'static {
                let budget = $crate::lock::within(&self.path_lock, timeout);
                let location = std::panic::Location::caller();
                let hold =
                    $crate::lock::acquire(std::sync::Arc::clone(&self.path_lock), $kind, budget, location);
                async move { hold.await.map($guard::new) }
            }

            /// Gets the lock before `deadline`. One that has passed only asks, like [`try_lock`](Self::try_lock).
            ///
            /// # Errors
            /// As [`acquire`](Self::acquire).
            ///
            /// # Cancel safety
            /// As [`acquire`](Self::acquire).
            #[track_caller]
            pub fn acquire_until(
                &self,
                deadline: std::time::Instant,
            ) -> impl Future<Output = Result<$guard, crate::AcquireError>> + Send + 'static {
                let budget = $crate::lock::until(&self.path_lock, deadline);
                let location = std::panic::Location::caller();
                let hold =
                    $crate::lock::acquire(std::sync::Arc::clone(&self.path_lock), $kind, budget, location);
                async move { hold.await.map($guard::new) }
            }

            /// Gets the lock, however long others hold it.
            ///
            /// # Errors
            /// [`AcquireError::Connection`](crate::AcquireError::Connection) when there is no server for as long as the
            /// client's retry policy allows; it never gives up because the lock is busy. The others as they say, but
            /// never [`AcquireError::TimedOut`](crate::AcquireError::TimedOut).
            ///
            /// # Cancel safety
            /// As [`acquire`](Self::acquire).
            #[track_caller]
            pub fn lock(&self) -> impl Future<Output = Result<$guard, crate::AcquireError>> + Send + 'static {
                let budget = $crate::engine::path_lock::Budget::Forever;
                let location = std::panic::Location::caller();
                let hold =
                    $crate::lock::acquire(std::sync::Arc::clone(&self.path_lock), $kind, budget, location);
                async move { hold.await.map($guard::new) }
            }

            /// Gets the lock if it is free. If contended, this creates no node: it reads the queue and confirms it behind a
            /// `sync`, because a member may lag behind. If live contenders of this client have all its places for nodes,
            /// it returns without a request. Nodes of this client that are still being deleted are waited for.
            ///
            /// # Errors
            /// [`TryLockError::WouldBlock`](crate::TryLockError::WouldBlock) when a live contender is in the way. With no
            /// answer from a server within the connect timeout
            /// [`AcquireError::Connection`](crate::AcquireError::Connection). The others are those of
            /// [`AcquireError`](crate::AcquireError).
            ///
            /// # Cancel safety
            /// Dropping the future leaves nothing behind, as with [`acquire`](Self::acquire).
            #[track_caller]
            pub fn try_lock(
                &self,
            ) -> impl Future<Output = Result<$guard, crate::TryLockError>> + Send + 'static {
                let location = std::panic::Location::caller();
                let hold = $crate::lock::try_lock(std::sync::Arc::clone(&self.path_lock), $kind, location);
                async move { hold.await.map($guard::new) }
            }

            /// The paths of the nodes that queue for the lock, of all processes, in order; the first holds it. Empty
            /// when nobody does. A read lock lists readers only, and a write lock writers, as Curator's do. It is old by
            /// the time it arrives.
            ///
            /// # Errors
            /// Those of [`acquire`](Self::acquire) but [`AcquireError::TimedOut`](crate::AcquireError::TimedOut).
            ///
            /// # Cancel safety
            /// It only reads.
            #[doc(alias = "getParticipantNodes")]
            pub async fn participants(&self) -> Result<Vec<crate::NodePath>, crate::AcquireError> {
                $crate::lock::participants(std::sync::Arc::clone(&self.path_lock), $listed).await
            }

            /// Whether a guard of this client holds the lock, as far as it knows.
            #[must_use]
            #[doc(alias = "isAcquiredInThisProcess")]
            pub fn is_acquired_in_this_process(&self) -> bool {
                self.path_lock.is_held($kind)
            }

            /// The lock's path, as it was given.
            #[must_use]
            pub fn path(&self) -> &str {
                self.path_lock.path().user()
            }
        }

        #[async_trait::async_trait]
        impl $crate::lock::InterProcessLock for $lock {
            async fn acquire(
                &self,
                timeout: std::time::Duration,
            ) -> Result<crate::AnyGuard, crate::AcquireError> {
                Self::acquire(self, timeout).await.map(Into::into)
            }

            async fn acquire_until(
                &self,
                deadline: std::time::Instant,
            ) -> Result<crate::AnyGuard, crate::AcquireError> {
                Self::acquire_until(self, deadline).await.map(Into::into)
            }

            async fn lock(&self) -> Result<crate::AnyGuard, crate::AcquireError> {
                Self::lock(self).await.map(Into::into)
            }

            async fn try_lock(&self) -> Result<crate::AnyGuard, crate::TryLockError> {
                Self::try_lock(self).await.map(Into::into)
            }

            async fn participants(&self) -> Result<Vec<crate::NodePath>, crate::AcquireError> {
                Self::participants(self).await
            }

            fn is_acquired_in_this_process(&self) -> bool {
                Self::is_acquired_in_this_process(self)
            }

            fn path(&self) -> &str {
                Self::path(self)
            }
        }
    };
}

/// What every builder can do.
macro_rules! lock_builder {
    ($(#[$docs:meta])* $builder:ident, $lock:ident, $recipe:expr) => {
        $(#[$docs])*
        ///
        /// All handles of one client for one path and recipe share them: the first handle decides, and what a later one
        /// leaves open it takes over.
        #[must_use = "it does nothing until `build` is called"]
        #[derive(Clone)]
        pub struct $builder {
            client: crate::Client,
            path: String,
            asked: crate::engine::lock_options::Asked,
        }

        impl std::fmt::Debug for $builder {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, "{}({})", stringify!($builder), $crate::shown::Quoted(&self.path))
            }
        }

        impl $builder {
            /// The data of the lock nodes, for people and tools that look at them; no recipe reads it. At most 1,000,000
            /// bytes, by default `zookeeper-recipes`. (Curator writes its host's address. Kazoo reads it as UTF-8.)
            #[doc(alias = "getLockNodeBytes")]
            pub fn data(mut self, data: impl Into<Vec<u8>>) -> Self {
                self.asked.data = Some(data.into().into());
                self
            }

            /// The ACL of the lock nodes and of directories that have to be made; by default the client's.
            pub fn acl(mut self, acl: impl Into<Vec<crate::Acl>>) -> Self {
                self.asked.acl = Some(acl.into().into());
                self
            }

            /// How missing directories are made; by default as [containers](crate::Parents::Container), with kazoo's
            /// dialect as [ordinary nodes](crate::Parents::Persistent).
            #[doc(alias = "dontUseContainerParents")]
            pub fn parents(mut self, parents: crate::Parents) -> Self {
                self.asked.parents = Some(parents);
                self
            }

            /// Whose node names to use; by default [Curator's](crate::Dialect::Curator).
            pub fn dialect(mut self, dialect: crate::Dialect) -> Self {
                self.asked.dialect = Some(dialect);
                self
            }

            /// The lock. No I/O is done.
            ///
            /// # Errors
            /// [`BuildError::InvalidPath`](crate::BuildError::InvalidPath),
            /// [`BuildError::InvalidOption`](crate::BuildError::InvalidOption),
            /// [`BuildError::ConflictingOptions`](crate::BuildError::ConflictingOptions) when a live handle of the same
            /// client was made with others, and [`BuildError::MixedRecipes`](crate::BuildError::MixedRecipes) when one
            /// uses the path for a recipe of another order.
            pub fn build(self) -> Result<$lock, crate::BuildError> {
                let path_lock = self.client.path_lock(&self.path, $recipe, &self.asked)?;
                Ok($lock { path_lock })
            }
        }
    };
}

pub(crate) use {lock_builder, lock_methods};
