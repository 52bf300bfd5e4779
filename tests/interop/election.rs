//! Helpers for elections with the other libraries.

use test_support::ZooKeeper;
use test_support::prelude::*;

use super::outside::children;
use super::{Failure, Outcome};

/// Waits for a future that is sure to end.
pub(crate) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> Result<T, Failure> {
    tokio::time::timeout(SOON, future)
        .await
        .map_err(|_| format!("no {what}").into())
}

/// Waits until this many participants have joined.
pub(crate) async fn joined(servers: &ZooKeeper, path: &str, wanted: usize) -> Outcome {
    soon("participants", async {
        while children(servers, path).await?.len() != wanted {}
        Ok::<_, Failure>(())
    })
    .await?
}

/// A selector that takes part in its election, and leads until it is ended.
pub(crate) struct Leading {
    pub(crate) begun: oneshot::Receiver<FencingToken>,
    pub(crate) end: oneshot::Sender<()>,
    pub(crate) task: JoinHandle<Result<(), AcquireError>>,
}

impl Leading {
    pub(crate) fn start(selector: &LeaderSelector) -> Self {
        let (begin, begun) = oneshot::channel();
        let (end, ended) = oneshot::channel();
        let mut once = Some((begin, ended));
        let task = tokio::spawn(selector.lead(move |term| {
            let once = once.take();
            async move {
                if let Some((begin, ended)) = once {
                    let _ = begin.send(term);
                    let _ = ended.await;
                }
            }
        }));
        Self { begun, end, task }
    }
}
