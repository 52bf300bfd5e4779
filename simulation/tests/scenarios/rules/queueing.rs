//! The order of the queue, and how a waiter learns that it is next:
//! docs/protocol.md#create-and-list to docs/protocol.md#try-lock.

use ::simulation::scenario::tokio;
use test_support::prelude::*;

/// The list arrives before the create is applied, or before it is answered.
// Shows: create-and-list
#[tokio::test]
async fn create_and_list_share_one_flight() {
    let (server, [client]) = with_clients(start(), calm).await;
    let id = session(&client);
    for held_before_it_is_applied in [true, false] {
        server.reset_counters();
        let create = Match::op(Op::Create).session(id);
        let gate = if held_before_it_is_applied {
            server.hold_request(create)
        } else {
            server.hold_reply(create)
        };
        let attempt = tokio::spawn(mutex(&client).lock());
        within("the create", gate.wait_hit()).await;
        until(&server, "the list, while the create is held", move |view| {
            view.counters().requests_of(id, Op::GetChildren) == 1
        })
        .await;
        assert_eq!(
            server.children(DIRECTORY).len(),
            usize::from(!held_before_it_is_applied)
        );
        assert!(!attempt.is_finished());
        gate.release();
        let guard = granted(attempt).await;
        assert_eq!(server.counters().total_requests(), 2);
        guard.release().await.unwrap();
    }
}

/// The list is answered, and the outcome of the create is unknown: another client may be first, and
/// is.
// Shows: grant
#[tokio::test]
async fn list_without_own_node_grants_nothing() {
    let (server, [hasty, other]) = with_clients(start(), calm).await;
    let create = || Match::op(Op::Create).session(session(&hasty));
    // An unknown code says nothing about what was done.
    let unknown = server.fail(create(), -999);
    let again = server.hold_request(create().nth(1));
    let attempt = tokio::spawn(mutex(&hasty).lock());
    within("the repetition", again.wait_hit()).await;
    assert_eq!(unknown.hits().len(), 1);
    let listed = logged(&server, session(&hasty), Op::GetChildren, LogKind::Applied);
    assert_eq!(listed[0].error, 0, "an empty directory was shown");
    let guard = within("the other's grant", mutex(&other).lock())
        .await
        .unwrap();
    again.release();
    watches(&server, &hasty, &guard.node()).await;
    assert!(!attempt.is_finished());
    guard.release().await.unwrap();
    granted(attempt).await.release().await.unwrap();
    hasty.flush(SOON).await.unwrap();
    assert_clean(&server, "two clients").await;
}

/// Our node is deleted by hand between its create and the list, with and without another holder.
// Shows: grant
#[tokio::test]
async fn deletion_before_list_grants_nothing() {
    let (server, [client, other]) = with_clients(start(), calm).await;
    let id = session(&client);
    for held_by_another in [false, true] {
        let held = if held_by_another {
            Some(
                within("the other's grant", mutex(&other).lock())
                    .await
                    .unwrap(),
            )
        } else {
            None
        };
        let gate = server.hold_request(Match::op(Op::GetChildren).session(id));
        let attempt = tokio::spawn(mutex(&client).lock());
        within("the list", gate.wait_hit()).await;
        let robbed = queue(&server).pop().unwrap();
        server.delete(&robbed).unwrap();
        gate.release();
        if let Some(held) = held {
            let node = held.node();
            until(&server, "the wait for the holder", move |view| {
                view.watches_on(&node) == [id]
            })
            .await;
            assert!(!attempt.is_finished());
            held.release().await.unwrap();
        }
        let guard = granted(attempt).await;
        assert_ne!(guard.node(), robbed);
        assert_eq!(queue(&server), [guard.node()]);
        guard.release().await.unwrap();
    }
    client.flush(SOON).await.unwrap();
    assert_clean(&server, "deleted by hand").await;
}

/// A line of waiters behind a holder, each with its own client.
struct Line {
    clients: Vec<Client>,
    waiters: Vec<Waiter>,
}

