//! Workers of two languages contend for one lock while some of them are killed.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write as _;
use std::panic::resume_unwind;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::thread;
use std::time::Instant;

use tempfile::TempDir;
use test_support::{SOON, ZooKeeper, poll_until, unique_path};

use super::check::{Findings, check, unfinished};
use super::journal::{Journal, Tail, create, read_counter, records, until};
use super::outside::{contenders, has_nodes};
use super::worker::Task;
use super::{Failure, Outcome, WORK_LIMIT, block_on};

/// The session timeout of all workers. A killed holder keeps all others waiting for this time, so
/// it is short, but long enough for a busy machine.
const SESSION_MS: u64 = 1_500;

type Start = Box<dyn Fn(&Task) -> Result<Command, Failure> + Send + Sync>;

/// The workers of one language.
pub(crate) struct Side {
    pub(crate) name: &'static str,
    pub(crate) recipe: &'static str,
    /// A text for each process, with a letter for each of its threads.
    pub(crate) crews: &'static [&'static str],
    pub(crate) start: Start,
    /// The points at which its holders are stopped and killed, in turn.
    pub(crate) points: &'static [&'static str],
}

/// How long a run lasts, and how many workers are killed in it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Extent {
    /// The minimum number of grants of both sides together.
    pub(crate) grants: usize,
    /// The number of holders of each side that are killed, one after the other.
    pub(crate) holders: usize,
    /// The number of processes of each side that are killed at any point, together with a holder of
    /// the other side.
    pub(crate) bystanders: usize,
}

/// Further actions of a run, between the kills.
pub(crate) trait Plan {
    /// Runs before the first worker starts.
    fn begin(&mut self, _run: &mut Run<'_>) -> Outcome {
        Ok(())
    }

    /// Runs before every kill of a holder, and after the last.
    fn between(&mut self, _run: &mut Run<'_>, _kills: usize) -> Outcome {
        Ok(())
    }

    /// Runs before the workers are ended.
    fn end(&mut self, _run: &mut Run<'_>) -> Outcome {
        Ok(())
    }
}

/// A plan without actions.
impl Plan for () {}

/// The extent of each half of a pairing: 10 kills on either side.
const HALF: Extent = Extent {
    grants: 1_000,
    holders: 7,
    bystanders: 3,
};

#[derive(Debug)]
struct Worker {
    name: String,
    /// The number of its threads.
    threads: usize,
    child: Child,
    /// The process ends when this is closed.
    orders: Option<ChildStdin>,
}

/// A run in progress.
pub(crate) struct Run<'a> {
    servers: &'a ZooKeeper,
    sides: &'a [Side],
    task: Task,
    tail: Tail,
    /// The processes, by side and crew.
    workers: Vec<Vec<Worker>>,
    started: usize,
    deadline: Instant,
}

/// The findings and files of a run that has ended.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) findings: Findings,
    dir: TempDir,
}

/// Runs a pairing as two runs at once, each on a separate path, because the workers of one run
/// mostly wait for the session of a killed holder to expire.
pub(crate) fn in_halves(
    servers: &ZooKeeper,
    title: &str,
    sides: &[Side; 2],
    shows: fn(&Finished) -> Outcome,
) -> Outcome {
    let half = || {
        let finished = run(servers, title, sides, HALF)?;
        shows(&finished)?;
        finished.fulfils(sides, HALF)
    };
    thread::scope(|scope| {
        let halves = [scope.spawn(half), scope.spawn(half)];
        halves
            .map(|half| half.join().unwrap_or_else(|panic| resume_unwind(panic)))
            .into_iter()
            .collect()
    })
}

/// Runs both sides until the extent is reached, and checks their journal.
pub(crate) fn run(
    servers: &ZooKeeper,
    title: &str,
    sides: &[Side; 2],
    extent: Extent,
) -> Result<Finished, Failure> {
    run_and(servers, title, sides, extent, &mut ())
}

