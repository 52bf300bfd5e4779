//! How a contender gets a place: the right to one of the nodes that a client may have below a path.

use std::sync::Arc;

use super::lock_options::Recipe;
use super::look::{Sight, busy};
use super::path_lock::{Admission, Budget, PathLock};
use super::places::{Census, Place};
use super::progress::Ahead;
use crate::error::{AcquireError, TryLockError};
use crate::protocol::node_name::Kind;

/// A place in the queue of this client, in order of arrival.
pub(crate) async fn enter(
    path_lock: &Arc<PathLock>,
    kind: Kind,
    budget: Budget,
    admission: Admission,
) -> Result<Arc<Place>, TryLockError> {
    if let Some(place) = path_lock.places().try_take(kind) {
        return Ok(place);
    }
    if path_lock.options().recipe == Recipe::FairLock && admission == Admission::First {
        let (path, max) = (path_lock.path().user().to_owned(), path_lock.options().max_nodes);
        return Err(AcquireError::TooManyWaiters { path, max }.into());
    }
    let place = async {
        match path_lock.places().take(kind).await {
            Some(place) => Ok(place),
            None => Err(path_lock.client().why_ended(path_lock.path()).into()),
        }
    };
    let Budget::Try { .. } = budget else { return place.await };
    tokio::select! {
        biased;
        place = place => place,
        denied = denied(path_lock, kind) => Err(denied),
    }
}

/// Resolves when one that only asks cannot have the lock, as far as can be told without a place.
async fn denied(path_lock: &Arc<PathLock>, kind: Kind) -> TryLockError {
    let mut census = path_lock.places().census();
    let mut asked = None;
    loop {
        // While all places are being cleaned up, it may be that no process has the lock; the deadline is the caller's.
        let new = |census: &Census| {
            let those = census.in_the_way(kind);
            those.now > 0 && asked != Some(those.ever)
        };
        let Ok(those) = census.wait_for(new).await.map(|census| census.in_the_way(kind)) else {
            // Not the census, which lives as long as the path lock, ends the wait.
            return std::future::pending().await;
        };
        if kind == Kind::Exclusive {
            return path_lock.would_block(kind, Ahead { count: those.now, first: None });
        }
        // The writer that a reader saw may have gone since. On the heap: those that wait for a place are many.
        match Box::pin(seen_ahead(path_lock, kind)).await {
            Ok(Some(ahead)) => return path_lock.would_block(kind, ahead),
            Ok(None) => asked = Some(those.ever),
            Err(denied) => return denied,
        }
    }
}

/// Whom a newcomer of this kind would have to wait for, by the servers.
async fn seen_ahead(path_lock: &Arc<PathLock>, kind: Kind) -> Result<Option<Ahead>, TryLockError> {
    let session = match path_lock.client().session().await {
        Ok(session) => session,
        Err(no_session) => return Err(no_session.into_error(path_lock.path()).into()),
    };
    Ok(match busy(path_lock, &session, kind).await {
        Sight::Live(ahead) => Some(ahead),
        Sight::Clear | Sight::Leaving(_) => None,
    })
}
