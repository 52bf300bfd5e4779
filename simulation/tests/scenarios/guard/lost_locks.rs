//! Locks that are lost, or may be lost: when the node is deleted, and what is granted meanwhile.

use ::simulation::scenario::tokio;

use super::*;

/// docs/protocol.md#lost-lock-keeps-its-node: the session outlives its lease. The lost hold leaves
/// no node, and waiters keep their places.
// Shows: lost-lock-keeps-its-node
#[tokio::test]
async fn expired_hold_leaves_no_node() {
    let server = server();
    server.freeze_expiry(true);
    let (first, second) = (client(&server).await, client(&server).await);
    let guard = hold(&first).await;
    let own = fair(&first);
    let waiting = tokio::spawn(async move { own.acquire(LONG).await });
    until(&server, "the queue", move |view| {
        view.children(DIRECTORY).len() == 2
    })
    .await;
    let other = tokio::spawn({
        let second = second.clone();
        async move { hold(&second).await }
    });
    until(&server, "the queue", move |view| {
        view.children(DIRECTORY).len() == 3
    })
    .await;
    let before = server.children(DIRECTORY);

    let id = session(&first);
    server.stall(id, Direction::Both);
    assert_eq!(
        within("the loss", guard.lost()).await.reason(),
        LostReason::LeaseExpired
    );
    server.resume(id);
    // The next in line is the waiter of the same session whose lease had expired, in its old place
    // and with its old node.
    let next = within("the grant", waiting).await.unwrap().unwrap();
    assert_eq!(session(&first), id, "the session survived");
    let lost_node = guard.node();
    assert!(!server.exists(&lost_node));
    assert!(
        before
            .iter()
            .any(|name| next.node().ends_with(name.as_str()))
    );
    assert!(
        matches!(guard.release().await, Err(ReleaseError::Lost(lost)) if lost.reason() == LostReason::LeaseExpired)
    );
    assert_eq!(
        server.children(DIRECTORY).len(),
        2,
        "the late release deleted no other node"
    );
    next.release().await.unwrap();
    within("the grant", other)
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
}

/// A hold whose lease has expired while the servers keep its session: the servers get every
/// heartbeat, but their answers are held back.
struct ExpiredHold {
    guard: LockGuard,
    /// The last renewal was sent after this moment.
    before: Instant,
    /// The call by which another client waits for the lock.
    next: Contender,
    _answers: Gate,
}

async fn expired_hold(server: &Server, holder: &Client, waiter: &Client) -> ExpiredHold {
    let before = Instant::now();
    let guard = hold(holder).await;
    let answers = server.hold_reply(Match::op(Op::Multi).session(session(holder)).always());
    let waiter = mutex(waiter);
    let next = tokio::spawn(async move { waiter.acquire(LONG).await });
    until(server, "the queue", |view| {
        view.children(DIRECTORY).len() == 2
    })
    .await;
    assert_eq!(
        within("the loss", guard.lost()).await.reason(),
        LostReason::LeaseExpired
    );
    ExpiredHold {
        guard,
        before,
        next,
        _answers: answers,
    }
}

/// Returns when the server was asked to delete a node.
fn deletions(server: &Server, node: &str) -> Vec<Instant> {
    let asked = |entry: &LogEntry| {
        (entry.op, entry.kind) == (Op::Delete, LogKind::Arrived) && entry.path == node
    };
    server
        .log()
        .into_iter()
        .filter(asked)
        .map(|entry| entry.at)
        .collect()
}

/// The node of the lock still exists, so the servers would commit the write.
// Shows: transaction
#[tokio::test]
async fn lock_lost_by_clock_writes_nothing() {
    let (server, [holder, waiter]) = with_clients(server(), strict_client).await;
    server.create("/stock", "1").unwrap();
    let ExpiredHold {
        guard,
        next,
        _answers: answers,
        ..
    } = expired_hold(&server, &holder, &waiter).await;
    answers.release();
    let write = guard.transaction().set_data("/stock", "0", None);
    let error = within("the answer", write.commit()).await.unwrap_err();
    assert!(server.exists(&guard.node()));
    assert!(
        matches!(&error, TransactionError::Lost(lost) if lost.reason() == LostReason::LeaseExpired),
        "{error:?}"
    );
    assert_eq!(server.node("/stock").unwrap().data, b"1");
    drop(guard);
    granted(next).await.release().await.unwrap();
}

