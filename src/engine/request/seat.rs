//! The context of every request of an attempt: its lock, session, number and kind.

use std::sync::Arc;

use crate::engine::lock::path_lock::PathLock;
use crate::protocol::node_name::Kind;
use crate::session::live::zk_session::Session;

/// The context of a request: the lock, the session and the attempt that it is sent for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seat<'a> {
    pub(crate) path_lock: &'a Arc<PathLock>,
    pub(crate) session: &'a Arc<Session>,
    /// The number of the attempt, which is its position in the order of arrival.
    pub(crate) number: u64,
    pub(crate) kind: Kind,
}
