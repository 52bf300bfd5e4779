//! Establishes sessions, watches the current one, renews its lease, and cleans up its orphans. The
//! engine uses this module. Locks are named only in the engine; a session knows nodes and holds,
//! through two traits that the engine implements (`NodeOwner`, `SessionLock`).
//!
//! ```text
//!   core (what a client's handles share) --> the current session, or the wait for the next
//!     |                                        ^
//!     | tasks, request                         | begins and ends it
//!     v                                        |
//!   live: one session <-------------------- supervisor <--- dial (connects, ends earlier sessions)
//!     |    heartbeat, lease
//!     v
//!   contents (nodes, holds, watches)  <---- leftovers (deletes what no call needs)
//! ```
//!
//! In this layer, *the lease* is the lease of the session, and a *hold lease* is the one that a
//! caller has set for its lock. A node that no longer exists is *gone*; a session *ends*; a lock is
//! *lost*.

pub(crate) mod contents;
pub(crate) mod core;
pub(crate) mod dial;
pub(crate) mod leftovers;
pub(crate) mod live;
pub(crate) mod reports;
pub(crate) mod request;
pub(crate) mod setup;
pub(crate) mod supervisor;
pub(crate) mod tasks;
pub(crate) mod threads;
pub(crate) mod write;
