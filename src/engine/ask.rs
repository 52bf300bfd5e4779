//! Requests that belong to no attempt, hold or node: repeated by the client's retry policy, in whatever session there is.

use std::sync::Arc;
use std::time::Instant;

use zookeeper_client as zk;

use crate::protocol::failure::FailureKind;
use crate::session::core::{Core, NoSession};
use crate::session::zk_session::{Handle, Session, SessionOver};

/// Why there is no answer.
pub(super) enum Unanswered {
    NoSession(NoSession),
    /// The servers refused it for good.
    Refused(zk::Error),
    /// The retry policy is exhausted; this came last.
    GaveUp(zk::Error),
}

/// Asks until there is an answer. The end of a session ends a pause too: the next one is asked at once, and a client that
/// is closed answers that it is.
pub(super) async fn ask<T, F>(
    client: &Core,
    request: impl Fn(Arc<Session>, Handle) -> F + Send + Sync,
) -> Result<T, Unanswered>
where
    T: Send,
    F: Future<Output = Result<T, zk::Error>> + Send,
{
    let started = Instant::now();
    let mut failures = 0;
    loop {
        let session = client.session().await.map_err(Unanswered::NoSession)?;
        let error = match session.request(|handle| request(Arc::clone(&session), handle)).await {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(error)) => error,
            Err(SessionOver) => continue,
        };
        match session.judge(&error) {
            FailureKind::Refused(_) | FailureKind::TooManyWatches => return Err(Unanswered::Refused(error)),
            FailureKind::SessionOver => {}
            FailureKind::NoNode | FailureKind::NotNow | FailureKind::Unknown => {
                let Some(pause) = client.retry().pause(failures, started.elapsed()) else {
                    return Err(Unanswered::GaveUp(error));
                };
                failures += 1;
                tokio::select! {
                    () = tokio::time::sleep(pause) => {}
                    _ = session.ended() => {}
                }
            }
        }
    }
}
