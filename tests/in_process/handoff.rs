//! The hand-off of a mutex, in memory, among the tasks of one client: without a request, in order
//! of arrival, within bounds, and only while the hold is healthy.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::pin::Pin;

use test_support::prelude::*;

const LONG: Duration = Duration::from_secs(3600);

fn bounded(client: &Client, max: u32, time: Duration) -> InterProcessMutex {
    InterProcessMutex::builder(client, DIRECTORY)
        .hand_off(max, time)
        .build()
        .unwrap()
}

/// Returns a mutex whose hand-off has no bound that a test could reach.
fn unbounded(client: &Client) -> InterProcessMutex {
    bounded(client, u32::MAX, LONG)
}

type Waiting = task::Spawn<Pin<Box<dyn Future<Output = Acquired> + Send>>>;

/// Returns this many waiters in order of arrival, each polled once.
fn waiting(lock: &InterProcessMutex, count: usize) -> Vec<Waiting> {
    (0..count)
        .map(|_| {
            let future: Pin<Box<dyn Future<Output = Acquired> + Send>> = Box::pin(lock.lock());
            pending(future)
        })
        .collect()
}

fn numbers(guard: &LockGuard) -> (i64, u64) {
    (
        guard.fencing_token().zxid(),
        guard.fencing_token().counter(),
    )
}

/// The next caller has the lock before the release returns, with the same node and without a
/// request.
// Shows: hand-off
#[tokio::test]
async fn hand_off_is_free_and_ordered() {
    let (server, [client]) = with_clients(start(), calm).await;
    let lock = unbounded(&client);
    let first = within("the grant", lock.lock()).await.unwrap();
    let node = first.node();
    let (zxid, _) = numbers(&first);
    let mut waiting = waiting(&lock, 100);
    server.reset_counters();
    let mut guard = first;
    for position in 0..waiting.len() {
        let waits = waiting.split_at_mut(position).1.split_first_mut().unwrap();
        assert!(!waits.0.is_woken());
        if position % 2 == 0 {
            within("the release", guard.release()).await.unwrap();
        } else {
            drop(guard);
        }
        assert!(waits.0.is_woken());
        // Tokio's cooperative budget ends a poll of a task that reads a channel again and again.
        tokio::task::yield_now().await;
        guard = assert_ready!(waits.0.poll()).unwrap();
        assert!(waits.1.iter_mut().all(|waits| !waits.is_woken()));
        assert_eq!(guard.node(), node);
        assert_eq!(numbers(&guard), (zxid, position as u64 + 1));
        assert!(guard.is_held() && lock.is_acquired_in_this_process());
        assert_eq!(lock.path(), DIRECTORY);
    }
    assert_eq!(server.counters().total_requests(), 0);
    assert_eq!(lock.participants().await.unwrap(), [guard.node()]);
    guard.release().await.unwrap();
    assert!(!lock.is_acquired_in_this_process());
    clean(&server, &[&client]).await;
}

/// A caller that leaves is skipped, whether it waits or the lock is being handed to it.
// Shows: hand-off
#[tokio::test]
async fn departed_waiters_are_skipped() {
    let (server, [client]) = with_clients(start(), calm).await;
    let lock = unbounded(&client);
    let guard = within("the grant", lock.lock()).await.unwrap();
    server.reset_counters();
    let mut line = waiting(&lock, 2_002);
    let mut last = line.pop().unwrap();
    // Each waiter in turn is granted the lock, and never takes it.
    drop(guard);
    assert!(line.first().unwrap().is_woken());
    drop(line);
    let guard = assert_ready!(last.poll()).unwrap();
    assert_eq!(server.counters().total_requests(), 0);
    // With no waiter left, a release deletes the node.
    guard.release().await.unwrap();
    until(&server, "an empty directory", |view| {
        view.children(DIRECTORY).is_empty()
    })
    .await;
    clean(&server, &[&client]).await;
}

