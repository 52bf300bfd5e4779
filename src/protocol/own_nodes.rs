//! The nodes of a [`LocalQueue`](super::local_queue::LocalQueue)'s session: which one waits in
//! memory for which other, and what happens to the waiting ones when a node is gone
//! (docs/protocol.md#waiting-in-memory). So thousands of waiters of one fair lock in one process
//! cost the servers no watches and no lists.
//!
//! ```text
//!   number     31         32 <------- 33 <------- 34         35
//!   session   other      ours        ours        ours       other
//!              ^          |
//!              '----------'  watched on the servers; 33 waits for 32 in memory, and 34 for 33
//! ```
//! Each node keeps the node that it waits for, and its *followers*, which wait for it. What the
//! followers do when the node is gone depends on how it was deleted:
//! - By this client: the followers inherit its wait. In the picture, if 33 is deleted, 34 waits for
//!   32, and is not woken. If 32 is deleted, 33 watches 31.
//! - By a hand-over: the follower to which the lock is handed over is granted the lock, and others
//!   list.
//! - In any other way: the followers list. Another process may have deleted further nodes, of which
//!   this client was not notified.
//!
//! A follower is *adjacent* if no other node is between the two. Only such a follower can be handed
//! the lock. Two consecutive numbers have none between them, because the servers count the creates
//! of a directory, and none can be added, because later nodes have greater numbers. When a node is
//! deleted, the two nodes that are adjacent to it become adjacent to each other.
//!
//! The information may be out of date at any time: another process may have deleted a node, or the
//! whole directory. So a wait may last until this client notices that, but no grant follows from
//! this information alone: a hand-over checks both nodes on the servers.

use std::collections::BTreeMap;
use std::sync::Arc;

/// The nodes of one session in one directory.
#[derive(Debug)]
pub(super) struct LocalNodes<W> {
    all: BTreeMap<Arc<str>, LocalNode<W>>,
    last: Option<Last>,
}

#[derive(Debug)]
struct LocalNode<W> {
    behind: Option<Behind>,
    followers: Vec<Follower<W>>,
    /// How many contenders were before it when it was created or listed last, as far as is known.
    ahead: usize,
}

/// The node that another waits for.
#[derive(Debug)]
enum Behind {
    /// A node of the same session, in memory.
    Own(Neighbour),
    /// A node of another session, which is watched on the servers.
    Other(String),
}

/// A node of the same session before another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Neighbour {
    pub(crate) name: Arc<str>,
    /// Whether no other node is between the two, or ever can be.
    pub(crate) is_adjacent: bool,
}

/// A node that waits for another one.
#[derive(Debug)]
struct Follower<W> {
    name: Arc<str>,
    is_adjacent: bool,
    wake: W,
}

/// The node of the session that was created last.
#[derive(Debug)]
struct Last {
    sequence: i32,
    /// The node of that number; once it is gone, the one before it.
    node: Neighbour,
}

/// How a node was deleted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Gone<'a> {
    /// A request of this client deleted the node, and was answered.
    Deleted,
    /// One transaction deleted the node while this other node existed.
    HandedOver { to: &'a str },
    /// Another process deleted the node, or who did is unknown; or the deletion is refused, and the
    /// end of the node will not be noticed.
    Unclear,
}

/// A notice to an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Notice {
    /// The attempt may be the next to create a node: it must ask again.
    Turn,
    /// The lock is handed over: one transaction has deleted the holder's node while the attempt's
    /// node existed.
    HandedOver,
    /// The node that it waited for is gone, and has waited for this node of another session.
    Watch { predecessor: String },
    /// The attempt must list the directory.
    Look,
}

/// Notices to be sent when nothing is locked.
#[derive(Debug)]
pub(crate) struct Outbox<W, L> {
    pub(crate) notices: Vec<(W, Notice)>,
    /// The receivers that get no list: their session has ended, or the task that sends the lists.
    pub(crate) no_list: Vec<L>,
}

impl<W, L> Outbox<W, L> {
    /// Adds a notice for a waker, if there is one.
    pub(super) fn add(&mut self, wake: Option<W>, notice: Notice) {
        self.notices.extend(wake.map(|wake| (wake, notice)));
    }
}

