//! Dropping a future at any moment leaves nothing behind.

use std::time::Duration;

use test_support::{SOON, within};
use tokio_test::{assert_pending, task};
use zookeeper_recipes::{InterProcessMutex, ReleaseError};
use zookeeper_test_server::{Gate, Loss, Match, Op};

use crate::harness::{Behaviour, Env, Need, behaviours};

pub(crate) fn all() -> Vec<Behaviour> {
    behaviours![
        at_random_moments_leaves_nothing.whatever_breaks().on_an_ensemble_too(),
        a_waiter_leaves_nothing.curator("testInterruptAcquire").whatever_breaks().on_an_ensemble_too(),
        before_the_first_poll_does_nothing,
        before_the_server_has_created_leaves_nothing.needs(Need::HoldReplies),
        after_the_server_has_created_leaves_nothing.needs(Need::HoldReplies),
        when_the_grant_is_on_its_way_gives_it_back.needs(Need::HoldReplies),
        a_question_leaves_nothing.needs(Need::HoldReplies),
        while_the_session_ends_harms_no_other.needs(Need::HoldReplies),
        a_timeout_while_the_session_ends_harms_no_other.needs(Need::HoldReplies),
        one_who_waits_in_memory_makes_room,
        flush_waits_for_the_clean_up.needs(Need::HoldReplies),
        flush_of_a_tidy_client_does_not_wait,
        a_lost_reply_to_the_create_leaves_one_node.needs(Need::HoldReplies),
        a_lost_create_is_repeated.needs(Need::HoldReplies),
        a_lost_reply_to_a_cancelled_create_leaves_nothing.needs(Need::HoldReplies),
        a_lost_reply_to_the_delete_is_a_release.needs(Need::HoldReplies),
    ]
}

async fn at_random_moments_leaves_nothing(env: &Env) {
    let client = env.client().await;
    let mutex = InterProcessMutex::new(&client, env.lock_path()).unwrap();
    let mut granted = 0;
    for _ in 0..60 {
        let patience = env.random().duration(Duration::from_millis(4));
        if let Ok(guard) = tokio::time::timeout(patience, mutex.lock()).await {
            drop(guard.unwrap());
            granted += 1;
        }
    }
    client.flush(SOON).await.unwrap();
    assert_eq!(env.children(&env.lock_path()).await, [""; 0], "{granted} were granted");
    let theirs = env.mutex().await;
    within("a free lock", theirs.lock()).await.unwrap().release().await.unwrap();
}

async fn a_waiter_leaves_nothing(env: &Env) {
    let (ours, theirs) = (env.client().await, env.client().await);
    let waiting = InterProcessMutex::new(&theirs, env.lock_path()).unwrap();
    let guard = InterProcessMutex::new(&ours, env.lock_path()).unwrap().lock().await.unwrap();
    // A create that was repeated may have left a second node, which is on its way out.
    ours.flush(SOON).await.unwrap();
    for _ in 0..3 {
        let waiter = tokio::spawn(waiting.lock());
        env.wait_children(&env.lock_path(), "a waiter", |now| now.len() >= 2).await;
        waiter.abort();
        assert!(within("its end", waiter).await.unwrap_err().is_cancelled());
        theirs.flush(SOON).await.unwrap();
        assert_eq!(env.children(&env.lock_path()).await.len(), 1);
    }
    within("the release", guard.release()).await.unwrap();
    within("a free lock", waiting.lock()).await.unwrap().release().await.unwrap();
}

async fn before_the_first_poll_does_nothing(env: &Env) {
    let mutex = env.mutex().await;
    drop(mutex.lock());
    drop(mutex.acquire(Duration::from_secs(1)));
    drop(mutex.try_lock());
    assert_eq!(mutex.participants().await.unwrap(), [""; 0]);
    assert!(env.stat(&env.lock_path()).await.is_none());
}

