//! The read-write lock against an in-process server: order, watches, conversions, and what happens
//! when replies are lost in the middle of them.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

use test_support::in_process::read_write::{conversion, lock, read, write};
use test_support::prelude::*;

/// The nodes below the lock as paths, in order.
fn nodes(server: &Server) -> Vec<String> {
    let mut names = server.children(DIRECTORY);
    names.sort_by_key(|name| name[name.len() - 10..].to_owned());
    names
        .into_iter()
        .map(|name| format!("{DIRECTORY}/{name}"))
        .collect()
}

/// How the nodes queue: `R` and `W`, in order.
fn view(server: &Server) -> String {
    nodes(server)
        .iter()
        .map(|node| if node.contains("__READ__") { 'R' } else { 'W' })
        .collect()
}

struct Waiting<G> {
    attempt: JoinHandle<Result<G, AcquireError>>,
    node: NodePath,
}

impl<G> Waiting<G> {
    async fn granted(self) -> G {
        within("the grant", self.attempt).await.unwrap().unwrap()
    }
}

/// Starts an attempt, and waits until its node is there and watches `predecessor`.
async fn waits_for<G: Send + 'static>(
    server: &Server,
    client: &Client,
    predecessor: &str,
    attempt: impl Future<Output = Result<G, AcquireError>> + Send + 'static,
) -> Waiting<G> {
    let before = nodes(server);
    let attempt = tokio::spawn(attempt);
    let (id, watched) = (session(client), predecessor.to_owned());
    until(server, "the watch", move |view| {
        view.watches_on(&watched).contains(&id)
    })
    .await;
    let node = nodes(server)
        .into_iter()
        .find(|node| !before.contains(node))
        .expect("a new node");
    Waiting {
        attempt,
        node: node.parse().unwrap(),
    }
}

// Shows: read-write
#[tokio::test]
async fn readers_are_inside_together_and_a_writer_alone_in_order_of_arrival() {
    let server = start();
    let clients = [
        calm(&server).await,
        calm(&server).await,
        calm(&server).await,
    ];
    let [a, b, c] = &clients;
    let (first, second) = (read(a).await, read(b).await);
    assert_eq!(
        server.watches(),
        0,
        "readers with readers before them watch nothing"
    );
    let writer = waits_for(&server, a, &second.node(), lock(a).write_lock().lock()).await;
    // A reader that comes now does not pass the writer, though readers are inside; both watch the
    // writer only.
    let third = waits_for(&server, c, &writer.node, lock(c).read_lock().lock()).await;
    let fourth = waits_for(&server, a, &writer.node, lock(a).read_lock().lock()).await;
    let last = waits_for(&server, b, &fourth.node, lock(b).write_lock().lock()).await;
    assert_eq!(view(&server), "RRWRRW");
    assert_eq!(server.watches(), 4);
    first.release().await.unwrap();
    second.release().await.unwrap();
    let guard = writer.granted().await;
    assert!(!third.attempt.is_finished() && !fourth.attempt.is_finished());
    guard.release().await.unwrap();
    let (third, fourth) = (third.granted().await, fourth.granted().await);
    assert!(!last.attempt.is_finished());
    drop((third, fourth));
    last.granted().await.release().await.unwrap();
    clean(&server, &[a, b, c]).await;
}

/// The writer in between gives up: its readers do not come in before the writer that is still
/// there.
// Shows: read-write
#[tokio::test]
async fn a_reader_whose_writer_gives_up_looks_for_the_one_before() {
    let (server, [a, b]) = with_clients(start(), calm).await;
    let holder = write(&a).await;
    let between = waits_for(&server, &b, &holder.node(), lock(&b).write_lock().lock()).await;
    let reader = waits_for(&server, &a, &between.node, lock(&a).read_lock().lock()).await;
    between.attempt.abort();
    watches(&server, &a, &holder.node()).await;
    assert!(!reader.attempt.is_finished());
    holder.release().await.unwrap();
    reader.granted().await.release().await.unwrap();
    clean(&server, &[&a, &b]).await;
}

