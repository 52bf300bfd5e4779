//! The exit codes.

use std::process::Command;
use std::time::Duration;

use test_support::{SOON, poll_until};
use zookeeper_test_server::{Direction, Server};

use crate::started::{Files, Started, run, server, until_queued, zklock};

pub(crate) fn passed_on() {
    let server = server();
    for (command, code) in [
        ("exit 0", 0),
        ("exit 7", 7),
        ("kill -9 $$", 137),
        ("kill -TERM $$", 143),
    ] {
        let ended = run(zklock(&server.connect_string(), "/a", command));
        assert_eq!((ended.code, &*ended.err), (code, ""), "{command}");
    }
    assert!(server.children("/a").is_empty(), "the lock is released");
    assert!(server.sessions().is_empty(), "and the session ended");
}

/// The command kills its process group, and the watchdog with it. `zklock` may notice either end
/// first.
pub(crate) fn killed_groups() {
    let server = server();
    for signal in ["KILL", "FPE"].repeat(10) {
        let command = format!("kill -{signal} 0");
        let ended = run(zklock(&server.connect_string(), "/a", &command));
        assert_eq!(ended.code, 125, "{ended:?}");
        assert!(ended.err.contains("the watchdog was killed"), "{ended:?}");
    }
}

/// With any number of file descriptors the command runs, or the error names the system as the
/// reason.
pub(crate) fn shortages() {
    let server = server();
    let program = env!("CARGO_BIN_EXE_zklock");
    let start = |limit: u32| {
        let mut command = Command::new("sh");
        let text = format!("ulimit -n {limit}; exec {program} /{limit} -- true");
        command
            .args(["-c", &text])
            .env("ZK_CONNECT", server.connect_string());
        (limit, Started::new(command))
    };
    let started: Vec<_> = (4..=64).step_by(3).map(start).collect();
    let ended: Vec<_> = started
        .into_iter()
        .map(|(limit, one)| (limit, one.end()))
        .collect();
    assert!(
        ended.iter().all(|(_, ended)| [0, 71].contains(&ended.code)),
        "{ended:#?}"
    );
    assert!(
        [0, 71]
            .iter()
            .all(|code| ended.iter().any(|(_, ended)| ended.code == *code))
    );
    let is_told = |text: &str| {
        text.contains("Too many open files")
            && text.contains("ulimit -n")
            && !text.contains("panic")
    };
    assert!(
        ended
            .iter()
            .all(|(_, ended)| ended.code == 0 || is_told(&ended.err)),
        "{ended:#?}"
    );
}

/// The manual page says how much stack is enough.
pub(crate) fn small_stack() {
    let server = server();
    let program = env!("CARGO_BIN_EXE_zklock");
    for arguments in [
        "/a -- true",
        "--permits 2 /b -- true",
        "--once today /c -- true",
        "lead /d -- true",
        "status /a",
    ] {
        let mut command = Command::new("sh");
        let text = format!("ulimit -s 512; exec {program} {arguments}");
        command
            .args(["-c", &text])
            .env("ZK_CONNECT", server.connect_string());
        let ended = run(command);
        assert_eq!((ended.code, &*ended.err), (0, ""), "{arguments}");
    }
}

pub(crate) fn moved_session_timeouts() {
    let server = Server::builder()
        .min_session_timeout(Duration::from_secs(10))
        .max_session_timeout(Duration::from_secs(20))
        .start()
        .unwrap();
    let said = |arguments: &str| {
        let ended = run(zklock(&server.connect_string(), arguments, "exit 3"));
        assert_eq!(ended.code, 3, "{ended:?}");
        ended.err
    };
    assert_eq!(said("--session-timeout 15s /a"), "");
    // The servers change the default timeout too, but a job of cron must be silent.
    assert_eq!(said("/a"), "");
    for (asked, text) in [
        ("1ms", "/a: the session timeout is 10s instead of 1ms"),
        ("0", "10s instead of 0ns"),
        ("1h", "20s instead of 3600s"),
    ] {
        let told = said(&format!("--session-timeout {asked} /a"));
        assert!(told.contains(text), "{asked}: {told}");
    }
}

