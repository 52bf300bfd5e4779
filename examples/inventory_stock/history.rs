//! The history of a run: the critical sections, and the faults of workers.

use std::collections::HashMap;

use crate::common::monotonic;
use crate::options::Config;
use crate::protocol::{Ending, Event, EventKind};

/// All times are [`monotonic`].
#[derive(Debug)]
pub(crate) struct History {
    pub(crate) started: u64,
    pub(crate) finished: u64,
    pub(crate) sections: Vec<Section>,
    pub(crate) incidents: Vec<Incident>,
    /// The index of the last section of each user.
    last: HashMap<u32, usize>,
}

/// A critical section of one user, with the lock or without one.
#[derive(Debug)]
pub(crate) struct Section {
    pub(crate) worker: u32,
    pub(crate) user: u32,
    pub(crate) product: usize,
    /// How long the user waited for the lock, if there is one.
    pub(crate) waited: Option<u64>,
    pub(crate) from: u64,
    /// The last moment at which the lock is known to have been held.
    pub(crate) until: u64,
    pub(crate) marks: Vec<(u64, Mark)>,
    /// When and how it ended; `None` if the worker was killed inside.
    pub(crate) ended: Option<(u64, Ending)>,
}

/// The guard's information about the lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    Suspended,
    Held,
    Lost(String),
}

/// A fault of a worker, and its result.
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
    /// The session of the worker has expired: the servers have deleted its lock's node.
    Expired {
        worker: u32,
        at: u64,
    },
}

/// A time during which two users who wanted the same product were inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Overlap {
    /// The section that began last: its index in [`History::sections`].
    pub(crate) section: usize,
    pub(crate) from: u64,
    pub(crate) until: u64,
}

impl History {
    /// Starts a history now.
    pub(crate) fn start() -> Self {
        let now = monotonic();
        Self {
            started: now,
            finished: now,
            sections: Vec::new(),
            incidents: Vec::new(),
            last: HashMap::new(),
        }
    }

    /// Records an event that a worker has reported.
    pub(crate) fn record(&mut self, worker: u32, event: &Event, config: &Config) {
        let Event { user, at, ref kind } = *event;
        if let EventKind::Entered { waited } = *kind {
            self.last.insert(user, self.sections.len());
            self.sections.push(Section {
                worker,
                user,
                product: config.product_of(user),
                waited,
                from: at,
                until: at,
                marks: Vec::new(),
                ended: None,
            });
        }
        let Some(section) = self
            .last
            .get(&user)
            .and_then(|&index| self.sections.get_mut(index))
        else {
            return;
        };
        match kind {
            EventKind::Entered { .. } | EventKind::Read { .. } => {}
            EventKind::Suspended => section.marks.push((at, Mark::Suspended)),
            EventKind::Held => section.marks.push((at, Mark::Held)),
            EventKind::Lost(reason) => {
                // The guard and its release may both have reported the loss.
                if !section
                    .marks
                    .iter()
                    .any(|(_, mark)| matches!(mark, Mark::Lost(_)))
                {
                    section.marks.push((at, Mark::Lost(reason.clone())));
                }
            }
            EventKind::Ended { ending, until } => {
                section.ended = Some((at, *ending));
                section.until = *until;
            }
        }
    }

    /// Returns a user's last section.
    pub(crate) fn last_of(&self, user: u32) -> Option<&Section> {
        self.last.get(&user).map(|&index| &self.sections[index])
    }

    /// Notes that the sale is over.
    pub(crate) fn finish(&mut self) {
        self.finished = monotonic();
    }

    /// Converts a moment to seconds since the start.
    pub(crate) fn seconds(&self, moment: u64) -> f64 {
        moment.saturating_sub(self.started) as f64 / 1e9
    }

    /// Returns the worker that was killed, if one was.
    pub(crate) fn killed(&self) -> Option<u32> {
        self.incidents.iter().find_map(|incident| match incident {
            Incident::Killed { worker, .. } => Some(*worker),
            Incident::Paused { .. } | Incident::Expired { .. } => None,
        })
    }

    /// Returns the worker that was paused, if one was, and for how many seconds.
    pub(crate) fn paused(&self) -> Option<(u32, f64)> {
        self.incidents.iter().find_map(|incident| match incident {
            Incident::Paused {
                worker,
                from,
                until,
            } => Some((*worker, (until - from) as f64 / 1e9)),
            Incident::Killed { .. } | Incident::Expired { .. } => None,
        })
    }

    /// Returns each section that began while another of the same product was still known to have
    /// the lock.
    pub(crate) fn overlaps(&self) -> Vec<Overlap> {
        let sections = self.sections.iter().enumerate();
        let mut sections: Vec<_> = sections
            .map(|(index, section)| (section.product, section.from, section.until, index))
            .collect();
        sections.sort_unstable();
        let mut overlaps = Vec::new();
        let (mut current, mut latest) = (usize::MAX, 0);
        for (product, from, until, section) in sections {
            if product != current {
                (current, latest) = (product, 0);
            }
            if from < latest {
                overlaps.push(Overlap {
                    section,
                    from,
                    until: latest.min(until),
                });
            }
            latest = latest.max(until);
        }
        overlaps
    }
}
