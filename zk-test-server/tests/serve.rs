//! `zk-test-server`, run as a program of another language would run it.

#![expect(
    clippy::unwrap_used,
    reason = "a test fails by panicking; clippy knows this only of #[test] functions"
)]

#[path = "../../test-server/tests/raw/mod.rs"]
mod raw;
mod served;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::Stdio;

use raw::{Body, Raw, op};
use serde_json::{Value, json};
use served::{Served, T, command};

#[test]
fn serves_until_its_input_ends() {
    let served = Served::start(&[]);
    let mut client = TcpStream::connect(served.addrs[0]).unwrap();
    client.write_all(b"ruok").unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, "imok");
    let (code, stderr) = served.end();
    assert_eq!(code, Some(0));
    assert!(stderr.contains("standard input has ended"), "{stderr}");
}

#[test]
fn serves_on_without_an_input() {
    let mut process = command().stdin(Stdio::null()).spawn().unwrap();
    let mut ready = String::new();
    BufReader::new(process.stdout.take().unwrap())
        .read_line(&mut ready)
        .unwrap();
    let ready: Value = serde_json::from_str(&ready).unwrap();
    assert_eq!(ready["admin"], Value::Null);
    let mut raw = Raw::connect(ready["connect"].as_str().unwrap().parse().unwrap(), T).unwrap();
    raw.create("/a", 0);
    assert_eq!(process.try_wait().unwrap(), None);
    process.kill().unwrap();
    process.wait().unwrap();
}

#[test]
fn reports_wrong_options() {
    for (options, wrong) in [
        (["--port", "nonsense"], "--port: nonsense is not valid"),
        (["--port", "65536"], "--port: 65536 is not valid"),
        (["--bind", "here"], "--bind: here is not valid"),
        (["--version", "3.7"], "--version: 3.7 is not 3.8"),
        (["--tick", "-1"], "--tick: -1 is not valid"),
        (["--colour", "red"], "there is no option --colour"),
    ] {
        let output = command().args(options).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(stderr.contains(wrong), "{stderr}");
    }
    let help = command().arg("--help").output().unwrap();
    assert!(help.status.success());
    assert!(
        String::from_utf8(help.stdout)
            .unwrap()
            .contains("--max-session-timeout MS")
    );
}

#[test]
fn options_are_those_of_builder() {
    let options = [
        "--tick",
        "50",
        "--min-session-timeout",
        "300",
        "--max-session-timeout",
        "900",
    ];
    let served =
        Served::start(&[&options[..], &["--bind", "127.0.0.2", "--version", "3.9"]].concat());
    assert_eq!(served.addrs[0].ip().to_string(), "127.0.0.2");
    let negotiated = |asked| {
        Raw::connect(served.addrs[0], asked)
            .unwrap()
            .greeting
            .timeout
    };
    assert_eq!(
        [negotiated(1), negotiated(500), negotiated(9000)],
        [300, 500, 900]
    );
    let mut raw = served.connect();
    assert_eq!(
        raw.ask(op::CHECK, &Body::new().string("/").i32(7))
            .unwrap()
            .1
            .error,
        -6,
        "of 3.9"
    );
}

#[test]
fn reply_is_held_and_released() {
    let mut served = Served::start(&[]);
    let mut raw = served.connect();
    let session = format!("{:#x}", raw.session());
    let matched = json!({ "op": "create", "path": "/a", "session": session });
    let fault = served.run("hold_reply", matched)["fault"].clone();
    raw.send(op::CREATE, &Body::create("/a", b"data", 0))
        .unwrap();
    let hit = served.run("wait_hit", json!({ "fault": fault, "timeout_ms": 60_000 }));
    assert_eq!(hit["hit"], true);
    let hits = served.run("hits", json!({ "fault": fault }));
    assert_eq!(
        hits["hits"],
        json!([{ "session": session, "op": "create", "path": "/a" }])
    );
    assert!(served.exists("/a"));
    served.run("release", json!({ "fault": fault }));
    assert_eq!(raw.recv().unwrap().error, 0);
}

