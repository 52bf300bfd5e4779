//! Holders and waiters of a lock, and breaking a lock, when replies are lost, nodes come and go and
//! permissions are missing. The suite covers the normal behaviour.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use test_support::prelude::*;

/// A client with a heartbeat every 0.75 s, and locks that outlast the pauses of a busy machine.
async fn beating(server: &Server) -> Client {
    let builder = Client::builder()
        .retry_policy(eager())
        .session_timeout(Duration::from_millis(4_500));
    connect_as(builder, server).await
}

async fn first(lock: &InterProcessMutex) -> Contender {
    lock.holders().await.unwrap().into_iter().next().unwrap()
}

#[tokio::test]
async fn rejects_undisplayable_name() {
    let server = start();
    for name in ["", "two\nlines", &"x".repeat(101)] {
        let error = Client::builder()
            .name(name)
            .connect(&server.connect_string())
            .await
            .unwrap_err();
        assert!(
            matches!(&error, ConnectError::InvalidName { name: named, .. } if named == name),
            "{error}"
        );
    }
    assert_eq!(server.sessions().len(), 0, "no server was asked");
}

#[tokio::test]
async fn look_costs_list_and_reads() {
    let (server, [client, other]) = with_clients(start(), connect).await;
    let guard = hold(&client).await;
    let waiter = enqueue(&server, &other).await;
    let lock = mutex(&client);
    for (what, lists, reads) in [
        ("participants", 1, 0),
        ("locked", 1, 0),
        ("len", 1, 0),
        ("holders", 1, 1),
        ("queue", 1, 2),
    ] {
        server.reset_counters();
        let count = match what {
            "participants" => lock.participants().await.unwrap().len(),
            "locked" => usize::from(lock.is_locked().await.unwrap()) + 1,
            "len" => lock.queue_len().await.unwrap(),
            "holders" => lock.holders().await.unwrap().len() + 1,
            _ => lock.queue().await.unwrap().len(),
        };
        assert_eq!(count, 2, "{what}");
        let counted = |op| server.counters().requests_of(session(&client), op);
        assert_eq!(
            (counted(Op::GetChildren), counted(Op::GetData)),
            (lists, reads),
            "{what}"
        );
        assert_eq!(server.counters().total_requests(), lists + reads, "{what}");
    }
    let second = lock.queue().await.unwrap().pop().unwrap();
    server.reset_counters();
    assert!(lock.break_lock(&second).await.unwrap());
    let counted = |op| server.counters().requests_of(session(&client), op);
    assert_eq!((counted(Op::Exists), counted(Op::Delete)), (1, 1));
    guard.release().await.unwrap();
    granted(waiter.attempt).await.release().await.unwrap();
    assert_clean(&server, "looks").await;
}

/// The reads are sent in parts, which limits the unanswered ones.
// Shows: identity
#[tokio::test]
async fn long_queue_is_read_in_parts() {
    const NODES: usize = 100;
    let (server, [client]) = with_clients(start(), connect).await;
    for _ in 0..NODES {
        server
            .create_as(
                &format!("{DIRECTORY}/lock-"),
                "10.0.0.7",
                CreateMode::PersistentSequential,
                0,
            )
            .unwrap();
    }
    let lock = mutex(&client);
    let gate = server.hold_reply(Match::op(Op::GetData));
    let look = pending(lock.queue());
    within("the first read", gate.wait_hit()).await;
    let id = session(&client);
    until(&server, "the first part", move |view| {
        view.counters().requests_of(id, Op::GetData) == 32
    })
    .await;
    gate.release();
    let contenders = within("the queue", look).await.unwrap();
    assert_eq!(contenders.len(), NODES);
    assert!(
        contenders
            .iter()
            .map(|contender| contender.node().to_string())
            .eq(queue(&server))
    );
    assert!(
        contenders
            .iter()
            .all(|contender| contender.session_id() == 0 && !contender.is_mine())
    );
    assert_eq!(server.counters().requests_of(id, Op::GetData), NODES as u64);
}

