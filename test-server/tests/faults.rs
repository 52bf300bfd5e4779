//! Every fault does what its documentation says, as seen by a client that writes each frame itself.

#![expect(
    clippy::unwrap_used,
    reason = "a test fails by panicking; clippy knows this only of #[test] functions"
)]

mod raw;

use std::future::Future;
use std::io::ErrorKind;
use std::net::TcpStream;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use raw::{Body, Frame, Raw, op, read_frame, write_frame};
use zookeeper_test_server::{
    Cut, Direction, Isolation, LogEntry, LogKind, Loss, Match, Op, Server, View,
};

const SOON: Duration = Duration::from_secs(60);
const T: i32 = 40_000;

fn server() -> (Server, Raw) {
    let server = Server::start().unwrap();
    let raw = Raw::connect(server.addr(), T).unwrap();
    (server, raw)
}

fn again(server: &Server, raw: &Raw) -> Raw {
    Raw::reconnect(server.addr(), T, raw.session(), &raw.greeting.password, 0).unwrap()
}

fn create(path: &str) -> Body {
    Body::create(path, b"", 0)
}

fn ended(raw: &mut Raw) -> ErrorKind {
    raw.recv().unwrap_err().kind()
}

/// Returns whether no frame has arrived. The caller has made sure that none was to come.
fn silent(raw: &mut Raw) -> bool {
    raw.stream.set_nonblocking(true).unwrap();
    let nothing = raw
        .stream
        .peek(&mut [0])
        .is_err_and(|error| error.kind() == ErrorKind::WouldBlock);
    raw.stream.set_nonblocking(false).unwrap();
    nothing
}

#[test]
fn held_reply_blocks_later_replies() {
    let (server, mut raw) = server();
    let gate = server.hold_reply(Match::op(Op::Create).path("/a"));
    let first = raw.send(op::CREATE, &create("/a")).unwrap();
    assert!(gate.wait_hit_blocking(SOON));
    assert!(server.exists("/a"));
    // A later request is applied, and its reply and an event wait behind the held one.
    let second = raw.send(op::EXISTS, &Body::path_watch("/a", true)).unwrap();
    let applied =
        server.wait_until_blocking(|view| view.counters().requests(Op::Exists) == 1, SOON);
    assert!(applied && server.wait_until_blocking(|view| !view.watches_on("/a").is_empty(), SOON));
    server.delete("/a").unwrap();
    assert!(silent(&mut raw));
    gate.release();
    let xids: Vec<i32> = (0..3).map(|_| raw.recv().unwrap().xid).collect();
    assert_eq!(xids, [first, second, -1]);
    assert_eq!(
        (
            gate.hits().len(),
            gate.hits()[0].path.as_str(),
            gate.hits()[0].session
        ),
        (1, "/a", raw.session())
    );
}

#[test]
fn delayed_reply_blocks_later_replies() {
    let (server, mut raw) = server();
    let delay = Duration::from_millis(300);
    let fault = server.delay_reply(Match::op(Op::Create).always(), delay);
    let sent = Instant::now();
    let first = raw.send(op::CREATE, &create("/a")).unwrap();
    assert!(fault.wait_hit_blocking(SOON));
    assert!(server.exists("/a"));
    let second = raw
        .send(op::EXISTS, &Body::path_watch("/a", false))
        .unwrap();
    assert_eq!(raw.recv().unwrap().xid, first);
    assert!(sent.elapsed() >= delay, "{:?}", sent.elapsed());
    assert_eq!(raw.recv().unwrap().xid, second);
}

