//! Tasks that work for a call, on the session's thread.
//!
//! A caller's future may be polled by any executor, without timers, rarely, or never again. So the
//! work of a call runs as a [`CallTask`] on the runtime of the client's session, whose thread no
//! caller can block (docs/protocol.md#session-thread), and the caller waits for the result. A task
//! can only be started by [`Tasks::start`], and starts at once. The code that starts a task also
//! chooses what happens when the caller leaves:
//!
//! - the drop of a [`CallTask`] aborts it, for work that only its caller needs, such as a question;
//! - [`CallTask::detach`] lets it run to its end, for work that others need too, such as an
//!   attempt, which deletes its node, or a write, whose outcome must become known.
//!
//! A task ends without a result if it panics, or if the client is closed, which drops its tasks in
//! the middle of their work. The caller gets the reason as an error, as after a failed request.
//!
//! The module [`request`](crate::session::request) describes how a task sends requests to the
//! servers.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::task::JoinHandle;

use super::supervisor::ClientState;
use crate::error::RequestFailure;
use crate::session::threads::BoxFuture;
use crate::session::threads::background::Handle;

/// Starts tasks for the calls of one client, and keeps neither the client nor its session alive.
#[derive(Clone)]
pub(crate) struct Tasks {
    runtime: Handle,
    client: Arc<ClientState>,
}

/// A task that works for a call, and its result. Dropping it aborts the task, unless the task is
/// [detached](Self::detach).
pub(crate) struct CallTask<T> {
    running: JoinHandle<T>,
    client: Arc<ClientState>,
    is_detached: bool,
}

impl Tasks {
    pub(super) fn new(runtime: Handle, client: Arc<ClientState>) -> Self {
        Self { runtime, client }
    }

    /// Starts a task. The end of the client's thread, soon after the client is closed, drops it.
    #[must_use = "dropping the task aborts it; see `detach`"]
    pub(crate) fn start<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> CallTask<T> {
        // The work is boxed, so that tokio's code for a task is compiled once for each type of
        // result.
        let work: BoxFuture<'static, T> = Box::pin(work);
        CallTask {
            running: self.runtime.spawn(work),
            client: Arc::clone(&self.client),
            is_detached: false,
        }
    }

    /// Returns how many tasks have not ended.
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.runtime.metrics().num_alive_tasks()
    }
}

impl<T> CallTask<T> {
    /// Lets the task run to its end, even if this is dropped. The result can still be waited for.
    pub(crate) fn detach(mut self) -> Self {
        self.is_detached = true;
        self
    }
}

/// Waits for the result. An error gives the reason for a missing result: the end of the client, or
/// a panic of the task (docs/protocol.md#contained-lines).
impl<T> Future for CallTask<T> {
    type Output = Result<T, RequestFailure>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        // A task without a result has panicked, or was dropped with its runtime. The supervisor
        // publishes the end of the client before the runtime ends, so `why_ended` can tell the two
        // apart.
        let ended = ready!(Pin::new(&mut self.running).poll(context));
        Poll::Ready(ended.map_err(|_| self.client.why_ended()))
    }
}

impl<T> Drop for CallTask<T> {
    fn drop(&mut self) {
        if !self.is_detached {
            self.running.abort();
        }
    }
}
