//! The memory that a server keeps for clients that do not read, or are gone, and the reason that
//! the server logs when it closes a connection.

mod raw;

use std::io::{ErrorKind, Write as _};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use raw::{Body, Parse, Raw, dial, op, read_frame, resident, write_frame};
use zookeeper_test_server::{
    Builder, CreateMode, Isolation, LogEntry, LogKind, Match, Member, Op, Reason, Server, View,
};

const SOON: Duration = Duration::from_secs(60);
const T: i32 = 10_000;
const MIB: usize = 1 << 20;

/// The tests that measure the memory of the process run one at a time.
static MEMORY: Mutex<()> = Mutex::new(());

/// Runs a closure, which may allocate at most about this many bytes.
fn takes_at_most(bytes: usize, what: impl FnOnce()) {
    let turn = MEMORY.lock().unwrap_or_else(PoisonError::into_inner);
    takes_at_most_in(&turn, bytes, what);
}

/// Does what [`takes_at_most`] does, in a turn that has begun.
fn takes_at_most_in(_turn: &MutexGuard<'_, ()>, bytes: usize, what: impl FnOnce()) {
    let before = resident();
    what();
    if let (Some(before), Some(after)) = (before, resident()) {
        let grown = after.saturating_sub(before);
        assert!(grown <= bytes, "{} MiB", grown / MIB);
    }
}

/// A server that ends no session, however long a busy machine takes: none of these clients pings.
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
fn start(builder: Builder) -> Server {
    let server = builder.start().unwrap();
    server.freeze_expiry(true);
    server
}

fn closed<'a>(log: impl Iterator<Item = &'a LogEntry>, reason: Reason) -> usize {
    log.filter(|entry| entry.kind == LogKind::Closed(reason))
        .count()
}

#[test]
fn unreading_clients_share_a_limit() {
    const WATCHERS: usize = 20;
    let server = start(Server::builder().max_queued(8 * MIB));
    let path = format!("/{}", "x".repeat(3000));
    server.create(&path, "").unwrap();
    let mut watchers: Vec<_> = (0..WATCHERS)
        .map(|_| Raw::connect(server.addr(), T).unwrap())
        .collect();
    for raw in &mut watchers {
        raw.call(op::ADD_WATCH, &Body::new().string("/").i32(1));
    }
    takes_at_most(96 * MIB, || {
        // 180 MB of events.
        for _ in 0..3000 {
            server.set_data(&path, "").unwrap();
        }
    });
    // The connections are closed by their tasks on the server's thread. Their number depends on the
    // kernel, whose buffers take some MiB of each connection.
    let is_one_closed = |view: View<'_>| closed(view.log(), Reason::Slow) > 0;
    assert!(server.wait_until_blocking(is_one_closed, SOON));
    let mut well = Raw::connect(server.addr(), T).unwrap();
    well.create("/well", 0);
}

#[test]
fn only_the_unreading_client_is_closed() {
    let server = start(Server::builder().max_queued(MIB));
    let path = format!("/{}", "x".repeat(3000));
    server.create(&path, "").unwrap();
    let mut slow = Raw::connect(server.addr(), T).unwrap();
    let mut well = Raw::connect(server.addr(), T).unwrap();
    for raw in [&mut slow, &mut well] {
        raw.call(op::ADD_WATCH, &Body::new().string("/").i32(1));
    }
    let mut told = 0;
    let is_slow = |entry: &LogEntry| entry.kind == LogKind::Closed(Reason::Slow);
    let dropped = || {
        server.wait_until_blocking(
            |view| view.log().rev().take(20).any(is_slow),
            Duration::ZERO,
        )
    };
    while !dropped() {
        server.set_data(&path, "").unwrap();
        told += well.ask(op::PING, &Body::new()).unwrap().0.len();
    }
    assert!(told > 0);
    assert_eq!(
        server
            .log()
            .into_iter()
            .find(|entry| is_slow(entry))
            .unwrap()
            .session,
        slow.session()
    );
    assert_eq!(well.ask(op::PING, &Body::new()).unwrap().1.error, 0);
    while slow.recv().is_ok() {}
}

#[test]
fn large_replies_share_tree_data() {
    let server = start(Server::builder());
    server.create("/big", vec![b'x'; MIB]).unwrap();
    let reads = Body::multi(&vec![(op::GET_DATA, Body::path_watch("/big", false)); 40]);
    let mut readers: Vec<_> = (0..5)
        .map(|_| Raw::connect(server.addr(), T).unwrap())
        .collect();
    takes_at_most(32 * MIB, || {
        // 200 MiB of replies.
        for raw in &mut readers {
            raw.send(op::MULTI_READ, &reads).unwrap();
        }
        let applied = |view: View<'_>| {
            view.log()
                .filter(|entry| (entry.op, entry.kind) == (Op::MultiRead, LogKind::Applied))
                .count()
                == 5
        };
        assert!(server.wait_until_blocking(applied, SOON));
    });
    for raw in &mut readers {
        let reply = raw.recv().unwrap();
        let mut parse = Parse(&reply.body);
        assert_eq!(
            (reply.error, parse.i32(), parse.bool(), parse.i32()),
            (0, op::GET_DATA, false, 0)
        );
        assert_eq!(parse.buffer().unwrap().len(), MIB);
    }
}

