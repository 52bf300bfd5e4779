//! Code that users write around the futures that borrow nothing, which outlive the lock or the
//! guard that made them. Most of these tests only have to compile.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::future::Future;
use test_support::prelude::*;

use super::docs::items;
use super::without_unit_tests;

/// A function for each method, in which the future outlives the value that made it, and the list of
/// these functions.
macro_rules! outlives {
    ($($file:literal: $($type:ty),+ => $method:ident $arguments:tt;)+) => {
        const OUTLIVES: &[(&str, &str)] = &[$(($file, stringify!($method))),+];

        #[expect(dead_code, reason = "they are compiled, not run")]
        fn futures_that_outlive() {
            $($({
                fn future(made: $type) -> impl Future + Send + 'static {
                    made.$method $arguments
                }
                let _ = future;
            })+)+
        }
    };
}

outlives! {
    "src/locks/lock.rs": InterProcessMutex, InterProcessFairLock => lock();
    "src/locks/lock.rs": InterProcessReadLock, InterProcessWriteLock => lock();
    "src/locks/lock.rs": InterProcessMutex, InterProcessFairLock => try_lock();
    "src/locks/lock.rs": InterProcessReadLock, InterProcessWriteLock => try_lock();
    "src/locks/lock.rs": InterProcessMutex, InterProcessFairLock, InterProcessReadLock => acquire(SOON);
    "src/locks/lock.rs": InterProcessMutex, InterProcessFairLock => acquire_until(Instant::now());
    "src/locks/lock.rs": InterProcessMutex, InterProcessWriteLock => acquire_with_lease(SOON, SOON);
    "src/locks/lock.rs": InterProcessMutex, InterProcessReadLock => with(SOON, async |guard| guard.is_held());
    "src/locks/semaphore.rs": InterProcessSemaphore => with(SOON, async |_| {});
    "src/locks/multi_lock.rs": InterProcessMultiLock => with(SOON, async |_| {});
    "src/locks/fair_lock.rs": InterProcessFairLock => enqueue();
    "src/locks/multi_lock.rs": InterProcessMultiLock => lock();
    "src/locks/multi_lock.rs": InterProcessMultiLock => try_lock();
    "src/locks/multi_lock.rs": InterProcessMultiLock => acquire(SOON);
    "src/locks/multi_lock.rs": InterProcessMultiLock => acquire_until(Instant::now());
    "src/locks/multi_lock.rs": InterProcessMultiLock => acquire_with_lease(SOON, SOON);
    "src/locks/multi_lock.rs": MultiLockGuard => lost();
    "src/locks/multi_lock.rs": MultiLockGuard => revoked();
    "src/locks/multi_lock.rs": MultiLockGuard => release();
    "src/locks/semaphore.rs": InterProcessSemaphore => acquire(SOON);
    "src/locks/semaphore.rs": InterProcessSemaphore => acquire_until(Instant::now());
    "src/locks/semaphore.rs": InterProcessSemaphore => acquire_with_lease(SOON, SOON);
    "src/locks/semaphore.rs": InterProcessSemaphore => acquire_many(2, SOON);
    "src/locks/semaphore.rs": InterProcessSemaphore => acquire_many_until(2, Instant::now());
    "src/locks/semaphore.rs": InterProcessSemaphore => acquire_many_with_lease(2, SOON, SOON);
    "src/locks/semaphore.rs": InterProcessSemaphore => try_acquire();
    "src/locks/semaphore.rs": InterProcessSemaphore => try_acquire_many(2);
    "src/locks/semaphore.rs": SemaphorePermit => lost();
    "src/locks/semaphore.rs": SemaphorePermit => revoked();
    "src/locks/semaphore.rs": SemaphorePermit => release();
    "src/locks/guard.rs": LockGuard, ReadGuard, WriteGuard, AnyGuard => lost();
    "src/locks/guard.rs": LockGuard, ReadGuard, WriteGuard, AnyGuard => revoked();
    "src/locks/guard.rs": LockGuard, ReadGuard, WriteGuard, AnyGuard => release();
    "src/recipes/once.rs": OnceRun => revoked();
    "src/recipes/leader_selector.rs": LeaderSelector => lead(|_| async {});
    "src/recipes/leader_latch.rs": Leadership => lost();
    "src/recipes/group_member.rs": GroupMember => close();
    "src/recipes/persistent_node.rs": PersistentNode => close();
}

