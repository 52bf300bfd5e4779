//! The clock that measures leases, which continues while the machine sleeps.
//!
//! On Linux, [`Instant`](std::time::Instant) is `CLOCK_MONOTONIC`, which stops while the machine is
//! suspended. After a resume, a lock would seem to be held for as long as before, although the
//! servers' clocks continued. `CLOCK_BOOTTIME` counts the suspended time. It is read without a
//! system call (vDSO, since Linux 5.3), so that it can be read at every use of a guard. Other
//! systems fall back to `Instant`.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::protocol::moment::Moment;

/// Returns the current moment.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(crate) fn now() -> Moment {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    // The time since boot is never negative.
    Moment::at(Duration::try_from(now).unwrap_or(Duration::ZERO))
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(crate) fn now() -> Moment {
    static ORIGIN: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
    // The clock does not start at 0, which is `None` in `Latest`.
    Moment::at(ORIGIN.get_or_init(std::time::Instant::now).elapsed() + Duration::from_nanos(1))
}

/// The latest of the moments that several threads have recorded. Reading it locks no mutex.
#[derive(Default)]
pub(crate) struct Latest(AtomicU64);

impl Latest {
    /// Records a moment, unless a later one is recorded.
    pub(crate) fn raise(&self, moment: Moment) {
        // 64 bits of nanoseconds are 584 years.
        self.0.fetch_max(
            u64::try_from(moment.since_origin().as_nanos()).unwrap_or(u64::MAX),
            Ordering::AcqRel,
        );
    }

    /// Returns the latest moment; `None` if none was recorded.
    pub(crate) fn get(&self) -> Option<Moment> {
        match self.0.load(Ordering::Acquire) {
            0 => None,
            nanos => Some(Moment::at(Duration::from_nanos(nanos))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_never_goes_back() {
        let mut last = now();
        for _ in 0..1_000 {
            let now = now();
            assert!(now >= last);
            last = now;
        }
        assert_eq!(
            Moment::at(Duration::from_secs(3)).since(Moment::at(Duration::from_secs(1))),
            Duration::from_secs(2)
        );
        assert_eq!(Moment::at(Duration::ZERO).since(now()), Duration::ZERO);
    }

    #[test]
    fn latest_moment_counts() {
        let (latest, at) = (Latest::default(), |nanos| {
            Moment::at(Duration::from_nanos(nanos))
        });
        assert_eq!(latest.get(), None);
        for (told, expected) in [(5, 5), (3, 5), (7, 7)] {
            latest.raise(at(told));
            assert_eq!(latest.get(), Some(at(expected)));
        }
    }

    /// `/proc/uptime` counts from boot, sleep included.
    // Shows: lease
    #[test]
    #[cfg(target_os = "linux")]
    fn clock_counts_from_boot() {
        let uptime = || -> Duration {
            let text = std::fs::read_to_string("/proc/uptime").unwrap();
            Duration::from_secs_f64(text.split_whitespace().next().unwrap().parse().unwrap())
        };
        // The resolution of the file is a hundredth of a second.
        let hundredth = Duration::from_millis(10);
        let (before, now, after) = (uptime(), now(), uptime());
        assert!(
            now.since_origin() + hundredth >= before,
            "{before:?} {now:?}"
        );
        assert!(now.since_origin() <= after + hundredth, "{now:?} {after:?}");
    }
}
