//! Several holds that are one value of their holder (docs/protocol.md#one-value).

use std::sync::{Arc, OnceLock, Weak};

use crate::protocol::hold::HoldEvent;
use crate::session::contents::holds::SessionLock;
use crate::session::threads::mutex::Mutex;

/// The holds of one value. Weak, because each has this.
#[derive(Debug)]
pub(crate) struct Bond {
    /// Empty once one is lost, so that the others are notified once.
    holds: Mutex<Vec<Weak<dyn SessionLock>>>,
    /// The path of the lock that was lost first.
    first_lost: OnceLock<Arc<str>>,
}

impl Bond {
    pub(crate) fn new(holds: Vec<Weak<dyn SessionLock>>) -> Arc<Self> {
        Arc::new(Self { holds: Mutex::new(holds), first_lost: OnceLock::new() })
    }
}

/// The bond of a hold; `None` if the hold is not bound to others.
#[derive(Debug, Default)]
pub(crate) struct Bound(Mutex<Option<Arc<Bond>>>);

impl Bound {
    pub(crate) fn set(&self, bond: Option<Arc<Bond>>) {
        // Dropped outside of the mutex.
        let _before = std::mem::replace(&mut *self.0.lock(), bond);
    }

    /// Tells all holds of the value, once, that the one of this path is lost.
    pub(crate) fn tell(&self, path: &str, event: &HoldEvent) {
        let Some(bond) = self.0.lock().clone() else { return };
        let holds = std::mem::take(&mut *bond.holds.lock());
        if holds.is_empty() {
            return;
        }
        // This comes before the notification of the others: a task that finds one of them lost reports which
        // was lost first.
        bond.first_lost.get_or_init(|| path.into());
        for hold in holds.iter().filter_map(Weak::upgrade) {
            hold.on(event.clone());
        }
    }

    /// Returns the path of the hold of the value that was lost first; `None` if none was.
    pub(crate) fn first_lost(&self) -> Option<Arc<str>> {
        self.0.lock().as_ref().and_then(|bond| bond.first_lost.get().cloned())
    }
}
