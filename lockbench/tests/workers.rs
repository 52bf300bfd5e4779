//! Each worker does what the orchestrator asks of it, excludes, and sees when a lock does not.
#![expect(
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking; clippy knows this only of #[test] functions"
)]

use std::error::Error;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::OnceLock;

use serde_json::{Value, json};
use test_support::peers::{self, Missing};
use test_support::{Redis, Suite, shared_standalone, unique_path};

type Outcome = Result<(), Box<dyn Error + Send + Sync>>;

/// A worker, the recipes that it has, and whether it shares lock objects.
struct Contender {
    worker: &'static str,
    recipes: &'static [&'static str],
    shares: bool,
}

const CONTENDERS: [Contender; 6] = [
    Contender {
        worker: "bare",
        recipes: &[],
        shares: false,
    },
    Contender {
        worker: "ours",
        recipes: &["mutex", "fair", "read_write"],
        shares: true,
    },
    Contender {
        worker: "client_lock",
        recipes: &["mutex"],
        shares: false,
    },
    Contender {
        worker: "curator",
        recipes: &["mutex", "read_write"],
        shares: true,
    },
    Contender {
        worker: "kazoo",
        recipes: &["mutex"],
        shares: true,
    },
    Contender {
        worker: "redis",
        recipes: &["mutex"],
        shares: true,
    },
];

fn main() {
    let mut suite = Suite::new();
    for Contender {
        worker,
        recipes,
        shares,
    } in CONTENDERS
    {
        let mut add =
            |name: String, test: fn(&str, &str, &str) -> Outcome, recipe: &'static str| {
                suite.add_needing(worker, &name, needs(worker), move |()| {
                    with_servers(worker, |servers| test(worker, recipe, servers))
                });
            };
        for recipe in recipes {
            add(
                format!("{recipe}::excludes_tasks_and_sessions"),
                excludes,
                recipe,
            );
            add(
                format!("{recipe}::excludes_processes"),
                excludes_processes,
                recipe,
            );
        }
        if shares {
            add(
                "mutex::excludes_with_shared_object".to_owned(),
                excludes_with_one_object,
                "mutex",
            );
        }
        if matches!(worker, "curator" | "kazoo") {
            add(
                "none::loses_updates_and_reports_them".to_owned(),
                loses_updates,
                "none",
            );
            add(
                "mutex::ten_thousand_threads_are_unsupported".to_owned(),
                refuses_a_crowd,
                "mutex",
            );
        }
        if worker == "bare" {
            add(
                "no_lock::loses_updates_and_reports_them".to_owned(),
                loses_updates,
                "mutex",
            );
        }
        if worker == "redis" {
            add(
                "read_write::is_unsupported".to_owned(),
                refuses,
                "read_write",
            );
        }
    }
    suite.run()
}

/// Returns whether the servers and the language of a worker are installed.
fn needs(worker: &str) -> Result<(), Missing> {
    if worker == "redis" {
        return peers::redis().map(drop);
    }
    peers::zookeeper()?;
    match worker {
        "curator" => peers::curator().map(drop),
        "kazoo" => peers::kazoo().map(drop),
        _ => Ok(()),
    }
}

fn with_servers(worker: &str, test: impl FnOnce(&str) -> Outcome) -> Outcome {
    if worker == "redis" {
        let server = Redis::start().map_err(|e| e.to_string())?;
        return test(&server.address().to_string());
    }
    test(
        &shared_standalone()
            .map_err(|e| e.to_string())?
            .connect_string(),
    )
}

fn command(worker: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lockbench"));
    command.args(["worker", worker]);
    command
}

/// Where Curator's worker is compiled, once for all: to compile it takes longer than to run it.
fn classes() -> &'static Path {
    static CLASSES: OnceLock<PathBuf> = OnceLock::new();
    CLASSES.get_or_init(|| {
        let classes = Path::new(env!("CARGO_TARGET_TMPDIR")).join("curator");
        // The directory may have the classes of an earlier run.
        drop(fs::remove_dir_all(&classes));
        fs::create_dir_all(&classes).expect("a directory");
        // The worker has nothing to do, so it ends.
        let status = command("curator")
            .arg("--classes")
            .arg(&classes)
            .stdin(Stdio::null())
            .status();
        assert!(
            status.expect("a worker").success(),
            "Curator's worker cannot be compiled"
        );
        classes
    })
}

