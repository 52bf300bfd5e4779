//! The blocking methods, on threads without an executor.

use std::thread;

use test_support::prelude::*;

const BRIEFLY: Duration = Duration::from_millis(50);

#[test]
fn threads_of_clients_exclude_each_other() {
    let server = start();
    let clients = [0, 1].map(|_| {
        Client::builder()
            .blocking_connect(&server.connect_string())
            .unwrap()
    });
    let (inside, visits) = (AtomicU32::new(0), AtomicU32::new(0));
    thread::scope(|scope| {
        for i in 0..8 {
            let mutex = InterProcessMutex::new(&clients[i % 2], "/mutex").unwrap();
            let (inside, visits) = (&inside, &visits);
            scope.spawn(move || {
                for _ in 0..5 {
                    let guard = mutex.blocking_lock().unwrap();
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                    thread::yield_now();
                    inside.fetch_sub(1, Ordering::SeqCst);
                    visits.fetch_add(1, Ordering::SeqCst);
                    guard.blocking_release().unwrap();
                }
            });
        }
    });
    assert_eq!(visits.into_inner(), 40);
    for client in clients {
        client.blocking_close().unwrap();
    }
    assert!(server.sessions().is_empty());
}

/// An error names the caller's line, not one in this library.
#[test]
fn errors_name_the_callers_line() {
    let server = start();
    let client = Client::blocking_connect(&server.connect_string()).unwrap();
    let mutex = InterProcessMutex::new(&client, "/mutex").unwrap();
    let guard = mutex.blocking_acquire(SOON).unwrap();
    let line = line!() - 1;
    match mutex.blocking_acquire(BRIEFLY).unwrap_err() {
        AcquireError::TimedOut {
            contention:
                Contention {
                    holder: Some(holder),
                    ..
                },
            ..
        } => {
            assert_eq!(
                (holder.location().file(), holder.location().line()),
                (file!(), line)
            );
        }
        other => panic!("{other:?}"),
    }
    assert!(matches!(
        mutex.blocking_try_lock(),
        Err(TryLockError::WouldBlock { .. })
    ));
    guard.blocking_release().unwrap();

    let fair = InterProcessFairLock::new(&client, "/fair").unwrap();
    let guard = fair.blocking_acquire_with_lease(SOON, BRIEFLY).unwrap();
    let lost = loop {
        match guard.set_lease(Duration::ZERO) {
            Err(lost) => break lost,
            Ok(()) => thread::yield_now(),
        }
    };
    assert_eq!(lost.reason(), LostReason::LeaseOver);
    assert!(matches!(
        guard.blocking_release(),
        Err(ReleaseError::Lost(_))
    ));

    let documents = InterProcessReadWriteLock::new(&client, "/documents").unwrap();
    let one = documents.read_lock().blocking_lock().unwrap();
    let two = documents.read_lock().blocking_lock().unwrap();
    assert!(documents.write_lock().blocking_acquire(BRIEFLY).is_err());
    drop((one, two));
    documents
        .write_lock()
        .blocking_lock()
        .unwrap()
        .blocking_release()
        .unwrap();

    let permits = InterProcessSemaphore::new(&client, "/permits", 2).unwrap();
    let both = permits.blocking_acquire_many(2, SOON).unwrap();
    assert!(permits.blocking_try_acquire().is_err());
    both.blocking_release().unwrap();
    permits
        .blocking_acquire(SOON)
        .unwrap()
        .blocking_release()
        .unwrap();
    permits
        .blocking_acquire_with_lease(SOON, SOON)
        .unwrap()
        .blocking_release()
        .unwrap();

    let several = InterProcessMultiLock::from_paths(&client, ["/a", "/b"]).unwrap();
    several
        .blocking_acquire(SOON)
        .unwrap()
        .blocking_release()
        .unwrap();
    several
        .blocking_acquire_with_lease(SOON, SOON)
        .unwrap()
        .blocking_release()
        .unwrap();
    let guard = several.blocking_lock().unwrap();
    assert!(several.blocking_try_lock().is_err());
    guard.blocking_release().unwrap();
    client.blocking_drain(SOON).unwrap();
}

/// Only the runtime's thread is blocked: the session has its own.
#[tokio::test(flavor = "current_thread")]
async fn blocks_only_the_runtimes_thread() {
    let server = start();
    let client = Client::connect(&server.connect_string()).await.unwrap();
    let mutex = InterProcessMutex::new(&client, "/mutex").unwrap();
    let guard = mutex.blocking_lock().unwrap();
    // No other task of this runtime could release the lock in the meantime.
    assert!(mutex.blocking_acquire(BRIEFLY).is_err());
    guard.blocking_release().unwrap();
    let elsewhere = tokio::task::spawn_blocking(move || {
        mutex
            .blocking_lock()?
            .blocking_release()
            .map_err(Into::into)
    });
    let done: Result<(), Box<dyn std::error::Error + Send + Sync>> = elsewhere.await.unwrap();
    done.unwrap();
    client.close().await.unwrap();
}
