//! The history of a run: the critical sections, and the faults of workers.

use std::collections::HashMap;

use crate::common::monotonic;
use crate::options::Role;
use crate::protocol::Ending;

/// All times are [`monotonic`].
#[derive(Debug)]
pub(crate) struct History {
    started: u64,
    finished: u64,
    pub(crate) sections: Vec<Section>,
    pub(crate) incidents: Vec<Incident>,
    /// The workers that are inside, and since when.
    inside: HashMap<u32, u64>,
}

/// A critical section of one worker.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Section {
    pub(crate) worker: u32,
    pub(crate) role: Role,
    pub(crate) from: u64,
    /// The last moment at which the lock is known to have been held.
    pub(crate) until: u64,
    /// `None` if the worker was killed inside.
    pub(crate) ending: Option<Ending>,
}

/// A fault of a worker.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Incident {
    Killed { worker: u32 },
    Paused { worker: u32, from: u64, until: u64 },
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
            inside: HashMap::new(),
        }
    }

    /// Notes that the run is over.
    pub(crate) fn finish(&mut self) {
        self.finished = monotonic();
    }

    /// Records that a worker is inside.
    pub(crate) fn entered(&mut self, worker: u32, from: u64) {
        self.inside.insert(worker, from);
    }

    /// Records the end of a critical section, and returns it.
    pub(crate) fn left(&mut self, worker: u32, role: Role, ending: Ending, until: u64) -> Section {
        // A worker that was refused at its first step has not reported that it was inside.
        let from = self.inside.remove(&worker).unwrap_or(until);
        let section = Section {
            worker,
            role,
            from,
            until,
            ending: Some(ending),
        };
        self.sections.push(section);
        section
    }

    /// Records that a writer was killed inside.
    pub(crate) fn killed(&mut self, worker: u32) {
        self.incidents.push(Incident::Killed { worker });
        if let Some(from) = self.inside.remove(&worker) {
            self.sections.push(Section {
                worker,
                role: Role::Writer,
                from,
                until: from,
                ending: None,
            });
        }
    }

    /// Returns whether a worker was killed.
    pub(crate) fn was_killed(&self, worker: u32) -> bool {
        self.incidents.iter().any(
            |incident| matches!(incident, Incident::Killed { worker: killed } if *killed == worker),
        )
    }

    /// Converts a moment to seconds since the start.
    pub(crate) fn seconds(&self, moment: u64) -> f64 {
        moment.saturating_sub(self.started) as f64 / 1e9
    }

    /// Returns how many seconds the run took.
    pub(crate) fn duration(&self) -> f64 {
        self.seconds(self.finished)
    }

    /// Counts the readers that went in while a writer was inside, and the writers that went in
    /// while any other was.
    pub(crate) fn overlaps(&self) -> u32 {
        let sections = self.sections.iter();
        let mut sections: Vec<_> = sections
            .map(|section| (section.from, section.until, section.role))
            .collect();
        sections.sort_unstable_by_key(|&(from, ..)| from);
        let (mut overlaps, mut last_writer, mut last) = (0, 0, 0);
        for (from, until, role) in sections {
            let free_since = match role {
                Role::Reader => last_writer,
                Role::Writer => last,
            };
            overlaps += u32::from(from < free_since);
            last = last.max(until);
            if role == Role::Writer {
                last_writer = last_writer.max(until);
            }
        }
        overlaps
    }
}
