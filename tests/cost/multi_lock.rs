//! What a multi-lock costs: docs/protocol.md#multi-lock-at-once.

use test_support::in_process::{Acquired, HOUR, calm, queue_at, session, until};
use test_support::{SOON, within};
use tokio::task::JoinHandle;
use zookeeper_recipes::{
    Client, InterProcessMultiLock, InterProcessMutex, LockGuard, MultiLockGuard, TryLockError,
};
use zookeeper_test_server::{LogKind, Match, Op, Server, Version};

use super::requests;

const PATHS: [&str; 8] = ["/m/a", "/m/b", "/m/c", "/m/d", "/m/e", "/m/f", "/m/g", "/m/h"];

fn start(version: Version) -> Server {
    let server = Server::builder().max_session_timeout(HOUR).zookeeper_version(version).start().unwrap();
    for path in PATHS {
        server.create(path, "").unwrap();
    }
    server
}

fn multi(client: &Client) -> InterProcessMultiLock {
    InterProcessMultiLock::from_paths(client, PATHS).unwrap()
}

async fn hold(client: &Client, path: &str) -> LockGuard {
    within("the grant", InterProcessMutex::new(client, path).unwrap().lock()).await.unwrap()
}

/// Starts to acquire all, and waits until it watches the holder of one of them.
async fn waiting(server: &Server, client: &Client, held: &LockGuard) -> JoinHandle<Acquired<MultiLockGuard>> {
    let (id, node) = (session(client), held.node());
    let attempt = tokio::spawn(multi(client).lock());
    until(server, "the watch", move |view| view.watches_on(&node).contains(&id)).await;
    attempt
}

#[tokio::test]
async fn eight_free_locks_cost_two_requests_and_their_release_eight() {
    for (version, reads) in [(Version::V3_9, 1), (Version::V3_8, 2)] {
        let server = start(version);
        let client = calm(&server).await;
        let (id, multi) = (session(&client), multi(&client));
        for _ in 0..3 {
            server.reset_counters();
            let guard = within("the grant", multi.acquire(SOON)).await.unwrap();
            // 3.8.0 does not say when the nodes were created: it is asked.
            assert_eq!(requests(&server, id), [(Op::Multi, 1), (Op::MultiRead, reads)], "{version:?}");
            assert_eq!(server.watches(), 0);
            let tokens = guard.fencing_tokens();
            assert!(tokens.iter().all(|token| token.zxid() == tokens[0].zxid()), "one transaction");
            server.reset_counters();
            guard.release().await.unwrap();
            assert_eq!(requests(&server, id), [(Op::Delete, 8)]);
        }
    }
}

#[tokio::test]
async fn the_transaction_and_the_read_go_out_in_one_flight() {
    let server = start(Version::V3_9);
    let client = calm(&server).await;
    let id = session(&client);
    let gate = server.hold_request(Match::op(Op::Multi).session(id));
    let attempt = tokio::spawn(multi(&client).lock());
    within("the transaction", gate.wait_hit()).await;
    until(&server, "the read", move |view| view.counters().requests_of(id, Op::MultiRead) == 1).await;
    gate.release();
    let guard = within("the grant", attempt).await.unwrap().unwrap();
    // All deletions are on their way before the first is answered.
    let gate = server.hold_reply(Match::op(Op::Delete).session(id));
    let release = tokio::spawn(guard.release());
    until(&server, "the deletions", move |view| view.counters().requests_of(id, Op::Delete) == 8).await;
    gate.release();
    within("the release", release).await.unwrap().unwrap();
}

/// A contender that wants several, and waits for the first, finds the others free.
#[tokio::test]
async fn a_release_begins_with_the_last_member() {
    for how in ["released", "dropped", "given up"] {
        let server = start(Version::V3_9);
        let (client, other) = (calm(&server).await, calm(&server).await);
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
            PATHS.iter().take(members).all(|path| view.children(path).is_empty())
        })
        .await;
        let deleted = |path: &str| {
            let log = server.log();
            let mut deletions =
                log.iter().filter(|entry| entry.op == Op::Delete && entry.kind == LogKind::Applied);
            deletions.position(|entry| entry.path.starts_with(path)).unwrap()
        };
        let order: Vec<usize> = PATHS.iter().take(members).map(|path| deleted(path)).collect();
        assert!(order.is_sorted_by(|one, next| one > next), "{how}: {order:?}");
    }
}

/// The nodes behind it would be in the way of others, or let others deadlock with this client.
#[tokio::test]
async fn nothing_is_kept_behind_a_member_that_is_busy() {
    let server = start(Version::V3_9);
    let (client, other) = (calm(&server).await, calm(&server).await);
    let held = hold(&other, "/m/d").await;
    let id = session(&client);
    server.reset_counters();
    let attempt = waiting(&server, &client, &held).await;
    client.flush(SOON).await.unwrap();
    assert_eq!(
        requests(&server, id),
        [(Op::GetData, 1), (Op::Delete, 4), (Op::Multi, 1), (Op::MultiRead, 1)]
    );
    let queues = PATHS.map(|path| queue_at(&server, path).len());
    assert_eq!(queues, [1, 1, 1, 2, 0, 0, 0, 0]);
    server.reset_counters();
    within("the release", held.release()).await.unwrap();
    let guard = within("the grant", attempt).await.unwrap().unwrap();
    // It lists again, as any contender that has waited; looks at the rest; and creates the rest at once.
    assert_eq!(requests(&server, id), [(Op::GetChildren, 1), (Op::Multi, 1), (Op::MultiRead, 2)]);
    guard.release().await.unwrap();
}

