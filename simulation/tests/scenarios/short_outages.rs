//! Outages that are shorter than the lease cost no lock (docs/protocol.md#spare-connection): the longest that
//! RELIABILITY.md promises, 0.45 T, for clients in every phase between two heartbeats.

use std::time::{Duration, Instant};

use simulation::scenario::tokio;
use test_support::in_process::session;
use test_support::within;
use zookeeper_recipes::{Client, ConnectionState, InterProcessMutex, LockGuard, RetryPolicy};
use zookeeper_test_server::{Direction, Op, Server};

/// How many clients hold a lock each.
const CLIENTS: u32 = 8;

/// Clients whose heartbeats are sent at different moments, and their locks.
async fn holders(server: &Server, session_timeout: Duration) -> Vec<(Client, LockGuard)> {
    let mut holders = Vec::new();
    for i in 0..CLIENTS {
        let builder = Client::builder().session_timeout(session_timeout).retry_policy(RetryPolicy::default());
        let client = within("the session", builder.connect(&server.connect_string())).await.unwrap();
        assert_eq!(client.session_timeout(), Some(session_timeout));
        let mutex = InterProcessMutex::new(&client, format!("/locks/{i}")).unwrap();
        let guard = within("the grant", mutex.lock()).await.unwrap();
        holders.push((client, guard));
        // The phase, in which time passes.
        tokio::time::sleep(session_timeout / 6 / CLIENTS).await;
    }
    holders
}

/// Returns how many locks an outage costs.
async fn lost(session_timeout: Duration, outage: impl AsyncFn(&Server, &[i64], Instant)) -> usize {
    let server = Server::builder()
        .tick(session_timeout / 20)
        .min_session_timeout(session_timeout)
        .max_session_timeout(session_timeout)
        .start()
        .unwrap();
    let holders = holders(&server, session_timeout).await;
    let sessions: Vec<i64> = holders.iter().map(|(client, _)| session(client)).collect();
    let connected = server.counters().requests(Op::Connect);
    outage(&server, &sessions, Instant::now() + session_timeout * 45 / 100).await;
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
        // The client library takes up each session once. That it was the first each time is not to be expected: it
        // pauses for much longer than there is between two tries of spare connections.
        let connections = server.counters().requests(Op::Connect) - connected;
        assert!(connections > u64::from(CLIENTS), "none of {connections} was a spare one");
        for (client, guard) in holders {
            within("the release", guard.release()).await.unwrap();
            within("the close", client.close()).await.unwrap();
        }
    }
    lost
}

async fn costs_no_lock(session_timeout: Duration, outage: impl AsyncFn(&Server, &[i64], Instant)) {
    let lost = lost(session_timeout, &outage).await;
    assert_eq!(lost, 0, "of {CLIENTS} locks lost at T = {session_timeout:?}");
}

/// Every connection is refused.
async fn refused(server: &Server, _: &[i64], end: Instant) {
    server.stop_async().await;
    // How long it takes is what is tested.
    tokio::time::sleep_until(end.into()).await;
    server.restart_async().await.unwrap();
}

/// Connections come about, and the server says nothing.
async fn silent(server: &Server, sessions: &[i64], end: Instant) {
    for session in sessions {
        server.stall(*session, Direction::Both);
    }
    // How long it takes is what is tested.
    tokio::time::sleep_until(end.into()).await;
    for session in sessions {
        server.resume(*session);
    }
}

#[tokio::test]
async fn refused_at_2_s() {
    costs_no_lock(Duration::from_secs(2), refused).await;
}

#[tokio::test]
async fn refused_at_6_s() {
    costs_no_lock(Duration::from_secs(6), refused).await;
}

#[tokio::test]
async fn refused_at_15_s() {
    costs_no_lock(Duration::from_secs(15), refused).await;
}

#[tokio::test]
async fn silent_at_6_s() {
    costs_no_lock(Duration::from_secs(6), silent).await;
}
