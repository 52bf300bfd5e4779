//! Waiting for a future on a thread that has no executor.

use std::pin::pin;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

/// Whether the future asks to be polled, for the thread that sleeps until it does. Not by
/// `thread::park`, whose wake-ups another sleeper inside the poll could take.
#[derive(Default)]
struct Bell {
    rung: Mutex<bool>,
    rings: Condvar,
}

impl Bell {
    fn wait(&self) {
        let rung = self.rung.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.rings.wait_while(rung, |rung| !*rung);
        *waited.unwrap_or_else(PoisonError::into_inner) = false;
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        *self.rung.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.rings.notify_one();
    }
}

/// Blocks the thread until a future of this crate is ready. Timers and I/O of such futures are on
/// the session's thread, so they need no runtime here.
///
/// Tokio's own blocking methods panic in asynchronous code. This function cannot: the only test
/// that tokio offers to other crates (`Handle::try_current`) has the same result on a worker, which
/// must not block, and in `spawn_blocking`, which may.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let bell = Arc::<Bell>::default();
    let waker = Waker::from(Arc::clone(&bell));
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        bell.wait();
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use tokio::sync::oneshot;

    use super::*;

    #[test]
    fn waits_for_wake_from_another_thread() {
        for _ in 0..200 {
            let (send, receive) = oneshot::channel();
            let other = thread::spawn(move || send.send(7));
            assert_eq!(block_on(receive), Ok(7));
            other.join().unwrap().unwrap();
        }
    }

    /// A wake-up that comes before the thread sleeps, and from within the poll.
    #[test]
    fn wake_during_poll_is_not_lost() {
        let mut left = 1000;
        let count = std::future::poll_fn(move |context| {
            context.waker().wake_by_ref();
            left -= 1;
            if left == 0 {
                Poll::Ready("done")
            } else {
                Poll::Pending
            }
        });
        assert_eq!(block_on(count), "done");
    }
}
