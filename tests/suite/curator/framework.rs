//! What of the tests of curator-framework a lock can be held to: TestFrameworkEdges on creates whose outcome
//! is unknown, TestFailedDeleteManager on deletes that must happen.

use std::time::Duration;

use test_support::{SOON, within};
use zookeeper_client as zk;
use zookeeper_recipes::{AcquireError, Client, ErrorKind, LostReason, ReleaseError, RetryPolicy};
use zookeeper_test_server::{CreateMode, Loss, Match, Op};

use super::stage::{Kind, Stage, ported};
use crate::harness::{Behaviour, Need};

pub(crate) fn all() -> Vec<Behaviour> {
    ported![Kind::Mutex;
        test_protection_with_killed_session = "TestFrameworkEdges.testProtectionWithKilledSession"
            .needs(Need::HoldReplies),
        test_protection_with_killed_session_on_servers =
            "TestFrameworkEdges.testProtectionWithKilledSession".on_an_ensemble_too(),
        test_protected_create_node_deletion = "TestFrameworkEdges.testProtectedCreateNodeDeletion"
            .needs(Need::HoldReplies),
        test_paths_from_protecting_in_background = "TestFrameworkEdges.testPathsFromProtectingInBackground"
            .needs(Need::HoldReplies),
        test_lost_session = "TestFailedDeleteManager.testLostSession",
        test_with_namespace_and_lost_session = "TestFailedDeleteManager.testWithNamespaceAndLostSession",
        test_guaranteed_delete_on_non_existent_node_in_foreground =
            "TestFailedDeleteManager.testGuaranteedDeleteOnNonExistentNodeInForeground",
        test_guaranteed_delete_on_non_existent_node_in_background =
            "TestFailedDeleteManager.testGuaranteedDeleteOnNonExistentNodeInBackground",
    ]
}

fn spawn(
    stage: &Stage<'_>,
    client: &Client,
) -> tokio::task::JoinHandle<Result<zookeeper_recipes::AnyGuard, AcquireError>> {
    let lock = stage.lock(client);
    tokio::spawn(async move { lock.lock().await })
}

/// The node of a session that is over can still be seen where the next session looks, as on a member that
/// lags behind. It is not taken for the next one's, whatever its name says, but waited for.
// Shows: owner-check
async fn test_protection_with_killed_session(stage: &Stage<'_>) {
    let client = stage.client().await;
    let server = stage.env.server();
    let path = stage.env.lock_path();
    within("a free lock", stage.lock(&client).lock()).await.unwrap().release().await.unwrap();
    let session = client.session_id().unwrap();
    let created = server.hold_reply(Match::op(Op::Create).path_prefix(&path).session(session));
    let attempt = spawn(stage, &client);
    within("its create", created.wait_hit()).await;
    let [name] = &stage.env.children(&path).await[..] else { panic!("one node") };
    let ghost = format!("{path}/{name}");
    // Looks before the next session may have asked for anything, so that the old node is there all the time.
    let next = server.hold_request(Match::op(Op::Create).path_prefix(&path));
    assert!(server.expire_session(session));
    within("the next session's create", next.wait_hit()).await;
    let owner = stage.env.outsider().await.session_id().0;
    server.create_as(&ghost, "", CreateMode::Ephemeral, owner).unwrap();
    created.release();
    next.release();
    stage.env.wait_watchers(&ghost, 1).await;
    assert!(!attempt.is_finished(), "it took the old session's node for its own");
    assert_eq!(stage.env.children(&path).await.len(), 2);
    stage.env.delete(&ghost).await;
    let guard = within("the grant", attempt).await.unwrap().unwrap();
    assert_ne!(guard.node(), ghost);
    let owner = stage.env.stat(&guard.node()).await.unwrap().ephemeral_owner;
    assert!(owner != session && Some(owner) == client.session_id());
    guard.release().await.unwrap();
}

/// The session ends at some moment of an attempt on real servers; what is granted is the next session's own
/// node, and the only one.
async fn test_protection_with_killed_session_on_servers(stage: &Stage<'_>) {
    let (client, link) = stage.linked().await;
    let path = stage.env.lock_path();
    within("a free lock", stage.lock(&client).lock()).await.unwrap().release().await.unwrap();
    let session = client.session_id().unwrap();
    let attempt = spawn(stage, &client);
    // The create is on its way; whether it arrives is the network's affair.
    link.cut();
    stage.env.wait_session_gone(session).await;
    link.mend();
    let guard = within("the grant", attempt).await.unwrap();
    let guard = match guard {
        // Granted by the old session before the cut: then it was lost with it.
        Ok(guard) if !guard.is_held() => {
            drop(guard);
            within("the grant", stage.lock(&client).lock()).await.unwrap()
        }
        Ok(guard) => guard,
        Err(error) => panic!("{error}"),
    };
    let owner = stage.env.stat(&guard.node()).await.unwrap().ephemeral_owner;
    assert!(owner != session && Some(owner) == client.session_id());
    let children = stage.env.children(&path).await;
    assert_eq!(children.iter().map(|name| format!("{path}/{name}")).collect::<Vec<_>>(), [guard.node()]);
    guard.release().await.unwrap();
}

