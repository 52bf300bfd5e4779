//! The creates of one session that are not answered, or whose outcome is unknown, and the total
//! size of the paths of its nodes (docs/protocol.md#session-nodes).
//!
//! ```text
//!   begin --> sent ---- became: the node is known ------------------> removed, the node counts
//!              |  '---- end: the servers refused the create --------> removed, nothing counts
//!              |
//!              '- abandon: its caller has left without an outcome
//!                   |
//!                   v
//!              abandoned, until the last `AbandonedCreate` is dropped:
//!                   |--- the node is known, or does not exist ------> removed
//!                   '--- keep_counted: the outcome stays unknown ---> counted, at most until the
//!                                                                      session ends
//! ```
//!
//! When a session ends, ZooKeeper writes the paths of all its ephemeral nodes to its log as one
//! transaction, and a server does not start if its log has a transaction larger than twice its
//! `jute.maxbuffer` (ZOOKEEPER-4306). So the total size of the paths of a session is limited. Known
//! nodes, and creates that may have made a node, count in the same way: a create counts from before
//! it is sent, and passes its count on to its node. So no more nodes can exist than are counted,
//! apart from those of downgrades and of late creates.
//!
//! When the session has ended for this client, the count is [frozen](Creates::freeze), because no
//! answer shows any more whether a node exists.
//!
//! Abandoning a create has a second effect. The client is about to delete its node, so the node, if
//! a list shows it, is no live contender. A node that an earlier call of the same client left must
//! not make a later call report that the lock is busy (docs/protocol.md#live-contender).

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use tokio::sync::oneshot;

use crate::protocol::node_name::id;
use crate::session::threads::mutex::Mutex;
use crate::values::path::node_name;

/// The default limit on the size, in bytes, of the paths of a session's nodes. The limit is below
/// three quarters of 2,097,150, the largest transaction that a server with the default
/// `jute.maxbuffer` reads; the rest is for nodes that other code creates in the session.
pub(crate) const DEFAULT_MAX_BYTES: usize = 1_500_000;

/// The number of digits that the servers append to the name of a sequential node.
const SEQUENCE_DIGITS: usize = 10;

/// The creates of one session, by the ids in the names of their nodes.
pub(crate) struct Creates {
    sent: Mutex<SentCreates>,
    max_bytes: usize,
}

#[derive(Default)]
struct SentCreates {
    by_id: BTreeMap<String, SentCreate>,
    /// The number of [`AbandonedCreate`]s of all creates.
    abandoned: usize,
    /// The size of the paths of all nodes, and of the nodes that the creates may make.
    bytes: usize,
    /// Whether the session has ended for this client.
    is_frozen: bool,
}

impl SentCreates {
    /// Counts `bytes`, unless the total would exceed `max`. Returns whether they are counted.
    fn take(&mut self, bytes: usize, max: usize) -> bool {
        let all = self.bytes.saturating_add(bytes);
        let fits = all <= max;
        if fits {
            self.bytes = all;
        }
        fits
    }

    fn give_back(&mut self, bytes: usize) {
        if !self.is_frozen {
            self.bytes = self.bytes.saturating_sub(bytes);
        }
    }

    /// Forgets a create that has made no node, or whose node is known.
    fn forget(&mut self, id: &str) -> Option<SentCreate> {
        let create = self.by_id.remove(id)?;
        self.give_back(create.bytes);
        Some(create)
    }
}

#[derive(Default)]
struct SentCreate {
    /// The bytes to give back when the create is over; 0 once its node counts by itself.
    bytes: usize,
    /// Whether its bytes count until its node is known, or the session ends.
    is_kept: bool,
    /// The number of [`AbandonedCreate`]s for this create. An attempt has one while it answers its
    /// caller, and cleanup has another, which begins before the first one ends.
    abandoned: usize,
    /// The tasks that wait for the outcome of an abandoned create; a drop of the senders wakes
    /// them.
    waiting: Vec<oneshot::Sender<()>>,
}