/// A writer of the client waits already when the node of its readers is granted: none joins them
/// after that.
#[tokio::test]
async fn no_reader_joins_ahead_of_a_writer_of_its_client() {
    let (server, [client, other]) = with_clients(start(), calm).await;
    let held = within("the lock", write(&other)).await;
    let lock = InterProcessReadWriteLock::builder(&client, DIRECTORY)
        .hand_off(100, SOON)
        .build()
        .unwrap();
    let reader = tokio::spawn(lock.read_lock().lock());
    until(&server, "its node", |view| {
        view.children(DIRECTORY).len() == 2
    })
    .await;
    let writer = tokio::spawn(lock.write_lock().lock());
    until(&server, "its node", |view| {
        view.children(DIRECTORY).len() == 3
    })
    .await;
    held.release().await.unwrap();
    let reader = within("the reader", reader).await.unwrap().unwrap();
    let mut late = ByHand::new(lock.read_lock().lock()).start();
    until(&server, "a node behind the writer's", |view| {
        view.children(DIRECTORY).len() == 3
    })
    .await;
    reader.release().await.unwrap();
    let writer = within("the writer", writer).await.unwrap().unwrap();
    assert!(late.poll().is_pending());
    writer.release().await.unwrap();
    within("the late reader", late.finished())
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    drop(lock);
    clean(&server, &[&client, &other]).await;
}

/// Whatever is lost on the way, the outcome is found out, and there is one node.
// Shows: downgrade
#[tokio::test]
async fn a_downgrade_whose_reply_is_lost_is_found_out() {
    let server = start();
    for applied in [true, false] {
        for loss in [Loss::Close, Loss::Reset] {
            let (a, b) = (calm(&server).await, calm(&server).await);
            let guard = write(&a).await;
            let writer = waits_for(&server, &b, &guard.node(), lock(&b).write_lock().lock()).await;
            let multi = Match::op(Op::Multi)
                .session(session(&a))
                .path_contains("__READ__");
            let fault = lose(&server, multi, applied, loss);
            let reader = within("the downgrade", guard.downgrade()).await.unwrap();
            assert_eq!(fault.hits().len(), 1);
            assert_eq!(view(&server), "RW");
            assert!(reader.is_held() && !writer.attempt.is_finished());
            reader.release().await.unwrap();
            writer.granted().await.release().await.unwrap();
            clean(&server, &[&a, &b]).await;
        }
    }
}

/// The beats that go out while a conversion is under way ask for neither of its nodes.
// Shows: conversion-ends
#[tokio::test]
async fn a_heartbeat_during_a_conversion_loses_nothing() {
    let server = start();
    let client = connect_for(&server, Duration::from_secs(12)).await;
    let guard = write(&client).await;
    let other = InterProcessMutex::new(&client, "/locks/other").unwrap();
    let held = within("another lock", other.lock()).await.unwrap();
    // Applied, and not answered. The replies of a session keep their order: the beats are sent, and
    // not answered either.
    let id = session(&client);
    let gate = server.hold_reply(Match::op(Op::Multi).session(id).path_contains("__READ__"));
    let converted = tokio::spawn(guard.downgrade());
    within("the conversion", gate.wait_hit()).await;
    let before = server.counters().requests_of(id, Op::Multi);
    until(&server, "a beat", move |view| {
        view.counters().requests_of(id, Op::Multi) > before
    })
    .await;
    gate.release();
    let reader = within("the downgrade", converted).await.unwrap().unwrap();
    assert_eq!(reader.state(), LockState::Held);
    drop(reader);
    assert!(held.is_held());
    drop(held);
    clean(&server, &[&client]).await;
}

