//! The run: starts servers and workers, and has the contenders take turns.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use test_support::peers;

use crate::Error;
use crate::contender::{Contender, Processes};
use crate::gate;
use crate::machine::{Memory, Reading};
use crate::markdown;
use crate::options::Options;
use crate::plot;
use crate::process::Worker;
use crate::programs::{self, Programs};
use crate::report::{Measured, Report, Round, ScenarioReport};
use crate::scenario::{self, Effort, Scenario};
use crate::servers::Servers;
use crate::turn::{self, NodeCount, SharedCounters};

/// The number of tasks from which their memory is measured.
const CROWD: usize = 10_000;

/// Does what the command line asks for, and returns whether everything was as it must be.
pub(crate) fn run(options: &Options) -> Result<bool, Error> {
    if options.list {
        print(&list(&chosen(options, Effort::Full)?))?;
        return Ok(true);
    }
    let mut report = match &options.from {
        Some(path) => serde_json::from_slice(&named(path, fs::read(path))?)?,
        None => measure(options)?,
    };
    if !options.smoke {
        report.gates = gate::judge(&report.scenarios);
        print(&report.gates_table())?;
    }
    if let Some(path) = &options.json {
        named(
            path,
            fs::write(path, serde_json::to_string_pretty(&report)?),
        )?;
    }
    if let Some(directory) = &options.svg {
        named(directory, fs::create_dir_all(directory))?;
        for (file, svg) in plot::draw(&report) {
            let path = directory.join(file);
            named(&path, fs::write(&path, svg))?;
        }
    }
    if let Some(directory) = &options.markdown {
        named(directory, fs::create_dir_all(directory))?;
        let files = markdown::files(&report, &scenario::all())?;
        for (ending, text) in [
            (".md", files.page),
            (".csv", files.figures),
            ("-ratios.csv", files.ratios),
        ] {
            let path = directory.join(format!("{}{ending}", files.name));
            named(&path, fs::write(&path, text))?;
        }
    }
    let lost = report.lost_updates();
    if !lost.is_empty() {
        return Err(format!("two held a lock at once: {}", lost.join(", ")).into());
    }
    Ok(!options.check || report.gates.iter().all(|verdict| verdict.met))
}

/// Makes an error name the file that it is about.
fn named<T>(path: &Path, result: Result<T, impl std::fmt::Display>) -> Result<T, Error> {
    result.map_err(|error| format!("{}: {error}", path.display()).into())
}

/// Runs all scenarios, and prints the result of each when it ends.
fn measure(options: &Options) -> Result<Report, Error> {
    let effort = match (options.smoke, options.quick) {
        (true, _) => Effort::Smoke,
        (_, true) => Effort::Quick,
        _ => Effort::Full,
    };
    let mut scenarios = chosen(options, effort)?;
    if effort == Effort::Smoke {
        scenarios = scenarios.into_iter().map(Scenario::small).collect();
    }
    let started = Instant::now();
    let mut bench = Bench {
        effort,
        beside: options.beside.clone(),
        programs: Programs::default(),
        servers: Servers::default(),
        workers: HashMap::new(),
        lost_updates: BTreeMap::new(),
    };
    let mut report = Report::default();
    for scenario in &scenarios {
        let measured = bench
            .scenario(scenario)
            .map_err(|error| format!("{}: {error}", scenario.name))?;
        print(&format!("{}\n", measured.table(scenario)))?;
        report.scenarios.insert(scenario.name.clone(), measured);
    }
    print(&format!("{:.0} s\n\n", started.elapsed().as_secs_f64()))?;
    report.machine = machine(&bench, started.elapsed());
    Ok(report)
}

/// Returns the scenarios and contenders that the command line names, or all that the effort has.
fn chosen(options: &Options, effort: Effort) -> Result<Vec<Scenario>, Error> {
    let begins = |scenario: &Scenario, name: &String| scenario.name.starts_with(name.as_str());
    let mut scenarios = scenario::all();
    for name in &options.only {
        if !scenarios.iter().any(|scenario| begins(scenario, name)) {
            return Err(format!("no scenario's name begins with {name}; --list has them").into());
        }
    }
    scenarios.retain(|scenario| match options.only.as_slice() {
        [] => scenario.from <= effort,
        names => names.iter().any(|name| begins(scenario, name)),
    });
    if options.beside.is_some() {
        for scenario in &mut scenarios {
            let twins: Vec<_> = scenario
                .contenders
                .iter()
                .filter_map(Contender::twin)
                .collect();
            scenario.contenders.extend(twins);
        }
    }
    if !options.contender.is_empty() {
        for scenario in &mut scenarios {
            scenario
                .contenders
                .retain(|contender| options.contender.iter().any(|n| n == contender.name));
        }
    }
    scenarios.retain(|scenario| !scenario.contenders.is_empty());
    if scenarios.is_empty() {
        return Err("no scenario has such a contender; --list has them".into());
    }
    Ok(scenarios)
}

