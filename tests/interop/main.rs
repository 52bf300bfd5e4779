//! This crate's locks and those of other languages (Curator's, kazoo's) on one path of a real
//! ZooKeeper.
//!
//! ```text
//! cargo test --test interop                    all of it, some minutes
//! cargo test --test interop curator::          those with one library
//! cargo test --test interop kazoo::pairings    two thousand grants and forty kills each
//! ```
//!
//! A pairing lets worker processes of both sides contend, kills some of them, and [`check`]s their
//! common journal.

pub(crate) mod check;
mod curator;
pub(crate) mod election;
pub(crate) mod journal;
mod kazoo;
pub(crate) mod outside;
pub(crate) mod pairing;
pub(crate) mod permits;
pub(crate) mod scripted_peer;
pub(crate) mod worker;

use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use test_support::{SOON, Suite, ZooKeeper, peers, shared_standalone};
use zookeeper_recipes::{AcquireError, Client, ErrorKind};

use self::pairing::{Extent, Side};

/// How long workers may run. A longer run fails, which ends its workers.
pub(crate) const WORK_LIMIT: Duration = Duration::from_secs(600);

/// How long a trial may take, including its work, its last wait, and the end of its workers and of
/// their sessions. A trial that the suite gives up stays behind with its workers.
pub(crate) const TIME_LIMIT: Duration = Duration::from_secs(600 + 3 * 60);
const _: () = assert!(TIME_LIMIT.as_secs() >= WORK_LIMIT.as_secs() + 3 * SOON.as_secs());

pub(crate) type Failure = Box<dyn Error + Send + Sync>;
pub(crate) type Outcome = Result<(), Failure>;

fn main() -> ExitCode {
    if let Some(done) = worker::run_if_asked().or_else(curator::counters::run_if_asked) {
        return done;
    }
    let mut suite = Suite::new();
    suite.time_limit(TIME_LIMIT);
    curator::add_all(&mut suite);
    kazoo::add_all(&mut suite);
    add_controls(&mut suite);
    suite.run()
}

/// Runs an asynchronous trial in a synchronous test.
pub(crate) fn block_on<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?
        .block_on(work)
}

/// Connects a client of this crate; only killed workers need short sessions.
pub(crate) async fn connect(servers: &ZooKeeper) -> Result<Client, Failure> {
    let builder = Client::builder().session_timeout(Duration::from_secs(30));
    Ok(builder.connect(&servers.connect_string()).await?)
}

/// Asserts that an acquire fails with an error that names the other recipe's node, and that it
/// leaves no node: the other recipe would have to refuse one.
pub(crate) async fn refused<T>(
    client: &Client,
    answer: impl Future<Output = Result<T, AcquireError>>,
    kind: &str,
) -> Outcome {
    match answer.await {
        Err(AcquireError::Request(error))
            if error.kind() == ErrorKind::MixedRecipes
                && error.node().is_some_and(|node| node.contains(kind)) =>
        {
            Ok(client.flush(Duration::from_secs(60)).await?)
        }
        Err(e) => Err(e.into()),
        Ok(_) => Err(Failure::from("the lock was granted")),
    }
}

/// Returns this crate's side of a pairing.
pub(crate) fn rust(recipe: &'static str, crews: &'static [&'static str]) -> Side {
    let points = worker::points(recipe);
    Side {
        name: "rust",
        recipe,
        crews,
        start: Box::new(worker::Task::command),
        points,
    }
}

/// Adds the trials that show that the pairings can fail.
pub(crate) fn add_controls(suite: &mut Suite) {
    use check::trials;
    suite.add(
        "checker",
        "check::accepts_a_locks_history",
        trials::accepts_a_locks_history,
    );
    suite.add("checker", "check::sees_overlaps", trials::sees_overlaps);
    suite.add(
        "checker",
        "check::sees_tokens_that_fall",
        trials::sees_tokens_that_fall,
    );
    suite.add(
        "checker",
        "check::sees_lost_increments",
        trials::sees_lost_increments,
    );
    suite.add(
        "checker",
        "check::sees_workers_that_stay",
        trials::sees_workers_that_stay,
    );
    add_controls_of_permits(suite);
    suite.add_needing(
        "zookeeper",
        "check::failing_worker_ends_the_run",
        peers::zookeeper(),
        |_| failing_worker_ends_the_run(),
    );
    suite.add_needing(
        "zookeeper",
        "check::workers_without_a_lock_are_seen",
        peers::zookeeper(),
        |_| workers_without_a_lock_are_seen(),
    );
}

/// Adds the controls for semaphores.
fn add_controls_of_permits(suite: &mut Suite) {
    use permits::trials;
    suite.add(
        "checker",
        "permits::accepts_a_semaphores_history",
        trials::accepts_a_semaphores_history,
    );
    suite.add(
        "checker",
        "permits::sees_permits_beyond_the_limit",
        trials::sees_permits_beyond_the_limit,
    );
    suite.add(
        "checker",
        "permits::sees_wrong_slots_and_tokens",
        trials::sees_wrong_slots_and_tokens,
    );
}

/// A run in which one thread of a worker fails, while the others continue, ends with its error.
fn failing_worker_ends_the_run() -> Outcome {
    let servers = shared_standalone()?;
    let sides = [
        rust("none", &["x"]),
        Side {
            name: "other",
            ..rust("none", &["xf"])
        },
    ];
    let extent = Extent {
        grants: 1_000_000_000,
        holders: 0,
        bystanders: 0,
    };
    match pairing::run(&servers, "failing", &sides, extent) {
        Ok(_) => Err("it ended well".into()),
        Err(e) if e.to_string().contains("ended") && e.to_string().contains("as it was told") => {
            Ok(())
        }
        Err(e) => Err(e),
    }
}

/// The check detects violations by the same workers without the lock.
fn workers_without_a_lock_are_seen() -> Outcome {
    let servers = shared_standalone()?;
    let sides = [
        rust("none", &["xx"]),
        Side {
            name: "other",
            ..rust("none", &["xx"])
        },
    ];
    let extent = Extent {
        grants: 200,
        holders: 0,
        bystanders: 0,
    };
    let findings = pairing::run(&servers, "no-lock", &sides, extent)?.findings;
    for kind in ["overlaps", "lost increment"] {
        if !findings
            .violations
            .iter()
            .any(|violation| violation.contains(kind))
        {
            return Err(format!("no `{kind}` in {:?}", findings.verdict()).into());
        }
    }
    Ok(())
}
