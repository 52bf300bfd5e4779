//! The trial of a fault with one lock: which holders believe that they hold the lock, who is
//! granted it, and what is left.

use std::time::Duration;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use test_support::{Cut, Direction, Proxy};

use crate::Error;
use crate::matrix::field::{Process, Servers, until, wait};
use crate::matrix::judge;
use crate::step::{Step, now};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Fault {
    /// The holder's process is killed.
    Killed,
    /// The holder is stopped until another has the lock, and then resumed.
    Paused,
    /// The holder's link carries nothing, in both directions, until another has the lock.
    Cut,
    /// The answer to its request for the lock is lost, and its connection reset.
    AcquireLost,
    /// The answer to its release is lost, and its connection reset.
    ReleaseLost,
    /// The server is killed and started again while the lock is held.
    Restarted,
}

impl Fault {
    pub(crate) const ALL: [Self; 6] = [
        Self::Killed,
        Self::Paused,
        Self::Cut,
        Self::AcquireLost,
        Self::ReleaseLost,
        Self::Restarted,
    ];
}

/// The result of a trial. Times are in milliseconds.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Outcome {
    /// For how long two believed that they held the lock.
    pub(crate) overlap_ms: Option<f64>,
    /// The time from the notice of the loss to the next grant; negative if the notice came later.
    pub(crate) margin_ms: Option<f64>,
    /// From the fault, or the end of the lost answer, to the grant that follows.
    pub(crate) granted_ms: Option<f64>,
    /// The time from the resumption of a stopped process to the notice of its loss.
    pub(crate) told_ms: Option<f64>,
    /// Nodes or keys of the lock two session timeouts after all have given it back.
    pub(crate) left: usize,
    /// Calls that did not end within two session timeouts and 5 s after all works again.
    pub(crate) stuck: usize,
    /// Errors of calls.
    pub(crate) errors: Vec<String>,
}

fn ms(nanos: i64) -> f64 {
    nanos as f64 / 1e6
}

/// The participants: a holder behind a proxy, which the fault affects, and two others.
#[derive(Debug)]
pub(crate) struct Trial<'a> {
    pub(crate) servers: &'a mut Servers,
    pub(crate) proxy: &'a Proxy,
    pub(crate) holder: &'a mut Process,
    pub(crate) others: [&'a mut Process; 2],
    pub(crate) path: &'a str,
    pub(crate) time: Duration,
}

