//! Requests without an answer, and their repetition: docs/protocol.md#unknown-outcome to
//! docs/protocol.md#bounded-retries.

use std::collections::HashSet;
use std::error::Error as _;

use ::simulation::scenario::tokio;
use test_support::prelude::*;

const LOSSES: [Loss; 3] = [Loss::Close, Loss::Reset, Loss::Stall];

/// ZooKeeper's answer to a request at which it failed, before or after it carried the request out.
const MARSHALLING_ERROR: i32 = -5;

/// Connects a client that notices a stall within 2 s, and keeps its locks meanwhile.
async fn impatient(server: &Server) -> Client {
    let builder = Client::builder()
        .session_timeout(Duration::from_secs(6))
        .retry_policy(eager());
    connect_as(builder, server).await
}

/// Acquires and releases under the fault that is in force. Exactly one node exists while the lock
/// is held, and none at the end.
async fn one_node_then_none(server: &Server, client: &Client, what: &str) {
    let id = session(client);
    let guard = within(what, mutex(client).lock()).await.unwrap();
    until(server, &format!("one node: {what}"), |view| {
        view.children(DIRECTORY).len() == 1
    })
    .await;
    assert_eq!(queue(server), [guard.node()], "{what}");
    within(what, guard.release()).await.unwrap();
    within(what, client.flush(SOON)).await.unwrap();
    assert_eq!(server.children(DIRECTORY), [""; 0], "{what}");
    assert_eq!(server.watches(), 0, "{what}");
    assert_eq!(
        session(client),
        id,
        "{what}: expected the session to continue"
    );
}

/// The create is repeated if it has not arrived.
// Shows: unknown-outcome
#[tokio::test]
async fn unanswered_create_leaves_one_node() {
    let server = start();
    for (applied, loss) in [true, false]
        .into_iter()
        .flat_map(|applied| LOSSES.map(|loss| (applied, loss)))
    {
        let client = impatient(&server).await;
        let fault = lose(
            &server,
            Match::op(Op::Create).session(session(&client)),
            applied,
            loss,
        );
        one_node_then_none(&server, &client, &format!("{applied} {loss:?}")).await;
        assert_eq!(fault.hits().len(), 1);
    }
}

/// A create and its repetition are lost, each before or after its commit.
// Shows: unknown-outcome
#[tokio::test]
async fn two_lost_creates_leave_one_node() {
    let server = start();
    for first_applied in [true, false] {
        for second_applied in [true, false] {
            for loss in [Loss::Close, Loss::Reset] {
                let client = calm(&server).await;
                let create = || Match::op(Op::Create).session(session(&client));
                // A lost request has no reply, so `nth` does not count it.
                let second = create().nth(usize::from(first_applied || !second_applied));
                let faults = [(create(), first_applied), (second, second_applied)]
                    .map(|(create, applied)| lose(&server, create, applied, loss));
                let what = format!("{first_applied} {second_applied} {loss:?}");
                one_node_then_none(&server, &client, &what).await;
                assert_eq!(faults[0].hits().len(), 1, "{what}");
                // The repetition is not always needed: the list of the first flight may still be
                // sent, over the next connection, and show what the create did.
                assert!(first_applied || faults[1].hits().len() == 1, "{what}");
                faults[1].remove();
            }
        }
    }
}

