//! What is in a session: nodes, creates, holds, watches, requests that are unanswered. The session
//! and the engine use it. It keeps books, and sends nothing but a read with a watch.

pub(crate) mod creates;
pub(crate) mod holds;
pub(crate) mod limits;
pub(crate) mod nodes;
pub(crate) mod unknown_creates;
