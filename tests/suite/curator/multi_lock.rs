//! TestInterProcessMutexBase for the multi-lock, and TestInterProcessMultiMutex.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use test_support::{SOON, within};
use tokio::task::JoinSet;
use zookeeper_recipes::{
    AcquireError, Client, ErrorKind, InterProcessMultiLock, InterProcessMutex, MultiLockGuard, ReleaseError,
    TryLockError,
};
use zookeeper_test_server::{Match, Op, ServerError};

use crate::harness::{Behaviour, CriticalSection, Env, Link, Need, in_vain};

/// Clients that are still there when it is looked for what is left.
struct Both<'a> {
    env: &'a Env,
    clients: Mutex<Vec<Client>>,
}

macro_rules! of_both {
    ($($function:ident = $test:literal $(.$option:ident($($argument:expr),*))*),* $(,)?) => {
        vec![$(
            Behaviour::new(stringify!($function), |env| Box::pin(async move {
                let both = Both { env, clients: Mutex::default() };
                $function(&both).await;
                both.assert_nothing_left().await;
            }))
            .curator($test)
            $(.$option($($argument),*))*
        ),*]
    };
}

pub(crate) fn all() -> Vec<Behaviour> {
    of_both![
        test_locker = "TestInterProcessMutexBase.testLocker",
        test_waiting_process_killed_server =
            "TestInterProcessMutexBase.testWaitingProcessKilledServer".needs(Need::OwnServers),
        test_killed_session = "TestInterProcessMutexBase.testKilledSession",
        test_container_cleanup = "TestInterProcessMutexBase.testContainerCleanup".needs(Need::OwnServers),
        test_with_namespace = "TestInterProcessMutexBase.testWithNamespace",
        test_reentrant_single_lock = "TestInterProcessMutexBase.testReentrantSingleLock",
        test_reentrant_2_threads = "TestInterProcessMutexBase.testReentrant2Threads",
        test_reentrant = "TestInterProcessMutexBase.testReentrant",
        test_2_clients = "TestInterProcessMutexBase.test2Clients",
        test_some_releases_fail = "TestInterProcessMultiMutex.testSomeReleasesFail".needs(Need::HoldReplies),
        test_some_locks_fail_to_lock = "TestInterProcessMultiMutex.testSomeLocksFailToLock",
    ]
}

impl Both<'_> {
    fn paths(&self) -> [String; 2] {
        ["one", "two"].map(|name| self.env.path(name))
    }

    async fn client(&self) -> Client {
        let client = self.env.client().await;
        self.clients.lock().unwrap().push(client.clone());
        client
    }

    async fn linked(&self) -> (Client, Arc<Link>) {
        let (client, link) = self.env.linked(self.env.builder()).await;
        self.clients.lock().unwrap().push(client.clone());
        (client, link)
    }

    fn of(&self, client: &Client) -> InterProcessMultiLock {
        InterProcessMultiLock::from_paths(client, self.paths()).unwrap()
    }

    /// Of a client of its own.
    async fn newcomer(&self) -> InterProcessMultiLock {
        self.of(&self.client().await)
    }

    /// Waits until so many contend for the first, for which all wait.
    async fn wait_count(&self, count: usize) {
        self.env.wait_count(&self.paths()[0], count).await;
    }

    async fn assert_nothing_left(&self) {
        let clients = std::mem::take(&mut *self.clients.lock().unwrap());
        for client in &clients {
            client.flush(SOON).await.unwrap();
        }
        for path in self.paths() {
            self.env.wait_count(&path, 0).await;
        }
        self.env.wait_no_watches().await;
    }
}

async fn hold(lock: &InterProcessMultiLock) -> MultiLockGuard {
    within("free locks", lock.lock()).await.unwrap()
}

async fn test_locker(both: &Both<'_>) {
    let (ours, theirs) = (both.newcomer().await, both.newcomer().await);
    for _ in 0..2 {
        {
            let _locker = hold(&ours).await;
            assert!(ours.is_acquired_in_this_process());
            let (refused, _) = in_vain(|timeout| theirs.acquire(timeout)).await;
            assert!(matches!(refused, AcquireError::TimedOut { .. }), "{refused}");
        }
        assert!(!ours.is_acquired_in_this_process());
        drop(hold(&theirs).await);
    }
}

