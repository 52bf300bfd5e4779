//! Counters: each number is unique and each sum complete, in Curator's layout.

use std::collections::BTreeSet;

use test_support::prelude::*;

use crate::harness::{Behaviour, Env, NO_CONTAINERS, NO_EXPIRY, Need, behaviours};

pub(crate) fn all() -> Vec<Behaviour> {
    behaviours![
        every_number_is_handed_out_once
            .with_faults()
            .also_on_ensemble(),
        additions_sum_up.with_faults().also_on_ensemble(),
        numbers_go_on_over_sessions.not_on_keeper(NO_EXPIRY),
        numbers_go_on_over_an_election
            .needs(Need::OwnServers)
            .only_on_ensemble(),
        numbers_go_on_over_a_restart.needs(Need::OwnServers),
        counter_is_not_swept_away
            .needs(Need::OwnServers)
            .not_on_keeper(NO_CONTAINERS),
        node_is_curators,
        only_one_comparison_succeeds,
        only_one_initialization_succeeds,
    ]
}

fn counter(env: &Env, client: &Client) -> DistributedAtomicLong {
    DistributedAtomicLong::new(client, env.path("counter")).unwrap()
}

// Shows: counter-ids
async fn every_number_is_handed_out_once(env: &Env) {
    let mut tasks = JoinSet::new();
    for _ in 0..3 {
        let counter = counter(env, &env.client().await);
        let ids = Arc::new(counter.cached(4).unwrap());
        for task in 0..4 {
            let (counter, ids) = (counter.clone(), Arc::clone(&ids));
            tasks.spawn(async move {
                let mut numbers = Vec::new();
                for _ in 0..12 {
                    // `Contended` is a valid result too if connections keep breaking.
                    let number = if task % 2 == 0 {
                        counter.next_id().await
                    } else {
                        ids.next_id().await
                    };
                    match number {
                        Ok(number) => numbers.push(number),
                        Err(error) => assert!(error.is_retryable(), "{error}"),
                    }
                }
                numbers
            });
        }
    }
    let all: Vec<i64> = within("all numbers", tasks.join_all())
        .await
        .into_iter()
        .flatten()
        .collect();
    let distinct: BTreeSet<i64> = all.iter().copied().collect();
    assert_eq!(distinct.len(), all.len(), "{all:?}");
    let value = within("the value", counter(env, &env.client().await).get())
        .await
        .unwrap();
    assert!(
        distinct.iter().all(|number| (1..=value).contains(number)),
        "{value}: {all:?}"
    );
}

// Shows: counter-writes
async fn additions_sum_up(env: &Env) {
    let mut tasks = JoinSet::new();
    for delta in [1, 10, -3] {
        let counter = counter(env, &env.client().await);
        tasks.spawn(async move {
            let (mut sure, mut doubtful) = (0, Vec::new());
            for _ in 0..15 {
                match counter.add(delta).await {
                    Ok(_) => sure += delta,
                    Err(AtomicLongError::Unknown { .. }) => doubtful.push(delta),
                    Err(error) => assert!(error.is_retryable(), "{error}"),
                }
            }
            (sure, doubtful)
        });
    }
    let (mut sure, mut doubtful) = (0, Vec::new());
    for (sum, unknown) in within("all sums", tasks.join_all()).await {
        sure += sum;
        doubtful.extend(unknown);
    }
    let value = within("the value", counter(env, &env.client().await).get())
        .await
        .unwrap();
    let (least, most) = doubtful
        .iter()
        .fold((sure, sure), |(least, most), delta: &i64| {
            (least + delta.min(&0), most + delta.max(&0))
        });
    assert!(
        (least..=most).contains(&value),
        "{value}, not {sure} and some of {doubtful:?}"
    );
}

async fn numbers_go_on_over_sessions(env: &Env) {
    let (client, link) = env.linked(env.builder()).await;
    let counter = counter(env, &client);
    let mut last = 0;
    for _ in 0..2 {
        for _ in 0..3 {
            let number = within("a number", counter.next_id()).await.unwrap();
            assert!(number > last, "{number} after {last}");
            last = number;
        }
        env.expire(&client, &link).await;
    }
    assert!(within("a number", counter.next_id()).await.unwrap() > last);
}

