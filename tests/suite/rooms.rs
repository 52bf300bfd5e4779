//! Callers of one client that share a node: handed over in memory, kept while nobody else wants the lock, shared by
//! readers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use test_support::in_process::tried;
use test_support::within;
use tokio::task::JoinSet;
use tokio_test::{assert_pending, task};
use zookeeper_recipes::{Client, InterProcessMutex, InterProcessReadWriteLock, ReadGuard, TryLockError};

use crate::harness::{Behaviour, CriticalSection, Env, Need, behaviours};

/// Longer than any of these behaviours.
const LONG: Duration = Duration::from_secs(3600);

pub(crate) fn all() -> Vec<Behaviour> {
    behaviours![
        tasks_that_hand_over_lose_no_increment.whatever_breaks().on_an_ensemble_too(),
        another_client_comes_in_between,
        what_a_session_held_is_not_handed_over.needs(Need::OwnServers),
        clients_that_keep_the_lock_lose_no_increment.whatever_breaks().on_an_ensemble_too(),
        another_client_gets_a_kept_lock.on_an_ensemble_too(),
        a_try_of_another_client_gets_a_kept_lock.on_an_ensemble_too(),
        readers_that_share_exclude_writers.whatever_breaks().on_an_ensemble_too(),
        a_writer_of_another_client_gets_a_kept_lock.on_an_ensemble_too(),
    ]
}

fn handing_over(client: &Client, env: &Env) -> InterProcessMutex {
    InterProcessMutex::builder(client, env.lock_path()).hand_off(5, LONG).build().unwrap()
}

fn keeping(client: &Client, env: &Env) -> InterProcessMutex {
    InterProcessMutex::builder(client, env.lock_path()).sticky(LONG).build().unwrap()
}

fn sharing(client: &Client, env: &Env) -> InterProcessReadWriteLock {
    InterProcessReadWriteLock::builder(client, env.lock_path()).sticky(LONG).build().unwrap()
}

/// The lock, kept by this client. Returns its node.
async fn kept(lock: &InterProcessMutex) -> String {
    let guard = within("the lock", lock.lock()).await.unwrap();
    let node = guard.node().to_string();
    guard.release().await.unwrap();
    assert_eq!(lock.participants().await.unwrap(), [node.as_str()]);
    node
}

/// Tasks of two clients that each share a node visit the critical section, beside a third that shares nothing.
async fn visit(env: &Env, build: fn(&Client, &Env) -> InterProcessMutex) {
    let mut mutexes = vec![env.mutex().await];
    for _ in 0..2 {
        let mutex = build(&env.client().await, env);
        mutexes.extend([mutex.clone(), mutex.clone(), mutex]);
    }
    let critical = Arc::new(CriticalSection::default());
    let mut working = JoinSet::new();
    for (number, mutex) in mutexes.iter().cloned().enumerate() {
        let critical = Arc::clone(&critical);
        working.spawn(async move {
            for round in 0..10 {
                let guard = mutex.lock().await.unwrap();
                critical.visit().await;
                assert!(guard.is_held());
                // Both ways to give it back.
                if (number + round) % 2 == 0 {
                    guard.release().await.unwrap();
                } else {
                    drop(guard);
                }
            }
        });
    }
    let done = async {
        while let Some(done) = working.join_next().await {
            done.unwrap();
        }
    };
    within("every visit", done).await;
    assert_eq!(critical.visits(), 70, "increments are lost");
    drop(mutexes);
    env.wait_count(&env.lock_path(), 0).await;
}

async fn tasks_that_hand_over_lose_no_increment(env: &Env) {
    visit(env, handing_over).await;
}

async fn clients_that_keep_the_lock_lose_no_increment(env: &Env) {
    visit(env, keeping).await;
}

