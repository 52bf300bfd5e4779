//! Random scripts run on this server and on a real ZooKeeper, and every answer is compared. Further
//! tests compare the facts that locks rely on: how children are numbered, and which events come
//! before a reply.
//!
//! The comparison covers errors, paths, data, permissions, the sets of children, the numbers of a
//! Stat (transactions counted from the start of the script, owners by which client they are; not
//! the times), the transactions of the replies, and the events in their order.

#[path = "raw/mod.rs"]
mod raw;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fmt::Write as _;
use std::hash::{BuildHasher as _, RandomState};
use std::io::{self, Read as _, Write as _};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};
use raw::{Body, Frame, OddAcl, Parse, Raw, op};
use test_support::{Options, Suite, ZooKeeper, peers, poll_until, unique_path};
use zookeeper_test_server::{Builder, Match, Member, Op, Server, Version};

/// Clients of a script.
const ACTORS: usize = 3;
/// How many operations are compared, unless the environment variable `OPERATIONS` sets another
/// number.
const OPERATIONS: u64 = 10_000;
/// Scripts that are run in a row.
const CASES: u32 = 20;
/// Seeds that always run, beside one that the environment variable `SEED` sets, or that is new
/// every time.
const SEEDS: [u8; 4] = [1, 2, 3, 4];

/// A path below the script's root, as bytes; `None` is null.
#[derive(Clone)]
struct Name(Option<Vec<u8>>);

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(bytes) => write!(f, "\"{}\"", bytes.escape_ascii()),
            None => f.write_str("null"),
        }
    }
}

#[derive(Clone, Debug)]
enum Item {
    Create {
        op: i32,
        path: Name,
        data: Option<Vec<u8>>,
        acl: usize,
        flags: i32,
    },
    Delete {
        path: Name,
        version: i32,
    },
    SetData {
        path: Name,
        data: Option<Vec<u8>>,
        version: i32,
    },
    Check {
        path: Name,
        version: i32,
    },
}

#[derive(Clone, Debug)]
enum Step {
    Write(Item),
    Multi(Vec<Item>),
    /// A check outside a multi, whose success 3.8 does not reply to.
    Check {
        path: Name,
        version: i32,
    },
    Exists {
        path: Name,
        watch: bool,
    },
    GetData {
        path: Name,
        watch: bool,
    },
    GetChildren {
        path: Name,
        watch: bool,
        stat: bool,
    },
    MultiRead(Vec<(i32, Name, bool)>),
    SetAcl {
        path: Name,
        acl: usize,
        version: i32,
    },
    GetAcl {
        path: Name,
    },
    Sync {
        path: Name,
    },
    CheckWatches {
        path: Name,
        kind: i32,
    },
    RemoveWatches {
        path: Name,
        kind: i32,
    },
    AddWatch {
        path: Name,
        mode: i32,
    },
    SetWatches {
        ago: i64,
        lists: [Option<Vec<Name>>; 5],
        op: i32,
    },
    GetEphemerals {
        prefix: Prefix,
    },
    GetAllChildrenNumber {
        path: Name,
    },
    WhoAmI,
    Auth {
        scheme: Option<&'static str>,
        credentials: Option<&'static str>,
    },
    Sasl {
        token: Option<Vec<u8>>,
    },
    Reconfig {
        members: Option<&'static str>,
    },
    DeleteContainer {
        bytes: Vec<u8>,
    },
    Unknown {
        op: i32,
    },
    Reconnect,
    NewSession,
    Malformed {
        op: i32,
        bytes: Vec<u8>,
    },
}

