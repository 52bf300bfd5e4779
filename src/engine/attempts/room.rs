//! Works for a [room](crate::protocol::room): gets the node for the callers that wait in it, and
//! ends their waits at their deadlines. One task where the session runs, while anybody waits; a
//! caller has no separate task, timer or attempt.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use crate::engine::attempts::run;
use crate::engine::call::Pending;
use crate::engine::grant::hold::Hold;
use crate::engine::granted::Grant;
use crate::engine::lock::first::asks_at;
use crate::engine::lock::path_lock::{Admission, Ask, Budget, PathLock};
use crate::engine::request::look::ask_first;
use crate::engine::room::{RoomState, SharedRoom, Waiter};
use crate::error::TryLockError;
use crate::protocol::late::Ahead;
use crate::protocol::node_name::Kind;
use crate::protocol::room::Arrival;
use crate::session::leftovers::cleanup::Cleanup;
use crate::session::reports::observer;
use crate::session::threads::waker;

/// The longest time that the task sleeps.
const LONGEST: Duration = Duration::from_secs(3600);

/// How long the task waits for callers before it ends.
const LINGER: Duration = Duration::from_secs(1);

/// Tries to get a lock, in its room if it has one. The attempt starts at the first poll.
pub(crate) async fn acquire(path_lock: Arc<PathLock>, ask: Ask) -> Result<Hold, TryLockError> {
    if let Some(closed) = path_lock.client().refuses(path_lock.path()) {
        return Err(closed.into());
    }
    let room = path_lock.room(ask.kind);
    let (room, deadline) = match (room, ask.budget) {
        (Some(room), Budget::Until { deadline, .. }) => (room, Some(deadline)),
        (Some(room), Budget::Forever) => (room, None),
        // Each call asks the servers by its own attempt: of a lock without a room, and a try.
        (room, _) => {
            if let Some(result) = room.and_then(|room| try_now(&path_lock, room, ask)) {
                return result;
            }
            let grant = run::start(&path_lock, ask).0.result().await?;
            let mut hold = Hold::new(Arc::clone(&path_lock), grant);
            if let Some(room) = room {
                hold.enter(room, ask.location);
            }
            return Ok(hold);
        }
    };
    let number = path_lock.client().cleanup.number();
    let at = Arrival::new(number, ask.admission == Admission::Again);
    let (reply, told) = oneshot::channel();
    let ahead = match room.arrive(at, deadline, waiter(ask, reply)) {
        Ok(grant) => return Ok(with_lease(&path_lock, grant, ask.lease)),
        Err(ahead) => ahead,
    };
    let _leaves = Leaves {
        room,
        at,
        cleanup: &path_lock.client().cleanup,
    };
    // Without others before it, its attempt reports whether the call waits.
    if let Some(ahead) = ahead {
        // Readers do not wait for each other.
        observer::queued(ask.call, None, || {
            (ask.kind == Kind::Exclusive).then_some(ahead)
        });
    }
    if ask.kind == Kind::Exclusive {
        // Readers that come from here on wait behind this writer.
        path_lock.close_shared_node();
    }
    begin(&path_lock, room);
    // Without an answer the task has ended with the client, or the client is drained.
    match waker::contain(path_lock.client().unless_drained(told))
        .await
        .and_then(Result::ok)
    {
        // Its lease has begun with the grant.
        Some(granted) => granted.map(|grant| Hold::new(Arc::clone(&path_lock), grant)),
        None => Err(path_lock.ended().into()),
    }
}

/// Returns the result of a try that the room knows. `None` if it does not: a client without a node
/// must ask the servers.
fn try_now(
    path_lock: &Arc<PathLock>,
    room: &SharedRoom,
    ask: Ask,
) -> Option<Result<Hold, TryLockError>> {
    let unnamed = match room.try_now(ask.location) {
        Ok(grant) => return Some(Ok(with_lease(path_lock, grant, ask.lease))),
        Err(is_held) => is_held.then_some(Ahead {
            count: 1,
            first: None,
        }),
    };
    if ask.kind == Kind::Shared {
        return None;
    }
    // This may also be a local hold outside the room: of a try, or of a multi-lock.
    let ahead = path_lock.ahead_of_try(ask.kind).or(unnamed)?;
    Some(Err(path_lock.would_block(ask.kind, ahead)))
}

