//! The run: starts servers and workers, and has the contenders take turns.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io::Write as _;
use std::time::Duration;

use crate::Error;
use crate::contender::Contender;
use crate::gate::{self, Gate};
use crate::job::{Done, Job};
use crate::machine::Reading;
use crate::options::Options;
use crate::process::Worker;
use crate::report::{Measured, Report, ScenarioReport};
use crate::scenario::{self, Effort, Scenario};
use crate::servers::Servers;

/// Runs what the command line asks for, and returns whether everything was as it must be.
pub(crate) fn run(options: &Options) -> Result<bool, Error> {
    let scenarios = chosen(options)?;
    if options.list {
        print(&list(&scenarios))?;
        return Ok(true);
    }
    let effort = match (options.smoke, options.quick) {
        (true, _) => Effort::Smoke,
        (_, true) => Effort::Quick,
        _ => Effort::Full,
    };
    let mut bench = Bench { effort, servers: Servers::default(), workers: HashMap::new() };
    let mut report = Report::default();
    for scenario in &scenarios {
        let measured = bench.scenario(scenario).map_err(|error| format!("{}: {error}", scenario.name))?;
        print(&format!("{}\n", measured.table(scenario)))?;
        report.scenarios.insert(scenario.name.clone(), measured);
    }
    if effort != Effort::Smoke {
        let judged = |gate: &Gate| Some(gate.judge(&report.scenarios.get(gate.scenario)?.rounds));
        report.gates = gate::ALL.iter().filter_map(judged).collect();
        print(&report.gates_table())?;
    }
    if let Some(path) = &options.json {
        fs::write(path, serde_json::to_string_pretty(&report)?)?;
    }
    Ok(!options.check || report.gates.iter().all(|verdict| verdict.met))
}

/// Returns the scenarios and contenders that the command line names, or all.
fn chosen(options: &Options) -> Result<Vec<Scenario>, Error> {
    let named = |names: &[String], name: &str| names.is_empty() || names.iter().any(|n| name == n);
    let mut scenarios = scenario::all();
    for name in &options.only {
        if !scenarios.iter().any(|scenario| scenario.name.starts_with(name.as_str())) {
            return Err(format!("no scenario's name begins with {name}; --list has them").into());
        }
    }
    scenarios.retain(|scenario| {
        options.only.is_empty() || options.only.iter().any(|name| scenario.name.starts_with(name.as_str()))
    });
    for scenario in &mut scenarios {
        scenario.contenders.retain(|contender| named(&options.contender, contender.name));
    }
    scenarios.retain(|scenario| !scenario.contenders.is_empty());
    if scenarios.is_empty() {
        return Err("no scenario has such a contender; --list has them".into());
    }
    Ok(scenarios)
}

fn list(scenarios: &[Scenario]) -> String {
    let line = |scenario: &Scenario| {
        let names: Vec<_> = scenario.contenders.iter().map(|contender| contender.name).collect();
        format!("{:<18}{}\n{:<18}{}\n", scenario.name, scenario.about, "", names.join(", "))
    };
    scenarios.iter().map(line).collect()
}

/// Not `print!`, which panics if the reader is gone.
fn print(text: &str) -> Result<(), Error> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

struct Bench {
    effort: Effort,
    servers: Servers,
    /// The processes of each contender that has been in this scenario.
    workers: HashMap<&'static str, Vec<Worker>>,
}

impl Bench {
    /// Runs a scenario's rounds.
    fn scenario(&mut self, scenario: &Scenario) -> Result<ScenarioReport, Error> {
        self.servers.start(scenario.ensemble)?;
        for contender in &scenario.contenders {
            self.start(scenario, contender)?;
            // Connects, makes the directories, and fills caches.
            self.round(scenario, contender, self.effort.length() / 2)?;
        }
        let mut rounds = Vec::new();
        for round in 0..self.effort.rounds() {
            // Who comes after whom is different in each round.
            let mut order = scenario.contenders.clone();
            order.rotate_left(round % scenario.contenders.len());
            let mut measured = BTreeMap::new();
            for contender in &order {
                let part = self.round(scenario, contender, self.effort.length())?;
                measured.insert(contender.name.to_owned(), part);
            }
            rounds.push(measured);
        }
        self.workers.clear();
        Ok(ScenarioReport::new(scenario, rounds))
    }

    /// Starts the processes of a contender.
    fn start(&mut self, scenario: &Scenario, contender: &Contender) -> Result<(), Error> {
        let workers = self.workers.entry(contender.name).or_default();
        while workers.len() < scenario.processes {
            workers.push(Worker::start(contender.name, contender.program.command()?)?);
        }
        Ok(())
    }

    /// Has a contender run its part of a round.
    fn round(
        &mut self,
        scenario: &Scenario,
        contender: &Contender,
        length: Duration,
    ) -> Result<Measured, Error> {
        let servers = self.servers.connect_string(scenario.ensemble)?;
        let mut job = scenario.job(contender, length, servers);
        let shared = if scenario.processes > 1 { Some(SharedCounters::new(scenario.paths())?) } else { None };
        job.counter_file = shared.as_ref().map(SharedCounters::path);
        let ours = self.processes();
        let (before, packets) = (Reading::now(&ours)?, self.servers.packets_received(scenario.ensemble)?);
        let workers = self.workers.get_mut(contender.name).ok_or("this contender was not started")?;
        let done = together(workers, &job)?;
        let (after, later) = (Reading::now(&ours)?, self.servers.packets_received(scenario.ensemble)?);
        let question = self.servers.packets_of_a_question(scenario.ensemble);
        let lost: u64 = match &shared {
            None => done.iter().map(|done| done.lost_updates).sum(),
            Some(counters) => {
                let exclusive: u64 = done.iter().map(|d| d.exclusive_cycles.unwrap_or(d.cycles)).sum();
                exclusive.abs_diff(counters.sum()?)
            }
        };
        if lost > 0 && contender.excludes() {
            return Err(format!("{}: {lost} lost updates: the lock does not exclude", contender.name).into());
        }
        let requests = (later - packets).saturating_sub(question);
        Ok(Measured::new(&done, Some(requests), after.since(before)))
    }

    /// The processes that belong to the run.
    fn processes(&self) -> Vec<u32> {
        let workers = self.workers.values().flatten().map(Worker::id);
        self.servers.ids().into_iter().chain(workers).collect()
    }
}

/// Has all processes of a contender run the same round.
fn together(workers: &mut [Worker], job: &Job) -> Result<Vec<Done>, Error> {
    for worker in &mut *workers {
        worker.begin(job)?;
    }
    workers.iter_mut().map(|worker| worker.end(job)).collect()
}

/// A file of counters for the processes of a contender, which the lock alone protects.
struct SharedCounters(tempfile::NamedTempFile);

impl SharedCounters {
    fn new(paths: usize) -> Result<Self, Error> {
        let file = tempfile::Builder::new().prefix("lockbench-").tempfile_in("/dev/shm")?;
        file.as_file().set_len(8 * paths as u64)?;
        Ok(Self(file))
    }

    fn path(&self) -> String {
        self.0.path().display().to_string()
    }

    fn sum(&self) -> Result<u64, Error> {
        let bytes = fs::read(self.0.path())?;
        let counters = bytes.chunks_exact(8).filter_map(|bytes| bytes.try_into().ok());
        Ok(counters.map(u64::from_ne_bytes).sum())
    }
}
