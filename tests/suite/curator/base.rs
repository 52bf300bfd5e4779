//! TestInterProcessMutexBase, for every exclusive lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use test_support::{ByHand, within};
use tokio::task::JoinSet;
use zookeeper_recipes::{AcquireError, ReleaseError, TryLockError};

use super::stage::{Kind, Stage, ported};
use crate::harness::{Behaviour, CriticalSection, Need, in_vain};

macro_rules! base {
    ($kind:expr) => {
        ported![$kind;
            test_locker = "TestInterProcessMutexBase.testLocker",
            test_waiting_process_killed_server = "TestInterProcessMutexBase.testWaitingProcessKilledServer"
                .needs(Need::OwnServers),
            test_killed_session = "TestInterProcessMutexBase.testKilledSession",
            test_container_cleanup = "TestInterProcessMutexBase.testContainerCleanup".needs(Need::OwnServers),
            test_with_namespace = "TestInterProcessMutexBase.testWithNamespace",
            test_reentrant_single_lock = "TestInterProcessMutexBase.testReentrantSingleLock",
            test_reentrant_2_threads = "TestInterProcessMutexBase.testReentrant2Threads",
            test_reentrant = "TestInterProcessMutexBase.testReentrant",
            test_2_clients = "TestInterProcessMutexBase.test2Clients",
        ]
    };
}

pub(crate) fn mutex() -> Vec<Behaviour> {
    base!(Kind::Mutex)
}

pub(crate) fn fair_lock() -> Vec<Behaviour> {
    base!(Kind::Fair)
}

pub(crate) fn write_lock() -> Vec<Behaviour> {
    base!(Kind::Write)
}

/// Leaving the scope gives the lock back; who does not get it in time is told so.
async fn test_locker(stage: &Stage<'_>) {
    let (ours, theirs) = (stage.newcomer().await, stage.newcomer().await);
    for _ in 0..2 {
        {
            let _locker = within("a free lock", ours.acquire(Duration::from_secs(10))).await.unwrap();
            assert!(ours.is_acquired_in_this_process());
            let (refused, _) = in_vain(|timeout| theirs.acquire(timeout)).await;
            assert!(matches!(refused, AcquireError::TimedOut { .. }), "{refused}");
        }
        assert!(!ours.is_acquired_in_this_process());
        drop(within("the lock that was left", theirs.lock()).await.unwrap());
    }
}

/// The servers go and come back while one holds and others wait; all finish, one at a time.
async fn test_waiting_process_killed_server(stage: &Stage<'_>) {
    // Longer than a server on a busy machine takes to come back.
    let patient = || stage.connect(stage.env.builder().session_timeout(Duration::from_secs(60)));
    // Curator's two threads share a client; another one waits here too.
    let ours = stage.lock(&patient().await);
    let locks = [Arc::clone(&ours), Arc::clone(&ours), stage.lock(&patient().await)];
    let critical = Arc::new(CriticalSection::default());
    let guard = within("a free lock", ours.lock()).await.unwrap();
    let mut waiters = JoinSet::new();
    for lock in locks {
        let critical = Arc::clone(&critical);
        let visit = async move {
            let guard = lock.lock().await.unwrap();
            critical.visit().await;
            guard.release().await.unwrap();
        };
        waiters.spawn(ByHand::new(visit).start().finished());
    }
    stage.wait_nodes(4, 2).await;
    stage.env.stop_servers().await;
    stage.env.restart_servers().await;
    assert!(guard.is_held(), "the session outlived it");
    assert_eq!(critical.visits(), 0);
    within("the release", guard.release()).await.unwrap();
    while let Some(done) = within("every waiter", waiters.join_next()).await {
        done.unwrap();
    }
    assert_eq!(critical.visits(), 3);
}

