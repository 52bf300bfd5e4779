//! The results of many worlds, as one JSON object.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::world::Report;

/// The most violations that are kept with their text.
const EXAMPLES: usize = 20;

/// The sum of the worlds of a range of seeds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sum {
    pub first_seed: u64,
    pub last_seed: u64,
    /// Seeds up to the last whose worlds have not ended: they are not in the sum.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub unfinished: BTreeSet<u64>,
    pub worlds: u64,
    /// The seconds of real time.
    pub seconds: f64,
    pub grants: u64,
    pub losses: u64,
    pub connects: u64,
    pub virtual_hours: f64,
    /// The hours for which locks were held, of all of them together.
    pub held_hours: f64,
    pub faults: BTreeMap<String, u64>,
    pub sometimes: BTreeMap<String, u64>,
    pub least_margin_ms: Option<u64>,
    pub slowest_recovery_ms: u64,
    pub violations: u64,
    pub examples: Vec<String>,
}

impl Sum {
    /// Returns a sum of no worlds so far.
    pub fn from_seed(first_seed: u64) -> Self {
        Self {
            first_seed,
            last_seed: first_seed.saturating_sub(1),
            ..Self::default()
        }
    }

    /// Adds a world.
    pub fn add(&mut self, seed: u64, world: Report) {
        self.last_seed = self.last_seed.max(seed);
        self.worlds += 1;
        self.grants += world.grants;
        self.losses += world.losses;
        self.connects += world.connects;
        self.virtual_hours += world.virtual_ms as f64 / 3.6e6;
        self.held_hours += world.held_ms as f64 / 3.6e6;
        for (sum, part) in [
            (&mut self.faults, world.faults),
            (&mut self.sometimes, world.sometimes),
        ] {
            for (name, count) in part {
                *sum.entry(name).or_default() += count;
            }
        }
        self.least_margin_ms = self
            .least_margin_ms
            .into_iter()
            .chain(world.least_margin_ms)
            .min();
        self.slowest_recovery_ms = self.slowest_recovery_ms.max(world.slowest_recovery_ms);
        self.violations += world.violations.len() as u64;
        let room = EXAMPLES.saturating_sub(self.examples.len());
        self.examples
            .extend(world.violations.into_iter().take(room));
    }

    /// Returns it as one line of JSON.
    pub fn json(&self) -> String {
        serde_json::to_string(self).expect("its keys are text")
    }

    /// Returns it for reading.
    pub fn text(&self) -> String {
        serde_json::to_string_pretty(self).expect("its keys are text")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_round_trips_and_continues() {
        let world = |margin, violations: &[&str]| Report {
            grants: 2,
            virtual_ms: 1_800_000,
            least_margin_ms: margin,
            violations: violations.iter().map(ToString::to_string).collect(),
            ..Report::default()
        };
        let mut sum = Sum::from_seed(7);
        sum.add(8, world(None, &[]));
        sum.add(7, world(Some(30), &["a \"quoted\" one"]));
        let mut read: Sum = serde_json::from_str(&sum.json()).unwrap();
        assert_eq!(read, sum);
        read.add(9, world(Some(20), &[]));
        let found = (
            read.first_seed,
            read.last_seed,
            read.worlds,
            read.grants,
            read.virtual_hours,
        );
        assert_eq!(found, (7, 9, 3, 6, 1.5));
        assert_eq!(
            (read.least_margin_ms, read.violations, read.examples.len()),
            (Some(20), 1, 1)
        );
    }
}
