//! What a behaviour runs in: a back-end, what that can do, and what looks on from outside.

mod backend;
mod behaviour;
mod critical;
mod env;
mod link;
mod random;
mod saboteur;

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

pub(crate) use backend::{Need, SESSION_LIMITS};
pub(crate) use behaviour::{Behaviour, Registry, behaviours};
pub(crate) use critical::CriticalSection;
pub(crate) use env::Env;
pub(crate) use link::Link;

/// How long anything may take that is sure to happen: long enough for a machine that does much else.
pub(crate) const SOON: Duration = Duration::from_secs(30);

/// How long to try for what is sure not to happen: long enough that the servers answer meanwhile.
pub(crate) const BRIEFLY: Duration = Duration::from_millis(400);

/// Waits for what is sure to happen; panics, naming it, when it does not.
#[track_caller]
pub(crate) fn soon<F: Future>(what: &str, future: F) -> impl Future<Output = F::Output> + use<F> {
    let (what, location) = (what.to_owned(), std::panic::Location::caller());
    async move {
        match tokio::time::timeout(SOON, future).await {
            Ok(output) => output,
            Err(_) => panic!("{location}: waited {SOON:?} in vain for {what}"),
        }
    }
}

/// Polls a future once, so that what it does at first has been done. It must not be ready.
#[track_caller]
pub(crate) fn begin<F: Future + Unpin>(future: &mut F) -> impl Future<Output = ()> + use<'_, F> {
    let location = std::panic::Location::caller();
    std::future::poll_fn(move |context| {
        assert!(
            std::pin::Pin::new(&mut *future).poll(context).is_pending(),
            "{location}: it should have to wait"
        );
        Poll::Ready(())
    })
}

/// Runs a future without any runtime.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park_timeout(Duration::from_secs(1)),
        }
    }
}
