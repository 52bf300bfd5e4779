//! The read nodes that readers of one client and read-write lock share: the [`Readers`] of each behind a mutex that
//! is held for one decision at a time.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::engine::held::{Held, InRoom, Over};
use crate::engine::shared_room::SharedRoom;
use crate::protocol::hold::Deletion;
use crate::protocol::readers::{Leaving, Readers};
use crate::protocol::room::HandOff;
use crate::session::zk_session::Session;

/// The readers of one client and read-write lock.
pub(crate) struct SharedReaders {
    /// The node that was opened last, which knows whether it still is.
    last: Mutex<Option<Arc<SharedNode>>>,
    /// Whether an open node is kept when no reader is inside.
    is_kept: bool,
    /// How many readers may share a node that is not kept, and for how long after its grant they may join it: a writer
    /// of another process waits for them too.
    bounds: HandOff,
    /// Where they wait for a node.
    room: Arc<SharedRoom>,
}

/// A read node that readers share.
pub(super) struct SharedNode {
    state: Mutex<State>,
    token: (i64, u64),
    /// Wakes the task that watches the node, when that is closed.
    pub(super) closed: Notify,
}

struct State {
    readers: Readers<Weak<Held>>,
    /// While it is open, and kept.
    anchor: Option<Arc<Held>>,
    /// How many may still join it, and until when; `None` if the watch for writers bounds that. A time beyond all
    /// clocks is none.
    joins_left: Option<(u32, Option<Instant>)>,
    last_used: Instant,
}

/// Another hold of a shared node.
pub(super) struct Joined {
    pub(super) held: Arc<Held>,
    pub(super) session: Arc<Session>,
    pub(super) token: (i64, u64),
}

impl State {
    /// Returns whether another reader may join the node now.
    fn may_join(&self, now: Instant) -> bool {
        let is_within =
            |(joins, until): (u32, Option<Instant>)| joins > 0 && until.is_none_or(|until| now < until);
        self.readers.is_open() && self.joins_left.is_none_or(is_within)
    }

    /// Returns a hold that is inside, if another reader may join it now.
    fn open_to(&self, now: Instant) -> Option<Arc<Held>> {
        self.readers.any().filter(|_| self.may_join(now)).and_then(Weak::upgrade)
    }
}

impl SharedReaders {
    pub(super) fn new(room: Arc<SharedRoom>, is_kept: bool, bounds: HandOff) -> Arc<Self> {
        Arc::new(Self { last: Mutex::default(), is_kept, bounds, room })
    }

    /// Returns whether an open node is kept when no reader is inside, and so must be watched for writers.
    pub(super) fn is_kept(&self) -> bool {
        self.is_kept
    }

    /// Returns where readers wait for a node.
    pub(super) fn room(&self) -> &Arc<SharedRoom> {
        &self.room
    }

    fn lock(&self) -> MutexGuard<'_, Option<Arc<SharedNode>>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the node of a granted reader shared from here on: opens it, unless another is open. `None` if the
    /// reader has ended already.
    pub(super) fn share(
        &self,
        reader: &Arc<Held>,
        session: &Arc<Session>,
        token: (i64, u64),
    ) -> Option<Arc<SharedNode>> {
        let node = SharedNode::new(reader, token);
        // Dropped outside of the mutexes.
        let (_before, anchor);
        {
            let mut last = self.lock();
            let other_is_open = last.as_ref().is_some_and(|node| node.lock().may_join(Instant::now()));
            let mut state = node.lock();
            reader.enter(&(Arc::clone(&node) as Arc<dyn InRoom>));
            // An event that ends the reader from here on reaches the node, and waits for the mutex. If it has
            // ended before, its node may be on its way out: no other may join it.
            if reader.is_lost_or_released() {
                state.readers.take_out(reader.number());
                return None;
            }
            if other_is_open {
                drop(state);
                return Some(node);
            }
            anchor = self.is_kept.then(|| reader.unregistered_heir(session, reader.next_number(), None));
            state.readers.open(anchor.as_ref().map(|anchor| (anchor.number(), Arc::downgrade(anchor))));
            state.anchor.clone_from(&anchor);
            let until = Instant::now().checked_add(self.bounds.time);
            // The reader itself is the first.
            let joins = self.bounds.max.saturating_sub(1);
            state.joins_left = (!self.is_kept).then_some((joins, until));
            _before = last.replace(Arc::clone(&node));
        }
        if let Some(anchor) = anchor {
            anchor.register(session);
            // Its session has ended before it was registered.
            if anchor.is_lost_or_released() {
                node.close();
            }
        }
        Some(node)
    }

    /// Returns another hold of the open node. `None` if no node is open, or it is not certain that the servers
    /// keep it.
    pub(super) fn join(&self, lease: Option<Duration>) -> Option<Joined> {
        let node = self.lock().clone()?;
        node.join(lease)
    }

