//! Sections that detect a semaphore or a read-write lock that admits too many.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use zookeeper_recipes::{FenceGate, ReadGuard, SemaphorePermit, WriteGuard};

/// A section that at most `limit` permits may be in, each with a separate slot. The section detects
/// violations and prevents none.
#[derive(Debug)]
pub(crate) struct LimitedSection {
    limit: usize,
    inside: Mutex<Inside>,
}

#[derive(Debug, Default)]
struct Inside {
    slots: Vec<u32>,
    visits: usize,
}

impl LimitedSection {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            limit,
            inside: Mutex::default(),
        }
    }

    /// Enters the section with a permit, runs the work, and leaves. Panics if more permits are
    /// inside than the limit allows, or if two have the same slot.
    pub(crate) async fn visit_while<T>(
        &self,
        permit: &SemaphorePermit,
        work: impl Future<Output = T>,
    ) -> T {
        let slots = permit.slots();
        {
            let mut inside = self.inside();
            inside.visits += 1;
            for slot in &slots {
                assert!(
                    !inside.slots.contains(slot),
                    "expected a free slot, but two permits have the slot {slot}"
                );
                assert!(
                    usize::try_from(*slot).is_ok_and(|slot| slot < self.limit),
                    "expected a slot below {}, found {slot}",
                    self.limit
                );
                inside.slots.push(*slot);
            }
            assert!(
                inside.slots.len() <= self.limit,
                "expected at most {} permits inside, found the slots {:?}",
                self.limit,
                inside.slots
            );
        }
        let done = work.await;
        self.inside().slots.retain(|slot| !slots.contains(slot));
        done
    }

    pub(crate) fn visits(&self) -> usize {
        self.inside().visits
    }

    fn inside(&self) -> MutexGuard<'_, Inside> {
        // A panic of another visitor has reported what is wrong, and must not hide it.
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A section that several readers, or one writer, may be in. The section detects violations and
/// prevents none.
#[derive(Debug, Default)]
pub(crate) struct SharedSection {
    readers: AtomicUsize,
    writers: AtomicUsize,
    most_readers: AtomicUsize,
    /// The gate must admit the token of every guard that is inside.
    gate: FenceGate,
}

impl SharedSection {
    pub(crate) async fn read_while<T>(
        &self,
        guard: &ReadGuard,
        work: impl Future<Output = T>,
    ) -> T {
        self.gate.admit(guard.fencing_token()).unwrap();
        let readers = self.readers.fetch_add(1, Ordering::SeqCst) + 1;
        self.most_readers.fetch_max(readers, Ordering::SeqCst);
        assert_eq!(
            self.writers.load(Ordering::SeqCst),
            0,
            "expected no writer beside a reader"
        );
        let done = work.await;
        assert_eq!(
            self.writers.load(Ordering::SeqCst),
            0,
            "expected no writer beside a reader"
        );
        self.readers.fetch_sub(1, Ordering::SeqCst);
        done
    }

    pub(crate) async fn write_while<T>(
        &self,
        guard: &WriteGuard,
        work: impl Future<Output = T>,
    ) -> T {
        self.gate.admit(guard.fencing_token()).unwrap();
        assert_eq!(
            self.writers.fetch_add(1, Ordering::SeqCst),
            0,
            "expected one writer"
        );
        assert_eq!(
            self.readers.load(Ordering::SeqCst),
            0,
            "expected no reader beside a writer"
        );
        let done = work.await;
        assert_eq!(
            self.readers.load(Ordering::SeqCst),
            0,
            "expected no reader beside a writer"
        );
        self.writers.fetch_sub(1, Ordering::SeqCst);
        done
    }

    /// Returns the largest number of readers that were inside at the same time.
    pub(crate) fn most_readers(&self) -> usize {
        self.most_readers.load(Ordering::SeqCst)
    }
}
