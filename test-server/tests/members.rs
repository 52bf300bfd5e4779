//! Members of an ensemble, as seen by clients that write each frame themselves.

#![expect(
    clippy::unwrap_used,
    reason = "a test fails by panicking; clippy knows this only of #[test] functions"
)]

mod raw;

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::SocketAddr;
use std::time::Duration;

use raw::{Body, Raw, op};
use zookeeper_test_server::{
    Builder, CreateMode, HistoryEvent, Isolation, LogKind, Match, Member, Op, Server, ServerError,
    Version, View,
};

const T: i32 = 40_000;
const SOON: Duration = Duration::from_secs(60);
const CUT: Member = Member::Cut(Isolation::Follower);

fn ensemble() -> (Server, Vec<SocketAddr>) {
    started(Server::builder())
}

fn started(builder: Builder) -> (Server, Vec<SocketAddr>) {
    let server = builder.members(3).start().unwrap();
    let addrs = server
        .connect_string()
        .split(',')
        .map(|addr| addr.parse().unwrap())
        .collect();
    (server, addrs)
}

fn exists(raw: &mut Raw, path: &str) -> bool {
    raw.ask(op::EXISTS, &Body::path_watch(path, false))
        .unwrap()
        .1
        .error
        == 0
}

fn is(op: Op, kind: LogKind) -> impl Fn(View<'_>) -> bool {
    move |view| view.log().any(|entry| (entry.op, entry.kind) == (op, kind))
}

fn moves(raw: &Raw, to: SocketAddr, last_zxid: i64) -> std::io::Result<Raw> {
    Raw::reconnect(to, T, raw.session(), &raw.greeting.password, last_zxid)
}

