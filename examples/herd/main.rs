//! The herd: how many waiters the release of a lock wakes.
//!
//! ```text
//! cargo run --example herd
//! cargo run --example herd -- --waiters 200 --svg herd.svg
//! ZK_CONNECT=127.0.0.1:2181 cargo run --example herd
//! ```
//!
//! The naive lock is one ephemeral node: the client that creates it has the lock, and all others
//! watch it. When it is deleted, all are notified and try to create it; one succeeds, and the
//! others set their watches again. With the sequential nodes of `InterProcessMutex`, each waiter
//! watches the one before it, and a release notifies one.
//!
//! The contenders are in several processes, with a session each. When one has the lock and all
//! others wait, the holder is requested to release it, and goes to the back of the queue. The
//! notifications are those that the server in this process counts; those of real servers are
//! counted on their way, by a proxy.
//!
//! Exits with 0 only if no release of the sequential lock notified more than one waiter; otherwise
//! with 1, or with 2 if the run could not take place.

#[path = "../common/mod.rs"]
mod common;
mod contender;
mod drawing;
mod measure;
mod options;
mod wire;

use std::process::ExitCode;

use serde::Serialize;

use common::program::{self, Verdict};
use common::{Backend, Error, Servers, monotonic, round};
use measure::Point;
use options::Options;

fn main() -> ExitCode {
    program::run("herd", contender::run, || {
        let options = Options::from_command_line();
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?
            .block_on(compare(&options))
    })
}

/// The result as `--json` prints it.
#[derive(Debug, Serialize)]
struct Figures {
    backend: Backend,
    /// Where the notifications were counted.
    counted_by: &'static str,
    waiters: u32,
    naive_notifications_per_release: f64,
    sequential_notifications_per_release: f64,
    releases: u32,
    /// The same for fewer waiters.
    curve: Vec<Point>,
    /// Releases of the sequential lock that notified more than one waiter.
    herds: u32,
    processes: u32,
    seconds: f64,
}

/// Measures both locks, and compares them.
async fn compare(options: &Options) -> Result<Option<Verdict>, Error> {
    let servers = Servers::find(options.run.connect.as_deref())?;
    let start = monotonic();
    let Some(curve) = measure::measure(options, &servers).await? else {
        return Ok(None);
    };
    let last = curve.last().copied().ok_or("nothing was measured")?;
    let figures = Figures {
        backend: servers.backend,
        counted_by: if servers.in_process.is_some() {
            "server"
        } else {
            "wire"
        },
        waiters: last.waiters,
        naive_notifications_per_release: last.naive,
        sequential_notifications_per_release: last.sequential,
        releases: options.releases,
        herds: curve.iter().map(|point| point.herds).sum(),
        processes: options.processes,
        seconds: round(monotonic().saturating_sub(start) as f64 / 1e9),
        curve,
    };
    if let Some(file) = &options.svg {
        std::fs::write(file, drawing::draw(&figures.curve))
            .map_err(|error| format!("{} could not be written: {error}", file.display()))?;
    }
    let mut text = format!(
        "{} waiters in {} processes, {} releases, {}: {:.3} s\n\n",
        figures.waiters, figures.processes, figures.releases, figures.backend, figures.seconds
    );
    text += "notifications per release\n";
    text += &format!("{:>9}{:>12}{:>12}\n", "waiters", "naive", "sequential");
    for Point {
        waiters,
        naive,
        sequential,
        ..
    } in &figures.curve
    {
        text += &format!("{waiters:>9}{naive:>12.1}{sequential:>12.1}\n");
    }
    if options.run.json {
        text += &format!("{}\n", serde_json::to_string(&figures)?);
    }
    let (naive, waiters) = (last.naive, last.waiters);
    Ok(Some(Verdict {
        claim: format!(
            "a release wakes one of {waiters} waiters; with the naive lock it wakes {naive:.0}"
        ),
        text,
        broken_promises: program::broken(&[(
            figures.herds,
            "releases of the sequential lock notified more than one waiter",
        )]),
        troubles: Vec::new(),
    }))
}
