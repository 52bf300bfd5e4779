//! The heartbeat checks the nodes of held locks: docs/protocol.md#node-deleted-by-hand.

use ::simulation::scenario::tokio;

use super::*;

/// The error code of a server that does not know a request.
const UNIMPLEMENTED: i32 = -6;

/// Other writes prove that the session lives, but not that the node of a held lock exists.
// Shows: renewal
#[tokio::test]
async fn busy_client_checks_held_nodes() {
    let (server, [client]) = with_clients(server(), client).await;
    let guard = hold(&client).await;
    let other = InterProcessMutex::new(&client, "/locks/other").unwrap();
    server.delete(&guard.node()).unwrap();
    let mut lost = std::pin::pin!(guard.lost());
    let checked = async {
        loop {
            tokio::select! {
                biased;
                lost = &mut lost => break lost,
                cycle = async { other.acquire(LONG).await.unwrap().release().await } => cycle.unwrap(),
            }
        }
    };
    assert_eq!(
        within("a check", checked).await.reason(),
        LostReason::NodeDeleted
    );
}

/// A heartbeat that was sent for two locks is answered after one of them was released. The released
/// lock is not reported as lost.
// Shows: renewal
#[tokio::test]
async fn released_lock_is_not_reported_deleted() {
    let (server, [client]) = with_clients(server(), client).await;
    let first = hold(&client).await;
    let second = InterProcessMutex::new(&client, "/locks/other")
        .unwrap()
        .lock()
        .await
        .unwrap();
    let gate = server.hold_request(Match::op(Op::Multi));
    within("the request", gate.wait_hit()).await;
    server.delete(&first.node()).unwrap();
    let second_lost = second.lost();
    let released = tokio::spawn(second.release());
    gate.release();
    within("the release", released).await.unwrap().unwrap();
    assert_eq!(
        within("the loss", first.lost()).await.reason(),
        LostReason::NodeDeleted
    );
    // The answer that reports the loss of the first lock has been handled once the next answer has
    // been.
    within("the list", mutex(&client).participants())
        .await
        .unwrap();
    assert_pending!(task::spawn(second_lost).poll(), "the guard was released");
}

// Shows: node-deleted-by-hand
#[tokio::test]
async fn heartbeat_notices_deleted_node() {
    let (server, [client]) = with_clients(server(), client).await;
    let guard = hold(&client).await;
    let other = InterProcessMutex::new(&client, "/locks/other")
        .unwrap()
        .lock()
        .await
        .unwrap();
    let deleted = Instant::now();
    server.delete(&guard.node()).unwrap();
    assert_eq!(
        within("the loss", guard.lost()).await.reason(),
        LostReason::NodeDeleted
    );
    assert!(deleted.elapsed() < T / 5, "{:?}", deleted.elapsed());
    until_state(&other, |state| state == LockState::Held).await;
    assert!(matches!(guard.release().await, Err(ReleaseError::Lost(_))));
}

/// A client that holds many locks.
async fn many_holds(server: &Server, count: usize) -> (Client, Vec<LockGuard>) {
    let client = rarely_beating(server).await;
    let mut guards = Vec::new();
    for number in 0..count {
        let mutex = InterProcessMutex::new(&client, format!("/locks/{number}")).unwrap();
        guards.push(within("the grant", mutex.lock()).await.unwrap());
    }
    (client, guards)
}

/// Deletes the nodes of some guards, makes the client send a heartbeat, and waits until each guard
/// is notified.
async fn delete_all(server: &Server, client: &Client, guards: &[LockGuard]) {
    for guard in guards {
        server.delete(&guard.node()).unwrap();
    }
    server.cut(session(client), Cut::Reset);
    for guard in guards {
        assert_eq!(
            within("the loss", guard.lost()).await.reason(),
            LostReason::NodeDeleted
        );
    }
}