// Shows: conversion-ends
#[tokio::test]
async fn a_dropped_conversion_gives_the_lock_back() {
    let server = start();
    for applied in [true, false] {
        let client = calm(&server).await;
        for upgrade in [true, false] {
            let (gate, task) = conversion(&server, &client, upgrade, applied).await;
            task.abort();
            assert!(task.await.unwrap_err().is_cancelled());
            gate.release();
            until(&server, "an empty directory", |view| {
                view.children(DIRECTORY).is_empty()
            })
            .await;
            // Not in the way of any contender.
            write(&client).await.release().await.unwrap();
        }
        clean(&server, &[&client]).await;
    }
}

// Shows: would-deadlock
#[tokio::test]
async fn a_lock_that_is_shared_is_not_converted() {
    let (server, [client]) = with_clients(start(), calm).await;
    let writer = write(&client).await;
    // By value, without waiting for oneself.
    let reader = writer.reenter_as_reader().unwrap();
    assert_eq!(
        (reader.hold_count(), numbers(reader.fencing_token())),
        (2, numbers(writer.fencing_token()))
    );
    let error = within("a refusal", writer.downgrade()).await.unwrap_err();
    assert!(
        matches!(error, ConversionError::WouldDeadlock { .. }),
        "{error}"
    );
    let writer = error.into_guard();
    let error = within("a refusal", reader.try_upgrade()).await.unwrap_err();
    assert!(
        matches!(error, ConversionError::WouldDeadlock { .. }),
        "{error}"
    );
    assert!(!error.is_retryable());
    let reader = error.into_guard();
    assert!(writer.is_held() && reader.is_held());
    // The write lock stays one until the last share is gone.
    writer.release().await.unwrap();
    assert_eq!(view(&server), "W");
    let writer = within("an upgrade of the last share", reader.try_upgrade())
        .await
        .unwrap();
    within("the downgrade", writer.downgrade())
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    clean(&server, &[&client]).await;
}

/// Writers and readers that wait behind a writer do not hinder it, and are served afterwards, in
/// order.
// Shows: upgrade
#[tokio::test]
async fn a_reader_that_is_alone_becomes_the_writer() {
    let server = start();
    let clients = [calm(&server).await, calm(&server).await];
    let [a, b] = &clients;
    let reader = read(a).await;
    let (token, _id) = (numbers(reader.fencing_token()), session(b));
    let writer = waits_for(&server, b, &reader.node(), lock(b).write_lock().lock()).await;
    let later = waits_for(&server, b, &writer.node, lock(b).read_lock().lock()).await;
    let guard = within("the upgrade", reader.try_upgrade()).await.unwrap();
    // Above its own as a reader, and below the writer's that has been waiting.
    let first = numbers(guard.fencing_token());
    assert!(first > token && first.1 == 1, "{first:?} after {token:?}");
    a.flush(SOON).await.unwrap();
    assert_eq!(view(&server), "WWR");
    watches(&server, b, &guard.node()).await;
    assert!(lock(a).write_lock().is_acquired_in_this_process());
    assert!(!writer.attempt.is_finished() && !later.attempt.is_finished());
    // And back, and up again.
    let reader = within("the downgrade", guard.downgrade()).await.unwrap();
    let guard = within("the upgrade", reader.try_upgrade()).await.unwrap();
    let second = numbers(guard.fencing_token());
    assert!(second > first, "{second:?} after {first:?}");
    guard.release().await.unwrap();
    let next = writer.granted().await;
    assert!(numbers(next.fencing_token()) > second);
    next.release().await.unwrap();
    later.granted().await.release().await.unwrap();
    clean(&server, &[a, b]).await;
}

