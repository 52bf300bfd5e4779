//! Sessions whose timeout is not the requested one, and servers whose writes take long.

use ::simulation::scenario::tokio;

use super::*;

/// Servers before 3.6 answer a request that they do not know by closing the connection.
// Shows: replaced-session
#[tokio::test]
async fn reconnect_works_with_old_servers() {
    let (server, [holder, client]) = with_clients(server(), client).await;
    let guard = hold(&holder).await;
    // The client holds a lock, so it sends heartbeats.
    let other = within("the grant", mutex_at(&client, OTHER).lock())
        .await
        .unwrap();
    let waiting = tokio::spawn(mutex(&client).lock());
    until(&server, "the watch", |view| view.watches() == 1).await;
    let id = session(&client);
    for how in [Cut::Fin, Cut::Reset] {
        let connects = server.counters().requests_of(id, Op::Connect);
        let beats = server.counters().requests_of(id, Op::Multi);
        server.cut(id, how);
        let again = move |view: View<'_>| view.counters().requests_of(id, Op::Connect) > connects;
        until(&server, "the reconnect", again).await;
        // The heartbeat is sent as soon as the client has a connection.
        until(&server, "a beat", move |view| {
            view.counters().requests_of(id, Op::Multi) > beats
        })
        .await;
    }
    guard.release().await.unwrap();
    within("the grant", waiting)
        .await
        .unwrap()
        .unwrap()
        .release()
        .await
        .unwrap();
    other.release().await.unwrap();
    client.close().await.unwrap();
    holder.close().await.unwrap();
    let mut asked: Vec<Op> = server
        .log()
        .iter()
        .filter(|entry| entry.kind == LogKind::Arrived)
        .map(|entry| entry.op)
        .collect();
    asked.sort_unstable();
    asked.dedup();
    let known = [
        Op::Create,
        Op::Delete,
        Op::GetData,
        Op::GetChildren,
        Op::Multi,
        Op::SetWatches,
        Op::Ping,
        Op::CloseSession,
        Op::Connect,
    ];
    assert!(asked.iter().all(|op| known.contains(op)), "{asked:?}");
}

#[tokio::test]
async fn connect_outlasts_session_timeout() {
    let server = server();
    server.stop_async().await;
    let timeout = ms(200);
    let builder = Client::builder()
        .session_timeout(timeout)
        .connect_timeout(LONG);
    let servers = server.connect_string();
    let mut connecting = tokio::spawn(async move { builder.connect(&servers).await });
    // Several session timeouts have to pass.
    assert!(
        tokio::time::timeout(3 * timeout, &mut connecting)
            .await
            .is_err(),
        "the client gave up"
    );
    server.restart_async().await.unwrap();
    let client = within("the session", connecting).await.unwrap().unwrap();
    until_state(&client, ConnectionState::Connected).await;
}

/// A server may be silent for an eighth of the granted session timeout. The library fixes that time
/// when it connects, by the requested session timeout.
// Shows: server-timeout
#[tokio::test]
async fn replaces_session_of_other_timeout() {
    let server = server();
    // The server timeout would be 5 s with the requested 40 s. With the granted 20 s it is 2.5 s.
    let builder = Client::builder()
        .session_timeout(2 * LONG)
        .connect_timeout(3 * LONG);
    let client = builder.connect(&server.connect_string()).await.unwrap();
    assert_eq!(client.session_timeout(), Some(LONG));
    let id = session(&client);
    let established = sessions_established(&server);
    assert_eq!((established.len(), established[1]), (2, id));
    // The other session is closed, not left to expire.
    until(&server, "the session", |view| view.sessions().len() == 1).await;
    assert_eq!(server.counters().requests(Op::CloseSession), 1);
    until_state(&client, ConnectionState::Connected).await;
    let silent = Instant::now();
    server.stall(id, Direction::Both);
    let cut = |view: View<'_>| view.sessions().iter().all(|session| !session.connected);
    until(&server, "the end of the connection", cut).await;
    assert!(silent.elapsed() < ms(4_500), "{:?}", silent.elapsed());
    server.resume(id);
    // The doubled timeout is used for the next session.
    server.expire_session(id);
    hold(&client).await.release().await.unwrap();
    assert_eq!(sessions_established(&server).len(), 3);
}

#[tokio::test]
async fn keeps_session_if_timeout_fits() {
    let server = server();
    // With either session timeout, the server timeout is a third of the connect timeout.
    let builder = Client::builder()
        .session_timeout(2 * LONG)
        .connect_timeout(ms(7_000));
    let client = builder.connect(&server.connect_string()).await.unwrap();
    assert_eq!(client.session_timeout(), Some(LONG));
    assert_eq!(sessions_established(&server).len(), 1);
}

