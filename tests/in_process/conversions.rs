//! What conversions of a held read-write lock owe to the other contenders.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use test_support::in_process::read_write::{conversion, lock, read, write};
use test_support::prelude::*;

const THROTTLED: i32 = -127;
const NO_AUTH: i32 = -102;

type Converted = Result<ReadGuard, ConversionError<WriteGuard>>;

/// `flush` waits for what was dropped before it: a conversion too, whose answer is still out.
// Shows: flush
#[tokio::test]
async fn a_flush_waits_for_a_dropped_conversion() {
    for upgrade in [false, true] {
        let (server, [client]) = with_clients(start(), calm).await;
        let barrier = Barrier::new(&client).await;
        let (gate, conversion) = conversion(&server, &client, upgrade, true).await;
        conversion.abort();
        assert!(
            within("its end", conversion)
                .await
                .unwrap_err()
                .is_cancelled()
        );
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
}

/// The revocation is requested, and the lock converted: the request stands.
#[tokio::test]
async fn a_request_that_came_before_a_conversion_is_not_missed() {
    let (_server, [client, other]) = with_clients(start(), calm).await;
    let writer = write(&client).await;
    other.attempt_revoke(&writer.node()).await.unwrap();
    within("the request, on the writer", writer.revoked()).await;
    let reader = within("the downgrade", writer.downgrade()).await.unwrap();
    within("the request, on the reader", reader.revoked()).await;
}

/// The same for a request that was not looked for, of a writer and of a reader.
#[tokio::test]
async fn a_request_that_was_not_seen_survives_a_conversion() {
    let (server, [client, other]) = with_clients(start(), calm).await;
    let writer = write(&client).await;
    other.attempt_revoke(&writer.node()).await.unwrap();
    let reader = within("the downgrade", writer.downgrade()).await.unwrap();
    within("the request, on the reader", reader.revoked()).await;
    reader.release().await.unwrap();
    let reader = read(&client).await;
    other.attempt_revoke(&reader.node()).await.unwrap();
    let writer = within("the upgrade", reader.try_upgrade()).await.unwrap();
    within("the request, on the writer", writer.revoked()).await;
    writer.release().await.unwrap();
    // Data that is no request is not one afterwards.
    let writer = write(&client).await;
    server.set_data(&writer.node(), "hello").unwrap();
    let reader = within("the downgrade", writer.downgrade()).await.unwrap();
    assert_pending!(task::spawn(reader.revoked()).poll());
    reader.release().await.unwrap();
}

/// After a loss everything but `release` answers `Lost`.
#[tokio::test]
async fn the_last_share_of_a_lost_write_lock_does_not_become_the_writer() {
    let (server, [client]) = with_clients(start(), calm).await;
    let writer = write(&client).await;
    let reader = writer.reenter_as_reader().unwrap();
    drop(writer);
    server.expire_session(session(&client));
    within("the loss", reader.lost()).await;
    let upgraded = within("an answer", reader.try_upgrade()).await;
    assert!(
        upgraded.is_err(),
        "a lost lock was upgraded: {:?}",
        upgraded.unwrap().state()
    );
}

/// What an upgrade has left to be deleted is not another reader.
#[tokio::test]
async fn what_an_earlier_upgrade_left_does_not_hinder_a_later_one() {
    let (server, [client]) = with_clients(start(), calm).await;
    let reader = read(&client).await;
    let busy = server.fail(
        Match::op(Op::Delete).path_contains("__READ__").always(),
        THROTTLED,
    );
    let upgrade = tokio::spawn(reader.try_upgrade());
    within("the deletion", busy.wait_hit()).await;
    assert!(!upgrade.is_finished(), "its read node is still there");
    busy.remove();
    let writer = within("the upgrade", upgrade).await.unwrap().unwrap();
    assert_eq!(server.children(DIRECTORY).len(), 1);
    let reader = within("the downgrade", writer.downgrade()).await.unwrap();
    let again = within("the second upgrade", reader.try_upgrade()).await;
    assert!(
        again.is_ok(),
        "alone in the directory: {}",
        again.unwrap_err()
    );
}

/// A guard is released with the client, whatever it is turning into.
#[tokio::test]
async fn closing_a_client_during_conversions_leaves_nothing() {
    let server = start();
    for upgrade in [true, false] {
        for applied in [true, false] {
            let client = calm(&server).await;
            let (gate, task) = conversion(&server, &client, upgrade, applied).await;
            let closing = client.clone();
            let close = tokio::spawn(async move { closing.close().await });
            tokio::task::yield_now().await;
            gate.release();
            within("the end", close).await.unwrap().unwrap();
            assert_eq!(
                server.children(DIRECTORY),
                [""; 0],
                "upgrade {upgrade}, applied {applied}"
            );
            // It may have been converted in the last moment, and is lost.
            let (Ok(guard) | Err(guard)) = within("an answer", task).await.unwrap();
            assert!(!guard.is_held(), "upgrade {upgrade}, applied {applied}");
        }
    }
}

/// A downgrade of a client's own lock that is done, and whose caller has not looked at that.
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

/// What a caller may take at any time is not left behind.
// Shows: flush
#[tokio::test]
async fn a_flush_does_not_wait_for_a_conversion_that_is_done() {
    let (server, [client]) = with_clients(start(), calm).await;
    let mut downgrade = done_and_not_taken(&server, &client).await;
    within("the flush", client.flush(SOON)).await.unwrap();
    let Poll::Ready(reader) = downgrade.poll() else {
        panic!("it was done")
    };
    assert!(reader.unwrap().is_held());
}

/// It is from the moment that the caller goes away.
#[tokio::test]
async fn a_flush_waits_for_a_conversion_that_is_done_and_was_dropped_then() {
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

/// A request that comes when a reader becomes the writer, in the moment before its node goes.
#[tokio::test]
async fn a_request_that_comes_late_in_an_upgrade_is_not_missed() {
    let (server, [client]) = with_clients(start(), calm).await;
    let reader = read(&client).await;
    let node = reader.node();
    let gate = server.hold_request(
        Match::op(Op::Delete)
            .session(session(&client))
            .path(node.as_str()),
    );
    let upgrade = tokio::spawn(reader.try_upgrade());
    within("the deletion", gate.wait_hit()).await;
    server.set_data(&node, "__REVOKE__").unwrap();
    gate.release();
    let writer = within("the upgrade", upgrade).await.unwrap().unwrap();
    within("the request, on the writer", writer.revoked()).await;
}

/// The revocation of an upgrade is requested, which then stays a reader.
#[tokio::test]
async fn a_request_to_an_upgrade_that_fails_is_not_missed() {
    let (server, [client, other]) = with_clients(start(), calm).await;
    let reader = within("a read lock", lock(&client).read_lock().lock())
        .await
        .unwrap();
    let beside = within("a read lock", lock(&other).read_lock().lock())
        .await
        .unwrap();
    let gate = server.hold_request(
        Match::op(Op::Delete)
            .session(session(&client))
            .path_contains("__WRIT__"),
    );
    let upgrade = tokio::spawn(reader.try_upgrade());
    within("the deletion", gate.wait_hit()).await;
    let writers = within("the list", lock(&other).write_lock().participants())
        .await
        .unwrap();
    within("the request", other.attempt_revoke(&writers[0]))
        .await
        .unwrap();
    gate.release();
    let reader = within("an answer", upgrade)
        .await
        .unwrap()
        .unwrap_err()
        .into_guard();
    within("the request", reader.revoked()).await;
    drop(beside);
}

fn is_not_converted<G>(error: &ConversionError<G>) -> bool {
    matches!(error, ConversionError::Lost { source: lost, .. } if lost.reason() == LostReason::NotConverted)
}

/// A reader whose upgrade is in vain, and which may not take its write node back.
async fn refused_retreat(server: &Server, client: &Client, refusals: usize) -> ReadGuard {
    let reader = read(client).await;
    let deletions = Match::op(Op::Delete)
        .session(session(client))
        .path_contains("__WRIT__")
        .times(refusals);
    server.fail(deletions, NO_AUTH);
    let failed = within("an answer", reader.try_upgrade()).await.unwrap_err();
    assert!(is_not_converted(&failed), "{failed}");
    failed.into_guard()
}

/// By an ACL: nothing is created then, and nothing deleted.
// Shows: downgrade, conversion-ends
#[tokio::test]
async fn a_downgrade_that_is_refused_gives_the_writer_back() {
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
    assert!(contention.holder.is_some(), "it is a writer");
    within("the downgrade", writer.downgrade())
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    assert_eq!(server.children(DIRECTORY), [""; 0]);
}

/// With two nodes it would be neither a reader nor the writer.
// Shows: conversion-ends
#[tokio::test]
async fn an_upgrade_that_may_not_be_taken_back_is_a_lost_lock_and_leaves_nothing() {
    let (server, [a, b]) = with_clients(start(), calm).await;
    let beside = read(&b).await;
    let reader = refused_retreat(&server, &a, 1).await;
    assert_eq!(reader.state(), LockState::Lost(LostReason::NotConverted));
    // The answer came when both nodes were gone.
    assert_eq!(server.children(DIRECTORY).len(), 1);
    let failed = within("an answer", reader.try_upgrade()).await.unwrap_err();
    assert!(is_not_converted(&failed), "{failed}");
    assert!(beside.is_held());
    a.flush(SOON).await.unwrap();
    beside.release().await.unwrap();
    write(&a).await.release().await.unwrap();
}

/// One that is left behind for good says nothing about who has been waiting for it.
// Shows: conversion-ends
#[tokio::test]
async fn what_a_refused_upgrade_leaves_lets_no_other_in_beside_a_reader() {
    let (server, [a, b, c]) = with_clients(start(), calm).await;
    let (one, two) = (read(&b).await, read(&c).await);
    let lost = refused_retreat(&server, &a, 2).await;
    let left = server.children(DIRECTORY);
    assert_eq!(left.len(), 3, "the write node alone: {left:?}");
    let failed = within("an answer", one.try_upgrade()).await.unwrap_err();
    assert!(
        matches!(failed, ConversionError::Contended { .. }),
        "{failed}"
    );
    // Not alone either, though it is: whether the other is inside cannot be told.
    two.release().await.unwrap();
    let failed = within("an answer", failed.into_guard().try_upgrade())
        .await
        .unwrap_err();
    assert!(
        matches!(failed, ConversionError::Contended { .. }),
        "{failed}"
    );
    // It goes with its session.
    server.expire_session(session(&a));
    let writer = within("the upgrade", failed.into_guard().try_upgrade())
        .await
        .unwrap();
    writer.release().await.unwrap();
    drop(lost);
}

/// The read node stays: to the next upgrade it is a reader that may be inside.
// Shows: conversion-ends
#[tokio::test]
async fn an_upgrade_whose_read_node_may_not_be_deleted_is_a_lost_lock() {
    let (server, [a, b]) = with_clients(start(), calm).await;
    let reader = read(&a).await;
    server.fail(Match::op(Op::Delete).path(reader.node()).times(2), NO_AUTH);
    let failed = within("an answer", reader.try_upgrade()).await.unwrap_err();
    assert!(is_not_converted(&failed), "{failed}");
    let left = server.children(DIRECTORY);
    assert!(
        matches!(&left[..], [node] if node.contains("__READ__")),
        "{left:?}"
    );
    let beside = read(&b).await;
    let failed = within("an answer", beside.try_upgrade()).await.unwrap_err();
    assert!(
        matches!(failed, ConversionError::Contended { .. }),
        "{failed}"
    );
}

/// A conversion that another client disturbs by writing to the node that has to go, between every
/// two of its requests.
async fn disturbed(
    server: &Server,
    node: NodePath,
    data: &str,
    id: i64,
    conversion: impl Future<Output = ()>,
) -> u32 {
    let gate = || {
        // A multi is found by any of its paths.
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
                assert!(writes < 50, "kept from its end");
                held = next;
            }
        }
    }
}

/// Each write changes the version at which the node is deleted.
// Shows: revocation
#[tokio::test]
async fn a_conversion_ends_although_its_node_is_written_again_and_again() {
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
        // Before each deletion and each reading. A request is read once, anything else three times.
        assert_eq!(writes, if data == "__REVOKE__" { 3 } else { 7 }, "{data}");
        if data == "__REVOKE__" {
            within("the request, on the reader", reader.revoked()).await;
        }

        let node = reader.node();
        let mut writer = None;
        let upgrade = async { writer = Some(reader.try_upgrade().await.unwrap()) };
        within("the upgrade", disturbed(&server, node, data, id, upgrade)).await;
        writer.unwrap().release().await.unwrap();
    }
}
