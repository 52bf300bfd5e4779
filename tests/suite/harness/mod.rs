//! What a behaviour runs in: a back-end, what that can do, and what looks on from outside.

mod backend;
mod behaviour;
mod critical;
mod env;
mod link;
mod random;
mod room;
mod saboteur;

use std::time::Duration;

pub(crate) use backend::{NO_CONTAINERS, NO_EXPIRY, Need, OUTLIVED, SESSION_LIMITS};
pub(crate) use behaviour::{Behaviour, Registry, behaviours};
pub(crate) use critical::CriticalSection;
pub(crate) use env::Env;
pub(crate) use link::Link;
pub(crate) use room::Room;

/// A deadline that passes, where that is what is shown: long enough that the servers answer before.
pub(crate) const BRIEFLY: Duration = Duration::from_millis(400);
