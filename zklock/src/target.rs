//! What signals are sent to.
//!
//! The kernel gives the number of a process, which is also that of a group that it has begun, to
//! another only when the process has been waited for and the group is empty. So `zklock` waits for
//! the command and the watchdog only after the last signal that it sends to them. The watchdog
//! sends SIGKILL also when `zklock` has ended, and another process has inherited the command and
//! may have waited for it, a moment before.

use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, getpgid, getpgrp, kill_process, kill_process_group, test_kill_process,
};

/// What signals are sent to.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Target {
    /// The process group that the watchdog leads, with the command and its children, and the
    /// command if it has left that group, with the group that it has begun itself. `None` before
    /// the command is started.
    Group { group: Pid, command: Option<Pid> },
    /// The command, which has stayed in the process group of `zklock`, with the terminal, or the
    /// group that the command has begun itself.
    Foreground(Pid),
}

impl Target {
    /// Returns the target of kill(1) that reaches the command, with its group unless the command
    /// has joined another's.
    pub(crate) fn of_kill(self) -> String {
        let (group, command) = match self {
            Self::Group { group, command } => (Some(group), command),
            Self::Foreground(command) => (None, Some(command)),
        };
        let of_command = command.and_then(|command| getpgid(Some(command)).ok());
        let is_its_own = |it: &Pid| Some(*it) == command || Some(*it) == group;
        let whole = match of_command {
            Some(of_command) => Some(of_command).filter(is_its_own),
            None => group,
        };
        match (whole, command) {
            (Some(group), _) => format!("-{}", group.as_raw_nonzero()),
            (None, Some(command)) => command.as_raw_nonzero().to_string(),
            (None, None) => String::new(),
        }
    }

    /// Sends a signal; a target that has ended needs none. A stopped process does not heed a signal
    /// before it continues, so SIGCONT follows.
    pub(crate) fn send(self, signal: Signal) {
        for signal in [signal, Signal::CONT] {
            match self {
                Self::Group { group, command } => {
                    // A command that is just leaving the group gets SIGKILL wherever it is. Any
                    // other signal is sent to it once. The group comes last, with the watchdog,
                    // which may be this process.
                    let is_apart =
                        |it: &Pid| signal == Signal::KILL || getpgid(Some(*it)) != Ok(group);
                    if let Some(command) = command.filter(is_apart) {
                        send_to_command(command, signal);
                    }
                    let _ = kill_process_group(group, signal);
                }
                Self::Foreground(command) => send_to_command(command, signal),
            }
        }
    }

    /// Returns whether this process may send signals to the command: not if that has taken the
    /// rights of another user.
    pub(crate) fn is_in_reach(self) -> bool {
        let command = match self {
            Self::Group { command, .. } => command,
            Self::Foreground(command) => Some(command),
        };
        command.is_none_or(|command| test_kill_process(command) != Err(Errno::PERM))
    }

    /// Returns whether the terminal has sent the command this signal, which this process got.
    pub(crate) fn is_sent_by_terminal(self, signal: Signal) -> bool {
        // The terminal sends INT and QUIT to all processes of the group in the foreground.
        let is_here = |process| getpgid(Some(process)) == Ok(getpgrp());
        matches!(self, Self::Foreground(process) if is_here(process))
            && [Signal::INT, Signal::QUIT].contains(&signal)
    }
}

/// Sends a signal to a command, and to a group that the command has begun, as `timeout` and
/// `setsid` do: a group may outlive the process that began it. A group that the command has joined
/// is another's.
fn send_to_command(command: Pid, signal: Signal) {
    // The command may be about to begin its group, so its group is read before the signal is sent.
    let is_leader = getpgid(Some(command)) == Ok(command);
    // Either may have ended.
    let _ = kill_process_group(command, signal);
    if !is_leader {
        let _ = kill_process(command, signal);
    }
}
