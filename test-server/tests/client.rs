//! The client for which this server was written sees what it would see of ZooKeeper.
#![expect(
    clippy::unwrap_used,
    reason = "a test fails by panicking; clippy knows this only of #[test] functions"
)]

use std::time::Duration;

use zookeeper_client::{
    Acls, AddWatchMode, Client, CreateMode, CreateOptions, Error, EventType, MultiWriteResult,
    SessionState,
};
use zookeeper_test_server::{Cut, Direction, Loss, Match, NodeKind, Op, Server, Version};

const SOON: Duration = Duration::from_secs(60);

fn options(mode: CreateMode) -> CreateOptions<'static> {
    mode.with_acls(Acls::anyone_all())
}

async fn client(server: &Server) -> Client {
    Client::connector()
        .with_session_timeout(Duration::from_secs(6))
        .connect(&server.connect_string())
        .await
        .unwrap()
}

/// Waits until the client is in the state; `SOON` ends a test that waits too long.
async fn reaches(client: &Client, wanted: SessionState) {
    let mut watcher = client.state_watcher();
    let reached = async {
        while watcher.peek_state() != wanted {
            watcher.changed().await;
        }
    };
    tokio::time::timeout(SOON, reached).await.unwrap();
}

#[tokio::test]
async fn client_creates_reads_watches_and_closes() {
    let server = Server::start().unwrap();
    let client = client(&server).await;
    let (stat, _) = client
        .create("/a", b"one", &options(CreateMode::Persistent))
        .await
        .unwrap();
    assert_eq!(stat.czxid, stat.mzxid);
    let (data, stat, watcher) = client.get_and_watch_data("/a").await.unwrap();
    assert_eq!((data.as_slice(), stat.version), (&b"one"[..], 0));
    server.set_data("/a", b"two").unwrap();
    let event = watcher.changed().await;
    assert_eq!(
        (event.event_type, event.path.as_str()),
        (EventType::NodeDataChanged, "/a")
    );
    let sequential = options(CreateMode::EphemeralSequential);
    let (_, first) = client.create("/a/n-", b"", &sequential).await.unwrap();
    let (_, second) = client.create("/a/n-", b"", &sequential).await.unwrap();
    assert_eq!((first.into_i64(), second.into_i64()), (0, 1));
    assert_eq!(server.children("/a"), ["n-0000000000", "n-0000000001"]);
    assert_eq!(server.counters().requests(Op::Create), 3);
    drop(client);
    assert!(
        server
            .wait_until(|view| view.children("/a").is_empty(), SOON)
            .await
    );
    assert!(server.sessions().is_empty());
}

#[tokio::test]
async fn every_kind_of_request_is_understood() {
    let server = Server::start().unwrap();
    let client = client(&server).await;
    client
        .create("/c", b"", &options(CreateMode::Container))
        .await
        .unwrap();
    assert_eq!(server.node("/c").unwrap().kind, NodeKind::Container);
    let ttl = options(CreateMode::Persistent).with_ttl(Duration::from_secs(60));
    client.create("/c/t", b"", &ttl).await.unwrap();
    assert_eq!(
        server.node("/c/t").unwrap().kind,
        NodeKind::Ttl { ms: 60_000 }
    );
    client.sync("/c").await.unwrap();
    let (names, stat) = client.get_children("/c").await.unwrap();
    assert_eq!((names, stat.num_children), (vec!["t".to_owned()], 1));
    assert_eq!(client.list_children("/c").await.unwrap(), ["t"]);
    assert_eq!(client.count_descendants_number("/").await.unwrap(), 5);
    client.set_data("/c/t", b"data", Some(0)).await.unwrap();
    assert_eq!(
        client.set_data("/c/t", b"data", Some(0)).await.unwrap_err(),
        Error::BadVersion
    );
    let (acls, _) = client.get_acl("/c").await.unwrap();
    assert_eq!(acls.len(), 1);
    client.auth("digest", b"ann:secret").await.unwrap();
    let users = client.list_auth_users().await.unwrap();
    assert!(
        users
            .iter()
            .any(|user| user.scheme() == "digest" && user.user() == "ann")
    );
    client
        .create("/e", b"", &options(CreateMode::Ephemeral))
        .await
        .unwrap();
    assert_eq!(client.list_ephemerals("/").await.unwrap(), ["/e"]);
    let mut watcher = client
        .watch("/c", AddWatchMode::PersistentRecursive)
        .await
        .unwrap();
    client.delete("/c/t", None).await.unwrap();
    assert_eq!(watcher.changed().await.event_type, EventType::NodeDeleted);
    client.delete("/nowhere", None).await.unwrap_err();
    let mut reader = client.new_multi_reader();
    reader.add_get_data("/e").unwrap();
    reader.add_get_children("/nowhere").unwrap();
    assert_eq!(reader.commit().await.unwrap().len(), 2);
}

