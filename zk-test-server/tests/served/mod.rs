//! `zk-test-server`, started, with a connection to its admin port.
#![allow(
    dead_code,
    unreachable_pub,
    reason = "every test file uses another part of it"
)]
#![expect(
    clippy::panic,
    reason = "a test fails by panicking; clippy knows this only of #[test] functions"
)]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::raw::Raw;

pub const T: i32 = 10_000;

/// The program, with a connection to its admin port. It ends with the test.
#[derive(Debug)]
pub struct Served {
    pub process: Child,
    _stdout: BufReader<ChildStdout>,
    pub addrs: Vec<SocketAddr>,
    pub admin_addr: SocketAddr,
    pub admin: BufReader<TcpStream>,
}

pub fn command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_zk-test-server"));
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

pub fn dial(admin: SocketAddr) -> BufReader<TcpStream> {
    let stream = TcpStream::connect(admin).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    BufReader::new(stream)
}

impl Served {
    pub fn start(options: &[&str]) -> Self {
        let mut command = command();
        command
            .args(["--exit-with-stdin", "--admin", "0"])
            .args(options);
        let mut process = command.spawn().unwrap();
        let mut stdout = BufReader::new(process.stdout.take().unwrap());
        let mut ready = String::new();
        stdout.read_line(&mut ready).unwrap();
        let ready: Value = serde_json::from_str(&ready).unwrap();
        assert_eq!(ready["ready"], true, "{ready}");
        let admin_addr = ready["admin"].as_str().unwrap().parse().unwrap();
        let connect = ready["connect"].as_str().unwrap();
        let addrs = connect
            .split(',')
            .map(|addr| addr.parse().unwrap())
            .collect();
        Self {
            process,
            _stdout: stdout,
            addrs,
            admin_addr,
            admin: dial(admin_addr),
        }
    }

    /// Opens another connection to the admin port.
    pub fn connect_again(&mut self) {
        self.admin = dial(self.admin_addr);
    }

    /// Sends a line, and returns the reply.
    pub fn send(&mut self, line: impl AsRef<[u8]>) -> Value {
        let line = line.as_ref();
        self.admin
            .get_mut()
            .write_all(&[line, b"\n"].concat())
            .unwrap();
        let mut reply = String::new();
        let read = self.admin.read_line(&mut reply);
        serde_json::from_str(&reply).unwrap_or_else(|_| {
            drop(self.process.stdin.take());
            let mut stderr = String::new();
            let _ = self
                .process
                .stderr
                .take()
                .unwrap()
                .read_to_string(&mut stderr);
            panic!(
                "{read:?} {reply:?} is the reply to {}: {stderr}",
                line.escape_ascii()
            )
        })
    }

    /// Sends a command. Returns the reply.
    pub fn run(&mut self, verb: &str, mut fields: Value) -> Value {
        fields["do"] = verb.into();
        let reply = self.send(fields.to_string());
        assert_eq!(reply["ok"], true, "{fields}: {reply}");
        reply
    }

    pub fn exists(&mut self, path: &str) -> bool {
        self.run("exists", json!({ "path": path }))["exists"]
            .as_bool()
            .unwrap()
    }

    pub fn connect(&self) -> Raw {
        Raw::connect(self.addrs[0], T).unwrap()
    }

    /// Ends the input; returns the exit code and what was said on stderr.
    pub fn end(mut self) -> (Option<i32>, String) {
        drop(self.process.stdin.take());
        let output = self.process.wait_with_output().unwrap();
        (
            output.status.code(),
            String::from_utf8(output.stderr).unwrap(),
        )
    }
}
