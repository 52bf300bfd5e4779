//! Options, and handles that share them.

use test_support::prelude::*;

use crate::harness::{Behaviour, Env, Need, behaviours};

const LONG: Duration = Duration::from_secs(3600);

pub(crate) fn all() -> Vec<Behaviour> {
    behaviours![
        handles_with_other_options_conflict.in_process_only(),
        unset_options_follow_first_handle.needs(Need::CountRequests),
        options_change_after_last_handle.in_process_only(),
        clients_do_not_share_options,
        rejects_unworkable_values.in_process_only(),
        node_data_is_visible
            .curator("testSetNodeData")
            .also_on_ensemble(),
        largest_accepted_data_fits,
    ]
}

// Shows: one-path-lock, hand-off
async fn handles_with_other_options_conflict(env: &Env) {
    let client = env.client().await;
    let path = env.lock_path();
    let first = InterProcessMutex::builder(&client, &path)
        .hand_off(3, LONG)
        .data("x")
        .build()
        .unwrap();
    type Set = fn(RecipeBuilder<InterProcessMutex>) -> RecipeBuilder<InterProcessMutex>;
    let others: [(&str, Set); 4] = [
        ("hand_off", |builder| builder.hand_off(4, LONG)),
        ("data", |builder| builder.data("y")),
        ("acl", |builder| {
            builder.acl([Acl::new("world", "anyone", Permissions::READ)])
        }),
        ("parents", |builder| {
            builder.parents(ParentNodes::Persistent)
        }),
    ];
    for (name, set) in others {
        match set(InterProcessMutex::builder(&client, &path))
            .build()
            .unwrap_err()
        {
            error @ BuildError::ConflictingOptions { .. } => {
                let text = error.to_string();
                assert!(text.contains(name) && text.contains(&path), "{text}");
            }
            other => panic!("{other:?}"),
        }
    }
    // The same options do not conflict, and another path is another lock.
    InterProcessMutex::builder(&client, &path)
        .hand_off(3, LONG)
        .data("x")
        .build()
        .unwrap();
    InterProcessMutex::builder(&client, env.path("other"))
        .hand_off(4, LONG)
        .build()
        .unwrap();
    first.lock().await.unwrap().release().await.unwrap();
}

async fn unset_options_follow_first_handle(env: &Env) {
    let client = env.client().await;
    let path = env.lock_path();
    let first = InterProcessMutex::builder(&client, &path)
        .data("mine")
        .build()
        .unwrap();
    let second = InterProcessMutex::new(&client, &path).unwrap();
    let guard = second.lock().await.unwrap();
    assert_eq!(env.server().node(&guard.node()).unwrap().data, b"mine");
    env.server().reset_counters();
    // Only one node is allowed, so the other waiters send nothing. A try behind them is refused
    // without a request.
    let (mut third, mut fourth) = (task::spawn(second.lock()), task::spawn(first.lock()));
    assert_pending!(third.poll());
    assert_pending!(fourth.poll());
    assert!(matches!(
        second.try_lock().await,
        Err(TryLockError::WouldBlock { .. })
    ));
    assert_eq!(env.server().counters().total_requests(), 0);
    assert_pending!(third.poll());
    assert_pending!(fourth.poll());
    guard.release().await.unwrap();
    within("the next", third)
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    within("the last", fourth)
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
}

async fn options_change_after_last_handle(env: &Env) {
    let client = env.client().await;
    let path = env.lock_path();
    let build = |max| {
        InterProcessMutex::builder(&client, &path)
            .hand_off(max, LONG)
            .build()
    };
    drop(build(3).unwrap());
    let mutex = build(4).unwrap();
    let guard = mutex.lock().await.unwrap();
    drop(mutex);
    // The guard keeps the options, as a waiter does.
    assert!(build(5).is_err());
    let mut waiter = task::spawn(build(4).unwrap().lock());
    assert_pending!(waiter.poll());
    guard.release().await.unwrap();
    assert!(build(5).is_err());
    within("the lock", waiter)
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    let mutex = build(5).unwrap();
    mutex.lock().await.unwrap().release().await.unwrap();
}

// Shows: one-path-lock
async fn clients_do_not_share_options(env: &Env) {
    let (ours, theirs) = (env.client().await, env.client().await);
    let few = InterProcessMutex::builder(&ours, env.lock_path())
        .hand_off(1, LONG)
        .build()
        .unwrap();
    let many = InterProcessMutex::builder(&theirs, env.lock_path())
        .hand_off(8, LONG)
        .build()
        .unwrap();
    let guard = few.lock().await.unwrap();
    assert!(many.try_lock().await.is_err());
    guard.release().await.unwrap();
    many.try_lock().await.unwrap().release().await.unwrap();
}

async fn rejects_unworkable_values(env: &Env) {
    let client = env.client().await;
    let builder = || InterProcessMutex::builder(&client, "/stock");
    let bad = [
        (builder().hand_off(0, LONG), "hand_off"),
        (builder().hand_off(1, Duration::ZERO), "hand_off"),
        (builder().data(vec![0; 1_000_001]), "data"),
        (builder().acl([]), "acl"),
    ];
    for (builder, name) in bad {
        match builder.build().unwrap_err() {
            BuildError::InvalidOption { path, option, .. } => {
                assert_eq!((&*path, option), ("/stock", name));
            }
            other => panic!("{other:?}"),
        }
    }
}

async fn node_data_is_visible(env: &Env) {
    let client = env.client().await;
    let path = env.lock_path();
    for data in [&b"host-7:4711"[..], b"", b"\0\xff not text"] {
        let mutex = InterProcessMutex::builder(&client, &path)
            .data(data)
            .build()
            .unwrap();
        let guard = mutex.lock().await.unwrap();
        assert_eq!(env.get_data(&guard.node()).await.unwrap().0, data);
        assert_eq!(
            env.get_data(&path).await.unwrap().0,
            b"",
            "the directory has none"
        );
        guard.release().await.unwrap();
    }
    let guard = InterProcessMutex::new(&client, &path)
        .unwrap()
        .lock()
        .await
        .unwrap();
    let data = String::from_utf8(env.get_data(&guard.node()).await.unwrap().0).unwrap();
    assert!(
        data.contains(&format!("/{}/suite-", std::process::id())),
        "{data}"
    );
    guard.release().await.unwrap();
}

// Shows: data-limit
async fn largest_accepted_data_fits(env: &Env) {
    let client = env.client().await;
    // The longest valid path.
    let path = env.path(&"x".repeat(16 * 1024 - env.path("").len()));
    assert!(InterProcessMutex::new(&client, format!("{path}x")).is_err());
    let mutex = InterProcessMutex::builder(&client, &path)
        .data(vec![b'x'; 1_000_000])
        .build()
        .unwrap();
    let guard = within("a free lock", mutex.lock()).await.unwrap();
    assert_eq!(
        env.stat(&guard.node()).await.unwrap().data_length,
        1_000_000
    );
    guard.release().await.unwrap();
}
