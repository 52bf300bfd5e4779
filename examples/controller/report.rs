//! The findings of the run.

use serde::Serialize;

use crate::common::program::{self, Verdict};
use crate::common::{Backend, Error};
use crate::options::{Config, Options, Recipe};
use crate::run::Outcome;
use crate::store::Audit;
use crate::worker::PROCESSES;

/// The result as `--json` prints it.
#[derive(Debug, Serialize)]
struct Figures {
    backend: Backend,
    recipe: Recipe,
    fence: bool,
    /// How often one of the processes led.
    terms: u32,
    /// How often two led at once.
    overlaps: u32,
    /// Writes of former leaders that the store refused.
    fenced: u32,
    /// Writes of former leaders that it took.
    stale_writes: u32,
    terms_out_of_order: u32,
    writes: u32,
    failed: u32,
    seconds: f64,
}

/// Judges the run.
pub(crate) fn verdict(
    options: &Options,
    config: &Config,
    backend: Backend,
    outcome: &Outcome,
    audit: &Audit,
) -> Result<Verdict, Error> {
    let figures = Figures {
        backend,
        recipe: config.recipe,
        fence: config.fence,
        terms: audit.terms,
        overlaps: outcome.overlaps,
        fenced: outcome.fenced,
        stale_writes: audit.stale_writes,
        terms_out_of_order: audit.terms_out_of_order,
        writes: audit.writes,
        failed: outcome.failures.len() as u32,
        seconds: outcome.seconds,
    };
    let promises = [
        (figures.overlaps, "times two led at once"),
        (figures.stale_writes, "writes of former leaders were taken"),
        (
            figures.terms_out_of_order,
            "terms are not greater than the one before",
        ),
    ];
    let how = match config.recipe {
        Recipe::Selector => "LeaderSelector",
        Recipe::Latch => "LeaderLatch",
    };
    let heading = format!(
        "{PROCESSES} processes, {how}, {backend}: {:.3} s",
        figures.seconds
    );
    let text = program::table(
        &heading,
        &[
            ("terms", &figures.terms),
            ("two led at once", &figures.overlaps),
            ("writes taken", &figures.writes),
            ("stale writes refused", &figures.fenced),
            ("stale writes taken", &figures.stale_writes),
            ("failed", &figures.failed),
        ],
        options.run.json.then_some(&figures),
    )?;
    let missing = [
        (!outcome.killed, "no leader was killed"),
        (!outcome.woken, "no leader was stopped and woken"),
        (
            outcome.done + 1 != PROCESSES,
            "not every process but the one that was killed has led to the end",
        ),
    ];
    let missing = missing
        .into_iter()
        .filter(|(is_missing, _)| *is_missing)
        .map(|(_, what)| what.to_owned());
    let fenced = figures.fenced;
    Ok(Verdict {
        claim: format!(
            "one leader at a time in {} terms; stale writes refused: {fenced}",
            audit.terms
        ),
        text,
        broken_promises: program::broken(&promises),
        troubles: outcome
            .failures
            .first()
            .cloned()
            .into_iter()
            .chain(missing)
            .collect(),
    })
}
