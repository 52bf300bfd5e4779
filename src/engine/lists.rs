//! One list of a directory for all contenders of a path lock that need one at the same time.
//!
//! A list counts only for nodes that were created before it was sent (docs/protocol.md#create-and-list). So a contender
//! sends its create first, and gets the next list that is sent after that: never one that is under way. One is under way
//! at a time, so that however many arrive, the servers and the memory see no more than a list per round trip.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;
use zookeeper_client as zk;

use crate::protocol::queue::Listing;
use crate::session::core::Core;

type Result = std::result::Result<Listing, zk::Error>;

/// The lists of one path lock.
#[derive(Debug, Default)]
pub(crate) struct SharedLists {
    state: Arc<Mutex<State>>,
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
    /// Returns a list that is sent after this call, by `list`, in the session of this number. The future needs no polling
    /// for that.
    pub(super) fn ask<L, F>(
        &self,
        client: &Core,
        session: u64,
        list: L,
    ) -> impl Future<Output = Result> + use<L, F>
    where
        L: Fn() -> F + Send + 'static,
        F: Future<Output = Result> + Send + 'static,
    {
        let (asked, answer) = oneshot::channel();
        let start = {
            let mut state = lock(&self.state);
            if session > state.session {
                // Those of the older session start again in this one.
                *state = State { session, ..State::default() };
            }
            if session == state.session {
                state.waiting.push(asked);
                !std::mem::replace(&mut state.running, true)
            } else {
                false
            }
        };
        if start {
            client.spawn(run(Arc::clone(&self.state), session, list));
        }
        // There is no answer where the session is over.
        async move { answer.await.unwrap_or(Err(zk::Error::ConnectionLoss)) }
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns those to send a list for now; `None` if there are none, or a later session has taken over.
fn take(state: &Mutex<State>, session: u64) -> Option<Vec<oneshot::Sender<Result>>> {
    let mut state = lock(state);
    if state.session != session {
        return None;
    }
    // Those that went away need no list.
    state.waiting.retain(|asked| !asked.is_closed());
    state.running = !state.waiting.is_empty();
    state.running.then(|| std::mem::take(&mut state.waiting))
}

/// The task that lists. Should it be dropped at work, by a panic of a tracing subscriber, those that wait start again, and
/// the next one that asks starts another.
struct Running {
    state: Arc<Mutex<State>>,
    session: u64,
    at_work: bool,
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.at_work {
            return;
        }
        let mut state = lock(&self.state);
        if state.session == self.session {
            *state = State { session: self.session, ..State::default() };
        }
    }
}

/// Lists for as long as a contender asks. Runs where the session runs, so that one that goes away does not take the
/// others' list along.
async fn run<F>(state: Arc<Mutex<State>>, session: u64, list: impl Fn() -> F + Send)
where
    F: Future<Output = Result> + Send,
{
    let mut running = Running { state, session, at_work: true };
    while let Some(waiting) = take(&running.state, session) {
        // Sent here, after all that those who wait have sent.
        let result = list().await;
        for asked in waiting {
            // One that does not wait any more.
            let _ = asked.send(result.clone());
        }
    }
    // Another task may be at work already.
    running.at_work = false;
}
