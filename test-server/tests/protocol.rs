//! The server's answers, byte for byte, to a client that writes each frame itself.

#![expect(
    clippy::unwrap_used,
    reason = "a test fails by panicking; clippy knows this only of #[test] functions"
)]

mod raw;

use std::io::{ErrorKind, Read as _, Write as _};
use std::time::{Duration, Instant};

use proptest::prelude::*;
use raw::{Body, OPEN, Parse, Raw, dial, hello, op, read_frame, write_frame};
use zookeeper_test_server::{CreateMode, NodeKind, Op, Server, Version};

const SOON: Duration = Duration::from_secs(60);
const T: i32 = 10_000;

const NO_NODE: i32 = -101;
const NO_AUTH: i32 = -102;
const NO_WATCHER: i32 = -121;
const NODE_EXISTS: i32 = -110;
const NOT_EMPTY: i32 = -111;

fn closed(raw: &mut Raw) -> bool {
    matches!(raw.recv(), Err(error) if error.kind() != ErrorKind::WouldBlock)
}

#[test]
fn timeout_is_negotiated_within_bounds() {
    let tick = Duration::from_millis(500);
    let server = Server::builder().tick(tick).start().unwrap();
    let negotiated = |asked| Raw::connect(server.addr(), asked).unwrap().greeting.timeout;
    assert_eq!(
        [negotiated(1), negotiated(5000), negotiated(99_999)],
        [1000, 5000, 10_000]
    );
    let own = Server::builder()
        .min_session_timeout(Duration::from_secs(3))
        .max_session_timeout(Duration::from_secs(7))
        .start()
        .unwrap();
    let negotiated = |asked| Raw::connect(own.addr(), asked).unwrap().greeting.timeout;
    assert_eq!(
        [negotiated(-1), negotiated(5000), negotiated(99_999)],
        [3000, 5000, 7000]
    );
}

#[test]
fn unknown_session_is_refused_with_zeros() {
    let server = Server::start().unwrap();
    let mut live = Raw::connect(server.addr(), T).unwrap();
    assert_eq!(live.greeting.password.len(), 16);
    for (session, password) in [(4711, [0; 16]), (live.session(), [0; 16])] {
        let mut raw = Raw::reconnect(server.addr(), T, session, &password, 0).unwrap();
        assert_eq!((raw.greeting.timeout, raw.session()), (0, 0));
        assert_eq!(raw.greeting.password, [0; 16]);
        assert!(closed(&mut raw));
    }
    // As in ZooKeeper, even a wrong password closes the connection of the session; the session
    // stays.
    assert!(closed(&mut live));
    let sessions = server.sessions();
    assert_eq!((sessions.len(), sessions[0].connected), (1, false));
    let back =
        Raw::reconnect(server.addr(), T, live.session(), &live.greeting.password, 0).unwrap();
    assert_eq!(back.session(), live.session());
}

#[test]
fn newer_client_gets_no_answer() {
    let server = Server::start().unwrap();
    let mut stream = dial(server.addr()).unwrap();
    write_frame(&mut stream, &hello(i64::MAX, T, 0, &[0; 16]).0).unwrap();
    assert!(read_frame(&mut stream).is_err());
    assert!(server.sessions().is_empty());
}

#[test]
fn requests_may_precede_the_greeting() {
    let server = Server::start().unwrap();
    let mut stream = dial(server.addr()).unwrap();
    write_frame(&mut stream, &hello(0, T, 0, &[0; 16]).0).unwrap();
    let create = Body::new()
        .i32(1)
        .i32(op::CREATE)
        .then(&Body::create("/a", b"", 0));
    write_frame(&mut stream, &create.0).unwrap();
    write_frame(&mut stream, &Body::new().i32(-2).i32(op::PING).0).unwrap();
    let greeting = read_frame(&mut stream).unwrap();
    assert_eq!(
        greeting.len(),
        37,
        "protocol, timeout, session, password, read-only"
    );
    assert_eq!(Parse(&read_frame(&mut stream).unwrap()).i32(), 1);
    assert_eq!(Parse(&read_frame(&mut stream).unwrap()).i32(), -2);
    assert!(server.exists("/a"));
}

#[test]
fn old_client_gets_no_readonly_flag() {
    let server = Server::start().unwrap();
    let mut stream = dial(server.addr()).unwrap();
    let hello = hello(0, T, 0, &[0; 16]).0;
    write_frame(&mut stream, &hello[..hello.len() - 1]).unwrap();
    assert_eq!(read_frame(&mut stream).unwrap().len(), 36);
}

