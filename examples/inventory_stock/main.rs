//! A flash sale: many users, few items, several processes, and no item sold twice.
//!
//! ```text
//! cargo run --example inventory_stock
//! cargo run --example inventory_stock -- --lock none --think 5ms  # oversells
//! cargo run --example inventory_stock -- --lock read-write
//! cargo run --example inventory_stock -- --users 100000 --stock 10
//! cargo run --example inventory_stock -- --kill-one --timeline killed.svg
//! cargo run --example inventory_stock -- --pause-one --verbose
//! cargo run --example inventory_stock -- --scenario article-rush
//! cargo run --example inventory_stock -- --skus 8 --stock 10 --users 400 --wait 10s
//! ZK_CONNECT=127.0.0.1:2181 cargo run --example inventory_stock
//! ```
//!
//! The stock is a row of an SQLite database. This process fills it, starts the workers (this
//! program again, each with a separate session) and divides the users among them. A user reads the
//! stock; if there is some, they take the lock, read it again, think, write the new stock together
//! with their order, and release the lock. Reading and writing are separate steps, and the new
//! value is computed in the worker: the lock prevents overselling, not the database, as `--lock
//! none` shows.
//!
//! What the database does is compare the fencing token whenever the holder reads or writes. That
//! stops a worker that was paused while it held the lock and does not know that its session has
//! expired: `--pause-one` pauses one, and resumes it when the next holder has read the stock and
//! has not written yet. The worker does not ask its guard before it writes, because a pause can
//! come between the answer and the write.
//!
//! The sale follows a program in an article, which sold without looking: it took one item off the
//! stock and checked afterwards, so the stock ended below zero. Here each user looks first, under
//! the lock.
//!
//! Exits with 0 only if nothing was oversold, no two users were inside at once and every user is
//! accounted for; otherwise with 1, or with 2 if the sale could not be held.

#[path = "../common/mod.rs"]
mod common;
mod fault;
mod history;
mod lock;
mod options;
mod protocol;
mod report;
mod sale;
mod store;
mod timeline;
mod worker;

use std::process::ExitCode;

use common::Error;
use common::program::{self, Verdict};
use options::Options;

fn main() -> ExitCode {
    program::run("inventory_stock", worker::run, hold_sale)
}

fn hold_sale() -> Result<Option<Verdict>, Error> {
    let options = Options::from_command_line();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let Some(report) = runtime.block_on(sale::hold(&options))? else {
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
