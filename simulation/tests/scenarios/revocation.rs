//! Requests to revoke a lock, their notification, and the limit on the watches of one session.

use ::simulation::scenario::tokio;
use test_support::prelude::*;

/// Returns a writer whose node is watched for a request, and the task that waits for the request.
async fn listening_writer(server: &Server, client: &Client) -> (WriteGuard, JoinHandle<()>) {
    let guard = read_write::write(client).await;
    let revoked = tokio::spawn(guard.revoked());
    let (node, id) = (guard.node(), session(client));
    until(server, "the watch", move |view| {
        view.watches_on(&node) == [id]
    })
    .await;
    (guard, revoked)
}

/// The request is written to the old node, which a conversion replaces before the holder reads it.
// Shows: revocation
#[tokio::test]
async fn request_overtaken_by_conversion_is_seen() {
    let (server, [a, b]) = with_clients(start(), connect).await;
    let (guard, revoked) = listening_writer(&server, &a).await;
    let id = session(&a);
    // The read is not answered (the server reports a timed-out operation), and the next read comes
    // after the downgrade.
    let look = server.fail(Match::op(Op::GetData).session(id), -7);
    within("the request", b.attempt_revoke(&guard.node()))
        .await
        .unwrap();
    within("the look", look.wait_hit()).await;
    let guard = within("the downgrade", guard.downgrade()).await.unwrap();
    within("the notification", revoked).await.unwrap();
    guard.release().await.unwrap();
}

// Shows: revocation
#[tokio::test]
async fn request_after_conversion_is_seen() {
    let (server, [a, b]) = with_clients(start(), connect).await;
    let (guard, revoked) = listening_writer(&server, &a).await;
    let guard = within("the downgrade", guard.downgrade()).await.unwrap();
    let (node, id) = (guard.node(), session(&a));
    until(&server, "the watch", move |view| {
        view.watches_on(&node) == [id]
    })
    .await;
    within("the request", b.attempt_revoke(&guard.node()))
        .await
        .unwrap();
    within("the notification", revoked).await.unwrap();
    guard.release().await.unwrap();
}

/// The read after the event of a deletion by another process reveals the loss, without a heartbeat.
// Shows: node-deleted-by-hand
#[tokio::test]
async fn look_reports_deleted_node() {
    let (server, [client]) = with_clients(start(), calm).await;
    let (guard, revoked) = listening_writer(&server, &client).await;
    server.delete(&guard.node()).unwrap();
    assert_eq!(
        within("the loss", guard.lost()).await.reason(),
        LostReason::NodeDeleted
    );
    assert!(!revoked.is_finished());
    revoked.abort();
    assert!(guard.release().await.is_err());
}

/// A holder that was asked to release the lock, and has not done so yet, still learns of a deletion
/// without a heartbeat, even after a second request.
// Shows: revocation, node-deleted-by-hand
#[tokio::test]
async fn asked_holder_learns_of_deletion() {
    for requests in [1, 2] {
        let (server, [client, other]) = with_clients(start(), calm).await;
        let (guard, revoked) = listening_writer(&server, &client).await;
        let (node, id) = (guard.node(), session(&client));
        let second = tokio::spawn(guard.revoked());
        until(&server, "both looks", move |view| {
            view.counters().requests_of(id, Op::GetData) == 2
        })
        .await;
        other.attempt_revoke(&node).await.unwrap();
        within("the request", revoked).await.unwrap();
        within("the request, too", second).await.unwrap();
        within("a known request", guard.revoked()).await;
        // Both futures have read the request, and one continues to watch.
        assert_eq!(server.counters().requests_of(id, Op::GetData), 4);
        if requests == 2 {
            other.attempt_revoke(&node).await.unwrap();
            until(&server, "the next look", move |view| {
                view.counters().requests_of(id, Op::GetData) == 5
            })
            .await;
        }
        server.delete(&node).unwrap();
        let lost = within("the loss", guard.lost()).await;
        assert_eq!(lost.reason(), LostReason::NodeDeleted);
        assert!(guard.release().await.is_err());
        until(&server, "no watch", |view| view.watches() == 0).await;
    }
}

