//! How something is asked of the servers, how it is repeated, and what an error means. The rest of
//! the session and the engine use it. It never retries without a bound.
//!
//! There are two ways to have something done on a client: to send a **request** in a session
//! (`Session::request`), and to run a **task** for a call (`Tasks::start` in `session/tasks.rs`).
//! Everything else is made of these.
//!
//! | way | does | is repeated | a session's end | its caller leaves |
//! |---|---|---|---|---|
//! | `Session::request` | one piece of I/O: requests that are sent together, and their answers | never | ends it: `SessionGone` | what was sent is carried out, the answer is dropped |
//! | `Repetition::try_once` | a request, and the pause that its failure asks for | by its caller, who may change it | ends it | the same |
//! | `Repetition::repeat` | a request in one session | until it is answered or refused, or the policy is exhausted | ends it | the same, and it is not repeated |
//! | `Core::repeat` | a request in the session that there is | the same | the next session is asked | the same |
//! | `Client::request` | the requests of other code, in the task of its caller, which need not be `Send` | never | ends it: an error | the same as of `Session::request` |
//! | `Tasks::start` | work on the session's thread, with its timers | - | does not matter to it | aborts it |
//! | `Tasks::start(..).detach()` | the same | - | the same | does not stop it |
//!
//! The functions that repeat have it in their names. The end of the client ends all of them.
//!
//! In the work of a request, `Session::write`, `create` and `commit` send one request when they are
//! called, which renews the lease by its answer (docs/protocol.md#renewal). A read through the
//! handle renews nothing.

pub(crate) mod repetition;
pub(crate) mod retry;
