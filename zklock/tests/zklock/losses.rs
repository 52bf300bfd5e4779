//! Lost locks: the child is dead before another process is granted the lock.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::Stdio;

use rustix::process::{Resource, Rlimit, Signal, kill_process, kill_process_group, prlimit};
use test_support::{Proxy, SOON, poll_until};
use zookeeper_test_server::{Direction, Server};

use crate::started::{
    Files, KeptStopped, LONG, Started, T, group_of, has_thread, is_alive, is_stopped, pid, run,
    server, until_dead, until_queued, until_so_many_wait, watchdog_of, zklock,
};

/// A command that writes when it was last alive, and ignores SIGTERM.
const STUBBORN: &str = "trap '' TERM; echo $$
    while :; do date +%s%N >>alive; sleep 0.01; done";

/// A holder and another `zklock` that waits behind it and notes when it is granted the lock.
struct Pair<S = Server> {
    server: S,
    files: Files,
    holder: Started,
    child: rustix::process::Pid,
    waiter: Started,
}

impl Pair {
    fn new(timeout: u32, arguments: &str, command: &str) -> Self {
        Self::of("", timeout, arguments, command)
    }

    /// Both processes run this subcommand of `zklock`; none if it is empty.
    fn of(action: &str, timeout: u32, arguments: &str, command: &str) -> Self {
        let server = server();
        let servers = server.connect_string();
        let path_and_options = format!("{action} /a --session-timeout {timeout}");
        let pair = Self::start(
            server,
            [&servers, &servers],
            &path_and_options,
            arguments,
            command,
        );
        until_queued(&pair.server, "/a", 2);
        pair
    }

    /// Cuts the holder off from the servers, in both directions. Returns its session.
    fn cut_off(&self) -> i64 {
        let first = self
            .server
            .children("/a")
            .into_iter()
            .min_by_key(|name| sequence(name))
            .unwrap();
        let owner = self
            .server
            .node(&format!("/a/{first}"))
            .unwrap()
            .ephemeral_owner;
        assert!(self.server.stall(owner, Direction::Both));
        owner
    }
}

impl<S> Pair<S> {
    /// Starts the holder, with more arguments, and the other one, each with its servers.
    fn start(server: S, servers: [&str; 2], both: &str, arguments: &str, command: &str) -> Self {
        let files = Files::new();
        let start = |servers, arguments: &str, command| {
            let mut command = zklock(servers, &format!("{both} {arguments}"), command);
            command.current_dir(files.path());
            Started::new(command)
        };
        let mut holder = start(servers[0], arguments, command);
        let child = pid(&holder.line());
        let waiter = start(servers[1], "", "date +%s%N");
        Self {
            server,
            files,
            holder,
            child,
            waiter,
        }
    }

    fn nanos(text: &str) -> u128 {
        text.lines()
            .last()
            .and_then(|line| line.trim().parse().ok())
            .unwrap()
    }

    /// Waits until the next process is granted the lock, and checks that the child was dead before.
    fn assert_dead_before_the_next(&mut self) {
        let granted = Self::nanos(&self.waiter.line());
        assert!(!is_alive(self.child), "the child outlived its lock");
        let alive = Self::nanos(&self.files.read("alive"));
        assert!(
            alive < granted,
            "the child was alive at {alive}, and the next was granted at {granted}"
        );
        println!(
            "dead for {} ms before the next grant",
            (granted - alive) / 1_000_000
        );
    }
}

fn sequence(name: &str) -> String {
    name.rsplit('-').next().unwrap_or_default().to_owned()
}

pub(crate) fn child_ignoring_term_is_dead() {
    let mut pair = Pair::new(T, "", STUBBORN);
    pair.cut_off();
    pair.assert_dead_before_the_next();
    let ended = pair.holder.end();
    assert_eq!(ended.code, 125, "{ended:?}");
    assert!(ended.err.contains("the command was ended"), "{ended:?}");
}

