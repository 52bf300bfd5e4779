//! The sale as a whole: the servers, the database, the workers, and the report.

use std::fs::File;
use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;
use zookeeper_recipes::Client;

use crate::common::countdown::Countdown;
use crate::common::log::Log;
use crate::common::program::unless_interrupted;
use crate::common::workers::{FromWorker, Workers};
use crate::common::{Error, Servers};
use crate::fault::FaultInjector;
use crate::lock::ProductLock;
use crate::options::{Config, Options};
use crate::protocol::{Assignment, Message, Outcome};
use crate::report::{Ledger, Report};
use crate::store::Store;
use crate::timeline;

/// How often the nodes in a lock's queue are counted.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(5);

/// How often the fault injector and the log look at the clock.
const TICK: Duration = Duration::from_millis(20);

/// Holds the sale, from the first worker's start to the last one's end; returns `None` if it was
/// interrupted.
pub(crate) async fn hold(options: &Options) -> Result<Option<Report>, Error> {
    let config = options.config();
    let servers = Servers::find(options.connect.as_deref())?;
    let client = Client::builder()
        .session_timeout(config.session_timeout)
        .connect(&servers.connect_string)
        .await?;
    let directory = tempfile::Builder::new().prefix("flash-sale-").tempdir()?;
    // A directory of this sale's own, so that two sales on the same servers do not wait for each
    // other.
    let sale = directory
        .path()
        .file_name()
        .unwrap_or_default()
        .to_string_lossy();
    let lock_root = format!("/inventory/{sale}");
    let db = options
        .db
        .clone()
        .unwrap_or_else(|| directory.path().join("shop.sqlite"));
    let assignment = |worker| Assignment {
        worker,
        config: config.clone(),
        servers: servers.connect_string.clone(),
        lock_root: lock_root.clone(),
        db: db.clone(),
    };
    let new_lock =
        |sku: String| ProductLock::new(config.lock, &client, &assignment(0).lock_path(&sku));
    let locks = config
        .products()
        .map(new_lock)
        .collect::<Result<Vec<_>, _>>()?;

    let mut store = Store::create(&db)?;
    for (sku, lock) in config.products().zip(&locks) {
        if let Some(lock) = lock {
            // Filling the stock is a write like any other, and may wait for as long as it takes.
            let guard = lock.acquire(Duration::MAX).await?;
            store.fill(&sku, config.stock, Some(guard.fencing_token()))?;
            guard.release().await?;
        } else {
            store.fill(&sku, config.stock, None)?;
        }
    }
    // The file is opened before the sale, so that a file that cannot be written does not waste one.
    let mut timeline = match &options.timeline {
        Some(file) => {
            Some(File::create(file).map_err(|error| format!("{}: {error}", file.display()))?)
        }
        None => None,
    };
    // The servers may have granted another timeout than the one that was asked for.
    let session_timeout = client.session_timeout().unwrap_or(config.session_timeout);

    let mut ledger = Ledger::new(config.clone(), servers.backend, options.verbose);
    let mut workers = Workers::new();
    let sold = unless_interrupted(async {
        workers
            .start((0..config.workers).map(assignment), |message| {
                matches!(message, Message::Ready)
            })
            .await?;
        let faults = FaultInjector::new(options.faults(), session_timeout);
        sell(
            &mut workers,
            &config,
            &locks,
            &mut store,
            &mut ledger,
            faults,
        )
        .await
    })
    .await?;
    // All workers are stopped, also after an interrupt.
    workers.stop().await;
    let Some(sold) = sold else { return Ok(None) };
    sold?;

    // All workers have ended, so the database does not change any more.
    let counts = config
        .products()
        .map(|sku| store.count(sku))
        .collect::<Result<Vec<_>, _>>()?;
    if let Some(file) = &mut timeline {
        file.write_all(timeline::draw(ledger.history(), &config).as_bytes())?;
    }
    let report = ledger.close(&counts, &options.faults());
    client.close().await?;
    Ok(Some(report))
}

/// Starts the sale, and records what the workers report until all have ended.
async fn sell(
    workers: &mut Workers<Message>,
    config: &Config,
    locks: &[Option<ProductLock>],
    store: &mut Store,
    ledger: &mut Ledger,
    mut faults: FaultInjector,
) -> Result<(), Error> {
    let queue = QueueSampler::start(locks);
    let bar = progress_bar(config.users);
    let (mut log, mut countdown) = (Log::default(), None);
    let mut ticks = tokio::time::interval(TICK);
    // The first user may take long to leave, and nothing would be drawn until then.
    bar.tick();
    ledger.start();
    workers.send_all("start").await;
    let mut working = vec![true; workers.len()];
    while working.contains(&true) {
        let (worker, event) = tokio::select! {
            event = workers.next() => match event {
                Some(event) => event,
                None => break,
            },
            _ = ticks.tick(), if faults.is_busy() || !log.is_empty() => {
                if let Some(notice) = faults.on_tick(ledger.history_mut())? {
                    countdown = Some(Countdown::start(&bar, notice, faults.session_timeout()));
                }
                log.print_due(&bar);
                continue;
            }
        };
        match event {
            FromWorker::Message(Message::Section(event)) => {
                let pid = workers.pid(worker);
                ledger.record_event(worker, &event);
                // The notice is taken before the log is written, because the worker continues in
                // that time.
                if let Some(notice) =
                    faults.on_event(&event, pid, locks, store, ledger.history_mut())?
                {
                    countdown = Some(Countdown::start(&bar, notice, faults.session_timeout()));
                }
                if let Some(line) = ledger.log_line(&event) {
                    log.add(event.at, line);
                }
            }
            FromWorker::Message(Message::Left(visits)) => {
                bar.inc(visits.len() as u64);
                for visit in visits {
                    if visit.outcome == Outcome::Sold {
                        // The lock is free again.
                        countdown = None;
                        bar.set_message(format!("user {} bought", visit.user));
                    }
                    ledger.record_visit(visit);
                }
            }
            FromWorker::Message(Message::Done) => working[worker as usize] = false,
            FromWorker::Message(Message::Ready) => {}
            FromWorker::Exited => {
                if std::mem::replace(&mut working[worker as usize], false) {
                    ledger.record_death(worker);
                }
            }
        }
    }
    ledger.finish(queue.peak());
    log.print_all(&bar);
    drop(countdown);
    bar.finish_and_clear();
    Ok(())
}

/// Counts the nodes in each lock's queue now and then, until it is dropped.
struct QueueSampler {
    peak: Arc<AtomicUsize>,
    _task: JoinSet<()>,
}

impl QueueSampler {
    fn start(locks: &[Option<ProductLock>]) -> Self {
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

async fn sample(locks: Vec<ProductLock>, peak: Arc<AtomicUsize>) {
    let mut ticks = tokio::time::interval(SAMPLE_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for lock in locks.iter().cycle() {
        ticks.tick().await;
        if let Ok(nodes) = lock.participants().await {
            peak.fetch_max(nodes.len(), Ordering::Relaxed);
        }
    }
}

/// Creates the progress bar, which is drawn only if stderr is a terminal.
fn progress_bar(users: u32) -> ProgressBar {
    let bar = ProgressBar::new(users.into());
    match ProgressStyle::with_template("{bar:20} {pos}/{len} users  {wide_msg}") {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}
