//! At most one holds the lock, and every waiter gets it.

use test_support::prelude::*;

use crate::harness::{Behaviour, CriticalSection, Env, behaviours};

pub(crate) fn all() -> Vec<Behaviour> {
    behaviours![
        tasks_of_client_lose_no_increment
            .curator("testReentrantSingleLock")
            .with_faults()
            .also_on_ensemble(),
        tasks_of_clients_lose_no_increment
            .with_faults()
            .also_on_ensemble(),
        locks_of_different_paths_are_independent.with_faults(),
    ]
}

/// Lets every task visit the critical section `rounds` times under one of the locks.
pub(crate) async fn visit(env: &Env, mutexes: Vec<InterProcessMutex>, tasks: usize, rounds: u64) {
    let critical = Arc::new(CriticalSection::default());
    let mut working = JoinSet::new();
    for (task, mutex) in mutexes.iter().cycle().take(tasks).cloned().enumerate() {
        let critical = Arc::clone(&critical);
        working.spawn(async move {
            for round in 0..rounds {
                let guard = mutex.lock().await.unwrap();
                critical.visit().await;
                assert!(guard.is_held());
                // The tasks use both ways to release the lock.
                if (task as u64 + round) % 2 == 0 {
                    guard.release().await.unwrap();
                } else {
                    drop(guard);
                }
            }
        });
    }
    all_done("every visit", working).await;
    assert_eq!(
        critical.visits(),
        tasks as u64 * rounds,
        "increments are lost"
    );
    drop(mutexes);
    env.wait_count(&env.lock_path(), 0).await;
}

async fn tasks_of_client_lose_no_increment(env: &Env) {
    visit(env, vec![env.mutex().await], 8, 15).await;
}

async fn tasks_of_clients_lose_no_increment(env: &Env) {
    let mut mutexes = Vec::new();
    for _ in 0..4 {
        mutexes.push(env.mutex().await);
    }
    visit(env, mutexes, 8, 15).await;
}

async fn locks_of_different_paths_are_independent(env: &Env) {
    let client = env.client().await;
    let mut guards = Vec::new();
    for number in 0..20 {
        let mutex = InterProcessMutex::new(&client, env.path(&format!("lock-{number}"))).unwrap();
        guards.push(within("a free lock", mutex.lock()).await.unwrap());
    }
    // The name of a nested directory may look like that of a contender, which changes nothing below
    // it.
    let nested = InterProcessMutex::new(&client, env.path("lock-3/below")).unwrap();
    guards.push(within("a free lock", nested.lock()).await.unwrap());
    for guard in guards {
        assert!(guard.is_held());
        within("the release", guard.release()).await.unwrap();
    }
}
