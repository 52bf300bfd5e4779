//! TestInterProcessMutexBase, for every exclusive lock and for the multi-lock.

use test_support::prelude::*;

use super::stage::{AnyLock, Hold, Kind, Stage, ported};
use crate::harness::{Behaviour, CriticalSection, Need, expect_timeout};

pub(crate) fn all(kind: Kind) -> Vec<Behaviour> {
    let mut all = ported![kind;
        test_locker = "TestInterProcessMutexBase.testLocker and test2Clients",
        test_waiting_process_killed_server = "TestInterProcessMutexBase.testWaitingProcessKilledServer"
            .needs(Need::OwnServers),
        test_killed_session = "TestInterProcessMutexBase.testKilledSession",
        test_container_cleanup = "TestInterProcessMutexBase.testContainerCleanup".needs(Need::OwnServers),
        test_with_namespace = "TestInterProcessMutexBase.testWithNamespace",
        test_reentrant_single_lock = "TestInterProcessMutexBase.testReentrantSingleLock",
        test_reentrant = "TestInterProcessMutexBase.testReentrant and testReentrant2Threads",
    ];
    if kind == Kind::Mutex {
        all.extend(ported![kind;
            test_waiting_process_killed_server = "TestInterProcessMutexBase.testWaitingProcessKilledServer"
                .needs(Need::OwnServers).only_on_ensemble(),
        ]);
    }
    all
}

async fn hold(lock: &AnyLock) -> Hold {
    within("a free lock", lock.lock()).await.unwrap()
}

/// Leaving the scope releases the lock; a call that times out returns an error.
async fn test_locker(stage: &Stage<'_>) {
    let (ours, theirs) = (stage.any_newcomer().await, stage.any_newcomer().await);
    for _ in 0..2 {
        {
            let _locker = within("a free lock", ours.acquire(Duration::from_secs(10)))
                .await
                .unwrap();
            assert!(ours.is_acquired_in_this_process());
            let (refused, _) = expect_timeout(|timeout| theirs.acquire(timeout)).await;
            assert!(
                matches!(refused, AcquireError::TimedOut { .. }),
                "{refused}"
            );
            assert!(!theirs.is_acquired_in_this_process());
        }
        assert!(!ours.is_acquired_in_this_process());
        let guard = hold(&theirs).await;
        assert!(theirs.is_acquired_in_this_process() && !ours.is_acquired_in_this_process());
        drop(guard);
    }
}

/// The servers stop and restart while one task holds and others wait; all finish, one at a time.
async fn test_waiting_process_killed_server(stage: &Stage<'_>) {
    // The timeout is longer than a server on a busy machine takes to come back.
    let patient = || stage.connect(stage.env.builder().session_timeout(Duration::from_secs(60)));
    // Curator's two threads share a client; here a second client waits too.
    let ours = stage.any_lock(&patient().await);
    let locks = [ours.clone(), ours.clone(), stage.any_lock(&patient().await)];
    let critical = Arc::new(CriticalSection::default());
    let guard = hold(&ours).await;
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
    assert!(guard.is_held(), "the session outlived the outage");
    assert_eq!(critical.visits(), 0);
    within("the release", guard.release()).await.unwrap();
    all_done("every waiter", waiters).await;
    assert_eq!(critical.visits(), 3);
}

/// Holder and waiter share the session that is killed: the waiter is granted the lock in the next
/// one, and the holder is notified of its loss, unlike Curator's.
// Shows: multi-lock-loss
async fn test_killed_session(stage: &Stage<'_>) {
    let (client, link) = stage.linked().await;
    let lock = stage.any_lock(&client);
    let guard = hold(&lock).await;
    let session = client.session_id();
    let asks = {
        let lock = lock.clone();
        async move { lock.lock().await }
    };
    let waiter = tokio::spawn(ByHand::new(asks).start().finished());
    stage.wait_nodes(2, 1).await;
    stage.env.expire(&client, &link).await;
    let lost = within("the loss", guard.lost()).await;
    assert!(stage.env.is_loss(lost.reason()), "{lost}");
    assert!(
        stage.paths().iter().any(|path| path == lost.path()),
        "{lost}"
    );
    let next = within("the waiter's grant", waiter).await.unwrap().unwrap();
    assert!(!guard.is_held() && next.is_held());
    assert!(
        next.zxids()
            .iter()
            .zip(guard.zxids())
            .all(|(next, last)| *next > last)
    );
    // Releasing a lost lock takes nothing from its present holder. The error may name either lock
    // of a multi-lock.
    let named = |again: &Lost| stage.paths().len() > 1 || *again == lost;
    assert!(matches!(guard.release().await, Err(ReleaseError::Lost(again)) if named(&again)));
    assert!(next.is_held() && lock.is_acquired_in_this_process());
    for node in next.nodes() {
        let owner = stage.env.stat(&node).await.unwrap().ephemeral_owner;
        assert!(Some(owner) == client.session_id() && Some(owner) != session);
    }
    next.release().await.unwrap();
}

