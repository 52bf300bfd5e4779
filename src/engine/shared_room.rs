//! The [`Room`] of one client and mutex, shared by its callers, its holder and the [task](crate::engine::room)
//! that works for it: behind a mutex that is held for one decision at a time. Grants are sent, and anything
//! else happens, after it is unlocked.

use std::fmt;
use std::panic::Location;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, oneshot, watch};

use crate::engine::held::{Held, InRoom, Over};
use crate::engine::pending::CancelOnDrop;
use crate::engine::progress::ProgressReceiver;
use crate::error::TryLockError;
use crate::path::LockPath;
use crate::protocol::hold::Deletion;
use crate::protocol::room::{HandOff, Kept, Next, Position, Room};
use crate::session::clock;
use crate::session::observer::{self, CallNumber, How};
use crate::session::tickets::Ticket;
use crate::session::waker::contain_panic;
use crate::session::zk_session::Session;

/// The room of one client and mutex.
pub(crate) struct SharedRoom {
    state: Mutex<State>,
    pub(super) sticky: bool,
    /// Wakes the room's task.
    pub(super) wake: Notify,
    /// Changes when a guard's hold comes or goes.
    holders: watch::Sender<()>,
}

pub(super) struct State {
    pub(super) room: Room<Waiter, Instant>,
    /// `None` if it was cancelled, or there is none.
    pub(super) attempt: Option<UnderWay>,
    /// The ticket of a cancelled attempt, until the task has released its possible grant.
    left: Option<Ticket>,
    /// The hold that has the node, for messages.
    holder: Option<Holder>,
    /// The two numbers of the last fencing token.
    token: (i64, u64),
    /// How often the lock was granted, and not lost.
    pub(super) grants: u64,
    /// The hold of a node that is kept.
    kept: Option<KeptHold>,
    /// The node that is to be watched for others. Not its hold, which keeps the room.
    pub(super) look: Option<Look>,
    /// Until when the room's task sleeps; `None` if there is no such task.
    pub(super) task_sleeps_until: Option<Instant>,
}

/// An attempt under way. The drop of the first part cancels it.
pub(super) type UnderWay = (CancelOnDrop, ProgressReceiver);

/// A node that is to be watched for others.
#[derive(Debug)]
pub(super) struct Look {
    pub(super) number: u64,
    pub(super) node: Arc<str>,
    pub(super) directory: LockPath,
    pub(super) session: Weak<Session>,
}

/// The hold of a node that is kept, and since when it is.
#[derive(Debug)]
struct KeptHold {
    held: Arc<Held>,
    since: Instant,
}

/// A hold of this client, for error messages and `is_acquired_in_this_process`.
#[derive(Clone, Debug)]
pub(super) struct Holder {
    pub(super) held: Arc<Held>,
    pub(super) since: Instant,
    pub(super) location: &'static Location<'static>,
}

/// A caller that waits in the room.
pub(super) struct Waiter {
    pub(super) reply: oneshot::Sender<Result<Granted, TryLockError>>,
    pub(super) lease: Option<Duration>,
    pub(super) location: &'static Location<'static>,
    pub(super) began: Instant,
    /// The time that the caller gave.
    pub(super) asked: Duration,
    /// How often the lock had been granted when this arrived, and was over.
    pub(super) grants: u64,
    /// The call, if that is observed.
    pub(super) call: Option<CallNumber>,
}

/// The node of the room, granted to one caller. If it is dropped, the next has it.
#[derive(Debug)]
pub(super) struct Granted {
    /// `None` once it is taken.
    held: Option<Arc<Held>>,
    pub(super) session: Arc<Session>,
    /// The two numbers of the fencing token.
    pub(super) token: (i64, u64),
    pub(super) how: How,
}

impl Granted {
    pub(super) fn new(held: Arc<Held>, session: Arc<Session>, token: (i64, u64), how: How) -> Self {
        Self { held: Some(held), session, token, how }
    }

    /// Returns the hold, which the caller must release from here on.
    pub(super) fn take(&mut self) -> Option<Arc<Held>> {
        self.held.take()
    }
}

