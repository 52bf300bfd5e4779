//! The end of a client: what `close` waits for and confirms, and what it ends.

use ::simulation::scenario::tokio;

use super::*;

/// ZooKeeper's `NoAuth`.
const NO_AUTH: i32 = -102;

/// A caller that does not want to wait for a server drops the future. The session is still closed
/// once a server is reachable.
#[tokio::test]
async fn close_without_server_ends_guards() {
    let server = server();
    server.freeze_expiry(true);
    let client = client(&server).await;
    let (guard, id) = (hold(&client).await, session(&client));
    server.stop_async().await;
    until_state(&client, ConnectionState::Suspended).await;
    let mut closing = task::spawn(client.close());
    assert_pending!(closing.poll());
    assert_eq!(
        within("the loss", guard.lost()).await.reason(),
        LostReason::Closed
    );
    assert_pending!(closing.poll());
    drop(closing);
    server.restart_async().await.unwrap();
    until_ended(&server, id).await;
    assert_eq!(server.counters().requests(Op::CloseSession), 1);
    within("the close", client.close()).await.unwrap();
}

/// Waiters end at `close`, even without a server.
// Shows: close-confirmed
#[tokio::test]
async fn close_without_server_ends_waiters() {
    for lost in [false, true] {
        let server = server();
        let (client, state) = match lost {
            true => (
                brief_client(&server, patient()).await,
                ConnectionState::Lost,
            ),
            false => (client(&server).await, ConnectionState::Suspended),
        };
        server.stop_async().await;
        until_state(&client, state).await;
        let waiter = tokio::spawn(mutex(&client).lock());
        let mut closing = task::spawn(client.close());
        assert_pending!(closing.poll());
        let waited = within("the end of the wait", waiter).await.unwrap();
        assert!(
            matches!(&waited, Err(error) if error.kind() == Some(ErrorKind::Closed)),
            "{waited:?}"
        );
        // The close waits for a session timeout.
        assert_pending!(closing.poll());
    }
}

/// `close` interrupts the pause between repetitions of a look and of a request to release. The
/// pause is longer than a caller of `close` would wait, and than the session lives.
// Shows: session-lifetime
#[tokio::test]
async fn close_interrupts_retry_pause() {
    for refused in [Op::GetChildren, Op::SetData] {
        let server = server();
        server.freeze_expiry(true);
        let policy = RetryPolicy::forever(Duration::from_secs(3_600));
        let client = client_with(&server, patient().retry_policy(policy)).await;
        let (guard, session) = (hold(&client).await, session(&client));
        let node = guard.node();
        let throttled = server.fail(
            Match::op(refused).path_prefix(DIRECTORY).always(),
            THROTTLED,
        );
        let (asked, mutex) = (client.clone(), mutex(&client));
        let call = tokio::spawn(async move {
            let answer = match refused {
                Op::SetData => asked.attempt_revoke(&guard.node()).await,
                _ => mutex.participants().await.map(drop),
            };
            drop(guard);
            answer
        });
        within("the request", throttled.wait_hit()).await;
        // The grant is answered after the refusal, so the refusal has arrived.
        drop(
            within("the grant", mutex_at(&client, OTHER).lock())
                .await
                .unwrap(),
        );
        within("the close", client.close()).await.unwrap();
        assert!(!server.exists(&node), "the lock is still taken");
        assert!(
            !server.sessions().iter().any(|other| other.id == session),
            "the session is still there"
        );
        let error = within("the answer", call).await.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Closed, "{error:?}");
    }
}

