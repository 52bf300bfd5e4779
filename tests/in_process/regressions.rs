//! What was wrong once and must stay right: each test is one behaviour that an earlier version did not have.
//!
//! Against the in-process server and its faults: what has to do with threads, runtimes or sockets. The others run in
//! virtual time: `simulation/tests/scenarios/regressions.rs`. The session timeouts are as short as a busy machine allows;
//! every wait is for an event, with a bound that only a failure reaches. Where nothing may happen for a period,
//! the bound is the period.
#![expect(clippy::unwrap_used, reason = "a test")]

use std::net::TcpListener;
use std::time::{Duration, Instant};

use test_support::in_process::{DIRECTORY, mutex};
use test_support::{block_on, within};
use zookeeper_recipes::{Acl, AcquireError, Client, ClientBuilder, LostReason, Permissions, TryLockError};
use zookeeper_test_server::Server;

const LONG: Duration = Duration::from_secs(20);

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn server() -> Server {
    let tick = ms(50);
    Server::builder().tick(tick).min_session_timeout(tick).max_session_timeout(LONG).start().unwrap()
}

async fn client(server: &Server) -> Client {
    client_with(server, patient()).await
}

/// The options of a client that waits for the answers of a busy machine.
fn patient() -> ClientBuilder {
    Client::builder().connect_timeout(LONG)
}

/// A client whose session survives a busy machine, with whatever else is set. Needs no timers here.
async fn client_with(server: &Server, builder: ClientBuilder) -> Client {
    builder.session_timeout(LONG).connect(&server.connect_string()).await.unwrap()
}

/// The client library tries the addresses in random order, and those of a short list several times over.
// Shows: server-timeout
#[tokio::test]
async fn a_server_that_hangs_does_not_use_up_the_time_of_the_others() {
    let server = server();
    // Connections come about, and no server ever answers.
    let hung = TcpListener::bind("127.0.0.1:0").unwrap();
    let (hung, well) = (hung.local_addr().unwrap(), server.connect_string());
    let servers = format!("{hung},{well},{well}");
    let connects: Vec<_> = (0..30)
        .map(|_| {
            let servers = servers.clone();
            // However often in a row the one that hangs comes first: 5 of 15 addresses, 1.5 s for each.
            let builder = Client::builder().session_timeout(ms(12_000)).connect_timeout(ms(10_000));
            tokio::spawn(async move { builder.connect(&servers).await })
        })
        .collect();
    for connect in connects {
        within("the session", connect).await.unwrap().unwrap();
    }
}

#[test]
fn an_acl_in_a_log_does_not_show_the_hash_of_a_password() {
    let acl = Acl::new("digest", "shop:aGFzaA==", Permissions::READ);
    let shown = format!("{acl:?} {:?}", Client::builder().acl([acl.clone()]).auth("digest", "shop:secret"));
    assert!(shown.contains("shop"), "{shown}");
    assert!(!shown.contains("aGFzaA") && !shown.contains("secret"), "{shown}");
}

/// Every call that waits, with nothing of the caller's executor but its polls.
async fn everything(server: &Server, client: &Client) {
    let mutex = mutex(client);
    let guard = mutex.lock().await.unwrap();
    assert_eq!(mutex.participants().await.unwrap().len(), 1);
    assert!(matches!(mutex.acquire(ms(500)).await, Err(AcquireError::TimedOut { .. })));
    assert!(matches!(mutex.try_lock().await, Err(TryLockError::WouldBlock { .. })));
    assert!(mutex.acquire_until(Instant::now() + ms(500)).await.is_err());
    client.flush(LONG).await.unwrap();
    assert_eq!(guard.while_held(async { 7 }).await.unwrap(), 7);
    guard.transaction().check(DIRECTORY, None).commit().await.unwrap();
    guard.release().await.unwrap();
    drop(mutex.acquire(LONG).await.unwrap());
    client.flush(LONG).await.unwrap();
    assert_eq!(server.children(DIRECTORY).len(), 0);
    let lost = mutex.try_lock().await.unwrap().lost();
    client.close().await.unwrap();
    assert_eq!(lost.await.reason(), LostReason::Closed);
}

// Shows: attempt-outlives-caller
#[test]
fn every_wait_works_without_tokio() {
    let server = server();
    block_on(async {
        let client = client(&server).await;
        everything(&server, &client).await;
    });
}

#[test]
fn every_wait_works_on_a_runtime_without_timers() {
    let server = server();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let client = client(&server).await;
        everything(&server, &client).await;
    });
}
