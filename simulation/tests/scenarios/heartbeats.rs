//! Heartbeats: what they check, when they are sent, and which writes renew a session lease in their
//! place (docs/protocol.md#renewal).

use ::simulation::scenario::tokio;
use test_support::prelude::*;

/// The session timeout: a heartbeat is sent after 5 s, and the session lease lasts for 20 s.
const T: Duration = Duration::from_secs(30);

/// ZooKeeper's error codes.
const NO_AUTH: i32 = -102;
const THROTTLED: i32 = -127;

async fn client(server: &Server) -> Client {
    connect_for(server, T).await
}

/// The paths of one hundred nodes are together three times as long as those that one transaction
/// checks.
// Shows: renewal
#[tokio::test]
async fn checks_nodes_beyond_one_transaction() {
    let (server, [client]) = with_clients(start(), client).await;
    let mut guards = Vec::new();
    for number in 0..100 {
        let path = format!("/locks/{}-{number}", "long".repeat(2_000));
        let lock = InterProcessMutex::new(&client, path).unwrap();
        guards.push(within("the grant", lock.lock()).await.unwrap());
    }
    for guard in &guards {
        server.delete(&guard.node()).unwrap();
    }
    let all_lost = async {
        for guard in &guards {
            assert_eq!(guard.lost().await.reason(), LostReason::NodeDeleted);
        }
    };
    // One heartbeat is enough, although it has several transactions.
    tokio::time::timeout(T / 5, all_lost)
        .await
        .expect("the next heartbeat finds that all nodes are gone");
}

/// A heartbeat follows a reconnect at once, long before the next is due.
// Shows: renewal
#[tokio::test]
async fn follows_a_reconnect_at_once() {
    let (server, [client]) = with_clients(start(), calm).await;
    let guard = hold(&client).await;
    let before = server.counters().requests(Op::Multi);
    server.cut(session(&client), Cut::Reset);
    until(&server, "a heartbeat", move |view| {
        view.counters().requests(Op::Multi) > before
    })
    .await;
    guard.release().await.unwrap();
}

/// A denied write proves nothing, because a member that is cut off from the others may refuse it on
/// its own.
// Shows: renewal
#[tokio::test]
async fn denied_writes_renew_no_lease() {
    let (server, [client]) = with_clients(start(), client).await;
    let guard = hold(&client).await;
    let denied = InterProcessMutex::new(&client, "/denied/lock").unwrap();
    server.fail(
        Match::op(Op::Create).path_prefix("/denied").always(),
        NO_AUTH,
    );
    server.fail(Match::op(Op::Multi).always(), THROTTLED);
    let writes = async {
        loop {
            let error = denied.lock().await.unwrap_err();
            assert_eq!(error.kind(), Some(ErrorKind::NoAuth), "{error}");
            // The writes are denied over and over, for as long as the lease lasts.
            tokio::time::sleep(T / 30).await;
        }
    };
    let lost = async {
        tokio::select! {
            lost = guard.lost() => lost.reason(),
            () = writes => LostReason::Closed,
        }
    };
    let lost = tokio::time::timeout(T, lost).await;
    assert_eq!(lost.expect("the lease ends"), LostReason::LeaseExpired);
}
