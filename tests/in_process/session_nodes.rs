//! How many nodes one session may own, by the bytes of their paths: ZooKeeper logs all of them at
//! once when the session ends.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test")]

use test_support::prelude::*;

/// Returns the bytes of a mutex's node at a path: `/_c_`, a UUID, `-lock-`, ten digits, and four
/// bytes for the length.
fn mutex_bytes(path: &str) -> usize {
    path.len() + "/_c_".len() + 36 + "-lock-".len() + 10 + 4
}

/// A client whose session has room for this many nodes of mutexes at paths as long as
/// [`DIRECTORY`].
async fn with_room_for(server: &Server, mutexes: usize) -> Client {
    let builder = Client::builder()
        .session_timeout(HOUR)
        .connect_timeout(SOON)
        .retry_policy(eager())
        .max_ephemeral_bytes(mutexes * mutex_bytes(DIRECTORY));
    connect_as(builder, server).await
}

/// A mutex at the path with this number.
fn numbered(client: &Client, number: usize) -> InterProcessMutex {
    let path = format!("/locks/nr-{number:03}");
    assert_eq!(path.len(), DIRECTORY.len());
    InterProcessMutex::new(client, path).unwrap()
}

fn assert_full(error: &AcquireError, mutexes: usize) {
    let AcquireError::TooManyNodes { max, .. } = error else {
        panic!("{error:?}")
    };
    assert_eq!(*max, mutexes * mutex_bytes(DIRECTORY));
    assert!(error.is_retryable());
    assert!(error.to_string().contains("max_ephemeral_bytes"), "{error}");
}

// Shows: session-nodes
#[tokio::test]
async fn full_session_refuses_acquires() {
    let server = start_empty();
    let client = with_room_for(&server, 3).await;
    let mut guards = Vec::new();
    for number in 0..3 {
        guards.push(
            within("a lock", numbered(&client, number).lock())
                .await
                .unwrap(),
        );
    }
    let created = server.counters().requests_of(session(&client), Op::Create);
    let next = numbered(&client, 3);
    assert_full(&within("an answer", next.lock()).await.unwrap_err(), 3);
    let error = within("an answer", next.try_lock()).await.unwrap_err();
    let TryLockError::Acquire(error) = error else {
        panic!("{error:?}")
    };
    assert_full(&error, 3);
    let after = server.counters().requests_of(session(&client), Op::Create);
    assert_eq!(after, created, "no node was asked for");
    // The next lock takes the room of a released one.
    guards.remove(0).release().await.unwrap();
    guards.push(within("a lock", next.lock()).await.unwrap());
    let other = InterProcessFairLock::new(&client, "/locks/nr-004").unwrap();
    assert_full(&within("an answer", other.lock()).await.unwrap_err(), 3);
    drop(guards);
    within("the deletions", client.flush(SOON)).await.unwrap();
    for number in 0..3 {
        drop(
            within("a lock", numbered(&client, number).lock())
                .await
                .unwrap(),
        );
        within("the deletion", client.flush(SOON)).await.unwrap();
    }
}

/// Permits, readers, nodes and members count like locks.
// Shows: session-nodes
#[tokio::test]
async fn nodes_of_all_recipes_count() {
    let server = start_empty();
    let client = with_room_for(&server, 4).await;
    let semaphore = InterProcessSemaphore::new(&client, "/s", 9).unwrap();
    // A lease has more bytes than a lock node.
    let permits = within("permits", semaphore.acquire_many(2, SOON))
        .await
        .unwrap();
    let too_many = within("an answer", semaphore.acquire_many(2, SOON)).await;
    assert_full(&too_many.unwrap_err(), 4);
    within("the deletion", client.flush(SOON)).await.unwrap();
    let lock = InterProcessReadWriteLock::new(&client, "/rw").unwrap();
    let reader = within("a reader", lock.read_lock().lock()).await.unwrap();
    assert_full(
        &within("an answer", numbered(&client, 0).lock())
            .await
            .unwrap_err(),
        4,
    );
    let node = PersistentNode::new(&client, format!("/{}", "n".repeat(99)), "").unwrap();
    let error = within("an answer", node.wait_for_initial_create(SOON))
        .await
        .unwrap_err();
    assert!(
        matches!(error, PersistentNodeError::TooManyNodes { .. }),
        "{error:?}"
    );
    within("the end", node.close()).await.unwrap();
    reader.release().await.unwrap();
    let node = PersistentNode::new(&client, format!("/{}", "n".repeat(60)), "").unwrap();
    within("the node", node.wait_for_initial_create(SOON))
        .await
        .unwrap();
    assert_full(
        &within("an answer", numbered(&client, 0).lock())
            .await
            .unwrap_err(),
        4,
    );
    within("the end", node.close()).await.unwrap();
    drop(permits);
    within("the deletions", client.flush(SOON)).await.unwrap();
    let mut guards = Vec::new();
    for number in 0..4 {
        guards.push(
            within("a lock", numbered(&client, number).lock())
                .await
                .unwrap(),
        );
    }
}

