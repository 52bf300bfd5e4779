//! Attempts for the callers of one client that [wait together](crate::protocol::waiters).
//!
//! Thousands of callers may wait for one lock, so a caller has no separate task, timer or attempt.
//! One task on the session's thread works for all callers of a kind while any of them waits. A
//! caller adds itself to the [state](SharedPath) of its path, starts or wakes the task, and waits
//! for the answer.
//!
//! The task starts one attempt on behalf of all, and sleeps until the attempt has a result, until a
//! caller's deadline, or until it is woken: by a caller that arrives, by the last caller that
//! leaves, or by a hold whose node is deleted while others wait. The first caller in the order of
//! arrival gets the grant, and readers get it together. The task ends a second after the last
//! caller has left, so that a busy path need not start a task for each call.
//!
//! The task ends each wait at its caller's deadline. Shortly before, the task looks up the first
//! contender of the queue, for the error (docs/protocol.md#held-by).

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use crate::engine::acquisition::Hold;
use crate::engine::attempts::attempt::Reply;
use crate::engine::attempts::run;
use crate::engine::granted::Grant;
use crate::engine::lock::path_lock::{Admission, Ask, Budget, PathLock};
use crate::engine::pending::Pending;
use crate::engine::request::look::{ask_at, ask_first};
use crate::engine::shared_path::{EndedAttempt, SharedPath, SharedState, Waiter};
use crate::error::TryLockError;
use crate::protocol::late::Ahead;
use crate::protocol::node_name::Kind;
use crate::protocol::waiters::{Arrival, Waiters};
use crate::session::reports::observer;
use crate::session::threads::waker;

/// The longest time that the task sleeps.
const LONGEST_SLEEP: Duration = Duration::from_secs(3600);

/// How long the task waits for callers before it ends.
const LINGER: Duration = Duration::from_secs(1);

/// Gets a lock for one caller, with others if the callers of its kind wait together. The attempt
/// starts at the first poll.
pub(crate) async fn acquire(path_lock: Arc<PathLock>, ask: Ask) -> Result<Hold, TryLockError> {
    if let Some(closed) = path_lock.client.drained_error(&path_lock.path) {
        return Err(closed.into());
    }
    let waits_together = path_lock.waits_together(ask.kind);
    let deadline = match ask.budget {
        Budget::Until { deadline, .. } if waits_together => Some(deadline),
        Budget::Forever if waits_together => None,
        // Each try, and each call for a lock whose callers do not wait together, has a separate
        // attempt.
        _ => {
            if let Some(result) = waits_together.then(|| try_now(&path_lock, ask)).flatten() {
                return result;
            }
            // A separate function would cost memory, because each waiting caller would reserve room
            // for its arguments.
            let grant = run::start(&path_lock, ask, 1, Reply::Lock)
                .0
                .result()
                .await?;
            let hold = Hold::new(Arc::clone(&path_lock), grant);
            // The node that a try was granted can be shared, or handed over on release, like that
            // of a shared attempt.
            if waits_together {
                hold.open();
            }
            return Ok(hold);
        }
    };
    let shared = &path_lock.shared;
    let number = path_lock.client.cleanup.number(1);
    let at = Arrival::new(number, ask.admission == Admission::Again);
    let (reply, answer) = oneshot::channel();
    let ahead = match shared.arrive(ask.kind, at, deadline, waiter(ask, reply)) {
        Ok(grant) => return Ok(with_lease(&path_lock, grant, ask.lease)),
        Err(ahead) => ahead,
    };
    let _leaves = Leaves {
        path_lock: &path_lock,
        kind: ask.kind,
        at,
    };
    // The first caller waits only if its attempt does, and the attempt reports that.
    if let Some(ahead) = ahead {
        // Readers do not wait for each other.
        observer::queued(ask.call, None, || {
            (ask.kind == Kind::Exclusive).then_some(ahead)
        });
    }
    start_or_wake_task(&path_lock, ask.kind);
    // Without an answer the task has ended with the client, or the client is drained.
    match waker::contain(path_lock.client.unless_drained(answer))
        .await
        .and_then(Result::ok)
    {
        // The lease has begun with the grant.
        Some(granted) => granted.map(|grant| Hold::new(Arc::clone(&path_lock), grant)),
        None => Err(path_lock.ended().into()),
    }
}

