//! Jobs that run once per occasion.

use std::collections::BTreeMap;

use test_support::prelude::*;

use crate::harness::{Behaviour, Env, behaviours};

pub(crate) fn all() -> Vec<Behaviour> {
    behaviours![
        each_occasion_runs_once.with_faults().also_on_ensemble(),
        dead_runner_is_replaced
    ]
}

/// Several processes wake for the same occasions one by one. With broken connections a call may end
/// with an error, and is repeated; a run whose record is uncertain does not count.
// Shows: once-record
async fn each_occasion_runs_once(env: &Env) {
    let ran: Arc<Mutex<BTreeMap<String, u32>>> = Arc::default();
    let mut processes = JoinSet::new();
    for _ in 0..3 {
        let (client, path, ran) = (env.client().await, env.path("job"), Arc::clone(&ran));
        processes.spawn(async move {
            for occasion in ["a", "b", "c", "d"] {
                let outcome = loop {
                    match OnceJob::new(&client, &path, occasion)
                        .run(|_| async { Ok::<_, String>(()) })
                        .await
                    {
                        Ok(outcome) => break outcome,
                        Err(error) => assert!(error.is_retryable(), "{error}"),
                    }
                };
                if outcome == OnceOutcome::Ran(()) {
                    *ran.lock().unwrap().entry(occasion.to_owned()).or_default() += 1;
                }
            }
        });
    }
    within("all occasions", processes.join_all()).await;
    let ran = ran.lock().unwrap().clone();
    // If the answer about a record was lost, the next call of the same process found the record.
    assert!(ran.values().all(|times| *times == 1), "{ran:?}");
    for occasion in ["a", "b", "c", "d"] {
        assert!(
            env.stat(&env.path(&format!("job/done/{occasion}")))
                .await
                .is_some(),
            "{occasion}"
        );
    }
}

// Shows: once-record
async fn dead_runner_is_replaced(env: &Env) {
    let (client, link) = env.linked(env.builder()).await;
    let path = env.path("job");
    let (began, begun) = oneshot::channel();
    let dying = tokio::spawn({
        let (client, path) = (client.clone(), path.clone());
        async move {
            let run = OnceJob::new(&client, &path, "a").run(|_| async move {
                began.send(()).unwrap();
                std::future::pending::<Result<(), String>>().await
            });
            run.await
        }
    });
    within("the first run", begun).await.unwrap();
    let other = env.client().await;
    let following = tokio::spawn(async move {
        OnceJob::new(&other, &path, "a")
            .run(|_| async { Ok::<_, String>(7) })
            .await
    });
    env.expire(&client, &link).await;
    let lost = within("the loss", dying).await.unwrap().unwrap_err();
    assert!(
        matches!(lost, OnceError::Lost(_)) && lost.is_retryable(),
        "{lost}"
    );
    assert_eq!(
        within("the second run", following).await.unwrap().unwrap(),
        OnceOutcome::Ran(7)
    );
}