/// An attempt queues with the oldest of its nodes, so a repetition does not cost it its place.
// Shows: extra-node
#[tokio::test]
async fn found_create_keeps_its_place() {
    let (server, [holder, client, later]) = with_clients(start(), calm).await;
    let held = hold(&holder).await;
    let create = Match::op(Op::Create).session(session(&client));
    let lost = server.drop_reply(create.clone(), Loss::Close);
    // The list of the same flight fails too, because over the next connection it would show the
    // node.
    server.fail(Match::op(Op::GetChildren).session(session(&client)), -999);
    let again = server.hold_request(create.nth(1));
    let attempt = tokio::spawn(mutex(&client).lock());
    within("the repetition", again.wait_hit()).await;
    let place = lost.hits()[0].path.clone();
    let behind = enqueue(&server, &later).await;
    again.release();
    let (node, id) = (held.node(), session(&client));
    until(&server, "the wait in the first place", move |view| {
        view.watches_on(&node) == [id] && view.children(DIRECTORY).len() == 3
    })
    .await;
    held.release().await.unwrap();
    let guard = granted(attempt).await;
    assert_eq!(guard.node(), place);
    assert!(!behind.attempt.is_finished());
    guard.release().await.unwrap();
    granted(behind.attempt).await.release().await.unwrap();
    assert_clean(&server, "all served").await;
}

// Shows: unknown-outcome
#[tokio::test]
async fn lost_lists_watches_looks_are_repeated() {
    let server = start();
    for loss in LOSSES {
        for op in [Op::GetChildren, Op::GetData] {
            for applied in [true, false] {
                let (holder, client) = (impatient(&server).await, impatient(&server).await);
                let what = format!("{op:?} {loss:?} {applied}");
                let held = within(&what, mutex(&holder).lock()).await.unwrap();
                let fault = lose(
                    &server,
                    Match::op(op).session(session(&client)),
                    applied,
                    loss,
                );
                let waiting = enqueue(&server, &client).await;
                within(&what, fault.wait_hit()).await;
                assert_eq!(
                    queue(&server),
                    [held.node(), waiting.node.clone()],
                    "{what}"
                );
                held.release().await.unwrap();
                let guard = granted(waiting.attempt).await;
                assert_eq!(guard.node(), waiting.node, "{what}");
                guard.release().await.unwrap();
                assert_clean(&server, &what).await;
            }
        }
    }
}

/// A release is repeated until the node is gone, and then succeeds.
// Shows: cleanup
#[tokio::test]
async fn unanswered_release_is_repeated() {
    let server = start();
    for loss in LOSSES {
        for applied in [true, false] {
            let client = impatient(&server).await;
            let what = format!("{loss:?} {applied}");
            let guard = within(&what, mutex(&client).lock()).await.unwrap();
            let fault = lose(
                &server,
                Match::op(Op::Delete).session(session(&client)),
                applied,
                loss,
            );
            within(&what, guard.release()).await.unwrap();
            assert_eq!(fault.hits().len(), 1, "{what}");
            assert_clean(&server, &what).await;
        }
    }
}

// Shows: cleanup
#[tokio::test]
async fn throttled_release_repeats_refused_one_fails() {
    let (server, [client]) = with_clients(start(), calm).await;
    let mutex = mutex(&client);
    // Throttled, read-only, unknown, failed during the answer: the deletion is repeated.
    for code in [-127, -119, -999, MARSHALLING_ERROR] {
        let fault = server.fail(Match::op(Op::Delete).times(3), code);
        let guard = within("the grant", mutex.lock()).await.unwrap();
        within("the release", guard.release()).await.unwrap();
        assert_eq!(fault.hits().len(), 3, "{code}");
        assert_eq!(server.children(DIRECTORY), [""; 0]);
    }
    // A forbidden deletion is reported at once, and the node goes with the session.
    let fault = server.fail(Match::op(Op::Delete).always(), -102);
    let guard = within("the grant", mutex.lock()).await.unwrap();
    let node = guard.node();
    let error = within("the release", guard.release()).await.unwrap_err();
    assert!(
        matches!(&error, ReleaseError::Refused { node: refused, .. } if *refused == node),
        "{error}"
    );
    assert!(error.source().is_some());
    assert_eq!(fault.hits().len(), 1);
    client.close().await.unwrap();
    assert_eq!(server.children(DIRECTORY), [""; 0]);
}

