//! The records of jobs that run once per occasion: reads, writes and prunes them
//! (docs/protocol.md#once-record).
//!
//! 1. A run reads the record of its occasion, without the lock. A record that is found is final.
//! 2. The run acquires the lock of the job and reads again. While the lock is held, no other run
//!    writes a record.
//! 3. After the job, a transaction that checks the lock's node writes the record.
//! 4. If the answer is lost, the run repeats the transaction, which can be carried out only once,
//!    because it creates the record. If the repetition is rejected, the token in the record shows
//!    whether the first transaction was carried out, because each run has another token.
//! 5. Old records are deleted under the same lock, the oldest first, by several transactions.
//!    Records that cannot be deleted are left to the next run, because the job itself has
//!    succeeded.

use std::sync::Arc;
use std::time::Instant;

use zookeeper_client as zk;

use crate::engine::acquisition::LockRef;
use crate::engine::while_held::read::{self, ReadNode};
use crate::engine::while_held::transact::{Operation, transact};
use crate::error::{Cause, OnceError, TransactionError};
use crate::protocol::once::{are_too_many, is_of, to_prune};
use crate::session::core::Core;
use crate::session::reports::log;
use crate::values::options::ParentNodes;
use crate::values::path::LockPath;

/// How many records a run reads, at most, to find the oldest. A run keeps fewer (`MAX_KEEP` of the
/// recipe): if it kept as many as it reads, it would delete none.
const MOST_READ: usize = 2_000;
/// How many records are read in one flight. More requests would delay the heartbeats, which are
/// answered in order with them (docs/protocol.md#request-window).
const AT_ONCE: usize = 64;
/// How many records one transaction deletes. With the longest paths such a request has half a
/// megabyte, and servers accept one megabyte.
const DELETED_AT_ONCE: usize = 32;
/// How many records a run deletes, at most, so that no run takes much longer than others.
const MOST_DELETED: usize = 256;

/// The records of one job, and the one of the occasion.
#[derive(Clone)]
pub(crate) struct Records {
    pub(crate) client: Arc<Core>,
    pub(crate) directory: LockPath,
    pub(crate) record: LockPath,
}

/// The outcome of writing a record.
pub(crate) enum Recorded {
    /// The record exists, and this run has written it.
    Ours,
    /// Another program has written the record, without the lock.
    Another(ReadNode),
    /// The outcome is unknown: the record may exist, or may be written until the lock's node is
    /// deleted.
    InDoubt(TransactionError),
    /// The record of this run does not exist, and will not be written.
    No(TransactionError),
}

impl Records {
    /// Returns the record of the occasion as the connected server knows it. The server may lag
    /// behind, so `None` does not prove that there is no record.
    pub(crate) async fn find(&self) -> Result<Option<ReadNode>, OnceError> {
        self.look(false).await
    }

    /// Returns the record of the occasion, not older than this call. A run that has lost its lock
    /// needs this, because another run may have been recorded just before.
    pub(crate) async fn find_synced(&self) -> Result<Option<ReadNode>, OnceError> {
        self.look(true).await
    }

    async fn look(&self, is_synced: bool) -> Result<Option<ReadNode>, OnceError> {
        let records = self.clone();
        let found = async move {
            let path = records.record.server();
            let ask = |_, handle: zk::Client| async move {
                if is_synced {
                    read::ask_synced(&handle, path).await
                } else {
                    read::ask(&handle, path).await
                }
            };
            records.client.repeat(ask).await
        };
        let failed = |why| read::failed(&self.client, &self.record, why).into();
        match self.client.tasks.start(found).await {
            Ok(answer) => answer.map_err(|why| failed(why.into())),
            Err(why) => Err(failed(why)),
        }
    }

    /// Returns the record of the occasion, as the holder of the lock sees it. No other run writes a
    /// record while the lock is held.
    pub(crate) async fn find_under(&self, hold: &LockRef) -> Result<Option<ReadNode>, OnceError> {
        read::get_data(&[hold], self.record.clone()).await
    }

