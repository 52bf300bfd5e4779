//! An attempt: what its caller asked for and gets, and what stops it from outside.
//!
//! An attempt belongs to one call, or to several callers that wait together, and is one task from
//! its start to its end. Everything that it waits for is waited for together with what may
//! [stop](Stop) it: the departure of its caller, its deadline, and the proof that it asks for what it
//! cannot have. In a session, the end of the session is a fourth, after which it goes on in the
//! next one ([`wait`]).
//!
//! A request that may have made a node is the exception: a create, once sent, is awaited to its end,
//! since only its answer says whether there is a node to be deleted.
//!
//! The end has an order, which a flush relies on (docs/protocol.md#flush): the ticket of what is left
//! is made, the caller is told, the rest is left to cleanup, and the ticket is dropped.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use crate::engine::call::ProgressSender;
use crate::engine::granted::Grant;
use crate::engine::lock::path_lock::{Ask, Budget, PathLock};
use crate::engine::request::look::until_deadline;
use crate::engine::request::requests::AttemptContext;
use crate::engine::shared_queue::NodeSlot;
use crate::error::{AcquireError, TryLockError};
use crate::protocol::late::Ahead;
use crate::protocol::numbers::AttemptNumber;
use crate::session::leftovers::cleanup::Ticket;
use crate::session::reports::log;
use crate::session::threads::BoxFuture;
use crate::values::path::NodePath;

/// One attempt to get a lock, or permits of a semaphore.
pub(crate) struct Attempt {
    pub(crate) path_lock: Arc<PathLock>,
    pub(crate) ask: Ask,
    /// Its position in the order of arrival, which identifies what it leaves to cleanup. The holds
    /// that it gets have this number and those that follow, from the time of the call: a flush after
    /// it waits for a grant that is not taken.
    pub(crate) number: AttemptNumber,
    /// How many holds are wanted.
    pub(crate) wanted: u32,
    pub(crate) started: Instant,
    pub(crate) progress: ProgressSender,
    /// `None` once the caller has its result, or has left.
    pub(crate) reply: Option<Reply>,
    /// `None` until it has one, and from its end on.
    pub(crate) slot: Option<NodeSlot>,
}

/// Where the result is sent: to a caller that waits for one grant, or for that of several permits.
pub(crate) enum Reply {
    Lock(oneshot::Sender<Result<Grant, TryLockError>>),
    Permits(oneshot::Sender<Result<Vec<Grant>, TryLockError>>),
}

/// What an attempt is granted: a lock, or as many permits as were asked for.
pub(crate) enum Granted {
    Lock(Grant),
    Permits(Vec<Grant>),
}

/// How an attempt, or its part in one session, ended without a grant.
pub(crate) enum End {
    Denied(TryLockError),
    OutOfTime,
    /// The caller has left. [`Client::flush`](crate::Client::flush) waits until the ticket is
    /// dropped.
    CallerGone(Option<Ticket>),
    /// To be tried again: in this session, or in the next one if this has ended.
    Again,
}

/// How an attempt was stopped.
pub(crate) enum Stopped {
    /// The caller has left. [`Client::flush`](crate::Client::flush) waits until the ticket is
    /// dropped.
    CallerGone(Option<Ticket>),
    OutOfTime,
    /// It asks for what it cannot have.
    Refused(AcquireError),
}

/// What can stop an attempt: its deadline, its caller, or that it asks for too much.
pub(crate) struct Stop {
    deadline: Option<BoxFuture<'static, ()>>,
    /// Receives a ticket when the caller leaves. It is kept until everything is left to cleanup.
    cancelled: oneshot::Receiver<Ticket>,
    /// Finds out whether it asks for what it cannot have.
    excess: Option<BoxFuture<'static, AcquireError>>,
}

impl Stop {
    /// Shortly before the deadline of an attempt for `path_lock`, it is asked who is in its way
    /// (docs/protocol.md#held-by).
    pub(crate) fn new(
        budget: Budget,
        cancelled: oneshot::Receiver<Ticket>,
        path_lock: Option<&Arc<PathLock>>,
    ) -> Self {
        let deadline: Option<BoxFuture<'static, ()>> =
            match (budget, path_lock) {
                (Budget::Until { deadline, asked }, Some(path_lock)) => Some(Box::pin(
                    until_deadline(Arc::clone(path_lock), deadline, asked),
                )),
                (Budget::Until { deadline, .. }, None) => {
                    Some(Box::pin(tokio::time::sleep_until(deadline.into())))
                }
                // A try has no deadline, but does not wait for a server without end either.
                (Budget::Try { timeout }, _) => Some(Box::pin(tokio::time::sleep(timeout))),
                (Budget::Forever, _) => None,
            };
        Self {
            deadline,
            cancelled,
            excess: None,
        }
    }

    /// Stops the attempt with the error of this future; with `None` not any more.
    pub(crate) fn refuse_by(&mut self, excess: Option<BoxFuture<'static, AcquireError>>) {
        self.excess = excess;
    }

    /// Waits until the caller leaves. Must not be called again after that.
    pub(crate) async fn caller_gone(&mut self) -> Option<Ticket> {
        (&mut self.cancelled).await.ok()
    }

    /// Waits until the attempt must stop. Must not be called again after that.
    pub(crate) async fn wait(&mut self) -> Stopped {
        tokio::select! {
            biased;
            ticket = &mut self.cancelled => Stopped::CallerGone(ticket.ok()),
            () = if_any(&mut self.deadline) => Stopped::OutOfTime,
            error = if_any(&mut self.excess) => Stopped::Refused(error),
        }
    }
}

/// Waits for a future, forever if there is none.
async fn if_any<F: Future + Unpin>(future: &mut Option<F>) -> F::Output {
    match future {
        Some(future) => future.await,
        None => std::future::pending().await,
    }
}

