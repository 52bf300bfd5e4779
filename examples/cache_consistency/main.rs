//! A cache that several processes share, in front of a table: readers fill it, writers empty it, and nobody reads what is old.
//!
//! ```text
//! cargo run --release --example cache_consistency
//! cargo run --release --example cache_consistency -- --lock none    # what the lock is for
//! cargo run --release --example cache_consistency -- --kill-one
//! cargo run --release --example cache_consistency -- --pause-one --verbose
//! ZK_CONNECT=127.0.0.1:2181 cargo run --release --example cache_consistency
//! ```
//!
//! A reader that finds the cache empty reads the row and puts it into the cache: two steps. A writer takes the entry out of the
//! cache and changes the row: two steps. Without a lock this happens: the reader reads the old row, the writer takes the
//! entry out and writes the new row, the reader puts the old row into the cache, and there it stays; everybody reads it
//! until somebody writes again. `--lock none` shows that.
//!
//! With the read-write lock a reader takes its two steps under the read lock, beside other readers, and a writer under
//! the write lock. A reader that finds something in the cache needs no lock, because a writer empties the cache
//! first: what is found then was the newest when the read began. A writer that dies between its steps leaves an empty cache.
//!
//! The table and the cache compare fencing tokens. That stops a reader that was paused between its steps for longer than its
//! session, and wakes up with an old row in its hands: `--pause-one` makes one. It stops a writer too that wakes up
//! after others have filled the cache that it had emptied (`--pause-one=writer`).
//!
//! A read is stale if it sees an older version than the one that was in the table before it began. This exits 0
//! only if no read was, nobody was inside beside a writer and every write is accounted for; otherwise 1, and 2 when it could
//! not be tried.

#[path = "../common/mod.rs"]
mod common;
mod diary;
mod fault;
mod options;
mod protocol;
mod report;
mod run;
mod store;
mod worker;

use std::process::ExitCode;

use common::{BROKEN, Error, INTERRUPTED, TROUBLE, chain};
use options::Options;
use run::Ended;

fn main() -> ExitCode {
    let result = if common::worker::is_one() { worker::run().map(|()| ExitCode::SUCCESS) } else { try_it() };
    result.unwrap_or_else(|error| {
        eprintln!("cache_consistency: {}", chain(&*error));
        ExitCode::from(TROUBLE)
    })
}

fn try_it() -> Result<ExitCode, Error> {
    let options = Options::read();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let report = match runtime.block_on(run::run(&options))? {
        Ended::Done(report) => report,
        Ended::Interrupted => {
            eprintln!("cache_consistency: interrupted");
            return Ok(ExitCode::from(INTERRUPTED));
        }
    };
    print!("{report}");
    if options.json {
        println!("{}", serde_json::to_string(&report.figures)?);
    }
    let broken = report.broken_promises();
    for promise in &broken {
        eprintln!("cache_consistency: {promise}");
    }
    if let Some(failure) = &report.first_failure {
        eprintln!("cache_consistency: a worker failed: {failure}");
    }
    if let Some(missed) = report.missed() {
        eprintln!("cache_consistency: {missed}");
    }
    Ok(if !broken.is_empty() {
        ExitCode::from(BROKEN)
    } else if report.first_failure.is_some() || report.missed().is_some() {
        ExitCode::from(TROUBLE)
    } else {
        ExitCode::SUCCESS
    })
}