/// The only server gives no second session, so the client keeps the first.
#[tokio::test]
async fn keeps_session_that_cannot_be_replaced() {
    let server = Server::builder()
        .tick(ms(50))
        .max_session_timeout(ms(4_000))
        .start()
        .unwrap();
    let second = server.fail(
        Match::op(Op::Connect).nth(1).always(),
        RUNTIME_INCONSISTENCY,
    );
    // The server timeout would be 1 s with the requested 20 s. With the granted 4 s it is half a
    // second.
    let builder = Client::builder()
        .session_timeout(LONG)
        .connect_timeout(ms(3_000));
    let client = within("the session", builder.connect(&server.connect_string()))
        .await
        .unwrap();
    assert!(!second.hits().is_empty());
    // Without the fault, the connection could come back after a pause.
    second.remove();
    hold(&client).await.release().await.unwrap();
    assert_eq!(sessions_established(&server), [session(&client)]);
}

/// Writes are answered, but later than the half second for which a server may be silent: each
/// connection is cut before the answer.
// Shows: server-timeout
#[tokio::test]
async fn client_recovers_from_slow_writes() {
    let server = server();
    let timeout = ms(3_000);
    let policy = RetryPolicy::forever(ms(50));
    let builder = Client::builder()
        .session_timeout(timeout)
        .retry_policy(policy);
    let client = connect_as(builder, &server).await;
    let guard = hold(&client).await;
    for write in [Op::Create, Op::Delete, Op::Multi] {
        server.delay_reply(Match::op(write).always(), ms(800));
    }
    assert_eq!(
        within("the loss", guard.lost()).await.reason(),
        LostReason::LeaseExpired
    );
    drop(guard);
    hold(&client).await.release().await.unwrap();
    // With twice the server timeout, a second, the write is answered.
    assert_eq!(sessions_established(&server).len(), 2);
}

/// A client without a lock sends no heartbeats, but it still writes.
// Shows: server-timeout
#[tokio::test]
async fn persistent_node_recovers_from_slow_writes() {
    let server = server();
    let builder = Client::builder()
        .session_timeout(ms(3_000))
        .retry_policy(RetryPolicy::forever(ms(50)));
    let client = connect_as(builder, &server).await;
    server.create("/services", "").unwrap();
    for write in [Op::Create, Op::Delete, Op::Multi, Op::SetData] {
        server.delay_reply(Match::op(write).always(), ms(800));
    }
    let node = PersistentNode::new(&client, "/services/web", "").unwrap();
    within("the creation", node.wait_for_initial_create(SOON))
        .await
        .unwrap();
    within("the end", node.close()).await.unwrap();
    assert!(!server.exists("/services/web"));
}

/// The start of a session is a write too. Each failed try doubles the server timeout of the next. A
/// session that could not start with the usual timeout must not be given up for that reason.
#[tokio::test]
async fn session_starts_despite_slow_writes() {
    let server = server();
    let builder = Client::builder()
        .session_timeout(ms(3_000))
        .connect_timeout(ms(1_600))
        .retry_policy(RetryPolicy::forever(ms(50)));
    let client = connect_as(builder, &server).await;
    hold(&client).await.release().await.unwrap();
    let first = session(&client);
    for write in [Op::Connect, Op::Create, Op::Delete, Op::Multi] {
        server.delay_reply(Match::op(write).always(), ms(800));
    }
    server.expire_session(first);
    hold(&client).await.release().await.unwrap();
    assert_ne!(session(&client), first);
}

/// Each connection is cut at its second write, and lasts longer than a server may be silent. The
/// first write is the heartbeat that is sent as soon as there is a connection.
// Shows: server-timeout
#[tokio::test]
async fn answered_writes_keep_the_session() {
    let timeout = ms(6_000);
    let server = Server::builder()
        .tick(ms(100))
        .max_session_timeout(timeout)
        .start()
        .unwrap();
    let client = connect_as(Client::builder().session_timeout(timeout), &server).await;
    let guard = hold(&client).await;
    let id = session(&client);
    let began = Instant::now();
    while began.elapsed() < timeout * 3 / 2 {
        // The heartbeat after the answered one.
        let cut = server.drop_reply(Match::op(Op::Multi).session(id).nth(1), Loss::Stall);
        tokio::select! {
            () = within("the request", cut.wait_hit()) => {}
            lost = guard.lost() => panic!("{lost} after {:?}", began.elapsed()),
        }
        assert_eq!(client.session_id(), Some(id));
        assert!(server.exists(&guard.node()));
    }
}