#[test]
fn faults_strike_what_they_match() {
    let mut served = Served::start(&[]);
    let mut raw = served.connect();
    let reads =
        json!({ "op": "get_data", "path_prefix": "/zoo", "code": -102, "nth": 1, "times": 2 });
    served.run("fail", reads);
    let mut read = || {
        raw.ask(op::GET_DATA, &Body::path_watch("/zookeeper", false))
            .unwrap()
            .1
            .error
    };
    assert_eq!([read(), read(), read(), read()], [0, -102, -102, 0]);
    let syncs = served.run(
        "fail",
        json!({ "opcode": 9, "times": "always", "code": -8 }),
    );
    let mut sync = || raw.ask(op::SYNC, &Body::new().string("/")).unwrap().1.error;
    assert_eq!([sync(), sync()], [-8, -8]);
    served.run("remove", json!({ "fault": syncs["fault"] }));
    assert_eq!(
        raw.ask(op::SYNC, &Body::new().string("/")).unwrap().1.error,
        0
    );
    served.run("drop_reply", json!({ "op": "create", "loss": "reset" }));
    raw.send(op::CREATE, &Body::create("/lost", b"", 0))
        .unwrap();
    assert!(raw.recv().is_err());
    assert!(served.exists("/lost"));
}

#[test]
fn sessions_are_cut_stalled_isolated_expired() {
    let mut served = Served::start(&[]);
    let mut raw = served.connect();
    let (session, password) = (raw.session(), raw.greeting.password.clone());
    raw.create("/e", 1);
    served.run(
        "stall",
        json!({ "session": session, "direction": "to_client" }),
    );
    raw.send(op::PING, &Body::new()).unwrap();
    served.run("resume", json!({ "session": session }));
    assert_eq!(raw.recv().unwrap().xid, -2);
    served.run(
        "isolate",
        json!({ "session": session, "isolation": "follower" }),
    );
    served.run("create", json!({ "path": "/new", "data": "x" }));
    assert_eq!(
        raw.ask(op::EXISTS, &Body::path_watch("/new", false))
            .unwrap()
            .1
            .error,
        -101
    );
    served.run("heal", json!({ "session": session }));
    assert!(raw.recv().is_err());
    let mut raw = Raw::reconnect(served.addrs[0], T, session, &password, 0).unwrap();
    raw.stat("/new");
    served.run("cut", json!({ "session": session, "how": "fin" }));
    assert!(raw.recv().is_err());
    let sessions = served.run("sessions", json!({}));
    assert_eq!(sessions["sessions"][0]["connected"], false);
    assert_eq!(sessions["sessions"][0]["ephemerals"], json!(["/e"]));
    served.run("expire_session", json!({ "session": session }));
    assert!(!served.exists("/e"));
    let again = served.send(json!({ "do": "expire_session", "session": session }).to_string());
    assert_eq!(again["ok"], false);
}

