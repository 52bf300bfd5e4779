//! A worker's side: it hears orders on stdin and reports on stdout, one JSON value per line.

use std::io::{BufRead, Write};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;
use zookeeper_recipes::Client;

use super::Error;

/// The argument that makes a process a worker.
pub(crate) const ARGUMENT: &str = "worker";

/// How long a worker takes to leave.
const LEAVING: Duration = Duration::from_secs(5);

/// Whether this process is to be a worker.
pub(crate) fn is_one() -> bool {
    std::env::args_os().nth(1).is_some_and(|first| first == ARGUMENT)
}

/// What a worker is told. The end of it means that it is to stop.
#[derive(Debug)]
pub(crate) struct Orders(mpsc::UnboundedReceiver<String>);

impl Orders {
    /// Listens to stdin, on a thread of its own: a read cannot be cancelled, and the process ends without it.
    pub(crate) fn listen() -> Result<Self, Error> {
        wake_up_when_orphaned()?;
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

    /// What the worker is to do, which is said first.
    pub(crate) async fn shift<S: DeserializeOwned>(&mut self) -> Result<Option<S>, Error> {
        Ok(self.0.recv().await.map(|line| serde_json::from_str(&line)).transpose()?)
    }

    /// Waits for another word; nothing when the worker is to stop.
    pub(crate) async fn next(&mut self) -> Option<String> {
        self.0.recv().await
    }
}

/// Whoever started this process and dies while it is stopped could not wake it up any more: this wakes it up then, to
/// find that there is nobody to work for.
fn wake_up_when_orphaned() -> Result<(), Error> {
    #[cfg(target_os = "linux")]
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::CONT))?;
    Ok(())
}

/// Reports something.
pub(crate) fn say(message: &impl Serialize) -> Result<(), Error> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(&line)?;
    Ok(stdout.flush()?)
}

/// Ends the session.
pub(crate) async fn leave(client: Client) -> Result<(), Error> {
    // Where the servers are gone, this would wait for as long as they would keep the session.
    match tokio::time::timeout(LEAVING, client.close()).await {
        Ok(closed) => Ok(closed?),
        Err(_) => Err("the session could not be closed in time".into()),
    }
}
