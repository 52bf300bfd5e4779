//! The semaphore, against a server in this process.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use test_support::in_process::{calm, session, start_empty, timed_out, until};
use test_support::{SOON, within};
use tokio::task::JoinSet;
use zookeeper_recipes::{
    AcquireError, BuildError, Client, Contention, ErrorKind, InterProcessSemaphore, LostReason, NodePath,
    ReleaseError, SemaphorePermit, TransactionError, TryLockError,
};
use zookeeper_test_server::Server;

const PATH: &str = "/sem";
const LOCKS: &str = "/sem/locks";
const LEASES: &str = "/sem/leases";
const LIMIT: &str = "/sem/permits";

fn semaphore(client: &Client, permits: u32) -> InterProcessSemaphore {
    InterProcessSemaphore::new(client, PATH, permits).unwrap()
}

pub(crate) async fn acquired(semaphore: &InterProcessSemaphore, n: u32) -> SemaphorePermit {
    within("the permits", semaphore.acquire_many(n, SOON)).await.unwrap()
}

async fn nothing_queues(server: &Server) {
    until(server, "an empty queue", |view| view.children(LOCKS).is_empty()).await;
}

// Shows: permits-by-one-transaction, permit-tokens
#[tokio::test]
async fn so_many_permits_and_no_more() {
    let server = start_empty();
    let (one, two) = (calm(&server).await, calm(&server).await);
    let (one, two) = (semaphore(&one, 3), semaphore(&two, 3));
    let first = acquired(&one, 1).await;
    let second = acquired(&two, 2).await;
    assert_eq!((first.slots(), second.slots()), (vec![0], vec![1, 2]));
    assert_eq!(one.available_permits().await.unwrap(), 0);
    let error = timed_out(|timeout| two.acquire(timeout)).await;
    let AcquireError::TimedOut { contention: Contention { ahead, first: Some(node), holder, .. }, .. } =
        &error
    else {
        panic!("{error}")
    };
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
    let server = start_empty();
    let (one, two) = (calm(&server).await, calm(&server).await);
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

/// A try gives up behind a head that takes more than 200 ms, which a busy machine may make of any: then it is made
/// again. It may not give up earlier.
async fn tried(semaphore: InterProcessSemaphore) -> SemaphorePermit {
    loop {
        let began = Instant::now();
        match semaphore.try_acquire().await {
            Ok(permit) => return permit,
            Err(TryLockError::WouldBlock { .. }) if began.elapsed() >= Duration::from_millis(200) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

// Shows: slots, try-permits
#[tokio::test]
async fn ten_tries_at_once_for_ten_permits_all_succeed() {
    let server = start_empty();
    let client = calm(&server).await;
    let semaphore = semaphore(&client, 10);
    let mut tries = JoinSet::new();
    for _ in 0..10 {
        tries.spawn(tried(semaphore.clone()));
    }
    let permits: Vec<SemaphorePermit> = within("the permits", tries.join_all()).await;
    let mut slots: Vec<u32> = permits.iter().map(SemaphorePermit::slot).collect();
    slots.sort_unstable();
    assert!(slots.into_iter().eq(0..10));
    let busy = semaphore.try_acquire().await.unwrap_err();
    assert!(
        matches!(busy, TryLockError::WouldBlock { contention: Contention { ahead: 10, .. }, .. }),
        "{busy}"
    );
}

// Shows: semaphore-limit
#[tokio::test]
async fn the_limit_for_everybody_counts_as_soon_as_it_is_set() {
    let server = start_empty();
    let (one, two) = (calm(&server).await, calm(&server).await);
    let (one, two) = (semaphore(&one, 1), semaphore(&two, 1));
    let held = acquired(&one, 1).await;
    let waiter = tokio::spawn(two.acquire(SOON));
    until(&server, "the watch", |view| view.watches_on(LIMIT).len() == 1).await;
    one.set_limit(2).await.unwrap();
    assert_eq!(server.node(LIMIT).unwrap().data, 2_i32.to_be_bytes());
    let second = within("the permit", waiter).await.unwrap().unwrap();
    assert_eq!((held.slot(), second.slot(), two.limit().await.unwrap()), (0, 1, 2));
    one.set_limit(1).await.unwrap();
    assert_eq!(two.available_permits().await.unwrap(), 0);
    assert!(held.is_held() && second.is_held());
    held.release().await.unwrap();
    let error = one.try_acquire().await.unwrap_err();
    assert!(matches!(error, TryLockError::WouldBlock { .. }), "{error}");
    second.release().await.unwrap();
    acquired(&one, 1).await.release().await.unwrap();
}

// Shows: semaphore-limit
#[tokio::test]
async fn what_cannot_be_is_said() {
    let server = start_empty();
    let (client, other) = (calm(&server).await, calm(&server).await);
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
    let AcquireError::Request(error) = &error else { panic!("{error}") };
    assert_eq!((error.kind(), error.node()), (ErrorKind::LimitMismatch, Some(&*held.nodes()[0])), "{error}");
    assert!(
        error.to_string().contains(" is 5 here, ") && error.to_string().contains(" limit of 2:"),
        "{error}"
    );
    server.create(LIMIT, b"seven").unwrap();
    let error = semaphore.acquire(SOON).await.unwrap_err();
    assert_eq!(error.kind(), Some(ErrorKind::InvalidLimit), "{error}");
    nothing_queues(&server).await;
}

/// The limit is what counts first. Below it the error says how many one request has room for.
// Shows: semaphore-limit
#[tokio::test]
async fn permits_that_one_request_has_no_room_for_are_said_to_be_too_many() {
    let server = start_empty();
    let client = calm(&server).await;
    let small = semaphore(&client, 10);
    for n in [5_000, u32::MAX] {
        let error = within("the answer", small.acquire_many(n, SOON)).await.unwrap_err();
        assert!(
            matches!(error, AcquireError::TooManyPermits { limit: 10, asked, .. } if asked == n),
            "{error}"
        );
        let error = within("the answer", small.try_acquire_many(n)).await.unwrap_err();
        assert!(matches!(error, TryLockError::Acquire(AcquireError::TooManyPermits { .. })), "{error}");
    }
    let large =
        InterProcessSemaphore::builder(&client, "/large", 100).data(vec![b'x'; 100_000]).build().unwrap();
    let error = within("the answer", large.acquire_many(100, SOON)).await.unwrap_err();
    let AcquireError::TooManyAtOnce { most, asked: 100, .. } = &error else { panic!("{error}") };
    assert!(error.to_string().contains(&format!("{:?}", "/large")) && !error.is_retryable(), "{error}");
    assert_eq!(server.children("/large").len(), 0, "nothing was created for it");
    let permit = within("the permits", large.acquire_many(*most, SOON)).await.unwrap();
    assert_eq!(permit.num_permits(), *most);
    // The limit that is stored counts, not the one that is stated.
    small.set_limit(6_000).await.unwrap();
    let error = within("the answer", small.acquire_many(5_000, SOON)).await.unwrap_err();
    assert!(matches!(error, AcquireError::TooManyAtOnce { .. }), "{error}");
}

#[tokio::test]
async fn permits_are_divided_and_joined() {
    let server = start_empty();
    let (client, elsewhere) = (calm(&server).await, calm(&server).await);
    let pool = semaphore(&client, 5);
    let mut permit = acquired(&pool, 5).await;
    assert!(permit.split(0).is_none() && permit.split(5).is_none() && permit.split(u32::MAX).is_none());
    let two = permit.split(2).unwrap();
    assert_eq!((permit.slots(), two.slots()), (vec![0, 1, 2], vec![3, 4]));
    two.release().await.unwrap();
    assert_eq!(pool.available_permits().await.unwrap(), 2);
    assert!(permit.is_held(), "they are independent of each other");
    let other = within("another", InterProcessSemaphore::new(&client, "/other", 1).unwrap().acquire(SOON))
        .await
        .unwrap();
    let other = permit.merge(other).unwrap_err();
    assert_eq!(other.path(), "/other");
    let theirs = acquired(&semaphore(&elsewhere, 5), 1).await;
    let theirs = permit.merge(theirs).unwrap_err();
    let one = acquired(&pool, 1).await;
    permit.merge(one).unwrap();
    assert_eq!((permit.num_permits(), permit.slots(), permit.slot()), (4, vec![0, 1, 2, 4], 0));
    assert_eq!(theirs.slots(), [3]);
    let handle: InterProcessSemaphore = pool.clone();
    drop(pool);
    permit.release().await.unwrap();
    assert_eq!(handle.available_permits().await.unwrap(), 4);
    assert_eq!(format!("{handle:?}"), r#"InterProcessSemaphore("/sem")"#);
}

// Shows: permit-tokens
#[tokio::test]
async fn a_merged_permit_shows_the_lowest_token() {
    let server = start_empty();
    let client = calm(&server).await;
    let pool = semaphore(&client, 3);
    let (first, mut second) = (acquired(&pool, 1).await, acquired(&pool, 2).await);
    let (older, newer) = (first.fencing_token(), second.fencing_token());
    assert!(older < newer);
    second.merge(first).unwrap();
    assert_eq!(second.fencing_token(), older);
    let newest = second.split(1).unwrap();
    assert_eq!(newest.fencing_token(), newer, "each has its own again");
}

// Shows: permit-tokens
#[tokio::test]
async fn a_transaction_under_permits_commits_only_while_all_are_held() {
    let server = start_empty();
    server.create("/orders", "").unwrap();
    let client = calm(&server).await;
    let permit = acquired(&semaphore(&client, 3), 2).await;
    permit.transaction().create("/orders/1", "").commit().await.unwrap();
    server.delete(&permit.nodes()[1]).unwrap();
    let error = permit.transaction().create("/orders/2", "").commit().await.unwrap_err();
    assert!(matches!(error, TransactionError::Lost(_)), "{error}");
    assert_eq!(server.children("/orders"), ["1"]);
    assert!(!permit.is_held());
}

/// The limit of several semaphores, or of a count that exists already.
#[tokio::test]
async fn the_limit_may_be_stored_elsewhere() {
    let server = start_empty();
    let client = calm(&server).await;
    server.create("/counts/calls", 2_i32.to_be_bytes()).unwrap();
    let build = |path| InterProcessSemaphore::builder(&client, path, 1).shared_count("/counts/calls");
    let (one, two) = (build("/one").build().unwrap(), build("/two").build().unwrap());
    assert_eq!(one.limit().await.unwrap(), 2);
    drop(within("two", one.acquire_many(2, SOON)).await.unwrap());
    two.set_limit(7).await.unwrap();
    assert_eq!((one.limit().await.unwrap(), two.available_permits().await.unwrap()), (7, 7));
    let error =
        InterProcessSemaphore::builder(&client, "/one", 1).shared_count("/other").build().unwrap_err();
    assert!(matches!(error, BuildError::ConflictingOptions { option: "shared_count", .. }), "{error}");
    let error =
        InterProcessSemaphore::builder(&client, "/three", 1).shared_count("relative").build().unwrap_err();
    assert!(matches!(error, BuildError::InvalidPath(_)), "{error}");
    for own in ["/three", "/three/locks", "/three/leases", "/three/leases/limit"] {
        let error =
            InterProcessSemaphore::builder(&client, "/three", 1).shared_count(own).build().unwrap_err();
        assert!(matches!(error, BuildError::InvalidOption { option: "shared_count", .. }), "{own}: {error}");
    }
    for (limit, why) in [(0, "cannot be zero"), (10_001, "cannot be 10001: the largest is 10000")] {
        let error = two.set_limit(limit).await.unwrap_err();
        assert!(error.kind() == ErrorKind::InvalidLimit && error.to_string().contains(why), "{error}");
    }
    assert_eq!(one.limit().await.unwrap(), 7);
}

/// Tasks of one process wait in memory beyond `max_znodes`, and are served in order.
// Shows: bounded-nodes
#[tokio::test]
async fn a_hundred_tasks_share_three_permits() {
    let server = start_empty();
    let client = calm(&server).await;
    let semaphore = InterProcessSemaphore::builder(&client, PATH, 3).max_znodes(2).build().unwrap();
    let inside = Arc::new(AtomicUsize::new(0));
    let mut tasks = JoinSet::new();
    for task in 0..100_u32 {
        let (semaphore, inside) = (semaphore.clone(), Arc::clone(&inside));
        tasks.spawn(async move {
            let n = 1 + task % 3;
            let permit = semaphore.acquire_many(n, SOON).await.unwrap();
            let now = inside.fetch_add(permit.num_permits() as usize, Ordering::SeqCst) + n as usize;
            assert!(now <= 3, "{now} permits");
            tokio::task::yield_now().await;
            inside.fetch_sub(n as usize, Ordering::SeqCst);
            permit.release().await.unwrap();
        });
    }
    within("all tasks", tasks.join_all()).await;
    assert_eq!(semaphore.available_permits().await.unwrap(), 3);
    nothing_queues(&server).await;
}

/// The lease is counted from the grant, and its end is the loss of all.
#[tokio::test]
async fn permits_for_a_lease() {
    let server = start_empty();
    let client = calm(&server).await;
    let pool = semaphore(&client, 2);
    let error = pool.acquire_with_lease(SOON, Duration::ZERO).await.unwrap_err();
    assert!(matches!(error, AcquireError::InvalidLease { .. }), "{error}");
    let permit =
        within("two", pool.acquire_many_with_lease(2, SOON, Duration::from_millis(100))).await.unwrap();
    let waiter = tokio::spawn(semaphore(&client, 2).acquire(SOON));
    assert_eq!(within("the loss", permit.lost()).await.reason(), LostReason::LeaseOver);
    let next = within("the permit", waiter).await.unwrap().unwrap();
    assert!(next.fencing_token() > permit.fencing_token());
    let error = permit.release().await.unwrap_err();
    assert!(matches!(&error, ReleaseError::Lost(lost) if lost.reason() == LostReason::LeaseOver), "{error}");
    assert!(next.is_held() && next.lease_remaining().is_none());
    next.set_lease(Duration::from_secs(60)).unwrap();
    assert!(next.lease_remaining().unwrap() > Duration::from_secs(30));
}

/// No duration is a riddle: zero is a try, and the longest is no deadline.
#[tokio::test]
async fn timeouts_of_any_length() {
    let server = start_empty();
    let client = calm(&server).await;
    let pool = semaphore(&client, 1);
    let permit = within("a free one", pool.acquire(Duration::MAX)).await.unwrap();
    for busy in [
        within("busy", pool.acquire(Duration::ZERO)).await,
        within("busy", pool.acquire_until(Instant::now())).await,
    ] {
        assert!(
            matches!(busy, Err(AcquireError::TimedOut { contention: Contention { ahead: 1, .. }, .. })),
            "{busy:?}"
        );
    }
    permit.release().await.unwrap();
    within("a free one", pool.acquire(Duration::ZERO)).await.unwrap().release().await.unwrap();
}
