//! Downgrades of a hold: sends the transaction of a [`Downgrade`], and settles which node then
//! holds the lock (docs/protocol.md#downgrade).
//!
//! A downgrade runs as a task where the session runs, and shares the hold with its caller: a caller
//! that leaves stops nothing, and the last of the two releases the hold, whatever it has become.
//!
//! The transaction creates the read node and deletes the write node, both or none. It is repeated,
//! with the same names, until its outcome is known: a repetition that finds the read node there, or
//! the write node missing, says that an earlier one was carried out. If the outcome cannot become
//! known, the lock is lost, and both nodes are deleted, the new one first
//! (docs/protocol.md#conversion-ends).
//!
//! Data that another client has written to the write node go with it. So they are read before it is
//! deleted, because they are most likely a request for revocation.

use std::sync::Arc;

use tokio::sync::oneshot;
use zookeeper_client as zk;

use crate::engine::acquisition;
use crate::engine::acquisition::{Hold, LockRef};
use crate::engine::lock::path_lock::PathLock;
use crate::engine::request::requests::new_id;
use crate::engine::while_held::revoke::MARKER;
use crate::error::{ConversionError, Lost, LostReason, Purpose};
use crate::protocol::downgrade::{Answered, Downgrade, DowngradeStep, Downgraded};
use crate::protocol::failure::{Failure, FailureKind};
use crate::protocol::hold::HoldEvent;
use crate::protocol::local_queue::Gone;
use crate::protocol::node_name::Kind;
use crate::session::leftovers::cleanup::{CleanupItem, Orphan, ReleaseReply};
use crate::session::live::zk_session::Session;
use crate::session::reports::log;
use crate::session::request::retry::clean_up_pause;
use crate::session::write::to_library;

/// The hold after a downgrade; or the error, with the hold as it is.
pub(crate) type ConversionOutcome = Result<Arc<Hold>, ConversionError<Arc<Hold>>>;

/// Turns a held write lock into a read lock, without a moment in which the lock is free.
///
/// A task does the work, and completes it if the caller leaves. A flush waits for the task, and so
/// for the nodes. The task does not wait for its caller to take the outcome.
pub(crate) async fn downgrade(hold: Arc<Hold>) -> ConversionOutcome {
    // From here on the node is not handed off to another writer of this client, because it becomes
    // the node of a reader.
    hold.held.reserve();
    let (reply, outcome) = oneshot::channel();
    let counted = hold.session.running.subscribe();
    let client = Arc::clone(&hold.path_lock.client);
    let ticket = client.cleanup.ticket(hold.held.number.attempt());
    // The task and the caller share the hold, so the lock is not released before both are done with
    // it.
    let task = convert(Arc::clone(&hold));
    let converted = async move {
        let outcome = task.await;
        drop(counted);
        // If the caller has left, `send` returns the outcome, and its drop releases the hold. The
        // ticket is dropped after that, so that a flush counts the node without a gap.
        drop(reply.send(outcome));
        drop(ticket);
    };
    client.tasks.start(converted).detach();
    outcome.await.unwrap_or_else(|_| {
        // The task has ended before its answer: with the client, or by a panic. `Unfinished` has
        // ended the hold if the transaction may have been sent. Otherwise this event ends it.
        hold.held.handle_event(HoldEvent::Ended(LostReason::Closed));
        let reason = hold.held.check_lost().unwrap_or(LostReason::Closed);
        lost(hold, reason)
    })
}

async fn convert(hold: Arc<Hold>) -> ConversionOutcome {
    let (path_lock, session) = (Arc::clone(&hold.path_lock), Arc::clone(&hold.session));
    let (naming, own) = (path_lock.options.naming(), hold.node());
    // The check reads the clock: a lock that another session may hold by now is not downgraded.
    if let Some(reason) = hold.held.check_lost() {
        return lost(hold, reason);
    }
    let new = naming.downgraded_name(&own, &new_id(naming));
    // The hold refuses the event if it was lost since the check. From this event on the heartbeat
    // checks neither node, because either may be the one that exists.
    let Some(new) = new.filter(|_| hold.held.handle_event(HoldEvent::BeginConversion)) else {
        let reason = hold.held.check_lost().unwrap_or(LostReason::Closed);
        return lost(hold, reason);
    };
    let mut unfinished = Unfinished {
        hold: hold.lock_ref(),
        own: own.as_ref().to_owned(),
        new,
        finished: false,
    };
    let mut exchange = NodeExchange {
        path_lock: &path_lock,
        session: &session,
        hold: &hold,
        create: path_lock.path.child(&unfinished.new),
        delete: path_lock.path.child(&unfinished.own),
        written: None,
    };
    // Both names stay the same in all repetitions, so that a repetition finds what an earlier
    // transaction has done.
    let mut downgrade = Downgrade::default();
    let downgraded = loop {
        // The servers delete both nodes with the session.
        let Ok(answer) = session.request(|handle| exchange.send(handle)).await else {
            break Downgraded::SessionGone;
        };
        match downgrade.on(answer) {
            DowngradeStep::Finish(downgraded) => break downgraded,
            // Only the end of the session bounds the repetitions: while the outcome is unknown
            // (after a `MarshallingError`, too), each of the two nodes may be the one by which the
            // lock is held, and an end by a guess would delete that node, or leave the other one.
            DowngradeStep::Repeat { failures } => tokio::select! {
                () = tokio::time::sleep(clean_up_pause(failures)) => {}
                _ = session.ended() => break Downgraded::SessionGone,
            },
        }
    };
    let outcome = finish(hold, &unfinished.own, &unfinished.new, downgraded).await;
    unfinished.finished = true;
    outcome
}