#[test]
fn reconnect_moves_the_session() {
    let server = Server::start().unwrap();
    let mut old = Raw::connect(server.addr(), T).unwrap();
    old.create("/e", 1);
    assert_eq!(
        old.ask(op::EXISTS, &Body::path_watch("/x", true))
            .unwrap()
            .1
            .error,
        NO_NODE
    );
    assert_eq!(server.watches_on("/x"), [old.session()]);
    let mut new = Raw::reconnect(
        server.addr(),
        5000,
        old.session(),
        &old.greeting.password,
        0,
    )
    .unwrap();
    assert_eq!(new.greeting.session, old.greeting.session);
    assert_eq!(new.greeting.timeout, 5000, "the timeout is negotiated anew");
    assert!(closed(&mut old));
    assert_eq!(new.stat("/e").ephemeral_owner, new.session());
    assert_eq!(server.watches(), 0, "watches stay with the connection");
    assert_eq!(server.sessions().len(), 1);
}

#[test]
fn early_requests_belong_to_new_session() {
    let server = Server::start().unwrap();
    let mut stream = dial(server.addr()).unwrap();
    let gate = server.hold_request(zookeeper_test_server::Match::op(Op::Connect));
    write_frame(&mut stream, &hello(0, T, 0, &[0; 16]).0).unwrap();
    write_frame(
        &mut stream,
        &Body::new()
            .i32(1)
            .i32(op::CREATE)
            .then(&Body::create("/a", b"", 0))
            .0,
    )
    .unwrap();
    assert!(gate.wait_hit_blocking(SOON));
    gate.release();
    let greeting = read_frame(&mut stream).unwrap();
    let session = Parse(&greeting[8..]).i64();
    assert_eq!(Parse(&read_frame(&mut stream).unwrap()).i32(), 1);
    let counters = server.counters();
    assert_eq!(
        (
            counters.total_requests_of(session),
            counters.total_requests_of(0)
        ),
        (1, 0)
    );
    assert!(
        server
            .log()
            .iter()
            .filter(|entry| entry.op == Op::Create)
            .all(|entry| entry.session == session)
    );
}

#[test]
fn oversized_multi_read_ends_connection() {
    let server = Server::start().unwrap();
    server.create("/big", vec![b'x'; 1 << 20]).unwrap();
    let mut raw = Raw::connect(server.addr(), T).unwrap();
    let reads = |count| {
        Body::multi(&vec![
            (op::GET_DATA, Body::path_watch("/big", false));
            count
        ])
    };
    assert!(raw.call(op::MULTI_READ, &reads(40)).body.len() > 40 << 20);
    raw.send(op::MULTI_READ, &reads(10_000)).unwrap();
    assert!(closed(&mut raw));
}

#[test]
fn log_cuts_long_paths() {
    let server = Server::start().unwrap();
    let mut raw = Raw::connect(server.addr(), T).unwrap();
    let path = format!("/{}", "é".repeat(100_000));
    assert_eq!(
        raw.ask(op::EXISTS, &Body::path_watch(&path, false))
            .unwrap()
            .1
            .error,
        NO_NODE
    );
    let log = server.log();
    let logged: Vec<_> = log.iter().filter(|entry| entry.op == Op::Exists).collect();
    assert_eq!(logged.len(), 3);
    assert!(
        logged
            .iter()
            .all(|entry| entry.path.len() <= 4096 && path.starts_with(&entry.path))
    );
}

#[test]
fn multi_changes_no_permissions() {
    let server = Server::start().unwrap();
    let mut raw = Raw::connect(server.addr(), T).unwrap();
    let items = [
        (op::CREATE, Body::create("/a", b"", 0)),
        (op::SET_ACL, Body::new().string("/a").acl(OPEN).i32(-1)),
    ];
    assert_eq!(
        raw.ask(op::MULTI, &Body::multi(&items)).unwrap().1.error,
        -5
    );
    assert!(!server.exists("/a"));
}

#[test]
fn truncated_authentication_ends_connection() {
    let server = Server::start().unwrap();
    let mut raw = Raw::connect(server.addr(), T).unwrap();
    raw.send_as(-4, op::AUTH, &Body::new().i32(0).i32(6))
        .unwrap();
    assert!(closed(&mut raw));
}

