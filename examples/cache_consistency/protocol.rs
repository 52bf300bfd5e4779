//! What the run and its workers send to each other.
//!
//! A worker gets its [`Assignment`] and sends [`Message::Ready`]. Writers end when they have done
//! their writes. Readers go on until the next command, read once more, and end.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::options::{Config, Fault, Role};

/// What one worker is to do.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Assignment {
    pub(crate) role: Role,
    /// How often a writer writes.
    pub(crate) writes: u32,
    pub(crate) config: Config,
    /// The critical sections, from 1, in which it stops itself between its two steps, and for which
    /// fault.
    pub(crate) stops: Vec<(u32, Fault)>,
    pub(crate) servers: String,
    pub(crate) lock: String,
    /// Where the table and the cache are.
    pub(crate) directory: PathBuf,
}

/// What a worker sends. Times are [`monotonic`](crate::common::monotonic).
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Message {
    /// It has a session, the table and the cache, and waits for the command to start.
    Ready,
    /// It has been inside since `from`, has done the first of its two steps, and thinks, or stops
    /// itself for a fault.
    Entered { from: u64, stops: Option<Fault> },
    /// It is done, and releases the lock next. `until` is the last moment at which the lock is
    /// known to have been held; without a lock, it is `at`.
    Left { at: u64, ending: Ending, until: u64 },
    /// What a reader has read since its last such message.
    Read(Tally),
    /// It ends because of this error.
    Failed(String),
    /// It has done what it was to do.
    Done,
}

/// How a critical section ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Ending {
    /// A reader put this version into the cache.
    Filled { version: u32 },
    /// A writer made this version.
    Written { version: u32 },
    /// The cache or the table has seen a later token.
    Refused,
}

/// Counts of reads.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Tally {
    pub(crate) reads: u32,
    /// From the cache.
    pub(crate) hits: u32,
    /// Of an older version than the one that was in the table before the read began.
    pub(crate) stale: u32,
    /// From the table, because the lock was not granted in time.
    pub(crate) timed_out: u32,
}

impl Tally {
    /// Adds another tally to this one.
    pub(crate) fn add(&mut self, other: Self) {
        self.reads += other.reads;
        self.hits += other.hits;
        self.stale += other.stale;
        self.timed_out += other.timed_out;
    }
}
