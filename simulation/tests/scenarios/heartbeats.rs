//! What heartbeats check, when they are sent, and what renews a session lease in their place
//! (docs/protocol.md#renewal).

use ::simulation::scenario::tokio;
use test_support::prelude::*;

/// The session timeout: a heartbeat is sent after 5 s, and the session lease lasts for 20 s.
const T: Duration = Duration::from_secs(30);

async fn client(server: &Server) -> Client {
    connect_for(server, T).await
}

/// The paths of one hundred nodes are three times as long as one transaction checks.
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
    // One heartbeat, and not one for each transaction.
    tokio::time::timeout(T / 5, all_lost)
        .await
        .expect("the next heartbeat finds that all nodes are gone");
}
