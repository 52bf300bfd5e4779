//! The callers of a client, a file for each group of recipes.
//!
//! A caller takes turns: it picks a path, and makes one call that the recipe at this path has, from
//! the request to the use of the result. A recipe is a [`Handle`] with a turn, a proof that it
//! works when nothing is broken any more, and the nodes that it must not leave.

pub mod counters;
pub mod jobs;
pub mod leaders;
pub mod lock_calls;
pub mod locks;
pub mod multi;
pub mod nodes;

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use simnet::Rng;
use tokio::time::sleep;
use zookeeper_recipes::{Client, DistributedAtomicLong, LeaderSelector};
use zookeeper_test_server::{Op, Server};

use crate::check::exclusion::Share;
use crate::check::{ends, herd, recovery};
use crate::grants::{Grant, Held};
use crate::plan::{Kind, Plan};
use crate::world::{Machine, Wait, World, lock, path};

/// Drops a future after this many polls. Returns `None` if it was not ready by then.
async fn polled<F: Future>(times: u64, future: F) -> Option<F::Output> {
    struct Polls<'a, F>(Pin<&'a mut F>, u64);
    impl<F: Future> Future for Polls<'_, F> {
        type Output = Option<F::Output>;

        fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
            if self.1 == 0 {
                return Poll::Ready(None);
            }
            self.1 -= 1;
            match self.0.as_mut().poll(context) {
                Poll::Ready(output) => Poll::Ready(Some(output)),
                // The last poll is followed by the drop, as by a caller that does not wait.
                Poll::Pending if self.1 == 0 => Poll::Ready(None),
                Poll::Pending => Poll::Pending,
            }
        }
    }
    Polls(pin!(future), times).await
}

/// A caller inside of something, which leaves when this value is dropped.
pub struct Inside<'w> {
    world: &'w World,
    grant: Arc<Grant>,
}

impl<'w> Inside<'w> {
    pub fn enter(
        world: &'w World,
        place: usize,
        share: Share,
        held: Held,
        machine: &Arc<Machine>,
    ) -> Self {
        Self {
            world,
            grant: world.enter(&[(place, share)], held, machine),
        }
    }

    pub fn grant(&self) -> &Arc<Grant> {
        &self.grant
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.world.leave(&self.grant);
    }
}

/// A wait that ends where the work begins, or with the drop of this.
pub struct Waiting<'w> {
    world: &'w World,
    wait: Mutex<Option<Wait>>,
}

impl<'w> Waiting<'w> {
    pub fn new(world: &'w World, place: usize, machine: &Arc<Machine>) -> Self {
        Self {
            world,
            wait: Mutex::new(Some(world.waits(place, Some(machine)))),
        }
    }

    pub fn ends(&self, is_granted: bool) {
        if let Some(wait) = lock(&self.wait).take() {
            self.world.ends(wait, is_granted);
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.ends(false);
    }
}

/// A handle on the recipe at a path.
pub enum Handle {
    Lock(locks::Lock),
    Counter(DistributedAtomicLong),
    Register(DistributedAtomicLong),
    /// A latch is in its election from the start, so each turn has its own.
    Latch(Client),
    Selector(LeaderSelector),
    Job(Client),
    Group(Client),
    Node(Client),
}

impl Handle {
    pub fn new(plan: &Plan, client: &Client, place: usize) -> Self {
        match plan.kinds[place] {
            Kind::Counter => Self::Counter(counters::new(client, place)),
            Kind::Register => Self::Register(counters::new(client, place)),
            Kind::Latch => Self::Latch(client.clone()),
            Kind::Selector => Self::Selector(leaders::selector(client, place)),
            Kind::Job => Self::Job(client.clone()),
            Kind::Group => Self::Group(client.clone()),
            Kind::Node => Self::Node(client.clone()),
            Kind::Mutex | Kind::Fair | Kind::ReadWrite | Kind::Semaphore => {
                Self::Lock(locks::Lock::new(plan, client, place))
            }
        }
    }

    /// Makes one call of a caller.
    async fn turn(&self, world: &World, machine: &Arc<Machine>, place: usize, rng: &mut Rng) {
        match self {
            Self::Lock(lock) => locks::turn(lock, world, machine, place, rng).await,
            Self::Counter(counter) => counters::turn(counter, world, machine, place, rng).await,
            Self::Register(counter) => {
                counters::register_turn(counter, world, machine, place, rng).await
            }
            Self::Group(client) => nodes::group_turn(client, world, machine, place, rng).await,
            Self::Node(client) => nodes::node_turn(client, world, machine, place, rng).await,
            Self::Latch(client) if rng.one_in(6) => {
                leaders::watch_turn(client, world, place, rng).await
            }
            Self::Latch(client) => leaders::latch_turn(client, world, machine, place, rng).await,
            Self::Selector(selector) => {
                leaders::selector_turn(selector, world, machine, place, rng).await
            }
            Self::Job(client) => jobs::turn(client, world, machine, place, rng).await,
        }
    }

