//! The messages between the sale and its workers.
//!
//! A worker gets its [`Assignment`] and sends [`Message::Ready`]. The worker reports each critical
//! section as it happens, from time to time the users who have left, and at the end
//! [`Message::Done`].

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::options::Config;

/// The work of one worker.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Assignment {
    /// The number of the worker, from 0.
    pub(crate) worker: u32,
    pub(crate) config: Config,
    pub(crate) servers: String,
    /// The directory of the products' locks.
    pub(crate) lock_root: String,
    pub(crate) db: PathBuf,
}

impl Assignment {
    /// Returns the users of this worker, in the order in which they come.
    pub(crate) fn users(&self) -> impl Iterator<Item = u32> + use<> {
        (1..=self.config.users)
            .skip(self.worker as usize)
            .step_by(self.config.workers as usize)
    }

    /// Returns the path of a product's lock.
    pub(crate) fn lock_path(&self, sku: &str) -> String {
        format!("{}/{sku}", self.lock_root)
    }
}

/// A message of a worker.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Message {
    /// The worker has a session and the database, and waits for the command to start.
    Ready,
    /// Something happened in a user's critical section.
    Section(Event),
    /// Users who have left since the last such message.
    Left(Vec<Visit>),
    /// All users have left.
    Done,
}

/// A step of a user's critical section.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Event {
    pub(crate) user: u32,
    /// When, by [`monotonic`](crate::common::monotonic).
    pub(crate) at: u64,
    pub(crate) kind: EventKind,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum EventKind {
    /// The user entered: with the lock, after a wait of this many nanoseconds, or without a lock.
    Entered { waited: Option<u64> },
    /// The user has read the stock, and thinks.
    Read { left: u32 },
    /// The guard is suspended: the lease has not been renewed in time.
    Suspended,
    /// The guard is sure of the lock again.
    Held,
    /// The lock is lost, for this reason.
    Lost(String),
    /// The user is done, and releases the lock next. `until` is the last moment at which the lock
    /// is known to have been held; without a lock, it is now.
    Ended { ending: Ending, until: u64 },
}

/// How a critical section ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Ending {
    Sold {
        left: u32,
    },
    SoldOut,
    /// The database has seen a later token.
    Refused,
    Failed,
}

/// The visit of one user.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Visit {
    pub(crate) user: u32,
    pub(crate) outcome: Outcome,
}

/// How a visit ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Outcome {
    Sold,
    SoldOut,
    TimedOut,
    Failed(String),
}
