//! The command line.

use std::time::Duration;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, ValueEnum};
use serde::{Deserialize, Serialize};

use crate::common::options::RunOptions;
use crate::common::parse_duration;

/// Many nodes wake at the same second of each day, and the day's job is done once.
#[derive(Debug, Parser)]
#[command(name = "daily_job")]
pub(crate) struct Options {
    /// Processes that wake each day
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=256))]
    nodes: u32,
    /// Days
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=1000))]
    days: u32,
    /// How long a day is
    #[arg(long, value_name = "TIME", default_value = "200ms", value_parser = parse_duration)]
    day: Duration,
    /// How long the job takes
    #[arg(long, value_name = "TIME", default_value = "20ms", value_parser = parse_duration)]
    work: Duration,
    /// How long a node waits for the lock
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_duration)]
    wait: Duration,
    /// Kills (SIGKILL) the first node that does the job of the third day, in the middle of it:
    /// another does the job when its session has expired
    #[arg(long)]
    pub(crate) kill_one: bool,
    /// The session timeout: how long the servers keep the lock of a node that is silent [default:
    /// 5s; --kill-one: 4s]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    session_timeout: Option<Duration>,
    /// The lock that keeps the nodes apart
    #[arg(long, value_enum, default_value_t = Lock::Mutex)]
    lock: Lock,
    #[command(flatten)]
    pub(crate) run: RunOptions,
}

/// The lock that keeps the nodes apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Lock {
    /// `once`: a mutex, and a record
    Mutex,
    /// No lock, to see what happens
    None,
}

/// The options of the run that all nodes need.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Config {
    pub(crate) nodes: u32,
    pub(crate) days: u32,
    pub(crate) day: Duration,
    pub(crate) work: Duration,
    pub(crate) wait: Duration,
    pub(crate) session_timeout: Duration,
    pub(crate) lock: Lock,
    pub(crate) kill_one: bool,
}

impl Options {
    /// Parses the command line; if it is wrong, clap says how and ends the program.
    pub(crate) fn from_command_line() -> Self {
        let options = Self::parse();
        if options.lock == Lock::None && options.kill_one {
            let words = "without a lock no node does the job alone: --lock none with --kill-one";
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
            nodes: self.nodes,
            days: self.days,
            day: self.day,
            work: self.work,
            wait: self.wait,
            session_timeout: self.session_timeout.unwrap_or(session_timeout),
            lock: self.lock,
            kill_one: self.kill_one,
        }
    }
}
