//! Elections: one leader at a time, and a successor when the leader has left.

use test_support::prelude::*;

use crate::harness::{Behaviour, CriticalSection, Env, behaviours};

pub(crate) fn all() -> Vec<Behaviour> {
    behaviours![
        selectors_lead_one_at_a_time
            .with_faults()
            .also_on_ensemble(),
        latches_lead_one_at_a_time.with_faults().also_on_ensemble(),
        leaders_session_end_elects_next.also_on_ensemble(),
    ]
}

async fn selectors_lead_one_at_a_time(env: &Env) {
    let section = Arc::<CriticalSection>::default();
    let terms = Arc::new(Mutex::new(Vec::new()));
    let mut participants = JoinSet::new();
    for _ in 0..3 {
        let selector = LeaderSelector::new(&env.client().await, env.lock_path()).unwrap();
        let (section, terms) = (Arc::clone(&section), Arc::clone(&terms));
        participants.spawn(async move {
            for _ in 0..5 {
                let work = async |term| {
                    terms.lock().unwrap().push(term);
                    section.visit().await;
                };
                selector.lead(work).await.unwrap();
            }
        });
    }
    within("all terms", participants.join_all()).await;
    assert_eq!(section.visits(), 15);
    let terms = terms.lock().unwrap().clone();
    assert!(terms.is_sorted_by(|one, next| one < next), "{terms:?}");
    env.wait_count(&env.lock_path(), 0).await;
}

async fn latches_lead_one_at_a_time(env: &Env) {
    let section = Arc::<CriticalSection>::default();
    let mut participants = JoinSet::new();
    for _ in 0..3 {
        let (client, path, section) = (env.client().await, env.lock_path(), Arc::clone(&section));
        participants.spawn(async move {
            for _ in 0..4 {
                let latch = LeaderLatch::new(&client, &path).unwrap();
                let leadership = latch.leadership().await.unwrap();
                leadership.while_held(section.visit()).await.unwrap();
                latch.close().await.unwrap();
            }
        });
    }
    within("all terms", participants.join_all()).await;
    assert_eq!(section.visits(), 12);
    env.wait_count(&env.lock_path(), 0).await;
}

fn latch(client: &Client, env: &Env, id: &str) -> LeaderLatch {
    LeaderLatch::builder(client, env.lock_path())
        .id(id)
        .build()
        .unwrap()
}

async fn leads(latch: &LeaderLatch) -> Leadership {
    within("the leadership", latch.leadership()).await.unwrap()
}

// Shows: election
async fn leaders_session_end_elects_next(env: &Env) {
    let (client, link) = env.linked(env.builder()).await;
    let first = latch(&client, env, "first");
    let leadership = leads(&first).await;
    let second = latch(&env.client().await, env, "second");
    env.wait_count(&env.lock_path(), 2).await;
    let lost = tokio::spawn(leadership.lost());
    env.expire(&client, &link).await;
    let next = leads(&second).await;
    assert!(next.fencing_token() > leadership.fencing_token());
    // An in-process server ends a session at once, and notifies its client and the next one at the
    // same time.
    let lost = within("the loss", lost).await.unwrap();
    assert!(env.is_loss(lost.reason()), "{lost}");
    assert!(!leadership.is_held());
    // The participant has joined again, and leads when the other leaves.
    env.wait_count(&env.lock_path(), 2).await;
    within("the close", second.close()).await.unwrap();
    let again = leads(&first).await;
    assert!(again.fencing_token() > next.fencing_token());
    let owner = env.stat(&again.node()).await.unwrap().ephemeral_owner;
    assert_eq!(Some(owner), client.session_id());
    assert_eq!(
        within("the end", next.lost()).await.reason(),
        LostReason::GivenUp
    );
    within("the close", first.close()).await.unwrap();
    env.wait_count(&env.lock_path(), 0).await;
}