/// A new method fails here if its future captures more than it needs, or if it has no shape above.
#[test]
fn unborrowed_futures_are_declared_as_such() {
    let mut found = BTreeSet::new();
    for item in items() {
        let Some((name, future)) = item.declaration.split_once("-> impl Future<") else {
            continue;
        };
        let is_bound = future.contains("'static") || future.contains("use<");
        // The future of a method that takes its work borrows only what the work borrows.
        if !is_bound && name.contains("work: impl Future<") {
            continue;
        }
        assert!(
            future.contains("use<"),
            "{} captures what it was made from: + use<>",
            item.name()
        );
        let name = name
            .split("fn ")
            .nth(1)
            .and_then(|name| name.split(['(', '<']).next())
            .unwrap_or_default();
        found.insert((item.file.display().to_string(), name.to_owned()));
    }
    let compiled: BTreeSet<_> = OUTLIVES
        .iter()
        .map(|(file, name)| ((*file).to_owned(), (*name).to_owned()))
        .collect();
    assert_eq!(found, compiled);
}

/// An `Arc` of a future that several tasks poll in turn under a lock needs `Sync`.
#[expect(dead_code, reason = "it is compiled, not run")]
fn futures_of_guards_are_sync(
    lock: &LockGuard,
    members: &MultiLockGuard,
    permits: &SemaphorePermit,
) {
    fn is_sync(_: impl Sync) {}

    macro_rules! are_sync {
        ($($guard:ident),+) => {
            $(
                is_sync($guard.lost());
                is_sync($guard.revoked());
                is_sync($guard.state_changed(LockState::Held));
                is_sync($guard.while_held(async {}));
            )+
        };
    }
    are_sync!(lock, members, permits);
}

/// Only the futures of these locks remain.
#[tokio::test]
async fn lock_iterator_is_consumed_at_once() {
    let (_server, [client]) = with_clients(start(), connect).await;
    let asked: Result<Vec<_>, BuildError> = (0..3)
        .map(|sku| Ok(InterProcessMutex::new(&client, format!("/inventory/{sku}"))?.lock()))
        .collect();
    let mut guards = Vec::new();
    for granted in asked.unwrap() {
        guards.push(within("the grant", granted).await.unwrap());
    }
    assert!(guards.iter().all(LockGuard::is_held));
}

/// A path is any type in which a program has its names.
#[tokio::test]
async fn paths_are_any_text() {
    let (_server, [client]) = with_clients(start(), connect).await;
    let path: Box<str> = "/locks/sku-42".into();
    let mutexes = [
        InterProcessMutex::new(&client, "/locks/sku-42"),
        InterProcessMutex::new(&client, String::from("/locks/sku-42")),
        InterProcessMutex::new(&client, format!("/locks/sku-{}", 42)),
        InterProcessMutex::new(&client, Cow::from("/locks/sku-42")),
        InterProcessMutex::new(&client, Arc::<str>::from("/locks/sku-42")),
        InterProcessMutex::new(&client, &path),
        InterProcessMutex::new(&client, path.clone()),
    ];
    for mutex in mutexes {
        let guard = within("the grant", mutex.unwrap().lock()).await.unwrap();
        assert!(
            within("the read", guard.get_data(path.clone()))
                .await
                .unwrap()
                .is_some()
        );
    }
}

