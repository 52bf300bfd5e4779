//! One list of a directory for all attempts of a path that need one at the same time.
//!
//! A list counts only for nodes that were created before it was sent (docs/protocol.md#shared-lists). So an
//! attempt sends its create first, and gets the next list that is sent after that: never one that is under
//! way. One is under way at a time, so that however many arrive, the servers and the memory see no more than
//! a list per round trip.

use std::sync::Arc;

use tokio::sync::oneshot;
use zookeeper_client as zk;

use crate::engine::shared_queue::{ListResult, SharedQueue};
use crate::session::core::Core;

/// Returns a list that is sent after this call, by `list`, in the session of this number. The future needs no
/// polling for that.
pub(super) fn ask<L, F>(
    queue: &Arc<SharedQueue>,
    client: &Core,
    session: u64,
    list: L,
) -> impl Future<Output = ListResult> + use<L, F>
where
    L: Fn() -> F + Send + 'static,
    F: Future<Output = ListResult> + Send + 'static,
{
    let (tell, answer) = oneshot::channel();
    let asked = queue.with(|queue| queue.ask_list(session, tell));
    if asked.is_some_and(|asked| asked.start) {
        client.spawn(send_lists(Arc::clone(queue), session, list));
    }
    let asking = asked.map(|asked| Asking { queue: Arc::clone(queue), question: asked.question });
    async move {
        // There is no answer where the session is over.
        let result = answer.await.unwrap_or(Err(zk::Error::ConnectionLoss));
        drop(asking);
        result
    }
}

/// One that waits for a list, until it has it or has gone.
struct Asking {
    queue: Arc<SharedQueue>,
    question: u64,
}

impl Drop for Asking {
    fn drop(&mut self) {
        self.queue.with(|queue| queue.forget_list(self.question));
    }
}

/// The task that lists. Should it be dropped at work, by a panic of a tracing subscriber, those that wait
/// start again, and the next one that asks starts another.
struct Sending {
    queue: Arc<SharedQueue>,
    session: u64,
    at_work: bool,
}

impl Drop for Sending {
    fn drop(&mut self) {
        if self.at_work {
            self.queue.with(|queue| queue.stop_lists(self.session));
        }
    }
}

/// Lists for as long as an attempt asks. Runs where the session runs, so that one that goes away does not
/// take the others' list along.
async fn send_lists<F>(queue: Arc<SharedQueue>, session: u64, list: impl Fn() -> F + Send)
where
    F: Future<Output = ListResult> + Send,
{
    let mut sending = Sending { queue, session, at_work: true };
    while let Some(waiting) = sending.queue.with(|queue| queue.next_list(session)) {
        // Sent here, after all that those who wait have sent.
        let result = list().await;
        for tell in waiting {
            // An error: it does not wait any more.
            let _ = tell.send(result.clone());
        }
    }
    // Another task may be at work already.
    sending.at_work = false;
}
