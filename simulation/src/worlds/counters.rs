//! Callers of counters: they take numbers, and read.

use std::time::Duration;

use simnet::Rng;
use tokio::time::timeout;
use zookeeper_recipes::{AtomicLongError, Client, DistributedAtomicLong};

use crate::world::{Machine, World, path};

fn name(error: &AtomicLongError) -> &'static str {
    match error {
        AtomicLongError::Connection { .. } => "Connection",
        AtomicLongError::Unknown { .. } => "Unknown",
        AtomicLongError::Contended { .. } => "Contended",
        _ => "other",
    }
}

pub fn new(client: &Client, place: usize) -> DistributedAtomicLong {
    DistributedAtomicLong::new(client, path(place)).expect("the path is valid")
}

/// Takes a number, or reads.
pub async fn turn(
    counter: &DistributedAtomicLong,
    world: &World,
    machine: &Machine,
    place: usize,
    rng: &mut Rng,
) {
    let floor = world.numbers(place, |numbers| numbers.begin());
    let wait = Duration::from_millis(rng.range(1, 20_000));
    let outcome = match rng.range(0, 6) {
        0 => counter.get().await.map(|number| world.numbers(place, |numbers| numbers.read(floor, number))),
        1 | 2 => {
            let Ok(taken) = timeout(wait, counter.increment()).await else { return };
            taken.map(|number| world.numbers(place, |numbers| numbers.taken(floor, number)))
        }
        _ => {
            let Ok(taken) = timeout(wait, counter.next()).await else { return };
            taken.map(|number| world.numbers(place, |numbers| numbers.taken(floor, number)))
        }
    };
    match outcome {
        Ok(checked) => {
            world.sometimes("counted".to_owned());
            world.check(checked.map_err(|text| format!("at {}: {text}", path(place))));
        }
        Err(error) => {
            world.say(|| format!("{} counts nothing in {place}: {error}", machine.number));
            world.sometimes(format!("not counted {}", name(&error)));
        }
    }
}

/// Counts once.
pub async fn prove(counter: &DistributedAtomicLong, world: &World, place: usize) -> Result<(), String> {
    let floor = world.numbers(place, |numbers| numbers.begin());
    let number = counter.next().await.map_err(|error| error.to_string())?;
    world.check(world.numbers(place, |numbers| numbers.taken(floor, number)));
    Ok(())
}
