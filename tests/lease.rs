//! Leases: a lock that ends by the clock, whether its holder is done or not (docs/protocol.md#lease-over).
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::time::{Duration, Instant};

use test_support::in_process::{
    DIRECTORY, assert_clean, connect, granted, logged, mutex, queue, session, start, until,
};
use test_support::{SOON, within};
use zookeeper_recipes::{Lost, LostReason, ReleaseError};
use zookeeper_test_server::{LogKind, Match, Op};

/// Long enough to be granted a lock in, and what a test waits for to pass.
const LEASE: Duration = Duration::from_millis(100);

#[track_caller]
fn assert_over(lost: &Lost) {
    assert_eq!((lost.reason(), lost.path()), (LostReason::LeaseOver, DIRECTORY));
}

#[track_caller]
fn assert_released_too_late(released: Result<(), ReleaseError>) {
    match released {
        Err(ReleaseError::Lost(lost)) => assert_over(&lost),
        other => panic!("{other:?}"),
    }
}

/// Ten seconds of lease and thirty of work, a hundred times as fast.
#[tokio::test]
async fn lease_shorter_than_work() {
    let server = start();
    let (a, b) = (connect(&server).await, connect(&server).await);
    let (lease, work) = (LEASE, LEASE * 3);
    // The release, when it comes to the server.
    let release = server.hold_request(Match::op(Op::Delete).session(session(&a)));
    let asked = Instant::now();
    let first = within("the first grant", mutex(&a).acquire_for(SOON, lease)).await.unwrap();
    let (first_node, first_token) = (first.node(), first.fencing_token());
    let second = tokio::spawn(mutex(&b).lock());

    // Time has to pass: this is the work that takes longer than the lease.
    let lost = first.while_held(tokio::time::sleep(work)).await.unwrap_err();
    assert_over(&lost);
    assert!(asked.elapsed() >= lease, "over after {:?}", asked.elapsed());
    assert_over(&within("the loss", first.lost()).await);
    // The holder has been told, and the lock is nobody else's yet.
    assert!(server.exists(&first_node) && !second.is_finished());
    // It is released by itself: the guard is still there.
    within("the release", release.wait_hit()).await;
    assert!(server.exists(&first_node) && !second.is_finished());
    release.release();

    let second = granted(second).await;
    assert!(second.fencing_token() > first_token);
    assert_released_too_late(within("the answer", first.release()).await);
    a.flush(SOON).await.unwrap();
    let deletions = logged(&server, session(&a), Op::Delete, LogKind::Arrived);
    assert_eq!(deletions.iter().map(|entry| &*entry.path).collect::<Vec<_>>(), [&*first_node]);
    assert_eq!(queue(&server), [&*second.node()]);
    assert!(second.is_held());
    second.release().await.unwrap();
    until(&server, "the end of the node", |view| view.children(DIRECTORY).is_empty()).await;
    assert_clean(&server, "a lease that is over").await;
}