fn waiter(ask: Ask, reply: oneshot::Sender<Result<Grant, TryLockError>>) -> Waiter {
    let asked = match ask.budget {
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

/// Returns the hold of a caller that the room has granted its node at once, and has its lease begin.
fn with_lease(path_lock: &Arc<PathLock>, grant: Grant, lease: Option<Duration>) -> Hold {
    grant.held.begin_lease(lease);
    Hold::new(Arc::clone(path_lock), grant)
}

/// A caller in the room, until it leaves.
struct Leaves<'a> {
    room: &'a SharedRoom,
    at: Arrival,
    cleanup: &'a Cleanup,
}

impl Drop for Leaves<'_> {
    fn drop(&mut self) {
        self.room.leave(self.at, self.cleanup);
    }
}

/// Starts the room's task, or wakes it if there is something for it to do.
fn begin(path_lock: &Arc<PathLock>, room: &Arc<SharedRoom>) {
    let starts = {
        let mut state = room.lock();
        match state.task_sleeps_until {
            // This happens before the task looks at the room.
            None => {
                state.task_sleeps_until = Some(Instant::now());
                true
            }
            Some(until) => {
                let next = state.room.next_late();
                let due = next.and_then(|(deadline, waiter)| asks_at(deadline, waiter.asked));
                let sooner = due.is_some_and(|due| due < until);
                if sooner || state.room.wants_attempt() {
                    room.wake.notify_one();
                }
                false
            }
        }
    };
    if starts {
        // Made here: a runtime that shuts down may drop the task before its first poll.
        let (room, path_lock, client) = (
            Arc::clone(room),
            Arc::downgrade(path_lock),
            path_lock.client(),
        );
        let task = Task {
            room,
            path_lock,
            attempt: None,
            asked: None,
            is_done: false,
        };
        client.tasks.start(task.run()).detach();
    }
}

/// The task of a room.
struct Task {
    room: Arc<SharedRoom>,
    path_lock: Weak<PathLock>,
    /// The last attempt, which is cancelled by the next look at the room if that has none under
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
        let waiting = {
            let mut state = self.room.lock();
            state.task_sleeps_until = None;
            state.room.attempt_ends();
            state.room.take_all()
        };
        self.end_attempt();
        drop(waiting);
    }
}

impl Task {
    async fn run(mut self) {
        loop {
            if self.room.lock().room.wants_attempt() {
                // Requests that other threads have begun, such as the deletion of the client's last
                // node, are sent first: a create ahead of that deletion would wait for it, and
                // list.
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
                result = result => self.ended(result),
                () = self.room.wake.notified() => {}
                () = tokio::time::sleep_until(until.into()) => self.due(),
            }
            if Instant::now() >= until && self.attempt.is_none() && self.ends() {
                return;
            }
        }
    }

    /// Ends the task if no caller waits.
    fn ends(&mut self) -> bool {
        let mut state = self.room.lock();
        self.is_done = !state.room.is_waited_for();
        if self.is_done {
            state.task_sleeps_until = None;
        }
        self.is_done
    }

