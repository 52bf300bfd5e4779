//! The measurement: how many notifications a release causes.

use std::time::Duration;

use indicatif::ProgressBar;
use serde::Serialize;
use zookeeper_recipes::{Client, InterProcessMutex};

use crate::common::crew::progress_bar;
use crate::common::program::unless_interrupted;
use crate::common::tree::Tree;
use crate::common::workers::{FromWorker, Workers};
use crate::common::{Error, Servers, run_name};
use crate::contender::{Assignment, Command, Kind, Message};
use crate::options::Options;
use crate::wire::Wire;

/// How often the measurement checks whether all contenders wait that have to.
const TICK: Duration = Duration::from_millis(2);

/// How long a contender of the mutex has, once its node exists, to set its watch at a real server:
/// nothing shows the watch from outside. A contender without a watch would be neither notified nor
/// counted.
const TIME_TO_WATCH: Duration = Duration::from_millis(20);

/// The measurements with a number of waiters.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Point {
    pub(crate) waiters: u32,
    /// Notifications for each release.
    pub(crate) naive: f64,
    pub(crate) sequential: f64,
    /// Releases of the sequential lock that notified more than one waiter.
    #[serde(skip)]
    pub(crate) herds: u32,
}

/// Measures both locks with some numbers of waiters; returns `None` if that was interrupted.
pub(crate) async fn measure(
    options: &Options,
    servers: &Servers,
) -> Result<Option<Vec<Point>>, Error> {
    let client = Client::connect(&servers.connect_string).await?;
    let tree = Tree::connect(&servers.connect_string, options.session_timeout).await?;
    let root = format!("/herd/{}", run_name());
    tree.make(&root, "").await?;
    let wire = match servers.in_process {
        Some(_) => None,
        None => Some(Wire::start(&servers.connect_string).await?),
    };
    let mut workers = Workers::<Message>::new();
    let sizes = options.sizes();
    let curve = unless_interrupted(async {
        let assignments = (0..options.processes).map(|_| Assignment {
            session_timeout: options.session_timeout,
        });
        workers
            .start(assignments, |message| matches!(message, Message::Ready))
            .await?;
        let bar = progress_bar(sizes.len() as u32 * 2 * options.releases, "releases");
        let mut herd = Herd {
            options,
            servers,
            wire,
            client: &client,
            root: &root,
            workers: &mut workers,
            bar,
        };
        let mut curve = Vec::new();
        for waiters in sizes {
            let (naive, _) = herd.releases(Kind::Naive, waiters).await?;
            let (sequential, herds) = herd.releases(Kind::Sequential, waiters).await?;
            curve.push(Point {
                waiters,
                naive,
                sequential,
                herds,
            });
        }
        herd.bar.finish_and_clear();
        Ok::<_, Error>(curve)
    })
    .await?;
    // All workers are stopped, also after an interrupt.
    workers.stop().await;
    tree.delete(&root).await?;
    client.close().await?;
    curve.transpose()
}

struct Herd<'a> {
    options: &'a Options,
    servers: &'a Servers,
    /// The counter of notifications, for real servers.
    wire: Option<Wire>,
    client: &'a Client,
    root: &'a str,
    workers: &'a mut Workers<Message>,
    bar: ProgressBar,
}

/// The states of the contenders for a lock.
#[derive(Debug, Default)]
struct Stage {
    /// The process of the holder.
    holder: Option<u32>,
    /// Contenders that have set their watches since the last release; those of the mutex
    /// do not report it.
    waiting: u32,
    /// Processes whose contenders have left.
    left: u32,
}

