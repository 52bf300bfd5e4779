//! The clock that decides whether a lock is still believed: it goes on while the machine sleeps.
//!
//! [`Instant`] is `CLOCK_MONOTONIC` on Linux, which stands still while the machine is suspended: after a resume a
//! lock would look held for as long as it did before, although the servers' clocks went on. `/proc/uptime` counts that
//! time; what it has over the [`Instant`] is added. Elsewhere the [`Instant`] has to do.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// `/proc/uptime` has a resolution of 10 ms; less than this is noise.
const NOISE: Duration = Duration::from_millis(100);

/// A moment on that clock, counted from the first one of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(Duration);

struct Origin {
    instant: Instant,
    uptime: Option<Duration>,
}

impl Origin {
    /// The two clocks, read close together: a pause between them would hide as much sleep later.
    fn new() -> Self {
        let mut origin = Self { instant: Instant::now(), uptime: uptime() };
        for _ in 0..100 {
            if origin.instant.elapsed() < NOISE / 10 {
                break;
            }
            origin = Self { instant: Instant::now(), uptime: uptime() };
        }
        origin
    }
}

static ORIGIN: OnceLock<Origin> = OnceLock::new();
/// The longest sleep seen, in milliseconds. It only grows, so the clock never goes back.
static SLEPT: AtomicU64 = AtomicU64::new(0);

impl Moment {
    pub(crate) fn now() -> Self {
        let origin = ORIGIN.get_or_init(Origin::new);
        // The uptime first: a pause of this thread between the two must not look like sleep of the machine.
        let uptime = uptime();
        let awake = origin.instant.elapsed();
        if let Some((then, now)) = origin.uptime.zip(uptime) {
            let slept = now.saturating_sub(then).saturating_sub(awake);
            if slept > NOISE {
                SLEPT.fetch_max(u64::try_from(slept.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
            }
        }
        Self(awake + Duration::from_millis(SLEPT.load(Ordering::Relaxed)))
    }

    /// The time since `earlier`, or zero.
    pub(crate) fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    #[cfg(test)]
    pub(crate) fn at(since_start: Duration) -> Self {
        Self(since_start)
    }
}

#[cfg(target_os = "linux")]
fn uptime() -> Option<Duration> {
    use std::io::Read as _;

    // "35.67 70.12\n": seconds since boot, sleep included, and idle time.
    let mut text = [0; 64];
    let length = std::fs::File::open("/proc/uptime").ok()?.read(&mut text).ok()?;
    let text = std::str::from_utf8(text.get(..length)?).ok()?;
    parse(text)
}

#[cfg(not(target_os = "linux"))]
fn uptime() -> Option<Duration> {
    None
}

#[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "only Linux has the file"))]
fn parse(text: &str) -> Option<Duration> {
    let seconds: f64 = text.split_whitespace().next()?.parse().ok()?;
    Duration::try_from_secs_f64(seconds).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_on_and_never_back() {
        let mut last = Moment::now();
        for _ in 0..1_000 {
            let now = Moment::now();
            assert!(now >= last);
            last = now;
        }
        assert_eq!(
            Moment::at(Duration::from_secs(3)).since(Moment::at(Duration::from_secs(1))),
            Duration::from_secs(2)
        );
        assert_eq!(Moment::at(Duration::ZERO).since(Moment::now()), Duration::ZERO);
    }

    #[test]
    fn the_kernels_text_is_read() {
        assert_eq!(parse("35.67 70.12\n"), Some(Duration::from_millis(35_670)));
        for bad in ["", " ", "x", "-1 2", "1e400", "nan"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}
