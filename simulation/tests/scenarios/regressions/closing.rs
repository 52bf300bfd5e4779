//! The end of a client: what `close` waits for and confirms, and what it ends.

use ::simulation::scenario::tokio;

use super::*;

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

/// The waiters end without a server.
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

/// A look and a request to release. The policy's pause is longer than anything a caller of `close`
/// would wait for, and than the session lives.
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
        // Answered behind the refusal, so that has arrived.
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

/// The transaction was sent, and nothing polls it any more, as beside a `select!` that had another
/// branch. It keeps no session, and its outcome is unknown.
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
            // Whichever came first, the answer or the end.
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

/// The process ends after that, and no task would close the session.
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

/// The client gives its session up when no server has answered for 7/5 of its timeout; the servers,
/// which have been stopped for as long, keep it until then after they are started.
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
        assert!(server.exists(&guard.node()), "it keeps others out");
    }
}

/// The node of a guard that was dropped in the meantime still exists.
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

/// The servers come back: they would keep its nodes for a session timeout more.
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

/// Servers that let a client end its earlier session again are asked at once when a close waits for
/// the answer, and not at the end of the pause.
// Shows: close-confirmed
#[tokio::test]
async fn close_ends_the_retry_pause() {
    let server = server();
    server.freeze_expiry(true);
    let client = brief_client(&server, patient()).await;
    let (guard, id) = (hold(&client).await, session(&client));
    server.stop_async().await;
    until_state(&client, ConnectionState::Lost).await;
    let refused = server.fail(
        Match::op(Op::Connect).session(id).always(),
        RUNTIME_INCONSISTENCY,
    );
    server.restart_async().await.unwrap();
    within("the first try", refused.wait_hit()).await;
    // The tries last for T, and the pause for 2T after them: its middle, where no event is.
    tokio::time::sleep(2 * T).await;
    refused.remove();
    let is_there = || server.sessions().iter().any(|session| session.id == id);
    assert!(is_there(), "it has been ended already");
    let asked = Instant::now();
    within("the close", client.close()).await.unwrap();
    assert!(asked.elapsed() < T / 2, "{:?}", asked.elapsed());
    assert!(!is_there() && !server.exists(&guard.node()));
}

/// The close begins before the client gives the session up, and there is a server after that.
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
    // The client has given up then.
    tokio::time::sleep(T / 2).await;
    server.restart_async().await.unwrap();
    within("the close", closing).await.unwrap().unwrap();
    assert!(!server.exists(&guard.node()));
}

/// A server that was reached again has said so, as one does after most outages that cost a session.
// Shows: close-confirmed
#[tokio::test]
async fn close_confirms_session_reported_expired() {
    let server = server();
    let client = brief_client(&server, patient()).await;
    let (guard, id) = (hold(&client).await, session(&client));
    server.stop_async().await;
    within("the loss", guard.lost()).await;
    let closing = tokio::spawn(async move { client.close().await });
    // More than a session timeout passes since the loss of the connection.
    tokio::time::sleep(T / 2).await;
    assert!(server.expire_session(id));
    server.restart_async().await.unwrap();
    within("the close", closing).await.unwrap().unwrap();
}

/// A server that was asked has said that it is gone.
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
