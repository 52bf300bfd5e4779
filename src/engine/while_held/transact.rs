//! Transactions that commit only while a lock is held (docs/protocol.md#transaction).
//!
//! The caller's operations are sent behind a check of each lock's node, as one transaction. It is
//! sent once. Its outcome is one of three, and the caller is told which: it was carried out, it was
//! rejected with the operation that failed, or nothing is known, which includes an end of the
//! session or of the client after the request was sent.
//!
//! From before it is sent until its outcome is known, a lock is not handed on in memory
//! ([`PendingWrite`]): the next holder of the same node would pass the check of a late transaction
//! of the one before.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use zookeeper_client as zk;

use crate::engine::acquisition::LockRef;
use crate::engine::held::Held;
use crate::error::{Lost, LostReason, TransactionError};
use crate::protocol::failure::FailureKind;
use crate::session::live::zk_session::{SessionGone, cause};
use crate::session::write::to_library;
use crate::values::path::LockPath;

/// One operation of a transaction.
#[derive(Clone)]
pub(crate) enum Operation {
    Create {
        path: LockPath,
        data: Vec<u8>,
    },
    SetData {
        path: LockPath,
        data: Vec<u8>,
        version: Option<i32>,
    },
    Delete {
        path: LockPath,
        version: Option<i32>,
    },
    Check {
        path: LockPath,
        version: Option<i32>,
    },
}

impl Operation {
    pub(crate) fn path(&self) -> &LockPath {
        match self {
            Self::Create { path, .. }
            | Self::SetData { path, .. }
            | Self::Delete { path, .. }
            | Self::Check { path, .. } => path,
        }
    }

    pub(crate) fn data(&self) -> &[u8] {
        match self {
            Self::Create { data, .. } | Self::SetData { data, .. } => data,
            Self::Delete { .. } | Self::Check { .. } => &[],
        }
    }

    fn put(
        &self,
        writer: &mut zk::MultiWriter<'_>,
        options: &zk::CreateOptions<'_>,
    ) -> Result<(), zk::Error> {
        match self {
            Self::Create { path, data } => writer.add_create(path.server(), data, options),
            Self::SetData {
                path,
                data,
                version,
            } => writer.add_set_data(path.server(), data, *version),
            Self::Delete { path, version } => writer.add_delete(path.server(), *version),
            Self::Check { path, version } => {
                writer.add_check_version(path.server(), version.unwrap_or(-1))
            }
        }
    }

    pub(crate) fn bytes(&self, acl: usize) -> usize {
        let acl = if matches!(self, Self::Create { .. }) {
            acl
        } else {
            0
        };
        // The header of an operation has less than fifty bytes.
        self.path().server().len() + self.data().len() + acl + 50
    }
}

/// Returns how many bytes the check of a hold's node has.
pub(crate) fn check_bytes(hold: &LockRef) -> usize {
    // The slash and the header of the operation are less than 30 bytes.
    hold.directory().server().len() + hold.node().len() + 30
}

/// Commits operations on the condition that the nodes of these holds exist. A node's name is never
/// used again, so if it exists, its hold has the lock (docs/protocol.md#transaction).
///
/// The work is a task on the session's runtime: a caller that stops polling must not keep the
/// session from being closed, and a caller that leaves must not keep the outcome from being known.
pub(crate) async fn transact(
    holds: &[&LockRef],
    operations: Vec<Operation>,
) -> Result<(), TransactionError> {
    let Some(first) = holds.first() else {
        // An empty list is not expected: a guard has a hold.
        return Err(TransactionError::Lost(Lost {
            path: "".into(),
            reason: LostReason::Closed,
        }));
    };
    // The locks of an earlier session are lost, so all the others belong to one session, in which
    // the request is sent.
    if let Some(lost) = holds.iter().find_map(|hold| hold.loss()) {
        return Err(lost.into());
    }
    // The write counts from before the task starts, so that no release in between hands the locks
    // off.
    let write = PendingWrite::begin(holds);
    let was_sent = Arc::clone(&write.was_sent);
    let shared = holds.iter().copied().cloned().collect();
    match first
        .path_lock
        .client
        .tasks
        .start(commit(shared, operations, write))
        .detach()
        .await
    {
        Ok(result) => result,
        // The client has ended, and the task with it, while the request may have been under way.
        Err(_) if was_sent.load(Ordering::Acquire) => Err(unknown(first, zk::Error::ClientClosed)),
        Err(_) => Err(lost(first, LostReason::Closed)),
    }
}

/// Returns the loss of a hold, by this reason if none is known yet.
fn lost(hold: &LockRef, reason: LostReason) -> TransactionError {
    hold.loss().unwrap_or_else(|| hold.lost_by(reason)).into()
}

fn unknown(hold: &LockRef, error: zk::Error) -> TransactionError {
    TransactionError::Unknown {
        path: hold.directory().user().to_owned(),
        source: cause(error),
    }
}

