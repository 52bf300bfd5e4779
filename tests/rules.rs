//! The rules of the protocol: docs/protocol.md names the tests that show each. The server is in the process
//! and waits at a gate where a test needs a certain moment; no test waits for time to pass where an event can
//! be waited for.
#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "rules/answers.rs"]
mod answers;
#[path = "rules/orphans.rs"]
mod orphans;
#[path = "rules/others.rs"]
mod others;
#[path = "rules/outcomes.rs"]
mod outcomes;
#[path = "rules/path_lock.rs"]
mod path_lock;
#[path = "rules/queueing.rs"]
mod queueing;
#[path = "rules/relay.rs"]
mod relay;
#[path = "rules/sessions.rs"]
mod sessions;
