//! A client that sends exactly the frames of a test, one at a time. Its codec is not the server's.
#![allow(
    dead_code,
    unreachable_pub,
    reason = "every test file uses another part of it"
)]
#![expect(
    clippy::panic,
    reason = "a test fails by panicking; clippy knows this only of #[test] functions"
)]

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Numbers of the requests.
pub mod op {
    pub const CREATE: i32 = 1;
    pub const DELETE: i32 = 2;
    pub const EXISTS: i32 = 3;
    pub const GET_DATA: i32 = 4;
    pub const SET_DATA: i32 = 5;
    pub const GET_ACL: i32 = 6;
    pub const SET_ACL: i32 = 7;
    pub const GET_CHILDREN: i32 = 8;
    pub const SYNC: i32 = 9;
    pub const PING: i32 = 11;
    pub const GET_CHILDREN2: i32 = 12;
    pub const CHECK: i32 = 13;
    pub const RECONFIG: i32 = 16;
    pub const CHECK_WATCHES: i32 = 17;
    pub const DELETE_CONTAINER: i32 = 20;
    pub const SASL: i32 = 102;
    pub const CREATE_SESSION: i32 = -10;
    pub const MULTI: i32 = 14;
    pub const CREATE2: i32 = 15;
    pub const REMOVE_WATCHES: i32 = 18;
    pub const CREATE_CONTAINER: i32 = 19;
    pub const CREATE_TTL: i32 = 21;
    pub const MULTI_READ: i32 = 22;
    pub const AUTH: i32 = 100;
    pub const SET_WATCHES: i32 = 101;
    pub const GET_EPHEMERALS: i32 = 103;
    pub const GET_ALL_CHILDREN_NUMBER: i32 = 104;
    pub const SET_WATCHES2: i32 = 105;
    pub const ADD_WATCH: i32 = 106;
    pub const WHO_AM_I: i32 = 107;
    pub const CLOSE_SESSION: i32 = -11;
}

/// Every client may do everything.
pub const OPEN: &[(i32, &str, &str)] = &[(31, "world", "anyone")];

/// An entry of a list: permissions, scheme and id.
pub type OddAcl = (i32, Option<&'static str>, Option<&'static str>);

/// Puts a request together.
#[derive(Clone, Debug, Default)]
pub struct Body(pub Vec<u8>);

impl Body {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn i32(mut self, value: i32) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    pub fn i64(mut self, value: i64) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    pub fn bool(mut self, value: bool) -> Self {
        self.0.push(value.into());
        self
    }

    pub fn buffer(self, value: Option<&[u8]>) -> Self {
        match value {
            None => self.i32(-1),
            Some(bytes) => {
                let mut body = self.i32(bytes.len() as i32);
                body.0.extend(bytes);
                body
            }
        }
    }

    pub fn string(self, value: &str) -> Self {
        self.buffer(Some(value.as_bytes()))
    }

    pub fn strings<S: AsRef<str>>(self, values: &[S]) -> Self {
        values
            .iter()
            .fold(self.i32(values.len() as i32), |body, value| {
                body.string(value.as_ref())
            })
    }

    pub fn acl(self, acl: &[(i32, &str, &str)]) -> Self {
        acl.iter()
            .fold(self.i32(acl.len() as i32), |body, (perms, scheme, id)| {
                body.i32(*perms).string(scheme).string(id)
            })
    }

    /// A list whose strings may be null, or that is null itself.
    pub fn odd_acl(self, acl: Option<&[OddAcl]>) -> Self {
        let Some(acl) = acl else { return self.i32(-1) };
        let text = |text: Option<&'static str>| text.map(str::as_bytes);
        acl.iter()
            .fold(self.i32(acl.len() as i32), |body, (perms, scheme, id)| {
                body.i32(*perms).buffer(text(*scheme)).buffer(text(*id))
            })
    }

    pub fn then(mut self, other: &Self) -> Self {
        self.0.extend(&other.0);
        self
    }

