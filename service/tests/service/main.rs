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
            "service::orders_are_sold_until_none_is_left",
            orders::sold_until_none_is_left,
        ),
        ("service::callers_create_no_directories", orders::keys),
        (
            "service::busy_is_503_with_the_holder",
            orders::busy_is_503_with_the_holder,
        ),
        (
            "service::a_blocked_database_blocks_nothing_else",
            orders::a_blocked_database_blocks_nothing_else,
        ),
        (
            "service::a_caller_who_leaves_a_sale_does_not_end_it",
            orders::leaving_a_sale,
        ),
        (
            "service::a_caller_who_leaves_the_queue_is_out_of_it",
            orders::leaving_the_queue,
        ),
        (
            "service::the_database_refuses_a_former_holder",
            orders::a_former_holder,
        ),
        (
            "service::it_starts_before_zookeeper",
            stops::before_zookeeper,
        ),
        (
            "service::a_stop_waits_for_the_sales_under_way",
            stops::waits_for_sales,
        ),
        (
            "service::a_stop_does_not_wait_longer",
            stops::waits_no_longer,
        ),
        ("service::sigterm_ends_the_process_in_order", stops::sigterm),
        ("kubernetes::the_grace_period_is_long_enough", files::grace),
        (
            "kubernetes::the_probes_are_those_of_the_service",
            files::probes,
        ),
        (
            "monitoring::the_dashboard_shows_metrics_that_exist",
            files::dashboard,
        ),
        (
            "monitoring::the_alerts_are_about_metrics_that_exist",
            files::alerts,
        ),
        (
            "monitoring::a_loss_that_the_holder_wanted_is_none",
            files::losses,
        ),
    ];
    for (name, test) in in_process {
        suite.add("in-process", name, test);
    }
    #[cfg(feature = "metrics")]
    suite.add(
        "in-process",
        "monitoring::a_scrape_has_what_the_dashboard_shows",
        scrape::has_what_the_dashboard_shows,
    );
    suite.add_needing(
        "prometheus",
        "monitoring::the_first_loss_fires",
        peers::promtool(),
        files::first_loss,
    );
    suite.run()
}
