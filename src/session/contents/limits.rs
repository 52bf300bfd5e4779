//! Limits how much a session watches (docs/protocol.md#watch-limit), and how many of its requests
//! are unanswered (docs/protocol.md#request-window). Also reads with a watch, and waits for
//! watches.
//!
//! After a reconnect, `zookeeper-client` 0.11.2 sets its watches again in requests of at most 128
//! KiB of paths, all with the same request number. On a second such request it drops the
//! connection, and does so on every reconnect until the session expires. So the paths that a
//! session watches always fit into one request. The client library sets each path again once for
//! each kind of watch: of the data, of the children, of the existence. A path with two kinds has to
//! count twice, so a group counts the watch of its children by a separate path.
//!
//! A session's requests are answered in order, so a heartbeat waits for every request that was sent
//! before it. Without a limit on the unanswered requests, three thousand waiters of one lock, whose
//! requests were sent at once, made their process lose another lock.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use zookeeper_client as zk;

use crate::session::threads::mutex::Mutex;

/// The limit on the size of the watched server paths, each with four bytes for its length. The
/// limit is below 128 KiB, which leaves room for watches that have fired or been dropped but that
/// the client library still keeps.
const MAX_BYTES: usize = 120 * 1024;

/// The purpose of a watch.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum WatchUse {
    /// To wait for a predecessor. Without it an attempt cannot wait.
    Queue,
    /// To notice a requested revocation. Refused once all watches of the session have half of the
    /// bytes, since a holder can poll instead.
    Revocation,
    /// To notice that a lock's directory is removed. Refused once all watches of the session have a
    /// quarter of the bytes, since an attempt can list instead.
    Directory,
    /// To notice changes of a persistent node, or of a directory's children. Refused once all
    /// watches of the session have half of the bytes, since the node can be polled instead.
    Node,
}

/// The watches of one session, counted against the limit.
#[derive(Default)]
pub(crate) struct WatchLimit {
    paths: Mutex<Watched>,
}

#[derive(Default)]
struct Watched {
    bytes: usize,
    /// The number of waiters that watch each path. The session has one watch for all of them.
    count: BTreeMap<Arc<str>, usize>,
}

/// Counts one watch until this is dropped.
pub(crate) struct Watching {
    limit: Arc<WatchLimit>,
    path: Arc<str>,
}

impl WatchLimit {
    /// Counts a watch on `path`. Returns `None` if the watch would exceed the limit.
    pub(crate) fn watch(self: &Arc<Self>, path: &str, use_of: WatchUse) -> Option<Watching> {
        let max_bytes = match use_of {
            WatchUse::Queue => MAX_BYTES,
            WatchUse::Revocation | WatchUse::Node => MAX_BYTES / 2,
            WatchUse::Directory => MAX_BYTES / 4,
        };
        let mut watched = self.paths.lock();
        let path = match watched.count.get_key_value(path) {
            // The path is watched already, and a second watch of it adds nothing to the request. So
            // it is allowed even if its use would be refused a new path.
            Some((path, _)) => Arc::clone(path),
            None => {
                let bytes = watched.bytes + cost(path);
                if bytes > max_bytes {
                    return None;
                }
                watched.bytes = bytes;
                path.into()
            }
        };
        *watched.count.entry(Arc::clone(&path)).or_default() += 1;
        Some(Watching {
            limit: Arc::clone(self),
            path,
        })
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        // The client library may keep the path a little longer, until it has handled the drop of
        // its watcher. `MAX_BYTES` leaves room for that.
        let mut watched = self.limit.paths.lock();
        if let Some(count) = watched.count.get_mut(&self.path) {
            *count -= 1;
            if *count == 0 {
                watched.count.remove(&self.path);
                watched.bytes = watched.bytes.saturating_sub(cost(&self.path));
            }
        }
    }
}

