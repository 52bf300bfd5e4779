//! The clock that decides whether a lock is still believed: it goes on while the machine sleeps.
//!
//! [`Instant`](std::time::Instant) is `CLOCK_MONOTONIC` on Linux, which stands still while the machine is suspended: after
//! a resume a lock would look held for as long as it did before, although the servers' clocks went on. `CLOCK_BOOTTIME`
//! counts that time, and is read without a system call (vDSO; since Linux 5.3), so that it can be asked at every use of a
//! guard. Elsewhere the `Instant` has to do.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::protocol::moment::Moment;

/// The moment that it is now.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(crate) fn now() -> Moment {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    // A time since the boot is never negative.
    Moment::at(Duration::try_from(now).unwrap_or(Duration::ZERO))
}

/// The moment that it is now.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(crate) fn now() -> Moment {
    static ORIGIN: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
    // Not from 0, which `Latest` has for none.
    Moment::at(ORIGIN.get_or_init(std::time::Instant::now).elapsed() + Duration::from_nanos(1))
}

/// The latest of the moments that it was told, if there was any. Of several threads; reading it takes no lock.
#[derive(Debug, Default)]
pub(crate) struct Latest(AtomicU64);

impl Latest {
    pub(crate) fn raise(&self, moment: Moment) {
        // Nanoseconds in 64 bits are 584 years.
        self.0.fetch_max(u64::try_from(moment.elapsed().as_nanos()).unwrap_or(u64::MAX), Ordering::AcqRel);
    }

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
    fn it_goes_on_and_never_back() {
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
    fn the_latest_moment_counts_whatever_the_order() {
        let (latest, at) = (Latest::default(), |nanos| Moment::at(Duration::from_nanos(nanos)));
        assert_eq!(latest.get(), None);
        for (told, expected) in [(5, 5), (3, 5), (7, 7)] {
            latest.raise(at(told));
            assert_eq!(latest.get(), Some(at(expected)));
        }
    }

    /// The kernel's own text says how long the machine is up, sleep included.
    #[test]
    #[cfg(target_os = "linux")]
    fn it_counts_from_the_boot_as_the_kernel_does() {
        let uptime = || -> Duration {
            let text = std::fs::read_to_string("/proc/uptime").unwrap();
            Duration::from_secs_f64(text.split_whitespace().next().unwrap().parse().unwrap())
        };
        // The text has hundredths of a second.
        let hundredth = Duration::from_millis(10);
        let (before, now, after) = (uptime(), now(), uptime());
        assert!(now.elapsed() + hundredth >= before, "{before:?} {now:?}");
        assert!(now.elapsed() <= after + hundredth, "{now:?} {after:?}");
    }
}
