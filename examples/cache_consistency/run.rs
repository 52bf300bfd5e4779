//! The run as a whole: the servers, the table and the cache, the workers, and the report.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use zookeeper_recipes::Client;

use crate::common::countdown::Countdown;
use crate::common::log::Log;
use crate::common::program::unless_interrupted;
use crate::common::workers::{FromWorker, Workers};
use crate::common::{Error, Servers, monotonic};
use crate::fault::FaultInjector;
use crate::history::History;
use crate::options::{Config, Options, Role};
use crate::protocol::{Assignment, Ending, Message, Tally};
use crate::report::{Findings, Report};
use crate::store::{self, Cache, Table};

/// How often the fault injector and the log look at the clock.
const TICK: Duration = Duration::from_millis(20);

/// Runs the workers, from the first one's start to the last one's end; returns `None` if that was
/// interrupted.
pub(crate) async fn run(options: &Options) -> Result<Option<Report>, Error> {
    let config = options.config();
    let servers = Servers::find(options.connect.as_deref())?;
    // The client connects before the workers start, to learn whether servers answer, and which
    // timeout they grant.
    let client = Client::builder()
        .session_timeout(config.session_timeout)
        .connect(&servers.connect_string)
        .await?;
    let session_timeout = client.session_timeout().unwrap_or(config.session_timeout);
    let directory = tempfile::Builder::new().prefix("cache-").tempdir()?;
    store::create(directory.path())?;
    // A path of this run's own, so that two runs on the same servers do not wait for each other.
    let run = directory
        .path()
        .file_name()
        .unwrap_or_default()
        .to_string_lossy();
    let assignments = (0..config.workers()).map(|worker| Assignment {
        role: config.role_of(worker),
        writes: config.writes_of(worker),
        stops: config.stops_of(worker, &options.faults()),
        config: config.clone(),
        servers: servers.connect_string.clone(),
        lock: format!("/caches/{run}"),
        directory: directory.path().to_owned(),
    });

    let mut workers = Workers::new();
    let mut monitor = Monitor::new(&config, options.verbose);
    let done = unless_interrupted(async {
        workers
            .start(assignments, |message| matches!(message, Message::Ready))
            .await?;
        monitor
            .watch(&mut workers, FaultInjector::new(session_timeout))
            .await
    })
    .await?;
    // All workers are stopped, also after an interrupt.
    workers.stop().await;
    let Some(done) = done else { return Ok(None) };
    done?;

    let Monitor {
        history,
        tallies,
        failures,
        ..
    } = monitor;
    let table_version = Table::open(directory.path())?.version()?;
    let cache_version = Cache::open(directory.path())?.get()?;
    let findings = Findings {
        tallies,
        history,
        failures,
        table_version,
        cache_version,
    };
    let report = Report::new(findings, config, options.faults(), servers.backend);
    client.close().await?;
    Ok(Some(report))
}

/// Records what the workers report.
struct Monitor {
    config: Config,
    verbose: bool,
    history: History,
    tallies: Vec<Tally>,
    failures: Vec<String>,
    log: Log,
}

impl Monitor {
    fn new(config: &Config, verbose: bool) -> Self {
        Self {
            config: config.clone(),
            verbose,
            history: History::start(),
            tallies: vec![Tally::default(); config.workers() as usize],
            failures: Vec::new(),
            log: Log::default(),
        }
    }

    /// Starts the workers' work, and records what they report until all have ended.
    async fn watch(
        &mut self,
        workers: &mut Workers<Message>,
        mut faults: FaultInjector,
    ) -> Result<(), Error> {
        let bar = progress_bar(self.config.writes);
        let mut ticks = tokio::time::interval(TICK);
        let mut countdown = None;
        // The first write may take long, and nothing would be drawn until then.
        bar.tick();
        self.history = History::start();
        workers.send_all("start").await;
        let mut working = vec![true; workers.len()];
        let writers = self.config.writers as usize;
        while working.contains(&true) {
            let (worker, event) = tokio::select! {
                event = workers.next() => match event {
                    Some(event) => event,
                    None => break,
                },
                _ = ticks.tick(), if faults.is_busy() || !self.log.is_empty() => {
                    faults.on_tick(&mut self.history)?;
                    self.log.print_due(&bar);
                    continue;
                }
            };
            let role = self.config.role_of(worker);
            let has_ended = match event {
                FromWorker::Message(Message::Entered { from, stops }) => {
                    self.history.entered(worker, from);
                    self.log(worker, from, "is inside");
                    if let Some(fault) = stops {
                        let pid = workers.pid(worker);
                        let notice = faults.on_stop(worker, from, fault, pid, &mut self.history)?;
                        countdown = notice
                            .map(|what| Countdown::start(&bar, what, faults.session_timeout()));
                        self.log(worker, monotonic(), "has stopped");
                    }
                    false
                }
                FromWorker::Message(Message::Left { at, ending, until }) => {
                    let section = self.history.left(worker, role, ending, until);
                    faults.on_section(&section, &mut self.history)?;
                    if let Ending::Written { version } = ending {
                        // The lock is free again.
                        countdown = None;
                        bar.inc(1);
                        bar.set_message(format!("version {version}"));
                    }
                    self.log(worker, at, &describe(ending));
                    false
                }
                FromWorker::Message(Message::Read(tally)) => {
                    self.tallies[worker as usize].add(tally);
                    false
                }
                FromWorker::Message(Message::Failed(error)) => {
                    self.failures
                        .push(format!("{}: {error}", self.config.name_of(worker)));
                    true
                }
                FromWorker::Message(Message::Ready) => false,
                FromWorker::Message(Message::Done) => true,
                FromWorker::Exited => {
                    if working[worker as usize] && !self.history.was_killed(worker) {
                        self.failures.push(format!(
                            "{}: it ended without a message",
                            self.config.name_of(worker)
                        ));
                    }
                    true
                }
            };
            if has_ended && std::mem::replace(&mut working[worker as usize], false) {
                self.log(worker, monotonic(), "leaves");
                if role == Role::Writer && !working[..writers].contains(&true) {
                    // No more writes follow, so the readers read once more and end.
                    workers.send_all("last").await;
                }
            }
        }
        self.history.finish();
        self.log.print_all(&bar);
        drop(countdown);
        bar.finish_and_clear();
        Ok(())
    }

    fn log(&mut self, worker: u32, at: u64, what: &str) {
        if self.verbose {
            let seconds = self.history.seconds(at);
            self.log.add(
                at,
                format!("{seconds:9.3} s  {}: {what}", self.config.name_of(worker)),
            );
        }
    }
}

fn describe(ending: Ending) -> String {
    match ending {
        Ending::Filled { version } => format!("put version {version} into the cache"),
        Ending::Written { version } => format!("wrote version {version}"),
        Ending::Refused => "was refused: the token is too old".to_owned(),
    }
}

/// Creates the progress bar, which is drawn only if stderr is a terminal.
fn progress_bar(writes: u32) -> ProgressBar {
    let bar = ProgressBar::new(writes.into());
    match ProgressStyle::with_template("{bar:20} {pos}/{len} writes  {wide_msg}") {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}
