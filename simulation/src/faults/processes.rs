//! Processes that crash, or stand still, as a whole or only where their callers run.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use simnet::Rng;
use tokio::time::sleep;

use super::Stage;
use crate::life::Machines;

/// The most machines that crash.
const MOST_CRASHES: u32 = 3;

pub(super) async fn strike(stage: &Stage, machines: &Machines, rng: &mut Rng) {
    if rng.range(0, 3) > 0 {
        freeze(stage, machines, rng);
    } else if stage.crashes.fetch_add(1, Ordering::Relaxed) < MOST_CRASHES {
        match rng.one_in(2) {
            true => machines.crash(rng).await,
            false => machines.replace(rng).await,
        }
    }
}

fn freeze(stage: &Stage, machines: &Machines, rng: &mut Rng) {
    let world = Arc::clone(&stage.world);
    let machine = machines.pick(rng);
    let whole = rng.one_in(2);
    let longest = if rng.one_in(2) {
        500
    } else {
        2 * world.plan.timeout_ms()
    };
    let time = stage.at_most(Duration::from_millis(rng.range(1, longest)));
    let name = if whole {
        "frozen process"
    } else {
        "blocked executor"
    };
    world.shakes(time);
    world.fault(name, || format!("{} {time:?}", machine.number));
    let frozen = Arc::clone(if whole {
        &machine.process
    } else {
        &machine.executor
    });
    frozen.freeze();
    tokio::spawn(async move {
        sleep(time).await;
        frozen.thaw();
        machine.thawed.store(world.now(), Ordering::Relaxed);
    });
}
