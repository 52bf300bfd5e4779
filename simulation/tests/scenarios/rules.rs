//! Tests of the rules of docs/protocol.md. The line above a test names its rules. The in-process
//! server waits at a gate where a test needs an exact moment. No test lets time pass where it can
//! wait for an event.

mod answers;
mod orphans;
mod others;
mod outcomes;
mod path_lock;
mod queueing;
mod sessions;
