//! An attempt, and its part in one session: what it knows and has there, what it leaves, and what stops it from
//! outside.

use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, oneshot, watch};

use crate::engine::call::progress::ProgressSender;
use crate::engine::grant::hold::Hold;
use crate::engine::lock::path_lock::{Ask, Budget, PathLock};
use crate::engine::queue::slots::NodeSlot;
use crate::engine::request::look::{Subject, error_of, until_deadline, unusable_directory};
use crate::engine::request::requests::{CreateUnderWay, Seat};
use crate::error::{AcquireError, Purpose, RequestFailure, TryLockError};
use crate::protocol::acquire::{AcquireStep, Acquiring, IfBusy, NoGrant, Orphans, OwnPredecessor};
use crate::protocol::failure::{FailureKind, Refusal};
use crate::protocol::late::Ahead;
use crate::protocol::moment::Moment;
use crate::protocol::permits::lease_beginning;
use crate::session::leftovers::cleanup::{Item, Orphan, Ticket};
use crate::session::reports::log;
use crate::session::reports::observer::{self, How};
use crate::session::threads::clock;
use crate::values::path::{LockPath, NodePath};

/// One attempt to get a lock, or permits of a semaphore.
pub(crate) struct Attempt {
    pub(crate) path_lock: Arc<PathLock>,
    pub(crate) ask: Ask,
    /// One for each hold that is wanted, from the time of the call: a flush after it waits for a grant that is
    /// not taken. The first is its position in the order of arrival, and identifies what it leaves to cleanup; see
    /// [`Tickets`](crate::session::leftovers::cleanup::Tickets).
    pub(crate) numbers: Range<u64>,
    pub(crate) started: Instant,
    pub(crate) progress: ProgressSender,
    /// `None` once the caller has its result, or has left.
    pub(crate) reply: Option<Reply>,
    /// `None` until it has one, and from its end on.
    pub(crate) slot: Option<NodeSlot>,
}

/// Where the result is sent.
pub(crate) enum Reply {
    Lock(oneshot::Sender<Result<Hold, TryLockError>>),
    Permits(oneshot::Sender<Result<Vec<Hold>, TryLockError>>),
}

/// How an attempt, or its part in one session, ended. It travels as the `Err` of a step, even if it is a
/// grant, since only a step that goes on has an event.
pub(crate) enum End {
    Granted(Vec<Hold>),
    Denied(TryLockError),
    OutOfTime,
    /// The caller has left. [`Client::flush`](crate::Client::flush) waits until the ticket is dropped.
    CallerGone(Option<Ticket>),
    /// To be tried again: in this session, or in the next one if this has ended.
    Again,
}

/// How an attempt was stopped.
pub(crate) enum Stopped {
    /// The caller has left. [`Client::flush`](crate::Client::flush) waits until the ticket is dropped.
    CallerGone(Option<Ticket>),
    OutOfTime,
    /// It asks for what it cannot have.
    Refused(AcquireError),
}

/// What can stop an attempt: its deadline, its caller, or that it asks for too much.
pub(crate) struct Stop {
    deadline: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    /// Receives a ticket when the caller leaves. It is kept until everything is left to cleanup.
    cancelled: oneshot::Receiver<Ticket>,
    /// Finds out whether it asks for what it cannot have.
    excess: Option<Excess>,
}

type Excess = Pin<Box<dyn Future<Output = AcquireError> + Send>>;

impl Stop {
    /// Shortly before the deadline of an attempt for `path_lock`, it is asked who is in its way
    /// (docs/protocol.md#held-by).
    pub(crate) fn new(
        budget: Budget,
        cancelled: oneshot::Receiver<Ticket>,
        path_lock: Option<&Arc<PathLock>>,
    ) -> Self {
        let deadline: Option<Pin<Box<dyn Future<Output = ()> + Send>>> = match (budget, path_lock) {
            (Budget::Until { deadline, asked }, Some(path_lock)) => {
                Some(Box::pin(until_deadline(Arc::clone(path_lock), deadline, asked)))
            }
            (Budget::Until { deadline, .. }, None) => {
                Some(Box::pin(tokio::time::sleep_until(deadline.into())))
            }
            // A try has no deadline, but does not wait for a server without end either.
            (Budget::Try { timeout }, _) => Some(Box::pin(tokio::time::sleep(timeout))),
            (Budget::Forever, _) => None,
        };
        Self { deadline, cancelled, excess: None }
    }

