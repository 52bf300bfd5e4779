//! What goes wrong in a world.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use simnet::Rng;
use simnet::net::{Link, Net, Way};
use tokio::time::{Instant, sleep};
use zookeeper_test_server::{Loss, Match, Op, Server};

use crate::day::Machines;
use crate::plan::Kind;
use crate::world::World;
use crate::worlds;

/// The most machines that crash.
const MOST_CRASHES: u32 = 3;

/// Makes faults until the time is over, and heals them.
pub async fn make(world: &Arc<World>, server: &Server, net: &Net, machines: &Machines, rng: &mut Rng) {
    let end = Instant::now() + world.plan.time;
    let mut crashes = 0;
    if world.plan.calm {
        return sleep(world.plan.time).await;
    }
    while Instant::now() < end {
        sleep(Duration::from_millis(rng.range(50, world.plan.fault_ms))).await;
        if world.plan.broken > 0 && rng.one_in(world.plan.broken) {
            delete_node(world, server, rng);
            continue;
        }
        let links: Vec<Arc<Link>> = net.links().into_iter().filter(|link| !link.is_dead()).collect();
        let link = Arc::clone(rng.pick(&links));
        match rng.range(0, 22) {
            0..4 => hold(world, link, rng),
            4..6 => {
                let count = link.reset();
                world.fault("reset", || format!("{} {count}", link.number));
            }
            6 => restart(world, server, rng).await,
            7..9 => lose(world, server, rng),
            9 => {
                let delay = Duration::from_millis(rng.range(1, world.plan.timeout_ms()));
                world.fault("delayed replies", || format!("{delay:?}"));
                server.delay_reply(Match::any().times(rng.range(1, 20) as usize), delay);
            }
            10..12 => {
                let count = server.sweep_containers();
                if count > 0 {
                    world.fault("containers swept", || count.to_string());
                }
            }
            12 => {
                let sessions = server.sessions();
                if !sessions.is_empty() {
                    let session = rng.pick(&sessions);
                    world.fault("session expired", || format!("{:x}", session.id));
                    // Earlier than its timeout, which no client can know of.
                    session.ephemerals.iter().for_each(|node| world.broken(node));
                    server.expire_session(session.id);
                }
            }
            13..15 => {
                let most = Duration::from_millis(rng.range(50, world.plan.timeout_ms()));
                let ramp = Duration::from_millis(rng.range(1, 3 * world.plan.timeout_ms()));
                let time = ramp + Duration::from_millis(rng.range(1, 2 * world.plan.timeout_ms()));
                world.fault("slow link", || format!("{} {most:?} {ramp:?} {time:?}", link.number));
                link.slow(most, ramp, time);
            }
            15..17 => freeze(world, machines, rng),
            17..19 => late_answers(world, link, end, rng),
            19 if crashes < MOST_CRASHES => {
                crashes += 1;
                machines.crash(rng).await;
            }
            20 if crashes < MOST_CRASHES => {
                crashes += 1;
                machines.replace(rng).await;
            }
            _ => {}
        }
    }
    server.clear_faults();
    net.links().iter().for_each(|link| link.heal());
    world.say(|| "healed".to_owned());
}

/// What flows one way or both arrives later, or never.
fn hold(world: &World, link: Arc<Link>, rng: &mut Rng) {
    const WAYS: [&[Way]; 3] = [&[Way::ToServer], &[Way::ToClient], &[Way::ToServer, Way::ToClient]];
    let ways = *rng.pick(&WAYS);
    let timeout_ms = world.plan.timeout_ms();
    let time = match rng.range(0, 3) {
        0 => rng.range(1, 500),
        1 => rng.range(1, timeout_ms),
        _ => rng.range(timeout_ms, 3 * timeout_ms),
    };
    world.fault("held link", || format!("{} {ways:?} {time}", link.number));
    ways.iter().for_each(|way| link.hold(*way));
    if rng.one_in(3) {
        link.reset();
    }
    tokio::spawn(async move {
        sleep(Duration::from_millis(time)).await;
        link.heal();
    });
}

