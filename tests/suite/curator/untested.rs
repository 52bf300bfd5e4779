//! What Curator's tests leave out, as far as locks with one queue go.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use zookeeper_recipes::{AcquireError, LockGuard, ReleaseError, TransactionError, TryLockError};
use zookeeper_test_server::{Match, Op};

use super::stage::{Kind, Lock, Stage, ported};
use crate::harness::{Behaviour, Need, SOON, begin, soon};

macro_rules! untested {
    ($kind:expr) => {
        ported![$kind;
            re_entry_after_session_loss,
            cancellation_during_create.needs(Need::HoldReplies),
            cancellation_at_random_moments.whatever_breaks().on_an_ensemble_too(),
            sequence_overflow.needs(Need::SetSequence),
            watch_leak_on_timeout.on_an_ensemble_too(),
            watch_leak_on_cancellation.on_an_ensemble_too(),
        ]
    };
}

pub(crate) fn mutex() -> Vec<Behaviour> {
    untested!(Kind::Mutex)
}

pub(crate) fn fair_lock() -> Vec<Behaviour> {
    untested!(Kind::Fair)
}

pub(crate) fn read_lock() -> Vec<Behaviour> {
    untested!(Kind::Read)
}

pub(crate) fn write_lock() -> Vec<Behaviour> {
    untested!(Kind::Write)
}

fn spawn(lock: &Lock) -> JoinHandle<Result<LockGuard, AcquireError>> {
    let lock = Arc::clone(lock);
    tokio::spawn(async move { lock.lock().await })
}

/// After the end of the session nothing can be had of the hold any more, whether somebody else holds the lock by then
/// or not. (In Curator a re-entrant `acquire` says yes while another client holds the lock.)
async fn re_entry_after_session_loss(stage: &Stage<'_>) {
    let theirs = stage.rival().await;
    for contended in [false, true] {
        let (client, link) = stage.linked().await;
        let ours = stage.lock(&client);
        let guard = soon("a free lock", ours.lock()).await.unwrap();
        let again = guard.reenter().unwrap();
        let waiter = if contended {
            let waiter = spawn(&theirs);
            stage.env.wait_watchers(&guard.node(), 1).await;
            Some(waiter)
        } else {
            None
        };
        stage.env.expire(&client, &link).await;
        let next = match waiter {
            Some(waiter) => Some(soon("the second in line", waiter).await.unwrap().unwrap()),
            None => None,
        };
        // Not before it has been told, with a server that needs no time to end a session; on a real one long before.
        soon("the loss", guard.lost()).await;
        for guard in [&guard, &again] {
            assert!(!guard.is_held());
            let lost = guard.reenter().unwrap_err();
            assert!(stage.env.is_loss(lost.reason()), "{lost}");
            let never = guard.while_held::<()>(async { unreachable!("work under a lock that is lost") });
            assert_eq!(never.await.unwrap_err(), lost);
            let path = stage.env.path("written");
            let write = soon("an answer", guard.transaction().create(&path, "").commit()).await;
            assert!(matches!(write, Err(TransactionError::Lost(_))), "{write:?}");
            assert!(stage.env.stat(&path).await.is_none());
        }
        assert!(!ours.is_acquired_in_this_process());
        for guard in [guard, again] {
            assert!(matches!(guard.release().await, Err(ReleaseError::Lost(_))));
        }
        if let Some(next) = next {
            assert!(next.is_held());
            assert!(matches!(ours.try_lock().await, Err(TryLockError::WouldBlock { .. })));
            next.release().await.unwrap();
        }
        soon("a free lock", ours.lock()).await.unwrap().release().await.unwrap();
    }
}