/// Runs both sides as [`run`] does, with the actions of a plan.
pub(crate) fn run_and(
    servers: &ZooKeeper,
    title: &str,
    sides: &[Side; 2],
    extent: Extent,
    plan: &mut dyn Plan,
) -> Result<Finished, Failure> {
    let start = Instant::now();
    let dir = tempfile::Builder::new().prefix("interop-").tempdir()?;
    let mut run = Run::prepare(servers, title, sides, dir.path())?;
    run.work(extent, plan)
        .and_then(|()| run.end())
        .map_err(|e| format!("{e}\n{}", run.said()))?;
    nothing_is_left(servers, &run.task.path)?;
    let findings = check(run.tail.read()?, read_counter(dir.path())?);
    println!(
        "{title}: grants {:?}, killed {:?}, holds cut short {:?}, shared {:?} (together {}), downgraded {}, \
         increments {} and {} of victims, lost {}, trouble {}, {:.0?}",
        findings.grants,
        findings.dead,
        findings.cut,
        findings.shared,
        findings.together,
        findings.downgraded,
        findings.committed,
        findings.adopted,
        findings.lost,
        findings.trouble.len(),
        start.elapsed(),
    );
    for trouble in findings.trouble.iter().take(5) {
        println!("  {trouble}");
    }
    drop(run);
    Ok(Finished { findings, dir })
}

impl Finished {
    /// Checks what each half of a pairing of read-write locks must show too: readers of both sides,
    /// some of them together, and guards that were downgraded. The number of kazoo's readers that
    /// are granted the lock between its writers is random, but the run waits for each of its three
    /// readers at the end.
    pub(crate) fn shares_and_downgrades(&self) -> Outcome {
        let Findings {
            shared,
            together,
            downgraded,
            ..
        } = &self.findings;
        if shared.len() == 2
            && shared.values().all(|n| *n >= 3)
            && *together > 25
            && *downgraded > 10
        {
            return Ok(());
        }
        Err(format!("shared {shared:?}, together {together}, downgraded {downgraded}").into())
    }

    /// Checks the promises of a run: its extent, the share of both sides, and no violation. The
    /// journal is kept if a promise is broken.
    pub(crate) fn fulfils(self, sides: &[Side; 2], extent: Extent) -> Outcome {
        fulfils(&self.findings, sides, extent).map_err(|e| {
            let dir = self.dir.keep();
            format!("{e}\nthe journal is kept in {}", dir.display()).into()
        })
    }
}

fn fulfils(findings: &Findings, sides: &[Side; 2], extent: Extent) -> Outcome {
    findings.verdict()?;
    for side in sides {
        let of =
            |counts: &BTreeMap<String, usize>| counts.get(side.name).copied().unwrap_or_default();
        let (grants, dead, cut) = (of(&findings.grants), of(&findings.dead), of(&findings.cut));
        if grants < extent.grants / 10 {
            return Err(format!("{} had {grants} grants only", side.name).into());
        }
        // The hold of a killed process that had lost its lock before is not counted as cut short.
        let cut_or_lost = cut + findings.lost;
        if dead != extent.holders + extent.bystanders
            || cut < extent.holders / 2
            || cut_or_lost < extent.holders
        {
            return Err(format!("{dead} of {} were killed, {cut} with the lock", side.name).into());
        }
    }
    let total = findings.total();
    if total < extent.grants {
        return Err(format!("{total} grants only").into());
    }
    // Lost holds prove nothing, so most holds must not be lost.
    if findings.lost > total / 20 {
        return Err(format!("{} holds of {total} were lost", findings.lost).into());
    }
    Ok(())
}

/// Waits until the lock's directory is empty: the servers expire the sessions of killed processes.
pub(crate) fn nothing_is_left(servers: &ZooKeeper, path: &str) -> Outcome {
    let gone = poll_until(
        "the lock's directory to be empty",
        SOON,
        || match block_on(contenders(servers, path)) {
            Ok(nodes) => nodes.is_empty().then_some(Ok(())),
            Err(e) => Some(Err(e)),
        },
    );
    match gone {
        Ok(done) => done,
        Err(e) => Err(format!("{e}: {:?}", block_on(contenders(servers, path))?).into()),
    }
}

