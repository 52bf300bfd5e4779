//! Callers of locks and semaphores: they ask in every way, hold for a while, and give back what they hold, or not.

use std::sync::Arc;
use std::time::Duration;

use simnet::Rng;
use tokio::time::{sleep, timeout};
use zookeeper_recipes::{
    AcquireError, AnyGuard, Client, InterProcessFairLock, InterProcessMutex, InterProcessReadLock,
    InterProcessReadWriteLock, InterProcessSemaphore, InterProcessWriteLock, TryLockError,
};

use super::polled;
use crate::check::exclusion::Share;
use crate::held::{Grant, Held};
use crate::plan::{Kind, Plan};
use crate::world::{Machine, World, path, variant};

/// How long a sticky lock keeps its node.
const STICKY: Duration = Duration::from_secs(3);

/// A handle.
#[derive(Clone, Debug)]
pub enum Lock {
    Mutex(InterProcessMutex),
    Fair(InterProcessFairLock),
    ReadWrite(InterProcessReadLock, InterProcessWriteLock),
    Semaphore(InterProcessSemaphore),
}

/// What is asked for, and in which way.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    pub shared: bool,
    pub permits: u32,
    pub wait: Duration,
    pub way: Way,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Acquire,
    Try,
    /// With a lease.
    Lease(Duration),
    /// Without a timeout, and dropped after the wait.
    DropAfter,
    /// Dropped after so many polls.
    DropAtPoll(u64),
    /// Of a fair lock, as a place in its queue.
    Enqueue,
}

/// Why nothing was granted: the variant of the error, and its text.
pub struct Refused {
    pub variant: String,
    pub text: String,
}

impl From<AcquireError> for Refused {
    fn from(error: AcquireError) -> Self {
        Self { variant: variant(&error), text: error.to_string() }
    }
}

impl From<TryLockError> for Refused {
    fn from(error: TryLockError) -> Self {
        let name = match &error {
            TryLockError::Acquire(error) => variant(error),
            other => variant(other),
        };
        Self { variant: name, text: error.to_string() }
    }
}

macro_rules! ways {
    ($lock:expr, $call:expr, $held:expr) => {{
        let (lock, call) = ($lock, $call);
        let got = match call.way {
            Way::Acquire | Way::Enqueue => lock.acquire(call.wait).await.map_err(Refused::from),
            Way::Try => lock.try_lock().await.map_err(Refused::from),
            Way::Lease(lease) => lock.acquire_for(call.wait, lease).await.map_err(Refused::from),
            Way::DropAfter => timeout(call.wait, lock.lock()).await.ok()?.map_err(Refused::from),
            Way::DropAtPoll(times) => polled(times, lock.lock()).await?.map_err(Refused::from),
        };
        got.map($held)
    }};
}

impl Lock {
    pub fn new(plan: &Plan, client: &Client, place: usize) -> Self {
        let path = path(place);
        let built = match plan.kinds[place] {
            Kind::Fair => InterProcessFairLock::new(client, &path).map(Self::Fair),
            Kind::Semaphore => InterProcessSemaphore::new(client, &path, plan.permits).map(Self::Semaphore),
            Kind::ReadWrite => {
                let mut builder = InterProcessReadWriteLock::builder(client, &path);
                if plan.sticky {
                    builder = builder.sticky(STICKY);
                }
                builder.build().map(|lock| Self::ReadWrite(lock.read_lock(), lock.write_lock()))
            }
            _ => {
                let mut builder = InterProcessMutex::builder(client, &path);
                if plan.handoff {
                    builder = builder.handoff(8, Duration::from_millis(500));
                }
                if plan.sticky {
                    builder = builder.sticky(STICKY);
                }
                builder.build().map(Self::Mutex)
            }
        };
        built.expect("the options are valid")
    }

    /// Asks for it. `None` if the call was dropped.
    pub async fn call(&self, call: Call) -> Option<Result<Held, Refused>> {
        Some(match self {
            Self::Mutex(mutex) => ways!(mutex, call, |guard| Held::Lock(AnyGuard::from(guard))),
            Self::Fair(fair) if call.way == Way::Enqueue => {
                let got = async {
                    let mut queued = fair.enqueue().await?;
                    queued.acquire(call.wait).await
                };
                got.await.map(|guard| Held::Lock(guard.into())).map_err(Refused::from)
            }
            Self::Fair(fair) => ways!(fair, call, |guard| Held::Lock(AnyGuard::from(guard))),
            Self::ReadWrite(read, _) if call.shared => ways!(read, call, Held::Read),
            Self::ReadWrite(_, write) => ways!(write, call, Held::Write),
            Self::Semaphore(semaphore) => {
                let (n, wait) = (call.permits, call.wait);
                let all = semaphore.acquire_many(n, Duration::from_secs(3600));
                let got = match call.way {
                    Way::Acquire | Way::Enqueue => {
                        semaphore.acquire_many(n, wait).await.map_err(Refused::from)
                    }
                    Way::Try => semaphore.try_acquire_many(n).await.map_err(Refused::from),
                    Way::Lease(lease) => {
                        semaphore.acquire_many_for(n, wait, lease).await.map_err(Refused::from)
                    }
                    Way::DropAfter => timeout(wait, all).await.ok()?.map_err(Refused::from),
                    Way::DropAtPoll(times) => polled(times, all).await?.map_err(Refused::from),
                };
                got.map(Held::Permit)
            }
        })
    }
}