/// Neither of two readers passes the other; when one goes, the other can. What was tried leaves
/// nothing behind.
// Shows: upgrade
#[tokio::test]
async fn a_reader_beside_another_gets_its_guard_back() {
    let (server, [a, b]) = with_clients(start(), calm).await;
    let (one, two) = (read(&a).await, read(&b).await);
    let before = nodes(&server);
    let (one, two) = tokio::join!(one.try_upgrade(), two.try_upgrade());
    let (one, two) = (one.unwrap_err(), two.unwrap_err());
    assert!(matches!(one, ConversionError::Contended { .. }), "{one}");
    assert!(matches!(two, ConversionError::Contended { .. }), "{two}");
    assert!(one.is_retryable());
    assert_eq!(
        nodes(&server),
        before,
        "the write nodes are gone before the answer"
    );
    let (one, two) = (one.into_guard(), two.into_guard());
    assert!(one.is_held() && two.is_held());
    one.release().await.unwrap();
    let writer = within("the upgrade", two.try_upgrade()).await.unwrap();
    // A reader that comes now waits.
    let reader = waits_for(&server, &a, &writer.node(), lock(&a).read_lock().lock()).await;
    writer.release().await.unwrap();
    reader.granted().await.release().await.unwrap();
    clean(&server, &[&a, &b]).await;
}

/// A reader that comes between the write node and the look at the directory is seen, or sees.
// Shows: upgrade
#[tokio::test]
async fn a_reader_that_comes_during_an_upgrade_waits_for_it() {
    let (server, [a, b]) = with_clients(start(), calm).await;
    let reader = read(&a).await;
    let look = server.hold_request(Match::op(Op::GetChildren).session(session(&a)));
    let upgrade = tokio::spawn(reader.try_upgrade());
    within("the look", look.wait_hit()).await;
    let write_node = nodes(&server)
        .into_iter()
        .find(|node| node.contains("__WRIT__"))
        .unwrap();
    let late = waits_for(&server, &b, &write_node, lock(&b).read_lock().lock()).await;
    look.release();
    // It cannot be told from one that was inside before.
    let error = within("the answer", upgrade).await.unwrap().unwrap_err();
    assert!(
        matches!(error, ConversionError::Contended { .. }),
        "{error}"
    );
    late.granted().await.release().await.unwrap();
    error.into_guard().release().await.unwrap();
    clean(&server, &[&a, &b]).await;
}

// Shows: conversion-ends
#[tokio::test]
async fn an_upgrade_whose_replies_are_lost_is_found_out() {
    let server = start();
    for alone in [true, false] {
        for (op, part) in [
            (Op::Create, "__WRIT__"),
            (Op::GetChildren, ""),
            (Op::Delete, "__"),
        ] {
            for applied in [true, false] {
                let (a, b) = (calm(&server).await, calm(&server).await);
                let beside = if alone { None } else { Some(read(&b).await) };
                let reader = read(&a).await;
                let matcher = Match::op(op).session(session(&a)).path_contains(part);
                let fault = lose(&server, matcher, applied, Loss::Close);
                let what = format!("{alone} {op:?} {applied}");
                match within(&what, reader.try_upgrade()).await {
                    Ok(guard) if alone => guard.release().await.unwrap(),
                    Err(error) if !alone => {
                        assert!(
                            matches!(error, ConversionError::Contended { .. }),
                            "{what}: {error}"
                        );
                        assert_eq!(view(&server), "RR", "{what}");
                        error.into_guard().release().await.unwrap();
                    }
                    other => panic!("{what}: {other:?}"),
                }
                drop(beside);
                a.flush(SOON).await.unwrap();
                assert_eq!(fault.hits().len(), 1, "{what}");
                clean(&server, &[&a, &b]).await;
            }
        }
    }
}

#[tokio::test]
async fn a_session_that_ends_during_a_conversion_takes_the_lock_along() {
    let server = start();
    for upgrade in [true, false] {
        let client = calm(&server).await;
        let (gate, task) = conversion(&server, &client, upgrade, false).await;
        assert!(server.expire_session(session(&client)));
        drop(gate);
        let guard = within("the answer", task).await.unwrap().unwrap_err();
        assert_eq!(guard.state(), LockState::Lost(LostReason::SessionExpired));
        let error = guard.release().await.unwrap_err();
        assert!(!error.is_retryable(), "{error}");
        clean(&server, &[&client]).await;
    }
}

