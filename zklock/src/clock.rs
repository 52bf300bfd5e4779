//! The clock of the deadlines, which two processes compare: it counts from the start of the
//! machine, and goes on while the machine sleeps, as the clock of the library's leases does.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tokio::time::sleep;

/// How often the clock is read by who waits for a time: a timer stands still while the machine
/// sleeps, and the clock does not.
pub(crate) const INTERVAL: Duration = Duration::from_millis(250);

#[cfg(any(target_os = "linux", target_os = "android"))]
const CLOCK: ClockId = ClockId::Boottime;
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const CLOCK: ClockId = ClockId::Monotonic;

/// Returns the current time.
pub(crate) fn now() -> Duration {
    // The time since the start is never negative.
    Duration::try_from(clock_gettime(CLOCK)).unwrap_or(Duration::ZERO)
}

/// Waits until a time by this clock.
pub(crate) async fn until(time: Duration) {
    until_by(now, time).await;
}

/// Waits until a time by a clock, which is read in between.
async fn until_by(now: impl Fn() -> Duration, time: Duration) {
    loop {
        let left = time.saturating_sub(now());
        if left.is_zero() {
            return;
        }
        sleep(left.min(INTERVAL)).await;
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::time::Instant;

    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    /// The clock goes on for an hour in which no timer does.
    #[test]
    fn sleep_of_the_machine_counts() {
        let (looks, started) = (Cell::new(0), Instant::now());
        let clock = || {
            looks.set(looks.get() + 1);
            if looks.get() == 1 {
                Duration::ZERO
            } else {
                HOUR
            }
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build();
        runtime.unwrap().block_on(until_by(clock, HOUR));
        assert_eq!(looks.get(), 2);
        assert!(started.elapsed() < HOUR);
    }
}
