//! The log of `--verbose`: what the workers did, in the order in which they did it.

use std::collections::VecDeque;
use std::time::Duration;

use indicatif::ProgressBar;

use super::monotonic;

/// How long a line is kept back, so that an earlier one of another worker can still come before it.
const DELAY: Duration = Duration::from_millis(100);

/// Lines with the moments of their events. Each worker reports in order, but the pipes of two
/// workers are read in any order.
#[derive(Debug, Default)]
pub(crate) struct Log {
    lines: VecDeque<(u64, String)>,
}

impl Log {
    /// Adds a line about a moment.
    pub(crate) fn add(&mut self, at: u64, line: String) {
        let place = self.lines.partition_point(|(earlier, _)| *earlier <= at);
        self.lines.insert(place, (at, line));
    }

    /// Returns whether there are lines to print.
    pub(crate) fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Prints the lines that have been kept back for long enough, above the progress bar.
    pub(crate) fn print_due(&mut self, bar: &ProgressBar) {
        self.print_until(bar, monotonic().saturating_sub(DELAY.as_nanos() as u64));
    }

    /// Prints all lines.
    pub(crate) fn print_all(&mut self, bar: &ProgressBar) {
        self.print_until(bar, u64::MAX);
    }

    fn print_until(&mut self, bar: &ProgressBar, until: u64) {
        let due = self.lines.partition_point(|(at, _)| *at <= until);
        for (_, line) in self.lines.drain(..due) {
            bar.suspend(|| eprintln!("{line}"));
        }
    }
}
