//! The servers of one lock, a proxy between them and its holder, and the holders' processes.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use test_support::{Options, Proxy, Redis, ZooKeeper};
use tokio::runtime::Runtime;
use zookeeper_client::{Acls, Client, CreateMode};

use crate::Error;
use crate::matrix::judge::ObservedHold;
use crate::process::Worker;
use crate::step::{HolderAnswer, Open, Poll, Step};

/// How long a process may take to start, and to open a session, on a machine on which everything
/// else runs too.
const START: Duration = Duration::from_secs(60);

/// A lock's servers.
#[derive(Debug)]
pub(crate) enum Servers {
    ZooKeeper(ZooKeeper),
    Redis(Redis),
}

impl Servers {
    pub(crate) fn start(on_zookeeper: bool) -> Result<Self, Error> {
        Ok(match on_zookeeper {
            // A session timeout of some seconds, in a grain that is small beside it.
            true => Self::ZooKeeper(ZooKeeper::standalone(&Options::new())?),
            false => Self::Redis(Redis::start()?),
        })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        match self {
            Self::ZooKeeper(servers) => servers.address(0),
            Self::Redis(server) => server.address(),
        }
    }

    pub(crate) fn version(&self) -> String {
        match self {
            Self::ZooKeeper(servers) => format!("ZooKeeper {}", servers.version().unwrap_or("?")),
            Self::Redis(server) => format!("Redis {}", server.version()),
        }
    }

    /// Kills the server, and starts it again.
    pub(crate) fn restart(&mut self) -> Result<(), Error> {
        match self {
            Self::ZooKeeper(servers) => {
                servers.kill(0);
                servers.restart(0)?;
            }
            Self::Redis(server) => server.restart()?,
        }
        Ok(())
    }

    /// Returns how many nodes or keys there are of a lock.
    pub(crate) fn left(&self, path: &str) -> Result<usize, Error> {
        match self {
            Self::ZooKeeper(_) => runtime()?.block_on(async {
                let client = Client::connect(&self.address().to_string()).await?;
                match client.list_children(path).await {
                    Ok(children) => Ok(children.len()),
                    Err(zookeeper_client::Error::NoNode) => Ok(0),
                    Err(error) => Err(error.into()),
                }
            }),
            Self::Redis(server) => {
                let mut connection = redis::Client::open(format!("redis://{}", server.address()))?
                    .get_connection()?;
                Ok(redis::cmd("EXISTS").arg(path).query(&mut connection)?)
            }
        }
    }

    /// Makes a node for data; a key needs no making.
    pub(crate) fn make(&self, node: &str) -> Result<(), Error> {
        if let Self::ZooKeeper(_) = self {
            runtime()?.block_on(async {
                let client = Client::connect(&self.address().to_string()).await?;
                client
                    .create(
                        node,
                        b"",
                        &CreateMode::Persistent.with_acls(Acls::anyone_all()),
                    )
                    .await
            })?;
        }
        Ok(())
    }

    /// Returns the data of a node or key.
    pub(crate) fn data(&self, node: &str) -> Result<String, Error> {
        match self {
            Self::ZooKeeper(_) => runtime()?.block_on(async {
                let client = Client::connect(&self.address().to_string()).await?;
                Ok(String::from_utf8(client.get_data(node).await?.0)?)
            }),
            Self::Redis(server) => {
                let mut connection = redis::Client::open(format!("redis://{}", server.address()))?
                    .get_connection()?;
                let data: Option<String> = redis::cmd("GET").arg(node).query(&mut connection)?;
                Ok(data.unwrap_or_default())
            }
        }
    }
}

fn runtime() -> Result<Runtime, Error> {
    Ok(tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?)
}

/// A holder's process.
#[derive(Debug)]
pub(crate) struct Process {
    worker: Worker,
    /// Where its journals are, one for each session.
    journals: TempDir,
    opened: usize,
    careful: bool,
    /// Steps that have not been answered.
    pending: usize,
    granted: i64,
    token: Option<(i64, i64)>,
}

impl Process {
    pub(crate) fn start(name: &str, careful: bool, command: Command) -> Result<Self, Error> {
        let journals = tempfile::Builder::new().prefix("matrix-").tempdir()?;
        let worker = Worker::start(name, command)?;
        Ok(Self {
            worker,
            journals,
            opened: 0,
            careful,
            pending: 0,
            granted: 0,
            token: None,
        })
    }

