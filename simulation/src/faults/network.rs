//! Links that carry nothing, or late, or lose their connections.

use std::time::Duration;

use simnet::Rng;
use simnet::net::Way;
use tokio::time::sleep;

use super::Stage;

pub(super) fn strike(stage: &Stage, rng: &mut Rng) {
    match rng.range(0, 5) {
        0 | 1 => hold(stage, rng),
        2 => {
            let link = stage.link(rng);
            stage.world.shakes(Duration::ZERO);
            let count = link.reset();
            stage
                .world
                .fault("reset", || format!("{} {count}", link.number));
        }
        3 => slow(stage, rng),
        _ => {
            late_answers(stage, rng);
        }
    }
}

/// Delays or loses data in one direction or both; on one link, or on all of a machine.
fn hold(stage: &Stage, rng: &mut Rng) {
    const WAYS: [&[Way]; 3] = [
        &[Way::ToServer],
        &[Way::ToClient],
        &[Way::ToServer, Way::ToClient],
    ];
    let (world, link) = (&stage.world, stage.link(rng));
    let ways = *rng.pick(&WAYS);
    let timeout_ms = world.plan.timeout_ms();
    let time = match rng.range(0, 3) {
        0 => rng.range(1, 500),
        1 => rng.range(1, timeout_ms),
        _ => rng.range(timeout_ms, 3 * timeout_ms),
    };
    world.shakes(Duration::from_millis(time));
    let links = if rng.one_in(2) {
        vec![link]
    } else {
        stage.net.links_of(&link)
    };
    world.fault("held link", || {
        format!(
            "{:?} {ways:?} {time}",
            links.iter().map(|link| link.number).collect::<Vec<_>>()
        )
    });
    let reset = rng.one_in(3);
    for link in links {
        ways.iter().for_each(|way| link.hold(*way));
        if reset {
            link.reset();
        }
        tokio::spawn(async move {
            sleep(Duration::from_millis(time)).await;
            link.heal();
        });
    }
}

/// Messages take longer and longer.
fn slow(stage: &Stage, rng: &mut Rng) {
    let (link, timeout_ms) = (stage.link(rng), stage.world.plan.timeout_ms());
    let most = Duration::from_millis(rng.range(50, timeout_ms));
    let ramp = Duration::from_millis(rng.range(1, 3 * timeout_ms));
    let time = ramp + Duration::from_millis(rng.range(1, 2 * timeout_ms));
    stage.world.shakes(time);
    stage.world.fault("slow link", || {
        format!("{} {most:?} {ramp:?} {time:?}", link.number)
    });
    link.slow(Way::ToServer, most, ramp, time);
    link.slow(Way::ToClient, most, ramp, time);
}

/// Answers come late, and then nothing more gets to the server: a renewal counts from its sending.
/// Returns how long that takes.
pub(super) fn late_answers(stage: &Stage, rng: &mut Rng) -> Duration {
    let (link, timeout_ms) = (stage.link(rng), stage.world.plan.timeout_ms());
    let most = Duration::from_millis(rng.range(timeout_ms / 2, timeout_ms));
    // The delay grows so slowly that the client library receives answers all the time, and keeps
    // the connection.
    let ramp = most * rng.range(1, 4) as u32;
    stage.world.fault("late answers", || {
        format!("{} {most:?} {ramp:?}", link.number)
    });
    link.slow(Way::ToClient, most, ramp, ramp * 3);
    let after = ramp + Duration::from_millis(rng.range(0, timeout_ms / 2));
    let time = Duration::from_millis(rng.range(timeout_ms, 3 * timeout_ms));
    stage.world.shakes((after + time).max(ramp * 3));
    stage.later(after, move |_| {
        link.hold(Way::ToServer);
        tokio::spawn(async move {
            sleep(time).await;
            link.heal();
        });
    });
    after + time
}
