//! The worker's side: commands come in on stdin, messages go out on stdout, one JSON value a line.

use std::io::{BufRead, Write};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;
use zookeeper_recipes::Client;

use super::Error;

/// The argument that makes a process a worker.
pub(crate) const ARGUMENT: &str = "worker";

/// How long a worker may take to close its session.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// Returns whether this process was started as a worker.
pub(crate) fn is_worker() -> bool {
    std::env::args_os()
        .nth(1)
        .is_some_and(|first| first == ARGUMENT)
}

/// The commands from the parent process. Their end means that the worker is to stop.
#[derive(Debug)]
pub(crate) struct Commands(mpsc::UnboundedReceiver<String>);

impl Commands {
    /// Reads stdin on a thread of its own: a read cannot be cancelled, and the process can end
    /// without it.
    pub(crate) fn listen() -> Result<Self, Error> {
        resume_when_orphaned()?;
        let (sender, lines) = mpsc::unbounded_channel();
        std::thread::spawn(move || {
            for line in std::io::stdin().lock().lines() {
                let Ok(line) = line else { break };
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Ok(Self(lines))
    }

    /// Waits for the assignment, the first command; returns `None` if the worker is to stop.
    pub(crate) async fn assignment<A: DeserializeOwned>(&mut self) -> Result<Option<A>, Error> {
        Ok(self
            .0
            .recv()
            .await
            .map(|line| serde_json::from_str(&line))
            .transpose()?)
    }

    /// Waits for the next command; returns `None` if the worker is to stop.
    pub(crate) async fn next(&mut self) -> Option<String> {
        self.0.recv().await
    }
}

/// Makes the kernel send SIGCONT when the parent dies. A worker that the parent has stopped would
/// otherwise stay stopped; resumed, it finds its stdin closed and ends.
fn resume_when_orphaned() -> Result<(), Error> {
    #[cfg(target_os = "linux")]
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::CONT))?;
    Ok(())
}

/// Sends a message to the parent process.
pub(crate) fn send(message: &impl Serialize) -> Result<(), Error> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(&line)?;
    Ok(stdout.flush()?)
}

/// Closes the session, so that others need not wait for its expiry.
pub(crate) async fn close(client: Client) -> Result<(), Error> {
    // Without servers, closing would take as long as the session would have lived.
    match tokio::time::timeout(CLOSE_TIMEOUT, client.close()).await {
        Ok(closed) => Ok(closed?),
        Err(_) => Err("the session could not be closed in time".into()),
    }
}
