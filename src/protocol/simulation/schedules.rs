//! Schedules that are drawn: eight callers of two clients.

use proptest::prelude::*;
use proptest::strategy::ValueTree;

use super::choices::Choices;
use super::{CLIENTS, Caller, Directory, Doing, World};
use crate::protocol::node_name::Family;

/// The client of each caller.
const CLIENT: [usize; 8] = [0, 0, 0, 0, 0, 1, 1, 1];

const ALL: [usize; 8] = [0, 1, 2, 3, 4, 5, 6, 7];
/// Three attempts, one of the first client and two of the second: the lock is often free.
const FEW: [usize; 3] = [0, 5, 6];

/// Runs one schedule of these callers. Returns how many were first without a list.
fn simulate(bytes: &[u8], family: Family, active: &[usize]) -> usize {
    let mut choices = Choices::drawn(bytes.to_vec());
    let callers = CLIENT
        .into_iter()
        .map(|client| Caller::new(client, None))
        .collect();
    let mut world = World::new(family, callers, &mut choices);
    world.few = active.len() < CLIENT.len();
    while !world.choices.is_over() {
        world.directory.clock += 1;
        // The bounds divide the 256 values of a byte among the events. With few contenders, faults
        // are rarer and deletions more frequent, so that grants without a list occur.
        let [by_hand, expire, delete, watch, list] = if world.few {
            [1, 2, 120, 150, 170]
        } else {
            [3, 6, 70, 80, 115]
        };
        let choice = world.choices.next();
        if choice < by_hand {
            // The model of a downgrade does not know a missing directory.
            if world.is_exclusive() && world.choices.chance(40) {
                world.remove_directory();
            } else if !world.directory.nodes.is_empty() {
                let n = world.choices.below(world.directory.nodes.len());
                world.delete_by_hand(n);
            }
        } else if choice < expire {
            let c = world.choices.below(CLIENTS);
            world.expire(c);
        } else if choice < delete && !world.deletions.is_empty() {
            let k = world.choices.below(world.deletions.len());
            world.delete_next(k);
        } else if (delete..watch).contains(&choice) {
            let c = world.choices.below(CLIENTS);
            world.watch(c);
        } else if (watch..list).contains(&choice) {
            let c = world.choices.below(CLIENTS);
            if !world.clients[c].listers.is_empty() {
                let k = world.choices.below(world.clients[c].listers.len());
                world.list_next(c, k);
            }
        } else {
            let i = active[world.choices.below(active.len())];
            world.step(i);
        }
        world.check();
    }
    // Without further faults, and after the end of the sessions of stuck nodes, all waiting
    // attempts are served, unless a wake-up was lost.
    let Directory { nodes, stuck, .. } = &mut world.directory;
    nodes.retain(|name, _| !stuck.contains(name));
    for _ in 0..300 {
        // A step may remove the entry, so the last comes first.
        for k in (0..world.deletions.len()).rev() {
            world.delete_next(k);
        }
        for c in 0..CLIENTS {
            for k in (0..world.clients[c].listers.len()).rev() {
                world.list_next(c, k);
            }
        }
        for i in ALL {
            if !matches!(world.callers[i].doing, Doing::Idle) {
                world.step(i);
                world.check();
            }
        }
    }
    world.check_end();
    world.first_without_list()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, failure_persistence: None, ..ProptestConfig::default() })]

    // Shows: grant, extra-node, node-owners, arrival-order, succession
    #[test]
    fn schedules_exclude_and_leave_nothing(
        few: bool,
        bytes in prop::collection::vec(any::<u8>(), 50..1_500),
    ) {
        simulate(&bytes, Family::Exclusive, if few { &FEW } else { &ALL });
    }

    // Shows: read-write, succession
    #[test]
    fn schedules_keep_writers_alone(
        few: bool,
        bytes in prop::collection::vec(any::<u8>(), 50..1_500),
    ) {
        simulate(&bytes, Family::ReadWrite, if few { &FEW } else { &ALL });
    }
}

/// The schedules prove something about grants without a list only if there are some.
// Shows: succession
#[test]
fn many_schedules_grant_without_a_list() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let strategy = prop::collection::vec(any::<u8>(), 3_000);
    for family in [Family::Exclusive, Family::ReadWrite] {
        let mut count = 0;
        for _ in 0..500 {
            let bytes = strategy.new_tree(&mut runner).unwrap().current();
            count += simulate(&bytes, family, &FEW);
        }
        assert!(count >= 10, "{count} of {family:?}");
    }
}
