//! The places of a room: how many contenders of one client may have a node below one path, and how many of them are live.
//!
//! A place is taken until its node is gone, which may be long after its contender has gone: the servers may be out of
//! reach. So the places in use are of two kinds, and only the live ones are an answer to "who is in the way".

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

/// The places of one room, handed out in order of arrival ([`Semaphore`] is fair).
#[derive(Clone, Debug)]
pub(crate) struct Places {
    free: Arc<Semaphore>,
    census: Arc<watch::Sender<Census>>,
    /// How many there are.
    all: usize,
}

/// How the places in use are used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Census {
    /// Those of contenders and holds; the others are being cleaned up.
    pub(crate) live: usize,
    /// How often a place has been taken: a change says that a live contender came.
    pub(crate) taken: u64,
}

impl Places {
    pub(crate) fn new(all: usize) -> Self {
        Self { free: Arc::new(Semaphore::new(all)), census: Arc::default(), all }
    }

    /// A place, if one is free and no contender waits for one.
    pub(crate) fn try_take(&self) -> Option<Arc<Place>> {
        Arc::clone(&self.free).try_acquire_owned().ok().map(|permit| self.place(permit))
    }

    /// A place, in order of arrival.
    pub(crate) async fn take(&self) -> Option<Arc<Place>> {
        // The semaphore is never closed.
        Arc::clone(&self.free).acquire_owned().await.ok().map(|permit| self.place(permit))
    }

    pub(crate) fn census(&self) -> watch::Receiver<Census> {
        self.census.subscribe()
    }

    /// How many places are being cleaned up.
    pub(crate) fn in_clean_up(&self) -> usize {
        let live = self.census.borrow().live;
        self.all.saturating_sub(self.free.available_permits()).saturating_sub(live)
    }

    fn place(&self, permit: OwnedSemaphorePermit) -> Arc<Place> {
        let place = Place { _permit: permit, census: Arc::clone(&self.census), live: AtomicBool::new(false) };
        self.census.send_modify(|census| census.taken += 1);
        place.set_live(true);
        Arc::new(place)
    }
}

/// A place, for as long as it lives. It is live until it is said not to be.
#[derive(Debug)]
pub(crate) struct Place {
    _permit: OwnedSemaphorePermit,
    census: Arc<watch::Sender<Census>>,
    live: AtomicBool,
}

impl Place {
    /// Whether a contender or a hold has it, or what is left of one.
    pub(crate) fn set_live(&self, live: bool) {
        self.census.send_if_modified(|census| {
            // Under the lock of the census, which therefore never differs from the flags.
            if self.live.swap(live, Ordering::Relaxed) == live {
                return false;
            }
            census.live = if live { census.live + 1 } else { census.live.saturating_sub(1) };
            true
        });
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.set_live(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_in_clean_up_is_taken_and_not_live() {
        let places = Places::new(2);
        let (first, second) = (places.try_take().unwrap(), places.try_take().unwrap());
        assert!(places.try_take().is_none());
        assert_eq!((places.census().borrow().live, places.in_clean_up()), (2, 0));
        first.set_live(false);
        first.set_live(false);
        assert_eq!((places.census().borrow().live, places.in_clean_up()), (1, 1));
        assert!(places.try_take().is_none());
        drop(first);
        assert_eq!((places.census().borrow().live, places.in_clean_up()), (1, 0));
        drop(second);
        let before = places.census().borrow().taken;
        drop(places.try_take().unwrap());
        assert_eq!(*places.census().borrow(), Census { live: 0, taken: before + 1 });
    }
}