/// A create that no caller waits for any more, and whose outcome is not known yet. Its node, if it
/// exists, is about to be deleted. This value is dropped once the node is recorded as one to
/// delete, or is known not to exist.
#[must_use]
pub(crate) struct AbandonedCreate {
    creates: Arc<Creates>,
    id: String,
}

/// Space that is counted for a node whose name has no id, for as long as the node may exist.
#[must_use]
pub(crate) struct NodeRoom {
    creates: Arc<Creates>,
    bytes: usize,
}

impl Creates {
    pub(crate) fn new(max_bytes: usize) -> Arc<Self> {
        Arc::new(Self {
            sent: Mutex::default(),
            max_bytes,
        })
    }

    pub(crate) fn max_bytes(&self) -> usize {
        self.max_bytes
    }

    /// Counts the creates of sequential nodes that are about to be sent, one for each of these ids:
    /// all of them, or none. `path` is the longest of their paths, without its number. Returns
    /// whether the session has room for the nodes.
    ///
    /// A transaction that repeats another of unknown outcome counts too, although the servers carry
    /// out at most one of them. So the limit may be reached early but never late, and the limit
    /// ends a call that would otherwise repeat without end.
    pub(crate) fn begin(&self, ids: &[String], path: &str) -> bool {
        // All ids count with the longest path. A sequence number has ten digits, or eleven
        // characters with a minus sign, but a directory with negative numbers is refused
        // (docs/protocol.md#sequence-order).
        let bytes = cost(path) + SEQUENCE_DIGITS;
        let mut sent = self.sent.lock();
        let fits = sent.take(bytes.saturating_mul(ids.len()), self.max_bytes);
        if fits {
            for id in ids {
                sent.by_id.entry(id.clone()).or_default().bytes = bytes;
            }
        }
        fits
    }

    /// Counts a node whose name has no id. `None` if the session has no room for it.
    pub(crate) fn room(self: &Arc<Self>, path: &str) -> Option<NodeRoom> {
        let bytes = cost(path);
        let fits = self.sent.lock().take(bytes, self.max_bytes);
        fits.then(|| NodeRoom {
            creates: Arc::clone(self),
            bytes,
        })
    }

    /// Records that the session has ended for this client. Everything that is counted by now stays
    /// counted, because the servers may have the nodes until they end the session.
    pub(crate) fn freeze(&self) {
        self.sent.lock().is_frozen = true;
    }

    /// Returns whether there is a known node, or a create that may have made one.
    pub(crate) fn any_may_exist(&self) -> bool {
        // A node counts by the bytes of its path.
        self.sent.lock().bytes > 0
    }

    /// Records that the create with this id has made no node. Does nothing if it is abandoned.
    pub(crate) fn end(&self, id: &str) {
        let mut sent = self.sent.lock();
        // Tasks may wait for the outcome of an abandoned create. Its entry is removed, and the
        // tasks are woken, by the drop of its last `AbandonedCreate`.
        if sent.by_id.get(id).is_some_and(|it| it.abandoned == 0) {
            sent.forget(id);
        }
    }

    /// Records that a node is known, so that the node counts instead of its create from now on.
    pub(super) fn became(&self, path: &str) {
        let mut sent = self.sent.lock();
        // The node exists, so it counts even if there is no room. The node of a late create or of a
        // downgrade may exceed the limit (docs/protocol.md#session-nodes).
        sent.bytes = sent.bytes.saturating_add(cost(path));
        let Some(id) = id(node_name(path)) else {
            return;
        };
        if let Some(create) = sent.by_id.get_mut(id) {
            let (bytes, abandoned) = (std::mem::take(&mut create.bytes), create.abandoned);
            sent.give_back(bytes);
            // The entry of an abandoned create stays, with no bytes, to show that its node is no
            // live contender.
            if abandoned == 0 {
                sent.by_id.remove(id);
            }
        }
    }