    /// Uses the recipe once when all works again. An error may have an earlier cause.
    async fn prove(
        &self,
        world: &World,
        server: &Server,
        place: usize,
        patience: Duration,
    ) -> Result<(), String> {
        match self {
            Self::Lock(lock) => locks::prove(lock, world, place, patience).await,
            Self::Counter(counter) => counters::prove(counter, world, place).await,
            Self::Register(counter) => counters::prove_register(counter, world, place).await,
            Self::Group(client) => nodes::prove_group(client, world, place, patience).await,
            Self::Node(client) => nodes::prove_node(client, world, server, place, patience).await,
            Self::Latch(client) => leaders::prove_latch(client, place, patience).await,
            Self::Selector(selector) => leaders::prove_selector(selector, patience).await,
            Self::Job(client) => jobs::prove(client, world, place, patience).await,
        }
    }
}

/// Makes calls until the world stops, or the machine dies.
pub async fn work(world: Arc<World>, machine: Arc<Machine>, mut rng: Rng) {
    let plan = &world.plan;
    let new = |place| Handle::new(plan, &machine.client, place);
    // A handle for each turn is the last of its client when it is gone.
    let lasting = if plan.fresh_handles { 0 } else { plan.paths() };
    let handles: Vec<Handle> = (0..lasting).map(new).collect();
    while !world.is_stopped() && !machine.is_over() {
        if rng.one_in(100) {
            let time = Duration::from_millis(rng.range(0, plan.timeout_ms()));
            world.note("flushed", "not flushed", machine.client.flush(time).await);
        }
        if plan.multi > 0 && rng.one_in(plan.multi) && multi::turn(&world, &machine, &mut rng).await
        {
            sleep(Duration::from_millis(rng.range(1, plan.pause_ms + 1))).await;
            continue;
        }
        let place = rng.range(0, plan.paths() as u64) as usize;
        match handles.get(place) {
            Some(handle) => handle.turn(&world, &machine, place, &mut rng).await,
            None => new(place).turn(&world, &machine, place, &mut rng).await,
        }
        // The pause follows a call that fails at once, too.
        let pause = Duration::from_millis(rng.range(1, plan.pause_ms + 1));
        tokio::select! {
            () = sleep(pause) => {}
            () = world.stopped() => {}
        }
    }
}

/// Uses every path once by every client, when all works again, and keeps how long the slowest took.
pub async fn all_work(
    world: &World,
    server: &Server,
    machines: &[Arc<Machine>],
    patience: Duration,
) {
    for machine in machines {
        for place in 0..world.plan.paths() {
            let handle = Handle::new(&world.plan, &machine.client, place);
            let began = world.now();
            loop {
                let proof = handle.prove(world, server, place, patience).await;
                if proof.is_ok() || world.now() >= began + patience.as_millis() as u64 {
                    world.check(ends::works(&path(place), machine.number, proof));
                    break;
                }
                sleep(Duration::from_secs(1)).await;
            }
            let waited = world.now() - began;
            let outcome = recovery::in_time(waited, world.plan.recovery_ms());
            world.check(outcome.map_err(|text| format!("{} {text}", path(place))));
            world.took(waited);
        }
        let began = world.now();
        loop {
            let proof = multi::prove(world, &machine.client, patience).await;
            // A long link may fail for as often as the retry policy allows, as above.
            if proof.is_ok() || world.now() >= began + patience.as_millis() as u64 {
                world.check(ends::works("all at once", machine.number, proof));
                break;
            }
            sleep(Duration::from_secs(1)).await;
        }
    }
    for (place, kind) in world.plan.kinds.iter().enumerate() {
        if *kind == Kind::Group {
            nodes::check_group(world, machines, place, patience).await;
        }
    }
}

/// Checks what callers have cost in a world in which nothing has broken.
pub fn check_calm(world: &World, server: &Server) {
    if world.plan.calm {
        let counters = server.counters();
        world.sometimes("calm".to_owned());
        world.check(herd::few(
            counters.notifications(),
            counters.requests(Op::Create),
        ));
    }
}

/// Returns the nodes of contenders at a path, which are gone when all have ended.
pub fn left(plan: &Plan, server: &Server, place: usize) -> Vec<String> {
    let below = |directory: String| -> Vec<String> {
        let names = server.children(&directory);
        names
            .into_iter()
            .map(|name| format!("{directory}/{name}"))
            .collect()
    };
    match plan.kinds[place] {
        // Directories, with contenders below.
        Kind::Semaphore => below(path(place)).into_iter().flat_map(below).collect(),
        Kind::Job => below(format!("{}/lock", path(place))),
        _ => below(path(place)),
    }
}

/// Checks what is left on the servers when all have ended.
pub fn check_end(world: &World, server: &Server) {
    for place in 0..world.plan.paths() {
        if world.plan.kinds[place] == Kind::Job {
            jobs::check_end(world, server, place);
        }
    }
}
