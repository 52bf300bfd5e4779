//! Callers of locks and semaphores: they ask in every way, hold for a while, do what a guard can
//! do, and give back what they hold, or not.

use std::error::Error;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use simnet::Rng;
use tokio::time::{sleep, timeout};
use zookeeper_recipes::{
    AcquireError, AnyGuard, Client, ConversionError, ErrorKind, InterProcessFairLock,
    InterProcessLock, InterProcessMutex, InterProcessReadLock, InterProcessReadWriteLock,
    InterProcessSemaphore, InterProcessWriteLock, LockGuard, ParentNodes, ReleaseError,
    TryLockError,
};

use super::{lock_calls, polled};
use crate::check::exclusion::Share;
use crate::check::{ends, leases, recovery};
use crate::grants::{Grant, Held};
use crate::plan::{Kind, Plan};
use crate::world::{Machine, World, path, variant};

/// A handle.
#[derive(Clone, Debug)]
pub enum Lock {
    Mutex(InterProcessMutex),
    Fair(InterProcessFairLock),
    ReadWrite(InterProcessReadLock, InterProcessWriteLock),
    Semaphore(InterProcessSemaphore),
}

/// The lock that is requested, and the way of the call.
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
    /// The call has a lease.
    Lease(Duration),
    /// The call has no timeout, and is dropped after the wait.
    DropAfter,
    /// Dropped after this many polls.
    DropAtPoll(u64),
    /// Of a fair lock, as a place in its queue that is asked in several ways;
    /// [`acquire`](Self::Acquire) of others.
    Enqueue(Place),
}

/// The calls on a place in the queue before the lock is awaited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Dropped after this many polls, while it is taken or waits.
    polls: Option<u64>,
    /// How long an earlier wait lasted before it timed out.
    first: Duration,
    asks: bool,
}

/// Why nothing was granted: the variant of the error, and its text.
pub struct Refused {
    pub variant: String,
    pub text: String,
}

/// Returns an error with what caused it.
fn with_source(error: &dyn Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {}", with_source(source)),
        None => error.to_string(),
    }
}

impl From<AcquireError> for Refused {
    fn from(error: AcquireError) -> Self {
        Self {
            variant: variant(&error),
            text: with_source(&error),
        }
    }
}

impl From<TryLockError> for Refused {
    fn from(error: TryLockError) -> Self {
        let name = match &error {
            TryLockError::Acquire(error) => variant(error),
            other => variant(other),
        };
        Self {
            variant: name,
            text: with_source(&error),
        }
    }
}

macro_rules! ways {
    ($lock:expr, $call:expr, $held:expr) => {{
        let (lock, call) = ($lock, $call);
        let got = match call.way {
            Way::Acquire | Way::Enqueue(_) => lock.acquire(call.wait).await.map_err(Refused::from),
            Way::Try => lock.try_lock().await.map_err(Refused::from),
            Way::Lease(lease) => lock
                .acquire_with_lease(call.wait, lease)
                .await
                .map_err(Refused::from),
            Way::DropAfter => timeout(call.wait, lock.lock())
                .await
                .ok()?
                .map_err(Refused::from),
            Way::DropAtPoll(times) => polled(times, lock.lock()).await?.map_err(Refused::from),
        };
        got.map($held)
    }};
}

/// Takes a place in the queue, and waits there.
async fn enqueue(
    fair: &InterProcessFairLock,
    place: Place,
    wait: Duration,
) -> Result<LockGuard, AcquireError> {
    let mut queued = fair.enqueue().await?;
    match queued.acquire(place.first).await {
        // The place is kept, if there is one to be kept.
        Err(AcquireError::TimedOut { .. }) => {}
        Err(error) if error.kind() == Some(ErrorKind::Connection) => {}
        got => return got,
    }
    if place.asks {
        queued.position().await?;
    }
    // A future that is dropped before it is ready leaves the place as it was.
    match polled(2, queued.lock()).await {
        Some(got) => got,
        None => queued.acquire(wait).await,
    }
}

