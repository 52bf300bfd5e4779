//! The reason for which a run waits, as a message beside its progress bar.

use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use tokio::task::JoinSet;

const TICK: Duration = Duration::from_millis(100);

/// Counts down to the end of a session whose process cannot close it. The message is gone when the
/// session has had its time, or this is dropped.
#[derive(Debug)]
pub(crate) struct Countdown {
    bar: ProgressBar,
    _task: JoinSet<()>,
}

impl Drop for Countdown {
    fn drop(&mut self) {
        self.bar.set_message("");
    }
}

impl Countdown {
    /// Shows `what` with the seconds that are left of the session timeout. With a short `what` it
    /// fits beside the bar of a terminal of 80 columns.
    pub(crate) fn start(bar: &ProgressBar, what: String, session_timeout: Duration) -> Self {
        let (shown, since) = (bar.clone(), Instant::now());
        let mut task = JoinSet::new();
        task.spawn(async move {
            while let Some(left) = session_timeout.checked_sub(since.elapsed()) {
                shown.set_message(format!(
                    "{what}, session ends in {:.1} s",
                    left.as_secs_f64()
                ));
                tokio::time::sleep(TICK).await;
            }
            shown.set_message("");
        });
        Self {
            bar: bar.clone(),
            _task: task,
        }
    }
}