    /// Writes the record, with other writes, while the lock is held. The request is repeated until
    /// its outcome is known (docs/protocol.md#once-record).
    pub(crate) async fn write(
        &self,
        hold: &LockRef,
        mut writes: Vec<Operation>,
        data: String,
        token: (i64, u64),
    ) -> Recorded {
        // The record is the last operation. Errors report operations by their index, which the
        // caller counts from its own first write.
        writes.push(Operation::Create {
            path: self.record.clone(),
            data: data.into_bytes(),
        });
        let (records, shared) = (self.clone(), hold.clone());
        // The write is a task on the session's thread, which has the timers for the pauses. The
        // task also learns the outcome if the caller does not poll.
        let written = self
            .client
            .tasks
            .start(async move { records.write_here(&shared, &writes, token).await });
        written
            .detach()
            .await
            .unwrap_or_else(|_| Recorded::InDoubt(read::closed(hold).into()))
    }

    async fn write_here(
        &self,
        hold: &LockRef,
        writes: &[Operation],
        token: (i64, u64),
    ) -> Recorded {
        let (policy, started) = (self.client.retry, Instant::now());
        // `doubt` is the error of an earlier request without an answer: that request may still be
        // carried out. `directory_made` is whether the directory has been created once.
        let (mut failures, mut doubt, mut directory_made) = (0, None, false);
        loop {
            // The record's node makes the transaction happen once at most: after one that was
            // carried out, each repetition is rejected, at the latest by the create of the record.
            let error = match transact(&[hold], writes.to_vec()).await {
                Ok(()) => return Recorded::Ours,
                Err(error) => error,
            };
            match &error {
                TransactionError::Unknown { .. } => {
                    // The caller then acquires the lock again, and so learns the outcome: its grant
                    // shows that the lock's node, which the transaction checks, is deleted.
                    let Some(pause) = policy.pause(failures, started.elapsed()) else {
                        return Recorded::InDoubt(error);
                    };
                    failures += 1;
                    doubt = Some(error);
                    // The first repetition is sent at once, as for other requests.
                    if failures > 1 {
                        tokio::time::sleep(pause).await;
                    }
                }
                TransactionError::Rejected { path, source, .. } => {
                    // The rejection is committed behind all earlier requests of the session, so
                    // each of them is decided by now.
                    let of_record = path == self.record.user();
                    let code = source.downcast_ref::<zk::Error>();
                    // The directory of the records is missing: this is the first record of the job,
                    // or another process has deleted the directory. The directory is created once
                    // only, so that a process that keeps deleting it cannot keep this loop running.
                    if of_record && matches!(code, Some(zk::Error::NoNode)) && !directory_made {
                        directory_made = true;
                        if self.make_directory().await {
                            continue;
                        }
                        // Without its directory the record does not exist, and no request is left
                        // that could create it. The error names the missing directory.
                        return Recorded::No(error);
                    }
                    // An earlier one of these requests has created the record, if its answer was
                    // lost, or another program has, without the lock. The token in the record
                    // distinguishes the two, because no other run has it.
                    if doubt.is_some() || of_record && matches!(code, Some(zk::Error::NodeExists)) {
                        return match self.find_under(hold).await {
                            Ok(Some(found)) if is_of(&found.data, token) => Recorded::Ours,
                            Ok(Some(found)) => Recorded::Another(found),
                            // There is no record, and none of the requests can create one any more,
                            // because all are decided.
                            Ok(None) => Recorded::No(error),
                            // The lock is lost, or no server has answered.
                            Err(_) => Recorded::InDoubt(error),
                        };
                    }
                    return Recorded::No(error);
                }
                // The lock is lost, and this request was not carried out. An earlier one without an
                // answer may still be, until the lock's node is deleted.
                _ => return doubt.map_or(Recorded::No(error), Recorded::InDoubt),
            }
        }
    }

