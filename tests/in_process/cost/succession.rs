//! The cost of a lock that was free several times in a row: a grant by the next number needs no
//! list.

use test_support::prelude::*;

use super::queues::Kind;
use super::requests;

const LISTED: [(Op, u64); 3] = [(Op::Create, 1), (Op::GetChildren, 1), (Op::Delete, 1)];
const HOT: [(Op, u64); 2] = [(Op::Create, 1), (Op::Delete, 1)];

const KINDS: [Kind; 4] = [Kind::Mutex, Kind::Fair, Kind::Read, Kind::Write];

async fn get(lock: &Arc<dyn InterProcessLock>) -> AnyGuard {
    within("the grant", lock.lock()).await.unwrap()
}

/// The requests of one acquire and release.
async fn cycle(server: &Server, id: i64, lock: &Arc<dyn InterProcessLock>) -> Vec<(Op, u64)> {
    server.reset_counters();
    get(lock).await.release().await.unwrap();
    requests(server, id)
}

/// The third free grant in a row sets the watch.
async fn warm_up(server: &Server, id: i64, lock: &Arc<dyn InterProcessLock>) {
    for _ in 0..2 {
        assert_eq!(cycle(server, id, lock).await, LISTED);
    }
    let third = [
        (Op::Create, 1),
        (Op::GetChildren, 1),
        (Op::GetData, 1),
        (Op::Delete, 1),
    ];
    assert_eq!(cycle(server, id, lock).await, third);
    assert_eq!(server.watches_on(DIRECTORY), [id]);
    // On a busy machine the client may not have handled the answer about its watch yet.
    let next = cycle(server, id, lock).await;
    assert!(next == HOT || next == LISTED, "{next:?}");
}

// Shows: succession
#[tokio::test]
async fn hot_free_lock_costs_one_request() {
    for kind in KINDS {
        let (server, [client]) = with_clients(start(), calm).await;
        let (id, lock) = (session(&client), kind.lock(&client));
        warm_up(&server, id, &lock).await;
        for n in 0..100 {
            assert_eq!(cycle(&server, id, &lock).await, HOT, "{kind:?}, cycle {n}");
        }
        assert_eq!(server.counters().notifications(), 0);
    }
}

/// The first grant after another client's needs a list, and so do the next ones until three were
/// free in a row. The watch stays.
// Shows: succession
#[tokio::test]
async fn stranger_causes_three_more_lists() {
    for kind in KINDS {
        let (server, [client, other]) = with_clients(start(), calm).await;
        let (id, lock) = (session(&client), kind.lock(&client));
        warm_up(&server, id, &lock).await;
        for round in 0..3 {
            assert_eq!(
                cycle(&server, id, &lock).await,
                HOT,
                "{kind:?}, round {round}"
            );
            get(&kind.lock(&other)).await.release().await.unwrap();
            for n in 0..3 {
                assert_eq!(
                    cycle(&server, id, &lock).await,
                    LISTED,
                    "{kind:?}, round {round}, cycle {n}"
                );
            }
            assert_eq!(
                cycle(&server, id, &lock).await,
                HOT,
                "{kind:?}, round {round}"
            );
        }
        assert_eq!(server.watches_on(DIRECTORY), [id]);
    }
}

/// Readers that hold the lock together, each with its own node, follow each other.
// Shows: succession
#[tokio::test]
async fn concurrent_readers_need_no_list() {
    let (server, [client]) = with_clients(start(), calm).await;
    let pair = InterProcessReadWriteLock::builder(&client, DIRECTORY)
        .hand_off(1, SOON)
        .build()
        .unwrap();
    let (id, lock) = (
        session(&client),
        Arc::new(pair.read_lock()) as Arc<dyn InterProcessLock>,
    );
    warm_up(&server, id, &lock).await;
    server.reset_counters();
    let mut guards = Vec::new();
    for _ in 0..10 {
        guards.push(get(&lock).await);
    }
    assert_eq!(requests(&server, id), [(Op::Create, 10)]);
    guards.reverse();
    for guard in guards {
        guard.release().await.unwrap();
    }
    assert_eq!(cycle(&server, id, &lock).await, HOT);
}

