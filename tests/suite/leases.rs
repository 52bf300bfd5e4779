//! A lease ends the lock by the clock, and its holder is told first.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use test_support::{SOON, within};
use tokio::task::JoinSet;
use zookeeper_recipes::{
    AcquireError, InterProcessFairLock, InterProcessMutex, InterProcessReadWriteLock, LockGuard, LockState,
    LostReason, ReleaseError,
};

use crate::harness::{Behaviour, Env, behaviours};

/// What a behaviour waits for to pass: the time of a lease is what is shown here.
const LEASE: Duration = Duration::from_millis(200);

/// A lease that is over soon, and not before what is done first is done.
const SHORT: Duration = Duration::from_secs(4);

/// A lease that no behaviour outlasts.
const LONG: Duration = Duration::from_secs(3600);

pub(crate) fn all() -> Vec<Behaviour> {
    behaviours![
        its_holder_is_told_and_then_the_next_is_granted.whatever_breaks().on_an_ensemble_too(),
        a_line_moves_on_by_itself_when_leases_are_over.whatever_breaks().on_an_ensemble_too(),
        one_that_is_extended_goes_on,
        a_release_in_time_leaves_nothing_of_it,
        a_late_release_touches_no_other_node,
        a_converted_lock_keeps_it,
        it_ends_with_its_session_too,
        one_of_zero_is_refused.on_an_ensemble_too(),
    ]
}

async fn its_holder_is_told_and_then_the_next_is_granted(env: &Env) {
    let (ours, theirs) = (env.mutex().await, env.mutex().await);
    for _ in 0..3 {
        let guard = within("a free lock", ours.acquire_with_lease(SOON, LEASE)).await.unwrap();
        assert!(guard.lease_remaining().is_some_and(|left| left <= LEASE));
        let next = within("the next grant", theirs.acquire_with_lease(SOON, LONG)).await.unwrap();
        // No other is granted before: what is asked now has been told.
        assert_eq!(guard.state(), LockState::Lost(LostReason::LeaseOver));
        assert_eq!(within("the loss", guard.lost()).await.reason(), LostReason::LeaseOver);
        assert_eq!(guard.lease_remaining(), Some(Duration::ZERO));
        assert!(next.fencing_token() > guard.fencing_token());
        match within("the answer", guard.release()).await {
            Err(ReleaseError::Lost(lost)) => assert_eq!(lost.reason(), LostReason::LeaseOver),
            other => panic!("{other:?}"),
        }
        assert!(next.is_held() && env.stat(&next.node()).await.is_some());
        within("a release", next.release()).await.unwrap();
    }
}

/// None of them releases, and none is let in before those before it were told.
// Shows: lease-over
async fn a_line_moves_on_by_itself_when_leases_are_over(env: &Env) {
    let (ours, theirs) = (env.client().await, env.client().await);
    let turns: Arc<Mutex<Vec<LockGuard>>> = Arc::default();
    let mut line = JoinSet::new();
    for client in [&ours, &ours, &theirs, &theirs, &ours, &theirs] {
        let lock = InterProcessFairLock::new(client, env.lock_path()).unwrap();
        let turns = Arc::clone(&turns);
        line.spawn(async move {
            let guard = within("a turn", lock.acquire_with_lease(SOON, LEASE)).await.unwrap();
            let mut turns = turns.lock().unwrap();
            assert!(turns.iter().all(|earlier| !earlier.is_held()), "two hold the lock at once");
            turns.push(guard);
        });
    }
    line.join_all().await;
    env.wait_count(&env.lock_path(), 0).await;
    let mut tokens: Vec<_> = turns.lock().unwrap().iter().map(LockGuard::fencing_token).collect();
    tokens.sort_unstable();
    tokens.dedup();
    assert_eq!(tokens.len(), 6);
}

