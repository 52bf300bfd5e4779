//! What came of it.

use std::fmt;

use serde::Serialize;

use crate::common::{Backend, round};
use crate::diary::{Diary, Incident};
use crate::options::{Fault, Lock, Terms};
use crate::protocol::{How, Tally};

/// The result as a program reads it.
#[derive(Debug, Serialize)]
pub(crate) struct Figures {
    backend: Backend,
    reads: u32,
    /// Versions that were made; the table counts them.
    writes: u32,
    /// Reads that saw an older version than the one that was in the table before they began.
    stale_reads: u32,
    /// How many went in while a writer was inside, or to write while anybody was.
    overlaps: u32,
    seconds: f64,
    readers: u32,
    writers: u32,
    /// Reads that found something in the cache.
    hits: u32,
    /// How often a reader put something there.
    fills: u32,
    /// Steps that the cache or the table refused because of an old token.
    fenced: u32,
    /// Reads that went to the table because the lock could not be had in time.
    timed_out: u32,
    /// Writes that a killed writer did not come to.
    lost: u32,
    /// Writes that the table does not know, and the reverse.
    unaccounted: u32,
    /// Workers that ended with an error.
    failed: u32,
    /// At the end.
    table_version: u32,
    cache_version: Option<u32>,
    /// The writer that was killed.
    killed: Option<String>,
    /// The worker that was stopped, and for how long.
    paused: Option<String>,
    paused_seconds: f64,
}

/// The result.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) figures: Figures,
    terms: Terms,
    faults: Vec<Fault>,
    /// By worker.
    tallies: Vec<Tally>,
    diary: Diary,
    pub(crate) first_failure: Option<String>,
}

/// What the workers said, and what is in the table and the cache at the end.
#[derive(Debug)]
pub(crate) struct Findings {
    pub(crate) tallies: Vec<Tally>,
    pub(crate) diary: Diary,
    pub(crate) failures: Vec<String>,
    pub(crate) table_version: u32,
    pub(crate) cache_version: Option<u32>,
}

impl Report {
    pub(crate) fn new(findings: Findings, terms: Terms, faults: Vec<Fault>, backend: Backend) -> Self {
        let Findings { tallies, diary, failures, table_version, cache_version } = findings;
        let mut all = Tally::default();
        tallies.iter().for_each(|&tally| all.add(tally));
        let count =
            |is: fn(How) -> bool| diary.turns.iter().filter(|turn| turn.how.is_some_and(is)).count() as u32;
        let reported = count(|how| matches!(how, How::Written { .. }));
        // The first version was there before.
        let writes = table_version - 1;
        let (mut killed, mut paused) = (None, None);
        for incident in &diary.incidents {
            match *incident {
                Incident::Killed { worker } => killed = Some(terms.name_of(worker)),
                Incident::Paused { worker, from, until } => {
                    paused = Some((terms.name_of(worker), round((until - from) as f64 / 1e9)));
                }
            }
        }
        let figures = Figures {
            backend,
            reads: all.reads,
            writes,
            stale_reads: all.stale,
            overlaps: diary.overlaps(),
            seconds: round(diary.duration()),
            readers: terms.readers,
            writers: terms.writers,
            hits: all.hits,
            fills: count(|how| matches!(how, How::Filled { .. })),
            fenced: count(|how| how == How::Refused),
            timed_out: all.timed_out,
            lost: terms.writes.saturating_sub(writes),
            // Killed after its write, before it could report it: it counts.
            unaccounted: writes.abs_diff(reported).saturating_sub(u32::from(killed.is_some())),
            failed: failures.len() as u32,
            table_version,
            cache_version,
            killed,
            paused_seconds: paused.as_ref().map_or(0.0, |(_, seconds)| *seconds),
            paused: paused.map(|(name, _)| name),
        };
        Self { figures, terms, faults, tallies, diary, first_failure: failures.into_iter().next() }
    }

    /// What must not happen and did, one line each.
    pub(crate) fn broken_promises(&self) -> Vec<String> {
        let figures = &self.figures;
        let left_stale = figures.cache_version.is_some_and(|version| version != figures.table_version);
        let lost = if figures.killed.is_some() || figures.failed > 0 { 0 } else { figures.lost };
        let promises = [
            (figures.stale_reads, "reads were stale"),
            (u32::from(left_stale), "entry is stale in the cache, and stays so until somebody writes again"),
            (figures.overlaps, "times somebody went in while a writer was inside, or to write beside others"),
            (figures.unaccounted, "writes are not accounted for"),
            (lost, "writes are missing"),
        ];
        promises.iter().filter(|(times, _)| *times > 0).map(|(n, what)| format!("{n} {what}")).collect()
    }

    /// What was to be done to a worker and was not.
    pub(crate) fn missed(&self) -> Option<&'static str> {
        let figures = &self.figures;
        self.faults.iter().find_map(|fault| match fault {
            Fault::Kill if figures.killed.is_none() => Some("there was nobody to kill: no writer was inside"),
            Fault::Pause(_) if figures.paused.is_none() => {
                Some("there was nobody to stop: nobody was inside")
            }
            Fault::Pause(_) if figures.fenced == 0 => {
                Some("nobody got the lock while its holder was stopped")
            }
            _ => None,
        })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (figures, terms) = (&self.figures, &self.terms);
        let by = match (terms.lock, figures.backend) {
            (Lock::None, _) => "without a lock",
            (Lock::ReadWrite, Backend::InProcess) => "read-write lock, server in this process",
            (Lock::ReadWrite, Backend::ZooKeeper) => "read-write lock, ZooKeeper",
        };
        writeln!(
            f,
            "{} readers, {} writers, {} writes, {by}: {:.3} s",
            terms.readers, terms.writers, terms.writes, figures.seconds
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
        for (name, number) in rows {
            writeln!(f, "{name:<24}{number:>8}")?;
        }
        writeln!(f)?;
        writeln!(f, "{:<12}{:>12}{:>8}{:>8}", "worker", "had a turn", "reads", "stale")?;
        for (worker, tally) in (0..).zip(&self.tallies) {
            let turns = self.diary.turns.iter().filter(|turn| turn.worker == worker).count();
            writeln!(f, "{:<12}{turns:>12}{:>8}{:>8}", terms.name_of(worker), tally.reads, tally.stale)?;
        }
        writeln!(f)?;
        let cached = match figures.cache_version {
            Some(version) => format!("version {version}"),
            None => "nothing".to_owned(),
        };
        writeln!(f, "at the end: version {} in the table, {cached} in the cache", figures.table_version)?;
        if let Some(writer) = &figures.killed {
            writeln!(f, "{writer} was killed while it had the lock")?;
        }
        if let Some(worker) = &figures.paused {
            let seconds = figures.paused_seconds;
            writeln!(f, "{worker} was stopped for {seconds:.3} s while it had the lock")?;
        }
        Ok(())
    }
}
