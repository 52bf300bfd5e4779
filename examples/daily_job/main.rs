//! The daily job: many nodes wake at the same second of each day, and one of them does the job.
//!
//! ```text
//! cargo run --example daily_job
//! cargo run --example daily_job -- --lock none    # what the lock is for
//! cargo run --example daily_job -- --kill-one
//! ZK_CONNECT=127.0.0.1:2181 cargo run --example daily_job
//! ```
//!
//! A day takes 200 ms here. The job pays a day's interest: it reads the balance, works, and writes
//! the new balance. All nodes call `once` with the day as the occasion: one has the lock and runs
//! the job, and the transaction that records the day writes the balance too. A node that dies
//! before that (`--kill-one`) has done nothing: when its session has expired, the next node gets
//! the lock, finds no record, and does the job. One that dies after that has done it, and the next
//! node finds the record. A flag that is set before the work would skip the day, and one that is
//! set after it would not keep the others from working too.
//!
//! The job may begin more than once, and takes effect once. Exits with 0 only if ZooKeeper has one
//! record of each day and the balance fits; otherwise with 1, or with 2 if the run could not take
//! place.

#[path = "../common/mod.rs"]
mod common;
mod options;
mod report;
mod worker;

use std::process::ExitCode;

use zookeeper_recipes::Client;

use common::program::{self, Verdict};
use common::tree::Tree;
use common::{Error, Servers, crew, run_name};
use options::Options;
use report::Books;
use worker::{Assignment, Node};

fn main() -> ExitCode {
    program::run("daily_job", crew::run_worker::<Node>, || {
        let options = Options::from_command_line();
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?
            .block_on(live(&options))
    })
}

/// Runs all days, and checks the books.
async fn live(options: &Options) -> Result<Option<Verdict>, Error> {
    let config = options.config();
    let servers = Servers::find(options.run.connect.as_deref())?;
    // Says what is wrong with the servers, if anything is, in the library's words.
    let client = Client::connect(&servers.connect_string).await?;
    let tree = Tree::connect(&servers.connect_string, config.session_timeout).await?;
    let root = format!("/daily_job/{}", run_name());
    for directory in [worker::STARTED, worker::RECORDED] {
        tree.make(&format!("{root}/{directory}"), "").await?;
    }
    tree.make(&worker::balance(&root), "0").await?;
    let assignments = (0..config.nodes).map(|node| Assignment {
        node,
        servers: servers.connect_string.clone(),
        root: root.clone(),
        config: config.clone(),
    });
    let steps = config.days * config.nodes;
    let outcome = crew::run::<()>(assignments, steps, "wake-ups", config.session_timeout).await?;
    let books = Books::read(&tree, &root).await?;
    tree.delete(&root).await?;
    client.close().await?;
    outcome
        .map(|outcome| report::verdict(options, &config, servers.backend, &outcome, &books))
        .transpose()
}