impl Trial<'_> {
    fn limit(&self) -> Duration {
        2 * self.time + Duration::from_secs(5)
    }

    pub(crate) fn run(mut self, fault: Fault) -> Result<Outcome, Error> {
        let mut outcome = Outcome::default();
        self.holder
            .open(self.proxy.address(), self.path, self.time)?;
        for other in &mut self.others {
            other.open(self.servers.address(), self.path, self.time)?;
        }
        match fault {
            Fault::AcquireLost => self.acquire_lost(&mut outcome)?,
            Fault::ReleaseLost => self.release_lost(&mut outcome)?,
            _ => self.holder_in_trouble(fault, &mut outcome)?,
        }
        until(2 * self.time, || Ok(self.servers.left(self.path)? == 0))?;
        outcome.left = self.servers.left(self.path)?;
        Ok(outcome)
    }

    /// Waits for the end of a step of one of them; counts it if it does not come.
    fn ends(process: &mut Process, limit: Duration, outcome: &mut Outcome) {
        match process.end(limit) {
            Ok(Some(_)) => {}
            Ok(None) => outcome.stuck += 1,
            Err(error) => outcome.errors.push(error.to_string()),
        }
    }

    fn does(
        process: &mut Process,
        step: &Step,
        limit: Duration,
        outcome: &mut Outcome,
    ) -> Result<(), Error> {
        process.begin(step)?;
        Self::ends(process, limit, outcome);
        Ok(())
    }

    /// Waits until one of the others has the lock. Returns which.
    fn next(&mut self, limit: Duration) -> Result<Option<usize>, Error> {
        let mut next = None;
        until(limit, || {
            for (index, other) in self.others.iter_mut().enumerate() {
                if other.end(Duration::from_millis(1))?.is_some() {
                    next = Some(index);
                    return Ok(true);
                }
            }
            Ok(false)
        })?;
        Ok(next)
    }

    fn holder_in_trouble(&mut self, fault: Fault, outcome: &mut Outcome) -> Result<(), Error> {
        let limit = self.limit();
        Self::does(self.holder, &Step::Acquire(true), limit, outcome)?;
        for other in &mut self.others {
            other.begin(&Step::Acquire(true))?;
        }
        // The time is enough for both to be in the queue.
        wait(Duration::from_millis(500));
        let broken = now();
        match fault {
            Fault::Killed => self.holder.kill(),
            Fault::Paused => self.holder.pause()?,
            Fault::Cut => self.proxy.stall(Direction::Both),
            _ => self.servers.restart()?,
        }
        // A server that comes back grants the lock to no other while its holder lives.
        let mut next = self.next(if fault == Fault::Restarted {
            self.time
        } else {
            limit
        })?;
        if next.is_some() {
            // Both are polled in this time.
            wait(Duration::from_millis(500));
        }
        let healed = now();
        match fault {
            Fault::Paused => self.holder.resume()?,
            Fault::Cut => self.proxy.resume(),
            _ => {}
        }
        wait(Duration::from_secs(1));
        if fault != Fault::Killed {
            let former = self.holder.observed_hold()?;
            let noticed = judge::loss_noticed_at(&former, broken);
            if let Some(next) = next {
                let next = self.others[next].observed_hold()?;
                outcome.overlap_ms = judge::overlap(&former, &next).map(ms);
                outcome.margin_ms = noticed.map(|noticed| ms(next.granted - noticed));
            }
            if fault == Fault::Paused {
                outcome.told_ms = noticed.map(|noticed| ms(noticed - healed));
            }
            self.holder.begin(&Step::Release(true))?;
            // An error says that it was lost.
            outcome.stuck += usize::from(matches!(self.holder.end(limit), Ok(None)));
        }
        if next.is_none() {
            next = self.next(limit)?;
        }
        let Some(next) = next else {
            outcome.stuck += 2;
            return Ok(());
        };
        outcome.granted_ms =
            (fault != Fault::Restarted).then(|| ms(self.others[next].granted() - broken));
        Self::does(self.others[next], &Step::Release(true), limit, outcome)?;
        let last = &mut self.others[1 - next];
        Self::ends(last, limit, outcome);
        Self::does(last, &Step::Release(true), limit, outcome)?;
        if fault != Fault::Killed {
            Self::does(self.holder, &Step::Acquire(true), limit, outcome)?;
            Self::does(self.holder, &Step::Release(true), limit, outcome)?;
        }
        Ok(())
    }

    /// Begins a step of the holder, the answer to which is lost. Returns when its connection is
    /// reset.
    fn lose_the_answer(&mut self, step: &Step) -> Result<i64, Error> {
        self.proxy.stall(Direction::ToClient);
        self.holder.begin(step)?;
        // The time is enough for the server to carry it out.
        wait(Duration::from_millis(300));
        self.proxy.cut(Cut::Reset);
        self.proxy.resume();
        Ok(now())
    }

    fn acquire_lost(&mut self, outcome: &mut Outcome) -> Result<(), Error> {
        let limit = self.limit();
        // The first cycle creates the directory, so that the first request of the next acquire
        // creates the contender.
        Self::does(self.holder, &Step::Acquire(true), limit, outcome)?;
        Self::does(self.holder, &Step::Release(true), limit, outcome)?;
        let reset = self.lose_the_answer(&Step::Acquire(true))?;
        Self::ends(self.holder, limit, outcome);
        outcome.granted_ms =
            (self.holder.granted() > reset).then(|| ms(self.holder.granted() - reset));
        Self::does(self.holder, &Step::Release(true), limit, outcome)?;
        for other in &mut self.others {
            Self::does(other, &Step::Acquire(true), limit, outcome)?;
            Self::does(other, &Step::Release(true), limit, outcome)?;
        }
        Ok(())
    }

    fn release_lost(&mut self, outcome: &mut Outcome) -> Result<(), Error> {
        let limit = self.limit();
        Self::does(self.holder, &Step::Acquire(true), limit, outcome)?;
        self.others[0].begin(&Step::Acquire(true))?;
        wait(Duration::from_millis(500));
        let begun = now();
        self.lose_the_answer(&Step::Release(true))?;
        Self::ends(self.others[0], limit, outcome);
        outcome.granted_ms =
            (self.others[0].granted() > begun).then(|| ms(self.others[0].granted() - begun));
        Self::ends(self.holder, limit, outcome);
        Self::does(self.others[0], &Step::Release(true), limit, outcome)?;
        Self::does(self.holder, &Step::Acquire(true), limit, outcome)?;
        Self::does(self.holder, &Step::Release(true), limit, outcome)
    }
}
