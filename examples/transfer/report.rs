//! The contents of the accounts, and what they prove.

use serde::Serialize;

use crate::common::crew::Outcome;
use crate::common::program::{self, Verdict};
use crate::common::{Backend, Error};
use crate::options::{Config, Lock, Options};
use crate::store::Audit;
use crate::worker::Tally;

/// The result as `--json` prints it.
#[derive(Debug, Serialize)]
struct Figures {
    backend: Backend,
    lock: Lock,
    accounts: u32,
    /// Transfers that are recorded.
    transfers: u32,
    /// Transfers that are not recorded.
    not_done: u32,
    /// The sum of all accounts.
    total: i64,
    expected_total: i64,
    /// Accounts whose balance is not what the recorded transfers lead to.
    wrong_accounts: u32,
    /// Transfers that were given up because a lock was not granted in time: with nested locks, by a
    /// deadlock.
    timed_out: u32,
    /// Transfers that an account refused because of an old token.
    fenced: u32,
    failed: u32,
    processes: u32,
    seconds: f64,
}

/// Judges the accounts.
pub(crate) fn verdict(
    options: &Options,
    config: &Config,
    backend: Backend,
    outcome: &Outcome<Tally>,
    audit: &Audit,
) -> Result<Verdict, Error> {
    let sum = |count: fn(&Tally) -> u32| outcome.tallies.iter().map(count).sum();
    let figures = Figures {
        backend,
        lock: config.lock,
        accounts: config.accounts,
        transfers: audit.transfers,
        not_done: config.transfers - audit.transfers,
        total: audit.total,
        expected_total: audit.expected_total,
        wrong_accounts: audit.wrong_accounts,
        timed_out: sum(|tally| tally.timed_out),
        fenced: sum(|tally| tally.fenced),
        failed: outcome.failures.len() as u32,
        processes: config.processes,
        seconds: outcome.seconds,
    };
    let (timed_out, how) = match config.lock {
        Lock::Multi => (
            "transfers were given up: the multi-lock was not granted in time",
            "multi-lock",
        ),
        Lock::Nested => (
            "transfers were given up: a deadlock of processes that have one lock and wait for another",
            "nested locks",
        ),
        Lock::None => ("transfers were given up", "without a lock"),
    };
    let difference = u32::try_from(audit.total.abs_diff(audit.expected_total))?;
    let promises = [
        (figures.timed_out, timed_out),
        (
            difference,
            if audit.total < audit.expected_total {
                "are lost"
            } else {
                "came from nowhere"
            },
        ),
        (figures.wrong_accounts, "accounts have a wrong balance"),
        (
            if figures.failed == 0 {
                figures.not_done
            } else {
                0
            },
            "transfers were not done",
        ),
    ];
    let heading = format!(
        "{} transfers, {} accounts, {} processes, {how}, {backend}: {:.3} s",
        config.transfers, config.accounts, config.processes, figures.seconds
    );
    let text = program::table(
        &heading,
        &[
            ("transfers done", &figures.transfers),
            ("not done", &figures.not_done),
            ("total", &figures.total),
            ("expected total", &figures.expected_total),
            ("accounts that are wrong", &figures.wrong_accounts),
            ("timed out", &figures.timed_out),
            ("refused by the token", &figures.fenced),
            ("failed", &figures.failed),
        ],
        options.run.json.then_some(&figures),
    )?;
    let claim = format!(
        "after {} transfers the accounts have {} as before",
        figures.transfers, figures.total
    );
    let broken_promises = program::broken(&promises);
    Ok(Verdict {
        claim,
        text,
        broken_promises,
        troubles: outcome.troubles(false),
    })
}
