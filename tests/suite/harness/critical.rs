//! A section that detects a lock that admits two.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// A section that only one holder may be in, with a counter that loses increments when two are. The
/// section detects violations and prevents none.
#[derive(Debug, Default)]
pub(crate) struct CriticalSection {
    inside: AtomicUsize,
    counter: AtomicU64,
}

impl CriticalSection {
    /// Reads the counter, lets other tasks run, and writes it back. Panics if another holder is
    /// inside.
    pub(crate) async fn visit(&self) {
        self.visit_while(async {
            for _ in 0..3 {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }

    /// Reads the counter, does the work, and writes the counter back. Panics if another holder is
    /// inside.
    pub(crate) async fn visit_while<T>(&self, work: impl Future<Output = T>) -> T {
        let others = self.inside.fetch_add(1, Ordering::SeqCst);
        assert_eq!(others, 0, "expected one holder, but others are inside too");
        let counter = self.counter.load(Ordering::Relaxed);
        let done = work.await;
        self.counter.store(counter + 1, Ordering::Relaxed);
        self.inside.fetch_sub(1, Ordering::SeqCst);
        done
    }

    /// Returns the number of visits that the counter has not lost.
    pub(crate) fn visits(&self) -> u64 {
        self.counter.load(Ordering::Relaxed)
    }
}
