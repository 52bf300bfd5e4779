//! What was asked of the server, counted and logged.

use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

use crate::wire::opcode;

/// Which operation a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Op {
    /// Any create: `create`, `create2`, `createContainer`, `createTTL`. [`LogEntry::opcode`] tells them apart.
    Create,
    /// `delete`.
    Delete,
    /// `exists`.
    Exists,
    /// `getData`.
    GetData,
    /// `setData`.
    SetData,
    /// `getChildren` and `getChildren2`.
    GetChildren,
    /// `sync`.
    Sync,
    /// `multi`: writes and checks that happen together.
    Multi,
    /// `multiRead`.
    MultiRead,
    /// `check` outside a multi.
    Check,
    /// `removeWatches`.
    RemoveWatches,
    /// `setWatches` and `setWatches2`: sent by clients that reconnect.
    SetWatches,
    /// `addWatch`.
    AddWatch,
    /// `auth`.
    Auth,
    /// `ping`.
    Ping,
    /// `closeSession`.
    CloseSession,
    /// The first frame of a connection.
    Connect,
    /// `getACL`.
    GetAcl,
    /// `setACL`.
    SetAcl,
    /// Any other number.
    Other(i32),
}

impl Op {
    pub(crate) fn of(code: i32) -> Self {
        match code {
            opcode::CREATE | opcode::CREATE2 | opcode::CREATE_CONTAINER | opcode::CREATE_TTL => Self::Create,
            opcode::DELETE => Self::Delete,
            opcode::EXISTS => Self::Exists,
            opcode::GET_DATA => Self::GetData,
            opcode::SET_DATA => Self::SetData,
            opcode::GET_CHILDREN | opcode::GET_CHILDREN2 => Self::GetChildren,
            opcode::SYNC => Self::Sync,
            opcode::MULTI => Self::Multi,
            opcode::MULTI_READ => Self::MultiRead,
            opcode::CHECK => Self::Check,
            opcode::REMOVE_WATCHES => Self::RemoveWatches,
            opcode::SET_WATCHES | opcode::SET_WATCHES2 => Self::SetWatches,
            opcode::ADD_WATCH => Self::AddWatch,
            opcode::AUTH => Self::Auth,
            opcode::PING => Self::Ping,
            opcode::CLOSE_SESSION => Self::CloseSession,
            opcode::GET_ACL => Self::GetAcl,
            opcode::SET_ACL => Self::SetAcl,
            other => Self::Other(other),
        }
    }
}

/// How often each operation was asked for, overall and by session.
///
/// A request counts when its frame has arrived, whether or not it was applied or answered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    by_session: BTreeMap<i64, BTreeMap<Op, u64>>,
    notifications: BTreeMap<i64, u64>,
    watches: usize,
}

impl Counters {
    /// Requests of this kind.
    #[must_use]
    pub fn requests(&self, op: Op) -> u64 {
        self.by_session.values().filter_map(|ops| ops.get(&op)).sum()
    }

    /// All requests but pings and connects.
    #[must_use]
    pub fn total_requests(&self) -> u64 {
        self.by_session.values().map(total).sum()
    }

    /// Requests of this kind in a session. A connect that asks for a new session counts for session 0.
    #[must_use]
    pub fn requests_of(&self, session: i64, op: Op) -> u64 {
        self.by_session.get(&session).and_then(|ops| ops.get(&op)).copied().unwrap_or(0)
    }

    /// All requests of a session but pings and connects.
    #[must_use]
    pub fn total_requests_of(&self, session: i64) -> u64 {
        self.by_session.get(&session).map_or(0, total)
    }

    /// Watch events sent.
    #[must_use]
    pub fn notifications(&self) -> u64 {
        self.notifications.values().sum()
    }

    /// Watch events sent to a session.
    #[must_use]
    pub fn notifications_of(&self, session: i64) -> u64 {
        self.notifications.get(&session).copied().unwrap_or(0)
    }

    /// Watches that stand at the moment of the snapshot; resetting the counters does not change it.
    #[must_use]
    pub fn watches(&self) -> usize {
        self.watches
    }

    pub(crate) fn count(&mut self, session: i64, op: Op) {
        *self.by_session.entry(session).or_default().entry(op).or_default() += 1;
    }

    pub(crate) fn count_notification(&mut self, session: i64) {
        *self.notifications.entry(session).or_default() += 1;
    }

    pub(crate) fn with_watches(&self, watches: usize) -> Self {
        Self { watches, ..self.clone() }
    }
}

fn total(ops: &BTreeMap<Op, u64>) -> u64 {
    ops.iter().filter(|(op, _)| !matches!(op, Op::Ping | Op::Connect)).map(|(_, count)| count).sum()
}

/// What happened to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LogKind {
    /// Its frame has arrived.
    Arrived,
    /// It was applied: a write is committed, a read has read.
    Applied,
    /// Its reply is being written to the socket.
    Replied,
    /// It was not applied and will not be: a fault has lost it, or its session went on without its connection.
    Discarded,
    /// Not a request: a watch event was queued for the session's connection.
    Notified,
}

/// One entry of the server's log.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LogEntry {
    /// The number of the entry, rising by one.
    pub n: u64,
    /// The number of the request, the same in all its entries; 0 for a notification.
    pub request: u64,
    /// The session.
    pub session: i64,
    /// The operation.
    pub op: Op,
    /// Its number on the wire; for a notification the type of the event.
    pub opcode: i32,
    /// The path, of a multi the first; for a create that was applied, the path it got. At most 4096 bytes of it.
    pub path: String,
    /// The server's last transaction at that moment.
    pub zxid: i64,
    /// The error code of the answer, 0 when there is none.
    pub error: i32,
    /// When, on the monotonic clock.
    pub at: Instant,
    /// What happened.
    pub kind: LogKind,
}

const LOG_LEN: usize = 100_000;

#[derive(Debug, Default)]
pub(crate) struct Log {
    next: u64,
    entries: VecDeque<LogEntry>,
}

impl Log {
    pub(crate) fn push(&mut self, mut entry: LogEntry) {
        entry.n = self.next;
        self.next += 1;
        if self.entries.len() == LOG_LEN {
            self.entries.pop_front();
        }
        self.entries.push_back(entry);
    }

    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = &LogEntry> {
        self.entries.iter()
    }

    pub(crate) fn snapshot(&self) -> Vec<LogEntry> {
        self.entries.iter().cloned().collect()
    }
}
