//! The end of this process by a signal of its terminal.
//!
//! A shell ends its script at ^C only if the program that it waits for has died of the signal: a
//! program that exits, also with 130, has dealt with the signal. The runtime catches signals until
//! the process ends. A program that is executed begins with their default actions, so this program
//! executes itself once more, in the same process, and sends itself the signal.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

use rustix::process::{Resource, Rlimit, Signal, getpid, kill_process, setrlimit};

use crate::exit::{SYSTEM, code_of_signal};
use crate::watchdog::program;

/// The argument by which this program dies; it is in no help.
pub(crate) const ARGUMENT: &str = "--zklock-signal";

/// Ends this process by a signal. Returns only if that is not possible, with the exit code that
/// says the same.
pub(crate) fn die(signal: Signal) -> ExitCode {
    let number = signal.as_raw();
    if let Ok(program) = program() {
        // `exec` returns only if it fails, and then the exit code tells.
        let _ = Command::new(program)
            .arg0("zklock")
            .arg(ARGUMENT)
            .arg(number.to_string())
            .exec();
    }
    code_of_signal(number).into()
}

/// Dies of the signal of these arguments, without a core: that of the command tells what it did.
pub(crate) fn run(mut arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let number = arguments
        .next()
        .and_then(|number| number.to_str()?.parse().ok());
    let Some((number, signal)) =
        number.and_then(|number| Some((number, Signal::from_named_raw(number)?)))
    else {
        return ExitCode::from(SYSTEM);
    };
    let none = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    let _ = setrlimit(Resource::Core, none);
    let _ = kill_process(getpid(), signal);
    // A process that was started to ignore the signal goes on.
    code_of_signal(number).into()
}
