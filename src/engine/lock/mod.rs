//! A path lock: what the handles of one client for one path and recipe share, and their options.
//! Attempts, grants and questions use it. It never sends a request and starts no task.

pub(crate) mod first;
pub(crate) mod lock_options;
pub(crate) mod path_lock;
