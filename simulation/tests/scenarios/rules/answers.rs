//! What errors claim: `TimedOut` and `WouldBlock` mean that a live contender was seen, and no other
//! failure is reported as one of them.

use std::error::Error;
use std::task::Poll;

use ::simulation::scenario::tokio;
use test_support::prelude::*;

/// A timeout that is short enough to be waited for.
const BRIEFLY: Duration = Duration::from_millis(300);

/// A timeout for calls that have to join the queue, and whose deadline has to pass.
const A_WHILE: Duration = Duration::from_secs(4);

/// The opcode of `createContainer`.
const CREATE_CONTAINER: i32 = 19;

/// Asserts that the error is `Connection`, and names the request without an answer.
fn assert_no_answer_to(error: &AcquireError, what: &str) {
    assert_eq!(error.kind(), Some(ErrorKind::Connection), "{error:?}");
    assert!(error.is_retryable());
    let source = error.source().expect("a source").to_string();
    assert!(source.contains(what), "{source}");
}

fn acquired(error: TryLockError) -> AcquireError {
    match error {
        TryLockError::Acquire(error) => error,
        busy @ TryLockError::WouldBlock { .. } => panic!("{busy}"),
        other => panic!("{other}"),
    }
}

/// Connects a client that soon gives up a request without an answer.
async fn impatient(server: &Server) -> Client {
    let builder = Client::builder()
        .connect_timeout(BRIEFLY)
        .retry_policy(eager());
    connect_as(builder.session_timeout(Duration::from_secs(30)), server).await
}

// Shows: live-contender
#[tokio::test]
async fn unanswered_create_is_not_busy() {
    let (server, [client]) = with_clients(start(), connect).await;
    let gate = server.hold_reply(Match::op(Op::Create).session(session(&client)));
    let error = within("the end", mutex(&client).acquire(BRIEFLY))
        .await
        .unwrap_err();
    assert_no_answer_to(&error, "no answer to the creation of the lock node within");
    gate.release();
    assert_clean(&server, "after a late answer").await;
}

// Shows: live-contender
#[tokio::test]
async fn outage_during_cleanup_is_not_busy() {
    let (server, [client]) = with_clients(start(), impatient).await;
    let lock = mutex(&client);
    within("the grant", lock.lock())
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    let id = session(&client);
    assert!(server.stall(id, Direction::Both));
    server.refuse_connections(true);
    let error = within("the first", lock.acquire(BRIEFLY))
        .await
        .unwrap_err();
    assert_no_answer_to(&error, "no answer to the creation of the lock node");
    for _ in 0..2 {
        let error = within("the next", lock.acquire(BRIEFLY)).await.unwrap_err();
        assert_no_answer_to(&error, "no answer to the creation of the lock node");
        let error = acquired(within("a question", lock.try_lock()).await.unwrap_err());
        assert_no_answer_to(&error, "no answer to ");
    }
    server.refuse_connections(false);
    server.resume(id);
    within("the grant", lock.lock())
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    client.flush(SOON).await.unwrap();
    assert_clean(&server, "after the outage").await;
}

/// Returns a mutex whose last node is being deleted, and the gate that holds the deletion.
async fn in_clean_up(server: &Server, client: &Client) -> (InterProcessMutex, Gate) {
    let lock = mutex(client);
    let deletion = server.hold_request(Match::op(Op::Delete).session(session(client)));
    drop(within("the grant", lock.lock()).await.unwrap());
    within("the deletion", deletion.wait_hit()).await;
    (lock, deletion)
}

#[tokio::test]
async fn try_waits_for_node_in_cleanup() {
    let (server, [client]) = with_clients(start(), connect).await;
    let (lock, deletion) = in_clean_up(&server, &client).await;
    let question = tokio::spawn(lock.try_lock());
    deletion.release();
    within("the answer", question)
        .await
        .unwrap()
        .unwrap()
        .release()
        .await
        .unwrap();
}

