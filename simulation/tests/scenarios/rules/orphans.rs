//! Nodes that this client has left and may not delete: errors name such a node, and do not report
//! it as a live contender.

use std::error::Error;

use ::simulation::scenario::tokio;
use test_support::prelude::*;

/// ZooKeeper's error code.
const THROTTLED: i32 = -127;

/// ZooKeeper's `NoAuth`.
const NO_AUTH: i32 = -102;

/// Makes the server refuse the client's deletions below the lock's directory.
fn forbid(server: &Server, client: &Client) -> Fault {
    server.fail(
        Match::op(Op::Delete)
            .path_prefix(DIRECTORY)
            .session(session(client))
            .always(),
        NO_AUTH,
    )
}

/// Leaves a node that cannot be deleted, and returns its path.
async fn leave_an_orphan(server: &Server, client: &Client) -> (Fault, NodePath) {
    let guard = within("the grant", mutex(client).lock()).await.unwrap();
    let fault = forbid(server, client);
    let node = guard.node();
    let error = within("the release", guard.release()).await.unwrap_err();
    assert!(
        matches!(error, ReleaseError::Refused { others: 0, .. }),
        "{error}"
    );
    (fault, node)
}

/// Leaves the nodes of `count` places behind the holder. Returns the error of a flush.
async fn leave_orphans(server: &Server, client: &Client, count: usize) -> (Fault, ReleaseError) {
    let fair = fair(client);
    let mut places = Vec::new();
    for _ in 0..count {
        places.push(within("a place", fair.enqueue()).await.unwrap());
    }
    let fault = forbid(server, client);
    drop(places);
    (
        fault,
        within("the report", client.flush(SOON)).await.unwrap_err(),
    )
}

fn assert_orphaned(error: &AcquireError, node: &str) {
    let AcquireError::Orphaned {
        path, node: named, ..
    } = error
    else {
        panic!("{error:?}")
    };
    assert_eq!((&**path, &**named), (DIRECTORY, node));
    assert!(!error.is_retryable() && error.source().is_some());
    let text = error.to_string();
    assert!(
        text.contains(node)
            && text.contains("grant it DELETE")
            && text.contains("close the client"),
        "{text}"
    );
}

/// A list finds the node of an unanswered create, and the node cannot be deleted.
// Shows: refused-orphan
#[tokio::test]
async fn node_of_unanswered_create_becomes_orphan() {
    let (server, [client]) = with_clients(start(), connect).await;
    let create = Match::op(Op::Create).session(session(&client));
    let gate = server.hold_request(create.clone());
    server.drop_reply(create, Loss::Close);
    // The fault spares the deletion that is the write barrier, whose name has no number.
    let refused = server.fail(
        Match::op(Op::Delete).path_contains("-lock-0").always(),
        NO_AUTH,
    );
    let attempt = ByHand::new(mutex(&client).lock()).start();
    within("the create", gate.wait_hit()).await;
    drop(attempt);
    gate.release();
    let error = within("the report", client.flush(SOON)).await.unwrap_err();
    assert!(
        matches!(error, ReleaseError::Refused { others: 0, .. }),
        "{error}"
    );
    let node = queue(&server).remove(0);
    assert_orphaned(
        &within("the answer", mutex(&client).lock())
            .await
            .unwrap_err(),
        &node,
    );
    refused.remove();
    within("the grant", mutex(&client).lock())
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    assert!(!server.exists(&node));
    assert_clean(&server, "the end").await;
}

// Shows: refused-orphan
#[tokio::test]
async fn flush_reports_undeleted_nodes() {
    let (server, [client]) = with_clients(start(), connect).await;
    let guard = hold(&client).await;
    let node = guard.node();
    let fault = forbid(&server, &client);
    drop(guard);
    for _ in 0..2 {
        let error = within("the report", client.flush(SOON)).await.unwrap_err();
        let ReleaseError::Refused {
            node: named,
            others: 0,
            source,
            ..
        } = &error
        else {
            panic!("{error:?}")
        };
        assert_eq!(*named, node);
        assert!(!error.is_retryable());
        assert!(error.to_string().contains(node.as_str()), "{error}");
        assert!(source.to_string().contains("authorized"), "{source}");
    }
    fault.remove();
    within("the deletion", client.flush(SOON)).await.unwrap();
    assert_clean(&server, "after the deletion").await;
}

