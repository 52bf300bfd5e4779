//! A controller: three processes could do the work, one of them leads and does it.
//!
//! ```text
//! cargo run --example controller
//! cargo run --example controller -- --recipe latch
//! cargo run --example controller -- --no-fence    # what the term is for
//! ZK_CONNECT=127.0.0.1:2181 cargo run --example controller
//! ```
//!
//! The first leader is killed (SIGKILL) in the middle of its work; when its session has expired,
//! another leads. That one is stopped (SIGSTOP) right before a write, until a third one leads and
//! has written. Then it is woken (SIGCONT), and continues where it was: it writes. The store, a row
//! of an SQLite database, compares the fencing token of its term, and refuses it. With `--no-fence`
//! the store compares nothing: the write of a former leader is taken over those of the present one.
//!
//! Two lead at once if one begins its work while that of another is under way. For a process that
//! is killed or stopped, its last message before that counts as the end; one that is woken must not
//! believe that it leads.
//!
//! Exits with 0 only if no two led at once and no stale write was taken; otherwise with 1, or with
//! 2 if the run could not take place.

#[path = "../common/mod.rs"]
mod common;
mod options;
mod report;
mod run;
mod store;
mod worker;

use std::process::ExitCode;

use zookeeper_recipes::Client;

use common::program::{self, Verdict};
use common::{Error, Servers, run_name};
use options::Options;
use store::Store;
use worker::Assignment;

fn main() -> ExitCode {
    program::run("controller", worker::run, || {
        let options = Options::from_command_line();
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?
            .block_on(control(&options))
    })
}

/// Makes the processes lead in turn, and looks at what they have written.
async fn control(options: &Options) -> Result<Option<Verdict>, Error> {
    let config = options.config();
    let servers = Servers::find(options.run.connect.as_deref())?;
    // Says what is wrong with the servers, if anything is, in the library's words.
    let client = Client::connect(&servers.connect_string).await?;
    let directory = tempfile::Builder::new().prefix("controller-").tempdir()?;
    let db = directory.path().join("store.sqlite");
    let store = Store::create(&db)?;
    let name = run_name();
    let assignments = (0..worker::PROCESSES).map(|process| Assignment {
        process,
        servers: servers.connect_string.clone(),
        path: format!("/controller/{name}"),
        db: db.clone(),
        config: config.clone(),
    });
    let Some(outcome) = run::run(assignments, config.session_timeout).await? else {
        return Ok(None);
    };
    let audit = store.audit()?;
    client.close().await?;
    report::verdict(options, &config, servers.backend, &outcome, &audit).map(Some)
}
