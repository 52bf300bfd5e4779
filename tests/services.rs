//! What a service builds on locks: reads under them, jobs that run once, nodes and members that come back, its
//! start and its stop, and what it watches of them.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "services/holds.rs"]
mod holds;
#[path = "services/members.rs"]
mod members;
#[path = "services/nodes.rs"]
mod nodes;
#[path = "services/once.rs"]
mod once;
#[path = "services/reads.rs"]
mod reads;
#[path = "services/starting.rs"]
mod starting;
#[path = "services/states.rs"]
mod states;
#[path = "services/stopping.rs"]
mod stopping;
#[path = "services/threads.rs"]
mod threads;