async fn line(server: &Server, length: usize) -> Line {
    let (mut clients, mut waiters) = (Vec::new(), Vec::new());
    for _ in 0..length {
        let client = calm(server).await;
        waiters.push(enqueue(server, &client).await);
        clients.push(client);
    }
    Line { clients, waiters }
}

/// A waiter in the middle gives up, or its process dies: its successor then watches the node ahead
/// of the gap, and no contender is granted the lock.
// Shows: watch-one-node
#[tokio::test]
async fn departing_waiter_closes_the_gap() {
    for dies in [false, true] {
        let (server, [holder]) = with_clients(start(), calm).await;
        let held = hold(&holder).await;
        let mut line = line(&server, 4).await;
        let gone = line.waiters.remove(1);
        let goner = line.clients.remove(1);
        server.reset_counters();
        if dies {
            // The client stays disconnected, so it does not queue again.
            server.refuse_connections(true);
            assert!(server.expire_session(session(&goner)));
        } else {
            gone.attempt.abort();
            assert!(gone.attempt.await.unwrap_err().is_cancelled());
            goner.flush(SOON).await.unwrap();
        }
        let (before, after) = (line.waiters[0].node.clone(), session(&line.clients[1]));
        until(&server, "the line to close", move |view| {
            view.watches_on(&before) == [after]
        })
        .await;
        until(&server, "one watch per waiter", |view| view.watches() == 3).await;
        assert_eq!(
            server.counters().notifications(),
            1,
            "expected no other waiter to be notified"
        );
        let mut ahead = held.node();
        for (waiter, client) in line.waiters.iter().zip(&line.clients) {
            assert!(!waiter.attempt.is_finished());
            assert_eq!(server.watches_on(&ahead), [session(client)]);
            ahead.clone_from(&waiter.node);
        }
        let mut held = held;
        for waiter in line.waiters {
            held.release().await.unwrap();
            held = granted(waiter.attempt).await;
            assert_eq!(held.node(), waiter.node);
        }
        held.release().await.unwrap();
    }
}

/// The first waiter leaves while the lock is held. The second has only seen the deletion of one of
/// two nodes, and must not conclude that it is first.
// Shows: watch-one-node
#[tokio::test]
async fn successor_cannot_bypass_the_holder() {
    let (server, [holder]) = with_clients(start(), calm).await;
    let held = hold(&holder).await;
    let mut line = line(&server, 2).await;
    let first = line.waiters.remove(0);
    first.attempt.abort();
    let (node, id) = (held.node(), session(&line.clients[1]));
    until(&server, "the watch on the holder", move |view| {
        view.watches_on(&node).contains(&id)
    })
    .await;
    let second = line.waiters.remove(0);
    assert!(!second.attempt.is_finished());
    held.release().await.unwrap();
    granted(second.attempt).await.release().await.unwrap();
}

// Shows: watch-one-node
#[tokio::test]
async fn change_of_predecessor_is_no_deletion() {
    let (server, [holder, waiter]) = with_clients(start(), calm).await;
    let held = hold(&holder).await;
    let waiting = enqueue(&server, &waiter).await;
    let (node, id) = (held.node(), session(&waiter));
    for times in 1..4 {
        server.set_data(&node, "by hand").unwrap();
        let watched = node.clone();
        until(&server, "the next watch", move |view| {
            view.watches_on(&watched) == [id]
                && view.counters().requests_of(id, Op::GetData) == 1 + times
        })
        .await;
        assert!(!waiting.attempt.is_finished());
    }
    held.release().await.unwrap();
    granted(waiting.attempt).await.release().await.unwrap();
}

/// The predecessor leaves between the list and the watch.
// Shows: watch-one-node
#[tokio::test]
async fn vanished_predecessor_is_not_awaited() {
    let (server, [holder, waiter]) = with_clients(start(), calm).await;
    let held = hold(&holder).await;
    let gate = server.hold_request(Match::op(Op::GetData).session(session(&waiter)));
    let attempt = tokio::spawn(mutex(&waiter).lock());
    within("the watch", gate.wait_hit()).await;
    held.release().await.unwrap();
    gate.release();
    granted(attempt).await.release().await.unwrap();
    assert_eq!(server.watches(), 0);
}

