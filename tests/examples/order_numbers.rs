//! Order numbers are distinct, and have no gaps under the mutex.

use zookeeper_test_server::{Loss, Match, Op, Server};

use crate::{SHORT, TestResult, assert_numbers, number, report};

pub(crate) fn have_no_gaps(servers: Option<&str>) -> TestResult {
    let report = report(servers, "order_numbers", &[], 0)?;
    assert_numbers(
        &report,
        &[
            ("issued", 200),
            ("distinct", 200),
            ("min", 1),
            ("max", 200),
            ("gaps", 0),
        ],
    );
    assert_numbers(
        &report,
        &[
            ("workers", 100),
            ("processes", 5),
            ("lost", 0),
            ("missing", 0),
        ],
    );
    // The counter's version would also keep the numbers distinct, by many attempts. With the lock
    // each number takes one attempt, except those of workers that were too late for their leases.
    assert!(number(&report, "retries") < 20, "{report}");
    Ok(())
}

pub(crate) fn counter_numbers_are_distinct(servers: Option<&str>) -> TestResult {
    let report = report(servers, "order_numbers", &["--lock", "counter"], 0)?;
    assert_numbers(
        &report,
        &[
            ("issued", 200),
            ("distinct", 200),
            ("min", 1),
            ("missing", 0),
        ],
    );
    // Each process has 40 orders, and takes three blocks of 16.
    assert!(
        number(&report, "max") > 200 && number(&report, "max") <= 240,
        "{report}"
    );
    Ok(())
}

/// The numbers that the process had taken are in no order.
pub(crate) fn counter_outlives_a_killed_process() -> TestResult {
    let report = report(
        None,
        "order_numbers",
        &["--lock", "counter", "--kill-one"],
        0,
    )?;
    assert_numbers(&report, &[("killed", 1), ("duplicates", 0), ("missing", 0)]);
    assert!(
        number(&report, "lost") > 0 && number(&report, "gaps") > 0,
        "{report}"
    );
    assert_eq!(
        number(&report, "issued") + number(&report, "lost"),
        200,
        "{report}"
    );
    Ok(())
}

pub(crate) fn repeat_without_a_lock(servers: Option<&str>) -> TestResult {
    let report = report(servers, "order_numbers", &["--lock", "none"], 1)?;
    assert_numbers(&report, &[("issued", 200), ("missing", 0)]);
    assert!(number(&report, "duplicates") > 0, "{report}");
    assert_eq!(
        number(&report, "distinct") + number(&report, "duplicates"),
        200,
        "{report}"
    );
    Ok(())
}

pub(crate) fn go_on_without_a_killed_process() -> TestResult {
    let report = report(
        None,
        "order_numbers",
        &["--kill-one", "--session-timeout", SHORT],
        0,
    )?;
    assert_numbers(
        &report,
        &[
            ("killed", 1),
            ("duplicates", 0),
            ("gaps", 0),
            ("missing", 0),
        ],
    );
    // The process had a fifth of the orders, and was killed before its fifth existed.
    assert_numbers(
        &report,
        &[
            ("lost", 36),
            ("issued", 164),
            ("distinct", 164),
            ("max", 164),
        ],
    );
    Ok(())
}

/// The transactions are committed, but the workers do not know that.
pub(crate) fn lost_replies_are_resolved() -> TestResult {
    let server = Server::start()?;
    let orders = Match::op(Op::Multi).path_contains("/orders/");
    let lost = server.drop_reply(orders.clone().nth(10), Loss::Reset);
    // Conversely, this transaction was not committed, and the workers do not know that.
    let not_done = server.drop_request(orders.nth(20), Loss::Reset);
    let args = ["--orders", "60", "--workers", "12"];
    let report = report(Some(&server.connect_string()), "order_numbers", &args, 0)?;
    assert_eq!((lost.hits().len(), not_done.hits().len()), (1, 1));
    assert_numbers(
        &report,
        &[
            ("issued", 60),
            ("distinct", 60),
            ("min", 1),
            ("max", 60),
            ("gaps", 0),
        ],
    );
    // On a busy machine a worker may also be late, and try again.
    let retries = number(&report, "retries");
    assert!(retries >= 2, "{report}");
    Ok(())
}
