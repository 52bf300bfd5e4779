//! TestInterProcessSemaphoreMutex: TestInterProcessMutexBase for a semaphore with one permit, but for what is
//! re-entrant.

use std::sync::Arc;
use std::time::Duration;

use test_support::{SOON, within};
use tokio::task::JoinSet;
use zookeeper_recipes::{AcquireError, InterProcessSemaphore, ReleaseError, TryLockError};

use super::stage::{Kind, Stage, ported};
use crate::harness::{Behaviour, CriticalSection, Need, in_vain};

pub(crate) fn all() -> Vec<Behaviour> {
    ported![Kind::Semaphore;
        test_locker = "TestInterProcessSemaphoreMutex.testLocker",
        test_waiting_process_killed_server =
            "TestInterProcessSemaphoreMutex.testWaitingProcessKilledServer".needs(Need::OwnServers),
        test_killed_session = "TestInterProcessSemaphoreMutex.testKilledSession",
        test_container_cleanup =
            "TestInterProcessSemaphoreMutex.testContainerCleanup".needs(Need::OwnServers),
        test_with_namespace = "TestInterProcessSemaphoreMutex.testWithNamespace",
        test_2_clients = "TestInterProcessSemaphoreMutex.test2Clients",
    ]
}

async fn newcomer(stage: &Stage<'_>) -> InterProcessSemaphore {
    stage.semaphore(&stage.client().await, 1)
}

/// Leaving the scope gives it back; who does not get it in time is told so.
async fn test_locker(stage: &Stage<'_>) {
    let (ours, theirs) = (newcomer(stage).await, newcomer(stage).await);
    for _ in 0..2 {
        {
            let _locker = within("a free permit", ours.acquire(Duration::from_secs(10))).await.unwrap();
            let (refused, _) = in_vain(|timeout| theirs.acquire(timeout)).await;
            assert!(matches!(refused, AcquireError::TimedOut { .. }), "{refused}");
        }
        drop(within("the permit that was left", theirs.acquire(SOON)).await.unwrap());
    }
}

/// The servers go and come back while one holds it and others wait; all finish, one at a time.
async fn test_waiting_process_killed_server(stage: &Stage<'_>) {
    // Longer than a server on a busy machine takes to come back.
    let patient = || stage.connect(stage.env.builder().session_timeout(Duration::from_secs(60)));
    let ours = stage.semaphore(&patient().await, 1);
    let semaphores = [ours.clone(), ours.clone(), stage.semaphore(&patient().await, 1)];
    let critical = Arc::new(CriticalSection::default());
    let permit = within("a free permit", ours.acquire(SOON)).await.unwrap();
    let mut waiters = JoinSet::new();
    for (number, semaphore) in semaphores.into_iter().enumerate() {
        let critical = Arc::clone(&critical);
        waiters.spawn(async move {
            let permit = semaphore.acquire(SOON).await.unwrap();
            critical.visit().await;
            permit.release().await.unwrap();
        });
        stage.env.wait_count(&stage.env.locks(), number + 1).await;
    }
    stage.env.stop_servers().await;
    stage.env.restart_servers().await;
    assert!(permit.is_held(), "the session outlived it");
    assert_eq!(critical.visits(), 0);
    within("the release", permit.release()).await.unwrap();
    while let Some(done) = within("every waiter", waiters.join_next()).await {
        done.unwrap();
    }
    assert_eq!(critical.visits(), 3);
}

/// Holder and waiter share the session that is killed: the waiter gets the permit in the next one, and the
/// holder is told that it has lost it, which Curator's is not.
async fn test_killed_session(stage: &Stage<'_>) {
    let (client, link) = stage.linked().await;
    let semaphore = stage.semaphore(&client, 1);
    let permit = within("a free permit", semaphore.acquire(SOON)).await.unwrap();
    let session = client.session_id();
    let waiter = tokio::spawn(semaphore.acquire(SOON));
    stage.env.wait_count(&stage.env.locks(), 1).await;
    stage.env.expire(&client, &link).await;
    let lost = within("the loss", permit.lost()).await;
    assert!(stage.env.is_loss(lost.reason()), "{lost}");
    let next = within("the waiter's grant", waiter).await.unwrap().unwrap();
    assert!(!permit.is_held() && next.is_held());
    assert!(next.fencing_token() > permit.fencing_token());
    let owner = stage.env.stat(&next.nodes()[0]).await.unwrap().ephemeral_owner;
    assert!(Some(owner) == client.session_id() && Some(owner) != session);
    // Returning what was lost takes nothing from the one that has it now.
    assert!(matches!(permit.release().await, Err(ReleaseError::Lost(_))));
    assert!(next.is_held() && stage.env.stat(&next.nodes()[0]).await.is_some());
    next.release().await.unwrap();
}

/// Ten have held it; then its directories go, and come back with the next.
async fn test_container_cleanup(stage: &Stage<'_>) {
    let semaphore = newcomer(stage).await;
    let mut lockers = JoinSet::new();
    for _ in 0..10 {
        let semaphore = semaphore.clone();
        lockers.spawn(async move { semaphore.acquire(SOON).await.unwrap().release().await.unwrap() });
    }
    while let Some(done) = within("every locker", lockers.join_next()).await {
        done.unwrap();
    }
    for directory in [stage.env.locks(), stage.env.leases(), stage.env.lock_path()] {
        stage.env.sweep(&directory).await;
    }
    let permit = within("a permit without a directory", semaphore.acquire(SOON)).await.unwrap();
    assert!(stage.env.stat(&stage.env.leases()).await.is_some());
    permit.release().await.unwrap();
}

async fn test_with_namespace(stage: &Stage<'_>) {
    let namespace = stage.env.path("ns");
    let client = stage.connect(stage.env.builder().namespace(&namespace)).await;
    let semaphore = InterProcessSemaphore::new(&client, "/foo/bar", 1).unwrap();
    let permit = within("a free permit", semaphore.acquire(SOON)).await.unwrap();
    assert_eq!((permit.path(), semaphore.path()), ("/foo/bar", "/foo/bar"));
    let children = stage.env.children(&format!("{namespace}/foo/bar/leases")).await;
    let nodes: Vec<_> = children.iter().map(|name| format!("/foo/bar/leases/{name}")).collect();
    assert_eq!(nodes, permit.nodes());
    // A client without the namespace contends for the same permit.
    let path = format!("{namespace}/foo/bar");
    let other = InterProcessSemaphore::new(&stage.client().await, &path, 1).unwrap();
    assert!(matches!(other.try_acquire().await, Err(TryLockError::WouldBlock { .. })));
    permit.release().await.unwrap();
    within("a free permit", other.try_acquire()).await.unwrap().release().await.unwrap();
    assert_eq!(stage.env.children(&format!("{path}/leases")).await, [""; 0]);
}

/// Of two clients exactly one has it; then the other.
async fn test_2_clients(stage: &Stage<'_>) {
    let (ours, theirs) = (newcomer(stage).await, newcomer(stage).await);
    let permit = within("a free permit", ours.acquire(SOON)).await.unwrap();
    let waiter = tokio::spawn(theirs.acquire(SOON));
    stage.env.wait_no_room().await;
    assert!(permit.is_held() && !waiter.is_finished());
    assert_eq!(stage.env.children(&stage.env.leases()).await.len(), 1);
    permit.release().await.unwrap();
    let permit = within("the hand-over", waiter).await.unwrap().unwrap();
    assert_eq!(ours.participants().await.unwrap(), permit.nodes());
    permit.release().await.unwrap();
    assert_eq!(ours.participants().await.unwrap(), [""; 0]);
}
