//! One attempt to get permits of a semaphore, from its start to its end.
//!
//! It queues for the semaphore's lock by an ordinary [attempt](crate::engine::attempt), and at the head of the
//! queue does what [`Taking`] says, until one transaction has exchanged the lock node for the leases
//! (docs/protocol.md#permits-by-one-transaction). Like every attempt it is a task on the session's runtime and
//! outlives its caller (docs/protocol.md#attempt-outlives-caller).

use std::ops::Range;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use zookeeper_client as zk;

use crate::engine::attempt;
use crate::engine::held::Held;
use crate::engine::hold::Hold;
use crate::engine::limit::{
    Watches, invalid, limit, limit_behind_sync, look, look_and_watch, look_behind_sync, mismatch,
};
use crate::engine::lock_options::SemaphoreOptions;
use crate::engine::look::{Subject, error_of, participants, refused_in};
use crate::engine::observe;
use crate::engine::path_lock::{Admission, Ask, Budget, PathLock};
use crate::engine::pending::{Caller, Pending};
use crate::engine::progress::ProgressReceiver;
use crate::engine::requests::{answer, make_directories, meaning, new_id, to_library};
use crate::engine::shared_queue::SharedQueue;
use crate::engine::stop::{Stop, Stopped};
use crate::error::{AcquireError, Error, LostReason, Purpose, RequestFailure, TryLockError};
use crate::path::LockPath;
use crate::protocol::acquire::{IfBusy, Orphans};
use crate::protocol::failure::{Answer, Failure, FailureKind, Refusal};
use crate::protocol::hold::HoldState;
use crate::protocol::late::{Ahead, Waiting, WaitsFor};
use crate::protocol::local_queue::Gone;
use crate::protocol::moment::Moment;
use crate::protocol::node_name::Kind;
use crate::protocol::permits::{
    NoPermits, PermitsEvent, PermitsOutcome, PermitsRequest, PermitsStep, Seen, Take, Taken, Taking, free,
    lease_beginning,
};
use crate::session::ask::{Repetition, Unanswered};
use crate::session::cleanup::{Item, Orphan};
use crate::session::clock;
use crate::session::deletion::first_refused;
use crate::session::nodes::NodeOwner;
use crate::session::note::How;
use crate::session::tickets::Ticket;
use crate::session::watches::changed;
use crate::session::zk_session::{Session, SessionGone};

/// How long a try waits behind the same head of the queue, when enough permits have been seen free: each
/// contender needs a few round trips at the head before it is the next one's turn. Without it, of ten tries at
/// once for ten permits one would succeed.
const TRY_QUEUES_FOR: Duration = Duration::from_millis(200);

/// How often a try that has queued for that long asks again whether another contender is in its way, or only
/// the servers' answer.
const TRY_LOOKS_EACH: Duration = Duration::from_millis(50);

/// How often an attempt queues in the order of its call among those of this client: after the end of its
/// session it is before those that came later, in the next one too (docs/protocol.md#arrival-order). Each time
/// needs a number of its own.
const TIMES_IN_ORDER: u32 = 8;

/// The most bytes of one transaction. ZooKeeper closes the connection at a request over 1 MiB.
const MAX_BYTES: usize = 1_000_000;

/// Tries to acquire this many permits, once. Dropping the future cancels the attempt, which then cleans up.
pub(crate) async fn acquire(
    path_lock: Arc<PathLock>,
    wanted: u32,
    ask: Ask,
) -> Result<Vec<Hold>, TryLockError> {
    let path_lock = &path_lock;
    let path = || path_lock.path().user().to_owned();
    if let Some(closed) = path_lock.client().refuses(path_lock.path()) {
        return Err(closed.into());
    }
    if wanted == 0 {
        return Err(AcquireError::ZeroPermits { path: path() }.into());
    }
    let Some(semaphore) = path_lock.options().semaphore.clone() else {
        // Not expected: a semaphore's path lock has them.
        return Err(path_lock.failed(RequestFailure::Closed).into());
    };
    let most = most_at_once(path_lock, &semaphore);
    let fits = wanted <= most;
    let client = path_lock.client();
    let mut numbers = client.cleanup().numbers(wanted.saturating_add(TIMES_IN_ORDER));
    let number = numbers.start;
    let in_order = numbers.end - u64::from(TIMES_IN_ORDER)..numbers.end;
    numbers.end = in_order.start;
    let (mut acquired, Caller { reply, cancelled }) = Pending::new(client, path_lock.path(), number);
    let mut attempt = PermitsAttempt {
        path_lock: Arc::clone(path_lock),
        wanted,
        ask,
        numbers,
        in_order,
        started: Instant::now(),
        reply: Some(reply),
        waiting: Waiting::default(),
        subject: (semaphore.leases.clone(), Subject::Directory),
        semaphore,
    };
    // Before the task runs, so that attempts queue in the order of the calls.
    let pending = match ask.budget {
        Budget::Try { .. } => None,
        Budget::Until { .. } | Budget::Forever => fits.then(|| attempt.queue(ask.admission)),
    };
    client.spawn(async move {
        let stop = Stop::new(ask.budget, cancelled);
        match fits {
            true => attempt.run(pending, stop).await,
            false => attempt.refuse(most, stop).await,
        }
    });
    acquired.result().await
}

