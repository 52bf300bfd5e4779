//! Deletes nodes. Each deletion is repeated until the node is gone, the servers refuse the
//! deletion, or the session has ended.
//!
//! If a waiter of this client is next, a release is a [`hand_over`]: one transaction checks that
//! the waiter's node exists, and deletes the released node (docs/protocol.md#hand-over). The
//! transaction is sent once. A definite refusal means that nothing was deleted. Without an answer,
//! a plain deletion follows, which may find that the transaction has deleted the node.
//!
//! ```text
//!   hand_over --> Done:    the next attempt has the lock, without a request
//!       |     --> NotDone: nothing was deleted ---------------.
//!       '     --> Unknown: the node may be deleted ---------. |
//!                                                           v v
//!                                         delete_after, repeated until one of these:
//!     ByUs         a request was answered                 its waiters inherit its wait, or list
//!     PerhapsByUs  `NoNode` after an unclear request      its waiters list
//!     Before       `NoNode`, and no request was unclear   its waiters list
//!     Refused      the node stays: a refused orphan       its waiters list
//! ```
//!
//! A plain [`delete`] is repeated, and each repetition knows whether an earlier request may have
//! deleted the node: one that was not answered, or whose answer leaves the outcome open. The owner
//! of the node is notified how the node ended, because only a deletion by this client shows what
//! happened to the waiters behind the node ([`Gone`]). A refusal makes the node a refused orphan
//! (docs/protocol.md#refused-orphan), whose deletion a flush requests once more.

use zookeeper_client as zk;

use crate::error::{Cause, Lost, LostReason, ReleaseError};
use crate::protocol::failure::FailureKind;
use crate::protocol::local_queue::Gone;
use crate::session::contents::limits::Window;
use crate::session::contents::nodes::RefusedOrphan;
use crate::session::live::zk_session::{Session, SessionGone};
use crate::session::reports::log;
use crate::session::reports::observer;
use crate::session::request::repetition::{Repetition, Unanswered};
use crate::values::path::LockPath;

/// Requests the deletion of a session's refused orphans once more.
///
/// # Errors
/// `Refused` with the first node whose deletion is refused again, and the number of the others.
pub(crate) async fn retry_refused_orphans(session: &Session) -> Result<(), ReleaseError> {
    let mut orphans = session.nodes.refused_orphans(None).into_iter();
    let Some((first, source)) = first_refused(session, orphans.by_ref()).await else {
        return Ok(());
    };
    // Each call continues behind the node that was refused, so the deletion of each node is
    // requested once.
    let mut others = 0;
    while first_refused(session, orphans.by_ref()).await.is_some() {
        others += 1;
    }
    Err(ReleaseError::Refused {
        node: first.directory.user_child(&first.name),
        others,
        source,
    })
}

/// Deletes these nodes, one after the other, until the servers refuse a deletion. Returns the node
/// of that deletion, and the reason.
pub(crate) async fn first_refused(
    session: &Session,
    orphans: impl IntoIterator<Item = RefusedOrphan>,
) -> Option<(RefusedOrphan, Cause)> {
    for orphan in orphans {
        match delete(
            session,
            &orphan.directory,
            &orphan.name,
            &session.windows.removals,
        )
        .await
        {
            Ok(_) => {}
            Err(ReleaseError::Refused { source, .. }) => return Some((orphan, source)),
            // The session has ended, and the servers end its nodes with it.
            Err(_) => return None,
        }
    }
    None
}

/// How a node was deleted.
pub(crate) enum Deleted {
    /// This request deleted the node.
    ByUs,
    /// An earlier request of this client, whose outcome is unknown, most likely deleted the node.
    PerhapsByUs,
    /// No request of this client can have deleted the node: none was sent before, or the servers
    /// have carried out none of them.
    Before,
}

impl Deleted {
    pub(crate) fn by_us(self, directory: &LockPath) -> Result<(), ReleaseError> {
        match self {
            Self::ByUs | Self::PerhapsByUs => Ok(()),
            Self::Before => Err(lost(directory, LostReason::NodeDeleted)),
        }
    }
}

/// The outcome of a hand-over.
pub(crate) enum HandOver {
    Done,
    NotDone,
    Unknown,
}

/// Deletes the node of a released lock on the condition that the node of the next attempt exists;
/// that attempt is then granted the lock (docs/protocol.md#hand-over). The transaction is sent
/// once. If it fails, a plain deletion follows, and what the waiters do then depends on the outcome
/// of that deletion, as the diagram above shows.
pub(crate) async fn hand_over(
    session: &Session,
    directory: &LockPath,
    name: &str,
) -> Result<HandOver, ReleaseError> {
    let own = directory.child(name);
    // Most locks have no waiter in memory, and need no slot for that.
    if session.nodes.next_waiter(&own).is_none() {
        return Ok(HandOver::NotDone);
    }
    let slot = session.windows.releases.slot().await;
    // The next attempt is looked up once more, because the first may have given up during the wait
    // for a slot.
    let Some(next) = session.nodes.next_waiter(&own) else {
        return Ok(HandOver::NotDone);
    };
    let next_path = directory.child(&next);
    let (own, next_path) = (&own, &next_path);
    let answer = session.request(|handle| async move {
        let exchange = |writer: &mut zk::MultiWriter<'_>| {
            // Any version will do, because the name of a node is used only once
            // (docs/protocol.md#one-id-per-create). Others may write to a node to request its
            // revocation, which changes the version.
            writer.add_check_version(next_path, -1)?;
            writer.add_delete(own, None)
        };
        session.commit(&handle, 2, exchange).await
    });
    let answer = answer.await;
    drop(slot);
    // Without an answer before the end of the session, nothing is left to do: the end deletes both
    // nodes.
    let Ok(answer) = answer else {
        return session_ended(session, directory);
    };
    let error = match answer {
        // One transaction has deleted the node while that of the next attempt existed. No other
        // node is between the two, so the next attempt holds the lock from here on.
        Ok(_) => {
            session.nodes.gone(own, Gone::HandedOver { to: &next });
            observer::handed_over(directory, name, &next);
            return Ok(HandOver::Done);
        }
        Err(zk::MultiWriteError::OperationFailed { source, .. }) => {
            // Either one of the two nodes does not exist, or the client lacks a permission: to read
            // the node of the next attempt, or to delete children of the directory. The transaction
            // has changed nothing.
            return match session.judge(&source) {
                FailureKind::SessionGone => session_ended(session, directory),
                _ => Ok(HandOver::NotDone),
            };
        }
        Err(zk::MultiWriteError::RequestFailed { source }) => source,
    };
    log::debug!(path = own, %error, "not handed over");
    match session.judge(&error) {
        FailureKind::SessionGone => session_ended(session, directory),
        // The servers have definitely not carried out the transaction.
        FailureKind::Refused(_) | FailureKind::NotNow | FailureKind::NoNode => {
            Ok(HandOver::NotDone)
        }
        // The transaction may have been carried out, or may still be. The plain deletion that
        // follows is answered after it, and decides the outcome for the released node. No error is
        // judged as `TooManyWatches`, so that kind never gets here.
        FailureKind::Unknown | FailureKind::TooManyWatches => Ok(HandOver::Unknown),
    }
}