    /// Stops the attempt with the error of this future; with `None` not any more.
    pub(crate) fn refuse_by(&mut self, excess: Option<Excess>) {
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
pub(crate) async fn if_any<F: Future + Unpin>(future: &mut Option<F>) -> F::Output {
    match future {
        Some(future) => future.await,
        None => std::future::pending().await,
    }
}

/// How long a try waits behind live contenders. Counted from when it is behind them: not while the servers are
/// asked.
#[derive(Debug)]
pub(crate) struct Patience {
    time: Duration,
    /// Whether it begins again when another contender is the first.
    for_each: bool,
    first: Option<NodePath>,
    until: Option<Instant>,
}

impl Patience {
    pub(crate) fn new(time: Duration, for_each: bool) -> Self {
        Self { time, for_each, first: None, until: None }
    }

    /// Notes the live contenders ahead, as they were seen now. Returns whether the try has waited behind them for
    /// long enough. Without a live one it waits only for the servers.
    pub(crate) fn is_over(&mut self, ahead: Option<&Ahead>) -> bool {
        let (first, now) = (ahead.and_then(|ahead| ahead.first.clone()), Instant::now());
        let goes_on = first.is_some() && (first == self.first || !self.for_each);
        let until = self.until.filter(|_| goes_on);
        self.until = until.or_else(|| first.as_ref().and_then(|_| now.checked_add(self.time)));
        self.first = first;
        until.is_some_and(|until| until <= now)
    }

    /// Returns when it is time to look who is ahead.
    pub(crate) fn look_at(&self) -> Option<Instant> {
        self.until
    }
}

/// An attempt's part in one session. If it is dropped before it was left, as by a panic, its nodes are left to
/// cleanup.
pub(crate) struct InSession<'a> {
    pub(crate) seat: Seat<'a>,
    pub(crate) attempt: &'a mut Attempt,
    /// What its orphans keep.
    permit: Option<Arc<OwnedSemaphorePermit>>,
    pub(crate) stop: &'a mut Stop,
    pub(crate) acquiring: Acquiring,
    /// A create that was sent and is not answered yet, and its id. It is awaited to its end; any other request
    /// may be dropped.
    pub(crate) create: Option<(String, CreateUnderWay<'a>)>,
    /// The nodes that are left when the state machine has finished: that of a grant until it is a hold's.
    pub(crate) left: Orphans,
    /// The same of a semaphore's leases, and the ids of those whose creates were sent.
    pub(crate) leases: Orphans,
    /// Changes when the deletion of a node is refused.
    pub(crate) refusals: watch::Receiver<u64>,
    /// The node of the last request, for the error if it is refused.
    pub(crate) subject: Subject,
    /// Whether it has waited for another contender, which is told once.
    pub(crate) queued: bool,
    /// When the look was sent by which it may be granted.
    pub(crate) looked_at: Moment,
    /// Whether it has looked again after a doubt, since it has waited for another.
    pub(crate) looked_again: bool,
    /// By what it is granted, if the last event was the last before the grant.
    pub(crate) how: How,
    /// When the current series of failures began: the retry policy does not count the time in the queue.
    failing_since: Instant,
    /// `None` but for a try that waits for a moment.
    pub(crate) patience: Option<Patience>,
}

impl Attempt {
    /// Returns its position in the order of arrival.
    pub(crate) fn number(&self) -> u64 {
        self.numbers.start
    }

    /// Returns how many holds are wanted.
    pub(crate) fn wanted(&self) -> u32 {
        u32::try_from(self.numbers.end.saturating_sub(self.numbers.start)).unwrap_or(u32::MAX)
    }

    pub(crate) fn if_busy(&self) -> IfBusy {
        self.ask.budget.if_busy()
    }

    /// Tells the caller the result, if the attempt has ended. [`Client::flush`](crate::Client::flush) waits
    /// until the returned ticket is dropped; it exists before the caller is told, so that a flush called
    /// after that counts it.
    pub(crate) fn tell(&mut self, end: End) -> Option<Ticket> {
        let ticket = || Some(self.path_lock.client().cleanup.ticket(self.number()));
        let (ticket, answer) = match end {
            End::Again => return None,
            End::CallerGone(ticket) => {
                self.reply = None;
                return ticket;
            }
            End::Granted(holds) => (None, Ok(holds)),
            End::Denied(error) => (ticket(), Err(error)),
            End::OutOfTime => (ticket(), Err(self.out_of_time())),
        };
        if let Some(reply) = self.reply.take() {
            reply.send(answer);
        }
        ticket
    }

    /// Records the live contenders ahead by the last list, `None` if that may have changed: for the caller,
    /// and for attempts that wait for a slot.
    pub(crate) fn saw_ahead(&self, ahead: Option<Ahead>) {
        if let Some(slot) = &self.slot {
            slot.set_waits(ahead.is_some());
        }
        self.progress.set_ahead(ahead);
    }

    /// Records a notification that one of them has ended. The list that follows shows which are left.
    pub(crate) fn one_is_gone(&self) {
        self.saw_ahead(self.progress.ahead().and_then(Ahead::without_one));
    }

    /// Returns the error at the deadline.
    fn out_of_time(&self) -> TryLockError {
        let (waiting, budget) = (self.progress.waiting(), self.ask.budget);
        self.path_lock.out_of_time(waiting, self.ask.kind, budget, budget.waited(self.started))
    }
}

impl Reply {
    /// If the caller has left, the holds come back here, and their drop releases them.
    fn send(self, answer: Result<Vec<Hold>, TryLockError>) {
        match self {
            Self::Permits(reply) => drop(reply.send(answer)),
            // There is one. Without it the caller would take the attempt for ended.
            Self::Lock(reply) => {
                drop(answer.map(|mut holds| holds.pop()).transpose().map(|one| reply.send(one)));
            }
        }
    }
}

impl<'a> InSession<'a> {
    /// Returns the part in the session of `seat`, and its first step.
    pub(crate) fn begin(attempt: &'a mut Attempt, seat: Seat<'a>, stop: &'a mut Stop) -> (Self, AcquireStep) {
        let waits = match seat.path_lock.is_fair() {
            true => OwnPredecessor::InMemory,
            false => OwnPredecessor::Watched,
        };
        let (acquiring, step) = Acquiring::new(seat.path_lock.naming(), seat.kind, attempt.if_busy(), waits);
        let here = Self {
            seat,
            permit: attempt.slot.as_ref().map(NodeSlot::permit),
            attempt,
            stop,
            acquiring,
            create: None,
            left: Orphans::default(),
            leases: Orphans::default(),
            refusals: seat.session.nodes.refusals(),
            subject: Subject::Directory,
            queued: false,
            looked_at: clock::now(),
            looked_again: false,
            how: How::default(),
            failing_since: Instant::now(),
            patience: None,
        };
        (here, step)
    }

    /// Waits for `work`, as [`wait`] does.
    pub(crate) async fn wait<T>(&mut self, work: impl Future<Output = T>) -> Result<T, End> {
        wait(self.seat, work, self.stop).await
    }

    /// Pauses before repetition number `failures`, as the retry policy says. The first is sent at once, unless the
    /// server was busy: it goes out on the next connection, which is waited for anyway. Returns `false` if the
    /// policy is exhausted.
    pub(crate) async fn pause(&mut self, failures: u32, is_busy: bool) -> Result<bool, End> {
        if failures == 0 {
            self.failing_since = Instant::now();
        }
        let Seat { path_lock, session, number, .. } = self.seat;
        let pause = path_lock.client().retry.pause(failures, self.failing_since.elapsed());
        let Some(pause) = pause else { return Ok(false) };
        let pause = if failures == 0 && !is_busy { Duration::ZERO } else { pause };
        if !pause.is_zero() {
            path_lock.queue().with(|queue| queue.step_aside(number, session.number()));
        }
        self.wait(tokio::time::sleep(pause)).await?;
        Ok(true)
    }

    /// Records that it waits for another contender.
    pub(crate) fn queues(&mut self, node: Option<&str>) {
        if !std::mem::replace(&mut self.queued, true) {
            let ahead = || self.attempt.progress.ahead().map(|ahead| ahead.count);
            observer::queued(self.attempt.ask.call, node, ahead);
        }
    }

    /// Returns how the attempt ends when a state machine has finished without a grant. The last request was about a
    /// node of `directory`.
    pub(crate) fn not_granted(&mut self, directory: &LockPath, why: NoGrant) -> End {
        let path_lock = self.seat.path_lock;
        let path = || path_lock.path().user().to_owned();
        End::from(match why {
            NoGrant::SessionGone => return End::Again,
            NoGrant::WouldBlock => {
                return match self.attempt.progress.ahead() {
                    Some(ahead) => End::Denied(path_lock.would_block(self.seat.kind, ahead)),
                    // Only nodes of this client that are being deleted are in the way.
                    None => End::Again,
                };
            }
            NoGrant::Unusable(unusable) => unusable_directory(path_lock, unusable).into(),
            NoGrant::TooManyWatches => AcquireError::TooManyWatches { path: path() },
            NoGrant::NodeDeleted { times } => AcquireError::NodeDeleted { path: path(), times },
            NoGrant::KeptFailing(failure) => path_lock.failed(failure.unanswered()),
            NoGrant::Refused(failure) => match failure.kind {
                // A sequential create with a fresh id: the sequence numbers are used up, since ZooKeeper does
                // not go beyond the largest.
                FailureKind::Refused(Refusal::NodeExists) => {
                    path_lock.failed(RequestFailure::SequenceExhausted)
                }
                _ => {
                    let subject = (directory, std::mem::take(&mut self.subject));
                    error_of(path_lock, Purpose::Lock, subject, failure.refused()).into()
                }
            },
        })
    }

    /// Leaves orphans of the queue to cleanup, which keeps the slot until they are deleted.
    pub(crate) fn leave_to_cleanup(&self, orphans: Orphans) {
        let Seat { path_lock, kind, .. } = self.seat;
        self.submit(path_lock.path(), orphans, |id| path_lock.naming().prefix(id, kind));
    }

    /// Leaves leases to cleanup.
    pub(crate) fn leave_leases(&self, orphans: Orphans) {
        if let Some(semaphore) = &self.seat.path_lock.options().semaphore {
            self.submit(&semaphore.leases, orphans, |id| lease_beginning(id, 0, 0));
        }
    }

    fn submit(&self, directory: &LockPath, orphans: Orphans, beginning: impl Fn(&str) -> String) {
        let nodes = orphans.names.into_iter().map(Orphan::Node);
        let unknown = orphans.ids.into_iter().map(|id| {
            let beginning = beginning(&id);
            Orphan::UnknownCreate { id, beginning }
        });
        for orphan in nodes.chain(unknown) {
            self.seat.path_lock.client().cleanup.submit(Item {
                session: Arc::clone(self.seat.session),
                directory: directory.clone(),
                orphan,
                number: self.seat.number,
                until_gone: self.permit.clone(),
                done: None,
            });
        }
    }

    /// Leaves all that it has to cleanup, and keeps the slot no longer.
    pub(crate) fn leave_all(&mut self) {
        let leases = std::mem::take(&mut self.leases);
        self.leave_leases(leases);
        let mut orphans = std::mem::take(&mut self.left);
        orphans.extend(self.acquiring.leave_all());
        // Whatever becomes of a create that is under way.
        orphans.ids.extend(self.create.take().map(|(id, _)| id));
        self.leave_to_cleanup(orphans);
        self.permit = None;
    }
}

impl Drop for InSession<'_> {
    fn drop(&mut self) {
        self.leave_all();
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
pub(crate) async fn wait<T>(
    seat: Seat<'_>,
    work: impl Future<Output = T>,
    stop: &mut Stop,
) -> Result<T, End> {
    tokio::select! {
        biased;
        result = work => Ok(result),
        end = stop.wait() => Err(End::from(end)),
        _ = seat.session.ended() => {
            let path = seat.path_lock.path().user();
            log::debug!(path, session = seat.session.number(), "again in the next session");
            Err(End::Again)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::path::LockPath;

    // Shows: try-permits, kept-node
    #[test]
    fn it_ends_behind_the_same_contender_or_behind_any() {
        let directory = LockPath::parse("", "/lock").unwrap();
        let behind = |name| Some(Ahead { count: 1, first: Some(directory.user_child(name)) });
        for for_each in [true, false] {
            let mut patience = Patience::new(Duration::ZERO, for_each);
            assert!(!patience.is_over(behind("a").as_ref()), "it begins");
            assert_eq!(patience.is_over(behind("b").as_ref()), !for_each);
            assert!(patience.is_over(behind("b").as_ref()));
            assert!(!patience.is_over(None), "they are gone");
            assert_eq!(patience.look_at(), None);
            assert!(!patience.is_over(behind("b").as_ref()), "it begins again");
        }
    }
}
