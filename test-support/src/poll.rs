//! Polling, for conditions that cause no event in this process.

use std::fmt;
use std::time::{Duration, Instant};

/// The pause between two calls of the probe by [`poll_until`].
const INTERVAL: Duration = Duration::from_millis(10);

/// The error of a condition that was not met in time.
#[derive(Debug, Clone)]
pub struct TimedOut {
    what: String,
    limit: Duration,
}

impl fmt::Display for TimedOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "expected {} within {:?}", self.what, self.limit)
    }
}

impl std::error::Error for TimedOut {}

/// Calls `probe` every 10 ms until it returns `Some`, for at most `limit`.
///
/// Use this for conditions of other processes that cause no event here: a server that begins to
/// listen, a watch that appears in `wchp`. Inside one process, wait for the event instead. The
/// probe runs at least once, and once more at the deadline.
///
/// # Errors
/// [`TimedOut`], which names `what`.
pub fn poll_until<T>(
    what: &str,
    limit: Duration,
    mut probe: impl FnMut() -> Option<T>,
) -> Result<T, TimedOut> {
    let start = Instant::now();
    loop {
        let late = start.elapsed() >= limit;
        if let Some(found) = probe() {
            return Ok(found);
        }
        if late {
            return Err(TimedOut {
                what: what.to_owned(),
                limit,
            });
        }
        nap();
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the poller of the workspace: other processes send us no event"
)]
fn nap() {
    std::thread::sleep(INTERVAL);
}
