//! Members of a real ensemble are killed while a lock is held, and the lock stays with its holder.
//!
//! ```text
//! cargo run --example member_killed
//! cargo run --example member_killed -- --json
//! cargo run --example member_killed -- --majority    # what an ensemble does not survive
//! ```
//!
//! Starts three ZooKeeper members. A holder acquires a mutex, and a rival in a session of its own
//! waits for it. Then the member that the holder is connected to is killed, and started again; and
//! after that the leader. Each time the session moves to another member: the lock is `Suspended`
//! and then `Held`, and a write under it is committed. The rival is granted the lock when the
//! holder releases it, and no earlier.
//!
//! With `--majority` two of the three members are killed at once. Nothing can be committed then:
//! the holder is notified that it has lost the lock; the rival is granted it only after that, when
//! the members are back.
//!
//! Exits with 0 if the lock was kept, with 1 if it was lost or two held it at once, with 2 if the
//! run could not take place, and with 69 (`EX_UNAVAILABLE`) if this machine has no ZooKeeper.

#[path = "common/mod.rs"]
mod common;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use clap::Parser;
use common::program::{self, Verdict};
use common::{Error, round};
use serde::Serialize;
use test_support::{Mode, Options, ServerError, ZooKeeper};
use tokio::task::{JoinHandle, block_in_place};
use zookeeper_recipes::{
    Client, FencingToken, InterProcessMutex, LockGuard, LockState, Lost, TransactionError,
};

const NAME: &str = "member_killed";
const MEMBERS: usize = 3;
const LOCK: &str = "/locks/sku-42";
/// The node that is written under the lock.
const RECORD: &str = "/stock";

/// How long anything may take that does not depend on the session timeout, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// The pause before a write of unknown outcome is sent again. It always writes the same.
const PAUSE: Duration = Duration::from_millis(20);

/// The exit code if there is no ZooKeeper: `EX_UNAVAILABLE` of sysexits.h.
const NO_ZOOKEEPER: u8 = 69;

/// Kills members of a ZooKeeper ensemble while a lock is held.
#[derive(Debug, Parser)]
#[command(name = "member_killed")]
struct Arguments {
    /// Kills two of the three members at once, so that no majority is left: the lock is lost
    #[arg(long)]
    majority: bool,
    /// The session timeout in seconds, from 1 to 60 [default: 30, as the library's; --majority: 4]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=60))]
    session_timeout: Option<u64>,
    /// Prints the result as one JSON object too, as the last line
    #[arg(long)]
    json: bool,
}

impl Arguments {
    fn session_timeout(&self) -> Duration {
        Duration::from_secs(
            self.session_timeout
                .unwrap_or(if self.majority { 4 } else { 30 }),
        )
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    let report = runtime
        .map_err(Error::from)
        .and_then(|runtime| runtime.block_on(run(&arguments)));
    let concluded =
        report.and_then(|report| program::conclude(NAME, Some(verdict(&arguments, &report)?)));
    concluded.unwrap_or_else(|error| {
        eprintln!("{NAME}: {error}");
        let missing = matches!(error.downcast_ref(), Some(ServerError::Missing(_)));
        ExitCode::from(if missing {
            NO_ZOOKEEPER
        } else {
            program::TROUBLE
        })
    })
}

fn verdict(arguments: &Arguments, report: &Report) -> Result<Verdict, Error> {
    let broken = [
        report.lost.clone(),
        (report.most_inside > 1).then(|| format!("{} held the lock at once", report.most_inside)),
        (!report.tokens_rise).then(|| "the rival's token is not above the holder's".to_owned()),
    ];
    let json = if arguments.json {
        serde_json::to_string(report)? + "\n"
    } else {
        String::new()
    };
    Ok(Verdict {
        claim: format!(
            "the lock was kept over {} kills, and one held it at a time",
            report.kills.len()
        ),
        text: json,
        broken_promises: broken.into_iter().flatten().collect(),
        troubles: Vec::new(),
    })
}

/// The result as `--json` prints it.
#[derive(Debug, Serialize)]
struct Report {
    members: usize,
    zookeeper: Option<String>,
    session_timeout_seconds: f64,
    kills: Vec<Kill>,
    /// How the holder lost the lock, if it did.
    lost: Option<String>,
    /// The most that held the lock at once.
    most_inside: u32,
    /// The time from the release, or from the notice of the loss, to the rival's grant.
    rival_granted_after_seconds: f64,
    /// Whether the rival's fencing token is above the holder's.
    tokens_rise: bool,
}

/// A kill, and how the holder observed it.
#[derive(Debug, Serialize)]
struct Kill {
    /// The members, numbered from 1 as in ZooKeeper.
    members: Vec<usize>,
    had_the_leader: bool,
    had_the_holders_connection: bool,
    /// The states of the lock from the kill on, without the first.
    states: Vec<Seen>,
    /// When a write under the lock was committed again, if one was.
    committed_after_seconds: Option<f64>,
}

#[derive(Debug, Serialize)]
struct Seen {
    state: String,
    after_seconds: f64,
}

/// Counts those that hold the lock.
#[derive(Debug, Default)]
struct Inside {
    now: AtomicU32,
    most: AtomicU32,
}

impl Inside {
    fn enter(&self) {
        let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
    }

