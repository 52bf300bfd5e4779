//! The command line.

use std::time::Duration;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, ValueEnum};
use serde::{Deserialize, Serialize};

use crate::common::options::RunOptions;
use crate::common::parse_duration;

/// Many workers in several processes take order numbers, and none is given out twice.
#[derive(Debug, Parser)]
#[command(name = "order_numbers")]
pub(crate) struct Options {
    /// Workers that place orders
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    workers: u32,
    /// Processes that the workers are in
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=256))]
    processes: u32,
    /// Orders, of all workers together
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(..=5_000))]
    orders: u32,
    /// How long a worker thinks between reading the next number and writing
    #[arg(long, value_name = "TIME", default_value = "1ms", value_parser = parse_duration)]
    think: Duration,
    /// How long a worker waits for the lock
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_duration)]
    wait: Duration,
    /// Kills (SIGKILL) a process that has the lock and has read the next number; with --lock
    /// counter, one that has a number which is in no order yet
    #[arg(long)]
    pub(crate) kill_one: bool,
    /// The session timeout: how long the servers keep the lock of a process that is silent
    /// [default: 5s; --kill-one: 4s]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    session_timeout: Option<Duration>,
    /// How the numbers are kept distinct
    #[arg(long, value_enum, default_value_t = Lock::Mutex)]
    lock: Lock,
    /// Numbers that a process takes at once, with --lock counter
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..))]
    block: u32,
    #[command(flatten)]
    pub(crate) run: RunOptions,
}

/// How the numbers are kept distinct.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Lock {
    /// `InterProcessMutex`, and a transaction: no gaps
    Mutex,
    /// `DistributedAtomicLong`, in blocks: gaps
    Counter,
    /// No lock, to see what happens
    None,
}

/// The options of the run that all processes need.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Config {
    pub(crate) workers: u32,
    pub(crate) processes: u32,
    pub(crate) orders: u32,
    pub(crate) think: Duration,
    pub(crate) wait: Duration,
    pub(crate) session_timeout: Duration,
    pub(crate) lock: Lock,
    pub(crate) block: u32,
}

impl Config {
    /// Returns the orders of a worker, by number from 0.
    pub(crate) fn orders_of(&self, worker: u32) -> impl Iterator<Item = u32> + use<> {
        (worker..self.orders).step_by(self.workers as usize)
    }

    /// Returns the process that has to place an order.
    pub(crate) fn process_of(&self, order: u32) -> u32 {
        order % self.workers % self.processes
    }

    /// Returns the workers in a process, from 0.
    pub(crate) fn workers_of(&self, process: u32) -> impl Iterator<Item = u32> + use<> {
        (process..self.workers).step_by(self.processes as usize)
    }
}

impl Options {
    /// Parses the command line; if it is wrong, clap says how and ends the program.
    pub(crate) fn from_command_line() -> Self {
        let options = Self::parse();
        if options.lock == Lock::None && options.kill_one {
            let words = "without a lock there is no holder to kill: --lock none with --kill-one";
            Self::command()
                .error(ErrorKind::ArgumentConflict, words)
                .exit();
        }
        options
    }

    /// Returns the options with their defaults.
    pub(crate) fn config(&self) -> Config {
        let session_timeout = Duration::from_secs(if self.kill_one { 4 } else { 5 });
        Config {
            workers: self.workers,
            processes: self.processes,
            orders: self.orders,
            think: self.think,
            wait: self.wait,
            session_timeout: self.session_timeout.unwrap_or(session_timeout),
            lock: self.lock,
            block: self.block,
        }
    }
}
