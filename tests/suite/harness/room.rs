//! What a semaphore is for, and what a read-write lock is for.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use zookeeper_recipes::{FenceGate, ReadGuard, SemaphorePermit, WriteGuard};

/// A place that only so many may be in, each with a slot of its own. It looks, and protects
/// nothing.
#[derive(Debug)]
pub(crate) struct Room {
    limit: usize,
    inside: Mutex<Inside>,
}

#[derive(Debug, Default)]
struct Inside {
    slots: Vec<u32>,
    visits: usize,
}

impl Room {
    pub(crate) fn of(limit: usize) -> Self {
        Self {
            limit,
            inside: Mutex::default(),
        }
    }

    /// Panics if there is no room for all of these permits, or one of them is in the slot of
    /// another.
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
                assert!(!inside.slots.contains(slot), "two have the slot {slot}");
                assert!(
                    usize::try_from(*slot).is_ok_and(|slot| slot < self.limit),
                    "a slot {slot}"
                );
                inside.slots.push(*slot);
            }
            assert!(
                inside.slots.len() <= self.limit,
                "{:?} of {} are inside",
                inside.slots,
                self.limit
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
        // A visitor that has panicked has said what is wrong.
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place where writers are alone, and readers are not. It looks, and protects nothing.
#[derive(Debug, Default)]
pub(crate) struct Library {
    readers: AtomicUsize,
    writers: AtomicUsize,
    most_readers: AtomicUsize,
    /// Refuses none of those that are inside.
    gate: FenceGate,
}

impl Library {
    pub(crate) async fn read_while<T>(
        &self,
        guard: &ReadGuard,
        work: impl Future<Output = T>,
    ) -> T {
        self.gate.admit(guard.fencing_token()).unwrap();
        let readers = self.readers.fetch_add(1, Ordering::SeqCst) + 1;
        self.most_readers.fetch_max(readers, Ordering::SeqCst);
        assert_eq!(self.writers.load(Ordering::SeqCst), 0, "beside a writer");
        let done = work.await;
        assert_eq!(self.writers.load(Ordering::SeqCst), 0, "beside a writer");
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
            "beside another writer"
        );
        assert_eq!(self.readers.load(Ordering::SeqCst), 0, "beside a reader");
        let done = work.await;
        assert_eq!(self.readers.load(Ordering::SeqCst), 0, "beside a reader");
        self.writers.fetch_sub(1, Ordering::SeqCst);
        done
    }

    /// How many readers were inside at once at the most.
    pub(crate) fn most_readers(&self) -> usize {
        self.most_readers.load(Ordering::SeqCst)
    }
}
