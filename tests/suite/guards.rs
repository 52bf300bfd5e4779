//! The guard is the hold.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use test_support::{block_on, within};
use tokio::task::JoinSet;
use tokio_test::{assert_pending, task};
use zookeeper_client as zk;
use zookeeper_recipes::{
    Client, ConnectionState, InterProcessMutex, LockGuard, LockState, LostReason, NodeVersion, ReleaseError,
    TransactionError,
};

use crate::harness::{Behaviour, Env, NO_EXPIRY, OUTLIVED, behaviours};

pub(crate) fn all() -> Vec<Behaviour> {
    behaviours![
        dropping_it_releases.whatever_breaks().on_an_ensemble_too(),
        releasing_it_reports_when_the_node_is_gone.on_an_ensemble_too(),
        a_release_goes_on_when_it_is_not_waited_for.whatever_breaks(),
        a_release_says_that_the_node_had_been_deleted.curator("testGuaranteedDeleteOnNonExistentNode"),
        a_release_says_that_the_session_had_expired.not_on_keeper(NO_EXPIRY),
        it_can_be_released_by_another_task_or_thread,
        it_can_be_dropped_outside_of_a_runtime,
        it_outlives_the_runtime_that_it_was_got_in,
        it_keeps_the_session_alive_by_itself,
        the_last_handle_of_all_reports_its_release_too.not_on_keeper(OUTLIVED),
        it_knows_its_path_and_its_node.curator("testLockPath"),
        lost_does_not_resolve_by_a_release,
        lost_resolves_for_those_who_hold_only_the_future,
        the_process_knows_what_it_holds,
        shares_of_a_hold_end_with_the_last,
        work_is_dropped_when_the_lock_is_lost,
        it_is_suspended_and_lost_before_another_contender_is_granted.on_an_ensemble_too(),
        it_comes_back_from_a_short_interruption,
        a_deleted_node_is_noticed,
        deleted_nodes_are_noticed_and_no_others,
        a_transaction_commits_while_it_is_held.on_an_ensemble_too(),
        a_transaction_of_one_who_has_lost_writes_nothing.on_an_ensemble_too(),
        what_the_previous_holder_wrote_is_read.on_an_ensemble_too(),
    ]
}

fn is_send<T: Send + 'static>(value: T) -> T {
    value
}

async fn dropping_it_releases(env: &Env) {
    let (ours, theirs) = (env.mutex().await, env.mutex().await);
    for _ in 0..5 {
        let guard = within("a free lock", ours.lock()).await.unwrap();
        let waiter = tokio::spawn(theirs.lock());
        env.wait_children(&env.lock_path(), "a waiter", |now| now.len() >= 2).await;
        drop(guard);
        assert!(!ours.is_acquired_in_this_process());
        drop(within("the second in line", waiter).await.unwrap().unwrap());
        env.wait_count(&env.lock_path(), 0).await;
    }
}

async fn releasing_it_reports_when_the_node_is_gone(env: &Env) {
    let mutex = env.mutex().await;
    for _ in 0..5 {
        let guard = mutex.lock().await.unwrap();
        let node = guard.node();
        assert!(env.stat(&node).await.is_some());
        guard.release().await.unwrap();
        assert!(env.stat(&node).await.is_none());
    }
}

async fn a_release_goes_on_when_it_is_not_waited_for(env: &Env) {
    let mutex = env.mutex().await;
    for _ in 0..5 {
        // Not even polled: it is the call that counts.
        drop(within("a free lock", mutex.lock()).await.unwrap().release());
        let guard = within("a free lock", mutex.lock()).await.unwrap();
        // Polled, and dropped unless it was that quick.
        let _ = tokio::time::timeout(Duration::ZERO, guard.release()).await;
        within("a free lock", mutex.lock()).await.unwrap().release().await.unwrap();
        env.wait_count(&env.lock_path(), 0).await;
    }
}

