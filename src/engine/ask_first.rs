//! The question who is first in a lock's queue, for an error (docs/protocol.md#held-by).

use std::sync::Arc;
use std::time::{Duration, Instant};

use zookeeper_client as zk;

use crate::engine::node_contender::first_contender;
use crate::engine::path_lock::PathLock;
use crate::engine::requests::list_alone;
use crate::session::zk_session::Session;

/// How long before its deadline a call asks at most; it is a quarter of its time if that is less.
const BEFORE: Duration = Duration::from_millis(100);

/// How often one question is asked: if the first has gone, another list shows the next.
const ROUNDS: u32 = 2;

/// When a call with this deadline asks who is first, for the error if it is not granted in time; `None` if its time
/// is too short.
pub(super) fn ask_at(deadline: Instant, asked: Duration) -> Option<Instant> {
    asks_at(deadline, asked).filter(|at| *at > Instant::now())
}

/// Like [`ask_at`], but also returns a moment that has passed: until now this time belonged to another call.
pub(super) fn asks_at(deadline: Instant, asked: Duration) -> Option<Instant> {
    deadline.checked_sub((asked / 4).min(BEFORE))
}

/// Asks who is first, unless that is known or has just been asked. One of many calls that end soon asks for all.
pub(super) fn ask(path_lock: &Arc<PathLock>) {
    let first = path_lock.first_seen();
    // A hold of this client is named by its line.
    if !first.begin() || path_lock.is_first_by_itself() {
        return;
    }
    let Some(session) = path_lock.client().live() else { return };
    let asking = Arc::clone(path_lock);
    path_lock.client().spawn(async move {
        let path_lock = &asking;
        for _ in 0..ROUNDS {
            if path_lock.first_seen().name().is_none() && !list(path_lock, &session).await {
                return;
            }
            let Some(name) = path_lock.first_seen().name() else { return };
            let path = &path_lock.path().child(&name);
            let read = session.request(|handle| async move { handle.get_data(path).await });
            match read.await {
                Ok(Ok(read)) => return know(path_lock, &session, &name, &read),
                Ok(Err(zk::Error::NoNode)) => path_lock.first_seen().gone(&name),
                // It is for a message only.
                _ => return,
            }
        }
    });
}

/// Lists the directory. Returns whether there is an answer.
async fn list(path_lock: &Arc<PathLock>, session: &Arc<Session>) -> bool {
    let list = session.request(|handle| async move { list_alone(path_lock, session, &handle).await });
    let Ok(Ok(Ok(queue))) = list.await else { return false };
    path_lock.first_seen().saw(&queue);
    true
}

/// Records the result of a read of the node `name`.
pub(super) fn know(path_lock: &PathLock, session: &Session, name: &str, (data, stat): &(Vec<u8>, zk::Stat)) {
    if let Some(contender) = first_contender(path_lock, session, name, (data, stat)) {
        path_lock.first_seen().know(contender);
    }
}