/// A proxy cuts the holder off from real servers.
pub(crate) fn child_ignoring_term_is_dead_on(servers: &str, is_watchdog_stopped: bool) {
    let proxy = Proxy::start(servers.parse().unwrap()).unwrap();
    let (near, path) = (
        proxy.address().to_string(),
        test_support::unique_path("loss"),
    );
    let path_and_options = format!("{path} --session-timeout {T}");
    let mut pair = Pair::start(proxy, [&near, servers], &path_and_options, "", STUBBORN);
    until_so_many_wait(servers, &path, 1);
    let _stopped = is_watchdog_stopped.then(|| KeptStopped::new(group_of(pair.child)));
    pair.server.stall(test_support::Direction::Both);
    pair.assert_dead_before_the_next();
    assert_eq!(pair.holder.end().code, 125);
}

/// `timeout` leads a process group, which its child is in.
pub(crate) fn kills_a_command_outside_the_group() {
    let cases = [
        ("--kill-after 10s", false),
        ("", true),
        ("--foreground", false),
        ("--foreground", true),
    ];
    let pairs = cases.map(|(arguments, is_stopped)| {
        let command = format!("exec timeout 1000 sh -c {}", quoted(STUBBORN));
        let pair = Pair::new(6, arguments, &command);
        if is_stopped {
            pair.holder.signal(Signal::STOP);
        } else {
            pair.cut_off();
        }
        pair
    });
    for mut pair in pairs {
        pair.assert_dead_before_the_next();
    }
}

/// SIGTERM ends the leader of the group and its child, and leaves the child's child.
pub(crate) fn kills_what_outlives_its_leader() {
    let inner = format!("sh -c {}; true", quoted(STUBBORN));
    let command = format!("exec timeout 1000 sh -c {}", quoted(&inner));
    let at_a_loss = ["--kill-after 10s", "--foreground"].map(|arguments| {
        let pair = Pair::new(T, arguments, &command);
        pair.cut_off();
        pair
    });
    let after_a_lease = ["--lease 3s", "--foreground --lease 3s"]
        .map(|arguments| Pair::new(LONG, arguments, &command));
    for mut pair in at_a_loss.into_iter().chain(after_a_lease) {
        pair.assert_dead_before_the_next();
        assert_eq!(pair.holder.end().code, 125);
    }
}

/// The command joins the group of `zklock`, which no signal for the command may reach.
pub(crate) fn kills_a_command_beside_zklock() {
    let join = "setpgrp(0, getpgrp(getppid)); exec @ARGV";
    let command = format!("exec perl -e '{join}' sh -c {}", quoted(STUBBORN));
    let pairs = [false, true].map(|is_stopped| {
        let pair = Pair::new(T, "", &command);
        assert_eq!(group_of(pair.child), group_of(pair.holder.pid()));
        if is_stopped {
            pair.holder.signal(Signal::STOP);
        } else {
            pair.cut_off();
        }
        pair
    });
    for mut pair in pairs {
        pair.assert_dead_before_the_next();
    }
}

/// The command heeds a signal of its own timers, which it sends to its group.
pub(crate) fn group_signals_spare_the_watchdog() {
    let server = server();
    let names = ["ALRM", "VTALRM", "PROF", "IO", "XCPU", "ABRT", "PWR"];
    // SIGSTKFLT, for which the shell has no name, and the first and the last real-time signal.
    for signal in names.into_iter().chain(["16", "34", "64"]) {
        let command = format!("trap : {signal}; kill -{signal} 0; sleep 0.1; exit 3");
        let ended = run(zklock(&server.connect_string(), "/a", &command));
        assert_eq!((ended.code, &*ended.err), (3, ""), "{signal}");
    }
}

/// Returns a text as one word of a shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

pub(crate) fn stopped_zklock_saves_no_child() {
    let pairs = ["", "lead"].map(|action| {
        let pair = Pair::of(action, T, "", STUBBORN);
        pair.holder.signal(Signal::STOP);
        pair
    });
    // A leader that continues leads again, and its next command writes into the same file.
    let [plain, _leader] = pairs.map(|mut pair| {
        pair.assert_dead_before_the_next();
        pair
    });
    plain.holder.signal(Signal::CONT);
    assert_eq!(plain.holder.end().code, 125);
}

/// The watchdog is stopped, however often it is woken: `zklock` kills the child itself.
pub(crate) fn stopped_watchdog_saves_no_child() {
    let mut pair = Pair::new(T, "", STUBBORN);
    let stopped = KeptStopped::new(group_of(pair.child));
    pair.cut_off();
    pair.assert_dead_before_the_next();
    assert_eq!(pair.holder.end().code, 125);
    drop(stopped);
}

