//! The flash sale, run as a reader runs it.

use std::error::Error;
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use test_support::{
    Suite, peers, poll_until, shared_ensemble, shared_standalone, shown_on_a_terminal,
};
use zookeeper_test_server::{LogEntry, LogKind, Op, Server};

use super::{Test, TestResult, command, number, report_of, said};

/// The time limit, for a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long users wait while other sales take the processor.
const PATIENT: &str = "60s";

/// Adds the trials, the longest first.
pub(crate) fn add_all(suite: &mut Suite) {
    for lock in ["mutex", "fair", "read-write"] {
        let name = format!("sale::survives_faults_with_{}", lock.replace('-', "_"));
        suite.add("in-process", &name, move || {
            both_faults_and_several_products(lock)
        });
    }
    let in_process: [(&str, Test); 20] = [
        ("sale::rush_sells_only_the_stock", || {
            rush_sells_only_the_stock(None)
        }),
        (
            "sale::terminal_shows_why_it_waits",
            terminal_shows_why_it_waits,
        ),
        ("sale::draws_the_timeline", draws_the_timeline),
        ("sale::sells_exactly_the_stock", || {
            sells_exactly_the_stock("mutex")
        }),
        ("sale::sells_exactly_the_stock_fairly", || {
            sells_exactly_the_stock("fair")
        }),
        (
            "sale::fair_lock_gives_every_user_node",
            fair_lock_gives_every_user_node,
        ),
        ("sale::looks_under_the_read_lock", looks_under_the_read_lock),
        (
            "sale::hundred_thousand_users_are_served",
            hundred_thousand_users_are_served,
        ),
        ("sale::oversells_without_a_lock", oversells_without_a_lock),
        ("sale::some_users_time_out", some_users_time_out),
        ("sale::keeps_its_database", keeps_its_database),
        (
            "sale::leaves_other_databases_alone",
            leaves_other_databases_alone,
        ),
        ("sale::reports_wrong_arguments", reports_wrong_arguments),
        (
            "sale::interrupt_ends_the_workers",
            interrupt_ends_the_workers,
        ),
        (
            "sale::workers_end_with_a_killed_sale",
            workers_end_with_a_killed_sale,
        ),
        ("sale::goes_on_without_a_killed_worker", || {
            goes_on_without_a_killed_worker(None)
        }),
        ("sale::each_product_has_its_lock", each_product_has_its_lock),
        ("sale::draws_overlaps", draws_overlaps),
        (
            "sale::releases_before_the_next_grant",
            releases_before_the_next_grant,
        ),
        (
            "sale::stopped_worker_ends_with_killed_sale",
            stopped_worker_ends_with_killed_sale,
        ),
    ];
    for (name, test) in in_process {
        suite.add("in-process", name, test);
    }
    // Shows: paused-process
    suite.add("in-process", "sale::refuses_a_paused_worker", || {
        refuses_a_paused_worker(None)
    });
    suite.add_needing(
        "zookeeper",
        "sale::goes_on_without_a_killed_worker",
        peers::zookeeper(),
        |_| goes_on_without_a_killed_worker(Some(&shared_standalone()?.connect_string())),
    );
    suite.add_needing(
        "zookeeper",
        "sale::refuses_a_paused_worker",
        peers::zookeeper(),
        |_| refuses_a_paused_worker(Some(&shared_standalone()?.connect_string())),
    );
    for lock in ["mutex", "fair", "read-write"] {
        let name = format!(
            "sale::sells_exactly_the_stock_with_{}",
            lock.replace('-', "_")
        );
        suite.add_needing("zookeeper", &name, peers::zookeeper(), move |_| {
            sells_on(lock, &shared_standalone()?.connect_string())
        });
    }
    suite.add_needing(
        "zookeeper-3",
        "sale::sells_exactly_the_stock",
        peers::zookeeper(),
        |_| sells_on("mutex", &shared_ensemble()?.connect_string()),
    );
}

fn sale(args: &[&str]) -> Result<Command, Box<dyn Error>> {
    sale_on(None, args)
}

fn sale_on(servers: Option<&str>, args: &[&str]) -> Result<Command, Box<dyn Error>> {
    command(servers, "inventory_stock", args)
}

