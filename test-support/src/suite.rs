//! A test harness that reports the tests that it did not run.

use std::collections::BTreeMap;
use std::env;
use std::fmt;
use std::process;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use libtest_mimic::{Arguments, Completion, Failed, Trial};

use crate::peers::{self, Missing};
use crate::shared::stop_shared;
use crate::wait::PATIENCE;

/// The default time limit of a trial. It is longer than the [wait](PATIENCE) for one event, because
/// the error of that wait is more useful.
const TIME_LIMIT: Duration = PATIENCE.saturating_mul(2);

/// The result of a trial: nothing, or a `Result` whose error describes the failure.
pub trait IntoOutcome {
    /// Returns the trial's result, with an error as text.
    ///
    /// # Errors
    /// The errors are those of the trial.
    fn into_outcome(self) -> Result<(), String>;
}

impl IntoOutcome for () {
    fn into_outcome(self) -> Result<(), String> {
        Ok(())
    }
}

impl<E: fmt::Display> IntoOutcome for Result<(), E> {
    fn into_outcome(self) -> Result<(), String> {
        self.map_err(|e| e.to_string())
    }
}

/// The trials of a test binary with `harness = false`, each under the name of the back-end it runs
/// on.
///
/// A trial whose peer is missing is ignored, and its line and the last line of the output give the
/// reason; with `REQUIRE_PEERS=1` it fails. A trial that does not end within the time limit fails.
///
/// ```no_run
/// use test_support::{Suite, peers, shared_standalone};
///
/// fn main() {
///     let mut suite = Suite::new();
///     suite.add("in-process", "mutex::excludes", || {});
///     suite.add_needing("zookeeper", "mutex::excludes", peers::zookeeper(), |_| {
///         shared_standalone().map(drop)
///     });
///     suite.skip("in-process", "mutex::survives_an_election", "one server has no elections");
///     suite.run()
/// }
/// ```
#[derive(Debug)]
pub struct Suite {
    trials: Vec<Trial>,
    /// Returns the last line of the output after all trials have run, if there is one.
    pub last_line: Option<fn() -> Option<String>>,
    not_run: NotRun,
    limit: Duration,
    at_once: Option<usize>,
    require: bool,
}

/// Why trials were not run, and how many for each reason.
#[derive(Debug, Clone, Default)]
struct NotRun(Arc<Mutex<BTreeMap<String, usize>>>);

impl NotRun {
    fn note(&self, why: &str) {
        *self
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .entry(why.to_owned())
            .or_default() += 1;
    }

    /// Returns `None` if all trials were run.
    fn summary(&self) -> Option<String> {
        let reasons = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let total: usize = reasons.values().sum();
        let each: Vec<_> = reasons
            .iter()
            .map(|(why, n)| format!("{n}: {why}"))
            .collect();
        (total > 0).then(|| format!("not run: {total} ({})", each.join("; ")))
    }
}

impl Default for Suite {
    fn default() -> Self {
        Self::new()
    }
}

impl Suite {
    /// Returns a suite without trials.
    #[must_use]
    pub fn new() -> Self {
        Self {
            trials: Vec::new(),
            last_line: None,
            not_run: NotRun::default(),
            limit: TIME_LIMIT,
            at_once: None,
            require: peers::required(),
        }
    }

    /// Sets the time limit of each trial that is added from now on. Default: ten minutes.
    pub fn time_limit(&mut self, limit: Duration) {
        self.limit = limit;
    }

    /// Sets how many trials run at once, unless the command line does (`--test-threads`). Default:
    /// `RUST_TEST_THREADS`, as for other tests, or the number of processors.
    pub fn at_once(&mut self, trials: usize) {
        self.at_once = Some(trials);
    }

    /// Adds a trial that every machine can run.
    pub fn add<R: IntoOutcome>(
        &mut self,
        backend: &str,
        name: &str,
        test: impl FnOnce() -> R + Send + 'static,
    ) {
        let (limit, full_name) = (self.limit, format!("{backend}: {name}"));
        let trial = Trial::test(name, move || {
            within(limit, full_name, move || test().into_outcome()).map_err(Failed::from)
        });
        self.trials.push(trial.with_kind(backend));
    }

