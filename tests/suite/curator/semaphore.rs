//! TestInterProcessSemaphore, of InterProcessSemaphoreV2, and TestInterProcessSemaphoreCluster.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use test_support::{SOON, all_done, within};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use zookeeper_recipes::{AcquireError, ConnectionState, InterProcessSemaphore, LostReason, SemaphorePermit};
use zookeeper_test_server::{Match, Op};

use super::stage::{Kind, Stage, ported};
use crate::harness::{BRIEFLY, Behaviour, Need, Room};

pub(crate) fn all() -> Vec<Behaviour> {
    ported![Kind::Semaphore;
        test_acquire_after_lost_server = "TestInterProcessSemaphore.testAcquireAfterLostServer"
            .needs(Need::OwnServers).needs(Need::HoldReplies),
        test_killed_server = "TestInterProcessSemaphoreCluster.testKilledServerWithEnsembleProvider"
            .needs(Need::OwnServers),
        test_cluster = "TestInterProcessSemaphoreCluster.testCluster"
            .needs(Need::OwnServers).only_on_an_ensemble(),
    ]
}

fn spawn(semaphore: &InterProcessSemaphore, n: u32) -> JoinHandle<Result<SemaphorePermit, AcquireError>> {
    tokio::spawn(semaphore.acquire_many(n, SOON))
}

/// The server goes when the first has its permit and does not know it yet; it and nine others go on when the
/// server is back.
async fn test_acquire_after_lost_server(stage: &Stage<'_>) {
    let client = stage.connect(stage.env.builder().session_timeout(Duration::from_secs(60))).await;
    let semaphore = stage.semaphore(&client, 1);
    within("a free permit", semaphore.acquire(SOON)).await.unwrap().release().await.unwrap();
    let server = stage.env.server();
    // The transaction that creates the lease.
    let taken = server.hold_reply(Match::op(Op::Multi).session(client.session_id().unwrap()));
    let count = Arc::new(AtomicUsize::new(0));
    let mut acquirers = JoinSet::new();
    for _ in 0..10 {
        let (semaphore, count) = (semaphore.clone(), Arc::clone(&count));
        acquirers.spawn(async move {
            let permit = semaphore.acquire(SOON).await.unwrap();
            assert_eq!(count.fetch_add(1, Ordering::SeqCst), 0, "two are inside");
            tokio::task::yield_now().await;
            count.fetch_sub(1, Ordering::SeqCst);
            permit.release().await.unwrap();
        });
    }
    within("the first lease", taken.wait_hit()).await;
    stage.env.stop_servers().await;
    taken.release();
    stage.env.restart_servers().await;
    all_done("all of them", acquirers).await;
}

/// One is inside; the server goes, for longer than the session; none is inside; then one is again.
/// (Curator's is sent to other servers then: a client has one list of servers here.)
async fn test_killed_server(stage: &Stage<'_>) {
    let client = stage.connect(stage.env.builder().session_timeout(Duration::from_secs(6))).await;
    let semaphore = stage.semaphore(&client, 1);
    let permit = within("a free permit", semaphore.acquire(SOON)).await.unwrap();
    assert!(permit.is_held());
    stage.env.stop_servers().await;
    assert_eq!(within("the loss", permit.lost()).await.reason(), LostReason::LeaseExpired);
    let next = spawn(&semaphore, 1);
    assert!(!permit.is_held() && !next.is_finished());
    stage.env.restart_servers().await;
    let next = within("a permit after it", next).await.unwrap().unwrap();
    assert!(next.is_held() && !permit.is_held());
    drop(permit);
    next.release().await.unwrap();
}

/// Twenty clients; when the ensemble has no quorum none gets in, and with the quorum they go on. (Curator's
/// check for exclusion is inverted, and proves nothing.)
async fn test_cluster(stage: &Stage<'_>) {
    let room = Arc::new(Room::of(1));
    let (visit, mut visits) = watch::channel(0);
    let visit = Arc::new(visit);
    let go_on = Arc::new(AtomicBool::new(true));
    let mut clients = JoinSet::new();
    let mut states = Vec::new();
    for _ in 0..20 {
        let patient = stage.connect(stage.env.builder().session_timeout(Duration::from_secs(60))).await;
        states.push(patient.watch_state());
        let semaphore = stage.semaphore(&patient, 1);
        let (room, visit, go_on) = (Arc::clone(&room), Arc::clone(&visit), Arc::clone(&go_on));
        clients.spawn(async move {
            while go_on.load(Ordering::SeqCst) {
                let permit = semaphore.acquire(Duration::from_secs(300)).await.unwrap();
                room.visit_while(&permit, tokio::task::yield_now()).await;
                visit.send_modify(|visits| *visits += 1);
                permit.release().await.unwrap();
            }
        });
    }
    drop(within("some to come in", visits.wait_for(|visits| *visits > 20)).await.unwrap());
    let gone = stage.env.lose_quorum().await;
    for state in &mut states {
        let cut_off = state.wait_for(|state| *state == ConnectionState::Suspended);
        within("the outage", cut_off).await.unwrap();
    }
    // Those who were granted a permit before may still come to know it.
    for _ in 0..20 {
        let before = *visits.borrow_and_update();
        if tokio::time::timeout(BRIEFLY, visits.wait_for(|visits| *visits > before)).await.is_err() {
            break;
        }
    }
    let before = *visits.borrow_and_update();
    let another = tokio::time::timeout(BRIEFLY, visits.wait_for(|visits| *visits > before)).await.is_ok();
    assert!(!another, "one came in without a quorum");
    stage.env.restart_members(gone).await;
    drop(within("others to come in", visits.wait_for(|visits| *visits > before + 20)).await.unwrap());
    go_on.store(false, Ordering::SeqCst);
    all_done("all of them", clients).await;
}