impl Drop for Granted {
    fn drop(&mut self) {
        if let Some(held) = self.held.take() {
            held.release(None);
        }
    }
}

/// The outcome for an arriving caller that may wait.
pub(super) enum Arrived {
    /// It has the node, which was kept.
    Granted(Granted),
    /// An attempt must be started for it.
    First,
    /// It waits behind so many of its client.
    Behind(usize),
}

/// The outcome for a caller that does not wait for others.
pub(super) enum Tried {
    Granted(Granted),
    /// Another caller has the node.
    Held,
    /// It must ask the servers.
    Asks,
}

impl Holder {
    fn new(held: &Arc<Held>, location: &'static Location<'static>) -> Self {
        Self { held: Arc::clone(held), since: Instant::now(), location }
    }
}

impl SharedRoom {
    pub(super) fn new(hand_off: HandOff, sticky: bool, holders: watch::Sender<()>) -> Arc<Self> {
        let state = State {
            room: Room::new(hand_off, sticky),
            attempt: None,
            left: None,
            holder: None,
            token: (0, 0),
            grants: 0,
            kept: None,
            look: None,
            task_sleeps_until: None,
        };
        Arc::new(Self { state: Mutex::new(state), sticky, wake: Notify::new(), holders })
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the hold of a caller that has the node.
    pub(super) fn holder(&self) -> Option<Holder> {
        self.lock().holder.clone()
    }

    /// Returns the node if it is kept, and the result of `otherwise` if it is not. Both happen under the
    /// mutex under which a release decides whether a node is kept or goes to a waiting caller. A node that
    /// may not be granted now is released first.
    fn take_kept_or<T>(
        &self,
        location: &'static Location<'static>,
        otherwise: impl FnOnce(&mut State) -> T,
    ) -> Result<Granted, T> {
        loop {
            // Dropped after the mutex.
            let session;
            let given_up = {
                let mut state = self.lock();
                session = state.kept.as_ref().and_then(|kept| kept.held.session());
                let healthy = session.as_ref().is_some_and(|session| session.is_healthy());
                match state.room.take_kept(healthy) {
                    Kept::None => return Err(otherwise(&mut state)),
                    Kept::Granted => {
                        let (Some(KeptHold { held, .. }), Some(session)) = (state.kept.take(), session)
                        else {
                            // This is not expected: it is kept by a hold of a session.
                            return Err(otherwise(&mut state));
                        };
                        state.grants += 1;
                        state.holder = Some(Holder::new(&held, location));
                        return Ok(Granted::new(held, session, state.token, How::Kept));
                    }
                    Kept::GivenUp => state.kept.take(),
                }
            };
            if let Some(kept) = given_up {
                kept.held.release(None);
            }
        }
    }

    /// Handles a caller that waits.
    pub(super) fn arrive(&self, at: Position, deadline: Option<Instant>, waiter: Waiter) -> Arrived {
        let wait = |state: &mut State| {
            let grants = state.grants.saturating_sub(u64::from(state.room.has_node()));
            state.room.wait(at, Waiter { grants, ..waiter }, deadline);
            (!state.room.wants_attempt()).then(|| state.room.ahead_of_last())
        };
        match self.take_kept_or(waiter.location, wait) {
            Ok(granted) => Arrived::Granted(granted),
            Err(None) => Arrived::First,
            Err(Some(ahead)) => Arrived::Behind(ahead),
        }
    }

    /// Handles a caller that waits for no other.
    pub(super) fn try_now(&self, location: &'static Location<'static>) -> Tried {
        // If the room is behind others, a separate node would show them that a second contender wants the
        // lock.
        let look = |state: &mut State| (state.holder.clone(), self.sticky && state.is_behind());
        match self.take_kept_or(location, look) {
            Ok(granted) => Tried::Granted(granted),
            Err((_, true)) => Tried::Held,
            // This applies even if it has been released since. A lost hold blocks no other, even if its loss
            // is not recorded yet.
            Err((Some(holder), _)) if holder.held.lost().is_none() => Tried::Held,
            Err(_) => Tried::Asks,
        }
    }

    /// Has the hold of a caller that has asked the servers hand its node over when it is released, unless others have one,
    /// or are about to. Returns whether it does.
    pub(super) fn adopt(
        self: &Arc<Self>,
        held: &Arc<Held>,
        token: (i64, u64),
        location: &'static Location<'static>,
    ) -> bool {
        {
            let mut state = self.lock();
            if !state.room.adopt(held.number(), clock::now()) {
                return false;
            }
            state.token = token;
            state.grants += 1;
        }
        held.enter(&(Arc::clone(self) as Arc<dyn InRoom>));
        self.set_holder(held, location);
        true
    }

    /// Gives the node up if it is kept, for longer than `idle` if that is given.
    pub(super) fn give_up(&self, idle: Option<Duration>) {
        let kept = {
            let mut state = self.lock();
            let over = |kept: &mut KeptHold| idle.is_none_or(|idle| kept.since.elapsed() >= idle);
            let kept = state.kept.take_if(over);
            kept.filter(|_| state.room.give_up())
        };
        if let Some(kept) = kept {
            kept.held.release(None);
        }
    }

    /// Keeps no node from here on, since the last handle goes. A grant that is on its way to a caller that has left is
    /// released after this, or was before.
    pub(super) fn close(&self) {
        let kept = {
            let mut state = self.lock();
            let is_kept = state.room.close();
            is_kept.then(|| state.kept.take()).flatten()
        };
        if let Some(kept) = kept {
            kept.held.release(None);
        }
        self.wake.notify_one();
    }

    /// Records that others may want this node: it is given up at once if it is kept, and with its release
    /// otherwise.
    pub(super) fn others_come(&self, node: u64) {
        let kept = {
            let mut state = self.lock();
            let is_kept = state.room.others_come(node);
            is_kept.then(|| state.kept.take()).flatten()
        };
        if let Some(kept) = kept {
            kept.held.release(None);
        }
    }

    /// Handles the departure of a caller.
    pub(super) fn leave(&self, at: Position) {
        let (waiter, cancelled) = {
            let mut state = self.lock();
            let waiter = state.room.leave(at);
            let cancelled = state.room.is_idle().then(|| state.cancel()).flatten();
            (waiter, cancelled)
        };
        drop((waiter, cancelled));
    }

    /// Records that the attempt has ended, and that its grant, if any, was passed on or released.
    pub(super) fn attempt_over(&self) {
        let over = {
            let mut state = self.lock();
            (state.attempt.take(), state.left.take())
        };
        // Outside of the mutex.
        drop(over);
    }

    /// Grants the node that the attempt was granted. Without anybody who waits it is released.
    pub(super) fn granted(self: &Arc<Self>, granted: Granted) {
        let Some(held) = granted.held.clone() else { return };
        let first = {
            let mut state = self.lock();
            state.token = granted.token;
            state.grants += 1;
            state.room.granted(held.number(), clock::now())
        };
        held.enter(&(Arc::clone(self) as Arc<dyn InRoom>));
        let Some((_, waiter)) = first else { return };
        held.begin_lease(waiter.lease);
        self.set_holder(&held, waiter.location);
        // If the caller has left, the drop has it go to the next.
        drop(waiter.reply.send(Ok(granted)));
    }

    /// Notes who has the node. A hold that was lost before it was recorded as the room's ends at once.
    fn set_holder(&self, held: &Arc<Held>, location: &'static Location<'static>) {
        let old = {
            let mut state = self.lock();
            let is_holder = state.room.is_holder(held.number());
            is_holder.then(|| state.holder.replace(Holder::new(held, location)))
        };
        drop(old);
        if held.is_lost_or_released() {
            self.forget(held.number(), held.lost().is_some());
        }
    }

    /// Records that the hold with this number has ended or is lost.
    fn forget(&self, number: u64, is_lost: bool) {
        let (old, kept, wakes) = {
            let mut state = self.lock();
            let had = state.room.has_node();
            if is_lost && state.room.is_holder(number) {
                // A lost hold blocked no other any more, as far as the errors of waiting callers are
                // concerned (docs/protocol.md#live-contender).
                state.grants = state.grants.saturating_sub(1);
            }
            state.room.over(number);
            let is_holder = |holder: &mut Holder| holder.held.number() == number;
            let is_kept = |kept: &mut KeptHold| kept.held.number() == number;
            let (old, kept) = (state.holder.take_if(is_holder), state.kept.take_if(is_kept));
            // The watch of the node is of no use any more.
            let watched = self.sticky && had && !state.room.has_node();
            (old, kept, watched || state.room.wants_attempt())
        };
        if old.is_some() {
            // This includes a caller that never had it.
            contain_panic(|| {
                self.holders.send_replace(());
            });
        }
        drop(old);
        if wakes {
            self.wake.notify_one();
        }
        // It is lost: no guard is there to release it.
        if let Some(kept) = kept {
            kept.held.release(None);
        }
    }
}

impl State {
    /// Returns whether others are known to be before the attempt under way.
    fn is_behind(&self) -> bool {
        self.attempt.as_ref().is_some_and(|(_, progress)| progress.get().waiting.ahead().is_some())
    }

