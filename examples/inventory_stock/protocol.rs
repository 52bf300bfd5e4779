//! What the sale and its workers say to each other.
//!
//! The worker is told its [`Shift`] and answers [`Message::Ready`]. It reports each turn with a lock as it goes, and the
//! users who have left now and then, and ends with [`Message::Done`].

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::options::Terms;

/// What one worker is to do.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Shift {
    /// From 0.
    pub(crate) worker: u32,
    pub(crate) terms: Terms,
    pub(crate) servers: String,
    /// Each product's lock is below it.
    pub(crate) lock_root: String,
    pub(crate) db: PathBuf,
}

impl Shift {
    /// The users of this worker, in the order in which they come.
    pub(crate) fn users(&self) -> impl Iterator<Item = u32> + use<> {
        (1..=self.terms.users).skip(self.worker as usize).step_by(self.terms.workers as usize)
    }

    pub(crate) fn lock_path(&self, sku: &str) -> String {
        format!("{}/{sku}", self.lock_root)
    }
}

/// What a worker says.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Message {
    /// It has a session and the database, and waits.
    Ready,
    /// Something happened in a user's turn.
    Turn(Event),
    /// These users have left since the last report.
    Left(Vec<Visit>),
    /// All have.
    Done,
}

/// One step of a user's turn with a lock.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Event {
    pub(crate) user: u32,
    /// When, in [`monotonic`](crate::common::monotonic) time.
    pub(crate) at: u64,
    pub(crate) what: What,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum What {
    /// The user went in, with the lock after so many nanoseconds, or without one.
    Entered { waited: Option<u64> },
    /// They have seen the shelf, and think.
    Saw { left: u32 },
    /// A proof that the lock is held is overdue.
    Suspended,
    /// It has come.
    Held,
    /// The lock is lost, and why.
    Lost(String),
    /// The user has left; `until` is the last moment at which the lock is known to have been held. Without a lock, it
    /// is now.
    Ended { how: How, until: u64 },
}

/// How a turn ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum How {
    Sold {
        left: u32,
    },
    SoldOut,
    /// The database has seen a younger token.
    Refused,
    Failed,
}

/// One user's visit.
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
