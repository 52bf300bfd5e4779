//! The state that the handles of one client for one path and recipe share, and their options.
//! Attempts, grants and questions use this folder, which never sends a request and starts no task.
//!
//! A client may have any number of handles for a lock. They must share one state, because two
//! states would take each other's nodes for those of another client
//! (docs/protocol.md#one-path-lock).
//!
//! - `path_lock`: that state, the registry in which a handle finds it, and the errors of a call;
//! - `lock_options`: the options of a handle, their checks and defaults, and whether two agree;
//! - `first`: the first contender of the queue, as far as it is known, for errors.

pub(crate) mod first;
pub(crate) mod lock_options;
pub(crate) mod path_lock;
