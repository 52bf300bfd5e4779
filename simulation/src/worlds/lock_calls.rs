//! The calls on a lock other than acquiring it: by its holder, and by others that query it, request
//! its release, or break it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use simnet::Rng;
use tokio::time::{sleep, timeout};
use zookeeper_recipes::{Contender, Error, InterProcessSemaphore, SemaphorePermit};

use super::locks::Lock;
use crate::check::leases;
use crate::check::queries::{self, HolderView};
use crate::grants::{Grant, Held};
use crate::world::{Machine, World, path};

/// Runs the same on the handle of each lock: a read-write lock is looked at by its write side.
macro_rules! of_lock {
    ($lock:expr, $handle:ident => $what:expr) => {
        match $lock {
            Lock::Mutex($handle) => $what,
            Lock::Fair($handle) => $what,
            Lock::ReadWrite(_, $handle) => $what,
            Lock::Semaphore($handle) => $what,
        }
    };
}

/// Returns how long a lock is to be held at most: also for longer than heartbeats need to find that
/// its node is gone.
pub fn lease(world: &World, rng: &mut Rng) -> Duration {
    let longest = if rng.one_in(2) { 4 } else { 1 };
    Duration::from_millis(rng.range(0, longest * world.plan.timeout_ms()))
}

/// Takes a part of several permits.
pub fn parted(held: &mut Held, rng: &mut Rng) -> Option<Held> {
    let Held::Permit(permit) = held else {
        return None;
    };
    let part = if rng.one_in(2) {
        permit.split(1)?
    } else {
        return None;
    };
    if rng.one_in(2) {
        return Some(Held::Permit(part));
    }
    permit.merge(part).err().map(Held::Permit)
}

/// Permits that are lost are lost each: none of them is held when it is a value by itself.
pub fn lost_in_all(held: &mut Held) -> Result<(), String> {
    let Held::Permit(permit) = held else {
        return Ok(());
    };
    let nodes = permit.nodes();
    let parts: Vec<_> = std::iter::from_fn(|| permit.split(1)).collect();
    let is_held = permit.is_held() || parts.iter().any(SemaphorePermit::is_held);
    for part in parts {
        permit
            .merge(part)
            .map_err(|part| format!("{:?} is not taken back", part.nodes()))?;
    }
    if is_held {
        Err(format!("one of {nodes:?} is held, which are lost"))
    } else {
        Ok(())
    }
}

/// Makes a random call of a holder.
pub async fn while_held(
    lock: Option<&Lock>,
    world: &World,
    grant: &Arc<Grant>,
    rng: &mut Rng,
    time: Duration,
) {
    match rng.range(0, 12) {
        0..3 => world.write(grant, rng).await,
        3 => drop(world.read(grant).await),
        4 => {
            let lease = lease(world, rng);
            let set = grant.held.set_lease(lease);
            // A lease of zero is refused, and ends the lock.
            if matches!(set, Some(Ok(()))) || lease.is_zero() {
                let end = leases::End::of(lease, world.now(), world.now());
                *crate::world::lock(&grant.lease_end) = Some(end);
            }
            world.note("extended", "not extended", set.unwrap_or(Ok(())));
        }
        5 => match grant.held.reenter() {
            Some(Ok(other)) => {
                world.sometimes("reentered".to_owned());
                sleep(time / 4).await;
                // The lock is released with the last of the guards, so this one stays inside.
                world.note_error("not released", other.release().await.err());
            }
            Some(Err(lost)) => world.note_error("not reentered", Some(lost.reason())),
            None => {}
        },
        6 | 7 => {
            if let Some(lock) = lock {
                look_as_holder(lock, world, grant).await;
            }
        }
        8 | 9 if !world.plan.calm => {
            grant.listens.store(world.now().max(1), Ordering::Relaxed);
            let is_told = timeout(time, grant.held.revoked()).await.is_ok();
            grant.listens.store(0, Ordering::Relaxed);
            if is_told {
                world.revoked(grant);
            }
        }
        _ => {}
    }
}

async fn contenders(lock: &Lock, rng: &mut Rng) -> Result<Vec<Contender>, Error> {
    if rng.one_in(2) {
        of_lock!(lock, handle => handle.holders().await)
    } else {
        of_lock!(lock, handle => handle.queue().await)
    }
}

