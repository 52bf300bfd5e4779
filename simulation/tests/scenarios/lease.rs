//! Leases: a lock that ends by the clock, whether its holder is done or not
//! (docs/protocol.md#lease-over).
//!
//! These tests must let the time of a lease pass, because they test its end. The report of the loss
//! shows that the time has passed.

use ::simulation::scenario::tokio;
use test_support::prelude::*;

/// The lease whose end the tests wait for.
const LEASE: Duration = Duration::from_millis(100);

/// A lease that is long enough for the steps before its end.
const PATIENT: Duration = Duration::from_secs(2);

/// A lease that no test outlasts.
const LONG: Duration = Duration::from_secs(3600);

/// A lease of more than a year, which means no limit.
const NONE: Duration = Duration::from_secs(60 * 60 * 24 * 365 + 1);

/// Matches the deletions that a client's session requests.
fn deletion(client: &Client) -> Match {
    Match::op(Op::Delete).session(session(client))
}

/// Returns a call that has been granted the lock, but has not been polled since.
async fn granted_unseen<F: Future>(server: &Server, client: &Client, call: F) -> ByHand<F> {
    // The lease begins when the call is polled, not before.
    let gate = server.hold_reply(Match::op(Op::Create).session(session(client)));
    let attempt = ByHand::new(call).start();
    within("the create", gate.wait_hit()).await;
    gate.release();
    attempt.woken().await;
    attempt
}

/// Acquires the mutex, and then sets its lease, so that the lease cannot end before the caller has
/// the guard, which would make the call acquire again.
async fn leased(client: &Client) -> LockGuard {
    let guard = within("the grant", mutex(client).lock()).await.unwrap();
    guard.set_lease(LEASE).unwrap();
    guard
}

/// Returns a lock of each kind. Only the two sides of the read-write lock share a path.
fn all_kinds(client: &Client) -> Vec<Box<dyn InterProcessLock>> {
    let lock = read_write::lock(client);
    vec![
        Box::new(InterProcessMutex::new(client, "/locks/mutex").unwrap()),
        Box::new(InterProcessFairLock::new(client, "/locks/fair").unwrap()),
        Box::new(lock.read_lock()),
        Box::new(lock.write_lock()),
    ]
}

/// The work takes three times as long as the lease.
// Shows: lease-over
#[tokio::test]
async fn short_lease_ends_longer_work() {
    let (server, [a, b]) = with_clients(start(), calm).await;
    let (lease, work) = (PATIENT, PATIENT * 3);
    // The release is held when it arrives at the server.
    let release = server.hold_request(deletion(&a));
    let asked = Instant::now();
    let first = within("the first grant", mutex(&a).acquire_with_lease(SOON, lease))
        .await
        .unwrap();
    let (first_node, first_token) = (first.node(), first.fencing_token());
    let second = tokio::spawn(mutex(&b).lock());
    let notified = ByHand::new(first.lost()).start();

    // Time has to pass: this is the work that takes longer than the lease.
    let lost = first
        .while_held(tokio::time::sleep(work))
        .await
        .unwrap_err();
    assert_over(&lost);
    assert!(asked.elapsed() >= lease, "over after {:?}", asked.elapsed());
    notified.woken().await;
    assert_over(&within("the loss", first.lost()).await);
    // The holder has been notified, and the lock is not granted to another yet.
    assert!(server.exists(&first_node) && !second.is_finished());
    // The node is deleted without a release, while the guard still exists.
    within("the release", release.wait_hit()).await;
    assert!(server.exists(&first_node) && !second.is_finished());
    release.release();

    let second = granted(second).await;
    assert!(second.fencing_token() > first_token);
    assert_released_too_late(within("the answer", first.release()).await);
    a.flush(SOON).await.unwrap();
    assert_eq!(deletions(&server, &a), [&*first_node]);
    assert_eq!(queue(&server), [&*second.node()]);
    assert!(second.is_held());
    second.release().await.unwrap();
    assert_clean(&server, "a lease that is over").await;
}

