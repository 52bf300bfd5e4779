//! Other programs and administrators: nodes and directories that are deleted, and access that is
//! denied for a while.

use std::sync::atomic::Ordering;

use simnet::Rng;
use tokio::time::sleep;
use zookeeper_test_server::{Match, Op, ServerError};

use super::Stage;
use crate::plan::Kind;
use crate::world::path;
use crate::worlds;

pub(super) fn strike(stage: &Stage, rng: &mut Rng) {
    match rng.range(0, 6) {
        0..3 => delete_node(stage, rng),
        3 | 4 => deny(stage, rng),
        _ => delete_directory(stage, rng),
    }
}

/// Another process deletes the node of a holder or a waiter.
pub(super) fn delete_node(stage: &Stage, rng: &mut Rng) {
    let (world, server) = (&stage.world, &stage.server);
    let place = rng.range(0, world.plan.paths() as u64) as usize;
    // The numbers of a counter begin again without its node.
    if matches!(world.plan.kinds[place], Kind::Counter | Kind::Register) {
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

/// An administrator deletes the directory of a lock, with all that is in it; contenders make it
/// again.
fn delete_directory(stage: &Stage, rng: &mut Rng) {
    let place = rng.range(0, stage.world.plan.paths() as u64) as usize;
    // Recipes other than queues, such as numbers and records, start again without their nodes.
    let is_queue = matches!(
        stage.world.plan.kinds[place],
        Kind::Mutex | Kind::Fair | Kind::ReadWrite | Kind::Semaphore | Kind::Latch | Kind::Selector
    );
    if !is_queue {
        return;
    }
    let directory = path(place);
    if !stage.server.exists(&directory) {
        return;
    }
    stage.world.fault("directory deleted", || directory.clone());
    delete_all(stage, &directory);
    let world = &stage.world;
    if world.plan.kinds[place] == Kind::Semaphore {
        // The limit that was set is deleted with its directory, and the handles' limit applies
        // again.
        world.limits(place, |limits| {
            let set = limits.begin(world.plan.permits, world.now());
            limits.done(set, world.now());
        });
    }
}

fn delete_all(stage: &Stage, node: &str) {
    for name in stage.server.children(node) {
        delete_all(stage, &format!("{node}/{name}"));
    }
    stage.world.broken(node);
    let _ = stage.server.delete(node);
}

/// The ACL of a directory denies something for a while.
fn deny(stage: &Stage, rng: &mut Rng) {
    let place = rng.range(0, stage.world.plan.paths() as u64) as usize;
    let directory = path(place);
    let op = *rng.pick(&[Op::Create, Op::Delete, Op::GetChildren, Op::GetData]);
    let time = stage.at_most(stage.time(rng, 2));
    stage
        .world
        .fault("access denied", || format!("{directory} {op:?} {time:?}"));
    if op == Op::Delete {
        stage.denied.store(true, Ordering::Relaxed);
    }
    let denied = Match::op(op).path_prefix(directory).always();
    let fault = stage.server.fail(denied, ServerError::NoAuth.code());
    tokio::spawn(async move {
        sleep(time).await;
        fault.remove();
    });
}