#[derive(Clone, Debug)]
enum Prefix {
    Below(Name),
    Bare(Option<&'static str>),
}

/// A path below the script's root; `""` is the root itself.
fn path() -> impl Strategy<Value = Name> {
    let text = prop_oneof![
        2 => Just(String::new()),
        8 => "/[ab]",
        6 => "/[ab]/[ab]",
        2 => "/[ab]/[ab]/[ab]",
        1 => prop_oneof![
            Just("/".to_owned()), Just("//a".to_owned()), Just("/a/".to_owned()), Just("/a/.".to_owned()),
            Just("/../a".to_owned()), Just("/a\u{0}b".to_owned()), Just("/\u{7f}".to_owned()),
            Just("/é".to_owned()), Just("/...".to_owned()), Just("/\u{1f4a9}".to_owned()),
        ],
    ];
    // The replacement characters that Java makes of invalid bytes are compared.
    let bytes = proptest::sample::select(vec![
        b'a', 0x80, 0xa0, 0xc3, 0xe2, 0x82, 0xac, 0xed, 0xf0, 0x9f,
    ]);
    prop_oneof![
        40 => text.prop_map(|text| Name(Some(text.into_bytes()))),
        1 => proptest::collection::vec(bytes, 1..5).prop_map(|bytes| Name(Some([b"/", &bytes[..]].concat()))),
    ]
}

fn path_or_null() -> impl Strategy<Value = Name> {
    prop_oneof![40 => path(), 1 => Just(Name(None))]
}

fn version() -> impl Strategy<Value = i32> {
    prop_oneof![6 => Just(-1), 3 => Just(0), 1 => Just(1), 1 => Just(7)]
}

fn data() -> impl Strategy<Value = Option<Vec<u8>>> {
    prop_oneof![1 => Just(None), 4 => proptest::collection::vec(any::<u8>(), 0..4).prop_map(Some)]
}

/// Mostly open, so that scripts get somewhere.
fn acl() -> impl Strategy<Value = usize> {
    prop_oneof![15 => Just(0usize), 3 => 1..ACLS.len()]
}

const ANYONE: OddAcl = (31, Some("world"), Some("anyone"));

const ACLS: [Option<&[OddAcl]>; 34] = [
    Some(&[ANYONE]),
    Some(&[(1, Some("world"), Some("anyone"))]),
    Some(&[(31, Some("auth"), Some(""))]),
    // The entry is kazoo's CREATOR_ALL_ACL.
    Some(&[(31, Some("auth"), None)]),
    Some(&[(31, Some("digest"), Some("u0:dMtH6YrqqM2sqLCKXgn5k+WGdQs="))]),
    Some(&[
        (3, Some("world"), Some("anyone")),
        (31, Some("auth"), Some("")),
        (3, Some("world"), Some("anyone")),
    ]),
    Some(&[(31, Some("ip"), Some("127.0.0.1"))]),
    Some(&[(31, Some("ip"), Some("+127.0.0.01"))]),
    Some(&[(31, Some("ip"), Some("127.0.0.1/+8"))]),
    Some(&[(31, Some("ip"), Some("127.0.0.1/"))]),
    Some(&[
        (31, Some("ip"), Some("10.0.0.0/8")),
        (1, Some("world"), Some("anyone")),
    ]),
    Some(&[(31, Some("ip"), Some("::1")), ANYONE]),
    Some(&[(31, Some("ip"), Some("0:0:0:0:0:0:0:1/+64"))]),
    Some(&[(31, Some("ip"), Some("::/0"))]),
    Some(&[(31, Some("ip"), Some("-1:2:3:4:5:6:7:F")), ANYONE]),
    Some(&[(31, Some("ip"), Some("::ffff:127.0.0.1"))]),
    Some(&[(31, Some("ip"), Some("1::2:3:4:5:6:7:8"))]),
    Some(&[(31, Some("ip"), Some("1::2::3"))]),
    Some(&[(31, Some("ip"), Some("::1/129"))]),
    Some(&[]),
    None,
    Some(&[(31, Some("nonsense"), Some("x"))]),
    Some(&[(31, Some("super"), Some(""))]),
    Some(&[(31, Some("digest"), Some("nocolon"))]),
    Some(&[(31, Some("digest"), Some(":x"))]),
    Some(&[(31, Some("digest"), Some("a::b"))]),
    Some(&[(31, Some("digest"), Some("a:b::"))]),
    Some(&[(31, Some("digest"), None)]),
    Some(&[(31, Some("world"), None)]),
    Some(&[(31, Some("ip"), None)]),
    Some(&[(31, None, Some("x"))]),
    Some(&[ANYONE, (31, None, None)]),
    Some(&[(31, Some("auth"), None), (31, Some("auth"), None)]),
    Some(&[(31, Some("auth"), Some("")), (30, Some("auth"), None)]),
];

fn item() -> impl Strategy<Value = Item> {
    let create = (path_or_null(), data(), acl(), 0..8i32).prop_map(|(path, data, acl, kind)| {
        let (op, flags) = match kind {
            0 | 1 => (op::CREATE2, 0),
            2 => (op::CREATE, 0),
            3 => (op::CREATE2, 1),
            4 => (op::CREATE2, 2),
            5 => (op::CREATE2, 3),
            6 => (op::CREATE_CONTAINER, 4),
            _ => (op::CREATE_TTL, 5),
        };
        Item::Create {
            op,
            path,
            data,
            acl,
            flags,
        }
    });
    prop_oneof![
        10 => create,
        5 => (path_or_null(), version()).prop_map(|(path, version)| Item::Delete { path, version }),
        3 => (path_or_null(), data(), version())
            .prop_map(|(path, data, version)| Item::SetData { path, data, version }),
        1 => (path_or_null(), version()).prop_map(|(path, version)| Item::Check { path, version }),
    ]
}

/// A create whose flags do not fit its number. All that may have a time to live have one: a
/// `createTTL` without one stops a real server for good.
fn odd_create() -> impl Strategy<Value = Item> {
    let ops = prop_oneof![
        Just(op::CREATE),
        Just(op::CREATE2),
        Just(op::CREATE_CONTAINER),
        Just(op::CREATE_TTL)
    ];
    (ops, path_or_null(), -1..9i32).prop_map(|(op, path, flags)| Item::Create {
        op,
        path,
        data: None,
        acl: 0,
        flags,
    })
}

fn list(of_null: bool) -> impl Strategy<Value = Option<Vec<Name>>> {
    let names = || proptest::collection::vec(path(), 0..3).prop_map(Some);
    let odd = if of_null {
        proptest::collection::vec(path_or_null(), 0..4)
            .prop_map(Some)
            .boxed()
    } else {
        names().boxed()
    };
    prop_oneof![20 => names(), 1 => Just(None), 2 => odd]
}

fn reads() -> impl Strategy<Value = Vec<(i32, Name, bool)>> {
    let op = prop_oneof![
        20 => Just(op::GET_DATA), 20 => Just(op::GET_CHILDREN), 1 => Just(op::DELETE), 1 => Just(op::EXISTS)
    ];
    proptest::collection::vec((op, path_or_null(), any::<bool>()), 0..4)
}

fn auth() -> impl Strategy<Value = Step> {
    let good = prop_oneof![3 => Just("u0:pw"), 3 => Just("u1:pw"), 1 => Just("nocolon"), 1 => Just("super:admin")];
    let odd = (
        proptest::sample::select(vec![
            None,
            Some("digest"),
            Some("ip"),
            Some("world"),
            Some("sasl"),
        ]),
        proptest::sample::select(vec![None, Some(""), Some("u0:pw")]),
    );
    prop_oneof![
        8 => good.prop_map(|user| Step::Auth { scheme: Some("digest"), credentials: Some(user) }),
        1 => odd.prop_map(|(scheme, credentials)| Step::Auth { scheme, credentials }),
    ]
}

/// Requests that no client sends, or that no client sends any more, or that lack a field.
fn odd_step() -> impl Strategy<Value = Step> {
    let bytes = || proptest::collection::vec(any::<u8>(), 0..6);
    prop_oneof![
        3 => (path_or_null(), version()).prop_map(|(path, version)| Step::Check { path, version }),
        1 => proptest::option::of(bytes()).prop_map(|token| Step::Sasl { token }),
        1 => proptest::sample::select(vec![None, Some("server.1=a:1:2;3")])
            .prop_map(|members| Step::Reconfig { members }),
        1 => bytes().prop_map(|bytes| Step::DeleteContainer { bytes }),
        1 => proptest::sample::select(vec![-12, -1, 0, 10, 99, 108, 4711])
            .prop_map(|op| Step::Unknown { op }),
        6 => (proptest::sample::select(vec![
                op::CREATE, op::DELETE, op::SET_DATA, op::EXISTS, op::GET_DATA, op::GET_CHILDREN, op::CREATE2,
                op::MULTI, op::MULTI_READ, op::SET_ACL, op::SET_WATCHES2, op::SYNC, op::RECONFIG,
                op::CHECK_WATCHES, op::GET_EPHEMERALS,
            ]), proptest::collection::vec(0..3u8, 0..6))
            // The empty path is the server's root. That of the real server, which is shared, has
            // had more children.
            .prop_filter("no whole read of the root", |(_, bytes)| !bytes.starts_with(&[0; 4]) || bytes.len() < 5)
            .prop_map(|(op, bytes)| Step::Malformed { op, bytes }),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let prefix = prop_oneof![
        4 => path().prop_map(Prefix::Below),
        1 => proptest::sample::select(vec![None, Some(""), Some("/"), Some(" / "), Some("\u{1} ")])
            .prop_map(Prefix::Bare),
    ];
    let watches = (
        0..8i64,
        [list(true), list(true), list(true)],
        [list(false), list(false)],
        any::<bool>(),
    );
    prop_oneof![
        24 => item().prop_filter("no check alone", |item| !matches!(item, Item::Check { .. })).prop_map(Step::Write),
        1 => odd_create().prop_map(Step::Write),
        8 => proptest::collection::vec(prop_oneof![9 => item(), 1 => odd_create()], 0..4)
            .prop_map(Step::Multi),
        4 => (path_or_null(), any::<bool>()).prop_map(|(path, watch)| Step::Exists { path, watch }),
        4 => (path_or_null(), any::<bool>()).prop_map(|(path, watch)| Step::GetData { path, watch }),
        4 => (path_or_null(), any::<bool>(), any::<bool>())
            .prop_map(|(path, watch, stat)| Step::GetChildren { path, watch, stat }),
        2 => reads().prop_map(Step::MultiRead),
        1 => (path_or_null(), acl(), version())
            .prop_map(|(path, acl, version)| Step::SetAcl { path, acl, version }),
        1 => path_or_null().prop_map(|path| Step::GetAcl { path }),
        1 => path_or_null().prop_map(|path| Step::Sync { path }),
        2 => (path_or_null(), 0..7i32).prop_map(|(path, kind)| Step::CheckWatches { path, kind }),
        2 => (path_or_null(), 0..7i32).prop_map(|(path, kind)| Step::RemoveWatches { path, kind }),
        // On the null path 3.8 fails to decode the second watch, so the path is not null.
        2 => (path(), 0..3i32).prop_map(|(path, mode)| Step::AddWatch { path, mode }),
        1 => watches.prop_map(|(ago, [data, exist, child], [persistent, recursive], two)| {
            let lists = [data, exist, child, persistent, recursive];
            Step::SetWatches { ago, lists, op: if two { op::SET_WATCHES2 } else { op::SET_WATCHES } }
        }),
        1 => prefix.prop_map(|prefix| Step::GetEphemerals { prefix }),
        1 => path_or_null().prop_map(|path| Step::GetAllChildrenNumber { path }),
        1 => Just(Step::WhoAmI),
        1 => auth(),
        2 => Just(Step::Reconnect),
        1 => Just(Step::NewSession),
        1 => odd_step(),
    ]
}

fn script() -> impl Strategy<Value = Vec<(usize, Step)>> {
    proptest::collection::vec((0..ACTORS, step()), 1..40)
}

/// A server and the clients of one script.
struct Stage {
    addr: SocketAddr,
    root: String,
    actors: Vec<Raw>,
    /// The client to which a session belongs or belonged.
    owners: BTreeMap<i64, String>,
    /// Transactions before this one are not the script's.
    base: i64,
    last: i64,
}

impl Stage {
    fn open(addr: SocketAddr, root: &str) -> io::Result<Self> {
        let mut actors = Vec::new();
        let mut owners = BTreeMap::new();
        for actor in 0..ACTORS {
            let raw = Raw::connect(addr, 30_000)?;
            owners.insert(raw.session(), format!("client {actor}"));
            actors.push(raw);
        }
        actors[0].call(op::CREATE, &Body::create(root, b"", 0));
        // The directory is new, so that its children are numbered from 0.
        let root = format!("{root}/root");
        let frame = actors[0].call(op::CREATE, &Body::create(&root, b"", 0));
        Ok(Self {
            addr,
            root,
            actors,
            owners,
            base: frame.zxid,
            last: frame.zxid,
        })
    }

    /// The full path as a string of a request.
    fn path(&self, path: &Name) -> Body {
        let full = path
            .0
            .as_ref()
            .map(|bytes| [self.root.as_bytes(), bytes].concat());
        Body::new().buffer(full.as_deref())
    }

    fn item(&self, item: &Item) -> (i32, Body) {
        match item {
            Item::Create {
                op,
                path,
                data,
                acl,
                flags,
            } => {
                let body = self
                    .path(path)
                    .buffer(data.as_deref())
                    .odd_acl(ACLS[*acl])
                    .i32(*flags);
                (
                    *op,
                    if *op == op::CREATE_TTL {
                        body.i64(3_600_000)
                    } else {
                        body
                    },
                )
            }
            Item::Delete { path, version } => (op::DELETE, self.path(path).i32(*version)),
            Item::SetData {
                path,
                data,
                version,
            } => (
                op::SET_DATA,
                self.path(path).buffer(data.as_deref()).i32(*version),
            ),
            Item::Check { path, version } => (op::CHECK, self.path(path).i32(*version)),
        }
    }

    fn read(&self, (op, path, watch): &(i32, Name, bool)) -> (i32, Body) {
        let body = self.path(path);
        (
            *op,
            if *op == op::DELETE {
                body.i32(-1)
            } else {
                body.bool(*watch)
            },
        )
    }

    fn set_watches(&self, ago: i64, lists: &[Option<Vec<Name>>]) -> Body {
        // Early versions of 3.9 also send events for nodes that may not be read.
        let tells = is_early_3_9();
        let ago = if tells { 0 } else { ago };
        lists
            .iter()
            .enumerate()
            .fold(Body::new().i64(self.last - ago), |body, (kind, list)| {
                let Some(list) = list else {
                    return body.i32(-1);
                };
                // The second list is of nodes that did not exist.
                let list = if tells && kind == 1 { &[][..] } else { list };
                list.iter().fold(body.i32(list.len() as i32), |body, path| {
                    body.then(&self.path(path))
                })
            })
    }

    fn request(&self, step: &Step) -> (i32, Body) {
        let text = |text: &Option<&'static str>| Body::new().buffer(text.map(str::as_bytes));
        match step {
            Step::Write(item) => self.item(item),
            Step::Multi(items) => (
                op::MULTI,
                Body::multi(&items.iter().map(|item| self.item(item)).collect::<Vec<_>>()),
            ),
            Step::Check { path, version } => (op::CHECK, self.path(path).i32(*version)),
            Step::Exists { path, watch } => (op::EXISTS, self.path(path).bool(*watch)),
            Step::GetData { path, watch } => (op::GET_DATA, self.path(path).bool(*watch)),
            Step::GetChildren { path, watch, stat } => {
                let op = if *stat {
                    op::GET_CHILDREN2
                } else {
                    op::GET_CHILDREN
                };
                (op, self.path(path).bool(*watch))
            }
            Step::MultiRead(reads) => {
                let reads: Vec<_> = reads.iter().map(|read| self.read(read)).collect();
                (op::MULTI_READ, Body::multi(&reads))
            }
            Step::SetAcl { path, acl, version } => (
                op::SET_ACL,
                self.path(path).odd_acl(ACLS[*acl]).i32(*version),
            ),
            Step::GetAcl { path } => (op::GET_ACL, self.path(path)),
            Step::Sync { path } => (op::SYNC, self.path(path)),
            Step::CheckWatches { path, kind } => (op::CHECK_WATCHES, self.path(path).i32(*kind)),
            Step::RemoveWatches { path, kind } => (op::REMOVE_WATCHES, self.path(path).i32(*kind)),
            Step::AddWatch { path, mode } => (op::ADD_WATCH, self.path(path).i32(*mode)),
            Step::SetWatches { ago, lists, op } => {
                let lists = &lists[..if *op == op::SET_WATCHES2 { 5 } else { 3 }];
                (*op, self.set_watches(*ago, lists))
            }
            Step::GetEphemerals {
                prefix: Prefix::Below(path),
            } => (op::GET_EPHEMERALS, self.path(path)),
            Step::GetEphemerals {
                prefix: Prefix::Bare(prefix),
            } => (op::GET_EPHEMERALS, text(prefix)),
            Step::GetAllChildrenNumber { path } => (op::GET_ALL_CHILDREN_NUMBER, self.path(path)),
            Step::WhoAmI => (op::WHO_AM_I, Body::new()),
            Step::Auth {
                scheme,
                credentials,
            } => (
                op::AUTH,
                Body::new()
                    .i32(0)
                    .then(&text(scheme))
                    .then(&text(credentials)),
            ),
            Step::Sasl { token } => (op::SASL, Body::new().buffer(token.as_deref())),
            Step::Reconfig { members } => (
                op::RECONFIG,
                text(members).buffer(None).buffer(None).i64(-1),
            ),
            Step::DeleteContainer { bytes } => (op::DELETE_CONTAINER, Body(bytes.clone())),
            Step::Unknown { op } => (*op, Body::new()),
            Step::Malformed { op, bytes } => (*op, Body(bytes.clone())),
            Step::Reconnect | Step::NewSession => unreachable!("not requests"),
        }
    }

    fn reconnect(&mut self, seen: &mut String, actor: usize) -> io::Result<()> {
        let Raw { greeting, .. } = &self.actors[actor];
        let back = Raw::reconnect(self.addr, 30_000, greeting.session, &greeting.password, 0)?;
        let _ = write!(seen, "same session: {}", back.session() == greeting.session);
        self.actors[actor] = back;
        Ok(())
    }

    /// Sends a check, which may have no reply: what comes before the reply to a ping is the reply
    /// to the check.
    fn check(&mut self, seen: &mut String, actor: usize, body: &Body) -> io::Result<()> {
        let raw = &mut self.actors[actor];
        let xid = raw.send(op::CHECK, body)?;
        raw.send(op::PING, &Body::new())?;
        loop {
            let frame = self.actors[actor].recv()?;
            if frame.xid != xid {
                return Ok(());
            }
            self.frames(seen, actor, op::CHECK, Ok((Vec::new(), frame)));
        }
    }

    /// Does a step; returns everything that could be seen of it.
    fn run(&mut self, actor: usize, step: &Step) -> io::Result<String> {
        let mut seen = String::new();
        match step {
            Step::Reconnect => self.reconnect(&mut seen, actor)?,
            Step::NewSession => {
                let closed = self.actors[actor].ask(op::CLOSE_SESSION, &Body::new());
                self.frames(&mut seen, actor, op::CLOSE_SESSION, closed);
                self.actors[actor] = Raw::connect(self.addr, 30_000)?;
                self.owners
                    .insert(self.actors[actor].session(), format!("client {actor}"));
            }
            // Since 3.9.6 these are refused, also by the test server.
            Step::Check { .. } | Step::DeleteContainer { .. } if is_early_3_9() => {}
            Step::Check { .. } if !is_at_least([3, 9, 6]) => {
                let (_, body) = self.request(step);
                if self.check(&mut seen, actor, &body).is_err() {
                    seen.push_str("closed");
                }
            }
            step => {
                let (op, body) = self.request(step);
                let answer = self.actors[actor].ask(op, &body);
                // A refusal of an unknown request, or of credentials, ends the connection shortly
                // after.
                let ends = answer
                    .as_ref()
                    .is_ok_and(|(_, reply)| matches!(reply.error, -6 | -115));
                self.frames(&mut seen, actor, op, answer);
                if ends {
                    let end = self.actors[actor].recv().map(|frame| (Vec::new(), frame));
                    self.frames(&mut seen, actor, op, end);
                    self.reconnect(&mut seen, actor)?;
                }
            }
        }
        // A reply to a later request comes after every event of this one.
        for actor in 0..ACTORS {
            let answer = self.actors[actor].ask(op::PING, &Body::new());
            let closed = answer.is_err();
            self.frames(&mut seen, actor, op::PING, answer);
            if closed {
                self.reconnect(&mut seen, actor)?;
            }
        }
        if matches!(step, Step::NewSession) {
            // The nodes of a session go in no particular order.
            let mut lines: Vec<_> = seen.split_inclusive('\n').map(str::trim_end).collect();
            lines.sort_unstable();
            seen = lines.join("\n");
        }
        Ok(seen)
    }

    fn frames(
        &mut self,
        seen: &mut String,
        actor: usize,
        op: i32,
        answer: io::Result<(Vec<Frame>, Frame)>,
    ) {
        let (events, reply) = match answer {
            Ok(answer) => answer,
            Err(error) => {
                // Chance decides whether the connection ends with a reset.
                let silent = error.kind() == io::ErrorKind::WouldBlock;
                let what = if silent { "no reply" } else { "closed" };
                let _ = write!(seen, "\n  client {actor}: {what} after {op}");
                return;
            }
        };
        for event in events {
            let _ = write!(
                seen,
                "\n  client {actor}: event at {} {:?}",
                self.zxid(event.zxid),
                event.event()
            );
        }
        if reply.zxid > 0 {
            self.last = reply.zxid;
        }
        let zxid = self.zxid(reply.zxid);
        // An error has a body where ZooKeeper fails at one of several operations.
        let broken = matches!(op, op::MULTI | op::MULTI_READ) && !reply.body.is_empty();
        let body = if reply.error == 0 || broken {
            self.body(op, &reply.body)
        } else {
            format!("{:?}", reply.body)
        };
        let _ = write!(
            seen,
            "\n  client {actor}: {op} at {zxid} error {} {body}",
            reply.error
        );
    }

    fn zxid(&self, zxid: i64) -> String {
        match zxid {
            -1 | 0 => zxid.to_string(),
            before if before < self.base => "before".to_owned(),
            zxid => format!("+{}", zxid - self.base),
        }
    }

    fn stat(&self, parse: &mut Parse<'_>) -> String {
        let stat = parse.stat();
        let owner = match stat.ephemeral_owner {
            0 => "nobody",
            id => self.owners.get(&id).map_or("a stranger", String::as_str),
        };
        format!(
            "[c {} m {} p {} v {} cv {} av {} len {} children {} of {owner}]",
            self.zxid(stat.czxid),
            self.zxid(stat.mzxid),
            self.zxid(stat.pzxid),
            stat.version,
            stat.cversion,
            stat.aversion,
            stat.data_length,
            stat.num_children,
        )
    }

    fn body(&self, op: i32, body: &[u8]) -> String {
        let mut parse = Parse(body);
        let text = self.result(op, &mut parse);
        assert!(
            parse.0.is_empty(),
            "{} bytes too many after the reply to {op}",
            parse.0.len()
        );
        text
    }

    fn result(&self, op: i32, parse: &mut Parse<'_>) -> String {
        let sorted = |parse: &mut Parse<'_>| {
            let mut names = parse.strings();
            names.sort();
            format!("{names:?}")
        };
        match op {
            op::CREATE | op::SYNC => parse.string(),
            op::SASL => format!("{:?}", parse.buffer()),
            op::CREATE2 | op::CREATE_CONTAINER | op::CREATE_TTL => {
                format!("{} {}", parse.string(), self.stat(parse))
            }
            op::EXISTS | op::SET_DATA | op::SET_ACL => self.stat(parse),
            op::GET_DATA => format!("{:?} {}", parse.buffer(), self.stat(parse)),
            op::GET_CHILDREN | op::GET_EPHEMERALS => sorted(parse),
            op::GET_CHILDREN2 => format!("{} {}", sorted(parse), self.stat(parse)),
            op::GET_ACL => {
                let mut acl: Vec<_> = (0..parse.i32())
                    .map(|_| (parse.i32(), parse.string(), parse.string()))
                    .collect();
                acl.sort();
                format!("{acl:?} {}", self.stat(parse))
            }
            op::WHO_AM_I => {
                let mut ids: Vec<_> = (0..parse.i32())
                    .map(|_| (parse.string(), parse.string()))
                    .collect();
                ids.sort();
                format!("{ids:?}")
            }
            op::ADD_WATCH | op::GET_ALL_CHILDREN_NUMBER => parse.i32().to_string(),
            op::MULTI | op::MULTI_READ => {
                let mut text = String::new();
                loop {
                    let (op, done, error) = (parse.i32(), parse.bool(), parse.i32());
                    let _ = write!(text, "({op} {done} {error}");
                    if done {
                        return text + ")";
                    }
                    let result = if op == -1 {
                        parse.i32().to_string()
                    } else {
                        self.result(op, parse)
                    };
                    let _ = write!(text, ": {result}) ");
                }
            }
            _ => String::new(),
        }
    }
}

/// Leaves nothing behind but nodes: a session that expired in the middle of another script would be
/// a transaction there.
impl Drop for Stage {
    fn drop(&mut self) {
        for raw in &mut self.actors {
            let _ = raw.ask(op::CLOSE_SESSION, &Body::new());
        }
    }
}

/// The number of answers that the trials have compared, and of scripts that had a difference.
static COMPARED: AtomicU64 = AtomicU64::new(0);
static DIFFERENCES: AtomicU64 = AtomicU64::new(0);

/// Runs a script on both servers; `done` counts its operations.
fn compare(
    real: SocketAddr,
    ours: SocketAddr,
    script: &[(usize, Step)],
    done: &AtomicU64,
) -> Result<(), TestCaseError> {
    let failed = |what: &str, error: io::Error| TestCaseError::fail(format!("{what}: {error}"));
    let root = unique_path("script");
    let mut real = Stage::open(real, &root).map_err(|error| failed("ZooKeeper", error))?;
    let mut ours = Stage::open(ours, &root).map_err(|error| failed("the test server", error))?;
    for (number, (actor, step)) in script.iter().enumerate() {
        let expected = real
            .run(*actor, step)
            .map_err(|error| failed("ZooKeeper", error))?;
        let got = ours
            .run(*actor, step)
            .map_err(|error| failed("the test server", error))?;
        done.fetch_add(1, Ordering::Relaxed);
        if expected != got {
            return Err(TestCaseError::fail(format!(
                "step {number}, client {actor}: {step:?}\nZooKeeper:{expected}\ntest server:{got}"
            )));
        }
    }
    Ok(())
}

/// Whether the real servers are of this version or a later one; `false` if they do not report their
/// version.
fn is_at_least(version: [u32; 3]) -> bool {
    peers::zookeeper().is_ok_and(|peer| peer.numbers() >= Some(version))
}

/// Whether the real servers are from 3.9 to 3.9.5. The test server behaves as 3.9.6.
fn is_early_3_9() -> bool {
    is_at_least([3, 9, 0]) && !is_at_least([3, 9, 6])
}

/// Returns the version of the real servers, and of the test server with them.
fn release() -> Version {
    if is_at_least([3, 9, 0]) {
        Version::V3_9
    } else {
        Version::V3_8
    }
}

fn ours() -> Builder {
    // A sweep in the middle of a script would be a difference of time only.
    Server::builder()
        .container_check_interval(Duration::from_secs(3600))
        .super_digest(SUPER)
}

/// The hash of `super:admin`.
const SUPER: &str = "super:xQJmxLMiHGwaqBvst5y6rkB6HQs=";

/// The scripts run one at a time, because transactions are counted.
static TURN: Mutex<()> = Mutex::new(());

fn real() -> Result<Arc<ZooKeeper>, String> {
    static REAL: OnceLock<Result<Arc<ZooKeeper>, String>> = OnceLock::new();
    let start = || {
        let options = Options::new()
            .container_check(Duration::from_secs(3600))
            .jvm_arg(format!(
                "-Dzookeeper.DigestAuthenticationProvider.superDigest={SUPER}"
            ));
        ZooKeeper::standalone(&options)
            .map(Arc::new)
            .map_err(|error| error.to_string())
    };
    REAL.get_or_init(start).clone()
}

fn described(error: TestError<Vec<(usize, Step)>>) -> String {
    match error {
        TestError::Fail(reason, script) => {
            let steps: String = script.iter().map(|step| format!("\n  {step:?}")).collect();
            format!("{reason}\nscript:{steps}")
        }
        error => error.to_string(),
    }
}

/// How many operations are to be compared.
fn wanted() -> u64 {
    std::env::var("OPERATIONS")
        .ok()
        .and_then(|count| count.parse().ok())
        .unwrap_or(OPERATIONS)
}

fn new_seed() -> u64 {
    static SEED: OnceLock<u64> = OnceLock::new();
    let given = || {
        std::env::var("SEED")
            .ok()
            .and_then(|seed| seed.parse().ok())
    };
    *SEED.get_or_init(|| given().unwrap_or_else(|| RandomState::new().hash_one(0) >> 32))
}

/// Compares a share of the operations.
fn scripts(mut runner: TestRunner) -> Result<(), String> {
    let share = wanted().div_ceil(SEEDS.len() as u64 + 1);
    let real = real()?;
    let ours = ours()
        .zookeeper_version(release())
        .start()
        .map_err(|error| error.to_string())?;
    let done = AtomicU64::new(0);
    let run = |script: Vec<(usize, Step)>| {
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        compare(real.address(0), ours.addr(), &script, &done)?;
        let left = ours.sessions();
        prop_assert!(left.is_empty(), "sessions were not closed: {left:?}");
        Ok(())
    };
    let mut outcome = Ok(());
    while outcome.is_ok() && done.load(Ordering::Relaxed) < share {
        let mut round = TestRunner::new_with_rng(config(), runner.new_rng());
        outcome = round.run(&script(), run).map_err(described);
    }
    COMPARED.fetch_add(done.load(Ordering::Relaxed), Ordering::Relaxed);
    DIFFERENCES.fetch_add(outcome.is_err().into(), Ordering::Relaxed);
    outcome
}

fn compared() -> Option<String> {
    let operations = COMPARED.load(Ordering::Relaxed);
    let version = peers::zookeeper().ok()?.version.unwrap_or_default();
    let differences = DIFFERENCES.load(Ordering::Relaxed);
    let seed = new_seed();
    (operations > 0).then(|| {
        format!(
            "ZooKeeper {version}, SEED={seed}: operations: {operations} differences: {differences}"
        )
    })
}

/// Runs scripts on a server that is wrong on purpose. The comparison must notice that.
fn is_caught(wrong: &Server) -> Result<(), String> {
    const SCRIPTS: u32 = 400;
    let real = real()?;
    let config = Config {
        cases: SCRIPTS,
        max_shrink_iters: 0,
        ..config()
    };
    let mut runner =
        TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &[9; 32]));
    let done = AtomicU64::new(0);
    let found = runner.run(&script(), |script| {
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        compare(real.address(0), wrong.addr(), &script, &done)
    });
    match found {
        Err(TestError::Fail(reason, _)) => {
            println!("noticed after {} operations: {reason}", done.into_inner());
            Ok(())
        }
        Err(error) => Err(error.to_string()),
        Ok(()) => Err(format!("not noticed in {} operations", done.into_inner())),
    }
}