/// The transaction was sent, and its future is not polled any more, as after a `select!` in which
/// another branch has finished. The future keeps no session open, and the outcome is unknown.
// Shows: transaction
#[tokio::test]
async fn transaction_during_close_is_unknown() {
    for is_answered in [false, true] {
        let (server, [client]) = with_clients(server(), client).await;
        let guard = hold(&client).await;
        let written = "/locks/written";
        let gate = server.hold_reply(Match::op(Op::Multi).path(written));
        let mut commit = task::spawn(guard.transaction().create(written, "").commit());
        assert_pending!(commit.poll());
        within("the request", gate.wait_hit()).await;
        if is_answered {
            gate.release();
            within("the close", client.close()).await.unwrap();
            // Either the answer or the end of the client came first.
            let answer = within("the commit", commit).await;
            assert!(
                matches!(answer, Ok(()) | Err(TransactionError::Unknown { .. })),
                "{answer:?}"
            );
        } else {
            let mut closing = task::spawn(client.close());
            assert_pending!(closing.poll());
            let answer = within("the commit", commit).await;
            assert!(
                matches!(answer, Err(TransactionError::Unknown { .. })),
                "{answer:?}"
            );
            gate.release();
            within("the close", closing).await.unwrap();
        }
        assert!(server.exists(written));
        assert_eq!(server.sessions().len(), 0);
    }
}

/// A process may end after `close`, and then no task would close the replaced session.
// Shows: close-confirmed
#[tokio::test]
async fn close_waits_for_replaced_session() {
    let server = server();
    let gate = server.hold_request(Match::op(Op::CloseSession));
    let builder = Client::builder()
        .session_timeout(2 * LONG)
        .connect_timeout(3 * LONG);
    let client = builder.connect(&server.connect_string()).await.unwrap();
    within("the end of the first", gate.wait_hit()).await;
    let (established, id) = (sessions_established(&server), session(&client));
    assert_eq!((established.len(), established[1]), (2, id));
    let mut closing = tokio::spawn(async move { client.close().await });
    until_ended(&server, id).await;
    assert!(
        tokio::time::timeout(ms(500), &mut closing).await.is_err(),
        "{:?}",
        server.sessions()
    );
    gate.release();
    within("the close", closing).await.unwrap().unwrap();
    assert_eq!(server.sessions().len(), 0);
}

/// The client gives its session up when no server has answered for 7/5 of its timeout. The servers,
/// which were stopped meanwhile, still have the session when they start again.
// Shows: close-confirmed
#[tokio::test]
async fn close_confirms_no_abandoned_session() {
    for before in [ConnectionState::Suspended, ConnectionState::Lost] {
        let server = server();
        server.freeze_expiry(true);
        let builder = patient().retry_policy(RetryPolicy::n_times(0, Duration::ZERO));
        let client = brief_client(&server, builder).await;
        let guard = hold(&client).await;
        server.stop_async().await;
        within("the loss", guard.lost()).await;
        if before == ConnectionState::Lost {
            until_state(&client, before).await;
        }
        let closed = within("the close", client.close()).await;
        assert!(
            matches!(closed, Err(ReleaseError::SessionNotClosed { .. })),
            "{before:?}: {closed:?}"
        );
        server.restart_async().await.unwrap();
        assert!(server.exists(&guard.node()), "its node keeps others out");
    }
}

/// A guard was dropped after the client gave its session up: a flush waits for the guard's node.
// Shows: flush
#[tokio::test]
async fn flush_waits_for_abandoned_session() {
    for is_closed in [false, true] {
        let server = server();
        server.freeze_expiry(true);
        let client = brief_client(&server, patient()).await;
        let guard = hold(&client).await;
        let node = guard.node();
        server.stop_async().await;
        until_state(&client, ConnectionState::Lost).await;
        drop(guard);
        if is_closed {
            within("the close", client.close()).await.unwrap_err();
            let flushed = within("the flush", client.flush(SOON)).await;
            assert!(
                matches!(flushed, Err(ReleaseError::SessionNotClosed { .. })),
                "{flushed:?}"
            );
            continue;
        }
        let flushed = within("the flush", client.flush(ms(10))).await;
        assert!(
            matches!(flushed, Err(ReleaseError::TimedOut { nodes: 1, .. })),
            "{flushed:?}"
        );
        server.restart_async().await.unwrap();
        within("the flush", client.flush(SOON)).await.unwrap();
        assert!(!server.exists(&node));
    }
}

