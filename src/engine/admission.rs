//! How an attempt gets a place: the right to one node (docs/protocol.md#places).

use std::sync::Arc;

use tokio::sync::oneshot;

use super::look::look_before_try;
use super::observe;
use super::path_lock::{Admission, Ask, Budget, PathLock};
use super::shared_queue::Place;
use crate::error::{AcquireError, TryLockError};
use crate::protocol::late::Ahead;
use crate::protocol::local_queue::{Arrival, Newcomer, Notice, Wish};
use crate::protocol::node_name::Kind;

/// Waits for a place, in order of arrival. A try waits only while no live contender is in its way: while
/// cleanup has all the places, the lock may be free.
pub(crate) async fn enter(
    path_lock: &Arc<PathLock>,
    number: u64,
    ask: &Ask,
) -> Result<Arc<Place>, TryLockError> {
    let Ask { kind, admission, .. } = *ask;
    let (queue, limit) = (path_lock.queue(), path_lock.limit());
    // Its drop tells the queue, however this ends.
    let place = Place::new(queue, number);
    let mut known = None;
    loop {
        let wish = match ask.budget {
            Budget::Try { .. } => Wish::Ask { known },
            Budget::Until { .. } | Budget::Forever => Wish::Join,
        };
        let newcomer = Newcomer { number, limit, kind, again: admission == Admission::Again, wish };
        let (wake, told) = oneshot::channel();
        let in_the_way = match queue.with(|queue| queue.arrive(newcomer, wake)) {
            Arrival::Admitted => return Ok(place),
            Arrival::Refused => {
                let (path, max) = (path_lock.path().user().to_owned(), path_lock.options().node_limit);
                return Err(AcquireError::TooManyWaiters { path, max }.into());
            }
            Arrival::Busy(in_the_way) => in_the_way,
            Arrival::Waits => {
                observe::queued(ask.call, None, || Some(path_lock.census().in_the_way(kind).now));
                match told.await {
                    Ok(Notice::Place) => return Ok(place),
                    Ok(Notice::Busy(in_the_way)) => in_the_way,
                    // `Look` comes only if this wait was replaced or given up, so not while this listens. An
                    // error means that the client has ended.
                    Ok(_) | Err(_) => return Err(path_lock.ended().into()),
                }
            }
        };
        if kind == Kind::Exclusive {
            return Err(path_lock.would_block(kind, Ahead { count: in_the_way.now, first: None }));
        }
        // The writer that a reader saw may be gone. On the heap, because many attempts may be waiting for a
        // place.
        match Box::pin(seen_ahead(path_lock, kind)).await? {
            Some(ahead) => return Err(path_lock.would_block(kind, ahead)),
            None => known = Some(in_the_way.ever),
        }
    }
}

/// Asks the servers for which live contenders a newcomer of this kind would have to wait. `None` if there are
/// none.
async fn seen_ahead(path_lock: &Arc<PathLock>, kind: Kind) -> Result<Option<Ahead>, TryLockError> {
    let session = match path_lock.client().session().await {
        Ok(session) => session,
        Err(no_session) => return Err(path_lock.failed(no_session).into()),
    };
    Ok(look_before_try(path_lock, &session, kind).await.ahead())
}
