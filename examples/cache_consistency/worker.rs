//! A worker: a process that reads, or one that writes.

use std::time::Duration;

use rustix::process::{Signal, getpid, kill_process};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{MissedTickBehavior, interval};
use zookeeper_recipes::mode::{self, Mode};
use zookeeper_recipes::{
    Acquired, Busy, Client, InterProcessReadWriteLock, LockGuard, OptionalExt, ReleaseError,
};

use crate::common::worker::{Orders, leave, say};
use crate::common::{Error, chain, monotonic};
use crate::options::{Fault, Lock, Role, Terms};
use crate::protocol::{How, Message, Shift, Tally};
use crate::store::{Cache, Step, Table};

/// How often a reader reads, and a writer writes.
const READ_EVERY: Duration = Duration::from_millis(1);
const WRITE_EVERY: Duration = Duration::from_millis(10);

/// After how many reads a reader reports.
const REPORT_EVERY: u32 = 20;

/// How often a writer that lost the lock starts again.
const ATTEMPTS: u32 = 3;

pub(crate) fn run() -> Result<(), Error> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(work())
}

async fn work() -> Result<(), Error> {
    // Ctrl-C reaches all processes of a terminal. The run ends its workers itself, so that they can leave properly.
    let _interrupts = signal(SignalKind::interrupt())?;
    let mut orders = Orders::listen()?;
    let Some(shift) = orders.shift::<Shift>().await? else { return Ok(()) };
    let client =
        Client::builder().session_timeout(shift.terms.session_timeout).connect(&shift.servers).await?;
    let mut worker = Worker {
        table: Table::open(&shift.directory)?,
        cache: Cache::open(&shift.directory)?,
        lock: InterProcessReadWriteLock::new(&client, &shift.lock)?,
        terms: shift.terms,
        stops: shift.stops,
        turns: 0,
    };
    say(&Message::Ready)?;
    if orders.next().await.is_some() {
        let done = match shift.role {
            Role::Reader => worker.read_on(&mut orders).await,
            Role::Writer { writes } => worker.write_on(writes, &mut orders).await,
        };
        match done {
            Ok(()) => say(&Message::Done)?,
            Err(error) => say(&Message::Failed(chain(&*error)))?,
        }
    }
    leave(client).await
}

struct Worker {
    table: Table,
    cache: Cache,
    lock: InterProcessReadWriteLock,
    terms: Terms,
    /// The turns in which it stops itself.
    stops: Vec<(u32, Fault)>,
    turns: u32,
}

impl Worker {
    /// Reads until there is another word, and then once more.
    async fn read_on(&mut self, orders: &mut Orders) -> Result<(), Error> {
        let mut ticks = interval(READ_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut tally, mut last) = (Tally::default(), false);
        while !last {
            let mut read = std::pin::pin!(self.audited_read());
            let read = loop {
                tokio::select! {
                    read = &mut read => break read?,
                    // Dropping what is under way leaves no node behind.
                    order = orders.next() => match order {
                        Some(_) => last = true,
                        None => return Ok(()),
                    },
                }
            };
            tally.add(read);
            if tally.reads >= REPORT_EVERY || last {
                say(&Message::Read(std::mem::take(&mut tally)))?;
            }
            ticks.tick().await;
        }
        // One that begins after the last write, whatever the one before it saw.
        say(&Message::Read(self.audited_read().await?))
    }

