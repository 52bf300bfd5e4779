//! The sale as a whole: the server, the database, the workers, and the books.

use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;
use zookeeper_recipes::{Client, InterProcessMutex};
use zookeeper_test_server::Server;

use crate::Error;
use crate::options::{Lock, Options, Terms};
use crate::protocol::{Message, Outcome, Shift};
use crate::report::{Backend, Books, Report};
use crate::store::Store;
use crate::worker;

const SKU: &str = "sku-42";

/// How often the lock's queue is counted.
const SAMPLE_EVERY: Duration = Duration::from_millis(5);

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
            let server = Server::start()?;
            let servers = server.connect_string();
            (Some(server), servers, Backend::InProcess)
        }
    };
    let client = Client::builder().session_timeout(worker::SESSION_TIMEOUT).connect(&servers).await?;
    let directory = tempfile::Builder::new().prefix("flash-sale-").tempdir()?;
    // A path of this sale's own, so that two sales on the same servers do not wait for each other.
    let sale = directory.path().file_name().unwrap_or_default().to_string_lossy();
    let lock_path = format!("/inventory/{sale}/{SKU}");
    let mutex = InterProcessMutex::new(&client, &lock_path)?;

    let db = options.db.clone().unwrap_or_else(|| directory.path().join("shop.sqlite"));
    let store = Store::create(&db)?;
    if terms.lock == Lock::Mutex {
        // Filling the shelf is a write like any other.
        let guard = mutex.lock().await?;
        store.fill(SKU, terms.stock, Some(guard.fencing_token()))?;
        guard.release().await?;
    } else {
        store.fill(SKU, terms.stock, None)?;
    }

    // Before there are workers to dismiss.
    let mut interrupts = signal(SignalKind::interrupt())?;
    let mut terminations = signal(SignalKind::terminate())?;
    let mut books = Books::new(terms.clone(), backend);
    let mut crew = Crew::default();
    let ended = tokio::select! {
        ended = async {
            crew.hire(|worker| Shift {
                worker,
                terms: terms.clone(),
                servers: servers.clone(),
                lock_path: lock_path.clone(),
                db: db.clone(),
                sku: SKU.to_owned(),
            }, terms.workers).await?;
            crew.sell(&terms, &mutex, &mut books).await
        } => Some(ended),
        _ = interrupts.recv() => None,
        _ = terminations.recv() => None,
    };
    crew.dismiss().await;
    let Some(ended) = ended else { return Ok(Ended::Interrupted) };
    ended?;

    // All workers are gone: nobody writes any more.
    let report = books.close(&store.take_stock(SKU)?);
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
        mutex: &InterProcessMutex,
        books: &mut Books,
    ) -> Result<(), Error> {
        let mut heard = self.heard.take().ok_or("there are no workers")?;
        let queue = QueueSampler::start(terms.lock, mutex);
        let bar = progress_bar(terms.users);
        let opened = Instant::now();
        for worker in &mut self.workers {
            if let Some(orders) = &mut worker.orders {
                // One that died since is noticed below.
                let _ = write_line(orders, "open").await;
            }
        }
        let mut at_work = vec![true; self.workers.len()];
        while at_work.contains(&true) {
            let Some((worker, heard)) = heard.recv().await else { break };
            match heard {
                Heard::Said(Message::Left(visits)) => {
                    bar.inc(visits.len() as u64);
                    for visit in visits {
                        if visit.outcome == Outcome::Sold {
                            bar.set_message(format!("user {} bought", visit.user));
                        }
                        books.enter(worker, visit);
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
        books.took(opened.elapsed(), queue.peak());
        bar.finish_and_clear();
        Ok(())
    }

    /// Asks all workers to leave, and waits until they have.
    async fn dismiss(&mut self) {
        for worker in &mut self.workers {
            worker.orders = None;
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

/// Counts the nodes under the lock, now and then, until it is dropped.
struct QueueSampler {
    peak: Arc<AtomicUsize>,
    _task: JoinSet<()>,
}

impl QueueSampler {
    fn start(lock: Lock, mutex: &InterProcessMutex) -> Self {
        let peak = Arc::new(AtomicUsize::new(0));
        let mut task = JoinSet::new();
        if lock == Lock::Mutex {
            task.spawn(sample(mutex.clone(), Arc::clone(&peak)));
        }
        Self { peak, _task: task }
    }

    fn peak(&self) -> usize {
        self.peak.load(Ordering::Relaxed)
    }
}

async fn sample(mutex: InterProcessMutex, peak: Arc<AtomicUsize>) {
    let mut ticks = tokio::time::interval(SAMPLE_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
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
