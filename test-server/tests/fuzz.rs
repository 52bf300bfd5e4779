//! Random and mutated bytes on many connections. No thread of the server panics, a client that
//! keeps to the protocol is served within a bound, what the server keeps is bounded, and the server
//! logs why it closes a connection.
//!
//! The environment variable `FUZZ_SECONDS` sets how long the test runs (3 s by default), and
//! `FUZZ_SEED` which bytes are sent (by default, others in every run).

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking; clippy knows this only of #[test] functions"
)]

mod raw;

use std::collections::{BTreeSet, VecDeque};
use std::env;
use std::hash::{BuildHasher as _, RandomState};
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::panic;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use raw::{Body, Frame, Raw, dial, hello, op, resident};
use test_support::Random;
use zookeeper_test_server::{LogEntry, LogKind, Reason, Server, Version, View};

const SOON: Duration = Duration::from_secs(60);
/// The time within which the witness is served, also on a busy machine.
const BOUND: Duration = SOON;
const T: i32 = 40_000;
/// The session timeout of the witness, which sends nothing while this process gets no processor.
const LONG: i32 = 3_600_000;
/// Steps until another server is started.
const STEPS: u64 = 3000;
const PEERS: usize = 24;
const MAX_FRAME: usize = 64 << 10;
const MAX_QUEUED: usize = 4 << 20;
/// The log and the history have 16 MiB of text and 100,000 entries each; the rest is the tree, what
/// waits in queues, and what the allocator keeps.
const MEMORY: usize = 384 << 20;
/// The hash of `super:admin`, which no access control list of a peer can lock out.
const SUPER: &str = "super:xQJmxLMiHGwaqBvst5y6rkB6HQs=";

/// All but the close of a session, after which there is little to say.
const OPS: [i32; 30] = [
    op::CREATE,
    op::DELETE,
    op::EXISTS,
    op::GET_DATA,
    op::SET_DATA,
    op::GET_ACL,
    op::SET_ACL,
    op::GET_CHILDREN,
    op::SYNC,
    op::PING,
    op::GET_CHILDREN2,
    op::CHECK,
    op::MULTI,
    op::CREATE2,
    op::RECONFIG,
    op::CHECK_WATCHES,
    op::REMOVE_WATCHES,
    op::CREATE_CONTAINER,
    op::DELETE_CONTAINER,
    op::CREATE_TTL,
    op::MULTI_READ,
    op::AUTH,
    op::SET_WATCHES,
    op::SASL,
    op::GET_EPHEMERALS,
    op::GET_ALL_CHILDREN_NUMBER,
    op::SET_WATCHES2,
    op::ADD_WATCH,
    op::WHO_AM_I,
    op::CREATE_SESSION,
];
const WORDS: [&str; 20] = [
    "ruok", "isro", "srvr", "stat", "cons", "mntr", "conf", "envi", "dirs", "hash", "gtmk", "stmk",
    "wchs", "wchp", "wchc", "dump", "crst", "srst", "nope", "GET ",
];
const NUMBERS: [i32; 14] = [
    -1,
    -2,
    0,
    1,
    2,
    5,
    255,
    4096,
    65_535,
    65_537,
    1 << 24,
    i32::MAX - 4,
    i32::MAX,
    i32::MIN,
];
const SCHEMES: [&str; 6] = ["world", "auth", "digest", "ip", "super", "x"];
/// One of this many parts is malformed, by the seed.
const ODDS: [u64; 4] = [500, 50, 10, 2];
/// The version, by the seed.
const VERSIONS: [Version; 4] = [
    Version::V3_8,
    Version::V3_9,
    Version::ClickHouseKeeper,
    Version::ClickHouseKeeperWithoutContainers,
];

/// The panics anywhere in the process.
static PANICS: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn panics() -> Vec<String> {
    PANICS
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .clone()
}

/// Makes valid and malformed requests.
struct Bytes(Random, u64);

impl Bytes {
    fn one_in(&mut self, times: u64) -> bool {
        self.0.below(times) == 0
    }