/// While a server is stopped, no other server and no connection of a client is given its port at
/// random.
#[test]
fn stopped_server_keeps_its_port() {
    let server = Server::start().unwrap();
    let take = || {
        tokio::net::TcpSocket::new_v4()
            .unwrap()
            .bind(server.addr())
            .unwrap_err()
            .kind()
    };
    assert_eq!(take(), ErrorKind::AddrInUse);
    server.stop();
    assert_eq!(take(), ErrorKind::AddrInUse);
    let refused = std::net::TcpStream::connect(server.addr()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    server.restart().unwrap();
    assert_eq!(take(), ErrorKind::AddrInUse);
}

/// A listener that asks for the port of a stopped server gets it, because it may share the port
/// with a socket that does not listen.
#[test]
fn restart_reports_taken_port() {
    let server = Server::start().unwrap();
    server.stop();
    let taken = std::net::TcpListener::bind(server.addr()).unwrap();
    assert_eq!(server.restart().unwrap_err().kind(), ErrorKind::AddrInUse);
    drop(taken);
    server.restart().unwrap();
    assert!(Raw::connect(server.addr(), T).is_ok());
}

#[test]
fn watch_removal_depends_on_release() {
    for (version, persistent) in [(Version::V3_8, -5), (Version::V3_9, 0)] {
        let server = Server::builder()
            .zookeeper_version(version)
            .start()
            .unwrap();
        let mut raw = Raw::connect(server.addr(), T).unwrap();
        for (mode, kind) in [(0, 4), (1, 5)] {
            raw.call(op::ADD_WATCH, &Body::new().string("/w").i32(mode));
            let mut remove = |kind| {
                raw.ask(op::REMOVE_WATCHES, &Body::new().string("/w").i32(kind))
                    .unwrap()
                    .1
                    .error
            };
            assert_eq!((remove(0), remove(6)), (-5, -5));
            assert_eq!(remove(kind), persistent);
            assert_eq!(
                server.watches_on("/w").is_empty(),
                persistent == 0,
                "a refusal removes nothing"
            );
        }
    }
}

#[test]
fn watch_table_depends_on_release() {
    for (version, children) in [(Version::V3_8, 0), (Version::V3_9, NO_WATCHER)] {
        let server = Server::builder()
            .zookeeper_version(version)
            .start()
            .unwrap();
        let mut raw = Raw::connect(server.addr(), T).unwrap();
        raw.call(op::ADD_WATCH, &Body::new().string("/w").i32(0));
        let mut remove = |kind| {
            raw.ask(op::REMOVE_WATCHES, &Body::new().string("/w").i32(kind))
                .unwrap()
                .1
                .error
        };
        assert_eq!(remove(1), children, "{version:?}");
        assert_eq!(remove(3), 0, "{version:?}");
    }
}

#[test]
fn stat_permission_depends_on_release() {
    for (version, error) in [(Version::V3_8, 0), (Version::V3_9, NO_AUTH)] {
        let server = Server::builder()
            .zookeeper_version(version)
            .start()
            .unwrap();
        let mut raw = Raw::connect(server.addr(), T).unwrap();
        let closed = Body::new()
            .string("/closed")
            .buffer(None)
            .acl(&[(4, "world", "anyone")])
            .i32(0);
        raw.call(op::CREATE, &closed);
        for watch in [false, true] {
            let (_, reply) = raw
                .ask(op::EXISTS, &Body::path_watch("/closed", watch))
                .unwrap();
            assert_eq!(reply.error, error, "{version:?}");
        }
        assert_eq!(
            server.watches_on("/closed").is_empty(),
            error != 0,
            "a refused read sets no watch"
        );
    }
}

#[test]
fn frame_size_is_limited() {
    let server = Server::builder().max_frame(200).start().unwrap();
    let mut raw = Raw::connect(server.addr(), T).unwrap();
    // The rest of a create of /a with one permission is 8 + 6 + 4 + (4 + 4 + 9 + 10) + 4 bytes.
    let create = |len: usize| Body::create("/a", &vec![0; len], 0);
    let fits = 200 - create(0).0.len() - 8;
    raw.call(op::CREATE, &create(fits));
    raw.send(op::CREATE, &create(fits + 1)).unwrap();
    assert!(closed(&mut raw));
    let mut raw = Raw::connect(server.addr(), T).unwrap();
    raw.stream.write_all(&(-1i32).to_be_bytes()).unwrap();
    assert!(closed(&mut raw));
}

#[test]
fn stat_counts_like_zookeeper() {
    let server = Server::start().unwrap();
    let mut raw = Raw::connect(server.addr(), T).unwrap();
    let (_, created) = raw.create("/a", 0);
    assert_eq!(
        (
            created.version,
            created.cversion,
            created.aversion,
            created.num_children
        ),
        (0, 0, 0, 0)
    );
    assert_eq!(
        (created.mzxid, created.pzxid),
        (created.czxid, created.czxid)
    );
    let numbers = |raw: &mut Raw| {
        let stat = raw.stat("/a");
        (stat.cversion, stat.num_children, stat.pzxid - created.czxid)
    };
    raw.create("/a/plain", 0);
    assert_eq!(numbers(&mut raw), (1, 1, 1));
    assert_eq!(
        raw.create("/a/n-", 2).0,
        "/a/n-0000000001",
        "every child counts, numbered or not"
    );
    raw.call(op::DELETE, &Body::new().string("/a/plain").i32(-1));
    assert_eq!(numbers(&mut raw), (3, 1, 3));
    assert_eq!(
        raw.create("/a/n-", 3).0,
        "/a/n-0000000002",
        "deletes do not count"
    );
    assert_eq!(numbers(&mut raw), (4, 2, 4));
    let set = raw.call(
        op::SET_DATA,
        &Body::new().string("/a").buffer(Some(b"data")).i32(0),
    );
    let stat = Parse(&set.body).stat();
    assert_eq!(
        (stat.version, stat.data_length, stat.mzxid - stat.czxid),
        (1, 4, 5)
    );
    assert_eq!(numbers(&mut raw).2, 4, "data does not touch pzxid");
    let root = raw.stat("/");
    assert_eq!(
        (root.czxid, root.cversion, root.num_children),
        (0, 0, 2),
        "-1 before anything is created"
    );
}

#[test]
fn sequence_wraps_as_documented() {
    let server = Server::start().unwrap();
    server.create("/q", "").unwrap();
    server.set_next_sequence("/q", i32::MAX).unwrap();
    let mut raw = Raw::connect(server.addr(), T).unwrap();
    assert_eq!(raw.create("/q/n-", 2).0, "/q/n-2147483647");
    assert_eq!(raw.create("/q/n-", 2).0, "/q/n--2147483648");
    assert_eq!(raw.create("/q/n-", 2).0, "/q/n--2147483647");
    server.set_next_sequence("/q", -5).unwrap();
    assert_eq!(
        raw.create("/q/n-", 2).0,
        "/q/n--000000005",
        "ten places, the sign included"
    );
    assert!(server.set_next_sequence("/nowhere", 1).is_err());
}

#[test]
fn every_write_takes_a_transaction() {
    let server = Server::start().unwrap();
    let mut raw = Raw::connect(server.addr(), T).unwrap();
    let zxid = |raw: &mut Raw| raw.ask(op::PING, &Body::new()).unwrap().1.zxid;
    let start = zxid(&mut raw);
    assert_eq!(start >> 32, 1, "the first epoch");
    raw.create("/a", 0);
    assert_eq!(
        raw.ask(op::CREATE, &Body::create("/a", b"", 0))
            .unwrap()
            .1
            .error,
        NODE_EXISTS
    );
    assert_eq!(
        raw.ask(op::GET_DATA, &Body::path_watch("/b", false))
            .unwrap()
            .1
            .error,
        NO_NODE
    );
    assert_eq!(zxid(&mut raw) - start, 2);
    let mut other = Raw::connect(server.addr(), T).unwrap();
    assert_eq!(zxid(&mut raw) - start, 3);
    other.call(op::CLOSE_SESSION, &Body::new());
    assert_eq!(zxid(&mut raw) - start, 4);
    server.advance_epoch();
    assert_eq!(zxid(&mut raw), 2 << 32);
    assert_eq!(raw.create("/c", 0).1.czxid, (2 << 32) + 1);
}

#[test]
fn multi_is_atomic() {
    let server = Server::start().unwrap();
    let mut raw = Raw::connect(server.addr(), T).unwrap();
    raw.create("/a", 0);
    let delete = |path: &str| (op::DELETE, Body::new().string(path).i32(-1));
    let create = |path: &str| (op::CREATE, Body::create(path, b"", 0));
    let reply = raw.call(
        op::MULTI,
        &Body::multi(&[create("/a/b"), create("/a/c"), delete("/a"), create("/d")]),
    );
    let mut parse = Parse(&reply.body);
    for error in [0, 0, NOT_EMPTY, -2] {
        assert_eq!(
            (parse.i32(), parse.bool(), parse.i32(), parse.i32()),
            (-1, false, error, error)
        );
    }
    assert_eq!((parse.i32(), parse.bool(), parse.i32()), (-1, true, -1));
    assert_eq!(server.children("/"), ["a", "zookeeper"]);
    let node = server.node("/a").unwrap();
    assert_eq!(
        (node.cversion, node.next_sequence, node.pzxid),
        (0, 0, node.czxid),
        "not a trace is left"
    );
    let moved = Body::multi(&[create("/a/b"), delete("/a/b"), delete("/a"), create("/a")]);
    let reply = raw.call(op::MULTI, &moved);
    assert_eq!(
        server.node("/a").unwrap().czxid,
        reply.zxid,
        "one transaction for all"
    );
}

#[test]
fn multi_create_stat_depends_on_release() {
    for (version, answer_op, event_zxid) in [
        (Version::V3_8, op::CREATE, false),
        (Version::V3_9, op::CREATE2, true),
    ] {
        let server = Server::builder()
            .zookeeper_version(version)
            .start()
            .unwrap();
        let mut raw = Raw::connect(server.addr(), T).unwrap();
        let _ = raw.ask(op::EXISTS, &Body::path_watch("/a", true)).unwrap();
        let (events, reply) = raw
            .ask(
                op::MULTI,
                &Body::multi(&[(op::CREATE2, Body::create("/a", b"", 0))]),
            )
            .unwrap();
        let mut parse = Parse(&reply.body);
        assert_eq!(
            (parse.i32(), parse.bool(), parse.i32(), parse.string()),
            (answer_op, false, 0, "/a".into())
        );
        if version == Version::V3_9 {
            assert_eq!(parse.stat().czxid, reply.zxid);
        }
        let event = &events[0];
        assert_eq!(event.event(), (1, 3, "/a".to_owned()));
        assert_eq!(event.zxid, if event_zxid { reply.zxid } else { -1 });
    }
}

#[test]
fn event_precedes_reply_showing_its_cause() {
    let server = Server::start().unwrap();
    let mut watcher = Raw::connect(server.addr(), T).unwrap();
    let mut writer = Raw::connect(server.addr(), T).unwrap();
    for round in 0..200 {
        let path = format!("/n{round}");
        assert_eq!(
            watcher
                .ask(op::EXISTS, &Body::path_watch(&path, true))
                .unwrap()
                .1
                .error,
            NO_NODE
        );
        assert_eq!(
            watcher
                .ask(op::EXISTS, &Body::path_watch(&path, true))
                .unwrap()
                .1
                .error,
            NO_NODE
        );
        writer.create(&path, 0);
        let (events, reply) = watcher
            .ask(op::EXISTS, &Body::path_watch(&path, false))
            .unwrap();
        assert_eq!(reply.error, 0);
        let events: Vec<_> = events.iter().map(raw::Frame::event).collect();
        assert_eq!(
            events,
            [(1, 3, path)],
            "two registrations of one watch make one event"
        );
    }
    assert_eq!(server.counters().notifications_of(watcher.session()), 200);
    assert_eq!(server.counters().notifications_of(writer.session()), 0);
}

#[test]
fn closed_session_deletes_its_nodes() {
    let server = Server::start().unwrap();
    let mut watcher = Raw::connect(server.addr(), T).unwrap();
    let mut owner = Raw::connect(server.addr(), T).unwrap();
    owner.create("/e", 1);
    assert_eq!(
        owner
            .ask(op::CREATE, &Body::create("/e/c", b"", 0))
            .unwrap()
            .1
            .error,
        -108
    );
    watcher.stat("/e");
    let _ = watcher
        .ask(op::GET_DATA, &Body::path_watch("/e", true))
        .unwrap();
    let _ = watcher
        .ask(op::GET_CHILDREN, &Body::path_watch("/e", true))
        .unwrap();
    let reply = owner.call(op::CLOSE_SESSION, &Body::new());
    assert!(closed(&mut owner));
    let (events, ping) = watcher.ask(op::PING, &Body::new()).unwrap();
    assert_eq!(
        events.iter().map(raw::Frame::event).collect::<Vec<_>>(),
        [(2, 3, "/e".to_owned())]
    );
    assert_eq!(ping.zxid, reply.zxid);
}

#[test]
fn permissions_are_enforced() {
    let server = Server::start().unwrap();
    let mut owner = Raw::connect(server.addr(), T).unwrap();
    let mut other = Raw::connect(server.addr(), T).unwrap();
    let auth = |user: &str| {
        Body::new()
            .i32(0)
            .string("digest")
            .buffer(Some(user.as_bytes()))
    };
    let mine = Body::new()
        .string("/mine")
        .buffer(None)
        .acl(&[(31, "auth", "")])
        .i32(0);
    assert_eq!(
        owner.ask(op::CREATE, &mine).unwrap().1.error,
        -114,
        "the session is not authenticated yet"
    );
    assert_eq!(owner.call(op::AUTH, &auth("ann:secret")).zxid, 0);
    owner.call(op::CREATE, &mine);
    for (op, body) in [
        (op::GET_DATA, Body::path_watch("/mine", false)),
        (op::GET_CHILDREN, Body::path_watch("/mine", false)),
        (
            op::SET_DATA,
            Body::new().string("/mine").buffer(None).i32(-1),
        ),
        (op::CREATE, Body::create("/mine/c", b"", 0)),
        (op::SET_ACL, Body::new().string("/mine").acl(OPEN).i32(-1)),
        (op::GET_ACL, Body::new().string("/mine")),
    ] {
        assert_eq!(
            other.ask(op, &body).unwrap().1.error,
            NO_AUTH,
            "request {op}"
        );
        let answer = owner.ask(op, &body).unwrap().1.error;
        assert_eq!(answer, 0, "request {op} of the owner");
        if op == op::SET_ACL {
            owner.call(
                op,
                &Body::new().string("/mine").acl(&[(31, "auth", "")]).i32(-1),
            );
        }
    }
    other.call(op::AUTH, &auth("ann:secret"));
    other.call(op::GET_DATA, &Body::path_watch("/mine", false));
    let unknown = Body::new().i32(0).string("kerberos").buffer(None);
    assert_eq!(other.ask(op::AUTH, &unknown).unwrap().1.error, -115);
    assert!(closed(&mut other));
}

#[test]
fn container_ends_after_last_child() {
    let server = Server::start().unwrap();
    let mut raw = Raw::connect(server.addr(), T).unwrap();
    for path in ["/used", "/unused"] {
        raw.call(op::CREATE_CONTAINER, &Body::create(path, b"", 4));
    }
    assert_eq!(server.node("/used").unwrap().kind, NodeKind::Container);
    assert_eq!(raw.stat("/used").ephemeral_owner, 0);
    raw.create("/used/c", 0);
    assert_eq!(server.sweep_containers(), 0);
    raw.call(op::DELETE, &Body::new().string("/used/c").i32(-1));
    let _ = raw
        .ask(op::EXISTS, &Body::path_watch("/used", true))
        .unwrap();
    assert_eq!(server.sweep_containers(), 1);
    let (events, _) = raw.ask(op::PING, &Body::new()).unwrap();
    assert_eq!(events[0].event(), (2, 3, "/used".to_owned()));
    assert_eq!(server.children("/"), ["unused", "zookeeper"]);
}

#[test]
fn containers_and_ttl_nodes_expire() {
    let server = Server::builder()
        .container_check_interval(Duration::from_millis(20))
        .start()
        .unwrap();
    let container = server
        .create_as("/c", "", CreateMode::Container, 0)
        .unwrap();
    server.create("/c/child", "").unwrap();
    server.delete("/c/child").unwrap();
    let mut raw = Raw::connect(server.addr(), T).unwrap();
    let ttl = Body::create("/t", b"", 5).i64(30);
    let born = Instant::now();
    raw.call(op::CREATE_TTL, &ttl);
    assert!(
        server.wait_until_blocking(|view| !view.exists(&container) && !view.exists("/t"), SOON)
    );
    assert!(born.elapsed() >= Duration::from_millis(30));
}

#[test]
fn silent_session_expires_pinging_one_stays() {
    let timeout = Duration::from_millis(200);
    let server = Server::builder()
        .tick(Duration::from_millis(50))
        .start()
        .unwrap();
    let start = Instant::now();
    let mut silent = loop {
        assert!(start.elapsed() < SOON, "no round without a pause");
        server.freeze_expiry(true);
        let mut silent = Raw::connect(server.addr(), 200).unwrap();
        let mut pinging = Raw::connect(server.addr(), 200).unwrap();
        let said = Instant::now();
        pinging.create("/pinging", 1);
        silent.create("/silent", 1);
        server.freeze_expiry(false);
        // The server hears each ping after it is sent, and before it is answered.
        let (mut sent, mut longest) = (said, Duration::ZERO);
        while server.exists("/silent") {
            let next = Instant::now();
            let Ok((_, pong)) = pinging.ask(op::PING, &Body::new()) else {
                break;
            };
            assert_eq!(pong.error, 0);
            assert!(said.elapsed() < SOON);
            longest = longest.max(sent.elapsed());
            sent = next;
        }
        let expired = !server.exists("/silent");
        assert!(
            !expired || said.elapsed() >= timeout,
            "{:?}",
            said.elapsed()
        );
        let kept = server.exists("/pinging");
        longest = longest.max(sent.elapsed());
        if kept && expired {
            break silent;
        }
        // A busy machine may keep this thread from pinging for so long that the session expires
        // rightly.
        assert!(
            longest >= timeout,
            "expired although it pinged every {longest:?}"
        );
        assert!(server.wait_until_blocking(|view| view.sessions().is_empty(), SOON));
    };
    assert!(closed(&mut silent));
    let back = Raw::reconnect(
        server.addr(),
        200,
        silent.session(),
        &silent.greeting.password,
        0,
    )
    .unwrap();
    assert_eq!(back.session(), 0);
}

#[test]
fn frozen_sessions_do_not_expire() {
    let server = Server::builder()
        .tick(Duration::from_millis(20))
        .start()
        .unwrap();
    server.freeze_expiry(true);
    let raw = Raw::connect(server.addr(), 40).unwrap();
    let short = Duration::from_millis(200);
    assert!(!server.wait_until_blocking(|view| view.sessions().is_empty(), short));
    server.freeze_expiry(false);
    assert!(server.wait_until_blocking(|view| view.sessions().is_empty(), SOON));
    drop(raw);
}

fn word(server: &Server, word: &str) -> String {
    let mut stream = dial(server.addr()).unwrap();
    stream.write_all(word.as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn four_letter_words_read_like_zookeepers() {
    let server = Server::start().unwrap();
    let mut raw = Raw::connect(server.addr(), T).unwrap();
    raw.create("/a", 1);
    let _ = raw
        .ask(op::GET_DATA, &Body::path_watch("/a", true))
        .unwrap();
    let _ = raw
        .ask(op::GET_CHILDREN, &Body::path_watch("/a", true))
        .unwrap();
    let id = format!("{:#x}", raw.session());
    assert_eq!(word(&server, "ruok"), "imok");
    assert_eq!(word(&server, "isro"), "rw");
    assert_eq!(word(&server, "wchp"), format!("/a\n\t{id}\n\n"));
    assert_eq!(word(&server, "wchc"), format!("{id}\n\t/a\n\n"));
    assert_eq!(
        word(&server, "wchs"),
        "1 connections watching 1 paths\nTotal watches:1\n"
    );
    assert!(
        word(&server, "srvr").ends_with("Zxid: 0x100000002\nMode: standalone\nNode count: 6\n")
    );
    assert!(word(&server, "mntr").contains("\nzk_watch_count\t2\n"));
    assert!(word(&server, "stat").contains("\nClients:\n /127.0.0.1:"));
    assert!(word(&server, "cons").contains(&format!(",sid={id},lop=GETC,")));
    assert!(
        word(&server, "dump").contains(&format!("Sessions with Ephemerals (1):\n{id}:\n\t/a\n"))
    );
    assert!(word(&server, "conf").contains(&format!("clientPort={}\n", server.port())));
    assert_eq!(word(&server, "nope"), "");
}

#[test]
fn half_closed_client_gets_its_word() {
    let server = Server::start().unwrap();
    let mut stream = dial(server.addr()).unwrap();
    stream.write_all(b"ruok").unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert_eq!(text, "imok");
}

#[test]
fn unknown_request_ends_the_connection() {
    let server = Server::start().unwrap();
    let mut raw = Raw::connect(server.addr(), T).unwrap();
    assert_eq!(raw.ask(4711, &Body::new()).unwrap().1.error, -6);
    assert!(closed(&mut raw));
    assert_eq!(server.counters().requests(Op::Other(4711)), 1);
}

#[test]
fn successful_bare_check_has_no_reply() {
    let server = Server::start().unwrap();
    let mut raw = Raw::connect(server.addr(), T).unwrap();
    let check = |version| Body::new().string("/").i32(version);
    let before = raw.ask(op::PING, &Body::new()).unwrap().1.zxid;
    raw.send(op::CHECK, &check(-1)).unwrap();
    let pong = raw.ask(op::PING, &Body::new()).unwrap().1;
    assert_eq!(pong.zxid, before + 1, "it is a transaction");
    assert_eq!(raw.ask(op::CHECK, &check(7)).unwrap().1.error, -103);
    let newer = Server::builder()
        .zookeeper_version(Version::V3_9)
        .start()
        .unwrap();
    let mut raw = Raw::connect(newer.addr(), T).unwrap();
    let refused = raw.ask(op::CHECK, &check(-1)).unwrap().1;
    assert_eq!((refused.error, refused.zxid), (-6, -1));
    assert!(closed(&mut raw));
}

#[test]
fn repeated_session_request_is_greeted_again() {
    let server = Server::start().unwrap();
    let mut raw = Raw::connect(server.addr(), T).unwrap();
    raw.send(op::CREATE_SESSION, &Body::new().i32(5000))
        .unwrap();
    let greeting = read_frame(&mut raw.stream).unwrap();
    assert_eq!(Parse(&greeting[4..]).i32(), T);
    assert_eq!(Parse(&greeting[8..]).i64(), raw.session());
    assert_eq!(server.sessions()[0].timeout, Duration::from_secs(5));
    assert_eq!(
        raw.ask(op::CREATE_SESSION, &Body::new()).unwrap().1.error,
        -5
    );
}

#[test]
fn null_path_cannot_be_watched() {
    let server = Server::start().unwrap();
    let mut raw = Raw::connect(server.addr(), T).unwrap();
    let null = || Body::new().buffer(None);
    raw.call(op::ADD_WATCH, &null().i32(0));
    assert_eq!(server.watches(), 0);
    assert_eq!(
        raw.ask(op::REMOVE_WATCHES, &null().i32(3)).unwrap().1.error,
        NO_WATCHER
    );
    assert_eq!(
        raw.ask(op::GET_DATA, &null().bool(false)).unwrap().1.error,
        -5
    );
    assert_eq!(raw.call(op::SYNC, &null()).body, (-1i32).to_be_bytes());
}

#[test]
fn super_user_may_do_everything() {
    let server = Server::builder()
        .super_digest("super:xQJmxLMiHGwaqBvst5y6rkB6HQs=")
        .start()
        .unwrap();
    let mut raw = Raw::connect(server.addr(), T).unwrap();
    let closed = Body::new()
        .string("/closed")
        .buffer(None)
        .acl(&[(0, "world", "anyone")])
        .i32(0);
    raw.call(op::CREATE, &closed);
    let read = Body::path_watch("/closed", false);
    assert_eq!(raw.ask(op::GET_DATA, &read).unwrap().1.error, NO_AUTH);
    raw.call(
        op::AUTH,
        &Body::new()
            .i32(0)
            .string("digest")
            .buffer(Some(b"super:admin")),
    );
    raw.call(op::GET_DATA, &read);
}

/// Requests that are almost valid get further than random bytes.
fn almost() -> impl Strategy<Value = (i32, Vec<u8>)> {
    let op = prop_oneof![
        Just(op::CREATE),
        Just(op::MULTI),
        Just(op::MULTI_READ),
        Just(op::SET_WATCHES2),
        Just(op::CREATE_TTL),
        Just(op::ADD_WATCH),
        Just(op::AUTH),
        any::<i32>(),
    ];
    let byte = prop_oneof![5 => Just(0u8), 1 => Just(1), 1 => Just(0xff), 1 => Just(b'/'), 1 => any::<u8>()];
    (op, proptest::collection::vec(byte, 0..64))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn malformed_requests_harm_no_server(
        requests in proptest::collection::vec(almost(), 1..8),
        noise in proptest::collection::vec(any::<u8>(), 0..200),
    ) {
        static SERVER: std::sync::LazyLock<Server> = std::sync::LazyLock::new(|| Server::start().unwrap());
        let mut stream = dial(SERVER.addr()).unwrap();
        let _ = stream.write_all(&noise);
        let mut raw = Raw::connect(SERVER.addr(), T).unwrap();
        for (op, body) in &requests {
            let _ = raw.send(*op, &Body(body.clone()));
        }
        let _ = raw.stream.write_all(&noise);
        let mut well = Raw::connect(SERVER.addr(), T).unwrap();
        prop_assert_eq!(well.ask(op::PING, &Body::new()).unwrap().1.error, 0);
        well.call(op::CLOSE_SESSION, &Body::new());
    }
}

const KEEPERS: [Version; 2] = [
    Version::ClickHouseKeeper,
    Version::ClickHouseKeeperWithoutContainers,
];

/// The client does not learn that its session was not restored, and its nodes stay until the old
/// session expires (ClickHouse#116690).
#[test]
fn keeper_restores_no_session() {
    for version in KEEPERS {
        let server = Server::builder()
            .zookeeper_version(version)
            .start()
            .unwrap();
        let mut old = Raw::connect(server.addr(), T).unwrap();
        assert_eq!(
            (old.session(), old.greeting.password.clone()),
            (1, vec![0; 16]),
            "{version:?}"
        );
        old.create("/e", 1);
        let password = old.greeting.password.clone();
        drop(old);
        let mut new = Raw::reconnect(server.addr(), T, 1, &password, 0).unwrap();
        assert_eq!((new.session(), new.greeting.timeout), (2, T), "{version:?}");
        assert_eq!(
            server.node("/e").unwrap().ephemeral_owner,
            1,
            "of the session that is not restored"
        );
        assert_eq!(
            server
                .sessions()
                .iter()
                .map(|session| session.id)
                .collect::<Vec<_>>(),
            [1, 2]
        );
        new.create("/f", 1);
        assert_eq!(server.node("/f").unwrap().ephemeral_owner, 2);
        assert!(server.expire_session(1));
        assert!(!server.exists("/e") && server.exists("/f"));
    }
}

#[test]
fn keeper_closes_on_unknown_requests() {
    const CREATE_CONTAINER: i32 = 19;
    const WHO_AM_I: i32 = 107;
    for version in KEEPERS {
        let server = Server::builder()
            .zookeeper_version(version)
            .start()
            .unwrap();
        let mut raw = Raw::connect(server.addr(), T).unwrap();
        raw.send(WHO_AM_I, &Body::new()).unwrap();
        assert!(closed(&mut raw), "{version:?}");
        let mut raw = Raw::connect(server.addr(), T).unwrap();
        raw.send(CREATE_CONTAINER, &Body::create("/c", b"", 4))
            .unwrap();
        if version == Version::ClickHouseKeeper {
            assert_eq!(raw.recv().unwrap().error, 0);
            assert_eq!(server.node("/c").unwrap().kind, NodeKind::Container);
        } else {
            assert!(closed(&mut raw));
            assert!(!server.exists("/c"));
        }
        let mut raw = Raw::connect(server.addr(), T).unwrap();
        let ip = Body::new().i32(0).string("ip").buffer(Some(b"127.0.0.1"));
        raw.send_as(-4, 100, &ip).unwrap();
        assert_eq!(raw.recv().unwrap().error, -115, "{version:?}");
    }
}

#[test]
fn keeper_identifies_itself() {
    let server = Server::builder()
        .zookeeper_version(Version::ClickHouseKeeper)
        .start()
        .unwrap();
    let mut stream = std::net::TcpStream::connect(server.addr()).unwrap();
    stream.write_all(b"srvr").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(
        answer.starts_with("ClickHouse Keeper version: v26"),
        "{answer}"
    );
}
