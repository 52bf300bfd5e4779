//! TestInterProcessMultiMutex; its inherited tests are in [`base`](super::base).

use test_support::prelude::*;

use super::stage::{Kind, Stage, ported};
use crate::harness::{Behaviour, Need};

pub(crate) fn all() -> Vec<Behaviour> {
    ported![Kind::Multi;
        test_some_releases_fail = "TestInterProcessMultiMutex.testSomeReleasesFail".needs(Need::HoldReplies),
        test_some_locks_fail_to_lock = "TestInterProcessMultiMutex.testSomeLocksFailToLock",
    ]
}

/// The refused release is reported, and the other locks are released.
// Shows: multi-lock-loss
async fn test_some_releases_fail(stage: &Stage<'_>) {
    let client = stage.client().await;
    let [one, two, three] = ["one", "two", "zzz"].map(|name| stage.env.path(name));
    let lock = InterProcessMultiLock::from_paths(&client, [&one, &two, &three]).unwrap();
    let guard = within("free locks", lock.lock()).await.unwrap();
    let refused = Match::op(Op::Delete)
        .path(guard.nodes()[1].as_str())
        .always();
    let fault = stage.env.server().fail(refused, ServerError::NoAuth.code());
    let error = within("the release", guard.release()).await.unwrap_err();
    assert!(matches!(error, ReleaseError::Refused { .. }), "{error}");
    for (path, left) in [(&one, 0), (&two, 1), (&three, 0)] {
        stage.env.wait_count(path, left).await;
    }
    // The refused lock blocks this client too; the error says so, and nothing else is left.
    let error = within("the answer", lock.lock()).await.unwrap_err();
    assert!(
        matches!(&error, AcquireError::Orphaned { path, .. } if *path == two),
        "{error}"
    );
    fault.remove();
}

/// The first lock is released when the second fails; Curator first continues with the third.
async fn test_some_locks_fail_to_lock(stage: &Stage<'_>) {
    let (client, other) = (stage.client().await, stage.client().await);
    let [one, two, three] = ["one", "two", "zzz"].map(|name| stage.env.path(name));
    // A queue with a different order is refused.
    let odd = InterProcessReadWriteLock::new(&other, &two)
        .unwrap()
        .write_lock();
    let odd = within("a free lock", odd.lock()).await.unwrap();
    let lock = InterProcessMultiLock::from_paths(&client, [&three, &one, &two]).unwrap();
    let error = within("the refusal", lock.lock()).await.unwrap_err();
    assert_eq!(
        (error.kind(), error.path()),
        (Some(ErrorKind::MixedRecipes), &*two),
        "{error}"
    );
    client.flush(SOON).await.unwrap();
    stage.env.wait_count(&one, 0).await;
    stage.env.wait_count(&two, 1).await;
    stage.env.wait_count(&three, 0).await;
    odd.release().await.unwrap();
    within("free locks", lock.lock())
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
}
