//! The command line.

use std::time::Duration;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, ValueEnum};
use serde::{Deserialize, Serialize};

use crate::common::parse_duration;

/// A cache in front of a table, shared by several processes, which a distributed lock keeps from
/// going stale.
#[derive(Debug, Parser)]
#[command(name = "cache_consistency")]
pub(crate) struct Options {
    /// Processes that read
    #[arg(long, value_name = "N", default_value_t = 6, value_parser = clap::value_parser!(u32).range(1..=256))]
    readers: u32,
    /// Processes that write
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=256))]
    writers: u32,
    /// Updates of the row, by all writers together [default: 100; --kill-one, --pause-one: 20]
    #[arg(long, value_name = "N")]
    writes: Option<u32>,
    /// How long a process thinks between its two steps: a reader between the row and the cache, a
    /// writer between the cache and the row [default: 1ms; --kill-one, --pause-one: 100ms]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    think: Option<Duration>,
    /// How long a process waits for the lock. After that a reader reads the row and leaves the
    /// cache alone, and a writer gives up
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = parse_duration)]
    wait: Duration,
    /// Kills (SIGKILL) a writer between its two steps: the others continue when its session has
    /// expired
    #[arg(long)]
    kill_one: bool,
    /// Pauses (SIGSTOP) a reader between its two steps until a writer has been inside, then lets it
    /// continue and fill the cache; or a writer, until a reader has filled the cache that it had
    /// emptied [default: reader]
    #[arg(long, value_enum, value_name = "WHO", num_args = 0..=1, require_equals = true, default_missing_value = "reader")]
    pause_one: Option<Role>,
    /// The session timeout: how long the servers keep the lock of a process that is silent. They
    /// have limits for it, by default 4s to 40s [default: 5s; --kill-one, --pause-one: 4s]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    session_timeout: Option<Duration>,
    /// The lock that keeps readers and writers apart
    #[arg(long, value_enum, default_value_t = Lock::ReadWrite)]
    lock: Lock,
    /// ZooKeeper servers, host:port[,host:port...] [default: $ZK_CONNECT, or a server in this
    /// process]
    #[arg(long, value_name = "SERVERS")]
    pub(crate) connect: Option<String>,
    /// Prints the result as one JSON object too, as the last line
    #[arg(long)]
    pub(crate) json: bool,
    /// Logs on stderr who goes in and who comes out
    #[arg(short, long)]
    pub(crate) verbose: bool,
}

/// The lock that keeps readers and writers apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Lock {
    /// `InterProcessReadWriteLock`, and its fencing tokens in the cache and in the table
    ReadWrite,
    /// No lock, to see what happens
    None,
}

/// The work of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Role {
    Reader,
    Writer,
}

/// A fault for a worker between its two steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Fault {
    /// Kills a writer.
    Kill,
    Pause(Role),
}

/// The critical section of a worker in which it is paused, and the one in which it is killed: a
/// later one, because one writer may be both.
const PAUSED_IN: u32 = 2;
const KILLED_IN: u32 = 5;

impl Fault {
    /// Returns the role whose first worker is hit, and in which of its critical sections, from 1.
    pub(crate) fn target(self) -> (Role, u32) {
        match self {
            Self::Kill => (Role::Writer, KILLED_IN),
            Self::Pause(role) => (role, PAUSED_IN),
        }
    }
}

/// The options of the run that all workers need.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Config {
    pub(crate) readers: u32,
    pub(crate) writers: u32,
    pub(crate) writes: u32,
    pub(crate) think: Duration,
    pub(crate) wait: Duration,
    pub(crate) session_timeout: Duration,
    pub(crate) lock: Lock,
}

impl Config {
    /// Returns the number of workers.
    pub(crate) fn workers(&self) -> u32 {
        self.readers + self.writers
    }

    /// Returns what a worker does: the first ones are the writers.
    pub(crate) fn role_of(&self, worker: u32) -> Role {
        if worker < self.writers {
            Role::Writer
        } else {
            Role::Reader
        }
    }

    /// Returns how often a writer writes.
    pub(crate) fn writes_of(&self, worker: u32) -> u32 {
        // The first writers do the remainder.
        self.writes / self.writers + u32::from(worker < self.writes % self.writers)
    }

    /// Returns the critical sections, from 1, in which a worker stops itself, and for which fault.
    pub(crate) fn stops_of(&self, worker: u32, faults: &[Fault]) -> Vec<(u32, Fault)> {
        let is_first = worker == 0 || worker == self.writers;
        let hits = |fault: &Fault| {
            let (role, section) = fault.target();
            (is_first && role == self.role_of(worker)).then_some((section, *fault))
        };
        faults.iter().filter_map(hits).collect()
    }

    /// Returns a worker's name.
    pub(crate) fn name_of(&self, worker: u32) -> String {
        match self.role_of(worker) {
            Role::Writer => format!("writer {}", worker + 1),
            Role::Reader => format!("reader {}", worker - self.writers + 1),
        }
    }
}

impl Options {
    /// Parses the command line; if it is wrong, clap says how and ends the program.
    pub(crate) fn from_command_line() -> Self {
        let options = Self::parse();
        if options.lock == Lock::None && !options.faults().is_empty() {
            let words =
                "without a lock nobody holds it: --lock none with --kill-one or --pause-one";
            Self::command()
                .error(ErrorKind::ArgumentConflict, words)
                .exit();
        }
        options
    }

    /// Returns the faults to inject.
    pub(crate) fn faults(&self) -> Vec<Fault> {
        let kill = self.kill_one.then_some(Fault::Kill);
        self.pause_one
            .map(Fault::Pause)
            .into_iter()
            .chain(kill)
            .collect()
    }

    /// Returns the options with their defaults.
    pub(crate) fn config(&self) -> Config {
        let ms = Duration::from_millis;
        // A fault needs time to hit a worker between its steps.
        let (writes, think, session_timeout) = if self.faults().is_empty() {
            (100, ms(1), ms(5_000))
        } else {
            (20, ms(100), ms(4_000))
        };
        Config {
            readers: self.readers,
            writers: self.writers,
            writes: self.writes.unwrap_or(writes),
            think: self.think.unwrap_or(think),
            wait: self.wait,
            session_timeout: self.session_timeout.unwrap_or(session_timeout),
            lock: self.lock,
        }
    }
}
