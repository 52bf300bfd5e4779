//! The one engine under all recipes.
//!
//! `name`, `queue`, `contender`, `conversion`, `line` and `turns` decide and do no I/O; `driver` does the I/O of one contender on one session;
//! `room` is where the handles of one client for one path meet.

pub(crate) mod contender;
pub(crate) mod conversion;
pub(crate) mod driver;
pub(crate) mod line;
pub(crate) mod name;
pub(crate) mod pending;
pub(crate) mod places;
pub(crate) mod queue;
pub(crate) mod room;
#[cfg(test)]
mod simulation;
pub(crate) mod turns;
#[cfg(test)]
mod upgrade_model;
