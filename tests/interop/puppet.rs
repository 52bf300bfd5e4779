//! A process of another language whose locks a test moves step by step.

use std::any::Any;
use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::Instant;
use test_support::{SOON, ZooKeeper, shared_standalone, unique_path};
use zookeeper_recipes::Client;

use super::pairing::nothing_is_left;
use super::{Failure, Outcome, block_on, connect};

/// A trial that moves the locks of a puppet step by step, on a path and with a client that are its
/// own, and leaves nothing behind.
pub(crate) fn step_by_step(
    start: impl FnOnce(&ZooKeeper) -> Result<Puppet, Failure>,
    steps: impl AsyncFnOnce(&ZooKeeper, &mut Puppet, &str, &Client) -> Outcome,
) -> Outcome {
    let servers = shared_standalone()?;
    let (mut puppet, path) = (start(&servers)?, unique_path("interop"));
    block_on(async {
        let client = connect(&servers).await?;
        steps(&servers, &mut puppet, &path, &client).await?;
        Ok(client.close().await?)
    })?;
    nothing_is_left(&servers, &path)
}

/// The process, and what it has said that was not asked for yet.
#[derive(Debug)]
pub(crate) struct Puppet {
    child: Child,
    orders: Option<ChildStdin>,
    lines: Receiver<String>,
    said: HashMap<String, Vec<String>>,
    _needs: Box<dyn Any + Send>,
}

impl Puppet {
    /// `needs` is what the program must find for as long as it runs.
    pub(crate) fn start(mut command: Command, needs: impl Any + Send) -> Result<Self, Failure> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let orders = child.stdin.take();
        let stdout = child.stdout.take().ok_or("no stdout")?;
        let (hear, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if hear.send(line).is_err() {
                    return;
                }
            }
        });
        Ok(Self {
            child,
            orders,
            lines,
            said: HashMap::new(),
            _needs: Box::new(needs),
        })
    }

    /// Has a thread do something, and does not wait for it.
    pub(crate) fn tell(&mut self, thread: &str, order: &str) -> Outcome {
        let orders = self.orders.as_mut().ok_or("it is told nothing any more")?;
        writeln!(orders, "{thread} {order}")?;
        Ok(orders.flush()?)
    }

    /// What a thread says next.
    pub(crate) fn hear(&mut self, thread: &str) -> Result<String, Failure> {
        let deadline = Instant::now() + SOON;
        loop {
            if let Some(said) = self.said.get_mut(thread).filter(|said| !said.is_empty()) {
                return Ok(said.remove(0));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let line = self
                .lines
                .recv_timeout(left)
                .map_err(|e| format!("{thread} says nothing: {e}"))?;
            self.keep(&line);
        }
    }

    /// Whether a thread has said something that was not read yet.
    pub(crate) fn has_said(&mut self, thread: &str) -> bool {
        while let Ok(line) = self.lines.try_recv() {
            self.keep(&line);
        }
        self.said.get(thread).is_some_and(|said| !said.is_empty())
    }

    fn keep(&mut self, line: &str) {
        let (who, what) = line.split_once(' ').unwrap_or((line, ""));
        self.said
            .entry(who.to_owned())
            .or_default()
            .push(what.to_owned());
    }

    /// Has a thread do something that it must answer like this.
    pub(crate) fn ask(&mut self, thread: &str, order: &str, answer: &str) -> Outcome {
        self.tell(thread, order)?;
        self.answers(thread, answer)
    }

    /// Waits for an answer.
    pub(crate) fn answers(&mut self, thread: &str, answer: &str) -> Outcome {
        let said = self.hear(thread)?;
        if said == answer {
            return Ok(());
        }
        Err(format!("{thread} says `{said}` and not `{answer}`").into())
    }

    /// Its session, as the servers write it.
    pub(crate) fn session(&mut self) -> Result<String, Failure> {
        self.tell("session", "session")?;
        self.hear("session")
    }
}

impl Drop for Puppet {
    fn drop(&mut self) {
        // One that has ended is as dead as we want it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
