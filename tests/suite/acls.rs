//! ACLs and permissions.

use test_support::prelude::*;
use zookeeper_client as zk;

use crate::harness::{Behaviour, Env, behaviours};

pub(crate) fn all() -> Vec<Behaviour> {
    behaviours![
        denied_create_in_directory_fails,
        denied_create_in_parent_fails,
        denied_list_of_directory_fails,
        denied_deletion_is_reported,
        node_is_deleted_once_permitted,
        digest_entry_is_for_one_user,
        creator_all_keeps_strangers_out.also_on_ensemble(),
        acl_covers_parents_and_nodes.curator("TestLockACLs"),
        rejects_acl_that_zookeeper_refuses,
        rejects_acl_without_its_credentials,
        denied_read_of_predecessor_fails,
    ]
}

/// Makes a directory in which every client has these permissions only.
async fn directory(env: &Env, path: &str, permission: zk::Permission) {
    let acls = [zk::Acl::new(permission, zk::AuthId::anyone())];
    env.create_with(
        path,
        &zk::CreateMode::Persistent.with_acls(zk::Acls::new(&acls)),
    )
    .await;
}

fn assert_no_auth(error: &AcquireError, path: &str) {
    assert_eq!(error.kind(), Some(ErrorKind::NoAuth), "{error:?}");
    assert_eq!(error.path(), path);
    assert!(!error.is_retryable());
    assert!(error.to_string().contains(path), "{error}");
}

/// Asserts the error for a directory that may not be listed.
fn assert_unseen(listed: Result<Vec<NodePath>, Error>, path: &str) {
    let error = listed.unwrap_err();
    assert_eq!(
        (error.kind(), error.node()),
        (ErrorKind::NoAuth, Some(path)),
        "{error:?}"
    );
    assert!(
        error
            .to_string()
            .contains(&format!("the ACL of {path:?} needs READ")),
        "{error}"
    );
    assert_no_auth(&error.into(), path);
}

async fn check_no_auth(mutex: &InterProcessMutex, path: &str) {
    assert_no_auth(&within("an answer", mutex.lock()).await.unwrap_err(), path);
    assert_no_auth(
        &within("an answer", mutex.acquire(Duration::from_secs(20)))
            .await
            .unwrap_err(),
        path,
    );
    match within("an answer", mutex.try_lock()).await.unwrap_err() {
        TryLockError::Acquire(error) => assert_no_auth(&error, path),
        other => panic!("{other:?}"),
    }
    assert!(!mutex.is_acquired_in_this_process());
}

async fn denied_create_in_directory_fails(env: &Env) {
    let path = env.lock_path();
    directory(env, &path, zk::Permission::READ).await;
    let mutex = env.mutex().await;
    check_no_auth(&mutex, &path).await;
    let AcquireError::Request(error) = mutex.lock().await.unwrap_err() else {
        panic!("no request")
    };
    assert_eq!(
        (error.kind(), error.node()),
        (ErrorKind::NoAuth, Some(&*path)),
        "{error}"
    );
    assert!(
        error
            .to_string()
            .contains("its directory needs CREATE, DELETE and READ"),
        "{error}"
    );
    assert!(
        error
            .to_string()
            .contains("which has no credentials (`ClientBuilder::auth`)"),
        "{error}"
    );
    assert_eq!(mutex.participants().await.unwrap(), [""; 0]);
    assert_eq!(
        env.stat(&path).await.unwrap().cversion,
        0,
        "something was created"
    );
}

async fn denied_create_in_parent_fails(env: &Env) {
    let parent = env.path("closed");
    directory(env, &parent, zk::Permission::READ).await;
    let path = format!("{parent}/a/lock");
    let mutex = InterProcessMutex::new(&env.client().await, &path).unwrap();
    check_no_auth(&mutex, &path).await;
    let AcquireError::Request(error) = mutex.lock().await.unwrap_err() else {
        panic!("no request")
    };
    let above = format!("{parent}/a");
    assert_eq!(
        (error.kind(), error.node()),
        (ErrorKind::NoAuth, Some(&*above)),
        "{error}"
    );
    assert!(
        error.to_string().contains(&format!(
            "the ACL of {above:?}, or of the nearest directory above it that exists"
        )),
        "{error}"
    );
    assert_eq!(
        env.stat(&parent).await.unwrap().cversion,
        0,
        "something was created"
    );
}

