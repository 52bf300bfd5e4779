//! Counters of this crate and of Curator: both sides count at once, Curator's under a mutex, while
//! workers of both are killed.
//!
//! The arguments of a worker are, as in the pairings, the servers, the session timeout, the path,
//! the directory of the journal and its name. Until its stdin ends it repeats: take a number from
//! the counter `ids` (every other from a block), write `id` and the number; write `adds`, add 1 to
//! the counter `sum`, write `added`, `not` or `unknown`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};

use test_support::peers::CuratorPeer;
use test_support::prelude::*;
use test_support::{Cut, Proxy, shared_standalone, unique_path};

use crate::curator::java;
use crate::journal::{Journal, Tail, create, records, until};
use crate::{Failure, Outcome, WORK_LIMIT, block_on, connect};

/// The first argument that makes a worker of this binary.
const WORKER: &str = "counter-worker";

/// A killed holder of the mutex keeps the contenders waiting for this time.
const SESSION_MS: u64 = 2_500;

/// The least count of numbers handed out, and the kills of either kind.
const NUMBERS: usize = 1_500;
const KILLS: usize = 8;
/// Processes of either kind.
const PROCESSES: usize = 2;

/// Runs a worker if that is what the command line asks for.
pub(crate) fn run_if_asked() -> Option<ExitCode> {
    let mut args = std::env::args().skip(1);
    if args.next()? != WORKER {
        return None;
    }
    let args: Vec<String> = args.collect();
    let [servers, session, path, dir, name] = &args[..] else {
        return Some(ExitCode::FAILURE);
    };
    Some(match work(servers, session, path, Path::new(dir), name) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("{e}: {e:?}");
            ExitCode::FAILURE
        }
    })
}

fn work(servers: &str, session: &str, path: &str, dir: &Path, name: &str) -> Outcome {
    let enough = Arc::new(AtomicBool::new(false));
    let heard = Arc::clone(&enough);
    std::thread::spawn(move || {
        // The end of stdin ends the worker.
        drop(std::io::copy(
            &mut std::io::stdin().lock(),
            &mut std::io::sink(),
        ));
        heard.store(true, Ordering::Relaxed);
    });
    let session = Duration::from_millis(session.parse()?);
    let journal = Journal::open(dir)?;
    block_on(async {
        let builder = Client::builder()
            .session_timeout(session)
            .retry_policy(RetryPolicy::forever(Duration::from_millis(20)));
        let client = loop {
            match builder.clone().connect(servers).await {
                Ok(client) => break client,
                // The connection was cut, or the machine is busy because all workers start at once.
                Err(e) if e.is_retryable() => journal.append(&format!("trouble {name}"))?,
                Err(e) => return Err(e.into()),
            }
        };
        let counter = |which: &str| DistributedAtomicLong::new(&client, format!("{path}/{which}"));
        let (ids, sum) = (counter("ids")?, counter("sum")?);
        let cached: CachedAtomicLong = ids.cached(3)?;
        let mut round = 0;
        while !enough.load(Ordering::Relaxed) {
            let id = if round % 2 == 0 {
                ids.next_id().await?
            } else {
                cached.next_id().await?
            };
            journal.append(&format!("id {name} {id}"))?;
            journal.append(&format!("adds {name}"))?;
            let outcome = match sum.increment().await {
                Ok(_) => "added",
                Err(AtomicLongError::Unknown { .. }) => "unknown",
                Err(AtomicLongError::Contended { .. }) => "not",
                Err(e) => return Err(e.into()),
            };
            journal.append(&format!("{outcome} {name}"))?;
            round += 1;
        }
        Ok(client.close().await?)
    })
}

/// A process of one kind.
struct Worker {
    name: String,
    child: Child,
    orders: Option<ChildStdin>,
}

/// Starts workers of both kinds.
struct Start {
    dir: PathBuf,
    path: String,
    /// This crate's workers are behind a proxy that cuts their connections.
    servers: BTreeMap<&'static str, String>,
    java: java::Program,
    started: usize,
}