/// A call as a caller of this world makes it.
fn choose(plan: &Plan, place: usize, rng: &mut Rng) -> Call {
    let wait = Duration::from_millis(match rng.range(0, 4) {
        0 => rng.range(1, 50),
        1 => rng.range(50, 2_000),
        _ => rng.range(2_000, plan.wait_ms),
    });
    let way = match rng.range(0, 12) {
        0..5 => Way::Acquire,
        5..7 => Way::Try,
        7 => Way::Lease(Duration::from_millis(rng.range(1, plan.timeout_ms()))),
        8 => Way::DropAfter,
        9 | 10 => Way::DropAtPoll(rng.range(1, 9)),
        _ => Way::Enqueue,
    };
    let permits = if rng.one_in(3) { rng.range(1, u64::from(plan.permits) + 1) as u32 } else { 1 };
    Call { shared: plan.kinds[place] == Kind::ReadWrite && !rng.one_in(3), permits, wait, way }
}

/// How a grant of a call shares.
fn share(plan: &Plan, held: &Held) -> Share {
    match held {
        Held::Read(_) => Share::Shared,
        Held::Permit(_) => Share::Permits(plan.permits),
        _ => Share::Exclusive,
    }
}

/// One call, and what comes of it.
pub async fn turn(lock: &Lock, world: &World, machine: &Arc<Machine>, place: usize, rng: &mut Rng) {
    let call = choose(&world.plan, place, rng);
    match lock.call(call).await {
        Some(Ok(held)) => {
            let held = hold(world, machine, place, held, rng).await;
            give_back(world, held, rng).await;
        }
        Some(Err(refused)) => {
            world.say(|| format!("{} gets nothing in {place} by {call:?}: {}", machine.number, refused.text));
            world.sometimes(format!("refused {}", refused.variant));
        }
        None => world.sometimes("dropped call".to_owned()),
    }
}

/// Holds for a while, and converts what is held now and then. Returns it at the end.
async fn hold(world: &World, machine: &Arc<Machine>, place: usize, held: Held, rng: &mut Rng) -> Held {
    let mut held = held;
    loop {
        let share = share(&world.plan, &held);
        let grant = world.enter(&[(place, share)], held, machine);
        // Long enough to be told of the end of a node, where there is such.
        let time = match rng.one_in(if world.plan.broken > 0 { 10 } else { 30 }) {
            true => rng.range(1, 3 * world.plan.timeout_ms()),
            false => rng.range(0, world.plan.hold_ms),
        };
        let is_lost = tokio::select! {
            biased;
            lost = grant.held.lost() => {
                world.lost(&grant, &lost);
                true
            }
            () = async {
                if rng.one_in(4) {
                    sleep(Duration::from_millis(time / 2)).await;
                    world.write(&grant, rng).await;
                }
                sleep(Duration::from_millis(time / 2)).await;
            } => false,
            () = world.stopped(), if world.plan.long => false,
        };
        world.leave(&grant);
        // Nobody else keeps it beyond a look.
        held = Arc::into_inner(grant).map(Grant::into_held).expect("the only one");
        if is_lost || !rng.one_in(4) {
            return held;
        }
        held = match held {
            Held::Read(guard) => match guard.try_upgrade().await {
                Ok(guard) => {
                    world.sometimes("upgraded".to_owned());
                    Held::Write(guard)
                }
                Err(error) => {
                    world.sometimes(format!("not upgraded {}", variant(error.reason())));
                    return Held::Read(error.into_guard());
                }
            },
            Held::Write(guard) => match guard.downgrade().await {
                Ok(guard) => {
                    world.sometimes("downgraded".to_owned());
                    Held::Read(guard)
                }
                Err(error) => {
                    world.sometimes(format!("not downgraded {}", variant(error.reason())));
                    return Held::Write(error.into_guard());
                }
            },
            other => return other,
        };
    }
}

async fn give_back(world: &World, held: Held, rng: &mut Rng) {
    match rng.range(0, 6) {
        0 | 1 => drop(held),
        2 => drop(timeout(Duration::from_millis(1), held.release()).await),
        3 => drop(polled(rng.range(1, 4), held.release()).await),
        _ => {
            world.note_error("not released", held.release().await.err());
        }
    }
}

/// Locks it, and releases it.
pub async fn prove(lock: &Lock, world: &World, place: usize, patience: Duration) -> Result<(), String> {
    let call = Call { shared: false, permits: world.plan.permits, wait: patience, way: Way::Acquire };
    match lock.call(call).await {
        Some(Ok(held)) => {
            if let Err(error) = held.release().await {
                world.violation(&format!("{} is not released: {error}", path(place)));
            }
            Ok(())
        }
        Some(Err(refused)) => Err(refused.text),
        None => Ok(()),
    }
}
