//! One held lock, as its guards, its session and its conversions share it: does what its state decides.

use std::any::Any;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use tokio::sync::watch;

use crate::engine::shared_queue::Place;
use crate::error::{Lost, LostReason};
use crate::path::LockPath;
use crate::protocol::hold::{Care, Deletion, Effects, HoldEvent, HoldState, LockState};
use crate::protocol::lease::LeaseState;
use crate::protocol::node_name::Kind;
use crate::session::cleanup::{Cleanup, Done, Item, Orphan};
use crate::session::holds::HeldLock;
use crate::session::zk_session::Session;

/// One held lock.
#[derive(Debug)]
pub(crate) struct Held {
    directory: LockPath,
    /// Of the attempt that got it; see [`Tickets`](crate::session::tickets::Tickets).
    number: u64,
    /// Weak, or the session would live as long as its guards.
    session: Weak<Session>,
    cleanup: Cleanup,
    /// Those that wait for its loss wait for a change of this.
    state: watch::Sender<HoldState<Arc<Place>>>,
    /// Another client has asked for it back; a conversion does not undo that.
    revocation_requested: AtomicBool,
}

impl Held {
    /// A lock that has been granted in `session`, which says when it is lost from here on.
    pub(crate) fn new(
        session: &Arc<Session>,
        cleanup: &Cleanup,
        directory: LockPath,
        number: u64,
        state: HoldState<Arc<Place>>,
    ) -> Arc<Self> {
        let held = Arc::new(Self {
            directory,
            number,
            session: Arc::downgrade(session),
            cleanup: cleanup.clone(),
            state: watch::Sender::new(state),
            revocation_requested: AtomicBool::new(false),
        });
        session.look_after(&held.as_held_lock());
        // Looked at after that, as the end of a session tells those that it finds after it has happened. It is no news: the
        // lock has not been handed out yet.
        if let Some(reason) = session.end_reason() {
            let _ = held.change(HoldEvent::SessionEnded(reason));
        }
        held
    }

    fn as_held_lock(self: &Arc<Self>) -> Arc<dyn HeldLock> {
        Arc::<Self>::clone(self)
    }

    /// The name of its node.
    pub(crate) fn name(&self) -> Arc<str> {
        Arc::clone(self.state.borrow().node())
    }

    /// What it is held as.
    pub(crate) fn kind(&self) -> Kind {
        self.state.borrow().kind()
    }

    /// The number of the attempt that got it, which no other hold of the client has.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// How it was lost, if it was, by the clock and not only by what has been noticed: a task that was starved cannot hide
    /// it. As it is asked on the holder's side, nothing is logged here.
    pub(crate) fn lost(self: &Arc<Self>) -> Option<LostReason> {
        let lost = self.state.borrow().lost();
        let session = self.session.upgrade().filter(|_| lost.is_none());
        let Some(session) = session.filter(|session| session.lease().state() == LeaseState::Expired) else {
            return lost;
        };
        self.apply(HoldEvent::LeaseExpired { until: session.lease().kept_until() }, None);
        self.state.borrow().lost()
    }

    /// How it stands, if the lease is, or is not, `valid`.
    pub(crate) fn state(self: &Arc<Self>, valid: bool) -> LockState {
        // Asks the clock.
        self.lost();
        self.state.borrow().state(valid)
    }

    /// Whether it is held in a session that there still is.
    pub(crate) fn is_held(self: &Arc<Self>) -> bool {
        self.session.strong_count() > 0 && self.lost().is_none()
    }

