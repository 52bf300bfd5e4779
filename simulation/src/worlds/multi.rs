//! Callers of multi-locks over the paths of a world, which are mutexes, fair locks and read-write
//! locks of others.

use std::sync::Arc;
use std::time::Duration;

use simnet::Rng;
use tokio::time::timeout;
use zookeeper_recipes::{Client, InterProcessLock, InterProcessMultiLock};

use super::locks::{self, Lock, Refused};
use super::{lock_calls, polled};
use crate::check::exclusion::Share;
use crate::check::{leases, multi};
use crate::grants::Held;
use crate::plan::{Kind, Plan};
use crate::world::{Machine, World};

/// Returns a multi-lock of the paths that are chosen, and how it shares each; `None` if it has
/// none.
fn new(
    plan: &Plan,
    client: &Client,
    mut choose: impl FnMut() -> (bool, bool),
) -> Option<(InterProcessMultiLock, Vec<(usize, Share)>)> {
    let (mut members, mut shares) = (Vec::<Box<dyn InterProcessLock>>::new(), Vec::new());
    for (place, kind) in plan.kinds.iter().enumerate() {
        let (is_member, shared) = choose();
        if !is_member || !matches!(kind, Kind::Mutex | Kind::Fair | Kind::ReadWrite) {
            continue;
        }
        if let Some((member, share)) = Lock::new(plan, client, place).member(shared) {
            members.push(member);
            shares.push((place, share));
        }
    }
    if members.is_empty() {
        return None;
    }
    Some((
        InterProcessMultiLock::of(&members).expect("the paths differ"),
        shares,
    ))
}

/// Makes one call, and uses its result. Returns whether a call was possible.
pub async fn turn(world: &World, machine: &Arc<Machine>, rng: &mut Rng) -> bool {
    let plan = &world.plan;
    let choose = || (!rng.one_in(4), rng.one_in(3));
    let Some((lock, shares)) = new(plan, &machine.client, choose) else {
        return false;
    };
    let wait = locks::patience(world, rng);
    let _within = world.within(&shares);
    let waits = world.waits_for_all(&shares, machine);
    let began = world.now();
    let mut leased = None;
    let way = rng.range(0, 8);
    let got = match way {
        0 | 1 => lock.try_lock().await.map_err(Refused::from),
        2 => {
            let lease = lock_calls::lease(world, rng).max(Duration::from_millis(1));
            leased = Some(lease);
            lock.acquire_with_lease(wait, lease)
                .await
                .map_err(Refused::from)
        }
        3 => match timeout(wait, lock.lock()).await {
            Ok(got) => got.map_err(Refused::from),
            Err(_) => return true,
        },
        4 => match polled(rng.range(1, 9), lock.lock()).await {
            Some(got) => got.map_err(Refused::from),
            None => return true,
        },
        _ => lock.acquire(wait).await.map_err(Refused::from),
    };
    drop(waits);
    match got {
        Ok(guard) => {
            world.sometimes("multi-lock".to_owned());
            let paths: Vec<String> = guard.paths().into_iter().map(str::to_owned).collect();
            let held = Held::Multi(guard);
            world.check(multi::all(&paths, &held.nodes(), held.tokens().len()));
            let end = leased.map(|lease| leases::End::of(lease, began, world.now()));
            if let Some(held) = locks::hold(None, world, machine, &shares, (held, end), rng).await {
                locks::give_back(world, held, rng).await;
            }
        }
        Err(refused) => {
            world.say(|| {
                format!(
                    "{} gets no multi-lock of {shares:?}: {}",
                    machine.number, refused.text
                )
            });
            let wait_ms = if way < 2 {
                u64::MAX
            } else {
                wait.as_millis() as u64
            };
            world.refused_all(machine, &shares, began, &refused.variant, wait_ms);
            world.sometimes(format!("multi-lock refused {}", refused.variant));
        }
    }
    true
}

/// Locks all paths at once, and releases them.
pub async fn prove(world: &World, client: &Client, patience: Duration) -> Result<(), String> {
    let Some((lock, _)) = new(&world.plan, client, || (true, false)) else {
        return Ok(());
    };
    let guard = lock
        .acquire(patience)
        .await
        .map_err(|error| error.to_string())?;
    guard.release().await.map_err(|error| error.to_string())
}
