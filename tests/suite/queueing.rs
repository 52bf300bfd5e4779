//! First come, first served, and the contents of the queue.

use test_support::prelude::*;

use crate::harness::{Behaviour, Env, behaviours};

pub(crate) fn all() -> Vec<Behaviour> {
    behaviours![
        fifo_across_clients.also_on_ensemble(),
        participants_begin_with_the_holder
            .curator("testGetParticipantNodes")
            .also_on_ensemble(),
        unused_lock_has_no_participants,
    ]
}

/// Starts a waiter and waits until it stands in the queue as number `place`, the holder being
/// number 1.
async fn queue_up(
    env: &Env,
    mutex: &InterProcessMutex,
    place: usize,
    served: &Arc<Mutex<Vec<usize>>>,
) -> JoinHandle<()> {
    let (mutex, served) = (mutex.clone(), Arc::clone(served));
    let waiter = tokio::spawn(async move {
        let guard = mutex.lock().await.unwrap();
        served.lock().unwrap().push(place);
        guard.release().await.unwrap();
    });
    env.wait_count(&env.lock_path(), place).await;
    waiter
}

async fn fifo_across_clients(env: &Env) {
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

/// Returns the participants, once a member that may lag behind shows all of them.
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

async fn participants_begin_with_the_holder(env: &Env) {
    let (ours, theirs) = (env.mutex().await, env.mutex().await);
    let path = env.lock_path();
    let guard = ours.lock().await.unwrap();
    assert_eq!(ours.participants().await.unwrap(), [guard.node()]);
    let mut nodes = vec![guard.node()];
    let mut waiters = Vec::new();
    for place in 2..=6 {
        waiters.push(tokio::spawn(env.mutex().await.lock()));
        let now = env
            .wait_children(&path, "another contender", |now| now.len() == place)
            .await;
        let new = now
            .iter()
            .map(|name| format!("{path}/{name}").parse().unwrap())
            .find(|node| !nodes.contains(node));
        nodes.push(new.unwrap());
        // Each client shows all participants.
        all_participants(&ours, place).await;
    }
    assert_eq!(all_participants(&theirs, 6).await, nodes);
    guard.release().await.unwrap();
    let first = within("the second in line", waiters.remove(0))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(first.node(), nodes[1]);
    for waiter in waiters {
        waiter.abort();
    }
}

async fn unused_lock_has_no_participants(env: &Env) {
    let mutex = env.mutex().await;
    assert_eq!(mutex.participants().await.unwrap(), [""; 0]);
    assert!(!mutex.is_acquired_in_this_process());
    assert!(
        env.stat(&env.lock_path()).await.is_none(),
        "looking has made the directory"
    );
    mutex.lock().await.unwrap().release().await.unwrap();
    assert_eq!(mutex.participants().await.unwrap(), [""; 0]);
}