impl Start {
    fn worker(&mut self, kind: &'static str) -> Result<Worker, Failure> {
        self.started += 1;
        let name = format!("{kind}-{}", self.started);
        let mut command = match kind {
            "java" => self.java.command(),
            _ => {
                let mut command = Command::new(std::env::current_exe()?);
                command.arg(WORKER);
                command
            }
        };
        command.args([&self.servers[kind], &SESSION_MS.to_string(), &self.path]);
        command.arg(&self.dir).arg(&name);
        let said = File::create(self.dir.join(format!("{name}.said")))?;
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(said.try_clone()?)
            .stderr(said)
            .spawn()?;
        let orders = child.stdin.take();
        Ok(Worker {
            name,
            child,
            orders,
        })
    }
}

pub(crate) fn numbers_and_sums(peer: &CuratorPeer) -> Outcome {
    let servers = shared_standalone()?;
    let dir = tempfile::Builder::new().prefix("interop-").tempdir()?;
    create(dir.path())?;
    let direct = servers.connect_string();
    let proxy = Proxy::start(direct.parse()?)?;
    let mut start = Start {
        dir: dir.path().to_owned(),
        path: unique_path("interop/counters"),
        servers: BTreeMap::from([("java", direct), ("rust", proxy.address().to_string())]),
        java: java::Program::compiled(peer, "Counters")?,
        started: 0,
    };
    let mut tail = Tail::open(dir.path())?;
    let mut workers = Vec::new();
    let done = count_and_kill(&mut start, &proxy, &mut tail, &mut workers);
    for worker in &mut workers {
        // No worker outlives the trial.
        drop(worker.child.kill());
        drop(worker.child.wait());
    }
    let verdict = done.and_then(|()| {
        let journal = tail.read()?.to_owned();
        block_on(async {
            let client = connect(&servers).await?;
            let counter = |which: &str| {
                DistributedAtomicLong::new(&client, format!("{}/{which}", start.path))
            };
            let values = (counter("ids")?.get().await?, counter("sum")?.get().await?);
            client.close().await?;
            check(&journal, values)
        })
    });
    if let Err(e) = verdict {
        return Err(format!("{e}\nthe journal is kept in {}", dir.keep().display()).into());
    }
    Ok(())
}

/// Runs all workers, kills them one by one, and ends the rest.
fn count_and_kill(
    start: &mut Start,
    proxy: &Proxy,
    tail: &mut Tail,
    workers: &mut Vec<Worker>,
) -> Outcome {
    let deadline = Instant::now() + WORK_LIMIT;
    for kind in ["rust", "java"] {
        for _ in 0..PROCESSES {
            workers.push(start.worker(kind)?);
        }
    }
    for turn in 0..=KILLS {
        let numbers = NUMBERS * (turn + 1) / (KILLS + 1);
        let mut waits_for: BTreeSet<String> =
            workers.iter().map(|worker| worker.name.clone()).collect();
        let mut count = 0;
        let ended = || {
            workers.iter_mut().find_map(|worker| {
                let status = worker.child.try_wait().ok()??;
                Some(format!("{} ended ({status})", worker.name))
            })
        };
        until(
            tail,
            &format!("{numbers} numbers"),
            deadline,
            ended,
            |new| {
                let before = count;
                for number in records(new).filter_map(|r| r.strip_prefix("id ")) {
                    count += 1;
                    waits_for.remove(number.split(' ').next().unwrap_or(number));
                }
                // A worker is killed at every seventh number.
                if count / 7 > before / 7 {
                    proxy.cut(Cut::Reset);
                }
                count >= numbers && waits_for.is_empty()
            },
        )?;
        if turn < KILLS {
            for (side, kind) in ["rust", "java"].into_iter().enumerate() {
                let victim = &mut workers[side * PROCESSES + turn % PROCESSES];
                victim.child.kill()?;
                victim.child.wait()?;
                *victim = start.worker(kind)?;
            }
        }
    }
    for worker in workers.iter_mut() {
        worker.orders = None;
    }
    let deadline = Instant::now() + SOON;
    for worker in workers {
        let (name, left) = (
            &worker.name,
            deadline.saturating_duration_since(Instant::now()),
        );
        let status = poll_until(&format!("{name} to end"), left, || {
            worker.child.try_wait().transpose()
        })??;
        if !status.success() {
            return Err(format!("{name} ended ({status})").into());
        }
    }
    Ok(())
}

