//! Callers of counters: they take numbers, or set and compare values, and read.

use std::time::Duration;

use simnet::Rng;
use tokio::time::timeout;
use zookeeper_recipes::{AtomicLongError, Client, DistributedAtomicLong};

use crate::check::errors;
use crate::world::{Machine, World, path, variant};

pub fn new(client: &Client, place: usize) -> DistributedAtomicLong {
    DistributedAtomicLong::new(client, path(place)).expect("the path is valid")
}

/// Counts why a call that began at `began` has failed, and judges it.
fn failed(
    world: &World,
    machine: &Machine,
    place: usize,
    began: u64,
    what: &str,
    error: AtomicLongError,
) {
    world.refused_by(errors::of_count, machine, place, began, &variant(&error));
    world.note_error(what, Some(error));
}

/// Takes a number, adds some, or reads: the counter only rises.
pub async fn turn(
    counter: &DistributedAtomicLong,
    world: &World,
    machine: &Machine,
    place: usize,
    rng: &mut Rng,
) {
    let began = world.now();
    let floor = world.numbers(place, |numbers| numbers.begin());
    let wait = Duration::from_millis(rng.range(1, 20_000));
    let taken = |number| world.numbers(place, |numbers| numbers.taken(floor, number));
    let outcome = match rng.range(0, 8) {
        0 => {
            // A read is answered by one server, which may lag behind the others.
            let floor = floor.filter(|_| world.plan.members == 1);
            counter
                .get()
                .await
                .map(|number| world.numbers(place, |numbers| numbers.read(floor, number)))
        }
        1 | 2 => {
            let Ok(number) = timeout(wait, counter.increment()).await else {
                return;
            };
            number.map(taken)
        }
        3 => {
            let Ok(number) = timeout(wait, counter.add(rng.range(1, 10) as i64)).await else {
                return world.sometimes("dropped sum".to_owned());
            };
            number.map(taken)
        }
        4 => {
            let cached = counter
                .cached(rng.range(1, 20) as u32)
                .expect("the options are valid");
            for _ in 0..rng.range(1, 30) {
                let Ok(number) = timeout(wait, cached.next_id()).await else {
                    return;
                };
                match number {
                    // The number is of a block that was taken before, which others may have passed
                    // since.
                    Ok(number) => {
                        let outcome = world.numbers(place, |numbers| numbers.taken(None, number));
                        world.check(outcome.map_err(|text| format!("at {}: {text}", path(place))));
                    }
                    Err(error) => {
                        return failed(world, machine, place, began, "not counted", error);
                    }
                }
            }
            world.sometimes("cached".to_owned());
            return;
        }
        _ => {
            let Ok(number) = timeout(wait, counter.next_id()).await else {
                return;
            };
            number.map(taken)
        }
    };
    match outcome {
        Ok(checked) => {
            world.sometimes("counted".to_owned());
            world.check(checked.map_err(|text| format!("at {}: {text}", path(place))));
        }
        Err(error) => {
            world.say(|| format!("{} counts nothing in {place}: {error}", machine.number));
            failed(world, machine, place, began, "not counted", error);
        }
    }
}

/// Sets a value of its own, in one way or another, or reads.
pub async fn register_turn(
    counter: &DistributedAtomicLong,
    world: &World,
    machine: &Machine,
    place: usize,
    rng: &mut Rng,
) {
    let (began, new) = (world.now(), world.number() as i64);
    let wait = Duration::from_millis(rng.range(1, 20_000));
    let there = |value| world.register(place, |register| register.ended(value, began, world.now()));
    // A read is answered by one server, which may lag behind the others.
    let read = |value| {
        if world.plan.members == 1 {
            there(value);
        }
    };
    let fails = |what, error| failed(world, machine, place, began, what, error);
    let writes = || world.register(place, |register| register.begin(new, world.now()));
    match rng.range(0, 6) {
        0 => {
            writes();
            match timeout(wait, counter.set(new)).await {
                Ok(Ok(())) => there(new),
                Ok(Err(error)) => return fails("not set", error),
                Err(_) => return,
            }
            world.sometimes("set".to_owned());
        }
        1 => {
            writes();
            match timeout(wait, counter.initialize(new)).await {
                Ok(Ok(true)) => {
                    let ended = world.now();
                    world.register(place, |register| register.replaced(0, new, began, ended));
                    world.sometimes("initialized".to_owned());
                }
                Ok(Ok(false)) | Err(_) => {}
                Ok(Err(error)) => fails("not initialized", error),
            }
        }
        2 | 3 => {
            let expected = match counter.get().await {
                Ok(value) => value,
                Err(error) => return fails("no value", error),
            };
            read(expected);
            let began = world.now();
            writes();
            match timeout(wait, counter.compare_and_set(expected, new)).await {
                Ok(Ok(true)) => {
                    let ended = world.now();
                    world.register(place, |register| {
                        register.replaced(expected, new, began, ended)
                    });
                    world.sometimes("compared and set".to_owned());
                }
                Ok(Ok(false)) => world.sometimes("compared and not set".to_owned()),
                Ok(Err(error)) => fails("not compared", error),
                Err(_) => {}
            }
        }
        _ => match counter.get().await {
            Ok(value) => read(value),
            Err(error) => fails("no value", error),
        },
    }
}

/// Reads once, and looks at all that was read and set.
pub async fn prove_register(
    counter: &DistributedAtomicLong,
    world: &World,
    place: usize,
) -> Result<(), String> {
    let began = world.now();
    let value = counter.get().await.map_err(|error| error.to_string())?;
    let outcome = world.register(place, |register| {
        register.ended(value, began, world.now());
        register.check()
    });
    world.check(outcome.map_err(|text| format!("at {}: {text}", path(place))));
    Ok(())
}

/// Counts once.
pub async fn prove(
    counter: &DistributedAtomicLong,
    world: &World,
    place: usize,
) -> Result<(), String> {
    let floor = world.numbers(place, |numbers| numbers.begin());
    let number = counter.next_id().await.map_err(|error| error.to_string())?;
    world.check(world.numbers(place, |numbers| numbers.taken(floor, number)));
    Ok(())
}