/// Messages wait while a pipe is full, but SIGTERM does not, neither after a request nor after a
/// loss.
pub(crate) fn a_full_standard_error() {
    // The shell would report on standard error that its child was terminated.
    let traps =
        "exec 2>/dev/null; trap 'echo asked; exit 6' TERM; echo; while :; do sleep 0.01; done";
    for is_lost in [false, true] {
        let server = server();
        let servers = server.connect_string();
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        let writer = File::from(writer);
        let command = zklock(&servers, &format!("-v /a --session-timeout {LONG}"), traps);
        let mut holder = Started::with_err(command, writer.try_clone().unwrap());
        holder.line();
        fill(&writer);
        if is_lost {
            assert!(server.stall(server.sessions()[0].id, Direction::Both));
        } else {
            assert_eq!(run(zklock(&servers, "revoke /a", "")).code, 0);
        }
        assert_eq!(holder.line(), "asked", "a loss: {is_lost}");
        assert_eq!(holder.end().code, if is_lost { 125 } else { 6 });
        drop(reader);
    }
}

/// The text is dropped, and the exit code reports the error.
pub(crate) fn usage_errors_on_a_full_pipe() {
    let (_reader, writer) = rustix::pipe::pipe().unwrap();
    let writer = File::from(writer);
    fill(&writer);
    for arguments in ["no/slash", "--no-such-option /a", "lead /a"] {
        let command = zklock("127.0.0.1:1", arguments, "");
        let ended = Started::with_err(command, writer.try_clone().unwrap()).end();
        assert_eq!(ended.code, 64, "{arguments}");
    }
}

/// The lock is held all the time.
pub(crate) fn a_full_standard_output() {
    let server = server();
    let (_reader, writer) = rustix::pipe::pipe().unwrap();
    let writer = File::from(writer);
    fill(&writer);
    let mut command = zklock(&server.connect_string(), "-v /a", "");
    let mut holder = command
        .stdout(writer)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut granted = String::new();
    let mut messages = BufReader::new(holder.stderr.take().unwrap());
    messages.read_line(&mut granted).unwrap();
    kill_process(pid(&holder.id().to_string()), Signal::TERM).unwrap();
    assert_eq!(holder.wait().unwrap().code(), Some(143));
    assert!(server.children("/a").is_empty(), "the lock is released");
}

/// Writes into a pipe until nothing more fits.
fn fill(mut pipe: &File) {
    rustix::io::ioctl_fionbio(pipe, true).unwrap();
    while pipe.write(&[b'.'; 512]).is_ok() {}
    // The mode belongs to the open pipe, which this test shares with the program.
    rustix::io::ioctl_fionbio(pipe, false).unwrap();
}

pub(crate) fn orders_wake_a_stopped_watchdog() {
    // The command is one process: a shell that is stopped while it starts another is not shown as
    // stopped.
    let pair = Pair::new(T, "", "echo $$; exec sleep 1000");
    let watchdog = group_of(pair.child);
    kill_process_group(watchdog, Signal::STOP).unwrap();
    let are_apart = || (!is_stopped(watchdog) && is_stopped(pair.child)).then_some(());
    poll_until("the watchdog to continue", SOON, are_apart).unwrap();
}

/// An operator pauses the job, and resumes the command alone.
pub(crate) fn terminal_stops_spare_the_watchdog() {
    for signal in [Signal::TSTP, Signal::TTIN, Signal::TTOU] {
        // The command is one process, so that all of the job is resumed.
        let pair = Pair::new(T, "", "echo $$; exec sleep 1000");
        // `zklock` is stopped, so that only the watchdog can kill the child, and no order wakes the
        // watchdog.
        pair.holder.signal(Signal::STOP);
        kill_process_group(group_of(pair.child), signal).unwrap();
        poll_until("the stop", SOON, || is_stopped(pair.child).then_some(())).unwrap();
        kill_process(pair.child, Signal::CONT).unwrap();
        until_dead(pair.child);
        assert_eq!(pair.server.children("/a").len(), 2, "{signal:?}");
        pair.holder.signal(Signal::CONT);
    }
}

