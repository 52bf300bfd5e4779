//! Heartbeats by a separate connection while the client library has none:
//! docs/protocol.md#spare-connection. `short_outages` shows how many locks an outage costs.

use ::simulation::scenario::tokio;
use test_support::prelude::*;

const T: Duration = Duration::from_secs(12);
/// ZooKeeper's error code.
const AUTH_FAILED: i32 = -115;

/// Starts a server, and a client that tries spare connections early because its lease is short.
async fn start_strict() -> (Server, Client) {
    let server = Server::builder()
        .tick(T / 20)
        .min_session_timeout(T)
        .max_session_timeout(T)
        .start()
        .unwrap();
    let builder = Client::builder()
        .margin(LeaseMargin::Strict)
        .session_timeout(T);
    let client = connect_as(builder, &server).await;
    (server, client)
}

/// Cuts the connection of the client library, and holds the request by which the library takes the
/// session up again. Any other connection within T/8, after which the library tries again, is a
/// spare one.
async fn interrupt(server: &Server, client: &Client) -> Gate {
    let beats = server.counters().requests(Op::Multi);
    until(server, "a heartbeat", move |view| {
        view.counters().requests(Op::Multi) > beats
    })
    .await;
    // The age of the last renewal decides when the first spare connection is tried.
    tokio::time::sleep(T / 20).await;
    let gate = server.hold_request(Match::op(Op::Connect));
    assert!(server.cut(session(client), Cut::Reset));
    within("the library's connect", gate.wait_hit()).await;
    gate
}

/// Lets the client library take the session up again, and waits until it has.
async fn reconnect(client: &Client, gate: Gate) {
    let mut states = client.watch_state();
    gate.release();
    let connected = states.wait_for(|state| *state == ConnectionState::Connected);
    within("the connection", connected).await.unwrap();
}

// Shows: spare-connection
#[tokio::test]
async fn spare_connection_in_later_sessions() {
    let (server, client) = start_strict().await;
    for _ in 0..2 {
        let id = session(&client);
        assert!(server.expire_session(id));
        let mut states = client.watch_state();
        let next = states.wait_for(|_| client.session_id().is_some_and(|now| now != id));
        within("the next session", next).await.unwrap();
        let guard = hold(&client).await;
        let gate = interrupt(&server, &client).await;
        let (cut, connects) = (Instant::now(), server.counters().requests(Op::Connect));
        until(&server, "a spare connection", move |view| {
            view.counters().requests(Op::Connect) > connects
        })
        .await;
        let took = cut.elapsed();
        assert!(took < T / 9, "no spare connection before {took:?}");
        reconnect(&client, gate).await;
        guard.release().await.unwrap();
    }
}

/// A single member may refuse credentials that the others accept.
// Shows: spare-connection
#[tokio::test]
async fn spare_failure_ends_no_session() {
    let (server, client) = start_strict().await;
    let guard = hold(&client).await;
    let id = session(&client);
    let gate = interrupt(&server, &client).await;
    let refused = server.fail(Match::op(Op::Multi).session(id), AUTH_FAILED);
    let connects = server.counters().requests(Op::Connect);
    until(&server, "a spare connection", move |view| {
        view.counters().requests(Op::Connect) > connects
    })
    .await;
    // The server closes the connection on which the library waits, and the library connects again.
    let again = server.hold_request(Match::op(Op::Connect));
    within("the spare heartbeat", refused.wait_hit()).await;
    // Time must pass because nothing outside the client shows when the answer has arrived.
    tokio::time::sleep(T / 100).await;
    again.release();
    reconnect(&client, gate).await;
    assert_ne!(client.state(), ConnectionState::Closed);
    assert!(guard.is_held());
    assert_eq!(session(&client), id);
    guard.release().await.unwrap();
}
