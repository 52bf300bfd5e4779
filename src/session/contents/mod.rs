//! The contents of a session: nodes, creates, holds, watches, unanswered requests. The session and
//! the engine use this module, which only keeps records, and sends no request except a read of a
//! node, usually with a watch (`limits::read_and_watch`).
//!
//! ```text
//!   record            key           from                        until
//!   ----------------  ------------  --------------------------  ---------------------------------
//!   creates           id            before the create is sent   its node is known, or never exists
//!   nodes             server path   the answer to the create    the answer to the deletion
//!   holds             hold number   the grant                   the release, or the end of a loss
//!   unknown_creates   id            cleanup has not found it    a list shows its node
//!   limits: watches   server path   before the watch is set     the watch has fired, or is dropped
//!   limits: windows   -             before a request is sent    its answer
//! ```
//!
//! A create becomes a node, and a node may be that of a hold. The records are separate, because
//! their keys differ and each is read in another situation: creates and nodes when a list arrives,
//! holds by each heartbeat. Every record ends with the session at the latest
//! (docs/protocol.md#one-session).

pub(crate) mod creates;
pub(crate) mod holds;
pub(crate) mod limits;
pub(crate) mod nodes;
pub(crate) mod unknown_creates;
