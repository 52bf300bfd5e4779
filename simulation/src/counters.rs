//! Callers of counters: they take numbers, and read.

use std::sync::Arc;
use std::time::Duration;

use simnet::Rng;
use tokio::time::{sleep, timeout};
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

fn counter(client: &Client, place: usize) -> DistributedAtomicLong {
    DistributedAtomicLong::new(client, &path(place)).expect("the path is valid")
}

/// Takes numbers until the world stops, or the machine dies.
pub async fn work(world: Arc<World>, machine: Arc<Machine>, mut rng: Rng) {
    let stop = world.stopped.subscribe();
    while !*stop.borrow() && !machine.is_dead() {
        let place = rng.range(0, world.plan.paths as u64) as usize;
        let counter = counter(&machine.client, place);
        let floor = world.numbers(place, |numbers| numbers.begin());
        let wait = Duration::from_millis(rng.range(1, 20_000));
        let outcome = match rng.range(0, 6) {
            0 => {
                counter.get().await.map(|number| world.numbers(place, |numbers| numbers.read(floor, number)))
            }
            1 | 2 => {
                let Ok(taken) = timeout(wait, counter.increment()).await else { continue };
                taken.map(|number| world.numbers(place, |numbers| numbers.taken(floor, number)))
            }
            _ => {
                let Ok(taken) = timeout(wait, counter.next()).await else { continue };
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
                // Also if it fails at once.
                sleep(Duration::from_millis(rng.range(1, 20))).await;
            }
        }
        sleep(Duration::from_millis(rng.range(0, world.plan.pause_ms))).await;
    }
}

/// Counts once by every client, when all works again.
pub async fn all_can_count(world: &World, machines: &[Arc<Machine>], patience: Duration) {
    for machine in machines {
        for place in 0..world.plan.paths {
            let counter = counter(&machine.client, place);
            let end = world.now() + patience.as_millis() as u64;
            loop {
                let floor = world.numbers(place, |numbers| numbers.begin());
                match counter.next().await {
                    Ok(number) => {
                        world.check(world.numbers(place, |numbers| numbers.taken(floor, number)));
                        break;
                    }
                    Err(_) if world.now() < end => sleep(Duration::from_secs(1)).await,
                    Err(error) => {
                        world.violation(&format!("{} cannot be counted: {error}", path(place)));
                        break;
                    }
                }
            }
        }
    }
}
