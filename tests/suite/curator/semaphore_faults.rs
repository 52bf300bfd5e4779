//! Faults of Curator's semaphores, and that ours do not have them.

use std::sync::Arc;
use std::time::Duration;

use test_support::{SOON, within};
use tokio::task::{JoinHandle, JoinSet};
use zookeeper_client as zk;
use zookeeper_recipes::{AcquireError, InterProcessSemaphore, RetryPolicy, SemaphorePermit};

use super::stage::{Kind, Stage, ported};
use crate::harness::{Behaviour, Room};

pub(crate) fn all() -> Vec<Behaviour> {
    ported![Kind::Semaphore;
        deadlock_by_quantity.on_an_ensemble_too(),
        permits_of_a_lost_session_without_retries = "CURATOR-595".on_an_ensemble_too(),
        directories_that_go_meanwhile = "CURATOR-180".on_an_ensemble_too(),
        participants_without_a_directory,
    ]
}

fn spawn(semaphore: &InterProcessSemaphore, n: u32) -> JoinHandle<Result<SemaphorePermit, AcquireError>> {
    tokio::spawn(semaphore.acquire_many(n, SOON))
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
