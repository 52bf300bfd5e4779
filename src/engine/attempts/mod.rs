//! Attempts: the work of a call that acquires a lock, or permits of a semaphore, from its beginning
//! to its grant. Faces and multi-locks use this folder. An attempt never decides about the queue:
//! `protocol::acquire` and `protocol::permits` do. An attempt that has ended has no nodes: each
//! node belongs to a hold or to the session's cleanup (docs/protocol.md#node-owners).
//!
//! An attempt is a task on the session's thread, and the caller waits for the result on a channel
//! (docs/protocol.md#attempt-outlives-caller). The files follow the life of an attempt:
//!
//! - `attempt`: the value that lasts from the beginning to the end, and the events that stop it;
//! - `run`: waits for a slot and a session, carries out the steps of `protocol::acquire`, and
//!   grants the lock;
//! - `in_session`: the state of an attempt in one session. The next session begins with a new
//!   state, because no node and no watch outlives its session (docs/protocol.md#one-session);
//! - `permits_attempt`: continues at the head of a semaphore's queue, instead of a grant.
//!
//! Two files start attempts for callers that wait in another way:
//!
//! - `shared_attempt`: the callers of a client that wait for one mutex, or for one side of a
//!   read-write lock, share an attempt (docs/protocol.md#hand-off);
//! - `queued`: a caller keeps its place in the queue of a fair lock, and may ask for its position.

pub(crate) mod attempt;
pub(crate) mod in_session;
pub(crate) mod permits_attempt;
pub(crate) mod queued;
pub(crate) mod run;
pub(crate) mod shared_attempt;