/// Deletes one node, and repeats the request until the node is gone.
pub(crate) async fn delete(
    session: &Session,
    directory: &LockPath,
    name: &str,
    window: &Window,
) -> Result<Deleted, ReleaseError> {
    delete_after(session, directory, name, window, false).await
}

/// Like [`delete`]; `may_be_deleted` is whether an earlier request may have deleted the node.
pub(crate) async fn delete_after(
    session: &Session,
    directory: &LockPath,
    name: &str,
    window: &Window,
    mut may_be_deleted: bool,
) -> Result<Deleted, ReleaseError> {
    let path = &directory.child(name);
    let mut repetition = Repetition::for_cleanup(window);
    let deleted = loop {
        let request = |handle: zk::Client| async move {
            // The call sends the deletion. The owner is notified behind that: a create that is sent
            // from now on is answered after the deletion (docs/protocol.md#succession).
            let deletion = session.write(|| handle.delete(path, None));
            session.nodes.deletion_sent(path);
            match deletion.await {
                Ok(()) => Ok(Deleted::ByUs),
                // An earlier request without a clear answer was carried out, most likely.
                Err(zk::Error::NoNode) if may_be_deleted => Ok(Deleted::PerhapsByUs),
                // Another process has deleted the node, or the node was never created.
                Err(zk::Error::NoNode) => Ok(Deleted::Before),
                Err(error) => Err(error),
            }
        };
        match repetition.try_once(session, request).await {
            Ok(Ok(deleted)) => break Ok(deleted),
            // A server that was too busy has definitely not deleted the node.
            Ok(Err(failure)) => may_be_deleted |= failure.kind == FailureKind::Unknown,
            Err(unanswered) => break undecided(session, directory, path, unanswered),
        }
    };
    match &deleted {
        Ok(Deleted::ByUs) => session.nodes.gone(path, Gone::Deleted),
        // Another process may have deleted the node, and the nodes before it or the directory too.
        // So the waiters behind the node list.
        Ok(Deleted::PerhapsByUs | Deleted::Before) => session.nodes.gone(path, Gone::Unclear),
        Err(ReleaseError::Refused { .. }) => session.nodes.refused(directory, name),
        // The session has ended, and no attempt waits in it any more.
        Err(_) => {}
    }
    deleted
}

/// Repeats a request until there is a definite answer, or the session has ended, in which case the
/// servers delete the node.
///
/// No fixed number of repetitions would be safe: after any number of answers that leave the outcome
/// unknown, such as a `MarshallingError`, the node may still exist, and if the client gave up, the
/// node would block all other contenders for as long as the session lives. So only the end of the
/// session ends the repetitions; [`clean_up_pause`](crate::session::request::retry::clean_up_pause)
/// sets the pauses between them.
pub(crate) async fn repeat_until_decided<T: Send, F>(
    session: &Session,
    directory: &LockPath,
    path: &str,
    window: &Window,
    request: impl FnMut(zk::Client) -> F,
) -> Result<T, ReleaseError>
where
    F: Future<Output = Result<T, zk::Error>> + Send,
{
    Repetition::for_cleanup(window)
        .repeat(session, request)
        .await
        .or_else(|unanswered| undecided(session, directory, path, unanswered))
}

/// Returns the error of a request of cleanup that is not repeated any more.
fn undecided<T>(
    session: &Session,
    directory: &LockPath,
    path: &str,
    unanswered: Unanswered<SessionGone>,
) -> Result<T, ReleaseError> {
    match unanswered {
        Unanswered::NoSession(SessionGone) => session_ended(session, directory),
        // The policy of cleanup is never exhausted.
        Unanswered::Refused(failure) | Unanswered::GaveUp(failure) => Err(ReleaseError::Refused {
            node: directory.to_user(path),
            others: 0,
            source: failure.cause,
        }),
    }
}

fn session_ended<T>(session: &Session, directory: &LockPath) -> Result<T, ReleaseError> {
    Err(lost(
        directory,
        session.end_reason().unwrap_or(LostReason::Closed),
    ))
}

/// Returns the error of a deletion that came after the lock was lost.
pub(crate) fn lost(directory: &LockPath, reason: LostReason) -> ReleaseError {
    ReleaseError::Lost(Lost {
        path: directory.user().into(),
        reason,
    })
}