/// When all callers have left, the attempt ends too, and a flush waits for that.
// Shows: hand-off
#[tokio::test]
async fn abandoned_attempt_is_cancelled() {
    let (server, [client, other]) = with_clients(start(), calm).await;
    let held = hold(&other).await;
    let lock = unbounded(&client);
    let line = waiting(&lock, 3);
    until(&server, "the watch", |view| view.watches() == 1).await;
    drop(line);
    client.flush(SOON).await.unwrap();
    assert_eq!(queue(&server), [held.node()]);
    // Callers that come later wait again.
    let mut line = waiting(&lock, 1);
    until(&server, "the watch", |view| view.watches() == 1).await;
    held.release().await.unwrap();
    within("the grant", line.pop().unwrap())
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    clean(&server, &[&client]).await;
}

/// A caller that arrives before the task knows of the end of the cancelled attempt waits for
/// another attempt.
// Shows: hand-off
#[tokio::test]
async fn caller_after_abandoned_attempt_is_served() {
    let (server, [client, other]) = with_clients(start(), calm).await;
    for _ in 0..20 {
        let held = hold(&other).await;
        let lock = unbounded(&client);
        let line = waiting(&lock, 1);
        until(&server, "the watch", |view| view.watches() == 1).await;
        drop(line);
        let next = waiting(&lock, 1).pop().unwrap();
        held.release().await.unwrap();
        within("the grant", next)
            .await
            .unwrap()
            .release()
            .await
            .unwrap();
    }
    clean(&server, &[&client]).await;
}

/// At the deadline the error names the contender ahead, and says how long this process has itself
/// held the lock.
// Shows: hand-off
#[tokio::test]
async fn deadline_error_names_contenders_ahead() {
    let (server, [client, other]) = with_clients(start(), calm).await;
    let lock = unbounded(&client);
    let guard = within("the grant", lock.lock()).await.unwrap();
    let _before = waiting(&lock, 1);
    let asked = Duration::from_millis(30);
    match within("the end", lock.acquire(asked)).await.unwrap_err() {
        AcquireError::TimedOut {
            timeout,
            waited,
            contention:
                Contention {
                    ahead,
                    first,
                    holder,
                    ..
                },
            ..
        } => {
            assert!(
                timeout == asked && waited >= asked,
                "{timeout:?} {waited:?}"
            );
            assert_eq!((ahead, first), (2, Some(guard.node())));
            assert_eq!(holder.unwrap().location().file(), file!());
        }
        error => panic!("{error}"),
    }
    drop((_before, guard));
    let theirs = within("the grant", mutex(&other).lock()).await.unwrap();
    match timed_out(|timeout| lock.acquire(timeout)).await {
        AcquireError::TimedOut {
            contention:
                Contention {
                    ahead,
                    first,
                    holder,
                    ..
                },
            ..
        } => {
            assert_eq!((ahead, first), (1, Some(theirs.node())));
            assert!(holder.is_none());
        }
        error => panic!("{error}"),
    }
    client.flush(SOON).await.unwrap();
    assert_eq!(queue(&server), [theirs.node()]);
    drop(theirs);
    clean(&server, &[&other]).await;
}

/// The error says that no server answered, not that another contender is ahead.
// Shows: hand-off
#[tokio::test]
async fn silent_server_is_no_contention() {
    let (server, [client]) = with_clients(start(), calm).await;
    let lock = unbounded(&client);
    let gate = server.hold_request(Match::op(Op::Create).path_prefix(format!("{DIRECTORY}/")));
    let asked = Duration::from_millis(30);
    let (first, second) = tokio::join!(lock.acquire(asked), lock.acquire(asked));
    for error in [first.unwrap_err(), second.unwrap_err()] {
        assert_eq!(error.kind(), Some(ErrorKind::Connection), "{error}");
    }
    gate.release();
    clean(&server, &[&client]).await;
}

