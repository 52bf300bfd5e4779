//! A persistent node is an ephemeral node that the client creates again when necessary:
//! docs/protocol.md#persistent-node.

use test_support::prelude::*;
use zookeeper_client as zk;

const PATH: &str = "/services/web/web-1";

async fn present(server: &Server, client: &Client, data: &str) -> PersistentNode {
    let node = PersistentNode::new(client, PATH, data).unwrap();
    within("the creation", node.wait_for_initial_create(SOON))
        .await
        .unwrap();
    assert_eq!(server.node(PATH).unwrap().data, data.as_bytes());
    node
}

#[track_caller]
fn state(node: &PersistentNode, wanted: PersistentNodeState) -> impl Future<Output = ()> {
    let mut states = node.watch_state();
    let arrived = async move { states.wait_for(|state| *state == wanted).await.map(drop) };
    let arrived = within(&format!("{wanted:?}"), arrived);
    async move { arrived.await.unwrap() }
}

/// Waits until the node exists in this session with this data.
#[track_caller]
fn is_of(server: &Server, owner: i64, data: &'static str) -> impl Future<Output = ()> {
    until(server, "the node", move |view| {
        view.node(PATH)
            .is_some_and(|node| node.ephemeral_owner == owner && node.data == data.as_bytes())
    })
}

fn others_node(server: &Server, data: &str, owner: i64) {
    server
        .create_as(PATH, data, CreateMode::Ephemeral, owner)
        .unwrap();
}

// Shows: persistent-node
#[tokio::test]
async fn creates_writes_and_deletes() {
    let (server, [client]) = with_clients(Server::start().unwrap(), connect).await;
    let node = present(&server, &client, "a").await;
    assert_eq!(node.state(), PersistentNodeState::Present);
    assert_eq!(server.node(PATH).unwrap().ephemeral_owner, session(&client));
    assert_eq!(
        server.node("/services/web").unwrap().kind,
        NodeKind::Container
    );
    within("the write", node.set_data("b")).await.unwrap();
    assert_eq!(server.node(PATH).unwrap().data, b"b");
    let states = node.watch_state();
    within("the end", node.close()).await.unwrap();
    assert!(!server.exists(PATH));
    assert_eq!(states.get(), PersistentNodeState::Closed);
    until(&server, "the end of the watch", |view| view.watches() == 0).await;
}

/// CURATOR-241: the node is created again with the data that was set while it was absent.
// Shows: persistent-node
#[tokio::test]
async fn data_set_while_absent_are_used() {
    let (server, [client]) = with_clients(Server::start().unwrap(), connect).await;
    let node = present(&server, &client, "a").await;
    let before = session(&client);
    let gate = server.hold_request(Match::op(Op::Create).path(PATH));
    assert!(server.expire_session(before));
    within("the next create", gate.wait_hit()).await;
    assert_eq!(node.state(), PersistentNodeState::Absent);
    let write = pending(node.set_data("b"));
    gate.release();
    within("the write", write).await.unwrap();
    assert_eq!(server.node(PATH).unwrap().data, b"b");
    assert_ne!(server.node(PATH).unwrap().ephemeral_owner, before);
}

