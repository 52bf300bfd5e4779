//! The state that the callers of one client share at one path: the nodes that callers hold one
//! after the other or together, and the callers that wait for a node. Path locks and the layers
//! above use this file, which never sends a request.
//!
//! [`PathState`] decides who gets a node, under a mutex that is locked for one decision at a time
//! and is never held across an await or a call to code outside the library. Callers, holds and the
//! [task](crate::engine::attempts::shared_attempt) of the waiting callers report events to the
//! state. After unlocking the state, whichever reported the event acts on the decision: it sends a
//! grant, registers a hold with its session, wakes the task, or submits the node for deletion.
//!
//! ```text
//!   arrive   a reader, and a node is open --> `join_or`: another hold of that node
//!            otherwise                    --> the caller waits; the task starts an attempt if
//!                                             there is no open node and no attempt
//!   granted  the attempt has a node --> the writer that has waited longest, or all readers
//!            no caller waits        --> the node is released
//!   pass_on  a hold is released     --> the writer that has waited longest gets the node
//!            other readers have it  --> the node stays
//!            otherwise              --> the node is deleted, then `hold_ended`: the callers that
//!                                       wait may have another attempt
//! ```
//!
//! Two rules apply to these steps:
//! - A hold is added to the state before its session or its caller learns of it, so that each event
//!   of the hold finds the hold there. A hold for the next holder of a node is registered before
//!   the session forgets the previous hold. Otherwise the session would have no lock in between,
//!   and would send no heartbeat.
//! - A caller may leave while its grant is on the way. The channel returns the grant, which is then
//!   released like any other: [`PathNode::pass_on`] passes its node to the next caller.

use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, oneshot};

use crate::engine::granted::Grant;
use crate::engine::held::{Held, LocalOwner, PathNode};
use crate::engine::pending::ProgressReceiver;
use crate::error::TryLockError;
use crate::protocol::hold::{Deletion, HoldEvent, HoldState};
use crate::protocol::late::Waiting;
use crate::protocol::node_name::Kind;
use crate::protocol::numbers::{HoldNumber, NodeNumber, SessionNumber};
use crate::protocol::path_state::{ByKind, HandOff, PassOn, PathState};
use crate::protocol::waiters::Arrival;
use crate::session::core::GuardChanges;
use crate::session::leftovers::cleanup::{Cleanup, Ticket};
use crate::session::live::zk_session::Session;
use crate::session::reports::observer::{self, CallNumber, How};
use crate::session::threads::clock;
use crate::session::threads::mutex::Mutex;
use crate::values::path::LockPath;

/// The state that the callers of one client share at one path.
pub(crate) struct SharedPath {
    pub(crate) state: Mutex<SharedState>,
    /// Wakes the task for the callers of each kind.
    pub(crate) wake: ByKind<Notify>,
    guard_changes: GuardChanges,
}

pub(crate) struct SharedState {
    pub(crate) path: PathState<Waiter, Instant, LocalOwner>,
    pub(crate) attempt_records: ByKind<AttemptRecord>,
}

/// The attempts for the callers of one kind that wait together, the grants to callers of this kind,
/// and the task that works for them.
#[derive(Default)]
pub(crate) struct AttemptRecord {
    /// The progress of the attempt under way.
    pub(crate) progress: Option<ProgressReceiver>,
    /// The ticket of an attempt that its callers have abandoned. The departure of the last caller
    /// sets the ticket ([`SharedPath::remove_caller`]). The task takes it with [`end`](Self::end),
    /// and drops it once the attempt is cancelled and its grant, if any, is released.
    abandoned: Option<Ticket>,
    /// The two numbers of the last fencing token.
    token: (i64, u64),
    /// The number of grants of the lock. A grant that is lost while its node is open, or that no
    /// caller receives, is subtracted again.
    grants: u64,
    /// The number of the session in which the lock was granted last.
    granted_in: SessionNumber,
    /// The time until which the task sleeps; `None` if there is no task.
    pub(crate) task_sleeps_until: Option<Instant>,
}

/// The values to drop when an attempt ends: its progress, and the ticket for which a flush waits if
/// all callers have left the attempt.
#[must_use]
pub(crate) struct EndedAttempt {
    _progress: Option<ProgressReceiver>,
    _abandoned: Option<Ticket>,
}

/// A node of this client, as its holds know it.
struct NodeEntry {
    path: Arc<SharedPath>,
    number: NodeNumber,
    /// The kind of its grant.
    kind: Kind,
    /// Whether the servers have reported that the node does not exist. The flag is kept outside the
    /// state of the path, because every query of a guard reads it.
    is_missing: AtomicBool,
}

/// A caller that waits with others.
pub(crate) struct Waiter {
    pub(crate) reply: oneshot::Sender<Result<Grant, TryLockError>>,
    pub(crate) lease: Option<Duration>,
    pub(crate) location: &'static Location<'static>,
    pub(crate) began: Instant,
    /// The timeout that the caller passed.
    pub(crate) asked: Duration,
    /// How many of the counted grants were over when this caller arrived.
    pub(crate) grants: u64,
    /// The call, if it is observed.
    pub(crate) call: Option<CallNumber>,
}

/// A lock that the servers have granted through a node.
pub(crate) struct NewLock<'a> {
    pub(crate) session: &'a Arc<Session>,
    pub(crate) cleanup: &'a Cleanup,
    /// The directory of the node.
    pub(crate) directory: LockPath,
    pub(crate) number: HoldNumber,
    pub(crate) state: HoldState,
    /// The two numbers of the fencing token.
    pub(crate) token: (i64, u64),
    pub(crate) how: How,
    /// The source location of the call that acquires the lock.
    pub(crate) location: &'static Location<'static>,
}

impl SharedPath {
    pub(crate) fn new(hand_off: HandOff, guard_changes: GuardChanges) -> Arc<Self> {
        let state = SharedState {
            path: PathState::new(hand_off),
            attempt_records: ByKind::default(),
        };
        Arc::new(Self {
            state: Mutex::new(state),
            wake: ByKind::default(),
            guard_changes,
        })
    }

    /// Returns the holds of this client at the path, in the order of [`PathState::holders`].
    pub(crate) fn holders(&self) -> Vec<LocalOwner> {
        self.state.lock().path.holders().cloned().collect()
    }

    /// Creates the grant of a lock through a node. The node is not open yet. From now on the hold
    /// counts as a local holder, even before the caller polls its future, and the session notifies
    /// the hold of a loss.
    pub(crate) fn grant(self: &Arc<Self>, lock: NewLock<'_>) -> Grant {
        let NewLock {
            session,
            cleanup,
            directory,
            number,
            state,
            token,
            how,
            location,
        } = lock;
        let kind = state.kind();
        let entry = Arc::new(NodeEntry {
            path: Arc::clone(self),
            number: NodeNumber::of_first_hold(number),
            kind,
            is_missing: AtomicBool::new(false),
        });
        let held = Held::new(session, cleanup, directory, number, state, entry);
        let holder = LocalOwner::new(&held, location);
        self.state
            .lock()
            .path
            .add(number, kind, holder, clock::now());
        // The result is not needed: an attempt whose session has ended drops its grant, and
        // continues in the next session.
        held.register(session);
        Grant::new(held, session, token, how)
    }

