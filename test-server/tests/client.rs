//! The first things any client does.

use std::time::Duration;

use zookeeper_client::{Acls, Client, CreateMode, EventType};
use zookeeper_test_server::{Op, Server};

const SOON: Duration = Duration::from_secs(10);

#[tokio::test]
async fn a_client_creates_reads_watches_and_closes() {
    let server = Server::start().unwrap();
    let client = Client::connect(&server.connect_string()).await.unwrap();
    let options = CreateMode::Persistent.with_acls(Acls::anyone_all());
    let (stat, _) = client.create("/a", b"one", &options).await.unwrap();
    assert_eq!(stat.czxid, stat.mzxid);
    let (data, stat, watcher) = client.get_and_watch_data("/a").await.unwrap();
    assert_eq!((data.as_slice(), stat.version), (&b"one"[..], 0));
    server.set_data("/a", b"two").unwrap();
    let event = watcher.changed().await;
    assert_eq!((event.event_type, event.path.as_str()), (EventType::NodeDataChanged, "/a"));
    let sequential = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
    let (_, first) = client.create("/a/n-", b"", &sequential).await.unwrap();
    let (_, second) = client.create("/a/n-", b"", &sequential).await.unwrap();
    assert_eq!((first.into_i64(), second.into_i64()), (0, 1));
    assert_eq!(server.children("/a"), ["n-0000000000", "n-0000000001"]);
    assert_eq!(server.counters().requests(Op::Create), 3);
    drop(client);
    assert!(server.wait_until(|view| view.children("/a").is_empty(), SOON).await);
    assert!(server.sessions().is_empty());
}