async fn denied_list_of_directory_fails(env: &Env) {
    let path = env.lock_path();
    directory(env, &path, zk::Permission::CREATE | zk::Permission::DELETE).await;
    let client = env.client().await;
    let mutex = InterProcessMutex::new(&client, &path).unwrap();
    check_no_auth(&mutex, &path).await;
    assert_unseen(mutex.participants().await, &path);
    // The client could also delete the nodes that it could create.
    client.flush(SOON).await.unwrap();
    // The servers delete only empty directories. The Stat has been restricted since ZooKeeper
    // 3.9.5.
    env.delete(&path).await;
}

// Shows: refused-orphan
async fn denied_deletion_is_reported(env: &Env) {
    let path = env.lock_path();
    directory(env, &path, zk::Permission::CREATE | zk::Permission::READ).await;
    let (client, theirs) = (env.client().await, env.mutex().await);
    let mutex = InterProcessMutex::new(&client, &path).unwrap();
    let guard = within("a free lock", mutex.lock()).await.unwrap();
    let node = guard.node();
    match within("an answer", guard.release()).await.unwrap_err() {
        ReleaseError::Refused { node: named, .. } => assert_eq!(named, node),
        other => panic!("{other:?}"),
    }
    // As the error says, the node stays until the session ends, and blocks all other contenders.
    assert!(env.stat(&node).await.is_some());
    assert!(!mutex.is_acquired_in_this_process());
    match client.flush(SOON).await.unwrap_err() {
        ReleaseError::Refused {
            node: named,
            others: 0,
            ..
        } => assert_eq!(named, node),
        other => panic!("{other:?}"),
    }
    for error in [
        mutex.lock().await.unwrap_err(),
        mutex.acquire(SOON).await.unwrap_err(),
    ] {
        let AcquireError::Orphaned { node: named, .. } = &error else {
            panic!("{error:?}")
        };
        assert_eq!(*named, node);
        assert!(error.to_string().contains("grant it DELETE"), "{error}");
    }
    assert_eq!(env.children(&path).await.len(), 1, "no other node");
    assert!(matches!(
        theirs.try_lock().await,
        Err(TryLockError::WouldBlock { .. })
    ));
    let waiter = tokio::spawn(theirs.lock());
    env.wait_count(&path, 2).await;
    client.close().await.unwrap();
    drop(within("the second in line", waiter).await.unwrap().unwrap());
}

/// Sets the permissions of every client on a lock's directory.
async fn allow(plain_client: &zk::Client, path: &str, permission: zk::Permission) {
    let acls = [zk::Acl::new(
        permission | zk::Permission::ADMIN,
        zk::AuthId::anyone(),
    )];
    plain_client.set_acl(path, &acls, None).await.unwrap();
}

async fn node_is_deleted_once_permitted(env: &Env) {
    let path = env.lock_path();
    directory(env, &path, zk::Permission::ALL).await;
    let plain_client = env.plain_client().await;
    let allow = |permission| allow(plain_client, &path, permission);
    allow(zk::Permission::CREATE | zk::Permission::READ).await;
    let client = env.client().await;
    let mutex = InterProcessMutex::new(&client, &path).unwrap();
    drop(within("a free lock", mutex.lock()).await.unwrap());
    let error = client.flush(SOON).await.unwrap_err();
    assert!(matches!(error, ReleaseError::Refused { .. }), "{error:?}");
    allow(zk::Permission::ALL).await;
    within("the lock", mutex.lock())
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    client.flush(SOON).await.unwrap();
    assert!(env.children(&path).await.is_empty());
}

async fn creator_all_keeps_strangers_out(env: &Env) {
    let path = env.lock_path();
    let builder = || {
        env.builder()
            .acl([Acl::creator_all()])
            .auth("digest", "us:secret")
    };
    let ours = env.connect(builder()).await;
    let mutex = InterProcessMutex::new(&ours, &path).unwrap();
    let guard = within("a free lock", mutex.lock()).await.unwrap();
    // A client with the same credentials is admitted. Its member of the ensemble knows of the node,
    // which is older than its session.
    let same = env.connect(builder()).await;
    let other = InterProcessMutex::new(&same, &path).unwrap();
    assert_eq!(other.participants().await.unwrap(), [guard.node()]);
    let waiter = tokio::spawn(other.lock());
    env.wait_watchers(&guard.node(), 1).await;
    let stranger = env.mutex().await;
    check_no_auth(&stranger, &path).await;
    assert_unseen(stranger.participants().await, &path);
    let forger = env
        .connect(env.builder().auth("digest", "us:guessed"))
        .await;
    let forged = InterProcessMutex::new(&forger, &path).unwrap();
    check_no_auth(&forged, &path).await;
    let error = forged.lock().await.unwrap_err();
    assert!(
        error
            .to_string()
            .contains("which has credentials, but not the right ones"),
        "{error}"
    );
    guard.release().await.unwrap();
    within("the second in line", waiter)
        .await
        .unwrap()
        .unwrap()
        .release()
        .await
        .unwrap();
}