/// A lost lock keeps its node until its guards are dropped, or a session timeout has passed, so the
/// holder can stop before the next is granted the lock.
// Shows: lost-lock-keeps-its-node
#[tokio::test]
async fn lost_lock_stays_until_guards_drop() {
    for release in [false, true] {
        let (server, [holder, waiter]) = with_clients(server(), strict_client).await;
        let ExpiredHold {
            guard,
            next,
            _answers,
            ..
        } = expired_hold(&server, &holder, &waiter).await;
        let node = guard.node();
        assert!(
            !mutex(&holder).is_acquired_in_this_process(),
            "the lock is no longer held"
        );
        // A deletion at the loss would have been carried out by now.
        holder.flush(LONG).await.unwrap();
        assert_eq!(
            deletions(&server, &node),
            [],
            "before the holder has stopped"
        );
        assert!(server.exists(&node) && !next.is_finished());
        if release {
            let released = within("the release", guard.release()).await;
            assert!(
                matches!(released, Err(ReleaseError::Lost(_))),
                "{released:?}"
            );
        } else {
            drop(guard);
        }
        let next = within("the grant", next).await.unwrap().unwrap();
        assert_eq!(deletions(&server, &node).len(), 1);
        next.release().await.unwrap();
        let survived = server
            .sessions()
            .iter()
            .any(|known| Some(known.id) == holder.session_id());
        assert!(survived, "the session had ended, so the test shows nothing");
    }
}

/// A holder that does not stop keeps the others waiting no longer than its session would have.
// Shows: lost-lock-keeps-its-node
#[tokio::test]
async fn lost_lock_ends_after_session_timeout() {
    let (server, [holder, waiter]) = with_clients(server(), strict_client).await;
    let expired = expired_hold(&server, &holder, &waiter).await;
    let ExpiredHold {
        guard,
        before,
        next,
        _answers,
    } = expired;
    let next = within("the grant", next).await.unwrap().unwrap();
    let deleted = deletions(&server, &guard.node());
    assert_eq!(deleted.len(), 1);
    // The create, which was the last renewal, was sent after `before`.
    let kept = deleted[0] - before;
    assert!(
        kept >= T,
        "given away {kept:?} after the grant, while a guard existed"
    );
    assert!(!guard.is_held());
    let released = within("the release", guard.release()).await;
    assert!(
        matches!(released, Err(ReleaseError::Lost(_))),
        "{released:?}"
    );
    assert!(next.is_held());
    let survived = server
        .sessions()
        .iter()
        .any(|known| Some(known.id) == holder.session_id());
    assert!(survived, "the session had ended, so the test shows nothing");
}

/// Returns a hold whose lease has expired, and another contender of the same client, which may have
/// only one node for the lock.
async fn expired_hold_and_contender(
    server: &Server,
    client: &Client,
) -> (LockGuard, Contender, Gate) {
    let guard = within("the grant", mutex(client).lock()).await.unwrap();
    let answers = server.hold_reply(Match::op(Op::Multi).session(session(client)).always());
    let mutex = mutex(client);
    let contender = tokio::spawn(async move { mutex.acquire(LONG).await });
    assert_eq!(
        within("the loss", guard.lost()).await.reason(),
        LostReason::LeaseExpired
    );
    (guard, contender, answers)
}

type Contender = JoinHandle<Result<LockGuard, AcquireError>>;

// Shows: lost-lock-keeps-its-node
#[tokio::test]
async fn lost_lock_keeps_place_with_node() {
    let (server, [client]) = with_clients(server(), strict_client).await;
    let (guard, contender, answers) = expired_hold_and_contender(&server, &client).await;
    answers.release();
    client.flush(LONG).await.unwrap();
    let node = guard.node();
    assert!(
        node.ends_with(&server.children(DIRECTORY).concat()),
        "expected no other node"
    );
    drop(guard);
    let next = within("the grant", contender).await.unwrap().unwrap();
    assert_eq!(deletions(&server, &node).len(), 1);
    next.release().await.unwrap();
}

// Shows: lost-lock-keeps-its-node
#[tokio::test]
async fn lost_lock_blocks_nobody_after_session() {
    let (server, [client]) = with_clients(server(), strict_client).await;
    let (guard, contender, _answers) = expired_hold_and_contender(&server, &client).await;
    server.expire_session(session(&client));
    let next = within("the grant", contender).await.unwrap().unwrap();
    assert_eq!(guard.state(), LockState::Lost(LostReason::LeaseExpired));
    next.release().await.unwrap();
    drop(guard);
}

