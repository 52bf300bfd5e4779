//! The books, and what they prove.

use serde::Serialize;

use crate::common::crew::Outcome;
use crate::common::program::{self, Verdict};
use crate::common::tree::Tree;
use crate::common::{Backend, Error};
use crate::options::{Config, Lock, Options};
use crate::worker::{self, RECORDED, STARTED};

/// The data in ZooKeeper after the last day.
#[derive(Debug)]
pub(crate) struct Books {
    started: Vec<String>,
    recorded: Vec<String>,
    balance: u32,
}

impl Books {
    pub(crate) async fn read(tree: &Tree, root: &str) -> Result<Self, Error> {
        Ok(Self {
            started: tree.children(&format!("{root}/{STARTED}")).await?,
            recorded: tree.children(&format!("{root}/{RECORDED}")).await?,
            balance: tree.number(&worker::balance(root)).await?.0,
        })
    }
}

/// The result as `--json` prints it.
#[derive(Debug, Serialize)]
struct Figures {
    backend: Backend,
    lock: Lock,
    days: u32,
    runs_recorded: u32,
    runs_started: u32,
    /// Nodes that were killed in the job.
    died: u32,
    /// Days of which the job is recorded more than once.
    repeated: u32,
    /// Days of which the job is not recorded.
    missed: u32,
    /// The balance, to which each day adds one.
    balance: u32,
    failed: u32,
    nodes: u32,
    seconds: f64,
}

/// Judges the books.
pub(crate) fn verdict(
    options: &Options,
    config: &Config,
    backend: Backend,
    outcome: &Outcome<()>,
    books: &Books,
) -> Result<Verdict, Error> {
    let records_of = |day: u32| {
        books
            .recorded
            .iter()
            .filter(|name| name.starts_with(&worker::day_prefix(day)))
            .count()
    };
    let days_with =
        |is: fn(usize) -> bool| (1..=config.days).filter(|&day| is(records_of(day))).count() as u32;
    let figures = Figures {
        backend,
        lock: config.lock,
        days: config.days,
        runs_recorded: books.recorded.len() as u32,
        runs_started: books.started.len() as u32,
        died: u32::from(outcome.killed.is_some()),
        repeated: days_with(|records| records > 1),
        missed: days_with(|records| records == 0),
        balance: books.balance,
        failed: outcome.failures.len() as u32,
        nodes: config.nodes,
        seconds: outcome.seconds,
    };
    let promises = [
        (figures.repeated, "days have more than one record"),
        (
            if figures.failed == 0 {
                figures.missed
            } else {
                0
            },
            "days have no record",
        ),
        (
            figures.runs_recorded.abs_diff(figures.balance),
            "is the difference of the balance and the records",
        ),
    ];
    let how = match config.lock {
        Lock::Mutex => "mutex",
        Lock::None => "without a lock",
    };
    let heading = format!(
        "{} days, {} nodes, {how}, {backend}: {:.3} s",
        config.days, config.nodes, figures.seconds
    );
    let text = program::table(
        &heading,
        &[
            ("runs started", &figures.runs_started),
            ("died", &figures.died),
            ("runs recorded", &figures.runs_recorded),
            ("days done more than once", &figures.repeated),
            ("days missed", &figures.missed),
            ("balance", &figures.balance),
            ("failed", &figures.failed),
        ],
        options.run.json.then_some(&figures),
    )?;
    Ok(Verdict {
        claim: format!(
            "the job ran once on each of {} days, although {} nodes woke for it",
            config.days, config.nodes
        ),
        text,
        broken_promises: program::broken(&promises),
        troubles: outcome.troubles(options.kill_one),
    })
}