/// A transaction under holds, counted from before it is sent. Until its outcome is known, even if
/// the caller leaves, the locks are not handed off: the next holder of the same node would begin
/// before the write is carried out.
struct PendingWrite {
    held: Vec<Arc<Held>>,
    was_sent: Arc<AtomicBool>,
    /// Whether the outcome is known.
    known: bool,
}

impl PendingWrite {
    fn begin(holds: &[&LockRef]) -> Self {
        let held: Vec<_> = holds.iter().map(|hold| Arc::clone(&hold.held)).collect();
        held.iter().for_each(|held| held.begin_write());
        Self {
            held,
            was_sent: Arc::default(),
            known: false,
        }
    }
}

impl Drop for PendingWrite {
    fn drop(&mut self) {
        // A write of unknown outcome is never ended: a release then deletes the node, and with it
        // the condition of the write, instead of handing the node off.
        if self.known || !self.was_sent.load(Ordering::Acquire) {
            self.held.iter().for_each(|held| held.end_write());
        }
    }
}

async fn commit(
    holds: Vec<LockRef>,
    operations: Vec<Operation>,
    mut write: PendingWrite,
) -> Result<(), TransactionError> {
    let Some(first) = holds.first() else {
        return Ok(());
    };
    let session = &first.session;
    let acls = to_library(&first.path_lock.options.acl);
    let options = zk::CreateMode::Persistent.with_acls(zk::Acls::new(&acls));
    // The names are taken once, because a downgrade may replace a node while the request is under
    // way.
    let nodes: Vec<_> = holds.iter().map(|hold| hold.node()).collect();
    let paths: Vec<_> = holds
        .iter()
        .zip(&nodes)
        .map(|(hold, node)| hold.directory().child(node))
        .collect();
    let (options, operations, paths, was_sent) = (&options, &operations, &paths, &write.was_sent);
    let reply = session.request(|handle| async move {
        let put = |writer: &mut zk::MultiWriter<'_>| {
            for path in paths {
                // The version -1 means any version, so the check is that the node exists. A request
                // for revocation, which changes the data, must not fail the transaction.
                writer.add_check_version(path, -1)?;
            }
            for operation in operations {
                operation.put(writer, options)?;
            }
            // The request is complete and valid. `commit` sends it right after this closure
            // returns.
            was_sent.store(true, Ordering::Release);
            Ok(())
        };
        session
            .commit(&handle, paths.len() + operations.len(), put)
            .await
    });
    let result = match reply.await {
        Ok(result) => result,
        // The session has ended while the request was under way.
        Err(SessionGone) if write.was_sent.load(Ordering::Acquire) => {
            return Err(unknown(first, zk::Error::ClientClosed));
        }
        Err(SessionGone) => {
            return Err(lost(
                first,
                session.end_reason().unwrap_or(LostReason::Closed),
            ));
        }
    };
    // A failed operation is a definite answer: the servers carry out all operations or none. Any
    // other error leaves the outcome unknown.
    write.known = matches!(
        result,
        Ok(_) | Err(zk::MultiWriteError::OperationFailed { .. })
    );
    match result {
        Ok(_) => Ok(()),
        Err(zk::MultiWriteError::OperationFailed { index, source }) => {
            // In an expired session the operations fail with `SessionExpired`, and nothing was
            // written.
            if session.judge(&source) == FailureKind::SessionGone {
                return Err(lost(first, LostReason::SessionExpired));
            }
            // The checks are the first operations of the request, so a lower index than their
            // number stands for a hold.
            let checked = holds.get(index).zip(nodes.get(index));
            let operation = index
                .checked_sub(holds.len())
                .and_then(|index| Some((index, operations.get(index)?)));
            match (checked, operation) {
                // The servers have proved the loss, so the holder is notified now and not by the
                // next heartbeat.
                (Some((hold, node)), _) if source == zk::Error::NoNode => {
                    hold.held.node_deleted(Arc::clone(node));
                    Err(lost(hold, LostReason::NodeDeleted))
                }
                // The ACL of the lock node denies its own client access, so that the check was
                // refused.
                (Some((hold, node)), _) => {
                    let path = hold.directory().user_child(node).into();
                    Err(TransactionError::Rejected {
                        index: 0,
                        path,
                        source: cause(source),
                    })
                }
                (None, Some((index, operation))) => {
                    let path = operation.path().user().to_owned();
                    Err(TransactionError::Rejected {
                        index,
                        path,
                        source: cause(source),
                    })
                }
                // An error that belongs to none of the operations is not expected.
                (None, None) => Err(unknown(first, source)),
            }
        }
        Err(zk::MultiWriteError::RequestFailed { source }) => {
            // Whatever the error means for the session, the outcome of this request is unknown.
            session.judge(&source);
            Err(unknown(first, source))
        }
    }
}