#[tokio::test]
async fn every_lock_kind_has_leases() {
    let (server, [client]) = with_clients(start(), calm).await;
    for lock in all_kinds(&client) {
        let guard = within("the grant", lock.acquire_with_lease(SOON, LONG))
            .await
            .unwrap();
        let left = guard.lease_remaining().unwrap();
        assert!(left <= LONG && left > LONG / 2, "{left:?}");
        assert!(lock.is_acquired_in_this_process());
        within("the release", guard.release()).await.unwrap();

        let guard = within("the grant", lock.acquire_with_lease(SOON, LEASE))
            .await
            .unwrap();
        let node = guard.node();
        let changed = within("the change", guard.state_changed(LockState::Held)).await;
        assert_eq!(changed, LockState::Lost(LostReason::LeaseOver));
        let lost = within("the loss", guard.lost()).await;
        assert_eq!(
            (lost.reason(), lost.path()),
            (LostReason::LeaseOver, lock.path())
        );
        assert_eq!(guard.state(), LockState::Lost(LostReason::LeaseOver));
        assert_eq!(guard.lease_remaining(), Some(Duration::ZERO));
        assert!(!guard.is_held() && !lock.is_acquired_in_this_process());
        assert_eq!(guard.reenter().unwrap_err().reason(), LostReason::LeaseOver);
        until(&server, "the end of the node", move |view| {
            !view.exists(&node)
        })
        .await;
    }
}

#[tokio::test]
async fn rejects_zero_lease_without_request() {
    let (server, [client]) = with_clients(start(), calm).await;
    server.reset_counters();
    for lock in all_kinds(&client) {
        for wait in [Duration::ZERO, SOON, Duration::MAX] {
            let error = within("the answer", lock.acquire_with_lease(wait, Duration::ZERO))
                .await
                .unwrap_err();
            assert!(
                matches!(&error, AcquireError::InvalidLease { path, .. } if path == lock.path()),
                "{error}"
            );
            assert!(error.to_string().contains("`acquire`"), "{error}");
        }
    }
    client.flush(SOON).await.unwrap();
    assert_eq!(server.counters().total_requests(), 0);
}

/// Unlike a lease of zero, an extension of zero is not refused. A caller that acquires with a lease
/// of zero could mean "without a lease"; a caller that extends a lease already has the lock.
#[tokio::test]
async fn zero_extension_ends_the_lock() {
    let (server, [client]) = with_clients(start(), calm).await;
    for lease in [None, Some(LONG)] {
        let guard = match lease {
            Some(lease) => within("the grant", mutex(&client).acquire_with_lease(SOON, lease))
                .await
                .unwrap(),
            None => within("the grant", mutex(&client).lock()).await.unwrap(),
        };
        let lost = ByHand::new(guard.lost()).start();
        assert_over(&guard.set_lease(Duration::ZERO).unwrap_err());
        lost.woken().await;
        assert_over(&within("the loss", guard.lost()).await);
        until_free(&server).await;
        assert_released_too_late(guard.release().await);
    }
    assert_clean(&server, "ended by an extension").await;
}

#[tokio::test]
async fn too_long_lease_has_no_end() {
    let (_server, [client]) = with_clients(start(), calm).await;
    for lease in [NONE, Duration::MAX] {
        let guard = within("the grant", mutex(&client).acquire_with_lease(SOON, lease))
            .await
            .unwrap();
        assert_eq!(guard.lease_remaining(), None);
        guard.set_lease(LONG).unwrap();
        assert!(guard.lease_remaining().is_some());
        guard.set_lease(lease).unwrap();
        assert_eq!(
            (guard.lease_remaining(), guard.state()),
            (None, LockState::Held)
        );
        guard.release().await.unwrap();
    }
    let year = NONE - Duration::from_secs(1);
    let guard = within(
        "the grant",
        mutex(&client).acquire_with_lease(Duration::MAX, year),
    )
    .await
    .unwrap();
    assert!(guard.lease_remaining() > Some(year - SOON));
    guard.release().await.unwrap();
}

