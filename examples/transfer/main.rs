//! Transfers: several processes move money between accounts, and none is lost or made.
//!
//! ```text
//! cargo run --example transfer
//! cargo run --example transfer -- --lock none      # what the lock is for
//! cargo run --example transfer -- --lock nested    # two locks, and a deadlock
//! ZK_CONNECT=127.0.0.1:2181 cargo run --example transfer
//! ```
//!
//! The accounts are rows of an SQLite database. A process reads the balances of two accounts,
//! thinks, and writes both, which it has computed itself: the lock keeps others away from them
//! meanwhile, not the database. An `InterProcessMultiLock` acquires the mutexes of both accounts,
//! in the same order in all processes.
//!
//! With `--lock nested` a process acquires the mutex of the account that pays, and then that of the
//! other one. Two processes that transfer in opposite directions each have one and wait for the
//! other: a deadlock, which ends when one of them waits no longer. A process that gives up a
//! transfer for that reason stops.
//!
//! Each account compares the fencing token of its own mutex whenever its balance is read or
//! written, so that a process that was paused in between cannot write an old balance.
//!
//! Exits with 0 only if the balances are those that the recorded transfers lead to, and all
//! transfers are recorded; otherwise with 1, or with 2 if the run could not take place.

#[path = "../common/mod.rs"]
mod common;
mod options;
mod report;
mod store;
mod worker;

use std::process::ExitCode;

use zookeeper_recipes::Client;

use common::program::{self, Verdict};
use common::{Error, Servers, crew, run_name};
use options::Options;
use store::Bank;
use worker::{Assignment, Tally, Teller};

fn main() -> ExitCode {
    program::run("transfer", crew::run_worker::<Teller>, || {
        let options = Options::from_command_line();
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?
            .block_on(transfer(&options))
    })
}

/// Makes all transfers, and checks the accounts.
async fn transfer(options: &Options) -> Result<Option<Verdict>, Error> {
    let config = options.config();
    let servers = Servers::find(options.run.connect.as_deref())?;
    // Says what is wrong with the servers, if anything is, in the library's words.
    let client = Client::connect(&servers.connect_string).await?;
    let directory = tempfile::Builder::new().prefix("transfer-").tempdir()?;
    let db = directory.path().join("bank.sqlite");
    let bank = Bank::create(&db, config.accounts)?;
    let name = run_name();
    let assignments = (0..config.processes).map(|process| Assignment {
        process,
        servers: servers.connect_string.clone(),
        locks: format!("/transfer/{name}"),
        db: db.clone(),
        config: config.clone(),
    });
    let Some(outcome) = crew::run::<Tally>(
        assignments,
        config.transfers,
        "transfers",
        config.session_timeout,
    )
    .await?
    else {
        return Ok(None);
    };
    let audit = bank.audit()?;
    client.close().await?;
    report::verdict(options, &config, servers.backend, &outcome, &audit).map(Some)
}
