//! Writes under a lock.

use zookeeper_client as zk;

use super::requests::to_library;
use crate::client::clock::Moment;
use crate::client::epoch::{EpochOver, cause};
use crate::engine::contender::Failure;
use crate::engine::room::Hold;
use crate::error::{Lost, LostReason};
use crate::transaction::{Operation, TransactionError};

/// Commits writes on the condition that the node of a hold exists. The name of that node was never used before and
/// will never be again, so that it exists means that this hold is still the one (rule 12).
pub(crate) async fn transact(hold: &Hold, operations: &[Operation]) -> Result<(), TransactionError> {
    let path = hold.room().path();
    let lost = |reason| TransactionError::Lost(Lost { path: path.user().into(), reason });
    let epoch = hold.epoch();
    if let Some(reason) = hold.lost() {
        return Err(lost(reason));
    }
    let acls = to_library(&hold.room().options().acl);
    let options = zk::CreateMode::Persistent.with_acls(zk::Acls::new(&acls));
    let unknown = |error| TransactionError::Unknown { path: path.user().to_owned(), source: cause(error) };
    let guard = path.child(&hold.node());
    let sent = Moment::now();
    let mut written = false;
    let (options, begun) = (&options, &mut written);
    let reply = epoch.request(|session| async move {
        let mut writer = session.new_multi_writer();
        let mut put = writer.add_check_version(&guard, -1);
        for operation in operations {
            put = put.and_then(|()| match operation {
                Operation::Create { path, data } => writer.add_create(path.server(), data, options),
                Operation::SetData { path, data, version } => {
                    writer.add_set_data(path.server(), data, *version)
                }
                Operation::Delete { path, version } => writer.add_delete(path.server(), *version),
                Operation::Check { path, version } => {
                    writer.add_check_version(path.server(), version.unwrap_or(-1))
                }
            });
        }
        // The paths were checked and the ACL is not empty, so the library has nothing to refuse here.
        put.map_err(|source| zk::MultiWriteError::RequestFailed { source })?;
        *begun = true;
        // Until its outcome is known the lock is not handed over in memory: the next holder would come in before it. That
        // includes that its caller has gone.
        hold.held().begin_write();
        let result = writer.commit().await;
        if matches!(result, Ok(_) | Err(zk::MultiWriteError::OperationFailed { .. })) {
            hold.held().end_write();
        }
        result
    });
    let result = match reply.await {
        Ok(result) => result,
        // The session went while it was under way.
        Err(EpochOver) if written => return Err(unknown(zk::Error::ClientClosed)),
        Err(EpochOver) => return Err(lost(epoch.end_reason().unwrap_or(LostReason::Closed))),
    };
    match result {
        Ok(results) if results.len() == operations.len() + 1 => {
            epoch.proved(sent);
            Ok(())
        }
        Ok(_) => Err(unknown(zk::Error::UnexpectedError("an answer of another length".to_owned()))),
        Err(zk::MultiWriteError::OperationFailed { index, source }) => {
            epoch.proved_by_check(sent, &source);
            if epoch.judge(&source) == Failure::EpochOver {
                return Err(lost(hold.lost().unwrap_or(LostReason::SessionExpired)));
            }
            match index.checked_sub(1).and_then(|index| Some((index, operations.get(index)?))) {
                None if source == zk::Error::NoNode => {
                    hold.lose(LostReason::NodeDeleted);
                    Err(lost(hold.lost().unwrap_or(LostReason::NodeDeleted)))
                }
                // The ACL of the lock node does not let its own creator read it.
                None => {
                    let path = path.user_child(&hold.node());
                    Err(TransactionError::Rejected { index: 0, path, source: cause(source) })
                }
                Some((index, operation)) => {
                    let path = operation.path().user().to_owned();
                    Err(TransactionError::Rejected { index, path, source: cause(source) })
                }
            }
        }
        Err(zk::MultiWriteError::RequestFailed { source }) => {
            // Whatever it means for the session, for this request it means that nobody knows.
            epoch.judge(&source);
            Err(unknown(source))
        }
    }
}
