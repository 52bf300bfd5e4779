//! An attempt under way, seen from its caller: who may wait for it, look where it stands in the queue, or drop it.

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::oneshot::error::TryRecvError;
use tokio::sync::{oneshot, watch};

use super::driver;
use super::name::Kind;
use super::room::{Denied, Hold, Room};
use crate::client::reaper::{Reaper, Ticket};
use crate::error::AcquireError;

/// How long a position waits for another node where the known one is gone.
const ANOTHER_NODE: Duration = Duration::from_secs(1);

/// How an attempt stands.
#[derive(Clone, Debug, Default)]
pub(crate) struct Progress {
    /// The node that queues.
    pub(crate) node: Option<Arc<str>>,
    /// The live contenders that it has to wait for, by the last list in this session; nothing if there are none, there was
    /// no list, or the one that was waited for has gone since.
    pub(crate) ahead: Option<Ahead>,
    /// What it waits for where there is nobody ahead.
    pub(crate) waits_for: WaitsFor,
}

/// Live contenders that somebody has to wait for.
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
    /// A place in the gate, which the deletion of this many nodes would free.
    Place(usize),
    /// A place in the gate, which live contenders have that are not in the way.
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

/// An attempt under way. Dropping it tells the attempt, which cleans up by itself.
#[derive(Debug)]
pub(crate) struct Pending {
    room: Arc<Room>,
    /// A grant that arrives here and is not taken is a [`Hold`] in a channel: its drop gives the lock back. Nothing once
    /// it was taken.
    granted: Option<oneshot::Receiver<Result<Hold, Denied>>>,
    progress: watch::Receiver<Progress>,
    cancel: CancelOnDrop,
}

impl Pending {
    pub(crate) fn new(
        room: Arc<Room>,
        granted: oneshot::Receiver<Result<Hold, Denied>>,
        progress: watch::Receiver<Progress>,
        cancel: oneshot::Sender<Ticket>,
        number: u64,
    ) -> Self {
        let reaper = room.client().reaper().clone();
        let cancel = CancelOnDrop { cancel: Some(cancel), reaper, number };
        Self { room, granted: Some(granted), progress, cancel }
    }

    /// What has come of it already, once.
    pub(crate) fn result_now(&mut self) -> Option<Result<Hold, Denied>> {
        let result = match self.granted.as_mut()?.try_recv() {
            Ok(result) => result,
            Err(TryRecvError::Empty) => return None,
            // What the attempt ran on is gone.
            Err(TryRecvError::Closed) => Err(Denied::Error(self.closed())),
        };
        self.granted = None;
        self.cancel.disarm();
        Some(result)
    }

    /// Whether its result has been taken.
    pub(crate) fn is_over(&self) -> bool {
        self.granted.is_none()
    }

    /// What came of it, once. Dropping this future does nothing.
    pub(crate) async fn result(&mut self) -> Result<Hold, Denied> {
        let result = match &mut self.granted {
            // An error: what the attempt ran on is gone.
            Some(granted) => granted.await.ok(),
            None => None,
        };
        self.granted = None;
        self.cancel.disarm();
        result.unwrap_or_else(|| Err(Denied::Error(self.closed())))
    }

    /// The same, or nothing after `deadline`. Needs no runtime of the caller's.
    pub(crate) async fn result_until(&mut self, deadline: Instant) -> Option<Result<Hold, Denied>> {
        let room = Arc::clone(&self.room);
        let mut over = pin!(
            room.client().run_while_polled(async move { tokio::time::sleep_until(deadline.into()).await })
        );
        tokio::select! {
            biased;
            result = self.result() => Some(result),
            _ = &mut over => None,
        }
    }

    /// Waits until a node of the attempt is in the queue, or it has ended.
    pub(crate) async fn queued(&mut self) -> Option<Result<Hold, Denied>> {
        let mut progress = self.progress.clone();
        tokio::select! {
            biased;
            result = self.result() => Some(result),
            // An error: it has ended, and has a result.
            Ok(_) = progress.wait_for(|progress| progress.node.is_some()) => None,
        }
    }

    /// How many contenders are before our node; nothing if the attempt has ended.
    pub(crate) async fn position(&self) -> Result<Option<usize>, AcquireError> {
        let (room, mut node) = (Arc::clone(&self.room), self.progress.clone());
        let position = self.room.client().run_while_polled(async move {
            loop {
                // Without a node it is about to get one, in the next session perhaps; the attempt sees to that.
                let queued = node.wait_for(|progress| progress.node.is_some()).await;
                let Ok(name) = queued.map(|progress| progress.node.clone()) else {
                    return Ok(None);
                };
                if let Some(position) = driver::position(&room, name.as_deref().unwrap_or_default()).await? {
                    return Ok(Some(position));
                }
                // Deleted meanwhile: with its session, in which case there will be another in a moment, or by somebody
                // else, of which the attempt hears when it is its turn.
                match tokio::time::timeout(ANOTHER_NODE, node.changed()).await {
                    Ok(Ok(())) => {}
                    Ok(Err(_)) => return Ok(None),
                    Err(_) => {
                        let path = room.path().user().to_owned();
                        return Err(AcquireError::NodeDeleted { path, times: 1 });
                    }
                }
            }
        });
        position.await.unwrap_or(Ok(None))
    }

    /// The error where it is not our turn in time: who was ahead, or what there was no answer to.
    pub(crate) fn late(&self, kind: Kind, asked: Duration, waited: Duration) -> AcquireError {
        let Progress { ahead, waits_for, .. } = self.progress.borrow().clone();
        match ahead.or_else(|| self.room.own_ahead(kind)) {
            Some(ahead) => self.room.timed_out(kind, asked, waited, ahead),
            None => {
                let path = self.room.path().user().to_owned();
                AcquireError::Connection { path, source: Arc::new(NoAnswer { waits_for, waited }) }
            }
        }
    }

    /// The error where nothing else is known.
    pub(crate) fn closed(&self) -> AcquireError {
        self.room.client().why_ended(self.room.path())
    }
}

/// Tells the attempt that its caller has gone.
#[derive(Debug)]
struct CancelOnDrop {
    cancel: Option<oneshot::Sender<Ticket>>,
    reaper: Reaper,
    number: u64,
}

impl CancelOnDrop {
    fn disarm(&mut self) {
        self.cancel = None;
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        if let Some(cancel) = self.cancel.take() {
            // The ticket makes a flush that is called right after this wait for the clean-up. If the attempt has
            // ended already, it comes back and is dropped.
            drop(cancel.send(self.reaper.ticket(self.number)));
        }
    }
}
