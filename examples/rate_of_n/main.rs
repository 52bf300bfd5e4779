//! At most n at a time: many visitors of several processes use a service that can serve n of them
//! at once.
//!
//! ```text
//! cargo run --example rate_of_n
//! cargo run --example rate_of_n -- --lock none    # what the semaphore is for
//! cargo run --example rate_of_n -- --n 10 --visits 1000
//! ZK_CONNECT=127.0.0.1:2181 cargo run --example rate_of_n
//! ```
//!
//! A visitor acquires a permit of an `InterProcessSemaphore`, uses the service, and releases the
//! permit. Each permit has a slot, from 0 to n - 1, which no other holder has meanwhile: here the
//! number of a connection of the service, of which it has n.
//!
//! The service is an SQLite database, which writes down who comes and who goes, in that order.
//! Exits with 0 only if it says that never more than n were there, no two used the same connection
//! at once, and all visitors were served; otherwise with 1, or with 2 if the run could not take
//! place.

#[path = "../common/mod.rs"]
mod common;
mod options;
mod report;
mod service;
mod worker;

use std::process::ExitCode;

use zookeeper_recipes::Client;

use common::program::{self, Verdict};
use common::{Error, Servers, crew, run_name};
use options::Options;
use service::Service;
use worker::{Assignment, Visitors};

fn main() -> ExitCode {
    program::run("rate_of_n", crew::run_worker::<Visitors>, || {
        let options = Options::from_command_line();
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?
            .block_on(visit(&options))
    })
}

/// Runs all visitors, and checks the record of the service.
async fn visit(options: &Options) -> Result<Option<Verdict>, Error> {
    let servers = Servers::find(options.run.connect.as_deref())?;
    // Says what is wrong with the servers, if anything is, in the library's words.
    let client = Client::connect(&servers.connect_string).await?;
    let directory = tempfile::Builder::new().prefix("rate-of-n-").tempdir()?;
    let db = directory.path().join("service.sqlite");
    let service = Service::create(&db)?;
    let name = run_name();
    let assignments = (0..options.config.processes).map(|process| Assignment {
        process,
        servers: servers.connect_string.clone(),
        semaphore: format!("/rate_of_n/{name}"),
        db: db.clone(),
        config: options.config.clone(),
    });
    let outcome = crew::run::<()>(
        assignments,
        options.config.visits,
        "visits",
        options.config.session_timeout,
    )
    .await?;
    let Some(outcome) = outcome else {
        return Ok(None);
    };
    let usage = service.usage()?;
    client.close().await?;
    report::verdict(options, servers.backend, &outcome, &usage).map(Some)
}
