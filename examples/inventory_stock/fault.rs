//! Kills or stops the worker that holds a lock, when asked to.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tokio::task::{AbortHandle, JoinSet};

use crate::common::{Error, monotonic};
use crate::diary::{Diary, Incident, Turn};
use crate::lock::ShelfLock;
use crate::options::Fault;
use crate::protocol::{Event, What};
use crate::store::Store;

/// For how long a worker is stopped before it is killed: what it said before that it was stopped has been heard then.
const SETTLE: Duration = Duration::from_millis(100);

/// How often the servers are asked whether a worker's session has expired.
const EXPIRY_POLL: Duration = Duration::from_millis(5);

/// Lies in wait for a holder that has seen the shelf and has not written yet.
#[derive(Debug)]
pub(crate) struct Saboteur {
    faults: VecDeque<Fault>,
    session_timeout: Duration,
    victim: Option<Victim>,
    /// Each tells whose session has expired, and when.
    expiries: JoinSet<Option<(u32, u64)>>,
}

/// A worker that is stopped.
#[derive(Debug)]
struct Victim {
    worker: u32,
    pid: Pid,
    user: u32,
    product: usize,
    /// When it got the lock.
    from: u64,
    stopped: u64,
    since: Instant,
    expiry: AbortHandle,
}

impl Saboteur {
    pub(crate) fn new(faults: Vec<Fault>, session_timeout: Duration) -> Self {
        Self { faults: faults.into(), session_timeout, victim: None, expiries: JoinSet::new() }
    }

    /// Whether there is something left to do.
    pub(crate) fn is_busy(&self) -> bool {
        !self.faults.is_empty() || !self.expiries.is_empty()
    }

    /// A worker has said something about a turn; it is in the diary. Answers what is to be told of it, if anything.
    pub(crate) fn hear(
        &mut self,
        event: &Event,
        pid: Option<Pid>,
        locks: &[Option<ShelfLock>],
        store: &mut Store,
        diary: &mut Diary,
    ) -> Result<Option<String>, Error> {
        let Some(&Turn { worker, product, from, .. }) = diary.turn_of(event.user) else { return Ok(None) };
        let Some(victim) = &self.victim else {
            if let (What::Saw { left: 1.. }, Some(pid), false, Some(lock)) =
                (&event.what, pid, self.faults.is_empty(), &locks[product])
            {
                kill_process(pid, Signal::STOP)?;
                let (stopped, since) = (monotonic(), Instant::now());
                if store.is_stuck()? {
                    // It was writing for another of its users, and nobody could go on. The next one may not be.
                    kill_process(pid, Signal::CONT)?;
                    return Ok(None);
                }
                let user = event.user;
                let expiry = self.expiries.spawn(until_expired(worker, lock.clone()));
                self.victim = Some(Victim { worker, pid, user, product, from, stopped, since, expiry });
                return Ok(Some(self.news(worker, "is stopped")));
            }
            return Ok(None);
        };
        let slipped_away = victim.user == event.user && matches!(event.what, What::Ended { .. });
        // Somebody was granted the lock after the victim: its session is over, or it had given the lock back.
        let relieved =
            product == victim.product && from > victim.from && matches!(event.what, What::Saw { .. });
        if slipped_away || relieved && victim.since.elapsed() < self.session_timeout / 2 {
            return self.let_go().map(|()| None);
        }
        if relieved { self.finish(diary) } else { Ok(None) }
    }

    /// Time has passed. Answers what is to be told, if anything.
    pub(crate) fn tick(&mut self, diary: &mut Diary) -> Result<Option<String>, Error> {
        while let Some(expired) = self.expiries.try_join_next() {
            // One that was aborted is none.
            if let Ok(Some((worker, at))) = expired {
                diary.incidents.push(Incident::Expired { worker, at });
            }
        }
        let Some(victim) = &self.victim else { return Ok(None) };
        let enough = match self.faults.front() {
            Some(Fault::Kill) => SETTLE,
            // Somebody should have got the lock long since, if there is anybody.
            _ => self.session_timeout * 2 + Duration::from_secs(10),
        };
        if victim.since.elapsed() < enough {
            return Ok(None);
        }
        if let Some(Fault::Pause) = self.faults.front() {
            // It will release its lock.
            victim.expiry.abort();
        }
        self.finish(diary)
    }

    fn news(&self, worker: u32, what: &str) -> String {
        format!("worker {} {what} with the lock; its session lasts {:?}", worker + 1, self.session_timeout)
    }

    fn finish(&mut self, diary: &mut Diary) -> Result<Option<String>, Error> {
        let (Some(victim), Some(fault)) = (self.victim.take(), self.faults.pop_front()) else {
            return Ok(None);
        };
        let Victim { worker, pid, stopped, .. } = victim;
        Ok(match fault {
            Fault::Kill => {
                kill_process(pid, Signal::KILL)?;
                diary.incidents.push(Incident::Killed { worker, at: monotonic() });
                Some(self.news(worker, "was killed"))
            }
            Fault::Pause => {
                // Whoever has the lock now has seen the shelf and has not written yet. There is no worse moment to wake up.
                kill_process(pid, Signal::CONT)?;
                diary.incidents.push(Incident::Paused { worker, from: stopped, until: monotonic() });
                None
            }
        })
    }

    /// It was not inside any more. The next one will be.
    fn let_go(&mut self) -> Result<(), Error> {
        match self.victim.take() {
            Some(victim) => {
                victim.expiry.abort();
                Ok(kill_process(victim.pid, Signal::CONT)?)
            }
            None => Ok(()),
        }
    }
}

/// Waits until the node of the worker that has the lock is gone. It was stopped, so only the end of its session can delete
/// that.
async fn until_expired(worker: u32, lock: ShelfLock) -> Option<(u32, u64)> {
    let holder = lock.participants().await.ok()?.into_iter().next()?;
    let mut ticks = tokio::time::interval(EXPIRY_POLL);
    loop {
        ticks.tick().await;
        if !lock.participants().await.ok()?.contains(&holder) {
            return Some((worker, monotonic()));
        }
    }
}
