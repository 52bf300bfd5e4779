//! The examples, run as a reader runs them: each is right with its lock, and breaks without it.

mod article;
mod cache_consistency;
mod controller;
mod daily_job;
mod herd;
mod inventory_stock;
mod member_killed;
mod order_numbers;
mod rate_of_n;
mod transfer;

use std::error::Error;
use std::io::Read;
use std::process::{Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use test_support::{
    SOON, Suite, example, peers, shared_ensemble, shared_standalone, shown_on_a_terminal,
};
use zookeeper_test_server::Server;

type TestResult = Result<(), Box<dyn Error>>;

/// This session timeout is over soon after a kill, and outlasts a machine that stands still for a
/// second or two.
const SHORT: &str = "5s";

/// A test that needs servers, or the server that the example starts.
type OnServers = fn(Option<&str>) -> TestResult;

/// A test that chooses its servers itself.
type Test = fn() -> TestResult;

fn main() {
    let mut suite = Suite::new();
    inventory_stock::add_all(&mut suite);
    cache_consistency::add_all(&mut suite);
    // The longest trials start first.
    let in_process: [(&str, Test); 11] = [
        (
            "controller::latch_leads_one_at_a_time",
            controller::latch_leads_one_at_a_time,
        ),
        (
            "controller::missing_fence_admits_former_leaders_write",
            controller::missing_fence_admits_former_leaders_write,
        ),
        (
            "order_numbers::go_on_without_a_killed_process",
            order_numbers::go_on_without_a_killed_process,
        ),
        (
            "order_numbers::counter_outlives_a_killed_process",
            order_numbers::counter_outlives_a_killed_process,
        ),
        (
            "order_numbers::lost_replies_are_resolved",
            order_numbers::lost_replies_are_resolved,
        ),
        (
            "daily_job::dead_job_is_done_again",
            daily_job::dead_job_is_done_again,
        ),
        (
            "daily_job::lost_replies_are_resolved",
            daily_job::lost_replies_are_resolved,
        ),
        (
            "herd::wire_count_matches_the_servers",
            herd::wire_count_matches_the_servers,
        ),
        ("examples::report_wrong_arguments", report_wrong_arguments),
        (
            "examples::interrupt_ends_the_workers",
            interrupt_ends_the_workers,
        ),
        ("examples::terminal_shows_progress", terminal_shows_progress),
    ];
    for (name, test) in in_process {
        suite.add("in-process", name, test);
    }
    let everywhere: [(&str, OnServers); 12] = [
        (
            "controller::has_one_leader_at_a_time",
            controller::has_one_leader_at_a_time,
        ),
        ("order_numbers::have_no_gaps", order_numbers::have_no_gaps),
        (
            "order_numbers::counter_numbers_are_distinct",
            order_numbers::counter_numbers_are_distinct,
        ),
        (
            "order_numbers::repeat_without_a_lock",
            order_numbers::repeat_without_a_lock,
        ),
        (
            "daily_job::is_done_once_a_day",
            daily_job::is_done_once_a_day,
        ),
        (
            "daily_job::runs_everywhere_without_a_lock",
            daily_job::runs_everywhere_without_a_lock,
        ),
        (
            "herd::wakes_one_waiter_or_all",
            herd::wakes_one_waiter_or_all,
        ),
        ("rate_of_n::is_never_exceeded", rate_of_n::is_never_exceeded),
        (
            "rate_of_n::is_exceeded_without_a_semaphore",
            rate_of_n::is_exceeded_without_a_semaphore,
        ),
        ("transfer::loses_no_money", transfer::loses_no_money),
        (
            "transfer::loses_money_without_a_lock",
            transfer::loses_money_without_a_lock,
        ),
        (
            "transfer::nested_locks_deadlock",
            transfer::nested_locks_deadlock,
        ),
    ];
    for (name, test) in everywhere {
        suite.add("in-process", name, move || test(None));
        suite.add_needing("zookeeper", name, peers::zookeeper(), move |_| {
            test(Some(&shared_standalone()?.connect_string()))
        });
        suite.add_needing("zookeeper-3", name, peers::zookeeper(), move |_| {
            test(Some(&shared_ensemble()?.connect_string()))
        });
    }
    article::add_all(&mut suite);
    member_killed::add_all(&mut suite);
    suite.run()
}

fn command(servers: Option<&str>, name: &str, args: &[&str]) -> Result<Command, Box<dyn Error>> {
    let mut command = Command::new(example(name)?);
    command
        .args(args)
        .env_remove("ZK_CONNECT")
        .stdin(Stdio::null());
    command.envs(servers.map(|servers| ("ZK_CONNECT", servers)));
    Ok(command)
}

/// Runs a program that must end with this exit code, and reads the last line that it prints.
fn report_of(mut program: Command, exit_code: i32) -> Result<Value, Box<dyn Error>> {
    let output = program.arg("--json").output()?;
    assert_eq!(output.status.code(), Some(exit_code), "{}", said(&output));
    let stdout = String::from_utf8(output.stdout)?;
    Ok(serde_json::from_str(
        stdout.lines().last().ok_or("it printed nothing")?,
    )?)
}

/// Does the same for an example on these servers, or on the server that it starts.
fn report(
    servers: Option<&str>,
    name: &str,
    args: &[&str],
    exit_code: i32,
) -> Result<Value, Box<dyn Error>> {
    let report = report_of(command(servers, name, args)?, exit_code)?;
    assert_eq!(
        report["backend"],
        if servers.is_some() {
            "zookeeper"
        } else {
            "in-process"
        },
        "{report}"
    );
    assert!(
        report["seconds"]
            .as_f64()
            .is_some_and(|seconds| seconds > 0.0),
        "{report}"
    );
    Ok(report)
}

fn said(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

fn number(report: &Value, name: &str) -> u64 {
    let number = report[name].as_u64();
    assert!(number.is_some(), "{name} in {report}");
    number.unwrap_or_default()
}

#[track_caller]
fn assert_numbers(report: &Value, expected: &[(&str, u64)]) {
    for (name, expected) in expected {
        assert_eq!(number(report, name), *expected, "{name} in {report}");
    }
}

fn report_wrong_arguments() -> TestResult {
    let cases: [(&str, &[&str], &str); 6] = [
        ("order_numbers", &["--wait", "200"], "such as 200ms"),
        (
            "order_numbers",
            &["--lock", "none", "--kill-one"],
            "no holder to kill",
        ),
        (
            "order_numbers",
            &["--orders", "0", "--kill-one"],
            "no worker to kill",
        ),
        (
            "daily_job",
            &["--lock", "none", "--kill-one"],
            "no node does the job alone",
        ),
        (
            "daily_job",
            &["--connect", "127.0.0.1:1"],
            "no ZooKeeper server of 127.0.0.1:1",
        ),
        (
            "herd",
            &[
                "--waiters",
                "2",
                "--releases",
                "1",
                "--svg",
                "/no/such/file",
            ],
            "could not be written",
        ),
    ];
    for (name, args, words) in cases {
        let output = command(None, name, args)?.output()?;
        assert_eq!(
            output.status.code(),
            Some(2),
            "{name} {args:?}: {}",
            said(&output)
        );
        assert!(
            said(&output).contains(words),
            "{name} {args:?}: {}",
            said(&output)
        );
    }
    Ok(())
}

fn terminal_shows_progress() -> TestResult {
    let args = ["--kill-one", "--session-timeout", SHORT];
    let (status, shown) = shown_on_a_terminal(command(None, "daily_job", &args)?)?;
    assert!(status.success(), "{status}: {shown}");
    assert!(shown.contains("/56 wake-ups"), "{shown}");
    assert!(shown.contains("was killed, session ends in 4."), "{shown}");
    Ok(())
}

/// The run leaves no process, no session and no data.
fn interrupt_ends_the_workers() -> TestResult {
    for (name, args, sessions) in [
        ("order_numbers", ["--orders", "5000"], 12),
        ("herd", ["--releases", "10000"], 3),
    ] {
        let server = Server::start()?;
        let mut command = command(Some(&server.connect_string()), name, &args)?;
        let mut run = command
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()?;
        let mut stderr = run.stderr.take().ok_or("no stderr")?;
        assert!(
            server.wait_until_blocking(|view| view.sessions().len() >= sessions, SOON),
            "{name}"
        );
        kill_process(Pid::from_child(&run), Signal::INT)?;
        // The workers share the run's stderr, which ends with the last worker.
        let mut said = String::new();
        stderr.read_to_string(&mut said)?;
        assert_eq!(run.wait()?.code(), Some(130), "{name}: {said}");
        assert!(
            server.wait_until_blocking(|view| view.sessions().is_empty(), SOON),
            "{name}"
        );
        assert_eq!(server.children(&format!("/{name}")), [""; 0], "{name}");
    }
    Ok(())
}
