//! Measures the locks of this workspace beside others, on servers that it starts itself: all
//! contenders take turns in each round of one run, and what counts is the ratio between two
//! contenders in the same round.
//!
//! The orchestrator asks one worker process per contender; see `job` for what they say to each
//! other.

mod bench;
mod contender;
mod gate;
mod holder;
mod job;
mod machine;
mod markdown;
mod matrix;
mod options;
mod plot;
mod process;
mod programs;
mod proxy;
mod report;
mod scenario;
mod servers;
mod statistics;
mod step;
mod turn;
mod worker;

use std::process::ExitCode;

use clap::Parser as _;

use options::{Command, Options};

type Error = Box<dyn std::error::Error + Send + Sync>;

/// The exit code of a run that missed a gate, or in which a lock did not exclude.
const MISSED: u8 = 1;
/// The exit code of a run that could not do what it was asked for; the same as clap's.
const TROUBLE: u8 = 2;

fn main() -> ExitCode {
    let options = Options::parse();
    let result = match &options.command {
        Some(Command::Worker { name, classes }) => {
            worker::serve(name, classes.as_deref()).map(|()| true)
        }
        Some(Command::Holder { name }) => holder::serve(name).map(|()| true),
        Some(Command::Matrix(options)) => matrix::run(options),
        None => bench::run(&options),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(MISSED),
        Err(error) => {
            eprintln!("lockbench: {error}");
            ExitCode::from(TROUBLE)
        }
    }
}
