//! A moment in time, told to the code that decides. Pure.

use std::time::Duration;

/// A moment on the clock that leases are measured by, counted from some moment before the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(Duration);

impl Moment {
    /// The time since `earlier`, or zero.
    pub(crate) fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    /// The moment that is `time` later.
    pub(crate) fn plus(self, time: Duration) -> Self {
        Self(self.0.saturating_add(time))
    }

    /// The moment that is `time` after the clock's beginning.
    pub(crate) fn at(time: Duration) -> Self {
        Self(time)
    }

    /// The time since the clock's beginning.
    pub(crate) fn elapsed(self) -> Duration {
        self.0
    }
}
