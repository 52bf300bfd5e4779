//! What keeps the users of one product apart.

use std::time::Duration;

use zookeeper_recipes::{
    AcquireError, AnyGuard, BuildError, Client, InterProcessFairLock, InterProcessMutex,
    InterProcessReadWriteLock,
};

use crate::options::Lock;

/// The lock of one product.
#[derive(Clone, Debug)]
pub(crate) enum ShelfLock {
    Mutex(InterProcessMutex),
    Fair(InterProcessFairLock),
    ReadWrite(InterProcessReadWriteLock),
}

impl ShelfLock {
    /// Nothing, if it is to be nothing.
    pub(crate) fn new(kind: Lock, client: &Client, path: &str) -> Result<Option<Self>, BuildError> {
        Ok(match kind {
            Lock::Mutex => Some(Self::Mutex(InterProcessMutex::new(client, path)?)),
            Lock::Fair => Some(Self::Fair(InterProcessFairLock::new(client, path)?)),
            Lock::ReadWrite => Some(Self::ReadWrite(InterProcessReadWriteLock::new(client, path)?)),
            Lock::None => None,
        })
    }

    /// For one who buys: alone.
    pub(crate) async fn to_buy(&self, wait: Duration) -> Result<AnyGuard, AcquireError> {
        match self {
            Self::Mutex(lock) => lock.acquire(wait).await.map(AnyGuard::from),
            Self::Fair(lock) => lock.acquire(wait).await.map(AnyGuard::from),
            Self::ReadWrite(lock) => lock.write_lock().acquire(wait).await.map(AnyGuard::from),
        }
    }

    /// For one who only looks: beside others who look. Nothing, where the lock knows no such thing.
    pub(crate) async fn to_look(&self, wait: Duration) -> Result<Option<AnyGuard>, AcquireError> {
        match self {
            Self::Mutex(_) | Self::Fair(_) => Ok(None),
            Self::ReadWrite(lock) => lock.read_lock().acquire(wait).await.map(|guard| Some(guard.into())),
        }
    }

    /// The nodes in its queue.
    pub(crate) async fn participants(&self) -> Result<Vec<String>, AcquireError> {
        match self {
            Self::Mutex(lock) => lock.participants().await,
            Self::Fair(lock) => lock.participants().await,
            Self::ReadWrite(lock) => lock.participants().await,
        }
    }
}
