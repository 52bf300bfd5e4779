//! One held lock, from its grant to the deletion of its node. The guards, the session and the
//! conversions of the lock share the hold. The shared state of a path and the layers above use this
//! file. This file sends no request.
//!
//! [`HoldState`] decides what an event changes. Each method of [`Held`] that may end the hold
//! builds an event, on which the state decides under a mutex. Then the same thread carries out the
//! effects, one after the other, in the order in which the state returns them
//! ([`hold`](crate::protocol::hold) explains that order):
//!
//! ```text
//!   a guard, the heartbeat, the clock, the end of the session, another hold of the same value
//!        | HoldEvent
//!        v
//!   Held::process_event --> HoldState::on, under the mutex of the state
//!        | Effects, without a mutex
//!        v
//!   Held::carry_out --> reports, the callers of this client (PathNode), the session, the tasks
//!                       that wait for the loss, the other holds of the value, cleanup
//! ```
//!
//! Several threads may run `process_event` at once, and one thread may re-enter it, because the
//! waker of a waiting task may drop the guard. Both are safe: no mutex is held while effects are
//! carried out, each effect belongs to one change of the state, and the session reads the state
//! when it registers the hold, so that the later of two threads registers the changes of both.
//! Panics of wakers are caught where the tasks wait ([`waker`](crate::session::threads::waker)), so
//! the loop over the effects always ends, and keeps the session alive until then. If the session
//! has already been dropped, the effects on it do nothing.
//!
//! Three steps are not in this diagram. [`Held::register`] and [`Held::take_back`] drop the
//! effects, because no caller has the hold then. Before the event that the node does not exist,
//! `process_event` marks the node, so that no other hold of the node reports the lock as held.
//!
//! A query of the guard reads the clock, since the thread that reports losses may be late. So the
//! methods `check_...` may change the state, and carry out the effects.

use std::panic::Location;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use tokio::sync::watch;

use crate::error::{Lost, LostReason};
use crate::protocol::hold::{
    Deletion, Effect, Effects, HoldEvent, HoldState, LockState, Registration,
};
use crate::protocol::lease::LeaseState;
use crate::protocol::local_queue::Gone;
use crate::protocol::node_name::Kind;
use crate::protocol::numbers::HoldNumber;
use crate::session::contents::holds::{Bond, Bound, SessionLock};
use crate::session::leftovers::cleanup::{
    Cleanup, CleanupItem, Orphan, ReleaseReply, Ticket, finish,
};
use crate::session::live::zk_session::Session;
use crate::session::reports::observer::{CallEnd, CallReport, EndReport};
use crate::session::threads::clock;
use crate::values::path::LockPath;

/// The node of a hold, as seen by this client's callers at its path, who share the node or get it
/// next (docs/protocol.md#hand-off). Each method carries out an effect of the hold, except three:
/// `mark_missing`, which comes before the event; `reserve`, which a conversion calls; and the query
/// `is_missing`.
pub(crate) trait PathNode: Send + Sync {
    /// Lets a hold leave the node. Returns the deletion that is left to do; `None` if another hold
    /// has the node, or the node is gone. Without a session, no other hold gets the node.
    fn pass_on(
        &self,
        held: &Arc<Held>,
        session: Option<&Arc<Session>>,
        deletion: Deletion,
    ) -> Option<Deletion>;

    /// Records that the hold with this number has ended. The deletion of the node, if the node
    /// needs one, is on its way, so another attempt may start.
    fn hold_ended(&self, hold: HoldNumber);

    /// Records that a hold of the node is lost: no further caller gets the node. If the hold has
    /// left its node, another attempt may start. A hold whose node is kept stays recorded.
    fn hold_lost(&self);

    /// Records that the node does not exist, which each hold that shares it finds out at its next
    /// query. The method locks no mutex, so that no query is delayed.
    fn mark_missing(&self);

    /// Records that the servers have reported that this node does not exist, and notifies all holds
    /// of the node.
    fn notify_missing(&self, hold: HoldNumber, node: &Arc<str>);

    /// Returns whether the servers have reported that the node does not exist.
    fn is_missing(&self) -> bool;

    /// Reserves the node for the hold with this number, for a conversion.
    fn reserve(&self, hold: HoldNumber);
}

/// A hold of this client, for error messages and `is_acquired_in_this_process`.
#[derive(Clone)]
pub(crate) struct LocalOwner {
    pub(crate) held: Arc<Held>,
    pub(crate) since: Instant,
    pub(crate) location: &'static Location<'static>,
}

impl LocalOwner {
    pub(crate) fn new(held: &Arc<Held>, location: &'static Location<'static>) -> Self {
        Self {
            held: Arc::clone(held),
            since: Instant::now(),
            location,
        }
    }
}

