//! A service that starts before its ZooKeeper does.

use std::error::Error;

use test_support::prelude::*;

/// Returns options with which a round of connecting is one try of 200 ms.
fn one_try() -> ClientBuilder {
    let once = RetryPolicy::n_times(0, Duration::ZERO);
    Client::builder()
        .connect_timeout(Duration::from_millis(200))
        .retry_policy(once)
}

async fn until(client: &Client, state: ConnectionState) {
    within(
        "the state",
        client.watch_state().wait_for(|now| *now == state),
    )
    .await
    .unwrap();
}

/// Acquires the lock. A call is repeated if it fails because its round began before the server was
/// back, or because a busy machine lost the connection.
async fn granted(mutex: &InterProcessMutex) -> LockGuard {
    let granted = async {
        loop {
            match mutex.lock().await {
                Ok(guard) => return guard,
                Err(error) => assert_eq!(error.kind(), Some(ErrorKind::Connection), "{error:?}"),
            }
        }
    };
    within("the grant", granted).await
}

/// The retry policy ends a round, and the call that waits for it, but not the client.
// Shows: next-round
#[tokio::test]
async fn late_server_is_found_without_call() {
    let server = Server::start().unwrap();
    server.stop();
    // Half of the timeout is for probing why there is no session.
    let builder = one_try().connect_timeout(Duration::from_secs(1));
    let client = builder.connect_lazy(&server.connect_string()).unwrap();
    assert_eq!(client.state(), ConnectionState::Connecting);
    let mutex = InterProcessMutex::new(&client, "/jobs/nightly").unwrap();
    let error = within("the end of a round", mutex.lock())
        .await
        .unwrap_err();
    assert_eq!(error.kind(), Some(ErrorKind::Connection), "{error:?}");
    let servers = error
        .source()
        .and_then(Error::source)
        .expect("why")
        .to_string();
    assert_eq!(
        servers,
        format!("{}: it refuses connections", server.connect_string())
    );
    assert_eq!(client.state(), ConnectionState::Connecting);
    // The server starts on the same port. No call needs a session now.
    server.restart().unwrap();
    until(&client, ConnectionState::Connected).await;
    granted(&mutex).await.release().await.unwrap();
    client.close().await.unwrap();
}

/// A call whose deadline passes before a connection attempt has failed again reports the last
/// failure.
#[tokio::test]
async fn short_wait_names_failed_servers() {
    let server = Server::start().unwrap();
    server.stop();
    // A try lasts for longer than the call that is to end during the try.
    let once = RetryPolicy::n_times(0, Duration::ZERO);
    let builder = Client::builder()
        .connect_timeout(Duration::from_secs(2))
        .retry_policy(once);
    let client = builder.connect_lazy(&server.connect_string()).unwrap();
    let mutex = InterProcessMutex::new(&client, "/jobs/nightly").unwrap();
    within("the end of a round", mutex.lock())
        .await
        .unwrap_err();
    let error = within("the call", mutex.acquire(Duration::from_millis(1)))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), Some(ErrorKind::Connection), "{error:?}");
    let text = error.to_string();
    let why = format!("{}: it refuses connections", server.connect_string());
    assert!(text.contains("no session within"), "{text}");
    assert!(text.ends_with(&why), "{text}");
    client.close().await.unwrap();
}

/// A lost session is replaced like that of any other client: the state is `Lost`, not `Connecting`.
#[tokio::test]
async fn lost_session_is_replaced() {
    // Longer than a busy machine pauses.
    let timeout = Duration::from_secs(4);
    let server = Server::builder()
        .max_session_timeout(timeout)
        .start()
        .unwrap();
    let builder = one_try().session_timeout(timeout);
    let client = builder.connect_lazy(&server.connect_string()).unwrap();
    until(&client, ConnectionState::Connected).await;
    let first = client.session_id();
    server.stop();
    until(&client, ConnectionState::Lost).await;
    server.restart().unwrap();
    let mutex = InterProcessMutex::new(&client, "/jobs/nightly").unwrap();
    let guard = granted(&mutex).await;
    assert_ne!(client.session_id(), first);
    guard.release().await.unwrap();
    client.close().await.unwrap();
}

/// A client that is dropped before it has a session leaves nothing running.
#[tokio::test]
async fn dropped_client_stops_connecting() {
    let server = Server::start().unwrap();
    server.stop();
    let client = one_try().connect_lazy(&server.connect_string()).unwrap();
    let mut states = client.watch_state();
    drop(client);
    within(
        "its end",
        states.wait_for(|state| *state == ConnectionState::Closed),
    )
    .await
    .unwrap();
    server.restart().unwrap();
    assert_eq!(server.sessions().len(), 0);
}
