//! The load of the machine during a round: a ratio of two contenders is worth little if another
//! process, or another machine on the same host, took the processor from one of them.

use std::fs;
use std::io;

use serde::{Deserialize, Serialize};

use crate::Error;

/// How much of the processors' time a hypervisor may take before a round is marked.
const STOLEN: f64 = 0.01;
/// How much of it processes that are not ours may take.
const TAKEN: f64 = 0.10;

/// The processors' time since they started, and that of our processes, in ticks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Reading {
    total: u64,
    idle: u64,
    stolen: u64,
    ours: u64,
}

/// The share of the processors' time that other programs or machines used during a round.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct StolenTime {
    /// Taken by the hypervisor.
    pub(crate) stolen: f64,
    /// Used by processes that belong to no contender and no server of the run.
    pub(crate) others: f64,
}

impl Reading {
    /// Reads the clocks of the processors, and of these processes and this one.
    pub(crate) fn now(ours: &[u32]) -> io::Result<Self> {
        let processes = ours.iter().copied().chain([std::process::id()]);
        let ours = processes
            .filter_map(|id| ticks_of(&fs::read_to_string(format!("/proc/{id}/stat")).ok()?));
        let ours = ours.sum();
        let (total, idle, stolen) = processors(&fs::read_to_string("/proc/stat")?)
            .ok_or_else(|| io::Error::other("/proc/stat is not what it should be"))?;
        Ok(Self {
            total,
            idle,
            stolen,
            ours,
        })
    }

    /// Returns what went elsewhere since an earlier reading.
    pub(crate) fn since(self, earlier: Self) -> StolenTime {
        let total = self.total.saturating_sub(earlier.total);
        let idle = self.idle.saturating_sub(earlier.idle);
        let stolen = self.stolen.saturating_sub(earlier.stolen);
        let ours = self.ours.saturating_sub(earlier.ours);
        let others = total
            .saturating_sub(idle)
            .saturating_sub(stolen)
            .saturating_sub(ours);
        let part = |ticks: u64| {
            if total == 0 {
                0.0
            } else {
                ticks as f64 / total as f64
            }
        };
        StolenTime {
            stolen: part(stolen),
            others: part(others),
        }
    }
}

impl StolenTime {
    /// Returns whether the share is so large that the round is marked.
    pub(crate) fn counts(self) -> bool {
        self.stolen > STOLEN || self.others > TAKEN
    }
}

/// The memory of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Memory {
    /// Now, in bytes.
    pub(crate) resident: u64,
    /// At most so far, in bytes.
    pub(crate) peak: u64,
}

impl Memory {
    /// Returns what processes have, all together.
    pub(crate) fn of(processes: impl IntoIterator<Item = u32>) -> Result<Self, Error> {
        let mut all = Self {
            resident: 0,
            peak: 0,
        };
        for id in processes {
            let status = fs::read_to_string(format!("/proc/{id}/status"))?;
            let one =
                Self::read(&status).ok_or_else(|| format!("no memory in /proc/{id}/status"))?;
            all.resident += one.resident;
            all.peak += one.peak;
        }
        Ok(all)
    }

    fn read(status: &str) -> Option<Self> {
        let bytes = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            Some(1024 * line.trim().strip_suffix(" kB")?.parse::<u64>().ok()?)
        };
        Some(Self {
            resident: bytes("VmRSS:")?,
            peak: bytes("VmHWM:")?,
        })
    }
}

/// Returns the ticks of all processors together: all, idle, stolen.
fn processors(stat: &str) -> Option<(u64, u64, u64)> {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let ticks: Option<Vec<u64>> = line
        .split_whitespace()
        .map(|word| word.parse().ok())
        .collect();
    // user, nice, system, idle, iowait, irq, softirq, steal; guests' time is in the user's already.
    let ticks = ticks?;
    let eight = ticks.get(..8)?;
    Some((
        eight.iter().sum(),
        eight.get(3)? + eight.get(4)?,
        *eight.get(7)?,
    ))
}

/// Returns the user and system ticks of a process.
fn ticks_of(stat: &str) -> Option<u64> {
    // The name in parentheses may hold anything. After it: state, then 10 numbers, then utime and
    // stime.
    let (_, rest) = stat.rsplit_once(") ")?;
    let mut words = rest.split(' ').skip(11);
    Some(words.next()?.parse::<u64>().ok()? + words.next()?.parse::<u64>().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_processor_times() {
        let stat = "cpu  100 1 20 300 4 5 6 7 0 0\ncpu0 1 2 3 4 5 6 7 8 0 0\n";
        assert_eq!(processors(stat), Some((443, 304, 7)));
        assert_eq!(processors("cpu 1 2 3"), None);
    }

    #[test]
    fn reads_process_of_any_name() {
        assert_eq!(
            ticks_of("12 (a) b) S 1 1 1 0 -1 4 5 6 7 8 30 12 0 0"),
            Some(42)
        );
    }

    #[test]
    fn foreign_load_excludes_idle_and_own() {
        let earlier = Reading {
            total: 1000,
            idle: 500,
            stolen: 10,
            ours: 100,
        };
        let later = Reading {
            total: 1200,
            idle: 560,
            stolen: 12,
            ours: 190,
        };
        let theft = later.since(earlier);
        assert_eq!(
            theft,
            StolenTime {
                stolen: 0.01,
                others: 0.24
            }
        );
        assert!(theft.counts());
        assert!(!Reading { ours: 230, ..later }.since(earlier).counts());
        assert!(
            Reading {
                stolen: 14,
                idle: 600,
                ..later
            }
            .since(earlier)
            .counts()
        );
    }

    #[test]
    fn memory_is_read_in_bytes() {
        let status = "Name:\tx\nVmHWM:\t    2000 kB\nVmRSS:\t     3 kB\n";
        assert_eq!(
            Memory::read(status),
            Some(Memory {
                resident: 3072,
                peak: 2_048_000
            })
        );
        assert_eq!(Memory::read("Name:\tx\n"), None);
    }

    #[test]
    fn reads_this_machine() {
        assert!(Memory::of([std::process::id()]).unwrap().resident > 0);
        let before = Reading::now(&[]).unwrap();
        assert!(Reading::now(&[]).unwrap().total >= before.total);
    }
}