async fn restart(world: &World, server: &Server, rng: &mut Rng) {
    let longest = if rng.one_in(2) { 2_000 } else { 2 * world.plan.timeout_ms() };
    let time = rng.range(1, longest);
    world.fault("server down", || time.to_string());
    server.stop_async().await;
    sleep(Duration::from_millis(time)).await;
    if let Err(error) = server.restart_async().await {
        world.violation(&format!("the simulation's server does not restart: {error}"));
    }
}

fn lose(world: &World, server: &Server, rng: &mut Rng) {
    let ops = [
        Op::Create,
        Op::Delete,
        Op::GetChildren,
        Op::GetData,
        Op::SetData,
        Op::Multi,
        Op::Exists,
        Op::Connect,
    ];
    let op = *rng.pick(&ops);
    let what = Match::op(op).nth(rng.range(0, 4) as usize).times(rng.range(1, 3) as usize);
    let loss = *rng.pick(&[Loss::Close, Loss::Reset, Loss::Stall]);
    if rng.one_in(2) {
        world.fault("lost reply", || format!("{op:?} {loss:?}"));
        server.drop_reply(what, loss);
    } else {
        world.fault("lost request", || format!("{op:?} {loss:?}"));
        server.drop_request(what, loss);
    }
}

/// Another process deletes the node of one who holds or waits.
fn delete_node(world: &World, server: &Server, rng: &mut Rng) {
    let place = rng.range(0, world.plan.paths() as u64) as usize;
    // The nodes of a semaphore are below its directories, of which no lock is told.
    if matches!(world.plan.kinds[place], Kind::Semaphore | Kind::Counter | Kind::Register) {
        return;
    }
    let nodes = worlds::left(&world.plan, server, place);
    if nodes.is_empty() {
        return;
    }
    let node = rng.pick(&nodes).clone();
    world.fault("node deleted", || node.clone());
    world.broken(&node);
    let _ = server.delete(&node);
}

fn freeze(world: &Arc<World>, machines: &Machines, rng: &mut Rng) {
    let machine = machines.pick(rng);
    let whole = rng.one_in(2);
    let longest = if rng.one_in(2) { 500 } else { 2 * world.plan.timeout_ms() };
    let time = rng.range(1, longest);
    let name = if whole { "frozen process" } else { "blocked executor" };
    world.fault(name, || format!("{} {time}", machine.number));
    let frozen = Arc::clone(if whole { &machine.process } else { &machine.executor });
    frozen.freeze();
    let world = Arc::clone(world);
    tokio::spawn(async move {
        sleep(Duration::from_millis(time)).await;
        frozen.thaw();
        machine.thawed.store(world.now(), Ordering::Relaxed);
    });
}

/// Answers come late, and then nothing more gets to the server: a renewal counts from its sending.
fn late_answers(world: &World, link: Arc<Link>, end: Instant, rng: &mut Rng) {
    let timeout_ms = world.plan.timeout_ms();
    let most = Duration::from_millis(rng.range(timeout_ms / 2, timeout_ms));
    // So slowly that the client library sees answers all the time, and keeps the connection.
    let ramp = most * rng.range(2, 8) as u32;
    world.fault("late answers", || format!("{} {most:?} {ramp:?}", link.number));
    link.slow(most, ramp, ramp * 3);
    let after = ramp + Duration::from_millis(rng.range(0, timeout_ms / 2));
    let time = Duration::from_millis(rng.range(timeout_ms, 3 * timeout_ms));
    tokio::spawn(async move {
        sleep(after).await;
        // Nothing breaks after the healing.
        if Instant::now() >= end {
            return;
        }
        link.hold(Way::ToServer);
        sleep(time).await;
        link.heal();
    });
}
