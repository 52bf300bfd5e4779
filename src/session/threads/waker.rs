//! Wakers: a first poll without a waker, and a waker that catches the panics of code outside this
//! crate, such as the wakers of other executors, and tracing subscribers.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use tokio::task::JoinSet;
use zookeeper_client as zk;

use crate::session::threads::background::on_this_thread;

/// Polls a future with a waker that does not panic. Use this function for futures that the caller's
/// executor polls, and that wait in a list with others for the end of a session or the loss of a
/// lock.
///
/// A waker is code of the executor, and may panic. In the middle of such a list, the panic would
/// unwind the task that wakes the list, for example the supervisor. The drop of that task wakes the
/// rest of the list, where another waker may panic, and a panic within a panic aborts the process.
/// Catching the panic in that task is not enough, because the later wakers in the list would not be
/// called. So the list contains a waker of this crate, which catches panics of the caller's waker.
pub(crate) async fn contain<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    // The waker of the last poll, and the waker of this crate that wraps it.
    let mut wakers: Option<(Waker, Waker)> = None;
    std::future::poll_fn(move |context| {
        let theirs = context.waker();
        // Most executors poll a task with the same waker each time. The wrapper is kept then, so
        // that a poll allocates nothing.
        let known = wakers.take().filter(|(known, _)| known.will_wake(theirs));
        let (_, ours) = wakers.insert(known.unwrap_or_else(|| {
            (
                theirs.clone(),
                Waker::from(Arc::new(Contained(theirs.clone()))),
            )
        }));
        future.as_mut().poll(&mut Context::from_waker(ours))
    })
    .await
}

/// A waker whose panics are caught.
struct Contained(Waker);

impl Wake for Contained {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        contain_panic(|| self.0.wake_by_ref());
    }
}

/// Calls code outside this crate, a waker or a tracing subscriber, and discards its panic, which
/// the panic hook has already reported.
pub(crate) fn contain_panic(call: impl FnOnce()) {
    let _ = catch_unwind(AssertUnwindSafe(call));
}

/// Polls a future once, so that its first request, if the future can send it without waiting, is
/// sent before all later requests of this thread. If the future is not done, returns it, for a task
/// that polls it again and is woken by it. A panic ends the future.
pub(crate) fn send_at_once<F: Future>(mut work: Pin<Box<F>>) -> Option<Pin<Box<F>>> {
    // No task is woken by this poll: the task that gets the future polls it again, with its own
    // waker.
    let mut first = Context::from_waker(Waker::noop());
    let begun = catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(&mut first)));
    matches!(begun, Ok(Poll::Pending)).then_some(work)
}

/// Lets the client library establish a session, in a task that is aborted with this future. The
/// client library logs meanwhile, so a panic of the tracing subscriber counts as a lost connection,
/// and does not end the calling task.
pub(crate) async fn connect(
    connector: zk::Connector,
    servers: &str,
) -> Result<zk::Client, zk::Error> {
    let servers = servers.to_owned();
    let mut connecting = JoinSet::new();
    connecting.spawn(on_this_thread(
        async move { connector.connect(&servers).await },
    ));
    match connecting.join_next().await {
        Some(Ok(connected)) => connected,
        Some(Err(_)) | None => Err(zk::Error::ConnectionLoss),
    }
}
