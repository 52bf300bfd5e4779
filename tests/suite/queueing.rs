//! First come, first served, and what the queue looks like.

use std::sync::{Arc, Mutex};

use test_support::{SOON, within};
use tokio::task::JoinSet;
use tokio_test::{assert_pending, task};
use zookeeper_recipes::{InterProcessMutex, NodePath};

use crate::harness::{Behaviour, Env, behaviours};

pub(crate) fn all() -> Vec<Behaviour> {
    behaviours![
        first_come_first_served_across_clients.on_an_ensemble_too(),
        first_come_first_served_within_one_client,
        a_contender_that_leaves_the_queue_keeps_no_other_back.on_an_ensemble_too(),
        each_waiter_watches_only_the_one_before_it,
        participants_come_in_order_the_holder_first.curator("testGetParticipantNodes").on_an_ensemble_too(),
        a_lock_that_was_never_used_has_no_participants,
        a_client_has_one_node,
        a_deleted_waiter_queues_again_and_leaves_nothing.curator("testNoOrphanedNodes"),
        a_deleted_waiter_is_not_let_in_beside_the_next,
    ]
}

/// Starts a waiter and waits until it stands in the queue as number `place`, the holder being number 1.
async fn queue_up(
    env: &Env,
    mutex: &InterProcessMutex,
    place: usize,
    served: &Arc<Mutex<Vec<usize>>>,
) -> tokio::task::JoinHandle<()> {
    let (mutex, served) = (mutex.clone(), Arc::clone(served));
    let waiter = tokio::spawn(async move {
        let guard = mutex.lock().await.unwrap();
        served.lock().unwrap().push(place);
        guard.release().await.unwrap();
    });
    env.wait_count(&env.lock_path(), place).await;
    waiter
}

async fn first_come_first_served_across_clients(env: &Env) {
    let served = Arc::default();
    let guard = env.mutex().await.lock().await.unwrap();
    let mut waiters = Vec::new();
    for place in 2..=9 {
        waiters.push(queue_up(env, &env.mutex().await, place, &served).await);
    }
    guard.release().await.unwrap();
    for waiter in waiters {
        within("every waiter", waiter).await.unwrap();
    }
    assert_eq!(*served.lock().unwrap(), [2, 3, 4, 5, 6, 7, 8, 9]);
}

async fn first_come_first_served_within_one_client(env: &Env) {
    let client = env.client().await;
    let mutex = InterProcessMutex::builder(&client, env.lock_path()).build().unwrap();
    let guard = mutex.lock().await.unwrap();
    let served = Arc::new(Mutex::new(Vec::new()));
    let mut waiters = JoinSet::new();
    for number in 0..50 {
        let mut wait = task::spawn(mutex.lock());
        assert_pending!(wait.poll());
        let served = Arc::clone(&served);
        waiters.spawn(async move {
            let guard = wait.await.unwrap();
            served.lock().unwrap().push(number);
            drop(guard);
        });
    }
    guard.release().await.unwrap();
    within("every waiter", async {
        while let Some(done) = waiters.join_next().await {
            done.unwrap();
        }
    })
    .await;
    assert_eq!(*served.lock().unwrap(), (0..50).collect::<Vec<_>>());
}

async fn a_contender_that_leaves_the_queue_keeps_no_other_back(env: &Env) {
    let served = Arc::default();
    let guard = env.mutex().await.lock().await.unwrap();
    let leaves = queue_up(env, &env.mutex().await, 2, &served).await;
    let stays = queue_up(env, &env.mutex().await, 3, &served).await;
    let last = queue_up(env, &env.mutex().await, 4, &served).await;
    leaves.abort();
    env.wait_count(&env.lock_path(), 3).await;
    // The one behind has another predecessor now, and does not take its going for the holder's.
    assert!(!stays.is_finished());
    guard.release().await.unwrap();
    within("the one behind", stays).await.unwrap();
    within("the last", last).await.unwrap();
    assert_eq!(*served.lock().unwrap(), [3, 4]);
}

async fn each_waiter_watches_only_the_one_before_it(env: &Env) {
    let ours = env.mutex().await;
    let path = env.lock_path();
    let guard = ours.lock().await.unwrap();
    let mut waiters = Vec::new();
    for place in 2..=4 {
        waiters.push(tokio::spawn(env.mutex().await.lock()));
        env.wait_count(&path, place).await;
    }
    let queue = ours.participants().await.unwrap();
    for node in &queue[..3] {
        env.wait_watchers(node, 1).await;
    }
    assert_eq!(env.watchers(&queue[3]).await, 0, "the last has no waiter");
    // Those who go take their watches along.
    waiters.pop().unwrap().abort();
    env.wait_watchers(&queue[2], 0).await;
    waiters.remove(0).abort();
    env.wait_watchers(&queue[0], 1).await;
    env.wait_count(&path, 2).await;
    guard.release().await.unwrap();
    within("the one that stayed", waiters.remove(0)).await.unwrap().unwrap().release().await.unwrap();
}

