//! Where a request of an attempt belongs: what it needs to know, and no more.

use std::sync::Arc;

use crate::engine::path_lock::PathLock;
use crate::protocol::node_name::Kind;
use crate::session::zk_session::Session;

/// The lock, the session and the attempt that a request is sent for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seat<'a> {
    pub(super) path_lock: &'a Arc<PathLock>,
    pub(super) session: &'a Arc<Session>,
    /// The attempt's number, by which those of one path lock create in the order in which they arrived.
    pub(super) number: u64,
    pub(super) kind: Kind,
}