    /// Lets a reader share the open node, if there is one. If not, runs `otherwise`. Either happens
    /// under the mutex of the state, under which a release decides whether to delete the node.
    fn join_or<T>(
        &self,
        location: &'static Location<'static>,
        otherwise: impl FnOnce(&mut SharedState) -> T,
    ) -> Result<Grant, T> {
        loop {
            // The session is declared before the guard of the mutex, so that it is dropped after
            // the mutex is unlocked: the drop of the last reference closes the session.
            let session;
            let mut state = self.state.lock();
            let holder = state.path.open_hold(Kind::Shared);
            // No reader joins a node that is known to be gone, even before the node's holds are
            // notified.
            let holder = holder.filter(|holder| !holder.held.path_node.is_missing());
            session = holder.and_then(|holder| holder.held.session());
            let healthy = session.as_ref().is_some_and(|session| session.is_healthy());
            let joined = state.path.join(clock::now(), healthy);
            let (Some((node, other)), Some(session)) = (joined, &session) else {
                return Err(otherwise(&mut state));
            };
            // The reader was counted against the bounds by `join`, so it enters the node in the
            // same critical section.
            let number = other.held.next_number();
            let held = state.add_hold(node, &other.held, session, number, location);
            let record = state.attempt_records.of_mut(Kind::Shared);
            // The last grant of this kind is that of the open node, so its token is that of all
            // readers of the node.
            let token = record.token;
            record.count_grant(session, token);
            drop(state);
            held.register(session);
            let grant = Grant::new(held, session, token, How::Shared);
            // The session, or the node, may have ended before the hold was registered. Then the
            // drop of the grant ends the hold, and the next iteration finds no node to join.
            if !grant.held.is_lost_or_released() {
                return Ok(grant);
            }
        }
    }

    /// Returns a grant of the open node for a reader that does not wait for others; `None` if there
    /// is no open node.
    pub(crate) fn join(&self, location: &'static Location<'static>) -> Option<Grant> {
        self.join_or(location, |_| ()).ok()
    }

    /// Returns whether a writer of this client blocks a writer that does not wait for others. A
    /// lost hold does not block, even if its loss is not recorded yet. A grant on its way to the
    /// last caller that waited does not block either: the caller may have left, so the servers are
    /// asked (docs/protocol.md#live-contender).
    pub(crate) fn blocks_writer(&self) -> bool {
        let (holder, is_waited_for) = {
            let state = self.state.lock();
            let holder = state.path.open_hold(Kind::Exclusive).cloned();
            (
                holder,
                state.path.waiters.of(Kind::Exclusive).is_waited_for(),
            )
        };
        // A holder that has just released the lock counts too: its node may go to a caller that
        // waits, or is not deleted yet.
        holder.is_some_and(|holder| {
            (holder.held.is_received() || is_waited_for) && holder.held.check_lost().is_none()
        })
    }

    /// Returns whether this client has waiting callers that a call of this kind must not overtake.
    pub(crate) fn has_waiters_ahead(&self, kind: Kind) -> bool {
        let state = self.state.lock();
        let waits = |kind| state.path.waiters.of(kind).is_waited_for();
        waits(Kind::Exclusive) || kind == Kind::Exclusive && waits(Kind::Shared)
    }

    /// Handles a caller that may wait. Returns `Ok` if the caller is a reader that shares the open
    /// node. Returns `Err` if the caller waits, with the number of this client's callers ahead of
    /// it, or `None` if an attempt must be started for it.
    pub(crate) fn arrive(
        &self,
        kind: Kind,
        at: Arrival,
        deadline: Option<Instant>,
        waiter: Waiter,
    ) -> Result<Grant, Option<usize>> {
        let location = waiter.location;
        let wait = |state: &mut SharedState| {
            // While a hold has the open node, the grant of the node is not over, so it counts as
            // one that has kept this caller waiting. If the node was released, but its deletion is
            // not on its way yet, its grant does not count.
            let is_granted = state.path.open_hold(kind).is_some();
            let grants = state.attempt_records.of_mut(kind).grants;
            let grants = grants.saturating_sub(u64::from(is_granted));
            let waiter = Waiter { grants, ..waiter };
            state.path.wait(kind, at, waiter, deadline);
            let waiters = state.path.waiters.of(kind);
            (!waiters.wants_attempt()).then(|| waiters.ahead_of_last())
        };
        match kind {
            Kind::Shared => self.join_or(location, wait),
            // The writer closes the node of the readers. Readers that wait until that node is
            // deleted may need an attempt from now on, so their task is woken.
            Kind::Exclusive => Err(self.decide(Kind::Shared, wait)),
        }
    }

    /// Opens the node of a grant that a caller got from the servers for itself, so that the node
    /// can be shared, or handed over on release. Does nothing if others have, or are about to have,
    /// an open node.
    pub(crate) fn open(&self, grant: &Grant) {
        let (held, kind) = (&grant.held, grant.kind());
        let mut state = self.state.lock();
        let node = NodeNumber::of_first_hold(held.number);
        // The node of a hold that has ended may be about to be deleted.
        if !held.is_lost_or_released() && state.path.open(node) {
            state
                .attempt_records
                .of_mut(kind)
                .count_grant(&grant.session, grant.token);
        }
    }

    /// Runs `decide` on the state, and wakes the task for the callers of this kind if an attempt is
    /// then wanted.
    fn decide<T>(&self, kind: Kind, decide: impl FnOnce(&mut SharedState) -> T) -> T {
        let (result, wakes) = {
            let mut state = self.state.lock();
            let result = decide(&mut state);
            (result, state.path.waiters.of(kind).wants_attempt())
        };
        if wakes {
            self.wake.of(kind).notify_one();
        }
        result
    }

    /// Handles the departure of a caller. If no caller waits for the attempt any more, the task
    /// cancels it, and releases its grant if there is one. A flush waits for that.
    pub(crate) fn remove_caller(&self, kind: Kind, at: Arrival, cleanup: &Cleanup) {
        let (waiter, is_abandoned) = {
            let mut state = self.state.lock();
            let waiters = state.path.waiters.of_mut(kind);
            let waiter = waiters.take(at);
            let is_abandoned = waiters.abandon_attempt();
            if is_abandoned {
                // The ticket has the number of the caller, so that a flush of this caller waits
                // until the task has cancelled the attempt.
                state.attempt_records.of_mut(kind).abandoned = Some(cleanup.ticket(at.number()));
            }
            (waiter, is_abandoned)
        };
        // The channel of the waiter is dropped after the mutex is unlocked, because the drop may
        // run code of the caller's executor (docs/protocol.md#no-lock-across-await).
        drop(waiter);
        if is_abandoned {
            self.wake.of(kind).notify_one();
        }
    }

