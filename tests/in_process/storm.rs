//! Conversions and revocation in a crowd, with connections that break: what has held, and has to go
//! on holding.

use test_support::in_process::read_write::{lock, write};
use test_support::prelude::*;

#[tokio::test]
async fn who_waits_to_be_asked_keeps_neither_the_session_nor_the_client() {
    let server = start();
    for answered in [true, false] {
        let client = connect(&server).await;
        let id = session(&client);
        let guard = write(&client).await;
        let gate = (!answered).then(|| server.hold_reply(Match::op(Op::GetData).session(id)));
        let mut revoked = ByHand::new(guard.revoked()).start();
        match &gate {
            Some(gate) => within("the look", gate.wait_hit()).await,
            None => until(&server, "the watch", |view| view.watches() == 1).await,
        }
        drop((guard, client));
        until(&server, "the end", move |view| {
            view.sessions().iter().all(|session| session.id != id)
        })
        .await;
        assert!(revoked.poll().is_pending());
    }
}

/// A request that comes while the node is being exchanged, whichever comes first at the server.
#[tokio::test]
async fn a_request_during_a_conversion_is_not_missed() {
    let server = start();
    for before in [true, false] {
        let client = connect(&server).await;
        let id = session(&client);
        let guard = write(&client).await;
        let node = guard.node();
        let revoked = tokio::spawn(guard.revoked());
        until(&server, "the watch", |view| view.watches() == 1).await;
        let multi = Match::op(Op::Multi).session(id).path_contains("__READ__");
        let gate = if before {
            server.hold_request(multi)
        } else {
            server.hold_reply(multi)
        };
        let downgrade = tokio::spawn(guard.downgrade());
        within("the conversion", gate.wait_hit()).await;
        if before {
            server.set_data(&node, "__REVOKE__").unwrap();
        }
        gate.release();
        let reader = within("the downgrade", downgrade).await.unwrap().unwrap();
        if !before {
            server.set_data(&reader.node(), "__REVOKE__").unwrap();
        }
        within("the request", revoked).await.unwrap();
        reader.release().await.unwrap();
        client.close().await.unwrap();
    }
}

/// There and back many times, with readers and writers queueing meanwhile: a token for each time,
/// in order, and nothing left.
// Shows: token-order
#[tokio::test]
async fn there_and_back_many_times() {
    let (server, [a, b]) = with_clients(start(), connect).await;
    let mut writer = write(&a).await;
    let mut token = writer.fencing_token();
    let next = tokio::spawn(lock(&b).write_lock().lock());
    until(&server, "the next", |view| {
        view.children(DIRECTORY).len() == 2
    })
    .await;
    let after = tokio::spawn(lock(&b).read_lock().lock());
    until(&server, "the one after", |view| {
        view.children(DIRECTORY).len() == 3
    })
    .await;
    for _ in 0..50 {
        let reader = within("the downgrade", writer.downgrade()).await.unwrap();
        a.flush(SOON).await.unwrap();
        writer = within("the upgrade", reader.try_upgrade()).await.unwrap();
        a.flush(SOON).await.unwrap();
        assert!(writer.fencing_token() > token);
        token = writer.fencing_token();
        assert_eq!(server.children(DIRECTORY).len(), 3);
        assert!(!next.is_finished() && !after.is_finished());
    }
    writer.release().await.unwrap();
    let next = within("the next", next).await.unwrap().unwrap();
    assert!(next.fencing_token() > token && !after.is_finished());
    next.release().await.unwrap();
    within("the one after", after)
        .await
        .unwrap()
        .unwrap()
        .release()
        .await
        .unwrap();
    until(&server, "an empty directory", |view| {
        view.children(DIRECTORY).is_empty()
    })
    .await;
}

/// A runtime that goes while its task converts takes nothing along: the client has a thread of its
/// own.
// Shows: conversion-ends
#[test]
fn a_runtime_that_goes_during_a_conversion() {
    let server = start();
    let other = tokio::runtime::Runtime::new().unwrap();
    let client = other.block_on(connect(&server));
    let id = session(&client);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let guard = runtime.block_on(write(&client));
    let gate = server.hold_reply(Match::op(Op::Multi).session(id).path_contains("__READ__"));
    let task = runtime.spawn(guard.downgrade());
    other.block_on(within("the conversion", gate.wait_hit()));
    runtime.shutdown_background();
    assert!(other.block_on(task).is_err());
    gate.release();
    other.block_on(until(&server, "an empty directory", |view| {
        view.children(DIRECTORY).is_empty()
    }));
    other.block_on(async { write(&client).await.release().await.unwrap() });
}
