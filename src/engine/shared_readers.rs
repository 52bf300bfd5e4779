//! The [`Readers`] of one client and read-write lock that share a read node, behind a mutex that is held for one
//! decision at a time.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::engine::held::{Held, InRoom, Over};
use crate::engine::shared_queue::Place;
use crate::protocol::hold::Deletion;
use crate::protocol::readers::{Leaving, Readers};
use crate::session::zk_session::Session;

/// The readers of one client and read-write lock.
#[derive(Default)]
pub(crate) struct SharedReaders {
    state: Mutex<State>,
    /// Wakes the task that watches the open node, when that is closed.
    pub(super) closed: Notify,
}

#[derive(Default)]
struct State {
    readers: Readers,
    /// The anchor of the open node.
    anchor: Option<Anchor>,
}

struct Anchor {
    held: Arc<Held>,
    token: (i64, u64),
    last_used: Instant,
}

/// Another hold of the open node.
pub(super) struct Joined {
    pub(super) held: Arc<Held>,
    pub(super) session: Arc<Session>,
    pub(super) token: (i64, u64),
}

impl SharedReaders {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the node of a granted reader shared from here on. Returns the number of its anchor; `None` if another
    /// node is open, or the reader is over already.
    pub(super) fn open(
        self: &Arc<Self>,
        reader: &Arc<Held>,
        session: &Arc<Session>,
        token: (i64, u64),
    ) -> Option<u64> {
        let number = reader.next_number();
        let anchor = {
            let mut state = self.lock();
            if !state.readers.open(reader.number(), number) {
                return None;
            }
            reader.enter(&(Arc::clone(self) as Arc<dyn InRoom>));
            // What ends the reader from here on comes to this, and waits for the mutex. If it has ended before,
            // its node may be on its way out: no other may join it.
            if reader.is_lost_or_released() {
                state.readers.take_out(reader.number());
                return None;
            }
            let held = reader.heir(session, number, None, None);
            state.anchor = Some(Anchor { held: Arc::clone(&held), token, last_used: Instant::now() });
            held
        };
        // Its session has ended before it was registered.
        if anchor.is_lost_or_released() {
            self.close(number);
        }
        Some(number)
    }

    /// Returns another hold of the open node. `None` if no node is open, or it is
    /// not certain that the servers keep it.
    pub(super) fn join(&self, lease: Option<Duration>) -> Option<Joined> {
        let (anchor, token) = {
            let state = self.lock();
            let anchor = state.anchor.as_ref()?;
            (Arc::clone(&anchor.held), anchor.token)
        };
        let Some(session) = anchor.session().filter(|session| session.is_healthy()) else {
            self.close(anchor.number());
            return None;
        };
        let number = anchor.next_number();
        let reader = {
            let mut state = self.lock();
            let is_open = state.anchor.as_ref().is_some_and(|open| Arc::ptr_eq(&open.held, &anchor));
            if !is_open || !state.readers.join(number) {
                return None;
            }
            if let Some(anchor) = &mut state.anchor {
                anchor.last_used = Instant::now();
            }
            anchor.heir(&session, number, None, None)
        };
        // Its session has ended before it was registered.
        if reader.is_lost_or_released() {
            reader.release(None);
            return None;
        }
        if let Some(lease) = lease {
            // What it returns, the caller finds out.
            let _ = reader.extend(lease);
        }
        Some(Joined { held: reader, session, token })
    }

    /// Closes the node with this anchor, if it is open: it goes with its last reader.
    pub(super) fn close(&self, anchor: u64) {
        let (leaving, anchor) = {
            let mut state = self.lock();
            let leaving = state.readers.close(anchor);
            (leaving, if leaving == Leaving::NotShared { None } else { state.anchor.take() })
        };
        if let Some(Anchor { held, .. }) = anchor {
            self.closed.notify_one();
            match leaving {
                Leaving::Last => held.release(None),
                Leaving::Stays | Leaving::NotShared => Self::let_go(&held),
            }
        }
    }

    /// Ends an anchor without a deletion: its node is others'.
    fn let_go(anchor: &Arc<Held>) {
        drop(anchor.take_back());
        if let Some(session) = anchor.session() {
            anchor.let_go(&session);
        }
    }

    /// Closes the open node.
    pub(super) fn close_any(&self) {
        let anchor = self.lock().anchor.as_ref().map(|anchor| anchor.held.number());
        if let Some(anchor) = anchor {
            self.close(anchor);
        }
    }

    /// Returns whether the node with this anchor is open.
    pub(super) fn is_open(&self, anchor: u64) -> bool {
        self.lock().anchor.as_ref().is_some_and(|open| open.held.number() == anchor)
    }

    /// Returns how long it is until the open node has not been used for `idle`.
    pub(super) fn idle_left(&self, idle: Duration) -> Duration {
        let state = self.lock();
        match &state.anchor {
            Some(anchor) if !state.readers.is_in_use() => idle.saturating_sub(anchor.last_used.elapsed()),
            _ => idle,
        }
    }

    /// Takes a reader's node out of the shared ones, for a conversion. Returns `false` if other readers share
    /// it.
    pub(super) fn take_out(&self, reader: &Held) -> bool {
        let (is_alone, anchor) = {
            let mut state = self.lock();
            let is_open = state.readers.anchor_of(reader.number()).is_some();
            let is_alone = state.readers.take_out(reader.number());
            (is_alone, if is_alone && is_open { state.anchor.take() } else { None })
        };
        if let Some(Anchor { held, .. }) = anchor {
            self.closed.notify_one();
            Self::let_go(&held);
        }
        is_alone
    }
}

