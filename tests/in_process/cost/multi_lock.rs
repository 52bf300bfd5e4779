//! The cost of a multi-lock: docs/protocol.md#multi-lock.

use test_support::prelude::*;

use super::requests;

const PATHS: [&str; 8] = [
    "/m/a", "/m/b", "/m/c", "/m/d", "/m/e", "/m/f", "/m/g", "/m/h",
];

fn start() -> Server {
    let server = Server::builder().max_session_timeout(HOUR).start().unwrap();
    for path in PATHS {
        server.create(path, "").unwrap();
    }
    server
}

fn multi(client: &Client) -> InterProcessMultiLock {
    InterProcessMultiLock::from_paths(client, PATHS).unwrap()
}

async fn hold(client: &Client, path: &str) -> LockGuard {
    within(
        "the grant",
        InterProcessMutex::new(client, path).unwrap().lock(),
    )
    .await
    .unwrap()
}

/// Starts to acquire all locks, and waits until the attempt watches the holder of one of them.
async fn waiting(
    server: &Server,
    client: &Client,
    held: &LockGuard,
) -> JoinHandle<Acquired<MultiLockGuard>> {
    let (id, node) = (session(client), held.node());
    let attempt = tokio::spawn(multi(client).lock());
    until(server, "the watch", move |view| {
        view.watches_on(&node).contains(&id)
    })
    .await;
    attempt
}

// Shows: multi-lock
#[tokio::test]
async fn free_multi_lock_costs_two_each() {
    let (server, [client]) = with_clients(start(), calm).await;
    let (id, multi) = (session(&client), multi(&client));
    for _ in 0..2 {
        server.reset_counters();
        let guard = within("the grant", multi.acquire(SOON)).await.unwrap();
        assert_eq!(
            requests(&server, id),
            [(Op::Create, 8), (Op::GetChildren, 8)]
        );
        assert_eq!(server.watches(), 0);
        server.reset_counters();
        guard.release().await.unwrap();
        assert_eq!(requests(&server, id), [(Op::Delete, 8)]);
    }
}

// Shows: multi-lock
#[tokio::test]
async fn release_deletes_in_one_flight() {
    let (server, [client]) = with_clients(start(), calm).await;
    let id = session(&client);
    let guard = within("the grant", multi(&client).lock()).await.unwrap();
    let gate = server.hold_reply(Match::op(Op::Delete).session(id));
    let release = tokio::spawn(guard.release());
    until(&server, "the deletions", move |view| {
        view.counters().requests_of(id, Op::Delete) == 8
    })
    .await;
    gate.release();
    within("the release", release).await.unwrap().unwrap();
}

/// A contender that wants several locks and waits for the first still finds the others free.
// Shows: multi-lock
#[tokio::test]
async fn release_begins_with_last_member() {
    for how in ["released", "dropped", "given up"] {
        let (server, [client, other]) = with_clients(start(), calm).await;
        let held = match how {
            "given up" => Some(hold(&other, "/m/h").await),
            _ => None,
        };
        match (how, &held) {
            ("released", _) => {
                let guard = within("the grant", multi(&client).lock()).await.unwrap();
                within("the release", guard.release()).await.unwrap();
            }
            (_, Some(held)) => {
                let attempt = waiting(&server, &client, held).await;
                attempt.abort();
            }
            _ => drop(within("the grant", multi(&client).lock()).await.unwrap()),
        }
        let members = if held.is_some() { 7 } else { 8 };
        until(&server, "the deletions", move |view| {
            PATHS
                .iter()
                .take(members)
                .all(|path| view.children(path).is_empty())
        })
        .await;
        let deleted = |path: &str| {
            let log = server.log();
            let mut deletions = log
                .iter()
                .filter(|entry| entry.op == Op::Delete && entry.kind == LogKind::Applied);
            deletions
                .position(|entry| entry.path.starts_with(path))
                .unwrap()
        };
        let order: Vec<usize> = PATHS
            .iter()
            .take(members)
            .map(|path| deleted(path))
            .collect();
        assert!(
            order.is_sorted_by(|one, next| one > next),
            "{how}: {order:?}"
        );
    }
}

/// A node in a later queue would block others, or let them deadlock with this client.
// Shows: multi-lock
#[tokio::test]
async fn busy_member_stops_further_creates() {
    let (server, [client, other]) = with_clients(start(), calm).await;
    let held = hold(&other, "/m/d").await;
    server.reset_counters();
    let attempt = waiting(&server, &client, &held).await;
    assert_eq!(
        requests(&server, session(&client)),
        [(Op::Create, 4), (Op::GetChildren, 4), (Op::GetData, 1)]
    );
    assert_eq!(
        PATHS.map(|path| queue_at(&server, path).len()),
        [1, 1, 1, 2, 0, 0, 0, 0]
    );
    within("the release", held.release()).await.unwrap();
    within("the grant", attempt)
        .await
        .unwrap()
        .unwrap()
        .release()
        .await
        .unwrap();
}

// Shows: multi-lock-try
#[tokio::test]
async fn busy_try_writes_nothing() {
    let (server, [client, other]) = with_clients(start(), calm).await;
    let id = session(&client);
    let held = hold(&other, "/m/f").await;
    server.reset_counters();
    let error = within("the answer", multi(&client).try_lock())
        .await
        .unwrap_err();
    assert!(
        matches!(&error, TryLockError::WouldBlock { path, .. } if path == "/m/f"),
        "{error}"
    );
    assert_eq!(requests(&server, id), [(Op::Sync, 1), (Op::MultiRead, 2)]);
    held.release().await.unwrap();
    server.reset_counters();
    let guard = within("the grant", multi(&client).try_lock())
        .await
        .unwrap();
    // Each member also lists by itself, because another contender may have come in between.
    assert_eq!(
        requests(&server, id),
        [(Op::Create, 8), (Op::GetChildren, 16), (Op::MultiRead, 1)]
    );
    guard.release().await.unwrap();
}

/// A request over 1 MiB makes the server close the connection.
// Shows: multi-lock-try
#[tokio::test]
async fn large_try_looks_in_several_requests() {
    let (server, [client]) = with_clients(start(), calm).await;
    let large: Vec<String> = (10..80)
        .map(|member| format!("/{member}{}", "x".repeat(16_000)))
        .collect();
    let many: Vec<String> = (0..250).map(|member| format!("/m/{member:03}")).collect();
    for paths in [large, many] {
        let multi = InterProcessMultiLock::from_paths(&client, &paths).unwrap();
        drop(within("the directories", multi.lock()).await.unwrap());
        client.flush(SOON).await.unwrap();
        server.reset_counters();
        let guard = within("the grant", multi.try_lock()).await.unwrap();
        assert_eq!(
            server
                .counters()
                .requests_of(session(&client), Op::MultiRead),
            3
        );
        guard.release().await.unwrap();
    }
}

/// Where the servers cannot read several nodes in one request, each is listed separately, in the
/// same flight.
// Shows: multi-lock-try
#[tokio::test]
async fn missing_multi_reads_cost_single_lists() {
    let (server, [client]) = with_clients(start(), calm).await;
    let (id, multi) = (session(&client), multi(&client));
    // The code is Unimplemented, as ZooKeeper 3.4 and 3.5 answer.
    server.fail(Match::op(Op::MultiRead).always(), -6);
    for reads in [1, 0] {
        server.reset_counters();
        let guard = within("the grant", multi.try_lock()).await.unwrap();
        assert_eq!(server.counters().requests_of(id, Op::MultiRead), reads);
        assert_eq!(server.counters().requests_of(id, Op::GetChildren), 24);
        guard.release().await.unwrap();
    }
}
