//! Several locks as one: all of them, or none.

use test_support::prelude::*;

use crate::harness::{Behaviour, CriticalSection, Env, behaviours};

pub(crate) fn all() -> Vec<Behaviour> {
    behaviours![
        all_members_are_held_and_released
            .with_faults()
            .also_on_ensemble(),
        tokens_are_zxids_of_nodes.also_on_ensemble(),
        members_of_any_kind_exclude,
        multi_locks_never_deadlock.with_faults().also_on_ensemble(),
        ordered_nested_locks_never_deadlock.with_faults(),
        busy_member_leaves_nothing_behind.also_on_ensemble(),
        transaction_checks_every_member.also_on_ensemble(),
        many_members_are_acquired,
    ]
}

/// Returns three paths, not in the order in which they are acquired.
fn paths(env: &Env) -> [String; 3] {
    ["m/b", "m/c", "m/a"].map(|name| env.path(name))
}

fn multi(env: &Env, client: &Client) -> InterProcessMultiLock {
    InterProcessMultiLock::from_paths(client, paths(env)).unwrap()
}

fn mutex(client: &Client, path: &str) -> InterProcessMutex {
    InterProcessMutex::new(client, path).unwrap()
}

async fn assert_free(env: &Env) {
    for path in paths(env) {
        env.wait_count(&path, 0).await;
    }
    env.wait_no_watches().await;
}

async fn all_members_are_held_and_released(env: &Env) {
    let client = env.client().await;
    let multi = multi(env, &client);
    for _ in 0..3 {
        let guard = within("free locks", multi.acquire(SOON)).await.unwrap();
        assert!(guard.is_held() && multi.is_acquired_in_this_process());
        assert_eq!(guard.paths(), paths(env));
        for (path, node) in paths(env).iter().zip(guard.nodes()) {
            assert_eq!(node.lock_path(), path);
            assert!(env.children(path).await.contains(&node.name().to_owned()));
        }
        within("the release", guard.release()).await.unwrap();
        assert!(!multi.is_acquired_in_this_process());
    }
    within("the end of the clean-up", client.flush(SOON))
        .await
        .unwrap();
    assert_free(env).await;
}

async fn tokens_are_zxids_of_nodes(env: &Env) {
    let multi = multi(env, &env.client().await);
    let mut last = Vec::new();
    for _ in 0..2 {
        let guard = within("free locks", multi.lock()).await.unwrap();
        let tokens: Vec<i64> = guard
            .fencing_tokens()
            .iter()
            .map(|token| token.zxid())
            .collect();
        for (node, token) in guard.nodes().iter().zip(&tokens) {
            assert_eq!(env.stat(node).await.unwrap().czxid, *token);
        }
        assert!(last.iter().zip(&tokens).all(|(last, token)| last < token));
        last = tokens;
        guard.release().await.unwrap();
    }
}

// Shows: multi-lock
async fn members_of_any_kind_exclude(env: &Env) {
    let (ours, theirs) = (env.client().await, env.client().await);
    let [b, c, a] = paths(env);
    let fair = InterProcessFairLock::new(&ours, &b).unwrap();
    let pair = InterProcessReadWriteLock::new(&ours, &c).unwrap();
    let all = InterProcessMultiLock::new(&[&fair, &pair.read_lock(), &mutex(&ours, &a)]).unwrap();
    let guard = within("free locks", all.lock()).await.unwrap();
    assert!(mutex(&ours, &a).is_acquired_in_this_process());
    for path in [&a, &b] {
        let refused = mutex(&theirs, path).try_lock().await.unwrap_err();
        assert!(
            matches!(refused, TryLockError::WouldBlock { .. }),
            "{refused}"
        );
    }
    let rival = InterProcessReadWriteLock::new(&theirs, &c).unwrap();
    within("another reader", rival.read_lock().lock())
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    let refused = rival.write_lock().try_lock().await.unwrap_err();
    assert!(
        matches!(refused, TryLockError::WouldBlock { .. }),
        "{refused}"
    );
    guard.release().await.unwrap();
    within("a free lock", rival.write_lock().lock())
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    assert_free(env).await;
}

/// Several clients lock each pair of three members, in both orders.
// Shows: multi-lock
async fn multi_locks_never_deadlock(env: &Env) {
    visit(env, false).await;
}

async fn ordered_nested_locks_never_deadlock(env: &Env) {
    visit(env, true).await;
}

