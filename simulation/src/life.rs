//! The life of a world: machines start, things break, all heals, and nothing may be left.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use simnet::host::{self, Host};
use simnet::net::{Latency, Net};
use simnet::{Rng, interpose};
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use zookeeper_recipes::Client;
use zookeeper_test_server::{Op, Server};

use crate::check::{ends, leftovers, panics, recovery};
use crate::faults::Stage;
use crate::glue::Port;
use crate::plan::Plan;
use crate::world::{Machine, Report, World, data, lock, path};
use crate::{faults, glue, worlds};

/// The machines that run, and their callers.
pub struct Machines {
    world: Arc<World>,
    net: Arc<Net>,
    rng: Mutex<Rng>,
    all: Mutex<Vec<Arc<Machine>>>,
    callers: Mutex<JoinSet<()>>,
}

impl Machines {
    /// Starts a machine, with a client and its callers.
    async fn start(&self) {
        let number = self.world.process();
        // The machine has no session yet.
        self.world.shakes(Duration::ZERO);
        let name = format!("c{number}");
        let process = Host::new(number);
        let (session, executor) = (process.thread(), process.thread());
        let plan = &self.world.plan;
        let builder = Client::builder()
            .session_timeout(plan.session_timeout)
            .margin(plan.margin)
            .name(&name);
        let (servers, hosts) = glue::servers(&name, plan.members);
        let connects = lock(&self.rng).one_in(4);
        let connect = async move {
            let connected = if connects {
                builder.clone().connect(&servers).await
            } else {
                builder.clone().connect_lazy(&servers)
            };
            // A client that starts without a server continues trying.
            match connected {
                Ok(client) => (Ok(client), None),
                Err(error) => (builder.connect_lazy(&servers), Some(error)),
            }
        };
        let (client, refused) = host::on(&session, connect).await;
        self.world.note_error("not connected", refused);
        let machine = Arc::new(Machine {
            number,
            links: hosts.iter().map(|host| self.net.link(host)).collect(),
            client: client.expect("the options are valid"),
            process,
            executor,
            is_dead: AtomicBool::new(false),
            has_left: AtomicBool::new(false),
            is_closing: AtomicBool::new(false),
            thawed: AtomicU64::new(0),
        });
        for _ in 0..plan.callers {
            let rng = lock(&self.rng).fork();
            let (world, on) = (Arc::clone(&self.world), Arc::clone(&machine));
            let callers = worlds::work(world, on, rng);
            lock(&self.callers).spawn(host::on(&machine.executor, callers));
        }
        lock(&self.all).push(machine);
    }

    /// Returns the machines that live.
    pub fn all(&self) -> Vec<Arc<Machine>> {
        lock(&self.all).clone()
    }

    pub fn pick(&self, rng: &mut Rng) -> Arc<Machine> {
        Arc::clone(rng.pick(&lock(&self.all)))
    }

    /// Closes or drains a client while its callers call, and starts another machine.
    pub async fn replace(&self, rng: &mut Rng) {
        let machine = {
            let mut all = lock(&self.all);
            let which = rng.range(0, all.len() as u64) as usize;
            all.swap_remove(which)
        };
        self.world
            .fault("client replaced", || machine.number.to_string());
        let timeout_ms = self.world.plan.timeout_ms();
        let drain = rng
            .one_in(2)
            .then(|| Duration::from_millis(rng.range(0, 2 * timeout_ms)));
        let rest = Duration::from_millis(rng.range(1, 500));
        let (world, old) = (Arc::clone(&self.world), Arc::clone(&machine));
        let end = async move {
            old.is_closing.store(true, Ordering::Relaxed);
            let is_drained = match drain {
                Some(time) => {
                    let drained = old.client.drain(time).await;
                    let is_drained = drained.is_ok();
                    world.note("drained", "not drained", drained);
                    is_drained
                }
                None => {
                    world.note("closed", "not closed", old.client.close().await);
                    false
                }
            };
            world.client_ended(&old, is_drained);
            // The callers notice the end by themselves.
            sleep(rest).await;
            old.has_left.store(true, Ordering::Relaxed);
        };
        lock(&self.callers).spawn(host::on(&machine.executor, end));
        self.start().await;
    }

    /// Makes a machine crash, and starts another.
    pub async fn crash(&self, rng: &mut Rng) {
        let machine = {
            let mut all = lock(&self.all);
            let which = rng.range(0, all.len() as u64) as usize;
            all.swap_remove(which)
        };
        self.world.fault("crash", || machine.number.to_string());
        machine.is_dead.store(true, Ordering::Relaxed);
        let resets = rng.one_in(2);
        for link in &machine.links {
            link.die();
            if resets {
                link.reset();
            }
        }
        drop(machine);
        self.start().await;
    }
}