/// The client is notified that its predecessor has left, but nothing that the client sends arrives:
/// it is granted nothing before the servers answer.
// Shows: suspended
#[tokio::test]
async fn doubted_session_is_granted_nothing() {
    let server = server();
    server.freeze_expiry(true);
    let (holder, waiter) = (client(&server).await, client(&server).await);
    let guard = hold(&holder).await;
    let waiting = mutex(&waiter);
    let mut waiting = tokio::spawn(async move { waiting.acquire(LONG).await });
    until(&server, "the watch", |view| view.watches() == 1).await;
    let id = session(&waiter);
    server.stall(id, Direction::ToServer);
    let mut state = waiter.watch_state();
    within(
        "the state",
        state.wait_for(|state| *state == ConnectionState::Suspended),
    )
    .await
    .unwrap();
    guard.release().await.unwrap();
    // Time must pass because nothing outside the client shows when it is notified, and what it does
    // then.
    let early = tokio::time::timeout(T / 6, &mut waiting).await;
    assert!(early.is_err(), "granted without an answer of a server");
    server.resume(id);
    within("the grant", waiting)
        .await
        .unwrap()
        .unwrap()
        .release()
        .await
        .unwrap();
}

/// ZooKeeper's error code.
const OPERATION_TIMEOUT: i32 = -7;

/// A contender that waits behind the guard of another client, at a server that expires no session.
struct Doubted {
    server: Server,
    _client: Client,
    id: i64,
    lock: InterProcessMutex,
    waiting: JoinHandle<Result<LockGuard, AcquireError>>,
    other: Client,
}

impl Doubted {
    /// A contender whose client has these options, and the guard that it waits for.
    async fn waiting(builder: ClientBuilder) -> (Self, LockGuard) {
        let server = server();
        server.freeze_expiry(true);
        let client = client_with(&server, T, builder).await;
        let other = self::client(&server).await;
        let guard = hold(&other).await;
        let (id, lock) = (session(&client), mutex(&client));
        let waiting = tokio::spawn(lock.lock());
        until(&server, "the watch", |view| view.watches() == 1).await;
        let contender = Self {
            server,
            _client: client,
            id,
            lock,
            waiting,
            other,
        };
        (contender, guard)
    }

    /// Makes the servers answer the contender's reads, but nothing that would prove that they keep
    /// its session.
    fn doubt(&self) -> Fault {
        let writes = Match::op(Op::Multi).session(self.id);
        self.server.fail(writes.always(), OPERATION_TIMEOUT)
    }

    /// Returns how many lists the contender has asked for.
    fn lists(&self) -> u64 {
        self.server.counters().requests_of(self.id, Op::GetChildren)
    }

    /// Waits until the contender has asked for `count` lists.
    async fn until_lists(&self, what: &str, count: u64) {
        let id = self.id;
        until(&self.server, what, move |view| {
            view.counters().requests_of(id, Op::GetChildren) >= count
        })
        .await;
    }

    /// Deletes the contender's node, as another process may. Returns the guard of the other client,
    /// which is next.
    async fn replaced(&self, node: &str) -> LockGuard {
        self.server.delete(node).unwrap();
        hold(&self.other).await
    }

    /// Asserts that an outdated list does not grant the contender the lock: it queues behind the
    /// guard.
    async fn ends_behind(self, guard: LockGuard) {
        until(&self.server, "its next node", |view| {
            view.children(DIRECTORY).len() == 2
        })
        .await;
        assert!(!self.waiting.is_finished(), "granted by an outdated list");
        guard.release().await.unwrap();
        let granted = within("the grant", self.waiting).await.unwrap().unwrap();
        granted.release().await.unwrap();
    }
}

/// While a contender that is first waits for proof that the servers keep its session, another
/// process deletes its node, and the next one is granted the lock.
// Shows: suspended
#[tokio::test]
async fn doubted_contender_looks_before_its_grant() {
    let (contender, guard) = Doubted::waiting(Client::builder()).await;
    let doubt = contender.doubt();
    // The pause is longer than two heartbeat intervals, and too short to lose a lock.
    tokio::time::sleep(T / 2).await;
    guard.release().await.unwrap();
    contender.until_lists("another list", 2).await;
    // This list is answered after the contender's.
    let queue = within("the queue", contender.lock.participants())
        .await
        .unwrap();
    let guard = contender.replaced(&queue[0]).await;
    doubt.remove();
    contender.ends_behind(guard).await;
}

