//! TestLockACLs.

use test_support::within;
use zookeeper_client as zk;
use zookeeper_recipes::{Acl, InterProcessReadWriteLock, Permissions};

use super::stage::{Kind, Stage, ported};
use crate::harness::Behaviour;

pub(crate) fn all() -> Vec<Behaviour> {
    ported![Kind::Write;
        test_lock_acls = "TestLockACLs.testLockACLs",
        test_acls_creating_parents = "TestLockACLs.testACLsCreatingParents",
    ]
}

async fn acl(stage: &Stage<'_>, path: &str) -> Vec<(String, String, zk::Permission)> {
    let outsider = stage.env.outsider().await;
    outsider.sync(path).await.unwrap();
    let (acls, _) = outsider.get_acl(path).await.unwrap();
    acls.iter().map(|acl| (acl.scheme().to_owned(), acl.id().to_owned(), acl.permission())).collect()
}

fn local(permission: zk::Permission) -> Vec<(String, String, zk::Permission)> {
    vec![("ip".to_owned(), "127.0.0.1".to_owned(), permission)]
}

/// The client's ACL goes to the nodes of a read-write lock, its directory, and what had to be made above it.
async fn test_lock_acls(stage: &Stage<'_>) {
    let namespace = stage.env.path("ns");
    let ours = [Acl::new("ip", "127.0.0.1", Permissions::ALL)];
    let client = stage.connect(stage.env.builder().namespace(&namespace).acl(ours)).await;
    let lock = InterProcessReadWriteLock::new(&client, "/bar").unwrap();
    let writer = within("a free lock", lock.write_lock().lock()).await.unwrap();
    let paths = [namespace.clone(), format!("{namespace}/bar"), format!("{namespace}{}", writer.node())];
    for path in paths {
        assert_eq!(acl(stage, &path).await, local(zk::Permission::ALL), "{path}");
    }
    let reader = within("the downgrade", writer.downgrade()).await.unwrap();
    let node = format!("{namespace}{}", reader.node());
    assert_eq!(acl(stage, &node).await, local(zk::Permission::ALL), "{node}");
    reader.release().await.unwrap();
    let reader = within("a free lock", lock.read_lock().lock()).await.unwrap();
    let node = format!("{namespace}{}", reader.node());
    assert_eq!(acl(stage, &node).await, local(zk::Permission::ALL), "{node}");
    reader.release().await.unwrap();
}

/// A directory with another ACL than what is made below it. (Curator asks an object for the ACL of each path;
/// here who wants another one for a parent makes that first.)
async fn test_acls_creating_parents(stage: &Stage<'_>) {
    let less = zk::Permission::CREATE | zk::Permission::READ;
    let acls = [zk::Acl::new(less, zk::AuthId::new("ip", "127.0.0.1"))];
    let parent = stage.env.path("parent");
    stage.env.create_with(&parent, &zk::CreateMode::Persistent.with_acls(zk::Acls::new(&acls))).await;
    let ours = [Acl::new("ip", "127.0.0.1", Permissions::ALL)];
    let client = stage.connect(stage.env.builder().acl(ours)).await;
    let path = format!("{parent}/foo");
    let lock = InterProcessReadWriteLock::new(&client, &path).unwrap();
    let writer = within("a free lock", lock.write_lock().lock()).await.unwrap();
    assert_eq!(acl(stage, &parent).await, local(less));
    assert_eq!(acl(stage, &path).await, local(zk::Permission::ALL));
    assert_eq!(acl(stage, &writer.node()).await, local(zk::Permission::ALL));
    writer.release().await.unwrap();
}