/// Runs a world to its end.
async fn live(plan: Plan, trace: bool, mut rng: Rng) -> Report {
    let net = Net::current();
    if plan.far {
        net.set_latency(Latency {
            min: 1,
            max: 60,
            spike: 20,
            most: 2_000,
        });
    }
    let builder = Server::builder()
        .tick(plan.session_timeout / 10)
        .min_session_timeout(Duration::from_millis(1))
        .max_session_timeout(Duration::from_secs(3600))
        .clock_rate(plan.clock_rate)
        .touch_interval(plan.touch_interval);
    let server = Arc::new(
        builder
            .serve_members(Port::open_all(plan.members))
            .expect("the simulation has a runtime"),
    );
    let world = Arc::new(World::new(plan, &server, trace));
    let plan = &world.plan;
    if plan.sweep_ms > 0 {
        let (server, period) = (Arc::clone(&server), Duration::from_millis(plan.sweep_ms));
        tokio::spawn(async move {
            loop {
                sleep(period).await;
                server.sweep_containers();
            }
        });
    }
    let tasks = Handle::current().metrics().num_alive_tasks();
    for place in 0..plan.paths() {
        server.create(&data(place), "").expect("the tree is empty");
    }
    world.say(|| format!("{plan:?}"));
    let machines = Machines {
        world: Arc::clone(&world),
        net: Arc::clone(&net),
        rng: Mutex::new(rng.fork()),
        all: Mutex::default(),
        callers: Mutex::default(),
    };
    for _ in 0..plan.clients {
        machines.start().await;
    }
    let looks = {
        let world = Arc::clone(&world);
        // Worlds with long holds are checked less often.
        let period = Duration::from_millis(if world.plan.long { 20_000 } else { 500 });
        tokio::spawn(async move {
            loop {
                sleep(period).await;
                world.look();
            }
        })
    };
    faults::make(&Stage::new(&world, &server, &net), &machines, &mut rng).await;

    // Everything works from now on. Callers continue, with enough time for each to be granted its
    // lock.
    world.heal();
    sleep(2 * Duration::from_millis(recovery::limit(plan.timeout_ms()))).await;

    // All callers must then end.
    let patience = plan.session_timeout * 6 + Duration::from_secs(120);
    world.stop();
    let mut callers = std::mem::take(&mut *lock(&machines.callers));
    let _ = timeout(patience, async {
        while callers.join_next().await.is_some() {}
    })
    .await;
    world.check(ends::callers(callers.len()));
    drop(callers);
    worlds::check_calm(&world, &server);
    let all = std::mem::take(&mut *lock(&machines.all));
    worlds::all_work(&world, &server, &all, patience).await;
    leave_nothing(&world, &server, &all, patience).await;
    looks.abort();

    drop((machines, all));
    // Dead machines are switched on again, and know nothing of their connections.
    net.links()
        .iter()
        .filter(|link| link.is_dead())
        .for_each(|link| {
            link.reset();
        });
    sleep(Duration::from_secs(1)).await;
    let alive = Handle::current().metrics().num_alive_tasks();
    world.check(leftovers::nothing(
        server.watches(),
        alive.saturating_sub(tasks),
        world.processes(),
    ));
    let mut report = std::mem::take(&mut *lock(&world.report));
    report.violations.extend(
        panics::seen()
            .into_iter()
            .map(|text| format!("seed {}: {text}", plan.seed)),
    );
    report.virtual_ms = world.now();
    report.least_margin_ms = world.least_margin();
    report.processes = world.processes();
    report.connects = server.counters().requests(Op::Connect);
    let log = server.log();
    let mut hasher = DefaultHasher::new();
    log.iter()
        .for_each(|entry| format!("{entry:?}").hash(&mut hasher));
    report.log = (log.last().map_or(0, |entry| entry.n), hasher.finish());
    report.messages = net.messages.load(Ordering::Relaxed);
    report.random_numbers = interpose::randoms();
    report
}

/// Closes the clients: no node and no session is left.
async fn leave_nothing(
    world: &World,
    server: &Server,
    machines: &[Arc<Machine>],
    patience: Duration,
) {
    let plan = &world.plan;
    for machine in machines {
        let flushed = timeout(patience, machine.client.flush(patience)).await.ok();
        world.check(ends::confirmed(machine.number, "flushed", flushed));
    }
    // The nodes of dead machines are deleted with their sessions.
    sleep(plan.session_timeout * 3 + Duration::from_secs(10)).await;
    for place in 0..plan.paths() {
        world.check(leftovers::no_node(
            &path(place),
            &worlds::left(plan, server, place),
        ));
    }
    worlds::check_end(world, server);
    for (index, machine) in machines.iter().enumerate() {
        if index % 2 == 0 {
            let closed = timeout(patience, machine.client.close()).await.ok();
            world.check(ends::closed(machine.number, "closed", closed, plan.far));
        } else {
            let drained = timeout(patience, machine.client.drain(patience)).await.ok();
            world.check(ends::closed(machine.number, "drained", drained, plan.far));
        }
    }
    sleep(plan.session_timeout * 3).await;
    world.check(leftovers::no_session(&server.sessions()));
}

/// Runs a plan in a world of its own.
pub fn play(plan: Plan, trace: bool) -> Report {
    let seed = plan.seed;
    glue::install();
    let before = move || {
        fastrand::seed(seed);
        panics::watch();
    };
    let outcome = simnet::run(seed, before, move |rng| live(plan, trace, rng));
    let (mut report, bytes) = outcome.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text
            .or_else(|| panic.downcast_ref::<&str>().copied())
            .unwrap_or("a panic");
        (
            Report {
                violations: vec![format!("seed {seed}: {text}")],
                ..Report::default()
            },
            0,
        )
    });
    let memory = leftovers::no_memory(bytes, report.processes);
    report
        .violations
        .extend(memory.err().map(|text| format!("seed {seed}: {text}")));
    report
}
