//! The parent's side: the worker processes, which are this program again, each with a separate
//! session.
//!
//! A worker gets its assignment as its first command, and reports when it is ready. The next
//! command, whatever it says, starts its work. The end of its stdin stops it.

use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::mpsc;

use super::{Error, worker};

/// How long the workers may take to end, all together.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// The worker processes, numbered from 0. `M` is the type of their messages.
#[derive(Debug)]
pub(crate) struct Workers<M> {
    workers: Vec<Worker>,
    /// The events of all workers, in the order of their arrival.
    events: mpsc::UnboundedReceiver<(u32, FromWorker<M>)>,
    sender: mpsc::UnboundedSender<(u32, FromWorker<M>)>,
}

#[derive(Debug)]
struct Worker {
    process: Child,
    /// Dropping it stops the worker.
    stdin: Option<ChildStdin>,
}

/// An event of a worker.
#[derive(Debug)]
pub(crate) enum FromWorker<M> {
    Message(M),
    /// The worker has ended, or was killed: no message follows.
    Exited,
}

impl<M: DeserializeOwned + Send + 'static> Workers<M> {
    pub(crate) fn new() -> Self {
        let (sender, events) = mpsc::unbounded_channel();
        Self {
            workers: Vec::new(),
            events,
            sender,
        }
    }

    /// Starts a worker for each assignment, and waits until all are ready.
    pub(crate) async fn start(
        &mut self,
        assignments: impl IntoIterator<Item = impl Serialize>,
        is_ready: impl Fn(&M) -> bool,
    ) -> Result<(), Error> {
        let program = std::env::current_exe()?;
        for (worker, assignment) in (0..).zip(assignments) {
            let mut process = Command::new(&program)
                .arg(worker::ARGUMENT)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .kill_on_drop(true)
                .spawn()
                .map_err(|error| format!("worker {worker} could not be started: {error}"))?;
            let (Some(mut stdin), Some(stdout)) = (process.stdin.take(), process.stdout.take())
            else {
                return Err(format!("worker {worker} has no pipes").into());
            };
            write_line(&mut stdin, &serde_json::to_string(&assignment)?).await?;
            self.workers.push(Worker {
                process,
                stdin: Some(stdin),
            });
            tokio::spawn(forward(worker, stdout, self.sender.clone()));
        }
        for _ in 0..self.workers.len() {
            match self.next().await {
                Some((_, FromWorker::Message(message))) if is_ready(&message) => {}
                Some((worker, _)) => return Err(format!("worker {worker} did not start").into()),
                None => return Err("the workers are gone".into()),
            }
        }
        Ok(())
    }

    /// Returns the number of workers.
    pub(crate) fn len(&self) -> usize {
        self.workers.len()
    }

    /// Waits for the next event of any worker. Cancel safe: no event is lost.
    pub(crate) async fn next(&mut self) -> Option<(u32, FromWorker<M>)> {
        self.events.recv().await
    }

    /// Sends a command to a worker.
    pub(crate) async fn send(&mut self, worker: u32, command: &str) {
        if let Some(stdin) = self
            .workers
            .get_mut(worker as usize)
            .and_then(|worker| worker.stdin.as_mut())
        {
            // The death of a worker is reported by an event, so the error is ignored here.
            let _ = write_line(stdin, command).await;
        }
    }

    /// Sends a command to all workers.
    pub(crate) async fn send_all(&mut self, command: &str) {
        for worker in (0..).take(self.len()) {
            self.send(worker, command).await;
        }
    }

    /// Returns a worker's process id; `None` once its end has been noticed.
    pub(crate) fn pid(&self, worker: u32) -> Option<Pid> {
        self.workers.get(worker as usize).and_then(Worker::pid)
    }

    /// Stops all workers, and waits until they have ended.
    pub(crate) async fn stop(&mut self) {
        for worker in &mut self.workers {
            worker.stdin = None;
            if let Some(pid) = worker.pid() {
                // The worker may be suspended by SIGSTOP. A worker that has just died needs no
                // resume.
                let _ = kill_process(pid, Signal::CONT);
            }
        }
        let deadline = tokio::time::Instant::now() + STOP_TIMEOUT;
        for worker in &mut self.workers {
            if tokio::time::timeout_at(deadline, worker.process.wait())
                .await
                .is_err()
            {
                // The worker does not react. The run is over, so a failure to kill it changes
                // nothing.
                let _ = worker.process.kill().await;
            }
        }
    }
}

impl Worker {
    fn pid(&self) -> Option<Pid> {
        self.process
            .id()
            .and_then(|id| Pid::from_raw(id.try_into().ok()?))
    }
}

async fn forward<M: DeserializeOwned>(
    worker: u32,
    stdout: ChildStdout,
    events: mpsc::UnboundedSender<(u32, FromWorker<M>)>,
) {
    let mut lines = BufReader::new(stdout).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        // A worker that was killed may have left half a line.
        let Ok(message) = serde_json::from_str(&line) else {
            break;
        };
        if events.send((worker, FromWorker::Message(message))).is_err() {
            return;
        }
    }
    // The receiver is gone if the run was interrupted.
    let _ = events.send((worker, FromWorker::Exited));
}

async fn write_line(stdin: &mut ChildStdin, line: &str) -> std::io::Result<()> {
    stdin.write_all(line.as_bytes()).await?;
    stdin.write_all(b"\n").await?;
    stdin.flush().await
}