/// However many tasks of a client wait, another client has its turn after so many hand-overs.
// Shows: hand-off
async fn another_client_comes_in_between(env: &Env) {
    let client = env.client().await;
    let (ours, theirs) = (handing_over(&client, env), env.mutex().await);
    let guard = within("the lock", ours.lock()).await.unwrap();
    let node = guard.node();
    let refused = within("an answer", theirs.try_lock()).await.unwrap_err();
    assert!(matches!(refused, TryLockError::WouldBlock { .. }), "{refused}");
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

/// Those that wait are served in the next session.
async fn what_a_session_held_is_not_handed_over(env: &Env) {
    let (client, link) = env.linked(env.builder()).await;
    let lock = handing_over(&client, env);
    let guard = within("the lock", lock.lock()).await.unwrap();
    let waiter = tokio::spawn(lock.lock());
    env.expire(&client, &link).await;
    let next = within("the waiter", waiter).await.unwrap().unwrap();
    assert!(!guard.is_held() && next.is_held());
    assert!(next.node() != guard.node() && next.fencing_token() > guard.fencing_token());
    drop(guard);
    assert!(next.is_held());
    next.release().await.unwrap();
    env.wait_count(&env.lock_path(), 0).await;
}

/// While it is kept and while it is held.
async fn another_client_gets_a_kept_lock(env: &Env) {
    let (ours, theirs) = (keeping(&env.client().await, env), env.mutex().await);
    kept(&ours).await;
    within("the kept lock", theirs.lock()).await.unwrap().release().await.unwrap();
    kept(&ours).await;
    let guard = within("the kept lock", ours.lock()).await.unwrap();
    let waiter = tokio::spawn(theirs.lock());
    env.wait_count(&env.lock_path(), 2).await;
    assert!(guard.is_held() && !waiter.is_finished());
    drop(guard);
    let guard = within("the second in line", waiter).await.unwrap().unwrap();
    assert!(!ours.is_acquired_in_this_process());
    guard.release().await.unwrap();
}

async fn a_try_of_another_client_gets_a_kept_lock(env: &Env) {
    let (ours, theirs) = (keeping(&env.client().await, env), env.mutex().await);
    kept(&ours).await;
    tried(|| theirs.try_lock()).await.release().await.unwrap();
    kept(&ours).await;
    let guard = within("the kept lock", ours.lock()).await.unwrap();
    let refused = within("an answer", theirs.try_lock()).await.unwrap_err();
    assert!(matches!(refused, TryLockError::WouldBlock { .. }), "{refused}");
    assert!(guard.is_held());
    drop(guard);
    env.wait_count(&env.lock_path(), 0).await;
}

/// Counts those that are inside.
#[derive(Debug, Default)]
struct Inside {
    readers: AtomicUsize,
    writers: AtomicUsize,
}

impl Inside {
    async fn read(&self) {
        self.readers.fetch_add(1, Ordering::SeqCst);
        tokio::task::yield_now().await;
        assert_eq!(self.writers.load(Ordering::SeqCst), 0, "a reader beside a writer");
        self.readers.fetch_sub(1, Ordering::SeqCst);
    }

    async fn write(&self) {
        assert_eq!(self.writers.fetch_add(1, Ordering::SeqCst), 0, "two writers");
        tokio::task::yield_now().await;
        assert_eq!(self.readers.load(Ordering::SeqCst), 0, "a writer beside a reader");
        self.writers.fetch_sub(1, Ordering::SeqCst);
    }
}

async fn readers_that_share_exclude_writers(env: &Env) {
    let locks = [sharing(&env.client().await, env), sharing(&env.client().await, env)];
    let inside = Arc::new(Inside::default());
    let mut working = JoinSet::new();
    for (number, lock) in locks.iter().cycle().take(8).cloned().enumerate() {
        let inside = Arc::clone(&inside);
        working.spawn(async move {
            for round in 0..15 {
                if (number + round) % 8 == 0 {
                    let guard = lock.write_lock().lock().await.unwrap();
                    inside.write().await;
                    assert!(guard.is_held());
                } else {
                    let guard = lock.read_lock().lock().await.unwrap();
                    inside.read().await;
                    assert!(guard.is_held());
                }
            }
        });
    }
    let done = async {
        while let Some(done) = working.join_next().await {
            done.unwrap();
        }
    };
    within("every visit", done).await;
    drop(locks);
    env.wait_count(&env.lock_path(), 0).await;
}

/// A reader of a node that is shared.
async fn reader(lock: &InterProcessReadWriteLock) -> ReadGuard {
    let guard = within("the lock", lock.read_lock().lock()).await.unwrap();
    let beside = within("the shared lock", lock.read_lock().lock()).await.unwrap();
    assert_eq!(beside.node(), guard.node());
    guard
}

async fn a_writer_of_another_client_gets_a_kept_lock(env: &Env) {
    let (ours, theirs) = (env.client().await, env.client().await);
    let ours = sharing(&ours, env);
    let theirs = InterProcessReadWriteLock::new(&theirs, env.lock_path()).unwrap();
    drop(reader(&ours).await);
    within("the kept lock", theirs.write_lock().lock()).await.unwrap().release().await.unwrap();
    drop(reader(&ours).await);
    within("the kept lock", theirs.write_lock().try_lock()).await.unwrap().release().await.unwrap();
    let guard = reader(&ours).await;
    let writer = tokio::spawn(theirs.write_lock().lock());
    env.wait_count(&env.lock_path(), 2).await;
    assert!(guard.is_held() && !writer.is_finished());
    guard.release().await.unwrap();
    within("the writer", writer).await.unwrap().unwrap().release().await.unwrap();
}
