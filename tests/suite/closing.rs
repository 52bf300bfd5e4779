//! The end of a client.

use test_support::prelude::*;

use crate::harness::{Behaviour, Env, Need, SHORT_TIMEOUT, behaviours};

pub(crate) fn all() -> Vec<Behaviour> {
    behaviours![
        later_calls_report_the_close,
        ends_waiters_in_memory,
        second_close_answers_the_same,
        drain_ends_waiters_awaits_guards.also_on_ensemble(),
        drain_ends_permit_and_multi_waiters,
        drain_timeout_reports_held_locks,
        drain_ignores_lost_locks,
        dropped_drain_keeps_guards,
        dropped_close_goes_on,
        dropping_last_handle_ends_session.also_on_ensemble(),
        full_sessions_let_servers_start
            .needs(Need::OwnServers)
            .also_on_ensemble(),
    ]
}

async fn later_calls_report_the_close(env: &Env) {
    let client = env.client().await;
    let path = env.lock_path();
    let early = InterProcessMutex::new(&client, &path).unwrap();
    client.close().await.unwrap();
    let late = InterProcessMutex::new(&client, env.path("late")).unwrap();
    for mutex in [early, late] {
        let closed = |error: AcquireError| {
            assert_eq!(
                (error.kind(), error.path()),
                (Some(ErrorKind::Closed), mutex.path()),
                "{error:?}"
            );
        };
        closed(within("an answer", mutex.lock()).await.unwrap_err());
        closed(
            within("an answer", mutex.acquire(Duration::from_secs(60)))
                .await
                .unwrap_err(),
        );
        closed(
            within("an answer", mutex.acquire(Duration::ZERO))
                .await
                .unwrap_err(),
        );
        closed(
            within("an answer", mutex.acquire_until(Instant::now()))
                .await
                .unwrap_err(),
        );
        closed(
            within("an answer", mutex.participants())
                .await
                .unwrap_err()
                .into(),
        );
        match within("an answer", mutex.try_lock()).await.unwrap_err() {
            TryLockError::Acquire(error) => closed(error),
            other => panic!("{other:?}"),
        }
        assert!(!mutex.is_acquired_in_this_process());
    }
    client.flush(Duration::ZERO).await.unwrap();
    assert_eq!(client.state(), ConnectionState::Closed);
}

// Shows: hand-off
async fn ends_waiters_in_memory(env: &Env) {
    let client = env.client().await;
    let mutex = InterProcessMutex::builder(&client, env.lock_path())
        .build()
        .unwrap();
    let guard = mutex.lock().await.unwrap();
    let mut waiters = Vec::new();
    for _ in 0..5 {
        let mut waiter = task::spawn(mutex.lock());
        assert_pending!(waiter.poll());
        waiters.push(waiter);
    }
    client.close().await.unwrap();
    // The holder still has its guard, so no other contender is first.
    for waiter in waiters {
        let error = within("its end", waiter).await.unwrap_err();
        assert_eq!(error.kind(), Some(ErrorKind::Closed), "{error:?}");
    }
    drop(guard);
    env.wait_count(&env.lock_path(), 0).await;
}

async fn second_close_answers_the_same(env: &Env) {
    let client = env.client().await;
    let clone = client.clone();
    let (one, other) = tokio::join!(client.close(), clone.close());
    one.unwrap();
    other.unwrap();
    client.close().await.unwrap();
}

#[track_caller]
fn is_closed<T: std::fmt::Debug>(result: &Result<T, AcquireError>) {
    assert!(
        matches!(&result, Err(error) if error.kind() == Some(ErrorKind::Closed)),
        "{result:?}"
    );
}

/// Starts a drain, and waits until waiting calls have ended and new calls are refused.
async fn draining(client: &Client, timeout: Duration) -> JoinHandle<Result<(), ReleaseError>> {
    let mutex = InterProcessMutex::new(client, test_support::unique_path("nobody-else")).unwrap();
    let waiter = mutex.lock();
    let held = mutex.lock().await.unwrap();
    let waiter = tokio::spawn(waiter);
    drop(held);
    let client = client.clone();
    let drain = tokio::spawn(async move { client.drain(timeout).await });
    // The waiter may have been granted the lock before.
    drop(within("the beginning", waiter).await.unwrap());
    let refused = async {
        while mutex.try_lock().await.is_ok() {
            tokio::task::yield_now().await;
        }
    };
    within("the beginning", refused).await;
    drain
}

