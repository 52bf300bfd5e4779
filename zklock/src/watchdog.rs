//! The watchdog of a command: a second process of this program, which ends the command when
//! `zklock` cannot.
//!
//! The watchdog leads the process group that the command is started in, unless the command stays in
//! the foreground. From `zklock` it gets deadlines through a pipe: until then the node of the lock
//! stays for certain. When the deadline passes, or the pipe ends because `zklock` was killed, the
//! watchdog sends SIGKILL to the group, itself included. So the command is dead before the servers
//! grant the lock to another process, also if `zklock` is stopped, hangs or is gone. A watchdog
//! that is stopped itself is woken with each order, and [`Deadline`] does its work meanwhile.

use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{ExitCode, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, getpgrp, getpid, kill_process};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::unix::pipe;
use tokio::process::{Child, ChildStdin, Command};
use tokio::time::timeout;

use crate::clock;
use crate::deadline::Deadline;
use crate::exit::{Failure, SYSTEM};
use crate::signals::{catch_those_of_group, until_ended};
use crate::stage::signal_at_end_of_parent;
use crate::target::Target;

/// The argument by which this program is a watchdog; it is in no help.
pub(crate) const ARGUMENT: &str = "--zklock-watchdog";

/// The name of the watchdog's process, as long as the kernel's names may be.
const NAME: &str = "zklock-watchdog";

/// What the watchdog writes when it catches the signals that its group may get.
const READY: u8 = b'r';

/// The order after which the watchdog ends, and leaves the command alone. Others are deadlines, in
/// nanoseconds.
const STAND_DOWN: u64 = 0;

/// Marks an order with the command's process. No deadline is so late.
const PROCESS: u64 = 1 << 63;

/// Marks such an order if the process is killed instead of the group.
const ALONE: u64 = 1 << 62;

/// How long the watchdog sleeps at least, so that the runtime sees whether there is an order.
const LEAST_SLEEP: Duration = Duration::from_millis(1);

/// How long the watchdog may take to start. A watchdog that takes longer has been stopped.
const STARTING: Duration = Duration::from_secs(10);

/// How long the watchdog may take to end when it is told to, before SIGKILL, which ends a stopped
/// process too.
const STANDING_DOWN: Duration = Duration::from_secs(1);

/// The watchdog, as `zklock` sees it.
#[derive(Debug)]
pub(crate) struct Watchdog {
    // The orders are dropped first: the thread knows the number of the process.
    pub(crate) orders: Orders,
    process: Child,
}

/// The orders to the watchdog, through its pipe, and to the thread of `zklock` that does the same.
#[derive(Debug)]
pub(crate) struct Orders {
    pipe: ChildStdin,
    watchdog: Pid,
    own: Deadline,
    deadline: Duration,
    target: Target,
}

impl Watchdog {
    /// Starts the watchdog of a new process group.
    pub(crate) async fn start() -> Result<Self, Failure> {
        Self::try_start().await.map_err(|error| {
            let text = "the watchdog did not start";
            match error.kind() {
                // /proc/self/exe is the path of this program.
                io::ErrorKind::NotFound => Failure::new(
                    SYSTEM,
                    format!("{text}: /proc, which zklock needs, is not mounted"),
                ),
                _ => Failure::system(text, &error),
            }
        })
    }

    async fn try_start() -> io::Result<Self> {
        let mut command = std::process::Command::new(program()?);
        command
            .arg0("zklock")
            .arg(ARGUMENT)
            .current_dir("/")
            .process_group(0);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut process = Command::from(command).spawn()?;
        let id = process
            .id()
            .and_then(|id| Pid::from_raw(id.try_into().ok()?));
        let (Some(group), Some(pipe), Some(mut ready)) =
            (id, process.stdin.take(), process.stdout.take())
        else {
            return Err(io::Error::other("it has no pipes"));
        };
        match timeout(STARTING, ready.read_u8()).await {
            Ok(Ok(READY)) => {}
            Ok(Ok(other)) => return Err(io::Error::other(format!("it said {other}"))),
            Ok(Err(error)) => return Err(error),
            Err(_) => {
                process.start_kill()?;
                let text = format!("it was not ready within {STARTING:?}");
                return Err(io::Error::new(io::ErrorKind::TimedOut, text));
            }
        }
        let orders = Orders {
            pipe,
            watchdog: group,
            own: Deadline::start()?,
            deadline: Duration::MAX,
            target: Target::Group {
                group,
                command: None,
            },
        };
        Ok(Self { process, orders })
    }

    /// Returns the process group, in which the command belongs.
    pub(crate) fn group(&self) -> Pid {
        self.orders.watchdog
    }