    /// Whether a part is to be malformed. The fewer parts are, the more of the server's code is
    /// reached.
    fn is_odd(&mut self) -> bool {
        self.one_in(self.1)
    }

    fn index(&mut self, end: usize) -> usize {
        self.0.below(end as u64) as usize
    }

    fn number(&mut self) -> i32 {
        if self.one_in(4) {
            self.0.below(1 << 32) as u32 as i32
        } else {
            self.0.one_of(&NUMBERS).unwrap()
        }
    }

    fn long(&mut self) -> i64 {
        i64::from(self.number()) << self.0.below(33)
    }

    fn noise(&mut self, most: usize) -> Vec<u8> {
        (0..self.index(most + 1))
            .map(|_| self.0.below(256) as u8)
            .collect()
    }

    fn text(&mut self) -> Option<Vec<u8>> {
        if !self.is_odd() {
            let depth = [0, 0, 0, 1, 1, 2][self.index(6)];
            return Some(
                (0..=depth)
                    .flat_map(|_| *[b"/a", b"/b", b"/-"][self.index(3)])
                    .collect(),
            );
        }
        match self.0.below(7) {
            0 => None,
            1 => Some(Vec::new()),
            2 => Some(self.noise(20)),
            3 => Some("/".repeat(self.index(2000)).into_bytes()),
            4 => Some("/a".repeat(self.index(2000)).into_bytes()),
            5 => Some(vec![b'x'; self.index(MAX_FRAME)]),
            _ => Some("\u{1f4a9}".repeat(self.index(20)).into_bytes()),
        }
    }

    /// The version of a node, or another number.
    fn version(&mut self) -> i32 {
        if self.is_odd() { self.number() } else { -1 }
    }

    fn strings(&mut self) -> Body {
        if self.is_odd() {
            return Body::new().i32(self.number());
        }
        let count = self.index(6);
        (0..count).fold(Body::new().i32(count as i32), |body, _| {
            body.buffer(self.text().as_deref())
        })
    }

    fn acl(&mut self) -> Body {
        if !self.is_odd() {
            return Body::new().acl(raw::OPEN);
        }
        let count = self.index(4);
        (0..count).fold(Body::new().i32(count as i32), |body, _| {
            let scheme = self.0.one_of(&SCHEMES).unwrap();
            body.i32(self.number())
                .string(scheme)
                .buffer(self.text().as_deref())
        })
    }

    fn data(&mut self) -> Body {
        let data = match self.0.below(8) {
            0 => None,
            1 => Some(vec![b'd'; self.index(MAX_FRAME)]),
            _ => Some(self.noise(20)),
        };
        Body::new().buffer(data.as_deref())
    }

    fn items(&mut self, ops: &[i32]) -> Body {
        let count = self.index(6);
        let items = (0..count).fold(Body::new(), |body, _| {
            let op = if self.is_odd() {
                self.op()
            } else {
                self.0.one_of(ops).unwrap()
            };
            let item = if matches!(op, op::MULTI | op::MULTI_READ) {
                Body::new()
            } else {
                self.body(op)
            };
            body.i32(op)
                .bool(self.is_odd() && self.one_in(4))
                .i32(self.number())
                .then(&item)
        });
        if self.is_odd() {
            items
        } else {
            items.i32(-1).bool(true).i32(-1)
        }
    }

