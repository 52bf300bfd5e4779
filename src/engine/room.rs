//! Nodes that several callers of one client share, one after the other (a room) or at once
//! (readers). A path lock and what is above it use it. It never sends a request.
//!
//! The [`Room`] of one client and mutex, or of one side of a read-write lock, is shared by its
//! callers, its holders and the [task](crate::engine::attempts::room) that works for it: behind a
//! mutex that is held for one decision at a time, and never across an await or foreign code. Grants
//! are sent, and anything else happens, after it is unlocked.

use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, oneshot};

use crate::engine::call::ProgressReceiver;
use crate::engine::granted::{Grant, GrantedLock};
use crate::engine::held::{Held, InRoom, LocalOwner};
use crate::error::TryLockError;
use crate::protocol::hold::{Deletion, EndedBy, HoldEvent};
use crate::protocol::late::Waiting;
use crate::protocol::node_name::Kind;
use crate::protocol::room::{Arrival, HandOff, PassOn, Room};
use crate::session::core::GuardChanges;
use crate::session::leftovers::cleanup::{Cleanup, Ticket};
use crate::session::live::zk_session::Session;
use crate::session::reports::observer::{self, CallNumber, How};
use crate::session::threads::clock;
use crate::session::threads::mutex::{Mutex, MutexGuard};

/// The room of one client and mutex, or of one side of a read-write lock.
pub(crate) struct SharedRoom {
    state: Mutex<RoomState>,
    /// Of the kind `Shared` if its callers have a node together.
    pub(crate) kind: Kind,
    /// The room of the writers, for that of readers. Its mutex may be locked under this one, and
    /// not the other way.
    writers: Option<Arc<Self>>,
    /// Wakes the room's task.
    pub(crate) wake: Notify,
    guard_changes: GuardChanges,
}

pub(crate) struct RoomState {
    pub(crate) room: Room<Waiter, Instant, LocalOwner>,
    /// The progress of the task's attempt.
    pub(crate) progress: Option<ProgressReceiver>,
    /// The ticket of an attempt that all callers have left, until the task has released its
    /// possible grant.
    left: Option<Ticket>,
    /// The two numbers of the last fencing token.
    token: (i64, u64),
    /// How often the lock was granted, and not lost.
    grants: u64,
    /// The number of the session in which it was granted last.
    granted_in: u64,
    /// Until when the room's task sleeps; `None` if there is no such task.
    pub(crate) task_sleeps_until: Option<Instant>,
}

/// What ends with an attempt: its progress, and the ticket for which a flush waits if all callers
/// have left the attempt.
#[must_use]
pub(crate) struct EndedAttempt {
    _progress: Option<ProgressReceiver>,
    _left: Option<Ticket>,
}

/// A node of a room, as its holds know it.
struct RoomNode {
    room: Arc<SharedRoom>,
    number: u64,
    /// Whether the servers have said that it does not exist. Not in the room, since each guard asks
    /// at each question.
    is_gone: AtomicBool,
}

/// A caller that waits in the room.
pub(crate) struct Waiter {
    pub(crate) reply: oneshot::Sender<Result<Grant, TryLockError>>,
    pub(crate) lease: Option<Duration>,
    pub(crate) location: &'static Location<'static>,
    pub(crate) began: Instant,
    /// The time that the caller gave.
    pub(crate) asked: Duration,
    /// How often the lock had been granted when this arrived, and was over.
    pub(crate) grants: u64,
    /// The call, if that is observed.
    pub(crate) call: Option<CallNumber>,
}