/// A session that the client gave up may live on at the servers, with its node. Whichever handle
/// made the node, the node blocks no handle after the end of that session, and no handle confirms
/// the end of the node earlier.
// Shows: persistent-node
#[tokio::test]
async fn node_of_earlier_session_is_awaited() {
    let server = Server::builder()
        .tick(Duration::from_millis(100))
        .start()
        .unwrap();
    let client = connect_for(&server, Duration::from_secs(2)).await;
    let node = present(&server, &client, "a").await;
    let former = session(&client);
    server.freeze_expiry(true);
    assert!(server.stall(former, Direction::ToClient));
    let mut states = client.watch_state();
    let lost = states.wait_for(|_| client.session_id().is_some_and(|id| id != former));
    within("the next session", lost).await.unwrap();
    let closed = within("the end", node.close()).await;
    assert!(
        matches!(closed, Err(PersistentNodeError::NotConfirmed { .. })),
        "{closed:?}"
    );
    let ours = session(&client);
    let looks = server.counters().requests_of(ours, Op::GetData);
    let again = PersistentNode::new(&client, PATH, "b").unwrap();
    until(&server, "its look", move |view| {
        view.counters().requests_of(ours, Op::GetData) > looks
    })
    .await;
    let early = within(
        "an answer",
        again.wait_for_initial_create(Duration::from_millis(50)),
    )
    .await;
    assert!(
        matches!(
            early,
            Err(PersistentNodeError::TimedOut {
                conflict: false,
                ..
            })
        ),
        "{early:?}"
    );
    assert_eq!(again.state(), PersistentNodeState::Absent);
    assert_eq!(server.node(PATH).unwrap().ephemeral_owner, former);
    server.freeze_expiry(false);
    is_of(&server, ours, "b").await;
    state(&again, PersistentNodeState::Present).await;
    within("the end", again.close()).await.unwrap();
}

/// The end of the node is not certain without a server's confirmation: the node exists until the
/// session expires.
// Shows: persistent-node
#[tokio::test]
async fn close_is_confirmed_or_fails() {
    let server = Server::builder()
        .tick(Duration::from_millis(100))
        .start()
        .unwrap();
    let client = connect_for(&server, Duration::from_secs(2)).await;
    let node = present(&server, &client, "a").await;
    server.stop();
    let closed = within("the end of the session", node.close()).await;
    assert!(
        matches!(closed, Err(PersistentNodeError::NotConfirmed { .. })),
        "{closed:?}"
    );
    assert!(server.exists(PATH));
}

/// The session alone could not identify the owner if both creates were unanswered.
// Shows: persistent-node
#[tokio::test]
async fn nodes_of_client_take_turns() {
    let (server, [client]) = with_clients(Server::start().unwrap(), connect).await;
    let id = session(&client);
    let lost = server.drop_reply(Match::op(Op::Create).path(PATH).session(id), Loss::Close);
    let first = PersistentNode::new(&client, PATH, "first").unwrap();
    let second = PersistentNode::new(&client, PATH, "second").unwrap();
    let third = PersistentNode::new(&client, PATH, "third").unwrap();
    within("the creation", first.wait_for_initial_create(SOON))
        .await
        .unwrap();
    is_of(&server, id, "first").await;
    state(&second, PersistentNodeState::Conflict).await;
    assert_eq!(lost.hits().len(), 1);
    within("the end", third.close()).await.unwrap();
    assert_eq!(server.node(PATH).unwrap().data, b"first");
    within("the end", first.close()).await.unwrap();
    within("the creation", second.wait_for_initial_create(SOON))
        .await
        .unwrap();
    is_of(&server, id, "second").await;
    within("the end", client.close()).await.unwrap();
    state(&second, PersistentNodeState::Closed).await;
}

/// CURATOR-97: lost connections, however many, cost nothing.
// Shows: persistent-node
#[tokio::test]
async fn lost_connection_costs_nothing() {
    let (server, [client]) = with_clients(Server::start().unwrap(), connect).await;
    let node = present(&server, &client, "a").await;
    let id = session(&client);
    for data in ["b", "c", "d"] {
        assert!(server.cut(id, Cut::Reset));
        within("the write", node.set_data(data)).await.unwrap();
        assert_eq!(server.node(PATH).unwrap().ephemeral_owner, id);
    }
    assert_eq!(server.node(PATH).unwrap().version, 3);
}

