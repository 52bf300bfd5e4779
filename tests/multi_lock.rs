//! What a multi-lock does, against the in-process server: docs/protocol.md#multi-lock.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::time::{Duration, Instant};

use test_support::in_process::{connect, queue_at};
use test_support::{SOON, within};
use zookeeper_recipes::{
    AcquireError, BuildError, Client, InterProcessFairLock, InterProcessLock, InterProcessMultiLock,
    InterProcessMutex, InterProcessReadWriteLock, LockGuard, LockState, MultiLockGuard, TryLockError,
};
use zookeeper_test_server::{LogEntry, Match, Op, Server, ServerError};

const A: &str = "/multi/a";
const B: &str = "/multi/b";
const C: &str = "/multi/c";

fn multi(client: &Client, paths: &[&str]) -> InterProcessMultiLock {
    InterProcessMultiLock::of_mutexes(client, paths).unwrap()
}

async fn hold(client: &Client, paths: &[&str]) -> MultiLockGuard {
    within("all members", multi(client, paths).lock()).await.unwrap()
}

async fn hold_one(client: &Client, path: &str) -> LockGuard {
    within("the lock", InterProcessMutex::new(client, path).unwrap().lock()).await.unwrap()
}

fn assert_empty(server: &Server) {
    for path in [A, B, C] {
        assert_eq!(queue_at(server, path), [""; 0], "{path}");
    }
}

#[tokio::test]
async fn all_members_are_held_in_the_order_given() {
    let server = Server::start().unwrap();
    let client = connect(&server).await;
    let guard = hold(&client, &[C, A, B]).await;
    assert_eq!(guard.paths(), [C, A, B]);
    let nodes = guard.nodes();
    for (path, node) in [C, A, B].into_iter().zip(&nodes) {
        assert_eq!(queue_at(&server, path), [node.as_str()]);
    }
    let created: Vec<i64> = nodes.iter().map(|node| server.node(node).unwrap().czxid).collect();
    let tokens: Vec<i64> = guard.fencing_tokens().iter().map(|token| token.zxid()).collect();
    assert_eq!(tokens, created);
    assert_eq!(guard.state(), LockState::Held);
    within("the release", guard.release()).await.unwrap();
    assert_empty(&server);
}

#[tokio::test]
async fn each_member_excludes_as_a_lock_of_its_kind() {
    let server = Server::start().unwrap();
    let (client, other) = (connect(&server).await, connect(&server).await);
    let (fair, mutex) =
        (InterProcessFairLock::new(&client, A).unwrap(), InterProcessMutex::new(&client, B).unwrap());
    let prices = InterProcessReadWriteLock::new(&client, C).unwrap();
    let multi = InterProcessMultiLock::new(&[&prices.read_lock(), &mutex, &fair]).unwrap();
    let guard = within("all members", multi.lock()).await.unwrap();
    assert!(multi.is_acquired_in_this_process() && mutex.is_acquired_in_this_process());
    for path in [A, B] {
        let busy = InterProcessMutex::new(&other, path).unwrap().try_lock().await.unwrap_err();
        assert!(matches!(busy, TryLockError::WouldBlock { .. }), "{busy}");
    }
    let theirs = InterProcessReadWriteLock::new(&other, C).unwrap();
    let reader = within("another reader", theirs.read_lock().lock()).await.unwrap();
    let busy = theirs.write_lock().try_lock().await.unwrap_err();
    assert!(matches!(busy, TryLockError::WouldBlock { .. }), "{busy}");
    drop((guard, reader));
    client.flush(SOON).await.unwrap();
    other.flush(SOON).await.unwrap();
    assert!(!multi.is_acquired_in_this_process());
    assert_empty(&server);
}