/// A call that is dropped while its create is on its way there, or its reply on the way back, leaves nothing.
async fn cancellation_during_create(stage: &Stage<'_>) {
    let client = stage.client().await;
    let (ours, theirs) = (stage.lock(&client), stage.rival().await);
    let path = stage.env.lock_path();
    soon("a free lock", ours.lock()).await.unwrap().release().await.unwrap();
    let create =
        || Match::op(Op::Create).path_prefix(format!("{path}/")).session(client.session_id().unwrap());
    for there in [true, false] {
        let server = stage.env.server();
        let gate = if there { server.hold_request(create()) } else { server.hold_reply(create()) };
        let mut attempt = Box::pin(ours.lock());
        begin(&mut attempt).await;
        soon("its create", gate.wait_hit()).await;
        drop(attempt);
        // Somebody queues behind what may be there, and is not kept waiting by it.
        let waiter = spawn(&theirs);
        if !there {
            stage.env.wait_count(&path, 2).await;
            assert!(!waiter.is_finished());
        }
        gate.release();
        let guard = soon("the other's grant", waiter).await.unwrap().unwrap();
        client.flush(SOON).await.unwrap();
        assert_eq!(theirs.participants().await.unwrap(), [guard.node()]);
        guard.release().await.unwrap();
    }
}

/// The same at any moment, on servers that cannot be told to wait.
async fn cancellation_at_random_moments(stage: &Stage<'_>) {
    let client = stage.client().await;
    let ours = stage.lock(&client);
    for _ in 0..60 {
        let patience = stage.env.random().duration(Duration::from_millis(4));
        drop(tokio::time::timeout(patience, ours.lock()).await);
    }
    client.flush(SOON).await.unwrap();
    assert_eq!(stage.env.children(&stage.env.lock_path()).await, [""; 0]);
    let theirs = stage.rival().await;
    soon("a free lock", theirs.lock()).await.unwrap().release().await.unwrap();
}

/// Whoever would have a number after the last is refused: it would be let in beside the holder.
async fn sequence_overflow(stage: &Stage<'_>) {
    let (ours, theirs) = (stage.newcomer().await, stage.rival().await);
    let path = stage.env.lock_path();
    soon("a free lock", ours.lock()).await.unwrap().release().await.unwrap();
    stage.env.server().set_next_sequence(&path, i32::MAX).unwrap();
    let guard = soon("the last number", ours.lock()).await.unwrap();
    assert!(guard.node().ends_with("2147483647"), "{}", guard.node());
    for lock in [&ours, &theirs] {
        let error = soon("an answer", lock.lock()).await.unwrap_err();
        assert!(matches!(error, AcquireError::SequenceExhausted { .. }), "{error:?}");
        assert!(!error.is_retryable());
    }
    stage.env.wait_count(&path, 1).await;
    assert!(guard.is_held());
    guard.release().await.unwrap();
    // As the error says: without contenders the directory can be deleted, and the numbers begin anew.
    stage.env.delete(&path).await;
    soon("a free lock", theirs.lock()).await.unwrap().release().await.unwrap();
}

/// A wait that was too long takes its watch along. (Curator's stays until the holder goes.)
async fn watch_leak_on_timeout(stage: &Stage<'_>) {
    let theirs = stage.newcomer().await;
    let guard = soon("a free lock", stage.rival().await.lock()).await.unwrap();
    let long = tokio::spawn({
        let theirs = Arc::clone(&theirs);
        async move { theirs.acquire(Duration::from_secs(2)).await }
    });
    stage.env.wait_watchers(&guard.node(), 1).await;
    let error = soon("its end", long).await.unwrap().unwrap_err();
    assert!(matches!(error, AcquireError::TimedOut { .. }), "{error:?}");
    stage.env.wait_watchers(&guard.node(), 0).await;
    for millis in 0..15 {
        // At different moments, the setting of the watch among them.
        let error = theirs.acquire(Duration::from_millis(millis)).await.unwrap_err();
        assert!(error.is_retryable(), "{error:?}");
    }
    stage.env.wait_count(&stage.env.lock_path(), 1).await;
    stage.env.wait_no_watches().await;
    assert!(guard.is_held());
    guard.release().await.unwrap();
}

/// So does one that is cancelled.
async fn watch_leak_on_cancellation(stage: &Stage<'_>) {
    let theirs = stage.newcomer().await;
    let guard = soon("a free lock", stage.rival().await.lock()).await.unwrap();
    for _ in 0..3 {
        let waiter = spawn(&theirs);
        stage.env.wait_watchers(&guard.node(), 1).await;
        waiter.abort();
        stage.env.wait_no_watches().await;
    }
    stage.env.wait_count(&stage.env.lock_path(), 1).await;
    guard.release().await.unwrap();
}
