//! What runs while a lock is held. Faces and recipes use these modules, each of which refuses to
//! work once the lock is lost, and none of which acquires a lock.
//!
//! - `convert` downgrades a write lock to a read lock, by one transaction.
//! - `transact` commits the caller's writes on the condition that the lock's node exists.
//! - `read` reads data that are not older than the grant.
//! - `revoke` notices that another process asks the holder to release the lock.
//!
//! All of them work as tasks on the session's thread, because the caller's executor may stop
//! polling at any time. All share one danger: the lock may be lost, handed off or released while a
//! request is under way. So each names the node in the request or checks the hold again after the
//! answer.

pub(crate) mod convert;
pub(crate) mod read;
pub(crate) mod revoke;
pub(crate) mod transact;