async fn a_release_says_that_the_node_had_been_deleted(env: &Env) {
    let mutex = env.mutex().await;
    let guard = mutex.lock().await.unwrap();
    env.delete(&guard.node()).await;
    match guard.release().await.unwrap_err() {
        ReleaseError::Lost(lost) => {
            assert_eq!((lost.reason(), lost.path()), (LostReason::NodeDeleted, &*env.lock_path()));
        }
        other => panic!("{other:?}"),
    }
    within("a free lock", mutex.lock()).await.unwrap().release().await.unwrap();
}

async fn a_release_says_that_the_session_had_expired(env: &Env) {
    let (client, link) = env.linked(env.builder()).await;
    let mutex = InterProcessMutex::new(&client, env.lock_path()).unwrap();
    let guard = mutex.lock().await.unwrap();
    env.expire(&client, &link).await;
    let lost = within("the loss", guard.lost()).await;
    assert!(env.is_loss(lost.reason()), "{lost}");
    assert_eq!(lost.path(), env.lock_path());
    assert!(!guard.is_held() && !mutex.is_acquired_in_this_process());
    match within("an answer", guard.release()).await.unwrap_err() {
        ReleaseError::Lost(again) => assert_eq!(again, lost),
        other => panic!("{other:?}"),
    }
    // The next session has nothing to do with it.
    within("a free lock", mutex.lock()).await.unwrap().release().await.unwrap();
}

async fn it_can_be_released_by_another_task_or_thread(env: &Env) {
    let (ours, theirs) = (env.mutex().await, env.mutex().await);
    let guard = is_send(ours.lock().await.unwrap());
    tokio::spawn(async move { guard.release().await.unwrap() }).await.unwrap();
    let guard = within("a free lock", theirs.lock()).await.unwrap();
    let released = thread::spawn(move || block_on(guard.release()));
    tokio::task::spawn_blocking(move || released.join().unwrap().unwrap()).await.unwrap();
    within("a free lock", ours.lock()).await.unwrap().release().await.unwrap();
}

async fn it_can_be_dropped_outside_of_a_runtime(env: &Env) {
    let (ours, theirs) = (env.mutex().await, env.mutex().await);
    let guard = ours.lock().await.unwrap();
    let waiter = tokio::spawn(theirs.lock());
    thread::spawn(move || {
        assert!(tokio::runtime::Handle::try_current().is_err());
        drop(guard);
    })
    .join()
    .unwrap();
    within("the second in line", waiter).await.unwrap().unwrap().release().await.unwrap();
}

async fn it_outlives_the_runtime_that_it_was_got_in(env: &Env) {
    let (builder, servers, path) = (env.builder(), env.connect_string(), env.lock_path());
    let elsewhere = thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async move {
            let client = builder.connect(&servers).await.unwrap();
            let guard = InterProcessMutex::new(&client, &path).unwrap().lock().await.unwrap();
            (client, guard)
        })
    });
    let (client, guard) = tokio::task::spawn_blocking(move || elsewhere.join().unwrap()).await.unwrap();
    let theirs = env.mutex().await;
    assert!(guard.is_held() && theirs.try_lock().await.is_err());
    guard.release().await.unwrap();
    theirs.try_lock().await.unwrap().release().await.unwrap();
    client.close().await.unwrap();
}

async fn it_keeps_the_session_alive_by_itself(env: &Env) {
    let theirs = env.mutex().await;
    let (guard, session) = {
        let client = env.client().await;
        let mutex = InterProcessMutex::new(&client, env.lock_path()).unwrap();
        (mutex.lock().await.unwrap(), client.session_id().unwrap())
    };
    assert!(theirs.try_lock().await.is_err());
    assert!(guard.is_held() && env.knows_session(session).await);
    // Nothing else can know that nothing is about to happen: whatever the drops above have set off has had a
    // flight to the servers and back to happen in.
    assert_eq!(theirs.participants().await.unwrap(), [guard.node()]);
    drop(guard);
    within("a free lock", theirs.lock()).await.unwrap().release().await.unwrap();
    env.wait_session_gone(session).await;
}