/// After ten grants the directory and its parents are deleted. The next acquire creates them again:
/// its number is the first, and its token differs from all earlier ones.
// Shows: directories
async fn test_container_cleanup(stage: &Stage<'_>) {
    let lock = stage.any_newcomer().await;
    let mut lockers = JoinSet::new();
    for _ in 0..10 {
        let lock = lock.clone();
        lockers.spawn(async move {
            let guard = lock.lock().await.unwrap();
            let zxids = guard.zxids();
            guard.release().await.unwrap();
            zxids
        });
    }
    let before = all_done("every locker", lockers)
        .await
        .into_iter()
        .max()
        .unwrap();
    stage.env.sweep(&stage.env.lock_path()).await;
    for path in stage.paths() {
        stage.env.wait_gone(&path).await;
    }
    stage
        .env
        .sweep(stage.env.lock_path().rsplit_once('/').unwrap().0)
        .await;
    let guard = within("a lock without a directory", lock.lock())
        .await
        .unwrap();
    assert!(
        guard
            .zxids()
            .iter()
            .zip(before)
            .all(|(now, before)| *now > before)
    );
    for (path, node) in stage.paths().iter().zip(guard.nodes()) {
        assert!(
            stage.env.stat(path).await.is_some(),
            "the directory stays while it is used"
        );
        assert!(
            node.ends_with("0000000000"),
            "the numbers begin anew: {node}"
        );
    }
    guard.release().await.unwrap();
}

async fn test_with_namespace(stage: &Stage<'_>) {
    let namespace = stage.env.path("ns");
    let client = stage
        .connect(stage.env.builder().namespace(&namespace))
        .await;
    let paths = ["/foo/bar".to_owned(), "/foo/baz".to_owned()];
    let guard = hold(&stage.any_lock_at(&client, &paths)).await;
    let outside = paths.clone().map(|path| format!("{namespace}{path}"));
    for ((path, outside), node) in paths.iter().zip(&outside).zip(guard.nodes()) {
        assert_eq!(node.lock_path(), path);
        assert_eq!(stage.env.children(outside).await, [node.name()]);
    }
    // A client without the namespace contends for the same lock.
    let other = stage.any_lock_at(&stage.client().await, &outside);
    assert!(matches!(
        other.try_lock().await,
        Err(TryLockError::WouldBlock { .. })
    ));
    guard.release().await.unwrap();
    within("a free lock", other.try_lock())
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    assert_eq!(stage.env.children(&outside[0]).await, [""; 0]);
}

/// Ten tasks of one handle each enter again: never two are inside, and all succeed.
async fn test_reentrant_single_lock(stage: &Stage<'_>) {
    let lock = stage.any_newcomer().await;
    let critical = Arc::new(CriticalSection::default());
    let first = hold(&lock).await;
    let mut tasks = JoinSet::new();
    for _ in 1..10 {
        let (lock, critical) = (lock.clone(), Arc::clone(&critical));
        let enters = async move {
            let guard = lock.lock().await.unwrap();
            let again = guard.reenter();
            drop(guard);
            critical.visit().await;
            again.release().await.unwrap();
        };
        // All tasks wait before the first releases.
        tasks.spawn(ByHand::new(enters).start().finished());
    }
    stage.wait_nodes(10, 1).await;
    critical.visit().await;
    first.release().await.unwrap();
    all_done("every task", tasks).await;
    assert_eq!(critical.visits(), 10);
}

/// A holder that has entered three times excludes the other until it has left three times. Unlike
/// Curator's test, this test checks the second holder's result.
async fn test_reentrant(stage: &Stage<'_>) {
    let client = stage.client().await;
    let ours = stage.any_lock(&client);
    for (theirs, nodes) in [(ours.clone(), 1), (stage.any_newcomer().await, 2)] {
        let depth = Arc::new(AtomicUsize::new(3));
        let outer = hold(&ours).await;
        let middle = outer.reenter();
        let inner = middle.reenter();
        assert!(inner.nodes() == outer.nodes() && inner.zxids() == outer.zxids());
        let enters = {
            let depth = Arc::clone(&depth);
            async move {
                let guard = theirs.lock().await.unwrap();
                assert_eq!(
                    depth.load(Ordering::SeqCst),
                    0,
                    "the second entered beside the first"
                );
                guard.release().await.unwrap();
            }
        };
        let second = tokio::spawn(ByHand::new(enters).start().finished());
        stage.wait_nodes(2, nodes).await;
        for guard in [inner, outer] {
            assert_eq!(guard.hold_count(), depth.load(Ordering::SeqCst));
            depth.fetch_sub(1, Ordering::SeqCst);
            guard.release().await.unwrap();
            // The server shows that nothing has been released.
            for node in middle.nodes() {
                assert!(stage.env.stat(&node).await.is_some());
            }
            assert!(
                middle.is_held() && ours.is_acquired_in_this_process() && !second.is_finished()
            );
        }
        assert_eq!(middle.hold_count(), 1);
        depth.store(0, Ordering::SeqCst);
        middle.release().await.unwrap();
        within("the second", second).await.unwrap();
        assert!(!ours.is_acquired_in_this_process());
    }
}
