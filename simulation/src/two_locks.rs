//! The same small world for two locks: this library's mutex, and `zookeeper_client::Client::lock`,
//! on which no test of this library depends. Machines, faults and times follow from the seed alone,
//! so both meet the same.
//!
//! The guard of `Client::lock` has no signal of a loss. Its users can watch the state of the
//! session, so here it is held while that is `SyncConnected`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use simnet::Rng;
use simnet::host::{self, Host};
use simnet::net::{Link, Net, Way};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use zookeeper_client::{Acls, CreateMode, LockOptions, LockPrefix, OwnedLockClient, SessionState};
use zookeeper_recipes::{Client, InterProcessMutex, LockGuard};
use zookeeper_test_server::{Loss, Match, Op, Server};

use crate::check::overlap::Overlaps;
use crate::check::panics;
use crate::glue::{self, PORT, Port};
use crate::world::lock;

/// Where the lock is.
const PATH: &str = "/locks/beside";
/// The machines, and the callers of each.
const MACHINES: u64 = 3;
const CALLERS: u64 = 2;

/// Whose lock it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Ours,
    ClientLock,
    /// The same, and no caller drops a call that waits, although its documentation says that this
    /// is safe.
    ClientLockUndropped,
}

/// The results of a world.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    pub worlds: u64,
    pub grants: u64,
    pub faults: u64,
    /// Pairs of holders that were answered at the same moment that they hold the lock.
    pub overlaps: Count,
    /// Nodes of the lock when all have given it back, their sessions alive.
    pub left: Count,
    /// Callers that waited on after healing, and machines that could not get the lock then.
    pub stuck: Count,
    pub panics: Count,
    pub virtual_ms: u64,
    /// The first of each in a world, with its seed.
    pub examples: Vec<String>,
}

/// The number of events, and of worlds with one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count(pub u64, pub u64);

impl Count {
    fn add(&mut self, other: Self) {
        self.0 += other.0;
        self.1 += other.1;
    }
}

impl Found {
    pub fn add(&mut self, other: Self) {
        self.worlds += other.worlds;
        self.grants += other.grants;
        self.faults += other.faults;
        self.overlaps.add(other.overlaps);
        self.left.add(other.left);
        self.stuck.add(other.stuck);
        self.panics.add(other.panics);
        self.virtual_ms += other.virtual_ms;
        self.examples.extend(other.examples);
    }

    /// Returns whether the lock did nothing that no lock may do.
    pub fn is_fine(&self) -> bool {
        [self.overlaps, self.left, self.stuck, self.panics]
            .iter()
            .all(|count| count.0 == 0)
    }
}

enum Guard {
    Ours(LockGuard),
    ClientLock(Box<(OwnedLockClient, zookeeper_client::Client)>),
}

impl Guard {
    fn is_held(&self) -> bool {
        match self {
            Self::Ours(guard) => guard.is_held(),
            Self::ClientLock(held) => held.1.state() == SessionState::SyncConnected,
        }
    }
}

enum Session {
    Ours(Client, InterProcessMutex),
    ClientLock(tokio::sync::Mutex<Option<zookeeper_client::Client>>),
}

struct Machine {
    name: String,
    link: Arc<Link>,
    process: Arc<Host>,
    /// Where the client library's tasks run, and the callers.
    thread: Arc<Host>,
    executor: Arc<Host>,
    session: Session,
    is_dead: AtomicBool,
}

impl Machine {
    async fn new(kind: Kind, number: u64, time: Duration, net: &Net) -> Self {
        let name = format!("c{number}");
        let process = Host::new(number);
        let (thread, executor) = (process.thread(), process.thread());
        let session = match kind {
            Kind::Ours => {
                let (builder, servers) = (
                    Client::builder().session_timeout(time),
                    format!("{name}:{PORT}"),
                );
                let client = host::on(&thread, async move { builder.connect_lazy(&servers) }).await;
                let client = client.expect("the options are valid");
                let mutex = InterProcessMutex::new(&client, PATH).expect("the path is valid");
                Session::Ours(client, mutex)
            }
            Kind::ClientLock | Kind::ClientLockUndropped => {
                Session::ClientLock(tokio::sync::Mutex::default())
            }
        };
        let (link, is_dead) = (net.link(&name), AtomicBool::new(false));
        Self {
            name,
            link,
            process,
            thread,
            executor,
            session,
            is_dead,
        }
    }

