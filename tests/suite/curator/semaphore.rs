//! TestInterProcessSemaphore, of InterProcessSemaphoreV2, and TestInterProcessSemaphoreCluster.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use test_support::{SOON, within};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use zookeeper_recipes::{AcquireError, ConnectionState, InterProcessSemaphore, LostReason, SemaphorePermit};
use zookeeper_test_server::{Match, Op};

use super::stage::{Kind, Stage, ported};
use crate::harness::{BRIEFLY, Behaviour, Need, Room, in_vain};

pub(crate) fn all() -> Vec<Behaviour> {
    ported![Kind::Semaphore;
        test_acquire_after_lost_server = "TestInterProcessSemaphore.testAcquireAfterLostServer"
            .needs(Need::OwnServers).needs(Need::HoldReplies),
        test_threaded_lease_increase = "TestInterProcessSemaphore.testThreadedLeaseIncrease",
        test_client_close = "TestInterProcessSemaphore.testClientClose",
        test_max_per_session = "TestInterProcessSemaphore.testMaxPerSession",
        test_release_1_at_a_time = "TestInterProcessSemaphore.testRelease1AtATime",
        test_release_in_chunks = "TestInterProcessSemaphore.testReleaseInChunks",
        test_threads = "TestInterProcessSemaphore.testThreads",
        test_simple = "TestInterProcessSemaphore.testSimple",
        test_simple_2 = "TestInterProcessSemaphore.testSimple2",
        test_get_participant_nodes = "TestInterProcessSemaphore.testGetParticipantNodes",
        test_no_orphaned_nodes = "TestInterProcessSemaphore.testNoOrphanedNodes",
        test_interrupt_acquire = "TestInterProcessSemaphore.testInterruptAcquire",
        test_killed_server = "TestInterProcessSemaphoreCluster.testKilledServerWithEnsembleProvider"
            .needs(Need::OwnServers),
        test_cluster = "TestInterProcessSemaphoreCluster.testCluster"
            .needs(Need::OwnServers).only_on_an_ensemble(),
    ]
}

fn spawn(semaphore: &InterProcessSemaphore, n: u32) -> JoinHandle<Result<SemaphorePermit, AcquireError>> {
    tokio::spawn(semaphore.acquire_many(n, SOON))
}

async fn all_done(tasks: &mut JoinSet<()>) {
    while let Some(done) = within("all of them", tasks.join_next()).await {
        done.unwrap();
    }
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
    all_done(&mut acquirers).await;
}

/// A limit that is raised wakes a waiter before its time is over.
async fn test_threaded_lease_increase(stage: &Stage<'_>) {
    let (ours, theirs) =
        (stage.semaphore(&stage.client().await, 1), stage.semaphore(&stage.client().await, 1));
    ours.set_limit(1).await.unwrap();
    let first = within("a free permit", ours.acquire(SOON)).await.unwrap();
    let second = spawn(&theirs, 1);
    stage.env.wait_no_room().await;
    assert!(!second.is_finished());
    ours.set_limit(2).await.unwrap();
    let second = within("room for it", second).await.unwrap().unwrap();
    assert!(first.is_held() && second.is_held());
    first.release().await.unwrap();
    second.release().await.unwrap();
}

/// The permits of a client that is closed are free.
async fn test_client_close(stage: &Stage<'_>) {
    let (closing, staying) = (stage.env.client().await, stage.client().await);
    let (ours, theirs) = (stage.semaphore(&closing, 1), stage.semaphore(&staying, 1));
    let lost = within("a free permit", ours.acquire(SOON)).await.unwrap();
    let next = spawn(&theirs, 1);
    stage.env.wait_no_room().await;
    closing.close().await.unwrap();
    let next = within("the permit of the closed client", next).await.unwrap().unwrap();
    assert_eq!(lost.lost().await.reason(), LostReason::Closed);
    next.release().await.unwrap();
}