/// The server computes the hash: only the user with this password has access.
async fn digest_entry_is_for_one_user(env: &Env) {
    let path = env.lock_path();
    let acl = Acl::digest("us", "geheim: \u{e4}", Permissions::ALL);
    let builder = || env.builder().acl([acl.clone()]);
    let ours = env
        .connect(builder().auth("digest", "us:geheim: \u{e4}"))
        .await;
    let guard = within(
        "a free lock",
        InterProcessMutex::new(&ours, &path).unwrap().lock(),
    )
    .await
    .unwrap();
    let forger = env.connect(env.builder().auth("digest", "us:geheim")).await;
    assert_unseen(
        InterProcessMutex::new(&forger, &path)
            .unwrap()
            .participants()
            .await,
        &path,
    );
    guard.release().await.unwrap();
}

/// Returns the entries of a node's ACL: the users, and their permissions. A user without the right
/// to administer the node sees no hash.
async fn acl(env: &Env, node: &str) -> Vec<(String, String, zk::Permission)> {
    let plain_client = env.plain_client().await;
    plain_client.sync(node).await.unwrap();
    let (acls, _) = plain_client.get_acl(node).await.unwrap();
    let user = |acl: &zk::Acl| acl.id().split(':').next().unwrap().to_owned();
    let mut all: Vec<_> = acls
        .iter()
        .map(|acl| (acl.scheme().to_owned(), user(acl), acl.permission()))
        .collect();
    all.sort_by_key(|(scheme, ..)| scheme.clone());
    all
}

/// The ACL of a recipe, or else that of its client, applies to nodes of every kind, to the
/// directory, and to the directories created above it, but to no existing directory. The client has
/// a namespace too. (Curator asks an object for the ACL of each path; here a parent with another
/// ACL must be created first.)
async fn acl_covers_parents_and_nodes(env: &Env) {
    let path = env.path("a/lock");
    let client = env.client().await;
    let read = Acl::new(
        "world",
        "anyone",
        Permissions::READ | Permissions::CREATE | Permissions::DELETE,
    );
    let named = Acl::new("digest", "us:hash", Permissions::ALL);
    let mutex = InterProcessMutex::builder(&client, &path)
        .acl([read, named])
        .build()
        .unwrap();
    let guard = within("a free lock", mutex.lock()).await.unwrap();
    let read = zk::Permission::READ | zk::Permission::CREATE | zk::Permission::DELETE;
    let entry = |scheme: &str, id: &str, permission| (scheme.to_owned(), id.to_owned(), permission);
    let wanted = [
        entry("digest", "us", zk::Permission::ALL),
        entry("world", "anyone", read),
    ];
    for node in [env.path("a"), path, guard.node().into()] {
        assert_eq!(acl(env, &node).await, wanted, "{node}");
    }
    guard.release().await.unwrap();

    let less = zk::Permission::CREATE | zk::Permission::READ;
    let acls = [zk::Acl::new(less, zk::AuthId::new("ip", "127.0.0.1"))];
    let (there, namespace) = (env.path("there"), env.path("there/ns"));
    env.create_with(
        &there,
        &zk::CreateMode::Persistent.with_acls(zk::Acls::new(&acls)),
    )
    .await;
    let ours = [Acl::new("ip", "127.0.0.1", Permissions::ALL)];
    let client = env
        .connect(env.builder().namespace(&namespace).acl(ours))
        .await;
    let lock = InterProcessReadWriteLock::new(&client, "/bar").unwrap();
    let writer = within("a free lock", lock.write_lock().lock())
        .await
        .unwrap();
    assert_eq!(acl(env, &there).await, [entry("ip", "127.0.0.1", less)]);
    let local = [entry("ip", "127.0.0.1", zk::Permission::ALL)];
    for node in ["", "/bar", &writer.node()] {
        assert_eq!(
            acl(env, &format!("{namespace}{node}")).await,
            local,
            "{node}"
        );
    }
    let downgraded = within("the downgrade", writer.downgrade()).await.unwrap();
    assert_eq!(
        acl(env, &format!("{namespace}{}", downgraded.node())).await,
        local
    );
    downgraded.release().await.unwrap();
    let reader = within("a free lock", lock.read_lock().lock())
        .await
        .unwrap();
    assert_eq!(
        acl(env, &format!("{namespace}{}", reader.node())).await,
        local
    );
    reader.release().await.unwrap();
}

