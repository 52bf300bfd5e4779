//! The kinds of locks, and what a command is told of its lock.

use std::process::Command;

use rustix::process::Signal;

use crate::started::{Files, Started, run, server, zklock};

/// A command that notes in one file when it comes in and when it goes out.
const INSIDE: &str = "echo in >>log; sleep 0.02; echo out >>log";

pub(crate) fn two_exclude_each_other() {
    let server = server();
    exclude_each_other(&server.connect_string());
}

pub(crate) fn exclude_each_other(servers: &str) {
    for (kind, path) in [
        ("", "mutex"),
        ("--fair", "fair"),
        ("--exclusive", "writers"),
        ("--permits 1", "one"),
    ] {
        let (files, path) = (Files::new(), test_support::unique_path(path));
        let start = |_| {
            let mut command = zklock(servers, &format!("{kind} {path}"), INSIDE);
            command.current_dir(files.path());
            Started::new(command)
        };
        let started: Vec<Started> = (0..3).map(start).collect();
        for started in started {
            let ended = started.end();
            assert_eq!((ended.code, &*ended.err), (0, ""), "{kind}: {ended:?}");
        }
        assert_eq!(files.read("log"), "in\nout\n".repeat(3), "{kind}");
    }
}

pub(crate) fn readers_and_writers() {
    let server = server();
    let servers = server.connect_string();
    let mut readers: Vec<Started> = (0..2)
        .map(|_| Started::new(zklock(&servers, "-s /a", "echo held; sleep 1000")))
        .collect();
    for reader in &mut readers {
        assert_eq!(reader.line(), "held");
    }
    assert_eq!(run(zklock(&servers, "-n --exclusive /a", "true")).code, 75);
    drop(readers);
}

pub(crate) fn verbose() {
    let server = server();
    let servers = server.connect_string();
    let mut holder = Started::new(zklock(&servers, "/a", "echo held; sleep 1000"));
    assert_eq!(holder.line(), "held");
    let mut waiter = Command::new("sh");
    waiter.arg("-c").arg(format!(
        "exec {} -v /a -- true 2>&1",
        env!("CARGO_BIN_EXE_zklock")
    ));
    waiter.env("ZK_CONNECT", &servers);
    let mut waiter = Started::new(waiter);
    let waits = waiter.line();
    let holder_is_named = waits.contains("held by ") && waits.contains("/zklock");
    assert!(
        waits.starts_with("zklock: waits: ") && holder_is_named,
        "{waits}"
    );
    holder.signal(Signal::TERM);
    let granted = waiter.line();
    assert!(granted.starts_with("zklock: granted after "), "{granted}");
    assert_eq!(waiter.end().code, 0);
}

pub(crate) fn permits() {
    let server = server();
    let servers = server.connect_string();
    let start = |_| {
        Started::new(zklock(
            &servers,
            "--permits 2 /a",
            "echo $ZKLOCK_SLOT; sleep 1000",
        ))
    };
    let mut both: Vec<Started> = (0..2).map(start).collect();
    let mut slots: Vec<String> = both.iter_mut().map(Started::line).collect();
    slots.sort();
    assert_eq!(slots, ["0", "1"]);
    for wait in ["-n", "-w 1"] {
        let busy = run(zklock(&servers, &format!("--permits 2 {wait} /a"), "true"));
        assert_eq!(busy.code, 75);
        let names_a_holder = busy.err.contains(": 2 permits are held, the oldest by ")
            && busy.err.contains("/zklock for ");
        assert!(names_a_holder, "{busy:?}");
    }
    let other = run(zklock(&servers, "--permits 3 -n /a", "true"));
    assert_eq!(other.code, 64, "another limit");
    assert!(
        other.err.contains("the same --permits") && !other.err.contains('`'),
        "{other:?}"
    );
}

