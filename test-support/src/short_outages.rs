//! How many locks an outage costs, for tests in real and in virtual time.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::{Duration, Instant};

use zookeeper_recipes::{Client, ConnectionState, InterProcessMutex, LockGuard, RetryPolicy};
use zookeeper_test_server::{Op, Server};

use crate::in_process::session;
use crate::within;

/// How many clients hold a lock each.
pub const CLIENTS: u32 = 8;

/// Clients whose heartbeats are sent at different moments, and their locks.
async fn holders(server: &Server, session_timeout: Duration) -> Vec<(Client, LockGuard)> {
    let mut holders = Vec::new();
    for i in 0..CLIENTS {
        let builder = Client::builder()
            .session_timeout(session_timeout)
            .retry_policy(RetryPolicy::default());
        let client = within("the session", builder.connect(&server.connect_string()))
            .await
            .unwrap();
        assert_eq!(client.session_timeout(), Some(session_timeout));
        let mutex = InterProcessMutex::new(&client, format!("/locks/{i}")).unwrap();
        let guard = within("the grant", mutex.lock()).await.unwrap();
        holders.push((client, guard));
        // The pause gives the next client another phase.
        tokio::time::sleep(session_timeout / 6 / CLIENTS).await;
    }
    holders
}

/// Returns how many of the locks of [`CLIENTS`] clients an outage costs. `outage` gets the server,
/// the sessions, and the time at which to end.
///
/// # Panics
/// If the clients fail otherwise, or if no spare connection was made.
pub async fn lost(
    session_timeout: Duration,
    outage: impl AsyncFn(&Server, &[i64], Instant),
) -> usize {
    let server = Server::builder()
        .tick(session_timeout / 20)
        .min_session_timeout(session_timeout)
        .max_session_timeout(session_timeout)
        .start()
        .unwrap();
    let holders = holders(&server, session_timeout).await;
    let sessions: Vec<i64> = holders.iter().map(|(client, _)| session(client)).collect();
    let connected = server.counters().requests(Op::Connect);
    outage(
        &server,
        &sessions,
        Instant::now() + session_timeout * 45 / 100,
    )
    .await;
    for (client, guard) in &holders {
        let mut states = client.watch_state();
        let back = states.wait_for(|state| *state == ConnectionState::Connected);
        tokio::select! {
            state = within("the connection", back) => assert!(state.is_some()),
            _ = guard.lost() => {}
        }
    }
    let lost = holders.iter().filter(|(_, guard)| !guard.is_held()).count();
    if lost == 0 {
        let now: Vec<i64> = holders.iter().map(|(client, _)| session(client)).collect();
        assert_eq!(now, sessions);
        assert_eq!(server.counters().requests(Op::CloseSession), 0);
        // The client library resumes each session once. It cannot be expected to be first each
        // time, because it pauses for much longer than the time between two tries of spare
        // connections.
        let connections = server.counters().requests(Op::Connect) - connected;
        assert!(
            connections > u64::from(CLIENTS),
            "none of {connections} was a spare one"
        );
        for (client, guard) in holders {
            within("the release", guard.release()).await.unwrap();
            within("the close", client.close()).await.unwrap();
        }
    }
    lost
}
