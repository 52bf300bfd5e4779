//! Real deadlines, and calls that do not wait.

use std::pin::Pin;

use test_support::prelude::*;
use zookeeper_recipes::Acquisition::{Acquired, Busy};

use crate::harness::{Behaviour, Env, MAX_DELAY, SHORT_TIMEOUT, behaviours, expect_timeout};

pub(crate) fn all() -> Vec<Behaviour> {
    behaviours![
        timed_out_wait_leaves_nothing
            .curator("testContention")
            .also_on_ensemble(),
        query_does_not_block.also_on_ensemble(),
        deadline_is_kept,
        endless_durations_do_no_harm,
        or_busy_converts_only_busy,
        error_names_own_hold,
        error_names_no_foreign_holder,
    ]
}

#[track_caller]
fn assert_timed_out(error: &AcquireError, path: &str) {
    match error {
        AcquireError::TimedOut { path: named, .. } => assert_eq!(named, path),
        other => panic!("not a timeout: {other:?}"),
    }
    assert_eq!(error.path(), path);
    assert!(error.is_retryable());
    assert!(error.to_string().contains(path), "{error}");
}

async fn timed_out_wait_leaves_nothing(env: &Env) {
    let (ours, theirs) = (&env.mutex().await, &env.mutex().await);
    let path = env.lock_path();
    let guard = ours.lock().await.unwrap();
    let mut counted = false;
    for times in [1, 2, 1] {
        let took = &Mutex::new(Duration::ZERO);
        let (error, timeout) = expect_timeout(|timeout| async move {
            let start = Instant::now();
            let refused = theirs.acquire(timeout * times).await;
            *took.lock().unwrap() = start.elapsed();
            refused
        })
        .await;
        let (took, timeout) = (*took.lock().unwrap(), timeout * times);
        assert_timed_out(&error, &path);
        let AcquireError::TimedOut { waited, .. } = error else {
            unreachable!()
        };
        assert!(
            took >= timeout && took < timeout + MAX_DELAY,
            "{took:?} instead of {timeout:?}"
        );
        assert!(
            waited <= took,
            "expected the error to report at most {took:?}, found {waited:?}"
        );
        // The timeout counts from the beginning of the attempt: a moment after the call, unless the
        // machine stood still.
        counted |= waited > timeout / 2;
    }
    assert!(
        counted,
        "expected the error to report how long the call waited"
    );
    env.wait_count(&path, 1).await;
    assert!(guard.is_held());
    guard.release().await.unwrap();
    assert!(env.children(&path).await.is_empty());
}

type Question = Pin<Box<dyn Future<Output = Result<LockGuard, TryLockError>> + Send>>;

/// A try, a zero timeout, and a deadline in the past: the calls do not wait, and leave nothing if
/// the lock is held.
async fn query_does_not_block(env: &Env) {
    let (ours, theirs) = (env.mutex().await, env.mutex().await);
    let path = env.lock_path();
    let past = Instant::now();
    let questions: [fn(&InterProcessMutex, Instant) -> Question; 3] = [
        |mutex, _| Box::pin(mutex.try_lock()),
        |mutex, _| {
            let attempt = mutex.acquire(Duration::ZERO);
            Box::pin(async { attempt.await.map_err(TryLockError::Acquire) })
        },
        |mutex, past| {
            let attempt = mutex.acquire_until(past);
            Box::pin(async { attempt.await.map_err(TryLockError::Acquire) })
        },
    ];
    for ask in questions {
        let guard = ask(&ours, past).await.unwrap();
        assert!(guard.is_held());
        // The handles include the client's own, because locks are not re-entrant.
        for mutex in [&theirs, &ours] {
            match ask(mutex, past).await.unwrap_err() {
                error @ TryLockError::WouldBlock { .. } => {
                    assert!(error.is_retryable());
                    assert!(error.to_string().contains(&path), "{error}");
                }
                TryLockError::Acquire(error) => assert_timed_out(&error, &path),
                other => panic!("{other:?}"),
            }
        }
        env.assert_left(&path, 1).await;
        guard.release().await.unwrap();
        ask(&theirs, past).await.unwrap().release().await.unwrap();
        // The member that answers may lag behind.
        env.wait_count(&path, 0).await;
    }
}

