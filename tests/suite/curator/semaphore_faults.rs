//! Faults of Curator's semaphores that this crate's do not have.

use test_support::prelude::*;
use zookeeper_client as zk;

use super::stage::{Kind, Stage, ported};
use crate::harness::{Behaviour, LimitedSection};

pub(crate) fn all() -> Vec<Behaviour> {
    ported![Kind::Semaphore;
        deadlock_by_quantity.also_on_ensemble(),
        vanishing_directories_are_made_again = "CURATOR-180",
    ]
}

/// Curator's semaphore takes permits one by one: two clients that want most of them deadlock, each
/// with a part. Here no caller ever has a part.
async fn deadlock_by_quantity(stage: &Stage<'_>) {
    const ROUNDS: usize = 10;
    let section = Arc::new(LimitedSection::new(4));
    let mut clients = JoinSet::new();
    for _ in 0..2 {
        let (semaphore, section) = (
            stage.semaphore(&stage.client().await, 4),
            Arc::clone(&section),
        );
        clients.spawn(async move {
            for _ in 0..ROUNDS {
                // A deadline would hide a deadlock.
                let permits = semaphore.acquire_many(3, Duration::MAX).await.unwrap();
                section
                    .visit_while(&permits, tokio::task::yield_now())
                    .await;
                permits.release().await.unwrap();
            }
        });
    }
    let leases = stage.env.leases();
    while !clients.is_empty() {
        tokio::select! {
            done = within("both clients", clients.join_next()) => done.unwrap().unwrap(),
            leases = stage.env.children(&leases) => {
                // The three permits are returned one by one: one may still be there when others are
                // taken.
                assert!(leases.len() <= 4, "{leases:?}");
            }
        }
    }
    assert_eq!(section.visits(), 2 * ROUNDS);
}

/// Both directories and their parent vanish whenever they are empty, as containers do, between any
/// two requests: no acquire fails for that reason. (On a lagging member of an ensemble an acquire
/// would fail, because answers take longer there than the directories last.)
async fn vanishing_directories_are_made_again(stage: &Stage<'_>) {
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
    let plain_client = stage.env.plain_client().await;
    let mut deleted = 0;
    while !clients.is_empty() {
        let sweep = async {
            for directory in [stage.env.locks(), stage.env.leases(), stage.env.lock_path()] {
                match plain_client.delete(&directory, None).await {
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