async fn visit(env: &Env, nested: bool) {
    let [b, c, a] = paths(env);
    let members = [a, b, c];
    // The directories are created before any lock is held, because a Keeper without containers
    // replaces the session that requests one.
    let first = env.client().await;
    for path in &members {
        drop(
            within("its directory", mutex(&first, path).lock())
                .await
                .unwrap(),
        );
    }
    within("the end of the clean-up", first.flush(SOON))
        .await
        .unwrap();
    let sections: Arc<[CriticalSection; 3]> = Arc::default();
    let mut working = JoinSet::new();
    for task in 0..8 {
        let (client, sections, members) =
            (env.client().await, Arc::clone(&sections), members.clone());
        working.spawn(async move {
            for round in 0..3 {
                let first = (task + round) % 3;
                let second = (first + 1 + round % 2) % 3;
                if nested && task % 2 == 0 {
                    let (low, high) = (first.min(second), first.max(second));
                    let outer = mutex(&client, &members[low]).lock().await.unwrap();
                    let inner = mutex(&client, &members[high]).lock().await.unwrap();
                    sections[low].visit_while(sections[high].visit()).await;
                    inner.release().await.unwrap();
                    outer.release().await.unwrap();
                } else {
                    let pair = [&members[first], &members[second]];
                    let pair = InterProcessMultiLock::from_paths(&client, pair).unwrap();
                    let guard = pair.lock().await.unwrap();
                    sections[first].visit_while(sections[second].visit()).await;
                    guard.release().await.unwrap();
                }
            }
            client
        });
    }
    let clients = all_done("every task", working).await;
    assert_eq!(
        sections.iter().map(CriticalSection::visits).sum::<u64>(),
        8 * 3 * 2
    );
    for client in clients {
        within("the end of the clean-up", client.flush(SOON))
            .await
            .unwrap();
    }
    assert_free(env).await;
}

// Shows: multi-lock-try, multi-lock
async fn busy_member_leaves_nothing_behind(env: &Env) {
    let (ours, theirs) = (env.client().await, env.client().await);
    let [b, c, a] = paths(env);
    let held = within("a free lock", mutex(&theirs, &b).lock())
        .await
        .unwrap();
    let multi = multi(env, &ours);
    let error = within("the answer", multi.try_lock()).await.unwrap_err();
    let TryLockError::WouldBlock {
        path, contention, ..
    } = &error
    else {
        panic!("{error}")
    };
    assert_eq!(
        (path, contention.first.as_ref()),
        (&b, Some(&held.node())),
        "{error}"
    );
    env.assert_left(&a, 0).await;
    env.assert_left(&c, 0).await;
    let waiter = tokio::spawn(multi.lock());
    env.wait_watchers(&held.node(), 1).await;
    // The call holds the first member, waits for the second, and does not block the third.
    env.wait_count(&a, 1).await;
    env.wait_count(&c, 0).await;
    within("a lock behind it", mutex(&theirs, &c).lock())
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    held.release().await.unwrap();
    within("all members", waiter)
        .await
        .unwrap()
        .unwrap()
        .release()
        .await
        .unwrap();
    assert_free(env).await;
}

async fn transaction_checks_every_member(env: &Env) {
    let client = env.client().await;
    let guard = within("free locks", multi(env, &client).lock())
        .await
        .unwrap();
    let written = env.path("m/written");
    within(
        "the commit",
        guard.transaction().create(&written, "").commit(),
    )
    .await
    .unwrap();
    env.delete(&guard.nodes()[2]).await;
    let again = guard
        .transaction()
        .set_data(&written, "late", None)
        .commit();
    let error = within("the answer", again).await.unwrap_err();
    assert!(
        matches!(&error, TransactionError::Lost(lost) if lost.path() == paths(env)[2]),
        "{error}"
    );
    drop(guard);
    client.flush(SOON).await.unwrap();
    assert_free(env).await;
}

async fn many_members_are_acquired(env: &Env) {
    let client = env.client().await;
    let many: Vec<String> = (0..120)
        .map(|index| env.path(&format!("many/{index}")))
        .collect();
    let multi = InterProcessMultiLock::from_paths(&client, &many).unwrap();
    for _ in 0..2 {
        let guard = within("free locks", multi.lock()).await.unwrap();
        assert_eq!(guard.nodes().len(), 120);
        assert!(
            guard
                .nodes()
                .iter()
                .zip(&many)
                .all(|(node, path)| node.lock_path() == path)
        );
        within("the release", guard.release()).await.unwrap();
    }
}
