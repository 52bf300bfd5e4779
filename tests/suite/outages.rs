//! Servers stop and restart.

use std::fmt::Debug;

use test_support::prelude::*;

use crate::harness::{Behaviour, Env, Need, behaviours};

pub(crate) fn all() -> Vec<Behaviour> {
    behaviours![
        election_costs_no_lock
            .needs(Need::OwnServers)
            .only_on_ensemble(),
        lock_reports_exhausted_policy,
        lock_waits_under_endless_policy,
        participants_reports_missing_answer,
        lock_released_in_outage_is_freed.curator("TestFailedDeleteManager.testBasic"),
        release_reports_after_outage,
    ]
}

fn mutex(client: &Client, env: &Env) -> InterProcessMutex {
    InterProcessMutex::new(client, env.lock_path()).unwrap()
}

/// Repeats a call until the restarted servers answer. A client that tries only twice may be too
/// early on a busy machine.
async fn answered<T, E, F>(ask: impl Fn() -> F) -> T
where
    T: Debug,
    E: Into<AcquireError>,
    F: Future<Output = Result<T, E>>,
{
    loop {
        match within("an answer", ask()).await.map_err(Into::into) {
            Err(error) if error.kind() == Some(ErrorKind::Connection) => {}
            answer => return answer.unwrap(),
        }
    }
}

async fn election_costs_no_lock(env: &Env) {
    let (ours, theirs) = (env.mutex().await, env.mutex().await);
    let guard = ours.lock().await.unwrap();
    let waiter = tokio::spawn(theirs.lock());
    env.wait_count(&env.lock_path(), 2).await;
    env.replace_leader().await;
    assert!(guard.is_held());
    assert_eq!(
        within("an answer", ours.participants()).await.unwrap()[0],
        guard.node()
    );
    assert!(!waiter.is_finished());
    let token = guard.fencing_token();
    within("the release", guard.release()).await.unwrap();
    let guard = within("the second in line", waiter).await.unwrap().unwrap();
    assert!(guard.fencing_token() > token);
    guard.release().await.unwrap();
    let guard = within("a free lock", ours.lock()).await.unwrap();
    assert!(
        guard.fencing_token().zxid() >> 32 > token.zxid() >> 32,
        "a new epoch"
    );
    guard.release().await.unwrap();
}

async fn lock_reports_exhausted_policy(env: &Env) {
    let policy = RetryPolicy::n_times(1, Duration::from_millis(10));
    let builder = env
        .builder()
        .retry_policy(policy)
        .connect_timeout(Duration::from_millis(500));
    let (client, link) = env.linked(builder).await;
    mutex(&client, env)
        .lock()
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    link.cut();
    let attempts = [
        mutex(&client, env),
        InterProcessMutex::new(&client, env.path("other")).unwrap(),
    ];
    let attempts = attempts.map(|mutex| tokio::spawn(mutex.lock()));
    for attempt in attempts {
        let error = within("an answer", attempt).await.unwrap().unwrap_err();
        assert_eq!(error.kind(), Some(ErrorKind::Connection), "{error:?}");
        assert!(error.is_retryable());
        let source = std::error::Error::source(&error)
            .expect("what the connection said")
            .to_string();
        assert!(source.contains(link.connect_string()), "{source}");
    }
    // Each call sends new requests.
    let error = within("an answer", mutex(&client, env).lock())
        .await
        .unwrap_err();
    assert_eq!(error.kind(), Some(ErrorKind::Connection), "{error:?}");
    link.mend();
    let free = mutex(&client, env);
    answered(|| free.lock()).await.release().await.unwrap();
}

async fn lock_waits_under_endless_policy(env: &Env) {
    let policy = RetryPolicy::forever(Duration::from_millis(10));
    let builder = env
        .builder()
        .retry_policy(policy)
        .connect_timeout(Duration::from_millis(500));
    let (client, link) = env.linked(builder).await;
    let session = client.session_id().unwrap();
    let mut states = client.watch_state();
    link.cut();
    let attempt = tokio::spawn(mutex(&client, env).lock());
    let lost = ConnectionState::Lost;
    within("the loss", states.wait_for(|state| *state == lost))
        .await
        .unwrap();
    env.wait_session_gone(session).await;
    assert!(!attempt.is_finished());
    link.mend();
    within("a free lock", attempt)
        .await
        .unwrap()
        .unwrap()
        .release()
        .await
        .unwrap();
}

async fn participants_reports_missing_answer(env: &Env) {
    let policy = RetryPolicy::n_times(1, Duration::from_millis(10));
    let builder = env
        .builder()
        .retry_policy(policy)
        .connect_timeout(Duration::from_millis(500));
    let (client, link) = env.linked(builder).await;
    link.cut();
    let error = within("an answer", mutex(&client, env).participants())
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Connection, "{error:?}");
    link.mend();
    let free = mutex(&client, env);
    assert_eq!(answered(|| free.participants()).await, [""; 0]);
}

async fn lock_released_in_outage_is_freed(env: &Env) {
    let (client, link) = env.linked(env.builder()).await;
    let theirs = env.mutex().await;
    let guard = mutex(&client, env).lock().await.unwrap();
    let waiter = tokio::spawn(theirs.lock());
    env.wait_count(&env.lock_path(), 2).await;
    link.cut();
    drop(guard);
    link.mend();
    within("the second in line", waiter)
        .await
        .unwrap()
        .unwrap()
        .release()
        .await
        .unwrap();
    client.flush(SOON).await.unwrap();
    assert_eq!(env.children(&env.lock_path()).await, [""; 0]);
}

async fn release_reports_after_outage(env: &Env) {
    let link = env.link();
    // The session timeout outlasts the outage.
    let client = env.connect_to(link.connect_string(), env.builder()).await;
    let barrier = Barrier::at(&client, &env.path("barrier")).await;
    let guard = mutex(&client, env).lock().await.unwrap();
    let mut states = client.watch_state();
    link.cut();
    let suspended = ConnectionState::Suspended;
    within("the outage", states.wait_for(|state| *state == suspended))
        .await
        .unwrap();
    let mut release = task::spawn(guard.release());
    assert_pending!(release.poll());
    barrier.pass().await;
    assert_pending!(release.poll(), "the servers have not been asked");
    link.mend();
    within("the release", release).await.unwrap();
    assert_eq!(env.children(&env.lock_path()).await, [""; 0]);
}
