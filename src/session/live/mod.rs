//! One session while it is alive: requests through it, its heartbeat and its lease. The rest of the
//! session and the engine use this module, which never resumes a session that has ended. Requests
//! are sent by `Session::request` and `Client::request`, which lend the handle of the client
//! library. There are two exceptions: a heartbeat over a spare connection has a separate handle,
//! and `end_if_dead` (`request/repetition.rs`) sends a `sync` whose answer it does not await, to
//! find out whether the task that serves the session has died.
//!
//! ```text
//!   an answered write, or a heartbeat --> SessionLease::renewed --> grants that wait for a renewal
//!
//!   the lease thread, or the heartbeat task
//!        | the clock shows a change, without a renewal
//!        v
//!   Session::check_clock --> suspended: nothing is granted until the next renewal
//!                        --> expired: all locks are lost, and their nodes are kept
//!                        --> a hold lease has ended: that lock is lost, and its node is deleted
//!
//!   expired or replaced by the servers, closed, stalled
//!        v
//!   Session::end --> all locks are lost, requests are abandoned, and attempts leave the session
//! ```
//!
//! - `zk_session`: the session, with its handle, its contents and its end.
//! - `heartbeat`: the task that renews the lease and checks the nodes of held locks.
//! - `session_lease`: the age of the last renewal, and the thread that notifies holders in time.

pub(crate) mod heartbeat;
pub(crate) mod session_lease;
pub(crate) mod zk_session;