    fn body(&mut self, op: i32) -> Body {
        let path = Body::new().buffer(self.text().as_deref());
        match op {
            op::CREATE | op::CREATE2 | op::CREATE_CONTAINER | op::CREATE_TTL => {
                let body = path.then(&self.data()).then(&self.acl());
                let flags = match op {
                    _ if self.is_odd() => self.index(9) as i32 - 1,
                    op::CREATE_CONTAINER => 4,
                    op::CREATE_TTL => 5 + self.index(2) as i32,
                    _ => self.index(4) as i32,
                };
                let ttl = if self.is_odd() { self.long() } else { 50 };
                if op == op::CREATE_TTL {
                    body.i32(flags).i64(ttl)
                } else {
                    body.i32(flags)
                }
            }
            op::DELETE | op::CHECK => path.i32(self.version()),
            op::SET_DATA => path.then(&self.data()).i32(self.version()),
            op::SET_ACL => path.then(&self.acl()).i32(self.version()),
            op::EXISTS | op::GET_DATA | op::GET_CHILDREN | op::GET_CHILDREN2 => {
                path.bool(self.one_in(2))
            }
            op::CHECK_WATCHES | op::REMOVE_WATCHES | op::ADD_WATCH => {
                path.i32(self.index(7) as i32)
            }
            op::MULTI => self.items(&[
                op::CREATE,
                op::CREATE2,
                op::CREATE_TTL,
                op::SET_DATA,
                op::DELETE,
            ]),
            op::MULTI_READ => self.items(&[op::GET_DATA, op::GET_CHILDREN]),
            op::AUTH => {
                let scheme = if self.is_odd() {
                    self.0.one_of(&SCHEMES).unwrap()
                } else {
                    "digest"
                };
                Body::new()
                    .i32(self.number())
                    .string(scheme)
                    .then(&self.data())
            }
            op::SET_WATCHES | op::SET_WATCHES2 => {
                let lists = if op == op::SET_WATCHES { 3 } else { 5 };
                (0..lists).fold(Body::new().i64(self.long()), |body, _| {
                    body.then(&self.strings())
                })
            }
            op::SASL => self.data(),
            op::RECONFIG => path.then(&self.data()).then(&self.data()).i64(self.long()),
            op::CREATE_SESSION => Body::new().i32(self.number()),
            op::PING | op::WHO_AM_I | op::CLOSE_SESSION => Body::new(),
            _ => path,
        }
    }

    fn op(&mut self) -> i32 {
        match self.0.below(10) {
            0 if self.is_odd() => self.number(),
            1 if self.is_odd() => op::CLOSE_SESSION,
            _ => self.0.one_of(&OPS).unwrap(),
        }
    }

    /// A request without its length.
    fn request(&mut self) -> Vec<u8> {
        let (xid, op) = (self.number(), self.op());
        let body = self.body(op);
        Body::new().i32(xid).i32(op).then(&body).0
    }

    fn hello(&mut self, known: &VecDeque<(i64, Vec<u8>)>) -> Vec<u8> {
        let (session, password) = match known.get(self.index(known.len() + 1)) {
            Some(known) if !self.one_in(4) => known.clone(),
            Some((session, _)) => (*session, self.noise(20)),
            None => (0, vec![0; 16]),
        };
        let last_zxid = if self.one_in(10) { self.long() } else { 0 };
        let timeout = if self.one_in(3) { self.number() } else { T };
        hello(last_zxid, timeout, session, &password).0
    }

    /// Spoils the content of a frame.
    fn spoil(&mut self, body: &mut Vec<u8>) {
        for _ in 0..1 + self.index(3) {
            let at = self.index(body.len() + 1);
            match self.0.below(6) {
                0 => {
                    body.truncate(at);
                }
                1 => body.extend(self.noise(40)),
                2 => {
                    let end = (at + self.index(60)).min(body.len());
                    let again = body[at..end].to_vec();
                    body.splice(at..at, again);
                }
                3 if at + 4 <= body.len() => {
                    let number = self.number();
                    body[at..at + 4].copy_from_slice(&number.to_be_bytes());
                }
                4 => {
                    body.drain(at..(at + self.index(8)).min(body.len()));
                }
                _ if at < body.len() => body[at] ^= 1 << self.index(8),
                _ => {}
            }
        }
    }

    /// Puts the length before a frame, or now and then a wrong length.
    fn framed(&mut self, body: &[u8]) -> Vec<u8> {
        let len = if self.is_odd() && self.one_in(10) {
            self.number()
        } else {
            body.len() as i32
        };
        [&len.to_be_bytes(), body].concat()
    }

    /// A frame that may be wrong in any way. In most cases its length is right.
    fn frame(&mut self) -> Vec<u8> {
        let mut body = self.request();
        if self.is_odd() {
            self.spoil(&mut body);
        }
        self.framed(&body)
    }
}