#[test]
fn log_shows_concurrent_requests() {
    let (server, mut raw) = server();
    let gate = server.hold_reply(Match::op(Op::Create));
    raw.send(op::CREATE, &create("/a")).unwrap();
    raw.send(op::GET_CHILDREN, &Body::path_watch("/", false))
        .unwrap();
    assert!(
        server.wait_until_blocking(|view| view.counters().requests(Op::GetChildren) == 1, SOON)
    );
    gate.release();
    let _ = (raw.recv().unwrap(), raw.recv().unwrap());
    let log = server.log();
    let at = |op, kind| {
        log.iter()
            .find(|entry| (entry.op, entry.kind) == (op, kind))
            .unwrap()
    };
    let list = at(Op::GetChildren, LogKind::Arrived);
    let create = at(Op::Create, LogKind::Replied);
    assert!(list.n < create.n && list.at <= create.at);
    assert_eq!(create.request, at(Op::Create, LogKind::Arrived).request);
    assert_eq!(
        (create.path.as_str(), create.session, create.opcode),
        ("/a", raw.session(), op::CREATE)
    );
    assert_eq!(
        (create.zxid, create.error),
        (server.node("/a").unwrap().czxid, 0)
    );
    assert!(log.windows(2).all(|pair| pair[0].n + 1 == pair[1].n));
}

#[test]
fn held_request_lets_others_pass() {
    let (server, mut raw) = server();
    let mut other = Raw::connect(server.addr(), T).unwrap();
    let gate = server.hold_request(Match::any().path("/a").session(raw.session()));
    raw.send(op::CREATE, &create("/a")).unwrap();
    raw.send(op::CREATE, &create("/b")).unwrap();
    assert!(gate.wait_hit_blocking(SOON));
    assert!(server.wait_until_blocking(|view| view.counters().requests(Op::Create) == 2, SOON));
    other.create("/c", 0);
    assert_eq!(server.children("/"), ["c", "zookeeper"]);
    drop(gate);
    let _ = (raw.recv().unwrap(), raw.recv().unwrap());
    assert_eq!(server.children("/"), ["a", "b", "c", "zookeeper"]);
}

#[test]
fn held_request_outlives_its_connection() {
    for moved in [false, true] {
        let (server, mut raw) = server();
        let gate = server.hold_request(Match::op(Op::Create));
        raw.send(op::CREATE, &create("/late")).unwrap();
        assert!(gate.wait_hit_blocking(SOON));
        assert!(server.cut(raw.session(), Cut::Fin));
        assert_eq!(ended(&mut raw), ErrorKind::UnexpectedEof);
        let back = moved.then(|| again(&server, &raw));
        gate.release();
        let fate = move |view: View<'_>| {
            let decided = |entry: &LogEntry| {
                entry.op == Op::Create
                    && matches!(entry.kind, LogKind::Applied | LogKind::Discarded)
            };
            view.log().rev().any(decided)
        };
        assert!(server.wait_until_blocking(fate, SOON));
        assert_eq!(server.exists("/late"), !moved);
        let mut probe = back.unwrap_or_else(|| again(&server, &raw));
        assert_eq!(probe.ask(op::PING, &Body::new()).unwrap().1.error, 0);
    }
}

#[test]
fn held_request_stays_lost_after_move() {
    let (server, mut raw) = server();
    let gate = server.hold_request(Match::op(Op::Create));
    raw.send(op::CREATE, &create("/late")).unwrap();
    assert!(gate.wait_hit_blocking(SOON));
    let newer = again(&server, &raw);
    assert!(server.cut(newer.session(), Cut::Reset));
    gate.release();
    assert!(server.wait_until_blocking(|view| fate_of(view, Op::Create).is_some(), SOON));
    assert!(!server.exists("/late"));
}

/// Whether the last such request was applied or discarded.
fn fate_of(view: View<'_>, op: Op) -> Option<LogKind> {
    let decided = |entry: &&LogEntry| {
        entry.op == op && matches!(entry.kind, LogKind::Applied | LogKind::Discarded)
    };
    view.log().rev().find(decided).map(|entry| entry.kind)
}