/// An error of the attempt is returned to each caller that waited when the attempt began.
// Shows: hand-off
#[tokio::test]
async fn failed_attempt_fails_all_waiters() {
    let server = start();
    server
        .create(&format!("{DIRECTORY}/x__lock__0000000000"), "")
        .unwrap();
    let client = calm(&server).await;
    let lock = unbounded(&client);
    for waits in waiting(&lock, 3) {
        let error = within("the end", waits).await.unwrap_err();
        assert_eq!(error.kind(), Some(ErrorKind::MixedRecipes), "{error}");
    }
    server
        .delete(&format!("{DIRECTORY}/x__lock__0000000000"))
        .unwrap();
    within("the grant", lock.lock())
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    client.close().await.unwrap();
    let error = within("the end", lock.lock()).await.unwrap_err();
    assert_eq!(error.kind(), Some(ErrorKind::Closed), "{error}");
}

/// A caller that arrived while the attempt was under way has a deadline and retries of its own.
// Shows: hand-off
#[tokio::test]
async fn error_spares_later_callers() {
    let server = start();
    let other_kind = format!("{DIRECTORY}/x__lock__0000000000");
    server.create(&other_kind, "").unwrap();
    let client = calm(&server).await;
    let lock = unbounded(&client);
    let gate = server.hold_reply(Match::op(Op::GetChildren).session(session(&client)));
    let first = waiting(&lock, 1).pop().unwrap();
    within("the list", gate.wait_hit()).await;
    let later = waiting(&lock, 1).pop().unwrap();
    server.delete(&other_kind).unwrap();
    gate.release();
    let error = within("the end", first).await.unwrap_err();
    assert_eq!(error.kind(), Some(ErrorKind::MixedRecipes), "{error}");
    within("the grant", later)
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    clean(&server, &[&client]).await;
}

// Shows: hand-off, try-lock
#[tokio::test]
async fn try_waits_for_nobody() {
    let (server, [client, other]) = with_clients(start(), calm).await;
    let lock = unbounded(&client);
    let guard = within("the try", lock.try_lock()).await.unwrap();
    server.reset_counters();
    match within("the try", lock.try_lock()).await.unwrap_err() {
        TryLockError::WouldBlock {
            contention:
                Contention {
                    ahead,
                    first,
                    holder,
                    ..
                },
            ..
        } => {
            assert_eq!((ahead, first), (1, Some(guard.node())));
            assert!(holder.is_some());
        }
        error => panic!("{error}"),
    }
    assert_eq!(server.counters().total_requests(), 0);
    let mut line = waiting(&lock, 1);
    drop(guard);
    let guard = assert_ready!(line.pop().unwrap().poll()).unwrap();
    guard.release().await.unwrap();
    let theirs = hold(&other).await;
    let error = within("the try", lock.try_lock()).await.unwrap_err();
    assert!(matches!(error, TryLockError::WouldBlock { .. }), "{error}");
    assert_eq!(queue(&server), [theirs.node()]);
    // A caller that arrives during a try continues to wait after the try has failed.
    let gate = server.hold_reply(Match::op(Op::GetChildren).session(session(&client)));
    let tries = pending(lock.try_lock());
    within("the list", gate.wait_hit()).await;
    let mut line = waiting(&lock, 1);
    gate.release();
    assert!(matches!(
        within("the try", tries).await,
        Err(TryLockError::WouldBlock { .. })
    ));
    until(&server, "our node", |view| {
        view.children(DIRECTORY).len() == 2
    })
    .await;
    theirs.release().await.unwrap();
    within("the grant", line.pop().unwrap())
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    clean(&server, &[&client]).await;
}

