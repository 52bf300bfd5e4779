//! Outages that are shorter than the lease cost no lock (docs/protocol.md#spare-connection): the
//! longest that RELIABILITY.md promises, 0.45 T, for clients in every phase between two heartbeats.

use std::time::{Duration, Instant};

use simulation::scenario::tokio;
use test_support::short_outages::{CLIENTS, lost};
use zookeeper_test_server::{Direction, Server};

async fn costs_no_lock(session_timeout: Duration, outage: impl AsyncFn(&Server, &[i64], Instant)) {
    let lost = lost(session_timeout, &outage).await;
    assert_eq!(
        lost, 0,
        "of {CLIENTS} locks lost at T = {session_timeout:?}"
    );
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

// Shows: spare-connection
#[tokio::test]
async fn refused_at_2_s() {
    costs_no_lock(Duration::from_secs(2), refused).await;
}

// Shows: spare-connection
#[tokio::test]
async fn refused_at_6_s() {
    costs_no_lock(Duration::from_secs(6), refused).await;
}

// Shows: spare-connection
#[tokio::test]
async fn refused_at_15_s() {
    costs_no_lock(Duration::from_secs(15), refused).await;
}

// Shows: spare-connection
#[tokio::test]
async fn silent_at_6_s() {
    costs_no_lock(Duration::from_secs(6), silent).await;
}
