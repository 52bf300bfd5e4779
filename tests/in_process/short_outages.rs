//! Outages shorter than the lease cost no lock (docs/protocol.md#spare-connection). The outage here
//! is the longest that RELIABILITY.md promises, 0.45 T, for clients in every phase between two
//! heartbeats. It runs in real time, because a blocking thread probes whether a server accepts
//! connections, and a simulation replaces that thread. The others are in virtual time:
//! `simulation/tests/scenarios/short_outages.rs`.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use test_support::Steadiness;
use test_support::prelude::*;
use test_support::short_outages::{CLIENTS, lost};

/// How often a round is repeated if the machine stood still for longer than the spare time.
const ROUNDS: usize = 5;

#[expect(
    clippy::future_not_send,
    reason = "the future of a test stays on its thread"
)]
async fn costs_no_lock(session_timeout: Duration, outage: impl AsyncFn(&Server, &[i64], Instant)) {
    for round in 1.. {
        let machine = Steadiness::watch();
        let lost = lost(session_timeout, &outage).await;
        if lost == 0 {
            return;
        }
        // A twentieth of T is left, of which the pause between two tries takes a third.
        let stood = machine.stood_still();
        assert!(
            round < ROUNDS && stood > session_timeout / 50,
            "{lost} of {CLIENTS} locks lost at T = {session_timeout:?}; the machine stood still for {stood:?}"
        );
    }
}

/// Every connection is refused for a while; then the server is slow to answer each session, as when
/// many clients return at once. A try closes the connection of another that waits.
async fn slow_to_return(server: &Server, _: &[i64], end: Instant) {
    server.stop();
    // The duration is under test.
    tokio::time::sleep_until((end - Duration::from_millis(1_500)).into()).await;
    server.delay_reply(Match::op(Op::Connect).always(), Duration::from_millis(450));
    server.restart().unwrap();
}

// Shows: spare-connection
#[tokio::test]
async fn slow_to_return_at_6_s() {
    costs_no_lock(Duration::from_secs(6), slow_to_return).await;
}

/// After a server has accepted a spare connection without resuming the session, no spare connection
/// is tried for a while. The pause does not extend to the next outage.
// Shows: spare-connection
#[tokio::test]
async fn spare_pause_ends_with_its_outage() {
    const T: Duration = Duration::from_secs(12);
    for round in 1.. {
        let machine = Steadiness::watch();
        let (first, second) = first_spare_connections(T).await;
        if first.max(second) < T / 9 {
            return;
        }
        let stood = machine.stood_still();
        assert!(
            round < ROUNDS && stood > T / 50,
            "the first spare connections were made after {first:?} and {second:?}; the machine stood still for {stood:?}"
        );
    }
}

/// Returns how long after the start of an outage the first spare connection was made, in two
/// outages of one client.
async fn first_spare_connections(session_timeout: Duration) -> (Duration, Duration) {
    let server = Server::builder()
        .tick(session_timeout / 20)
        .min_session_timeout(session_timeout)
        .start()
        .unwrap();
    let builder = Client::builder()
        .margin(LeaseMargin::Strict)
        .session_timeout(session_timeout);
    let client = connect_as(builder, &server).await;
    let outage = async || {
        let guard = within("the grant", mutex(&client).lock()).await.unwrap();
        let beats = server.counters().requests(Op::Multi);
        until(&server, "a heartbeat", move |view| {
            view.counters().requests(Op::Multi) > beats
        })
        .await;
        // The sleep lasts for half of the time to the next heartbeat. The renewal is then half as
        // old as when the first spare connection is tried.
        tokio::time::sleep(session_timeout / 20).await;
        let connects = server.counters().requests(Op::Connect);
        let replies = server.hold_reply(Match::op(Op::Connect).always());
        let cut = Instant::now();
        server.cut(session(&client), Cut::Reset);
        // The client library makes the first connection, and the next after T/8.
        until(&server, "a spare connection", move |view| {
            view.counters().requests(Op::Connect) >= connects + 2
        })
        .await;
        let took = cut.elapsed();
        // The sleep covers the try, and the probe whether the server accepts connections.
        tokio::time::sleep(session_timeout / 20).await;
        replies.release();
        let mut states = client.watch_state();
        within(
            "the connection",
            states.wait_for(|state| *state == ConnectionState::Connected),
        )
        .await
        .unwrap();
        drop(guard);
        client.flush(SOON).await.unwrap();
        took
    };
    (outage().await, outage().await)
}