/// The servers keep the session without confirming it: the node of the lost lock stays for a while,
/// so the holder has time to stop.
// Shows: lost-lock-keeps-its-node
#[tokio::test]
async fn lost_lock_keeps_its_node() {
    let (server, [client]) = with_clients(server(), client).await;
    let guard = hold(&client).await;
    server.fail(Match::op(Op::Multi).always(), THROTTLED);
    let lost = within("the loss", guard.lost()).await;
    assert_eq!(lost.reason(), LostReason::LeaseExpired);
    let node = guard.node();
    let is_gone = move |view: View<'_>| !view.exists(&node);
    never_for(T / 6, &server, "its node is gone", is_gone).await;
    until_free(&server).await;
    drop(guard);
}

/// The contender has looked again after a first doubt. A second doubt, in which its node is
/// deleted, outlasts that look.
// Shows: suspended
#[tokio::test]
async fn looks_again_after_a_long_doubt() {
    let (contender, guard) = Doubted::waiting(Client::builder().retry_policy(eager())).await;
    let doubt = contender.doubt();
    // The test waits until a heartbeat is overdue, because the session is then in doubt.
    tokio::time::sleep(T / 2).await;
    let listed = contender.lists();
    guard.release().await.unwrap();
    contender
        .until_lists("the list of the first doubt", listed + 1)
        .await;
    let lists = Match::op(Op::GetChildren).session(contender.id);
    let unseen = contender.server.fail(lists.always(), THROTTLED);
    doubt.remove();
    within("the look after the doubt", unseen.wait_hit()).await;
    let doubt = contender.doubt();
    // The pause puts the session in doubt again.
    tokio::time::sleep(T / 2).await;
    unseen.remove();
    let queue = within("the queue", contender.lock.participants())
        .await
        .unwrap();
    // The pause makes the look too old to grant the lock.
    tokio::time::sleep(T).await;
    let guard = contender.replaced(&queue[0]).await;
    doubt.remove();
    contender.ends_behind(guard).await;
}

/// The list that shows a contender first is answered late, and the confirmation that the servers
/// keep its session comes later still. Meanwhile another process deletes its node, and the next
/// contender is granted the lock. A doubt about the session has been cleared up once, so only the
/// age of the list prevents a second grant.
// Shows: suspended
#[tokio::test]
async fn stale_list_grants_nothing() {
    let policy = RetryPolicy::n_times(1_000, Duration::from_millis(20));
    let (contender, guard) = Doubted::waiting(Client::builder().retry_policy(policy)).await;
    let (server, id) = (&contender.server, contender.id);
    let doubt = contender.doubt();
    // The pause is longer than two heartbeat intervals, and too short to lose a lock.
    tokio::time::sleep(T / 2).await;
    // Only one list is answered: the one that would grant the contender the lock if there were no
    // doubt.
    let refused = server.fail(
        Match::op(Op::GetChildren).session(id).nth(1).always(),
        OPERATION_TIMEOUT,
    );
    guard.release().await.unwrap();
    contender.until_lists("another list", 2).await;
    doubt.remove();
    contender.until_lists("the look behind the doubt", 3).await;
    let doubt = contender.doubt();
    let renewed = Instant::now();
    // The pause puts the session in doubt again.
    tokio::time::sleep(T / 4).await;
    // This doubt lasts longer than two heartbeat intervals after the renewal, but not so long that
    // the connection is given up.
    let answer = server.hold_reply(Match::op(Op::GetChildren).session(id));
    refused.remove();
    within("the list", answer.wait_hit()).await;
    let sent = Instant::now();
    // The list becomes older while its answer is held back.
    tokio::time::sleep(T / 10).await;
    answer.release();
    // The pause below gives the client time to handle the answer.
    let node = queue(server).remove(0);
    tokio::time::sleep(T / 20).await;
    let guard = contender.replaced(&node).await;
    // The list is now older than three heartbeat intervals if its age counts from its request, and
    // younger if it counts from its answer.
    tokio::time::sleep_until((sent + T * 11 / 20).into()).await;
    assert!(renewed.elapsed() > T / 2);
    doubt.remove();
    contender.ends_behind(guard).await;
}
