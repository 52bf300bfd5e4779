//! Our locks with [`Dialect::Kazoo`](zookeeper_recipes::Dialect) and kazoo's on the same path, in processes of their own,
//! some of which are killed.
//!
//! ```text
//! cargo test --test interop_kazoo             all of it, two minutes
//! cargo test --test interop_kazoo pairings    two thousand grants and forty kills each
//! ```

mod conversions;
mod elections;
mod identities;
#[path = "../interop/mod.rs"]
mod interop;
mod mixed;
mod pairings;
mod python;
mod readers;

use std::process::ExitCode;

use test_support::Suite;
use test_support::peers::{self, KazooPeer};

use interop::{Outcome, TIME_LIMIT, add_controls, run_if_asked};

fn main() -> ExitCode {
    if let Some(done) = run_if_asked() {
        return done;
    }
    let mut suite = Suite::new();
    // The workers wait most of the time, for the sessions of the dead.
    suite.at_once(8);
    suite.time_limit(TIME_LIMIT);
    let mut add = |name: &str, trial: fn(&KazooPeer) -> Outcome| {
        // And servers to meet on.
        let peer = peers::zookeeper().and_then(|_| peers::kazoo());
        suite.add_needing("zookeeper", name, peer, move |peer| trial(&peer));
    };
    // The longest first.
    // Shows: read-write
    add("pairings::read_write_locks", pairings::read_write_locks);
    add("pairings::fair_locks", pairings::fair_locks);
    // Shows: contenders
    add("pairings::mutexes", pairings::mutexes);
    add("identities::each_sees_the_other", identities::each_sees_the_other);
    // Shows: election
    add("elections::one_election_with_kazoos", elections::one_election);
    add(
        "readers::kazoos_readers_wait_for_writers_behind_them",
        readers::kazoos_readers_wait_for_writers_behind_them,
    );
    add(
        "conversions::an_upgraded_reader_is_a_writer_to_kazoo",
        conversions::an_upgraded_reader_is_a_writer_to_kazoo,
    );
    add("mixed::curators_dialect_among_kazoos_nodes", mixed::curators_dialect_among_kazoos_nodes);
    add("mixed::a_mutex_among_readers", mixed::mutex_among_readers);
    add_controls(&mut suite);
    suite.run()
}