/// A lost lock is not handed over: the waiters queue with another node.
// Shows: hand-off
#[tokio::test]
async fn lost_lock_is_not_handed_over() {
    let (server, [client]) = with_clients(start(), calm).await;
    let lock = unbounded(&client);
    // The session ends.
    let guard = within("the grant", lock.lock()).await.unwrap();
    let mut line = waiting(&lock, 2).into_iter();
    server.expire_session(session(&client));
    within("the loss", guard.lost()).await;
    // The lock is granted although the guard still exists.
    let next = within("the grant", line.next().unwrap()).await.unwrap();
    assert_ne!(next.node(), guard.node());
    assert!(next.fencing_token() > guard.fencing_token());
    drop(guard);
    assert!(next.is_held());
    // The caller's lease ends.
    let after = within("the grant", async {
        next.set_lease(Duration::ZERO).unwrap_err();
        line.next().unwrap().await
    });
    let after = after.await.unwrap();
    assert_ne!(after.node(), next.node());
    assert_eq!(next.lost().await.reason(), LostReason::LeaseOver);
    // Another process deletes the node.
    let mut line = waiting(&lock, 1).into_iter();
    server.delete(&after.node()).unwrap();
    let ask = after.transaction().create("/never", "").commit();
    within("the loss", ask).await.unwrap_err();
    let last = within("the grant", line.next().unwrap()).await.unwrap();
    assert_ne!(last.node(), after.node());
    drop((next, after));
    last.release().await.unwrap();
    // A live handle keeps the watch of a busy lock's directory for a while.
    drop(lock);
    clean(&server, &[&client]).await;
}

/// If it is in doubt whether the servers keep the session, or the outcome of a transaction is
/// unknown, the next caller is granted the lock with another node.
// Shows: hand-off
#[tokio::test]
async fn nothing_is_handed_over_in_doubt() {
    let (server, [client]) = with_clients(start(), calm).await;
    let id = session(&client);
    let lock = unbounded(&client);
    let guard = within("the grant", lock.lock()).await.unwrap();
    let mut line = waiting(&lock, 2).into_iter();
    server.refuse_connections(true);
    server.cut(id, Cut::Reset);
    within("the doubt", guard.state_changed(LockState::Held)).await;
    assert_eq!(guard.state(), LockState::Suspended);
    let node = guard.node();
    drop(guard);
    let mut next = line.next().unwrap();
    assert_pending!(next.poll());
    assert!(!lock.is_acquired_in_this_process());
    server.refuse_connections(false);
    let guard = within("the grant", next).await.unwrap();
    assert_ne!(guard.node(), node);
    // The client does not know the outcome of the transaction.
    let gate = server.hold_request(Match::op(Op::Multi).session(id));
    let write = pending(guard.transaction().create("/written", "").commit());
    within("the transaction", gate.wait_hit()).await;
    drop(write);
    let node = guard.node();
    drop(guard);
    let mut next = line.next().unwrap();
    assert_pending!(next.poll());
    gate.release();
    let guard = within("the grant", next).await.unwrap();
    assert_ne!(guard.node(), node);
    assert!(
        server.exists("/written"),
        "expected the commit before the next grant"
    );
    guard.release().await.unwrap();
    // A live handle keeps the watch of a busy lock's directory for a while.
    drop(lock);
    clean(&server, &[&client]).await;
}

/// Each hold has its own lease, its own count, and the source line that acquired it.
// Shows: hand-off
#[tokio::test]
async fn each_holder_has_its_own_hold() {
    let (server, [client]) = with_clients(start(), calm).await;
    let lock = unbounded(&client);
    let guard = within("the grant", lock.acquire_with_lease(LONG, LONG))
        .await
        .unwrap();
    let lease = Duration::from_secs(1);
    let mut short = pending(lock.acquire_with_lease(LONG, lease));
    let mut plain = waiting(&lock, 1).pop().unwrap();
    let shared = guard.reenter().unwrap();
    let lost = guard.lost();
    drop(guard);
    assert_pending!(short.poll());
    assert_eq!(
        (shared.hold_count(), shared.lease_remaining().is_some()),
        (1, true)
    );
    drop(shared);
    let guard = assert_ready!(short.poll()).unwrap();
    assert!(
        guard
            .lease_remaining()
            .is_none_or(|remaining| remaining <= lease)
    );
    drop(lost);
    // The lease ends only this hold, and the next hold has a separate node.
    assert_eq!(
        within("the end", guard.lost()).await.reason(),
        LostReason::LeaseOver
    );
    let next = within("the grant", async {
        std::future::poll_fn(|_| plain.poll()).await
    });
    drop(next);
    let guard = within("the grant", plain).await.unwrap();
    assert!(guard.lease_remaining().is_none());
    guard.release().await.unwrap();
    clean(&server, &[&client]).await;
}

