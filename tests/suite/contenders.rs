//! Nodes in a lock's directory that queue, and nodes that do not.

use test_support::prelude::*;
use zookeeper_client as zk;

use crate::harness::{Behaviour, Env, behaviours};

pub(crate) fn all() -> Vec<Behaviour> {
    behaviours![
        foreign_nodes_are_ignored_and_kept,
        queues_behind_curator_go_bare_names,
        foreign_contender_waits_behind_own,
        kazoo_queue_is_refused,
        read_write_queue_is_refused,
        later_foreign_recipe_ends_no_wait,
        used_up_sequence_numbers_are_refused,
    ]
}

// Shows: contenders
async fn foreign_nodes_are_ignored_and_kept(env: &Env) {
    let path = env.lock_path();
    let strays = [
        "0",
        "0000000000",
        "lock-",
        "lock-1",
        "lock-00000000x1",
        "zzz",
        "_c_x-lease-0000000001",
        "库存",
    ];
    for stray in strays {
        env.create(&format!("{path}/{stray}"), zk::CreateMode::Persistent)
            .await;
    }
    let (ours, theirs) = (env.mutex().await, env.mutex().await);
    let guard = within("a free lock", ours.try_lock()).await.unwrap();
    assert_eq!(ours.participants().await.unwrap(), [guard.node()]);
    let waiter = tokio::spawn(theirs.lock());
    env.wait_count(&path, strays.len() + 2).await;
    guard.release().await.unwrap();
    within("the second in line", waiter)
        .await
        .unwrap()
        .unwrap()
        .release()
        .await
        .unwrap();
    let mut left = strays.map(String::from);
    left.sort();
    assert_eq!(env.children(&path).await, left);
}

// Shows: contenders
async fn queues_behind_curator_go_bare_names(env: &Env) {
    let path = env.lock_path();
    let mutex = env.mutex().await;
    for prefix in [
        "_c_5f3b2a10-8c1d-4f6e-9a7b-0123456789ab-lock-",
        "_c_0123456789abcdef0123456789abcdef-lock-",
        "lock-",
        "锁-lock-",
    ] {
        let node = env
            .create(
                &format!("{path}/{prefix}"),
                zk::CreateMode::EphemeralSequential,
            )
            .await;
        assert_eq!(mutex.participants().await.unwrap(), [&*node]);
        assert!(matches!(
            mutex.try_lock().await,
            Err(TryLockError::WouldBlock { .. })
        ));
        let waiter = tokio::spawn(mutex.lock());
        env.wait_count(&path, 2).await;
        env.wait_watchers(&node, 1).await;
        assert!(!waiter.is_finished());
        env.delete(&node).await;
        within("the second in line", waiter)
            .await
            .unwrap()
            .unwrap()
            .release()
            .await
            .unwrap();
    }
}

async fn foreign_contender_waits_behind_own(env: &Env) {
    let path = env.lock_path();
    let (ours, theirs) = (env.mutex().await, env.mutex().await);
    let guard = ours.lock().await.unwrap();
    let between = env
        .create(
            &format!("{path}/lock-"),
            zk::CreateMode::EphemeralSequential,
        )
        .await;
    let waiter = tokio::spawn(theirs.lock());
    env.wait_count(&path, 3).await;
    env.wait_watchers(&between, 1).await;
    let queue = ours.participants().await.unwrap();
    assert_eq!(
        (&queue[0], queue[1].as_str(), queue.len()),
        (&guard.node(), &*between, 3)
    );
    guard.release().await.unwrap();
    // The foreign node is first, and this crate's waiter is notified of its end.
    assert_eq!(theirs.participants().await.unwrap()[0], between);
    assert!(!waiter.is_finished());
    env.delete(&between).await;
    within("the last in line", waiter)
        .await
        .unwrap()
        .unwrap()
        .release()
        .await
        .unwrap();
}