/// A connection that sends anything.
struct Peer {
    stream: TcpStream,
    /// The rest of a frame that is still to be sent.
    rest: Vec<u8>,
    reads: bool,
}

impl Peer {
    /// Sends what the system takes; returns whether the connection is still open.
    fn send(&mut self, bytes: &[u8]) -> bool {
        let bytes = [&std::mem::take(&mut self.rest), bytes].concat();
        self.stream.write_all(&bytes).is_ok() && (!self.reads || self.read())
    }

    /// Reads what has arrived; returns whether the connection is still open.
    fn read(&mut self) -> bool {
        let mut bytes = [0; 64 << 10];
        loop {
            match self.stream.read(&mut bytes) {
                Ok(0) => return false,
                Ok(_) => {}
                Err(error) => return error.kind() == ErrorKind::WouldBlock,
            }
        }
    }
}

/// A server, and the connections to it.
struct Stage {
    bytes: Bytes,
    server: Server,
    addr: SocketAddr,
    witness: Raw,
    peers: Vec<Peer>,
    /// Sessions with their passwords.
    known: VecDeque<(i64, Vec<u8>)>,
    frames: u64,
    connections: u64,
    slowest: Duration,
}

impl Stage {
    fn open(seed: u64) -> Self {
        let mut bytes = Bytes(Random::new(seed), ODDS[seed as usize / 4 % 4]);
        let server = Server::builder()
            .zookeeper_version(VERSIONS[seed as usize % 4])
            .races(bytes.one_in(2))
            .max_frame(MAX_FRAME)
            .max_queued(if bytes.one_in(2) {
                MAX_QUEUED
            } else {
                MAX_FRAME
            })
            .super_digest(SUPER)
            .tick(Duration::from_millis(50))
            .container_check_interval(Duration::from_millis(50))
            .max_session_timeout(Duration::from_millis(LONG as u64))
            .start()
            .unwrap();
        let addr = server.addr();
        let mut witness = Raw::connect(addr, LONG).unwrap();
        let auth = Body::new().i32(0).string("digest").string("super:admin");
        witness.call(op::AUTH, &auth);
        Self {
            bytes,
            server,
            addr,
            witness,
            peers: Vec::new(),
            known: VecDeque::new(),
            frames: 0,
            connections: 0,
            slowest: Duration::ZERO,
        }
    }

    fn step(&mut self) {
        match self.bytes.0.below(100) {
            0..12 => self.connect(),
            12..80 => self.send(),
            80..88 => self.one_request(),
            88..90 => self.wrong_length(),
            90..95 => {
                let at = self.bytes.index(PEERS);
                if self.peers.get_mut(at).is_some_and(|peer| !peer.read()) {
                    self.peers.swap_remove(at);
                }
            }
            _ => {
                let at = self.bytes.index(PEERS);
                if at < self.peers.len() {
                    self.peers.swap_remove(at);
                }
            }
        }
    }

    fn connect(&mut self) {
        if self.peers.len() == PEERS {
            self.peers.remove(0);
        }
        self.connections += 1;
        let reads = !self.bytes.one_in(4);
        let (stream, first) = match self.bytes.0.below(10) {
            0 => (dial(self.addr).unwrap(), self.word()),
            1 => (dial(self.addr).unwrap(), self.bytes.noise(60)),
            2..5 => {
                let mut hello = self.bytes.hello(&self.known);
                if self.bytes.one_in(2) {
                    self.bytes.spoil(&mut hello);
                }
                self.spare_others(&mut hello);
                (dial(self.addr).unwrap(), self.bytes.framed(&hello))
            }
            _ => {
                let raw = Raw::connect(self.addr, T).unwrap();
                self.known
                    .push_front((raw.session(), raw.greeting.password.clone()));
                self.known.truncate(8);
                (raw.stream, Vec::new())
            }
        };
        stream.set_nonblocking(true).unwrap();
        let mut peer = Peer {
            stream,
            rest: Vec::new(),
            reads,
        };
        self.frames += 1;
        if peer.send(&first) {
            self.peers.push(peer);
        }
    }