async fn test_waiting_process_killed_server(both: &Both<'_>) {
    // Longer than a server on a busy machine takes to come back.
    let patient = || async {
        let client = both.env.connect(both.env.builder().session_timeout(Duration::from_secs(60))).await;
        both.clients.lock().unwrap().push(client.clone());
        client
    };
    let ours = both.of(&patient().await);
    let locks = [ours.clone(), ours.clone(), both.of(&patient().await)];
    let critical = Arc::new(CriticalSection::default());
    let guard = hold(&ours).await;
    let mut waiters = JoinSet::new();
    for (number, lock) in locks.into_iter().enumerate() {
        let critical = Arc::clone(&critical);
        waiters.spawn(async move {
            let guard = lock.lock().await.unwrap();
            critical.visit().await;
            guard.release().await.unwrap();
        });
        both.wait_count(number + 2).await;
    }
    both.env.stop_servers().await;
    both.env.restart_servers().await;
    assert!(guard.is_held(), "the session outlived it");
    assert_eq!(critical.visits(), 0);
    within("the release", guard.release()).await.unwrap();
    while let Some(done) = within("every waiter", waiters.join_next()).await {
        done.unwrap();
    }
    assert_eq!(critical.visits(), 3);
}

// Shows: multi-lock-loss
async fn test_killed_session(both: &Both<'_>) {
    let (client, link) = both.linked().await;
    let lock = both.of(&client);
    let guard = hold(&lock).await;
    let waiter = tokio::spawn(lock.lock());
    both.wait_count(2).await;
    both.env.expire(&client, &link).await;
    let lost = within("the loss", guard.lost()).await;
    assert!(both.env.is_loss(lost.reason()), "{lost}");
    let next = within("the waiter's grant", waiter).await.unwrap().unwrap();
    assert!(!guard.is_held() && next.is_held());
    for (next, last) in next.fencing_tokens().iter().zip(guard.fencing_tokens()) {
        assert!(next.zxid() > last.zxid());
    }
    assert!(matches!(guard.release().await, Err(ReleaseError::Lost(_))));
    assert!(next.is_held() && lock.is_acquired_in_this_process());
    next.release().await.unwrap();
}

async fn test_container_cleanup(both: &Both<'_>) {
    let lock = both.newcomer().await;
    let mut lockers = JoinSet::new();
    for _ in 0..10 {
        let lock = lock.clone();
        lockers.spawn(async move { lock.lock().await.unwrap().release().await.unwrap() });
    }
    while let Some(done) = within("every locker", lockers.join_next()).await {
        done.unwrap();
    }
    for path in both.paths() {
        both.env.sweep(&path).await;
    }
    let guard = hold(&lock).await;
    for path in both.paths() {
        assert!(both.env.stat(&path).await.is_some());
    }
    guard.release().await.unwrap();
}

async fn test_with_namespace(both: &Both<'_>) {
    let namespace = both.env.path("ns");
    let client = both.env.connect(both.env.builder().namespace(&namespace)).await;
    let lock = InterProcessMultiLock::from_paths(&client, ["/foo/bar", "/foo/baz"]).unwrap();
    let guard = hold(&lock).await;
    assert_eq!(guard.paths(), ["/foo/bar", "/foo/baz"]);
    // A client without the namespace contends for the same locks.
    let other = both.client().await;
    for path in ["/foo/bar", "/foo/baz"] {
        let other = InterProcessMutex::new(&other, format!("{namespace}{path}")).unwrap();
        assert!(matches!(other.try_lock().await, Err(TryLockError::WouldBlock { .. })));
    }
    guard.release().await.unwrap();
    client.close().await.unwrap();
}

async fn test_reentrant_single_lock(both: &Both<'_>) {
    let lock = both.newcomer().await;
    let critical = Arc::new(CriticalSection::default());
    let first = hold(&lock).await;
    let mut tasks = JoinSet::new();
    for _ in 1..10 {
        let (lock, critical) = (lock.clone(), Arc::clone(&critical));
        tasks.spawn(async move {
            let guard = lock.lock().await.unwrap();
            let again = guard.reenter().unwrap();
            drop(guard);
            critical.visit().await;
            again.release().await.unwrap();
        });
    }
    both.wait_count(10).await;
    critical.visit().await;
    first.release().await.unwrap();
    while let Some(done) = within("every task", tasks.join_next()).await {
        done.unwrap();
    }
    assert_eq!(critical.visits(), 10);
}

