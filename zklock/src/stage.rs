//! How a command is started: this program runs once more, asks the kernel to kill it when `zklock`
//! ends, stops itself, and becomes the command when `zklock` continues it.
//!
//! So a command is dead also if `zklock` and its watchdog are killed at once. The process stops
//! itself until the watchdog has been told its number: a command that is not in the group of the
//! watchdog would outlive its deadline if `zklock` were stopped before.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

use rustix::process::{Pid, Signal, getpid, getppid, kill_process};

use crate::exit::{Failure, SYSTEM};
use crate::messages::{self, say};
use crate::watchdog::program;

/// The argument by which this program becomes a command; it is in no help.
pub(crate) const ARGUMENT: &str = "--zklock-command";

/// Returns what starts a command, up to the program. The kernel ends the command together with the
/// thread that spawns it, so the main thread has to be the one.
pub(crate) fn start() -> io::Result<Command> {
    let mut command = Command::new(program()?);
    command
        .arg(ARGUMENT)
        .arg(getpid().as_raw_nonzero().to_string());
    Ok(command)
}

/// Becomes the command of these arguments, the first of which is the process that started this one.
pub(crate) fn run(mut arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let parent = arguments
        .next()
        .and_then(|parent| parent.to_str()?.parse().ok());
    let Some((parent, program)) = parent.zip(arguments.next()) else {
        return ExitCode::from(SYSTEM);
    };
    if let Err(error) = end_with(parent) {
        say(&format!(
            "the kernel cannot end the command together with zklock: {error}"
        ));
        return ExitCode::from(SYSTEM);
    }
    if let Ok(path) = std::env::var("ZKLOCK_PATH") {
        messages::set_path(&path);
    }
    // The command begins when `zklock` continues this process: the watchdog knows the process then.
    let _ = kill_process(getpid(), Signal::STOP);
    let error = Command::new(&program).args(arguments).exec();
    let Failure { code, text } = Failure::not_started(&program.to_string_lossy(), &error);
    say(&text);
    code.into()
}

/// Returns an error if `/proc` shows other processes than those of this process's namespace, as
/// after `unshare --pid` without `--mount-proc`: it would not show whether the command has begun.
pub(crate) fn check_proc() -> Result<(), Failure> {
    let number = getpid().as_raw_nonzero().to_string();
    match std::fs::read_link("/proc/self") {
        Ok(own) if own.as_os_str() != &*number => Err(Failure::new(
            SYSTEM,
            "/proc is that of another PID namespace: mount one for this namespace",
        )),
        // Without `/proc` the watchdog does not start.
        _ => Ok(()),
    }
}

/// Returns whether a process is still to become its command: another process may have continued it.
/// `None` on a system that does not tell, and for a process that has no arguments yet or any more.
pub(crate) fn is_stage(process: Pid) -> Option<bool> {
    let path = format!("/proc/{}/cmdline", process.as_raw_nonzero());
    let arguments = std::fs::read(path).ok()?;
    let first = arguments.split(|byte| *byte == 0).nth(1)?;
    Some(first == ARGUMENT.as_bytes())
}

/// Has this process killed when its parent ends, which may have ended before.
fn end_with(parent: i32) -> io::Result<()> {
    signal_at_end_of_parent(Signal::KILL)?;
    let is_there = getppid().is_some_and(|pid| pid.as_raw_nonzero().get() == parent);
    if is_there {
        Ok(())
    } else {
        Err(io::Error::other("it has ended"))
    }
}

/// Has the kernel send this process a signal when its parent ends.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(crate) fn signal_at_end_of_parent(signal: Signal) -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(signal))?;
    Ok(())
}

/// Other systems have no such signal, so that the watchdog alone ends the command there.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
#[expect(clippy::unnecessary_wraps, reason = "Linux may fail")]
pub(crate) fn signal_at_end_of_parent(_: Signal) -> io::Result<()> {
    Ok(())
}
