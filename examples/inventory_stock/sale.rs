//! The sale as a whole: the server, the database, the workers, and the books.

use std::fs::File;
use std::io::Write as _;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;
use zookeeper_recipes::{Client, InterProcessMutex};
use zookeeper_test_server::Server;

use crate::Error;
use crate::fault::Saboteur;
use crate::options::{Lock, Options, Terms};
use crate::protocol::{Message, Outcome, Shift};
use crate::report::{Backend, Books, Report};
use crate::store::Store;
use crate::{timeline, worker};

/// The grain of the in-process server's sessions, a tenth of ZooKeeper's.
const TICK: Duration = Duration::from_millis(200);
/// The longest session that a server of our own grants.
const MAX_SESSION: Duration = Duration::from_secs(600);

/// How often the lock's queue is counted.
const SAMPLE_EVERY: Duration = Duration::from_millis(5);

/// How often it is looked whether it is time to do something to a worker that is stopped.
const FAULT_TICK: Duration = Duration::from_millis(20);

/// How long a worker that is dismissed may take to leave.
const LEAVING: Duration = Duration::from_secs(10);

pub(crate) enum Ended {
    Sold(Box<Report>),
    Interrupted,
}

pub(crate) async fn hold(options: &Options) -> Result<Ended, Error> {
    let terms = options.terms();
    let (server, servers, backend) = match options.servers() {
        Some(servers) => (None, servers, Backend::ZooKeeper),
        None => {
            let server = Server::builder().tick(TICK).max_session_timeout(MAX_SESSION).start()?;
            let servers = server.connect_string();
            (Some(server), servers, Backend::InProcess)
        }
    };
    let client = Client::builder().session_timeout(terms.session_timeout).connect(&servers).await?;
    let directory = tempfile::Builder::new().prefix("flash-sale-").tempdir()?;
    // A path of this sale's own, so that two sales on the same servers do not wait for each other.
    let sale = directory.path().file_name().unwrap_or_default().to_string_lossy();
    let lock_root = format!("/inventory/{sale}");
    let db = options.db.clone().unwrap_or_else(|| directory.path().join("shop.sqlite"));
    let shift = |worker| Shift {
        worker,
        terms: terms.clone(),
        servers: servers.clone(),
        lock_root: lock_root.clone(),
        db: db.clone(),
    };
    let mutexes = terms.products().map(|sku| InterProcessMutex::new(&client, &shift(0).lock_path(&sku)));
    let mutexes = mutexes.collect::<Result<Vec<_>, _>>()?;

    let store = Store::create(&db)?;
    for (sku, mutex) in terms.products().zip(&mutexes) {
        if terms.lock == Lock::Mutex {
            // Filling the shelf is a write like any other.
            let guard = mutex.lock().await?;
            store.fill(&sku, terms.stock, Some(guard.fencing_token()))?;
            guard.release().await?;
        } else {
            store.fill(&sku, terms.stock, None)?;
        }
    }
    // It is better to know now that it cannot be written.
    let mut timeline = match &options.timeline {
        Some(file) => Some(File::create(file).map_err(|error| format!("{}: {error}", file.display()))?),
        None => None,
    };
    // The servers may have granted another than was asked for.
    let session_timeout = client.session_timeout().unwrap_or(terms.session_timeout);

    // Before there are workers to dismiss.
    let mut interrupts = signal(SignalKind::interrupt())?;
    let mut terminations = signal(SignalKind::terminate())?;
    let mut books = Books::new(terms.clone(), backend, options.verbose);
    let mut crew = Crew::default();
    let ended = tokio::select! {
        ended = async {
            crew.hire(shift, terms.workers).await?;
            crew.sell(&terms, &mutexes, &mut books, Saboteur::new(options.faults(), session_timeout)).await
        } => Some(ended),
        _ = interrupts.recv() => None,
        _ = terminations.recv() => None,
    };
    crew.dismiss().await;
    let Some(ended) = ended else { return Ok(Ended::Interrupted) };
    ended?;

    // All workers are gone: nobody writes any more.
    let shelves = terms.products().map(|sku| store.take_stock(sku)).collect::<Result<Vec<_>, _>>()?;
    if let Some(file) = &mut timeline {
        file.write_all(timeline::draw(books.diary(), &terms).as_bytes())?;
    }
    let report = books.close(&shelves, &options.faults());
    client.close().await?;
    drop(server);
    Ok(Ended::Sold(Box::new(report)))
}

/// The workers, by number.
#[derive(Default)]
struct Crew {
    workers: Vec<Worker>,
    /// What they say, in the order in which it arrives.
    heard: Option<mpsc::UnboundedReceiver<(u32, Heard)>>,
}

struct Worker {
    process: Child,
    /// Closing it is the sign to stop.
    orders: Option<ChildStdin>,
}

impl Worker {
    /// Nothing after its end was noticed.
    fn pid(&self) -> Option<Pid> {
        self.process.id().and_then(|id| Pid::from_raw(id.try_into().ok()?))
    }
}

enum Heard {
    Said(Message),
    /// It said its last word, or it was killed.
    Silence,
}