/// The reply to a four-letter word.
fn word(addr: SocketAddr, word: &str) -> String {
    let mut stream = raw::dial(addr).unwrap();
    stream.write_all(word.as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn members_say_who_leads_and_follows() {
    let (server, addrs) = ensemble();
    let said = |index: usize, text: &str, name: &str| word(addrs[index], name).contains(text);
    let modes = |index| {
        let srvr = word(addrs[index], "srvr");
        let mode = srvr.lines().find_map(|line| line.strip_prefix("Mode: "));
        let mode = mode.unwrap_or_default().to_owned();
        assert!(said(index, &format!("Mode: {mode}\n"), "stat"), "{srvr}");
        assert!(said(index, &format!("zk_server_state\t{mode}\n"), "mntr"));
        mode
    };
    assert_eq!([0, 1, 2].map(modes), ["follower", "follower", "leader"]);
    assert!(said(2, "zk_synced_followers\t2\n", "mntr"));
    server.set_member(2, Member::Cut(Isolation::DeposedLeader));
    assert_eq!([0, 1, 2].map(modes), ["follower", "leader", "leader"]);
    server.set_member(2, Member::Behind);
    server.create("/a", "").unwrap();
    assert_eq!([0, 1, 2].map(modes), ["follower", "leader", "follower"]);
    assert!(said(1, "Node count: 6\n", "srvr") && said(2, "Node count: 5\n", "srvr"));

    server.set_member(0, Member::ReadOnly);
    server.set_member(1, Member::Down);
    assert_eq!(modes(0), "read-only");
    assert!(said(0, "READ-ONLY mode", "stat") && said(0, "ro", "isro"));
    for name in ["srvr", "stat", "mntr"] {
        assert!(said(2, "not currently serving requests", name), "{name}");
    }
    assert_eq!(
        (word(addrs[2], "isro"), word(addrs[2], "ruok")),
        ("null".into(), "imok".into())
    );
}

#[test]
fn members_count_their_own_clients() {
    let (_server, addrs) = ensemble();
    let mut raw = Raw::connect(addrs[0], T).unwrap();
    raw.call(op::EXISTS, &Body::path_watch("/", true));
    let said = [0, 1].map(|index| word(addrs[index], "wchs"));
    assert!(said[0].starts_with("1 connections") && said[1].starts_with("0 connections"));
    let said = [0, 1].map(|index| word(addrs[index], "srvr"));
    assert!(said[0].contains("Connections: 2\n") && said[1].contains("Connections: 1\n"));
}

#[test]
fn releases_are_named_as_compared() {
    for (version, name) in [(Version::V3_8, "3.8.0"), (Version::V3_9, "3.9.6")] {
        let builder = Server::builder().zookeeper_version(version);
        let server = builder.start().unwrap();
        let said = format!("Zookeeper version: {name}-");
        assert!(word(server.addr(), "srvr").starts_with(&said));
    }
}

#[test]
fn sessions_move_between_members() {
    let (server, addrs) = ensemble();
    let mut one = Raw::connect(addrs[0], T).unwrap();
    let mut other = Raw::connect(addrs[1], T).unwrap();
    one.create("/a", 1);
    assert!(exists(&mut other, "/a"));
    let mut moved = moves(&one, addrs[2], 0).unwrap();
    assert_eq!(moved.session(), one.session());
    assert!(exists(&mut moved, "/a"));
    // The first connection's member does not learn of the move before the leader refuses a write.
    assert!(exists(&mut one, "/a"));
    one.send(op::DELETE, &Body::new().string("/a").i32(-1))
        .unwrap();
    assert_eq!(
        one.recv().unwrap_err().kind(),
        ErrorKind::UnexpectedEof,
        "the old connection is closed"
    );
    assert!(exists(&mut moved, "/a"));
    assert_eq!(server.sessions().len(), 2);
    assert!(!server.set_member(3, Member::Down), "there is no fourth");
}

#[test]
fn expiry_closes_left_connections_too() {
    let (server, addrs) = ensemble();
    let mut old = Raw::connect(addrs[0], T).unwrap();
    let mut new = moves(&old, addrs[1], 0).unwrap();
    server.expire_session(old.session());
    for raw in [&mut old, &mut new] {
        assert_eq!(raw.recv().unwrap_err().kind(), ErrorKind::UnexpectedEof);
    }
}

#[test]
fn left_connections_keep_sessions_alive() {
    let (server, addrs) = ensemble();
    let mut old = Raw::connect(addrs[0], T).unwrap();
    drop(moves(&old, addrs[1], 0).unwrap());
    let gone = |view: View<'_>| !view.sessions()[0].connected;
    assert!(server.wait_until_blocking(gone, SOON));
    for _ in 0..4 {
        server.advance_clock(Duration::from_millis(T as u64 / 2));
        old.call(op::PING, &Body::new());
    }
    assert_eq!(server.sessions().len(), 1);
}

#[test]
fn lagging_member_replies_with_the_past() {
    let (server, addrs) = ensemble();
    let mut raw = Raw::connect(addrs[0], T).unwrap();
    raw.create("/a", 0);
    server.set_member(0, Member::Behind);
    server.create("/a/b", "").unwrap();
    // A watch that is set at a member that lags behind reports what has happened since.
    let (events, children) = raw
        .ask(op::GET_CHILDREN, &Body::path_watch("/a", true))
        .unwrap();
    assert_eq!((events.len(), &children.body[..]), (0, &[0, 0, 0, 0][..]));
    let before = children.zxid;
    let (events, synced) = raw.ask(op::SYNC, &Body::new().string("/a")).unwrap();
    assert_eq!(
        events
            .iter()
            .map(|event| event.event().0)
            .collect::<Vec<_>>(),
        [4]
    );
    assert!(synced.zxid > before);
    assert!(exists(&mut raw, "/a/b"));

    // The member lags again; the writes of its own client are visible, and so is all that was
    // committed before.
    server.create("/c", "").unwrap();
    assert!(!exists(&mut raw, "/c"));
    raw.create("/d", 0);
    assert!(exists(&mut raw, "/c") && exists(&mut raw, "/d"));
    server.create("/e", "").unwrap();
    server.set_member(0, Member::Current);
    assert!(exists(&mut raw, "/e"));
}

#[test]
fn lagging_member_refuses_newer_client() {
    let (server, addrs) = ensemble();
    let mut raw = Raw::connect(addrs[1], T).unwrap();
    server.set_member(0, Member::Behind);
    let (_, stat) = raw.create("/a", 0);
    assert_eq!(
        moves(&raw, addrs[0], stat.czxid).unwrap_err().kind(),
        ErrorKind::UnexpectedEof
    );
    let mut moved = moves(&raw, addrs[2], stat.czxid).unwrap();
    assert!(exists(&mut moved, "/a"));
}

#[test]
fn lagging_member_learns_expiry_late() {
    let (server, addrs) = ensemble();
    let mut raw = Raw::connect(addrs[0], T).unwrap();
    raw.create("/a", 1);
    server.set_member(0, Member::Behind);
    assert!(server.expire_session(raw.session()));
    assert!(!server.exists("/a") && exists(&mut raw, "/a"));
    server.set_member(0, Member::Current);
    assert_eq!(raw.recv().unwrap_err().kind(), ErrorKind::UnexpectedEof);
}

#[test]
fn isolated_member_only_reads() {
    let (server, addrs) = ensemble();
    let mut raw = Raw::connect(addrs[0], T).unwrap();
    let mut other = Raw::connect(addrs[1], T).unwrap();
    server.set_member(0, CUT);
    other.create("/a", 0);
    assert!(!exists(&mut raw, "/a"));
    // A member that is cut off replies to no request behind a write. A session that moves to
    // another member is served there.
    raw.send(op::CREATE, &Body::create("/b", b"", 0)).unwrap();
    let mut moved = moves(&raw, addrs[2], 0).unwrap();
    assert!(exists(&mut moved, "/a"));
    // The member accepts no session.
    let mut waits = raw::dial(addrs[0]).unwrap();
    raw::write_frame(&mut waits, &raw::hello(0, T, 0, &[0; 16]).0).unwrap();
    let arrived = |kind| {
        move |view: View<'_>| {
            view.log()
                .filter(|entry| (entry.op, entry.kind) == (Op::Connect, kind))
                .count()
                == 4
        }
    };
    assert!(server.wait_until_blocking(arrived(LogKind::Arrived), SOON));
    server.set_member(0, Member::Current);
    assert_eq!(
        raw.recv().unwrap_err().kind(),
        ErrorKind::UnexpectedEof,
        "it rejoins"
    );
    assert_eq!(
        raw::read_frame(&mut waits).unwrap_err().kind(),
        ErrorKind::UnexpectedEof
    );
    assert!(!server.exists("/b"));
    assert_eq!(server.sessions().len(), 2);
}

#[test]
fn minority_commits_and_expires_nothing() {
    for others in [CUT, Member::Down] {
        let server = Server::builder()
            .members(3)
            .tick(Duration::from_millis(10))
            .min_session_timeout(Duration::from_millis(20))
            .start()
            .unwrap();
        let addrs: Vec<SocketAddr> = server
            .connect_string()
            .split(',')
            .map(|addr| addr.parse().unwrap())
            .collect();
        server.freeze_expiry(true);
        let mut raw = Raw::connect(addrs[0], 20).unwrap();
        raw.create("/a", 1);
        server.set_member(1, others);
        server.set_member(2, others);
        server.freeze_expiry(false);
        assert!(exists(&mut raw, "/a"));
        // The wait is many ticks longer than the session timeout.
        #[allow(
            clippy::disallowed_methods,
            reason = "that no session expires has no event to wait for"
        )]
        std::thread::sleep(Duration::from_millis(200));
        raw.send(op::DELETE, &Body::new().string("/a").i32(-1))
            .unwrap();
        raw.send(op::EXISTS, &Body::path_watch("/", false)).unwrap();
        assert!(server.wait_until_blocking(is(Op::Delete, LogKind::Arrived), SOON));
        assert!(server.exists("/a"));
        assert_eq!(server.sessions().len(), 1);

        server.freeze_expiry(true);
        server.set_member(1, Member::Current);
        assert_eq!(
            raw.recv().unwrap_err().kind(),
            ErrorKind::UnexpectedEof,
            "a leader is elected"
        );
        let mut back =
            Raw::reconnect(addrs[1], 20, raw.session(), &raw.greeting.password, 0).unwrap();
        assert_eq!(back.session(), raw.session());
        assert!(exists(&mut back, "/a"), "the delete was never committed");
    }
}

