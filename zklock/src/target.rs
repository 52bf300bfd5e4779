//! What signals are sent to.

use rustix::process::{Pid, Signal, getpgid, getpgrp, kill_process, kill_process_group};

/// What signals are sent to.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Target {
    /// The process group that the watchdog leads, with the command and its children, and the group
    /// that the command has begun itself. `None` before the command is started and after it has been
    /// waited for: its number may be another's then.
    Group { group: Pid, command: Option<Pid> },
    /// The command, which has stayed in the process group of `zklock`, with the terminal, or the
    /// group that the command has begun itself.
    Foreground(Pid),
}

impl Target {
    /// Returns what is left of the target once the command has been waited for.
    pub(crate) fn without_command(self) -> Option<Self> {
        match self {
            Self::Group { group, .. } => Some(Self::Group {
                group,
                command: None,
            }),
            Self::Foreground(_) => None,
        }
    }

    /// Sends a signal; a target that has ended needs none. A stopped process does not heed a signal
    /// before it continues, so SIGCONT follows.
    pub(crate) fn send(self, signal: Signal) {
        for signal in [signal, Signal::CONT] {
            let _ = match self {
                Self::Group { group, command } => {
                    let own = command.filter(leads_group);
                    let _ = own.map(|own| kill_process_group(own, signal));
                    kill_process_group(group, signal)
                }
                Self::Foreground(process) if leads_group(&process) => {
                    kill_process_group(process, signal)
                }
                Self::Foreground(process) => kill_process(process, signal),
            };
        }
    }

    /// Sends a signal that this process got.
    pub(crate) fn pass_on(self, signal: Signal) {
        // The terminal sends INT and QUIT to all processes of the group in the foreground.
        let is_here = |process| getpgid(Some(process)) == Ok(getpgrp());
        let has_got_it = matches!(self, Self::Foreground(process) if is_here(process))
            && [Signal::INT, Signal::QUIT].contains(&signal);
        if !has_got_it {
            self.send(signal);
        }
    }
}

/// Returns whether a process has begun a group, as `timeout` and `setsid` do.
fn leads_group(process: &Pid) -> bool {
    getpgid(Some(*process)) == Ok(*process)
}