/// Returns about how many permits one transaction can take.
fn most_at_once(path_lock: &PathLock, semaphore: &SemaphoreOptions) -> u32 {
    let options = path_lock.options();
    let acl: usize = options.acl.iter().map(|acl| acl.scheme.len() + acl.id.len() + 12).sum();
    // The name of a lease has at most eighty bytes, and the header of an operation less than fifty.
    let each = semaphore.leases.server().len() + path_lock.most_data() + acl + 130;
    u32::try_from(MAX_BYTES / each).unwrap_or(u32::MAX).max(1)
}

/// One attempt to get permits.
struct PermitsAttempt {
    path_lock: Arc<PathLock>,
    semaphore: SemaphoreOptions,
    wanted: u32,
    ask: Ask,
    /// One for each permit; the first also identifies what it leaves to cleanup. They are from the time of the
    /// call, so that a flush after it waits for permits that are granted later and not taken; see
    /// [`Tickets`](crate::session::tickets::Tickets).
    numbers: Range<u64>,
    /// Numbers for its attempts to get to the head of the queue, one after the other.
    in_order: Range<u64>,
    started: Instant,
    /// `None` once the caller has its result, or has left.
    reply: Option<oneshot::Sender<Result<Vec<Hold>, TryLockError>>>,
    /// What it waits for. Has the live leases in its way, by the last look at the head of the queue.
    waiting: Waiting,
    /// What the last request was about, in which directory.
    subject: (LockPath, Subject),
}

/// How an attempt, or its part at the head of the queue, ended.
enum End {
    Granted(Vec<Hold>),
    Denied(TryLockError),
    Stopped(Stopped),
    /// Another process has deleted the lock node. `waited` is whether that had outlasted a wait.
    LockDeleted {
        waited: bool,
    },
    /// To be tried again: the session has ended.
    Again,
}

impl From<AcquireError> for End {
    fn from(error: AcquireError) -> Self {
        Self::Denied(error.into())
    }
}

/// The part of an attempt at the head of the queue, in one session.
struct AtHead<'a> {
    hold: Hold,
    session: Arc<Session>,
    taking: Taking,
    stop: &'a mut Stop,
    watches: Option<Watches>,
    /// The last look.
    seen: Option<Seen>,
    /// Whether it has waited: in the queue, or for a change.
    waited: bool,
    failing_since: Instant,
    sent: SentCreates,
}

/// The ids of creates that were sent. If the task is dropped before it has said what has become of them, by a
/// panic (in a waker of the caller's) or with its runtime, cleanup finds out (docs/protocol.md#node-owners).
struct SentCreates {
    path_lock: Arc<PathLock>,
    session: Arc<Session>,
    leases: LockPath,
    number: u64,
    ids: Vec<String>,
}

impl SentCreates {
    /// What has become of them is known, or left to cleanup.
    fn settled(&mut self) {
        self.ids.clear();
    }

    /// Leaves orphans to cleanup.
    fn leave(&self, orphans: Orphans) {
        let nodes = orphans.names.into_iter().map(Orphan::Node);
        let unknown = orphans.ids.into_iter().map(|id| {
            let beginning = lease_beginning(&id, 0, 0);
            Orphan::UnknownCreate { id, beginning }
        });
        for orphan in nodes.chain(unknown) {
            self.path_lock.client().cleanup().submit(Item {
                session: Arc::clone(&self.session),
                directory: self.leases.clone(),
                orphan,
                number: self.number,
                until_gone: None,
                done: None,
            });
        }
    }
}

impl Drop for SentCreates {
    fn drop(&mut self) {
        let ids = std::mem::take(&mut self.ids);
        self.leave(Orphans { names: Vec::new(), ids });
    }
}

impl PermitsAttempt {
    /// Starts to queue for the semaphore's lock.
    fn queue(&mut self, admission: Admission) -> Queueing {
        let budget = match self.ask.budget {
            // It queues no longer than briefly, but waits for the servers.
            Budget::Try { timeout } => match self.started.checked_add(timeout) {
                Some(deadline) => Budget::Until { deadline, asked: timeout },
                None => Budget::Forever,
            },
            budget => budget,
        };
        // The lease is counted from the grant of the permits.
        let ask = Ask { budget, admission, lease: None, ..self.ask };
        match self.in_order.next() {
            Some(number) => attempt::start_as(&self.path_lock, ask, number),
            None => attempt::start(&self.path_lock, ask),
        }
    }

