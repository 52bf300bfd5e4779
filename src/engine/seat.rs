//! The context of every request of an attempt: its lock, session, number and kind.

use std::sync::Arc;

use crate::engine::path_lock::PathLock;
use crate::protocol::node_name::Kind;
use crate::session::zk_session::Session;

/// The context of a request: the lock, the session and the attempt that it is sent for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seat<'a> {
    pub(super) path_lock: &'a Arc<PathLock>,
    pub(super) session: &'a Arc<Session>,
    /// The number of the attempt, which is its position in the order of arrival.
    pub(super) number: u64,
    pub(super) kind: Kind,
}