impl<W, L> Default for Outbox<W, L> {
    fn default() -> Self {
        Self {
            notices: Vec::new(),
            no_list: Vec::new(),
        }
    }
}

impl<W> Default for LocalNodes<W> {
    fn default() -> Self {
        Self {
            all: BTreeMap::new(),
            last: None,
        }
    }
}

impl<W> LocalNodes<W> {
    pub(super) fn has_last(&self) -> bool {
        self.last.is_some()
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty() && self.last.is_none()
    }

    /// Adds a created node. Returns the nearest node of this session before it, if the number shows
    /// which that is: the servers count the creates of a directory, so no create of another session
    /// is between consecutive numbers.
    pub(super) fn created(&mut self, name: &str, sequence: i32) -> Option<Neighbour> {
        let name = self.find_or_add(name);
        let node = Neighbour {
            name: Arc::clone(&name),
            is_adjacent: true,
        };
        // The newest node is the only one that the next create can follow without a gap.
        let before = self.last.replace(Last { sequence, node });
        // A gap in the numbers may be a node of another session, or of a create of this session
        // that was not answered. A smaller number is that of a new directory at the path.
        let before = before
            .filter(|last| last.sequence.checked_add(1) == Some(sequence))
            .map(|last| last.node)?;
        let ahead = self.all.get(&before.name)?.ahead.saturating_add(1);
        self.set_ahead(&name, ahead);
        Some(before)
    }

    /// Adds a node, of which only the name is known, and returns its shared name.
    pub(super) fn find_or_add(&mut self, name: &str) -> Arc<str> {
        if let Some((name, _)) = self.all.get_key_value(name) {
            return Arc::clone(name);
        }
        let name: Arc<str> = name.into();
        self.all.insert(
            Arc::clone(&name),
            LocalNode {
                behind: None,
                followers: Vec::new(),
                ahead: 0,
            },
        );
        name
    }

    pub(super) fn knows(&self, name: &str) -> bool {
        self.all.contains_key(name)
    }

    pub(super) fn set_ahead(&mut self, name: &str, ahead: usize) {
        if let Some(node) = self.all.get_mut(name) {
            node.ahead = ahead;
        }
    }

    pub(super) fn ahead(&self, name: &str) -> usize {
        self.all.get(name).map_or(0, |node| node.ahead)
    }

    pub(super) fn is_live(&self, name: &str, leaving: &dyn Fn(&str) -> bool) -> bool {
        let mut name = name;
        // A node that is being deleted stands for the node that its attempt waited for. The search
        // ends, because a node waits only for earlier ones.
        while leaving(name) {
            match self.all.get(name).and_then(|node| node.behind.as_ref()) {
                Some(Behind::Own(before)) => name = &before.name,
                // The watch has not fired, so the node of the other session counts as live.
                Some(Behind::Other(_)) => return true,
                // The leaving node held the lock, or its attempt did not wait yet. In both cases no
                // live contender is known.
                None => return false,
            }
        }
        true
    }

    pub(super) fn wait(&mut self, own: &str, before: &Neighbour, wake: W) -> bool {
        let Some((own, _)) = self.all.get_key_value(own) else {
            return false;
        };
        let own = Arc::clone(own);
        self.put_behind(
            before.clone(),
            Follower {
                name: own,
                is_adjacent: before.is_adjacent,
                wake,
            },
        )
        .is_ok()
    }

    pub(super) fn watch(&mut self, own: &str, predecessor: &str) {
        if let Some(node) = self.all.get_mut(own) {
            node.behind = Some(Behind::Other(predecessor.to_owned()));
        }
    }

    /// Ends the wait of a node. Returns its waker.
    pub(super) fn stop_waiting(&mut self, own: &str) -> Option<W> {
        match self.all.get_mut(own)?.behind.take()? {
            Behind::Own(before) => self.forget_follower(&before.name, own),
            Behind::Other(_) => None,
        }
    }

