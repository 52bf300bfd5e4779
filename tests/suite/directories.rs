//! The lock's directory and its parents.

use test_support::prelude::*;
use zookeeper_client as zk;

use crate::harness::{Behaviour, Env, NO_CONTAINERS, Need, behaviours};

pub(crate) fn all() -> Vec<Behaviour> {
    behaviours![
        directories_and_parents_are_containers.needs(Need::SeeKinds),
        directories_persist_on_request.needs(Need::SeeKinds),
        existing_directories_are_left_alone,
        deleted_directory_is_made_again.also_on_ensemble(),
        quickly_deleted_directory_is_made_again
            .needs(Need::HoldReplies)
            .not_on_keeper(NO_CONTAINERS),
        many_contenders_make_a_directory
            .with_faults()
            .also_on_ensemble(),
        namespace_is_hidden.curator("testWithNamespace"),
        connect_string_may_have_a_namespace,
        namespaces_of_both_places_add_up,
        namespaces_are_isolated,
        accepts_any_zookeeper_path,
        any_text_makes_a_path.also_on_ensemble(),
        rejects_bad_paths_before_sending.in_process_only(),
        rejects_path_below_ephemeral_node,
    ]
}

async fn directories_and_parents_are_containers(env: &Env) {
    let path = env.path("a/b/c/lock");
    let client = env.client().await;
    let guard = InterProcessMutex::new(&client, &path)
        .unwrap()
        .lock()
        .await
        .unwrap();
    for parent in [
        env.path("a"),
        env.path("a/b"),
        env.path("a/b/c"),
        path.clone(),
    ] {
        assert_eq!(
            env.server().node(&parent).unwrap().kind,
            NodeKind::Container,
            "{parent}"
        );
    }
    assert_eq!(
        env.stat(&guard.node()).await.unwrap().ephemeral_owner,
        client.session_id().unwrap()
    );
    guard.release().await.unwrap();
}

async fn directories_persist_on_request(env: &Env) {
    let path = env.path("a/lock");
    let client = env.client().await;
    let mutex = InterProcessMutex::builder(&client, &path)
        .parents(ParentNodes::Persistent)
        .build()
        .unwrap();
    let guard = mutex.lock().await.unwrap();
    for parent in [env.path("a"), path.clone()] {
        assert_eq!(
            env.server().node(&parent).unwrap().kind,
            NodeKind::Persistent,
            "{parent}"
        );
    }
    guard.release().await.unwrap();
}

async fn existing_directories_are_left_alone(env: &Env) {
    let path = env
        .create(&env.lock_path(), zk::CreateMode::Persistent)
        .await;
    let plain_client = env.plain_client().await;
    plain_client
        .set_data(&path, b"not yours", None)
        .await
        .unwrap();
    let before = env.stat(&path).await.unwrap();
    let mutex = env.mutex().await;
    mutex.lock().await.unwrap().release().await.unwrap();
    let after = env.stat(&path).await.unwrap();
    assert_eq!(
        (after.czxid, after.mzxid, after.ephemeral_owner),
        (before.czxid, before.mzxid, 0)
    );
    assert_eq!(env.get_data(&path).await.unwrap().0, b"not yours");
}

async fn deleted_directory_is_made_again(env: &Env) {
    let mutex = env.mutex().await;
    for deep in [false, true] {
        mutex.lock().await.unwrap().release().await.unwrap();
        env.delete(&env.lock_path()).await;
        if deep {
            env.delete(env.lock_path().rsplit_once('/').unwrap().0)
                .await;
        }
        let guard = within("the lock", mutex.lock()).await.unwrap();
        assert!(env.stat(&guard.node()).await.is_some());
        guard.release().await.unwrap();
    }
}

// Shows: directories
async fn quickly_deleted_directory_is_made_again(env: &Env) {
    let mutex = env.mutex().await;
    let path = env
        .create(&env.lock_path(), zk::CreateMode::Persistent)
        .await;
    env.delete(&path).await;
    // The gate matches the directory, not a contender's node, whose name begins with the
    // directory's.
    let made = env.server().hold_reply(Match::op(Op::Create).path(&path));
    let attempt = tokio::spawn(mutex.acquire(SOON));
    within("the directory", made.wait_hit()).await;
    assert_eq!(env.server().node(&path).unwrap().kind, NodeKind::Container);
    env.server().delete(&path).unwrap();
    made.release();
    within("the lock", attempt)
        .await
        .unwrap()
        .unwrap()
        .release()
        .await
        .unwrap();
}

async fn many_contenders_make_a_directory(env: &Env) {
    let mutexes = [env.mutex().await, env.mutex().await, env.mutex().await];
    let mut contenders = JoinSet::new();
    for mutex in mutexes.iter().cycle().take(12) {
        let lock = mutex.lock();
        contenders.spawn(async move { lock.await.map(drop) });
    }
    for served in all_done("every contender", contenders).await {
        served.unwrap();
    }
    env.wait_count(&env.lock_path(), 0).await;
}

