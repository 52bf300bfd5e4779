//! A process with its share of the workers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;
use zookeeper_recipes::{
    CachedAtomicLong, Client, DistributedAtomicLong, InterProcessMutex, TransactionError,
};

use crate::common::crew::{self, Worker};
use crate::common::tree::Tree;
use crate::common::{Error, worker};
use crate::options::{Config, Lock};

/// How often a worker tries to place an order, if the lock is lost or the outcome unknown.
const ATTEMPTS: u32 = 10;

/// The order, from 1, in which a process is killed.
const KILLED_IN: u32 = 5;

/// The work of one process.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Assignment {
    pub(crate) process: u32,
    pub(crate) servers: String,
    /// The node below which the data are.
    pub(crate) root: String,
    pub(crate) config: Config,
    pub(crate) is_killed: bool,
}

/// Returns the node of the next number.
pub(crate) fn next_number(root: &str) -> String {
    format!("{root}/next")
}

/// Returns the node of an order.
pub(crate) fn node_of(root: &str, order: u32) -> String {
    format!("{root}/orders/{order:04}")
}

/// A process with a session, which its workers share.
pub(crate) struct Process(Arc<Shared>);

struct Shared {
    client: Client,
    tree: Tree,
    numbers: Numbers,
    assignment: Assignment,
    /// How many numbers the workers of this process have taken.
    taken: AtomicU32,
    retries: AtomicU32,
}

/// Where the numbers come from.
enum Numbers {
    Mutex(InterProcessMutex),
    Counter(CachedAtomicLong),
    Unprotected,
}

impl Worker for Process {
    type Assignment = Assignment;
    /// How many attempts to place an order had no known outcome, or failed, and were followed by
    /// another.
    type Tally = u32;

    async fn prepare(assignment: Assignment) -> Result<Self, Error> {
        let Assignment {
            servers,
            root,
            config,
            ..
        } = &assignment;
        let client = Client::builder()
            .session_timeout(config.session_timeout)
            .connect(servers)
            .await?;
        let tree = Tree::connect(servers, config.session_timeout).await?;
        let numbers = match config.lock {
            Lock::Mutex => {
                Numbers::Mutex(InterProcessMutex::new(&client, format!("/locks{root}"))?)
            }
            Lock::Counter => {
                let counter = DistributedAtomicLong::new(&client, format!("{root}/counter"))?;
                Numbers::Counter(counter.cached(config.block)?)
            }
            Lock::None => Numbers::Unprotected,
        };
        Ok(Self(Arc::new(Shared {
            client,
            tree,
            numbers,
            assignment,
            taken: AtomicU32::new(0),
            retries: AtomicU32::new(0),
        })))
    }

    async fn work(&self, _start: u64) -> Result<u32, Error> {
        let config = &self.0.assignment.config;
        let mut workers = JoinSet::new();
        for worker in config.workers_of(self.0.assignment.process) {
            let (shared, orders) = (Arc::clone(&self.0), config.orders_of(worker));
            let place_all = async move {
                for order in orders {
                    shared.place(order).await?;
                    crew::step()?;
                }
                Ok::<(), Error>(())
            };
            workers.spawn(place_all);
        }
        while let Some(worker) = workers.join_next().await {
            worker??;
        }
        Ok(self.0.retries.load(Ordering::Relaxed))
    }

    async fn close(self) -> Result<(), Error> {
        worker::close(self.0.client.clone()).await
    }
}

impl Shared {
    /// Places an order, with a number that no other has.
    async fn place(&self, order: u32) -> Result<(), Error> {
        match &self.numbers {
            Numbers::Mutex(mutex) => self.place_under(mutex, order).await,
            Numbers::Counter(numbers) => self.place_with(numbers, order).await,
            Numbers::Unprotected => self.place_unprotected(order).await,
        }
    }

    /// Takes the next number under the mutex, together with the order: in one transaction.
    async fn place_under(&self, mutex: &InterProcessMutex, order: u32) -> Result<(), Error> {
        let Assignment { root, config, .. } = &self.assignment;
        let (next, node) = (next_number(root), node_of(root, order));
        for attempt in 0..ATTEMPTS {
            let guard = mutex.acquire(config.wait).await?;
            // An earlier transaction may have been committed although its reply did not come.
            if attempt > 0 && self.tree.read(&node).await?.is_some() {
                return Ok(());
            }
            let (number, version) = self.tree.number(&next).await?;
            self.think().await?;
            let transaction = guard
                .transaction()
                .set_data(&next, (number + 1).to_string(), version)
                .create(&node, number.to_string());
            match transaction.commit().await {
                // Dropping the guard releases the lock.
                Ok(()) => return Ok(()),
                // The guard was lost, or the outcome is unknown, or a transaction with an unknown
                // outcome has been committed in the meantime: the next attempt finds out.
                Err(
                    TransactionError::Lost(_)
                    | TransactionError::Unknown { .. }
                    | TransactionError::Rejected { .. },
                ) => self.retries.fetch_add(1, Ordering::Relaxed),
                Err(error) => return Err(error.into()),
            };
        }
        Err(format!("order {order} could not be placed in {ATTEMPTS} attempts").into())
    }

    /// Takes a number from the block of this process, and then places the order.
    async fn place_with(&self, numbers: &CachedAtomicLong, order: u32) -> Result<(), Error> {
        let number = numbers.next_id().await?;
        self.think().await?;
        self.tree
            .create(&node_of(&self.assignment.root, order), &number.to_string())
            .await
    }

    /// Takes the next number without a lock, so that another worker may take it too.
    async fn place_unprotected(&self, order: u32) -> Result<(), Error> {
        let root = &self.assignment.root;
        let next = next_number(root);
        let (number, _) = self.tree.number(&next).await?;
        self.think().await?;
        self.tree.set(&next, &(number + 1).to_string()).await?;
        self.tree
            .create(&node_of(root, order), &number.to_string())
            .await
    }

    /// Thinks with a number in hand, or is killed there.
    async fn think(&self) -> Result<(), Error> {
        let taken = self.taken.fetch_add(1, Ordering::Relaxed) + 1;
        if self.assignment.is_killed && taken == KILLED_IN {
            crew::stop_to_be_killed()?;
        }
        tokio::time::sleep(self.assignment.config.think).await;
        Ok(())
    }
}
