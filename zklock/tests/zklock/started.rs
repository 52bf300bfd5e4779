//! Processes of the program, and their output.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use test_support::{SOON, poll_until};
use zookeeper_test_server::Server;

/// The session timeout in tests of a loss, in seconds.
pub(crate) const T: u32 = 6;

/// The session timeout in tests in which a child does something after a loss: two seconds are left
/// for that.
pub(crate) const LONG: u32 = 12;

/// Starts a server whose sessions end on a tenth of a second.
pub(crate) fn server() -> Server {
    Server::builder()
        .tick(Duration::from_millis(100))
        .max_session_timeout(SOON)
        .start()
        .unwrap()
}

/// Returns the program with these arguments, which are divided at blanks, and with a command for
/// the shell if that is not empty. The kernel kills `zklock` when the thread of the test ends, also
/// if the tests are killed, or a test exceeds its time. No signal is ignored: the tests may run in
/// the background of a script, where a shell has its jobs ignore SIGINT and SIGQUIT, and `zklock`
/// would not catch these.
pub(crate) fn zklock(servers: &str, arguments: &str, command: &str) -> Command {
    let mut zklock = Command::new("env");
    zklock
        .args(["--default-signal", "setpriv", "--pdeathsig", "KILL"])
        .arg(env!("CARGO_BIN_EXE_zklock"))
        .args(arguments.split_whitespace())
        .env("ZK_CONNECT", servers)
        .stdin(Stdio::null());
    if !command.is_empty() {
        zklock.args(["--", "sh", "-c", command]);
    }
    zklock
}

/// Waits until `count` processes wait for the lock behind its holder.
pub(crate) fn until_so_many_wait(servers: &str, path: &str, count: usize) {
    let state = if count == 0 {
        "held\n".to_owned()
    } else {
        format!("held, {count} waiting\n")
    };
    let are_waiting = || {
        let status = run(zklock(servers, &format!("status {path}"), ""));
        status
            .out
            .starts_with(&format!("{path}: {state}"))
            .then_some(())
    };
    poll_until("the waiters", SOON, are_waiting).unwrap();
}

/// The exit code and the output of a process.
#[derive(Debug)]
pub(crate) struct Output {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// Runs a command to its end.
pub(crate) fn run(mut command: Command) -> Output {
    let output = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Output {
        code: output.status.code().unwrap(),
        out: text(output.stdout),
        err: text(output.stderr),
    }
}

/// A process that runs beside the test, and is killed with it.
#[derive(Debug)]
pub(crate) struct Started {
    child: Child,
    out: BufReader<ChildStdout>,
    /// Its standard error, if that is a pipe of its own.
    err: Option<BufReader<ChildStderr>>,
}

impl Started {
    pub(crate) fn new(command: Command) -> Self {
        Self::with_err(command, Stdio::piped())
    }

    /// Starts the process with this standard error.
    pub(crate) fn with_err(mut command: Command, err: impl Into<Stdio>) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(err).spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let err = child.stderr.take().map(BufReader::new);
        Self { child, out, err }
    }

    pub(crate) fn pid(&self) -> Pid {
        pid(&self.child.id().to_string())
    }

