//! A worker: a process that reads, or one that writes.

use std::time::Duration;

use rustix::process::{Signal, getpid, kill_process};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{MissedTickBehavior, interval};
use zookeeper_recipes::mode::{self, Mode};
use zookeeper_recipes::{
    Acquisition::{Acquired, Busy},
    Client, InterProcessReadWriteLock, LockGuard, OrBusy, ReleaseError,
};

use crate::common::worker::{Commands, close, send};
use crate::common::{Error, chain, monotonic};
use crate::options::{Config, Fault, Lock, Role};
use crate::protocol::{Assignment, Ending, Message, Tally};
use crate::store::{Cache, Step, Table};

/// How often a reader reads, and a writer writes.
const READ_INTERVAL: Duration = Duration::from_millis(1);
const WRITE_INTERVAL: Duration = Duration::from_millis(10);

/// After how many reads a reader reports.
const READS_PER_REPORT: u32 = 20;

/// How often a writer starts again after losing the lock.
const ATTEMPTS: u32 = 3;

/// Runs a worker, from its assignment to the end of its session.
pub(crate) fn run() -> Result<(), Error> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?
        .block_on(work())
}

async fn work() -> Result<(), Error> {
    // Ctrl-C goes to all processes of a terminal. The run stops its workers itself, so that they
    // can close their sessions.
    let _interrupts = signal(SignalKind::interrupt())?;
    let mut commands = Commands::listen()?;
    let Some(assignment) = commands.assignment::<Assignment>().await? else {
        return Ok(());
    };
    let config = assignment.config;
    let client = Client::builder()
        .session_timeout(config.session_timeout)
        .connect(&assignment.servers)
        .await?;
    let mut worker = Worker {
        table: Table::open(&assignment.directory)?,
        cache: Cache::open(&assignment.directory)?,
        lock: InterProcessReadWriteLock::new(&client, &assignment.lock)?,
        config,
        stops: assignment.stops,
        sections: 0,
    };
    send(&Message::Ready)?;
    if commands.next().await.is_some() {
        let done = match assignment.role {
            Role::Reader => worker.run_reader(&mut commands).await,
            Role::Writer => worker.run_writer(assignment.writes, &mut commands).await,
        };
        match done {
            Ok(()) => send(&Message::Done)?,
            Err(error) => send(&Message::Failed(chain(&*error)))?,
        }
    }
    close(client).await
}

struct Worker {
    table: Table,
    cache: Cache,
    lock: InterProcessReadWriteLock,
    config: Config,
    /// The critical sections in which it stops itself, from 1.
    stops: Vec<(u32, Fault)>,
    /// How many critical sections it has entered.
    sections: u32,
}

impl Worker {
    /// Reads until the next command, and once more after it.
    async fn run_reader(&mut self, commands: &mut Commands) -> Result<(), Error> {
        let mut ticks = interval(READ_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut tally, mut last) = (Tally::default(), false);
        while !last {
            let mut read = std::pin::pin!(self.audited_read());
            let read = loop {
                tokio::select! {
                    read = &mut read => break read?,
                    command = commands.next() => match command {
                        Some(_) => last = true,
                        // Dropping the read cancels it, and leaves no node behind.
                        None => return Ok(()),
                    },
                }
            };
            tally.add(read);
            if tally.reads >= READS_PER_REPORT || last {
                send(&Message::Read(std::mem::take(&mut tally)))?;
            }
            ticks.tick().await;
        }
        // The read before may have begun before the last write; this one begins after it.
        send(&Message::Read(self.audited_read().await?))
    }

    /// Reads as an application would, and before that looks into the table for the version that the
    /// read must not miss.
    async fn audited_read(&mut self) -> Result<Tally, Error> {
        let committed = self.table.version()?;
        let mut tally = Tally {
            reads: 1,
            ..Tally::default()
        };
        let version = match self.cache.get()? {
            // The entry is removed before the row changes, as a writer without a lock would do.
            Some(version) => {
                tally.hits = 1;
                version
            }
            None => match self.read_through().await? {
                Some(version) => version,
                None => {
                    tally.timed_out = 1;
                    self.table.version()?
                }
            },
        };
        tally.stale = u32::from(version < committed);
        Ok(tally)
    }

