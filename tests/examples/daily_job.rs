//! The daily job, which is recorded once a day.

use zookeeper_test_server::{Loss, Match, Op, Server};

use crate::{SHORT, TestResult, assert_numbers, number, report};

pub(crate) fn is_done_once_a_day(servers: Option<&str>) -> TestResult {
    let report = report(servers, "daily_job", &[], 0)?;
    assert_numbers(
        &report,
        &[
            ("days", 7),
            ("runs_recorded", 7),
            ("balance", 7),
            ("died", 0),
            ("nodes", 8),
        ],
    );
    assert_numbers(
        &report,
        &[("runs_started", 7), ("repeated", 0), ("missed", 0)],
    );
    Ok(())
}

pub(crate) fn runs_everywhere_without_a_lock(servers: Option<&str>) -> TestResult {
    let report = report(servers, "daily_job", &["--lock", "none"], 1)?;
    for name in ["runs_started", "runs_recorded"] {
        assert!(number(&report, name) > 7, "{name} in {report}");
    }
    assert!(number(&report, "repeated") > 0, "{report}");
    Ok(())
}

pub(crate) fn dead_job_is_done_again() -> TestResult {
    let report = report(
        None,
        "daily_job",
        &["--kill-one", "--session-timeout", SHORT],
        0,
    )?;
    assert_numbers(
        &report,
        &[
            ("days", 7),
            ("runs_recorded", 7),
            ("balance", 7),
            ("died", 1),
        ],
    );
    assert_numbers(
        &report,
        &[("runs_started", 8), ("repeated", 0), ("missed", 0)],
    );
    Ok(())
}

/// A node that does not know whether a job is recorded does not run it again, but finds out.
pub(crate) fn lost_replies_are_resolved() -> TestResult {
    let server = Server::start()?;
    let recorded = Match::op(Op::Multi).path_contains("/recorded/");
    let lost = server.drop_reply(recorded.clone().nth(1), Loss::Reset);
    let not_done = server.drop_request(recorded.nth(3), Loss::Reset);
    let report = report(Some(&server.connect_string()), "daily_job", &[], 0)?;
    assert_eq!((lost.hits().len(), not_done.hits().len()), (1, 1));
    assert_numbers(
        &report,
        &[
            ("days", 7),
            ("runs_recorded", 7),
            ("balance", 7),
            ("runs_started", 7),
        ],
    );
    Ok(())
}