impl Crew {
    /// Starts the workers and waits until all are ready.
    async fn hire(&mut self, shift: impl Fn(u32) -> Shift, workers: u32) -> Result<(), Error> {
        let (sender, mut heard) = mpsc::unbounded_channel();
        let program = std::env::current_exe()?;
        for worker in 0..workers {
            let mut process = Command::new(&program)
                .arg(worker::ARGUMENT)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .kill_on_drop(true)
                .spawn()
                .map_err(|error| format!("worker {worker} could not be started: {error}"))?;
            let (Some(mut orders), Some(stdout)) = (process.stdin.take(), process.stdout.take()) else {
                return Err(format!("worker {worker} came without pipes").into());
            };
            write_line(&mut orders, &serde_json::to_string(&shift(worker))?).await?;
            self.workers.push(Worker { process, orders: Some(orders) });
            tokio::spawn(listen(worker, stdout, sender.clone()));
        }
        for _ in 0..workers {
            match heard.recv().await {
                Some((_, Heard::Said(Message::Ready))) => {}
                Some((worker, _)) => return Err(format!("worker {worker} did not begin").into()),
                None => return Err("the workers are gone".into()),
            }
        }
        self.heard = Some(heard);
        Ok(())
    }

    /// Opens the doors, and writes down what the workers report until all have ended or died.
    async fn sell(
        &mut self,
        terms: &Terms,
        mutexes: &[InterProcessMutex],
        books: &mut Books,
        mut saboteur: Saboteur,
    ) -> Result<(), Error> {
        let mut heard = self.heard.take().ok_or("there are no workers")?;
        let queue = QueueSampler::start(terms.lock, mutexes);
        let bar = progress_bar(terms.users);
        let mut ticks = tokio::time::interval(FAULT_TICK);
        books.open();
        for worker in &mut self.workers {
            if let Some(orders) = &mut worker.orders {
                // One that died since is noticed below.
                let _ = write_line(orders, "open").await;
            }
        }
        let mut at_work = vec![true; self.workers.len()];
        while at_work.contains(&true) {
            let (worker, heard) = tokio::select! {
                heard = heard.recv() => match heard {
                    Some(heard) => heard,
                    None => break,
                },
                _ = ticks.tick(), if saboteur.is_busy() => {
                    saboteur.tick(books.diary_mut())?;
                    continue;
                }
            };
            match heard {
                Heard::Said(Message::Turn(event)) => {
                    // It comes first: the worker goes on thinking meanwhile.
                    let pid = self.workers[worker as usize].pid();
                    books.write(worker, &event);
                    saboteur.hear(&event, pid, books.diary_mut())?;
                    if let Some(line) = books.log_line(&event) {
                        bar.suspend(|| eprintln!("{line}"));
                    }
                }
                Heard::Said(Message::Left(visits)) => {
                    bar.inc(visits.len() as u64);
                    for visit in visits {
                        if visit.outcome == Outcome::Sold {
                            bar.set_message(format!("user {} bought", visit.user));
                        }
                        books.enter(visit);
                    }
                }
                Heard::Said(Message::Done) => at_work[worker as usize] = false,
                Heard::Said(Message::Ready) => {}
                Heard::Silence => {
                    if std::mem::replace(&mut at_work[worker as usize], false) {
                        books.died(worker);
                    }
                }
            }
        }
        books.shut(queue.peak());
        bar.finish_and_clear();
        Ok(())
    }

    /// Asks all workers to leave, and waits until they have.
    async fn dismiss(&mut self) {
        for worker in &mut self.workers {
            worker.orders = None;
            if let Some(pid) = worker.pid() {
                // It may be stopped. If it has just died, there is nobody to wake up.
                let _ = kill_process(pid, Signal::CONT);
            }
        }
        let deadline = tokio::time::Instant::now() + LEAVING;
        for worker in &mut self.workers {
            if tokio::time::timeout_at(deadline, worker.process.wait()).await.is_err() {
                // It does not listen; there is nobody to tell if it cannot be killed either.
                let _ = worker.process.kill().await;
            }
        }
    }
}

async fn listen(worker: u32, stdout: ChildStdout, heard: mpsc::UnboundedSender<(u32, Heard)>) {
    let mut lines = BufReader::new(stdout).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        // A worker that was killed may have left half a line.
        let Ok(message) = serde_json::from_str(&line) else { break };
        if heard.send((worker, Heard::Said(message))).is_err() {
            return;
        }
    }
    // Nobody listens any more when the sale was interrupted.
    let _ = heard.send((worker, Heard::Silence));
}

async fn write_line(orders: &mut ChildStdin, line: &str) -> std::io::Result<()> {
    orders.write_all(line.as_bytes()).await?;
    orders.write_all(b"\n").await?;
    orders.flush().await
}

/// Counts the nodes under each lock, now and then, until it is dropped.
struct QueueSampler {
    peak: Arc<AtomicUsize>,
    _task: JoinSet<()>,
}

impl QueueSampler {
    fn start(lock: Lock, mutexes: &[InterProcessMutex]) -> Self {
        let peak = Arc::new(AtomicUsize::new(0));
        let mut task = JoinSet::new();
        if lock == Lock::Mutex {
            task.spawn(sample(mutexes.to_vec(), Arc::clone(&peak)));
        }
        Self { peak, _task: task }
    }

    fn peak(&self) -> usize {
        self.peak.load(Ordering::Relaxed)
    }
}

async fn sample(mutexes: Vec<InterProcessMutex>, peak: Arc<AtomicUsize>) {
    let mut ticks = tokio::time::interval(SAMPLE_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for mutex in mutexes.iter().cycle() {
        ticks.tick().await;
        if let Ok(nodes) = mutex.participants().await {
            peak.fetch_max(nodes.len(), Ordering::Relaxed);
        }
    }
}

/// Draws to the terminal, if stderr is one.
fn progress_bar(users: u32) -> ProgressBar {
    let bar = ProgressBar::new(users.into());
    match ProgressStyle::with_template("{bar:40} {pos}/{len} users  {msg}") {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}
