//! The one engine under all recipes.
//!
//! `name`, `queue` and `contender` decide and do no I/O; `driver` does the I/O of one contender on one session;
//! `room` is where the handles of one client for one path meet.

pub(crate) mod contender;
pub(crate) mod driver;
pub(crate) mod name;
pub(crate) mod queue;
pub(crate) mod room;
#[cfg(test)]
mod simulation;
