//! Runs worlds; see `--help`.

use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use simulation::day::play;
use simulation::plan::Plan;
use simulation::report::json;
use simulation::world::Report;

const HELP: &str = "\
Runs the library, its client and the test server in virtual time, under faults that follow from a seed.

    simulation/run [--seconds S] [--from SEED] [--threads N] [--until-violation] [--json]
        worlds of one seed after another, for S seconds (60) from a seed on (1), on N threads (all)
    simulation/run --seed SEED [--quiet]
        one world, with what happens in it by virtual milliseconds
    simulation/run --planted [NAME..]
        bugs that are put into the library on purpose, each of which has to be found
    simulation/run --determinism N [--from SEED]
        N seeds, each twice: fails if two runs of a seed differ

Exits with 1 if anything was violated.";

struct Options {
    seconds: u64,
    from: u64,
    threads: usize,
    until_violation: bool,
    json: bool,
    quiet: bool,
    seed: Option<u64>,
    determinism: Option<u64>,
}

fn options() -> Result<Options, String> {
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let mut options = Options {
        seconds: 60,
        from: 1,
        threads,
        until_violation: false,
        json: false,
        quiet: false,
        seed: None,
        determinism: None,
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let mut number = || {
            let value = arguments.next().unwrap_or_default();
            value.parse::<u64>().map_err(|_| format!("{name} takes a number, not {value:?}"))
        };
        match name.as_str() {
            "--seconds" => options.seconds = number()?,
            "--from" => options.from = number()?,
            "--threads" => options.threads = number()?.clamp(1, 1024) as usize,
            "--seed" => options.seed = Some(number()?),
            "--determinism" => options.determinism = Some(number()?),
            "--until-violation" => options.until_violation = true,
            "--json" => options.json = true,
            "--quiet" => options.quiet = true,
            "--help" | "-h" => return Err(String::new()),
            other => return Err(format!("unknown option {other}")),
        }
    }
    Ok(options)
}

fn code(fine: bool) -> ExitCode {
    if fine { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// One world, with its trace.
fn replay(seed: u64, quiet: bool) -> ExitCode {
    let report = play(Plan::of(seed), !quiet);
    println!("{}", json((seed, seed), 1, 0.0, &report));
    println!("trace {:016x} of {} entries", report.log.1, report.log.0);
    code(report.violations.is_empty())
}

/// Every seed twice.
fn twice(options: &Options, seeds: u64) -> ExitCode {
    let mut fine = true;
    for seed in options.from..options.from.saturating_add(seeds) {
        let (one, other) = (play(Plan::of(seed), false), play(Plan::of(seed), false));
        if one != other {
            fine = false;
            println!("seed {seed} differs:\n{one:?}\n{other:?}");
        }
    }
    println!("{seeds} seeds twice: {}", if fine { "no difference" } else { "they differ" });
    code(fine)
}

/// One seed after another, on several threads.
fn many(options: &Options) -> ExitCode {
    let began = simnet::real_now();
    let limit = Duration::from_secs(options.seconds);
    let (next, worlds, stop) = (AtomicU64::new(options.from), AtomicU64::new(0), AtomicBool::new(false));
    let sum = Mutex::new(Report::default());
    let add = |report: Report| {
        for text in &report.violations {
            eprintln!("VIOLATION {text}");
        }
        if options.until_violation && !report.violations.is_empty() {
            stop.store(true, Ordering::Relaxed);
        }
        sum.lock().unwrap_or_else(std::sync::PoisonError::into_inner).add(report);
        worlds.fetch_add(1, Ordering::Relaxed);
    };
    thread::scope(|scope| {
        for _ in 0..options.threads {
            scope.spawn(|| {
                while simnet::real_now() - began < limit && !stop.load(Ordering::Relaxed) {
                    add(play(Plan::of(next.fetch_add(1, Ordering::Relaxed)), false));
                }
            });
        }
    });
    let sum = sum.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    let seconds = (simnet::real_now() - began).as_secs_f64();
    let worlds = worlds.into_inner();
    let line = json((options.from, next.into_inner().saturating_sub(1)), worlds, seconds, &sum);
    if options.json {
        println!("{line}");
    } else {
        println!("{}", line.replace(",\"", ",\n \""));
    }
    code(sum.violations.is_empty())
}

fn main() -> ExitCode {
    match options() {
        Ok(options) => match (options.seed, options.determinism) {
            (Some(seed), _) => replay(seed, options.quiet),
            (None, Some(seeds)) => twice(&options, seeds),
            (None, None) => many(&options),
        },
        Err(wrong) if wrong.is_empty() => {
            println!("{HELP}");
            ExitCode::SUCCESS
        }
        Err(wrong) => {
            eprintln!("{wrong}\n\n{HELP}");
            ExitCode::from(2)
        }
    }
}