/// CURATOR-258: a deleted node is created again, also after this client or another process has
/// changed its data.
// Shows: persistent-node
#[tokio::test]
async fn deleted_node_is_created_again() {
    let (server, [client]) = with_clients(Server::start().unwrap(), connect).await;
    let node = present(&server, &client, "a").await;
    let id = session(&client);
    for round in 0..3 {
        match round {
            0 => {}
            1 => within("the write", node.set_data("b")).await.unwrap(),
            // Data from another process stays until this client sets the next.
            _ => server.set_data(PATH, "by hand").unwrap(),
        }
        let before = server.node(PATH).unwrap().czxid;
        until(&server, "the watch", move |view| {
            !view.watches_on(PATH).is_empty()
        })
        .await;
        server.delete(PATH).unwrap();
        let data: &[u8] = if round == 0 { b"a" } else { b"b" };
        until(&server, "another node", move |view| {
            let found = view.node(PATH);
            found.is_some_and(|node| {
                node.czxid > before && node.ephemeral_owner == id && node.data == data
            })
        })
        .await;
        state(&node, PersistentNodeState::Present).await;
    }
}

/// CURATOR-154, CURATOR-258: a restarted process finds its own earlier node, which has stale data
/// and is deleted with the earlier session. The new node waits for that.
// Shows: persistent-node
#[tokio::test]
async fn node_of_another_session_is_awaited() {
    let (server, [client, other]) = with_clients(Server::start().unwrap(), connect).await;
    others_node(&server, "old", session(&other));
    let node = PersistentNode::new(&client, PATH, "new").unwrap();
    state(&node, PersistentNodeState::Conflict).await;
    let error = within(
        "the end",
        node.wait_for_initial_create(Duration::from_millis(20)),
    )
    .await
    .unwrap_err();
    assert!(
        matches!(error, PersistentNodeError::TimedOut { conflict: true, .. }),
        "{error}"
    );
    assert!(
        error
            .to_string()
            .contains("another node, or another handle of this client, has the path"),
        "{error}"
    );
    let write = pending(node.set_data("newer"));
    // Data that another process writes to the node does not matter.
    server.set_data(PATH, "still old").unwrap();
    until(&server, "the next watch", |view| {
        !view.watches_on(PATH).is_empty()
    })
    .await;
    assert_eq!(server.node(PATH).unwrap().data, b"still old");
    assert!(server.expire_session(session(&other)));
    is_of(&server, session(&client), "newer").await;
    within("the write", write).await.unwrap();
    state(&node, PersistentNodeState::Present).await;
}

// Shows: persistent-node
#[tokio::test]
async fn close_in_conflict_deletes_nothing() {
    let (server, [client, other]) = with_clients(Server::start().unwrap(), connect).await;
    others_node(&server, "theirs", session(&other));
    let node = PersistentNode::new(&client, PATH, "ours").unwrap();
    state(&node, PersistentNodeState::Conflict).await;
    within("the end", node.close()).await.unwrap();
    assert_eq!(server.node(PATH).unwrap().data, b"theirs");
    // A second node of this client is not touched either, though the session is the same.
    server.delete(PATH).unwrap();
    let first = present(&server, &client, "first").await;
    let second = PersistentNode::new(&client, PATH, "second").unwrap();
    state(&second, PersistentNodeState::Conflict).await;
    within("the end", second.close()).await.unwrap();
    assert_eq!(server.node(PATH).unwrap().data, b"first");
    within("the end", first.close()).await.unwrap();
    assert!(!server.exists(PATH));
}

/// A node that is persistent in ZooKeeper's sense is not deleted with a session.
// Shows: persistent-node
#[tokio::test]
async fn persistent_name_is_a_conflict() {
    let (server, [client]) = with_clients(Server::start().unwrap(), connect).await;
    server.create(PATH, "by hand").unwrap();
    let node = PersistentNode::new(&client, PATH, "ours").unwrap();
    state(&node, PersistentNodeState::Conflict).await;
    assert_eq!(server.node(PATH).unwrap().data, b"by hand");
    server.delete(PATH).unwrap();
    is_of(&server, session(&client), "ours").await;
}

/// Another process takes the name between two sessions of this client.
// Shows: persistent-node
#[tokio::test]
async fn name_taken_between_sessions_conflicts() {
    let (server, [client]) = with_clients(Server::start().unwrap(), connect).await;
    let node = present(&server, &client, "a").await;
    let first = session(&client);
    let gate = server.hold_request(Match::op(Op::Create).path(PATH));
    assert!(server.expire_session(first));
    within("the create of the next session", gate.wait_hit()).await;
    let second = session(&client);
    let other = connect(&server).await;
    // The node has the same data, which proves nothing.
    others_node(&server, "a", session(&other));
    gate.release();
    state(&node, PersistentNodeState::Conflict).await;
    within("the end", other.close()).await.unwrap();
    is_of(&server, second, "a").await;
}

