//! The readers of one client that share a read node. Pure.
//!
//! A node is *open* while further readers may share it: while no writer queues, as far as a watch tells. An
//! open node has an *anchor*, a hold that no caller has, so that it stays when no reader is inside. A node that
//! is closed goes with its last reader (docs/protocol.md#kept-read-node).

use std::collections::{BTreeMap, BTreeSet};

/// The shared nodes of one client and read-write lock, by the numbers of their anchors.
#[derive(Debug, Default)]
pub(crate) struct Readers {
    /// The holds of each node: its readers, and its anchor while it is open.
    nodes: BTreeMap<u64, BTreeSet<u64>>,
    open: Option<u64>,
}

/// What comes of a hold that ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leaving {
    /// Its node is still another's.
    Stays,
    /// It was the last of its node, which has to be deleted.
    Last,
    /// Its node is not shared.
    NotShared,
}

impl Readers {
    /// Has the node of the reader with this number shared from here on, with this anchor. Returns `false` if
    /// another node is open.
    pub(crate) fn open(&mut self, reader: u64, anchor: u64) -> bool {
        if self.open.is_some() {
            return false;
        }
        self.nodes.insert(anchor, BTreeSet::from([reader, anchor]));
        self.open = Some(anchor);
        true
    }

    /// Adds a reader to the open node. Returns `false` if there is none.
    pub(crate) fn join(&mut self, reader: u64) -> bool {
        let node = self.open.and_then(|anchor| self.nodes.get_mut(&anchor));
        node.is_some_and(|node| node.insert(reader))
    }

    /// Removes a hold, which ends.
    pub(crate) fn leave(&mut self, hold: u64) -> Leaving {
        let mut nodes = self.nodes.iter_mut();
        let Some((&anchor, node)) = nodes.find(|(_, node)| node.contains(&hold)) else {
            return Leaving::NotShared;
        };
        node.remove(&hold);
        let is_last = node.is_empty();
        if hold == anchor && self.open == Some(anchor) {
            self.open = None;
        }
        if is_last {
            self.nodes.remove(&anchor);
            return Leaving::Last;
        }
        Leaving::Stays
    }

    /// Closes the node with this anchor: no reader joins it any more, and the anchor has left it. Returns what
    /// comes of that; `NotShared` if it was not open.
    ///
    /// At once, and not when the anchor is released: a reader that is alone by then may have taken the node out,
    /// which is not to be deleted.
    pub(crate) fn close(&mut self, anchor: u64) -> Leaving {
        if self.open == Some(anchor) { self.leave(anchor) } else { Leaving::NotShared }
    }

    /// Returns the anchor of the open node, if this hold is of that node.
    pub(crate) fn anchor_of(&self, hold: u64) -> Option<u64> {
        self.open.filter(|anchor| self.nodes.get(anchor).is_some_and(|node| node.contains(&hold)))
    }

    /// Returns whether a reader is inside by the open node.
    pub(crate) fn is_in_use(&self) -> bool {
        self.open.and_then(|anchor| self.nodes.get(&anchor)).is_some_and(|node| node.len() > 1)
    }

    /// Takes the node of a reader that is its only one out of the shared ones, with its anchor. Returns `false`
    /// if others share it.
    pub(crate) fn take_out(&mut self, reader: u64) -> bool {
        let mut nodes = self.nodes.iter();
        let Some((&anchor, node)) = nodes.find(|(_, node)| node.contains(&reader)) else { return true };
        if node.iter().any(|hold| *hold != reader && *hold != anchor) {
            return false;
        }
        self.nodes.remove(&anchor);
        self.open = self.open.filter(|open| *open != anchor);
        true
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// A node is deleted once, after its last reader and its anchor, and no reader joins a closed one.
        #[test]
        fn a_shared_read_node_goes_once_and_with_its_last_hold(
            events in proptest::collection::vec((0..5_u8, 0..6_usize), 0..200),
        ) {
            let mut readers = Readers::default();
            // The holds of each node by its anchor, and the open one.
            let mut nodes: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
            let (mut open, mut next) = (None, 0_u64);
            for (event, index) in events {
                next += 2;
                let (reader, anchor) = (next, next + 1);
                let holds: Vec<u64> = nodes.values().flatten().copied().collect();
                match event {
                    0 => {
                        prop_assert_eq!(readers.open(reader, anchor), open.is_none());
                        if open.is_none() {
                            nodes.insert(anchor, vec![reader, anchor]);
                            open = Some(anchor);
                        }
                    }
                    1 => {
                        prop_assert_eq!(readers.join(reader), open.is_some());
                        if let Some(open) = open {
                            nodes.get_mut(&open).unwrap().push(reader);
                        }
                    }
                    2 => if let Some(&hold) = holds.get(index) {
                        let (&anchor, node) = nodes.iter_mut().find(|(_, node)| node.contains(&hold)).unwrap();
                        node.retain(|other| *other != hold);
                        let expected = if node.is_empty() { Leaving::Last } else { Leaving::Stays };
                        prop_assert_eq!(readers.leave(hold), expected);
                        prop_assert_eq!(readers.leave(hold), Leaving::NotShared);
                        if hold == anchor && open == Some(anchor) {
                            open = None;
                        }
                        nodes.retain(|_, node| !node.is_empty());
                    },
                    3 => if let Some(anchor) = open.take() {
                        let node = nodes.get_mut(&anchor).unwrap();
                        node.retain(|hold| *hold != anchor);
                        let expected = if node.is_empty() { Leaving::Last } else { Leaving::Stays };
                        prop_assert_eq!(readers.close(anchor), expected);
                        prop_assert_eq!(readers.close(anchor), Leaving::NotShared);
                        prop_assert!(!readers.join(reader));
                        nodes.retain(|_, node| !node.is_empty());
                    },
                    _ => if let Some(&hold) = holds.get(index) {
                        let (&anchor, node) = nodes.iter().find(|(_, node)| node.contains(&hold)).unwrap();
                        let alone = node.iter().all(|other| *other == hold || *other == anchor);
                        if hold != anchor {
                            prop_assert_eq!(readers.take_out(hold), alone);
                            if alone {
                                nodes.remove(&anchor);
                                open = open.filter(|open| *open != anchor);
                                prop_assert_eq!(readers.leave(hold), Leaving::NotShared);
                            }
                        }
                    },
                }
                let in_use = open.is_some_and(|open| nodes[&open].len() > 1);
                prop_assert_eq!(readers.is_in_use(), in_use);
            }
        }
    }
}