// Shows: node-deleted-by-hand
#[tokio::test]
async fn mass_deletion_costs_two_requests() {
    let server = server();
    let (client, guards) = many_holds(&server, 201).await;
    server.reset_counters();
    delete_all(&server, &client, &guards[1..]).await;
    client.flush(LONG).await.unwrap();
    let counters = server.counters();
    let requests = [Op::Multi, Op::MultiRead, Op::Delete].map(|op| counters.requests(op));
    assert_eq!(requests, [1, 1, 0]);
    assert!(guards[0].is_held(), "its node is there");
    guards.into_iter().next().unwrap().release().await.unwrap();
}

/// Servers before 3.6 refuse a multi-read, or close the connection over it.
// Shows: node-deleted-by-hand
#[tokio::test]
async fn mass_deletion_noticed_without_multi_reads() {
    for closes in [false, true] {
        let server = server();
        let (client, guards) = many_holds(&server, 8).await;
        let id = session(&client);
        let reads = Match::op(Op::MultiRead).always();
        let _refused = if closes {
            server.drop_request(reads, Loss::Close)
        } else {
            server.fail(reads, UNIMPLEMENTED)
        };
        delete_all(&server, &client, &guards[..4]).await;
        delete_all(&server, &client, &guards[4..7]).await;
        assert_eq!(
            server.counters().requests(Op::MultiRead),
            1,
            "the multi-read was sent again"
        );
        assert_eq!(session(&client), id);
        assert!(guards[7].is_held(), "its node is there");
    }
}

/// The nodes are checked in no particular order. With many nodes that may not be checked, at least
/// one of them comes before the missing node.
// Shows: node-deleted-by-hand
#[tokio::test]
async fn denied_checks_hide_no_missing_node() {
    const DENIED: usize = 50;
    let (server, [client]) = with_clients(server(), client).await;
    let closed = Permissions::WRITE | Permissions::CREATE | Permissions::DELETE;
    let mut guards = Vec::new();
    for number in 0..DENIED {
        let path = format!("/closed/{number}");
        // The directory may be read.
        server.create(&path, "").unwrap();
        let mutex = InterProcessMutex::builder(&client, path)
            .acl([Acl::new("world", "anyone", closed)])
            .build()
            .unwrap();
        guards.push(within("the grant", mutex.lock()).await.unwrap());
    }
    let guard = hold(&client).await;
    let deleted = Instant::now();
    server.delete(&guard.node()).unwrap();
    assert_eq!(
        within("the loss", guard.lost()).await.reason(),
        LostReason::NodeDeleted
    );
    assert!(deleted.elapsed() < T / 5, "{:?}", deleted.elapsed());
    assert!(guards.iter().all(LockGuard::is_held));
}

// Shows: renewal
#[tokio::test]
async fn unreadable_root_stops_no_heartbeat() {
    // Servers before 3.9 return the Stat of any node, whatever its ACL.
    let tick = Duration::from_millis(50);
    let builder = Server::builder()
        .tick(tick)
        .max_session_timeout(LONG)
        .zookeeper_version(Version::V3_9);
    let server = builder.start().unwrap();
    // The heartbeat of a waiter has no node to check but the root.
    let (holder, waiter) = (client(&server).await, client(&server).await);
    let guard = hold(&holder).await;
    let waiting = tokio::spawn(mutex(&waiter).lock());
    until(&server, "the queue", |view| {
        view.children(DIRECTORY).len() == 2
    })
    .await;
    let outsider = zk::Client::connect(&server.connect_string()).await.unwrap();
    let closed = zk::Acl::new(
        zk::Permission::CREATE | zk::Permission::DELETE,
        zk::AuthId::anyone(),
    );
    outsider.set_acl("/", &[closed], None).await.unwrap();
    assert_eq!(
        outsider.check_stat("/").await.unwrap_err(),
        zk::Error::NoAuth
    );
    server.reset_counters();
    let id = session(&waiter);
    let beats = move |view: View<'_>| view.counters().requests_of(id, Op::Multi) >= 6;
    until(
        &server,
        "six heartbeats, which take longer than a lease",
        beats,
    )
    .await;
    assert_eq!(session(&waiter), id);
    guard.release().await.unwrap();
    within("the grant", waiting)
        .await
        .unwrap()
        .unwrap()
        .release()
        .await
        .unwrap();
}