/// The child, which is warned of the loss, is killed with its watchdog.
pub(crate) fn on_lost_warn_and_a_killed_watchdog() {
    let mut pair = Pair::new(T, "-v --on-lost warn", STUBBORN);
    pair.cut_off();
    pair.holder.err_until("is lost");
    kill_process(group_of(pair.child), Signal::KILL).unwrap();
    let ended = pair.holder.end();
    assert_eq!(ended.code, 125, "{ended:?}");
    assert!(ended.err.contains("the command was ended"), "{ended:?}");
}

/// The watchdog kills the child before the lock is lost, because nothing moves its deadline.
pub(crate) fn stopped_zklock_reports_the_loss() {
    let pair = Pair::new(T, "", STUBBORN);
    // The test waits for a heartbeat, so that the lock is not lost before the deadline.
    let requests = pair.server.log().len();
    assert!(
        pair.server
            .wait_until_blocking(|view| view.log().count() > requests, SOON)
    );
    pair.holder.signal(Signal::STOP);
    until_dead(pair.child);
    pair.holder.signal(Signal::CONT);
    let ended = pair.holder.end();
    assert_eq!(ended.code, 125, "{ended:?}");
    assert!(!ended.err.contains("the watchdog was killed"), "{ended:?}");
}

/// `zklock` is resumed first, and reports the deadline although the watchdog has not killed the
/// child.
pub(crate) fn stopped_pair_reports_its_deadline() {
    for arguments in ["", "--foreground"] {
        let pair = Pair::new(LONG, arguments, STUBBORN);
        pair.holder.signal(Signal::STOP);
        kill_process(watchdog_of(&pair.holder), Signal::STOP).unwrap();
        // The deadline of another job, which is stopped later, is later.
        let later = Pair::new(LONG, "", STUBBORN);
        later.holder.signal(Signal::STOP);
        until_dead(later.child);
        assert!(is_alive(pair.child));
        pair.holder.signal(Signal::CONT);
        let ended = pair.holder.end();
        assert_eq!(ended.code, 125, "{arguments:?}: {ended:?}");
        let is_told = ended.err.contains("did not run for so long");
        assert!(is_told, "{arguments:?}: {ended:?}");
        later.holder.signal(Signal::CONT);
    }
}

/// The watchdog has killed the child before `zklock` learns of the loss.
pub(crate) fn stopped_zklock_does_not_warn() {
    let mut pair = Pair::new(T, "--on-lost warn", STUBBORN);
    pair.holder.signal(Signal::STOP);
    pair.assert_dead_before_the_next();
    pair.holder.signal(Signal::CONT);
    let ended = pair.holder.end();
    assert_eq!(ended.code, 125, "{ended:?}");
}

/// The leader stays in the election, as after a loss.
pub(crate) fn stopped_leader_contends_again() {
    let (server, files) = (server(), Files::new());
    let mut command = zklock(
        &server.connect_string(),
        &format!("lead /a --session-timeout {T}"),
        STUBBORN,
    );
    command.current_dir(files.path());
    let mut leader = Started::new(command);
    let child = pid(&leader.line());
    let requests = server.log().len();
    assert!(server.wait_until_blocking(|view| view.log().count() > requests, SOON));
    leader.signal(Signal::STOP);
    until_dead(child);
    leader.signal(Signal::CONT);
    let next = pid(&leader.line());
    leader.signal(Signal::TERM);
    kill_process(next, Signal::KILL).unwrap();
    leader.end();
}

pub(crate) fn child_may_end_after_a_loss() {
    for arguments in ["", "-v"] {
        let mut pair = Pair::new(
            LONG,
            arguments,
            "trap 'echo cleaned up; exit 0' TERM; echo $$; while :; do sleep 0.01; done",
        );
        pair.cut_off();
        assert_eq!(pair.holder.line(), "cleaned up");
        let ended = pair.holder.end();
        assert_eq!(ended.code, 125, "{ended:?}");
        assert_eq!(ended.err.matches("is lost").count(), 1, "{ended:?}");
    }
}

pub(crate) fn short_interruption_ends_nothing() {
    let mut pair = Pair::new(LONG, "", "echo $$; sleep 3; echo again; sleep 3; exit 6");
    let session = pair.cut_off();
    assert_eq!(pair.holder.line(), "again");
    pair.server.resume(session);
    let ended = pair.holder.end();
    assert_eq!((ended.code, &*ended.err), (6, ""));
}