// Shows: drain
async fn drain_ends_waiters_awaits_guards(env: &Env) {
    let (client, theirs) = (env.client().await, env.client().await);
    let (free, busy) = (env.path("free"), env.path("busy"));
    let others = InterProcessMutex::new(&theirs, &busy)
        .unwrap()
        .lock()
        .await
        .unwrap();
    let narrow = InterProcessMutex::builder(&client, &free).build().unwrap();
    let guard = narrow.lock().await.unwrap();
    // The waiters are in the queue, in memory, and in a fair lock's queue.
    let waiters = [
        tokio::spawn(InterProcessMutex::new(&client, &busy).unwrap().lock()),
        tokio::spawn(
            InterProcessMutex::new(&client, &busy)
                .unwrap()
                .acquire(Duration::from_secs(600)),
        ),
        tokio::spawn(narrow.lock()),
        tokio::spawn(InterProcessFairLock::new(&client, &busy).unwrap().lock()),
    ];
    let reader = InterProcessReadWriteLock::new(&client, env.path("documents"))
        .unwrap()
        .read_lock();
    let read = reader.lock().await.unwrap();
    env.wait_count(&busy, 3).await;
    let drain = draining(&client, SOON).await;
    for waiter in waiters {
        is_closed(&within("its end", waiter).await.unwrap());
    }
    is_closed(&reader.lock().await);
    is_closed(
        &InterProcessFairLock::new(&client, &busy)
            .unwrap()
            .enqueue()
            .await,
    );
    env.wait_count(&busy, 1).await;
    // Guards stay valid, with all their calls.
    assert!(guard.is_held() && read.is_held() && !drain.is_finished());
    guard
        .transaction()
        .create(env.path("data"), b"")
        .commit()
        .await
        .unwrap();
    drop(read);
    within("the release", guard.release()).await.unwrap();
    within("the drain", drain).await.unwrap().unwrap();
    assert_eq!(
        (client.state(), client.session_id()),
        (ConnectionState::Closed, None)
    );
    client.drain(Duration::ZERO).await.unwrap();
    assert!(others.is_held());
}

async fn drain_ends_permit_and_multi_waiters(env: &Env) {
    let client = env.client().await;
    let semaphore = InterProcessSemaphore::new(&client, env.lock_path(), 1).unwrap();
    let permit = semaphore.acquire(SOON).await.unwrap();
    let waiter = tokio::spawn(semaphore.acquire(Duration::from_secs(600)));
    env.wait_semaphore_full().await;
    let paths = [env.path("one"), env.path("other")];
    let both = InterProcessMultiLock::from_paths(&client, &paths).unwrap();
    let guard = both.lock().await.unwrap();
    let waits = tokio::spawn(both.lock());
    let drain = draining(&client, SOON).await;
    is_closed(&within("its end", waiter).await.unwrap());
    is_closed(&within("its end", waits).await.unwrap());
    is_closed(&semaphore.acquire(SOON).await);
    is_closed(&both.acquire(SOON).await);
    assert!(permit.is_held() && guard.is_held());
    guard.release().await.unwrap();
    assert!(!drain.is_finished(), "a permit is held");
    permit.release().await.unwrap();
    within("the drain", drain).await.unwrap().unwrap();
}

async fn drain_timeout_reports_held_locks(env: &Env) {
    let client = env.client().await;
    let (first, second) = (env.path("a"), env.path("b"));
    let mutex = InterProcessMutex::new(&client, &second).unwrap();
    let guard = mutex.lock().await.unwrap();
    let line = line!() - 1;
    let other = InterProcessFairLock::new(&client, &first)
        .unwrap()
        .lock()
        .await
        .unwrap();
    let released = InterProcessMutex::new(&client, env.path("c"))
        .unwrap()
        .lock()
        .await
        .unwrap();
    drop(released);
    let error = within("an answer", client.drain(SHORT_TIMEOUT))
        .await
        .unwrap_err();
    let ReleaseError::StillHeld {
        timeout,
        held,
        source,
        ..
    } = &error
    else {
        panic!("{error:?}")
    };
    assert_eq!((*timeout, source.is_none()), (SHORT_TIMEOUT, true));
    let paths: Vec<_> = held.iter().map(Holding::path).collect();
    assert_eq!(paths, [&first, &second]);
    assert_eq!(
        (held[1].location().file(), held[1].location().line()),
        (file!(), line)
    );
    assert!(held[1].held_for() >= SHORT_TIMEOUT);
    assert_eq!((error.path(), error.is_retryable()), (Some(&*first), false));
    assert!(
        error.to_string().contains(&format!("{}:{line}", file!())),
        "{error}"
    );
    assert_eq!(guard.lost().await.reason(), LostReason::Closed);
    assert!(!other.is_held());
    assert_eq!(client.state(), ConnectionState::Closed);
    env.wait_count(&first, 0).await;
}