async fn the_last_handle_of_all_reports_its_release_too(env: &Env) {
    for _ in 0..5 {
        let client = env.client().await;
        let session = client.session_id().unwrap();
        let guard = InterProcessMutex::new(&client, env.lock_path()).unwrap().lock().await.unwrap();
        drop(client);
        within("the release", guard.release()).await.unwrap();
        assert!(env.children(&env.lock_path()).await.is_empty());
        env.wait_session_gone(session).await;
    }
}

async fn it_knows_its_path_and_its_node(env: &Env) {
    let mutex = env.mutex().await;
    let path = env.lock_path();
    let guard = mutex.lock().await.unwrap();
    assert_eq!((guard.path(), mutex.path()), (&*path, &*path));
    let node = guard.node();
    let name = node.strip_prefix(&format!("{path}/")).expect("it is below the lock's path");
    // As Curator's: `_c_`, a UUID, `-lock-` and ten digits.
    let (id, number) = name.strip_prefix("_c_").unwrap().split_once("-lock-").unwrap();
    assert_eq!((id.len(), id.matches('-').count()), (36, 4));
    assert!(number.len() == 10 && number.bytes().all(|digit| digit.is_ascii_digit()), "{number}");
    assert_eq!(env.children(&path).await, [name]);
    guard.release().await.unwrap();
    assert!(env.stat(&node).await.is_none());
}

async fn lost_does_not_resolve_by_a_release(env: &Env) {
    let client = env.client().await;
    let mutex = InterProcessMutex::new(&client, env.lock_path()).unwrap();
    let guard = mutex.lock().await.unwrap();
    let mut lost = task::spawn(guard.lost());
    assert_pending!(lost.poll());
    guard.release().await.unwrap();
    assert_pending!(lost.poll());
    mutex.lock().await.unwrap().release().await.unwrap();
    assert_pending!(lost.poll());
    client.close().await.unwrap();
}

async fn lost_resolves_for_those_who_hold_only_the_future(env: &Env) {
    let client = env.client().await;
    let guard = InterProcessMutex::new(&client, env.lock_path()).unwrap().lock().await.unwrap();
    let early = tokio::spawn(is_send(guard.lost()));
    client.close().await.unwrap();
    assert_eq!(within("the loss", early).await.unwrap().reason(), LostReason::Closed);
    let late = guard.lost();
    assert_eq!(within("the loss", guard.lost()).await.reason(), LostReason::Closed);
    drop(guard);
    assert_eq!(within("the loss", late).await.reason(), LostReason::Closed);
}

async fn the_process_knows_what_it_holds(env: &Env) {
    let (client, theirs) = (env.client().await, env.mutex().await);
    let handle = |client: &Client| InterProcessMutex::new(client, env.lock_path()).unwrap();
    let (one, other) = (handle(&client), handle(&client.clone()));
    assert!(!one.is_acquired_in_this_process());
    let guard: LockGuard = one.lock().await.unwrap();
    assert!(one.is_acquired_in_this_process() && other.is_acquired_in_this_process());
    assert!(!theirs.is_acquired_in_this_process(), "another client is like another process");
    let elsewhere = InterProcessMutex::new(&client, env.path("elsewhere")).unwrap();
    assert!(!elsewhere.is_acquired_in_this_process());
    let waiter = tokio::spawn(theirs.lock());
    env.wait_count(&env.lock_path(), 2).await;
    guard.release().await.unwrap();
    assert!(!one.is_acquired_in_this_process() && !other.is_acquired_in_this_process());
    let guard = within("the second in line", waiter).await.unwrap().unwrap();
    assert!(theirs.is_acquired_in_this_process() && !one.is_acquired_in_this_process());
    drop(guard);
}

async fn shares_of_a_hold_end_with_the_last(env: &Env) {
    let (ours, theirs) = (env.mutex().await, env.mutex().await);
    let first = ours.lock().await.unwrap();
    let second = first.reenter().unwrap();
    let third = second.reenter().unwrap();
    assert_eq!((first.hold_count(), third.hold_count()), (3, 3));
    assert!(third.node() == first.node() && third.fencing_token() == first.fencing_token());
    first.release().await.unwrap();
    drop(third);
    assert_eq!(second.hold_count(), 1);
    assert!(second.is_held() && ours.is_acquired_in_this_process());
    assert!(theirs.try_lock().await.is_err());
    second.release().await.unwrap();
    theirs.try_lock().await.unwrap().release().await.unwrap();
}