    /// Ends an attempt that asks for more permits than the `most` that one transaction can take, without queueing.
    async fn refuse(mut self, most: u32, mut stop: Stop) {
        self.waiting.waits_for(WaitsFor::Leases);
        let (path, asked) = (self.path_lock.path().user().to_owned(), self.wanted);
        let end = tokio::select! {
            biased;
            stopped = stop.wait() => End::Stopped(stopped),
            limit = limit_behind_sync(&self.path_lock, &self.semaphore) => match limit {
                Ok(limit) if asked > limit => AcquireError::TooManyPermits { path, asked, limit }.into(),
                Ok(_) => AcquireError::TooManyAtOnce { path, asked, most }.into(),
                Err(error) => AcquireError::from(error).into(),
            },
        };
        drop(self.tell(end));
    }

    async fn run(mut self, mut pending: Option<Queueing>, mut stop: Stop) {
        let mut deleted = 0;
        let mut since = Instant::now();
        let end = loop {
            match self.round(pending.take(), &mut stop).await {
                End::Again => self.waiting.waits_for(WaitsFor::Session),
                End::LockDeleted { waited } => {
                    // As a waiter whose node is deleted: it queues again at the end
                    // (docs/protocol.md#waiter-without-node).
                    if waited || deleted == 0 {
                        (deleted, since) = (0, Instant::now());
                    }
                    deleted += 1;
                    let again = deleted - 1;
                    let pause = match self.path_lock.client().retry().pause(again, since.elapsed()) {
                        Some(_) if again == 0 => Duration::ZERO,
                        Some(pause) => pause,
                        None => {
                            let path = self.path_lock.path().user().to_owned();
                            break AcquireError::NodeDeleted { path, times: deleted }.into();
                        }
                    };
                    tokio::select! {
                        biased;
                        stopped = stop.wait() => break End::Stopped(stopped),
                        () = tokio::time::sleep(pause) => {}
                    }
                }
                end => break end,
            }
            // What was seen in an earlier session, or from another place, may be gone.
            self.waiting.saw(None);
            if self.reply.is_none() {
                return;
            }
        };
        drop(self.tell(end));
    }

    /// Queues once, and takes the permits at the head of the queue.
    async fn round(&mut self, pending: Option<Queueing>, stop: &mut Stop) -> End {
        let pending = match (pending, self.ask.budget) {
            (Some(pending), _) => pending,
            (None, Budget::Try { .. }) => match Box::pin(self.look_before_try(stop)).await {
                Ok(()) => self.queue(Admission::First),
                Err(end) => return end,
            },
            (None, Budget::Until { .. } | Budget::Forever) => self.queue(Admission::Again),
        };
        let (hold, waited) = match self.wait_for_head(pending, stop).await {
            Ok(head) => head,
            Err(end) => return end,
        };
        let session = Arc::clone(hold.session());
        // Counted, since a session is wanted while it is at work.
        let _counted = session.begin_work();
        if session.end_reason().is_some() {
            return End::Again;
        }
        let if_busy = self.ask.budget.if_busy();
        let (taking, step) = Taking::new(self.wanted, self.semaphore.permits, if_busy);
        let sent = SentCreates {
            path_lock: Arc::clone(&self.path_lock),
            session: Arc::clone(&session),
            leases: self.semaphore.leases.clone(),
            number: self.numbers.start,
            ids: Vec::new(),
        };
        let head = AtHead {
            hold,
            sent,
            session,
            taking,
            stop,
            watches: None,
            seen: None,
            waited,
            failing_since: Instant::now(),
        };
        // On the heap only from here on, because many attempts may be queueing.
        Box::pin(self.take_at_head(head, step)).await
    }

    /// Waits until the attempt is at the head of the queue.
    ///
    /// Returns its hold, and whether it has waited for others.
    async fn wait_for_head(
        &mut self,
        (mut pending, progress): Queueing,
        stop: &mut Stop,
    ) -> Result<(Hold, bool), End> {
        let ahead = || progress.get().waiting.ahead().cloned();
        let is_try = matches!(self.ask.budget, Budget::Try { .. });
        let mut late = Box::pin(tokio::time::sleep(TRY_QUEUES_FOR));
        // The head of the queue when it was looked at last, and a look under way.
        let mut known: Option<String> = None;
        let mut look: Option<BoxedLook> = None;
        let mut too_many =
            Box::pin(too_many(Arc::clone(&self.path_lock), self.semaphore.clone(), self.wanted));
        // It waits for contenders, but for the answer to a look while one is under way.
        self.waiting.waits_for(WaitsFor::Deletion);
        loop {
            tokio::select! {
                biased;
                result = pending.result() => return match result {
                    Ok(hold) => Ok((hold, progress.get().has_waited)),
                    Err(error) => Err(self.denied(error, ahead())),
                },
                stopped = stop.wait() => return Err(match stopped {
                    // It has the same deadline, and knows what was not in time.
                    Stopped::OutOfTime => match pending.result().await {
                        Ok(_) => {
                            self.waiting.waits_for(WaitsFor::Leases);
                            End::Stopped(Stopped::OutOfTime)
                        }
                        Err(error) => self.denied(error, ahead()),
                    },
                    gone @ Stopped::CallerGone(_) => End::Stopped(gone),
                }),
                limit = &mut too_many => {
                    let (path, asked) = (self.path_lock.path().user().to_owned(), self.wanted);
                    return Err(AcquireError::TooManyPermits { path, asked, limit }.into());
                }
                () = &mut late, if is_try && look.is_none() => match ahead() {
                    Some(ahead) => {
                        known = known.or_else(|| ahead.first.as_deref().map(str::to_owned));
                        self.waiting.waits_for(WaitsFor::List);
                        look = Some(Box::pin(head_of(Arc::clone(&self.path_lock))));
                    }
                    // Only the servers are waited for.
                    None => late = Box::pin(tokio::time::sleep(TRY_LOOKS_EACH)),
                },
                head = async { Some(look.as_mut()?.await) }, if look.is_some() => {
                    let head = match head.transpose() {
                        Ok(head) => head.flatten(),
                        // The servers did not say who is in the way.
                        Err(error) => return Err(AcquireError::from(error).into()),
                    };
                    // The same one as before is waiting for permits itself.
                    let is_served = head.is_some() && head != known;
                    if let Some(ahead) = ahead().filter(|_| !is_served) {
                        return Err(End::Denied(self.path_lock.would_block(Kind::Exclusive, ahead)));
                    }
                    self.waiting.waits_for(WaitsFor::Deletion);
                    (known, look) = (head, None);
                    late = Box::pin(tokio::time::sleep(TRY_QUEUES_FOR));
                }
            }
        }
    }