async fn numbers_go_on_over_an_election(env: &Env) {
    let counter = counter(env, &env.client().await);
    let ids = counter.cached(5).unwrap();
    let mut numbers = BTreeSet::new();
    for round in 0..2 {
        for _ in 0..4 {
            assert!(
                numbers.insert(within("a number", counter.next_id()).await.unwrap()),
                "{numbers:?}"
            );
            assert!(
                numbers.insert(within("a number", ids.next_id()).await.unwrap()),
                "{numbers:?}"
            );
        }
        if round == 0 {
            let under_way = tokio::spawn({
                let counter = counter.clone();
                async move { counter.next_id().await }
            });
            env.replace_leader().await;
            assert!(
                numbers.insert(within("a number", under_way).await.unwrap().unwrap()),
                "{numbers:?}"
            );
        }
    }
}

async fn numbers_go_on_over_a_restart(env: &Env) {
    let counter = counter(env, &env.client().await);
    assert_eq!(within("a number", counter.next_id()).await.unwrap(), 1);
    env.stop_servers().await;
    let waiting = tokio::spawn({
        let counter = counter.clone();
        async move { counter.next_id().await }
    });
    env.restart_servers().await;
    let number = within("a number", waiting).await.unwrap().unwrap();
    assert!(number > 1);
    assert!(within("a number", counter.next_id()).await.unwrap() > number);
}

/// The directory of the counter is a container, but the counter is not.
// Shows: counter-layout
async fn counter_is_not_swept_away(env: &Env) {
    let counter = counter(env, &env.client().await);
    assert_eq!(within("a number", counter.next_id()).await.unwrap(), 1);
    // Another node is deleted with its directory, which shows that the servers deleted empty
    // containers.
    let other = env.path("other/below");
    let deleted = DistributedAtomicLong::new(&env.client().await, &other).unwrap();
    within("the other counter", deleted.set(7)).await.unwrap();
    env.delete(&other).await;
    env.sweep(&env.path("other")).await;
    assert_eq!(within("a number", counter.next_id()).await.unwrap(), 2);
}

// Shows: counter-layout
async fn node_is_curators(env: &Env) {
    let counter = counter(env, &env.client().await);
    let path = env.path("counter");
    assert_eq!(within("the value", counter.get()).await.unwrap(), 0);
    assert!(env.stat(&path).await.is_none(), "a look creates nothing");
    for value in [258, -2, i64::MIN] {
        within("the set", counter.set(value)).await.unwrap();
        let (data, stat) = env.get_data(&path).await.unwrap();
        assert_eq!(
            (data, stat.ephemeral_owner),
            (value.to_be_bytes().to_vec(), 0)
        );
    }
    // The number is written as a program in another language writes it.
    env.plain_client()
        .await
        .set_data(&path, &[0, 0, 0, 0, 0, 0, 1, 0], None)
        .await
        .unwrap();
    assert_eq!(within("the sum", counter.add(1)).await.unwrap(), 257);
    env.delete(&path).await;
    assert_eq!(
        within("the sum", counter.add(1)).await.unwrap(),
        1,
        "a missing counter is 0"
    );
}

/// Of six clients that attempt the same with different values one succeeds, and its value is
/// stored.
async fn exactly_one_succeeds<F>(env: &Env, attempt: fn(DistributedAtomicLong, i64) -> F)
where
    F: Future<Output = Result<bool, AtomicLongError>> + Send + 'static,
{
    let mut tasks = JoinSet::new();
    for value in 1..=6 {
        let attempt = attempt(counter(env, &env.client().await), value);
        tasks.spawn(async move { attempt.await.unwrap().then_some(value) });
    }
    let winners: Vec<i64> = within("all", tasks.join_all())
        .await
        .into_iter()
        .flatten()
        .collect();
    let value = within("the value", counter(env, &env.client().await).get())
        .await
        .unwrap();
    assert_eq!(winners, [value]);
}

async fn only_one_comparison_succeeds(env: &Env) {
    exactly_one_succeeds(env, |counter, new| async move {
        counter.compare_and_set(0, new).await
    })
    .await;
}

async fn only_one_initialization_succeeds(env: &Env) {
    exactly_one_succeeds(env, |counter, value| async move {
        counter.initialize(value).await
    })
    .await;
}
