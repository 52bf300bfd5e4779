//! The semaphore, against a server in this process.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use test_support::prelude::*;

const PATH: &str = "/sem";

fn semaphore(client: &Client, permits: u32) -> InterProcessSemaphore {
    InterProcessSemaphore::new(client, PATH, permits).unwrap()
}

pub(crate) async fn acquired(semaphore: &InterProcessSemaphore, n: u32) -> SemaphorePermit {
    within("the permits", semaphore.acquire_many(n, SOON))
        .await
        .unwrap()
}

/// Tries until a permit is acquired. A try gives up behind a head that takes more than 200 ms,
/// which a busy machine may cause for any head, so such a try is repeated. A try must not give up
/// earlier.
async fn tried(semaphore: InterProcessSemaphore) -> SemaphorePermit {
    loop {
        let began = Instant::now();
        match semaphore.try_acquire().await {
            Ok(permit) => return permit,
            Err(TryLockError::WouldBlock { .. })
                if began.elapsed() >= Duration::from_millis(200) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

// Shows: slots, try-permits
#[tokio::test]
async fn ten_tries_take_ten_permits() {
    let (_server, [client]) = with_clients(start_empty(), calm).await;
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
        matches!(
            busy,
            TryLockError::WouldBlock {
                contention: Contention { ahead: 10, .. },
                ..
            }
        ),
        "{busy}"
    );
}

/// The limit is checked first. Below the limit, the error says how many permits fit into one
/// request.
// Shows: semaphore-limit
#[tokio::test]
async fn too_many_permits_for_one_request() {
    let (server, [client]) = with_clients(start_empty(), calm).await;
    let small = semaphore(&client, 10);
    for n in [5_000, u32::MAX] {
        let error = within("the answer", small.acquire_many(n, SOON))
            .await
            .unwrap_err();
        assert!(
            matches!(error, AcquireError::TooManyPermits { limit: 10, asked, .. } if asked == n),
            "{error}"
        );
        let error = within("the answer", small.try_acquire_many(n))
            .await
            .unwrap_err();
        assert!(
            matches!(
                error,
                TryLockError::Acquire(AcquireError::TooManyPermits { .. })
            ),
            "{error}"
        );
    }
    let large = InterProcessSemaphore::builder(&client, "/large", 100)
        .data(vec![b'x'; 100_000])
        .build()
        .unwrap();
    let error = within("the answer", large.acquire_many(100, SOON))
        .await
        .unwrap_err();
    let AcquireError::TooManyAtOnce {
        most, asked: 100, ..
    } = &error
    else {
        panic!("{error}")
    };
    assert!(
        error.to_string().contains(&format!("{:?}", "/large")) && !error.is_retryable(),
        "{error}"
    );
    assert_eq!(
        server.children("/large").len(),
        0,
        "nothing was created for it"
    );
    let permit = within("the permits", large.acquire_many(*most, SOON))
        .await
        .unwrap();
    assert_eq!(permit.num_permits(), *most);
    // The stored limit applies, not the one that the handle states.
    small.set_limit(6_000).await.unwrap();
    let error = within("the answer", small.acquire_many(5_000, SOON))
        .await
        .unwrap_err();
    assert!(
        matches!(error, AcquireError::TooManyAtOnce { .. }),
        "{error}"
    );
}

/// The path may hold the limit of several semaphores, or a count that exists already.
#[tokio::test]
async fn limit_may_be_stored_elsewhere() {
    let (server, [client]) = with_clients(start_empty(), calm).await;
    server.create("/counts/calls", 2_i32.to_be_bytes()).unwrap();
    let build =
        |path| InterProcessSemaphore::builder(&client, path, 1).shared_count("/counts/calls");
    let (one, two) = (
        build("/one").build().unwrap(),
        build("/two").build().unwrap(),
    );
    assert_eq!(one.limit().await.unwrap(), 2);
    drop(within("two", one.acquire_many(2, SOON)).await.unwrap());
    two.set_limit(7).await.unwrap();
    assert_eq!(
        (
            one.limit().await.unwrap(),
            two.available_permits().await.unwrap()
        ),
        (7, 7)
    );
    assert_eq!(
        server.node("/counts/calls").unwrap().data,
        7_i32.to_be_bytes()
    );
    assert!(!server.exists("/one/permits"));
    let below_the_root = InterProcessSemaphore::builder(&client, "/four", 1)
        .shared_count("/limit")
        .build();
    within("the limit", below_the_root.unwrap().set_limit(3))
        .await
        .unwrap();
    assert_eq!(server.node("/limit").unwrap().data, 3_i32.to_be_bytes());
    let error = InterProcessSemaphore::builder(&client, "/one", 1)
        .shared_count("/other")
        .build()
        .unwrap_err();
    assert!(
        matches!(
            error,
            BuildError::ConflictingOptions {
                option: "shared_count",
                ..
            }
        ),
        "{error}"
    );
    let error = InterProcessSemaphore::builder(&client, "/three", 1)
        .shared_count("relative")
        .build()
        .unwrap_err();
    assert!(matches!(error, BuildError::InvalidPath(_)), "{error}");
    for own in [
        "/three",
        "/three/locks",
        "/three/leases",
        "/three/leases/limit",
    ] {
        let error = InterProcessSemaphore::builder(&client, "/three", 1)
            .shared_count(own)
            .build()
            .unwrap_err();
        assert!(
            matches!(
                error,
                BuildError::InvalidOption {
                    option: "shared_count",
                    ..
                }
            ),
            "{own}: {error}"
        );
    }
    for (limit, why) in [
        (0, "cannot be zero"),
        (10_001, "cannot be 10001: the largest is 10000"),
    ] {
        let error = two.set_limit(limit).await.unwrap_err();
        assert!(
            error.kind() == ErrorKind::InvalidLimit && error.to_string().contains(why),
            "{error}"
        );
    }
    assert_eq!(one.limit().await.unwrap(), 7);
}

/// The lease begins at the grant, and all permits are lost at its end.
#[tokio::test]
async fn permits_end_with_their_lease() {
    let (_server, [client]) = with_clients(start_empty(), calm).await;
    let pool = semaphore(&client, 2);
    let error = pool
        .acquire_with_lease(SOON, Duration::ZERO)
        .await
        .unwrap_err();
    assert!(
        matches!(error, AcquireError::InvalidLease { .. }),
        "{error}"
    );
    let permit = within(
        "two",
        pool.acquire_many_with_lease(2, SOON, Duration::from_millis(100)),
    )
    .await
    .unwrap();
    let waiter = tokio::spawn(semaphore(&client, 2).acquire(SOON));
    assert_eq!(
        within("the loss", permit.lost()).await.reason(),
        LostReason::LeaseOver
    );
    let next = within("the permit", waiter).await.unwrap().unwrap();
    assert!(next.fencing_token() > permit.fencing_token());
    let error = permit.release().await.unwrap_err();
    assert!(
        matches!(&error, ReleaseError::Lost(lost) if lost.reason() == LostReason::LeaseOver),
        "{error}"
    );
    assert!(next.is_held() && next.lease_remaining().is_none());
    next.set_lease(Duration::from_secs(60)).unwrap();
    assert!(next.lease_remaining().unwrap() > Duration::from_secs(30));
}