    /// Reads the row and puts it into the cache, under the read lock, so that no write is granted
    /// the lock between. Returns `None` if the lock was not granted in time, or was lost at once.
    async fn read_through(&mut self) -> Result<Option<u32>, Error> {
        let guard = match self.config.lock {
            Lock::None => None,
            Lock::ReadWrite => match self
                .lock
                .read_lock()
                .acquire(self.config.wait)
                .await
                .or_busy()?
            {
                Acquired(guard) => Some(guard),
                Busy => return Ok(None),
            },
        };
        let Some(section) = CriticalSection::enter(guard) else {
            return Ok(None);
        };
        let Some(version) = self.table.read(section.token())? else {
            // The process was paused before the first step for longer than its session, and a
            // writer has been inside.
            section.leave(Ending::Refused).await?;
            return Ok(Some(self.table.version()?));
        };
        self.think(&section).await?;
        let ending = match self.cache.fill(version, section.token())? {
            Step::Applied => Ending::Filled { version },
            // A refusal between the two steps means that the row that was read must not go to the
            // cache.
            Step::Refused => Ending::Refused,
        };
        section.leave(ending).await?;
        Ok(Some(version))
    }

    /// Thinks between the two steps, or stops this process there if a fault is due.
    async fn think<M: Mode>(&mut self, section: &CriticalSection<M>) -> Result<(), Error> {
        self.sections += 1;
        let stops = self
            .stops
            .iter()
            .find(|(number, _)| *number == self.sections)
            .map(|(_, fault)| *fault);
        send(&Message::Entered {
            from: section.from,
            stops,
        })?;
        if stops.is_some() {
            // Stops all threads, also the session's. If the parent resumes this process, it
            // continues here.
            kill_process(getpid(), Signal::STOP)?;
        }
        tokio::time::sleep(self.config.think).await;
        Ok(())
    }

    /// Writes `writes` times.
    async fn run_writer(&mut self, writes: u32, commands: &mut Commands) -> Result<(), Error> {
        let mut ticks = interval(WRITE_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        for _ in 0..writes {
            ticks.tick().await;
            tokio::select! {
                written = self.write() => written?,
                // Only the end of the commands concerns a writer.
                () = async { while commands.next().await.is_some() {} } => return Ok(()),
            }
        }
        Ok(())
    }

    /// Writes once, and starts again if the lock was lost.
    async fn write(&mut self) -> Result<(), Error> {
        for _ in 0..ATTEMPTS {
            let guard = match self.config.lock {
                Lock::None => None,
                Lock::ReadWrite => Some(self.lock.write_lock().acquire(self.config.wait).await?),
            };
            let Some(section) = CriticalSection::enter(guard) else {
                continue;
            };
            let ending = self.update(&section).await?;
            section.leave(ending).await?;
            if ending != Ending::Refused {
                return Ok(());
            }
        }
        Err(format!("a writer lost the lock {ATTEMPTS} times in a row").into())
    }

    /// Takes the entry out of the cache, and then changes the row, both under the write lock. In
    /// this order, a writer that dies in between leaves an empty cache, not a stale one.
    async fn update(&mut self, section: &CriticalSection<mode::Write>) -> Result<Ending, Error> {
        if self.cache.clear(section.token())? == Step::Refused {
            return Ok(Ending::Refused);
        }
        self.think(section).await?;
        Ok(match self.table.update(section.token())? {
            Some(version) => Ending::Written { version },
            None => Ending::Refused,
        })
    }
}

/// A critical section, with a lock or without one.
struct CriticalSection<M: Mode> {
    guard: Option<LockGuard<M>>,
    from: u64,
}

impl<M: Mode> CriticalSection<M> {
    /// Enters the section; returns `None` if the lock was lost between its grant and now.
    fn enter(guard: Option<LockGuard<M>>) -> Option<Self> {
        let from = monotonic();
        guard
            .as_ref()
            .is_none_or(LockGuard::is_held)
            .then_some(Self { guard, from })
    }

    fn token(&self) -> Option<M::Token> {
        self.guard.as_ref().map(LockGuard::fencing_token)
    }

    /// Reports the end of the section, and releases the lock.
    async fn leave(self, ending: Ending) -> Result<(), Error> {
        let at = monotonic();
        let held = self.guard.as_ref().is_none_or(LockGuard::is_held);
        let until = if held { at } else { self.from };
        // The message is sent before the release, so that the next holder's first message comes
        // after it.
        send(&Message::Left { at, ending, until })?;
        let Some(guard) = self.guard else {
            return Ok(());
        };
        match guard.release().await {
            // After a loss the tokens have kept the table and the cache consistent.
            Ok(()) | Err(ReleaseError::Lost(_)) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}