/// A request to revoke ends the hand-offs; the holder decides when it releases the lock.
// Shows: hand-off
#[tokio::test]
async fn revocation_request_ends_hand_offs() {
    let (server, [client, other]) = with_clients(start(), calm).await;
    let lock = unbounded(&client);
    let guard = within("the grant", lock.lock()).await.unwrap();
    let mut line = waiting(&lock, 2).into_iter();
    drop(guard);
    let guard = assert_ready!(line.next().unwrap().poll()).unwrap();
    let revoked = tokio::spawn(guard.revoked());
    other.attempt_revoke(&guard.node()).await.unwrap();
    within("the request", revoked).await.unwrap();
    let node = guard.node();
    guard.release().await.unwrap();
    let guard = within("the grant", line.next().unwrap()).await.unwrap();
    assert_ne!(guard.node(), node);
    drop(guard);
    clean(&server, &[&client]).await;
}

/// Other locks of the same client at the path do not take part in the hand-off.
// Shows: hand-off
#[tokio::test]
async fn other_locks_have_their_own_nodes() {
    let (server, [client]) = with_clients(start(), calm).await;
    let lock = bounded(&client, 2, LONG);
    let guard = within("the grant", lock.lock()).await.unwrap();
    let fair = tokio::spawn(fair(&client).lock());
    until(&server, "its node", |view| {
        view.children(DIRECTORY).len() == 2
    })
    .await;
    let both = InterProcessMultiLock::new(&[&lock]).unwrap();
    let all = tokio::spawn(both.lock());
    until(&server, "its node", |view| {
        view.children(DIRECTORY).len() == 3
    })
    .await;
    let mut line = waiting(&lock, 2).into_iter();
    drop(guard);
    let guard = assert_ready!(line.next().unwrap().poll()).unwrap();
    drop(guard);
    granted(fair).await.release().await.unwrap();
    within("the grant", all)
        .await
        .unwrap()
        .unwrap()
        .release()
        .await
        .unwrap();
    within("the grant", line.next().unwrap())
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    clean(&server, &[&client]).await;
}

/// A heartbeat checks the node for the holder at the time of sending. The answer concerns the node,
/// so it applies to the current holder. If holds are shorter than a round trip, every answer
/// arrives after the release.
// Shows: hand-off
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heartbeats_answer_reaches_current_holder() {
    let server = start();
    // The connection outlives a reply that is held for 3 s.
    let client = connect_for(&server, Duration::from_secs(24)).await;
    let lock = unbounded(&client);
    let guard = within("the grant", lock.lock()).await.unwrap();
    let mut line = waiting(&lock, 1);
    let gate = server.hold_reply(Match::op(Op::Multi).session(session(&client)));
    server.delete(&guard.node()).unwrap();
    within("the heartbeat", gate.wait_hit()).await;
    drop(guard);
    let next = assert_ready!(line.pop().unwrap().poll()).unwrap();
    gate.release();
    assert_eq!(
        within("the loss", next.lost()).await.reason(),
        LostReason::NodeDeleted
    );
    let answered = |entry: &&LogEntry| entry.op == Op::Multi && entry.kind == LogKind::Applied;
    assert_eq!(
        server.log().iter().filter(answered).count(),
        1,
        "another heartbeat was needed to notice the deletion"
    );
    drop(next);
    clean(&server, &[&client]).await;
}