/// The predecessor leaves while its successor has no connection: the successor learns of that from
/// the watch that is set again.
// Shows: watch-one-node
#[tokio::test]
async fn reconnect_notices_missed_deletion() {
    let (server, [holder, waiter]) = with_clients(start(), calm).await;
    for how in [Cut::Fin, Cut::Reset] {
        let held = hold(&holder).await;
        let waiting = enqueue(&server, &waiter).await;
        let id = session(&waiter);
        server.refuse_connections(true);
        assert!(server.cut(id, how));
        held.release().await.unwrap();
        assert!(!waiting.attempt.is_finished());
        server.refuse_connections(false);
        let guard = granted(waiting.attempt).await;
        assert_eq!(
            (guard.node(), session(&waiter)),
            (waiting.node, id),
            "the place in the line is kept"
        );
        guard.release().await.unwrap();
    }
}

/// A look waits for a contender of another recipe that is about to leave, instead of showing
/// nothing.
// Shows: mixed-recipes
#[tokio::test]
async fn look_waits_for_departing_foreign_contender() {
    let (server, [client, other]) = with_clients(start(), calm).await;
    let held = hold(&client).await;
    let path = format!("{DIRECTORY}/_c_5f3b2a10-8c1d-4f6e-9a7b-0123456789ab-__WRIT__");
    let leaving = server
        .create_as(&path, "", CreateMode::EphemeralSequential, session(&other))
        .unwrap();
    let (one, two) = (mutex(&client), mutex(&client));
    let participants = tokio::spawn(async move { one.participants().await });
    let holders = tokio::spawn(async move { two.holders().await });
    let (node, ours) = (leaving.clone(), session(&client));
    until(&server, "both looks", move |view| {
        view.counters().requests_of(ours, Op::Exists) == 2 && view.watches_on(&node).contains(&ours)
    })
    .await;
    server.delete(&leaving).unwrap();
    assert_eq!(
        within("the participants", participants)
            .await
            .unwrap()
            .unwrap(),
        [held.node()]
    );
    let holders = within("the holders", holders).await.unwrap().unwrap();
    assert_eq!(
        holders
            .iter()
            .map(|holder| holder.node().clone())
            .collect::<Vec<_>>(),
        [held.node()]
    );
}

/// Deletions by hand may be far apart in a long wait: only those in a row are counted against the
/// retry policy.
// Shows: waiter-without-node
#[tokio::test]
async fn good_turn_resets_deletion_count() {
    let server = start();
    let policy = RetryPolicy::n_times(1, Duration::from_millis(1));
    let (holder, client) = (calm(&server).await, connect_with(&server, policy).await);
    let id = session(&client);
    let held = hold(&holder).await;
    let Waiter { attempt, mut node } = enqueue(&server, &client).await;
    // The holder's node changes, and the waiter looks and watches it again.
    let look = async || {
        let before = server.counters().requests_of(id, Op::GetData);
        server.set_data(&held.node(), "written to").unwrap();
        let front = held.node();
        until(&server, "a look and a watch", move |view| {
            view.counters().requests_of(id, Op::GetData) > before
                && view.watches_on(&front).contains(&id)
        })
        .await;
    };
    for _ in 0..5 {
        server.delete(&node).unwrap();
        look().await;
        node = queue(&server).pop().unwrap().parse().unwrap();
        assert_ne!(node, held.node());
        look().await;
    }
    // Two deletions in a row: the policy ends the call.
    server.delete(&node).unwrap();
    look().await;
    server.delete(&queue(&server).pop().unwrap()).unwrap();
    server.set_data(&held.node(), "written to").unwrap();
    let error = within("the end", attempt).await.unwrap().unwrap_err();
    assert!(
        matches!(error, AcquireError::NodeDeleted { times: 2, .. }),
        "{error}"
    );
    held.release().await.unwrap();
}