async fn work_is_dropped_when_the_lock_is_lost(env: &Env) {
    struct Dropped(Arc<std::sync::atomic::AtomicBool>);
    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.store(true, std::sync::atomic::Ordering::SeqCst);
        }
    }
    let client = env.client().await;
    let guard = InterProcessMutex::new(&client, env.lock_path()).unwrap().lock().await.unwrap();
    assert_eq!(guard.while_held(async { 42 }).await.unwrap(), 42);
    let dropped = Arc::default();
    let work = Dropped(Arc::clone(&dropped));
    let working = guard.while_held(async move {
        let _work = work;
        std::future::pending::<()>().await;
    });
    let (lost, closed) = tokio::join!(within("the loss", working), client.close());
    closed.unwrap();
    assert_eq!(lost.unwrap_err().reason(), LostReason::Closed);
    assert!(dropped.load(std::sync::atomic::Ordering::SeqCst));
    assert!(guard.while_held(async { panic!("this is too late") }).await.is_err());
    assert!(guard.reenter().is_err());
}

async fn it_is_suspended_and_lost_before_another_contender_is_granted(env: &Env) {
    let link = env.link();
    // From the loss on, a third of it is left until the servers give the lock away.
    let builder = env.builder().session_timeout(Duration::from_secs(12));
    let client = env.connect_to(link.connect_string(), builder).await;
    let theirs = env.mutex().await;
    let guard = InterProcessMutex::new(&client, env.lock_path()).unwrap().lock().await.unwrap();
    assert_eq!(guard.state(), LockState::Held);
    let waiter = tokio::spawn(theirs.lock());
    env.wait_count(&env.lock_path(), 2).await;
    let mut states = client.watch_state();
    link.cut();
    let suspended = |state: &ConnectionState| *state == ConnectionState::Suspended;
    within("the interruption", states.wait_for(suspended)).await.unwrap();
    assert_eq!(guard.state(), LockState::Suspended);
    assert!(guard.is_held());
    let lost = within("the loss", guard.lost()).await;
    assert_eq!(lost.reason(), LostReason::LeaseExpired);
    assert_eq!(guard.state(), LockState::Lost(LostReason::LeaseExpired));
    // The servers give it away later only.
    assert!(!waiter.is_finished());
    within("the second in line", waiter).await.unwrap().unwrap().release().await.unwrap();
}

async fn it_comes_back_from_a_short_interruption(env: &Env) {
    let link = env.link();
    let client = env.connect_to(link.connect_string(), env.builder()).await;
    let guard = InterProcessMutex::new(&client, env.lock_path()).unwrap().lock().await.unwrap();
    let mut states = client.watch_state();
    let suspended = |state: &ConnectionState| *state == ConnectionState::Suspended;
    let connected = |state: &ConnectionState| *state == ConnectionState::Connected;
    for _ in 0..3 {
        link.cut();
        within("the interruption", states.wait_for(suspended)).await.unwrap();
        assert_eq!(guard.state(), LockState::Suspended);
        link.mend();
        within("the connection", states.wait_for(connected)).await.unwrap();
        // A reconnect alone proves nothing; a transaction does.
        within("an answer", guard.transaction().commit()).await.unwrap();
        assert_eq!(guard.state(), LockState::Held);
    }
    guard.release().await.unwrap();
}

async fn a_deleted_node_is_noticed(env: &Env) {
    let builder = env.builder().session_timeout(Duration::from_secs(12));
    let client = env.connect(builder).await;
    let mutex = InterProcessMutex::new(&client, env.lock_path()).unwrap();
    let guard = mutex.lock().await.unwrap();
    env.delete(&guard.node()).await;
    let lost = within("the loss", guard.lost()).await;
    assert_eq!(lost.reason(), LostReason::NodeDeleted);
    assert!(!guard.is_held() && !mutex.is_acquired_in_this_process());
    // The session has nothing to do with it.
    within("a free lock", mutex.lock()).await.unwrap().release().await.unwrap();
}

