//! A contender's part of a round: its processes do their work, and are watched from outside.

use std::fs;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::Error;
use crate::job::{Done, Job};
use crate::process::Worker;
use crate::servers::{Ensemble, Servers};

/// How often lock nodes are counted.
const LOOK: Duration = Duration::from_millis(10);

/// The result of a turn.
#[derive(Debug)]
pub(crate) struct Turn {
    /// The measurements for the report.
    pub(crate) measured: Vec<Done>,
    /// The cycles of all processes, including those without measurements in the report.
    pub(crate) exclusive_cycles: u64,
    pub(crate) lost_updates: u64,
}

/// Makes all processes of a contender run the same job at once.
pub(crate) fn together(workers: &mut [Worker], job: &Job) -> Result<Turn, Error> {
    for worker in &mut *workers {
        worker.begin(job)?;
    }
    let measured: Vec<Done> = workers
        .iter_mut()
        .map(|worker| worker.end(job))
        .collect::<Result<_, _>>()?;
    Ok(Turn {
        exclusive_cycles: measured.iter().map(exclusive).sum(),
        lost_updates: measured.iter().map(|done| done.lost_updates).sum(),
        measured,
    })
}

fn exclusive(done: &Done) -> u64 {
    done.exclusive_cycles.unwrap_or(done.cycles)
}

/// A file of counters for the processes of a contender, which the lock alone protects.
#[derive(Debug)]
pub(crate) struct SharedCounters(tempfile::NamedTempFile);

impl SharedCounters {
    pub(crate) fn new(paths: usize) -> Result<Self, Error> {
        let file = tempfile::Builder::new()
            .prefix("lockbench-")
            .tempfile_in("/dev/shm")?;
        file.as_file().set_len(8 * paths as u64)?;
        Ok(Self(file))
    }

    pub(crate) fn path(&self) -> String {
        self.0.path().display().to_string()
    }

    pub(crate) fn sum(&self) -> Result<u64, Error> {
        let bytes = fs::read(self.0.path())?;
        let counters = bytes
            .chunks_exact(8)
            .filter_map(|bytes| bytes.try_into().ok());
        Ok(counters.map(u64::from_ne_bytes).sum())
    }
}

/// Counts the ephemeral nodes below a path again and again, in a thread.
#[derive(Debug)]
pub(crate) struct NodeCount {
    stop: Sender<()>,
    counting: JoinHandle<u64>,
}

impl NodeCount {
    /// Begins to count; `None` where the servers do not say which nodes they have.
    pub(crate) fn start(servers: &Servers, ensemble: Ensemble, root: &str) -> Option<Self> {
        let ephemerals = servers.ephemerals(ensemble)?;
        // The answer has an indented line for each node.
        let prefix = format!("\t{root}/");
        let (stop, stopped) = mpsc::channel();
        let counting = thread::spawn(move || {
            let mut most = 0;
            loop {
                // A server that is too busy to answer is asked again.
                if let Ok(dump) = ephemerals() {
                    most = most.max(
                        dump.lines()
                            .filter(|line| line.starts_with(&prefix))
                            .count() as u64,
                    );
                }
                if stopped.recv_timeout(LOOK) != Err(RecvTimeoutError::Timeout) {
                    return most;
                }
            }
        });
        Some(Self { stop, counting })
    }

    /// Ends, and returns the most that were there at once.
    pub(crate) fn most(self) -> u64 {
        drop(self.stop);
        self.counting.join().unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_count_in_one_file() {
        let counters = SharedCounters::new(2).unwrap();
        assert_eq!(counters.sum().unwrap(), 0);
        fs::write(
            counters.path(),
            [5_u64.to_ne_bytes(), 37_u64.to_ne_bytes()].concat(),
        )
        .unwrap();
        assert_eq!(counters.sum().unwrap(), 42);
    }
}
