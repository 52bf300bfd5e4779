//! A process that takes part in the election, and writes while it leads.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::process::{Signal, getpid, kill_process};
use serde::{Deserialize, Serialize};
use tokio::signal::unix::{SignalKind, signal};
use zookeeper_recipes::{Client, FencingToken, LeaderLatch, LeaderSelector};

use crate::common::worker::{Commands, close, send};
use crate::common::{Error, chain, monotonic};
use crate::options::{Config, Recipe};
use crate::store::Store;

/// How many processes there are.
pub(crate) const PROCESSES: u32 = 3;
/// How many leaders stop in the middle of their work: the first is killed, the second is woken.
const STOPS: u32 = 2;

/// The work of one process.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Assignment {
    pub(crate) process: u32,
    pub(crate) servers: String,
    /// The path of the election.
    pub(crate) path: String,
    pub(crate) db: PathBuf,
    pub(crate) config: Config,
}

/// A message of a worker. `at` is [`monotonic`].
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Message {
    /// The worker waits for the command to start.
    Ready,
    /// The worker has begun its work as the leader.
    Leads { at: u64 },
    /// The store has taken a write.
    Wrote,
    /// The store has refused a write.
    Fenced,
    /// The worker stops itself, and is to be killed or resumed.
    Stopped { at: u64, to_be_killed: bool },
    /// The worker has been resumed. `leads` is whether it believes that it leads.
    Woken { leads: bool },
    /// The worker's work as the leader has ended: done, or dropped.
    Ended { at: u64 },
    /// The worker has led, and its work is done.
    Done,
    /// The worker ends because of this error.
    Failed(String),
}

/// Tells the end of the work, also if that is dropped.
struct EndOnDrop;

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        // Without a parent no process reads the message.
        let _ = send(&Message::Ended { at: monotonic() });
    }
}

/// Runs a worker, from its assignment to the end of its session.
pub(crate) fn run() -> Result<(), Error> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?
        .block_on(async {
            // Ctrl-C goes to all processes of a terminal. The run stops its workers itself, so that
            // they can close their sessions.
            let _interrupts = signal(SignalKind::interrupt())?;
            let mut commands = Commands::listen()?;
            let Some(assignment) = commands.assignment::<Assignment>().await? else {
                return Ok(());
            };
            let session_timeout = assignment.config.session_timeout;
            let client = Client::builder()
                .session_timeout(session_timeout)
                .connect(&assignment.servers)
                .await?;
            let store = Mutex::new(Store::open(&assignment.db)?);
            send(&Message::Ready)?;
            if commands.next().await.is_some() {
                tokio::select! {
                    led = lead(&client, &assignment, &store) => send(&match led {
                        Ok(()) => Message::Done,
                        Err(error) => Message::Failed(chain(&*error)),
                    })?,
                    // Only the end of the commands concerns the worker now. Dropping the work gives
                    // the leadership up.
                    () = async { while commands.next().await.is_some() {} } => {}
                }
            }
            close(client).await
        })
}

/// Takes part in the election until this process has led and done its work.
async fn lead(client: &Client, assignment: &Assignment, store: &Mutex<Store>) -> Result<(), Error> {
    let Assignment {
        process,
        path,
        config,
        ..
    } = assignment;
    let id = format!("process {}", process + 1);
    match config.recipe {
        Recipe::Selector => {
            let selector = LeaderSelector::builder(client, path).id(id).build()?;
            selector
                .lead(|term| work(term, config, store, || selector.has_leadership()))
                .await?
        }
        Recipe::Latch => {
            let latch = LeaderLatch::builder(client, path).id(id).build()?;
            let done = loop {
                let leadership = latch.leadership().await?;
                let work = work(leadership.fencing_token(), config, store, || {
                    leadership.is_held()
                });
                // A leader that has lost its term is in the election again.
                if let Ok(done) = leadership.while_held(work).await {
                    break done;
                }
            };
            latch.close().await?;
            done
        }
    }
}

fn lock(store: &Mutex<Store>) -> MutexGuard<'_, Store> {
    store.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the work of the leader in one term.
async fn work(
    term: FencingToken,
    config: &Config,
    store: &Mutex<Store>,
    leads: impl Fn() -> bool + Send,
) -> Result<(), Error> {
    send(&Message::Leads { at: monotonic() })?;
    let _end = EndOnDrop;
    lock(store).begin(term)?;
    for write in 1..=config.writes {
        tokio::time::sleep(config.think).await;
        // No await follows until the write, so no guard can notice what happens in between.
        let stops = lock(store).stops()?;
        if write > config.writes / 2 && stops < STOPS {
            lock(store).stop()?;
            send(&Message::Stopped {
                at: monotonic(),
                to_be_killed: stops == 0,
            })?;
            kill_process(getpid(), Signal::STOP)?;
            send(&Message::Woken { leads: leads() })?;
        }
        let is_taken = lock(store).write(term, config.fence)?;
        send(&if is_taken {
            Message::Wrote
        } else {
            Message::Fenced
        })?;
    }
    Ok(())
}
