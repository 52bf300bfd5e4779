//! The controller, of which one process leads.

use serde_json::Value;

use crate::{SHORT, TestResult, assert_numbers, number, report};

/// One leader was killed, one stopped and woken; both survivors have led to the end.
fn led(servers: Option<&str>, args: &[&str], exit_code: i32) -> Result<Value, Box<dyn std::error::Error>> {
    let args = [args, &["--session-timeout", SHORT]].concat();
    let report = report(servers, "controller", &args, exit_code)?;
    assert_numbers(&report, &[("overlaps", 0), ("terms_out_of_order", 0), ("failed", 0)]);
    Ok(report)
}

pub(crate) fn has_one_leader_at_a_time(servers: Option<&str>) -> TestResult {
    let report = led(servers, &[], 0)?;
    assert_numbers(&report, &[("terms", 4), ("fenced", 1), ("stale_writes", 0)]);
    Ok(())
}

pub(crate) fn of_a_latch_has_one_leader_at_a_time(servers: Option<&str>) -> TestResult {
    let report = led(servers, &["--recipe", "latch"], 0)?;
    assert_numbers(&report, &[("terms", 4), ("fenced", 1), ("stale_writes", 0)]);
    Ok(())
}

pub(crate) fn without_a_fence_takes_the_write_of_a_former_leader() -> TestResult {
    let report = led(None, &["--no-fence"], 1)?;
    assert_numbers(&report, &[("terms", 4), ("fenced", 0)]);
    assert!(number(&report, "stale_writes") > 0, "{report}");
    Ok(())
}
