//! Who was inside when.

use std::collections::HashMap;

use crate::common::monotonic;
use crate::options::Who;
use crate::protocol::How;

/// All times are [`monotonic`].
#[derive(Debug)]
pub(crate) struct Diary {
    opened: u64,
    closed: u64,
    pub(crate) turns: Vec<Turn>,
    pub(crate) incidents: Vec<Incident>,
    /// By worker: since when it has been inside.
    inside: HashMap<u32, u64>,
}

/// A worker inside.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turn {
    pub(crate) worker: u32,
    pub(crate) who: Who,
    pub(crate) from: u64,
    /// The last moment at which the lock is known to have been held.
    pub(crate) until: u64,
    /// Not, if the worker was killed.
    pub(crate) how: Option<How>,
}

/// What was done to a worker.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Incident {
    Killed { worker: u32 },
    Paused { worker: u32, from: u64, until: u64 },
}

impl Diary {
    pub(crate) fn open() -> Self {
        let now = monotonic();
        Self { opened: now, closed: now, turns: Vec::new(), incidents: Vec::new(), inside: HashMap::new() }
    }

    pub(crate) fn close(&mut self) {
        self.closed = monotonic();
    }

    pub(crate) fn inside(&mut self, worker: u32, from: u64) {
        self.inside.insert(worker, from);
    }

    pub(crate) fn outside(&mut self, worker: u32, who: Who, how: How, until: u64) -> Turn {
        // A writer that was refused at once has not said that it was inside.
        let from = self.inside.remove(&worker).unwrap_or(until);
        let turn = Turn { worker, who, from, until, how: Some(how) };
        self.turns.push(turn);
        turn
    }

    /// A writer was killed inside.
    pub(crate) fn killed(&mut self, worker: u32) {
        self.incidents.push(Incident::Killed { worker });
        if let Some(from) = self.inside.remove(&worker) {
            self.turns.push(Turn { worker, who: Who::Writer, from, until: from, how: None });
        }
    }

    pub(crate) fn was_killed(&self, worker: u32) -> bool {
        self.incidents
            .iter()
            .any(|incident| matches!(incident, Incident::Killed { worker: killed } if *killed == worker))
    }

    /// A moment of the run, in seconds from its beginning.
    pub(crate) fn seconds(&self, moment: u64) -> f64 {
        moment.saturating_sub(self.opened) as f64 / 1e9
    }

    pub(crate) fn duration(&self) -> f64 {
        self.seconds(self.closed)
    }

    /// How many went in while a writer was inside, or to write while anybody was.
    pub(crate) fn overlaps(&self) -> u32 {
        let mut turns: Vec<_> = self.turns.iter().map(|turn| (turn.from, turn.until, turn.who)).collect();
        turns.sort_unstable_by_key(|&(from, ..)| from);
        let (mut overlaps, mut last_writer, mut last) = (0, 0, 0);
        for (from, until, who) in turns {
            let free_since = match who {
                Who::Reader => last_writer,
                Who::Writer => last,
            };
            overlaps += u32::from(from < free_since);
            last = last.max(until);
            if who == Who::Writer {
                last_writer = last_writer.max(until);
            }
        }
        overlaps
    }
}
