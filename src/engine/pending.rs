//! An attempt under way, as its caller has it: to wait for its result or its position in the queue, or to
//! cancel it.

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use tokio::sync::oneshot::error::TryRecvError;

use crate::engine::ask_first;
use crate::engine::cancel::CancelOnDrop;
use crate::engine::hold::Hold;
use crate::engine::look;
use crate::engine::path_lock::PathLock;
use crate::engine::progress::ProgressReceiver;
use crate::error::{AcquireError, RequestFailure, TryLockError};
use crate::protocol::late::Ahead;
use crate::protocol::node_name::Kind;
use crate::session::tickets::Ticket;

/// How long `position` waits for another node when the known one is gone.
const ANOTHER_NODE: Duration = Duration::from_secs(1);

/// Receives the result of an attempt.
pub(super) type GrantReceiver = oneshot::Receiver<Result<Hold, TryLockError>>;

/// An attempt under way. Dropping it cancels the attempt, which then cleans up.
#[derive(Debug)]
pub(crate) struct Pending {
    path_lock: Arc<PathLock>,
    /// A granted lock that is not taken is a [`Hold`] in this channel, whose drop releases it. `None` once
    /// the result has been taken.
    granted: Option<GrantReceiver>,
    progress: ProgressReceiver,
    cancel: CancelOnDrop,
}

impl Pending {
    pub(crate) fn new(
        path_lock: Arc<PathLock>,
        granted: GrantReceiver,
        progress: ProgressReceiver,
        cancel: oneshot::Sender<Ticket>,
        number: u64,
    ) -> Self {
        let cancel = CancelOnDrop::new(cancel, path_lock.client().cleanup(), number);
        Self { path_lock, granted: Some(granted), progress, cancel }
    }

    /// Separates the wait for the result from the value whose drop cancels the attempt.
    pub(super) fn split(self) -> (Option<GrantReceiver>, CancelOnDrop, ProgressReceiver) {
        let Self { path_lock: _, granted, progress, cancel } = self;
        (granted, cancel, progress)
    }

    /// Returns the result if it is ready, once.
    pub(crate) fn result_now(&mut self) -> Option<Result<Hold, TryLockError>> {
        let result = match self.granted.as_mut()?.try_recv() {
            Ok(result) => result,
            Err(TryRecvError::Empty) => return None,
            // The task of the attempt has ended: with its runtime, or by a panic.
            Err(TryRecvError::Closed) => Err(self.path_lock.ended().into()),
        };
        self.granted = None;
        self.cancel.disarm();
        Some(result)
    }

    /// Returns whether the result has been taken.
    pub(crate) fn result_taken(&self) -> bool {
        self.granted.is_none()
    }

    /// Waits for the result, once. Dropping this future does not cancel the attempt.
    pub(crate) async fn result(&mut self) -> Result<Hold, TryLockError> {
        let client = self.path_lock.client();
        let Some(granted) = &mut self.granted else { return Err(self.used_up().into()) };
        let result = tokio::select! {
            biased;
            // An error means that the task of the attempt has ended: with its runtime, or by a panic.
            result = granted => result.ok(),
            () = client.drained() => {
                self.cancel.now();
                None
            }
        };
        self.granted = None;
        self.cancel.disarm();
        result.unwrap_or_else(|| Err(self.path_lock.ended().into()))
    }

    /// Waits for the result until `deadline`; `None` after that. Does not need a runtime of the caller's.
    pub(crate) async fn result_until(&mut self, deadline: Instant) -> Option<Result<Hold, TryLockError>> {
        let (path_lock, waits_for) = (Arc::clone(&self.path_lock), Arc::clone(&self.path_lock));
        let mut over = pin!(path_lock.client().run_while_polled(async move {
            if let Some(at) = ask_first::ask_at(deadline, deadline.saturating_duration_since(Instant::now()))
            {
                tokio::time::sleep_until(at.into()).await;
                ask_first::ask(&waits_for);
            }
            tokio::time::sleep_until(deadline.into()).await;
        }));
        tokio::select! {
            biased;
            result = self.result() => Some(result),
            // If the runtime shuts down, the attempt ends too, and reports that.
            Some(()) = &mut over => None,
        }
    }

    /// Waits until the attempt has a node in the queue. Returns the result if the attempt ends before.
    pub(crate) async fn queued(&mut self) -> Option<Result<Hold, TryLockError>> {
        let progress = self.progress.clone();
        tokio::select! {
            biased;
            result = self.result() => Some(result),
            // `None` means that the attempt has ended, and has a result.
            Some(_) = progress.node() => None,
        }
    }

    /// Returns how many contenders are before its node. `None` if the attempt has ended.
    pub(crate) async fn position(&self) -> Result<Option<usize>, AcquireError> {
        let (path_lock, progress) = (Arc::clone(&self.path_lock), self.progress.clone());
        let position = self.path_lock.client().run_while_polled(async move {
            loop {
                // Without a node, the attempt is about to create one, perhaps in the next session.
                let Some(name) = progress.node().await else { return Ok(None) };
                if let Some(position) = look::position(&path_lock, &name).await? {
                    return Ok(Some(position));
                }
                // Deleted in the meantime: with its session, in which case the attempt creates another soon,
                // or by another process, which the attempt notices with its next list.
                match tokio::time::timeout(ANOTHER_NODE, progress.left(&name)).await {
                    Ok(Some(())) => {}
                    Ok(None) => return Ok(None),
                    Err(_) => {
                        let path = path_lock.path().user().to_owned();
                        return Err(AcquireError::NodeDeleted { path, times: 1 });
                    }
                }
            }
        });
        position.await.unwrap_or(Ok(None))
    }

    /// Returns whether it has waited for another contender.
    pub(crate) fn has_waited(&self) -> bool {
        self.progress.get().has_waited
    }

    /// Returns the live contenders that it is known to wait for: in the queue, or for a slot.
    pub(crate) fn ahead(&self) -> Option<Ahead> {
        self.progress.get().waiting.ahead().cloned()
    }

    /// Returns the error of an attempt that is not granted within `asked`, of which it has `waited`.
    pub(crate) fn late(&self, kind: Kind, asked: Duration, waited: Duration) -> AcquireError {
        let waiting = self.progress.get().waiting;
        self.path_lock.late(waiting, kind, asked, waited)
    }

    /// Returns the error of a call after the result was taken.
    pub(crate) fn used_up(&self) -> AcquireError {
        self.path_lock.failed(RequestFailure::PlaceUsed)
    }
}
