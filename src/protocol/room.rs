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

/// How many hand-overs in a row there are at most, and for how long, before the node goes to the back of the
/// queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HandOff {
    pub(crate) max: u32,
    pub(crate) time: Duration,
}

/// The order of arrival; see [`Class`] for exceptions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Position {
    class: Class,
    /// The number of the attempt.
    number: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Class {
    /// A try waits only where no other waits, so there is one at most, and none was there before it.
    Try,
    /// Its lock was lost before its caller had it, so it was there before those that have come since.
    Again,
    First,
}

impl Position {
    pub(crate) fn new<D: Copy>(number: u64, patience: Patience<D>, again: bool) -> Self {
        let class = match patience {
            Patience::Try => Class::Try,
            Patience::Until(_) if again => Class::Again,
            Patience::Until(_) => Class::First,
        };
        Self { class, number }
    }

    pub(crate) fn number(self) -> u64 {
        self.number
    }
}

/// What a newcomer wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience<D> {
    /// Waits for no other contender.
    Try,
    /// Waits until the deadline, `None` if there is none.
    Until(Option<D>),
}

/// What comes of an arrival.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Arrival<W> {
    /// It has the node that was kept.
    Granted(W),
    /// The node that was kept is not to be had: it has to be released first.
    GiveUp(W),
    Waits,
    /// A try that would have to wait.
    Busy(W),
}

/// Who has a released node next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next<W> {
    /// The one that has waited longest.
    To(Position, W),
    /// None yet: the node is kept.
    Keep,
    /// None: the node has to be deleted.
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
    /// It was kept, and is about to be deleted: no caller has it.
    is_given_up: bool,
    others: Others,
    /// When the row of hand-overs began.
    since: Moment,
    hand_overs: u32,
}

impl Node {
    /// Returns whether it was kept.
    fn give_up(&mut self) -> bool {
        self.others = Others::Perhaps;
        self.is_given_up |= self.is_kept;
        std::mem::replace(&mut self.is_kept, false)
    }
}

#[derive(Debug)]
struct Waiting<W, D> {
    waiter: W,
    patience: Patience<D>,
    /// How many attempts had begun when it came.
    attempts: u64,
}

/// One that waits no longer.
#[derive(Debug)]
pub(crate) struct Late<W> {
    pub(crate) waiter: W,
    /// How many of this room were before it.
    pub(crate) before: usize,
}

