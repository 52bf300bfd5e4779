//! How the places of a [`LocalQueue`](super::LocalQueue) are used, which decides what errors say.

use crate::protocol::node_name::Kind;

/// The live places of one limit. The others that are taken are being cleaned up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Census {
    /// Those of attempts and holds.
    pub(super) live: Count,
    /// Those of them that a reader has to wait for: a writer's, and a reader's that waits for a writer
    /// itself.
    pub(super) blocking: Count,
    /// How many places are taken.
    pub(super) taken: usize,
}

/// Some of the live places.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Count {
    /// How many there are.
    pub(crate) now: usize,
    /// How often one has come to be counted: a change says that there was one meanwhile.
    pub(crate) ever: u64,
}

/// How a place that is taken counts in the census.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Liveness {
    pub(super) live: bool,
    /// Its attempt has seen a live contender before it.
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
    /// The live places that are in the way of an attempt of this kind.
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

    /// How many are being cleaned up.
    pub(crate) fn in_cleanup(&self) -> usize {
        self.taken.saturating_sub(self.live.now)
    }

    pub(super) fn change(&mut self, kind: Kind, before: Liveness, after: Liveness) {
        let blocking = |place: Liveness| place.live && (kind == Kind::Exclusive || place.waits);
        self.live.change(before.live, after.live);
        self.blocking.change(blocking(before), blocking(after));
    }
}
