//! The notices of a [`LocalQueue`](super::local_queue::LocalQueue) to its attempts.

/// A notice to an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Notice {
    /// It may be its turn to create: it must ask again.
    Turn,
    /// The lock is handed over: one transaction has deleted the holder's node while the attempt's node
    /// existed.
    HandedOver,
    /// The node that it waited for is gone, and has waited for this node of another session.
    Watch { predecessor: String },
    /// It must list the directory.
    Look,
}

/// Notices to be sent when nothing is locked.
#[derive(Debug)]
pub(crate) struct Told<W, L> {
    pub(crate) notices: Vec<(W, Notice)>,
    /// The receivers that get no list: the session has ended, or the attempt has left.
    pub(crate) no_list: Vec<L>,
}

impl<W, L> Told<W, L> {
    /// Adds a notice for a waker, if there is one.
    pub(super) fn tell(&mut self, wake: Option<W>, notice: Notice) {
        self.notices.extend(wake.map(|wake| (wake, notice)));
    }
}

impl<W, L> Default for Told<W, L> {
    fn default() -> Self {
        Self { notices: Vec::new(), no_list: Vec::new() }
    }
}