    /// Records that a known node is gone.
    pub(super) fn gone(&self, path: &str) {
        self.sent.lock().give_back(cost(path));
    }

    /// Records that no caller waits for the create with this id any more, although its outcome is
    /// not known. From now on its node is not a live contender (docs/protocol.md#live-contender).
    pub(crate) fn abandon(self: &Arc<Self>, id: String) -> AbandonedCreate {
        let mut sent = self.sent.lock();
        // The create may have been answered in the meantime, and have no entry any more. Its node,
        // which counts by itself, is about to be deleted all the same.
        sent.abandoned += 1;
        sent.by_id.entry(id.clone()).or_default().abandoned += 1;
        let creates = Arc::clone(self);
        AbandonedCreate { creates, id }
    }

    /// Returns the names that belong to nodes of abandoned creates.
    pub(super) fn abandoned_of<'a>(
        &self,
        names: impl Iterator<Item = &'a str>,
    ) -> HashSet<&'a str> {
        let sent = self.sent.lock();
        // Usually there is no abandoned create, and the names of a long list are not looked at.
        let names = (sent.abandoned > 0).then_some(names).into_iter().flatten();
        let create = |name| id(name).and_then(|id| sent.by_id.get(id));
        names
            .filter(|name| create(name).is_some_and(|create| create.abandoned > 0))
            .collect()
    }

    /// Waits until the outcome is known of the create that made, or would make, the node with this
    /// name. Returns at once if that create is not abandoned.
    pub(super) async fn until_known(&self, name: &str) {
        let known = {
            let mut sent = self.sent.lock();
            let create = id(name).and_then(|id| sent.by_id.get_mut(id));
            create.filter(|create| create.abandoned > 0).map(|create| {
                let (told, known) = oneshot::channel();
                create.waiting.push(told);
                known
            })
        };
        if let Some(known) = known {
            // The drop of the sender is the signal.
            let _ = known.await;
        }
    }
}

impl AbandonedCreate {
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// Keeps counting its node until the node is known, or the session ends, because there is no
    /// way to determine whether the node exists.
    pub(crate) fn keep_counted(&self) {
        if let Some(create) = self.creates.sent.lock().by_id.get_mut(&self.id) {
            // Without bytes there is nothing to keep: the node is known, and counts by itself.
            create.is_kept = create.bytes > 0;
        }
    }
}

impl NodeRoom {
    /// Keeps counting the node until the session ends, because the servers refuse to delete it.
    pub(crate) fn keep_counted(mut self) {
        self.bytes = 0;
    }
}

impl Drop for AbandonedCreate {
    fn drop(&mut self) {
        let over = {
            let mut sent = self.creates.sent.lock();
            // This is the total, which counts each `AbandonedCreate`. While it is 0,
            // `abandoned_of` looks at no names.
            sent.abandoned = sent.abandoned.saturating_sub(1);
            match sent.by_id.get_mut(&self.id) {
                Some(create) if create.abandoned > 1 => {
                    create.abandoned -= 1;
                    Vec::new()
                }
                // Creates that are kept stay recorded; the session's limit on nodes bounds their
                // number.
                Some(create) if create.is_kept && create.bytes > 0 => {
                    create.abandoned = 0;
                    std::mem::take(&mut create.waiting)
                }
                _ => {
                    let over = sent.forget(&self.id);
                    over.map(|create| create.waiting).unwrap_or_default()
                }
            }
        };
        // The drop wakes the tasks that wait for the outcome of the create, so the mutex is
        // unlocked first.
        drop(over);
    }
}

impl Drop for NodeRoom {
    fn drop(&mut self) {
        self.creates.sent.lock().give_back(self.bytes);
    }
}

