//! The sale as a whole: the server, the database, the workers, and the books.

use std::collections::VecDeque;
use std::fs::File;
use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;
use zookeeper_recipes::Client;

use crate::common::crew::{Crew, Heard};
use crate::common::{Error, Servers, monotonic};
use crate::fault::Saboteur;
use crate::lock::ShelfLock;
use crate::options::{Options, Terms};
use crate::protocol::{Message, Outcome, Shift};
use crate::report::{Books, Report};
use crate::store::Store;
use crate::timeline;

/// How often the lock's queue is counted.
const SAMPLE_EVERY: Duration = Duration::from_millis(5);

/// For how long a line of the log is kept back, so that what another process has reported meanwhile comes in its place.
const REORDERING: Duration = Duration::from_millis(100);

/// How often it is looked whether it is time to do something to a worker that is stopped.
const FAULT_TICK: Duration = Duration::from_millis(20);

pub(crate) enum Ended {
    Sold(Box<Report>),
    Interrupted,
}

pub(crate) async fn hold(options: &Options) -> Result<Ended, Error> {
    let terms = options.terms();
    let servers = Servers::find(options.connect.as_deref())?;
    let client =
        Client::builder().session_timeout(terms.session_timeout).connect(&servers.connect_string).await?;
    let directory = tempfile::Builder::new().prefix("flash-sale-").tempdir()?;
    // A path of this sale's own, so that two sales on the same servers do not wait for each other.
    let sale = directory.path().file_name().unwrap_or_default().to_string_lossy();
    let lock_root = format!("/inventory/{sale}");
    let db = options.db.clone().unwrap_or_else(|| directory.path().join("shop.sqlite"));
    let shift = |worker| Shift {
        worker,
        terms: terms.clone(),
        servers: servers.connect_string.clone(),
        lock_root: lock_root.clone(),
        db: db.clone(),
    };
    let locks = terms.products().map(|sku| ShelfLock::new(terms.lock, &client, &shift(0).lock_path(&sku)));
    let locks = locks.collect::<Result<Vec<_>, _>>()?;

    let mut store = Store::create(&db)?;
    for (sku, lock) in terms.products().zip(&locks) {
        if let Some(lock) = lock {
            // Filling the shelf is a write like any other, however long it takes to be let in.
            let guard = lock.to_buy(Duration::MAX).await?;
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
    let mut books = Books::new(terms.clone(), servers.backend, options.verbose);
    let mut crew = Crew::new();
    let ended = tokio::select! {
        ended = async {
            crew.hire((0..terms.workers).map(shift), |message| matches!(message, Message::Ready)).await?;
            let saboteur = Saboteur::new(options.faults(), session_timeout);
            sell(&mut crew, &terms, &locks, &mut store, &mut books, saboteur).await
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
    Ok(Ended::Sold(Box::new(report)))
}

/// Opens the doors, and writes down what the workers report until all have ended or died.
async fn sell(
    crew: &mut Crew<Message>,
    terms: &Terms,
    locks: &[Option<ShelfLock>],
    store: &mut Store,
    books: &mut Books,
    mut saboteur: Saboteur,
) -> Result<(), Error> {
    let queue = QueueSampler::start(locks);
    let bar = progress_bar(terms.users);
    let mut ticks = tokio::time::interval(FAULT_TICK);
    let mut log = Log::default();
    // Until the first user leaves there is nothing else to show.
    bar.tick();
    books.open();
    crew.tell_all("open").await;
    let mut at_work = vec![true; crew.len()];
    while at_work.contains(&true) {
        let (worker, heard) = tokio::select! {
            heard = crew.hear() => match heard {
                Some(heard) => heard,
                None => break,
            },
            _ = ticks.tick(), if saboteur.is_busy() || !log.0.is_empty() => {
                log.print(&bar, monotonic().saturating_sub(REORDERING.as_nanos() as u64));
                if let Some(news) = saboteur.tick(books.diary_mut())? {
                    bar.set_message(news);
                }
                continue;
            }
        };
        match heard {
            Heard::Said(Message::Turn(event)) => {
                // It comes first: the worker goes on thinking meanwhile.
                let pid = crew.pid(worker);
                books.write(worker, &event);
                if let Some(news) = saboteur.hear(&event, pid, locks, store, books.diary_mut())? {
                    bar.set_message(news);
                }
                if let Some(line) = books.log_line(&event) {
                    log.add(event.at, line);
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
    log.print(&bar, u64::MAX);
    bar.finish_and_clear();
    Ok(())
}

/// What is said about the turns, in the order in which it happened. Each worker reports in order, but the pipes of two
/// workers are read in any.
#[derive(Default)]
struct Log(VecDeque<(u64, String)>);

impl Log {
    fn add(&mut self, at: u64, line: String) {
        let place = self.0.partition_point(|(other, _)| *other <= at);
        self.0.insert(place, (at, line));
    }

    /// Prints what had happened by then.
    fn print(&mut self, bar: &ProgressBar, until: u64) {
        let due = self.0.partition_point(|(at, _)| *at <= until);
        for (_, line) in self.0.drain(..due) {
            bar.suspend(|| eprintln!("{line}"));
        }
    }
}

/// Counts the nodes under each lock, now and then, until it is dropped.
struct QueueSampler {
    peak: Arc<AtomicUsize>,
    _task: JoinSet<()>,
}

impl QueueSampler {
    fn start(locks: &[Option<ShelfLock>]) -> Self {
        let peak = Arc::new(AtomicUsize::new(0));
        let mut task = JoinSet::new();
        let locks: Vec<_> = locks.iter().flatten().cloned().collect();
        task.spawn(sample(locks, Arc::clone(&peak)));
        Self { peak, _task: task }
    }

    fn peak(&self) -> usize {
        self.peak.load(Ordering::Relaxed)
    }
}

async fn sample(locks: Vec<ShelfLock>, peak: Arc<AtomicUsize>) {
    let mut ticks = tokio::time::interval(SAMPLE_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for lock in locks.iter().cycle() {
        ticks.tick().await;
        if let Ok(nodes) = lock.participants().await {
            peak.fetch_max(nodes.len(), Ordering::Relaxed);
        }
    }
}

/// Draws to the terminal, if stderr is one.
fn progress_bar(users: u32) -> ProgressBar {
    let bar = ProgressBar::new(users.into());
    match ProgressStyle::with_template("{bar:20} {pos}/{len} users  {wide_msg}") {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}