/// One held lock.
pub(crate) struct Held {
    pub(crate) directory: LockPath,
    /// Unique in the client.
    pub(crate) number: HoldNumber,
    /// The reference is weak, because the session has a reference to each of its holds. A grant
    /// keeps the session alive, so that its release can delete the node.
    session: Weak<Session>,
    cleanup: Cleanup,
    /// The state, under the mutex of its channel. Tasks that wait for the loss are its receivers.
    state: watch::Sender<HoldState>,
    /// Whether revocation has been requested; a conversion does not clear it.
    revocation_requested: AtomicBool,
    /// Whether the caller has received the lock. Until then the lock is granted, but may be lost
    /// before the caller sees it.
    received: AtomicBool,
    /// The node, as the callers of this client see it. The reference keeps their shared state
    /// alive, so that the end of the hold reaches them even if all handles were dropped.
    pub(super) path_node: Arc<dyn PathNode>,
    /// The other holds of the same value.
    bound: Bound<Self>,
    /// The reports of the hold, once a caller has it.
    pub(crate) report: EndReport,
}

impl Held {
    /// Returns a hold of a node. Add the hold to the state of its path before you
    /// [register](Self::register) it with the session.
    pub(crate) fn new(
        session: &Arc<Session>,
        cleanup: &Cleanup,
        directory: LockPath,
        number: HoldNumber,
        state: HoldState,
        path_node: Arc<dyn PathNode>,
    ) -> Arc<Self> {
        Arc::new(Self {
            directory,
            number,
            session: Arc::downgrade(session),
            cleanup: cleanup.clone(),
            state: watch::Sender::new(state),
            revocation_requested: AtomicBool::new(false),
            received: AtomicBool::new(false),
            path_node,
            bound: Bound::default(),
            report: EndReport::default(),
        })
    }

    /// Registers the hold with its session, before a caller has the lock. Returns `false` if the
    /// session has ended: then the hold is lost, the effects of the loss are dropped, and the
    /// callers at its path are not notified.
    pub(crate) fn register(self: &Arc<Self>, session: &Arc<Session>) -> bool {
        session.update_registration(self);
        // The end of the session is checked after the registration, because an end before the
        // registration did not notify this lock. The release of the grant takes the hold out of the
        // path.
        let ended = session.end_reason();
        if let Some(reason) = ended {
            let _ = self.change(HoldEvent::Ended(reason));
        }
        ended.is_none()
    }

    /// Returns another hold of the same node, which the session does not know yet.
    /// [Register](Self::register) the new hold before the session forgets this one.
    pub(crate) fn of_same_node(&self, session: &Arc<Session>, number: HoldNumber) -> Arc<Self> {
        Self::new(
            session,
            &self.cleanup,
            self.directory.clone(),
            number,
            // The new hold has no lease, because each caller sets its own.
            HoldState::new(self.name(), self.kind()),
            Arc::clone(&self.path_node),
        )
    }

    /// Returns a new number, greater than all earlier ones, for a hold of the same client.
    pub(crate) fn next_number(&self) -> HoldNumber {
        HoldNumber::of_attempt(self.cleanup.number(1))
    }

    /// From now on, the end of the hold is reported as part of this call.
    pub(crate) fn begin_report(&self, report: &Arc<CallReport>) {
        self.report.begin(report);
        // A loss before this moment had no report to end. If another thread notices the loss at the
        // same time, only the first of the two ends counts.
        if let Some(reason) = self.state.borrow().lost() {
            self.report.end(CallEnd::Lost(reason));
        }
    }

    /// Returns the session of the hold, unless the session was dropped.
    pub(crate) fn session(&self) -> Option<Arc<Session>> {
        self.session.upgrade()
    }

    /// Reserves the node for this hold, for a conversion.
    pub(crate) fn reserve(&self) {
        self.path_node.reserve(self.number);
    }

    /// Takes the node back from a hold whose caller has never received the lock. Returns the
    /// deletion of the node, unless the node is gone. The next [`release`](Self::release) notifies
    /// the session, and has no other effect.
    pub(crate) fn take_back(&self) -> Option<Deletion> {
        self.change(self.release_event()).into_deletion()
    }

    /// Binds these holds into one value: from now on, the loss of one is the loss of all
    /// (docs/protocol.md#one-value). Earlier bonds of these holds end.
    pub(crate) fn bind(all: &[&Arc<Self>]) {
        // A single hold, such as a permit that was split off, is bound to no other.
        let bond = (all.len() > 1)
            .then(|| Bond::new(all.iter().map(|held| Arc::downgrade(held)).collect()));
        for held in all {
            held.bound.set(bond.clone());
        }
        // Losses are checked after the binding, because a hold that was lost earlier did not notify
        // the others.
        for held in all {
            // The borrow ends on this line, because the loss of the others calls wakers, and a
            // waker may release this hold.
            let lost = held.state.borrow().lost();
            if let Some(reason) = lost {
                held.lose_others(reason);
            }
        }
    }

