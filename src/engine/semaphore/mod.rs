//! The limit of a semaphore, as the servers have it.
//! Attempts, which take the permits, and the semaphore's face use it. It never takes a permit.

pub(crate) mod limit;
