//! An acquire that is stopped leaves nothing behind, whenever that is: at random moments, on several threads. At every
//! point in turn it is stopped in virtual time: `simulation/tests/scenarios/cancellation.rs`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use test_support::in_process::{assert_clean, calm, mutex, session, start};
use test_support::{Random, SOON, within};
use tokio::task::JoinSet;
use zookeeper_recipes::{ErrorKind, OrBusy};
use zookeeper_test_server::Cut;

static PANICS: AtomicUsize = AtomicUsize::new(0);

/// A task that panics on the session's thread is silent otherwise: its runtime catches it.
fn watch_for_panics() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if std::thread::current().name() == Some("zk-session") {
                PANICS.fetch_add(1, Ordering::SeqCst);
            }
            before(info);
        }));
    });
}

/// Who holds the lock, by a flag that two holders would both see.
struct Inside(Arc<AtomicBool>);

impl Inside {
    fn enter(flag: &Arc<AtomicBool>) -> Self {
        assert!(!flag.swap(true, Ordering::SeqCst), "two holders");
        Self(Arc::clone(flag))
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

/// Whatever the time at which a timeout strikes, or a deadline passes: two clients, two tasks each.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_timeouts_leave_nothing() {
    watch_for_panics();
    let server = start();
    let clients = [calm(&server).await, calm(&server).await];
    let ids = clients.each_ref().map(session);
    let busy = Arc::new(AtomicBool::new(false));
    let mut tasks = JoinSet::new();
    for task in 0..4_u64 {
        let mutex = mutex(&clients[usize::from(task >= 2)]);
        let busy = Arc::clone(&busy);
        tasks.spawn(async move {
            let mut dice = Random::new(task);
            let mut served = 0;
            for _ in 0..50 {
                let limit = Duration::from_micros(50 + dice.below(4000));
                let guard = if dice.below(2) == 0 {
                    tokio::time::timeout(limit, mutex.lock()).await.ok().transpose().unwrap()
                } else {
                    match mutex.acquire(limit).await.or_busy() {
                        // Too short for any answer of the server.
                        Err(error) if error.kind() == Some(ErrorKind::Connection) => None,
                        answer => answer.unwrap().into(),
                    }
                };
                let Some(guard) = guard else { continue };
                served += 1;
                let inside = Inside::enter(&busy);
                tokio::task::yield_now().await;
                drop(inside);
                if dice.below(2) == 0 {
                    guard.release().await.unwrap();
                }
            }
            served
        });
    }
    let mut served = 0;
    while let Some(done) = within("every task", tasks.join_next()).await {
        served += done.unwrap();
    }
    for client in &clients {
        client.flush(SOON).await.unwrap();
    }
    assert_eq!(clients.each_ref().map(session), ids, "the sessions go on");
    assert!(served < 200, "some came too late: {served}");
    assert_clean(&server, "random timeouts").await;
    assert_eq!(PANICS.load(Ordering::SeqCst), 0);
}

/// The same while connections are cut at random.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_timeouts_and_cuts_leave_nothing() {
    watch_for_panics();
    let server = start();
    let clients = [calm(&server).await, calm(&server).await];
    let ids = clients.each_ref().map(session);
    let busy = Arc::new(AtomicBool::new(false));
    let mut tasks = JoinSet::new();
    for task in 0..4_u64 {
        let mutex = mutex(&clients[usize::from(task >= 2)]);
        let busy = Arc::clone(&busy);
        tasks.spawn(async move {
            let mut dice = Random::new(100 + task);
            for _ in 0..30 {
                let limit = Duration::from_micros(500 + dice.below(10_000));
                if let Ok(guard) = tokio::time::timeout(limit, mutex.lock()).await {
                    let guard = guard.unwrap();
                    let inside = Inside::enter(&busy);
                    tokio::task::yield_now().await;
                    drop(inside);
                    drop(guard);
                }
            }
        });
    }
    let mut dice = Random::new(7);
    loop {
        let pause = Duration::from_micros(500 + dice.below(5000));
        match tokio::time::timeout(pause, tasks.join_next()).await {
            Ok(Some(done)) => done.unwrap(),
            Ok(None) => break,
            Err(_) => {
                let how = if dice.below(2) == 0 { Cut::Fin } else { Cut::Reset };
                server.cut(ids[usize::from(dice.below(2) == 0)], how);
            }
        }
    }
    for client in &clients {
        within("the clean-up", client.flush(SOON)).await.unwrap();
    }
    assert_eq!(clients.each_ref().map(session), ids, "the sessions go on");
    assert_clean(&server, "random timeouts and cuts").await;
    assert_eq!(PANICS.load(Ordering::SeqCst), 0);
}
