//! What signals are sent to.

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

/// What signals are sent to.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Target {
    /// The process group that the watchdog leads, with the command and its children.
    Group(Pid),
    /// The command, which has stayed in the process group of `zklock`, with the terminal.
    Foreground(Pid),
}

impl Target {
    /// Sends a signal; a target that has ended needs none. A stopped process does not heed a signal
    /// before it continues, so SIGCONT follows.
    pub(crate) fn send(self, signal: Signal) {
        for signal in [signal, Signal::CONT] {
            let _ = match self {
                Self::Group(group) => kill_process_group(group, signal),
                Self::Foreground(process) => kill_process(process, signal),
            };
        }
    }

    /// Sends a signal that this process got.
    pub(crate) fn pass_on(self, signal: Signal) {
        // The terminal sends these to all processes in the foreground.
        let has_got_it =
            matches!(self, Self::Foreground(_)) && [Signal::INT, Signal::QUIT].contains(&signal);
        if !has_got_it {
            self.send(signal);
        }
    }
}