impl Lock {
    pub fn new(plan: &Plan, client: &Client, place: usize) -> Self {
        let path = path(place);
        let parents = if plan.persistent {
            ParentNodes::Persistent
        } else {
            ParentNodes::Container
        };
        let built = match plan.kinds[place] {
            Kind::Fair => InterProcessFairLock::builder(client, &path)
                .parents(parents)
                .build()
                .map(Self::Fair),
            Kind::Semaphore => {
                let mut builder =
                    InterProcessSemaphore::builder(client, &path, plan.permits).parents(parents);
                if let Some(nodes) = plan.max_znodes {
                    builder = builder.max_znodes(nodes);
                }
                builder.build().map(Self::Semaphore)
            }
            Kind::ReadWrite => {
                let mut builder =
                    InterProcessReadWriteLock::builder(client, &path).parents(parents);
                if plan.handoff > 0 {
                    builder =
                        builder.hand_off(plan.handoff, Duration::from_millis(plan.handoff_ms));
                }
                builder
                    .build()
                    .map(|lock| Self::ReadWrite(lock.read_lock(), lock.write_lock()))
            }
            _ => {
                let mut builder = InterProcessMutex::builder(client, &path).parents(parents);
                if plan.handoff > 0 {
                    builder =
                        builder.hand_off(plan.handoff, Duration::from_millis(plan.handoff_ms));
                }
                builder.build().map(Self::Mutex)
            }
        };
        built.expect("the options are valid")
    }

    /// Returns the lock as a member of a multi-lock, if it can be one, and how its grant shares.
    pub fn member(&self, shared: bool) -> Option<(Box<dyn InterProcessLock>, Share)> {
        let member: Box<dyn InterProcessLock> = match self {
            Self::Mutex(mutex) => Box::new(mutex.clone()),
            Self::Fair(fair) => Box::new(fair.clone()),
            Self::ReadWrite(read, _) if shared => {
                return Some((Box::new(read.clone()), Share::Shared));
            }
            Self::ReadWrite(_, write) => Box::new(write.clone()),
            Self::Semaphore(_) => return None,
        };
        Some((member, Share::Exclusive))
    }

    /// Asks for the lock. Returns `None` if the call was dropped.
    pub async fn call(&self, call: Call) -> Option<Result<Held, Refused>> {
        Some(match self {
            Self::Mutex(mutex) => ways!(mutex, call, |guard| Held::Lock(AnyGuard::from(guard))),
            Self::Fair(fair) => match call.way {
                Way::Enqueue(place) => {
                    let got = enqueue(fair, place, call.wait);
                    let got = match place.polls {
                        Some(polls) => polled(polls, got).await?,
                        None => got.await,
                    };
                    got.map(|guard| Held::Lock(guard.into()))
                        .map_err(Refused::from)
                }
                _ => ways!(fair, call, |guard| Held::Lock(AnyGuard::from(guard))),
            },
            Self::ReadWrite(read, _) if call.shared => ways!(read, call, Held::Read),
            Self::ReadWrite(_, write) => ways!(write, call, Held::Write),
            Self::Semaphore(semaphore) => {
                let (n, wait) = (call.permits, call.wait);
                let all = semaphore.acquire_many(n, Duration::from_secs(3600));
                let got = match call.way {
                    Way::Acquire | Way::Enqueue(_) => {
                        semaphore.acquire_many(n, wait).await.map_err(Refused::from)
                    }
                    Way::Try => semaphore.try_acquire_many(n).await.map_err(Refused::from),
                    Way::Lease(lease) => semaphore
                        .acquire_many_with_lease(n, wait, lease)
                        .await
                        .map_err(Refused::from),
                    Way::DropAfter => timeout(wait, all).await.ok()?.map_err(Refused::from),
                    Way::DropAtPoll(times) => polled(times, all).await?.map_err(Refused::from),
                };
                got.map(Held::Permit)
            }
        })
    }
}

/// Returns a call as a caller of this world makes it.
fn choose(world: &World, place: usize, rng: &mut Rng) -> Call {
    let plan = &world.plan;
    let way = match rng.range(0, 12) {
        0..5 => Way::Acquire,
        5..7 => Way::Try,
        7 => Way::Lease(lock_calls::lease(world, rng).max(Duration::from_millis(1))),
        8 => Way::DropAfter,
        9 | 10 => Way::DropAtPoll(rng.range(1, 9)),
        _ => Way::Enqueue(Place {
            polls: rng.one_in(4).then(|| rng.range(1, 20)),
            first: Duration::from_millis(rng.range(0, 200)),
            asks: rng.one_in(2),
        }),
    };
    let permits = if rng.one_in(3) {
        rng.range(1, u64::from(plan.permits) + 1) as u32
    } else {
        1
    };
    let shared = plan.kinds[place] == Kind::ReadWrite && !rng.one_in(3);
    Call {
        shared,
        permits,
        wait: patience(world, rng),
        way,
    }
}

