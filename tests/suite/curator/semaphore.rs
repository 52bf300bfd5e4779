//! TestInterProcessSemaphore, of InterProcessSemaphoreV2, and TestInterProcessSemaphoreCluster.

use test_support::prelude::*;

use super::stage::{Kind, Stage, ported};
use crate::harness::{Behaviour, LimitedSection, Need};

/// The time without a visit after which none is expected.
const QUIET: Duration = Duration::from_secs(1);

pub(crate) fn all() -> Vec<Behaviour> {
    ported![Kind::Semaphore;
        test_cluster = "TestInterProcessSemaphoreCluster.testCluster"
            .needs(Need::OwnServers).only_on_ensemble(),
    ]
}

/// Twenty clients contend; without a quorum none is granted a permit, and with the quorum they
/// continue. (Curator's check for exclusion is inverted, and proves nothing.)
async fn test_cluster(stage: &Stage<'_>) {
    let section = Arc::new(LimitedSection::new(1));
    let (visit, mut visits) = watch::channel(0);
    let visit = Arc::new(visit);
    let go_on = Arc::new(AtomicBool::new(true));
    let mut clients = JoinSet::new();
    let mut states = Vec::new();
    for _ in 0..20 {
        let patient = stage
            .connect(stage.env.builder().session_timeout(Duration::from_secs(60)))
            .await;
        states.push(patient.watch_state());
        let semaphore = stage.semaphore(&patient, 1);
        let (section, visit, go_on) =
            (Arc::clone(&section), Arc::clone(&visit), Arc::clone(&go_on));
        clients.spawn(async move {
            while go_on.load(Ordering::SeqCst) {
                let permit = semaphore.acquire(Duration::from_secs(300)).await.unwrap();
                section.visit_while(&permit, tokio::task::yield_now()).await;
                visit.send_modify(|visits| *visits += 1);
                permit.release().await.unwrap();
            }
        });
    }
    drop(
        within("some to come in", visits.wait_for(|visits| *visits > 20))
            .await
            .unwrap(),
    );
    let gone = stage.env.lose_quorum().await;
    for state in &mut states {
        let cut_off = state.wait_for(|state| *state == ConnectionState::Suspended);
        within("the outage", cut_off).await.unwrap();
    }
    // Callers that were granted a permit before the outage may still be notified of the grant.
    for _ in 0..20 {
        let before = *visits.borrow_and_update();
        if tokio::time::timeout(QUIET, visits.wait_for(|visits| *visits > before))
            .await
            .is_err()
        {
            break;
        }
    }
    let before = *visits.borrow_and_update();
    let another = tokio::time::timeout(QUIET, visits.wait_for(|visits| *visits > before))
        .await
        .is_ok();
    assert!(!another, "a grant without a quorum");
    stage.env.restart_members(gone).await;
    drop(
        within(
            "others to come in",
            visits.wait_for(|visits| *visits > before + 20),
        )
        .await
        .unwrap(),
    );
    go_on.store(false, Ordering::SeqCst);
    all_done("all of them", clients).await;
}
