//! Tests of the rules of docs/protocol.md. The line above a test names its rules. The in-process
//! server waits at a gate where a test needs an exact moment. These tests need sockets, threads or
//! runtimes; the others run in virtual time: `simulation/tests/scenarios/rules`.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod relay;
mod sessions;