#[test]
fn oversized_reply_closes_the_connection() {
    let server = Server::start().unwrap();
    server.create("/big", vec![b'x'; MIB]).unwrap();
    let mut raw = Raw::connect(server.addr(), T).unwrap();
    let reads = vec![(op::GET_DATA, Body::path_watch("/big", false)); 65];
    raw.send(op::MULTI_READ, &Body::multi(&reads)).unwrap();
    raw.recv().unwrap_err();
    assert_eq!(closed(server.log().iter(), Reason::Slow), 1);
}

#[test]
fn gone_connection_completes_only_writes() {
    let server = start(Server::builder());
    server.create("/a", "").unwrap();
    let mut raw = Raw::connect(server.addr(), T).unwrap();
    let gate = server.hold_request(Match::op(Op::Sync));
    raw.send(op::SYNC, &Body::new().string("/a")).unwrap();
    raw.send(op::GET_DATA, &Body::path_watch("/a", true))
        .unwrap();
    raw.send(op::CREATE, &Body::create("/b", b"", 0)).unwrap();
    let session = raw.session();
    assert!(gate.wait_hit_blocking(SOON));
    let arrived = |view: View<'_>| view.counters().requests(Op::Create) == 1;
    assert!(server.wait_until_blocking(arrived, SOON));
    drop(raw);
    assert!(server.wait_until_blocking(|view| !view.sessions()[0].connected, SOON));
    gate.release();
    assert!(server.wait_until_blocking(|view| view.exists("/b"), SOON));
    let log = server.log();
    let kinds = |op| {
        let of_op = log
            .iter()
            .filter(|entry| (entry.op, entry.session) == (op, session));
        of_op.map(|entry| entry.kind).collect::<Vec<_>>()
    };
    assert_eq!(kinds(Op::GetData), [LogKind::Arrived, LogKind::Discarded]);
    assert_eq!(kinds(Op::Create)[..2], [LogKind::Arrived, LogKind::Applied]);
}

#[test]
fn waiting_connection_delays_no_other() {
    const LEN: usize = 20_000;
    let server = start(Server::builder().max_queued(2 * LEN));
    let mut held = Raw::connect(server.addr(), T).unwrap();
    let mut other = Raw::connect(server.addr(), T).unwrap();
    let gate = server.hold_request(Match::op(Op::Create).session(held.session()));
    let create = |name: String| Body::create(&name, &[0; LEN], 0);
    for index in 0..8 {
        held.send(op::CREATE, &create(format!("/held{index}")))
            .unwrap();
    }
    assert!(gate.wait_hit_blocking(SOON));
    for index in 0..8 {
        other.call(op::CREATE, &create(format!("/other{index}")));
    }
    assert!(!server.exists("/held0"));
    gate.release();
    assert!(server.wait_until_blocking(|view| view.exists("/held7"), SOON));
}

#[test]
fn log_explains_closed_connections() {
    let server = start(Server::builder().max_frame(1000));
    let logged = |reason, count| {
        server.wait_until_blocking(|view| closed(view.log(), reason) == count, SOON)
    };
    let mut stream = dial(server.addr()).unwrap();
    stream.write_all(&1001i32.to_be_bytes()).unwrap();
    assert!(logged(Reason::Oversized, 1));
    let mut raw = Raw::connect(server.addr(), T).unwrap();
    raw.stream.write_all(&(-1i32).to_be_bytes()).unwrap();
    assert!(logged(Reason::Malformed, 1));
    let mut stream = dial(server.addr()).unwrap();
    write_frame(&mut stream, b"no hello").unwrap();
    assert!(logged(Reason::Malformed, 2));
    assert_eq!(
        read_frame(&mut stream).unwrap_err().kind(),
        ErrorKind::UnexpectedEof
    );
    let old = Raw::connect(server.addr(), T).unwrap();
    let _new = Raw::reconnect(server.addr(), T, old.session(), &old.greeting.password, 0).unwrap();
    assert!(logged(Reason::Moved, 1));
    let moved = server
        .log()
        .into_iter()
        .find(|entry| entry.kind == LogKind::Closed(Reason::Moved))
        .unwrap();
    assert_eq!(moved.session, old.session());
}

#[test]
fn lagging_members_share_the_tree() {
    const NODES: usize = 60_000;
    let turn = MEMORY.lock().unwrap_or_else(PoisonError::into_inner);
    let server = start(Server::builder().members(3));
    let addr = server.connect_string().split(',').next().unwrap().parse();
    let mut raw = Raw::connect(addr.unwrap(), T).unwrap();
    let owner = raw.session();
    for index in 0..NODES {
        let path = format!("/node-{index}-{}", "x".repeat(100));
        server
            .create_as(&path, "", CreateMode::Ephemeral, owner)
            .unwrap();
    }
    takes_at_most_in(&turn, 12 * MIB, || {
        server.set_member(0, Member::Behind);
        server.set_member(1, Member::Cut(Isolation::Follower));
        for index in 0..10 {
            raw.create(&format!("/a-{index}"), 1);
            raw.call(op::SYNC, &Body::new().string("/"));
        }
        server.isolate(owner, Isolation::Follower);
    });
    assert_eq!(server.children("/").len(), NODES + 11);
}