/// Permits and every other kind at one path: whoever comes second is refused.
pub(crate) fn kinds_meet() {
    let server = server();
    let servers = server.connect_string();
    let permits = "--permits 2";
    let others = ["", "--fair", "--shared", "--exclusive", "lead"];
    let pairs = others.map(|other| [(other, permits), (permits, other)]);
    for (number, (first, second)) in pairs.concat().into_iter().enumerate() {
        let path = format!("/a/{number}");
        let command = "echo held; sleep 1000";
        let mut holder = Started::new(zklock(&servers, &format!("{first} {path}"), command));
        assert_eq!(holder.line(), "held");
        let refused = run(zklock(&servers, &format!("{second} {path}"), "echo in"));
        assert_eq!((refused.code, &*refused.out), (64, ""), "{first}, {second}");
        let says =
            refused.err.contains("another kind of lock") && refused.err.contains("/zklock (");
        assert!(
            says || refused.err.contains("another recipe"),
            "{refused:?}"
        );
        holder.signal(Signal::TERM);
        // The first holder has noticed nothing, and a free path accepts any kind.
        holder.end();
        assert_eq!(
            run(zklock(&servers, &format!("{second} {path}"), "exit 5")).code,
            5
        );
    }
}

pub(crate) fn once() {
    let (server, files) = (server(), Files::new());
    let job_with = |options: &str, code: i32| {
        let command = format!("echo $ZKLOCK_PATH $ZKLOCK_TOKEN >>log; exit {code}");
        let arguments = format!("{options} --once 2026-11-25 /job");
        let mut command = zklock(&server.connect_string(), &arguments, &command);
        command.current_dir(files.path());
        run(command)
    };
    let job = |code| job_with("-v", code);
    let runs = || files.read("log").lines().count();
    assert_eq!((job(4).code, runs()), (4, 1), "not done");
    assert_eq!((job(0).code, runs()), (0, 2), "done again");
    let last = job(5);
    assert_eq!((last.code, runs()), (0, 2), "done");
    assert!(last.err.contains("it has run for 2026-11-25"), "{last:?}");
    let silent = job_with("", 5);
    assert_eq!(
        (silent.code, &*silent.err, runs()),
        (0, "", 2),
        "cron would mail it"
    );
    assert!(
        files.read("log").starts_with("/job "),
        "{}",
        files.read("log")
    );
}

pub(crate) fn lead() {
    let server = server();
    let servers = server.connect_string();
    let command = "echo leads $ZKLOCK_TOKEN; read line </dev/zero; sleep 1000";
    let mut first = Started::new(zklock(&servers, "lead /a", command));
    let token = first.line();
    assert!(token.starts_with("leads "), "{token}");
    let mut second = Started::new(zklock(
        &servers,
        "lead /a",
        "echo leads $ZKLOCK_TOKEN; exit 3",
    ));
    crate::started::until_queued(&server, "/a", 2);
    first.signal(Signal::TERM);
    assert_eq!(first.end().code, 143);
    assert_ne!(second.line(), token);
    assert_eq!(second.end().code, 3);
}

pub(crate) fn standard_output() {
    let server = server();
    let command =
        "echo $ZKLOCK_PATH $ZKLOCK_NODE $ZKLOCK_TOKEN ${ZKLOCK_SLOT-none}; cat; echo to stderr >&2";
    let mut zklock = zklock(&server.connect_string(), "-v /a", command);
    // The variable is that of another lock around this one.
    zklock.env("ZKLOCK_SLOT", "7");
    let ended = run(zklock);
    let words: Vec<&str> = ended.out.split_whitespace().collect();
    let [path, node, token, slot] = words[..] else {
        panic!("{ended:?}")
    };
    assert_eq!((path, slot), ("/a", "none"));
    assert!(node.starts_with("/a/") && node.contains("-lock-"), "{node}");
    assert!(token.ends_with("-0"), "{token}");
    assert!(
        ended.err.contains("zklock: granted after") && ended.err.ends_with("to stderr\n"),
        "{ended:?}"
    );
}