/// Returns the result of a try that this client knows without the servers; `None` if they must be
/// asked.
fn try_now(path_lock: &Arc<PathLock>, ask: Ask) -> Option<Result<Hold, TryLockError>> {
    let shared = &path_lock.shared;
    match ask.kind {
        // A reader is not blocked by other readers. If there is no open node to share, the servers
        // decide.
        Kind::Shared => {
            let grant = shared.join(ask.location)?;
            Some(Ok(with_lease(path_lock, grant, ask.lease)))
        }
        Kind::Exclusive => {
            let unnamed = shared.blocks_writer().then_some(Ahead {
                count: 1,
                first: None,
            });
            // The hold may also be that of a try or of a multi-lock, whose node is not open.
            let ahead = path_lock.ahead_of_try(ask.kind).or(unnamed)?;
            Some(Err(path_lock.would_block(ask.kind, ahead)))
        }
    }
}

fn waiter(ask: Ask, reply: oneshot::Sender<Result<Grant, TryLockError>>) -> Waiter {
    let asked = match ask.budget {
        // Not expected: a try has a separate attempt, and does not wait with others.
        Budget::Try { timeout } => timeout,
        Budget::Until { asked, .. } => asked,
        Budget::Forever => Duration::ZERO,
    };
    Waiter {
        reply,
        lease: ask.lease,
        location: ask.location,
        began: Instant::now(),
        asked,
        grants: 0,
        call: ask.call,
    }
}

/// Begins the lease of a reader that shares a node at once, and returns its hold.
fn with_lease(path_lock: &Arc<PathLock>, grant: Grant, lease: Option<Duration>) -> Hold {
    grant.held.begin_lease(lease);
    Hold::new(Arc::clone(path_lock), grant)
}

/// A caller that waits with others, until it leaves.
struct Leaves<'a> {
    path_lock: &'a PathLock,
    kind: Kind,
    at: Arrival,
}

impl Drop for Leaves<'_> {
    fn drop(&mut self) {
        let cleanup = &self.path_lock.client.cleanup;
        self.path_lock
            .shared
            .remove_caller(self.kind, self.at, cleanup);
    }
}

/// Starts the task for the waiting callers of a kind, or wakes it if there is something for it to
/// do.
fn start_or_wake_task(path_lock: &Arc<PathLock>, kind: Kind) {
    let shared = &path_lock.shared;
    let starts = {
        let mut state = shared.state.lock();
        match state.attempt_records.of_mut(kind).task_sleeps_until {
            // The task counts as running before it runs, so that a second caller does not start
            // another.
            None => {
                state.attempt_records.of_mut(kind).task_sleeps_until = Some(Instant::now());
                true
            }
            Some(until) => {
                let waiters = state.path.waiters.of(kind);
                let next = waiters.next_late();
                let due = next.and_then(|(deadline, waiter)| ask_at(deadline, waiter.asked));
                let sooner = due.is_some_and(|due| due < until);
                // All other callers are served without the task: by the attempt under way, or by a
                // release.
                if sooner || waiters.wants_attempt() {
                    shared.wake.of(kind).notify_one();
                }
                false
            }
        }
    };
    if starts {
        // The value is made before the task starts: a runtime that shuts down may drop the task
        // before its first poll, and the drop of the value ends the waits.
        let task = Task {
            shared: Arc::clone(shared),
            kind,
            path_lock: Arc::downgrade(path_lock),
            attempt: None,
            asked: None,
            is_done: false,
        };
        path_lock.client.tasks.start(task.run()).detach();
    }
}

/// The task for the waiting callers of a kind.
struct Task {
    shared: Arc<SharedPath>,
    kind: Kind,
    path_lock: Weak<PathLock>,
    /// The last attempt, which is cancelled by the next look at the callers if they have none under
    /// way.
    attempt: Option<Pending<Grant>>,
    /// The last deadline before which it has asked who is first.
    asked: Option<Instant>,
    /// Whether it has ended because no caller waits.
    is_done: bool,
}

