//! The one engine under all recipes: what the handles of one path share, attempts to get a lock, and holds of
//! it.

pub(crate) mod admission;
pub(crate) mod attempt;
mod cancel;
pub(crate) mod contenders;
pub(crate) mod convert;
mod convert_requests;
pub(crate) mod counter;
pub(crate) mod election;
pub(crate) mod group;
pub(crate) mod held;
pub(crate) mod hold;
pub(crate) mod holdings;
pub(crate) mod limit;
mod lists;
pub(crate) mod lock_options;
pub(crate) mod look;
pub(crate) mod multi;
mod multi_requests;
pub(crate) mod observe;
pub(crate) mod once;
pub(crate) mod path_lock;
pub(crate) mod pending;
pub(crate) mod permits;
pub(crate) mod persistent_node;
pub(crate) mod progress;
pub(crate) mod read;
pub(crate) mod registry;
mod requests;
pub(crate) mod revoke;
pub(crate) mod room;
mod seat;
pub(crate) mod shared_queue;
pub(crate) mod shared_readers;
mod shared_room;
mod stop;
pub(crate) mod transact;
