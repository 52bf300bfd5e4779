//! What the run and its workers say to each other.
//!
//! A worker is told its [`Shift`] and answers [`Message::Ready`]. Writers end when they have written what they were to; readers go
//! on until they are told another word, read once more, and end.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::options::{Fault, Role, Terms};

/// What one worker is to do.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Shift {
    pub(crate) role: Role,
    pub(crate) terms: Terms,
    /// The turns, from 1, in which it stops itself between its two steps, and what for.
    pub(crate) stops: Vec<(u32, Fault)>,
    pub(crate) servers: String,
    pub(crate) lock: String,
    /// The table and the cache.
    pub(crate) directory: PathBuf,
}

/// What a worker says. Times are [`monotonic`](crate::common::monotonic).
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Message {
    Ready,
    /// It has been inside since then, has done the first of its two steps, and thinks, or stops itself.
    Inside {
        from: u64,
        stops: Option<Fault>,
    },
    /// It has come out.
    Outside {
        at: u64,
        how: How,
        until: u64,
    },
    /// What it has read since the last report.
    Read(Tally),
    /// Something went wrong.
    Failed(String),
    /// It has done what it was to do.
    Done,
}

/// How a turn inside ended. It lasted until the last moment at which the lock is known to have been held; without a lock,
/// until its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum How {
    /// A reader put this version into the cache.
    Filled { version: u32 },
    /// A writer made this version.
    Written { version: u32 },
    /// The cache or the table has seen a younger writer's token.
    Refused,
}

/// How often something was read.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Tally {
    pub(crate) reads: u32,
    /// From the cache.
    pub(crate) hits: u32,
    /// An older version than the one that was in the table before the read began.
    pub(crate) stale: u32,
    /// From the table, because the lock could not be had in time.
    pub(crate) timed_out: u32,
}

impl Tally {
    pub(crate) fn add(&mut self, other: Self) {
        self.reads += other.reads;
        self.hits += other.hits;
        self.stale += other.stale;
        self.timed_out += other.timed_out;
    }
}
