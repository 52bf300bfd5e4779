//! Outages that are shorter than the lease cost no lock (docs/protocol.md#spare-connection): the longest that
//! RELIABILITY.md promises, 0.45 T, for clients in every phase between two heartbeats.
//! This outage is in real time, since whether a server accepts connections is asked by a thread that blocks (a probe), which
//! no simulation has. The others are in virtual time: `simulation/tests/scenarios/short_outages.rs`.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::{Duration, Instant};

use test_support::Steadiness;
use test_support::short_outages::{CLIENTS, lost};
use zookeeper_test_server::{Match, Op, Server};

/// How often a round is repeated in which the machine stood still for longer than there was to spare.
const ROUNDS: usize = 5;

#[expect(clippy::future_not_send, reason = "the future of a test stays on its thread")]
async fn costs_no_lock(session_timeout: Duration, outage: impl AsyncFn(&Server, &[i64], Instant)) {
    for round in 1.. {
        let machine = Steadiness::watch();
        let lost = lost(session_timeout, &outage).await;
        if lost == 0 {
            return;
        }
        // There is a twentieth of T to spare, of which the pause between two tries takes a third.
        let stood = machine.stood_still();
        assert!(
            round < ROUNDS && stood > session_timeout / 50,
            "{lost} of {CLIENTS} locks lost at T = {session_timeout:?}; the machine stood still for {stood:?}"
        );
    }
}

/// Every connection is refused for a while, and then the server takes its time for each session, as one does to which
/// many clients return at once. A try closes the connection of another that waits.
async fn slow_to_return(server: &Server, _: &[i64], end: Instant) {
    server.stop();
    // How long it takes is what is tested.
    tokio::time::sleep_until((end - Duration::from_millis(1_500)).into()).await;
    server.delay_reply(Match::op(Op::Connect).always(), Duration::from_millis(450));
    server.restart().unwrap();
}

// Shows: spare-connection
#[tokio::test]
async fn slow_to_return_at_6_s() {
    costs_no_lock(Duration::from_secs(6), slow_to_return).await;
}