/// Ends the conversion: the hold continues with the node by which the lock is held from now on, and
/// every other node is deleted.
async fn finish(
    hold: Arc<Hold>,
    own: &str,
    new: &str,
    downgraded: Downgraded,
) -> ConversionOutcome {
    let (session, held) = (Arc::clone(&hold.session), Arc::clone(&hold.held));
    let held_by = |node: &str, kind| {
        let node = node.into();
        held.handle_event(HoldEvent::EndConversion { node, kind })
    };
    let reason = match downgraded {
        Downgraded::Done => {
            // The hold refuses the event if it was lost or released in the meantime, because its
            // nodes were left to the conversion then.
            if held_by(new, Kind::Shared) {
                acquisition::converted(&held);
                // The clock continued during the conversion, so the session lease or the hold's
                // lease may be over.
                return match hold.held.check_lost() {
                    Some(reason) => lost(hold, reason),
                    None => Ok(hold),
                };
            }
            delete(&hold, vec![new.to_owned()]).await;
            // The hold has a reason of its own, which counts. `LeaseExpired` stands for the case
            // that it has none.
            LostReason::LeaseExpired
        }
        Downgraded::Refused(failure) => {
            // The transaction was not carried out, so the write node still holds the lock, unless
            // the hold was lost in the meantime.
            if held_by(own, Kind::Exclusive) {
                return match hold.held.check_lost() {
                    Some(reason) => lost(hold, reason),
                    None => Err(refused(hold, &failure)),
                };
            }
            delete(&hold, vec![own.to_owned()]).await;
            LostReason::LeaseExpired
        }
        Downgraded::NodeDeleted => {
            // The holder is notified before the attempts that wait behind the node.
            held.handle_event(HoldEvent::ConversionLost(LostReason::NodeDeleted));
            session
                .nodes
                .gone(&hold.path_lock.path.child(own), Gone::Unclear);
            LostReason::NodeDeleted
        }
        Downgraded::Unknown => {
            // The holder is notified before the nodes are deleted, which may take long.
            held.handle_event(HoldEvent::ConversionLost(LostReason::NotConverted));
            delete(&hold, vec![new.to_owned(), own.to_owned()]).await;
            LostReason::NotConverted
        }
        // The servers delete the nodes with the session.
        Downgraded::SessionGone => session.end_reason().unwrap_or(LostReason::Closed),
    };
    held.handle_event(HoldEvent::ConversionOver(reason));
    // The first reason of a loss stays.
    let reason = hold.held.check_lost().unwrap_or(reason);
    lost(hold, reason)
}

fn refused(guard: Arc<Hold>, failure: &Failure) -> ConversionError<Arc<Hold>> {
    let source = guard
        .path_lock
        .error(Purpose::Conversion, failure.refused());
    ConversionError::Request { guard, source }
}

fn lost(guard: Arc<Hold>, reason: LostReason) -> ConversionOutcome {
    let source = Lost {
        path: guard.path_lock.path.user().into(),
        reason,
    };
    Err(ConversionError::Lost { guard, source })
}

/// Has nodes deleted, one after the other, and waits until each is gone or refused, or the session
/// is gone.
async fn delete(hold: &Hold, names: Vec<String>) {
    let (done, gone) = oneshot::channel();
    submit(&hold.lock_ref(), names, Some(done));
    // The result does not matter, because the lock is lost in any case. Cleanup has logged a
    // refusal.
    let _ = gone.await;
}

fn submit(hold: &LockRef, names: Vec<String>, done: Option<ReleaseReply>) {
    hold.path_lock.client.cleanup.submit(CleanupItem {
        session: Arc::clone(&hold.session),
        directory: hold.path_lock.path.clone(),
        orphan: Orphan::Nodes(names),
        number: hold.held.number.attempt(),
        slot: None,
        done,
    });
}

/// A conversion that is not finished. If its task is dropped before that, by a panic (in a waker of
/// the caller's) or with its runtime, the lock is lost, and its nodes are deleted, the new one
/// first (docs/protocol.md#conversion-ends).
struct Unfinished {
    hold: LockRef,
    own: String,
    new: String,
    finished: bool,
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if !self.finished {
            let hold = &self.hold;
            hold.held
                .handle_event(HoldEvent::ConversionOver(LostReason::Closed));
            submit(
                hold,
                vec![std::mem::take(&mut self.new), std::mem::take(&mut self.own)],
                None,
            );
        }
    }
}