// Shows: flush
#[tokio::test]
async fn flush_counts_unanswered_deletion() {
    let (server, [client]) = with_clients(start(), connect).await;
    let (fault, _) = leave_an_orphan(&server, &client).await;
    fault.remove();
    let gate = server.hold_request(Match::op(Op::Delete).session(session(&client)));
    let error = within("the report", client.flush(Duration::from_millis(300)))
        .await
        .unwrap_err();
    assert!(
        matches!(error, ReleaseError::TimedOut { nodes: 1, .. }),
        "{error:?}"
    );
    gate.release();
    within("the deletion", client.flush(SOON)).await.unwrap();
    assert_clean(&server, "after the deletion").await;
}

#[tokio::test]
async fn flush_counts_only_remaining_nodes() {
    let (server, [client, other]) = with_clients(start(), connect).await;
    let held = hold(&other).await;
    let (fault, error) = leave_orphans(&server, &client, 3).await;
    assert!(
        matches!(error, ReleaseError::Refused { others: 2, .. }),
        "{error:?}"
    );
    assert!(error.to_string().contains("and 2 others"), "{error}");
    held.release().await.unwrap();
    for node in queue(&server) {
        server.delete(&node).unwrap();
    }
    fault.remove();
    within("nothing to do", client.flush(SOON)).await.unwrap();
    server.reset_counters();
    within("nothing to do", client.flush(SOON)).await.unwrap();
    assert_eq!(
        server.counters().requests(Op::Delete),
        0,
        "expected the nodes to be forgotten"
    );
}

// Shows: refused-orphan
#[tokio::test]
async fn orphan_ahead_is_reported() {
    let (server, [client]) = with_clients(start(), connect).await;
    let (fault, node) = leave_an_orphan(&server, &client).await;
    let mutex = mutex(&client);
    assert_orphaned(&within("lock", mutex.lock()).await.unwrap_err(), &node);
    assert_orphaned(
        &within("acquire", mutex.acquire(SOON)).await.unwrap_err(),
        &node,
    );
    match within("try_lock", mutex.try_lock()).await.unwrap_err() {
        TryLockError::Acquire(error) => assert_orphaned(&error, &node),
        other => panic!("{other:?}"),
    }
    assert_eq!(queue(&server), [&*node], "no other node was made");
    // Another directory is not affected.
    let elsewhere = InterProcessMutex::new(&client, "/locks/elsewhere").unwrap();
    within("elsewhere", elsewhere.lock())
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    fault.remove();
    within("allowed by now", mutex.lock())
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    assert_clean(&server, "after the deletion").await;
}

/// An attempt ends at the first refused deletion, and asks for no other.
// Shows: refused-orphan
#[tokio::test]
async fn attempt_asks_for_one_deletion() {
    let (server, [client, other]) = with_clients(start(), connect).await;
    let _held = hold(&other).await;
    let _refused = leave_orphans(&server, &client, 10).await;
    let fair = fair(&client);
    server.reset_counters();
    for _ in 0..3 {
        let error = within("lock", fair.lock()).await.unwrap_err();
        assert!(matches!(error, AcquireError::Orphaned { .. }), "{error:?}");
    }
    let counters = server.counters();
    assert_eq!(counters.requests(Op::Delete), 3, "one for each attempt");
    assert_eq!(counters.requests(Op::Create), 0, "no other node was made");
}