    /// Ends the watchdog and the thread, and leaves what is in the group alone. Returns the signal
    /// of which the watchdog had died before. The watchdog keeps its number until this is dropped.
    pub(crate) async fn stand_down(&mut self) -> Option<i32> {
        let Orders {
            pipe,
            watchdog,
            own,
            ..
        } = &mut self.orders;
        own.end();
        let standing_down = async {
            // A watchdog that has ended needs no order.
            let _ = send(pipe, *watchdog, STAND_DOWN).await;
            until_ended(*watchdog).await
        };
        if let Ok(status) = timeout(STANDING_DOWN, standing_down).await {
            return status.ok().and_then(|status| status.signal());
        }
        // The watchdog is killed before its pipe ends: otherwise it would kill the group when it
        // continues.
        let _ = self.process.start_kill();
        let _ = until_ended(*watchdog).await;
        None
    }
}

impl Orders {
    /// Sets the deadline, sooner or later than it was.
    pub(crate) async fn kill_at(&mut self, deadline: Duration) -> io::Result<()> {
        self.own.set(deadline, self.target);
        let order = u64::try_from(deadline.as_nanos())
            .unwrap_or(u64::MAX)
            .min(ALONE - 1);
        send(&mut self.pipe, self.watchdog, order).await?;
        self.deadline = deadline;
        Ok(())
    }

    /// Returns the last deadline that the watchdog was told: only that shows whether it has killed
    /// the command.
    pub(crate) fn deadline(&self) -> Duration {
        self.deadline
    }

    /// Says which process the command is, and whether it is in the group.
    pub(crate) async fn set_target(&mut self, target: Target) -> io::Result<()> {
        self.target = target;
        self.own.set(self.deadline, target);
        let (process, mark) = match target {
            Target::Foreground(process) => (process, PROCESS | ALONE),
            Target::Group {
                command: Some(process),
                ..
            } => (process, PROCESS),
            Target::Group { command: None, .. } => return Ok(()),
        };
        let order = mark | u64::from(process.as_raw_nonzero().get().unsigned_abs());
        send(&mut self.pipe, self.watchdog, order).await
    }
}

/// Sends an order, and wakes the watchdog, which may have been stopped.
async fn send(pipe: &mut ChildStdin, watchdog: Pid, order: u64) -> io::Result<()> {
    // Eight bytes go into a pipe at once or not at all.
    pipe.write_all(&order.to_be_bytes()).await?;
    let _ = kill_process(watchdog, Signal::CONT);
    Ok(())
}

/// This program, which may have been replaced since it was started.
pub(crate) fn program() -> io::Result<std::path::PathBuf> {
    if cfg!(target_os = "linux") {
        Ok("/proc/self/exe".into())
    } else {
        std::env::current_exe()
    }
}

/// Runs as the watchdog.
pub(crate) fn run() -> ExitCode {
    // Linux takes the name from the file by which the program was found: `exe`.
    let _ = std::fs::write("/proc/self/comm", NAME);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let Ok(runtime) = runtime else {
        return ExitCode::from(SYSTEM);
    };
    match runtime.block_on(watch()) {
        Ok(Verdict::StandDown) => ExitCode::SUCCESS,
        Ok(Verdict::Kill(target)) => {
            // A group includes this process.
            target.send(Signal::KILL);
            ExitCode::SUCCESS
        }
        Err(_) => ExitCode::from(SYSTEM),
    }
}

/// How the watch ends.
enum Verdict {
    StandDown,
    /// The deadline has passed, or the pipe has ended.
    Kill(Target),
}

async fn watch() -> io::Result<Verdict> {
    let group = getpgrp();
    // A script that starts a watchdog by mistake has other processes in its group.
    if group != getpid() {
        return Err(io::Error::other("it does not lead a process group"));
    }
    // The command, which may send signals to its group, is started only once they are caught.
    catch_those_of_group()?;
    // A watchdog that is stopped could not notice that its pipe has ended.
    signal_at_end_of_parent(Signal::CONT)?;
    let mut orders = pipe::Receiver::from_owned_fd(io::stdin().as_fd().try_clone_to_owned()?)?;
    io::stdout().write_all(&[READY])?;
    io::stdout().flush()?;
    let mut target = Target::Group {
        group,
        command: None,
    };
    let mut deadline = Duration::MAX;
    loop {
        let left = deadline.saturating_sub(clock::now());
        tokio::select! {
            biased;
            // The timer cuts no order in two: an order is in the pipe as a whole.
            order = orders.read_u64() => match order {
                Ok(STAND_DOWN) => return Ok(Verdict::StandDown),
                Ok(order) if order & PROCESS != 0 => {
                    let number = i32::try_from(order & !(PROCESS | ALONE));
                    let command = number.ok().and_then(Pid::from_raw);
                    target = match command {
                        Some(command) if order & ALONE != 0 => Target::Foreground(command),
                        command => Target::Group { group, command },
                    };
                }
                Ok(order) => deadline = Duration::from_nanos(order),
                Err(_) => return Ok(Verdict::Kill(target)),
            },
            // The deadline counts only if there is no order: a watchdog that was stopped reads
            // those of that time first.
            () = tokio::time::sleep(left.clamp(LEAST_SLEEP, clock::INTERVAL)) => {
                if clock::now() >= deadline {
                    return Ok(Verdict::Kill(target));
                }
            }
        }
    }
}