// Shows: close-confirmed, drain
async fn drain_ignores_lost_locks(env: &Env) {
    let (client, link) = env.linked(env.builder()).await;
    let mutex = InterProcessMutex::new(&client, env.lock_path()).unwrap();
    let guard = mutex.lock().await.unwrap();
    let drain = draining(&client, SOON * 10).await;
    env.expire(&client, &link).await;
    within("the loss", guard.lost()).await;
    link.mend();
    within("the drain", drain).await.unwrap().unwrap();
    // The work may still run, but not under the lock.
    drop(guard);
}

async fn dropped_drain_keeps_guards(env: &Env) {
    let client = env.client().await;
    let mutex = InterProcessMutex::new(&client, env.lock_path()).unwrap();
    let guard = mutex.lock().await.unwrap();
    let mut drain = Box::pin(client.drain(SOON));
    assert!(
        tokio::time::timeout(Duration::ZERO, &mut drain)
            .await
            .is_err()
    );
    drop(drain);
    is_closed(&mutex.lock().await);
    assert!(guard.is_held());
    assert_eq!(client.state(), ConnectionState::Connected);
    guard.release().await.unwrap();
    within("the second", client.drain(SOON)).await.unwrap();
}

async fn dropped_close_goes_on(env: &Env) {
    let client = env.client().await;
    let session = client.session_id().unwrap();
    let guard = InterProcessMutex::new(&client, env.lock_path())
        .unwrap()
        .lock()
        .await
        .unwrap();
    // The call is polled once, which may suffice.
    let _ = tokio::time::timeout(Duration::ZERO, client.close()).await;
    env.wait_session_gone(session).await;
    assert_eq!(
        within("the loss", guard.lost()).await.reason(),
        LostReason::Closed
    );
    client.close().await.unwrap();
}

/// A mutex, a guard or a waiter alone keeps the session, but a future of `lost` does not.
// Shows: session-lifetime
async fn dropping_last_handle_ends_session(env: &Env) {
    let client = env.client().await;
    let session = client.session_id().unwrap();
    let mutex = InterProcessMutex::new(&client, env.lock_path()).unwrap();
    drop(client);
    let guard = within("a free lock", mutex.lock()).await.unwrap();
    let lost = guard.lost();
    drop(mutex);
    assert!(env.knows_session(session).await);
    drop(guard);
    env.wait_session_gone(session).await;
    assert_eq!(env.children(&env.lock_path()).await, [""; 0]);
    drop(lost);

    let guard = env.mutex().await.lock().await.unwrap();
    let client = env.client().await;
    let session = client.session_id().unwrap();
    let waiter = tokio::spawn(
        InterProcessMutex::new(&client, env.lock_path())
            .unwrap()
            .lock(),
    );
    drop(client);
    env.wait_count(&env.lock_path(), 2).await;
    guard.release().await.unwrap();
    let guard = within("the second in line", waiter).await.unwrap().unwrap();
    assert!(guard.is_held() && env.knows_session(session).await);
    drop(guard);
    env.wait_session_gone(session).await;
}

/// The end of a session is one transaction with the paths of all its nodes, which the servers read
/// when they start (ZOOKEEPER-4306).
// Shows: session-nodes
async fn full_sessions_let_servers_start(env: &Env) {
    // The names are long, so few nodes suffice.
    let (client, name) = (env.client().await, "n".repeat(4_000));
    let mutex = |number: usize| {
        InterProcessMutex::new(&client, env.path(&format!("{name}{number}"))).unwrap()
    };
    let (mut guards, mut calls) = (Vec::new(), JoinSet::new());
    let mut is_full = false;
    while !is_full {
        for _ in 0..32 {
            calls.spawn(mutex(guards.len() + calls.len()).lock());
        }
        while let Some(call) = within("an answer", calls.join_next()).await {
            match call.unwrap() {
                Ok(guard) => guards.push(guard),
                Err(AcquireError::TooManyNodes { .. }) => is_full = true,
                Err(error) => panic!("{error}"),
            }
        }
    }
    let bytes: usize = guards.iter().map(|guard| guard.node().len() + 4).sum();
    assert!((1_400_000..=1_500_000).contains(&bytes), "{bytes}");
    within("the end", client.close()).await.unwrap();
    env.stop_servers().await;
    env.restart_servers().await;
    let (client, path) = (env.client().await, env.lock_path());
    let lock = InterProcessMutex::new(&client, path).unwrap();
    let guard = within("the lock", lock.lock()).await.unwrap();
    guard.release().await.unwrap();
}
