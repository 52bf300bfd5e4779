//! The tests of curator-framework that apply to locks: TestFrameworkEdges on creates with an
//! unknown outcome, TestFailedDeleteManager on deletions that must happen.

use test_support::prelude::*;
use zookeeper_client as zk;

use super::stage::{Kind, Stage, ported};
use crate::harness::{Behaviour, Need};

pub(crate) fn all() -> Vec<Behaviour> {
    ported![Kind::Mutex;
        test_protection_with_killed_session = "TestFrameworkEdges.testProtectionWithKilledSession"
            .needs(Need::HoldReplies),
        test_lost_session = "TestFailedDeleteManager.testLostSession",
        test_guaranteed_delete_in_foreground =
            "TestFailedDeleteManager.testGuaranteedDeleteOnNonExistentNodeInForeground",
        test_guaranteed_delete_in_background =
            "TestFailedDeleteManager.testGuaranteedDeleteOnNonExistentNodeInBackground",
    ]
}

/// The node of an ended session may still be visible to the next session, as on a member that lags
/// behind. The next session waits for its end, whatever its name says.
// Shows: owner-check
async fn test_protection_with_killed_session(stage: &Stage<'_>) {
    let client = stage.client().await;
    let server = stage.env.server();
    let path = stage.env.lock_path();
    within("a free lock", stage.lock(&client).lock())
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    let session = client.session_id().unwrap();
    let created = server.hold_reply(Match::op(Op::Create).path_prefix(&path).session(session));
    let lock = stage.lock(&client);
    let attempt = tokio::spawn(async move { lock.lock().await });
    within("its create", created.wait_hit()).await;
    let [name] = &stage.env.children(&path).await[..] else {
        panic!("one node")
    };
    let ghost = format!("{path}/{name}");
    // This gate holds the next session's first create, so that the old node exists all the time.
    let next = server.hold_request(Match::op(Op::Create).path_prefix(&path));
    assert!(server.expire_session(session));
    within("the next session's create", next.wait_hit()).await;
    let owner = stage.env.plain_client().await.session_id().0;
    server
        .create_as(&ghost, "", CreateMode::Ephemeral, owner)
        .unwrap();
    created.release();
    next.release();
    stage.env.wait_watchers(&ghost, 1).await;
    assert!(
        !attempt.is_finished(),
        "the attempt took the old session's node for its own"
    );
    assert_eq!(stage.env.children(&path).await.len(), 2);
    stage.env.delete(&ghost).await;
    let guard = within("the grant", attempt).await.unwrap().unwrap();
    assert_ne!(guard.node(), ghost);
    let owner = stage.env.stat(&guard.node()).await.unwrap().ephemeral_owner;
    assert!(owner != session && Some(owner) == client.session_id());
    guard.release().await.unwrap();
}

/// A lock is released without a server, and the session ends before a server is back: the release
/// ends, and the node is deleted with the session.
// Shows: one-session
async fn test_lost_session(stage: &Stage<'_>) {
    let (client, link) = stage.linked().await;
    let paths = [stage.env.path("dropped"), stage.env.path("released")];
    let locks = paths.each_ref().map(|path| stage.lock_at(&client, path));
    let dropped = within("a free lock", locks[0].lock()).await.unwrap();
    let released = within("a free lock", locks[1].lock()).await.unwrap();
    let session = client.session_id().unwrap();
    link.cut();
    drop(dropped);
    let release = tokio::spawn(released.release());
    stage.env.wait_session_gone(session).await;
    link.mend();
    match within("an answer", release).await.unwrap() {
        Err(ReleaseError::Lost(lost)) => assert_eq!(lost.reason(), LostReason::SessionExpired),
        other => panic!("{other:?}"),
    }
    client.flush(SOON).await.unwrap();
    for (path, lock) in paths.iter().zip(&locks) {
        assert_eq!(stage.env.children(path).await, [""; 0]);
        within("a free lock", lock.lock())
            .await
            .unwrap()
            .release()
            .await
            .unwrap();
    }
    assert_ne!(client.session_id(), Some(session));
}

/// Another client has deleted the node: the release reports that once.
async fn test_guaranteed_delete_in_foreground(stage: &Stage<'_>) {
    let client = stage.client().await;
    let lock = stage.lock(&client);
    let guard = within("a free lock", lock.lock()).await.unwrap();
    stage.env.delete(&guard.node()).await;
    match within("an answer", guard.release()).await.unwrap_err() {
        ReleaseError::Lost(lost) => {
            assert_eq!(
                (lost.reason(), lost.path()),
                (LostReason::NodeDeleted, &*stage.env.lock_path())
            );
        }
        other => panic!("{other:?}"),
    }
    // No request is repeated.
    client.flush(Duration::ZERO).await.unwrap();
    within("a free lock", lock.lock())
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
}

/// A dropped guard deletes its node in the background.
async fn test_guaranteed_delete_in_background(stage: &Stage<'_>) {
    let client = stage.client().await;
    let lock = stage.lock(&client);
    let guard = within("a free lock", lock.lock()).await.unwrap();
    let node = guard.node();
    stage.env.delete(&node).await;
    drop(guard);
    client.flush(SOON).await.unwrap();
    client.flush(Duration::ZERO).await.unwrap();
    // Another client may have a node with this name, which this client must not delete.
    stage.env.create(&node, zk::CreateMode::Ephemeral).await;
    within("another grant", lock.participants()).await.unwrap();
    assert!(stage.env.stat(&node).await.is_some());
    stage.env.delete(&node).await;
    within("a free lock", lock.lock())
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
}
