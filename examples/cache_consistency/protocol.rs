//! The messages between the run and its workers.
//!
//! A worker gets its [`Assignment`] and sends [`Message::Ready`]. Writers end when they have done
//! their writes. Readers continue until the next command, read once more, and end.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::options::{Config, Fault, Role};

/// The work of one worker.
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

/// A message of a worker. Times are [`monotonic`](crate::common::monotonic).
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Message {
    /// The worker has a session, the table and the cache, and waits for the command to start.
    Ready,
    /// The worker has been inside since `from`, has done the first of its two steps, and thinks, or
    /// stops itself for a fault.
    Entered { from: u64, stops: Option<Fault> },
    /// The worker is done, and releases the lock next. `until` is the last moment at which the lock
    /// is known to have been held; without a lock, it is `at`.
    Left { at: u64, ending: Ending, until: u64 },
    /// The reads of a reader since its last such message.
    Read(Tally),
    /// The worker ends because of this error.
    Failed(String),
    /// The worker has done all of its work.
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
    /// The reads from the cache.
    pub(crate) hits: u32,
    /// The reads of an older version than the table had when they began.
    pub(crate) stale: u32,
    /// The reads from the table, because the lock was not granted in time.
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
