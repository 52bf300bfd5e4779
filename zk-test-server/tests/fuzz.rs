//! Random and mutated lines on the admin port: each has one reply, no thread of the server panics,
//! and clients are served afterwards.
//!
//! The environment variable `FUZZ_SECONDS` says for how long it runs (3 s by default), `FUZZ_SEED`
//! which lines are sent (others in every run by default).

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking; clippy knows this only of #[test] functions"
)]

#[path = "../../test-server/tests/raw/mod.rs"]
mod raw;
mod served;

use std::env;
use std::hash::{BuildHasher as _, RandomState};
use std::time::{Duration, Instant};

use raw::{Body, Raw, op};
use serde_json::{Map, Value, json};
use served::Served;
use test_support::Random;

/// Lines until another server is started.
const LINES: u64 = 2000;
/// The session timeout of a client that says nothing while this process gets no processor, in
/// milliseconds.
const LONG: i32 = 3_600_000;
/// One of this many parts is malformed, by the seed.
const ODDS: [u64; 3] = [50, 10, 2];

const VERBS: [&str; 40] = [
    "hold_request",
    "hold_reply",
    "drop_request",
    "drop_reply",
    "delay_reply",
    "fail",
    "release",
    "remove",
    "wait_hit",
    "hits",
    "clear_faults",
    "expire_session",
    "resume",
    "heal",
    "cut",
    "stall",
    "isolate",
    "advance_clock",
    "refuse_connections",
    "freeze_expiry",
    "stop",
    "restart",
    "advance_epoch",
    "sweep_containers",
    "reset_counters",
    "set_member",
    "create",
    "set_data",
    "create_as",
    "delete",
    "exists",
    "children",
    "node",
    "watches_on",
    "set_next_sequence",
    "wait_until",
    "sessions",
    "counters",
    "log",
    "history",
];
const FIELDS: [&str; 30] = [
    "op",
    "opcode",
    "path",
    "path_prefix",
    "path_contains",
    "session",
    "nth",
    "times",
    "loss",
    "delay_ms",
    "code",
    "fault",
    "timeout_ms",
    "how",
    "direction",
    "isolation",
    "by_ms",
    "refuse",
    "freeze",
    "index",
    "member",
    "data",
    "mode",
    "owner",
    "next",
    "exists",
    "missing",
    "ended",
    "since",
    "sessions",
];
const TEXTS: [&str; 24] = [
    "/",
    "/a",
    "/a/b",
    "",
    "//",
    "no path",
    "\u{0}",
    "\u{1f4a9}",
    "create",
    "get_data",
    "connect",
    "close",
    "reset",
    "stall",
    "fin",
    "both",
    "to_client",
    "follower",
    "behind",
    "read_only",
    "down",
    "ephemeral",
    "container",
    "always",
];

struct Lines {
    random: Random,
    odds: u64,
}

impl Lines {
    fn is_odd(&mut self) -> bool {
        self.random.below(self.odds) == 0
    }

    fn index(&mut self, end: usize) -> usize {
        self.random.below(end as u64) as usize
    }

    fn number(&mut self) -> i64 {
        match self.random.below(4) {
            0 if self.is_odd() => i64::MAX >> self.random.below(64),
            1 if self.is_odd() => i64::MIN >> self.random.below(64),
            _ => self.random.below(5) as i64,
        }
    }

    fn value(&mut self, field: &str, sessions: &[Value]) -> Value {
        match field {
            // A wait must be shorter than this test.
            "timeout_ms" => self.random.below(3).into(),
            _ if self.is_odd() => match self.random.below(6) {
                0 => Value::Null,
                1 => json!(self.random.below(2) == 0),
                2 => json!(self.number() as f64 / 3.0),
                3 => json!([[self.number()], {}]),
                4 => json!("x".repeat(self.index(100_000))),
                _ => json!(self.random.one_of(&TEXTS).unwrap()),
            },
            "session" | "owner" | "ended" => {
                let at = self.index(sessions.len() + 1);
                sessions
                    .get(at)
                    .cloned()
                    .unwrap_or_else(|| self.number().into())
            }
            "refuse" | "freeze" => json!(self.random.below(2) == 0),
            "opcode" | "nth" | "times" | "delay_ms" | "code" | "fault" | "by_ms" | "index"
            | "next" | "since" | "sessions" => self.number().into(),
            "loss" => json!(["close", "reset", "stall"][self.index(3)]),
            "how" => json!(["fin", "reset"][self.index(2)]),
            "direction" => json!(["to_server", "to_client", "both"][self.index(3)]),
            "isolation" => json!(["follower", "deposed_leader"][self.index(2)]),
            "member" => {
                json!(["current", "behind", "cut_follower", "read_only", "down"][self.index(5)])
            }
            "mode" => json!(
                [
                    "persistent",
                    "ephemeral",
                    "ephemeral_sequential",
                    "container"
                ][self.index(4)]
            ),
            "op" => json!(["create", "get_data", "connect", "multi"][self.index(4)]),
            "data" => json!("d".repeat(self.index(50))),
            _ => json!(["/", "/a", "/a/b", "/c"][self.index(4)]),
        }
    }

