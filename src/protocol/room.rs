//! The room: the attempts of one client on one mutex that wait in memory behind one node, and who of them has
//! the node next. Pure.
//!
//! ```text
//!              granted                   released, with another waiting
//!   no node ------------> held by one ----------------------------------> held by the next
//!      ^                     |    ^
//!      |   released, lost    |    | arrives
//!      |<--------------------|    |
//!      |                     '-> kept, while no other client wants the lock
//!      |<-------------------------'  given up
//! ```
//! While anybody waits and there is no node, one attempt is under way, on behalf of all
//! (docs/protocol.md#hand-off). A sticky room keeps a node that no caller needs (docs/protocol.md#kept-node).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::protocol::moment::Moment;

/// How many have the node in a row at most, and for how long, before it goes to the back of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HandOff {
    pub(crate) max: u32,
    pub(crate) time: Duration,
}

impl HandOff {
    /// Each has its own node.
    pub(crate) const NONE: Self = Self { max: 1, time: Duration::MAX };
}

impl Default for HandOff {
    /// Another process waits for some milliseconds more than it would for one holder. Hand-overs among tasks that do
    /// nothing take some microseconds each, so that the time is the bound that counts, and the other is for a clock
    /// that stands still.
    fn default() -> Self {
        Self { max: 1_000, time: Duration::from_millis(5) }
    }
}

/// The order of arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Position {
    /// `false` before `true`: a caller whose lock was lost before it had it goes before later callers.
    is_new: bool,
    /// The number of the attempt.
    number: u64,
}

impl Position {
    pub(crate) fn new(number: u64, again: bool) -> Self {
        Self { is_new: !again, number }
    }

    pub(crate) fn number(self) -> u64 {
        self.number
    }
}

/// The outcome for a kept node when a caller arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    /// No node is kept.
    None,
    /// The newcomer has it.
    Granted,
    /// It cannot be granted: it must be released.
    GivenUp,
}

/// Who has a released node next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next<W> {
    /// The caller that has waited longest.
    To(Position, W),
    /// None yet: the node is kept.
    Keep,
    /// No caller gets it: the node must be deleted.
    Delete,
}

/// The contenders of other handles and processes, as far as the watch of a node that is kept tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Others {
    /// No look was taken since this node was granted.
    Unknown,
    /// There are none, or the look that tells is under way.
    None,
    /// There may be some: the node goes with its next release.
    Perhaps,
}

/// The node by which this client has the lock.
#[derive(Clone, Copy, Debug)]
struct Node {
    /// The number of the hold by which it is held now, or kept.
    holder: u64,
    /// The number of the first hold by which it was held, which tells nodes apart.
    granted_to: u64,
    is_kept: bool,
    others: Others,
    /// When the row of holders that other processes may wait for began, and how many it has.
    since: Moment,
    holders: u32,
}

impl Node {
    fn granted(holder: u64, now: Moment) -> Self {
        Self { holder, granted_to: holder, is_kept: false, others: Others::Unknown, since: now, holders: 1 }
    }

    /// Returns whether it was kept.
    fn give_up(&mut self) -> bool {
        self.others = Others::Perhaps;
        std::mem::replace(&mut self.is_kept, false)
    }
}

#[derive(Debug)]
struct Waiting<W, D> {
    waiter: W,
    deadline: Option<D>,
    /// How many attempts had begun when it came.
    attempts: u64,
}

/// A caller that waits no longer.
#[derive(Debug)]
pub(crate) struct Late<W> {
    pub(crate) waiter: W,
    /// How many of this room were before it.
    pub(crate) before: usize,
}

/// The attempts of one client on one mutex, and the node by which one of them holds it. `W` is the waiting
/// caller, `D` its deadline.
#[derive(Debug)]
pub(crate) struct Room<W, D> {
    hand_off: HandOff,
    sticky: bool,
    waiting: BTreeMap<Position, Waiting<W, D>>,
    deadlines: BTreeSet<(D, Position)>,
    node: Option<Node>,
    /// Whether an attempt is under way.
    attempt: bool,
    /// How many have begun.
    attempts: u64,
}

impl<W, D: Copy + Ord> Room<W, D> {
    pub(crate) fn new(hand_off: HandOff, sticky: bool) -> Self {
        Self {
            hand_off,
            sticky,
            waiting: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            node: None,
            attempt: false,
            attempts: 0,
        }
    }

    /// Handles the arrival of a caller at a node that is kept. `healthy` is whether it may be granted now.
    pub(crate) fn take_kept(&mut self, healthy: bool) -> Kept {
        let Some(node) = self.node.as_mut().filter(|node| node.is_kept) else { return Kept::None };
        if healthy {
            node.is_kept = false;
            return Kept::Granted;
        }
        node.give_up();
        Kept::GivenUp
    }