pub(crate) fn on_lost_kill() {
    let mut pair = Pair::new(
        T,
        "--on-lost kill",
        "trap 'echo >>term' TERM; echo $$; while :; do date +%s%N >>alive; sleep 0.01; done",
    );
    pair.cut_off();
    pair.assert_dead_before_the_next();
    assert_eq!(pair.files.read("term"), "");
    assert_eq!(pair.holder.end().code, 125);
}

pub(crate) fn on_lost_warn() {
    let mut pair = Pair::new(
        T,
        "--on-lost warn",
        "echo $$; until test -e stop; do sleep 0.01; done; exit 6",
    );
    pair.cut_off();
    pair.waiter.line();
    assert!(is_alive(pair.child));
    std::fs::write(pair.files.of("stop"), "").unwrap();
    let ended = pair.holder.end();
    assert_eq!(ended.code, 6, "{ended:?}");
    assert!(ended.err.contains("went on after the loss"), "{ended:?}");
}

/// The time of the lease passes while the command, whose lock is lost, runs on.
pub(crate) fn on_lost_warn_and_a_lease() {
    let server = server();
    let arguments = "--lease 5 --on-lost warn /a";
    let command = "echo $$; sleep 7; exit 6";
    let mut holder = Started::new(zklock(&server.connect_string(), arguments, command));
    pid(&holder.line());
    assert!(server.expire_session(server.sessions()[0].id));
    let ended = holder.end();
    assert_eq!(ended.code, 6, "{ended:?}");
    assert!(ended.err.contains("went on after the loss"), "{ended:?}");
}

/// The lease was over first, so the child is killed although the lock is lost then.
pub(crate) fn on_lost_warn_after_a_lease() {
    let command = "trap 'echo asked' TERM; echo $$
        while :; do date +%s%N >>alive; sleep 0.01; done";
    let arguments = "--lease 3s --kill-after 60s --on-lost warn";
    let mut pair = Pair::new(T, arguments, command);
    assert_eq!(pair.holder.line(), "asked");
    pair.cut_off();
    pair.assert_dead_before_the_next();
    assert_eq!(pair.holder.end().code, 125);
}

pub(crate) fn on_lost_command() {
    let command = "trap 'echo asked; exit 0' USR1; echo $$; while :; do sleep 0.01; done";
    // The action has no blank, because the arguments are divided at blanks.
    let action = "--on-lost kill${IFS}-USR1${IFS}$ZKLOCK_PID";
    let in_group_of_its_own = format!("exec setsid sh -c {}", quoted(command));
    let pairs = [
        (action.to_owned(), command),
        (action.to_owned(), &*in_group_of_its_own),
        (format!("--foreground {action}"), command),
        (format!("--foreground {action}"), &*in_group_of_its_own),
    ];
    let pairs = pairs.map(|(arguments, command)| {
        let pair = Pair::new(LONG, &arguments, command);
        pair.cut_off();
        pair
    });
    for mut pair in pairs {
        assert_eq!(pair.holder.line(), "asked");
        assert_eq!(pair.holder.end().code, 125);
    }
}

/// A word of the action is mistyped, so that its shell finds no such command.
pub(crate) fn on_lost_command_is_mistyped() {
    let command = "trap 'echo asked; exit 0' TERM; echo $$; while :; do sleep 0.01; done";
    let mut pair = Pair::new(LONG, "--on-lost trem", command);
    pair.cut_off();
    assert_eq!(pair.holder.line(), "asked");
    let ended = pair.holder.end();
    let text = "the command of --on-lost ended with 127; SIGTERM to the command instead";
    assert!(ended.code == 125 && ended.err.contains(text), "{ended:?}");
}

pub(crate) fn on_lost_environment() {
    // The action has no blank, because the arguments are divided at blanks.
    let action = "--on-lost echo${IFS}lost=$ZKLOCK_PATH;kill${IFS}-TERM${IFS}$ZKLOCK_PID";
    let server = server();
    let mut command = zklock(
        &server.connect_string(),
        &format!("{action} /a"),
        "echo $$; exec sleep 1000",
    );
    // The variable is that of a lock around this one.
    command.env("ZKLOCK_PATH", "/outer");
    let mut holder = Started::new(command);
    pid(&holder.line());
    assert!(server.expire_session(server.sessions()[0].id));
    let ended = holder.end();
    assert_eq!(ended.code, 125, "{ended:?}");
    assert!(ended.err.contains("lost=/a\n"), "{ended:?}");
}