/// How long a try waits behind one live contender. Counted from when it is behind that: not while
/// the servers are asked.
pub(crate) struct Patience {
    time: Duration,
    first: Option<NodePath>,
    until: Option<Instant>,
}

impl Patience {
    pub(crate) fn new(time: Duration) -> Self {
        Self {
            time,
            first: None,
            until: None,
        }
    }

    /// Notes the live contenders ahead, as they were seen now. Returns whether the try has waited
    /// behind the first of them for long enough. Without a live one it waits only for the servers.
    pub(crate) fn is_over(&mut self, ahead: Option<&Ahead>) -> bool {
        let (first, now) = (ahead.and_then(|ahead| ahead.first.clone()), Instant::now());
        let until = self
            .until
            .filter(|_| first.is_some() && first == self.first);
        self.until = until.or_else(|| first.as_ref().and_then(|_| now.checked_add(self.time)));
        self.first = first;
        until.is_some_and(|until| until <= now)
    }

    /// Returns when it is time to look who is ahead.
    pub(crate) fn look_at(&self) -> Option<Instant> {
        self.until
    }
}

impl Attempt {
    /// Sends the grant to the caller, and has the attempt be over. If the caller has left, the grant
    /// comes back here, and its drop releases the lock.
    pub(crate) fn grant(&mut self, granted: Granted) {
        match (self.reply.take(), granted) {
            (Some(Reply::Lock(reply)), Granted::Lock(grant)) => drop(reply.send(Ok(grant))),
            (Some(Reply::Permits(reply)), Granted::Permits(grants)) => {
                drop(reply.send(Ok(grants)));
            }
            // Not expected: an attempt is granted something once, and only a semaphore grants
            // permits, which no caller asks for a lock. The caller takes the attempt for ended, and
            // the grant is released.
            (Some(Reply::Lock(_)), Granted::Permits(_))
            | (Some(Reply::Permits(_)), Granted::Lock(_))
            | (None, _) => {}
        }
    }

    /// Tells the caller why there is no grant, if the attempt has ended.
    /// [`Client::flush`](crate::Client::flush) waits until the returned ticket is dropped; it
    /// exists before the caller is told, so that a flush called after that counts it.
    pub(crate) fn tell(&mut self, end: End) -> Option<Ticket> {
        let ticket = || Some(self.path_lock.client.cleanup.ticket(self.number));
        let (ticket, error) = match end {
            End::Again => return None,
            End::CallerGone(ticket) => {
                self.reply = None;
                return ticket;
            }
            End::Denied(error) => (ticket(), error),
            End::OutOfTime => (ticket(), self.out_of_time()),
        };
        // A caller that has left needs no error.
        match self.reply.take() {
            Some(Reply::Lock(reply)) => drop(reply.send(Err(error))),
            Some(Reply::Permits(reply)) => drop(reply.send(Err(error))),
            None => {}
        }
        ticket
    }

    /// Records the live contenders ahead by the last list, `None` if that may have changed: for the
    /// caller, and for attempts that wait for a slot.
    pub(crate) fn saw_ahead(&self, ahead: Option<Ahead>) {
        if let Some(slot) = &self.slot {
            slot.set_waits(ahead.is_some());
        }
        self.progress.set_ahead(ahead);
    }

    /// Records a notification that one of them has ended. The list that follows shows which are
    /// left.
    pub(crate) fn one_is_gone(&self) {
        self.saw_ahead(self.progress.ahead().and_then(Ahead::without_one));
    }

    /// Returns the error at the deadline.
    fn out_of_time(&self) -> TryLockError {
        let (waiting, budget) = (self.progress.waiting(), self.ask.budget);
        self.path_lock
            .out_of_time(waiting, self.ask.kind, budget, budget.waited(self.started))
    }
}

impl From<AcquireError> for End {
    fn from(error: AcquireError) -> Self {
        Self::Denied(error.into())
    }
}

impl From<Stopped> for End {
    fn from(stopped: Stopped) -> Self {
        match stopped {
            Stopped::CallerGone(ticket) => Self::CallerGone(ticket),
            Stopped::OutOfTime => Self::OutOfTime,
            Stopped::Refused(error) => error.into(),
        }
    }
}

/// Waits for `work`, until the attempt has to stop or the session ends. A result that is ready has
/// precedence.
///
/// Box it, so that a task that waits for something else has no room for it, and this is compiled
/// for each type of results.
pub(crate) async fn wait<T>(
    context: AttemptContext<'_>,
    work: impl Future<Output = T> + Unpin,
    stop: &mut Stop,
) -> Result<T, End> {
    tokio::select! {
        biased;
        result = work => Ok(result),
        end = stop.wait() => Err(End::from(end)),
        _ = context.session.ended() => {
            let path = context.path_lock.path.user();
            log::debug!(path, session = context.session.number.get(), "again in the next session");
            Err(End::Again)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::path::LockPath;

    // Shows: try-permits
    #[test]
    fn patience_ends_behind_the_same_contender() {
        let directory = LockPath::parse("", "/lock").unwrap();
        let behind = |name| {
            Some(Ahead {
                count: 1,
                first: Some(directory.user_child(name)),
            })
        };
        let mut patience = Patience::new(Duration::ZERO);
        assert!(!patience.is_over(behind("a").as_ref()), "it begins");
        assert!(!patience.is_over(behind("b").as_ref()), "another is first");
        assert!(patience.is_over(behind("b").as_ref()));
        assert!(!patience.is_over(None), "they are gone");
        assert_eq!(patience.look_at(), None);
        assert!(!patience.is_over(behind("b").as_ref()), "it begins again");
    }
}