#[test]
fn stalled_link_hides_expiry() {
    for direction in [Direction::ToClient, Direction::Both] {
        let (server, mut raw) = server();
        assert!(server.stall(raw.session(), direction));
        assert!(server.expire_session(raw.session()));
        // A full round of the server's loop: had it ended the connection, the end would be here.
        Raw::connect(server.addr(), T).unwrap().stat("/");
        assert!(silent(&mut raw));
        raw.send(op::CREATE, &create("/a")).unwrap();
        server.resume(raw.session());
        assert_eq!(ended(&mut raw), ErrorKind::UnexpectedEof);
        assert!(!server.exists("/a"));
    }
}

#[test]
fn replies_precede_the_sessions_end() {
    let (server, mut raw) = server();
    assert!(server.stall(raw.session(), Direction::ToClient));
    let xid = raw.send(op::CREATE, &create("/a")).unwrap();
    assert!(server.wait_until_blocking(|view| view.exists("/a"), SOON));
    assert!(server.expire_session(raw.session()));
    server.resume(raw.session());
    assert_eq!(raw.recv().unwrap().xid, xid);
    assert_eq!(ended(&mut raw), ErrorKind::UnexpectedEof);
}

#[test]
fn silent_connection_hides_expiry() {
    let (server, mut raw) = server();
    let fault = server.drop_reply(Match::op(Op::Create), Loss::Stall);
    raw.send(op::CREATE, &create("/a")).unwrap();
    assert!(fault.wait_hit_blocking(SOON));
    assert!(server.expire_session(raw.session()));
    Raw::connect(server.addr(), T).unwrap().stat("/");
    assert!(silent(&mut raw));
    drop(server);
    assert!(raw.recv().is_err());
}

#[test]
fn expired_session_gets_no_own_events() {
    let (server, mut raw) = server();
    raw.create("/e", 1);
    let _ = raw.ask(op::EXISTS, &Body::path_watch("/e", true)).unwrap();
    assert!(server.expire_session(raw.session()));
    assert_eq!(ended(&mut raw), ErrorKind::UnexpectedEof);
    assert_eq!(server.counters().notifications(), 0);
}

#[test]
fn stranger_does_not_heal_member() {
    let (server, mut raw) = server();
    assert!(server.isolate(raw.session(), Isolation::Follower));
    let stranger = Raw::reconnect(server.addr(), T, raw.session(), &[0; 16], 0).unwrap();
    assert_eq!(stranger.session(), 0);
    server.create("/unseen", "").unwrap();
    let seen = raw
        .ask(op::EXISTS, &Body::path_watch("/unseen", false))
        .unwrap()
        .1
        .error;
    assert_eq!(
        seen, -101,
        "the member is still cut off, and its client still connected"
    );
    assert!(server.expire_session(raw.session()));
    assert_eq!(
        raw.stat("/").num_children,
        1,
        "the member has not heard of the expiry"
    );
    assert_eq!(again(&server, &raw).session(), 0);
    let mut back = again(&server, &raw);
    assert_eq!(ended(&mut back), ErrorKind::UnexpectedEof);
    assert_eq!(raw.stat("/").num_children, 1);
}

#[test]
fn lost_reply_keeps_the_commit() {
    for (loss, kind) in [
        (Loss::Close, ErrorKind::UnexpectedEof),
        (Loss::Reset, ErrorKind::ConnectionReset),
    ] {
        let (server, mut raw) = server();
        let fault = server.drop_reply(Match::op(Op::Create).path_prefix("/a"), loss);
        raw.send(op::CREATE, &create("/a")).unwrap();
        assert_eq!(ended(&mut raw), kind);
        assert!(server.exists("/a"));
        assert_eq!(fault.hits()[0].path, "/a");
        let mut raw = again(&server, &raw);
        assert_eq!(raw.create("/ab", 0).0, "/ab", "the fault strikes once");
    }
}

