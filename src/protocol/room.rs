//! The room: the callers of one client that share the nodes of a mutex, or of one side of a
//! read-write lock. They wait in memory behind one node, and this decides who has it next, and when
//! it goes. Pure.
//!
//! ```text
//!              granted           released, with another waiting; joined, if it is shared
//!   no node ------------> held by one ----------------------------------> held by the next, or by several
//!      ^                     |                                                  |
//!      '---------------------'--------------------------------------------------'
//!        released, with none waiting or beyond the bounds; lost
//! ```
//! While anybody waits and there is no node, one attempt is under way, on behalf of all
//! (docs/protocol.md#hand-off).
//!
//! The node of a room for readers is shared: all waiting readers have it together, and further
//! readers join, within the same bounds and until a writer of this client waits
//! (docs/protocol.md#shared-read-node). Then the next readers wait for another node, and this one
//! goes with the last reader inside. A writer of another client is behind the node, and so waits
//! for no reader that came after the bounds.
//!
//! This is the only record of who is inside a node. A hold leaves it once, by the event that ends
//! the hold's use of the node: its deletion, or the end of the node.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::protocol::moment::Moment;
use crate::protocol::node_name::Kind;

/// How many have one node at most, in a row or together, and for how long after its grant others
/// are given it, before the next caller queues behind all others by another node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HandOff {
    pub(crate) max: u32,
    pub(crate) time: Duration,
}

#[cfg(test)]
impl HandOff {
    /// Each has its own node.
    pub(crate) const NONE: Self = Self {
        max: 1,
        time: Duration::MAX,
    };
}

impl Default for HandOff {
    /// Another process waits for some milliseconds more than it would for one holder. Hand-overs
    /// among tasks that do nothing take some microseconds each, so that the time is the bound that
    /// counts, and the other is for a clock that stands still.
    fn default() -> Self {
        Self {
            max: 1_000,
            time: Duration::from_millis(5),
        }
    }
}

/// The order of arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Arrival {
    /// `false` before `true`: a caller whose lock was lost before it had it goes before later
    /// callers.
    is_new: bool,
    /// The number of the attempt.
    number: u64,
}

impl Arrival {
    pub(crate) fn new(number: u64, again: bool) -> Self {
        Self {
            is_new: !again,
            number,
        }
    }

    pub(crate) fn number(self) -> u64 {
        self.number
    }
}

/// Who has a released node next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum PassOn<W> {
    /// The caller that has waited longest.
    To(Arrival, W),
    /// It stays with the others that are inside.
    Stays,
    /// No caller gets it: the node must be deleted.
    Delete,
}

/// A node by which this client has the lock, or had it.
struct SharedNode<H> {
    /// The holds by which it is held.
    inside: BTreeMap<u64, H>,
    /// When it was granted, and how many have had it since, where all readers that waited together
    /// for it count as one.
    since: Moment,
    holders: u32,
}

impl<H> SharedNode<H> {
    /// Counts another holder, if it may have the node within the bounds
    /// (docs/protocol.md#hand-off).
    fn another(&mut self, bounds: HandOff, now: Moment) -> bool {
        let may = self.holders < bounds.max && now.since(self.since) < bounds.time;
        self.holders += u32::from(may);
        may
    }
}

struct WaitingCaller<W, D> {
    waiter: W,
    deadline: Option<D>,
    /// How many attempts had begun when it came.
    attempts: u64,
}

/// The callers of one room, and their nodes, each by the number of the first hold by which it was
/// held. `W` is the waiting caller, `D` its deadline, `H` a hold.
pub(crate) struct Room<W, D, H> {
    /// Several have a node of the kind `Shared` at once.
    kind: Kind,
    hand_off: HandOff,
    waiting: BTreeMap<Arrival, WaitingCaller<W, D>>,
    deadlines: BTreeSet<(D, Arrival)>,
    /// The node that callers may have next.
    current: Option<u64>,
    /// This node, and earlier ones that no other caller gets, while a hold is inside.
    nodes: BTreeMap<u64, SharedNode<H>>,
    /// Whether an attempt is under way.
    attempt: bool,
    /// How many have begun.
    attempts: u64,
}

