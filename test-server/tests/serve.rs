//! `zk-test-server`, run as a program of another language would run it.

#![expect(
    clippy::unwrap_used,
    reason = "a test fails by panicking; clippy knows this only of #[test] functions"
)]

mod raw;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, ChildStdout, Command, Stdio};

use raw::{Body, Raw, op};

const T: i32 = 10_000;

/// The program, with a connection to its admin port.
struct Served {
    process: Child,
    _stdout: BufReader<ChildStdout>,
    addr: SocketAddr,
    admin: BufReader<TcpStream>,
}

fn command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_zk-test-server"));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// A text field of a line of JSON without escapes.
fn field(line: &str, name: &str) -> String {
    let (_, rest) = line.split_once(&format!("\"{name}\":\"")).unwrap();
    rest.split('"').next().unwrap().to_owned()
}

impl Served {
    fn start(options: &[&str]) -> Self {
        let mut process = command().args(["--admin", "0"]).args(options).spawn().unwrap();
        let mut stdout = BufReader::new(process.stdout.take().unwrap());
        let mut ready = String::new();
        stdout.read_line(&mut ready).unwrap();
        assert!(ready.starts_with("{\"ready\":true,"), "{ready}");
        let admin = TcpStream::connect(field(&ready, "admin")).unwrap();
        let addr = field(&ready, "connect").parse().unwrap();
        Self { process, _stdout: stdout, addr, admin: BufReader::new(admin) }
    }

    /// Sends a line, and returns the reply.
    fn say(&mut self, line: &str) -> String {
        self.admin.get_mut().write_all(format!("{line}\n").as_bytes()).unwrap();
        let mut reply = String::new();
        self.admin.read_line(&mut reply).unwrap();
        reply.trim_end().to_owned()
    }

    fn succeeds(&mut self, line: &str) {
        assert_eq!(self.say(line), "{\"ok\":true}", "{line}");
    }

    fn connect(&self) -> Raw {
        Raw::connect(self.addr, T).unwrap()
    }

    /// Ends the input; returns the exit code and what was said on stderr.
    fn end(mut self) -> (Option<i32>, String) {
        drop(self.process.stdin.take());
        let output = self.process.wait_with_output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    }
}

#[test]
fn serves_until_its_input_ends_and_says_so() {
    let served = Served::start(&[]);
    let mut client = TcpStream::connect(served.addr).unwrap();
    client.write_all(b"ruok").unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, "imok");
    let (code, stderr) = served.end();
    assert_eq!(code, Some(0));
    assert!(stderr.contains("standard input has ended"), "{stderr}");
}

#[test]
fn says_what_is_wrong_with_its_options() {
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
    assert!(String::from_utf8(help.stdout).unwrap().contains("--max-session-timeout MS"));
}

#[test]
fn its_options_are_those_of_the_builder() {
    let options = ["--tick", "50", "--min-session-timeout", "300", "--max-session-timeout", "900"];
    let served = Served::start(&[&options[..], &["--bind", "127.0.0.2", "--version", "3.9"]].concat());
    assert_eq!(served.addr.ip().to_string(), "127.0.0.2");
    let negotiated = |asked| Raw::connect(served.addr, asked).unwrap().greeting.timeout;
    assert_eq!([negotiated(1), negotiated(500), negotiated(9000)], [300, 500, 900]);
    let mut raw = served.connect();
    assert_eq!(raw.ask(op::CHECK, &Body::new().string("/").i32(7)).unwrap().1.error, -6, "of 3.9");
}