#[tokio::test]
async fn wait_for_leased_lock_is_bounded() {
    let (server, [a, b]) = with_clients(start(), calm).await;
    let held = within("the grant", mutex(&a).acquire_with_lease(SOON, LONG))
        .await
        .unwrap();
    let at_once = within(
        "the answer",
        mutex(&b).acquire_with_lease(Duration::ZERO, LEASE),
    )
    .await
    .unwrap_err();
    let later = timed_out(async |wait| mutex(&b).acquire_with_lease(wait, LEASE).await).await;
    for error in [at_once, later] {
        assert!(
            matches!(
                error,
                AcquireError::TimedOut {
                    contention: Contention { ahead: 1, .. },
                    ..
                }
            ),
            "{error}"
        );
    }
    let guard = within(
        "another",
        fair(&a).acquire_with_lease(Duration::ZERO, LEASE),
    )
    .await
    .unwrap_err();
    assert!(matches!(guard, AcquireError::TimedOut { .. }), "{guard}");
    held.release().await.unwrap();
    assert_clean(&server, "timed out").await;
}

/// Polls a call for the first time when half of its wait is over. Returns how long the call has
/// waited, as its error says.
async fn waited<T>(
    wait: Duration,
    call: impl Future<Output = Result<T, AcquireError>>,
) -> Duration {
    // When the call is first polled, after this pause, half of its wait is over.
    tokio::time::sleep(wait / 2).await;
    match within("the deadline", call).await {
        Err(AcquireError::TimedOut { waited, .. }) => waited,
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("it is granted"),
    }
}

#[tokio::test]
async fn waited_time_counts_from_the_call() {
    let (server, [a, b]) = with_clients(start(), calm).await;
    let held = within("the grant", mutex(&a).lock()).await.unwrap();
    let several = InterProcessMultiLock::from_paths(&b, [DIRECTORY]).unwrap();
    let wait = 4 * LEASE;
    let calls = [
        waited(wait, mutex(&b).acquire(wait)).await,
        waited(wait, fair(&b).acquire(wait)).await,
        waited(wait, several.acquire(wait)).await,
    ];
    assert!(
        calls
            .iter()
            .all(|waited| (wait..wait + LEASE).contains(waited)),
        "{calls:?}"
    );
    held.release().await.unwrap();
    assert_clean(&server, "timed out").await;
}

/// The lease begins with the grant, not with the call.
// Shows: lease-over
#[tokio::test]
async fn lease_starts_at_the_grant() {
    let (server, [a, b]) = with_clients(start(), calm).await;
    let held = within("the grant", mutex(&a).lock()).await.unwrap();
    let lease = PATIENT;
    let attempt = tokio::spawn(mutex(&b).acquire_with_lease(SOON, lease));
    until(&server, "the waiter", |view| {
        view.children(DIRECTORY).len() == 2
    })
    .await;
    let node = queue(&server).pop().unwrap();
    // Time has to pass: longer than the lease.
    never_for(lease * 5 / 4, &server, "it left", |view| {
        view.children(DIRECTORY).len() != 2
    })
    .await;
    held.release().await.unwrap();
    let guard = granted(attempt).await;
    assert_eq!(guard.node(), node);
    assert!(guard.lease_remaining() > Some(Duration::ZERO));
    assert_over(&within("the loss", guard.lost()).await);
    assert_clean(&server, "after a wait").await;
}