    /// Notifies the other holds of the same value, which may be in a later session, that this one
    /// is lost.
    fn lose_others(&self, reason: LostReason) {
        self.bound.notify_others(self.directory.user(), |other| {
            // Each grant keeps its session alive, so a hold without a session has no guard to
            // notify.
            let kept_until = other.session.upgrade()?.lease.kept_until();
            HoldEvent::of_other(
                reason,
                Weak::ptr_eq(&other.session, &self.session),
                kept_until,
            )
        });
    }

    /// Returns the path of the lock that was lost; if several locks are one value, the path of the
    /// one that was lost first.
    pub(crate) fn lost_path(&self) -> Arc<str> {
        self.bound
            .first_lost()
            .unwrap_or_else(|| self.directory.user().into())
    }

    /// Returns the name of the hold's node.
    pub(crate) fn name(&self) -> Arc<str> {
        Arc::clone(self.state.borrow().node())
    }

    pub(crate) fn kind(&self) -> Kind {
        self.state.borrow().kind()
    }

    /// Returns a ticket of the attempt that was granted the lock, for a flush.
    pub(crate) fn ticket(&self) -> Ticket {
        self.cleanup.ticket(self.number.attempt())
    }

    /// Reads the clock, so that a starved task cannot hide a loss, and returns why the lock is
    /// lost, or `None` if it is not. The holder that calls this may be the first to notice the
    /// loss.
    pub(crate) fn check_lost(self: &Arc<Self>) -> Option<LostReason> {
        // The lease of the hold is checked first: if both leases have ended, the reason is the end
        // of the lease that the caller set, and the node is deleted at once.
        let lost = self.check_lease().or_else(|| self.check_shared_node());
        let session = self.session.upgrade().filter(|_| lost.is_none());
        let Some(session) = session.filter(|session| session.lease.state() == LeaseState::Expired)
        else {
            return lost;
        };
        self.handle_event(HoldEvent::LeaseExpired {
            until: session.lease.kept_until(),
        });
        // A released lock is not lost when a lease ends, and a lock that another thread has ended
        // keeps the reason of that thread.
        self.state.borrow().lost()
    }

    /// Ends the hold if its hold lease has ended, in any state of the session lease. Returns why
    /// the lock is lost.
    fn check_lease(self: &Arc<Self>) -> Option<LostReason> {
        // Most holds have no lease, and do not read the clock for one.
        let (lost, has_lease) = {
            let state = self.state.borrow();
            (state.lost(), state.has_lease())
        };
        if lost.is_some() || !has_lease {
            return lost;
        }
        let now = clock::now();
        if self.state.borrow().is_lease_over(now) {
            self.handle_event(HoldEvent::LeaseOver { now });
        }
        self.state.borrow().lost()
    }

    /// Ends the hold if another hold of the same node has learned that the node is gone, even if
    /// that hold's task was paused before it notified the others. Returns why the lock is lost.
    fn check_shared_node(self: &Arc<Self>) -> Option<LostReason> {
        if self.path_node.is_missing() {
            self.node_deleted(self.name());
        }
        self.state.borrow().lost()
    }

    /// Sets the end of the lease, counted from now; a lease of zero ends at once. Returns why the
    /// lock was lost, if it was.
    pub(crate) fn set_lease(self: &Arc<Self>, lease: Duration) -> Result<(), LostReason> {
        // The session lease is checked first, because a lock that another process may hold must not
        // be extended.
        if let Some(reason) = self.check_lost() {
            return Err(reason);
        }
        let now = clock::now();
        if self.handle_event(HoldEvent::Extend {
            now,
            end: now.end_of(lease),
        }) {
            return Ok(());
        }
        // The event is refused if the lock was lost, perhaps only because the new lease is over
        // already. If the lock was not lost, it was released.
        Err(self.check_lost().unwrap_or(LostReason::Closed))
    }

    /// Sets the lease that the caller requested when it acquired the lock, if any.
    pub(crate) fn begin_lease(self: &Arc<Self>, lease: Option<Duration>) {
        if let Some(lease) = lease {
            // The result can be ignored, because the caller notices a loss itself.
            let _ = self.set_lease(lease);
        }
    }

    /// Returns how much of the hold lease is left; `None` if the hold has no lease.
    pub(crate) fn lease_remaining(self: &Arc<Self>) -> Option<Duration> {
        // The session lease is checked too: a lost lock has no time left.
        self.check_lost();
        self.state.borrow().lease_remaining(clock::now())
    }

