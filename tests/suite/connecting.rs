//! Connecting a session.

use std::net::{Ipv4Addr, TcpListener};

use test_support::prelude::*;

use crate::harness::{Behaviour, Env, MAX_DELAY, SESSION_LIMITS, SHORT_TIMEOUT, behaviours};

pub(crate) fn all() -> Vec<Behaviour> {
    behaviours![
        missing_server_fails_in_time.in_process_only(),
        silent_server_fails_in_time.in_process_only(),
        disconnecting_server_fails_in_time.in_process_only(),
        goes_on_to_the_next_address,
        rejects_unusable_connect_strings_at_once.in_process_only(),
        rejects_unusable_namespaces_at_once.in_process_only(),
        unknown_credentials_are_refused,
        lazy_client_connects_by_itself.also_on_ensemble(),
        lazy_connect_defers_requests,
        lazy_client_closes_on_unknown_credentials,
        lazy_client_closes_without_a_session,
        servers_decide_the_session_timeout.also_on_ensemble(),
        client_knows_its_session,
        connect_returns_with_a_session,
        clones_share_everything,
    ]
}

const TIMEOUT: Duration = Duration::from_millis(300);

/// Asserts that connecting to `address` fails in time, with an error that names it.
async fn check_timeout(env: &Env, address: &str) {
    let start = Instant::now();
    let error = env
        .builder()
        .connect_timeout(TIMEOUT)
        .connect(address)
        .await
        .unwrap_err();
    let took = start.elapsed();
    assert!(took < TIMEOUT + MAX_DELAY, "{took:?}");
    assert!(error.is_retryable());
    assert!(error.to_string().contains(address), "{error}");
    match error {
        ConnectError::TimedOut {
            servers, timeout, ..
        } => {
            assert_eq!((&*servers, timeout), (address, TIMEOUT));
        }
        other => panic!("{other:?}"),
    }
}

async fn missing_server_fails_in_time(env: &Env) {
    let closed = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .unwrap()
        .local_addr()
        .unwrap();
    check_timeout(env, &closed.to_string()).await;
}

async fn silent_server_fails_in_time(env: &Env) {
    // The kernel accepts connections for the listener.
    let mute = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    check_timeout(env, &mute.local_addr().unwrap().to_string()).await;
}

async fn disconnecting_server_fails_in_time(env: &Env) {
    env.server().refuse_connections(true);
    check_timeout(env, &env.connect_string()).await;
    env.server().refuse_connections(false);
    env.client().await.close().await.unwrap();
}

async fn goes_on_to_the_next_address(env: &Env) {
    let closed = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .unwrap()
        .local_addr()
        .unwrap();
    for servers in [
        format!("{closed},{}", env.connect_string()),
        format!("{}, {closed}", env.connect_string()),
    ] {
        let client = env.connect_to(&servers, env.builder()).await;
        let mutex = InterProcessMutex::new(&client, env.lock_path()).unwrap();
        within("a free lock", mutex.lock())
            .await
            .unwrap()
            .release()
            .await
            .unwrap();
    }
}

async fn rejects_unusable_connect_strings_at_once(env: &Env) {
    for servers in [
        "",
        " ",
        ",",
        "127.0.0.1:2181,",
        "127.0.0.1:2181,,127.0.0.1:2182",
        "127.0.0.1:2181/ns,127.0.0.1:2182",
        #[cfg(not(feature = "tls"))]
        "tcp+tls://127.0.0.1:2181",
        "/shop",
        "127.0.0.1:port",
        "127.0.0.1:70000",
        "127.0.0.1:-1",
    ] {
        let connected = env.builder().connect_timeout(SOON * 2).connect(servers);
        match within(&format!("a refusal of {servers:?}"), connected)
            .await
            .unwrap_err()
        {
            error @ ConnectError::InvalidConnectString { .. } => {
                let lazily = env.builder().connect_lazy(servers).unwrap_err();
                assert_eq!(lazily.to_string(), error.to_string());
                assert!(!error.is_retryable());
                assert!(
                    error.to_string().contains(&format!("{servers:?}")),
                    "{error}"
                );
            }
            other => panic!("{servers:?}: {other:?}"),
        }
    }
}

async fn rejects_unusable_namespaces_at_once(env: &Env) {
    for namespace in ["a//b", "a/", "../a", "zookeeper", "/zookeeper/quota", "a\0"] {
        let error = env
            .builder()
            .namespace(namespace)
            .connect(&env.connect_string())
            .await
            .unwrap_err();
        assert!(
            matches!(error, ConnectError::InvalidNamespace(_)),
            "{error:?}"
        );
        assert!(!error.is_retryable());
    }
    let error = Client::connect(&format!("{}/a//b", env.connect_string()))
        .await
        .unwrap_err();
    assert!(
        matches!(error, ConnectError::InvalidNamespace(_)),
        "{error:?}"
    );
}

async fn unknown_credentials_are_refused(env: &Env) {
    // The session outlives the connection that the servers close.
    let builder = env
        .builder()
        .auth("nonsense", "us:secret")
        .session_timeout(Duration::from_secs(1));
    // The servers refuse the credentials after granting a session, so whether the client sees the
    // refusal is a race.
    match within("an answer", builder.connect(&env.connect_string())).await {
        Err(error) => {
            assert!(
                matches!(error, ConnectError::AuthFailed { .. }),
                "{error:?}"
            );
            assert!(!error.is_retryable());
        }
        Ok(client) => {
            let mutex = InterProcessMutex::new(&client, env.lock_path()).unwrap();
            let error = within("an answer", mutex.lock()).await.unwrap_err();
            assert_eq!(error.kind(), Some(ErrorKind::AuthFailed), "{error:?}");
            assert!(!error.is_retryable());
            assert_eq!(client.state(), ConnectionState::Closed);
        }
    }
}