    /// Reads as an application would, and looks into the table before to know what it should have seen at least.
    async fn audited_read(&mut self) -> Result<Tally, Error> {
        let committed = self.table.version()?;
        let mut tally = Tally { reads: 1, ..Tally::default() };
        let version = match self.cache.get()? {
            // No lock: a writer takes the entry out before it changes the row.
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

    /// Reads the row and puts it into the cache, under the read lock: between the one and the other nobody writes. Nothing
    /// if it could not be had in time.
    async fn read_through(&mut self) -> Result<Option<u32>, Error> {
        let guard = match self.terms.lock {
            Lock::None => None,
            Lock::ReadWrite => match self.lock.read_lock().acquire(self.terms.wait).await.optional()? {
                Acquired(guard) => Some(guard),
                Busy => return Ok(None),
            },
        };
        let Some(turn) = Turn::begin(guard) else { return Ok(None) };
        let Some(version) = self.table.look(turn.token())? else {
            // As below, and we have not even begun.
            turn.end(How::Refused).await?;
            return Ok(Some(self.table.version()?));
        };
        self.think(&turn).await?;
        let how = match self.cache.fill(version, turn.token())? {
            Step::Done => How::Filled { version },
            // We were away for longer than our session, and a writer has been here. What we read is not for the cache.
            Step::Refused => How::Refused,
        };
        turn.end(how).await?;
        Ok(Some(version))
    }

    /// Between the two steps.
    async fn think<M: Mode>(&mut self, turn: &Turn<M>) -> Result<(), Error> {
        self.turns += 1;
        let stops = self.stops.iter().find(|(turn, _)| *turn == self.turns).map(|(_, fault)| *fault);
        say(&Message::Inside { from: turn.from, stops })?;
        if stops.is_some() {
            // All threads, also the one that keeps the session. It goes on here, if it goes on.
            kill_process(getpid(), Signal::STOP)?;
        }
        tokio::time::sleep(self.terms.think).await;
        Ok(())
    }

    async fn write_on(&mut self, writes: u32, orders: &mut Orders) -> Result<(), Error> {
        let mut ticks = interval(WRITE_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        for _ in 0..writes {
            ticks.tick().await;
            tokio::select! {
                written = self.write() => written?,
                // They may tell us anything but to stop.
                () = async { while orders.next().await.is_some() {} } => return Ok(()),
            }
        }
        Ok(())
    }

    async fn write(&mut self) -> Result<(), Error> {
        for _ in 0..ATTEMPTS {
            let guard = match self.terms.lock {
                Lock::None => None,
                Lock::ReadWrite => Some(self.lock.write_lock().acquire(self.terms.wait).await?),
            };
            let Some(turn) = Turn::begin(guard) else { continue };
            let how = self.update(&turn).await?;
            turn.end(how).await?;
            if how != How::Refused {
                return Ok(());
            }
        }
        Err(format!("a writer lost the lock {ATTEMPTS} times in a row").into())
    }

    /// Takes the entry out of the cache, and then changes the row, both under the write lock. In this order whoever dies in
    /// between leaves an empty cache, not a stale one.
    async fn update(&mut self, turn: &Turn<mode::Write>) -> Result<How, Error> {
        if self.cache.clear(turn.token())? == Step::Refused {
            return Ok(How::Refused);
        }
        self.think(turn).await?;
        Ok(match self.table.update(turn.token())? {
            Some(version) => How::Written { version },
            None => How::Refused,
        })
    }
}

/// A turn inside, with a lock or without one.
struct Turn<M: Mode> {
    guard: Option<LockGuard<M>>,
    from: u64,
}

impl<M: Mode> Turn<M> {
    /// Nothing, if the lock was granted, and lost again before this process got to know of it.
    fn begin(guard: Option<LockGuard<M>>) -> Option<Self> {
        let from = monotonic();
        guard.as_ref().is_none_or(LockGuard::is_held).then_some(Self { guard, from })
    }

    fn token(&self) -> Option<M::Token> {
        self.guard.as_ref().map(LockGuard::fencing_token)
    }

    async fn end(self, how: How) -> Result<(), Error> {
        let at = monotonic();
        let held = self.guard.as_ref().is_none_or(LockGuard::is_held);
        let until = if held { at } else { self.from };
        // Before the release, so that who is not heard of is inside.
        say(&Message::Outside { at, how, until })?;
        let Some(guard) = self.guard else { return Ok(()) };
        match guard.release().await {
            // That is what the tokens are for.
            Ok(()) | Err(ReleaseError::Lost(_)) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}
