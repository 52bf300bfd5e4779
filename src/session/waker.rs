//! Keeps what foreign wakers, and tracing subscribers, do to themselves.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Wake, Waker};

/// A future that somebody else polls, and that waits in a list with others: for the end of a session, for a loss.
///
/// A waker is code of the executor, and may panic. In the middle of such a list that would unwind the task that tells,
/// the supervisor perhaps, whose drop tells the rest and would meet the next such waker: two panics at once abort the
/// process. To catch the panic there is not enough, as it takes along the wakers of others that are behind it in the list. So
/// what stands in the list is a waker of ours.
pub(crate) async fn contain<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    // The last that came, and ours for it.
    let mut wakers: Option<(Waker, Waker)> = None;
    std::future::poll_fn(move |context| {
        let theirs = context.waker();
        let known = wakers.take().filter(|(known, _)| known.will_wake(theirs));
        let (_, ours) = wakers.insert(
            known.unwrap_or_else(|| (theirs.clone(), Waker::from(Arc::new(Contained(theirs.clone()))))),
        );
        future.as_mut().poll(&mut Context::from_waker(ours))
    })
    .await
}

struct Contained(Waker);

impl Wake for Contained {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        contain_panic(|| self.0.wake_by_ref());
    }
}

/// Calls code that is not ours, and that others must not suffer from: foreign wakers, in a list, or a tracing subscriber.
/// The panic hook has seen what went wrong.
pub(super) fn contain_panic(call: impl FnOnce()) {
    let _ = catch_unwind(AssertUnwindSafe(call));
}
