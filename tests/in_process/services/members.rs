//! The members of a group: docs/protocol.md#group-watch.

use std::collections::BTreeMap;

use test_support::prelude::*;

const GROUP: &str = "/services/web";

async fn join(client: &Client, id: &str) -> GroupMember {
    let member = GroupMember::new(client, GROUP, id, format!("of {id}")).unwrap();
    within("the join", member.wait_for_initial_create(SOON))
        .await
        .unwrap();
    member
}

fn ids(members: &BTreeMap<String, Vec<u8>>) -> Vec<&str> {
    members.keys().map(String::as_str).collect()
}

// Shows: group-watch
#[tokio::test]
async fn members_know_each_other() {
    let (server, [client, other]) = with_clients(Server::start().unwrap(), connect).await;
    let one = join(&client, "1").await;
    let two = join(&other, "2").await;
    // The node belongs to another program, and its name is not an id of this crate.
    server.create("/services/web/100%", "by hand").unwrap();
    let members = within("the members", one.members()).await.unwrap();
    assert_eq!(ids(&members), ["1", "100%", "2"]);
    assert_eq!(
        (&*members["2"], &*members["100%"]),
        (&b"of 2"[..], &b"by hand"[..])
    );
    within("the write", two.set_data("new")).await.unwrap();
    assert_eq!(
        within("the members", two.members()).await.unwrap()["2"],
        b"new"
    );
    within("the end", two.close()).await.unwrap();
    assert_eq!(
        ids(&within("the members", one.members()).await.unwrap()),
        ["1", "100%"]
    );
    let shown = format!("{one:?}");
    assert!(
        shown.contains(GROUP) && shown.contains("Present"),
        "{shown}"
    );
}

/// An id that needs an escape is refused, because its node would have a different name.
// Shows: group-watch
#[tokio::test]
async fn id_is_the_nodes_name() {
    let (server, [client]) = with_clients(Server::start().unwrap(), connect).await;
    let mut members = Vec::new();
    for id in ["50%", "50%25", "\u{5e93}\u{5b58}", "10.0.0.7:80"] {
        members.push(join(&client, id).await);
        assert_eq!(members.last().unwrap().id(), id);
        assert_eq!(
            server.node(&format!("{GROUP}/{id}")).unwrap().data,
            format!("of {id}").as_bytes()
        );
    }
    let found = members[0].members().await.unwrap();
    assert_eq!(
        ids(&found),
        ["10.0.0.7:80", "50%", "50%25", "\u{5e93}\u{5b58}"]
    );
    for id in ["", ".", "..", "a/b", "/", "a\n"] {
        let error = GroupMember::new(&client, GROUP, id, "").unwrap_err();
        assert!(
            matches!(&error, BuildError::InvalidPath(path) if path.path() == format!("{GROUP}/{id}")),
            "{error}"
        );
        let escaped = LockPath::segment(id);
        members.push(join(&client, &escaped).await);
    }
    assert_eq!(server.children(GROUP).len(), members.len());
}

/// The name of a member can be listed, but its data cannot be read.
// Shows: group-watch
#[tokio::test]
async fn unreadable_member_is_left_out() {
    let (server, [client, other]) = with_clients(Server::start().unwrap(), connect).await;
    let (one, two) = (join(&client, "1").await, join(&client, "2").await);
    let mut watch = GroupMember::new(&other, GROUP, "1", "").unwrap().watch();
    let denied = Match::op(Op::GetData)
        .path(format!("{GROUP}/1"))
        .session(session(&other));
    server.fail(denied.always(), ServerError::NoAuth.code());
    assert_eq!(
        ids(&within("the members", watch.changed()).await.unwrap()),
        ["2"]
    );
    drop((one, two));
}

// Shows: group-watch
#[tokio::test]
async fn joins_and_departures_are_batched() {
    let (server, [client, other]) = with_clients(Server::start().unwrap(), connect).await;
    let one = join(&client, "1").await;
    let mut watch = one.watch();
    assert_eq!(
        ids(&within("the members", watch.changed()).await.unwrap()),
        ["1"]
    );
    // Changes between two calls are not lost, and are reported as one.
    let two = join(&other, "2").await;
    let three = join(&other, "3").await;
    within("the end", two.close()).await.unwrap();
    assert_eq!(
        ids(&within("the change", watch.changed()).await.unwrap()),
        ["1", "3"]
    );
    let waiting = pending(watch.changed());
    until(&server, "the watch", |view| {
        !view.watches_on(GROUP).is_empty()
    })
    .await;
    within("the end", three.close()).await.unwrap();
    assert_eq!(ids(&within("the change", waiting).await.unwrap()), ["1"]);
}

/// A member that has left and returned has another session, and perhaps other data.
// Shows: group-watch
#[tokio::test]
async fn returning_member_is_a_change() {
    let (server, [client, other]) = with_clients(Server::start().unwrap(), connect).await;
    let one = join(&client, "1").await;
    let two = join(&other, "2").await;
    let mut watch = one.watch();
    within("the members", watch.changed()).await.unwrap();
    let before = session(&other);
    assert!(server.expire_session(before));
    until(&server, "its return", move |view| {
        view.node("/services/web/2")
            .is_some_and(|node| node.ephemeral_owner != before)
    })
    .await;
    assert_eq!(
        ids(&within("the change", watch.changed()).await.unwrap()),
        ["1", "2"]
    );
    drop(two);
}

