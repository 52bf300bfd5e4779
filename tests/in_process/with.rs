//! Work that runs under a lock, in one call, and locks by prefix and key.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use test_support::prelude::*;

const WAIT: Duration = Duration::from_secs(60);

fn stock(client: &Client) -> InterProcessMutex {
    InterProcessMutex::keyed(client, "/stock", "a/b").unwrap()
}

#[tokio::test]
async fn every_lock_runs_work() {
    let (_server, [client]) = with_clients(start_empty(), connect).await;
    /// Runs the work in a task, which requires the future to be `Send`.
    macro_rules! run {
        ($lock:expr) => {{
            let lock = $lock;
            let work = async move { lock.with(WAIT, async |guard| guard.is_held()).await };
            let (was_held, released) = within("the work", tokio::spawn(work))
                .await
                .unwrap()
                .unwrap();
            assert!(
                was_held && released.is_ok(),
                "{}: {was_held}, {released:?}",
                stringify!($lock)
            );
        }};
    }
    let hotels = InterProcessReadWriteLock::keyed(&client, "/hotels", 7).unwrap();
    run!(stock(&client));
    run!(InterProcessFairLock::keyed(&client, "/fair", 7).unwrap());
    run!(hotels.read_lock());
    run!(hotels.write_lock());
    run!(InterProcessSemaphore::keyed(&client, "/calls", 7, 2).unwrap());
    run!(InterProcessMultiLock::keyed(&client, "/accounts", [4, 17]).unwrap());
    assert!(!stock(&client).is_locked().await.unwrap());
}

#[tokio::test]
async fn loss_shows_beside_the_output() {
    let (server, [client]) = with_clients(start_empty(), connect).await;
    let lock = stock(&client);
    let work = lock.with(WAIT, async |guard| {
        server.expire_session(session(&client));
        guard.lost().await;
        "sold"
    });
    let (output, released) = within("the work", work).await.unwrap();
    assert_eq!(output, "sold");
    let Err(ReleaseError::Lost(lost)) = released else {
        panic!("{released:?}")
    };
    assert_eq!(
        (lost.reason(), lost.path()),
        (LostReason::SessionExpired, "/stock/a%2Fb")
    );
}

#[tokio::test]
async fn work_waits_for_the_lock() {
    let (_server, [client, other]) = with_clients(start_empty(), connect).await;
    let held = stock(&other).lock().await.unwrap();
    let (lock, called) = (stock(&client), AtomicBool::new(false));
    let work = async |wait| {
        lock.with(wait, async |_| called.store(true, Ordering::SeqCst))
            .await
    };
    let error = timed_out(work).await;
    assert!(matches!(error, AcquireError::TimedOut { .. }), "{error}");
    assert!(!called.into_inner());
    drop(held);
}

/// When the call is dropped, another client is granted the lock only after the work was dropped.
#[tokio::test]
async fn dropped_call_drops_work_before_release() {
    let (server, [client, other]) = with_clients(start_empty(), connect).await;
    let (works, begun) = oneshot::channel();
    let (alive, mut dropped) = oneshot::channel::<()>();
    let lock = stock(&client);
    let call = tokio::spawn(async move {
        let work = lock.with(WAIT, async move |_| {
            let _alive = alive;
            works.send(()).unwrap();
            std::future::pending::<()>().await;
        });
        work.await.map(drop)
    });
    within("the work", begun).await.unwrap();
    let next = tokio::spawn(stock(&other).lock());
    until(&server, "the other's wait", |view| {
        view.children("/stock/a%2Fb").len() == 2
    })
    .await;
    assert!(!next.is_finished());
    call.abort();
    let guard = within("the grant", next).await.unwrap().unwrap();
    assert_eq!(
        dropped.try_recv(),
        Err(oneshot::error::TryRecvError::Closed)
    );
    guard.release().await.unwrap();
}

#[tokio::test]
async fn keys_are_escaped_and_differ() {
    let (_server, [client]) = with_clients(start_empty(), connect).await;
    for (key, path) in [
        ("a/b", "/s/a%2Fb"),
        ("..", "/s/%2E%2E"),
        ("", "/s/%"),
        ("\u{1f600}", "/s/%F0%9F%98%80"),
    ] {
        assert_eq!(
            InterProcessMutex::keyed(&client, "/s", key).unwrap().path(),
            path
        );
        let of_two = InterProcessMultiLock::keyed(&client, "/s", [key, "other"]).unwrap();
        assert_eq!(of_two.paths(), [path, "/s/other"]);
        assert_eq!(
            InterProcessSemaphore::keyed(&client, "/p", key, 1)
                .unwrap()
                .path()[2..],
            path[2..]
        );
    }
    assert_eq!(
        InterProcessMutex::keyed(&client, "", "root")
            .unwrap()
            .path(),
        "/root"
    );
    InterProcessMutex::keyed(&client, "no/slash", "a").unwrap_err();
}

/// A query after the release in the same session needs no `flush` before it.
#[tokio::test]
async fn look_after_drop_sees_free_lock() {
    let (_server, [client]) = with_clients(start_empty(), connect).await;
    let (lock, calls) = (
        stock(&client),
        InterProcessSemaphore::keyed(&client, "/calls", 7, 2).unwrap(),
    );
    for _ in 0..50 {
        drop(lock.lock().await.unwrap());
        assert!(lock.holders().await.unwrap().is_empty());
        drop(lock.lock().await.unwrap());
        assert!(!lock.is_locked().await.unwrap());
        drop(calls.acquire(WAIT).await.unwrap());
        assert!(calls.holders().await.unwrap().is_empty());
    }
}
