//! What becomes of a worker that stops itself between its two steps, as if somebody had stopped it there.

use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::common::{Error, monotonic};
use crate::diary::{Diary, Incident, Turn};
use crate::options::{Fault, Who};

/// Kills who has stopped, or wakes it up when others have been inside.
#[derive(Debug)]
pub(crate) struct Saboteur {
    /// For how long others may take.
    patience: Duration,
    paused: Option<Victim>,
}

/// A worker that has stopped.
#[derive(Debug)]
struct Victim {
    worker: u32,
    who: Who,
    pid: Pid,
    /// Since when it has been inside.
    from: u64,
    stopped: u64,
    since: Instant,
}

impl Saboteur {
    pub(crate) fn new(session_timeout: Duration) -> Self {
        Self { patience: session_timeout * 2 + Duration::from_secs(10), paused: None }
    }

    /// Whether somebody waits to be woken up.
    pub(crate) fn is_busy(&self) -> bool {
        self.paused.is_some()
    }

    /// A worker stops itself inside; that is in the diary.
    pub(crate) fn stops(
        &mut self,
        worker: u32,
        from: u64,
        fault: Fault,
        pid: Option<Pid>,
        diary: &mut Diary,
    ) -> Result<(), Error> {
        let Some(pid) = pid else { return Ok(()) };
        match fault {
            Fault::Kill => {
                kill_process(pid, Signal::KILL)?;
                diary.killed(worker);
            }
            Fault::Pause(who) => {
                let (stopped, since) = (monotonic(), Instant::now());
                self.paused = Some(Victim { worker, who, pid, from, stopped, since });
            }
        }
        Ok(())
    }

    /// A worker has come out.
    pub(crate) fn outside(&mut self, turn: &Turn, diary: &mut Diary) -> Result<(), Error> {
        // A writer that was let in after a reader had stopped, or a reader after a writer: the session of who has stopped is
        // over. It goes on where it was, and knows nothing of who has been inside.
        let relieved = |victim: &mut Victim| turn.from > victim.from && turn.who != victim.who;
        self.paused.take_if(relieved).map_or(Ok(()), |victim| wake(&victim, diary))
    }

    /// Time has passed. Somebody should have got the lock long since, if there is anybody.
    pub(crate) fn tick(&mut self, diary: &mut Diary) -> Result<(), Error> {
        let overdue = |victim: &mut Victim| victim.since.elapsed() >= self.patience;
        self.paused.take_if(overdue).map_or(Ok(()), |victim| wake(&victim, diary))
    }
}

fn wake(victim: &Victim, diary: &mut Diary) -> Result<(), Error> {
    kill_process(victim.pid, Signal::CONT)?;
    let until = monotonic();
    diary.incidents.push(Incident::Paused { worker: victim.worker, from: victim.stopped, until });
    Ok(())
}
