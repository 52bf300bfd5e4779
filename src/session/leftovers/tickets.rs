//! Counts the work that is left to cleanup, so that a flush can wait for it (docs/protocol.md#flush).

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use tokio::sync::watch;

/// The outstanding work of cleanup, by the number of the attempt that it comes from.
///
/// An attempt gets its number when it begins, and everything that it leaves to cleanup keeps that number,
/// whatever tasks it passes through. So a flush knows by the numbers which work began before it.
#[derive(Debug, Default)]
pub(crate) struct Tickets {
    /// The number of the next attempt.
    pub(crate) next: u64,
    /// How many tickets each number has.
    outstanding: BTreeMap<u64, usize>,
}

impl Tickets {
    /// Returns how many attempts have work outstanding.
    pub(crate) fn count(&self) -> usize {
        self.outstanding.len()
    }

    /// Returns how many attempts with a number below `limit` have work outstanding.
    pub(crate) fn count_before(&self, limit: u64) -> usize {
        self.outstanding.range(..limit).count()
    }

    /// Returns the number of the next attempt.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// Returns whether no attempt with a number below `limit` has work outstanding.
    pub(crate) fn none_before(&self, limit: u64) -> bool {
        self.outstanding.first_key_value().is_none_or(|(first, _)| *first >= limit)
    }
}

/// One piece of outstanding work: counted in [`Tickets`] until it is dropped.
#[derive(Debug)]
pub(crate) struct Ticket {
    number: u64,
    tickets: watch::Sender<Tickets>,
}

impl Ticket {
    pub(crate) fn new(tickets: &watch::Sender<Tickets>, number: u64) -> Self {
        tickets.send_modify(|tickets| *tickets.outstanding.entry(number).or_default() += 1);
        Self { number, tickets: tickets.clone() }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.tickets.send_modify(|tickets| {
            if let Entry::Occupied(mut count) = tickets.outstanding.entry(self.number) {
                *count.get_mut() -= 1;
                if *count.get() == 0 {
                    count.remove();
                }
            }
        });
    }
}
