//! The result of a run.

use std::fmt;

use serde::Serialize;

use crate::common::{Backend, round};
use crate::history::{History, Incident};
use crate::options::{Config, Fault, Lock};
use crate::protocol::{Ending, Tally};

/// The result as `--json` prints it.
#[derive(Debug, Serialize)]
pub(crate) struct Figures {
    backend: Backend,
    reads: u32,
    /// Versions that were written; the table counts them.
    writes: u32,
    /// Reads of an older version than the one that was in the table before they began.
    stale_reads: u32,
    /// Readers that went in while a writer was inside, and writers that went in while any other
    /// was.
    overlaps: u32,
    seconds: f64,
    readers: u32,
    writers: u32,
    /// Reads that found an entry in the cache.
    hits: u32,
    /// Entries that readers put there.
    fills: u32,
    /// Steps that the cache or the table refused because of an old token.
    fenced: u32,
    /// Reads that went to the table because the lock was not granted in time.
    timed_out: u32,
    /// Writes that a killed writer did not do.
    lost: u32,
    /// Writes that were reported and are not in the table, or the reverse.
    unaccounted: u32,
    /// Workers that ended with an error.
    failed: u32,
    /// The version in the table after the run.
    table_version: u32,
    cache_version: Option<u32>,
    /// The writer that was killed.
    killed: Option<String>,
    /// The worker that was paused, and for how long.
    paused: Option<String>,
    paused_seconds: f64,
}

/// The result.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) figures: Figures,
    config: Config,
    faults: Vec<Fault>,
    /// The tallies by worker.
    tallies: Vec<Tally>,
    history: History,
    first_failure: Option<String>,
}

/// The workers' reports, and the contents of the table and the cache after the run.
#[derive(Debug)]
pub(crate) struct Findings {
    pub(crate) tallies: Vec<Tally>,
    pub(crate) history: History,
    pub(crate) failures: Vec<String>,
    pub(crate) table_version: u32,
    pub(crate) cache_version: Option<u32>,
}

impl Report {
    /// Compares the reports with the table.
    pub(crate) fn new(
        findings: Findings,
        config: Config,
        faults: Vec<Fault>,
        backend: Backend,
    ) -> Self {
        let Findings {
            tallies,
            history,
            failures,
            table_version,
            cache_version,
        } = findings;
        let mut all = Tally::default();
        tallies.iter().for_each(|&tally| all.add(tally));
        let count = |is: fn(Ending) -> bool| {
            history
                .sections
                .iter()
                .filter(|section| section.ending.is_some_and(is))
                .count() as u32
        };
        let reported = count(|ending| matches!(ending, Ending::Written { .. }));
        // The table had its first version before the run.
        let writes = table_version - 1;
        let (mut killed, mut paused) = (None, None);
        for incident in &history.incidents {
            match *incident {
                Incident::Killed { worker } => killed = Some(config.name_of(worker)),
                Incident::Paused {
                    worker,
                    from,
                    until,
                } => {
                    paused = Some((config.name_of(worker), round((until - from) as f64 / 1e9)));
                }
            }
        }
        let figures = Figures {
            backend,
            reads: all.reads,
            writes,
            stale_reads: all.stale,
            overlaps: history.overlaps(),
            seconds: round(history.duration()),
            readers: config.readers,
            writers: config.writers,
            hits: all.hits,
            fills: count(|ending| matches!(ending, Ending::Filled { .. })),
            fenced: count(|ending| ending == Ending::Refused),
            timed_out: all.timed_out,
            lost: config.writes.saturating_sub(writes),
            // A writer that was killed between its write and the report of it: the write counts.
            unaccounted: writes
                .abs_diff(reported)
                .saturating_sub(u32::from(killed.is_some())),
            failed: failures.len() as u32,
            table_version,
            cache_version,
            killed,
            paused_seconds: paused.as_ref().map_or(0.0, |(_, seconds)| *seconds),
            paused: paused.map(|(name, _)| name),
        };
        Self {
            figures,
            config,
            faults,
            tallies,
            history,
            first_failure: failures.into_iter().next(),
        }
    }

    /// Returns what holds if nothing is broken.
    pub(crate) fn claim(&self) -> String {
        let Figures { reads, writes, .. } = &self.figures;
        format!("none of {reads} reads was stale, over {writes} writes")
    }