async fn deadline_is_kept(env: &Env) {
    let (ours, theirs) = (&env.mutex().await, &env.mutex().await);
    let guard = ours.lock().await.unwrap();
    let (error, _) = expect_timeout(|timeout| async move {
        let deadline = Instant::now() + timeout;
        let refused = theirs.acquire_until(deadline).await;
        assert!(Instant::now() >= deadline && Instant::now() < deadline + MAX_DELAY);
        refused
    })
    .await;
    assert_timed_out(&error, &env.lock_path());
    guard.release().await.unwrap();
}

// Shows: deadline
async fn endless_durations_do_no_harm(env: &Env) {
    let (ours, theirs) = (env.client().await, env.mutex().await);
    let mutex = InterProcessMutex::new(&ours, env.lock_path()).unwrap();
    let guard = within("a free lock", mutex.acquire(Duration::MAX))
        .await
        .unwrap();
    let mut waiting = task::spawn(theirs.acquire(Duration::MAX));
    assert_pending!(waiting.poll());
    guard.release().await.unwrap();
    within("the lock", waiting)
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    // The deadline is so far away that a timer may not reach it.
    let century = Duration::from_secs(100 * 365 * 24 * 60 * 60);
    let guard = within("a free lock", mutex.acquire_until(Instant::now() + century))
        .await
        .unwrap();
    let mut waiting = task::spawn(theirs.acquire_until(Instant::now() + century));
    assert_pending!(waiting.poll());
    guard.release().await.unwrap();
    within("the lock", waiting)
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    ours.flush(Duration::MAX).await.unwrap();
    let builder = env
        .builder()
        .session_timeout(Duration::MAX)
        .connect_timeout(Duration::MAX);
    let builder = builder.retry_policy(RetryPolicy::n_times(u32::MAX, Duration::MAX));
    let patient = env.connect(builder).await;
    let mutex = InterProcessMutex::new(&patient, env.lock_path()).unwrap();
    within("a free lock", mutex.try_lock())
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    within("the end", patient.close()).await.unwrap();
}

async fn or_busy_converts_only_busy(env: &Env) {
    let (ours, theirs) = (env.mutex().await, env.client().await);
    let free = ours
        .acquire(Duration::from_secs(10))
        .await
        .or_busy()
        .unwrap();
    let Acquired(guard) = free else {
        panic!("the lock was free")
    };
    let mutex = InterProcessMutex::new(&theirs, env.lock_path()).unwrap();
    assert!(matches!(
        mutex.acquire(Duration::ZERO).await.or_busy().unwrap(),
        Busy
    ));
    assert!(matches!(mutex.try_lock().await.or_busy().unwrap(), Busy));
    drop(guard);
    theirs.close().await.unwrap();
    assert!(
        matches!(&mutex.lock().await.or_busy(), Err(error) if error.kind() == Some(ErrorKind::Closed))
    );
    assert!(
        matches!(&mutex.try_lock().await.or_busy(), Err(error) if error.kind() == Some(ErrorKind::Closed))
    );
}

async fn error_names_own_hold(env: &Env) {
    let mutex = env.mutex().await;
    let line = line!() + 1;
    let guard = mutex.lock().await.unwrap();
    let (error, _) = expect_timeout(|timeout| mutex.acquire(timeout)).await;
    let AcquireError::TimedOut {
        contention: Contention {
            holder: Some(holder),
            ..
        },
        ..
    } = &error
    else {
        panic!("{error:?}")
    };
    assert_eq!(
        (holder.location().file(), holder.location().line()),
        (file!(), line)
    );
    assert!(holder.held_for() >= SHORT_TIMEOUT / 2);
    let place = format!("{}:{line}", file!());
    assert!(error.to_string().contains(&place), "{error}");
    guard.release().await.unwrap();
    // Each way to acquire records its line, and another handle of the same client shows it.
    let line = line!() + 1;
    let guard = mutex.try_lock().await.unwrap();
    let error = mutex.clone().acquire(Duration::ZERO).await.unwrap_err();
    assert!(
        error.to_string().contains(&format!("{}:{line}", file!())),
        "{error}"
    );
    guard.release().await.unwrap();
}

// Shows: would-deadlock
async fn error_names_no_foreign_holder(env: &Env) {
    let (ours, theirs) = (env.mutex().await, env.mutex().await);
    // This client has held the lock, but does not any more.
    ours.lock().await.unwrap().release().await.unwrap();
    let guard = theirs.lock().await.unwrap();
    let error = ours.acquire(Duration::ZERO).await.unwrap_err();
    assert!(
        matches!(
            error,
            AcquireError::TimedOut {
                contention: Contention { holder: None, .. },
                ..
            }
        ),
        "{error:?}"
    );
    drop(guard);
}
