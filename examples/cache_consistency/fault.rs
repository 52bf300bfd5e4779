//! Kills or resumes the worker that has stopped itself between its two steps.

use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::common::{Error, monotonic};
use crate::history::{History, Incident, Section};
use crate::options::{Fault, Role};

/// Kills a worker that has stopped itself, or resumes it when others have been inside.
#[derive(Debug)]
pub(crate) struct FaultInjector {
    session_timeout: Duration,
    victim: Option<Victim>,
}

/// A worker that is paused.
#[derive(Debug)]
struct Victim {
    worker: u32,
    role: Role,
    pid: Pid,
    /// When it went inside.
    from: u64,
    paused: u64,
    since: Instant,
}

impl FaultInjector {
    pub(crate) fn new(session_timeout: Duration) -> Self {
        Self {
            session_timeout,
            victim: None,
        }
    }

    /// Returns whether [`on_tick`](Self::on_tick) is to be called.
    pub(crate) fn is_busy(&self) -> bool {
        self.victim.is_some()
    }

    /// Kills a worker that stops itself inside, which is in the history already, or leaves it
    /// paused. Returns a notice for the terminal; `None` if the worker has ended.
    pub(crate) fn on_stop(
        &mut self,
        worker: u32,
        from: u64,
        fault: Fault,
        pid: Option<Pid>,
        history: &mut History,
    ) -> Result<Option<String>, Error> {
        let Some(pid) = pid else { return Ok(None) };
        Ok(Some(match fault {
            Fault::Kill => {
                kill_process(pid, Signal::KILL)?;
                history.killed(worker);
                "a writer was killed".to_owned()
            }
            Fault::Pause(role) => {
                let (paused, since) = (monotonic(), Instant::now());
                self.victim = Some(Victim {
                    worker,
                    role,
                    pid,
                    from,
                    paused,
                    since,
                });
                let role = if role == Role::Reader {
                    "reader"
                } else {
                    "writer"
                };
                format!("a {role} is stopped")
            }
        }))
    }

    pub(crate) fn session_timeout(&self) -> Duration {
        self.session_timeout
    }

    /// Resumes the victim if this section shows that its session has expired: a writer was inside
    /// after a reader, or a reader after a writer. The victim continues where it was, and does not
    /// know of the other.
    pub(crate) fn on_section(
        &mut self,
        section: &Section,
        history: &mut History,
    ) -> Result<(), Error> {
        let replaced =
            |victim: &mut Victim| section.from > victim.from && section.role != victim.role;
        self.victim
            .take_if(replaced)
            .map_or(Ok(()), |victim| resume(&victim, history))
    }

    /// Resumes the victim if no other has got the lock for far longer than its session lasts.
    pub(crate) fn on_tick(&mut self, history: &mut History) -> Result<(), Error> {
        let pause = self.session_timeout * 2 + Duration::from_secs(10);
        let overdue = |victim: &mut Victim| victim.since.elapsed() >= pause;
        self.victim
            .take_if(overdue)
            .map_or(Ok(()), |victim| resume(&victim, history))
    }
}

fn resume(victim: &Victim, history: &mut History) -> Result<(), Error> {
    kill_process(victim.pid, Signal::CONT)?;
    let until = monotonic();
    history.incidents.push(Incident::Paused {
        worker: victim.worker,
        from: victim.paused,
        until,
    });
    Ok(())
}