#[test]
fn overlapping_faults_all_strike() {
    let (server, mut raw) = server();
    let (first, second) = (
        server.fail(Match::op(Op::Exists), -1),
        server.fail(Match::op(Op::Exists), -2),
    );
    let mut exists = || {
        raw.ask(op::EXISTS, &Body::path_watch("/", false))
            .unwrap()
            .1
            .error
    };
    assert_eq!([exists(), exists(), exists()], [-1, -2, 0]);
    assert_eq!((first.hits().len(), second.hits().len()), (1, 1));
    // A request that is held and then lost is lost when it is released.
    let gate = server.hold_reply(Match::op(Op::Create));
    let loss = server.drop_reply(Match::op(Op::Create), Loss::Close);
    raw.send(op::CREATE, &create("/a")).unwrap();
    assert!(gate.wait_hit_blocking(SOON) && loss.wait_hit_blocking(SOON));
    assert!(server.exists("/a") && silent(&mut raw));
    gate.release();
    assert_eq!(ended(&mut raw), ErrorKind::UnexpectedEof);
    // Both gates hold the request, which passes only when both are open.
    let mut raw = again(&server, &raw);
    let gates = [
        server.hold_request(Match::op(Op::Create)),
        server.hold_request(Match::op(Op::Create)),
    ];
    let reply = server.drop_reply(Match::op(Op::Create), Loss::Close);
    let request = server.drop_request(Match::op(Op::Create), Loss::Reset);
    raw.send(op::CREATE, &create("/b")).unwrap();
    assert!(gates.iter().all(|gate| gate.wait_hit_blocking(SOON)));
    drop(gates);
    assert_eq!(ended(&mut raw), ErrorKind::ConnectionReset);
    assert_eq!((request.hits().len(), reply.hits().len()), (1, 0));
    let mut raw = again(&server, &raw);
    raw.send(op::CREATE, &create("/c")).unwrap();
    assert_eq!(
        ended(&mut raw),
        ErrorKind::UnexpectedEof,
        "the loss of a reply has kept its turn"
    );
    assert!(server.exists("/c") && !server.exists("/b"));
}

#[test]
fn faults_strike_isolated_members_replies() {
    let (server, mut raw) = server();
    assert!(server.isolate(raw.session(), Isolation::Follower));
    let _ = server.fail(Match::op(Op::Exists), -4);
    assert_eq!(
        raw.ask(op::EXISTS, &Body::path_watch("/", false))
            .unwrap()
            .1
            .error,
        -4
    );
    assert_eq!(fate_of_last(&server, Op::Exists), Some(LogKind::Applied));
    let gate = server.hold_reply(Match::op(Op::Exists));
    let xid = raw.send(op::EXISTS, &Body::path_watch("/", false)).unwrap();
    assert!(gate.wait_hit_blocking(SOON) && silent(&mut raw));
    gate.release();
    assert_eq!(raw.recv().unwrap().xid, xid);
    let _ = server.drop_reply(Match::op(Op::Exists), Loss::Reset);
    raw.send(op::EXISTS, &Body::path_watch("/", false)).unwrap();
    assert_eq!(ended(&mut raw), ErrorKind::ConnectionReset);
}

fn fate_of_last(server: &Server, op: Op) -> Option<LogKind> {
    let kinds = [LogKind::Applied, LogKind::Discarded];
    server
        .log()
        .iter()
        .rev()
        .find(|entry| entry.op == op && kinds.contains(&entry.kind))
        .map(|entry| entry.kind)
}

#[test]
fn lost_request_leaves_nothing() {
    for (loss, kind) in [
        (Loss::Close, ErrorKind::UnexpectedEof),
        (Loss::Reset, ErrorKind::ConnectionReset),
    ] {
        let (server, mut raw) = server();
        let _ = server.drop_request(Match::op(Op::Create), loss);
        raw.send(op::CREATE, &create("/a")).unwrap();
        assert_eq!(ended(&mut raw), kind);
        let mut raw = again(&server, &raw);
        assert_eq!(
            raw.ask(op::EXISTS, &Body::path_watch("/a", false))
                .unwrap()
                .1
                .error,
            -101
        );
    }
}