/// The holder looks at its own lock: it has to be there.
async fn look_as_holder(lock: &Lock, world: &World, grant: &Arc<Grant>) {
    let look = async {
        let queue = of_lock!(lock, handle => handle.queue().await)?;
        let holders = of_lock!(lock, handle => handle.holders().await)?;
        let (is_locked, is_here, length) = match lock {
            // The limit may change between two queries.
            Lock::Semaphore(semaphore) => {
                semaphore.available_permits().await?;
                (true, true, 1)
            }
            Lock::Mutex(mutex) => (
                mutex.is_locked().await?,
                mutex.is_acquired_in_this_process(),
                mutex.queue_len().await?,
            ),
            Lock::Fair(fair) => (
                fair.is_locked().await?,
                fair.is_acquired_in_this_process(),
                fair.queue_len().await?,
            ),
            // Each side reports its own holders.
            Lock::ReadWrite(_, write) => (write.is_locked().await?, true, write.queue_len().await?),
        };
        let mine = |all: &[Contender]| -> Vec<String> {
            all.iter()
                .filter(|one| one.is_mine())
                .map(|one| one.node().to_string())
                .collect()
        };
        Ok::<_, Error>(HolderView {
            is_queued: !matches!(lock, Lock::Semaphore(_)),
            queue: mine(&queue),
            holders: mine(&holders),
            is_locked: is_locked && is_here && length > 0,
        })
    };
    match look.await {
        Ok(look) => {
            world.sometimes("looked".to_owned());
            // Without the lock, its node may have gone in the meantime.
            let is_alone = grant
                .parts
                .iter()
                .all(|part| !world.is_broken_lately(part.place));
            if world.holds(grant) && is_alone {
                let outcome = queries::by_holder(&look, &grant.nodes);
                world.check(outcome.map_err(|text| format!("{} {text}", grant.who)));
            }
        }
        Err(error) => world.note_error("not looked", Some(error)),
    }
}

/// Sets the limit of a semaphore.
pub async fn resize(
    semaphore: &InterProcessSemaphore,
    world: &World,
    place: usize,
    limit: u32,
) -> Result<(), String> {
    let set = world.limits(place, |limits| limits.begin(limit, world.now()));
    let outcome = semaphore.set_limit(limit).await;
    world.say(|| format!("limit of {place} is {limit}: {outcome:?}"));
    let text = outcome.as_ref().err().map(ToString::to_string);
    world.note("resized", "not resized", outcome);
    match text {
        None => {
            world.limits(place, |limits| limits.done(set, world.now()));
            Ok(())
        }
        Some(text) => Err(text),
    }
}

/// Makes a call of a process that does not want the lock: an operator, or another service.
pub async fn from_outside(
    lock: &Lock,
    world: &World,
    machine: &Arc<Machine>,
    place: usize,
    rng: &mut Rng,
) {
    if let Lock::Semaphore(semaphore) = lock
        && world.plan.resizes
        && rng.one_in(2)
    {
        let limit = rng.range(1, u64::from(world.plan.permits) * 2) as u32;
        drop(resize(semaphore, world, place, limit).await);
        return;
    }
    let found = match contenders(lock, rng).await {
        Ok(found) => found,
        Err(error) => return world.note_error("not looked", Some(error)),
    };
    if found.is_empty() {
        return world.sometimes("found free".to_owned());
    }
    let contender = rng.pick(&found);
    let node = contender.node().to_string();
    if world.plan.broken > 0 && rng.one_in(2) {
        // The node may be deleted from now on.
        world.may_break(&node);
        let outcome = of_lock!(lock, handle => handle.break_lock(contender).await);
        world.say(|| {
            format!(
                "{} breaks {node} of {}: {outcome:?}",
                machine.number,
                path(place)
            )
        });
        if matches!(outcome, Ok(true)) {
            world.broken(&node);
        }
        world.note("broken by API", "not broken", outcome);
    } else {
        world.asks_to_stop(&node);
        let outcome = machine.client.attempt_revoke(contender.node()).await;
        world.say(|| format!("{} asks {node} to stop: {outcome:?}", machine.number));
        if outcome.is_ok() {
            world.asked_to_stop(&node);
        }
        world.note("asked to stop", "not asked to stop", outcome);
    }
}
