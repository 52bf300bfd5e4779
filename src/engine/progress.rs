//! How an attempt stands, as its caller sees it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

/// How an attempt stands.
#[derive(Clone, Debug, Default)]
pub(crate) struct Progress {
    /// The node that queues.
    pub(crate) node: Option<Arc<str>>,
    /// The live contenders that it has to wait for, by the last list in this session; nothing if there are
    /// none, there was no list, or the one that was waited for has gone since.
    pub(crate) ahead: Option<Ahead>,
    /// What it waits for if no contender is ahead.
    pub(crate) waits_for: WaitsFor,
}

/// The attempt's end of it.
#[derive(Debug)]
pub(super) struct ProgressSender(watch::Sender<Progress>);

impl ProgressSender {
    pub(super) fn new() -> (Self, watch::Receiver<Progress>) {
        let (progress, seen) = watch::channel(Progress::default());
        (Self(progress), seen)
    }

    pub(super) fn get(&self) -> Progress {
        self.0.borrow().clone()
    }

    /// Our node is in the queue, by this name, or is not any more: the one change that is waited for.
    pub(super) fn set_node(&self, node: Option<&str>) {
        self.0.send_if_modified(|progress| {
            let changed = progress.node.as_deref() != node;
            if changed {
                progress.node = node.map(Into::into);
            }
            changed
        });
    }

    pub(super) fn set_ahead(&self, ahead: Option<Ahead>) {
        self.0.send_if_modified(|progress| {
            progress.ahead = ahead;
            false
        });
    }

    pub(super) fn set_waits_for(&self, waits_for: WaitsFor) {
        self.0.send_if_modified(|progress| {
            progress.waits_for = waits_for;
            false
        });
    }
}

/// Live contenders that another has to wait for.
#[derive(Clone, Debug)]
pub(crate) struct Ahead {
    pub(crate) count: usize,
    /// The name of the first of their nodes, where it is known.
    pub(crate) first: Option<Arc<str>>,
}

impl Ahead {
    /// Those that are left when the nearest has gone.
    pub(crate) fn without_one(self) -> Option<Self> {
        let count = self.count.checked_sub(1).filter(|count| *count > 0)?;
        Some(Self { count, ..self })
    }
}

/// What an attempt waits for that is not another contender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum WaitsFor {
    #[default]
    Session,
    /// A place, which the deletion of this many nodes would free.
    Place(usize),
    /// A place, which live contenders have that are not in the way.
    Others,
    Parents,
    Create,
    List,
    /// The deletion of a node of this client that is before ours.
    Deletion,
    /// A proof that the servers keep the session.
    Proof,
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
            Self::Proof => "no confirmation that the servers keep the session",
        })
    }
}

/// Nothing was in the way, and the time was over.
#[derive(Debug, thiserror::Error)]
#[error("{waits_for} within {waited:?}")]
pub(crate) struct NoAnswer {
    pub(crate) waits_for: WaitsFor,
    pub(crate) waited: Duration,
}
