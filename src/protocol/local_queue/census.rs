//! How the places of a [`LocalQueue`](super::LocalQueue) are used, which errors report.

use crate::protocol::node_name::Kind;

/// The use of the places of one limit. Places that are taken but not live are those of orphans.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Census {
    /// The places of attempts and holds.
    pub(super) live: Count,
    /// The live places ahead of a reader: those of writers, and of readers that wait for a writer themselves.
    pub(super) blocking: Count,
    /// How many places are taken.
    pub(super) taken: usize,
}

/// A count of live places.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Count {
    /// How many there are.
    pub(crate) now: usize,
    /// How often the count has risen: if this changes, there was a live place in the meantime.
    pub(crate) ever: u64,
}

/// How a taken place counts.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Liveness {
    pub(super) live: bool,
    /// Whether its attempt has seen a live contender before it.
    pub(super) waits: bool,
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

impl Census {
    /// Returns the live places ahead of an attempt of this kind.
    pub(crate) fn in_the_way(&self, kind: Kind) -> Count {
        match kind {
            Kind::Exclusive => self.live,
            Kind::Shared => self.blocking,
        }
    }

    /// Returns how many places are live.
    pub(crate) fn live(&self) -> usize {
        self.live.now
    }

    /// Returns how many places are those of orphans.
    pub(crate) fn in_cleanup(&self) -> usize {
        self.taken.saturating_sub(self.live.now)
    }

    pub(super) fn change(&mut self, kind: Kind, before: Liveness, after: Liveness) {
        let blocking = |place: Liveness| place.live && (kind == Kind::Exclusive || place.waits);
        self.live.change(before.live, after.live);
        self.blocking.change(blocking(before), blocking(after));
    }
}
