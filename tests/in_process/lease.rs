//! Leases: the clock ends a lock, whether its holder is done or not (docs/protocol.md#lease-over).
//!
//! These tests depend on threads, or on how long code takes: the holder is blocked, or busy until
//! the end, a waker panics, or a lease is one nanosecond long. The others run in virtual time:
//! `simulation/tests/scenarios/lease.rs`.

use std::thread;

use test_support::prelude::*;

/// The lease whose end the tests wait for.
const LEASE: Duration = Duration::from_millis(100);

/// A lease that no test outlasts.
const LONG: Duration = Duration::from_secs(3600);

/// The holder's executor is blocked from before the end of the lease until after the release.
// Shows: lease-over
#[tokio::test]
async fn blocked_executor_keeps_no_leased_lock() {
    let (server, [a, b]) = with_clients(start(), calm).await;
    let guard = within("the grant", mutex(&a).lock()).await.unwrap();
    let mut lost = ByHand::new(guard.lost()).start();
    guard.set_lease(LEASE).unwrap();
    let other = mutex(&b);
    // Blocks this test's only thread.
    let next = thread::spawn(move || block_on(other.lock()).unwrap())
        .join()
        .unwrap();
    assert_eq!(queue(&server), [&*next.node()]);
    assert!(!guard.is_held());
    assert_eq!(guard.state(), LockState::Lost(LostReason::LeaseOver));
    assert!(
        guard
            .while_held(async { panic!("the future ran after the loss") })
            .await
            .is_err()
    );
    assert!(matches!(lost.poll(), Poll::Ready(lost) if lost.reason() == LostReason::LeaseOver));
    next.release().await.unwrap();
}

/// Each query of the state compares the clock, whichever thread has noticed the end.
// Shows: lease-over
#[tokio::test]
async fn state_reads_the_clock() {
    let (server, [client]) = with_clients(start(), calm).await;
    for question in 0..6 {
        let guard = within("the grant", mutex(&client).lock()).await.unwrap();
        let soon = Duration::from_millis(2);
        guard.set_lease(soon).unwrap();
        let set = Instant::now();
        while set.elapsed() < soon {
            std::hint::spin_loop();
        }
        match question {
            0 => assert!(!guard.is_held()),
            1 => assert_eq!(guard.state(), LockState::Lost(LostReason::LeaseOver)),
            2 => assert_over(&guard.reenter().unwrap_err()),
            3 => assert!(!mutex(&client).is_acquired_in_this_process()),
            4 => assert_eq!(guard.lease_remaining(), Some(Duration::ZERO)),
            _ => assert_over(&guard.set_lease(LONG).unwrap_err()),
        }
        assert_released_too_late(guard.release().await);
        until_free(&server).await;
    }
}

#[tokio::test]
async fn panicking_wakers_stop_no_lease_end() {
    let (server, [client]) = with_clients(start(), calm).await;
    let guard = within("the grant", mutex(&client).lock()).await.unwrap();
    let waker = broken_waker();
    let (mut broken, mut listeners) = (Vec::new(), Vec::new());
    for _ in 0..20 {
        listeners.push(ByHand::new(guard.lost()).start());
        let mut lost = Box::pin(guard.lost());
        assert!(
            lost.as_mut()
                .poll(&mut Context::from_waker(&waker))
                .is_pending()
        );
        broken.push(lost);
    }
    guard.set_lease(LEASE).unwrap();
    for lost in &listeners {
        lost.woken().await;
    }
    until_free(&server).await;
    assert_clean(&server, "with wakers that panic").await;
}

/// The lease is extended right before its end, right after it, and while the end is noticed: a
/// successful extension holds, and a failed one returns an error.
// Shows: lease-over
#[tokio::test]
async fn extension_races_with_lease_end() {
    let (server, [client]) = with_clients(start(), calm).await;
    let (mut extended, mut over) = (0, 0);
    // The rounds cover both orders, because the time to the end goes from 1 ms to zero and back.
    for round in 0_u64..200 {
        if round >= 40 && extended > 0 && over > 0 {
            break;
        }
        let distance = Duration::from_micros(1000 / (1 + round % 20)) - Duration::from_micros(50);
        let guard = within("the grant", mutex(&client).lock()).await.unwrap();
        guard.set_lease(Duration::from_millis(3)).unwrap();
        let mut lost = ByHand::new(guard.lost());
        let early = lost.poll().is_ready();
        while guard.lease_remaining().unwrap() > distance {
            std::hint::spin_loop();
        }
        let node = guard.node();
        match guard.set_lease(LONG) {
            Ok(()) => {
                extended += 1;
                assert!(!early && guard.is_held() && guard.lease_remaining() > Some(LONG / 2));
                // A request under way would have arrived by now.
                client.flush(SOON).await.unwrap();
                assert!(lost.poll().is_pending() && guard.is_held() && server.exists(&node));
                guard.release().await.unwrap();
            }
            Err(lost) => {
                over += 1;
                assert_over(&lost);
                assert!(!guard.is_held());
                assert_released_too_late(guard.release().await);
            }
        }
        until_free(&server).await;
    }
    assert!(
        extended > 0 && over > 0,
        "extended {extended} times, over {over} times"
    );
    let deleted = deletions(&server, &client);
    assert_eq!(
        deleted.len(),
        extended + over,
        "each node once: {deleted:?}"
    );
}

/// If the lease is so short that no caller can see the grant, the call ends, even before its
/// timeout.
// Shows: lease-over
#[tokio::test]
async fn too_short_lease_ends_the_call() {
    let (server, [client]) = with_clients(start(), calm).await;
    let shortest = Duration::from_nanos(1);
    let error = within(
        "the answer",
        mutex(&client).acquire_with_lease(Duration::MAX, shortest),
    )
    .await
    .unwrap_err();
    assert!(matches!(error, AcquireError::LeaseOver { .. }), "{error}");
    client.flush(SOON).await.unwrap();
    let created = logged(&server, session(&client), Op::Create, LogKind::Applied).len();
    assert_eq!((created, deletions(&server, &client).len()), (4, 4));
    assert_clean(&server, "never seen").await;
}
