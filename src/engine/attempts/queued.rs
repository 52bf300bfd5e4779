//! A place in the queue of a fair lock: an attempt under way, whose caller may wait for the result
//! for a while, do other work, and ask how many contenders are ahead.
//!
//! The attempt does not depend on the caller's polls: the node keeps its place while no future of
//! this value is polled, and a grant waits in the channel until the caller takes it. The drop of
//! the value cancels the attempt.

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::engine::attempts::attempt::Reply;
use crate::engine::attempts::run;
use crate::engine::granted::Grant;
use crate::engine::lock::path_lock::{Ask, PathLock};
use crate::engine::pending::{Pending, ProgressReceiver};
use crate::engine::request::look::{self, until_deadline};
use crate::error::{AcquireError, TryLockError};
use crate::protocol::node_name::Kind;
use crate::session::threads::waker::contain;

/// How long `position` waits for another node when the known one is gone.
const ANOTHER_NODE: Duration = Duration::from_secs(1);

/// An attempt under way, and its progress. Dropping it cancels the attempt, which then cleans up.
pub(crate) struct Queued {
    path_lock: Arc<PathLock>,
    pub(crate) pending: Pending<Grant>,
    progress: ProgressReceiver,
}

impl Queued {
    pub(crate) fn start(path_lock: &Arc<PathLock>, ask: Ask) -> Self {
        let (pending, progress) = run::start(path_lock, ask, 1, Reply::Lock);
        Self {
            path_lock: Arc::clone(path_lock),
            pending,
            progress,
        }
    }

    /// Waits for the result until `deadline`; `None` after that. The caller needs no runtime.
    pub(crate) async fn result_until(
        &mut self,
        deadline: Instant,
    ) -> Option<Result<Grant, TryLockError>> {
        let (path_lock, asked) = (
            Arc::clone(&self.path_lock),
            deadline.saturating_duration_since(Instant::now()),
        );
        let over = until_deadline(Arc::clone(&path_lock), deadline, asked);
        // The task is started by the first poll: a result that is ready needs none.
        let mut over = pin!(async { path_lock.client.tasks.start(over).await });
        tokio::select! {
            biased;
            result = self.pending.result() => Some(result),
            // If the runtime shuts down, the attempt ends too, and reports that.
            Ok(()) = &mut over => None,
        }
    }

    /// Waits until the attempt has a node in the queue. Returns the result if the attempt ends
    /// first.
    pub(crate) async fn queued(&mut self) -> Option<Result<Grant, TryLockError>> {
        tokio::select! {
            biased;
            result = self.pending.result() => Some(result),
            // `None` means that the attempt has ended, and has a result.
            Some(_) = contain(self.progress.node()) => None,
        }
    }

    /// Returns how many contenders are before the attempt's node. `None` if the attempt has ended.
    pub(crate) async fn position(&self) -> Result<Option<usize>, AcquireError> {
        let (path_lock, progress) = (Arc::clone(&self.path_lock), self.progress.clone());
        let position = self.path_lock.client.tasks.start(async move {
            loop {
                // Without a node, the attempt is about to create one, perhaps in the next session.
                let Some(name) = progress.node().await else {
                    return Ok(None);
                };
                if let Some(position) = look::position(&path_lock, &name).await? {
                    return Ok(Some(position));
                }
                // The node has been deleted since it was published: with its session, in which case
                // the attempt soon creates another, or by another process, which the attempt
                // notices with its next list.
                match tokio::time::timeout(ANOTHER_NODE, progress.left(&name)).await {
                    Ok(Some(())) => {}
                    Ok(None) => return Ok(None),
                    Err(_) => {
                        let path = path_lock.path.user().to_owned();
                        return Err(AcquireError::NodeDeleted { path, times: 1 });
                    }
                }
            }
        });
        position.await.unwrap_or(Ok(None))
    }

    /// Returns the error of an attempt that was to be granted within `asked`, and has waited for
    /// `waited`.
    pub(crate) fn late(&self, kind: Kind, asked: Duration, waited: Duration) -> AcquireError {
        self.path_lock
            .late(self.progress.waiting(), kind, asked, waited)
    }
}