#[test]
fn stalled_connection_is_silent_both_ways() {
    let (server, mut raw) = server();
    let fault = server.drop_reply(Match::op(Op::Create), Loss::Stall);
    raw.send(op::CREATE, &create("/a")).unwrap();
    assert!(fault.wait_hit_blocking(SOON));
    raw.send(op::CREATE, &create("/b")).unwrap();
    raw.send(op::PING, &Body::new()).unwrap();
    let mut back = again(&server, &raw);
    assert_eq!(back.ask(op::PING, &Body::new()).unwrap().1.error, 0);
    assert_eq!(server.children("/"), ["a", "zookeeper"]);
    assert_eq!(server.counters().requests(Op::Create), 1);
    assert_eq!(
        ended(&mut raw),
        ErrorKind::UnexpectedEof,
        "the new connection ends the old one"
    );
}

#[test]
fn failed_request_returns_its_code() {
    let (server, mut raw) = server();
    let fault = server.fail(Match::op(Op::Create).nth(1).times(2), -127);
    let codes: Vec<i32> = ["/0", "/1", "/2", "/3"]
        .map(|path| raw.ask(op::CREATE, &create(path)).unwrap().1.error)
        .to_vec();
    assert_eq!(codes, [0, -127, -127, 0]);
    assert_eq!(server.children("/"), ["0", "3", "zookeeper"]);
    assert_eq!(fault.hits().len(), 2);
    let fault = server.fail(Match::any().path("/x").always(), -4);
    assert_eq!(
        raw.ask(op::EXISTS, &Body::path_watch("/x", false))
            .unwrap()
            .1
            .error,
        -4
    );
    fault.remove();
    assert_eq!(
        raw.ask(op::EXISTS, &Body::path_watch("/x", false))
            .unwrap()
            .1
            .error,
        -101
    );
}

#[test]
fn multi_is_struck_by_any_path() {
    let (server, mut raw) = server();
    let _ = server.fail(Match::op(Op::Multi).path("/b"), -7);
    let multi = |paths: &[&str]| {
        let items: Vec<_> = paths
            .iter()
            .map(|path| (op::CREATE, create(path)))
            .collect();
        Body::multi(&items)
    };
    assert_eq!(
        raw.ask(op::MULTI, &multi(&["/x", "/y"])).unwrap().1.error,
        0
    );
    assert_eq!(
        raw.ask(op::MULTI, &multi(&["/a", "/b"])).unwrap().1.error,
        -7
    );
    assert!(!server.exists("/a"));
}

#[test]
fn connect_can_be_held_refused_lost() {
    let server = Server::start().unwrap();
    let gate = server.hold_reply(Match::op(Op::Connect));
    let addr = server.addr();
    let client = thread::spawn(move || Raw::connect(addr, T).unwrap());
    assert!(gate.wait_hit_blocking(SOON));
    assert_eq!(server.sessions().len(), 1);
    assert!(!client.is_finished());
    gate.release();
    let raw = client.join().unwrap();
    let _ = server.drop_reply(Match::op(Op::Connect).session(raw.session()), Loss::Reset);
    let lost = Raw::reconnect(addr, T, raw.session(), &raw.greeting.password, 0);
    assert_eq!(lost.unwrap_err().kind(), ErrorKind::ConnectionReset);
    let _ = server.fail(Match::op(Op::Connect), 0);
    assert!(Raw::connect(addr, T).is_err());
    assert_eq!(server.sessions().len(), 1);
}

#[test]
fn clearing_faults_releases_held_requests() {
    let (server, mut raw) = server();
    let gate = server.hold_reply(Match::any().always());
    let _ = server.fail(Match::op(Op::Delete), -4);
    raw.send(op::CREATE, &create("/a")).unwrap();
    assert!(gate.wait_hit_blocking(SOON));
    server.clear_faults();
    assert_eq!(raw.recv().unwrap().error, 0);
    raw.call(op::DELETE, &Body::new().string("/a").i32(-1));
}

