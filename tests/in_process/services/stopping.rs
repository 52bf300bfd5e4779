//! The stop of a service: what a drain waits for when replies are lost, and its cost.

use test_support::prelude::*;

/// A release that is under way is answered before the session closes.
// Shows: drain
#[tokio::test]
async fn unanswered_release_is_confirmed() {
    let (server, [client]) = with_clients(start(), connect).await;
    let guard = within("the grant", mutex(&client).lock()).await.unwrap();
    let lost = server.drop_reply(Match::op(Op::Delete).path_prefix(DIRECTORY), Loss::Reset);
    let drain = pending(client.drain(SOON));
    let release = tokio::spawn(guard.release());
    within("the drain", drain).await.unwrap();
    lost.remove();
    within("the release", release).await.unwrap().unwrap();
    until(&server, "the end of the session", |view| {
        view.sessions().is_empty()
    })
    .await;
}

/// The caller's timeout covers the wait for releases too.
#[tokio::test]
async fn late_release_ends_with_session() {
    let (server, [client]) = with_clients(start(), connect).await;
    let guard = within("the grant", mutex(&client).lock()).await.unwrap();
    let held = server.hold_request(Match::op(Op::Delete).path_prefix(DIRECTORY).always());
    let release = tokio::spawn(guard.release());
    within("the deletion", held.wait_hit()).await;
    let drain = tokio::spawn({
        let client = client.clone();
        async move { client.drain(Duration::from_millis(50)).await }
    });
    let released = within("the end of the release", release).await.unwrap();
    assert!(
        matches!(released, Err(ReleaseError::Lost(_))),
        "{released:?}"
    );
    held.release();
    within("the drain", drain).await.unwrap().unwrap();
}

/// A drain ends a leadership, and its work is dropped before another leads.
// Shows: drain
#[tokio::test]
async fn drained_leader_steps_down() {
    let (server, [ours, theirs]) = with_clients(start(), connect).await;
    let latch = LeaderLatch::new(&ours, "/leader").unwrap();
    let leads = |state: &LeadershipState| matches!(state, LeadershipState::Leader(_));
    within("the leadership", latch.watch_state().wait_for(leads))
        .await
        .unwrap();
    let next = LeaderLatch::new(&theirs, "/leader").unwrap();
    until(&server, "the next", |view| {
        view.children("/leader").len() == 2
    })
    .await;
    within("the drain", ours.drain(SOON)).await.unwrap();
    assert_eq!(latch.state(), LeadershipState::Closed);
    within("the next leadership", next.watch_state().wait_for(leads))
        .await
        .unwrap();
    within("the drain", theirs.drain(SOON)).await.unwrap();
}

/// The drain may have looked for guards before the grant. The caller of the granted call must not
/// begin its work.
// Shows: drain
#[tokio::test]
async fn drain_returns_untaken_grant() {
    let (_server, [client]) = with_clients(start(), calm).await;
    let both = InterProcessMultiLock::from_paths(&client, ["/multi/a", "/multi/b"]).unwrap();
    let tried = pending(both.try_lock());
    let mut place = within("the place", fair(&client).enqueue()).await.unwrap();
    // The lock is granted, and the place keeps it.
    assert_eq!(within("the position", place.position()).await.unwrap(), 0);
    let members =
        ["/multi/a", "/multi/b"].map(|path| InterProcessMutex::new(&client, path).unwrap());
    let is_held = || {
        members
            .iter()
            .all(InterProcessMutex::is_acquired_in_this_process)
    };
    let granted = || (tried.is_woken() && is_held()).then_some(());
    poll_until("the grants", SOON, granted).unwrap();
    let drain = pending(client.drain(SOON));
    let refused = within("the end of the try", tried).await.unwrap_err();
    assert_eq!(refused.kind(), Some(ErrorKind::Closed), "{refused:?}");
    let refused = within("the end of the place", place.lock())
        .await
        .unwrap_err();
    assert_eq!(refused.kind(), Some(ErrorKind::Closed), "{refused:?}");
    within("the drain", drain).await.unwrap();
}

