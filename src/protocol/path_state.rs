//! The state of one client's callers at one path: which callers wait, and which nodes and holds
//! have the lock. [`PathState`] decides who gets a node next, and when it is deleted. Pure.
//!
//! ```text
//!             granted          released, with another waiting; joined, if it is shared
//!   no node -----------> open ---------------------------------------------> open, held by the next,
//!      ^                  |                                                   or by several
//!      |                  | lost; beyond the bounds; a writer waits (readers); a conversion begins
//!      |                  v
//!      '------------- closed: it goes with the last hold
//!        last hold has left
//! ```
//! Each hold is recorded at its node, from the grant to its end, whether the holder is a caller who
//! waited with others, a try, a fair lock or a permit. No other structure records the holders of a
//! path. The nodes of callers who wait together are *open*: when a writer releases such a node, the
//! first waiting caller gets it, and readers share it, both within the [bounds](HandOff)
//! (docs/protocol.md#hand-off, docs/protocol.md#shared-read-node). All other nodes are closed, but
//! the node of a try is [opened](PathState::open) if no caller waits.
//!
//! Callers wait [separately by kind](crate::protocol::waiters). One rule concerns both readers and
//! writers: a waiting writer closes the node of the readers, and later readers wait for another
//! node, which is behind the writer's. A writer of another client is behind the closed node too, so
//! it does not wait for readers beyond the bounds.
//!
//! A hold leaves its node once, by the first of these:
//! - [`released`](PathState::released): the hold needs its node deleted. The answer says whether
//!   another caller gets the node instead, and whether other holds stay.
//! - [`node_missing`](PathState::node_missing): the servers say that the node does not exist. All
//!   holds leave it.
//! - [`hold_ended`](PathState::hold_ended): the hold has ended in another way.
//!
//! A node whose last hold has left stays open until the deletion is on its way
//! ([`hold_ended`](PathState::hold_ended), [`hold_lost`](PathState::hold_lost)): until then no
//! attempt begins, because its create would be sent ahead of the deletion, and wait for the node.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::protocol::moment::Moment;
use crate::protocol::node_name::Kind;
use crate::protocol::numbers::{HoldNumber, NodeNumber};
use crate::protocol::waiters::{Arrival, Waiters};

/// How many callers may have one node, in a row or together, and for how long after its grant,
/// before the next caller queues behind all others with a new node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HandOff {
    pub(crate) max: u32,
    pub(crate) time: Duration,
}

#[cfg(test)]
impl HandOff {
    /// Each caller has a separate node.
    pub(crate) const NONE: Self = Self {
        max: 1,
        time: Duration::MAX,
    };
}

impl Default for HandOff {
    /// With these bounds, another process waits a few milliseconds longer than it would for one
    /// holder. The bounds are reached together at 5 microseconds for each holder, hand-off
    /// included. So the number limits very short holds, and the time limits all others.
    fn default() -> Self {
        Self {
            max: 1_000,
            time: Duration::from_millis(5),
        }
    }
}

/// A value for each kind of lock.
#[derive(Default)]
pub(crate) struct ByKind<T> {
    exclusive: T,
    shared: T,
}

impl<T> ByKind<T> {
    pub(crate) fn of(&self, kind: Kind) -> &T {
        match kind {
            Kind::Exclusive => &self.exclusive,
            Kind::Shared => &self.shared,
        }
    }

    pub(crate) fn of_mut(&mut self, kind: Kind) -> &mut T {
        match kind {
            Kind::Exclusive => &mut self.exclusive,
            Kind::Shared => &mut self.shared,
        }
    }
}

/// The next owner of a released node.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum PassOn<W> {
    /// The caller that has waited longest.
    To(Arrival, W),
    /// The other holds of the node.
    Stays,
    /// No caller: the node must be deleted.
    Delete,
}

/// A node by which this client has the lock, or had it.
struct ClientNode<H> {
    /// The kind of its grant.
    kind: Kind,
    /// The holds of the node, by their numbers.
    holds: BTreeMap<HoldNumber, H>,
    /// When the node was granted.
    since: Moment,
    /// How many callers have had the node since its grant. Readers that waited for it together
    /// count as one caller.
    holders: u32,
    /// Whether a hold has reserved the node for a conversion, which may replace the node on the
    /// servers.
    is_reserved: bool,
}

