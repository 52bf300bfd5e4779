//! A command that stays in the process group of `zklock`, with the terminal. There is no group to
//! kill when `zklock` is killed, so the kernel kills the command: this program asks for that, and
//! then becomes the command.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

use rustix::process::getpid;

use crate::exit::{Failure, SYSTEM};
use crate::watchdog::program;

/// The argument by which this program becomes a command; it is in no help.
pub(crate) const ARGUMENT: &str = "--zklock-foreground";

/// Returns what starts a command in the foreground, up to the program.
pub(crate) fn start() -> std::io::Result<Command> {
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
        eprintln!("zklock: the kernel cannot end the command together with zklock: {error}");
        return ExitCode::from(SYSTEM);
    }
    let error = Command::new(&program).args(arguments).exec();
    let Failure { code, text } = Failure::not_started(&program.to_string_lossy(), &error);
    eprintln!("zklock: {text}");
    code.into()
}

/// Has this process killed when its parent ends.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn end_with(parent: i32) -> std::io::Result<()> {
    use rustix::process::{Signal, getppid, set_parent_process_death_signal};
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // It may have ended before.
    let is_there = getppid().is_some_and(|pid| pid.as_raw_nonzero().get() == parent);
    if is_there {
        Ok(())
    } else {
        Err(std::io::Error::other("it has ended"))
    }
}

/// Other systems do not offer that.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn end_with(_: i32) -> std::io::Result<()> {
    Err(std::io::ErrorKind::Unsupported.into())
}
