//! The run as a whole: the server, the table and the cache, the workers, and what they say.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use tokio::signal::unix::{SignalKind, signal};
use zookeeper_recipes::Client;

use crate::common::crew::{Crew, Heard};
use crate::common::{Error, Servers, monotonic};
use crate::diary::Diary;
use crate::fault::Saboteur;
use crate::options::{Options, Terms, Who};
use crate::protocol::{How, Message, Shift, Tally};
use crate::report::{Findings, Report};
use crate::store::{self, Cache, Table};

/// How often it is looked whether it is time to do something to a worker that is stopped.
const FAULT_TICK: Duration = Duration::from_millis(20);

pub(crate) enum Ended {
    Done(Box<Report>),
    Interrupted,
}

pub(crate) async fn run(options: &Options) -> Result<Ended, Error> {
    let terms = options.terms();
    let servers = Servers::find(options.connect.as_deref())?;
    // It is better to know now that there are none, and what session they grant.
    let client =
        Client::builder().session_timeout(terms.session_timeout).connect(&servers.connect_string).await?;
    let session_timeout = client.session_timeout().unwrap_or(terms.session_timeout);
    let directory = tempfile::Builder::new().prefix("cache-").tempdir()?;
    store::create(directory.path())?;
    // A path of this run's own, so that two runs on the same servers do not wait for each other.
    let run = directory.path().file_name().unwrap_or_default().to_string_lossy();
    let shifts = (0..terms.workers()).map(|worker| Shift {
        role: terms.role_of(worker),
        stops: terms.stops_of(worker, &options.faults()),
        terms: terms.clone(),
        servers: servers.connect_string.clone(),
        lock: format!("/caches/{run}"),
        directory: directory.path().to_owned(),
    });

    // Before there are workers to dismiss.
    let mut interrupts = signal(SignalKind::interrupt())?;
    let mut terminations = signal(SignalKind::terminate())?;
    let mut crew = Crew::new();
    let mut watch = Watch::new(&terms, options.verbose);
    let ended = tokio::select! {
        ended = async {
            crew.hire(shifts, |message| matches!(message, Message::Ready)).await?;
            watch.watch(&mut crew, Saboteur::new(session_timeout)).await
        } => Some(ended),
        _ = interrupts.recv() => None,
        _ = terminations.recv() => None,
    };
    crew.dismiss().await;
    let Some(ended) = ended else { return Ok(Ended::Interrupted) };
    ended?;

    let Watch { diary, tallies, failures, .. } = watch;
    let table_version = Table::open(directory.path())?.version()?;
    let cache_version = Cache::open(directory.path())?.get()?;
    let findings = Findings { tallies, diary, failures, table_version, cache_version };
    let report = Report::new(findings, terms, options.faults(), servers.backend);
    client.close().await?;
    Ok(Ended::Done(Box::new(report)))
}

/// What is seen of the workers.
struct Watch {
    terms: Terms,
    verbose: bool,
    diary: Diary,
    tallies: Vec<Tally>,
    failures: Vec<String>,
}

impl Watch {
    fn new(terms: &Terms, verbose: bool) -> Self {
        let tallies = vec![Tally::default(); terms.workers() as usize];
        Self { terms: terms.clone(), verbose, diary: Diary::open(), tallies, failures: Vec::new() }
    }

    /// Opens the doors, and writes down what the workers report until all have ended or died.
    async fn watch(&mut self, crew: &mut Crew<Message>, mut saboteur: Saboteur) -> Result<(), Error> {
        let bar = progress_bar(self.terms.writes);
        let mut ticks = tokio::time::interval(FAULT_TICK);
        self.diary = Diary::open();
        crew.tell_all("open").await;
        let mut at_work = vec![true; crew.len()];
        let writers = self.terms.writers as usize;
        while at_work.contains(&true) {
            let (worker, heard) = tokio::select! {
                heard = crew.hear() => match heard {
                    Some(heard) => heard,
                    None => break,
                },
                _ = ticks.tick(), if saboteur.is_busy() => {
                    saboteur.tick(&mut self.diary)?;
                    continue;
                }
            };
            let who = self.terms.who(worker);
            let left = match heard {
                Heard::Said(Message::Inside { from, stops }) => {
                    self.diary.inside(worker, from);
                    self.log(&bar, worker, from, "is inside");
                    if let Some(fault) = stops {
                        saboteur.stops(worker, from, fault, crew.pid(worker), &mut self.diary)?;
                        self.log(&bar, worker, monotonic(), "has stopped");
                    }
                    false
                }
                Heard::Said(Message::Outside { at, how, until }) => {
                    let turn = self.diary.outside(worker, who, how, until);
                    saboteur.outside(&turn, &mut self.diary)?;
                    if let How::Written { version } = how {
                        bar.inc(1);
                        bar.set_message(format!("version {version}"));
                    }
                    self.log(&bar, worker, at, &outcome(how));
                    false
                }
                Heard::Said(Message::Read(tally)) => {
                    self.tallies[worker as usize].add(tally);
                    false
                }
                Heard::Said(Message::Failed(error)) => {
                    self.failures.push(format!("{}: {error}", self.terms.name_of(worker)));
                    true
                }
                Heard::Said(Message::Ready) => false,
                Heard::Said(Message::Done) => true,
                Heard::Silence => {
                    if at_work[worker as usize] && !self.diary.was_killed(worker) {
                        self.failures
                            .push(format!("{}: it ended without a word", self.terms.name_of(worker)));
                    }
                    true
                }
            };
            if left && std::mem::replace(&mut at_work[worker as usize], false) {
                self.log(&bar, worker, monotonic(), "leaves");
                if who == Who::Writer && !at_work[..writers].contains(&true) {
                    // Nobody writes any more: they may look once more, and go.
                    crew.tell_all("last").await;
                }
            }
        }
        self.diary.close();
        bar.finish_and_clear();
        Ok(())
    }

    fn log(&self, bar: &ProgressBar, worker: u32, at: u64, what: &str) {
        if self.verbose {
            let line = format!("{:9.3} s  {}: {what}", self.diary.seconds(at), self.terms.name_of(worker));
            bar.suspend(|| eprintln!("{line}"));
        }
    }
}

fn outcome(how: How) -> String {
    match how {
        How::Filled { version } => format!("put version {version} into the cache"),
        How::Written { version } => format!("wrote version {version}"),
        How::Refused => "was refused: the token is too old".to_owned(),
    }
}

/// Draws to the terminal, if stderr is one.
fn progress_bar(writes: u32) -> ProgressBar {
    let bar = ProgressBar::new(writes.into());
    match ProgressStyle::with_template("{bar:40} {pos}/{len} writes  {msg}") {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}
