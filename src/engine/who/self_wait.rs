//! The warning of a program that waits for itself: the commonest deadlock is a guard that is kept further up in the
//! same program.

use std::sync::Arc;
use std::time::Duration;

use crate::engine::lock::path_lock::{Ask, Budget, PathLock};
use crate::session::reports::log;

/// How long a call waits for a hold of the same client before that is logged.
const AFTER: Duration = Duration::from_secs(1);

/// Checks a call again that waits without a deadline for a hold of the same client: if it still waits after
/// [`AFTER`], the log names both lines, once for each lock of a client. The call keeps the returned value for
/// as long as it waits.
pub(crate) fn watch(path_lock: &Arc<PathLock>, ask: &Ask) -> Option<Arc<()>> {
    // Other callers of a client may hold permits of a semaphore at the same time. A call with a deadline
    // reports it in its error.
    if !matches!(ask.budget, Budget::Forever) || path_lock.options().semaphore.is_some() {
        return None;
    }
    let holder = path_lock.holder_for(ask.kind)?;
    if !path_lock.begin_self_wait() {
        return None;
    }
    let waiting = Arc::new(());
    let (still_waits, path_lock, client) =
        (Arc::downgrade(&waiting), Arc::downgrade(path_lock), Arc::clone(path_lock.client()));
    let (kind, asked_at, number) = (ask.kind, ask.location, holder.held.number());
    client.spawn(async move {
        tokio::time::sleep(AFTER).await;
        let Some(path_lock) = path_lock.upgrade() else { return };
        let holder = path_lock.holder_for(kind).filter(|holder| holder.held.number() == number);
        match holder.filter(|_| still_waits.strong_count() > 0) {
            Some(holder) => {
                let (path, held_at) = (path_lock.path().user(), holder.location);
                log::warn!(
                    path,
                    %held_at,
                    %asked_at,
                    "a call waits for a lock that this client itself holds"
                );
            }
            None => path_lock.end_self_wait(),
        }
    });
    Some(waiting)
}
