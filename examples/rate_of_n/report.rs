//! How the service was used, and what it proves.

use serde::Serialize;

use crate::common::crew::Outcome;
use crate::common::program::{self, Verdict};
use crate::common::{Backend, Error};
use crate::options::{Lock, Options};
use crate::service::Usage;

/// The result as `--json` prints it.
#[derive(Debug, Serialize)]
struct Figures {
    backend: Backend,
    lock: Lock,
    n: u32,
    /// The most visitors that were there at once.
    peak: u32,
    /// Visits that began and ended.
    served: u32,
    not_served: u32,
    /// Visitors that used a connection while another did.
    clashes: u32,
    failed: u32,
    processes: u32,
    seconds: f64,
}

/// Judges the service's log.
pub(crate) fn verdict(
    options: &Options,
    backend: Backend,
    outcome: &Outcome<()>,
    usage: &Usage,
) -> Result<Verdict, Error> {
    let config = &options.config;
    let figures = Figures {
        backend,
        lock: config.lock,
        n: config.n,
        peak: u32::try_from(usage.peak)?,
        served: usage.served,
        not_served: config.visits - usage.served,
        clashes: usage.clashes,
        failed: outcome.failures.len() as u32,
        processes: config.processes,
        seconds: outcome.seconds,
    };
    let promises = [
        (
            figures.peak.saturating_sub(config.n),
            "visitors too many were there at once",
        ),
        (
            figures.clashes,
            "times a visitor used the connection of another",
        ),
        (
            if figures.failed == 0 {
                figures.not_served
            } else {
                0
            },
            "visitors were not served",
        ),
    ];
    let how = match config.lock {
        Lock::Semaphore => "semaphore",
        Lock::None => "without a semaphore",
    };
    let heading = format!(
        "{} visits, {} at a time, {} processes, {how}, {backend}: {:.3} s",
        config.visits, config.n, config.processes, figures.seconds
    );
    let text = program::table(
        &heading,
        &[
            ("served", &figures.served),
            ("not served", &figures.not_served),
            ("most at once", &figures.peak),
            ("connection in use", &figures.clashes),
            ("failed", &figures.failed),
        ],
        options.run.json.then_some(&figures),
    )?;
    let claim = format!(
        "{} visits, and never more than {} at once",
        figures.served, config.n
    );
    let broken_promises = program::broken(&promises);
    Ok(Verdict {
        claim,
        text,
        broken_promises,
        troubles: outcome.troubles(false),
    })
}