#[tokio::test]
async fn lease_is_set_moved_and_removed() {
    let (server, [client]) = with_clients(start(), calm).await;
    let guard = within("the grant", mutex(&client).lock()).await.unwrap();
    assert_eq!(guard.lease_remaining(), None);
    let barrier = Barrier::new(&client).await;
    server.reset_counters();
    // The lease is made longer, and nothing happens at its first end.
    guard.set_lease(PATIENT).unwrap();
    let mut lost = ByHand::new(guard.lost()).start();
    guard.set_lease(LONG).unwrap();
    never_for(PATIENT + LEASE, &server, "it was released", |view| {
        view.children(DIRECTORY).is_empty()
    })
    .await;
    assert!(lost.poll().is_pending() && guard.is_held());
    // The second call removes the lease.
    guard.set_lease(PATIENT).unwrap();
    guard.set_lease(NONE).unwrap();
    never_for(PATIENT + LEASE, &server, "it was released", |view| {
        view.children(DIRECTORY).is_empty()
    })
    .await;
    assert!(lost.poll().is_pending() && guard.is_held());
    barrier.pass().await;
    assert_eq!(server.counters().total_requests(), 0, "it costs no request");
    // The lease is made shorter.
    guard.set_lease(LONG).unwrap();
    guard.set_lease(LEASE).unwrap();
    lost.woken().await;
    let Poll::Ready(lost) = lost.poll() else {
        panic!("woken by another change")
    };
    assert_over(&lost);
    until_free(&server).await;
    assert_over(&guard.set_lease(LONG).unwrap_err());
    assert_released_too_late(guard.release().await);
}

/// The release comes within milliseconds, not only when the next heartbeat or reading of the clock
/// is due, up to a second later.
// Shows: lease-over
#[tokio::test]
async fn lock_is_released_at_lease_end() {
    let server = start();
    // With a shorter timeout the heartbeat is sent more often than once a second.
    let client = connect_as(
        Client::builder().session_timeout(Duration::from_secs(40)),
        &server,
    )
    .await;
    // The clock is being watched already.
    let _other = InterProcessMutex::new(&client, "/locks/other")
        .unwrap()
        .lock()
        .await
        .unwrap();
    for _ in 0..9 {
        let guard = within("the grant", mutex(&client).lock()).await.unwrap();
        let begun = Instant::now();
        guard.set_lease(LEASE).unwrap();
        until_free(&server).await;
        let log = logged(&server, session(&client), Op::Delete, LogKind::Arrived);
        let arrived = log.last().unwrap();
        assert_eq!(arrived.path, *guard.node());
        let late = arrived.at - begun - LEASE;
        assert!(late < Duration::from_millis(20), "late by {late:?}");
    }
}

/// The lease ends even if the caller has not taken the guard yet.
// Shows: lease-over
#[tokio::test]
async fn untaken_grant_ends_with_its_lease() {
    let (server, [a, b]) = with_clients(start(), calm).await;
    let lease = PATIENT;
    let mut attempt = granted_unseen(&server, &a, mutex(&a).acquire_with_lease(SOON, lease)).await;
    let first = queue(&server);
    let other = granted(tokio::spawn(mutex(&b).lock())).await;
    // The attempt is polled only now. It does not get the lost lock, and continues.
    assert!(attempt.poll().is_pending());
    until(&server, "it to queue again", |view| {
        view.children(DIRECTORY).len() == 2
    })
    .await;
    other.release().await.unwrap();
    let guard = within("the next grant", attempt.finished()).await.unwrap();
    assert_ne!(first, [&*guard.node()]);
    assert!(guard.is_held());
    drop(guard);

    // A try has no time to continue.
    let mut attempt = granted_unseen(
        &server,
        &a,
        mutex(&a).acquire_with_lease(Duration::ZERO, lease),
    )
    .await;
    granted(tokio::spawn(mutex(&b).lock()))
        .await
        .release()
        .await
        .unwrap();
    let Poll::Ready(Err(error)) = attempt.poll() else {
        panic!("handed out after its lease")
    };
    assert!(
        matches!(&error, AcquireError::LeaseOver { path, .. } if path == DIRECTORY),
        "{error}"
    );
    assert!(error.is_retryable());
    assert_clean(&server, "never taken").await;
}

#[tokio::test]
async fn release_before_lease_end_succeeds() {
    let (server, [client]) = with_clients(start(), calm).await;
    let guard = within(
        "the grant",
        mutex(&client).acquire_with_lease(SOON, PATIENT),
    )
    .await
    .unwrap();
    let mut lost = ByHand::new(guard.lost()).start();
    // The deletion is held back, so that the lease is over before the node is gone.
    let gate = server.hold_request(deletion(&client));
    let mut release = ByHand::new(guard.release()).start();
    within("the deletion", gate.wait_hit()).await;
    never_for(PATIENT + LEASE, &server, "it was released", |view| {
        view.children(DIRECTORY).is_empty()
    })
    .await;
    assert!(
        lost.poll().is_pending(),
        "what was released in time is not lost"
    );
    assert!(release.poll().is_pending());
    gate.release();
    release.woken().await;
    assert!(matches!(release.poll(), Poll::Ready(Ok(()))));
    assert_eq!(deletions(&server, &client).len(), 1);
    assert_clean(&server, "released in time").await;
}

