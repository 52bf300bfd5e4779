//! Reproducible random numbers.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::OnceLock;

use test_support::Random;

/// Returns the seed of all random numbers of a run: `SUITE_SEED`, or a new one, which is printed.
pub(crate) fn seed() -> u64 {
    static SEED: OnceLock<u64> = OnceLock::new();
    *SEED.get_or_init(|| {
        let given = std::env::var("SUITE_SEED")
            .ok()
            .and_then(|seed| seed.parse().ok());
        given.unwrap_or_else(|| RandomState::new().hash_one("seed") % 1_000_000)
    })
}

/// Returns the random numbers of the part `name` of this run.
pub(crate) fn named(name: &str) -> Random {
    Random::named(seed(), name)
}
