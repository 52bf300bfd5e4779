//! The cache in front of a table, run as a reader runs it.

use std::error::Error;
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use test_support::{Suite, peers, shared_ensemble, shared_standalone, shown_on_a_terminal};
use zookeeper_test_server::{LogKind, Op, Server};

use super::{TestResult, assert_numbers, command, number};

/// Adds the trials, the longest first.
pub(crate) fn add_all(suite: &mut Suite) {
    suite.add(
        "in-process",
        "cache::timed_out_reader_uses_the_table",
        timed_out_reader_uses_the_table,
    );
    suite.add(
        "in-process",
        "cache::terminal_shows_why_it_waits",
        terminal_shows_why_it_waits,
    );
    suite.add("in-process", "cache::is_consistent", || is_consistent(None));
    suite.add("in-process", "cache::goes_stale_without_a_lock", || {
        goes_stale_without_a_lock(None)
    });
    suite.add(
        "in-process",
        "cache::readers_take_read_locks",
        readers_take_read_locks,
    );
    suite.add(
        "in-process",
        "cache::goes_on_without_a_killed_writer",
        || goes_on_without_a_killed_writer(None),
    );
    // Shows: paused-process
    suite.add("in-process", "cache::refuses_a_paused_reader", || {
        refuses_a_paused("reader", None)
    });
    // Shows: paused-process
    suite.add("in-process", "cache::refuses_a_paused_writer", || {
        refuses_a_paused("writer", None)
    });
    suite.add(
        "in-process",
        "cache::reports_wrong_arguments",
        reports_wrong_arguments,
    );
    suite.add(
        "in-process",
        "cache::interrupt_ends_the_workers",
        interrupt_ends_the_workers,
    );
    suite.add_needing(
        "zookeeper",
        "cache::is_consistent",
        peers::zookeeper(),
        |_| is_consistent(Some(&shared_standalone()?.connect_string())),
    );
    suite.add_needing(
        "zookeeper",
        "cache::goes_stale_without_a_lock",
        peers::zookeeper(),
        |_| goes_stale_without_a_lock(Some(&shared_standalone()?.connect_string())),
    );
    suite.add_needing(
        "zookeeper",
        "cache::goes_on_without_a_killed_writer",
        peers::zookeeper(),
        |_| goes_on_without_a_killed_writer(Some(&shared_standalone()?.connect_string())),
    );
    suite.add_needing(
        "zookeeper",
        "cache::refuses_a_paused_reader",
        peers::zookeeper(),
        |_| refuses_a_paused("reader", Some(&shared_standalone()?.connect_string())),
    );
    suite.add_needing(
        "zookeeper-3",
        "cache::is_consistent",
        peers::zookeeper(),
        |_| is_consistent(Some(&shared_ensemble()?.connect_string())),
    );
}

fn run_on(servers: Option<&str>, args: &[&str]) -> Result<Command, Box<dyn Error>> {
    command(servers, "cache_consistency", args)
}

/// Runs the command, which must end with this exit code, and reads the last line that it prints.
fn report(servers: Option<&str>, args: &[&str], exit_code: i32) -> Result<Value, Box<dyn Error>> {
    let report = super::report(servers, "cache_consistency", args, exit_code)?;
    assert_numbers(&report, &[("unaccounted", 0), ("failed", 0)]);
    assert!(number(&report, "reads") > 0, "{report}");
    Ok(report)
}

/// Runs the example with the lock, and asserts that cache and table agree, for any fault of a
/// worker.
fn consistent(servers: Option<&str>, args: &[&str]) -> Result<Value, Box<dyn Error>> {
    let report = report(servers, args, 0)?;
    for name in ["stale_reads", "overlaps"] {
        assert_eq!(number(&report, name), 0, "{name} in {report}");
    }
    // No write follows the last reads, so the newest version is in the cache.
    assert_eq!(report["cache_version"], report["table_version"], "{report}");
    Ok(report)
}

fn is_consistent(servers: Option<&str>) -> TestResult {
    let report = consistent(servers, &[])?;
    for (name, expected) in [
        ("readers", 6),
        ("writers", 2),
        ("writes", 100),
        ("table_version", 101),
    ] {
        assert_eq!(number(&report, name), expected, "{name} in {report}");
    }
    for name in ["lost", "fenced", "timed_out"] {
        assert_eq!(number(&report, name), 0, "{name} in {report}");
    }
    // Without hits and fills, the run would prove nothing.
    assert!(
        number(&report, "hits") > 0 && number(&report, "fills") > 0,
        "{report}"
    );
    Ok(())
}

fn goes_stale_without_a_lock(servers: Option<&str>) -> TestResult {
    let report = report(servers, &["--lock", "none"], 1)?;
    for name in ["stale_reads", "overlaps"] {
        assert!(number(&report, name) > 0, "{name} in {report}");
    }
    Ok(())
}