/// Generic code accepts each of these locks.
async fn holds(lock: impl InterProcessLock) -> bool {
    let guard = within("the grant", lock.lock()).await.unwrap();
    let holds = lock.is_acquired_in_this_process() && lock.path() == guard.path();
    guard.release().await.unwrap();
    holds
}

#[tokio::test]
async fn pointers_to_locks_are_locks() {
    let (_server, [client]) = with_clients(start(), connect).await;
    let mutex = InterProcessMutex::new(&client, "/jobs").unwrap();
    assert!(holds(&mutex).await);
    assert!(holds(Box::new(mutex.clone())).await);
    assert!(holds(Arc::new(mutex.clone())).await);
    let shared: Arc<dyn InterProcessLock> = Arc::new(mutex.clone());
    assert!(holds(Arc::clone(&shared)).await && holds(&shared).await && holds(&*shared).await);
    let boxed: Box<dyn InterProcessLock> = Box::new(mutex);
    assert!(holds(boxed).await);
}

#[tokio::test]
async fn multi_locks_accept_any_iterator() {
    let (_server, [client]) = with_clients(start(), connect).await;
    let locks: Vec<InterProcessMutex> = ["/b", "/a"]
        .iter()
        .map(|path| InterProcessMutex::new(&client, path).unwrap())
        .collect();
    let fair = InterProcessFairLock::new(&client, "/c").unwrap();
    let of_any: Vec<&dyn InterProcessLock> = locks.iter().map(|lock| lock as _).collect();
    let shared: Vec<Arc<dyn InterProcessLock>> =
        vec![Arc::new(locks[0].clone()), Arc::new(fair.clone())];
    for (multi, paths) in [
        (InterProcessMultiLock::of(&locks), ["/b", "/a"]),
        (InterProcessMultiLock::of(locks.clone()), ["/b", "/a"]),
        (InterProcessMultiLock::of(locks.iter().rev()), ["/a", "/b"]),
        (InterProcessMultiLock::new(&of_any), ["/b", "/a"]),
        (InterProcessMultiLock::of(of_any), ["/b", "/a"]),
        (InterProcessMultiLock::of(&shared), ["/b", "/c"]),
        (
            InterProcessMultiLock::of(shared.into_iter().rev()),
            ["/c", "/b"],
        ),
    ] {
        let guard = within("the grant", multi.unwrap().lock()).await.unwrap();
        assert_eq!(guard.paths(), paths);
        guard.release().await.unwrap();
    }
    let twice = InterProcessMultiLock::of([&fair, &fair]).unwrap_err();
    assert!(
        matches!(twice, BuildError::DuplicateMember { .. }),
        "{twice:?}"
    );
    let none = InterProcessMultiLock::of(Vec::<InterProcessMutex>::new()).unwrap_err();
    assert!(matches!(none, BuildError::NoMembers), "{none:?}");
}

/// Generic code works under any guard, even in a task.
async fn worker<G: Guard>(guard: G) -> Result<G, Lost> {
    guard.while_held(tokio::task::yield_now()).await?;
    assert!(
        guard.is_held() && guard.state() == LockState::Held && guard.lease_remaining().is_none()
    );
    assert!(guard.get_data("/none").await.unwrap().is_none());
    guard.set_lease(SOON)?;
    assert!(guard.lease_remaining().is_some());
    Ok(guard)
}