#[test]
fn cut_keeps_the_session() {
    for (cut, kind) in [
        (Cut::Fin, ErrorKind::UnexpectedEof),
        (Cut::Reset, ErrorKind::ConnectionReset),
    ] {
        let (server, mut raw) = server();
        raw.create("/e", 1);
        assert!(server.cut(raw.session(), cut));
        assert!(!server.sessions()[0].connected);
        assert_eq!(ended(&mut raw), kind);
        assert!(
            !server.cut(raw.session(), cut),
            "there is no connection any more"
        );
        let mut raw = again(&server, &raw);
        assert_eq!(raw.stat("/e").ephemeral_owner, raw.session());
    }
}

#[test]
fn stall_to_server_lets_session_expire() {
    let server = Server::builder()
        .tick(Duration::from_millis(20))
        .start()
        .unwrap();
    server.freeze_expiry(true);
    let mut raw = Raw::connect(server.addr(), 400).unwrap();
    raw.create("/e", 1);
    let _ = raw.ask(op::EXISTS, &Body::path_watch("/x", true)).unwrap();
    assert!(server.stall(raw.session(), Direction::ToServer));
    raw.send(op::CREATE, &create("/unheard")).unwrap();
    server.create("/x", "").unwrap();
    assert_eq!(raw.recv().unwrap().event(), (1, 3, "/x".to_owned()));
    server.freeze_expiry(false);
    assert!(server.wait_until_blocking(|view| !view.exists("/e"), SOON));
    assert_eq!(ended(&mut raw), ErrorKind::UnexpectedEof);
    assert!(!server.exists("/unheard"));
    assert!(
        !server.stall(raw.session(), Direction::Both),
        "the session is gone"
    );
}

#[test]
fn stall_to_client_lets_requests_through() {
    let (server, mut raw) = server();
    assert!(server.stall(raw.session(), Direction::ToClient));
    raw.send(op::CREATE, &create("/a")).unwrap();
    assert!(server.wait_until_blocking(|view| view.exists("/a"), SOON));
    assert!(silent(&mut raw));
    server.resume(raw.session());
    assert_eq!(raw.recv().unwrap().error, 0);
}

#[test]
fn stall_covers_new_connections() {
    let (server, mut raw) = server();
    let session = raw.session();
    assert!(server.stall(session, Direction::Both));
    raw.send(op::CREATE, &create("/lost")).unwrap();
    drop(raw.stream);
    assert!(server.wait_until_blocking(|view| !view.sessions()[0].connected, SOON));
    let say_hello = || {
        let mut stream = raw::dial(server.addr()).unwrap();
        write_frame(
            &mut stream,
            &raw::hello(0, T, session, &raw.greeting.password).0,
        )
        .unwrap();
        stream
    };
    let given_up = say_hello();
    drop(given_up);
    let mut waiting: TcpStream = say_hello();
    server.resume(session);
    assert_eq!(read_frame(&mut waiting).unwrap().len(), 37);
    assert!(server.sessions()[0].connected);
    assert!(!server.exists("/lost"));
}

#[test]
fn stalled_data_arrives_after_the_stall() {
    let (server, mut raw) = server();
    assert!(server.stall(raw.session(), Direction::ToServer));
    for n in 0..100 {
        raw.send(op::CREATE, &create(&format!("/n{n}"))).unwrap();
    }
    assert_eq!(server.counters().requests(Op::Create), 0);
    server.resume(raw.session());
    assert!((0..100).all(|_| raw.recv().unwrap().error == 0));
    assert_eq!(server.children("/").len(), 101);
}

#[test]
fn refused_connections_end_at_once() {
    let (server, mut raw) = server();
    server.refuse_connections(true);
    assert!(Raw::connect(server.addr(), T).is_err());
    assert_eq!(
        raw.ask(op::PING, &Body::new()).unwrap().1.error,
        0,
        "only new ones are refused"
    );
    server.refuse_connections(false);
    again(&server, &raw);
}

