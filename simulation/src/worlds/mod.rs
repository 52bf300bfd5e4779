//! What the callers of a client do, a file for each group of recipes.
//!
//! A caller takes turns: it picks a path, and does one thing that the recipe at this path can do, from its call to
//! what it does with the result. A recipe is a [`Handle`] with a turn, a proof that it works when nothing is broken
//! any more, and the nodes that it may not leave.

pub mod counters;
pub mod locks;

use std::sync::Arc;
use std::time::Duration;

use simnet::Rng;
use tokio::time::sleep;
use zookeeper_recipes::{Client, DistributedAtomicLong};
use zookeeper_test_server::Server;

use crate::plan::{Kind, Plan};
use crate::world::{Machine, World, lock, path};

/// A handle on the recipe at a path.
pub enum Handle {
    Lock(locks::Lock),
    Counter(DistributedAtomicLong),
}

impl Handle {
    pub fn new(plan: &Plan, client: &Client, place: usize) -> Self {
        match plan.kinds[place] {
            Kind::Counter => Self::Counter(counters::new(client, place)),
            Kind::Mutex | Kind::Fair | Kind::ReadWrite | Kind::Semaphore => {
                Self::Lock(locks::Lock::new(plan, client, place))
            }
        }
    }

    /// One thing that a caller does with it.
    async fn turn(&self, world: &World, machine: &Arc<Machine>, place: usize, rng: &mut Rng) {
        match self {
            Self::Lock(lock) => locks::turn(lock, world, machine, place, rng).await,
            Self::Counter(counter) => counters::turn(counter, world, machine, place, rng).await,
        }
    }

    /// Uses it once when all works again. An error may come of something that has begun before.
    async fn prove(&self, world: &World, place: usize, patience: Duration) -> Result<(), String> {
        match self {
            Self::Lock(lock) => locks::prove(lock, world, place, patience).await,
            Self::Counter(counter) => counters::prove(counter, world, place).await,
        }
    }
}

/// Goes on until the world stops, or the machine dies.
pub async fn work(world: Arc<World>, machine: Arc<Machine>, mut rng: Rng) {
    let plan = &world.plan;
    let new = |place| Handle::new(plan, &machine.client, place);
    // A handle for each turn is the last of its client when it is gone.
    let lasting = if plan.fresh_handles { 0 } else { plan.paths() };
    let handles: Vec<Handle> = (0..lasting).map(new).collect();
    while !world.is_stopped() && !machine.is_dead() {
        let place = rng.range(0, plan.paths() as u64) as usize;
        match handles.get(place) {
            Some(handle) => handle.turn(&world, &machine, place, &mut rng).await,
            None => new(place).turn(&world, &machine, place, &mut rng).await,
        }
        // Also if it fails at once.
        let pause = Duration::from_millis(rng.range(1, plan.pause_ms + 1));
        tokio::select! {
            () = sleep(pause) => {}
            () = world.stopped() => {}
        }
    }
}

/// Uses every path once by every client, when all works again, and keeps how long the slowest took.
pub async fn all_work(world: &World, machines: &[Arc<Machine>], patience: Duration) {
    for machine in machines {
        for place in 0..world.plan.paths() {
            let handle = Handle::new(&world.plan, &machine.client, place);
            let began = world.now();
            loop {
                match handle.prove(world, place, patience).await {
                    Ok(()) => break,
                    Err(_) if world.now() < began + patience.as_millis() as u64 => {
                        sleep(Duration::from_secs(1)).await;
                    }
                    Err(text) => {
                        let (path, number) = (path(place), machine.number);
                        world.violation(&format!("{path} does not work for {number}: {text}"));
                        break;
                    }
                }
            }
            let mut report = lock(&world.report);
            report.slowest_recovery_ms = report.slowest_recovery_ms.max(world.now() - began);
        }
    }
}

/// The nodes of contenders at a path, which are gone when all have ended.
pub fn left(plan: &Plan, server: &Server, place: usize) -> Vec<String> {
    let path = path(place);
    // A semaphore has directories, with contenders below.
    let below = |name: &String| {
        let inner = format!("{path}/{name}");
        server.children(&inner).into_iter().map(move |node| format!("{inner}/{node}")).collect::<Vec<_>>()
    };
    match plan.kinds[place] {
        Kind::Semaphore => server.children(&path).iter().flat_map(below).collect(),
        Kind::Mutex | Kind::Fair | Kind::ReadWrite | Kind::Counter => server.children(&path),
    }
}
