//! The directories above a lock's nodes (docs/protocol.md#directories).

use ::simulation::scenario::tokio;
use test_support::prelude::*;
use zookeeper_client as zk;

// Shows: directories
#[tokio::test]
async fn directories_have_the_locks_acl() {
    let (server, [client]) = with_clients(start_empty(), calm).await;
    let permissions =
        Permissions::READ | Permissions::WRITE | Permissions::CREATE | Permissions::DELETE;
    let acl = Acl::new("world", "anyone", permissions);
    let lock = InterProcessMutex::builder(&client, "/shop/stock/sku-42").acl([acl]);
    let guard = within("the grant", lock.build().unwrap().lock())
        .await
        .unwrap();
    let other = zk::Client::connect(&server.connect_string()).await.unwrap();
    let acl_of = async |path: &str| other.get_acl(path).await.unwrap().0;
    let wanted = acl_of(&guard.node()).await;
    assert_ne!(wanted, zk::Acls::anyone_all().to_vec());
    for directory in ["/shop", "/shop/stock", "/shop/stock/sku-42"] {
        assert_eq!(acl_of(directory).await, wanted, "{directory}");
    }
}