impl Herd<'_> {
    /// Releases a lock several times, each time with this many waiters. Returns how many
    /// notifications each release caused on average, and how many releases caused more than one.
    async fn releases(&mut self, kind: Kind, waiters: u32) -> Result<(f64, u32), Error> {
        let path = match kind {
            Kind::Naive => format!("{}/naive-{waiters}", self.root),
            Kind::Sequential => format!("/locks{}/{waiters}", self.root),
        };
        let servers = self
            .wire
            .as_ref()
            .map_or(&self.servers.connect_string, |wire| &wire.connect_string);
        let servers = servers.clone();
        let mutex = InterProcessMutex::new(self.client, &path)?;
        let processes = self.options.processes;
        for process in 0..processes {
            // The number of contenders is one more than that of the waiters, because one holds the
            // lock.
            let contenders = (process..waiters + 1).step_by(processes as usize).count() as u32;
            let command = Command::Contend {
                kind,
                contenders,
                servers: servers.clone(),
                path: path.clone(),
            };
            self.workers
                .send(process, &serde_json::to_string(&command)?)
                .await;
        }
        let what = if kind == Kind::Naive {
            "naive"
        } else {
            "sequential"
        };
        self.bar.set_message(format!("{what}, {waiters} waiters"));
        let mut stage = Stage::default();
        let (mut total, mut herds) = (0, 0);
        self.until_settled(kind, waiters, &mutex, &mut stage)
            .await?;
        for _ in 0..self.options.releases {
            let before = self.notifications();
            let holder = stage.holder.take().ok_or("the lock has no holder")?;
            stage.waiting = 0;
            self.workers
                .send(holder, &serde_json::to_string(&Command::Release)?)
                .await;
            self.until_settled(kind, waiters, &mutex, &mut stage)
                .await?;
            let notified = self.notifications() - before;
            total += notified;
            herds += u32::from(notified > 1);
            self.bar.inc(1);
        }
        self.workers
            .send_all(&serde_json::to_string(&Command::Leave)?)
            .await;
        while stage.left < processes {
            self.hear(&mut stage).await?;
        }
        Ok((total as f64 / f64::from(self.options.releases), herds))
    }

    /// Waits until one contender has the lock and all others wait for it.
    async fn until_settled(
        &mut self,
        kind: Kind,
        waiters: u32,
        mutex: &InterProcessMutex,
        stage: &mut Stage,
    ) -> Result<(), Error> {
        while stage.holder.is_none() || kind == Kind::Naive && stage.waiting < waiters {
            self.hear(stage).await?;
        }
        if kind == Kind::Sequential {
            while (mutex.participants().await?.len() as u32) < waiters + 1
                || !self.all_watch(waiters)
            {
                tokio::time::sleep(TICK).await;
            }
            if self.wire.is_some() {
                tokio::time::sleep(TIME_TO_WATCH).await;
            }
        }
        Ok(())
    }

    /// Returns whether there are as many watches as waiters, if that can be known.
    fn all_watch(&self, waiters: u32) -> bool {
        let server = self.servers.in_process.as_ref();
        server.is_none_or(|server| server.counters().watches() >= waiters as usize)
    }

    /// Waits for the next message of any process.
    async fn hear(&mut self, stage: &mut Stage) -> Result<(), Error> {
        let (process, event) = self.workers.next().await.ok_or("the workers are gone")?;
        match event {
            FromWorker::Message(Message::Holding) => stage.holder = Some(process),
            FromWorker::Message(Message::Waiting) => stage.waiting += 1,
            FromWorker::Message(Message::Left) => stage.left += 1,
            FromWorker::Message(Message::Ready) => {}
            FromWorker::Message(Message::Failed(error)) => {
                return Err(format!("worker {} failed: {error}", process + 1).into());
            }
            FromWorker::Exited => {
                return Err(format!("worker {} ended without a message", process + 1).into());
            }
        }
        Ok(())
    }

    /// Returns how many notifications there have been.
    fn notifications(&self) -> u64 {
        match (&self.wire, &self.servers.in_process) {
            (Some(wire), _) => wire.notifications(),
            (None, Some(server)) => server.counters().notifications(),
            (None, None) => 0,
        }
    }
}
