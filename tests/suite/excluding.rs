//! At most one holds the lock, and every waiter gets it.

use std::sync::Arc;
use std::time::Duration;

use test_support::{SOON, within};
use tokio::task::JoinSet;
use tokio_test::{assert_pending, task};
use zookeeper_recipes::{AcquireError, Contention, InterProcessLock, InterProcessMutex};

use crate::harness::{Behaviour, CriticalSection, Env, Need, behaviours};

pub(crate) fn all() -> Vec<Behaviour> {
    behaviours![
        two_clients_exclude_each_other.curator("test2Clients").whatever_breaks().on_an_ensemble_too(),
        a_holder_keeps_others_out_until_it_releases.curator("testLocker"),
        tasks_of_one_client_lose_no_increment
            .curator("testReentrantSingleLock")
            .whatever_breaks()
            .on_an_ensemble_too(),
        tasks_of_several_clients_lose_no_increment.whatever_breaks().on_an_ensemble_too(),
        tasks_behind_one_node_lose_no_increment.whatever_breaks(),
        holding_and_trying_lose_no_increment.whatever_breaks(),
        all_that_stay_are_served.whatever_breaks().on_an_ensemble_too(),
        asking_again_while_holding_waits_for_oneself,
        locks_of_different_paths_are_independent.whatever_breaks(),
        a_short_interruption_costs_no_lock.needs(Need::CountRequests),
        any_lock_will_do_where_it_is_a_trait_object,
    ]
}

async fn two_clients_exclude_each_other(env: &Env) {
    let (mut ours, mut theirs) = (env.mutex().await, env.mutex().await);
    for _ in 0..6 {
        let guard = within("a free lock", ours.lock()).await.unwrap();
        assert!(ours.is_acquired_in_this_process() && !theirs.is_acquired_in_this_process());
        let waiter = tokio::spawn(theirs.lock());
        env.wait_children(&env.lock_path(), "a second contender", |now| now.len() >= 2).await;
        assert!(!waiter.is_finished());
        guard.release().await.unwrap();
        let guard = within("the second in line", waiter).await.unwrap().unwrap();
        assert!(theirs.is_acquired_in_this_process() && !ours.is_acquired_in_this_process());
        guard.release().await.unwrap();
        std::mem::swap(&mut ours, &mut theirs);
    }
}

async fn a_holder_keeps_others_out_until_it_releases(env: &Env) {
    let (ours, theirs) = (env.mutex().await, env.mutex().await);
    let guard = ours.lock().await.unwrap();
    let waiter = tokio::spawn(theirs.acquire(SOON));
    // It has looked at the queue.
    env.wait_watchers(&guard.node(), 1).await;
    let refused = theirs.acquire(Duration::ZERO).await.unwrap_err();
    assert!(matches!(refused, AcquireError::TimedOut { .. }), "{refused}");
    assert!(guard.is_held() && !waiter.is_finished());
    guard.release().await.unwrap();
    within("a free lock", waiter).await.unwrap().unwrap().release().await.unwrap();
    assert!(env.children(&env.lock_path()).await.is_empty());
}

/// Every task visits the critical section `rounds` times under one of the locks.
async fn visit(env: &Env, mutexes: &[InterProcessMutex], tasks: usize, rounds: u64) {
    let critical = Arc::new(CriticalSection::default());
    let mut working = JoinSet::new();
    for (task, mutex) in mutexes.iter().cycle().take(tasks).cloned().enumerate() {
        let critical = Arc::clone(&critical);
        working.spawn(async move {
            for round in 0..rounds {
                let guard = mutex.lock().await.unwrap();
                critical.visit().await;
                assert!(guard.is_held());
                // Both ways to give it back.
                if (task as u64 + round) % 2 == 0 {
                    guard.release().await.unwrap();
                } else {
                    drop(guard);
                }
            }
        });
    }
    within("every visit", async {
        while let Some(done) = working.join_next().await {
            done.unwrap();
        }
    })
    .await;
    assert_eq!(critical.visits(), tasks as u64 * rounds, "increments are lost");
    env.wait_count(&env.lock_path(), 0).await;
}

async fn tasks_of_one_client_lose_no_increment(env: &Env) {
    visit(env, &[env.mutex().await], 8, 15).await;
}

async fn tasks_of_several_clients_lose_no_increment(env: &Env) {
    let mut mutexes = Vec::new();
    for _ in 0..4 {
        mutexes.push(env.mutex().await);
    }
    visit(env, &mutexes, 8, 15).await;
}

async fn tasks_behind_one_node_lose_no_increment(env: &Env) {
    let mut mutexes = Vec::new();
    for holders in [1, 2] {
        let client = env.client().await;
        mutexes.push(
            InterProcessMutex::builder(&client, env.lock_path()).hand_off(holders, SOON).build().unwrap(),
        );
    }
    visit(env, &mutexes, 12, 8).await;
}