    /// Resolves when it is lost or its session over. Keeps neither the session nor the client.
    pub(crate) fn when_lost(self: &Arc<Self>) -> impl Future<Output = LostReason> + Send + 'static {
        let mut state = self.state.subscribe();
        let session = self.session.upgrade();
        let ended = session.as_deref().map(Session::ended);
        let held = Arc::clone(self);
        async move {
            // By the clock first, which may know before anybody else has looked.
            if let Some(reason) = held.lost() {
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
                // `held` keeps the sender alive, so this is never an error.
                Ok(state) = state.wait_for(|state| state.lost().is_some()) => {
                    state.lost().unwrap_or(LostReason::Closed)
                }
                // One that has been released is not told any more, but is over at the end of its session.
                reason = ended => reason,
            }
        }
    }

    /// A transaction is about to be sent.
    pub(crate) fn begin_write(&self) {
        self.set(HoldState::begin_write);
    }

    /// Its outcome is known.
    pub(crate) fn end_write(&self) {
        self.set(HoldState::end_write);
    }

    /// Another client asks for it back.
    pub(crate) fn request_revocation(&self) {
        self.revocation_requested.store(true, Ordering::Relaxed);
    }

    /// Whether another client has asked for it back, as far as was looked.
    pub(crate) fn is_revocation_requested(&self) -> bool {
        self.revocation_requested.load(Ordering::Relaxed)
    }

    /// Whether it is lost or released.
    pub(crate) fn is_over(&self) -> bool {
        self.state.borrow().is_over()
    }

    /// The servers say that this node of it does not exist.
    pub(crate) fn node_deleted(self: &Arc<Self>, node: Arc<str>) {
        self.apply(HoldEvent::NodeDeleted { node }, None);
    }

    /// Puts it into a conversion's hands; false if it is lost.
    pub(crate) fn begin_conversion(self: &Arc<Self>) -> bool {
        self.apply(HoldEvent::BeginConversion, None)
    }

    /// It is held by the node `name`, as `kind`, from here on; false if it was lost meanwhile. Then the conversion has its
    /// nodes deleted, and says when that is [done](Self::conversion_over).
    pub(crate) fn end_conversion(self: &Arc<Self>, name: &str, kind: Kind) -> bool {
        self.apply(HoldEvent::EndConversion { node: name.into(), kind }, None)
    }

    /// It is lost by its conversion, which has its nodes deleted now.
    pub(crate) fn conversion_lost(self: &Arc<Self>, reason: LostReason) {
        self.apply(HoldEvent::ConversionLost(reason), None);
    }

    /// What a conversion has left is deleted, or handed to the cleanup.
    pub(crate) fn conversion_over(self: &Arc<Self>, reason: LostReason) {
        self.apply(HoldEvent::ConversionOver(reason), None);
    }

    /// Its client is over, and has taken along the conversion that had it.
    pub(crate) fn client_over(self: &Arc<Self>) {
        self.apply(HoldEvent::ClientOver, None);
    }

    /// Has its node deleted, once; `done` is told what comes of that.
    pub(crate) fn release(self: &Arc<Self>, done: Option<Done>) {
        let lease = self.session.upgrade().map_or(LeaseState::Expired, |session| session.lease().state());
        self.apply(HoldEvent::Release { lease }, done);
    }

    fn set(&self, change: impl FnOnce(&mut HoldState<Arc<Place>>)) {
        // No receiver waits for this value.
        self.state.send_if_modified(|state| {
            change(state);
            false
        });
    }

    fn change(&self, event: HoldEvent) -> Effects<Arc<Place>> {
        let mut effects = Effects::default();
        self.set(|state| {
            effects = state.on(event);
            // Under the lock: an attempt that finds the place given up by its hold may make it live again.
            let deleted = effects.delete.as_ref().and_then(|deletion| deletion.place.as_ref());
            if let Some(place) = effects.free.as_ref().or(deleted) {
                place.set_live(false);
            }
        });
        effects
    }

    /// Tells the state what has happened, and does what comes of it. The order matters:
    /// 1. The state, by which every question is answered: what is caused by the steps below finds it changed.
    /// 2. The session, which must not send a beat for a node that is about to be deleted, and has to keep the node of a lost
    ///    lock even if what follows goes wrong.
    /// 3. Those that wait for the loss: their wakers are foreign code, which may do anything. Nothing that they wake finds
    ///    work of step 1 or 2 undone.
    /// 4. The nodes and the place, which let others in: no loss is heard of later than by them.
    ///
    /// It may run on the holder's side, so nothing is logged here, only noted.
    fn apply(self: &Arc<Self>, event: HoldEvent, done: Option<Done>) -> bool {
        // First: once it is seen as released, it counts as pending until its node is handed to the cleanup.
        let deletes = matches!(event, HoldEvent::Release { .. } | HoldEvent::GraceOver);
        let _pending = deletes.then(|| self.cleanup.ticket(self.number));
        let Effects { lost, gone, delete, free, report, refused } = self.change(event);
        let session = self.session.upgrade();
        if let Some(session) = &session {
            let lock = self.as_held_lock();
            session.look_after(&lock);
            if let Some(reason) = lost {
                session.log().lost(lock, reason);
                session.log().tell();
            }
        }
        if lost.is_some() {
            self.state.send_modify(|_| {});
        }
        drop(free);
        let Some(session) = session else { return !refused };
        if let Some(node) = gone {
            session.disown(&self.directory.child(&node));
        }
        let mut done = done;
        if let Some(reason) = report {
            if let Some(done) = done.take() {
                // An error: the release was cancelled, and has no reader.
                let _ = done.send(Err(Lost { path: self.directory.user().into(), reason }.into()));
            }
        }
        if let Some(Deletion { node, hand_over, place }) = delete {
            self.cleanup.submit(Item {
                session,
                directory: self.directory.clone(),
                orphan: Orphan::Hold { name: node.as_ref().to_owned(), hand_over },
                number: self.number,
                until_gone: place.map(|place| -> Arc<dyn Any + Send + Sync> { place }),
                done,
            });
        }
        !refused
    }
}