#[test]
fn membership_change_loses_unprocessed_requests() {
    let elected = |server: &Server, _: &Raw| {
        server.set_member(1, CUT);
        server.set_member(2, CUT);
        server.set_member(1, Member::Current);
    };
    let restarted = |server: &Server, _: &Raw| {
        server.set_member(0, Member::Down);
        server.set_member(0, Member::Current);
    };
    let rejoined = |server: &Server, _: &Raw| {
        server.set_member(0, CUT);
        server.set_member(0, Member::Current);
    };
    let healed = |server: &Server, raw: &Raw| {
        server.isolate(raw.session(), Isolation::Follower);
        server.heal(raw.session());
    };
    let leaves: [fn(&Server, &Raw); 4] = [elected, restarted, rejoined, healed];
    for leave in leaves {
        let (server, addrs) = ensemble();
        let mut raw = Raw::connect(addrs[0], T).unwrap();
        raw.create("/a", 0);
        let gate = server.hold_request(Match::op(Op::Exists));
        raw.send(op::EXISTS, &Body::path_watch("/", false)).unwrap();
        raw.send(op::DELETE, &Body::new().string("/a").i32(-1))
            .unwrap();
        assert!(server.wait_until_blocking(is(Op::Delete, LogKind::Arrived), SOON));
        leave(&server, &raw);
        assert_eq!(raw.recv().unwrap_err().kind(), ErrorKind::UnexpectedEof);
        gate.release();
        assert!(server.wait_until_blocking(is(Op::Exists, LogKind::Discarded), SOON));
        let mut back = moves(&raw, addrs[1], 0).unwrap();
        assert!(exists(&mut back, "/a"));
    }
}