#[tokio::test]
async fn one_that_found_a_member_busy_looks_first_the_next_time() {
    let server = start(Version::V3_9);
    let (client, other) = (calm(&server).await, calm(&server).await);
    let multi = multi(&client);
    let id = session(&client);
    for round in 0..3 {
        let held = hold(&other, "/m/b").await;
        let node = held.node();
        server.reset_counters();
        let attempt = tokio::spawn(multi.lock());
        until(&server, "the watch", move |view| view.watches_on(&node).contains(&id)).await;
        client.flush(SOON).await.unwrap();
        let deleted = if round == 0 { 6 } else { 0 };
        assert_eq!(server.counters().requests_of(id, Op::Delete), deleted, "round {round}");
        held.release().await.unwrap();
        within("the grant", attempt).await.unwrap().unwrap().release().await.unwrap();
    }
    // It waited the last time: it looks once more, and then no more.
    for reads in [2, 1, 1] {
        server.reset_counters();
        let guard = within("the grant", multi.lock()).await.unwrap();
        assert_eq!(requests(&server, id), [(Op::Multi, 1), (Op::MultiRead, reads)]);
        guard.release().await.unwrap();
    }
}

#[tokio::test]
async fn a_try_that_finds_a_member_busy_writes_nothing() {
    let server = start(Version::V3_9);
    let (client, other) = (calm(&server).await, calm(&server).await);
    let id = session(&client);
    let held = hold(&other, "/m/f").await;
    server.reset_counters();
    let error = within("the answer", multi(&client).try_lock()).await.unwrap_err();
    assert!(matches!(&error, TryLockError::WouldBlock { path, .. } if path == "/m/f"), "{error}");
    assert_eq!(requests(&server, id), [(Op::Sync, 1), (Op::MultiRead, 2)]);
    held.release().await.unwrap();
    server.reset_counters();
    let guard = within("the grant", multi(&client).try_lock()).await.unwrap();
    assert_eq!(requests(&server, id), [(Op::Multi, 1), (Op::MultiRead, 2)]);
    guard.release().await.unwrap();
}

/// A transaction has at most a hundred of them.
#[tokio::test]
async fn many_members_cost_a_transaction_for_each_hundred() {
    let server = start(Version::V3_9);
    let paths: Vec<String> = (0..250).map(|index| format!("/m/{index:03}")).collect();
    paths.iter().for_each(|path| server.create(path, "").unwrap());
    let client = calm(&server).await;
    let multi = InterProcessMultiLock::from_paths(&client, &paths).unwrap();
    server.reset_counters();
    let guard = within("the grant", multi.lock()).await.unwrap();
    assert_eq!(requests(&server, session(&client)), [(Op::Multi, 3), (Op::MultiRead, 3)]);
    guard.release().await.unwrap();
}

/// A request over 1 MiB is answered by a closed connection.
#[tokio::test]
async fn large_members_are_not_sent_in_one_request() {
    let server = start(Version::V3_9);
    let client = calm(&server).await;
    let mutex = |path: &&str| {
        let data = vec![b'x'; 200_000];
        InterProcessMutex::builder(&client, path).data(data).build().unwrap()
    };
    let mutexes: Vec<_> = PATHS.iter().map(mutex).collect();
    let locks: Vec<&dyn zookeeper_recipes::InterProcessLock> =
        mutexes.iter().map(|mutex| mutex as _).collect();
    let multi = InterProcessMultiLock::new(&locks).unwrap();
    server.reset_counters();
    let guard = within("the grant", multi.lock()).await.unwrap();
    assert_eq!(requests(&server, session(&client)), [(Op::Multi, 4), (Op::MultiRead, 4)]);
    guard.release().await.unwrap();
}

/// Nor are large paths, in a look.
#[tokio::test]
async fn a_try_of_large_paths_does_not_look_at_all_in_one_request() {
    let server = start(Version::V3_9);
    let client = calm(&server).await;
    let paths: Vec<String> = (10..80).map(|member| format!("/{member}{}", "x".repeat(16_000))).collect();
    let multi = InterProcessMultiLock::from_paths(&client, &paths).unwrap();
    drop(within("the directories", multi.lock()).await.unwrap());
    client.flush(SOON).await.unwrap();
    server.reset_counters();
    let guard = within("the grant", multi.try_lock()).await.unwrap();
    // Three looks, and three creates with their reads.
    assert_eq!(requests(&server, session(&client)), [(Op::Multi, 3), (Op::MultiRead, 6)]);
    guard.release().await.unwrap();
}

/// Each lists by itself, in the same flight, where the servers do not know a read of several nodes.
#[tokio::test]
async fn servers_without_multi_reads_cost_a_list_for_each_member() {
    let server = start(Version::V3_9);
    let client = calm(&server).await;
    let (id, multi) = (session(&client), multi(&client));
    // Unimplemented, as ZooKeeper 3.4 and 3.5 answer.
    server.fail(Match::op(Op::MultiRead).always(), -6);
    for reads in [1, 0] {
        server.reset_counters();
        let guard = within("the grant", multi.lock()).await.unwrap();
        assert_eq!(server.counters().requests_of(id, Op::MultiRead), reads);
        assert_eq!(server.counters().requests_of(id, Op::GetChildren), 8);
        assert_eq!(server.counters().requests_of(id, Op::Multi), 1);
        guard.release().await.unwrap();
    }
    let applied = |entry: &zookeeper_test_server::LogEntry| {
        entry.kind == LogKind::Applied && entry.op == Op::Delete && entry.error == 0
    };
    assert_eq!(server.log().iter().filter(|entry| applied(entry)).count(), 16);
}