/// The shell cannot be started, for want of file descriptors.
pub(crate) fn on_lost_command_fails() {
    let command = "trap 'echo asked; exit 0' TERM; echo $$; while :; do sleep 0.01; done";
    let mut pair = Pair::new(LONG, "--on-lost exit", command);
    let none = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    prlimit(Some(pair.holder.pid()), Resource::Nofile, none).unwrap();
    pair.cut_off();
    assert_eq!(pair.holder.line(), "asked");
    let ended = pair.holder.end();
    assert!(ended.code == 125 && ended.err.contains("SIGTERM to the command instead"));
}

pub(crate) fn lost_lock_kills_the_job() {
    let (server, files) = (server(), Files::new());
    let mut command = zklock(
        &server.connect_string(),
        "--session-timeout 10s --once today /job",
        STUBBORN,
    );
    command.current_dir(files.path());
    let mut holder = Started::new(command);
    let child = pid(&holder.line());
    assert!(server.stall(server.sessions()[0].id, Direction::Both));
    until_dead(child);
    assert!(
        !server.children("/job/lock").is_empty(),
        "its node was there until then"
    );
    assert_eq!(holder.end().code, 125);
}

/// Both processes are stopped. The deadline of the plain lock comes first, because its session
/// timeout is shorter.
pub(crate) fn stopped_job_has_its_deadline() {
    let (server, files) = (server(), Files::new());
    let servers = server.connect_string();
    let start = |arguments: &str, command| {
        let mut command = zklock(&servers, arguments, command);
        command.current_dir(files.path());
        Started::new(command)
    };
    let job = "echo $$; until test -e end; do sleep 0.01; done";
    let mut once = start(&format!("--session-timeout {LONG} --once today /job"), job);
    let mut plain = start(&format!("--session-timeout {T} /a"), STUBBORN);
    let (job, child) = (pid(&once.line()), pid(&plain.line()));
    once.signal(Signal::STOP);
    plain.signal(Signal::STOP);
    until_dead(child);
    assert!(is_alive(job), "the job is killed at its own deadline");
    once.signal(Signal::CONT);
    std::fs::write(files.of("end"), "").unwrap();
    let ended = once.end();
    assert_eq!((ended.code, &*ended.err), (0, ""), "{ended:?}");
}

/// Starts a job that succeeds after its session is cut off. Returns the job once its command is
/// dead, and its session.
fn cut_off_successful_job(server: &Server, files: &Files, once: &str) -> (Started, i64) {
    let job = "echo $$; until test -e end; do sleep 0.01; done";
    let mut command = zklock(&server.connect_string(), once, job);
    command.current_dir(files.path());
    let mut started = Started::new(command);
    let child = pid(&started.line());
    let session = server.sessions()[0].id;
    assert!(server.stall(session, Direction::Both));
    std::fs::write(files.of("end"), "").unwrap();
    until_dead(child);
    (started, session)
}

/// Waits until `zklock` has seen the end of its command: the thread of the deadline ends then.
fn until_run_ends(started: &Started) {
    poll_until("the end of the run", SOON, || {
        (!has_thread(started.pid(), "deadline")).then_some(())
    })
    .unwrap();
}

/// The job has ended when its session expires, and is not recorded, so another process runs it.
pub(crate) fn second_job_run_is_told() {
    let (server, files) = (server(), Files::new());
    let servers = server.connect_string();
    let once = "--session-timeout 10s --once today /job";
    let (first, session) = cut_off_successful_job(&server, &files, once);
    assert!(server.expire_session(session));
    let second = run(zklock(&servers, once, "echo ran"));
    assert_eq!((second.code, &*second.out), (0, "ran\n"), "{second:?}");
    server.resume(session);
    let ended = first.end();
    assert_eq!(ended.code, 125, "{ended:?}");
    assert!(
        ended.err.contains("another process has run it, too"),
        "{ended:?}"
    );
}