    /// Passes the node of a granted attempt to the first waiting caller or, if the callers are
    /// readers, to all of them. If no caller waits, the node is released.
    pub(crate) fn granted(&self, kind: Kind, grant: Grant) {
        let (held, session) = (Arc::clone(&grant.held), Arc::clone(&grant.session));
        let (number, token) = (held.number, grant.token);
        // The clock is read before the mutex is locked, because handling a loss that is noticed
        // here locks the mutex, too.
        let is_lost = held.check_lost().is_some();
        // A grant that no caller takes is dropped at the end of this function, because its release
        // locks the mutex.
        let mut first = Some(grant);
        let served: Vec<_> = {
            let mut state = self.state.lock();
            if is_lost || held.is_lost_or_released() {
                // The grant ended before a caller had it. The task, which calls this method, starts
                // another attempt.
                return state.path.waiters.of_mut(kind).attempt_ends();
            }
            let waiters = state.path.waiters.of(kind);
            let location = waiters
                .first()
                .map_or(Location::caller(), |waiter| waiter.location);
            // Until now, the hold was recorded for the caller that was first when the attempt
            // began. That caller may have left since.
            let holder = LocalOwner::new(&held, location);
            let waiting = state.path.granted(kind, number, holder);
            let node = NodeNumber::of_first_hold(number);
            let grant = |waiter: Waiter| {
                // The first caller has the hold of the attempt. Each further reader has another
                // hold of the same node.
                let grant = first.take().unwrap_or_else(|| {
                    let number = held.next_number();
                    let other = state.add_hold(node, &held, &session, number, waiter.location);
                    Grant::new(other, &session, token, How::Shared)
                });
                (waiter, grant)
            };
            let served = waiting.into_iter().map(grant).collect();
            state
                .attempt_records
                .of_mut(kind)
                .count_grant(&session, token);
            served
        };
        // All holds are registered before a caller has the lock, because a hold that is lost at its
        // registration wakes no task. Besides, the first caller could otherwise release the lock
        // while the session has no hold of the node to check.
        for (_, other) in served.iter().skip(1) {
            other.held.register(&session);
        }
        // `returned` has the grants of callers that have left. The drop of such a grant releases
        // the node or, if the node is not shared, passes it on.
        let callers = served.len();
        let returned: Vec<_> = served
            .into_iter()
            .filter_map(|(waiter, grant)| waiter.send(grant).err())
            .collect();
        // A grant to readers is counted once for all of them. If a writer has left, the release of
        // its grant corrects the count.
        if kind == Kind::Shared && returned.len() == callers {
            let mut state = self.state.lock();
            state.attempt_records.of_mut(kind).discount_grant();
        }
    }
}

impl Waiter {
    /// Begins the lease of the grant, and sends the grant. Returns the grant if the caller has
    /// left.
    fn send(self, grant: Grant) -> Result<(), Grant> {
        // The lease is counted from the grant, so that the lease of a caller that is not polled
        // ends too (docs/protocol.md#lease-over).
        grant.held.begin_lease(self.lease);
        match self.reply.send(Ok(grant)) {
            Err(Ok(grant)) => Err(grant),
            // `Err(Err(_))` cannot occur: the channel returns what was sent, which is a grant.
            Ok(()) | Err(Err(_)) => Ok(()),
        }
    }
}

impl SharedState {
    /// Creates another hold of a node. The session does not know the hold yet.
    fn add_hold(
        &mut self,
        node: NodeNumber,
        of: &Held,
        session: &Arc<Session>,
        number: HoldNumber,
        location: &'static Location<'static>,
    ) -> Arc<Held> {
        let held = of.of_same_node(session, number);
        self.path
            .enter(node, number, LocalOwner::new(&held, location));
        held
    }

    /// Returns what the attempt under way waits for.
    pub(crate) fn waiting(&self, kind: Kind) -> Option<Waiting> {
        // The progress of an attempt that has ended stays until the task takes it.
        let progress = self.attempt_records.of(kind).progress.as_ref();
        progress
            .filter(|_| self.path.waiters.of(kind).is_under_way())
            .map(ProgressReceiver::waiting)
    }
}

impl AttemptRecord {
    /// Returns the number of grants that were not lost; 0 if the last grant was in a session other
    /// than the one with this number.
    pub(crate) fn grants_in(&self, session: Option<SessionNumber>) -> u64 {
        if session == Some(self.granted_in) {
            self.grants
        } else {
            0
        }
    }

    /// Records that the task no longer has an attempt. Returns what ends with the attempt, to be
    /// dropped outside the mutex, once the grant of the attempt, if any, has been passed on or
    /// released.
    pub(crate) fn end(&mut self) -> EndedAttempt {
        EndedAttempt {
            _progress: self.progress.take(),
            _abandoned: self.abandoned.take(),
        }
    }

    /// Takes back the count of a grant that was lost, or that no caller has received.
    fn discount_grant(&mut self) {
        self.grants = self.grants.saturating_sub(1);
    }

    /// Counts a grant with this token, before a caller has it.
    fn count_grant(&mut self, session: &Session, token: (i64, u64)) {
        self.token = token;
        self.grants += 1;
        self.granted_in = session.number;
    }
}

/// What happens to a node after one of its holds has left.
enum NodeAfter {
    /// The caller that has waited longest gets the node.
    Caller(Waiter, Grant),
    /// The other holds keep the node, or the node is already gone.
    Stays,
    Delete,
}

