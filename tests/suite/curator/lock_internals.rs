//! TestLockInternals: what is left of a contender that the server disappoints, and which error says so.

use std::time::Duration;

use test_support::{SOON, within};
use zookeeper_client as zk;
use zookeeper_recipes::{AcquireError, ErrorKind, RetryPolicy};
use zookeeper_test_server::{Match, Op, ServerError};

use super::stage::{Kind, Stage, ported};
use crate::harness::{Behaviour, Need};

pub(crate) fn all() -> Vec<Behaviour> {
    ported![Kind::Mutex;
        test_node_deleted_cleanly_with_faults = "TestLockInternals.testNodeDeletedCleanlyWithFaults"
            .needs(Need::HoldReplies),
        test_attempt_lock_failed_exception = "TestLockInternals.testAttemptLockFailedException"
            .needs(Need::HoldReplies),
        test_attempt_lock_failed_with_its_session = "TestLockInternals.testAttemptLockFailedException"
            .needs(Need::HoldReplies),
    ]
}

/// The contender's node is gone when it looks, and nothing is tried again: the answer says so, and nothing is
/// left.
async fn test_node_deleted_cleanly_with_faults(stage: &Stage<'_>) {
    let client =
        stage.connect(stage.env.builder().retry_policy(RetryPolicy::n_times(0, Duration::ZERO))).await;
    let (lock, path) = (stage.lock(&client), stage.env.lock_path());
    within("a free lock", lock.lock()).await.unwrap().release().await.unwrap();
    let server = stage.env.server();
    let session = client.session_id().unwrap();
    for _ in 0..2 {
        // A contender has to be in front, so that it looks more than once; another session of the test's own.
        let outsider = stage.env.create(&format!("{path}/lock-"), zk::CreateMode::EphemeralSequential).await;
        let waiter = tokio::spawn({
            let lock = stage.lock(&client);
            async move { lock.lock().await }
        });
        stage.env.wait_watchers(&outsider, 1).await;
        let second_look = server.hold_request(Match::op(Op::GetChildren).path(&path).session(session));
        server.set_data(&outsider, "look again").unwrap();
        within("its second look", second_look.wait_hit()).await;
        let name =
            stage.env.children(&path).await.into_iter().find(|name| !outsider.ends_with(name)).unwrap();
        server.delete(&format!("{path}/{name}")).unwrap();
        second_look.release();
        match within("an answer", waiter).await.unwrap().unwrap_err() {
            error @ AcquireError::NodeDeleted { times: 1, .. } => assert!(error.is_retryable()),
            other => panic!("{other:?}"),
        }
        client.flush(SOON).await.unwrap();
        assert_eq!(stage.env.children(&path).await.len(), 1, "only the outsider's");
        stage.env.delete(&outsider).await;
    }
    within("a free lock", lock.lock()).await.unwrap().release().await.unwrap();
}

/// What went wrong first is what the caller hears, although the deletion of its node goes wrong as well; and
/// the node goes when the server comes to its senses.
async fn test_attempt_lock_failed_exception(stage: &Stage<'_>) {
    let client =
        stage.connect(stage.env.builder().retry_policy(RetryPolicy::n_times(0, Duration::ZERO))).await;
    let (lock, path) = (stage.lock(&client), stage.env.lock_path());
    within("a free lock", lock.lock()).await.unwrap().release().await.unwrap();
    let server = stage.env.server();
    let session = client.session_id().unwrap();
    let no_list = Match::op(Op::GetChildren).path(&path).session(session);
    let listing = server.fail(no_list, ServerError::NoAuth.code());
    // "The server is busy with itself" (-7): one that may be tried again.
    let no_delete = Match::op(Op::Delete).path_prefix(format!("{path}/")).session(session).times(3);
    let deleting = server.fail(no_delete, -7);
    let error = within("an answer", lock.lock()).await.unwrap_err();
    assert_eq!(error.kind(), Some(ErrorKind::NoAuth), "{error:?}");
    assert_eq!(listing.hits().len(), 1);
    client.flush(SOON).await.unwrap();
    assert_eq!(deleting.hits().len(), 3, "its node was tried to be deleted until it was");
    assert_eq!(stage.env.children(&path).await, [""; 0]);
}

/// The same, and the reason for the second failure is that the session is over, as in Curator's test.
async fn test_attempt_lock_failed_with_its_session(stage: &Stage<'_>) {
    let client =
        stage.connect(stage.env.builder().retry_policy(RetryPolicy::n_times(0, Duration::ZERO))).await;
    let (lock, path) = (stage.lock(&client), stage.env.lock_path());
    within("a free lock", lock.lock()).await.unwrap().release().await.unwrap();
    let server = stage.env.server();
    let session = client.session_id().unwrap();
    let listing =
        server.fail(Match::op(Op::GetChildren).path(&path).session(session), ServerError::NoAuth.code());
    let deletion =
        server.hold_request(Match::op(Op::Delete).path_prefix(format!("{path}/")).session(session));
    let attempt = tokio::spawn({
        let lock = stage.lock(&client);
        async move { lock.lock().await }
    });
    within("the deletion", deletion.wait_hit()).await;
    assert!(server.expire_session(session));
    deletion.release();
    let error = within("an answer", attempt).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), Some(ErrorKind::NoAuth), "{error:?}");
    assert_eq!(listing.hits().len(), 1);
    client.flush(SOON).await.unwrap();
    assert_eq!(stage.env.children(&path).await, [""; 0]);
    within("a free lock", lock.lock()).await.unwrap().release().await.unwrap();
}
