//! The contenders of one session that wait for each other in memory: who waits for whom, and what becomes of those that
//! wait when a node goes. Pure.
//!
//! Thousands of waiters of one lock in one process cost the servers no watches and no lists that way. What is known here
//! about a node may be out of date at any time (deleted by hand, its directory removed and made again), so nothing here is a
//! grant but the word that one transaction has deleted the holder's node while its successor's existed. Whatever is in
//! doubt ends with a look at the queue.
//!
//! # Invariants
//! 1. `next` says of two nodes that no other stands between them. It never becomes untrue: names are used once, and later
//!    nodes have greater numbers. So if the one between two neighbours goes, those two are neighbours.
//! 2. A contender that waits for a node is told when that node is gone, or is put behind the one that it was behind.

use std::collections::HashMap;
use std::sync::Arc;

/// The nodes of one session, by their names, which are unique in all directories. `W` is how a waiter is told.
#[derive(Debug)]
pub(crate) struct Line<W> {
    nodes: HashMap<Arc<str>, Node<W>>,
    /// The last node of this session in each directory.
    ends: HashMap<Arc<str>, End>,
}

#[derive(Debug)]
struct Node<W> {
    directory: Arc<str>,
    behind: Option<Behind>,
    followers: Vec<Follower<W>>,
    /// How many were before it, as far as was known, when it came or looked last.
    ahead: usize,
}

/// Whom a contender waits for.
#[derive(Debug)]
enum Behind {
    /// A node of the same session, in memory.
    Own(Neighbour),
    /// A node of another session, which it watches at the servers.
    Other(String),
}

/// A node of the same session before another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Neighbour {
    pub(crate) name: Arc<str>,
    /// No other node stands between the two, or can come to.
    pub(crate) next: bool,
}

#[derive(Debug)]
struct Follower<W> {
    name: Arc<str>,
    next: bool,
    tell: W,
}

#[derive(Debug)]
struct End {
    /// The number of the node of this session that was created last.
    sequence: i32,
    /// That node, or the one that it was behind, if it has gone.
    last: Neighbour,
}

/// What a contender that waits for a node of its session is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ReleaseNotice {
    /// The node held the lock, and one transaction has deleted it and found the contender's own node there.
    HandedOver,
    /// The node has gone, and was behind this node of another session.
    Watch { predecessor: String },
    /// The contender has to look for itself.
    Look,
}

/// How a node went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gone<'a> {
    /// By our own request, which was answered.
    Deleted,
    /// By one transaction that found this other node there.
    HandedOver { to: &'a str },
    /// By another hand, or that is not known; or it stays, and its end will not be heard of here.
    Unclear,
}

impl<W> Default for Line<W> {
    fn default() -> Self {
        Self { nodes: HashMap::new(), ends: HashMap::new() }
    }
}

impl<W> Line<W> {
    /// Whether a node of the session is in the directory, as far as is known: then the next one may need no list.
    pub(crate) fn is_in(&self, directory: &str) -> bool {
        self.ends.contains_key(directory)
    }

    /// A node exists, by the answer to its create. Answers with the nearest node of the session before it, if that is
    /// certain without a list: the servers number the creates of a directory one by one, so no node is between two
    /// numbers in a row.
    pub(crate) fn created(&mut self, directory: &str, name: &str, sequence: i32) -> Option<Neighbour> {
        let name = self.know(directory, name);
        let last = Neighbour { name: Arc::clone(&name), next: true };
        let (directory, before) = match self.ends.remove_entry(directory) {
            Some((directory, end)) => (directory, Some(end)),
            None => (directory.into(), None),
        };
        self.ends.insert(directory, End { sequence, last });
        let before =
            before.filter(|end| end.sequence.checked_add(1) == Some(sequence)).map(|end| end.last)?;
        let ahead = self.nodes.get(&before.name)?.ahead.saturating_add(1);
        self.looked(&name, ahead);
        Some(before)
    }

