//! The parts of a service that uses locks: reads under them, jobs that run once, nodes and members
//! that come back, its start and its stop, and its watches.
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