async fn holding_and_trying_lose_no_increment(env: &Env) {
    let mutexes = [env.mutex().await, env.mutex().await];
    let critical = Arc::new(CriticalSection::default());
    let mut working = JoinSet::new();
    for (task, mutex) in mutexes.iter().cycle().take(6).cloned().enumerate() {
        let critical = Arc::clone(&critical);
        working.spawn(async move {
            let mut visits = 0;
            while visits < 6 {
                let guard = match task % 3 {
                    0 => mutex.try_lock().await.ok(),
                    1 => mutex.acquire(Duration::from_millis(20)).await.ok(),
                    _ => Some(mutex.lock().await.unwrap()),
                };
                if let Some(guard) = guard {
                    critical.visit().await;
                    visits += 1;
                    drop(guard);
                }
                tokio::task::yield_now().await;
            }
        });
    }
    within("every visit", async {
        while let Some(done) = working.join_next().await {
            done.unwrap();
        }
    })
    .await;
    assert_eq!(critical.visits(), 36, "increments are lost");
    env.wait_count(&env.lock_path(), 0).await;
}

async fn all_that_stay_are_served(env: &Env) {
    let mutexes = [env.mutex().await, env.mutex().await, env.mutex().await];
    let guard = mutexes[0].lock().await.unwrap();
    let mut staying = JoinSet::new();
    let mut leaving = Vec::new();
    for (number, mutex) in mutexes.iter().cycle().take(30).cloned().enumerate() {
        if number % 3 == 2 {
            leaving.push(tokio::spawn(async move { mutex.lock().await.map(drop) }));
        } else {
            staying.spawn(async move { mutex.lock().await.map(drop) });
        }
    }
    env.wait_children(&env.lock_path(), "all clients", |now| now.len() >= 3).await;
    // From the middle of those that wait, while they move on.
    drop(guard);
    for waiter in &leaving {
        waiter.abort();
    }
    within("all of them", async {
        while let Some(served) = staying.join_next().await {
            served.unwrap().unwrap();
        }
    })
    .await;
    env.wait_count(&env.lock_path(), 0).await;
}

async fn asking_again_while_holding_waits_for_oneself(env: &Env) {
    let mutex = env.mutex().await;
    let guard = mutex.lock().await.unwrap();
    let mut waiter = task::spawn(mutex.lock());
    assert_pending!(waiter.poll());
    let again = mutex.acquire(Duration::ZERO).await.unwrap_err();
    assert!(
        matches!(again, AcquireError::TimedOut { contention: Contention { holder: Some(_), .. }, .. }),
        "{again}"
    );
    assert!(guard.is_held());
    assert_pending!(waiter.poll());
    guard.release().await.unwrap();
    within("a free lock", waiter).await.unwrap().release().await.unwrap();
}

async fn locks_of_different_paths_are_independent(env: &Env) {
    let client = env.client().await;
    let mut guards = Vec::new();
    for number in 0..20 {
        let mutex = InterProcessMutex::new(&client, env.path(&format!("lock-{number}"))).unwrap();
        guards.push(within("a free lock", mutex.lock()).await.unwrap());
    }
    // One of them may be named like a contender of another: that changes nothing below it.
    let nested = InterProcessMutex::new(&client, env.path("lock-3/below")).unwrap();
    guards.push(within("a free lock", nested.lock()).await.unwrap());
    for guard in guards {
        assert!(guard.is_held());
        within("the release", guard.release()).await.unwrap();
    }
}

async fn a_short_interruption_costs_no_lock(env: &Env) {
    let (ours, theirs) = (env.client().await, env.mutex().await);
    let mutex = InterProcessMutex::new(&ours, env.lock_path()).unwrap();
    let guard = mutex.lock().await.unwrap();
    let waiter = tokio::spawn(theirs.lock());
    env.wait_count(&env.lock_path(), 2).await;
    let session = ours.session_id().unwrap();
    for how in [zookeeper_test_server::Cut::Fin, zookeeper_test_server::Cut::Reset] {
        let connected = move |view: zookeeper_test_server::View<'_>| {
            view.sessions().iter().any(|known| known.id == session && known.connected)
        };
        assert!(env.server().wait_until(connected, SOON).await);
        assert!(env.server().cut(session, how));
        // What is sent meanwhile is answered after the reconnect.
        let participants = within("an answer", mutex.participants()).await.unwrap();
        assert_eq!(participants[0], guard.node());
        assert_eq!(participants.len(), 2);
    }
    assert!(guard.is_held() && !waiter.is_finished());
    assert_eq!(ours.session_id(), Some(session));
    guard.release().await.unwrap();
    within("the second in line", waiter).await.unwrap().unwrap().release().await.unwrap();
}

async fn any_lock_will_do_where_it_is_a_trait_object(env: &Env) {
    let path = env.lock_path();
    let lock: Box<dyn InterProcessLock> = Box::new(env.mutex().await);
    assert_eq!(lock.path(), path);
    let guard = lock.acquire(Duration::from_secs(10)).await.unwrap();
    assert!(lock.is_acquired_in_this_process());
    assert_eq!(lock.participants().await.unwrap(), [guard.node()]);
    assert!(lock.try_lock().await.is_err());
    guard.release().await.unwrap();
    lock.lock().await.unwrap().release().await.unwrap();
    lock.try_lock().await.unwrap().release().await.unwrap();
    let soon = std::time::Instant::now() + Duration::from_secs(10);
    lock.acquire_until(soon).await.unwrap().release().await.unwrap();
    assert!(!lock.is_acquired_in_this_process());
}
