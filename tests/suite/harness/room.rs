//! What a semaphore is for.

use std::sync::{Mutex, MutexGuard, PoisonError};

use zookeeper_recipes::SemaphorePermit;

/// A place that only so many may be in, each with a slot of its own. It looks, and protects nothing.
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
        Self { limit, inside: Mutex::default() }
    }

    /// Panics if there is no room for all of these permits, or one of them is in the slot of another.
    pub(crate) async fn visit_while<T>(&self, permit: &SemaphorePermit, work: impl Future<Output = T>) -> T {
        let slots = permit.slots();
        {
            let mut inside = self.inside();
            inside.visits += 1;
            for slot in &slots {
                assert!(!inside.slots.contains(slot), "two have the slot {slot}");
                assert!(usize::try_from(*slot).is_ok_and(|slot| slot < self.limit), "a slot {slot}");
                inside.slots.push(*slot);
            }
            assert!(inside.slots.len() <= self.limit, "{:?} of {} are inside", inside.slots, self.limit);
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