// Shows: identity
#[tokio::test]
async fn departing_contender_is_left_out() {
    let (server, [client, other]) = with_clients(start(), connect).await;
    let guard = hold(&other).await;
    let stays = server
        .create_as(
            &format!("{DIRECTORY}/lock-"),
            "",
            CreateMode::PersistentSequential,
            0,
        )
        .unwrap();
    let lock = mutex(&client);
    let gate = server.hold_request(Match::op(Op::GetData).session(session(&client)));
    let look = pending(lock.queue());
    within("the read", gate.wait_hit()).await;
    guard.release().await.unwrap();
    gate.release();
    let contenders = within("the queue", look).await.unwrap();
    assert_eq!(
        contenders
            .iter()
            .map(|contender| contender.node().to_string())
            .collect::<Vec<_>>(),
        [stays]
    );
}

/// Lists and reads without an answer are repeated, even in the next session.
#[tokio::test]
async fn look_outlasts_lost_replies_and_session() {
    let (server, [client, other]) = with_clients(start(), connect).await;
    let guard = hold(&other).await;
    let lock = mutex(&client);
    for op in [Op::GetChildren, Op::GetData] {
        let lost = server.drop_reply(Match::op(op).session(session(&client)), Loss::Close);
        assert_eq!(first(&lock).await.node(), &guard.node());
        assert_eq!(lost.hits().len(), 1);
        let gate = server.hold_request(Match::op(op).session(session(&client)));
        let look = pending(lock.holders());
        within("the request", gate.wait_hit()).await;
        assert!(server.expire_session(session(&client)));
        gate.release();
        assert_eq!(
            within("the answer", look).await.unwrap()[0].node(),
            &guard.node()
        );
    }
    client.close().await.unwrap();
    let error = lock.queue().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
}

// Shows: identity
#[tokio::test]
async fn unreadable_node_has_no_identity() {
    let (server, [client, other]) = with_clients(start(), connect).await;
    let guard = hold(&other).await;
    let lock = mutex(&client);
    server.fail(Match::op(Op::GetData), ServerError::NoAuth.code());
    let holder = first(&lock).await;
    assert_eq!(
        (holder.node(), holder.session_id()),
        (&guard.node(), session(&other))
    );
    assert_eq!(
        (holder.identity().text(), holder.identity().host()),
        ("", None)
    );
    assert!(
        holder
            .to_string()
            .contains(&format!("session {:#x}", session(&other))),
        "{holder}"
    );
    assert!(lock.break_lock(&holder).await.unwrap());
}

/// ZooKeeper from 3.9.3 refuses even the Stat of an unreadable node.
// Shows: identity
#[tokio::test]
async fn node_without_readable_stat_is_named() {
    let (server, [client, other]) = with_clients(start(), connect).await;
    let guard = hold(&other).await;
    server.fail(Match::op(Op::GetData), ServerError::NoAuth.code());
    server.fail(Match::op(Op::Exists), ServerError::NoAuth.code());
    let error = mutex(&client).holders().await.unwrap_err();
    assert_eq!(
        (error.kind(), error.node()),
        (ErrorKind::NoAuth, Some(&*guard.node())),
        "{error}"
    );
}

// Shows: break-lock
#[tokio::test]
async fn unanswered_deletion_is_repeated() {
    for applied in [true, false] {
        let (server, [client, other]) = with_clients(start(), connect).await;
        let guard = hold(&other).await;
        let lock = mutex(&client);
        let holder = first(&lock).await;
        let deletion = Match::op(Op::Delete).session(session(&client));
        let fault = lose(&server, deletion, applied, Loss::Close);
        assert!(
            within("the answer", lock.break_lock(&holder))
                .await
                .unwrap(),
            "the node existed"
        );
        assert_eq!(fault.hits().len(), 1);
        assert_eq!(queue(&server), [""; 0]);
        assert!(!lock.break_lock(&holder).await.unwrap());
        drop(guard);
    }
}

/// Names without an id recur in a directory that is made anew.
// Shows: break-lock
#[tokio::test]
async fn repeated_deletion_spares_recreated_node() {
    const NODE: &str = "/locks/sku-42/lock-0000000000";
    let (server, [client, other]) = with_clients(start(), connect).await;
    let make = || {
        server
            .create_as(NODE, "", CreateMode::Ephemeral, session(&other))
            .unwrap()
    };
    make();
    let lock = mutex(&client);
    let holder = first(&lock).await;
    let fault = server.drop_reply(Match::op(Op::Delete).session(session(&client)), Loss::Close);
    server.refuse_connections(true);
    let breaks = pending(lock.break_lock(&holder));
    within("the deletion", fault.wait_hit()).await;
    make();
    server.refuse_connections(false);
    assert!(
        within("the answer", breaks).await.unwrap(),
        "the node existed"
    );
    assert_eq!(queue(&server), [NODE], "expected the new node to be spared");
}

