//! Work that runs while a lock is held, and transactions under it: docs/protocol.md#transaction.

use ::simulation::scenario::tokio;

use super::*;

#[tokio::test]
async fn while_held_returns_result_or_loss() {
    let (server, [client]) = with_clients(server(), rarely_beating).await;
    let guard = hold(&client).await;
    assert_eq!(guard.while_held(async { 7 }).await.unwrap(), 7);

    let dropped = Arc::new(());
    let witness = Arc::clone(&dropped);
    let work = guard.while_held(async move {
        let _witness = witness;
        std::future::pending::<()>().await;
    });
    server.expire_session(session(&client));
    assert_eq!(
        within("the work", work).await.unwrap_err().reason(),
        LostReason::SessionExpired
    );
    assert_eq!(Arc::strong_count(&dropped), 1, "the work is gone");
    // The lock is lost already, so the work does not begin.
    let begun = guard.while_held(async { panic!("must not run") }).await;
    assert!(begun.is_err());
}

/// Work that notes, when it is dropped, whether the lock is still held.
struct Work {
    mutex: InterProcessMutex,
    held: Arc<Mutex<Option<bool>>>,
}

impl Work {
    fn new(mutex: &InterProcessMutex) -> (Self, Arc<Mutex<Option<bool>>>) {
        let held = Arc::default();
        (
            Self {
                mutex: mutex.clone(),
                held: Arc::clone(&held),
            },
            held,
        )
    }

    /// Never ends by itself.
    async fn run(self, begun: oneshot::Sender<()>) {
        begun.send(()).unwrap();
        std::future::pending::<()>().await;
        drop(self);
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        *self.held.lock().unwrap() = Some(self.mutex.is_acquired_in_this_process());
    }
}

#[tokio::test]
async fn while_held_owned_returns_the_guard() {
    let (_server, [client]) = with_clients(server(), rarely_beating).await;
    let work = tokio::spawn(hold(&client).await.while_held_owned(async { 7 }));
    let (output, guard) = within("the work", work).await.unwrap().unwrap();
    assert_eq!(output, 7);
    assert_eq!((guard.state(), guard.hold_count()), (LockState::Held, 1));
    guard.release().await.unwrap();
}

#[tokio::test]
async fn while_held_owned_drops_lost_work() {
    let (server, [client]) = with_clients(server(), rarely_beating).await;
    let mutex = mutex(&client);
    let (work, held) = Work::new(&mutex);
    let (begun, begins) = oneshot::channel();
    let work = tokio::spawn(hold(&client).await.while_held_owned(work.run(begun)));
    within("the start of the work", begins).await.unwrap();
    server.expire_session(session(&client));
    let lost = within("the loss", work).await.unwrap().unwrap_err();
    assert_eq!(lost.reason(), LostReason::SessionExpired);
    assert_eq!(*held.lock().unwrap(), Some(false), "the work is dropped");
    // The lock is lost already, so the work does not begin.
    let guard = hold(&client).await;
    client.close().await.unwrap();
    let begun = guard
        .while_held_owned(async { panic!("must not run") })
        .await;
    assert_eq!(begun.unwrap_err().reason(), LostReason::Closed);
}

/// Cancelled work is dropped before its lock is released, so it may rely on the lock to its end.
#[tokio::test]
async fn cancelled_work_drops_before_the_release() {
    let (server, [client]) = with_clients(server(), rarely_beating).await;
    let mutex = mutex(&client);
    for polled in [false, true] {
        let (work, held) = Work::new(&mutex);
        let (begun, begins) = oneshot::channel();
        let running = hold(&client).await.while_held_owned(work.run(begun));
        if polled {
            let running = tokio::spawn(running);
            within("the start of the work", begins).await.unwrap();
            running.abort();
            assert!(running.await.unwrap_err().is_cancelled());
        } else {
            drop(running);
        }
        assert_eq!(
            *held.lock().unwrap(),
            Some(true),
            "dropped under the lock (polled: {polled})"
        );
        assert!(!mutex.is_acquired_in_this_process());
        client.flush(LONG).await.unwrap();
        assert_eq!(server.children(DIRECTORY), [""; 0]);
    }
}

// Shows: transaction
#[tokio::test]
async fn unanswered_transaction_is_unknown() {
    let (server, [client]) = with_clients(server(), rarely_beating).await;
    server.create("/data", b"0").unwrap();
    let guard = hold(&client).await;
    server.drop_reply(Match::op(Op::Multi).path("/data"), Loss::Close);
    let unknown = guard
        .transaction()
        .set_data("/data", b"1", None)
        .commit()
        .await;
    assert!(
        matches!(unknown, Err(TransactionError::Unknown { .. })),
        "{unknown:?}"
    );
    assert_eq!(server.node("/data").unwrap().data, b"1", "a commit");
}

// Shows: data-limit
#[tokio::test]
async fn rejects_bad_transactions_before_sending() {
    let (server, [client]) = with_clients(server(), rarely_beating).await;
    let guard = hold(&client).await;
    server.reset_counters();
    let bad = guard.transaction().delete("no/slash", None).commit().await;
    assert!(matches!(bad, Err(TransactionError::InvalidPath(error)) if error.path() == "no/slash"));
    let large = guard
        .transaction()
        .set_data("/x", vec![0; 1_000_001], None)
        .commit()
        .await;
    assert!(matches!(large, Err(TransactionError::TooLarge { bytes, .. }) if bytes > 1_000_000));
    assert_eq!(server.counters().requests(Op::SetData), 0);
    assert!(guard.is_held());
}
