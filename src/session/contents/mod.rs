//! The contents of a session: nodes, creates, holds, watches, unanswered requests. The session and
//! the engine use this module, which only keeps records, and sends no request except a read with a
//! watch.

pub(crate) mod creates;
pub(crate) mod holds;
pub(crate) mod limits;
pub(crate) mod nodes;
pub(crate) mod unknown_creates;
