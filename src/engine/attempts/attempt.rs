//! An attempt: the request of its caller, the result, and the events that stop it.
//!
//! An attempt belongs to one call, or to several callers that wait together, and is one task from
//! its beginning to its end. Each wait of the task also ends when an event [stops](Stop) the
//! attempt: the caller leaves, the deadline passes, or the request turns out to be one that can
//! never be granted. In a session, a fourth event ends each wait: the session ends, and the attempt
//! continues in the next one ([`wait`]).
//!
//! Requests that create nodes are the exception: a create, and the transaction by which the head of
//! a semaphore's queue takes its permits. Once such a request is sent, its answer is awaited,
//! because only the answer shows whether there is a node to be deleted.
//!
//! A flush relies on the order in which an attempt ends (docs/protocol.md#flush). The nodes are
//! passed to cleanup, which counts them by tickets, before the caller gets its result. If a create
//! is not answered yet, the task makes a ticket before the result is sent, and keeps it until the
//! answer has come and cleanup has the node.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use crate::engine::granted::Grant;
use crate::engine::lock::path_lock::{Ask, Budget, PathLock};
use crate::engine::pending::ProgressSender;
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
    /// The position in the order of arrival. Everything that the attempt leaves to cleanup has this
    /// number, and its holds have this number and those that follow. The number is given at the
    /// time of the call, so that a later flush also waits for a grant that no caller takes.
    pub(crate) number: AttemptNumber,
    /// How many holds are wanted.
    pub(crate) wanted: u32,
    pub(crate) started: Instant,
    pub(crate) progress: ProgressSender,
    /// `None` once the caller has its result, or has left.
    pub(crate) reply: Option<Reply>,
    /// `None` until the attempt has a slot, and from its end on.
    pub(crate) slot: Option<NodeSlot>,
}

/// Where the result is sent: to a caller that waits for one lock, or for several permits.
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
    /// The attempt begins again: in this session, or in the next one if this one has ended.
    Again,
}

/// How an attempt was stopped.
pub(crate) enum Stopped {
    CallerGone(Option<Ticket>),
    OutOfTime,
    /// The request can never be granted.
    Refused(AcquireError),
}

/// The events that can stop an attempt: the deadline passes, the caller leaves, or the request
/// turns out to ask for too much.
pub(crate) struct Stop {
    deadline: Option<BoxFuture<'static, ()>>,
    /// Receives a ticket when the caller leaves. The ticket is kept until all nodes of the attempt
    /// are left to cleanup.
    cancelled: oneshot::Receiver<Ticket>,
    /// Resolves if the request turns out to be one that can never be granted.
    excess: Option<BoxFuture<'static, AcquireError>>,
}

impl Stop {
    /// With `path_lock`, the first contender of its queue is looked up shortly before the deadline,
    /// for the error (docs/protocol.md#held-by).
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
                // A multi-lock needs no look-up: the attempts of its members have the same
                // deadline, and look up the holder themselves.
                (Budget::Until { deadline, .. }, None) => {
                    Some(Box::pin(tokio::time::sleep_until(deadline.into())))
                }
                // A try waits for no contender. Its timeout bounds only the time for the answers of
                // the servers.
                (Budget::Try { timeout }, _) => Some(Box::pin(tokio::time::sleep(timeout))),
                (Budget::Forever, _) => None,
            };
        Self {
            deadline,
            cancelled,
            excess: None,
        }
    }

    /// Makes the attempt stop with the error of this future. `None` removes an earlier future.
    pub(crate) fn refuse_by(&mut self, excess: Option<BoxFuture<'static, AcquireError>>) {
        self.excess = excess;
    }

    /// Waits until the caller leaves. Must not be called again after that.
    pub(crate) async fn caller_gone(&mut self) -> Option<Ticket> {
        // The sender is dropped without a ticket if the caller has its result already, so there is
        // no ticket to keep.
        (&mut self.cancelled).await.ok()
    }

    /// Waits until the attempt must stop. Must not be called again after that.
    pub(crate) async fn wait(&mut self) -> Stopped {
        tokio::select! {
            biased;
            // A caller that has left needs no error, so its departure counts before the deadline.
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

/// The time for which a try waits behind one live contender. The time begins when a look shows this
/// contender as the first, so the requests before that look do not count.
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

    /// Notes the live contenders ahead, as a look has just shown them. Returns whether the try has
    /// waited behind the first of them for long enough. If there is none, the try waits only for
    /// the servers.
    pub(crate) fn is_over(&mut self, ahead: Option<&Ahead>) -> bool {
        let (first, now) = (ahead.and_then(|ahead| ahead.first.clone()), Instant::now());
        // If another contender is first now, the queue has moved, and the time begins again. Only
        // an end that was set by an earlier look counts, so the first look at a contender never
        // ends the try.
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
    /// Sends the grant to the caller, which ends the attempt. If the caller has left, the channel
    /// returns the grant, and its drop releases the lock.
    pub(crate) fn grant(&mut self, granted: Granted) {
        match (self.reply.take(), granted) {
            (Some(Reply::Lock(reply)), Granted::Lock(grant)) => drop(reply.send(Ok(grant))),
            (Some(Reply::Permits(reply)), Granted::Permits(grants)) => {
                drop(reply.send(Ok(grants)));
            }
            // Not expected: an attempt is granted once, and its reply is of the kind of its grant.
            // The drop of the reply ends the call with an error, and the drop of the grant releases
            // the lock.
            (Some(Reply::Lock(_)), Granted::Permits(_))
            | (Some(Reply::Permits(_)), Granted::Lock(_))
            | (None, _) => {}
        }
    }

    /// Sends the caller the error that explains why there is no grant, if the attempt has ended.
    /// [`Client::flush`](crate::Client::flush) waits until the returned ticket is dropped; it
    /// exists before the error is sent, so that a flush called after that counts it.
    pub(crate) fn send_error(&mut self, end: End) -> Option<Ticket> {
        let ticket = || Some(self.path_lock.client.cleanup.ticket(self.number));
        let (ticket, error) = match end {
            // The reply stays, so that `contend` begins another round.
            End::Again => return None,
            // Without a reply, `contend` ends.
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

    /// Records the live contenders that the last list shows ahead, for the caller's error, and for
    /// attempts that wait for a slot. `None` if that list may be out of date.
    pub(crate) fn saw_ahead(&self, ahead: Option<Ahead>) {
        if let Some(slot) = &self.slot {
            slot.set_waits(ahead.is_some());
        }
        self.progress.set_ahead(ahead);
    }

    /// Records that one of the contenders ahead has ended. The list that follows shows which are
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
/// Pass boxed work, so that a task that waits for something else reserves no memory for it.
pub(crate) async fn wait<T>(
    context: AttemptContext<'_>,
    work: impl Future<Output = T> + Unpin,
    stop: &mut Stop,
) -> Result<T, End> {
    tokio::select! {
        biased;
        result = work => Ok(result),
        end = stop.wait() => Err(End::from(end)),
        // The nodes have ended with the session. The next session begins without them, and the
        // attempt keeps its deadline and its place in the order of arrival
        // (docs/protocol.md#session-end).
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
