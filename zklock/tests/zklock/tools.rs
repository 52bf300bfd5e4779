//! Looking at a lock, and taking it from its holder.

use std::io::Write as _;
use std::process::Stdio;

use rustix::process::Signal;

use crate::started::{Started, pid, run, server, until_dead, until_queued, zklock};

pub(crate) fn status() {
    let server = server();
    let servers = server.connect_string();
    assert_eq!(
        run(zklock(&servers, "status /a", "")).out,
        "/a: free (no such node)\n"
    );
    assert_eq!(run(zklock(&servers, "/a", "true")).code, 0);
    assert_eq!(run(zklock(&servers, "status /a", "")).out, "/a: free\n");
    let json = run(zklock(&servers, "status --json /a", ""));
    assert_eq!(
        json.out,
        "{\"exists\":true,\"holders\":[],\"path\":\"/a\",\"waiters\":[]}\n"
    );
    let none = run(zklock(&servers, "status --json /no/such", "")).out;
    assert!(none.starts_with("{\"exists\":false,"), "{none}");
    for (kind, path, name) in [
        ("", "/a", "exclusive"),
        ("--permits 1", "/b", "permit"),
        ("--shared", "/c", "read"),
    ] {
        let mut holder = Started::new(zklock(
            &servers,
            &format!("{kind} {path}"),
            "echo held; sleep 1000",
        ));
        assert_eq!(holder.line(), "held");
        let text = run(zklock(&servers, &format!("status {path}"), ""));
        let lines: Vec<&str> = text.out.lines().collect();
        let pid = holder.pid().as_raw_nonzero();
        assert_eq!(
            (lines[0], lines.len()),
            (&*format!("{path}: held"), 2),
            "{text:?}"
        );
        let holder_is_shown = lines[1].starts_with("  held by ")
            && lines[1].contains(&format!("/{pid}/zklock ({name}, held for "));
        assert!(holder_is_shown, "{text:?}");
        let json = run(zklock(&servers, &format!("status --json {path}"), ""));
        for part in [
            format!("\"pid\":{pid},"),
            "\"name\":\"zklock\"".into(),
            format!("\"kind\":\"{name}\""),
        ] {
            assert!(json.out.contains(&part), "{part}: {json:?}");
        }
    }
}

pub(crate) fn status_of_once() {
    let server = server();
    let servers = server.connect_string();
    let mut job = Started::new(zklock(&servers, "--once today /a", "echo runs; sleep 1000"));
    assert_eq!(job.line(), "runs");
    let text = run(zklock(&servers, "status /a", "")).out;
    let lines: Vec<&str> = text.lines().collect();
    let [free, held, by] = lines[..] else {
        panic!("{text}")
    };
    assert_eq!(
        (free, held),
        ("/a: free, but not for --once:", "/a/lock: held")
    );
    let pid = job.pid().as_raw_nonzero();
    assert!(
        by.starts_with("  held by ") && by.contains(&format!("/{pid}/zklock (")),
        "{text}"
    );
    assert!(
        run(zklock(&servers, "status /a/lock", ""))
            .out
            .starts_with("/a/lock: held\n")
    );
    let json = run(zklock(&servers, "status --json /a", "")).out;
    for part in [
        "\"holders\":[],\"once\":{",
        "\"path\":\"/a/lock\"",
        &format!("\"pid\":{pid},"),
    ] {
        assert!(json.contains(part), "{part}: {json}");
    }
    let mut watch = Started::new(zklock(&servers, "status --watch /a", ""));
    assert_eq!(watch.line(), "/a: free, but not for --once:");
    job.signal(Signal::TERM);
    assert_eq!(job.end().code, 143);
    assert_eq!(watch.line(), held);
    assert!(watch.line().starts_with("  held by "));
    assert_eq!(watch.line(), "/a: free");
}

pub(crate) fn status_watches() {
    let server = server();
    let servers = server.connect_string();
    // The directory is created first, so that no look falls between its creation and that of the
    // node.
    assert_eq!(run(zklock(&servers, "/a", "true")).code, 0);
    let mut watch = Started::new(zklock(&servers, "status --watch /a", ""));
    assert_eq!(watch.line(), "/a: free");
    let mut holder = Started::new(zklock(&servers, "/a", "echo held; sleep 1000"));
    assert_eq!(holder.line(), "held");
    assert_eq!(watch.line(), "/a: held");
    assert!(watch.line().starts_with("  held by "));
    let _waiter = Started::new(zklock(&servers, "/a", "true"));
    assert_eq!(watch.line(), "/a: held, 1 waiting");
    assert!(watch.line().starts_with("  held by "));
    assert!(watch.line().starts_with("  waiting "));
}