/// The node of a converted lock is looked after like any other.
// Shows: node-deleted-by-hand
#[tokio::test]
async fn a_converted_lock_that_is_deleted_by_hand_is_told() {
    let server = start();
    let client = connect_for(&server, Duration::from_secs(12)).await;
    let reader = within("the downgrade", write(&client).await.downgrade())
        .await
        .unwrap();
    let lost = reader.lost();
    server.delete(&reader.node()).unwrap();
    assert_eq!(
        within("the loss", lost).await.reason(),
        LostReason::NodeDeleted
    );
    // Deleted on the way.
    let writer = write(&client).await;
    server.delete(&writer.node()).unwrap();
    let error = within("the answer", writer.downgrade()).await.unwrap_err();
    let ConversionError::Lost { source: lost, .. } = &error else {
        panic!("{error}")
    };
    assert_eq!(lost.reason(), LostReason::NodeDeleted);
    clean(&server, &[&client]).await;
}

// Shows: mixed-recipes
#[tokio::test]
async fn recipes_of_another_order_are_refused_here_and_there() {
    let (server, [a, b]) = with_clients(start(), calm).await;
    let reader = read(&a).await;
    for error in [
        InterProcessMutex::new(&a, DIRECTORY).unwrap_err(),
        InterProcessFairLock::new(&a, DIRECTORY).unwrap_err(),
    ] {
        assert!(matches!(error, BuildError::MixedRecipes { .. }), "{error}");
    }
    let error = within(
        "a refusal",
        InterProcessMutex::new(&b, DIRECTORY).unwrap().lock(),
    )
    .await
    .unwrap_err();
    let AcquireError::Request(error) = error else {
        panic!("{error}")
    };
    assert_eq!(
        (error.kind(), error.node()),
        (ErrorKind::MixedRecipes, Some(&*reader.node())),
        "{error}"
    );
    reader.release().await.unwrap();
    b.flush(SOON).await.unwrap();
    let mutex = InterProcessMutex::new(&b, DIRECTORY).unwrap();
    let guard = within("the mutex", mutex.lock()).await.unwrap();
    for attempt in [
        within("a refusal", lock(&a).read_lock().lock())
            .await
            .map(drop),
        within("a refusal", lock(&a).write_lock().lock())
            .await
            .map(drop),
    ] {
        let error = attempt.unwrap_err();
        assert_eq!(error.kind(), Some(ErrorKind::MixedRecipes), "{error}");
    }
    guard.release().await.unwrap();
    drop(mutex);
    clean(&server, &[&a, &b]).await;
}

/// What a foreign recipe puts there during an upgrade ends it, with the lock as it was.
#[tokio::test]
async fn an_upgrade_among_strangers_keeps_the_read_lock() {
    let (server, [client]) = with_clients(start(), calm).await;
    let reader = read(&client).await;
    let stranger = format!("{DIRECTORY}/x-lock-0000000099");
    server.create(&stranger, "").unwrap();
    let error = within("the answer", reader.try_upgrade())
        .await
        .unwrap_err();
    let ConversionError::Request { source: why, .. } = &error else {
        panic!("{error}")
    };
    assert_eq!(
        (why.kind(), why.node()),
        (ErrorKind::MixedRecipes, Some(&*stranger)),
        "{why}"
    );
    assert_eq!(server.children(DIRECTORY).len(), 2);
    assert!(error.into_guard().is_held());
    server.delete(&stranger).unwrap();
    clean(&server, &[&client]).await;
}