/// A try that finds the lock busy lists once more, right behind a `sync`, because the holder may
/// have left since the first list.
// Shows: try-lock
#[tokio::test]
async fn busy_try_looks_again_after_sync() {
    let (server, [holder, other]) = with_clients(start(), calm).await;
    let id = session(&other);
    let held = hold(&holder).await;
    let gate = server.hold_request(Match::op(Op::Sync).session(id));
    let attempt = tokio::spawn(mutex(&other).try_lock());
    within("the sync", gate.wait_hit()).await;
    until(
        &server,
        "the second list, while the sync is held",
        move |view| view.counters().requests_of(id, Op::GetChildren) == 2,
    )
    .await;
    held.release().await.unwrap();
    gate.release();
    let guard = within("the answer", attempt).await.unwrap().unwrap();
    guard.release().await.unwrap();
}

/// A try finds a node of its client that is leaving, and callers of its client wait. They could
/// acquire and release the lock faster than the servers answer each look of the try.
// Shows: try-lock
#[tokio::test]
async fn try_passes_no_waiting_callers() {
    let (server, [client]) = with_clients(start(), calm).await;
    let id = session(&client);
    let lock = InterProcessMutex::builder(&client, DIRECTORY)
        .hand_off(1, Duration::MAX)
        .build()
        .unwrap();
    // The directory exists.
    within("the grant", lock.lock())
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    let created = server.hold_reply(Match::op(Op::Create).session(id));
    // The second list is that of the try, and shows the node of the first caller.
    let listed = server.hold_reply(Match::op(Op::GetChildren).session(id).nth(1));
    let mut first = task::spawn(lock.lock());
    assert_pending!(first.poll());
    within("the create", created.wait_hit()).await;
    let attempt = tokio::spawn(lock.try_lock());
    within("the list", listed.wait_hit()).await;
    created.release();
    let held = within("the first grant", first).await.unwrap();
    let mut second = task::spawn(lock.lock());
    assert_pending!(second.poll());
    drop(held);
    listed.release();
    let error = within("the answer", attempt).await.unwrap().unwrap_err();
    assert!(matches!(error, TryLockError::WouldBlock { .. }), "{error}");
    assert_eq!(
        server.counters().requests(Op::Sync),
        0,
        "the try looked once"
    );
    within("the second grant", second)
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
}

/// A try that lost the race for a free lock does not wait, and leaves nothing.
// Shows: try-lock
#[tokio::test]
async fn losing_try_leaves_nothing() {
    let (server, [first, second]) = with_clients(start(), calm).await;
    let gate = server.hold_request(Match::op(Op::Create).session(session(&second)));
    let attempt = tokio::spawn(mutex(&second).try_lock());
    within("the create", gate.wait_hit()).await;
    let held = within("the grant", mutex(&first).try_lock()).await.unwrap();
    gate.release();
    let error = within("the answer", attempt).await.unwrap().unwrap_err();
    assert!(matches!(error, TryLockError::WouldBlock { .. }), "{error}");
    second.flush(SOON).await.unwrap();
    assert_eq!(queue(&server), [held.node()]);
    held.release().await.unwrap();
}

/// A try does not wait indefinitely for a server either.
// Shows: try-lock
#[tokio::test]
async fn unanswered_try_ends() {
    let server = start();
    let patience = Duration::from_millis(200);
    let client = connect_as(Client::builder().connect_timeout(patience), &server).await;
    let id = session(&client);
    for op in [Op::GetChildren, Op::Create] {
        let gate = server.hold_request(Match::op(op).session(id));
        let attempt = tokio::spawn(mutex(&client).try_lock());
        within("the request", gate.wait_hit()).await;
        assert!(server.stall(id, Direction::Both));
        gate.release();
        let error = within("the answer", attempt).await.unwrap().unwrap_err();
        assert_eq!(error.kind(), Some(ErrorKind::Connection), "{error}");
        server.resume(id);
        client.flush(SOON).await.unwrap();
        assert_eq!(queue(&server), [""; 0]);
    }
    assert_eq!(session(&client), id);
    assert_clean(&server, "tries without an answer").await;
}