/// Ten clients take some permits each time, at random, and never more than there are.
async fn test_max_per_session(stage: &Stage<'_>) {
    let limit = 25 + u32::try_from(stage.env.random().below(75)).unwrap();
    let room = Arc::new(Room::of(usize::try_from(limit).unwrap()));
    let mut clients = JoinSet::new();
    for _ in 0..10 {
        let (semaphore, room) = (stage.semaphore(&stage.client().await, limit), Arc::clone(&room));
        let some: Vec<_> = (0..4).map(|_| 1 + stage.env.random().below(u64::from(limit))).collect();
        clients.spawn(async move {
            for some in some {
                let some = u32::try_from(some).unwrap();
                let permits = semaphore.acquire_many(some, SOON).await.unwrap();
                assert_eq!(permits.num_permits(), some);
                room.visit_while(&permits, semaphore.participants()).await.unwrap();
                permits.release().await.unwrap();
            }
        });
    }
    all_done(&mut clients).await;
    assert_eq!(room.visits(), 40);
}

/// Ten clients, five permits: five are inside, and whenever one leaves another comes.
async fn test_release_1_at_a_time(stage: &Stage<'_>) {
    const CLIENTS: usize = 10;
    const LIMIT: usize = 5;
    let inside = Arc::new(AtomicUsize::new(0));
    let leave = Arc::new(tokio::sync::Semaphore::new(0));
    let mut clients = JoinSet::new();
    for _ in 0..CLIENTS {
        let semaphore = stage.semaphore(&stage.client().await, 5);
        let (inside, leave) = (Arc::clone(&inside), Arc::clone(&leave));
        clients.spawn(async move {
            let permit = semaphore.acquire(SOON).await.unwrap();
            assert!(inside.fetch_add(1, Ordering::SeqCst) < LIMIT);
            leave.acquire().await.unwrap().forget();
            inside.fetch_sub(1, Ordering::SeqCst);
            permit.release().await.unwrap();
        });
    }
    for left in (1..=CLIENTS).rev() {
        let here = LIMIT.min(left);
        stage.env.wait_count(&stage.env.locks(), left - here).await;
        stage.env.wait_count(&stage.env.leases(), here).await;
        leave.add_permits(1);
    }
    all_done(&mut clients).await;
}

/// A hundred, eleven permits; those who are inside leave in chunks.
async fn test_release_in_chunks(stage: &Stage<'_>) {
    let semaphore = stage.semaphore(&stage.client().await, 11);
    let room = Arc::new(Room::of(11));
    let (hand_in, mut handed_in) = tokio::sync::mpsc::unbounded_channel();
    let mut tasks = JoinSet::new();
    for _ in 0..100 {
        let (semaphore, room, hand_in) = (semaphore.clone(), Arc::clone(&room), hand_in.clone());
        tasks.spawn(async move {
            let permit = semaphore.acquire(SOON).await.unwrap();
            room.visit_while(&permit, tokio::task::yield_now()).await;
            hand_in.send(permit).unwrap();
        });
    }
    drop(hand_in);
    let mut chunk = Vec::new();
    while let Some(permit) = within("the next", handed_in.recv()).await {
        chunk.push(permit);
        if u64::try_from(chunk.len()).unwrap() > stage.env.random().below(11) {
            chunk.clear();
        }
    }
    drop(chunk);
    all_done(&mut tasks).await;
    assert_eq!(room.visits(), 100);
}

/// Ten tasks on one handle, one permit.
async fn test_threads(stage: &Stage<'_>) {
    let semaphore = stage.semaphore(&stage.client().await, 1);
    let room = Arc::new(Room::of(1));
    let mut tasks = JoinSet::new();
    for _ in 0..10 {
        let (semaphore, room) = (semaphore.clone(), Arc::clone(&room));
        tasks.spawn(async move {
            let permit = semaphore.acquire(SOON).await.unwrap();
            room.visit_while(&permit, tokio::task::yield_now()).await;
        });
    }
    all_done(&mut tasks).await;
    assert_eq!(room.visits(), 10);
}