/// A create, a write or a deletion whose answer is lost, or which never arrived, is carried out
/// once.
// Shows: persistent-node
#[tokio::test]
async fn unanswered_requests_are_resolved() {
    for applied in [true, false] {
        let (server, [client]) = with_clients(Server::start().unwrap(), connect).await;
        server.create("/services/web", "").unwrap();
        let request = |op| Match::op(op).path(PATH);
        let create = lose(&server, request(Op::Create), applied, Loss::Close);
        let node = present(&server, &client, "a").await;
        assert_eq!(
            server.node(PATH).unwrap().version,
            0,
            "nothing was written again"
        );
        let write = lose(&server, request(Op::SetData), applied, Loss::Close);
        within("the write", node.set_data("b")).await.unwrap();
        let found = server.node(PATH).unwrap();
        assert_eq!((&*found.data, found.version), (&b"b"[..], 1), "once");
        within("the end", node.close()).await.unwrap();
        assert!(!server.exists(PATH));
        let node = present(&server, &client, "a").await;
        // The first request deletes nothing: it resolves a create.
        let delete = lose(&server, request(Op::Delete).nth(1), applied, Loss::Close);
        within("the end", node.close()).await.unwrap();
        assert!(!server.exists(PATH));
        let hits = [create, write, delete].map(|fault| fault.hits().len());
        assert_eq!(hits, [1; 3], "applied: {applied}");
    }
}

/// A request that was under way when the node was closed or dropped leaves nothing.
// Shows: persistent-node
#[tokio::test]
async fn close_during_creation_leaves_nothing() {
    for (drop_it, reply) in [(false, true), (false, false), (true, true), (true, false)] {
        let (server, [client]) = with_clients(Server::start().unwrap(), connect).await;
        server.create("/services/web", "").unwrap();
        let create = Match::op(Op::Create).path(PATH);
        let gate = hold_back(&server, create, reply);
        let node = PersistentNode::new(&client, PATH, "a").unwrap();
        within("the create", gate.wait_hit()).await;
        assert_eq!(server.exists(PATH), reply);
        let states = node.watch_state();
        if drop_it {
            drop(node);
            gate.release();
        } else {
            let closing = pending(node.close());
            gate.release();
            within("the end", closing).await.unwrap();
        }
        let mut closed = states.clone();
        let closed = closed.wait_for(|state| *state == PersistentNodeState::Closed);
        within("the end", closed).await.unwrap();
        assert!(
            !server.exists(PATH),
            "dropped: {drop_it}, the reply held: {reply}"
        );
        until(&server, "the end of the watch", |view| view.watches() == 0).await;
    }
}

#[tokio::test]
async fn drop_deletes_the_node() {
    let (server, [client]) = with_clients(Server::start().unwrap(), connect).await;
    drop(present(&server, &client, "a").await);
    until(&server, "the end of the node", |view| !view.exists(PATH)).await;
    // The node keeps the client, as a guard does.
    let node = present(&server, &client, "b").await;
    drop(client);
    within("the write", node.set_data("c")).await.unwrap();
    drop(node);
    until(&server, "the end of the session", |view| {
        view.sessions().is_empty()
    })
    .await;
    assert!(!server.exists(PATH));
}