    /// Returns the state of the lock, given whether the session lease is valid.
    pub(crate) fn state(self: &Arc<Self>, valid: bool) -> LockState {
        // The clock is read first, because there may be a loss that no thread has noticed yet.
        self.check_lost();
        self.state.borrow().state(valid)
    }

    /// Returns whether the lock is held, in a session that still exists.
    pub(crate) fn is_held(self: &Arc<Self>) -> bool {
        // Not every owner of a hold keeps the session alive: the term of a leader does not.
        self.session.strong_count() > 0 && self.check_lost().is_none()
    }

    /// Waits until the lock is lost or its session ends. The future keeps neither the session nor
    /// the client open.
    pub(crate) fn when_lost(
        self: &Arc<Self>,
    ) -> impl Future<Output = LostReason> + Send + 'static + use<> {
        let mut state = self.state.subscribe();
        let session = self.session.upgrade();
        let ended = session.as_deref().map(Session::ended);
        // The future does not keep the hold alive, because the hold keeps the cleanup alive, whose
        // task would then outlive the client.
        let held = Arc::downgrade(self);
        async move {
            // The clock is read first, since the lease may have expired without any other task
            // having noticed.
            if let Some(reason) = held.upgrade().and_then(|held| held.check_lost()) {
                return reason;
            }
            let ended = async move {
                match ended {
                    Some(ended) => ended.await,
                    None => LostReason::Closed,
                }
            };
            tokio::select! {
                biased;
                // An error means that the hold was released and dropped. The other branch remains.
                Ok(state) = state.wait_for(|state| state.lost().is_some()) => {
                    state.lost().unwrap_or(LostReason::Closed)
                }
                // A released lock is not notified of a loss, but the wait ends with its session.
                reason = ended => reason,
            }
        }
    }

    /// Records that a transaction is about to be sent. Until its outcome is known, the lock is not
    /// handed over (docs/protocol.md#transaction).
    pub(crate) fn begin_write(&self) {
        self.set(HoldState::begin_write);
    }

    /// Records that the outcome of the transaction is known.
    pub(crate) fn end_write(&self) {
        self.set(HoldState::end_write);
    }

    pub(crate) fn set_received(&self) {
        self.received.store(true, Ordering::Release);
    }

    pub(crate) fn is_received(&self) -> bool {
        self.received.load(Ordering::Acquire)
    }

    /// Records a request for revocation. Returns whether none was known before.
    pub(crate) fn request_revocation(&self) -> bool {
        !self.revocation_requested.swap(true, Ordering::Relaxed)
    }

    /// Returns whether revocation is known to have been requested.
    pub(crate) fn is_revocation_requested(&self) -> bool {
        self.revocation_requested.load(Ordering::Relaxed)
    }

    pub(crate) fn is_lost_or_released(&self) -> bool {
        self.state.borrow().is_lost_or_released()
    }

    /// Returns whether a loss has been noticed.
    pub(crate) fn is_lost(&self) -> bool {
        self.state.borrow().lost().is_some()
    }

    /// Records that the servers have reported that this node of the lock does not exist.
    pub(crate) fn node_deleted(self: &Arc<Self>, node: Arc<str>) {
        self.handle_event(HoldEvent::NodeDeleted { node });
    }

    /// Passes an event to the state, and carries out the resulting effects. For a release, call
    /// [`release`](Self::release), which can report the result. Returns `false` if the state
    /// refuses the event.
    pub(crate) fn handle_event(self: &Arc<Self>, event: HoldEvent) -> bool {
        self.process_event(event, None)
    }

    /// Releases the lock: submits its node for deletion, once. `done` receives the result.
    pub(crate) fn release(self: &Arc<Self>, done: Option<ReleaseReply>) {
        // Without this check, the release of a node that is known to be gone would report success.
        self.check_shared_node();
        self.process_event(self.release_event(), done);
    }

    fn release_event(&self) -> HoldEvent {
        // Without a session no other hold gets the node, as after the end of the session lease.
        let lease = self
            .session
            .upgrade()
            .map_or(LeaseState::Expired, |session| session.lease.state());
        HoldEvent::Release {
            lease,
            now: clock::now(),
        }
    }

    /// Changes the state under its mutex, and wakes no task. After a loss, `Effect::WakeWaiters`
    /// wakes the tasks that wait, once the other holds of the node and the session know of it.
    fn set(&self, change: impl FnOnce(&mut HoldState)) {
        self.state.send_if_modified(|state| {
            change(state);
            false
        });
    }

    /// Passes an event to the state. Carries out no effect, and so wakes no task: the caller carries
    /// out the returned effects, or drops them.
    fn change(&self, event: HoldEvent) -> Effects {
        let mut effects = Effects::default();
        self.set(|state| effects = state.on(event));
        effects
    }

    /// Passes an event to the state, and carries out the resulting effects in order. One of them
    /// wakes the tasks that wait for the loss. `done` receives the result of a release.
    /// Returns `false` if the state refuses the event.
    fn process_event(self: &Arc<Self>, event: HoldEvent, mut done: Option<ReleaseReply>) -> bool {
        // The ticket is created before the change, and is kept to the end, so that a flush counts
        // the node before other code can see the lock as released or lost.
        let _ticket = event.may_delete().then(|| self.ticket());
        // The node is marked before the change too, so that no other hold of the node reports the
        // lock as held once this hold reports it as lost.
        if let HoldEvent::NodeDeleted { node } = &event {
            if self.state.borrow().has_node(node) {
                self.path_node.mark_missing();
            }
        }
        let mut effects = self.change(event);
        // The session is kept alive for all of the effects. If the session was dropped, its nodes
        // are not deleted by this client, and `done` is dropped: the release then reports that the
        // client has ended.
        let session = self.session.upgrade();
        while let Some(effect) = effects.next() {
            if let Effect::PassOn(deletion) = effect {
                // The answer replaces later effects: if another hold has the node, there is no
                // deletion, and the callers of the path need no other node.
                let left = self.path_node.pass_on(self, session.as_ref(), deletion);
                effects.passed_on(left);
            } else {
                self.carry_out(effect, session.as_ref(), &mut done);
            }
        }
        !effects.is_refused
    }

    /// Carries out one effect. If the session has ended, effects on the session do nothing.
    fn carry_out(
        self: &Arc<Self>,
        effect: Effect,
        session: Option<&Arc<Session>>,
        done: &mut Option<ReleaseReply>,
    ) {
        match (effect, session) {
            (Effect::ReportEnd(Some(reason)), _) => self.report.end(CallEnd::Lost(reason)),
            (Effect::ReportEnd(None), _) => self.report.end(CallEnd::Released {
                by_call: done.is_some(),
            }),
            (Effect::LoseSharers(node), _) => self.path_node.notify_missing(self.number, &node),
            (Effect::UpdateSession, Some(session)) => session.update_registration(self),
            (Effect::LogLoss(reason), Some(session)) => session.log_loss(&**self, reason),
            // The state was changed before the effects. An empty change only wakes the receivers.
            (Effect::WakeWaiters, _) => self.state.send_modify(|_| {}),
            (Effect::LoseOtherHolds(reason), _) => self.lose_others(reason),
            (Effect::ForgetNode(node), Some(session)) => {
                // Another process may have deleted further nodes, so the waiters of this client
                // behind the node list the queue.
                session
                    .nodes
                    .gone(&self.directory.child(&node), Gone::Unclear);
            }
            (Effect::Answer(lost), Some(_)) => self.reply_to_release(done.take(), lost),
            (Effect::Delete(deletion), Some(session)) => {
                self.delete(deletion, session, done.take());
            }
            (Effect::LeaveNode, _) => self.path_node.hold_ended(self.number),
            (Effect::LoseNode, _) => self.path_node.hold_lost(),
            // The loop in `process_event` handles `PassOn`. The other effects need the session, and
            // in this case it has been dropped.
            (
                Effect::PassOn(_)
                | Effect::UpdateSession
                | Effect::LogLoss(_)
                | Effect::ForgetNode(_)
                | Effect::Answer(_)
                | Effect::Delete(_),
                _,
            ) => {}
        }
    }

    /// Reports the result of a release that waits for no deletion.
    fn reply_to_release(&self, done: Option<ReleaseReply>, lost: Option<LostReason>) {
        let result = lost.map_or(Ok(()), |reason| {
            Err(Lost {
                path: self.lost_path(),
                reason,
            }
            .into())
        });
        finish(done, result);
    }

    /// Leaves the node to cleanup.
    fn delete(&self, deletion: Deletion, session: &Arc<Session>, done: Option<ReleaseReply>) {
        let Deletion { node, may_pass_on } = deletion;
        self.cleanup.submit(CleanupItem {
            session: Arc::clone(session),
            directory: self.directory.clone(),
            // No caller of the path gets the node. A waiter of a fair lock, which has a separate
            // node, may still be next, and cleanup hands the lock over to that waiter.
            orphan: Orphan::Hold {
                name: node.as_ref().to_owned(),
                may_hand_over: may_pass_on,
            },
            number: self.number.attempt(),
            // The attempt has freed its slot with the grant, because a holder needs no slot.
            slot: None,
            done,
        });
    }
}

