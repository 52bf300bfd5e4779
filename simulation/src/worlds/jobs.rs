//! Jobs that run once per occasion: all ask for the occasion of the time, some for the one before.

use std::sync::Arc;
use std::time::Duration;

use simnet::Rng;
use tokio::time::{sleep, timeout};
use zookeeper_recipes::{
    AcquireError, Client, ErrorKind, OnceError, OnceJob, OnceOutcome, OnceRun,
};
use zookeeper_test_server::Server;

use super::{Inside, Waiting, polled};
use crate::check::errors::{self, Scene};
use crate::check::exclusion::Share;
use crate::check::once::Outcome;
use crate::grants::Held;
use crate::world::{Machine, World, data, path, variant};

/// How many records are kept: more than are asked for.
const KEEP: usize = 20;

/// Returns the number of the occasion of the time.
fn occasion(world: &World) -> u64 {
    world.now() / world.plan.timeout_ms()
}

/// Returns the node that a run writes with its record.
fn write(place: usize, occasion: u64, run: u64) -> String {
    format!("{}/{occasion}~{run}", data(place))
}

/// Judges why a job, which was asked for at `began`, has not run or is not recorded.
fn judge(world: &World, machine: &Machine, place: usize, began: u64, error: &OnceError) {
    let (of, why): (fn(&str, Scene) -> _, _) = match error {
        // Others may use up the time of the wait for the job's lock, so this timeout is no error.
        OnceError::Acquire(AcquireError::TimedOut { .. }) => return,
        OnceError::Acquire(error) if error.kind() == Some(ErrorKind::Connection) => return,
        OnceError::Acquire(error) => (errors::of_call, variant(error)),
        OnceError::Lost(lost) => (errors::of_loss, variant(&lost.reason())),
        error => (errors::of_job, variant(error)),
    };
    world.refused_by(of, machine, place, began, &why);
}

/// Runs the job for an occasion, with a body, and checks the result.
async fn run<F: Future<Output = Result<(), String>>>(
    client: &Client,
    world: &World,
    machine: Option<&Machine>,
    place: usize,
    occasion: u64,
    wait: Duration,
    job: impl FnOnce(OnceRun) -> F,
) -> Result<(), String> {
    let (number, began) = (world.number(), world.now());
    let builder = OnceJob::new(client, path(place), occasion.to_string())
        .keep(KEEP)
        .wait(wait);
    let outcome = builder.run(|run| {
        run.record_with(move |transaction| transaction.create(write(place, occasion, number), ""));
        job(run)
    });
    let outcome = outcome.await;
    let notified = match &outcome {
        Ok(OnceOutcome::Ran(())) => Some(Outcome::Ran),
        Ok(OnceOutcome::AlreadyRun { .. }) => Some(Outcome::AlreadyRun),
        Err(OnceError::Unknown { .. }) => None,
        Err(_) => Some(Outcome::NotRecorded),
    };
    world.say(|| format!("run {number} for {occasion} in {place}: {outcome:?}"));
    match &outcome {
        Ok(outcome) => world.sometimes(format!("job {}", variant(outcome))),
        Err(error) => {
            world.sometimes(format!("no job {}", variant(error)));
            if let Some(machine) = machine {
                judge(world, machine, place, began, error);
            }
        }
    }
    if let Some(notified) = notified {
        let checked = world.runs(place, |runs| {
            runs.ended(&occasion.to_string(), number, notified)
        });
        world.check(checked.map_err(|text| format!("at {}: {text}", path(place))));
    }
    outcome.map(drop).map_err(|error| error.to_string())
}

/// Asks for the job once.
pub async fn turn(
    client: &Client,
    world: &World,
    machine: &Arc<Machine>,
    place: usize,
    rng: &mut Rng,
) {
    let occasion = occasion(world).saturating_sub(u64::from(rng.one_in(5)));
    let wait = Duration::from_millis(rng.range(0, world.plan.timeout_ms())) + world.longer();
    let time = Duration::from_millis(match rng.one_in(10) {
        true => rng.range(1, 2 * world.plan.timeout_ms()),
        false => rng.range(0, world.plan.hold_ms),
    });
    let (fails, reads) = (rng.one_in(4), rng.one_in(3));
    let waiting = Waiting::new(world, place, machine);
    let job = |run: OnceRun| {
        waiting.ends(true);
        let held = Held::Run(run.fencing_token());
        let inside = Inside::enter(world, place, Share::Exclusive, held, machine);
        async move {
            if reads {
                world.note_error("not read", run.get_data(data(place)).await.err());
            }
            sleep(time).await;
            drop(inside);
            if fails {
                Err("on purpose".to_owned())
            } else {
                Ok(())
            }
        }
    };
    let call = run(client, world, Some(machine), place, occasion, wait, job);
    match rng.range(0, 6) {
        0 => drop(timeout(wait, call).await),
        1 => drop(polled(rng.range(1, 9), call).await),
        _ => drop(call.await),
    }
    drop(waiting);
    // A call that does not wait any more releases the lock, which may have been granted: it is free
    // from now on.
    drop(world.may_hold(place));
    // A recorded occasion is reported at once.
    sleep(Duration::from_millis(
        rng.range(1, world.plan.timeout_ms() / 20),
    ))
    .await;
}

/// Runs the job, unless it has run for the occasion.
pub async fn prove(
    client: &Client,
    world: &World,
    place: usize,
    patience: Duration,
) -> Result<(), String> {
    run(
        client,
        world,
        None,
        place,
        occasion(world),
        patience,
        |_| async { Ok(()) },
    )
    .await
}

/// Compares the records, the writes and the results.
pub fn check_end(world: &World, server: &Server, place: usize) {
    let records = server.children(&format!("{}/done", path(place)));
    let names = server.children(&data(place));
    let written = |occasion: u64| -> Vec<u64> {
        let of = |name: &String| {
            let (own, run) = name.split_once('~')?;
            (own == occasion.to_string()).then(|| run.parse().ok())?
        };
        names.iter().filter_map(of).collect()
    };
    let last = occasion(world);
    for occasion in 0..=last {
        let is_recorded = records.contains(&occasion.to_string());
        let may_be_pruned = occasion + (KEEP as u64) * 3 / 4 < last;
        let outcome = world.runs(place, |runs| {
            runs.check(
                &occasion.to_string(),
                &written(occasion),
                is_recorded,
                may_be_pruned,
            )
        });
        world.check(outcome.map_err(|text| format!("at {}: {text}", path(place))));
    }
}
