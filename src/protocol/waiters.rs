//! The callers of one client that wait for a lock of one kind, in the order of their arrival, and
//! the attempt that is made for them. Pure.
//!
//! While callers wait and there is no open node, one attempt is under way on behalf of all of them
//! (docs/protocol.md#hand-off), so any number of callers cost one node, one watch and one list. An
//! attempt has no deadline. When a caller's deadline has passed, it leaves, and the attempt
//! continues for the others. When no caller waits any more, the attempt is cancelled.
//!
//! The *open* node is the node that the next caller may get: readers join it, and a writer gets it
//! when the previous writer releases it. The [state of the path](crate::protocol::path_state) opens
//! nodes and closes them.
//!
//! A failed attempt ends the wait of the callers that waited when it began. Later callers get
//! another attempt, with the full time and number of tries.

use std::collections::{BTreeMap, BTreeSet};

use crate::protocol::numbers::{AttemptNumber, NodeNumber};

/// The order of arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Arrival {
    /// `false` sorts before `true`, so that a caller whose lock was lost before the caller received
    /// it goes before later callers.
    is_new: bool,
    /// The number of the caller. A hold that is handed over to the caller has this number too.
    number: AttemptNumber,
}

impl Arrival {
    pub(crate) fn new(number: AttemptNumber, again: bool) -> Self {
        // A call that asks again gets a new number, behind those of the callers that have arrived
        // in the meantime. Only the flag puts it before them.
        Self {
            is_new: !again,
            number,
        }
    }

    pub(crate) fn number(self) -> AttemptNumber {
        self.number
    }
}

struct WaitingCaller<W, D> {
    waiter: W,
    deadline: Option<D>,
    /// The number of attempts that had begun when the caller arrived.
    attempts: u64,
}

/// The waiting callers of one kind. `W` is the waiting caller, `D` its deadline.
pub(crate) struct Waiters<W, D> {
    waiting: BTreeMap<Arrival, WaitingCaller<W, D>>,
    deadlines: BTreeSet<(D, Arrival)>,
    /// The node that callers may have next.
    open: Option<NodeNumber>,
    /// Whether an attempt is under way.
    attempt: bool,
    /// The number of attempts that have begun.
    attempts: u64,
}

impl<W, D> Default for Waiters<W, D> {
    fn default() -> Self {
        Self {
            waiting: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            open: None,
            attempt: false,
            attempts: 0,
        }
    }
}

impl<W, D: Copy + Ord> Waiters<W, D> {
    /// Adds a caller that waits.
    pub(super) fn wait(&mut self, at: Arrival, waiter: W, deadline: Option<D>) {
        self.deadlines
            .extend(deadline.map(|deadline| (deadline, at)));
        // An attempt that begins from here on is made for this caller too. The failure of one that
        // is under way is not reported to this caller.
        let attempts = self.attempts;
        self.waiting.insert(
            at,
            WaitingCaller {
                waiter,
                deadline,
                attempts,
            },
        );
    }

    /// Removes a caller that no longer waits, because it has left or has its answer. Returns `None`
    /// if the caller did not wait.
    pub(crate) fn take(&mut self, at: Arrival) -> Option<W> {
        let WaitingCaller {
            waiter, deadline, ..
        } = self.waiting.remove(&at)?;
        // The set of deadlines has only callers that wait, so `next_late` never finds one that has
        // left.
        if let Some(deadline) = deadline {
            self.deadlines.remove(&(deadline, at));
        }
        Some(waiter)
    }

    pub(super) fn take_first(&mut self) -> Option<(Arrival, W)> {
        let at = *self.waiting.first_key_value()?.0;
        Some((at, self.take(at)?))
    }

    /// Returns whether an attempt must be started.
    pub(crate) fn wants_attempt(&self) -> bool {
        // With an open node, the callers get that node when its holder releases it. An attempt
        // would create a second node of this client, which would wait for the first.
        self.open.is_none() && !self.attempt && !self.waiting.is_empty()
    }

    /// Returns whether a node that was granted to a separate call may be opened, which requires
    /// that there is no open node, and none is about to be granted.
    pub(super) fn may_open(&self) -> bool {
        // If callers wait, the task is about to begin an attempt for them, and its node will be the
        // open one.
        self.open.is_none() && !self.attempt && self.waiting.is_empty()
    }

