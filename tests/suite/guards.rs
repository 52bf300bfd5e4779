//! Guards: how they are released and lost, and transactions under them.

use std::thread;

use test_support::prelude::*;
use zookeeper_client as zk;

use crate::harness::{Behaviour, Env, SESSION_OUTLIVES, behaviours};

pub(crate) fn all() -> Vec<Behaviour> {
    behaviours![
        dropped_release_goes_on.with_faults(),
        released_by_another_task_or_thread,
        guard_outlives_its_runtime,
        last_handle_reports_its_release.not_on_keeper(SESSION_OUTLIVES),
        guard_knows_path_and_node.curator("testLockPath"),
        lost_resolves_without_the_guard,
        only_deleted_nodes_are_noticed,
        transaction_commits_while_held.also_on_ensemble(),
        lost_holders_transaction_writes_nothing.also_on_ensemble(),
        reads_previous_holders_write.also_on_ensemble(),
    ]
}

fn is_send<T: Send + 'static>(value: T) -> T {
    value
}

// Shows: cleanup
async fn dropped_release_goes_on(env: &Env) {
    let mutex = env.mutex().await;
    for _ in 0..5 {
        // The future is not polled, because the call itself releases.
        drop(within("a free lock", mutex.lock()).await.unwrap().release());
        let guard = within("a free lock", mutex.lock()).await.unwrap();
        // The future is polled, and dropped unless it completed at once.
        let _ = tokio::time::timeout(Duration::ZERO, guard.release()).await;
        within("a free lock", mutex.lock())
            .await
            .unwrap()
            .release()
            .await
            .unwrap();
        env.wait_count(&env.lock_path(), 0).await;
    }
}

async fn released_by_another_task_or_thread(env: &Env) {
    let (ours, theirs) = (env.mutex().await, env.mutex().await);
    let guard = is_send(ours.lock().await.unwrap());
    tokio::spawn(async move { guard.release().await.unwrap() })
        .await
        .unwrap();
    let guard = within("a free lock", theirs.lock()).await.unwrap();
    let released = thread::spawn(move || block_on(guard.release()));
    tokio::task::spawn_blocking(move || released.join().unwrap().unwrap())
        .await
        .unwrap();
    within("a free lock", ours.lock())
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
}

async fn guard_outlives_its_runtime(env: &Env) {
    let (builder, servers, path) = (env.builder(), env.connect_string(), env.lock_path());
    let elsewhere = thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async move {
            let client = builder.connect(&servers).await.unwrap();
            let guard = InterProcessMutex::new(&client, &path)
                .unwrap()
                .lock()
                .await
                .unwrap();
            (client, guard)
        })
    });
    let (client, guard) = tokio::task::spawn_blocking(move || elsewhere.join().unwrap())
        .await
        .unwrap();
    let theirs = env.mutex().await;
    assert!(guard.is_held() && theirs.try_lock().await.is_err());
    guard.release().await.unwrap();
    theirs.try_lock().await.unwrap().release().await.unwrap();
    client.close().await.unwrap();
}

// Shows: session-lifetime
async fn last_handle_reports_its_release(env: &Env) {
    for _ in 0..5 {
        let client = env.client().await;
        let session = client.session_id().unwrap();
        let guard = InterProcessMutex::new(&client, env.lock_path())
            .unwrap()
            .lock()
            .await
            .unwrap();
        drop(client);
        within("the release", guard.release()).await.unwrap();
        assert!(env.children(&env.lock_path()).await.is_empty());
        env.wait_session_gone(session).await;
    }
}

async fn guard_knows_path_and_node(env: &Env) {
    let mutex = env.mutex().await;
    let path = env.lock_path();
    let guard = mutex.lock().await.unwrap();
    assert_eq!((guard.path(), mutex.path()), (&*path, &*path));
    let node = guard.node();
    let name = node
        .strip_prefix(&format!("{path}/"))
        .expect("a node below the lock's path");
    // The name has Curator's form: `_c_`, a UUID, `-lock-` and ten digits.
    let (id, number) = name
        .strip_prefix("_c_")
        .unwrap()
        .split_once("-lock-")
        .unwrap();
    assert_eq!((id.len(), id.matches('-').count()), (36, 4));
    assert!(
        number.len() == 10 && number.bytes().all(|digit| digit.is_ascii_digit()),
        "{number}"
    );
    assert_eq!(env.children(&path).await, [name]);
    guard.release().await.unwrap();
    assert!(env.stat(&node).await.is_none());
}

