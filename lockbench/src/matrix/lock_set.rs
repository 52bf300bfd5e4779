//! The workload `lock-set`, with which Jepsen tested etcd's locks: workers read a set, add an
//! element and write it back, each under the lock, and some are stopped in between for longer than
//! the lock lasts. What was acknowledged and is not in the set at the end is lost.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::Error;
use crate::matrix::field::{Process, Servers, wait};
use crate::step::Step;

/// How long a worker needs from its read to its write.
const WORK: Duration = Duration::from_millis(50);
/// Each worker is stopped in one of this many updates.
const PAUSE_ONE_IN: u64 = 6;
const LIMIT: Duration = Duration::from_secs(60);

/// Where the set is, and what is asked before it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Mode {
    /// The store checks nothing, and neither does the worker.
    Blind,
    /// The store checks nothing; the worker asks its lock before it writes.
    Asks,
    /// The store compares fencing tokens, at the read and at the write.
    Token,
    /// On the lock's own servers, written under the condition that the lock's users have for that.
    Conditional,
}

impl Mode {
    pub(crate) const ALL: [Self; 4] = [Self::Blind, Self::Asks, Self::Token, Self::Conditional];
}

/// The result of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Updates {
    pub(crate) acknowledged: usize,
    pub(crate) lost: usize,
    /// The updates that were refused by the worker, by the store, or by an error.
    pub(crate) refused: usize,
    pub(crate) pauses: usize,
}

/// The store in memory.
#[derive(Debug, Default)]
struct Store {
    set: BTreeSet<u64>,
    /// The highest token that it has seen.
    highest: Option<(i64, i64)>,
}

impl Store {
    /// Returns whether it lets a holder in.
    fn admits(&mut self, token: Option<(i64, i64)>) -> bool {
        if token.is_some() && token < self.highest {
            return false;
        }
        self.highest = self.highest.max(token);
        true
    }
}

#[derive(Debug, Default)]
struct Shared {
    store: Mutex<Store>,
    found: Mutex<(Vec<u64>, Updates)>,
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs it for a while, and counts.
pub(crate) fn run(
    servers: &Servers,
    workers: &mut [Process],
    mode: Mode,
    path: &str,
    time: Duration,
    long: Duration,
) -> Result<Updates, Error> {
    let data = format!("{path}-set");
    servers.make(&data)?;
    for worker in workers.iter_mut() {
        worker.open(servers.address(), path, time)?;
    }
    let (shared, end) = (Shared::default(), Instant::now() + long);
    thread::scope(|scope| {
        let all: Vec<_> = (0u64..)
            .zip(workers.iter_mut())
            .map(|(number, worker)| {
                let task = Task {
                    mode,
                    data: &data,
                    time,
                    shared: &shared,
                    number,
                };
                scope.spawn(move || task.run(worker, end).map_err(|error| error.to_string()))
            })
            .collect();
        let ended = all.into_iter().map(|one| {
            one.join()
                .map_err(|_| "a panic".to_owned())
                .and_then(|ended| ended)
        });
        ended.collect::<Result<Vec<()>, String>>()
    })?;
    let set = match mode {
        Mode::Conditional => elements(&servers.data(&data)?),
        _ => lock(&shared.store).set.clone(),
    };
    let (acknowledged, mut updates) = std::mem::take(&mut *lock(&shared.found));
    updates.acknowledged = acknowledged.len();
    updates.lost = acknowledged
        .iter()
        .filter(|element| !set.contains(element))
        .count();
    Ok(updates)
}

fn elements(text: &str) -> BTreeSet<u64> {
    text.split(',')
        .filter_map(|element| element.parse().ok())
        .collect()
}

/// A worker.
struct Task<'a> {
    mode: Mode,
    data: &'a str,
    time: Duration,
    shared: &'a Shared,
    number: u64,
}

impl Task<'_> {
    fn run(&self, worker: &mut Process, end: Instant) -> Result<(), Error> {
        for n in 0.. {
            if Instant::now() > end {
                break;
            }
            // Workers are stopped in different updates.
            let stops = (n + 2 * self.number) % PAUSE_ONE_IN == PAUSE_ONE_IN - 1;
            let element = n * 100 + self.number;
            if worker.step(&Step::Acquire(true), LIMIT)?.is_none() {
                return Err("the lock was not granted in time".into());
            }
            let written = self.update(worker, element, stops)?;
            let mut found = lock(&self.shared.found);
            match written {
                true => found.0.push(element),
                false => found.1.refused += 1,
            }
            found.1.pauses += usize::from(stops);
            drop(found);
            // An error says that it was lost.
            let _ = worker.step(&Step::Release(true), LIMIT);
        }
        Ok(())
    }

    /// Reads, waits, and writes. Returns whether the write was acknowledged.
    fn update(&self, worker: &mut Process, element: u64, stops: bool) -> Result<bool, Error> {
        let token = worker.token().filter(|_| self.mode == Mode::Token);
        let (mut set, version) = if self.mode == Mode::Conditional {
            // An error says that nothing was read.
            let Ok(Some(read)) = worker.step(
                &Step::Read {
                    node: self.data.to_owned(),
                },
                LIMIT,
            ) else {
                return Ok(false);
            };
            (
                elements(&read.value.unwrap_or_default()),
                read.version.unwrap_or_default(),
            )
        } else {
            let mut store = lock(&self.shared.store);
            if !store.admits(token) {
                return Ok(false);
            }
            (store.set.clone(), 0)
        };
        set.insert(element);
        let step = if self.mode == Mode::Conditional {
            let value = set.iter().map(u64::to_string).collect::<Vec<_>>().join(",");
            Step::Write {
                node: self.data.to_owned(),
                value,
                version,
            }
        } else {
            Step::Ask(true)
        };
        if stops {
            worker.pause()?;
            // The first step of a worker that is resumed.
            worker.begin(&step)?;
            wait(self.time + self.time / 2);
            worker.resume()?;
        } else {
            wait(WORK);
            worker.begin(&step)?;
        }
        let answer = worker.end(LIMIT);
        if self.mode == Mode::Conditional {
            return Ok(matches!(answer, Ok(Some(_))));
        }
        let held = answer?.and_then(|answer| answer.held).ok_or("no answer")?;
        let mut store = lock(&self.shared.store);
        if (self.mode == Mode::Asks && !held) || !store.admits(token) {
            return Ok(false);
        }
        store.set = set;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn store_refuses_lower_token() {
        let mut store = Store::default();
        assert!(store.admits(None) && store.admits(Some((5, 0))) && store.admits(Some((5, 0))));
        assert!(!store.admits(Some((4, 9))));
        assert!(store.admits(Some((5, 1))) && !store.admits(Some((5, 0))));
    }

    #[test]
    fn lock_set_round_trips() {
        assert_eq!(elements("1,203,5"), BTreeSet::from([1, 5, 203]));
        assert_eq!(elements(""), BTreeSet::new());
    }
}
