//! The orders that exist, and what they prove.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::common::crew::Outcome;
use crate::common::program::{self, Verdict};
use crate::common::tree::Tree;
use crate::common::{Backend, Error};
use crate::options::{Config, Lock, Options};
use crate::worker;

/// The contents of the nodes of the orders.
#[derive(Debug, Default)]
pub(crate) struct Orders {
    numbers: Vec<u32>,
    /// The processes, from 0, that had to place the orders which are not there.
    missing: Vec<u32>,
}

impl Orders {
    /// Reads all orders.
    pub(crate) async fn read(tree: &Tree, root: &str, config: &Config) -> Result<Self, Error> {
        let mut orders = Self::default();
        for order in 0..config.orders {
            match tree.read(&worker::node_of(root, order)).await? {
                Some((number, _)) => orders.numbers.push(number.parse()?),
                None => orders.missing.push(config.process_of(order)),
            }
        }
        Ok(orders)
    }
}

/// The result as `--json` prints it.
#[derive(Debug, Serialize)]
struct Figures {
    backend: Backend,
    lock: Lock,
    /// Orders with a number.
    issued: u32,
    /// Different numbers among them.
    distinct: u32,
    min: Option<u32>,
    max: Option<u32>,
    /// Numbers from 1 to the greatest that are in no order.
    gaps: u32,
    /// Orders that have the number of another.
    duplicates: u32,
    /// Orders that are not there: of the process that was killed.
    lost: u32,
    /// The orders of the other processes.
    missing: u32,
    /// Attempts to place an order that were followed by another.
    retries: u32,
    failed: u32,
    workers: u32,
    processes: u32,
    /// The process that was killed, from 1.
    killed: Option<u32>,
    seconds: f64,
}

/// Judges the numbers.
pub(crate) fn verdict(
    options: &Options,
    config: &Config,
    backend: Backend,
    outcome: &Outcome<u32>,
    Orders { numbers, missing }: &Orders,
) -> Result<Verdict, Error> {
    let different: BTreeSet<u32> = numbers.iter().copied().collect();
    let (issued, distinct) = (numbers.len() as u32, different.len() as u32);
    let max = different.last().copied();
    let lost = missing
        .iter()
        .filter(|&&process| Some(process) == outcome.killed)
        .count() as u32;
    let figures = Figures {
        backend,
        lock: config.lock,
        issued,
        distinct,
        min: different.first().copied(),
        max,
        gaps: max.unwrap_or(0) - distinct,
        duplicates: issued - distinct,
        lost,
        missing: missing.len() as u32 - lost,
        retries: outcome.tallies.iter().sum(),
        failed: outcome.failures.len() as u32,
        workers: config.workers,
        processes: config.processes,
        killed: outcome.killed.map(|process| process + 1),
        seconds: outcome.seconds,
    };
    let promises = [
        (figures.duplicates, "orders have the number of another"),
        (
            if config.lock == Lock::Mutex {
                figures.gaps
            } else {
                0
            },
            "numbers are missing",
        ),
        (
            if figures.failed == 0 {
                figures.missing
            } else {
                0
            },
            "orders are missing",
        ),
    ];
    let how = match config.lock {
        Lock::Mutex => "mutex",
        Lock::Counter => "counter",
        Lock::None => "without a lock",
    };
    let heading = format!(
        "{} orders, {} workers in {} processes, {how}, {backend}: {:.3} s",
        config.orders, config.workers, config.processes, figures.seconds
    );
    let number =
        |number: Option<u32>| number.map_or_else(|| "none".to_owned(), |number| number.to_string());
    let text = program::table(
        &heading,
        &[
            ("issued", &issued),
            ("distinct", &distinct),
            ("lowest", &number(figures.min)),
            ("highest", &number(figures.max)),
            ("gaps", &figures.gaps),
            ("duplicates", &figures.duplicates),
            ("lost with their process", &lost),
            ("missing", &figures.missing),
            ("tried again", &figures.retries),
            ("failed", &figures.failed),
        ],
        options.run.json.then_some(&figures),
    )?;
    let claim = match config.lock {
        Lock::Mutex => {
            format!("{issued} orders have the numbers 1 to {issued}: none twice, none missing")
        }
        _ => format!("{issued} orders have {distinct} numbers: none twice"),
    };
    Ok(Verdict {
        claim,
        text,
        broken_promises: program::broken(&promises),
        troubles: outcome.troubles(options.kill_one),
    })
}