    /// Starts an attempt if one is wanted. Returns until when there is nothing to do; `None` if the
    /// lock has no handle any more.
    fn work(&mut self) -> Option<Instant> {
        let path_lock = self.path_lock.upgrade()?;
        let (over, wanted) = {
            let mut state = self.room.lock();
            // What ends with the attempt before is taken out before the next one begins: callers may
            // leave that one at once, and a flush waits for it.
            let is_over = !state.room.is_under_way();
            let over = is_over.then(|| state.attempt_over());
            // The attempt reports to the first caller whether it waits, and its grant has that
            // caller's line of code until the room has it.
            let first = state.room.first().filter(|_| state.room.wants_attempt());
            let wanted = first.map(|waiter| (waiter.call, waiter.location));
            if wanted.is_some() {
                state.room.attempt_begins();
            }
            (over, wanted)
        };
        if let Some(over) = over {
            self.attempt = None;
            drop(over);
        }
        if let Some((call, location)) = wanted {
            let ask = Ask {
                call,
                ..Ask::new(self.room.kind, Budget::Forever, location)
            };
            let (attempt, progress) = run::start(&path_lock, ask);
            self.attempt = Some(attempt);
            self.room.lock().progress = Some(progress);
        }
        let mut state = self.room.lock();
        let now = Instant::now();
        let waits = if state.room.is_waited_for() {
            LONGEST
        } else {
            LINGER
        };
        let until = now.checked_add(waits).unwrap_or(now);
        let until = state
            .room
            .next_late()
            .map_or(until, |(deadline, _)| deadline.min(until));
        let until = self.question(&state).map_or(until, |(at, _)| at.min(until));
        state.task_sleeps_until = Some(until);
        Some(until)
    }

    /// Returns when to look up the first contender, for the error of the next caller to time out,
    /// and that caller's deadline; `None` if that has been done.
    fn question(&self, state: &RoomState) -> Option<(Instant, Instant)> {
        let (deadline, waiter) = state.room.next_late()?;
        let at = asks_at(deadline, waiter.asked)?;
        (self.asked < Some(deadline)).then_some((at, deadline))
    }

    /// Does the work that is due: looks up the first contender, and ends the waits whose time has
    /// passed.
    fn due(&mut self) {
        let Some(path_lock) = self.path_lock.upgrade() else {
            return;
        };
        let now = Instant::now();
        let question = self
            .question(&self.room.lock())
            .filter(|(at, _)| *at <= now);
        if let Some((_, deadline)) = question {
            self.asked = Some(deadline);
            if deadline > now {
                ask_first(&path_lock);
            }
        }
        self.late(&path_lock, now);
    }

    /// Cancels the attempt, if it has not ended, and releases its grant, if no caller has that.
    fn end_attempt(&mut self) {
        self.attempt = None;
        // This comes last: a flush waits for the release of a grant that came too late.
        let over = self.room.lock().attempt_over();
        drop(over);
    }

    /// Handles the result of the attempt.
    fn ended(&mut self, result: Result<Grant, TryLockError>) {
        // The ticket exists before a caller can leave with the grant on its way to it: the caller's
        // flush waits until the grant has come back.
        let _pending = result.as_ref().ok().map(Grant::ticket);
        let is_wanted = self.room.lock().room.is_under_way();
        match result {
            Ok(grant) if is_wanted => self.room.granted(grant),
            Err(error) if is_wanted => {
                let failed = self.room.lock().room.failed();
                for waiter in failed {
                    self.fail(waiter, &error);
                }
            }
            // All have left. A grant is released here.
            unwanted => drop(unwanted),
        }
        self.end_attempt();
    }

    fn fail(&self, waiter: Waiter, error: &TryLockError) {
        let _ = waiter.reply.send(Err(error.clone()));
    }

    /// Ends the waits that are over.
    fn late(&mut self, path_lock: &PathLock, now: Instant) {
        let kind = self.room.kind;
        // Contenders of earlier sessions may be gone.
        let session = path_lock.client().live().map(|session| session.number());
        let (late, grants, waiting, is_abandoned) = {
            let mut state = self.room.lock();
            let (late, grants, waiting) = (
                state.room.late(now),
                state.grants_in(session),
                state.waiting(),
            );
            (late, grants, waiting, state.room.abandon_attempt())
        };
        if is_abandoned {
            // Before a caller is told: its flush waits for what the attempt leaves.
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
            // Other callers of this room have had the lock meanwhile, even if none of them has it
            // at this moment.
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