/// Begins to acquire a lock whose directory exists, lets it go on until the gate has hit, and drops the
/// future.
async fn cancel_at(env: &Env, gate: impl FnOnce(&str) -> Gate, question: bool) {
    let client = env.client().await;
    let path = env.lock_path();
    let mutex = InterProcessMutex::new(&client, &path).unwrap();
    mutex.lock().await.unwrap().release().await.unwrap();
    let gate = gate(&path);
    if question {
        let mut attempt = task::spawn(mutex.try_lock());
        assert_pending!(attempt.poll());
        within("the request", gate.wait_hit()).await;
        drop(attempt);
    } else {
        let mut attempt = task::spawn(mutex.lock());
        assert_pending!(attempt.poll());
        within("the request", gate.wait_hit()).await;
        drop(attempt);
    }
    assert!(!mutex.is_acquired_in_this_process());
    gate.release();
    client.flush(SOON).await.unwrap();
    assert_eq!(env.children(&path).await, [""; 0]);
    let theirs = env.mutex().await;
    within("a free lock", theirs.try_lock()).await.unwrap().release().await.unwrap();
}

async fn before_the_server_has_created_leaves_nothing(env: &Env) {
    let create = |path: &str| env.server().hold_request(Match::op(Op::Create).path_prefix(path));
    cancel_at(env, create, false).await;
}

async fn after_the_server_has_created_leaves_nothing(env: &Env) {
    let created = |path: &str| env.server().hold_reply(Match::op(Op::Create).path_prefix(path));
    cancel_at(env, created, false).await;
}

async fn when_the_grant_is_on_its_way_gives_it_back(env: &Env) {
    let listed = |path: &str| env.server().hold_reply(Match::op(Op::GetChildren).path(path));
    cancel_at(env, listed, false).await;
}

async fn a_question_leaves_nothing(env: &Env) {
    let created = |path: &str| env.server().hold_reply(Match::op(Op::Create).path_prefix(path));
    cancel_at(env, created, true).await;
}

async fn while_the_session_ends_harms_no_other(env: &Env) {
    let client = env.client().await;
    let path = env.lock_path();
    let mutex = InterProcessMutex::new(&client, &path).unwrap();
    mutex.lock().await.unwrap().release().await.unwrap();
    let created = env.server().hold_reply(Match::op(Op::Create).path_prefix(&path));
    let mut attempt = task::spawn(mutex.lock());
    assert_pending!(attempt.poll());
    within("its create", created.wait_hit()).await;
    drop(attempt);
    assert!(env.server().expire_session(client.session_id().unwrap()));
    created.release();
    client.flush(SOON).await.unwrap();
    within("a free lock", mutex.lock()).await.unwrap().release().await.unwrap();
    assert_eq!(env.children(&path).await, [""; 0]);
}

async fn a_timeout_while_the_session_ends_harms_no_other(env: &Env) {
    // It keeps a connection whose answer is held, for longer than it waits for the lock.
    let patient = env.builder().session_timeout(Duration::from_secs(60)).connect_timeout(SOON);
    let client = env.connect(patient).await;
    let path = env.lock_path();
    let mutex = InterProcessMutex::new(&client, &path).unwrap();
    mutex.lock().await.unwrap().release().await.unwrap();
    let create = env.server().hold_request(Match::op(Op::Create).path_prefix(&path));
    // Long enough for its create to be sent.
    let error = mutex.acquire(Duration::from_secs(3)).await.unwrap_err();
    assert!(error.is_retryable(), "{error:?}");
    assert_eq!(create.hits().len(), 1);
    // Whether its node was made will never be known.
    assert!(env.server().expire_session(client.session_id().unwrap()));
    create.release();
    client.flush(SOON).await.unwrap();
    within("a free lock", mutex.lock()).await.unwrap().release().await.unwrap();
    assert_eq!(env.children(&path).await, [""; 0]);
}

async fn one_who_waits_in_memory_makes_room(env: &Env) {
    let client = env.client().await;
    let mutex = InterProcessMutex::builder(&client, env.lock_path()).build().unwrap();
    let guard = mutex.lock().await.unwrap();
    let (mut first, mut second) = (task::spawn(mutex.lock()), task::spawn(mutex.lock()));
    assert_pending!(first.poll());
    assert_pending!(second.poll());
    drop(first);
    guard.release().await.unwrap();
    within("the lock", second).await.unwrap().release().await.unwrap();
}