/// The next session may be at a server that lags behind: the watch shows nothing older than before.
// Shows: group-watch
#[tokio::test]
async fn next_session_shows_nothing_older() {
    let (server, [client, watcher]) = with_clients(Server::start().unwrap(), connect).await;
    let one = join(&client, "1").await;
    let gone = join(&watcher, "w").await;
    let mut watch = gone.watch();
    // The join and the departure of this member are changes too.
    within("the end", gone.close()).await.unwrap();
    within("the members", watch.changed()).await.unwrap();
    let syncs = |id| {
        let of_group = move |entry: &LogEntry| {
            entry.session == id && entry.kind == LogKind::Arrived && entry.path == GROUP
        };
        let ops = [Op::Sync, Op::GetChildren];
        let log = server.log().into_iter().filter(of_group);
        log.map(|entry| entry.op)
            .filter(|op| ops.contains(op))
            .collect::<Vec<_>>()
    };
    let id = session(&watcher);
    assert_eq!(syncs(id), [Op::GetChildren]);
    let waiting = pending(watch.changed());
    until(&server, "the watch", move |view| {
        view.watches_on(GROUP).contains(&id)
    })
    .await;
    assert!(server.expire_session(id));
    until(&server, "the next watch", |view| {
        !view.watches_on(GROUP).is_empty()
    })
    .await;
    let id = session(&watcher);
    assert_eq!(syncs(id), [Op::Sync, Op::GetChildren]);
    // In the same session the next list is never older.
    let two = join(&client, "2").await;
    assert_eq!(
        ids(&within("the change", waiting).await.unwrap()),
        ["1", "2"]
    );
    assert_eq!(syncs(id), [Op::Sync, Op::GetChildren, Op::GetChildren]);
    drop((one, two));
}

/// New data alone is not a change, and costs no look.
// Shows: group-watch
#[tokio::test]
async fn watch_costs_two_lists_and_reads() {
    let (server, [client, other, watcher]) = with_clients(Server::start().unwrap(), calm).await;
    let one = join(&client, "1").await;
    let gone = join(&watcher, "w").await;
    let mut watch = gone.watch();
    // The join and the departure of this member are changes too.
    within("the end", gone.close()).await.unwrap();
    within("the members", watch.changed()).await.unwrap();
    let id = session(&watcher);
    let requests = move |server: &Server| {
        let counters = server.counters();
        (
            counters.requests_of(id, Op::GetChildren),
            counters.requests_of(id, Op::GetData),
        )
    };
    let before = requests(&server);
    let waiting = pending(watch.changed());
    until(&server, "the watch", |view| {
        !view.watches_on(GROUP).is_empty()
    })
    .await;
    within("the write", one.set_data("new")).await.unwrap();
    let two = join(&other, "2").await;
    let members = within("the change", waiting).await.unwrap();
    assert_eq!(members["1"], b"new");
    let after = requests(&server);
    assert_eq!((after.0 - before.0, after.1 - before.1), (2, 2));
    drop(two);
}

// Shows: group-watch
#[tokio::test]
async fn empty_group_is_watched() {
    let (server, [client, other]) = with_clients(Server::start().unwrap(), connect).await;
    let mut watch = join(&client, "1").await.watch();
    until(&server, "no members", |view| {
        view.children(GROUP).is_empty()
    })
    .await;
    // The directory is deleted as well.
    server.delete(GROUP).unwrap();
    assert!(
        within("the members", watch.changed())
            .await
            .unwrap()
            .is_empty()
    );
    let waiting = pending(watch.changed());
    until(&server, "the watch", |view| {
        !view.watches_on(GROUP).is_empty()
    })
    .await;
    let _two = join(&other, "2").await;
    let mut members = within("the change", waiting).await.unwrap();
    if members.is_empty() {
        // The creation of the directory was reported first.
        members = within("the next", watch.changed()).await.unwrap();
    }
    assert_eq!(ids(&members), ["2"]);
}

// Shows: group-watch
#[tokio::test]
async fn faults_lose_no_change() {
    let (server, [client, other, watcher]) = with_clients(Server::start().unwrap(), connect).await;
    let one = join(&client, "1").await;
    let left = join(&watcher, "w").await;
    let mut watch = left.watch();
    within("the end", left.close()).await.unwrap();
    within("the members", watch.changed()).await.unwrap();
    // The rounds are a lost list, a connection that is lost during the wait, and a session that
    // ends.
    for round in 0..3 {
        let id = session(&watcher);
        let fault = server.drop_reply(Match::op(Op::GetChildren).session(id), Loss::Close);
        let waiting = pending(watch.changed());
        within("the fault", fault.wait_hit()).await;
        until(&server, "the watch", |view| {
            !view.watches_on(GROUP).is_empty()
        })
        .await;
        match round {
            0 => {}
            // The watch may be that of the lost list, and the next connection still to come.
            1 => {
                let cut = async {
                    while !server.cut(id, Cut::Reset) {
                        tokio::task::yield_now().await;
                    }
                };
                within("a connection", cut).await;
            }
            _ => assert!(server.expire_session(id)),
        }
        let two = join(&other, "2").await;
        assert_eq!(
            ids(&within("the change", waiting).await.unwrap()),
            ["1", "2"]
        );
        within("the end", two.close()).await.unwrap();
        assert_eq!(
            ids(&within("the change", watch.changed()).await.unwrap()),
            ["1"]
        );
    }
    drop(one);
    within("the end", watcher.close()).await.unwrap();
    let error = within("the end", watch.changed()).await.unwrap_err();
    assert!(
        error.kind() == Some(ErrorKind::Closed) && error.path() == GROUP,
        "{error}"
    );
}