impl InRoom for SharedReaders {
    fn is_shared(&self) -> bool {
        true
    }

    fn pass_on(
        &self,
        held: &Arc<Held>,
        _session: &Arc<Session>,
        deletion: Deletion<Arc<Place>>,
    ) -> Option<(Deletion<Arc<Place>>, u64)> {
        let (leaving, anchor) = {
            let mut state = self.lock();
            let anchor = state.readers.anchor_of(held.number());
            let leaving = state.readers.leave(held.number());
            if let Some(open) = state.anchor.as_mut().filter(|_| anchor.is_some()) {
                open.last_used = Instant::now();
            }
            (leaving, anchor)
        };
        // In doubt whether a write under it is still to come, and where another process has asked for the lock,
        // no reader joins.
        let closes = !deletion.hand_over || held.is_revocation_requested();
        if let Some(anchor) = anchor.filter(|_| leaving == Leaving::Stays && closes) {
            self.close(anchor);
        }
        (leaving != Leaving::Stays).then_some((deletion, held.number()))
    }

    fn over(&self, number: u64, how: Over) {
        let anchor = {
            let state = self.lock();
            let is_anchor = state.anchor.as_ref().is_some_and(|anchor| anchor.held.number() == number);
            state.readers.anchor_of(number).filter(|_| how == Over::Gone || is_anchor)
        };
        if let Some(anchor) = anchor {
            self.close(anchor);
        }
        if how == Over::Released {
            self.lock().readers.leave(number);
        }
    }
}

impl fmt::Debug for SharedReaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedReaders").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use zookeeper_client as zk;
    use zookeeper_test_server::Server;

    use super::*;
    use crate::path::LockPath;
    use crate::protocol::hold::HoldState;
    use crate::protocol::lease::Margin;
    use crate::protocol::node_name::Kind;
    use crate::session::cleanup::{Cleanup, CleanupQueue};
    use crate::session::clock;

    /// A session with a valid lease, and what is left to its cleanup.
    struct Scene {
        session: Arc<Session>,
        cleanup: Cleanup,
        queue: CleanupQueue,
    }

    impl Scene {
        async fn new(server: &Server) -> Self {
            let handle = zk::Client::connect(&server.connect_string()).await.unwrap();
            let session = Session::new(1, handle, Margin::default());
            session.lease().renewed(clock::now());
            let (cleanup, queue) = Cleanup::new();
            Self { session, cleanup, queue }
        }

        fn reader(&self) -> Arc<Held> {
            let directory = LockPath::parse("", "/lock").unwrap();
            let state = HoldState::new("x-__READ__0000000000".into(), Kind::Shared, None);
            Held::new(&self.session, &self.cleanup, directory, self.cleanup.number(), state)
        }

        /// Returns how many nodes have been left to cleanup.
        fn deleted(&mut self) -> usize {
            std::iter::from_fn(|| self.queue.try_recv().ok()).count()
        }
    }

    /// Its task was paused between the grant and this.
    #[tokio::test]
    async fn a_reader_that_is_over_already_is_joined_by_nobody() {
        let server = Server::start().unwrap();
        let mut scene = Scene::new(&server).await;
        let readers = Arc::new(SharedReaders::default());
        let reader = scene.reader();
        reader.release(None);
        assert_eq!(readers.open(&reader, &scene.session, (1, 0)), None);
        assert!(readers.join(None).is_none(), "its node is on its way out");
        assert_eq!(scene.deleted(), 1);
        // Another one opens its node.
        let reader = scene.reader();
        assert!(readers.open(&reader, &scene.session, (1, 0)).is_some());
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
        let readers = Arc::new(SharedReaders::default());
        let reader = scene.reader();
        assert!(readers.open(&reader, &scene.session, (1, 0)).is_some());
        let beside = readers.join(None).unwrap();
        reader.begin_write();
        reader.release(None);
        assert!(readers.join(None).is_none(), "a write may still come");
        beside.held.release(None);
        assert_eq!(scene.deleted(), 1);
        let handle = zk::Client::connect(&server.connect_string()).await.unwrap();
        // Never renewed.
        scene.session = Session::new(2, handle, Margin::default());
        assert!(readers.open(&scene.reader(), &scene.session, (2, 0)).is_some());
        assert!(readers.join(None).is_none(), "the session is in doubt");
    }

    /// One thread closes the node while another takes it out: the node is the reader's from then on.
    #[tokio::test]
    async fn a_node_that_is_taken_out_while_it_is_closed_is_not_deleted() {
        let server = Server::start().unwrap();
        let mut scene = Scene::new(&server).await;
        for _ in 0..500 {
            let readers = Arc::new(SharedReaders::default());
            let reader = scene.reader();
            let anchor = readers.open(&reader, &scene.session, (1, 0)).unwrap();
            let both = Barrier::new(2);
            std::thread::scope(|threads| {
                threads.spawn(|| {
                    both.wait();
                    readers.close(anchor);
                });
                both.wait();
                assert!(readers.take_out(&reader));
            });
            assert_eq!(scene.deleted(), 0, "the node of a reader that has it alone");
            reader.release(None);
            assert_eq!(scene.deleted(), 1);
        }
    }
}