impl SharedRoom {
    pub(crate) fn new(
        kind: Kind,
        hand_off: HandOff,
        writers: Option<Arc<Self>>,
        guard_changes: GuardChanges,
    ) -> Arc<Self> {
        let state = RoomState {
            room: Room::new(kind, hand_off),
            progress: None,
            left: None,
            token: (0, 0),
            grants: 0,
            granted_in: 0,
            task_sleeps_until: None,
        };
        Arc::new(Self {
            state: Mutex::new(state),
            kind,
            writers,
            wake: Notify::new(),
            guard_changes,
        })
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, RoomState> {
        self.state.lock()
    }

    /// Returns the holds of its callers.
    pub(crate) fn holders(&self) -> Vec<LocalOwner> {
        self.lock().room.holders().cloned().collect()
    }

    /// Returns the node if it is shared and open, and the result of `otherwise` if it is not. Both
    /// happen under the mutex under which a release decides whether the node goes.
    fn join_or<T>(
        &self,
        location: &'static Location<'static>,
        otherwise: impl FnOnce(&mut RoomState) -> T,
    ) -> Result<Grant, T> {
        loop {
            // Dropped after the mutex.
            let session;
            let mut state = self.lock();
            session = state.room.hold().and_then(|holder| holder.held.session());
            let healthy = session.as_ref().is_some_and(|session| session.is_healthy());
            let joined = state.room.join(clock::now(), healthy);
            let (Some(other), Some(session)) = (joined, &session) else {
                return Err(otherwise(&mut state));
            };
            let held = other.held.heir(session, other.held.next_number());
            state
                .room
                .enter(held.number(), LocalOwner::new(&held, location));
            state.count_grant(session);
            let token = state.token;
            drop(state);
            held.register(session);
            let grant = Grant::new(
                GrantedLock::new(held, Arc::clone(session), token),
                How::Shared,
            );
            // The session, or the node, may have ended before it was registered.
            if !grant.held.is_lost_or_released() {
                return Ok(grant);
            }
        }
    }

    /// Handles a caller that may wait. `Ok` if it has the node, which is shared. `Err` if it waits,
    /// with the number of its client's callers that it waits behind; `None` if an attempt must be
    /// started for it.
    pub(crate) fn arrive(
        &self,
        at: Arrival,
        deadline: Option<Instant>,
        waiter: Waiter,
    ) -> Result<Grant, Option<usize>> {
        let wait = |state: &mut RoomState| {
            let grants = state
                .grants
                .saturating_sub(u64::from(state.room.has_node()));
            state.room.wait(at, Waiter { grants, ..waiter }, deadline);
            (!state.room.wants_attempt()).then(|| state.room.ahead_of_last())
        };
        self.join_or(waiter.location, wait)
    }

    /// Handles a caller that waits for no other. `Err` if it has not got the node: `true` if
    /// another caller has it, `false` if the servers must be asked.
    pub(crate) fn try_now(&self, location: &'static Location<'static>) -> Result<Grant, bool> {
        let look = |state: &mut RoomState| state.room.hold().cloned();
        self.join_or(location, look).map_err(|holder| match holder {
            // A reader that is inside is in no other's way.
            _ if self.kind == Kind::Shared => false,
            // This applies even if it has been released since. A lost hold blocks no other,
            // even if its loss is not recorded yet.
            holder => holder.is_some_and(|holder| holder.held.check_lost().is_none()),
        })
    }

    /// Has the grant of a caller that has asked the servers share its node, or hand it over when it
    /// is released, unless others have one, or are about to. Returns whether it does.
    pub(crate) fn adopt(
        self: &Arc<Self>,
        grant: &mut Grant,
        location: &'static Location<'static>,
    ) -> bool {
        let is_adopted = {
            let (mut state, held) = (self.lock(), &grant.held);
            let holder = LocalOwner::new(held, location);
            let is_adopted =
                self.enter(held) && state.room.adopt(held.number(), holder, held.granted());
            if is_adopted {
                self.opened(&mut state, grant.session(), grant.token());
            }
            is_adopted
        };
        if is_adopted {
            grant.entered_room();
        }
        is_adopted
    }

    /// Has the events of a hold that was granted a node reach the room. Called under the mutex, for
    /// which an event waits from here on. Returns `false` if it has ended already: its node may be
    /// on its way out.
    fn enter(self: &Arc<Self>, held: &Held) -> bool {
        let (room, number) = (Arc::clone(self), held.number());
        held.enter(Arc::new(RoomNode {
            room,
            number,
            is_gone: AtomicBool::new(false),
        }));
        !held.is_lost_or_released()
    }

    /// Notes the grant of the current node, before a caller has it.
    fn opened(&self, state: &mut RoomState, session: &Session, token: (i64, u64)) {
        state.token = token;
        state.count_grant(session);
        let is_wanted = |writers: &Arc<Self>| writers.lock().room.is_waited_for();
        if self.writers.as_ref().is_some_and(is_wanted) {
            // The writer has found no node that it could close.
            state.room.close();
        }
    }

    /// Carries out a decision of the room, and wakes the task if an attempt is wanted then.
    fn decide(&self, decide: impl FnOnce(&mut RoomState)) {
        let wakes = {
            let mut state = self.lock();
            decide(&mut state);
            state.room.wants_attempt()
        };
        if wakes {
            self.wake.notify_one();
        }
    }

    /// Has no further reader share the current node.
    pub(crate) fn close_node(&self) {
        self.decide(|state| state.room.close());
    }

    /// Handles the departure of a caller. The task cancels an attempt that no caller waits for any
    /// more, and releases its possible grant: a flush waits for that.
    pub(crate) fn leave(&self, at: Arrival, cleanup: &Cleanup) {
        let (waiter, is_abandoned) = {
            let mut state = self.lock();
            let waiter = state.room.leave(at);
            let is_abandoned = state.room.abandon_attempt();
            if is_abandoned {
                state.left = Some(cleanup.ticket(at.number()));
            }
            (waiter, is_abandoned)
        };
        drop(waiter);
        if is_abandoned {
            self.wake.notify_one();
        }
    }

    /// Grants the node that the attempt was granted: to the first that waits, or to all if they
    /// share it. If none waits, it is released.
    pub(crate) fn granted(self: &Arc<Self>, grant: Grant) {
        let (held, session, token) = (
            Arc::clone(&grant.held),
            Arc::clone(grant.session()),
            grant.token(),
        );
        // Reads the clock, without the mutex.
        let is_lost = held.check_lost().is_some();
        // Dropped after the mutex.
        let mut first = Some(grant);
        let mut served: Vec<_> = {
            let mut state = self.lock();
            if is_lost || !self.enter(&held) {
                // Over before anybody had it: another attempt goes on.
                return state.room.attempt_ends();
            }
            let location = state
                .room
                .first()
                .map_or(Location::caller(), |waiter| waiter.location);
            let waiting = state.room.granted(
                held.number(),
                LocalOwner::new(&held, location),
                held.granted(),
            );
            let grant = |waiter: Waiter| {
                let grant = first.take().unwrap_or_else(|| {
                    let heir = held.heir(&session, held.next_number());
                    state
                        .room
                        .enter(heir.number(), LocalOwner::new(&heir, waiter.location));
                    Grant::new(
                        GrantedLock::new(heir, Arc::clone(&session), token),
                        How::Shared,
                    )
                });
                (waiter, grant)
            };
            let served = waiting.into_iter().map(grant).collect();
            self.opened(&mut state, &session, token);
            served
        };
        if let Some((_, first)) = served.first_mut() {
            first.entered_room();
        }
        // All of them, before one has the lock.
        for (_, heir) in served.iter().skip(1) {
            heir.held.register(&session);
        }
        for (waiter, grant) in served {
            grant.held.begin_lease(waiter.lease);
            // If the caller has left, the drop releases it, to the next if it is not shared.
            drop(waiter.reply.send(Ok(grant)));
        }
    }
}

impl RoomState {
    /// Returns what the attempt under way waits for.
    pub(crate) fn waiting(&self) -> Option<Waiting> {
        self.progress
            .as_ref()
            .filter(|_| self.room.is_under_way())
            .map(ProgressReceiver::waiting)
    }

