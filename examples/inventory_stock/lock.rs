//! The lock of one product, of the kind that the command line asks for.

use std::time::Duration;

use zookeeper_recipes::{
    AcquireError, AnyGuard, BuildError, Client, Error, InterProcessFairLock, InterProcessMutex,
    InterProcessReadWriteLock, NodePath,
};

use crate::options::Lock;

/// The lock of one product.
#[derive(Clone, Debug)]
pub(crate) enum ProductLock {
    Mutex(InterProcessMutex),
    Fair(InterProcessFairLock),
    ReadWrite(InterProcessReadWriteLock),
}

impl ProductLock {
    /// Creates the lock; returns `None` for [`Lock::None`].
    pub(crate) fn new(kind: Lock, client: &Client, path: &str) -> Result<Option<Self>, BuildError> {
        Ok(match kind {
            Lock::Mutex => Some(Self::Mutex(InterProcessMutex::new(client, path)?)),
            Lock::Fair => Some(Self::Fair(InterProcessFairLock::new(client, path)?)),
            Lock::ReadWrite => Some(Self::ReadWrite(InterProcessReadWriteLock::new(
                client, path,
            )?)),
            Lock::None => None,
        })
    }

    /// Acquires the lock for a user who buys: no other is inside.
    pub(crate) async fn acquire(&self, wait: Duration) -> Result<AnyGuard, AcquireError> {
        match self {
            Self::Mutex(lock) => lock.acquire(wait).await.map(AnyGuard::from),
            Self::Fair(lock) => lock.acquire(wait).await.map(AnyGuard::from),
            Self::ReadWrite(lock) => lock.write_lock().acquire(wait).await.map(AnyGuard::from),
        }
    }

    /// Acquires the lock for a user who looks, beside others who look; returns `None` if there is
    /// no read lock.
    pub(crate) async fn acquire_read(
        &self,
        wait: Duration,
    ) -> Result<Option<AnyGuard>, AcquireError> {
        match self {
            Self::Mutex(_) | Self::Fair(_) => Ok(None),
            Self::ReadWrite(lock) => lock
                .read_lock()
                .acquire(wait)
                .await
                .map(|guard| Some(guard.into())),
        }
    }

    /// Returns the nodes in the lock's queue, in order.
    pub(crate) async fn participants(&self) -> Result<Vec<NodePath>, Error> {
        match self {
            Self::Mutex(lock) => lock.participants().await,
            Self::Fair(lock) => lock.participants().await,
            Self::ReadWrite(lock) => lock.participants().await,
        }
    }
}