pub(crate) fn revoke() {
    let server = server();
    let servers = server.connect_string();
    assert_eq!(
        run(zklock(&servers, "revoke /a", "")).code,
        1,
        "a free lock"
    );
    let command = "trap 'echo asked; exit 9' TERM; echo held; while :; do sleep 0.01; done";
    let mut holder = Started::new(zklock(&servers, "/a", command));
    assert_eq!(holder.line(), "held");
    let asked = run(zklock(&servers, "revoke /a", ""));
    // The request takes the place of the holder's identity in the node.
    let who = format!(
        "/{}/zklock (exclusive, held for ",
        holder.pid().as_raw_nonzero()
    );
    assert!(
        asked.code == 0 && asked.out.starts_with("asked "),
        "{asked:?}"
    );
    assert!(
        asked.out.contains(&who)
            && asked.out.contains(", session 0x")
            && asked.out.ends_with(" to release /a\n"),
        "{asked:?}"
    );
    assert_eq!(holder.line(), "asked");
    assert_eq!(holder.end().code, 9);
}

/// The reader of the output has ended, as `head` does.
pub(crate) fn status_without_reader() {
    let server = server();
    let servers = server.connect_string();
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    drop(reader);
    let mut status = zklock(&servers, "status /a", "");
    let status = status
        .stdout(std::fs::File::from(writer))
        .stderr(Stdio::piped());
    let output = status.spawn().unwrap().wait_with_output().unwrap();
    assert_eq!(
        (output.status.code(), &*output.stderr),
        (Some(141), &b""[..])
    );
}

/// A job that runs once: its lock is beside its records.
pub(crate) fn revoke_of_once() {
    let server = server();
    let servers = server.connect_string();
    let command = "trap 'echo asked; exit 9' TERM; echo runs; while :; do sleep 0.01; done";
    let mut job = Started::new(zklock(&servers, "--once today /a", command));
    assert_eq!(job.line(), "runs");
    let busy = run(zklock(&servers, "-n --once today /a", "true"));
    let says = busy
        .err
        .starts_with("zklock: the lock \"/a/lock\" is not free: held by ");
    assert!(busy.code == 75 && says, "{busy:?}");
    let asked = run(zklock(&servers, "revoke /a", ""));
    assert!(
        asked.code == 0
            && asked.out.starts_with("asked ")
            && asked.out.ends_with(" to release /a/lock\n"),
        "{asked:?}"
    );
    assert_eq!(job.line(), "asked");
    assert_eq!(job.end().code, 9);
    // The job is not recorded, so the next one runs.
    let mut next = Started::new(zklock(&servers, "--once today /a", command));
    assert_eq!(next.line(), "runs");
    assert_eq!(run(zklock(&servers, "revoke /a/lock", "")).code, 0);
    assert_eq!(next.line(), "asked");
    assert_eq!(next.end().code, 9);
    let none = run(zklock(&servers, "revoke /a", ""));
    assert_eq!((none.code, &*none.err), (1, "zklock: /a is free\n"));
}

/// A lock at a path other than the given one must not be broken without a question.
pub(crate) fn break_of_once() {
    let server = server();
    let servers = server.connect_string();
    let mut job = Started::new(zklock(
        &servers,
        "--session-timeout 12s --once today /a",
        "echo runs; sleep 1000",
    ));
    assert_eq!(job.line(), "runs");
    let hint = run(zklock(&servers, "break --yes /a", ""));
    assert_eq!(hint.code, 1);
    assert_eq!(
        hint.err,
        "zklock: /a is free; a job that runs --once holds /a/lock: zklock break /a/lock\n"
    );
    assert_eq!(run(zklock(&servers, "break --yes /a/lock", "")).code, 0);
    assert!(job.end().err.contains("deleted"));
}

