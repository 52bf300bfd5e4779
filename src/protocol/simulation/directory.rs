//! The model of a lock directory: the numbers of sequential nodes, the zxids of creations, and a
//! directory that is deleted and created again, as ZooKeeper has them.

use std::collections::{BTreeMap, BTreeSet};

use crate::protocol::acquire::OwnNode;
use crate::protocol::downgrade::Answered;
use crate::protocol::failure::{Answer, FailureKind};
use crate::protocol::node_name::Naming;
use crate::protocol::queue::{Listing, Queue};

pub(super) struct Directory {
    pub(super) naming: Naming,
    /// The count of creates, which numbers the nodes, since the directory was created.
    pub(super) created: u32,
    /// The count of all changes, over the directories that were removed.
    pub(super) zxid: i64,
    /// When the directory was created, and each node.
    pub(super) czxid: i64,
    pub(super) czxids: BTreeMap<String, i64>,
    /// The owner of each node: the caller and the number of its attempt.
    pub(super) nodes: BTreeMap<String, (usize, u64)>,
    /// Whether it has been deleted, and not been created again.
    pub(super) missing: bool,
    /// Nodes whose deletion is refused: the end of their sessions deletes them.
    pub(super) stuck: BTreeSet<String>,
    /// When other processes deleted nodes.
    pub(super) deleted_by_hand: BTreeMap<String, usize>,
    pub(super) clock: usize,
}

impl Directory {
    pub(super) fn new(naming: Naming) -> Self {
        Self {
            naming,
            created: 0,
            zxid: 1,
            czxid: 1,
            czxids: BTreeMap::new(),
            nodes: BTreeMap::new(),
            missing: false,
            stuck: BTreeSet::new(),
            deleted_by_hand: BTreeMap::new(),
            clock: 0,
        }
    }

    pub(super) fn create(&mut self, owner: (usize, u64), beginning: &str) -> OwnNode {
        // A sequential node gets the count of creates before it, of children of any name.
        let name = format!("{beginning}{:010}", self.created);
        self.nodes.insert(name.clone(), owner);
        OwnNode {
            czxid: Some(self.count(&name)),
            name,
        }
    }

    /// Counts a create. Returns its zxid.
    fn count(&mut self, name: &str) -> i64 {
        self.created += 1;
        self.zxid += 1;
        self.czxids.insert(name.to_owned(), self.zxid);
        self.zxid
    }

    /// Creates the directory, which restarts the numbers.
    pub(super) fn make_again(&mut self) {
        self.missing = false;
        // The numbers of the new directory may be those of nodes that clients still know.
        self.created = 0;
        self.zxid += 1;
        self.czxid = self.zxid;
    }

    pub(super) fn list(&self) -> Answer<Listing> {
        match self.missing {
            true => Answer::no(FailureKind::NoNode),
            // `Queue::read` is the library's, so that its order of the contenders is tested, too.
            false => Answer::Is(Queue::read(
                self.nodes.keys().cloned().collect(),
                self.naming,
            )),
        }
    }

    /// Creates a node with this full name, and deletes another, unless that has happened before.
    pub(super) fn exchange(&mut self, owner: (usize, u64), create: &str, delete: &str) -> Answered {
        // The name has a fresh id, so only an earlier transaction of the same downgrade can have
        // created the node.
        if self.nodes.contains_key(create) {
            return Answered::Done;
        }
        if self.nodes.remove(delete).is_none() {
            return Answered::Failed(FailureKind::NoNode.into());
        }
        self.nodes.insert(create.to_owned(), owner);
        // The name is not sequential, but the create counts for the numbers of later nodes.
        self.count(create);
        Answered::Done
    }
}