async fn test_simple(stage: &Stage<'_>) {
    let semaphore = stage.semaphore(&stage.client().await, 1);
    let permit = within("a free permit", semaphore.acquire(SOON)).await.unwrap();
    let (error, _) = in_vain(|timeout| semaphore.acquire(timeout)).await;
    assert!(matches!(error, AcquireError::TimedOut { .. }), "{error:?}");
    permit.release().await.unwrap();
}

/// Three permits, four who want one.
async fn test_simple_2(stage: &Stage<'_>) {
    let semaphore = stage.semaphore(&stage.client().await, 3);
    let mut permits = Vec::new();
    for _ in 0..3 {
        permits.push(within("a free permit", semaphore.acquire(SOON)).await.unwrap());
    }
    let (error, _) = in_vain(|timeout| semaphore.acquire(timeout)).await;
    assert!(matches!(error, AcquireError::TimedOut { .. }), "{error:?}");
    permits.pop().unwrap().release().await.unwrap();
    permits.push(within("the one that was returned", semaphore.acquire(SOON)).await.unwrap());
    for permit in permits {
        permit.release().await.unwrap();
    }
}

async fn test_get_participant_nodes(stage: &Stage<'_>) {
    let semaphore = stage.semaphore(&stage.client().await, 10);
    let mut nodes = Vec::new();
    let mut permits = Vec::new();
    for _ in 0..3 {
        let permit = within("a free permit", semaphore.acquire(SOON)).await.unwrap();
        nodes.extend(permit.nodes());
        permits.push(permit);
    }
    assert_eq!(semaphore.participants().await.unwrap(), nodes);
    assert_eq!(stage.env.children(&stage.env.leases()).await.len(), 3);
    drop(permits);
}

/// The node of a waiter is deleted by hand: it begins again, and there is no other node of its at the end.
async fn test_no_orphaned_nodes(stage: &Stage<'_>) {
    let (ours, theirs) =
        (stage.semaphore(&stage.client().await, 1), stage.semaphore(&stage.client().await, 1));
    let permit = within("a free permit", ours.acquire(SOON)).await.unwrap();
    let waiter = spawn(&theirs, 1);
    let [first] = &stage.env.wait_children(&stage.env.locks(), "a waiter", |now| now.len() == 1).await[..]
    else {
        unreachable!()
    };
    stage.env.wait_no_room().await;
    stage.env.delete(&format!("{}/{first}", stage.env.locks())).await;
    // Only a look shows that it is gone; the release is what it waits for.
    permit.release().await.unwrap();
    let next = within("the waiter's permit", waiter).await.unwrap().unwrap();
    assert_eq!(ours.participants().await.unwrap(), next.nodes());
    stage.env.wait_count(&stage.env.locks(), 0).await;
    next.release().await.unwrap();
}

/// Who is interrupted while it waits leaves the queue, and the next is served.
async fn test_interrupt_acquire(stage: &Stage<'_>) {
    let client = stage.client().await;
    let semaphore = stage.semaphore(&client, 1);
    let permit = within("a free permit", semaphore.acquire(SOON)).await.unwrap();
    let waiter = spawn(&semaphore, 1);
    stage.env.wait_no_room().await;
    waiter.abort();
    assert!(within("its end", waiter).await.unwrap_err().is_cancelled());
    client.flush(SOON).await.unwrap();
    assert_eq!(stage.env.children(&stage.env.locks()).await, [""; 0]);
    assert_eq!(stage.env.children(&stage.env.leases()).await.len(), 1);
    permit.release().await.unwrap();
    within("a free permit", semaphore.acquire(SOON)).await.unwrap().release().await.unwrap();
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
    all_done(&mut clients).await;
}
