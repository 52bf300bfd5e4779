//! Callers of one client that share a node, by a hand-off in memory or as readers.

use test_support::prelude::*;

use crate::excluding::visit;
use crate::harness::{Behaviour, Env, SharedSection, behaviours};

/// The time is longer than any of these behaviours.
const LONG: Duration = Duration::from_secs(3600);

pub(crate) fn all() -> Vec<Behaviour> {
    behaviours![
        hand_overs_lose_no_increment
            .with_faults()
            .also_on_ensemble(),
        other_client_gets_its_turn,
        readers_that_share_exclude_writers
            .with_faults()
            .also_on_ensemble(),
    ]
}

fn handing_over(client: &Client, env: &Env) -> InterProcessMutex {
    InterProcessMutex::builder(client, env.lock_path())
        .hand_off(5, LONG)
        .build()
        .unwrap()
}

fn sharing(client: &Client, env: &Env) -> InterProcessReadWriteLock {
    InterProcessReadWriteLock::builder(client, env.lock_path())
        .hand_off(5, LONG)
        .build()
        .unwrap()
}

/// Returns three handles of each of two clients that share a node, and one of a third client that
/// shares nothing.
async fn mutexes(
    env: &Env,
    build: fn(&Client, &Env) -> InterProcessMutex,
) -> Vec<InterProcessMutex> {
    let mut mutexes = vec![env.mutex().await];
    for _ in 0..2 {
        let mutex = build(&env.client().await, env);
        mutexes.extend([mutex.clone(), mutex.clone(), mutex]);
    }
    mutexes
}

async fn hand_overs_lose_no_increment(env: &Env) {
    visit(env, mutexes(env, handing_over).await, 7, 10).await;
}

async fn other_client_gets_its_turn(env: &Env) {
    let client = env.client().await;
    let (ours, theirs) = (handing_over(&client, env), env.mutex().await);
    let guard = within("the lock", ours.lock()).await.unwrap();
    let node = guard.node();
    let refused = within("an answer", theirs.try_lock()).await.unwrap_err();
    assert!(
        matches!(refused, TryLockError::WouldBlock { .. }),
        "{refused}"
    );
    let waiter = tokio::spawn(theirs.lock());
    env.wait_count(&env.lock_path(), 2).await;
    let mut waiting: Vec<_> = (0..10).map(|_| task::spawn(ours.lock())).collect();
    for waiting in &mut waiting {
        assert_pending!(waiting.poll());
    }
    let mut waiting = waiting.into_iter();
    drop(guard);
    for waiting in waiting.by_ref().take(4) {
        let guard = within("a hand-over", waiting).await.unwrap();
        assert_eq!(guard.node(), node);
    }
    let guard = within("the other's turn", waiter).await.unwrap().unwrap();
    assert!(guard.is_held() && !ours.is_acquired_in_this_process());
    guard.release().await.unwrap();
    for waiting in waiting {
        let guard = within("the rest", waiting).await.unwrap();
        assert_ne!(guard.node(), node);
    }
    env.wait_count(&env.lock_path(), 0).await;
}

async fn readers_that_share_exclude_writers(env: &Env) {
    let locks = [
        sharing(&env.client().await, env),
        sharing(&env.client().await, env),
    ];
    let library = Arc::new(SharedSection::default());
    let mut working = JoinSet::new();
    for (number, lock) in locks.iter().cycle().take(8).cloned().enumerate() {
        let library = Arc::clone(&library);
        working.spawn(async move {
            for round in 0..15 {
                if (number + round) % 8 == 0 {
                    let guard = lock.write_lock().lock().await.unwrap();
                    library.write_while(&guard, tokio::task::yield_now()).await;
                    assert!(guard.is_held());
                } else {
                    let guard = lock.read_lock().lock().await.unwrap();
                    library.read_while(&guard, tokio::task::yield_now()).await;
                    assert!(guard.is_held());
                }
            }
        });
    }
    all_done("every visit", working).await;
    drop(locks);
    env.wait_count(&env.lock_path(), 0).await;
}
