//! A holder whose node another process has deleted is notified of the loss, a waiter in the same
//! case is not granted the lock, and no other holder is notified.
//!
//! Such a holder may hold the lock together with the next: the servers have forgotten it, and its
//! next heartbeat shows that. So the overlap does not violate exclusion, but a missing notice is a
//! violation.

use std::collections::{BTreeMap, BTreeSet};

/// The deleted nodes, and when they were deleted, in milliseconds.
#[derive(Debug, Default)]
pub struct Broken {
    deleted: BTreeMap<String, u64>,
    /// The deleted nodes, and those whose deletion has an unknown outcome.
    suspects: BTreeSet<String>,
}

impl Broken {
    pub fn deleted(&mut self, node: &str, now: u64) {
        self.deleted.entry(node.to_owned()).or_insert(now);
        self.suspect(node);
    }

    /// Records that a node may be deleted from now on.
    pub fn suspect(&mut self, node: &str) {
        self.suspects.insert(node.to_owned());
    }

    /// Returns whether one of these nodes may have been deleted.
    pub fn may_be(&self, nodes: &[String]) -> bool {
        nodes.iter().any(|node| self.suspects.contains(node))
    }

    /// Returns since when one of these nodes has been deleted.
    pub fn since(&self, nodes: &[String]) -> Option<u64> {
        nodes
            .iter()
            .filter_map(|node| self.deleted.get(node))
            .min()
            .copied()
    }

    /// Returns whether a node below a path has been deleted since a moment.
    pub fn below(&self, path: &str, since: u64) -> bool {
        self.deleted
            .iter()
            .any(|(node, deleted)| *deleted >= since && node.starts_with(path))
    }

    /// Checks a grant by these nodes to a caller that was awake for `limit`. The lock may have been
    /// granted before the deletion, or by a list from before it.
    pub fn granted(&self, now: u64, nodes: &[String], limit: u64) -> Result<(), String> {
        match self.since(nodes) {
            Some(deleted) if now > deleted + limit => Err(format!(
                "is granted a lock by {nodes:?} {} ms after that was deleted",
                now - deleted
            )),
            _ => Ok(()),
        }
    }

    /// Checks a notice that another process has deleted one of these nodes.
    pub fn notified(&self, nodes: &[String]) -> Result<(), String> {
        if self.may_be(nodes) {
            Ok(())
        } else {
            Err(format!(
                "was notified that {nodes:?} was deleted, which it was not"
            ))
        }
    }

    /// Checks the state of a guard with these nodes, granted at `granted`: a deletion must be
    /// noticed within a limit.
    ///
    /// The limit counts from the last connection of its client: the check of the node is lost with
    /// the connection, and is sent again by the next. If each connection lasts for a moment only,
    /// the answers to other writes, which keep the lease valid, may get through while those to the
    /// checks do not.
    pub fn look(
        &self,
        now: u64,
        nodes: &[String],
        granted: u64,
        is_held: bool,
        limit: u64,
        connected: impl FnOnce() -> u64,
    ) -> Result<(), String> {
        let is_late = |deleted: u64| is_held && now > deleted.max(granted) + limit;
        match self.since(nodes).filter(|deleted| is_late(*deleted)) {
            Some(deleted) if now > connected() + limit => Err(format!(
                "holds {nodes:?} {} ms after that was deleted",
                now - deleted
            )),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_holder_unaware_of_deletion() {
        let node = ["/a".to_owned()];
        let mut broken = Broken::default();
        broken.look(1_000, &node, 0, true, 10, || 0).unwrap();
        broken.suspect("/a");
        assert!(broken.may_be(&node));
        broken.look(2_000, &node, 0, true, 10, || 0).unwrap();
        broken.deleted("/a", 1_000);
        broken.look(1_010, &node, 0, true, 10, || 0).unwrap();
        broken.look(1_011, &node, 0, false, 10, || 0).unwrap();
        broken.look(1_011, &node, 0, true, 10, || 0).unwrap_err();
        broken.look(1_011, &node, 1_005, true, 10, || 0).unwrap();
        broken.look(1_011, &node, 0, true, 10, || 1_001).unwrap();
        broken
            .look(1_011, &node, 0, true, 10, || 1_000)
            .unwrap_err();
        assert!(broken.below("/", 1_000) && !broken.below("/", 1_001) && !broken.below("/b", 0));
    }

    #[test]
    fn flags_grant_by_deleted_node() {
        let node = ["/a".to_owned()];
        let mut broken = Broken::default();
        broken.granted(1_000, &node, 10).unwrap();
        broken.deleted("/a", 1_000);
        broken.granted(1_010, &node, 10).unwrap();
        broken.granted(1_011, &node, 10).unwrap_err();
        broken.granted(1_011, &["/b".to_owned()], 10).unwrap();
    }

    #[test]
    fn flags_false_report_of_deletion() {
        let node = ["/a".to_owned(), "/b".to_owned()];
        let mut broken = Broken::default();
        broken.notified(&node).unwrap_err();
        broken.deleted("/b", 1_000);
        broken.notified(&node).unwrap();
        broken.notified(&node[..1]).unwrap_err();
        broken.suspect("/a");
        broken.notified(&node[..1]).unwrap();
    }
}
