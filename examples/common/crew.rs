//! The workers: this program again, each process with a session of its own.
//!
//! A worker is told what to do in one line, and says when it is ready; the next line, whatever it says, opens the doors. The end
//! of its stdin means that it is to stop.

use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::mpsc;

use super::{Error, worker};

/// How long a worker that is dismissed may take to leave.
const LEAVING: Duration = Duration::from_secs(10);

/// The workers, by number from 0. `M` is what they say.
#[derive(Debug)]
pub(crate) struct Crew<M> {
    workers: Vec<Worker>,
    /// What they say, in the order in which it arrives.
    heard: mpsc::UnboundedReceiver<(u32, Heard<M>)>,
    mouth: mpsc::UnboundedSender<(u32, Heard<M>)>,
}

#[derive(Debug)]
struct Worker {
    process: Child,
    /// Closing it is the sign to stop.
    orders: Option<ChildStdin>,
}

#[derive(Debug)]
pub(crate) enum Heard<M> {
    Said(M),
    /// It said its last word, or it was killed.
    Silence,
}

impl<M: DeserializeOwned + Send + 'static> Crew<M> {
    pub(crate) fn new() -> Self {
        let (mouth, heard) = mpsc::unbounded_channel();
        Self { workers: Vec::new(), heard, mouth }
    }

    /// Starts a worker for each shift, and waits until all are ready.
    pub(crate) async fn hire(
        &mut self,
        shifts: impl IntoIterator<Item = impl Serialize>,
        is_ready: impl Fn(&M) -> bool,
    ) -> Result<(), Error> {
        let program = std::env::current_exe()?;
        for (worker, shift) in (0..).zip(shifts) {
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
            write_line(&mut orders, &serde_json::to_string(&shift)?).await?;
            self.workers.push(Worker { process, orders: Some(orders) });
            tokio::spawn(listen(worker, stdout, self.mouth.clone()));
        }
        for _ in 0..self.workers.len() {
            match self.hear().await {
                Some((_, Heard::Said(message))) if is_ready(&message) => {}
                Some((worker, _)) => return Err(format!("worker {worker} did not begin").into()),
                None => return Err("the workers are gone".into()),
            }
        }
        Ok(())
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.workers.len()
    }

    /// The next word of any of them. Dropping the future loses nothing.
    pub(crate) async fn hear(&mut self) -> Option<(u32, Heard<M>)> {
        self.heard.recv().await
    }

    /// Says something to one of them.
    pub(crate) async fn tell(&mut self, worker: u32, word: &str) {
        if let Some(orders) = self.workers.get_mut(worker as usize).and_then(|worker| worker.orders.as_mut())
        {
            // One that died since is heard of.
            let _ = write_line(orders, word).await;
        }
    }

    /// Says something to all.
    pub(crate) async fn tell_all(&mut self, word: &str) {
        for worker in (0..).take(self.len()) {
            self.tell(worker, word).await;
        }
    }

    /// Nothing after its end was noticed.
    pub(crate) fn pid(&self, worker: u32) -> Option<Pid> {
        self.workers.get(worker as usize).and_then(Worker::pid)
    }

    /// Asks all workers to leave, and waits until they have.
    pub(crate) async fn dismiss(&mut self) {
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

impl Worker {
    fn pid(&self) -> Option<Pid> {
        self.process.id().and_then(|id| Pid::from_raw(id.try_into().ok()?))
    }
}

async fn listen<M: DeserializeOwned>(
    worker: u32,
    stdout: ChildStdout,
    heard: mpsc::UnboundedSender<(u32, Heard<M>)>,
) {
    let mut lines = BufReader::new(stdout).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        // A worker that was killed may have left half a line.
        let Ok(message) = serde_json::from_str(&line) else { break };
        if heard.send((worker, Heard::Said(message))).is_err() {
            return;
        }
    }
    // Nobody listens any more when the program was interrupted.
    let _ = heard.send((worker, Heard::Silence));
}

async fn write_line(orders: &mut ChildStdin, line: &str) -> std::io::Result<()> {
    orders.write_all(line.as_bytes()).await?;
    orders.write_all(b"\n").await?;
    orders.flush().await
}