/// The command does not heed the request, and is killed when its lock is taken away. A candidate
/// that was asked does not contend again.
pub(crate) fn break_after_revoke() {
    let server = server();
    let servers = server.connect_string();
    let command = "trap '' TERM; echo begun; sleep 1000";
    let kinds = [("", "/a"), ("--permits 2", "/b"), ("lead", "/c")];
    let jobs = kinds.map(|(kind, path)| (path, path, kind));
    for (path, broken, kind) in jobs.into_iter().chain([("/d", "/d/lock", "--once today")]) {
        let arguments = format!("{kind} {path} --session-timeout 60");
        let mut holder = Started::new(zklock(&servers, &arguments, command));
        assert_eq!(holder.line(), "begun");
        assert_eq!(run(zklock(&servers, &format!("revoke {path}"), "")).code, 0);
        let breaks = format!("break --yes {broken}");
        assert_eq!(run(zklock(&servers, &breaks, "")).code, 0);
        let next = if kind == "lead" { "" } else { kind };
        assert_eq!(
            run(zklock(&servers, &format!("{next} {path}"), "true")).code,
            0
        );
        let ended = holder.end();
        assert_eq!(ended.code, 125, "{kind}: {ended:?}");
        assert!(!ended.err.contains("run again"), "{ended:?}");
    }
}

/// The lock is taken away, and the command ends, while `zklock` is stopped: the end of the command
/// may be noticed first.
pub(crate) fn break_before_the_end() {
    let server = server();
    let servers = server.connect_string();
    let ends = [false, true].map(|is_of_session| (is_of_session, is_of_session.to_string()));
    for (is_of_session, end) in ends {
        for (kind, code) in [
            ("", 125),
            ("--permits 2", 125),
            ("--shared", 125),
            ("--on-lost warn", 3),
        ] {
            let path = format!("/{end}/{}", kind.len());
            let arguments = format!("{kind} --session-timeout 60 {path}");
            let mut holder = zklock(&servers, &arguments, "echo $$; read line; exit 3");
            holder.stdin(Stdio::piped());
            let mut holder = Started::new(holder);
            let child = pid(&holder.line());
            let session = server.sessions().iter().map(|one| one.id).max();
            holder.signal(Signal::STOP);
            if is_of_session {
                assert!(server.expire_session(session.unwrap()));
            } else {
                let broken = run(zklock(&servers, &format!("break --yes {path}"), ""));
                assert_eq!(broken.code, 0, "{broken:?}");
            }
            holder.tell("");
            until_dead(child);
            holder.signal(Signal::CONT);
            let ended = holder.end();
            assert_eq!(ended.code, code, "{end} {kind}: {ended:?}");
            assert!(!ended.err.is_empty(), "{end} {kind}");
        }
    }
}

pub(crate) fn break_lock() {
    let server = server();
    let servers = server.connect_string();
    let mut holder = Started::new(zklock(
        &servers,
        "--session-timeout 12s /a",
        "echo held; sleep 1000",
    ));
    assert_eq!(holder.line(), "held");
    let mut waiter = Started::new(zklock(&servers, "/a", "echo here"));
    until_queued(&server, "/a", 2);
    for answer in ["", "n\n", "yess\n"] {
        let mut command = zklock(&servers, "break /a", "");
        let mut asking = command
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        asking
            .stdin
            .take()
            .unwrap()
            .write_all(answer.as_bytes())
            .unwrap();
        let output = asking.wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(
            text.contains("Break the lock /a of ")
                && text.contains("zklock: /a: the lock is as it was"),
            "{text}"
        );
        assert_eq!(
            (output.status.code(), server.children("/a").len()),
            (Some(1), 2),
            "{answer:?}"
        );
    }
    // One of two permits is broken.
    let mut permits = [0, 1].map(|_| {
        let command = zklock(&servers, "--permits 2 /b", "echo held; exec sleep 1000");
        Started::new(command)
    });
    permits
        .iter_mut()
        .for_each(|it| assert_eq!(it.line(), "held"));
    let mut command = zklock(&servers, "break /b", "");
    let mut asking = command
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    asking.stdin.take().unwrap().write_all(b"y\nn\n").unwrap();
    let output = asking.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.code() == Some(1) && text.ends_with("the other holders keep the lock\n"),
        "{text}"
    );
    // A question that cannot be asked breaks nothing.
    let mut unasked = zklock(&servers, "break /a", "");
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full");
    unasked.stderr(full.unwrap());
    assert_eq!(unasked.status().unwrap().code(), Some(71));
    let broken = run(zklock(&servers, "break --yes /a", ""));
    assert!(
        broken.code == 0 && broken.out.starts_with("broke the lock /a of "),
        "{broken:?}"
    );
    assert_eq!(waiter.line(), "here");
    let ended = holder.end();
    assert_eq!(ended.code, 125, "{ended:?}");
    assert!(ended.err.contains("deleted"), "{ended:?}");
}