impl<W, D: Copy + Ord, H: Clone> Room<W, D, H> {
    pub(crate) fn new(kind: Kind, hand_off: HandOff) -> Self {
        Self {
            kind,
            hand_off,
            waiting: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            current: None,
            nodes: BTreeMap::new(),
            attempt: false,
            attempts: 0,
        }
    }

    /// Handles the arrival of a caller. `healthy` is whether it may be granted the current node
    /// now. Returns a hold of that node if the caller has it too, by another hold, which must
    /// [enter](Self::enter) it. `None` if it must wait, or ask the servers; no later caller joins
    /// then.
    pub(crate) fn join(&mut self, now: Moment, healthy: bool) -> Option<H> {
        if self.kind == Kind::Exclusive {
            return None;
        }
        let bounds = self.hand_off;
        let node = self.nodes.get_mut(&self.current?)?;
        let hold = node.inside.values().next().cloned()?;
        if healthy && node.another(bounds, now) {
            return Some(hold);
        }
        self.close();
        None
    }

    /// Has a hold inside the current node from here on.
    pub(crate) fn enter(&mut self, number: u64, hold: H) {
        if let Some(node) = self.current.and_then(|node| self.nodes.get_mut(&node)) {
            node.inside.insert(number, hold);
        }
    }

    /// Adds a caller that waits.
    pub(crate) fn wait(&mut self, at: Arrival, waiter: W, deadline: Option<D>) {
        self.deadlines
            .extend(deadline.map(|deadline| (deadline, at)));
        self.waiting.insert(
            at,
            WaitingCaller {
                waiter,
                deadline,
                attempts: self.attempts,
            },
        );
    }

    fn take(&mut self, at: Arrival) -> Option<W> {
        let WaitingCaller {
            waiter, deadline, ..
        } = self.waiting.remove(&at)?;
        if let Some(deadline) = deadline {
            self.deadlines.remove(&(deadline, at));
        }
        Some(waiter)
    }

    fn take_first(&mut self) -> Option<W> {
        let at = *self.waiting.first_key_value()?.0;
        self.take(at)
    }

    /// Removes a waiter whose caller has left; `None` if it waits no more.
    pub(crate) fn leave(&mut self, at: Arrival) -> Option<W> {
        self.take(at)
    }

    /// Returns whether an attempt must be started.
    pub(crate) fn wants_attempt(&self) -> bool {
        self.current.is_none() && !self.attempt && !self.waiting.is_empty()
    }

    /// Records that an attempt has been started.
    pub(crate) fn attempt_begins(&mut self) {
        self.attempt = true;
        self.attempts += 1;
    }

    /// Records that the attempt is no longer under way.
    pub(crate) fn attempt_ends(&mut self) {
        self.attempt = false;
    }

    /// Returns whether an attempt is under way.
    pub(crate) fn is_under_way(&self) -> bool {
        self.attempt
    }

    /// Has an attempt that no caller waits for no longer under way. Returns whether there was one,
    /// which must be cancelled.
    pub(crate) fn abandon_attempt(&mut self) -> bool {
        let is_abandoned = self.attempt && self.waiting.is_empty();
        self.attempt &= !is_abandoned;
        is_abandoned
    }