impl NodeEntry {
    /// Lets a hold leave the node. `deletion` is due unless another hold has, or gets, the node.
    fn after_release(
        &self,
        held: &Held,
        session: Option<&Arc<Session>>,
        deletion: &Deletion,
    ) -> NodeAfter {
        // The conditions on the hold and its session are checked here; `PathState::next_holder`
        // checks the other conditions of a hand-off (docs/protocol.md#hand-off).
        let healthy = session.filter(|session| {
            deletion.may_pass_on && session.is_healthy() && !held.is_revocation_requested()
        });
        let (number, now) = (held.number, clock::now());
        let mut state = self.path.state.lock();
        // The flag is read once, because another thread may set it at any moment without the mutex.
        // If it is set before `notify_missing` has taken the holds out of the state, `released`
        // below removes this hold, and `notify_missing` finds only the others.
        let is_missing = self.is_missing();
        let healthy = healthy.filter(|_| !is_missing);
        let is_open = state.path.waiters.of(self.kind).is_open(self.number);
        let next = state
            .path
            .released(self.number, number, now, healthy.is_some());
        let is_last = !matches!(next, PassOn::Stays);
        let is_untaken = self.kind == Kind::Exclusive && !held.is_received();
        if is_open && is_last && (is_untaken || held.is_lost()) {
            // The caller left before it received the grant, or has lost the lock. So a caller that
            // has arrived in the meantime must not take the grant for that of another contender.
            // The grant is subtracted when the last hold leaves the node, because only the callers
            // that arrive after that count the grant as over.
            state.attempt_records.of_mut(self.kind).discount_grant();
        }
        if is_missing {
            // There is nothing to delete, and no caller gets a node that does not exist.
            return NodeAfter::Stays;
        }
        match (next, healthy) {
            (PassOn::To(at, waiter), Some(session)) => {
                // The hold is added under the mutex, because a caller that arrives next must find
                // it. The token has the zxid of the node and the next value of the counter
                // (docs/protocol.md#fencing-token).
                let (number, location) = (HoldNumber::of_attempt(at.number()), waiter.location);
                let next = state.add_hold(self.number, held, session, number, location);
                let record = state.attempt_records.of_mut(self.kind);
                let token = (record.token.0, record.token.1 + 1);
                record.count_grant(session, token);
                let grant = Grant::new(next, session, token, How::Memory);
                NodeAfter::Caller(waiter, grant)
            }
            (PassOn::Stays, _) => NodeAfter::Stays,
            // `PathState` passes no node on unless the session is healthy, so `To` cannot occur.
            (PassOn::To(..) | PassOn::Delete, _) => NodeAfter::Delete,
        }
    }
}

impl PathNode for NodeEntry {
    fn pass_on(
        &self,
        held: &Arc<Held>,
        session: Option<&Arc<Session>>,
        deletion: Deletion,
    ) -> Option<Deletion> {
        let (mut held, mut deletion) = (Arc::clone(held), deletion);
        // The grant of a caller that has left, kept until the next hold is registered. The hold of
        // this grant is released by then, so the drop only removes that hold from the session.
        let mut taken_back: Option<Grant> = None;
        loop {
            let (waiter, grant) = match self.after_release(&held, session, &deletion) {
                NodeAfter::Caller(waiter, grant) => (waiter, grant),
                NodeAfter::Stays => return None,
                NodeAfter::Delete => return Some(deletion),
            };
            // The session knows the next hold before it forgets the last one, so that no heartbeat
            // misses the node. The grant is sent after that, because a hold that is lost at its
            // registration wakes no task.
            let is_registered = grant.held.register(&grant.session);
            drop(taken_back.take());
            if !is_registered {
                // The session ended before it knew the hold, and did not notify the callers of the
                // path. The next caller gets a lost grant, and asks again.
                self.hold_lost();
            }
            let node = grant.node();
            match waiter.send(grant) {
                Ok(()) => {
                    observer::handed_over(&held.directory, &node, &node);
                    return None;
                }
                // The caller has just left. If the grant were dropped here, this function would be
                // entered recursively, once for each caller that has left. Instead, the loop takes
                // the node back from the caller's hold, and passes it on.
                Err(grant) => {
                    held = Arc::clone(&grant.held);
                    deletion = held.take_back()?;
                    taken_back = Some(grant);
                }
            }
        }
    }

    fn hold_ended(&self, hold: HoldNumber) {
        self.path
            .decide(self.kind, |state| state.path.hold_ended(self.number, hold));
        // A grant that no caller has taken is a hold too, for which a drain waits.
        self.path.guard_changes.notify();
    }

    fn hold_lost(&self) {
        self.path.decide(self.kind, |state| {
            // A lost hold does not count as a contender in the errors of waiting callers
            // (docs/protocol.md#live-contender). If no hold is left in the node, the grant was
            // subtracted earlier.
            let is_open = state.path.waiters.of(self.kind).is_open(self.number);
            if is_open && state.path.open_hold(self.kind).is_some() {
                state.attempt_records.of_mut(self.kind).discount_grant();
            }
            state.path.hold_lost(self.number);
        });
        self.path.guard_changes.notify();
    }

    fn mark_missing(&self) {
        // Only a node of readers is marked, because a node of writers has one hold at a time.
        // There, a late report to an earlier hold must not end the current one, whose downgrade may
        // have replaced the node on the servers.
        if self.kind == Kind::Shared {
            self.is_missing.store(true, Ordering::Release);
        }
    }

    fn notify_missing(&self, hold: HoldNumber, node: &Arc<str>) {
        let holds = {
            let mut state = self.path.state.lock();
            let holds = state.path.node_missing(self.number, hold);
            if !holds.is_empty() {
                // The flag is set under the mutex under which readers join, so that no reader joins
                // a node whose holds were taken out.
                self.is_missing.store(true, Ordering::Release);
                if state.path.waiters.of(self.kind).is_open(self.number) {
                    state.attempt_records.of_mut(self.kind).discount_grant();
                }
            }
            holds
        };
        // The events are handled after the mutex is unlocked, because each of them locks it.
        for holder in holds {
            let node = Arc::clone(node);
            holder
                .held
                .handle_event(HoldEvent::SharedNodeDeleted { node });
        }
    }

    fn is_missing(&self) -> bool {
        self.is_missing.load(Ordering::Acquire)
    }

    fn reserve(&self, hold: HoldNumber) {
        self.path
            .decide(self.kind, |state| state.path.reserve(self.number, hold));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use zookeeper_client as zk;
    use zookeeper_test_server::Server;

    use super::*;
    use crate::engine::acquisition::Hold;
    use crate::engine::lock::lock_options::{Recipe, RequestedOptions};
    use crate::error::{Lost, LostReason, ReleaseError};
    use crate::protocol::local_queue::Gone;
    use crate::session::contents::nodes::NodeOwner;
    use crate::session::leftovers::cleanup::{self, CleanupQueue};
    use crate::session::live::zk_session::SessionOptions;

    const WRITERS: Kind = Kind::Exclusive;
    const READERS: Kind = Kind::Shared;

    fn path(hand_off: HandOff) -> Arc<SharedPath> {
        SharedPath::new(hand_off, GuardChanges::default())
    }

    fn begin_attempt(path: &SharedPath) {
        path.state
            .lock()
            .path
            .waiters
            .of_mut(WRITERS)
            .attempt_begins();
    }

    fn wants_attempt(path: &SharedPath) -> bool {
        path.state.lock().path.waiters.of(WRITERS).wants_attempt()
    }

    fn has_open_node(path: &SharedPath, kind: Kind) -> bool {
        path.state.lock().path.waiters.of(kind).has_open_node()
    }

    /// A path with a waiting caller, for which an attempt is about to begin.
    fn waited_for(cleanup: &Cleanup) -> (Arc<SharedPath>, Arrival) {
        let path = path(HandOff::NONE);
        let at = arrive(&path, cleanup);
        begin_attempt(&path);
        (path, at)
    }

    fn waiter() -> (Waiter, oneshot::Receiver<Result<Grant, TryLockError>>) {
        let (reply, receiver) = oneshot::channel();
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
            receiver,
        )
    }