    fn may_act(&self) -> bool {
        !self.is_dead.load(Ordering::Relaxed) && !self.executor.is_frozen()
    }

    /// Waits for the lock. `None` after an error, which its callers take as a reason to ask again.
    #[expect(clippy::disallowed_methods, reason = "this is what is compared")]
    async fn acquire(&self, time: Duration) -> Option<Guard> {
        let place = match &self.session {
            Session::Ours(_, mutex) => return mutex.lock().await.ok().map(Guard::Ours),
            Session::ClientLock(place) => place,
        };
        let client = {
            let mut place = place.lock().await;
            match place
                .clone()
                .filter(|client| !client.state().is_terminated())
            {
                Some(client) => client,
                None => {
                    let servers = format!("{}:{PORT}", self.name);
                    let connecting = async move {
                        let connector =
                            zookeeper_client::Client::connector().with_session_timeout(time);
                        connector.connect(&servers).await
                    };
                    let client = host::on(&self.thread, connecting).await.ok()?;
                    place.insert(client).clone()
                }
            }
        };
        let directory = || CreateMode::Container.with_acls(Acls::anyone_all());
        let options = LockOptions::new(Acls::anyone_all())
            .with_ancestor_options(directory())
            .ok()?;
        let prefix = LockPrefix::new_curator(PATH, "lock-").ok()?;
        let held = client.lock(prefix, b"", options).await.ok()?.into_owned();
        Some(Guard::ClientLock(Box::new((held, client.clone()))))
    }

    async fn release(guard: Guard) {
        match guard {
            // An error says that it was lost.
            Guard::Ours(guard) => drop(guard.release().await),
            // A lock of this kind can only be released by dropping it.
            Guard::ClientLock(held) => drop(held),
        }
    }
}

type Inside = Vec<(u64, Arc<Machine>, Arc<Guard>)>;

/// The state that all tasks of a world share.
struct World {
    kind: Kind,
    seed: u64,
    time: Duration,
    stopped: watch::Sender<bool>,
    found: Mutex<Found>,
    inside: Mutex<Inside>,
    both: Mutex<Overlaps>,
}

impl World {
    fn found(&self, what: &str, count: impl FnOnce(&mut Found) -> &mut Count) {
        let mut found = lock(&self.found);
        let count = count(&mut found);
        count.0 += 1;
        if count.0 == 1 {
            count.1 = 1;
            found.examples.push(format!("seed {}: {what}", self.seed));
        }
    }

    /// Asks all who could act on the lock at this moment.
    fn look(&self) {
        let inside = lock(&self.inside);
        let acts = |(_, machine, guard): &&(u64, Arc<Machine>, Arc<Guard>)| {
            machine.may_act() && guard.is_held()
        };
        let held: Vec<u64> = inside.iter().filter(acts).map(|(who, ..)| *who).collect();
        for (one, two) in lock(&self.both).look(&held) {
            self.found(&format!("{one} and {two} hold it at once"), |found| {
                &mut found.overlaps
            });
        }
    }