    /// Returns whether anybody waits.
    pub(crate) fn is_waited_for(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Returns how many callers are before the last waiting one: the other waiting ones, and the
    /// holder.
    pub(crate) fn ahead_of_last(&self) -> usize {
        self.waiting.len().saturating_sub(1) + usize::from(self.has_node())
    }

    /// Handles the grant of a node to the attempt, as the hold with this number. Returns who has
    /// it: the first that waits, by this hold, or all that wait, the others by further holds. None
    /// if none waits.
    pub(crate) fn granted(&mut self, number: u64, hold: H, now: Moment) -> Vec<W> {
        self.attempt = false;
        self.open(number, hold, now);
        match self.kind {
            Kind::Exclusive => self.take_first().into_iter().collect(),
            Kind::Shared => self.take_all(),
        }
    }

    /// Has a hold that was granted a node by itself share it, or hand it over when it is released.
    /// Returns `false` if this room has a node, or is about to have one.
    pub(crate) fn adopt(&mut self, number: u64, hold: H, now: Moment) -> bool {
        let is_free = self.current.is_none() && !self.attempt && self.waiting.is_empty();
        if is_free {
            self.open(number, hold, now);
        }
        is_free
    }

    fn open(&mut self, number: u64, hold: H, now: Moment) {
        let inside = BTreeMap::from([(number, hold)]);
        let node = SharedNode {
            inside,
            since: now,
            holders: 1,
        };
        self.nodes.insert(number, node);
        self.current = Some(number);
    }

    /// Handles the failure of the attempt. Returns those for which it was made: they waited when it
    /// began. Another attempt starts for later callers, with its full time and tries.
    pub(crate) fn failed(&mut self) -> Vec<W> {
        self.attempt = false;
        let is_told = |waiting: &WaitingCaller<W, D>| waiting.attempts < self.attempts;
        let told: Vec<_> = self
            .waiting
            .iter()
            .filter(|(_, waiting)| is_told(waiting))
            .map(|(at, _)| *at)
            .collect();
        told.into_iter().filter_map(|at| self.take(at)).collect()
    }

    /// Removes all that wait.
    pub(crate) fn take_all(&mut self) -> Vec<W> {
        self.deadlines.clear();
        std::mem::take(&mut self.waiting)
            .into_values()
            .map(|waiting| waiting.waiter)
            .collect()
    }

    /// Returns the first that waits.
    pub(crate) fn first(&self) -> Option<&W> {
        self.waiting.values().next().map(|waiting| &waiting.waiter)
    }

    /// Returns the waiting caller with the earliest deadline, and that deadline.
    pub(crate) fn next_late(&self) -> Option<(D, &W)> {
        let (deadline, at) = self.deadlines.first()?;
        Some((*deadline, &self.waiting.get(at)?.waiter))
    }

    /// Removes those whose deadline has passed. Returns each with the number of those that were
    /// before it. One pass over the queue for all of them, and a timer of the task's fires once in
    /// a millisecond at most: so does this, however many deadlines there are.
    pub(crate) fn late(&mut self, now: D) -> Vec<(W, usize)> {
        let over: BTreeSet<_> = self
            .deadlines
            .iter()
            .take_while(|(deadline, _)| *deadline <= now)
            .map(|(_, at)| *at)
            .collect();
        let Some(last) = over.last() else {
            return Vec::new();
        };
        let ranks: Vec<_> = self
            .waiting
            .range(..=*last)
            .enumerate()
            .filter_map(|(before, (at, _))| over.contains(at).then_some((before, *at)))
            .collect();
        ranks
            .into_iter()
            .filter_map(|(before, at)| Some((self.take(at)?, before)))
            .collect()
    }

    /// Handles the deletion that a hold of this node needs, by which the hold leaves it. `healthy`
    /// is whether the node may be passed on, by its lease and all that is known of it. A caller
    /// that has it next must [enter](Self::enter) it. `Delete` is followed by
    /// [`over`](Self::over), once the deletion is on its way.
    pub(crate) fn released(
        &mut self,
        node: u64,
        hold: u64,
        now: Moment,
        healthy: bool,
    ) -> PassOn<W> {
        let bounds = self.hand_off;
        let first = self.waiting.first_key_value().map(|(at, _)| *at);
        // A hold that has taken its node out has it for itself.
        let Some(state) = self.nodes.get_mut(&node) else {
            return PassOn::Delete;
        };
        // A hold that has left already does not take the node from the others.
        let was_inside = state.inside.remove(&hold).is_some();
        if !was_inside || !state.inside.is_empty() {
            if was_inside && !healthy {
                self.pass_by(node);
            }
            return PassOn::Stays;
        }
        let may_pass = healthy && self.current == Some(node);
        let Some(at) = first.filter(|_| may_pass && state.another(bounds, now)) else {
            return PassOn::Delete;
        };
        self.take(at)
            .map_or(PassOn::Delete, |waiter| PassOn::To(at, waiter))
    }

    /// Records that a hold has ended, and its deletion, if it needs one, is on its way.
    pub(crate) fn over(&mut self, node: u64, hold: u64) {
        let Some(state) = self.nodes.get_mut(&node) else {
            return;
        };
        state.inside.remove(&hold);
        if state.inside.is_empty() {
            self.forget(node);
        }
    }

    /// Records that a hold of this node is lost: no caller has the node next. Until the node may be
    /// deleted, the hold stays inside.
    pub(crate) fn lost(&mut self, node: u64) {
        self.pass_by(node);
        if self.inside(node).next().is_none() {
            self.forget(node);
        }
    }

    fn forget(&mut self, node: u64) {
        self.nodes.remove(&node);
        self.pass_by(node);
    }

    /// Has no further caller get the current node: one that arrives, or waits, has the next.
    pub(crate) fn close(&mut self) {
        self.current = None;
    }

    /// Has no further caller get this node.
    fn pass_by(&mut self, node: u64) {
        self.current.take_if(|current| *current == node);
    }

    /// Takes the node out, for a conversion of this hold, a writer, which has it for itself from
    /// here on. A hold that has left already takes nothing.
    pub(crate) fn take_out(&mut self, node: u64, hold: u64) {
        let state = self.nodes.get(&node);
        if state.is_some_and(|state| state.inside.contains_key(&hold)) {
            self.forget(node);
        }
    }

    /// Records that the servers have said that the node does not exist. Returns all holds inside,
    /// which the caller must notify; none if this was known. From here on none joins.
    pub(crate) fn gone(&mut self, node: u64) -> Vec<H> {
        let Some(state) = self.nodes.get_mut(&node) else {
            return Vec::new();
        };
        std::mem::take(&mut state.inside).into_values().collect()
    }

    /// Returns whether there is a node that callers may have next.
    pub(crate) fn has_node(&self) -> bool {
        self.current.is_some()
    }

    /// Returns whether it is this one.
    pub(crate) fn is_current(&self, node: u64) -> bool {
        self.current == Some(node)
    }

    /// Returns the holds inside this node, with their numbers.
    pub(crate) fn inside(&self, node: u64) -> impl Iterator<Item = (u64, &H)> {
        let inside = self
            .nodes
            .get(&node)
            .into_iter()
            .flat_map(|node| &node.inside);
        inside.map(|(number, hold)| (*number, hold))
    }

    /// Returns a hold of the current node.
    pub(crate) fn hold(&self) -> Option<&H> {
        self.nodes.get(&self.current?)?.inside.values().next()
    }

    /// Returns all holds, also those of nodes that no further caller gets.
    pub(crate) fn holders(&self) -> impl Iterator<Item = &H> {
        self.nodes.values().flat_map(|node| node.inside.values())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: HandOff = HandOff {
        max: 2,
        ..HandOff::NONE
    };

    #[test]
    fn reports_waiters_and_node() {
        let mut room = Room::<u64, u64, u64>::new(Kind::Exclusive, HandOff::NONE);
        assert_eq!((room.ahead_of_last(), room.next_late()), (0, None));
        for (number, deadline) in [(1, 30), (2, 20), (3, 40)] {
            room.wait(Arrival::new(number, false), number, Some(deadline));
        }
        assert_eq!(
            (room.ahead_of_last(), room.next_late()),
            (2, Some((20, &2)))
        );
        assert_eq!((room.first(), room.next_late()), (Some(&1), Some((20, &2))));
        assert!(!room.is_under_way());
        room.attempt_begins();
        assert!(room.is_under_way() && !room.wants_attempt());
        room.attempt_ends();
        assert!(!room.is_under_way() && room.wants_attempt());
        room.attempt_begins();
        assert_eq!(room.granted(7, 7, Moment::at(Duration::ZERO)), [1]);
        assert!(!room.is_under_way() && room.is_current(7) && !room.is_current(8));
        assert_eq!((room.hold(), room.holders().count()), (Some(&7), 1));
        // The holder, and the other that waits.
        assert_eq!(room.ahead_of_last(), 2);
        assert_eq!((room.take_all(), room.next_late()), (vec![2, 3], None));
    }

    #[test]
    fn waiting_readers_share_a_grant() {
        let mut room = Room::<u64, (), u64>::new(Kind::Shared, HandOff::NONE);
        for number in [1, 2] {
            room.wait(Arrival::new(number, false), number, None);
        }
        room.attempt_begins();
        let now = Moment::at(Duration::ZERO);
        assert_eq!(room.granted(7, 7, now), [1, 2]);
        room.enter(8, 8);
        assert!(!room.is_under_way() && room.has_node() && !room.is_waited_for());
        assert!(room.inside(7).eq([(7, &7), (8, &8)]) && room.holders().count() == 2);
        // The bounds are those of a row.
        assert_eq!(room.join(now, true), None);
        assert!(!room.has_node());
        assert_eq!(room.released(7, 7, now, true), PassOn::Stays);
        assert_eq!(room.released(7, 8, now, true), PassOn::Delete);
    }

    /// The next has the node by then.
    #[test]
    fn released_hold_takes_nothing_out() {
        let now = Moment::at(Duration::ZERO);
        let mut room = Room::<u64, (), u64>::new(Kind::Exclusive, TWO);
        assert!(room.adopt(1, 1, now));
        room.wait(Arrival::new(2, false), 2, None);
        let passed = room.released(1, 1, now, true);
        assert_eq!(passed, PassOn::To(Arrival::new(2, false), 2));
        room.enter(2, 2);
        room.take_out(1, 1);
        assert!(room.has_node() && room.inside(1).eq([(2, &2)]));
        room.take_out(1, 2);
        assert!(!room.has_node() && room.holders().count() == 0);
        // Its release finds no node of the room.
        assert_eq!(room.released(1, 2, now, true), PassOn::Delete);
    }

    /// The bounds count from the grant of the node, whoever is inside, and a node that is closed
    /// stays so.
    // Shows: shared-read-node
    #[test]
    fn readers_join_within_the_bounds() {
        let start = Moment::at(Duration::ZERO);
        let time = Duration::from_secs(1);
        let bounds = HandOff { max: 3, time };
        for (joins_at, joins) in [
            (start, 2),
            (start.plus(time - Duration::from_nanos(1)), 2),
            (start.plus(time), 0),
        ] {
            let mut room = Room::<u64, (), u64>::new(Kind::Shared, bounds);
            assert!(room.adopt(1, 1, start));
            for number in 2..2 + joins {
                assert_eq!(room.join(joins_at, true), Some(1));
                room.enter(number, number);
                // Those that leave count too.
                assert_eq!(room.released(1, number, joins_at, true), PassOn::Stays);
            }
            assert_eq!((room.join(joins_at, true), room.has_node()), (None, false));
            assert_eq!(room.join(start, true), None);
            assert_eq!(room.released(1, 1, start, true), PassOn::Delete);
        }
        let mut doubted = Room::<u64, (), u64>::new(Kind::Shared, bounds);
        assert!(doubted.adopt(1, 1, start));
        assert_eq!(doubted.join(start, false), None);
        assert_eq!(
            doubted.join(start, true),
            None,
            "it was closed by the doubt"
        );
    }

    /// A hold that was granted a node by itself is the room's, unless others have one or are about
    /// to.
    #[test]
    fn sole_hold_is_adopted() {
        let now = Moment::at(Duration::ZERO);
        let mut room = Room::<u64, (), u64>::new(Kind::Exclusive, TWO);
        assert!(room.adopt(1, 1, now));
        assert!(!room.adopt(2, 2, now) && room.is_current(1));
        room.wait(Arrival::new(3, false), 3, None);
        assert!(!room.wants_attempt());
        assert_eq!(
            room.released(1, 1, now, true),
            PassOn::To(Arrival::new(3, false), 3)
        );
        room.over(1, 3);
        room.wait(Arrival::new(4, false), 4, None);
        assert!(!room.adopt(5, 5, now), "another is about to have one");
        room.attempt_begins();
        assert!(!room.adopt(5, 5, now));
    }
}
