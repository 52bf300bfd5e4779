//! A process of another language whose locks a test controls step by step.

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

/// Runs a trial that controls the locks of a peer step by step, on its own path and with its own
/// client, and that leaves nothing behind.
pub(crate) fn step_by_step(
    start: impl FnOnce(&ZooKeeper) -> Result<ScriptedPeer, Failure>,
    steps: impl AsyncFnOnce(&ZooKeeper, &mut ScriptedPeer, &str, &Client) -> Outcome,
) -> Outcome {
    let servers = shared_standalone()?;
    let (mut peer, path) = (start(&servers)?, unique_path("interop"));
    block_on(async {
        let client = connect(&servers).await?;
        steps(&servers, &mut peer, &path, &client).await?;
        Ok(client.close().await?)
    })?;
    nothing_is_left(&servers, &path)
}

/// The process, and the answers that the test has not read yet.
#[derive(Debug)]
pub(crate) struct ScriptedPeer {
    child: Child,
    orders: Option<ChildStdin>,
    lines: Receiver<String>,
    said: HashMap<String, Vec<String>>,
    _needs: Box<dyn Any + Send>,
}

impl ScriptedPeer {
    /// Starts the process. `needs`, such as the directory of the program, is kept for as long as
    /// the process runs.
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

    /// Sends an order to a thread of the process, without waiting for the answer.
    pub(crate) fn send(&mut self, thread: &str, order: &str) -> Outcome {
        let orders = self
            .orders
            .as_mut()
            .ok_or("the stdin of the peer is closed")?;
        writeln!(orders, "{thread} {order}")?;
        Ok(orders.flush()?)
    }

    /// Waits for the next answer of a thread.
    pub(crate) fn receive(&mut self, thread: &str) -> Result<String, Failure> {
        let deadline = Instant::now() + SOON;
        loop {
            if let Some(said) = self.said.get_mut(thread).filter(|said| !said.is_empty()) {
                return Ok(said.remove(0));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let line = self
                .lines
                .recv_timeout(left)
                .map_err(|e| format!("expected an answer of {thread}, but none came: {e}"))?;
            self.keep(&line);
        }
    }

    /// Returns whether a thread has answered, and the answer has not been read yet.
    pub(crate) fn has_answered(&mut self, thread: &str) -> bool {
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

    /// Sends an order to a thread, and waits until it answers like this.
    pub(crate) fn call(&mut self, thread: &str, order: &str, answer: &str) -> Outcome {
        self.send(thread, order)?;
        self.expect_answer(thread, answer)
    }

    /// Waits for the next answer of a thread, which must be this one.
    pub(crate) fn expect_answer(&mut self, thread: &str, answer: &str) -> Outcome {
        let said = self.receive(thread)?;
        if said == answer {
            return Ok(());
        }
        Err(format!("expected `{answer}` of {thread}, which answered `{said}`").into())
    }

    /// Returns the session of the process, as the servers print it.
    pub(crate) fn session(&mut self) -> Result<String, Failure> {
        self.send("session", "session")?;
        self.receive("session")
    }
}

impl Drop for ScriptedPeer {
    fn drop(&mut self) {
        // A process that has ended cannot be killed, which is not an error here.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