/// The work of a selector whose leadership was granted, but not taken, must not begin.
// Shows: drain
#[tokio::test]
async fn drain_ends_untaken_leadership() {
    let (server, [client]) = with_clients(start(), calm).await;
    let selector = LeaderSelector::new(&client, "/leader").unwrap();
    let mut began = false;
    let leads = pending(selector.lead(|_| {
        began = true;
        std::future::ready(())
    }));
    let granted = || (leads.is_woken() && !client.holdings().is_empty()).then_some(());
    poll_until("the grant", SOON, granted).unwrap();
    let drain = pending(client.drain(SOON));
    let refused = within("the end of the selector", leads).await.unwrap_err();
    assert_eq!(refused.kind(), Some(ErrorKind::Closed), "{refused:?}");
    within("the drain", drain).await.unwrap();
    assert!(!began, "expected no work to begin after the drain");
    assert_eq!(server.children("/leader").len(), 0);
}

/// A drain does not wait for a caller that leaves without taking its grant.
// Shows: drain
#[tokio::test]
async fn dropped_grant_ends_a_drain() {
    let (_server, [client]) = with_clients(start(), calm).await;
    let lock = mutex(&client);
    let guard = within("the grant", lock.lock()).await.unwrap();
    let next = pending(lock.lock());
    guard.release().await.unwrap();
    assert!(next.is_woken() && lock.is_acquired_in_this_process());
    let drain = pending(client.drain(SOON));
    drop(next);
    within("the drain", drain).await.unwrap();
}

/// Without a guard, a drain is a close.
#[tokio::test]
async fn idle_drain_writes_nothing() {
    let (server, [client]) = with_clients(start(), calm).await;
    let id = session(&client);
    within("the grant", mutex(&client).lock())
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    let before = logged(&server, id, Op::Delete, LogKind::Applied).len();
    within("the drain", client.drain(SOON)).await.unwrap();
    assert_eq!(
        logged(&server, id, Op::Delete, LogKind::Applied).len(),
        before
    );
    assert!(server.sessions().is_empty());
}

/// A drain ends even if the client never has a session.
#[tokio::test]
async fn unconnected_client_is_drained() {
    let server = start();
    server.stop();
    let client = Client::connect_lazy(&server.connect_string()).unwrap();
    let mutex = InterProcessMutex::new(&client, DIRECTORY).unwrap();
    let waiter = pending(mutex.lock());
    within("the drain", client.drain(SOON)).await.unwrap();
    assert!(within("its end", waiter).await.is_err());
}

/// The wakers of other waiters are foreign code.
// Shows: drain, no-lock-across-await
#[tokio::test]
async fn panicking_wakers_block_no_drain() {
    let (_server, [client]) = with_clients(start(), connect).await;
    let fair = InterProcessFairLock::builder(&client, "/fair")
        .max_waiters(1_000)
        .build()
        .unwrap();
    let guard = within("the grant", fair.lock()).await.unwrap();
    let waker = broken_waker();
    let (mut broken, mut waiters) = (Vec::new(), Vec::new());
    // Waiters wait before, between and after those that panic.
    for _ in 0..60 {
        waiters.push(ByHand::new(fair.lock()).start());
        let mut waits = Box::pin(fair.lock());
        assert!(
            waits
                .as_mut()
                .poll(&mut Context::from_waker(&waker))
                .is_pending()
        );
        broken.push(waits);
    }
    let drain = pending(client.drain(SOON));
    for mut waits in waiters {
        waits.woken().await;
        let Poll::Ready(Err(error)) = waits.poll() else {
            panic!("expected the waiter to be refused, but it was granted the lock or still waits")
        };
        assert_eq!(error.kind(), Some(ErrorKind::Closed));
    }
    // A waiter that is not polled any more would be granted the lock and keep it.
    drop(broken);
    guard.release().await.unwrap();
    within("the drain", drain).await.unwrap();
}
