//! The semaphore, against a server in this process.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use test_support::in_process::{connect, session, until};
use test_support::{SOON, within};
use tokio::task::JoinSet;
use zookeeper_recipes::{
    AcquireError, BuildError, Client, InterProcessSemaphore, NodePath, SemaphorePermit, TryLockError,
};
use zookeeper_test_server::Server;

const PATH: &str = "/sem";
const LOCKS: &str = "/sem/locks";
const LEASES: &str = "/sem/leases";
const LIMIT: &str = "/sem/permits";

fn semaphore(client: &Client, permits: u32) -> InterProcessSemaphore {
    InterProcessSemaphore::new(client, PATH, permits).unwrap()
}

async fn acquired(semaphore: &InterProcessSemaphore, n: u32) -> SemaphorePermit {
    within("the permits", semaphore.acquire_many(n, SOON)).await.unwrap()
}

async fn nothing_queues(server: &Server) {
    until(server, "an empty queue", |view| view.children(LOCKS).is_empty()).await;
}

#[tokio::test]
async fn so_many_permits_and_no_more() {
    let server = Server::start().unwrap();
    let (one, two) = (connect(&server).await, connect(&server).await);
    let (one, two) = (semaphore(&one, 3), semaphore(&two, 3));
    let first = acquired(&one, 1).await;
    let second = acquired(&two, 2).await;
    assert_eq!((first.slots(), second.slots()), (vec![0], vec![1, 2]));
    assert_eq!(one.available_permits().await.unwrap(), 0);
    let error = two.acquire(Duration::from_millis(50)).await.unwrap_err();
    let AcquireError::TimedOut { ahead, first: Some(node), holder, .. } = &error else { panic!("{error}") };
    assert_eq!((*ahead, node), (3, &first.nodes()[0]));
    assert!(holder.is_some(), "this client holds two of them");
    nothing_queues(&server).await;
    first.release().await.unwrap();
    let third = acquired(&two, 1).await;
    assert_eq!(third.slot(), 0);
    assert!(third.fencing_token() > second.fencing_token());
    let nodes: Vec<NodePath> = second.nodes().into_iter().chain(third.nodes()).collect();
    assert_eq!(one.participants().await.unwrap(), nodes);
    drop((second, third));
    until(&server, "no leases", |view| view.children(LEASES).is_empty()).await;
}

#[tokio::test]
async fn a_returned_permit_goes_to_the_one_that_waits() {
    let server = Server::start().unwrap();
    let (one, two) = (connect(&server).await, connect(&server).await);
    let held = acquired(&semaphore(&one, 1), 1).await;
    let waiter = tokio::spawn(semaphore(&two, 1).acquire(SOON));
    let id = session(&two);
    until(&server, "the watch", move |view| view.watches_on(LEASES) == [id]).await;
    held.release().await.unwrap();
    let permit = within("the permit", waiter).await.unwrap().unwrap();
    assert_eq!((server.children(LOCKS).len(), server.children(LEASES).len()), (0, 1));
    until(&server, "the end of all watches", |view| view.watches() == 0).await;
    permit.release().await.unwrap();
}

#[tokio::test]
async fn ten_tries_at_once_for_ten_permits_all_succeed() {
    let server = Server::start().unwrap();
    let client = connect(&server).await;
    let semaphore = semaphore(&client, 10);
    let mut tries = JoinSet::new();
    for _ in 0..10 {
        tries.spawn(semaphore.try_acquire());
    }
    let permits: Vec<SemaphorePermit> =
        within("the permits", tries.join_all()).await.into_iter().map(Result::unwrap).collect();
    let mut slots: Vec<u32> = permits.iter().map(SemaphorePermit::slot).collect();
    slots.sort_unstable();
    assert!(slots.into_iter().eq(0..10));
    let busy = semaphore.try_acquire().await.unwrap_err();
    assert!(matches!(busy, TryLockError::WouldBlock { ahead: 10, .. }), "{busy}");
}

#[tokio::test]
async fn the_limit_for_everybody_counts_as_soon_as_it_is_set() {
    let server = Server::start().unwrap();
    let (one, two) = (connect(&server).await, connect(&server).await);
    let (one, two) = (semaphore(&one, 1), semaphore(&two, 1));
    let held = acquired(&one, 1).await;
    let waiter = tokio::spawn(two.acquire(SOON));
    until(&server, "the watch", |view| view.watches_on(LIMIT).len() == 1).await;
    one.set_permits(2).await.unwrap();
    assert_eq!(server.node(LIMIT).unwrap().data, 2_i32.to_be_bytes());
    let second = within("the permit", waiter).await.unwrap().unwrap();
    assert_eq!((held.slot(), second.slot(), two.permits().await.unwrap()), (0, 1, 2));
    one.set_permits(1).await.unwrap();
    assert_eq!(two.available_permits().await.unwrap(), 0);
    assert!(held.is_held() && second.is_held());
    held.release().await.unwrap();
    let error = one.try_acquire().await.unwrap_err();
    assert!(matches!(error, TryLockError::WouldBlock { .. }), "{error}");
    second.release().await.unwrap();
    acquired(&one, 1).await.release().await.unwrap();
}

#[tokio::test]
async fn what_cannot_be_is_said() {
    let server = Server::start().unwrap();
    let (client, other) = (connect(&server).await, connect(&server).await);
    let semaphore = semaphore(&client, 2);
    for (permits, good) in [(0, false), (1, true), (10_000, true), (10_001, false)] {
        assert_eq!(InterProcessSemaphore::new(&client, "/other", permits).is_ok(), good, "{permits}");
    }
    let error = InterProcessSemaphore::new(&client, PATH, 3).unwrap_err();
    assert!(matches!(error, BuildError::LimitMismatch { ours: 3, theirs: 2, .. }), "{error}");
    let error = semaphore.acquire_many(3, SOON).await.unwrap_err();
    assert!(matches!(error, AcquireError::TooManyPermits { asked: 3, limit: 2, .. }), "{error}");
    let error = semaphore.acquire_many(0, SOON).await.unwrap_err();
    assert!(matches!(error, AcquireError::ZeroPermits { .. }), "{error}");
    let held = acquired(&semaphore, 1).await;
    let error = InterProcessSemaphore::new(&other, PATH, 5).unwrap().acquire(SOON).await.unwrap_err();
    let AcquireError::LimitMismatch { ours: 5, theirs: 2, node, .. } = &error else { panic!("{error}") };
    assert_eq!(*node, held.nodes()[0]);
    server.create(LIMIT, b"seven").unwrap();
    let error = semaphore.acquire(SOON).await.unwrap_err();
    assert!(matches!(error, AcquireError::InvalidLimit { .. }), "{error}");
    nothing_queues(&server).await;
}
