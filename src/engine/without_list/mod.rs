//! Grants without a list (docs/protocol.md#succession): shows by the number of a created node that
//! the node is first, so that its attempt need not list the directory. The queue of a path has one
//! [`WithoutList`]; the create of an attempt, its grant and the owner of nodes call it, and nothing
//! else does. This folder sends no request but the read that sets a watch.
//!
//! # The algorithm
//! ZooKeeper numbers the children of a directory by its count of creates. If the nodes of all creates
//! up to N are gone and the next create is answered with the number N + 1, no node is ahead of it.
//!
//! ```text
//!   granted        the node with the number N is first: those before it are gone
//!   deletion_sent  its deletion is on its way, and will be answered before the next create
//!   gone           it is deleted: the nodes of all creates up to N are gone
//!   expects_first  the last three grants were free: the next create is sent without a list
//!   is_first       its number is N + 1 --> the lock is granted
//!                  any other number    --> the attempt lists now, with one more flight
//! ```
//! N is kept by [`Frontier`], which is pure, for writers and for readers. A directory that is removed
//! and created again restarts its numbers. So the directory is watched, and N counts only while the
//! [`DirectoryWatch`] has not fired and the connection was not interrupted. Whatever is not certain
//! costs a list, and grants nothing.
//!
//! # Until when
//! The client library does not set TCP_NODELAY (docs/upstream/nodelay.patch), so a list that is sent
//! together with a create waits until the create is answered, and a free lock takes one flight more.
//! With that option the two share a flight: then a grant without a list saves a read, and no time.
//!
//! # How to take it out
//! An attempt then sends a list with each create, unless a fair lock may wait in memory. Delete:
//! 1. This folder, `protocol/without_list`, `protocol/simulation/without_list.rs`, and the tests
//!    `in_process/succession.rs`, `in_process/cost/succession.rs`, `suite/replaced_directories.rs`.
//! 2. What does not compile without these: in `SharedQueue` the field, `new` (its `Default` is
//!    derived), `without_list`, `deletion_sent` and the call in `gone`; the two calls in
//!    `requests::create`; the one in `InSession::grant`; and those of `protocol/simulation`, whose
//!    numbers of schedules are lower then.
//! 3. What only these used: `deletion_sent` of `NodeOwner` and `Nodes`, and its call in
//!    `leftovers/deletion.rs`; `Standing::First`; `WatchUse::Directory`; `How::Succession`, its label
//!    in `metrics.rs` and docs/observability.md.
//! 4. In docs/protocol.md the rules `succession` and `directory-watch`, what links to them, and the
//!    costs of a lock that was free three times; in `cost.rs` the number of requests of a thousand
//!    cycles; of the simulation the patches `directory-watch-ignored`, `incarnation-ignored` and
//!    `next-number-ignored`, and the entry of `frontier.rs` in mutants.md.
//!
//! That cleanup sends a deletion at once, and that shared attempts yield before they begin, stays: a
//! create that overtakes the deletion of the last holder's node waits for it, also with lists.

mod directory_watch;

use std::sync::Arc;

use self::directory_watch::DirectoryWatch;
use crate::protocol::acquire::OwnNode;
use crate::protocol::local_queue::Gone;
use crate::protocol::node_name::{Kind, Naming};
use crate::protocol::numbers::SessionNumber;
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
        let number = session.number;
        self.known(number, |frontier| frontier.expects(kind))
            && self.watch.check_created(number).is_some()
    }

    /// Returns whether a node is first, now that its create was answered.
    pub(crate) fn is_first(&self, session: &Session, node: &OwnNode) -> bool {
        let number = session.number;
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
        if self.known(session.number, |frontier| {
            frontier.granted(name, node, free)
        }) {
            self.watch.ensure(tasks, session, &self.directory);
        }
    }

    /// Records that the deletion of a node was sent.
    pub(crate) fn deletion_sent(&self, session: SessionNumber, name: &str) {
        self.known(session, |frontier| frontier.leaves(name));
    }

    /// Records that a node is gone, or that its deletion is refused.
    pub(crate) fn gone(&self, session: SessionNumber, name: &str, how: Gone<'_>) {
        self.known(session, |frontier| frontier.gone(name, how));
    }

    /// Runs one decision by what is known in a session; none if a newer session has begun.
    fn known<T: Default>(
        &self,
        session: SessionNumber,
        decide: impl FnOnce(&mut Frontier) -> T,
    ) -> T {
        let mut frontier = self.frontier.lock();
        frontier.in_session(session).map(decide).unwrap_or_default()
    }
}