/// The job has succeeded, and no server says whether it is recorded, or whether another process
/// runs it.
pub(crate) fn signal_ends_a_job_in_doubt() {
    for is_run_by_another in [false, true] {
        let (server, files) = (server(), Files::new());
        let servers = server.connect_string();
        let once = "--session-timeout 60 --once today /job";
        let (first, session) = cut_off_successful_job(&server, &files, once);
        until_run_ends(&first);
        let mut second = None;
        if is_run_by_another {
            assert!(server.expire_session(session));
            let mut other = Started::new(zklock(&servers, once, "echo runs; sleep 1000"));
            assert_eq!(other.line(), "runs");
            second = Some(other);
            server.resume(session);
            until_queued(&server, "/job/lock", 2);
        }
        first.signal(Signal::TERM);
        let ended = first.end();
        let is_told = ended.err.contains("it may run again");
        assert!(ended.code == 69 && is_told, "{ended:?}");
        drop(second);
    }
}

/// The command has ended, and its watchdog, which is stopped, has not.
pub(crate) fn own_end_outlives_a_late_loss() {
    // A job may be recorded before the loss.
    for (arguments, code, ends) in [
        ("--on-lost warn /a", 3, &[3][..]),
        ("--once today /job", 3, &[3]),
        ("--once today /job", 0, &[0, 69]),
    ] {
        let server = server();
        let text = format!("echo $$; read line; exit {code}");
        let mut command = zklock(&server.connect_string(), arguments, &text);
        command.stdin(Stdio::piped());
        let mut holder = Started::new(command);
        let stopped = KeptStopped::new(group_of(pid(&holder.line())));
        let session = server.sessions()[0].id;
        holder.tell("");
        until_run_ends(&holder);
        // A watchdog that was too quick to be stopped again has let `zklock` release the lock.
        server.expire_session(session);
        let ended = holder.end();
        assert!(ends.contains(&ended.code), "{arguments}: {ended:?}");
        drop(stopped);
    }
}

/// A leader that is asked to end while the command of a lost term ends does not contend again.
pub(crate) fn signal_at_a_loss_ends_a_leader() {
    let command = "trap 'echo asked' TERM; trap 'exit 0' INT QUIT HUP USR1; echo up
        while :; do sleep 0.01; done";
    let cases = [
        (Signal::INT, -1),
        (Signal::QUIT, -1),
        // A request to read a configuration again ends the command, and not the leader.
        (Signal::HUP, 0),
    ];
    let leaders = cases.map(|(signal, code)| {
        let server = server();
        let arguments = format!("lead --session-timeout {LONG} /a");
        let mut leader = Started::new(zklock(&server.connect_string(), &arguments, command));
        assert_eq!(leader.line(), "up");
        let session = server.sessions()[0].id;
        assert!(server.stall(session, Direction::Both));
        (server, session, leader, signal, code)
    });
    for (server, session, mut leader, signal, code) in leaders {
        assert_eq!(leader.line(), "asked");
        leader.signal(signal);
        server.resume(session);
        if signal == Signal::HUP {
            assert_eq!(leader.line(), "up", "expected a second term");
            leader.signal(Signal::USR1);
        }
        assert_eq!(leader.line(), "", "{signal:?} ends it");
        assert_eq!(leader.end().code, code, "{signal:?}");
    }
}

pub(crate) fn lost_term_is_followed_by_another() {
    let server = server();
    let command = "echo $ZKLOCK_TOKEN; sleep 1000";
    let mut leader = Started::new(zklock(&server.connect_string(), "lead /a", command));
    let token = leader.line();
    assert!(server.expire_session(server.sessions()[0].id));
    assert_ne!(leader.line(), token);
    leader.signal(Signal::TERM);
    assert_eq!(leader.end().code, 143);
}

pub(crate) fn killed_watchdog_ends_the_child() {
    let server = server();
    let mut holder = Started::new(zklock(
        &server.connect_string(),
        "/a",
        "echo $$; sleep 1000",
    ));
    let child = pid(&holder.line());
    let watchdog = group_of(child);
    assert_ne!(watchdog, child);
    kill_process(watchdog, Signal::KILL).unwrap();
    poll_until("the end of the child", SOON, || {
        (!is_alive(child)).then_some(())
    })
    .unwrap();
    let ended = holder.end();
    assert_eq!(ended.code, 125, "{ended:?}");
    assert!(ended.err.contains("watchdog"), "{ended:?}");
}
