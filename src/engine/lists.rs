//! One list of a directory for all contenders of a path lock that need one at the same time.
//!
//! A list counts only for nodes that were created before it was sent. So whoever asks has sent its create already, and
//! gets the next list that is sent after that: never one that is under way. One is under way at a time, so that however
//! many arrive, the servers and the memory see no more than a list per round trip.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;
use zookeeper_client as zk;

use crate::engine::path_lock::PathLock;
use crate::engine::requests::list_alone;
use crate::protocol::queue::Listing;
use crate::session::zk_session::Session;

type Result = std::result::Result<Listing, zk::Error>;

/// The lists of one path lock.
#[derive(Debug, Default)]
pub(crate) struct SharedLists {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The session that is being asked in; later ones replace it.
    session: u64,
    /// A task of that session is at work, and looks for those that wait when its list is there.
    running: bool,
    waiting: Vec<oneshot::Sender<Result>>,
}

impl SharedLists {
    /// Asks for a list that is sent after this call. The future needs no polling for that.
    pub(super) fn ask(
        &self,
        path_lock: &Arc<PathLock>,
        session: &Arc<Session>,
    ) -> impl Future<Output = Result> + use<> {
        let (asked, list) = oneshot::channel();
        let start = {
            let mut state = self.lock();
            if session.number() > state.session {
                // Those of the older session start again in this one.
                *state = State { session: session.number(), ..State::default() };
            }
            if session.number() == state.session {
                state.waiting.push(asked);
                !std::mem::replace(&mut state.running, true)
            } else {
                false
            }
        };
        if start {
            path_lock.client().spawn(run(Arc::clone(path_lock), Arc::clone(session)));
        }
        // Nobody answers where the session is over.
        async move { list.await.unwrap_or(Err(zk::Error::ConnectionLoss)) }
    }

    /// Those to send a list for now; nothing if there are none, or a later session has taken over.
    fn take(&self, session: &Session) -> Option<Vec<oneshot::Sender<Result>>> {
        let mut state = self.lock();
        if state.session != session.number() {
            return None;
        }
        // Those that went away need no list.
        state.waiting.retain(|asked| !asked.is_closed());
        state.running = !state.waiting.is_empty();
        state.running.then(|| std::mem::take(&mut state.waiting))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The task that lists. Should it be dropped at work, by a panic of a tracing subscriber, those that wait start again, and
/// the next one that asks starts another.
struct Running<'a> {
    lists: &'a SharedLists,
    session: u64,
    at_work: bool,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if !self.at_work {
            return;
        }
        let mut state = self.lists.lock();
        if state.session == self.session {
            *state = State { session: self.session, ..State::default() };
        }
    }
}

/// Lists for as long as somebody asks. Runs where the session runs, so that nobody who goes away takes the others' list
/// along.
async fn run(path_lock: Arc<PathLock>, session: Arc<Session>) {
    let Some(lists) = path_lock.lists() else { return };
    let mut running = Running { lists, session: session.number(), at_work: true };
    while let Some(waiting) = lists.take(&session) {
        let (path_lock, session) = (&path_lock, &session);
        // Sent here, after all that those who wait have sent.
        let list = session.request(|handle| async move { list_alone(path_lock, session, &handle).await });
        let result = list.await.unwrap_or(Err(zk::Error::ConnectionLoss));
        for asked in waiting {
            // One that does not wait any more.
            let _ = asked.send(result.clone());
        }
    }
    // Another task may be at work already.
    running.at_work = false;
}
