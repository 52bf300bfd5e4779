//! How requests are sent to the servers and repeated, and what their errors mean. The rest of the
//! session and the engine use this module, which never retries without a limit.
//!
//! Work is done in two ways: by a **request** in a session (`Session::request`), and by a **task**
//! for a call (`Tasks::start` in `session/tasks.rs`). Everything else is built from these two.
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
//! Functions that repeat have the word "repeat" in their names. The end of the client ends all of
//! these functions.
//!
//! In the work of a request, `Session::write` and `create` send one request when they are called,
//! `commit` when its future is polled first. The answer to that request renews the lease
//! (docs/protocol.md#renewal). A read through the handle does not.

pub(crate) mod repetition;
pub(crate) mod retry;