#[tokio::test]
async fn guards_share_one_trait() {
    let (server, [client]) = with_clients(start(), connect).await;
    let mutex = InterProcessMutex::new(&client, "/a").unwrap();
    let multi = InterProcessMultiLock::from_paths(&client, ["/b", "/c"]).unwrap();
    let semaphore = InterProcessSemaphore::new(&client, "/d", 2).unwrap();
    let lock = within("the grant", mutex.lock()).await.unwrap();
    let locks = within("the grant", multi.lock()).await.unwrap();
    let permit = within("the grant", semaphore.try_acquire()).await.unwrap();
    let lock = tokio::spawn(worker(lock)).await.unwrap().unwrap();
    let locks = tokio::spawn(worker(locks)).await.unwrap().unwrap();
    let permit = tokio::spawn(worker(permit)).await.unwrap().unwrap();

    let guards: Vec<Box<dyn Guard>> = vec![Box::new(lock), Box::new(locks), Box::new(permit)];
    let mut lost = Vec::new();
    for guard in guards {
        lost.push(guard.lost());
        let guard = tokio::spawn(async move {
            guard.while_held(async {}).await.unwrap();
            guard
        });
        within("the release", guard.await.unwrap().release())
            .await
            .unwrap();
    }
    let again = within("the grant", mutex.try_lock()).await.unwrap();
    assert!(server.expire_session(session(&client)));
    for lost in lost {
        within("the end of the session", lost).await;
    }
    let guard: Box<dyn Guard> = Box::new(again);
    let error = guard
        .while_held(std::future::pending::<()>())
        .await
        .unwrap_err();
    assert_eq!((guard.is_held(), error.path()), (false, "/a"));
    guard.release().await.unwrap_err();
}

/// The names of the threads of this library, by the file that starts them.
const THREADS: [(&str, &str); 7] = [
    ("src/session/setup.rs", "zk-session"),
    ("src/session/live/session_lease.rs", "zk-lease"),
    ("src/session/reports/journal.rs", "zk-journal"),
    ("src/session/dial/probe.rs", "zk-probe"),
    ("src/session/dial/spare.rs", "zk-spare"),
    ("src/session/dial/resources.rs", "zk-check"),
    ("test-server/src/server.rs", "zk-test-server"),
];

/// Linux cuts off thread names after fifteen bytes, so `top` and a core dump would show different
/// ones.
#[test]
fn thread_names_are_whole_and_documented() {
    let page = super::read("ARCHITECTURE.md");
    let mut found = BTreeSet::new();
    for file in super::sources()
        .into_iter()
        .chain(super::files_below("test-server/src"))
    {
        let text = super::read(&file);
        let text = without_unit_tests(&text);
        for start in [
            "background::start(",
            "background::run_blocking(",
            "thread::Builder::new().name(",
        ] {
            for call in text.split(start).skip(1) {
                // This place receives the name.
                let is_named = call.starts_with("NAME") || file.ends_with("threads/background.rs");
                assert!(is_named, "{} gives its thread no `NAME`", file.display());
            }
        }
        let Some((_, rest)) = text.split_once("\nconst NAME: &str = \"zk-") else {
            continue;
        };
        let name = format!("zk-{}", rest.split('"').next().unwrap_or_default());
        assert!(name.len() <= 15, "{name}");
        let is_ours = file.starts_with("src");
        assert!(
            !is_ours || page.contains(&format!("`{name}`")),
            "ARCHITECTURE.md does not have {name}"
        );
        found.insert((file.display().to_string(), name));
    }
    assert_eq!(
        found,
        THREADS
            .map(|(file, name)| (file.to_owned(), name.to_owned()))
            .into()
    );
}

/// The names are those that `top -H` shows.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn threads_show_their_names() {
    let (_server, [client]) = with_clients(start(), connect).await;
    let mutex = InterProcessMutex::new(&client, "/jobs").unwrap();
    let guard = within("the grant", mutex.lock()).await.unwrap();
    let names: BTreeSet<String> = std::fs::read_dir("/proc/self/task")
        .unwrap()
        // A thread of another test may be gone by now.
        .filter_map(|task| std::fs::read_to_string(task.unwrap().path().join("comm")).ok())
        .map(|name| name.trim_end().to_owned())
        .collect();
    for name in ["zk-session", "zk-lease", "zk-test-server"] {
        assert!(names.contains(name), "{name}: {names:?}");
    }
    guard.release().await.unwrap();
}