#[tokio::test]
async fn kazoos_names_are_used_when_asked_for() {
    let (server, [client]) = with_clients(start(), calm).await;
    let lock = InterProcessReadWriteLock::builder(&client, DIRECTORY)
        .dialect(Dialect::Kazoo)
        .build()
        .unwrap();
    let error = InterProcessReadWriteLock::builder(&client, DIRECTORY)
        .dialect(Dialect::Curator)
        .build()
        .unwrap_err();
    assert!(
        matches!(
            error,
            BuildError::ConflictingOptions {
                option: "dialect",
                ..
            }
        ),
        "{error}"
    );
    let reader = within("a reader", lock.read_lock().lock()).await.unwrap();
    let parts = |node: NodePath, marker: &str| {
        let name = node.strip_prefix(&format!("{DIRECTORY}/")).unwrap();
        let (unique, number) = name.split_once(marker).expect(name);
        (unique.to_owned(), number.to_owned())
    };
    let is_id = |id: &str| id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    let (of, number) = parts(reader.node(), "__rlock__");
    assert!(is_id(&of) && number.len() == 10, "{}", reader.node());
    let writer = within("the upgrade", reader.try_upgrade()).await.unwrap();
    // It says of which read node it is.
    let (unique, same) = parts(writer.node(), "__lock__");
    let (id, named) = unique.split_once("__of__").unwrap();
    assert!(
        is_id(id) && id != of && named == of && same == number,
        "{}",
        writer.node()
    );
    writer.release().await.unwrap();
    drop(lock);
    clean(&server, &[&client]).await;
    let mutex = InterProcessMutex::builder(&client, "/kazoo/mutex")
        .dialect(Dialect::Kazoo)
        .build()
        .unwrap();
    let guard = within("the mutex", mutex.lock()).await.unwrap();
    assert!(guard.node().contains("__lock__"));
    guard.release().await.unwrap();
}

/// A mutex and a fair lock of one client share a queue, and so the names of its nodes.
// Shows: mixed-recipes
#[tokio::test]
async fn mutex_and_fair_lock_share_dialect() {
    let (_server, [client]) = with_clients(start(), calm).await;
    let kazoo_mutex = || {
        let builder = InterProcessMutex::builder(&client, DIRECTORY);
        builder.dialect(Dialect::Kazoo).build()
    };
    let kazoo_fair = || {
        let builder = InterProcessFairLock::builder(&client, DIRECTORY);
        builder.dialect(Dialect::Kazoo).build()
    };
    let refused = |error: BuildError| {
        assert!(
            matches!(
                error,
                BuildError::ConflictingOptions {
                    option: "dialect",
                    ..
                }
            ),
            "{error}"
        );
    };
    let mutex = InterProcessMutex::new(&client, DIRECTORY).unwrap();
    refused(kazoo_fair().unwrap_err());
    let fair = InterProcessFairLock::new(&client, DIRECTORY).unwrap();
    drop(mutex);
    refused(kazoo_mutex().unwrap_err());
    drop(fair);
    let mutex = kazoo_mutex().unwrap();
    refused(InterProcessFairLock::new(&client, DIRECTORY).unwrap_err());
    let fair = kazoo_fair().unwrap();
    drop((mutex, fair));
    InterProcessFairLock::new(&client, DIRECTORY).unwrap();
}

/// In kazoo's dialect a writer's node and a mutex's look alike. Where the two meet, one is refused.
// Shows: mixed-recipes
#[tokio::test]
async fn a_kazoo_mutex_does_not_come_in_beside_a_downgraded_reader() {
    let (server, [a, b]) = with_clients(start(), calm).await;
    let lock = InterProcessReadWriteLock::builder(&a, DIRECTORY)
        .dialect(Dialect::Kazoo)
        .build()
        .unwrap();
    let mutex = InterProcessMutex::builder(&b, DIRECTORY)
        .dialect(Dialect::Kazoo)
        .build()
        .unwrap();
    let writer = within("the write lock", lock.write_lock().lock())
        .await
        .unwrap();
    let waiting = tokio::spawn(mutex.lock());
    watches(&server, &b, &writer.node()).await;
    let reader = within("the downgrade", writer.downgrade()).await.unwrap();
    let error = within("a refusal", waiting).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), Some(ErrorKind::MixedRecipes), "{error}");
    assert!(reader.is_held());
}
