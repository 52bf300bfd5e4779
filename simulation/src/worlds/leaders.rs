//! Participants of elections: they wait to lead, work for a while, are interrupted, and leave, or
//! not.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use simnet::Rng;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use zookeeper_recipes::{
    AcquireError, Client, ConnectionState, LeaderLatch, LeaderSelector, LeadershipState,
};

use super::{Inside, Waiting, polled};
use crate::check::errors;
use crate::check::exclusion::Share;
use crate::grants::Held;
use crate::world::{Machine, World, path, variant};

/// Returns how long a participant works.
fn work_time(world: &World, rng: &mut Rng) -> Duration {
    let plan = &world.plan;
    Duration::from_millis(match rng.one_in(10) {
        true => rng.range(1, 2 * plan.timeout_ms()),
        false => rng.range(0, plan.hold_ms),
    })
}

/// Judges why a participant, which has been in the election since `began`, does not lead.
fn judge(world: &World, machine: &Machine, place: usize, began: u64, error: &AcquireError) {
    world.refused_by(errors::of_lead, machine, place, began, &variant(error));
}

/// How long a leader leads, when answers come soon, until a watch of the leader has returned it.
const NOTIFIED: Duration = Duration::from_secs(1);

/// Returns the node of the leader, as the servers have it.
fn first(world: &World, place: usize) -> Option<String> {
    let number = |name: &String| name.rsplit('-').next().map(str::to_owned);
    let nodes = world.server.children(&path(place));
    nodes.into_iter().min_by_key(number)
}

/// Takes no part, and watches who leads.
pub async fn watch_turn(client: &Client, world: &World, place: usize, rng: &mut Rng) {
    let builder = LeaderLatch::builder(client, path(place));
    let mut leaders = builder.watch_leader().expect("the path is valid");
    let mut known: Option<Option<String>> = None;
    for _ in 0..rng.range(2, 20) {
        let end = Instant::now() + Duration::from_millis(rng.range(1, 2 * world.plan.timeout_ms()));
        let notified = {
            let mut call = pin!(leaders.changed());
            let mut before = None;
            loop {
                // The call is kept, because the next one would begin with a list.
                if let Ok(notified) = timeout(NOTIFIED, &mut call).await {
                    break Some(notified);
                }
                // A client that is cut off learns of nothing.
                let is_told = world.is_quiet() && client.state() == ConnectionState::Connected;
                let now = is_told.then(|| first(world, place));
                if known.is_some() && now.is_some() && now == before && now != known {
                    let text = format!("{}: {now:?} leads, and {known:?} is shown", path(place));
                    world.violation(&text);
                }
                before = now;
                if Instant::now() >= end || world.is_stopped() {
                    break None;
                }
            }
        };
        match notified {
            Some(Ok(leader)) => {
                world.sometimes("told of a leader".to_owned());
                known = Some(leader.map(|leader| leader.node().name().to_owned()));
            }
            Some(Err(error)) => {
                world.note_error("leader watch", Some(error));
                return;
            }
            // The next call returns what this one would have.
            None => {}
        }
    }
}

pub fn selector(client: &Client, place: usize) -> LeaderSelector {
    LeaderSelector::new(client, path(place)).expect("the path is valid")
}

