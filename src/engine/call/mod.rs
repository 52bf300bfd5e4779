//! A call, and the task that works for it and outlives it: the result, the progress, the end.
//! `kept` and what is above it use it. It starts no task, and never sends a request.

pub(crate) mod pending;
pub(crate) mod progress;
