//! The clock ends a lock at the end of its lease, and its holder is notified first.

use test_support::prelude::*;

use crate::harness::{Behaviour, Env, behaviours};

/// The lease whose end the behaviours wait for.
const LEASE: Duration = Duration::from_millis(200);

/// A lease that no behaviour outlasts.
const LONG: Duration = Duration::from_secs(3600);

pub(crate) fn all() -> Vec<Behaviour> {
    behaviours![
        lease_end_precedes_next_grant
            .with_faults()
            .also_on_ensemble(),
        expired_leases_advance_the_queue
            .with_faults()
            .also_on_ensemble(),
    ]
}

async fn lease_end_precedes_next_grant(env: &Env) {
    let (ours, theirs) = (env.mutex().await, env.mutex().await);
    for _ in 0..3 {
        let guard = within("a free lock", ours.acquire_with_lease(SOON, LEASE))
            .await
            .unwrap();
        assert!(guard.lease_remaining().is_some_and(|left| left <= LEASE));
        let next = within("the next grant", theirs.acquire_with_lease(SOON, LONG))
            .await
            .unwrap();
        // The next contender is granted the lock only after the loss, so the state shows the loss
        // now.
        assert_eq!(guard.state(), LockState::Lost(LostReason::LeaseOver));
        assert_eq!(
            within("the loss", guard.lost()).await.reason(),
            LostReason::LeaseOver
        );
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

/// No holder releases, and no contender is granted the lock before the earlier holders were
/// notified.
// Shows: lease-over
async fn expired_leases_advance_the_queue(env: &Env) {
    let (ours, theirs) = (env.client().await, env.client().await);
    let turns: Arc<Mutex<Vec<LockGuard>>> = Arc::default();
    let mut line = JoinSet::new();
    for client in [&ours, &ours, &theirs, &theirs, &ours, &theirs] {
        let lock = InterProcessFairLock::new(client, env.lock_path()).unwrap();
        let turns = Arc::clone(&turns);
        line.spawn(async move {
            let guard = within("a turn", lock.acquire_with_lease(SOON, LEASE))
                .await
                .unwrap();
            let mut turns = turns.lock().unwrap();
            assert!(
                turns.iter().all(|earlier| !earlier.is_held()),
                "expected one holder at a time"
            );
            turns.push(guard);
        });
    }
    line.join_all().await;
    env.wait_count(&env.lock_path(), 0).await;
    let mut tokens: Vec<_> = turns
        .lock()
        .unwrap()
        .iter()
        .map(LockGuard::fencing_token)
        .collect();
    tokens.sort_unstable();
    tokens.dedup();
    assert_eq!(tokens.len(), 6);
}