    /// Returns how the attempt ends if it does not get to the head of the queue.
    fn denied(&mut self, error: TryLockError, ahead: Option<Ahead>) -> End {
        End::Denied(match (self.ask.budget, error) {
            // Of an attempt that waits; this one does not.
            (Budget::Try { .. }, TryLockError::Acquire(AcquireError::TimedOut { .. })) => {
                self.waiting.saw(ahead.or(Some(Ahead { count: 1, first: None })));
                self.late(Arc::clone(&self.path_lock).path())
            }
            (_, error) => error,
        })
    }

    /// Looks whether enough permits are free, before a node is created. The connected server may lag behind,
    /// so that a try ends only by what is seen behind a `sync` (docs/protocol.md#try-permits).
    async fn look_before_try(&mut self, stop: &mut Stop) -> Result<(), End> {
        let (path_lock, semaphore) = (Arc::clone(&self.path_lock), self.semaphore.clone());
        let client = Arc::clone(path_lock.client());
        let session = tokio::select! {
            biased;
            stopped = stop.wait() => return Err(End::Stopped(stopped)),
            session = client.session() => match session {
                Ok(session) => session,
                Err(none) => return Err(path_lock.failed(none).into()),
            },
        };
        self.waiting.waits_for(WaitsFor::Leases);
        let seen = wait(&session, stop, look(&path_lock, &semaphore, &session)).await?;
        let Answer::Is(seen) = seen else { return Ok(()) };
        if self.judge(&session, &seen).is_none() {
            return Ok(());
        }
        let seen = wait(&session, stop, look_behind_sync(&path_lock, &semaphore, &session)).await?;
        let Answer::Is(seen) = seen else { return Ok(()) };
        self.judge(&session, &seen).map_or(Ok(()), Err)
    }
}

impl PermitsAttempt {
    /// Returns why a try that has seen this need not queue.
    fn judge(&mut self, session: &Session, seen: &Seen) -> Option<End> {
        let (mut taking, _) = Taking::new(self.wanted, self.semaphore.permits, IfBusy::Fail);
        match taking.on(PermitsEvent::Looked(Answer::Is(seen.clone()))) {
            PermitsStep::Finish(PermitsOutcome::NotGranted { why, .. }) => {
                Some(self.not_granted(why, session, Some(seen)))
            }
            _ => None,
        }
    }

    /// Takes the permits at the head of the queue.
    async fn take_at_head(&mut self, mut head: AtHead<'_>, mut step: PermitsStep) -> End {
        let end = loop {
            let event = match &step {
                PermitsStep::Do(request) => self.request(&mut head, request.clone()).await,
                PermitsStep::Wait => self.wait_for_change(&mut head).await,
                PermitsStep::Pause { failures, why } => self.pause(&mut head, *failures, why.kind).await,
                PermitsStep::Finish(_) => break None,
            };
            match event {
                Ok(event) => {
                    let looked = matches!(event, PermitsEvent::Looked(_));
                    step = head.taking.on(event);
                    if let (true, PermitsStep::Finish(PermitsOutcome::Granted { names })) = (looked, &step) {
                        if let Err(end) = self.check_owner(&mut head, names).await {
                            break Some(end);
                        }
                    }
                }
                Err(end) => break Some(end),
            }
            // Once it is finished, the lock node is gone or goes with the hold.
            if !head.taking.is_open() && !matches!(step, PermitsStep::Finish(_)) {
                head.hold.held().end_exchange();
            }
        };
        let AtHead { hold, session, taking, stop, seen, waited, mut sent, .. } = head;
        match (end, step) {
            (None, PermitsStep::Finish(PermitsOutcome::Granted { names })) => {
                sent.settled();
                self.grant(hold, &session, names, waited, stop).await
            }
            (None, PermitsStep::Finish(PermitsOutcome::NotGranted { why, orphans })) => {
                sent.settled();
                sent.leave(orphans);
                match why {
                    NoPermits::LockDeleted => {
                        hold.exchanged();
                        End::LockDeleted { waited }
                    }
                    why => self.not_granted(why, &session, seen.as_ref()),
                }
            }
            (end, _) => {
                // The lock node goes with the hold.
                sent.settled();
                sent.leave(taking.leave());
                end.unwrap_or(End::Again)
            }
        }
    }