    /// Adds a caller that waits.
    pub(crate) fn wait(&mut self, at: Position, waiter: W, deadline: Option<D>) {
        self.deadlines.extend(deadline.map(|deadline| (deadline, at)));
        self.waiting.insert(at, Waiting { waiter, deadline, attempts: self.attempts });
    }

    fn take(&mut self, at: Position) -> Option<W> {
        let Waiting { waiter, deadline, .. } = self.waiting.remove(&at)?;
        if let Some(deadline) = deadline {
            self.deadlines.remove(&(deadline, at));
        }
        Some(waiter)
    }

    fn take_first(&mut self) -> Option<(Position, W)> {
        let at = *self.waiting.first_key_value()?.0;
        Some((at, self.take(at)?))
    }

    /// Removes a waiter whose caller has left; `None` if it waits no more.
    pub(crate) fn leave(&mut self, at: Position) -> Option<W> {
        self.take(at)
    }

    /// Returns whether an attempt must be started.
    pub(crate) fn wants_attempt(&self) -> bool {
        self.node.is_none() && !self.attempt && !self.waiting.is_empty()
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

    /// Returns whether an attempt is under way that no caller waits for.
    pub(crate) fn is_idle(&self) -> bool {
        self.attempt && self.waiting.is_empty()
    }

    /// Returns whether anybody waits.
    pub(crate) fn is_waited_for(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Returns how many callers are before the last waiting one: the other waiting ones, and the holder.
    pub(crate) fn ahead_of_last(&self) -> usize {
        self.waiting.len().saturating_sub(1) + usize::from(self.node.is_some())
    }

    /// Handles the grant of a node to the attempt, as the hold with this number. Returns the first that waits,
    /// which has it; `None` if none does.
    pub(crate) fn granted(&mut self, holder: u64, now: Moment) -> Option<(Position, W)> {
        self.attempt = false;
        self.node = Some(Node::granted(holder, now));
        self.take_first()
    }

    /// Has a hold that was granted a node by itself hand it over when it is released. Returns `false` if this room has a
    /// node, or is about to have one.
    pub(crate) fn adopt(&mut self, holder: u64, now: Moment) -> bool {
        if self.node.is_some() || self.attempt {
            return false;
        }
        self.node = Some(Node::granted(holder, now));
        true
    }

    /// Handles the grant of a node that all that wait share, and this room does not have. Returns them.
    pub(crate) fn granted_to_all(&mut self) -> Vec<W> {
        self.attempt = false;
        self.take_all()
    }

    /// Handles the failure of the attempt. Returns those for which it was made: they waited when it began.
    /// Another attempt starts for later callers, with its full time and tries.
    pub(crate) fn failed(&mut self) -> Vec<W> {
        self.attempt = false;
        let is_told = |waiting: &Waiting<W, D>| waiting.attempts < self.attempts;
        let told: Vec<_> =
            self.waiting.iter().filter(|(_, waiting)| is_told(waiting)).map(|(at, _)| *at).collect();
        told.into_iter().filter_map(|at| self.take(at)).collect()
    }

    /// Removes all that wait.
    pub(crate) fn take_all(&mut self) -> Vec<W> {
        self.deadlines.clear();
        std::mem::take(&mut self.waiting).into_values().map(|waiting| waiting.waiter).collect()
    }

    /// Returns the earliest deadline of the waiting callers.
    pub(crate) fn next_deadline(&self) -> Option<D> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
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

    /// Removes those whose deadline has passed. One pass over the queue for all of them, and a timer of the task's
    /// fires once in a millisecond at most: so does this, however many deadlines there are.
    pub(crate) fn late(&mut self, now: D) -> Vec<Late<W>> {
        let over: BTreeSet<_> =
            self.deadlines.iter().take_while(|(deadline, _)| *deadline <= now).map(|(_, at)| *at).collect();
        let Some(last) = over.last() else { return Vec::new() };
        let ranks: Vec<_> = self
            .waiting
            .range(..=*last)
            .enumerate()
            .filter_map(|(before, (at, _))| over.contains(at).then_some((before, *at)))
            .collect();
        let late = |(before, at)| Some(Late { waiter: self.take(at)?, before });
        ranks.into_iter().filter_map(late).collect()
    }

    /// Returns whether the node that this hold has is the room's.
    fn node_of(&mut self, holder: u64) -> Option<&mut Node> {
        self.node.as_mut().filter(|node| node.holder == holder)
    }

    /// Returns whether the hold with this number has the node.
    pub(crate) fn is_holder(&self, holder: u64) -> bool {
        self.node.is_some_and(|node| node.holder == holder)
    }

    /// Handles the release of the node by the hold with this number. `healthy` is whether the node may be passed
    /// on, by its lease and all that is known of it. A caller that has it next has it by the number of its
    /// position; if it is kept, that is by a hold with the number `next`. `Delete` is followed by
    /// [`over`](Self::over), once the deletion is on its way.
    pub(crate) fn released(&mut self, holder: u64, next: u64, now: Moment, healthy: bool) -> Next<W> {
        let (hand_off, sticky) = (self.hand_off, self.sticky);
        let first = self.waiting.first_key_value().map(|(at, _)| *at);
        let Some(node) = self.node_of(holder).filter(|_| healthy) else { return Next::Delete };
        let alone = sticky && node.others != Others::Perhaps;
        let Some(at) = first else {
            if alone {
                (node.holder, node.is_kept) = (next, true);
                return Next::Keep;
            }
            return Next::Delete;
        };
        if alone {
            // No other process is kept waiting, so no row begins.
            (node.since, node.holders) = (now, 1);
        } else {
            if node.holders >= hand_off.max || now.since(node.since) >= hand_off.time {
                return Next::Delete;
            }
            node.holders += 1;
        }
        node.holder = at.number;
        self.take(at).map_or(Next::Delete, |waiter| Next::To(at, waiter))
    }

    /// Records that the hold with this number has lost the node, or left it to be deleted.
    pub(crate) fn over(&mut self, holder: u64) {
        if self.node_of(holder).is_some() {
            self.node = None;
        }
    }

    /// Returns whether there is a node, held or kept.
    pub(crate) fn has_node(&self) -> bool {
        self.node.is_some()
    }

    /// Returns which node it is that is to be watched for others from now on; `None` if none is, or that has
    /// begun.
    pub(crate) fn begin_look(&mut self) -> Option<u64> {
        let node = self.node.as_mut().filter(|node| self.sticky && node.others == Others::Unknown)?;
        node.others = Others::None;
        Some(node.granted_to)
    }

    /// Returns whether this node is still the room's.
    pub(crate) fn has(&self, granted_to: u64) -> bool {
        self.node.is_some_and(|node| node.granted_to == granted_to)
    }

    /// Records that others may want this node, or that this is no longer known. Returns whether it was kept:
    /// then the caller must release it at once.
    pub(crate) fn others_come(&mut self, granted_to: u64) -> bool {
        self.node.as_mut().filter(|node| node.granted_to == granted_to).is_some_and(Node::give_up)
    }

    /// Keeps no node from here on: no handle can use one. Returns whether a node was kept, and so must be
    /// released.
    pub(crate) fn close(&mut self) -> bool {
        self.sticky = false;
        self.give_up()
    }

    /// Stops keeping the node. Returns whether it was kept, and so must be released.
    pub(crate) fn give_up(&mut self) -> bool {
        self.node.as_mut().filter(|node| node.is_kept).is_some_and(Node::give_up)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_room_says_of_those_that_wait_and_of_its_node() {
        let mut room = Room::<u64, u64>::new(HandOff::NONE, true);
        assert_eq!((room.ahead_of_last(), room.next_deadline()), (0, None));
        for (number, deadline) in [(1, 30), (2, 20), (3, 40)] {
            room.wait(Position::new(number, false), number, Some(deadline));
        }
        assert_eq!((room.ahead_of_last(), room.next_deadline()), (2, Some(20)));
        assert_eq!((room.first(), room.next_late()), (Some(&1), Some((20, &2))));
        assert!(!room.is_under_way());
        room.attempt_begins();
        assert!(room.is_under_way());
        assert_eq!(room.granted(7, Moment::at(Duration::ZERO)).map(|(_, waiter)| waiter), Some(1));
        assert!(
            !room.is_under_way() && room.is_holder(7) && !room.is_holder(8) && room.has(7) && !room.has(8)
        );
        // The holder, and the other that waits.
        assert_eq!(room.ahead_of_last(), 2);
        assert_eq!((room.take_all(), room.next_deadline()), (vec![2, 3], None));
    }

    #[test]
    fn all_that_wait_share_a_grant_that_is_not_the_rooms() {
        let mut room = Room::<u64, ()>::new(HandOff::NONE, false);
        for number in [1, 2] {
            room.wait(Position::new(number, false), number, None);
        }
        room.attempt_begins();
        assert_eq!(room.granted_to_all(), [1, 2]);
        assert!(!room.is_under_way() && !room.has_node() && !room.is_waited_for());
    }

    /// A hold that was granted a node by itself is the room's, unless others have one or are about to.
    #[test]
    fn a_hold_is_adopted_where_there_is_no_other() {
        let now = Moment::at(Duration::ZERO);
        let mut room = Room::<u64, ()>::new(HandOff { max: 2, ..HandOff::NONE }, false);
        assert!(room.adopt(1, now));
        assert!(!room.adopt(2, now) && room.is_holder(1));
        room.wait(Position::new(3, false), 3, None);
        assert!(!room.wants_attempt());
        assert_eq!(room.released(1, 4, now, true), Next::To(Position::new(3, false), 3));
        room.over(3);
        room.attempt_begins();
        assert!(!room.adopt(5, now));
    }
}
