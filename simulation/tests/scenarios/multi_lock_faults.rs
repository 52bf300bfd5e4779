//! Faults of a multi-lock (docs/protocol.md#multi-lock): lost replies, and nodes that other
//! processes delete. `cancellation` tests faults at every point of a call.

use ::simulation::scenario::tokio;
use test_support::prelude::*;

const PATHS: [&str; 4] = ["/multi/a", "/multi/b", "/multi/c", "/multi/d"];
const B: &str = PATHS[1];

/// A create or a list is lost, its reply is lost, or the server answers with an unknown code.
// Shows: multi-lock
#[tokio::test]
async fn lost_requests_and_replies_are_resolved() {
    for (op, nth) in [(Op::Create, 0), (Op::Create, 2), (Op::GetChildren, 2)] {
        for fault in 0..3 {
            let server = start_empty();
            PATHS
                .iter()
                .for_each(|path| server.create(path, "").unwrap());
            let client = calm(&server).await;
            let multi = InterProcessMultiLock::from_paths(&client, PATHS).unwrap();
            let id = session(&client);
            let struck = Match::op(op).session(id).nth(nth);
            let what = format!("{op:?} {nth} {fault}");
            match fault {
                0 => drop(server.drop_reply(struck, Loss::Close)),
                1 => drop(server.drop_request(struck, Loss::Close)),
                // An unknown code says nothing about what was done.
                _ => drop(server.fail(struck, -999)),
            }
            let guard = within(&what, multi.lock()).await.unwrap();
            client.flush(SOON).await.unwrap();
            let nodes: Vec<String> = PATHS
                .iter()
                .flat_map(|path| queue_at(&server, path))
                .collect();
            let ours: Vec<String> = guard.nodes().iter().map(|node| node.to_string()).collect();
            assert_eq!(nodes, ours, "{what}");
            let created: Vec<i64> = ours
                .iter()
                .map(|node| server.node(node).unwrap().czxid)
                .collect();
            let tokens: Vec<i64> = guard
                .fencing_tokens()
                .iter()
                .map(|token| token.zxid())
                .collect();
            assert_eq!(tokens, created, "{what}");
            assert_eq!(session(&client), id, "{what}");
            within(&what, guard.release()).await.unwrap();
        }
    }
}

/// A try waits for the servers for one connect timeout in all, not for one for each member.
// Shows: multi-lock
#[tokio::test]
async fn try_has_one_deadline_for_all() {
    let server = start_empty();
    PATHS
        .iter()
        .for_each(|path| server.create(path, "").unwrap());
    let time = Duration::from_millis(400);
    let client = connect_as(Client::builder().connect_timeout(time), &server).await;
    let multi = InterProcessMultiLock::from_paths(&client, PATHS).unwrap();
    server.delay_reply(
        Match::op(Op::Create).path_prefix("/multi/").always(),
        time / 2,
    );
    // With a deadline for each member, all would be in time.
    let error = within("the end", multi.try_lock()).await.unwrap_err();
    assert_eq!(error.kind(), Some(ErrorKind::Connection), "{error}");
    server.clear_faults();
    within("the clean-up", client.flush(SOON)).await.unwrap();
    assert_eq!(
        PATHS
            .iter()
            .map(|path| queue_at(&server, path).len())
            .sum::<usize>(),
        0
    );
}

/// Connects a client that checks its nodes every second, and keeps its locks when nothing is
/// answered for three seconds.
async fn beating(server: &Server, policy: RetryPolicy) -> Client {
    connect_as(
        Client::builder()
            .session_timeout(Duration::from_secs(6))
            .retry_policy(policy),
        server,
    )
    .await
}

