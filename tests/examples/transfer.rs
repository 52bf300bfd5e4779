//! Transfers between accounts, whose total is constant.

use crate::{TestResult, assert_numbers, number, report};

pub(crate) fn loses_no_money(servers: Option<&str>) -> TestResult {
    let report = report(servers, "transfer", &[], 0)?;
    assert_numbers(
        &report,
        &[
            ("transfers", 120),
            ("not_done", 0),
            ("total", 500),
            ("expected_total", 500),
        ],
    );
    // A lock that does not exclude other processes would show in the tokens too.
    assert_numbers(
        &report,
        &[
            ("wrong_accounts", 0),
            ("timed_out", 0),
            ("fenced", 0),
            ("processes", 6),
        ],
    );
    Ok(())
}

pub(crate) fn loses_money_without_a_lock(servers: Option<&str>) -> TestResult {
    let report = report(servers, "transfer", &["--lock", "none"], 1)?;
    assert_numbers(&report, &[("transfers", 120), ("expected_total", 500)]);
    assert!(number(&report, "wrong_accounts") > 0, "{report}");
    Ok(())
}

/// Two processes hold one account each, and wait for the other's until one gives up.
pub(crate) fn nested_locks_deadlock(servers: Option<&str>) -> TestResult {
    let report = report(servers, "transfer", &["--lock", "nested"], 1)?;
    assert!(
        number(&report, "timed_out") > 0 && number(&report, "not_done") > 0,
        "{report}"
    );
    // The recorded transfers lead to the balances.
    assert_numbers(
        &report,
        &[("total", 500), ("wrong_accounts", 0), ("fenced", 0)],
    );
    Ok(())
}
