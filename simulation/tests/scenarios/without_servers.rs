//! How long calls take at most when no server answers, with the default options of a client: the
//! table in docs/operating.md.

use std::time::{Duration, Instant};

use ::simulation::scenario::tokio;
use test_support::prelude::*;

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// The session timeout of the default options.
const T: Duration = secs(30);
/// A round of connecting: four tries of 5 s, and pauses of at most 1, 3 and 5 s.
const ROUND: Duration = secs(29);
/// The client library gives a session up after this time without an answer.
const GIVEN_UP: Duration = secs(42);
/// Calls may take this much less, because the pauses are random and the last answer may be older
/// than the outage.
const LESS: Duration = secs(10);
/// The time for round trips, and for finding out why a client has no session. The table leaves both
/// out.
const MOMENT: Duration = secs(1);
const LONG: Duration = secs(3600);
/// How often each call is made.
const TIMES: u32 = 8;

fn server() -> Server {
    Server::builder()
        .tick(Duration::from_millis(50))
        .max_session_timeout(T)
        .start()
        .unwrap()
}

/// Returns the output of a call that takes no longer than `most`, and not much less.
async fn takes<V>(most: Duration, call: impl Future<Output = V>) -> V {
    let started = Instant::now();
    let output = call.await;
    let took = started.elapsed();
    let least = most.saturating_sub(LESS);
    assert!(
        least <= took && took <= most + MOMENT,
        "{took:?} is not about {most:?}"
    );
    output
}

#[tokio::test]
async fn calls_without_session_end_in_time() {
    for _ in 0..TIMES {
        let server = server();
        server.stop_async().await;
        let client = Client::connect_lazy(&server.connect_string()).unwrap();
        let mutex = InterProcessMutex::new(&client, "/lock").unwrap();
        takes(secs(5), mutex.try_lock()).await.unwrap_err();
        // This call ends earlier, with the round that is under way.
        mutex.lock().await.unwrap_err();
        takes(ROUND, mutex.lock()).await.unwrap_err();
        takes(ROUND, mutex.acquire(LONG)).await.unwrap_err();
        takes(secs(0), client.close()).await.unwrap();
    }
}

#[tokio::test]
async fn calls_end_when_servers_stop() {
    for n in 0..TIMES {
        let server = server();
        let connect = async || Client::connect(&server.connect_string()).await.unwrap();
        let at = |client: &Client, path| InterProcessMutex::new(client, path).unwrap();
        let [locks, waits, tries, counts, releases, closes, drains] = [
            connect().await,
            connect().await,
            connect().await,
            connect().await,
            connect().await,
            connect().await,
            connect().await,
        ];
        let released = at(&releases, "/released").lock().await.unwrap();
        let _closed = at(&closes, "/closed").lock().await.unwrap();
        let waiting = tokio::spawn(at(&waits, "/released").acquire(LONG));
        let number = DistributedAtomicLong::new(&counts, "/number").unwrap();
        // The servers stop at another moment between two heartbeats each time.
        tokio::time::sleep(Duration::from_millis(700 * u64::from(n + 1))).await;
        server.stop_async().await;
        tokio::join!(
            async {
                takes(GIVEN_UP + ROUND, at(&locks, "/free").lock())
                    .await
                    .unwrap_err()
            },
            async { takes(GIVEN_UP + ROUND, waiting).await.unwrap().unwrap_err() },
            async { takes(GIVEN_UP + ROUND, number.set(7)).await.unwrap_err() },
            async {
                takes(secs(5), at(&tries, "/tried").try_lock())
                    .await
                    .unwrap_err()
            },
            async { takes(GIVEN_UP, released.release()).await.unwrap_err() },
            async { takes(T, closes.close()).await.unwrap_err() },
            async { takes(T, drains.drain(secs(15))).await.unwrap_err() },
        );
    }
}
