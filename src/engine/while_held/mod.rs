//! What runs while a lock is held: downgrades, transactions, reads, requests to release.
//! Faces and recipes use it. Each refuses once the lock is lost, and none gets a lock.

pub(crate) mod convert;
pub(crate) mod read;
pub(crate) mod revoke;
pub(crate) mod transact;
