//! The parts of a service that uses locks: reads under them, jobs that run once, nodes and members
//! that return, start and stop, and watches.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod holds;
mod members;
mod nodes;
mod once;
mod reads;
mod starting;
mod states;
mod stopping;
mod threads;
