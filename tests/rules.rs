//! The rules of the protocol, each by a test of its name. The server is in the process and waits at a gate where a test needs a
//! certain moment; no test waits for time to pass where an event can be waited for.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "rules/answers.rs"]
mod answers;
#[path = "rules/epochs.rs"]
mod epochs;
#[path = "rules/orphans.rs"]
mod orphans;
#[path = "rules/others.rs"]
mod others;
#[path = "rules/outcomes.rs"]
mod outcomes;
#[path = "rules/queueing.rs"]
mod queueing;
#[path = "rules/relay.rs"]
mod relay;
#[path = "rules/room.rs"]
mod room;
#[path = "rules/support.rs"]
mod support;