impl<H> ClientNode<H> {
    /// Counts another holder, if it may have the node within the bounds
    /// (docs/protocol.md#hand-off). Callers check all other conditions first, because a holder that
    /// is counted here uses up a part of the bounds.
    fn count_holder(&mut self, bounds: HandOff, now: Moment) -> bool {
        // The bounds count from the grant, not from the last hand-off. Otherwise a busy client
        // could keep other processes waiting without a limit.
        let may = self.holders < bounds.max && now.since(self.since) < bounds.time;
        self.holders += u32::from(may);
        may
    }
}

/// The callers of one client at one path, and their nodes. `W` is a waiting caller, `D` its
/// deadline, `H` a hold.
pub(crate) struct PathState<W, D, H> {
    hand_off: HandOff,
    /// The waiting callers of each kind.
    pub(crate) waiters: ByKind<Waiters<W, D>>,
    /// The nodes by which the lock is held, those that are kept for lost holds, and those whose
    /// deletion is about to be sent.
    nodes: BTreeMap<NodeNumber, ClientNode<H>>,
}

impl<W, D: Copy + Ord, H: Clone> PathState<W, D, H> {
    pub(crate) fn new(hand_off: HandOff) -> Self {
        Self {
            hand_off,
            waiters: ByKind::default(),
            nodes: BTreeMap::new(),
        }
    }

    /// Adds a caller that waits. Readers that come after a writer wait behind it.
    pub(crate) fn wait(&mut self, kind: Kind, at: Arrival, waiter: W, deadline: Option<D>) {
        // A writer closes the node of the readers. Otherwise readers that arrive later could still
        // join the node, up to the bounds, and the writer would wait for them, too.
        if kind == Kind::Exclusive {
            self.waiters.of_mut(Kind::Shared).close();
        }
        self.waiters.of_mut(kind).wait(at, waiter, deadline);
    }

    /// Handles the arrival of a reader. `healthy` is whether the session and the open node allow a
    /// grant now.
    /// Returns that node and one of its holds if the reader may share it; a new hold for the reader
    /// must then [enter](Self::enter) the node. Returns `None` if the reader must wait, or ask the
    /// servers; then no later reader joins.
    pub(crate) fn join(&mut self, now: Moment, healthy: bool) -> Option<(NodeNumber, H)> {
        let bounds = self.hand_off;
        // A node whose last reader has left stays open until its deletion is on its way, but has no
        // hold from which another could be made.
        let open = self.waiters.of(Kind::Shared).open_node()?;
        let node = self.nodes.get_mut(&open)?;
        let hold = node.holds.values().next().cloned()?;
        if healthy && node.count_holder(bounds, now) {
            return Some((open, hold));
        }
        // The node stays closed even if the doubt ends, because readers that wait by then have a
        // place in the queue, and later readers must not overtake them.
        self.waiters.of_mut(Kind::Shared).close();
        None
    }

    /// Adds the first hold of a node, which was granted at `since`. The node is closed.
    pub(crate) fn add(
        &mut self,
        number: HoldNumber,
        kind: Kind,
        hold: H,
        since: Moment,
    ) -> NodeNumber {
        // The number of a hold is used once, and so is that of its node. So a late event of an
        // earlier node finds no entry.
        let node = NodeNumber::of_first_hold(number);
        let holds = BTreeMap::from([(number, hold)]);
        let holders = 1;
        self.nodes.insert(
            node,
            ClientNode {
                kind,
                holds,
                since,
                holders,
                is_reserved: false,
            },
        );
        node
    }

    /// Adds another hold of a node.
    pub(crate) fn enter(&mut self, node: NodeNumber, number: HoldNumber, hold: H) {
        if let Some(node) = self.nodes.get_mut(&node) {
            node.holds.insert(number, hold);
        }
    }

    /// Opens a node that was granted to a single call, unless this client has an open node, or is
    /// about to have one. Returns whether the node is open.
    pub(crate) fn open(&mut self, node: NodeNumber) -> bool {
        // A node whose hold has ended has no entry, and stays closed.
        let kind = self.nodes.get(&node).map(|node| node.kind);
        let Some(kind) = kind.filter(|kind| self.waiters.of(*kind).may_open()) else {
            return false;
        };
        self.open_unless_waited_for(kind, node);
        self.waiters.of(kind).is_open(node)
    }

