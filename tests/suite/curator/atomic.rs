//! TestDistributedAtomicLong and TestCachedAtomicCounter.

use test_support::prelude::*;

use super::stage::{Kind, Stage, ported};
use crate::harness::Behaviour;

pub(crate) fn all() -> Vec<Behaviour> {
    ported![Kind::Mutex;
        test_compare_and_set_fresh_instance =
            "TestDistributedAtomicLong.testCompareAndSetWithFreshInstance",
        test_force_set = "TestDistributedAtomicLong.testForceSet",
        test_simulation = "TestDistributedAtomicLong.testSimulation".also_on_ensemble(),
        test_basic = "TestDistributedAtomicLong.testBasic",
    ]
}

fn counter(stage: &Stage<'_>, client: &Client) -> DistributedAtomicLong {
    // Curator's counter is two directories deep as well.
    DistributedAtomicLong::new(client, stage.env.path("bar/counter")).unwrap()
}

/// A comparison treats a missing counter as 0. Curator's fails, so its loops of `get` and
/// `compareAndSet` do not end on a new counter.
async fn test_compare_and_set_fresh_instance(stage: &Stage<'_>) {
    let counter = counter(stage, &stage.client().await);
    assert!(
        !within("the answer", counter.compare_and_set(1, 2))
            .await
            .unwrap()
    );
    assert!(stage.env.stat(counter.path()).await.is_none());
    assert!(within("the answer", counter.initialize(0)).await.unwrap());
    assert!(
        within("the answer", counter.compare_and_set(0, 1))
            .await
            .unwrap()
    );
    assert!(!within("the answer", counter.initialize(0)).await.unwrap());
    stage.env.delete(counter.path()).await;
    assert!(
        within("the answer", counter.compare_and_set(0, 1))
            .await
            .unwrap()
    );
}

/// Some callers set the counter to 0 while others count. Curator's test looks once, at an arbitrary
/// moment.
async fn test_force_set(stage: &Stage<'_>) {
    let counter = counter(stage, &stage.client().await);
    let counts = tokio::spawn({
        let counter = counter.clone();
        async move {
            let mut last = 0;
            for _ in 0..100 {
                let value = counter.increment().await.unwrap();
                assert!(
                    value == last + 1 || value == 1,
                    "{value} after {last}: neither counted on nor set"
                );
                last = value;
            }
        }
    });
    let sets = tokio::spawn({
        let counter = counter.clone();
        async move {
            for _ in 0..100 {
                counter.set(0).await.unwrap();
            }
        }
    });
    within("the count", counts).await.unwrap();
    within("the sets", sets).await.unwrap();
    within("the last set", counter.set(0)).await.unwrap();
    assert_eq!(within("the value", counter.get()).await.unwrap(), 0);
}

/// Twenty processes count. Curator's test expects rising numbers; here every number also occurs
/// once.
// Shows: counter-tries
async fn test_simulation(stage: &Stage<'_>) {
    const PROCESSES: usize = 20;
    const TIMES: usize = 20;
    let mut processes = JoinSet::new();
    for _ in 0..PROCESSES {
        let counter = counter(stage, &stage.client().await);
        processes.spawn(async move {
            let mut values = Vec::new();
            for _ in 0..TIMES {
                values.push(loop {
                    match counter.increment().await {
                        Ok(value) => break value,
                        // A client of a member that lags behind may come too late every time while
                        // others count.
                        Err(AtomicLongError::Contended { .. }) => {}
                        Err(error) => panic!("{error}"),
                    }
                });
            }
            values
        });
    }
    let mut all = Vec::new();
    for values in within("all", processes.join_all()).await {
        assert!(values.is_sorted(), "{values:?}");
        all.extend(values);
    }
    all.sort_unstable();
    let total = i64::try_from(PROCESSES * TIMES).unwrap();
    assert_eq!(all, (1..=total).collect::<Vec<i64>>());
}

async fn test_basic(stage: &Stage<'_>) {
    let counter = counter(stage, &stage.client().await);
    assert_eq!(within("the sum", counter.increment()).await.unwrap(), 1);
    assert_eq!(within("the sum", counter.decrement()).await.unwrap(), 0);
    assert_eq!(within("the sum", counter.add(10)).await.unwrap(), 10);
    assert_eq!(within("the sum", counter.subtract(5)).await.unwrap(), 5);
    assert_eq!(within("the value", counter.get()).await.unwrap(), 5);
    // Each write succeeded at the first try.
    assert_eq!(stage.env.stat(counter.path()).await.unwrap().version, 4);
}