    async fn work(self: Arc<Self>, machine: Arc<Machine>, mut rng: Rng) {
        while !*self.stopped.borrow() {
            let wait = Duration::from_millis(match rng.range(0, 4) {
                0 => rng.range(1, 200),
                _ => rng.range(1_000, 30_000),
            });
            let got = match self.kind {
                Kind::ClientLockUndropped => machine.acquire(self.time).await,
                _ => timeout(wait, machine.acquire(self.time))
                    .await
                    .ok()
                    .flatten(),
            };
            let Some(guard) = got else {
                sleep(Duration::from_millis(rng.range(1, 50))).await;
                continue;
            };
            let who = {
                let mut found = lock(&self.found);
                found.grants += 1;
                found.grants
            };
            let guard = Arc::new(guard);
            lock(&self.inside).push((who, Arc::clone(&machine), Arc::clone(&guard)));
            self.look();
            let most = if rng.one_in(8) {
                2 * self.time.as_millis() as u64
            } else {
                50
            };
            sleep(Duration::from_millis(rng.range(0, most))).await;
            lock(&self.inside).retain(|(other, ..)| *other != who);
            Machine::release(Arc::into_inner(guard).expect("the only one")).await;
            sleep(Duration::from_millis(rng.range(0, 100))).await;
        }
    }

    /// Makes faults for a while, and heals them.
    async fn break_things(
        self: &Arc<Self>,
        server: &Server,
        machines: &mut Machines,
        rng: &mut Rng,
    ) {
        let (end, time) = (
            Instant::now() + self.time * 30,
            self.time.as_millis() as u64,
        );
        while Instant::now() < end {
            sleep(Duration::from_millis(rng.range(50, time))).await;
            lock(&self.found).faults += 1;
            let which = rng.range(0, MACHINES) as usize;
            let machine = Arc::clone(&machines.all[which].0);
            let long = match rng.one_in(2) {
                true => rng.range(1, time),
                false => rng.range(time, 3 * time),
            };
            let long = Duration::from_millis(long);
            match rng.range(0, 8) {
                0..2 => {
                    const WAYS: [&[Way]; 3] = [
                        &[Way::ToServer],
                        &[Way::ToClient],
                        &[Way::ToServer, Way::ToClient],
                    ];
                    let ways = *rng.pick(&WAYS);
                    ways.iter().for_each(|way| machine.link.hold(*way));
                    tokio::spawn(async move {
                        sleep(long).await;
                        machine.link.heal();
                    });
                }
                2 => drop(machine.link.reset()),
                3 => {
                    server.stop_async().await;
                    sleep(Duration::from_millis(rng.range(1, 2_000))).await;
                    server.restart_async().await.expect("a stopped server");
                }
                4 | 5 => {
                    let op = *rng.pick(&[Op::Create, Op::Delete, Op::GetChildren, Op::GetData]);
                    let loss = *rng.pick(&[Loss::Close, Loss::Reset]);
                    let what = Match::op(op).times(rng.range(1, 3) as usize);
                    drop(if rng.one_in(2) {
                        server.drop_reply(what, loss)
                    } else {
                        server.drop_request(what, loss)
                    });
                }
                6 => {
                    let world = Arc::clone(self);
                    machine.process.freeze();
                    tokio::spawn(async move {
                        sleep(long).await;
                        machine.process.thaw();
                        // A process that resumes queries its locks first.
                        world.look();
                    });
                }
                _ => machines.crash(self, which, rng).await,
            }
        }
        server.clear_faults();
        // Links heal, and processes continue, by themselves.
        sleep(self.time * 3).await;
    }
}

/// The machines that run, each with its callers.
struct Machines {
    kind: Kind,
    net: Arc<Net>,
    started: u64,
    all: Vec<(Arc<Machine>, JoinSet<()>)>,
}

impl Machines {
    async fn start(&mut self, world: &Arc<World>, rng: &mut Rng) {
        self.started += 1;
        let machine = Arc::new(Machine::new(self.kind, self.started, world.time, &self.net).await);
        let mut callers = JoinSet::new();
        for _ in 0..CALLERS {
            let work = Arc::clone(world).work(Arc::clone(&machine), rng.fork());
            callers.spawn(host::on(&machine.executor, work));
        }
        self.all.push((machine, callers));
    }

