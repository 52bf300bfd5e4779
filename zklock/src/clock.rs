//! The clock of the deadlines, which two processes compare: it counts from the start of the
//! machine, and goes on while the machine sleeps, as the clock of the library's leases does.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

#[cfg(any(target_os = "linux", target_os = "android"))]
const CLOCK: ClockId = ClockId::Boottime;
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const CLOCK: ClockId = ClockId::Monotonic;

/// Returns the current time.
pub(crate) fn now() -> Duration {
    // The time since the start is never negative.
    Duration::try_from(clock_gettime(CLOCK)).unwrap_or(Duration::ZERO)
}