/// A release may take a missing node for one that it has deleted only if an answer has left the
/// outcome open. Here another process deletes the node between two throttled deletions.
// Shows: cleanup
#[tokio::test]
async fn throttled_release_reports_others_deletion() {
    let (server, [client]) = with_clients(start(), calm).await;
    let mutex = mutex(&client);
    for (code, is_definite) in [
        (-127, true),
        (-119, true),
        (-999, false),
        (MARSHALLING_ERROR, false),
    ] {
        let guard = within("the grant", mutex.lock()).await.unwrap();
        let node = guard.node();
        let fault = server.fail(Match::op(Op::Delete).always(), code);
        let release = tokio::spawn(guard.release());
        within("the deletion", fault.wait_hit()).await;
        server.delete(&node).unwrap();
        fault.remove();
        let released = within("the release", release).await.unwrap();
        match released {
            Ok(()) => assert!(!is_definite, "{code}"),
            Err(ReleaseError::Lost(lost)) => {
                assert_eq!(
                    (lost.reason(), is_definite),
                    (LostReason::NodeDeleted, true)
                );
            }
            Err(error) => panic!("{code}: {error}"),
        }
    }
}

/// A failed create is repeated as often as the policy says, and no more.
// Shows: bounded-retries
#[tokio::test]
async fn repetitions_end_with_the_policy() {
    for retries in [0, 1, 3] {
        let server = start();
        let client = connect_with(
            &server,
            RetryPolicy::n_times(retries, Duration::from_millis(1)),
        )
        .await;
        let id = session(&client);
        for code in [-127, -119, -999, MARSHALLING_ERROR] {
            server.reset_counters();
            let fault = server.fail(Match::op(Op::Create).path_prefix(DIRECTORY).always(), code);
            let error = within("the end", mutex(&client).lock()).await.unwrap_err();
            let tries = usize::try_from(retries).unwrap() + 1;
            assert_eq!(fault.hits().len(), tries, "{code}");
            let creates = server.counters().requests_of(id, Op::Create);
            assert_eq!(creates, u64::from(retries) + 1, "{code}: no other create");
            assert!(error.is_retryable());
            assert_eq!(error.path(), DIRECTORY);
            assert_eq!(error.kind(), Some(ErrorKind::Connection), "{error}");
            let source = std::error::Error::source(&error).unwrap();
            let said = source.downcast_ref::<zookeeper_client::Error>();
            match code {
                -127 => assert_eq!(said, Some(&zookeeper_client::Error::Throttled)),
                -119 => assert_eq!(said, Some(&zookeeper_client::Error::NotReadOnly)),
                _ => assert!(said.is_some(), "{source}"),
            }
            fault.remove();
            client.flush(SOON).await.unwrap();
            assert_eq!(server.children(DIRECTORY), [""; 0]);
        }
        // The next call counts its repetitions anew.
        let fault = server.fail(
            Match::op(Op::Create).times(usize::try_from(retries).unwrap()),
            -127,
        );
        let guard = hold(&client).await;
        assert_eq!(fault.hits().len(), usize::try_from(retries).unwrap());
        guard.release().await.unwrap();
    }
}

/// The first repetition of any request is sent at once, unless the server throttles.
// Shows: bounded-retries
#[tokio::test]
async fn first_repetition_waits_for_nothing() {
    const PAUSE: Duration = Duration::from_secs(5);
    const PATH: &str = "/shop/orders";
    let server = start();
    server.create(PATH, 10_i64.to_be_bytes()).unwrap();
    let client = connect_with(&server, RetryPolicy::n_times(2, PAUSE)).await;
    let counter = DistributedAtomicLong::new(&client, PATH).unwrap();
    for (code, times, pause) in [
        (-999, 1, Duration::ZERO),
        (-999, 2, PAUSE),
        (-127, 1, PAUSE),
    ] {
        let is_in_time = |asked: Instant| {
            let took = asked.elapsed();
            assert!(
                took >= pause && took < pause + Duration::from_secs(1),
                "{code} {times}: {took:?}"
            );
        };
        let fault = server.fail(
            Match::op(Op::Create).path_prefix(DIRECTORY).times(times),
            code,
        );
        let asked = Instant::now();
        let guard = hold(&client).await;
        is_in_time(asked);
        let read = server.fail(Match::op(Op::GetData).path(PATH).times(times), code);
        let asked = Instant::now();
        within("the value", counter.get()).await.unwrap();
        is_in_time(asked);
        let write = server.fail(Match::op(Op::SetData).path(PATH).times(times), code);
        let asked = Instant::now();
        within("the change", counter.add(1)).await.unwrap();
        is_in_time(asked);
        for fault in [fault, read, write] {
            assert_eq!(fault.hits().len(), times, "{code}");
        }
        guard.release().await.unwrap();
    }
}