    pub(super) fn heir(&self, own: &str) -> Option<Arc<str>> {
        let followers = &self.all.get(own)?.followers;
        // Other followers have a node of another session before them, which is granted the lock
        // first.
        followers
            .iter()
            .find(|follower| follower.is_adjacent)
            .map(|follower| Arc::clone(&follower.name))
    }

    pub(super) fn gone(&mut self, name: &str, how: Gone<'_>, notices: &mut Vec<(W, Notice)>) {
        let Some(LocalNode {
            behind, followers, ..
        }) = self.all.remove(name)
        else {
            return;
        };
        if let Some(Behind::Own(before)) = &behind {
            // The attempt of this node waits in memory, or has given up, and then receives nothing.
            // If it waits, its list will show that the node is gone.
            notices.extend(
                self.forget_follower(&before.name, name)
                    .map(|wake| (wake, Notice::Look)),
            );
        }
        // The wait of a node passes to its followers only if this client has deleted the node.
        // Another process may have deleted the node before it, too, or the directory. The node of a
        // hand-over held the lock, and waited for nothing.
        let inherited = if how == Gone::Deleted { behind } else { None };
        self.move_last(name, inherited.as_ref());
        for follower in followers {
            // The end of a follower removes it from the followers, so its node is always found.
            let Some(node) = self.all.get_mut(&follower.name) else {
                notices.push((follower.wake, Notice::Look));
                continue;
            };
            // A follower that gets a notice waits for nothing until its attempt has acted.
            node.behind = None;
            match (how, &inherited) {
                // The transaction has checked this node, and no other can be first.
                (Gone::HandedOver { to }, _) if *to == *follower.name => {
                    notices.push((follower.wake, Notice::HandedOver));
                }
                (_, Some(Behind::Own(before))) => {
                    // The attempt of the follower is not woken, because it cannot be first before
                    // this other node is gone. Two nodes that are adjacent to a node between
                    // them are adjacent to each other once it is gone.
                    let before = Neighbour {
                        name: Arc::clone(&before.name),
                        is_adjacent: before.is_adjacent && follower.is_adjacent,
                    };
                    if let Err(wake) = self.put_behind(before, follower) {
                        notices.push((wake, Notice::Look));
                    }
                }
                (_, Some(Behind::Other(predecessor))) => {
                    // The watch of the deleted node's attempt ends with that attempt, so the
                    // follower sets another. The wait is recorded before that: if this node is
                    // deleted first, its own followers inherit the wait.
                    node.behind = Some(Behind::Other(predecessor.clone()));
                    notices.push((
                        follower.wake,
                        Notice::Watch {
                            predecessor: predecessor.clone(),
                        },
                    ));
                }
                // Nodes of other sessions may be before the follower, and another process may have
                // deleted the node of the follower too, so only a list decides.
                (_, None) => notices.push((follower.wake, Notice::Look)),
            }
        }
    }

    /// Returns the wakers of all waiting nodes.
    pub(super) fn into_waiting(self) -> impl Iterator<Item = W> {
        self.all
            .into_values()
            .flat_map(|node| node.followers)
            .map(|follower| follower.wake)
    }

    /// Records that a node waits for another one. Returns the waker if that one is not known: its
    /// end would never be noticed.
    fn put_behind(&mut self, before: Neighbour, follower: Follower<W>) -> Result<(), W> {
        let Some(node) = self.all.get_mut(&before.name) else {
            return Err(follower.wake);
        };
        let name = Arc::clone(&follower.name);
        node.followers.push(Follower {
            is_adjacent: before.is_adjacent,
            ..follower
        });
        if let Some(node) = self.all.get_mut(&name) {
            node.behind = Some(Behind::Own(before));
        }
        Ok(())
    }

    fn forget_follower(&mut self, name: &str, follower: &str) -> Option<W> {
        let followers = &mut self.all.get_mut(name)?.followers;
        let place = followers
            .iter()
            .position(|other| *other.name == *follower)?;
        Some(followers.remove(place).wake)
    }