    /// Carries out one request.
    async fn request(&mut self, head: &mut AtHead<'_>, request: PermitsRequest) -> Result<PermitsEvent, End> {
        let (path_lock, session) = (Arc::clone(&self.path_lock), Arc::clone(&head.session));
        let semaphore = self.semaphore.clone();
        self.subject = (semaphore.leases.clone(), Subject::Directory);
        match request {
            PermitsRequest::Look { watch, limit_exists } => {
                self.waiting.waits_for(WaitsFor::Leases);
                head.watches = None;
                let looked = async {
                    if watch {
                        look_and_watch(&path_lock, &semaphore, &session, limit_exists).await
                    } else {
                        (look(&path_lock, &semaphore, &session).await, None)
                    }
                };
                let (looked, watches) = wait(&session, head.stop, Box::pin(looked)).await?;
                head.watches = watches;
                if let Answer::Is(seen) = &looked {
                    // Known from here on, whatever becomes of the next request.
                    let is_busy = free(seen.limit(self.semaphore.permits), seen.leases.len()) < self.wanted;
                    let ahead = is_busy.then(|| self.live_leases(&session, seen)).flatten();
                    self.waiting.saw(ahead);
                    head.seen = Some(seen.clone());
                }
                Ok(PermitsEvent::Looked(looked))
            }
            PermitsRequest::MakeLeases => {
                self.waiting.waits_for(WaitsFor::Parents);
                self.subject.1 = Subject::Parent;
                let made = session.request(|handle| async move {
                    make_directories(&path_lock, &semaphore.leases, &handle).await
                });
                let made = wait(&session, head.stop, Box::pin(made)).await?;
                Ok(PermitsEvent::Made(answer(&session, made)))
            }
            PermitsRequest::Take(take) => {
                if !head.taking.is_open() && !head.hold.held().begin_exchange() {
                    return Err(self.lock_lost(head));
                }
                self.waiting.waits_for(WaitsFor::Permits);
                let slot = wait(&session, head.stop, session.windows().creates.slot()).await?;
                let node = head.hold.node();
                let ids: Vec<String> = take.slots.iter().map(|_| new_id(path_lock.naming())).collect();
                head.sent.ids.extend(ids.iter().cloned());
                let mut taken = Box::pin(async move {
                    let taken = take_permits(&path_lock, &semaphore, &session, &node, &take, ids).await;
                    drop(slot);
                    taken
                });
                let stopped = tokio::select! {
                    biased;
                    (event, directory) = &mut taken => {
                        self.subject.0 = directory;
                        return Ok(event);
                    }
                    stopped = head.stop.wait() => stopped,
                };
                // The answer to the caller does not wait for the outcome, but what it leaves does.
                let ticket = self.tell(End::Stopped(stopped));
                let step = head.taking.on(taken.await.0);
                if let PermitsStep::Finish(PermitsOutcome::Granted { names }) = step {
                    let holds = self.holds(&head.hold, &head.session, names);
                    head.hold.held().exchanged();
                    drop(holds);
                } else if let PermitsStep::Finish(PermitsOutcome::NotGranted { orphans, .. }) = step {
                    head.sent.leave(orphans);
                }
                Err(End::Stopped(Stopped::CallerGone(ticket)))
            }
        }
    }

    /// Checks that leases that were found in a list are of this session (docs/protocol.md#owner-check), and ends
    /// the session if they are another's. They come from one transaction, so that the first tells it of all.
    async fn check_owner(&self, head: &mut AtHead<'_>, names: &[String]) -> Result<(), End> {
        let Some(first) = names.first() else { return Ok(()) };
        let (session, path) = (Arc::clone(&head.session), &self.semaphore.leases.child(first));
        let mut repetition = Repetition::new(*self.path_lock.client().retry());
        let stat = repetition.ask(&session, |handle| async move { handle.check_stat(path).await });
        match wait(&session, head.stop, Box::pin(stat)).await? {
            Ok(Some(stat)) if session.owns(&stat) => Ok(()),
            Ok(Some(_)) => Err(End::Again),
            // Deleted by another process since.
            Ok(None) => Err(End::LockDeleted { waited: head.waited }),
            Err(Unanswered::NoSession(SessionGone)) => Err(End::Again),
            Err(Unanswered::Refused(failure)) => Err(self.path_lock.failed(failure.refused()).into()),
            Err(Unanswered::GaveUp(failure)) => Err(self.path_lock.failed(failure.unanswered()).into()),
        }
    }