    /// Returns for how long the node has been kept; `None` if it is not.
    pub(super) fn kept_for(&self) -> Option<Duration> {
        self.kept.as_ref().map(|kept| kept.since.elapsed())
    }

    /// Notes an attempt that has been started. Returns it if all have left in the meantime: its drop cancels it.
    #[must_use]
    pub(super) fn begun(&mut self, attempt: UnderWay) -> Option<UnderWay> {
        self.attempt = Some(attempt);
        if self.room.is_under_way() { None } else { self.cancel() }
    }

    /// Returns the attempt that is under way no more; its drop cancels it.
    #[must_use]
    pub(super) fn cancel(&mut self) -> Option<UnderWay> {
        self.room.attempt_ends();
        let attempt = self.attempt.take()?;
        // It may have ended with a grant that is on its way to the task: a flush waits for its release.
        self.left = Some(attempt.0.ticket());
        Some(attempt)
    }
}

impl InRoom for SharedRoom {
    fn pass_on(
        &self,
        held: &Arc<Held>,
        session: &Arc<Session>,
        deletion: Deletion,
    ) -> Option<(Deletion, u64)> {
        let (first, mut held, mut deletion) = (held, Arc::clone(held), deletion);
        loop {
            let healthy = deletion.hand_over && session.is_healthy() && !held.is_revocation_requested();
            let now = clock::now();
            let number = if self.sticky { held.next_number() } else { 0 };
            let (next, kept, token, looks, old) = {
                let mut state = self.lock();
                let next = state.room.released(held.number(), number, now, healthy);
                let is_holder = |holder: &mut Holder| Arc::ptr_eq(&holder.held, &held);
                let old = state.holder.take_if(is_holder);
                let mut kept = None;
                if !matches!(next, Next::Delete) {
                    state.token.1 += 1;
                }
                match next {
                    Next::To(..) => state.grants += 1,
                    // This happens under the mutex: the next caller to arrive must find it. The session is
                    // notified below.
                    Next::Keep => {
                        let held = held.unregistered_heir(session, number, None);
                        kept = Some(Arc::clone(&held));
                        state.kept = Some(KeptHold { held, since: Instant::now() });
                    }
                    Next::Delete => {}
                }
                let looks = match next {
                    Next::Delete => None,
                    _ => state.room.begin_look(),
                };
                if let Some(number) = looks {
                    let (node, directory) = (held.name(), held.lock_path().clone());
                    state.look = Some(Look { number, node, directory, session: Arc::downgrade(session) });
                }
                (next, kept, state.token, looks.is_some(), old)
            };
            // Outside of the mutex.
            drop(old);
            if looks {
                self.wake.notify_one();
            }
            let (at, waiter) = match next {
                Next::To(at, waiter) => (at, waiter),
                Next::Keep => {
                    // This comes before the earlier one is released.
                    if let Some(kept) = &kept {
                        kept.register(session);
                    }
                    if !Arc::ptr_eq(first, &held) {
                        held.let_go(session);
                    }
                    if let Some(kept) = kept.filter(|kept| kept.is_lost_or_released()) {
                        self.forget(kept.number(), false);
                    }
                    return None;
                }
                Next::Delete => {
                    if !Arc::ptr_eq(first, &held) {
                        held.let_go(session);
                    }
                    return Some((deletion, held.number()));
                }
            };
            let lease_end = waiter.lease.and_then(|lease| now.end_of(lease));
            // Registered with the session before the earlier one is let go.
            let heir = held.heir(session, at.number(), lease_end);
            if !Arc::ptr_eq(first, &held) {
                held.let_go(session);
            }
            self.set_holder(&heir, waiter.location);
            let node = heir.name();
            let granted = Granted::new(heir, Arc::clone(session), token, How::Memory);
            match waiter.reply.send(Ok(granted)) {
                Ok(()) => {
                    observer::handed_over(held.lock_path(), &node, &node);
                    return None;
                }
                // The caller has left in this moment. Not by the drop, which would come back here once more for
                // each that has left.
                Err(Ok(mut granted)) => {
                    let heir = granted.take()?;
                    deletion = heir.take_back()?;
                    held = heir;
                }
                Err(Err(_)) => return None,
            }
        }
    }