fn list(scenarios: &[Scenario]) -> String {
    let mut absent = BTreeMap::new();
    let mut text = String::new();
    for scenario in scenarios {
        let names: Vec<_> = scenario
            .contenders
            .iter()
            .map(|contender| contender.name)
            .collect();
        let full = if scenario.from == Effort::Full {
            " (not with --quick)"
        } else {
            ""
        };
        text += &format!(
            "{:<22}{}{full}\n{:<22}{}\n",
            scenario.name,
            scenario.about,
            "",
            names.join(", ")
        );
        for contender in &scenario.contenders {
            if let Some(why) = contender.absence() {
                absent.insert(contender.name, why);
            }
        }
    }
    for (name, why) in absent {
        text += &format!("{name} does not take part: {why}\n");
    }
    text
}

/// Returns the properties of the machine and the run that help to compare two runs.
fn machine(bench: &Bench, took: Duration) -> BTreeMap<String, String> {
    let mut facts = bench.servers.versions();
    facts.extend(bench.programs.versions());
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    if let Some((_, model)) = model {
        facts.insert("processor".to_owned(), model.to_owned());
    }
    let processors = std::thread::available_parallelism().map_or(0, std::num::NonZeroUsize::get);
    facts.insert("processors".to_owned(), processors.to_string());
    facts.insert(
        "effort".to_owned(),
        format!("{:?}", bench.effort).to_lowercase(),
    );
    facts.insert("seconds".to_owned(), took.as_secs().to_string());
    let commit = [
        "describe",
        "--always",
        "--dirty",
        "--abbrev=7",
        "--exclude=*",
    ];
    facts.extend(output("git", &commit).map(|commit| (markdown::COMMIT.to_owned(), commit)));
    facts.extend(output("date", &["-u", "+%F"]).map(|date| (markdown::DATE.to_owned(), date)));
    facts
}

