//! The messages between the orchestrator and a worker: one JSON object per line, orders on the
//! worker's stdin and answers on its stdout.

use serde::{Deserialize, Serialize};

/// An order to a worker, which also quits at the end of its input.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Order {
    /// Run one round.
    Run(Job),
    /// End.
    Quit(bool),
}

/// The answer of a worker to [`Order::Run`].
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum Answer {
    /// The round was run.
    Done(Done),
    /// The round failed.
    Failed {
        /// Why.
        error: String,
    },
}

/// Which lock to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Recipe {
    Mutex,
    Fair,
    ReadWrite,
}

/// How a lock is released.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Release {
    /// The next cycle begins when the servers have confirmed it.
    Awaited,
    /// The lock is released in the background.
    Dropped,
}

/// Whether the tasks of a session share one lock object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Objects {
    PerTask,
    Shared,
}

/// One round: the contenders, their locks, and the duration.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Job {
    pub(crate) scenario: String,
    pub(crate) recipe: Recipe,
    pub(crate) sessions: usize,
    /// Per session.
    pub(crate) tasks: usize,
    /// Task i of all uses path i modulo this.
    pub(crate) paths: usize,
    /// How many cycles in a hundred acquire the read lock.
    pub(crate) read_percent: u64,
    pub(crate) release: Release,
    pub(crate) objects: Objects,
    /// Whether a foreign child comes and goes between two cycles, outside of the measured time.
    pub(crate) keep_from_succession: bool,
    /// How long the round lasts: no task begins a cycle after it. Each task has at least one.
    pub(crate) micros: u64,
    /// After how many cycles a task ends although the round lasts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cycles_per_task: Option<u64>,
    /// How long a task holds the lock while it counts, so that a lock that does not exclude is
    /// found out. 0 where time is measured.
    #[serde(default)]
    pub(crate) hold_micros: u64,
    /// The lock is held, all tasks but one wait for it, and the cycles of that one are to ask for
    /// it, to wait for so long, and to give up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) give_up_micros: Option<u64>,
    /// The beginning of all paths.
    pub(crate) root: String,
    pub(crate) servers: String,
    /// Where processes that share the paths count; in memory by default.
    pub(crate) counter_file: Option<String>,
}

/// The result of a round.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Done {
    /// Acquired and released.
    pub(crate) cycles: u64,
    pub(crate) elapsed_micros: f64,
    /// User and system time of the worker's process during the round.
    pub(crate) cpu_micros: f64,
    /// The time from the call to the grant.
    pub(crate) latency_micros: Latency,
    /// Exclusive cycles that the counters do not show. 0 where there is a counter file, which the
    /// orchestrator compares.
    pub(crate) lost_updates: u64,
    /// How many of the cycles were exclusive, and so are in the counters; by default all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) exclusive_cycles: Option<u64>,
}

/// Percentiles of a round's latencies, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Latency {
    pub(crate) p50: f64,
    pub(crate) p90: f64,
    pub(crate) p99: f64,
    pub(crate) p999: f64,
    pub(crate) max: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    const JOB: &str = r#"{"run": {"scenario": "free_awaited", "recipe": "mutex", "sessions": 1, "tasks": 1,
        "paths": 1, "read_percent": 0, "release": "awaited", "objects": "per_task",
        "keep_from_succession": false, "micros": 1000, "root": "/bench/1", "servers": "127.0.0.1:2181",
        "counter_file": null}}"#;

    #[test]
    fn parses_documented_order() {
        let Order::Run(job) = serde_json::from_str(JOB).unwrap() else {
            panic!("a job")
        };
        assert_eq!(
            (job.recipe, job.release, job.cycles_per_task),
            (Recipe::Mutex, Release::Awaited, None)
        );
        assert!(matches!(
            serde_json::from_str(r#"{"quit": true}"#).unwrap(),
            Order::Quit(true)
        ));
    }

    #[test]
    fn answer_is_result_or_error() {
        let done = r#"{"cycles": 3, "elapsed_micros": 10, "cpu_micros": 4, "lost_updates": 0,
            "latency_micros": {"p50": 1, "p90": 1, "p99": 2, "p999": 2, "max": 2}}"#;
        assert!(matches!(
            serde_json::from_str(done).unwrap(),
            Answer::Done(Done { cycles: 3, .. })
        ));
        let failed = r#"{"error": "no server"}"#;
        assert!(
            matches!(serde_json::from_str(failed).unwrap(), Answer::Failed { error } if error == "no server")
        );
    }
}