/// Runs a sale that must end with this exit code, and reads the last line that it prints.
fn report(sale: Command, exit_code: i32) -> Result<Value, Box<dyn Error>> {
    let report = report_of(sale, exit_code)?;
    let users: u64 = ["sold", "sold_out", "timed_out", "lost"]
        .iter()
        .map(|name| number(&report, name))
        .sum();
    assert_eq!(users, number(&report, "users"), "{report}");
    assert_eq!(number(&report, "unaccounted"), 0, "{report}");
    let outside = &report["outside"];
    let outside: u64 = ["sold_out", "timed_out", "lost", "failed"]
        .iter()
        .map(|name| number(outside, name))
        .sum();
    assert_eq!(number(&report, "inside") + outside, users, "{report}");
    Ok(report)
}

fn sells_exactly_the_stock(lock: &str) -> TestResult {
    let report = report(sale(&["--lock", lock, "--wait", PATIENT])?, 0)?;
    assert_eq!(report["backend"], "in-process");
    sold_three(&report)
}

fn sold_three(report: &Value) -> TestResult {
    for (name, expected) in [("stock", 3), ("users", 99), ("workers", 8), ("sold", 3)] {
        assert_eq!(number(report, name), expected, "{name} in {report}");
    }
    for name in ["lost", "oversold", "overlaps", "fenced", "failed", "left"] {
        assert_eq!(number(report, name), 0, "{name} in {report}");
    }
    assert_eq!(
        report["winners"].as_array().map(Vec::len),
        Some(3),
        "{report}"
    );
    assert!(number(report, "peak_lock_nodes") <= 99, "{report}");
    assert!(
        report["seconds"]
            .as_f64()
            .is_some_and(|seconds| seconds > 0.0),
        "{report}"
    );
    Ok(())
}

/// With the mutex a process has at most 64 nodes, and the other users wait in memory.
fn fair_lock_gives_every_user_node() -> TestResult {
    let peak = |lock| {
        let all_at_once = [
            "--scenario",
            "article-rush",
            "--workers",
            "1",
            "--users",
            "200",
            "--think",
            "50ms",
        ];
        let mut sale = sale(&all_at_once)?;
        sale.args(["--lock", lock]);
        Ok::<_, Box<dyn Error>>(number(&report(sale, 0)?, "peak_lock_nodes"))
    };
    let (fair, mutex) = (peak("fair")?, peak("mutex")?);
    assert!((65..=200).contains(&fair) && mutex <= 64, "{fair}, {mutex}");
    Ok(())
}

/// Each user looks as a reader, and every buyer has been a writer.
fn looks_under_the_read_lock() -> TestResult {
    let server = Server::start()?;
    let args = ["--lock", "read-write", "--wait", PATIENT];
    sold_three(&report(sale_on(Some(&server.connect_string()), &args)?, 0)?)?;
    let is_new =
        |entry: &LogEntry| (entry.kind, entry.op, entry.error) == (LogKind::Applied, Op::Create, 0);
    let created = |kind| {
        server
            .log()
            .iter()
            .filter(|entry| is_new(entry) && entry.path.contains(kind))
            .count()
    };
    let (readers, writers) = (created("__READ__"), created("__WRIT__"));
    // The users of a worker share a node.
    assert!(
        (1..=3 * 99).contains(&readers) && (1..=99).contains(&writers),
        "{readers}, {writers}"
    );
    assert_eq!(created("lock-"), 0);
    Ok(())
}

fn hundred_thousand_users_are_served() -> TestResult {
    let report = report(sale(&["--users", "100000", "--stock", "10"])?, 0)?;
    assert_eq!(number(&report, "sold"), 10, "{report}");
    assert_eq!(number(&report, "overlaps"), 0, "{report}");
    Ok(())
}

fn oversells_without_a_lock() -> TestResult {
    let report = report(sale(&["--lock", "none", "--think", "5ms"])?, 1)?;
    assert!(number(&report, "oversold") > 0, "{report}");
    assert!(number(&report, "overlaps") > 0, "{report}");
    Ok(())
}

