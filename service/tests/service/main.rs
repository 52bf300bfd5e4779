//! The service by HTTP, on the ZooKeeper server in this process, and the files of docs/kubernetes
//! and docs/monitoring.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod files;
mod orders;
#[cfg(feature = "metrics")]
mod scrape;
mod shop;
mod stops;

use test_support::{Suite, peers};

fn main() {
    let mut suite = Suite::new();
    let in_process: [(&str, fn()); 16] = [
        (
            "service::sells_until_the_stock_ends",
            orders::sells_until_the_stock_ends,
        ),
        ("service::callers_create_no_directories", orders::keys),
        (
            "service::busy_is_503_with_the_holder",
            orders::busy_is_503_with_the_holder,
        ),
        (
            "service::blocked_database_blocks_nothing_else",
            orders::blocked_database_blocks_nothing_else,
        ),
        (
            "service::leaving_caller_does_not_end_sale",
            orders::leaving_a_sale,
        ),
        (
            "service::leaving_caller_leaves_the_queue",
            orders::leaving_the_queue,
        ),
        (
            "service::database_refuses_a_former_holder",
            orders::former_holder,
        ),
        ("service::starts_before_zookeeper", stops::before_zookeeper),
        (
            "service::stop_waits_for_running_sales",
            stops::waits_for_sales,
        ),
        ("service::stop_wait_is_bounded", stops::waits_no_longer),
        ("service::sigterm_ends_the_process_in_order", stops::sigterm),
        ("kubernetes::grace_period_is_long_enough", files::grace),
        ("kubernetes::probes_match_the_service", files::probes),
        (
            "monitoring::dashboard_shows_existing_metrics",
            files::dashboard,
        ),
        ("monitoring::alerts_use_existing_metrics", files::alerts),
        ("monitoring::wanted_loss_raises_no_alert", files::losses),
    ];
    for (name, test) in in_process {
        suite.add("in-process", name, test);
    }
    #[cfg(feature = "metrics")]
    suite.add(
        "in-process",
        "monitoring::scrape_has_the_dashboards_metrics",
        scrape::has_what_the_dashboard_shows,
    );
    suite.add_needing(
        "prometheus",
        "monitoring::first_loss_fires",
        peers::promtool(),
        files::first_loss,
    );
    suite.run()
}