    /// Opens a node, except a node of readers while a writer waits: that writer found no open node
    /// to close when it arrived. Every node is opened by this function, whether its grant was for a
    /// single call or for the waiting callers.
    fn open_unless_waited_for(&mut self, kind: Kind, node: NodeNumber) {
        if kind == Kind::Exclusive || !self.waiters.of(Kind::Exclusive).is_waited_for() {
            self.waiters.of_mut(kind).open(node);
        }
    }

    /// Handles the grant of a node to the attempt of the waiting callers. The first hold of the
    /// node is replaced by `hold`, which belongs to a caller. Returns the callers that get the
    /// node: the first waiting writer, or all waiting readers. The first of them has `hold`, and
    /// each of the others needs another hold. The list is empty if no caller waits.
    pub(crate) fn granted(&mut self, kind: Kind, number: HoldNumber, hold: H) -> Vec<W> {
        let node = NodeNumber::of_first_hold(number);
        self.waiters.of_mut(kind).attempt_ends();
        // If the hold has ended, the node is gone, and another attempt starts for the callers that
        // wait.
        let Some(state) = self.nodes.get_mut(&node) else {
            return Vec::new();
        };
        state.holds.insert(number, hold);
        self.open_unless_waited_for(kind, node);
        // All readers that wait get the node, even if a writer arrived after some of them: they had
        // waited for this grant together (docs/protocol.md#shared-read-node).
        let waiters = self.waiters.of_mut(kind);
        match kind {
            Kind::Exclusive => waiters
                .take_first()
                .map(|(_, waiter)| waiter)
                .into_iter()
                .collect(),
            Kind::Shared => waiters.take_all(),
        }
    }

    /// Handles the deletion that a hold of this node needs, by which the hold leaves it. `healthy`
    /// is whether another caller may have the lock now, as far as the session and the hold are
    /// concerned. A caller that gets the node next must [enter](Self::enter) it. `Delete` is
    /// followed by [`hold_ended`](Self::hold_ended) or [`hold_lost`](Self::hold_lost), once the
    /// deletion is on its way.
    pub(crate) fn released(
        &mut self,
        node: NodeNumber,
        hold: HoldNumber,
        now: Moment,
        healthy: bool,
    ) -> PassOn<W> {
        // The node has been forgotten: it is gone, or its deletion is on its way. A second deletion
        // is harmless, because names of nodes are used once.
        let Some(state) = self.nodes.get_mut(&node) else {
            return PassOn::Delete;
        };
        // Two threads may end one hold, as when its lease ends while it is released. The second one
        // must not take the node from the other holds.
        let has_left = state.holds.remove(&hold).is_none();
        if has_left || !state.holds.is_empty() {
            // If the reader was asked to release the lock, or its write has an unknown outcome, no
            // further reader joins.
            if !has_left && !healthy {
                self.close_node(node);
            }
            return PassOn::Stays;
        }
        match self.next_holder(node, now, healthy) {
            // The node has no hold until the next caller enters it, under the same mutex.
            Some((at, waiter)) => PassOn::To(at, waiter),
            // The node stays open until its deletion is on its way, so that no attempt begins whose
            // create would be sent ahead of the deletion.
            None => PassOn::Delete,
        }
    }

    /// Takes the caller that gets a node next after its last hold has left; `None` if the node must
    /// be deleted (docs/protocol.md#hand-off). A hand-off requires all of these:
    /// - `healthy`: the session lease is valid, no write of the hold has an unknown outcome, and no
    ///   revocation is requested, because another client then waits for the deletion of the node;
    /// - the node is a writer's: readers share a node while it is open, and the node is deleted
    ///   when the last reader has left;
    /// - the node is open: no hold of it was lost, and no conversion has it;
    /// - a caller waits;
    /// - the bounds allow another holder.
    fn next_holder(
        &mut self,
        node: NodeNumber,
        now: Moment,
        healthy: bool,
    ) -> Option<(Arrival, W)> {
        let (bounds, writers) = (self.hand_off, self.waiters.of_mut(Kind::Exclusive));
        if !healthy || !writers.is_open(node) || !writers.is_waited_for() {
            return None;
        }
        let may = self.nodes.get_mut(&node)?.count_holder(bounds, now);
        if may { writers.take_first() } else { None }
    }

