//! The numbers of one client. A session, an attempt, a hold and a node each have a separate type,
//! so that none is taken for another. Pure.
//!
//! Attempts, and callers that wait for one together, are numbered in the order of their arrival.
//! The numbers of holds and nodes derive from that: a hold has the number of the attempt or the
//! caller that it was granted to, and a node that of the first hold by which this client had it. A
//! reader that shares a node has a hold with a new number of the same series. Sessions are counted
//! separately, from 1.
//!
//! ```text
//!   attempt 7, for the callers 5, 6 and 8  -->  hold 7 of node 7, for the caller 5
//!   a release passes the node on           -->  hold 6 of node 7, for the caller 6
//! ```

/// A session of a client, in their order. The default is before the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SessionNumber(u64);

impl SessionNumber {
    pub(crate) const FIRST: Self = Self(1);

    pub(crate) fn next(self) -> Self {
        // A client cannot have 2^64 sessions.
        Self(self.0 + 1)
    }

    /// Returns the value, for the log and the observer.
    pub(crate) fn get(self) -> u64 {
        self.0
    }
}

/// An attempt, or a caller that waits with others. Rises in the order of arrival.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct AttemptNumber(u64);

impl AttemptNumber {
    /// Returns the number of the attempt that comes this many numbers later.
    pub(crate) fn after(self, count: u32) -> Self {
        Self(self.0 + u64::from(count))
    }

    /// Returns the numbers of the holds that an attempt may get which has so many numbers, this one
    /// and those that follow.
    pub(crate) fn holds(self, count: u32) -> impl Iterator<Item = HoldNumber> {
        // Only a call for several permits has several numbers, because each permit is a separate
        // hold. The numbers are taken together when the call begins, so no other attempt has one of
        // them.
        (0..count).map(move |later| HoldNumber::of_attempt(self.after(later)))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct HoldNumber(AttemptNumber);

impl HoldNumber {
    pub(crate) fn of_attempt(attempt: AttemptNumber) -> Self {
        Self(attempt)
    }

    /// Returns the number of the attempt, or of the caller, that the hold was granted to. For a
    /// reader that shares a node, this is a new number of the same series.
    pub(crate) fn attempt(self) -> AttemptNumber {
        self.0
    }
}

/// A node by which this client has a lock: exchanged by a conversion, it keeps its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct NodeNumber(HoldNumber);

impl NodeNumber {
    pub(crate) fn of_first_hold(hold: HoldNumber) -> Self {
        Self(hold)
    }
}

/// Numbers by their value, for tests.
#[cfg(test)]
pub(crate) mod by_value {
    use super::{AttemptNumber, HoldNumber, SessionNumber};

    pub(crate) const fn session_number(value: u64) -> SessionNumber {
        SessionNumber(value)
    }

    pub(crate) const fn attempt_number(value: u64) -> AttemptNumber {
        AttemptNumber(value)
    }

    pub(crate) const fn hold_number(value: u64) -> HoldNumber {
        HoldNumber(attempt_number(value))
    }
}

#[cfg(test)]
mod tests {
    use super::SessionNumber;
    use super::by_value::{attempt_number, hold_number};

    #[test]
    fn later_numbers_follow() {
        assert_eq!(SessionNumber::default().next(), SessionNumber::FIRST);
        assert_eq!(SessionNumber::FIRST.next().get(), 2);
        assert_eq!(attempt_number(5).after(3), attempt_number(8));
    }

    #[test]
    fn holds_have_numbers_of_attempts() {
        let holds = [hold_number(5), hold_number(6), hold_number(7)];
        assert!(attempt_number(5).holds(3).eq(holds));
        assert_eq!(hold_number(7).attempt(), attempt_number(7));
    }
}