/// A waiter of the same client waits already when the node before it becomes an orphan. The lock is
/// handed over in memory, because the holder has released it and no contender can come between the
/// two.
// Shows: refused-orphan
#[tokio::test]
async fn waiter_behind_orphan_gets_the_lock() {
    for is_fair in [false, true] {
        let (server, [client, other]) = with_clients(start(), connect).await;
        let (first, second) = if is_fair {
            let fair = fair(&client);
            (tokio::spawn(fair.lock()), tokio::spawn(fair.clone().lock()))
        } else {
            let mutex = InterProcessMutex::builder(&client, DIRECTORY)
                .hand_off(9, SOON)
                .build()
                .unwrap();
            let ask = || ByHand::new(mutex.lock()).start().finished();
            (tokio::spawn(ask()), tokio::spawn(ask()))
        };
        let nodes = if is_fair { 2 } else { 1 };
        until(&server, "both", move |view| {
            view.children(DIRECTORY).len() == nodes
        })
        .await;
        let guard = granted(first).await;
        // These lists are answered after the second caller's own, so the second caller knows its
        // predecessor.
        for _ in 0..2 {
            assert_eq!(mutex(&client).participants().await.unwrap().len(), nodes);
        }
        // A waiter of another client is blocked as well, but it is alive.
        let theirs = enqueue(&server, &other).await;
        let fault = forbid(&server, &client);
        drop(guard);
        let guard = within("the answer", second).await.unwrap().unwrap();
        fault.remove();
        guard.release().await.unwrap();
        within("the deletion", client.flush(SOON)).await.unwrap();
        granted(theirs.attempt).await.release().await.unwrap();
    }
}

/// A contender that watches a node of its own client is notified when the deletion of that node is
/// refused: the node stays, so no event comes.
// Shows: refused-orphan
#[tokio::test]
async fn watcher_of_orphan_is_notified() {
    let (server, [client, other]) = with_clients(start(), calm).await;
    let held = hold(&other).await;
    let multi = InterProcessMultiLock::from_paths(&client, [DIRECTORY]).unwrap();
    let first = ByHand::new(multi.lock()).start();
    until(&server, "the first", |view| {
        view.children(DIRECTORY).len() == 2
    })
    .await;
    let second = tokio::spawn(multi.lock());
    let (node, id) = (queue(&server).remove(1), session(&client));
    let watched = node.clone();
    until(&server, "the second", move |view| {
        view.watches_on(&watched) == [id]
    })
    .await;
    let _refusals = forbid(&server, &client);
    drop(first);
    let error = within("the answer", second).await.unwrap().unwrap_err();
    assert_orphaned(&error, &node);
    held.release().await.unwrap();
}

/// The node of a create whose outcome was unknown is found after its attempt was given up, and
/// cannot be deleted.
// Shows: refused-orphan
#[tokio::test]
async fn undeletable_late_create_is_reported() {
    let (server, [client]) = with_clients(start(), connect).await;
    let gate = server.hold_reply(Match::op(Op::Create).session(session(&client)));
    let fault = forbid(&server, &client);
    let attempt = ByHand::new(mutex(&client).lock()).start();
    within("the create", gate.wait_hit()).await;
    drop(attempt);
    gate.release();
    let error = within("the report", client.flush(SOON)).await.unwrap_err();
    let [node] = &*queue(&server) else {
        panic!("one node is left")
    };
    assert!(
        matches!(&error, ReleaseError::Refused { node: named, .. } if named == node),
        "{error:?}"
    );
    assert_orphaned(
        &within("lock", mutex(&client).lock()).await.unwrap_err(),
        node,
    );
    fault.remove();
    within("allowed by now", mutex(&client).lock())
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
}

// Shows: cleanup
#[tokio::test]
async fn deletions_go_on_after_failures() {
    let (server, [client]) = with_clients(start(), calm).await;
    let deletions = Match::op(Op::Delete).session(session(&client));
    let failing = server.fail(deletions.times(20), THROTTLED);
    drop(hold(&client).await);
    within("the last failure", failing.wait_hits(20)).await;
    until_free(&server).await;
}
