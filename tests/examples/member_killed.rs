//! The example that kills members of an ensemble while a lock is held, run as a reader runs it.

use std::error::Error;
use std::process::Command;

use serde_json::Value;
use test_support::{Suite, peers};

use super::{Test, TestResult, command, report_of};

/// Adds the trials, the longest first.
pub(crate) fn add_all(suite: &mut Suite) {
    suite.add(
        "in-process",
        "member_killed::says_what_to_install",
        says_what_to_install,
    );
    let on_members: [(&str, Test); 2] = [
        ("member_killed::keeps_the_lock", keeps_the_lock),
        (
            "member_killed::reports_loss_of_the_majority",
            reports_loss_of_the_majority,
        ),
    ];
    for (name, test) in on_members {
        suite.add_needing("zookeeper-3", name, peers::zookeeper(), move |_| test());
    }
}

fn program(args: &[&str]) -> Result<Command, Box<dyn Error>> {
    command(None, "member_killed", args)
}

/// The states of the lock during a kill, in order.
fn states(kill: &Value) -> Vec<&str> {
    let seen = kill["states"].as_array().map_or(&[][..], Vec::as_slice);
    seen.iter()
        .filter_map(|seen| seen["state"].as_str())
        .collect()
}

fn keeps_the_lock() -> TestResult {
    let report = report_of(program(&[])?, 0)?;
    assert_eq!(report["lost"], Value::Null, "{report}");
    assert_eq!(report["most_inside"], 1, "{report}");
    assert_eq!(report["tokens_rise"], true, "{report}");
    let kills = report["kills"].as_array().ok_or("no kills")?;
    assert_eq!(kills.len(), 2, "{report}");
    assert_eq!(kills[0]["had_the_holders_connection"], true, "{report}");
    assert_eq!(kills[1]["had_the_leader"], true, "{report}");
    for kill in kills {
        assert_eq!(
            kill["members"].as_array().map(Vec::len),
            Some(1),
            "{report}"
        );
        assert!(kill["committed_after_seconds"].is_f64(), "{report}");
        let states = states(kill);
        // A reconnect may be too quick to be seen.
        assert!(
            states
                .iter()
                .all(|state| ["Suspended", "Held"].contains(state)),
            "{report}"
        );
        assert!(
            states.is_empty() || states.last() == Some(&"Held"),
            "{report}"
        );
    }
    Ok(())
}

fn reports_loss_of_the_majority() -> TestResult {
    let report = report_of(program(&["--majority"])?, 1)?;
    assert_eq!(report["most_inside"], 1, "{report}");
    assert_eq!(report["tokens_rise"], true, "{report}");
    assert!(report["lost"].is_string(), "{report}");
    let kill = &report["kills"][0];
    assert_eq!(
        kill["members"].as_array().map(Vec::len),
        Some(2),
        "{report}"
    );
    assert_eq!(kill["committed_after_seconds"], Value::Null, "{report}");
    assert_eq!(
        states(kill),
        ["Suspended", "Lost(LeaseExpired)"],
        "{report}"
    );
    Ok(())
}

/// Runs the example without Java, whether the machine has it or not.
fn says_what_to_install() -> TestResult {
    let output = program(&[])?
        .env("PATH", "")
        .env_remove("JAVA_HOME")
        .output()?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(69), "{stderr}");
    assert!(
        stderr.contains("apt-get install libzookeeper-java"),
        "{stderr}"
    );
    Ok(())
}
