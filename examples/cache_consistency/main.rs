//! A cache in front of a table, shared by several processes, in which no read is stale.
//!
//! ```text
//! cargo run --example cache_consistency
//! cargo run --example cache_consistency -- --lock none    # what the lock is for
//! cargo run --example cache_consistency -- --kill-one
//! cargo run --example cache_consistency -- --pause-one --verbose
//! ZK_CONNECT=127.0.0.1:2181 cargo run --example cache_consistency
//! ```
//!
//! A reader that finds the cache empty reads the row and puts it into the cache: two steps. A
//! writer takes the entry out of the cache and changes the row: two steps. Without a lock a reader
//! can read the old row, a writer take the entry out and write the new row, and the reader put the
//! old row into the cache. There it stays, and every read is stale until the next write. `--lock
//! none` shows that.
//!
//! With a read-write lock a reader takes its two steps under the read lock, beside other readers,
//! and a writer under the write lock. A reader that finds an entry in the cache needs no lock: a
//! writer empties the cache first, so the entry was the newest version when the read began. A
//! writer that dies between its steps leaves an empty cache.
//!
//! The table and the cache compare fencing tokens. That stops a reader that was paused between its
//! steps for longer than its session and resumes with an old row (`--pause-one`), and a writer that
//! resumes after others have filled the cache that it had emptied (`--pause-one=writer`).
//!
//! A read is stale if it returns an older version than the one that was in the table before it
//! began. Exits with 0 only if no read was stale, no process was inside beside a writer and every
//! write is accounted for; otherwise with 1, or with 2 if the run could not take place.

#[path = "../common/mod.rs"]
mod common;
mod fault;
mod history;
mod options;
mod protocol;
mod report;
mod run;
mod store;
mod worker;

use std::process::ExitCode;

use common::Error;
use common::program::{self, Verdict};
use options::Options;

fn main() -> ExitCode {
    program::run("cache_consistency", worker::run, run_workers)
}

fn run_workers() -> Result<Option<Verdict>, Error> {
    let options = Options::from_command_line();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let Some(report) = runtime.block_on(run::run(&options))? else {
        return Ok(None);
    };
    let mut text = report.to_string();
    if options.json {
        text += &format!("{}\n", serde_json::to_string(&report.figures)?);
    }
    let claim = report.claim();
    Ok(Some(Verdict {
        claim,
        text,
        broken_promises: report.broken_promises(),
        troubles: report.troubles(),
    }))
}