    /// Makes a spoiled first frame ask for no session but a peer's. As in ZooKeeper, a request for
    /// a session closes the session's connection, even without the session's password.
    fn spare_others(&self, hello: &mut [u8]) {
        let Some(asked) = hello.get_mut(16..24) else {
            return;
        };
        let id = i64::from_be_bytes(asked.try_into().unwrap());
        let is_near = id.abs_diff(self.witness.session()) < 1 << 20;
        if is_near && !self.known.iter().any(|(known, _)| *known == id) {
            asked[0] ^= 1;
        }
    }

    fn word(&mut self) -> Vec<u8> {
        let word = self.bytes.0.one_of(&WORDS).unwrap();
        let mut bytes = [word.as_bytes(), &self.bytes.noise(12)].concat();
        bytes.truncate(4 + self.bytes.index(bytes.len()));
        bytes
    }

    /// Sends some frames on a connection, the last one perhaps in part.
    fn send(&mut self) {
        let at = self.bytes.index(PEERS);
        if at >= self.peers.len() {
            return;
        }
        let count = 1 + self.bytes.index(8);
        let mut bytes: Vec<u8> = (0..count).flat_map(|_| self.bytes.frame()).collect();
        self.frames += count as u64;
        if self.bytes.one_in(40) {
            bytes.extend(self.word());
        }
        let rest = if self.bytes.one_in(4) {
            self.bytes.index(bytes.len())
        } else {
            bytes.len()
        };
        let rest = bytes.split_off(rest);
        let peer = &mut self.peers[at];
        if peer.send(&bytes) {
            peer.rest = rest;
        } else {
            self.peers.swap_remove(at);
        }
    }

    /// Sends one request of the right length. The server replies, or logs why it closes the
    /// connection.
    fn one_request(&mut self) {
        let mut raw = Raw::connect(self.addr, T).unwrap();
        let mut body = self.bytes.request();
        if self.bytes.one_in(2) {
            self.bytes.spoil(&mut body);
        }
        body.truncate(MAX_FRAME);
        (self.connections, self.frames) = (self.connections + 1, self.frames + 1);
        raw::write_frame(&mut raw.stream, &body).unwrap();
        // The server may have closed the connection.
        let _ = raw.send(op::PING, &Body::new());
        let mut errors = Vec::new();
        loop {
            match raw.recv() {
                Ok(Frame {
                    xid: -2, error: 0, ..
                }) => return,
                Ok(frame) => errors.push(frame.error),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    panic!("no reply to {}", body.escape_ascii());
                }
                Err(_) => break,
            }
        }
        let closes = body.get(4..8) == Some(&op::CLOSE_SESSION.to_be_bytes());
        let said = errors.iter().any(|error| matches!(error, -6 | -112 | -115));
        if !closes && !said {
            self.is_logged(raw.session(), &[Reason::Malformed, Reason::Slow], &body);
        }
    }

    /// Sends a length that no frame can have: the server closes the connection, and logs it.
    fn wrong_length(&mut self) {
        let mut raw = Raw::connect(self.addr, T).unwrap();
        let (len, reason) = if self.bytes.one_in(2) {
            (-1 - self.bytes.0.below(1 << 31) as i32, Reason::Malformed)
        } else {
            (
                i32::MAX - self.bytes.index(i32::MAX as usize - MAX_FRAME) as i32,
                Reason::Oversized,
            )
        };
        (self.connections, self.frames) = (self.connections + 1, self.frames + 1);
        let bytes = [&len.to_be_bytes()[..], &self.bytes.noise(20)].concat();
        raw.stream.write_all(&bytes).unwrap();
        let end = raw.recv().unwrap_err();
        assert_ne!(
            end.kind(),
            ErrorKind::WouldBlock,
            "the connection stays open after the length {len}"
        );
        self.is_logged(raw.session(), &[reason], &bytes);
    }

    fn is_logged(&self, session: i64, reasons: &[Reason], bytes: &[u8]) {
        let is = |kind| matches!(kind, LogKind::Closed(reason) if reasons.contains(&reason));
        let logged = self.server.wait_until_blocking(
            |view| {
                view.log()
                    .rev()
                    .any(|entry| entry.session == session && is(entry.kind))
            },
            SOON,
        );
        assert!(
            logged,
            "closed for no reason after {}",
            bytes.escape_ascii()
        );
    }

    /// Carries out a request of the witness.
    fn serves(&mut self, op: i32, body: &Body) -> Frame {
        match self.witness.ask(op, body) {
            Ok((_, frame)) if frame.error == 0 => frame,
            other => {
                let (witness, log) = (self.witness.session(), self.server.log());
                let of_witness = log.iter().rev().filter(|entry| entry.session == witness);
                let last: Vec<_> = of_witness
                    .map(|entry| (entry.op, entry.kind))
                    .take(9)
                    .collect();
                panic!("the request {op} of the witness: {other:?}; before: {last:?}");
            }
        }
    }

    /// Checks that the witness is served.
    fn check(&mut self) {
        let begun = Instant::now();
        self.serves(op::CREATE, &Body::create("/witness", b"here", 0));
        let read = self.serves(op::GET_DATA, &Body::path_watch("/witness", false));
        assert_eq!(raw::Parse(&read.body).buffer(), Some(&b"here"[..]));
        self.serves(op::DELETE, &Body::new().string("/witness").i32(-1));
        self.slowest = self.slowest.max(begun.elapsed());
        assert!(
            begun.elapsed() < BOUND,
            "the witness waits for {:?}",
            begun.elapsed()
        );
        assert!(
            resident().is_none_or(|bytes| bytes < MEMORY),
            "{} MiB",
            resident().unwrap_or(0) >> 20
        );
        assert_eq!(panics(), [""; 0]);
    }

    /// Ends all connections but that of the witness.
    fn end(&mut self) {
        self.peers.clear();
        let witness = self.witness.session();
        let others = |view: View<'_>| {
            view.sessions()
                .iter()
                .filter(|session| session.connected && session.id != witness)
                .count()
        };
        assert!(
            self.server
                .wait_until_blocking(|view| others(view) == 0, SOON),
            "connections are left"
        );
        self.check();
    }
}

