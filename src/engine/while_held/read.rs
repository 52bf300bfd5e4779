//! Reads of the data that a lock protects (docs/protocol.md#read-under-lock).
//!
//! A read is sent in the session of the lock, which makes it not older than the grant: the answer
//! that granted the lock came to this session, behind all writes of the previous holder. A `sync`
//! before the read adds what clients without the lock have written since. The read is repeated in
//! that session alone, because in another one the lock is lost. The loss of the lock ends the read.
//! After the answer the loss is checked once more, because the data may be the next holder's by
//! then.

use std::sync::Arc;

use zookeeper_client as zk;

use crate::engine::acquisition::{LockRef, first};
use crate::error::{Error, Lost, LostReason, Purpose, RequestFailure};
use crate::session::core::Core;
use crate::session::live::zk_session::SessionGone;
use crate::session::request::repetition::{Repetition, Unanswered};
use crate::values::path::LockPath;

/// A node as it was read.
#[derive(Clone)]
pub(crate) struct ReadNode {
    pub(crate) data: Vec<u8>,
    /// The version of the data.
    pub(crate) version: i32,
    /// The time of its creation by the clock of the servers, in milliseconds since 1970.
    pub(crate) ctime: i64,
}

/// Sends the read of a node. `None` if there is no such node.
pub(crate) async fn ask(handle: &zk::Client, path: &str) -> Result<Option<ReadNode>, zk::Error> {
    match handle.get_data(path).await {
        Ok((data, stat)) => Ok(Some(ReadNode {
            data,
            version: stat.version,
            ctime: stat.ctime,
        })),
        Err(zk::Error::NoNode) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Sends the read of a node behind a `sync`, so that the answer is not older than this call. `None`
/// if there is no such node.
pub(crate) async fn ask_synced(
    handle: &zk::Client,
    path: &str,
) -> Result<Option<ReadNode>, zk::Error> {
    // Both requests are sent together, and the servers answer them in this order.
    let (sync, read) = tokio::join!(handle.sync(path), ask(handle, path));
    sync?;
    read
}

/// Reads a node's data and its version in the session of these holds, not older than any of them
/// (docs/protocol.md#read-under-lock). `None` if there is no such node.
pub(crate) async fn get_data<E: From<Lost> + From<Error>>(
    holds: &[&LockRef],
    path: LockPath,
) -> Result<Option<ReadNode>, E> {
    let Some(owner) = holds.first() else {
        // An empty list is not expected: a guard has a hold.
        return Err(Lost {
            path: "".into(),
            reason: LostReason::Closed,
        }
        .into());
    };
    let lost_now = || holds.iter().find_map(|hold| hold.loss());
    if let Some(lost) = lost_now() {
        return Err(lost.into());
    }
    let client = &owner.path_lock.client;
    let (session, policy) = (Arc::clone(&owner.session), client.retry);
    let mut losses: Vec<_> = holds
        .iter()
        .map(|hold| Box::pin(hold.when_lost()))
        .collect();
    let given = path.clone();
    let answer = client.tasks.start(async move {
        // The task runs on the session's thread, which has the timers for the pauses. The caller's
        // drop aborts the task, because a read has no outcome that others need.
        let mut repetition = Repetition::new(policy);
        let path = path.server();
        let read = repetition.repeat(
            &session,
            |handle| async move { ask_synced(&handle, path).await },
        );
        tokio::select! {
            biased;
            // The loss is returned below, by the clock, which also shows a loss that no thread has
            // noticed yet.
            _ = first(&mut losses) => None,
            read = read => Some(read),
        }
    });
    // An error means that the client has ended, which is a loss as well.
    let answer = answer.await.ok().flatten();
    // A loss counts even if the read was answered, because the next holder may have changed the
    // data.
    if let Some(lost) = lost_now() {
        return Err(lost.into());
    }
    match answer {
        Some(Ok(read)) => Ok(read),
        Some(Err(Unanswered::Refused(failure))) => {
            Err(failed(client, &given, failure.refused()).into())
        }
        Some(Err(Unanswered::GaveUp(failure))) => {
            Err(failed(client, &given, failure.unanswered()).into())
        }
        // The session has ended, and the lock with it, or the client has ended.
        Some(Err(Unanswered::NoSession(SessionGone))) | None => Err(owner
            .lost_by(owner.session.end_reason().unwrap_or(LostReason::Closed))
            .into()),
    }
}

/// Returns the loss of a lock whose client has ended.
pub(crate) fn closed(hold: &LockRef) -> Lost {
    hold.lost_by(hold.held.check_lost().unwrap_or(LostReason::Closed))
}

/// Returns the error of a read that failed.
pub(crate) fn failed(client: &Core, path: &LockPath, why: RequestFailure) -> Error {
    client
        .error(Purpose::Data, path.user(), why)
        .at(path.user())
}