/// Another process deletes the node of a held member while the call waits for another member: the
/// call gives up all members and starts over.
// Shows: multi-lock-loss
#[tokio::test]
async fn member_deletion_restarts_the_acquire() {
    let server = start_empty();
    PATHS
        .iter()
        .for_each(|path| server.create(path, "").unwrap());
    let client = beating(&server, eager()).await;
    let other = calm(&server).await;
    let multi = InterProcessMultiLock::from_paths(&client, PATHS).unwrap();
    let held = within(
        "the holder",
        InterProcessMutex::new(&other, B).unwrap().lock(),
    )
    .await
    .unwrap();
    let (node, id) = (held.node(), session(&client));
    let attempt = tokio::spawn(multi.lock());
    let watched = node.clone();
    until(&server, "the watch", move |view| {
        view.watches_on(&watched).contains(&id)
    })
    .await;
    let (mine, waiting) = (queue_at(&server, PATHS[0]), queue_at(&server, B)[1].clone());
    server.delete(&mine[0]).unwrap();
    // The heartbeat reports the deletion. Then the call queues anew, in the order of the paths.
    until(&server, "the next start of the call", move |view| {
        let first = view.children(PATHS[0]);
        !view.exists(&waiting) && first.len() == 1 && view.watches_on(&node).contains(&id)
    })
    .await;
    held.release().await.unwrap();
    let guard = within("all members", attempt).await.unwrap().unwrap();
    within("the release", guard.release()).await.unwrap();
}

/// Deletions in a row are counted against the retry policy.
// Shows: multi-lock-loss
#[tokio::test]
async fn repeated_member_deletions_end_the_call() {
    let server = start_empty();
    PATHS
        .iter()
        .for_each(|path| server.create(path, "").unwrap());
    let policy = RetryPolicy::n_times(2, Duration::from_millis(1));
    let client = beating(&server, policy).await;
    let other = calm(&server).await;
    let multi = InterProcessMultiLock::from_paths(&client, PATHS).unwrap();
    let held = within(
        "the holder",
        InterProcessMutex::new(&other, B).unwrap().lock(),
    )
    .await
    .unwrap();
    let (node, id) = (held.node(), session(&client));
    let attempt = tokio::spawn(multi.lock());
    let mut watches = 0;
    for _ in 0..3 {
        // Each round uses another node, because the last one may not be removed yet.
        let watched = node.clone();
        until(&server, "the watch", move |view| {
            view.children(B).len() == 2
                && view.counters().requests_of(id, Op::GetData) > watches
                && view.watches_on(&watched).contains(&id)
        })
        .await;
        watches = server.counters().requests_of(id, Op::GetData);
        let waiting = queue_at(&server, B)[1].clone();
        server.delete(&queue_at(&server, PATHS[0])[0]).unwrap();
        until(&server, "the call to give up its places", move |view| {
            !view.exists(&waiting)
        })
        .await;
    }
    let error = within("the end", attempt).await.unwrap().unwrap_err();
    assert!(
        matches!(&error, AcquireError::NodeDeleted { path, times: 3, .. } if path == PATHS[0]),
        "{error}"
    );
    client.flush(SOON).await.unwrap();
    let left: Vec<String> = PATHS
        .iter()
        .flat_map(|path| queue_at(&server, path))
        .collect();
    assert_eq!(left, [node.to_string()]);
    held.release().await.unwrap();
}

/// Once the call has lost a member, another contender is granted two of the members: the two do not
/// wait for each other.
// Shows: multi-lock-loss
#[tokio::test]
async fn lost_member_frees_those_held() {
    let server = start_empty();
    PATHS
        .iter()
        .for_each(|path| server.create(path, "").unwrap());
    let client = beating(&server, eager()).await;
    let (last, other) = (calm(&server).await, calm(&server).await);
    let held = within(
        "the holder",
        InterProcessMutex::new(&last, PATHS[2]).unwrap().lock(),
    )
    .await
    .unwrap();
    let (node, id) = (held.node(), session(&client));
    let multi = InterProcessMultiLock::from_paths(&client, PATHS.into_iter().take(3)).unwrap();
    let attempt = tokio::spawn(multi.lock());
    until(&server, "the wait for the third", move |view| {
        view.watches_on(&node).contains(&id)
    })
    .await;
    let two = InterProcessMultiLock::from_paths(&other, PATHS.into_iter().take(2)).unwrap();
    let two = tokio::spawn(two.lock());
    until(&server, "the wait for the first", |view| {
        view.children(PATHS[0]).len() == 2
    })
    .await;
    server.delete(&queue_at(&server, PATHS[0])[0]).unwrap();
    let two = within("both", two).await.unwrap().unwrap();
    within("the release", two.release()).await.unwrap();
    held.release().await.unwrap();
    let guard = within("all members", attempt).await.unwrap().unwrap();
    within("the release", guard.release()).await.unwrap();
}
