//! A process with its share of the contenders, of which each has a session.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use zookeeper_client::{Acls, CreateMode, Error as ZkError};
use zookeeper_recipes::{Client, InterProcessMutex};

use crate::common::worker::{Commands, close, send};
use crate::common::{Error, chain};

/// A lock whose releases are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    /// An ephemeral node that all contenders watch.
    Naive,
    /// `InterProcessMutex`.
    Sequential,
}

/// The options that all processes need.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Assignment {
    pub(crate) session_timeout: Duration,
}

/// A command to a process.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Command {
    /// Starts this many contenders for a lock.
    Contend {
        kind: Kind,
        contenders: u32,
        servers: String,
        path: String,
    },
    /// The contender that holds the lock releases it, and contends again.
    Release,
    /// All its contenders leave.
    Leave,
}

/// A message of a process.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Message {
    Ready,
    /// A contender of the process holds the lock.
    Holding,
    /// A contender of the process watches the naive lock's node.
    Waiting,
    /// None of its contenders has a session any more.
    Left,
    Failed(String),
}

/// Runs a process, until there are no more commands.
pub(crate) fn run() -> Result<(), Error> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?
        .block_on(async {
            // Ctrl-C goes to all processes of a terminal. The run stops its workers itself.
            let _interrupts = signal(SignalKind::interrupt())?;
            let mut commands = Commands::listen()?;
            let Some(Assignment { session_timeout }) = commands.assignment().await? else {
                return Ok(());
            };
            send(&Message::Ready)?;
            while let Some(command) = commands.next().await {
                // A command to leave that comes after all have left by an error.
                let Command::Contend {
                    kind,
                    contenders,
                    servers,
                    path,
                } = serde_json::from_str(&command)?
                else {
                    continue;
                };
                let contention = Contention {
                    servers,
                    path,
                    session_timeout,
                    release: Arc::default(),
                };
                if let Err(error) = contention.run(kind, contenders, &mut commands).await {
                    send(&Message::Failed(chain(&*error)))?;
                }
            }
            Ok(())
        })
}

/// The contenders of this process for one lock.
struct Contention {
    servers: String,
    path: String,
    session_timeout: Duration,
    /// Tells the holder to release the lock.
    release: Arc<Notify>,
}

impl Contention {
    /// Contends until the command to leave.
    async fn run(&self, kind: Kind, contenders: u32, commands: &mut Commands) -> Result<(), Error> {
        match kind {
            Kind::Naive => {
                let mut sessions = Vec::new();
                for _ in 0..contenders {
                    let connector = zookeeper_client::Client::connector();
                    let connector = connector.with_session_timeout(self.session_timeout);
                    sessions.push(connector.connect(&self.servers).await?);
                }
                let mut states: Vec<_> = sessions
                    .iter()
                    .map(|session| session.state_watcher())
                    .collect();
                let contend =
                    |session| naive(session, self.path.clone(), Arc::clone(&self.release));
                self.until_left(sessions.into_iter().map(contend), commands)
                    .await?;
                // The sessions end when their clients are dropped.
                for state in &mut states {
                    while !state.peek_state().is_terminated() {
                        state.changed().await;
                    }
                }
            }
            Kind::Sequential => {
                let mut clients = Vec::new();
                for _ in 0..contenders {
                    let builder = Client::builder().session_timeout(self.session_timeout);
                    clients.push(builder.connect(&self.servers).await?);
                }
                let contend = |client: &Client| {
                    sequential(client.clone(), self.path.clone(), Arc::clone(&self.release))
                };
                let contenders: Vec<_> = clients.iter().map(contend).collect();
                self.until_left(contenders, commands).await?;
                for client in clients {
                    close(client).await?;
                }
            }
        }
        send(&Message::Left)
    }

    /// Lets the contenders run until the command to leave, or until one fails.
    async fn until_left<F>(
        &self,
        contenders: impl IntoIterator<Item = F>,
        commands: &mut Commands,
    ) -> Result<(), Error>
    where
        F: Future<Output = Result<(), Error>> + Send + 'static,
    {
        let mut running: JoinSet<Result<(), Error>> = contenders.into_iter().collect();
        loop {
            tokio::select! {
                command = commands.next() => match command.as_deref().map(serde_json::from_str).transpose()? {
                    Some(Command::Release) => self.release.notify_one(),
                    _ => break,
                },
                Some(ended) = running.join_next() => ended??,
            }
        }
        running.shutdown().await;
        Ok(())
    }
}

/// Contends for the naive lock until the process ends.
async fn naive(
    session: zookeeper_client::Client,
    path: String,
    release: Arc<Notify>,
) -> Result<(), Error> {
    let ephemeral = CreateMode::Ephemeral.with_acls(Acls::anyone_all());
    loop {
        match session.create(&path, b"", &ephemeral).await {
            Ok(_) => {
                send(&Message::Holding)?;
                release.notified().await;
                session.delete(&path, None).await?;
            }
            Err(ZkError::NodeExists) => {
                if let (Some(_), watcher) = session.check_and_watch_stat(&path).await? {
                    send(&Message::Waiting)?;
                    watcher.changed().await;
                }
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Contends for the mutex until the process ends.
async fn sequential(client: Client, path: String, release: Arc<Notify>) -> Result<(), Error> {
    let mutex = InterProcessMutex::new(&client, &path)?;
    loop {
        let guard = mutex.lock().await?;
        send(&Message::Holding)?;
        release.notified().await;
        guard.release().await?;
    }
}