    /// Returns how often the lock was granted, and not lost; 0 if it was not in the session with
    /// this number.
    pub(crate) fn grants_in(&self, session: Option<u64>) -> u64 {
        if session == Some(self.granted_in) {
            self.grants
        } else {
            0
        }
    }

    /// Records that the task has no attempt any more. Returns what ends with the attempt, to be
    /// dropped outside of the mutex, when the grant of the attempt, if any, was passed on or
    /// released.
    pub(crate) fn attempt_over(&mut self) -> EndedAttempt {
        EndedAttempt {
            _progress: self.progress.take(),
            _left: self.left.take(),
        }
    }

    /// Records that no caller has this node next, since a hold of it is lost.
    fn lose_node(&mut self, node: u64) {
        if self.room.is_current(node) {
            // A lost hold blocked no other any more, as far as the errors of waiting callers are
            // concerned (docs/protocol.md#live-contender).
            self.grants = self.grants.saturating_sub(1);
        }
        self.room.lost(node);
    }

    fn count_grant(&mut self, session: &Session) {
        self.grants += 1;
        self.granted_in = session.number();
    }
}

impl InRoom for RoomNode {
    fn pass_on(
        &self,
        held: &Arc<Held>,
        session: &Arc<Session>,
        deletion: Deletion,
    ) -> Option<Deletion> {
        let room = &self.room;
        let (mut held, mut deletion) = (Arc::clone(held), deletion);
        // A grant whose caller has left, until the next hold is registered.
        let mut taken_back: Option<Grant> = None;
        loop {
            let healthy =
                deletion.hand_over && session.is_healthy() && !held.is_revocation_requested();
            let (next, heir, token) = {
                let mut state = room.lock();
                // Under the mutex, as the record of it: the room forgets such a node right after.
                if self.is_node_gone() {
                    return None;
                }
                let next = state
                    .room
                    .released(self.number, held.number(), clock::now(), healthy);
                // This happens under the mutex: the next caller to arrive must find it. The session
                // is notified below.
                let heir = if let PassOn::To(at, waiter) = &next {
                    let heir = held.heir(session, at.number());
                    let owner = LocalOwner::new(&heir, waiter.location);
                    state.room.enter(at.number(), owner);
                    state.count_grant(session);
                    state.token.1 += u64::from(room.kind == Kind::Exclusive);
                    Some(heir)
                } else {
                    None
                };
                (next, heir, state.token)
            };
            let is_deleted = matches!(next, PassOn::Delete);
            // Registered with the session before the earlier one is let go.
            let is_lost = heir.as_ref().is_some_and(|heir| !heir.register(session));
            // The lock is released by then: all that the drop does is to have the session forget it.
            drop(taken_back.take());
            let (Some(heir), PassOn::To(_, waiter)) = (heir, next) else {
                return is_deleted.then_some(deletion);
            };
            if is_lost {
                self.hold_ended(heir.number(), EndedBy::Loss);
            }
            heir.begin_lease(waiter.lease);
            let node = heir.name();
            let grant = Grant::new(
                GrantedLock::new(heir, Arc::clone(session), token),
                How::Memory,
            );
            match waiter.reply.send(Ok(grant)) {
                Ok(()) => {
                    observer::handed_over(&held.directory, &node, &node);
                    return None;
                }
                // The caller has left in this moment. The drop alone would come back here once more
                // for each that has left.
                Err(Ok(grant)) => {
                    held = Arc::clone(&grant.held);
                    deletion = held.take_back()?;
                    taken_back = Some(grant);
                }
                Err(Err(_)) => return None,
            }
        }
    }