#[test]
fn a_reply_is_held_and_released() {
    let mut served = Served::start(&[]);
    let mut raw = served.connect();
    let session = format!("{:#x}", raw.session());
    let hold =
        format!("{{\"do\":\"hold_reply\",\"op\":\"create\",\"path\":\"/a\",\"session\":\"{session}\"}}");
    assert_eq!(served.say(&hold), r#"{"ok":true,"fault":1}"#);
    raw.send(op::CREATE, &Body::create("/a", b"data", 0)).unwrap();
    let hit = served.say(r#"{"do":"wait_hit","fault":1,"timeout_ms":60000}"#);
    assert_eq!(hit, r#"{"ok":true,"hit":true}"#);
    let hits = served.say(r#"{"do":"hits","fault":1}"#);
    assert_eq!(
        hits,
        format!(r#"{{"ok":true,"hits":[{{"session":"{session}","op":"create","path":"/a"}}]}}"#)
    );
    assert_eq!(served.say(r#"{"do":"exists","path":"/a"}"#), r#"{"ok":true,"exists":true}"#);
    served.succeeds(r#"{"do":"release","fault":1}"#);
    assert_eq!(raw.recv().unwrap().error, 0);
}

#[test]
fn faults_strike_what_they_match() {
    let mut served = Served::start(&[]);
    let mut raw = served.connect();
    served.say(r#"{"do":"fail","op":"get_data","path_prefix":"/zoo","code":-102,"nth":1,"times":2}"#);
    let mut read = || raw.ask(op::GET_DATA, &Body::path_watch("/zookeeper", false)).unwrap().1.error;
    assert_eq!([read(), read(), read(), read()], [0, -102, -102, 0]);
    served.say(r#"{"do":"fail","opcode":9,"times":"always","code":-8}"#);
    let mut sync = || raw.ask(op::SYNC, &Body::new().string("/")).unwrap().1.error;
    assert_eq!([sync(), sync()], [-8, -8]);
    served.succeeds(r#"{"do":"remove","fault":2}"#);
    assert_eq!(raw.ask(op::SYNC, &Body::new().string("/")).unwrap().1.error, 0);
    served.say(r#"{"do":"drop_reply","op":"create","loss":"reset"}"#);
    raw.send(op::CREATE, &Body::create("/lost", b"", 0)).unwrap();
    assert!(raw.recv().is_err());
    assert_eq!(served.say(r#"{"do":"exists","path":"/lost"}"#), r#"{"ok":true,"exists":true}"#);
}

#[test]
fn sessions_are_cut_stalled_isolated_and_expired() {
    let mut served = Served::start(&[]);
    let mut raw = served.connect();
    let (session, password) = (raw.session(), raw.greeting.password.clone());
    let say = |served: &mut Served, verb: &str, more: &str| {
        served.say(&format!("{{\"do\":\"{verb}\",\"session\":{session}{more}}}"))
    };
    let ok = r#"{"ok":true}"#;
    raw.create("/e", 1);
    assert_eq!(say(&mut served, "stall", ",\"direction\":\"to_client\""), ok);
    raw.send(op::PING, &Body::new()).unwrap();
    assert_eq!(say(&mut served, "resume", ""), ok);
    assert_eq!(raw.recv().unwrap().xid, -2);
    assert_eq!(say(&mut served, "isolate", ",\"isolation\":\"follower\""), ok);
    served.succeeds(r#"{"do":"create","path":"/new","data":"x"}"#);
    assert_eq!(raw.ask(op::EXISTS, &Body::path_watch("/new", false)).unwrap().1.error, -101);
    assert_eq!(say(&mut served, "heal", ""), ok);
    assert!(raw.recv().is_err());
    let mut raw = Raw::reconnect(served.addr, T, session, &password, 0).unwrap();
    raw.stat("/new");
    assert_eq!(say(&mut served, "cut", ",\"how\":\"fin\""), ok);
    assert!(raw.recv().is_err());
    let sessions = served.say(r#"{"do":"sessions"}"#);
    assert!(sessions.contains(r#""connected":false,"ephemerals":["/e"]"#), "{sessions}");
    assert_eq!(say(&mut served, "expire_session", ""), ok);
    assert_eq!(served.say(r#"{"do":"exists","path":"/e"}"#), r#"{"ok":true,"exists":false}"#);
    assert!(say(&mut served, "expire_session", "").starts_with("{\"ok\":false,"));
}

#[test]
fn a_member_of_an_ensemble_lags_and_another_clients_node_is_made() {
    let mut process = command().args(["--admin", "0", "--members", "3"]).spawn().unwrap();
    let mut ready = String::new();
    BufReader::new(process.stdout.take().unwrap()).read_line(&mut ready).unwrap();
    let connect = field(&ready, "connect");
    let addrs: Vec<SocketAddr> = connect.split(',').map(|addr| addr.parse().unwrap()).collect();
    assert_eq!(addrs.len(), 3);
    let mut admin = BufReader::new(TcpStream::connect(field(&ready, "admin")).unwrap());
    let mut say = |line: &str| {
        admin.get_mut().write_all(format!("{line}\n").as_bytes()).unwrap();
        let mut reply = String::new();
        admin.read_line(&mut reply).unwrap();
        reply.trim_end().to_owned()
    };
    let mut raw = Raw::connect(addrs[0], T).unwrap();
    let behind = say(r#"{"do":"set_member","index":0,"member":"behind"}"#);
    assert_eq!(behind, r#"{"ok":true}"#);
    let made = say(&format!(
        r#"{{"do":"create_as","path":"/q/n-","mode":"ephemeral_sequential","owner":{}}}"#,
        raw.session()
    ));
    assert_eq!(made, r#"{"ok":true,"path":"/q/n-0000000000"}"#);
    assert_eq!(raw.ask(op::EXISTS, &Body::path_watch("/q", false)).unwrap().1.error, -101);
    assert!(say(r#"{"do":"set_member","index":3,"member":"down"}"#).contains("there is no member 3"));
    drop(process.stdin.take());
    assert!(process.wait().unwrap().success());
}

#[test]
fn counters_and_the_log_are_told() {
    let mut served = Served::start(&[]);
    let mut raw = served.connect();
    raw.create("/a", 0);
    served.succeeds(r#"{"do":"reset_counters"}"#);
    raw.stat("/a");
    let counters = served.say(r#"{"do":"counters"}"#);
    assert!(counters.contains(r#""exists":1"#) && counters.contains(r#""total_requests":1"#), "{counters}");
    let log = served.say(r#"{"do":"log"}"#);
    assert!(log.contains(r#""op":"create","opcode":15,"path":"/a""#), "{log}");
    assert!(log.contains(r#""kind":"applied""#) && log.contains(r#""kind":"arrived""#), "{log}");
    let since = served.say(r#"{"do":"log","since":1000}"#);
    assert_eq!(since, r#"{"ok":true,"log":[]}"#);
    let node = served.say(r#"{"do":"node","path":"/a"}"#);
    assert!(node.contains(r#""data":"","kind":"persistent""#), "{node}");
}

#[test]
fn a_command_that_is_wrong_is_refused_with_the_reason() {
    let mut served = Served::start(&[]);
    for (line, reason) in [
        ("nonsense", "not JSON: nonsense"),
        ("{}", "do is missing"),
        (r#"{"do":"dance"}"#, "there is no command dance"),
        (r#"{"do":"release","fault":9}"#, "there is no fault 9"),
        (r#"{"do":"cut","session":true,"how":"fin"}"#, "session is no session id: true"),
        (r#"{"do":"drop_reply","loss":"maybe"}"#, "loss is maybe, and none of close, reset, stall"),
        (r#"{"do":"delete","path":"/none"}"#, "no such node"),
    ] {
        let reply = served.say(line);
        assert!(reply.starts_with("{\"ok\":false,"), "{reply}");
        assert_eq!(
            field(&reply, "error").split('\\').next(),
            Some(reason).filter(|_| reply.contains(reason))
        );
    }
    assert_eq!(served.say(r#"{"do":"sessions"}"#), r#"{"ok":true,"sessions":[]}"#);
}