impl SessionLock for Held {
    fn number(&self) -> HoldNumber {
        self.number
    }

    fn directory(&self) -> &LockPath {
        &self.directory
    }

    fn node(&self) -> Arc<str> {
        self.name()
    }

    fn is_held_by(&self, node: &str) -> bool {
        self.state.borrow().is_held_by(node)
    }

    fn registration(&self) -> Registration {
        self.state.borrow().registration()
    }

    fn on(self: Arc<Self>, event: HoldEvent) {
        self.process_event(event, None);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Barrier, Mutex};
    use std::task::{Context, Wake, Waker};

    use zookeeper_client as zk;
    use zookeeper_test_server::Server;

    use super::*;
    use crate::protocol::moment::Moment;
    use crate::protocol::numbers::SessionNumber;
    use crate::protocol::numbers::by_value::hold_number;
    use crate::session::leftovers::cleanup::CleanupQueue;
    use crate::session::live::zk_session::SessionOptions;
    use crate::session::threads::waker;

    /// A session whose lease was never renewed, and so counts as expired, and a lock in that
    /// session.
    async fn expired(server: &Server) -> (Arc<Session>, Arc<Held>) {
        let handle = zk::Client::connect(&server.connect_string()).await.unwrap();
        let (cleanup, _queue) = Cleanup::new();
        let session = Session::new(SessionNumber::FIRST, handle, SessionOptions::default());
        let state = HoldState::new("x-lock-0000000000".into(), Kind::Exclusive);
        let held = alone(&session, &cleanup, 0, state);
        (session, held)
    }

