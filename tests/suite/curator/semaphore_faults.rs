//! Faults of Curator's semaphores, and that ours do not have them.

use std::sync::Arc;
use std::time::Duration;

use test_support::{SOON, within};
use tokio::task::{JoinHandle, JoinSet};
use zookeeper_client as zk;
use zookeeper_recipes::{AcquireError, Client, InterProcessSemaphore, RetryPolicy, SemaphorePermit};
use zookeeper_test_server::{Loss, Match, Op};

use super::stage::{Kind, Stage, ported};
use crate::harness::{Behaviour, Need, Room};

pub(crate) fn all() -> Vec<Behaviour> {
    ported![Kind::Semaphore;
        deadlock_by_quantity.on_an_ensemble_too(),
        lease_and_lock_in_two_sessions.needs(Need::HoldReplies),
        lease_of_a_session_that_is_over.on_an_ensemble_too(),
        lease_left_by_an_interrupt = "CURATOR-462".needs(Need::HoldReplies),
        lease_left_by_a_lost_reply = "CURATOR-335".needs(Need::HoldReplies),
        permits_of_a_lost_session_without_retries = "CURATOR-595".on_an_ensemble_too(),
        release_beside_acquire = "CURATOR-376".whatever_breaks().on_an_ensemble_too(),
        directories_that_go_meanwhile = "CURATOR-180".on_an_ensemble_too(),
        participants_without_a_directory,
    ]
}

fn spawn(semaphore: &InterProcessSemaphore, n: u32) -> JoinHandle<Result<SemaphorePermit, AcquireError>> {
    tokio::spawn(semaphore.acquire_many(n, SOON))
}

/// The transaction by which a client takes its permits.
fn take(client: &Client) -> Match {
    Match::op(Op::Multi).session(client.session_id().unwrap()).path_contains("-lease-")
}

/// Curator's takes one permit after the other: two clients that want most of them each wait for what the
/// other has, for ever. Here nobody has ever seen a part.
async fn deadlock_by_quantity(stage: &Stage<'_>) {
    const ROUNDS: usize = 10;
    let room = Arc::new(Room::of(4));
    let mut clients = JoinSet::new();
    for _ in 0..2 {
        let (semaphore, room) = (stage.semaphore(&stage.client().await, 4), Arc::clone(&room));
        clients.spawn(async move {
            for _ in 0..ROUNDS {
                // Without a deadline, which would hide it.
                let permits = semaphore.acquire_many(3, Duration::MAX).await.unwrap();
                room.visit_while(&permits, tokio::task::yield_now()).await;
                permits.release().await.unwrap();
            }
        });
    }
    let leases = stage.env.leases();
    while !clients.is_empty() {
        tokio::select! {
            done = within("both clients", clients.join_next()) => done.unwrap().unwrap(),
            leases = stage.env.children(&leases) => {
                // Returned they are one by one.
                assert!(leases.len() <= 3, "{leases:?}");
            }
        }
    }
    assert_eq!(room.visits(), 2 * ROUNDS);
}

/// Curator's lock and lease are two nodes, made one after the other: with a reconnect to another session in
/// between there is a lease without a lock, and the next in the queue waits for it as it waits for them. Here
/// the lease comes and the lock goes in one transaction, which a session that is over does not commit.
async fn lease_and_lock_in_two_sessions(stage: &Stage<'_>) {
    let (client, other) = (stage.client().await, stage.client().await);
    let (ours, theirs) = (stage.semaphore(&client, 1), stage.semaphore(&other, 1));
    within("a free permit", ours.acquire(SOON)).await.unwrap().release().await.unwrap();
    let session = client.session_id().unwrap();
    let gate = stage.env.server().hold_request(take(&client));
    let first = spawn(&ours, 1);
    within("the transaction", gate.wait_hit()).await;
    let second = spawn(&theirs, 1);
    stage.env.wait_count(&stage.env.locks(), 2).await;
    assert!(stage.env.server().expire_session(session));
    gate.release();
    // In whichever order.
    let mut granted = 0;
    for waiter in [second, first] {
        let permit = within("its permit", waiter).await.unwrap().unwrap();
        let [node] = &permit.nodes()[..] else { panic!("one node") };
        let owner = stage.env.stat(node).await.unwrap().ephemeral_owner;
        assert!(owner != session && [client.session_id(), other.session_id()].contains(&Some(owner)));
        assert_eq!(stage.env.children(&stage.env.leases()).await.len(), 1);
        granted += 1;
        permit.release().await.unwrap();
    }
    assert_eq!(granted, 2);
}

