//! A crew: worker processes that each have a number of things to do, without any communication in
//! between.
//!
//! The run starts them all at the same moment, counts what is done, and kills the worker that has
//! stopped itself for that.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use rustix::process::{Signal, getpid, kill_process};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::signal::unix::{SignalKind, signal};

use super::countdown::Countdown;
use super::program::unless_interrupted;
use super::worker::{Commands, send};
use super::workers::{FromWorker, Workers};
use super::{Error, chain, monotonic, round};

/// The work of a worker process.
pub(crate) trait Worker: Sized {
    type Assignment: DeserializeOwned;
    /// The counts that it reports at the end.
    type Tally: Serialize;

    /// Gets everything ready, before any worker of the crew starts.
    async fn prepare(assignment: Self::Assignment) -> Result<Self, Error>;

    /// Does the work. All workers get the same `start`, which is [`monotonic`] and almost now.
    async fn work(&self, start: u64) -> Result<Self::Tally, Error>;

    /// Closes its sessions.
    async fn close(self) -> Result<(), Error>;
}

/// A message of a worker.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Message<T> {
    /// The worker waits for the command to start.
    Ready,
    /// The worker has done one step.
    Step,
    /// The worker stops itself, and is to be killed.
    Stopped,
    /// The worker ends because of this error.
    Failed(String),
    /// The worker has done all of its work.
    Done(T),
}

/// Tells the run that one more thing is done.
pub(crate) fn step() -> Result<(), Error> {
    send(&Message::<()>::Step)
}

/// Stops this process, all its threads, to be killed where it is.
pub(crate) fn stop_to_be_killed() -> Result<(), Error> {
    send(&Message::<()>::Stopped)?;
    Ok(kill_process(getpid(), Signal::STOP)?)
}

/// Runs a worker, from its assignment to the end of its sessions.
pub(crate) fn run_worker<W: Worker>() -> Result<(), Error> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?
        .block_on(async {
            // Ctrl-C goes to all processes of a terminal. The run stops its workers itself, so that
            // they can close their sessions.
            let _interrupts = signal(SignalKind::interrupt())?;
            let mut commands = Commands::listen()?;
            let Some(assignment) = commands.assignment::<W::Assignment>().await? else {
                return Ok(());
            };
            let worker = W::prepare(assignment).await?;
            send(&Message::<()>::Ready)?;
            if let Some(start) = commands.next().await {
                let start = start.parse()?;
                tokio::select! {
                    tally = worker.work(start) => send(&match tally {
                        Ok(tally) => Message::Done(tally),
                        Err(error) => Message::Failed(chain(&*error)),
                    })?,
                    // Only the end of the commands concerns the worker now. Dropping the work
                    // leaves no lock behind.
                    () = async { while commands.next().await.is_some() {} } => {}
                }
            }
            worker.close().await
        })
}

/// The results of a crew.
#[derive(Debug)]
pub(crate) struct Outcome<T> {
    /// The counts of the workers that have done everything, in any order.
    pub(crate) tallies: Vec<T>,
    pub(crate) failures: Vec<String>,
    /// The worker that was killed, from 0.
    pub(crate) killed: Option<u32>,
    pub(crate) seconds: f64,
}

impl<T> Outcome<T> {
    /// Returns what could not be done as it was asked for, a line each.
    pub(crate) fn troubles(&self, kill_one: bool) -> Vec<String> {
        let not_killed = kill_one && self.killed.is_none();
        let not_killed =
            not_killed.then(|| "there was no worker to kill: none got so far".to_owned());
        self.failures
            .first()
            .cloned()
            .into_iter()
            .chain(not_killed)
            .collect()
    }
}

/// Runs a worker for each assignment, from the first one's start to the last one's end; returns
/// `None` if that was interrupted. `steps` and `what` are how many things are to be done in all,
/// and what they are; `session_timeout` is that of the workers.
pub(crate) async fn run<T: DeserializeOwned + Send + 'static>(
    assignments: impl IntoIterator<Item = impl Serialize>,
    steps: u32,
    what: &str,
    session_timeout: Duration,
) -> Result<Option<Outcome<T>>, Error> {
    let mut workers = Workers::<Message<T>>::new();
    let outcome = unless_interrupted(async {
        workers
            .start(assignments, |message| matches!(message, Message::Ready))
            .await?;
        watch(&mut workers, &progress_bar(steps, what), session_timeout).await
    })
    .await?;
    // All workers are stopped, also after an interrupt.
    workers.stop().await;
    outcome.transpose()
}

async fn watch<T: DeserializeOwned + Send + 'static>(
    workers: &mut Workers<Message<T>>,
    bar: &ProgressBar,
    session_timeout: Duration,
) -> Result<Outcome<T>, Error> {
    let mut outcome = Outcome {
        tallies: Vec::new(),
        failures: Vec::new(),
        killed: None,
        seconds: 0.0,
    };
    let mut countdown = None;
    // The first step may take long, and nothing would be drawn until then.
    bar.tick();
    let start = monotonic();
    workers.send_all(&start.to_string()).await;
    let mut working = vec![true; workers.len()];
    while working.contains(&true) {
        let Some((worker, event)) = workers.next().await else {
            break;
        };
        match event {
            FromWorker::Message(Message::Ready) => {}
            FromWorker::Message(Message::Step) => bar.inc(1),
            FromWorker::Message(Message::Stopped) => {
                if let Some(pid) = workers.pid(worker) {
                    kill_process(pid, Signal::KILL)?;
                    outcome.killed = Some(worker);
                    let what = format!("worker {} was killed", worker + 1);
                    countdown = Some(Countdown::start(bar, what, session_timeout));
                }
            }
            FromWorker::Message(Message::Failed(error)) => {
                working[worker as usize] = false;
                outcome
                    .failures
                    .push(format!("worker {} failed: {error}", worker + 1));
            }
            FromWorker::Message(Message::Done(tally)) => {
                working[worker as usize] = false;
                outcome.tallies.push(tally);
            }
            FromWorker::Exited => {
                let was_working = std::mem::replace(&mut working[worker as usize], false);
                if was_working && outcome.killed != Some(worker) {
                    outcome
                        .failures
                        .push(format!("worker {} ended without a message", worker + 1));
                }
            }
        }
    }
    outcome.seconds = round(monotonic().saturating_sub(start) as f64 / 1e9);
    drop(countdown);
    bar.finish_and_clear();
    Ok(outcome)
}

/// Creates the progress bar, which is drawn only if stderr is a terminal.
pub(crate) fn progress_bar(steps: u32, what: &str) -> ProgressBar {
    let bar = ProgressBar::new(steps.into());
    match ProgressStyle::with_template(&format!("{{bar:20}} {{pos}}/{{len}} {what}  {{wide_msg}}"))
    {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}
