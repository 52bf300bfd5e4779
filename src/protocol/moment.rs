//! A moment in time, as an argument of pure code.
//!
//! Pure code reads no clock. Each function that depends on the time takes a [`Moment`], which the
//! session reads from the clock that measures leases, and which tests choose.

use std::time::Duration;

/// The longest timeout or lease that limits anything, a year. A longer one means no limit, because
/// tokio's timers reach only about two years.
pub(crate) const LONGEST: Duration = Duration::from_secs(60 * 60 * 24 * 365);

/// A moment on the clock that measures leases, as the time since the clock's origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(Duration);

impl Moment {
    /// Returns the time since `earlier`; zero if that is later.
    pub(crate) fn since(self, earlier: Self) -> Duration {
        // Two threads may read the clock in one order and compare the moments in the other. The
        // difference is then small, and counts as zero.
        self.0.saturating_sub(earlier.0)
    }

    /// Returns the moment that is `time` later.
    pub(crate) fn plus(self, time: Duration) -> Self {
        // The last moment that can be represented never comes, so it can stand for later ones.
        Self(self.0.saturating_add(time))
    }

    /// Returns the end of a lease that begins at this moment; `None` if the lease is longer than
    /// [`LONGEST`], which means no limit.
    pub(crate) fn end_of(self, lease: Duration) -> Option<Self> {
        // A sum that overflows is as far away as a lease beyond the limit.
        if lease > LONGEST {
            None
        } else {
            self.0.checked_add(lease).map(Self)
        }
    }

    /// Returns the moment that is `time` after the clock's origin.
    pub(crate) const fn at(time: Duration) -> Self {
        Self(time)
    }

    /// Returns the time since the clock's origin.
    pub(crate) fn since_origin(self) -> Duration {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn year_long_lease_has_no_end() {
        const YEAR: Duration = Duration::from_secs(31_536_000);
        let (now, nano) = (Moment::at(Duration::from_secs(5)), Duration::from_nanos(1));
        for lease in [Duration::ZERO, Duration::from_secs(3), YEAR] {
            assert_eq!(
                now.end_of(lease),
                Some(Moment::at(Duration::from_secs(5) + lease))
            );
        }
        assert_eq!(now.end_of(YEAR + nano), None);
        assert_eq!(Moment::at(Duration::MAX).end_of(nano), None);
    }

    #[test]
    fn moments_saturate() {
        let (early, late) = (
            Moment::at(Duration::from_secs(1)),
            Moment::at(Duration::from_secs(3)),
        );
        assert_eq!(
            (late.since(early), early.since(late)),
            (Duration::from_secs(2), Duration::ZERO)
        );
        assert_eq!(early.plus(Duration::from_secs(2)), late);
        assert_eq!(late.plus(Duration::MAX), Moment::at(Duration::MAX));
        assert_eq!(late.since_origin(), Duration::from_secs(3));
    }
}