    /// If the last node is gone, makes the one before it the last.
    fn move_last(&mut self, name: &str, behind: Option<&Behind>) {
        let Some(last) = self.last.as_mut().filter(|last| *last.node.name == *name) else {
            return;
        };
        match behind {
            // The number of the last create stays: a node with the next number follows the
            // remaining node, if nothing is between that and the deleted one.
            Some(Behind::Own(before)) => {
                last.node = Neighbour {
                    name: Arc::clone(&before.name),
                    is_adjacent: last.node.is_adjacent && before.is_adjacent,
                };
            }
            // The node before the next one is not known, so the next attempt lists.
            _ => self.last = None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Notices = Vec<(&'static str, Notice)>;

    /// Returns nodes `n0`, `n1` and so on: the first holds the lock, each other waits for the one
    /// before it.
    fn nodes(count: i32) -> LocalNodes<&'static str> {
        let mut nodes = LocalNodes::default();
        for n in 0..count {
            let (own, wake) = NAMES[usize::try_from(n).unwrap()];
            match nodes.created(own, n) {
                Some(before) => assert!(nodes.wait(own, &before, wake)),
                None => assert_eq!(n, 0),
            }
        }
        nodes
    }

    const NAMES: [(&str, &str); 5] = [
        ("n0", "wake n0"),
        ("n1", "wake n1"),
        ("n2", "wake n2"),
        ("n3", "wake n3"),
        ("n4", "wake n4"),
    ];

    fn neighbour(name: &str, is_adjacent: bool) -> Neighbour {
        Neighbour {
            name: name.into(),
            is_adjacent,
        }
    }

    fn gone(nodes: &mut LocalNodes<&'static str>, name: &str, how: Gone<'_>) -> Notices {
        let mut notices = Vec::new();
        nodes.gone(name, how, &mut notices);
        notices
    }

    // Shows: waiting-in-memory
    #[test]
    fn consecutive_numbers_have_nothing_between() {
        let mut nodes: LocalNodes<()> = LocalNodes::default();
        assert!(!nodes.has_last());
        assert_eq!(nodes.created("a", 7), None);
        assert!(nodes.has_last());
        assert_eq!(nodes.created("b", 8), Some(neighbour("a", true)));
        assert_eq!(
            nodes.created("c", 10),
            None,
            "another session's node is between"
        );
        assert_eq!(nodes.created("d", 2), None, "the directory is another");
        assert_eq!(nodes.created("e", 3), Some(neighbour("d", true)));
        // Known from a list only.
        nodes.find_or_add("f");
        assert_eq!(nodes.created("g", 4), Some(neighbour("e", true)));
    }

    #[test]
    fn newcomer_follows_last_remaining_node() {
        let mut nodes = nodes(3);
        assert_eq!(
            gone(&mut nodes, "n2", Gone::Deleted),
            [("wake n2", Notice::Look)],
            "itself alone"
        );
        assert_eq!(nodes.created("n3", 3), Some(neighbour("n1", true)));
        assert_eq!(gone(&mut nodes, "n3", Gone::Unclear), []);
        assert_eq!(
            nodes.created("n4", 4),
            None,
            "others may have been deleted with it"
        );
    }

    #[test]
    fn newcomer_does_not_close_a_gap() {
        let mut nodes: LocalNodes<&str> = LocalNodes::default();
        assert_eq!(
            (nodes.created("a", 1), nodes.created("c", 3)),
            (None, None),
            "a stranger is between"
        );
        assert!(nodes.wait("c", &neighbour("a", false), "wake c"));
        assert_eq!(
            gone(&mut nodes, "c", Gone::Deleted),
            [("wake c", Notice::Look)]
        );
        assert_eq!(nodes.created("d", 4), Some(neighbour("a", false)));
    }

    #[test]
    fn waiters_ahead_count_from_last_look() {
        let mut nodes = nodes(2);
        nodes.set_ahead("n1", 12);
        assert_eq!(nodes.created("n2", 2), Some(neighbour("n1", true)));
        assert_eq!(
            (nodes.ahead("n1"), nodes.ahead("n2"), nodes.ahead("n3")),
            (12, 13, 0)
        );
    }

    #[test]
    fn predecessors_of_departing_node_are_ahead() {
        let mut nodes = nodes(3);
        assert!(nodes.is_live("n2", &|_| false));
        assert!(nodes.is_live("n2", &|name| name != "n0"));
        assert!(
            !nodes.is_live("n2", &|_| true),
            "there may be no other contender"
        );
        nodes.watch("n0", "theirs");
        assert!(nodes.is_live("n2", &|_| true));
    }

    #[test]
    fn followers_move_up_without_notification() {
        let mut nodes = nodes(5);
        for (name, wake) in [("n2", "wake n2"), ("n1", "wake n1"), ("n3", "wake n3")] {
            assert_eq!(
                gone(&mut nodes, name, Gone::Deleted),
                [(wake, Notice::Look)],
                "itself alone"
            );
        }
        assert_eq!(nodes.heir("n0").as_deref(), Some("n4"));
        assert_eq!(
            gone(&mut nodes, "n0", Gone::HandedOver { to: "n4" }),
            [("wake n4", Notice::HandedOver)]
        );
        assert_eq!(gone(&mut nodes, "n4", Gone::Deleted), []);
        assert!(nodes.is_empty());
    }

    #[test]
    fn separated_waiters_stay_apart() {
        for (first, second) in [(true, false), (false, true), (false, false)] {
            let mut nodes: LocalNodes<&str> = LocalNodes::default();
            for name in ["a", "b", "c"] {
                nodes.find_or_add(name);
            }
            assert!(nodes.wait("b", &neighbour("a", first), "wake b"));
            assert!(nodes.wait("c", &neighbour("b", second), "wake c"));
            assert_eq!(
                gone(&mut nodes, "b", Gone::Deleted),
                [("wake b", Notice::Look)]
            );
            assert_eq!(nodes.heir("a"), None);
            assert_eq!(
                gone(&mut nodes, "a", Gone::Deleted),
                [("wake c", Notice::Look)]
            );
        }
    }

    #[test]
    fn foreign_watch_is_inherited() {
        let mut nodes = nodes(4);
        nodes.watch("n0", "theirs");
        let watch = Notice::Watch {
            predecessor: "theirs".to_owned(),
        };
        assert_eq!(
            gone(&mut nodes, "n0", Gone::Deleted),
            [("wake n1", watch.clone())]
        );
        // The attempt of this node has given up too, without having read the notice.
        assert_eq!(gone(&mut nodes, "n1", Gone::Deleted), [("wake n2", watch)]);
        nodes.stop_waiting("n2");
        let look = [("wake n3", Notice::Look)];
        assert_eq!(
            gone(&mut nodes, "n2", Gone::Deleted),
            look,
            "it was about to look"
        );
    }

    #[test]
    fn foreign_deletion_makes_all_look() {
        let mut nodes = nodes(3);
        let look = [("wake n1", Notice::Look), ("wake n2", Notice::Look)];
        assert_eq!(gone(&mut nodes, "n1", Gone::Unclear), look);
        assert_eq!(
            nodes.heir("n0"),
            None,
            "the one that is gone does not wait any more"
        );
        assert!(
            !nodes.wait("n2", &neighbour("n1", true), "wake n2"),
            "nor can it be waited for"
        );
        assert_eq!(gone(&mut nodes, "n1", Gone::Deleted), []);
    }

    // Shows: hand-over
    #[test]
    fn only_present_waiter_is_handed_lock() {
        let mut nodes = nodes(2);
        nodes.find_or_add("later");
        assert!(nodes.wait("later", &neighbour("n0", false), "wake later"));
        let notices = gone(&mut nodes, "n0", Gone::HandedOver { to: "n1" });
        assert_eq!(
            notices,
            [
                ("wake n1", Notice::HandedOver),
                ("wake later", Notice::Look)
            ]
        );
        // The lock is released by a plain deletion: it was lost, or the outcome of a write is
        // unknown.
        assert!(nodes.wait("later", &neighbour("n1", true), "wake later"));
        assert_eq!(
            gone(&mut nodes, "n1", Gone::Deleted),
            [("wake later", Notice::Look)]
        );
    }
}
