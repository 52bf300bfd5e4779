//! Grants by the next number, without a list, must not be made if the directory was made anew, the
//! connection was interrupted, or another contender came between.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use test_support::prelude::*;

/// Returns a mutex whose next grant is expected to need no list, and its expected number.
async fn hot(server: &Server, client: &Client) -> (Arc<InterProcessMutex>, i32) {
    let mutex = Arc::new(mutex(client));
    for _ in 0..4 {
        within("the grant", mutex.lock())
            .await
            .unwrap()
            .release()
            .await
            .unwrap();
    }
    assert_eq!(server.watches_on(DIRECTORY), [session(client)]);
    (mutex, server.node(DIRECTORY).unwrap().next_sequence)
}

fn lists(server: &Server, client: &Client) -> u64 {
    server
        .counters()
        .requests_of(session(client), Op::GetChildren)
}

/// Replaces the directory, and has another client hold the lock there, with the number before
/// `next`.
async fn replace(server: &Server, other: &Client, next: i32) -> LockGuard {
    server.delete(DIRECTORY).unwrap();
    server.create(DIRECTORY, "").unwrap();
    server.set_next_sequence(DIRECTORY, next - 1).unwrap();
    let held = within("the other's grant", mutex(other).lock())
        .await
        .unwrap();
    assert_eq!(server.node(DIRECTORY).unwrap().next_sequence, next);
    held
}

/// The create is sent without a list. Then the directory is replaced by one in which the create
/// gets exactly the number that the client expects, behind a holder.
// Shows: directory-watch
#[tokio::test]
async fn successor_in_other_directory_grants_nothing() {
    let (server, [client, other]) = with_clients(start(), calm).await;
    let (mutex, next) = hot(&server, &client).await;
    server.reset_counters();
    let gate = server.hold_request(Match::op(Op::Create).session(session(&client)));
    let attempt = tokio::spawn({
        let mutex = Arc::clone(&mutex);
        async move { mutex.lock().await }
    });
    within("the create", gate.wait_hit()).await;
    assert_eq!(lists(&server, &client), 0, "expected no list");
    let held = replace(&server, &other, next).await;
    gate.release();
    watches(&server, &client, &held.node()).await;
    assert!(
        queue(&server)[1].ends_with(&format!("{next:010}")),
        "the create got the expected number"
    );
    assert!(!attempt.is_finished());
    held.release().await.unwrap();
    granted(attempt).await.release().await.unwrap();
}

/// In the new directory, the reader has a writer ahead that its client does not know.
// Shows: directory-watch
#[tokio::test]
async fn reader_in_other_directory_grants_nothing() {
    let (server, [client, other]) = with_clients(start(), calm).await;
    let lock = read_write::lock(&client).read_lock();
    for _ in 0..4 {
        within("the grant", lock.lock())
            .await
            .unwrap()
            .release()
            .await
            .unwrap();
    }
    let next = server.node(DIRECTORY).unwrap().next_sequence;
    let gate = server.hold_request(Match::op(Op::Create).session(session(&client)));
    let attempt = tokio::spawn(async move { lock.lock().await });
    within("the create", gate.wait_hit()).await;
    server.delete(DIRECTORY).unwrap();
    server.create(DIRECTORY, "").unwrap();
    server.set_next_sequence(DIRECTORY, next - 1).unwrap();
    let writer = within("the writer", read_write::lock(&other).write_lock().lock())
        .await
        .unwrap();
    gate.release();
    watches(&server, &client, &writer.node()).await;
    assert!(!attempt.is_finished());
    writer.release().await.unwrap();
    granted(attempt).await.release().await.unwrap();
}

/// A directory that is replaced while the watch is being set is not that of the last node.
// Shows: directory-watch
#[tokio::test]
async fn watch_ignores_earlier_directory() {
    let (server, [client, other]) = with_clients(start(), calm).await;
    let (mutex, id) = (mutex(&client), session(&client));
    for _ in 0..2 {
        within("the grant", mutex.lock())
            .await
            .unwrap()
            .release()
            .await
            .unwrap();
    }
    let gate = server.hold_request(Match::op(Op::GetData).session(id).path(DIRECTORY));
    let third = within("the grant", mutex.lock()).await.unwrap();
    within("the request for the watch", gate.wait_hit()).await;
    // Another process deletes the node without the client's knowledge: the client's own deletion
    // waits behind the watch.
    server.delete(&third.node()).unwrap();
    let next = server.node(DIRECTORY).unwrap().next_sequence;
    let held = replace(&server, &other, next).await;
    gate.release();
    until(&server, "the watch", move |view| {
        view.watches_on(DIRECTORY) == [id]
    })
    .await;
    third.release().await.unwrap_err();
    let attempt = tokio::spawn(async move { mutex.lock().await });
    watches(&server, &client, &held.node()).await;
    held.release().await.unwrap();
    granted(attempt).await.release().await.unwrap();
}

