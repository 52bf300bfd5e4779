//! Commands that use a terminal, and what `zklock` does at one.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command};

use rustix::fs::{Mode, OFlags, open};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use crate::started::{pid, server};

/// A program with a terminal of its own.
struct Terminal {
    program: Child,
    keyboard: File,
    screen: BufReader<File>,
}

impl Terminal {
    /// Starts `zklock` as the leader of a session, with its group in the foreground.
    fn start(servers: &str, arguments: &[&str]) -> Self {
        Self::of(env!("CARGO_BIN_EXE_zklock"), servers, arguments)
    }

    /// Starts a program of any name as [`start`](Self::start) does.
    fn of(program: &str, servers: &str, arguments: &[&str]) -> Self {
        let keyboard = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&keyboard).unwrap();
        unlockpt(&keyboard).unwrap();
        let name = ptsname(&keyboard, Vec::new()).unwrap();
        let side = File::from(open(&*name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap());
        let mut command = Command::new("setpriv");
        // The tests may run in the background of a shell, where the signals of keys are ignored:
        // `setsid` would pass that on.
        command
            .args(["--pdeathsig", "KILL", "setsid", "--ctty"])
            .args(["env", "--default-signal"])
            .arg(program)
            .args(arguments)
            .env("ZK_CONNECT", servers)
            .stdin(side.try_clone().unwrap())
            .stdout(side.try_clone().unwrap())
            .stderr(side);
        let keyboard = File::from(keyboard);
        Self {
            program: command.spawn().unwrap(),
            screen: BufReader::new(keyboard.try_clone().unwrap()),
            keyboard,
        }
    }

    fn type_keys(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    /// Reads lines until one contains this text.
    fn until(&mut self, text: &str) {
        let mut line = String::new();
        while !line.contains(text) {
            line.clear();
            self.screen.read_line(&mut line).unwrap();
        }
    }

    fn pid(&self) -> Pid {
        pid(&self.program.id().to_string())
    }

    /// Waits for the end of the program by a signal.
    fn end_by_signal(mut self) -> Option<i32> {
        self.program.wait().unwrap().signal()
    }

    /// Waits for the end of the program, and returns its exit code.
    fn end(mut self) -> Option<i32> {
        let status = self.program.wait().unwrap();
        assert_eq!(status.signal(), None);
        status.code()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // The kill has no effect on a program that has ended.
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}

/// What `zklock` says when its command wants the terminal.
const HINT: &str = "--foreground";

pub(crate) fn readers_of_terminal_are_warned() {
    let server = server();
    let mut terminal = Terminal::start(&server.connect_string(), &["/a", "--", "cat"]);
    terminal.until(HINT);
    terminal.type_keys("\x03");
    assert_eq!(terminal.end_by_signal(), Some(Signal::INT.as_raw()));
    assert!(server.sessions().is_empty(), "the lock is released");
}

/// A shell stops again when it continues, and ignores SIGTERM.
pub(crate) fn shells_without_the_terminal_end() {
    let server = server();
    for (keys, signal) in [
        ("\x03", Some(Signal::INT)),
        ("\x1c", Some(Signal::QUIT)),
        ("", None),
    ] {
        let command = ["/a", "--", "bash", "--norc", "-i"];
        let mut terminal = Terminal::start(&server.connect_string(), &command);
        terminal.until(HINT);
        if keys.is_empty() {
            kill_process(terminal.pid(), Signal::TERM).unwrap();
        }
        terminal.type_keys(keys);
        match signal {
            Some(signal) => assert_eq!(terminal.end_by_signal(), Some(signal.as_raw())),
            None => assert_eq!(terminal.end(), Some(143)),
        }
    }
}

/// A shell with `stty tostop`: a program in the background is stopped as it writes, and not while it
/// starts its watchdog, which `fg` would not continue.
pub(crate) fn background_output_stops_no_start() {
    let server = server();
    let program = env!("CARGO_BIN_EXE_zklock");
    let job = format!("{program} -v /a -- sh -c 'exit 3'");
    let text = format!(
        "stty tostop; for time in 1 2 3 4 5 6 7 8 9 10; do \
           {job} & wait $!; code=$?; [ $code = 3 ] || {{ fg; code=$?; }}; \
           [ $code = 3 ] || exit 9; \
         done; exit 4"
    );
    let arguments = ["--norc", "-m", "-c", &text];
    let terminal = Terminal::of("bash", &server.connect_string(), &arguments);
    assert_eq!(terminal.end(), Some(4));
}

/// A signal that does not ask for an end is heeded during the stop, and the reader stops again.
pub(crate) fn signals_wake_a_reader() {
    let server = server();
    let command = "trap 'echo usr1 heard' USR1; read line; read line; exit 3";
    let mut terminal =
        Terminal::start(&server.connect_string(), &["/a", "--", "sh", "-c", command]);
    terminal.until(HINT);
    kill_process(terminal.pid(), Signal::USR1).unwrap();
    terminal.until("usr1 heard");
    kill_process(terminal.pid(), Signal::TERM).unwrap();
    assert_eq!(terminal.end(), Some(143));
}

pub(crate) fn foreground_reads() {
    let server = server();
    let command = ["--foreground", "/a", "--", "cat"];
    let mut terminal = Terminal::start(&server.connect_string(), &command);
    terminal.type_keys("an answer\n");
    // First the terminal echoes the line, and then the command.
    terminal.until("an answer");
    terminal.until("an answer");
    terminal.type_keys("\x03");
    assert_eq!(terminal.end_by_signal(), Some(Signal::INT.as_raw()));
}

/// The terminal sends the signal to `zklock` alone, because `timeout` leads a group of its own.
pub(crate) fn interrupt_reaches_another_group() {
    let server = server();
    let job = "echo begun; exec sleep 1000";
    let command = [
        "--foreground",
        "/a",
        "--",
        "timeout",
        "1000",
        "sh",
        "-c",
        job,
    ];
    let mut terminal = Terminal::start(&server.connect_string(), &command);
    terminal.until("begun");
    terminal.type_keys("\x03");
    assert_eq!(terminal.end_by_signal(), Some(Signal::INT.as_raw()));
}

/// A shell goes on with its script if a program has only exited.
pub(crate) fn a_loop_ends() {
    let server = server();
    let program = env!("CARGO_BIN_EXE_zklock");
    let job = format!("{program} /a -- sh -c 'echo begun; exec sleep '$time");
    let text = format!("for time in 1000 0; do {job}; done; exit 8");
    let arguments = ["--norc", "-c", &text];
    let mut terminal = Terminal::of("bash", &server.connect_string(), &arguments);
    terminal.until("begun");
    terminal.type_keys("\x03");
    assert_eq!(terminal.end_by_signal(), Some(Signal::INT.as_raw()));
    assert!(server.sessions().is_empty(), "the lock is released");
}

pub(crate) fn keys_end_both() {
    let server = server();
    let servers = server.connect_string();
    for (key, signal) in [("\x03", Signal::INT), ("\x1c", Signal::QUIT)] {
        let command = ["/a", "--", "sh", "-c", "echo begun; exec sleep 1000"];
        let mut holder = Terminal::start(&servers, &command);
        holder.until("begun");
        let mut waiter = Terminal::start(&servers, &["-v", "/a", "--", "true"]);
        waiter.until("waits");
        for mut one in [waiter, holder] {
            one.type_keys(key);
            assert_eq!(one.end_by_signal(), Some(signal.as_raw()));
        }
        assert!(server.sessions().is_empty(), "the lock is released");
    }
}
