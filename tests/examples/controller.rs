//! The controller, of which one process leads.

use serde_json::Value;

use crate::{TestResult, assert_numbers, number, report};

/// Asserts that one leader was killed, that one was stopped and resumed, and that both survivors
/// have led to the end. On a busy machine a leadership may be lost as well, which makes more terms
/// and no overlap.
fn led(
    servers: Option<&str>,
    args: &[&str],
    exit_code: i32,
) -> Result<Value, Box<dyn std::error::Error>> {
    let report = report(servers, "controller", args, exit_code)?;
    assert_numbers(
        &report,
        &[("overlaps", 0), ("terms_out_of_order", 0), ("failed", 0)],
    );
    assert!(number(&report, "terms") >= 4, "{report}");
    Ok(report)
}

fn holds(servers: Option<&str>, args: &[&str]) -> TestResult {
    let report = led(servers, args, 0)?;
    assert!(number(&report, "fenced") > 0, "{report}");
    assert_numbers(&report, &[("stale_writes", 0)]);
    Ok(())
}

pub(crate) fn has_one_leader_at_a_time(servers: Option<&str>) -> TestResult {
    holds(servers, &[])
}

pub(crate) fn latch_leads_one_at_a_time() -> TestResult {
    holds(None, &["--recipe", "latch"])
}

pub(crate) fn missing_fence_admits_former_leaders_write() -> TestResult {
    let report = led(None, &["--no-fence"], 1)?;
    assert_numbers(&report, &[("fenced", 0)]);
    assert!(number(&report, "stale_writes") > 0, "{report}");
    Ok(())
}
