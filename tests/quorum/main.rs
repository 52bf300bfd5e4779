//! The guard's promise, on three real ZooKeeper members whose links break: **a holder is notified
//! of a loss before another contender is granted the lock**, and a holder that can reach a member
//! of the quorum keeps its lock.
//!
//! ```text
//! cargo test --test quorum                           all of it, half a minute
//! cargo test --test quorum leader                    the scenarios with that in their name
//! cargo test --test quorum -- --test-threads 1       one after the other
//! ```
//!
//! Each scenario prints how long before the next grant the holder was notified. Holder, waiter and
//! the network between them are in this process, so one clock times all. The session timeout is 10
//! s unless a scenario says otherwise, with ZooKeeper's own tick of 2 s; its own sync limit of 5
//! ticks is doubled where members are parted.
#![expect(clippy::expect_used, reason = "a test")]

mod client_links;
mod ensemble;
mod holders;
mod leaders;
mod partitions;

use std::time::Duration;

use test_support::{Direction, Steadiness, Suite, peers};

use self::holders::{Kind, Outcome};

/// How often a scenario is run on a machine that stands still.
const ROUNDS: usize = 3;

/// Runs a scenario, and repeats it if it fails on a machine that stood still: holder, waiter and
/// servers depend on the clock, so the machine may have caused the delay. A failed assertion is not
/// repeated.
fn steadily(title: &str, scenario: fn(&str) -> Outcome) -> Outcome {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;
    for _ in 1..ROUNDS {
        let machine = {
            let _runtime = runtime.enter();
            Steadiness::watch()
        };
        let Err(failure) = scenario(title) else {
            return Ok(());
        };
        let stood = machine.stood_still();
        if stood < Duration::from_millis(100) {
            return Err(failure);
        }
        println!(
            "{title}: this machine stood still for {} ms, so once more: {failure}",
            stood.as_millis()
        );
    }
    scenario(title)
}

fn main() {
    let mut suite = Suite::new();
    // The scenarios wait most of the time. Scenarios that disturb a shared ensemble also wait for
    // each other.
    suite.at_once(32);
    let mut add = |name: &str, trial: fn(&str) -> Outcome| {
        let title = name.to_owned();
        suite.add_needing("zookeeper", name, peers::zookeeper(), move |_| {
            steadily(&title, trial)
        });
    };
    // The longest scenarios start first.
    // Shows: session-timeout
    add("leaders::hangs_by_default", leaders::hangs);
    // Shows: close-confirmed
    add("leaders::all_killed", leaders::all_killed);
    // Shows: renewal
    add(
        "partitions::leader_left_by_its_followers",
        partitions::leader,
    );
    // Shows: renewal
    add(
        "partitions::follower_unheard_by_its_leader",
        partitions::follower,
    );
    add("leaders::stopped_for_a_while", leaders::stopped);
    add(
        "leaders::stopped_for_a_moment",
        leaders::stopped_for_a_moment,
    );
    add("leaders::killed", leaders::killed);
    add("client_links::silent_to_the_client", |t| {
        client_links::silent(t, Kind::Mutex, Direction::ToClient)
    });
    add("client_links::silent_to_the_server", |t| {
        client_links::silent(t, Kind::Mutex, Direction::ToServer)
    });
    add("client_links::silent_both_ways", |t| {
        client_links::silent(t, Kind::Mutex, Direction::Both)
    });
    add("client_links::silent_to_a_fair_lock", |t| {
        client_links::silent(t, Kind::Fair, Direction::Both)
    });
    add("client_links::silent_to_a_reader", |t| {
        client_links::silent(t, Kind::Reader, Direction::Both)
    });
    add("client_links::silent_to_a_writer", |t| {
        client_links::silent(t, Kind::Writer, Direction::Both)
    });
    add("client_links::silent_to_a_downgraded_writer", |t| {
        client_links::silent(t, Kind::Downgraded, Direction::Both)
    });
    // Shows: lease
    add("client_links::all_silent", client_links::all_silent);
    add("client_links::shares_and_work_silent_to_client", |t| {
        client_links::silent_with_shares_and_work(t, Direction::ToClient)
    });
    add("client_links::shares_and_work_silent_to_server", |t| {
        client_links::silent_with_shares_and_work(t, Direction::ToServer)
    });
    add("client_links::shares_and_work_silent_both_ways", |t| {
        client_links::silent_with_shares_and_work(t, Direction::Both)
    });
    add(
        "client_links::dead_member_of_three",
        client_links::dead_member_of_three,
    );
    add(
        "client_links::silent_member_of_three",
        client_links::silent_member_of_three,
    );
    // Shows: reconnect
    add(
        "client_links::outage_6400_ms_after_12_s",
        client_links::outage,
    );
    add("client_links::forgotten", |t| client_links::forgotten(t, 0));
    add("client_links::forgotten_and_two_failed_tries", |t| {
        client_links::forgotten(t, 2)
    });
    add(
        "client_links::silent_at_first",
        client_links::silent_at_first,
    );
    suite.run()
}
