//! The history, and the clock that tests move.

mod raw;

use std::time::Duration;

use raw::{Body, Raw, op};
use zookeeper_test_server::{CreateMode, Cut, HistoryEvent as Event, Server, WatchKind};

const SOON: Duration = Duration::from_secs(60);
const T: i32 = 40_000;

fn path(path: &str) -> String {
    path.to_owned()
}

/// The events from a number on, each with its session.
fn events(server: &Server, since: u64) -> Vec<(i64, Event)> {
    server
        .history(since)
        .into_iter()
        .map(|entry| (entry.session, entry.event))
        .collect()
}

#[test]
fn records_every_change_with_its_transaction() {
    let server = Server::start().unwrap();
    let mut raw = Raw::connect(server.addr(), T).unwrap();
    let session = raw.session();
    let multi = [
        (op::CREATE, Body::create("/a", b"one", 1)),
        (
            op::SET_DATA,
            Body::new().string("/a").buffer(Some(b"two")).i32(-1),
        ),
        (op::CHECK, Body::new().string("/a").i32(1)),
    ];
    let multi = raw.call(op::MULTI, &Body::multi(&multi));
    let failed = [
        (op::CREATE, Body::create("/b", b"", 0)),
        (op::CREATE, Body::create("/a", b"", 0)),
    ];
    raw.call(op::MULTI, &Body::multi(&failed));
    let acl = raw.call(
        op::SET_ACL,
        &Body::new().string("/a").acl(raw::OPEN).i32(-1),
    );
    server.create("/c", "").unwrap();
    let closed = raw.call(op::CLOSE_SESSION, &Body::new());
    let data = |data: &[u8]| Some(data.into());
    let expected = [
        (session, None, Event::SessionOpened),
        (
            session,
            Some(multi.zxid),
            Event::Created {
                path: path("/a"),
                data: data(b"one"),
            },
        ),
        (
            session,
            Some(multi.zxid),
            Event::DataSet {
                path: path("/a"),
                data: data(b"two"),
            },
        ),
        (session, Some(acl.zxid), Event::AclSet { path: path("/a") }),
        (
            0,
            None,
            Event::Created {
                path: path("/c"),
                data: data(b""),
            },
        ),
        (session, Some(closed.zxid), Event::SessionClosed),
        (
            session,
            Some(closed.zxid),
            Event::Deleted { path: path("/a") },
        ),
    ];
    let history = server.history(0);
    assert_eq!(history.len(), expected.len(), "{history:#?}");
    for (index, (entry, (session, zxid, event))) in history.iter().zip(expected).enumerate() {
        assert_eq!(
            (entry.n, entry.session, &entry.event),
            (index as u64, session, &event)
        );
        assert_eq!(entry.zxid, zxid.unwrap_or(entry.zxid), "{entry:?}");
    }
    assert!(history.is_sorted_by_key(|entry| (entry.zxid, entry.at)));
    assert_eq!(server.history(5), history[5..]);
}

#[test]
fn records_watches_set_removed_fired() {
    let server = Server::start().unwrap();
    let mut raw = Raw::connect(server.addr(), T).unwrap();
    let session = raw.session();
    raw.create("/a", 0);
    let since = server.history(0).len() as u64;
    raw.call(op::GET_DATA, &Body::path_watch("/a", true));
    raw.call(op::GET_CHILDREN, &Body::path_watch("/a", true));
    raw.call(op::ADD_WATCH, &Body::new().string("/").i32(1));
    raw.call(op::ADD_WATCH, &Body::new().string("/b").i32(0));
    raw.call(op::REMOVE_WATCHES, &Body::new().string("/b").i32(3));
    server.delete("/a").unwrap();
    let set = |at: &str, watch| {
        (
            session,
            Event::WatchSet {
                path: path(at),
                watch,
            },
        )
    };
    let expected = [
        set("/a", WatchKind::Data),
        set("/a", WatchKind::Children),
        set("/", WatchKind::Recursive),
        set("/b", WatchKind::Persistent),
        (session, Event::WatchRemoved { path: path("/b") }),
        (0, Event::Deleted { path: path("/a") }),
        (
            session,
            Event::WatchFired {
                path: path("/a"),
                event: 2,
            },
        ),
    ];
    assert_eq!(events(&server, since), expected);
}

#[test]
fn records_fate_of_each_session() {
    let server = Server::start().unwrap();
    let raw = Raw::connect(server.addr(), T).unwrap();
    let session = raw.session();
    server.cut(session, Cut::Reset);
    let gone = |view: zookeeper_test_server::View<'_>| !view.sessions()[0].connected;
    assert!(server.wait_until_blocking(gone, SOON));
    let _again = Raw::reconnect(server.addr(), T, session, &raw.greeting.password, 0).unwrap();
    server.expire_session(session);
    let expected = [
        Event::SessionOpened,
        Event::SessionDisconnected,
        Event::SessionResumed,
        Event::SessionExpired,
    ];
    assert_eq!(events(&server, 0), expected.map(|event| (session, event)));
}

#[test]
fn clock_moves_by_hand() {
    let server = Server::start().unwrap();
    let _raw = Raw::connect(server.addr(), T).unwrap();
    server
        .create_as("/container", "", CreateMode::Container, 0)
        .unwrap();
    server.create("/container/a", "").unwrap();
    server.delete("/container/a").unwrap();
    let mut raw = Raw::connect(server.addr(), T).unwrap();
    let ttl = Body::create("/ttl", b"", 5).i64(60_000);
    raw.call(op::CREATE_TTL, &ttl);
    server.advance_clock(Duration::from_secs(39));
    assert_eq!(server.sessions().len(), 2);
    assert!(!server.exists("/container") && server.exists("/ttl"));
    server.advance_clock(Duration::from_secs(3));
    assert_eq!(server.sessions().len(), 0);
    server.freeze_expiry(true);
    let _raw = Raw::connect(server.addr(), T).unwrap();
    server.advance_clock(Duration::from_secs(60));
    assert_eq!(server.sessions().len(), 1, "expiry is frozen");
    assert!(!server.exists("/ttl"));
    server.freeze_expiry(false);
    server.advance_clock(Duration::MAX);
    assert_eq!(server.sessions().len(), 0);
}

/// Sessions that are opened at the clock's limit do not expire at each tick.
#[test]
fn clients_work_at_the_clocks_limit() {
    let server = Server::start().unwrap();
    for _ in 0..2 {
        server.advance_clock(Duration::MAX);
        let mut raw = Raw::connect(server.addr(), T).unwrap();
        server.advance_clock(Duration::from_secs(1));
        assert_eq!(server.sessions().len(), 1);
        raw.create("/ephemeral", 1);
        raw.call(op::CLOSE_SESSION, &Body::new());
    }
}
