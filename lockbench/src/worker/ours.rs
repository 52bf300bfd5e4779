//! The locks of this workspace.

use std::time::Duration;

use zookeeper_recipes::{
    AcquireError, Client, ErrorKind, InterProcessFairLock, InterProcessMutex, InterProcessReadLock,
    InterProcessReadWriteLock, InterProcessWriteLock, LockGuard, ReadGuard, WriteGuard,
};

use super::drive::Contender;
use crate::Error;
use crate::job::{Job, Recipe, Release};

/// The most waiters that a fair lock accepts of one client.
const MAX_WAITERS: usize = 15_000;
/// How long background deletions may take at the end of a round.
const SETTLE: Duration = Duration::from_secs(60);

pub(crate) struct Session(Client);

pub(crate) enum Lock {
    Mutex(InterProcessMutex),
    Fair(InterProcessFairLock),
    ReadWrite(InterProcessReadLock, InterProcessWriteLock),
}

pub(crate) enum Guard {
    Exclusive(LockGuard),
    Read(ReadGuard),
    Write(WriteGuard),
}

impl Contender for Session {
    type Lock = Lock;
    type Guard = Guard;

    fn most_nodes(lock: &Lock) -> usize {
        if matches!(lock, Lock::Fair(_)) {
            usize::MAX
        } else {
            1
        }
    }

    async fn connect(job: &Job) -> Result<Self, Error> {
        Ok(Self(Client::connect(&job.servers).await?))
    }

    async fn lock(&self, job: &Job, path: &str) -> Result<Lock, Error> {
        Ok(match job.recipe {
            Recipe::Mutex => Lock::Mutex(InterProcessMutex::new(&self.0, path)?),
            Recipe::Fair => Lock::Fair(
                InterProcessFairLock::builder(&self.0, path)
                    .max_waiters(MAX_WAITERS)
                    .build()?,
            ),
            Recipe::ReadWrite => {
                let lock = InterProcessReadWriteLock::new(&self.0, path)?;
                Lock::ReadWrite(lock.read_lock(), lock.write_lock())
            }
        })
    }

    async fn acquire(&self, lock: &Lock, reading: bool) -> Result<Guard, Error> {
        Ok(match lock {
            Lock::Mutex(lock) => Guard::Exclusive(lock.lock().await?),
            Lock::Fair(lock) => Guard::Exclusive(lock.lock().await?),
            Lock::ReadWrite(lock, _) if reading => Guard::Read(lock.lock().await?),
            Lock::ReadWrite(_, lock) => Guard::Write(lock.lock().await?),
        })
    }

    async fn release(&self, guard: Guard, how: Release) -> Result<(), Error> {
        match (guard, how) {
            (guard, Release::Dropped) => drop(guard),
            (Guard::Exclusive(guard), Release::Awaited) => guard.release().await?,
            (Guard::Read(guard), Release::Awaited) => guard.release().await?,
            (Guard::Write(guard), Release::Awaited) => guard.release().await?,
        }
        Ok(())
    }

    async fn ask_for(&self, lock: &Lock, time: Duration) -> Result<Option<Guard>, Error> {
        let granted = match lock {
            Lock::Mutex(lock) => lock.acquire(time).await,
            Lock::Fair(lock) => lock.acquire(time).await,
            Lock::ReadWrite(..) => return Err("only mutexes give up".into()),
        };
        match granted {
            Ok(guard) => Ok(Some(Guard::Exclusive(guard))),
            // A call that has not received the long list in time does not know the contender that
            // it waits for.
            Err(AcquireError::TimedOut { .. }) => Ok(None),
            Err(error) if error.kind() == Some(ErrorKind::Connection) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    async fn queued(&self, lock: &Lock) -> Result<usize, Error> {
        Ok(match lock {
            Lock::Mutex(lock) => lock.participants().await?.len(),
            Lock::Fair(lock) => lock.participants().await?.len(),
            Lock::ReadWrite(..) => return Err("only mutexes give up".into()),
        })
    }

    async fn settle(&self) -> Result<(), Error> {
        Ok(self.0.flush(SETTLE).await?)
    }

    async fn close(&self) {
        // The session ends all that is left on the servers.
        let _ = self.0.close().await;
    }
}