async fn lazy_client_connects_by_itself(env: &Env) {
    let client = env.builder().connect_lazy(&env.connect_string()).unwrap();
    let mut states = client.watch_state();
    within(
        "a session",
        states.wait_for(|state| *state == ConnectionState::Connected),
    )
    .await
    .unwrap();
    assert!(client.session_id().is_some());
    let mutex = InterProcessMutex::new(&client, env.lock_path()).unwrap();
    within("a free lock", mutex.lock())
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    client.close().await.unwrap();
}

// Shows: next-round
async fn lazy_connect_defers_requests(env: &Env) {
    let link = env.link();
    link.cut();
    let client = env.builder().connect_lazy(link.connect_string()).unwrap();
    let mutex = InterProcessMutex::new(&client, env.lock_path()).unwrap();
    let late = within("an answer", mutex.acquire(SHORT_TIMEOUT))
        .await
        .unwrap_err();
    assert!(
        late.kind() == Some(ErrorKind::Connection) && late.is_retryable(),
        "{late:?}"
    );
    assert_eq!(
        (client.state(), client.session_id()),
        (ConnectionState::Connecting, None)
    );
    let waiter = tokio::spawn(mutex.lock());
    link.mend();
    let guard = within("the first session", waiter).await.unwrap().unwrap();
    assert_eq!(client.state(), ConnectionState::Connected);
    guard.release().await.unwrap();
    client.close().await.unwrap();
}

async fn lazy_client_closes_on_unknown_credentials(env: &Env) {
    let builder = env.builder().auth("nonsense", "us:secret");
    let client = builder.connect_lazy(&env.connect_string()).unwrap();
    let mut states = client.watch_state();
    within(
        "the end",
        states.wait_for(|state| *state == ConnectionState::Closed),
    )
    .await
    .unwrap();
    let mutex = InterProcessMutex::new(&client, env.lock_path()).unwrap();
    let error = within("an answer", mutex.lock()).await.unwrap_err();
    assert_eq!(error.kind(), Some(ErrorKind::AuthFailed), "{error:?}");
}

async fn lazy_client_closes_without_a_session(env: &Env) {
    let link = env.link();
    link.cut();
    let client = env.builder().connect_lazy(link.connect_string()).unwrap();
    let waiter = tokio::spawn(
        InterProcessMutex::new(&client, env.lock_path())
            .unwrap()
            .lock(),
    );
    within("the end", client.close()).await.unwrap();
    assert_eq!(client.state(), ConnectionState::Closed);
    let error = within("its end", waiter).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), Some(ErrorKind::Closed), "{error:?}");
}

// Shows: session-timeout
async fn servers_decide_the_session_timeout(env: &Env) {
    let (least, most) = SESSION_LIMITS;
    let middle = Duration::from_secs(7);
    let less = least - Duration::from_millis(100);
    for (asked, granted) in [
        (less, least),
        (middle, middle),
        (Duration::from_secs(3600), most),
    ] {
        let client = env.connect(env.builder().session_timeout(asked)).await;
        let timeout = within("a session", async {
            loop {
                match client.session_timeout() {
                    Some(timeout) => break timeout,
                    // So short a session may have ended, with the next one under way.
                    None => tokio::task::yield_now().await,
                }
            }
        });
        assert_eq!(timeout.await, granted);
        client.close().await.unwrap();
        assert_eq!(client.session_timeout(), None);
    }
    assert_eq!(
        env.client().await.session_timeout(),
        Some(Duration::from_secs(30)),
        "the default"
    );
}

async fn client_knows_its_session(env: &Env) {
    let client = env.client().await;
    assert_eq!(client.state(), ConnectionState::Connected);
    assert_eq!(client.watch_state().get(), ConnectionState::Connected);
    let session = client.session_id().unwrap();
    assert!(env.knows_session(session).await);
    assert_ne!(env.client().await.session_id(), Some(session));
    let mut states = client.watch_state();
    client.close().await.unwrap();
    within(
        "the end",
        states.wait_for(|state| *state == ConnectionState::Closed),
    )
    .await
    .unwrap();
    assert_eq!(
        (client.session_id(), client.state()),
        (None, ConnectionState::Closed)
    );
    env.wait_session_gone(session).await;
}

async fn connect_returns_with_a_session(env: &Env) {
    for _ in 0..20 {
        let client = env.builder().connect(&env.connect_string()).await.unwrap();
        assert_eq!(client.state(), ConnectionState::Connected);
        assert!(client.session_id().is_some() && client.session_timeout().is_some());
    }
}

async fn clones_share_everything(env: &Env) {
    let client = env.client().await;
    let clone = client.clone();
    assert_eq!(client.session_id(), clone.session_id());
    let guard = InterProcessMutex::new(&client, env.lock_path())
        .unwrap()
        .lock()
        .await
        .unwrap();
    assert!(
        InterProcessMutex::new(&clone, env.lock_path())
            .unwrap()
            .is_acquired_in_this_process()
    );
    drop(client);
    assert!(guard.is_held());
    clone.close().await.unwrap();
    assert!(!guard.is_held());
}