#[tokio::test]
async fn try_behind_cleanup_reports_new_holder() {
    let (server, [client]) = with_clients(start(), connect).await;
    let (lock, deletion) = in_clean_up(&server, &client).await;
    let first = ByHand::new(lock.lock()).start();
    let question = ByHand::new(lock.try_lock()).start();
    until(&server, "the first one's node", |view| {
        view.children(DIRECTORY).len() >= 2
    })
    .await;
    deletion.release();
    first.woken().await;
    question.woken().await;
    let error = within("the answer", question.finished()).await.unwrap_err();
    assert!(matches!(error, TryLockError::WouldBlock { .. }), "{error}");
}

/// A contender of this client that held the lock at any time during the wait makes it busy.
// Shows: live-contender
#[tokio::test]
async fn wait_behind_live_contender_is_busy() {
    let (server, [client]) = with_clients(start(), calm).await;
    let lock = InterProcessMutex::builder(&client, DIRECTORY)
        .hand_off(1, SOON)
        .build()
        .unwrap();
    let held = within("the grant", lock.lock()).await.unwrap();
    let deletion = server.hold_request(Match::op(Op::Delete).session(session(&client)));
    let mut waiting = task::spawn(lock.acquire(A_WHILE));
    assert_pending!(waiting.poll());
    drop(held);
    within("the deletion", deletion.wait_hit()).await;
    let error = within("the end", waiting).await.unwrap_err();
    assert!(
        matches!(
            error,
            AcquireError::TimedOut {
                contention: Contention { holder: None, .. },
                ..
            }
        ),
        "{error}"
    );
    deletion.release();
    client.flush(SOON).await.unwrap();
}

// Shows: live-contender
#[tokio::test]
async fn own_node_being_deleted_never_contends() {
    let (server, [client]) = with_clients(start(), impatient).await;
    let deletion = server.hold_request(Match::op(Op::Delete).session(session(&client)).always());
    drop(hold(&client).await);
    within("the deletion", deletion.wait_hit()).await;
    let error = within("the end", mutex(&client).acquire(BRIEFLY))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), Some(ErrorKind::Connection), "{error}");
    let error = acquired(
        within("the answer", mutex(&client).try_lock())
            .await
            .unwrap_err(),
    );
    assert_eq!(error.kind(), Some(ErrorKind::Connection), "{error}");
    let question = ByHand::new(mutex(&client).try_lock()).start();
    deletion.release();
    within("the lock, which is free", question.finished())
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    client.flush(SOON).await.unwrap();
    assert_clean(&server, "after the deletions").await;
}

/// A call is dropped while its create is not answered, and its connection is cut: the node is in
/// the queue, and cleanup does not get an answer either.
async fn behind_a_dropped_call<T, F, G>(
    op: Op,
    call: impl AsyncFn(&Client) -> T,
    acquire: impl Fn(&Client) -> F,
    question: impl Fn(&Client) -> G,
) where
    F: Future<Output = AcquireError>,
    G: Future<Output = TryLockError>,
{
    let (server, [client]) = with_clients(start(), impatient).await;
    let id = session(&client);
    let deletions = server.fail(Match::op(Op::Delete).session(id).always(), -4);
    let reply = server.hold_reply(Match::op(op).session(id));
    tokio::select! {
        biased;
        _ = call(&client) => panic!("the call ended without an answer"),
        () = within("the request", reply.wait_hit()) => {}
    }
    assert!(server.cut(id, Cut::Reset));
    reply.release();
    let error = within("the end", acquire(&client)).await;
    assert_no_answer_to(&error, "no answer to ");
    let error = acquired(within("the answer", question(&client)).await);
    assert_no_answer_to(&error, "no answer to ");
    deletions.remove();
    within("the deletions", client.flush(SOON)).await.unwrap();
    assert_clean(&server, "after the deletions").await;
}

