//! Behaviours of locks with one queue that Curator's tests omit.

use test_support::prelude::*;

use super::stage::{Kind, Lock, Stage, ported};
use crate::harness::{Behaviour, CriticalSection, Need};

pub(crate) fn all(kind: Kind) -> Vec<Behaviour> {
    let mut all = ported![kind;
        re_entry_after_session_loss.also_on_ensemble(),
        cancellation_at_random_moments.with_faults().also_on_ensemble(),
        overflowing_sequence_is_refused.needs(Need::SetSequence),
        watch_leak_on_timeout.also_on_ensemble(),
        watch_leak_on_cancellation.also_on_ensemble(),
        deleted_holder_is_notified,
        closed_client_leaves_the_queue.also_on_ensemble(),
    ];
    // The condition holds for locks with one holder at a time.
    if kind != Kind::Read {
        all.extend(ported![kind; departures_leave_holders_alone.with_faults().also_on_ensemble()]);
    }
    if kind == Kind::Mutex {
        all.extend(ported![kind; refused_sequential_create_is_reported.needs(Need::HoldReplies)]);
    }
    all
}

fn spawn(lock: &Lock) -> JoinHandle<Result<AnyGuard, AcquireError>> {
    let lock = Arc::clone(lock);
    tokio::spawn(async move { lock.lock().await })
}

/// After the end of its session a hold is worthless, whether another client holds the lock or not.
/// (In Curator a re-entrant `acquire` succeeds while another client holds the lock.)
// Shows: telling-a-loss
async fn re_entry_after_session_loss(stage: &Stage<'_>) {
    let theirs = stage.rival().await;
    for contended in [false, true] {
        let (client, link) = stage.linked().await;
        let ours = stage.lock(&client);
        let guard = within("a free lock", ours.lock()).await.unwrap();
        let (again, token) = (guard.reenter().unwrap(), guard.fencing_token().zxid());
        let waiter = if contended {
            let waiter = spawn(&theirs);
            stage.env.wait_watchers(&guard.node(), 1).await;
            Some(waiter)
        } else {
            None
        };
        stage.env.expire(&client, &link).await;
        let next = match waiter {
            Some(waiter) => Some(within("the second in line", waiter).await.unwrap().unwrap()),
            None => None,
        };
        // A server that ends a session at once may grant the lock to the next before the holder is
        // notified; with a real server the holder is notified long before.
        within("the loss", guard.lost()).await;
        within("the loss of the share", again.lost()).await;
        for guard in [&guard, &again] {
            assert!(!guard.is_held());
            let lost = guard.reenter().unwrap_err();
            assert!(stage.env.is_loss(lost.reason()), "{lost}");
            let never =
                guard.while_held::<()>(async { unreachable!("work under a lock that is lost") });
            assert_eq!(never.await.unwrap_err(), lost);
            let path = stage.env.path("written");
            let write = within("an answer", guard.transaction().create(&path, "").commit()).await;
            assert!(matches!(write, Err(TransactionError::Lost(_))), "{write:?}");
            assert!(stage.env.stat(&path).await.is_none());
        }
        assert!(!ours.is_acquired_in_this_process());
        for guard in [guard, again] {
            assert!(matches!(guard.release().await, Err(ReleaseError::Lost(_))));
        }
        if let Some(next) = next {
            assert!(next.is_held() && next.fencing_token().zxid() > token);
            assert!(matches!(
                ours.try_lock().await,
                Err(TryLockError::WouldBlock { .. })
            ));
            next.release().await.unwrap();
        }
        within("a free lock", ours.lock())
            .await
            .unwrap()
            .release()
            .await
            .unwrap();
    }
}

/// Calls are cancelled at random moments, for servers that cannot hold a reply.
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
    within("a free lock", theirs.lock())
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
}

/// A contender with a number after the last is refused: it would otherwise be granted the lock
/// beside the holder.
// Shows: sequence-order
async fn overflowing_sequence_is_refused(stage: &Stage<'_>) {
    let (ours, theirs) = (stage.newcomer().await, stage.rival().await);
    let path = stage.env.lock_path();
    within("a free lock", ours.lock())
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    stage
        .env
        .server()
        .set_next_sequence(&path, i32::MAX)
        .unwrap();
    let guard = within("the last number", ours.lock()).await.unwrap();
    assert!(guard.node().ends_with("2147483647"), "{}", guard.node());
    for lock in [&stage.rival().await, &theirs] {
        let error = within("an answer", lock.lock()).await.unwrap_err();
        assert_eq!(
            error.kind(),
            Some(ErrorKind::SequenceExhausted),
            "{error:?}"
        );
        assert!(!error.is_retryable());
    }
    stage.env.wait_count(&path, 1).await;
    assert!(guard.is_held());
    guard.release().await.unwrap();
    // As the error says, the directory can be deleted without contenders, which restarts the
    // numbers.
    stage.env.delete(&path).await;
    within("a free lock", theirs.lock())
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
}

/// ZooKeeper 3.8 gives no numbers beyond the last: every further sequential create is refused,
/// because "the node exists". A name with its own id cannot exist, so there is no other cause, and
/// the remedy is that of the other test.
async fn refused_sequential_create_is_reported(stage: &Stage<'_>) {
    let ours = stage.newcomer().await;
    let path = stage.env.lock_path();
    within("a free lock", ours.lock())
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    let create = Match::op(Op::Create)
        .path_prefix(format!("{path}/"))
        .always();
    let refusal = stage
        .env
        .server()
        .fail(create, ServerError::NodeExists.code());
    let error = within("an answer", ours.lock()).await.unwrap_err();
    assert_eq!(
        error.kind(),
        Some(ErrorKind::SequenceExhausted),
        "{error:?}"
    );
    refusal.remove();
    within("a free lock", ours.lock())
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
}