#[test]
fn restart_keeps_tree_and_sessions() {
    let server = Server::builder()
        .tick(Duration::from_millis(20))
        .start()
        .unwrap();
    server.freeze_expiry(true);
    let mut raw = Raw::connect(server.addr(), 400).unwrap();
    raw.create("/e", 1);
    server.stop();
    server.freeze_expiry(false);
    assert_eq!(ended(&mut raw), ErrorKind::UnexpectedEof);
    assert!(TcpStream::connect(server.addr()).is_err());
    // Far longer than the timeout: nothing expires while the server is down.
    let longer = Duration::from_millis(600);
    assert!(!server.wait_until_blocking(|view| view.sessions().is_empty(), longer));
    server.freeze_expiry(true);
    server.restart().unwrap();
    let mut raw = again(&server, &raw);
    assert_eq!(raw.stat("/e").ephemeral_owner, raw.session());
    server.restart().unwrap();
    assert!(again(&server, &raw).session() != 0);
}

#[test]
fn concurrent_restarts_leave_server_listening() {
    let (server, _) = server();
    for _ in 0..50 {
        let restarts: [_; 2] = thread::scope(|scope| {
            [
                scope.spawn(|| server.restart()),
                scope.spawn(|| server.restart()),
            ]
            .map(|one| one.join().unwrap())
        });
        for restart in restarts {
            restart.unwrap();
        }
        Raw::connect(server.addr(), T).unwrap();
    }
}

#[test]
fn restart_renews_every_timeout() {
    let server = Server::builder()
        .tick(Duration::from_millis(20))
        .start()
        .unwrap();
    server.freeze_expiry(true);
    let raw = Raw::connect(server.addr(), 400).unwrap();
    server.stop();
    server.freeze_expiry(false);
    let restarted = Instant::now();
    server.restart().unwrap();
    assert!(server.wait_until_blocking(|view| view.sessions().is_empty(), SOON));
    assert!(
        restarted.elapsed() >= Duration::from_millis(400),
        "{:?}",
        restarted.elapsed()
    );
    drop(raw);
}

#[test]
fn drop_closes_connections_and_port() {
    let (server, mut raw) = server();
    let gate = server.hold_request(Match::any());
    raw.send(op::PING, &Body::new()).unwrap();
    assert!(gate.wait_hit_blocking(SOON));
    let addr = server.addr();
    drop(server);
    assert!(raw.recv().is_err());
    assert!(TcpStream::connect(addr).is_err());
    let server = Server::builder().port(addr.port()).start().unwrap();
    assert_eq!(server.connect_string(), addr.to_string());
}

#[test]
fn counters_tell_sessions_and_operations_apart() {
    let (server, mut raw) = server();
    let mut other = Raw::connect(server.addr(), T).unwrap();
    raw.create("/a", 0);
    raw.create("/b", 0);
    other.stat("/a");
    let _ = other.ask(op::PING, &Body::new()).unwrap();
    let counters = server.counters();
    assert_eq!(
        (counters.requests(Op::Create), counters.requests(Op::Exists)),
        (2, 1)
    );
    assert_eq!(
        (counters.requests(Op::Ping), counters.requests(Op::Connect)),
        (1, 2)
    );
    assert_eq!(counters.total_requests(), 3);
    assert_eq!(
        (
            counters.total_requests_of(raw.session()),
            counters.total_requests_of(other.session())
        ),
        (2, 1)
    );
    assert_eq!(counters.requests_of(raw.session(), Op::Exists), 0);
    let _ = raw.ask(op::EXISTS, &Body::path_watch("/a", true)).unwrap();
    server.reset_counters();
    server.delete("/a").unwrap();
    let counters = server.counters();
    assert_eq!(
        (
            counters.total_requests(),
            counters.notifications(),
            counters.watches()
        ),
        (0, 1, 0)
    );
}

