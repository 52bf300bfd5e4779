//! The progress of an attempt, as its caller sees it.

use std::fmt;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

/// The progress of an attempt.
#[derive(Clone, Debug, Default)]
pub(crate) struct Progress {
    /// The name of its node in the queue; `None` while it has none.
    pub(crate) node: Option<Arc<str>>,
    /// The live contenders that it has to wait for, by the last list in this session. `None` if there are
    /// none, if there was no list, or if the one that it waited for is gone.
    pub(crate) ahead: Option<Ahead>,
    /// Whether there ever were any.
    pub(crate) has_waited: bool,
    /// What it waits for if no contender is ahead.
    pub(crate) waits_for: WaitsFor,
}

/// What an attempt and its caller share. Not a watch channel, which is three times as large: thousands of
/// attempts may be waiting.
#[derive(Debug, Default)]
struct Shared {
    known: Mutex<Known>,
    /// Told when the node changes, and at the end.
    changed: Notify,
}

#[derive(Debug, Default)]
struct Known {
    progress: Progress,
    /// Whether the attempt has ended.
    ended: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The attempt's side of its progress.
#[derive(Debug)]
pub(super) struct ProgressSender(Arc<Shared>);

impl ProgressSender {
    pub(super) fn new() -> (Self, ProgressReceiver) {
        let shared = Arc::<Shared>::default();
        (Self(Arc::clone(&shared)), ProgressReceiver(shared))
    }

    pub(super) fn get(&self) -> Progress {
        self.0.lock().progress.clone()
    }

    /// Sets the node in the queue. This is the only change that wakes the caller.
    pub(super) fn set_node(&self, node: Option<&str>) {
        {
            let progress = &mut self.0.lock().progress;
            if progress.node.as_deref() == node {
                return;
            }
            progress.node = node.map(Into::into);
        }
        self.0.changed.notify_waiters();
    }

    pub(super) fn set_ahead(&self, ahead: Option<Ahead>) {
        let progress = &mut self.0.lock().progress;
        progress.has_waited |= ahead.is_some();
        progress.ahead = ahead;
    }

    pub(super) fn set_waits_for(&self, waits_for: WaitsFor) {
        self.0.lock().progress.waits_for = waits_for;
    }
}

impl Drop for ProgressSender {
    fn drop(&mut self) {
        self.0.lock().ended = true;
        self.0.changed.notify_waiters();
    }
}

/// The caller's side of the progress of an attempt.
#[derive(Clone, Debug)]
pub(crate) struct ProgressReceiver(Arc<Shared>);

impl ProgressReceiver {
    pub(super) fn get(&self) -> Progress {
        self.0.lock().progress.clone()
    }

    /// Waits until the attempt has a node. `None` if it ends, or has ended, without one.
    pub(super) async fn node(&self) -> Option<Arc<str>> {
        self.until(|known| known.progress.node.clone()).await
    }

    /// Waits until the attempt has this node no longer. `None` if it ends with it.
    pub(super) async fn left(&self, node: &str) -> Option<()> {
        self.until(|known| (known.progress.node.as_deref() != Some(node)).then_some(())).await
    }

    async fn until<T>(&self, find: impl Fn(&Known) -> Option<T>) -> Option<T> {
        loop {
            let mut changed = pin!(self.0.changed.notified());
            // Before the look, so that a change after it is not missed.
            changed.as_mut().enable();
            let (found, ended) = {
                let known = self.0.lock();
                (find(&known), known.ended)
            };
            if found.is_some() || ended {
                return found;
            }
            changed.await;
        }
    }
}

/// The live contenders that another has to wait for.
#[derive(Clone, Debug)]
pub(crate) struct Ahead {
    pub(crate) count: usize,
    /// The name of the first of their nodes; `None` if it is not known.
    pub(crate) first: Option<Arc<str>>,
}

impl Ahead {
    /// Returns the contenders that are left when one is gone; `None` if that was the last.
    pub(crate) fn without_one(self) -> Option<Self> {
        let count = self.count.checked_sub(1).filter(|count| *count > 0)?;
        Some(Self { count, ..self })
    }
}

/// What an attempt waits for, other than another contender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum WaitsFor {
    #[default]
    Session,
    /// A place, which the deletion of any of this many nodes would free.
    Place(usize),
    /// A place: all are taken by live contenders that are not in the way.
    Others,
    Parents,
    Create,
    List,
    /// The deletion of an earlier node of this client.
    Deletion,
    /// A renewal of the lease.
    Renewal,
    /// The leases of a semaphore.
    Leases,
    /// The transaction by which permits are taken.
    Permits,
}

impl fmt::Display for WaitsFor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Session => "no session",
            Self::Place(1) => return f.write_str("no answer to the deletion of this client's last node, which has its place"),
            Self::Place(nodes) => {
                return write!(f, "no answer to the deletions of {nodes} earlier nodes of this client, which have all its places");
            }
            Self::Others => "no answer to this client's other contenders, which have all its places",
            Self::Parents => "no answer to the creation of the lock's directory",
            Self::Create => "no answer to the creation of the lock node",
            Self::List => "no answer to the list of the lock's directory",
            Self::Deletion => "no answer to the deletion of an earlier node of this client",
            Self::Leases => "no answer to the question how many permits are free",
            Self::Permits => "no answer to the transaction that takes the permits",
            Self::Renewal => "no confirmation that the servers keep the session",
        })
    }
}

/// The deadline has passed, and no live contender was seen ahead.
#[derive(Debug, thiserror::Error)]
#[error("{waits_for} within {waited:?}")]
pub(crate) struct NoAnswer {
    pub(crate) waits_for: WaitsFor,
    pub(crate) waited: Duration,
}
