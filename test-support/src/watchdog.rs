//! Ends child processes when this process ends without having ended them.

use std::io::{self, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Kills the servers and deletes their directory when this process ends without having done so:
/// when it is killed, or exits with servers in a static.
#[derive(Debug)]
pub(crate) struct Watchdog {
    child: Child,
}

impl Watchdog {
    /// Starts a shell that reads process ids, where each line replaces the one before. The shell
    /// acts when the pipe is closed, which happens when this process ends.
    pub(crate) fn start(dir: &Path) -> io::Result<Self> {
        const SCRIPT: &str = "live=; while read -r line; do live=$line; done; \
                              if [ -n \"$live\" ]; then kill -s KILL $live; fi; rm -rf -- \"$0\"";
        let mut command = Command::new("sh");
        command.args(["-c", SCRIPT]).arg(dir).current_dir("/");
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        // The watchdog has a separate process group: the Ctrl-C that ends this process would end it
        // too.
        own_group(&mut command);
        Ok(Self {
            child: command.spawn()?,
        })
    }

    pub(crate) fn guard(&mut self, live: &[u32]) {
        let line: Vec<_> = live.iter().map(u32::to_string).collect();
        if let Some(pipe) = &mut self.child.stdin {
            // Without a watchdog, `Drop` still ends the children.
            let _ = pipe.write_all(format!("{}\n", line.join(" ")).as_bytes());
        }
    }

    pub(crate) fn end(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Prevents a Ctrl-C for this process from reaching the child.
pub(crate) fn own_group(command: &mut Command) {
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(command, 0);
    #[cfg(not(unix))]
    let _ = command;
}