    /// Records that a hold has ended, and that the deletion of its node, if the node needs one, is
    /// on its way.
    pub(crate) fn hold_ended(&mut self, node: NodeNumber, hold: HoldNumber) {
        if let Some(state) = self.nodes.get_mut(&node) {
            state.holds.remove(&hold);
        }
        self.forget_if_left(node);
    }

    /// Records that a hold of this node is lost, so that no other caller gets the node. The hold
    /// stays until the node may be deleted.
    pub(crate) fn hold_lost(&mut self, node: NodeNumber) {
        // Once the node is closed, the callers that wait for it need another one. So an attempt
        // begins at once, even while the node is kept for the lost hold.
        self.close_node(node);
        self.forget_if_left(node);
    }

    /// Forgets a node without a hold. From then on its callers want an attempt.
    fn forget_if_left(&mut self, node: NodeNumber) {
        if self
            .nodes
            .get(&node)
            .is_some_and(|node| node.holds.is_empty())
        {
            self.nodes.remove(&node);
            self.close_node(node);
        }
    }

    fn close_node(&mut self, node: NodeNumber) {
        // The entry, which has the kind of the node, may have been removed by now, so the node is
        // closed for both kinds.
        self.waiters.of_mut(Kind::Exclusive).close_node(node);
        self.waiters.of_mut(Kind::Shared).close_node(node);
    }

    /// Closes the node of a hold that is about to be converted. A hold that has already left does
    /// not close the node, because another hold may have it by then.
    pub(crate) fn reserve(&mut self, node: NodeNumber, hold: HoldNumber) {
        // After the conversion, the node on the servers is a reader's, and no writer may have it.
        let state = self.nodes.get_mut(&node);
        if let Some(state) = state.filter(|state| state.holds.contains_key(&hold)) {
            state.is_reserved = true;
            self.close_node(node);
        }
    }

    /// Records that the servers have reported that the node does not exist. Returns all its holds,
    /// which the caller must notify; the list is empty if this was already known. From now on, no
    /// caller joins the node.
    pub(crate) fn node_missing(&mut self, node: NodeNumber, hold: HoldNumber) -> Vec<H> {
        // Once a conversion has reserved the node, only reports of the hold that reserved it count.
        // A late report of an earlier hold concerns the node from before the conversion.
        let knows = |state: &ClientNode<H>| !state.is_reserved || state.holds.contains_key(&hold);
        let Some(state) = self.nodes.get_mut(&node).filter(|state| knows(state)) else {
            return Vec::new();
        };
        // The entry of the node stays until a hold reports its loss, which wakes the waiting
        // callers.
        std::mem::take(&mut state.holds).into_values().collect()
    }

    /// Returns a hold of the open node.
    pub(crate) fn open_hold(&self, kind: Kind) -> Option<&H> {
        let open = self.waiters.of(kind).open_node()?;
        self.nodes.get(&open)?.holds.values().next()
    }

