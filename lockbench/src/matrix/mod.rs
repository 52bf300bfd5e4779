//! Compares what locks do when something breaks, in real time: each fault beside each lock, several
//! times, with the holders' own answers as witnesses; and the workload `lock-set`.
//! docs/comparison.md says what came of it.

mod faults;
mod field;
mod judge;
mod lock_set;
mod report;

use std::collections::BTreeMap;
use std::fs;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use test_support::unique_path;

use crate::Error;
use crate::contender::Program;
use crate::options::MatrixOptions;
use crate::programs::Programs;
pub(crate) use faults::Fault;
use faults::{Outcome, Trial};
use field::{Process, Servers};
use lock_set::{Mode, Updates};
use report::{Found, Report};

/// How many workers the lock-set has.
const WORKERS: usize = 3;

/// A lock, as one of its users has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lock {
    pub(crate) name: &'static str,
    program: Program,
    careful: bool,
    pub(crate) about: &'static str,
    /// The condition of a write to data on the same servers.
    pub(crate) condition: &'static str,
}

pub(crate) const LOCKS: [Lock; 8] = [
    Lock {
        name: "ours",
        program: Program::Ours,
        careful: true,
        about: "`InterProcessMutex`; `guard.is_held()`",
        condition: "`guard.transaction()`",
    },
    Lock {
        name: "client_lock",
        program: Program::ClientLock,
        careful: true,
        about: "`zookeeper_client::Client::lock` 0.11.2; held while the session's state is `SyncConnected`",
        condition: "its guard's write, which checks the lock's node",
    },
    Lock {
        name: "curator",
        program: Program::Curator,
        careful: true,
        about: "Curator's `InterProcessMutex` with a `ConnectionStateListener`: held while `isAcquiredInThisProcess()`, \
                connected, and not `LOST` since the grant",
        condition: "the node's version",
    },
    Lock {
        name: "curator_plain",
        program: Program::Curator,
        careful: false,
        about: "the same without a listener: `isAcquiredInThisProcess()`",
        condition: "the node's version",
    },
    Lock {
        name: "kazoo",
        program: Program::Kazoo,
        careful: true,
        about: "kazoo's `Lock` with a listener: held while `is_acquired`, `CONNECTED`, and not `LOST` since the grant",
        condition: "the node's version",
    },
    Lock {
        name: "kazoo_plain",
        program: Program::Kazoo,
        careful: false,
        about: "the same without a listener: `is_acquired`",
        condition: "the node's version",
    },
    Lock {
        name: "redis",
        program: Program::Redis,
        careful: true,
        about: "`SET NX PX`, extended every third of its time; held while the time since the last extension was sent \
                is not over",
        condition: "a script that compares the lock's value",
    },
    Lock {
        name: "redis_plain",
        program: Program::Redis,
        careful: false,
        about: "`SET NX PX` alone; held until it is released",
        condition: "a script that compares the lock's value",
    },
];

/// Compares them, and returns whether ours did what it promises.
pub(crate) fn run(options: &MatrixOptions) -> Result<bool, Error> {
    if let Some(path) = &options.from {
        let report: Report = serde_json::from_slice(&fs::read(path)?)?;
        println!("{}", report.markdown());
        return Ok(report.ours_is_fine());
    }
    let chosen = |lock: &&Lock| {
        options.lock.is_empty() || options.lock.iter().any(|name| *name == lock.name)
    };
    let locks: Vec<&Lock> = LOCKS.iter().filter(chosen).collect();
    if locks.is_empty() {
        return Err("there is no such lock".into());
    }
    let programs = Mutex::new(Programs::default());
    let began = Instant::now();
    let found = thread::scope(|scope| {
        let threads: Vec<_> = locks
            .iter()
            .map(|lock| {
                let programs = &programs;
                scope.spawn(move || (lock.name, judged(lock, options, programs)))
            })
            .collect();
        threads
            .into_iter()
            .map(thread::ScopedJoinHandle::join)
            .collect::<Vec<_>>()
    });
    let mut report = Report::new(options.timeout, options.repeat);
    for one in found {
        match one.map_err(|_| "a panic")? {
            (name, Ok(found)) => drop(report.locks.insert(name.to_owned(), found)),
            (name, Err(error)) => eprintln!("{name}: {error}"),
        }
    }
    report.peers = programs
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner)
        .versions();
    report.seconds = began.elapsed().as_secs();
    println!("{}", report.markdown());
    if let Some(path) = &options.json {
        fs::write(path, serde_json::to_string_pretty(&report)?)?;
    }
    Ok(report.locks.len() == locks.len() && report.ours_is_fine())
}