/// Readers that have waited together are granted the lock together, by one node, and each has the
/// lease that it requested.
// Shows: lease-over
#[tokio::test]
async fn waiting_readers_keep_their_own_leases() {
    let (server, [client, other]) = with_clients(start(), calm).await;
    let writer = read_write::write(&other).await;
    let lock = read_write::lock(&client);
    let readers: Vec<_> = (0..3)
        .map(|_| {
            let asked = lock.read_lock().acquire_with_lease(SOON, LEASE);
            tokio::spawn(ByHand::new(asked).start().finished())
        })
        .collect();
    until(&server, "the wait", |view| view.watches() == 1).await;
    assert_eq!(queue(&server).len(), 2, "one node for all readers");
    writer.release().await.unwrap();
    for reader in readers {
        let guard = granted(reader).await;
        assert_over(&within("the end", guard.lost()).await);
    }
}

#[tokio::test]
async fn shares_of_hold_share_its_lease() {
    let (server, [client]) = with_clients(start(), calm).await;
    let guard = within("the grant", mutex(&client).acquire_with_lease(SOON, LONG))
        .await
        .unwrap();
    let share = guard.reenter().unwrap();
    assert!(share.lease_remaining() > Some(LONG / 2));
    guard.set_lease(LONG / 2).unwrap();
    assert!(share.lease_remaining() <= Some(LONG / 2));
    share.set_lease(LEASE).unwrap();
    let (first, second) = within("the loss", async {
        tokio::join!(guard.lost(), share.lost())
    })
    .await;
    assert_over(&first);
    assert_over(&second);
    assert_eq!(guard.hold_count(), 2);
    until_free(&server).await;
    assert_released_too_late(share.release().await);
    assert_released_too_late(guard.release().await);
    client.flush(SOON).await.unwrap();
    assert_eq!(deletions(&server, &client).len(), 1);
}

/// The node of a lock that was reported as lost is about to be deleted, and a flush waits for that.
#[tokio::test]
async fn flush_waits_for_lease_release() {
    let (server, [client]) = with_clients(start(), calm).await;
    let gate = server.hold_request(deletion(&client));
    let guard = leased(&client).await;
    within("the loss", guard.lost()).await;
    let flushing = client.clone();
    let mut flush = ByHand::new(async move { flushing.flush(SOON).await }).start();
    within("the deletion", gate.wait_hit()).await;
    assert!(flush.poll().is_pending());
    gate.release();
    within("the flush", flush.finished()).await.unwrap();
    assert!(!server.exists(&guard.node()));
}

/// The reply to the deletion, or the request, is lost with the connection.
// Shows: lease-over
#[tokio::test]
async fn lost_release_spares_other_nodes() {
    for carried_out in [true, false] {
        let (server, [a, b]) = with_clients(start(), calm).await;
        let fault = lose(&server, deletion(&a), carried_out, Loss::Reset);
        let first = leased(&a).await;
        let second = granted(tokio::spawn(mutex(&b).lock())).await;
        within("the fault", fault.wait_hit()).await;
        assert_over(&within("the loss", first.lost()).await);
        a.flush(SOON).await.unwrap();
        assert!(
            deletions(&server, &a)
                .iter()
                .all(|path| *path == *first.node())
        );
        assert_eq!(queue(&server), [&*second.node()]);
        assert_released_too_late(first.release().await);
        assert!(second.is_held());
        second.release().await.unwrap();
        assert_clean(&server, "a deletion that was lost").await;
    }
}

