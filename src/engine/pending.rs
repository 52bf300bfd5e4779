//! An attempt under way, seen from its caller: who may wait for it, look where it stands in the queue, or drop it.

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::oneshot::error::TryRecvError;
use tokio::sync::{oneshot, watch};

use super::driver;
use super::room::{Denied, Hold, Room};
use crate::client::reaper::{Reaper, Ticket};
use crate::error::AcquireError;

/// How long a position waits for another node where the known one is gone.
const ANOTHER_NODE: Duration = Duration::from_secs(1);

/// An attempt under way. Dropping it tells the attempt, which cleans up by itself.
#[derive(Debug)]
pub(crate) struct Pending {
    room: Arc<Room>,
    /// A grant that arrives here and is not taken is a [`Hold`] in a channel: its drop gives the lock back. Nothing once
    /// it was taken.
    granted: Option<oneshot::Receiver<Result<Hold, Denied>>>,
    /// The node that queues.
    node: watch::Receiver<Option<Arc<str>>>,
    cancel: CancelOnDrop,
}

impl Pending {
    pub(crate) fn new(
        room: Arc<Room>,
        granted: oneshot::Receiver<Result<Hold, Denied>>,
        node: watch::Receiver<Option<Arc<str>>>,
        cancel: oneshot::Sender<Ticket>,
        number: u64,
    ) -> Self {
        let reaper = room.client().reaper().clone();
        let cancel = CancelOnDrop { cancel: Some(cancel), reaper, number };
        Self { room, granted: Some(granted), node, cancel }
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
        let mut node = self.node.clone();
        tokio::select! {
            biased;
            result = self.result() => Some(result),
            // An error: it has ended, and has a result.
            Ok(_) = node.wait_for(Option::is_some) => None,
        }
    }

    /// How many contenders are before our node; nothing if the attempt has ended.
    pub(crate) async fn position(&self) -> Result<Option<usize>, AcquireError> {
        let (room, mut node) = (Arc::clone(&self.room), self.node.clone());
        let position = self.room.client().run_while_polled(async move {
            loop {
                // Without a node it is about to get one, in the next session perhaps; the attempt sees to that.
                let Ok(name) = node.wait_for(Option::is_some).await.map(|name| name.clone()) else {
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
