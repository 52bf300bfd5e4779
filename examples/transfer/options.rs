//! The command line.

use std::time::Duration;

use clap::{Parser, ValueEnum};
use serde::{Deserialize, Serialize};

use crate::common::options::RunOptions;
use crate::common::parse_duration;

/// Several processes move money between accounts, and none is lost.
#[derive(Debug, Parser)]
#[command(name = "transfer")]
pub(crate) struct Options {
    /// Accounts
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(2..=1000))]
    accounts: u32,
    /// Processes that transfer
    #[arg(long, value_name = "N", default_value_t = 6, value_parser = clap::value_parser!(u32).range(1..=256))]
    processes: u32,
    /// Transfers, of all processes together
    #[arg(long, value_name = "N", default_value_t = 120, value_parser = clap::value_parser!(u32).range(..=100_000))]
    transfers: u32,
    /// How long a process thinks between reading the balances and writing; with --lock nested, also
    /// between the two locks
    #[arg(long, value_name = "TIME", default_value = "2ms", value_parser = parse_duration)]
    think: Duration,
    /// How long a process waits for a lock [default: 60s; --lock nested: 1s]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    wait: Option<Duration>,
    /// The session timeout: how long the servers keep the locks of a process that is silent
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = parse_duration)]
    session_timeout: Duration,
    /// The locks that keep the processes apart
    #[arg(long, value_enum, default_value_t = Lock::Multi)]
    lock: Lock,
    #[command(flatten)]
    pub(crate) run: RunOptions,
}

/// The locks that keep the processes apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Lock {
    /// `InterProcessMultiLock` of the two accounts' mutexes
    Multi,
    /// The two mutexes one after the other: of the account that pays, and of the one that is paid
    Nested,
    /// No lock, to see what happens
    None,
}

/// The options of the run that all processes need.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Config {
    pub(crate) accounts: u32,
    pub(crate) processes: u32,
    pub(crate) transfers: u32,
    pub(crate) think: Duration,
    pub(crate) wait: Duration,
    pub(crate) session_timeout: Duration,
    pub(crate) lock: Lock,
}

/// Money that is to be moved.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Transfer {
    /// The account that pays.
    pub(crate) from: u32,
    /// The account that is paid.
    pub(crate) to: u32,
    pub(crate) amount: i64,
}

impl Config {
    /// Returns the transfers of a process, the same in every run: between neighbours, in both
    /// directions, so that any two processes meet soon.
    pub(crate) fn transfers_of(&self, process: u32) -> impl Iterator<Item = Transfer> + use<> {
        let (accounts, processes) = (self.accounts, self.processes);
        (process..self.transfers)
            .step_by(processes as usize)
            .map(move |number| {
                // The first transfers of the processes 0 and 1 are between the same accounts, and
                // so on.
                let (one, other) = (number / 2 % accounts, (number / 2 + 1) % accounts);
                let (from, to) = if number % 2 == 0 {
                    (one, other)
                } else {
                    (other, one)
                };
                Transfer {
                    from,
                    to,
                    amount: i64::from(number % 7) + 1,
                }
            })
    }
}

impl Options {
    /// Parses the command line; if it is wrong, clap says how and ends the program.
    pub(crate) fn from_command_line() -> Self {
        Self::parse()
    }

    /// Returns the options with their defaults.
    pub(crate) fn config(&self) -> Config {
        let wait = Duration::from_secs(if self.lock == Lock::Nested { 1 } else { 60 });
        Config {
            accounts: self.accounts,
            processes: self.processes,
            transfers: self.transfers,
            think: self.think,
            wait: self.wait.unwrap_or(wait),
            session_timeout: self.session_timeout,
            lock: self.lock,
        }
    }
}