    /// Closes the open node.
    pub(super) fn close_any(&self) {
        let node = self.lock().clone();
        if let Some(node) = node {
            node.close();
        }
    }
}

impl SharedNode {
    fn new(reader: &Arc<Held>, token: (i64, u64)) -> Arc<Self> {
        let readers = Readers::new(reader.number(), Arc::downgrade(reader));
        let state = State { readers, anchor: None, joins_left: None, last_used: Instant::now() };
        Arc::new(Self { state: Mutex::new(state), token, closed: Notify::new() })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn join(&self, lease: Option<Duration>) -> Option<Joined> {
        let inside = self.lock().open_to(Instant::now());
        let Some(inside) = inside else {
            self.close();
            return None;
        };
        let Some(session) = inside.session().filter(|session| session.is_healthy()) else {
            self.close();
            return None;
        };
        let number = inside.next_number();
        let reader = inside.unregistered_heir(&session, number, None);
        {
            let mut state = self.lock();
            // The node is closed, and its end noted, under this mutex, and the reader is inside then.
            let may_join = state.may_join(Instant::now());
            if !may_join || !state.readers.join(number, Arc::downgrade(&reader)) {
                return None;
            }
            if let Some((joins, _)) = &mut state.joins_left {
                *joins = joins.saturating_sub(1);
            }
            state.last_used = Instant::now();
        }
        reader.register(&session);
        // The session, or the node, has ended before it was registered.
        if reader.is_lost_or_released() {
            reader.release(None);
            return None;
        }
        reader.begin_lease(lease);
        Some(Joined { held: reader, session, token: self.token })
    }

    /// Returns another hold, for a reader that waited for the node with this one, which is inside: also if the node is
    /// closed by now, since they all were before the writer that has come. It is lost if the node is gone.
    pub(super) fn admit(&self, with: &Held, session: &Arc<Session>, lease: Option<Duration>) -> Joined {
        let number = with.next_number();
        let reader = with.unregistered_heir(session, number, None);
        let is_there = {
            let mut state = self.lock();
            state.last_used = Instant::now();
            state.readers.admit(number, Arc::downgrade(&reader))
        };
        if is_there {
            reader.register(session);
        } else {
            reader.node_deleted(reader.name());
        }
        reader.begin_lease(lease);
        Joined { held: reader, session: Arc::clone(session), token: self.token }
    }

    /// Closes the node, if it is open: it goes with its last reader.
    pub(super) fn close(&self) {
        let (is_last, anchor) = {
            let mut state = self.lock();
            (state.readers.close(), state.anchor.take())
        };
        let Some(anchor) = anchor else { return };
        self.closed.notify_one();
        if is_last {
            anchor.release(None);
        } else {
            Self::let_go(&anchor);
        }
    }

    /// Ends an anchor without a deletion: its node is others'.
    fn let_go(anchor: &Arc<Held>) {
        drop(anchor.take_back());
        if let Some(session) = anchor.session() {
            anchor.let_go(&session);
        }
    }

    /// Returns whether further readers may share the node.
    pub(super) fn is_open(&self) -> bool {
        self.lock().readers.is_open()
    }

    /// Returns how long it is until the open node has not been used for `idle`.
    pub(super) fn idle_left(&self, idle: Duration) -> Duration {
        let state = self.lock();
        if state.readers.is_in_use() { idle } else { idle.saturating_sub(state.last_used.elapsed()) }
    }

    /// Records that a list of the directory does not show the node.
    pub(super) fn not_listed(&self) {
        let anchor = self.lock().anchor.clone();
        if let Some(anchor) = anchor {
            anchor.node_deleted(anchor.name());
        }
    }
}

impl InRoom for SharedNode {
    fn is_shared(&self) -> bool {
        true
    }

    fn pass_on(
        &self,
        held: &Arc<Held>,
        _session: &Arc<Session>,
        deletion: Deletion,
    ) -> Option<(Deletion, u64)> {
        let leaving = {
            let mut state = self.lock();
            state.last_used = Instant::now();
            state.readers.leave(held.number())
        };
        // No reader joins while a write under the node may still arrive, or if another process has asked for
        // the lock.
        if leaving == Leaving::Stays && (!deletion.hand_over || held.is_revocation_requested()) {
            self.close();
        }
        (leaving != Leaving::Stays).then_some((deletion, held.number()))
    }

    /// A hold leaves the node by the event that ends its use of it: the deletion that it would need, or the
    /// end of the node. Only the anchor has something to do here.
    fn over(&self, number: u64, how: Over) {
        if how == Over::Lost && self.lock().readers.is_anchor(number) {
            self.close();
        }
    }

    fn is_gone(&self) -> bool {
        self.lock().readers.is_gone()
    }