#[tokio::test]
async fn lost_requests_and_replies_are_repeated() {
    let (server, [a, b]) = with_clients(start(), connect).await;
    for applied in [true, false] {
        let guard = within("the lock", mutex(&a).lock()).await.unwrap();
        let set = Match::op(Op::SetData).session(session(&b));
        let fault = lose(&server, set, applied, Loss::Close);
        within("the request", b.attempt_revoke(&guard.node()))
            .await
            .unwrap();
        assert_eq!(fault.hits().len(), 1);
        let look = server.drop_reply(Match::op(Op::GetData).session(session(&a)), Loss::Close);
        within("the notification", guard.revoked()).await;
        assert_eq!(look.hits().len(), 1);
        guard.release().await.unwrap();
    }
    // The argument is neither a path nor the path of a node.
    for path in ["no path", DIRECTORY] {
        let error = path.parse::<NodePath>().unwrap_err();
        assert_eq!(error.path(), path);
    }
    // A path that cannot be sent is refused too.
    let long: NodePath = format!("/{}/lock-0000000001", "x".repeat(16 * 1024))
        .parse()
        .unwrap();
    let error = within("an answer", b.attempt_revoke(&long))
        .await
        .unwrap_err();
    assert_eq!(
        (error.kind(), error.path()),
        (ErrorKind::Rejected, long.as_str()),
        "{error}"
    );
    assert!(
        std::error::Error::source(&error)
            .unwrap()
            .is::<InvalidPath>(),
        "{error}"
    );
    b.close().await.unwrap();
    let error = within(
        "an answer",
        b.attempt_revoke(&"/locks/x/lock-0000000001".parse().unwrap()),
    )
    .await
    .unwrap_err();
    assert!(
        error.kind() == ErrorKind::Closed && !error.is_retryable(),
        "{error}"
    );
}

/// A session never has more watches than it can restore. A call that cannot watch fails, and leaves
/// nothing behind. Revocation does without watches earlier, and polls.
// Shows: watch-limit
#[tokio::test]
async fn watch_limit_is_reported() {
    let server = start();
    let (holder, client) = (
        connect(&server).await,
        connect_as(
            Client::builder()
                .retry_policy(eager())
                .session_timeout(Duration::from_secs(2)),
            &server,
        )
        .await,
    );
    // Paths of 7,000 bytes: seventeen fit into 120 KiB.
    let long = |i: usize| format!("/locks/{}{i:02}", "x".repeat(7_000));
    let mutex = |client: &Client, i| InterProcessMutex::new(client, long(i)).unwrap();
    let mut held = Vec::new();
    for i in 0..18 {
        held.push(within("a lock", mutex(&holder, i).lock()).await.unwrap());
    }
    let mut waiting = Vec::new();
    let id = session(&client);
    for (i, guard) in held.iter().enumerate().take(17) {
        waiting.push(tokio::spawn(mutex(&client, i).lock()));
        let node = guard.node();
        until(&server, "the watch", move |view| {
            view.watches_on(&node) == [id]
        })
        .await;
        if i == 8 {
            // Half of the limit is used up.
            let own = within(
                "a lock",
                InterProcessMutex::new(&client, long(99)).unwrap().lock(),
            )
            .await
            .unwrap();
            let mut revoked = ByHand::new(own.revoked()).start();
            until(&server, "a look without a watch", move |view| {
                view.counters().requests_of(id, Op::GetData) == 10
            })
            .await;
            assert_eq!(server.watches_on(&own.node()), [0_i64; 0]);
            within("the request", holder.attempt_revoke(&own.node()))
                .await
                .unwrap();
            revoked.woken().await;
            assert!(revoked.poll().is_ready());
        }
    }
    let error = within("a refusal", mutex(&client, 17).lock())
        .await
        .unwrap_err();
    assert!(
        matches!(error, AcquireError::TooManyWatches { .. }) && error.is_retryable(),
        "{error}"
    );
    let directory = long(17);
    client.flush(SOON).await.unwrap();
    assert_eq!(server.children(&directory).len(), 1, "its node is gone");
    // There is room again as soon as one waiter is served.
    held.swap_remove(0).release().await.unwrap();
    within("a lock", waiting.swap_remove(0))
        .await
        .unwrap()
        .unwrap()
        .release()
        .await
        .unwrap();
    let again = tokio::spawn(mutex(&client, 17).lock());
    until(&server, "a watch", move |view| {
        view.children(&directory).len() == 2 && view.watches() == 17
    })
    .await;
    // The session comes back with all of its watches.
    server.cut(id, Cut::Reset);
    drop(held);
    within("a lock", again)
        .await
        .unwrap()
        .unwrap()
        .release()
        .await
        .unwrap();
    for attempt in waiting {
        within("a lock", attempt)
            .await
            .unwrap()
            .unwrap()
            .release()
            .await
            .unwrap();
    }
    assert_eq!(session(&client), id);
}

/// A request from before the watch is shown by the read that sets the watch.
// Shows: revocation
#[tokio::test]
async fn earlier_request_is_reported() {
    let (server, [client, other]) = with_clients(start(), calm).await;
    let guard = hold(&client).await;
    other.attempt_revoke(&guard.node()).await.unwrap();
    within("the request", guard.revoked()).await;
    guard.release().await.unwrap();
    assert_clean(&server, "a request that came first").await;
}