async fn rejects_acl_that_zookeeper_refuses(env: &Env) {
    let client = env.client().await;
    let acl = Acl::new("nonsense", "x", Permissions::ALL);
    let mutex = InterProcessMutex::builder(&client, env.lock_path())
        .acl([acl])
        .build()
        .unwrap();
    let error = within("an answer", mutex.lock()).await.unwrap_err();
    assert_eq!(error.kind(), Some(ErrorKind::Rejected), "{error:?}");
}

async fn rejects_acl_without_its_credentials(env: &Env) {
    let builder = env.builder().acl([Acl::creator_all()]);
    let error = builder.connect(&env.connect_string()).await.unwrap_err();
    assert!(
        matches!(error, ConnectError::NoCredentials { .. }),
        "{error:?}"
    );
    assert!(!error.is_retryable());
    assert!(error.to_string().contains("call `auth`"), "{error}");
    // The ACL of another user is refused as well: it would keep everyone out of the directory.
    let shop = || [Acl::digest("shop", "secret", Permissions::ALL)];
    let other = env.builder().auth("digest", "office:secret");
    let error = other.acl(shop()).connect(&env.connect_string()).await;
    let error = error.unwrap_err();
    assert!(
        matches!(error, ConnectError::NoCredentials { .. }),
        "{error:?}"
    );
    let client = env.client().await;
    let error = InterProcessMutex::builder(&client, env.lock_path())
        .acl(shop())
        .build();
    let error = error.unwrap_err();
    assert!(
        matches!(error, BuildError::InvalidOption { option: "acl", .. }),
        "{error:?}"
    );
    let error = InterProcessMutex::builder(&client, env.lock_path())
        .acl([Acl::creator_all()])
        .build();
    let error = error.unwrap_err();
    assert!(
        matches!(error, BuildError::InvalidOption { option: "acl", .. }),
        "{error:?}"
    );
    assert!(
        error.to_string().contains("call `ClientBuilder::auth`"),
        "{error}"
    );
    // A connector may have its own credentials.
    let connector = zk::Client::connector().with_auth("digest", b"us:secret");
    let client = env
        .connect(env.builder().connector(connector).acl([Acl::creator_all()]))
        .await;
    let mutex = InterProcessMutex::new(&client, env.lock_path()).unwrap();
    within("a free lock", mutex.lock())
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
}

// Shows: no-access
async fn denied_read_of_predecessor_fails(env: &Env) {
    let path = env.lock_path();
    let client = env.client().await;
    let mutex = InterProcessMutex::new(&client, &path).unwrap();
    let secret = [zk::Acl::new(
        zk::Permission::ALL,
        zk::AuthId::new("digest", "somebody:else"),
    )];
    let options = zk::CreateMode::EphemeralSequential.with_acls(zk::Acls::new(&secret));
    let node = env.create_with(&format!("{path}/lock-"), &options).await;
    // Every client may see that the node exists, but no event would report its end.
    assert!(matches!(
        mutex.try_lock().await,
        Err(TryLockError::WouldBlock { .. })
    ));
    assert_eq!(mutex.participants().await.unwrap(), [&*node]);
    let error = within("an answer", mutex.lock()).await.unwrap_err();
    assert_no_auth(&error, &path);
    assert!(
        error.to_string().contains(&format!(
            "the node before this client's, {node:?}, needs READ"
        )),
        "{error}"
    );
    client.flush(SOON).await.unwrap();
    assert_eq!(env.children(&path).await.len(), 1);
    env.wait_no_watches().await;
    env.delete(&node).await;
    within("a free lock", mutex.lock())
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
}
