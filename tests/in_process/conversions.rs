//! Conversions of a held read-write lock, and their effect on other contenders.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use test_support::in_process::read_write::{downgrade, lock, write};
use test_support::prelude::*;

const NO_AUTH: i32 = -102;

type Converted = Result<ReadGuard, ConversionError<WriteGuard>>;

/// `flush` waits for everything that was dropped before it, including a conversion whose answer is
/// still missing.
// Shows: flush
#[tokio::test]
async fn flush_waits_for_dropped_conversion() {
    let (server, [client]) = with_clients(start(), calm).await;
    let barrier = Barrier::new(&client).await;
    let (gate, task) = downgrade(&server, &client, true).await;
    task.abort();
    assert!(within("its end", task).await.unwrap_err().is_cancelled());
    let mut flush = pending(client.flush(SOON));
    barrier.pass().await;
    assert_pending!(
        flush.poll(),
        "flushed, but {:?} is there",
        server.children(DIRECTORY)
    );
    gate.release();
    within("the flush", flush).await.unwrap();
    assert_eq!(server.children(DIRECTORY), [""; 0]);
}

/// If the lock is converted after a revocation was requested, the request remains.
#[tokio::test]
async fn request_before_conversion_is_kept() {
    let (_server, [client, other]) = with_clients(start(), calm).await;
    let writer = write(&client).await;
    other.attempt_revoke(&writer.node()).await.unwrap();
    within("the request, on the writer", writer.revoked()).await;
    let reader = within("the downgrade", writer.downgrade()).await.unwrap();
    within("the request, on the reader", reader.revoked()).await;
}

/// A request that the writer has not polled for survives a conversion as well.
#[tokio::test]
async fn unpolled_request_survives_a_conversion() {
    let (server, [client, other]) = with_clients(start(), calm).await;
    let writer = write(&client).await;
    other.attempt_revoke(&writer.node()).await.unwrap();
    let reader = within("the downgrade", writer.downgrade()).await.unwrap();
    within("the request, on the reader", reader.revoked()).await;
    reader.release().await.unwrap();
    // Other data does not become a request.
    let writer = write(&client).await;
    server.set_data(&writer.node(), "hello").unwrap();
    let reader = within("the downgrade", writer.downgrade()).await.unwrap();
    assert_pending!(task::spawn(reader.revoked()).poll());
    reader.release().await.unwrap();
}

/// A guard is released with the client, even during its conversion.
#[tokio::test]
async fn close_during_conversions_leaves_nothing() {
    let server = start();
    for applied in [true, false] {
        let client = calm(&server).await;
        let (gate, task) = downgrade(&server, &client, applied).await;
        let closing = client.clone();
        let close = tokio::spawn(async move { closing.close().await });
        tokio::task::yield_now().await;
        gate.release();
        within("the end", close).await.unwrap().unwrap();
        assert_eq!(server.children(DIRECTORY), [""; 0], "applied {applied}");
        // The hold may have been converted just before the close, and lost.
        let is_held = match within("an answer", task).await.unwrap() {
            Ok(reader) => reader.is_held(),
            Err(error) => error.into_guard().is_held(),
        };
        assert!(!is_held, "applied {applied}");
    }
}

/// Returns a completed downgrade of the client's own lock whose result its caller has not taken.
async fn done_and_not_taken(
    server: &Server,
    client: &Client,
) -> ByHand<impl Future<Output = Converted>> {
    let writer = write(client).await;
    let gate = server.hold_reply(
        Match::op(Op::Multi)
            .session(session(client))
            .path_contains("__READ__"),
    );
    let downgrade = ByHand::new(writer.downgrade()).start();
    within("the conversion", gate.wait_hit()).await;
    gate.release();
    downgrade.woken().await;
    downgrade
}

/// A result that the caller may still take does not count as abandoned.
// Shows: flush
#[tokio::test]
async fn flush_ignores_completed_conversion() {
    let (server, [client]) = with_clients(start(), calm).await;
    let mut downgrade = done_and_not_taken(&server, &client).await;
    within("the flush", client.flush(SOON)).await.unwrap();
    let Poll::Ready(reader) = downgrade.poll() else {
        panic!("expected the downgrade to be done")
    };
    assert!(reader.unwrap().is_held());
}

/// The conversion counts as abandoned from the moment the caller drops it.
#[tokio::test]
async fn flush_waits_for_completed_dropped_conversion() {
    let (server, [client]) = with_clients(start(), calm).await;
    let downgrade = done_and_not_taken(&server, &client).await;
    let gate = server.hold_reply(Match::op(Op::Delete).session(session(&client)));
    drop(downgrade);
    let flushed = client.flush(Duration::from_millis(300)).await;
    assert!(
        matches!(flushed, Err(ReleaseError::TimedOut { nodes: 1, .. })),
        "{flushed:?}"
    );
    gate.release();
    within("the flush", client.flush(SOON)).await.unwrap();
    assert_eq!(server.children(DIRECTORY), [""; 0]);
}