async fn test_reentrant_2_threads(both: &Both<'_>) {
    let (ours, theirs) = (both.newcomer().await, both.newcomer().await);
    let depth = Arc::new(AtomicUsize::new(3));
    let outer = hold(&ours).await;
    let middle = outer.reenter().unwrap();
    let inner = middle.reenter().unwrap();
    let second = tokio::spawn({
        let depth = Arc::clone(&depth);
        async move {
            let guard = theirs.lock().await.unwrap();
            assert_eq!(depth.load(Ordering::SeqCst), 0, "it came in while the first was inside");
            guard.release().await.unwrap();
        }
    });
    both.wait_count(2).await;
    for guard in [inner, outer] {
        depth.fetch_sub(1, Ordering::SeqCst);
        guard.release().await.unwrap();
        // The server says that nothing has been given back.
        for node in middle.nodes() {
            assert!(both.env.stat(&node).await.is_some());
        }
        assert!(middle.is_held() && !second.is_finished());
    }
    assert_eq!(middle.hold_count(), 1);
    depth.store(0, Ordering::SeqCst);
    middle.release().await.unwrap();
    within("the second", second).await.unwrap();
}

async fn test_reentrant(both: &Both<'_>) {
    let (ours, theirs) = (both.newcomer().await, both.newcomer().await);
    let first = hold(&ours).await;
    let second = first.reenter().unwrap();
    let third = second.reenter().unwrap();
    assert_eq!(third.hold_count(), 3);
    assert!(third.nodes() == first.nodes() && third.fencing_tokens() == first.fencing_tokens());
    for guard in [third, second] {
        guard.release().await.unwrap();
        assert!(ours.is_acquired_in_this_process());
        assert!(matches!(theirs.try_lock().await, Err(TryLockError::WouldBlock { .. })));
    }
    let (work, first) = within("the work", first.while_held_owned(async { 42 })).await.unwrap();
    assert_eq!(work, 42);
    first.release().await.unwrap();
    assert!(!ours.is_acquired_in_this_process());
    within("free locks", theirs.try_lock()).await.unwrap().release().await.unwrap();
}

async fn test_2_clients(both: &Both<'_>) {
    let (ours, theirs) = (both.newcomer().await, both.newcomer().await);
    let holds = InterProcessMultiLock::is_acquired_in_this_process;
    let guard = hold(&ours).await;
    let waiter = tokio::spawn(theirs.lock());
    both.env.wait_watchers(&guard.nodes()[0], 1).await;
    assert!(holds(&ours) && !holds(&theirs) && !waiter.is_finished());
    guard.release().await.unwrap();
    let guard = within("the hand-over", waiter).await.unwrap().unwrap();
    assert!(!holds(&ours) && holds(&theirs));
    guard.release().await.unwrap();
    assert!(!holds(&ours) && !holds(&theirs));
}

/// The refused one is reported, and the others are released.
// Shows: multi-lock-loss
async fn test_some_releases_fail(both: &Both<'_>) {
    let client = both.client().await;
    let [one, two] = both.paths();
    let three = both.env.path("zzz");
    let lock = InterProcessMultiLock::from_paths(&client, [&one, &two, &three]).unwrap();
    let guard = hold(&lock).await;
    let refused = Match::op(Op::Delete).path(guard.nodes()[1].as_str()).always();
    let fault = both.env.server().fail(refused, ServerError::NoAuth.code());
    let error = within("the release", guard.release()).await.unwrap_err();
    assert!(matches!(error, ReleaseError::Refused { .. }), "{error}");
    for (path, left) in [(&one, 0), (&two, 1), (&three, 0)] {
        both.env.wait_count(path, left).await;
    }
    // The refused one is in the way, of this client too, which says so and leaves nothing else.
    let error = within("the answer", lock.lock()).await.unwrap_err();
    assert!(matches!(&error, AcquireError::Orphaned { path, .. } if *path == two), "{error}");
    fault.remove();
}

/// The first is released when the second fails; Curator goes on with the third before it does that.
async fn test_some_locks_fail_to_lock(both: &Both<'_>) {
    let (client, other) = (both.client().await, both.client().await);
    let [one, two] = both.paths();
    let three = both.env.path("zzz");
    // A queue of another order is refused.
    let odd = zookeeper_recipes::InterProcessReadWriteLock::new(&other, &two).unwrap().write_lock();
    let odd = within("a free lock", odd.lock()).await.unwrap();
    let lock = InterProcessMultiLock::from_paths(&client, [&three, &one, &two]).unwrap();
    let error = within("the refusal", lock.lock()).await.unwrap_err();
    assert_eq!((error.kind(), error.path()), (Some(ErrorKind::MixedRecipes), &*two), "{error}");
    client.flush(SOON).await.unwrap();
    both.env.wait_count(&one, 0).await;
    both.env.wait_count(&two, 1).await;
    both.env.wait_count(&three, 0).await;
    odd.release().await.unwrap();
    within("free locks", lock.lock()).await.unwrap().release().await.unwrap();
}
