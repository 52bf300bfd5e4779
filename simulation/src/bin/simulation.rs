//! Runs worlds; see `--help`.

use std::io;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use simulation::coverage;
use simulation::life::play;
use simulation::plan::Plan;
use simulation::report::Sum;
use simulation::soak::{Log, Seeds};
use simulation::world::{Report, lock};

const HELP: &str = "\
Runs the library, its client and the test server in virtual time, under faults that follow from a seed.

    simulation/run [--seconds S | --cpu-seconds S] [--worlds W] [--from SEED] [--only TEXT]... [--threads N]
                   [--until-violation] [--demand] [--json]
        worlds of one seed after another, for S seconds (60), or seconds of processor time, from a seed on (1), on N
        threads (all); at most W, and only those whose plan has each TEXT, such as 'handoff: 8'; with --demand
        until these are enough for what has to happen in a run to be demanded of it, or it took five times as long,
        and it fails
    simulation/run --hours H [--log FILE]
        the same for hours, with a line of JSON in FILE (simulation/soak.jsonl) every minute; it goes on after the
        last line that is there, with the worlds that were not at their end then
    simulation/run --seed SEED [--quiet]
        one world, with what happens in it by virtual milliseconds
    simulation/run --planted [--record] [NAME..]
    simulation/run --reverted [--record] [NAME..]
        bugs that are put into the library on purpose, and mends of the past that are taken back: each has to be found
    simulation/run --determinism N [--from SEED]
        N seeds, each twice: fails if two runs of a seed differ

Exits with 1 if anything was violated, or if something that has to happen in so many worlds did not.";

struct Options {
    seconds: u64,
    /// The clock that counts `seconds`.
    clock: fn() -> Duration,
    worlds: u64,
    only: Vec<String>,
    from: u64,
    threads: usize,
    until_violation: bool,
    demand: bool,
    json: bool,
    quiet: bool,
    seed: Option<u64>,
    determinism: Option<u64>,
    hours: Option<f64>,
    log: String,
}

impl Options {
    fn wants(&self, seed: u64) -> bool {
        self.only.is_empty() || {
            let plan = format!("{:?}", Plan::of(seed));
            self.only.iter().all(|text| plan.contains(text))
        }
    }
}

fn options() -> Result<Options, String> {
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let mut options = Options {
        seconds: 60,
        clock: simnet::real_now,
        worlds: u64::MAX,
        only: Vec::new(),
        from: 1,
        threads,
        until_violation: false,
        demand: false,
        json: false,
        quiet: false,
        seed: None,
        determinism: None,
        hours: None,
        log: "soak.jsonl".to_owned(),
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let mut value = || {
            arguments
                .next()
                .ok_or_else(|| format!("{name} takes a value"))
        };
        let mut number = || {
            let value = value()?;
            value
                .parse::<u64>()
                .map_err(|_| format!("{name} takes a number, not {value:?}"))
        };
        match name.as_str() {
            "--seconds" => options.seconds = number()?,
            "--cpu-seconds" => {
                options.seconds = number()?;
                options.clock = simnet::cpu_now;
            }
            "--worlds" => options.worlds = number()?,
            "--only" => options.only.push(value()?),
            "--from" => options.from = number()?,
            "--threads" => options.threads = number()?.clamp(1, 1024) as usize,
            "--seed" => options.seed = Some(number()?),
            "--determinism" => options.determinism = Some(number()?),
            "--hours" => {
                let value = value()?;
                let hours = value
                    .parse()
                    .ok()
                    .filter(|hours| *hours > 0.0 && *hours < 1e6);
                options.hours =
                    Some(hours.ok_or_else(|| format!("--hours takes hours, not {value:?}"))?);
            }
            "--log" => options.log = value()?,
            "--until-violation" => options.until_violation = true,
            "--demand" => options.demand = true,
            "--json" => options.json = true,
            "--quiet" => options.quiet = true,
            "--help" | "-h" => return Err(String::new()),
            other => return Err(format!("unknown option {other}")),
        }
    }
    Ok(options)
}

