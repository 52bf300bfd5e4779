//! A call that is dropped, cut off or late leaves nothing behind, at whatever point that happens.
//! The tests combine every point of a call with every way of stopping it, for a mutex in each form,
//! a multi-lock and permits of a semaphore.

mod scene;

use ::simulation::scenario::tokio;
use scene::{Call, Case, LATE, LONG, Scene};
use test_support::prelude::*;

/// A fault of a session.
#[derive(Clone, Copy, Debug)]
enum Blow {
    Cut(Cut),
    Expired,
}

/// The ways of cutting a connection.
const CUTS: [Blow; 2] = [Blow::Cut(Cut::Fin), Blow::Cut(Cut::Reset)];

async fn strike(scene: &Scene, blow: Blow) {
    match blow {
        Blow::Cut(how) => assert!(scene.server.cut(scene.id, how)),
        Blow::Expired => scene.expire().await,
    }
}

/// The caller drops the call at the point, and then the fault `blow`, if there is one, happens.
async fn dropped(case: Case, call: impl FnOnce(&Scene) -> Call<AcquireError>, blow: Option<Blow>) {
    let mut scene = Scene::set(case).await;
    let attempt = ByHand::new(call(&scene)).start();
    scene.reached().await;
    drop(attempt);
    if let Some(blow) = blow {
        strike(&scene, blow).await;
    }
    scene.let_go();
    let how = format!("dropped, {blow:?}");
    scene.assert_nothing_left(&how).await;
    if !matches!(blow, Some(Blow::Expired)) {
        scene.assert_same_session(&how);
    }
}

/// The fault happens at the point. The call continues, in the next session if the fault ended its
/// own, and is granted the lock once.
async fn served(case: Case, call: impl FnOnce(&Scene) -> Call<AcquireError>, blow: Blow) {
    let mut scene = Scene::set(case).await;
    let attempt = tokio::spawn(call(&scene));
    scene.reached().await;
    strike(&scene, blow).await;
    scene.let_go();
    scene.clear_the_way().await;
    let how = format!("{blow:?}");
    scene.assert_served(attempt, &how).await;
    match blow {
        Blow::Cut(_) => scene.assert_same_session(&how),
        Blow::Expired => assert_ne!(scene.client.session_id(), Some(scene.id), "{case:?}"),
    }
    scene.assert_nothing_left(&how).await;
}

fn lock(scene: &Scene) -> Call<AcquireError> {
    scene.lock.acquire(Duration::MAX)
}

fn leased(scene: &Scene) -> Call<AcquireError> {
    scene.lock.acquire_with_lease(LONG)
}

#[tokio::test]
async fn dropped_before_the_first_poll() {
    let (server, [client]) = with_clients(start(), calm).await;
    let mutex = mutex(&client);
    server.reset_counters();
    drop(mutex.lock());
    drop(mutex.acquire(SOON));
    drop(mutex.try_lock());
    client.flush(SOON).await.unwrap();
    assert_eq!(server.counters().total_requests(), 0);
}

// Shows: attempt-outlives-caller, permits-unknown-outcome, multi-lock
#[tokio::test]
async fn dropped_at_every_point() {
    for case in Case::all() {
        dropped(case, lock, None).await;
    }
}

/// `flush` is called while the dropped call is still held up at the point, and returns only when
/// nothing is left of the call.
// Shows: flush, permits-unknown-outcome, multi-lock
#[tokio::test]
async fn flush_waits_for_dropped_call() {
    for case in Case::all() {
        let mut scene = Scene::set(case).await;
        let attempt = ByHand::new(lock(&scene)).start();
        scene.reached().await;
        drop(attempt);
        let client = scene.client.clone();
        let mut flush = ByHand::new(async move { client.flush(SOON).await });
        let early = flush.poll();
        scene.let_go();
        if early.is_pending() {
            within(&scene.what("flushed"), flush.finished())
                .await
                .unwrap();
        }
        scene.assert_only_others("flushed").await;
        scene.assert_nothing_left("flushed").await;
    }
}

/// Returns a scene in which the deadline of a call has passed at the point. The call returns its
/// error while it is still held up there.
async fn timed_out(case: Case) -> Scene {
    let mut scene = Scene::set(case).await;
    let attempt = tokio::spawn(scene.lock.acquire(LATE));
    tokio::time::timeout(LATE / 2, scene.reached())
        .await
        .unwrap();
    let error = within(&scene.what("timed out"), attempt)
        .await
        .unwrap()
        .unwrap_err();
    scene.assert_late(&error);
    scene
}

// Shows: attempt-outlives-caller, deadline, permits-unknown-outcome, multi-lock
#[tokio::test]
async fn timed_out_at_every_point() {
    for case in Case::all() {
        let mut scene = timed_out(case).await;
        scene.let_go();
        scene.assert_nothing_left("timed out").await;
        scene.assert_same_session("timed out");
    }
}

#[tokio::test]
async fn expired_after_timeout_at_every_point() {
    for case in Case::all() {
        let mut scene = timed_out(case).await;
        scene.expire().await;
        scene.let_go();
        scene.assert_nothing_left("timed out and expired").await;
    }
}

// Shows: attempt-outlives-caller, session-end, permits-unknown-outcome, multi-lock-loss
#[tokio::test]
async fn expired_at_every_point() {
    for case in Case::all() {
        served(case, lock, Blow::Expired).await;
    }
}