/// Checks that every number occurs once, below the counter's value, and that the sum consists of
/// the acknowledged additions and of some of the uncertain ones.
fn check(journal: &str, (ids, sum): (i64, i64)) -> Outcome {
    let mut numbers = BTreeSet::new();
    let (mut taken, mut added, mut doubtful) = (BTreeMap::<&str, usize>::new(), 0, 0);
    // The values that each worker is about to add.
    let mut adding: BTreeSet<&str> = BTreeSet::new();
    for record in records(journal) {
        let words: Vec<&str> = record.split(' ').collect();
        match words[..] {
            ["id", name, number] => {
                let number: i64 = number.parse()?;
                if !numbers.insert(number) {
                    return Err(format!(
                        "{number} was handed out twice, the second time to {name}"
                    )
                    .into());
                }
                if !(1..=ids).contains(&number) {
                    return Err(format!("{number} was handed out, and the counter is {ids}").into());
                }
                let kind = name.split('-').next().unwrap_or(name);
                *taken.entry(kind).or_default() += 1;
            }
            ["adds", name] => drop(adding.insert(name)),
            [outcome @ ("added" | "not" | "unknown"), name] => {
                adding.remove(name);
                match outcome {
                    "added" => added += 1,
                    "unknown" => doubtful += 1,
                    _ => {}
                }
            }
            ["trouble", _] => {}
            _ => return Err(format!("what is {record:?}?").into()),
        }
    }
    // The additions of killed workers.
    let cut = i64::try_from(adding.len())?;
    println!(
        "counters: numbers {taken:?} of {ids}, added {added} and {doubtful} perhaps, {cut} cut short, sum {sum}"
    );
    if !(added..=added + doubtful + cut).contains(&sum) {
        return Err(
            format!("the sum is {sum}: {added} were added, {doubtful} and {cut} perhaps").into(),
        );
    }
    match (taken.get("rust"), taken.get("java")) {
        (Some(rust), Some(java)) if *rust > NUMBERS / 10 && *java > NUMBERS / 10 => Ok(()),
        shares => Err(format!("the shares are {shares:?}").into()),
    }
}

/// The check must see a number given twice, and a wrong counter, sum or share.
pub(crate) fn check_sees_wrong_numbers() -> Outcome {
    let record = |text: &str| format!("\n{text} .");
    let fair: String = (1..=NUMBERS / 2)
        .flat_map(|n| {
            let (odd, even) = (2 * n - 1, 2 * n);
            [format!("id rust-1 {odd}"), format!("id java-2 {even}")]
        })
        .map(|text| record(&text))
        .collect();
    let ids = i64::try_from(NUMBERS)?;
    let sums = |text: &str| text.split(", ").map(record).collect::<String>();
    let well = sums("adds rust-1, added rust-1, adds java-2, unknown java-2, adds rust-1");
    for sum in 1..=3 {
        check(&format!("{fair}{well}"), (ids, sum))?;
    }
    for (journal, values, what) in [
        (
            format!("{fair}{}", record("id rust-1 7")),
            (ids, 0),
            "twice",
        ),
        (fair.clone(), (ids - 1, 0), "the counter is"),
        (format!("{fair}{well}"), (ids, 0), "the sum is"),
        (format!("{fair}{well}"), (ids, 4), "the sum is"),
        (sums("id rust-1 1, id java-2 2"), (2, 0), "the shares are"),
    ] {
        match check(&journal, values) {
            Err(e) if e.to_string().contains(what) => {}
            other => return Err(format!("{what}: {other:?}").into()),
        }
    }
    Ok(())
}
