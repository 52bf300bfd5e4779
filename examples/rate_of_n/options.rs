//! The command line.

use std::time::Duration;

use clap::{Args, Parser, ValueEnum};
use serde::{Deserialize, Serialize};

use crate::common::options::RunOptions;
use crate::common::parse_duration;

/// Many visitors of several processes use a service, at most n at a time.
#[derive(Debug, Parser)]
#[command(name = "rate_of_n")]
pub(crate) struct Options {
    #[command(flatten)]
    pub(crate) config: Config,
    #[command(flatten)]
    pub(crate) run: RunOptions,
}

/// The options of the run that all processes need.
#[derive(Clone, Debug, Args, Serialize, Deserialize)]
pub(crate) struct Config {
    /// Visitors that the service bears at a time
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) n: u32,
    /// Processes that the visitors are in
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub(crate) processes: u32,
    /// Visitors of a process that come at a time
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) at_once: u32,
    /// Visits, of all visitors together
    #[arg(long, value_name = "N", default_value_t = 120, value_parser = clap::value_parser!(u32).range(..=100_000))]
    pub(crate) visits: u32,
    /// How long a visit takes
    #[arg(long, value_name = "TIME", default_value = "20ms", value_parser = parse_duration)]
    pub(crate) stay: Duration,
    /// How long a visitor waits for a permit
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_duration)]
    pub(crate) wait: Duration,
    /// The session timeout: how long the servers keep the permits of a process that is silent
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = parse_duration)]
    pub(crate) session_timeout: Duration,
    /// What keeps the other visitors out
    #[arg(long, value_enum, default_value_t = Lock::Semaphore)]
    pub(crate) lock: Lock,
}

/// The lock that keeps the other visitors out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Lock {
    /// `InterProcessSemaphore`
    Semaphore,
    /// Nothing, to see what happens
    None,
}

impl Options {
    /// Parses the command line; if it is wrong, clap says how and ends the program.
    pub(crate) fn from_command_line() -> Self {
        Self::parse()
    }
}
