//! A contender's part of a round: its processes do their work, and are watched from outside.

use std::fs;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::Error;
use crate::job::{Done, Job, Latency};
use crate::process::Worker;
use crate::servers::{Ensemble, Servers};

/// How often two processes take a lock from each other at least, and at most.
const TAKEN: std::ops::RangeInclusive<u32> = 2..=200;
/// How often lock nodes are counted.
const LOOK: Duration = Duration::from_millis(10);

/// What came of a part.
#[derive(Debug)]
pub(crate) struct Turn {
    /// What is to be told.
    pub(crate) measured: Vec<Done>,
    /// Of all processes, also of what is not to be told.
    pub(crate) exclusive_cycles: u64,
    pub(crate) lost_updates: u64,
}

/// Has all processes of a contender run the same job at once.
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

/// Has two processes use the lock in turn, once each, and measures the second one: it finds what
/// the first one left.
pub(crate) fn in_turn(workers: &mut [Worker], job: &Job) -> Result<Turn, Error> {
    let [first, second] = workers else {
        return Err("two processes take turns".into());
    };
    let once = Job {
        cycles_per_task: Some(1),
        ..job.clone()
    };
    let (started, length) = (Instant::now(), Duration::from_micros(job.micros));
    let (mut all, mut exclusive_cycles, mut lost_updates) = (Vec::new(), 0, 0);
    for times in 1..=*TAKEN.end() {
        for (worker, measured) in [(&mut *first, false), (&mut *second, true)] {
            worker.begin(&once)?;
            let done = worker.end(&once)?;
            exclusive_cycles += exclusive(&done);
            lost_updates += done.lost_updates;
            if measured {
                all.push(done);
            }
        }
        if times >= *TAKEN.start() && started.elapsed() >= length {
            break;
        }
    }
    Ok(Turn {
        measured: vec![one_after_the_other(&all)],
        exclusive_cycles,
        lost_updates,
    })
}

fn exclusive(done: &Done) -> u64 {
    done.exclusive_cycles.unwrap_or(done.cycles)
}

/// Sums up jobs of one cycle each.
fn one_after_the_other(all: &[Done]) -> Done {
    let mut latencies: Vec<f64> = all.iter().map(|done| done.latency_micros.max).collect();
    latencies.sort_by(f64::total_cmp);
    let at = |part: f64| {
        let position = (part * latencies.len() as f64).ceil() as usize;
        latencies
            .get(position.saturating_sub(1))
            .copied()
            .unwrap_or(f64::NAN)
    };
    Done {
        cycles: all.iter().map(|done| done.cycles).sum(),
        elapsed_micros: all.iter().map(|done| done.elapsed_micros).sum(),
        cpu_micros: all.iter().map(|done| done.cpu_micros).sum(),
        latency_micros: Latency {
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p999: at(0.999),
            max: at(1.0),
        },
        lost_updates: 0,
        exclusive_cycles: None,
    }
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
        // In the answer each node has a line of its own, indented.
        let prefix = format!("\t{root}/");
        let (stop, stopped) = mpsc::channel();
        let counting = thread::spawn(move || {
            let mut most = 0;
            loop {
                // One that could not be asked, because everything is busy, is asked again.
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
    fn jobs_of_one_cycle_are_summed_up() {
        let done = |latency: f64| Done {
            cycles: 1,
            elapsed_micros: 10.0 * latency,
            cpu_micros: 1.0,
            latency_micros: Latency {
                p50: latency,
                p90: latency,
                p99: latency,
                p999: latency,
                max: latency,
            },
            lost_updates: 0,
            exclusive_cycles: None,
        };
        let sum = one_after_the_other(&[done(3.0), done(1.0), done(2.0)]);
        assert_eq!((sum.cycles, sum.elapsed_micros), (3, 60.0));
        assert_eq!((sum.latency_micros.p50, sum.latency_micros.p99), (2.0, 3.0));
    }

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