impl Drop for Task {
    fn drop(&mut self) {
        if self.is_done {
            return;
        }
        // The task panicked, or the client or the last handle is gone. The callers that wait get
        // the drop of their senders as the answer, and a later caller starts another task.
        let waiting = {
            let mut state = self.shared.state.lock();
            state.attempt_records.of_mut(self.kind).task_sleeps_until = None;
            let waiters = state.path.waiters.of_mut(self.kind);
            waiters.attempt_ends();
            waiters.take_all()
        };
        self.end_attempt();
        drop(waiting);
    }
}

impl Task {
    /// Reads or changes the waiting callers of this kind. `act` runs under the mutex of the
    /// path.
    fn with_waiters<T>(&self, act: impl FnOnce(&mut Waiters<Waiter, Instant>) -> T) -> T {
        act(self.shared.state.lock().path.waiters.of_mut(self.kind))
    }

    async fn run(mut self) {
        loop {
            if self.with_waiters(|waiters| waiters.wants_attempt()) {
                // Requests that other threads have begun, such as the deletion of the client's last
                // node, are sent first: a create ahead of that deletion would cost a list, and wait
                // for it. One yield usually suffices. A node is submitted before an attempt is
                // wanted, so the cleanup task is ready by now, and the runtime polls ready tasks
                // before one that yields. The cleanup sends a deletion in the poll in which it
                // receives the node.
                tokio::task::yield_now().await;
            }
            let Some(until) = self.work() else { return };
            let result = async {
                match &mut self.attempt {
                    Some(attempt) => attempt.result().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                result = result => self.handle_result(result),
                () = self.shared.wake.of(self.kind).notified() => {}
                () = tokio::time::sleep_until(until.into()) => self.due(),
            }
            // Callers may have arrived since `work` looked. `ends` looks again, under the mutex
            // under which callers arrive, so none of them relies on a task that has ended.
            if Instant::now() >= until && self.attempt.is_none() && self.ends() {
                return;
            }
        }
    }

    /// Ends the task if no caller waits.
    fn ends(&mut self) -> bool {
        let mut state = self.shared.state.lock();
        self.is_done = !state.path.waiters.of(self.kind).is_waited_for();
        if self.is_done {
            state.attempt_records.of_mut(self.kind).task_sleeps_until = None;
        }
        self.is_done
    }

    /// Starts an attempt if one is wanted. Returns until when there is nothing to do; `None` if the
    /// lock has no handle any more.
    fn work(&mut self) -> Option<Instant> {
        let path_lock = self.path_lock.upgrade()?;
        let (ended, wanted) = {
            let mut state = self.shared.state.lock();
            // The ticket of the last attempt is taken out before the next attempt begins, because
            // the callers of the next may leave at once, with a ticket that would replace this one.
            let is_over = !state.path.waiters.of(self.kind).is_under_way();
            let ended = is_over.then(|| state.attempt_records.of_mut(self.kind).end());
            let waiters = state.path.waiters.of_mut(self.kind);
            // The attempt reports to the first caller whether it waits, and its grant has that
            // caller's line of code until a caller has it.
            let first = waiters.first().filter(|_| waiters.wants_attempt());
            let wanted = first.map(|waiter| (waiter.call, waiter.location));
            if wanted.is_some() {
                waiters.attempt_begins();
            }
            (ended, wanted)
        };
        if let Some(ended) = ended {
            self.cancel_attempt(ended);
        }
        if let Some((call, location)) = wanted {
            let ask = Ask {
                call,
                ..Ask::new(self.kind, Budget::Forever, location)
            };
            let (attempt, progress) = run::start(&path_lock, ask, 1, Reply::Lock);
            self.attempt = Some(attempt);
            self.shared
                .state
                .lock()
                .attempt_records
                .of_mut(self.kind)
                .progress = Some(progress);
        }
        let mut state = self.shared.state.lock();
        let now = Instant::now();
        let waiters = state.path.waiters.of(self.kind);
        let waits = if waiters.is_waited_for() {
            LONGEST_SLEEP
        } else {
            LINGER
        };
        let until = now.checked_add(waits).unwrap_or(now);
        let next = waiters.next_late();
        let until = next.map_or(until, |(deadline, _)| deadline.min(until));
        let until = self
            .next_lookup(&state)
            .map_or(until, |(at, _)| at.min(until));
        // A caller that arrives from here on wakes the task if its deadline is earlier than this.
        state.attempt_records.of_mut(self.kind).task_sleeps_until = Some(until);
        Some(until)
    }

    /// Returns when to look up the first contender, for the error of the next caller to time out,
    /// and that caller's deadline; `None` if that has been done.
    fn next_lookup(&self, state: &SharedState) -> Option<(Instant, Instant)> {
        let (deadline, waiter) = state.path.waiters.of(self.kind).next_late()?;
        let at = ask_at(deadline, waiter.asked)?;
        (self.asked < Some(deadline)).then_some((at, deadline))
    }

    /// Does the work that is due: looks up the first contender, and ends the waits whose time has
    /// passed.
    fn due(&mut self) {
        let Some(path_lock) = self.path_lock.upgrade() else {
            return;
        };
        let now = Instant::now();
        let lookup = self
            .next_lookup(&self.shared.state.lock())
            .filter(|(at, _)| *at <= now);
        if let Some((_, deadline)) = lookup {
            self.asked = Some(deadline);
            if deadline > now {
                ask_first(&path_lock);
            }
        }
        self.end_late_waits(&path_lock, now);
    }

    /// Records that no attempt is under way, and cancels the last one.
    fn end_attempt(&mut self) {
        let ended = self
            .shared
            .state
            .lock()
            .attempt_records
            .of_mut(self.kind)
            .end();
        self.cancel_attempt(ended);
    }

    /// Cancels the attempt if it has not ended, and releases its grant if no caller has it.
    fn cancel_attempt(&mut self, ended: EndedAttempt) {
        self.attempt = None;
        // The ticket is dropped last, so that a flush waits for the release of a grant that came
        // too late.
        drop(ended);
    }

    /// Handles the result of the attempt.
    fn handle_result(&mut self, result: Result<Grant, TryLockError>) {
        // The ticket exists before a caller can leave while the grant is on its way: a flush of
        // that caller then waits until the grant has come back.
        let _pending = result.as_ref().ok().map(|grant| grant.held.ticket());
        let is_wanted = self.with_waiters(|waiters| waiters.is_under_way());
        match result {
            Ok(grant) if is_wanted => self.shared.granted(self.kind, grant),
            Err(error) if is_wanted => {
                let failed = self.with_waiters(Waiters::failed);
                for waiter in failed {
                    self.fail(waiter, &error);
                }
            }
            // All callers have left. The drop of a grant releases the lock.
            unwanted => drop(unwanted),
        }
        self.end_attempt();
    }

    fn fail(&self, waiter: Waiter, error: &TryLockError) {
        // An error means that the caller has left.
        let _ = waiter.reply.send(Err(error.clone()));
    }

    /// Ends the waits that are over.
    fn end_late_waits(&mut self, path_lock: &PathLock, now: Instant) {
        let kind = self.kind;
        // Contenders of earlier sessions may be gone.
        let session = path_lock.client.live().map(|session| session.number);
        let (late, grants, waiting, is_abandoned) = {
            let mut state = self.shared.state.lock();
            let late = state.path.waiters.of_mut(kind).late(now);
            let grants = state.attempt_records.of_mut(kind).grants_in(session);
            let waiting = state.waiting(kind);
            let is_abandoned = state.path.waiters.of_mut(kind).abandon_attempt();
            (late, grants, waiting, is_abandoned)
        };
        if is_abandoned {
            // The attempt is cancelled before a caller gets its error, so that the caller's flush
            // waits for the nodes that the attempt leaves.
            self.end_attempt();
        }
        for (waiter, before) in late {
            let mut waiting = waiting.clone().unwrap_or_default();
            let known = waiting
                .ahead()
                .cloned()
                .or_else(|| path_lock.own_ahead(kind));
            // Readers do not wait for each other.
            let before = if kind == Kind::Shared { 0 } else { before };
            // A grant to another caller of this client, since this one arrived, shows that the lock
            // was busy, even if no caller has it at this moment.
            let others = (grants > waiter.grants).then_some(Ahead {
                count: 0,
                first: None,
            });
            waiting.saw(known.or(others).map(|ahead| {
                let count = ahead.count.saturating_add(before).max(1);
                Ahead { count, ..ahead }
            }));
            let error = path_lock.late(waiting, kind, waiter.asked, waiter.began.elapsed());
            self.fail(waiter, &error.into());
        }
    }
}
