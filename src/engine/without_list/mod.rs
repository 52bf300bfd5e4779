//! Grants without a list (docs/protocol.md#succession): proves by the number of a created node that
//! the node is first, so that an attempt need not list the directory. The queue of a path has one
//! [`WithoutList`], which attempts ask. Sends no request but a read with a watch, and grants nothing
//! by itself.

mod directory_watch;

use std::sync::Arc;

use self::directory_watch::DirectoryWatch;
use crate::protocol::acquire::OwnNode;
use crate::protocol::local_queue::Gone;
use crate::protocol::node_name::{Kind, Naming};
use crate::protocol::without_list::frontier::{Frontier, Numbered, SessionFrontier};
use crate::session::live::zk_session::Session;
use crate::session::tasks::Tasks;
use crate::session::threads::mutex::Mutex;
use crate::values::path::LockPath;

/// What a client knows of one directory, by which the next node may need no list.
pub(crate) struct WithoutList {
    directory: LockPath,
    naming: Naming,
    frontier: Mutex<SessionFrontier>,
    watch: Arc<DirectoryWatch>,
}

impl WithoutList {
    pub(crate) fn new(directory: LockPath, naming: Naming) -> Self {
        Self {
            directory,
            naming,
            frontier: Mutex::default(),
            watch: Arc::default(),
        }
    }

    /// Returns whether the next node of this kind is expected to be first, so that its create is
    /// sent without a list.
    pub(crate) fn expects_first(&self, session: &Session, kind: Kind) -> bool {
        let number = session.number();
        self.known(number, |frontier| frontier.expects(kind))
            && self.watch.check_created(number).is_some()
    }

    /// Returns whether a node is first, now that its create was answered.
    pub(crate) fn is_first(&self, session: &Session, node: &OwnNode) -> bool {
        let number = session.number();
        // The watch is checked after the answer to the create, so that the numbers are comparable
        // (docs/protocol.md#directory-watch).
        let Some(directory) = self.watch.check_created(number) else {
            return false;
        };
        Numbered::of(&node.name, node.czxid, self.naming).is_some_and(|node| {
            self.known(number, |frontier| frontier.decide_first(node, directory))
        })
    }

    /// Records that the node with this name and czxid is first, by whatever proof, and holds the
    /// lock. `free` is whether it has not waited for others. Once that has been so several times in
    /// a row, the directory is watched.
    pub(crate) fn granted(
        &self,
        tasks: &Tasks,
        session: &Arc<Session>,
        (name, czxid): (&str, i64),
        free: bool,
    ) {
        let Some(node) = Numbered::of(name, Some(czxid), self.naming) else {
            return;
        };
        if self.known(session.number(), |frontier| {
            frontier.granted(name, node, free)
        }) {
            self.watch.ensure(tasks, session, &self.directory);
        }
    }

    /// Records that the deletion of a node was sent.
    pub(crate) fn deletion_sent(&self, session: u64, name: &str) {
        self.known(session, |frontier| frontier.leaves(name));
    }

    /// Records that a node is gone, or that its deletion is refused.
    pub(crate) fn gone(&self, session: u64, name: &str, how: Gone<'_>) {
        self.known(session, |frontier| frontier.gone(name, how));
    }

    /// Runs one decision by what is known in a session; none if a newer session has begun.
    fn known<T: Default>(&self, session: u64, decide: impl FnOnce(&mut Frontier) -> T) -> T {
        let mut frontier = self.frontier.lock();
        frontier.in_session(session).map(decide).unwrap_or_default()
    }
}