    /// This many were before a node.
    pub(crate) fn looked(&mut self, name: &str, ahead: usize) {
        if let Some(node) = self.nodes.get_mut(name) {
            node.ahead = ahead;
        }
    }

    /// How many were before a node, as far as was known, when it came or looked last.
    pub(crate) fn ahead(&self, name: &str) -> usize {
        self.nodes.get(name).map_or(0, |node| node.ahead)
    }

    /// Whether a live contender is known to be in the way of one behind the node `name`: that one itself, or one that it
    /// waits for. `leaving` says of a node of the session that it is being deleted.
    pub(crate) fn is_live(&self, name: &str, leaving: &dyn Fn(&str) -> bool) -> bool {
        let mut name = name;
        while leaving(name) {
            match self.nodes.get(name).and_then(|node| node.behind.as_ref()) {
                Some(Behind::Own(before)) => name = &before.name,
                Some(Behind::Other(_)) => return true,
                None => return false,
            }
        }
        true
    }

    /// A node of the session exists.
    pub(crate) fn know(&mut self, directory: &str, name: &str) -> Arc<str> {
        if let Some((name, _)) = self.nodes.get_key_value(name) {
            return Arc::clone(name);
        }
        let known = self.ends.get_key_value(directory).map(|(directory, _)| Arc::clone(directory));
        let directory = known.unwrap_or_else(|| directory.into());
        let name: Arc<str> = name.into();
        self.nodes
            .insert(Arc::clone(&name), Node { directory, behind: None, followers: Vec::new(), ahead: 0 });
        name
    }

    /// Whether this is a node of the session that can be waited for here.
    pub(crate) fn knows(&self, name: &str) -> bool {
        self.nodes.contains_key(name)
    }

    /// The contender `own` waits for a node of its session; false if that is not known any more.
    pub(crate) fn wait(&mut self, own: &str, before: &Neighbour, tell: W) -> bool {
        self.settled(own);
        let Some((own, _)) = self.nodes.get_key_value(own) else { return false };
        let own = Arc::clone(own);
        self.put_behind(before.clone(), Follower { name: own, next: before.next, tell }).is_ok()
    }

    /// The contender `own` watches a node of another session.
    pub(crate) fn watch(&mut self, own: &str, predecessor: &str) {
        self.settled(own);
        if let Some(node) = self.nodes.get_mut(own) {
            node.behind = Some(Behind::Other(predecessor.to_owned()));
        }
    }

    /// The contender `own` waits for no node: it looks, or has the lock.
    pub(crate) fn settled(&mut self, own: &str) {
        let Some(node) = self.nodes.get_mut(own) else { return };
        if let Some(Behind::Own(before)) = node.behind.take() {
            self.forget_follower(&before.name, own);
        }
    }

    /// Whom a lock that is held by the node `own` can be handed over to.
    pub(crate) fn heir(&self, own: &str) -> Option<Arc<str>> {
        let followers = &self.nodes.get(own)?.followers;
        followers.iter().find(|follower| follower.next).map(|follower| Arc::clone(&follower.name))
    }

    /// A node is gone. Answers with those that have to be told.
    pub(crate) fn gone(&mut self, name: &str, how: Gone<'_>) -> Vec<(W, ReleaseNotice)> {
        let Some(Node { directory, behind, followers, .. }) = self.nodes.remove(name) else {
            return Vec::new();
        };
        if let Some(Behind::Own(before)) = &behind {
            self.forget_follower(&before.name, name);
        }
        let inherited = if how == Gone::Deleted { behind } else { None };
        self.move_end(&directory, name, inherited.as_ref());
        let mut told = Vec::new();
        for follower in followers {
            let Some(node) = self.nodes.get_mut(&follower.name) else { continue };
            node.behind = None;
            match (how, &inherited) {
                (Gone::HandedOver { to }, _) if *to == *follower.name => {
                    told.push((follower.tell, ReleaseNotice::HandedOver));
                }
                (_, Some(Behind::Own(before))) => {
                    let before =
                        Neighbour { name: Arc::clone(&before.name), next: before.next && follower.next };
                    if let Err(tell) = self.put_behind(before, follower) {
                        told.push((tell, ReleaseNotice::Look));
                    }
                }
                (_, Some(Behind::Other(predecessor))) => {
                    // Should it have gone as well, its own followers find that here.
                    node.behind = Some(Behind::Other(predecessor.clone()));
                    told.push((follower.tell, ReleaseNotice::Watch { predecessor: predecessor.clone() }));
                }
                (_, None) => told.push((follower.tell, ReleaseNotice::Look)),
            }
        }
        told
    }