    async fn crash(&mut self, world: &Arc<World>, which: usize, rng: &mut Rng) {
        let (machine, mut callers) = self.all.swap_remove(which);
        machine.is_dead.store(true, Ordering::Relaxed);
        machine.link.die();
        callers.abort_all();
        lock(&world.inside).retain(|(_, other, _)| !Arc::ptr_eq(other, &machine));
        self.start(world, rng).await;
    }
}

async fn live(kind: Kind, seed: u64, mut rng: Rng) -> Found {
    let (net, began) = (Net::current(), Instant::now());
    let time = Duration::from_secs(*rng.pick(&[4, 10]));
    let builder = Server::builder()
        .tick(time / 10)
        .min_session_timeout(Duration::from_millis(1));
    let server = builder
        .max_session_timeout(Duration::from_secs(3600))
        .serve(Port::open());
    let server = server.expect("the simulation has a runtime");
    let world = Arc::new(World {
        kind,
        seed,
        time,
        stopped: watch::Sender::new(false),
        found: Mutex::new(Found {
            worlds: 1,
            ..Found::default()
        }),
        inside: Mutex::default(),
        both: Mutex::default(),
    });
    let mut machines = Machines {
        kind,
        net,
        started: 0,
        all: Vec::new(),
    };
    for _ in 0..MACHINES {
        machines.start(&world, &mut rng).await;
    }
    let looks = tokio::spawn({
        let world = Arc::clone(&world);
        async move {
            loop {
                sleep(Duration::from_millis(20)).await;
                world.look();
            }
        }
    });
    world.break_things(&server, &mut machines, &mut rng).await;

    world.stopped.send_replace(true);
    let limit = time * 2 + Duration::from_secs(5);
    // A call may have been made just before, and a hold begun just before its end.
    let ends = Instant::now() + Duration::from_secs(30) + limit;
    for (_, callers) in &mut machines.all {
        while let Ok(Some(_)) = tokio::time::timeout_at(ends, callers.join_next()).await {}
        for _ in 0..callers.len() {
            world.found("a caller does not end", |found| &mut found.stuck);
        }
        callers.abort_all();
    }
    for (machine, _) in &machines.all {
        match timeout(limit, machine.acquire(time)).await {
            Ok(Some(guard)) => Machine::release(guard).await,
            _ => world.found("the lock is not granted after healing", |found| {
                &mut found.stuck
            }),
        }
    }
    sleep(time * 2).await;
    looks.abort();
    for _ in server.children(PATH) {
        world.found("a node is left", |found| &mut found.left);
    }
    for (machine, _) in &machines.all {
        if let Session::Ours(client, _) = &machine.session {
            // The session ends all that is left on the servers.
            drop(timeout(limit, client.close()).await);
        }
    }
    drop(machines);
    for panic in panics::seen() {
        world.found(&panic, |found| &mut found.panics);
    }
    let mut found = std::mem::take(&mut *lock(&world.found));
    found.virtual_ms = began.elapsed().as_millis() as u64;
    found
}

/// Runs the world of a seed for a lock.
pub fn play(kind: Kind, seed: u64) -> Found {
    glue::install();
    let before = move || {
        fastrand::seed(seed);
        panics::watch();
    };
    let outcome = simnet::run(seed, before, move |rng| live(kind, seed, rng));
    // The world itself has failed.
    outcome.map_or_else(
        |_| Found {
            worlds: 1,
            panics: Count(1, 1),
            ..Found::default()
        },
        |(found, _)| found,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replays_seed_and_finds_leaking_lock() {
        let sum = |kind: Kind| {
            let mut sum = Found::default();
            (1..4).for_each(|seed| sum.add(play(kind, seed)));
            sum
        };
        let ours = sum(Kind::Ours);
        assert!(ours.is_fine() && ours.grants > 0, "{ours:?}");
        assert_eq!(ours, sum(Kind::Ours));
        let theirs = sum(Kind::ClientLock);
        assert!(theirs.left.0 > 0 && theirs.stuck.0 > 0, "{theirs:?}");
        assert_eq!(theirs, sum(Kind::ClientLock));
    }
}
