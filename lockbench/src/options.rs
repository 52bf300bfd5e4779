//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::matrix::Fault;

/// Measures locks beside each other: this workspace's, the two bare writes below them,
/// `Client::lock`, Java Curator, kazoo and Redis, in interleaved rounds, on servers that it starts
/// itself.
#[derive(Debug, Parser)]
#[command(name = "lockbench")]
pub(crate) struct Options {
    /// Shorter rounds: the whole run takes less than ten minutes.
    #[arg(long)]
    pub(crate) quick: bool,
    /// Exits with 1 if a gate is missed, and prints which.
    #[arg(long)]
    pub(crate) check: bool,
    /// Runs one short round of each scenario, which shows that all work and all locks exclude, and
    /// measures nothing.
    #[arg(long, conflicts_with_all = ["quick", "check"])]
    pub(crate) smoke: bool,
    /// Writes everything that was measured to a file.
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Draws what was measured, as SVG files in a directory.
    #[arg(long, value_name = "DIR")]
    pub(crate) svg: Option<PathBuf>,
    /// Writes what was measured to files in a directory, such as docs/benchmarks, that are named by
    /// date and commit: a page with the gates, and all figures as comma-separated values.
    #[arg(long, value_name = "DIR")]
    pub(crate) markdown: Option<PathBuf>,
    /// Measures nothing, and takes what an earlier run wrote with --json.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["quick", "smoke", "json", "only", "contender", "list"])]
    pub(crate) from: Option<PathBuf>,
    /// Only the scenarios whose names start with this; may be repeated.
    #[arg(long, value_name = "SCENARIO")]
    pub(crate) only: Vec<String>,
    /// Only these contenders; may be repeated.
    #[arg(long, value_name = "CONTENDER")]
    pub(crate) contender: Vec<String>,
    /// Another build of this program, such as one with a patched `zookeeper-client`
    /// (docs/upstream): what it does is measured too, for comparison only.
    #[arg(long, value_name = "PROGRAM")]
    pub(crate) beside: Option<PathBuf>,
    /// Prints what is measured, and measures nothing.
    #[arg(long)]
    pub(crate) list: bool,
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Runs as the worker of a contender: what the orchestrator starts.
    #[command(hide = true)]
    Worker {
        /// Which.
        name: String,
        /// Where Curator's worker has been compiled to, or is to be, by those who start several.
        #[arg(long, value_name = "DIR")]
        classes: Option<PathBuf>,
    },
    /// Runs as a holder of the matrix: what that starts.
    #[command(hide = true)]
    Holder {
        /// Which.
        name: String,
    },
    /// Compares what locks do when something breaks: holders that are killed, stopped or cut off,
    /// answers that are lost, servers that restart, and updates that a holder makes too late.
    Matrix(MatrixOptions),
}

#[derive(Debug, Args)]
pub(crate) struct MatrixOptions {
    /// How often each fault is made.
    #[arg(long, default_value_t = 5)]
    pub(crate) repeat: usize,
    /// How many seconds each mode of the lock-set lasts; 0 leaves it out.
    #[arg(long, default_value_t = 60)]
    pub(crate) seconds: u64,
    /// The session timeout, and the time to live of a key, in milliseconds.
    #[arg(long, default_value_t = 4000)]
    pub(crate) timeout: u64,
    /// Only these locks; may be repeated.
    #[arg(long, value_name = "LOCK")]
    pub(crate) lock: Vec<String>,
    /// Only these faults; may be repeated.
    #[arg(long, value_name = "FAULT")]
    pub(crate) fault: Vec<Fault>,
    /// Writes everything that was found to a file.
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Makes no fault, and prints the tables of what an earlier run wrote with --json.
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    pub(crate) from: Option<PathBuf>,
}
