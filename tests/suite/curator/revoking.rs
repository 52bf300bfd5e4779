//! TestInterProcessMutex.testRevoking, for every lock: a holder is asked for the lock and releases
//! it, and another contender gets it.

use test_support::within;
use zookeeper_recipes::{AnyGuard, NodePath};

use super::stage::{Kind, Stage, ported};
use crate::harness::Behaviour;

pub(crate) fn all(kind: Kind) -> Vec<Behaviour> {
    ported![kind;
        test_revoking = "TestInterProcessMutex.testRevoking".also_on_ensemble(),
        request_before_listening_is_seen,
        request_to_waiter_reaches_holder,
        departing_listener_removes_its_watch,
        curators_data_is_a_request,
    ]
}

/// A holder that listens and obeys, and a waiter.
async fn held_and_waited_for(
    stage: &Stage<'_>,
) -> (
    NodePath,
    tokio::task::JoinHandle<()>,
    tokio::task::JoinHandle<AnyGuard>,
) {
    let ours = stage.newcomer().await;
    let guard = within("a free lock", ours.lock()).await.unwrap();
    let node = guard.node();
    let holder = tokio::spawn(async move {
        guard.revoked().await;
        // The request alone ends no hold.
        assert!(guard.is_held());
        guard.release().await.unwrap();
    });
    let theirs = stage.rival().await;
    let waiter = tokio::spawn(async move { theirs.lock().await.unwrap() });
    stage.env.wait_watchers(&node, 2).await;
    assert!(!holder.is_finished() && !waiter.is_finished());
    (node, holder, waiter)
}

// Shows: revocation
async fn test_revoking(stage: &Stage<'_>) {
    let (node, holder, waiter) = held_and_waited_for(stage).await;
    let requester = stage.client().await;
    within("the request", requester.attempt_revoke(&node))
        .await
        .unwrap();
    within("the holder's end", holder).await.unwrap();
    let guard = within("the waiter's grant", waiter).await.unwrap();
    assert!(guard.is_held());
    guard.release().await.unwrap();
    // A node that no longer exists is no error, as in Curator.
    within("an answer", requester.attempt_revoke(&node))
        .await
        .unwrap();
}

async fn request_before_listening_is_seen(stage: &Stage<'_>) {
    let ours = stage.newcomer().await;
    let guard = within("a free lock", ours.lock()).await.unwrap();
    let revoked = guard.revoked();
    within(
        "the request",
        stage.client().await.attempt_revoke(&guard.node()),
    )
    .await
    .unwrap();
    within("the news", revoked).await;
    // A second listener is told of the same request.
    within("the news", guard.revoked()).await;
    guard.release().await.unwrap();
}

// Shows: revocation
async fn request_to_waiter_reaches_holder(stage: &Stage<'_>) {
    let path = stage.env.lock_path();
    let holder = within("a free lock", stage.rival().await.lock())
        .await
        .unwrap();
    let ours = stage.newcomer().await;
    let waiter = tokio::spawn(async move { ours.lock().await.unwrap() });
    stage.env.wait_watchers(&holder.node(), 1).await;
    let queue = stage
        .env
        .children(&path)
        .await
        .into_iter()
        .map(|name| format!("{path}/{name}"));
    let node = queue
        .into_iter()
        .find(|node| *node != holder.node())
        .unwrap();
    within(
        "the request",
        stage.client().await.attempt_revoke(&node.parse().unwrap()),
    )
    .await
    .unwrap();
    assert!(holder.is_held() && !waiter.is_finished());
    holder.release().await.unwrap();
    let guard = within("the waiter's grant", waiter).await.unwrap();
    assert_eq!(guard.node(), node);
    within("the news", guard.revoked()).await;
    guard.release().await.unwrap();
}

async fn departing_listener_removes_its_watch(stage: &Stage<'_>) {
    let guard = within("a free lock", stage.newcomer().await.lock())
        .await
        .unwrap();
    for _ in 0..3 {
        let listener = tokio::spawn(guard.revoked());
        stage.env.wait_watchers(&guard.node(), 1).await;
        listener.abort();
        stage.env.wait_no_watches().await;
    }
    // A listener that only learns of the release keeps nothing either.
    let listener = tokio::spawn(guard.revoked());
    stage.env.wait_watchers(&guard.node(), 1).await;
    guard.release().await.unwrap();
    stage.env.wait_no_watches().await;
    assert!(!listener.is_finished());
    listener.abort();
}

async fn curators_data_is_a_request(stage: &Stage<'_>) {
    let (node, holder, waiter) = held_and_waited_for(stage).await;
    let plain_client = stage.env.plain_client().await;
    // Any other data is not a request.
    plain_client
        .set_data(&node, b"__REVOKE", None)
        .await
        .unwrap();
    stage.env.wait_watchers(&node, 2).await;
    assert!(!holder.is_finished());
    plain_client
        .set_data(&node, b"__REVOKE__", None)
        .await
        .unwrap();
    within("the holder's end", holder).await.unwrap();
    within("the waiter's grant", waiter)
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
}