/// The node of an unanswered create counts until its outcome is known.
// Shows: session-nodes, unknown-outcome
#[tokio::test]
async fn lost_replies_free_their_nodes() {
    let server = start_empty();
    let client = with_room_for(&server, 4).await;
    let id = session(&client);
    drop(within("a lock", numbered(&client, 0).lock()).await.unwrap());
    within("the deletion", client.flush(SOON)).await.unwrap();
    for carried_out in [true, false] {
        for round in 0..4 {
            // The call continues with another node, or with the one that was made.
            let lost = lose(
                &server,
                Match::op(Op::Create).session(id),
                carried_out,
                Loss::Close,
            );
            let guard = within("a lock", numbered(&client, 0).lock()).await.unwrap();
            assert_eq!(lost.hits().len(), 1, "{carried_out} {round}");
            drop(guard);
            within("the deletions", client.flush(SOON)).await.unwrap();
            // The caller has left.
            let gate = hold_back(&server, Match::op(Op::Create).session(id), carried_out);
            let call = ByHand::new(numbered(&client, 0).lock()).start();
            within("the create", gate.wait_hit()).await;
            drop(call);
            assert!(server.cut(id, Cut::Reset));
            gate.release();
            within("the deletions", client.flush(SOON)).await.unwrap();
            // A release is not answered.
            let guard = within("a lock", numbered(&client, 0).lock()).await.unwrap();
            drop(lose(
                &server,
                Match::op(Op::Delete).session(id),
                carried_out,
                Loss::Close,
            ));
            drop(guard);
            within("the deletions", client.flush(SOON)).await.unwrap();
        }
    }
    let permits = InterProcessSemaphore::new(&client, "/s", 9).unwrap();
    for carried_out in [true, false] {
        let _lost = lose(
            &server,
            Match::op(Op::Multi).session(id),
            carried_out,
            Loss::Close,
        );
        drop(within("a permit", permits.acquire(SOON)).await.unwrap());
        within("the deletions", client.flush(SOON)).await.unwrap();
    }
    let mut guards = Vec::new();
    for number in 0..4 {
        guards.push(
            within("a lock", numbered(&client, number).lock())
                .await
                .unwrap(),
        );
    }
    assert_full(
        &within("an answer", numbered(&client, 4).lock())
            .await
            .unwrap_err(),
        4,
    );
}

/// A node stays until its session ends if its deletion is refused.
// Shows: session-nodes
#[tokio::test]
async fn refused_persistent_node_counts() {
    let server = start_empty();
    let client = with_room_for(&server, 4).await;
    let path = format!("/{}", "n".repeat(60));
    let node = PersistentNode::new(&client, &path, "").unwrap();
    within("the node", node.wait_for_initial_create(SOON))
        .await
        .unwrap();
    let refused = Match::op(Op::Delete).path_prefix(path);
    server.fail(refused.always(), ServerError::NoAuth.code());
    within("the end", node.close()).await.unwrap_err();
    let mut guards = Vec::new();
    for number in 0..3 {
        guards.push(
            within("a lock", numbered(&client, number).lock())
                .await
                .unwrap(),
        );
    }
    assert_full(
        &within("an answer", numbered(&client, 3).lock())
            .await
            .unwrap_err(),
        4,
    );
}
