//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;

use crate::common::options::RunOptions;
use crate::common::parse_duration;

/// Compares how many waiters are woken by the release of a naive lock and of a sequential one.
#[derive(Debug, Parser)]
#[command(name = "herd")]
pub(crate) struct Options {
    /// Waiters, each with a session: a server accepts 60 of a host by default
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) waiters: u32,
    /// Processes that the waiters are in
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub(crate) processes: u32,
    /// Releases of each lock, for each number of waiters
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) releases: u32,
    /// The session timeout
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_duration)]
    pub(crate) session_timeout: Duration,
    /// Draws the notifications by the number of waiters, as an SVG picture
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) run: RunOptions,
}

impl Options {
    /// Parses the command line; if it is wrong, clap says how and ends the program.
    pub(crate) fn from_command_line() -> Self {
        Self::parse()
    }

    /// Returns the numbers of waiters to measure, in order.
    pub(crate) fn sizes(&self) -> Vec<u32> {
        let mut sizes: Vec<u32> = (0..=5)
            .map(|fifth| (self.waiters * fifth / 5).max(1))
            .collect();
        sizes.dedup();
        sizes
    }
}