/// Checks a lock in a namespace, through its client and through a client without the namespace.
async fn check_namespace(env: &Env, client: &Client, namespace: &str) {
    let mutex = InterProcessMutex::new(client, "/shop/stock").unwrap();
    let guard = within("a free lock", mutex.lock()).await.unwrap();
    assert_eq!((mutex.path(), guard.path()), ("/shop/stock", "/shop/stock"));
    let node = guard.node();
    assert!(node.starts_with("/shop/stock/_c_"), "{node}");
    assert_eq!(mutex.participants().await.unwrap(), [&*node]);
    assert!(env.stat(&format!("{namespace}{node}")).await.is_some());
    // A client without the namespace reaches the same lock by the full path.
    let plain = env.client().await;
    let same = InterProcessMutex::new(&plain, format!("{namespace}/shop/stock")).unwrap();
    assert!(same.try_lock().await.is_err());
    let error = mutex.acquire(Duration::ZERO).await.unwrap_err();
    assert_eq!(error.path(), "/shop/stock");
    assert!(!error.to_string().contains(namespace), "{error}");
    env.create(
        &format!("{namespace}/shop/stock/x__lock__"),
        zk::CreateMode::EphemeralSequential,
    )
    .await;
    let error = mutex.participants().await.unwrap_err();
    assert_eq!(
        (error.kind(), error.path()),
        (ErrorKind::MixedRecipes, "/shop/stock"),
        "{error:?}"
    );
    assert!(
        error.node().unwrap().starts_with("/shop/stock/x__lock__"),
        "{error}"
    );
    guard.release().await.unwrap();
}

async fn namespace_is_hidden(env: &Env) {
    let namespace = env.path("ns/eu");
    // The namespace works with or without the slash.
    let client = env
        .connect(env.builder().namespace(namespace.trim_start_matches('/')))
        .await;
    check_namespace(env, &client, &namespace).await;
}

async fn connect_string_may_have_a_namespace(env: &Env) {
    let namespace = env.path("ns");
    let servers = format!("{}{namespace}", env.connect_string());
    let client = env.connect_to(&servers, env.builder()).await;
    check_namespace(env, &client, &namespace).await;
}

async fn namespaces_of_both_places_add_up(env: &Env) {
    let servers = format!("{}{}", env.connect_string(), env.path("ns"));
    let client = env
        .connect_to(&servers, env.builder().namespace("/eu"))
        .await;
    check_namespace(env, &client, &env.path("ns/eu")).await;
}

async fn namespaces_are_isolated(env: &Env) {
    let mut guards = Vec::new();
    for namespace in ["a", "b"] {
        let client = env
            .connect(env.builder().namespace(env.path(namespace)))
            .await;
        let mutex = InterProcessMutex::new(&client, "/stock").unwrap();
        guards.push(within("a free lock", mutex.lock()).await.unwrap());
    }
    assert!(guards.iter().all(LockGuard::is_held));
}

async fn accepts_any_zookeeper_path(env: &Env) {
    let client = env.client().await;
    for name in [
        "库存/sku-42",
        "a b",
        ".hidden",
        "x..y",
        "zookeeper",
        "lock-0000000001",
        "%2f",
        "a:b",
    ] {
        let path = env.path(name);
        let mutex = InterProcessMutex::new(&client, &path).unwrap();
        let guard = within("a free lock", mutex.lock()).await.unwrap();
        assert_eq!(guard.path(), path);
        assert!(mutex.try_lock().await.is_err());
        assert!(env.stat(&guard.node()).await.is_some());
        guard.release().await.unwrap();
    }
    let long = env.path(&"x".repeat(10_000));
    let mutex = InterProcessMutex::new(&client, &long).unwrap();
    within("a free lock", mutex.lock())
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
}

/// The servers accept every unescaped text, and every text that they would refuse is escaped.
async fn any_text_makes_a_path(env: &Env) {
    let client = env.client().await;
    // The first and last characters of the ranges that ZooKeeper refuses.
    let ends = [
        0x00..0x30,
        0x7d..0xa2,
        0xd7fe..0xd800,
        0xe000..0xe002,
        0xf8fe..0xf902,
        0xffee..0x1_0002,
    ];
    let all: String = ends
        .into_iter()
        .flatten()
        .filter_map(char::from_u32)
        .collect();
    let keys = [
        "sku-42",
        "a/b",
        "/",
        ".",
        "..",
        "...",
        "",
        "%",
        "%2F",
        "zookeeper",
        "\0",
        "a\nb",
        "50 %",
        "é",
        "库存",
        "\u{1f600}",
        &all,
    ];
    for key in keys {
        let path = env.path(&format!("keys/{}", LockPath::segment(key)));
        let mutex = InterProcessMutex::new(&client, &path).unwrap();
        let guard = within("a free lock", mutex.lock()).await.unwrap();
        let children = env.children(&env.path("keys")).await;
        assert!(
            children
                .iter()
                .any(|segment| LockPath::key(segment).unwrap() == key),
            "{key:?}"
        );
        guard.release().await.unwrap();
    }
}

async fn rejects_bad_paths_before_sending(env: &Env) {
    let client = env.client().await;
    let requests = env.server().counters().total_requests();
    for path in [
        "",
        "/",
        "stock",
        "/stock/",
        "/a//b",
        "/a/../b",
        "/a\0b",
        "/zookeeper/quota",
    ] {
        match InterProcessMutex::new(&client, path).unwrap_err() {
            BuildError::InvalidPath(error) => assert_eq!(error.path(), path),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(env.server().counters().total_requests(), requests);
}

async fn rejects_path_below_ephemeral_node(env: &Env) {
    let parent = env
        .create(&env.path("ephemeral"), zk::CreateMode::Ephemeral)
        .await;
    let client = env.client().await;
    for path in [parent.clone(), format!("{parent}/lock")] {
        let mutex = InterProcessMutex::new(&client, &path).unwrap();
        let error = within("an answer", mutex.lock()).await.unwrap_err();
        assert_eq!(
            (error.kind(), error.path()),
            (Some(ErrorKind::Rejected), &*path),
            "{error:?}"
        );
        assert!(!error.is_retryable());
    }
    assert_eq!(env.children(&parent).await, [""; 0]);
}