    /// Waits until the leases or the limit change.
    async fn wait_for_change(&mut self, head: &mut AtHead<'_>) -> Result<PermitsEvent, End> {
        let session = Arc::clone(&head.session);
        let mut refusals = session.refusals();
        let Some(Watches { leases, limit, counted: _counted }) = head.watches.take() else {
            // Not expected: it waits only for leases, whose directory exists and is watched.
            return Ok(PermitsEvent::WatchFailed(FailureKind::Unknown.into()));
        };
        self.waiting.waits_for(WaitsFor::Deletion);
        let seen = head.seen.take();
        if let Some(seen) = &seen {
            if let Some(error) = wait(&session, head.stop, self.orphaned(&session, seen)).await? {
                return Err(error.into());
            }
        }
        if !head.waited {
            observe::queued(self.ask.call, None, || self.waiting.ahead().map(|ahead| ahead.count));
        }
        let (directory, lost) = (self.semaphore.leases.clone(), head.hold.when_lost());
        let refused = refused_in(&directory, &session, &mut refusals);
        let change = async {
            tokio::select! {
                biased;
                _ = lost => None,
                event = changed(leases) => Some((true, meaning(&session, event))),
                event = changed(limit) => Some((false, meaning(&session, event))),
                // The deletion of a lease of this client has been refused, so that its end never comes.
                () = refused => Some((false, Answer::Is(()))),
            }
        };
        let change = wait(&session, head.stop, Box::pin(change)).await?;
        let Some((is_lease, meaning)) = change else { return Err(self.lock_lost(head)) };
        head.waited = true;
        if is_lease {
            // The look that follows shows which are left.
            self.waiting.one_is_gone();
        }
        Ok(match meaning {
            Answer::Is(()) => PermitsEvent::Changed,
            Answer::No(failure) => PermitsEvent::WatchFailed(failure),
        })
    }

    /// Pauses before a repetition.
    async fn pause(
        &mut self,
        head: &mut AtHead<'_>,
        failures: u32,
        why: FailureKind,
    ) -> Result<PermitsEvent, End> {
        if failures == 0 {
            head.failing_since = Instant::now();
        }
        let policy = self.path_lock.client().retry();
        let pause = match policy.pause(failures, head.failing_since.elapsed()) {
            None => return Ok(PermitsEvent::GiveUp),
            // The next connection is waited for anyway.
            Some(_) if failures == 0 && why != FailureKind::NotNow => Duration::ZERO,
            Some(pause) => pause,
        };
        let session = Arc::clone(&head.session);
        wait(&session, head.stop, tokio::time::sleep(pause)).await?;
        Ok(PermitsEvent::Retry)
    }

    /// Returns how the attempt goes on after its lock was lost.
    fn lock_lost(&self, head: &AtHead<'_>) -> End {
        match head.hold.lost() {
            Some(LostReason::NodeDeleted) => End::LockDeleted { waited: head.waited },
            _ => End::Again,
        }
    }

    /// Returns the holds of these leases. The lock node is gone.
    fn holds(&self, lock: &Hold, session: &Arc<Session>, names: Vec<String>) -> Vec<Hold> {
        let (path_lock, cleanup) = (&self.path_lock, self.path_lock.client().cleanup());
        let lease_end = self.ask.lease.and_then(|lease| clock::now().end_of(lease));
        // By the transaction that has created the leases, so that the next lock node may follow this one.
        session.disown_as(&lock.directory().child(&lock.node()), Gone::Deleted);
        let hold = |(name, number): (String, u64)| {
            // Its session has to know it: it beats while it has nodes.
            session.adopt(self.semaphore.leases.child(&name), no_owner());
            let state = HoldState::new(name.into(), Kind::Exclusive).with_lease_end(lease_end);
            let directory = self.semaphore.leases.clone();
            let held = Held::new(session, cleanup, directory, number, state);
            Hold::new(Arc::clone(path_lock), Arc::clone(session), held, lock.token(), self.ask.location)
        };
        names.into_iter().zip(self.numbers.clone()).map(hold).collect()
    }

    /// Grants the permits.
    async fn grant(
        &mut self,
        lock: Hold,
        session: &Arc<Session>,
        names: Vec<String>,
        waited: bool,
        stop: &mut Stop,
    ) -> End {
        let how = if waited { How::Event } else { How::List };
        let holds = self.holds(&lock, session, names).into_iter().map(|hold| hold.by(how)).collect();
        lock.exchanged();
        self.waiting.saw(None);
        self.waiting.waits_for(WaitsFor::Renewal);
        // As every lock (docs/protocol.md#suspended).
        match wait(session, stop, session.lease().until_valid()).await {
            Ok(()) if session.end_reason().is_none() => End::Granted(holds),
            // What is lost is not handed out: the drop cleans up, and the caller goes on waiting.
            Ok(()) => End::Again,
            Err(end) => end,
        }
    }