    /// Returns what must not happen and did, a line each.
    pub(crate) fn broken_promises(&self) -> Vec<String> {
        let figures = &self.figures;
        let left_stale = figures
            .cache_version
            .is_some_and(|version| version != figures.table_version);
        let lost = if figures.killed.is_some() || figures.failed > 0 {
            0
        } else {
            figures.lost
        };
        let promises = [
            (figures.stale_reads, "reads were stale"),
            (
                u32::from(left_stale),
                "entry is stale in the cache, and stays there until the next write",
            ),
            (
                figures.overlaps,
                "times a worker went in while a writer was inside, or to write beside others",
            ),
            (figures.unaccounted, "writes are not accounted for"),
            (lost, "writes are missing"),
        ];
        promises
            .iter()
            .filter(|(times, _)| *times > 0)
            .map(|(n, what)| format!("{n} {what}"))
            .collect()
    }

    /// Returns what could not be done as it was asked for, a line each.
    pub(crate) fn troubles(&self) -> Vec<String> {
        let failure = self.first_failure.as_ref();
        let failure = failure.map(|failure| format!("a worker failed: {failure}"));
        failure
            .into_iter()
            .chain(self.missed_fault().map(str::to_owned))
            .collect()
    }

    /// Returns why a fault that was asked for did not happen, or had no effect; `None` if all did.
    fn missed_fault(&self) -> Option<&'static str> {
        let figures = &self.figures;
        self.faults.iter().find_map(|fault| match fault {
            Fault::Kill if figures.killed.is_none() => {
                Some("there was nobody to kill: no writer was inside")
            }
            Fault::Pause(_) if figures.paused.is_none() => {
                Some("there was nobody to stop: no worker was inside")
            }
            Fault::Pause(_) if figures.fenced == 0 => {
                Some("no other worker got the lock while its holder was stopped")
            }
            _ => None,
        })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (figures, config) = (&self.figures, &self.config);
        let by = match (config.lock, figures.backend) {
            (Lock::None, _) => "without a lock",
            (Lock::ReadWrite, Backend::InProcess) => "read-write lock, server in this process",
            (Lock::ReadWrite, Backend::ZooKeeper) => "read-write lock, ZooKeeper",
        };
        writeln!(
            f,
            "{} readers, {} writers, {} writes, {by}: {:.3} s",
            config.readers, config.writers, config.writes, figures.seconds
        )?;
        writeln!(f)?;
        let rows = [
            ("reads", figures.reads),
            ("from the cache", figures.hits),
            ("put into the cache", figures.fills),
            ("writes", figures.writes),
            ("lost with their writer", figures.lost),
            ("timed out", figures.timed_out),
            ("failed", figures.failed),
            ("not accounted for", figures.unaccounted),
            ("stale reads", figures.stale_reads),
            ("beside a writer", figures.overlaps),
            ("refused by the token", figures.fenced),
        ];
        for (name, number) in rows.into_iter().filter(|(_, number)| *number > 0) {
            writeln!(f, "{name:<24}{number:>8}")?;
        }
        writeln!(f)?;
        writeln!(
            f,
            "{:<12}{:>12}{:>8}{:>8}",
            "worker", "was inside", "reads", "stale"
        )?;
        for (worker, tally) in (0..).zip(&self.tallies) {
            let sections = self
                .history
                .sections
                .iter()
                .filter(|section| section.worker == worker)
                .count();
            writeln!(
                f,
                "{:<12}{sections:>12}{:>8}{:>8}",
                config.name_of(worker),
                tally.reads,
                tally.stale
            )?;
        }
        writeln!(f)?;
        let cached = match figures.cache_version {
            Some(version) => format!("version {version}"),
            None => "nothing".to_owned(),
        };
        writeln!(
            f,
            "at the end: version {} in the table, {cached} in the cache",
            figures.table_version
        )?;
        if let Some(writer) = &figures.killed {
            writeln!(f, "{writer} was killed while it had the lock")?;
        }
        if let Some(worker) = &figures.paused {
            let seconds = figures.paused_seconds;
            writeln!(
                f,
                "{worker} was stopped for {seconds:.3} s while it had the lock"
            )?;
        }
        Ok(())
    }
}