/// The same on servers that cannot be told to wait: whenever the session goes, others go on.
async fn lease_of_a_session_that_is_over(stage: &Stage<'_>) {
    let (client, link) = stage.linked().await;
    let ours = stage.semaphore(&client, 2);
    let theirs = stage.semaphore(&stage.client().await, 2);
    let held = within("a free permit", ours.acquire(SOON)).await.unwrap();
    let much = spawn(&ours, 2);
    stage.env.wait_no_room().await;
    let rest = spawn(&theirs, 2);
    stage.env.wait_count(&stage.env.locks(), 2).await;
    stage.env.expire(&client, &link).await;
    let rest = within("all permits", rest).await.unwrap().unwrap();
    within("the loss", held.lost()).await;
    assert!(!much.is_finished());
    rest.release().await.unwrap();
    within("all permits, in the next session", much).await.unwrap().unwrap().release().await.unwrap();
}

/// A call that is dropped at any step leaves neither a lock nor a lease.
async fn lease_left_by_an_interrupt(stage: &Stage<'_>) {
    let client = stage.client().await;
    let (ours, theirs) = (stage.semaphore(&client, 2), stage.semaphore(&stage.client().await, 2));
    within("a free permit", ours.acquire(SOON)).await.unwrap().release().await.unwrap();
    let lock = || {
        let locks = format!("{}/", stage.env.locks());
        Match::op(Op::Create).path_prefix(locks).session(client.session_id().unwrap())
    };
    let list = || Match::op(Op::GetChildren).path(stage.env.leases()).session(client.session_id().unwrap());
    let server = stage.env.server();
    for number in 0..6 {
        let step = match number / 2 {
            0 => lock(),
            1 => list(),
            _ => take(&client),
        };
        // On its way there, and its reply on the way back.
        let gate = if number % 2 == 0 { server.hold_request(step) } else { server.hold_reply(step) };
        let interrupted = spawn(&ours, 2);
        within("the step", gate.wait_hit()).await;
        interrupted.abort();
        assert!(within("its end", interrupted).await.unwrap_err().is_cancelled());
        // One who queues behind what may be there.
        let next = spawn(&theirs, 2);
        gate.release();
        let next = within("the next", next).await.unwrap().unwrap();
        client.flush(SOON).await.unwrap();
        assert_eq!(stage.env.children(&stage.env.locks()).await, [""; 0], "step {number}");
        assert_eq!(theirs.participants().await.unwrap(), next.nodes(), "step {number}");
        next.release().await.unwrap();
    }
}

/// A reply that never comes, with the connection: of the lock, and of the leases.
async fn lease_left_by_a_lost_reply(stage: &Stage<'_>) {
    let client = stage.client().await;
    let ours = stage.semaphore(&client, 3);
    within("a free permit", ours.acquire(SOON)).await.unwrap().release().await.unwrap();
    let lock = || {
        let locks = format!("{}/", stage.env.locks());
        Match::op(Op::Create).path_prefix(locks).session(client.session_id().unwrap())
    };
    for leases in [false, true] {
        for there in [true, false] {
            let server = stage.env.server();
            let lost = if leases { take(&client) } else { lock() };
            let fault = if there {
                server.drop_reply(lost, Loss::Reset)
            } else {
                server.drop_request(lost, Loss::Reset)
            };
            let permits = within("two permits", ours.acquire_many(2, SOON)).await.unwrap();
            assert_eq!(fault.hits().len(), 1);
            client.flush(SOON).await.unwrap();
            assert_eq!(ours.participants().await.unwrap(), permits.nodes());
            assert_eq!(stage.env.children(&stage.env.locks()).await, [""; 0]);
            assert_eq!(permits.slots(), [0, 1]);
            permits.release().await.unwrap();
        }
    }
}