    /// Creates the directory of the records, as a persistent node. Returns whether the directory
    /// exists.
    async fn make_directory(&self) -> bool {
        let made = self.client.repeat(|_, handle| async move {
            let acl = &self.client.acl;
            self.client
                .make_directories(
                    &handle,
                    self.directory.server(),
                    acl,
                    // The servers delete an empty container, and this directory must outlive its
                    // records.
                    ParentNodes::Persistent,
                )
                .await
        });
        made.await.is_ok()
    }

    /// Deletes the oldest records, beyond the last `keep`, while the lock is held. Records whose
    /// deletion fails are left to the next run.
    pub(crate) async fn prune(&self, hold: &LockRef, keep: usize) {
        let (records, shared) = (self.clone(), hold.clone());
        // The task is not detached, unlike that of a write. If the caller leaves, the lock is
        // released, so the transactions would soon be rejected, and the next run prunes the rest.
        let pruned = self
            .client
            .tasks
            .start(async move { records.prune_here(&shared, keep).await });
        if let Ok(Err(error)) = pruned.await {
            log::debug!(path = self.directory.user(), %error, "old records of a job are left to the next run");
        }
    }

    async fn prune_here(&self, hold: &LockRef, keep: usize) -> Result<(), Cause> {
        let session = &hold.session;
        let old = session.request(|handle| async move { self.old(&handle, keep).await });
        // The session has ended, and with it the lock. The next run prunes the records.
        let Ok(old) = old.await else { return Ok(()) };
        let old = old.map_err(|error| session.failure(error).cause)?;
        let delete = |name: &String| Operation::Delete {
            path: self.directory.subdirectory(name),
            version: None,
        };
        let mut deletions: Vec<Operation> = old.iter().map(delete).collect();
        while !deletions.is_empty() {
            let some: Vec<Operation> = deletions.iter().take(DELETED_AT_ONCE).cloned().collect();
            let count = some.len();
            // The records are deleted by name. Only while this run holds the lock is it certain
            // that no other run has deleted one of them and recorded the same occasion again.
            match transact(&[hold], some).await {
                Ok(()) => drop(deletions.drain(..count)),
                // The record is gone, or has children. The transaction had no effect, and is sent
                // again without this record.
                Err(TransactionError::Rejected { index, source, .. })
                    if index < count && is_of_one_node(&source) =>
                {
                    deletions.remove(index);
                }
                Err(error) => return Err(Arc::new(error)),
            }
        }
        Ok(())
    }

    /// Returns the names of the records to delete.
    async fn old(&self, handle: &zk::Client, keep: usize) -> Result<Vec<String>, zk::Error> {
        let mut names = handle.list_children(self.directory.server()).await?;
        if !are_too_many(names.len(), keep) {
            return Ok(Vec::new());
        }
        // A list has no order of time, so the records beyond this bound are left to later runs.
        // The deleted ones are old nevertheless: each has at least `keep` later ones among
        // those that were read.
        names.truncate(MOST_READ);
        let mut found = Vec::with_capacity(names.len());
        for names in names.chunks(AT_ONCE) {
            let paths: Vec<_> = names
                .iter()
                .map(|name| self.directory.child(name))
                .collect();
            // Each call sends its request at once, so these requests take one round trip together.
            let stats: Vec<_> = paths.iter().map(|path| handle.check_stat(path)).collect();
            for (name, stat) in names.iter().zip(stats) {
                match stat.await {
                    Ok(Some(stat)) => found.push((stat.czxid, name.clone())),
                    // The record was deleted since the list, or its ACL hides it: newer servers
                    // return the Stat only to sessions that may read the node. A record without a
                    // known age is kept.
                    Ok(None) | Err(zk::Error::NoAuth) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(to_prune(found, keep, MOST_DELETED))
    }
}

/// Returns whether a deletion was refused because of this one node, so that deletions of others may
/// succeed.
fn is_of_one_node(why: &Cause) -> bool {
    matches!(
        why.downcast_ref(),
        Some(zk::Error::NoNode | zk::Error::NotEmpty)
    )
}
