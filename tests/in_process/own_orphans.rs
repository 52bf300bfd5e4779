//! Nodes of this client that no call needs and cleanup is about to delete: the create of a dropped
//! call has happened, and its reply was lost with the connection. None of them is a live contender,
//! whichever look finds them.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

use std::fmt::Debug;

use test_support::prelude::*;

/// The code of `ConnectionLoss`: the client treats the request as unanswered.
const UNANSWERED: i32 = -4;

/// Drops a call whose request was carried out and is not answered. No deletion of the client is
/// answered until the returned fault is removed, so that cleanup does not delete the node first.
async fn leave_unknown<T>(
    server: &Server,
    client: &Client,
    op: Op,
    call: impl Future<Output = T>,
) -> Fault {
    let id = session(client);
    let deletions = server.fail(Match::op(Op::Delete).session(id).always(), UNANSWERED);
    let reply = server.hold_reply(Match::op(op).session(id));
    let call = ByHand::new(call).start();
    within("the request", reply.wait_hit()).await;
    drop(call);
    assert!(server.cut(id, Cut::Reset));
    reply.release();
    deletions
}

/// Waits until this client has received a list that it requested after entry `after` of the log.
async fn listed(server: &Server, client: &Client, after: u64) {
    let id = session(client);
    until(server, "a list", move |view| {
        let is_list = |entry: &LogEntry| {
            entry.session == id
                && entry.kind == LogKind::Replied
                && matches!(entry.op, Op::GetChildren | Op::MultiRead)
        };
        view.log()
            .rev()
            .take_while(|entry| entry.n > after)
            .any(is_list)
    })
    .await;
}

/// Asserts that a call that is blocked by a dropped call's node waits for the deletion of that node
/// and is granted the lock.
async fn gets_the_lock_behind<T, G: Debug + Send + 'static>(
    server: &Server,
    client: &Client,
    (op, call): (Op, impl Future<Output = T>),
    question: impl Future<Output = Result<G, TryLockError>> + Send + 'static,
) {
    let deletions = leave_unknown(server, client, op, call).await;
    let after = server.log().last().expect("an entry").n;
    let question = tokio::spawn(question);
    listed(server, client, after).await;
    deletions.remove();
    let granted = within("the answer", question).await.unwrap();
    drop(granted.expect("no other contender is there"));
    within("the deletions", client.flush(SOON)).await.unwrap();
}

// Shows: live-contender, try-lock
#[tokio::test]
async fn tries_wait_for_dropped_calls() {
    let (server, [client]) = with_clients(start(), calm).await;
    let mutex = mutex(&client);
    let calls = (Op::Create, mutex.lock());
    gets_the_lock_behind(&server, &client, calls, mutex.try_lock()).await;
    let fair = fair(&client);
    let calls = (Op::Create, fair.lock());
    gets_the_lock_behind(&server, &client, calls, fair.try_lock()).await;
    drop((mutex, fair));
    let both = InterProcessReadWriteLock::new(&client, "/both").unwrap();
    server.create("/both", "").unwrap();
    let (reads, writes) = (both.read_lock(), both.write_lock());
    let calls = (Op::Create, reads.lock());
    gets_the_lock_behind(&server, &client, calls, writes.try_lock()).await;
    let calls = (Op::Create, writes.lock());
    gets_the_lock_behind(&server, &client, calls, reads.try_lock()).await;
}

// Shows: live-contender, multi-lock-try
#[tokio::test]
async fn multi_lock_tries_wait_likewise() {
    let (server, [client]) = with_clients(start(), calm).await;
    server.create("/other", "").unwrap();
    let lock = InterProcessMultiLock::from_paths(&client, [DIRECTORY, "/other"]).unwrap();
    let calls = (Op::Create, lock.lock());
    gets_the_lock_behind(&server, &client, calls, lock.try_lock()).await;
}

/// The node of a dropped call is in the queue, and then among the leases.
// Shows: live-contender, try-permits
#[tokio::test]
async fn permit_tries_wait_likewise() {
    let (server, [client]) = with_clients(start(), calm).await;
    let permits = InterProcessSemaphore::new(&client, DIRECTORY, 2).unwrap();
    drop(within("permits", permits.acquire(SOON)).await.unwrap());
    within("the deletions", client.flush(SOON)).await.unwrap();
    for op in [Op::Create, Op::Multi] {
        let calls = (op, permits.acquire_many(2, SOON));
        gets_the_lock_behind(&server, &client, calls, permits.try_acquire_many(2)).await;
    }
}

/// Only live contenders count as ahead, and only they are named.
// Shows: live-contender, held-by
#[tokio::test]
async fn errors_name_no_dropped_calls() {
    let (server, [client, other]) = with_clients(start(), calm).await;
    let lock = mutex(&client);
    let deletions = leave_unknown(&server, &client, Op::Create, lock.lock()).await;
    let waiter = enqueue(&server, &other).await;
    let error = within("the answer", lock.try_lock()).await.unwrap_err();
    let TryLockError::WouldBlock { contention, .. } = &error else {
        panic!("{error:?}")
    };
    let Contention {
        ahead,
        first,
        held_by,
        holder: None,
        ..
    } = contention
    else {
        panic!("{error:?}")
    };
    assert_eq!((*ahead, first.as_ref()), (1, Some(&waiter.node)));
    let held_by = held_by.as_ref().map(|contender| contender.node());
    assert_eq!(held_by, Some(&waiter.node), "{error}");
    deletions.remove();
    granted(waiter.attempt).await.release().await.unwrap();
    clean(&server, &[&client, &other]).await;
}