    /// The fields that a command takes, or about these.
    fn fields(&mut self, verb: &str) -> Vec<&'static str> {
        let wanted: &[&str] = match verb {
            "drop_request" | "drop_reply" => &["op", "loss"],
            "delay_reply" => &["path", "delay_ms"],
            "fail" => &["op", "code"],
            "release" | "remove" | "hits" => &["fault"],
            "wait_hit" => &["fault", "timeout_ms"],
            "expire_session" | "resume" | "heal" => &["session"],
            "cut" => &["session", "how"],
            "stall" => &["session", "direction"],
            "isolate" => &["session", "isolation"],
            "advance_clock" => &["by_ms"],
            "refuse_connections" => &["refuse"],
            "freeze_expiry" => &["freeze"],
            "set_member" => &["index", "member"],
            "create" | "set_data" => &["path", "data"],
            "create_as" => &["path", "data", "mode", "owner"],
            "delete" | "exists" | "children" | "node" | "watches_on" => &["path"],
            "set_next_sequence" => &["path", "next"],
            "wait_until" => &["timeout_ms", "exists", "ended"],
            "hold_request" | "hold_reply" => &["op", "path", "nth", "times"],
            "log" | "history" => &["since"],
            _ => &[],
        };
        let mut wanted = wanted.to_vec();
        let odd = self.is_odd();
        wanted.retain(|field| !odd || *field == "timeout_ms");
        if odd {
            wanted.extend((0..self.index(4)).filter_map(|_| self.random.one_of(&FIELDS)));
        }
        wanted
    }

    fn line(&mut self, sessions: &[Value]) -> Vec<u8> {
        let verb = self.random.one_of(&VERBS).unwrap();
        let mut command: Map<String, Value> = self
            .fields(verb)
            .into_iter()
            .map(|field| (field.to_owned(), self.value(field, sessions)))
            .collect();
        command.insert("do".to_owned(), verb.into());
        let mut line = Value::from(command).to_string().into_bytes();
        // A command with another time to wait would not be answered in time.
        if self.is_odd() && !verb.starts_with("wait") {
            self.spoil(&mut line);
        }
        line
    }

    fn spoil(&mut self, line: &mut Vec<u8>) {
        for _ in 0..1 + self.index(3) {
            let at = self.index(line.len() + 1);
            match self.random.below(5) {
                0 => line.truncate(at),
                1 => drop(line.splice(at..at, "[{\"a\":".repeat(self.index(200)).into_bytes())),
                2 => drop(line.splice(
                    at..at,
                    (0..self.index(9)).map(|_| self.random.below(256) as u8),
                )),
                3 => drop(line.drain(at..(at + self.index(9)).min(line.len()))),
                _ if at < line.len() => line[at] ^= 1 << self.index(8),
                _ => {}
            }
        }
        line.retain(|byte| *byte != b'\n');
    }
}

/// Ends what was done to clients, and has one served.
fn check(served: &mut Served) {
    served.run("clear_faults", json!({}));
    served.run("freeze_expiry", json!({ "freeze": false }));
    served.run("refuse_connections", json!({ "refuse": false }));
    for index in 0..3 {
        served.run("set_member", json!({ "index": index, "member": "current" }));
    }
    served.run("restart", json!({}));
    let mut raw = Raw::connect(served.addrs[0], LONG).unwrap();
    raw.create("/witness", 1);
    raw.call(op::CLOSE_SESSION, &Body::new());
    served.run(
        "wait_until",
        json!({ "missing": "/witness", "timeout_ms": 60_000 }),
    );
}

fn setting(name: &str) -> Option<u64> {
    env::var(name).ok().map(|value| {
        value
            .parse()
            .unwrap_or_else(|_| panic!("{name} is {value}"))
    })
}

#[test]
fn each_line_has_a_reply() {
    let seconds = setting("FUZZ_SECONDS").unwrap_or(3);
    let seed = setting("FUZZ_SEED").unwrap_or_else(|| RandomState::new().hash_one(0) >> 36);
    println!("FUZZ_SEED={seed}");
    let until = Instant::now() + Duration::from_secs(seconds);
    let (mut servers, mut sent, mut done) = (0, 0, 0);
    while Instant::now() < until {
        println!("server {servers}: FUZZ_SEED={}", seed + servers);
        let odds = ODDS[(seed + servers) as usize % ODDS.len()];
        let mut lines = Lines {
            random: Random::new(seed + servers),
            odds,
        };
        let mut served = Served::start(&[
            "--cluster",
            "3",
            "--tick",
            "50",
            "--max-session-timeout",
            "3600000",
        ]);
        for line in 0..LINES {
            if line % 100 == 0 {
                check(&mut served);
            }
            let sessions = served.run("sessions", json!({}))["sessions"].take();
            let sessions: Vec<Value> = sessions
                .as_array()
                .unwrap()
                .iter()
                .map(|session| session["session"].clone())
                .collect();
            let line = lines.line(&sessions);
            if line.trim_ascii().is_empty() {
                continue;
            }
            sent += 1;
            done += u64::from(served.send(&line)["ok"].as_bool().unwrap());
            if lines.random.below(20) == 0 {
                served.connect_again();
            }
            if Instant::now() >= until {
                break;
            }
        }
        check(&mut served);
        let (code, stderr) = served.end();
        assert_eq!(code, Some(0), "{stderr}");
        assert!(!stderr.contains("panicked"), "{stderr}");
        servers += 1;
    }
    println!("{sent} lines to {servers} servers in {seconds} s; {done} were done");
    assert!(done > 0 && done < sent, "{done} of {sent} were done");
}
