//! The herd: how many waiters a release wakes.

use zookeeper_test_server::Server;

use crate::{TestResult, assert_numbers, report};

const ARGS: [&str; 4] = ["--waiters", "20", "--releases", "5"];

pub(crate) fn wakes_one_waiter_or_all(servers: Option<&str>) -> TestResult {
    let picture = tempfile::NamedTempFile::new()?;
    let path = picture.path().to_str().ok_or("a path that is no text")?;
    let report = report(servers, "herd", &[&ARGS[..], &["--svg", path]].concat(), 0)?;
    assert_numbers(&report, &[("waiters", 20), ("releases", 5), ("herds", 0)]);
    assert_eq!(report["naive_notifications_per_release"], 20.0, "{report}");
    let sequential = report["sequential_notifications_per_release"].as_f64();
    if servers.is_none() {
        assert_eq!(sequential, Some(1.0), "{report}");
    } else {
        // A contender that had not set the watch yet is not notified.
        assert!(
            sequential.is_some_and(|sequential| (0.5..=1.0).contains(&sequential)),
            "{report}"
        );
    }
    let svg = std::fs::read_to_string(picture.path())?;
    for title in ["<title>naive, 20: 20<", "<title>sequential, 20: "] {
        assert!(svg.contains(title), "{title}: {svg}");
    }
    Ok(())
}

pub(crate) fn wire_count_matches_the_servers() -> TestResult {
    let server = Server::start()?;
    let report = report(Some(&server.connect_string()), "herd", &ARGS, 0)?;
    assert_eq!(report["counted_by"], "wire");
    let curve = report["curve"].as_array().ok_or("no curve")?;
    let per_release = curve
        .iter()
        .flat_map(|point| [&point["naive"], &point["sequential"]]);
    let counted: f64 = per_release
        .filter_map(serde_json::Value::as_f64)
        .sum::<f64>()
        * 5.0;
    // The notifications of contenders that came and left are not in the report.
    let sent = server.counters().notifications();
    assert!(counted.round() as u64 <= sent, "{sent}: {report}");
    assert_eq!(report["naive_notifications_per_release"], 20.0, "{report}");
    Ok(())
}