#[test]
fn member_of_ensemble_lags() {
    let mut served = Served::start(&["--cluster", "3"]);
    assert_eq!(served.addrs.len(), 3);
    let mut raw = served.connect();
    served.run("set_member", json!({ "index": 0, "member": "behind" }));
    let node = json!({ "path": "/q/n-", "mode": "ephemeral_sequential", "owner": raw.session() });
    assert_eq!(served.run("create_as", node)["path"], "/q/n-0000000000");
    assert_eq!(
        raw.ask(op::EXISTS, &Body::path_watch("/q", false))
            .unwrap()
            .1
            .error,
        -101
    );
    let none = served.send(r#"{"do":"set_member","index":3,"member":"down"}"#);
    assert_eq!(none["error"], "there is no member 3");
}

#[test]
fn counters_and_log_are_reported() {
    let mut served = Served::start(&[]);
    let mut raw = served.connect();
    raw.create("/a", 0);
    served.run("reset_counters", json!({}));
    raw.stat("/a");
    let counters = served.run("counters", json!({}));
    assert_eq!(
        (&counters["requests"]["exists"], &counters["total_requests"]),
        (&json!(1), &json!(1))
    );
    let log = served.run("log", json!({}))["log"].clone();
    let of_create = |entry: &&Value| entry["op"] == "create" && entry["path"] == "/a";
    let kinds: Vec<&Value> = log
        .as_array()
        .unwrap()
        .iter()
        .filter(of_create)
        .map(|entry| &entry["kind"])
        .collect();
    assert!(
        kinds.contains(&&json!("arrived")) && kinds.contains(&&json!("applied")),
        "{kinds:?}"
    );
    assert_eq!(
        served.run("log", json!({ "since": 1000 }))["log"],
        json!([])
    );
    let node = served.run("node", json!({ "path": "/a" }))["node"].clone();
    assert_eq!(
        (&node["data"], &node["kind"]),
        (&json!(""), &json!("persistent"))
    );
}

#[test]
fn clock_is_moved_and_recorded() {
    let mut served = Served::start(&[]);
    let mut raw = served.connect();
    raw.create("/e", 1);
    raw.call(op::GET_DATA, &Body::path_watch("/e", true));
    let still = served.run("wait_until", json!({ "missing": "/e", "timeout_ms": 0 }));
    assert_eq!(still["holds"], false);
    let waited = json!({ "exists": "/e", "watched": "/e", "sessions": 1, "timeout_ms": 60_000 });
    assert_eq!(served.run("wait_until", waited)["holds"], true);
    let since = served.run("history", json!({}))["history"]
        .as_array()
        .unwrap()
        .len();
    served.run("advance_clock", json!({ "by_ms": T + 2000 }));
    let ended =
        json!({ "missing": "/e", "ended": raw.session(), "sessions": 0, "timeout_ms": 60_000 });
    assert_eq!(served.run("wait_until", ended)["holds"], true);
    let history = served.run("history", json!({ "since": since }))["history"].clone();
    let events: Vec<(&Value, &Value)> = history
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| (&entry["event"], &entry["path"]))
        .collect();
    assert_eq!(
        events,
        [
            (&json!("session_expired"), &Value::Null),
            (&json!("deleted"), &json!("/e"))
        ]
    );
    assert_eq!(history[1]["session"], format!("{:#x}", raw.session()));
}

#[test]
fn too_long_line_is_refused() {
    const LINE: usize = 16 << 20;
    let mut served = Served::start(&[]);
    let command = r#"{"do":"create","path":"/behind"}"#;
    let admin = served.admin.get_mut();
    admin.write_all(&vec![b' '; LINE]).unwrap();
    admin
        .write_all(format!("{command}\n{command}\n").as_bytes())
        .unwrap();
    let mut replies = String::new();
    served.admin.read_to_string(&mut replies).unwrap();
    let refused = json!({ "error": "a line has more than 16777216 bytes", "ok": false });
    assert_eq!(serde_json::from_str::<Value>(&replies).unwrap(), refused);
    served.connect_again();
    assert!(!served.exists("/behind"));
    // The line has the greatest allowed length.
    let admin = served.admin.get_mut();
    admin
        .write_all(&vec![b' '; LINE - command.len() - 1])
        .unwrap();
    assert_eq!(served.send(command), json!({ "ok": true }));
}