    /// The thread that notices the loss may be paused before it wakes the waiting tasks.
    // Shows: lost-lock-keeps-its-node
    #[tokio::test]
    async fn hold_is_lost_before_notification() {
        let server = Server::start().unwrap();
        let (session, held) = expired(&server).await;
        let state = held.state.subscribe();
        let effects = held.change(HoldEvent::LeaseExpired {
            until: session.lease.kept_until(),
        });
        assert!(
            effects
                .into_iter()
                .any(|effect| effect == Effect::WakeWaiters)
        );
        // The lock stays lost although the lease has been renewed since.
        session.lease.renewed(clock::now());
        assert_eq!(held.check_lost(), Some(LostReason::LeaseExpired));
        assert!(
            !state.has_changed().unwrap(),
            "notified while it was not to be"
        );
        assert!(!held.handle_event(HoldEvent::BeginConversion));
    }

    #[tokio::test]
    async fn hold_expiring_in_conversion_is_lost() {
        let server = Server::start().unwrap();
        let (session, held) = expired(&server).await;
        assert!(held.handle_event(HoldEvent::BeginConversion));
        assert_eq!(held.check_lost(), Some(LostReason::LeaseExpired));
        session.lease.renewed(clock::now());
        assert!(!held.handle_event(HoldEvent::EndConversion {
            node: "other".into(),
            kind: Kind::Shared
        }));
        assert_eq!(held.check_lost(), Some(LostReason::LeaseExpired));
        assert!(session.holds.any(), "until the conversion has cleaned up");
        held.handle_event(HoldEvent::ConversionOver(LostReason::Closed));
        assert_eq!(held.check_lost(), Some(LostReason::LeaseExpired));
        assert!(!session.holds.any());
    }

    /// The state that a waker sees when it runs at the loss: the loss, the number of attempts for
    /// which a flush waits, and whether the node was submitted for deletion.
    struct Witness {
        held: Arc<Held>,
        queue: Mutex<CleanupQueue>,
        found: Mutex<Option<(Option<LostReason>, usize, bool)>>,
    }

    impl Wake for Witness {
        fn wake(self: Arc<Self>) {
            let deleted = self.queue.lock().unwrap().try_recv().is_ok();
            let pending = self.held.cleanup.pending().borrow().count();
            *self.found.lock().unwrap() = Some((self.held.state.borrow().lost(), pending, deleted));
        }
    }

    /// First the lock is lost, then tasks are notified, then the node is deleted. A flush that
    /// these tasks call waits for the deletion.
    #[tokio::test]
    async fn lease_end_notifies_before_deletion() {
        let server = Server::start().unwrap();
        let handle = zk::Client::connect(&server.connect_string()).await.unwrap();
        let session = Session::new(SessionNumber::FIRST, handle, SessionOptions::default());
        session.lease.renewed(clock::now());
        let now = clock::now();
        let end = now.plus(Duration::from_secs(3600));
        for event in [
            HoldEvent::LeaseOver { now: end },
            HoldEvent::Extend {
                now,
                end: Some(now),
            },
        ] {
            let (cleanup, queue) = Cleanup::new();
            let state = HoldState::new("x-lock-0000000000".into(), Kind::Exclusive);
            let held = alone(&session, &cleanup, 0, state.with_lease_end(Some(end)));
            let (queue, found) = (Mutex::new(queue), Mutex::default());
            let witness = Arc::new(Witness {
                held: Arc::clone(&held),
                queue,
                found,
            });
            let waker = Waker::from(Arc::clone(&witness));
            let mut lost = Box::pin(held.when_lost());
            assert!(
                lost.as_mut()
                    .poll(&mut Context::from_waker(&waker))
                    .is_pending()
            );
            held.handle_event(event);
            assert_eq!(
                *witness.found.lock().unwrap(),
                Some((Some(LostReason::LeaseOver), 1, false))
            );
            assert!(
                witness.queue.lock().unwrap().try_recv().is_ok(),
                "the node was not left to cleanup"
            );
        }
    }