/// The servers come back, and would keep the nodes of the abandoned session for another session
/// timeout.
// Shows: close-confirmed
#[tokio::test]
async fn abandoned_session_is_closed_after_outage() {
    for is_closed in [false, true] {
        let server = server();
        server.freeze_expiry(true);
        let client = brief_client(&server, patient()).await;
        let (guard, id) = (hold(&client).await, session(&client));
        server.stop_async().await;
        until_state(&client, ConnectionState::Lost).await;
        let closing = is_closed.then(|| {
            tokio::spawn({
                let client = client.clone();
                async move { client.close().await }
            })
        });
        server.restart_async().await.unwrap();
        until_ended(&server, id).await;
        assert!(!server.exists(&guard.node()));
        match closing {
            Some(closing) => within("the close", closing).await.unwrap().unwrap(),
            // The next session works.
            None => hold(&client).await.release().await.unwrap(),
        }
    }
}

/// Restarts the server, which refuses to resume this session, and waits for the first try.
async fn restart_refusing(server: &Server, session: i64) -> Fault {
    let refused = server.fail(
        Match::op(Op::Connect).session(session).always(),
        RUNTIME_INCONSISTENCY,
    );
    server.restart_async().await.unwrap();
    within("the first try", refused.wait_hit()).await;
    refused
}

/// The servers keep the node of a create that they have not answered before the client gives the
/// session up.
// Shows: flush
#[tokio::test]
async fn flush_awaits_session_of_unanswered_create() {
    let server = server();
    server.freeze_expiry(true);
    let client = brief_client(&server, patient()).await;
    // The directory exists, and the session has no node.
    hold(&client).await.release().await.unwrap();
    client.flush(LONG).await.unwrap();
    let id = session(&client);
    let unanswered = server.hold_reply(Match::op(Op::Create).session(id));
    let mut call = task::spawn(mutex(&client).lock());
    assert_pending!(call.poll());
    within("the create", unanswered.wait_hit()).await;
    server.stop_async().await;
    until_state(&client, ConnectionState::Lost).await;
    drop(call);
    let refused = restart_refusing(&server, id).await;
    assert_eq!(server.children(DIRECTORY).len(), 1);
    let early = client.flush(T / 2).await;
    assert!(
        matches!(early, Err(ReleaseError::TimedOut { .. })),
        "{early:?}"
    );
    refused.remove();
    client.flush(LONG).await.unwrap();
    assert_eq!(server.children(DIRECTORY).len(), 0);
}

/// The session ends while a flush asks for the deletion of a refused orphan once more.
// Shows: flush, refused-orphan
#[tokio::test]
async fn flush_awaits_session_of_refused_orphan() {
    let server = server();
    server.freeze_expiry(true);
    let client = brief_client(&server, patient()).await;
    let (guard, id) = (hold(&client).await, session(&client));
    let denied = server.fail(Match::op(Op::Delete).session(id), NO_AUTH);
    drop(guard);
    within("the refusal", denied.wait_hit()).await;
    server.stop_async().await;
    until_state(&client, ConnectionState::Suspended).await;
    let mut flushing = task::spawn(client.flush(LONG));
    assert_pending!(flushing.poll());
    until_state(&client, ConnectionState::Lost).await;
    let refused = restart_refusing(&server, id).await;
    assert_pending!(flushing.poll());
    refused.remove();
    within("the flush", flushing).await.unwrap();
    assert_eq!(server.children(DIRECTORY).len(), 0);
}

/// A flush is under way when the client is closed without a server.
// Shows: flush
#[tokio::test]
async fn flush_reports_unconfirmed_close() {
    let server = server();
    server.freeze_expiry(true);
    let client = brief_client(&server, patient()).await;
    let guard = hold(&client).await;
    server.stop_async().await;
    until_state(&client, ConnectionState::Suspended).await;
    drop(guard);
    let mut flushing = task::spawn(client.flush(LONG));
    assert_pending!(flushing.poll());
    let closed = within("the close", client.close()).await;
    let flushed = within("the flush", flushing).await;
    for result in [closed, flushed] {
        assert!(
            matches!(result, Err(ReleaseError::SessionNotClosed { .. })),
            "{result:?}"
        );
    }
}