    /// Tells the caller the result. [`Client::flush`](crate::Client::flush) waits until the returned ticket is
    /// dropped.
    fn tell(&mut self, end: End) -> Option<Ticket> {
        let ticket = || Some(self.path_lock.client().cleanup().ticket(self.numbers.start));
        let (ticket, answer) = match end {
            End::Granted(holds) => (None, Ok(holds)),
            End::Denied(error) => (ticket(), Err(error)),
            End::Stopped(Stopped::OutOfTime) => (ticket(), Err(self.late(&self.semaphore.leases.clone()))),
            End::Stopped(Stopped::CallerGone(ticket)) => {
                self.reply = None;
                return ticket;
            }
            End::Again | End::LockDeleted { .. } => return None,
        };
        if let Some(reply) = self.reply.take() {
            // If the caller has left, the holds come back here, and their drop releases the permits.
            drop(reply.send(answer));
        }
        ticket
    }

    /// Returns the error at the deadline. The nodes that were seen are in `directory`.
    fn late(&mut self, directory: &LockPath) -> TryLockError {
        let waiting = std::mem::take(&mut self.waiting);
        let budget = self.ask.budget;
        self.path_lock.out_of_time(directory, waiting, Kind::Exclusive, budget, budget.waited(self.started))
    }

    /// Returns the live leases that a look shows. `None` if there are none, or those that are being deleted
    /// are alone in the way.
    fn live_leases(&self, session: &Session, seen: &Seen) -> Option<Ahead> {
        let leaving = session.leaving_of(&self.semaphore.leases, &seen.leases);
        let live = seen.leases.iter().filter(|name| leaving.is_empty() || !leaving.contains(name.as_str()));
        let first = live.min_by_key(|name| name.rsplit_once('-').map(|(_, number)| number))?;
        let count = seen.leases.len().saturating_sub(leaving.len());
        Some(Ahead { count, first: Some(first.as_str().into()) })
    }

    /// Returns an error if leases of this client that the servers refuse to delete are all that is in the way,
    /// after asking for their deletion once more (docs/protocol.md#refused-orphan).
    async fn orphaned(&self, session: &Session, seen: &Seen) -> Option<AcquireError> {
        let mut orphans = session.refused_orphans(Some(&self.semaphore.leases));
        orphans.retain(|orphan| seen.leases.contains(&orphan.name));
        let others = seen.leases.len().saturating_sub(orphans.len());
        if orphans.is_empty() || free(seen.limit(self.semaphore.permits), others) < self.wanted {
            return None;
        }
        let (orphan, source) = Box::pin(first_refused(session, orphans)).await?;
        let node = self.semaphore.leases.user_child(&orphan.name);
        Some(AcquireError::Orphaned { path: self.path_lock.path().user().to_owned(), node, source })
    }

    /// Returns how the attempt ends when the state machine has finished without a grant.
    fn not_granted(&mut self, why: NoPermits, session: &Session, seen: Option<&Seen>) -> End {
        let path_lock = &self.path_lock;
        let path = || path_lock.path().user().to_owned();
        End::from(match why {
            NoPermits::SessionGone => return End::Again,
            NoPermits::LockDeleted => return End::LockDeleted { waited: false },
            NoPermits::WouldBlock => {
                let ahead = seen.and_then(|seen| self.live_leases(session, seen));
                let Some(ahead) = ahead else { return End::Again };
                let leases = &self.semaphore.leases;
                return End::Denied(path_lock.would_block_in(leases, Kind::Exclusive, ahead));
            }
            NoPermits::TooMany { limit } => {
                AcquireError::TooManyPermits { path: path(), asked: self.wanted, limit }
            }
            NoPermits::LimitMismatch { theirs, lease } => {
                mismatch(path_lock, &self.semaphore, theirs, &lease).into()
            }
            NoPermits::InvalidLimit { found } => invalid(path_lock, &self.semaphore, found).into(),
            NoPermits::TooManyWatches => AcquireError::TooManyWatches { path: path() },
            NoPermits::KeptFailing(failure) => path_lock.failed(failure.unanswered()),
            NoPermits::Refused(failure) => match failure.kind {
                // Of a sequential create with a fresh id: the sequence numbers are used up.
                FailureKind::Refused(Refusal::NodeExists) => {
                    path_lock.failed(RequestFailure::SequenceExhausted)
                }
                _ => {
                    let (directory, subject) = &mut self.subject;
                    let subject = (&*directory, std::mem::take(subject));
                    error_of(path_lock, Purpose::Lock, subject, failure.refused()).into()
                }
            },
        })
    }
}

/// Waits for `work`, until the attempt has to stop or the session ends. A result that is ready has
/// precedence.
async fn wait<T>(session: &Session, stop: &mut Stop, work: impl Future<Output = T>) -> Result<T, End> {
    tokio::select! {
        biased;
        result = work => Ok(result),
        stopped = stop.wait() => Err(End::Stopped(stopped)),
        _ = session.ended() => Err(End::Again),
    }
}