/// The ACL refuses the request, so nothing is created and nothing deleted.
// Shows: downgrade, conversion-ends
#[tokio::test]
async fn refused_downgrade_returns_the_writer() {
    let (server, [client]) = with_clients(start(), calm).await;
    let writer = write(&client).await;
    server.fail(
        Match::op(Op::Multi)
            .session(session(&client))
            .path_contains("__READ__"),
        NO_AUTH,
    );
    let failed = within("an answer", writer.downgrade()).await.unwrap_err();
    assert!(
        matches!(&failed, ConversionError::Request { source, .. } if source.kind() == ErrorKind::NoAuth)
    );
    let writer = failed.into_guard();
    assert_eq!(server.children(DIRECTORY), [writer.node().name()]);
    let busy = lock(&client).read_lock().try_lock().await.unwrap_err();
    let TryLockError::WouldBlock { contention, .. } = busy else {
        panic!("{busy}")
    };
    assert!(contention.holder.is_some(), "expected a writer");
    within("the downgrade", writer.downgrade())
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    assert_eq!(server.children(DIRECTORY), [""; 0]);
}

/// The lock may be held by either node, and so as a reader or as the writer.
// Shows: conversion-ends
#[tokio::test]
async fn refusal_after_unknown_outcome_loses_lock() {
    for applied in [true, false] {
        let (server, [client, other]) = with_clients(start(), calm).await;
        let writer = write(&client).await;
        let exchange = Match::op(Op::Multi)
            .session(session(&client))
            .path_contains("__READ__");
        // This matches the second transaction, because a fault does not count a dropped request.
        let second = exchange.clone().nth(usize::from(applied));
        let refused = server.fail(second, NO_AUTH);
        let unknown = lose(&server, exchange, applied, Loss::Close);
        let failed = within("an answer", writer.downgrade()).await.unwrap_err();
        let ConversionError::Lost { source: lost, .. } = &failed else {
            panic!("{failed}")
        };
        assert_eq!(lost.reason(), LostReason::NotConverted);
        assert_eq!((unknown.hits().len(), refused.hits().len()), (1, 1));
        // The answer comes when both nodes are gone.
        assert_eq!(server.children(DIRECTORY), [""; 0], "applied {applied}");
        let writer = failed.into_guard();
        assert_eq!(writer.state(), LockState::Lost(LostReason::NotConverted));
        drop(writer);
        client.flush(SOON).await.unwrap();
        write(&other).await.release().await.unwrap();
    }
}

/// The lookup finds that the transaction was carried out, but another process deletes the read node
/// first. The session has room for two nodes.
// Shows: conversion-ends, session-nodes
#[tokio::test]
async fn deleted_read_node_takes_no_room() {
    let server = start();
    let node = DIRECTORY.len() + "/_c_".len() + 36 + "-__WRIT__".len() + 10 + 4;
    let builder = Client::builder()
        .session_timeout(HOUR)
        .retry_policy(eager())
        .max_ephemeral_bytes(2 * node);
    let client = connect_as(builder, &server).await;
    for _ in 0..3 {
        let writer = write(&client).await;
        let of = |op| {
            Match::op(op)
                .session(session(&client))
                .path_contains("__READ__")
        };
        let unknown = server.drop_reply(of(Op::Multi), Loss::Close);
        let look = server.hold_request(of(Op::Exists));
        let mut conversion = task::spawn(writer.downgrade());
        assert_pending!(conversion.poll());
        within("the look", look.wait_hit()).await;
        let [reader] = &server.children(DIRECTORY)[..] else {
            panic!("expected the read node alone")
        };
        server.delete(&format!("{DIRECTORY}/{reader}")).unwrap();
        look.release();
        let failed = within("an answer", conversion).await.unwrap_err();
        assert!(matches!(failed, ConversionError::Lost { .. }), "{failed}");
        assert_eq!(unknown.hits().len(), 1);
    }
}

/// Converts while another client writes to the node that has to be deleted, between every two of
/// the conversion's requests.
async fn disturbed(
    server: &Server,
    node: NodePath,
    data: &str,
    id: i64,
    conversion: impl Future<Output = ()>,
) -> u32 {
    let gate = || {
        // A multi matches any of its paths.
        let matcher = Match::any().session(id).path(node.as_str());
        server.hold_request(matcher)
    };
    let mut held = gate();
    let mut conversion = std::pin::pin!(conversion);
    let mut writes = 0;
    loop {
        tokio::select! {
            () = &mut conversion => return writes,
            () = held.wait_hit() => {
                let next = gate();
                server.set_data(&node, data).unwrap();
                writes += 1;
                assert!(writes < 50, "the conversion does not end");
                held = next;
            }
        }
    }
}

/// Each write changes the version that the deletion expects.
// Shows: revocation
#[tokio::test]
async fn conversion_ends_despite_repeated_writes() {
    let (server, [client]) = with_clients(start(), calm).await;
    let id = session(&client);
    for data in ["hello", "__REVOKE__"] {
        let writer = write(&client).await;
        let node = writer.node();
        let mut reader = None;
        let downgrade = async { reader = Some(writer.downgrade().await.unwrap()) };
        let writes = within(
            "the downgrade",
            disturbed(&server, node, data, id, downgrade),
        )
        .await;
        let reader = reader.unwrap();
        // The writes come before each deletion and each read. A request is read once, other data
        // three times.
        assert_eq!(writes, if data == "__REVOKE__" { 3 } else { 7 }, "{data}");
        if data == "__REVOKE__" {
            within("the request, on the reader", reader.revoked()).await;
        }
        reader.release().await.unwrap();
    }
}