/// When a close waits for the end of an earlier session, the servers are asked for it at once, and
/// not at the end of the pause.
// Shows: close-confirmed
#[tokio::test]
async fn close_ends_the_retry_pause() {
    let server = server();
    server.freeze_expiry(true);
    let client = brief_client(&server, patient()).await;
    let (guard, id) = (hold(&client).await, session(&client));
    server.stop_async().await;
    until_state(&client, ConnectionState::Lost).await;
    let refused = restart_refusing(&server, id).await;
    // The tries last for T, and the pause after them for 2T. No event marks the middle of the
    // pause.
    tokio::time::sleep(2 * T).await;
    refused.remove();
    let is_there = || server.sessions().iter().any(|session| session.id == id);
    assert!(is_there(), "the session has ended already");
    let asked = Instant::now();
    within("the close", client.close()).await.unwrap();
    assert!(asked.elapsed() < T / 2, "{:?}", asked.elapsed());
    assert!(!is_there() && !server.exists(&guard.node()));
}

/// The close begins before the client gives the session up, and the server starts after that.
// Shows: close-confirmed
#[tokio::test]
async fn close_continues_when_session_is_abandoned() {
    let server = server();
    server.freeze_expiry(true);
    let client = brief_client(&server, patient()).await;
    let guard = hold(&client).await;
    server.stop_async().await;
    within("the loss", guard.lost()).await;
    // The lease ends after 2/3 of the session timeout. The client gives up after 7/5 of it.
    tokio::time::sleep(T / 2).await;
    let closing = tokio::spawn(async move { client.close().await });
    // After this time, the client has given the session up.
    tokio::time::sleep(T / 2).await;
    server.restart_async().await.unwrap();
    within("the close", closing).await.unwrap().unwrap();
    assert!(!server.exists(&guard.node()));
}

/// A server that was reached again has reported the end of the session, as after most outages that
/// cost a session.
// Shows: close-confirmed
#[tokio::test]
async fn close_confirms_session_reported_expired() {
    let server = server();
    let client = brief_client(&server, patient()).await;
    let (guard, id) = (hold(&client).await, session(&client));
    server.stop_async().await;
    within("the loss", guard.lost()).await;
    let closing = tokio::spawn(async move { client.close().await });
    // By the end of this pause, the connection has been lost for more than a session timeout.
    tokio::time::sleep(T / 2).await;
    assert!(server.expire_session(id));
    server.restart_async().await.unwrap();
    within("the close", closing).await.unwrap().unwrap();
}

/// A server has told the client that its session is gone.
// Shows: close-confirmed
#[tokio::test]
async fn close_confirms_session_found_gone() {
    let server = server();
    let builder = patient().retry_policy(RetryPolicy::n_times(0, Duration::ZERO));
    let client = client_with(&server, builder).await;
    let guard = hold(&client).await;
    let next = server.fail(
        Match::op(Op::Connect).nth(1).always(),
        RUNTIME_INCONSISTENCY,
    );
    server.expire_session(session(&client));
    within("the loss", guard.lost()).await;
    within("the next session", next.wait_hit()).await;
    within("the close", client.close()).await.unwrap();
}

#[tokio::test]
async fn dropped_connect_leaves_no_session() {
    let server = server();
    server.freeze_expiry(true);
    let gate = server.hold_reply(Match::op(Op::Connect));
    let builder = Client::builder().session_timeout(ms(300));
    let mut connecting = task::spawn(builder.connect("127.0.0.1:1"));
    assert_pending!(connecting.poll());
    drop(connecting);
    let builder = Client::builder().session_timeout(ms(300));
    let servers = server.connect_string();
    let connecting = tokio::spawn(async move { builder.connect(&servers).await });
    within("the request", gate.wait_hit()).await;
    assert!(!server.sessions().is_empty());
    connecting.abort();
    assert!(connecting.await.unwrap_err().is_cancelled());
    gate.release();
    server.freeze_expiry(false);
    until(&server, "the end of all sessions", |view| {
        view.sessions().is_empty()
    })
    .await;
}
