//! A node: a process that wakes each day.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use zookeeper_recipes::{Client, OnceError, OnceJob, OnceOutcome, OnceRun};

use crate::common::crew::{self, Worker};
use crate::common::tree::Tree;
use crate::common::{Error, monotonic, worker};
use crate::options::{Config, Lock};

/// How often a node asks for a day's job, if the lock is lost or the outcome unknown.
const ATTEMPTS: u32 = 10;

/// The day of which a node is killed in the job, from 1.
const KILLED_ON: u32 = 3;

/// The directories of what was begun and of what was done: a node for each, whose name begins with
/// the day.
pub(crate) const STARTED: &str = "started";
pub(crate) const RECORDED: &str = "recorded";

/// The work of one node.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Assignment {
    pub(crate) node: u32,
    pub(crate) servers: String,
    /// The node of ZooKeeper below which the data are.
    pub(crate) root: String,
    pub(crate) config: Config,
}

/// Returns the node of ZooKeeper that has the balance.
pub(crate) fn balance(root: &str) -> String {
    format!("{root}/balance")
}

/// Returns how the names of a day's nodes begin, in both directories.
pub(crate) fn day_prefix(day: u32) -> String {
    format!("day-{day:04}-")
}

pub(crate) struct Node {
    client: Client,
    tree: Tree,
    assignment: Assignment,
}

impl Worker for Node {
    type Assignment = Assignment;
    type Tally = ();

    async fn prepare(assignment: Assignment) -> Result<Self, Error> {
        let Assignment {
            servers, config, ..
        } = &assignment;
        let client = Client::builder()
            .session_timeout(config.session_timeout)
            .connect(servers)
            .await?;
        let tree = Tree::connect(servers, config.session_timeout).await?;
        Ok(Self {
            client,
            tree,
            assignment,
        })
    }

    async fn work(&self, start: u64) -> Result<(), Error> {
        let config = &self.assignment.config;
        for day in 1..=config.days {
            // The clock of all processes, so that they wake together.
            let since_start = Duration::from_nanos(monotonic().saturating_sub(start));
            tokio::time::sleep((config.day * day).saturating_sub(since_start)).await;
            match config.lock {
                Lock::Mutex => self.do_once(day).await?,
                Lock::None => self.do_unprotected(day).await?,
            }
            crew::step()?;
        }
        Ok(())
    }

    async fn close(self) -> Result<(), Error> {
        worker::close(self.client).await
    }
}

impl Node {
    /// Sees to it that the job of a day is done, by this node or another.
    async fn do_once(&self, day: u32) -> Result<(), Error> {
        let Assignment { root, config, .. } = &self.assignment;
        let job = format!("{root}/job");
        for attempt in 0..ATTEMPTS {
            let today = OnceJob::new(&self.client, &job, format!("day-{day:04}")).wait(config.wait);
            match today.run(|run| self.do_alone(run, day, attempt)).await {
                Ok(OnceOutcome::Ran(()) | OnceOutcome::AlreadyRun { .. }) => return Ok(()),
                // The lock was lost, or no server has said whether the run is recorded: the next
                // attempt finds out.
                Err(
                    OnceError::Lost(_) | OnceError::NotRecorded { .. } | OnceError::Unknown { .. },
                ) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(format!("the job of day {day} could not be done in {ATTEMPTS} attempts").into())
    }

    /// Does the job of a day. The job's writes take effect with the record, and so once.
    async fn do_alone(&self, run: OnceRun, day: u32, attempt: u32) -> Result<(), Error> {
        let Assignment {
            root, node, config, ..
        } = &self.assignment;
        let is_first = self.names_of(STARTED, day).await?.is_empty();
        self.start(day, attempt).await?;
        let path = balance(root);
        let (balance, version) = run.get_data(&path).await?.ok_or("there is no balance")?;
        let paid = String::from_utf8(balance)?.parse::<u32>()? + 1;
        if config.kill_one && day == KILLED_ON && is_first {
            crew::stop_to_be_killed()?;
        }
        tokio::time::sleep(config.work).await;
        let entry = format!("{root}/{RECORDED}/{}{node}", day_prefix(day));
        run.record_with(move |writes| {
            writes
                .set_data(&path, paid.to_string(), version)
                .create(&entry, "")
        });
        Ok(())
    }

    /// Does the job of a day if it is not recorded, and hopes that no other node does.
    async fn do_unprotected(&self, day: u32) -> Result<(), Error> {
        let Assignment {
            root, node, config, ..
        } = &self.assignment;
        if self.is_recorded(day).await? {
            return Ok(());
        }
        self.start(day, 0).await?;
        let (balance, _) = self.tree.number(&balance(root)).await?;
        tokio::time::sleep(config.work).await;
        self.tree
            .set(&self::balance(root), &(balance + 1).to_string())
            .await?;
        self.tree
            .create(&format!("{root}/{RECORDED}/{}{node}", day_prefix(day)), "")
            .await
    }

    async fn is_recorded(&self, day: u32) -> Result<bool, Error> {
        Ok(!self.names_of(RECORDED, day).await?.is_empty())
    }

    /// Notes that this node begins the job of a day.
    async fn start(&self, day: u32, attempt: u32) -> Result<(), Error> {
        let Assignment { root, node, .. } = &self.assignment;
        self.tree
            .create(
                &format!("{root}/{STARTED}/{}{node}-{attempt}", day_prefix(day)),
                "",
            )
            .await
    }

    /// Returns the names of a day's nodes in a directory.
    async fn names_of(&self, directory: &str, day: u32) -> Result<Vec<String>, Error> {
        let mut names = self
            .tree
            .children(&format!("{}/{directory}", self.assignment.root))
            .await?;
        names.retain(|name| name.starts_with(&day_prefix(day)));
        Ok(names)
    }
}