fn setting(name: &str) -> Option<u64> {
    env::var(name).ok().map(|value| {
        value
            .parse()
            .unwrap_or_else(|_| panic!("{name} is {value}"))
    })
}

#[test]
fn arbitrary_bytes_harm_nobody() {
    let usual = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        PANICS
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(info.to_string());
        usual(info);
    }));
    let seconds = setting("FUZZ_SECONDS").unwrap_or(3);
    let seed = setting("FUZZ_SEED").unwrap_or_else(|| RandomState::new().hash_one(0) >> 36 << 4);
    println!("FUZZ_SEED={seed}");
    let until = Instant::now() + Duration::from_secs(seconds);
    let (mut servers, mut frames, mut connections) = (0, 0, 0);
    let (mut slowest, mut largest, mut done) = (Duration::ZERO, 0, BTreeSet::new());
    while Instant::now() < until {
        // If a server fails, this seed makes it the first one.
        println!("server {servers}: FUZZ_SEED={}", seed + servers);
        let mut stage = Stage::open(seed + servers);
        for step in 0..STEPS {
            stage.step();
            if step % 100 == 99 {
                stage.check();
                largest = largest.max(resident().unwrap_or(0));
            }
            if Instant::now() >= until {
                break;
            }
        }
        stage.end();
        let applied = |entry: &LogEntry| (entry.kind, entry.error) == (LogKind::Applied, 0);
        done.extend(
            stage
                .server
                .log()
                .iter()
                .filter(|entry| applied(entry))
                .map(|entry| entry.opcode),
        );
        (servers, frames, connections) = (
            servers + 1,
            frames + stage.frames,
            connections + stage.connections,
        );
        slowest = slowest.max(stage.slowest);
    }
    println!(
        "{frames} frames on {connections} connections to {servers} servers in {seconds} s; the slowest three \
         requests of the witness took {slowest:?}; at most {} MiB",
        largest >> 20
    );
    assert!(
        done.len() > OPS.len() / 2,
        "no more than these were done: {done:?}"
    );
}