// Shows: attempt-outlives-caller, permits-unknown-outcome, multi-lock
#[tokio::test]
async fn cut_at_every_point() {
    for blow in CUTS {
        for case in Case::connected() {
            served(case, lock, blow).await;
        }
    }
}

/// A call with a lease leaves nothing behind when it is dropped, when its session expires, and when
/// its connection is cut.
// Shows: lease-over
#[tokio::test]
async fn leased_at_every_point() {
    for case in Case::all() {
        dropped(case, leased, None).await;
        served(case, leased, Blow::Expired).await;
    }
    for case in Case::connected() {
        served(case, leased, Blow::Cut(Cut::Reset)).await;
    }
}

/// The caller stops polling at the point without dropping the call: what the call is granted is
/// given back at the end of its lease.
// Shows: lease-over
#[tokio::test]
async fn unpolled_with_lease_at_every_point() {
    for case in Case::all() {
        let mut scene = Scene::set(case).await;
        let attempt = ByHand::new(scene.lock.acquire_with_lease(Duration::from_millis(50))).start();
        scene.reached().await;
        scene.let_go();
        scene.clear_the_way().await;
        attempt.woken().await;
        scene.until_free("the end of the lease").await;
        scene.assert_nothing_left("forgotten").await;
        drop(attempt);
    }
}

/// The caller has dropped the call, and then the session expires: the call does not continue in the
/// next session.
#[tokio::test]
async fn dropped_and_expired_at_every_point() {
    for case in Case::all() {
        dropped(case, lock, Some(Blow::Expired)).await;
    }
}

/// The caller has dropped the call, and then the connection is cut: the outcome of its requests is
/// settled over the next connection.
// Shows: node-owners
#[tokio::test]
async fn dropped_and_cut_at_every_point() {
    for blow in CUTS {
        for case in Case::connected() {
            dropped(case, lock, Some(blow)).await;
        }
    }
}

/// The client is closed at the point.
// Shows: permits-unknown-outcome
#[tokio::test]
async fn closed_at_every_point() {
    for case in Case::all() {
        let mut scene = Scene::set(case).await;
        let attempt = tokio::spawn(lock(&scene));
        scene.reached().await;
        let client = scene.client.clone();
        let closing = tokio::spawn(async move { client.close().await });
        scene.let_go();
        let what = scene.what("closed");
        within(&what, closing).await.unwrap().unwrap();
        match within(&what, attempt).await.unwrap() {
            Err(error) => assert_eq!(error.kind(), Some(ErrorKind::Closed), "{what}: {error}"),
            // The lock was granted just before the client was closed, and is lost.
            Ok(granted) => assert!(!granted.guard.is_held(), "{what}"),
        }
        scene.assert_clean_for_others("closed").await;
    }
}

/// A call that tries is dropped while it looks, looks again, or creates.
// Shows: try-lock, try-permits, multi-lock-try
#[tokio::test]
async fn try_dropped_at_every_point() {
    for case in Case::tries() {
        let mut scene = Scene::set(case).await;
        let attempt = ByHand::new(scene.lock.try_lock()).start();
        scene.reached().await;
        drop(attempt);
        scene.let_go();
        let what = scene.what("dropped");
        within(&what, scene.client.flush(SOON)).await.unwrap();
        scene.assert_only_others("dropped").await;
        match (case.holder(), within(&what, scene.lock.try_lock()).await) {
            (Some(busy), Err(TryLockError::WouldBlock { path, .. })) => {
                assert_eq!(path, busy, "{what}")
            }
            (None, Ok(granted)) => granted.guard.release().await.unwrap(),
            (_, result) => panic!("{what}: {result:?}"),
        }
        scene.assert_nothing_left("dropped").await;
    }
}

/// A grant that the caller does not take is given back.
// Shows: attempt-outlives-caller
#[tokio::test]
async fn dropped_with_the_grant_in_flight() {
    let (server, [client, holder]) = with_clients(start(), calm).await;
    for waits in [false, true] {
        let held = if waits {
            Some(within("the holder", mutex(&holder).lock()).await.unwrap())
        } else {
            None
        };
        let attempt = ByHand::new(mutex(&client).lock()).start();
        if let Some(held) = held {
            until(&server, "the watch", |view| view.watches() == 1).await;
            held.release().await.unwrap();
        }
        // The grant is ready, and the future is not polled again.
        attempt.woken().await;
        assert_eq!(server.children(DIRECTORY).len(), 1);
        drop(attempt);
        client.flush(SOON).await.unwrap();
        assert_eq!(server.children(DIRECTORY), [""; 0]);
        assert!(!mutex(&client).is_acquired_in_this_process());
        assert_clean(&server, "the grant in flight").await;
    }
}

/// The future is dropped when its timeout error is ready and not yet polled.
#[tokio::test]
async fn dropped_with_the_refusal_in_flight() {
    let (server, [client, holder]) = with_clients(start(), calm).await;
    let held = within("the holder", mutex(&holder).lock()).await.unwrap();
    let attempt = ByHand::new(mutex(&client).acquire(Duration::from_millis(30))).start();
    attempt.woken().await;
    drop(attempt);
    client.flush(SOON).await.unwrap();
    assert_eq!(queue(&server), [held.node()]);
    held.release().await.unwrap();
    assert_clean(&server, "the refusal in flight").await;
}