/// Waits for the event of a watch. `None` if the task that serves the session dies, in which case
/// the library panics (docs/protocol.md#session-end).
pub(crate) async fn watch_event(watcher: zk::OneshotWatcher) -> Option<zk::WatchedEvent> {
    // The client library panics in the poll in which it finds that its task has died. The caller
    // treats the missing event as a failure, which ends the session, and continues in the next one.
    let mut event = pin!(watcher.changed());
    poll_fn(
        |context| match catch_unwind(AssertUnwindSafe(|| event.as_mut().poll(context))) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(event)) => Poll::Ready(Some(event)),
            Err(_) => Poll::Ready(None),
        },
    )
    .await
}

/// Reads a node, with a watch if the session has room for one.
pub(crate) async fn read_and_watch(
    handle: &zk::Client,
    path: &str,
    watch: bool,
) -> Result<(Vec<u8>, zk::Stat, Option<zk::OneshotWatcher>), zk::Error> {
    if watch {
        let (data, stat, watcher) = handle.get_and_watch_data(path).await?;
        return Ok((data, stat, Some(watcher)));
    }
    handle
        .get_data(path)
        .await
        .map(|(data, stat)| (data, stat, None))
}

/// Waits for the [event](watch_event) of a watch or, if there was no room for one, for the duration
/// `poll`.
pub(crate) async fn changed_or_after(watcher: Option<zk::OneshotWatcher>, poll: Duration) {
    match watcher {
        // The kind of the event does not matter, because the caller reads the node again.
        Some(watcher) => drop(watch_event(watcher).await),
        None => tokio::time::sleep(poll).await,
    }
}

fn cost(path: &str) -> usize {
    path.len() + 4
}

/// A limit on the unanswered requests of one kind. Requests that find no free slot wait for one, in
/// order of arrival.
pub(crate) struct Window(Arc<Semaphore>);

/// The permission to have one request unanswered, until its answer or the end of the session.
#[must_use]
pub(crate) struct WindowSlot {
    _permit: Option<OwnedSemaphorePermit>,
}

impl Window {
    /// The size of a window: large enough that a full window costs little more than one round trip,
    /// and small enough that a heartbeat behind it is in time.
    const SIZE: usize = 64;

    /// Waits for a slot.
    pub(crate) async fn slot(&self) -> WindowSlot {
        // An error is impossible: the semaphore is never closed.
        WindowSlot {
            _permit: Arc::clone(&self.0).acquire_owned().await.ok(),
        }
    }
}

impl Default for Window {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(Self::SIZE)))
    }
}

/// The windows of one session.
#[derive(Default)]
pub(crate) struct Windows {
    /// Creates of attempts' nodes.
    pub(crate) creates: Window,
    /// Deletions of nodes that hold a lock, or held one: other contenders wait for them.
    pub(crate) releases: Window,
    /// All other deletions.
    pub(crate) removals: Window,
}

#[cfg(test)]
mod tests {
    use super::*;

    // Shows: watch-limit
    #[test]
    fn path_counts_until_last_watch_ends() {
        let limit = Arc::new(WatchLimit::default());
        let path = "/".repeat(MAX_BYTES - 4);
        let first = limit.watch(&path, WatchUse::Queue).unwrap();
        let second = limit.watch(&path, WatchUse::Queue).unwrap();
        drop(first);
        assert!(limit.watch("/", WatchUse::Queue).is_none());
        drop(second);
        assert!(limit.watch("/", WatchUse::Queue).is_some());
        assert_eq!(limit.paths.lock().bytes, 0);
    }

    // Shows: watch-limit
    #[test]
    fn revocation_gives_way_first() {
        let limit = Arc::new(WatchLimit::default());
        let half = "/".repeat(MAX_BYTES / 2);
        let _waiter = limit.watch(&half, WatchUse::Queue).unwrap();
        assert!(limit.watch("/a", WatchUse::Revocation).is_none());
        assert!(limit.watch("/a", WatchUse::Queue).is_some());
    }

    // Shows: watch-limit
    #[test]
    fn directories_give_way_before_revocation() {
        let limit = Arc::new(WatchLimit::default());
        let quarter = "/".repeat(MAX_BYTES / 4);
        let _waiter = limit.watch(&quarter, WatchUse::Queue).unwrap();
        assert!(limit.watch("/a", WatchUse::Directory).is_none());
        assert!(limit.watch("/a", WatchUse::Revocation).is_some());
    }
}