/// The participants, once a member that may lag behind the one that the last create went through shows all of them.
async fn all_participants(mutex: &InterProcessMutex, count: usize) -> Vec<NodePath> {
    within("the last contender", async {
        loop {
            let queue = mutex.participants().await.unwrap();
            if queue.len() == count {
                return queue;
            }
        }
    })
    .await
}

async fn participants_come_in_order_the_holder_first(env: &Env) {
    let (ours, theirs) = (env.mutex().await, env.mutex().await);
    let path = env.lock_path();
    let guard = ours.lock().await.unwrap();
    assert_eq!(ours.participants().await.unwrap(), [guard.node()]);
    let mut nodes = vec![guard.node()];
    let mut waiters = Vec::new();
    for place in 2..=6 {
        waiters.push(tokio::spawn(env.mutex().await.lock()));
        let now = env.wait_children(&path, "another contender", |now| now.len() == place).await;
        let new = now
            .iter()
            .map(|name| format!("{path}/{name}").parse().unwrap())
            .find(|node| !nodes.contains(node));
        nodes.push(new.unwrap());
        // Whichever is asked.
        all_participants(&ours, place).await;
    }
    assert_eq!(all_participants(&theirs, 6).await, nodes);
    guard.release().await.unwrap();
    let first = within("the second in line", waiters.remove(0)).await.unwrap().unwrap();
    assert_eq!(first.node(), nodes[1]);
    for waiter in waiters {
        waiter.abort();
    }
}

async fn a_lock_that_was_never_used_has_no_participants(env: &Env) {
    let mutex = env.mutex().await;
    assert_eq!(mutex.participants().await.unwrap(), [""; 0]);
    assert!(!mutex.is_acquired_in_this_process());
    assert!(env.stat(&env.lock_path()).await.is_none(), "looking has made the directory");
    mutex.lock().await.unwrap().release().await.unwrap();
    assert_eq!(mutex.participants().await.unwrap(), [""; 0]);
}

/// The one that is first, and the one before it on its way out.
async fn a_client_has_one_node(env: &Env) {
    let client = env.client().await;
    let mutex = InterProcessMutex::builder(&client, env.lock_path()).hand_off(4, SOON).build().unwrap();
    let guard = mutex.lock().await.unwrap();
    let mut waiters = JoinSet::new();
    for _ in 0..40 {
        let mut wait = task::spawn(mutex.lock());
        assert_pending!(wait.poll());
        waiters.spawn(async move { wait.await.map(drop) });
    }
    let path = env.lock_path();
    assert_eq!(env.children(&path).await.len(), 1);
    let watch = env.wait_children(&path, "the end", |now| {
        assert!(now.len() <= 2, "more than two nodes: {now:?}");
        now.is_empty()
    });
    let serve = async {
        drop(guard);
        while let Some(served) = waiters.join_next().await {
            served.unwrap().unwrap();
        }
        client.flush(SOON).await.unwrap();
    };
    tokio::join!(watch, within("every waiter", serve));
}

async fn a_deleted_waiter_queues_again_and_leaves_nothing(env: &Env) {
    let (ours, theirs, others) = (env.mutex().await, env.mutex().await, env.mutex().await);
    let path = env.lock_path();
    let guard = ours.lock().await.unwrap();
    let second = tokio::spawn(others.lock());
    env.wait_count(&path, 2).await;
    let waiter = tokio::spawn(theirs.lock());
    env.wait_count(&path, 3).await;
    let place = within("an answer", theirs.participants()).await.unwrap().pop().unwrap();
    env.delete(&place).await;
    guard.release().await.unwrap();
    // It looks again when the one before it goes, at the latest.
    within("the second in line", second).await.unwrap().unwrap().release().await.unwrap();
    let guard = within("the waiter", waiter).await.unwrap().unwrap();
    assert_ne!(guard.node(), place);
    assert_eq!(env.children(&path).await.len(), 1);
    guard.release().await.unwrap();
    assert!(env.children(&path).await.is_empty());
}

async fn a_deleted_waiter_is_not_let_in_beside_the_next(env: &Env) {
    let (ours, theirs, others) = (env.mutex().await, env.mutex().await, env.mutex().await);
    let path = env.lock_path();
    let guard = ours.lock().await.unwrap();
    let holder = guard.node();
    let mut robbed = tokio::spawn(theirs.lock());
    env.wait_watchers(&holder, 1).await;
    let place = env.children(&path).await.into_iter().find(|name| !holder.ends_with(name)).unwrap();
    env.delete(&format!("{path}/{place}")).await;
    let next = tokio::spawn(others.lock());
    // Both have seen the holder before them and no other contender.
    env.wait_watchers(&holder, 2).await;
    guard.release().await.unwrap();
    let guard = within("the next in line", next).await.unwrap().unwrap();
    assert_ne!(guard.node(), format!("{path}/{place}"));
    // The robbed one queues behind it.
    let node = guard.node();
    tokio::select! {
        () = env.wait_watchers(&node, 1) => {}
        Ok(Ok(robbed)) = &mut robbed => panic!("two hold the lock: {node} and {}", robbed.node()),
    }
    assert!(guard.is_held());
    guard.release().await.unwrap();
    within("the robbed one", robbed).await.unwrap().unwrap().release().await.unwrap();
}
