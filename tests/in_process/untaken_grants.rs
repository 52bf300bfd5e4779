//! Grants that were lost before the caller took them.

use test_support::prelude::*;

/// One budget covers the whole call, even if a grant was lost before the caller took it.
// Shows: attempt-outlives-caller, deadline
#[tokio::test]
async fn untaken_lost_grant_keeps_deadline() {
    let server = start_impatient();
    let client = connect_for(&server, Duration::from_millis(1500)).await;
    let id = session(&client);
    server.freeze_expiry(true);
    let (started, budget) = (Instant::now(), Duration::from_secs(4));
    let mut acquire = ByHand::pending(|| mutex(&client).acquire(budget));
    acquire.woken().await;
    server.stall(id, Direction::Both);
    server.refuse_connections(true);
    until_lost(&mutex(&client)).await;
    // The deadline passes as well.
    tokio::time::sleep(budget.saturating_sub(started.elapsed())).await;
    let looked = Instant::now();
    loop {
        if let Poll::Ready(result) = acquire.poll() {
            assert!(result.is_err());
            break;
        }
        acquire.woken().await;
    }
    let late = looked.elapsed();
    assert!(
        late < budget,
        "expected the call to end at its deadline, but it ended {late:?} later"
    );
}

/// Neither `acquire` nor `try_lock` returns a lost lock.
// Shows: attempt-outlives-caller
#[tokio::test]
async fn try_hands_out_no_lost_lock() {
    let (server, [client]) = with_clients(start(), connect).await;
    let mut attempt = ByHand::pending(|| mutex(&client).try_lock());
    attempt.woken().await;
    server.expire_session(session(&client));
    until_lost(&mutex(&client)).await;
    let mut result = attempt.poll();
    while result.is_pending() {
        attempt.woken().await;
        result = attempt.poll();
    }
    if let Poll::Ready(Ok(guard)) = result {
        panic!("granted: {:?}", guard.state());
    }
}
