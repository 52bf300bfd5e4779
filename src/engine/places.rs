//! The places of a path lock: how many contenders of one client may have a node below one path, and how many of them are live.
//!
//! A place is taken until its node is gone, which may be long after its contender has gone: the servers may be out of
//! reach. So the places in use are of two kinds, and only the live ones are an answer to "who is in the way". A reader is
//! in no reader's way: for one, those places count that a writer has, or a reader that waits for a writer itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use crate::protocol::node_name::Kind;

/// The places of one path lock, handed out in order of arrival ([`Semaphore`] is fair).
#[derive(Clone, Debug)]
pub(crate) struct Places {
    free: Arc<Semaphore>,
    census: Arc<watch::Sender<Census>>,
    /// How many there are.
    all: usize,
}

/// How the places in use are used; the others are being cleaned up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Census {
    /// Those of contenders and holds.
    live: Count,
    /// Those of them that a reader has to wait for.
    blocking: Count,
}

impl Census {
    /// The live places whose contenders are in the way of a newcomer of this kind.
    pub(crate) fn in_the_way(&self, kind: Kind) -> Count {
        match kind {
            Kind::Exclusive => self.live,
            Kind::Shared => self.blocking,
        }
    }

    /// How many are live.
    pub(crate) fn live(&self) -> usize {
        self.live.now
    }
}

/// Some of the places.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Count {
    /// How many there are.
    pub(crate) now: usize,
    /// How often one has come to be counted: a change says that there was one meanwhile.
    pub(crate) ever: u64,
}

impl Count {
    fn change(&mut self, before: bool, after: bool) {
        match (before, after) {
            (false, true) => {
                self.now += 1;
                self.ever = self.ever.wrapping_add(1);
            }
            (true, false) => self.now = self.now.saturating_sub(1),
            _ => {}
        }
    }
}

impl Places {
    pub(crate) fn new(all: usize) -> Self {
        Self { free: Arc::new(Semaphore::new(all)), census: Arc::default(), all }
    }

    /// A place, if one is free and no contender waits for one.
    pub(crate) fn try_take(&self, kind: Kind) -> Option<Arc<Place>> {
        Arc::clone(&self.free).try_acquire_owned().ok().map(|permit| self.place(permit, kind))
    }

    /// A place, in order of arrival.
    pub(crate) async fn take(&self, kind: Kind) -> Option<Arc<Place>> {
        // The semaphore is never closed.
        Arc::clone(&self.free).acquire_owned().await.ok().map(|permit| self.place(permit, kind))
    }

    pub(crate) fn census(&self) -> watch::Receiver<Census> {
        self.census.subscribe()
    }

    /// How many places are being cleaned up.
    pub(crate) fn in_clean_up(&self) -> usize {
        let live = self.census.borrow().live();
        self.all.saturating_sub(self.free.available_permits()).saturating_sub(live)
    }

    fn place(&self, permit: OwnedSemaphorePermit, kind: Kind) -> Arc<Place> {
        let place = Place {
            _permit: permit,
            census: Arc::clone(&self.census),
            kind,
            live: AtomicBool::new(false),
            waits: AtomicBool::new(false),
        };
        place.set_live(true);
        Arc::new(place)
    }
}

/// A place, for as long as it lives. It is live until it is said not to be.
#[derive(Debug)]
pub(crate) struct Place {
    _permit: OwnedSemaphorePermit,
    census: Arc<watch::Sender<Census>>,
    /// What its contender wants to be.
    kind: Kind,
    live: AtomicBool,
    waits: AtomicBool,
}

impl Place {
    /// Whether a contender or a hold has it, or what is left of one.
    pub(crate) fn set_live(&self, live: bool) {
        self.set(&self.live, live);
    }

    /// Whether its contender has seen a live one before it.
    pub(crate) fn set_waits(&self, waits: bool) {
        self.set(&self.waits, waits);
    }

    fn set(&self, flag: &AtomicBool, to: bool) {
        self.census.send_if_modified(|census| {
            // Under the lock of the census, which therefore never differs from the flags.
            let (live, blocking) = self.counts();
            flag.store(to, Ordering::Relaxed);
            let (live_now, blocking_now) = self.counts();
            census.live.change(live, live_now);
            census.blocking.change(blocking, blocking_now);
            (live, blocking) != (live_now, blocking_now)
        });
    }

    /// Whether it is live, and whether a reader has to wait for it.
    fn counts(&self) -> (bool, bool) {
        let live = self.live.load(Ordering::Relaxed);
        (live, live && (self.kind == Kind::Exclusive || self.waits.load(Ordering::Relaxed)))
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

    fn in_the_way(places: &Places, kind: Kind) -> usize {
        places.census().borrow().in_the_way(kind).now
    }

    #[test]
    fn a_place_in_clean_up_is_taken_and_not_live() {
        let places = Places::new(2);
        let take = || places.try_take(Kind::Exclusive);
        let (first, second) = (take().unwrap(), take().unwrap());
        assert!(take().is_none());
        assert_eq!((places.census().borrow().live(), places.in_clean_up()), (2, 0));
        first.set_live(false);
        first.set_live(false);
        assert_eq!((places.census().borrow().live(), places.in_clean_up()), (1, 1));
        assert!(take().is_none());
        drop(first);
        assert_eq!((places.census().borrow().live(), places.in_clean_up()), (1, 0));
        drop(second);
        let before = places.census().borrow().in_the_way(Kind::Exclusive).ever;
        drop(take().unwrap());
        let now = places.census().borrow().in_the_way(Kind::Exclusive);
        assert_eq!(now, Count { now: 0, ever: before + 1 });
    }

    #[test]
    fn a_reader_is_in_a_readers_way_while_it_waits_itself() {
        let places = Places::new(2);
        let reader = places.try_take(Kind::Shared).unwrap();
        assert_eq!((in_the_way(&places, Kind::Exclusive), in_the_way(&places, Kind::Shared)), (1, 0));
        reader.set_waits(true);
        reader.set_waits(true);
        assert_eq!(in_the_way(&places, Kind::Shared), 1);
        reader.set_live(false);
        assert_eq!(in_the_way(&places, Kind::Shared), 0);
        reader.set_live(true);
        assert_eq!(in_the_way(&places, Kind::Shared), 1);
        reader.set_waits(false);
        assert_eq!(in_the_way(&places, Kind::Shared), 0);
        let writer = places.try_take(Kind::Exclusive).unwrap();
        assert_eq!(in_the_way(&places, Kind::Shared), 1);
        drop((writer, reader));
        let now = places.census().borrow().in_the_way(Kind::Shared);
        assert_eq!(now, Count { now: 0, ever: 3 });
    }
}
