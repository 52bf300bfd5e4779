//! This crate's locks and Curator's on the same path, in separate processes, some of which are
//! killed.

mod conversions;
pub(crate) mod counters;
mod java;
mod leaders;
mod members;
mod mixed;
mod pairings;
mod revocation;
mod semaphores;

use test_support::Suite;
use test_support::peers::{self, CuratorPeer};

use crate::Outcome;

/// Adds the trials, the longest first.
pub(crate) fn add_all(suite: &mut Suite) {
    let mut add = |name: &str, trial: fn(&CuratorPeer) -> Outcome| {
        // The peers also need servers.
        let peer = peers::zookeeper().and_then(|_| peers::curator());
        suite.add_needing(
            "zookeeper",
            &format!("curator::{name}"),
            peer,
            move |peer| trial(&peer),
        );
    };
    // Shows: read-write
    add("pairings::read_write_locks", pairings::read_write_locks);
    add(
        "pairings::fair_locks_and_mutexes",
        pairings::fair_locks_and_mutexes,
    );
    // Shows: contenders
    add("pairings::mutexes", pairings::mutexes);
    // Shows: multi-lock
    add("pairings::multi_locks", pairings::multi_locks);
    // Shows: multi-lock
    add(
        "pairings::multi_locks_and_mutexes",
        pairings::multi_locks_and_mutexes,
    );
    // Shows: counter-ids
    add("counters::numbers_and_sums", counters::numbers_and_sums);
    add("semaphores::mutexes", semaphores::mutexes);
    // Shows: semaphore-queue
    add("semaphores::permits", semaphores::permits);
    add("semaphores::many_permits", semaphores::many_permits);
    add(
        "semaphores::limits_that_change",
        semaphores::limits_that_change,
    );
    // Shows: semaphore-queue
    add(
        "semaphores::first_come_first_served",
        semaphores::first_come_first_served,
    );
    add("semaphores::several_at_once", semaphores::several_at_once);
    add(
        "semaphores::either_sets_the_limit",
        semaphores::either_sets_the_limit,
    );
    add(
        "semaphores::stated_limits_are_not_compared",
        semaphores::stated_limits_are_not_compared,
    );
    // Shows: election
    add("leaders::latches_in_one_election", leaders::latches);
    // Shows: election
    add("leaders::selectors_in_one_election", leaders::selectors);
    add(
        "conversions::curators_own_downgrade",
        conversions::curators_own_downgrade,
    );
    // Shows: downgrade
    add(
        "conversions::own_downgrade_excludes_writers",
        conversions::own_downgrade,
    );
    // Shows: revocation
    add(
        "revocation::curators_revoker_reaches_own_guards",
        revocation::curators_revoker_reaches_own_guards,
    );
    // Shows: revocation
    add(
        "revocation::own_request_reaches_curators_listeners",
        revocation::own_request_reaches_curators_listeners,
    );
    // Shows: group-watch
    add("members::peers_share_a_group", members::peers_share_a_group);
    // Shows: persistent-node
    add(
        "members::curator_takes_other_owners_node",
        members::curator_takes_other_owners_node,
    );
    // Shows: mixed-recipes
    add(
        "mixed::mutex_among_read_write_nodes",
        mixed::mutex_among_read_write_nodes,
    );
    add(
        "mixed::read_write_lock_among_mutex_nodes",
        mixed::read_write_lock_among_mutex_nodes,
    );
    add(
        "mixed::kazoos_dialect_among_curators_nodes",
        mixed::kazoos_dialect_among_curators_nodes,
    );
    suite.add(
        "checker",
        "counters::check_sees_wrong_numbers",
        counters::check_sees_wrong_numbers,
    );
}
