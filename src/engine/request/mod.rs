//! The requests about a lock's directory, and the meaning of their answers. Attempts, semaphores,
//! multi-locks and questions use this folder. A request never decides what is next: for an attempt,
//! `protocol::acquire` does.
//!
//! - `requests`: the requests of a contender. Their answers become events of `protocol::acquire`.
//! - `look`: the requests of a client that is not in the queue, and those that find out who holds
//!   the lock.
//!
//! Both send by `Session::request`, which lends the session for one request. Waits for a watch are
//! outside of it, because a handle that is kept would keep the session open
//! (docs/protocol.md#lent-session).

pub(crate) mod look;
pub(crate) mod requests;
