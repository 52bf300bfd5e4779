//! The [`LocalQueue`] of one client and path, shared by its attempts: behind a mutex that is held for one
//! decision at a time. Notices are sent after it is unlocked.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::oneshot;
use zookeeper_client as zk;

use crate::protocol::local_queue::{Gone, LocalQueue, Notice, Told};
use crate::protocol::queue::Listing;
use crate::session::contents::directory_watches::DirectoryWatch;
use crate::session::contents::nodes::NodeOwner;

/// A list of the directory, for the attempts that share it.
pub(crate) type ListResult = Result<Listing, zk::Error>;

type AttemptQueue = LocalQueue<oneshot::Sender<Notice>, oneshot::Sender<ListResult>>;

/// The local queue of one client at one path, which a mutex and a fair lock share.
#[derive(Default)]
pub(crate) struct SharedQueue {
    queue: Mutex<AttemptQueue>,
    directory: Arc<DirectoryWatch>,
}

impl SharedQueue {
    /// Runs one decision of the queue, then sends the notices that come of it.
    pub(crate) fn with<T>(&self, decide: impl FnOnce(&mut AttemptQueue) -> T) -> T {
        let (result, Told { notices, no_list }) = {
            let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
            (decide(&mut queue), queue.take_told())
        };
        for (wake, notice) in notices {
            // An error means that the attempt has left, and the queue removes it.
            let _ = wake.send(notice);
        }
        // The drop of the senders tells these attempts that there is no list.
        drop(no_list);
        result
    }

    /// Returns the watch of the directory.
    pub(crate) fn directory(&self) -> &Arc<DirectoryWatch> {
        &self.directory
    }
}

impl fmt::Debug for SharedQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // This omits its attempts, of which there may be thousands.
        f.debug_struct("SharedQueue").finish_non_exhaustive()
    }
}

impl NodeOwner for SharedQueue {
    fn leaves(&self, session: u64, name: &str) {
        self.with(|queue| queue.leaves(session, name));
    }

    fn gone(&self, session: u64, name: &str, how: Gone<'_>) {
        self.with(|queue| queue.gone(session, name, how));
    }

    fn heir(&self, session: u64, name: &str) -> Option<Arc<str>> {
        self.with(|queue| queue.heir(session, name))
    }
}