/// A closed client sends no further request, and no call waits for one.
// Shows: persistent-node
#[tokio::test]
async fn closed_client_ends_the_node() {
    let (server, [client]) = with_clients(Server::start().unwrap(), connect).await;
    let node = present(&server, &client, "a").await;
    within("the end", client.close()).await.unwrap();
    state(&node, PersistentNodeState::Closed).await;
    assert!(!server.exists(PATH));
    // A node that is created after that is closed at once.
    let late = PersistentNode::new(&client, PATH, "c").unwrap();
    let member = GroupMember::new(&client, "/group", "a", "").unwrap();
    assert_eq!(
        (late.state(), member.state()),
        (PersistentNodeState::Closed, PersistentNodeState::Closed)
    );
    for refused in [
        within("the write", node.set_data("b")).await,
        within("the write", late.set_data("b")).await,
        within("the creation", late.wait_for_initial_create(SOON)).await,
        within("the write", member.set_data("b")).await,
    ] {
        let error = refused.unwrap_err();
        assert!(
            error.kind() == Some(ErrorKind::Closed) && !error.is_retryable(),
            "{error}"
        );
    }
    for node in [node, late] {
        within("the end", node.close()).await.unwrap();
    }
    let latch = LeaderLatch::new(&client, "/leader").unwrap();
    assert_eq!(latch.state(), LeadershipState::Closed);
    assert!(within("the refusal", latch.leadership()).await.is_err());
    within("the end", latch.close()).await.unwrap();
}

#[tokio::test]
async fn protected_names_are_distinct() {
    let (server, [client, other]) = with_clients(Server::start().unwrap(), connect).await;
    let builder = |client| {
        PersistentNode::builder(client, PATH, "a")
            .protected()
            .parents(ParentNodes::Persistent)
    };
    let (one, two) = (
        builder(&client).build().unwrap(),
        builder(&other).build().unwrap(),
    );
    for node in [&one, &two] {
        within("the creation", node.wait_for_initial_create(SOON))
            .await
            .unwrap();
        let name = node.path().strip_prefix("/services/web/_c_").unwrap();
        assert_eq!((name.len(), &name[36..]), (36 + 6, "-web-1"));
    }
    assert_ne!(one.path(), two.path());
    assert_eq!(
        server.node("/services/web").unwrap().kind,
        NodeKind::Persistent
    );
    // The name stays the same in later sessions.
    let before = session(&client);
    assert!(server.expire_session(before));
    let path = one.path().to_owned();
    until(&server, "the same name", move |view| {
        view.node(&path)
            .is_some_and(|node| node.ephemeral_owner != before)
    })
    .await;
}

#[tokio::test]
async fn refusal_is_reported_and_retried() {
    let server = Server::builder()
        .tick(Duration::from_millis(100))
        .start()
        .unwrap();
    let builder = Client::builder()
        .retry_policy(eager())
        .session_timeout(Duration::from_secs(2));
    let client = connect_as(builder, &server).await;
    let raw = within("a session", zk::Client::connect(&server.connect_string()))
        .await
        .unwrap();
    let read_only = [zk::Acl::new(zk::Permission::READ, zk::AuthId::anyone())];
    let closed = zk::CreateMode::Persistent.with_acls(zk::Acls::new(&read_only));
    within("the directory", raw.create("/services", b"", &closed))
        .await
        .unwrap();
    let node = PersistentNode::new(&client, PATH, "a").unwrap();
    let error = within("the refusal", node.wait_for_initial_create(SOON))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), Some(ErrorKind::NoAuth), "{error}");
    assert!(
        error
            .to_string()
            .ends_with("which has no credentials (`ClientBuilder::auth`)"),
        "{error}"
    );
    assert_eq!(
        (node.state(), error.path()),
        (PersistentNodeState::Refused, PATH)
    );
    server.delete("/services").unwrap();
    state(&node, PersistentNodeState::Present).await;
    assert!(server.exists(PATH));
}