/// Returns how long a caller waits.
pub fn patience(world: &World, rng: &mut Rng) -> Duration {
    let plan = &world.plan;
    Duration::from_millis(match rng.range(0, 4) {
        0 => rng.range(1, 50),
        1 => rng.range(50, 2_000),
        // The timeout is as long as a free lock may take to be granted.
        _ if world.is_healed() => rng.range(
            recovery::limit(plan.timeout_ms()),
            2 * recovery::limit(plan.timeout_ms()),
        ),
        _ => rng.range(2_000, plan.wait_ms),
    })
}

/// Returns how a grant of a call that began at `began` shares.
fn share(world: &World, place: usize, held: &Held, began: u64) -> Share {
    match held {
        Held::Read(_) => Share::Shared,
        Held::Permit(_) => Share::Permits(world.limits(place, |limits| limits.most(began))),
        _ => Share::Exclusive,
    }
}

/// Makes one call, and uses its result.
pub async fn turn(lock: &Lock, world: &World, machine: &Arc<Machine>, place: usize, rng: &mut Rng) {
    // A request to release also wakes the holder's successor.
    if !world.plan.calm && rng.one_in(10) {
        return lock_calls::from_outside(lock, world, machine, place, rng).await;
    }
    let call = choose(world, place, rng);
    let began = world.now();
    // Calls that queue in the order of their requests, unless they leave.
    let queues = world.plan.calm
        && matches!(
            (lock, call.way),
            (Lock::Fair(_), Way::Acquire | Way::Lease(_))
        );
    let deadline = began + call.wait.as_millis() as u64;
    let ticket = queues.then(|| world.fifo(place, |fifo| fifo.asks(machine.number, deadline)));
    // Permits that a smaller limit withholds are not free.
    let counts = call.permits == 1 || !world.plan.resizes;
    let wait = world.waits(place, counts.then_some(machine));
    let got = lock.call(call).await;
    if let Some(Err(refused)) = &got {
        let wait_ms = if call.way == Way::Try {
            u64::MAX
        } else {
            call.wait.as_millis() as u64
        };
        let leased = matches!(call.way, Way::Lease(_));
        world.refused(wait, machine, &refused.variant, wait_ms, leased);
    }
    world.ends(wait, matches!(got, Some(Ok(_))));
    if let Some(ticket) = ticket {
        let is_granted = matches!(got, Some(Ok(_)));
        let outcome = world.fifo(place, |fifo| match is_granted {
            true => fifo.granted(ticket, world.now()),
            false => {
                fifo.ends(ticket);
                Ok(())
            }
        });
        world.check(outcome.map_err(|text| format!("at {}: {text}", path(place))));
    }
    match got {
        Some(Ok(mut held)) => {
            if let Some(other) = lock_calls::parted(&mut held, rng) {
                world.sometimes("split".to_owned());
                world.note_error("not released", other.release().await.err());
            }
            let share = share(world, place, &held, began);
            let end = match call.way {
                Way::Lease(lease) => Some(leases::End::of(lease, began, world.now())),
                _ => None,
            };
            let shares = [(place, share)];
            if let Some(held) = hold(Some(lock), world, machine, &shares, (held, end), rng).await {
                give_back(world, held, rng).await;
            }
        }
        Some(Err(refused)) => {
            world.say(|| {
                format!(
                    "{} gets nothing in {place} by {call:?}: {}",
                    machine.number, refused.text
                )
            });
            world.sometimes(format!("refused {}", refused.variant));
        }
        None => world.sometimes("dropped call".to_owned()),
    }
}

/// Checks a downgrade of a hold of these nodes that has failed: the new node may be the one of
/// whose deletion its holder is notified.
fn not_downgraded<G: Debug>(world: &World, nodes: &[String], error: &ConversionError<G>) {
    world.sometimes(format!("not downgraded {}", variant(error)));
    nodes.iter().for_each(|node| world.may_break(node));
}

