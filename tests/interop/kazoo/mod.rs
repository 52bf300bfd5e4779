//! This crate's locks with [`Dialect::Kazoo`](zookeeper_recipes::Dialect) and kazoo's on the same
//! path, in separate processes, some of which are killed.

mod counters;
mod elections;
mod identities;
mod mixed;
mod pairings;
mod python;
mod readers;

use test_support::Suite;
use test_support::peers::{self, KazooPeer};

use crate::Outcome;

/// Adds the trials, the longest first.
pub(crate) fn add_all(suite: &mut Suite) {
    let mut add = |name: &str, trial: fn(&KazooPeer) -> Outcome| {
        // The peers also need servers.
        let peer = peers::zookeeper().and_then(|_| peers::kazoo());
        suite.add_needing("zookeeper", &format!("kazoo::{name}"), peer, move |peer| {
            trial(&peer)
        });
    };
    // Shows: read-write
    add("pairings::read_write_locks", pairings::read_write_locks);
    add("pairings::fair_locks", pairings::fair_locks);
    // Shows: contenders
    add("pairings::mutexes", pairings::mutexes);
    add(
        "identities::each_sees_the_other",
        identities::each_sees_the_other,
    );
    // Shows: election
    add(
        "elections::election_is_shared_with_kazoo",
        elections::election_is_shared_with_kazoo,
    );
    add(
        "readers::kazoos_readers_await_later_writers",
        readers::kazoos_readers_await_later_writers,
    );
    add(
        "mixed::curators_dialect_among_kazoos_nodes",
        mixed::curators_dialect_among_kazoos_nodes,
    );
    add("mixed::mutex_among_readers", mixed::mutex_among_readers);
    add("counters::counter_set_by_hand", counters::set_by_hand);
}
