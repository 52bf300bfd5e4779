//! A process that transfers.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use zookeeper_recipes::{
    AcquireError,
    Acquisition::{Acquired, Busy},
    Client, InterProcessMultiLock, InterProcessMutex, LockGuard, MultiLockGuard, OrBusy,
    ReleaseError,
};

use crate::common::crew::{self, Worker};
use crate::common::{Error, worker};
use crate::options::{Config, Lock, Transfer};
use crate::store::{Bank, Columns};

/// How often a process begins a transfer, if it loses a lock.
const ATTEMPTS: u32 = 3;

/// The work of one process.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Assignment {
    pub(crate) process: u32,
    pub(crate) servers: String,
    /// The directory of the accounts' locks.
    pub(crate) locks: String,
    pub(crate) db: PathBuf,
    pub(crate) config: Config,
}

/// The counts of a process's transfers.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Tally {
    /// Given up because a lock was not granted in time.
    pub(crate) timed_out: u32,
    /// Refused by an account, because a later token had been shown there.
    pub(crate) fenced: u32,
}

pub(crate) struct Teller {
    client: Client,
    bank: Mutex<Bank>,
    assignment: Assignment,
}

/// The locks of a transfer.
enum Guards {
    Multi(MultiLockGuard),
    Nested(LockGuard, LockGuard),
    None,
}

impl Worker for Teller {
    type Assignment = Assignment;
    type Tally = Tally;

    async fn prepare(assignment: Assignment) -> Result<Self, Error> {
        let session_timeout = assignment.config.session_timeout;
        let client = Client::builder()
            .session_timeout(session_timeout)
            .connect(&assignment.servers)
            .await?;
        Ok(Self {
            client,
            bank: Mutex::new(Bank::open(&assignment.db)?),
            assignment,
        })
    }

    async fn work(&self, _start: u64) -> Result<Tally, Error> {
        let config = &self.assignment.config;
        let mut tally = Tally::default();
        for transfer in config.transfers_of(self.assignment.process) {
            let mut attempts = 0..ATTEMPTS;
            loop {
                attempts
                    .next()
                    .ok_or_else(|| format!("a transfer lost its locks {ATTEMPTS} times"))?;
                let Some(guards) = self.acquire(transfer).await? else {
                    tally.timed_out += 1;
                    return Ok(tally);
                };
                let is_done = self.transfer(transfer, guards.tokens()).await?;
                guards.release().await?;
                if is_done {
                    break;
                }
                tally.fenced += 1;
            }
            crew::step()?;
        }
        Ok(tally)
    }

    async fn close(self) -> Result<(), Error> {
        worker::close(self.client).await
    }
}

impl Teller {
    /// Acquires the locks of a transfer; returns `None` if one is not granted in time.
    async fn acquire(&self, transfer: Transfer) -> Result<Option<Guards>, Error> {
        let config = &self.assignment.config;
        let accounts = [transfer.from, transfer.to];
        let [from, to] =
            accounts.map(|account| format!("{}/account-{account}", self.assignment.locks));
        match config.lock {
            Lock::Multi => {
                let both = InterProcessMultiLock::from_paths(&self.client, [&from, &to])?;
                Ok(granted(both.acquire(config.wait).await)?.map(Guards::Multi))
            }
            Lock::Nested => {
                let (from, to) = (
                    InterProcessMutex::new(&self.client, &from)?,
                    InterProcessMutex::new(&self.client, &to)?,
                );
                let Some(first) = granted(from.acquire(config.wait).await)? else {
                    return Ok(None);
                };
                tokio::time::sleep(config.think).await;
                // If the second lock is not granted in time, dropping the first guard releases the
                // first.
                Ok(granted(to.acquire(config.wait).await)?
                    .map(|second| Guards::Nested(first, second)))
            }
            Lock::None => Ok(Some(Guards::None)),
        }
    }

    /// Locked for a statement, never across an await.
    fn bank(&self) -> MutexGuard<'_, Bank> {
        self.bank.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads both balances, thinks, and writes both; returns `false` if an account refused that.
    async fn transfer(&self, transfer: Transfer, tokens: [Columns; 2]) -> Result<bool, Error> {
        let [from_token, to_token] = tokens;
        let from = self.bank().balance(transfer.from, from_token)?;
        let to = self.bank().balance(transfer.to, to_token)?;
        let (Some(from), Some(to)) = (from, to) else {
            return Ok(false);
        };
        tokio::time::sleep(self.assignment.config.think).await;
        let balances = [from - transfer.amount, to + transfer.amount];
        self.bank().write(transfer, balances, tokens)
    }
}

/// Returns the guard; `None` if the lock was not granted in time.
fn granted<G>(result: Result<G, AcquireError>) -> Result<Option<G>, AcquireError> {
    Ok(match result.or_busy()? {
        Acquired(guard) => Some(guard),
        Busy => None,
    })
}

impl Guards {
    /// Returns the tokens of the account that pays and of the other one.
    fn tokens(&self) -> [Columns; 2] {
        match self {
            Self::Multi(guard) => match guard.fencing_tokens()[..] {
                [from, to] => [from.into(), to.into()],
                _ => [(0, 0); 2],
            },
            Self::Nested(from, to) => [from.fencing_token().into(), to.fencing_token().into()],
            Self::None => [(0, 0); 2],
        }
    }

    async fn release(self) -> Result<(), Error> {
        let released = match self {
            Self::Multi(guard) => guard.release().await,
            Self::Nested(from, to) => to.release().await.and(from.release().await),
            Self::None => Ok(()),
        };
        match released {
            // After a loss the tokens have kept the accounts correct.
            Ok(()) | Err(ReleaseError::Lost(_)) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}
