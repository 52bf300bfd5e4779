//! The faults of a world: groups of faults, a file each, and how often each strikes.

mod network;
mod nodes;
mod processes;
mod quorum;
mod servers;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use simnet::Rng;
use simnet::net::{Link, Net};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use zookeeper_test_server::Server;

use crate::life::Machines;
use crate::plan::Profile;
use crate::world::World;

/// Every fault that a world may have, as [`World::fault`] counts them.
pub const ALL: &[&str] = &[
    "held link",
    "reset",
    "slow link",
    "late answers",
    "server down",
    "lost reply",
    "lost request",
    "delayed replies",
    "stalled disk",
    "session expired",
    "containers swept",
    "node deleted",
    "directory deleted",
    "access denied",
    "crash",
    "client replaced",
    "frozen process",
    "blocked executor",
    "member lags",
    "member cut off",
    "member down",
    "leader deposed",
    "quorum lost",
];

/// The parts of a world that faults strike.
#[derive(Clone)]
pub struct Stage {
    pub world: Arc<World>,
    pub server: Arc<Server>,
    pub net: Arc<Net>,
    /// When all is healed.
    end: Instant,
    /// How many machines have crashed.
    crashes: Arc<AtomicU32>,
    /// Whether deletions were denied: cleanup repeats them only at a request, and for persistent
    /// nodes never.
    denied: Arc<AtomicBool>,
}

impl Stage {
    pub fn new(world: &Arc<World>, server: &Arc<Server>, net: &Arc<Net>) -> Self {
        Self {
            world: Arc::clone(world),
            server: Arc::clone(server),
            net: Arc::clone(net),
            end: Instant::now() + world.plan.time,
            crashes: Arc::default(),
            denied: Arc::default(),
        }
    }

    fn is_over(&self) -> bool {
        Instant::now() >= self.end
    }

    /// Returns a link of a machine that lives.
    fn link(&self, rng: &mut Rng) -> Arc<Link> {
        let links: Vec<Arc<Link>> = self
            .net
            .links()
            .into_iter()
            .filter(|link| !link.is_dead())
            .collect();
        Arc::clone(rng.pick(&links))
    }

    /// Shortens a time so that it ends when all is healed, at the latest.
    fn at_most(&self, time: Duration) -> Duration {
        time.min(self.end.saturating_duration_since(Instant::now()))
    }

    /// Runs a closure after a while, unless all is healed by then.
    fn later(&self, after: Duration, what: impl FnOnce(&Self) + Send + 'static) {
        let stage = self.clone();
        tokio::spawn(async move {
            sleep(after).await;
            if !stage.is_over() {
                what(&stage);
            }
        });
    }

    /// Returns a time from a moment to a multiple of the session timeout.
    fn time(&self, rng: &mut Rng, timeouts: u64) -> Duration {
        let timeout_ms = self.world.plan.timeout_ms();
        Duration::from_millis(match rng.range(0, 3) {
            0 => rng.range(1, 500),
            1 => rng.range(1, timeout_ms),
            _ => rng.range(1, timeouts * timeout_ms),
        })
    }
}

/// Makes faults until the time is over, and heals them.
pub async fn make(stage: &Stage, machines: &Machines, rng: &mut Rng) {
    let (world, server) = (&stage.world, &stage.server);
    let plan = &world.plan;
    if plan.calm {
        return sleep(plan.time).await;
    }
    while !stage.is_over() {
        sleep(Duration::from_millis(rng.range(50, plan.fault_ms))).await;
        if plan.broken > 0 && rng.one_in(plan.broken) {
            nodes::delete_node(stage, rng);
            continue;
        }
        // A world of one group has its faults most often, and the others rarely.
        let profile = if rng.one_in(8) {
            Profile::All
        } else {
            plan.profile
        };
        let strikes = |of: Profile, share: u64, rng: &mut Rng| {
            profile == of || (profile == Profile::All && rng.range(0, 10) < share)
        };
        if profile == Profile::Late {
            // The delays come one after another, because a holder must be notified in time before
            // another is granted its lock.
            let over = Instant::now() + network::late_answers(stage, rng);
            sleep_until(over.min(stage.end)).await;
        } else if strikes(Profile::Network, 4, rng) {
            network::strike(stage, rng);
        } else if strikes(Profile::Servers, 4, rng) {
            servers::strike(stage, rng).await;
        } else if strikes(Profile::Processes, 4, rng) {
            processes::strike(stage, machines, rng).await;
        } else if strikes(Profile::Nodes, 5, rng) {
            nodes::strike(stage, rng);
        } else {
            quorum::strike(stage, rng).await;
        }
    }
    server.clear_faults();
    quorum::heal(stage);
    stage.net.links().iter().for_each(|link| link.heal());
    if stage.denied.load(Ordering::Relaxed) {
        servers::end_owners(stage);
        for machine in machines.all() {
            // Whether it is able to is judged when the world ends.
            let _ = timeout(
                plan.session_timeout * 6,
                machine.client.flush(plan.session_timeout * 6),
            )
            .await;
        }
    }
}
