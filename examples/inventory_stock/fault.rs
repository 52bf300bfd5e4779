//! Kills or stops the worker that holds a lock, when asked to.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::common::{Error, monotonic};
use crate::diary::{Diary, Incident, Turn};
use crate::options::Fault;
use crate::protocol::{Event, What};
use crate::store::Store;

/// For how long a worker is stopped before it is killed: what it said before that it was stopped has been heard then.
const SETTLE: Duration = Duration::from_millis(100);

/// Lies in wait for a holder that has seen the shelf and has not written yet.
#[derive(Debug)]
pub(crate) struct Saboteur {
    faults: VecDeque<Fault>,
    session_timeout: Duration,
    victim: Option<Victim>,
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
}

impl Saboteur {
    pub(crate) fn new(faults: Vec<Fault>, session_timeout: Duration) -> Self {
        Self { faults: faults.into(), session_timeout, victim: None }
    }

    /// Whether there is something left to do.
    pub(crate) fn is_busy(&self) -> bool {
        !self.faults.is_empty()
    }

    /// A worker has said something about a turn; it is in the diary.
    pub(crate) fn hear(
        &mut self,
        event: &Event,
        pid: Option<Pid>,
        store: &mut Store,
        diary: &mut Diary,
    ) -> Result<(), Error> {
        let Some(&Turn { worker, product, from, .. }) = diary.turn_of(event.user) else { return Ok(()) };
        let Some(victim) = &self.victim else {
            if let (What::Saw { left: 1.. }, Some(pid), true) = (&event.what, pid, self.is_busy()) {
                kill_process(pid, Signal::STOP)?;
                let (stopped, since) = (monotonic(), Instant::now());
                if store.is_stuck()? {
                    // It was writing for another of its users, and nobody could go on. The next one may not be.
                    return Ok(kill_process(pid, Signal::CONT)?);
                }
                let user = event.user;
                self.victim = Some(Victim { worker, pid, user, product, from, stopped, since });
            }
            return Ok(());
        };
        let slipped_away = victim.user == event.user && matches!(event.what, What::Ended { .. });
        // Somebody was granted the lock after the victim: its session is over, or it had given the lock back.
        let relieved =
            product == victim.product && from > victim.from && matches!(event.what, What::Saw { .. });
        if slipped_away || relieved && victim.since.elapsed() < self.session_timeout / 2 {
            return self.let_go();
        }
        if relieved {
            self.finish(diary)?;
        }
        Ok(())
    }

    /// Time has passed.
    pub(crate) fn tick(&mut self, diary: &mut Diary) -> Result<(), Error> {
        let Some(victim) = &self.victim else { return Ok(()) };
        let enough = match self.faults.front() {
            Some(Fault::Kill) => SETTLE,
            // Somebody should have got the lock long since, if there is anybody.
            _ => self.session_timeout * 2 + Duration::from_secs(10),
        };
        if victim.since.elapsed() >= enough { self.finish(diary) } else { Ok(()) }
    }

    fn finish(&mut self, diary: &mut Diary) -> Result<(), Error> {
        let (Some(victim), Some(fault)) = (self.victim.take(), self.faults.pop_front()) else {
            return Ok(());
        };
        let Victim { worker, pid, stopped, .. } = victim;
        match fault {
            Fault::Kill => {
                kill_process(pid, Signal::KILL)?;
                diary.incidents.push(Incident::Killed { worker, at: monotonic() });
            }
            Fault::Pause => {
                // Whoever has the lock now has seen the shelf and has not written yet. There is no worse moment to wake up.
                kill_process(pid, Signal::CONT)?;
                diary.incidents.push(Incident::Paused { worker, from: stopped, until: monotonic() });
            }
        }
        Ok(())
    }

    /// It was not inside any more. The next one will be.
    fn let_go(&mut self) -> Result<(), Error> {
        match self.victim.take() {
            Some(victim) => Ok(kill_process(victim.pid, Signal::CONT)?),
            None => Ok(()),
        }
    }
}