// Shows: live-contender
#[tokio::test]
async fn dropped_calls_keep_nothing_busy() {
    behind_a_dropped_call(
        Op::Create,
        async |client| mutex(client).lock().await,
        |client| {
            let attempt = mutex(client).acquire(BRIEFLY);
            async { attempt.await.unwrap_err() }
        },
        |client| {
            let attempt = mutex(client).try_lock();
            async { attempt.await.unwrap_err() }
        },
    )
    .await;
    behind_a_dropped_call(
        Op::Create,
        async |client| fair(client).lock().await,
        |client| {
            let attempt = fair(client).acquire(BRIEFLY);
            async { attempt.await.unwrap_err() }
        },
        |client| {
            let attempt = fair(client).try_lock();
            async { attempt.await.unwrap_err() }
        },
    )
    .await;
    behind_a_dropped_call(
        Op::Create,
        async |client| read_write::lock(client).read_lock().lock().await,
        |client| {
            let attempt = read_write::lock(client).write_lock().acquire(BRIEFLY);
            async { attempt.await.unwrap_err() }
        },
        |client| {
            let attempt = read_write::lock(client).write_lock().try_lock();
            async { attempt.await.unwrap_err() }
        },
    )
    .await;
}

/// Answers may come together: when the client reads the list of the second call, the node of the
/// first may be gone.
// Shows: live-contender
#[tokio::test]
async fn slow_answers_keep_nothing_busy() {
    let (server, [client]) = with_clients(start(), calm).await;
    let lock = fair(&client);
    within("the grant", lock.lock())
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    let _slow = server.delay_reply(
        Match::any().session(session(&client)).always(),
        Duration::from_millis(4),
    );
    for dropped_after in 0..14 {
        for given in 1..30 {
            let dropped_after = Duration::from_millis(dropped_after);
            drop(tokio::time::timeout(dropped_after, lock.lock()).await);
            match lock.acquire(Duration::from_millis(given)).await {
                Ok(guard) => drop(guard),
                Err(error) => assert_eq!(
                    error.kind(),
                    Some(ErrorKind::Connection),
                    "{dropped_after:?} {given}: {error}"
                ),
            }
            if given % 3 == 0 {
                client.flush(SOON).await.unwrap();
            }
        }
    }
}

/// A call that is dropped right after its grant leaves a node that is about to be deleted.
// Shows: live-contender
#[tokio::test]
async fn try_behind_dropped_grant_succeeds() {
    let (server, [client]) = with_clients(start(), calm).await;
    let lock = mutex(&client);
    drop(within("the grant", lock.lock()).await.unwrap());
    let _slow = server.delay_reply(
        Match::any().session(session(&client)).always(),
        Duration::from_millis(4),
    );
    // The calls run in a separate task, because the tasks that grant the lock take turns with other
    // tasks, and not with the test.
    let calls = tokio::spawn(async move {
        for dropped_after in 2..14 {
            for turns in 0..20 {
                client.flush(SOON).await.unwrap();
                let dropped_after = Duration::from_millis(dropped_after);
                let left = async {
                    // The test varies the moment of the drop.
                    tokio::time::sleep(dropped_after).await;
                    for _ in 0..turns {
                        one_turn().await;
                    }
                };
                tokio::select! {
                    biased;
                    () = left => {}
                    guard = lock.lock() => drop(guard),
                }
                let guard = within("the answer", lock.try_lock()).await;
                drop(guard.unwrap_or_else(|error| panic!("{dropped_after:?} {turns}: {error}")));
            }
        }
    });
    calls.await.unwrap();
}

