//! What the attempts of a [`LocalQueue`](super::LocalQueue) are told.

use super::census::Count;

/// What the waker of an attempt is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Notice {
    /// It has a place.
    Place,
    /// Live contenders, so many, are in the way of one that only asks.
    Busy(Count),
    /// It may be its turn to create: it asks again.
    Turn,
    /// The node that it waited for held the lock, and one transaction has deleted it and found the attempt's
    /// own node.
    HandedOver,
    /// The node that it waited for has gone, and was behind this node of another session.
    Watch { predecessor: String },
    /// It has to look at the queue by itself.
    Look,
}

/// What wakers are to be told, when nothing is locked.
#[derive(Debug)]
pub(crate) struct Told<W, L> {
    pub(crate) notices: Vec<(W, Notice)>,
    /// Those whose list will not come: their session is over, or they have gone.
    pub(crate) no_list: Vec<L>,
}

impl<W, L> Told<W, L> {
    /// Tells a waker, if there is one.
    pub(super) fn tell(&mut self, wake: Option<W>, notice: Notice) {
        self.notices.extend(wake.map(|wake| (wake, notice)));
    }
}

impl<W, L> Default for Told<W, L> {
    fn default() -> Self {
        Self { notices: Vec::new(), no_list: Vec::new() }
    }
}
