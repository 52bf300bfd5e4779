//! An attempt to get a lock, from the caller's wait to the grant, and the attempts for callers that
//! wait together. Faces and what is built of several attempts use it. It carries out what
//! `protocol::acquire` decides; all that it leaves behind goes to the session's cleanup.

pub(crate) mod attempt;
pub(crate) mod in_session;
pub(crate) mod permits_attempt;
pub(crate) mod queued;
pub(crate) mod run;
pub(crate) mod shared_attempt;
