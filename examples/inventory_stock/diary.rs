//! What happened at the counters, turn by turn.

use std::collections::HashMap;

use crate::common::monotonic;
use crate::options::Terms;
use crate::protocol::{Event, How, What};

/// All times are [`monotonic`].
#[derive(Debug)]
pub(crate) struct Diary {
    pub(crate) opened: u64,
    pub(crate) closed: u64,
    pub(crate) turns: Vec<Turn>,
    pub(crate) incidents: Vec<Incident>,
    /// By user: the number of their last turn.
    last: HashMap<u32, usize>,
}

/// One user inside.
#[derive(Debug)]
pub(crate) struct Turn {
    pub(crate) worker: u32,
    pub(crate) user: u32,
    pub(crate) product: usize,
    /// For the lock, if there is one.
    pub(crate) waited: Option<u64>,
    pub(crate) from: u64,
    /// The last moment at which the lock is known to have been held.
    pub(crate) until: u64,
    pub(crate) marks: Vec<(u64, Mark)>,
    /// When and how it ended. Not, if the worker was killed.
    pub(crate) ended: Option<(u64, How)>,
}

/// What a holder noticed about its lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    Suspended,
    Held,
    Lost(String),
}

/// What was done to a worker, and what came of it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Incident {
    Killed {
        worker: u32,
        at: u64,
    },
    Paused {
        worker: u32,
        from: u64,
        until: u64,
    },
    /// The servers have deleted the node of its lock.
    Expired {
        worker: u32,
        at: u64,
    },
}

/// A time during which two users who wanted the same product were inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Overlap {
    /// The turn of the second one: its index in [`Diary::turns`].
    pub(crate) turn: usize,
    pub(crate) from: u64,
    pub(crate) until: u64,
}

impl Diary {
    pub(crate) fn open() -> Self {
        let now = monotonic();
        Self { opened: now, closed: now, turns: Vec::new(), incidents: Vec::new(), last: HashMap::new() }
    }

    /// Writes down an event.
    pub(crate) fn write(&mut self, worker: u32, event: &Event, terms: &Terms) {
        let Event { user, at, ref what } = *event;
        if let What::Entered { waited } = *what {
            self.last.insert(user, self.turns.len());
            let product = terms.product_of(user);
            let marks = Vec::new();
            self.turns.push(Turn { worker, user, product, waited, from: at, until: at, marks, ended: None });
        }
        let Some(turn) = self.last.get(&user).and_then(|&number| self.turns.get_mut(number)) else { return };
        match what {
            What::Entered { .. } | What::Saw { .. } => {}
            What::Suspended => turn.marks.push((at, Mark::Suspended)),
            What::Held => turn.marks.push((at, Mark::Held)),
            What::Lost(reason) => {
                // The watch over the lock and its release may both have noticed.
                if !turn.marks.iter().any(|(_, mark)| matches!(mark, Mark::Lost(_))) {
                    turn.marks.push((at, Mark::Lost(reason.clone())));
                }
            }
            What::Ended { how, until } => {
                turn.ended = Some((at, *how));
                turn.until = *until;
            }
        }
    }

    /// A user's last turn.
    pub(crate) fn turn_of(&self, user: u32) -> Option<&Turn> {
        self.last.get(&user).map(|&number| &self.turns[number])
    }

    pub(crate) fn close(&mut self) {
        self.closed = monotonic();
    }

    /// A moment of the sale, in seconds from its beginning.
    pub(crate) fn seconds(&self, moment: u64) -> f64 {
        moment.saturating_sub(self.opened) as f64 / 1e9
    }

    /// The worker that was killed.
    pub(crate) fn killed(&self) -> Option<u32> {
        self.incidents.iter().find_map(|incident| match incident {
            Incident::Killed { worker, .. } => Some(*worker),
            Incident::Paused { .. } | Incident::Expired { .. } => None,
        })
    }

    /// The worker that was stopped, and for how many seconds.
    pub(crate) fn paused(&self) -> Option<(u32, f64)> {
        self.incidents.iter().find_map(|incident| match incident {
            Incident::Paused { worker, from, until } => Some((*worker, (until - from) as f64 / 1e9)),
            Incident::Killed { .. } | Incident::Expired { .. } => None,
        })
    }

    /// The turns that began while another who wanted the same product was still known to have the lock.
    pub(crate) fn overlaps(&self) -> Vec<Overlap> {
        let turns = self.turns.iter().enumerate();
        let mut sections: Vec<_> =
            turns.map(|(index, turn)| (turn.product, turn.from, turn.until, index)).collect();
        sections.sort_unstable();
        let mut overlaps = Vec::new();
        let (mut current, mut latest) = (usize::MAX, 0);
        for (product, from, until, turn) in sections {
            if product != current {
                (current, latest) = (product, 0);
            }
            if from < latest {
                overlaps.push(Overlap { turn, from, until: latest.min(until) });
            }
            latest = latest.max(until);
        }
        overlaps
    }
}