impl HeldLock for Held {
    fn number(&self) -> u64 {
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

    fn care(&self) -> Care {
        self.state.borrow().care()
    }

    fn on(self: Arc<Self>, event: HoldEvent) {
        self.apply(event, None);
    }
}

#[cfg(test)]
mod tests {
    use zookeeper_client as zk;
    use zookeeper_test_server::Server;

    use super::*;
    use crate::protocol::lease::Margin;
    use crate::session::clock;

    /// A session that was never renewed, in which the lease of every lock has expired, and a lock of it.
    async fn expired(server: &Server) -> (Arc<Session>, Arc<Held>) {
        let handle = zk::Client::connect(&server.connect_string()).await.unwrap();
        let (cleanup, _queue) = Cleanup::new();
        let directory = LockPath::parse("", "/lock").unwrap();
        let session = Session::new(1, handle, Margin::default());
        let state = HoldState::new("x-lock-0000000000".into(), Kind::Exclusive, None);
        let held = Held::new(&session, &cleanup, directory, 0, state);
        (session, held)
    }

    /// The thread that finds it lost may be paused before it tells.
    #[tokio::test]
    async fn a_hold_that_is_given_up_by_the_clock_is_lost_before_that_is_told() {
        let server = Server::start().unwrap();
        let (session, held) = expired(&server).await;
        let told = held.state.subscribe();
        let effects = held.change(HoldEvent::LeaseExpired { until: session.lease().kept_until() });
        assert_eq!(effects.lost, Some(LostReason::LeaseExpired));
        // Although the session was heard of since.
        session.lease().renewed(clock::now());
        assert_eq!(held.lost(), Some(LostReason::LeaseExpired));
        assert!(!told.has_changed().unwrap(), "told while it was not to be");
        assert!(!held.begin_conversion());
    }

    #[tokio::test]
    async fn a_hold_that_expires_in_a_conversion_is_not_held_by_its_end() {
        let server = Server::start().unwrap();
        let (session, held) = expired(&server).await;
        assert!(held.begin_conversion());
        assert_eq!(held.lost(), Some(LostReason::LeaseExpired));
        session.lease().renewed(clock::now());
        assert!(!held.end_conversion("other", Kind::Shared));
        assert_eq!(held.lost(), Some(LostReason::LeaseExpired));
        assert!(session.has_holds(), "until the conversion has cleaned up");
        held.conversion_over(LostReason::Closed);
        assert_eq!(held.lost(), Some(LostReason::LeaseExpired));
        assert!(!session.has_holds());
    }

    #[tokio::test]
    async fn a_hold_of_a_session_that_has_ended_is_lost_from_the_beginning() {
        let server = Server::start().unwrap();
        let (session, other) = expired(&server).await;
        session.end(LostReason::SessionReplaced);
        let state = HoldState::new("x-lock-0000000001".into(), Kind::Exclusive, None);
        let held = Held::new(&session, &other.cleanup, other.directory.clone(), 1, state);
        assert_eq!(held.lost(), Some(LostReason::SessionReplaced));
    }
}
