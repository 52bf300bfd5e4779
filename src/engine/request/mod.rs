//! The requests that an attempt sends, and what their answers mean to it. Attempts, semaphores,
//! multi-locks and questions use it. It never decides what to do next: that is `protocol::acquire`.

pub(crate) mod look;
pub(crate) mod requests;
