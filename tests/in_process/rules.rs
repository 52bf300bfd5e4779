//! Tests of the rules of docs/protocol.md, which a line above each test names. The server is
//! in this process, and waits at a gate where a test needs a certain moment. These tests need
//! sockets, threads or runtimes; the others run in virtual time:
//! `simulation/tests/scenarios/rules`.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod relay;
mod sessions;