async fn one_that_is_extended_goes_on(env: &Env) {
    let mutex = env.mutex().await;
    let guard = within("a free lock", mutex.acquire_with_lease(SOON, SHORT)).await.unwrap();
    for _ in 0..3 {
        guard.set_lease(SHORT).unwrap();
        // Time passes: in all, more than the first lease.
        tokio::time::sleep(SHORT * 2 / 5).await;
        assert!(guard.is_held());
    }
    guard.set_lease(LONG).unwrap();
    assert!(env.stat(&guard.node()).await.is_some());
    guard.set_lease(LEASE).unwrap();
    assert_eq!(within("the loss", guard.lost()).await.reason(), LostReason::LeaseOver);
    env.wait_count(&env.lock_path(), 0).await;
    assert_eq!(guard.set_lease(LONG).unwrap_err().reason(), LostReason::LeaseOver);
}

async fn a_release_in_time_leaves_nothing_of_it(env: &Env) {
    let mutex = env.mutex().await;
    let guard = within("a free lock", mutex.acquire_with_lease(SOON, SHORT)).await.unwrap();
    guard.release().await.unwrap();
    let guard = within("a free lock", mutex.lock()).await.unwrap();
    assert_eq!(guard.lease_remaining(), None);
    // Time passes: the first lease would be over.
    tokio::time::sleep(SHORT + LEASE).await;
    assert!(guard.is_held() && env.stat(&guard.node()).await.is_some());
    guard.release().await.unwrap();
}

async fn a_late_release_touches_no_other_node(env: &Env) {
    let mutex = env.mutex().await;
    let late = within("a free lock", mutex.acquire_with_lease(SOON, LEASE)).await.unwrap();
    within("the loss", late.lost()).await;
    // Of the same session.
    let next = within("the next grant", mutex.lock()).await.unwrap();
    assert_ne!(late.node(), next.node());
    assert!(late.release().await.is_err());
    mutex.participants().await.unwrap();
    assert_eq!(mutex.participants().await.unwrap(), [next.node()]);
    next.release().await.unwrap();
}

async fn a_converted_lock_keeps_it(env: &Env) {
    let lock = InterProcessReadWriteLock::new(&env.client().await, env.lock_path()).unwrap();
    let writer = within("a free lock", lock.write_lock().acquire_with_lease(SOON, LONG)).await.unwrap();
    let reader = within("the downgrade", writer.downgrade()).await.unwrap();
    let writer = within("the upgrade", reader.try_upgrade()).await.unwrap();
    assert!(writer.lease_remaining().is_some_and(|left| left < LONG && left > LONG / 2));
    writer.set_lease(SHORT).unwrap();
    let reader = within("the downgrade", writer.downgrade()).await.unwrap();
    let next = within("the next grant", lock.write_lock().lock()).await.unwrap();
    assert_eq!(reader.state(), LockState::Lost(LostReason::LeaseOver));
    next.release().await.unwrap();
}

async fn it_ends_with_its_session_too(env: &Env) {
    let (client, link) = env.linked(env.builder()).await;
    let mutex = InterProcessMutex::new(&client, env.lock_path()).unwrap();
    let guard = within("a free lock", mutex.acquire_with_lease(SOON, LONG)).await.unwrap();
    env.expire(&client, &link).await;
    let lost = within("the loss", guard.lost()).await;
    assert!(env.is_loss(lost.reason()), "{lost}");
    assert_eq!(guard.lease_remaining(), Some(Duration::ZERO));
    assert_eq!(guard.set_lease(LONG).unwrap_err(), lost);
}

async fn one_of_zero_is_refused(env: &Env) {
    let mutex = env.mutex().await;
    let error = within("the answer", mutex.acquire_with_lease(SOON, Duration::ZERO)).await.unwrap_err();
    assert!(matches!(&error, AcquireError::InvalidLease { path, .. } if *path == env.lock_path()), "{error}");
    assert!(!error.is_retryable());
    assert!(env.stat(&env.lock_path()).await.is_none(), "not even the directory");
}
