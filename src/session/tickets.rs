//! Counts what is to be cleaned up, so that a flush can wait for it.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use tokio::sync::watch;

/// What is to be cleaned up and is not yet, by the number of the attempt that it comes from.
///
/// An attempt has its number from its beginning, and whatever it leaves to others bears it: a flush knows by the number
/// what began before it, through however many hands that goes.
#[derive(Debug, Default)]
pub(crate) struct Tickets {
    pub(super) next: u64,
    /// How many tickets there are of each number.
    outstanding: BTreeMap<u64, usize>,
}

impl Tickets {
    /// How many attempts have left something.
    pub(crate) fn count(&self) -> usize {
        self.outstanding.len()
    }

    /// How many of those with a number below `limit`.
    pub(crate) fn count_before(&self, limit: u64) -> usize {
        self.outstanding.range(..limit).count()
    }

    /// The number that the next one gets.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// Whether there is none with a number below `limit`.
    pub(crate) fn none_before(&self, limit: u64) -> bool {
        self.outstanding.first_key_value().is_none_or(|(first, _)| *first >= limit)
    }
}

/// One of [`Tickets`].
#[derive(Debug)]
pub(crate) struct Ticket {
    number: u64,
    tickets: watch::Sender<Tickets>,
}

impl Ticket {
    pub(super) fn new(tickets: &watch::Sender<Tickets>, number: u64) -> Self {
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