async fn deleted_nodes_are_noticed_and_no_others(env: &Env) {
    let client = env.connect(env.builder().session_timeout(Duration::from_secs(12))).await;
    let mut guards = Vec::new();
    for number in 0..10 {
        let mutex = InterProcessMutex::new(&client, format!("{}-{number}", env.lock_path())).unwrap();
        guards.push(within("a lock", mutex.lock()).await.unwrap());
    }
    let (stay, go) = guards.split_at(3);
    for guard in go {
        env.delete(&guard.node()).await;
    }
    for guard in go {
        assert_eq!(within("the loss", guard.lost()).await.reason(), LostReason::NodeDeleted);
    }
    assert!(stay.iter().all(LockGuard::is_held));
    for guard in guards.drain(..3) {
        within("a release", guard.release()).await.unwrap();
    }
}

async fn a_transaction_commits_while_it_is_held(env: &Env) {
    let data = env.create(&env.path("data"), zk::CreateMode::Persistent).await;
    let log = format!("{data}/log");
    let mutex = env.mutex().await;
    let guard = mutex.lock().await.unwrap();
    let transaction = guard.transaction().check(&data, Some(0)).set_data(&data, b"1", Some(0));
    within("an answer", transaction.create(&log, b"x").commit()).await.unwrap();
    let outsider = env.outsider().await;
    outsider.sync(&data).await.unwrap();
    assert_eq!(outsider.get_data(&data).await.unwrap().0, b"1");
    // All or nothing.
    let transaction = guard.transaction().delete(&log, None).set_data(&data, b"2", Some(7));
    match within("an answer", transaction.commit()).await.unwrap_err() {
        TransactionError::Rejected { index, path, .. } => assert_eq!((index, path), (1, data.clone())),
        other => panic!("{other:?}"),
    }
    assert!(env.stat(&log).await.is_some() && guard.is_held());
    guard.release().await.unwrap();
}

async fn a_transaction_of_one_who_has_lost_writes_nothing(env: &Env) {
    let data = env.create(&env.path("data"), zk::CreateMode::Persistent).await;
    let guard = env.mutex().await.lock().await.unwrap();
    env.delete(&guard.node()).await;
    // However soon after: it is the servers who decide.
    let transaction = guard.transaction().set_data(&data, b"late", None);
    match within("an answer", transaction.commit()).await.unwrap_err() {
        TransactionError::Lost(lost) => assert_eq!(lost.reason(), LostReason::NodeDeleted),
        other => panic!("{other:?}"),
    }
    assert_eq!(env.stat(&data).await.unwrap().version, 0);
    assert!(!guard.is_held());
}

/// Through whichever member each of them writes and reads: the version that was read is always the right one.
// Shows: read-under-lock
async fn what_the_previous_holder_wrote_is_read(env: &Env) {
    let (path, log) = (env.path("count"), env.path("log"));
    env.create(&path, zk::CreateMode::Persistent).await;
    env.create(&log, zk::CreateMode::Persistent).await;
    let mut tasks = JoinSet::new();
    for task in 0..3 {
        let (mutex, path, log) = (env.mutex().await, path.clone(), log.clone());
        tasks.spawn(async move {
            for round in 0..8 {
                let guard = mutex.lock().await.unwrap();
                let read = guard.get_data(&path).await.unwrap().unwrap();
                let count: u32 = std::str::from_utf8(&read.data).unwrap().parse().unwrap_or(0);
                let write = guard.transaction().set_data(&path, (count + 1).to_string(), read.version);
                write.create(format!("{log}/{task}-{round}"), "").commit().await.unwrap();
                guard.release().await.unwrap();
            }
        });
    }
    within("all rounds", tasks.join_all()).await;
    let guard = within("the lock", env.mutex().await.lock()).await.unwrap();
    let read = within("the count", guard.get_data(&path)).await.unwrap().unwrap();
    assert_eq!((&*read.data, read.version), (&b"24"[..], NodeVersion::Exact(24)));
}