async fn flush_waits_for_the_clean_up(env: &Env) {
    let client = env.client().await;
    let path = env.lock_path();
    let mutex = InterProcessMutex::new(&client, &path).unwrap();
    mutex.lock().await.unwrap().release().await.unwrap();
    let created = env.server().hold_reply(Match::op(Op::Create).path_prefix(&path));
    let mut attempt = task::spawn(mutex.lock());
    assert_pending!(attempt.poll());
    within("its create", created.wait_hit()).await;
    drop(attempt);
    match client.flush(Duration::from_millis(50)).await.unwrap_err() {
        ReleaseError::TimedOut { nodes, waited, .. } => {
            assert_eq!((nodes, waited), (1, Duration::from_millis(50)));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(env.children(&path).await.len(), 1);
    let deleted = env.server().hold_reply(Match::op(Op::Delete).path_prefix(&path));
    created.release();
    within("its delete", deleted.wait_hit()).await;
    // It is gone, but we do not know it yet.
    assert!(client.flush(Duration::from_millis(50)).await.is_err());
    deleted.release();
    client.flush(SOON).await.unwrap();
    assert_eq!(env.children(&path).await, [""; 0]);
}

async fn flush_of_a_tidy_client_does_not_wait(env: &Env) {
    let client = env.client().await;
    client.flush(Duration::ZERO).await.unwrap();
    let mutex = InterProcessMutex::new(&client, env.lock_path()).unwrap();
    let guard = mutex.lock().await.unwrap();
    // What is held is not left behind.
    client.flush(Duration::ZERO).await.unwrap();
    drop(guard);
    client.flush(SOON).await.unwrap();
    assert_eq!(env.children(&env.lock_path()).await, [""; 0]);
}

/// One grant while a fault strikes a request for the lock's nodes; then the directory holds that node alone.
async fn grant_under(env: &Env, mutex: &InterProcessMutex, loss: Loss, fault: impl FnOnce(Match)) {
    let path = env.lock_path();
    fault(Match::op(Op::Create).path_prefix(format!("{path}/")));
    let guard = within("the lock", mutex.acquire(SOON)).await.unwrap();
    env.wait_count(&path, 1).await;
    assert_eq!(mutex.participants().await.unwrap(), [guard.node()], "{loss:?}");
    let stat = env.stat(&guard.node()).await.unwrap();
    assert_eq!(guard.fencing_token().zxid(), stat.czxid);
    guard.release().await.unwrap();
    assert_eq!(env.children(&path).await, [""; 0]);
}

async fn a_lost_reply_to_the_create_leaves_one_node(env: &Env) {
    let mutex = env.mutex().await;
    mutex.lock().await.unwrap().release().await.unwrap();
    for loss in [Loss::Close, Loss::Reset] {
        grant_under(env, &mutex, loss, |create| drop(env.server().drop_reply(create, loss))).await;
    }
}

async fn a_lost_create_is_repeated(env: &Env) {
    let mutex = env.mutex().await;
    mutex.lock().await.unwrap().release().await.unwrap();
    for loss in [Loss::Close, Loss::Reset] {
        grant_under(env, &mutex, loss, |create| drop(env.server().drop_request(create, loss))).await;
    }
}

async fn a_lost_reply_to_a_cancelled_create_leaves_nothing(env: &Env) {
    let client = env.client().await;
    let path = env.lock_path();
    let mutex = InterProcessMutex::new(&client, &path).unwrap();
    mutex.lock().await.unwrap().release().await.unwrap();
    let fault = env.server().drop_reply(Match::op(Op::Create).path_prefix(&path), Loss::Reset);
    let mut attempt = task::spawn(mutex.lock());
    assert_pending!(attempt.poll());
    within("its create", fault.wait_hit()).await;
    drop(attempt);
    client.flush(SOON).await.unwrap();
    assert_eq!(env.children(&path).await, [""; 0]);
}

async fn a_lost_reply_to_the_delete_is_a_release(env: &Env) {
    let mutex = env.mutex().await;
    let guard = mutex.lock().await.unwrap();
    let delete = Match::op(Op::Delete).path(guard.node());
    let fault = env.server().drop_reply(delete, Loss::Reset);
    within("the release", guard.release()).await.unwrap();
    assert_eq!(fault.hits().len(), 1);
    assert_eq!(env.children(&env.lock_path()).await, [""; 0]);
}