    fn gone(&self, node: &Arc<str>) {
        let (told, anchor) = {
            let mut state = self.lock();
            let told = state.readers.gone();
            (told, state.anchor.take())
        };
        if anchor.is_some() {
            self.closed.notify_one();
        }
        for hold in told.iter().filter_map(Weak::upgrade) {
            hold.node_deleted(Arc::clone(node));
        }
    }

    fn take_out(&self, hold: u64) -> bool {
        let (is_alone, anchor) = {
            let mut state = self.lock();
            let is_alone = state.readers.take_out(hold);
            // The node of a reader that has left still belongs to the anchor.
            (is_alone, if state.readers.is_open() { None } else { state.anchor.take() })
        };
        if let Some(anchor) = anchor {
            self.closed.notify_one();
            Self::let_go(&anchor);
        }
        is_alone
    }
}

impl fmt::Debug for SharedReaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedReaders").finish_non_exhaustive()
    }
}

impl fmt::Debug for SharedNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // This omits its readers, of whom there may be thousands.
        f.debug_struct("SharedNode").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use tokio::sync::watch;
    use zookeeper_client as zk;
    use zookeeper_test_server::Server;

    use super::*;
    use crate::error::LostReason;
    use crate::path::LockPath;
    use crate::protocol::hold::HoldState;
    use crate::protocol::lease::LeaseMargin;
    use crate::protocol::node_name::Kind;
    use crate::session::cleanup::{Cleanup, CleanupQueue};
    use crate::session::clock;

    fn shared() -> Arc<SharedReaders> {
        SharedReaders::new(
            SharedRoom::new(HandOff::NONE, false, watch::Sender::default()),
            true,
            HandOff::NONE,
        )
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
            let session = Session::new(1, handle, LeaseMargin::default());
            let (cleanup, queue) = Cleanup::new();
            let scene = Self { session, cleanup, queue };
            scene.renew();
            scene
        }

        /// Nothing else renews the lease, however long a test takes.
        fn renew(&self) {
            self.session.lease().renewed(clock::now());
        }

        fn reader(&self) -> Arc<Held> {
            let directory = LockPath::parse("", "/lock").unwrap();
            let state = HoldState::new("x-__READ__0000000000".into(), Kind::Shared);
            Held::new(&self.session, &self.cleanup, directory, self.cleanup.number(), state)
        }

        /// Returns how many nodes have been left to cleanup.
        fn deleted(&mut self) -> usize {
            std::iter::from_fn(|| self.queue.try_recv().ok()).count()
        }
    }

    /// Its task was paused between the grant and this.
    // Shows: kept-read-node
    #[tokio::test]
    async fn a_reader_that_is_over_already_is_joined_by_nobody() {
        let server = Server::start().unwrap();
        let mut scene = Scene::new(&server).await;
        let readers = shared();
        let reader = scene.reader();
        reader.release(None);
        assert!(readers.share(&reader, &scene.session, (1, 0)).is_none());
        assert!(readers.join(None).is_none(), "its node is on its way out");
        assert_eq!(scene.deleted(), 1);
        // Another one opens its node.
        let reader = scene.reader();
        assert!(readers.share(&reader, &scene.session, (1, 0)).is_some());
        let joined = readers.join(None).unwrap();
        readers.close_any();
        reader.release(None);
        assert_eq!(scene.deleted(), 0, "another reader is inside");
        joined.held.release(None);
        assert_eq!(scene.deleted(), 1);
    }

    /// From health only, also before the task that watches has heard of the doubt.
    #[tokio::test]
    async fn a_reader_joins_neither_in_doubt_of_the_session_nor_of_a_write() {
        let server = Server::start().unwrap();
        let mut scene = Scene::new(&server).await;
        let readers = shared();
        let reader = scene.reader();
        assert!(readers.share(&reader, &scene.session, (1, 0)).is_some());
        let beside = readers.join(None).unwrap();
        reader.begin_write();
        reader.release(None);
        assert!(readers.join(None).is_none(), "a write may still come");
        beside.held.release(None);
        assert_eq!(scene.deleted(), 1);
        let handle = zk::Client::connect(&server.connect_string()).await.unwrap();
        // Never renewed.
        scene.session = Session::new(2, handle, LeaseMargin::default());
        assert!(readers.share(&scene.reader(), &scene.session, (2, 0)).is_some());
        assert!(readers.join(None).is_none(), "the session is in doubt");
    }

    /// Its lease ends while it is upgraded, which is about to find that out.
    // Shows: kept-read-node
    #[tokio::test]
    async fn a_reader_that_has_left_takes_no_node_out() {
        let server = Server::start().unwrap();
        let mut scene = Scene::new(&server).await;
        let readers = shared();
        let reader = scene.reader();
        let node = readers.share(&reader, &scene.session, (1, 0)).unwrap();
        reader.release(None);
        assert!(reader.take_out() && node.is_open(), "it is kept as before");
        node.close();
        assert_eq!(scene.deleted(), 1, "a node without an owner");
        for _ in 0..2_000 {
            scene.renew();
            let readers = shared();
            let reader = scene.reader();
            let _node = readers.share(&reader, &scene.session, (1, 0)).unwrap();
            let both = Barrier::new(2);
            std::thread::scope(|threads| {
                threads.spawn(|| {
                    both.wait();
                    let _ = reader.set_lease(Duration::ZERO);
                });
                both.wait();
                reader.take_out();
            });
            reader.release(None);
            assert_eq!(scene.deleted(), 1, "a node without an owner");
        }
    }

    /// The lease of one ends while it is released: two threads end it, and the node stays the other's.
    // Shows: kept-read-node
    #[tokio::test]
    async fn a_reader_that_is_ended_twice_leaves_its_node_once() {
        let server = Server::start().unwrap();
        let mut scene = Scene::new(&server).await;
        for _ in 0..2_000 {
            scene.renew();
            let readers = shared();
            let reader = scene.reader();
            let _node = readers.share(&reader, &scene.session, (1, 0)).unwrap();
            let short = readers.join(None).unwrap().held;
            readers.close_any();
            let both = Barrier::new(2);
            std::thread::scope(|threads| {
                threads.spawn(|| {
                    both.wait();
                    let _ = short.set_lease(Duration::ZERO);
                });
                both.wait();
                short.release(None);
            });
            assert_eq!(scene.deleted(), 0, "the node of another reader");
            reader.release(None);
            assert_eq!(scene.deleted(), 1);
        }
    }

    /// The bounds hold for readers that come at once, and a time beyond all clocks bounds no less.
    #[tokio::test]
    async fn no_more_readers_join_than_may() {
        let server = Server::start().unwrap();
        let mut scene = Scene::new(&server).await;
        for _ in 0..500 {
            scene.renew();
            let room = SharedRoom::new(HandOff::NONE, false, watch::Sender::default());
            let readers = SharedReaders::new(room, false, HandOff { max: 2, time: Duration::MAX });
            let reader = scene.reader();
            let _node = readers.share(&reader, &scene.session, (1, 0)).unwrap();
            let all = Barrier::new(3);
            let joined: Vec<_> = std::thread::scope(|threads| {
                let join = || {
                    all.wait();
                    readers.join(None)
                };
                let threads: Vec<_> = (0..3).map(|_| threads.spawn(join)).collect();
                threads.into_iter().filter_map(|thread| thread.join().unwrap()).collect()
            });
            assert_eq!(joined.len(), 1);
            for reader in joined.into_iter().map(|joined| joined.held).chain([reader]) {
                reader.release(None);
            }
            assert_eq!(scene.deleted(), 1);
        }
    }

    /// However the threads meet: one that is inside afterwards is told.
    // Shows: kept-read-node
    #[tokio::test]
    async fn a_reader_that_joins_while_the_node_ends_is_told_or_refused() {
        let server = Server::start().unwrap();
        let mut scene = Scene::new(&server).await;
        for _ in 0..500 {
            scene.renew();
            let readers = shared();
            let reader = scene.reader();
            let node = readers.share(&reader, &scene.session, (1, 0)).unwrap();
            let both = Barrier::new(2);
            let joined = std::thread::scope(|threads| {
                threads.spawn(|| {
                    both.wait();
                    reader.node_deleted(reader.name());
                });
                both.wait();
                readers.join(None)
            });
            assert_eq!(reader.lost(), Some(LostReason::NodeDeleted));
            assert!(!node.is_open() && readers.join(None).is_none());
            if let Some(Joined { held, .. }) = joined {
                assert_eq!(held.lost(), Some(LostReason::NodeDeleted));
            }
            assert!(!scene.session.holds.any(), "a hold that was not told");
            reader.release(None);
            assert_eq!(scene.deleted(), 0, "the node is gone");
        }
    }

    /// One thread closes the node while another takes it out: the node is the reader's from then on.
    // Shows: kept-read-node
    #[tokio::test]
    async fn a_node_that_is_taken_out_while_it_is_closed_is_not_deleted() {
        let server = Server::start().unwrap();
        let mut scene = Scene::new(&server).await;
        for _ in 0..500 {
            scene.renew();
            let readers = shared();
            let reader = scene.reader();
            let node = readers.share(&reader, &scene.session, (1, 0)).unwrap();
            let both = Barrier::new(2);
            std::thread::scope(|threads| {
                threads.spawn(|| {
                    both.wait();
                    node.close();
                });
                both.wait();
                assert!(reader.take_out());
            });
            assert_eq!(scene.deleted(), 0, "the node of a reader that has it alone");
            reader.release(None);
            assert_eq!(scene.deleted(), 1);
        }
    }
}