/// How often the write node is read before it is deleted at any version. Without a limit, a client
/// that keeps writing to the node would keep the downgrade from ending.
const MAX_READS: u32 = 3;

/// What another client has written to the write node.
#[derive(Clone, Copy)]
struct WrittenNode {
    /// The version that was read.
    version: i32,
    /// How often it was read.
    reads: u32,
}

/// The exchange of the write node for the read node, by one transaction.
struct NodeExchange<'a> {
    path_lock: &'a Arc<PathLock>,
    session: &'a Arc<Session>,
    hold: &'a Hold,
    /// The paths of the read node and of the write node.
    create: String,
    delete: String,
    written: Option<WrittenNode>,
}

impl NodeExchange<'_> {
    /// Sends the transaction.
    async fn send(&mut self, handle: zk::Client) -> Answered {
        let (create, delete) = (self.create.as_str(), self.delete.as_str());
        let acls = to_library(&self.path_lock.options.acl);
        let options = zk::CreateMode::Ephemeral.with_acls(zk::Acls::new(&acls));
        let version = self.version();
        let exchange = |writer: &mut zk::MultiWriter<'_>| {
            // The create comes first, so that a repetition of a transaction that was carried out
            // fails with `NodeExists`, and not with `NoNode`, which means that another process has
            // deleted the write node.
            writer.add_create(create, &self.path_lock.node_data(), &options)?;
            writer.add_delete(delete, version)
        };
        let error = match self.session.commit(&handle, 2, exchange).await {
            Ok(_) => {
                self.exchanged();
                return Answered::Done;
            }
            Err(zk::MultiWriteError::RequestFailed { source }) => {
                return Answered::Failed(self.session.failure(source));
            }
            Err(zk::MultiWriteError::OperationFailed { source, .. }) => source,
        };
        match error {
            // The name of the read node has a fresh id, so only an earlier transaction of this
            // downgrade can have created the node.
            zk::Error::NodeExists => self.exists(&handle).await,
            zk::Error::BadVersion => Answered::Failed(self.read_revocation(&handle).await),
            error => Answered::Failed(self.session.failure(error)),
        }
    }

    /// Records that the session has the read node in place of the write node. The caller knows that
    /// the read node exists. A node that does not exist would count until the session ends, and
    /// heartbeats would be sent for it.
    fn exchanged(&self) {
        let nodes = &self.session.nodes;
        nodes.add(self.create.clone(), self.path_lock.as_owner());
        nodes.gone(&self.delete, Gone::Unclear);
    }

    /// Returns the version at which the write node may be deleted. Data that another client has
    /// written are most likely a request for revocation, which must be read before they are
    /// deleted. Returns `None`, which means any version, once a request is known or the node has
    /// been read often enough.
    fn version(&self) -> Option<i32> {
        if self.hold.held.is_revocation_requested() {
            return None;
        }
        match self.written {
            Some(written) if written.reads >= MAX_READS => None,
            Some(written) => Some(written.version),
            // A node keeps the version 0 until its data is written.
            None => Some(0),
        }
    }

    /// Reads the write node, which another client has written to.
    async fn read_revocation(&mut self, handle: &zk::Client) -> Failure {
        let path = self.delete.as_str();
        let reads = self.written.map_or(0, |written| written.reads);
        match handle.get_data(path).await {
            Ok((data, stat)) => {
                // The request is kept in the hold, because its node is deleted with the data.
                if data == MARKER {
                    self.hold.held.request_revocation();
                }
                self.written = Some(WrittenNode {
                    version: stat.version,
                    reads: reads + 1,
                });
            }
            // The ACL does not let this client read its own lock node, so a request for revocation
            // could not be noticed anyway. The node is deleted at any version.
            Err(zk::Error::NoAuth) => {
                self.written = Some(WrittenNode {
                    version: -1,
                    reads: MAX_READS,
                });
            }
            // The next transaction fails with `BadVersion` again, and another read follows.
            Err(error) => {
                log::debug!(path, %error, "what another client wrote to a lock node is read again");
            }
        }
        // The failure is definite, and the downgrade repeats the transaction after a pause, with
        // the version that was read.
        FailureKind::NotNow.into()
    }

    /// Returns the outcome of a transaction that has found the read node. The node counts only if
    /// this session owns it, because the servers may have replaced the session
    /// (docs/protocol.md#owner-check).
    async fn exists(&self, handle: &zk::Client) -> Answered {
        Answered::Failed(match handle.check_stat(&self.create).await {
            Ok(Some(stat)) if self.session.check_owner(&stat) => {
                self.exchanged();
                return Answered::Done;
            }
            // The servers have replaced this session, and the other session has carried out the
            // transaction. `check_owner` has ended this session.
            Ok(Some(_)) => FailureKind::SessionGone.into(),
            // Another process has deleted the read node since. The repetition finds that the write
            // node is gone too, and the lock is lost.
            Ok(None) => FailureKind::NotNow.into(),
            Err(error) => self.session.failure(error),
        })
    }
}
