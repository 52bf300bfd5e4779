//! The command line.

use std::time::Duration;

use clap::{Parser, ValueEnum};
use serde::{Deserialize, Serialize};

use crate::common::options::RunOptions;
use crate::common::parse_duration;

/// Three processes, of which one leads and writes; it is killed, and the next one is stopped and
/// woken.
#[derive(Debug, Parser)]
#[command(name = "controller")]
pub(crate) struct Options {
    /// How often a leader writes before it gives the leadership back
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(2..=10_000))]
    writes: u32,
    /// How long a leader thinks before each write
    #[arg(long, value_name = "TIME", default_value = "10ms", value_parser = parse_duration)]
    think: Duration,
    /// The session timeout: how long the servers keep the leadership of a process that is silent
    #[arg(long, value_name = "TIME", default_value = "4s", value_parser = parse_duration)]
    session_timeout: Duration,
    /// How a process takes part in the election
    #[arg(long, value_enum, default_value_t = Recipe::Selector)]
    recipe: Recipe,
    /// The store does not compare terms, to see what happens
    #[arg(long)]
    no_fence: bool,
    #[command(flatten)]
    pub(crate) run: RunOptions,
}

/// How a process takes part in the election.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Recipe {
    /// `LeaderSelector::lead`
    Selector,
    /// `LeaderLatch`
    Latch,
}

/// The options of the run that all processes need.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Config {
    pub(crate) writes: u32,
    pub(crate) think: Duration,
    pub(crate) session_timeout: Duration,
    pub(crate) recipe: Recipe,
    pub(crate) fence: bool,
}

impl Options {
    /// Parses the command line; if it is wrong, clap says how and ends the program.
    pub(crate) fn from_command_line() -> Self {
        Self::parse()
    }

    pub(crate) fn config(&self) -> Config {
        Config {
            writes: self.writes,
            think: self.think,
            session_timeout: self.session_timeout,
            recipe: self.recipe,
            fence: !self.no_fence,
        }
    }
}