    /// However the hold ended, its node no longer belongs to the room.
    fn over(&self, number: u64, how: Over) {
        self.forget(number, how != Over::Released);
    }

    fn take_out(&self, hold: u64) -> bool {
        self.forget(hold, false);
        true
    }

    fn node_deleted(&self, told: u64, node: Arc<str>) {
        let has_it = {
            let state = self.lock();
            let kept = state.kept.as_ref().map(|kept| &kept.held);
            let held = state.holder.as_ref().map(|holder| &holder.held).or(kept);
            held.filter(|held| held.number() != told).cloned()
        };
        if let Some(held) = has_it {
            held.node_deleted(node);
        }
    }
}

impl fmt::Debug for SharedRoom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // This omits its callers, of whom there may be thousands.
        f.debug_struct("SharedRoom").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use zookeeper_client as zk;
    use zookeeper_test_server::Server;

    use super::*;
    use crate::engine::progress::ProgressSender;
    use crate::protocol::hold::HoldState;
    use crate::protocol::lease::LeaseMargin;
    use crate::protocol::node_name::Kind;
    use crate::session::cleanup::Cleanup;

    /// A room in which one waits, for whom an attempt is about to begin.
    fn waited_for(cleanup: &Cleanup) -> (Arc<SharedRoom>, Position) {
        let room = SharedRoom::new(HandOff::NONE, false, watch::Sender::default());
        let at = arrive(&room, cleanup);
        room.lock().room.attempt_begins();
        (room, at)
    }