/// A create whose reply is lost, without a second try: the caller hears of the connection, and the node is
/// found and deleted, although looking for it fails at first. With and without a namespace.
async fn test_protected_create_node_deletion(stage: &Stage<'_>) {
    let server = stage.env.server();
    let no_retry = || stage.env.builder().retry_policy(RetryPolicy::n_times(0, Duration::ZERO));
    let namespace = stage.env.path("shop");
    for (builder, path, full) in [
        (no_retry(), stage.env.path("parent"), stage.env.path("parent")),
        (no_retry().namespace(&namespace), "/parent".to_owned(), format!("{namespace}/parent")),
    ] {
        let client = stage.connect(builder).await;
        let lock = stage.lock_at(&client, &path);
        within("a free lock", lock.lock()).await.unwrap().release().await.unwrap();
        let session = client.session_id().unwrap();
        let created = Match::op(Op::Create).path_prefix(format!("{full}/")).session(session);
        let fault = server.drop_reply(created, Loss::Reset);
        // Whether the attempt's own list is among them or not, at least one of the search's is.
        let listed = Match::op(Op::GetChildren).path(&full).session(session).times(2);
        let search = server.drop_reply(listed, Loss::Reset);
        let error = within("an answer", lock.lock()).await.unwrap_err();
        assert_eq!(error.kind(), Some(ErrorKind::Connection), "{error:?}");
        assert_eq!(fault.hits().len(), 1);
        client.flush(SOON).await.unwrap();
        assert_eq!(search.hits().len(), 2, "the search was disturbed as well");
        assert_eq!(stage.env.children(&full).await, [""; 0]);
        assert_eq!(client.session_id(), Some(session), "and the session is the same");
    }
}

/// What a guard says its node is, is the node: after a create that went well, after one whose reply was lost,
/// and after one that was lost itself.
async fn test_paths_from_protecting_in_background(stage: &Stage<'_>) {
    let client = stage.client().await;
    let server = stage.env.server();
    // Deep, and none of it there.
    let path = stage.env.path("a/b/c/test");
    let lock = stage.lock_at(&client, &path);
    for lost in [None, Some(true), Some(false), None] {
        let create = Match::op(Op::Create).path_prefix(format!("{path}/"));
        let fault = match lost {
            None => None,
            Some(true) => Some(server.drop_reply(create, Loss::Close)),
            Some(false) => Some(server.drop_request(create, Loss::Close)),
        };
        let guard = within("the grant", lock.lock()).await.unwrap();
        assert!(fault.is_none_or(|fault| fault.hits().len() == 1));
        stage.env.wait_count(&path, 1).await;
        let children = stage.env.children(&path).await;
        assert_eq!([guard.node()], [format!("{path}/{}", children[0])]);
        assert_eq!(lock.participants().await.unwrap(), [guard.node()]);
        let (name, stat) = (&children[0], stage.env.stat(&guard.node()).await.unwrap());
        assert!(name.starts_with("_c_") && name[..name.len() - 10].ends_with("-lock-"), "{name}");
        assert_eq!(Some(stat.ephemeral_owner), client.session_id());
        guard.release().await.unwrap();
        assert_eq!(stage.env.children(&path).await, [""; 0]);
    }
}

/// A release without a server, whose session ends before there is one again: it ends, and with it what was to
/// be deleted.
async fn lost_session(
    stage: &Stage<'_>,
    client: &Client,
    link: &crate::harness::Link,
    path: &str,
    full: &str,
) {
    let lock = stage.lock_at(client, path);
    let (dropped, session) =
        (within("a free lock", lock.lock()).await.unwrap(), client.session_id().unwrap());
    let other = stage.lock_at(client, &format!("{path}-2"));
    let released = within("a free lock", other.lock()).await.unwrap();
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
    for path in [full.to_owned(), format!("{full}-2")] {
        assert_eq!(stage.env.children(&path).await, [""; 0]);
    }
    for lock in [lock, other] {
        within("a free lock", lock.lock()).await.unwrap().release().await.unwrap();
    }
    assert_ne!(client.session_id(), Some(session));
}

// Shows: one-session
async fn test_lost_session(stage: &Stage<'_>) {
    let (client, link) = stage.linked().await;
    let path = stage.env.path("me");
    lost_session(stage, &client, &link, &path, &path).await;
}

async fn test_with_namespace_and_lost_session(stage: &Stage<'_>) {
    let namespace = stage.env.path("shop");
    let (client, link) = stage.env.linked(stage.env.builder().namespace(&namespace)).await;
    stage.keep(&client);
    lost_session(stage, &client, &link, "/me", &format!("{namespace}/me")).await;
}

/// A node that another client has deleted: the release says so, once.
async fn test_guaranteed_delete_on_non_existent_node_in_foreground(stage: &Stage<'_>) {
    let client = stage.client().await;
    let lock = stage.lock(&client);
    let guard = within("a free lock", lock.lock()).await.unwrap();
    stage.env.delete(&guard.node()).await;
    match within("an answer", guard.release()).await.unwrap_err() {
        ReleaseError::Lost(lost) => {
            assert_eq!((lost.reason(), lost.path()), (LostReason::NodeDeleted, &*stage.env.lock_path()));
        }
        other => panic!("{other:?}"),
    }
    // Nothing is tried again.
    client.flush(Duration::ZERO).await.unwrap();
    within("a free lock", lock.lock()).await.unwrap().release().await.unwrap();
}

/// The same with a guard that is dropped.
async fn test_guaranteed_delete_on_non_existent_node_in_background(stage: &Stage<'_>) {
    let client = stage.client().await;
    let lock = stage.lock(&client);
    let guard = within("a free lock", lock.lock()).await.unwrap();
    let node = guard.node();
    stage.env.delete(&node).await;
    drop(guard);
    client.flush(SOON).await.unwrap();
    client.flush(Duration::ZERO).await.unwrap();
    // Another client may have a node of that name, which is not ours to delete.
    stage.env.create(&node, zk::CreateMode::Ephemeral).await;
    within("another grant", lock.participants()).await.unwrap();
    assert!(stage.env.stat(&node).await.is_some());
    stage.env.delete(&node).await;
    within("a free lock", lock.lock()).await.unwrap().release().await.unwrap();
}