    /// How a hold ended, for the callers at its path.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Ended {
        Loss,
        Release,
    }

    /// A node without other callers, which notes each end of its hold, and whether a deletion is on
    /// its way by then.
    struct Node {
        queue: Mutex<CleanupQueue>,
        ends: Mutex<Vec<(Ended, bool)>>,
    }

    impl Node {
        fn new(queue: CleanupQueue) -> Arc<Self> {
            Arc::new(Self {
                queue: Mutex::new(queue),
                ends: Mutex::default(),
            })
        }

        fn ends(&self) -> Vec<(Ended, bool)> {
            self.ends.lock().unwrap().clone()
        }

        fn ended(&self, how: Ended) {
            let deleted = self.queue.lock().unwrap().try_recv().is_ok();
            self.ends.lock().unwrap().push((how, deleted));
        }
    }

    impl PathNode for Node {
        fn pass_on(
            &self,
            _: &Arc<Held>,
            _: Option<&Arc<Session>>,
            deletion: Deletion,
        ) -> Option<Deletion> {
            Some(deletion)
        }

        fn hold_ended(&self, _hold: HoldNumber) {
            self.ended(Ended::Release);
        }

        fn hold_lost(&self) {
            self.ended(Ended::Loss);
        }

        fn mark_missing(&self) {}

        fn notify_missing(&self, _hold: HoldNumber, _node: &Arc<str>) {}

        fn is_missing(&self) -> bool {
            false
        }

        fn reserve(&self, _hold: HoldNumber) {}
    }

    /// Returns a hold that its session knows, of a node without other callers.
    fn registered(
        session: &Arc<Session>,
        cleanup: &Cleanup,
        number: u64,
        state: HoldState,
        node: Arc<dyn PathNode>,
    ) -> Arc<Held> {
        let directory = LockPath::parse("", "/lock").unwrap();
        let held = Held::new(
            session,
            cleanup,
            directory,
            hold_number(number),
            state,
            node,
        );
        held.register(session);
        held
    }

    /// Returns a registered hold of which only the state and the session matter.
    fn alone(
        session: &Arc<Session>,
        cleanup: &Cleanup,
        number: u64,
        state: HoldState,
    ) -> Arc<Held> {
        registered(session, cleanup, number, state, Node::new(Cleanup::new().1))
    }

    /// A session with a valid lease, a lock in that session whose own lease ends in an hour, and
    /// the node of the lock.
    async fn leased(server: &Server) -> (Arc<Session>, Arc<Held>, Arc<Node>) {
        let handle = zk::Client::connect(&server.connect_string()).await.unwrap();
        let (cleanup, queue) = Cleanup::new();
        let session = Session::new(SessionNumber::FIRST, handle, SessionOptions::default());
        session.lease.renewed(clock::now());
        let state = HoldState::new("x-lock-0000000000".into(), Kind::Exclusive)
            .with_lease_end(Some(an_hour_on()));
        let node = Node::new(queue);
        let held = registered(&session, &cleanup, 0, state, Arc::<Node>::clone(&node));
        (session, held, node)
    }

    fn an_hour_on() -> Moment {
        clock::now().plus(Duration::from_secs(3600))
    }

    /// Ends the lease of a hold while a task waits for the loss, and runs `woken` when that task is
    /// woken.
    fn ends_while(held: &Arc<Held>, woken: impl FnOnce() + Send + 'static) {
        struct Does<F>(Mutex<Option<F>>);

        impl<F: FnOnce() + Send> Wake for Does<F> {
            fn wake(self: Arc<Self>) {
                let woken = self.0.lock().unwrap().take();
                woken.unwrap()();
            }
        }

        let waker = Waker::from(Arc::new(Does(Mutex::new(Some(woken)))));
        let mut lost = Box::pin(waker::contain(held.when_lost()));
        let polled = lost.as_mut().poll(&mut Context::from_waker(&waker));
        assert!(polled.is_pending());
        held.handle_event(HoldEvent::LeaseOver {
            now: an_hour_on().plus(Duration::from_secs(60)),
        });
        assert_eq!(held.state.borrow().lost(), Some(LostReason::LeaseOver));
    }

    /// A release notifies the waiters even without a session; otherwise they would wait for the
    /// hold indefinitely.
    #[tokio::test]
    async fn release_without_session_frees_waiters() {
        let server = Server::start().unwrap();
        let (session, held, node) = leased(&server).await;
        drop(session);
        held.release(None);
        assert_eq!(node.ends(), [(Ended::Release, false)]);
    }

    // Shows: lease-over, telling-a-loss
    #[tokio::test]
    async fn panicking_waker_keeps_no_node() {
        let server = Server::start().unwrap();
        let (session, held, node) = leased(&server).await;
        ends_while(&held, || panic!("as the test asked for"));
        assert_eq!(node.ends(), [(Ended::Loss, true)]);
        assert!(!session.holds.any());
    }

    #[tokio::test]
    async fn deletion_outlives_the_session_handle() {
        let server = Server::start().unwrap();
        let (session, held, node) = leased(&server).await;
        let only = Arc::downgrade(&session);
        ends_while(&held, move || drop(session));
        assert_eq!(node.ends(), [(Ended::Loss, true)]);
        assert!(only.upgrade().is_none(), "something keeps the session");
    }

    /// The guard is dropped by the task that is woken, on the thread that is about to delete the
    /// node: the next attempt still starts after the deletion.
    // Shows: lease-over
    #[tokio::test]
    async fn release_in_waker_starts_no_attempt() {
        let server = Server::start().unwrap();
        let (_session, held, node) = leased(&server).await;
        let guard = Arc::clone(&held);
        ends_while(&held, move || guard.release(None));
        assert_eq!(node.ends(), [(Ended::Loss, true)]);
    }

    /// One thread ends the lease while another releases the lock: whichever is first, the node is
    /// deleted once, and the callers are notified once, after the deletion.
    // Shows: lease-over
    #[tokio::test]
    async fn two_threads_end_a_hold_once() {
        let server = Server::start().unwrap();
        let (session, first, _node) = leased(&server).await;
        for _ in 0..2_000 {
            let (cleanup, queue) = Cleanup::new();
            let state = HoldState::new("x-lock-0000000000".into(), Kind::Exclusive);
            let node = Node::new(queue);
            session.lease.renewed(clock::now());
            let held = registered(&session, &cleanup, 1, state, Arc::<Node>::clone(&node));
            let both = Barrier::new(2);
            std::thread::scope(|threads| {
                threads.spawn(|| {
                    both.wait();
                    held.set_lease(Duration::ZERO)
                });
                both.wait();
                held.release(None);
            });
            let ends = node.ends();
            let is_once = matches!(*ends, [(_, true)]);
            assert!(is_once, "{ends:?}");
            assert!(
                node.queue.lock().unwrap().try_recv().is_err(),
                "deleted twice"
            );
            assert_eq!(cleanup.pending().borrow().count(), 0);
        }
        first.release(None);
        assert!(!session.holds.any());
    }

    /// Each hold that is registered while the session ends is notified of the end, or notices it,
    /// however the threads interleave.
    // Shows: telling-a-loss
    #[tokio::test]
    async fn hold_registered_at_session_end() {
        const THREADS: u64 = 4;
        const HOLDS: u64 = 50;
        let server = Server::start().unwrap();
        let handle = zk::Client::connect(&server.connect_string()).await.unwrap();
        let (cleanup, _queue) = Cleanup::new();
        for _ in 0..200 {
            let session = Session::new(
                SessionNumber::FIRST,
                handle.clone(),
                SessionOptions::default(),
            );
            session.lease.renewed(clock::now());
            let register = |number| {
                let state = HoldState::new("x-lock-0000000000".into(), Kind::Exclusive);
                alone(&session, &cleanup, number, state)
            };
            let holds: Vec<_> = std::thread::scope(|threads| {
                // There are several threads, so that they wait for each other at the registration.
                let registering: Vec<_> = (0..THREADS)
                    .map(|thread| thread * HOLDS..(thread + 1) * HOLDS)
                    .map(|numbers| threads.spawn(|| numbers.map(register).collect::<Vec<_>>()))
                    .collect();
                while !session.holds.any() {
                    std::thread::yield_now();
                }
                session.end(LostReason::SessionExpired);
                registering
                    .into_iter()
                    .flat_map(|holds| holds.join().unwrap())
                    .collect()
            });
            for held in holds {
                assert_eq!(held.check_lost(), Some(LostReason::SessionExpired));
            }
        }
    }

    #[tokio::test]
    async fn hold_of_ended_session_is_lost() {
        let server = Server::start().unwrap();
        let (session, other) = expired(&server).await;
        session.end(LostReason::SessionReplaced);
        let state = HoldState::new("x-lock-0000000001".into(), Kind::Exclusive);
        let held = alone(&session, &other.cleanup, 1, state);
        assert_eq!(held.check_lost(), Some(LostReason::SessionReplaced));
    }
}