/// The requests after the create are repeated by the policy too.
// Shows: bounded-retries
#[tokio::test]
async fn list_and_watch_retries_are_bounded() {
    let (server, [holder]) = with_clients(start(), calm).await;
    let client = connect_with(&server, RetryPolicy::n_times(2, Duration::from_millis(1))).await;
    let held = hold(&holder).await;
    for op in [Op::GetChildren, Op::GetData] {
        let fault = server.fail(Match::op(op).session(session(&client)).always(), -127);
        let error = within("the end", mutex(&client).lock()).await.unwrap_err();
        assert_eq!(error.kind(), Some(ErrorKind::Connection), "{error}");
        if op == Op::GetChildren {
            assert_eq!(fault.hits().len(), 3, "the first and two repetitions");
        }
        fault.remove();
        client.flush(SOON).await.unwrap();
        assert_eq!(queue(&server), [held.node()], "{op:?}");
    }
    held.release().await.unwrap();
}

/// A failure that no repetition changes is reported at once.
// Shows: unknown-outcome
#[tokio::test]
async fn refusal_is_not_repeated() {
    let (server, [client]) = with_clients(start(), calm).await;
    for (code, no_auth) in [(-102, true), (-108, false), (-114, false), (-125, false)] {
        let fault = server.fail(Match::op(Op::Create).always(), code);
        let error = within("the refusal", mutex(&client).lock())
            .await
            .unwrap_err();
        let kind = if no_auth {
            ErrorKind::NoAuth
        } else {
            ErrorKind::Rejected
        };
        assert_eq!(error.kind(), Some(kind), "{code}: {error}");
        assert_eq!(
            std::error::Error::source(&error).is_some(),
            !no_auth,
            "{code}"
        );
        assert!(!error.is_retryable());
        assert_eq!(fault.hits().len(), 1, "{code}");
        fault.remove();
    }
    // The list fails when the node exists: the node is deleted, although its deletion fails at
    // first.
    let refused = server.fail(Match::op(Op::GetChildren), -102);
    let put_off = server.fail(Match::op(Op::Delete).times(3), -7);
    let error = within("the refusal", mutex(&client).lock())
        .await
        .unwrap_err();
    assert_eq!(error.kind(), Some(ErrorKind::NoAuth), "{error}");
    client.flush(SOON).await.unwrap();
    assert_eq!(
        (
            refused.hits().len(),
            put_off.hits().len(),
            queue(&server).len()
        ),
        (1, 3, 0)
    );
}

/// No two creates share an id: a late commit of one can never be taken for another.
// Shows: one-id-per-create
#[tokio::test]
async fn every_create_has_its_own_id() {
    let (server, [client]) = with_clients(start(), calm).await;
    let id = session(&client);
    server.drop_request(Match::op(Op::Create).session(id).times(3), Loss::Close);
    for _ in 0..2 {
        let guard = hold(&client).await;
        guard.release().await.unwrap();
    }
    assert!(server.expire_session(id));
    let guard = within("the grant in the next session", mutex(&client).lock())
        .await
        .unwrap();
    guard.release().await.unwrap();
    let mut asked = logged(&server, id, Op::Create, LogKind::Arrived);
    asked.extend(logged(
        &server,
        session(&client),
        Op::Create,
        LogKind::Arrived,
    ));
    let ids: HashSet<&str> = asked.iter().map(|entry| entry.path.as_str()).collect();
    assert_eq!(asked.len(), 3 + 2 + 1);
    assert_eq!(ids.len(), asked.len(), "{ids:?}");
    for path in ids {
        let uuid = path
            .strip_prefix(&format!("{DIRECTORY}/_c_"))
            .unwrap()
            .strip_suffix("-lock-")
            .unwrap();
        assert_eq!(uuid.len(), 36, "Curator's form: {path}");
    }
}