pub(crate) fn cannot_run() {
    let server = server();
    for (program, code) in [("/no/such/program", 127), ("/etc/passwd", 126)] {
        let mut command = zklock(&server.connect_string(), "/a --", "");
        command.arg(program);
        let ended = run(command);
        assert_eq!(ended.code, code, "{ended:?}");
        assert!(
            ended.err.starts_with(&format!("zklock: /a: {program}: ")),
            "{ended:?}"
        );
    }
}

pub(crate) fn busy() {
    let server = server();
    let servers = server.connect_string();
    let mut holder = Started::new(zklock(&servers, "/a", "echo held; sleep 1000"));
    assert_eq!(holder.line(), "held");
    for (arguments, code) in [("-n", 75), ("-w 1.5", 75), ("-n -E 3", 3), ("-w 0 -E 0", 0)] {
        let ended = run(zklock(&servers, &format!("{arguments} /a"), "echo here"));
        assert_eq!((ended.code, &*ended.out), (code, ""), "{ended:?}");
        let names_the_holder = ended.err.starts_with("zklock: ")
            && ended.err.contains("/zklock for ")
            && ended.err.ends_with(" at most\n");
        assert!(
            if code == 0 {
                ended.err.is_empty()
            } else {
                names_the_holder
            },
            "{ended:?}"
        );
    }
    until_queued(&server, "/a", 1);
}

pub(crate) fn unreachable() {
    let ended = run(zklock("127.0.0.1:1", "/a", "echo here"));
    assert_eq!((ended.code, &*ended.out), (69, ""), "{ended:?}");
    assert!(
        ended.err.contains("127.0.0.1:1") && ended.err.contains("refuses"),
        "{ended:?}"
    );
}

/// The servers become silent while `zklock` waits behind a holder.
pub(crate) fn silence_while_waiting() {
    let server = server();
    let servers = server.connect_string();
    let mut holder = Started::new(zklock(&servers, "/a/lock", "echo held; sleep 1000"));
    assert_eq!(holder.line(), "held");
    let ahead = format!("/a/lock/{}", server.children("/a/lock")[0]);
    let holding = server.sessions()[0].id;
    for arguments in ["-w 4 -E 0 /a/lock", "-w 4 -E 0 --once today /a"] {
        let waiter = Started::new(zklock(&servers, arguments, "echo here"));
        let watching = || {
            let mut watching = server.watches_on(&ahead).into_iter();
            watching.find(|session| *session != holding)
        };
        let waiting = poll_until("the watch of the waiter", SOON, watching).unwrap();
        assert!(server.stall(waiting, Direction::Both));
        let ended = waiter.end();
        assert_eq!((ended.code, &*ended.out), (69, ""), "{ended:?}");
        let told = ["no server answers", "was not free within 4s: held by "];
        let is_told = told.map(|text| ended.err.contains(text));
        assert_eq!(is_told, [true; 2], "{arguments}: {ended:?}");
        assert!(server.expire_session(waiting));
    }
}

pub(crate) fn no_permission() {
    let (server, files) = (server(), Files::new());
    let servers = server.connect_string();
    let file = files.of("credentials");
    std::fs::write(&file, "digest:anna:secret\n").unwrap();
    let own = format!("--auth-file {} --private /a", file.display());
    assert_eq!(run(zklock(&servers, &own, "exit 5")).code, 5);
    let denied = run(zklock(&servers, "/a", "echo here"));
    assert_eq!((denied.code, &*denied.out), (77, ""), "{denied:?}");
    // The error names the option, not the library's method.
    assert!(
        denied
            .err
            .ends_with("which has no credentials (--auth-file)\n"),
        "{denied:?}"
    );
    assert_eq!(run(zklock(&servers, &own, "exit 5")).code, 5);
}