    /// Adds a trial that needs a peer; the peer is passed to the trial.
    pub fn add_needing<P: Send + 'static, R: IntoOutcome>(
        &mut self,
        backend: &str,
        name: &str,
        peer: Result<P, Missing>,
        test: impl FnOnce(P) -> R + Send + 'static,
    ) {
        match peer {
            Ok(peer) => self.add(backend, name, move || test(peer)),
            Err(missing) if self.require => {
                let why = format!("{missing}, and REQUIRE_PEERS is set");
                self.trials
                    .push(Trial::test(name, || Err(why.into())).with_kind(backend));
            }
            Err(missing) => self.skip(backend, name, &missing.to_string()),
        }
    }

    /// Adds a trial that is never run, because the back-end does not support it.
    pub fn skip(&mut self, backend: &str, name: &str, reason: &str) {
        let (not_run, reason) = (self.not_run.clone(), reason.to_owned());
        let trial = Trial::ignorable_test(name, move || {
            // The trial is counted here, so that trials that the filter leaves out are not counted.
            not_run.note(&reason);
            Ok(Completion::ignored_with(reason))
        });
        self.trials.push(trial.with_kind(backend));
    }

    /// Runs the trials that the command line selects, as `cargo test` would. Prints which peers
    /// were found, in which versions, and which trials were not run. Then ends the shared servers
    /// and exits.
    pub fn run(self) -> ! {
        let mut arguments = Arguments::from_args();
        let by_environment = || env::var("RUST_TEST_THREADS").ok()?.parse().ok();
        arguments.test_threads = arguments
            .test_threads
            .or(self.at_once)
            .or_else(by_environment);
        let conclusion = libtest_mimic::run(&arguments, self.trials);
        if let Some(found) = peers::found() {
            println!("peers: {found}");
        }
        let last = self.last_line.and_then(|line| line());
        for line in [self.not_run.summary(), last].into_iter().flatten() {
            println!("{line}");
        }
        stop_shared();
        process::exit(if conclusion.has_failed() { 101 } else { 0 })
    }
}

/// Runs `test` in a separate thread, which is abandoned if the test takes too long.
fn within(
    limit: Duration,
    name: String,
    test: impl FnOnce() -> Result<(), String> + Send + 'static,
) -> Result<(), String> {
    let (done, outcome) = mpsc::channel();
    let thread = thread::Builder::new()
        .name(name)
        .spawn(move || {
            let result = test();
            // The receiver was dropped if the test took too long.
            let _ = done.send(result);
        })
        .map_err(|e| format!("no thread for the trial: {e}"))?;
    match outcome.recv_timeout(limit) {
        Ok(result) => result,
        Err(RecvTimeoutError::Timeout) => Err(format!("still running after {limit:?}")),
        // The thread ended without a result, so the trial panicked.
        Err(RecvTimeoutError::Disconnected) => match thread.join() {
            Err(panic) => std::panic::resume_unwind(panic),
            Ok(()) => Err("ended without a result".to_owned()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn missing() -> Result<(), Missing> {
        Err(Missing::new(
            "ZooKeeper",
            "no zookeeper.jar",
            "apt-get install zookeeper",
        ))
    }

    fn run(suite: Suite) -> (libtest_mimic::Conclusion, Option<String>) {
        // The output goes to a file, because the failures in it would look like those of this
        // program.
        let log = tempfile::NamedTempFile::new().expect("a file");
        let logfile = Some(log.path().to_string_lossy().into_owned());
        let args = Arguments {
            logfile,
            ..Arguments::default()
        };
        let conclusion = libtest_mimic::run(&args, suite.trials);
        (conclusion, suite.not_run.summary())
    }

    #[test]
    fn skipped_trials_are_counted_by_reason() {
        let mut suite = Suite {
            require: false,
            ..Suite::new()
        };
        suite.add("in-process", "runs", || {});
        suite.add_needing("zookeeper", "one", missing(), |()| {});
        suite.add_needing("zookeeper", "two", missing(), |()| {});
        suite.skip("in-process", "three", "no elections");
        let (conclusion, summary) = run(suite);
        assert_eq!(
            (
                conclusion.num_passed,
                conclusion.num_ignored,
                conclusion.num_failed
            ),
            (1, 3, 0)
        );
        assert_eq!(
            summary.as_deref(),
            Some(
                "not run: 3 (2: no ZooKeeper: no zookeeper.jar (try: apt-get install zookeeper); 1: no elections)"
            )
        );
    }

    #[test]
    fn required_missing_peer_fails() {
        let mut suite = Suite {
            require: true,
            ..Suite::new()
        };
        suite.add_needing("zookeeper", "one", missing(), |()| {});
        suite.add_needing("zookeeper", "two", Ok(2), |n| {
            if n == 2 { Ok(()) } else { Err(n) }
        });
        let (conclusion, summary) = run(suite);
        assert_eq!((conclusion.num_passed, conclusion.num_failed), (1, 1));
        assert_eq!(summary, None);
    }

    #[test]
    fn errors_panics_and_hanging_trials_fail() {
        let (release, hang) = mpsc::channel::<()>();
        let mut suite = Suite::new();
        suite.add("in-process", "error", || Err::<(), _>("wrong"));
        suite.add("in-process", "panic", || -> () { panic!("wrong too") });
        suite.time_limit(Duration::from_millis(50));
        suite.add("in-process", "hang", move || {
            hang.recv().map_err(|e| e.to_string())
        });
        let (conclusion, _) = run(suite);
        assert_eq!(conclusion.num_failed, 3);
        drop(release);
    }
}
