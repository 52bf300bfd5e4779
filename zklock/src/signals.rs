//! The signals that `zklock` passes on.

use std::future::poll_fn;
use std::io;
use std::task::Poll;

use rustix::process::Signal;
use tokio::signal::unix::{self, SignalKind};

/// Those by which a command is asked to do something. The others stop or continue a process, or
/// come from its own mistakes.
const PASSED_ON: [Signal; 6] = [
    Signal::HUP,
    Signal::INT,
    Signal::QUIT,
    Signal::TERM,
    Signal::USR1,
    Signal::USR2,
];

/// Those by which a process is asked to end.
const ENDING: [Signal; 2] = [Signal::INT, Signal::TERM];

/// The signals that this process catches.
#[derive(Debug)]
pub(crate) struct Signals {
    caught: Vec<(Signal, unix::Signal)>,
    asked_to_end: Option<Signal>,
}

impl Signals {
    /// Catches the signals that are passed on, but those that this process was started to ignore:
    /// with `nohup`, the command ignores SIGHUP too.
    pub(crate) fn to_pass_on() -> io::Result<Self> {
        let ignored = ignored();
        Self::catch(|signal| ignored >> (signal.as_raw() - 1) & 1 == 0)
    }

    /// Catches all of them, so that none ends this process.
    pub(crate) fn all() -> io::Result<Self> {
        Self::catch(|_| true)
    }

    fn catch(is_wanted: impl Fn(&Signal) -> bool) -> io::Result<Self> {
        let wanted = PASSED_ON.into_iter().filter(is_wanted);
        let caught = wanted.map(|signal| {
            let stream = unix::signal(SignalKind::from_raw(signal.as_raw()))?;
            Ok((signal, stream))
        });
        Ok(Self {
            caught: caught.collect::<io::Result<_>>()?,
            asked_to_end: None,
        })
    }

    /// Waits for the next signal.
    pub(crate) async fn next(&mut self) -> Signal {
        poll_fn(|context| {
            for (signal, stream) in &mut self.caught {
                if let Poll::Ready(Some(())) = stream.poll_recv(context) {
                    if ENDING.contains(signal) {
                        self.asked_to_end = Some(*signal);
                    }
                    return Poll::Ready(*signal);
                }
            }
            Poll::Pending
        })
        .await
    }

    /// Returns the last signal by which this process was asked to end.
    pub(crate) fn asked_to_end(&self) -> Option<Signal> {
        self.asked_to_end
    }

    /// Forgets it.
    pub(crate) fn forget(&mut self) {
        self.asked_to_end = None;
    }
}

/// Returns the signals that this process ignores, a bit for each; none where there is no `/proc`.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or_default()
}
