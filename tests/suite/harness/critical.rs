//! What a lock is for.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// A place that only one may be in, and a counter that loses increments when two are. It looks, and
/// protects nothing.
#[derive(Debug, Default)]
pub(crate) struct CriticalSection {
    inside: AtomicUsize,
    counter: AtomicU64,
}

impl CriticalSection {
    /// Reads the counter, lets others run, and writes it back; panics if another visitor is here
    /// meanwhile.
    pub(crate) async fn visit(&self) {
        self.visit_while(async {
            for _ in 0..3 {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }

    /// The same, for as long as something takes.
    pub(crate) async fn visit_while<T>(&self, work: impl Future<Output = T>) -> T {
        let others = self.inside.fetch_add(1, Ordering::SeqCst);
        assert_eq!(others, 0, "two hold the lock at once");
        let counter = self.counter.load(Ordering::Relaxed);
        let done = work.await;
        self.counter.store(counter + 1, Ordering::Relaxed);
        self.inside.fetch_sub(1, Ordering::SeqCst);
        done
    }

    /// How many visits the counter has kept.
    pub(crate) fn visits(&self) -> u64 {
        self.counter.load(Ordering::Relaxed)
    }
}