pub(crate) fn usage() {
    let server = server();
    let servers = server.connect_string();
    for arguments in [
        "",
        "no/slash",
        "--no-such-option /a",
        "-n -w 1 /a",
        "-w soon /a",
        "--shared --fair /a",
        "--permits 0 /a",
        "--once today /a",
        "--once= /a -- true",
        "--once=\u{2003} /a -- true",
        "-w 1e99 /a -- true",
        "--on-lost= /a -- true",
        "--on-lost=\u{2003} /a -- true",
        "--once today --on-lost warn /a -- true",
        "--private /a",
        "--auth-file /no/such/file /a",
        "lead /a",
    ] {
        let ended = run(zklock(&servers, arguments, ""));
        assert_eq!(
            (ended.code, &*ended.out),
            (64, ""),
            "{arguments}: {ended:?}"
        );
        assert!(!ended.err.is_empty(), "{arguments}");
        let is_of_library = ["Duration", "builder", "call `"].map(|word| ended.err.contains(word));
        assert_eq!(is_of_library, [false; 3], "{ended:?}");
    }
    let many = run(zklock(&servers, "--permits 10001 /a -- true", ""));
    let is_told = many.err.contains("--permits") && many.err.contains("1..=10000");
    assert!(many.code == 64 && is_told, "{many:?}");
    for arguments in [
        "/a true",
        "-n /a ./report --yesterday",
        "-n /a status",
        "lead /a true",
    ] {
        let ended = run(zklock(&servers, arguments, ""));
        let is_told = ended.err.contains("tip: a command comes behind '--'");
        assert!(ended.code == 64 && is_told, "{ended:?}");
    }
    for arguments in ["-v lead /a -- true", "--servers h:1 status /a"] {
        let ended = run(zklock(&servers, arguments, ""));
        let is_told = ended.err.contains("options come behind");
        assert!(ended.code == 64 && is_told, "{arguments}: {ended:?}");
    }
    // A script passes an empty variable as the command.
    for arguments in ["/a --", "-n /a --", "lead /a --"] {
        let ended = run(zklock(&servers, arguments, ""));
        let is_told = ended.err.contains("CMD");
        assert!(ended.code == 64 && is_told, "{arguments}: {ended:?}");
    }
    for arguments in ["--no-such-option /a", "/a /b -- true", "status /a /b"] {
        let ended = run(zklock(&servers, arguments, ""));
        assert!(
            ended.code == 64 && !ended.err.contains("comes behind"),
            "{ended:?}"
        );
    }
    for arguments in ["statsu", "statsu /a", "jobs/a -- true"] {
        let ended = run(zklock(&servers, arguments, ""));
        let is_told = ended
            .err
            .contains("the commands are lead, status, revoke, break");
        assert!(ended.code == 64 && is_told, "{ended:?}");
    }
    // The servers are in the environment, so the usage does not require them on the command line.
    for arguments in ["", "lead", "status", "revoke", "break"] {
        let ended = run(zklock(&servers, arguments, ""));
        let (_, usage) = ended.err.split_once("Usage: ").unwrap();
        assert!(
            ended.code == 64 && !usage.contains("--servers"),
            "{ended:?}"
        );
    }
    for arguments in [
        "/a",
        "--once today /a -- true",
        "lead /a -- true",
        "status /a",
        "break /a",
    ] {
        let mut without = zklock("", arguments, "");
        without.env_remove("ZK_CONNECT");
        for command in [without, zklock("", arguments, "")] {
            let ended = run(command);
            assert_eq!(
                (ended.code, &*ended.out),
                (64, ""),
                "{arguments}: {ended:?}"
            );
            let names_both = ended.err.contains("--servers") && ended.err.contains("ZK_CONNECT");
            assert!(
                names_both && ended.err.starts_with("zklock: /a: no servers: "),
                "{ended:?}"
            );
        }
    }
    for arguments in ["--help", "--version", "status --help"] {
        let ended = run(zklock(&servers, arguments, ""));
        assert_eq!((ended.code, &*ended.err), (0, ""), "{arguments}");
    }
    // The two kinds of locks that cannot be at one path.
    let mut reader = Started::new(zklock(&servers, "--shared /b", "echo held; sleep 1000"));
    assert_eq!(reader.line(), "held");
    assert_eq!(run(zklock(&servers, "-n /b", "true")).code, 64);
}
