//! The behaviours of the library, run on every back-end that can show them: an in-process server,
//! the same with connections that break all the time, a real ZooKeeper, a real ensemble, and some
//! on a model of ClickHouse Keeper.
//!
//! ```text
//! cargo test --test suite                        all of it
//! cargo test --test suite in-process::           one back-end
//! cargo test --test suite timeouts::             one group of behaviours
//! SUITE_SEED=7 cargo test --test suite faults    with the random numbers of an earlier run
//! ```
//!
//! Behaviours that a back-end cannot show, or that need a ZooKeeper that this machine does not
//! have, are listed as ignored, with the reason; `REQUIRE_PEERS=1` makes the latter fail.
//! Behaviours that a test of Curator's checks name it.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test"
)]

mod acls;
mod closing;
mod connecting;
mod contenders;
mod counters;
mod curator;
mod directories;
mod elections;
mod excluding;
mod guards;
mod harness;
mod jobs;
mod leases;
mod members;
mod multi_locks;
mod options;
mod outages;
mod queueing;
mod replaced_directories;
mod semaphore;
mod sessions;
mod timeouts;
mod tokens;
mod waiting_together;
mod who;

fn main() {
    let mut registry = harness::Registry::new();
    registry.add("excluding", &excluding::all());
    registry.add("elections", &elections::all());
    registry.add("queueing", &queueing::all());
    registry.add("timeouts", &timeouts::all());
    registry.add("guards", &guards::all());
    registry.add("jobs", &jobs::all());
    registry.add("leases", &leases::all());
    registry.add("members", &members::all());
    registry.add("multi_locks", &multi_locks::all());
    registry.add("tokens", &tokens::all());
    registry.add("directories", &directories::all());
    registry.add("replaced_directories", &replaced_directories::all());
    registry.add("contenders", &contenders::all());
    registry.add("counters", &counters::all());
    registry.add("acls", &acls::all());
    registry.add("options", &options::all());
    registry.add("connecting", &connecting::all());
    registry.add("closing", &closing::all());
    registry.add("sessions", &sessions::all());
    registry.add("outages", &outages::all());
    registry.add("waiting_together", &waiting_together::all());
    registry.add("semaphore", &semaphore::all());
    registry.add("who", &who::all());
    // These behaviours show every recipe's grants, ends and cleanup.
    registry.add_on_keeper("excluding", &excluding::all());
    registry.add_on_keeper("queueing", &queueing::all());
    registry.add_on_keeper("guards", &guards::all());
    registry.add_on_keeper("tokens", &tokens::all());
    registry.add_on_keeper("directories", &directories::all());
    registry.add_on_keeper("contenders", &contenders::all());
    registry.add_on_keeper("counters", &counters::all());
    registry.add_on_keeper("multi_locks", &multi_locks::all());
    curator::add(&mut registry);
    registry.run()
}