/// The first buyer thinks for longer than the others wait.
fn some_users_time_out() -> TestResult {
    let args = [
        "--users",
        "16",
        "--workers",
        "2",
        "--stock",
        "16",
        "--think",
        "2s",
        "--wait",
        "500ms",
    ];
    let report = report(sale(&args)?, 0)?;
    assert_eq!(number(&report, "oversold"), 0, "{report}");
    assert!(number(&report, "timed_out") > 0, "{report}");
    assert_eq!(
        number(&report, "sold") + number(&report, "left"),
        16,
        "{report}"
    );
    Ok(())
}

/// Asserts everything that a sale with a fault must show, except for the effects of the fault.
fn survives(args: &[&str], servers: Option<&str>) -> Result<Value, Box<dyn Error>> {
    let report = report(sale_on(servers, args)?, 0)?;
    for name in [
        "oversold",
        "overlaps",
        "vanished",
        "sent_away",
        "timed_out",
        "failed",
        "left",
    ] {
        assert_eq!(number(&report, name), 0, "{name} in {report}");
    }
    assert_eq!(
        number(&report, "sold"),
        number(&report, "stock"),
        "{report}"
    );
    Ok(report)
}

/// This session timeout is over soon after a kill, and outlasts a machine that stands still for a
/// second or two. A real sale would use a longer timeout.
const SHORT: &str = "5s";

fn goes_on_without_a_killed_worker(servers: Option<&str>) -> TestResult {
    let report = survives(&["--kill-one", "--session-timeout", SHORT], servers)?;
    let killed = number(&report, "killed");
    assert!((1..=8).contains(&killed), "{report}");
    // None of the worker's users had bought before; the worker has one of the 8 shares.
    assert_eq!(
        number(&report, "lost"),
        (killed..=99).step_by(8).count() as u64,
        "{report}"
    );
    // One of the worker's users had entered.
    assert_eq!(
        number(&report["outside"], "lost") + 1,
        number(&report, "lost"),
        "{report}"
    );
    assert_eq!(number(&report, "inside_again"), 0, "{report}");
    // The lock is free when the worker's session has expired.
    assert!(report["seconds"].as_f64() >= Some(4.0), "{report}");
    Ok(())
}

fn refuses_a_paused_worker(servers: Option<&str>) -> TestResult {
    let report = survives(&["--pause-one", "--session-timeout", SHORT], servers)?;
    assert_eq!(number(&report, "lost"), 0, "{report}");
    assert!(number(&report, "fenced") >= 1, "{report}");
    // The pause is longer than the session, which the servers count from the last contact.
    assert!(report["paused_seconds"].as_f64() >= Some(2.5), "{report}");
    Ok(())
}

fn both_faults_and_several_products(lock: &str) -> TestResult {
    let args = [
        "--kill-one",
        "--pause-one",
        "--skus",
        "3",
        "--session-timeout",
        SHORT,
        "--lock",
        lock,
    ];
    let report = survives(&args, None)?;
    assert!(number(&report, "lost") > 0, "{report}");
    assert!(number(&report, "fenced") >= 1, "{report}");
    assert_ne!(
        number(&report, "killed"),
        number(&report, "paused"),
        "{report}"
    );
    Ok(())
}

fn each_product_has_its_lock() -> TestResult {
    let report = survives(&["--skus", "8", "--stock", "4", "--wait", PATIENT], None)?;
    assert_eq!(number(&report, "stock"), 32, "{report}");
    let skus = report["skus"].as_array().ok_or("no skus")?;
    assert_eq!(skus.len(), 8, "{report}");
    for sku in skus {
        assert_eq!(
            (
                number(sku, "sold"),
                number(sku, "left"),
                number(sku, "oversold")
            ),
            (4, 0, 0),
            "{report}"
        );
    }
    Ok(())
}

/// There are ten orders of a second each, one after another, and a hundred thousand users who want
/// them.
fn rush_sells_only_the_stock(servers: Option<&str>) -> TestResult {
    let report = survives(&["--scenario", "article-rush", "--wait", "4m"], servers)?;
    assert_eq!(
        (number(&report, "users"), number(&report, "sold")),
        (100_000, 10),
        "{report}"
    );
    assert_eq!(
        report["winners"].as_array().map(Vec::len),
        Some(10),
        "{report}"
    );
    assert!(report["seconds"].as_f64() >= Some(10.0), "{report}");
    Ok(())
}