    fn arrive(path: &SharedPath, cleanup: &Cleanup) -> Arrival {
        let at = Arrival::new(cleanup.number(1), false);
        assert!(path.arrive(WRITERS, at, None, waiter().0).is_err());
        at
    }

    /// Returns the receiver of the reply.
    fn arrive_with_receiver(
        path: &SharedPath,
        cleanup: &Cleanup,
    ) -> oneshot::Receiver<Result<Grant, TryLockError>> {
        let (waiter, receiver) = waiter();
        let at = Arrival::new(cleanup.number(1), false);
        assert!(path.arrive(WRITERS, at, None, waiter).is_err());
        receiver
    }

    /// Tests callers whose threads are paused between the drop of the receiver and the departure.
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
            let path = path(hand_off);
            let mut receivers: Vec<_> = (0..4)
                .map(|_| arrive_with_receiver(&path, &scene.cleanup))
                .collect();
            begin_attempt(&path);
            path.granted(WRITERS, scene.writer(&path));
            let holder = receivers.remove(0).try_recv().unwrap().unwrap();
            let mut last = another_waits.then(|| receivers.pop().unwrap());
            drop(receivers);
            drop(holder);
            if let Some(last) = &mut last {
                let holder = last.try_recv().unwrap().unwrap();
                assert_eq!((scene.deleted(), holder.held.check_lost()), (0, None));
                assert_eq!(
                    path.holders()
                        .iter()
                        .map(|owner| owner.held.number)
                        .collect::<Vec<_>>(),
                    [holder.held.number]
                );
                drop(holder);
            }
            assert_eq!(scene.deleted(), 1);
            assert!(!scene.session.holds.any() && !has_open_node(&path, WRITERS));
            assert!(path.holders().is_empty());
        }
    }

    /// Tests grants that wait for their callers to be polled, or whose callers have left.
    // Shows: live-contender
    #[tokio::test]
    async fn untaken_grants_block_no_try() {
        let server = Server::start().unwrap();
        let scene = Scene::new(&server).await;
        let (path, grants) = (path(HandOff::default()), |path: &SharedPath| {
            path.state.lock().attempt_records.of(WRITERS).grants
        });
        let mut receiver = arrive_with_receiver(&path, &scene.cleanup);
        begin_attempt(&path);
        path.granted(WRITERS, scene.writer(&path));
        assert!(!path.blocks_writer(), "a grant on its way");
        let holder = receiver.try_recv().unwrap().unwrap();
        holder.held.set_received();
        assert!(path.blocks_writer(), "a holder");
        // A hand-off that no caller receives does not count either.
        drop(arrive_with_receiver(&path, &scene.cleanup));
        drop(holder);
        assert_eq!(grants(&path), 1, "a hand-off to a caller that has left");
        let unpolled = arrive_with_receiver(&path, &scene.cleanup);
        begin_attempt(&path);
        path.granted(WRITERS, scene.writer(&path));
        assert_eq!(grants(&path), 2, "a grant on its way");
        let another = arrive_with_receiver(&path, &scene.cleanup);
        assert!(path.blocks_writer(), "another caller waits");
        drop(unpolled);
        assert_eq!(grants(&path), 2, "the grant of the caller that waited");
        drop(another);
        drop(arrive_with_receiver(&path, &scene.cleanup));
        begin_attempt(&path);
        path.granted(WRITERS, scene.writer(&path));
        assert_eq!(grants(&path), 1, "a grant to a caller that has left");
    }

    /// The thread that releases the lock is paused before the deletion of the node is on its way.
    // Shows: live-contender
    #[tokio::test]
    async fn released_nodes_count_as_no_grant() {
        let server = Server::start().unwrap();
        let scene = Scene::new(&server).await;
        for is_received in [false, true] {
            let (path, grant) = second_grant(&scene);
            if is_received {
                grant.held.set_received();
            }
            let deletion = grant.held.take_back().unwrap();
            let deletion =
                grant
                    .held
                    .path_node
                    .pass_on(&grant.held, Some(&scene.session), deletion);
            assert!(deletion.is_some() && has_open_node(&path, WRITERS));
            let _waits = arrive_with_receiver(&path, &scene.cleanup);
            assert_eq!(grants_since_arrival(&path), [0], "{is_received}");
        }
    }

    /// A caller arrives while the tasks that wait for a loss are woken.
    // Shows: live-contender
    #[tokio::test]
    async fn lost_grants_count_as_no_grant() {
        let server = Server::start().unwrap();
        let scene = Scene::new(&server).await;
        let (path, grant) = second_grant(&scene);
        grant.held.set_received();
        let _waits = arrive_with_receiver(&path, &scene.cleanup);
        let arrives = Arc::new(OnWake(Box::new({
            let (path, cleanup) = (Arc::clone(&path), scene.cleanup.clone());
            move || {
                let (waiter, _receiver) = waiter();
                let at = Arrival::new(cleanup.number(1), false);
                assert!(path.arrive(WRITERS, at, None, waiter).is_err());
            }
        })));
        let arrives = std::task::Waker::from(arrives);
        let mut lost = std::pin::pin!(grant.held.when_lost());
        let mut context = std::task::Context::from_waker(&arrives);
        assert!(lost.as_mut().poll(&mut context).is_pending());
        // The call reports the loss by its result too.
        let _ = grant.held.set_lease(Duration::ZERO);
        assert_eq!(grant.held.check_lost(), Some(LostReason::LeaseOver));
        assert_eq!(grants_since_arrival(&path), [0, 0]);
    }

    /// A waker that runs this closure.
    struct OnWake(Box<dyn Fn() + Send + Sync>);

    impl std::task::Wake for OnWake {
        fn wake(self: Arc<Self>) {
            (self.0)();
        }
    }

    /// Returns a path, and its second grant, whose caller has not received it yet. The first grant
    /// is over.
    fn second_grant(scene: &Scene) -> (Arc<SharedPath>, Grant) {
        let path = path(HandOff::NONE);
        let grant = || {
            let mut receiver = arrive_with_receiver(&path, &scene.cleanup);
            begin_attempt(&path);
            path.granted(WRITERS, scene.writer(&path));
            receiver.try_recv().unwrap().unwrap()
        };
        let first = grant();
        first.held.set_received();
        drop(first);
        let second = grant();
        (path, second)
    }

    /// Removes the waiting callers, and returns how many grants each of them has seen since its
    /// arrival.
    fn grants_since_arrival(path: &SharedPath) -> Vec<i128> {
        let mut state = path.state.lock();
        let grants = i128::from(state.attempt_records.of(WRITERS).grants);
        let waiters = state.path.waiters.of_mut(WRITERS).take_all();
        let seen = |waiter: Waiter| grants - i128::from(waiter.grants);
        waiters.into_iter().map(seen).collect()
    }

    /// One release is submitted before the end of the client, and one after it.
    #[tokio::test]
    async fn releases_end_with_their_client() {
        let server = Server::start().unwrap();
        let scene = Scene::new(&server).await;
        let client = crate::Client::connect(&server.connect_string())
            .await
            .unwrap();
        let asked = RequestedOptions::default();
        let path_lock = client.path_lock("/lock", Recipe::Mutex, &asked).unwrap();
        let [before, after] = [(); 2].map(|()| {
            let grant = scene.writer(&path(HandOff::NONE));
            Hold::new(Arc::clone(&path_lock), grant)
        });
        let before = before.release();
        let (client_ends, client_ended) = oneshot::channel();
        drop(client_ends);
        test_support::within("the cleanup", cleanup::run(scene.queue, client_ended)).await;
        for release in [before, after.release()] {
            let released = tokio_test::task::spawn(release).poll();
            let std::task::Poll::Ready(Err(error)) = released else {
                panic!("{released:?}");
            };
            let is_closed = |lost: &Lost| lost.reason() == LostReason::Closed;
            assert!(
                matches!(&error, ReleaseError::Lost(lost) if is_closed(lost)),
                "{error}"
            );
        }
    }

    /// Ends a hold.
    type End = fn(&Arc<Held>);

    /// The grant is lost while the task is paused before it takes the result.
    #[tokio::test]
    async fn grant_lost_early_reaches_no_caller() {
        let server = Server::start().unwrap();
        let mut scene = Scene::new(&server).await;
        let ends: [(End, usize); 3] = [
            (|held| held.node_deleted(held.name()), 0),
            (|held| held.release(None), 1),
            (
                |held| {
                    held.handle_event(HoldEvent::Ended(LostReason::GivenUp));
                },
                1,
            ),
        ];
        for (end, deletions) in ends {
            let path = path(HandOff::NONE);
            let mut receiver = arrive_with_receiver(&path, &scene.cleanup);
            begin_attempt(&path);
            let over = scene.writer(&path);
            end(&over.held);
            path.granted(WRITERS, over);
            assert_eq!(
                receiver.try_recv().err(),
                Some(oneshot::error::TryRecvError::Empty)
            );
            assert!(wants_attempt(&path), "no other attempt begins");
            assert_eq!(scene.deleted(), deletions);
            assert!(path.holders().is_empty());
        }
    }

    /// The task was paused between its decision to start the attempt and the end of the attempt,
    /// which no caller waits for any more.
    #[test]
    fn flush_waits_for_abandoned_attempt() {
        for another_comes in [false, true] {
            let (cleanup, _queue) = Cleanup::new();
            let (path, at) = waited_for(&cleanup);
            path.remove_caller(WRITERS, at, &cleanup);
            if another_comes {
                arrive(&path, &cleanup);
            }
            // A caller that comes gets another attempt.
            assert_eq!(wants_attempt(&path), another_comes);
            assert!(!path.state.lock().path.waiters.of(WRITERS).is_under_way());
            assert_eq!(cleanup.pending().borrow().count(), 1);
            let ended = path.state.lock().attempt_records.of_mut(WRITERS).end();
            drop(ended);
            assert_eq!(cleanup.pending().borrow().count(), 0);
        }
    }

    const UNBOUNDED: HandOff = HandOff {
        max: u32::MAX,
        time: Duration::MAX,
    };

    /// Opens the node of the grant. Returns whether it is open.
    fn open(path: &SharedPath, grant: &Grant) -> bool {
        path.open(grant);
        let node = NodeNumber::of_first_hold(grant.held.number);
        path.state
            .lock()
            .path
            .waiters
            .of(grant.kind())
            .is_open(node)
    }

    /// Lets another reader share the open node, if there is one.
    fn join(readers: &SharedPath) -> Option<Grant> {
        readers.join(Location::caller())
    }

    /// Closes the node of the readers: a writer of the same client waits, and leaves.
    fn close(readers: &SharedPath, cleanup: &Cleanup) {
        let at = arrive(readers, cleanup);
        readers.remove_caller(WRITERS, at, cleanup);
    }

    /// Runs both closures at the same time, in two threads.
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
            let session = Session::new(SessionNumber::FIRST, handle, SessionOptions::default());
            let (cleanup, queue) = Cleanup::new();
            let scene = Self {
                session,
                cleanup,
                queue,
            };
            scene.renew();
            scene
        }

        /// Renews the lease. Nothing else renews it, so a long test has to call this method again.
        fn renew(&self) {
            self.session.lease.renewed(clock::now());
        }

        fn reader(&self, path: &Arc<SharedPath>) -> Grant {
            self.grant(path, "x-__READ__0000000000", READERS)
        }

        fn writer(&self, path: &Arc<SharedPath>) -> Grant {
            self.grant(path, "x-lock-0000000000", WRITERS)
        }

        fn grant(&self, path: &Arc<SharedPath>, node: &str, kind: Kind) -> Grant {
            path.grant(NewLock {
                session: &self.session,
                cleanup: &self.cleanup,
                directory: LockPath::parse("", "/lock").unwrap(),
                number: HoldNumber::of_attempt(self.cleanup.number(1)),
                state: HoldState::new(node.into(), kind),
                token: (1, 0),
                how: How::default(),
                location: Location::caller(),
            })
        }

        /// Returns a path with a writer that has its open node.
        fn writers(&self) -> (Arc<SharedPath>, Grant) {
            let path = path(UNBOUNDED);
            let writer = self.writer(&path);
            assert!(open(&path, &writer));
            (path, writer)
        }

        /// Returns a path with the reader who has opened its node.
        fn opened(&self, hand_off: HandOff) -> (Arc<SharedPath>, Grant) {
            let path = path(hand_off);
            let reader = self.reader(&path);
            assert!(open(&path, &reader));
            (path, reader)
        }

        /// Returns an open node of a reader, as its holds know it.
        fn marked_later(&self) -> (Arc<SharedPath>, Arc<NodeEntry>, Arc<Held>) {
            let (path, number) = (
                path(UNBOUNDED),
                HoldNumber::of_attempt(self.cleanup.number(1)),
            );
            let entry = Arc::new(NodeEntry {
                path: Arc::clone(&path),
                number: NodeNumber::of_first_hold(number),
                kind: READERS,
                is_missing: AtomicBool::new(false),
            });
            let held = Held::new(
                &self.session,
                &self.cleanup,
                LockPath::parse("", "/lock").unwrap(),
                number,
                HoldState::new("x-__READ__0000000000".into(), READERS),
                Arc::<NodeEntry>::clone(&entry),
            );
            let holder = LocalOwner::new(&held, Location::caller());
            let node = path
                .state
                .lock()
                .path
                .add(number, READERS, holder, clock::now());
            held.register(&self.session);
            assert!(path.state.lock().path.open(node));
            (path, entry, held)
        }

        /// Returns how many nodes have been left to cleanup.
        fn deleted(&mut self) -> usize {
            std::iter::from_fn(|| self.queue.try_recv().ok()).count()
        }
    }

    /// The hold of the reader ended while its task was paused between the grant and the opening of
    /// the node.
    // Shows: shared-read-node
    #[tokio::test]
    async fn ended_reader_is_not_joined() {
        let server = Server::start().unwrap();
        let mut scene = Scene::new(&server).await;
        let readers = path(UNBOUNDED);
        let reader = scene.reader(&readers);
        reader.held.release(None);
        assert!(!open(&readers, &reader));
        assert!(join(&readers).is_none(), "its node is on its way out");
        assert_eq!(scene.deleted(), 1);
        // Another reader opens its node.
        let reader = scene.reader(&readers);
        assert!(open(&readers, &reader));
        let joined = join(&readers).unwrap();
        close(&readers, &scene.cleanup);
        drop(reader);
        assert_eq!(scene.deleted(), 0, "another reader is inside");
        drop(joined);
        assert_eq!(scene.deleted(), 1);
    }

    /// Readers join neither while the session is in doubt nor while a write of unknown outcome may
    /// still be committed.
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
        // The lease of this session was never renewed.
        scene.session = Session::new(
            SessionNumber::FIRST.next(),
            handle,
            SessionOptions::default(),
        );
        let reader = scene.reader(&readers);
        assert!(open(&readers, &reader));
        assert!(join(&readers).is_none(), "the session is in doubt");
    }

    /// The task of a try, which asked the servers by itself, was paused between its grant and the
    /// opening of its node.
    // Shows: shared-read-node
    #[tokio::test]
    async fn bounds_count_from_the_grant() {
        let time = Duration::from_millis(200);
        let server = Server::start().unwrap();
        let scene = Scene::new(&server).await;
        let readers = path(HandOff { max: 9, time });
        let reader = scene.reader(&readers);
        // The duration is under test.
        tokio::time::sleep(time).await;
        assert!(open(&readers, &reader));
        assert!(join(&readers).is_none());
    }

    /// The answer that the node is missing comes after the first hold has passed the node on, and
    /// while the second hold passes it on, too.
    // Shows: node-deleted-by-hand
    #[tokio::test]
    async fn missing_node_reaches_later_holders() {
        let server = Server::start().unwrap();
        let mut scene = Scene::new(&server).await;
        for _ in 0..2_000 {
            scene.renew();
            let (writers, first) = scene.writers();
            let next = || arrive_with_receiver(&writers, &scene.cleanup);
            let (mut second, mut third) = (next(), next());
            first.held.release(None);
            let second = second.try_recv().unwrap().unwrap();
            let held = &first.held;
            at_once(
                || held.node_deleted(held.name()),
                || second.held.release(None),
            );
            assert!(!has_open_node(&writers, WRITERS));
            if let Ok(granted) = third.try_recv() {
                let third = granted.unwrap();
                assert_eq!(third.held.check_lost(), Some(LostReason::NodeDeleted));
            }
            // A release that was under way may still leave the node to cleanup, although the node
            // is gone.
            assert!(scene.deleted() <= 1);
        }
    }

    struct NoOwner;

    impl NodeOwner for NoOwner {
        fn deletion_sent(&self, _: SessionNumber, _: &str) {}
        fn gone(&self, _: SessionNumber, _: &str, _: Gone<'_>) {}
        fn next_waiter(&self, _: SessionNumber, _: &str) -> Option<Arc<str>> {
            None
        }
    }

    /// A lost hold, too, makes the session forget the node, so that the attempts of this client
    /// that wait behind the node are notified.
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
            until: scene.session.lease.kept_until(),
        });
        writer.held.node_deleted(writer.node());
        assert_eq!(*scene.session.nodes.count().borrow(), 0);
        drop(writer);
        assert_eq!(scene.deleted(), 0, "the node does not exist");
    }

    /// The lease of the writer ends during its downgrade, which reserves the node before it notices
    /// the end.
    #[tokio::test]
    async fn ended_writer_reserves_no_node() {
        let server = Server::start().unwrap();
        let mut scene = Scene::new(&server).await;
        let (writers, writer) = scene.writers();
        let mut receiver = arrive_with_receiver(&writers, &scene.cleanup);
        writer.held.release(None);
        let next = receiver.try_recv().unwrap().unwrap();
        writer.held.reserve();
        assert!(
            has_open_node(&writers, WRITERS),
            "the node is the next one's"
        );
        drop(next);
        assert_eq!(scene.deleted(), 1, "a node without an owner");
        for _ in 0..2_000 {
            scene.renew();
            let (_writers, writer) = scene.writers();
            let held = &writer.held;
            at_once(|| held.set_lease(Duration::ZERO), || held.reserve());
            drop(writer);
            assert_eq!(scene.deleted(), 1, "a node without an owner");
        }
    }

    /// The lease of one reader ends during its release: two threads end the hold, and the other
    /// reader keeps the node.
    // Shows: shared-read-node
    #[tokio::test]
    async fn reader_ended_twice_leaves_once() {
        let server = Server::start().unwrap();
        let mut scene = Scene::new(&server).await;
        for _ in 0..2_000 {
            scene.renew();
            let (readers, reader) = scene.opened(UNBOUNDED);
            let short = join(&readers).unwrap();
            close(&readers, &scene.cleanup);
            let held = &short.held;
            at_once(|| held.set_lease(Duration::ZERO), || held.release(None));
            assert_eq!(scene.deleted(), 0, "the node of another reader");
            drop(reader);
            assert_eq!(scene.deleted(), 1);
        }
    }

    /// `max` also bounds readers that join at the same moment, even if the time is not bounded.
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

    /// A reader that joins while the node is reported as deleted is notified, however the threads
    /// interleave.
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
            assert!(!has_open_node(&readers, READERS) && join(&readers).is_none());
            if let Some(joined) = joined {
                assert_eq!(joined.held.check_lost(), Some(LostReason::NodeDeleted));
            }
            assert!(!scene.session.holds.any(), "a hold that was not notified");
            drop(reader);
            assert_eq!(scene.deleted(), 0, "the node is gone");
        }
    }

    /// The thread that learned of the end of the node was paused before it could notify the other
    /// hold.
    // Shows: shared-read-node
    #[tokio::test]
    async fn readers_lose_their_node_together() {
        let server = Server::start().unwrap();
        let scene = Scene::new(&server).await;
        let (readers, first) = scene.opened(UNBOUNDED);
        let second = join(&readers).unwrap();
        let held = &first.held;
        std::thread::scope(|threads| {
            // The thread notifies the other hold under the mutex.
            let paused = readers.state.lock();
            threads.spawn(|| held.node_deleted(held.name()));
            while !held.is_lost_or_released() {
                std::thread::yield_now();
            }
            assert!(
                second.held.path_node.is_missing(),
                "one knows, and another does not"
            );
            drop(paused);
        });
        assert_eq!(second.held.check_lost(), Some(LostReason::NodeDeleted));
    }

    /// Two readers have lost the lock, and keep their node until their holds are released. Before
    /// that, the servers report that the node does not exist.
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

    /// The read node of a downgraded hold is deleted by hand, before or after the late answer about
    /// its write node.
    // Shows: node-deleted-by-hand
    #[tokio::test]
    async fn downgraded_hold_notices_its_missing_node() {
        let server = Server::start().unwrap();
        let mut scene = Scene::new(&server).await;
        for is_late_first in [false, true] {
            scene.renew();
            let (writers, first) = scene.writers();
            let mut receiver = arrive_with_receiver(&writers, &scene.cleanup);
            let (old, earlier) = (first.node(), Arc::clone(&first.held));
            first.held.release(None);
            let next = receiver.try_recv().unwrap().unwrap();
            next.held.reserve();
            assert!(next.held.handle_event(HoldEvent::BeginConversion));
            let converted = HoldEvent::EndConversion {
                node: "y".into(),
                kind: READERS,
            };
            assert!(next.held.handle_event(converted));
            if is_late_first {
                earlier.node_deleted(Arc::clone(&old));
            }
            next.held.node_deleted("y".into());
            if !is_late_first {
                earlier.node_deleted(old);
            }
            assert_eq!(next.held.check_lost(), Some(LostReason::NodeDeleted));
            assert!(writers.holders().is_empty());
            drop(next);
            assert_eq!(scene.deleted(), 0, "the node is gone");
        }
    }

    /// The next holder's downgrade has deleted the write node; the answer to a request of the first
    /// holder about that node comes late.
    // Shows: node-deleted-by-hand
    #[tokio::test]
    async fn late_answer_spares_a_downgraded_hold() {
        for is_over in [false, true] {
            let server = Server::start().unwrap();
            let mut scene = Scene::new(&server).await;
            let (writers, first) = scene.writers();
            let mut receiver = arrive_with_receiver(&writers, &scene.cleanup);
            let old = first.node();
            let earlier = Arc::clone(&first.held);
            first.held.release(None);
            let next = receiver.try_recv().unwrap().unwrap();
            next.held.reserve();
            assert!(next.held.handle_event(HoldEvent::BeginConversion));
            let end = HoldEvent::EndConversion {
                node: "y".into(),
                kind: READERS,
            };
            if is_over {
                assert!(next.held.handle_event(end.clone()));
            }
            earlier.node_deleted(Arc::clone(&old));
            if !is_over {
                assert!(next.held.handle_event(end));
            }
            assert_eq!(writers.holders().len(), 1, "a local holder");
            assert_eq!(next.held.check_lost(), None, "its node exists");
            drop(next);
            assert_eq!(scene.deleted(), 1, "a node without an owner");
            assert!(writers.holders().is_empty());
        }
    }

    /// The thread that learned of the end of the node is paused before it notifies the hold.
    // Shows: shared-read-node
    #[tokio::test]
    async fn marked_node_is_not_joined() {
        let server = Server::start().unwrap();
        let scene = Scene::new(&server).await;
        let (readers, entry, held) = scene.marked_later();
        entry.mark_missing();
        assert!(join(&readers).is_none(), "joined a node that is gone");
        drop(held);
    }

    /// The thread that learned of the end of the node marks it while a reader is released.
    // Shows: shared-read-node
    #[tokio::test]
    async fn released_hold_leaves_a_marked_node() {
        let server = Server::start().unwrap();
        let scene = Scene::new(&server).await;
        let (readers, entry, held) = scene.marked_later();
        // The hold is released, but the effects are not carried out yet.
        let deletion = held.take_back().unwrap();
        entry.mark_missing();
        assert_eq!(entry.pass_on(&held, Some(&scene.session), deletion), None);
        let holders = readers.holders();
        assert!(holders.is_empty(), "held: {}", holders[0].holds());
    }

    /// However a hold ends, even during a conversion, its path no longer has it.
    #[tokio::test]
    async fn ended_hold_leaves_its_path() {
        use HoldEvent::{
            BeginConversion, ConversionLost, ConversionOver, EndConversion, Ended, GraceOver,
            LeaseExpired,
        };
        let server = Server::start().unwrap();
        let scene = Scene::new(&server).await;
        let reason = LostReason::SessionExpired;
        let until = scene.session.lease.kept_until();
        let end = |node: &str| EndConversion {
            node: node.into(),
            kind: READERS,
        };
        let gone = |node: &str| HoldEvent::NodeDeleted { node: node.into() };
        let over = HoldEvent::LeaseOver {
            now: clock::now().plus(Duration::from_secs(3600)),
        };
        let first = "x-lock-0000000000";
        for events in [
            vec![],
            vec![Ended(reason)],
            vec![LeaseExpired { until }],
            vec![LeaseExpired { until }, GraceOver],
            vec![LeaseExpired { until }, gone(first)],
            vec![gone(first)],
            vec![over.clone()],
            vec![BeginConversion, end("y")],
            vec![BeginConversion, end("y"), gone("y")],
            vec![
                BeginConversion,
                ConversionLost(reason),
                ConversionOver(reason),
            ],
            vec![BeginConversion, ConversionOver(reason)],
            vec![BeginConversion, over.clone(), ConversionOver(reason)],
            vec![BeginConversion, Ended(reason), ConversionOver(reason)],
            vec![BeginConversion, ConversionOver(reason), Ended(reason)],
        ] {
            for is_open in [false, true] {
                let path = path(UNBOUNDED);
                let writer = scene.writer(&path);
                if is_open {
                    assert!(open(&path, &writer));
                }
                let lease = clock::now().end_of(Duration::from_secs(60));
                let now = clock::now();
                writer
                    .held
                    .handle_event(HoldEvent::Extend { now, end: lease });
                assert_eq!(path.holders().len(), 1);
                for event in &events {
                    if *event == BeginConversion {
                        writer.held.reserve();
                    }
                    writer.held.handle_event(event.clone());
                }
                drop(writer);
                assert!(path.holders().is_empty(), "{events:?}");
                assert!(!has_open_node(&path, WRITERS), "{events:?}");
            }
        }
        // The conversion is over after the release.
        let path = path(UNBOUNDED);
        let writer = scene.writer(&path);
        let held = Arc::clone(&writer.held);
        held.handle_event(BeginConversion);
        drop(writer);
        held.handle_event(ConversionOver(LostReason::Closed));
        assert!(path.holders().is_empty());
    }
}
