//! One list of a directory for all contenders of a room that need one at the same time.
//!
//! A list counts only for nodes that were created before it was sent. So whoever asks has sent its create already, and
//! gets the next list that is sent after that: never one that is under way. One is under way at a time, so that however
//! many arrive, the servers and the memory see no more than a list per round trip.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;
use zookeeper_client as zk;

use super::requests::list_alone;
use crate::client::epoch::Epoch;
use crate::engine::queue::Listing;
use crate::engine::room::Room;

type Result = std::result::Result<Listing, zk::Error>;

/// The lists of one room.
#[derive(Debug, Default)]
pub(crate) struct SharedLists {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The epoch that is being asked in; later ones replace it.
    epoch: u64,
    /// A task of that epoch is at work, and looks for those that wait when its list is there.
    running: bool,
    waiting: Vec<oneshot::Sender<Result>>,
}

impl SharedLists {
    /// Asks for a list that is sent after this call. The future needs no polling for that.
    pub(super) fn ask(&self, room: &Arc<Room>, epoch: &Arc<Epoch>) -> impl Future<Output = Result> + use<> {
        let (asked, list) = oneshot::channel();
        let start = {
            let mut state = self.lock();
            if epoch.number() > state.epoch {
                // Those of the older epoch start again in this one.
                *state = State { epoch: epoch.number(), ..State::default() };
            }
            if epoch.number() == state.epoch {
                state.waiting.push(asked);
                !std::mem::replace(&mut state.running, true)
            } else {
                false
            }
        };
        if start {
            room.client().spawn(run(Arc::clone(room), Arc::clone(epoch)));
        }
        // Nobody answers where the epoch is over.
        async move { list.await.unwrap_or(Err(zk::Error::ConnectionLoss)) }
    }

    /// Those to send a list for now; nothing if there are none, or a later epoch has taken over.
    fn take(&self, epoch: &Epoch) -> Option<Vec<oneshot::Sender<Result>>> {
        let mut state = self.lock();
        if state.epoch != epoch.number() {
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
    epoch: u64,
    at_work: bool,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if !self.at_work {
            return;
        }
        let mut state = self.lists.lock();
        if state.epoch == self.epoch {
            *state = State { epoch: self.epoch, ..State::default() };
        }
    }
}

/// Lists for as long as somebody asks. Runs where the session runs, so that nobody who goes away takes the others' list
/// along.
async fn run(room: Arc<Room>, epoch: Arc<Epoch>) {
    let Some(lists) = room.lists() else { return };
    let mut running = Running { lists, epoch: epoch.number(), at_work: true };
    while let Some(waiting) = lists.take(&epoch) {
        let (room, epoch) = (&room, &epoch);
        // Sent here, after all that those who wait have sent.
        let list = epoch.request(|session| async move { list_alone(room, epoch, &session).await });
        let result = list.await.unwrap_or(Err(zk::Error::ConnectionLoss));
        for asked in waiting {
            // One that does not wait any more.
            let _ = asked.send(result.clone());
        }
    }
    // Another task may be at work already.
    running.at_work = false;
}