    pub fn create(path: &str, data: &[u8], flags: i32) -> Self {
        Self::new()
            .string(path)
            .buffer(Some(data))
            .acl(OPEN)
            .i32(flags)
    }

    pub fn path_watch(path: &str, watch: bool) -> Self {
        Self::new().string(path).bool(watch)
    }

    pub fn multi(items: &[(i32, Self)]) -> Self {
        let body = items.iter().fold(Self::new(), |body, (op, item)| {
            body.i32(*op).bool(false).i32(-1).then(item)
        });
        body.i32(-1).bool(true).i32(-1)
    }
}

/// Takes a reply apart.
#[derive(Clone, Debug)]
pub struct Parse<'a>(pub &'a [u8]);

impl<'a> Parse<'a> {
    fn take(&mut self, len: usize) -> &'a [u8] {
        let (taken, rest) = self
            .0
            .split_at_checked(len)
            .unwrap_or_else(|| panic!("the reply ends early"));
        self.0 = rest;
        taken
    }

    pub fn i32(&mut self) -> i32 {
        i32::from_be_bytes(self.take(4).try_into().unwrap_or_default())
    }

    pub fn i64(&mut self) -> i64 {
        i64::from_be_bytes(self.take(8).try_into().unwrap_or_default())
    }

    pub fn bool(&mut self) -> bool {
        self.take(1) != [0]
    }

    pub fn buffer(&mut self) -> Option<&'a [u8]> {
        let len = self.i32();
        (len >= 0).then(|| self.take(len as usize))
    }

    pub fn string(&mut self) -> String {
        String::from_utf8_lossy(self.buffer().unwrap_or(b"<null>")).into_owned()
    }

    pub fn strings(&mut self) -> Vec<String> {
        (0..self.i32()).map(|_| self.string()).collect()
    }

    pub fn stat(&mut self) -> Stat {
        Stat {
            czxid: self.i64(),
            mzxid: self.i64(),
            ctime: self.i64(),
            mtime: self.i64(),
            version: self.i32(),
            cversion: self.i32(),
            aversion: self.i32(),
            ephemeral_owner: self.i64(),
            data_length: self.i32(),
            num_children: self.i32(),
            pzxid: self.i64(),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    pub czxid: i64,
    pub mzxid: i64,
    pub ctime: i64,
    pub mtime: i64,
    pub version: i32,
    pub cversion: i32,
    pub aversion: i32,
    pub ephemeral_owner: i64,
    pub data_length: i32,
    pub num_children: i32,
    pub pzxid: i64,
}

/// A reply or a notification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    pub xid: i32,
    pub zxid: i64,
    pub error: i32,
    pub body: Vec<u8>,
}

impl Frame {
    /// Type, state and path of a notification.
    pub fn event(&self) -> (i32, i32, String) {
        let mut parse = Parse(&self.body);
        (parse.i32(), parse.i32(), parse.string())
    }
}

/// The server's reply to the first frame of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Greeting {
    pub timeout: i32,
    pub session: i64,
    pub password: Vec<u8>,
    /// Whether the member is read-only.
    pub read_only: bool,
}

#[derive(Debug)]
pub struct Raw {
    pub stream: TcpStream,
    pub greeting: Greeting,
    next_xid: i32,
}

/// The first frame.
pub fn hello(last_zxid: i64, timeout: i32, session: i64, password: &[u8]) -> Body {
    Body::new()
        .i32(0)
        .i64(last_zxid)
        .i32(timeout)
        .i64(session)
        .buffer(Some(password))
        .bool(false)
}

pub fn dial(addr: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(addr)?;
    stream.set_nodelay(true)?;
    // The timeout is far longer than any answer takes: a test without an answer fails instead of
    // hanging.
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    Ok(stream)
}

/// The memory that the process takes; `None` if the system does not report it.
pub fn resident() -> Option<usize> {
    let pages = std::fs::read_to_string("/proc/self/statm").ok()?;
    Some(pages.split(' ').nth(1)?.parse::<usize>().ok()? * 4096)
}

