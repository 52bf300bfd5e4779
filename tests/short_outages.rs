//! Outages that are shorter than the lease cost no lock (docs/protocol.md#spare-connection): the longest that
//! RELIABILITY.md promises, 0.45 T, for clients in every phase between two heartbeats.
//! This outage is in real time, since whether a server accepts connections is asked by a thread that blocks (a probe), which
//! no simulation has. The others are in virtual time: `simulation/tests/scenarios/short_outages.rs`.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::{Duration, Instant};

use test_support::in_process::session;
use test_support::{Steadiness, within};
use zookeeper_recipes::{Client, ConnectionState, InterProcessMutex, LockGuard, RetryPolicy};
use zookeeper_test_server::{Match, Op, Server};

/// How many clients hold a lock each.
const CLIENTS: u32 = 8;

/// How often a round is repeated in which the machine stood still for longer than there was to spare.
const ROUNDS: usize = 5;

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

#[tokio::test]
async fn slow_to_return_at_6_s() {
    costs_no_lock(Duration::from_secs(6), slow_to_return).await;
}