/// Holder and waiter share the session that is killed: the waiter gets the lock in the next one, and the
/// holder is told that it has lost it, which Curator's is not.
async fn test_killed_session(stage: &Stage<'_>) {
    let (client, link) = stage.linked().await;
    let lock = stage.lock(&client);
    let guard = within("a free lock", lock.lock()).await.unwrap();
    let session = client.session_id();
    let asks = {
        let lock = Arc::clone(&lock);
        async move { lock.lock().await }
    };
    let waiter = tokio::spawn(ByHand::new(asks).start().finished());
    stage.wait_nodes(2, 1).await;
    stage.env.expire(&client, &link).await;
    let lost = within("the loss", guard.lost()).await;
    assert!(stage.env.is_loss(lost.reason()), "{lost}");
    let next = within("the waiter's grant", waiter).await.unwrap().unwrap();
    assert!(!guard.is_held() && next.is_held());
    assert!(next.fencing_token().zxid() > guard.fencing_token().zxid());
    let owner = stage.env.stat(&next.node()).await.unwrap().ephemeral_owner;
    assert!(Some(owner) == client.session_id() && Some(owner) != session);
    // Letting go of what was lost takes nothing from the one that has it now.
    assert_eq!(lost.path(), lock.path());
    assert!(matches!(guard.release().await, Err(ReleaseError::Lost(again)) if again == lost));
    assert!(next.is_held() && lock.is_acquired_in_this_process());
    assert!(stage.env.stat(&next.node()).await.is_some());
    next.release().await.unwrap();
}

/// Ten have held the lock; then its directory goes, and comes back with the next.
async fn test_container_cleanup(stage: &Stage<'_>) {
    let lock = stage.newcomer().await;
    let mut lockers = JoinSet::new();
    for _ in 0..10 {
        let lock = Arc::clone(&lock);
        lockers.spawn(async move { lock.lock().await.unwrap().release().await.unwrap() });
    }
    while let Some(done) = within("every locker", lockers.join_next()).await {
        done.unwrap();
    }
    stage.env.sweep(&stage.env.lock_path()).await;
    let guard = within("a lock without a directory", lock.lock()).await.unwrap();
    assert!(stage.env.stat(&stage.env.lock_path()).await.is_some());
    guard.release().await.unwrap();
}

async fn test_with_namespace(stage: &Stage<'_>) {
    let namespace = stage.env.path("ns");
    let client = stage.connect(stage.env.builder().namespace(&namespace)).await;
    let lock = stage.lock_at(&client, "/foo/bar");
    let guard = within("a free lock", lock.lock()).await.unwrap();
    assert_eq!((guard.path(), lock.path()), ("/foo/bar", "/foo/bar"));
    let children = stage.env.children(&format!("{namespace}/foo/bar")).await;
    assert_eq!(children.iter().map(|name| format!("/foo/bar/{name}")).collect::<Vec<_>>(), [guard.node()]);
    // A client without the namespace contends for the same lock.
    let other = stage.lock_at(&stage.client().await, &format!("{namespace}/foo/bar"));
    assert!(matches!(other.try_lock().await, Err(TryLockError::WouldBlock { .. })));
    guard.release().await.unwrap();
    within("a free lock", other.try_lock()).await.unwrap().release().await.unwrap();
    assert_eq!(stage.env.children(&format!("{namespace}/foo/bar")).await, [""; 0]);
}

/// Ten tasks of one handle, each of which enters again: never two inside, and all of them come in.
async fn test_reentrant_single_lock(stage: &Stage<'_>) {
    let lock = stage.newcomer().await;
    let critical = Arc::new(CriticalSection::default());
    let first = within("a free lock", lock.lock()).await.unwrap();
    let mut tasks = JoinSet::new();
    for _ in 1..10 {
        let (lock, critical) = (Arc::clone(&lock), Arc::clone(&critical));
        let enters = async move {
            let guard = lock.lock().await.unwrap();
            let again = guard.reenter().unwrap();
            drop(guard);
            critical.visit().await;
            again.release().await.unwrap();
        };
        // All of them wait before the first lets go.
        tasks.spawn(ByHand::new(enters).start().finished());
    }
    stage.wait_nodes(10, 1).await;
    critical.visit().await;
    first.release().await.unwrap();
    while let Some(done) = within("every task", tasks.join_next()).await {
        done.unwrap();
    }
    assert_eq!(critical.visits(), 10);
}

