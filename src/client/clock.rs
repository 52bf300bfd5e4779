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

/// The clock that goes on while the machine sleeps, and where it stood at the first look.
struct Boot {
    uptime: Uptime,
    then: Duration,
    instant: Instant,
}

impl Boot {
    /// The two clocks, read close together: a pause between them would hide as much sleep later.
    fn new() -> Option<Self> {
        let uptime = Uptime::open()?;
        let mut instant = Instant::now();
        let mut then = uptime.read()?;
        for _ in 0..100 {
            if instant.elapsed() < NOISE / 10 {
                break;
            }
            instant = Instant::now();
            then = uptime.read()?;
        }
        Some(Self { uptime, then, instant })
    }
}

/// The first moment of the process.
static ORIGIN: OnceLock<Instant> = OnceLock::new();
/// Empty as long as there is no such clock, or no file descriptor to read it by.
static BOOT: OnceLock<Boot> = OnceLock::new();
/// The longest sleep seen, in milliseconds. It only grows, so the clock never goes back.
static SLEPT: AtomicU64 = AtomicU64::new(0);

/// For how long the machine has slept since the first look, as far as can be told.
fn slept() -> Option<Duration> {
    let boot = match BOOT.get() {
        Some(boot) => boot,
        None => {
            let boot = Boot::new()?;
            BOOT.get_or_init(|| boot)
        }
    };
    // The uptime first: a pause of this thread between the two must not look like sleep of the machine.
    let up = boot.uptime.read()?.saturating_sub(boot.then);
    Some(up.saturating_sub(boot.instant.elapsed()))
}

impl Moment {
    pub(crate) fn now() -> Self {
        let origin = *ORIGIN.get_or_init(Instant::now);
        if let Some(slept) = slept().filter(|slept| *slept > NOISE) {
            SLEPT.fetch_max(u64::try_from(slept.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
        }
        Self(origin.elapsed() + Duration::from_millis(SLEPT.load(Ordering::Relaxed)))
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

/// The file is opened once: a process that has run out of file descriptors must not miss a sleep.
#[cfg(target_os = "linux")]
struct Uptime(std::fs::File);

#[cfg(target_os = "linux")]
impl Uptime {
    fn open() -> Option<Self> {
        std::fs::File::open("/proc/uptime").ok().map(Self)
    }

    fn read(&self) -> Option<Duration> {
        use std::os::unix::fs::FileExt as _;

        // "35.67 70.12\n": seconds since boot, sleep included, and idle time. Written anew for each read of its beginning.
        let mut text = [0; 64];
        let length = self.0.read_at(&mut text, 0).ok()?;
        parse(std::str::from_utf8(text.get(..length)?).ok()?)
    }
}

#[cfg(not(target_os = "linux"))]
struct Uptime;

#[cfg(not(target_os = "linux"))]
impl Uptime {
    fn open() -> Option<Self> {
        None
    }

    fn read(&self) -> Option<Duration> {
        None
    }
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

    /// The limit is the process's, so this runs in a process of its own.
    #[test]
    #[cfg(target_os = "linux")]
    fn sleep_is_seen_without_a_free_descriptor() {
        use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

        const ALONE: &str = "ZOOKEEPER_RECIPES_CLOCK_ALONE";
        if std::env::var_os(ALONE).is_none() {
            let name = "client::clock::tests::sleep_is_seen_without_a_free_descriptor";
            let output = std::process::Command::new(std::env::current_exe().unwrap())
                .args(["--exact", name])
                .env(ALONE, "1")
                .output()
                .unwrap();
            let text = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success() && text.contains("1 passed"), "{text}");
            return;
        }
        let usual = getrlimit(Resource::Nofile);
        let none = Rlimit { current: Some(0), maximum: usual.maximum };
        setrlimit(Resource::Nofile, none).unwrap();
        Moment::now();
        assert_eq!(slept(), None, "it could be opened");
        // What could not be opened the first time is opened as soon as it can be.
        setrlimit(Resource::Nofile, usual).unwrap();
        assert!(slept().is_some());
        setrlimit(Resource::Nofile, none).unwrap();
        assert!(std::fs::File::open("/proc/uptime").is_err());
        assert!(slept().is_some(), "it is opened each time");
    }

    #[test]
    fn the_kernels_text_is_read() {
        assert_eq!(parse("35.67 70.12\n"), Some(Duration::from_millis(35_670)));
        for bad in ["", " ", "x", "-1 2", "1e400", "nan"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}
