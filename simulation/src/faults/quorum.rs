//! Members of the ensemble that lag, are cut off or are down, with and without a majority that is
//! left.

use std::time::Duration;

use simnet::Rng;
use tokio::time::sleep;
use zookeeper_test_server::{Isolation, Member};

use super::Stage;

pub(super) async fn strike(stage: &Stage, rng: &mut Rng) {
    let members = stage.world.plan.members;
    if members < 2 {
        return;
    }
    let member = rng.range(0, members as u64) as usize;
    // The longest of them.
    stage
        .world
        .shakes(stage.world.plan.session_timeout * 4 + Duration::from_secs(5));
    match rng.range(0, 8) {
        0..3 => lag(stage, member, rng),
        3 => cut(stage, member, rng),
        4 => {
            let time = stage.time(rng, 2);
            stage
                .world
                .fault("member down", || format!("{member} {time:?}"));
            set(stage, member, Member::Down, time);
        }
        5 | 6 => depose(stage, member, rng).await,
        _ => lose_quorum(stage, rng),
    }
}

/// All members are there again, and a leader is elected where there was none.
pub(super) fn heal(stage: &Stage) {
    for member in 0..stage.world.plan.members {
        stage.server.set_member(member, Member::Current);
    }
}

/// Changes a member for a while.
fn set(stage: &Stage, member: usize, to: Member, time: Duration) {
    stage.server.set_member(member, to);
    stage.later(time, move |stage| {
        stage.server.set_member(member, Member::Current);
    });
}

/// Makes a member lag: its reads are old, and its clients receive events late, until it catches up
/// from time to time.
fn lag(stage: &Stage, member: usize, rng: &mut Rng) {
    let (time, times) = (stage.time(rng, 1), rng.range(1, 4) as u32);
    stage
        .world
        .fault("member lags", || format!("{member} {times} times {time:?}"));
    set(stage, member, Member::Behind, time);
    for again in 1..times {
        stage.later((time + Duration::from_millis(1)) * again, move |stage| {
            set(stage, member, Member::Behind, time);
        });
    }
}

/// Cuts a member off: it continues answering reads, and may later notice the cut and drop its
/// clients.
fn cut(stage: &Stage, member: usize, rng: &mut Rng) {
    let time = stage.time(rng, 2);
    let notices = rng.one_in(2);
    stage
        .world
        .fault("member cut off", || format!("{member} {time:?} {notices}"));
    set(stage, member, Member::Cut(Isolation::Follower), time);
    if notices {
        stage.later(time / 2, move |stage| {
            stage.server.set_member(member, Member::Down);
        });
    }
}

/// The leader is cut off from the others, which elect another after a while.
async fn depose(stage: &Stage, leader: usize, rng: &mut Rng) {
    let time = stage.time(rng, 2);
    let election = Duration::from_millis(rng.range(1, 3_000));
    stage.world.fault("leader deposed", || {
        format!("{leader} {time:?} {election:?}")
    });
    set(stage, leader, Member::Cut(Isolation::DeposedLeader), time);
    let others: Vec<usize> = (0..stage.world.plan.members)
        .filter(|member| *member != leader)
        .collect();
    for member in &others {
        stage.server.set_member(*member, Member::Down);
    }
    sleep(election).await;
    stage.server.advance_epoch();
    for member in others {
        stage.server.set_member(member, Member::Current);
    }
}

/// No side has a majority: reads are answered, and no write is.
fn lose_quorum(stage: &Stage, rng: &mut Rng) {
    let time = stage.time(rng, 2);
    let how = *rng.pick(&[Member::Cut(Isolation::Follower), Member::Down]);
    stage
        .world
        .fault("quorum lost", || format!("{how:?} {time:?}"));
    for member in 0..stage.world.plan.members.div_ceil(2) {
        set(stage, member, how, time);
    }
}
