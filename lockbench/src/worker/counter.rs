//! Counters that show whether a lock excludes: a task that holds the lock reads, computes and
//! writes, and nothing but the lock keeps another from doing so at once.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::Error;
use crate::job::Job;

/// The counters of a round, one for each path.
#[derive(Debug)]
pub(crate) enum Counters {
    Memory(Vec<AtomicU64>),
    /// Eight bytes for each path, shared by processes.
    File(File),
}

impl Counters {
    /// Returns zeros, or the file that the processes of the round share.
    pub(crate) fn of(job: &Job) -> Result<Self, Error> {
        Ok(match &job.counter_file {
            Some(path) => Self::File(OpenOptions::new().read(true).write(true).open(path)?),
            None => Self::Memory((0..job.paths).map(|_| AtomicU64::new(0)).collect()),
        })
    }

    /// Reads the counter of a path.
    pub(crate) fn read(&self, path: usize) -> Result<u64, Error> {
        Ok(match self {
            Self::Memory(counters) => counter(counters, path)?.load(Ordering::Relaxed),
            Self::File(file) => {
                let mut bytes = [0; 8];
                file.read_exact_at(&mut bytes, 8 * path as u64)?;
                u64::from_ne_bytes(bytes)
            }
        })
    }

    /// Adds one to what was read, as one who is alone does it: in two steps on purpose, because an
    /// atomic addition would count two holders, too.
    pub(crate) fn write(&self, path: usize, read: u64) -> Result<(), Error> {
        match self {
            Self::Memory(counters) => counter(counters, path)?.store(next(read), Ordering::Relaxed),
            Self::File(file) => file.write_all_at(&next(read).to_ne_bytes(), 8 * path as u64)?,
        }
        Ok(())
    }

    /// Returns how many of the exclusive cycles are not in the counters; 0 for a file, which others
    /// use, too.
    pub(crate) fn lost_of(&self, exclusive_cycles: u64) -> u64 {
        match self {
            Self::Memory(counters) => {
                let sum: u64 = counters
                    .iter()
                    .map(|counter| counter.load(Ordering::Relaxed))
                    .sum();
                exclusive_cycles.abs_diff(sum)
            }
            Self::File(_) => 0,
        }
    }
}

fn counter(counters: &[AtomicU64], path: usize) -> Result<&AtomicU64, Error> {
    Ok(counters.get(path).ok_or("no counter for this path")?)
}

/// Returns the number after this one, by a way that takes a moment.
fn next(value: u64) -> u64 {
    (0..8_u64)
        .fold(value, |sum, step| {
            std::hint::black_box(sum.wrapping_add(step))
        })
        .wrapping_sub(27)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn successor_is_one_more() {
        assert_eq!((next(0), next(41)), (1, 42));
    }

    #[test]
    fn detects_lost_update() {
        let counters = Counters::Memory(vec![AtomicU64::new(0), AtomicU64::new(0)]);
        for path in [0, 1, 1] {
            counters.write(path, counters.read(path).unwrap()).unwrap();
        }
        assert_eq!((counters.lost_of(3), counters.lost_of(5)), (0, 2));
    }
}