/// A worker's process.
struct Worker {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Worker {
    fn start(name: &str) -> Self {
        let mut command = command(name);
        if name == "curator" {
            command.arg("--classes").arg(classes());
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("a worker");
        let (orders, answers) = (
            child.stdin.take().expect("piped"),
            child.stdout.take().expect("piped"),
        );
        Self {
            child,
            orders,
            answers: BufReader::new(answers),
        }
    }

    fn begin(&mut self, job: &Value) -> Outcome {
        Ok(writeln!(self.orders, "{}", json!({ "run": job }))?)
    }

    fn end(&mut self) -> Result<Value, Box<dyn Error + Send + Sync>> {
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        Ok(serde_json::from_str(&line).map_err(|e| format!("{line:?}: {e}"))?)
    }

    fn run(&mut self, job: &Value) -> Result<Value, Box<dyn Error + Send + Sync>> {
        self.begin(job)?;
        self.end()
    }

    /// Closes the input of the worker, which must then end.
    fn finish(self) -> Outcome {
        let Self {
            mut child,
            orders,
            answers,
        } = self;
        drop(orders);
        let status = child.wait()?;
        drop(answers);
        if status.success() {
            Ok(())
        } else {
            Err(format!("{status}").into())
        }
    }
}

fn job(recipe: &str, servers: &str) -> Value {
    json!({
        "scenario": "test", "recipe": recipe, "sessions": 2, "tasks": 3, "paths": 1,
        "read_percent": if recipe == "read_write" { 50 } else { 0 },
        "release": "awaited", "objects": "per_task", "keep_from_succession": false, "hold_micros": 500,
        // Cycles end a round, not the time: on a busy machine a worker that has just started is
        // slow.
        "micros": 60_000_000, "cycles_per_task": 10,
        "root": unique_path("lockbench"), "servers": servers, "counter_file": null,
    })
}

fn number(answer: &Value, member: &str) -> u64 {
    answer[member]
        .as_u64()
        .unwrap_or_else(|| panic!("{member} in {answer}"))
}

/// An answer is complete, and no update is lost.
fn assert_excluded(answer: &Value) {
    assert_eq!(
        number(answer, "cycles"),
        60,
        "ten for each of six tasks: {answer}"
    );
    assert_eq!(number(answer, "lost_updates"), 0, "{answer}");
    for member in ["elapsed_micros", "cpu_micros"] {
        assert!(
            answer[member].as_f64().is_some_and(|n| n >= 0.0),
            "{member} in {answer}"
        );
    }
    let percentiles =
        ["p50", "p90", "p99", "p999", "max"].map(|name| answer["latency_micros"][name].as_f64());
    assert!(
        percentiles.iter().all(Option::is_some) && percentiles.is_sorted(),
        "{answer}"
    );
}

fn excludes(worker: &str, recipe: &str, servers: &str) -> Outcome {
    let mut worker = Worker::start(worker);
    let mut job = job(recipe, servers);
    // Sessions and lock objects stay for the second round, and are others in the third.
    for paths in [1, 1, 2] {
        if paths == 2 {
            job["root"] = unique_path("lockbench").into();
        }
        job["paths"] = paths.into();
        let answer = worker.run(&job)?;
        assert_excluded(&answer);
        if recipe != "read_write" {
            assert_eq!(
                number(&answer, "exclusive_cycles"),
                number(&answer, "cycles"),
                "{answer}"
            );
        }
    }
    worker.finish()
}

fn excludes_with_one_object(worker: &str, recipe: &str, servers: &str) -> Outcome {
    let mut worker = Worker::start(worker);
    let mut job = job(recipe, servers);
    job["objects"] = "shared".into();
    assert_excluded(&worker.run(&job)?);
    worker.finish()
}

fn excludes_processes(worker: &str, recipe: &str, servers: &str) -> Outcome {
    let counters = tempfile::NamedTempFile::new()?;
    counters.as_file().set_len(8)?;
    let mut job = job(recipe, servers);
    job["counter_file"] = counters.path().to_string_lossy().into();
    let mut workers: Vec<_> = (0..2).map(|_| Worker::start(worker)).collect();
    workers
        .iter_mut()
        .try_for_each(|worker| worker.begin(&job))?;
    let mut exclusive = 0;
    for worker in &mut workers {
        let answer = worker.end()?;
        assert_excluded(&answer);
        exclusive += number(&answer, "exclusive_cycles");
    }
    let counted = fs::read(counters.path())?
        .try_into()
        .map(u64::from_ne_bytes);
    assert_eq!(counted, Ok(exclusive));
    assert!(exclusive > 0);
    workers.into_iter().try_for_each(Worker::finish)
}

fn loses_updates(worker: &str, recipe: &str, servers: &str) -> Outcome {
    let mut worker = Worker::start(worker);
    let answer = worker.run(&job(recipe, servers))?;
    assert!(number(&answer, "lost_updates") > 0, "{answer}");
    worker.finish()
}

fn refuses_a_crowd(worker: &str, recipe: &str, servers: &str) -> Outcome {
    let mut crowd = job(recipe, servers);
    crowd["tasks"] = 10_000.into();
    refused(worker, &crowd, &job(recipe, servers))
}

fn refuses(worker: &str, recipe: &str, servers: &str) -> Outcome {
    refused(worker, &job(recipe, servers), &job("mutex", servers))
}

/// Asserts that a worker reports a job that it cannot do, and then does another.
fn refused(worker: &str, job: &Value, other: &Value) -> Outcome {
    let mut worker = Worker::start(worker);
    let answer = worker.run(job)?;
    assert!(
        answer["error"]
            .as_str()
            .is_some_and(|error| error.starts_with("unsupported: ")),
        "{answer}"
    );
    assert_excluded(&worker.run(other)?);
    worker.finish()
}
