//! Requested revocations, by Curator's protocol (docs/protocol.md#revocation): another process
//! writes a marker into the holder's node, whose data the holder watches. The holder decides
//! whether it releases the lock.

use std::pin::pin;
use std::sync::{Arc, Weak};

use tokio::sync::oneshot;
use zookeeper_client as zk;

use crate::engine::held::Held;
use crate::error::{Error, Purpose, RequestFailure};
use crate::session::contents::limits::{WatchUse, changed_or_after, read_and_watch};
use crate::session::core::Core;
use crate::session::live::zk_session::Session;
use crate::session::reports::log;
use crate::values::contender::REVOKED;
use crate::values::path::{LockPath, NodePath};

/// The data that Curator's `Revoker` writes.
pub(crate) const MARKER: &[u8] = REVOKED.as_bytes();

/// Watches the node of a hold, and replies once revocation is requested. Ends without a reply if the
/// lock is released, or the session ends, before.
///
/// The node's data are read when the watch is set, so a request that came before is not missed. Of
/// the calls of a hold, the one that sees the request first watches on until the node is gone, so
/// that a holder that has not released the lock yet learns of the deletion without a heartbeat.
pub(crate) async fn watch_node(
    session: Weak<Session>,
    directory: LockPath,
    held: Weak<Held>,
    reply: oneshot::Sender<()>,
) {
    let mut reply = Some(reply);
    loop {
        let Some(hold) = held.upgrade() else { return };
        if hold.is_revocation_requested() {
            if let Some(reply) = reply.take() {
                // The caller may have left.
                let _ = reply.send(());
                return;
            }
        }
        let Some(session) = session.upgrade().filter(|_| !hold.is_lost_or_released()) else {
            return;
        };
        let node = hold.name();
        drop(hold);
        let path = directory.child(&node);
        let period = session.lease.rule.heartbeat_interval();
        let watching = session.watches.watch(&path, WatchUse::Revocation);
        let mut ended = pin!(session.ended());
        let (path_of_node, watched) = (path.as_str(), watching.is_some());
        // The session is kept for the request only.
        let look = async move {
            let answer = session.request(|handle| async move {
                read_and_watch(&handle, path_of_node, watched).await
            });
            answer.await.unwrap_or(Err(zk::Error::ClientClosed))
        };
        let wait = async {
            let (data, _, watcher) = look.await?;
            if data == MARKER {
                let is_first = held.upgrade().is_some_and(|held| held.request_revocation());
                if let Some(reply) = reply.take() {
                    let _ = reply.send(());
                    if !is_first {
                        return Ok(false);
                    }
                }
            }
            // If the session can watch no more, the node is polled for a request. Of its deletion the
            // heartbeat tells as often.
            if reply.is_none() && watcher.is_none() {
                return Ok(false);
            }
            // Whatever the event is, the node is read again. A conversion reads it too before it
            // exchanges the node.
            changed_or_after(watcher, period).await;
            Ok::<_, zk::Error>(true)
        };
        let result = tokio::select! {
            biased;
            result = wait => result,
            _ = &mut ended => return,
        };
        match result {
            Ok(true) => {}
            Ok(false) => return,
            Err(error) => {
                let hold = held.upgrade().filter(|_| error == zk::Error::NoNode);
                if let Some(hold) = hold {
                    // Unless it has been converted in the meantime, it is lost.
                    hold.node_deleted(node);
                }
                log::debug!(path, %error, "whether revocation was requested is checked again");
                tokio::select! {
                    () = tokio::time::sleep(period) => {}
                    _ = &mut ended => return,
                }
            }
        }
    }
}

/// Requests revocation from the holder or waiter with this node. Returns `Ok` if the node no longer
/// exists.
pub(crate) async fn request_revocation(client: &Core, node: &NodePath) -> Result<(), Error> {
    let path = &LockPath::parse(&client.namespace, node).map_err(|invalid| {
        not_asked(client, node, RequestFailure::InvalidPath(Arc::new(invalid)))
    })?;
    let asked = client.repeat(|_, handle| async move {
        match handle.set_data(path.server(), MARKER, None).await {
            Ok(_) | Err(zk::Error::NoNode) => Ok(()),
            Err(error) => Err(error),
        }
    });
    asked.await.map_err(|why| not_asked(client, node, why))
}

/// Returns the error of such a request.
pub(crate) fn not_asked(client: &Core, node: &NodePath, why: impl Into<RequestFailure>) -> Error {
    client.error(Purpose::Revocation, node, why).at(node)
}