/// Without a list, the next reader would be granted the lock beside a writer.
// Shows: directory-watch
#[tokio::test]
async fn watch_ignores_readers_of_earlier_directory() {
    let (server, [client, other]) = with_clients(start(), calm).await;
    // With this bound, readers do not share a node.
    let lock = InterProcessReadWriteLock::builder(&client, DIRECTORY)
        .hand_off(1, SOON)
        .build()
        .unwrap();
    let (lock, id) = (lock.read_lock(), session(&client));
    for _ in 0..2 {
        within("the grant", lock.lock())
            .await
            .unwrap()
            .release()
            .await
            .unwrap();
    }
    let gate = server.hold_request(Match::op(Op::GetData).session(id).path(DIRECTORY));
    let third = within("the grant", lock.lock()).await.unwrap();
    within("the request for the watch", gate.wait_hit()).await;
    server.delete(&third.node()).unwrap();
    let next = server.node(DIRECTORY).unwrap().next_sequence;
    server.delete(DIRECTORY).unwrap();
    server.create(DIRECTORY, "").unwrap();
    server.set_next_sequence(DIRECTORY, next - 1).unwrap();
    let writer = within("the writer", read_write::lock(&other).write_lock().lock())
        .await
        .unwrap();
    gate.release();
    until(&server, "the watch", move |view| {
        view.watches_on(DIRECTORY) == [id]
    })
    .await;
    // This list is answered after the request for the watch.
    assert!(
        within("the queue", lock.participants())
            .await
            .unwrap()
            .is_empty()
    );
    server.reset_counters();
    let attempt = tokio::spawn(async move { lock.lock().await });
    watches(&server, &client, &writer.node()).await;
    assert_eq!(
        lists(&server, &client),
        1,
        "expected one list, after the create was answered"
    );
    let follows = queue(&server)
        .iter()
        .any(|node| node.ends_with(&format!("__READ__{next:010}")));
    assert!(follows, "expected the next number");
    writer.release().await.unwrap();
    granted(attempt).await.release().await.unwrap();
    third.release().await.unwrap_err();
}

/// The next grant after an interrupted connection lists, and sets another watch, whatever the
/// client missed.
// Shows: directory-watch
#[tokio::test]
async fn interruption_discards_the_watch() {
    for cut in [Cut::Fin, Cut::Reset] {
        let (server, [client]) = with_clients(start(), calm).await;
        let (mutex, _) = hot(&server, &client).await;
        let id = session(&client);
        let before = server.counters().requests_of(id, Op::SetWatches);
        assert!(server.cut(id, cut));
        until(&server, "the watch on the next connection", move |view| {
            // The condition is a new watch, because the client's next connection would restore the
            // old one.
            view.counters().requests_of(id, Op::SetWatches) > before
        })
        .await;
        server.reset_counters();
        within("the grant", mutex.lock())
            .await
            .unwrap()
            .release()
            .await
            .unwrap();
        assert_eq!(lists(&server, &client), 1, "{cut:?}");
        within("the grant", mutex.lock())
            .await
            .unwrap()
            .release()
            .await
            .unwrap();
        assert_eq!(lists(&server, &client), 1, "{cut:?}: hot again");
    }
}

/// The create is sent without a list, and its reply is lost with the connection.
// Shows: succession
#[tokio::test]
async fn unanswered_create_is_found_by_list() {
    for loss in [Loss::Close, Loss::Reset] {
        let (server, [client]) = with_clients(start(), calm).await;
        let (mutex, _) = hot(&server, &client).await;
        let lost = server.drop_reply(Match::op(Op::Create).session(session(&client)), loss);
        let guard = within("the grant", mutex.lock()).await.unwrap();
        assert_eq!(lost.hits().len(), 1);
        assert_eq!(queue(&server), [guard.node().to_string()], "{loss:?}");
        guard.release().await.unwrap();
    }
}

