//! Requests that belong to no attempt, hold or node: repeated by the client's retry policy, in whatever session there is.

use std::sync::Arc;
use std::time::Instant;

use zookeeper_client as zk;

use crate::client::epoch::{Epoch, EpochOver, Session};
use crate::client::{Inner, NoEpoch};
use crate::engine::contender::Failure;

/// Why there is no answer.
pub(super) enum Unanswered {
    NoEpoch(NoEpoch),
    /// The servers refused it for good.
    Refused(zk::Error),
    /// The retry policy is exhausted; this came last.
    GaveUp(zk::Error),
}

/// Asks until there is an answer. The end of a session ends a pause too: the next one is asked at once, and a client that
/// is closed answers that it is.
pub(super) async fn ask<T, F>(
    client: &Inner,
    request: impl Fn(Arc<Epoch>, Session) -> F + Send + Sync,
) -> Result<T, Unanswered>
where
    T: Send,
    F: Future<Output = Result<T, zk::Error>> + Send,
{
    let started = Instant::now();
    let mut failures = 0;
    loop {
        let epoch = client.epoch().await.map_err(Unanswered::NoEpoch)?;
        let error = match epoch.request(|session| request(Arc::clone(&epoch), session)).await {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(error)) => error,
            Err(EpochOver) => continue,
        };
        match epoch.judge(&error) {
            Failure::Refused | Failure::OverBudget => return Err(Unanswered::Refused(error)),
            Failure::EpochOver => {}
            Failure::NoNode | Failure::NotNow | Failure::Unknown => {
                let Some(pause) = client.retry().pause(failures, started.elapsed()) else {
                    return Err(Unanswered::GaveUp(error));
                };
                failures += 1;
                tokio::select! {
                    () = tokio::time::sleep(pause) => {}
                    _ = epoch.ended() => {}
                }
            }
        }
    }
}