    /// However the hold ended, no caller has its node next.
    fn hold_ended(&self, number: u64, how: EndedBy) {
        self.room.decide(|state| match how {
            EndedBy::Release => state.room.over(self.number, number),
            EndedBy::Loss => state.lose_node(self.number),
        });
        // This includes a caller that never had it.
        self.room.guard_changes.notify();
    }

    fn lose_sharers(&self, node: &Arc<str>) {
        let told = {
            let mut state = self.room.lock();
            let told = state.room.gone(self.number);
            // A hold that has taken the node out notices its end by itself.
            if !told.is_empty() {
                self.is_gone.store(true, Ordering::Release);
            }
            told
        };
        for holder in told {
            let node = Arc::clone(node);
            holder
                .held
                .handle_event(HoldEvent::SharedNodeDeleted { node });
        }
    }

    fn is_node_gone(&self) -> bool {
        self.is_gone.load(Ordering::Acquire)
    }

    fn take_out(&self, hold: u64) {
        let wakes = {
            let mut state = self.room.lock();
            state.room.take_out(self.number, hold);
            state.room.wants_attempt()
        };
        if wakes {
            self.room.wake.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use zookeeper_client as zk;
    use zookeeper_test_server::Server;

    use super::*;
    use crate::error::LostReason;
    use crate::protocol::hold::HoldState;
    use crate::protocol::local_queue::Gone;
    use crate::session::contents::nodes::NodeOwner;
    use crate::session::leftovers::cleanup::CleanupQueue;
    use crate::session::live::zk_session::SessionOptions;
    use crate::values::path::LockPath;

    /// A room in which one waits, for whom an attempt is about to begin.
    fn waited_for(cleanup: &Cleanup) -> (Arc<SharedRoom>, Arrival) {
        let room = SharedRoom::new(
            Kind::Exclusive,
            HandOff::NONE,
            None,
            GuardChanges::default(),
        );
        let at = arrive(&room, cleanup);
        room.lock().room.attempt_begins();
        (room, at)
    }

    fn waiter() -> (Waiter, oneshot::Receiver<Result<Grant, TryLockError>>) {
        let (reply, told) = oneshot::channel();
        let (location, began) = (Location::caller(), Instant::now());
        (
            Waiter {
                reply,
                lease: None,
                location,
                began,
                asked: Duration::ZERO,
                grants: 0,
                call: None,
            },
            told,
        )
    }

    fn arrive(room: &SharedRoom, cleanup: &Cleanup) -> Arrival {
        let at = Arrival::new(cleanup.number(), false);
        assert!(room.arrive(at, None, waiter().0).is_err());
        at
    }

    /// Returns where it is told.
    fn arrive_told(
        room: &SharedRoom,
        cleanup: &Cleanup,
    ) -> oneshot::Receiver<Result<Grant, TryLockError>> {
        let (waiter, told) = waiter();
        assert!(
            room.arrive(Arrival::new(cleanup.number(), false), None, waiter)
                .is_err()
        );
        told
    }

    /// Their threads were paused between the drop of the receiver and the way out of the room.
    // Shows: hand-off
    #[tokio::test]
    async fn node_skips_departing_callers() {
        let server = Server::start().unwrap();
        let mut scene = Scene::new(&server).await;
        for another_waits in [true, false] {
            scene.renew();
            let hand_off = HandOff {
                max: 9,
                time: Duration::MAX,
            };
            let room = SharedRoom::new(Kind::Exclusive, hand_off, None, GuardChanges::default());
            let mut told: Vec<_> = (0..4).map(|_| arrive_told(&room, &scene.cleanup)).collect();
            room.lock().room.attempt_begins();
            room.granted(scene.writer());
            let holder = told.remove(0).try_recv().unwrap().unwrap();
            let mut last = another_waits.then(|| told.pop().unwrap());
            drop(told);
            drop(holder);
            if let Some(last) = &mut last {
                let holder = last.try_recv().unwrap().unwrap();
                assert_eq!((scene.deleted(), holder.held.check_lost()), (0, None));
                assert_eq!(
                    room.holders()
                        .iter()
                        .map(|owner| owner.held.number())
                        .collect::<Vec<_>>(),
                    [holder.held.number()]
                );
                drop(holder);
            }
            assert_eq!(scene.deleted(), 1);
            assert!(!scene.session.holds.any() && !room.lock().room.has_node());
        }
    }

    /// The task was paused before it took the result.
    #[tokio::test]
    async fn grant_lost_early_reaches_no_caller() {
        let server = Server::start().unwrap();
        let mut scene = Scene::new(&server).await;
        let (without_node, released, given_up) = (scene.writer(), scene.writer(), scene.writer());
        without_node.held.node_deleted(without_node.held.name());
        released.held.release(None);
        given_up
            .held
            .handle_event(HoldEvent::Ended(LostReason::GivenUp));
        assert_eq!(scene.deleted(), 1);
        for (over, deletions) in [(without_node, 0), (released, 0), (given_up, 1)] {
            let room = SharedRoom::new(
                Kind::Exclusive,
                HandOff::NONE,
                None,
                GuardChanges::default(),
            );
            let mut told = arrive_told(&room, &scene.cleanup);
            room.lock().room.attempt_begins();
            room.granted(over);
            assert_eq!(
                told.try_recv().err(),
                Some(oneshot::error::TryRecvError::Empty)
            );
            assert!(room.lock().room.wants_attempt(), "no other attempt begins");
            assert_eq!(scene.deleted(), deletions);
        }
    }

    /// The task was paused between its decision to start the attempt and the end of that, for which
    /// no caller waits any more.
    #[test]
    fn flush_waits_for_abandoned_attempt() {
        for another_comes in [false, true] {
            let (cleanup, _queue) = Cleanup::new();
            let (room, at) = waited_for(&cleanup);
            room.leave(at, &cleanup);
            if another_comes {
                arrive(&room, &cleanup);
            }
            // For the one that came another is started.
            assert_eq!(room.lock().room.wants_attempt(), another_comes);
            assert!(!room.lock().room.is_under_way());
            assert_eq!(cleanup.pending().borrow().count(), 1);
            drop(room.lock().attempt_over());
            assert_eq!(cleanup.pending().borrow().count(), 0);
        }
    }

    const UNBOUNDED: HandOff = HandOff {
        max: u32::MAX,
        time: Duration::MAX,
    };

    /// The room of readers, who share a node.
    fn shared(hand_off: HandOff) -> Arc<SharedRoom> {
        SharedRoom::new(Kind::Shared, hand_off, None, GuardChanges::default())
    }

    fn adopt(room: &Arc<SharedRoom>, grant: &mut Grant) -> bool {
        room.adopt(grant, Location::caller())
    }

    /// Another reader of the same node.
    fn join(readers: &SharedRoom) -> Option<Grant> {
        readers.try_now(Location::caller()).ok()
    }

    /// Does both at once, in two threads.
    fn at_once<O, T>(other: impl FnOnce() -> O + Send, this: impl FnOnce() -> T) -> T {
        let both = Barrier::new(2);
        std::thread::scope(|threads| {
            threads.spawn(|| {
                both.wait();
                drop(other());
            });
            both.wait();
            this()
        })
    }

    /// A session with a valid lease, and what is left to its cleanup.
    struct Scene {
        session: Arc<Session>,
        cleanup: Cleanup,
        queue: CleanupQueue,
    }

    impl Scene {
        async fn new(server: &Server) -> Self {
            let handle = zk::Client::connect(&server.connect_string()).await.unwrap();
            let session = Session::new(1, handle, SessionOptions::default());
            let (cleanup, queue) = Cleanup::new();
            let scene = Self {
                session,
                cleanup,
                queue,
            };
            scene.renew();
            scene
        }

        /// Nothing else renews the lease, however long a test takes.
        fn renew(&self) {
            self.session.lease().renewed(clock::now());
        }

        fn reader(&self) -> Grant {
            self.grant("x-__READ__0000000000", Kind::Shared)
        }

        fn writer(&self) -> Grant {
            self.grant("x-lock-0000000000", Kind::Exclusive)
        }

        fn grant(&self, node: &str, kind: Kind) -> Grant {
            let directory = LockPath::parse("", "/lock").unwrap();
            let held = Held::new(
                &self.session,
                &self.cleanup,
                directory,
                self.cleanup.number(),
                HoldState::new(node.into(), kind),
            );
            Grant::new(
                GrantedLock::new(held, Arc::clone(&self.session), (1, 0)),
                How::default(),
            )
        }

        /// Returns a room of writers, and the writer that has its node.
        fn writers(&self) -> (Arc<SharedRoom>, Grant) {
            let changes = GuardChanges::default();
            let writers = SharedRoom::new(Kind::Exclusive, UNBOUNDED, None, changes);
            let mut writer = self.writer();
            assert!(adopt(&writers, &mut writer));
            (writers, writer)
        }

        /// Returns a room of readers, and the reader who has opened its node.
        fn opened(&self, hand_off: HandOff) -> (Arc<SharedRoom>, Grant) {
            let (readers, mut reader) = (shared(hand_off), self.reader());
            assert!(adopt(&readers, &mut reader));
            (readers, reader)
        }

        /// Returns how many nodes have been left to cleanup.
        fn deleted(&mut self) -> usize {
            std::iter::from_fn(|| self.queue.try_recv().ok()).count()
        }
    }

    /// The task of the reader was paused between the grant and this moment.
    // Shows: shared-read-node
    #[tokio::test]
    async fn ended_reader_is_not_joined() {
        let server = Server::start().unwrap();
        let mut scene = Scene::new(&server).await;
        let readers = shared(UNBOUNDED);
        let mut reader = scene.reader();
        reader.held.release(None);
        assert!(!adopt(&readers, &mut reader));
        assert!(join(&readers).is_none(), "its node is on its way out");
        assert_eq!(scene.deleted(), 1);
        // Another one opens its node.
        let mut reader = scene.reader();
        assert!(adopt(&readers, &mut reader));
        let joined = join(&readers).unwrap();
        readers.close_node();
        drop(reader);
        assert_eq!(scene.deleted(), 0, "another reader is inside");
        drop(joined);
        assert_eq!(scene.deleted(), 1);
    }

    /// From health only.
    #[tokio::test]
    async fn readers_do_not_join_in_doubt() {
        let server = Server::start().unwrap();
        let mut scene = Scene::new(&server).await;
        let (readers, reader) = scene.opened(UNBOUNDED);
        let beside = join(&readers).unwrap();
        reader.held.begin_write();
        drop(reader);
        assert!(join(&readers).is_none(), "a write may still come");
        drop(beside);
        assert_eq!(scene.deleted(), 1);
        let handle = zk::Client::connect(&server.connect_string()).await.unwrap();
        // Never renewed.
        scene.session = Session::new(2, handle, SessionOptions::default());
        let mut reader = scene.reader();
        assert!(adopt(&readers, &mut reader));
        assert!(join(&readers).is_none(), "the session is in doubt");
    }

    /// The task of a try, which asked the servers by itself, was paused between its grant and the
    /// room.
    // Shows: shared-read-node
    #[tokio::test]
    async fn bounds_count_from_the_grant() {
        let time = Duration::from_millis(200);
        let server = Server::start().unwrap();
        let scene = Scene::new(&server).await;
        let readers = shared(HandOff { max: 9, time });
        let mut reader = scene.reader();
        // Time is what is tested.
        tokio::time::sleep(time).await;
        assert!(adopt(&readers, &mut reader));
        assert!(join(&readers).is_none());
    }

    /// The answer about the node comes when its hold has passed the node on, and while the next one
    /// passes it on, too.
    // Shows: node-deleted-by-hand
    #[tokio::test]
    async fn missing_node_reaches_later_holders() {
        let server = Server::start().unwrap();
        let mut scene = Scene::new(&server).await;
        for _ in 0..2_000 {
            scene.renew();
            let (writers, first) = scene.writers();
            let next = || arrive_told(&writers, &scene.cleanup);
            let (mut second, mut third) = (next(), next());
            first.held.release(None);
            let second = second.try_recv().unwrap().unwrap();
            let held = &first.held;
            at_once(
                || held.node_deleted(held.name()),
                || second.held.release(None),
            );
            assert!(!writers.lock().room.has_node());
            if let Ok(granted) = third.try_recv() {
                let third = granted.unwrap();
                assert_eq!(third.held.check_lost(), Some(LostReason::NodeDeleted));
            }
            // A release that was under way may still delete the node, which does not exist.
            assert!(scene.deleted() <= 1);
        }
    }

    struct NoOwner;

    impl NodeOwner for NoOwner {
        fn deletion_sent(&self, _: u64, _: &str) {}
        fn gone(&self, _: u64, _: &str, _: Gone<'_>) {}
        fn next_waiter(&self, _: u64, _: &str) -> Option<Arc<str>> {
            None
        }
    }

    /// The attempts of the client that wait behind the node are notified by the session.
    // Shows: node-deleted-by-hand
    #[tokio::test]
    async fn lost_holds_missing_node_is_forgotten() {
        let server = Server::start().unwrap();
        let mut scene = Scene::new(&server).await;
        let (_writers, writer) = scene.writers();
        let owner = std::sync::Weak::<NoOwner>::new();
        let path = writer.directory().child(&writer.node());
        scene.session.nodes.add(path, owner);
        writer.held.handle_event(HoldEvent::LeaseExpired {
            until: scene.session.lease().kept_until(),
        });
        writer.held.node_deleted(writer.node());
        assert_eq!(*scene.session.nodes.count().borrow(), 0);
        drop(writer);
        assert_eq!(scene.deleted(), 0, "the node does not exist");
    }

    /// Its lease ends while it is downgraded, which is about to find that out.
    #[tokio::test]
    async fn ended_writer_takes_no_node_out() {
        let server = Server::start().unwrap();
        let mut scene = Scene::new(&server).await;
        let (writers, writer) = scene.writers();
        let mut told = arrive_told(&writers, &scene.cleanup);
        writer.held.release(None);
        let next = told.try_recv().unwrap().unwrap();
        writer.held.take_out();
        assert!(writers.lock().room.has_node(), "the node is the next one's");
        drop(next);
        assert_eq!(scene.deleted(), 1, "a node without an owner");
        for _ in 0..2_000 {
            scene.renew();
            let (_writers, writer) = scene.writers();
            let held = &writer.held;
            at_once(|| held.set_lease(Duration::ZERO), || held.take_out());
            drop(writer);
            assert_eq!(scene.deleted(), 1, "a node without an owner");
        }
    }

    /// The lease of one ends while it is released: two threads end it, and the node stays the
    /// other's.
    // Shows: shared-read-node
    #[tokio::test]
    async fn reader_ended_twice_leaves_once() {
        let server = Server::start().unwrap();
        let mut scene = Scene::new(&server).await;
        for _ in 0..2_000 {
            scene.renew();
            let (readers, reader) = scene.opened(UNBOUNDED);
            let short = join(&readers).unwrap();
            readers.close_node();
            let held = &short.held;
            at_once(|| held.set_lease(Duration::ZERO), || held.release(None));
            assert_eq!(scene.deleted(), 0, "the node of another reader");
            drop(reader);
            assert_eq!(scene.deleted(), 1);
        }
    }

    /// The bounds hold for readers that come at once, and a time beyond all clocks bounds no less.
    #[tokio::test]
    async fn joining_readers_are_bounded() {
        let server = Server::start().unwrap();
        let mut scene = Scene::new(&server).await;
        for _ in 0..500 {
            scene.renew();
            let (readers, reader) = scene.opened(HandOff {
                max: 2,
                time: Duration::MAX,
            });
            let all = Barrier::new(3);
            let joined: Vec<_> = std::thread::scope(|threads| {
                let join = || {
                    all.wait();
                    join(&readers)
                };
                let threads: Vec<_> = (0..3).map(|_| threads.spawn(join)).collect();
                threads
                    .into_iter()
                    .filter_map(|thread| thread.join().unwrap())
                    .collect()
            });
            assert_eq!(joined.len(), 1);
            for reader in joined.into_iter().chain([reader]) {
                drop(reader);
            }
            assert_eq!(scene.deleted(), 1);
        }
    }

    /// A reader that holds the lock afterwards is notified, however the threads interleave.
    // Shows: shared-read-node
    #[tokio::test]
    async fn reader_joining_at_end_is_notified() {
        let server = Server::start().unwrap();
        let mut scene = Scene::new(&server).await;
        for _ in 0..500 {
            scene.renew();
            let (readers, reader) = scene.opened(UNBOUNDED);
            let held = &reader.held;
            let joined = at_once(|| held.node_deleted(held.name()), || join(&readers));
            assert_eq!(held.check_lost(), Some(LostReason::NodeDeleted));
            assert!(!readers.lock().room.has_node() && join(&readers).is_none());
            if let Some(joined) = joined {
                assert_eq!(joined.held.check_lost(), Some(LostReason::NodeDeleted));
            }
            assert!(!scene.session.holds.any(), "a hold that was not told");
            drop(reader);
            assert_eq!(scene.deleted(), 0, "the node is gone");
        }
    }

    /// Two readers were lost by the clock, and have their node until they are released, when the
    /// servers say that it does not exist.
    // Shows: node-deleted-by-hand
    #[tokio::test]
    async fn missing_node_reaches_every_reader_once() {
        let server = Server::start().unwrap();
        let scene = Scene::new(&server).await;
        for a_third_reads in [false, true] {
            let (readers, first) = scene.opened(UNBOUNDED);
            let second = join(&readers).unwrap();
            let third = a_third_reads.then(|| join(&readers).unwrap());
            for lost in [&first, &second] {
                lost.held
                    .handle_event(HoldEvent::Ended(LostReason::GivenUp));
            }
            first.held.node_deleted(first.held.name());
            let reasons = [&first, &second].map(|reader| reader.held.check_lost());
            assert_eq!(reasons, [Some(LostReason::GivenUp); 2]);
            if let Some(third) = third {
                assert_eq!(third.held.check_lost(), Some(LostReason::NodeDeleted));
            }
        }
    }
}
