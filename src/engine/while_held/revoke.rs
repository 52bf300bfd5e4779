//! Requested revocations, by Curator's protocol (docs/protocol.md#revocation).
//!
//! A process that wants a lock writes a marker into the holder's node ([`request_revocation`]). The
//! marker is a message: it changes nothing in the queue, and the holder decides whether it releases
//! the lock. A holder that is interested in requests watches the data of its node ([`watch_node`]):
//!
//! 1. Read the node with a one-shot watch. The answer shows requests from before the watch.
//! 2. If the data are the marker, record the request in the hold and notify the caller.
//! 3. Wait for the watch, or for a heartbeat period if the session can watch no more, and continue
//!    with step 1, by the node's name at that time: a downgrade replaces the node.
//!
//! The first watch that sees a request continues after it, because it notices the deletion of the
//! node before the heartbeat does. All watches end with the hold and with the session.

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

/// Watches the node of a hold, and replies once revocation is requested. Ends without a reply if
/// the lock is lost or released, or the session ends, before that.
///
/// Several calls may watch one hold. The first that sees the request continues to watch until the
/// node is deleted, so that a holder that has not released the lock yet learns of the deletion
/// without a heartbeat.
pub(crate) async fn watch_node(
    session: Weak<Session>,
    directory: LockPath,
    held: Weak<Held>,
    reply: oneshot::Sender<()>,
) {
    // `None` once the caller is notified. The watch then continues only to notice the deletion of
    // the node.
    let mut reply = Some(reply);
    loop {
        // The references to the hold and to the session are weak during each wait, so that the
        // watch keeps neither the lock nor the connection.
        let Some(hold) = held.upgrade() else { return };
        if hold.is_revocation_requested() {
            if let Some(reply) = reply.take() {
                // Another watch of this hold, or a downgrade, has seen the request. An error means
                // that this caller has left.
                let _ = reply.send(());
                return;
            }
        }
        let Some(session) = session.upgrade().filter(|_| !hold.is_lost_or_released()) else {
            return;
        };
        // The name is read in each round, because a downgrade replaces the node.
        let node = hold.name();
        drop(hold);
        let path = directory.child(&node);
        let period = session.lease.rule.heartbeat_interval();
        let watching = session.watches.watch(&path, WatchUse::Revocation);
        let mut ended = pin!(session.ended());
        let (path_of_node, watched) = (path.as_str(), watching.is_some());
        // The session is kept for the request only, and not for the wait
        // (docs/protocol.md#lent-session).
        let look = async move {
            let answer = session.request(|handle| async move {
                read_and_watch(&handle, path_of_node, watched).await
            });
            answer.await.unwrap_or(Err(zk::Error::ClientClosed))
        };
        let wait = async {
            let (data, _, watcher) = look.await?;
            if data == MARKER {
                // Of several watches of a hold, only the one that records the request continues
                // after it.
                let is_first = held.upgrade().is_some_and(|held| held.request_revocation());
                if let Some(reply) = reply.take() {
                    let _ = reply.send(());
                    if !is_first {
                        return Ok(false);
                    }
                }
            }
            // Without room for a watch the node is polled for a request. Once the request is known,
            // the poll ends, because the heartbeat notices a deletion as quickly.
            if reply.is_none() && watcher.is_none() {
                return Ok(false);
            }
            // Whatever the event is, the node is read again in the next round. A downgrade deletes
            // the node by its version, and reads the node first if the data have changed, so no
            // request is lost with the node.
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
                    // The hold is lost, unless a downgrade has replaced this node in the meantime.
                    hold.node_deleted(node);
                }
                log::debug!(path, %error, "whether revocation was requested is checked again");
                // After an error, which may concern the connection only, the node is read again
                // when a heartbeat period has passed.
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
        // The marker replaces any data, as with Curator, and a repetition has the same effect. A
        // missing node needs no request.
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
