//! Conversions and revocation under contention, with connections that break: what held before must
//! still hold.

use test_support::in_process::read_write::write;
use test_support::prelude::*;

#[tokio::test]
async fn revocation_listener_keeps_no_session() {
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

/// A request arrives while the node is being exchanged, before or after it at the server.
#[tokio::test]
async fn request_during_conversion_is_seen() {
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

/// A runtime that ends while its task converts disturbs nothing: the client has its own thread.
// Shows: conversion-ends
#[test]
fn conversion_outlives_its_runtime() {
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