/// Holds for a while, and downgrades a write lock now and then. Returns it at the end, unless a
/// downgrade is dropped. With the lock comes the end of its lease.
pub async fn hold(
    lock: Option<&Lock>,
    world: &World,
    machine: &Arc<Machine>,
    shares: &[(usize, Share)],
    (mut held, mut end): (Held, Option<leases::End>),
    rng: &mut Rng,
) -> Option<Held> {
    let mut shares = shares.to_vec();
    loop {
        let grant = world.enter(&shares, held, machine);
        *crate::world::lock(&grant.lease_end) = end;
        // The time is long enough for a notice of a node's deletion, in worlds with such deletions.
        let time = match rng.one_in(if world.plan.broken > 0 { 10 } else { 30 }) {
            true => rng.range(1, 3 * world.plan.timeout_ms()),
            false => rng.range(0, world.plan.hold_ms),
        };
        // At the end of a world others wait for the lock, and have to be granted it in time (seed
        // 60450).
        let time = if world.is_stopped() {
            time.min(world.plan.hold_ms)
        } else {
            time
        };
        let is_lost = tokio::select! {
            biased;
            lost = grant.held.lost() => {
                world.lost(&grant, &lost);
                if rng.one_in(4) {
                    world.sometimes("stops late".to_owned());
                    sleep(Duration::from_millis(rng.range(1, 2 * world.plan.timeout_ms()))).await;
                }
                true
            }
            () = async {
                let lock_calls = rng.range(1, 4);
                let pause = Duration::from_millis(time / (lock_calls + 1));
                for _ in 0..lock_calls {
                    sleep(pause).await;
                    lock_calls::while_held(lock, world, &grant, rng, pause).await;
                }
                sleep(pause).await;
            } => false,
            () = world.stopped(), if world.plan.long => false,
        };
        world.leave(&grant);
        end = *crate::world::lock(&grant.lease_end);
        // No other task keeps the grant longer than for a check.
        held = Arc::into_inner(grant)
            .map(Grant::into_held)
            .expect("the only one");
        if is_lost {
            world.check(lock_calls::lost_in_all(&mut held));
        }
        // Lost grants are released explicitly from time to time, too.
        if !rng.one_in(if is_lost { 16 } else { 4 }) {
            return Some(held);
        }
        let polls = if rng.one_in(8) {
            rng.range(1, 6)
        } else {
            u64::MAX
        };
        let before = held.nodes();
        held = match held {
            Held::Write(guard) => match polled(polls, guard.downgrade()).await? {
                Ok(guard) => {
                    world.sometimes("downgraded".to_owned());
                    Held::Read(guard)
                }
                Err(error) => {
                    not_downgraded(world, &before, &error);
                    return Some(Held::Write(error.into_guard()));
                }
            },
            other => return Some(other),
        };
        world.converted(&before, &held.nodes());
        shares
            .iter_mut()
            .for_each(|(_, share)| *share = Share::Shared);
    }
}

pub async fn give_back(world: &World, held: Held, rng: &mut Rng) {
    match rng.range(0, 6) {
        0 | 1 => drop(held),
        2 => drop(timeout(Duration::from_millis(1), held.release()).await),
        3 => drop(polled(rng.range(1, 4), held.release()).await),
        _ => {
            let nodes = held.nodes();
            let error = held.release().await.err();
            if let Some(ReleaseError::Lost(lost)) = &error {
                world.check_told(&nodes, lost);
            }
            world.note_error("not released", error);
        }
    }
}

/// Acquires the lock, and releases it.
pub async fn prove(
    lock: &Lock,
    world: &World,
    place: usize,
    patience: Duration,
) -> Result<(), String> {
    if let Lock::Semaphore(semaphore) = lock
        && world.plan.resizes
    {
        lock_calls::resize(semaphore, world, place, world.plan.permits).await?;
    }
    let call = Call {
        shared: false,
        permits: world.plan.permits,
        wait: patience,
        way: Way::Acquire,
    };
    match lock.call(call).await {
        Some(Ok(held)) => {
            world.check(ends::released(&path(place), held.release().await));
            Ok(())
        }
        Some(Err(refused)) => Err(refused.text),
        None => Ok(()),
    }
}
