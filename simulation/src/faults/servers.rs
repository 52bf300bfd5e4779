//! Servers that stop, stall, or lose messages; sessions that end early.

use std::time::Duration;

use simnet::Rng;
use tokio::time::sleep;
use zookeeper_test_server::{Loss, Match, Op, SessionInfo};

use super::Stage;
use crate::plan::Kind;
use crate::world::path;

pub(super) async fn strike(stage: &Stage, rng: &mut Rng) {
    let (world, server) = (&stage.world, &stage.server);
    match rng.range(0, 9) {
        0 => restart(stage, rng).await,
        1..4 => lose(stage, rng),
        4 => {
            let delay = Duration::from_millis(rng.range(1, world.plan.timeout_ms()));
            world.fault("delayed replies", || format!("{delay:?}"));
            // The fault lasts until it has struck.
            world.shakes(world.plan.time);
            server.delay_reply(Match::any().times(rng.range(1, 20) as usize), delay);
        }
        5 => stall(stage, rng),
        6 | 7 => {
            let count = server.sweep_containers();
            if count > 0 {
                world.fault("containers swept", || count.to_string());
            }
        }
        _ => expire(stage, rng),
    }
}

async fn restart(stage: &Stage, rng: &mut Rng) {
    let (world, server) = (&stage.world, &stage.server);
    let longest = if rng.one_in(2) {
        2_000
    } else {
        2 * world.plan.timeout_ms()
    };
    let time = rng.range(1, longest);
    world.fault("server down", || time.to_string());
    world.shakes(Duration::from_millis(time));
    server.stop_async().await;
    sleep(Duration::from_millis(time)).await;
    world.shakes(Duration::ZERO);
    if let Err(error) = server.restart_async().await {
        world.violation(&format!(
            "the simulation's server does not restart: {error}"
        ));
    }
}

fn lose(stage: &Stage, rng: &mut Rng) {
    let (world, server) = (&stage.world, &stage.server);
    let ops = [
        Op::Create,
        Op::Delete,
        Op::GetChildren,
        Op::GetData,
        Op::SetData,
        Op::Multi,
        Op::Exists,
        Op::Sync,
        Op::Connect,
        Op::CloseSession,
    ];
    let op = *rng.pick(&ops);
    let what = Match::op(op)
        .nth(rng.range(0, 4) as usize)
        .times(rng.range(1, 3) as usize);
    let loss = *rng.pick(&[Loss::Close, Loss::Reset, Loss::Stall]);
    // The fault lasts until it has struck.
    world.shakes(world.plan.time);
    if rng.one_in(2) {
        world.fault("lost reply", || format!("{op:?} {loss:?}"));
        server.drop_reply(what, loss);
    } else {
        world.fault("lost request", || format!("{op:?} {loss:?}"));
        server.drop_request(what, loss);
    }
}

/// The disk stalls: nothing is committed for a while, and what was sent is committed after it.
fn stall(stage: &Stage, rng: &mut Rng) {
    let time = stage.at_most(stage.time(rng, 2));
    stage.world.shakes(time);
    stage.world.fault("stalled disk", || format!("{time:?}"));
    let writes = [Op::Create, Op::Delete, Op::SetData, Op::Multi];
    let gates = writes.map(|op| stage.server.hold_request(Match::op(op).always()));
    tokio::spawn(async move {
        sleep(time).await;
        drop(gates);
    });
}

/// A session ends earlier than its timeout, which no client can know of.
fn expire(stage: &Stage, rng: &mut Rng) {
    let server = &stage.server;
    let sessions = server.sessions();
    if !sessions.is_empty() {
        end(stage, rng.pick(&sessions));
    }
}

fn end(stage: &Stage, session: &SessionInfo) {
    stage.world.shakes(Duration::ZERO);
    stage
        .world
        .fault("session expired", || format!("{:x}", session.id));
    session
        .ephemerals
        .iter()
        .for_each(|node| stage.world.broken(node));
    stage.server.expire_session(session.id);
}

/// Ends the sessions that have nodes of groups and persistent nodes: one whose deletion was denied
/// stays until then.
pub(super) fn end_owners(stage: &Stage) {
    let kinds = &stage.world.plan.kinds;
    let places = (0..kinds.len()).filter(|place| matches!(kinds[*place], Kind::Group | Kind::Node));
    let directories: Vec<String> = places.map(|place| format!("{}/", path(place))).collect();
    let owns = |session: &&SessionInfo| {
        let mut nodes = session.ephemerals.iter();
        nodes.any(|node| {
            directories
                .iter()
                .any(|directory| node.starts_with(directory))
        })
    };
    stage
        .server
        .sessions()
        .iter()
        .filter(owns)
        .for_each(|session| end(stage, session));
}