/// The notice needs no server, and the node is deleted when a server is reachable again.
#[tokio::test]
async fn lease_ends_without_a_connection() {
    let (server, [client]) = with_clients(start(), calm).await;
    let id = session(&client);
    let guard = within("the grant", mutex(&client).lock()).await.unwrap();
    server.refuse_connections(true);
    assert!(server.cut(id, Cut::Reset));
    guard.set_lease(LEASE).unwrap();
    assert_over(&within("the loss", guard.lost()).await);
    assert!(server.exists(&guard.node()));
    assert_released_too_late(within("the answer", guard.release()).await);
    server.refuse_connections(false);
    until_free(&server).await;
    assert_eq!(session(&client), id);
    assert_clean(&server, "without a connection").await;
}

/// The lock ends with its session, whatever is left of the lease.
// Shows: lease-over
#[tokio::test]
async fn lease_does_not_outlive_session() {
    let (server, [client]) = with_clients(start(), calm).await;
    let guard = within("the grant", mutex(&client).acquire_with_lease(SOON, LONG))
        .await
        .unwrap();
    assert!(server.expire_session(session(&client)));
    let lost = within("the loss", guard.lost()).await;
    assert_eq!(lost.reason(), LostReason::SessionExpired);
    assert_eq!(guard.lease_remaining(), Some(Duration::ZERO));
    assert_eq!(guard.set_lease(LONG).unwrap_err(), lost);
    assert_eq!(guard.state(), LockState::Lost(LostReason::SessionExpired));

    // The end of a lease does not change a lock that is already lost.
    let next = within(
        "the next session",
        mutex(&client).acquire_with_lease(SOON, PATIENT),
    )
    .await
    .unwrap();
    client.close().await.unwrap();
    assert_eq!(
        within("the loss", next.lost()).await.reason(),
        LostReason::Closed
    );
    never_for(PATIENT + LEASE, &server, "a node", |view| {
        !view.children(DIRECTORY).is_empty()
    })
    .await;
    assert_eq!(next.state(), LockState::Lost(LostReason::Closed));
}

/// If the deletion at the end of a lease is refused, the node blocks the lock, as after any refused
/// release.
#[tokio::test]
async fn refused_release_is_reported() {
    let (server, [client]) = with_clients(start(), calm).await;
    let fault = server.fail(deletion(&client).always(), ServerError::NoAuth.code());
    let guard = leased(&client).await;
    assert_over(&within("the loss", guard.lost()).await);
    within("the deletion", fault.wait_hit()).await;
    let node = guard.node();
    assert_released_too_late(guard.release().await);
    let flushed = client.flush(SOON).await.unwrap_err();
    assert!(
        matches!(&flushed, ReleaseError::Refused { node: left, .. } if *left == node),
        "{flushed}"
    );
    let error = within("the answer", mutex(&client).acquire_with_lease(SOON, LEASE))
        .await
        .unwrap_err();
    assert!(matches!(error, AcquireError::Orphaned { .. }), "{error}");
    fault.remove();
    within("the grant", mutex(&client).lock())
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
}

/// Neither `reenter_as_reader` nor `downgrade` changes the lease, which ends a downgraded hold too.
// Shows: lease-over
#[tokio::test]
async fn conversion_keeps_the_lease() {
    let (server, [client]) = with_clients(start(), calm).await;
    let lock = read_write::lock(&client);
    let writer = within(
        "the grant",
        lock.write_lock().acquire_with_lease(SOON, LONG),
    )
    .await
    .unwrap();
    let share = writer.reenter_as_reader().unwrap();
    assert!(share.lease_remaining() > Some(LONG / 2));
    drop(share);
    let reader = within("the downgrade", writer.downgrade()).await.unwrap();
    let left = reader.lease_remaining().unwrap();
    assert!(left < LONG && left > LONG / 2, "{left:?}");
    reader.set_lease(PATIENT).unwrap();
    assert_over(&within("the loss", reader.lost()).await);
    until_free(&server).await;

    // A hold that has ended is not converted.
    let writer = within(
        "the grant",
        lock.write_lock().acquire_with_lease(SOON, PATIENT),
    )
    .await
    .unwrap();
    assert_over(&within("the loss", writer.lost()).await);
    match within("the answer", writer.downgrade()).await.unwrap_err() {
        ConversionError::Lost { source, .. } => assert_over(&source),
        other => panic!("{other:?}"),
    }
    assert_clean(&server, "converted").await;
}

