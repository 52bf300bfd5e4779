//! What is in a session: nodes, holds, watches, creates of unknown outcome, work that is under way.
//! The session uses it, and the engine through the session. It keeps books, and never sends a request.

pub(crate) mod directory_watches;
pub(crate) mod holds;
pub(crate) mod nodes;
pub(crate) mod unknown_creates;
pub(crate) mod watches;
pub(crate) mod window;