/// With a retry policy that allows nothing.
async fn permits_of_a_lost_session_without_retries(stage: &Stage<'_>) {
    let policy = RetryPolicy::n_times(0, Duration::ZERO);
    let (client, link) = stage.env.linked(stage.env.builder().retry_policy(policy)).await;
    let ours = stage.semaphore(&client, 2);
    let theirs = stage.semaphore(&stage.client().await, 2);
    let lost = within("both permits", ours.acquire_many(2, SOON)).await.unwrap();
    let next = spawn(&theirs, 2);
    stage.env.wait_no_room().await;
    stage.env.expire(&client, &link).await;
    let next = within("both permits", next).await.unwrap().unwrap();
    within("the loss", lost.lost()).await;
    drop(lost);
    assert_eq!(theirs.available_permits().await.unwrap(), 0);
    assert!(next.is_held());
    next.release().await.unwrap();
    drop(ours);
    // It may give up its session as well.
    drop(client.close().await);
}

/// Many tasks share one handle, and each returns what it has acquired itself: in Curator a release could
/// forget the lease of the next acquire.
async fn release_beside_acquire(stage: &Stage<'_>) {
    let semaphore = stage.semaphore(&stage.client().await, 1);
    let room = Arc::new(Room::of(1));
    let mut tasks = JoinSet::new();
    for task in 0..4 {
        let (semaphore, room) = (semaphore.clone(), Arc::clone(&room));
        tasks.spawn(async move {
            for _ in 0..8 {
                let permit = semaphore.acquire(SOON).await.unwrap();
                room.visit_while(&permit, tokio::task::yield_now()).await;
                // Some wait for it, some do not.
                if task % 2 == 0 {
                    permit.release().await.unwrap();
                } else {
                    drop(permit);
                }
            }
        });
    }
    while let Some(done) = within("all of them", tasks.join_next()).await {
        done.unwrap();
    }
    assert_eq!(room.visits(), 32);
}

/// Both directories and the one above them go whenever they are empty, as containers do, between any two
/// requests: no acquire fails for it.
async fn directories_that_go_meanwhile(stage: &Stage<'_>) {
    let mut clients = JoinSet::new();
    for _ in 0..2 {
        let semaphore = stage.semaphore(&stage.client().await, 2);
        clients.spawn(async move {
            for n in [1, 2, 1, 1, 2, 1, 2, 2] {
                let permit = semaphore.acquire_many(n, SOON).await.unwrap();
                permit.release().await.unwrap();
            }
        });
    }
    let outsider = stage.env.outsider().await;
    let mut deleted = 0;
    while !clients.is_empty() {
        let sweep = async {
            for directory in [stage.env.locks(), stage.env.leases(), stage.env.lock_path()] {
                match outsider.delete(&directory, None).await {
                    Ok(()) => deleted += 1,
                    Err(zk::Error::NoNode | zk::Error::NotEmpty) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        };
        tokio::select! {
            biased;
            done = clients.join_next() => done.unwrap().unwrap(),
            () = sweep => {}
        }
    }
    assert!(deleted > 0);
}

/// Curator's throws NoNode.
async fn participants_without_a_directory(stage: &Stage<'_>) {
    let semaphore = stage.semaphore(&stage.client().await, 3);
    assert_eq!(semaphore.participants().await.unwrap(), [""; 0]);
    assert_eq!((semaphore.limit().await.unwrap(), semaphore.available_permits().await.unwrap()), (3, 3));
    assert!(stage.env.stat(&stage.env.lock_path()).await.is_none());
}