#[tokio::test]
async fn multi_stat_depends_on_release() {
    for (version, invalid) in [(Version::V3_8, true), (Version::V3_9, false)] {
        let server = Server::builder()
            .zookeeper_version(version)
            .start()
            .unwrap();
        let client = client(&server).await;
        let mut multi = client.new_multi_writer();
        multi
            .add_create("/a", b"", &options(CreateMode::Persistent))
            .unwrap();
        multi.add_check_version("/a", 0).unwrap();
        let results = multi.commit().await.unwrap();
        let [
            MultiWriteResult::Create { path, stat },
            MultiWriteResult::Check,
        ] = results.as_slice()
        else {
            unreachable!("{results:?}");
        };
        assert_eq!((path.as_str(), stat.is_invalid()), ("/a", invalid));
    }
}

#[tokio::test]
async fn disconnect_keeps_nodes_and_watches() {
    let server = Server::start().unwrap();
    for cut in [Cut::Fin, Cut::Reset] {
        let client = client(&server).await;
        let session = client.session_id().0;
        client
            .create("/e", b"", &options(CreateMode::Ephemeral))
            .await
            .unwrap();
        let (_, watcher) = client.check_and_watch_stat("/x").await.unwrap();
        assert!(server.cut(session, cut));
        // A change before the client is back: the event of the watch that it sets again comes at
        // once.
        server.create("/x", "").unwrap();
        assert_eq!(watcher.changed().await.event_type, EventType::NodeCreated);
        assert_eq!(client.session_id().0, session);
        assert_eq!(server.node("/e").unwrap().ephemeral_owner, session);
        assert!(server.counters().requests_of(session, Op::SetWatches) >= 1);
        server.delete("/x").unwrap();
        drop(client);
        assert!(
            server
                .wait_until(|view| view.sessions().is_empty(), SOON)
                .await
        );
    }
}

#[tokio::test]
async fn expiry_ends_client_and_notifies_others() {
    let server = Server::start().unwrap();
    let (owner, other) = (client(&server).await, client(&server).await);
    owner
        .create("/e", b"", &options(CreateMode::Ephemeral))
        .await
        .unwrap();
    let (_, watcher) = other.check_and_watch_stat("/e").await.unwrap();
    assert!(server.expire_session(owner.session_id().0));
    assert_eq!(watcher.changed().await.event_type, EventType::NodeDeleted);
    reaches(&owner, SessionState::Expired).await;
    assert_eq!(
        owner.check_stat("/e").await.unwrap_err(),
        Error::SessionExpired
    );
}

#[tokio::test]
async fn lost_create_reply_matches_zookeeper() {
    for loss in [Loss::Close, Loss::Reset, Loss::Stall] {
        let server = Server::builder()
            .tick(Duration::from_millis(50))
            .max_session_timeout(Duration::from_secs(2))
            .start()
            .unwrap();
        // The client takes most of the timeout to notice a connection that has stalled.
        server.freeze_expiry(true);
        let client = client(&server).await;
        let fault = server.drop_reply(Match::op(Op::Create).path("/a"), loss);
        let error = client
            .create("/a", b"", &options(CreateMode::Persistent))
            .await
            .unwrap_err();
        match loss {
            Loss::Close => assert_eq!(error, Error::ConnectionLoss),
            _ => assert!(matches!(error, Error::Custom(_)), "{error:?}"),
        }
        assert_eq!(fault.hits().len(), 1);
        assert!(client.check_stat("/a").await.unwrap().is_some(), "{loss:?}");
    }
}

#[tokio::test]
async fn stalled_client_loses_its_session() {
    let server = Server::builder()
        .tick(Duration::from_millis(50))
        .start()
        .unwrap();
    server.freeze_expiry(true);
    let client = client(&server).await;
    client
        .create("/e", b"", &options(CreateMode::Ephemeral))
        .await
        .unwrap();
    assert!(server.stall(client.session_id().0, Direction::Both));
    server.freeze_expiry(false);
    assert!(server.wait_until(|view| !view.exists("/e"), SOON).await);
    server.resume(client.session_id().0);
    reaches(&client, SessionState::Expired).await;
}

#[tokio::test]
async fn client_returns_after_restart() {
    let server = Server::start().unwrap();
    let client = client(&server).await;
    client
        .create("/e", b"", &options(CreateMode::Ephemeral))
        .await
        .unwrap();
    server.stop();
    reaches(&client, SessionState::Disconnected).await;
    server.restart().unwrap();
    reaches(&client, SessionState::SyncConnected).await;
    assert_eq!(
        server.node("/e").unwrap().ephemeral_owner,
        client.session_id().0
    );
}