/// The refusal concerns neither earlier data nor a connection that was lost since.
// Shows: persistent-node
#[tokio::test]
async fn refusal_belongs_to_refused_data() {
    let (server, [client]) = with_clients(Server::start().unwrap(), connect).await;
    let node = present(&server, &client, "a").await;
    until(&server, "its watch", |view| view.watches() == 1).await;
    let refused = server.fail(
        Match::op(Op::SetData).path(PATH),
        ServerError::NoAuth.code(),
    );
    let error = within("the refusal", node.set_data("b")).await.unwrap_err();
    assert_eq!(error.kind(), Some(ErrorKind::NoAuth), "{error}");
    assert_eq!(
        (refused.hits().len(), node.state()),
        (1, PersistentNodeState::Refused)
    );
    within("a write that is not refused", node.set_data("c"))
        .await
        .unwrap();
    assert_eq!(
        (&*server.node(PATH).unwrap().data, node.state()),
        (&b"c"[..], PersistentNodeState::Present)
    );

    let refused = server.fail(
        Match::op(Op::SetData).path(PATH),
        ServerError::NoAuth.code(),
    );
    assert!(within("the refusal", node.set_data("d")).await.is_err());
    assert_eq!(refused.hits().len(), 1);
    server.fail(
        Match::op(Op::SetData).path(PATH),
        ServerError::NoAuth.code(),
    );
    let lost = server.drop_request(Match::op(Op::GetData).path(PATH), Loss::Close);
    let error = within("the next refusal", node.set_data("e"))
        .await
        .unwrap_err();
    assert_eq!(lost.hits().len(), 1);
    assert_eq!(
        error.kind(),
        Some(ErrorKind::NoAuth),
        "of a lost connection: {error}"
    );
    within("the end", node.close()).await.unwrap();
}

/// A client whose session has no room for watches polls once per sixth of the session timeout.
// Shows: persistent-node
#[tokio::test]
async fn polls_where_watches_are_used_up() {
    let server = Server::builder()
        .tick(Duration::from_millis(100))
        .start()
        .unwrap();
    let builder = Client::builder()
        .retry_policy(eager())
        .session_timeout(Duration::from_secs(2));
    let client = connect_as(builder, &server).await;
    let mut nodes = Vec::new();
    // Half of the paths that a session may watch: each is 15 kB long.
    for number in 0..5 {
        let path = format!("/services/{}-{number}", "x".repeat(15_000));
        let node = PersistentNode::new(&client, &path, "").unwrap();
        within("the creation", node.wait_for_initial_create(SOON))
            .await
            .unwrap();
        nodes.push((path, node));
    }
    until(&server, "four watches", |view| view.watches() == 4).await;
    for (path, _) in &nodes {
        let before = server.node(path).unwrap().czxid;
        server.delete(path).unwrap();
        let path = path.clone();
        until(&server, "another node", move |view| {
            view.node(&path).is_some_and(|node| node.czxid > before)
        })
        .await;
    }
}

#[tokio::test]
async fn rejects_impossible_values_before_sending() {
    let server = Server::start().unwrap();
    let client = connect_with(&server, RetryPolicy::n_times(1, Duration::from_millis(1))).await;
    let before = server.counters().total_requests();
    let invalid = PersistentNode::new(&client, "no/slash", "").unwrap_err();
    assert!(matches!(invalid, BuildError::InvalidPath(_)), "{invalid}");
    for builder in [
        PersistentNode::builder(&client, PATH, vec![0; 1_000_001]),
        PersistentNode::builder(&client, PATH, "").acl([]),
        PersistentNode::builder(&client, PATH, "").acl([Acl::creator_all()]), // the client has no credentials
    ] {
        let invalid = builder.build().unwrap_err();
        assert!(
            matches!(invalid, BuildError::InvalidOption { .. }) && invalid.path() == PATH,
            "{invalid}"
        );
    }
    assert_eq!(server.counters().total_requests(), before);
    let acl = [Acl::new("world", "anyone", Permissions::ALL)];
    let node = PersistentNode::builder(&client, PATH, "a")
        .acl(acl)
        .build()
        .unwrap();
    let large = within("the refusal", node.set_data(vec![0; 1_000_001]))
        .await
        .unwrap_err();
    assert!(
        matches!(
            large,
            PersistentNodeError::DataTooLarge {
                bytes: 1_000_001,
                ..
            }
        ),
        "{large}"
    );
    within("the creation", node.wait_for_initial_create(SOON))
        .await
        .unwrap();
    assert_eq!(server.node(PATH).unwrap().data, b"a");
}