/// The caller leaves while the outcome of its create is unknown, before or after the commit: the
/// outcome is settled.
// Shows: write-barrier
#[tokio::test]
async fn cancelled_unknown_create_is_resolved() {
    let server = start();
    for loss in LOSSES {
        for applied in [true, false] {
            let client = impatient(&server).await;
            let what = format!("{loss:?} {applied}");
            let id = session(&client);
            let create = Match::op(Op::Create).session(id);
            // The create is held until the caller has left, and then lost.
            let gate = server.hold_request(create.clone());
            let fault = lose(&server, create, applied, loss);
            let attempt = ByHand::new(mutex(&client).lock()).start();
            within(&what, gate.wait_hit()).await;
            drop(attempt);
            gate.release();
            within(&what, client.flush(SOON)).await.unwrap();
            assert_eq!(fault.hits().len(), 1, "{what}");
            assert_eq!(server.children(DIRECTORY), [""; 0], "{what}");
            assert_eq!(session(&client), id, "{what}");
            // If the list shows no node, a committed write stands between the create and the list.
            let settled = logged(&server, id, Op::Delete, LogKind::Applied);
            let barrier = settled.iter().any(|entry| entry.path.ends_with("-lock-"));
            assert!(applied || barrier, "{what}: {settled:?}");
            assert_clean(&server, &what).await;
        }
    }
}

/// Gives up a create whose outcome is unknown, and returns the path that it asked for.
async fn give_up_a_create(server: &Server, client: &Client) -> String {
    let create = Match::op(Op::Create).session(session(client));
    let gate = server.hold_request(create.clone());
    let lost = server.drop_request(create, Loss::Close);
    let attempt = ByHand::new(mutex(client).lock()).start();
    within("the create", gate.wait_hit()).await;
    drop(attempt);
    gate.release();
    within("the settlement", client.flush(SOON)).await.unwrap();
    lost.hits()[0].path.clone()
}

/// A client that only tries or looks also deletes the node of a late create.
// Shows: write-barrier
#[tokio::test]
async fn try_or_look_deletes_late_create() {
    let (server, [client]) = with_clients(start(), calm).await;
    for look in [false, true] {
        let path = give_up_a_create(&server, &client).await;
        let late = server
            .create_as(&path, "", CreateMode::EphemeralSequential, session(&client))
            .unwrap();
        if look {
            mutex(&client).participants().await.unwrap();
        } else {
            // The node may block this call, but not the next.
            if let Ok(guard) = within("a try", mutex(&client).try_lock()).await {
                guard.release().await.unwrap();
            }
        }
        until(&server, "the end of the late node", move |view| {
            !view.exists(&late)
        })
        .await;
        client.flush(SOON).await.unwrap();
        within("a try", mutex(&client).try_lock())
            .await
            .unwrap()
            .release()
            .await
            .unwrap();
    }
}

