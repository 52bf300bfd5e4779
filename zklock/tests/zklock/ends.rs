//! How a hold ends while the lock is not lost: by signals, by a lease, by the end of `zklock`
//! itself.

use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, getpid, kill_process, set_child_subreaper,
    test_kill_process, waitid,
};
use test_support::{SOON, poll_until};

use crate::started::{
    Files, KeptStopped, Started, children_of, group_of, is_alive, is_stopped, name_of, pid, run,
    server, until_dead, until_queued, watchdog_of, zklock,
};

/// Makes this process the one that inherits processes whose parent ends, for one test at a time.
struct Heir(#[expect(dead_code, reason = "held until the end")] MutexGuard<'static, ()>);

impl Heir {
    fn new() -> Self {
        static ALONE: Mutex<()> = Mutex::new(());
        // A test that has failed has no heir any more.
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        set_child_subreaper(Some(getpid())).unwrap();
        Self(alone)
    }
}

impl Drop for Heir {
    fn drop(&mut self) {
        set_child_subreaper(None).unwrap();
    }
}

pub(crate) fn signals() {
    let (server, files) = (server(), Files::new());
    let traps = "trap 'echo usr1' USR1; trap 'echo term; until test -e go; do :; done; exit 5' TERM
        echo ready; while :; do sleep 0.01; done";
    let mut first = zklock(&server.connect_string(), "/a", traps);
    first.current_dir(files.path());
    let mut first = Started::new(first);
    assert_eq!(first.line(), "ready");
    let mut second = Started::new(zklock(&server.connect_string(), "/a", "echo second"));
    until_queued(&server, "/a", 2);
    first.signal(Signal::USR1);
    assert_eq!(first.line(), "usr1");
    first.signal(Signal::TERM);
    assert_eq!(first.line(), "term");
    assert_eq!(
        server.children("/a").len(),
        2,
        "the lock is kept until the child has ended"
    );
    std::fs::write(files.of("go"), "").unwrap();
    assert_eq!(first.end().code, 5);
    assert_eq!(second.line(), "second");
}

pub(crate) fn nohup() {
    let server = server();
    let program = env!("CARGO_BIN_EXE_zklock");
    let mut command = Command::new("sh");
    command.arg("-c").arg(format!(
        "trap '' HUP; exec {program} /a -- sh -c 'echo ready; cat'"
    ));
    command
        .env("ZK_CONNECT", server.connect_string())
        .stdin(Stdio::piped());
    let mut started = Started::new(command);
    assert_eq!(started.line(), "ready");
    started.signal(Signal::HUP);
    // Signals are passed on in the order of their numbers, HUP before TERM.
    started.signal(Signal::TERM);
    assert_eq!(started.end().code, 143);
}

/// SIGPIPE ends a process of the command even if `zklock` was started with the signal ignored,
/// unless the command itself ignores it.
pub(crate) fn broken_pipes() {
    let server = server();
    let program = env!("CARGO_BIN_EXE_zklock");
    // The shell writes to a pipe that no process reads.
    let writes = r#"sh -c "yes; echo \$? >&2" | :"#;
    for (command, is_ignored) in [
        (writes.to_owned(), false),
        (format!("trap '' PIPE; {writes}"), true),
    ] {
        let mut shell = Command::new("sh");
        shell.args(["-c", "trap '' PIPE; exec \"$0\" /a -- sh -c \"$1\""]);
        shell.args([program, &command]);
        let ended = run({
            shell.env("ZK_CONNECT", server.connect_string());
            shell
        });
        let has_died = ended.err.ends_with("141\n");
        assert_eq!(has_died, !is_ignored, "{command}: {ended:?}");
    }
}

/// The signal is blocked in the program that starts `zklock`.
pub(crate) fn unblocked_signals() {
    let server = server();
    let mut command = Command::new("env");
    command.args(["--block-signal=TERM", "env", "--default-signal=TERM"]);
    command.args([env!("CARGO_BIN_EXE_zklock"), "/a", "--"]);
    command.args(["sh", "-c", "echo ready; exec sleep 1000"]);
    command.env("ZK_CONNECT", server.connect_string());
    let mut started = Started::new(command);
    assert_eq!(started.line(), "ready");
    started.signal(Signal::TERM);
    assert_eq!(started.end().code, 143);
}

pub(crate) fn signal_ends_a_waiting_zklock() {
    let server = server();
    let mut holder = Started::new(zklock(
        &server.connect_string(),
        "/a",
        "echo held; sleep 1000",
    ));
    assert_eq!(holder.line(), "held");
    let waiter = Started::new(zklock(&server.connect_string(), "/a", "echo here"));
    until_queued(&server, "/a", 2);
    waiter.signal(Signal::TERM);
    let ended = waiter.end();
    assert_eq!((ended.code, &*ended.out), (143, ""), "{ended:?}");
    until_queued(&server, "/a", 1);
}

pub(crate) fn holds_and_prints_without_a_command() {
    let server = server();
    let mut holder = Started::new(zklock(&server.connect_string(), "--permits 3 /a", ""));
    let lines = [holder.line(), holder.line(), holder.line(), holder.line()];
    let (_, node) = lines[1].split_once('=').unwrap();
    assert_eq!((&*lines[0], server.exists(node)), ("ZKLOCK_PATH=/a", true));
    assert!(lines[1].starts_with("ZKLOCK_NODE=/a/leases/"), "{lines:?}");
    assert!(lines[2].starts_with("ZKLOCK_TOKEN="), "{lines:?}");
    assert_eq!(lines[3], "ZKLOCK_SLOT=0");
    let node = node.to_owned();
    holder.signal(Signal::TERM);
    let ended = holder.end();
    assert_eq!((ended.code, &*ended.out, &*ended.err), (143, "", ""));
    assert!(!server.exists(&node));
    for (signal, code) in [
        (Signal::HUP, 129),
        (Signal::USR1, 138),
        // The signal ends `zklock`, so there is no code.
        (Signal::INT, -1),
        (Signal::QUIT, -1),
    ] {
        let mut holder = Started::new(zklock(&server.connect_string(), "/b", ""));
        assert_eq!(holder.line(), "ZKLOCK_PATH=/b");
        holder.signal(signal);
        assert_eq!(holder.end().code, code, "{signal:?}");
    }
    let leased = run(zklock(&server.connect_string(), "--lease 0.1 /b", ""));
    assert_eq!(leased.code, 0, "{leased:?}");
}

pub(crate) fn lease_ends_child_then_lock() {
    let (server, files) = (server(), Files::new());
    let ignores = "trap '' TERM; echo $$; while :; do echo; sleep 0.01; done >alive";
    let mut first = zklock(
        &server.connect_string(),
        "--lease 2 --kill-after 0.3 /a",
        ignores,
    );
    first.current_dir(files.path());
    let mut first = Started::new(first);
    let child = pid(&first.line());
    let next = run(zklock(
        &server.connect_string(),
        "/a",
        &format!("test -e /proc/{} || echo dead", child.as_raw_nonzero()),
    ));
    assert_eq!(next.out, "dead\n", "{next:?}");
    let ended = first.end();
    assert_eq!(ended.code, 125, "{ended:?}");
    assert!(ended.err.contains("/a: the lease is over"), "{ended:?}");
    // If the child heeds the signal, the code of `zklock` is the same.
    let heeds = run(zklock(
        &server.connect_string(),
        "--lease 0.1 /a",
        "sleep 1000",
    ));
    assert_eq!(heeds.code, 125, "{heeds:?}");
    // The end of a lease is no loss.
    for action in ["kill", "warn"] {
        let arguments = format!("--lease 2 --on-lost {action} /a");
        let command = "trap 'echo asked; exit 6' TERM; while :; do sleep 0.01; done";
        let asked = run(zklock(&server.connect_string(), &arguments, command));
        assert_eq!((asked.code, &*asked.out), (125, "asked\n"), "{asked:?}");
    }
}

/// The command of a stopped `zklock` ends with the lease, although the session would last longer.
pub(crate) fn a_lease_ends_without_zklock() {
    let server = server();
    let arguments = "--lease 2 --kill-after 0.3 --session-timeout 60 /a";
    let mut holder = Started::new(zklock(
        &server.connect_string(),
        arguments,
        "trap '' TERM; echo $$; while :; do sleep 0.01; done",
    ));
    let child = pid(&holder.line());
    holder.signal(Signal::STOP);
    until_dead(child);
    holder.signal(Signal::CONT);
    let ended = holder.end();
    assert_eq!(ended.code, 125, "{ended:?}");
    assert!(ended.err.contains("the lease is over"), "{ended:?}");
}

pub(crate) fn child_ends_with_a_killed_zklock() {
    let server = server();
    let mut started = Started::new(zklock(
        &server.connect_string(),
        "/a",
        "sleep 1000 & echo $$ $!; wait",
    ));
    let line = started.line();
    let (child, grandchild) = line.split_once(' ').unwrap();
    let (child, grandchild) = (pid(child), pid(grandchild));
    assert!(is_alive(child) && is_alive(grandchild));
    started.signal(Signal::KILL);
    until_dead(child);
    until_dead(grandchild);
}

/// The kernel wakes the watchdog even if its process group is not orphaned: the process that
/// inherits the watchdog is in the same POSIX session, as the first process of a container may be.
pub(crate) fn stopped_watchdog_ends_after_zklock() {
    let server = server();
    let command = "sleep 1000 & echo $$ $!; wait";
    let mut started = Started::new(zklock(&server.connect_string(), "/a", command));
    let line = started.line();
    let (child, grandchild) = line.split_once(' ').unwrap();
    let (child, grandchild) = (pid(child), pid(grandchild));
    let watchdog = watchdog_of(&started);
    // `zklock` is stopped first, so that none of its orders wakes the watchdog.
    started.signal(Signal::STOP);
    kill_process(watchdog, Signal::STOP).unwrap();
    poll_until("the stop", SOON, || is_stopped(watchdog).then_some(())).unwrap();
    let _heir = Heir::new();
    started.signal(Signal::KILL);
    for process in [child, grandchild, watchdog] {
        until_dead(process);
    }
}

/// The process that inherits the command has waited for it before the watchdog runs again, so that
/// the leader of the command's group has no number any more.
pub(crate) fn own_group_ends_with_a_killed_zklock() {
    let (server, _heir) = (server(), Heir::new());
    let start = |number: usize| {
        let command = "exec timeout 1000 sh -c 'echo $$; exec sleep 1000'";
        let path = format!("/a{number}");
        let mut started = Started::new(zklock(&server.connect_string(), &path, command));
        let grandchild = pid(&started.line());
        let child = group_of(grandchild);
        let stopped = KeptStopped::new(watchdog_of(&started));
        started.signal(Signal::KILL);
        poll_until("the end of the child", SOON, || {
            let _ = waitid(WaitId::Pid(child), WaitIdOptions::EXITED);
            test_kill_process(child).is_err().then_some(())
        })
        .unwrap();
        // The kernel wakes the watchdog at the end of `zklock`, so it may have run before.
        is_alive(grandchild).then_some((stopped, grandchild))
    };
    let (stopped, grandchild) = (0..).find_map(start).unwrap();
    drop(stopped);
    until_dead(grandchild);
}

pub(crate) fn grandchild_outlives_a_normal_end() {
    let server = server();
    let ended = run(zklock(
        &server.connect_string(),
        "/a",
        "sleep 1000 >/dev/null 2>&1 & echo $!",
    ));
    assert_eq!(ended.code, 0);
    let left = pid(&ended.out);
    assert!(is_alive(left));
    kill_process(left, Signal::KILL).unwrap();
}

pub(crate) fn foreground() {
    let server = server();
    let traps =
        "trap 'echo int' INT; trap 'echo term; exit 4' TERM; echo $$; while :; do sleep 0.01; done";
    let mut started = Started::new(zklock(&server.connect_string(), "--foreground /a", traps));
    let child = pid(&started.line());
    assert_eq!(
        group_of(child),
        group_of(started.pid()),
        "the one that has the terminal"
    );
    started.signal(Signal::INT);
    started.signal(Signal::TERM);
    assert_eq!(
        started.line(),
        "term",
        "the terminal sends the other to both"
    );
    assert_eq!(started.end().code, 4);
    let missing = run(zklock(
        &server.connect_string(),
        "--foreground /a -- /no/such/program",
        "",
    ));
    assert_eq!(
        (
            missing.code,
            missing.err.matches("zklock: /a: /no/such/program").count()
        ),
        (127, 1)
    );
    let mut killed = Started::new(zklock(&server.connect_string(), "--foreground /a", traps));
    let child = pid(&killed.line());
    killed.signal(Signal::KILL);
    until_dead(child);
}

/// The child ends while its watchdog is stopped.
pub(crate) fn stopped_watchdog_keeps_no_lock() {
    let server = server();
    let mut command = zklock(&server.connect_string(), "/a", "echo $$; read line; exit 3");
    command.stdin(Stdio::piped());
    let mut started = Started::new(command);
    let child = pid(&started.line());
    let stopped = KeptStopped::new(group_of(child));
    started.tell("");
    assert_eq!(started.end().code, 3);
    assert!(server.children("/a").is_empty(), "the lock is released");
    drop(stopped);
}

/// Neither `zklock` nor its watchdog has the time to kill the child.
pub(crate) fn child_dies_with_both_processes() {
    let server = server();
    for options in ["", "--foreground"] {
        let arguments = format!("{options} /a{options}");
        let command = "echo $$; exec sleep 1000";
        let mut started = Started::new(zklock(&server.connect_string(), &arguments, command));
        let child = pid(&started.line());
        let watchdog = watchdog_of(&started);
        started.signal(Signal::STOP);
        kill_process(watchdog, Signal::KILL).unwrap();
        until_dead(watchdog);
        assert!(is_alive(child));
        started.signal(Signal::KILL);
        until_dead(child);
    }
}

/// `zklock` is stopped as soon as the process of its command exists, which is in no group that the
/// watchdog leads.
pub(crate) fn stop_at_the_start() {
    let server = server();
    let start = |number| {
        let arguments = format!("--foreground --session-timeout 4 /a{number}");
        let started = Started::new(zklock(
            &server.connect_string(),
            &arguments,
            "exec sleep 1000",
        ));
        let (watchdog, child) = loop {
            if let [watchdog, child] = children_of(&started)[..] {
                break (watchdog, child);
            }
        };
        // Each look takes some time, so each `zklock` is stopped at a different point of its start.
        (0..5 * number).for_each(|_| drop(children_of(&started)));
        started.signal(Signal::STOP);
        (started, watchdog, child)
    };
    for (started, watchdog, child) in (0..8).map(start).collect::<Vec<_>>() {
        until_dead(watchdog);
        let is_no_command = || (!is_alive(child) || is_stopped(child)).then_some(());
        poll_until("the end, if it has begun", SOON, is_no_command).unwrap();
        started.signal(Signal::CONT);
        let ended = started.end();
        assert_eq!(ended.code, 125, "{ended:?}");
    }
}

/// The terminal sends the signal to its group, in which the command is not yet: the watchdog is
/// stopped before it is ready.
pub(crate) fn early_interrupt() {
    let server = server();
    let servers = server.connect_string();
    let start = |number: usize| {
        let arguments = format!("--foreground /a{number}");
        let started = Started::new(zklock(&servers, &arguments, "exec sleep 1000"));
        let begun = Instant::now();
        let watchdog = loop {
            if let Some(watchdog) = children_of(&started).first() {
                break *watchdog;
            }
            assert!(begun.elapsed() < SOON, "there is no watchdog");
        };
        let stopped = KeptStopped::new(watchdog);
        // A watchdog has its name before it is ready.
        (name_of(watchdog) != "zklock-watchdog").then_some((started, stopped))
    };
    // Each attempt has a lock of its own, because a killed `zklock` keeps its lock for a time.
    let (started, stopped) = (0..).find_map(start).unwrap();
    started.signal(Signal::INT);
    drop(stopped);
    // It dies of the signal.
    assert_eq!(started.end().code, -1);
}

/// The signals of a timer that a program had set before it became `zklock`, and of a limit on
/// processor time, end the command too.
pub(crate) fn timers() {
    let server = server();
    for (signal, code) in [("ALRM", 142), ("XCPU", 152), ("PROF", 155), ("VTALRM", 154)] {
        let program = env!("CARGO_BIN_EXE_zklock");
        let text = format!("kill -{signal} $PPID; exec sleep 1000");
        let mut command = Command::new(program);
        command.env("ZK_CONNECT", server.connect_string());
        // The shell's parent is `zklock`.
        command.args(["/a", "--", "sh", "-c", &text]);
        assert_eq!(run(command).code, code, "{signal}");
        assert!(server.children("/a").is_empty(), "the lock is released");
    }
}

/// `zklock` may be started by a program that has blocked signals to wait for them itself.
pub(crate) fn blocked_signals() {
    let server = server();
    let mut command = Command::new("env");
    command.args(["--block-signal=CHLD", env!("CARGO_BIN_EXE_zklock")]);
    command.args(["/a", "--", "sh", "-c", "exit 3"]);
    command.env("ZK_CONNECT", server.connect_string());
    assert_eq!(run(command).code, 3);
}

/// A shell that resumes a job may start the command before `zklock` does. The test blocks SIGCHLD,
/// so that `zklock` checks only four times a second whether the command is stopped before its
/// start.
pub(crate) fn early_begin() {
    for is_child_stopped in [false, true] {
        begin_early(is_child_stopped);
    }
}

/// The terminal has sent the signal to both.
pub(crate) fn early_begin_in_foreground() {
    let server = server();
    let mut command = Command::new("env");
    command.args(["--default-signal", "--block-signal=CHLD"]);
    command.args(["setpriv", "--pdeathsig", "KILL"]);
    command.args([env!("CARGO_BIN_EXE_zklock"), "--foreground", "/a", "--"]);
    let traps = "trap 'echo int' INT; trap 'echo term; exit 4' TERM; echo $$
        while :; do sleep 0.01; done";
    command.args(["sh", "-c", traps]);
    command.env("ZK_CONNECT", server.connect_string());
    let mut started = Started::new(command);
    continue_early(&started, "sh");
    started.line();
    started.signal(Signal::INT);
    started.signal(Signal::TERM);
    assert_eq!(started.line(), "term");
    assert_eq!(started.end().code, 4);
}

/// A log has reached the limit on the size of files.
pub(crate) fn full_log() {
    let (server, files) = (server(), Files::new());
    let program = env!("CARGO_BIN_EXE_zklock");
    let mut command = Command::new("sh");
    command.arg("-c").arg(format!(
        "ulimit -f 0; exec {program} -v /a -- sh -c 'exit 3' 2>log"
    ));
    command
        .current_dir(files.path())
        .env("ZK_CONNECT", server.connect_string());
    assert_eq!(run(command).code, 3);
}

/// Some programs misread the results of their children if they ignore SIGCHLD.
pub(crate) fn ignored_child_signal() {
    let server = server();
    let program = env!("CARGO_BIN_EXE_zklock");
    let mut command = Command::new("perl");
    command.args(["-e", "$SIG{CHLD} = 'IGNORE'; exec @ARGV", program]);
    command.args(["/a", "--", "grep", "SigIgn", "/proc/self/status"]);
    command.env("ZK_CONNECT", server.connect_string());
    let ended = run(command);
    let mask = ended.out.split_whitespace().last().unwrap();
    let ignored = u64::from_str_radix(mask, 16).unwrap();
    assert_eq!(ignored >> (Signal::CHILD.as_raw() - 1) & 1, 0, "{ended:?}");
}

/// Continues the process of the command until it is this program, and returns it.
fn continue_early(started: &Started, program: &str) -> Pid {
    let process = || children_of(started).get(1).copied();
    let child = poll_until("the process", SOON, process).unwrap();
    let has_begun = || {
        kill_process(child, Signal::CONT).unwrap();
        (name_of(child) == program).then_some(())
    };
    poll_until("the begin", SOON, has_begun).unwrap();
    child
}

fn begin_early(is_child_stopped: bool) {
    let server = server();
    let mut command = Command::new("env");
    command.args(["--block-signal=CHLD", "setpriv", "--pdeathsig", "KILL"]);
    command.args([env!("CARGO_BIN_EXE_zklock"), "-v", "--on-lost", "warn"]);
    command.args(["/a", "--", "sh", "-c", "echo $$; read line; exit 3"]);
    command
        .env("ZK_CONNECT", server.connect_string())
        .stdin(Stdio::piped());
    let mut started = Started::new(command);
    let child = continue_early(&started, "sh");
    assert_eq!(pid(&started.line()), child);
    if is_child_stopped {
        kill_process(child, Signal::STOP).unwrap();
        while !started
            .err_line()
            .contains("is stopped, and keeps the lock")
        {}
        assert!(is_stopped(child));
    }
    assert!(server.expire_session(server.sessions()[0].id));
    started.err_until("is lost");
    kill_process(child, Signal::CONT).unwrap();
    started.tell("");
    let ended = started.end();
    assert_eq!(ended.code, 3, "{ended:?}");
}

/// A command that another process has stopped goes on after SIGCONT.
pub(crate) fn stopped_commands() {
    let server = server();
    for signal in [Signal::STOP, Signal::TSTP] {
        let mut command = zklock(&server.connect_string(), "/a", "echo $$; read line; exit 3");
        command.stdin(Stdio::piped());
        let mut started = Started::new(command);
        let child = pid(&started.line());
        kill_process(child, signal).unwrap();
        assert!(
            started
                .err_line()
                .contains("is stopped, and keeps the lock"),
            "{signal:?}"
        );
        kill_process(child, Signal::CONT).unwrap();
        started.tell("");
        let ended = started.end();
        assert_eq!((ended.code, &*ended.err), (3, ""));
    }
}

/// The name of the watchdog, as `top` shows it.
pub(crate) fn watchdog_name() {
    let server = server();
    let mut started = Started::new(zklock(&server.connect_string(), "/a", "echo; sleep 1000"));
    started.line();
    assert_eq!(name_of(watchdog_of(&started)), "zklock-watchdog");
}

/// The watchdog kills its group, and must not do so in the group of a script that starts it.
pub(crate) fn watchdog_by_hand() {
    let mut script = Command::new("sh");
    let program = env!("CARGO_BIN_EXE_zklock");
    let text = format!("echo | {program} --zklock-watchdog; echo $?");
    script.args(["-c", &text]).process_group(0);
    assert_eq!(run(script).out, "71\n");
}

/// Standard error is broken, as after a terminal was closed or a reader has ended.
pub(crate) fn broken_standard_error() {
    let server = server();
    let mut command = zklock(&server.connect_string(), "-v /a", "exit 7");
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full");
    command.stderr(full.unwrap());
    assert_eq!(command.status().unwrap().code(), Some(7));
}
