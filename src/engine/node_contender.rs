//! Makes a contender from the result of a read of its node.

use zookeeper_client as zk;

use crate::contender::{Contender, ContenderKind, NodeStat};
use crate::engine::path_lock::PathLock;
use crate::path::LockPath;
use crate::protocol::node_name::{Child, Family, Kind, Naming, classify, upgraded_from};
use crate::session::zk_session::Session;

/// Returns the kind of lock that a contender requests.
pub(super) const fn kind_of(naming: Naming, kind: Kind) -> ContenderKind {
    match (naming.family, kind) {
        (Family::Exclusive | Family::Latch, _) => ContenderKind::Exclusive,
        (Family::ReadWrite, Kind::Shared) => ContenderKind::Read,
        (Family::ReadWrite, Kind::Exclusive) => ContenderKind::Write,
    }
}

/// Returns a contender, from the result of a read of its node.
pub(super) fn contender(
    path_lock: &PathLock,
    directory: &LockPath,
    (name, kind): (&str, ContenderKind),
    (data, stat): (&[u8], &zk::Stat),
    session: i64,
) -> Contender {
    let is_mine = stat.ephemeral_owner == session;
    let has_token = match kind {
        ContenderKind::Exclusive => true,
        ContenderKind::Write => upgraded_from(name, path_lock.naming()).is_none(),
        ContenderKind::Read | ContenderKind::Permit => false,
    };
    let stat = NodeStat { session: stat.ephemeral_owner, czxid: stat.czxid, ctime: stat.ctime };
    Contender::new(directory.user_child(name), kind, stat, data, (is_mine, has_token))
}

/// Returns the contender that is first in the queue, from the result of a read of its node.
pub(super) fn first_contender(
    path_lock: &PathLock,
    session: &Session,
    name: &str,
    (data, stat): (&[u8], &zk::Stat),
) -> Option<Contender> {
    let Child::Contender { kind, .. } = classify(name, path_lock.naming()) else { return None };
    let kind = kind_of(path_lock.naming(), kind);
    Some(contender(path_lock, path_lock.path(), (name, kind), (data, stat), session.session_id()))
}