type Queueing = (Pending<Hold>, ProgressReceiver);

type BoxedLook = Pin<Box<dyn Future<Output = Result<Option<String>, Error>> + Send>>;

/// Returns the name of the node that is first in the queue; `None` if there is none.
async fn head_of(path_lock: Arc<PathLock>) -> Result<Option<String>, Error> {
    let queue = participants(&path_lock, None).await?;
    Ok(queue.first().map(|node| node.name().to_owned()))
}

/// Waits until it is known that so many permits are more than the limit, which is returned. One permit never
/// is. The connected server may lag behind, so that they are too many counts only behind a `sync`.
async fn too_many(path_lock: Arc<PathLock>, semaphore: SemaphoreOptions, wanted: u32) -> u32 {
    if wanted > 1 && limit(&path_lock, &semaphore).await.is_ok_and(|limit| wanted > limit) {
        if let Ok(limit) = limit_behind_sync(&path_lock, &semaphore).await {
            if wanted > limit {
                return limit;
            }
        }
    }
    std::future::pending().await
}

/// Sends the transaction that creates the leases and deletes the lock node. Returns what came of it, and the
/// directory or the node that it was about where it was refused. The leases are created first: a
/// server that applies one operation after the other does not show the next head too few of them.
async fn take_permits(
    path_lock: &PathLock,
    semaphore: &SemaphoreOptions,
    session: &Arc<Session>,
    lock: &str,
    take: &Take,
    ids: Vec<String>,
) -> (PermitsEvent, LockPath) {
    let beginnings = ids.iter().zip(&take.slots).map(|(id, slot)| lease_beginning(id, *slot, take.limit));
    let leases: Vec<String> = beginnings.map(|beginning| semaphore.leases.child(&beginning)).collect();
    let acls = to_library(&path_lock.options().acl);
    let options = zk::CreateMode::EphemeralSequential.with_acls(zk::Acls::new(&acls));
    let lock = path_lock.path().child(lock);
    let (leases, options, lock, data) = (&leases, &options, &lock, &path_lock.node_data());
    let sent = clock::now();
    let committed = session.request(|handle| async move {
        let mut writer = handle.new_multi_writer();
        let mut put = Ok(());
        for lease in leases {
            put = put.and_then(|()| writer.add_create(lease, data, options));
        }
        put = put.and_then(|()| writer.add_delete(lock, None));
        if let Some(version) = take.limit_version {
            put = put.and_then(|()| writer.add_check_version(semaphore.limit.server(), version));
        }
        // Not expected: the paths have been checked, and the ACL is not empty.
        put.map_err(|source| zk::MultiWriteError::RequestFailed { source })?;
        writer.commit().await
    });
    let mut directory = &semaphore.leases;
    let outcome = match committed.await {
        Err(SessionGone) => Taken::Failed(FailureKind::SessionGone.into()),
        Ok(Ok(results)) => taken(session, leases, results, sent),
        Ok(Err(zk::MultiWriteError::RequestFailed { source })) => Taken::Failed(session.failure(source)),
        Ok(Err(zk::MultiWriteError::OperationFailed { index, source })) => {
            session.lease().renewed_by_check(sent, &source);
            let of_lock = index == leases.len();
            if of_lock {
                directory = path_lock.path();
            } else if index > leases.len() {
                directory = &semaphore.limit;
            }
            match source {
                zk::Error::NoNode if of_lock => Taken::LockGone,
                zk::Error::NoNode | zk::Error::BadVersion if index > leases.len() => Taken::LimitChanged,
                zk::Error::NoNode => Taken::NoDirectory,
                source => Taken::Failed(session.failure(source)),
            }
        }
    };
    (PermitsEvent::Taken { ids, outcome }, directory.clone())
}

/// Returns the leases of a committed transaction.
fn taken(
    session: &Arc<Session>,
    leases: &[String],
    results: Vec<zk::MultiWriteResult>,
    sent: Moment,
) -> Taken {
    let mut names = Vec::with_capacity(leases.len());
    let is_anothers = |result: &zk::MultiWriteResult| matches!(result, zk::MultiWriteResult::Create { stat, .. } if !session.owns(stat));
    if results.iter().any(is_anothers) {
        return Taken::Failed(FailureKind::SessionGone.into());
    }
    for result in results {
        let zk::MultiWriteResult::Create { path, .. } = result else { continue };
        let Some((_, name)) = path.rsplit_once('/') else { continue };
        names.push(name.to_owned());
    }
    if names.len() != leases.len() {
        return Taken::Failed(Failure::from(FailureKind::Unknown));
    }
    session.lease().renewed(sent);
    Taken::Done { names }
}

/// The owner of a lease: no contender waits for it in memory.
fn no_owner() -> Weak<dyn NodeOwner> {
    Weak::<SharedQueue>::new()
}