async fn lost_resolves_without_the_guard(env: &Env) {
    let client = env.client().await;
    let guard = InterProcessMutex::new(&client, env.lock_path())
        .unwrap()
        .lock()
        .await
        .unwrap();
    let early = tokio::spawn(is_send(guard.lost()));
    client.close().await.unwrap();
    assert_eq!(
        within("the loss", early).await.unwrap().reason(),
        LostReason::Closed
    );
    let late = guard.lost();
    assert_eq!(
        within("the loss", guard.lost()).await.reason(),
        LostReason::Closed
    );
    drop(guard);
    assert_eq!(within("the loss", late).await.reason(), LostReason::Closed);
}

async fn only_deleted_nodes_are_noticed(env: &Env) {
    let client = env
        .connect(env.builder().session_timeout(Duration::from_secs(12)))
        .await;
    let mut guards = Vec::new();
    for number in 0..10 {
        let mutex =
            InterProcessMutex::new(&client, format!("{}-{number}", env.lock_path())).unwrap();
        guards.push(within("a lock", mutex.lock()).await.unwrap());
    }
    let (stay, go) = guards.split_at(3);
    for guard in go {
        env.delete(&guard.node()).await;
    }
    for guard in go {
        assert_eq!(
            within("the loss", guard.lost()).await.reason(),
            LostReason::NodeDeleted
        );
    }
    assert!(stay.iter().all(LockGuard::is_held));
    for guard in guards.drain(..3) {
        within("a release", guard.release()).await.unwrap();
    }
}

async fn transaction_commits_while_held(env: &Env) {
    let data = env
        .create(&env.path("data"), zk::CreateMode::Persistent)
        .await;
    let log = format!("{data}/log");
    let mutex = env.mutex().await;
    let guard = mutex.lock().await.unwrap();
    let transaction = guard
        .transaction()
        .check(&data, Some(0))
        .set_data(&data, b"1", Some(0));
    let transaction = transaction.create(&log, b"x").check(&data, Some(1));
    within("an answer", transaction.commit()).await.unwrap();
    assert_eq!(env.get_data(&data).await.unwrap().0, b"1");
    // The transaction applies all operations or none.
    let transaction = guard
        .transaction()
        .delete(&log, None)
        .set_data(&data, b"2", Some(7));
    match within("an answer", transaction.commit()).await.unwrap_err() {
        TransactionError::Rejected { index, path, .. } => {
            assert_eq!((index, path), (1, data.clone()));
        }
        other => panic!("{other:?}"),
    }
    assert!(env.stat(&log).await.is_some() && guard.is_held());
    guard.release().await.unwrap();
}

// Shows: transaction
async fn lost_holders_transaction_writes_nothing(env: &Env) {
    let data = env
        .create(&env.path("data"), zk::CreateMode::Persistent)
        .await;
    let guard = env.mutex().await.lock().await.unwrap();
    env.delete(&guard.node()).await;
    // The servers decide, however soon after the release the transaction comes.
    let transaction = guard.transaction().set_data(&data, b"late", None);
    match within("an answer", transaction.commit()).await.unwrap_err() {
        TransactionError::Lost(lost) => assert_eq!(lost.reason(), LostReason::NodeDeleted),
        other => panic!("{other:?}"),
    }
    assert!(!guard.is_held());
    let later = guard.transaction().set_data(&data, b"later", None).commit();
    assert!(matches!(
        within("an answer", later).await,
        Err(TransactionError::Lost(_))
    ));
    assert_eq!(env.stat(&data).await.unwrap().version, 0);
}

/// Each client writes and reads through any member: the version that was read is always the right
/// one.
// Shows: read-under-lock
async fn reads_previous_holders_write(env: &Env) {
    let (path, log) = (env.path("count"), env.path("log"));
    env.create(&path, zk::CreateMode::Persistent).await;
    env.create(&log, zk::CreateMode::Persistent).await;
    let mut tasks = JoinSet::new();
    for task in 0..3 {
        let (mutex, path, log) = (env.mutex().await, path.clone(), log.clone());
        tasks.spawn(async move {
            for round in 0..8 {
                let guard = mutex.lock().await.unwrap();
                let (data, version) = guard.get_data(&path).await.unwrap().unwrap();
                let count: u32 = std::str::from_utf8(&data).unwrap().parse().unwrap_or(0);
                let write = guard
                    .transaction()
                    .set_data(&path, (count + 1).to_string(), version);
                write
                    .create(format!("{log}/{task}-{round}"), "")
                    .commit()
                    .await
                    .unwrap();
                guard.release().await.unwrap();
            }
        });
    }
    within("all rounds", tasks.join_all()).await;
    let guard = within("the lock", env.mutex().await.lock()).await.unwrap();
    let (data, version) = within("the count", guard.get_data(&path))
        .await
        .unwrap()
        .unwrap();
    assert_eq!((&*data, version), (&b"24"[..], 24));
}