pub fn write_frame(stream: &mut TcpStream, body: &[u8]) -> io::Result<()> {
    let mut frame = (body.len() as i32).to_be_bytes().to_vec();
    frame.extend(body);
    stream.write_all(&frame)
}

pub fn read_frame(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut len = [0; 4];
    stream.read_exact(&mut len)?;
    let mut frame = vec![0; i32::from_be_bytes(len) as usize];
    stream.read_exact(&mut frame)?;
    Ok(frame)
}

impl Raw {
    pub fn connect(addr: SocketAddr, timeout: i32) -> io::Result<Self> {
        Self::reconnect(addr, timeout, 0, &[0; 16], 0)
    }

    pub fn reconnect(
        addr: SocketAddr,
        timeout: i32,
        session: i64,
        password: &[u8],
        last_zxid: i64,
    ) -> io::Result<Self> {
        Self::open(addr, &hello(last_zxid, timeout, session, password))
    }

    /// Begins a session, if necessary at a read-only member.
    pub fn read_only(addr: SocketAddr, timeout: i32) -> io::Result<Self> {
        let mut hello = hello(0, timeout, 0, &[0; 16]);
        hello.0.pop();
        Self::open(addr, &hello.bool(true))
    }

    /// Connects with this first frame.
    pub fn open(addr: SocketAddr, hello: &Body) -> io::Result<Self> {
        let mut stream = dial(addr)?;
        write_frame(&mut stream, &hello.0)?;
        let answer = read_frame(&mut stream)?;
        let mut parse = Parse(&answer);
        let _protocol = parse.i32();
        let (timeout, session) = (parse.i32(), parse.i64());
        let password = parse.buffer().unwrap_or_default().to_vec();
        let read_only = !parse.0.is_empty() && parse.bool();
        Ok(Self {
            stream,
            greeting: Greeting {
                timeout,
                session,
                password,
                read_only,
            },
            next_xid: 1,
        })
    }

    pub fn session(&self) -> i64 {
        self.greeting.session
    }

    pub fn send_as(&mut self, xid: i32, op: i32, body: &Body) -> io::Result<()> {
        write_frame(&mut self.stream, &Body::new().i32(xid).i32(op).then(body).0)
    }

    pub fn send(&mut self, op: i32, body: &Body) -> io::Result<i32> {
        // Every server replies to pings with the number -2, whatever number they were sent with.
        let xid = if op == op::PING { -2 } else { self.next_xid };
        self.next_xid += 1;
        self.send_as(xid, op, body)?;
        Ok(xid)
    }

    pub fn recv(&mut self) -> io::Result<Frame> {
        let frame = read_frame(&mut self.stream)?;
        let mut parse = Parse(&frame);
        let (xid, zxid, error) = (parse.i32(), parse.i64(), parse.i32());
        Ok(Frame {
            xid,
            zxid,
            error,
            body: parse.0.to_vec(),
        })
    }

    /// Sends a request; returns the notifications before its reply, and the reply.
    pub fn ask(&mut self, op: i32, body: &Body) -> io::Result<(Vec<Frame>, Frame)> {
        let xid = self.send(op, body)?;
        let mut events = Vec::new();
        loop {
            let frame = self.recv()?;
            match frame.xid {
                -1 => events.push(frame),
                got if got == xid => return Ok((events, frame)),
                got => return Err(io::Error::other(format!("reply {got} instead of {xid}"))),
            }
        }
    }

    /// The reply alone, which must not be an error.
    pub fn call(&mut self, op: i32, body: &Body) -> Frame {
        match self.ask(op, body) {
            Ok((_, frame)) if frame.error == 0 => frame,
            other => panic!("request {op} answers {other:?}"),
        }
    }

    pub fn create(&mut self, path: &str, flags: i32) -> (String, Stat) {
        let frame = self.call(op::CREATE2, &Body::create(path, b"", flags));
        let mut parse = Parse(&frame.body);
        (parse.string(), parse.stat())
    }

    pub fn stat(&mut self, path: &str) -> Stat {
        Parse(&self.call(op::EXISTS, &Body::path_watch(path, false)).body).stat()
    }
}