impl<'a> Run<'a> {
    fn prepare(
        servers: &'a ZooKeeper,
        title: &str,
        sides: &'a [Side; 2],
        dir: &Path,
    ) -> Result<Self, Failure> {
        create(dir)?;
        let task = Task {
            servers: servers.connect_string(),
            session_ms: SESSION_MS,
            path: unique_path(&format!("interop/{title}")),
            dir: dir.to_owned(),
            name: String::new(),
            recipe: String::new(),
            crew: String::new(),
        };
        let tail = Tail::open(dir)?;
        let deadline = Instant::now() + WORK_LIMIT;
        Ok(Run {
            servers,
            sides,
            task,
            tail,
            workers: Vec::new(),
            started: 0,
            deadline,
        })
    }

    fn worker(&mut self, side: &Side, crew: &str) -> Result<Worker, Failure> {
        self.started += 1;
        let name = format!("{}-{}", side.name, self.started);
        let threads = crew.len();
        let (recipe, crew) = (side.recipe.to_owned(), crew.to_owned());
        let task = Task {
            name: name.clone(),
            recipe,
            crew,
            ..self.task.clone()
        };
        let said = File::create(self.task.dir.join(format!("{name}.said")))?;
        let mut child = (side.start)(&task)?
            .stdin(Stdio::piped())
            .stdout(said.try_clone()?)
            .stderr(said)
            .spawn()
            .map_err(|e| format!("{name}: {e}"))?;
        let orders = child.stdin.take();
        Ok(Worker {
            name,
            threads,
            child,
            orders,
        })
    }

    fn work(&mut self, extent: Extent, plan: &mut dyn Plan) -> Outcome {
        plan.begin(self)?;
        for side in self.sides {
            let crews: Result<_, Failure> = side
                .crews
                .iter()
                .map(|crew| self.worker(side, crew))
                .collect();
            self.workers.push(crews?);
        }
        for name in self.names().into_iter().flatten() {
            self.until_entered(&format!("{name}."))?;
        }
        let rounds = 2 * extent.holders;
        let mut bystanders = [extent.bystanders; 2];
        for round in 0..rounds {
            // The kills are spread over the run.
            let grants = extent.grants * (round + 1) / (rounds + 1);
            self.until_granted(grants)?;
            plan.between(self, round)?;
            let (side, turn) = (round % 2, round / 2);
            let other = 1 - side;
            let points = self.sides[side].points;
            let holder = turn % self.workers[side].len();
            self.stay(side, holder, points[turn % points.len()])?;
            // Bystanders are killed in the last rounds, so that processes that wait for long are
            // killed too.
            if turn >= extent.holders - bystanders[other] {
                bystanders[other] -= 1;
                let bystander = turn % self.workers[other].len();
                self.kill(other, bystander)?;
            }
            self.kill(side, holder)?;
        }
        plan.between(self, rounds)?;
        self.until_granted(extent.grants)?;
        // Every thread is granted the lock, also in the processes that were started last.
        for thread in self.threads() {
            self.until_entered(&format!("{thread} "))?;
        }
        plan.end(self)
    }

    fn until_entered(&mut self, worker: &str) -> Outcome {
        self.until(&format!("{worker} to have the lock"), |new| {
            records(new).any(|r| {
                r.strip_prefix("enter ")
                    .is_some_and(|r| r.starts_with(worker))
            })
        })
    }

    /// Returns the names of the processes that are alive, by side.
    pub(crate) fn names(&self) -> Vec<Vec<String>> {
        let names = |side: &Vec<Worker>| side.iter().map(|worker| worker.name.clone()).collect();
        self.workers.iter().map(names).collect()
    }

    /// Returns the names of all threads of these processes.
    fn threads(&self) -> Vec<String> {
        let of = |worker: &Worker| -> Vec<_> {
            (0..worker.threads)
                .map(|thread| format!("{}.{thread}", worker.name))
                .collect()
        };
        self.workers.iter().flatten().flat_map(of).collect()
    }

    /// Sends an order to a process.
    pub(crate) fn send(&mut self, side: usize, crew: usize, order: &str) -> Outcome {
        let orders = self.workers[side][crew]
            .orders
            .as_mut()
            .ok_or("the stdin of the process is closed")?;
        writeln!(orders, "{order}")?;
        Ok(orders.flush()?)
    }