/// Readers and writers may take turns without a list, as long as each has left before the next
/// comes.
// Shows: succession
#[tokio::test]
async fn alternating_readers_writers_need_no_list() {
    let (server, [client]) = with_clients(start(), calm).await;
    let (id, read, write) = (
        session(&client),
        Kind::Read.lock(&client),
        Kind::Write.lock(&client),
    );
    warm_up(&server, id, &write).await;
    for _ in 0..5 {
        assert_eq!(cycle(&server, id, &read).await, HOT);
        assert_eq!(cycle(&server, id, &write).await, HOT);
    }
}

/// A try looks before it creates, but not after.
#[tokio::test]
async fn hot_free_try_costs_one_list() {
    let (server, [client]) = with_clients(start(), calm).await;
    let (id, lock) = (session(&client), Kind::Mutex.lock(&client));
    warm_up(&server, id, &lock).await;
    server.reset_counters();
    within("the answer", lock.try_lock())
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    assert_eq!(requests(&server, id), LISTED);
}

/// The extra requests read the leases and the limit, which decide on a permit.
#[tokio::test]
async fn hot_free_permit_costs_four_requests() {
    let (server, [client]) = with_clients(start(), calm).await;
    let semaphore = InterProcessSemaphore::new(&client, DIRECTORY, 3).unwrap();
    let id = session(&client);
    for n in 0..20 {
        server.reset_counters();
        let permit = within("the permit", semaphore.acquire(SOON)).await.unwrap();
        let asked = requests(&server, id);
        if n > 3 {
            let hot = [
                (Op::Create, 1),
                (Op::GetChildren, 1),
                (Op::GetData, 1),
                (Op::Multi, 1),
            ];
            assert_eq!(asked, hot, "permit {n}");
        }
        permit.release().await.unwrap();
    }
}

/// A lock that is unused for some heartbeats removes its watch, as does the drop of the last
/// handle.
// Shows: directory-watch
#[tokio::test]
async fn idle_lock_is_not_watched() {
    let server = start_impatient();
    server.freeze_expiry(true);
    let client = connect_as(
        Client::builder().session_timeout(Duration::from_secs(1)),
        &server,
    )
    .await;
    let (id, lock) = (session(&client), Kind::Mutex.lock(&client));
    let used = async || {
        // On a slow machine the lock is idle between one use and the next.
        while server.watches_on(DIRECTORY) != [id] {
            get(&lock).await.release().await.unwrap();
        }
    };
    within("a watch while it is used", used()).await;
    until(&server, "no watch of an idle lock", |view| {
        view.watches() == 0
    })
    .await;
    within("a watch while it is used again", used()).await;
    drop(lock);
    until(&server, "no watch without a handle", |view| {
        view.watches() == 0
    })
    .await;
}

/// Waiters need watches more than free locks do.
// Shows: watch-limit, directory-watch
#[tokio::test]
async fn directories_are_watched_within_the_limit() {
    // The limit is 30 KiB. Each path counts with its 2 KiB and the four bytes of its length.
    const WATCHED: usize = 14;
    let (server, [client]) = with_clients(start_empty(), calm).await;
    let long = "x".repeat(2047);
    let paths: Vec<String> = (10..30).map(|n| format!("/{n}{}", &long[3..])).collect();
    let mut mutexes = Vec::new();
    for path in &paths {
        server.create(path, "").unwrap();
        let mutex = InterProcessMutex::new(&client, path).unwrap();
        for _ in 0..5 {
            within("the grant", mutex.lock())
                .await
                .unwrap()
                .release()
                .await
                .unwrap();
        }
        mutexes.push(mutex);
    }
    assert_eq!(server.watches(), WATCHED);
    drop(mutexes);
    until(&server, "no watch without a handle", |view| {
        view.watches() == 0
    })
    .await;
}
