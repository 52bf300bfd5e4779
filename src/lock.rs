//! What all locks have in common.

use std::fmt;
use std::time::{Duration, Instant};

use async_trait::async_trait;

use crate::error::{AcquireError, TryLockError};
use crate::guard::LockGuard;

/// Any of the exclusive locks, for code that does not care which; Curator's interface of this name.
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
    /// [`AcquireError::TimedOut`] when it was not free in time, and the others as they say.
    ///
    /// # Cancel safety
    /// Dropping the future loses the place in the queue and leaves nothing behind.
    async fn acquire(&self, timeout: Duration) -> Result<LockGuard, AcquireError>;

    /// Gets the lock before `deadline`.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire).
    ///
    /// # Cancel safety
    /// As [`acquire`](Self::acquire).
    async fn acquire_until(&self, deadline: Instant) -> Result<LockGuard, AcquireError>;

    /// Gets the lock, however long others hold it.
    ///
    /// # Errors
    /// Those of [`acquire`](Self::acquire) but [`AcquireError::TimedOut`].
    ///
    /// # Cancel safety
    /// As [`acquire`](Self::acquire).
    async fn lock(&self) -> Result<LockGuard, AcquireError>;

    /// Gets the lock if it is free.
    ///
    /// # Errors
    /// [`TryLockError::WouldBlock`] if it is not, and the others as they say.
    ///
    /// # Cancel safety
    /// Dropping the future leaves nothing behind.
    async fn try_lock(&self) -> Result<LockGuard, TryLockError>;

    /// The paths of the nodes that queue for the lock, in order; the first holds it.
    ///
    /// # Errors
    /// Those of [`acquire`](Self::acquire) but [`AcquireError::TimedOut`].
    ///
    /// # Cancel safety
    /// It only reads.
    async fn participants(&self) -> Result<Vec<String>, AcquireError>;

    /// Whether a guard of this client holds the lock.
    fn is_acquired_in_this_process(&self) -> bool;

    /// The lock's path.
    fn path(&self) -> &str;
}
