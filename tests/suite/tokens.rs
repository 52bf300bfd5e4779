//! Fencing tokens rise, whatever happens to the directory.

use test_support::within;
use zookeeper_recipes::{FencingToken, InterProcessMutex};

use crate::harness::{Behaviour, Env, Need, behaviours};

/// The node of the first create belongs to a session that has been replaced.
const MORE_CREATES: &str =
    "on a Keeper without containers the first number may be given to a node that is not used";

pub(crate) fn all() -> Vec<Behaviour> {
    behaviours![
        they_rise_over_grants_and_clients.whatever_breaks().on_an_ensemble_too(),
        they_rise_over_the_removal_of_the_directory.not_on_keeper(MORE_CREATES),
        they_rise_over_an_election.needs(Need::HoldReplies),
        they_are_the_zxid_of_the_node_s_creation,
    ]
}

fn sequence(node: &str) -> u32 {
    node.rsplit_once('-').unwrap().1.parse().unwrap()
}

async fn grant(mutex: &InterProcessMutex) -> FencingToken {
    let guard = within("a free lock", mutex.lock()).await.unwrap();
    let token = guard.fencing_token();
    guard.release().await.unwrap();
    token
}

// Shows: token-order
async fn they_rise_over_grants_and_clients(env: &Env) {
    let mutexes = [env.mutex().await, env.mutex().await];
    let mut last = FencingToken::from_parts(0, 0);
    for turn in 0..10 {
        let token = grant(&mutexes[turn % 2]).await;
        assert!(token > last, "{token} after {last}");
        last = token;
    }
    // Also when they queued in the other order than they looked.
    let guard = mutexes[0].lock().await.unwrap();
    let waiter = tokio::spawn(mutexes[1].lock());
    env.wait_children(&env.lock_path(), "a waiter", |now| now.len() >= 2).await;
    let token = guard.fencing_token();
    drop(guard);
    let next = within("the second in line", waiter).await.unwrap().unwrap();
    assert!(token > last && next.fencing_token() > token);
}

async fn they_rise_over_the_removal_of_the_directory(env: &Env) {
    let (ours, theirs) = (env.mutex().await, env.mutex().await);
    for _ in 0..5 {
        grant(&ours).await;
    }
    let guard = ours.lock().await.unwrap();
    let (token, number) = (guard.fencing_token(), sequence(&guard.node()));
    guard.release().await.unwrap();
    assert_eq!(number, 5);
    env.delete(&env.lock_path()).await;
    let guard = within("a free lock", theirs.lock()).await.unwrap();
    assert_eq!(sequence(&guard.node()), 0, "the numbers begin anew");
    assert!(guard.fencing_token() > token);
    guard.release().await.unwrap();
}

async fn they_rise_over_an_election(env: &Env) {
    let mutex = env.mutex().await;
    let before = grant(&mutex).await;
    env.server().advance_epoch();
    let after = grant(&mutex).await;
    assert!(after > before && after.zxid() >> 32 == (before.zxid() >> 32) + 1);
}

// Shows: fencing-token
async fn they_are_the_zxid_of_the_node_s_creation(env: &Env) {
    let mutex = env.mutex().await;
    let guard = mutex.lock().await.unwrap();
    let stat = env.stat(&guard.node()).await.unwrap();
    assert_eq!((guard.fencing_token().zxid(), guard.fencing_token().counter()), (stat.czxid, 0));
    guard.release().await.unwrap();
}