    /// Writes a line to the process's standard input, which is a pipe.
    pub(crate) fn tell(&mut self, line: &str) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    /// Returns the next line of the process's standard output; empty at the end.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.out.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// Returns the next line of the process's standard error, which is a pipe; empty at the end.
    pub(crate) fn err_line(&mut self) -> String {
        let mut line = String::new();
        self.err.as_mut().unwrap().read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// Reads lines of the process's standard error until one contains this text.
    pub(crate) fn err_until(&mut self, text: &str) {
        loop {
            let line = self.err_line();
            assert!(!line.is_empty(), "its standard error ends without {text:?}");
            if line.contains(text) {
                return;
            }
        }
    }

    /// Waits for the end of the process.
    pub(crate) fn end(mut self) -> Output {
        let mut output = Output {
            code: -1,
            out: String::new(),
            err: String::new(),
        };
        self.out.read_to_string(&mut output.out).unwrap();
        output.code = code(self.child.wait().unwrap());
        if let Some(err) = &mut self.err {
            err.read_to_string(&mut output.err).unwrap();
        }
        output
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        // In most cases the process has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn code(status: ExitStatus) -> i32 {
    status.code().unwrap_or(-1)
}

pub(crate) fn pid(text: &str) -> Pid {
    Pid::from_raw(text.trim().parse().unwrap()).unwrap()
}

/// Returns whether a process runs. A zombie, of which only the number is left, does not.
pub(crate) fn is_alive(pid: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
    stat.is_ok_and(|stat| !stat.rsplit(')').next().unwrap().trim().starts_with('Z'))
}

/// Returns the fields after the name in `/proc`'s line about a process: the state, the parent, the
/// group, and more.
fn fields_of(pid: Pid) -> Vec<String> {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
    let stat = stat.unwrap_or_default();
    let fields = stat.rsplit(')').next().unwrap().split_whitespace();
    fields.map(str::to_owned).collect()
}

/// Returns the process group, which the watchdog leads unless the child is in the foreground.
pub(crate) fn group_of(process: Pid) -> Pid {
    pid(&fields_of(process)[2])
}

/// Returns the processes that `zklock` has started: the watchdog and the child.
pub(crate) fn children_of(zklock: &Started) -> Vec<Pid> {
    let id = zklock.pid().as_raw_nonzero();
    let children = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap();
    children.split_whitespace().map(pid).collect()
}

/// Returns the first process that `zklock` has started.
pub(crate) fn watchdog_of(zklock: &Started) -> Pid {
    children_of(zklock)[0]
}

/// Returns whether a process has a thread of this name.
pub(crate) fn has_thread(process: Pid, name: &str) -> bool {
    let threads = format!("/proc/{}/task", process.as_raw_nonzero());
    std::fs::read_dir(threads).unwrap().flatten().any(|thread| {
        std::fs::read_to_string(thread.path().join("comm")).is_ok_and(|it| it.trim() == name)
    })
}

pub(crate) fn is_stopped(pid: Pid) -> bool {
    fields_of(pid).first().is_some_and(|state| state == "T")
}

/// Returns the name of a process, as `top` shows it; empty if the process has ended.
pub(crate) fn name_of(pid: Pid) -> String {
    let name = std::fs::read_to_string(format!("/proc/{}/comm", pid.as_raw_nonzero()));
    name.unwrap_or_default().trim_end().to_owned()
}

/// A process that is stopped again as often as another wakes it.
pub(crate) struct KeptStopped {
    process: Pid,
    until: Sender<()>,
    thread: Option<JoinHandle<()>>,
}

impl KeptStopped {
    pub(crate) fn new(process: Pid) -> Self {
        let (until, ended) = channel();
        // The thread looks as often as a timer allows, because no event reports that a process
        // continues.
        let thread = std::thread::spawn(move || {
            while ended.recv_timeout(Duration::from_micros(200)) == Err(RecvTimeoutError::Timeout) {
                if kill_process(process, Signal::STOP).is_err() {
                    return;
                }
            }
        });
        // The wait comes after the start of the thread, because an order may wake the process
        // before it is seen to be stopped.
        poll_until("the stop", SOON, || is_stopped(process).then_some(())).unwrap();
        Self {
            process,
            until,
            thread: Some(thread),
        }
    }
}

impl Drop for KeptStopped {
    fn drop(&mut self) {
        let _ = self.until.send(());
        self.thread.take().unwrap().join().unwrap();
        // A watchdog that is resumed after its `zklock` has ended ends too.
        let _ = kill_process(self.process, Signal::CONT);
    }
}

pub(crate) fn until_dead(pid: Pid) {
    poll_until("the end of the process", SOON, || {
        (!is_alive(pid)).then_some(())
    })
    .unwrap();
}

/// Waits until this many contenders are in the queue of a mutex.
pub(crate) fn until_queued(server: &Server, path: &str, contenders: usize) {
    assert!(
        server.wait_until_blocking(|view| view.children(path).len() == contenders, SOON),
        "{path}"
    );
}

/// A directory for the files that commands write.
pub(crate) struct Files(TempDir);

impl Files {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn of(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.of(name)).unwrap_or_default()
    }
}
