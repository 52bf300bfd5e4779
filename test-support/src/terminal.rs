//! The output of a program on a terminal.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::process::{Command, ExitStatus, Stdio};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

/// Runs a program with its stderr on a terminal until it ends; returns how it ended and what it
/// wrote there. Its stdout is discarded.
///
/// # Errors
/// Returns an error if no terminal is available, or the program cannot be started.
pub fn shown_on_a_terminal(mut program: Command) -> io::Result<(ExitStatus, String)> {
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY)?;
    grantpt(&terminal)?;
    unlockpt(&terminal)?;
    let name = ptsname(&terminal, Vec::new())?;
    let stderr = OpenOptions::new()
        .read(true)
        .write(true)
        .open(OsStr::from_bytes(name.as_bytes()))?;
    let mut child = program
        .env("TERM", "xterm")
        .stdout(Stdio::null())
        .stderr(stderr)
        .spawn()?;
    // The command keeps its own descriptor of the terminal. The loop below ends only when that is
    // closed.
    drop(program);
    let (mut shown, mut buffer, mut terminal) = (Vec::new(), [0; 4096], File::from(terminal));
    // Linux reports an error for a terminal that no other process has open any more.
    while let Ok(n @ 1..) = terminal.read(&mut buffer) {
        shown.extend_from_slice(&buffer[..n]);
    }
    Ok((child.wait()?, String::from_utf8_lossy(&shown).into_owned()))
}
