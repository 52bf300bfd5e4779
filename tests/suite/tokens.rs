//! Fencing tokens rise, whatever happens to the directory.

use test_support::within;
use zookeeper_recipes::{FencingToken, InterProcessMutex};

use crate::harness::{Behaviour, Env, behaviours};

pub(crate) fn all() -> Vec<Behaviour> {
    behaviours![
        tokens_rise_over_grants_and_clients
            .with_faults()
            .also_on_ensemble(),
        tokens_are_zxids_of_nodes,
    ]
}

async fn grant(mutex: &InterProcessMutex) -> FencingToken {
    let guard = within("a free lock", mutex.lock()).await.unwrap();
    let token = guard.fencing_token();
    guard.release().await.unwrap();
    token
}

// Shows: token-order
async fn tokens_rise_over_grants_and_clients(env: &Env) {
    let mutexes = [env.mutex().await, env.mutex().await];
    let mut last = FencingToken::from_parts(0, 0);
    for turn in 0..10 {
        let token = grant(&mutexes[turn % 2]).await;
        assert!(token > last, "{token} after {last}");
        last = token;
    }
    // The tokens are in order even if the contenders queued in the opposite order.
    let guard = mutexes[0].lock().await.unwrap();
    let waiter = tokio::spawn(mutexes[1].lock());
    env.wait_children(&env.lock_path(), "a waiter", |now| now.len() >= 2)
        .await;
    let token = guard.fencing_token();
    drop(guard);
    let next = within("the second in line", waiter).await.unwrap().unwrap();
    assert!(token > last && next.fencing_token() > token);
}

// Shows: fencing-token
async fn tokens_are_zxids_of_nodes(env: &Env) {
    let mutex = env.mutex().await;
    let guard = mutex.lock().await.unwrap();
    let stat = env.stat(&guard.node()).await.unwrap();
    assert_eq!(
        (
            guard.fencing_token().zxid(),
            guard.fencing_token().counter()
        ),
        (stat.czxid, 0)
    );
    guard.release().await.unwrap();
}
