//! The matrix sees two holders at once where there are two, and none with this workspace's mutex.

use std::error::Error;
use std::process::{Command, Stdio};

use serde_json::Value;
use test_support::Suite;
use test_support::peers::{self, Missing};

type Outcome = Result<(), Box<dyn Error + Send + Sync>>;

/// A lock, what is done to its holder, and whether two believe then that they hold it.
const TRIALS: [(&str, &str, bool); 6] = [
    ("ours", "paused", false),
    ("ours", "cut", false),
    ("curator_plain", "paused", true),
    ("kazoo_plain", "paused", true),
    ("redis_plain", "paused", true),
    ("redis", "restarted", true),
];

fn main() {
    let mut suite = Suite::new();
    for (lock, fault, overlaps) in TRIALS {
        let name = format!(
            "{fault}::{}",
            if overlaps {
                "two_holders_overlap"
            } else {
                "holders_never_overlap"
            }
        );
        suite.add_needing(lock, &name, needs(lock), move |()| {
            run_trial(lock, fault, overlaps)
        });
    }
    suite.run()
}

fn needs(lock: &str) -> Result<(), Missing> {
    if lock.starts_with("redis") {
        return peers::redis().map(drop);
    }
    peers::zookeeper()?;
    match lock {
        "curator_plain" => peers::curator().map(drop),
        "kazoo_plain" => peers::kazoo().map(drop),
        _ => Ok(()),
    }
}

fn run_trial(lock: &str, fault: &str, overlaps: bool) -> Outcome {
    let file = tempfile::NamedTempFile::new()?;
    let mut matrix = Command::new(env!("CARGO_BIN_EXE_lockbench"));
    matrix.args([
        "matrix",
        "--lock",
        lock,
        "--fault",
        fault,
        "--repeat",
        "1",
        "--seconds",
        "0",
    ]);
    matrix
        .args(["--timeout", "3000", "--json"])
        .arg(file.path());
    let output = matrix.stdin(Stdio::null()).output()?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let report: Value = serde_json::from_slice(&std::fs::read(file.path())?)
        .map_err(|error| format!("{error}: {said}"))?;
    let outcome = &report["locks"][lock]["faults"][fault][0];
    let fine = outcome["overlap_ms"].is_number() == overlaps
        && outcome["left"] == 0
        && outcome["stuck"] == 0;
    if fine && output.status.success() {
        Ok(())
    } else {
        Err(format!("{outcome} {said}").into())
    }
}