fn draws_the_timeline() -> TestResult {
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("sale.svg");
    let args = [
        "--kill-one",
        "--pause-one",
        "--session-timeout",
        SHORT,
        "--workers",
        "4",
        "--timeline",
    ];
    let mut sale = sale(&args)?;
    sale.arg(&file);
    report(sale, 0)?;
    let picture = std::fs::read_to_string(&file)?;
    for words in [
        ">worker 4<",
        "<title>killed</title>",
        "<title>stopped for ",
        "<title>session expired</title>",
        "<title>lost: ",
        "bought one, left 0</title>",
        "was refused by the token</title>",
        "never came out</title>",
    ] {
        assert!(picture.contains(words), "{words} in {picture}");
    }
    Ok(())
}

/// An overlap is drawn in its own colour and named in words, and only where it happened.
fn draws_overlaps() -> TestResult {
    let directory = tempfile::tempdir()?;
    for (lock, exit_code) in [("none", 1), ("mutex", 0)] {
        let file = directory.path().join(format!("{lock}.svg"));
        let mut sale = sale(&[
            "--think",
            "5ms",
            "--wait",
            "30s",
            "--lock",
            lock,
            "--timeline",
        ])?;
        sale.arg(&file);
        let report = report(sale, exit_code)?;
        let picture = std::fs::read_to_string(&file)?;
        let drawn = picture.matches("<title>two inside at once").count() as u64;
        assert_eq!(drawn, number(&report, "overlaps"), "{report}");
        assert_eq!(drawn > 0, lock == "none", "{report}");
    }
    Ok(())
}

/// While the lock of a worker that was killed or stopped is still held, no user leaves.
fn terminal_shows_why_it_waits() -> TestResult {
    for (fault, words) in [
        ("--kill-one", "was killed, session ends in 4."),
        ("--pause-one", "is stopped, session ends in 4."),
    ] {
        let (status, shown) = shown_on_a_terminal(sale(&[fault, "--session-timeout", SHORT])?)?;
        assert!(status.success(), "{status}: {shown}");
        assert!(shown.contains(" 0/99 users"), "{shown}");
        assert!(shown.contains(words), "{shown}");
    }
    Ok(())
}

/// Each process reports its own steps, so the order of the lines is the order of events.
fn releases_before_the_next_grant() -> TestResult {
    let output = sale(&["--verbose", "--wait", "30s"])?.output()?;
    let text = said(&output);
    assert_eq!(output.status.code(), Some(0), "{text}");
    let stderr = String::from_utf8(output.stderr)?;
    let user = |line: &str| {
        line.split("  user ")
            .nth(1)
            .and_then(|rest| rest.split(':').next().map(str::to_owned))
    };
    let (mut holder, mut holds) = (None, 0);
    for line in stderr.lines() {
        if line.contains(": got the lock") {
            assert_eq!(holder, None, "{line} in {text}");
            holder = user(line);
            holds += 1;
        } else if line.contains("releases") {
            assert_eq!(holder.take(), user(line), "{line} in {text}");
        }
    }
    assert!(holder.is_none() && holds >= 3, "{text}");
    Ok(())
}

fn keeps_its_database() -> TestResult {
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("shop.sqlite");
    // The second sale replaces the first, whose tokens came from another server.
    for stock in ["5", "7"] {
        let mut sale = sale(&["--stock", stock, "--wait", "30s", "--db"])?;
        sale.arg(&file);
        report(sale, 0)?;
    }
    let db = Connection::open(&file)?;
    let mut orders = db.prepare("SELECT token_zxid, token_n FROM orders ORDER BY id")?;
    let tokens: Vec<(i64, i64)> = orders
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<Result<_, _>>()?;
    assert_eq!(tokens.len(), 7);
    assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
    let (left, youngest): (u32, (i64, i64)) =
        db.query_row("SELECT left, write_zxid, write_n FROM stock", [], |row| {
            Ok((row.get(0)?, (row.get(1)?, row.get(2)?)))
        })?;
    assert_eq!(left, 0);
    // A user that comes after the last buyer has shown a token as well.
    assert!(Some(&youngest) >= tokens.last(), "{youngest:?}, {tokens:?}");
    Ok(())
}

