//! Kills or pauses the worker that holds a lock.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use tokio::task::{AbortHandle, JoinSet};

use crate::common::{Error, monotonic};
use crate::history::{History, Incident, Section};
use crate::lock::ProductLock;
use crate::options::Fault;
use crate::protocol::{Event, EventKind};
use crate::store::Store;

/// How long a worker is paused before it is killed, so that the messages that it had sent before
/// have arrived.
const SETTLE: Duration = Duration::from_millis(100);

/// How often the servers are asked whether a worker's session has expired.
const EXPIRY_POLL: Duration = Duration::from_millis(5);

/// Waits for a holder that has read the stock and has not written yet, and hits it with the next
/// fault.
#[derive(Debug)]
pub(crate) struct FaultInjector {
    faults: VecDeque<Fault>,
    session_timeout: Duration,
    victim: Option<Victim>,
    /// Each task returns whose session has expired, and when.
    expiries: JoinSet<Option<(u32, u64)>>,
}

/// A worker that is paused.
#[derive(Debug)]
struct Victim {
    worker: u32,
    pid: Pid,
    user: u32,
    product: usize,
    /// When it got the lock.
    from: u64,
    paused: u64,
    since: Instant,
    expiry: AbortHandle,
}

impl FaultInjector {
    pub(crate) fn new(faults: Vec<Fault>, session_timeout: Duration) -> Self {
        Self {
            faults: faults.into(),
            session_timeout,
            victim: None,
            expiries: JoinSet::new(),
        }
    }

    /// Returns whether [`on_tick`](Self::on_tick) is to be called.
    pub(crate) fn is_busy(&self) -> bool {
        !self.faults.is_empty() || !self.expiries.is_empty()
    }

    /// Acts on an event that is in the history already. Returns a notice for the terminal, if there
    /// is news.
    pub(crate) fn on_event(
        &mut self,
        event: &Event,
        pid: Option<Pid>,
        locks: &[Option<ProductLock>],
        store: &mut Store,
        history: &mut History,
    ) -> Result<Option<String>, Error> {
        let Some(&Section {
            worker,
            product,
            from,
            ..
        }) = history.last_of(event.user)
        else {
            return Ok(None);
        };
        let Some(victim) = &self.victim else {
            let has_stock = matches!(event.kind, EventKind::Read { left: 1.. });
            let (true, Some(pid), Some(lock)) = (has_stock, pid, &locks[product]) else {
                return Ok(None);
            };
            if self.faults.is_empty() {
                return Ok(None);
            }
            kill_process(pid, Signal::STOP)?;
            if !has_stopped(pid)? {
                return Ok(None);
            }
            let (paused, since) = (monotonic(), Instant::now());
            if store.is_write_locked()? || store.has_bought(event.user)? {
                // The worker was writing for another of its users, and would block all others; or
                // it has written without a report yet. The next holder may not have.
                kill_process(pid, Signal::CONT)?;
                return Ok(None);
            }
            let expiry = self.expiries.spawn(until_expired(worker, lock.clone()));
            let user = event.user;
            self.victim = Some(Victim {
                worker,
                pid,
                user,
                product,
                from,
                paused,
                since,
                expiry,
            });
            return Ok(Some(format!("worker {} is stopped", worker + 1)));
        };
        // The signal came too late: the victim had left its critical section.
        let escaped = victim.user == event.user && matches!(event.kind, EventKind::Ended { .. });
        // Another user was granted the lock after the victim, so its session has expired, or it had
        // released the lock.
        let replaced = product == victim.product
            && from > victim.from
            && matches!(event.kind, EventKind::Read { .. });
        if escaped || replaced && victim.since.elapsed() < self.session_timeout / 2 {
            self.resume_unharmed()?;
            return Ok(None);
        }
        if replaced {
            self.strike(history)
        } else {
            Ok(None)
        }
    }

    /// Acts on the time that has passed. Returns a notice for the terminal, if there is news.
    pub(crate) fn on_tick(&mut self, history: &mut History) -> Result<Option<String>, Error> {
        while let Some(expired) = self.expiries.try_join_next() {
            // An error means that the task was aborted.
            if let Ok(Some((worker, at))) = expired {
                history.incidents.push(Incident::Expired { worker, at });
            }
        }
        let Some(victim) = &self.victim else {
            return Ok(None);
        };
        let pause = match self.faults.front() {
            Some(Fault::Kill) => SETTLE,
            // Another user has the lock after this time, if any wants it.
            _ => self.session_timeout * 2 + Duration::from_secs(10),
        };
        if victim.since.elapsed() < pause {
            return Ok(None);
        }
        if let Some(Fault::Pause) = self.faults.front() {
            // The victim's session has not expired, and the victim releases the lock when it
            // resumes.
            victim.expiry.abort();
        }
        self.strike(history)
    }

    pub(crate) fn session_timeout(&self) -> Duration {
        self.session_timeout
    }

    /// Kills the victim, or lets it continue.
    fn strike(&mut self, history: &mut History) -> Result<Option<String>, Error> {
        let (Some(victim), Some(fault)) = (self.victim.take(), self.faults.pop_front()) else {
            return Ok(None);
        };
        let Victim {
            worker,
            pid,
            paused,
            ..
        } = victim;
        Ok(match fault {
            Fault::Kill => {
                kill_process(pid, Signal::KILL)?;
                history.incidents.push(Incident::Killed {
                    worker,
                    at: monotonic(),
                });
                Some(format!("worker {} was killed", worker + 1))
            }
            Fault::Pause => {
                // The present holder has read the stock and has not written yet: the worst moment
                // to resume its predecessor.
                kill_process(pid, Signal::CONT)?;
                history.incidents.push(Incident::Paused {
                    worker,
                    from: paused,
                    until: monotonic(),
                });
                None
            }
        })
    }

    /// Lets a victim continue that was not inside any more, and waits for the next holder.
    fn resume_unharmed(&mut self) -> Result<(), Error> {
        if let Some(victim) = self.victim.take() {
            victim.expiry.abort();
            kill_process(victim.pid, Signal::CONT)?;
        }
        Ok(())
    }
}

/// Waits until all threads of a worker have stopped, and returns `false` if it has ended instead.
///
/// The signal only requests the stop: a thread in a system call finishes the call first, and may
/// thereby lock the database.
fn has_stopped(pid: Pid) -> Result<bool, Error> {
    let options = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    let status = waitid(WaitId::Pid(pid), options)?;
    Ok(status.is_some_and(|status| status.stopped()))
}

/// Waits until the lock's first node is gone, and returns when that was. The node is a paused
/// worker's, so only the end of its session deletes it.
async fn until_expired(worker: u32, lock: ProductLock) -> Option<(u32, u64)> {
    let holder = lock.participants().await.ok()?.into_iter().next()?;
    let mut ticks = tokio::time::interval(EXPIRY_POLL);
    loop {
        ticks.tick().await;
        if !lock.participants().await.ok()?.contains(&holder) {
            return Some((worker, monotonic()));
        }
    }
}