/// A wait that times out removes its watch. (Curator's stays until the holder leaves.)
async fn watch_leak_on_timeout(stage: &Stage<'_>) {
    let theirs = stage.newcomer().await;
    let guard = within("a free lock", stage.rival().await.lock())
        .await
        .unwrap();
    let long = tokio::spawn({
        let theirs = Arc::clone(&theirs);
        async move { theirs.acquire(Duration::from_secs(5)).await }
    });
    stage.env.wait_watchers(&guard.node(), 1).await;
    let error = within("its end", long).await.unwrap().unwrap_err();
    assert!(matches!(error, AcquireError::TimedOut { .. }), "{error:?}");
    stage.env.wait_watchers(&guard.node(), 0).await;
    for millis in 0..15 {
        // The calls time out at different moments, even while the watch is set.
        let error = theirs
            .acquire(Duration::from_millis(millis))
            .await
            .unwrap_err();
        assert!(error.is_retryable(), "{error:?}");
    }
    stage.env.wait_count(&stage.env.lock_path(), 1).await;
    stage.env.wait_no_watches().await;
    assert!(guard.is_held());
    guard.release().await.unwrap();
}

/// A wait that is cancelled removes its watch too.
async fn watch_leak_on_cancellation(stage: &Stage<'_>) {
    let theirs = stage.newcomer().await;
    let guard = within("a free lock", stage.rival().await.lock())
        .await
        .unwrap();
    for _ in 0..3 {
        let waiter = spawn(&theirs);
        stage.env.wait_watchers(&guard.node(), 1).await;
        waiter.abort();
        stage.env.wait_no_watches().await;
    }
    stage.env.wait_count(&stage.env.lock_path(), 1).await;
    guard.release().await.unwrap();
}

/// The holder's node is deleted by hand: the holder is notified, and the next contender of any
/// client is granted the lock.
async fn deleted_holder_is_notified(stage: &Stage<'_>) {
    let builder = stage.env.builder().session_timeout(Duration::from_secs(12));
    let client = stage.connect(builder).await;
    let ours = stage.lock(&client);
    for (next, nodes) in [(stage.rival_of(&client), 1), (stage.rival().await, 2)] {
        let guard = within("a free lock", ours.lock()).await.unwrap();
        let waiter = spawn(&next);
        stage.wait_nodes(2, nodes).await;
        stage.env.delete(&guard.node()).await;
        let next = within("the next in line", waiter).await.unwrap().unwrap();
        let lost = within("the loss", guard.lost()).await;
        assert_eq!(lost.reason(), LostReason::NodeDeleted);
        assert!(!guard.is_held() && guard.reenter().is_err());
        drop(guard);
        client.flush(SOON).await.unwrap();
        assert!(next.is_held() && stage.env.stat(&next.node()).await.is_some());
        next.release().await.unwrap();
    }
}

/// A closed client loses its hold and its place in the queue.
async fn closed_client_leaves_the_queue(stage: &Stage<'_>) {
    let (holder, waiter) = (stage.env.client().await, stage.env.client().await);
    let guard = within("a free lock", stage.lock(&holder).lock())
        .await
        .unwrap();
    let waits = spawn(&stage.rival_of(&waiter));
    stage.env.wait_count(&stage.env.lock_path(), 2).await;
    let next = spawn(&stage.rival().await);
    stage.env.wait_count(&stage.env.lock_path(), 3).await;
    waiter.close().await.unwrap();
    let error = within("its end", waits).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), Some(ErrorKind::Closed), "{error:?}");
    assert!(guard.is_held() && !next.is_finished());
    holder.close().await.unwrap();
    assert_eq!(
        within("the loss", guard.lost()).await.reason(),
        LostReason::Closed
    );
    let next = within("the next in line", next).await.unwrap().unwrap();
    drop(guard);
    assert!(next.is_held() && stage.env.stat(&next.node()).await.is_some());
    next.release().await.unwrap();
}

/// Some callers stay until they are served, some give up, some are cancelled, some only query;
/// never are two inside, and those who stay are all served.
async fn departures_leave_holders_alone(stage: &Stage<'_>) {
    const ROUNDS: u64 = 8;
    let critical = Arc::new(CriticalSection::default());
    let mut tasks = JoinSet::new();
    for _ in 0..3 {
        let client = stage.client().await;
        for task in 0..5 {
            let (lock, critical) = (stage.lock(&client), Arc::clone(&critical));
            let patience: Vec<_> = (0..ROUNDS)
                .map(|_| stage.env.random().duration(Duration::from_millis(40)))
                .collect();
            tasks.spawn(async move {
                let mut visits = 0;
                for patience in patience {
                    let guard = match task {
                        0 => lock.acquire(patience).await.ok(),
                        1 => tokio::time::timeout(patience, lock.lock())
                            .await
                            .ok()
                            .map(Result::unwrap),
                        2 => lock.try_lock().await.ok(),
                        _ => Some(lock.lock().await.unwrap()),
                    };
                    let Some(guard) = guard else { continue };
                    critical.visit().await;
                    // The visit takes a query to the servers, during which others might wrongly
                    // enter.
                    critical.visit_while(lock.participants()).await.unwrap();
                    assert!(guard.is_held());
                    visits += 1;
                    drop(guard);
                }
                assert!(task < 3 || visits == ROUNDS);
                visits
            });
        }
    }
    let visits: u64 = all_done("all of them", tasks).await.into_iter().sum();
    assert_eq!(critical.visits(), visits * 2, "increments are lost");
}