    fn journal(&self) -> PathBuf {
        self.journals.path().join(self.opened.to_string())
    }

    /// Makes the holder begin a session.
    pub(crate) fn open(
        &mut self,
        servers: SocketAddr,
        path: &str,
        time: Duration,
    ) -> Result<(), Error> {
        self.opened += 1;
        let open = Open {
            servers: servers.to_string(),
            path: path.to_owned(),
            millis: time.as_millis() as u64,
            careful: self.careful,
            journal: self.journal(),
        };
        self.begin(&Step::Open(open))?;
        self.end(START)?
            .map(drop)
            .ok_or_else(|| "no session was opened in time".into())
    }

    /// Tells it to do a step.
    pub(crate) fn begin(&mut self, step: &Step) -> Result<(), Error> {
        self.pending += 1;
        self.worker.tell(step)
    }

    /// Waits until the process has carried out the step. Returns its answer; `None` if the process
    /// takes too long.
    pub(crate) fn end(&mut self, limit: Duration) -> Result<Option<HolderAnswer>, Error> {
        let began = Instant::now();
        let mut line = String::new();
        while self.pending > 0 {
            let Some(next) = self.worker.answer(limit.saturating_sub(began.elapsed())) else {
                return Ok(None);
            };
            self.pending -= 1;
            line = next;
        }
        let answer: HolderAnswer =
            serde_json::from_str(&line).map_err(|error| format!("{line:?}: {error}"))?;
        if let Some(error) = answer.error {
            return Err(error.into());
        }
        if let Some(granted) = answer.granted {
            (self.granted, self.token) = (granted, answer.token);
        }
        Ok(Some(answer))
    }

    /// Tells it to do a step, and waits for that.
    pub(crate) fn step(
        &mut self,
        step: &Step,
        limit: Duration,
    ) -> Result<Option<HolderAnswer>, Error> {
        self.begin(step)?;
        self.end(limit)
    }

    /// Returns when the lock was last granted.
    pub(crate) fn granted(&self) -> i64 {
        self.granted
    }

    pub(crate) fn token(&self) -> Option<(i64, i64)> {
        self.token
    }

    /// Returns the answers of the lock since the last grant.
    pub(crate) fn observed_hold(&self) -> Result<ObservedHold, Error> {
        let polls = fs::read_to_string(self.journal())?
            .lines()
            .filter_map(Poll::read)
            .collect::<Vec<_>>();
        let polls = polls
            .into_iter()
            .filter(|poll| poll.answered >= self.granted)
            .collect();
        Ok(ObservedHold {
            granted: self.granted,
            polls,
        })
    }

    fn signal(&self, signal: Signal) -> Result<(), Error> {
        let id = Pid::from_raw(i32::try_from(self.worker.id())?).ok_or("no process")?;
        Ok(kill_process(id, signal)?)
    }

    pub(crate) fn pause(&self) -> Result<(), Error> {
        self.signal(Signal::STOP)
    }

    pub(crate) fn resume(&self) -> Result<(), Error> {
        self.signal(Signal::CONT)
    }

    pub(crate) fn kill(&mut self) {
        self.worker.kill();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The process may wait for a lock, or be stopped, and would not quit.
        self.kill();
    }
}

/// Waits: for other processes, which send no event.
#[expect(
    clippy::disallowed_methods,
    reason = "what other processes do in a time is what is measured"
)]
pub(crate) fn wait(time: Duration) {
    std::thread::sleep(time);
}

/// Looks until something is so, or a limit is over.
pub(crate) fn until(
    limit: Duration,
    mut look: impl FnMut() -> Result<bool, Error>,
) -> Result<bool, Error> {
    let began = Instant::now();
    loop {
        if look()? {
            return Ok(true);
        }
        if began.elapsed() > limit {
            return Ok(false);
        }
        wait(Duration::from_millis(50));
    }
}

/// Returns the proxy through which the holder that gets into trouble reaches the servers.
pub(crate) fn proxy(servers: &Servers) -> Result<Proxy, Error> {
    Ok(Proxy::start(servers.address())?)
}