    fn waiter() -> (Waiter, oneshot::Receiver<Result<Granted, TryLockError>>) {
        let (reply, told) = oneshot::channel();
        let (location, began) = (Location::caller(), Instant::now());
        (Waiter { reply, lease: None, location, began, asked: Duration::ZERO, grants: 0, call: None }, told)
    }

    fn arrive(room: &SharedRoom, cleanup: &Cleanup) -> Position {
        let at = Position::new(cleanup.number(), false);
        assert!(!matches!(room.arrive(at, None, waiter().0), Arrived::Granted(_)));
        at
    }

    /// However the threads meet: one that comes while the node is released has it, and does not wait until it is given up.
    #[tokio::test]
    async fn one_that_comes_with_the_release_has_the_node() {
        let server = Server::start().unwrap();
        let handle = zk::Client::connect(&server.connect_string()).await.unwrap();
        let session = Session::new(1, handle, LeaseMargin::default());
        let (cleanup, _queue) = Cleanup::new();
        for tries in [false, true].repeat(1_000) {
            session.lease().renewed(clock::now());
            let hand_off = HandOff { max: 9, time: Duration::MAX };
            let room = SharedRoom::new(hand_off, true, watch::Sender::default());
            let (first, mut told) = waiter();
            let at = || Position::new(cleanup.number(), false);
            assert!(matches!(room.arrive(at(), None, first), Arrived::First));
            room.lock().room.attempt_begins();
            let directory = LockPath::parse("", "/lock").unwrap();
            let state = HoldState::new("x-sticky-lock-0000000000".into(), Kind::Exclusive);
            let held = Held::new(&session, &cleanup, directory, cleanup.number(), state);
            room.granted(Granted::new(held, Arc::clone(&session), (1, 0), How::default()));
            let holder = told.try_recv().unwrap().unwrap().take().unwrap();

            let both = std::sync::Barrier::new(2);
            let (next, mut told) = waiter();
            let has_it = std::thread::scope(|threads| {
                let release = threads.spawn(|| {
                    both.wait();
                    holder.release(None);
                });
                both.wait();
                if tries {
                    // It was held at that moment, or it is the try's.
                    return !matches!(room.try_now(Location::caller()), Tried::Asks);
                }
                let arrived = room.arrive(at(), None, next);
                release.join().unwrap();
                matches!(arrived, Arrived::Granted(_)) || told.try_recv().is_ok()
            });
            assert!(has_it, "it waits for a node that is only kept");
            room.close();
        }
    }

