//! The order in which a path lock's contenders create their nodes. Pure.
//!
//! Within a session contenders create in the order in which they come. When the session ends, all of them start again
//! in the next, woken in no particular order; here they are made to create in the order in which they had come, so that
//! nobody of this process is overtaken by another of this process.

use std::collections::{BTreeMap, BTreeSet};

/// Who has to create before whom in one path lock. `W` is what wakes one that waits for its turn, by its drop.
#[derive(Debug)]
pub(crate) struct ArrivalOrder<W> {
    session: u64,
    /// The contenders, by the number of their attempts.
    all: BTreeSet<u64>,
    /// Those of them that have not created a node in the session.
    behind: BTreeSet<u64>,
    parked: BTreeMap<u64, W>,
}

impl<W> Default for ArrivalOrder<W> {
    fn default() -> Self {
        Self { session: 0, all: BTreeSet::new(), behind: BTreeSet::new(), parked: BTreeMap::new() }
    }
}

impl<W> ArrivalOrder<W> {
    /// A contender is about to create a node in a session: true if it is its turn. Otherwise `wake` is dropped when it may
    /// be, and it asks again.
    pub(crate) fn is_next(&mut self, number: u64, session: u64, wake: W) -> bool {
        self.enter(number, session);
        // One of an older session fails anyway.
        let next = session < self.session
            || !self.behind.contains(&number)
            || self.behind.first().is_none_or(|first| *first == number);
        if !next {
            self.parked.insert(number, wake);
        }
        next
    }

    /// It contends in this session, and has created nothing in it yet.
    fn enter(&mut self, number: u64, session: u64) {
        if self.all.insert(number) {
            self.behind.insert(number);
        }
        if session > self.session {
            self.session = session;
            self.behind.clone_from(&self.all);
        }
    }

    /// It has sent its create.
    pub(crate) fn sent(&mut self, number: u64, session: u64) {
        if session == self.session {
            self.passed(number);
        }
    }

    /// Its create did not happen, for want of a directory: those that have sent none yet wait until it has tried again, or
    /// steps aside.
    pub(crate) fn failed(&mut self, number: u64, session: u64) {
        if session == self.session && self.all.contains(&number) {
            self.behind.insert(number);
        }
    }

    /// It pauses, for as long as the retry policy says: it keeps no other waiting, and creates when it comes back.
    pub(crate) fn step_aside(&mut self, number: u64) {
        self.passed(number);
    }

    /// It does not contend any more.
    pub(crate) fn leave(&mut self, number: u64) {
        self.all.remove(&number);
        self.passed(number);
    }

    fn passed(&mut self, number: u64) {
        self.behind.remove(&number);
        self.parked.remove(&number);
        if let Some(next) = self.behind.first() {
            self.parked.remove(next);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::rc::Rc;

    #[test]
    fn those_that_come_one_after_the_other_do_not_wait() {
        let mut turns = ArrivalOrder::default();
        for number in [5, 6, 4] {
            assert!(turns.is_next(number, 1, ()));
            turns.sent(number, 1);
            // A repetition in the same session.
            assert!(turns.is_next(number, 1, ()));
        }
    }

    #[test]
    fn in_the_next_session_they_go_in_the_order_in_which_they_came() {
        let mut turns = ArrivalOrder::default();
        for number in 1..=4 {
            assert!(turns.is_next(number, 1, Rc::new(())));
            turns.sent(number, 1);
        }
        turns.leave(2);
        let wakes = [Rc::new(()), Rc::new(()), Rc::new(())];
        assert!(!turns.is_next(4, 2, Rc::clone(&wakes[0])));
        assert!(!turns.is_next(3, 2, Rc::clone(&wakes[1])));
        assert!(turns.is_next(1, 2, Rc::clone(&wakes[2])));
        assert_eq!(wakes.each_ref().map(Rc::strong_count), [2, 2, 1]);
        turns.sent(1, 2);
        // Woken, and on its way; it may also be gone before it asks again.
        assert_eq!(wakes.each_ref().map(Rc::strong_count), [2, 1, 1]);
        turns.leave(3);
        assert_eq!(Rc::strong_count(&wakes[0]), 1);
        assert!(turns.is_next(4, 2, Rc::clone(&wakes[0])));
        turns.sent(4, 2);
        assert!(turns.is_next(9, 2, Rc::clone(&wakes[0])));
    }

    #[test]
    fn one_that_has_to_try_again_keeps_those_behind_it_back() {
        let mut turns = ArrivalOrder::default();
        for number in [1, 2] {
            assert!(turns.is_next(number, 1, ()));
            turns.sent(number, 1);
        }
        // The directory was missing, for both.
        turns.failed(1, 1);
        turns.failed(2, 1);
        assert!(!turns.is_next(3, 1, ()) && !turns.is_next(2, 1, ()));
        assert!(turns.is_next(1, 1, ()));
        turns.sent(1, 1);
        assert!(turns.is_next(2, 1, ()) && !turns.is_next(3, 1, ()));
        // It fails again, and pauses.
        turns.failed(1, 1);
        assert!(!turns.is_next(3, 1, ()));
        turns.step_aside(1);
        turns.sent(2, 1);
        assert!(
            turns.is_next(3, 1, ()) && turns.is_next(1, 1, ()),
            "and does not wait for those that passed it"
        );
        turns.sent(1, 1);
        turns.failed(2, 1);
        // Of a session that is over.
        turns.failed(1, 0);
        turns.sent(2, 1);
        assert!(turns.is_next(3, 1, ()));
    }
}