/// Returns the size of a path in the transaction that ends the session: its bytes, and four more
/// for its length.
fn cost(path: &str) -> usize {
    path.len() + 4
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "0a8a2e5c-7d5b-4c3a-9a51-0d6f0b0c1d2e";

    fn bytes(creates: &Creates) -> usize {
        creates.sent.lock().bytes
    }

    // Shows: session-nodes
    #[test]
    fn node_counts_once_until_gone() {
        let beginning = format!("/a/_c_{ID}-lock-");
        let node = format!("{beginning}0000000007");
        let creates = Creates::new(cost(&node));
        let begin = || creates.begin(&[ID.to_owned()], &beginning);
        assert!(begin());
        assert!(!creates.begin(&["other".to_owned()], "/") && creates.room("/").is_none());
        creates.became(&node);
        assert_eq!(bytes(&creates), cost(&node));
        assert!(creates.room("/").is_none());
        creates.gone(&node);
        assert_eq!(bytes(&creates), 0);
        // The servers refuse this create.
        assert!(begin() && creates.any_may_exist());
        creates.end(ID);
        assert_eq!(bytes(&creates), 0);
        assert!(!creates.any_may_exist());
        drop(creates.room("/a").expect("room"));
        assert_eq!(bytes(&creates), 0);
        assert!(creates.sent.lock().by_id.is_empty());
        // This create is unanswered at the end of the session.
        assert!(begin());
        creates.freeze();
        drop(creates.abandon(ID.to_owned()));
        assert!(creates.any_may_exist());
    }

    // Shows: session-nodes
    #[test]
    fn refused_nodes_count_until_the_end() {
        let creates = Creates::new(1_000);
        assert!(creates.begin(&[ID.to_owned()], "/a"));
        let counted = bytes(&creates);
        let (one, other) = (creates.abandon(ID.into()), creates.abandon(ID.into()));
        one.keep_counted();
        drop((one, other));
        assert_eq!(bytes(&creates), counted);
        creates.room("/b").expect("room").keep_counted();
        assert_eq!(bytes(&creates), counted + cost("/b"));
    }

    /// A later list shows the node of a create whose outcome could not be determined.
    // Shows: session-nodes
    #[test]
    fn late_node_counts_once() {
        let beginning = format!("/a/_c_{ID}-lock-");
        let node = format!("{beginning}0000000007");
        let creates = Creates::new(1_000);
        assert!(creates.begin(&[ID.to_owned()], &beginning));
        let (one, other) = (creates.abandon(ID.into()), creates.abandon(ID.into()));
        one.keep_counted();
        drop((one, other));
        assert_eq!(bytes(&creates), cost(&node));
        creates.became(&node);
        assert_eq!(bytes(&creates), cost(&node));
        creates.gone(&node);
        assert_eq!(bytes(&creates), 0);
        assert!(creates.sent.lock().by_id.is_empty());
    }

    // Shows: session-nodes, live-contender
    #[test]
    fn abandoned_create_counts_until_settled() {
        let beginning = format!("/a/_c_{ID}-lock-");
        let node = format!("{beginning}0000000007");
        let creates = Creates::new(1_000);
        let is_abandoned = || -> Vec<&str> {
            let names = [node_name(&node)].into_iter();
            creates.abandoned_of(names).into_iter().collect()
        };
        assert!(creates.begin(&[ID.to_owned()], &beginning));
        assert_eq!(is_abandoned(), [""; 0]);
        let (first, second) = (
            creates.abandon(ID.to_owned()),
            creates.abandon(ID.to_owned()),
        );
        creates.end(ID);
        assert_eq!(bytes(&creates), cost(&node));
        drop(first);
        assert_eq!(is_abandoned(), [node_name(&node)]);
        creates.became(&node);
        assert_eq!((bytes(&creates), is_abandoned().len()), (cost(&node), 1));
        drop(second);
        assert_eq!((bytes(&creates), is_abandoned().len()), (cost(&node), 0));
        // This create has made no node.
        creates.gone(&node);
        assert!(creates.begin(&[ID.to_owned()], &beginning));
        drop(creates.abandon(ID.to_owned()));
        assert_eq!(bytes(&creates), 0);
        assert!(creates.sent.lock().by_id.is_empty());
    }
}