/// Who has entered three times keeps the other out until it has left three times. What the other finds when
/// it comes in is looked at: the failure of Curator's second thread is not.
async fn test_reentrant_2_threads(stage: &Stage<'_>) {
    let client = stage.client().await;
    for (theirs, nodes) in [(stage.lock(&client), 1), (stage.newcomer().await, 2)] {
        let depth = Arc::new(AtomicUsize::new(3));
        let came_in = Arc::new(AtomicBool::new(false));
        let outer = within("a free lock", stage.lock(&client).lock()).await.unwrap();
        let middle = outer.reenter().unwrap();
        let inner = middle.reenter().unwrap();
        let node = outer.node();
        let enters = {
            let (depth, came_in) = (Arc::clone(&depth), Arc::clone(&came_in));
            async move {
                let guard = theirs.lock().await.unwrap();
                came_in.store(true, Ordering::SeqCst);
                assert_eq!(depth.load(Ordering::SeqCst), 0, "it came in while the first was inside");
                guard.release().await.unwrap();
            }
        };
        let second = tokio::spawn(ByHand::new(enters).start().finished());
        stage.wait_nodes(2, nodes).await;
        for guard in [inner, outer] {
            assert_eq!(guard.hold_count(), depth.load(Ordering::SeqCst));
            depth.fetch_sub(1, Ordering::SeqCst);
            guard.release().await.unwrap();
            // The server says that nothing has been given back.
            assert!(stage.env.stat(&node).await.is_some());
            assert!(middle.is_held() && !came_in.load(Ordering::SeqCst) && !second.is_finished());
        }
        assert_eq!(middle.hold_count(), 1);
        depth.store(0, Ordering::SeqCst);
        middle.release().await.unwrap();
        within("the second", second).await.unwrap();
        assert!(came_in.load(Ordering::SeqCst));
    }
}

/// As many releases as acquisitions, and the lock is free.
async fn test_reentrant(stage: &Stage<'_>) {
    let (ours, theirs) = (stage.newcomer().await, stage.newcomer().await);
    let first = within("a free lock", ours.lock()).await.unwrap();
    let second = first.reenter().unwrap();
    let third = second.reenter().unwrap();
    assert_eq!(third.hold_count(), 3);
    assert!(third.node() == first.node() && third.fencing_token() == first.fencing_token());
    for guard in [third, second] {
        guard.release().await.unwrap();
        assert!(ours.is_acquired_in_this_process());
        assert!(matches!(theirs.try_lock().await, Err(TryLockError::WouldBlock { .. })));
    }
    assert_eq!(first.hold_count(), 1);
    first.release().await.unwrap();
    assert!(!ours.is_acquired_in_this_process());
    within("a free lock", theirs.try_lock()).await.unwrap().release().await.unwrap();
}

/// Of two clients exactly one holds the lock; then the other.
async fn test_2_clients(stage: &Stage<'_>) {
    let (ours, theirs) = (stage.newcomer().await, stage.newcomer().await);
    let holds = |lock: &super::stage::Lock| lock.is_acquired_in_this_process();
    let guard = within("a free lock", ours.lock()).await.unwrap();
    let waiter = tokio::spawn({
        let theirs = Arc::clone(&theirs);
        async move { theirs.lock().await.unwrap() }
    });
    stage.env.wait_watchers(&guard.node(), 1).await;
    assert!(holds(&ours) && !holds(&theirs) && !waiter.is_finished());
    guard.release().await.unwrap();
    let guard = within("the hand-over", waiter).await.unwrap();
    assert!(!holds(&ours) && holds(&theirs));
    guard.release().await.unwrap();
    assert!(!holds(&ours) && !holds(&theirs));
}