#[test]
fn downed_member_closes_all_connections() {
    let (server, addrs) = ensemble();
    let mut raw = Raw::connect(addrs[0], T).unwrap();
    server.set_member(0, Member::Down);
    assert_eq!(raw.recv().unwrap_err().kind(), ErrorKind::UnexpectedEof);
    Raw::connect(addrs[0], T).unwrap_err();
    let mut moved = moves(&raw, addrs[1], 0).unwrap();
    moved.create("/a", 0);
    server.set_member(0, Member::Current);
    assert!(exists(&mut Raw::connect(addrs[0], T).unwrap(), "/a"));
}

/// The events of a client's session.
fn events_of(server: &Server, raw: &Raw) -> Vec<HistoryEvent> {
    let history = server.history(0).into_iter();
    history
        .filter(|entry| entry.session == raw.session())
        .map(|entry| entry.event)
        .collect()
}

#[test]
fn read_only_session_stays_with_member() {
    let (server, addrs) = started(Server::builder().local_sessions(true));
    server.set_member(0, Member::ReadOnly);
    let mut raw = Raw::read_only(addrs[0], T).unwrap();
    assert_eq!(
        moves(&raw, addrs[1], 0).unwrap().session(),
        0,
        "another member refuses it"
    );
    assert!(exists(&mut raw, "/"), "its own member still serves it");
    let mut hello = raw::hello(0, T, raw.session(), &raw.greeting.password);
    hello.0.pop();
    let mut back = Raw::open(addrs[0], &hello.bool(true)).unwrap();
    assert_eq!(back.session(), raw.session());
    let node = server.create_as("/a", "", CreateMode::Ephemeral, raw.session());
    assert_eq!(
        node,
        Err(ServerError::SessionExpired),
        "the others do not know it"
    );

    server.set_member(0, Member::Current);
    assert_eq!(back.recv().unwrap_err().kind(), ErrorKind::UnexpectedEof);
    assert_eq!(
        moves(&raw, addrs[0], 0).unwrap().session(),
        0,
        "it has ended"
    );
    assert!(server.sessions().is_empty());
    let events = events_of(&server, &raw);
    assert!(events.contains(&HistoryEvent::SessionExpired), "{events:?}");
}

#[test]
fn other_read_only_sessions_go_on() {
    // Three of them are a majority.
    let builder = Server::builder().members(5).local_sessions(true);
    let server = builder.start().unwrap();
    let addrs: Vec<SocketAddr> = server
        .connect_string()
        .split(',')
        .map(|addr| addr.parse().unwrap())
        .collect();
    server.set_member(0, Member::ReadOnly);
    server.set_member(1, Member::ReadOnly);
    let ends = Raw::read_only(addrs[0], T).unwrap();
    let mut stays = Raw::read_only(addrs[1], T).unwrap();
    server.set_member(0, Member::Current);
    let left: Vec<i64> = server.sessions().iter().map(|session| session.id).collect();
    assert_eq!(left, [stays.session()]);
    assert!(exists(&mut stays, "/"));
    assert!(events_of(&server, &ends).contains(&HistoryEvent::SessionExpired));
    assert_eq!(events_of(&server, &stays), [HistoryEvent::SessionOpened]);
}

#[test]
fn keeper_has_no_read_only_mode() {
    let server = Server::builder()
        .zookeeper_version(Version::ClickHouseKeeper)
        .members(3)
        .start()
        .unwrap();
    let addr = server.addr();
    let mut raw = Raw::connect(addr, T).unwrap();
    assert!(server.set_member(0, Member::ReadOnly));
    assert_eq!(raw.recv().unwrap_err().kind(), ErrorKind::UnexpectedEof);
    Raw::read_only(addr, T).unwrap_err();
    server.set_member(0, Member::Current);
    Raw::connect(addr, T).unwrap().create("/a", 0);
}