#[tokio::test]
async fn members_that_cannot_be_held_together_are_refused() {
    let server = Server::start().unwrap();
    let builder = Client::builder().namespace("shop");
    let (client, other) = (
        builder.clone().connect(&server.connect_string()).await.unwrap(),
        builder.connect(&server.connect_string()).await.unwrap(),
    );
    server.reset_counters();
    assert_eq!(InterProcessMultiLock::new(&[]).unwrap_err(), BuildError::NoMembers);
    let (a, b) = (InterProcessMutex::new(&client, A).unwrap(), InterProcessMutex::new(&client, B).unwrap());
    let duplicate = |locks: &[&dyn InterProcessLock]| {
        let error = InterProcessMultiLock::new(locks).unwrap_err();
        assert!(matches!(error, BuildError::DuplicateMember { .. }), "{error}");
        error.path().to_owned()
    };
    assert_eq!(duplicate(&[&b, &a, &InterProcessMutex::new(&client, A).unwrap()]), A);
    assert_eq!(duplicate(&[&a, &b, &InterProcessFairLock::new(&client, A).unwrap()]), A);
    let lock = InterProcessReadWriteLock::new(&client, C).unwrap();
    assert_eq!(duplicate(&[&lock.read_lock(), &lock.write_lock()]), C);
    assert_eq!(duplicate(&[&lock.read_lock(), &lock.read_lock()]), C);
    let elsewhere = InterProcessMutex::new(&other, B).unwrap();
    let error = InterProcessMultiLock::new(&[&a, &elsewhere]).unwrap_err();
    assert!(matches!(&error, BuildError::OtherClient { path, .. } if path == B), "{error}");
    let same = InterProcessMutex::new(&client.clone(), B).unwrap();
    assert!(InterProcessMultiLock::new(&[&a, &same]).is_ok());
    let paths = |n: usize| (0..n).map(|i| format!("/many/{i}"));
    let error = InterProcessMultiLock::of_mutexes(&client, paths(1_001)).unwrap_err();
    assert!(matches!(error, BuildError::TooManyMembers { members: 1_001, max: 1_000, .. }), "{error}");
    assert!(InterProcessMultiLock::of_mutexes(&client, paths(1_000)).is_ok());
    let error = InterProcessMultiLock::of_mutexes(&client, ["/a", "b"]).unwrap_err();
    assert!(matches!(error, BuildError::InvalidPath(_)), "{error}");
    assert_eq!(server.counters().total_requests(), 0, "it is decided here");
}

#[tokio::test]
async fn one_that_is_not_free_in_time_is_named_and_the_others_are_released() {
    let server = Server::start().unwrap();
    let (client, other) = (connect(&server).await, connect(&server).await);
    let held = hold_one(&other, B).await;
    let multi = multi(&client, &[C, B, A]);
    let time = Duration::from_millis(200);
    let started = Instant::now();
    let error = within("the deadline", multi.acquire(time)).await.unwrap_err();
    let took = started.elapsed();
    let AcquireError::TimedOut { path, timeout, waited, first, .. } = &error else { panic!("{error}") };
    assert_eq!((path.as_str(), *timeout, first.as_deref()), (B, time, Some(held.node().as_str())));
    assert!(*waited >= time && took < 2 * time, "{waited:?} {took:?}");
    client.flush(SOON).await.unwrap();
    assert_eq!((queue_at(&server, A).len(), queue_at(&server, C).len()), (0, 0));
    let error = within("the answer", multi.try_lock()).await.unwrap_err();
    assert!(matches!(&error, TryLockError::WouldBlock { path, .. } if path == B), "{error}");
    held.release().await.unwrap();
    let guard = within("all members", multi.try_lock()).await.unwrap();
    within("the release", guard.release()).await.unwrap();
    assert_empty(&server);
}

/// Curator gives each member the whole time, and goes on after an error.
#[tokio::test]
async fn there_is_one_deadline_and_it_stops_at_the_first_error() {
    let server = Server::start().unwrap();
    let (client, other) = (connect(&server).await, connect(&server).await);
    let held = [hold_one(&other, A).await, hold_one(&other, B).await, hold_one(&other, C).await];
    let time = Duration::from_millis(300);
    let started = Instant::now();
    let error = within("the deadline", multi(&client, &[A, B, C]).acquire(time)).await.unwrap_err();
    assert!(started.elapsed() < 2 * time, "{:?}", started.elapsed());
    assert_eq!(error.path(), A);
    drop(held);
    other.flush(SOON).await.unwrap();
    client.flush(SOON).await.unwrap();
    for op in [Op::Create, Op::Multi] {
        let refused = Match::op(op).path_prefix(format!("{B}/"));
        server.fail(refused.always(), ServerError::NoAuth.code());
    }
    let before = server.log().len();
    let error = within("the refusal", multi(&client, &[A, B, C]).lock()).await.unwrap_err();
    assert!(matches!(&error, AcquireError::NoAuth { path, .. } if path == B), "{error}");
    client.flush(SOON).await.unwrap();
    let below = |path: &str| format!("{path}/");
    assert!(
        server.log().iter().skip(before).all(|entry| !entry.path.starts_with(&below(C))),
        "it went on after the error"
    );
    assert_empty(&server);
}