#[test]
fn outsider_changes_the_tree() {
    use zookeeper_test_server::{CreateMode, ServerError};
    let (server, mut raw) = server();
    let _ = raw
        .ask(op::EXISTS, &Body::path_watch("/a/b", true))
        .unwrap();
    server.create("/a/b", b"data").unwrap();
    assert_eq!(raw.recv().unwrap().event(), (1, 3, "/a/b".to_owned()));
    assert_eq!(server.create("/a/b", ""), Err(ServerError::NodeExists));
    assert_eq!(server.delete("/a"), Err(ServerError::NotEmpty));
    assert_eq!(server.set_data("/nowhere", ""), Err(ServerError::NoNode));
    assert_eq!(server.create("a", ""), Err(ServerError::BadArguments));
    server.set_data("/a/b", b"more").unwrap();
    assert_eq!(
        (
            server.node("/a/b").unwrap().data,
            server.node("/a/b").unwrap().version
        ),
        (b"more".to_vec(), 1)
    );
    let planted = server
        .create_as("/a/n-", "", CreateMode::EphemeralSequential, raw.session())
        .unwrap();
    assert_eq!(planted, "/a/n-0000000001");
    assert_eq!(raw.stat(&planted).ephemeral_owner, raw.session());
    assert_eq!(
        server.sessions()[0].ephemerals,
        std::slice::from_ref(&planted)
    );
    assert!(server.expire_session(raw.session()));
    assert!(!server.exists(&planted));
    let refused = server.create_as("/a/n-", "", CreateMode::Ephemeral, raw.session());
    assert_eq!(refused, Err(ServerError::SessionExpired));
    assert!(!server.expire_session(raw.session()));
}

/// A minimal executor: futures of the server need no runtime.
fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

#[test]
fn waiting_needs_no_runtime() {
    let (server, mut raw) = server();
    assert!(!block_on(server.wait_until(
        |view| view.exists("/a"),
        Duration::from_millis(20)
    )));
    let gate = server.hold_reply(Match::op(Op::Create));
    let xid = raw.send(op::CREATE, &create("/a")).unwrap();
    block_on(gate.wait_hit());
    assert!(block_on(server.wait_until(
        |view| view.exists("/a") && view.children("/").len() == 2,
        SOON
    )));
    let waiting = server.wait_until(|view| !view.exists("/a"), SOON);
    drop(gate);
    assert!(matches!(raw.recv().unwrap(), Frame { xid: got, error: 0, .. } if got == xid));
    raw.send(op::DELETE, &Body::new().string("/a").i32(-1))
        .unwrap();
    assert!(block_on(waiting));
}

#[test]
fn unread_replies_block_further_requests() {
    let (server, mut raw) = server();
    server.create("/big", vec![b'x'; 1 << 20]).unwrap();
    // Replies that are not read stop the processing of further requests long before they take much
    // memory.
    for _ in 0..500 {
        raw.send(op::GET_DATA, &Body::path_watch("/big", false))
            .unwrap();
    }
    let mut other = Raw::connect(server.addr(), T).unwrap();
    assert_eq!(other.ask(op::PING, &Body::new()).unwrap().1.error, 0);
    let applied = server
        .log()
        .iter()
        .filter(|entry| entry.op == Op::GetData && entry.kind == LogKind::Applied)
        .count();
    assert!(applied < 100, "{applied} replies of a megabyte");
    for _ in 0..500 {
        assert_eq!(raw.recv().unwrap().body.len(), (1 << 20) + 4 + 68);
    }
}

/// The longest possible time may stand for "never".
#[test]
fn longest_durations_do_no_harm() {
    let longest = Duration::MAX;
    let builder = Server::builder()
        .container_check_interval(longest)
        .tick(longest);
    let server = builder
        .min_session_timeout(longest)
        .max_session_timeout(longest)
        .start()
        .unwrap();
    let mut raw = Raw::connect(server.addr(), T).unwrap();
    raw.send(op::CREATE, &create("/a")).unwrap();
    raw.recv().unwrap();
    assert!(server.exists("/a"));
}