/// A node with our id that another session owns is not ours: nothing is granted by it, and it is
/// not deleted.
// Shows: owner-check
#[tokio::test]
async fn found_node_must_belong_to_session() {
    let server = start();
    for planted_as in [
        CreateMode::EphemeralSequential,
        CreateMode::PersistentSequential,
    ] {
        let (client, other) = (calm(&server).await, calm(&server).await);
        let create = Match::op(Op::Create).session(session(&client));
        let lost = server.drop_request(create.clone(), Loss::Close);
        let again = server.hold_request(create.nth(1));
        let attempt = tokio::spawn(mutex(&client).lock());
        within("the repetition", again.wait_hit()).await;
        let foreign = server
            .create_as(&lost.hits()[0].path, "", planted_as, session(&other))
            .unwrap();
        again.release();
        // The foreign node queues like any other contender, and is first.
        let node = foreign.clone();
        until(&server, "the wait for the foreign node", move |view| {
            view.watches_on(&node).len() == 1
        })
        .await;
        assert!(!attempt.is_finished());
        assert!(
            server.exists(&foreign),
            "expected the foreign node to be spared"
        );
        server.delete(&foreign).unwrap();
        let guard = granted(attempt).await;
        assert_eq!(queue(&server), [guard.node()]);
        let owner = server.node(&guard.node()).unwrap().ephemeral_owner;
        assert_eq!(owner, session(&client));
        guard.release().await.unwrap();
        assert_clean(&server, "after the foreign node").await;
    }
}

/// A waiter whose node is deleted again and again fails after as many repetitions as the policy
/// allows.
// Shows: waiter-without-node
#[tokio::test]
async fn three_deletions_end_the_attempt() {
    let server = start();
    let client = connect_with(&server, RetryPolicy::n_times(2, Duration::from_millis(1))).await;
    let id = session(&client);
    // Each time, the node is deleted between its create and its list.
    let gates =
        [0, 1, 2].map(|nth| server.hold_request(Match::op(Op::GetChildren).session(id).nth(nth)));
    let attempt = tokio::spawn(mutex(&client).lock());
    for gate in gates {
        within("the list", gate.wait_hit()).await;
        server.delete(&queue(&server)[0]).unwrap();
        gate.release();
    }
    let error = within("the end", attempt).await.unwrap().unwrap_err();
    assert!(
        matches!(error, AcquireError::NodeDeleted { times: 3, .. }),
        "{error}"
    );
    client.flush(SOON).await.unwrap();
    assert_clean(&server, "after three deletions").await;
}

/// If a deadline passes during the pause after a deletion, the error reports the deletion, and not
/// that no server answered.
// Shows: deadline
#[tokio::test]
async fn deadline_after_deletion_reports_it() {
    let server = start();
    let client = connect_with(&server, RetryPolicy::n_times(2, SOON)).await;
    let id = session(&client);
    let is_told = |error: &AcquireError| {
        let is_retryable = error.kind() == Some(ErrorKind::Connection);
        is_retryable && error.to_string().contains("deleted meanwhile") && error.source().is_none()
    };
    // The node is deleted between the create and the list. The first repetition is sent at once.
    let gates =
        [0, 1].map(|nth| server.hold_request(Match::op(Op::GetChildren).session(id).nth(nth)));
    let attempt = tokio::spawn(mutex(&client).acquire(SOON / 2));
    for gate in gates {
        within("the list", gate.wait_hit()).await;
        server.delete(&queue(&server)[0]).unwrap();
        gate.release();
    }
    let error = within("the end", attempt).await.unwrap().unwrap_err();
    assert!(
        matches!(error, AcquireError::NodeDeleted { times: 2, .. }),
        "{error}"
    );
    // The lock's directory is missing at each create.
    let gone = server.fail(Match::op(Op::Create).session(id).always(), -101);
    let error = mutex(&client).acquire(SOON / 2).await.unwrap_err();
    assert!(is_told(&error), "{error}");
    gone.remove();
    // The directory of a semaphore's permits is missing at each create.
    let semaphore = InterProcessSemaphore::new(&client, DIRECTORY, 1).unwrap();
    let leases = format!("{DIRECTORY}/leases");
    let gone = server.fail(
        Match::op(Op::Create).session(id).path(&leases).always(),
        -101,
    );
    let error = semaphore.acquire(SOON / 2).await.unwrap_err();
    assert!(is_told(&error), "{error}");
    gone.remove();
    client.flush(SOON).await.unwrap();
    assert_clean(&server, "after all three").await;
}