    pub(crate) fn attempt_begins(&mut self) {
        // The count distinguishes the callers that waited by now from later ones.
        self.attempt = true;
        self.attempts += 1;
    }

    pub(crate) fn attempt_ends(&mut self) {
        self.attempt = false;
    }

    pub(crate) fn is_under_way(&self) -> bool {
        self.attempt
    }

    /// Marks an attempt that no caller waits for as no longer under way. Returns whether there was
    /// such an attempt, which the caller of this function must cancel.
    pub(crate) fn abandon_attempt(&mut self) -> bool {
        // The attempt counts as ended at once, so that another attempt starts for a caller that
        // arrives while this one is being cancelled.
        let is_abandoned = self.attempt && self.waiting.is_empty();
        self.attempt &= !is_abandoned;
        is_abandoned
    }

    pub(crate) fn is_waited_for(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Returns how many callers are before the last waiting caller: the other waiting callers, and
    /// the holder.
    pub(crate) fn ahead_of_last(&self) -> usize {
        // The holder of a closed node is not counted, because none of these callers gets that node.
        self.waiting.len().saturating_sub(1) + usize::from(self.has_open_node())
    }

    /// Handles the failure of the attempt. Returns the callers for which the attempt was made,
    /// which are those that waited when it began.
    pub(crate) fn failed(&mut self) -> Vec<W> {
        self.attempt = false;
        // A caller that arrived later has not yet had its full time, or its number of tries.
        let is_failed = |waiting: &WaitingCaller<W, D>| waiting.attempts < self.attempts;
        let failed: Vec<_> = self
            .waiting
            .iter()
            .filter(|(_, waiting)| is_failed(waiting))
            .map(|(at, _)| *at)
            .collect();
        failed.into_iter().filter_map(|at| self.take(at)).collect()
    }

    pub(crate) fn take_all(&mut self) -> Vec<W> {
        // The order of arrival is kept, because the map is ordered.
        self.deadlines.clear();
        std::mem::take(&mut self.waiting)
            .into_values()
            .map(|waiting| waiting.waiter)
            .collect()
    }

    pub(crate) fn first(&self) -> Option<&W> {
        self.waiting.values().next().map(|waiting| &waiting.waiter)
    }

    /// Returns the waiting caller with the earliest deadline, and that deadline.
    pub(crate) fn next_late(&self) -> Option<(D, &W)> {
        let (deadline, at) = self.deadlines.first()?;
        Some((*deadline, &self.waiting.get(at)?.waiter))
    }

    /// Removes the callers whose deadline has passed. Returns each with the number of callers that
    /// were before it. One pass over the queue handles all of them. The task's timer fires at most
    /// once per millisecond, so there is at most one pass per millisecond, however many deadlines
    /// there are.
    pub(crate) fn late(&mut self, now: D) -> Vec<(W, usize)> {
        let over: BTreeSet<_> = self
            .deadlines
            .iter()
            .take_while(|(deadline, _)| *deadline <= now)
            .map(|(_, at)| *at)
            .collect();
        // Each error reports how many callers were before its caller, so the ranks are counted
        // before any of these callers is removed. Callers behind the last of them need not be
        // counted.
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

    /// Makes this the node that callers get next.
    pub(super) fn open(&mut self, node: NodeNumber) {
        self.open = Some(node);
    }

    /// Closes the open node: callers that arrive or wait get the next node.
    pub(crate) fn close(&mut self) {
        self.open = None;
    }

    /// Closes this node, so that no further caller gets it.
    pub(super) fn close_node(&mut self, node: NodeNumber) {
        // A late report about an earlier node must not close the node that is open by now.
        self.open.take_if(|open| *open == node);
    }

    pub(super) fn open_node(&self) -> Option<NodeNumber> {
        self.open
    }

    pub(crate) fn has_open_node(&self) -> bool {
        self.open.is_some()
    }

    pub(crate) fn is_open(&self, node: NodeNumber) -> bool {
        self.open == Some(node)
    }
}
