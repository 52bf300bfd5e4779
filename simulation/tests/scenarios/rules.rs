//! Tests of the rules of docs/protocol.md, which a line above each test names. The server is
//! in the process and waits at a gate where a test needs a certain moment; no test waits for time
//! to pass where an event can be waited for.

mod answers;
mod orphans;
mod others;
mod outcomes;
mod path_lock;
mod queueing;
mod sessions;
