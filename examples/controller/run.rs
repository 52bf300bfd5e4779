//! The run: who leads when, who is killed, who is stopped and woken.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use rustix::process::{Signal, kill_process};
use serde::Serialize;

use crate::common::countdown::Countdown;
use crate::common::program::unless_interrupted;
use crate::common::workers::{FromWorker, Workers};
use crate::common::{Error, monotonic, round};
use crate::worker::Message;

/// The results of a run.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// How often a process began to lead while another did, or believed that it led when it was
    /// woken.
    pub(crate) overlaps: u32,
    /// Writes that the store has refused.
    pub(crate) fenced: u32,
    pub(crate) killed: bool,
    pub(crate) woken: bool,
    /// Processes that have led to the end of their work.
    pub(crate) done: u32,
    pub(crate) failures: Vec<String>,
    pub(crate) seconds: f64,
}

/// The time in which a worker leads; until `u64::MAX` while that continues.
#[derive(Debug)]
struct Lead {
    worker: u32,
    from: u64,
    to: u64,
}

/// Runs the workers, from the first one's start to the last one's end; returns `None` if that was
/// interrupted.
pub(crate) async fn run(
    assignments: impl IntoIterator<Item = impl Serialize>,
    session_timeout: Duration,
) -> Result<Option<Outcome>, Error> {
    let mut workers = Workers::<Message>::new();
    let outcome = unless_interrupted(async {
        workers
            .start(assignments, |message| matches!(message, Message::Ready))
            .await?;
        watch(&mut workers, session_timeout).await
    })
    .await?;
    // All workers are stopped, also after an interrupt.
    workers.stop().await;
    outcome.transpose()
}

/// Prints events above the line that says what the run waits for.
struct Watched {
    bar: ProgressBar,
    start: u64,
}

impl Watched {
    fn say(&self, worker: u32, what: &str) {
        let seconds = monotonic().saturating_sub(self.start) as f64 / 1e9;
        self.bar
            .suspend(|| eprintln!("{seconds:8.3} s  process {} {what}", worker + 1));
    }
}

async fn watch(
    workers: &mut Workers<Message>,
    session_timeout: Duration,
) -> Result<Outcome, Error> {
    let (mut outcome, mut leads) = (Outcome::default(), Vec::<Lead>::new());
    let mut stopped = None;
    let start = monotonic();
    let style = ProgressStyle::with_template("{spinner} {wide_msg}")?;
    let watched = Watched {
        bar: ProgressBar::new_spinner().with_style(style),
        start,
    };
    let mut countdown = None;
    workers.send_all("start").await;
    let mut working = vec![true; workers.len()];
    while working.contains(&true) {
        let Some((worker, event)) = workers.next().await else {
            break;
        };
        let message = match event {
            FromWorker::Message(message) => message,
            FromWorker::Exited => {
                if std::mem::replace(&mut working[worker as usize], false) {
                    outcome
                        .failures
                        .push(format!("process {} ended without a message", worker + 1));
                }
                continue;
            }
        };
        match message {
            Message::Ready => {}
            Message::Leads { at } => {
                countdown = None;
                watched.say(worker, "leads");
                leads.push(Lead {
                    worker,
                    from: at,
                    to: u64::MAX,
                });
            }
            Message::Wrote => {
                // The next leader has written: now the write of the last one would be wrong.
                if let Some(pid) = stopped
                    .take_if(|stopped| *stopped != worker)
                    .and_then(|s| workers.pid(s))
                {
                    kill_process(pid, Signal::CONT)?;
                }
            }
            Message::Fenced => {
                watched.say(worker, "wrote for its former term, and was refused");
                outcome.fenced += 1;
            }
            Message::Stopped { at, to_be_killed } => {
                end(&mut leads, worker, at);
                let what = if to_be_killed {
                    "was killed"
                } else {
                    "is stopped before a write"
                };
                watched.say(worker, what);
                let waiting_for = format!("process {} {what}", worker + 1);
                countdown = Some(Countdown::start(&watched.bar, waiting_for, session_timeout));
                if !to_be_killed {
                    stopped = Some(worker);
                } else if let Some(pid) = workers.pid(worker) {
                    kill_process(pid, Signal::KILL)?;
                    outcome.killed = true;
                    working[worker as usize] = false;
                }
            }
            Message::Woken { leads } => {
                watched.say(worker, "is woken");
                outcome.woken = true;
                outcome.overlaps += u32::from(leads);
            }
            // The term of a worker that was stopped has already ended.
            Message::Ended { at } => end(&mut leads, worker, at),
            Message::Done => {
                working[worker as usize] = false;
                watched.say(worker, "is done");
                outcome.done += 1;
            }
            Message::Failed(error) => {
                working[worker as usize] = false;
                outcome
                    .failures
                    .push(format!("process {} failed: {error}", worker + 1));
            }
        }
    }
    drop(countdown);
    watched.bar.finish_and_clear();
    outcome.overlaps += overlaps(leads);
    outcome.seconds = round(monotonic().saturating_sub(start) as f64 / 1e9);
    Ok(outcome)
}

/// Ends the time in which a worker leads, unless it is over.
fn end(leads: &mut [Lead], worker: u32, at: u64) {
    if let Some(lead) = leads.iter_mut().rev().find(|lead| lead.worker == worker) {
        lead.to = lead.to.min(at);
    }
}

/// Counts the beginnings that are before the end of another that began earlier.
fn overlaps(mut leads: Vec<Lead>) -> u32 {
    leads.sort_by_key(|lead| lead.from);
    let (mut overlaps, mut until) = (0, 0);
    for lead in leads {
        overlaps += u32::from(lead.from < until);
        until = until.max(lead.to);
    }
    overlaps
}