fn leaves_other_databases_alone() -> TestResult {
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("other.sqlite");
    let other = Connection::open(&file)?;
    other.execute_batch("CREATE TABLE stock (what TEXT); INSERT INTO stock VALUES ('precious')")?;
    let output = sale(&["--db"])?.arg(&file).output()?;
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    let what: String = other.query_row("SELECT what FROM stock", [], |row| row.get(0))?;
    assert_eq!(what, "precious");
    Ok(())
}

fn reports_wrong_arguments() -> TestResult {
    let cases: [(&[&str], &str); 9] = [
        (&["--wait", "200"], "such as 200ms"),
        (&["--users", "4294967295"], "--users"),
        (&["--stock", "4294967295"], "--stock"),
        (&["--workers", "0"], "--workers"),
        (
            &["--connect", "127.0.0.1:1"],
            "no ZooKeeper server of 127.0.0.1:1",
        ),
        (&["--db", "/nowhere/shop.sqlite"], "/nowhere/shop.sqlite"),
        (&["--timeline", "/nowhere/sale.svg"], "/nowhere/sale.svg"),
        (&["--lock", "none", "--kill-one"], "nobody holds it"),
        (&["--stock", "0", "--pause-one"], "nobody to stop"),
    ];
    for (args, words) in cases {
        let output = sale(args)?.output()?;
        assert_eq!(output.status.code(), Some(2), "{args:?}: {}", said(&output));
        assert!(
            String::from_utf8_lossy(&output.stderr).contains(words),
            "{args:?}: {}",
            said(&output)
        );
    }
    Ok(())
}

fn interrupt_ends_the_workers() -> TestResult {
    ends_with_all_workers(|sale| Ok(kill_process(sale, Signal::INT)?), Some(130))
}

fn workers_end_with_a_killed_sale() -> TestResult {
    ends_with_all_workers(|sale| Ok(kill_process(sale, Signal::KILL)?), None)
}

/// The worker's session is longer than this test waits, so the worker is stopped until the sale
/// ends.
fn stopped_worker_ends_with_killed_sale() -> TestResult {
    let mut command = sale(&["--pause-one", "--verbose", "--session-timeout", "10m"])?;
    let mut sale = command
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut stderr = BufReader::new(sale.stderr.take().ok_or("no stderr")?);
    let mut said = String::new();
    // The first user that has seen the shelf is stopped before it says so.
    while !said.contains(": sees ") && stderr.read_line(&mut said)? > 0 {}
    kill_process(Pid::from_child(&sale), Signal::KILL)?;
    sale.wait()?;
    // The workers share the sale's stderr, which ends with the last worker.
    stderr.read_to_string(&mut said)?;
    assert!(said.contains(": sees "), "{said}");
    Ok(())
}

/// Interrupts a sale that would take long, and waits until its workers have ended.
fn ends_with_all_workers(
    end: impl FnOnce(Pid) -> TestResult,
    exit_code: Option<i32>,
) -> TestResult {
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("shop.sqlite");
    let mut command = sale(&[
        "--users", "500", "--stock", "500", "--think", "500ms", "--wait", "10m",
    ])?;
    command
        .arg("--db")
        .arg(&file)
        .env("TMPDIR", directory.path());
    let mut sale = command
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    // The file may not exist yet, or have no table.
    let sold = || {
        let db = Connection::open_with_flags(&file, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
        db.query_row("SELECT count(*) FROM orders", [], |row| row.get(0))
    };
    let begun = poll_until("the first order", PATIENCE, || {
        sold().ok().filter(|&orders: &u32| orders > 0)
    });
    end(Pid::from_child(&sale))?;
    let status = sale.wait()?;
    // The workers share the sale's stderr, which ends with the last worker.
    let mut stderr = String::new();
    sale.stderr
        .take()
        .ok_or("no stderr")?
        .read_to_string(&mut stderr)?;
    begun?;
    assert_eq!(status.code(), exit_code, "{stderr}");
    Ok(())
}

fn sells_on(lock: &str, servers: &str) -> TestResult {
    let report = report(
        sale_on(Some(servers), &["--wait", PATIENT, "--lock", lock])?,
        0,
    )?;
    assert_eq!(report["backend"], "zookeeper", "{report}");
    assert_eq!(number(&report, "sold"), 3, "{report}");
    assert_eq!(number(&report, "sold_out"), 96, "{report}");
    assert_eq!(number(&report, "overlaps"), 0, "{report}");
    Ok(())
}
