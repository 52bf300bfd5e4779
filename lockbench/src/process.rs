//! A worker process, seen from the orchestrator.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use serde::Serialize;

use crate::Error;
use crate::job::{Answer, Done, Job, Order};

/// How much longer than its round a worker may take: to connect, to make 10,000 directories, to
/// queue.
const PATIENCE: Duration = Duration::from_secs(300);
/// The time in which a worker that quits must close its sessions.
const QUIT_LIMIT: Duration = Duration::from_secs(10);

/// A worker that waits for orders. Dropping it has it quit.
#[derive(Debug)]
pub(crate) struct Worker {
    name: String,
    child: Child,
    orders: Option<ChildStdin>,
    answers: Receiver<String>,
    warm: bool,
}

impl Worker {
    /// Starts the worker of a contender.
    pub(crate) fn start(name: &str, mut command: Command) -> Result<Self, Error> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command
            .spawn()
            .map_err(|error| format!("{name}: {command:?}: {error}"))?;
        let orders = child.stdin.take();
        let out = child.stdout.take().ok_or("no stdout")?;
        let (sender, answers) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Ok(Self {
            name: name.to_owned(),
            child,
            orders,
            answers,
            warm: false,
        })
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns whether it has run for long enough to be measured, where that takes long.
    pub(crate) fn is_warm(&self) -> bool {
        self.warm
    }

    pub(crate) fn set_warm(&mut self) {
        self.warm = true;
    }

    /// Makes the worker begin a round.
    pub(crate) fn begin(&mut self, job: &Job) -> Result<(), Error> {
        self.tell(&Order::Run(job.clone()))
            .map_err(|error| format!("{} does not listen: {error}", self.name).into())
    }

    /// Waits for what came of the round that was begun.
    pub(crate) fn end(&mut self, job: &Job) -> Result<Done, Error> {
        let patience = Duration::from_micros(job.micros) + PATIENCE;
        let late = || {
            format!(
                "{} did not answer within {} s",
                self.name,
                patience.as_secs()
            )
        };
        let line = self.answer(patience).ok_or_else(late)?;
        match serde_json::from_str(&line) {
            Ok(Answer::Done(done)) => Ok(done),
            Ok(Answer::Failed { error }) => Err(format!("{}: {error}", self.name).into()),
            Err(error) => Err(format!("{} answered {line:?}: {error}", self.name).into()),
        }
    }

    /// Returns its next answer; `None` if there is none in time.
    pub(crate) fn answer(&self, patience: Duration) -> Option<String> {
        self.answers.recv_timeout(patience).ok()
    }

    /// Ends it without a word.
    pub(crate) fn kill(&mut self) {
        // A process that has ended cannot be killed, which is not an error here.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Gives it an order.
    pub(crate) fn tell(&mut self, order: &impl Serialize) -> Result<(), Error> {
        let orders = self.orders.as_mut().ok_or("its input is closed")?;
        writeln!(orders, "{}", serde_json::to_string(order)?)?;
        Ok(orders.flush()?)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // A process that has ended cannot read the order, which is not an error here.
        let _ = self.tell(&Order::Quit(true));
        self.orders = None;
        // The output of a worker ends with the worker; a worker that takes too long is killed.
        while self.answer(QUIT_LIMIT).is_some() {}
        self.kill();
    }
}