/// Every call that asks for the lock reports that another recipe uses the directory, and leaves
/// nothing there.
async fn check_refused(env: &Env, foreign: &str) {
    let path = env.lock_path();
    let mutex = env.mutex().await;
    let node = env
        .create(
            &format!("{path}/{foreign}"),
            zk::CreateMode::EphemeralSequential,
        )
        .await;
    let check = |error: AcquireError| {
        assert!(!error.is_retryable());
        assert!(error.to_string().contains(&node), "{error}");
        match error {
            AcquireError::Request(error) if error.kind() == ErrorKind::MixedRecipes => {
                assert_eq!((error.path(), error.node()), (&*path, Some(&*node)));
            }
            other => panic!("{other:?}"),
        }
    };
    check(within("an answer", mutex.lock()).await.unwrap_err());
    check(
        within("an answer", mutex.acquire(Duration::from_secs(10)))
            .await
            .unwrap_err(),
    );
    match within("an answer", mutex.try_lock()).await.unwrap_err() {
        TryLockError::Acquire(error) => check(error),
        other => panic!("{other:?}"),
    }
    check(mutex.participants().await.unwrap_err().into());
    env.wait_count(&path, 1).await;
    env.delete(&node).await;
    within("a free lock", mutex.lock())
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
}

// Shows: mixed-recipes
async fn kazoo_queue_is_refused(env: &Env) {
    check_refused(env, "0123456789abcdef0123456789abcdef__lock__").await;
}

// Shows: mixed-recipes
async fn read_write_queue_is_refused(env: &Env) {
    check_refused(env, "_c_5f3b2a10-8c1d-4f6e-9a7b-0123456789ab-__READ__").await;
    check_refused(env, "_c_5f3b2a10-8c1d-4f6e-9a7b-0123456789ab-__WRIT__").await;
}

// Shows: mixed-recipes
async fn later_foreign_recipe_ends_no_wait(env: &Env) {
    let path = env.lock_path();
    let (ours, theirs) = (env.mutex().await, env.mutex().await);
    let guard = ours.lock().await.unwrap();
    let first = tokio::spawn(theirs.lock());
    env.wait_count(&path, 2).await;
    let second = tokio::spawn(env.mutex().await.lock());
    env.wait_count(&path, 3).await;
    let node = env
        .create(
            &format!("{path}/x__lock__"),
            zk::CreateMode::EphemeralSequential,
        )
        .await;
    match within("an answer", env.mutex().await.lock()).await {
        Err(AcquireError::Request(error)) if error.kind() == ErrorKind::MixedRecipes => {
            assert_eq!(error.node(), Some(&*node), "a newcomer");
        }
        other => panic!("{other:?}"),
    }
    guard.release().await.unwrap();
    for waiter in [first, second] {
        within("the next in line", waiter)
            .await
            .unwrap()
            .unwrap()
            .release()
            .await
            .unwrap();
    }
    env.wait_count(&path, 1).await;
    env.delete(&node).await;
}

// Shows: sequence-order
async fn used_up_sequence_numbers_are_refused(env: &Env) {
    let path = env.lock_path();
    let mutex = env.mutex().await;
    let node = env
        .create(
            &format!("{path}/_c_x-lock--2147483648"),
            zk::CreateMode::Ephemeral,
        )
        .await;
    let check = |error: &AcquireError| {
        assert_eq!(
            (error.kind(), error.path()),
            (Some(ErrorKind::SequenceExhausted), &*path),
            "{error:?}"
        );
        assert!(!error.is_retryable());
    };
    check(&within("an answer", mutex.lock()).await.unwrap_err());
    match within("an answer", mutex.try_lock()).await.unwrap_err() {
        TryLockError::Acquire(error) => check(&error),
        other => panic!("{other:?}"),
    }
    check(&mutex.participants().await.unwrap_err().into());
    env.wait_count(&path, 1).await;
    // As the error says, the directory can be deleted without contenders, which restarts the
    // numbers.
    env.delete(&node).await;
    env.delete(&path).await;
    within("a free lock", mutex.lock())
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
}
