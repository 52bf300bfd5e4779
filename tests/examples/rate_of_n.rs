//! A service that at most n clients use at a time.

use crate::{TestResult, assert_numbers, number, report};

pub(crate) fn is_never_exceeded(servers: Option<&str>) -> TestResult {
    // Long visits overlap even if a permit takes long to come.
    let report = report(
        servers,
        "rate_of_n",
        &["--visits", "40", "--stay", "100ms"],
        0,
    )?;
    assert_numbers(
        &report,
        &[("n", 3), ("served", 40), ("not_served", 0), ("clashes", 0)],
    );
    // A peak of one would prove nothing.
    assert!((2..=3).contains(&number(&report, "peak")), "{report}");
    Ok(())
}

pub(crate) fn is_exceeded_without_a_semaphore(servers: Option<&str>) -> TestResult {
    let report = report(servers, "rate_of_n", &["--lock", "none"], 1)?;
    assert!(
        number(&report, "peak") > 3 && number(&report, "clashes") > 0,
        "{report}"
    );
    assert_numbers(&report, &[("served", 120)]);
    Ok(())
}