    fn put_behind(&mut self, before: Neighbour, follower: Follower<W>) -> Result<(), W> {
        let Some(node) = self.nodes.get_mut(&before.name) else { return Err(follower.tell) };
        let name = Arc::clone(&follower.name);
        node.followers.push(Follower { next: before.next, ..follower });
        if let Some(node) = self.nodes.get_mut(&name) {
            node.behind = Some(Behind::Own(before));
        }
        Ok(())
    }

    fn forget_follower(&mut self, name: &str, follower: &str) {
        if let Some(node) = self.nodes.get_mut(name) {
            node.followers.retain(|other| *other.name != *follower);
        }
    }

    /// Where the last node of a directory goes, the one before it is the last.
    fn move_end(&mut self, directory: &str, name: &str, behind: Option<&Behind>) {
        let Some(end) = self.ends.get_mut(directory).filter(|end| *end.last.name == *name) else { return };
        match behind {
            Some(Behind::Own(before)) if self.nodes.contains_key(&before.name) => {
                end.last = Neighbour { name: Arc::clone(&before.name), next: end.last.next && before.next };
            }
            _ => drop(self.ends.remove(directory)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const D: &str = "/locks/d";

    /// A line of nodes `n0`, `n1`, .., each of which waits for the one before it, and of which the first holds.
    fn line(count: i32) -> Line<&'static str> {
        let mut line = Line::default();
        for n in 0..count {
            let (own, tell) = NAMES[usize::try_from(n).unwrap()];
            match line.created(D, own, n) {
                Some(before) => assert!(line.wait(own, &before, tell)),
                None => assert_eq!(n, 0),
            }
        }
        line
    }

    const NAMES: [(&str, &str); 5] =
        [("n0", "tell n0"), ("n1", "tell n1"), ("n2", "tell n2"), ("n3", "tell n3"), ("n4", "tell n4")];

    fn neighbour(name: &str, next: bool) -> Neighbour {
        Neighbour { name: name.into(), next }
    }

    #[test]
    fn numbers_in_a_row_say_that_none_is_between() {
        let mut line: Line<()> = Line::default();
        assert!(!line.is_in(D));
        assert_eq!(line.created(D, "a", 7), None);
        assert!(line.is_in(D) && !line.is_in("/locks/e"));
        assert_eq!(line.created(D, "b", 8), Some(neighbour("a", true)));
        assert_eq!(line.created("/locks/e", "x", 9), None, "another directory");
        assert_eq!(line.created(D, "c", 10), None, "another session's node is between");
        assert_eq!(line.created(D, "d", 2), None, "the directory is another");
        assert_eq!(line.created(D, "e", 3), Some(neighbour("d", true)));
        // Known from a list only.
        line.know(D, "f");
        assert_eq!(line.created(D, "g", 4), Some(neighbour("e", true)));
    }

    #[test]
    fn one_that_comes_after_the_last_has_gone_is_behind_the_one_before() {
        let mut line = line(3);
        assert_eq!(line.gone("n2", Gone::Deleted), []);
        assert_eq!(line.created(D, "n3", 3), Some(neighbour("n1", true)));
        assert_eq!(line.gone("n3", Gone::Unclear), []);
        assert_eq!(line.created(D, "n4", 4), None, "others may have been deleted with it");
    }

    #[test]
    fn how_many_are_ahead_is_counted_from_the_last_look() {
        let mut line = line(2);
        line.looked("n1", 12);
        assert_eq!(line.created(D, "n2", 2), Some(neighbour("n1", true)));
        assert_eq!((line.ahead("n1"), line.ahead("n2"), line.ahead("n3")), (12, 13, 0));
    }

    #[test]
    fn behind_one_that_leaves_those_before_it_are_in_the_way() {
        let mut line = line(3);
        assert!(line.is_live("n2", &|_| false));
        assert!(line.is_live("n2", &|name| name != "n0"));
        assert!(!line.is_live("n2", &|_| true), "perhaps no other process is there");
        line.watch("n0", "theirs");
        assert!(line.is_live("n2", &|_| true));
    }

    #[test]
    fn those_behind_one_that_gives_up_are_put_behind_the_one_before_it_and_not_told() {
        let mut line = line(5);
        for name in ["n2", "n1", "n3"] {
            assert_eq!(line.gone(name, Gone::Deleted), []);
        }
        assert_eq!(line.heir("n0").as_deref(), Some("n4"));
        assert_eq!(line.gone("n0", Gone::HandedOver { to: "n4" }), [("tell n4", ReleaseNotice::HandedOver)]);
        assert_eq!(line.gone("n4", Gone::Deleted), []);
        assert!(!line.is_in(D) && !line.knows("n4"));
    }

    #[test]
    fn two_that_are_not_neighbours_stay_apart_when_the_one_between_goes() {
        for (first, second) in [(true, false), (false, true), (false, false)] {
            let mut line: Line<&str> = Line::default();
            for name in ["a", "b", "c"] {
                line.know(D, name);
            }
            assert!(line.wait("b", &neighbour("a", first), "tell b"));
            assert!(line.wait("c", &neighbour("b", second), "tell c"));
            assert_eq!(line.gone("b", Gone::Deleted), []);
            assert_eq!(line.heir("a"), None);
            assert_eq!(line.gone("a", Gone::Deleted), [("tell c", ReleaseNotice::Look)]);
        }
    }

    #[test]
    fn the_watch_on_another_sessions_node_is_inherited() {
        let mut line = line(4);
        line.watch("n0", "theirs");
        let word = ReleaseNotice::Watch { predecessor: "theirs".to_owned() };
        assert_eq!(line.gone("n0", Gone::Deleted), [("tell n1", word.clone())]);
        // It has given up as well, and has not heard it.
        assert_eq!(line.gone("n1", Gone::Deleted), [("tell n2", word)]);
        line.settled("n2");
        assert_eq!(
            line.gone("n2", Gone::Deleted),
            [("tell n3", ReleaseNotice::Look)],
            "it was about to look"
        );
    }

    #[test]
    fn after_another_hand_everybody_looks() {
        let mut line = line(3);
        assert_eq!(line.gone("n1", Gone::Unclear), [("tell n2", ReleaseNotice::Look)]);
        assert_eq!(line.heir("n0"), None, "the one that is gone does not wait any more");
        assert!(!line.wait("n2", &neighbour("n1", true), "tell n2"), "nor can it be waited for");
        assert_eq!(line.gone("n1", Gone::Deleted), []);
    }

    #[test]
    fn only_the_one_that_was_there_is_handed_the_lock() {
        let mut line = line(2);
        line.know(D, "later");
        assert!(line.wait("later", &neighbour("n0", false), "tell later"));
        let told = line.gone("n0", Gone::HandedOver { to: "n1" });
        assert_eq!(told, [("tell n1", ReleaseNotice::HandedOver), ("tell later", ReleaseNotice::Look)]);
        // The lock is given back by a plain deletion: it was lost, or something was written of which nothing is known.
        assert!(line.wait("later", &neighbour("n1", true), "tell later"));
        assert_eq!(line.gone("n1", Gone::Deleted), [("tell later", ReleaseNotice::Look)]);
    }
}
