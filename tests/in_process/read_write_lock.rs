//! The read-write lock against an in-process server: order, watches, conversions, and lost replies
//! during them.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

use test_support::in_process::read_write::{downgrade, lock, read, write};
use test_support::prelude::*;

/// Returns the nodes below the lock as paths, in order.
fn nodes(server: &Server) -> Vec<String> {
    let mut names = server.children(DIRECTORY);
    names.sort_by_key(|name| name[name.len() - 10..].to_owned());
    names
        .into_iter()
        .map(|name| format!("{DIRECTORY}/{name}"))
        .collect()
}

/// Returns the queue as `R` and `W`, in order.
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

/// Starts an attempt, and waits until its node exists and watches `predecessor`.
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
async fn readers_share_and_writers_exclude() {
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
    // New readers do not pass the writer, although readers hold the lock. Both watch only the
    // writer.
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

/// The writer in between gives up: the reader behind it still waits for the remaining writer.
// Shows: read-write
#[tokio::test]
async fn reader_falls_back_to_earlier_writer() {
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

/// A writer of the client already waits when the node of its readers is granted: no reader joins
/// them after that.
#[tokio::test]
async fn reader_does_not_overtake_own_writer() {
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

/// The client finds the outcome of a downgrade, whether the request or the reply is lost, and
/// exactly one node exists.
// Shows: downgrade
#[tokio::test]
async fn unanswered_downgrade_is_resolved() {
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

/// Heartbeats during a conversion check neither of its nodes.
// Shows: conversion-ends
#[tokio::test]
async fn heartbeat_during_conversion_loses_nothing() {
    let server = start();
    let client = connect_for(&server, Duration::from_secs(12)).await;
    let guard = write(&client).await;
    let other = InterProcessMutex::new(&client, "/locks/other").unwrap();
    let held = within("another lock", other.lock()).await.unwrap();
    // The transaction is applied but not answered. The replies of a session keep their order: the
    // beats are sent but not answered either.
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
async fn dropped_conversion_releases_the_lock() {
    let server = start();
    for applied in [true, false] {
        let client = calm(&server).await;
        let (gate, task) = downgrade(&server, &client, applied).await;
        task.abort();
        assert!(task.await.unwrap_err().is_cancelled());
        gate.release();
        until(&server, "an empty directory", |view| {
            view.children(DIRECTORY).is_empty()
        })
        .await;
        // The node blocks no contender.
        write(&client).await.release().await.unwrap();
        clean(&server, &[&client]).await;
    }
}

// Shows: would-deadlock
#[tokio::test]
async fn shared_lock_is_not_converted() {
    let (server, [client]) = with_clients(start(), calm).await;
    let writer = write(&client).await;
    // The conversion takes the guard by value, so the caller does not wait for itself.
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
    assert!(!error.is_retryable());
    let writer = error.into_guard();
    assert!(writer.is_held() && reader.is_held());
    // The write lock stays exclusive until the last share is gone.
    let again = writer.reenter().unwrap();
    writer.release().await.unwrap();
    assert_eq!(view(&server), "W");
    let error = within("a refusal", again.downgrade()).await.unwrap_err();
    let writer = error.into_guard();
    drop(reader);
    within("the downgrade", writer.downgrade())
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    clean(&server, &[&client]).await;
}

#[tokio::test]
async fn session_end_during_conversion_loses_lock() {
    let (server, [client]) = with_clients(start(), calm).await;
    let (gate, task) = downgrade(&server, &client, false).await;
    assert!(server.expire_session(session(&client)));
    drop(gate);
    let error = within("the answer", task).await.unwrap().unwrap_err();
    let guard = error.into_guard();
    assert_eq!(guard.state(), LockState::Lost(LostReason::SessionExpired));
    let error = guard.release().await.unwrap_err();
    assert!(!error.is_retryable(), "{error}");
    clean(&server, &[&client]).await;
}

/// The node of a converted lock is checked like any other.
// Shows: node-deleted-by-hand
#[tokio::test]
async fn deletion_of_converted_node_is_noticed() {
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
    // The node is deleted during the conversion.
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
async fn recipes_of_other_order_are_refused() {
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

#[tokio::test]
async fn kazoo_names_are_used_on_request() {
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
    let (id, number) = parts(reader.node(), "__rlock__");
    assert!(is_id(&id) && number.len() == 10, "{}", reader.node());
    reader.release().await.unwrap();
    let writer = within("a writer", lock.write_lock().lock()).await.unwrap();
    let (of, number) = parts(writer.node(), "__lock__");
    assert!(is_id(&of) && number.len() == 10, "{}", writer.node());
    let reader = within("the downgrade", writer.downgrade()).await.unwrap();
    let (id, same) = parts(reader.node(), "__rlock__");
    assert!(
        is_id(&id) && id != of && same == number,
        "{}",
        reader.node()
    );
    reader.release().await.unwrap();
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

/// A mutex and a fair lock of one client share a queue, and therefore the names of its nodes.
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

/// In kazoo's dialect a writer's node and a mutex's look alike. Where both use a path, one is
/// refused.
// Shows: mixed-recipes
#[tokio::test]
async fn kazoo_mutex_excludes_downgraded_reader() {
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
