//! What the sale and its workers say to each other: one JSON value per line, through the worker's stdin and stdout.
//!
//! The worker is told its [`Shift`] and answers [`Message::Ready`]; the next line, whatever it says, opens the doors. It reports
//! as it goes and ends with [`Message::Done`]. The end of its stdin means that it is to stop.

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
    pub(crate) lock_path: String,
    pub(crate) db: PathBuf,
    pub(crate) sku: String,
}

impl Shift {
    /// The users of this worker, in the order in which they come.
    pub(crate) fn users(&self) -> impl Iterator<Item = u32> + use<> {
        (1..=self.terms.users).skip(self.worker as usize).step_by(self.terms.workers as usize)
    }
}

/// Who serves a user.
pub(crate) fn worker_of(user: u32, terms: &Terms) -> u32 {
    (user - 1) % terms.workers
}

/// What a worker says.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Message {
    /// It has a session and the database, and waits.
    Ready,
    /// These users have left since the last report.
    Left(Vec<Visit>),
    /// All have.
    Done,
}

/// One user's visit.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Visit {
    pub(crate) user: u32,
    pub(crate) outcome: Outcome,
    /// How long it took to get the lock, in nanoseconds, each time that it was got.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) waits: Vec<u64>,
    /// From when until when the user was inside, in [`monotonic`] time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) inside: Vec<(u64, u64)>,
    /// How many of the user's writes the database refused because of an old token.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) fenced: u32,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
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

/// Nanoseconds of the one clock that all processes of a host share, and that nobody sets.
pub(crate) fn monotonic() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}
