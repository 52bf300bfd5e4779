//! The holds of one client's guards, for callers that wait until a lock is held or released, and
//! for the drain of the client. The client's methods use this file. This file sends no request.
//!
//! A wait looks at all holds, and looks again after each change: when a hold is given to a guard or
//! ends (`GuardChanges`), and when the hold that the wait has found is lost. Each wait subscribes
//! to the changes before its first look, so that no change between the look and the wait is missed.

use std::pin::pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::engine::held::LocalOwner;
use crate::engine::lock::path_lock::{Key, PathLock, Registry};
use crate::error::Holding;
use crate::session::core::Core;
use crate::session::supervisor::ConnectionState;
use crate::session::threads::waker;

/// The path locks of a client.
type PathLocks = Registry<Key, PathLock>;

fn path_locks(registry: &PathLocks) -> Vec<Arc<PathLock>> {
    // The handles are dropped after the registry is unlocked: one of them may be the last by then,
    // and its drop locks the registry.
    registry.lock().values().filter_map(Weak::upgrade).collect()
}

/// Returns the holds of this client's guards, by the clock: at this path if one is given, otherwise
/// all.
fn holders(registry: &PathLocks, path: Option<&str>) -> Vec<(Arc<PathLock>, LocalOwner)> {
    let at = |path_lock: &Arc<PathLock>| path.is_none_or(|path| path_lock.path.user() == path);
    let mut found = Vec::new();
    for path_lock in path_locks(registry).into_iter().filter(at) {
        for holder in path_lock.holders().into_iter().filter(LocalOwner::holds) {
            found.push((Arc::clone(&path_lock), holder));
        }
    }
    found
}

/// Returns the holds of this client's guards, by the clock, in the order of the paths, including
/// grants that are not taken yet.
pub(crate) fn holdings(registry: &PathLocks) -> Vec<Holding> {
    let mut all: Vec<_> = holders(registry, None)
        .iter()
        .map(|(path_lock, holder)| holder.as_holding(path_lock.path.user()))
        .collect();
    all.sort_by(|one, other| one.path().cmp(other.path()));
    all
}

/// Waits until a guard of this client holds the lock at `path`. Returns the hold; `None` if the
/// client is closed.
pub(crate) async fn held(core: &Core, registry: &PathLocks, path: &str) -> Option<Holding> {
    let (mut changed, mut states) = (core.guard_changes.watch(), core.watch_state());
    loop {
        // A change after this point causes another look.
        changed.mark_unchanged();
        let found = holders(registry, Some(path));
        // Only a hold that its caller has received counts. Before that, the lock may still be lost,
        // and the call then continues to wait.
        if let Some((_, holder)) = found.iter().find(|(_, holder)| holder.held.is_received()) {
            return Some(holder.as_holding(path));
        }
        // The core has both senders, so neither is ever an error.
        tokio::select! {
            biased;
            _ = waker::contain(changed.changed()) => {}
            _ = waker::contain(states.wait_for(|state| *state == ConnectionState::Closed)) => return None,
        }
    }
}

/// Waits until no guard of this client holds a lock: at `path`, or at all.
pub(crate) async fn released(core: &Core, registry: &PathLocks, path: Option<&str>) {
    let mut changed = core.guard_changes.watch();
    loop {
        changed.mark_unchanged();
        // One hold is waited for at a time. When it is gone, the next look finds another, or none.
        let lost = match holders(registry, path).first() {
            None => return,
            // A loss is waited for separately, because `guard_changes` does not report every loss:
            // for example, not that of a reader whose node other readers keep.
            Some((_, holder)) => holder.held.when_lost(),
        };
        let (mut lost, mut changed) = (
            pin!(waker::contain(lost)),
            pin!(waker::contain(changed.changed())),
        );
        tokio::select! {
            _ = &mut lost => {}
            _ = &mut changed => {}
        }
    }
}

/// Stops this client from granting locks (docs/protocol.md#drain), and waits until its guards have
/// released theirs, for at most `timeout`. Returns the holds that remain then.
pub(crate) async fn drain(
    core: &Arc<Core>,
    registry: &Arc<PathLocks>,
    timeout: Duration,
) -> Vec<Holding> {
    // From now on each call that acquires a lock ends with an error, and a grant that its caller
    // has not seen is given back.
    core.begin_drain();
    // The timer runs on the session's thread, because the caller may have no runtime with timers.
    // The end of the client ends this task too, and then nothing is held.
    let mut over = core
        .tasks
        .start(async move { tokio::time::sleep(timeout).await });
    let mut released = pin!(released(core, registry, None));
    tokio::select! {
        biased;
        () = &mut released => Vec::new(),
        _ = &mut over => holdings(registry),
    }
}