/// The attempts of one client on one mutex, and the node by which one of them holds it. `W` is what waits, `D`
/// its deadline.
#[derive(Debug)]
pub(crate) struct Room<W, D> {
    hand_off: Option<HandOff>,
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
    pub(crate) fn new(hand_off: Option<HandOff>, sticky: bool) -> Self {
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

    /// Handles the arrival of a waiter. `healthy` is whether a node that is kept may be granted now.
    pub(crate) fn arrive(
        &mut self,
        at: Position,
        waiter: W,
        patience: Patience<D>,
        healthy: bool,
    ) -> Arrival<W> {
        if let Some(node) = self.node.as_mut().filter(|node| node.is_kept) {
            // One that is kept has no caller waiting for it.
            if healthy {
                node.is_kept = false;
                return Arrival::Granted(waiter);
            }
            node.give_up();
            return Arrival::GiveUp(waiter);
        }
        let is_held = self.node.is_some_and(|node| !node.is_given_up);
        if patience == Patience::Try && (is_held || self.attempt || !self.waiting.is_empty()) {
            return Arrival::Busy(waiter);
        }
        if let Patience::Until(Some(deadline)) = patience {
            self.deadlines.insert((deadline, at));
        }
        self.waiting.insert(at, Waiting { waiter, patience, attempts: self.attempts });
        Arrival::Waits
    }

    fn take(&mut self, at: Position) -> Option<W> {
        let Waiting { waiter, patience, .. } = self.waiting.remove(&at)?;
        if let Patience::Until(Some(deadline)) = patience {
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

    /// Returns the patience of the attempt that has to be started; `None` if none has to be.
    pub(crate) fn wanted(&self) -> Option<Patience<D>> {
        if self.node.is_some() || self.attempt {
            return None;
        }
        // Those that came after a try are served by the next attempt.
        let first = self.waiting.first_key_value()?.1.patience;
        Some(if first == Patience::Try { first } else { Patience::Until(None) })
    }

    /// Notes that an attempt has been started.
    pub(crate) fn attempt_begins(&mut self) {
        self.attempt = true;
        self.attempts += 1;
    }

    /// Notes that the attempt is no longer under way.
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

    /// Returns how many are before the last that waits: those that wait too, and the holder.
    pub(crate) fn ahead_of_last(&self) -> usize {
        self.waiting.len().saturating_sub(1) + usize::from(self.node.is_some())
    }

    /// Handles the grant of a node to the attempt, as the hold with this number. Returns the first that waits,
    /// which has it; `None` if none does.
    pub(crate) fn granted(&mut self, holder: u64, now: Moment) -> Option<(Position, W)> {
        self.attempt = false;
        self.node = Some(Node {
            holder,
            granted_to: holder,
            is_kept: false,
            is_given_up: false,
            others: Others::Unknown,
            since: now,
            hand_overs: 0,
        });
        self.take_first()
    }

    /// Handles the grant of a node that all that wait share, and this room does not have. Returns them.
    pub(crate) fn granted_to_all(&mut self) -> Vec<W> {
        self.attempt = false;
        self.take_all()
    }

    /// Handles the failure of the attempt. Returns those for which it was made: they waited when it began. For
    /// those that have come since another is made, which has its time and its tries from the beginning.
    pub(crate) fn failed(&mut self, patience: Patience<D>) -> Vec<W> {
        self.attempt = false;
        let is_told = |waiting: &Waiting<W, D>| match patience {
            Patience::Try => waiting.patience == patience,
            Patience::Until(_) => waiting.attempts < self.attempts,
        };
        let told: Vec<_> =
            self.waiting.iter().filter(|(_, waiting)| is_told(waiting)).map(|(at, _)| *at).collect();
        told.into_iter().filter_map(|at| self.take(at)).collect()
    }

    /// Removes all that wait.
    pub(crate) fn take_all(&mut self) -> Vec<W> {
        self.deadlines.clear();
        std::mem::take(&mut self.waiting).into_values().map(|waiting| waiting.waiter).collect()
    }

    /// Returns the earliest deadline of those that wait.
    pub(crate) fn next_deadline(&self) -> Option<D> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
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
            (node.since, node.hand_overs) = (now, 0);
        } else {
            let in_bounds =
                |bounds: HandOff| node.hand_overs < bounds.max && now.since(node.since) < bounds.time;
            if !hand_off.is_some_and(in_bounds) {
                return Next::Delete;
            }
            node.hand_overs += 1;
        }
        (node.holder, node.is_given_up) = (at.number, false);
        self.take(at).map_or(Next::Delete, |waiter| Next::To(at, waiter))
    }

    /// Notes that the hold with this number has lost the node, or left it to be deleted.
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

    /// Notes that there may be others that want this node, or that it is not known any more. Returns whether it
    /// was kept: then it has to be released at once.
    pub(crate) fn others_come(&mut self, granted_to: u64) -> bool {
        self.node.as_mut().filter(|node| node.granted_to == granted_to).is_some_and(Node::give_up)
    }

    /// Keeps no node from here on: no handle can use one. Returns whether one was kept, and so has to be released.
    pub(crate) fn close(&mut self) -> bool {
        self.sticky = false;
        self.give_up()
    }

    /// Notes that the node is kept no longer. Returns whether it was, and so has to be released.
    pub(crate) fn give_up(&mut self) -> bool {
        self.node.as_mut().filter(|node| node.is_kept).is_some_and(Node::give_up)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_room_says_of_those_that_wait_and_of_its_node() {
        let mut room = Room::<u64, u64>::new(None, true);
        assert_eq!((room.ahead_of_last(), room.next_deadline()), (0, None));
        for (number, deadline) in [(1, 30), (2, 20), (3, 40)] {
            let at = Position::new(number, Patience::Until(Some(deadline)), false);
            let arrival = room.arrive(at, number, Patience::Until(Some(deadline)), true);
            assert!(matches!(arrival, Arrival::Waits));
        }
        assert_eq!((room.ahead_of_last(), room.next_deadline()), (2, Some(20)));
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
        let mut room = Room::<u64, ()>::new(None, false);
        for number in [1, 2] {
            let at = Position::new::<()>(number, Patience::Until(None), false);
            assert!(matches!(room.arrive(at, number, Patience::Until(None), true), Arrival::Waits));
        }
        room.attempt_begins();
        assert_eq!(room.granted_to_all(), [1, 2]);
        assert!(!room.is_under_way() && !room.has_node() && !room.is_waited_for());
    }

    /// Nobody has a node that is given up, so that a try says nothing of a holder.
    #[test]
    fn a_try_waits_for_the_end_of_a_node_that_was_kept() {
        let (now, at) =
            (Moment::at(Duration::ZERO), |number| Position::new::<()>(number, Patience::Try, false));
        for healthy in [false, true] {
            let mut room = Room::<u64, ()>::new(None, true);
            room.attempt_begins();
            assert!(room.granted(1, now).is_none());
            assert_eq!(room.arrive(at(2), 2, Patience::Try, true), Arrival::Busy(2));
            assert_eq!(room.released(1, 3, now, true), Next::Keep);
            if healthy {
                assert!(room.give_up());
            } else {
                assert_eq!(room.arrive(at(4), 4, Patience::Try, false), Arrival::GiveUp(4));
            }
            assert_eq!(room.arrive(at(5), 5, Patience::Try, true), Arrival::Waits);
            assert_eq!(room.arrive(at(6), 6, Patience::Try, true), Arrival::Busy(6));
            assert_eq!((room.released(3, 7, now, true), room.wanted()), (Next::Delete, None));
            room.over(3);
            assert_eq!(room.wanted(), Some(Patience::Try));
        }
    }
}
