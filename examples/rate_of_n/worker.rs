//! A process with its share of the visitors.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;
use zookeeper_recipes::{Client, InterProcessSemaphore};

use crate::common::crew::{self, Worker};
use crate::common::{Error, worker};
use crate::options::{Config, Lock};
use crate::service::Service;

/// The work of one process.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Assignment {
    pub(crate) process: u32,
    pub(crate) servers: String,
    pub(crate) semaphore: String,
    pub(crate) db: PathBuf,
    pub(crate) config: Config,
}

/// The visitors of a process, which share its session.
pub(crate) struct Visitors(Arc<Shared>);

struct Shared {
    client: Client,
    semaphore: InterProcessSemaphore,
    service: Mutex<Service>,
    assignment: Assignment,
}

impl Worker for Visitors {
    type Assignment = Assignment;
    type Tally = ();

    async fn prepare(assignment: Assignment) -> Result<Self, Error> {
        let config = &assignment.config;
        let client = Client::builder()
            .session_timeout(config.session_timeout)
            .connect(&assignment.servers)
            .await?;
        let semaphore = InterProcessSemaphore::new(&client, &assignment.semaphore, config.n)?;
        let service = Mutex::new(Service::open(&assignment.db)?);
        Ok(Self(Arc::new(Shared {
            client,
            semaphore,
            service,
            assignment,
        })))
    }

    async fn work(&self, _start: u64) -> Result<(), Error> {
        let Assignment {
            process, config, ..
        } = &self.0.assignment;
        let mut visitors = JoinSet::new();
        for visitor in 0..config.at_once {
            let (first, of) = (
                process * config.at_once + visitor,
                config.processes * config.at_once,
            );
            let (shared, visits) = (
                Arc::clone(&self.0),
                (first..config.visits).step_by(of as usize),
            );
            visitors.spawn(async move {
                for visit in visits {
                    shared.visit(visit).await?;
                    crew::step()?;
                }
                Ok::<(), Error>(())
            });
        }
        while let Some(visitor) = visitors.join_next().await {
            visitor??;
        }
        Ok(())
    }

    async fn close(self) -> Result<(), Error> {
        worker::close(self.0.client.clone()).await
    }
}

impl Shared {
    /// Visits the service once.
    async fn visit(&self, visit: u32) -> Result<(), Error> {
        let config = &self.assignment.config;
        let permit = match config.lock {
            Lock::Semaphore => Some(self.semaphore.acquire(config.wait).await?),
            Lock::None => None,
        };
        // Without a semaphore, a visitor takes any connection.
        let slot = permit
            .as_ref()
            .map_or(visit % config.n, |permit| permit.slot());
        self.service().enter(slot)?;
        tokio::time::sleep(config.stay).await;
        self.service().leave(slot)?;
        if let Some(permit) = permit {
            permit.release().await?;
        }
        Ok(())
    }

    /// Locked for a statement, never across an await.
    fn service(&self) -> MutexGuard<'_, Service> {
        self.service.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