fn readers_take_read_locks() -> TestResult {
    let server = Server::start()?;
    consistent(
        Some(&server.connect_string()),
        &["--readers", "2", "--writers", "1", "--writes", "3"],
    )?;
    let created = |kind: &str| {
        server
            .log()
            .iter()
            .filter(|entry| {
                entry.kind == LogKind::Applied
                    && entry.error == 0
                    && entry.op == Op::Create
                    && entry.path.contains(kind)
            })
            .count()
    };
    assert!(
        created("__READ__") >= 3 && created("__WRIT__") == 3,
        "{} {}",
        created("__READ__"),
        created("__WRIT__")
    );
    Ok(())
}

/// The only writer is killed while it holds the lock, which stays with its session for longer than
/// readers wait. The cache is empty.
fn timed_out_reader_uses_the_table() -> TestResult {
    let args = [
        "--kill-one",
        "--writers",
        "1",
        "--wait",
        "2s",
        "--session-timeout",
        "10s",
    ];
    let report = report(None, &args, 0)?;
    assert!(number(&report, "timed_out") >= 6, "{report}");
    assert_eq!(number(&report, "stale_reads"), 0, "{report}");
    assert_eq!(report["cache_version"], Value::Null, "{report}");
    Ok(())
}

/// This session timeout is over soon after a kill, and outlasts a machine that stands still for a
/// second or two.
const SHORT: &str = "5s";

fn goes_on_without_a_killed_writer(servers: Option<&str>) -> TestResult {
    let report = consistent(servers, &["--kill-one", "--session-timeout", SHORT])?;
    assert!(
        report["killed"]
            .as_str()
            .is_some_and(|name| name.starts_with("writer ")),
        "{report}"
    );
    // The worker had ten of twenty writes, and was killed in the middle of one.
    let lost = number(&report, "lost");
    assert!((1..=10).contains(&lost), "{report}");
    assert_eq!(number(&report, "writes") + lost, 20, "{report}");
    // The lock is free when the worker's session has expired.
    assert!(report["seconds"].as_f64() >= Some(4.0), "{report}");
    Ok(())
}

fn refuses_a_paused(who: &str, servers: Option<&str>) -> TestResult {
    let report = consistent(
        servers,
        &[&format!("--pause-one={who}"), "--session-timeout", SHORT],
    )?;
    assert!(
        report["paused"]
            .as_str()
            .is_some_and(|name| name.starts_with(who)),
        "{report}"
    );
    assert!(number(&report, "fenced") >= 1, "{report}");
    assert_eq!(number(&report, "writes"), 20, "{report}");
    // The pause is longer than the session, which the servers count from the last contact.
    assert!(report["paused_seconds"].as_f64() >= Some(2.5), "{report}");
    Ok(())
}

fn reports_wrong_arguments() -> TestResult {
    let cases: [(&[&str], &str); 5] = [
        (&["--wait", "200"], "such as 200ms"),
        (&["--readers", "0"], "--readers"),
        (
            &["--connect", "127.0.0.1:1"],
            "no ZooKeeper server of 127.0.0.1:1",
        ),
        (&["--lock", "none", "--kill-one"], "nobody holds it"),
        (&["--writes", "0", "--kill-one"], "nobody to kill"),
    ];
    for (args, words) in cases {
        let output = run_on(None, args)?.output()?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {stderr}");
        assert!(stderr.contains(words), "{args:?}: {stderr}");
    }
    Ok(())
}

/// While the lock of a worker that was killed or stopped is still held, nothing is written.
fn terminal_shows_why_it_waits() -> TestResult {
    for (fault, words) in [
        ("--kill-one", "a writer was killed, session ends in 4."),
        ("--pause-one", "a reader is stopped, session ends in 4."),
    ] {
        let (status, shown) =
            shown_on_a_terminal(run_on(None, &[fault, "--session-timeout", SHORT])?)?;
        assert!(status.success(), "{status}: {shown}");
        assert!(shown.contains(" 0/20 writes"), "{shown}");
        assert!(shown.contains(words), "{shown}");
    }
    Ok(())
}

fn interrupt_ends_the_workers() -> TestResult {
    let mut command = run_on(None, &["--verbose", "--writes", "100000"])?;
    let mut run = command
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut stderr = BufReader::new(run.stderr.take().ok_or("no stderr")?);
    let mut said = String::new();
    while !said.contains(": wrote version ") && stderr.read_line(&mut said)? > 0 {}
    kill_process(Pid::from_child(&run), Signal::INT)?;
    // The workers share the run's stderr, which ends with the last worker.
    stderr.read_to_string(&mut said)?;
    assert_eq!(run.wait()?.code(), Some(130), "{said}");
    Ok(())
}