/// The directory's data does not affect its numbers, but the watch is gone.
// Shows: directory-watch
#[tokio::test]
async fn changed_directory_is_watched_again() {
    let (server, [client]) = with_clients(start(), calm).await;
    let (mutex, _) = hot(&server, &client).await;
    server.set_data(DIRECTORY, "a note").unwrap();
    server.reset_counters();
    for lists_so_far in [1, 1, 1] {
        within("the grant", mutex.lock())
            .await
            .unwrap()
            .release()
            .await
            .unwrap();
        assert_eq!(lists(&server, &client), lists_so_far);
    }
    assert_eq!(server.watches_on(DIRECTORY), [session(&client)]);
}

/// Foreign children take numbers too.
// Shows: succession
#[tokio::test]
async fn foreign_child_causes_a_list() {
    let (server, [client]) = with_clients(start(), calm).await;
    let (mutex, _) = hot(&server, &client).await;
    let child = format!("{DIRECTORY}/note");
    server.create(&child, "").unwrap();
    server.delete(&child).unwrap();
    server.reset_counters();
    within("the grant", mutex.lock())
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    assert_eq!(lists(&server, &client), 1);
}

/// The next node queues behind the node whose deletion is unanswered.
// Shows: succession
#[tokio::test]
async fn node_behind_pending_deletion_waits() {
    let (server, [client]) = with_clients(start(), calm).await;
    let (mutex, _) = hot(&server, &client).await;
    let guard = within("the grant", mutex.lock()).await.unwrap();
    let gate = server.hold_request(Match::op(Op::Delete).session(session(&client)));
    let release = tokio::spawn(guard.release());
    within("the deletion", gate.wait_hit()).await;
    let attempt = tokio::spawn({
        let mutex = Arc::clone(&mutex);
        async move { mutex.lock().await }
    });
    // The held request delays everything behind it on the connection, so no event can show that no
    // second node exists: a grant would follow from what the client knows, without an answer.
    never_for(
        Duration::from_millis(300),
        &server,
        "a second node",
        |view| view.children(DIRECTORY).len() > 1,
    )
    .await;
    assert!(!attempt.is_finished());
    gate.release();
    within("the release", release).await.unwrap().unwrap();
    granted(attempt).await.release().await.unwrap();
}

/// The deletion is answered before the create that was sent after it.
// Shows: succession
#[tokio::test]
async fn dropped_guards_deletion_needs_no_list() {
    let (server, [client]) = with_clients(start(), calm).await;
    let (mutex, _) = hot(&server, &client).await;
    server.reset_counters();
    for _ in 0..100 {
        drop(within("the grant", mutex.lock()).await.unwrap());
    }
    within("the last deletion", client.flush(SOON))
        .await
        .unwrap();
    let counters = server.counters();
    assert_eq!(
        counters.requests(Op::Create) + counters.requests(Op::Delete),
        200
    );
    // A call that overtakes the deletion lists, and lists again if its list came before the
    // deletion too; so do three later calls.
    let (mut nodes, mut overtaking) = (0, 0);
    for entry in server.log() {
        match entry.op {
            _ if (entry.session, entry.kind) != (session(&client), LogKind::Arrived) => {}
            Op::Create => {
                overtaking += u64::from(nodes > 0);
                nodes += 1;
            }
            Op::Delete => nodes -= 1,
            _ => {}
        }
    }
    let lists = lists(&server, &client);
    assert!(
        lists <= 5 * overtaking,
        "{lists} lists, and {overtaking} overtook a deletion"
    );
}

/// A conversion takes a number, and leaves a node with an older one.
// Shows: succession
#[tokio::test]
async fn conversion_causes_a_list() {
    let (server, [client]) = with_clients(start(), calm).await;
    let (lock, write) = (
        read_write::lock(&client),
        read_write::lock(&client).write_lock(),
    );
    for _ in 0..4 {
        within("the grant", write.lock())
            .await
            .unwrap()
            .release()
            .await
            .unwrap();
    }
    let writer = within("the grant", lock.write_lock().lock()).await.unwrap();
    let reader = within("the downgrade", writer.downgrade()).await.unwrap();
    server.reset_counters();
    let beside = within("the other reader", lock.read_lock().lock())
        .await
        .unwrap();
    assert_eq!(lists(&server, &client), 1);
    beside.release().await.unwrap();
    let attempt = tokio::spawn(async move { write.lock().await });
    watches(&server, &client, &reader.node()).await;
    assert!(!attempt.is_finished());
    reader.release().await.unwrap();
    granted(attempt).await.release().await.unwrap();
}
