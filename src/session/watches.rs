//! How much one session may watch.
//!
//! After a reconnect `zookeeper-client` 0.11.2 sets its watches again in requests of at most 128 KiB of paths, all with
//! the same number: a second one makes it drop the connection, again and again until the session expires. So a session
//! never watches more than fits into one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes of server paths, each with the four bytes of its length: below 128 KiB, with path lock for watches that have fired
/// or been dropped and that the library still knows.
const BUDGET: usize = 120 * 1024;

/// What a watch is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WatchUse {
    /// To wait for a predecessor: without it there is no waiting.
    Queue,
    /// To hear of a request to give a lock back: there are other ways, so these have half of the budget at most.
    Revocation,
}

/// The watches of one session.
#[derive(Debug, Default)]
pub(crate) struct WatchLimit {
    paths: Mutex<Watched>,
}

#[derive(Debug, Default)]
struct Watched {
    bytes: usize,
    /// How many watch each path: the session has one watch for all of them.
    count: HashMap<Arc<str>, usize>,
}

/// One watch, for as long as it lives.
#[derive(Debug)]
pub(crate) struct Watching {
    budget: Arc<WatchLimit>,
    path: Arc<str>,
}

impl WatchLimit {
    /// Counts a watch on `path`; nothing if it does not fit.
    pub(crate) fn watch(self: &Arc<Self>, path: &str, use_of: WatchUse) -> Option<Watching> {
        let limit = match use_of {
            WatchUse::Queue => BUDGET,
            WatchUse::Revocation => BUDGET / 2,
        };
        let mut watched = self.lock();
        let path = match watched.count.get_key_value(path) {
            Some((path, _)) => Arc::clone(path),
            None => {
                let bytes = watched.bytes + cost(path);
                if bytes > limit {
                    return None;
                }
                watched.bytes = bytes;
                path.into()
            }
        };
        *watched.count.entry(Arc::clone(&path)).or_default() += 1;
        Some(Watching { budget: Arc::clone(self), path })
    }

    fn lock(&self) -> MutexGuard<'_, Watched> {
        self.paths.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        let mut watched = self.budget.lock();
        if let Some(count) = watched.count.get_mut(&self.path) {
            *count -= 1;
            if *count == 0 {
                watched.count.remove(&self.path);
                watched.bytes = watched.bytes.saturating_sub(cost(&self.path));
            }
        }
    }
}

fn cost(path: &str) -> usize {
    path.len() + 4
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_counts_once_and_until_its_last_watch_goes() {
        let budget = Arc::new(WatchLimit::default());
        let path = "/".repeat(BUDGET - 4);
        let first = budget.watch(&path, WatchUse::Queue).unwrap();
        let second = budget.watch(&path, WatchUse::Queue).unwrap();
        drop(first);
        assert!(budget.watch("/", WatchUse::Queue).is_none());
        drop(second);
        assert!(budget.watch("/", WatchUse::Queue).is_some());
        assert_eq!(budget.lock().bytes, 0);
    }

    #[test]
    fn revocation_gives_way_first() {
        let budget = Arc::new(WatchLimit::default());
        let half = "/".repeat(BUDGET / 2);
        let _waiter = budget.watch(&half, WatchUse::Queue).unwrap();
        assert!(budget.watch("/a", WatchUse::Revocation).is_none());
        assert!(budget.watch("/a", WatchUse::Queue).is_some());
    }
}