/// The lease ends while a request of the conversion, or its answer, is on its way: the holder is
/// notified at once, and no node of either kind is left.
// Shows: lease-over
#[tokio::test]
async fn lease_ends_during_a_conversion() {
    let is_over = async |answered| {
        let (server, [client]) = with_clients(start(), calm).await;
        let (lock, id) = (read_write::lock(&client), session(&client));
        let what = format!("answered: {answered}");
        let writer = within(
            "the grant",
            lock.write_lock().acquire_with_lease(SOON, PATIENT),
        )
        .await
        .unwrap();
        let gate = hold_back(&server, Match::op(Op::Multi).session(id), answered);
        let lost = writer.lost();
        let downgrade = tokio::spawn(writer.downgrade());
        within("the request", gate.wait_hit()).await;
        assert_over(&within(&what, lost).await);
        assert!(
            !queue(&server).is_empty(),
            "{what}: the lock was released before the holder was notified"
        );
        gate.release();
        let error = within(&what, downgrade).await.unwrap().unwrap_err();
        assert!(
            error.to_string().contains("its lease is over"),
            "{what}: {error}"
        );
        until_free(&server).await;
        assert_eq!(session(&client), id);
        assert_clean(&server, &what).await;
    };
    tokio::join!(is_over(false), is_over(true));
}

/// A release in time hands a fair lock over. After the end of the lease, the next in line lists the
/// queue instead.
// Shows: lease-over
#[tokio::test]
async fn expired_lock_is_not_handed_over() {
    for in_time in [true, false] {
        let (server, [client]) = with_clients(start(), calm).await;
        let holder = within("the grant", fair(&client).acquire_with_lease(SOON, LONG))
            .await
            .unwrap();
        let next = tokio::spawn(fair(&client).lock());
        until(&server, "the next in line", |view| {
            view.children(DIRECTORY).len() == 2
        })
        .await;
        // The attempt's create and list are answered before these requests.
        fair(&client).participants().await.unwrap();
        fair(&client).participants().await.unwrap();
        let (node, token) = (holder.node(), holder.fencing_token());
        if in_time {
            holder.release().await.unwrap();
        } else {
            holder.set_lease(LEASE).unwrap();
            assert_over(&within("the loss", holder.lost()).await);
        }
        let guard = granted(next).await;
        assert!(guard.fencing_token() > token);
        let handed_over = logged(&server, session(&client), Op::Multi, LogKind::Applied)
            .iter()
            .any(|entry| entry.path == *guard.node());
        assert_eq!(
            (
                handed_over,
                deletions(&server, &client).contains(&node.to_string())
            ),
            (in_time, !in_time)
        );
        guard.release().await.unwrap();
    }
}

/// The transaction is committed before the release, or not at all.
// Shows: lease-over
#[tokio::test]
async fn running_transaction_commits_before_release() {
    let server = start();
    server.create("/data", "0").unwrap();
    let client = calm(&server).await;
    let id = session(&client);
    let guard = within("the grant", mutex(&client).lock()).await.unwrap();
    let gate = server.hold_request(Match::op(Op::Multi).session(id).path("/data"));
    let lost = guard.lost();
    let commit = async {
        guard
            .transaction()
            .set_data("/data", b"1", None)
            .commit()
            .await
    };
    let notified = async {
        within("the transaction", gate.wait_hit()).await;
        guard.set_lease(LEASE).unwrap();
        assert_over(&within("the loss", lost).await);
        gate.release();
    };
    let (committed, ()) = tokio::join!(within("the answer", commit), notified);
    committed.unwrap();
    until_free(&server).await;
    let applied = |op| logged(&server, id, op, LogKind::Applied).last().unwrap().n;
    assert!(applied(Op::Multi) < applied(Op::Delete));

    match within(
        "the answer",
        guard.transaction().set_data("/data", b"2", None).commit(),
    )
    .await
    .unwrap_err()
    {
        TransactionError::Lost(lost) => assert_over(&lost),
        other => panic!("{other:?}"),
    }
    assert_eq!(server.node("/data").unwrap().data, b"1");
}