/// Lets each task that can make progress run once.
async fn one_turn() {
    let mut waited = false;
    std::future::poll_fn(|context| {
        if std::mem::replace(&mut waited, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

// Shows: live-contender
#[tokio::test]
async fn timeout_reports_contenders_ahead() {
    let (server, [holder, waiter, last]) = with_clients(start(), connect).await;
    let held = hold(&holder).await;
    let waiting = enqueue(&server, &waiter).await;
    let error = timed_out(async |timeout| mutex(&last).acquire(timeout).await).await;
    let AcquireError::TimedOut {
        timeout,
        waited,
        contention,
        ..
    } = &error
    else {
        panic!("{error:?}")
    };
    let Contention {
        ahead,
        first,
        holder: None,
        ..
    } = contention
    else {
        panic!("{error:?}")
    };
    assert_eq!((*ahead, first.as_deref()), (2, Some(&*held.node())));
    assert!(waited >= timeout);
    let text = error.to_string();
    let begin = format!("the lock {DIRECTORY:?} was not free within {timeout:?}");
    assert!(text.starts_with(&begin), "{text}");
    assert!(text.contains("2 contenders are ahead"), "{text}");
    assert!(text.contains(": held by "), "{text}");
    let error = within("the answer", mutex(&last).try_lock())
        .await
        .unwrap_err();
    let held_by = format!("the lock {DIRECTORY:?} is not free: held by ");
    assert!(error.to_string().starts_with(&held_by), "{error}");
    let error = within("the answer", mutex(&holder).try_lock())
        .await
        .unwrap_err();
    assert!(
        error
            .to_string()
            .contains("this process itself has held it for"),
        "{error}"
    );
    assert!(error.to_string().contains(file!()), "{error}");
    held.release().await.unwrap();
    granted(waiting.attempt).await.release().await.unwrap();
    assert_eq!(queue(&server), [""; 0]);
}

/// A waiter forgets the contenders that it saw in an earlier session.
// Shows: one-session
#[tokio::test]
async fn contender_of_earlier_session_is_ignored() {
    let (server, [other, client]) = with_clients(start(), connect).await;
    let held = within("the grant", fair(&other).lock()).await.unwrap();
    let mut place = within("a place", fair(&client).enqueue()).await.unwrap();
    let (node, id) = (held.node(), session(&client));
    until(&server, "the wait", move |view| {
        view.watches_on(&node) == [id]
    })
    .await;
    // The creates of the next session are not answered.
    let creates = server.hold_request(Match::op(Op::Create).always());
    assert!(server.expire_session(id));
    within("the next create", creates.wait_hit()).await;
    held.release().await.unwrap();
    assert_eq!(queue(&server), [""; 0], "the lock is free");
    let error = within("the end", place.acquire(BRIEFLY)).await.unwrap_err();
    assert_no_answer_to(&error, "no answer to the creation of the lock node");
    creates.release();
}

// Shows: live-contender
#[tokio::test]
async fn departed_predecessor_is_not_ahead() {
    let (server, [other, client]) = with_clients(start(), connect).await;
    let held = hold(&other).await;
    let attempt = tokio::spawn(mutex(&client).acquire(A_WHILE));
    let (node, id) = (held.node(), session(&client));
    until(&server, "the wait", move |view| {
        view.watches_on(&node) == [id]
    })
    .await;
    let lists = server.hold_request(Match::op(Op::GetChildren).session(id).always());
    held.release().await.unwrap();
    within("the list", lists.wait_hit()).await;
    let error = within("the end", attempt).await.unwrap().unwrap_err();
    assert_no_answer_to(&error, "no answer to the list");
    lists.release();
    client.flush(SOON).await.unwrap();
    assert_clean(&server, "after a list without an answer").await;
}

// Shows: live-contender
#[tokio::test]
async fn contender_before_deleted_node_is_ignored() {
    let (server, [other, client]) = with_clients(start(), connect).await;
    let held = hold(&other).await;
    let id = session(&client);
    let watch = server.hold_request(Match::op(Op::GetData).session(id).path_contains("lock-"));
    let attempt = tokio::spawn(mutex(&client).acquire(A_WHILE));
    within("the watch", watch.wait_hit()).await;
    let creates = server.hold_request(Match::op(Op::Create).session(id).always());
    let own = queue(&server).pop().expect("its node");
    server.delete(&own).unwrap();
    // The client lists again, and finds that its node is gone.
    assert!(server.cut(id, Cut::Reset));
    within("the next create", creates.wait_hit()).await;
    held.release().await.unwrap();
    let error = within("the end", attempt).await.unwrap().unwrap_err();
    assert_no_answer_to(&error, "no answer to the creation of the lock node");
    watch.release();
    creates.release();
}

// Shows: try-lock, bounded-nodes
#[tokio::test]
async fn surplus_readers_get_free_lock() {
    let (server, [client]) = with_clients(start(), connect).await;
    let lock = read_write::lock(&client);
    let questions: Vec<_> = (0..200)
        .map(|_| tokio::spawn(lock.read_lock().try_lock()))
        .collect();
    let mut guards = Vec::new();
    for question in questions {
        guards.push(within("the answer", question).await.unwrap().unwrap());
    }
    assert_eq!(queue(&server).len(), 200);
    drop(guards);
    client.flush(SOON).await.unwrap();
    assert_clean(&server, "after two hundred readers").await;
}

// Shows: live-contender
#[tokio::test]
async fn unanswered_readers_block_no_reader() {
    let (server, [client]) = with_clients(start(), impatient).await;
    let lock = read_write::lock(&client);
    let id = session(&client);
    let create = server.hold_reply(Match::op(Op::Create).session(id));
    let first = tokio::spawn(lock.read_lock().acquire(SOON));
    within("the create", create.wait_hit()).await;
    // The create is not answered on another connection either.
    server.refuse_connections(true);
    let error = within("the end", lock.read_lock().acquire(BRIEFLY))
        .await
        .unwrap_err();
    assert_no_answer_to(&error, "no answer to the creation of the lock node");
    let error = acquired(
        within("a question", lock.read_lock().try_lock())
            .await
            .unwrap_err(),
    );
    assert_no_answer_to(&error, "no answer to ");
    // No contender is known to be ahead of a writer either.
    let error = within("the end", lock.write_lock().acquire(BRIEFLY))
        .await
        .unwrap_err();
    assert_no_answer_to(&error, "no answer to the creation of the lock node");
    server.refuse_connections(false);
    create.release();
    granted(first).await.release().await.unwrap();
    client.flush(SOON).await.unwrap();
    assert_clean(&server, "after a late answer").await;
}

#[tokio::test]
async fn readers_behind_foreign_writer_stay_ahead() {
    let (server, [other, client]) = with_clients(start(), connect).await;
    let held = within("the grant", read_write::lock(&other).write_lock().lock())
        .await
        .unwrap();
    let lock = read_write::lock(&client);
    let reader = tokio::spawn(lock.read_lock().lock());
    until(&server, "the wait", |view| view.watches() == 1).await;
    let error = within("the end", lock.read_lock().acquire(BRIEFLY))
        .await
        .unwrap_err();
    assert!(matches!(error, AcquireError::TimedOut { .. }), "{error:?}");
    let error = within("the answer", lock.read_lock().try_lock())
        .await
        .unwrap_err();
    let TryLockError::WouldBlock {
        contention: Contention { first, .. },
        ..
    } = &error
    else {
        panic!("{error:?}")
    };
    assert_eq!(first.as_deref(), Some(&*held.node()), "as the servers say");
    held.release().await.unwrap();
    granted(reader).await.release().await.unwrap();
}

/// Makes two directories, which are not containers, by taking locks in them.
async fn make_ordinary_directories(server: &Server, client: &Client) {
    for path in ["/old/first", "/old/second"] {
        let lock = InterProcessMutex::new(client, path).unwrap();
        within("the grant", lock.lock())
            .await
            .unwrap()
            .release()
            .await
            .unwrap();
        assert_eq!(server.node(path).unwrap().kind, NodeKind::Persistent);
    }
}

// Shows: directories
#[tokio::test]
async fn unknown_containers_become_ordinary_directories() {
    let server = Server::start().unwrap();
    let client = connect(&server).await;
    let containers = || {
        Match::any()
            .opcode(CREATE_CONTAINER)
            .session(session(&client))
            .always()
    };
    let fault = server.fail(containers(), -6);
    make_ordinary_directories(&server, &client).await;
    assert_eq!(fault.hits().len(), 1, "the client remembers it");
}

// Shows: directories
#[tokio::test]
async fn disconnect_at_containers_makes_ordinary_directories() {
    let server = Server::start().unwrap();
    // The policy allows no repetition, and none is needed.
    let client = connect_with(&server, RetryPolicy::n_times(0, BRIEFLY)).await;
    let containers = || {
        Match::any()
            .opcode(CREATE_CONTAINER)
            .session(session(&client))
            .always()
    };
    let fault = server.drop_request(containers(), Loss::Close);
    make_ordinary_directories(&server, &client).await;
    assert_eq!(
        fault.hits().len(),
        2,
        "two lost connections are proof, which the client remembers"
    );
}

/// A single lost connection proves nothing.
// Shows: directories
#[tokio::test]
async fn single_disconnect_at_container_changes_nothing() {
    let server = Server::start().unwrap();
    let client = connect(&server).await;
    let matcher = Match::any()
        .opcode(CREATE_CONTAINER)
        .session(session(&client));
    let fault = server.drop_request(matcher, Loss::Close);
    let lock = InterProcessMutex::new(&client, DIRECTORY).unwrap();
    within("the grant", lock.lock())
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    assert_eq!(fault.hits().len(), 1);
    assert_eq!(server.node(DIRECTORY).unwrap().kind, NodeKind::Container);
}

/// Lost connections prove nothing about containers if no other request is answered either.
// Shows: directories
#[tokio::test]
async fn outage_at_containers_changes_nothing() {
    let server = Server::start().unwrap();
    let client = connect(&server).await;
    let id = session(&client);
    let containers = Match::any().opcode(CREATE_CONTAINER).session(id);
    let creates = server.drop_request(containers.times(3), Loss::Close);
    let reads = server.drop_request(Match::op(Op::Exists).session(id).times(2), Loss::Close);
    within("the grant", mutex(&client).lock())
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    assert_eq!((creates.hits().len(), reads.hits().len()), (3, 2));
    assert_eq!(server.node(DIRECTORY).unwrap().kind, NodeKind::Container);
}

/// An attempt that has a slot waits for the servers, and not for other attempts with a slot.
// Shows: live-contender
#[tokio::test]
async fn outage_behind_slot_is_no_contention() {
    let (server, [client, other]) = with_clients(start_empty(), calm).await;
    let semaphore = |client| InterProcessSemaphore::builder(client, "/slots", 1).max_znodes(1);
    let permit = semaphore(&other).build().unwrap().acquire(SOON);
    let permit = within("the permit", permit).await.unwrap();
    let semaphore = semaphore(&client).build().unwrap();
    let first = tokio::spawn(semaphore.acquire(A_WHILE / 2));
    let (id, waits) = (session(&client), |view: View<'_>| {
        view.children("/slots/locks").len() == 1
    });
    until(&server, "the first in the queue", waits).await;
    let second = tokio::spawn(semaphore.acquire(A_WHILE));
    let create = server.hold_request(
        Match::op(Op::Create)
            .session(id)
            .path_prefix("/slots/locks/"),
    );
    let error = within("the end", first).await.unwrap().unwrap_err();
    assert!(matches!(error, AcquireError::TimedOut { .. }), "{error:?}");
    within("the second's create", create.wait_hit()).await;
    let error = within("the end", second).await.unwrap().unwrap_err();
    assert_no_answer_to(&error, "no answer to the creation of the lock node");
    create.release();
    permit.release().await.unwrap();
    client.flush(SOON).await.unwrap();
}

/// Callers of this client have had the lock in the meantime, in a session that has ended.
// Shows: live-contender
#[tokio::test]
async fn outage_deadline_ignores_earlier_holders() {
    let (server, [client]) = with_clients(start(), calm).await;
    let lock = InterProcessMutex::builder(&client, DIRECTORY)
        .hand_off(9, HOUR)
        .build()
        .unwrap();
    let first = within("the grant", lock.lock()).await.unwrap();
    let (second, third) = (pending(lock.lock()), pending(lock.lock()));
    let waits = pending(lock.acquire(SOON));
    first.release().await.unwrap();
    within("the grant", second)
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    let third = within("the grant", third).await.unwrap();
    server.expire_session(session(&client));
    within("the loss", third.lost()).await;
    server.refuse_connections(true);
    let error = waits.await.unwrap_err();
    assert_eq!(error.kind(), Some(ErrorKind::Connection), "{error}");
}
