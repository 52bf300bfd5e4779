//! Clients outlive their sessions.

use std::thread;

use test_support::prelude::*;

use crate::harness::{Behaviour, Env, Need, behaviours};

pub(crate) fn all() -> Vec<Behaviour> {
    behaviours![
        waiter_survives_session_end.also_on_ensemble(),
        credentials_go_into_the_next_session,
        states_follow_the_connection,
        blocked_executor_costs_no_lock.needs(Need::CountRequests),
    ]
}

fn mutex(client: &Client, env: &Env) -> InterProcessMutex {
    InterProcessMutex::new(client, env.lock_path()).unwrap()
}

// Shows: session-end
async fn waiter_survives_session_end(env: &Env) {
    let (client, link) = env.linked(env.builder()).await;
    let theirs = env.mutex().await;
    let guard = theirs.lock().await.unwrap();
    let waiter = tokio::spawn(mutex(&client, env).lock());
    env.wait_count(&env.lock_path(), 2).await;
    let session = client.session_id().unwrap();
    env.expire(&client, &link).await;
    // The waiter has lost its place with its session, and is in the queue again with the next.
    let holder = guard.node();
    let queued = env
        .wait_children(&env.lock_path(), "the waiter", |now| now.len() == 2)
        .await;
    let node = queued.iter().find(|name| !holder.ends_with(*name)).unwrap();
    let next = env.stat(&format!("{}/{node}", env.lock_path())).await;
    if let Some(next) = next {
        // The visible node may still be the old one, which is about to be deleted.
        assert!(
            next.ephemeral_owner == session || Some(next.ephemeral_owner) == client.session_id()
        );
    }
    assert!(!waiter.is_finished());
    guard.release().await.unwrap();
    let guard = within("the waiter", waiter).await.unwrap().unwrap();
    assert!(guard.is_held());
    let owner = env.stat(&guard.node()).await.unwrap().ephemeral_owner;
    assert_eq!(Some(owner), client.session_id());
    assert_ne!(owner, session);
    guard.release().await.unwrap();
}

async fn credentials_go_into_the_next_session(env: &Env) {
    let builder = env
        .builder()
        .acl([Acl::creator_all()])
        .auth("digest", "us:secret");
    let (client, link) = env.linked(builder).await;
    let lost = mutex(&client, env).lock().await.unwrap();
    env.expire(&client, &link).await;
    within("the loss", lost.lost()).await;
    within("a free lock", mutex(&client, env).lock())
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
}

async fn states_follow_the_connection(env: &Env) {
    let link = env.link();
    // A watch shows only the current state, which must last until it is read.
    let builder = env.builder().session_timeout(Duration::from_secs(10));
    let client = env.connect_to(link.connect_string(), builder).await;
    let mut states = client.watch_state();
    let guard = mutex(&client, env).lock().await.unwrap();
    let session = client.session_id().unwrap();
    link.cut();
    within(
        "suspended",
        states.wait_for(|state| *state == ConnectionState::Suspended),
    )
    .await
    .unwrap();
    assert!(guard.is_held(), "suspended is not lost");
    link.mend();
    within(
        "connected",
        states.wait_for(|state| *state == ConnectionState::Connected),
    )
    .await
    .unwrap();
    if client.session_id() == Some(session) {
        assert!(guard.is_held());
    }
    link.cut();
    env.wait_session_gone(client.session_id().unwrap()).await;
    within(
        "lost",
        states.wait_for(|state| *state == ConnectionState::Lost),
    )
    .await
    .unwrap();
    link.mend();
    within(
        "connected",
        states.wait_for(|state| *state == ConnectionState::Connected),
    )
    .await
    .unwrap();
    assert_ne!(client.session_id(), Some(session));
    client.close().await.unwrap();
    within(
        "closed",
        states.wait_for(|state| *state == ConnectionState::Closed),
    )
    .await
    .unwrap();
}

// Shows: session-thread
async fn blocked_executor_costs_no_lock(env: &Env) {
    let timeout = Duration::from_secs(5);
    let builder = env.builder().session_timeout(timeout);
    let (servers, path) = (env.connect_string(), env.lock_path());
    // A thread waits for the time to pass on the server's side.
    let passed = env.server().wait_until(|_| false, timeout * 3 / 2);
    let (blocked, end) = std::sync::mpsc::channel::<()>();
    let holder = thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let client = builder.connect(&servers).await.unwrap();
            let guard = InterProcessMutex::new(&client, &path)
                .unwrap()
                .lock()
                .await
                .unwrap();
            let session = client.session_id();
            // The test blocks the executor, as users must not: no other task runs until the call
            // returns.
            end.recv().unwrap();
            assert!(guard.is_held());
            assert_eq!(client.session_id(), session);
            guard.release().await.unwrap();
        });
    });
    let theirs = env.mutex().await;
    env.wait_count(&env.lock_path(), 1).await;
    assert!(!passed.await);
    assert!(theirs.try_lock().await.is_err());
    blocked.send(()).unwrap();
    tokio::task::spawn_blocking(move || holder.join().unwrap())
        .await
        .unwrap();
    within("a free lock", theirs.lock())
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
}
