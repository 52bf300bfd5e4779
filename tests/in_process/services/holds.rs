//! The holds of a client's guards, listed and awaited.

use test_support::prelude::*;

/// Waits for a hold of each recipe, from before the lock is asked for, and for the end of the hold.
#[tokio::test]
async fn holds_of_every_recipe_are_seen() {
    let (_server, [client]) = with_clients(start(), connect).await;
    let all = [
        "/mutex", "/shared", "/fair", "/read", "/write", "/permits", "/a", "/b",
    ];
    let seen = all.map(|path| {
        let holds = client.clone();
        pending(async move { holds.wait_until_held(path).await })
    });
    let mutex = |path| InterProcessMutex::builder(&client, path);
    let semaphore = InterProcessSemaphore::new(&client, "/permits", 2).unwrap();
    let read_write = |path| InterProcessReadWriteLock::new(&client, path).unwrap();
    let guards = (
        mutex("/mutex").build().unwrap().lock().await.unwrap(),
        mutex("/shared")
            .hand_off(10, SOON)
            .build()
            .unwrap()
            .lock()
            .await
            .unwrap(),
        InterProcessFairLock::new(&client, "/fair")
            .unwrap()
            .lock()
            .await
            .unwrap(),
        read_write("/read").read_lock().lock().await.unwrap(),
        read_write("/write").write_lock().lock().await.unwrap(),
        semaphore.acquire(SOON).await.unwrap(),
        InterProcessMultiLock::from_paths(&client, ["/b", "/a"])
            .unwrap()
            .lock()
            .await
            .unwrap(),
    );
    for (seen, path) in seen.into_iter().zip(all) {
        assert!(seen.is_woken(), "{path}");
        assert_eq!(within(path, seen).await.unwrap().path(), path);
    }
    let listed: Vec<_> = client
        .holdings()
        .iter()
        .map(|holding| holding.path().to_owned())
        .collect();
    assert_eq!(
        listed,
        [
            "/a", "/b", "/fair", "/mutex", "/permits", "/read", "/shared", "/write"
        ]
    );
    assert!(
        client
            .holdings()
            .iter()
            .all(|holding| holding.location().file() == file!())
    );
    let released = all.map(|path| {
        let holds = client.clone();
        pending(async move { holds.wait_until_released(path).await })
    });
    drop(guards);
    for (released, path) in released.into_iter().zip(all) {
        within(path, released).await;
    }
    assert!(client.holdings().is_empty());
    client.close().await.unwrap();
}

/// Asserts that `wait_until_held` waits until the caller of a granted lock has its guard: a session
/// that expires before that only delays the call.
async fn not_before_the_guard<G, F: Future<Output = Acquired<G>>>(
    client: &Client,
    path: &str,
    acquire: impl Fn() -> F,
) {
    let mut acquire = ByHand::pending(acquire);
    acquire.woken().await;
    assert_eq!(client.holdings().len(), 1, "{path}");
    let mut seen = task::spawn(client.wait_until_held(path));
    assert_pending!(seen.poll(), "{path}");
    let Poll::Ready(Ok(guard)) = acquire.poll() else {
        panic!("{path}: woken for something else")
    };
    assert!(within(path, seen).await.is_some());
    drop(guard);
    client.wait_until_released(path).await;
}

#[tokio::test]
async fn grant_is_hidden_until_guard_exists() {
    let (_server, [client]) = with_clients(start(), connect).await;
    let mutex = |path| InterProcessMutex::builder(&client, path);
    let semaphore = InterProcessSemaphore::new(&client, "/permits", 2).unwrap();
    let several = InterProcessMultiLock::from_paths(&client, ["/a"]).unwrap();
    let lock = mutex("/mutex").build().unwrap();
    not_before_the_guard(&client, "/mutex", || lock.lock()).await;
    let shared = mutex("/shared").hand_off(10, SOON).build().unwrap();
    not_before_the_guard(&client, "/shared", || shared.lock()).await;
    not_before_the_guard(&client, "/permits", || semaphore.acquire(SOON)).await;
    not_before_the_guard(&client, "/a", || several.lock()).await;
    client.close().await.unwrap();
}

#[tokio::test]
async fn lost_lock_ends_despite_kept_guard() {
    let (server, [client]) = with_clients(start(), connect).await;
    let guard = InterProcessMutex::new(&client, "/mutex")
        .unwrap()
        .lock()
        .await
        .unwrap();
    let released = pending(client.wait_until_released("/mutex"));
    server.expire_session(session(&client));
    within("the loss", released).await;
    assert!(!guard.is_held() && client.holdings().is_empty());
    client.close().await.unwrap();
}

#[tokio::test]
async fn closed_client_holds_nothing() {
    let (_server, [client]) = with_clients(start(), connect).await;
    let _guard = InterProcessMutex::new(&client, "/mutex")
        .unwrap()
        .lock()
        .await
        .unwrap();
    let never = pending(client.wait_until_held("/never"));
    client.close().await.unwrap();
    assert!(within("the end", never).await.is_none());
    within("the end", client.wait_until_released("/mutex")).await;
    assert!(client.wait_until_held("/mutex").await.is_none());
}

/// A lock that is handed over in memory is held by the next caller from that moment.
#[tokio::test]
async fn handed_over_lock_is_seen() {
    let (_server, [client]) = with_clients(start(), connect).await;
    let mutex = InterProcessMutex::builder(&client, "/shared")
        .hand_off(10, SOON)
        .build()
        .unwrap();
    let first = mutex.lock().await.unwrap();
    let second = mutex.acquire(Duration::from_secs(600));
    let line = line!() - 1;
    let second = pending(second);
    first.release().await.unwrap();
    let second = within("the hand-over", second).await.unwrap();
    let holding = client.wait_until_held("/shared").await.unwrap();
    assert_eq!(holding.location().line(), line);
    drop(second);
    client.wait_until_released("/shared").await;
    client.close().await.unwrap();
}

/// A lock that was granted to a caller who leaves without taking it is released.
#[tokio::test]
async fn untaken_grant_is_released() {
    let (_server, [client]) = with_clients(start(), connect).await;
    let mutex = InterProcessMutex::builder(&client, "/shared")
        .hand_off(10, SOON)
        .build()
        .unwrap();
    for drains in [false, true] {
        let guard = mutex.lock().await.unwrap();
        let second = pending(mutex.lock());
        let other = client.clone();
        let mut released = ByHand::new(async move {
            if drains {
                other.drain(SOON).await.unwrap();
            } else {
                other.wait_until_released("/shared").await;
            }
        })
        .start();
        guard.release().await.unwrap();
        assert!(
            released.poll().is_pending(),
            "the lock is held for the next caller"
        );
        drop(second);
        within("the release", released.finished()).await;
    }
}