/// Many holds with leases that end in no particular order: each holder is notified at the end of
/// its own lease, and its node is deleted.
#[tokio::test]
async fn leases_end_independently() {
    let (server, [client]) = with_clients(start(), calm).await;
    let mut guards = Vec::new();
    for number in 0_u32..40 {
        let path = format!("/locks/many-{number}");
        let guard: AnyGuard = InterProcessMutex::new(&client, &path)
            .unwrap()
            .lock()
            .await
            .unwrap()
            .into();
        guards.push(guard);
    }
    let set = Instant::now();
    for (number, guard) in (0_u32..).zip(&guards) {
        // 7 and 40 have no common divisor, so all leases have different ends.
        guard
            .set_lease(PATIENT + Duration::from_millis(5) * (number * 7 % 40))
            .unwrap();
    }
    let kept = guards.split_off(30);
    for guard in &kept {
        guard.set_lease(LONG).unwrap();
    }
    let mut notified = JoinSet::new();
    for (number, guard) in (0_u32..).zip(&guards) {
        let (lost, lease) = (
            guard.lost(),
            PATIENT + Duration::from_millis(5) * (number * 7 % 40),
        );
        notified.spawn(async move {
            let lost = within("the loss", lost).await;
            (lost.reason(), set.elapsed() >= lease)
        });
    }
    for (reason, in_time) in notified.join_all().await {
        assert_eq!((reason, in_time), (LostReason::LeaseOver, true));
    }
    client.flush(SOON).await.unwrap();
    assert!(guards.iter().all(|guard| !server.exists(&guard.node())));
    assert!(
        kept.iter()
            .all(|guard| guard.is_held() && server.exists(&guard.node()))
    );
}

/// The lease does not begin while the call still waits for other members.
// Shows: multi-lock-loss
#[tokio::test]
async fn multi_lock_lease_starts_when_complete() {
    const A: &str = "/multi/a";
    const B: &str = "/multi/b";
    let (server, [client, other]) = with_clients(start_empty(), calm).await;
    let all = InterProcessMultiLock::from_paths(&client, [A, B]).unwrap();
    let error = within("the answer", all.acquire_with_lease(SOON, Duration::ZERO))
        .await
        .unwrap_err();
    assert!(
        matches!(&error, AcquireError::InvalidLease { .. }),
        "{error}"
    );
    let held = within(
        "the lock",
        InterProcessMutex::new(&other, B).unwrap().lock(),
    )
    .await
    .unwrap();
    let lease = Duration::from_secs(2);
    let attempt = tokio::spawn(all.acquire_with_lease(SOON, lease));
    watches(&server, &client, &held.node()).await;
    let first = queue_at(&server, A);
    // The pause is longer than the lease.
    tokio::time::sleep(lease + lease / 4).await;
    held.release().await.unwrap();
    let guard = within("all members", attempt).await.unwrap().unwrap();
    assert_eq!(
        first,
        [guard.nodes()[0].as_str()],
        "the first was held all the time"
    );
    assert!(guard.lease_remaining().unwrap() <= lease && guard.is_held());
    guard.set_lease(Duration::from_secs(60)).unwrap();
    assert!(guard.lease_remaining().unwrap() > lease);
    guard.set_lease(Duration::from_millis(100)).unwrap();
    let lost = within("the end of the lease", guard.lost()).await;
    assert_eq!(lost.reason(), LostReason::LeaseOver);
    until(&server, "the release", |view| {
        view.children(A).is_empty() && view.children(B).is_empty()
    })
    .await;
    let error = within("the release", guard.release()).await.unwrap_err();
    assert!(
        matches!(&error, ReleaseError::Lost(lost) if lost.reason() == LostReason::LeaseOver),
        "{error}"
    );
}
