//! The command line.

use std::time::Duration;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, ValueEnum};
use serde::{Deserialize, Serialize};

use crate::common::parse_duration;

/// A cache in front of a table, shared by several processes, which a distributed lock keeps from going stale.
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
    /// How long a process thinks between its two steps: a reader between the row and the cache, a writer between the cache and
    /// the row [default: 1ms; --kill-one, --pause-one: 100ms]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    think: Option<Duration>,
    /// For how long a process tries to get the lock. A reader who has no luck reads the row and leaves the cache alone, a
    /// writer gives up
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = parse_duration)]
    wait: Duration,
    /// Kills (SIGKILL) a writer between its two steps: the others go on when its session has expired
    #[arg(long)]
    kill_one: bool,
    /// Stops (SIGSTOP) a reader between its two steps until a writer has been inside, then lets it go on and fill the cache; or
    /// a writer, until a reader has filled the cache that it had emptied [default: reader]
    #[arg(long, value_enum, value_name = "WHO", num_args = 0..=1, require_equals = true, default_missing_value = "reader")]
    pause_one: Option<Who>,
    /// For how long the servers keep the lock of a process that is not heard of; they have limits for it, by default 4s to
    /// 40s [default: 5s; --kill-one, --pause-one: 4s]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    session_timeout: Option<Duration>,
    /// What keeps readers and writers apart
    #[arg(long, value_enum, default_value_t = Lock::ReadWrite)]
    lock: Lock,
    /// ZooKeeper servers, host:port[,host:port...] [default: $ZK_CONNECT, or a server in this process]
    #[arg(long, value_name = "SERVERS")]
    pub(crate) connect: Option<String>,
    /// Prints the result as one JSON object too, as the last line
    #[arg(long)]
    pub(crate) json: bool,
    /// Says who goes in and comes out, on stderr
    #[arg(short, long)]
    pub(crate) verbose: bool,
}

/// What keeps readers and writers apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Lock {
    /// `InterProcessReadWriteLock`, and its fencing tokens in the cache and in the table
    ReadWrite,
    /// Nothing, to see what happens
    None,
}

/// In which of its turns who is to be paused stops itself, and who is to be killed: later, for one writer may be both.
const PAUSED_IN: u32 = 2;
const KILLED_IN: u32 = 5;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Who {
    Reader,
    Writer,
}

/// What is done to a worker between its two steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Fault {
    /// To a writer.
    Kill,
    Pause(Who),
}

impl Fault {
    /// Of whom the first is hit, and in which of its turns, from 1.
    pub(crate) fn hits(self) -> (Who, u32) {
        match self {
            Self::Kill => (Who::Writer, KILLED_IN),
            Self::Pause(who) => (who, PAUSED_IN),
        }
    }
}

/// What all workers are told.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Terms {
    pub(crate) readers: u32,
    pub(crate) writers: u32,
    pub(crate) writes: u32,
    pub(crate) think: Duration,
    pub(crate) wait: Duration,
    pub(crate) session_timeout: Duration,
    pub(crate) lock: Lock,
}

/// What a worker does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Role {
    Reader,
    Writer { writes: u32 },
}

impl Terms {
    /// What the worker of this number does: the writers come first.
    pub(crate) fn role_of(&self, worker: u32) -> Role {
        if worker >= self.writers {
            return Role::Reader;
        }
        // The first ones do what is left over.
        let more = u32::from(worker < self.writes % self.writers);
        Role::Writer { writes: self.writes / self.writers + more }
    }

    /// The turns, from 1, in which the worker of this number stops itself, and what for.
    pub(crate) fn stops_of(&self, worker: u32, faults: &[Fault]) -> Vec<(u32, Fault)> {
        let is_first = worker == 0 || worker == self.writers;
        let hit = |fault: &Fault| {
            let (who, turn) = fault.hits();
            (is_first && who == self.who(worker)).then_some((turn, *fault))
        };
        faults.iter().filter_map(hit).collect()
    }

    pub(crate) fn who(&self, worker: u32) -> Who {
        match self.role_of(worker) {
            Role::Reader => Who::Reader,
            Role::Writer { .. } => Who::Writer,
        }
    }

    /// What the worker is called.
    pub(crate) fn name_of(&self, worker: u32) -> String {
        match self.role_of(worker) {
            Role::Writer { .. } => format!("writer {}", worker + 1),
            Role::Reader => format!("reader {}", worker - self.writers + 1),
        }
    }

    pub(crate) fn workers(&self) -> u32 {
        self.readers + self.writers
    }
}

impl Options {
    /// Reads the command line. What is wrong with it is said by clap, which ends the program.
    pub(crate) fn read() -> Self {
        let options = Self::parse();
        if options.lock == Lock::None && !options.faults().is_empty() {
            let words = "without a lock nobody holds it: --lock none with --kill-one or --pause-one";
            Self::command().error(ErrorKind::ArgumentConflict, words).exit();
        }
        options
    }

    pub(crate) fn faults(&self) -> Vec<Fault> {
        let killed = self.kill_one.then_some(Fault::Kill);
        self.pause_one.map(Fault::Pause).into_iter().chain(killed).collect()
    }

    pub(crate) fn terms(&self) -> Terms {
        let ms = Duration::from_millis;
        // With a fault there must be time to hit somebody between their steps.
        let (writes, think, session_timeout) =
            if self.faults().is_empty() { (100, ms(1), ms(5_000)) } else { (20, ms(100), ms(4_000)) };
        Terms {
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
