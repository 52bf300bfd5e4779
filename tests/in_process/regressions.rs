//! Regressions: each test shows a behaviour that an earlier version did not have.
//!
//! These tests concern threads, runtimes or sockets. The other regressions run in virtual time:
//! `simulation/tests/scenarios/regressions.rs`.
#![expect(clippy::unwrap_used, reason = "a test")]

use std::net::TcpListener;

use test_support::prelude::*;

/// The client library tries the addresses in random order, and repeats those of a short list.
// Shows: server-timeout
#[tokio::test]
async fn hanging_server_leaves_others_time() {
    let server = start();
    // Connections are accepted, and no server ever answers.
    let hung = TcpListener::bind("127.0.0.1:0").unwrap();
    let (hung, well) = (hung.local_addr().unwrap(), server.connect_string());
    let servers = format!("{hung},{well},{well}");
    let connects: Vec<_> = (0..30)
        .map(|_| {
            let servers = servers.clone();
            // The address that hangs may come first any number of times in a row: it is 5 of 15
            // addresses, with 1.5 s for each.
            let builder = Client::builder()
                .session_timeout(Duration::from_secs(12))
                .connect_timeout(Duration::from_secs(10));
            tokio::spawn(async move { builder.connect(&servers).await })
        })
        .collect();
    for connect in connects {
        within("the session", connect).await.unwrap().unwrap();
    }
}

#[test]
fn logged_acl_hides_password_hash() {
    let acl = Acl::new("digest", "shop:aGFzaA==", Permissions::READ);
    let shown = format!(
        "{acl:?} {:?}",
        Client::builder()
            .acl([acl.clone()])
            .auth("digest", "shop:secret")
    );
    assert!(shown.contains("shop"), "{shown}");
    assert!(
        !shown.contains("aGFzaA") && !shown.contains("secret"),
        "{shown}"
    );
}

/// Makes every waiting call with an executor that only polls.
async fn everything() {
    let server = start();
    // With this long timeout, the session needs no timers here.
    let client = Client::builder()
        .session_timeout(HOUR)
        .connect_timeout(SOON);
    let client = client.connect(&server.connect_string()).await.unwrap();
    let mutex = mutex(&client);
    let brief = Duration::from_millis(500);
    let guard = mutex.lock().await.unwrap();
    assert_eq!(mutex.participants().await.unwrap().len(), 1);
    assert!(matches!(
        mutex.acquire(brief).await,
        Err(AcquireError::TimedOut { .. })
    ));
    assert!(matches!(
        mutex.try_lock().await,
        Err(TryLockError::WouldBlock { .. })
    ));
    assert!(mutex.acquire_until(Instant::now() + brief).await.is_err());
    client.flush(SOON).await.unwrap();
    assert_eq!(guard.while_held(async { 7 }).await.unwrap(), 7);
    guard
        .transaction()
        .check(DIRECTORY, None)
        .commit()
        .await
        .unwrap();
    guard.release().await.unwrap();
    drop(mutex.acquire(SOON).await.unwrap());
    client.flush(SOON).await.unwrap();
    assert_eq!(server.children(DIRECTORY).len(), 0);
    let lost = mutex.try_lock().await.unwrap().lost();
    client.close().await.unwrap();
    assert_eq!(lost.await.reason(), LostReason::Closed);
}

// Shows: attempt-outlives-caller
#[test]
fn every_wait_works_without_tokio() {
    block_on(everything());
}

#[test]
fn every_wait_works_without_runtime_timers() {
    tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap()
        .block_on(everything());
}
