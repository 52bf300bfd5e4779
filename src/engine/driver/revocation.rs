//! Asking a holder to give its lock back, and hearing of it: Curator's protocol. Whoever asks writes a marker into the
//! holder's node; the holder watches the data of its own node. Nothing is taken away: the holder decides.

use std::sync::Weak;
use std::time::Instant;

use zookeeper_client as zk;

use super::requests::changed;
use crate::client::Inner;
use crate::client::epoch::{Epoch, cause};
use crate::client::held::Held;
use crate::client::watches::WatchUse;
use crate::engine::contender::Failure;
use crate::error::RevokeError;
use crate::path::LockPath;

/// What Curator's `Revoker` writes.
pub(super) const MARKER: &[u8] = b"__REVOKE__";

/// Waits until somebody asks for a lock back; false if the lock is given back, or the session over, before.
///
/// It looks at the node's data when it sets the watch, so a request that came before is not missed.
pub(crate) async fn asked_back(epoch: Weak<Epoch>, directory: LockPath, held: std::sync::Arc<Held>) -> bool {
    loop {
        if held.is_asked_back() {
            return true;
        }
        let Some(epoch) = epoch.upgrade().filter(|_| !held.is_given_back()) else { return false };
        let Ok(session) = epoch.session() else { return false };
        let path = directory.child(&held.name());
        let period = epoch.belief().period();
        let watching = epoch.watch(&path, WatchUse::Revocation);
        let ended = epoch.ended();
        // From here on the epoch is not kept, and the session only for the request.
        drop(epoch);
        let wait = async {
            if watching.is_some() {
                let (data, _, watcher) = session.get_and_watch_data(&path).await?;
                drop(session);
                if data == MARKER {
                    return Ok(true);
                }
                // Whatever happened: look again. A conversion reads what was written before it exchanges the node.
                changed(watcher).await;
            } else {
                // The session watches too much already: look from time to time.
                let (data, _) = session.get_data(&path).await?;
                drop(session);
                if data == MARKER {
                    return Ok(true);
                }
                tokio::time::sleep(period).await;
            }
            Ok::<_, zk::Error>(false)
        };
        let result = tokio::select! {
            biased;
            result = wait => result,
            _ = ended => return false,
        };
        match result {
            Ok(false) => {}
            Ok(true) => held.ask_back(),
            Err(error) => {
                tracing::debug!(path, %error, "whether the lock is asked for back is looked at again");
                tokio::time::sleep(period).await;
            }
        }
    }
}

/// Asks the holder, or waiter, with this node to give up. That there is no such node any more is no error.
pub(crate) async fn ask_back(client: &Inner, path: &LockPath) -> Result<(), RevokeError> {
    let node = || path.user().to_owned();
    let started = Instant::now();
    let mut failures = 0;
    loop {
        let epoch = match client.epoch().await {
            Ok(epoch) => epoch,
            Err(no_epoch) => {
                return Err(match no_epoch.into_error(path) {
                    crate::AcquireError::Connection { source, .. } => {
                        RevokeError::Connection { node: node(), source }
                    }
                    _ => RevokeError::Closed { node: node() },
                });
            }
        };
        let Ok(session) = epoch.session() else { continue };
        let error = match session.set_data(path.server(), MARKER, None).await {
            Ok(_) | Err(zk::Error::NoNode) => return Ok(()),
            Err(error) => error,
        };
        match epoch.judge(&error) {
            Failure::Refused | Failure::OverBudget => {
                return Err(RevokeError::Refused { node: node(), source: cause(error) });
            }
            Failure::EpochOver => {}
            Failure::NoNode | Failure::NotNow | Failure::Unknown => {
                let Some(pause) = client.retry().pause(failures, started.elapsed()) else {
                    return Err(RevokeError::Connection { node: node(), source: cause(error) });
                };
                failures += 1;
                tokio::time::sleep(pause).await;
            }
        }
    }
}
