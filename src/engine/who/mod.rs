//! Questions about a lock: who holds it, who waits, and whether a task waits for itself.
//! Faces and recipes use it. It never changes anything on the servers.

pub(crate) mod contenders;
pub(crate) mod self_wait;