/// A server that is wrong in one way, and its name.
type Wrong = (&'static str, fn() -> io::Result<Server>);

const WRONG: [Wrong; 5] = [
    ("server_of_another_release", || {
        let other = if release() == Version::V3_8 {
            Version::V3_9
        } else {
            Version::V3_8
        };
        ours().zookeeper_version(other).start()
    }),
    ("server_that_restores_no_session", || {
        ours().zookeeper_version(Version::ClickHouseKeeper).start()
    }),
    ("server_that_deletes_nothing", || {
        let server = ours().zookeeper_version(release()).start()?;
        server.fail(Match::op(Op::Delete).always(), 0);
        Ok(server)
    }),
    ("server_that_removes_any_watch", || {
        let server = ours().zookeeper_version(release()).start()?;
        server.fail(Match::op(Op::RemoveWatches).always(), 0);
        Ok(server)
    }),
    ("server_that_lags_behind", || {
        let server = ours().zookeeper_version(release()).members(3).start()?;
        server.set_member(0, Member::Behind);
        Ok(server)
    }),
];

/// The number of a new sequential child.
fn next_number(raw: &mut Raw, directory: &str) -> Option<i32> {
    let (path, _) = raw.create(&format!("{directory}/n-"), 3);
    path.rsplit_once('-')
        .and_then(|(_, number)| number.parse().ok())
}

fn delete(path: &str) -> (i32, Body) {
    (op::DELETE, Body::new().string(path).i32(-1))
}

fn remove(raw: &mut Raw, directory: &str) {
    let children = raw.call(op::GET_CHILDREN, &Body::path_watch(directory, false));
    for child in Parse(&children.body).strings() {
        raw.call(op::DELETE, &delete(&format!("{directory}/{child}")).1);
    }
    raw.call(op::DELETE, &delete(directory).1);
}

/// Every create that succeeds is counted, and nothing else; a directory that is made again begins
/// at 0.
fn creates_number_the_children(addr: SocketAddr) -> io::Result<()> {
    let mut raw = Raw::connect(addr, 30_000)?;
    let dir = unique_path("numbers");
    let child = |name: &str| format!("{dir}/{name}");
    let mut numbers = Vec::new();
    for incarnation in [
        (op::CREATE_CONTAINER, 4),
        (op::CREATE, 0),
        (op::CREATE_CONTAINER, 4),
    ] {
        let (make, flags) = incarnation;
        raw.call(make, &Body::create(&dir, b"", flags));
        let mut next = |raw: &mut Raw, what| numbers.push((what, next_number(raw, &dir)));
        next(&mut raw, "the first");
        next(&mut raw, "the next");
        raw.call(op::DELETE, &delete(&child("n-0000000000")).1);
        raw.call(op::DELETE, &delete(&child("n-0000000001")).1);
        next(&mut raw, "after deletions");
        raw.create(&child("note"), 0);
        next(&mut raw, "after a child without a number");
        let (_, refused) = raw.ask(op::CREATE2, &Body::create(&child("note"), b"", 0))?;
        assert_eq!(refused.error, -110, "it exists");
        raw.call(
            op::SET_DATA,
            &Body::new().string(&dir).buffer(Some(b"x")).i32(-1),
        );
        next(&mut raw, "after a create that failed, and other data");
        let rolled_back = [
            (op::CREATE2, Body::create(&child("n-"), b"", 3)),
            delete(&child("nothing")),
        ];
        raw.ask(op::MULTI, &Body::multi(&rolled_back))?;
        next(&mut raw, "after a transaction that failed");
        // The transaction is that of a downgrade.
        let exchange = [
            (op::CREATE2, Body::create(&child("r-0000000005"), b"", 1)),
            delete(&child("n-0000000005")),
        ];
        raw.call(op::MULTI, &Body::multi(&exchange));
        next(&mut raw, "after an exchange");
        remove(&mut raw, &dir);
    }
    raw.ask(op::CLOSE_SESSION, &Body::new())?;
    let (whats, numbers): (Vec<_>, Vec<_>) = numbers.into_iter().unzip();
    let expected = [0, 1, 2, 4, 5, 6, 8].repeat(3);
    let expected: Vec<_> = expected.into_iter().map(Some).collect();
    assert_eq!(numbers, expected, "{whats:?}");
    Ok(())
}

/// How often a directory is replaced.
const REPLACEMENTS: u32 = 400;
/// How long a replacement takes at most: the other client's thread may be kept waiting while this
/// one's runs.
const SOON: Duration = Duration::from_secs(60);

/// Replaces an empty directory, in one transaction or in two, as soon as it is empty. Returns the
/// transaction in which it was deleted.
fn replace(raw: &mut Raw, directory: &str, at_once: bool) -> io::Result<i64> {
    let make = (op::CREATE, Body::create(directory, b"", 0));
    loop {
        let (_, reply) = if at_once {
            raw.ask(op::MULTI, &Body::multi(&[delete(directory), make.clone()]))?
        } else {
            raw.ask(op::DELETE, &delete(directory).1)?
        };
        // The reply to a transaction that fails differs from that to a success only in the results.
        let done = reply.error == 0 && (!at_once || Parse(&reply.body).i32() == op::DELETE);
        if done {
            if !at_once {
                raw.call(make.0, &make.1);
            }
            return Ok(reply.zxid);
        }
    }
}

/// A client watches a directory, and creates and deletes a child of it all the time, while another
/// replaces the directory. Every answer after the deletion comes after the event of the deletion.
fn deletion_event_precedes_later_replies(addr: SocketAddr) -> io::Result<()> {
    const DELETED: i32 = 2;
    let dir = unique_path("replaced");
    let mut client = Raw::connect(addr, 30_000)?;
    let mut other = Raw::connect(addr, 30_000)?;
    client.create(&dir, 0);
    let (go, gone) = (mpsc::channel(), mpsc::channel());
    let replaced = dir.clone();
    let replacer = thread::spawn(move || -> io::Result<()> {
        for at_once in go.1 {
            let _ = gone.0.send(replace(&mut other, &replaced, at_once)?);
        }
        other.ask(op::CLOSE_SESSION, &Body::new())?;
        Ok(())
    });
    let told = |events: &[Frame]| {
        events
            .iter()
            .any(|event| event.event() == (DELETED, 3, dir.clone()))
    };
    let ended = || io::Error::other("the other client has failed");
    let mut in_successor = 0;
    for round in 0..REPLACEMENTS {
        client.call(op::GET_DATA, &Body::path_watch(&dir, true));
        go.0.send(round % 2 == 0).map_err(|_| ended())?;
        // The last reply before the event.
        let mut untold = 0;
        let begun = Instant::now();
        let last = loop {
            let (events, made) =
                client.ask(op::CREATE2, &Body::create(&format!("{dir}/n-"), b"", 3))?;
            if told(&events) {
                break made;
            }
            untold = untold.max(made.zxid);
            if made.error == 0 {
                let path = Parse(&made.body).string();
                let (events, reply) = client.ask(op::DELETE, &delete(&path).1)?;
                if told(&events) {
                    break reply;
                }
                untold = untold.max(reply.zxid);
            }
            assert!(
                begun.elapsed() < SOON,
                "round {round}: expected an event of the deletion"
            );
        };
        let deleted = gone.1.recv().map_err(|_| ended())?;
        assert!(
            untold < deleted,
            "round {round}: the reply at {untold} came before the event of the deletion at {deleted}"
        );
        if last.error == 0 && last.zxid > deleted {
            in_successor += 1;
            client.call(op::DELETE, &delete(&Parse(&last.body).string()).1);
        }
    }
    drop(go.0);
    replacer.join().map_err(|_| ended())??;
    client.call(op::DELETE, &delete(&dir).1);
    client.ask(op::CLOSE_SESSION, &Body::new())?;
    println!(
        "{in_successor} of {REPLACEMENTS} were told by the reply to a create in the successor"
    );
    assert!(
        in_successor > REPLACEMENTS / 4,
        "{in_successor} creates in the successor"
    );
    Ok(())
}

fn word(addr: SocketAddr, word: &[u8]) -> io::Result<String> {
    let mut stream = raw::dial(addr)?;
    stream.write_all(word)?;
    let mut text = String::new();
    // A word that a number follows may be answered before the whole number is read, and the
    // connection is then reset.
    match stream.read_to_string(&mut text) {
        Err(error) if error.kind() != io::ErrorKind::ConnectionReset => Err(error),
        _ => Ok(text),
    }
}

/// Sends requests without waiting in between; returns the xids and errors of the replies until all
/// are there, or the connection ends.
fn at_once(raw: &mut Raw, requests: &[(i32, Body)]) -> io::Result<Vec<(i32, i32)>> {
    let mut bytes = Vec::new();
    for (xid, (op, body)) in (100..).zip(requests) {
        let frame = Body::new().i32(xid).i32(*op).then(body).0;
        bytes.extend((frame.len() as i32).to_be_bytes());
        bytes.extend(frame);
    }
    raw.stream.write_all(&bytes)?;
    let replies = std::iter::from_fn(|| raw.recv().ok()).take(requests.len());
    Ok(replies.map(|reply| (reply.xid, reply.error)).collect())
}

/// An `auth` is replied to before an earlier create.
fn auth_is_early(addr: SocketAddr) -> io::Result<bool> {
    let mut raw = Raw::connect(addr, 30_000)?;
    let auth = Body::new().i32(0).string("digest").buffer(Some(b"u:p"));
    let replies = at_once(
        &mut raw,
        &[
            (op::CREATE, Body::create(&unique_path("r"), b"", 1)),
            (op::AUTH, auth),
        ],
    )?;
    raw.call(op::CLOSE_SESSION, &Body::new());
    Ok(replies == [(101, 0), (100, 0)])
}

/// A write behind a `setACL` is checked against the old list, and the next one against the new
/// list.
fn acl_is_late(addr: SocketAddr) -> io::Result<bool> {
    let mut raw = Raw::connect(addr, 30_000)?;
    let path = unique_path("r");
    raw.create(&path, 1);
    let closed = Body::new()
        .string(&path)
        .acl(&[(31, "digest", "nobody:x")])
        .i32(-1);
    let write = Body::new().string(&path).buffer(None).i32(-1);
    let replies = at_once(
        &mut raw,
        &[(op::SET_ACL, closed), (op::SET_DATA, write.clone())],
    )?;
    assert_eq!(raw.ask(op::SET_DATA, &write)?.1.error, -102);
    raw.call(op::CLOSE_SESSION, &Body::new());
    Ok(replies == [(100, 0), (101, 0)])
}

/// The order is the same if another `setACL`, which is refused, comes between them.
fn acl_is_late_behind_a_refused_one(addr: SocketAddr) -> io::Result<bool> {
    const NO_VERSION: i32 = 7;
    let mut raw = Raw::connect(addr, 30_000)?;
    let path = unique_path("r");
    raw.create(&path, 1);
    let closed = |version| {
        (
            op::SET_ACL,
            Body::new()
                .string(&path)
                .acl(&[(31, "digest", "nobody:x")])
                .i32(version),
        )
    };
    let write = Body::new().string(&path).buffer(None).i32(-1);
    let replies = at_once(
        &mut raw,
        &[closed(-1), closed(NO_VERSION), (op::SET_DATA, write)],
    )?;
    raw.call(op::CLOSE_SESSION, &Body::new());
    Ok(replies == [(100, 0), (101, -103), (102, 0)])
}

/// A request behind a `closeSession` is replied to.
fn close_is_late(addr: SocketAddr) -> io::Result<bool> {
    let mut raw = Raw::connect(addr, 30_000)?;
    let read = (op::EXISTS, Body::path_watch("/", false));
    let replies = at_once(
        &mut raw,
        &[(op::CLOSE_SESSION, Body::new()), read.clone(), read],
    )?;
    Ok(replies == [(100, 0), (101, -112), (102, -112)])
}

/// Returns how often each race was lost.
fn races_lost(addr: SocketAddr, attempts: usize) -> io::Result<[usize; 4]> {
    let races: [fn(SocketAddr) -> io::Result<bool>; 4] = [
        auth_is_early,
        acl_is_late,
        acl_is_late_behind_a_refused_one,
        close_is_late,
    ];
    let mut lost = [0; 4];
    for _ in 0..attempts {
        for (race, lost) in races.iter().zip(&mut lost) {
            *lost += usize::from(race(addr)?);
        }
    }
    Ok(lost)
}

/// A member that is cut off serves reads to clients that accept a read-only member, and serves no
/// other client.
fn is_read_only(addr: SocketAddr) -> io::Result<()> {
    // A real member stays silent until it knows that the others are gone.
    let read_only = || (word(addr, b"isro").ok()? == "ro").then_some(());
    poll_until("read-only mode", SOON, read_only).map_err(io::Error::other)?;
    assert!(
        Raw::connect(addr, 30_000).is_err(),
        "a client that does not allow for it"
    );
    let mut raw = Raw::read_only(addr, 30_000)?;
    assert!(raw.greeting.read_only && raw.session() != 0);
    let path = || Body::new().string("/a");
    let mut error = |op, body: &Body| raw.ask(op, body).map(|(_, reply)| reply.error);
    assert_eq!(error(op::GET_CHILDREN, &Body::path_watch("/", true))?, 0);
    assert_eq!(error(op::EXISTS, &Body::path_watch("/a", true))?, -101);
    assert_eq!(error(op::GET_DATA, &Body::path_watch("/before", false))?, 0);
    assert_eq!(error(op::CREATE2, &Body::create("/a", b"", 0))?, -119);
    assert_eq!(error(op::CREATE, &Body::create("/a", b"", 0))?, -119);
    assert_eq!(error(op::DELETE, &path().i32(-1))?, -119);
    assert_eq!(error(op::SET_DATA, &path().buffer(None).i32(-1))?, -119);
    assert_eq!(error(op::SET_ACL, &path().acl(raw::OPEN).i32(-1))?, -119);
    assert_eq!(
        error(
            op::MULTI,
            &Body::multi(&[(op::CREATE, Body::create("/a", b"", 0))])
        )?,
        -119
    );
    assert_eq!(error(op::SYNC, &path())?, -119);
    assert_eq!(error(op::PING, &Body::new())?, 0);
    let auth = Body::new().i32(0).string("digest").buffer(Some(b"u:p"));
    assert_eq!(error(op::AUTH, &auth)?, 0);
    assert_eq!(error(op::CLOSE_SESSION, &Body::new())?, 0);
    assert!(raw.recv().is_err(), "the connection is closed");
    Ok(())
}

/// Returns a session of each member, with an ephemeral node, so that all members know it.
fn owners(addr: SocketAddr, other: SocketAddr) -> io::Result<Vec<Raw>> {
    let owners = [addr, other].map(|addr| {
        let mut raw = Raw::connect(addr, 30_000)?;
        raw.create(&unique_path("before"), 1);
        Ok(raw)
    });
    let mut owners: Vec<Raw> = owners.into_iter().collect::<io::Result<_>>()?;
    // After the sync, the first member has applied both creates.
    for raw in &mut owners[..1] {
        raw.call(op::SYNC, &Body::new().string("/"));
    }
    Ok(owners)
}

/// A read-only member resumes no session of before, and without local sessions begins none.
fn refuses_sessions(addr: SocketAddr, before: &[Raw], has_local: bool) -> io::Result<()> {
    let hello = |session, password: &[u8], allows: bool| {
        let mut hello = raw::hello(0, 30_000, session, password);
        hello.0.pop();
        hello.bool(allows)
    };
    for old in before {
        for password in [&old.greeting.password[..], &[7; 16]] {
            for allows in [true, false] {
                let resumed = Raw::open(addr, &hello(old.session(), password, allows));
                assert!(resumed.is_err(), "{allows}");
            }
        }
    }
    let mut unknown = Raw::open(addr, &hello(0x123_4567, &[7; 16], true))?;
    assert_eq!(unknown.session(), 0);
    assert!(unknown.recv().is_err());
    if has_local {
        let old = Raw::open(addr, &hello(0, &[0; 16], true))?;
        let password = &old.greeting.password;
        let mut new = Raw::open(addr, &hello(old.session(), password, true))?;
        assert_eq!(new.session(), old.session());
        let mut old = old;
        assert!(old.recv().is_err(), "to the same member");
        return new.ask(op::CLOSE_SESSION, &Body::new()).map(drop);
    }
    let mut stream = raw::dial(addr)?;
    raw::write_frame(&mut stream, &hello(0, &[0; 16], true).0)?;
    let reply = raw::read_frame(&mut stream)?;
    let mut parse = Parse(&reply);
    let (xid, zxid, error) = (parse.i32(), parse.i64(), parse.i32());
    assert_eq!((xid, error, parse.0), (0, -119, &[][..]));
    assert!(zxid > 0);
    // The connection stays open, and is silent.
    raw::write_frame(&mut stream, &Body::new().i32(-2).i32(op::PING).0)?;
    stream.set_read_timeout(Some(Duration::from_millis(300)))?;
    let silence = raw::read_frame(&mut stream).map_err(|error| error.kind());
    assert_eq!(silence, Err(io::ErrorKind::WouldBlock));
    Ok(())
}

/// Returns the lines of an answer that are the same on all servers.
fn lines(word: &str, text: &str) -> BTreeSet<String> {
    let key = |line: &str, separator| line.split(separator).next().unwrap_or_default().to_owned();
    let lines = text
        .lines()
        .map(|line| match (word, line.split_once(": ")) {
            ("mntr", _) => key(line, '\t'),
            ("envi" | "conf", _) => key(line, '='),
            (_, Some((before, _))) if before.ends_with("version") => before.to_owned(),
            ("dump", _) if line.contains("expire at") => "expire at".to_owned(),
            _ => numbers(line),
        });
    // The number of paths and the time at which a session expires differ by chance.
    lines
        .filter(|line| !line.ends_with("_per_namespace"))
        .collect()
}

/// Writes numbers as `#`, and the names of operations as `OP`.
fn numbers(line: &str) -> String {
    let mut text = String::new();
    let hex = line.split("0x").enumerate().map(|(index, part)| {
        let part = if index > 0 {
            part.trim_start_matches(|c: char| c.is_ascii_hexdigit())
        } else {
            part
        };
        if index > 0 {
            format!("#{part}")
        } else {
            part.to_owned()
        }
    });
    for c in hex.collect::<String>().chars() {
        let c = if c.is_ascii_digit() { '#' } else { c };
        if c != '#' || !text.ends_with('#') {
            text.push(c);
        }
    }
    match (text.find("lop="), text.find(",est=")) {
        (Some(from), Some(to)) => format!("{}OP{}", &text[..from], &text[to..]),
        _ => text,
    }
}

fn words_are_zookeepers(real: SocketAddr, ours: SocketAddr) -> io::Result<()> {
    let words = [
        "ruok", "isro", "srvr", "stat", "cons", "mntr", "conf", "envi", "dirs", "hash", "gtmk",
        "wchs", "wchp", "wchc", "dump", "crst", "cons", "srst", "srvr", "nope",
    ];
    let mut clients = Vec::new();
    for addr in [real, ours] {
        let mut raw = Raw::connect(addr, 30_000)?;
        raw.create("/word", 1);
        raw.call(op::GET_DATA, &Body::path_watch("/word", true));
        clients.push(raw);
    }
    for name in words {
        let (expected, got) = (word(real, name.as_bytes())?, word(ours, name.as_bytes())?);
        assert_eq!(
            lines(name, &got),
            lines(name, &expected),
            "{name}\nZooKeeper:\n{expected}\nours:\n{got}"
        );
    }
    for mask in [16i64, 306] {
        let set = [b"stmk", &mask.to_be_bytes()[..]].concat();
        assert_eq!(word(ours, &set)?, word(real, &set)?);
        assert_eq!(word(ours, b"gtmk")?, word(real, b"gtmk")?);
    }
    for mut raw in clients {
        raw.call(op::CLOSE_SESSION, &Body::new());
    }
    Ok(())
}

/// Compares the answers of two members with the same role in their ensembles.
fn members_say_the_same(real: SocketAddr, ours: SocketAddr) -> io::Result<()> {
    for name in [
        "ruok", "isro", "srvr", "stat", "cons", "mntr", "dirs", "wchs", "dump", "hash", "crst",
    ] {
        let (expected, got) = (word(real, name.as_bytes())?, word(ours, name.as_bytes())?);
        assert_eq!(
            roles(name, &got),
            roles(name, &expected),
            "{name}\nZooKeeper:\n{expected}\nours:\n{got}"
        );
    }
    Ok(())
}

/// Returns the lines of an answer that are the same on members with the same role. A leader has a
/// metric for each of its followers, by their numbers.
fn roles(word: &str, text: &str) -> BTreeSet<String> {
    let line = |line: String| {
        let key = line.strip_prefix("zk_").filter(|_| word == "mntr");
        let learner = key.and_then(|key| key.split_once("_learner_handler_"));
        match learner {
            Some((before, after)) => format!("{}_learner_handler_{after}", numbers(before)),
            // A value that was not measured yet is -1.
            None => line.replace("-#", "#"),
        }
    };
    let state = text.lines().filter(|line| line.contains("_state\t"));
    let lines = lines(word, text).into_iter().map(line);
    lines.chain(state.map(str::to_owned)).collect()
}

fn addresses(server: &Server) -> io::Result<Vec<SocketAddr>> {
    let connect = server.connect_string();
    let addrs = connect.split(',').map(str::parse).collect::<Result<_, _>>();
    addrs.map_err(io::Error::other)
}

/// Returns two followers and the leader.
fn by_role(real: &ZooKeeper) -> io::Result<[SocketAddr; 3]> {
    let leads = real.leader().ok_or(io::ErrorKind::NotFound)?;
    Ok([1, 2, 0].map(|behind| real.address((leads + behind) % 3)))
}

/// A session that is resumed at another member leaves its connection to the first one, which is
/// served until it asks for what the leader has to judge: a write, or if it is to the leader,
/// anything.
fn is_left([follower, other, leader]: [SocketAddr; 3]) -> io::Result<()> {
    for (from, to) in [(follower, other), (follower, leader), (leader, other)] {
        let at_leader = from == leader;
        let moved = |path: &str| -> io::Result<(Raw, Raw)> {
            let mut old = Raw::connect(from, 30_000)?;
            old.ask(op::EXISTS, &Body::path_watch(path, true))?;
            let new = Raw::reconnect(to, 30_000, old.session(), &old.greeting.password, 0)?;
            assert_eq!(new.session(), old.session());
            Ok((old, new))
        };
        let end = |mut raw: Raw| raw.ask(op::CLOSE_SESSION, &Body::new()).map(drop);
        let path = unique_path("moved");
        let none = Body::new().i64(0).strings::<&str>(&[]).strings::<&str>(&[]);
        for (op, body) in [
            (op::EXISTS, Body::path_watch("/", false)),
            (op::GET_CHILDREN, Body::path_watch("/", false)),
            (op::SYNC, Body::new().string("/")),
            (op::PING, Body::new()),
            (op::SET_WATCHES, none.strings::<&str>(&[])),
        ] {
            let (mut old, new) = moved(&path)?;
            let served = old.ask(op, &body).is_ok();
            assert_eq!(served, !at_leader, "{op} from {from} to {to}");
            end(new)?;
        }
        let auth = Body::new().i32(0).string("digest").buffer(Some(b"u:p"));
        for (op, body) in [(op::AUTH, auth), (op::MULTI, Body::multi(&[]))] {
            let (mut old, new) = moved(&path)?;
            assert_eq!(old.ask(op, &body)?.1.error, 0, "{op} from {from} to {to}");
            end(new)?;
        }
        for (op, body) in [
            (op::CREATE, Body::create(&path, b"", 0)),
            (op::DELETE, Body::new().string(&path).i32(-1)),
            (
                op::MULTI,
                Body::multi(&[(op::CREATE, Body::create(&path, b"", 0))]),
            ),
        ] {
            let (mut old, mut new) = moved(&path)?;
            assert!(old.ask(op, &body).is_err(), "{op} from {from} to {to}");
            new.call(op::SYNC, &Body::new().string(&path));
            let exists = new.ask(op::EXISTS, &Body::path_watch(&path, false))?.1;
            assert_eq!(exists.error, -101, "{op} from {from} to {to}");
            end(new)?;
        }
        // Events go to the old connection too, and the old connection may close the session.
        let (mut old, mut new) = moved(&path)?;
        new.create(&path, 1);
        assert_eq!(old.recv()?.event(), (1, 3, path));
        old.ask(op::CLOSE_SESSION, &Body::new())?;
        assert!(new.recv().is_err());
        // A wrong password changes nothing.
        let mut old = Raw::connect(from, 30_000)?;
        let refused = Raw::reconnect(to, 30_000, old.session(), &[7; 16], 0)?;
        assert_eq!(refused.session(), 0);
        old.create(&unique_path("moved"), 1);
        end(old)?;
    }
    Ok(())
}

/// Members say that they lead, follow, or have no majority, as ZooKeeper's do.
fn members_report_their_roles(real: &ZooKeeper, ours: &Server) -> io::Result<()> {
    let addrs = addresses(ours)?;
    let leads = real.leader().ok_or(io::ErrorKind::NotFound)?;
    let follows = (leads + 1) % 3;
    let mut clients = Vec::new();
    // The member with the greatest number leads here.
    let pairs =
        [(leads, 2), (follows, 0)].map(|(member, index)| (real.address(member), addrs[index]));
    for addr in pairs.iter().flat_map(|(real, ours)| [*real, *ours]) {
        let mut raw = Raw::connect(addr, 30_000)?;
        raw.call(op::EXISTS, &Body::path_watch("/", true));
        clients.push(raw);
    }
    for (real, ours) in pairs {
        members_say_the_same(real, ours)?;
    }
    drop(clients);
    for (member, index) in [(leads, 2), ((leads + 2) % 3, 1)] {
        real.kill(member);
        ours.set_member(index, Member::Down);
    }
    let is_alone = || (word(pairs[1].0, b"isro").ok()? == "null").then_some(());
    poll_until("no majority", SOON, is_alone).map_err(io::Error::other)?;
    members_say_the_same(pairs[1].0, pairs[1].1)
}

/// Sends requests that no present client sends: null paths with odd flags, reads in a multi,
/// watches on null and relative paths. Returns the errors, with what follows them.
fn odd_requests(addr: SocketAddr) -> io::Result<Vec<String>> {
    let null = || Body::new().buffer(None);
    let mut requests: Vec<(String, i32, Body)> = Vec::new();
    let mut add = |name: String, op, body| requests.push((name, op, body));
    let creates = [
        op::CREATE,
        op::CREATE2,
        op::CREATE_CONTAINER,
        op::CREATE_TTL,
    ];
    for (op, flags) in creates
        .iter()
        .flat_map(|op| (-1..9).map(move |flags| (*op, flags)))
    {
        for acl in [None, Some(&[ANYONE][..])] {
            let ttl = Body::new().i64(3_600_001);
            let create = null().buffer(None).odd_acl(acl).i32(flags).then(&ttl);
            let is_null = acl.is_none();
            add(format!("{op}, {flags}, {is_null}"), op, create.clone());
            if op != op::CREATE_TTL {
                let without = Body(create.0[..create.0.len() - 8].to_vec());
                let multi = Body::multi(&[(op, without)]);
                add(
                    format!("{op}, {flags}, {is_null} in a multi"),
                    op::MULTI,
                    multi,
                );
            }
        }
    }
    let watch = |path: Body| path.bool(false);
    let root = || Body::new().string("/");
    let items = [
        ("read", op::GET_DATA, watch(root())),
        ("read of null", op::GET_DATA, watch(null())),
        ("children", op::GET_CHILDREN, watch(root())),
        ("children of null", op::GET_CHILDREN, watch(null())),
        ("exists", op::EXISTS, watch(root())),
        ("delete", op::DELETE, Body::new().string("/none").i32(-1)),
        ("check", op::CHECK, root().i32(-1)),
    ];
    for (one, op, body) in &items {
        add(
            format!("multi: {one}"),
            op::MULTI,
            Body::multi(&[(*op, body.clone())]),
        );
        for (two, second, other) in &items {
            let multi = Body::multi(&[(*op, body.clone()), (*second, other.clone())]);
            add(format!("multi: {one}, {two}"), op::MULTI, multi);
        }
    }
    let relative = ["a", "a/b", "a/", "", "/a", "/", "//"];
    for recursive in ["none", "/elsewhere", "a/b"] {
        if recursive != "none" {
            let body = Body::new().string(recursive).i32(1);
            add(format!("watch {recursive}"), op::ADD_WATCH, body);
        }
        for (path, kind) in relative
            .iter()
            .flat_map(|path| (0..6).map(move |kind| (path, kind)))
        {
            let name = format!("check {path:?}, {kind}, with {recursive}");
            add(name, op::CHECK_WATCHES, Body::new().string(path).i32(kind));
        }
    }
    let lists = |persistent: usize, recursive: usize| {
        let nulls = |count| (0..count).fold(Body::new().i32(count), |body, _| body.buffer(None));
        (0..3)
            .fold(Body::new().i64(0), |body, _| body.i32(0))
            .then(&nulls(persistent as i32))
            .then(&nulls(recursive as i32))
    };
    for (persistent, recursive) in [(0, 1), (0, 1), (1, 0)] {
        let name = format!("watch null {persistent} {recursive}");
        add(name, op::SET_WATCHES2, lists(persistent, recursive));
    }
    let mut raw = Raw::connect(addr, 30_000)?;
    let mut told = Vec::new();
    let mut last = raw.call(op::SYNC, &root()).zxid;
    for (name, op, body) in requests {
        let reply = raw.ask(op, &body)?.1;
        // The reply to a request that fails has no times.
        let rest = if reply.error == 0 {
            &[][..]
        } else {
            &reply.body
        };
        let zxid = reply.zxid - last;
        told.push(format!("{name}: {}, {zxid}, {rest:?}", reply.error));
        last = reply.zxid;
    }
    raw.ask(op::CLOSE_SESSION, &Body::new())?;
    Ok(told)
}

/// A transaction id, and the type, the state and the path of an event.
type Told = (i64, (i32, i32, String));

/// Returns the events that a client receives when it sets its watches again, with the transaction
/// ids. `/closed` may not be read.
fn told_late(addr: SocketAddr) -> io::Result<Vec<Told>> {
    let mut raw = Raw::connect(addr, 30_000)?;
    raw.create("/open", 0);
    let acl = [(31, "digest", "nobody:x")];
    raw.call(
        op::CREATE,
        &Body::new().string("/closed").buffer(None).acl(&acl).i32(0),
    );
    let all = ["/open", "/closed", "/gone"];
    let lists = [&all[..], &all[..2], &all[..]];
    let body = lists
        .iter()
        .fold(Body::new().i64(0), |body, list| body.strings(list));
    let (events, reply) = raw.ask(op::SET_WATCHES, &body)?;
    assert_eq!(reply.error, 0);
    raw.ask(op::CLOSE_SESSION, &Body::new())?;
    Ok(events
        .into_iter()
        .map(|event| (event.zxid, event.event()))
        .collect())
}

/// Adds a behaviour that is the same on both servers.
fn add_on_both(suite: &mut Suite, name: &str, behaviour: fn(SocketAddr) -> io::Result<()>) {
    suite.add("in-process", name, move || -> io::Result<()> {
        behaviour(Server::start()?.addr())
    });
    suite.add_needing("zookeeper", name, peers::zookeeper(), move |_| {
        // The server is new, because the scripts compare how many children a root has had.
        let real = ZooKeeper::standalone(&Options::new()).map_err(|error| error.to_string())?;
        behaviour(real.address(0)).map_err(|error| error.to_string())
    });
}

fn config() -> Config {
    Config {
        cases: CASES,
        max_shrink_iters: 2000,
        failure_persistence: None,
        ..Config::default()
    }
}

fn main() {
    let mut suite = Suite::new();
    // A busy machine compares a hundred operations in a second at least.
    suite.time_limit(Duration::from_secs(600 + wanted() / 100));
    suite.last_line = Some(compared);
    add_on_both(
        &mut suite,
        "creates_number_the_children",
        creates_number_the_children,
    );
    add_on_both(
        &mut suite,
        "deletion_event_precedes_later_replies",
        deletion_event_precedes_later_replies,
    );
    suite.add_needing(
        "zookeeper",
        "words_are_zookeepers",
        peers::zookeeper(),
        |_| {
            // The server is a new one, because the connections of the scripts come and go.
            let real = ZooKeeper::standalone(&Options::new()).map_err(|error| error.to_string())?;
            let ours = ours()
                .zookeeper_version(release())
                .start()
                .map_err(|error| error.to_string())?;
            words_are_zookeepers(real.address(0), ours.addr()).map_err(|error| error.to_string())
        },
    );
    suite.add_needing(
        "zookeeper",
        "members_report_their_roles",
        peers::zookeeper(),
        |_| {
            let real =
                ZooKeeper::ensemble(3, &Options::new()).map_err(|error| error.to_string())?;
            let ours = ours()
                .zookeeper_version(release())
                .members(3)
                .start()
                .map_err(|error| error.to_string())?;
            members_report_their_roles(&real, &ours).map_err(|error| error.to_string())
        },
    );
    suite.add_needing(
        "zookeeper",
        "missed_events_arrive_late",
        peers::zookeeper(),
        |_| {
            let real = ZooKeeper::standalone(&Options::new()).map_err(|error| error.to_string())?;
            let ours = ours()
                .zookeeper_version(release())
                .start()
                .map_err(|error| error.to_string())?;
            let told = |addr| told_late(addr).map_err(|error| error.to_string());
            let mut expected = told(real.address(0))?;
            expected.retain(|(_, (_, _, path))| !is_early_3_9() || path != "/closed");
            assert_eq!(told(ours.addr())?, expected);
            Ok::<_, String>(())
        },
    );
    suite.add("in-process", "lone_member_is_read_only", || {
        let server = Server::builder().members(3).local_sessions(true).start()?;
        server.create("/before", "").map_err(io::Error::other)?;
        for (index, member) in [Member::ReadOnly, Member::Down, Member::Down]
            .into_iter()
            .enumerate()
        {
            server.set_member(index, member);
        }
        is_read_only(server.addr())?;
        assert!(server.sessions().is_empty(), "{:?}", server.sessions());
        let mut raw = Raw::read_only(server.addr(), 30_000)?;
        server.set_member(0, Member::Current);
        server.set_member(1, Member::Current);
        assert!(
            raw.recv().is_err() && server.sessions().is_empty(),
            "its session ends with the mode"
        );
        Raw::connect(server.addr(), 30_000).map(|mut raw| drop(raw.create("/a", 0)))
    });
    suite.add_needing(
        "zookeeper",
        "lone_member_is_read_only",
        peers::zookeeper(),
        |_| {
            let options = Options::new()
                .jvm_arg("-Dreadonlymode.enabled=true")
                .setting("localSessionsEnabled", "true")
                .setting("localSessionsUpgradingEnabled", "true");
            let real = ZooKeeper::ensemble(3, &options).map_err(|error| error.to_string())?;
            let mut raw =
                Raw::connect(real.address(0), 30_000).map_err(|error| error.to_string())?;
            raw.create("/before", 0);
            (1..3).for_each(|member| real.kill(member));
            is_read_only(real.address(0)).map_err(|error| error.to_string())
        },
    );
    let moves = "moved_session_leaves_its_connection";
    suite.add_needing(
        "zookeeper",
        "odd_requests_are_answered_alike",
        peers::zookeeper(),
        |_| {
            // The server is a new one, because the transactions of the scripts are counted.
            let real = ZooKeeper::standalone(&Options::new()).map_err(|error| error.to_string())?;
            let ours = ours()
                .zookeeper_version(release())
                .start()
                .map_err(|error| error.to_string())?;
            let asked = |addr| odd_requests(addr).map_err(|error| error.to_string());
            let (expected, got) = (asked(real.address(0))?, asked(ours.addr())?);
            let differ = got
                .iter()
                .zip(&expected)
                .filter(|(got, expected)| got != expected);
            assert_eq!(differ.collect::<Vec<_>>(), [], "ours, and ZooKeeper's");
            assert_eq!(got.len(), expected.len());
            Ok::<_, String>(())
        },
    );
    for has_local in [false, true] {
        let name = if has_local {
            "read_only_member_has_its_sessions"
        } else {
            "read_only_member_opens_no_session"
        };
        suite.add("in-process", name, move || {
            let server = Server::builder()
                .members(3)
                .local_sessions(has_local)
                .start()?;
            let addrs = addresses(&server)?;
            let before = owners(addrs[0], addrs[1])?;
            for (index, member) in [Member::ReadOnly, Member::Down, Member::Down]
                .into_iter()
                .enumerate()
            {
                server.set_member(index, member);
            }
            refuses_sessions(addrs[0], &before, has_local)
        });
        suite.add_needing("zookeeper", name, peers::zookeeper(), move |_| {
            let options = Options::new().jvm_arg("-Dreadonlymode.enabled=true");
            let options = if has_local {
                options
                    .setting("localSessionsEnabled", "true")
                    .setting("localSessionsUpgradingEnabled", "true")
            } else {
                options
            };
            let real = ZooKeeper::ensemble(3, &options).map_err(|error| error.to_string())?;
            let run = || {
                let before = owners(real.address(0), real.address(1))?;
                (1..3).for_each(|member| real.kill(member));
                let alone = || (word(real.address(0), b"isro").ok()? == "ro").then_some(());
                poll_until("read-only mode", SOON, alone).map_err(io::Error::other)?;
                refuses_sessions(real.address(0), &before, has_local)
            };
            run().map_err(|error: io::Error| error.to_string())
        });
    }
    suite.add("in-process", moves, || {
        let server = Server::builder().members(3).start()?;
        let addrs = addresses(&server)?;
        is_left([addrs[0], addrs[1], addrs[2]])?;
        assert!(server.sessions().is_empty(), "{:?}", server.sessions());
        Ok::<_, io::Error>(())
    });
    suite.add_needing("zookeeper", moves, peers::zookeeper(), |_| {
        let real = ZooKeeper::ensemble(3, &Options::new()).map_err(|error| error.to_string())?;
        by_role(&real)
            .and_then(is_left)
            .map_err(|error| error.to_string())
    });
    suite.add("in-process", "races_are_won", || {
        let server = Server::start()?;
        races_lost(server.addr(), 20).map(|lost| assert_eq!(lost, [0; 4]))
    });
    suite.add("in-process", "races_are_lost_if_asked", || {
        let server = Server::builder().races(true).start()?;
        races_lost(server.addr(), 20).map(|lost| assert_eq!(lost, [20; 4]))
    });
    suite.add_needing("zookeeper", "races_are_lost", peers::zookeeper(), |_| {
        // The server is a new one, because the transactions of the scripts are counted.
        let real = ZooKeeper::standalone(&Options::new()).map_err(|error| error.to_string())?;
        // On an idle server, the race of `closeSession` is lost in two of a hundred attempts.
        let (mut lost, mut attempts) = ([0; 4], 0);
        while lost.contains(&0) && attempts < 4000 {
            let more = races_lost(real.address(0), 100).map_err(|error| error.to_string())?;
            lost = std::array::from_fn(|race| lost[race] + more[race]);
            attempts += 100;
        }
        println!("races lost in {attempts}: auth, setACL, two setACL, closeSession: {lost:?}");
        if lost.contains(&0) {
            Err(format!("{lost:?} of {attempts}"))
        } else {
            Ok(())
        }
    });
    for seed in SEEDS {
        let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[seed; 32]);
        let runner = TestRunner::new_with_rng(config(), rng);
        let name = format!("scripts_of_seed_{seed}");
        suite.add_needing("zookeeper", &name, peers::zookeeper(), move |_| {
            scripts(runner)
        });
    }
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&new_seed().to_be_bytes());
    let runner =
        TestRunner::new_with_rng(config(), TestRng::from_seed(RngAlgorithm::ChaCha, &bytes));
    suite.add_needing(
        "zookeeper",
        "scripts_of_a_new_seed",
        peers::zookeeper(),
        move |_| scripts(runner),
    );
    for (name, start) in WRONG {
        let name = format!("notices_{name}");
        suite.add_needing("zookeeper", &name, peers::zookeeper(), move |_| {
            is_caught(&start().map_err(|error| error.to_string())?)
        });
    }
    suite.run()
}
