//! How a request is asked, retried and judged.
//! The rest of the session and the engine use it. It never retries without a bound.
//!
//! A request is sent by `Session::request`, which lends the handle; `Session::write` is that for a
//! write that renews the lease. `Repetition` repeats it in one session, `Core::ask` in whatever
//! session there is. `Core::run` and `run_while_polled` carry work to the session's thread, and
//! `Core::call` is that for a call that may fail. `Core::lend` is for the user's own requests.

pub(crate) mod ask;
pub(crate) mod retry;