    /// An attempt, and what it hears when it is cancelled.
    fn attempt(cleanup: &Cleanup) -> (UnderWay, oneshot::Receiver<Ticket>) {
        let (cancel, cancelled) = oneshot::channel();
        let (_, progress) = ProgressSender::new();
        ((CancelOnDrop::new(cancel, cleanup, cleanup.number()), progress), cancelled)
    }

    /// The caller has left, and the last handle with it, while the task was paused with the grant: before the room
    /// had the node, or after it.
    // Shows: kept-node
    #[tokio::test]
    async fn a_node_is_kept_for_no_longer_than_there_is_a_handle() {
        let server = Server::start().unwrap();
        let handle = zk::Client::connect(&server.connect_string()).await.unwrap();
        let session = Session::new(1, handle, LeaseMargin::default());
        session.lease().renewed(clock::now());
        for closes_first in [true, false] {
            let (cleanup, mut queue) = Cleanup::new();
            let room = SharedRoom::new(HandOff::NONE, true, watch::Sender::default());
            arrive(&room, &cleanup);
            room.lock().room.attempt_begins();
            let directory = LockPath::parse("", "/lock").unwrap();
            let state = HoldState::new("x-sticky-lock-0000000000".into(), Kind::Exclusive);
            let held = Held::new(&session, &cleanup, directory, cleanup.number(), state);
            if closes_first {
                room.close();
            }
            room.granted(Granted::new(held, Arc::clone(&session), (1, 0), How::default()));
            assert_eq!(room.lock().kept.is_some(), !closes_first);
            room.close();
            assert!(queue.try_recv().is_ok(), "a node without an owner");
            assert!(!session.holds.any() && room.lock().kept.is_none());
            let is_left = Arc::downgrade(&room);
            drop(room);
            assert!(is_left.upgrade().is_none(), "something in the room keeps it");
        }
    }

    /// The task was paused between its decision to start the attempt and the start.
    #[test]
    fn an_attempt_is_cancelled_if_all_have_left_before_it_began() {
        for another_comes in [false, true] {
            let (cleanup, _queue) = Cleanup::new();
            let (room, at) = waited_for(&cleanup);
            room.leave(at);
            if another_comes {
                arrive(&room, &cleanup);
            }
            let (attempt, mut cancelled) = attempt(&cleanup);
            let left = room.lock().begun(attempt);
            drop(left);
            assert!(cancelled.try_recv().is_ok(), "nobody waits for it");
            room.attempt_over();
            // For the one that came another is started.
            assert_eq!(room.lock().room.wants_attempt(), another_comes);
            assert_eq!(cleanup.pending().borrow().count(), 0);
        }
    }

    /// The task was paused before it took the result, which nobody waits for any more.
    #[test]
    fn a_flush_waits_until_a_grant_that_came_too_late_is_released() {
        let (cleanup, _queue) = Cleanup::new();
        let (room, at) = waited_for(&cleanup);
        let (attempt, granted) = attempt(&cleanup);
        assert!(room.lock().begun(attempt).is_none());
        drop(granted);
        room.leave(at);
        assert_eq!(cleanup.pending().borrow().count(), 1);
        room.attempt_over();
        assert_eq!(cleanup.pending().borrow().count(), 0);
    }
}
