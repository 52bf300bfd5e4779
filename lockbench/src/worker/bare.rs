//! The floor: the two writes of a lock node, and nothing that would make it a lock.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::runtime::{Builder, Runtime};
use tokio::sync::{Mutex as FairMutex, OwnedMutexGuard};
use zookeeper_client::{Acls, Client, CreateMode};

use super::drive::Contender;
use crate::Error;
use crate::job::{Job, Recipe, Release};

/// A session in its caller's runtime, which is how the client library is usually used.
pub(crate) struct Session {
    client: Client,
    /// By path, where tasks wait for their turn in memory.
    turns: Mutex<HashMap<String, Turns>>,
}

type Turns = Arc<FairMutex<()>>;

/// A session with a thread of its own, which a busy runtime cannot hold up.
pub(crate) struct SessionApart {
    session: Session,
    /// Never dropped where blocking is not allowed: `Runtime::shutdown_background` ends it.
    runtime: Option<Runtime>,
}

/// The state of a task for its nodes.
pub(crate) struct Lock {
    prefix: String,
    /// `None`: no task waits for another.
    turns: Option<Turns>,
}

/// A node, and where tasks take turns, that it is this task's.
pub(crate) struct Guard {
    node: String,
    _turn: Option<OwnedMutexGuard<()>>,
}

impl Session {
    async fn open(servers: &str) -> Result<Self, Error> {
        Ok(Self {
            client: Client::connect(servers).await?,
            turns: Mutex::default(),
        })
    }
}

impl Contender for Session {
    type Lock = Lock;
    type Guard = Guard;

    async fn connect(job: &Job) -> Result<Self, Error> {
        Self::open(&job.servers).await
    }

    async fn lock(&self, job: &Job, path: &str) -> Result<Lock, Error> {
        // The directory is no container: the servers delete a container that has been empty for a
        // while, and nothing here would create it again.
        self.client
            .mkdir(path, &CreateMode::Persistent.with_acls(Acls::anyone_all()))
            .await?;
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(Lock {
            // The prefix is as long as that of a real lock.
            prefix: format!("{path}/_c_01234567-89ab-cdef-0123-456789abcdef-lock-"),
            turns: (job.recipe == Recipe::Fair)
                .then(|| Arc::clone(turns.entry(path.to_owned()).or_default())),
        })
    }

    /// Acquires the lock. With turns, a task creates its node while others have theirs, so only one
    /// write is between two grants.
    async fn acquire(&self, Lock { prefix, turns }: &Lock, _: bool) -> Result<Guard, Error> {
        let options = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
        let (_, number) = self.client.create(prefix, b"", &options).await?;
        let turn = match turns {
            Some(turns) => Some(Arc::clone(turns).lock_owned().await),
            None => None,
        };
        Ok(Guard {
            node: format!("{prefix}{number}"),
            _turn: turn,
        })
    }

    /// Waits always: the floor is two writes, one after the other.
    async fn release(&self, guard: Guard, _: Release) -> Result<(), Error> {
        Ok(self.client.delete(&guard.node, None).await?)
    }
}

impl Contender for SessionApart {
    type Lock = Lock;
    type Guard = Guard;

    async fn connect(job: &Job) -> Result<Self, Error> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()?;
        let servers = job.servers.clone();
        let session = runtime
            .spawn(async move { Session::open(&servers).await })
            .await??;
        Ok(Self {
            session,
            runtime: Some(runtime),
        })
    }

    async fn lock(&self, job: &Job, path: &str) -> Result<Lock, Error> {
        self.session.lock(job, path).await
    }

    async fn acquire(&self, lock: &Lock, reading: bool) -> Result<Guard, Error> {
        self.session.acquire(lock, reading).await
    }

    async fn release(&self, guard: Guard, how: Release) -> Result<(), Error> {
        self.session.release(guard, how).await
    }
}

impl Drop for SessionApart {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