    fn leave(&self) {
        self.now.fetch_sub(1, Ordering::SeqCst);
    }
}

async fn run(arguments: &Arguments) -> Result<Report, Error> {
    let session_timeout = arguments.session_timeout();
    eprintln!("starting {MEMBERS} ZooKeeper members, session timeout {session_timeout:?}");
    let servers = block_in_place(|| ZooKeeper::ensemble(MEMBERS, &Options::new()))?;

    let inside = Arc::new(Inside::default());
    let client = connect(&servers, session_timeout).await?;
    let guard = InterProcessMutex::new(&client, LOCK)?
        .acquire(PATIENCE)
        .await?;
    inside.enter();
    guard.transaction().create(RECORD, b"1").commit().await?;
    let rival_client = connect(&servers, session_timeout).await?;
    let rival = queue(&rival_client, &inside).await?;
    eprintln!("the holder has the lock, the rival waits");

    let (mut kills, mut lost) = (Vec::new(), None);
    if arguments.majority {
        let leader = block_in_place(|| servers.wait_leader())?;
        let members = vec![leader, (leader + 1) % MEMBERS];
        let (kill, loss) = kill(&servers, &members, &client, &guard).await?;
        kills.push(kill);
        lost = loss;
    } else {
        for whose in [Victim::HoldersMember, Victim::Leader] {
            let member = match whose {
                Victim::HoldersMember => member_of(&client, &servers).await?,
                Victim::Leader => block_in_place(|| servers.wait_leader())?,
            };
            let (kill, loss) = kill(&servers, &[member], &client, &guard).await?;
            kills.push(kill);
            lost = loss;
            if lost.is_some() {
                break;
            }
            start_again(&servers, &[member])?;
            // The members are whole before the next kill, which could otherwise take the quorum
            // with it.
            block_in_place(|| servers.wait_whole())?;
        }
    }

    let token = guard.fencing_token();
    inside.leave();
    let let_go = Instant::now();
    if lost.is_some() {
        // The holder has stopped. Its node is deleted when the servers are back.
        drop(guard);
        eprintln!("starting the members again");
        start_again(&servers, &(0..MEMBERS).collect::<Vec<_>>())?;
    } else {
        eprintln!("the holder releases the lock");
        tokio::time::timeout(PATIENCE, guard.release())
            .await
            .map_err(|_| "the release took too long")??;
    }
    let (granted, rivals_token) = tokio::time::timeout(PATIENCE, rival)
        .await
        .map_err(|_| "the rival was not granted the lock")???;
    let rival_granted_after_seconds = seconds(granted.saturating_duration_since(let_go));
    eprintln!(
        "{rival_granted_after_seconds:8.3} s later the rival has it: token {rivals_token}, after {token}"
    );
    // The servers end with this process. Closing the client would wait for them if they do not
    // answer.
    Ok(Report {
        members: MEMBERS,
        zookeeper: servers.version().map(str::to_owned),
        session_timeout_seconds: seconds(session_timeout),
        kills,
        lost: lost.map(|lost| lost.to_string()),
        most_inside: inside.most.load(Ordering::SeqCst),
        rival_granted_after_seconds,
        tokens_rise: rivals_token > token,
    })
}

/// The member that is killed next.
#[derive(Clone, Copy, Debug)]
enum Victim {
    HoldersMember,
    Leader,
}

async fn connect(servers: &ZooKeeper, session_timeout: Duration) -> Result<Client, Error> {
    Ok(Client::builder()
        .session_timeout(session_timeout)
        .connect(&servers.connect_string())
        .await?)
}

/// Makes the rival wait for the lock, until its node is in the queue. The task tells when it was
/// granted.
async fn queue(
    client: &Client,
    inside: &Arc<Inside>,
) -> Result<JoinHandle<Result<(Instant, FencingToken), Error>>, Error> {
    let mutex = InterProcessMutex::new(client, LOCK)?;
    let (waiting, inside) = (mutex.clone(), Arc::clone(inside));
    let rival = tokio::spawn(async move {
        let guard = waiting.lock().await?;
        let granted = Instant::now();
        inside.enter();
        let token = guard.fencing_token();
        inside.leave();
        guard.release().await?;
        Ok((granted, token))
    });
    let queued = async {
        // No event announces the node to this client.
        while mutex.participants().await?.len() < 2 {
            tokio::time::sleep(PAUSE).await;
        }
        Ok::<_, Error>(())
    };
    tokio::time::timeout(PATIENCE, queued)
        .await
        .map_err(|_| "the rival did not queue")??;
    Ok(rival)
}

/// Asks the members which of them serves the client's session.
async fn member_of(client: &Client, servers: &ZooKeeper) -> Result<usize, Error> {
    let session = format!(
        "sid={:#x},",
        client.session_id().ok_or("the client has no session")?
    );
    let find = async {
        loop {
            let serves = |member: &usize| {
                block_in_place(|| servers.four_letter(*member, "cons"))
                    .is_ok_and(|connections| connections.contains(&session))
            };
            if let Some(member) = (0..servers.len()).find(serves) {
                return member;
            }
            tokio::time::sleep(PAUSE).await;
        }
    };
    Ok(tokio::time::timeout(PATIENCE, find)
        .await
        .map_err(|_| "no member serves the holder's session")?)
}

fn start_again(servers: &ZooKeeper, members: &[usize]) -> Result<(), Error> {
    block_in_place(|| {
        // All members start first, because one alone has no quorum.
        members
            .iter()
            .try_for_each(|&member| servers.start(member))?;
        members
            .iter()
            .try_for_each(|&member| servers.wait_serving(member).map(drop))
    })?;
    Ok(())
}

/// Kills members, and follows the lock until a write under it is committed, or it is lost.
async fn kill(
    servers: &ZooKeeper,
    members: &[usize],
    client: &Client,
    guard: &LockGuard,
) -> Result<(Kill, Option<Lost>), Error> {
    let at = member_of(client, servers).await?;
    let had_the_leader = members
        .iter()
        .any(|&member| servers.mode(member) == Some(Mode::Leader));
    let mut kill = Kill {
        members: members.iter().map(|member| member + 1).collect(),
        had_the_leader,
        had_the_holders_connection: members.contains(&at),
        states: Vec::new(),
        committed_after_seconds: None,
    };
    let mut state = guard.state();
    let killed = Instant::now();
    block_in_place(|| members.iter().for_each(|&member| servers.kill(member)));
    let names: Vec<_> = kill
        .members
        .iter()
        .map(|number| format!("member {number}"))
        .collect();
    let roles = match (kill.had_the_leader, kill.had_the_holders_connection) {
        (true, true) => ": the leader, and the holder's connection",
        (true, false) => ": the leader",
        (false, true) => ": the holder's connection",
        (false, false) => "",
    };
    eprintln!("{} killed{roles}", names.join(" and "));

    let mut write = std::pin::pin!(write(guard));
    let mut written = None;
    let lost = loop {
        tokio::select! {
            changed = guard.state_changed(state), if written.is_none() || state != LockState::Held => {
                state = changed;
                let after_seconds = seconds(killed.elapsed());
                eprintln!("{after_seconds:8.3} s after it the lock is {state:?}");
                kill.states.push(Seen { state: format!("{state:?}"), after_seconds });
                if matches!(state, LockState::Lost(_)) {
                    break Some(guard.lost().await);
                }
            }
            outcome = &mut write, if written.is_none() => match outcome {
                Ok(()) => written = Some(seconds(killed.elapsed())),
                // The state says the same in a moment.
                Err(TransactionError::Lost(lost)) => break Some(lost),
                Err(error) => return Err(error.into()),
            },
            else => break None,
        }
    };
    if let Some(after_seconds) = written {
        eprintln!("{after_seconds:8.3} s after it a write under the lock was committed");
    }
    kill.committed_after_seconds = written;
    Ok((kill, lost))
}

/// Writes under the lock. A write whose outcome is unknown is sent again, until the lock is lost.
async fn write(guard: &LockGuard) -> Result<(), TransactionError> {
    loop {
        match guard
            .transaction()
            .set_data(RECORD, b"0", None)
            .commit()
            .await
        {
            Err(TransactionError::Unknown { .. }) => tokio::time::sleep(PAUSE).await,
            outcome => return outcome,
        }
    }
}

fn seconds(duration: Duration) -> f64 {
    round(duration.as_secs_f64())
}