/// Returns how many files the process may have open, where the system says so.
fn open_files() -> Option<usize> {
    let limits = std::fs::read_to_string("/proc/self/limits").ok()?;
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[test]
fn ten_thousand_connections_are_held() {
    const CONNECTIONS: usize = 10_000;
    const WATCHERS: usize = 100;
    const PATHS: usize = 1000;
    const LONG: i32 = 3_600_000;
    if open_files().is_some_and(|files| files < CONNECTIONS + 500) {
        println!("not run: `ulimit -n` allows no {CONNECTIONS} connections");
        return;
    }
    let mut served = Served::start(&["--max-session-timeout", &LONG.to_string()]);
    let mut clients: Vec<Raw> = (0..CONNECTIONS)
        .map(|_| Raw::connect(served.addrs[0], LONG).unwrap())
        .collect();
    for client in &mut clients[..WATCHERS] {
        for path in 0..PATHS {
            client
                .send(op::EXISTS, &Body::path_watch(&format!("/{path}"), true))
                .unwrap();
        }
    }
    for client in &mut clients[..WATCHERS] {
        assert!((0..PATHS).all(|_| client.recv().unwrap().error == -101));
    }
    let counters = served.run("counters", json!({}));
    assert_eq!(counters["requests"]["exists"], WATCHERS * PATHS);
    served.run("create", json!({ "path": "/7" }));
    for client in &mut clients[..WATCHERS] {
        assert_eq!(client.recv().unwrap().event(), (1, 3, "/7".to_owned()));
    }
    for client in &mut clients {
        client.call(op::PING, &Body::new());
    }
    assert_eq!(
        served.run("sessions", json!({}))["sessions"]
            .as_array()
            .unwrap()
            .len(),
        CONNECTIONS
    );
}

#[test]
fn line_without_text_is_refused() {
    let mut served = Served::start(&[]);
    served
        .admin
        .get_mut()
        .write_all(b"{\"do\":\"\xff\"}\n")
        .unwrap();
    let refused = served.send(r#"{"do":"sessions"}"#);
    assert!(
        refused["error"].as_str().unwrap().starts_with("not JSON: "),
        "{refused}"
    );
}

#[test]
fn all_choices_are_documented() {
    let mut served = Served::start(&[]);
    for (field, mut line) in [
        ("op", json!({ "do": "hold_reply" })),
        ("loss", json!({ "do": "drop_reply" })),
        ("member", json!({ "do": "set_member", "index": 0 })),
        ("mode", json!({ "do": "create_as", "path": "/a" })),
        ("how", json!({ "do": "cut", "session": 1 })),
        ("direction", json!({ "do": "stall", "session": 1 })),
        ("isolation", json!({ "do": "isolate", "session": 1 })),
    ] {
        line[field] = "x".into();
        let error = served.send(line.to_string())["error"].clone();
        let (_, choices) = error.as_str().unwrap().split_once("none of ").unwrap();
        for choice in choices.split(", ") {
            let documented = include_str!("../README.md").contains(&format!("`{choice}`"));
            assert!(documented, "{choice} of {field}");
        }
    }
}

/// The commands of the README's table.
fn documented() -> Vec<String> {
    let readme = include_str!("../README.md");
    let rows = readme
        .lines()
        .skip_while(|line| !line.starts_with("| `do` |"))
        .skip(2)
        .take_while(|line| line.starts_with('|'));
    let names = rows.flat_map(|row| {
        let cell = row.split('|').nth(1).unwrap_or_default();
        cell.split('`')
            .skip(1)
            .step_by(2)
            .map(str::to_owned)
            .collect::<Vec<_>>()
    });
    names.collect()
}

#[test]
fn unknown_fields_are_refused_everywhere() {
    let mut served = Served::start(&[]);
    let commands = documented();
    assert!(commands.len() > 30, "{commands:?}");
    for name in commands {
        let reply = served.send(json!({ "do": name, "pathh": "/a" }).to_string());
        assert_eq!(reply["error"], "there is no field pathh", "{name}");
    }
}

#[test]
fn wrong_command_is_refused_with_reason() {
    let mut served = Served::start(&[]);
    for (line, reason) in [
        ("nonsense", "not JSON: expected ident at line 1 column 2"),
        ("{}", "do is missing"),
        ("[]", "do is missing"),
        (r#"{"do":"dance"}"#, "there is no command dance"),
        (r#"{"do":"release","fault":9}"#, "there is no fault 9"),
        (
            r#"{"do":"cut","session":true,"how":"fin"}"#,
            "session is no session id: true",
        ),
        (
            r#"{"do":"drop_reply","loss":"maybe"}"#,
            "loss is maybe, and none of close, reset, stall",
        ),
        (
            r#"{"do":"hold_reply","path_prefx":"/a"}"#,
            "there is no field path_prefx",
        ),
        (
            r#"{"do":"wait_until","timeout_ms":1,"exist":"/a"}"#,
            "there is no field exist",
        ),
        (r#"{"do":"hold_reply","nth":-1}"#, "nth is out of range: -1"),
        (r#"{"do":"delete","path":"/none"}"#, "no such node"),
    ] {
        let reply = served.send(line);
        assert_eq!(
            (&reply["ok"], reply["error"].as_str()),
            (&json!(false), Some(reason)),
            "{line}"
        );
    }
    assert_eq!(served.run("sessions", json!({}))["sessions"], json!([]));
}