/// Returns the output of a program; `None` if it fails.
fn output(program: &str, arguments: &[&str]) -> Option<String> {
    let output = std::process::Command::new(program).args(arguments).output();
    let output = output.ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Not `print!`, which panics if the reader is gone.
fn print(text: &str) -> Result<(), Error> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

struct Bench {
    effort: Effort,
    /// The path of another build of this program.
    beside: Option<PathBuf>,
    programs: Programs,
    servers: Servers,
    /// The processes that run, by [`Contender::processes`].
    workers: HashMap<Processes, Vec<Worker>>,
    /// The lost updates of the present scenario, by contender.
    lost_updates: BTreeMap<String, u64>,
}

impl Bench {
    /// Runs a scenario's rounds.
    fn scenario(&mut self, scenario: &Scenario) -> Result<ScenarioReport, Error> {
        let (mut present, mut absent, mut bytes_per_task) =
            (Vec::new(), BTreeMap::new(), BTreeMap::new());
        for contender in &scenario.contenders {
            if let Some(why) = contender.absence() {
                if peers::required() && contender.program.missing().is_some() {
                    return Err(
                        format!("{}: {why}, and REQUIRE_PEERS is set", contender.name).into(),
                    );
                }
                absent.insert(contender.name.to_owned(), why);
                continue;
            }
            self.start(scenario, contender)?;
            if let Some(bytes) = self.warm_up(scenario, contender)? {
                bytes_per_task.insert(contender.name.to_owned(), bytes);
            }
            present.push(*contender);
        }
        let mut rounds = Vec::new();
        for number in 0..scenario.rounds(self.effort) {
            // The order of the contenders differs in each round.
            let mut order = present.clone();
            order.rotate_left(number.checked_rem(present.len()).unwrap_or(0));
            let mut round = Round::new();
            for contender in &order {
                let measured = self.part(scenario, contender, self.effort.length())?;
                round.insert(contender.name.to_owned(), measured);
            }
            rounds.push(round);
        }
        self.workers.retain(|whose, workers| {
            workers.truncate(1);
            matches!(whose, Processes::OfProgram(_))
        });
        let lost_updates = std::mem::take(&mut self.lost_updates);
        Ok(ScenarioReport {
            absent,
            bytes_per_task,
            lost_updates,
            ..ScenarioReport::new(scenario, rounds)
        })
    }

    /// Starts the processes of a contender, and what they connect to.
    fn start(&mut self, scenario: &Scenario, contender: &Contender) -> Result<(), Error> {
        let workers = self.workers.entry(contender.processes()).or_default();
        while workers.len() < scenario.processes {
            let command = match &self.beside {
                Some(build) if contender.beside => programs::worker(build, contender.program),
                _ => self.programs.command(contender.program)?,
            };
            workers.push(Worker::start(contender.name, command)?);
        }
        self.servers
            .connect_string(contender.program, scenario.place)
            .map(drop)
    }

    /// Makes a contender connect, create its directories, and fill caches, untimed. For a crowd,
    /// returns the bytes that each task has in memory.
    fn warm_up(
        &mut self,
        scenario: &Scenario,
        contender: &Contender,
    ) -> Result<Option<f64>, Error> {
        if self.effort == Effort::Smoke {
            return Ok(None);
        }
        let memory = |bench: &Self| Memory::of(bench.processes_of(scenario, contender));
        let few = scenario.few();
        let crowd = scenario.all_tasks() >= CROWD;
        if crowd {
            // The memory of few tasks is measured first: each process has a connection and a
            // runtime.
            self.part(&few, contender, Duration::ZERO)?;
        }
        let before = memory(self)?;
        let started = Instant::now();
        let workers = self
            .workers
            .get(&contender.processes())
            .into_iter()
            .flatten();
        let cold = !workers.take(scenario.processes).all(Worker::is_warm);
        let least = contender.program.warm_up().filter(|_| cold);
        self.part(scenario, contender, self.effort.length() / 2)?;
        let used = memory(self)?.peak.saturating_sub(before.resident);
        while least.is_some_and(|least| started.elapsed() < least) {
            self.part(scenario, contender, self.effort.length())?;
        }
        if least.is_some() {
            self.workers
                .get_mut(&contender.processes())
                .into_iter()
                .flatten()
                .for_each(Worker::set_warm);
        }
        let more = scenario.all_tasks().saturating_sub(few.all_tasks());
        Ok(crowd.then(|| used as f64 / more as f64))
    }

    /// Makes a contender run its part of a round.
    fn part(
        &mut self,
        scenario: &Scenario,
        contender: &Contender,
        length: Duration,
    ) -> Result<Measured, Error> {
        let servers = self
            .servers
            .connect_string(contender.program, scenario.place)?;
        let mut job = scenario.job(contender, length, servers);
        let shared = if scenario.processes > 1 {
            Some(SharedCounters::new(scenario.paths)?)
        } else {
            None
        };
        job.counter_file = shared.as_ref().map(SharedCounters::path);
        let ours = self.all_processes();
        let (before, requests) = (Reading::now(&ours)?, self.requests(scenario, contender)?);
        let nodes = match scenario.all_tasks() {
            CROWD.. => NodeCount::start(&self.servers, scenario.place.ensemble, &job.root),
            _ => None,
        };
        let workers = self
            .workers
            .get_mut(&contender.processes())
            .ok_or("this contender was not started")?;
        let workers = workers
            .get_mut(..scenario.processes)
            .ok_or("too few processes")?;
        let turn = turn::together(workers, &job)?;
        let lock_nodes = nodes.map(NodeCount::most);
        let (after, later) = (Reading::now(&ours)?, self.requests(scenario, contender)?);
        let lost = match &shared {
            None => turn.lost_updates,
            Some(counters) => turn.lost_updates + turn.exclusive_cycles.abs_diff(counters.sum()?),
        };
        if lost > 0 && contender.excludes() {
            *self
                .lost_updates
                .entry(contender.name.to_owned())
                .or_default() += lost;
        }
        let mut measured = Measured::new(&turn.measured, after.since(before));
        measured.lock_nodes = lock_nodes;
        measured.resident_bytes =
            Some(Memory::of(self.processes_of(scenario, contender))?.resident);
        measured.requests = requests.zip(later).map(|(before, later)| {
            let asked = self.servers.requests_of_a_question(scenario.place.ensemble);
            later.saturating_sub(before).saturating_sub(asked)
        });
        Ok(measured)
    }

    /// Returns how many requests the servers of a contender have received, if they count them.
    fn requests(&self, scenario: &Scenario, contender: &Contender) -> Result<Option<u64>, Error> {
        // The servers count all, and of those who wait while one gives up, one is measured.
        let all = scenario.give_up_micros.is_none();
        match contender.program.is_on_zookeeper() && all {
            true => self.servers.requests(scenario.place.ensemble).map(Some),
            false => Ok(None),
        }
    }

    /// Returns the processes of a contender in a scenario.
    fn processes_of(&self, scenario: &Scenario, contender: &Contender) -> Vec<u32> {
        let workers = self
            .workers
            .get(&contender.processes())
            .into_iter()
            .flatten();
        workers.take(scenario.processes).map(Worker::id).collect()
    }

    /// Returns the processes that belong to the run.
    fn all_processes(&self) -> Vec<u32> {
        let workers = self.workers.values().flatten().map(Worker::id);
        self.servers.ids().into_iter().chain(workers).collect()
    }
}