/// Returns all faults and updates of one lock, on servers of its own.
fn judged(
    lock: &Lock,
    options: &MatrixOptions,
    programs: &Mutex<Programs>,
) -> Result<Found, String> {
    let found = || -> Result<Found, Error> {
        if let Some(missing) = lock.program.missing() {
            return Err(missing.into());
        }
        let mut servers = Servers::start(lock.program.is_on_zookeeper())?;
        let mut found = Found {
            servers: servers.version(),
            ..Found::default()
        };
        for fault in Fault::ALL {
            if options.fault.is_empty() || options.fault.contains(&fault) {
                found
                    .faults
                    .insert(fault, faults(lock, fault, options, &mut servers, programs)?);
            }
        }
        if options.seconds > 0 {
            found.updates = updates(lock, options, &servers, programs)?;
        }
        Ok(found)
    };
    found().map_err(|error| error.to_string())
}

fn start(lock: &Lock, programs: &Mutex<Programs>) -> Result<Process, Error> {
    let command = programs
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .holder(lock.program)?;
    Process::start(lock.name, lock.careful, command)
}

fn faults(
    lock: &Lock,
    fault: Fault,
    options: &MatrixOptions,
    servers: &mut Servers,
    programs: &Mutex<Programs>,
) -> Result<Vec<Outcome>, Error> {
    let time = Duration::from_millis(options.timeout);
    let proxy = field::proxy(servers)?;
    let mut all: Vec<Process> = Vec::new();
    let mut outcomes = Vec::new();
    for _ in 0..options.repeat {
        while all.len() < 3 {
            all.push(start(lock, programs)?);
        }
        let [holder, one, two] = &mut all[..] else {
            return Err("not three".into());
        };
        let path = unique_path("matrix");
        let trial = Trial {
            servers,
            proxy: &proxy,
            holder,
            others: [one, two],
            path: &path,
            time,
        };
        let outcome = trial.run(fault)?;
        eprintln!("{} {fault:?}: {outcome:?}", lock.name);
        if fault == Fault::Killed {
            all.remove(0);
        } else if outcome.stuck > 0 || !outcome.errors.is_empty() {
            all.clear();
        }
        outcomes.push(outcome);
    }
    Ok(outcomes)
}

fn updates(
    lock: &Lock,
    options: &MatrixOptions,
    servers: &Servers,
    programs: &Mutex<Programs>,
) -> Result<BTreeMap<Mode, Updates>, Error> {
    let (time, long) = (
        Duration::from_millis(options.timeout),
        Duration::from_secs(options.seconds),
    );
    let mut all = BTreeMap::new();
    for mode in Mode::ALL {
        // Other locks have no token.
        if mode == Mode::Token && lock.program != Program::Ours {
            continue;
        }
        let mut workers = (0..WORKERS)
            .map(|_| start(lock, programs))
            .collect::<Result<Vec<_>, _>>()?;
        let updates = lock_set::run(
            servers,
            &mut workers,
            mode,
            &unique_path("lock-set"),
            time,
            long,
        )?;
        eprintln!("{} {mode:?}: {updates:?}", lock.name);
        all.insert(mode, updates);
    }
    Ok(all)
}