fn code(fine: bool) -> ExitCode {
    if fine {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Runs a world, with its trace.
fn replay(seed: u64, quiet: bool) -> ExitCode {
    let report = play(Plan::of(seed), !quiet);
    let (entries, hash) = report.log;
    let mut sum = Sum::from_seed(seed);
    sum.add(seed, report);
    println!("{}", sum.json());
    println!("trace {hash:016x} of {entries} entries");
    code(sum.violations == 0)
}

/// Runs seeds on several threads, until there is none.
fn on_threads(options: &Options, next: impl Fn() -> Option<u64> + Sync, run: impl Fn(u64) + Sync) {
    thread::scope(|scope| {
        for _ in 0..options.threads {
            scope.spawn(|| {
                while let Some(seed) = next() {
                    run(seed);
                }
            });
        }
    });
}

/// Runs every seed twice.
fn twice(options: &Options, seeds: u64) -> ExitCode {
    let (next, differ) = (AtomicU64::new(options.from), AtomicU64::new(0));
    let end = options.from.saturating_add(seeds);
    on_threads(
        options,
        || Some(next.fetch_add(1, Ordering::Relaxed)).filter(|seed| *seed < end),
        |seed| {
            let (one, other) = (play(Plan::of(seed), false), play(Plan::of(seed), false));
            if one != other {
                differ.fetch_add(1, Ordering::Relaxed);
                println!("seed {seed} differs:\n{one:?}\n{other:?}");
            }
        },
    );
    let differ = differ.into_inner();
    println!("{seeds} seeds twice: {differ} differ");
    code(differ == 0)
}

/// Runs one seed after another, on several threads, for `limit`. `seen` is called with the sum
/// after each world.
fn worlds(options: &Options, sum: Sum, limit: Duration, seen: impl Fn(&Sum) + Sync) -> Sum {
    let (began, clock, clock_began) = (simnet::real_now(), options.clock, (options.clock)());
    let before = sum.seconds;
    let (seeds, stop) = (Mutex::new(Seeds::after(&sum)), AtomicBool::new(false));
    let (begun, most) = (
        AtomicU64::new(sum.worlds),
        sum.worlds.saturating_add(options.worlds),
    );
    let sum = Mutex::new(sum);
    let add = |seed, report: Report| {
        for text in &report.violations {
            eprintln!("VIOLATION {text}");
        }
        if options.until_violation && !report.violations.is_empty() {
            stop.store(true, Ordering::Relaxed);
        }
        let mut sum = lock(&sum);
        sum.add(seed, report);
        {
            let mut seeds = lock(&seeds);
            seeds.ended(seed);
            sum.unfinished = seeds.unfinished(sum.last_seed);
        }
        sum.seconds = before + (simnet::real_now() - began).as_secs_f64();
        seen(&sum);
    };
    on_threads(
        options,
        || {
            let begins = |begun: u64| (begun < most).then_some(begun + 1);
            let begun = begun
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, begins)
                .ok()?;
            let goes_on = || coverage::goes_on(begun, clock() - clock_began, limit, options.demand);
            while goes_on() && !stop.load(Ordering::Relaxed) {
                let seed = lock(&seeds).begin();
                if options.wants(seed) {
                    return Some(seed);
                }
                lock(&seeds).ended(seed);
            }
            None
        },
        |seed| add(seed, play(Plan::of(seed), false)),
    );
    sum.into_inner()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Returns whether a run is fine: nothing was violated, and what has to happen has happened, unless
/// only some worlds were run.
fn judged(options: &Options, sum: &Sum) -> ExitCode {
    let all = options.only.is_empty() && !options.until_violation;
    let missing = if all {
        coverage::missing(sum)
    } else {
        Vec::new()
    };
    let unknown = coverage::unknown(sum);
    let enough = if options.demand {
        coverage::enough(sum.worlds)
    } else {
        Ok(())
    };
    if let Err(text) = &enough {
        eprintln!("TOO FEW {text}, see coverage.rs");
    }
    for name in &missing {
        eprintln!(
            "NEVER SEEN {name}: in {} worlds, see coverage.rs",
            sum.worlds
        );
    }
    for name in &unknown {
        eprintln!("NOT EXPECTED {name}: see coverage.rs");
    }
    code(sum.violations == 0 && enough.is_ok() && missing.is_empty() && unknown.is_empty())
}

/// Runs worlds for some seconds.
fn many(options: &Options) -> ExitCode {
    let sum = worlds(
        options,
        Sum::from_seed(options.from),
        Duration::from_secs(options.seconds),
        |_: &Sum| (),
    );
    println!("{}", if options.json { sum.json() } else { sum.text() });
    judged(options, &sum)
}

/// Runs worlds for some hours, from where the log ends.
fn soak(options: &Options, hours: f64) -> io::Result<ExitCode> {
    let (log, sum) = Log::open(&options.log)?;
    let sum = sum.unwrap_or_else(|| Sum::from_seed(options.from));
    let last = Mutex::new(simnet::real_now());
    let sum = worlds(
        options,
        sum,
        Duration::from_secs_f64(hours * 3600.0),
        |sum: &Sum| {
            let mut last = lock(&last);
            if simnet::real_now() - *last >= Duration::from_secs(60) {
                *last = simnet::real_now();
                // The last line reports a log that cannot be written.
                let _ = log.add(sum);
            }
        },
    );
    log.add(&sum)?;
    println!("{}", if options.json { sum.json() } else { sum.text() });
    Ok(judged(options, &sum))
}

fn main() -> ExitCode {
    match options() {
        Ok(options) => match (options.seed, options.determinism, options.hours) {
            (Some(seed), ..) => replay(seed, options.quiet),
            (None, Some(seeds), _) => twice(&options, seeds),
            (None, None, Some(hours)) => soak(&options, hours).unwrap_or_else(|error| {
                eprintln!("{}: {error}", options.log);
                ExitCode::from(2)
            }),
            (None, None, None) => many(&options),
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