    /// Returns all holds, first those of the nodes whose attempts began first.
    pub(crate) fn holders(&self) -> impl Iterator<Item = &H> {
        // A node has the number of the attempt that was granted it, and these numbers rise in the
        // order in which the attempts began.
        self.nodes.values().flat_map(|node| node.holds.values())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::numbers::by_value::{attempt_number as attempt, hold_number as hold};

    const TWO: HandOff = HandOff {
        max: 2,
        ..HandOff::NONE
    };
    const START: Moment = Moment::at(Duration::ZERO);

    type State<D> = PathState<u64, D, u64>;

    fn wait<D: Copy + Ord>(path: &mut State<D>, kind: Kind, number: u64, deadline: Option<D>) {
        path.wait(kind, Arrival::new(attempt(number), false), number, deadline);
    }

    /// Adds a node, whose first hold is this one, and opens it.
    fn open<D: Copy + Ord>(path: &mut State<D>, kind: Kind, number: u64) -> bool {
        let node = path.add(hold(number), kind, number, START);
        path.open(node)
    }

    fn node(number: u64) -> NodeNumber {
        NodeNumber::of_first_hold(hold(number))
    }

    fn holders<D: Copy + Ord>(path: &State<D>) -> Vec<u64> {
        path.holders().copied().collect()
    }

    #[test]
    fn reports_waiters_and_node() {
        let kind = Kind::Exclusive;
        let mut path = State::<u64>::new(HandOff::NONE);
        let waiters = path.waiters.of(kind);
        assert_eq!((waiters.ahead_of_last(), waiters.next_late()), (0, None));
        for (number, deadline) in [(1, 30), (2, 20), (3, 40)] {
            wait(&mut path, kind, number, Some(deadline));
        }
        let waiters = path.waiters.of_mut(kind);
        assert_eq!(
            (waiters.ahead_of_last(), waiters.next_late()),
            (2, Some((20, &2)))
        );
        assert_eq!(
            (waiters.first(), waiters.next_late()),
            (Some(&1), Some((20, &2)))
        );
        assert!(!waiters.is_under_way());
        waiters.attempt_begins();
        assert!(waiters.is_under_way() && !waiters.wants_attempt());
        waiters.attempt_ends();
        assert!(!waiters.is_under_way() && waiters.wants_attempt());
        waiters.attempt_begins();
        path.add(hold(7), kind, 0, START);
        assert_eq!(path.granted(kind, hold(7), 7), [1]);
        let waiters = path.waiters.of(kind);
        assert!(!waiters.is_under_way() && waiters.is_open(node(7)) && !waiters.is_open(node(8)));
        assert_eq!((path.open_hold(kind), holders(&path)), (Some(&7), vec![7]));
        // The holder and the other waiting caller are ahead of the last one.
        assert_eq!(path.waiters.of(kind).ahead_of_last(), 2);
        let waiters = path.waiters.of_mut(kind);
        assert_eq!(
            (waiters.take_all(), waiters.next_late()),
            (vec![2, 3], None)
        );
    }

    #[test]
    fn waiting_readers_share_a_grant() {
        let kind = Kind::Shared;
        let mut path = State::<()>::new(HandOff::NONE);
        for number in [1, 2] {
            wait(&mut path, kind, number, None);
        }
        path.waiters.of_mut(kind).attempt_begins();
        path.add(hold(7), kind, 7, START);
        assert_eq!(path.granted(kind, hold(7), 7), [1, 2]);
        path.enter(node(7), hold(8), 8);
        let waiters = path.waiters.of(kind);
        assert!(!waiters.is_under_way() && waiters.has_open_node() && !waiters.is_waited_for());
        assert_eq!(holders(&path), [7, 8]);
        // The bounds admit no further reader.
        assert_eq!(path.join(START, true), None);
        assert!(!path.waiters.of(kind).has_open_node());
        assert_eq!(path.released(node(7), hold(7), START, true), PassOn::Stays);
        assert_eq!(path.released(node(7), hold(8), START, true), PassOn::Delete);
    }

    /// The grant of an attempt whose lock was lost in the meantime.
    #[test]
    fn ended_node_is_granted_to_none() {
        for kind in [Kind::Exclusive, Kind::Shared] {
            let mut path = State::<()>::new(TWO);
            wait(&mut path, kind, 1, None);
            path.waiters.of_mut(kind).attempt_begins();
            let lost = path.add(hold(7), kind, 7, START);
            path.hold_ended(lost, hold(7));
            assert!(path.granted(kind, hold(7), 7).is_empty());
            assert!(path.waiters.of(kind).wants_attempt() && holders(&path).is_empty());
        }
    }

    /// If the node stayed open, the writer would have to wait for all readers of this client that
    /// arrive in the meantime.
    // Shows: shared-read-node
    #[test]
    fn waiting_writer_closes_the_readers_node() {
        let (readers, writers) = (Kind::Shared, Kind::Exclusive);
        let mut path = State::<()>::new(TWO);
        assert!(open(&mut path, readers, 1));
        wait(&mut path, writers, 2, None);
        assert_eq!(path.join(START, true), None);
        assert!(!path.waiters.of(readers).has_open_node());
        // A node that is granted while the writer waits is closed from the beginning.
        assert!(!open(&mut path, readers, 3));
        wait(&mut path, readers, 4, None);
        path.waiters.of_mut(readers).attempt_begins();
        path.add(hold(5), readers, 5, START);
        assert_eq!(path.granted(readers, hold(5), 4), [4]);
        assert!(!path.waiters.of(readers).has_open_node());
        assert_eq!(path.released(node(5), hold(5), START, true), PassOn::Delete);
        path.hold_ended(node(5), hold(5));
        assert_eq!(holders(&path), [1, 3]);
    }

    /// Only one hold ever has the node, as with a fair lock.
    #[test]
    fn closed_node_goes_with_its_hold() {
        let mut path = State::<()>::new(TWO);
        let own = path.add(hold(1), Kind::Exclusive, 1, START);
        wait(&mut path, Kind::Exclusive, 2, None);
        assert_eq!(
            (holders(&path), path.open_hold(Kind::Exclusive)),
            (vec![1], None)
        );
        assert_eq!(path.released(own, hold(1), START, true), PassOn::Delete);
        path.hold_ended(own, hold(1));
        assert!(holders(&path).is_empty() && path.waiters.of(Kind::Exclusive).wants_attempt());
    }

    /// A hold tries to reserve a node that the next holder has by then.
    #[test]
    fn released_hold_reserves_nothing() {
        let kind = Kind::Exclusive;
        let mut path = State::<()>::new(TWO);
        assert!(open(&mut path, kind, 1));
        wait(&mut path, kind, 2, None);
        let passed = path.released(node(1), hold(1), START, true);
        assert_eq!(passed, PassOn::To(Arrival::new(attempt(2), false), 2));
        path.enter(node(1), hold(2), 2);
        path.reserve(node(1), hold(1));
        assert!(path.waiters.of(kind).has_open_node() && holders(&path) == [2]);
        path.reserve(node(1), hold(2));
        assert!(!path.waiters.of(kind).has_open_node() && holders(&path) == [2]);
        wait(&mut path, kind, 3, None);
        assert_eq!(path.released(node(1), hold(2), START, true), PassOn::Delete);
        path.hold_ended(node(1), hold(2));
        assert!(holders(&path).is_empty());
    }

    /// The bounds count from the grant of the node, whichever readers have it, and a closed node
    /// stays closed.
    // Shows: shared-read-node
    #[test]
    fn readers_join_within_the_bounds() {
        let time = Duration::from_secs(1);
        let (kind, bounds) = (Kind::Shared, HandOff { max: 3, time });
        for (joins_at, joins) in [
            (START, 2),
            (START.plus(time - Duration::from_nanos(1)), 2),
            (START.plus(time), 0),
        ] {
            let mut path = State::<()>::new(bounds);
            assert!(open(&mut path, kind, 1));
            for number in 2..2 + joins {
                assert_eq!(path.join(joins_at, true), Some((node(1), 1)));
                path.enter(node(1), hold(number), number);
                // Readers that have left count too.
                assert_eq!(
                    path.released(node(1), hold(number), joins_at, true),
                    PassOn::Stays
                );
            }
            assert_eq!(path.join(joins_at, true), None);
            assert!(!path.waiters.of(kind).has_open_node());
            assert_eq!(path.join(START, true), None);
            assert_eq!(path.released(node(1), hold(1), START, true), PassOn::Delete);
        }
        let mut doubted = State::<()>::new(bounds);
        assert!(open(&mut doubted, kind, 1));
        assert_eq!(doubted.join(START, false), None);
        assert_eq!(
            doubted.join(START, true),
            None,
            "it was closed by the doubt"
        );
    }

    /// A node that was granted to a single call is opened, unless this client has an open node or
    /// is about to have one.
    #[test]
    fn sole_node_is_opened() {
        let kind = Kind::Exclusive;
        let mut path = State::<()>::new(TWO);
        assert!(open(&mut path, kind, 1));
        assert!(!open(&mut path, kind, 2) && path.waiters.of(kind).is_open(node(1)));
        wait(&mut path, kind, 3, None);
        assert!(!path.waiters.of(kind).wants_attempt());
        assert_eq!(
            path.released(node(1), hold(1), START, true),
            PassOn::To(Arrival::new(attempt(3), false), 3)
        );
        path.hold_ended(node(1), hold(3));
        wait(&mut path, kind, 4, None);
        assert!(!open(&mut path, kind, 5), "another is about to have one");
        path.waiters.of_mut(kind).attempt_begins();
        assert!(!open(&mut path, kind, 6));
        // A hold that has ended already.
        let mut path = State::<()>::new(TWO);
        let ended = path.add(hold(7), kind, 7, START);
        path.hold_ended(ended, hold(7));
        assert!(!path.open(ended));
    }
}