/// Joins an election, leads in one or more terms, and leaves.
pub async fn latch_turn(
    client: &Client,
    world: &World,
    machine: &Arc<Machine>,
    place: usize,
    rng: &mut Rng,
) {
    let began = world.now();
    let builder = LeaderLatch::builder(client, path(place)).id(machine.number.to_string());
    let latch = builder.build().expect("the options are valid");
    let wait = Duration::from_millis(rng.range(1, 2 * world.plan.timeout_ms()));
    // A participant that does not wait may lead.
    let mut within = None;
    // The participant takes part until it leaves by itself, or has lost this many terms.
    for _ in 0..rng.range(1, 4) {
        let wait = wait + world.longer();
        drop(within.take());
        let waiting = world.waits(place, Some(machine));
        let notified = match rng.range(0, 4) {
            0 => timeout(wait, polled(rng.range(1, 9), latch.leadership()))
                .await
                .ok()
                .flatten(),
            1 => {
                let mut states = latch.watch_state();
                let leads = states.wait_for(|state| matches!(state, LeadershipState::Leader(_)));
                match timeout(wait, leads).await {
                    Ok(_) => timeout(wait, latch.leadership()).await.ok(),
                    Err(_) => None,
                }
            }
            _ => timeout(wait, latch.leadership()).await.ok(),
        };
        world.ends(waiting, matches!(notified, Some(Ok(_))));
        within = Some(world.may_hold(place));
        let term = match notified {
            Some(Ok(term)) => term,
            Some(Err(error)) => {
                judge(world, machine, place, began, &error);
                world.sometimes(format!("does not lead {}", variant(&error)));
                break;
            }
            None => {
                world.sometimes("gives up to lead".to_owned());
                break;
            }
        };
        let time = work_time(world, rng);
        let inside = Inside::enter(world, place, Share::Exclusive, Held::Term(term), machine);
        let grant = inside.grant();
        let work = async {
            sleep(time / 2).await;
            if rng.one_in(2) {
                world.write(grant, rng).await;
            }
            sleep(time / 2).await;
        };
        let lost = match &grant.held {
            // The next leader waits until this work has ended.
            Held::Term(term) if time.as_millis() % 2 == 0 => term.while_held(work).await.err(),
            held => tokio::select! {
                biased;
                lost = held.lost() => Some(lost),
                () = work => None,
            },
        };
        match lost {
            Some(lost) => world.lost(grant, &lost),
            None => break,
        }
    }
    world.note_error("participants", latch.participants().await.err());
    match rng.range(0, 4) {
        0 => drop(latch),
        1 => drop(timeout(Duration::from_millis(1), latch.close()).await),
        2 => {
            // The other handle stays until this one has left.
            let other = latch.clone();
            drop(latch);
            world.note_error("not left", other.close().await.err());
        }
        _ => world.note_error("not left", latch.close().await.err()),
    }
    drop(within);
}

/// Leads in one or more terms, until the work is done, or the caller no longer waits.
pub async fn selector_turn(
    selector: &LeaderSelector,
    world: &World,
    machine: &Arc<Machine>,
    place: usize,
    rng: &mut Rng,
) {
    let began = world.now();
    let time = work_time(world, rng);
    let end = Duration::from_millis(rng.range(1, 3 * world.plan.timeout_ms())) + world.longer();
    let end = Instant::now() + end;
    let interrupt = Duration::from_millis(rng.range(1, world.plan.timeout_ms()));
    let interrupts = rng.one_in(3);
    let waiting = Waiting::new(world, place, machine);
    let mut lead = pin!(selector.lead(|token| {
        waiting.ends(true);
        let held = Held::Selected(selector.clone(), token);
        let inside = Inside::enter(world, place, Share::Exclusive, held, machine);
        async move {
            sleep(time).await;
            drop(inside);
        }
    }));
    loop {
        tokio::select! {
            biased;
            led = &mut lead => {
                if let Err(error) = &led {
                    judge(world, machine, place, began, error);
                }
                world.note("has led", "does not lead", led);
                return;
            }
            () = sleep_until(end) => {
                world.sometimes("gives up to lead".to_owned());
                return;
            }
            () = sleep(interrupt), if interrupts => {
                if selector.interrupt_leadership() {
                    world.sometimes("interrupted".to_owned());
                }
            }
        }
    }
}

/// Leads once by a latch.
pub async fn prove_latch(client: &Client, place: usize, patience: Duration) -> Result<(), String> {
    let latch = LeaderLatch::new(client, path(place)).map_err(|error| error.to_string())?;
    let led = timeout(patience, latch.leadership()).await;
    let left = latch.close().await;
    led.map_err(|_| "no leadership in time".to_owned())?
        .map_err(|error| error.to_string())?;
    left.map_err(|error| error.to_string())
}

/// Leads once by a selector.
pub async fn prove_selector(selector: &LeaderSelector, patience: Duration) -> Result<(), String> {
    let led = timeout(patience, selector.lead(|_| async {})).await;
    led.map_err(|_| "no leadership in time".to_owned())?
        .map_err(|error| error.to_string())
}
