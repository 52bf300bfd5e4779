//! The signals that `zklock` passes on, and those by which it learns of changes of its children.

use std::future::poll_fn;
use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::task::Poll;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, WaitIdStatus, waitid};
use tokio::signal::unix::{self, SignalKind};
use tokio::time::timeout;

use crate::clock;

/// The signals that ask a command to do something, those of timers included, which a program may
/// have set before it became `zklock`. The others stop or continue a process, or come from its own
/// mistakes.
const PASSED_ON: [Signal; 10] = [
    Signal::HUP,
    Signal::INT,
    Signal::QUIT,
    Signal::TERM,
    Signal::USR1,
    Signal::USR2,
    Signal::ALARM,
    Signal::VTALARM,
    Signal::PROF,
    Signal::XCPU,
];

/// The signals by which a terminal stops a process group: that of a command, with its watchdog.
const STOPPING: [Signal; 3] = [Signal::TSTP, Signal::TTIN, Signal::TTOU];

/// Other signals that end a process unless it catches them, and that a command may send to its
/// group.
const OTHERS: [Signal; 5] = [
    Signal::IO,
    Signal::XFSZ,
    Signal::TRAP,
    Signal::SYS,
    Signal::ABORT,
];

/// Returns more of these: the signals of Linux alone, and the real-time signals that its C library
/// leaves to programs.
#[cfg(target_os = "linux")]
fn others_of_system() -> impl Iterator<Item = i32> {
    let first_real_time = if cfg!(target_env = "musl") { 35 } else { 34 };
    let named = [Signal::POWER, Signal::STKFLT].map(Signal::as_raw);
    named.into_iter().chain(first_real_time..=64)
}

#[cfg(not(target_os = "linux"))]
fn others_of_system() -> impl Iterator<Item = i32> {
    std::iter::empty()
}

/// The signals for a process that uses the terminal from the background.
const BY_TERMINAL: [Signal; 2] = [Signal::TTIN, Signal::TTOU];

/// The signals by which a process is asked to end. SIGHUP is none of them: many services read their
/// configuration again at it.
pub(crate) const ASK_TO_END: [Signal; 3] = [Signal::INT, Signal::QUIT, Signal::TERM];

/// Why a command is stopped.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Stop {
    /// The command uses a terminal that it does not have.
    ByTerminal,
    /// Another process has stopped the command, or the command itself.
    ByProcess,
}

/// Waits until a child of this process is stopped.
pub(crate) async fn until_stopped(child: Pid) -> Stop {
    let Ok(change) = until_changed(child, WaitIdOptions::STOPPED).await else {
        // On Linux there is an error for a child that has ended.
        return std::future::pending().await;
    };
    let by = change.stopping_signal();
    if by.is_some_and(|by| BY_TERMINAL.map(Signal::as_raw).contains(&by)) {
        Stop::ByTerminal
    } else {
        Stop::ByProcess
    }
}

/// Waits until a child of this process has ended, and leaves it a zombie: its number, and that of a
/// group that it leads, are no other's until the [`Child`](tokio::process::Child) is dropped.
pub(crate) async fn until_ended(child: Pid) -> io::Result<ExitStatus> {
    let change = until_changed(child, WaitIdOptions::EXITED | WaitIdOptions::NOWAIT).await?;
    // The encoding of wait(2).
    let status = match change.exit_status() {
        Some(code) => (code & 0xff) << 8,
        None => change.terminating_signal().unwrap_or_default(),
    };
    Ok(ExitStatus::from_raw(status))
}

async fn until_changed(child: Pid, options: WaitIdOptions) -> io::Result<WaitIdStatus> {
    // The signals are caught before the first look, so that no change is missed.
    let mut signals = unix::signal(SignalKind::child())?;
    loop {
        if let Some(change) = waitid(WaitId::Pid(child), options | WaitIdOptions::NOHANG)? {
            return Ok(change);
        }
        // A program may have started this one with the signal blocked.
        let _ = timeout(clock::INTERVAL, signals.recv()).await;
    }
}

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
        let is_wanted = |signal: &Signal| ignored >> (signal.as_raw() - 1) & 1 == 0;
        // The signal by which `until_changed` learns of changes is caught before the first child
        // exists: a program that ignores it has no zombies, and its children ignore it, too.
        unix::signal(SignalKind::child()).map(drop)?;
        // A message that a file takes no more, at its limit of size, is dropped.
        if is_wanted(&Signal::XFSZ) {
            unix::signal(SignalKind::from_raw(Signal::XFSZ.as_raw())).map(drop)?;
        }
        let caught = PASSED_ON.into_iter().filter(is_wanted).map(|signal| {
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
                    if ASK_TO_END.contains(signal) {
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

    /// Forgets the signal by which this process was asked to end.
    pub(crate) fn forget(&mut self) {
        self.asked_to_end = None;
    }
}

/// Catches what the group of a command may get, so that it does not end or stop this process.
pub(crate) fn catch_those_of_group() -> io::Result<()> {
    let named = PASSED_ON.into_iter().chain(STOPPING).chain(OTHERS);
    let mut all = named.map(Signal::as_raw).chain(others_of_system());
    // The runtime goes on to catch a signal whose stream has been dropped.
    all.try_for_each(|signal| unix::signal(SignalKind::from_raw(signal)).map(drop))
}

/// Returns the signals that this process ignores, a bit for each; none where there is no `/proc`.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or_default()
}