// Shows: break-lock
#[tokio::test]
async fn break_succeeds_despite_a_write() {
    let (server, [client, other]) = with_clients(start(), connect).await;
    let guard = hold(&other).await;
    let (lock, node) = (mutex(&client), guard.node().to_string());
    let holder = first(&lock).await;
    let gate = server.hold_request(Match::op(Op::Delete).session(session(&client)));
    let breaks = pending(lock.break_lock(&holder));
    within("the deletion", gate.wait_hit()).await;
    server.set_data(&node, "__REVOKE__").unwrap();
    gate.release();
    assert!(within("the answer", breaks).await.unwrap());
    assert_eq!(queue(&server), [""; 0]);
    // A node that is written to again and again is left in place.
    let guard = (hold(&other).await, guard).0;
    let (node, holder) = (guard.node().to_string(), first(&lock).await);
    let always = server.fail(
        Match::op(Op::Delete).session(session(&client)).always(),
        ServerError::BadVersion.code(),
    );
    let error = within("the answer", lock.break_lock(&holder))
        .await
        .unwrap_err();
    assert!(
        error.kind() == ErrorKind::Connection && error.is_retryable(),
        "{error}"
    );
    assert_eq!((always.hits().len(), queue(&server)), (5, vec![node]));
}

// Shows: break-lock
#[tokio::test]
async fn forbidden_break_is_reported() {
    let server = start();
    let client = calm_with(&server, RetryPolicy::n_times(0, SOON)).await;
    let other = connect(&server).await;
    let guard = hold(&other).await;
    let lock = mutex(&client);
    let holder = first(&lock).await;
    for (code, retryable) in [
        (ServerError::NoAuth.code(), false),
        (-999, true),
        (-111, false),
    ] {
        server.fail(Match::op(Op::Delete).session(session(&client)), code);
        let error = within("the answer", lock.break_lock(&holder))
            .await
            .unwrap_err();
        assert_eq!(
            (error.path(), error.node(), error.is_retryable()),
            (DIRECTORY, Some(&*guard.node()), retryable)
        );
        match error.kind() {
            ErrorKind::NoAuth => assert_eq!(code, ServerError::NoAuth.code()),
            ErrorKind::Connection => assert_eq!(code, -999, "an unknown code"),
            ErrorKind::Rejected => assert_eq!(code, -111, "not empty"),
            other => panic!("{other}"),
        }
    }
    assert!(guard.is_held());
    client.close().await.unwrap();
    let error = lock.break_lock(&holder).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
}

// Shows: break-lock
#[tokio::test]
async fn break_hits_the_current_holder() {
    let server = start();
    let (client, operator) = (beating(&server).await, connect(&server).await);
    let lock = InterProcessMutex::builder(&client, DIRECTORY)
        .hand_off(100, Duration::from_secs(3600))
        .build()
        .unwrap();
    let guard = within("the grant", lock.lock()).await.unwrap();
    let (mut second, mut third) = (task::spawn(lock.lock()), task::spawn(lock.lock()));
    assert_pending!(second.poll());
    assert_pending!(third.poll());
    let holder = first(&mutex(&operator)).await;
    guard.release().await.unwrap();
    let second = assert_ready!(second.poll()).unwrap();
    assert_eq!(&second.node(), holder.node());
    // The token that is read from the node lacks the counter of hand-overs.
    assert!(second.fencing_token() > holder.token().unwrap());
    assert!(mutex(&operator).break_lock(&holder).await.unwrap());
    assert_eq!(
        within("the loss", second.lost()).await.reason(),
        LostReason::NodeDeleted
    );
    let third = within("the grant", third).await.unwrap();
    assert!(third.is_held() && &third.node() != holder.node());
    drop(second);
    third.release().await.unwrap();
    clean(&server, &[&client]).await;
}