    /// Returns the journal so far.
    pub(crate) fn journal(&mut self) -> Result<&str, Failure> {
        Ok(self.tail.read()?)
    }

    /// Appends a record to the journal.
    pub(crate) fn note(&self, record: &str) -> Outcome {
        Ok(Journal::open(&self.task.dir)?.append(record)?)
    }

    fn until_granted(&mut self, wanted: usize) -> Outcome {
        let mut grants = 0;
        self.until(&format!("{wanted} grants"), |new| {
            grants += records(new).filter(|r| r.starts_with("enter ")).count();
            grants >= wanted
        })
    }

    /// Waits for records in the [journal](until).
    pub(crate) fn until(&mut self, what: &str, there: impl FnMut(&str) -> bool) -> Outcome {
        let Self {
            tail,
            workers,
            deadline,
            ..
        } = self;
        until(tail, what, *deadline, || ended(workers), there)
    }

    /// Makes the next holder in a process stay at this point once it reaches it.
    fn stay(&mut self, side: usize, crew: usize, point: &str) -> Outcome {
        let mark = format!("stays {}.", self.workers[side][crew].name);
        self.send(side, crew, &format!("stay {point}"))?;
        self.until(&format!("{mark} at {point}"), |new| {
            records(new).any(|r| r.starts_with(&mark) && r.ends_with(point))
        })
    }

    /// Kills a process, and starts another in its place.
    fn kill(&mut self, side: usize, crew: usize) -> Outcome {
        let worker = &mut self.workers[side][crew];
        if let Some(status) = worker.child.try_wait()? {
            return Err(format!("{} ended by itself ({status})", worker.name).into());
        }
        worker.child.kill()?;
        worker.child.wait()?;
        let name = worker.name.clone();
        let mut ended = Vec::new();
        for (holder, session) in unfinished(self.journal()?, &name) {
            // A node that exists now existed for as long as the process lived.
            if !has_nodes(self.servers, &session)? {
                ended.push(format!("lost {holder}"));
            }
        }
        ended.push(format!("dead {name}"));
        for record in ended {
            self.note(&record)?;
        }
        let sides = self.sides;
        self.workers[side][crew] = self.worker(&sides[side], sides[side].crews[crew])?;
        Ok(())
    }

    /// Ends all processes, and waits until each has ended with success.
    fn end(&mut self) -> Outcome {
        for worker in self.workers.iter_mut().flatten() {
            worker.orders = None;
        }
        let deadline = Instant::now() + SOON;
        for worker in self.workers.iter_mut().flatten() {
            let (name, left) = (
                &worker.name,
                deadline.saturating_duration_since(Instant::now()),
            );
            let status = poll_until(&format!("{name} to end"), left, || {
                worker.child.try_wait().transpose()
            })??;
            if !ExitStatus::success(&status) {
                return Err(format!("{name} ended ({status})").into());
            }
        }
        Ok(())
    }

    /// Returns the output of the workers and the end of the journal, for the report of a failure.
    fn said(&mut self) -> String {
        let dir = self.task.dir.clone();
        let mut text = String::new();
        for worker in self.workers.iter_mut().flatten() {
            let said = std::fs::read_to_string(dir.join(format!("{}.said", worker.name)))
                .unwrap_or_default();
            if !said.is_empty() {
                text.push_str(&format!("--- {} ---\n{}\n", worker.name, end_of(&said)));
            }
        }
        let journal = self.tail.read().map(end_of).unwrap_or_default();
        format!("{text}--- the end of the journal ---\n{journal}")
    }
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        for worker in self.workers.iter_mut().flatten() {
            // A process that has ended cannot be killed, which is not an error here.
            let _ = worker.child.kill();
            let _ = worker.child.wait();
        }
    }
}

/// Returns a description of a worker that has ended too early, if one has.
fn ended(workers: &mut [Vec<Worker>]) -> Option<String> {
    workers.iter_mut().flatten().find_map(|worker| {
        let status = worker.child.try_wait().ok()??;
        Some(format!("{} ended ({status})", worker.name))
    })
}

fn end_of(text: &str) -> String {
    let lines: Vec<_> = text.lines().collect();
    lines[lines.len().saturating_sub(30)..].join("\n")
}
